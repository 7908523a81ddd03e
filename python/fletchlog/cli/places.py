"""Where `fletchlog consume` begins and ends in each partition."""

from __future__ import annotations

import time
from collections import deque
from typing import TYPE_CHECKING, Any

from fletchlog.cli import times
from fletchlog.cli.common import CommandError
from fletchlog.cli.text import note

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import fletchlog as fl

    Offsets = dict[fl.TopicPartition, int]
    """Per partition an offset."""

RESETS = ("earliest", "latest")
# Between two looks at the topics.
_CHECK_S = 1.0
_POLL_MS = 200


def partitions(described: Sequence[fl.admin.TopicDescription], numbers: Sequence[int] | None) -> list[fl.TopicPartition]:
    """The partitions of these topics, or those with these numbers.

    Raises:
        CommandError: A topic lacks one.
    """
    import fletchlog as fl

    for topic in described:
        there = {p.partition for p in topic.partitions}
        for number in numbers or ():
            if number not in there:
                raise CommandError(f"{topic.name} has no partition {number}; it has {len(there)}")
    return [fl.TopicPartition(t.name, p.partition) for t in described for p in t.partitions if numbers is None or p.partition in numbers]


class Existing:
    """Topics that a command reads up to a place that it has found at the beginning: a topic that is deleted never gets there.

    Attributes:
        gone: Names of those that were found to be deleted, or made anew.
    """

    def __init__(self, broker: fl.Broker | fl.Cluster, described: Sequence[fl.admin.TopicDescription]) -> None:
        self._broker = broker
        self._described = described
        self._next = 0.0
        self.gone: list[str] = []

    def check(self, *, now: bool = False) -> None:
        """Looks at the topics: now, or once a second at most.

        Raises:
            CommandError: One is gone.
        """
        if not now and time.monotonic() < self._next:
            return
        missing = self._missing()
        if missing:
            time.sleep(_CHECK_S)  # a node that has just started may not show a topic yet
            missing &= self._missing()
        self._next = time.monotonic() + _CHECK_S
        if missing:
            self.gone = sorted(missing)
            raise CommandError(f"topic {' and topic '.join(self.gone)} was deleted while it was read: what came before that has been written")

    def _missing(self) -> set[str]:
        """Topics that are not shown, or that have another id."""
        from fletchlog.errors import UnknownTopicOrPartitionError

        found = set()
        for topic in self._described:
            try:
                if self._broker.describe_topic(topic.name).topic_id != topic.topic_id:
                    found.add(topic.name)
            except UnknownTopicOrPartitionError:
                found.add(topic.name)
        return found


def at(consumer: Any, found: Sequence[fl.TopicPartition], milliseconds: int, ends: Offsets) -> Offsets:
    """Per partition the first record at or after a time; its end if there is none. Kafka: `KafkaConsumer#offsetsForTimes`."""
    if milliseconds < 0:
        return consumer.beginning_offsets(found)  # type: ignore[no-any-return]
    answers = consumer.offsets_for_times(dict.fromkeys(found, milliseconds))
    return {tp: ends[tp] if answers[tp] is None else answers[tp].offset for tp in found}


def seek(consumer: Any, found: Sequence[fl.TopicPartition], start: str, offset: int | None, tail: int | None, existing: Existing) -> None:
    """Assigns partitions and goes to the first record of each that is wanted."""
    begin, ends = consumer.beginning_offsets(found), consumer.end_offsets(found)
    if tail is not None:
        starts = {tp: _tail(consumer, tp, tail, begin[tp], ends[tp], existing) for tp in found}
    elif offset is not None:
        starts = {tp: min(max(offset, begin[tp]), ends[tp]) for tp in found}
        for tp, first in begin.items():
            if first > offset:
                note(f"{tp} begins at {first}")
    elif start in RESETS:
        starts = begin if start == "earliest" else ends
    else:
        starts = at(consumer, found, times.when("--from", start), ends)
    consumer.assign(found)
    for tp, place in starts.items():
        consumer.seek(tp, place)


def poll(consumer: Any, existing: Existing | None, *, skip: bool) -> Any:
    """Polls. With `skip` and `auto.offset.reset=none`, records that were deleted before they were read are left out, which is said.

    Raises:
        CommandError: A topic is gone, so that its offsets are not there any more.
    """
    from fletchlog.errors import OffsetOutOfRangeError, StorageError

    while True:
        try:
            return consumer.poll(timeout_ms=_POLL_MS)
        except (OffsetOutOfRangeError, StorageError) as error:
            # a reader of a directory may miss the files of a deleted topic first
            if existing is not None:
                existing.check(now=True)
            begin = consumer.beginning_offsets(consumer.assignment()) if skip and isinstance(error, OffsetOutOfRangeError) else {}
            gone = {tp: position for tp in begin if (position := consumer.position(tp)) < begin[tp]}
            if not gone:
                raise
            for tp, position in gone.items():
                note(f"{tp}: offsets {position} to {begin[tp] - 1} were deleted before they were read")
                consumer.seek(tp, begin[tp])


def _tail(consumer: Any, partition: fl.TopicPartition, number: int, begin: int, end: int, existing: Existing) -> int:
    """The offset of the last record but `number` - 1: there may be offsets without a record, of markers and of what compaction took."""
    from fletchlog.errors import OffsetOutOfRangeError

    consumer.assign([partition])
    back = number
    while True:
        start = max(begin, end - back)
        consumer.seek(partition, start)
        last: deque[int] = deque(maxlen=number)
        while consumer.position(partition) < end:
            try:
                records = poll(consumer, existing, skip=False)
            except OffsetOutOfRangeError:
                # the last ones of what is left
                start = begin = consumer.beginning_offsets([partition])[partition]
                if begin <= consumer.position(partition):
                    raise
                consumer.seek(partition, begin)
                last.clear()
                continue
            if len(records):
                last.extend(offset for offset in records.to_pyarrow(timestamp_unit="ms")["offset"].to_pylist() if offset < end)
            else:
                existing.check()
        if len(last) == number or start == begin:
            return last[0] if last else max(begin, end)
        back *= 4


def of(batch: Any) -> set[fl.TopicPartition]:
    """The partitions of the records of a batch."""
    import fletchlog as fl

    return {fl.TopicPartition(*tp) for tp in zip(batch.column("topic").to_pylist(), batch.column("partition").to_pylist(), strict=True)}


def until(batch: Any, stops: Offsets) -> Any:
    """The rows of a batch that come before these offsets."""
    if not stops:
        return batch
    import pyarrow as pa
    import pyarrow.compute as pc

    kept: Any = None
    compute: Any = pc
    equal: Callable[..., Any] = compute.equal
    for tp, stop in stops.items():
        here = compute.and_(equal(batch.column("topic"), pa.scalar(tp.topic)), equal(batch.column("partition"), pa.scalar(tp.partition, pa.int32())))
        before = compute.invert(compute.and_(here, compute.greater_equal(batch.column("offset"), pa.scalar(stop, pa.int64()))))
        kept = before if kept is None else compute.and_(kept, before)
    return batch.filter(kept)
