"""The values and objects that calls take and return.

All values but `Metrics`, a dict, are tuples: comparable, picklable, hashable unless a field is a list or a dict. The others are made by the engine.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, Literal, NamedTuple, TypeAlias

from fletchlog._core import Clock, Listener, Proxy, RecordFuture, RecordIterator, RecordsToEnd, Scan, ScanRecords, Table, Transaction
from fletchlog._place import Source

if TYPE_CHECKING:
    import pyarrow as pa
    from typing_extensions import TypeVar

    K = TypeVar("K", default=bytes)
    V = TypeVar("V", default=bytes)
else:
    from typing import TypeVar

    K = TypeVar("K")
    V = TypeVar("V")

IsolationLevel: TypeAlias = Literal["read_uncommitted", "read_committed"]
ScanOrder: TypeAlias = Literal["offset", "timestamp"]
Column: TypeAlias = Literal["key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers"]
TimestampUnit: TypeAlias = Literal["us", "ms"]
ScramMechanism: TypeAlias = Literal["SCRAM-SHA-256", "SCRAM-SHA-512"]


class TopicPartition(NamedTuple):
    """A topic and a partition number. A plain `(topic, partition)` tuple is taken wherever this is."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class OffsetAndMetadata(NamedTuple):
    """An offset as committed: the next offset to read.

    Attributes:
        offset: Next offset to read.
        metadata: Free text kept with it.
        leader_epoch: Leader epoch of the record before it, -1 none.
    """

    offset: int
    metadata: str = ""
    leader_epoch: int = -1


class OffsetAndTimestamp(NamedTuple):
    """An answer of `Consumer.offsets_for_times`.

    Attributes:
        offset: Lowest offset whose timestamp is at or after the time asked for.
        timestamp: Its timestamp, ms since the epoch.
        leader_epoch: Its leader epoch, -1 none.
    """

    offset: int
    timestamp: int
    leader_epoch: int = -1


class ConsumerGroupMetadata(NamedTuple):
    """Identity of a consumer, for a transaction that commits its offsets. From `Consumer.group_metadata`.

    Attributes:
        member_id: Member id, "" for a consumer that manages its partitions itself.
        generation_id: Generation of the member, -1 for such a consumer.
        group_id: `group.id`.
        group_instance_id: `group.instance.id`, None for a dynamic member.
    """

    member_id: str
    generation_id: int
    group_id: str
    group_instance_id: str | None = None


class RecordMetadata(NamedTuple):
    """Where a record went.

    Attributes:
        topic: Topic.
        partition: Partition.
        offset: Offset, -1 when it is unknown (acks=0).
        timestamp: Timestamp in the log, ms since the epoch.
    """

    topic: str
    partition: int
    offset: int
    timestamp: int


class Metrics(dict[str, float]):
    """What a client or a broker has counted and measured since it was made: Kafka's names of metrics to values, NaN where nothing was measured yet.

    Totals are counts, `-avg` and `-max` are over the whole time, where Kafka's are over the last 30 to 60 seconds. Latencies and other times are in
    milliseconds, sizes in bytes.
    """

    def to_pyarrow(self) -> pa.Table:
        """As a `pyarrow.Table` with the columns `name` (string) and `value` (double)."""
        from fletchlog.interop import require

        arrow = require("pyarrow", "arrow")
        return arrow.table({"name": arrow.array(self, arrow.string()), "value": arrow.array(self.values(), arrow.float64())})


class Record(NamedTuple, Generic[K, V]):
    """One record, as the slow path `for record in records` gives it.

    Attributes:
        topic: Topic.
        partition: Partition.
        offset: Offset.
        timestamp: Milliseconds since the epoch, -1 none.
        timestamp_type: 0 CreateTime, 1 LogAppendTime, -1 none: Spark's `timestampType`.
        key: Key or None: bytes, or what the `key_deserializer` made of them.
        value: Value or None (a tombstone), likewise.
        headers: (key, value or None) in order; keys may repeat.
    """

    topic: str
    partition: int
    offset: int
    timestamp: int
    timestamp_type: int
    key: K | None
    value: V | None
    headers: list[tuple[str, bytes | None]]

    def header(self, key: str, default: bytes | None = None) -> bytes | None:
        """The value of the last header with this key; `default` without one. Kafka: `Headers#lastHeader`."""
        return self.headers_dict().get(key, default)

    def headers_dict(self) -> dict[str, bytes | None]:
        """The headers as a dict; of those with the same key the last one counts, as `Headers#lastHeader` has it."""
        return dict(self.headers)

    @property
    def delivery_count(self) -> int | None:
        """How often a `ShareConsumer` has delivered it, this time included; None from anywhere else."""
        return None


class ShareRecord(Record[K, V]):
    """A record of a share group: a `Record` that knows how often it was delivered."""

    _delivery_count: int

    @property
    def delivery_count(self) -> int:
        """How often it was delivered, this time included."""
        return self._delivery_count


class Run(NamedTuple):
    """Consecutive records of one partition that one poll took from the queue."""

    topic: str
    partition: int
    first_offset: int
    last_offset: int
    count: int  # type: ignore[assignment]


__all__ = [
    "Clock",
    "Column",
    "ConsumerGroupMetadata",
    "IsolationLevel",
    "Listener",
    "Metrics",
    "OffsetAndMetadata",
    "OffsetAndTimestamp",
    "Proxy",
    "Record",
    "RecordFuture",
    "RecordIterator",
    "RecordMetadata",
    "RecordsToEnd",
    "Run",
    "Scan",
    "ScanOrder",
    "ScanRecords",
    "ScramMechanism",
    "ShareRecord",
    "Source",
    "Table",
    "TimestampUnit",
    "TopicPartition",
    "Transaction",
]
