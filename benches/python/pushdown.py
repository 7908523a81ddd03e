"""The last 1,000 of a million records, `offset >= N`, by a query that reaches the scan against one over the whole topic: time and bytes read.

A directory and a listener, 100-byte values, one partition. The rounds of all candidates take turns; the best of each counts. Of a directory the bytes are
what this process reads of files, of a listener what it sends. And one of five Avro fields, by a query that decodes it alone against one over all five.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

import fletchlog as fl
from fletchlog import serde

LAST = 1000
CHUNK = 100_000


def fill(directory: str, records: int) -> None:
    """A topic with one partition."""
    values = pa.array([b"%0100d" % at for at in range(CHUNK)], pa.binary())
    with fl.Broker(directory, create=True) as broker, fl.Producer(broker) as producer:
        broker.create_topic("t")
        for _ in range(records // CHUNK):
            producer.send_arrow("t", pa.table({"value": values}))


def candidates(source: str, since: int) -> dict[str, Callable[[], int]]:
    """What is asked, each pushed and not pushed; rows found."""

    def sql(t: Any) -> int:
        return len(duckdb.sql(f'select key, value from t where "offset" >= {since}').fetchall())

    return {
        "polars, pushed": lambda: fl.scan_topic(source, "t").filter(pl.col("offset") >= since).select("key", "value").collect().height,
        "polars, whole": lambda: fl.scan(source, "t").to_polars().filter(pl.col("offset") >= since).select("key", "value").height,
        "DuckDB, pushed": lambda: sql(fl.scans.dataset(source, "t")),
        "DuckDB, whole": lambda: sql(fl.scan(source, "t").to_reader()),
        "pandas, pushed": lambda: len(fl.scans.dataset(source, "t").to_pandas(["key", "value"], pc.field("offset") >= since)),
        "pandas, whole": lambda: len(fl.scan(source, "t").to_pyarrow().filter(pc.field("offset") >= since).select(["key", "value"]).to_pandas()),
    }


def measure(source: str, read: Callable[[], int], records: int, rounds: int) -> dict[str, tuple[float, int]]:
    """Best time in ms and bytes read, by candidate."""
    best: dict[str, tuple[float, int]] = {}
    for _ in range(rounds):
        for name, ask in candidates(source, records - LAST).items():
            before, start = read(), time.perf_counter()
            assert ask() == LAST
            taken = (time.perf_counter() - start) * 1000
            size = read() - before
            best[name] = min(best.get(name, (taken, size)), (taken, size))
    return best


def one_field(directory: str, records: int, rounds: int) -> dict[str, float]:
    """Best time in ms to sum one of five Avro fields, by how it is asked for."""
    fields = [{"name": name, "type": kind} for name, kind in (("id", "long"), ("user", "string"), ("city", "string"), ("price", "double"), ("note", "string"))]
    avro = serde.Avro({"type": "record", "name": "Order", "fields": fields})
    rows = [{"id": at, "user": f"user-{at % 997}", "city": "Regensburg", "price": at / 7, "note": "n" * 30} for at in range(records)]
    with fl.Broker(directory, create=True) as broker, fl.Producer(broker) as producer:
        broker.create_topic("orders")
        producer.send_arrow("orders", serde.serialize(pa.table({"value": pa.array(rows, avro.type)}), value=avro))
    nested, flat = fl.scans.dataset(directory, "orders", value=avro), fl.scan_topic(directory, "orders", value=avro, unnest=True)
    asked = {
        "pyarrow, the field": lambda: nested.to_table({"price": pc.field("value", "price")}),
        "pyarrow, all five": lambda: nested.to_table(["value"]),
        "polars, the field": lambda: flat.select(pl.col("value.price").sum()).collect(),
        "polars, all five": lambda: fl.scan_topic(directory, "orders", value=avro).select(pl.col("value").struct.field("price").sum()).collect(),
    }
    best: dict[str, float] = {}
    for _ in range(rounds):
        for name, ask in asked.items():
            start = time.perf_counter()
            ask()
            best[name] = min(best.get(name, 1e9), (time.perf_counter() - start) * 1000)
    return best


def of_files() -> int:
    """Bytes that this process has read of files."""
    return int(Path("/proc/self/io").read_text().partition("rchar: ")[2].partition("\n")[0])


def show(where: str, found: dict[str, tuple[float, int]]) -> None:
    """A line for each engine."""
    for engine in ("polars", "DuckDB", "pandas"):
        (pushed, small), (whole, large) = found[f"{engine}, pushed"], found[f"{engine}, whole"]
        print(
            f"{where:10} {engine:7} pushed {pushed:7.1f} ms {small:>12,} bytes   whole {whole:7.1f} ms {large:>12,} bytes   {whole / pushed:5.1f} {large / small:6.0f}"
        )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        fill(f"{folder}/log", given.records)
        show("directory", measure(f"{folder}/log", of_files, given.records, given.rounds))
        with fl.Broker(f"{folder}/log") as opened, opened.listen() as listener:
            show(
                "listener", measure(f"kafka://{listener.bootstrap}", lambda: int(listener.stats().schema.metadata[b"bytes.sent"]), given.records, given.rounds)
            )
        for name, taken in one_field(f"{folder}/avro", given.records // 5, given.rounds).items():
            print(f"{given.records // 5:,} Avro values: {name:20} {taken:7.1f} ms")
