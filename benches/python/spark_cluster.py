"""Reading a real Kafka 4.3.1 from Spark: our source against Spark's own, stock against stock, in one session.

    python benches/python/spark_cluster.py --records 5000000

The same topic of 4 partitions over TCP, values of ten and of 100 bytes, page cache warm, local[2], settings of
`fletchlog.spark.configure`. `count` counts the rows, `sum` adds the lengths of the values and takes the largest offset, `group` counts
by partition. The two take turns and the best of the rounds counts; both must find every record. Target: 3.

Needs Maven the first time: the broker and Spark's kafka package are kept in `.build/interop`, see judges/interop/kafka.py.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import fletchlog as fl
from remote import JVM, PARTITIONS, RELEASE, table
from spark_session import parse, session

sys.path.append(str(Path(__file__).resolve().parents[2]))
from judges.interop import kafka
from judges.interop.kraft import Kraft, format_directory

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame

SIZES = (10, 100)
# what is asked, and what the answer says of the number of records
QUERIES: dict[str, Callable[[DataFrame, int], int]] = {
    "count": lambda frame, _: frame.count(),
    "sum": lambda frame, size: frame.selectExpr("sum(length(value)) as bytes", "max(offset)").first()["bytes"] // size,
    "group": lambda frame, _: sum(row["count"] for row in frame.groupBy("partition").count().collect()),
}


def main() -> None:
    """Prints one line of JSON for each size of values and query."""
    records, rounds = parse(__doc__.splitlines()[0], rounds=3, partitions=PARTITIONS)
    kafka.JVM[:] = JVM
    spark = session("2g", **{"spark.jars": kafka.spark_source()})
    with tempfile.TemporaryDirectory(prefix="fletchlog-bench-") as scratch:
        directory = Path(scratch)
        with Kraft(RELEASE, format_directory(directory / "kafka"), directory, heap="1g") as broker:
            for size in SIZES:
                topic = f"read-{size}"
                with fl.Cluster(f"kafka://{broker.address}") as cluster:
                    cluster.create_topic(topic, partitions=PARTITIONS)
                with fl.Producer(f"kafka://{broker.address}") as producer:
                    producer.send_arrow(topic, table(records, size))
                frames = {
                    source: spark.read.format(source).option("kafka.bootstrap.servers", broker.address).option("subscribe", topic).load()
                    for source in ("fletchlog", "kafka")
                }
                for name, query in QUERIES.items():
                    best = dict.fromkeys(frames, float("inf"))
                    for _ in range(rounds):
                        for source, frame in frames.items():
                            began = time.perf_counter()
                            found = query(frame, size)
                            best[source] = min(best[source], time.perf_counter() - began)
                            if found != records:
                                raise RuntimeError(f"{source} found {found} of {records} records")
                    seconds = {source: round(took, 2) for source, took in best.items()}
                    print(
                        json.dumps({"query": name, "value_bytes": size, "seconds": seconds, "ratio": round(best["kafka"] / best["fletchlog"], 2)}), flush=True
                    )
    spark.stop()


if __name__ == "__main__":
    main()
