"""Every exception of fletchlog.

::

    KafkaError                              code, name, retriable: from Kafka's error table
    ├── ConfigException                     also ValueError: unknown, invalid or contradictory properties
    ├── InvalidArgumentError                also ValueError: an argument that can never be right
    │   ├── SchemaError                     Arrow columns that cannot be produced
    │   └── ReplayRefusedError              a trace whose log has changed, or whose group had other members
    ├── IllegalStateError                   the call does not fit the state of the handle
    │   ├── ClosedError                     the handle was closed
    │   ├── ConcurrentAccessError           two threads in one consumer at once; nothing has changed
    │   ├── ForkedHandleError               a handle of the parent process used in a forked child
    │   └── ReadOnlyError                   the broker is open for reading only
    ├── KafkaTimeoutError                   also TimeoutError
    │   └── BufferExhaustedError            no room in buffer.memory within max.block.ms
    ├── WakeupError                         `Consumer.wakeup()` was called
    ├── InternalError                       a defect of fletchlog; the handle is unusable from here on
    ├── StorageError                        files could not be read or written
    │   ├── DirectoryError                  missing, foreign or inconsistent directory
    │   │   └── DirectoryLockedError        another writer (of ours or a Kafka broker) has it
    │   ├── DamagedFileError                a file does not hold what it must
    │   └── FencedLogError                  an earlier write failed; reopen the broker
    ├── InvalidTopicError                   also ValueError
    ├── InvalidPartitionsError              also ValueError
    ├── TopicAlreadyExistsError
    ├── UnknownTopicOrPartitionError        also LookupError
    ├── OffsetOutOfRangeError               .partitions: {TopicPartition: offset}
    │   └── LogTruncationError              also .divergent_offsets: {TopicPartition: offset}
    ├── NoOffsetForPartitionError           .partitions: [TopicPartition]
    ├── CorruptRecordError                  .topic_partition, .offset
    ├── RecordDeserializationError          also ValueError; .topic_partition, .offset, .column, .data
    ├── InvalidRecordError
    ├── InvalidTimestampError
    ├── RecordTooLargeError
    │   └── RecordBatchTooLargeError        larger than segment.bytes
    ├── UnsupportedFormatError              a version or codec that the receiver does not take
    ├── InvalidRequiredAcksError
    ├── OutOfOrderSequenceError
    ├── DuplicateSequenceError
    ├── InvalidProducerEpochError
    ├── ProducerFencedError
    ├── UnknownProducerIdError
    ├── NotEnoughReplicasError
    │   └── NotEnoughReplicasAfterAppendError
    ├── LeaderError                         no leader, or not this node
    ├── NetworkError                        the connection was lost before the answer came
    ├── ListenerError                       also OSError: a port could not be opened
    ├── TransactionError
    │   ├── TransactionAbortableError       abort the transaction, then continue
    │   ├── TransactionAbortedError         the record's transaction was aborted before it was sent
    │   ├── InvalidTxnStateError
    │   ├── InvalidTxnTimeoutError
    │   ├── InvalidPidMappingError          the broker has forgotten the transactional id
    │   ├── ConcurrentTransactionsError
    │   ├── TransactionCoordinatorFencedError
    │   └── UnstableOffsetCommitError       an offset is part of an open transaction
    ├── GroupError
    │   ├── CommitFailedError
    │   ├── InvalidGroupIdError
    │   ├── IllegalGenerationError
    │   ├── UnknownMemberIdError
    │   ├── RebalanceInProgressError
    │   ├── InconsistentGroupProtocolError
    │   ├── InvalidSessionTimeoutError
    │   ├── FencedInstanceIdError
    │   ├── GroupMaxSizeReachedError
    │   ├── GroupIdNotFoundError            also LookupError
    │   ├── NonEmptyGroupError              its members have to leave first
    │   └── GroupSubscribedToTopicError     a member may read the offset that was to be deleted
    ├── OffsetMetadataTooLargeError
    └── UnknownServerError

The engine chooses the class (one table, `rust/python/src/errors.rs`); a test compares that table with this module.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fletchlog.types import TopicPartition


class KafkaError(Exception):
    """Root of every exception of fletchlog.

    Attributes:
        code: Kafka's error code; -1 (UNKNOWN_SERVER_ERROR) where Kafka has none, as Kafka itself does.
        name: Kafka's name of that code.
        retriable: Whether the same call may succeed later.
    """

    code: int = -1
    name: str = "UNKNOWN_SERVER_ERROR"
    retriable: bool = False


class ConfigException(KafkaError, ValueError):  # noqa: N818 - Kafka's own name
    """A property is unknown, invalid, or contradicts another one. Nothing was opened or changed."""

    code = 40
    name = "INVALID_CONFIG"


class InvalidArgumentError(KafkaError, ValueError):
    """An argument can never be right (Kafka: IllegalArgumentException). Nothing has changed."""

    code = 42
    name = "INVALID_REQUEST"


class SchemaError(InvalidArgumentError):
    """Arrow data with a missing, unknown or wrongly typed column. Nothing of it was sent."""


class ReplayRefusedError(InvalidArgumentError):
    """A trace that cannot be replayed: its log has changed, or other members of its group took part, which no trace records."""


class IllegalStateError(KafkaError):
    """The call does not fit the state of the handle (Kafka: IllegalStateException). Nothing has changed."""


class ClosedError(IllegalStateError):
    """The handle, or the broker behind it, was closed before the call."""


class ConcurrentAccessError(IllegalStateError):
    """Another thread is inside this consumer (Kafka: ConcurrentModificationException). Nothing has changed."""

    retriable = True


class ForkedHandleError(IllegalStateError):
    """The handle was opened by the parent process: open a new one in the child."""


class ReadOnlyError(IllegalStateError):
    """The broker is open for reading only."""


class KafkaTimeoutError(KafkaError, TimeoutError):
    """The call did not finish in time."""

    code = 7
    name = "REQUEST_TIMED_OUT"
    retriable = True


class BufferExhaustedError(KafkaTimeoutError):
    """No room in `buffer.memory` within `max.block.ms`: the record was not queued."""


class WakeupError(KafkaError):
    """`Consumer.wakeup()` ended the call; no position has moved."""


class InternalError(KafkaError):
    """A defect of fletchlog itself. The handle is unusable from here on; please report the text."""


class StorageError(KafkaError):
    """Files could not be read or written."""

    code = 56
    name = "KAFKA_STORAGE_ERROR"


class ListenerError(KafkaError, OSError):
    """A port could not be opened: the address is taken, or is not this machine's."""


