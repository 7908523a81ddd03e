"""The last 1,000 of a million records, `offset >= N`, by a query that reaches the scan against one over the whole topic: time and bytes read.

A directory and a listener, 100-byte values, one partition. The rounds of all candidates take turns; the best of each counts. Of a directory the bytes are
what this process reads of files, of a listener what it sends.
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
