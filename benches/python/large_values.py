"""Values of 1 kB: scan and `send_arrow` against the same bytes read, checked and written without a log (benches/rust/segment.rs).

One partition and one segment in a directory, page cache warm, one core for the reading side. The rounds of all candidates take
turns; the best of each counts.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

import pyarrow as pa

import fletchlog as fl
from report import run, rust_example

VALUE_BYTES = 1000
# rows of a batch that a producer hands over: some 8 MB
CHUNK = 8192


def floors(segment: Path) -> dict[str, float]:
    """Seconds to read it, to read it with the CRC, and to write it."""
    return rust_example("segment", segment)


def send(broker: fl.Broker, topic: str, rows: pa.Table) -> None:
    """Every row acknowledged, in the page cache."""
    with fl.Producer(broker, {"linger.ms": 1000}) as producer:
        producer.send_arrow(topic, rows)


def measure(records: int = 200_000, rounds: int = 5) -> dict[str, float]:
    """The best rate of every candidate, million records a second."""
    chunk = pa.record_batch({"value": pa.array([bytes([i % 251]) * VALUE_BYTES for i in range(CHUNK)], pa.binary())})
    rows = pa.Table.from_batches([chunk] * (records // CHUNK) + [chunk.slice(0, records % CHUNK)])
    best: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as directory, fl.Broker(f"{directory}/log", create=True) as broker:
        for number in range(rounds):
            topic = f"t{number}"
            broker.create_topic(topic, partitions=1)
            start = time.perf_counter()
            send(broker, topic, rows)
            sent = time.perf_counter()
            seen = sum(batch.num_rows for batch in broker.scan(topic, threads=1))
            scanned = time.perf_counter()
            assert seen == records
            (segment,) = Path(f"{directory}/log/{topic}-0").glob("*.log")
            seconds = {"send_arrow": sent - start, "scan": scanned - sent} | floors(segment)
            best = {name: max(best.get(name, 0.0), records / taken / 1e6) for name, taken in seconds.items()}
            broker.delete_topic(topic)
    return best


def ratios(rates: dict[str, float]) -> list[tuple[str, float, float]]:
    """(name, ratio, target)."""
    return [
        ("scan of 1 kB / read and CRC", rates["scan"] / rates["read_crc"], 0.95),
        ("send_arrow of 1 kB / write", rates["send_arrow"] / rates["write"], 0.8),
    ]


if __name__ == "__main__":
    run(__doc__, measure, ratios, 200_000)
