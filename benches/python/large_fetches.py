"""What the size of a fetch costs a poll: 12 partitions of 100-byte values, `max.partition.fetch.bytes` 8 MiB against the default of 1 MiB.

Every record through a consumer, each poll as one Arrow batch. The rounds of all candidates take turns; the best of each counts.
"""

from __future__ import annotations

import tempfile
import time

import pyarrow as pa

import fletchlog as fl
from report import run

PARTITIONS = 12
CODECS = ("none", "lz4")
FETCHES = {"1 MiB": 1 << 20, "8 MiB": 8 << 20}
POLLS = (500, 10_000, 100_000)


def fill(broker: fl.Broker, codec: str, records: int) -> None:
    """A topic named for the codec, with so many records in each partition."""
    broker.create_topic(codec, partitions=PARTITIONS)
    values = pa.array([(b"user-%07d, item-%06d, " % (i * 7919, i * 31) + b"x" * 80)[:100] for i in range(records)], pa.binary())
    with fl.Producer(broker, {"linger.ms": 1000, "compression.type": codec}) as producer:
        for partition in range(PARTITIONS):
            producer.send_arrow(codec, pa.record_batch({"value": values, "partition": pa.array([partition] * records, pa.int32())}))


def poll(broker: fl.Broker, topic: str, records: int, fetch: int, most: int) -> float:
    """Million records a second."""
    config = {"auto.offset.reset": "earliest", "max.partition.fetch.bytes": fetch, "max.poll.records": most}
    seen = 0
    with fl.Consumer(broker, config) as consumer:
        consumer.assign([(topic, partition) for partition in range(PARTITIONS)])
        start = time.perf_counter()
        while seen < records:
            seen += pa.record_batch(consumer.poll(timeout_ms=5000)).num_rows
        return records / (time.perf_counter() - start) / 1e6


def measure(records: int = 200_000, rounds: int = 5) -> dict[str, float]:
    """The best rate for each codec, size of a fetch and of a poll."""
    best: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as directory, fl.Broker(f"{directory}/log", create=True) as broker:
        for codec in CODECS:
            fill(broker, codec, records)
        for _ in range(rounds):
            for codec in CODECS:
                for size, fetch in FETCHES.items():
                    for most in POLLS:
                        name = f"{codec}, {size}, {most:,}"
                        best[name] = max(best.get(name, 0.0), poll(broker, codec, PARTITIONS * records, fetch, most))
    return best


def ratios(rates: dict[str, float]) -> list[tuple[str, float, float]]:
    """(name, ratio, target)."""
    found = [(f"fetch of 8 MiB / 1 MiB, {most:,}", rates[f"none, 8 MiB, {most:,}"] / rates[f"none, 1 MiB, {most:,}"], 0.9) for most in POLLS]
    return [*found, ("lz4, 100,000 a poll / stock", rates["lz4, 1 MiB, 100,000"] / rates["lz4, 1 MiB, 500"], 0.9)]


if __name__ == "__main__":
    run(__doc__, measure, ratios, 200_000, "of each partition")
