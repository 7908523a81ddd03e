"""Part 16: franz-go, sarama and kafkajs against our listener: every record acknowledged once, in a group's order, and transactions."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from pytest_fletchlog.kafka import Kafka

from . import kafka

PART = "16 clients in Go and JavaScript"
SOURCES = Path(__file__).resolve().parent
RECORDS = 300


def require(tool: str, what: str) -> None:
    """Fails loudly when a tool is missing: the caller asked for its result."""
    if shutil.which(tool) is None:
        message = f"make test-interop needs {tool} on PATH; install {what}, then run it again."
        raise RuntimeError(message)


def execute(command: list[str], directory: Path) -> str:
    done = subprocess.run(command, cwd=directory, capture_output=True, text=True, timeout=400, check=False)
    assert done.returncode == 0, f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout[-2000:]}{done.stderr[-2000:]}"
    return done.stdout


@pytest.fixture(scope="session")
def go_program() -> list[str]:
    """Compiled into .build; the modules come from the Go module proxy."""
    require("go", "Go 1.25 or newer")
    target = kafka.CACHE / "go-client"
    execute(["go", "build", "-o", str(target), "."], SOURCES / "go")
    return [str(target)]


@pytest.fixture(scope="session")
def node_program() -> list[str]:
    """With its packages in .build."""
    require("node", "Node.js 20 or newer")
    require("npm", "npm")
    target = kafka.CACHE / "node-client"
    target.mkdir(parents=True, exist_ok=True)
    for name in ("package.json", "main.js"):
        shutil.copy(SOURCES / "node" / name, target / name)
    if not (target / "node_modules" / "kafkajs").exists():
        execute(["npm", "install", "--no-audit", "--no-fund", "--no-package-lock"], target)
    return ["node", str(target / "main.js")]


@pytest.mark.parametrize("client", ["franz-go", "sarama", "kafkajs"])
def test_a_client_in_another_language_writes_and_reads(client: str, request: pytest.FixtureRequest, tmp_path: Path, count: Callable[..., None]) -> None:
    program = request.getfixturevalue("node_program" if client == "kafkajs" else "go_program")
    with Kafka() as served:
        served.topic(name="orders", partitions=3)
        served.topic(name="paid")
        saw = json.loads(execute([*program, client, served.bootstrap], tmp_path).splitlines()[-1])
        log = {(row["partition"], row["offset"]): row["value"].decode() for row in served.records("orders").to_pylist()}
        assert [log[partition, offset] for partition, offset in saw["reports"]] == [str(i) for i in range(RECORDS)]
        assert len(log) == RECORDS
        in_order = {str(p): [value for (of, _), value in sorted(log.items()) if of == p] for p in range(3)}
        assert {p: saw["read"].get(p, []) for p in in_order} == in_order
        assert saw["committed"] == ["true"]
        assert len(served.records("paid")) == 2, "one of them aborted"
        committed = [row["value"] for row in served.records("paid", isolation_level="read_committed").to_pylist()]
        assert committed == [b"true"]
    count(PART, clients=1, records=RECORDS)
