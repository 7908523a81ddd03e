"""Every Python benchmark as ratios in one run: `make bench`, or `python benches/python/run.py --records 10000000`.

Baselines are measured in the same run, and the rounds of all candidates take turns, so that a busy machine slows all of them
alike. What is timed is the public API from call to Arrow columns (or from Arrow columns to the log), page cache warm, with
ten-byte values, uncompressed, on a directory. Method and targets: benches/README.md.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa

import compression
import fletchlog as fl
import fresh_kafka
import history
import idle_partitions
import large_fetches
import large_values
import other_client
import send as send_records
import serve_start
from history import Ratio
from report import ROOT, rust_example

VALUE = b"0123456789"
# a topic whose scan takes some hundredths of a second: the cost per record must not depend on the size of the log
SMALL = 1_000_000
# how much more a poll may cost with 990 idle partitions beside the 10 that have records: more memory is touched, but a look at each
# idle partition would cost tens of times as much
IDLE_LIMIT = 1.3
# rows handed over at a time by a producer that has columns: the size of a scan's batches
CHUNK = 131_072
# of the batches that a producer with a larger batch.size makes; a topic takes a little more by default
LARGE_BATCH = 1 << 20
# million records a second that a loop over the records of a poll is to reach
LOOP_TARGET = 5.0


def floors(records: int) -> dict[str, float]:
    """Rates of the naive passes (benches/rust/floor.rs), in million records a second."""
    rates: dict[str, float] = rust_example("floor", records)["million_records_per_s"]
    return rates


def table(records: int) -> pa.Table:
    """Ten-byte values with one timestamp, in chunks."""
    times = pa.array([1_700_000_000_000] * CHUNK, pa.timestamp("ms", "UTC"))
    chunk = pa.record_batch({"value": pa.array([VALUE] * CHUNK, pa.binary()), "timestamp": times})
    whole, rest = divmod(records, CHUNK)
    return pa.Table.from_batches([chunk] * whole + ([chunk.slice(0, rest)] if rest else []))


def send(broker: fl.Broker, topic: str, rows: pa.Table, **config: int) -> None:
    """`send_arrow` to the page cache, every row acknowledged."""
    with fl.Producer(broker, {"linger.ms": 1000, "fletchlog.producer.version": "2.6", **config}) as producer:
        producer.send_arrow(topic, rows)


def scan(broker: fl.Broker, topic: str, columns: list[str] | None = None, threads: int = 1) -> int:
    """The whole log as Arrow batches."""
    return sum(batch.num_rows for batch in broker.scan(topic, columns=columns, threads=threads))


def as_batch(polled: fl.Records) -> int:
    """A poll as one Arrow batch."""
    return pa.record_batch(polled).num_rows


def one_by_one(polled: fl.Records) -> int:
    """A poll with a `for` over its records."""
    for _ in polled:
        pass
    return len(polled)


def poll(broker: fl.Broker, topic: str, records: int, most: int, take: Callable[[fl.Records], int] = as_batch) -> int:
    """Every record through a consumer; `take` returns how many a poll has."""
    seen = 0
    with fl.Consumer(broker, {"auto.offset.reset": "earliest", "max.poll.records": most}) as consumer:
        consumer.assign([fl.TopicPartition(topic, 0)])
        while seen < records:
            seen += take(consumer.poll(timeout_ms=5000))
    return seen


def rate(records: int, call: Callable[[], object]) -> float:
    """Million records a second of one call."""
    start = time.perf_counter()
    call()
    return records / (time.perf_counter() - start) / 1e6


def measure(records: int, rounds: int) -> dict[str, float]:
    """The best rate of every candidate."""
    best: dict[str, float] = {}
    rows = table(records)
    with tempfile.TemporaryDirectory() as directory, other_client.filled() as other, fl.Broker(f"{directory}/log", create=True) as broker:
        broker.create_topic("small", partitions=1)
        send(broker, "small", rows.slice(0, SMALL))
        broker.create_topic("large_batches", partitions=1)
        send(broker, "large_batches", rows, **{"batch.size": LARGE_BATCH, "max.request.size": 2 * LARGE_BATCH})
        for number in range(rounds):
            topic = f"t{number}"
            broker.create_topic(topic, partitions=1)
            candidates: dict[str, tuple[int, Callable[[], object]]] = {
                "send_arrow": (records, lambda topic=topic: send(broker, topic, rows)),
                "scan": (records, lambda topic=topic: scan(broker, topic)),
                "scan_2_threads": (records, lambda topic=topic: scan(broker, topic, threads=2)),
                "scan_value": (records, lambda topic=topic: scan(broker, topic, ["value"])),
                "scan_offset": (records, lambda topic=topic: scan(broker, topic, ["offset"])),
                "scan_small": (min(records, SMALL), lambda: scan(broker, "small")),
                "scan_large_batches": (records, lambda: scan(broker, "large_batches")),
                "for_record_in_poll": (min(records, SMALL), lambda: poll(broker, "small", min(records, SMALL), 10_000, one_by_one)),
                "poll_100000": (records, lambda topic=topic: poll(broker, topic, records, 100_000)),
                "poll_10000": (records, lambda topic=topic: poll(broker, topic, records, 10_000)),
                "confluent_kafka": (other.records, other.consume),
            }
            for name, (count, call) in candidates.items():
                best[name] = max(best.get(name, 0.0), rate(count, call))
            broker.delete_topic(topic)
    return best


def main() -> None:
    """Prints the rates, the ratios against their targets, and one line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=10_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=Path, default=ROOT / ".build" / "bench.json")
    parser.add_argument("--history", type=Path, default=history.PATH, help="the last figures, which those of this run replace")
    arguments = parser.parse_args()
    rates = floors(arguments.records) | {f"python_{name}": value for name, value in measure(arguments.records, arguments.rounds).items()}
    ratios = [
        ("scan / decode floor", rates["python_scan"] / rates["decode_floor"], 0.95),
        ("scan / scan floor", rates["python_scan"] / rates["scan_floor"], 0.95),
        ("scan of 1 MiB / of 16 KiB batches", rates["python_scan_large_batches"] / rates["python_scan"], 0.95),
        ("scan on 2 threads / scan", rates["python_scan_2_threads"] / rates["python_scan"], 1.8),
        ("scan of values / scan", rates["python_scan_value"] / rates["python_scan"], 1.0),
        ("scan of offsets / scan", rates["python_scan_offset"] / rates["python_scan"], 1.3),
        ("poll of 100,000 / scan", rates["python_poll_100000"] / rates["python_scan"], 0.9),
        ("poll of 10,000 / scan", rates["python_poll_10000"] / rates["python_scan"], 0.77),
        ("send_arrow / encode floor", rates["python_send_arrow"] / rates["encode_floor"], 0.6),
        ("scan / confluent-kafka", rates["python_scan"] / rates["python_confluent_kafka"], 30.0),
    ]
    flat = rates["python_scan_small"] / rates["python_scan"]
    print(f"{arguments.records:,} records of 10 bytes, best of {arguments.rounds}, {os.cpu_count()} cores, Python {sys.version.split()[0]}")
    for name, value in rates.items():
        print(f"  {name:24} {value:8.2f} million records/s")
    for name, value, target in ratios:
        print(f"  {name:28} {value:7.2f}  (target {target:g}: {'met' if value >= target else 'MISSED'})")
    print(f"  {'scan of 1 million / of all':28} {flat:7.2f}  (target 0.7 .. 1.4: {'met' if 0.7 <= flat <= 1.4 else 'MISSED'})")
    looped = rates["python_for_record_in_poll"]
    print(f"  {'for record in poll':28} {looped:7.2f}  million records/s (target {LOOP_TARGET:g}: {'met' if looped >= LOOP_TARGET else 'MISSED'})")
    idle = idle_partitions.measure()
    too_dear = []
    for kind in ("backlog", "tail"):
        ratio, few, many = (idle[f"{kind}_{key}"] for key in ("ratio", f"{idle_partitions.ACTIVE}_us", f"{idle_partitions.ASSIGNED}_us"))
        name = f"{kind}, 1,000 partitions / 10"
        met = ratio <= IDLE_LIMIT
        print(f"  {name:28} {ratio:7.2f}  {few:.1f} us, {many:.1f} us  (limit {IDLE_LIMIT:g}: {'met' if met else 'MISSED'})")
        too_dear += [] if met else [name]
    sends, fetches, compressed, large = send_records.measure(), large_fetches.measure(), compression.measure(), large_values.measure()
    others = send_records.ratios(sends) + large_fetches.ratios(fetches) + compression.ratios(compressed) + large_values.ratios(large)
    for name, value, target in others:
        print(f"  {name:28} {value:7.2f}  (target {target:g}: {'met' if value >= target else 'MISSED'})")
    start = serve_start.measure()
    met = start["more_ms"] <= serve_start.SLOWER_MS and start["more_mib"] <= serve_start.LARGER_MIB
    figures = f"{start['serve_ms']:.1f} ms, {start['bare_ms']:.1f} ms; {start['serve_mib']:.1f} MiB, {start['bare_mib']:.1f} MiB"
    limits = f"limits +{serve_start.SLOWER_MS:g} ms, +{serve_start.LARGER_MIB:g} MiB"
    print(f"  {'serve / bare Python, start':28} {start['ms_ratio']:7.2f}  {figures}  ({limits}: {'met' if met else 'MISSED'})")
    fresh = fresh_kafka.measure()
    met = fresh["more_ms"] <= fresh_kafka.LIMIT_MS
    print(
        f"  {'fixture kafka / none':28} {fresh['ratio']:7.2f}  {fresh['more_ms']:.1f} ms a test  (limit {fresh_kafka.LIMIT_MS:g} ms: {'met' if met else 'MISSED'})"
    )
    arguments.json.parent.mkdir(parents=True, exist_ok=True)
    arguments.json.write_text(
        json.dumps(
            {
                "rates": rates,
                "ratios": {name: value for name, value, _ in ratios} | {"flat": flat},
                "send": sends,
                "large_fetches": fetches,
                "compression": compressed,
                "large_values": large,
                "idle_partitions": idle,
                "serve_start": start,
                "fresh_kafka": fresh,
            }
        )
        + "\n"
    )
    history.compare_and_write(
        [Ratio(name, value) for name, value, _ in ratios + others]
        + [Ratio("scan of 1 million / of all", flat, "flat")]
        + [Ratio(f"{kind}, 1,000 partitions / 10", idle[f"{kind}_ratio"], "lower") for kind in ("backlog", "tail")]
        + [Ratio("serve / bare Python, start", start["ms_ratio"], "lower"), Ratio("fixture kafka / none", fresh["ratio"], "lower")],
        arguments.history,
    )
    print(json.dumps({name: round(value, 3) for name, value, _ in ratios}))
    if too_dear:
        raise SystemExit(f"idle partitions cost more than {IDLE_LIMIT:g} times: {'; '.join(too_dear)}")


if __name__ == "__main__":
    main()
