"""Part 3: fletchlog reads a directory while a real broker writes it, and after the broker stopped or was killed."""

from __future__ import annotations

import logging
import random
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

import fletchlog as fl

from . import kafka
from .conftest import CASES
from .generate import CODECS, blob, headers
from .kraft import Kraft, format_directory
from .rows import Row, ours, theirs
from .test_5_producer import plain

PART = "3 their directory, our reader, live"
RUNS = range(max(1, CASES // 200))
ISOLATIONS = ["read_uncommitted", "read_committed"]
Rows = dict[tuple[str, int], list[Row]]
Committed = dict[tuple[str, str, int], int]


class Script:
    """The lines for `Write`, and which offsets its groups end with."""

    def __init__(self, rng: random.Random, release: str) -> None:
        self.rng = rng
        self.lines: list[str] = []
        self.committed: Committed = {}
        self.places: list[tuple[str, int]] = []
        size = "segment.bytes" if release.startswith("3.") else "internal.segment.bytes"
        for number in range(6):
            topic, partitions = f"t{number}", rng.randrange(1, 4)
            config = [f"{size}={rng.choice([40_000, 100_000, 1 << 30])}", f"index.interval.bytes={rng.choice([100, 4096])}"]
            config += [f"message.timestamp.type={rng.choice(['CreateTime', 'LogAppendTime'])}"]
            config += [f"compression.type={rng.choice(['producer', 'producer', 'lz4', 'zstd', 'uncompressed'])}"]
            self.lines.append(f"topic {topic} {partitions} " + " ".join(config))
            self.places += [(topic, partition) for partition in range(partitions)]

    def producer(self, name: str) -> None:
        config = [f"compression.type={self.rng.choice(CODECS)}", f"batch.size={self.rng.choice([1, 500, 16384])}", f"linger.ms={self.rng.choice([0, 2])}"]
        if name.startswith("txn"):
            config.append(f"transactional.id={name}")
        self.lines.append(f"producer {name} " + " ".join(config))

    def send(self, name: str, count: int) -> None:
        for _ in range(count):
            topic, partition = self.rng.choice(self.places)
            key, value = blob(self.rng, [None, 0, 5]), blob(self.rng, [None, 10, 10, 300, 4_000])
            named = " ".join(f"{plain(header.encode())}={plain(data)}" for header, data in headers(self.rng))
            stamp = 1_700_000_000_000 + self.rng.randrange(10**8)
            self.lines.append(f"send {name} {topic} {partition} {stamp} {plain(key)} {plain(value)} {named}".rstrip())

    def commit_offset(self) -> None:
        group, (topic, partition), offset = f"g{self.rng.randrange(3)}", self.rng.choice(self.places), self.rng.randrange(10**6)
        self.lines.append(f"offset {group} {topic} {partition} {offset} m")
        self.committed[group, topic, partition] = offset

    def transaction(self, name: str) -> None:
        """Commits or aborts; a group's offset goes with it, or not."""
        self.lines.append(f"begin {name}")
        self.send(name, self.rng.randrange(1, 30))
        commit = self.rng.random() < 0.6
        if self.rng.random() < 0.4:
            group, (topic, partition), offset = "g-txn", self.rng.choice(self.places), self.rng.randrange(10**6)
            self.lines.append(f"txnoffset {name} {group} {topic} {partition} {offset}")
            if commit:
                self.committed[group, topic, partition] = offset
        self.send(name, self.rng.randrange(5))
        self.lines += [f"{'commit' if commit else 'abort'} {name}", "sleep 3"]

    def run(self, steps: int) -> str:
        names = ["plain-0", "plain-1", "txn-0", "txn-1"]
        for name in names:
            self.producer(name)
        for _ in range(steps):
            name = self.rng.choice(names)
            if name.startswith("txn"):
                self.transaction(name)
            else:
                self.send(name, self.rng.randrange(1, 60))
                self.lines.append(self.rng.choice([f"flush {name}", "sleep 2"]))
            if self.rng.random() < 0.15:
                self.commit_offset()
        return "".join(line + "\n" for line in self.lines)


def is_prefix(earlier: Rows, final: Rows) -> None:
    """What was read at some moment is how the final log begins."""
    for place, rows in earlier.items():
        assert rows == final[place][: len(rows)], place


def committed_of(directory: Path, committed: Committed) -> Committed:
    """What fletchlog finds of these."""
    found = {}
    with fl.Broker(directory, read_only=True) as broker:
        for group in {group for group, _, _ in committed}:
            with fl.Consumer(broker, {"group.id": group}) as consumer:
                for of, topic, partition in committed:
                    at = consumer.committed((topic, partition)) if of == group else None
                    if at is not None:
                        found[of, topic, partition] = at.offset
    return found


@pytest.mark.parametrize("release", kafka.SERVERS)
@pytest.mark.parametrize("number", RUNS)
@pytest.mark.parametrize("end", ["stopped", "killed"])
def test_reading_beside_a_writing_broker(end: str, number: int, release: str, seed: int, scratch: Path, count: Callable[..., None]) -> None:
    logging.getLogger("fletchlog").setLevel(logging.ERROR)
    script = Script(random.Random(f"{seed} live {end} {number} {release}"), release)
    lines = script.run(200)
    directory = format_directory(scratch / "data")
    seen: dict[str, list[Rows]] = {isolation: [] for isolation in ISOLATIONS}
    with Kraft(release, directory, scratch) as broker:
        classes = kafka.classpath("clients", [("kafka-clients", release)])
        (scratch / "script").write_text(lines)
        with (scratch / "script").open() as script_file, (scratch / "writer.log").open("w") as log:
            writer = subprocess.Popen([*kafka.JVM, "-cp", classes, "Write", broker.address], stdin=script_file, stdout=subprocess.DEVNULL, stderr=log)
            while writer.poll() is None:
                for isolation in ISOLATIONS:
                    seen[isolation].append(ours(directory, isolation))
        assert writer.returncode == 0, (scratch / "writer.log").read_text()[-4000:]
        final = {isolation: theirs(broker.address, release, isolation) for isolation in ISOLATIONS}
        for isolation in ISOLATIONS:
            assert ours(directory, isolation) == final[isolation], isolation
        assert committed_of(directory, script.committed) == script.committed
        if end == "killed":
            broker.kill()
    for isolation in ISOLATIONS:
        assert ours(directory, isolation) == final[isolation], isolation
        lengths = [sum(map(len, rows.values())) for rows in seen[isolation]]
        assert lengths == sorted(lengths), "it never shrinks"
        for rows in seen[isolation]:
            is_prefix(rows, final[isolation])
    assert committed_of(directory, script.committed) == script.committed
    scans = sum(map(len, seen.values()))
    assert len({sum(map(len, rows.values())) for rows in seen["read_uncommitted"]}) > 5, "it was read while it was written"
    records = {f"records_{isolation}": sum(map(len, final[isolation].values())) for isolation in ISOLATIONS}
    count(PART, runs=1, scans_while_writing=scans, committed_offsets=len(script.committed), **records)
