"""Lets the n-th system call of a process fail, reopens its directory, and holds it against what was acknowledged.

A process works in one thread at level fsync: idempotent sends, transactions, a compacted topic and the cleaner, topics, committed
offsets, flushes. One of its calls below the directory (a write, a sync, an open, ..) fails with EIO, ENOSPC, EMFILE or EACCES, that one or
all of its kind from then on. What its calls raise must be errors of fletchlog's, and it must end in bounded time.
Then the calls work again: the directory opens, what was acknowledged is there, once, in order and whole, an error of `create_topic` has
made nothing, `verify` finds no damage, and every topic takes records.

`python -m judges.kills.call_faults` prints one line for each violation, then `call-faults: N runs (..), V violations (..)`. RUNS (default 500),
TIME_LIMIT (seconds) and SEED are taken from the environment; run i has the seed SEED + i, and RUNS=1 repeats it.
"""

# ruff: noqa: T201

from __future__ import annotations

import errno
import json
import os
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from settings import count, seconds

import fletchlog as fl
from judges.kills import shim
from judges.kills.history import COMPACTED, CONFIG, GROUP, SENT, TOPICS, TRANSACTIONAL_ID, Check, History, Note, damage
from judges.kills.processes import in_child
from judges.kills.workload import transact

NAME = "call-faults"
STEPS = 14
# Time-outs of the clients in milliseconds while calls fail; else a run would mostly wait.
TIMEOUTS = {"delivery.timeout.ms": 300, "request.timeout.ms": 250, "max.block.ms": 300, "retry.backoff.ms": 5}
# kind -> name, errors it may fail with, and how many calls a run makes at least, mostly
FAULTS = {
    shim.WRITE: ("write", (errno.EIO, errno.ENOSPC), 60),
    shim.TRUNCATE: ("ftruncate", (errno.EIO,), 10),
    shim.SYNC: ("fsync", (errno.EIO,), 60),
    shim.SYNC_DIR: ("fsync of a directory", (errno.EIO,), 30),
    shim.CREATE: ("creation of a file", (errno.EMFILE, errno.ENOSPC, errno.EACCES), 40),
    shim.RENAME: ("rename", (errno.EIO, errno.ENOSPC), 20),
    shim.REMOVE: ("removal", (errno.EIO,), 20),
    shim.MAKE_DIR: ("mkdir", (errno.ENOSPC,), 6),
    shim.READ: ("read", (errno.EIO,), 30),
    shim.OPEN: ("open", (errno.EMFILE, errno.EIO), 60),
}


class Process:
    """Works on a directory step by step; what fails is counted, and the step is left open."""

    def __init__(self, directory: Path, run: int, rng: random.Random, note: Callable[..., None], timeouts: dict[str, int]) -> None:
        self.run, self.rng, self.note, self.timeouts = run, rng, note, timeouts
        self.errors: Counter[str] = Counter()
        self.producers = 0
        self.closing: list[Callable[[], object]] = []
        self.sender: fl.Producer | None = None
        self.transactional: fl.Producer | None = None
        if not self.tried(lambda: self._open(directory)):
            return
        for step in range(STEPS):
            act = rng.choices([self.send, self.transaction, self.keep, self.commit, self.topic, self.flush], [4, 2, 2, 1, 2, 1])[0]
            self.tried(lambda act=act, step=step: act(step))
        for close in reversed(self.closing):
            self.tried(close)

    def tried(self, act: Callable[[], object]) -> bool:
        """Whether it was done. Any error but fletchlog's own ends the process."""
        try:
            act()
        except fl.KafkaError as error:
            self.errors[type(error).__name__] += 1
            return False
        return True

    def _open(self, directory: Path) -> None:
        self.broker = fl.Broker(directory, create=True, config=CONFIG)
        self.closing.append(self.broker.close)
        for topic, (partitions, config) in TOPICS.items():
            if topic not in self.broker.topics():
                self.create(topic, partitions, config)
        self.consumer = fl.Consumer(self.broker, {"group.id": GROUP, "enable.auto.commit": False})
        self.closing.append(self.consumer.close)
        self.consumer.assign([(SENT, 0)])

    def create(self, topic: str, partitions: int, config: dict[str, object] | None = None) -> None:
        self.note("create", topic)
        try:
            self.broker.create_topic(topic, partitions, config=config)
        except fl.KafkaError:
            self.note("not-created", topic)
            raise
        self.note("created", topic)

    def producer(self) -> fl.Producer:
        """The idempotent one; a new one after a failure, which may have been for good."""
        if self.sender is None:
            self.sender = fl.Producer(self.broker, self.timeouts | {"enable.idempotence": True})
            self.closing.append(self.sender.close)
            self.producers += 1
        return self.sender

    def send(self, step: int) -> None:
        producer, value = self.producer(), f"{self.run}-{self.producers}-{step}"
        self.sender = None
        metadata = producer.send(SENT, value=value.encode(), partition=self.rng.randrange(2)).result()
        self.note("sent", value, metadata.partition, metadata.offset)
        self.sender = producer

    def transaction(self, step: int) -> None:
        records, commits, name = self.rng.randint(1, 3), self.rng.random() < 0.7, f"{self.run}.{step}"
        producer, self.transactional = self.transactional, None
        if producer is None:
            producer = fl.Producer(self.broker, self.timeouts | {"transactional.id": TRANSACTIONAL_ID})
            self.closing.append(producer.close)
            producer.init_transactions()
        transact(producer, self.note, name, records, commits=commits)
        self.transactional = producer

    def keep(self, step: int) -> None:
        producer, key, value = self.producer(), str(self.rng.randrange(3)), f"{self.run}.{step}"
        self.sender = None
        self.note("keep", key, value)
        producer.send(COMPACTED, key=key.encode(), value=value.encode()).result()
        self.note("kept", key, value)
        self.sender = producer
        if self.rng.random() < 0.5:
            self.broker.clean_topic(COMPACTED, force=True)

    def commit(self, step: int) -> None:
        offset = self.run * STEPS + step
        self.note("commit", offset)
        self.consumer.commit({(SENT, 0): offset}, timeout_ms=self.timeouts.get("max.block.ms", 60_000))
        self.note("committed", offset)

    def topic(self, step: int) -> None:
        topic = f"churned-{self.rng.randrange(2)}"
        if topic not in self.broker.topics():
            self.create(topic, 2)
            return
        self.note("delete", topic)
        self.broker.delete_topic(topic)
        self.note("deleted", topic)

    def flush(self, step: int) -> None:
        self.broker.flush()


