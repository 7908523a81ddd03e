"""More partitions, and more segments, than file descriptors: written, deleted, cleaned, closed and opened again."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import os, resource, sys
import fletchlog as fl

LIMIT, PARTITIONS, ROUNDS = 256, 600, 3
resource.setrlimit(resource.RLIMIT_NOFILE, (LIMIT, LIMIT))

def check(broker, count):
    for partition in range(PARTITIONS):
        table = broker.scan("t", partition=partition).to_pyarrow()
        assert table["value"].to_pylist() == [b"%d %d" % (i, partition) for i in range(count)], partition
    assert len(os.listdir("/proc/self/fd")) < LIMIT

with fl.Broker(sys.argv[1], create=True) as broker:
    broker.create_topic("t", partitions=PARTITIONS, config={"segment.bytes": 100})
    with fl.Producer(broker, {}) as producer:
        for i in range(ROUNDS):
            for partition in range(PARTITIONS):
                producer.send("t", value=b"%d %d" % (i, partition), partition=partition)
            producer.flush()
    check(broker, ROUNDS)
with fl.Broker(sys.argv[1]) as broker:
    check(broker, ROUNDS)
with fl.Broker(sys.argv[1], read_only=True) as broker:
    check(broker, ROUNDS)
"""


@pytest.mark.slow
def test_more_partitions_than_descriptors_are_written_read_closed_and_opened(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-c", PROGRAM, str(tmp_path)], check=True, timeout=300)


SEGMENTS = """
import os, resource, sys
sys.path.insert(0, sys.argv[3])
import fletchlog as fl
import pyarrow
from tests.support.batches import batch_of

PATH, LIMIT, COUNT = sys.argv[1], 64, 150
CONFIG = {"fletchlog.durability": sys.argv[2]}
BATCH = batch_of(1, 100)
resource.setrlimit(resource.RLIMIT_NOFILE, (LIMIT, LIMIT))

def fill(broker, topic, config):
    broker.create_topic(topic, config={"segment.bytes": 100, **config})
    with fl.Producer(broker, {"acks": "all"}) as producer:
        for i in range(COUNT):
            producer.send(topic, key=b"%d" % (i % 2), value=b"%d" % i, timestamp_ms=1000).result(60)
    assert broker.describe_topic(topic).partitions[0].segments == COUNT

def hoard():
    taken = []
    try:
        while True:
            taken.append(os.open(os.devnull, os.O_RDONLY))
    except OSError:
        return taken

def works(broker):
    for topic in ("kept", "retained"):
        end = broker.append_batches(topic, 0, BATCH)[0] + 1
        assert broker.scan(topic).to_pyarrow()["offset"].to_pylist()[-1] == end - 1
    assert len(os.listdir("/proc/self/fd")) < LIMIT

with fl.Broker(PATH, create=True, config=CONFIG) as broker:
    fill(broker, "kept", {"retention.ms": "-1"})
    fill(broker, "deleted", {"retention.ms": "-1"})
    fill(broker, "compacted", {"cleanup.policy": "compact"})
    fill(broker, "retained", {"retention.ms": "1000"})
    assert broker.run_retention() == COUNT
    assert broker.describe_topic("retained").partitions[0].log_start_offset == COUNT
    works(broker)
    (cleaned,) = broker.clean_topic("compacted", force=True)
    assert broker.scan("compacted").to_pyarrow()["value"].to_pylist() == [b"%d" % i for i in range(COUNT - 2, COUNT)]
    works(broker)
    broker.delete_topic("deleted")
    works(broker)

    # The rest of the process takes every descriptor, also those that the broker gives up.
    refused = 0
    for round in range(20):
        # A call that was refused may be made again.
        for call in (
            lambda: broker.append_batches("kept", 0, BATCH),
            lambda: broker.run_retention(),
            lambda: broker.clean_topic("compacted", force=True),
            lambda: broker.flush(),
            lambda: broker.create_topic(f"new{round}"),
        ):
            taken = hoard()
            try:
                call()
            except fl.errors.KafkaError as error:
                assert "Too many open files" in str(error), error
                refused += 1
            finally:
                for descriptor in taken:
                    os.close(descriptor)
    assert refused > 20, refused
    works(broker)
with fl.Broker(PATH, config=CONFIG) as broker:
    works(broker)
assert all(partition.ok for partition in fl.files.verify(PATH))
"""


@pytest.mark.slow
@pytest.mark.parametrize("durability", ["page-cache", "fsync"])
def test_deleting_and_cleaning_more_segments_than_descriptors_leaves_enough_of_them(tmp_path: Path, durability: str) -> None:
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-c", SEGMENTS, str(tmp_path / "log"), durability, str(root)],
        check=False,
        timeout=300,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    # One line for a deletion, not one for a segment.
    assert done.stderr.count("readers of") < 100, done.stderr[-4000:]
