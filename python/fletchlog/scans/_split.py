"""A plan in parts that other processes read."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from fletchlog import _place
from fletchlog._core import Broker, Cluster
from fletchlog.errors import InvalidArgumentError
from fletchlog.scans._predicate import Box

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fletchlog.scans._plan import TopicScan
    from fletchlog.scans._ranges import Range


def parts(plan: TopicScan) -> list[TopicScan]:
    """Plans that read a partition, or a range of one, each; together they read what the plan reads, to the ends that the partitions have now.

    A plan with a limit is one part.

    Raises:
        fletchlog.errors.InvalidArgumentError: The source is an open `Broker` or `Cluster`, which another process cannot use.
        fletchlog.errors.KafkaError: As for `TopicScan.ranges`.
    """
    if isinstance(plan.source, Broker | Cluster):
        raise InvalidArgumentError(f"{plan.source!r} is open in this process and tasks are in others: give the path or the address")
    if plan.limit is not None:
        return [plan]
    return list(_parts(plan))


def _parts(plan: TopicScan) -> Iterator[TopicScan]:
    committed = plan.isolation_level == "read_committed"
    with _place.at(plan.source, config=plan.config, storage_options=plan.storage_options) as place:
        for one in plan.ranges():
            for described in place.describe_topic(one.topic).partitions:
                if one.partition in {None, described.partition}:
                    yield _part(plan, one, described.partition, described.last_stable_offset if committed else described.high_watermark)


def _part(plan: TopicScan, one: Range, partition: int, log_end: int) -> TopicScan:
    first = one.start_offset or 0
    end = one.end_offset if log_end < 0 else min(log_end, log_end if one.end_offset is None else one.end_offset)
    box = Box(None, None, first, end if end is None else max(first, end), one.start_time, one.end_time)
    return replace(plan, topics=(one.topic,), partitions=(partition,), bounds=(box,))
