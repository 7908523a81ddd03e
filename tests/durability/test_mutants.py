"""The planted bugs of `make mutants` still fit the sources."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))

import mutants  # noqa: E402


def test_each_planted_bug_has_its_place_in_the_sources() -> None:
    names = [mutant["name"] for mutant in mutants.mutants()]
    assert len(set(names)) == len(names) >= 20
    for file, text in mutants.planted(ROOT).items():
        assert ("crate::planted::is(" if file.endswith(".rs") else 'environ.get("PLANTED")') in text
        assert "planted" not in (ROOT / file).read_text().lower(), f"{file} must be shipped without bugs"


def test_a_bug_that_has_lost_its_place_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    stale = {"name": "stale", "edit": [{"file": "rust/log/src/append.rs", "old": "no such text", "new": ""}]}
    monkeypatch.setattr(mutants, "mutants", lambda: [stale])
    with pytest.raises(SystemExit, match=r"stale: rust/log/src/append\.rs has its text 0 times"):
        mutants.planted(ROOT)
