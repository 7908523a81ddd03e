"""Kills a real Python process at random system calls, reopens its directory, and holds it against what was acknowledged.

Every process that is killed opens a directory (often one that was just killed over, so that recoveries die, too), appends
idempotent batches, sends through a producer, commits, flushes and deletes records, and dies by SIGKILL at the n-th call that
changes the file system, some in the middle of a write. What must be there at level page-cache: every record that was
acknowledged, once, in order; the producer's state, which knows the last batch as a repeat and takes the next one; the offset
of the group; the start of the log.

`python -m judges.kills.one_thread` prints one line for each violation, then `kills: N, V violations`. KILLS (default 20,000), TIME_LIMIT
(seconds) and SEED are taken from the environment.
"""

# ruff: noqa: T201

from __future__ import annotations

import json
import os
import random
import struct
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from settings import count, seconds

from judges.kills import shim
from judges.kills.many_threads import lose_the_end
from judges.kills.processes import in_child

NAME = "kills"
PARTITIONS = 2
PRODUCER_ID = 1 << 40
# Enough for the calls of a recovery and of a plan.
MOST_CALLS = 100
STEPS = 12
KILLS_PER_DIRECTORY = 30


@dataclass
class Partition:
    """What a partition has to hold."""

    batches: list[bytes] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)
    start: int = 0

    @property
    def end(self) -> int:
        return self.ends[-1] if self.ends else 0


@dataclass
class Model:
    """What is acknowledged."""

    partitions: list[Partition] = field(default_factory=lambda: [Partition() for _ in range(PARTITIONS)])
    committed: int | None = None
    sent: int = 0

    def copy(self) -> Model:
        parts = [Partition(list(p.batches), list(p.ends), p.start) for p in self.partitions]
        return Model(parts, self.committed, self.sent)

    def apply(self, step: tuple[Any, ...]) -> None:
        """Takes note of a step that is done."""
        match step:
            case ("append", partition, data, count):
                appended = self.partitions[partition]
                appended.batches.append(data)
                appended.ends.append(appended.end + count)
            case ("send",):
                self.sent += 1
            case ("commit", offset):
                self.committed = offset
            case ("delete", partition, offset):
                self.partitions[partition].start = offset


def plan(model: Model, rng: random.Random) -> list[tuple[Any, ...]]:
    """What the next process is to do."""
    from tests.support.batches import batch, record

    ahead, steps = model.copy(), []
    for _ in range(STEPS):
        partition = rng.randrange(PARTITIONS)
        planned = ahead.partitions[partition]
        kind = rng.choices(["append", "send", "commit", "delete", "flush"], [10, 4, 3, 1, 1])[0]
        step: tuple[Any, ...] = (kind,)
        if kind == "append":
            count = rng.randint(1, 4)
            records = [record(i, rng.randbytes(rng.randint(1, 60))) for i in range(count)]
            # Of now: the state of a producer expires by its own timestamps.
            now_ms, producer = time.time_ns() // 1_000_000, (PRODUCER_ID + partition, 0, planned.end)
            step = (kind, partition, batch(records, timestamp=now_ms, producer=producer), count)
        elif kind == "commit":
            step = (kind, rng.randrange(1 << 20))
        elif kind == "delete":
            step = (kind, partition, rng.choice([planned.start, *[end for end in planned.ends[:-1] if end > planned.start]]))
        ahead.apply(step)
        steps.append(step)
    return steps


def open_broker(directory: Path) -> Any:
    """Opens the directory and sees to it that the topics are there."""
    import fletchlog as fl

    broker = fl.Broker(directory, create=True, config={"offsets.topic.num.partitions": 1})
    topics = broker.topics()
    if "t" not in topics:
        broker.create_topic("t", partitions=PARTITIONS, config={"internal.segment.bytes": "900", "index.interval.bytes": "200"})
    if "sent" not in topics:
        broker.create_topic("sent", partitions=1)
    return broker


def group_member(broker: Any) -> Any:
    import fletchlog as fl

    consumer = fl.Consumer(broker, {"group.id": "g", "enable.auto.commit": False})
    consumer.assign([fl.TopicPartition("t", 0)])
    return consumer


def work(preloaded: shim.Shim, directory: Path, steps: list[tuple[Any, ...]], done: int, calls: int, half: bool) -> None:
    """Does the steps, reports each, and dies somewhere."""
    import fletchlog as fl

    preloaded.watch(directory)
    preloaded.kill_at(calls, half=half)
    broker = open_broker(directory)
    consumer, producer = group_member(broker), fl.Producer(broker, {"batch.size": 0})
    for step in steps:
        match step:
            case ("append", partition, data, _):
                broker.append_batches("t", partition, data)
            case ("send",):
                producer.send("sent", b"x").result(10)
            case ("commit", offset):
                consumer.commit({fl.TopicPartition("t", 0): offset})
            case ("delete", partition, offset):
                broker.delete_records("t", partition, offset)
            case _:
                broker.flush()
        os.write(done, b".")
    broker.close()


