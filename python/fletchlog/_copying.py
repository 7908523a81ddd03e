"""Copying topics between directories and clusters, once and in order, even if processes are killed.

```text
read       records that are committed, partition by partition; control records and
           aborted ones are left out, so offsets may become smaller
write      one transaction for what was read of one partition or several, and with it
           the offsets to continue at: an entry of the destination's ledger
           (fletchlog/ledger.py)
again      a copy that was killed leaves a transaction that the next one aborts; it
           continues where the ledger says
```
The entry is that of the ids of both topics. So another address of the same cluster, or a moved directory, is the same source, and a topic that was deleted and
made again is another one. A topic whose log has no id is known by its name and the id of its cluster. A destination that has records and no entry is an error:
nobody knows whether they are a copy. Of two copies of one topic at the same time the later one fences the earlier one. Kafka: KIP-98, KIP-447.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import time
from typing import TYPE_CHECKING, Any, NamedTuple

from fletchlog import ledger
from fletchlog._core import Broker, Cluster, Producer
from fletchlog._place import STORE, Place, at, refuse_within
from fletchlog._whole import described_whole
from fletchlog.admin import NewTopic
from fletchlog.errors import IllegalStateError, InvalidArgumentError, KafkaError, OffsetOutOfRangeError, ReadOnlyError, UnknownTopicOrPartitionError
from fletchlog.interop import require

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    import pyarrow as pa

    from fletchlog._place import Source
    from fletchlog.admin import PartitionDescription, TopicDescription
    from fletchlog.types import TopicPartition

log = logging.getLogger("fletchlog.copying")

PREFIX = "fletchlog-copy-"
# columns of a scan that a record is made of; its offset is new
_SENT = ["value", "key", "timestamp", "partition", "headers"]
# A copied record keeps its time.
_OWN = {"message.timestamp.type": "CreateTime"}
# Of the place where a topic is, not of the topic.
_OF_THE_PLACE = ("follower.replication.throttled.replicas", "leader.replication.throttled.replicas")
_BATCH_ROWS = 50_000
# What was read is committed from so much on. A transaction has a price for each partition of the topic, so small partitions share one.
_BATCH_BYTES = 1 << 20
_BATCH_S = 1.0
_MOST_BATCHES = 256


class CopiedTopic(NamedTuple):
    """What `copy` did for one topic.

    Attributes:
        topic: Name.
        records: Records that this call copied.
        skipped: Offsets that retention took from the source before they were copied, by partition: (first, end). Also logged, as warnings.
    """

    topic: str
    records: int
    skipped: dict[int, tuple[int, int]]


class _Side:
    """The source or the destination, and the properties of its clients."""

    def __init__(self, admin: Broker | Cluster, config: Mapping[str, Any] | None) -> None:
        self.admin = admin
        self.config = dict(config or {})


def copy(
    source: Source,
    destination: Source,
    topics: Iterable[str] = (),
    *,
    source_config: Mapping[str, Any] | None = None,
    destination_config: Mapping[str, Any] | None = None,
    create: bool = False,
    append: bool = False,
    start_offsets: Mapping[TopicPartition, int] | Mapping[tuple[str, int], int] | None = None,
    on_progress: Callable[[str, int], object] | None = None,
) -> list[CopiedTopic]:
    """Copies topics up to their ends as of now: keys, values, headers, timestamps and partitions; a second call copies what is new.

    Topics that the destination lacks are made with the partitions and properties of the source. Each record arrives exactly once, in the order of
    its partition, for readers with `isolation.level=read_committed`; others may also see what a killed copy left. Offsets are those of the
    destination. A record without a timestamp gets the time of copying, as with Kafka's MirrorMaker.

    How far a topic is copied is a record in the destination's topic `__fletchlog_ledger`, which does not expire. A destination's topic that has records, but
    no entry of this source there, is an error: they may be a copy whose entry is lost, or come from elsewhere. `append` and `start_offsets` say what
    to do then; where there is an entry, they have no effect.

    Args:
        source: A `Broker`, a `Cluster`, `"kafka://HOST:PORT,..."`, or the path of a directory or of a place on an object store, which is opened for reading.
        destination: Likewise; a directory is opened for writing.
        topics: Names; none: all but Kafka's internal ones and the ledger.
        source_config: Properties of clients of the source, if it is a cluster.
        destination_config: Properties of clients of the destination, if it is a cluster.
        create: Make the destination's directory, if there is none at this path.
        append: Append the source from its beginning to topics that have records of which the ledger knows nothing.
        start_offsets: For such topics: the offset of the source to continue at, for each partition.
        on_progress: Called as `on_progress(topic, records)` after each transaction.

    Raises:
        fletchlog.errors.UnknownTopicOrPartitionError: The source has no such topic.
        fletchlog.errors.IllegalStateError: The destination's topic has records, and the ledger has no entry of this source; or the source ends before
            the offsets that were copied; or its topic was made again while it was copied.
        fletchlog.errors.OffsetOutOfRangeError: Retention took a second range of one partition while it was copied.
        fletchlog.errors.InvalidArgumentError: The destination's topic has fewer partitions, or is the source itself; no such source or destination.
        fletchlog.errors.KafkaError: As the clients raise it. What was copied until then stays, and the next call continues.
    """
    starts = {(topic, partition): offset for (topic, partition), offset in (start_offsets or {}).items()}
    with contextlib.ExitStack() as stack:
        _refuse_store(destination)
        refuse_within(destination, source, "copied")
        read = _Side(stack.enter_context(_opened("source", source, source_config)), source_config)
        into = _opened("destination", destination, destination_config, read_only=False, create=create)
        write = _Side(stack.enter_context(into), destination_config)
        if isinstance(write.admin, Broker) and write.admin.read_only:
            raise ReadOnlyError("the destination is open for reading only; open it with fletchlog.Broker(PATH)")
        known = dict.fromkeys(name for name in read.admin.topics() if name != ledger.TOPIC)
        names = dict.fromkeys([topics] if isinstance(topics, str) else topics) or known
        for name in names:
            if name == ledger.TOPIC:
                raise InvalidArgumentError(f"topic {name} is the ledger of copies and writes into the source; it is not copied")
            if name not in known:
                raise UnknownTopicOrPartitionError(f"the source has no topic {name}; it has {', '.join(known) or 'none'}")
        described = [described_whole(read.admin, name) for name in names]
        _check_starts(starts, described)
        _create_missing(write, described)
        entries = ledger.Ledger(write.admin, write.admin, write.config)
        return [_Copy(read, write, topic, entries, on_progress or (lambda *_: None)).run(starts, append=append) for topic in described]


def _opened(side: str, place: Source, config: Mapping[str, Any] | None, **options: Any) -> contextlib.AbstractContextManager[Broker | Cluster]:
    """What is open already has its own properties; these are for the clients of the copy."""
    return at(place, what=side, config=None if isinstance(place, Broker | Cluster) else config, **options)


def _refuse_store(destination: Source) -> None:
    if isinstance(destination, str | os.PathLike) and (place := Place(destination)).kind == STORE:
        raise InvalidArgumentError(f"the destination {place} is an object store, which is only read; fletchlog.transfer.export brings a directory there")


def _check_starts(starts: Mapping[tuple[str, int], int], topics: Iterable[TopicDescription]) -> None:
    """All partitions of a topic or none: a partition that was forgotten would be copied again."""
    left = dict(starts)
    for topic in topics:
        numbers = [p.partition for p in topic.partitions]
        given = [number for number in numbers if (topic.name, number) in left]
        if given and given != numbers:
            missing = [number for number in numbers if number not in given]
            raise InvalidArgumentError(f"start_offsets has no offset for partitions {missing} of topic {topic.name}; give one for each partition")
        for p in topic.partitions:
            offset = left.pop((topic.name, p.partition), 0)
            if not 0 <= offset <= p.high_watermark:
                raise InvalidArgumentError(f"start_offsets: {topic.name}-{p.partition} has offsets up to {p.high_watermark}, not {offset}")
    if left:
        raise InvalidArgumentError(f"start_offsets names partitions that are not copied: {', '.join(f'{topic}-{number}' for topic, number in sorted(left))}")


class _Copy:
    """The copy of one topic."""

    def __init__(self, read: _Side, write: _Side, source: TopicDescription, entries: ledger.Ledger, on_progress: Callable[[str, int], object]) -> None:
        self.read, self.write, self.source, self.ledger, self.on_progress = read, write, source, entries, on_progress
        self.name = source.name
        there = write.admin.describe_topic(self.name)
        _check_partitions(source, there)
        if _is_same(read, write, source, there):
            raise InvalidArgumentError(f"topic {self.name}: source and destination are the same")
        into = ledger.lasting_names(write.admin, there)[0]
        # the first one is used from now on; an entry may be there under a later one
        self.keys = [("copy", name, into) for name in ledger.lasting_names(read.admin, source)]
        self.replaced: tuple[str, ...] = ()
        digest = hashlib.blake2b(repr(self.keys[0]).encode(), digest_size=8).hexdigest()
        self.transactional_id = f"{PREFIX}{self.name}-{digest}"
        self.positions: dict[str, int] = {}
        self.written: dict[str, int] | None = None
        # what was read and is not committed, and when the last transaction was
        self.batches: list[pa.RecordBatch] = []
        self.rows = self.bytes = 0
        self.committed_at = time.monotonic()
        self.records = 0
        self.skipped: dict[int, tuple[int, int]] = {}

    def run(self, starts: Mapping[tuple[str, int], int], *, append: bool) -> CopiedTopic:
        """Up to the ends that the source was described with."""
        self.ledger.create()
        config = {**ledger.PRODUCER, **self.write.config, "transactional.id": self.transactional_id, "linger.ms": "5"}
        with Producer(self.write.admin, config) as producer:
            with self.ledger.rights():
                producer.init_transactions()  # ends what a killed copy left, and fences one that runs
            self.find_positions(starts, append=append)
            for p in self.source.partitions:
                # from here on the next copy knows what retention has taken in between
                self.positions.setdefault(str(p.partition), p.log_start_offset)
            self.commit(producer)
            for batch in self.read_all(producer):
                self.keep(batch)
                if self.rows >= _BATCH_ROWS or self.bytes >= _BATCH_BYTES or time.monotonic() >= self.committed_at + _BATCH_S:
                    self.commit(producer)
            self.commit(producer)
        return CopiedTopic(self.name, self.records, self.skipped)

    def find_positions(self, starts: Mapping[tuple[str, int], int], *, append: bool) -> None:
        """Where to continue: what the ledger says, or else the caller."""
        for key in self.keys:
            if (entry := self.ledger.read(*key)) is not None:
                self.positions = dict(entry["positions"])
                if key == self.keys[0]:
                    self.written = dict(self.positions)
                else:
                    self.replaced = key
                return
        numbers = [p.partition for p in self.source.partitions]
        given = {str(number): starts[self.name, number] for number in numbers if (self.name, number) in starts}
        if not given and not append and ledger.has_records(self.write.admin, self.name):
            raise IllegalStateError(
                f"topic {self.name}: the destination has records, and no entry of this source in its ledger, topic {ledger.TOPIC}: they may be a copy "
                "whose entry is lost, or another source's. Nothing was copied. To append the source from its beginning: append=True (--append); to continue "
                f"at an offset of the source: start_offsets={{('{self.name}', 0): OFFSET}} (--start-offset {self.name}:0=OFFSET)"
            )
        self.positions = given

    def keep(self, batch: pa.RecordBatch) -> None:
        """For the next transaction. Batches of a few rows become one: each takes some 16 KiB, whatever is in it."""
        self.batches.append(batch)
        self.rows += batch.num_rows
        self.bytes += batch.nbytes
        if len(self.batches) == _MOST_BATCHES:
            table = require("pyarrow", "arrow").Table.from_batches(self.batches)
            self.batches = table.combine_chunks().to_batches()

    def commit(self, producer: Producer) -> None:
        """One transaction for what was read, and for the positions behind it."""
        if self.positions == self.written:
            return
        self.source_now()
        with producer.transaction():
            for batch in self.batches:
                producer.send_arrow(self.name, batch)
            self.ledger.write(producer, {"topic": self.name, "positions": self.positions}, *self.keys[0], instead_of=self.replaced)
        self.written, self.replaced = dict(self.positions), ()
        count = self.rows
        self.batches, self.rows, self.bytes, self.committed_at = [], 0, 0, time.monotonic()
        self.records += count
        if count:
            self.on_progress(self.name, count)

    def read_all(self, producer: Producer) -> Iterator[pa.RecordBatch]:
        """Of all partitions. What was read before an error of a later one is committed."""
        try:
            for partition in self.source.partitions:
                yield from self.read_partition(partition)
        except KafkaError:
            self.commit(producer)
            raise

    def read_partition(self, p: PartitionDescription) -> Iterator[pa.RecordBatch]:
        """Committed records of a partition, and behind what retention takes meanwhile."""
        number = str(p.partition)
        if self.positions[number] > p.high_watermark:
            raise IllegalStateError(
                f"{self.name}-{p.partition}: the source ends at offset {p.high_watermark}, and was copied up to {self.positions[number]} before: it has lost "
                "records, or is an older state of the log. Copy it into another destination, or into a new topic"
            )
        start, end = p.log_start_offset, p.last_stable_offset
        while True:
            if self.positions[number] < start:
                self.skip(p.partition, start)
            if self.positions[number] >= end:
                return
            try:
                yield from self.read_range(p.partition, end)
            except OffsetOutOfRangeError:
                start = next(now.log_start_offset for now in self.source_now().partitions if now.partition == p.partition)
                if start <= self.positions[number]:
                    raise
            except UnknownTopicOrPartitionError:
                self.source_now()  # says what this means for a copy
                raise
            else:
                # behind the last rows there may be offsets without any
                self.positions[number] = end
                return

    def skip(self, partition: int, start: int) -> None:
        """Goes on where the source begins now. What is left out is logged too: an error later on would take the result away."""
        begin = self.positions[str(partition)]
        first, behind = self.skipped.get(partition, (begin, begin))
        if behind != begin:
            raise OffsetOutOfRangeError(
                f"{self.name}-{partition}: the source no longer has offsets {begin} to {start - 1}, and {first} to {behind - 1} were skipped before: "
                "retention is faster than the copy. What was copied stays; the next call continues there, and reports what is gone by then"
            )
        log.warning("%s-%s: the source no longer has offsets %s to %s; they are not copied", self.name, partition, begin, start - 1)
        self.skipped[partition] = (first, start)
        self.positions[str(partition)] = start

    def read_range(self, partition: int, end: int) -> Iterator[pa.RecordBatch]:
        """From the position of a partition on; it moves with the rows."""
        scan = self.read.admin.scan(
            self.name,
            partition,
            start_offset=self.positions[str(partition)],
            end_offset=end,
            batch_rows=_BATCH_ROWS,
            include_headers=True,
            isolation_level="read_committed",
            timestamp_unit="ms",  # holds every timestamp of Kafka's
        )
        for batch in scan:
            self.positions[str(partition)] = batch["offset"][-1].as_py() + 1
            yield batch.select(_SENT)

    def source_now(self) -> TopicDescription:
        """The source's topic. Asked after records were read: a scan that begins later is of the topic that has the name by then.

        Raises:
            IllegalStateError: It is another topic.
            UnknownTopicOrPartitionError: It is gone.
        """
        now = described_whole(self.read.admin, self.name)
        if now.topic_id != self.source.topic_id:
            raise IllegalStateError(f"topic {self.name} of the source was deleted and made again while it was copied; what came before that is copied")
        return now


def _is_same(read: _Side, write: _Side, source: TopicDescription, there: TopicDescription) -> bool:
    """Whether a topic would be copied into itself. A copy of a directory's files has the same ids."""
    if read.admin is write.admin:
        return True
    if isinstance(read.admin, Broker) and isinstance(write.admin, Broker):
        return (path := ledger.path_of(read.admin)) is not None and path == ledger.path_of(write.admin)
    return source.topic_id == there.topic_id and read.admin.cluster_id == write.admin.cluster_id


