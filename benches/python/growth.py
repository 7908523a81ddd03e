"""What a record and a lookup cost in one partition of a million, ten million, ... records of ten bytes: writing, opening, scanning, seeking.

And what a segment costs where a directory has a million of them. `python benches/python/growth.py --directory DIR --records 1000000 1000000000 --segments 10000
1000000` writes each log under the directory (18 bytes a record, three files a segment), measures it in a process of its own and removes it. CPU time of the
whole process, so other work on the machine counts little; the pages that the file cache does not hold are read from the disk, whose time is in the wall
clock alone. docs/scale.md has the figures.
"""

from __future__ import annotations

import argparse
import json
import random
import resource
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Self

import numpy as np
import pyarrow as pa

import fletchlog as fl

TP = fl.TopicPartition("t", 0)
CHUNK = 1_000_000
# A million records a second of their own time
PER_MS = 1_000
START_MS = 1_700_000_000_000
LOOKUPS = 200
# Of the directory of segments
PARTITIONS = 100


class Cost:
    """CPU and wall time of the blocks that it was entered for."""

    def __init__(self) -> None:
        self.cpu_ns = self.wall_ns = 0

    def __enter__(self) -> Self:
        self._began = time.process_time_ns(), time.perf_counter_ns()
        return self

    def __exit__(self, *_error: object) -> None:
        cpu_ns, wall_ns = self._began
        self.cpu_ns += time.process_time_ns() - cpu_ns
        self.wall_ns += time.perf_counter_ns() - wall_ns


def chunk(at: int, rows: int, value: pa.Array) -> pa.Table:
    """Records of which each has its time."""
    times = np.arange(at, at + rows, dtype=np.int64) // PER_MS + START_MS
    return pa.table({"value": value.slice(0, rows), "timestamp": pa.array(times).cast(pa.timestamp("ms", "UTC"))})


def write(path: Path, records: int) -> dict[str, float]:
    """Appends the records and closes the directory."""
    value = pa.array([b"0123456789"] * CHUNK, pa.binary())
    cost = Cost()
    with fl.Broker(path, create=True) as broker:
        broker.create_topic("t", config={"retention.ms": "-1"})
        with fl.Producer(broker) as producer:
            for at in range(0, records, CHUNK):
                table = chunk(at, min(CHUNK, records - at), value)
                with cost:
                    producer.send_arrow("t", table)
        with cost:
            broker.close()
    return {"write_ns": cost.cpu_ns / records, "write_wall_ns": cost.wall_ns / records}


def median_us(once: Callable[[], object]) -> float:
    """Wall time of the middle one of many."""
    took = []
    for _ in range(LOOKUPS):
        with Cost() as cost:
            once()
        took.append(cost.wall_ns / 1000)
    return statistics.median(took)


def read(path: Path, records: int) -> dict[str, float]:
    """Opens the directory, scans all of it, and reads and looks up at random places."""
    rng = random.Random(1)
    with Cost() as opened:
        broker = fl.Broker(path, create=True)
    with broker:
        with Cost() as scanned:
            rows = sum(batch.num_rows for batch in broker.scan("t", threads=1))
        assert rows == records
        with fl.Consumer(broker, {"max.poll.records": 500}) as consumer:
            consumer.assign([TP])

            def seek_and_poll() -> None:
                offset = rng.randrange(records - 500)
                consumer.seek(TP, offset)
                assert next(iter(consumer.poll(timeout_ms=10_000))).offset == offset

            def look_up() -> None:
                offset = rng.randrange(records) // PER_MS * PER_MS
                found = consumer.offsets_for_times({TP: START_MS + offset // PER_MS})[TP]
                assert found is not None
                assert found.offset == offset

            seek_us, lookup_us = median_us(seek_and_poll), median_us(look_up)
    return {
        "open_ms": opened.cpu_ns / 1e6,
        "scan_ns": scanned.cpu_ns / records,
        "scan_wall_ns": scanned.wall_ns / records,
        "seek_us": seek_us,
        "lookup_us": lookup_us,
    }


def one(path: Path, records: int) -> dict[str, float]:
    """The figures of a log of this size."""
    figures = write(path, records) | read(path, records)
    files = [file for file in path.glob("t-0/*") if file.is_file()]
    figures["segments"] = sum(file.suffix == ".log" for file in files)
    figures["bytes"] = sum(file.stat().st_size for file in files) / records
    figures["index_bytes"] = sum(file.stat().st_size for file in files if file.suffix.endswith("index")) / records
    figures["peak_mib"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return figures


def segments_of_nothing(path: Path, count: int) -> dict[str, float]:
    """CPU time that it takes to open a directory of so many segments, closed cleanly, whose logs are then all loaded."""
    with fl.Broker(path, create=True) as broker:
        broker.create_topic("t", partitions=PARTITIONS, config={"retention.ms": "-1"})
        with fl.Producer(broker) as producer:
            for partition in range(PARTITIONS):
                producer.send("t", value=b"first", partition=partition)
    for partition in range(PARTITIONS):
        for base in range(1, count // PARTITIONS):
            for kind in ("log", "index", "timeindex"):
                (path / f"t-{partition}" / f"{base:020d}.{kind}").touch()
    with Cost() as opened:
        broker = fl.Broker(path)
    with broker:
        with Cost() as loaded:
            found = sum(partition.segments for partition in broker.describe_topic("t").partitions)
        assert found == count
        with Cost() as closed:
            broker.close()
    return {
        "open_ms": opened.cpu_ns / 1e6,
        "load_us_a_segment": loaded.cpu_ns / 1000 / count,
        "close_us_a_segment": closed.cpu_ns / 1000 / count,
        "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }


def main() -> None:
    """Each size in a process of its own."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--records", type=int, nargs="*", default=[])
    parser.add_argument("--segments", type=int, nargs="*", default=[])
    parser.add_argument("--directory", type=Path, required=True)
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    runs = [("--records", count, one) for count in asked.records]
    runs += [("--segments", count, segments_of_nothing) for count in asked.segments]
    for option, count, measure in runs:
        path = asked.directory / f"growth{option}-{count}"
        if asked.one:
            print(json.dumps({name: round(value, 3) for name, value in measure(path, count).items()}))
            continue
        command = [sys.executable, __file__, "--one", "--directory", asked.directory, option, str(count)]
        try:
            done = subprocess.run(command, check=True, capture_output=True, text=True)
        finally:
            shutil.rmtree(path, ignore_errors=True)
        print(f"{option[2:]} {count:,}: {done.stdout.strip()}", flush=True)


if __name__ == "__main__":
    main()
