"""Part 4: Spark reads the topic as a stream into event-time windows, and audits the order of all three topics."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

from demo.produce import COMMON, WAYS

if TYPE_CHECKING:
    from pathlib import Path

    import numpy as np
    from pyspark.sql import SparkSession
    from rich.progress import Progress

    from demo.flights import Flights
    from demo.report import Report

HEARTBEAT = "flights-heartbeat"
WINDOW_MS = 3_600_000
# A micro-batch takes the same share of every partition. These do not advance at the same pace (a carrier that stops flying in
# autumn, one that starts in June), so at the end of a batch the slowest is some 5 days behind the fastest: more than any
# flight is late. With 7 days nothing is dropped; the run checks it.
WATERMARK_DAYS = 7
OFFSETS_PER_TRIGGER = 100_000
# columns that the audit needs: what is not read need not be handed over
AUDITED = "topic string, partition int, offset bigint, timestamp timestamp, key binary, value binary"
SCHEMA = "carrier string, origin string, dest string, dep_delay double"


def session(said: Path) -> SparkSession:
    """A local Spark session; what the JVM and its workers print goes to the file `said`.

    Raises:
        SystemExit: PySpark or Java is missing.
    """
    try:
        from pyspark import SparkConf, SparkContext
        from pyspark.errors import PySparkException
        from pyspark.java_gateway import launch_gateway
        from pyspark.sql import SparkSession
    except ModuleNotFoundError as error:
        raise SystemExit(f"the demo needs {error.name}: `make demo` installs it") from None
    from fletchlog.spark.session import SETTINGS

    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYTHONWARNINGS", "ignore")
    settings = {
        "spark.master": "local[2]",
        "spark.app.name": "fletchlog demo",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.memory": "2g",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.catalogImplementation": "in-memory",
        "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
        **SETTINGS,
    }
    conf = SparkConf().setAll(list(settings.items()))
    try:
        with said.open("wb") as file:
            gateway = launch_gateway(conf, popen_kwargs={"stderr": file})  # type: ignore[no-untyped-call]
        return SparkSession(SparkContext(conf=conf, gateway=gateway))
    except PySparkException as error:
        raise SystemExit(f"Spark did not start ({error}); it needs Java 17 or newer on PATH, and has said more in {said}") from None


def delays(spark: SparkSession, broker: Any, log: Path, out: Path, flights: Flights, report: Report, progress: Progress) -> None:
    """Streams the idempotent topic into windows: delay per carrier and hour of departure."""
    topic = WAYS[0].topic
    task = progress.add_task("Spark: event-time windows", total=flights.count)
    first = _run(spark, log, topic, out, lambda rows: progress.advance(task, rows))
    written = _totals(spark, out / "delays")
    # windows stay open until the watermark has passed them: a heartbeat far behind the last flight closes them all
    _heartbeat(broker, int(flights.timestamps.max()) + (WATERMARK_DAYS + 1) * 86_400_000)
    second = _run(spark, log, f"{topic},{HEARTBEAT}", out, lambda _rows: None)
    totals = _totals(spark, out / "delays")
    progress.update(task, completed=flights.count)
    batches = first + second
    dropped = sum(op["numRowsDroppedByWatermark"] for batch in batches for op in batch["stateOperators"])
    worst = _worst(spark, out / "delays")
    report.data["delays"] = {
        "micro_batches": len(batches),
        "watermark_days": WATERMARK_DAYS,
        "flights_in_windows_before_the_heartbeat": written["flights"],
        **totals,
        "dropped_by_watermark": dropped,
        "worst_carriers": worst,
    }
    report.rows([{"micro_batches": len(batches), **totals, "dropped_by_watermark": dropped}], left=0)
    report.say(
        f"{written['flights']:,} flights were in closed windows when the topic ended; the watermark ({WATERMARK_DAYS} days) held the "
        f"rest back until a heartbeat came, after a restart from the checkpoint."
    )
    report.rows(worst)
    report.check("delays: flights in all windows", totals["flights"], flights.count)
    report.check("delays: cancelled flights", totals["cancelled"], flights.cancelled)
    report.check("delays: minutes of delay", totals["delay_minutes"], flights.delay_minutes)
    report.check("delays: windows", totals["windows"], _expected_windows(flights))
    report.check("delays: rows dropped by the watermark", dropped, 0)
    report.check_that("delays: several micro-batches ran", len(first) > flights.count // OFFSETS_PER_TRIGGER)


def audits(spark: SparkSession, broker: Any, log: Path, out: Path, report: Report, progress: Progress) -> None:
    """Audits the order of all three topics with Spark, and checks every number against a plain pass over the log."""
    from fletchlog.pipeline import audit

    report.heading("   Ordering audit of all three topics (lateness behind the highest timestamp so far, in minutes)")
    task = progress.add_task("Spark: ordering audit", total=None)
    topics = ",".join(way.topic for way in WAYS)
    reader = spark.read.format("fletchlog").schema(AUDITED).option("path", str(log)).option("subscribe", topics)
    frame = reader.load()
    audit(frame).coalesce(1).write.parquet(str(out / "audit"))
    rows = [row.asDict() for row in spark.read.parquet(str(out / "audit")).orderBy("topic", "partition").collect()]
    progress.update(task, total=1, completed=1)
    report.data["audit"] = rows
    shown = [
        {
            "partition": f"{row['topic']}-{row['partition']}",
            **{name: row[name] for name in ("records", "gaps")},
            "duplicates": row["duplicate_records"],
            "inversions": row["timestamp_inversions"],
            **{f"late_{name}": row[f"lateness_{name}_ms"] // 60_000 for name in ("p50", "p99", "max")},
            "keeps_99.9%": row["watermark_delay_ms"] // 60_000,
        }
        for row in rows
    ]
    report.rows(shown)
    report.say("keeps 99.9%: the watermark delay (minutes) that would have kept 99.9 % of the partition's records.")
    expected = [row for way in WAYS for row in _plain_audit(broker, way.topic)]
    report.check("audit: partitions", len(rows), len(expected))
    for row, plain in zip(rows, sorted(expected, key=lambda item: (item["topic"], item["partition"])), strict=False):
        report.check(f"audit of {row['topic']}-{row['partition']} against a plain pass", {name: row[name] for name in plain}, plain)
    produced = report.data["produce"]["topics"]
    for way in WAYS:
        mine = [row for row in rows if row["topic"] == way.topic]
        report.check(f"audit: duplicates in {way.topic}", sum(r["duplicate_records"] for r in mine), produced[way.topic]["duplicates"])
        report.check(f"audit: records in {way.topic}", sum(r["records"] for r in mine), produced[way.topic]["in_log"])


def _run(spark: SparkSession, log: Path, topics: str, out: Path, advance: Any) -> list[dict[str, Any]]:
    """One run of the streaming query over what is there now; answers the progress of its micro-batches."""
    import json

    from pyspark.sql import functions as F  # noqa: N812

    from fletchlog.pipeline import event_time_windows, parse_json

    source = spark.readStream.format("fletchlog").option("path", str(log)).option("subscribe", topics)
    stream = source.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", OFFSETS_PER_TRIGGER).load()
    windows = event_time_windows(
        parse_json(stream, SCHEMA),
        window="1 hour",
        watermark=f"{WATERMARK_DAYS} days",
        by=["carrier"],
        aggregate=[
            F.count("dep_delay").alias("departed"),
            F.count_if(F.col("dep_delay").isNull()).alias("cancelled"),
            F.sum("dep_delay").alias("delay_minutes"),
            F.avg("dep_delay").alias("mean_delay"),
            F.max("dep_delay").alias("max_delay"),
        ],
    )
    writer = windows.writeStream.format("parquet").option("path", str(out / "delays"))
    query = writer.option("checkpointLocation", str(out / "checkpoint")).trigger(availableNow=True).start()
    seen: dict[int, dict[str, Any]] = {}
    finished = False
    while not finished:
        finished = bool(query.awaitTermination(1))
        for item in query.recentProgress:
            batch = json.loads(item.json)
            if batch["batchId"] not in seen:
                seen[batch["batchId"]] = batch
                advance(batch["numInputRows"])
    return [seen[number] for number in sorted(seen)]


def _heartbeat(broker: Any, timestamp_ms: int) -> None:
    import fletchlog as fl

    broker.create_topic(HEARTBEAT, partitions=1, config={"retention.ms": "-1"})
    with fl.Producer(broker, COMMON | {"enable.idempotence": True}) as producer:
        producer.send(HEARTBEAT, value=b"{}", timestamp_ms=timestamp_ms)
        producer.flush()


def _totals(spark: SparkSession, path: Path) -> dict[str, int]:
    from pyspark.sql import functions as F  # noqa: N812

    row = (
        spark.read.parquet(str(path))
        .agg(
            F.count(F.lit(1)).alias("windows"),
            F.sum("records").alias("flights"),
            F.sum("departed").alias("departed"),
            F.sum("cancelled").alias("cancelled"),
            F.sum("delay_minutes").alias("delay_minutes"),
        )
        .collect()[0]
    )
    return {name: int(value or 0) for name, value in row.asDict().items()}


def _worst(spark: SparkSession, path: Path) -> list[dict[str, Any]]:
    from pyspark.sql import functions as F  # noqa: N812

    mean = F.sum("delay_minutes") / F.sum("departed")
    rows = (
        spark.read.parquet(str(path))
        .groupBy("carrier")
        .agg(F.sum("records").alias("flights"), F.round(mean, 1).alias("mean_delay_minutes"), F.max("max_delay").cast("long").alias("max_delay_minutes"))
        .orderBy(F.desc("mean_delay_minutes"), "carrier")
        .limit(3)
        .collect()
    )
    return [row.asDict() for row in rows]


def _expected_windows(flights: Flights) -> int:
    carriers = flights.records.column("key").to_pylist()
    return len(set(zip(carriers, (flights.timestamps // WINDOW_MS).tolist(), strict=True)))


def _plain_audit(broker: Any, topic: str) -> list[dict[str, Any]]:
    """The audit's numbers once more, by one pass of numpy over the log."""
    import numpy as np
    import pyarrow as pa

    from demo.produce import sequences

    rows = []
    for partition, order in sequences(broker, topic).items():
        if not len(order):
            continue
        scanned = broker.scan(topic, partition=partition).to_pyarrow()
        offsets = scanned.column("offset").to_numpy()
        times = scanned.column("timestamp").cast(pa.int64()).to_numpy() // 1000
        late = np.sort(np.maximum.accumulate(times) - times)
        rows.append(
            {
                "topic": topic,
                "partition": partition,
                "records": len(order),
                "gaps": int(offsets[-1] - offsets[0] + 1 - len(offsets)),
                "duplicate_offsets": 0,
                "duplicate_records": len(order) - len(np.unique(order)),
                "timestamp_inversions": int((times[1:] < times[:-1]).sum()),
                "lateness_p50_ms": _share(late, 0.5),
                "lateness_p99_ms": _share(late, 0.99),
                "lateness_max_ms": int(late[-1]),
                "watermark_delay_ms": _share(late, 0.999),
            }
        )
    return rows


def _share(ascending: np.ndarray[Any, Any], share: float) -> int:
    import math

    return int(ascending[max(math.ceil(share * len(ascending) - 1e-9), 1) - 1])
