"""The audit in Spark against counting the same records, in one session.

    python benches/python/spark_audit.py --records 10000000

Measured: `fletchlog.pipeline.audit(df).collect()`. Baselines: `df.count()`, and a count that needs every record's key, value, offset and
timestamp (one global aggregate of them). The records come from `format("fletchlog")`, then from a cached frame and from Parquet, in the
same session: 8-byte keys (100,000 different ones), 10-byte values, 1 in 1,000 records repeated, 1 in 10 out of timestamp order; 4
partitions, local[2]. The three take turns and the best round counts. Target: at most 3 times a count.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everyone calls it

import fletchlog as fl
from fletchlog.pipeline import audit

PARTITIONS = 4
ROWS = 65_536
START_MS = 1_700_000_000_000


def digits(prefix: bytes, numbers: np.ndarray, width: int) -> pa.Array:
    """Binary values of one length: a prefix and a number."""
    size = len(prefix) + width
    cells = np.empty((len(numbers), size), np.uint8)
    cells[:, : len(prefix)] = np.frombuffer(prefix, np.uint8)
    for place in range(width):
        cells[:, size - 1 - place] = 48 + numbers // 10**place % 10
    ends = np.arange(len(numbers) + 1, dtype=np.int32) * size
    return pa.Array.from_buffers(pa.binary(), len(numbers), [None, pa.py_buffer(ends), pa.py_buffer(cells.tobytes())])


def fill(path: Path, records: int) -> None:
    """Writes the topic."""
    each = records // PARTITIONS
    random = np.random.default_rng(7)
    with fl.Broker(path) as broker:
        broker.create_topic("t", partitions=PARTITIONS, config={"retention.ms": "-1"})
        with fl.Producer(broker, {"linger.ms": 1000}) as producer:
            for partition in range(PARTITIONS):
                for start in range(0, each, ROWS):
                    number = np.arange(start, min(start + ROWS, each))
                    number = np.where(number % 1000 == 999, np.maximum(number - 1, 0), number)
                    late = np.where(random.random(len(number)) < 0.1, random.exponential(60_000, len(number)), 0)
                    columns = {
                        "key": digits(b"k", number % 100_000, 7),
                        "value": digits(b"v", number, 9),
                        "partition": pa.array(np.full(len(number), partition, np.int32)),
                        "timestamp": pa.array((START_MS + number - late).astype(np.int64)).cast(pa.timestamp("ms", "UTC")),
                    }
                    producer.send_arrow("t", pa.table(columns))
            producer.flush()


def count(frame: DataFrame) -> None:
    frame.count()


def count_columns(frame: DataFrame) -> None:
    needed = [F.sum(F.length("key")), F.sum(F.length("value")), F.max("offset"), F.max("timestamp"), F.count("topic"), F.max("partition")]
    frame.agg(*needed).collect()


def audited(frame: DataFrame) -> None:
    assert len(audit(frame).collect()) == PARTITIONS


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--records", type=int, default=10_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    records = arguments.records // PARTITIONS * PARTITIONS
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.log.level", "ERROR")
        .config("spark.driver.memory", "3g")
        .config("spark.sql.session.timeZone", "UTC")
        .getOrCreate()
    )
    with tempfile.TemporaryDirectory(prefix="fletchlog-bench-", dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as directory:
        fill(Path(directory) / "log", records)
        log = spark.read.format("fletchlog").options(path=f"{directory}/log", subscribe="t").load()
        log.write.option("compression", "none").parquet(f"{directory}/parquet")
        frames = {"log": log, "parquet": spark.read.parquet(f"{directory}/parquet")}
        actions = (count, count_columns, audited)
        best: dict[tuple[str, str], float] = {}
        for _ in range(arguments.rounds):
            for name, frame in frames.items():
                for action in actions:
                    began = time.perf_counter()
                    action(frame)
                    took = time.perf_counter() - began
                    best[name, action.__name__] = min(took, best.get((name, action.__name__), took))
    spark.stop()
    result = {
        name: {"seconds": {action.__name__: round(best[name, action.__name__], 2) for action in actions}}
        | {f"audit / {base.__name__}": round(best[name, "audited"] / best[name, base.__name__], 2) for base in (count, count_columns)}
        for name in frames
    }
    print(json.dumps({"records": records, **result}, indent=2))


if __name__ == "__main__":
    main()
