"""Slices of `make kills`, `make call-faults` and `make power-loss`, and what they must not pass over."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from judges.kills.processes import environment

# On a busy machine fewer have to do.
SECONDS = 60


def suite(name: str, **numbers: object) -> subprocess.CompletedProcess[str]:
    """Runs a suite as `make` does."""
    given = {key: str(value) for key, value in numbers.items()}
    return subprocess.run([sys.executable, "-m", f"judges.kills.{name}"], env=environment() | given, capture_output=True, text=True, check=False)


SIZES = {
    "one_thread": "KILLS",
    "many_threads": "THREAD_KILLS",
    "spark_sink": "SPARK_KILLS",
    "call_faults": "RUNS",
    "power_loss": "IMAGES",
    "listener": "LISTENER_KILLS",
    "spark_queries": "QUERY_KILLS",
    "spark_tasks": "TASK_KILLS",
    "land": "LAND_KILLS",
}
LAST_LINES = {
    "one_thread": r"kills: (\d+), (\d+) violations",
    "many_threads": r"thread-kills: (\d+), (\d+) violations \([1-9]\d* acknowledged records, .*\)",
    "spark_sink": r"spark-kills: (\d+), (\d+) violations \([1-9]\d* batches, .*\)",
    "call_faults": r"call-faults: (\d+) runs \([1-9]\d* with a fault, .*\), (\d+) violations \(.*\)",
    "listener": r"listener-kills: (\d+), (\d+) violations \([1-9]\d* acknowledged records, .*\)",
    "spark_queries": r"query-kills: (\d+), (\d+) violations \(.*, [1-9]\d* rows, .*\)",
    "spark_tasks": r"task-kills: (\d+), (\d+) violations \(.*, [1-9]\d* rows, .*\)",
    "land": r"land-kills: (\d+), (\d+) violations \(.*, [1-9]\d* rows, .*\)",
    "power_loss": r"power-loss: (\d+) images \(.* [1-9]\d* acknowledged records\), (\d+) violations \(.*\)",
}


def holds(name: str, size: int, least: int, directory: Path) -> None:
    """Runs a suite of that size; no violation is found, and TIME_LIMIT leaves at least so many of it."""
    done = suite(name, **{SIZES[name]: size}, TIME_LIMIT=SECONDS, SEED=1, TMPDIR=directory)
    found = re.match(LAST_LINES[name], (done.stdout.strip().splitlines() or [""])[-1])
    assert found, done.stdout + done.stderr
    assert int(found[2]) == done.returncode == 0, done.stdout + done.stderr
    assert int(found[1]) >= least, done.stdout + done.stderr


@pytest.mark.timeout(600)
@pytest.mark.parametrize(("name", "size"), [("one_thread", 20), ("many_threads", 1), ("call_faults", 4), ("power_loss", 2)])
def test_what_was_acknowledged_survives_a_few(name: str, size: int, tmp_path: Path) -> None:
    holds(name, size, 1, tmp_path)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("name", "size", "least"),
    [
        ("one_thread", 100, 20),
        ("many_threads", 4, 1),
        ("spark_sink", 20, 10),
        ("call_faults", 20, 4),
        ("power_loss", 4, 2),
        ("listener", 20, 10),
        ("spark_tasks", 2, 1),
        ("land", 3, 3),
    ],
)
def test_what_was_acknowledged_survives(name: str, size: int, least: int, tmp_path: Path) -> None:
    holds(name, size, least, tmp_path)


def finds_a_planted_disk(name: str, number: int, seconds: int, directory: Path) -> None:
    """Runs a suite on a disk that does not keep what it says; it reports violations, and fails."""
    done = suite(name, PLANTED="yes", TIME_LIMIT=seconds, TMPDIR=directory, **{SIZES[name]: number})
    found = re.search(r"(\d+) violations", (done.stdout.strip().splitlines() or [""])[-1])
    assert found, done.stdout + done.stderr
    assert int(found[1]) > 0, done.stdout + done.stderr
    assert done.returncode == 1


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", sorted(SIZES.keys() - {"power_loss", "spark_queries", "spark_tasks"}))  # those: planted_disks.py
def test_a_disk_that_does_not_keep_what_it_says_is_found(name: str, tmp_path: Path) -> None:
    finds_a_planted_disk(name, 10, SECONDS, tmp_path)


@pytest.mark.parametrize("name", list(SIZES))
def test_a_limit_that_is_no_number_is_one_clear_line(name: str) -> None:
    done = suite(name, TIME_LIMIT="soon")
    assert (done.returncode, done.stdout) == (1, "")
    assert re.fullmatch(r"[a-z-]+: TIME_LIMIT=soon is not a number of seconds\n", done.stderr)


@pytest.mark.parametrize("name", sorted(SIZES.keys() - {"land", "listener", "spark_queries", "spark_tasks"}))
def test_a_missing_compiler_is_named(name: str, tmp_path: Path) -> None:
    done = suite(name, PATH=tmp_path, FLETCHLOG_SHIM="")
    assert (done.returncode, done.stdout) == (1, "")
    assert "cc is missing" in done.stderr
