"""What the documentation shows is what happens."""

from __future__ import annotations

import doctest
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

import fletchlog as fl
from fletchlog import serde
from tests.python import test_docs
from tests.support.command_line import invoke

README = Path(__file__).resolve().parents[2] / "README.md"
TEXT = README.read_text(encoding="utf-8")
BLOCKS = test_docs.BLOCK.findall(TEXT)


@pytest.mark.parametrize("module", [fl, fl.assign, serde])
def test_examples_of_docstrings_run(module: ModuleType) -> None:
    found = doctest.testmod(module)
    assert found.attempted > 0
    assert found.failed == 0


def test_the_readme_runs_as_typed_twice_in_a_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert {"python", "sh"} <= {language for language, _ in BLOCKS}
    for times in (1, 2):
        test_docs.run_blocks(BLOCKS, "README.md", {})
        with fl.Broker("data/", read_only=True) as broker:
            assert broker.scan("orders").to_pyarrow().num_rows == 1000 * times
            # each run reads on where the one before has committed
            assert sum(committed.offset for committed in broker.group_offsets("billing").values()) == 500 * times


def test_explain_says_what_the_readme_shows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    program, shown = (next(text for language, text in BLOCKS if language == wanted) for wanted in ("python", "text"))
    test_docs.run_blocks([("python", program)], "README.md", {})
    printed = " ".join(invoke(["explain", "data/", "--topics", "orders"]).output.split())
    for line in re.split(r"\n(?=poll)", shown):
        assert " ".join(line.split()) in printed


def test_the_tests_of_the_readme_pass(tmp_path: Path) -> None:
    block = next(text for language, text in BLOCKS if language == "python" and "def test_" in text)
    (tmp_path / "test_readme.py").write_text(block, encoding="utf-8")
    done = subprocess.run([sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 passed" in done.stdout


def test_the_links_of_the_readme_lead_to_files() -> None:
    for target in re.findall(r"\]\(([^)]*)\)", TEXT):
        assert (README.parent / target).is_file(), target


def test_the_readme_fits_two_screens() -> None:
    assert len(TEXT.splitlines()) <= 110
