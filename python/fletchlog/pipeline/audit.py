"""The ordering audit: what a reader of each partition had to cope with."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import Window
from pyspark.sql import functions as F  # noqa: N812 - as everyone calls it

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import Column, DataFrame

COLUMNS = (
    "topic",
    "partition",
    "records",
    "first_offset",
    "last_offset",
    "gaps",
    "duplicate_offsets",
    "duplicate_records",
    "timestamp_inversions",
    "inversion_max_ms",
    "lateness_p50_ms",
    "lateness_p99_ms",
    "lateness_p999_ms",
    "lateness_p9999_ms",
    "lateness_max_ms",
    "watermark_delay_ms",
)


def audit(df: DataFrame, *, same: Sequence[str | Column] = ("key", "value"), keep: float = 0.999) -> DataFrame:
    """Checks order, completeness and lateness of every partition, one row each, sorted by topic and partition.

    Columns: `records`; `first_offset`, `last_offset`; `gaps`, offsets between them that no record has (compaction,
    transaction markers, or loss); `duplicate_offsets`, records whose offset occurred before (a replayed read);
    `duplicate_records`, records that repeat `same` (a producer that sent twice); `timestamp_inversions`, records with a
    lower timestamp than the one before them, and `inversion_max_ms`, the furthest of these steps back; `lateness_*`, how far
    records are behind the highest timestamp up to them (ms; p50, p99, p999 (99.9 %) and p9999 are the smallest lateness that at
    least that share of the records does not exceed, which is the watermark delay that keeps so many); `watermark_delay_ms`, the
    shortest watermark delay with which a stream that moves its watermark with every record would have kept the share `keep` of
    the partition's records. Records without a timestamp have no lateness. What only the files tell (why offsets are missing,
    repeated producer sequences) is in `fletchlog.audit`.

    Args:
        df: A batch DataFrame with at least topic, partition, offset, timestamp and the columns of `same`. For a stream, call it
            in `foreachBatch` or over what the stream wrote.
        same: Columns or expressions that make two records of a partition the same.
        keep: Share of the records that the watermark is to keep, above 0 and at most 1.

    Raises:
        ValueError: A streaming DataFrame, missing columns, or `keep` out of range.
    """
    if df.isStreaming:
        raise ValueError("audit needs a batch DataFrame: the order inside a partition is only known once it is read; use foreachBatch")
    if not 0 < keep <= 1:
        raise ValueError(f"keep is a share of the records, above 0 and at most 1, not {keep}")
    if not same:
        raise ValueError("same is empty: name the columns that make two records the same, e.g. ('key', 'value')")
    missing = {"topic", "partition", "offset", "timestamp", *(c for c in same if isinstance(c, str))} - set(df.columns)
    if missing:
        raise ValueError(f"the DataFrame has no column {', '.join(sorted(missing))}; it has {', '.join(df.columns)}")

    rows = df.select("topic", "partition", "offset", F.unix_millis("timestamp").alias("ms"))
    result = _summed(_counted(rows), keep)
    offsets = F.col("last_offset") - F.col("first_offset") + 1
    result = result.withColumn("gaps", offsets - (F.col("records") - F.col("duplicate_offsets")))
    return result.join(_repeats(df, same), ["topic", "partition"]).select(*COLUMNS).orderBy("topic", "partition")


def _counted(rows: DataFrame) -> DataFrame:
    """How many records have each lateness: few rows, from which every percentile is exact without a percentile per record."""
    in_order = Window.partitionBy("topic", "partition").orderBy("offset", "ms")
    so_far = in_order.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    seen = rows.select(
        "topic",
        "partition",
        "offset",
        "ms",
        (F.lag("offset").over(in_order) == F.col("offset")).alias("repeats_offset"),
        (F.lag("ms").over(in_order) - F.col("ms")).alias("back"),
        (F.max("ms").over(so_far) - F.col("ms")).alias("late"),
    )
    return seen.groupBy("topic", "partition", "late").agg(
        F.count(F.lit(1)).alias("n"),
        F.min("offset").alias("first"),
        F.max("offset").alias("last"),
        F.count_if("repeats_offset").alias("repeated"),
        F.count_if(F.col("back") > 0).alias("inverted"),
        F.max("back").alias("back"),
        F.count("ms").alias("timed"),
    )


def _summed(counted: DataFrame, keep: float) -> DataFrame:
    partition = Window.partitionBy("topic", "partition")
    ranked = counted.withColumn("rank", F.sum("timed").over(partition.orderBy("late"))).withColumn("all", F.sum("timed").over(partition))

    def share(part: float) -> Column:
        # the smallest lateness that at least this share of the records does not exceed; the tolerance is for doubles such as 0.07 * 100
        return F.min(F.when(F.col("rank") >= F.ceil(F.lit(part) * F.col("all") - 1e-9), F.col("late")))

    return ranked.groupBy("topic", "partition").agg(
        F.sum("n").alias("records"),
        F.min("first").alias("first_offset"),
        F.max("last").alias("last_offset"),
        F.sum("repeated").alias("duplicate_offsets"),
        F.sum("inverted").alias("timestamp_inversions"),
        F.when(F.sum("timed") > 0, F.greatest(F.max("back"), F.lit(0))).alias("inversion_max_ms"),
        share(0.5).alias("lateness_p50_ms"),
        share(0.99).alias("lateness_p99_ms"),
        share(0.999).alias("lateness_p999_ms"),
        share(0.9999).alias("lateness_p9999_ms"),
        F.max("late").alias("lateness_max_ms"),
        share(keep).alias("watermark_delay_ms"),
    )


def _repeats(df: DataFrame, same: Sequence[str | Column]) -> DataFrame:
    """Records per partition that repeat another one.

    A pass of its own: it needs another order of the records than the rest. They are compared by two 64-bit hashes with
    different seeds, so that values need not travel; a hash skips nulls, hence the flags.
    """
    columns = [F.col(item) if isinstance(item, str) else item for item in same]
    parts = [part for column in columns for part in (column.isNull(), column)]
    one, two = (F.xxhash64(F.lit(seed), *parts).alias(f"hash{seed}") for seed in (1, 2))
    alike = df.select("topic", "partition", one, two).groupBy("topic", "partition", "hash1", "hash2").count()
    return alike.groupBy("topic", "partition").agg((F.sum("count") - F.count(F.lit(1))).alias("duplicate_records"))
