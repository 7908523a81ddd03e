"""One range of offsets as record batches in exactly the schema that Spark expects."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from fletchlog.errors import OffsetOutOfRangeError, StorageError, UnknownTopicOrPartitionError
from fletchlog.spark.cluster import open_log
from fletchlog.spark.compat import freeze_imports
from fletchlog.spark.directory import Span
from fletchlog.spark.errors import DataLossError
from fletchlog.spark.offset_reader import loss_reporter
from fletchlog.spark.schema import COLUMNS, arrow_schema, check_projection
from fletchlog.spark.typed import Decoder

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    import pyarrow as pa
    from pyspark.sql.types import StructType

    from fletchlog.spark.cluster import ClusterLog
    from fletchlog.spark.directory import Directory
    from fletchlog.spark.options import SourceOptions
    from fletchlog.spark.range_calculator import OffsetRange
    from fletchlog.types import TopicPartition


def read_ranges(wanted: tuple[OffsetRange, ...], options: SourceOptions, schema: StructType) -> Iterator[pa.RecordBatch]:
    """Yields the records of the ranges, one range after the other, only the columns of `schema`.

    Offsets without a record (compaction, transaction markers, aborted data) are skipped. Offsets below the log start or at
    and above its end, and those that are deleted while the range is read, are lost data: an error, or skipped with a warning when
    failOnDataLoss is false. A partition that a cluster does not show need not be deleted, so it is always an error: what is skipped once is never read.
    """
    if not wanted:
        return
    shape = _Shape(schema, options)
    source = open_log(options)
    for attempt in range(options.fetch_attempts):
        if attempt:
            time.sleep(options.fetch_interval_ms / 1000)
        spans = source.spans(item.tp for item in wanted)
        if all(item.tp in spans for item in wanted):
            break
    if options.store is not None and not _covered(wanted, spans):
        # this process has opened the store before the query was planned
        source = open_log(options, anew=True)
        spans = source.spans(item.tp for item in wanted)
    freeze_imports()
    try:
        for item in wanted:
            yield from _read_range(item, spans.get(item.tp), source, shape, options)
    except StorageError:
        # an object has changed: Spark tries the task again, and then what is there now is read
        if options.store is not None:
            open_log(options, anew=True)
        raise


class _Shape:
    """The columns that Spark demands.

    Attributes:
        asked: The columns that are scanned for them.
    """

    def __init__(self, schema: StructType, options: SourceOptions) -> None:
        self._columns = check_projection(schema, options.typed)
        self._target = arrow_schema(schema)
        self._decoder = Decoder(options.typed, schema, self._target) if options.typed else None
        # A schema may name a column twice, in other letters. The offset shows how far the range was read.
        needed = self._decoder.needed if self._decoder is not None else []
        self.asked = [name for name in dict.fromkeys((*self._columns, "offset", *needed)) if name in COLUMNS]

    def of(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The rows of a scan in these columns."""
        import pyarrow as pa

        if self._decoder is not None:
            batch = self._decoder.decoded(batch)
        if batch.schema.equals(self._target):
            return batch
        return pa.RecordBatch.from_arrays([batch.column(column) for column in self._columns], schema=self._target)


def _covered(wanted: Iterable[OffsetRange], spans: Mapping[TopicPartition, Span]) -> bool:
    def has(item: OffsetRange) -> bool:
        span = spans.get(item.tp)
        return span is not None and item.end <= span.end

    return all(map(has, wanted))


def _read_range(wanted: OffsetRange, span: Span | None, source: Directory | ClusterLog, shape: _Shape, options: SourceOptions) -> Iterator[pa.RecordBatch]:
    report_loss = loss_reporter(options)
    tp = wanted.tp
    name = str(tp)
    if span is None:
        what = f"offsets {wanted.start} to {wanted.end - 1} were to be read"
        if options.path is None:
            raise _unseen(name, what, options)
        report_loss(f"{name} is gone; {what}")
        return
    if span.start > wanted.start:
        report_loss(f"the log of {name} starts at {span.start}; offsets from {wanted.start} were to be read")
    if span.end < wanted.end:
        report_loss(f"the log of {name} ends at {span.end}; offsets up to {wanted.end - 1} were to be read")
    start, end = max(wanted.start, span.start), min(wanted.end, span.end)
    while start < end:
        try:
            for batch in source.scan(tp, start, end, columns=shape.asked):
                if batch.num_rows:
                    start = batch.column("offset")[-1].as_py() + 1
                yield shape.of(batch)
        except (OffsetOutOfRangeError, UnknownTopicOrPartitionError) as error:
            span = source.spans([tp]).get(tp)
            if span is None and options.path is None:
                raise _unseen(name, f"offsets {start} to {end - 1} were to be read", options) from None
            gone, start = start, _first_left(span, start, end)
            if span is not None and isinstance(error, UnknownTopicOrPartitionError):
                what = f"{name} was deleted and made again while it was read at offset {gone}"
            else:
                what = f"records of {name} from offset {gone} on were deleted while they were read"
            report_loss(f"{what}; what is left of the range begins at {start}")
        else:
            # behind the last row there may be offsets without one, or a topic of this name that was made again and is shorter
            now = Span(start, end) if start == end else source.spans([tp]).get(tp)
            if now is None or now.end < end:
                report_loss(f"the log of {name} was replaced while it was read; offsets {start} to {end - 1} were to be read")
            return


def _unseen(name: str, what: str, options: SourceOptions) -> DataLossError:
    return DataLossError(
        f"{name} is gone, or {options.source} does not show it now; {what}. Start the query again when it is back. If it was deleted for good, a new topic of "
        "the same name and failOnDataLoss=false let the query continue"
    )


def _first_left(span: Span | None, start: int, end: int) -> int:
    """Where a range goes on whose records are gone from `start` on; its end if nothing is left.

    Kafka: `KafkaDataConsumer#getEarliestAvailableOffsetBetween`.
    """
    return end if span is None or start >= span.end or span.start >= end else max(start, span.start)
