"""What a task of the Spark data source costs: a topic of many small partitions, in one session.

    python benches/python/spark_tasks.py --partitions 1000

Baseline: `spark.range` with as many tasks, which run in the JVM alone. Measured: `collect()` of the same number of rows from a directory by
`format("fletchlog")`, one task a partition, and packed into 8 tasks by `maxPartitions`. local[2], 10 records of ten bytes a partition, page
cache warm, settings of `fletchlog.spark.configure`. All take turns, the best of the rounds counts. Target: 12 s for 1,000 partitions.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path

import pyarrow as pa

import fletchlog as fl
from spark_session import session

RECORDS = 10
PACKED = 8


def fill(path: Path, partitions: int) -> None:
    """Writes the topic."""
    rows = partitions * RECORDS
    with fl.Broker(path, create=True) as broker:
        broker.create_topic("t", partitions=partitions, config={"retention.ms": "-1"})
        with fl.Producer(broker, {"linger.ms": 1000}) as producer:
            numbers = pa.array([number // RECORDS for number in range(rows)], pa.int32())
            producer.send_arrow("t", pa.table({"value": pa.array([b"0123456789"] * rows, pa.binary()), "partition": numbers}))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--partitions", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=2)
    arguments = parser.parse_args()
    partitions, rows = arguments.partitions, arguments.partitions * RECORDS
    spark = session("2g")
    with tempfile.TemporaryDirectory(prefix="fletchlog-bench-", dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as directory:
        fill(Path(directory) / "log", partitions)
        ours = lambda **options: spark.read.format("fletchlog").options(path=f"{directory}/log", subscribe="t", **options).load()  # noqa: E731
        frames = {
            "range": lambda: spark.range(rows, numPartitions=partitions),
            "fletchlog": ours,
            "packed": lambda: ours(maxPartitions=PACKED),
        }
        best: dict[str, float] = {}
        for _ in range(arguments.rounds):
            for name, load in frames.items():
                began = time.perf_counter()
                assert len(load().collect()) == rows
                best[name] = min(time.perf_counter() - began, best.get(name, float("inf")))
    spark.stop()
    result = {f"{name}_s": round(took, 2) for name, took in best.items()}
    result["ms_per_task"] = round(best["fletchlog"] / partitions * 1000, 1)
    result["ratio"] = round(best["fletchlog"] / best["range"], 1)
    print(json.dumps({"partitions": partitions, "records_each": RECORDS, **result}, indent=2))


if __name__ == "__main__":
    main()
