"""Part 27: Java's producers write to `fletchlog serve`, which is killed again and again: what was acknowledged is there, once and in order."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import fletchlog as fl
from judges.kills.served import PARTITIONS, Served

from . import kafka
from .clients import Clients, Note
from .conftest import CASES, SEED

PART = "27 Java's producers over kills of the listener"
KILLS = max(5, CASES // 8)
RELEASES = [release for release in kafka.CLIENTS if release != "3.7.2"]
IDEMPOTENT, PLAIN, TRANSACTIONAL = 1, 2, 3
TOPICS = {IDEMPOTENT: "idempotent", PLAIN: "plain", TRANSACTIONAL: "transactional"}
PATIENT = {"reconnect_backoff_ms": 10, "reconnect_backoff_max_ms": 100, "retry_backoff_ms": 20, "delivery_timeout_ms": 600_000, "request_timeout_ms": 5_000}


def written(broker: fl.Broker, topic: str) -> list[list[int]]:
    """The committed values of each partition, in order."""
    scans = (broker.scan(topic, partition=partition, isolation_level="read_committed") for partition in range(PARTITIONS))
    return [[int(value) for value in scan.to_pyarrow()["value"].to_pylist()] for scan in scans]


def sent(notes: list[Note], process: int, outcome: str) -> list[list[int]]:
    """The values that a process sent with that outcome, by partition, ascending."""
    values: list[list[int]] = [[] for _ in range(PARTITIONS)]
    for note in notes:
        if note.get("process") == process and note.get("outcome") == outcome:
            for place, value, *_ in note["sends"]:
                values[int(place.rpartition("-")[2])].append(value)
    return [sorted(of_partition) for of_partition in values]


@pytest.mark.parametrize("release", RELEASES)
def test_nothing_that_java_was_acknowledged_is_lost_or_repeated(release: str, scratch: Path, count: Callable[..., None]) -> None:
    rng = random.Random(SEED)
    directory = scratch / "data"
    with fl.Broker(directory, create=True) as broker:
        for topic in TOPICS.values():
            broker.create_topic(topic, partitions=PARTITIONS)
    served = Served(directory)
    clients = Clients.java(release, served.bootstrap, scratch)

    def start(kind: str, process: int, **config: Any) -> None:
        clients.worker(kind, process, TOPICS[process], PARTITIONS, 0, **PATIENT, **config)

    start("producer", IDEMPOTENT, enable_idempotence="true")
    start("producer", PLAIN, enable_idempotence="false", retries=2**31 - 1, max_in_flight_requests_per_connection=1)
    start("transactions", TRANSACTIONAL, transactional_id="writer", transaction_timeout_ms=60_000, max_block_ms=20_000)
    for _ in range(KILLS):
        clients.await_progress(list(TOPICS))
        time.sleep(10 ** rng.uniform(-3, 0))
        served.kill()
    clients.await_progress(list(TOPICS))
    clients.close()
    served.end()
    notes = clients.notes()
    assert not [note for note in notes if "surprise" in note]
    with fl.Broker(directory) as broker:
        # ends what a killed transaction has left open
        logs = {process: written(broker, topic) for process, topic in TOPICS.items()}
    assert sent(notes, IDEMPOTENT, "unknown") == [[] for _ in range(PARTITIONS)], "its delivery time-out is longer than this test"
    assert logs[IDEMPOTENT] == sent(notes, IDEMPOTENT, "ok")
    for log, acknowledged in zip(logs[PLAIN], sent(notes, PLAIN, "ok"), strict=True):
        assert set(acknowledged) <= set(log)
    committed, undecided = (sent(notes, TRANSACTIONAL, outcome) for outcome in ("ok", "unknown"))
    for log, must, may in zip(logs[TRANSACTIONAL], committed, undecided, strict=True):
        assert log == sorted(set(log))
        assert set(must) <= set(log) <= set(must) | set(may)
    records = sum(len(of_partition) for log in logs.values() for of_partition in log)
    count(PART, kills=KILLS, records=records)
