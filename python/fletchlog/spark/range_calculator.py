"""Offset ranges that become Spark tasks. Spark: KafkaOffsetRangeCalculator."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fletchlog.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


# Bytes of an object store that one task reads, about.
TASK_BYTES = 128 << 20


@dataclass(frozen=True, order=True)
class OffsetRange:
    """Offsets `start` to `end` (exclusive) of one partition; some of them may hold no record."""

    topic: str
    partition: int
    start: int
    end: int

    @property
    def tp(self) -> TopicPartition:
        """Of which partition."""
        return TopicPartition(self.topic, self.partition)

    @property
    def size(self) -> int:
        """Offsets in it."""
        return self.end - self.start


def split(ranges: Iterable[OffsetRange], min_partitions: int | None, max_records_per_partition: int | None) -> list[OffsetRange]:
    """Drops empty ranges and cuts large ones, first by `max_records_per_partition`, then towards `min_partitions`.

    The number of ranges is only near `min_partitions`: small ranges stay whole, the others are cut in proportion to their size.
    """
    kept = [item for item in sorted(ranges) if item.size > 0]
    if max_records_per_partition is not None:
        kept = [part for item in kept for part in _cut(item, -(-item.size // max_records_per_partition))]
    if min_partitions is None or len(kept) >= min_partitions:
        return kept
    total = sum(item.size for item in kept)
    whole = {item for item in kept if _parts(item.size, total, min_partitions) == 1}
    rest = total - sum(item.size for item in whole)
    wanted = max(min_partitions - len(whole), 1)
    return [part for item in kept for part in _cut(item, 1 if item in whole else _parts(item.size, rest, wanted)) if part.size > 0]


def at_segments(ranges: Iterable[OffsetRange], segments_of: Callable[[TopicPartition], list[tuple[int, int]]]) -> list[OffsetRange]:
    """Cuts ranges where segments begin, which their names say, into tasks of some 128 MiB: each reads objects of its own.

    `segments_of`: base offset and bytes of each segment of a partition.
    """
    parts = []
    for item in ranges:
        segments = segments_of(item.tp)
        ends = [base for base, _ in segments[1:]] + [item.end]
        start, gathered = item.start, 0
        for (base, size), end in zip(segments, ends, strict=True):
            if end <= item.start or base >= item.end:
                continue
            if gathered >= TASK_BYTES and base > start:
                parts.append(OffsetRange(item.topic, item.partition, start, base))
                start, gathered = base, 0
            gathered += size
        parts.append(OffsetRange(item.topic, item.partition, start, item.end))
    return parts


def pack(ranges: Iterable[OffsetRange], max_partitions: int | None) -> list[tuple[OffsetRange, ...]]:
    """Ranges for at most `max_partitions` tasks of about the same size; neighbours share a task. None: one task for each range."""
    ranges = list(ranges)
    if max_partitions is None or len(ranges) <= max_partitions:
        return [(item,) for item in ranges]
    # each range counts one more than its records, because opening it also takes time
    total = sum(item.size + 1 for item in ranges)
    tasks: dict[int, list[OffsetRange]] = {}
    before = 0
    for item in ranges:
        tasks.setdefault(before * max_partitions // total, []).append(item)
        before += item.size + 1
    return [tuple(task) for task in tasks.values()]


def _parts(size: int, total: int, wanted: int) -> int:
    # Java's Math.round: halves go up
    return max(math.floor(size / total * wanted + 0.5), 1)


def _cut(item: OffsetRange, parts: int) -> list[OffsetRange]:
    pieces, start, remaining = [], item.start, item.size
    for index in range(parts):
        size = remaining // (parts - index)
        pieces.append(OffsetRange(item.topic, item.partition, start, start + size))
        start += size
        remaining -= size
    return pieces
