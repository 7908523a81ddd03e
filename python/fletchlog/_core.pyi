"""The compiled part of fletchlog. Use it through the package `fletchlog`."""

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from datetime import datetime, timedelta
from os import PathLike
from pathlib import Path
from ssl import SSLContext
from types import GenericAlias
from typing import Any, Generic, Literal, Protocol, Self, TypeAlias, final, overload, type_check_only

import pandas as pd
import polars as pl
import pyarrow as pa
from typing_extensions import TypeVar

from fletchlog._place import Source
from fletchlog.admin import (
    AclBinding,
    AclFilter,
    CleanedPartition,
    ConfigEntry,
    ConfigKey,
    GroupDescription,
    GroupListing,
    NewTopic,
    PartitionLag,
    ShareGroupOffset,
    TopicDescription,
    TransactionDescription,
)
from fletchlog.configs import BrokerConfig, ConsumerConfig, ProducerConfig, TopicConfig
from fletchlog.errors import KafkaError
from fletchlog.explain import Explanation
from fletchlog.files import PartitionReport, SegmentInspection
from fletchlog.registry import SchemaRegistry
from fletchlog.scans import Range
from fletchlog.serde import Deserializer
from fletchlog.serde._deserialize import OnError
from fletchlog.testing import FaultPlan
from fletchlog.types import (
    Column,
    ConsumerGroupMetadata,
    IsolationLevel,
    Metrics,
    OffsetAndMetadata,
    OffsetAndTimestamp,
    Record,
    RecordMetadata,
    Run,
    ScanOrder,
    ScramMechanism,
    TimestampUnit,
    TopicPartition,
)

__version__: str

__all__ = [
    "Broker",
    "Clock",
    "Cluster",
    "Consumer",
    "FaultRules",
    "JsonSchema",
    "LegacyConsumer",
    "LegacyStream",
    "Listener",
    "ObjectReader",
    "ObjectWriter",
    "Producer",
    "Proxy",
    "RecordFuture",
    "RecordIterator",
    "Records",
    "RecordsToEnd",
    "Scan",
    "ScanRecords",
    "Session",
    "SessionConnection",
    "SessionExchange",
    "ShareConsumer",
    "Table",
    "Transaction",
    "ValueReader",
    "ValueWriter",
    "_ArrowRows",
    "_Operation",
    "_SessionItems",
    "_TimedWork",
    "_Unsent",
    "_Wakeups",
    "__version__",
    "assign",
    "assign_legacy",
    "assign_uniform",
    "avro_is_bounded",
    "avro_reader",
    "avro_writer",
    "clean_offsets",
    "config_table",
    "confluent_reader",
    "decision_rows",
    "derive_polls",
    "error_classes",
    "exchange_columns",
    "find_topics",
    "hash_buckets",
    "inspect_segment",
    "java_hash",
    "json_decode_inferred",
    "json_reader",
    "json_refused",
    "json_writer",
    "list_reader",
    "list_writer",
    "log_to",
    "parse_release",
    "partition_directories",
    "primitive_reader",
    "primitive_writer",
    "protobuf_descriptors",
    "protobuf_file",
    "protobuf_reader",
    "protobuf_writer",
    "schema_ids",
    "segment_files",
    "segment_records",
    "served_apis",
    "verify",
    "with_schema_headers",
]

# milliseconds
_Wait: TypeAlias = int | timedelta
_Partition: TypeAlias = TopicPartition | tuple[str, int]
# str, bool, int, float, or a list of str; None where it takes a value away
_Properties: TypeAlias = Mapping[str, Any]

@type_check_only
class _DeclaredAsAny:
    """A value of a configuration in a variable that is declared as `dict[str, Any]`. Only `Any` matches this class, so a dict literal is checked key by key."""

# a variable that is declared as dict[str, Any]
_AnyProperties: TypeAlias = Mapping[str, _DeclaredAsAny]
_Bytes: TypeAlias = bytes | bytearray | memoryview
_Headers: TypeAlias = Sequence[tuple[str, _Bytes | None]] | Mapping[str, _Bytes | None]
_Listener: TypeAlias = Callable[[list[TopicPartition]], object]
_OnAcknowledgement: TypeAlias = Callable[[TopicPartition, list[int], KafkaError | None], object]
_Callback: TypeAlias = Callable[[RecordMetadata | None, Exception | None], object]
_RecordedPartition: TypeAlias = tuple[str, int, int, int, int, int, list[tuple[int, int]], list[tuple[int, int, int, int, int, bool, bool]]]
_RecordedFetch: TypeAlias = tuple[int, int, int, bool, list[tuple[str, int, int]], list[tuple[str, int]], tuple[int, int, int, list[_RecordedPartition]] | None]
_Assignment: TypeAlias = dict[str, dict[str, list[int]]]

# what a key and a value are to a program
_K = TypeVar("_K", default=bytes)
_V = TypeVar("_V", default=bytes)
_T = TypeVar("_T", default=bytes)
# what a producer is given
_GK = TypeVar("_GK", default=_Bytes)
_GV = TypeVar("_GV", default=_Bytes)
_T_co = TypeVar("_T_co", covariant=True)

@type_check_only
class _OfBytes(Protocol[_T_co]):
    def of_bytes(self, data: bytes, /) -> _T_co: ...

_Serializer: TypeAlias = Callable[[_T], _Bytes | None]
_Deserializer: TypeAlias = _OfBytes[_T] | Callable[[bytes], _T]

class _ArrowStream(Protocol):
    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object: ...

class _ArrowArray(Protocol):
    def __arrow_c_array__(self, requested_schema: object | None = None) -> tuple[object, object]: ...

class _ArrowSchema(Protocol):
    def __arrow_c_schema__(self) -> object: ...

