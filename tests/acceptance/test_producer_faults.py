"""The recorded fault scripts of three Java producers, replayed through the public API: what is in the log, what each send returned.

rust/sim/tests/producer_faults.rs replays all of them on the engine; here each script with one client shows that the binding does the same, all but every
4th of them as slow tests.
"""

from __future__ import annotations

import json
import struct
import time
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import fletchlog as fl
from tests.support import fault_script

# No multiple of the number of clients, so that each has its turn.
EVERY = 4
CLIENTS = ["2.6.3", "3.9.1", "4.3.1"]
GOLDEN = Path(__file__).resolve().parent.parent / "golden" / "producer-faults"
DEFAULTS = {
    "batch.size": 1,
    "linger.ms": 0,
    "acks": "all",
    "retry.backoff.ms": 10,
    "retry.backoff.max.ms": 10,
    "delivery.timeout.ms": 120000,
    "request.timeout.ms": 30000,
    "max.block.ms": 10000,
}
# Spec 13: depends on when the Java client happens to wake up, or differed between two recordings.
TIMING = {"190", "191", "197", "236", "253", "229", "234", "239", "244", "225", "235", "265", "266"}


def scenarios() -> list[Any]:
    """Every recorded script with one of its clients: each has its turn."""
    cases = []
    for path in sorted((GOLDEN / "scenarios").glob("*.json")):
        scenario = json.loads(path.read_text())
        timed = any("sleep" in step for step in scenario["steps"]) or any(
            action.split("@")[0].startswith(("drop", "late", "wait")) for action in scenario["script"].values()
        )
        expires = int(scenario["config"].get("delivery.timeout.ms", 0)) > 0 and "HOLE" in scenario["title"]
        clients = [client for client in CLIENTS if (GOLDEN / "expected" / client / f"{path.stem}.json").exists()]
        if clients and path.stem not in TIMING:
            cases.append((clients[len(cases) % len(clients)], path.stem, timed or expires))
    return [
        pytest.param(client, number, marks=[pytest.mark.slow] if waits or i % EVERY else [], id=f"{client}-{number}")
        for i, (client, number, waits) in enumerate(cases)
    ]


def log_of(broker: fl.Broker, topic: str, partition: int, ids: dict[int, int]) -> list[list[int]]:
    """[offset, record number, producer number, epoch, sequence] of every record, from the bytes of the log."""
    rows: list[list[int]] = []
    offset = 0
    while data := broker.read_batches(topic, partition, offset, 1 << 20):
        position = 0
        while position + 61 <= len(data):
            base, length = struct.unpack_from(">qi", data, position)
            (last_delta,) = struct.unpack_from(">i", data, position + 23)
            pid, epoch, sequence = struct.unpack_from(">qhi", data, position + 43)
            number = -1 if pid < 0 else ids.setdefault(pid, len(ids))
            body = data[position + 61 : position + 12 + length]
            values = [int(body[i : i + 40]) for i in value_positions(body)]
            rows += [[base + i, value, number, epoch, -1 if sequence < 0 else sequence + i] for i, value in enumerate(values)]
            assert len(values) == last_delta + 1
            position += 12 + length
            offset = base + last_delta + 1
    return rows


def value_positions(body: bytes) -> list[int]:
    """Where the 40-character values of null-key records start."""
    found, position = [], 0
    while position < len(body):
        length, position = read_varint(body, position)
        end = position + length
        found.append(end - 1 - 40)
        position = end
    return found


def read_varint(data: bytes, position: int) -> tuple[int, int]:
    """A zig-zag varint and the position after it."""
    value = shift = 0
    while True:
        byte = data[position]
        value |= (byte & 0x7F) << shift
        position += 1
        shift += 7
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), position


class Outcome(NamedTuple):
    """What a script did: the log per partition, per send its offset or None, errors by name, a row for each Produce and partition."""

    log: list[list[list[int]]]
    futures: list[int | None]
    errors: set[str]
    requests: list[dict[str, Any]]


def run(scenario: dict[str, Any], client: str) -> Outcome:
    """One script against a broker in memory."""
    faults = fault_script.plan_of({int(n): action for n, action in scenario["script"].items()})
    config = {**DEFAULTS, **scenario["config"], "fletchlog.producer.version": client}
    topic = scenario.get("topic", "t")
    with fl.Broker.in_memory() as broker:
        broker.create_topic(topic, partitions=scenario["partitions"])
        producer = fl.Producer(broker, config, faults=faults)
        futures: list[Any] = []
        for step in scenario["steps"]:
            match step:
                case {"send": partitions}:
                    with faults.collect_sends():
                        for partition in partitions:
                            futures.append(send(producer, topic, len(futures), partition))
                case {"flush": _}:
                    producer.flush()
                case {"sleep": milliseconds}:
                    time.sleep(milliseconds / 1000)
        producer.flush()
        outcomes = [outcome(future) for future in futures]
        producer.close()
        ids: dict[int, int] = {}
        log = [log_of(broker, topic, p, ids) for p in range(scenario["partitions"])]
    offsets = [None if isinstance(result, Exception) else result for result in outcomes]
    errors = {type(result).__name__ for result in outcomes if isinstance(result, Exception)}
    return Outcome(log, offsets, errors, fault_script.rows(faults))


def send(producer: fl.Producer, topic: str, number: int, partition: int) -> Any:
    """Sends record `number`; a send that is refused at once counts as failed."""
    try:
        return producer.send(topic, value=str(number).ljust(40).encode(), partition=partition)
    except fl.errors.KafkaError as error:
        return error


def outcome(future: Any) -> int | Exception:
    """The offset, or why it failed."""
    if isinstance(future, Exception):
        return future
    try:
        return int(future.result(30).offset)
    except fl.errors.KafkaError as error:
        return error


@pytest.mark.timeout(60)
@pytest.mark.parametrize(("client", "number"), scenarios())
def test_the_log_and_every_future_are_those_of_the_java_producer(client: str, number: str) -> None:
    scenario = json.loads((GOLDEN / "scenarios" / f"{number}.json").read_text())
    expected = json.loads((GOLDEN / "expected" / client / f"{number}.json").read_text())
    ours = run(scenario, client)
    assert [[row[:2] + row[3:] for row in rows] for rows in ours.log] == [[row[:2] + row[3:] for row in rows] for rows in expected["log"]]
    assert ours.futures == [f if isinstance(f, int) else None for f in expected["futures"]]
