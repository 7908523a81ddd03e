"""The planted bugs of `make mutants` and the sources name the same ones."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))

import mutants  # noqa: E402


def test_each_planted_bug_has_its_place_in_the_sources() -> None:
    listed = mutants.mutants()
    names = [mutant["name"] for mutant in listed]
    assert len(set(names)) == len(names) >= 20
    # A name with a capital is a lie of the simulated disk (rust/sim/src/disk_fault.rs).
    assert mutants.marked(ROOT) == {mutant["name"] for mutant in listed if "edit" not in mutant and str(mutant["name"])[0].islower()}
    for file, text in mutants.edited(ROOT).items():
        assert 'environ.get("PLANTED")' in text
        assert "planted" not in (ROOT / file).read_text().lower(), f"{file} must be shipped without bugs"


def test_a_bug_that_has_lost_its_place_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    stale = {"name": "stale", "edit": [{"file": "python/fletchlog/ledger.py", "old": "no such text", "new": ""}]}
    monkeypatch.setattr(mutants, "mutants", lambda: [stale])
    with pytest.raises(SystemExit, match=r"stale: python/fletchlog/ledger\.py has its text 0 times"):
        mutants.edited(ROOT)
