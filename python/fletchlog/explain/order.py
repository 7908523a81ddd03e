"""In which order partitions are asked for, and the hash table behind it (spec 7.2: walk order of Java's tables).

The engine computes the order; the buckets are computed once more to show them, and left out if they would not lead to that order.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

# 4.2 (KAFKA-19820): the partitions of a subscription are sorted by name, no hash table is involved
SORTED_SINCE = (4, 2)


@dataclass(frozen=True)
class Place:
    """One partition in the order in which the consumer asks for them."""

    topic: str
    partition: int
    node: int
    hash: int
    bucket: int | None
    """Bucket of Java's hash table; None where no table decides."""

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


def java_hash(topic: str, partition: int) -> int:
    """Java's `TopicPartition.hashCode()` as a signed 32-bit number."""
    value = 0
    data = topic.encode("utf-16-be", "surrogatepass")
    for high, low in zip(data[::2], data[1::2], strict=True):
        value = (31 * value + (high << 8 | low)) & 0xFFFFFFFF
    value = (31 * (31 + partition) + value) & 0xFFFFFFFF
    return value - (1 << 32) if value >= 1 << 31 else value


def places(order: Sequence[tuple[str, int, int]], release: str, *, subscribe: bool) -> tuple[list[Place], int | None]:
    """The partitions of `order` (topic, partition, leader) with their buckets, and the size of the table."""
    buckets = None if subscribe and version(release) >= SORTED_SINCE else _table_size(len(order), preset=subscribe)

    def bucket(topic: str, partition: int) -> int | None:
        if buckets is None:
            return None
        value = java_hash(topic, partition) & 0xFFFFFFFF
        return (value ^ value >> 16) & (buckets - 1)

    found = [Place(topic, partition, node, java_hash(topic, partition), bucket(topic, partition)) for topic, partition, node in order]
    if buckets is not None and not _follows(found):
        return [Place(p.topic, p.partition, p.node, p.hash, None) for p in found], None
    return found, buckets


def version(release: str) -> tuple[int, int]:
    """A release's major and minor number."""
    major, _, rest = release.partition(".")
    return int(major), int(rest.partition(".")[0] or 0)


def _follows(found: list[Place]) -> bool:
    """Whether walking the buckets and putting topics together gives this order."""
    walked = sorted(found, key=lambda place: place.bucket if place.bucket is not None else -1)
    topics = list(dict.fromkeys(place.topic for place in walked))
    return [place for topic in topics for place in walked if place.topic == topic] == found


def _table_size(count: int, *, preset: bool) -> int:
    # new HashMap() begins with 16 buckets, new HashMap(n) with the power of two at or above n; both double above 3/4
    size = 1 << (max(count, 1) - 1).bit_length() if preset else 16
    while count * 4 > size * 3:
        size *= 2
    return size
