"""From boxes to what is read of each partition."""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING, NamedTuple

from fletchlog.scans._predicate import NEAR, Box

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from fletchlog._core import Broker, Cluster
    from fletchlog.admin import PartitionDescription

# a partition is read by this many ranges at most
MOST_RANGES = 16


class Range(NamedTuple):
    """What one call of `Broker.scan` or `Cluster.scan` reads.

    Attributes:
        topic: Topic.
        partition: One partition; None: all, each within the same bounds.
        start_offset: First offset; None: the log start.
        end_offset: End, exclusive; None: the end of the log.
        start_time: Only records of this time or later, ms since 1970; None: of any time.
        end_time: Only records before this time, ms since 1970; None: of any time.
    """

    topic: str
    partition: int | None = None
    start_offset: int | None = None
    end_offset: int | None = None
    start_time: int | None = None
    end_time: int | None = None


def ranges(place: Broker | Cluster, topic: str, boxes: Iterable[Box], named: Iterable[int] | None, first: int | None) -> Iterator[Range]:
    """What is read of a topic, by partition, and within one by offset; no two ranges of a partition overlap.

    Args:
        place: Where the topic is. It is asked for partitions and offsets only if the boxes are about them.
        topic: Topic.
        boxes: Which rows may be wanted.
        named: Partitions that the caller named, whether they exist or not; None: all.
        first: First offset, as the caller gave it: below the log start it is an error of the scan.

    Raises:
        fletchlog.errors.UnknownTopicOrPartitionError: There is no such topic.
    """
    wanted = [box for box in boxes if box.has(topic)]
    if not wanted:
        return
    if named is None and not any(box.partitions is not None or box.from_partition or box.first or box.end is not None for box in wanted):
        around = reduce(Box.hull, wanted)
        yield Range(topic, None, first, None, around.start_ms, around.end_ms)
        return
    described = {one.partition: one for one in place.describe_topic(topic).partitions}
    numbers = sorted(described) if named is None else sorted(set(named))
    of_each = {number: list(_of_partition(topic, number, wanted, described.get(number), first)) for number in numbers}
    shared = {tuple(one._replace(partition=None) for one in found) for found in of_each.values()}
    if named is None and len(shared) == 1 and len(found := next(iter(shared))) == 1:
        # one call reads the partitions of a cluster side by side
        yield found[0]
        return
    for found_of_one in of_each.values():
        yield from found_of_one


def _of_partition(topic: str, number: int, boxes: list[Box], described: PartitionDescription | None, first: int | None) -> Iterator[Range]:
    log_start = 0 if described is None else described.log_start_offset
    for box in _apart([box for box in boxes if box.has(topic, number)]):
        if box.end is not None and box.end <= max(log_start, box.first):
            continue
        # A bound of a predicate may be below the log start, a bound of the caller may not.
        start = box.first if box.first > log_start else first
        yield Range(topic, number, start, box.end, box.start_ms, box.end_ms)


def _apart(boxes: list[Box]) -> list[Box]:
    """Boxes of one partition by offset, joined where their offsets overlap or nearly touch."""
    apart: list[Box] = []
    for box in sorted(boxes, key=lambda one: one.first):
        if apart and (apart[-1].end is None or box.first - apart[-1].end <= NEAR):
            apart[-1] = apart[-1].hull(box)
        else:
            apart.append(box)
    while len(apart) > MOST_RANGES:
        nearest = min(range(1, len(apart)), key=lambda at: apart[at].first - (apart[at - 1].end or 0))
        apart[nearest - 1 : nearest + 1] = [apart[nearest - 1].hull(apart[nearest])]
    return apart
