"""Many logs in one process: more partitions than file descriptors, closed and opened again."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

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

with fl.Broker(sys.argv[1]) as broker:
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


def test_more_partitions_than_descriptors_are_written_read_closed_and_opened(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-c", PROGRAM, str(tmp_path)], check=True, timeout=300)
