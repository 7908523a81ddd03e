"""`df.write` by our sink into a directory against Spark's own kafka sink into a real Kafka 4.3.1 on this machine.

    python benches/python/spark_write.py --records 5000000

The same frame in the same session (local[2], settings of `fletchlog.spark.configure`): values of ten and of 100 bytes, no keys, four
partitions of the frame and of the topic. Kafka: one node (KRaft) with the JVM settings of its start script and a heap of 1 GiB, loopback; both sinks with
their stock settings. Logs are in memory (/dev/shm). All take turns, the best of the rounds counts, and the rows that arrived are
counted. Every row has the same value, so that making the rows costs little: `generate` is the frame alone, into Spark's `noop`; `kafka tuned` has batches of 1 MiB that linger 50 ms. The ratio is the time of
Spark's stock kafka sink over that of ours. Target: 3.

Needs Maven the first time: the broker and Spark's kafka package are kept in `.build/interop`, see judges/interop/kafka.py.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fletchlog as fl

sys.path.append(str(Path(__file__).resolve().parents[2]))
from judges.interop import kafka
from judges.interop.kraft import Kraft, format_directory
from remote import JVM
from spark_session import session

RELEASE = "4.3.1"
PARTITIONS = 4
# what one sink leaves to be done, in the broker and the JVMs, is not the next one's
SETTLE_SECONDS = 3
TUNED = {"kafka.batch.size": str(1 << 20), "kafka.linger.ms": "50"}


def there(source: str | Path, topic: str) -> int:
    """Committed records of a topic of a directory or a cluster."""
    if isinstance(source, Path):
        with fl.Broker(source, read_only=True) as broker:
            return sum(batch.num_rows for batch in broker.scan(topic, columns=["offset"], isolation_level="read_committed"))
    with fl.Consumer(source) as consumer:  # Spark's sink writes no markers of transactions
        return sum(consumer.end_offsets([(topic, number) for number in range(PARTITIONS)]).values())


class Sinks:
    """Writes the same rows into each sink, each time into a topic of its own."""

    def __init__(self, spark: Any, directory: Path, address: str, records: int, size: int) -> None:
        self.directory, self.address, self.records = directory, address, records
        self.url = f"kafka://{address}"
        self.frame = spark.range(records, numPartitions=PARTITIONS).selectExpr(f"cast(repeat('x', {size}) as binary) as value")
        self.writes: dict[str, Callable[[str], Any]] = {"generate": self.generate, "ours": self.ours, "kafka": self.kafka, "kafka tuned": self.tuned}
        self.size, self.number = size, 0

    def run(self, name: str) -> float:
        """Seconds."""
        self.number += 1
        topic = f"t{self.size}-{self.number}"
        for made in (fl.Broker(self.directory), fl.Cluster(self.url)):
            with made as target:
                target.create_topic(topic, partitions=PARTITIONS)
        time.sleep(SETTLE_SECONDS)
        began = time.perf_counter()
        source = self.writes[name](topic)
        took = time.perf_counter() - began
        if source is not None and (found := there(source, topic)) != self.records:
            raise RuntimeError(f"{name} wrote {found} of {self.records} records")
        for made in (fl.Broker(self.directory), fl.Cluster(self.url)):
            with made as target:
                target.delete_topic(topic)
        return took

    def generate(self, _: str) -> None:
        """Nothing is written."""
        self.frame.write.format("noop").mode("overwrite").save()

    def ours(self, topic: str) -> Path:
        """Into the directory."""
        self.frame.write.format("fletchlog").option("path", str(self.directory)).option("topic", topic).mode("append").save()
        return self.directory

    def kafka(self, topic: str, **options: str) -> str:
        """Into the cluster, by Spark's sink."""
        place = {"kafka.bootstrap.servers": self.address, "topic": topic}
        self.frame.write.format("kafka").options(**place, **options).mode("append").save()
        return self.url

    def tuned(self, topic: str) -> str:
        """The same with larger batches."""
        return self.kafka(topic, **TUNED)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--records", type=int, default=5_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    kafka.JVM[:] = JVM
    spark = session("2g", **{"spark.jars": kafka.spark_source()})
    with tempfile.TemporaryDirectory(prefix="fletchlog-bench-", dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as scratch:
        directory = Path(scratch) / "log"
        with Kraft(RELEASE, format_directory(Path(scratch) / "kafka"), Path(scratch), heap="1g") as broker:
            for size in (10, 100):
                sinks = Sinks(spark, directory, broker.address, arguments.records, size)
                times: dict[str, list[float]] = {name: [] for name in sinks.writes}
                for _ in range(arguments.rounds):
                    for name, found in times.items():
                        found.append(sinks.run(name))
                best = {name: min(found) for name, found in times.items()}
                result: dict[str, Any] = {"records": arguments.records, "bytes_each": size}
                result |= {f"{name}_s": [round(took, 2) for took in found] for name, found in times.items()}
                result |= {"ours_M_per_s": round(arguments.records / best["ours"] / 1e6, 2), "ratio": round(best["kafka"] / best["ours"], 2)}
                print(json.dumps(result), flush=True)
    spark.stop()


if __name__ == "__main__":
    main()
