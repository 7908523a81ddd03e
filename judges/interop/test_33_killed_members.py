"""Part 33: members of Java and librdkafka (`group.protocol=consumer`) share a topic of `fletchlog serve`; members and the process are killed.

What is committed never goes back and is never lost, every record that was acknowledged is read, and what a dead member had moves to the others.
"""

from __future__ import annotations

import random
import struct
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import fletchlog as fl
from judges.kills.served import Served
from tests.support.members import Member, until

from . import kafka
from .clients import Clients
from .conftest import CASES, SEED

PART = "33 members over kills of members and of the listener"
KILLS = max(6, CASES // 10)
TOPIC, PARTITIONS, GROUP = "t", 8, "g"
CONFIG = {
    "group.consumer.session.timeout.ms": "2000",
    "group.consumer.min.session.timeout.ms": "100",
    "group.consumer.heartbeat.interval.ms": "200",
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.assignment.interval.ms": "0",
    "log.cleaner.enable": "false",
}
PATIENT = {"reconnect_backoff_ms": 10, "reconnect_backoff_max_ms": 100, "retry_backoff_ms": 20, "delivery_timeout_ms": 600_000, "request_timeout_ms": 5_000}


class JavaMember:
    """In a JVM of its own, with the methods of `Member`."""

    def __init__(self, bootstrap: str, scratch: Path, name: str) -> None:
        self._clients = Clients.java(kafka.NEWEST, bootstrap, scratch, name)
        backoffs = {name: ms for name, ms in PATIENT.items() if "backoff" in name}
        self._clients.worker("group", 1, TOPIC, GROUP, group_protocol="consumer", **backoffs)
        self.kill = self._clients.kill

    def read(self) -> list[int]:
        """The values that it has read."""
        notes = self._clients.notes()
        assert not [note for note in notes if "surprise" in note], notes[-3:]
        return [value for note in notes for _, _, value in note.get("polled", [])]


def commits(directory: Path) -> dict[int, list[int]]:
    """Every offset that was committed of a partition, in the order of the log."""
    found: dict[int, list[int]] = {}
    with fl.Broker(directory, read_only=True) as broker:
        for row in broker.scan("__consumer_offsets").to_pyarrow().to_pylist():
            key, value = row["key"], row["value"]
            (version,) = struct.unpack_from(">h", key)
            if version == 1 and value is not None:
                (partition,) = struct.unpack_from(">i", key, len(key) - 4)
                found.setdefault(partition, []).append(struct.unpack_from(">q", value, 2)[0])
    return found


@pytest.mark.timeout(900)
def test_no_offset_goes_back_and_no_record_is_left_out(scratch: Path, count: Callable[..., None]) -> None:
    rng = random.Random(SEED)
    directory = scratch / "data"
    with fl.Broker(directory, create=True) as broker:
        broker.create_topic(TOPIC, partitions=PARTITIONS)
    served = Served(directory, CONFIG)
    writer = Clients.java(kafka.NEWEST, served.bootstrap, scratch, "writer")
    writer.worker("producer", 1, TOPIC, PARTITIONS, 0, enable_idempotence="true", **PATIENT)
    of = {"bootstrap_servers": served.bootstrap, "group_id": GROUP, "reconnect_backoff_max_ms": 100}

    def start(kind: str, number: int) -> Any:
        if kind == "java":
            return JavaMember(served.bootstrap, scratch, f"java-{number}")
        static = {"group_instance_id": "i"} if kind == "static" else {}
        return Member(f"^{TOPIC}$" if static else TOPIC, scratch / f"member-{number}", **of, **static)

    kinds = ["java", "java", "dynamic", "static"]
    members = [start(kind, number) for number, kind in enumerate(kinds)]
    running = dict(enumerate(kinds))
    killed = {"serve": 0, "member": 0}
    try:
        for _ in range(KILLS):
            seen = {number: len(members[number].read()) for number in running}
            until(lambda seen=seen: all(len(members[number].read()) > before for number, before in seen.items()), 120)
            time.sleep(10 ** rng.uniform(-2, 0))
            if rng.random() < 0.5:
                served.kill()
                killed["serve"] += 1
            else:
                dead = rng.choice(list(running))
                members[dead].kill()
                kind = running.pop(dead)
                killed["member"] += 1
                if kind == "static":
                    # its successor is refused while the session of the dead one lasts
                    time.sleep(int(CONFIG["group.consumer.session.timeout.ms"]) / 1000 + 0.5)
                running[len(members)] = kind
                members.append(start(kind, len(members)))
        writer.await_progress([1])
        writer.close()
        acknowledged = {value for note in writer.notes() if note.get("outcome") == "ok" for _, value, *_ in note["sends"]}
        until(lambda: acknowledged <= {value for member in members for value in member.read()}, 120)
        with fl.Cluster(f"kafka://{served.bootstrap}") as cluster:
            until(lambda: sum(at.offset for at in cluster.group_offsets(GROUP).values()) >= len(acknowledged), 120)
    finally:
        for number in running:
            members[number].kill()
        writer.kill()
        served.end()
    history = commits(directory)
    assert set(history) == set(range(PARTITIONS))
    for partition, offsets in history.items():
        assert offsets == sorted(offsets), f"an offset of partition {partition} went back"
    for member in members:
        for note in member.notes("committed") if isinstance(member, Member) else []:
            lost = [(partition, offset) for partition, offset in note.items() if offset not in history[int(partition)]]
            assert not lost, "commits that were acknowledged are lost"
    count(PART, kills_of_the_listener=killed["serve"], kills_of_members=killed["member"], records=len(acknowledged), commits=sum(map(len, history.values())))
