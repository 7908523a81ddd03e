"""Part 37: the examples of `examples/control`, tests in JavaScript, Go and Java that script their Kafka over HTTP, pass with those languages' own runners."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from . import kafka
from .test_16_wire_languages import SOURCES, require

PART = "37 control in other languages"
EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "control"
JUNIT = ("junit-platform-console-standalone", "1.13.4")


def passed(command: list[str], directory: Path, variables: dict[str, str] | None = None) -> str:
    """What a runner prints, which finds `fletchlog` on PATH."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(command, cwd=directory, env=os.environ | {"PATH": path} | (variables or {}), capture_output=True, text=True, timeout=400, check=False)
    assert done.returncode == 0, f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout[-4000:]}{done.stderr[-2000:]}"
    return done.stdout


def test_in_javascript(count: Callable[..., None]) -> None:
    require("node", "Node.js 20 or newer")
    target = kafka.CACHE / "node-control"
    target.mkdir(parents=True, exist_ok=True)
    shutil.copy(SOURCES / "node" / "package.json", target)
    shutil.copy(EXAMPLES / "orders.test.js", target)
    if not (target / "node_modules" / "kafkajs").exists():
        passed(["npm", "install", "--no-audit", "--no-fund", "--no-package-lock"], target)
    assert "# pass 1" in passed(["node", "--test", "--test-reporter=tap"], target)
    count(PART, languages=1)


def test_in_go(count: Callable[..., None]) -> None:
    require("go", "Go 1.25 or newer")
    target = kafka.CACHE / "go-control"
    target.mkdir(parents=True, exist_ok=True)
    for source in (SOURCES / "go" / "go.mod", SOURCES / "go" / "go.sum", EXAMPLES / "orders_test.go"):
        shutil.copy(source, target)
    assert "PASS: TestAnOrderSurvivesAMovedLeader" in passed(["go", "test", "-count=1", "-v", "."], target)
    count(PART, languages=1)


def test_in_java(tmp_path: Path, count: Callable[..., None]) -> None:
    libraries = ":".join(f"{kafka.jars(*artifact)}/*" for artifact in (("kafka-clients", kafka.NEWEST), JUNIT, kafka.LOGGING))
    passed(["javac", "-nowarn", "-cp", libraries, "-d", str(tmp_path), str(EXAMPLES / "OrdersTest.java")], tmp_path)
    runner = ["org.junit.platform.console.ConsoleLauncher", "execute", "--select-class", "OrdersTest"]
    assert "1 tests successful" in passed([*kafka.JVM, "-cp", f"{tmp_path}:{libraries}", *runner], tmp_path)
    count(PART, languages=1)
