"""Event-time windows over record timestamps, for streams and batches alike."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 - as everyone calls it

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import StructType


def parse_json(df: DataFrame, schema: StructType | str) -> DataFrame:
    """Adds one column per field of `schema`, read from `value` as a JSON text; the columns of `df` stay.

    A value that is null or no JSON object gives nulls. A field that is named as a column of `df` is an error.

    Raises:
        ValueError: `df` has no value column or already has one of the fields.
    """
    if "value" not in df.columns:
        raise ValueError(f"the DataFrame has no column value; it has {', '.join(df.columns)}")
    parsed = df.withColumn("__parsed", F.from_json(F.col("value").cast("string"), schema))
    fields = parsed.select("__parsed.*").columns
    taken = sorted(set(fields) & set(df.columns))
    if taken:
        raise ValueError(f"the DataFrame already has the column {', '.join(taken)}; rename it first")
    return parsed.select(*df.columns, "__parsed.*")


def event_time_windows(
    df: DataFrame,
    *,
    window: str,
    watermark: str,
    by: Sequence[str | Column] = (),
    aggregate: Sequence[Column] = (),
    slide: str | None = None,
    event_time: str = "timestamp",
) -> DataFrame:
    """Groups records into windows of event time: `window_start`, `window_end`, `by`, `records`, `aggregate`.

    On a stream, a window is final (and, in append mode, written) once the watermark - the highest event time of the batches
    before, minus `watermark` - has passed its end; rows of windows that are already final are dropped. The last windows of a
    stream therefore appear only when later records arrive. On a batch every window is written and nothing is dropped.

    Args:
        df: Batch or stream with a timestamp column.
        window: Length of a window, e.g. "1 hour".
        watermark: How late a record may be, e.g. "1 day"; `audit` shows what the data needs.
        by: Further grouping columns.
        aggregate: Further aggregates, named with `.alias`.
        slide: Distance between the starts of two windows; default: `window`, so that they do not overlap.
        event_time: The timestamp column.

    Raises:
        ValueError: `df` has no such column.
    """
    if event_time not in df.columns:
        raise ValueError(f"the DataFrame has no column {event_time}; it has {', '.join(df.columns)}")
    frame = F.window(event_time, window, slide) if slide is not None else F.window(event_time, window)
    grouped = df.withWatermark(event_time, watermark).groupBy(frame.alias("window"), *by)
    result = grouped.agg(F.count(F.lit(1)).alias("records"), *aggregate)
    rest = [name for name in result.columns if name != "window"]
    return result.select(F.col("window.start").alias("window_start"), F.col("window.end").alias("window_end"), *rest)