@dataclass
class Fault:
    """Which call fails, and how."""

    kind: int
    error: int
    call: int
    for_good: bool

    @classmethod
    def choose(cls, rng: random.Random) -> Fault:
        """Any of `FAULTS`."""
        if shim.is_planted():
            return cls(shim.WRITE, 0, rng.randrange(60), for_good=False)
        kind = rng.choice(list(FAULTS))
        _, errors, calls = FAULTS[kind]
        return cls(kind, rng.choice(errors), rng.randrange(calls), rng.random() < 0.4)

    def __str__(self) -> str:
        return f"{errno.errorcode.get(self.error, 'nothing done')} from {FAULTS[self.kind][0]} {self.call}{' and all later ones' if self.for_good else ''}"


def run_once(preloaded: shim.Shim, directory: Path, fault: Fault, rng: random.Random) -> dict[str, Any]:
    """One run in this process: how often the fault was met, the errors that were raised, and what is wrong."""
    notes: list[Note] = []
    preloaded.watch(directory)
    before = Process(directory, 0, rng, lambda *note: notes.append([*note]), {})
    wrong = [f"an error without a fault: {error}" for error in before.errors]
    preloaded.fail_at(fault.call, fault.kind, fault.error, for_good=fault.for_good)
    during = Process(directory, 1, rng, lambda *note: notes.append([*note]), TIMEOUTS)
    failed = preloaded.stop_failing()
    wrong += look(directory, notes)
    return {"failed": failed, "errors": during.errors, "wrong": wrong}


def look(directory: Path, notes: list[Note]) -> list[str]:
    """Opens the directory again: what is wrong with it."""
    with fl.Broker(directory, create=True, config=CONFIG) as broker:
        check = Check(broker, History().take(notes), gapless=False)
        with fl.Producer(broker) as producer:
            for topic in sorted(set(TOPICS) & check.there):
                producer.send(topic, key=b"after", value=b"1-0-0", partition=0).result()
    return check.wrong + damage(directory)


def run(preloaded: shim.Shim, seed: int) -> tuple[Fault, dict[str, Any]]:
    """One run in a process of its own."""
    rng = random.Random(seed)
    fault = Fault.choose(rng)
    with tempfile.TemporaryDirectory(prefix="fletchlog-faults-") as root:
        ended = in_child(lambda out: os.write(out, json.dumps(run_once(preloaded, Path(root) / "log", fault, rng)).encode()))
    return fault, json.loads(ended.output) if ended.well else {"failed": 1, "errors": {}, "wrong": [str(ended)]}


def main() -> int:
    """So many runs, or for so long."""
    wanted, limit, seed = count(NAME, "RUNS", 500), seconds(NAME, 3600), count(NAME, "SEED", 0)
    preloaded = shim.preloaded("judges.kills.call_faults")
    deadline = time.monotonic() + limit
    done = faults = violations = 0
    errors: Counter[str] = Counter()
    while done < wanted and time.monotonic() < deadline:
        fault, found = run(preloaded, seed + done)
        faults += found["failed"] > 0
        errors.update(found["errors"])
        violations += bool(found["wrong"])
        for line in found["wrong"][:10]:
            print(f"{NAME}: SEED={seed + done}: {fault}: {line}", flush=True)
        done += 1
    print(f"{NAME}: {done} runs ({faults} with a fault, {errors.total()} errors raised), {violations} violations (seeds from {seed})")
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main())
