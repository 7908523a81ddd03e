"""Filters that a batch query of the columnar format is planned with (`spark.sql.python.filterPushdown.enabled`): what they rule out is not read.

Conditions on topic, partition and offset are kept exactly, so Spark need not look again. A lower bound of the timestamp moves the
start of each partition to the first record at or after it; Spark still tests every row, because timestamps need not grow. For the same reason an
upper bound ends nothing: older records may follow. It only shows that nothing is left when it is below the lower bound.
"""

from __future__ import annotations

import datetime as dt
import operator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from fletchlog.spark.batch import BatchReader
from fletchlog.spark.offsets import HIGHEST
from fletchlog.spark.range_calculator import OffsetRange

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from pyspark.sql.datasource import Filter

    from fletchlog.spark.offset_reader import OffsetReader

_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_NEVER_NULL = {"topic", "partition", "offset"}


# Conditions on topic and partition, which are the same for a whole range: the range's, then the query's.
_OF_A_RANGE: dict[str, Callable[[Any, Any], bool]] = {
    "EqualTo": operator.eq,
    "EqualNullSafe": operator.eq,
    "In": lambda found, values: found in values,
    "GreaterThan": operator.gt,
    "GreaterThanOrEqual": operator.ge,
    "LessThan": operator.lt,
    "LessThanOrEqual": operator.le,
    "StringStartsWith": str.startswith,
    "StringEndsWith": str.endswith,
    "StringContains": operator.contains,
}
_KINDS_OF_A_RANGE: dict[str, type] = {"topic": str, "partition": int}


@dataclass
class Bounds:
    """What is left of a log. `ranges`: name, kind, what it is compared with, and whether the condition must not hold."""

    ranges: list[tuple[str, str, Any, bool]] = field(default_factory=list)
    start: int = 0
    end: int = HIGHEST
    since_ms: int = -HIGHEST
    until_ms: int = HIGHEST

    def add(self, condition: Filter) -> bool:
        """Narrows the bounds. True: rows that do not meet the condition are not read; False: Spark has to test it."""
        negated = type(condition).__name__ == "Not"
        if negated:
            condition = condition.child  # type: ignore[attr-defined]
        kind, name = type(condition).__name__, ".".join(getattr(condition, "attribute", ())).lower()
        if kind == "IsNotNull":
            return name in _NEVER_NULL and not negated
        value = getattr(condition, "value", None)
        values = list(value or ()) if kind == "In" else [value]
        if not values or any(item is None or isinstance(item, bool) for item in values):
            return False
        if name in _KINDS_OF_A_RANGE:
            if kind not in _OF_A_RANGE or not all(isinstance(item, _KINDS_OF_A_RANGE[name]) for item in values):
                return False
            self.ranges.append((name, kind, value, negated))
            return True
        if negated:
            return False
        if name == "offset":
            return self._offset(kind, values)
        if name == "timestamp":
            self._time(kind, values)
        return False

    def _offset(self, kind: str, values: list[Any]) -> bool:
        least, most = min(values), max(values)
        match kind:
            case "EqualTo" | "EqualNullSafe" | "In":
                self.start, self.end = max(self.start, least), min(self.end, most + 1)
                return len(set(values)) == 1
            case "GreaterThan":
                self.start = max(self.start, least + 1)
            case "GreaterThanOrEqual":
                self.start = max(self.start, least)
            case "LessThan":
                self.end = min(self.end, most)
            case "LessThanOrEqual":
                self.end = min(self.end, most + 1)
            case _:
                return False
        return True

    def _time(self, kind: str, values: list[Any]) -> None:
        least, most = ((time - _EPOCH) // dt.timedelta(milliseconds=1) for time in (min(values), max(values)))
        if kind in {"EqualTo", "EqualNullSafe", "In", "GreaterThan", "GreaterThanOrEqual"}:
            self.since_ms = max(self.since_ms, least)
        if kind in {"EqualTo", "EqualNullSafe", "In", "LessThan", "LessThanOrEqual"}:
            self.until_ms = min(self.until_ms, most)

    def _has(self, item: OffsetRange) -> bool:
        return all(_OF_A_RANGE[kind](getattr(item, name), value) != negated for name, kind, value, negated in self.ranges)

    def narrowed(self, ranges: list[OffsetRange], reader: OffsetReader) -> list[OffsetRange]:
        """What is left of the ranges."""
        if self.until_ms < self.since_ms:
            return []
        kept = [OffsetRange(item.topic, item.partition, max(item.start, self.start), min(item.end, self.end)) for item in ranges if self._has(item)]
        kept = [item for item in kept if item.size > 0]
        if self.since_ms <= 0:  # records of old releases have no time: it is -1 then
            return kept
        first = reader.first_at({item.tp: self.since_ms for item in kept})
        starts = {tp: offset for tp, offset in first.items() if offset is not None}
        return [OffsetRange(item.topic, item.partition, max(item.start, starts[item.tp]), item.end) for item in kept if item.tp in starts]


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
