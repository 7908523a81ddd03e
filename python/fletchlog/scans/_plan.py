"""The plan of a scan: which rows and columns of which topics an engine wants, whichever engine it is."""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import TYPE_CHECKING, Any, Protocol, TypedDict

from fletchlog import _place
from fletchlog.errors import InvalidArgumentError, OffsetOutOfRangeError
from fletchlog.scans._predicate import MOST, Box, both, boxes
from fletchlog.scans._ranges import Range, ranges
from fletchlog.scans._typed import Typed, check_known, in_order, raw_schema, selected

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from datetime import datetime

    import pyarrow as pa

    from fletchlog._place import Source
    from fletchlog.scans._predicate import Predicate
    from fletchlog.scans._typed import Paths
    from fletchlog.serde._deserialize import OnError
    from fletchlog.serde.outcome import Deserializer
    from fletchlog.types import IsolationLevel, TimestampUnit

# what is read where no column is wanted but the number of rows
_CHEAPEST = "offset"
_BATCH_ROWS = 131072
_LEVELS = ("read_uncommitted", "read_committed")


class ScanOptions(TypedDict, total=False):
    """What `fletchlog.scan_topic` takes by name."""

    columns: Iterable[str] | None
    start_time: datetime | int | None
    end_time: datetime | int | None
    tail: int | None
    key: Deserializer | None
    value: Deserializer | None
    on_error: OnError
    unnest: bool
    include_headers: bool
    isolation_level: IsolationLevel
    timestamp_unit: TimestampUnit
    config: Mapping[str, Any] | None
    storage_options: Mapping[str, Any] | None


def checked(function: str, options: Iterable[str]) -> None:
    """Refuses what is no option, as Python does for arguments that are written one by one.

    Raises:
        TypeError: There is no such option.
    """
    from difflib import get_close_matches

    for name in options:
        if name not in ScanOptions.__annotations__:
            near = get_close_matches(name, ScanOptions.__annotations__, 1)
            raise TypeError(f"{function}() got an unexpected keyword argument {name!r}" + (f"; did you mean {near[0]!r}?" if near else ""))


class Keep(Protocol):
    """A predicate as its engine applies it.

    Attributes:
        columns: What it reads; None: unknown, any.
    """

    columns: frozenset[str] | None

    def mask(self, batch: pa.RecordBatch) -> pa.BooleanArray:
        """True for the rows to keep; null and False for the others."""


