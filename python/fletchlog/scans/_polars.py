"""A topic as a `polars.LazyFrame`."""

from __future__ import annotations

import inspect
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from fletchlog.errors import InvalidArgumentError
from fletchlog.interop import require
from fletchlog.scans._plan import checked, plan
from fletchlog.scans._predicate import Box

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from typing import Unpack

    import polars as pl
    import pyarrow as pa

    from fletchlog._place import Source
    from fletchlog.scans._plan import ScanOptions, TopicScan
    from fletchlog.types import Scan


def scan_topic(
    source: Source,
    topics: str | Iterable[str],
    partitions: int | Iterable[int] | None = None,
    start_offset: int | None = None,
    end_offset: int | None = None,
    **options: Unpack[ScanOptions],
) -> pl.LazyFrame:
    """One or more topics as a `polars.LazyFrame`: columns, predicates and `head` reach the scan, so that only what the query needs is read.

        lf = fl.scan_topic("kafka://h1:9092", "orders")
        lf.filter(pl.col("timestamp") >= an_hour_ago).select("key").collect()

    Predicates over `topic`, `partition`, `offset` and `timestamp` bound what is read: comparisons with constants, `is_between`, `is_in`, and these joined
    by `&` and `|`. Offsets are found by their index, times by the time index. Every other predicate is applied to the rows that are read, before
    values are decoded if it does not need them. The whole predicate is applied in any case.

    Nothing is read or opened by this call. Each `collect` opens the source (unless it is a `Broker` or a `Cluster`), reads the topics as they are then,
    and closes it. Rows come by topic, partition and offset.

    Args:
        source: A directory, `"s3://BUCKET/PREFIX"` or another object store, `"kafka://HOST:PORT,..."`, an open `Broker`, a `Cluster`.
        topics: Name of a topic, or several.
        partitions: Only this partition, or these.
        start_offset: First offset of each partition; below the log start it is an error, which a predicate is not.
        end_offset: End of each partition, exclusive.

    Keyword Args:
        columns (Iterable[str] | None): Only these columns.
        start_time (datetime | int | None): Only records of this time or later: a datetime with a time zone, or ms since 1970.
        end_time (datetime | int | None): Only records before this time.
        tail (int | None): Only this many of the last records of each partition; predicates filter these.
        key (Deserializer | None): Deserializer of the keys, such as `serde.String()`: the column has its Arrow type.
        value (Deserializer | None): Deserializer of the values, such as `serde.Avro(...)`: a struct.
        on_error (str): What becomes of keys and values that cannot be decoded, as for `serde.deserialize`. Rows that a query does not need are not decoded.
        unnest (bool): Each field of a struct is a column `value.FIELD`. polars names columns, not fields of them, to what it reads from: with this, fields
            that a query does not need are not decoded.
        include_headers (bool): Adds the column `headers`.
        isolation_level (str): `read_committed` leaves out aborted and open transactions.
        timestamp_unit (str): `us`, or `ms`, which holds every timestamp of Kafka.
        config (Mapping[str, Any] | None): Properties of a client, if the source is the address of a cluster.
        storage_options (Mapping[str, Any] | None): Keyword arguments of pyarrow's file system, if the source is on an object store.

    Raises:
        fletchlog.errors.InvalidArgumentError: No topic, one twice, an unknown column, a deserializer whose type depends on the values, bounds that do
            not go together.
        ImportError: polars or pyarrow is missing.
    """
    checked("scan_topic", options)
    return lazy(plan(source, topics, partitions, start_offset, end_offset, **options))


def lazy(made: TopicScan) -> pl.LazyFrame:
    """A plan as a `polars.LazyFrame`."""
    polars = require("polars", "polars")
    from polars.io.plugins import register_io_source

    def read(columns: list[str] | None, predicate: pl.Expr | None, rows: int | None, batch_rows: int | None) -> Iterator[pl.DataFrame]:
        return _frames(made, columns, predicate, rows, batch_rows)

    # what older releases do not take changes no rows
    known = inspect.signature(register_io_source).parameters
    more: dict[str, Any] = {"is_pure": True, "explain_name": "fletchlog", "explain_detail": f"{shown(made.source)}: {', '.join(made.topics)}"}
    schema = dict(polars.from_arrow(made.schema.empty_table()).schema)
    frame: pl.LazyFrame = register_io_source(read, schema=schema, **{name: value for name, value in more.items() if name in known})
    return frame


