"""What type checkers say of sixty right and sixty wrong programs, and of the documentation: nothing of the right ones, something of each wrong line."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
PACKAGE = ROOT / "python"
CACHE = ROOT / ".build" / "mypy-typing"
NUMBER = re.compile(r"  # (\d+)$")
# of these two alone: their modules may need stubs that are not installed
ERROR = re.compile(r"(right|wrong)\.py:(\d+)(?::\d+)?(?:: error| - error)")
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)
MYPY = ["mypy", "--strict", "--python-version", "3.11", "--ignore-missing-imports", "--config-file", os.devnull, "--cache-dir", str(CACHE)]


def lines(name: str) -> dict[int, int]:
    """The lines with a number, and their numbers."""
    source = (HERE / f"{name}.py").read_text(encoding="utf-8").splitlines()
    return {place: int(found[1]) for place, text in enumerate(source, 1) if (found := NUMBER.search(text))}


def errors(checker: str) -> dict[str, dict[int, str]]:
    """By file and line, what a checker finds."""
    command = {
        "mypy": MYPY,
        "pyright": ["pyright", "--pythonpath", sys.executable],
    }[checker]
    files = [str(HERE / f"{name}.py") for name in ("right", "wrong")]
    done = subprocess.run(
        [sys.executable, "-m", *command, *files], capture_output=True, text=True, check=False, env={**os.environ, "MYPYPATH": str(PACKAGE), "NO_COLOR": "1"}
    )
    assert done.returncode == 1, f"{done.stdout}\n{done.stderr}"
    found: dict[str, dict[int, str]] = {"right": {}, "wrong": {}}
    for line in done.stdout.splitlines():
        if place := ERROR.search(line):
            found[place[1]].setdefault(int(place[2]), line)
    return found


@pytest.mark.parametrize("name", ["right", "wrong"])
def test_there_are_sixty(name: str) -> None:
    assert sorted(lines(name).values()) == list(range(1, 61))


@pytest.mark.parametrize("package", ["fletchlog", "pytest_fletchlog"])
def test_a_package_says_that_it_is_typed(package: str) -> None:
    assert (PACKAGE / package / "py.typed").is_file()


@pytest.mark.parametrize("checker", ["mypy", "pyright"])
def test_a_checker_finds_every_wrong_line_and_nothing_else(checker: str) -> None:
    if importlib.util.find_spec(checker) is None:
        pytest.skip(f"{checker} is not installed (dependency group lint)")
    # pyright's package fetches the checker itself when it runs first
    if subprocess.run([sys.executable, "-m", checker, "--version"], capture_output=True, check=False).returncode != 0:
        pytest.skip(f"{checker} is not complete here, and cannot be fetched")
    found = errors(checker)
    assert list(found["right"].values()) == []
    wrong = lines("wrong")
    assert [number for place, number in wrong.items() if place not in found["wrong"]] == []
    assert [text for place, text in found["wrong"].items() if place not in wrong] == []


def test_mypy_accepts_the_readme_and_the_configurations_of_every_page(tmp_path: Path) -> None:
    pytest.importorskip("mypy", reason="mypy is not installed (dependency group lint)")
    for page in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]:
        name = page.relative_to(ROOT).with_suffix("").as_posix().replace("/", "_").replace("-", "_")
        (tmp_path / f"{name}.py").write_text("\n".join(BLOCK.findall(page.read_text(encoding="utf-8"))), encoding="utf-8")
    # the functions of tests have no annotations
    command = [sys.executable, "-m", *MYPY, "--allow-untyped-defs", *map(str, sorted(tmp_path.glob("*.py")))]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path, env={**os.environ, "MYPYPATH": str(PACKAGE), "NO_COLOR": "1"})
    assert "checked" in done.stdout, f"{done.stdout}\n{done.stderr}"
    found = [line for line in done.stdout.splitlines() if ": error: " in line]
    assert [line for line in found if line.startswith("README.py") or "Config | Mapping" in line or "_DeclaredAsAny" in line] == []