class DirectoryError(StorageError):
    """The directory is missing, foreign or inconsistent."""


class DirectoryLockedError(DirectoryError):
    """Another writer, of ours or a Kafka broker, has the directory. `read_only=True` reads beside it."""

    retriable = True


class DamagedFileError(StorageError):
    """A file does not hold what it must."""


class FencedLogError(StorageError):
    """An earlier write to this partition failed: nothing is written until the broker is reopened."""


class InvalidTopicError(KafkaError, ValueError):
    """Not a topic name that Kafka allows."""

    code = 17
    name = "INVALID_TOPIC_EXCEPTION"


class InvalidPartitionsError(KafkaError, ValueError):
    """Not a number of partitions that Kafka allows."""

    code = 37
    name = "INVALID_PARTITIONS"


class TopicAlreadyExistsError(KafkaError):
    """A topic with this name exists."""

    code = 36
    name = "TOPIC_ALREADY_EXISTS"


class UnknownTopicOrPartitionError(KafkaError, LookupError):
    """The broker does not hold that topic or partition."""

    code = 3
    name = "UNKNOWN_TOPIC_OR_PARTITION"
    retriable = True


class OffsetOutOfRangeError(KafkaError):
    """An offset outside the log, and no policy to go elsewhere."""

    code = 1
    name = "OFFSET_OUT_OF_RANGE"


class LogTruncationError(OffsetOutOfRangeError):
    """A log was cut below the position of a consumer, and `auto.offset.reset` is none.

    `partitions` has the positions, `divergent_offsets` the first offset that differs, where it is known.
    """


class NoOffsetForPartitionError(KafkaError):
    """Nothing committed, and `auto.offset.reset` is none."""


class CorruptRecordError(KafkaError):
    """A batch fails its checksum or cannot be decoded. No position has moved."""

    code = 2
    name = "CORRUPT_MESSAGE"
    retriable = True


class RecordDeserializationError(KafkaError, ValueError):
    """A key or value cannot be decoded (Kafka: RecordDeserializationException). What was polled is still there: decode it again.

    Attributes:
        topic_partition: Where the record is, None if the data has no such columns.
        offset: Its offset, None likewise.
        column: "key" or "value".
        data: The bytes.
    """

    def __init__(
        self, message: str, *, topic_partition: TopicPartition | None = None, offset: int | None = None, column: str = "value", data: bytes | None = None
    ) -> None:
        super().__init__(message)
        self.topic_partition = topic_partition
        self.offset = offset
        self.column = column
        self.data = data


