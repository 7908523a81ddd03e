"""Part 20: clients of ours and of Java at work on a cluster of three real nodes that is restarted, moved and killed; the checker of the simulation judges."""

from __future__ import annotations

import json
import random
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import fletchlog as fl

from . import kafka, rows
from .clients import Clients, Note
from .cluster import NODES, OFFSETS, TRANSACTIONS, Cluster
from .conftest import CASES, SEED

# kafka-python, which asks the cluster, leaves sockets open that no node took
pytestmark = pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")
PART = "20 cluster of three"
ROOT = Path(__file__).resolve().parents[2]
ROUNDS = max(1, CASES // 200)
PARTITIONS = 6
PLAIN, TRANSACTED, COPIES = "plain", "transacted", "copies"
TOPICS = [PLAIN, TRANSACTED, COPIES]
ISOLATIONS = ["read_uncommitted", "read_committed"]
PRODUCER = {"linger_ms": 5, "delivery_timeout_ms": 120_000, "request_timeout_ms": 10_000, "retry_backoff_ms": 50, "max_block_ms": 30_000}
IDEMPOTENT = PRODUCER | {"enable_idempotence": "true", "acks": "all"}
CONSUMER = {
    "session_timeout_ms": 10_000,
    "heartbeat_interval_ms": 1_000,
    "request_timeout_ms": 10_000,
    "default_api_timeout_ms": 20_000,
    "retry_backoff_ms": 50,
}
TRANSACTION = IDEMPOTENT | {"transaction_timeout_ms": 60_000}
# each worker counts its values from here
EACH = 10_000_000
# what several transactions at once do to one partition
MIXED = ["int-send-skip", "G0", "G1c", "G0-process", "G1c-process", "G0-realtime", "G1c-realtime"]


class Working:
    """Every kind of client, of ours (processes 1 to 6) and of Java (11 to 16)."""

    def __init__(self, cluster: Cluster, scratch: Path) -> None:
        self.cluster = cluster
        self.sides = {0: Clients.ours(cluster.address, scratch), 10: Clients.java(cluster.release, cluster.address, scratch)}
        for base, side in self.sides.items():
            name = side.name
            side.worker("producer", base + 1, PLAIN, PARTITIONS, (base + 1) * EACH, **IDEMPOTENT)
            side.worker("transactions", base + 2, TRANSACTED, PARTITIONS, (base + 2) * EACH, **TRANSACTION, transactional_id=f"{name}-transactions")
            side.worker("group", base + 3, PLAIN, "readers", **CONSUMER)
            side.worker("group", base + 4, TRANSACTED, "committed-readers", **CONSUMER, isolation_level="read_committed")
            both = CONSUMER | TRANSACTION | {"transactional_id": f"{name}-copier", "isolation_level": "read_committed", "max_poll_records": 50}
            side.worker("copy", base + 5, TRANSACTED, COPIES, (base + 5) * EACH, "copiers", **both)

    def await_progress(self) -> None:
        """Returns once every client has done something from now on."""
        for base, side in self.sides.items():
            side.await_progress([base + number for number in range(1, 6)])

    def end(self, *numbers: int) -> None:
        """These of both sides."""
        for base, side in self.sides.items():
            for number in numbers:
                side.end(base + number)

    def kill(self) -> None:
        """Whatever is left."""
        for side in self.sides.values():
            side.kill()

    def close(self) -> list[Note]:
        """What both have noted."""
        for side in self.sides.values():
            side.close()
        return [note for side in self.sides.values() for note in side.notes()]


class Reading:
    """What is in the log at the end, as two clients read it, and what groups have committed, as notes."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.notes: list[Note] = []
        self._process = 1000

    def _note(self, begin: int, **what: Any) -> None:
        self.notes.append({"process": self._process, "begin": begin, "end": time.monotonic_ns(), **what})

    def committed(self, group: str) -> dict[str, int]:
        """By partition."""
        self._process, begin = self._process + 1, time.monotonic_ns()
        offsets = self.cluster.committed(group)
        self._note(begin, group=group, committed=list(offsets.items()))
        return offsets

    def _polled(self, isolation: str, records: list[tuple[str, int, int]], ends: dict[str, int]) -> None:
        self._process, begin = self._process + 1, time.monotonic_ns()
        self._note(begin, outcome="ok", transaction=False, isolation=isolation, sends=[], polled=records)
        self._note(time.monotonic_ns(), isolation=isolation, reached=list(ends.items()))

    def ours(self, isolation: str) -> list[tuple[str, int, int]]:
        """(partition, offset, value), sorted."""
        found: list[tuple[str, int, int]] = []
        with fl.Consumer(self.cluster.url, {"isolation.level": isolation, "auto.offset.reset": "earliest"}) as consumer:
            partitions = [fl.TopicPartition(topic, p) for topic in TOPICS for p in range(PARTITIONS)]
            consumer.assign(partitions)
            ends = consumer.end_offsets(partitions)
            end = time.monotonic() + 120
            while any(consumer.position(tp) < ends[tp] for tp in partitions):
                assert time.monotonic() < end, "the log cannot be read to its end"
                found += [(f"{r.topic}-{r.partition}", r.offset, int(r.value or b"")) for r in consumer.poll(timeout_ms=1000)]
        self._polled(isolation, found, {f"{tp.topic}-{tp.partition}": at for tp, at in ends.items()})
        return sorted(found)

    def javas(self, isolation: str) -> list[tuple[str, int, int]]:
        """The same by a Java consumer."""
        read, ranges = rows.read_all(self.cluster.address, self.cluster.release, isolation)
        value = lambda row: int(bytes.fromhex(row[4][1:]))  # noqa: E731
        found = [(f"{topic}-{p}", row[0], value(row)) for (topic, p), of in read.items() for row in of]
        self._polled(isolation, found, {f"{topic}-{p}": to for (topic, p), (_, to) in ranges.items()})
        return sorted(found)


def judge(notes: list[Note], allowed: list[str]) -> tuple[bool, str]:
    """Whether nothing is wrong, and what is."""
    command = ["cargo", "run", "--quiet", "--locked", "-p", "fletchlog-sim", "--example", "judge", "--", *allowed]
    lines = "".join(json.dumps(note) + "\n" for note in notes)
    done = subprocess.run(command, cwd=ROOT, input=lines, capture_output=True, text=True, timeout=600, check=False)
    assert done.stdout.rpartition("judge: ")[1], done.stderr[-4000:]
    return done.returncode == 0, done.stdout[-6000:]


def only(topic: str, notes: list[Note]) -> list[Note]:
    """What was sent to a topic and read from it."""
    records = {"sends", "polled"}
    return [note | {name: [record for record in note[name] if record[0].startswith(topic)] for name in records & note.keys()} for note in notes]


def kill_leader(cluster: Cluster, topic: str, working: Working) -> None:
    """Kills the node that leads the topic's first partition; it comes back when the others have been at work without it."""
    node = cluster.leader(topic)
    cluster.kill(node)
    working.await_progress()
    cluster.start(node)


def rolling_restart(cluster: Cluster, rng: random.Random) -> None:
    """One node after the other."""
    for node in rng.sample(NODES, len(NODES)):
        cluster.stop(node)
        cluster.start(node)


@pytest.fixture(params=kafka.SERVERS)
def cluster(request: pytest.FixtureRequest, scratch: Path) -> Iterator[Cluster]:
    """Of each release."""
    with Cluster(request.param, scratch) as running:
        for topic in TOPICS:
            running.create(topic, PARTITIONS, {"min.insync.replicas": "2"})
        yield running


@pytest.mark.timeout(1500)
def test_nothing_is_lost_doubled_or_torn_while_nodes_restart_move_and_die(cluster: Cluster, scratch: Path, count: Callable[..., None]) -> None:
    rng = random.Random(f"{SEED} cluster {cluster.release}")
    working, reading = Working(cluster, scratch), Reading(cluster)
    try:
        working.await_progress()
        faults: list[Callable[[], object]] = [lambda topic=topic: kill_leader(cluster, topic, working) for topic in (PLAIN, OFFSETS, TRANSACTIONS)]
        for _ in range(ROUNDS):
            for fault in [lambda: rolling_restart(cluster, rng), cluster.move_leaders, *rng.sample(faults, len(faults)), cluster.move_leaders]:
                fault()
                working.await_progress()
                for group in ("readers", "committed-readers", "copiers"):
                    reading.committed(group)
                count(PART, faults=1)
        working.end(1, 2)
        last: dict[str, int] = {}
        for partition, offset, _ in reading.ours("read_committed"):
            last[partition] = max(last.get(partition, 0), offset + 1)
        for group, topic in (("readers", PLAIN), ("committed-readers", TRANSACTED), ("copiers", TRANSACTED)):
            wanted = {partition: end for partition, end in last.items() if partition.startswith(topic)}
            cluster.wait(f"end for {group}", lambda group=group, wanted=wanted: all(reading.committed(group).get(p, 0) >= end for p, end in wanted.items()))
        notes = working.close()
    finally:
        working.kill()
    for isolation in ISOLATIONS:
        assert reading.ours(isolation) == reading.javas(isolation)
    notes += reading.notes
    sent = [note for note in notes if note.get("process") in (1, 11) and note.get("sends")]
    assert [note for note in sent if note["outcome"] != "ok"] == [], "an idempotent producer with two minutes gives up nothing"
    fine, found = judge(notes, MIXED)
    assert fine, found
    # without transactions nothing is allowed
    fine, found = judge(only(PLAIN, notes), [])
    assert fine, found
    # and the judge is awake
    lost = sent[len(sent) // 2]["sends"][0]
    without = [note | {"polled": [p for p in note["polled"] if p[2] != lost[1]]} if "polled" in note else note for note in notes]
    assert not judge(without, MIXED)[0], f"a loss of {lost} goes unseen"
    transactions = [note for note in notes if note.get("transaction")]
    outcomes = {outcome: sum(note["outcome"] == outcome for note in transactions) for outcome in ("ok", "failed", "unknown")}
    count(PART, acknowledged=len(sent), committed=outcomes["ok"], aborted=outcomes["failed"], undecided=outcomes["unknown"])
    count(PART, copied=sum(len(note["sends"]) for note in transactions if note["process"] in (5, 15) and note["outcome"] == "ok"))
    count(PART, polled=sum(len(note.get("polled", [])) for note in notes))
