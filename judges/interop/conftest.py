"""Seed and size of the generated cases, and a line per part at the end."""

from __future__ import annotations

import gc
import os
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from . import kafka

SEED = int(os.environ.get("SEED") or 1)
CASES = int(os.environ.get("CASES") or 200)
COUNTS: dict[str, dict[str, int]] = {}


def pytest_report_header() -> str:
    return f"interop: SEED={SEED} CASES={CASES} (the same seed generates the same cases)"


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    terminalreporter.section(f"interop, SEED={SEED} CASES={CASES}")
    for part, counts in sorted(COUNTS.items(), key=lambda part: int(part[0].split()[0])):
        terminalreporter.write_line(f"{part}: " + ", ".join(f"{count:,} {what}" for what, count in counts.items()))


@pytest.hookimpl(tryfirst=True)
def pytest_unconfigure() -> None:
    """kafka-python leaves sockets open that no node took. pytest would end with an error for each."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        for _ in range(5):  # as pytest does, for what is found only when something else is gone
            gc.collect()


@pytest.fixture(scope="session")
def seed() -> int:
    """Every generated case follows from it."""
    return SEED


@pytest.fixture(scope="session")
def cases() -> int:
    """How many cases a part generates, roughly."""
    return CASES


@pytest.fixture(scope="session", autouse=True)
def _tools() -> None:
    kafka.require_tools()


@pytest.fixture
def count() -> Callable[..., None]:
    """`count("part", what=n)` adds to the line of that part."""

    def add(part: str, **counts: int) -> None:
        for what, number in counts.items():
            of = COUNTS.setdefault(part, {})
            of[what.replace("_", " ")] = of.get(what.replace("_", " "), 0) + number

    return add


@pytest.fixture
def scratch(tmp_path: Path) -> Iterator[Path]:
    """A directory that is gone after the test: generated logs are large."""
    import shutil

    yield tmp_path
    shutil.rmtree(tmp_path, ignore_errors=True)
