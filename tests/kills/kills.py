"""Kills a real Python process at random system calls, reopens its directory, and holds it against what was acknowledged.

Every process that is killed opens a directory (often one that was just killed over, so that recoveries die, too), appends
idempotent batches, sends through a producer, commits, flushes and deletes records, and dies by SIGKILL at the n-th call that
changes the file system, some in the middle of a write. What must be there at level page-cache: every record that was
acknowledged, once, in order; the producer's state, which knows the last batch as a repeat and takes the next one; the offset
of the group; the start of the log.

`python kills.py KILLS SECONDS SEED` prints one line for each violation, then `kills: N, V violations`.
"""

# ruff: noqa: T201

from __future__ import annotations

import ctypes
import json
import os
import random
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
SHIM = "FLETCHLOG_KILL_SHIM"
PARTITIONS = 2
PRODUCER_ID = 1 << 40
# Enough for the calls of a recovery and of a plan.
MOST_CALLS = 100
STEPS = 12
KILLS_PER_DIRECTORY = 30


def preload() -> None:
    """Starts this program again with the shim in it."""
    directory = tempfile.mkdtemp(prefix="fletchlog-kills-")
    shim = Path(directory) / "kill_at_call.so"
    subprocess.run(["cc", "-O1", "-shared", "-fPIC", "-o", shim, HERE / "kill_at_call.c", "-ldl"], check=True)
    os.execve(sys.executable, [sys.executable, __file__, *sys.argv[1:]], {**os.environ, "LD_PRELOAD": str(shim), SHIM: str(shim)})


@dataclass
class Partition:
    """What a partition was told to hold."""

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
                told = self.partitions[partition]
                told.batches.append(data)
                told.ends.append(told.end + count)
            case ("send",):
                self.sent += 1
            case ("commit", offset):
                self.committed = offset
            case ("delete", partition, offset):
                self.partitions[partition].start = offset


def plan(model: Model, rng: random.Random) -> list[tuple[Any, ...]]:
    """What the next process is to do."""
    from acceptance.batches import batch, record

    ahead, steps = model.copy(), []
    for _ in range(STEPS):
        partition = rng.randrange(PARTITIONS)
        told = ahead.partitions[partition]
        kind = rng.choices(["append", "send", "commit", "delete", "flush"], [10, 4, 3, 1, 1])[0]
        step: tuple[Any, ...] = (kind,)
        if kind == "append":
            count = rng.randint(1, 4)
            records = [record(i, rng.randbytes(rng.randint(1, 60))) for i in range(count)]
            # Of now: the state of a producer expires by its own timestamps.
            now_ms, producer = time.time_ns() // 1_000_000, (PRODUCER_ID + partition, 0, told.end)
            step = (kind, partition, batch(records, timestamp=now_ms, producer=producer), count)
        elif kind == "commit":
            step = (kind, rng.randrange(1 << 20))
        elif kind == "delete":
            step = (kind, partition, rng.choice([told.start, *[end for end in told.ends[:-1] if end > told.start]]))
        ahead.apply(step)
        steps.append(step)
    return steps


def open_broker(directory: Path) -> Any:
    """Opens the directory and sees to it that the topics are there."""
    import fletchlog as fl

    broker = fl.Broker(directory, config={"offsets.topic.num.partitions": 1})
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


def work(directory: Path, steps: list[tuple[Any, ...]], done: int, calls: int, half: bool) -> None:
    """Does the steps, tells of each, and dies somewhere."""
    import fletchlog as fl

    ctypes.CDLL(os.environ[SHIM]).kill_at_call(ctypes.c_long(calls), int(half))
    broker = open_broker(directory)
    consumer, producer = group_member(broker), fl.Producer(broker, {"batch.size": 0})
    for step in steps:
        match step:
            case ("append", partition, data, _):
                broker.append_batches("t", partition, data)
            case ("send",):
                producer.send("sent", b"x").result(10_000)
            case ("commit", offset):
                consumer.commit({fl.TopicPartition("t", 0): offset})
            case ("delete", partition, offset):
                broker.delete_records("t", partition, offset)
            case _:
                broker.flush()
        os.write(done, b".")
    broker.close()


