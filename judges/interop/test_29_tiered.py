"""Part 28: what a real broker hands to a storage manager of tiered storage, in the layout of Aiven's plug-in, reads as the broker's log.

The storage manager is ours (`java/server/TieredLayout.java`), after the plug-in's sources; Kafka is the judge of what a segment is: its offsets,
indexes, snapshot and leader epochs.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import fletchlog as fl

from . import kafka
from .generate import CODECS
from .kraft import Kraft, format_directory
from .rows import ours, theirs

PART = "28 their segments, in the plug-in's layout, our reader"
TOPIC = "orders"
PARTITIONS = 2
UPLOADED_WITHIN_S = 120


def produce(address: str, rng: random.Random, number: int) -> None:
    """Records outside and inside of transactions, of which some are aborted, and one is open while segments are rolled."""
    for place in range(6):
        config = {"compression.type": rng.choice(CODECS), "batch.size": rng.choice([300, 16_384])}
        with fl.Producer(f"kafka://{address}", config | {"transactional.id": f"t{number}-{place}"}) as producer:
            producer.init_transactions()
            producer.begin_transaction()
            with fl.Producer(f"kafka://{address}", config) as other:
                for _ in range(60):
                    rng.choice([producer, other]).send(TOPIC, rng.randbytes(rng.choice([10, 400, 3_000])), key=b"k", partition=rng.randrange(PARTITIONS))
            if rng.random() < 0.5:
                producer.commit_transaction()
            else:
                producer.flush()
                producer.abort_transaction()


def rolled(directory: Path) -> dict[int, list[int]]:
    """Base offsets of the segments of each partition; the last one is where the rolled ones end."""
    return {number: sorted(int(path.stem) for path in (directory / f"{TOPIC}-{number}").glob("*.log")) for number in range(PARTITIONS)}


def await_uploads(directory: Path, objects: Path) -> dict[int, int]:
    """Waits until every rolled segment has its manifest. Where the uploads end."""
    deadline = time.monotonic() + UPLOADED_WITHIN_S
    while True:
        bases = rolled(directory)
        manifests = {(int(path.parent.name), int(path.name[:20])) for path in objects.glob(f"{TOPIC}-*/*/*.rsm-manifest")}
        missing = {(number, base) for number, of in bases.items() for base in of[:-1]} - manifests
        if not missing:
            return {number: of[-1] for number, of in bases.items()}
        assert time.monotonic() < deadline, f"not uploaded: {sorted(missing)}"
        time.sleep(0.5)


@pytest.mark.parametrize("release", kafka.SERVERS)
def test_uploaded_segments_read_as_the_brokers_log(release: str, tmp_path: Path, seed: int, count: Callable[..., None]) -> None:
    rng = random.Random(seed)
    directory, objects = format_directory(tmp_path / "log"), tmp_path / "objects"
    objects.mkdir()
    config = {
        "remote.log.storage.system.enable": "true",
        "remote.log.storage.manager.class.name": "TieredLayout",
        "rsm.config.root": str(objects),
        "remote.log.metadata.manager.listener.name": "PLAINTEXT",
        "rlmm.config.remote.log.metadata.topic.replication.factor": "1",
        "rlmm.config.remote.log.metadata.topic.num.partitions": "1",
        "remote.log.manager.task.interval.ms": "500",
    }
    size = "segment.bytes" if release.startswith("3.") else "internal.segment.bytes"
    with Kraft(release, directory, tmp_path, config=config) as broker:
        with fl.Cluster(f"kafka://{broker.address}") as cluster:
            cluster.create_topic(TOPIC, PARTITIONS, config={"remote.storage.enable": "true", size: "30000", "index.interval.bytes": "1000"})
        for number in range(3):
            # a new leader epoch
            if number:
                broker.stop()
                broker.launch()
                broker.await_start()
            produce(broker.address, rng, number)
        ends = await_uploads(directory, objects)
        expected = {isolation: theirs(broker.address, kafka.NEWEST, isolation) for isolation in ("read_uncommitted", "read_committed")}
    with fl.Broker(objects, read_only=True) as read:
        partitions = read.describe_topic(TOPIC).partitions
        assert {part.partition: part.high_watermark for part in partitions} == ends
        stable = {part.partition: part.last_stable_offset for part in partitions}
    for isolation, bounds in (("read_uncommitted", ends), ("read_committed", stable)):
        found = ours(objects, isolation)
        for number, bound in bounds.items():
            assert found[TOPIC, number] == [row for row in expected[isolation][TOPIC, number] if row[0] < bound]
    manifests = list(objects.rglob("*.rsm-manifest"))
    epochs = [(folder / "leader-epoch-checkpoint").read_text().splitlines()[1] for folder in directory.glob(f"{TOPIC}-*")]
    assert all(int(entries) >= 2 for entries in epochs)
    assert len(manifests) > 20
    count(PART, segments=len(manifests), rows=sum(len(rows) for rows in found.values()))
