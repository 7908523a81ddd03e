"""What `make bench` says of the last figures (benches/history.json), and what it writes."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]
LAST = {"a / b": {"ratio": 0.5, "date": "2026-01-02", "commit": "0123abc"}}


@pytest.fixture(scope="module")
def history() -> ModuleType:
    # benches/python is not on the path: a module of its own name there would hide one of the standard library.
    spec = importlib.util.spec_from_file_location("bench_history", ROOT / "benches/python/history.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["bench_history"] = module
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("better", "value", "worse"),
    [
        ("higher", 0.46, False),
        ("higher", 0.44, True),
        ("higher", 5.0, False),
        ("lower", 0.54, False),
        ("lower", 0.56, True),
        ("lower", 0.1, False),
        ("flat", 0.46, False),
        ("flat", 0.44, True),
        ("flat", 1.0, False),
        ("flat", 1.9, False),
        ("flat", 2.3, True),
    ],
)
def test_more_than_a_tenth_in_the_bad_direction_is_said(history: ModuleType, better: str, value: float, worse: bool) -> None:
    assert bool(history.regressions([history.Ratio("a / b", value, better)], LAST)) == worse


def test_the_line_names_both_figures_and_where_the_last_is_from(history: ModuleType) -> None:
    assert history.regressions([history.Ratio("a / b", 0.4)], LAST) == ["a / b: 0.400, 20% worse than 0.500 of 2026-01-02 (0123abc)"]


def test_a_run_says_what_got_worse_and_replaces_the_figures_it_has(history: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "history.json"
    path.write_text(json.dumps({"ratios": LAST | {"not measured": LAST["a / b"]}}))
    history.compare_and_write([history.Ratio("a / b", 0.3), history.Ratio("new", 2.0)], path)
    assert "WORSE  a / b: 0.300, 40% worse than 0.500" in capsys.readouterr().out
    last = history.read(path)
    assert {name: figure["ratio"] for name, figure in last.items()} == {"a / b": 0.3, "new": 2.0, "not measured": 0.5}
    assert last["not measured"] == LAST["a / b"]
    history.compare_and_write([history.Ratio("a / b", 0.31), history.Ratio("new", 1.9)], path)
    out = capsys.readouterr().out
    assert "nothing more than 10% worse" in out
    assert "WORSE" not in out


def test_without_a_file_nothing_is_worse_and_one_is_written(history: ModuleType, tmp_path: Path) -> None:
    path = tmp_path / "history.json"
    history.compare_and_write([history.Ratio("a / b", 0.1)], path)
    assert set(history.read(path)["a / b"]) == {"ratio", "date", "commit"}
    assert [entry.name for entry in tmp_path.iterdir()] == ["history.json"]


def test_the_committed_file_has_figures_that_a_run_can_compare_with(history: ModuleType) -> None:
    figures = history.read()
    assert history.regressions([history.Ratio(name, float(figure["ratio"])) for name, figure in figures.items()], figures) == []
    assert all(set(figure) == {"ratio", "date", "commit"} for figure in figures.values())
    assert all(float(figure["ratio"]) > 0 for figure in figures.values())
    assert "send_arrow / encode floor" in figures