class InvalidRecordError(KafkaError):
    """The broker refuses a record, for instance a null key on a compacted topic."""

    code = 87
    name = "INVALID_RECORD"


class InvalidTimestampError(KafkaError):
    """A timestamp is outside the range that the topic accepts."""

    code = 32
    name = "INVALID_TIMESTAMP"


class RecordTooLargeError(KafkaError):
    """A record or batch is larger than `max.request.size` or `max.message.bytes`."""

    code = 10
    name = "MESSAGE_TOO_LARGE"


class RecordBatchTooLargeError(RecordTooLargeError):
    """A batch is larger than `segment.bytes`."""

    code = 18
    name = "RECORD_LIST_TOO_LARGE"


class UnsupportedFormatError(KafkaError):
    """A version, message format or codec that the receiver does not take."""

    code = 35
    name = "UNSUPPORTED_VERSION"


class InvalidRequiredAcksError(KafkaError):
    """`acks` must be all, 0 or 1."""

    code = 21
    name = "INVALID_REQUIRED_ACKS"


class OutOfOrderSequenceError(KafkaError):
    """A sequence number that is not the next one of its producer: a gap, or a repeat too old to be recognised."""

    code = 45
    name = "OUT_OF_ORDER_SEQUENCE_NUMBER"


class DuplicateSequenceError(KafkaError):
    """A sequence number that the broker already has."""

    code = 46
    name = "DUPLICATE_SEQUENCE_NUMBER"


class InvalidProducerEpochError(KafkaError):
    """The producer's epoch is older than the one the broker knows."""

    code = 47
    name = "INVALID_PRODUCER_EPOCH"


class ProducerFencedError(KafkaError):
    """A newer producer took over; this one cannot go on."""

    code = 90
    name = "PRODUCER_FENCED"


class UnknownProducerIdError(KafkaError):
    """The broker holds no state for this producer id."""

    code = 59
    name = "UNKNOWN_PRODUCER_ID"


class NotEnoughReplicasError(KafkaError):
    """Fewer replicas in sync than required; nothing was written."""

    code = 19
    name = "NOT_ENOUGH_REPLICAS"
    retriable = True


class NotEnoughReplicasAfterAppendError(NotEnoughReplicasError):
    """Written, but on fewer replicas than required."""

    code = 20
    name = "NOT_ENOUGH_REPLICAS_AFTER_APPEND"


class LeaderError(KafkaError):
    """The partition has no leader, or the leader is another node or epoch."""

    code = 6
    name = "NOT_LEADER_OR_FOLLOWER"
    retriable = True


class NetworkError(KafkaError):
    """The connection was lost before the answer came: whether the request was carried out is unknown."""

    code = 13
    name = "NETWORK_EXCEPTION"
    retriable = True


class TransactionError(KafkaError):
    """A transactional operation was refused."""


class TransactionAbortableError(TransactionError):
    """The transaction has failed: call `abort_transaction()`, then the producer can be used again. The message names the cause."""

    code = 120
    name = "TRANSACTION_ABORTABLE"


class TransactionAbortedError(TransactionError):
    """The record was not sent: its transaction was aborted (Kafka: TransactionAbortedException)."""


class InvalidTxnStateError(TransactionError):
    """The operation does not fit the state of the transaction at the broker."""

    code = 48
    name = "INVALID_TXN_STATE"


class InvalidTxnTimeoutError(TransactionError):
    """`transaction.timeout.ms` is larger than the broker's `transaction.max.timeout.ms`."""

    code = 50
    name = "INVALID_TRANSACTION_TIMEOUT"


class InvalidPidMappingError(TransactionError):
    """The producer id does not belong to the transactional id, which the broker may have forgotten."""

    code = 49
    name = "INVALID_PRODUCER_ID_MAPPING"


class ConcurrentTransactionsError(TransactionError):
    """The previous transaction of the producer is still being ended."""

    code = 51
    name = "CONCURRENT_TRANSACTIONS"
    retriable = True


class TransactionCoordinatorFencedError(TransactionError):
    """The transaction coordinator has been replaced."""

    code = 52
    name = "TRANSACTION_COORDINATOR_FENCED"


class UnstableOffsetCommitError(TransactionError):
    """An offset of the group is part of an open transaction."""

    code = 88
    name = "UNSTABLE_OFFSET_COMMIT"
    retriable = True


class GroupError(KafkaError):
    """The group coordinator refused a request."""


