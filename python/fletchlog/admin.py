"""What `Broker` and `Cluster` say about topics, groups, transactions and properties, and the table of every property.

All are tuples: comparable, picklable, hashable unless a field is a list or a dict.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

from fletchlog._core import config_table

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fletchlog.types import TopicPartition


ResourceType: TypeAlias = Literal["TOPIC", "GROUP", "CLUSTER", "TRANSACTIONAL_ID", "DELEGATION_TOKEN", "USER"]
Operation: TypeAlias = Literal[
    "ALL",
    "READ",
    "WRITE",
    "CREATE",
    "DELETE",
    "ALTER",
    "DESCRIBE",
    "CLUSTER_ACTION",
    "DESCRIBE_CONFIGS",
    "ALTER_CONFIGS",
    "IDEMPOTENT_WRITE",
    "CREATE_TOKENS",
    "DESCRIBE_TOKENS",
    "TWO_PHASE_COMMIT",
]
Permission: TypeAlias = Literal["ALLOW", "DENY"]


class AclBinding(NamedTuple):
    """An ACL: who may, or may not, do what with which resource. Names are Kafka's.

    Attributes:
        resource_type: Kind of resource.
        resource_name: Its name; "*" is every name, "kafka-cluster" the one name of CLUSTER.
        principal: Who: `User:NAME`; `User:*` is everybody.
        operation: What.
        permission: ALLOW or DENY, which wins.
        host: The client's address; "*" is every one.
        pattern_type: LITERAL: this name. PREFIXED: every name that begins so.
    """

    resource_type: ResourceType
    resource_name: str
    principal: str
    operation: Operation
    permission: Permission = "ALLOW"
    host: str = "*"
    pattern_type: Literal["LITERAL", "PREFIXED"] = "LITERAL"


class AclFilter(NamedTuple):
    """Which ACLs to describe or to delete; what is not given matches everything. Kafka: `AclBindingFilter`.

    Attributes:
        resource_type: Kind of resource.
        resource_name: Its name.
        principal: Who.
        operation: What.
        permission: ALLOW or DENY.
        host: The client's address, as the ACL has it.
        pattern_type: LITERAL, PREFIXED or ANY, as the ACL has it. MATCH: every ACL that holds for a resource of this name.
    """

    resource_type: ResourceType | Literal["ANY"] = "ANY"
    resource_name: str | None = None
    principal: str | None = None
    operation: Operation | Literal["ANY"] = "ANY"
    permission: Permission | Literal["ANY"] = "ANY"
    host: str | None = None
    pattern_type: Literal["LITERAL", "PREFIXED", "MATCH", "ANY"] = "ANY"


class NewTopic(NamedTuple):
    """A topic to create, for `create_topics` of `Broker` and `Cluster`.

    Attributes:
        name: Name.
        partitions: Number of partitions.
        config: Its properties.
        replication_factor: Number of replicas of each partition, None the default of the broker or cluster.
    """

    name: str
    partitions: int = 1
    config: Mapping[str, Any] | None = None
    replication_factor: int | None = None


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
        state: Kafka's name: Empty, PreparingRebalance, CompletingRebalance, Stable; of a consumer group (KIP-848) Empty, Assigning, Reconciling, Stable.
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


class ShareGroupOffset(NamedTuple):
    """Where the records of a share group begin in a partition, from `Broker.share_group_offsets` and `Cluster.share_group_offsets`.

    Attributes:
        start_offset: The first offset that is not done, as persisted; None until members have acknowledged a record or it was set.
        lag: Offsets from there to the end of the partition that are not done; negative if the start was set beyond the end; None if not known.
    """

    start_offset: int | None
    lag: int | None


class GroupMember(NamedTuple):
    """A member of a `GroupDescription`.

    Attributes:
        member_id: The id that the coordinator gave it, or that it has chosen itself (KIP-848).
        group_instance_id: `group.instance.id` of a static member.
        client_id: `client.id`.
        client_host: `/` and the address; `in-process` for an embedded client.
        partitions: What it is assigned, if it is a consumer; while the group rebalances, mostly in the generation before.
        metadata: What it joined with for the chosen protocol (Kafka's ConsumerProtocolSubscription); empty unless the group is Stable, and
            in a consumer group.
        assignment: What the leader assigned, as it wrote it; empty in a consumer group, which has no leader.
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
        protocol: The assignor that was chosen; "" unless a classic group is Stable.
        members: In the order in which they joined.
        coordinator: Node of its coordinator.
    """

    group_id: str
    state: str
    protocol_type: str
    protocol: str
    members: list[GroupMember]
    coordinator: int


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
        leader: Node that leads it; -1: none.
        log_start_offset: First readable offset.
        high_watermark: The end for read_uncommitted: the next offset to be written, or with fsync the end of what is on disk.
        last_stable_offset: The end for read_committed.
        size_bytes: Bytes of its segments.
        segments: Number of segments.
        leader_epoch: Rises by one with each change of the leader; -1: it cannot be read.
        replicas: Nodes of its replicas, the preferred leader first.
        isr: The replicas in sync.
    """

    partition: int
    leader: int
    log_start_offset: int
    high_watermark: int
    last_stable_offset: int
    size_bytes: int
    segments: int
    leader_epoch: int = -1
    replicas: tuple[int, ...] = ()
    isr: tuple[int, ...] = ()


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
    "AclBinding",
    "AclFilter",
    "CleanedPartition",
    "ConfigEntry",
    "ConfigKey",
    "GroupDescription",
    "GroupListing",
    "GroupMember",
    "NewTopic",
    "Operation",
    "PartitionDescription",
    "PartitionLag",
    "Permission",
    "ResourceType",
    "ShareGroupOffset",
    "TopicDescription",
    "TransactionDescription",
    "config_table",
]
