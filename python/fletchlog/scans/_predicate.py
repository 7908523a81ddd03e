"""Predicates that engines push down, as far as they bound what is read: a small tree, and the boxes of it.

An engine's expression becomes a tree of `And`, `Or`, `Compare` and `IsIn`; a part that is anything else is None. The boxes of a tree contain every row that
the predicate keeps, and maybe more: the predicate is applied to the rows in any case.
"""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import Any

# of offsets and of ms since 1970
MOST = 2**63 - 1
# Beyond it a conjunction keeps the boxes of one side, and a set of offsets becomes one range.
MOST_BOXES = 64
# a bound above it bounds nothing
MOST_PARTITIONS = 100_000
# Ranges of offsets are read as one if so few lie between them: a record batch is read whole, and every range is a seek.
NEAR = 1000

NS_PER_MS = 1_000_000
# in place of one of these, their mirror, if the literal is on the left
FLIPPED = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "==": "==", "!=": "!="}
_NEGATED = {"<": ">=", "<=": ">", ">": "<=", ">=": "<", "==": "!=", "!=": "=="}


class Compare(NamedTuple):
    """`column op value`. A timestamp's value is in nanoseconds since 1970."""

    column: str
    op: str
    value: Any


class IsIn(NamedTuple):
    """`column in values`."""

    column: str
    values: tuple[Any, ...]


class And(NamedTuple):
    """All parts."""

    parts: tuple[Predicate, ...]


class Or(NamedTuple):
    """Any part."""

    parts: tuple[Predicate, ...]


Predicate: TypeAlias = Compare | IsIn | And | Or | None
# `false`
NOTHING = Or(())


class Box(NamedTuple):
    """Rows of these topics and partitions (None: of all), from a partition on, with offsets in [first, end) and timestamps in [start_ms, end_ms).

    None is no bound.
    """

    topics: frozenset[str] | None = None
    partitions: frozenset[int] | None = None
    first: int = 0
    end: int | None = None
    start_ms: int | None = None
    end_ms: int | None = None
    from_partition: int = 0

    def has(self, topic: str, partition: int | None = None) -> bool:
        """Whether it may have rows of this topic, and partition."""
        if self.topics is not None and topic not in self.topics:
            return False
        return partition is None or (partition >= self.from_partition and (self.partitions is None or partition in self.partitions))

    def meet(self, other: Box) -> Box | None:
        """The rows of both; None if there can be none."""
        topics = _both(self.topics, other.topics)
        from_partition = max(self.from_partition, other.from_partition)
        partitions = _both(self.partitions, other.partitions)
        if partitions is not None:
            partitions = frozenset(number for number in partitions if number >= from_partition)
        first = max(self.first, other.first)
        end = _least(self.end, other.end)
        start_ms = other.start_ms if self.start_ms is None else self.start_ms if other.start_ms is None else max(self.start_ms, other.start_ms)
        end_ms = _least(self.end_ms, other.end_ms)
        empty = topics == frozenset() or partitions == frozenset() or first > MOST
        if empty or (end is not None and first >= end) or (end_ms is not None and start_ms is not None and start_ms >= end_ms):
            return None
        return Box(topics, partitions, first, end, start_ms, end_ms, from_partition)

    def hull(self, other: Box) -> Box:
        """The smallest box around both."""
        topics = None if self.topics is None or other.topics is None else self.topics | other.topics
        partitions = None if self.partitions is None or other.partitions is None else self.partitions | other.partitions
        return Box(
            topics,
            partitions,
            min(self.first, other.first),
            _greatest(self.end, other.end),
            None if self.start_ms is None or other.start_ms is None else min(self.start_ms, other.start_ms),
            _greatest(self.end_ms, other.end_ms),
            min(self.from_partition, other.from_partition),
        )


def negated(predicate: Predicate) -> Predicate:
    """`not`: what is null stays null."""
    if isinstance(predicate, Compare):
        return predicate._replace(op=_NEGATED[predicate.op]) if predicate.op in _NEGATED else None
    if isinstance(predicate, IsIn):
        return And(tuple(Compare(predicate.column, "!=", value) for value in predicate.values))
    if predicate is None:
        return None
    parts = tuple(map(negated, predicate.parts))
    return Or(parts) if isinstance(predicate, And) else And(parts)


