"""`fl.land` against Spark's own write of the same rows: a directory of Parquet files, a Delta table.

    python benches/python/land.py --records 1000000

A topic of four partitions, values of 100 bytes that do not repeat, keys of 8. `land` reads the directory and writes; Spark (local[2]) writes `df.write` of the same rows, once
read by the format fletchlog from the same directory, and once from memory (`cached`: the write alone). All take turns, the best round counts, and the rows that are in each table are
counted. Delta needs its jars, delta-spark and delta-storage: their paths as DELTA_JARS, with commas (4.4.0, for Spark 4.2, writes
with Spark 4.3, but does not read). The ratio is Spark's time over ours. Target: 1.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pyarrow.dataset

sys.path.append(str(Path(__file__).resolve().parents[2]))
import fletchlog as fl
from spark_session import parse, session

PARTITIONS = 4
BATCH = 50_000


def fill(directory: Path, records: int) -> None:
    """The topic."""
    with fl.Broker(directory, create=True) as broker, fl.Producer(broker) as producer:
        broker.create_topic("t", partitions=PARTITIONS)
        for begin in range(0, records, BATCH):
            values = [os.urandom(50).hex().encode() for _ in range(BATCH)]
            keys = [b"%08d" % (begin + n) for n in range(BATCH)]
            numbers = pa.array([n % PARTITIONS for n in range(BATCH)], pa.int32())
            producer.send_arrow("t", pa.record_batch({"key": keys, "value": pa.array(values), "partition": numbers}))


def rows(table_format: str, table: Path) -> int:
    """Rows of a table that Spark has written."""
    if table_format == "delta":
        return int(deltalake.DeltaTable(table).count())
    return int(pyarrow.dataset.dataset(table).count_rows())


def main() -> None:
    """Prints seconds and ratios."""
    records, rounds = parse(__doc__ or "", 3, PARTITIONS * BATCH)
    jars = os.environ.get("DELTA_JARS", "")
    delta = {
        "spark.jars": jars,
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    }
    spark = session("4g", **(delta if jars else {}))
    with tempfile.TemporaryDirectory(dir="/dev/shm") as scratch:
        root = Path(scratch)
        fill(root / "data", records)
        frame = spark.read.format("fletchlog").option("path", str(root / "data")).option("subscribe", "t").load()
        cached = frame.cache()
        cached.count()
        read = spark.read.format("fletchlog").option("path", str(root / "data")).option("subscribe", "t").load()
        writes: dict[str, Callable[[str], Any]] = {}
        for name in ("parquet", "delta", "iceberg"):
            catalog = {"type": "sql", "uri": f"sqlite:///{root}/catalog.db", "warehouse": f"file://{root}/warehouse"} if name == "iceberg" else None
            writes[f"land {name}"] = lambda to, name=name, catalog=catalog: (
                fl.land(  # type: ignore[misc]
                    root / "data", "t", to if catalog is None else f"db.{Path(to).name}", format=name, catalog=catalog
                ).rows
            )
            if name == "parquet" or (name == "delta" and jars):
                writes[f"spark {name}"] = lambda to, name=name: read.write.format(name).save(to)  # type: ignore[misc]
                writes[f"spark {name} cached"] = lambda to, name=name: cached.write.format(name).save(to)  # type: ignore[misc]
        best = dict.fromkeys(writes, float("inf"))
        for number in range(rounds):
            for name, write in writes.items():
                to = root / f"table{number}{name.replace(' ', '')}"
                began = time.perf_counter()
                wrote = write(str(to))
                best[name] = min(best[name], time.perf_counter() - began)
                found = wrote if name.startswith("land") else rows(name.split()[1], to)
                if found != records:
                    raise RuntimeError(f"{name} wrote {found} of {records} rows")
                shutil.rmtree(to, ignore_errors=True)
        for name, took in best.items():
            ours = best[f"land {name.split()[1]}"]
            print(f"{name:22} {took:6.2f} s  {records / took:12,.0f} rows/s  {took / ours:5.2f}")


if __name__ == "__main__":
    main()
