"""The Spark data source against the ceiling of Spark's Python data sources, in one session.

    python benches/python/spark_read.py --records 10000000

Baseline: a Python data source that yields ready-made record batches of the same schema, the same number of rows, from as many
partitions: what remains is Spark's own work (socket, Arrow to rows). Measured: `count()` and the noop sink over the same rows
read from a directory by `format("fletchlog")`. local[2], ten-byte values, no keys, 4 partitions, page cache warm. The two take
turns and the best of the rounds counts, so that a busy machine slows both alike. Target: at least 0.8 of the baseline. `offset` and `value` are
our source with `.schema(...)` of this one column; their ratio is to all seven columns.
"""

from __future__ import annotations

import json
import tempfile
import time
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

import fletchlog as fl
from spark_session import parse, session

PARTITIONS = 4
ROWS = 65_536
START_MS = 1_700_000_000_000
SCHEMA = "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, timestampType int"
COLUMNS = {"offset": "bigint", "value": "binary"}


class ReadyMade(DataSource):
    """The same rows without a log."""

    @classmethod
    def name(cls):
        return "ready_made"

    def schema(self):
        return SCHEMA

    def reader(self, schema):
        return ReadyMadeReader(int(self.options["records"]))


class ReadyMadeReader(DataSourceReader):
    def __init__(self, records):
        self.records = records

    def partitions(self):
        return [InputPartition(i) for i in range(PARTITIONS)]

    def read(self, partition):
        import pyarrow as pa

        batch = pa.record_batch(
            {
                "key": pa.nulls(ROWS, pa.binary()),
                "value": pa.array([b"0123456789"] * ROWS, pa.binary()),
                "topic": pa.array(["t"] * ROWS, pa.string()),
                "partition": pa.array([partition.value] * ROWS, pa.int32()),
                "offset": pa.array(range(ROWS), pa.int64()),
                "timestamp": pa.array([START_MS * 1000] * ROWS, pa.timestamp("us", "UTC")),
                "timestampType": pa.array([0] * ROWS, pa.int32()),
            }
        )
        left = self.records // PARTITIONS
        while left > 0:
            yield batch.slice(0, left)
            left -= ROWS


def fill(path: Path, records: int) -> None:
    """Writes the topic."""
    each = records // PARTITIONS
    with fl.Broker(path, create=True) as broker:
        broker.create_topic("t", partitions=PARTITIONS, config={"retention.ms": "-1"})
        with fl.Producer(broker, {"linger.ms": 1000}) as producer:
            for partition in range(PARTITIONS):
                for start in range(0, each, ROWS):
                    rows = min(ROWS, each - start)
                    columns = {
                        "value": pa.array([b"0123456789"] * rows, pa.binary()),
                        "partition": pa.array([partition] * rows, pa.int32()),
                        "timestamp": pa.array([START_MS] * rows, pa.timestamp("ms", "UTC")),
                    }
                    producer.send_arrow("t", pa.table(columns))
            producer.flush()


def count(frame: DataFrame) -> None:
    frame.count()


def noop(frame: DataFrame) -> None:
    frame.write.format("noop").mode("overwrite").save()


def main() -> None:
    records, rounds = parse(__doc__.splitlines()[0], 4, PARTITIONS)
    spark = session("2g")
    spark.dataSource.register(ReadyMade)
    with tempfile.TemporaryDirectory(prefix="fletchlog-bench-", dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as directory:
        fill(Path(directory) / "log", records)
        ours = lambda **schema: spark.read.format("fletchlog").options(path=f"{directory}/log", subscribe="t").load(**schema)  # noqa: E731
        frames = {
            "ready-made": lambda: spark.read.format("ready_made").option("records", records).load(),
            "fletchlog": ours,
            **{name: lambda schema=f"{name} {kind}": ours(schema=schema) for name, kind in COLUMNS.items()},
        }
        assert frames["fletchlog"]().count() == frames["ready-made"]().count() == records
        best: dict[tuple[str, str], float] = {}
        for _ in range(rounds):
            for action in (count, noop):
                for name, load in frames.items():
                    frame = load()
                    began = time.perf_counter()
                    action(frame)
                    took = time.perf_counter() - began
                    best[name, action.__name__] = min(took, best.get((name, action.__name__), took))
    result = {f"{action}_{name}": round(records / best[name, action] / 1e6, 2) for action in ("count", "noop") for name in frames} | {
        f"{action}_ratio": round(best["ready-made", action] / best["fletchlog", action], 2) for action in ("count", "noop")
    }
    result |= {f"noop_{name}_ratio": round(best["fletchlog", "noop"] / best[name, "noop"], 2) for name in COLUMNS}
    spark.stop()
    print(json.dumps({"records": records, "million_rows_per_second": result}, indent=2))


if __name__ == "__main__":
    main()