def boxes(predicate: Predicate) -> tuple[Box, ...]:
    """Boxes that together contain every row for which the predicate is true. No box: it is true for none."""
    if isinstance(predicate, And):
        met: tuple[Box, ...] = (Box(),)
        for part in _parts(predicate, And):
            met = both(met, boxes(part))
        return met
    if isinstance(predicate, Or):
        return few(box for part in _parts(predicate, Or) for box in boxes(part))
    if isinstance(predicate, IsIn):
        return _of_values(predicate.column, predicate.values)
    if isinstance(predicate, Compare):
        is_either = predicate.op == "!=" and predicate.column == "partition"
        parts = [predicate._replace(op=op) for op in "<>"] if is_either else [predicate]
        return tuple(box for part in parts if (box := _of_comparison(part)) is not None)
    return (Box(),)


def _parts(predicate: And | Or, kind: type[And | Or]) -> Iterator[Predicate]:
    """What is joined by `and` (or `or`), however deep: `a or b or c` is `(a or b) or c`."""
    left: list[Predicate] = [predicate]
    while left:
        part = left.pop()
        if isinstance(part, kind):
            left.extend(reversed(part.parts))
        else:
            yield part


def both(left: tuple[Box, ...], right: tuple[Box, ...]) -> tuple[Box, ...]:
    """Boxes with every row that is in one of `left` and in one of `right`."""
    if len(left) * len(right) > MOST_BOXES:
        return min(left, right, key=len)
    return few(box for one, other in product(left, right) if (box := one.meet(other)) is not None)


def few(many: Iterable[Box]) -> tuple[Box, ...]:
    """The boxes, each once; one around all of them if they are too many."""
    kept = tuple(dict.fromkeys(many))
    if len(kept) <= MOST_BOXES:
        return kept
    around = kept[0]
    for box in kept[1:]:
        around = around.hull(box)
    return (around,)


def _of_values(column: str, values: tuple[Any, ...]) -> tuple[Box, ...]:
    known = [value for value in values if value is not None]
    if column == "topic" and all(isinstance(value, str) for value in known):
        return (Box(topics=frozenset(known)),) if known else ()
    numbers = sorted(value for value in known if type(value) is int)
    if column not in {"partition", "offset", "timestamp"} or len(numbers) != len(known):
        return (Box(),)
    if not numbers:
        return ()
    if column == "partition":
        return (Box(partitions=frozenset(numbers)),)
    if column == "timestamp":
        around = _times(numbers[0], numbers[-1] + 1)
        return () if around is None else (around,)
    runs = [[numbers[0], numbers[0]]]
    for number in numbers[1:]:
        if number - runs[-1][1] <= NEAR:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return few(box for low, high in runs if (box := _offsets(low, high + 1)) is not None)


def _of_comparison(predicate: Compare) -> Box | None:
    """The box of a comparison; None: no row."""
    column, op, value = predicate
    if value is None:
        return None
    if column == "topic":
        return Box(topics=frozenset((value,))) if op == "==" and isinstance(value, str) else Box()
    if type(value) is not int or op not in FLIPPED:
        return Box()
    low = {">=": value, ">": value + 1, "==": value}.get(op)
    end = {"<": value, "<=": value + 1, "==": value + 1}.get(op)
    if column == "offset":
        return _offsets(low, end)
    if column == "timestamp":
        return _times(low, end)
    if column == "partition":
        return _partitions(low, end)
    return Box()


def _partitions(low: int | None, end: int | None) -> Box | None:
    named = None if end is None or end > MOST_PARTITIONS else frozenset(range(max(low or 0, 0), end))
    return Box().meet(Box(partitions=named, from_partition=max(low or 0, 0)))


def _offsets(low: int | None, end: int | None) -> Box | None:
    return Box().meet(Box(first=max(low or 0, 0), end=None if end is None or end > MOST else end))


def _times(low_ns: int | None, end_ns: int | None) -> Box | None:
    """Timestamps in the log are whole milliseconds: [low, end) in nanoseconds begins and ends at the next one. What is before 1970 bounds nothing."""
    low = None if low_ns is None else -(-low_ns // NS_PER_MS)
    end = None if end_ns is None else -(-end_ns // NS_PER_MS)
    if low is not None and low > MOST:
        return None
    return Box().meet(Box(start_ms=low if low is not None and low > 0 else None, end_ms=end if end is not None and 0 < end <= MOST else None))


def _both(one: frozenset[Any] | None, other: frozenset[Any] | None) -> frozenset[Any] | None:
    return other if one is None else one if other is None else one & other


def _least(one: int | None, other: int | None) -> int | None:
    return other if one is None else one if other is None else min(one, other)


def _greatest(one: int | None, other: int | None) -> int | None:
    return None if one is None or other is None else max(one, other)