@dataclass(frozen=True)
class TopicScan:
    """A plan: a value that reads nothing until `batches` or `ranges` is called. Each of its methods returns another plan, or reads.

    Made by `fletchlog.scans.plan`. May be used from several threads; it can be pickled if its source and its deserializers can.

    Attributes:
        source: Directory, object store or cluster.
        topics: Topics, in the order of the rows.
        columns: Columns of the result, in their order.
        fields: By column the ways to the fields of its struct that are wanted (names, from the top); the others may be left out.
        bounds: Boxes around the rows that are wanted.
        limit: Most rows, counted before any predicate that `batches` applies; None: all.
    """

    source: Source
    topics: tuple[str, ...]
    columns: tuple[str, ...]
    typed: Typed
    fields: Mapping[str, Paths] = field(default_factory=dict)
    bounds: tuple[Box, ...] = (Box(),)
    partitions: tuple[int, ...] | None = None
    start_offset: int | None = None
    tail: int | None = None
    limit: int | None = None
    include_headers: bool = False
    isolation_level: IsolationLevel = "read_uncommitted"
    timestamp_unit: TimestampUnit = "us"
    config: Mapping[str, Any] | None = field(default=None, repr=False)
    storage_options: Mapping[str, Any] | None = field(default=None, repr=False)

    @property
    def whole_schema(self) -> pa.Schema:
        """Every column that can be selected: a `pyarrow.Schema`."""
        return self.typed.schema(raw_schema(self.include_headers, self.timestamp_unit))

    @property
    def schema(self) -> pa.Schema:
        """The columns of the result: a `pyarrow.Schema`. With `fields`, structs may have fewer fields."""
        return self.typed.decoder(self.columns, self.fields).schema(self.whole_schema)

    def select(self, columns: Iterable[str], fields: Mapping[str, Paths] | None = None) -> TopicScan:
        """Only these columns, in this order; of the structs in `fields` only these fields, if their deserializers can leave out the others.

        Raises:
            fletchlog.errors.InvalidArgumentError: There is no such column.
        """
        return replace(self, columns=selected(columns, self.whole_schema), fields=dict(fields or {}))

    def where(self, predicate: Predicate) -> TopicScan:
        """Reads no more than what the predicate needs. The rows are not filtered: that is for `batches(keep)`, or for the engine."""
        if self.limit is not None:
            # the first rows, whatever the predicate says of them
            return self
        try:
            found = boxes(predicate)
        except RecursionError:
            # nested too deeply: it bounds nothing
            return self
        if self.tail is not None:
            # the last records of a partition, whatever the predicate says of their offsets and times
            found = tuple(Box(box.topics, box.partitions, from_partition=box.from_partition) for box in found)
        return replace(self, bounds=both(self.bounds, found))

    def head(self, rows: int) -> TopicScan:
        """At most so many rows."""
        return replace(self, limit=rows if self.limit is None else min(rows, self.limit))

    def ranges(self) -> list[Range]:
        """What is read, in the order of the rows. Bounds of offsets or partitions ask the source for offsets.

        Raises:
            fletchlog.errors.KafkaError: As for `fletchlog.scan`.
        """
        with _place.at(self.source, config=self.config, storage_options=self.storage_options) as place:
            return list(self._ranges(place))

    def batches(self, keep: Keep | None = None, batch_rows: int = _BATCH_ROWS) -> Iterator[pa.RecordBatch]:
        """The rows: by topic, then as `fletchlog.scan` orders them, in offset order within a partition.

        What the range ends with is fixed partition by partition, when it is read.

        Args:
            keep: A predicate to apply: before values are decoded, if it needs none of them. `columns` need not have what it reads.
            batch_rows: Most rows of a batch.

        Raises:
            fletchlog.errors.KafkaError: As for `fletchlog.scan`, while it is read.
            fletchlog.errors.RecordDeserializationError: A key or value cannot be decoded.
        """
        before = keep is not None and keep.columns is not None and not self.typed.decodes(keep.columns)
        reads: tuple[str, ...] = self.columns
        if keep is not None and not before:
            asked = self.whole_schema.names if keep.columns is None else sorted(keep.columns)
            reads = tuple(dict.fromkeys([*self.columns, *asked]))
        decoder = self.typed.decoder(reads, self.fields if reads == self.columns else {})
        raw = tuple(dict.fromkeys(source.raw for source in decoder.sources.values()))
        if before and keep is not None and keep.columns is not None:
            raw = tuple(dict.fromkeys([*raw, *sorted(keep.columns)]))

        def rows(batch: pa.RecordBatch) -> pa.RecordBatch:
            kept = batch.filter(keep.mask(batch)) if before and keep is not None else batch
            made = decoder.decoded(kept)
            return made if keep is None or before else made.filter(keep.mask(made)).select(list(self.columns))

        read = self._raw((*dict.fromkeys([*raw, *decoder.needs()]),) or (_CHEAPEST,), batch_rows)
        # nothing is read beyond a limit
        threads = decoder.threads((os.cpu_count() or 1) if self.limit is None else 1)
        yield from (made for made in in_order(rows, read, threads) if made.num_rows)

    def _ranges(self, place: Any) -> Iterator[Range]:
        for topic in self.topics:
            yield from ranges(place, topic, self.bounds, self.partitions, self.start_offset)

    def _raw(self, columns: tuple[str, ...], batch_rows: int) -> Iterator[pa.RecordBatch]:
        left = self.limit
        if left == 0:
            return
        with _place.at(self.source, config=self.config, storage_options=self.storage_options) as place:
            for one in self._ranges(place):
                scan = self._scan(place, one, columns, batch_rows if left is None else max(1, min(batch_rows, left)))
                for batch in scan:
                    yield batch if left is None else batch.slice(0, left)
                    if left is not None:
                        left -= min(left, batch.num_rows)
                        if not left:
                            return

    def _scan(self, place: Any, one: Range, columns: tuple[str, ...], batch_rows: int) -> Iterable[pa.RecordBatch]:
        """The scan of a range; none, if all of it was deleted meanwhile."""
        options: dict[str, Any] = {
            "start_time": one.start_time,
            "end_time": one.end_time,
            "columns": columns,
            "batch_rows": batch_rows,
            "isolation_level": self.isolation_level,
            "timestamp_unit": self.timestamp_unit,
            "tail": self.tail,
        }
        scan: Iterable[pa.RecordBatch]
        try:
            scan = place.scan(one.topic, one.partition, one.start_offset, one.end_offset, **options)
        except OffsetOutOfRangeError:
            if one.start_offset == self.start_offset:
                raise
            # Records were deleted since the offsets were asked for: a bound of a predicate may be below the log start.
            starts = {described.partition: described.log_start_offset for described in place.describe_topic(one.topic).partitions}
            if one.partition is None:
                return chain.from_iterable(self._scan(place, one._replace(partition=number), columns, batch_rows) for number in starts)
            if one.end_offset is not None and starts[one.partition] >= one.end_offset:
                return []
            start = self.start_offset if starts[one.partition] > (one.start_offset or 0) else one.start_offset
            scan = place.scan(one.topic, one.partition, start, one.end_offset, **options)
        return scan


