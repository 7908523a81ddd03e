"""What compressed sends cost: `send_arrow` of 100-byte values with each codec against the codec alone on one core.

The codec alone is benches/rust/codecs.rs: the same records, a full 16 KiB batch at a time, and nothing else. Ours ends when everything is
acknowledged in a directory; its broker decompresses every batch to check it, as Kafka's does.
"""

from __future__ import annotations

import tempfile
import time

import pyarrow as pa

import fletchlog as fl
from report import run, rust_example

CODECS = ("gzip", "snappy", "lz4", "zstd")
PARTITIONS = (1, 4)


def alone(records: int) -> dict[str, float]:
    """What each codec alone does, in million records a second."""
    return rust_example("codecs", records)


def measure(records: int = 1_000_000, rounds: int = 5) -> dict[str, float]:
    """The best rate of every candidate, in million records a second."""
    values = pa.array([(b"user-%07d, item-%06d, " % (i * 7919, i * 31) + b"x" * 80)[:100] for i in range(records)], pa.binary())
    tables = {n: pa.record_batch({"value": values, "partition": pa.array([i % n for i in range(records)], pa.int32())}) for n in PARTITIONS}
    best: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as directory, fl.Broker(f"{directory}/log", create=True) as broker:
        for number in range(rounds):
            for codec, rate in alone(records).items():
                best[codec] = max(best.get(codec, 0.0), rate)
            for codec in CODECS:
                for partitions, table in tables.items():
                    topic = f"{codec}-{partitions}-{number}"
                    broker.create_topic(topic, partitions=partitions)
                    start = time.perf_counter()
                    with fl.Producer(broker, {"linger.ms": 1000, "compression.type": codec}) as producer:
                        producer.send_arrow(topic, table)
                    name = f"{codec}, {partitions} partitions"
                    best[name] = max(best.get(name, 0.0), records / (time.perf_counter() - start) / 1e6)
                    broker.delete_topic(topic)
    return best


def ratios(rates: dict[str, float]) -> list[tuple[str, float, float]]:
    """(name, ratio, target)."""
    return [(f"{codec}, {n} partitions / alone", rates[f"{codec}, {n} partitions"] / rates[codec], 0.9) for codec in CODECS for n in PARTITIONS]


if __name__ == "__main__":
    run(__doc__, measure, ratios, 1_000_000)