def lazy_scan(scan: Scan, asked: Mapping[str, Any]) -> pl.LazyFrame:
    """The rows of a scan as a `polars.LazyFrame`.

    Args:
        scan: The scan.
        asked: What it was called with: `isolation_level`, `order`.

    Raises:
        fletchlog.errors.InvalidArgumentError: It merges partitions by time.
    """
    if asked["order"] != "offset":
        raise InvalidArgumentError("a lazy scan reads partition by partition: leave out order='timestamp', and sort the frame by timestamp")
    found, columns = scan.ranges, scan.schema.names
    is_ms = "timestamp" in columns and scan.schema.field("timestamp").type.unit == "ms"
    options: ScanOptions = {
        **_typed(scan),
        "columns": columns,
        "include_headers": "headers" in columns,
        "isolation_level": asked["isolation_level"],
        "timestamp_unit": "ms" if is_ms else "us",
    }
    numbers = [one.partition for one in found if one.partition is not None]
    made = plan(scan.source, found[0].topic if found else "-", numbers or None, **options)
    bounds = (Box(None, frozenset([one.partition or 0]), one.start_offset or 0, one.end_offset, one.start_time, one.end_time) for one in found)
    return lazy(replace(made, bounds=tuple(bounds)))


def _typed(scan: Scan) -> ScanOptions:
    """How a scan decodes keys and values."""
    decoder = scan._decoder  # noqa: SLF001 - what the engine keeps for this package
    if decoder is None:
        return {}
    typed = decoder.typed
    return {"key": typed.deserializers.get("key"), "value": typed.deserializers.get("value"), "on_error": typed.on_error, "unnest": typed.unnest}


def shown(source: Source) -> str:
    """A source without secrets."""
    from fletchlog._core import Broker, Cluster
    from fletchlog._place import Place

    return repr(source) if isinstance(source, Broker | Cluster) else str(Place(source))


class _Mask:
    """polars' own evaluation of a predicate."""

    def __init__(self, predicate: pl.Expr) -> None:
        self._predicate = predicate
        self.columns: frozenset[str] | None = frozenset(predicate.meta.root_names())

    def mask(self, batch: pa.RecordBatch) -> pa.BooleanArray:
        import pyarrow as pa

        made = _frame(batch).select(self._predicate.alias("keep"))["keep"]
        # a predicate without columns is one value
        return pa.array(made.to_list() * batch.num_rows if len(made) == 1 else made.to_arrow(), pa.bool_())


def _frames(made: TopicScan, columns: list[str] | None, predicate: pl.Expr | None, rows: int | None, batch_rows: int | None) -> Iterator[pl.DataFrame]:
    """What polars asks for. Both a predicate and a number of rows: the predicate is for the first rows, `head` before `filter`."""
    from fletchlog.scans._polars_expressions import predicate_of

    if columns is not None:
        made = made.select(columns)
    if rows is not None:
        made = made.head(rows)
    elif predicate is not None:
        made = made.where(predicate_of(predicate))
    keep = None if predicate is None else _Mask(predicate)
    empty = True
    for batch in made.batches(keep, **({} if batch_rows is None else {"batch_rows": batch_rows})):
        empty = False
        yield _frame(batch)
    if empty:
        yield _frame(made.schema.empty_table())


def _frame(rows: pa.RecordBatch | pa.Table) -> pl.DataFrame:
    """The same memory for polars. Older releases take a batch given to `DataFrame` for rows."""
    import polars as pl

    frame = pl.from_arrow(rows)
    if not isinstance(frame, pl.DataFrame):
        raise TypeError(f"polars made a {type(frame).__name__} of a batch")
    return frame
