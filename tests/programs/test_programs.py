"""Small programs of everyday use, as a new user writes them from the README and the reference: each runs as it is and prints what it says.

The lines `# -> ` of a program are what it prints. It runs in an empty directory of its own.
"""

from __future__ import annotations

import contextlib
import io
import runpy
from pathlib import Path

import pytest

PROGRAMS = sorted(path for path in Path(__file__).parent.glob("*.py") if not path.name.startswith("test_"))


def test_there_are_programs() -> None:
    assert len(PROGRAMS) >= 60


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda path: path.stem)
def test_a_program_prints_what_it_says(program: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    lines = [line.strip() for line in program.read_text().splitlines()]
    expected = [line.removeprefix("# ->").strip() for line in lines if line.startswith("# ->")]
    assert expected, "a program says what it prints in lines # ->"
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        runpy.run_path(str(program), run_name="__main__")
    assert printed.getvalue().splitlines() == expected
