"""`examples/demo`: the whole story, smaller, and that it does not believe wrong totals."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console

import fletchlog as fl
from demo import flights as source
from demo.order import compare
from demo.produce import NODES, WAYS, produce
from demo.report import Report
from fletchlog.cli.terminal import progress

DEMO = Path(__file__).resolve().parents[2] / "examples" / "demo"


def demo(*words):
    # a process of its own: it starts and stops a Spark session
    return subprocess.run([sys.executable, "-W", "ignore", str(DEMO), *map(str, words)], capture_output=True, text=True, check=False)


def polls_again(path, flights):
    """What the demo reports about its first parts, which need no Spark; a run of their own."""
    report = Report(Console())
    with progress(console=report.console) as bar, fl.Broker(path, create=True, nodes=NODES) as broker:
        produce(broker, source.load(bar, flights), report, bar, seed=7)
        compare(broker, WAYS[0].topic, report, bar, path.with_suffix(".png"))
    return report.data["produce"], report.data["order"]


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(420)
def test_the_demo_checks_itself_and_replaces_a_former_run(tmp_path):
    path = tmp_path / "out"
    for former in ("log/flights-0", "delays", "checkpoint"):
        (path / former).mkdir(parents=True)
        (path / former / "former").write_text("x")
    (path / "report.json").write_text("{}")
    done = demo("-o", path, "--flights", 20_000)
    assert done.returncode == 0, done.stderr
    assert "All totals agree with the input" in done.stdout
    assert "this takes about a minute" in done.stderr
    for name in ("explain.html", "audit.html", "delays.html"):
        assert f"open {path / name}: " in done.stdout
        assert (path / name).read_text().startswith("<!doctype html>")
    assert "Passed: every partition keeps the thresholds." in (path / "audit.html").read_text()
    report = json.loads((path / "report.json").read_text())
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
    assert not list(path.rglob("former"))
    idempotent, regular, muted = report["produce"]["topics"].values()
    assert (idempotent["in_log"], idempotent["duplicates"], idempotent["inversions"]) == (20_000, 0, 0)
    assert regular["duplicates"] > 0 < regular["inversions"]
    assert muted["duplicates"] > 0 == muted["inversions"]
    assert all(check["holds"] for check in report["checks"])
    # the faults come from the seed, not from timing
    assert json.loads(json.dumps(polls_again(tmp_path / "again", 20_000))) == [report["produce"], report["order"]]


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