@final
class Broker:
    """An embedded broker over a directory or memory: Kafka's log and its rules, without a cluster.

    One writer per directory, excluded by the lock that Kafka itself takes; any number of readers beside it. With one node the
    directory is a Kafka `log.dir`, with more there is one `node-N/` each, and leaders are spread as Kafka spreads them.
    Thread-safe. A handle belongs to the process that opened it. Closing (or leaving the `with` block) flushes and writes the
    clean-shutdown marker; a broker that is dropped without it is recovered at the next opening.

    On an object store (`s3://bucket/prefix`, or another store that pyarrow has a file system for) a broker is only read: it sees the objects that were there
    when it was opened. Reading one that has changed or was deleted since raises `StorageError`; open a new broker then.

    Objects `*.rsm-manifest` and no `meta.properties` mean segments that Aiven's plug-in for Kafka's tiered storage has uploaded, on a store or in a directory:
    with `read_only` they are read as the log that they were uploaded from. Opening reads every manifest, and raises `DirectoryError` with the name of the object
    for one that is missing, damaged, encrypted or of an unknown version.

    Args:
        path: Directory, also as `file:///PATH`. With `read_only` also a place on an object store, `s3://bucket/prefix`.
        create: Makes the directory if it does not exist. Without it a mistyped path is an error; an empty directory is taken either way.
        nodes: Number of nodes, or the racks of nodes by their ids, `{1: "r1", 2: None}` (broker.id, broker.rack). A directory keeps its ids, not
            the racks. None: what the directory says, 1 for a new one.
        read_only: Takes no lock and never writes; sees what a live writer adds.
        take_over: Writes to a directory that a Kafka broker has written, and keeps fletchlog's metadata there. Needed once: later openings find it.
        config: Broker properties, see `config_table()`.
        storage_options: Keyword arguments of pyarrow's file system, e.g. of `S3FileSystem`, if `path` is a URI: `endpoint_override`, `access_key`,
            `secret_key`, `region`, ... None: from the environment, as the SDK of the store does.

    Raises:
        fletchlog.errors.DirectoryLockedError: Another writer has the directory.
        fletchlog.errors.DirectoryError: Missing, foreign or inconsistent directory, no such bucket or prefix, or another number of nodes.
        fletchlog.errors.StorageError: The object store refuses access or does not answer: after some ten seconds (S3, HDFS), two minutes
            (Google) or four (Azure), unless `storage_options` say otherwise.
        fletchlog.errors.ReadOnlyError: A URI without `read_only`.
        fletchlog.errors.InvalidArgumentError: pyarrow does not take the URI or an option.
        fletchlog.errors.ConfigError: Unknown or invalid property.
    """

    def __new__(
        cls,
        path: str | PathLike[str],
        *,
        create: bool = False,
        nodes: int | Mapping[int, str | None] | None = None,
        read_only: bool = False,
        take_over: bool = False,
        config: BrokerConfig | _AnyProperties | None = None,
        storage_options: Mapping[str, Any] | None = None,
    ) -> Self: ...
    @staticmethod
    def in_memory(*, nodes: int | Mapping[int, str | None] = 1, config: BrokerConfig | _AnyProperties | None = None) -> Broker:
        """A broker in memory, gone when it is closed. `nodes` as for a directory."""
    @property
    def nodes(self) -> list[int]:
        """Node ids, ascending."""
    @property
    def read_only(self) -> bool:
        """Whether it was opened for reading only."""
    @property
    def controller(self) -> int:
        """The node that changes topics and properties: the first one."""
    @property
    def cluster_id(self) -> str | None:
        """The cluster's id, as in `meta.properties`; it stays when the directory is moved.

        None: the directory is a broker's of before Kafka 0.10.1, which has none, and is only read.
        """
    @property
    def clock(self) -> Clock:
        """The broker's clock, which a test sets ahead, stops and starts again."""
    def _place(self) -> str:
        """For `fletchlog.transfer`: the directory as it was given, or the URI of the store without secrets."""
    def create_topic(self, topic: str, partitions: int = 1, *, config: TopicConfig | _AnyProperties | None = None, exist_ok: bool = False) -> None:
        """Creates a topic. When it returns, the topic is on disk; after an error, of the disk too, nothing was made.

        Args:
            topic: Name.
            partitions: Number of partitions.
            config: Its properties.
            exist_ok: A topic that exists already, with as many partitions, is no error: for programs that run more than once. Its properties
                stay as they are, whatever `config` says.

        Raises:
            fletchlog.errors.InvalidTopicError: Not a name that Kafka allows.
            fletchlog.errors.TopicAlreadyExistsError: It exists.
            fletchlog.errors.InvalidPartitionsError: Fewer than one partition; with `exist_ok`, it exists with another number of them.
            fletchlog.errors.ConfigError: Unknown or invalid topic property.
        """
    def create_topics(self, topics: Iterable[str | NewTopic | tuple[str, int]], *, exist_ok: bool = False) -> None:
        """Creates topics with one write of the metadata: much faster than one after the other.

        Each is created or refused by itself, as in Kafka. The error is that of the first one that was refused; the others were created.

        Args:
            topics: Names, or `NewTopic(name, partitions, config, replication_factor)`, or a tuple of its first fields.
            exist_ok: As for `create_topic`.

        Raises:
            fletchlog.errors.InvalidArgumentError: A name twice; nothing was created.
            fletchlog.errors.KafkaError: As for `create_topic`.
        """
    def delete_topic(self, topic: str) -> None:
        """Deletes a topic and its files."""
    def create_partitions(self, topic: str, partitions: int, *, validate_only: bool = False) -> None:
        """Gives a topic more partitions: `partitions` in all. Keys go to other partitions from then on, as in Kafka.

        Durable when it returns; after an error nothing has changed. Clients see the new partitions with their next metadata.

        Args:
            topic: Name.
            partitions: More than it has now.
            validate_only: Only look whether it could be done.

        Raises:
            fletchlog.errors.UnknownTopicOrPartitionError: There is no such topic.
            fletchlog.errors.InvalidPartitionsError: No more than now, or too many.
        """
    def alter_topic_config(self, topic: str, config: _Properties, *, validate_only: bool = False) -> None:
        """Changes properties of a topic; those not named stay as they are. Kafka: IncrementalAlterConfigs.

        All of them or none: durable when it returns, and in effect from then on, also for logs that are open. `fletchlog.durability` set to
        `fsync` puts on disk what is there first.

        Args:
            topic: Name.
            config: Property to value; None takes the topic's own value away, so that the broker's holds again.
            validate_only: Only look whether it could be done.

        Raises:
            fletchlog.errors.UnknownTopicOrPartitionError: There is no such topic.
            fletchlog.errors.ConfigError: Unknown or invalid property.
        """
    def alter_broker_config(self, config: _Properties, *, node: int | None = None, validate_only: bool = False) -> None:
        """Changes properties of all nodes, or of one; those not named stay as they are. Kafka: IncrementalAlterConfigs of a broker.

        All of them or none: durable when it returns, and in effect from then on, for open logs and listeners too. A node's own value
        wins over that of all nodes, and both over what the broker was opened with. Which properties can be altered is Kafka's rule:
        those that `describe_config` gives with `read_only` False.

        Args:
            config: Property to value; None takes the value away.
            node: Number of a node; None: all nodes.
            validate_only: Only look whether it could be done.

        Raises:
            fletchlog.errors.KafkaError: INVALID_REQUEST (42): a property that cannot be altered, an invalid value, no such node.
        """
    def alter_group_config(self, group: str, config: _Properties, *, validate_only: bool = False) -> None:
        """Changes properties of a group; those not named stay as they are. Kafka: IncrementalAlterConfigs of a group.

        They are kept for the protocols of KIP-848, share and Streams groups. A classic group follows none of them, as in Kafka.

        Args:
            group: The group's id; it need not exist.
            config: Property to value; None takes the value away.
            validate_only: Only look whether it could be done.

        Raises:
            fletchlog.errors.KafkaError: INVALID_CONFIG (40): an unknown property, an invalid value.
        """
    @overload
    def describe_config(self, topic: str) -> list[ConfigEntry]: ...
    @overload
    def describe_config(self, topic: None = None, *, node: int | None = None) -> list[ConfigEntry]: ...
    @overload
    def describe_config(self, topic: None = None, *, group: str | None = None) -> list[ConfigEntry]:
        """Every property of a topic, of a node or of a group, by name: its value and where it comes from. Kafka: DescribeConfigs.

        Args:
            topic: Name of a topic.
            node: Number of a node; without topic, node and group: the first node.
            group: A group's id; it need not exist.

        Raises:
            fletchlog.errors.UnknownTopicOrPartitionError: There is no such topic.
            fletchlog.errors.KafkaError: INVALID_REQUEST (42): no such node.
            fletchlog.errors.InvalidArgumentError: More than one of topic, node and group.
        """
    def metrics(self) -> Metrics:
        """What the broker has counted since it was opened and what it holds, under the names of Kafka's metrics. Opens no log.

        Of all clients, embedded or on a listener, a partition of a request each: `messages-in-total`, `bytes-in-total`, `bytes-out-total`,
        `produce-requests-total`, `failed-produce-requests-total`, `fetch-requests-total`, `failed-fetch-requests-total`. Of now:
        `global-topic-count`, `global-partition-count`, `group-count`; `log-size`, bytes of all segments; `purgatory-size`, fetches that
        wait; `incremental-fetch-session-count`. Requests by API and client are in `Listener.stats()`.
        """
    def topics(self, *, include_internal: bool = False) -> list[str]:
        """Topic names, sorted; internal ones only when asked for: Kafka's, and `__fletchlog_ledger`, the memory of copies and of Spark's sinks."""
    def transactions(self) -> list[TransactionDescription]:
        """Every transactional id that the broker knows, sorted, with its state.

        Open ones hold read_committed readers back; the broker aborts them after their `transaction.timeout.ms`. A
        read-only broker reads `__transaction_state` again each time.
        """
    def share_state(self, group_id: str, topic: str) -> Table:
        """The records of a topic that a share group is not done with: who has them, how often they were delivered, for how long.

        A row is a range of records with the same state, by partition and offset. Only what is in memory is shown: partitions that the group has
        fetched since the broker was opened, or since the last connection of the group was closed.

        A batch takes about 200 bytes of memory, whatever its length; a record of a batch whose records have different states about 80.

        Columns: `partition` int32, `first_offset` int64, `last_offset` int64, `state` utf8 (Available, Acquired, Archiving), `member_id` utf8
        (null: no member has it), `delivery_count` int16, `lock_left_ms` int64 (until the lock of an acquired record ends, else null).

        Args:
            group_id: The share group.
            topic: Name.

        Raises:
            fletchlog.errors.UnknownTopicOrPartitionError: There is no such topic.
        """
    def move_leader(self, topic: str, partition: int, *, to: int, replicated_after_ms: _Wait = 0) -> None:
        """Makes a node the leader of a partition: for tests of clients. Kafka: a reassignment that puts the node first, and ElectLeaders.

        The leader epoch rises by one. Clients learn it as from a cluster: the former leader answers NOT_LEADER_OR_FOLLOWER, a waiting fetch
        that knows the former epoch ends with FENCED_LEADER_EPOCH, both with the new leader; the metadata has it at once. A node without a
        replica takes the place of the leader among the replicas. For the leader itself nothing changes. A directory keeps the change.

        Args:
            topic: Name.
            partition: Number.
            to: The node that is to lead.
            replicated_after_ms: How long its followers ask it for no records, in ms of the broker's clock: acks=all waits, and the end of the log is
                OFFSET_NOT_AVAILABLE. In Kafka about 100 or 1100 (`replica.fetch.backoff.ms`).

        Raises:
            fletchlog.errors.UnknownTopicOrPartitionError: There is no such partition.
            fletchlog.errors.LeaderError: The node is stopped, or its replica is not in sync.
            fletchlog.errors.KafkaError: INVALID_REQUEST (42): there is no such node.
        """
    def move_coordinator(self, *, group_id: str | None = None, transactional_id: str | None = None, to: int, loading_ms: _Wait = 0) -> None:
        """Makes a node the coordinator of a group, or of a transactional id: for tests of clients.

        It becomes the leader of their partition of `__consumer_offsets` or `__transaction_state`, which is made if it does not exist, so others
        of that partition move too. The former coordinator answers NOT_COORDINATOR, also to joins and syncs that wait. Members, generations,
        offsets and open transactions stay, sessions start again; a rebalance that was in progress does not stay, as in Kafka.

        Args:
            group_id: A group's id; it need not exist. Either this or `transactional_id`.
            transactional_id: A producer's `transactional.id`.
            to: The node that is to coordinate.
            loading_ms: How long it answers COORDINATOR_LOAD_IN_PROGRESS first.

        Raises:
            fletchlog.errors.LeaderError: The node is stopped, or its replica is not in sync.
            fletchlog.errors.InvalidArgumentError: Neither or both of the ids.
            fletchlog.errors.KafkaError: INVALID_REQUEST (42): there is no such node.
        """
    def stop_node(self, node: int, *, closes_after_ms: _Wait = 0, election_ms: _Wait = 0) -> None:
        """Stops a node as a controlled shutdown of a Kafka broker does: for tests of clients.

        Its replicas leave the sets in sync, and the next replicas lead and coordinate in its place. A partition without another replica in sync has
        no leader: its metadata says LEADER_NOT_AVAILABLE. Then listeners close the node's connections and refuse new ones, before this
        returns. With fewer replicas in sync than `min.insync.replicas`, acks=all is NOT_ENOUGH_REPLICAS. For a stopped node nothing happens.
        Nodes that are stopped run again when the broker is opened again.

        Args:
            node: The node.
            closes_after_ms: How long the node answers as a follower, and metadata list it, before its connections are closed, in ms of the broker's
                clock. Kafka takes 1600 to 4100. Stopping or starting it again ends that.
            election_ms: If the node is the active controller: how long DescribeQuorum then waits for the next one.

        Raises:
            fletchlog.errors.KafkaError: INVALID_REQUEST (42): there is no such node.
        """
    def kill_node(self, node: int, *, detected_after_ms: _Wait = 0, election_ms: _Wait = 0) -> None:
        """As `stop_node`, after a crash: a killed node may have lost records.

        So, when it starts, it does not lead a partition without leader, unless it was the last leader and no other replica may lead (KIP-966).

        Until the crash is detected, metadata name the node as before, nobody leads what it led, and acks=all waits where it has a replica in sync: it is answered
        REQUEST_TIMED_OUT after the request's time-out, or NONE once the crash is detected. Readers see nothing new there, and commits wait for
        `offsets.commit.timeout.ms`. Killing or starting the node again detects the crash at once.

        Args:
            node: The node.
            detected_after_ms: When the crash is detected, in ms of the broker's clock. 9000 is Kafka's default (`broker.session.timeout.ms`).
            election_ms: If the node is the active controller: how long DescribeQuorum then waits for the next one. In Kafka 2400 to 3600, and
                the crash is detected later (about 12000), as the next one starts all sessions again.

        Raises:
            fletchlog.errors.KafkaError: INVALID_REQUEST (42): there is no such node.
            fletchlog.errors.InvalidArgumentError: A negative time.
        """
    def start_node(self, node: int) -> None:
        """Starts a stopped node: listeners accept its connections again, and its replicas are in sync at once.

        Leaders do not come back by themselves, as in Kafka: `move_leader`, or an election of the preferred leaders, gives them back. A partition
        without leader has one again if the node's replica was the last one in sync, or with `unclean.leader.election.enable`.

        Raises:
            fletchlog.errors.KafkaError: INVALID_REQUEST (42): there is no such node.
            fletchlog.errors.ListenerError: The port of a listener cannot be used again.
        """
    def groups(self) -> list[GroupListing]:
        """Every group, sorted by id, also those that only hold committed offsets. Kafka: ListGroups."""
    def describe_group(self, group_id: str) -> GroupDescription:
        """A group, its state and its members. Kafka: DescribeGroups.

        Raises:
            fletchlog.errors.GroupIdNotFoundError: There is no such group.
        """
    def group_offsets(self, group_id: str) -> dict[TopicPartition, OffsetAndMetadata]:
        """Committed offsets of a group, of all its topics, in one request; empty for a group that does not exist. Kafka: `Admin#listConsumerGroupOffsets`.

        What an open transaction is to commit does not count yet. No member of the group is needed, and none is made.
        """
    def lag(self, group_id: str) -> dict[TopicPartition, PartitionLag]:
        """How far a group is behind in each partition for which it has committed an offset. Of a group that does not exist, or has committed nothing, it is {}.

        Some requests for all topics, not for each. A partition that is gone or cannot be read has no end and no lag, and leaves the others as they are.

        Raises:
            fletchlog.errors.InvalidArgumentError: It is a share group: `share_group_offsets` has its lag.
        """
    def share_group_offsets(self, group_id: str) -> dict[TopicPartition, ShareGroupOffset]:
        """Where the records of a share group begin in each partition that it reads, and its lag; empty for a group that does not exist.

        As it is persisted, which is behind what members have acknowledged last. Kafka: `Admin.listShareGroupOffsets`.

        Raises:
            fletchlog.errors.KafkaError: The partition's state cannot be read.
        """
    def alter_share_group_offsets(self, group_id: str, offsets: Mapping[_Partition, int] | Mapping[TopicPartition, int]) -> None:
        """Sets where the records of a share group without members begin; makes the group if it does not exist.

        What was delivered before counts no more. If a partition is refused, others may be set. Kafka: `Admin.alterShareGroupOffsets`.

        Raises:
            fletchlog.errors.NonEmptyGroupError: It has members.
            fletchlog.errors.GroupIdNotFoundError: It is a group of another kind.
            fletchlog.errors.UnknownTopicOrPartitionError: There is no such partition.
        """
    def delete_share_group_offsets(self, group_id: str, topics: Sequence[str]) -> None:
        """Deletes where the records of topics begin for a share group without members: it begins there by `share.auto.offset.reset`.

        An error names the first topic that was refused; those of the others are deleted. Kafka: `Admin.deleteShareGroupOffsets`.

        Raises:
            fletchlog.errors.GroupIdNotFoundError: There is no such group, or it is of another kind.
            fletchlog.errors.NonEmptyGroupError: It has members.
            fletchlog.errors.UnknownTopicOrPartitionError: There is no such topic, or the group has not read it.
        """
    def delete_group(self, group_id: str) -> None:
        """Deletes a group without members and all of its offsets. Kafka: DeleteGroups.

        When it returns, that is written as a commit is. What open transactions have committed for the group is forgotten too.

        Raises:
            fletchlog.errors.GroupIdNotFoundError: There is no such group.
            fletchlog.errors.NonEmptyGroupError: It has members.
        """
    def create_acls(self, acls: Iterable[AclBinding] | AclBinding) -> None:
        """Adds ACLs; those that exist already stay. Kafka: CreateAcls.

        On disk when it returns, and in effect for every request that begins later, if the broker has an authorizer (`authorizer.class.name`).

        Raises:
            fletchlog.errors.InvalidArgumentError: A name that Kafka does not have, or an ACL that it refuses, such as one of type ANY; nothing was added.
            fletchlog.errors.KafkaError: The directory is open for reading only, or cannot be written.
        """
    def describe_acls(self, acl_filter: AclFilter | None = None) -> list[AclBinding]:
        """The ACLs that a filter matches, sorted; None: all. Kafka: DescribeAcls.

        Raises:
            fletchlog.errors.KafkaError: The directory is open for reading only, or cannot be written.
        """
    def delete_acls(self, filters: Iterable[AclFilter] | AclFilter) -> list[AclBinding]:
        """Deletes the ACLs that filters match, and returns them, sorted. `AclFilter()` matches all. Kafka: DeleteAcls.

        Raises:
            fletchlog.errors.KafkaError: The directory is open for reading only, or cannot be written.
        """
    def describe_user_scram_credentials(self) -> dict[str, dict[str, int]]:
        """Users of SCRAM: by name, each mechanism with its iterations. Kafka: DescribeUserScramCredentials.

        No call returns a password: the directory keeps only keys that are made from it.
        """
    def upsert_user_scram_credential(self, user: str, password: str, mechanism: ScramMechanism = "SCRAM-SHA-256", iterations: int = 4096) -> None:
        """Sets or replaces the password of a user of SCRAM. Kafka: AlterUserScramCredentials.

        On disk when it returns, and in effect for clients that authenticate later; open sessions continue.

        Args:
            user: Name; the principal is `User:NAME`.
            password: Password. Not kept: its salted keys are.
            mechanism: SCRAM-SHA-256 or SCRAM-SHA-512. A user may have a password for each.
            iterations: Of PBKDF2, from 4096 to 16384.

        Raises:
            fletchlog.errors.InvalidArgumentError: Another mechanism, or an empty password.
            fletchlog.errors.KafkaError: UNACCEPTABLE_CREDENTIAL (93): no name, or too few or too many iterations.
        """
    def delete_user_scram_credential(self, user: str, mechanism: ScramMechanism = "SCRAM-SHA-256") -> None:
        """Takes a user's password away. Kafka: AlterUserScramCredentials.

        Raises:
            fletchlog.errors.KafkaError: RESOURCE_NOT_FOUND (91): the user has none for this mechanism.
        """
    def delete_offsets(self, group_id: str, partitions: Iterable[_Partition]) -> None:
        """Deletes committed offsets of a group: it begins there by `auto.offset.reset`. Kafka: OffsetDelete.

        An error names the first partition that was refused; the offsets of the others are deleted.

        Raises:
            fletchlog.errors.GroupIdNotFoundError: There is no such group.
            fletchlog.errors.GroupSubscribedToTopicError: A member may read the topic.
            fletchlog.errors.NonEmptyGroupError: It has members that are no consumers.
            fletchlog.errors.UnknownTopicOrPartitionError: There is no such partition.
        """
    def alter_offsets(self, group_id: str, offsets: Mapping[_Partition, OffsetAndMetadata | int] | Mapping[TopicPartition, OffsetAndMetadata | int]) -> None:
        """Commits offsets for a group without members, which is made if it does not exist: its consumers continue there.

        All of them or, after an error, none. Kafka: `Admin.alterConsumerGroupOffsets`.

        Raises:
            fletchlog.errors.NonEmptyGroupError: It has members.
            fletchlog.errors.UnknownTopicOrPartitionError: There is no such partition.
        """
    def describe_topic(self, topic: str) -> TopicDescription:
        """Id, explicit configuration, and per partition leader, offsets and size. Of a Kafka broker's directory: of the partitions that are in it.

        A partition whose log cannot be read does not keep the others from being described: it has -1 for what is not known, and a line of the log says why.
        """
    def scan(
        self,
        topic: str,
        partition: int | None = None,
        start_offset: int | None = None,
        end_offset: int | None = None,
        *,
        batch_rows: int = 131072,
        include_headers: bool = False,
        isolation_level: IsolationLevel = "read_uncommitted",
        order: ScanOrder = "offset",
        columns: Iterable[Column] | None = None,
        start_time: datetime | int | None = None,
        end_time: datetime | int | None = None,
        threads: int | None = None,
        timestamp_unit: TimestampUnit = "us",
        tail: int | None = None,
        key: Deserializer | None = None,
        value: Deserializer | None = None,
        on_error: OnError = "raise",
        unnest: bool = False,
    ) -> Scan:
        """The records of the log as a stream of Arrow batches, without a consumer.

        Memory is bounded by the batch (131,072 rows or about 2 MiB) and the threads (some 4 batches each), not by the log. Every checksum is checked. Rows come by
        partition, in offset order, or merged by timestamp; control records are never rows.

        Args:
            topic: Topic.
            partition: One partition; None: all, in order.
            start_offset: First offset (of each partition); None: the log start.
            end_offset: End, exclusive; None or beyond the end: the end of the log at this call.
            batch_rows: Most rows per batch.
            include_headers: Adds the headers column.
            isolation_level: read_uncommitted, or read_committed: up to the last stable offset, without aborted records.
            order: offset: partition after partition. timestamp: all partitions merged by (timestamp, partition); offset order within a
                partition always holds, so a record is never before an earlier one of its partition. Reads some 64 KiB of every partition ahead.
            columns: Names of the columns, in the order of the result: of `key`, `value`, `topic`, `partition`, `offset`, `timestamp`,
                `timestampType`, `headers`. None: all, `headers` by `include_headers`. What is not asked for is not copied; records are
                checked all the same, and values that are not asked for do not count for the size of a batch.
            start_time: Only records with a timestamp at or after it: a datetime with a time zone, or ms since 1970. Reading begins
                at the first one, which the time index gives. Timestamps need not grow with offsets: every record behind it is looked at.
            end_time: Only records with a timestamp before it. Nothing says where they end: the log is read to `end_offset`, and what can be
                is skipped by the headers of the batches.
            threads: How many threads decode, 4 MiB of the log at a time; rows come in the same order. None: one a core. 1: only the one that
                reads the stream, as always with `order="timestamp"` and for less than some 4 MiB of the log. As many decode keys and values, a batch at a
                time, if `key` and `value` are objects of `fletchlog.serde`; other objects are called by one thread.
            timestamp_unit: `us`: the column `timestamp` is `timestamp[us]`, as in Spark. `ms`: `timestamp[ms]`, which holds every timestamp of
                Kafka. In both, a record without a timestamp (-1) has null.
            tail: Only the last records of each partition, as many as this: records, not offsets, whatever compaction, markers and aborted
                transactions have left between them. `end_offset` may say before which; `start_offset` and times do not go with it.
            key: Deserializer of the keys, such as `serde.String()`: the column has its Arrow type, which must not depend on the values. None leaves bytes.
            value: Deserializer of the values, such as `serde.Avro(SCHEMA)`: a struct.
            on_error: For keys and values that cannot be decoded, as for `serde.deserialize`: `raise`, while it is read; `null`; `collect`: null, and columns
                `key_error`, `value_error`.
            unnest: Each field of a struct is a column, `value.FIELD`.

        Raises:
            fletchlog.errors.OffsetOutOfRangeError: `start_offset` is below the log start. While it is read: records of the range were deleted
                after this call.
            fletchlog.errors.InvalidTimestampError: While it is read: a timestamp that microseconds in 64 bits cannot hold (from the year 294247 on, as
                of a producer that sends nanoseconds). `timestamp_unit="ms"`, or `columns` without `timestamp`, read it.
            fletchlog.errors.InvalidArgumentError: A negative offset, an end below the start, no rows per batch, another isolation level or order,
                no column, an unknown one or one twice, a deserializer whose type depends on the values.
            fletchlog.errors.RecordDeserializationError: While it is read, under `raise`: a key or value cannot be decoded.
            ImportError: `key` or `value`, and pyarrow, or what a deserializer needs, is missing.
            TypeError: A time that is neither datetime nor int, `columns` that are no names.
            fletchlog.errors.UnknownTopicOrPartitionError: No such topic or partition. While it is read: the topic was deleted, or deleted and made again.
            fletchlog.errors.DamagedFileError: A log that cannot be opened. While it is read, a damaged batch, or one whose offset does
                not follow those before it, is a `CorruptRecordError` with its place.
        """
    def beginning_offsets(self, partitions: Iterable[_Partition] | _Partition) -> dict[TopicPartition, int]:
        """Log start offsets, without a consumer; one request per leader.

        Raises:
            fletchlog.errors.KafkaError: As for the method of `Consumer` with this name.
        """
    def end_offsets(self, partitions: Iterable[_Partition] | _Partition, *, isolation_level: IsolationLevel = "read_uncommitted") -> dict[TopicPartition, int]:
        """End offsets, without a consumer; one request per leader.

        Args:
            partitions: Partitions.
            isolation_level: read_uncommitted; read_committed: the last stable offset, where a reader of committed records stops.

        Raises:
            fletchlog.errors.InvalidArgumentError: Another isolation level.
            fletchlog.errors.KafkaError: As for the method of `Consumer` with this name.
        """
    def offsets_for_times(
        self, times: Mapping[_Partition, int | datetime] | Mapping[TopicPartition, int | datetime]
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """Per partition the lowest offset whose timestamp is at or after the time, None if no record has one; one request per leader.

        Args:
            times: By partition, a datetime with a time zone, or ms since 1970.

        Raises:
            fletchlog.errors.KafkaError: As for the method of `Consumer` with this name.
        """
    def append_batches(self, topic: str, partition: int, data: _Bytes) -> tuple[int, int, int]:
        """Appends what a Produce request carries for one partition: a record batch in Kafka's v2 format.

        Returns:
            (base_offset, log_append_time_ms, log_start_offset) as the Produce response has them. An exact repeat of one of
            the last five batches of a producer id answers with its first offset and writes nothing.

        Raises:
            fletchlog.errors.KafkaError: With the code that Kafka answers.
        """
    def read_batches(self, topic: str, partition: int, offset: int, max_bytes: int) -> bytes:
        """Record batches from the one that holds `offset`, cut as a Fetch response cuts them.

        At least one whole batch; after that the last one may be cut off at `max_bytes`. Empty at the end of the log.
        """
    def _segments(self, topic: str, partition: int) -> list[tuple[int, int]]: ...
    def _sealed(
        self, topics: list[str] | None = None
    ) -> tuple[list[tuple[Path, Path, int | None]], list[tuple[Path, bytes]], list[tuple[str, int, int, int]]]: ...
    def _control_batches(self, topic: str, partition: int, start_offset: int, end_offset: int) -> list[tuple[int, int]]:
        """For `fletchlog.explain`: first and last offset of every control batch with an offset in the range (end exclusive)."""
    def delete_records(self, topic: str, partition: int, before_offset: int) -> int:
        """Deletes the records of a partition before an offset (-1, as in Kafka: all there are now); returns the new log start."""
    def run_retention(self) -> int:
        """Applies retention by time and size to every topic now; returns how many segments were deleted."""
    def clean_topic(self, topic: str, *, force: bool = False) -> list[CleanedPartition]:
        """Compacts a topic: of each key the newest record stays; offsets and order never change.

        Cleans the partitions that Kafka's cleaner would clean now (`min.cleanable.dirty.ratio`, `max.compaction.lag.ms`); with `force`
        every partition up to its end, for which the active segment is closed. Open transactions and `min.compaction.lag.ms` hold both
        back; a null value (tombstone) stays for `delete.retention.ms` after the first cleaning that met it. Reads and appends continue
        meanwhile. After a crash there are either the old segments or the new ones, never a mix. Kafka: `LogCleaner`.

        Returns one `CleanedPartition` per partition that has a log. Raises PolicyViolationError when `cleanup.policy`
        lacks `compact`, and leaves a partition with a damaged batch as it is.
        """
    def flush(self) -> None:
        """Puts everything on disk (fsync)."""
    def listen(
        self,
        host: str = "127.0.0.1",
        port: int = 0,
        *,
        advertised: str | None = None,
        config: _Properties | None = None,
        record: str | PathLike[str] | None = None,
        record_values: bool = False,
    ) -> Listener:
        """Lets Kafka's clients, of any language, connect over TCP as if this were a Kafka cluster.

        Embedded clients continue beside them. A broker can have several listeners; closing it closes them first.

            with broker.listen() as kafka:
                confluent_kafka.Producer({"bootstrap.servers": kafka.bootstrap})

        Args:
            host: Name or address of the interface. On any other interface than loopback, everybody who can reach it can connect.
            port: Port of the first node; further nodes have the next ones. 0: free ones.
            advertised: `HOST` or `HOST:PORT` under which clients reach the listener, where it is another one (a container).
            config: Properties of this listener (`security.protocol`, `sasl.enabled.mechanisms`, limits of connections); the others are
                the broker's.
            record: A file for the session of its clients: every connection, request and response, without records and secrets; see
                `fletchlog.explain.session`. A file of this name is replaced. What happened is in the file a second later.
            record_values: The session keeps keys, values and headers of records.

        Raises:
            fletchlog.errors.ConfigError: A property is unknown, not a listener's, or lacks what it needs.
            fletchlog.errors.ListenerError: The port is taken, or the address is not this machine's.
            fletchlog.errors.InvalidArgumentError: Every interface (0.0.0.0) without `advertised`, a bad port, or `record_values` without
                `record`.
            fletchlog.errors.StorageError: The file of the session cannot be created.
        """
    def schema_registry(self, address: str = "127.0.0.1:0", *, tls: SSLContext | None = None, users: Mapping[str, str] | None = None) -> SchemaRegistry:
        """Serves a schema registry with Confluent's REST API, kept in the topic `_schemas` of this broker in Confluent's format.

        Close it before the broker. Several registries over one broker have the same state.

            with broker.schema_registry() as registry:
                confluent_kafka.schema_registry.SchemaRegistryClient({"url": registry.url})

        Args:
            address: `HOST:PORT`, port 0: a free one. On any other interface than loopback, everybody who can reach it can change schemas.
            tls: With it HTTPS is served: a context of the server's side, with its certificate.
            users: Names and passwords. Without it nobody is asked for one; with it every request needs one of these (HTTP's basic authentication).

        Raises:
            fletchlog.errors.InvalidArgumentError: `address` is no HOST:PORT.
            fletchlog.errors.ListenerError: The port is taken, or the address is not this machine's.
            fletchlog.errors.KafkaError: The topic cannot be created or read.
            ImportError: The extras `registry` and `serde` are not installed.
        """
    def close(self) -> None:
        """Flushes, closes and unlocks. Closing twice does nothing."""
    def __enter__(self) -> Self: ...
    def __exit__(self, *_exception: object) -> None: ...
    def _repr_html_(self) -> str: ...

@final
class Cluster:
    """A Kafka cluster: its topics and groups. `Consumer` and `Producer` take it, or its address.

    One thread at a time: a second one gets `ConcurrentAccessError`. A call repeats what failed for the moment until
    `default.api.timeout.ms` is over, then it raises `KafkaTimeoutError`. Nothing is connected before the first call.

    Args:
        servers: `"kafka://HOST:PORT,..."`, or a configuration with `bootstrap.servers`.
        config: Properties of a consumer or a producer; those of connections and times are used.

    Raises:
        fletchlog.errors.InvalidArgumentError: No address.
        fletchlog.errors.ConfigError: Unknown or invalid properties.
    """

    def __new__(cls, servers: str | _Properties, config: _Properties | None = None) -> Self: ...
    def proxy(
        self,
        listen: str = "127.0.0.1:0",
        *,
        advertised: str | None = None,
        config: _Properties | None = None,
        faults: Mapping[str, Any] | str | PathLike[str] | None = None,
        record: bool | str | PathLike[str] | None = None,
        record_values: bool = False,
    ) -> Proxy:
        """Opens a proxy before the cluster: clients of any language that use its `bootstrap` reach every node through it.

        Bytes pass as they are. Only the addresses of nodes in responses are replaced by those of the proxy's own ports, of which it opens one for each address that a
        response names. With the cluster's `security.protocol` SSL or SASL_SSL the proxy speaks TLS with the nodes, by this cluster's properties `ssl.*`. Users and passwords are
        the clients': SASL passes as it is.

            with fl.Cluster("kafka://real:9092").proxy() as proxy:
                confluent_kafka.Producer({"bootstrap.servers": proxy.bootstrap})

        Args:
            listen: `HOST:PORT` of the first port; with a port other than 0 the nodes get the next free ones.
            advertised: Host under which clients reach the proxy, if it is another one (a container).
            config: Properties of the proxy's ports, as of a listener: `security.protocol` and `ssl.*` for TLS with the clients.
            faults: A plan of what is to go wrong, as `Proxy.faults.load` takes it.
            record: A file for the session of its clients, as that of `Broker.listen`. True: requests are recorded in memory from the start:
                `proxy.faults.requests()`.
            record_values: The session keeps keys, values and headers of records.

        Raises:
            fletchlog.errors.ConfigError: A property is unknown, or lacks what it needs.
            fletchlog.errors.ListenerError: The port is taken, or the address is not this machine's.
            fletchlog.errors.InvalidArgumentError: Not `HOST:PORT`, or every interface (0.0.0.0) without `advertised`; a plan that cannot be understood;
                `record_values` without a file.
            fletchlog.errors.StorageError: The file of the session cannot be created.
        """
    @property
    def nodes(self) -> list[int]:
        """Ids of the nodes that are up, ascending. Asks the cluster."""
    @property
    def controller(self) -> int | None:
        """Id of the node that is the controller, or, with KRaft, that takes its requests; None: none is known. Asks the cluster."""
    @property
    def cluster_id(self) -> str | None:
        """The cluster's id; asks the cluster. None if it reports none. Kafka: `DescribeClusterResult#clusterId`."""
    def topics(self, *, include_internal: bool = False) -> list[str]:
        """Topic names, sorted; internal ones only when asked for: Kafka's, and `__fletchlog_ledger`, the memory of copies and of Spark's sinks."""

    def describe_topic(self, topic: str) -> TopicDescription:
        """Id, explicit configuration, and per partition leader and offsets. `size_bytes` and `segments` are -1: a cluster does not say.

        `config` is None if the client may not read it (DESCRIBE_CONFIGS on the topic).

        Raises:
            fletchlog.errors.UnknownTopicOrPartitionError: No such topic.
        """

    def create_topic(
        self,
        topic: str,
        partitions: int = 1,
        *,
        config: TopicConfig | _AnyProperties | None = None,
        replication_factor: int | None = None,
        exist_ok: bool = False,
    ) -> None:
        """Creates a topic and waits until each partition has a leader.

        Args:
            topic: Name.
            partitions: Number of partitions.
            config: Its properties.
            replication_factor: Number of replicas of each partition; None: the cluster's default.
            exist_ok: A topic that exists already, with as many partitions, is no error: for programs that run more than once. Its properties and
                replicas stay as they are.

        Raises:
            fletchlog.errors.TopicAlreadyExistsError: It exists.
            fletchlog.errors.InvalidPartitionsError: Fewer than one partition; with `exist_ok`, it exists with another number of them.
        """
    def create_topics(self, topics: Iterable[str | NewTopic | tuple[str, int]], *, exist_ok: bool = False) -> None:
        """Creates topics with one request, and waits until each partition has a leader.

        Each is created or refused by itself. The error is that of the first one that was refused; the others were created.

        Args:
            topics: Names, or `NewTopic(name, partitions, config, replication_factor)`, or a tuple of its first fields.
            exist_ok: As for `create_topic`.

        Raises:
            fletchlog.errors.InvalidArgumentError: A name twice; nothing was created.
            fletchlog.errors.KafkaError: As for `create_topic`.
        """

    def delete_topic(self, topic: str) -> None:
        """Deletes a topic."""

    def groups(self) -> list[GroupListing]:
        """Every group, by id. `state` is `Unknown` where the broker does not report it (before Kafka 2.6)."""

    def describe_group(self, group_id: str) -> GroupDescription:
        """A group and its members.

        Raises:
            fletchlog.errors.GroupIdNotFoundError: No such group.
        """

    def transactions(self) -> list[TransactionDescription]:
        """Every transactional id that the brokers know, sorted, with its state. Kafka: ListTransactions, DescribeTransactions.

        Open ones hold read_committed readers back; the brokers abort them after their `transaction.timeout.ms`. An id that expires
        meanwhile is left out.

        Raises:
            fletchlog.errors.UnsupportedVersionError: The brokers are older than 3.0.
        """
    def create_partitions(self, topic: str, partitions: int, *, validate_only: bool = False) -> None:
        """Gives a topic more partitions: `partitions` in all. Keys go to other partitions from then on, as in Kafka.

        Durable when it returns; after an error nothing has changed. Clients see the new partitions with their next metadata.

        Args:
            topic: Name.
            partitions: More than it has now.
            validate_only: Only look whether it could be done.

        Raises:
            fletchlog.errors.UnknownTopicOrPartitionError: There is no such topic.
            fletchlog.errors.InvalidPartitionsError: No more than now, or too many.
        """
    def alter_topic_config(self, topic: str, config: _Properties, *, validate_only: bool = False) -> None:
        """Changes properties of a topic, all of them or none; those not named stay as they are, None takes the topic's own value away.

        Raises:
            fletchlog.errors.UnknownTopicOrPartitionError: There is no such topic.
            fletchlog.errors.KafkaError: INVALID_CONFIG (40), an unknown or invalid property.
        """
    def alter_broker_config(self, config: _Properties, *, node: int | None = None, validate_only: bool = False) -> None:
        """Changes properties of all nodes, or of one; those not named stay as they are. Kafka: IncrementalAlterConfigs of a broker.

        All of them or none: durable when it returns, and in effect from then on, for open logs and listeners too. A node's own value
        wins over that of all nodes, and both over what the broker was opened with. Which properties can be altered is Kafka's rule:
        those that `describe_config` gives with `read_only` False.

        Args:
            config: Property to value; None takes the value away.
            node: Number of a node; None: all nodes.
            validate_only: Only look whether it could be done.

        Raises:
            fletchlog.errors.KafkaError: INVALID_REQUEST (42): a property that cannot be altered, an invalid value, no such node.
        """
    def alter_group_config(self, group: str, config: _Properties, *, validate_only: bool = False) -> None:
        """Changes properties of a group; those not named stay as they are. Kafka: IncrementalAlterConfigs of a group.

        They are kept for the protocols of KIP-848, share and Streams groups. A classic group follows none of them, as in Kafka.

        Args:
            group: The group's id; it need not exist.
            config: Property to value; None takes the value away.
            validate_only: Only look whether it could be done.

        Raises:
            fletchlog.errors.KafkaError: INVALID_CONFIG (40): an unknown property, an invalid value.
        """
    @overload
    def describe_config(self, topic: str) -> list[ConfigEntry]: ...
    @overload
    def describe_config(self, topic: None = None, *, node: int | None = None) -> list[ConfigEntry]: ...
    @overload
    def describe_config(self, topic: None = None, *, group: str | None = None) -> list[ConfigEntry]:
        """Every property of a topic, of a node or of a group, by name: its value and where it comes from. Kafka: DescribeConfigs.

        Args:
            topic: Name of a topic.
            node: Number of a node; without topic, node and group: any node.
            group: A group's id; it need not exist.

        Raises:
            fletchlog.errors.UnknownTopicOrPartitionError: There is no such topic.
            fletchlog.errors.KafkaError: INVALID_REQUEST (42): no such node.
            fletchlog.errors.InvalidArgumentError: More than one of topic, node and group.
        """
    def delete_records(self, topic: str, partition: int, before_offset: int) -> int:
        """Deletes the records of a partition before an offset (-1, as in Kafka: all there are now); returns the new log start.

        Raises:
            fletchlog.errors.OffsetOutOfRangeError: `before_offset` is beyond the end.
            fletchlog.errors.UnknownTopicOrPartitionError: There is no such partition.
        """
    def scan(
        self,
        topic: str,
        partition: int | None = None,
        start_offset: int | None = None,
        end_offset: int | None = None,
        *,
        batch_rows: int = 131072,
        include_headers: bool = False,
        isolation_level: IsolationLevel = "read_uncommitted",
        order: ScanOrder = "offset",
        columns: Iterable[Column] | None = None,
        start_time: datetime | int | None = None,
        end_time: datetime | int | None = None,
        timestamp_unit: TimestampUnit = "us",
        tail: int | None = None,
        key: Deserializer | None = None,
        value: Deserializer | None = None,
        on_error: OnError = "raise",
        unnest: bool = False,
    ) -> Scan:
        """The records of a topic as a stream of Arrow batches, without a consumer. As `Broker.scan`; all leaders are read at once.

        The offsets are resolved by this call, the records are read when the stream is. Memory is bounded: some fetches and 4 MiB per partition.
        A read without any record for `default.api.timeout.ms` is a `KafkaTimeoutError`.

        Raises:
            fletchlog.errors.OffsetOutOfRangeError: `start_offset` is below the log start, or retention took records meanwhile.
            fletchlog.errors.InvalidArgumentError: As for `Broker.scan`.
            fletchlog.errors.UnknownTopicOrPartitionError: No such topic or partition; or the topic was deleted and made again since this call. No row
                is of the new topic; only brokers before Kafka 3.1 may return some before this error. Before 2.8 topics have no ids, and it is not noticed.
        """
    def create_acls(self, acls: Iterable[AclBinding] | AclBinding) -> None:
        """Adds ACLs; those that exist already stay. Kafka: CreateAcls.

        Brokers follow them a moment later.

        Raises:
            fletchlog.errors.InvalidArgumentError: A name that Kafka does not have, or an ACL that it refuses, such as one of type ANY; nothing was added.
            fletchlog.errors.KafkaError: SECURITY_DISABLED (54): the brokers have no authorizer. CLUSTER_AUTHORIZATION_FAILED (31).
        """
    def describe_acls(self, acl_filter: AclFilter | None = None) -> list[AclBinding]:
        """The ACLs that a filter matches, sorted; None: all. Kafka: DescribeAcls.

        Raises:
            fletchlog.errors.KafkaError: SECURITY_DISABLED (54): the brokers have no authorizer. CLUSTER_AUTHORIZATION_FAILED (31).
        """
    def delete_acls(self, filters: Iterable[AclFilter] | AclFilter) -> list[AclBinding]:
        """Deletes the ACLs that filters match, and returns them, sorted. `AclFilter()` matches all. Kafka: DeleteAcls.

        Raises:
            fletchlog.errors.KafkaError: SECURITY_DISABLED (54): the brokers have no authorizer. CLUSTER_AUTHORIZATION_FAILED (31).
        """
    def describe_user_scram_credentials(self) -> dict[str, dict[str, int]]:
        """Users of SCRAM: by name, each mechanism with its iterations. Kafka: DescribeUserScramCredentials.

        No call returns a password: the directory keeps only keys that are made from it.
        """
    def upsert_user_scram_credential(self, user: str, password: str, mechanism: ScramMechanism = "SCRAM-SHA-256", iterations: int = 4096) -> None:
        """Sets or replaces the password of a user of SCRAM. Kafka: AlterUserScramCredentials.

        On disk when it returns, and in effect for clients that authenticate later; open sessions continue.

        Args:
            user: Name; the principal is `User:NAME`.
            password: Password. Not kept: its salted keys are.
            mechanism: SCRAM-SHA-256 or SCRAM-SHA-512. A user may have a password for each.
            iterations: Of PBKDF2, from 4096 to 16384.

        Raises:
            fletchlog.errors.InvalidArgumentError: Another mechanism, or an empty password.
            fletchlog.errors.KafkaError: UNACCEPTABLE_CREDENTIAL (93): no name, or too few or too many iterations.
        """
    def delete_user_scram_credential(self, user: str, mechanism: ScramMechanism = "SCRAM-SHA-256") -> None:
        """Takes a user's password away. Kafka: AlterUserScramCredentials.

        Raises:
            fletchlog.errors.KafkaError: RESOURCE_NOT_FOUND (91): the user has none for this mechanism.
        """
    def beginning_offsets(self, partitions: Iterable[_Partition] | _Partition) -> dict[TopicPartition, int]:
        """Log start offsets, without a consumer; one request per leader.

        Raises:
            fletchlog.errors.KafkaError: As for the method of `Consumer` with this name.
        """
    def end_offsets(self, partitions: Iterable[_Partition] | _Partition, *, isolation_level: IsolationLevel = "read_uncommitted") -> dict[TopicPartition, int]:
        """End offsets, without a consumer; one request per leader.

        Args:
            partitions: Partitions.
            isolation_level: read_uncommitted; read_committed: the last stable offset, where a reader of committed records stops.

        Raises:
            fletchlog.errors.InvalidArgumentError: Another isolation level.
            fletchlog.errors.KafkaError: As for the method of `Consumer` with this name.
        """
    def offsets_for_times(
        self, times: Mapping[_Partition, int | datetime] | Mapping[TopicPartition, int | datetime]
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """Per partition the lowest offset whose timestamp is at or after the time, None if no record has one; one request per leader.

        Args:
            times: By partition, a datetime with a time zone, or ms since 1970.

        Raises:
            fletchlog.errors.KafkaError: As for the method of `Consumer` with this name.
        """
    def group_offsets(self, group_id: str) -> dict[TopicPartition, OffsetAndMetadata]:
        """Committed offsets of a group, of all its topics, in one request; empty for a group that does not exist. Kafka: `Admin#listConsumerGroupOffsets`.

        What an open transaction is to commit does not count yet. No member of the group is needed, and none is made.
        """
    def lag(self, group_id: str) -> dict[TopicPartition, PartitionLag]:
        """How far a group is behind in each partition for which it has committed an offset. Of a group that does not exist, or has committed nothing, it is {}.

        Some requests for all topics, not for each. A partition that is gone or cannot be read has no end and no lag, and leaves the others as they are.

        Raises:
            fletchlog.errors.InvalidArgumentError: It is a share group: `share_group_offsets` has its lag.
        """
    def share_group_offsets(self, group_id: str) -> dict[TopicPartition, ShareGroupOffset]:
        """Where the records of a share group begin in each partition that it reads, and its lag; empty for a group that does not exist.

        As it is persisted, which is behind what members have acknowledged last. Kafka: `Admin.listShareGroupOffsets`.

        Raises:
            fletchlog.errors.KafkaError: The partition's state cannot be read.
        """
    def alter_share_group_offsets(self, group_id: str, offsets: Mapping[_Partition, int] | Mapping[TopicPartition, int]) -> None:
        """Sets where the records of a share group without members begin; makes the group if it does not exist.

        What was delivered before counts no more. If a partition is refused, others may be set. Kafka: `Admin.alterShareGroupOffsets`.

        Raises:
            fletchlog.errors.NonEmptyGroupError: It has members.
            fletchlog.errors.GroupIdNotFoundError: It is a group of another kind.
            fletchlog.errors.UnknownTopicOrPartitionError: There is no such partition.
        """
    def delete_share_group_offsets(self, group_id: str, topics: Sequence[str]) -> None:
        """Deletes where the records of topics begin for a share group without members: it begins there by `share.auto.offset.reset`.

        An error names the first topic that was refused; those of the others are deleted. Kafka: `Admin.deleteShareGroupOffsets`.

        Raises:
            fletchlog.errors.GroupIdNotFoundError: There is no such group, or it is of another kind.
            fletchlog.errors.NonEmptyGroupError: It has members.
            fletchlog.errors.UnknownTopicOrPartitionError: There is no such topic, or the group has not read it.
        """
    def delete_group(self, group_id: str) -> None:
        """Deletes a group without members and all of its offsets. Kafka: DeleteGroups.

        Raises:
            fletchlog.errors.GroupIdNotFoundError: There is no such group.
            fletchlog.errors.NonEmptyGroupError: It has members.
        """
    def delete_offsets(self, group_id: str, partitions: Iterable[_Partition]) -> None:
        """Deletes committed offsets of a group: it begins there by `auto.offset.reset`. Kafka: OffsetDelete.

        An error names the first partition that was refused; the offsets of the others are deleted.

        Raises:
            fletchlog.errors.GroupIdNotFoundError: There is no such group.
            fletchlog.errors.GroupSubscribedToTopicError: A member may read the topic.
            fletchlog.errors.NonEmptyGroupError: It has members that are no consumers.
            fletchlog.errors.UnknownTopicOrPartitionError: There is no such partition.
        """
    def alter_offsets(self, group_id: str, offsets: Mapping[_Partition, OffsetAndMetadata | int] | Mapping[TopicPartition, OffsetAndMetadata | int]) -> None:
        """Commits offsets for a group without members, which is made if it does not exist. Kafka: `Admin.alterConsumerGroupOffsets`.

        An error names the first partition that was refused; the offsets of others may be committed.

        Raises:
            fletchlog.errors.NonEmptyGroupError: It has members.
            fletchlog.errors.UnknownTopicOrPartitionError: There is no such partition.
        """
    def _watch(self, wakeups: _Wakeups, token: int) -> int | None:
        """For `fletchlog.aio`: this file descriptor is readable when a wait would end."""
    def close(self) -> None:
        """Closes the connections. Closing twice does nothing."""

    def __enter__(self) -> Self: ...
    def __exit__(self, *_exception: object) -> None: ...

@final
class Producer(Generic[_GK, _GV]):
    """Kafka's producer: batches, partitioner, idempotence, retries. Thread-safe.

    A background thread sends; it starts with the first record. Records of one partition arrive in the order of the sends,
    under the conditions Kafka has for it (`enable.idempotence`, or one request in flight).

    Args:
        source: Where to produce to: an open `Broker`, a `Cluster`, whose properties are then this producer's unless `config` has others,
            `"kafka://HOST:PORT,..."`, or a directory, which is opened for writing and closed with the producer. A configuration with `bootstrap.servers`
            may be given instead.
        config: Kafka's dotted names, see `config_table()`; `fletchlog.producer.version` selects the release reproduced.
        faults: What is to go wrong between this producer and the broker, for tests: a `fletchlog.testing.FaultPlan`.
        key_serializer: Called with each key that `send` is given, but None; returns its bytes. A function, or one of `fletchlog.serde`.
        value_serializer: The same for values. Without them keys and values are bytes.

    Raises:
        fletchlog.errors.ConfigError: Unknown, invalid or contradictory properties.
        fletchlog.errors.ClosedError: The broker is closed.
        fletchlog.errors.ReadOnlyError: The broker is open for reading only.
    """

    def __class_getitem__(cls, key: Any) -> GenericAlias: ...
    @overload
    def __new__(
        cls,
        source: Source,
        config: ProducerConfig | _AnyProperties | None = None,
        *,
        faults: FaultPlan | None = None,
        key_serializer: _Serializer[_GK] | None = None,
        value_serializer: _Serializer[_GV] | None = None,
    ) -> Producer[_GK, _GV]: ...
    @overload
    def __new__(
        cls,
        source: ProducerConfig | _AnyProperties,
        *,
        faults: FaultPlan | None = None,
        key_serializer: _Serializer[_GK] | None = None,
        value_serializer: _Serializer[_GV] | None = None,
    ) -> Producer[_GK, _GV]: ...
    @overload
    def __new__(
        cls,
        source: None = None,
        *,
        config: ProducerConfig | _AnyProperties,
        faults: FaultPlan | None = None,
        key_serializer: _Serializer[_GK] | None = None,
        value_serializer: _Serializer[_GV] | None = None,
    ) -> Producer[_GK, _GV]: ...
    def send(
        self,
        topic: str,
        value: _GV | None = None,
        key: _GK | None = None,
        *,
        partition: int | None = None,
        timestamp_ms: int | datetime | None = None,
        headers: _Headers | None = None,
        callback: _Callback | None = None,
    ) -> RecordFuture:
        """Queues one record.

        Args:
            topic: Topic.
            value: Value, as bytes or what the `value_serializer` takes; None is a tombstone.
            key: Key, as bytes or what the `key_serializer` takes; without `partition` it decides the partition (murmur2, as in Java).
            partition: Explicit partition.
            timestamp_ms: CreateTime, in milliseconds or as a datetime with a time zone; None: now.
            headers: (key, value) pairs in order.
            callback: Called as `callback(metadata, None)` or `callback(None, exception)` once the outcome is decided: in Java's order, so
                for one partition in the order of the sends, one at a time, in a thread of the producer's own. It may send; what it
                raises goes to `sys.unraisablehook`. `flush`, `close` and the end of a transaction wait for it (not from within one).
                Not called when `send` itself raises.

        In a thread with a running event loop of asyncio it never waits: a record whose metadata or memory is not there waits in the producer,
        and later ones of its topic behind it. Elsewhere it waits itself, both at most for `max.block.ms`, counted from the call.
        Records that wait in the producer are kept beside `buffer.memory`, and nothing limits their number: await futures from time to time.

        Returns:
            The outcome, to be awaited with `result()` or `await`. What Java reports on the future (too large, no memory, the broker's
            refusal) is on the future here too; in a thread with a running event loop everything but a wrong type, a negative
            timestamp and a closed producer is.
        """
    def send_many(self, topic: str, values: Iterable[_GV | None], keys: Iterable[_GK | None] | None = None, *, partition: int | None = None) -> int:
        """Queues one record for each value, in order; returns how many. Faster than `send` for each, as no futures are made.

        It waits in the calling thread, also in a coroutine: `AsyncProducer` has one to await.

        The rules are those of `send`, record by record: each is queued before the next value is asked for, and is sent as
        `linger.ms` says. Failures of queued records are raised by `flush` and `close`. For columns there is `send_arrow`.

        Args:
            topic: Topic.
            values: Values, each as `send` takes it. A generator may be slow, or endless: Ctrl-C ends the call.
            keys: As many keys, each as `send` takes it; None: records without keys.
            partition: Explicit partition of all.

        Raises:
            TypeError: A value or key of the wrong type.
            fletchlog.errors.InvalidArgumentError: More keys than values, or fewer; no such partition.

        What is raised, by the iterables too, carries a note that says how many records were queued before it.
        """
    def send_arrow(self, topic: str, data: _ArrowStream | _ArrowArray) -> int:
        """Queues the rows of Arrow data in order; returns how many.

        It waits in the calling thread, also in a coroutine: `AsyncProducer` has one to await.

        Columns: `value` (required), `key`, `partition`, `timestamp`, `headers`. The rules are those of `send`, row by row; but a timestamp of null or -1
        (Kafka's "no timestamp") means now, and every other one is sent as it is. A column of timestamps without a time zone is read as UTC (`send` refuses
        a datetime without one).
        Failures of queued rows are raised by `flush` and `close`.

        Raises:
            fletchlog.errors.SchemaError: A missing, unknown or wrongly typed column; nothing was queued.
        """
    def _send_now(
        self,
        topic: str,
        value: Any,
        key: Any,
        partition: int | None,
        timestamp_ms: int | datetime | None,
        headers: _Headers | None,
    ) -> RecordFuture | _Unsent:
        """For `AsyncProducer`: queues the record if that needs no waiting."""
    def _send_unsent(self, unsent: _Unsent) -> RecordFuture:
        """For `AsyncProducer`: queues a record that has to wait."""
    def _send_rows(
        self, topic: str, values: Iterator[object], keys: Iterator[object] | None, partition: int | None, sent: int
    ) -> tuple[int, bool, _Unsent | None]:
        """For `AsyncProducer`: queues values. Returns how many with the `sent` ones, whether those are all, and one that has to wait."""
    def _send_row(self, unsent: _Unsent, first: int) -> None:
        """For `AsyncProducer`: queues a record of `_send_rows` that has to wait; `first` records were queued before."""
    def _send_batch(self, topic: str, data: _ArrowRows, first: int) -> int:
        """For `AsyncProducer`: queues the rows of a batch; `first` rows were queued before."""
    def _commit_if_open(self) -> None:
        """The end of the block of a transaction: commits it unless the block has ended it."""
    def _abort_if_open(self) -> None:
        """The end of the block of a transaction after an exception."""
    def _watch(self, wakeups: _Wakeups, token: int) -> None:
        """For `fletchlog.aio`: `token` is woken when a wait would end."""
    def flush(self, timeout: float | timedelta | None = None, *, timeout_ms: _Wait | None = None) -> None:
        """Sends everything queued and waits until it is decided; raises the first failure of a `send_arrow` row or a `send_many` record.

        It waits in the calling thread, as `close` and the end of a transaction do; for coroutines there is `AsyncProducer`.

        Args:
            timeout: The longest wait, in seconds or as a timedelta, for a program that has to answer in time or to stop. None: until everything
                is decided, which `delivery.timeout.ms` bounds.
            timeout_ms: Instead: the longest wait in milliseconds.

        Raises:
            fletchlog.errors.KafkaTimeoutError: Not decided within that time. Nothing is lost: the records stay queued, and the producer
                continues to send them; their futures tell what became of them, or another `flush`.
        """
    def init_transactions(self) -> None:
        """Registers the `transactional.id`. Once, before the first transaction (Kafka: KafkaProducer#initTransactions).

        Ends what an earlier producer of this name left open (what was decided is completed, what was not is aborted), and
        fences that producer. Waits for at most `max.block.ms`.

        Raises:
            fletchlog.errors.IllegalStateError: No `transactional.id`, or called twice.
            fletchlog.errors.InvalidTxnTimeoutError: `transaction.timeout.ms` above the broker's limit.
            fletchlog.errors.KafkaTimeoutError: No answer yet; call it again to continue waiting.
        """
    def begin_transaction(self) -> None:
        """Opens a transaction; nothing is sent yet. Every record until commit or abort belongs to it.

        Raises:
            fletchlog.errors.IllegalStateError: `init_transactions` is missing, or a transaction is open.
            fletchlog.errors.TransactionAbortableError: The last transaction failed and was not aborted.
            fletchlog.errors.ProducerFencedError: A newer producer has the `transactional.id`; close this one.
        """
    def send_offsets_to_transaction(
        self,
        offsets: Mapping[_Partition, OffsetAndMetadata | int] | Mapping[TopicPartition, OffsetAndMetadata | int],
        group_metadata: ConsumerGroupMetadata,
    ) -> None:
        """Makes the offsets part of the transaction: the group has them when, and only if, it commits.

        The consumer must not commit them itself: `enable.auto.commit=False`, no `commit()`. Waits for at most `max.block.ms`.

        Args:
            offsets: Next offset to read per partition.
            group_metadata: `consumer.group_metadata()`, so that a member that was replaced meanwhile cannot commit (KIP-447).

        Raises:
            fletchlog.errors.IllegalStateError: No transaction is open.
            fletchlog.errors.CommitFailedError: The member is not of the group's current generation: abort.
            fletchlog.errors.InvalidArgumentError: A negative offset.
        """
    def commit_transaction(self) -> None:
        """Sends everything queued, waits until it is acknowledged, and commits.

        The outcome is final once this returns, and readers with `isolation.level=read_committed` see the records.

        Raises:
            fletchlog.errors.TransactionAbortableError: A record failed: abort, then continue.
            fletchlog.errors.KafkaTimeoutError: Undecided after `max.block.ms`: call it again, and nothing else before.
            fletchlog.errors.ProducerFencedError: A newer producer has the `transactional.id`, or the transaction was open for
                longer than `transaction.timeout.ms`. It is aborted; close this producer.
            fletchlog.errors.IllegalStateError: No transaction is open.
        """
    def abort_transaction(self) -> None:
        """Drops what was not sent yet and aborts; read_committed readers never see what was.

        Raises:
            fletchlog.errors.KafkaTimeoutError: Undecided after `max.block.ms`: call it again.
            fletchlog.errors.ProducerFencedError: A newer producer has the `transactional.id`.
            fletchlog.errors.IllegalStateError: No transaction is open.
        """
    def transaction(self) -> Transaction[_GK, _GV]:
        """A context that begins a transaction, commits it at its end and aborts it when an exception leaves it.

        `with producer.transaction(): producer.send(...)`. If the commit fails because of a record, the transaction is aborted and its
        error raised. A transaction that the block has ended itself is left alone.
        """
    def partitions_for(self, topic: str) -> int:
        """Number of partitions of a topic. Waits for its metadata, at most `max.block.ms`; in a coroutine use `AsyncProducer`."""
    @property
    def producer_id(self) -> tuple[int, int] | None:
        """(producer id, epoch), once the broker gave one."""
    def metrics(self) -> Metrics:
        """What it has counted and measured since it was made, under the names of Kafka's metrics.

        `record-send-total`, records sent, those sent again included; `record-retry-total`; `record-error-total`; `records-per-request-avg`;
        `batch-size-avg`, `-max`, bytes of a batch as it is sent; `record-queue-time-avg`, `-max`, from the first record of a batch until it is
        sent; `request-total`, `response-total`, `request-latency-avg`, `-max`, of all requests.
        """
    def trace(self) -> Table:
        """What happened to every batch, when `fletchlog.trace` is on; one row per event, in order.

        Columns: `time_ms` int64, of a clock that only goes forward; `kind` string; `topic` string; `partition` int32; `node` int32;
        `batch` int64, number of the batch from 0; `records` int32; `producer_id` int64; `producer_epoch` int16; `base_sequence` int32;
        `attempts` int32, failed ones so far; `base_offset` int64; `error` string. What does not apply is null. The properties that
        were set are in the schema's metadata as `fletchlog.config.<name>`.

        Kinds: `ready`, `drained`, `muted`, `sent`, `unmuted`, `acknowledged`, `acknowledged-as-duplicate`, `retried`, `re-enqueued`,
        `refused-out-of-order`, `split`, `expired`, `failed`, `epoch-bump`.

        Raises:
            fletchlog.errors.IllegalStateError: It is off.
        """
    def close(self, timeout_ms: _Wait | None = None) -> None:
        """Sends everything queued, ends an open transaction (both in at most `timeout_ms`) and stops. Closing twice does nothing.

        Without `timeout_ms` it ends as well: records fail after `delivery.timeout.ms`, and a transaction that cannot be ended within
        `max.block.ms` after that is left to `transaction.timeout.ms`, with a warning.
        """
    def __enter__(self) -> Self: ...
    def __exit__(self, *_exception: object) -> None: ...

@final
class _Unsent:
    """A record that has to wait before it can be queued."""

@final
class _ArrowRows:
    """The batches of Arrow data, one after another."""

    def __new__(cls, data: _ArrowStream | _ArrowArray) -> Self: ...
    def next(self) -> bool:
        """Takes the next batch; False: there are no more."""

@final
class Transaction(Generic[_GK, _GV]):
    """The context of `Producer.transaction`."""

    def __class_getitem__(cls, key: Any) -> GenericAlias: ...
    def __enter__(self) -> Producer[_GK, _GV]: ...
    def __exit__(self, _class: object, exception: object, _traceback: object, /) -> None: ...

@final
class RecordFuture:
    """The outcome of one `send`. Thread-safe."""

    def result(self, timeout: float | timedelta | None = None, *, timeout_ms: _Wait | None = None) -> RecordMetadata:
        """Waits for the outcome.

        Args:
            timeout: Seconds to wait at most, as in `concurrent.futures`, or a timedelta; None: no limit.
            timeout_ms: Instead: milliseconds to wait at most.

        Raises:
            fletchlog.errors.KafkaTimeoutError: Not decided within that time; also a `TimeoutError`.
            fletchlog.errors.KafkaError: Why the record was not written.
        """
    def exception(self, timeout: float | timedelta | None = None, *, timeout_ms: _Wait | None = None) -> Exception | None:
        """Waits for the outcome, as `result` does; returns why the record was not written, or None if it was."""
    def _watch(self, wakeups: _Wakeups, token: int) -> bool:
        """For `fletchlog.aio`: `token` is woken when the outcome is decided. False: it is."""
    def done(self) -> bool:
        """Whether it is decided."""
    def running(self) -> bool:
        """Whether it is undecided."""
    def cancel(self) -> bool:
        """False: a record that was queued cannot be taken back."""
    def cancelled(self) -> bool:
        """False."""
    def future(self) -> Future[RecordMetadata]:
        """The same outcome as a `concurrent.futures.Future`, for `concurrent.futures.wait` and `as_completed`."""
    def add_done_callback(self, callback: Callable[[RecordFuture], object]) -> None:
        """Calls `callback(future)` once the outcome is decided.

        Called in the producer's thread of callbacks, one at a time, after those that were given before it; at once, in the thread of this call,
        if the outcome is decided. What it raises in the producer's thread goes to `sys.unraisablehook`.
        """
    def __await__(self) -> Generator[Any, None, RecordMetadata]:
        """Under asyncio: the outcome, as `result()` returns it. The event loop continues meanwhile; a cancelled wait changes nothing for the record."""

@final
class Clock:
    """The clock of a broker, see `Broker.clock`: the machine's, until a test sets it. Thread-safe.

        broker.clock.advance(seconds=45)  # sessions, transactions, waiting fetches, retention: what is due within 45 s happens now

    All timed work of the broker follows it, and every time that the broker writes or reports: the timestamps in internal topics, those of
    `message.timestamp.type=LogAppendTime`, of commits and of transactions, and the timestamps of records of an embedded `Producer` that are given none.

    The time limits of clients do not follow it, neither of embedded ones nor of those on a listener: `poll(timeout_ms=500)` takes half a second,
    also while the clock is frozen. During `advance` no time passes for a client. So a member on a listener sends no heartbeat: it is removed when the step is as
    long as its `session.timeout.ms`, as if its process had been paused. An embedded member needs none: it is removed `max.poll.interval.ms` after its last call.
    To keep a member, advance in smaller steps. Idle connections of a listener (`connections.max.idle.ms`) follow the clock. What bytes take on a
    socket does not, so no connection is closed in the middle of a request.

    On a directory: what was written after an `advance` has times in the future. At the next opening the clock is the machine's again. Records and offsets then
    look newer than now, so retention keeps them until their time has come. Use a directory that is for tests.
    """

    def advance(
        self,
        seconds: float | timedelta | None = None,
        *,
        milliseconds: float | None = None,
        minutes: float | None = None,
        hours: float | None = None,
        days: float | None = None,
    ) -> None:
        """Sets the clock ahead, and does what is due on the way: each thing at its deadline, in their order, also what only arises meanwhile.

        When it returns, all of it has happened, and the answers that clients were waiting for are on their way. That includes time-outs of sessions, joins and
        transactions, fetches that wait, the expiry of offsets and ids, retention if `log.retention.check.interval.ms` is set, and the cleaner if
        `log.cleaner.enable` is. The clock then runs on, unless it is frozen. Other threads may use the broker meanwhile; a second `advance` waits for the first.

        Args:
            seconds: How far: a number of seconds, or a timedelta; 0 only does what is due.
            milliseconds: The same in ms. What is given in several units is added.
            minutes: In minutes.
            hours: In hours.
            days: In days.

        Raises:
            TypeError: Nothing is given.
            fletchlog.errors.InvalidArgumentError: A negative number: a clock cannot go back. More than 100 years.
            fletchlog.errors.ClosedError: The broker is closed.
        """
    def freeze(self) -> None:
        """Stops the clock: nothing of the broker times out until `resume` or `advance`. Freezing twice does nothing.

        Raises:
            fletchlog.errors.ClosedError: The broker is closed.
        """
    def resume(self) -> None:
        """Lets the clock run on, from the time at which it was stopped. Does nothing if it runs.

        Raises:
            fletchlog.errors.ClosedError: The broker is closed.
        """
    @property
    def is_frozen(self) -> bool:
        """Whether `freeze` was called, and `resume` not since."""
    @property
    def now_ms(self) -> int:
        """The time of the broker, ms since the epoch."""

@final
class FaultRules:
    """The rules of a plan and its record of requests, as `fletchlog.testing.FaultPlan` uses them. Thread-safe."""

    def __new__(cls) -> Self: ...
    def add(self, plan: str, when: Callable[[dict[str, Any]], object] | None = None) -> list[int]:
        """Adds the rules of a plan in JSON, each with this condition; returns their numbers."""
    def clear(self, number: int | None = None) -> None:
        """Clears a rule, or all of them, and random faults with what they did; what a rule holds is carried out."""
    def report(self) -> list[tuple[int, str, int, int, int, bool, bool]]:
        """Of each rule: its number, itself in JSON, how many requests matched, to how many it applied, how many it holds, whether it is optional, whether it was cleared."""
    def seed(self) -> int | None:
        """The seed of random faults; None without them."""
    def drawn(self) -> list[str]:
        """What random faults did, each as a rule in JSON."""
    def wait(self, number: int, at_most_ms: int) -> bool:
        """Waits until a rule holds a request; whether it does."""
    def release(self, number: int) -> None:
        """Carries out what a rule holds; it holds nothing from now on."""
    def record(self, records: bool) -> None:
        """Records requests from now on, or ends that. What was recorded is forgotten."""
    def collect_sends(self) -> None:
        """Until `resume_sends` producers in this process send nothing; when it returns, none is about to send."""
    def resume_sends(self) -> None:
        """Ends a `collect_sends`."""
    @staticmethod
    def check_api(name: str) -> None:
        """Raises InvalidArgumentError if Kafka has no API of this name."""
    def requests(self) -> list[tuple[tuple[Any, ...], tuple[Any, ...], tuple[Any, ...]]]:
        """The recorded requests, oldest first."""

@final
class Listener:
    """A port of a broker that Kafka's clients connect to, see `Broker.listen()`. Thread-safe."""

    @property
    def bootstrap(self) -> str:
        """`host:port` of every node, separated by commas: the clients' `bootstrap.servers`."""
    def stats(self) -> Table:
        """What clients asked for: a row for each API, version and client software.

        Columns: api (string, Kafka's name), version (int16), client (string: name and version of the software, empty when it did
        not say), requests (uint64), bytes (uint64, of the requests). The schema's metadata counts connections
        (`connections.open`, `.accepted`, `.refused`) and bytes (`bytes.received`, `.sent`).
        """
    def last_requests(self) -> Table:
        """The last 50 requests, the newest at the end: what clients did before something went wrong.

        Columns: time_ms (int64, since the epoch), api (string, Kafka's name), version (int16), client (string: name and version of
        the software, empty when it did not say), client_id (string, its first 100 characters), address (string, host:port).
        """
    @property
    def faults(self) -> FaultPlan:
        """What goes wrong between this listener and its clients, by rules, and the record of their requests."""
    @property
    def recording(self) -> dict[str, Any] | None:
        """How far the recording of a session is; None: nothing is recorded.

        `path` (the file), `dropped` (requests that were not recorded, because the disk or this process was too slow), `failure` (why
        nothing more is written; None: all is well).
        """
    def close(self) -> None:
        """Accepts nothing more, sends the answers that are being made (for at most a second), and ends every connection.

        Requests that wait for data end without an answer. The broker stays open. Closing twice does nothing.
        """
    def __enter__(self) -> Self: ...
    def __exit__(self, *exception: object) -> None: ...

@final
class Session:
    """A recorded session: connections, requests and responses, in their order. Thread-safe.

    Opening it reads where everything is; messages are read from the file when they are asked for, so it must stay. A file that is cut, or is
    still written, is read up to its last whole block.

    Iterating gives a `SessionConnection` for each connection, before its requests, and a `SessionExchange` for each request in the
    order of arrival. `len(session)` is the number of requests, `session[0]` the first one.

    Args:
        path: The file.

    Raises:
        fletchlog.errors.StorageError: The file cannot be read.
        fletchlog.errors.DamagedFileError: It is no session, or damaged before its end.
        fletchlog.errors.UnsupportedFormatError: A later release wrote it.
    """

    def __new__(cls, path: str | PathLike[str]) -> Self: ...
    @property
    def path(self) -> Path:
        """The file."""
    @property
    def version(self) -> int:
        """Version of its format."""
    @property
    def writer(self) -> str:
        """The program that wrote it, with its version."""
    @property
    def cluster_id(self) -> str | None:
        """The id of the cluster; None: not known. Of a proxy it is known from the first Metadata response on."""
    @property
    def started_us(self) -> int:
        """When the recording began, us since the epoch, by the machine's clock."""
    @property
    def has_values(self) -> bool:
        """Whether keys, values and headers of records are in it."""
    @property
    def is_cut(self) -> bool:
        """Whether bytes follow the last whole block: the file was cut, its process was killed, or it is being written."""
    @property
    def has_ended(self) -> bool:
        """Whether the recording was closed; False: it continues, or its process was killed."""
    @property
    def dropped(self) -> int:
        """Requests that were not recorded, because the queue to the file was full."""
    @property
    def dropped_bodies(self) -> int:
        """Responses whose bytes were left out for the same reason."""
    @property
    def connections(self) -> list[SessionConnection]:
        """All connections, by number."""
    @property
    def topic_names(self) -> dict[str, str]:
        """Names of topics by their ids in Kafka's notation, as far as responses have named them."""
    def exchange(self, number: int) -> SessionExchange:
        """The request with this number.

        Raises:
            KeyError: No request has it.
        """
    def read_on(self) -> list[SessionConnection | SessionExchange]:
        """Reads what was written since the file was opened, or since the last call.

        Returns:
            In the order of events: a connection when it was opened, and again when it was closed; a request when it has its outcome.

        Raises:
            fletchlog.errors.StorageError: The file cannot be read.
            fletchlog.errors.DamagedFileError: It is damaged.
        """
    def columns(self) -> dict[str, Any]:
        """All requests as tables, for `explain`: see `exchange_columns`."""
    def __len__(self) -> int: ...
    def __getitem__(self, at: int, /) -> SessionExchange: ...
    def __iter__(self) -> _SessionItems: ...

@final
class _SessionItems:
    """Iterates over a session. Thread-safe."""

    def __iter__(self) -> Self: ...
    def __next__(self) -> SessionConnection | SessionExchange: ...

@final
class SessionConnection:
    """A connection of a session, as it was when it was read."""

    @property
    def number(self) -> int:
        """Its number, from 1."""
    @property
    def node(self) -> int:
        """The node that its client reached; -1: a proxy did not know it yet."""
    @property
    def peer(self) -> str:
        """Address of the client: `host:port`."""
    @property
    def listener(self) -> str:
        """Address that the client used: `host:port`."""
    @property
    def principal(self) -> str | None:
        """Name of the user; None: the client did not authenticate."""
    @property
    def client_id(self) -> str | None:
        """`client.id` of its first request that has one."""
    @property
    def software_name(self) -> str | None:
        """Name of the client's software, of its ApiVersions request; None: it did not say."""
    @property
    def software_version(self) -> str | None:
        """Version of the client's software."""
    @property
    def opened_us(self) -> int:
        """When it was opened, us since the epoch."""
    @property
    def closed_us(self) -> int | None:
        """When it was closed, us since the epoch; None: it was open when the recording ended."""
    @property
    def close_reason(self) -> str | None:
        """Why the broker or the proxy closed it; None: the client did, or it was open."""

@final
class SessionExchange:
    """A request of a session and what became of it. Messages are read from the file each time they are asked for."""

    @property
    def number(self) -> int:
        """Number of the request, from 1, over all connections in the order of arrival."""
    @property
    def connection(self) -> int:
        """Number of its connection."""
    @property
    def node(self) -> int:
        """The node that was asked; -1: a proxy did not know it yet."""
    @property
    def client_id(self) -> str | None:
        """The client's `client.id`."""
    @property
    def software_name(self) -> str | None:
        """Name of the client's software; None: it did not say."""
    @property
    def software_version(self) -> str | None:
        """Version of the client's software."""
    @property
    def api(self) -> str:
        """Kafka's name of the API, such as `Fetch`; `API 99` where Kafka has none; empty: not recorded."""
    @property
    def api_key(self) -> int:
        """Key of the API; -1: not recorded."""
    @property
    def version(self) -> int:
        """The API's version; -1: not recorded."""
    @property
    def correlation_id(self) -> int:
        """The client's number of the request."""
    @property
    def arrived_us(self) -> int:
        """When it had arrived, us since the epoch, by the machine's clock."""
    @property
    def answered_us(self) -> int | None:
        """When its response was ready, us since the epoch; None: it had none."""
    @property
    def request_bytes(self) -> int:
        """Bytes of the request with its header, without its size."""
    @property
    def response_bytes(self) -> int | None:
        """The same of the response; None: there was none."""
    @property
    def fault(self) -> str | None:
        """The rule for faults that applied to it: its name, or the rule in JSON; None: none."""
    @property
    def outcome(self) -> str:
        """As in `fletchlog.testing.Request`: "answered", "without response", "pending", "closed", "client gone", or what a rule did."""
    @property
    def request(self) -> dict[str, Any] | None:
        """The fields of the request by Kafka's names in snake case, as its version has them; None: not recorded, or of an API that is not known.

        Ids are texts in Kafka's notation. A struct with `topic_id` and without a name has the name as `topic`, if it is known. `records` is a
        list of batches: base_offset, last_offset, records, size (bytes), magic, codec, first_timestamp, max_timestamp (ms), leader_epoch,
        producer_id, producer_epoch, base_sequence, transactional, control, and `bytes` if the session keeps records. What consumers tell their
        group and get assigned are dicts: version, topics, owned_partitions, generation_id, rack_id, assigned_partitions, user_data. Secrets are
        empty or None.

        Raises:
            fletchlog.errors.StorageError: The file cannot be read.
            fletchlog.errors.DamagedFileError: It was changed.
        """
    @property
    def response(self) -> dict[str, Any] | None:
        """The fields of the response, as `request` has them; None: there was none, or it is not recorded."""
    def frame(self) -> bytes:
        """The bytes of the request: header and body as they were sent, without the size; empty: not recorded.

        Records and secrets are not in them: see the page *Sessions*.
        """

@final
class Proxy:
    """A proxy before a cluster, see `Cluster.proxy()`. Thread-safe. It works on after the `Cluster` was closed."""

    @property
    def bootstrap(self) -> str:
        """`host:port`: the clients' `bootstrap.servers`."""
    @property
    def faults(self) -> FaultPlan:
        """What is to go wrong between its clients and the cluster, by rules as those of `Listener.faults`; and the record of requests.

        Times of delays are the machine's. The node of a connection to `bootstrap` is -1: it may be any. Of a fetch by topic ids the names are known once a
        response has named them.
        """
    @property
    def recording(self) -> dict[str, Any] | None:
        """How far the recording of a session is, as `Listener.recording`; None: nothing is recorded."""
    def close(self) -> None:
        """Closes every port and every connection. Closing twice does nothing."""
    def __enter__(self) -> Self: ...
    def __exit__(self, *exception: object) -> None: ...

@final
class Consumer(Generic[_K, _V]):
    """Kafka's consumer: what `poll` returns, in the order in which the Java client returns it.

    One thread at a time: a second one gets `ConcurrentAccessError` at once, and nothing has changed. Only `wakeup` may be
    called from anywhere.

    Times: one rule. How long (`timeout_ms`): an int of milliseconds or a `datetime.timedelta`. When: an int of milliseconds since 1970 or a
    `datetime.datetime` with a time zone; one without is refused, since it could be meant in any. A float, whose unit nobody could tell, is a TypeError. Where `timeout_ms` may be None
    it then is `default.api.timeout.ms` (60,000 unless set); `KafkaTimeoutError` when it is over.

    Args:
        source: Where to read from: an open `Broker`, a `Cluster`, whose properties are then this consumer's unless `config` has others,
            `"kafka://HOST:PORT,..."`, a directory or an object store. A directory is opened for this consumer and closed with it: for writing with a
            `group.id`, since the group commits offsets there, else for reading only. A configuration with `bootstrap.servers` may be given instead.
        config: Kafka's dotted names, see `config_table()`; `fletchlog.consumer.version` selects the release reproduced.
        group: `group.id`.
        topics: What to subscribe to; as a later `subscribe`, which also takes a pattern and callbacks.
        faults: What is to go wrong between this consumer and the broker, for tests: a `fletchlog.testing.FaultPlan`.
        key_deserializer: Called with the bytes of each key, but None; returns the `key` of the `Record`. A function, or one of `fletchlog.serde`.
        value_deserializer: The same for values. Without them keys and values are bytes. Both run when a record is handed out by itself: by
            `for record in records`, by an index, by `for record in consumer`. The columns of `Records` stay bytes; `serde.deserialize` decodes
            those, which is much faster. What a deserializer raises becomes a `RecordDeserializationError` with topic, partition and offset.

    Raises:
        fletchlog.errors.ConfigError: Unknown, invalid or contradictory properties.
        fletchlog.errors.ClosedError: The broker is closed.
    """

    def __class_getitem__(cls, key: Any) -> GenericAlias: ...
    @overload
    def __new__(
        cls,
        source: Source,
        config: ConsumerConfig | _AnyProperties | None = None,
        *,
        group: str | None = None,
        topics: Iterable[str] | None = None,
        faults: FaultPlan | None = None,
        key_deserializer: _Deserializer[_K] | None = None,
        value_deserializer: _Deserializer[_V] | None = None,
    ) -> Consumer[_K, _V]: ...
    @overload
    def __new__(
        cls,
        source: ConsumerConfig | _AnyProperties,
        *,
        group: str | None = None,
        topics: Iterable[str] | None = None,
        faults: FaultPlan | None = None,
        key_deserializer: _Deserializer[_K] | None = None,
        value_deserializer: _Deserializer[_V] | None = None,
    ) -> Consumer[_K, _V]: ...
    @overload
    def __new__(
        cls,
        source: None = None,
        *,
        config: ConsumerConfig | _AnyProperties,
        group: str | None = None,
        topics: Iterable[str] | None = None,
        faults: FaultPlan | None = None,
        key_deserializer: _Deserializer[_K] | None = None,
        value_deserializer: _Deserializer[_V] | None = None,
    ) -> Consumer[_K, _V]: ...
    def subscribe(
        self,
        topics: Iterable[str] | None = None,
        *,
        pattern: str | None = None,
        on_assigned: _Listener | None = None,
        on_revoked: _Listener | None = None,
        on_lost: _Listener | None = None,
    ) -> None:
        """Joins the group with these topics, or with every topic whose whole name matches `pattern`.

        A pattern has Java's syntax, with look-ahead, back references, possessive quantifiers, flags and classes of POSIX and Unicode. Not supported
        are the escapes for graphemes (X), for characters by name (N) and for borders of graphemes (b{g}), and blocks of Unicode: names of topics are
        ASCII. A pattern that takes too many steps back on a name is an error of `poll`.

        The callbacks run inside `poll`, `unsubscribe` and `close`, in the calling thread, with a list of partitions; they may use this
        consumer. `on_assigned` runs before anything of the new partitions is read, so it may seek. `on_revoked` and `on_lost` run while the
        partitions are still assigned, so they may ask for positions, and `on_revoked` may commit. `on_lost` defaults to `on_revoked`.
        """
    def assign(self, partitions: Iterable[_Partition] | _Partition) -> None:
        """Takes exactly these partitions, without a group's help."""
    def unsubscribe(self) -> None:
        """Leaves the subscription or assignment."""
    def poll(
        self,
        timeout_ms: _Wait = 1000,
        *,
        until: Mapping[_Partition, OffsetAndMetadata | int] | Mapping[TopicPartition, OffsetAndMetadata | int] | None = None,
    ) -> Records[_K, _V]:
        """Returns up to `max.poll.records` records; waits at most `timeout_ms` for the first one.

        Args:
            timeout_ms: The longest wait for records.
            until: The end of each partition, exclusive, such as what `end_offsets` returned: no record at or beyond it is returned, no position
                passes it, and other partitions are not read. For work up to a point that was decided before. `read_to_end` is the loop over it.

        Under `fletchlog.fetch.order=timestamp` rows are merged by (timestamp, topic, partition); offset order within a partition always
        holds, so a record is never before an earlier one of its partition. A record waits for every assigned partition that is not
        paused and has data in the log that has not arrived, and for one at its end only for `fletchlog.timestamp.max.idle.ms`,
        within `fletchlog.timestamp.max.lateness.ms`. Records older than what was returned are `late_records`: they come as soon as
        they are read. Positions and commits are as always: a restart loses nothing.

        Ctrl-C and `wakeup` end a wait with no position moved.

        Raises:
            fletchlog.errors.CorruptRecordError: A damaged batch, or one whose offset does not follow those before it. The records
                before it were returned by earlier calls; the position does not move, and the next call raises again.
            fletchlog.errors.StorageError: The log of an assigned partition cannot be read, and no other partition has records. No
                position has moved: the next poll tries again; `pause` leaves the partition out.
        """
    def read_to_end(self, timeout_ms: _Wait | None = None) -> RecordsToEnd[_K, _V]:
        """Every record up to the ends that the logs have at this call, then stops: `for records in consumer.read_to_end()`.

        For a job that reads what is there, and for tests. The partitions are those assigned now; with a subscription it first waits for the group
        to assign some. Reading begins at the positions. The ends are those of the isolation level: under `read_committed`, the last stable offset.
        Paused partitions are left out, and so are partitions that a rebalance takes away. Records that are appended later are not returned, and
        the positions stop before them, so a later call continues there.

        Args:
            timeout_ms: The longest wait for the next records; None: `default.api.timeout.ms`.

        Raises:
            fletchlog.errors.IllegalStateError: Neither a subscription nor an assignment.
            fletchlog.errors.KafkaTimeoutError: The group assigns no partition in time, or the ends are not known in time.
        """
    def assignment(self) -> list[TopicPartition]:
        """Assigned partitions, in the order that decides requests."""
    def subscription(self) -> list[str]:
        """Subscribed topics."""
    def seek(self, partition: _Partition, offset: int | OffsetAndMetadata | datetime) -> None:
        """The next poll of this partition starts at `offset`.

        A datetime is looked up: at the first record of that time or later, at the end if no such record exists. An `OffsetAndMetadata` with a leader epoch is checked for truncation first. Kafka: `KafkaConsumer#seek(TopicPartition,
        OffsetAndMetadata)`.
        """
    def seek_to_beginning(self, partitions: Iterable[_Partition] | _Partition | None = None) -> None:
        """To the log start, when next polled; None: all assigned partitions."""
    def seek_to_end(self, partitions: Iterable[_Partition] | _Partition | None = None) -> None:
        """To the log end, when next polled; None: all assigned partitions."""
    def position(self, partition: _Partition, timeout_ms: _Wait | None = None) -> int:
        """Offset of the next record to be returned.

        Raises:
            fletchlog.errors.StorageError: It has to be looked up, and the log cannot be read; so do the three lookups below.
            fletchlog.errors.KafkaTimeoutError: Not known within the time.
        """
    def offsets_for_times(
        self, times: Mapping[_Partition, int | datetime] | Mapping[TopicPartition, int | datetime], timeout_ms: _Wait | None = None
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """Per partition the lowest offset whose timestamp is at or after the time, None if no record has one."""
    def beginning_offsets(self, partitions: Iterable[_Partition] | _Partition, timeout_ms: _Wait | None = None) -> dict[TopicPartition, int]:
        """Log start offsets. `CorruptRecordError` for a log that is too damaged to be opened."""
    def end_offsets(self, partitions: Iterable[_Partition] | _Partition, timeout_ms: _Wait | None = None) -> dict[TopicPartition, int]:
        """End offsets for this consumer's isolation level. `CorruptRecordError` for a log that is too damaged to be opened."""
    def commit(
        self,
        offsets: Mapping[_Partition, OffsetAndMetadata | int] | Mapping[TopicPartition, OffsetAndMetadata | int] | None = None,
        timeout_ms: _Wait | None = None,
    ) -> None:
        """Commits the positions of all partitions, or exactly `offsets`.

        Raises:
            fletchlog.errors.InvalidGroupIdError: No `group.id`.
            fletchlog.errors.CommitFailedError: The group has moved on.
            fletchlog.errors.ReadOnlyError: The broker is open for reading only.
        """
    @overload
    def committed(self, partitions: _Partition, timeout_ms: _Wait | None = None) -> OffsetAndMetadata | None: ...
    @overload
    def committed(self, partitions: Iterable[_Partition], timeout_ms: _Wait | None = None) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """Committed offsets of the group: of one partition, or a dict for several."""
    def pause(self, partitions: Iterable[_Partition] | _Partition) -> None:
        """Returns and fetches nothing more of these partitions; what is buffered is kept."""
    def resume(self, partitions: Iterable[_Partition] | _Partition) -> None:
        """Ends a pause."""
    def paused(self) -> list[TopicPartition]:
        """Paused partitions."""
    @property
    def late_records(self) -> int:
        """Records returned so far that were older than one returned before them, under `fletchlog.fetch.order=timestamp`; else 0.

        "Before" begins again with a seek or another assignment. The trace has them by poll and partition (`late`).
        """
    def group_metadata(self) -> ConsumerGroupMetadata | None:
        """What `Producer.send_offsets_to_transaction` needs to know of this consumer; None without `group.id`."""
    def lag(self) -> dict[TopicPartition, int]:
        """How far each position is behind the end of its log, as the last response to a fetch reported it.

        An assigned partition is missing until it has a position and a response to a fetch has named its end. Where there is nothing to read, that response
        comes after `fetch.max.wait.ms`.
        """
    def metrics(self) -> Metrics:
        """What it has counted and measured since it was made, under the names of Kafka's metrics.

        `records-consumed-total`, `bytes-consumed-total`; `records-lag-max`, the largest of `lag()`; `fetch-total`, answers to fetches, with
        `fetch-size-avg`, `-max`, `fetch-latency-avg`, `-max` (until the answer was read: a poll reads it) and `records-per-request-avg`;
        `time-between-poll-avg`, `-max`; `request-total`, `response-total`, `request-latency-avg`, `-max`, of all requests.
        """
    def trace(self) -> Table:
        """Every call, request, answer and decision, when `fletchlog.trace` is on; one row per event, in order.

        Columns: `poll` uint64, number of the poll from 1, 0 before the first; `kind` string, see below; `node` int32; `full` bool, whether a
        fetch is a full one; `topic` string; `partition` int32; `offset`, `last_offset` int64; `epoch` int32, leader epoch of a committed
        offset; `records` int64; `text` string, why or more; `partitions`, a list of structs: `topic`, `partition`, `offset`, `records`,
        `bytes`, `batches`, `error`, `gone`. What does not apply is null or empty. The properties that were set are in the schema's metadata
        as `fletchlog.config.<name>`, so that `fletchlog.explain.replay` can make the run again.

        Kinds: `poll`, a poll begins; `call`, the program calls the method `text` with `partitions`; `order`, the assignment in request order;
        `ask`, a fetch request, where `gone` are those it takes out of the session; `answer`, its answer; `skip`, left out of requests from
        now on because of `text`, where `gone` are those no longer left out for it; `take`, records handed out; `late`, records among them
        that are older than one handed out before; `drained`, a fetch is used up; `rotate`, moved behind all others; `park`, a paused
        partition's data moved to the end of the queue; `drop`, a fetch thrown away; `place`, a position looked up; `error`; `return`.

        Raises:
            fletchlog.errors.IllegalStateError: It is off.
        """
    def _begin_from_committed(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """For `fletchlog.explain.replay`: the committed offsets that a recorded run began with."""
    def explain(self) -> Explanation:
        """The story of the polls so far, when `fletchlog.trace` is on: `text()`, and a picture in a notebook.

        Raises:
            fletchlog.errors.IllegalStateError: It is off.
        """
    def __iter__(self) -> Self:
        """`for record in consumer`: record by record, without an end; convenient, and slow beside `poll`.

        Positions move, and commits reach, only over what was handed out. Ctrl-C ends the wait for the next record.

        Raises:
            fletchlog.errors.RecordDeserializationError: A key or value cannot be deserialized. The record counts as handed out: the next step, or
                another `for`, gives the record behind it; `seek(error.topic_partition, error.offset)` goes back to it.
            fletchlog.errors.WakeupError: Another thread called `wakeup`.
            fletchlog.errors.KafkaError: As for `poll`.
        """
    def __next__(self) -> Record[_K, _V]:
        """The next record; waits for it indefinitely."""
    def _poll(self, most: int | None, timeout_ms: _Wait) -> tuple[Records[_K, _V], list[tuple[_Listener, list[TopicPartition]]]]:
        """For `AsyncConsumer`: a poll, at most of `most` records, and the rebalance callbacks that the caller has to run."""
    def _hand_back(self, records: Records[_K, _V]) -> None:
        """For `AsyncConsumer`: the next poll returns these records, which nobody has seen."""
    def _begin_unsubscribe(self) -> list[tuple[_Listener, list[TopicPartition]]]:
        """For `AsyncConsumer`: the callbacks to run before `_end_unsubscribe`."""
    def _end_unsubscribe(self) -> None:
        """For `AsyncConsumer`: the second half of `unsubscribe`."""
    def _begin_close(self, timeout_ms: _Wait) -> list[tuple[_Listener, list[TopicPartition]]]:
        """For `AsyncConsumer`: commits, and returns the callbacks to run before `_end_close`."""
    def _end_close(self, timeout_ms: _Wait) -> None:
        """For `AsyncConsumer`: the second half of `close`."""
    def _release(self) -> None:
        """For `AsyncConsumer`: closes the broker that was opened for this consumer."""
    def _watch(self, wakeups: _Wakeups, token: int) -> int | None:
        """For `fletchlog.aio`: `token` is woken when a wait would end; over sockets, this file descriptor of the consumer is readable then."""
    def _timed_work(self) -> _TimedWork | None:
        """For `fletchlog.aio`: the timed work of the broker; None for a cluster."""
    def wakeup(self) -> None:
        """Ends the blocking call of another thread, or the next one, with `WakeupError`. Thread-safe."""
    def close(self, timeout_ms: _Wait = 30000) -> None:
        """Commits if `enable.auto.commit`, leaves the group and closes. Closing twice does nothing. `wakeup` does not end it."""
    def __enter__(self) -> Self: ...
    def __exit__(self, *_exception: object) -> None: ...

@final
class ShareConsumer(Generic[_K, _V]):
    """A member of a share group: records are acquired for a time, and each is acknowledged. Kafka: `KafkaShareConsumer` (KIP-932).

    Any number of members read the same partitions, each record goes to one of them at a time, and there are no positions. A record that is not
    acknowledged before its lock ends (30 s unless the group says otherwise), or that is released, is delivered again, to any member;
    `delivery_count` counts. A record is delivered at least once, and not more often than the group's limit (5 unless set).

        with fl.ShareConsumer("kafka://localhost:9092", group="billing", topics=["orders"]) as consumer:
            for record in consumer:
                ...

    With `share.acknowledgement.mode` implicit (the default) the next poll or `commit` accepts the records of the last poll; explicit: the program
    acknowledges each with `acknowledge`. One thread at a time, as with `Consumer`; only `wakeup` may be called from anywhere.

    Args:
        source: Where to read from: a `Cluster`, `"kafka://HOST:PORT,..."`, an open `Broker` or a directory, as for `Consumer`.
        config: Kafka's dotted names, as for `Consumer`, without those that mean nothing in a share group, such as `auto.offset.reset`: the group
            has `share.auto.offset.reset`.
        group: `group.id`.
        topics: What to subscribe to; as a later `subscribe`.
        on_acknowledgement: Called as `on_acknowledgement(partition, offsets, error)` with what became of acknowledgements: a `TopicPartition`, a
            list of offsets, None or a `KafkaError`. It runs inside `poll`, `commit` and `close`, in the calling thread, and may use this consumer.
        faults: As for `Consumer`.
        key_deserializer: As for `Consumer`.
        value_deserializer: As for `Consumer`.

    Raises:
        fletchlog.errors.InvalidGroupIdError: No group.
        fletchlog.errors.ConfigError: Unknown or invalid properties, or one that a share consumer does not have.
        fletchlog.errors.ClosedError: The broker is closed.
    """

    def __class_getitem__(cls, key: Any) -> GenericAlias: ...
    def __new__(
        cls,
        source: Source | ConsumerConfig | _AnyProperties | None = None,
        config: ConsumerConfig | _AnyProperties | None = None,
        *,
        group: str | None = None,
        topics: Iterable[str] | None = None,
        on_acknowledgement: _OnAcknowledgement | None = None,
        faults: FaultPlan | None = None,
        key_deserializer: _Deserializer[_K] | None = None,
        value_deserializer: _Deserializer[_V] | None = None,
    ) -> ShareConsumer[_K, _V]: ...
    def subscribe(self, topics: Iterable[str]) -> None:
        """Reads these topics, in place of those before. The coordinator learns of it with the first or the next heartbeat. No topics: `unsubscribe`."""
    def unsubscribe(self) -> None:
        """Leaves the group. What is acknowledged is sent, every other record is released."""
    def subscription(self) -> list[str]:
        """Subscribed topics."""
    def poll(self, timeout_ms: _Wait = 1000) -> Records[_K, _V]:
        """Returns acquired records; waits at most `timeout_ms` for the first one.

        There may be more than `max.poll.records`: the leader acquires whole batches, unless `share.acquire.mode` is `record_limit`. Rows of a
        partition are in offset order, and redelivered ones come before or among newer ones. The Arrow batches have one more column, last:
        `delivery_count` (int16), how often the record was delivered, this time included; records that are handed out one by one are `ShareRecord`.

        Raises:
            fletchlog.errors.IllegalStateError: No subscription; or, with `share.acknowledgement.mode=explicit`, a record of the last poll is not
                acknowledged.
            fletchlog.errors.CorruptRecordError: A damaged batch. Its records were rejected, and the next poll goes past them.
            fletchlog.errors.KafkaError: The group refuses the member, such as a group that is no share group.
        """
    def __iter__(self) -> Self:
        """`for record in consumer`: record by record, without an end. Acknowledgements reach only over what was handed out.

        Under the implicit mode a record is accepted when the next one is asked for; the acknowledgements of records that were fetched together are
        sent together.
        """
    def __next__(self) -> Record[_K, _V]:
        """The next record; waits for it indefinitely."""
    def acknowledge(
        self,
        records: Record[Any, Any] | Records[Any, Any] | tuple[str, int, int] | list[Record[Any, Any]],
        kind: Literal["accept", "release", "reject", "renew"] = "accept",
    ) -> None:
        """Says what became of a record, of (topic, partition, offset), of a list of these or of `Records`; sent with the next poll, `commit` or `close`.

        `accept`: processed. `release`: not processed, another delivery may succeed. `reject`: it cannot be processed, and is not delivered again.
        `renew`: still being processed: its lock begins again, and a later poll returns it again. A second call for a record replaces the first.

        Raises:
            fletchlog.errors.IllegalStateError: Under the implicit mode; or the record is not one that polls returned and that is not acknowledged.
        """
    def commit(self, timeout_ms: _Wait | None = None) -> dict[TopicPartition, KafkaError | None]:
        """Sends the acknowledgements, and returns what became of them, by partition: None, or the error. Java: `commitSync`.

        Under the implicit mode it accepts all records of the last poll. A partition without a result after `timeout_ms` has a `KafkaTimeoutError`;
        None: `default.api.timeout.ms`. With an error (the lock has ended, the leader has moved) records are delivered again.
        """
    def commit_async(self) -> None:
        """As `commit`, without waiting; `on_acknowledgement` receives the results."""
    @property
    def acquisition_lock_timeout(self) -> int | None:
        """How long records are locked, ms, as the last answer said; None before it."""
    def metrics(self) -> Metrics:
        """What it has counted and measured since it was made, under the names of Kafka's metrics.

        `records-consumed-total`, `bytes-consumed-total`; `fetch-total`, responses to fetches, with `fetch-size-avg`, `-max`,
        `fetch-latency-avg`, `-max` and `records-per-request-avg`; `time-between-poll-avg`, `-max`; `acknowledgements-send-total`, records
        whose acknowledgement was sent; `acknowledgements-error-total`, those whose acknowledgement failed; `request-total`,
        `response-total`, `request-latency-avg`, `-max`, of all requests.
        """
    def _poll(self, most: int | None, timeout_ms: _Wait) -> tuple[Records[_K, _V], list[tuple[TopicPartition, list[int], KafkaError | None]]]:
        """For `AsyncShareConsumer`: a poll, at most of `most` records, and the arguments for the callback."""
    def _hand_back(self, records: Records[_K, _V]) -> None:
        """For `AsyncShareConsumer`: the next poll returns these records, which nobody has seen."""
    def _commit(self, timeout_ms: _Wait | None) -> tuple[dict[TopicPartition, KafkaError | None], list[tuple[TopicPartition, list[int], KafkaError | None]]]:
        """For `AsyncShareConsumer`: a commit, and the arguments for the callback."""
    def _close(self, timeout_ms: _Wait) -> list[tuple[TopicPartition, list[int], KafkaError | None]]:
        """For `AsyncShareConsumer`: leaves the group; the arguments for the callback."""
    def _release(self) -> None:
        """For `AsyncShareConsumer`: closes the handle, and the broker that was opened for this consumer."""
    def _watch(self, wakeups: _Wakeups, token: int) -> int | None:
        """For `fletchlog.aio`: as that of `Consumer`."""
    def _timed_work(self) -> _TimedWork | None:
        """For `fletchlog.aio`: as that of `Consumer`."""
    def wakeup(self) -> None:
        """Ends the blocking call of another thread, or the next one, with `WakeupError`. Thread-safe."""
    def close(self, timeout_ms: _Wait = 30000) -> None:
        """Sends what is acknowledged, releases every other record, and leaves the group. Closing twice does nothing. `wakeup` does not end it.

        Under the implicit mode the records of the last poll are not accepted but released: call `commit` before, if they are processed.
        """
    def __enter__(self) -> Self: ...
    def __exit__(self, *_exception: object) -> None: ...

@final
class _Operation:
    """A call of the engine that is awaited: where `method(*arguments)` would sleep it is suspended."""

    def __new__(cls, method: Callable[..., object], *arguments: object, **keywords: object) -> Self: ...
    def step(self) -> int | None:
        """Begins or resumes the call. Returns the ms after which it has to be resumed if it is not woken before, or None: it has ended."""
    def result(self) -> Any:
        """What the method has returned, once."""
    def cancel(self) -> None:
        """Ends the call where it is suspended, as Ctrl-C would."""

@final
class _Wakeups:
    """How threads of the engine wake an event loop."""

    def __new__(cls) -> Self: ...
    def fileno(self) -> int:
        """Readable when `take` has something."""
    def take(self) -> list[int]:
        """The tokens that were woken since the last call."""

@final
class _TimedWork:
    """The timed work of a broker in this process, for an event loop that has no thread to wait for it."""

    @property
    def broker(self) -> int:
        """Which broker."""
    def watch(self, wakeups: _Wakeups, token: int) -> None:
        """`token` is woken when the time may have changed or the broker is closed."""
    @property
    def is_closed(self) -> bool:
        """Whether the broker is closed."""
    def due_in_ms(self) -> int | None:
        """When something is due; None: there is nothing."""
    def run(self) -> None:
        """Does what is due."""

@final
class LegacyConsumer:
    """Kafka's 0.8 high-level consumer: a number of streams per topic, each read by its own thread.

    The partitions of a topic are dealt to the streams (threads) of all consumers of the group; a thread that gets none is
    idle, and a warning of the logger `fletchlog.client.group` names it, in Kafka's own words.

    Args:
        broker: Broker to read from.
        config: `group.id` (required), `consumer.id`, `auto.offset.reset` (smallest or largest), see `config_table()`.

    Raises:
        fletchlog.errors.ConfigError: Unknown, invalid or contradictory properties.
        fletchlog.errors.ClosedError: The broker is closed.
    """

    def __new__(cls, broker: Broker, config: _Properties | None = None) -> Self: ...
    @property
    def consumer_id(self) -> str:
        """`<group>_<consumer.id>`, or `<group>_<host>-<ms>-<8 hex digits>`."""
    def create_message_streams(self, topic_count: dict[str, int]) -> dict[str, list[LegacyStream]]:
        """Joins the group with this number of streams for each topic, once: `{topic: [streams]}`, thread 0 first."""
    def owners(self) -> dict[str, dict[int, str]]:
        """The owner of each partition of the group now: `{topic: {partition: thread id}}`."""
    def commit_offsets(self) -> None:
        """Commits the positions of all streams: everything that polls have returned."""
    def shutdown(self) -> None:
        """Commits (under auto.commit.enable), leaves the group and closes the streams. Closing twice does nothing."""
    def close(self) -> None:
        """The same as `shutdown`."""
    def __enter__(self) -> Self: ...
    def __exit__(self, *_exception: object) -> None: ...

@final
class LegacyStream:
    """One stream of a legacy consumer: a thread of the group, to be polled by one thread."""

    @property
    def thread_id(self) -> str:
        """`<consumer id>-<i>`."""
    @property
    def topic(self) -> str:
        """The topic."""
    def assignment(self) -> list[TopicPartition]:
        """The partitions that this stream reads now; empty while it is idle or the group rebalances."""
    def poll(self, timeout_ms: _Wait = 1000) -> Records:
        """Records of this stream's partitions; waits at most `timeout_ms` for the first one."""
    def __iter__(self) -> Self:
        """Record by record, as Kafka's `ConsumerIterator`: only what was handed out is committed. Ends after `shutdown`."""
    def __next__(self) -> Record:
        """The next record; `KafkaTimeoutError` when none comes within `consumer.timeout.ms` (the stream can be read on)."""

@final
class Records(Generic[_K, _V]):
    """What one poll returned: Arrow data with the columns of Spark's kafka source.

    Rows come in the order of a Java for-each over `ConsumerRecords`; `runs()` has the order in which poll took them. Under
    `fletchlog.fetch.order=timestamp` both are the order of timestamps. Goes as it is into `pa.table(..)`, `pl.DataFrame(..)`, `duckdb`, and everything else that takes `__arrow_c_stream__`.
    Iterating gives one `Record` after the other: convenient, and slow.
    """

    def __class_getitem__(cls, key: Any) -> GenericAlias: ...
    def __len__(self) -> int: ...
    def __bool__(self) -> bool: ...
    def __iter__(self) -> RecordIterator[_K, _V]: ...
    @overload
    def __getitem__(self, key: int, /) -> Record[_K, _V]: ...
    @overload
    def __getitem__(self, key: slice, /) -> Records[_K, _V]:
        """The record of a row, or the `Records` of a range of rows, which copies no record. Rows before the first are counted from the end.

        `for record in records` is faster than an index for each.

        Raises:
            IndexError: There is no such row.
            fletchlog.errors.InvalidArgumentError: A range with a step.
            fletchlog.errors.RecordDeserializationError: A key or value cannot be deserialized.
        """
    def by_partition(self) -> dict[TopicPartition, Records[_K, _V]]:
        """The same records by partition, in the order of `partitions()`; copies no record. Java: `ConsumerRecords#records`.

        For work that is done, and committed, partition by partition.
        """
    @property
    def schema(self) -> pa.Schema:
        """The schema, as a pyarrow object."""
    def runs(self) -> list[Run]:
        """(topic, partition, first_offset, last_offset, count) in drain order."""
    def partitions(self) -> list[TopicPartition]:
        """Partitions in the order of their first rows."""
    def with_headers(self) -> Records[_K, _V]:
        """The same records with the column `headers`."""
    def to_pyarrow(self, *, include_headers: bool = False, timestamp_unit: TimestampUnit = "us") -> pa.Table:
        """As a `pyarrow.Table`. A record without a timestamp (-1) has null.

        Raises:
            fletchlog.errors.InvalidTimestampError: A timestamp that microseconds in 64 bits cannot hold; `timestamp_unit="ms"` reads it.
        """
    def to_pandas(self, *, include_headers: bool = False, timestamp_unit: TimestampUnit = "us", **options: Any) -> pd.DataFrame:
        """As a `pandas.DataFrame`; `options` go to `pyarrow.Table.to_pandas` (`types_mapper=pd.ArrowDtype` is quickest)."""
    def to_polars(self, *, include_headers: bool = False, timestamp_unit: TimestampUnit = "us") -> pl.DataFrame:
        """As a `polars.DataFrame`."""
    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object: ...
    def __arrow_c_array__(self, requested_schema: object | None = None) -> tuple[object, object]: ...
    def __arrow_c_schema__(self) -> object: ...
    def _repr_html_(self) -> str: ...

@final
class RecordIterator(Generic[_K, _V]):
    """Records one by one.

    A record whose key or value cannot be deserialized is a `RecordDeserializationError`, with `topic_partition`, `offset`, `column` and `data`. The same
    iterator continues with the record behind it: call `next(iterator)` in a `try` to skip what cannot be read.
    """

    def __class_getitem__(cls, key: Any) -> GenericAlias: ...
    def __iter__(self) -> Self: ...
    def __next__(self) -> Record[_K, _V]: ...

@final
class RecordsToEnd(Generic[_K, _V]):
    """The polls of `Consumer.read_to_end`, each with records."""

    def __class_getitem__(cls, key: Any) -> GenericAlias: ...
    def __iter__(self) -> Self: ...
    def __next__(self) -> Records[_K, _V]:
        """The next records.

        Raises:
            fletchlog.errors.KafkaTimeoutError: None came in time, though the end is not reached. The next step continues to wait.
            fletchlog.errors.KafkaError: As for `poll`.
        """

@final
class ScanRecords:
    """The records of `Scan.records`."""

    def __iter__(self) -> Self: ...
    def __next__(self) -> Record:
        """The next record; fails as the stream of the scan does."""

@final
class Scan:
    """Records of the log as a stream of Arrow batches: `pa.RecordBatchReader.from_stream(scan)`, or any of the methods.

    With `key` or `value` their columns have the types of these deserializers, batch by batch.
    The range is fixed when `scan` is called; every hand-over reads it from the first row again.
    """

    @property
    def schema(self) -> pa.Schema:
        """The schema, as a pyarrow object."""
    @property
    def source(self) -> Broker | Cluster:
        """Where the records are."""
    @property
    def ranges(self) -> list[Range]:
        """What is read, by partition: offsets, and times in ms since 1970. Partitions without records are left out of a cluster's."""
    def __iter__(self) -> Iterator[pa.RecordBatch]: ...
    def lazy(self) -> pl.LazyFrame:
        """The same rows as a `polars.LazyFrame`, which reads what a query needs: columns, predicates and `head` reach the scan.

        `fl.scan_topic` makes one without a scan, of typed columns and of several topics, too. Here the range stays that of the scan; rows come by partition
        and offset. Each `collect` reads from `source`, which has to be open.

        Raises:
            fletchlog.errors.InvalidArgumentError: The scan has `order="timestamp"`: sort the frame by `timestamp`.
            ImportError: polars or pyarrow is missing.
        """
    def _asked(self) -> dict[str, Any]:
        """What `scan` was called with."""
    @property
    def _decoder(self) -> Any:
        """What decodes keys and values; None: they stay bytes."""
    def _bytes(self) -> Scan:
        """The same rows as the decoder reads them, with bytes."""
    def records(self) -> ScanRecords:
        """The rows one by one, each as a `Record` with all its fields, whatever `columns` says. Needs no other package, and no more memory than a batch.

        With `key` or `value` these are decoded; under `null` and `collect` what cannot be decoded is None.

        Convenient, and slow beside the columns. Each call reads the scan from the first row.
        """
    def to_reader(self) -> pa.RecordBatchReader:
        """As a `pyarrow.RecordBatchReader`."""
    def to_pyarrow(self) -> pa.Table:
        """All rows as a `pyarrow.Table`."""
    def to_pandas(self, **options: Any) -> pd.DataFrame:
        """All rows as a `pandas.DataFrame`; `options` go to `pyarrow.Table.to_pandas`."""
    def to_polars(self) -> pl.DataFrame:
        """All rows as a `polars.DataFrame`."""
    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object: ...
    def __arrow_c_schema__(self) -> object: ...
    def _raise_failure(self) -> None:
        """Raises the failure that ended the last stream of this scan, if one did."""

@final
class Table:
    """A small Arrow table: a trace, a log of faults, an inspection."""

    def __len__(self) -> int: ...
    @property
    def schema(self) -> pa.Schema:
        """The schema, as a pyarrow object."""
    def to_pyarrow(self) -> pa.Table:
        """As a `pyarrow.Table`."""
    def to_pandas(self, **options: Any) -> pd.DataFrame:
        """As a `pandas.DataFrame`."""
    def to_polars(self) -> pl.DataFrame:
        """As a `polars.DataFrame`."""
    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object: ...
    def __arrow_c_array__(self, requested_schema: object | None = None) -> tuple[object, object]: ...
    def __arrow_c_schema__(self) -> object: ...
    def _repr_html_(self) -> str: ...

def inspect_segment(path: str | PathLike[str]) -> SegmentInspection:
    """Every batch of a `.log` file, with what follows the last one. Works on any file, beside any writer.

    Raises:
        fletchlog.errors.StorageError: The file cannot be read.
    """

@final
class JsonSchema:
    """A JSON Schema, for `fletchlog.serde.JsonSchema`. Any thread may use it.

    Raises:
        fletchlog.errors.InvalidArgumentError: Not a JSON Schema, or one that refers to another that is not among `references`, texts by their names.
    """

    def __new__(cls, schema: str, references: Mapping[str, str]) -> Self: ...
    def reader(self, values: ValueReader) -> ValueReader:
        """Reads values that follow the schema by another reader; the others are malformed."""

    def writer(self) -> ValueWriter:
        """Writes columns as JSON, without null fields that the schema does not require and does not allow as null. Other values are not checked."""

    def refused_value(self, data: bytes) -> str | None:
        """Why a value is not JSON, or does not follow the schema; None if it does."""

    def refused(self, data: _ArrowStream | _ArrowArray) -> list[tuple[int, str]]:
        """(row, reason) of every value in the only column of a record batch that is not JSON, or does not follow the schema.

        Raises:
            fletchlog.errors.InvalidArgumentError: There is no such column, or it has no bytes.
        """

@final
class ObjectReader:
    """Reads single values of one format and schema as Python objects, for `fletchlog.serde`. Any thread may use it."""

    def decode(self, data: bytes) -> Any:
        """A value, as `pyarrow.Scalar.as_py(maps_as_pydicts="strict")` gives it.

        Raises:
            ValueError: It is malformed, or a map has a key twice.
            OverflowError: A date or a time that Python does not have.
        """

@final
class ObjectWriter:
    """Writes single Python objects as values of one format and schema, for `fletchlog.serde`. Any thread may use it."""

    def encode(self, value: object) -> bytes | None:
        """The bytes of a value, as by way of `pyarrow.array([value], type)`; None: it is left to pyarrow, which also says what is wrong with it.

        Taken are objects of exactly the classes bool, int, float, str, bytes, date, datetime, Decimal, list and dict.

        Raises:
            ValueError: A float with a fraction for an integer.
        """

@final
class ValueReader:
    """Reads values of one format and schema, a whole column at a time, for `fletchlog.serde`. Any thread may use it."""

    def __arrow_c_schema__(self) -> object: ...
    def decode(self, data: _ArrowStream | _ArrowArray) -> tuple[Table, list[tuple[int, str]]]:
        """The only column of a record batch, decoded: a table of one column `v`, null where a row is null or malformed; and (row, reason) of every malformed row.

        Raises:
            fletchlog.errors.InvalidArgumentError: There is no such column, or it has no bytes.
        """

    def objects(self) -> ObjectReader | None:
        """What reads single values as Python objects; None: the type is left to pyarrow (nanoseconds, durations, times of nanoseconds, a name twice, ..)."""

    def pruned(self, fields: Sequence[Sequence[str]]) -> ValueReader:
        """A reader of these fields alone, each the names on the way to it. What is left out is skipped.

        Raises:
            fletchlog.errors.InvalidArgumentError: There is no such field.
        """

@final
class ValueWriter:
    """Writes values of one format and schema, a whole column at a time, for `fletchlog.serde`. Any thread may use it."""

    def column_type(self, data: _ArrowStream | _ArrowArray) -> object:
        """A capsule with the schema of one column, of the type to which the only column of a record batch is cast before `encode`.

        Raises:
            fletchlog.errors.InvalidArgumentError: No column of its type can be written.
        """

    def encode(self, data: _ArrowStream | _ArrowArray) -> tuple[Table, list[tuple[int, str]]]:
        """The only column of a record batch, encoded: a table of one column `v` of binary; and (row, reason) of every row that has no such value.

        Raises:
            fletchlog.errors.InvalidArgumentError: It is of another type than `column_type` gives, or its bytes are more than 2 GiB.
        """

    def objects(self, schema: _ArrowSchema) -> ObjectWriter | None:
        """What writes single Python objects as values of the type of the only column of an Arrow schema; None: the type is left to pyarrow, or cast."""

def avro_is_bounded(schema: str) -> bool:
    """Whether values of an Avro schema take memory in proportion to their bytes: no type contains itself, and none that takes no bytes is repeated.

    Raises:
        fletchlog.errors.InvalidArgumentError: Not an Avro schema.
    """

def avro_reader(schema: str, reader_schema: str | None = None) -> ValueReader:
    """A reader of values in Avro's binary encoding, for `fletchlog.serde.Avro`: its arguments as JSON text.

    Raises:
        fletchlog.errors.InvalidArgumentError: As `fletchlog.serde.Avro`.
    """

def avro_writer(schema: str) -> ValueWriter:
    """A writer of values in Avro's binary encoding, for `fletchlog.serde.Avro`: its schema as JSON text.

    Raises:
        fletchlog.errors.InvalidArgumentError: As `fletchlog.serde.Avro`.
    """

def confluent_reader(like: ValueReader, readers: list[tuple[int | bytes, ValueReader]], malformed: list[tuple[int | bytes, str]]) -> ValueReader:
    """A reader of Confluent's wire format, for `fletchlog.serde.Confluent`. Schema ids are numbers, or the 16 bytes of GUIDs.

    Args:
        like: A reader of the type that all have.
        readers: What reads the rest of the values of a schema.
        malformed: Why the values of a schema cannot be read. Schemas that are in neither are unknown.

    Raises:
        fletchlog.errors.InvalidArgumentError: One gives another type.
    """

def protobuf_reader(descriptors: bytes, message: str, *, indexes_of: bytes | None = None) -> ValueReader:
    """A reader of a Protobuf message, for `fletchlog.serde.Protobuf`.

    Args:
        descriptors: A serialised `google.protobuf.FileDescriptorSet`: the message's file and all that it imports.
        message: Its full name.
        indexes_of: The descriptors with which values were written, if Confluent's message indexes are before each of them.

    Raises:
        fletchlog.errors.InvalidArgumentError: Not descriptors, no such message, or one without an Arrow type.
        fletchlog.errors.UnresolvableError: `indexes_of` has no such message.
    """

def protobuf_writer(descriptors: bytes, message: str, *, indexed: bool = False) -> ValueWriter:
    """A writer of a Protobuf message: see `protobuf_reader`. `indexed`: its message indexes are written before each value.

    Raises:
        fletchlog.errors.InvalidArgumentError: As there.
    """

def protobuf_file(text: str, name: str) -> bytes:
    """The serialised `google.protobuf.FileDescriptorProto` of the text of a .proto file alone: types are names as written, options are uninterpreted.

    Args:
        text: proto2 or proto3.
        name: The name of the file.

    Raises:
        fletchlog.errors.InvalidArgumentError: It is not such a text: what is wrong, in which line.
    """

def protobuf_descriptors(files: dict[str, str] | dict[str, bytes], name: str) -> bytes:
    """The serialised `google.protobuf.FileDescriptorSet` of a .proto file and all that it imports, each after what it imports.

    Args:
        files: .proto files by the names with which they are imported: texts, or serialised `FileDescriptorProto`s. Those of `google/protobuf` are known.
        name: The file to compile.

    Raises:
        fletchlog.errors.InvalidArgumentError: One of the files is not proto2 or proto3, or an imported one is not given.
    """

def json_decode_inferred(data: _ArrowStream | _ArrowArray) -> tuple[Table, list[tuple[int, str]]]:
    """The only column of a record batch, JSON values, as the type that they show: see `fletchlog.serde.Json`; a result as of `ValueReader.decode`.

    Raises:
        fletchlog.errors.InvalidArgumentError: There is no such column, or it has no bytes.
    """

def json_reader(schema: _ArrowSchema, *, refuses_other_fields: bool = False) -> ValueReader:
    """Reads JSON values as the type of the only column of an Arrow schema; dictionaries and views are read as the types of their values.

    A field that the type lacks is left out, or makes the value malformed.

    Raises:
        fletchlog.errors.InvalidArgumentError: A part of the type has no JSON, or a struct a name twice.
    """

def json_refused(data: bytes) -> str | None:
    """Why bytes are not exactly one JSON value; None if they are one."""

def json_writer() -> ValueWriter:
    """Writes columns of every type that has JSON."""

def list_reader(items: ValueReader, size: int | None = None) -> ValueReader:
    """A reader of Kafka's lists, for `fletchlog.serde.List`.

    Args:
        items: What reads their items.
        size: The bytes of an item, where Kafka's serializer of lists has a size for its class.
    """

def list_writer(items: ValueWriter, size: int | None = None) -> ValueWriter:
    """The way back of `list_reader`."""

def log_to(receiver: Callable[[str], object]) -> None:
    """Hands the lines that the engine logs to `receiver`, not to Python's `logging`, from now on. Any thread may call it.

    For a process that shows them and wants nothing else of `logging`, whose import takes time. Without their levels.

    Raises:
        RuntimeError: It was called before.
    """

def primitive_reader(schema: _ArrowSchema) -> ValueReader:
    """Reads values as one of Kafka's own serializers wrote them, named by the type of the only column of an Arrow schema: string, int16, int32, int64, float, double.

    Raises:
        fletchlog.errors.InvalidArgumentError: Another type.
    """

def primitive_writer(schema: _ArrowSchema) -> ValueWriter:
    """The way back of `primitive_reader`.

    Raises:
        fletchlog.errors.InvalidArgumentError: Another type.
    """

def exchange_columns(exchanges: list[SessionExchange]) -> dict[str, Any]:
    """Requests of sessions as tables, for `explain`.

    A table is a dict of columns by name; a column has the bytes of 64-bit integers in the byte order of the machine. Times are us since 1970; -2**63 is no
    value.

    | key | what |
    |---|---|
    | `lines` | all requests, in the given order |
    | `fetches` | those that are a Fetch: `place` is the row in `lines`, `named` and `got` are the first rows in the next tables |
    | `named` | partitions that a Fetch names, with offsets |
    | `got` | what a Fetch response has of a partition, without a batch that is cut at the end; `asked` is the offset that was asked for, -1: not known |
    | `batches` | batches of Produce requests; `base_offset` is that of the response |
    | `heartbeats` | Heartbeats of classic groups: texts of group, member and instance |
    | `commits` | offsets of OffsetCommit requests: texts of group and member, the generation or the epoch of the member |
    | `positions` | offsets that OffsetFetch responses have, with the group, and ListOffsets responses, with the time that was asked for |
    | `shares` | ShareFetch and ShareAcknowledge; `acknowledged` and `acquired` are the first rows in the next tables, `wanted` is that of the share session |
    | `acknowledged` | what they acknowledge; `types` is a number of `types` |
    | `acquired` | what a ShareFetch response hands out; `written_ms` is the largest timestamp of its batches, -1: none |
    | `types` | kinds of acknowledgements: one for all offsets, or one for each |
    | `throttled` | requests of these APIs whose response asks the client to pause, ms |
    | `failed` | those whose response has an error |
    | `texts` | texts, which columns refer to by number |
    | `lanes` | partitions: the number of the topic's text, the partition |
    | `wanted` | partitions of fetch and share sessions by number of the partition, in the order of the session |

    Raises:
        fletchlog.errors.StorageError: A file cannot be read, or was changed.
    """

def served_apis() -> list[tuple[str, int, int, int]]:
    """Name, key, lowest and highest version of every API of Kafka's protocol that a listener serves, by key."""

def schema_ids(data: _ArrowStream | _ArrowArray) -> list[int | bytes]:
    """The schema ids of the only column of a record batch, in Confluent's wire format: numbers, and the 16 bytes of GUIDs.

    Each once, in the order in which they occur.

    Raises:
        fletchlog.errors.InvalidArgumentError: There is no such column, or it has no bytes.
    """

def with_schema_headers(data: _ArrowStream | _ArrowArray, name: str) -> Table:
    """Of a record batch of values (binary) and headers a table of one column `v`: each value after what its record has in the header `name`.

    Confluent's serializers write a magic byte and a schema's id or GUID there.

    Raises:
        fletchlog.errors.InvalidArgumentError: The columns are of other types.
    """

def segment_records(path: str | PathLike[str], topic: str, partition: int, position: int) -> tuple[Table, int | None]:
    """Records of a `.log` file from the batch at `position` on, some megabytes of them, and the position at which the next call continues.

    Rows have Spark's kafka schema with headers; control batches are left out. None as the position: the file, or what can
    be read of it, ends.

    Raises:
        fletchlog.errors.StorageError: The file cannot be read.
        fletchlog.errors.CorruptRecordError: A damaged batch.
    """

def partition_directories(directory: str | PathLike[str]) -> list[tuple[Path, int]]:
    """The partition directories that `verify` checks, each with the bytes of its segments.

    Raises:
        fletchlog.errors.StorageError: The directory cannot be read, or there is no partition.
    """

def segment_files(directory: str | PathLike[str]) -> list[Path]:
    """The `.log` files of a partition's directory, by base offset.

    Raises:
        fletchlog.errors.StorageError: The directory cannot be read.
    """

def clean_offsets(log_dir: str | PathLike[str]) -> dict[tuple[str, int], int]:
    """Up to which offset the cleaner has been over each partition of a log directory: its `cleaner-offset-checkpoint`.

    Raises:
        fletchlog.errors.StorageError: The file cannot be read.
        fletchlog.errors.DamagedFileError: It is no checkpoint.
    """

def decision_rows() -> list[tuple[tuple[int, int], tuple[int, int], bool]]:
    """First and last release of every row of the decision table, and whether the partitions of a subscription are sorted there."""

def parse_release(text: str) -> tuple[int, int]:
    """Major and minor number of a release of Kafka's clients, such as 2.6 or 2.6.3.

    Raises:
        fletchlog.errors.InvalidArgumentError: It is no release from 2.4 to 4.4.
    """

def java_hash(topic: str, partition: int) -> int:
    """Java's `TopicPartition.hashCode()` as a signed 32-bit number."""

def hash_buckets(order: Sequence[tuple[str, int]], release: tuple[int, int], subscribe: bool) -> tuple[int, list[int]] | None:
    """The hash table that decides the order in which a consumer asks for partitions: its size, and the bucket of each partition.

    None where no table decides, or where it would lead to another order.
    """

def derive_polls(
    consumer: tuple[
        dict[str, str],
        list[tuple[int, list[tuple[str, int]], bool]],
        list[str] | None,
        list[tuple[int, list[tuple[str, int, int]]]],
        list[tuple[int, list[str]]],
        list[tuple[int, tuple[str, int]]],
        bool,
        bool,
    ],
    fetches: list[_RecordedFetch],
    max_poll_records: int | None,
) -> dict[str, Any]:
    """The polls of a Java consumer, derived from its fetches in the order of their arrival: see `fletchlog.explain.session.polls`.

    Args:
        consumer: Its properties; its assignments (time in us, partitions, whether those assigned before keep their positions); the topics of its
            subscription, None: `assign()`; its commits (time, partitions with offsets); the topics that its Metadata requests name, with their times;
            partitions whose offsets it looked up, with the times; whether another thread than that of the polls sends the fetches (KIP-848); whether
            responses are read between polls.
        fetches: Its fetches.
        max_poll_records: What the program has set; None: it is concluded.

    Raises:
        fletchlog.errors.InvalidConfigError: A property is unknown or refused.
        fletchlog.errors.InvalidArgumentError: No consumer can have this assignment, or max_poll_records is 0.
    """

def find_topics(pattern: str, topics: Sequence[str]) -> list[str]:
    """The names in which a pattern in Java's syntax is found, as by `Matcher.find`; see `Consumer.subscribe` for the syntax.

    Raises:
        fletchlog.errors.InvalidArgumentError: It is no pattern, has syntax that is not supported, or takes too many steps on a name.
    """

def verify(directory: str | PathLike[str]) -> list[PartitionReport]:
    """Checks every partition of a broker's directory (or one partition's): batches, indexes, side files. Changes nothing.

    Raises:
        fletchlog.errors.StorageError: A file cannot be read, or there is no partition.
    """

def config_table() -> list[ConfigKey]:
    """Every property with its type, default and meaning."""

def error_classes() -> list[tuple[str, int | None, bool, str]]:
    """(what happened, Kafka's code, class in `fletchlog.errors`) of everything the engine can raise."""

def assign(
    strategy: str,
    topics: dict[str, int],
    members: dict[str, tuple[list[str], str | None, dict[str, list[int]], int | None, str | None]],
    replica_racks: dict[str, list[list[str]]],
) -> _Assignment:
    """See `fletchlog.assign`."""

def assign_legacy(strategy: str, topics: dict[str, int], consumers: dict[str, dict[str, int]]) -> _Assignment:
    """See `fletchlog.assign`."""

def assign_uniform(topics: dict[str, tuple[bytes, int]], members: list[tuple[str, list[str], str | None, dict[str, list[int]]]]) -> _Assignment:
    """See `fletchlog.assign`."""
