"""The Spark format `fletchlog-columnar` against `fletchlog` and Spark's own kafka source, in one session.

    python benches/python/spark_columnar.py --records 20000000

A directory with a topic of 4 partitions and ten-byte values, and one of 1,000 partitions with 10 records each; page cache warm, local[2], settings
of `fletchlog.spark.configure`. Spark's kafka source, with its defaults, reads the same directory from a listener of ours in this process. The sources take turns, the best of the rounds counts, and all must find the same.
Targets: `count` 50 times the kafka source and 5 times `fletchlog`; `sum`, `bytes`, `group` and `filter` 4 times `fletchlog`; `rows` (all columns
to rows, of Spark's noop sink) 1.5 times; 1,000 partitions in 8 s. The processor time of all processes says what the same work takes beside other work; that of
the kafka source includes the listener.

Needs `make jar`, and Maven the first time: Spark's kafka source is kept in `.build/interop`, see judges/interop/kafka.py.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import fletchlog as fl
from spark_read import PARTITIONS, fill
from spark_session import parse, session
from spark_tasks import RECORDS
from spark_tasks import fill as fill_small

sys.path.append(str(Path(__file__).resolve().parents[2]))
from judges.interop import kafka

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame

JAR = Path(__file__).resolve().parents[2] / ".build/jvm/fletchlog-spark.jar"
SMALL = 1000
SOURCES = ("fletchlog", "fletchlog-columnar")


def noop(frame: DataFrame) -> None:
    """All columns to rows."""
    frame.write.format("noop").mode("overwrite").save()


QUERIES: dict[str, Callable[[DataFrame], object]] = {
    "count": lambda frame: frame.count(),
    "sum": lambda frame: frame.selectExpr("sum(offset)").collect(),
    "bytes": lambda frame: frame.selectExpr("sum(length(value))").collect(),
    "group": lambda frame: frame.groupBy("partition").count().orderBy("partition").collect(),
    "filter": lambda frame: frame.where("offset % 10 = 3").selectExpr("max(value)", "count(*)").collect(),
    "rows": noop,
}


def processor_time() -> float:
    """Seconds of processor time of this process and all that it started: Spark and its workers of Python.

    A process that ends between two calls may take its time along, which makes the difference too small, or even negative.
    """
    children: dict[int, list[int]] = {}
    ticks: dict[int, int] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            fields = stat.read_text().rpartition(")")[2].split()
            children.setdefault(int(fields[1]), []).append(int(stat.parent.name))
            ticks[int(stat.parent.name)] = sum(map(int, fields[11:15]))
    left, total = [os.getpid()], 0
    while left:
        process = left.pop()
        total += ticks.get(process, 0)
        left += children.get(process, [])
    return total / os.sysconf("SC_CLK_TCK")


def best(loads: dict[str, Callable[[], DataFrame]], query: Callable[[DataFrame], object], rounds: int) -> dict[str, tuple[float, float]]:
    """Seconds of the query over each frame, and of processor time; the answers have to be the same."""
    took = dict.fromkeys(loads, (float("inf"), float("inf")))
    for _ in range(rounds):
        answers = set()
        for name, load in loads.items():
            frame = load()
            worked, began = processor_time(), time.perf_counter()
            answers.add(str(query(frame)))
            found = (time.perf_counter() - began, processor_time() - worked)
            took[name] = tuple(map(min, took[name], found))
        if len(answers) > 1:
            raise RuntimeError(f"different answers: {answers}")
    return took


def report(what: dict[str, object], took: dict[str, tuple[float, float]]) -> None:
    """One line of JSON: seconds, seconds of processor time, and what both are of the columnar source's."""
    columnar = took["fletchlog-columnar"]
    for place, name in enumerate(("seconds", "processor_seconds")):
        what[name] = {source: round(seconds[place], 2) for source, seconds in took.items()}
        what[f"{name}_ratio"] = {source: round(seconds[place] / columnar[place], 1) for source, seconds in took.items() if seconds is not columnar}
    print(json.dumps(what), flush=True)


def main() -> None:
    """Prints one line of JSON for each query."""
    records, rounds = parse(__doc__.splitlines()[0], 3, PARTITIONS)
    spark = session("2g", **{"spark.jars": f"{JAR},{kafka.spark_source()}"})
    with tempfile.TemporaryDirectory(prefix="fletchlog-bench-", dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as scratch:
        log, small = Path(scratch) / "log", Path(scratch) / "small"
        fill(log, records)
        fill_small(small, SMALL)

        def load(source: str, **options: str) -> DataFrame:
            return spark.read.format(source).options(subscribe="t", **options).load()

        frames = {source: lambda source=source: load(source, path=str(log)) for source in SOURCES}
        for name, query in QUERIES.items():
            took = best(frames, query, rounds)
            if name == "count":
                with fl.Broker(log, create=True) as broker, broker.listen() as listener:
                    servers = {"kafka.bootstrap.servers": listener.bootstrap}
                    took |= best({"kafka": lambda servers=servers: load("kafka", **servers)}, query, rounds)
            report({"query": name, "records": records}, took)
        frames = {source: lambda source=source: load(source, path=str(small)) for source in SOURCES}
        report({"query": "collect", "partitions": SMALL, "records_each": RECORDS}, best(frames, lambda frame: len(frame.collect()), rounds))
    spark.stop()


if __name__ == "__main__":
    main()