def _create_missing(write: _Side, topics: Iterable[TopicDescription]) -> None:
    """Makes the topics that the destination lacks: a directory's with one write of its metadata, a cluster's one after the other."""
    there = set(write.admin.topics())
    missing = [_like(topic, write) for topic in topics if topic.name not in there]
    for some in [missing] if isinstance(write.admin, Broker) else [[topic] for topic in missing]:
        write.admin.create_topics(some)


def _like(described: TopicDescription, write: _Side) -> NewTopic:
    """A topic with the partitions and the properties of another one."""
    ours = isinstance(write.admin, Broker)
    if described.config is None:
        log.warning("the source does not let this client read the properties of topic %s: it is made with those of the destination", described.name)
    config: dict[str, Any] = {
        key: value for key, value in (described.config or {}).items() if key not in _OF_THE_PLACE and (ours or not key.startswith("fletchlog."))
    }
    return NewTopic(described.name, _count(described), config | _OWN)


def _count(described: TopicDescription) -> int:
    """Of partitions; a Kafka broker's directory may lack some of them."""
    return max(p.partition for p in described.partitions) + 1


def _check_partitions(source: TopicDescription, there: TopicDescription) -> None:
    if len(there.partitions) < _count(source):
        raise InvalidArgumentError(
            f"topic {source.name} has {_count(source)} partitions at the source and {len(there.partitions)} at the destination; give it more first"
        )
