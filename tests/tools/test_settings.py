"""Numbers from the environment: what is none is named in one line, before anything is built."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import settings

TOOLS = Path(__file__).resolve().parents[2] / "tools"


@pytest.mark.parametrize("text", ["soon", "-1", "nan", "inf", "1.5.2"])
@pytest.mark.parametrize("suite", ["mutants", "fuzz"])
def test_a_time_limit_that_is_no_number_of_seconds_ends_the_suite_at_once(suite: str, text: str, tmp_path: Path) -> None:
    # No cargo there: it would be an error of its own.
    environment = {**os.environ, "TIME_LIMIT": text, "PATH": str(tmp_path)}
    done = subprocess.run([sys.executable, TOOLS / f"{suite}.py"], env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (1, "", f"{suite}: TIME_LIMIT={text} is not a number of seconds\n")


@pytest.mark.parametrize(("text", "expected"), [("", 7), ("0", 0), (" 12 ", 12), ("1.5", 1.5)])
def test_numbers_are_read_and_an_empty_variable_is_none(monkeypatch: pytest.MonkeyPatch, text: str, expected: float) -> None:
    monkeypatch.setenv("TIME_LIMIT", text)
    assert settings.seconds("suite", 7) == expected


def test_a_count_is_a_whole_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SEED", "1.5")
    with pytest.raises(SystemExit, match=re.escape("suite: SEED=1.5 is not a whole number")):
        settings.count("suite", "SEED", 0)
