"""Typed columns of `value.format` against Spark's `from_avro` over the bytes of the same records, in one session.

    python benches/python/spark_typed.py --records 1000000

A directory with a topic of 4 partitions and values of five flat fields in Avro; page cache warm, local[2], settings of `fletchlog.spark.configure`. The
sources take turns, the best of the rounds counts, and all must find the same: `from_avro` over the bytes that `fletchlog` and `fletchlog-columnar` give, and the
typed columns of both. `one` sums one field, `all` uses all five.

Needs `make jar`, and Maven the first time: Spark's own Avro is kept in `.build/interop`, see judges/interop/kafka.py.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

import fletchlog as fl
from fletchlog import serde
from spark_columnar import JAR, best
from spark_read import PARTITIONS
from spark_session import parse, session

sys.path.append(str(Path(__file__).resolve().parents[2]))
from judges.interop import kafka

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame

ROWS = 50_000
ORDER = json.dumps(
    {
        "type": "record",
        "name": "Order",
        "fields": [
            {"name": "id", "type": "long"},
            {"name": "customer", "type": "string"},
            {"name": "price", "type": "double"},
            {"name": "quantity", "type": "int"},
            {"name": "paid", "type": "boolean"},
        ],
    }
)
QUERIES: dict[str, Callable[[DataFrame], object]] = {
    "one": lambda frame: frame.selectExpr("sum(value.id)").collect(),
    "all": lambda frame: frame.selectExpr(
        "sum(value.id)", "sum(length(value.customer))", "sum(value.price)", "sum(value.quantity)", "count_if(value.paid)"
    ).collect(),
}


def fill(path: Path, records: int) -> None:
    """Writes the topic."""
    avro, each = serde.Avro(ORDER), records // PARTITIONS
    with fl.Broker(path, create=True) as broker:
        broker.create_topic("t", partitions=PARTITIONS, config={"retention.ms": "-1"})
        with fl.Producer(broker, {"linger.ms": 1000}) as producer:
            for partition in range(PARTITIONS):
                for start in range(0, each, ROWS):
                    numbers = range(start, min(start + ROWS, each))
                    orders = [{"id": n, "customer": f"customer-{n % 1000}", "price": n / 4, "quantity": n % 7, "paid": n % 3 == 0} for n in numbers]
                    values, _ = avro.encode(pa.array(orders, avro.type))
                    producer.send_arrow("t", pa.table({"value": values, "partition": pa.array([partition] * len(orders), pa.int32())}))


def main() -> None:
    """Prints one line of JSON for each query."""
    records, rounds = parse(__doc__.splitlines()[0], 3, PARTITIONS)
    spark = session("2g", **{"spark.jars": f"{JAR},{kafka.spark_avro()}"})
    from pyspark.sql.avro.functions import from_avro

    with tempfile.TemporaryDirectory(prefix="fletchlog-bench-", dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as scratch:
        fill(Path(scratch) / "log", records)

        def load(source: str, *, typed: bool) -> DataFrame:
            reader = spark.read.format(source).options(subscribe="t", path=f"{scratch}/log")
            if typed:
                return reader.options(**{"value.format": "avro", "value.schema": ORDER}).load()
            bytes_alone = reader.schema("value binary") if source == "fletchlog" else reader
            return bytes_alone.load().select(from_avro("value", ORDER).alias("value"))

        frames = {
            f"{source}, {'typed' if typed else 'from_avro'}": lambda source=source, typed=typed: load(source, typed=typed)
            for source in ("fletchlog", "fletchlog-columnar")
            for typed in (False, True)
        }
        for name, query in QUERIES.items():
            took = best(frames, query, rounds)
            found = {source: f"{records / seconds[0] / 1e6:.2f} M/s" for source, seconds in took.items()}
            print(json.dumps({"query": name, "records": records, "rows_a_second": found}), flush=True)
    spark.stop()


if __name__ == "__main__":
    main()
