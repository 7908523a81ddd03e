"""`examples/demo`: the whole story, smaller, and that it does not believe wrong totals."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console

from demo.report import Report

DEMO = Path(__file__).resolve().parents[2] / "examples" / "demo"


def demo(*words):
    # a process of its own: it starts and stops a Spark session
    return subprocess.run([sys.executable, "-W", "ignore", str(DEMO), *map(str, words)], capture_output=True, text=True, check=False)


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(420)
def test_the_demo_checks_itself_and_can_be_run_again(tmp_path):
    path = tmp_path / "out"
    reports = []
    for _ in range(2):
        done = demo("-o", path, "--flights", 20_000)
        assert done.returncode == 0, done.stderr
        assert "All totals agree with the input" in done.stdout
        assert done.stderr.splitlines() == ["this takes about a minute, most of it in Spark"]
        for name in ("explain.html", "audit.html", "delays.html"):
            assert f"open {path / name}: " in done.stdout
            assert (path / name).read_text().startswith("<!doctype html>")
        assert "Passed: every partition keeps the thresholds." in (path / "audit.html").read_text()
        reports.append(json.loads((path / "report.json").read_text()))
    report = reports[0]
    assert {entry.name for entry in path.iterdir()} == {
        "log",
        "report.json",
        "poll-order.png",
        "delays",
        "audit",
        "spark.log",
        "explain.html",
        "audit.html",
        "delays.html",
    }
    idempotent, regular, muted = report["produce"]["topics"].values()
    assert (idempotent["in_log"], idempotent["duplicates"], idempotent["inversions"]) == (20_000, 0, 0)
    assert regular["duplicates"] > 0 < regular["inversions"]
    assert muted["duplicates"] > 0 == muted["inversions"]
    assert all(check["holds"] for check in report["checks"])
    # the faults come from the seed, not from timing
    assert reports[0]["produce"] == reports[1]["produce"]
    assert reports[0]["order"] == reports[1]["order"]


def test_a_foreign_directory_is_not_replaced(tmp_path):
    (tmp_path / "mine").write_text("x")
    done = demo("-o", tmp_path)
    assert done.returncode == 1
    assert "not a former run" in done.stderr
    assert (tmp_path / "mine").exists()


def test_a_total_that_disagrees_is_a_failure():
    report = Report(Console())
    report.check("flights in the log", 4, 4)
    report.check("flights in all windows", 3, 4)
    report.check_that("order holds", False)
    assert report.failures == ["flights in all windows: found 3, expected 4", "order holds: found False, expected True"]
    assert [check["holds"] for check in report.data["checks"]] == [True, False, False]
