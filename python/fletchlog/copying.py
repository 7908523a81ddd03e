"""Copying topics between directories and clusters, once and in order, even if processes are killed.

```text
read       records that are committed, partition by partition; control records and
           aborted ones are left out, so offsets may become smaller
write      one transaction a batch, and with it the offset to go on at, as that of a
           consumer group: the ledger
again      a copy that was killed leaves a transaction that the next one aborts; it goes
           on where the ledger says
```
The ledger's group and the transactional id carry the id of the source's topic: another address of the same cluster, or a moved directory, goes on.
Of two copies of one topic at the same time the later one fences the earlier one. Kafka: KIP-98, KIP-447.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, NamedTuple

from fletchlog._core import Broker, Cluster, Consumer, Producer
from fletchlog.errors import InvalidArgumentError, OffsetOutOfRangeError, UnknownTopicOrPartitionError
from fletchlog.types import ConsumerGroupMetadata

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    import pyarrow as pa

    from fletchlog.types import TopicDescription

log = logging.getLogger("fletchlog.copying")

PREFIX = "fletchlog-copy-"
# columns of a scan that a record is made of; its offset is new
_SENT = ["value", "key", "timestamp", "partition", "headers"]
# A copied record keeps its time.
_OWN = {"message.timestamp.type": "CreateTime"}
# Of the place where a topic is, not of the topic.
_OF_THE_PLACE = ("follower.replication.throttled.replicas", "leader.replication.throttled.replicas")
_BATCH_ROWS = 50_000


class CopiedTopic(NamedTuple):
    """What `copy` did for one topic.

    Attributes:
        topic: Name.
        records: Records that this call copied.
        skipped: Offsets that retention took from the source before they were copied, by partition: (first, end).
    """

    topic: str
    records: int
    skipped: dict[int, tuple[int, int]]


class _Place:
    """A directory or a cluster: what administers it, and what its clients connect to."""

    def __init__(self, at: Broker | Cluster | str, config: Mapping[str, Any] | None) -> None:
        self.config = dict(config or {})
        self.admin: Broker | Cluster = Cluster(at, self.config) if isinstance(at, str) else at
        self.peer: Any = at
        self._owned = isinstance(at, str)

    def close(self) -> None:
        if self._owned:
            self.admin.close()


def copy(
    source: Broker | str,
    destination: Broker | str,
    topics: Iterable[str] = (),
    *,
    source_config: Mapping[str, Any] | None = None,
    destination_config: Mapping[str, Any] | None = None,
    on_progress: Callable[[str, int], object] | None = None,
) -> list[CopiedTopic]:
    """Copies topics up to their ends as of now: keys, values, headers, timestamps and partitions; a second call goes on.

    Topics that the destination lacks are made with the partitions and properties of the source. Each record arrives exactly once, in the order of
    its partition, for readers with `isolation.level=read_committed`; others may also see what a killed copy left. Offsets are those of the
    destination.

    Args:
        source: `Broker` or `"kafka://HOST:PORT,..."`.
        destination: Likewise.
        topics: Names; none: all but Kafka's internal ones.
        source_config: Properties of clients of the source, if it is a cluster.
        destination_config: Properties of clients of the destination, if it is a cluster.
        on_progress: Called as `on_progress(topic, records)` after each transaction.

    Raises:
        fletchlog.errors.UnknownTopicOrPartitionError: The source has no such topic.
        fletchlog.errors.InvalidArgumentError: The destination's topic has fewer partitions.
        fletchlog.errors.KafkaError: As the clients raise it. What was copied until then stays, and the next call goes on.
    """
    read = _Place(source, source_config)
    try:
        write = _Place(destination, destination_config)
        try:
            known = read.admin.topics()
            names = list(dict.fromkeys(topics)) or known
            for name in names:
                if name not in known:
                    raise UnknownTopicOrPartitionError(f"the source has no topic {name}; it has {', '.join(known) or 'none'}")
            return [_copy_topic(read, write, name, on_progress or (lambda *_: None)) for name in names]
        finally:
            write.close()
    finally:
        read.close()


def _copy_topic(read: _Place, write: _Place, name: str, on_progress: Callable[[str, int], object]) -> CopiedTopic:
    described = read.admin.describe_topic(name)
    _ensure_topic(write, described)
    # before 2.8 Kafka's topics have no ids
    ledger = PREFIX + (described.topic_id if described.topic_id.strip("A") else str(read.peer))
    partitions = [p.partition for p in described.partitions]
    records, skipped = 0, {}
    with Producer(write.peer, {**write.config, "transactional.id": f"{ledger}-{name}", "linger.ms": "5"}) as producer:
        producer.init_transactions()  # ends what a killed copy left, and fences one that runs
        with Consumer(write.peer, {**write.config, "group.id": ledger, "enable.auto.commit": "false"}) as consumer:
            committed = consumer.committed([(name, number) for number in partitions])
        done = {tp.partition: found.offset for tp, found in committed.items() if found is not None}
        for p in described.partitions:
            begin = done.get(p.partition, 0)
            if begin < p.log_start_offset:
                if p.partition in done:
                    skipped[p.partition] = (begin, p.log_start_offset)
                begin = p.log_start_offset
            if begin >= p.last_stable_offset:
                continue
            for batch in _batches(read, name, p.partition, begin, p.last_stable_offset):
                position = batch["offset"][-1].as_py() + 1
                with producer.transaction():
                    producer.send_arrow(name, batch.select(_SENT))
                    producer.send_offsets_to_transaction({(name, p.partition): position}, ConsumerGroupMetadata("", -1, ledger))
                records += batch.num_rows
                on_progress(name, batch.num_rows)
    return CopiedTopic(name, records, skipped)


def _batches(read: _Place, name: str, partition: int, begin: int, end: int) -> Iterable[pa.RecordBatch]:
    """Committed records of a partition, some at a time."""
    try:
        scan = read.admin.scan(
            name, partition, start_offset=begin, end_offset=end, batch_rows=_BATCH_ROWS, include_headers=True, isolation_level="read_committed"
        )
    except OffsetOutOfRangeError:  # retention was faster; the next call goes on behind what it took
        return
    yield from scan


def _ensure_topic(write: _Place, described: TopicDescription) -> None:
    """A topic of this name with at least as many partitions."""
    name, count = described.name, len(described.partitions)
    if name not in write.admin.topics():
        ours = isinstance(write.admin, Broker)
        if described.config is None:
            log.warning("the source does not let this client read the properties of topic %s: it is made with those of the destination", name)
        config = {key: value for key, value in (described.config or {}).items() if key not in _OF_THE_PLACE and (ours or not key.startswith("fletchlog."))}
        write.admin.create_topic(name, partitions=count, config={**config, **_OWN})
        return
    there = len(write.admin.describe_topic(name).partitions)
    if there < count:
        raise InvalidArgumentError(f"topic {name} has {count} partitions at the source and {there} at the destination; give it more first")