def batches(broker: Any, topic: str, partition: int, offset: int) -> list[bytes]:
    """Every batch from an offset on, as it is in the log."""
    found = []
    while data := broker.read_batches(topic, partition, offset, 1 << 20):
        while data:
            base, size = struct.unpack_from(">qi", data)
            found.append(data[: 12 + size])
            offset = base + struct.unpack_from(">i", data, 23)[0] + 1
            data = data[12 + size :]
    return found


def crc(data: bytes) -> bytes:
    return data[17:21]


def check(directory: Path, before: Model, after: Model, clean: bool) -> dict[str, Any]:
    """Holds the directory against what was acknowledged and what was being done. What it holds now, and complaints."""
    import fletchlog as fl

    broker = open_broker(directory)
    wrong: list[str] = []
    now: dict[str, Any] = {"ends": [], "starts": [], "wrong": wrong}
    for number, description in enumerate(broker.describe_topic("t").partitions):
        acknowledged, perhaps = before.partitions[number], after.partitions[number]
        start = description.log_start_offset
        if start not in (acknowledged.start, perhaps.start):
            wrong.append(f"t-{number} starts at {start}, not {acknowledged.start} or {perhaps.start}")
        gone = sum(end <= start for end in perhaps.ends)
        found = batches(broker, "t", number, start)
        expected = [crc(data) for data in perhaps.batches[gone:]]
        bases = [perhaps.ends[i - 1] if i else 0 for i in range(gone, gone + len(found))]
        kept = gone + len(found)
        if [crc(data) for data in found] != expected[: len(found)] or [struct.unpack_from(">q", data)[0] for data in found] != bases:
            wrong.append(f"t-{number} from {start} on holds other batches than were sent")
        elif kept < len(acknowledged.batches):
            wrong.append(f"t-{number} has lost acknowledged batches: {kept} of {len(acknowledged.batches)} are there")
        elif found:
            repeated = broker.append_batches("t", number, perhaps.batches[kept - 1])[0]
            if repeated != bases[-1] or len(batches(broker, "t", number, start)) != len(found):
                wrong.append(f"t-{number}: the repeat of offset {bases[-1]} was appended again at {repeated}")
        now["ends"].append(kept)
        now["starts"].append(start)
    now["sent"] = len(batches(broker, "sent", 0, 0))
    if not before.sent <= now["sent"] <= after.sent:
        wrong.append(f"{now['sent']} sent records are there, {before.sent} were acknowledged")
    committed = group_member(broker).committed(fl.TopicPartition("t", 0))
    now["committed"] = None if committed is None else committed.offset
    if now["committed"] not in (before.committed, after.committed):
        wrong.append(f"committed is {now['committed']}, not {before.committed} or {after.committed}")
    if clean:
        broker.close()
    return now


def kill_once(preloaded: shim.Shim, directory: Path, model: Model, rng: random.Random) -> tuple[bool, list[str], Model]:
    """One process and what it left: whether it was killed, complaints, and what is acknowledged now."""
    steps = plan(model, rng)
    calls, half, clean = rng.randrange(MOST_CALLS), rng.random() < 0.3, rng.random() < 0.3
    ended = in_child(lambda out: work(preloaded, directory, steps, out, calls, half))
    killed, dots = ended.was_killed, ended.output
    if not killed and not ended.well:
        return killed, [str(ended)], model
    before = model.copy()
    for step in steps[: len(dots)]:
        before.apply(step)
    after = before.copy()
    if len(dots) < len(steps):
        after.apply(steps[len(dots)])
    if shim.is_planted():
        lose_the_end(directory, "t")
    ended = in_child(lambda out: os.write(out, json.dumps(check(directory, before, after, clean)).encode()))
    if not ended.well:
        return killed, [f"the directory cannot be opened and read: {ended}"], before
    now = json.loads(ended.output)
    left = after.copy()
    left.committed, left.sent = now["committed"], now["sent"]
    for partition, kept, start in zip(left.partitions, now["ends"], now["starts"], strict=True):
        del partition.batches[kept:], partition.ends[kept:]
        partition.start = start
    return killed, now["wrong"], left


def main() -> int:
    """Kills so often, or for so long."""
    wanted, limit, seed = count(NAME, "KILLS", 20_000), seconds(NAME, 3600), count(NAME, "SEED", 0)
    preloaded = shim.preloaded("judges.kills.one_thread")
    # Once, before the forks.
    import fletchlog  # noqa: F401

    rng = random.Random(seed)
    deadline = time.monotonic() + limit
    done, violations = 0, 0
    while done < wanted and time.monotonic() < deadline:
        with tempfile.TemporaryDirectory() as root:
            directory, model = Path(root) / "log", Model()
            for _ in range(KILLS_PER_DIRECTORY):
                killed, wrong, model = kill_once(preloaded, directory, model, rng)
                done += killed
                violations += bool(wrong)
                for line in wrong:
                    print(f"kill {done} of seed {seed}: {line}", flush=True)
                if wrong or done >= wanted or time.monotonic() >= deadline:
                    break
    print(f"{NAME}: {done}, {violations} violations (seed {seed})")
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main())