def batches(broker: Any, topic: str, partition: int, offset: int) -> list[bytes]:
    """Every batch from an offset on, as it stands in the log."""
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
        told, perhaps = before.partitions[number], after.partitions[number]
        start = description.log_start_offset
        if start not in (told.start, perhaps.start):
            wrong.append(f"t-{number} starts at {start}, not {told.start} or {perhaps.start}")
        gone = sum(end <= start for end in perhaps.ends)
        found = batches(broker, "t", number, start)
        expected = [crc(data) for data in perhaps.batches[gone:]]
        bases = [perhaps.ends[i - 1] if i else 0 for i in range(gone, gone + len(found))]
        kept = gone + len(found)
        if [crc(data) for data in found] != expected[: len(found)] or [struct.unpack_from(">q", data)[0] for data in found] != bases:
            wrong.append(f"t-{number} from {start} on holds other batches than were sent")
        elif kept < len(told.batches):
            wrong.append(f"t-{number} has lost acknowledged batches: {kept} of {len(told.batches)} are there")
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


def in_child(act: Any) -> tuple[int, bytes]:
    """Runs it in a forked process. The status it ended with, and what it wrote to the descriptor it is given."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            os.close(reader)
            act(writer)
            status = 0
        except BaseException as error:  # noqa: BLE001
            os.write(2, f"{type(error).__name__}: {error}\n".encode())
        finally:
            os._exit(status)
    os.close(writer)
    told = b""
    while part := os.read(reader, 1 << 16):
        told += part
    os.close(reader)
    return os.waitpid(pid, 0)[1], told


def kill_once(directory: Path, model: Model, rng: random.Random) -> tuple[bool, list[str], Model]:
    """One process and what it left: whether it was killed, complaints, and what is acknowledged now."""
    steps = plan(model, rng)
    calls, half, clean = rng.randrange(MOST_CALLS), rng.random() < 0.3, rng.random() < 0.3
    status, dots = in_child(lambda out: work(directory, steps, out, calls, half))
    killed = os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL
    if not killed and status != 0:
        return killed, [f"the process ended with status {status}"], model
    before = model.copy()
    for step in steps[: len(dots)]:
        before.apply(step)
    after = before.copy()
    if len(dots) < len(steps):
        after.apply(steps[len(dots)])
    status, told = in_child(lambda out: os.write(out, json.dumps(check(directory, before, after, clean)).encode()))
    if status != 0:
        return killed, ["the directory cannot be opened and read"], before
    now = json.loads(told)
    left = after.copy()
    left.committed, left.sent = now["committed"], now["sent"]
    for partition, kept, start in zip(left.partitions, now["ends"], now["starts"], strict=True):
        del partition.batches[kept:], partition.ends[kept:]
        partition.start = start
    return killed, now["wrong"], left


def main(kills: int, seconds: float, seed: int) -> int:
    """Kills so often, or for so long."""
    if SHIM not in os.environ:
        preload()
    sys.path.insert(0, str(HERE.parent))
    import acceptance.batches
    import fletchlog

    del acceptance, fletchlog
    rng = random.Random(seed)
    deadline = time.monotonic() + seconds
    done, violations = 0, 0
    while done < kills and time.monotonic() < deadline:
        with tempfile.TemporaryDirectory() as root:
            directory, model = Path(root) / "log", Model()
            for _ in range(KILLS_PER_DIRECTORY):
                killed, wrong, model = kill_once(directory, model, rng)
                done += killed
                violations += bool(wrong)
                for line in wrong:
                    print(f"kill {done} of seed {seed}: {line}", flush=True)
                if wrong or done >= kills or time.monotonic() >= deadline:
                    break
    shutil.rmtree(Path(os.environ[SHIM]).parent)
    print(f"kills: {done}, {violations} violations")
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3])))
