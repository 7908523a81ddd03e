"""The ordering audit: gaps, repeats and disorder per partition."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace
from itertools import groupby
from typing import TYPE_CHECKING, Any

from pyspark import cloudpickle
from pyspark.sql import Row, Window
from pyspark.sql import functions as F  # noqa: N812 - as everyone calls it

from fletchlog.audit import order, repeats
from fletchlog.audit.report import FILES_ONLY, THRESHOLDS, AuditReport, KeyAudit, PartitionAudit, compared
from fletchlog.pipeline import partials

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyspark.sql import Column, DataFrame, SparkSession

# the workers get these functions by value: they need not have fletchlog
for _module in (order, repeats, partials):
    cloudpickle.register_pickle_by_value(_module)  # type: ignore[no-untyped-call]

# what users see of what is found in a partition, and what it is among the others of its topic
COLUMNS = (*(name for name, _ in partials.FOUND_SCHEMA if name not in {"newest_ms", "lateness"}), "skew", "behind_ms")
SCHEMA = ", ".join(f"{name} {({'topic': 'string', 'partition': 'int', 'skew': 'double'}).get(name, 'bigint')}" for name in COLUMNS)
BATCH_BYTES = "spark.sql.execution.arrow.maxBytesPerBatch"
# the number with which Spark does not look at sizes (BatchedPythonArrowInput)
NO_LIMIT = "2147483647"


def audit(df: DataFrame, *, same: Sequence[str | Column] = ("key", "value"), keep: float = 0.999) -> DataFrame:
    """Checks order, completeness and lateness of every partition, one row each, sorted by topic and partition.

    Columns: `records`; `first_offset`, `last_offset`; `gaps`, offsets between them that no record has (compaction,
    transaction markers, or loss); `duplicate_offsets`, records whose offset occurred before (a replayed read);
    `duplicate_records`, records that repeat `same` (a producer that sent twice), found by a 64-bit and a 32-bit hash; `timestamp_inversions`,
    records with a lower timestamp than the one before them, and `inversion_max_ms`, the furthest of these steps back; `lateness_*`, how far
    records are behind the highest timestamp up to them (ms; p50, p99, p999 (99.9 %) and p9999 are the smallest lateness that at
    least that share of the records does not exceed, which is the watermark delay that keeps so many); `watermark_delay_ms`, the
    shortest watermark delay with which a stream that moves its watermark with every record would have kept the share `keep` of
    the partition's records; `skew`, records as a multiple of the topic's mean per partition that has any; `behind_ms`, how far its newest
    timestamp is behind the newest of the topic: idle partitions hold watermarks back. Records without a timestamp have no lateness. What only the
    files show (why offsets are missing, repeated producer sequences) is in `fletchlog.audit`.

    Rows may come in any order. All are read once, in this call, packed by Python workers (which need pandas, pyarrow and numpy, and nothing
    of fletchlog), and are never sorted row by row. While it runs, the session's spark.sql.execution.arrow.maxBytesPerBatch is lifted.

    Args:
        df: A batch DataFrame with at least topic, partition, offset, timestamp and the columns of `same`. For a stream, call it
            in `foreachBatch` or over what the stream wrote.
        same: Columns or expressions that make two records of a partition the same.
        keep: Share of the records that the watermark is to keep, above 0 and at most 1.

    Raises:
        ValueError: A streaming DataFrame, missing columns, or `keep` out of range. A row without topic, partition or offset fails the query.
    """
    rows = _found(df, same, keep)
    newest = {topic: max((row.newest_ms for row in group if row.newest_ms is not None), default=None) for topic, group in _topics(rows).items()}
    mean = {topic: sum(row.records for row in group) / len(group) for topic, group in _topics(rows).items()}
    found = [
        row.asDict() | {"skew": round(row.records / mean[row.topic], 3), "behind_ms": None if row.newest_ms is None else newest[row.topic] - row.newest_ms}
        for row in rows
    ]
    return df.sparkSession.createDataFrame([tuple(row[name] for name in COLUMNS) for row in found], SCHEMA)


def audit_keys(df: DataFrame, *, same: Sequence[str | Column] = ("value",)) -> DataFrame:
    """Checks the records of every key, one row per topic and key, in no order: what `fletchlog.audit.KeyAudit` says.

    Columns: `topic`, `key`, `records`; `partitions` that have it; `duplicate_records`, which repeat `same` of an earlier one of this key in
    the same partition; `timestamp_inversions`, records with a lower timestamp than the one of this key before it in the same partition, and
    `inversion_max_ms`, the furthest of these steps back, null without one. Records without a key are left out. Spark sorts the records by
    key for it: this costs several times as much as `audit`.

    Args:
        df: As for `audit`.
        same: Columns or expressions that make two records of a key the same.

    Raises:
        ValueError: As for `audit`.
    """
    _check(df, ("key", *same))
    place = ("topic", "partition", "key")
    rows = df.where("key is not null").select(*place, "offset", F.unix_millis("timestamp").alias("ms"), F.struct(*_hashes(same)).alias("same"))
    back = F.lag("ms").over(Window.partitionBy(*place).orderBy("offset", "ms")) - F.col("ms")
    stepped = rows.withColumn("back", F.when(back > 0, back))
    counts = (F.count(F.lit(1)).alias("n"), F.count("back").alias("steps"), F.max("back").alias("furthest"), F.count_distinct("same").alias("kinds"))
    return (
        stepped.groupBy(*place)
        .agg(*counts)
        .groupBy("topic", "key")
        .agg(
            F.sum("n").alias("records"),
            F.count(F.lit(1)).alias("partitions"),
            F.sum(F.col("n") - F.col("kinds")).alias("duplicate_records"),
            F.sum("steps").alias("timestamp_inversions"),
            F.max("furthest").alias("inversion_max_ms"),
        )
    )


def audit_report(df: DataFrame, *, same: Sequence[str | Column] = ("key", "value"), keys: int = 0, source: str = "a DataFrame") -> AuditReport:
    """Runs the audit and gives its report: tables in a notebook, one HTML page, thresholds.

        report = audit_report(df)
        Path("audit.html").write_text(report.html())
        sys.exit(bool(report.breaches({"duplicate_records": 0, "lateness_p999_ms": 60_000})))

    Args:
        df: As for `audit`.
        same: As for `audit`.
        keys: How many keys to list, those with the most findings; above 0, `audit_keys` runs too.
        source: What the page is to name as its source.

    Raises:
        ValueError: As for `audit`, or `keys` below 0.
    """
    if keys < 0:
        raise ValueError(f"keys is {keys}; give 0 or more")
    rows = _found(df, same, 1.0)
    taken = [name for name in THRESHOLDS if name in partials.NUMBERS]
    absent: dict[str, Any] = dict.fromkeys(FILES_ONLY)
    found = [PartitionAudit(row.topic, row.partition, **{name: row[name] for name in taken}, **absent, skew=0.0, behind_ms=None) for row in rows]
    newest = {topic: {row.partition: row.newest_ms for row in group} for topic, group in _topics(rows).items()}
    worst, spread = _worst(df, keys)
    return AuditReport(
        source=source,
        partitions=[p for topic, times in newest.items() for p in compared([p for p in found if p.topic == topic], times)],
        keys=worst,
        keys_in_several_partitions=spread,
        lateness={topic: [sum(counts) for counts in zip(*(row.lateness for row in group), strict=True)] for topic, group in _topics(rows).items()},
    )


def _worst(df: DataFrame, most: int) -> tuple[list[KeyAudit], dict[str, int]]:
    if not most:
        return [], {}
    found = audit_keys(df).where("partitions > 1 or timestamp_inversions + duplicate_records > 0").persist()
    try:
        order = [F.desc(name) for name in ("partitions", "timestamp_inversions", "duplicate_records", "records")]
        worst = [KeyAudit(**row.asDict()) for row in found.orderBy(*order, "key", "topic").limit(most).collect()]
        spread = {row.topic: row["count"] for row in found.where("partitions > 1").groupBy("topic").count().collect()}
    finally:
        found.unpersist()
    return [replace(key, key=bytes(key.key)) for key in worst], spread


def _topics(rows: list[Row]) -> dict[str, list[Row]]:
    return {topic: list(group) for topic, group in groupby(rows, key=lambda row: row.topic)}


def _found(df: DataFrame, same: Sequence[str | Column], keep: float) -> list[Row]:
    """One row per partition, sorted."""
    if not 0 < keep <= 1:
        raise ValueError(f"keep is a share of the records, above 0 and at most 1, not {keep}")
    _check(df, same)
    # every row is read to the end: Spark closes the socket of a worker that it asks for a few rows, and the worker prints a traceback
    rows = df.select("topic", "partition", "offset", F.unix_millis("timestamp").alias("ms"), *_hashes(same))
    packed = rows.mapInArrow(partials.pack, partials.PACKED)
    lanes = packed.repartition("topic", "partition", "lane").sortWithinPartitions("topic", "partition", "lane", "block")
    with _batches_by_rows(df.sparkSession):
        found = lanes.mapInArrow(partials.find(keep), partials.FOUND).collect()
    return [Row(**row) for row in partials.merged(row.asDict() for row in found)]


@contextmanager
def _batches_by_rows(spark: SparkSession) -> Iterator[None]:
    """While there is a limit in bytes, Spark adds up a batch's size anew after every row, which costs more than all the rest."""
    before = spark.conf.get(BATCH_BYTES, None)
    spark.conf.set(BATCH_BYTES, NO_LIMIT)
    try:
        yield
    finally:
        if before is None:
            spark.conf.unset(BATCH_BYTES)
        else:
            spark.conf.set(BATCH_BYTES, before)


def _check(df: DataFrame, same: Sequence[str | Column]) -> None:
    if df.isStreaming:
        raise ValueError("audit needs a batch DataFrame: the order inside a partition is only known once it is read; use foreachBatch")
    if not same:
        raise ValueError("same is empty: name the columns that make two records the same, e.g. ('key', 'value')")
    missing = {"topic", "partition", "offset", "timestamp", *(c for c in same if isinstance(c, str))} - set(df.columns)
    if missing:
        raise ValueError(f"the DataFrame has no column {', '.join(sorted(missing))}; it has {', '.join(df.columns)}")


def _hashes(same: Sequence[str | Column]) -> tuple[Column, Column]:
    """Two hashes of what makes records the same, of 64 and of 32 bits. A hash skips nulls, hence the flags."""
    columns = [F.col(item) if isinstance(item, str) else item for item in same]
    parts = [part for column in columns for part in (column.isNull(), column)]
    return F.xxhash64(*parts).alias("one"), F.hash(*parts).alias("two")
