"""What consumers and scans take does not follow the size of what they read: docs/scale.md."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

import fletchlog as fl

pytestmark = [pytest.mark.slow, pytest.mark.skipif(sys.platform != "linux", reason="measures memory as Linux does")]

PARTITIONS = 200
RECORDS = 30_000
VALUE_BYTES = 100

# The peak of its own memory while it reads, in MiB, and the records that it has read
READER = """
import sys
import pyarrow as pa
import fletchlog as fl

def peak():
    status = dict(line.split(":", 1) for line in open("/proc/self/status"))
    return int(status["VmHWM"].split()[0]) // 1024

def consume(broker):
    with fl.Consumer(broker, {"auto.offset.reset": "earliest"}) as consumer:
        consumer.assign([("t", partition) for partition in range(200)])
        while batch := consumer.poll(timeout_ms=1000):
            yield pa.record_batch(batch)

with fl.Broker(sys.argv[1], read_only=True) as broker:
    threads = int(sys.argv[2])
    next(iter(broker.scan("first")))
    open("/proc/self/clear_refs", "w").write("5")  # the peak begins anew
    before = peak()
    rows = sum(batch.num_rows for batch in (broker.scan("t", threads=threads) if threads else consume(broker)))
    print(peak() - before, rows)
"""


# For two brokers, one after the other: page faults of the first scan and the fewest of ten later ones, and MiB of its own while the broker
# is open and when it is closed
KEEPER = """
import resource, sys
import fletchlog as fl

def mib():
    status = dict(line.split(":", 1) for line in open("/proc/self/status"))
    return int(status["VmRSS"].split()[0]) // 1024

def faults(broker):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    assert sum(batch.num_rows for batch in broker.scan("one", threads=int(sys.argv[2]))) == 600_000
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

with fl.Broker(sys.argv[1], read_only=True) as broker:
    next(iter(broker.scan("first")))
for _ in range(2):
    with fl.Broker(sys.argv[1], read_only=True) as broker:
        first, later = faults(broker), min(faults(broker) for _ in range(10))
        kept = mib()
    print(first, later, kept, mib())
"""


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("memory") / "log"
    values = pa.array([os.urandom(VALUE_BYTES) for _ in range(RECORDS)], pa.binary())
    with fl.Broker(path, create=True) as broker:
        broker.create_topic("first")
        broker.create_topic("one")
        broker.create_topic("t", partitions=PARTITIONS)
        with fl.Producer(broker, {"linger.ms": 1000}) as producer:
            producer.send("first", value=b"x")
            for _ in range(20):
                producer.send_arrow("one", pa.record_batch({"value": values}))
            for partition in range(PARTITIONS):
                producer.send_arrow("t", pa.record_batch({"value": values, "partition": pa.array([partition] * RECORDS, pa.int32())}))
    return path


# threads, 0 for a consumer with stock properties; MiB of the 640 that it reads
@pytest.mark.parametrize(("threads", "most"), [(0, 150), (1, 70), (2, 100)])
def test_a_reader_takes_much_less_than_it_reads(directory: Path, threads: int, most: int) -> None:
    command = [sys.executable, "-c", READER, str(directory), str(threads)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    taken, rows = map(int, done.stdout.split())
    assert rows == PARTITIONS * RECORDS
    assert taken < most


# eight threads on few cores need more than is kept, or less, as they come to run: one scan alone says little
@pytest.mark.parametrize("threads", [1, 2, 8])
def test_a_broker_keeps_some_memory_of_its_scans(directory: Path, threads: int) -> None:
    command = [sys.executable, "-c", KEEPER, str(directory), str(threads)]
    # The C library gives the system back at once what is freed: it would keep some of it.
    env = {**os.environ, "MALLOC_MMAP_THRESHOLD_": "65536"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, env=env)
    assert (done.returncode, done.stderr) == (0, "")
    for line in done.stdout.splitlines():
        first, later, kept, closed = map(int, line.split())
        assert later * 2 < first
        assert 0 < kept - closed < 80