class CommitFailedError(GroupError):
    """The group has moved on: the partitions belong to another member now. The offsets were not committed."""


class InvalidGroupIdError(GroupError):
    """The call needs a `group.id`, or the one given is not valid."""

    code = 24
    name = "INVALID_GROUP_ID"


class IllegalGenerationError(GroupError):
    """The member's generation is not the group's."""

    code = 22
    name = "ILLEGAL_GENERATION"


class UnknownMemberIdError(GroupError):
    """The coordinator does not know this member."""

    code = 25
    name = "UNKNOWN_MEMBER_ID"


class RebalanceInProgressError(GroupError):
    """The group is rebalancing: poll, then try again."""

    code = 27
    name = "REBALANCE_IN_PROGRESS"


class InconsistentGroupProtocolError(GroupError):
    """The member shares no assignor with the group."""

    code = 23
    name = "INCONSISTENT_GROUP_PROTOCOL"


class InvalidSessionTimeoutError(GroupError):
    """`session.timeout.ms` is outside the broker's limits."""

    code = 26
    name = "INVALID_SESSION_TIMEOUT"


class FencedInstanceIdError(GroupError):
    """Another member uses this `group.instance.id`."""

    code = 82
    name = "FENCED_INSTANCE_ID"


class GroupMaxSizeReachedError(GroupError):
    """The group is full."""

    code = 81
    name = "GROUP_MAX_SIZE_REACHED"


class GroupIdNotFoundError(GroupError, LookupError):
    """There is no such group."""

    code = 69
    name = "GROUP_ID_NOT_FOUND"


class NonEmptyGroupError(GroupError):
    """The group has members: they have to leave first."""

    code = 68
    name = "NON_EMPTY_GROUP"


class GroupSubscribedToTopicError(GroupError):
    """A member of the group subscribes to the topic, so its offsets stay."""

    code = 86
    name = "GROUP_SUBSCRIBED_TO_TOPIC"


class OffsetMetadataTooLargeError(KafkaError):
    """The metadata text of a commit is longer than the broker takes."""

    code = 12
    name = "OFFSET_METADATA_TOO_LARGE"


class UnknownServerError(KafkaError):
    """The broker met an error that has no code of its own."""


__all__ = [
    "BufferExhaustedError",
    "ClosedError",
    "CommitFailedError",
    "ConcurrentAccessError",
    "ConcurrentTransactionsError",
    "ConfigException",
    "CorruptRecordError",
    "DamagedFileError",
    "DirectoryError",
    "DirectoryLockedError",
    "DuplicateSequenceError",
    "FencedInstanceIdError",
    "FencedLogError",
    "ForkedHandleError",
    "GroupError",
    "GroupIdNotFoundError",
    "GroupMaxSizeReachedError",
    "GroupSubscribedToTopicError",
    "IllegalGenerationError",
    "IllegalStateError",
    "InconsistentGroupProtocolError",
    "InternalError",
    "InvalidArgumentError",
    "InvalidGroupIdError",
    "InvalidPartitionsError",
    "InvalidPidMappingError",
    "InvalidProducerEpochError",
    "InvalidRecordError",
    "InvalidRequiredAcksError",
    "InvalidSessionTimeoutError",
    "InvalidTimestampError",
    "InvalidTopicError",
    "InvalidTxnStateError",
    "InvalidTxnTimeoutError",
    "KafkaError",
    "KafkaTimeoutError",
    "LeaderError",
    "ListenerError",
    "LogTruncationError",
    "NetworkError",
    "NoOffsetForPartitionError",
    "NonEmptyGroupError",
    "NotEnoughReplicasAfterAppendError",
    "NotEnoughReplicasError",
    "OffsetMetadataTooLargeError",
    "OffsetOutOfRangeError",
    "OutOfOrderSequenceError",
    "ProducerFencedError",
    "ReadOnlyError",
    "RebalanceInProgressError",
    "RecordBatchTooLargeError",
    "RecordDeserializationError",
    "RecordTooLargeError",
    "ReplayRefusedError",
    "SchemaError",
    "StorageError",
    "TopicAlreadyExistsError",
    "TransactionAbortableError",
    "TransactionAbortedError",
    "TransactionCoordinatorFencedError",
    "TransactionError",
    "UnknownMemberIdError",
    "UnknownProducerIdError",
    "UnknownServerError",
    "UnknownTopicOrPartitionError",
    "UnstableOffsetCommitError",
    "UnsupportedFormatError",
    "WakeupError",
]