def plan(
    source: Source,
    topics: str | Iterable[str],
    partitions: int | Iterable[int] | None = None,
    start_offset: int | None = None,
    end_offset: int | None = None,
    *,
    columns: Iterable[str] | None = None,
    start_time: datetime | int | None = None,
    end_time: datetime | int | None = None,
    tail: int | None = None,
    key: Deserializer | None = None,
    value: Deserializer | None = None,
    on_error: OnError = "raise",
    unnest: bool = False,
    include_headers: bool = False,
    isolation_level: IsolationLevel = "read_uncommitted",
    timestamp_unit: TimestampUnit = "us",
    config: Mapping[str, Any] | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> TopicScan:
    """A plan that reads one or more topics, for an engine that has no function here. Nothing is read or opened by this call.

    Args: as for `fletchlog.scan_topic`.

    Raises:
        fletchlog.errors.InvalidArgumentError: No topic, one twice, an unknown column, a deserializer whose type depends on the values, bounds that do
            not go together.
        ImportError: pyarrow is missing.
    """
    named: tuple[Any, ...] = (topics,) if isinstance(topics, str) or not hasattr(topics, "__iter__") else tuple(topics)
    if not named or not all(isinstance(topic, str) for topic in named) or len(set(named)) != len(named):
        raise InvalidArgumentError(f"topics are names, at least one, none twice; got {topics!r:.80}")
    if tail is not None and not (start_offset is None and start_time is None and end_time is None):
        raise InvalidArgumentError("tail does not go with start_offset, start_time or end_time")
    numbers = None if partitions is None else tuple(partitions) if hasattr(partitions, "__iter__") else (partitions,)
    for what, number, most in (
        *(("partition", one, 2**31 - 1) for one in numbers or ()),
        ("start_offset", start_offset, MOST),
        ("end_offset", end_offset, MOST),
        ("tail", tail, MOST),
    ):
        if number is not None and (not isinstance(number, int) or not 0 <= number <= most):
            raise InvalidArgumentError(f"{what} is {number!r:.40}; it is an int from 0 to {most}")
    check_known("isolation_level", isolation_level, _LEVELS)
    base = Box(None, None, start_offset or 0, end_offset, _ms(start_time), _ms(end_time))
    if base.meet(base) is None and end_offset != (start_offset or 0):
        raise InvalidArgumentError("a range does not end before it starts: check start_offset and end_offset, start_time and end_time")
    typed = Typed({name: one for name, one in (("key", key), ("value", value)) if one is not None}, on_error, unnest)
    every = TopicScan(
        source,
        named,
        (),
        typed,
        bounds=() if base.meet(base) is None else (base,),
        partitions=None if numbers is None else tuple(sorted(set(numbers))),
        start_offset=start_offset,
        tail=tail,
        include_headers=include_headers,
        isolation_level=isolation_level,
        timestamp_unit=timestamp_unit,
        config=config,
        storage_options=storage_options,
    )
    return every.select(every.whole_schema.names if columns is None else columns)


def _ms(time: datetime | int | None) -> int | None:
    """A time as the scan takes it, in ms since 1970."""
    from datetime import UTC, datetime, timedelta

    if time is None or (isinstance(time, int) and -MOST <= time <= MOST):
        return time
    if not isinstance(time, datetime):
        raise InvalidArgumentError(f"a time is a datetime or an int of 64 bits, ms since 1970; got {time!r:.40}")
    if time.tzinfo is None:
        raise InvalidArgumentError(f"{time!r} has no time zone; give one, such as datetime.UTC")
    # to the next whole one, in integers
    return -((datetime(1970, 1, 1, tzinfo=UTC) - time) // timedelta(milliseconds=1))
