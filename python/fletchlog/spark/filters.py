"""Filters that a batch query is planned with (`spark.sql.python.filterPushdown.enabled`): what they rule out is not read.

Conditions on topic, partition and offset are kept exactly, so Spark need not look again. A lower bound of the timestamp moves the
start of each partition to the first record at or after it; Spark still tests every row, because timestamps need not grow.
"""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fletchlog.spark.batch import BatchReader
from fletchlog.spark.offsets import HIGHEST
from fletchlog.spark.range_calculator import OffsetRange

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyspark.sql.datasource import Filter

    from fletchlog.spark.offset_reader import OffsetReader

_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_NEVER_NULL = {"topic", "partition", "offset", "timestamp"}


@dataclass
class Bounds:
    """What is left of a log."""

    topics: set[str] | None = None
    partitions: set[int] | None = None
    start: int = 0
    end: int = HIGHEST
    since_ms: int | None = None

    def add(self, condition: Filter) -> bool:
        """Narrows the bounds. True: rows that do not meet the condition are not read; False: Spark has to test it."""
        kind, name = type(condition).__name__, ".".join(getattr(condition, "attribute", ())).lower()
        if kind == "IsNotNull":
            return name in _NEVER_NULL
        value = getattr(condition, "value", None)
        values = list(value or ()) if kind == "In" else [value]
        if not values or any(item is None or isinstance(item, bool) for item in values):
            return False
        if kind in {"EqualTo", "EqualNullSafe", "In"}:
            return self._equals(name, values)
        return self._compares(kind, name, value)

    def _equals(self, name: str, values: list[Any]) -> bool:
        match name:
            case "topic":
                self.topics = set(values) if self.topics is None else self.topics & set(values)
            case "partition":
                self.partitions = set(values) if self.partitions is None else self.partitions & set(values)
            case "offset":
                self.start, self.end = max(self.start, min(values)), min(self.end, max(values) + 1)
                return len(set(values)) == 1
            case "timestamp":
                self._since(min(values))
                return False
            case _:
                return False
        return True

    def _compares(self, kind: str, name: str, value: Any) -> bool:
        if name == "timestamp" and kind in {"GreaterThan", "GreaterThanOrEqual"}:
            self._since(value)
        if name != "offset":
            return False
        match kind:
            case "GreaterThan":
                self.start = max(self.start, value + 1)
            case "GreaterThanOrEqual":
                self.start = max(self.start, value)
            case "LessThan":
                self.end = min(self.end, value)
            case "LessThanOrEqual":
                self.end = min(self.end, value + 1)
            case _:
                return False
        return True

    def _since(self, time: dt.datetime) -> None:
        since_ms = (time - _EPOCH) // dt.timedelta(milliseconds=1)
        self.since_ms = max(since_ms, self.since_ms or 0)

    def narrowed(self, ranges: list[OffsetRange], reader: OffsetReader) -> list[OffsetRange]:
        """What is left of the ranges."""
        kept = [
            OffsetRange(item.topic, item.partition, max(item.start, self.start), min(item.end, self.end))
            for item in ranges
            if (self.topics is None or item.topic in self.topics) and (self.partitions is None or item.partition in self.partitions)
        ]
        kept = [item for item in kept if item.size > 0]
        if not self.since_ms:
            return kept
        first = reader.first_at({(item.topic, item.partition): self.since_ms for item in kept})
        starts = {tp: offset for tp, offset in first.items() if offset is not None}
        return [
            OffsetRange(item.topic, item.partition, max(item.start, starts[item.topic, item.partition]), item.end)
            for item in kept
            if (item.topic, item.partition) in starts
        ]


class FilteringReader(BatchReader):
    """A batch reader that Spark hands its filters. Spark refuses a reader with this method while push-down is off."""

    _bounds: Bounds | None = None

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 - Spark's name
        """Takes the filters that it can and returns those that Spark has to test."""
        bounds = Bounds()
        rest = [condition for condition in filters if not bounds.add(condition)]
        self._bounds = bounds
        return rest

    def _narrowed(self, ranges: list[OffsetRange], reader: OffsetReader) -> list[OffsetRange]:
        return self._bounds.narrowed(ranges, reader) if self._bounds is not None else ranges
