"""Batch reading. Ranges are fixed when the query is planned: load again to see what was appended since."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, InputPartition

from fletchlog.spark.cluster import open_log
from fletchlog.spark.directory import Directory
from fletchlog.spark.errors import OptionError
from fletchlog.spark.offset_reader import OffsetReader
from fletchlog.spark.offsets import text
from fletchlog.spark.range_calculator import OffsetRange, at_segments, pack, split
from fletchlog.spark.scan import read_ranges
from fletchlog.spark.typed import described

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa
    from pyspark.sql.types import StructType

    from fletchlog.spark.options import SourceOptions


class RangePartition(InputPartition):
    """One task: ranges of offsets, or none at all (Spark needs at least one task).

    The attributes are also read by the columnar source, in Java (`jvm/src/fletchlog/spark/Ranges.java`), which has no other way to the options.
    """

    def __init__(self, ranges: tuple[OffsetRange, ...], options: SourceOptions, typed: str) -> None:
        self.ranges = ranges
        self.path = options.path
        self.isolation_level = options.isolation_level
        self.fail_on_data_loss = options.fail_on_data_loss
        self.typed = typed


class BatchReader(DataSourceReader):
    """Reads from the start to the end that the options name."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema

    def partitions(self) -> list[InputPartition]:
        """One task per partition with records, more with minPartitions or maxRecordsPerPartition, fewer with maxPartitions.

        On an object store a partition of several segments has more.
        """
        options = self._options
        start_limit, end_limit = options.batch_limits()
        source = open_log(options, anew=True)
        reader = OffsetReader(source, options)
        start = reader.resolve(start_limit, "startingOffsets")
        end = reader.resolve(end_limit, "endingOffsets")
        for tp, first in start.items():
            if first > end.get(tp, first):
                raise OptionError(f"the start of {text([tp])}, {first}, is above its end, {end[tp]}")
        ranges = [OffsetRange(*tp, first, end[tp]) for tp, first in start.items() if tp in end]
        ranges = self._narrowed(ranges, reader)
        if options.store is not None and isinstance(source, Directory) and options.min_partitions is options.max_records_per_partition is None:
            ranges = at_segments(ranges, source.segments)
        tasks = split(ranges, options.min_partitions, options.max_records_per_partition)
        packed = pack(tasks, options.max_partitions) or [()]
        typed = described(options)
        return [RangePartition(ranges, options, typed) for ranges in packed]

    def _narrowed(self, ranges: list[OffsetRange], reader: OffsetReader) -> list[OffsetRange]:  # noqa: ARG002 - `FilteringReader` uses it
        """What the filters of the query leave."""
        return ranges

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Record batches of one task."""
        return read_ranges(partition.ranges, self._options, self._schema)  # type: ignore[attr-defined]
