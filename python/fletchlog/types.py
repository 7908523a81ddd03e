"""The small values that calls take and return. All but `Metrics`, a dict, are tuples: comparable, picklable, hashable unless a field is a list or a dict."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from pathlib import Path

    import pyarrow as pa

    from fletchlog._core import Table


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


class TransactionDescription(NamedTuple):
    """A transactional id, as `Broker.transactions` returns it.

    Attributes:
        transactional_id: `transactional.id`.
        state: Kafka's name: Empty, Ongoing, PrepareCommit, PrepareAbort, CompleteCommit, CompleteAbort.
        producer_id: Producer id.
        producer_epoch: Its epoch.
        timeout_ms: `transaction.timeout.ms`.
        start_ms: When the last transaction began, ms since the epoch, -1 none.
        partitions: Partitions of the open transaction; `__consumer_offsets` among them when it commits offsets.
        coordinator: Node of its coordinator.
    """

    transactional_id: str
    state: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    start_ms: int
    partitions: list[TopicPartition]
    coordinator: int


class GroupListing(NamedTuple):
    """A group, as `Broker.groups` lists it.

    Attributes:
        group_id: `group.id`.
        protocol_type: What its members are: "consumer", "connect", ...; "" while none has joined.
        state: Kafka's name: Empty, PreparingRebalance, CompletingRebalance, Stable.
        coordinator: Node of its coordinator.
        group_type: Kafka's name: classic, consumer, share, streams; "" from a broker before Kafka 3.8, which does not report it.
    """

    group_id: str
    protocol_type: str
    state: str
    coordinator: int
    group_type: str = "classic"


class PartitionLag(NamedTuple):
    """How far a group is behind in a partition, from `Broker.lag` and `Cluster.lag`.

    Attributes:
        committed: Next offset that the group reads.
        end: High watermark of the partition; None if there is no such partition any more, if it has no leader, or if it cannot be read.
        lag: Offsets from `committed` to `end`, at least 0; None without an end. Markers of transactions count, and so does what compaction removed.
    """

    committed: int
    end: int | None
    lag: int | None


class GroupMember(NamedTuple):
    """A member of a `GroupDescription`.

    Attributes:
        member_id: The id that the coordinator gave it.
        group_instance_id: `group.instance.id` of a static member.
        client_id: `client.id`.
        client_host: `/` and the address; `in-process` for an embedded client.
        partitions: What it is assigned, if it is a consumer; while the group rebalances, mostly in the generation before.
        metadata: What it joined with for the chosen protocol (Kafka's ConsumerProtocolSubscription); empty unless the group is Stable.
        assignment: What the leader assigned, as it wrote it.
    """

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    partitions: list[TopicPartition]
    metadata: bytes
    assignment: bytes


class GroupDescription(NamedTuple):
    """A group and its members, from `Broker.describe_group`.

    Attributes:
        group_id: `group.id`.
        state: Kafka's name: Empty, PreparingRebalance, CompletingRebalance, Stable.
        protocol_type: What its members are: "consumer", "connect", ...; "" while none has joined.
        protocol: The assignor that was chosen; "" unless the group is Stable.
        members: In the order in which they joined.
        coordinator: Node of its coordinator.
    """

    group_id: str
    state: str
    protocol_type: str
    protocol: str
    members: list[GroupMember]
    coordinator: int


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


class Record(NamedTuple):
    """One record, as the slow path `for record in records` gives it.

    Attributes:
        topic: Topic.
        partition: Partition.
        offset: Offset.
        timestamp: Milliseconds since the epoch, -1 none.
        timestamp_type: 0 CreateTime, 1 LogAppendTime, -1 none: Spark's `timestampType`.
        key: Key or None.
        value: Value or None (a tombstone).
        headers: (key, value or None) in order; keys may repeat.
    """

    topic: str
    partition: int
    offset: int
    timestamp: int
    timestamp_type: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]

    def header(self, key: str, default: bytes | None = None) -> bytes | None:
        """The value of the last header with this key; `default` without one. Kafka: `Headers#lastHeader`."""
        return self.headers_dict().get(key, default)

    def headers_dict(self) -> dict[str, bytes | None]:
        """The headers as a dict; of those with the same key the last one counts, as `Headers#lastHeader` has it."""
        return dict(self.headers)


class Run(NamedTuple):
    """Consecutive records of one partition that one poll took from the queue."""

    topic: str
    partition: int
    first_offset: int
    last_offset: int
    count: int  # type: ignore[assignment]


class ConfigEntry(NamedTuple):
    """A property of a topic, a node or a group, from `Broker.describe_config`.

    Attributes:
        name: Kafka's name.
        value: The value that holds; None: unset, and there is no default.
        source: Where it comes from, in Kafka's words: DYNAMIC_TOPIC_CONFIG (set for the topic), DYNAMIC_BROKER_CONFIG (set for the node),
            DYNAMIC_DEFAULT_BROKER_CONFIG (set for all nodes), DYNAMIC_GROUP_CONFIG (set for the group), STATIC_BROKER_CONFIG (given to
            `Broker`), DEFAULT_CONFIG.
        read_only: It cannot be altered while the broker runs.
        type: BOOLEAN, STRING, INT, LONG, DOUBLE or LIST.
        synonyms: Every place that has a value, the one that holds first: (name there, value there, source).
        doc: What it does.
    """

    name: str
    value: str | None
    source: str
    read_only: bool
    type: str
    synonyms: list[tuple[str, str, str]]
    doc: str


class CleanedPartition(NamedTuple):
    """What `Broker.clean_topic` did to one partition.

    Attributes:
        partition: Number.
        rounds: Rounds of cleaning; 0: it was not due, and everything below is 0.
        first_dirty_offset: Everything below was clean before.
        end_offset: Everything below is clean now.
        messages_read: Records read, control records included, in all rounds.
        messages_written: Records kept, in all rounds.
        bytes_read: Bytes of the segments read, in all rounds.
        bytes_written: Bytes of the segments written, in all rounds.
        segments_read: Segments before.
        segments_written: Segments in their place.
    """

    partition: int
    rounds: int
    first_dirty_offset: int
    end_offset: int
    messages_read: int
    messages_written: int
    bytes_read: int
    bytes_written: int
    segments_read: int
    segments_written: int


class PartitionDescription(NamedTuple):
    """One partition, as `Broker.describe_topic` returns it.

    Offsets, bytes and segments are -1 if its log cannot be read; a line of the log says why.

    Attributes:
        partition: Number.
        leader: Node that leads it.
        log_start_offset: First readable offset.
        high_watermark: The end for read_uncommitted: the next offset to be written, or with fsync the end of what is on disk.
        last_stable_offset: The end for read_committed.
        size_bytes: Bytes of its segments.
        segments: Number of segments.
    """

    partition: int
    leader: int
    log_start_offset: int
    high_watermark: int
    last_stable_offset: int
    size_bytes: int
    segments: int


class TopicDescription(NamedTuple):
    """One topic, as `Broker.describe_topic` returns it.

    Attributes:
        name: Name.
        topic_id: Kafka's topic id, as Kafka prints it (base64 without padding).
        config: The properties that were set, as text. None: a cluster does not let this client read them (DESCRIBE_CONFIGS on the topic).
        partitions: By number.
    """

    name: str
    topic_id: str
    config: dict[str, str] | None
    partitions: list[PartitionDescription]

    def _repr_html_(self) -> str:
        from fletchlog import notebook

        return notebook.topic(self)


class SegmentInspection(NamedTuple):
    """A `.log` file, as `inspect_segment` found it.

    Attributes:
        path: The file.
        size: Its bytes.
        batches: Arrow table with one row per batch.
        tail: (position, reason) where batches end before the end of the file, else None.
    """

    path: Path
    size: int
    batches: Table
    tail: tuple[int, str] | None


class Problem(NamedTuple):
    """Something wrong with a file.

    Attributes:
        path: The file.
        position: Byte position in it.
        reason: What is wrong.
    """

    path: Path
    position: int
    reason: str


class SegmentReport(NamedTuple):
    """One segment, as `verify` found it.

    Attributes:
        path: The `.log` file.
        base_offset: First offset it may hold.
        next_offset: Last offset of its last batch + 1; the base offset if it is empty.
        size: Bytes of the file.
        batches: Number of batches.
        records: Number of records, control records included.
        max_timestamp: Largest timestamp in ms, -1 none.
    """

    path: Path
    base_offset: int
    next_offset: int
    size: int
    batches: int
    records: int
    max_timestamp: int


class ProducerState(NamedTuple):
    """What the log has of one producer id.

    Attributes:
        producer_id: Producer id.
        epoch: Its newest epoch.
        last_sequence: Last sequence of its newest batch, -1 none.
        last_offset: Last offset of its newest batch, -1 none.
        last_timestamp: Time in ms of its newest batch or marker.
        expired: The default of `producer.id.expiration.ms` has passed: a writer forgets it when it opens the log, or at its next check.
    """

    producer_id: int
    epoch: int
    last_sequence: int
    last_offset: int
    last_timestamp: int
    expired: bool


class Cut(NamedTuple):
    """What opening a log for writing after an unclean stop would remove.

    Attributes:
        path: The `.log` file.
        start: First byte that would go.
        size: Bytes of the file.
        reason: Why.
    """

    path: Path
    start: int
    size: int
    reason: str


class PartitionReport(NamedTuple):
    """A partition's directory, as `verify` found it.

    Attributes:
        path: The directory.
        name: Its name, `<topic>-<partition>`.
        ok: Nothing is damaged and every index agrees with the log.
        segments: Number of segments.
        batches: Batches of all segments.
        records: Records of all segments, control records included.
        damaged: Damaged batches and tails.
        index_problems: Index, snapshot and checkpoint files that do not agree with the log; they can be rebuilt.
        holes: Offsets [from, to) that no batch has: compaction, or a lost segment. Not wrong by themselves.
        producers: Number of producer ids.
        open_transactions: (producer id, first offset) of transactions without a marker.
        would_cut: What recovery after an unclean stop would remove, and why.
        log_start_offset: First readable offset.
        log_end_offset: Next offset to be written.
        segment_reports: The segments, in order.
        producer_states: The producers, by id.
    """

    path: Path
    name: str
    ok: bool
    segments: int
    batches: int
    records: int
    damaged: list[Problem]
    index_problems: list[Problem]
    holes: list[tuple[int, int]]
    producers: int
    open_transactions: list[tuple[int, int]]
    would_cut: list[Cut]
    log_start_offset: int
    log_end_offset: int
    segment_reports: list[SegmentReport]
    producer_states: list[ProducerState]


class ConfigKey(NamedTuple):
    """One row of `config_table()`.

    Attributes:
        scope: broker, topic, producer, consumer or legacy-consumer.
        name: Kafka's dotted name.
        type: Type and range, for people.
        default: Default as text, None when unset.
        doc: What it does.
    """

    scope: str
    name: str
    type: str
    default: str | None
    doc: str


__all__ = [
    "CleanedPartition",
    "ConfigEntry",
    "ConfigKey",
    "ConsumerGroupMetadata",
    "Cut",
    "GroupDescription",
    "GroupListing",
    "GroupMember",
    "Metrics",
    "OffsetAndMetadata",
    "OffsetAndTimestamp",
    "PartitionDescription",
    "PartitionLag",
    "PartitionReport",
    "Problem",
    "ProducerState",
    "Record",
    "RecordMetadata",
    "Run",
    "SegmentInspection",
    "SegmentReport",
    "TopicDescription",
    "TopicPartition",
    "TransactionDescription",
]
