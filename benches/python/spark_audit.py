"""The audit in Spark against counting the same records, in one session.

    python benches/python/spark_audit.py --records 10000000

Measured: `fletchlog.pipeline.audit(df).collect()`. Baselines: `df.count()`, which over `format("fletchlog")` decodes every column, since Spark's
Python data sources cannot leave one out; and a count of columns, one global aggregate that needs each record's key, value, offset and
timestamp. Over Parquet `count()` reads the footers only, so there the second one counts. 8-byte keys (100,000 different ones), 10-byte
values, 1 in 1,000 records repeated, 1 in 10 out of timestamp order; 4 partitions, local[2]. The three take turns and the best round
counts, in seconds, and in processor seconds of Spark and its workers, which say more on a busy machine. Target: at most 3 times a count
over the log.
"""

from __future__ import annotations

import json
import os
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as everyone calls it

import fletchlog as fl
from fletchlog.pipeline import audit
from spark_session import parse, session

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
    with fl.Broker(path, create=True) as broker:
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


def processor_seconds() -> float:
    """What this process's children have used so far: the JVM and its Python workers (Linux)."""
    parents, used = {}, {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue  # it has ended
        parents[int(stat.parent.name)], used[int(stat.parent.name)] = int(fields[1]), sum(map(int, fields[11:15]))
    mine = 0
    for process, ticks in used.items():
        above = process
        while above not in {0, os.getpid()}:
            above = parents.get(above, 0)
        mine += ticks if above else 0
    return mine / os.sysconf("SC_CLK_TCK")


def main() -> None:
    records, rounds = parse(__doc__.splitlines()[0], 3, PARTITIONS)
    spark = session("3g")
    with tempfile.TemporaryDirectory(prefix="fletchlog-bench-", dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as directory:
        fill(Path(directory) / "log", records)
        log = spark.read.format("fletchlog").options(path=f"{directory}/log", subscribe="t").load()
        log.write.option("compression", "none").parquet(f"{directory}/parquet")
        frames = {"log": log, "parquet": spark.read.parquet(f"{directory}/parquet")}
        actions = (count, count_columns, audited)
        best: dict[tuple[str, str], tuple[float, float]] = {}
        for _ in range(rounds):
            for name, frame in frames.items():
                for action in actions:
                    began, used = time.perf_counter(), processor_seconds()
                    action(frame)
                    took = (time.perf_counter() - began, processor_seconds() - used)
                    best[name, action.__name__] = tuple(map(min, zip(took, best.get((name, action.__name__), took), strict=True)))
    spark.stop()
    result = {
        name: {
            unit: {action.__name__: round(best[name, action.__name__][at], 2) for action in actions}
            | {f"audit / {base.__name__}": round(best[name, "audited"][at] / best[name, base.__name__][at], 2) for base in (count, count_columns)}
            for at, unit in enumerate(("seconds", "processor seconds"))
        }
        for name in frames
    }
    print(json.dumps({"records": records, **result}, indent=2))


if __name__ == "__main__":
    main()
