"""In which order partitions are asked for, and the hash table behind it (spec 7.2: walk order of Java's tables)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from fletchlog._core import hash_buckets, java_hash, parse_release

if TYPE_CHECKING:
    from collections.abc import Sequence


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


def places(order: Sequence[tuple[str, int, int]], release: str, *, subscribe: bool) -> tuple[list[Place], int | None]:
    """The partitions of `order` (topic, partition, leader) with their buckets, and the size of the table."""
    table = hash_buckets([(topic, partition) for topic, partition, _ in order], parse_release(release), subscribe)
    size, buckets = table if table is not None else (None, [None] * len(order))
    found = [Place(topic, partition, node, java_hash(topic, partition), bucket) for (topic, partition, node), bucket in zip(order, buckets, strict=True)]
    return found, size
