"""Every exception of fletchlog.

::

    KafkaError                           code, name, retriable: from Kafka's error table
    ├── ConfigError                      also ValueError: a property is unknown or invalid
    ├── InvalidArgumentError             also ValueError: an argument that can never be right
    │   ├── SchemaError                  Arrow columns that cannot be produced
    │   └── ReplayRefusedError           the log or the group has changed
    ├── IllegalStateError                the call does not fit the state of the handle
    │   ├── ClosedError                  the handle was closed
    │   ├── ConcurrentAccessError        two threads in one consumer at once
    │   ├── ForkedHandleError            a handle of the parent, used in a forked child
    │   ├── ReadOnlyError                the broker is open for reading only
    │   └── TableConflictError           another lander writes to the table
    ├── KafkaTimeoutError                also TimeoutError
    │   └── BufferExhaustedError         no room in buffer.memory within max.block.ms
    ├── WakeupError                      `Consumer.wakeup()` was called
    ├── InternalError                    a defect; the handle is unusable from here on
    ├── StorageError                     files could not be read or written
    │   ├── DirectoryError               missing, foreign or inconsistent directory
    │   │   └── DirectoryLockedError     another writer (of ours or a Kafka broker) has it
    │   ├── DamagedFileError             a file does not hold what it must
    │   └── FencedLogError               an earlier write failed; reopen the broker
    ├── InvalidTopicError                also ValueError
    ├── InvalidPartitionsError           also ValueError
    ├── PolicyViolationError             cleanup.policy, or read_only, refuses it
    ├── TopicAlreadyExistsError
    ├── UnknownTopicOrPartitionError     also LookupError
    ├── OffsetOutOfRangeError            .partitions: {TopicPartition: offset}
    │   └── LogTruncationError           also .divergent_offsets: {TopicPartition: offset}
    ├── NoOffsetForPartitionError        .partitions: [TopicPartition]
    ├── CorruptRecordError               .topic_partition, .offset
    ├── RecordDeserializationError       also ValueError; those above, .column, .data
    ├── InvalidRecordError
    ├── InvalidTimestampError
    ├── RecordTooLargeError
    │   └── RecordBatchTooLargeError     larger than segment.bytes
    ├── UnsupportedFormatError           a version or codec that the receiver does not take
    ├── InvalidRequiredAcksError
    ├── OutOfOrderSequenceError
    ├── DuplicateSequenceError
    ├── InvalidProducerEpochError
    ├── ProducerFencedError
    ├── UnknownProducerIdError
    ├── NotEnoughReplicasError
    │   └── NotEnoughReplicasAfterAppendError
    ├── LeaderError                      no leader, or not this node
    ├── NetworkError                     the connection was lost before the answer came
    ├── AuthenticationError
    │   ├── SslAuthenticationError       TLS could not be set up
    │   └── SaslAuthenticationError      the broker refused the user
    ├── SchemaRegistryError              a schema registry refuses it; .status, .error_code
    │   └── SchemaRegistryUnavailableError   none of its addresses answers
    ├── ListenerError                    also OSError: a port could not be opened
    ├── TransactionError
    │   ├── TransactionAbortableError    abort the transaction, then continue
    │   ├── TransactionAbortedError      aborted before the record was sent
    │   ├── InvalidTxnStateError
    │   ├── InvalidTxnTimeoutError
    │   ├── InvalidPidMappingError       the broker has forgotten the transactional id
    │   ├── ConcurrentTransactionsError
    │   ├── TransactionCoordinatorFencedError
    │   └── UnstableOffsetCommitError    an offset is part of an open transaction
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
    │   ├── GroupIdNotFoundError         also LookupError
    │   ├── NonEmptyGroupError           its members have to leave first
    │   └── GroupSubscribedToTopicError  a member may read the offset
    ├── InvalidRecordStateError          a share group gave the record away
    ├── ShareSessionNotFoundError
    ├── InvalidShareSessionEpochError
    ├── ShareSessionLimitReachedError    the node has as many share sessions as it may have
    ├── FencedStateEpochError            the state of a share group was written in between
    ├── OffsetMetadataTooLargeError
    └── UnknownServerError

The engine chooses the class (one table, `rust/python/src/errors.rs`); a test compares that table with this module.
"""

from __future__ import annotations

from fletchlog._core import error_classes

# importing typing takes longer than the classes do
TYPE_CHECKING = False

if TYPE_CHECKING:
    from fletchlog.types import TopicPartition

_CODES = {code: (name, retriable) for name, code, retriable, _ in error_classes() if code is not None}


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

    def __init_subclass__(cls, *, code: int | None = None) -> None:
        """Takes name and retriability of `code` from Kafka's table."""
        super().__init_subclass__()
        if code is not None:
            cls.code = code
            cls.name, retriable = _CODES[code]
            cls.retriable = cls.__dict__.get("retriable", retriable)


class ConfigError(KafkaError, ValueError, code=40):
    """A property is unknown, invalid, or contradicts another one. Nothing was opened or changed."""


class InvalidArgumentError(KafkaError, ValueError, code=42):
    """An argument can never be right (Kafka: IllegalArgumentException). Nothing has changed."""


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


class TableConflictError(IllegalStateError):
    """Another writer has committed to the table that topics are landed into, or is at work on it. Nothing of the commit is in the table."""

    retriable = True


class KafkaTimeoutError(KafkaError, TimeoutError, code=7):
    """The call did not finish in time."""


class BufferExhaustedError(KafkaTimeoutError):
    """No room in `buffer.memory` within `max.block.ms`: the record was not queued."""


class WakeupError(KafkaError):
    """`Consumer.wakeup()` ended the call; no position has moved."""


class InternalError(KafkaError):
    """A defect of fletchlog itself. The handle is unusable from here on; please report the text."""


class StorageError(KafkaError, code=56):
    """Files could not be read or written."""

    retriable = False  # Kafka's clients retry: another replica may lead. Here the files are the only ones.


class AuthenticationError(KafkaError):
    """A broker and this client do not accept each other. The call has ended; the next one tries again."""


class SslAuthenticationError(AuthenticationError):
    """TLS could not be set up: a certificate is refused, is for another host, or one side does not speak TLS."""


class SaslAuthenticationError(AuthenticationError, code=58):
    """The broker refused the user, the password or the token, or has another SASL mechanism."""


class SchemaRegistryError(KafkaError):
    """A schema registry refuses a request; the text has its URL.

    Attributes:
        status: HTTP's status; 0: there was no response that could be read.
        error_code: Confluent's code, such as 40401 for an unknown subject; None: the response had none.
    """

    status: int = 0
    error_code: int | None = None


class SchemaRegistryUnavailableError(SchemaRegistryError):
    """No address of a schema registry has a response, or all have an error of the server. The same call may succeed later."""

    retriable = True


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


class InvalidTopicError(KafkaError, ValueError, code=17):
    """Not a topic name that Kafka allows."""


class InvalidPartitionsError(KafkaError, ValueError, code=37):
    """Not a number of partitions that Kafka allows."""


class PolicyViolationError(KafkaError, code=44):
    """Cleaning without `cleanup.policy` `compact`, deleting records without `delete`, writing to a broker open for reading only."""


class TopicAlreadyExistsError(KafkaError, code=36):
    """A topic with this name exists."""


class UnknownTopicOrPartitionError(KafkaError, LookupError, code=3):
    """The broker does not hold that topic or partition."""


class OffsetOutOfRangeError(KafkaError, code=1):
    """An offset outside the log, and no policy to go elsewhere."""


class LogTruncationError(OffsetOutOfRangeError):
    """A log was cut below the position of a consumer, and `auto.offset.reset` is none.

    `partitions` has the positions, `divergent_offsets` the first offset that differs, where it is known.
    """


class NoOffsetForPartitionError(KafkaError):
    """Nothing committed, and `auto.offset.reset` is none."""


class CorruptRecordError(KafkaError, code=2):
    """A batch fails its checksum or cannot be decoded. No position has moved."""


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


class InvalidRecordError(KafkaError, code=87):
    """The broker refuses a record, for instance a null key on a compacted topic."""


class InvalidTimestampError(KafkaError, code=32):
    """A timestamp is outside the range that the topic accepts."""


class RecordTooLargeError(KafkaError, code=10):
    """A record or batch is larger than `max.request.size` or `max.message.bytes`."""


class RecordBatchTooLargeError(RecordTooLargeError, code=18):
    """A batch is larger than `segment.bytes`."""


class UnsupportedFormatError(KafkaError, code=35):
    """A version, message format or codec that the receiver does not take."""


class InvalidRequiredAcksError(KafkaError, code=21):
    """`acks` must be all, 0 or 1."""


class OutOfOrderSequenceError(KafkaError, code=45):
    """A sequence number that is not the next one of its producer: a gap, or a repeat too old to be recognised."""


class DuplicateSequenceError(KafkaError, code=46):
    """A sequence number that the broker already has."""


class InvalidProducerEpochError(KafkaError, code=47):
    """The producer's epoch is older than the one the broker knows."""


class ProducerFencedError(KafkaError, code=90):
    """A newer producer took over; this one cannot go on."""


class UnknownProducerIdError(KafkaError, code=59):
    """The broker holds no state for this producer id."""


class NotEnoughReplicasError(KafkaError, code=19):
    """Fewer replicas in sync than required; nothing was written."""


class NotEnoughReplicasAfterAppendError(NotEnoughReplicasError, code=20):
    """Written, but on fewer replicas than required."""


class LeaderError(KafkaError, code=6):
    """The partition has no leader, or the leader is another node or epoch."""


class NetworkError(KafkaError, code=13):
    """The connection was lost before the answer came: whether the request was carried out is unknown."""


class TransactionError(KafkaError):
    """A transactional operation was refused."""


class TransactionAbortableError(TransactionError, code=120):
    """The transaction has failed: call `abort_transaction()`, then the producer can be used again. The message names the cause."""


class TransactionAbortedError(TransactionError):
    """The record was not sent: its transaction was aborted (Kafka: TransactionAbortedException)."""


class InvalidTxnStateError(TransactionError, code=48):
    """The operation does not fit the state of the transaction at the broker."""


class InvalidTxnTimeoutError(TransactionError, code=50):
    """`transaction.timeout.ms` is larger than the broker's `transaction.max.timeout.ms`."""


class InvalidPidMappingError(TransactionError, code=49):
    """The producer id does not belong to the transactional id, which the broker may have forgotten."""


class ConcurrentTransactionsError(TransactionError, code=51):
    """The previous transaction of the producer is still being ended."""


class TransactionCoordinatorFencedError(TransactionError, code=52):
    """The transaction coordinator has been replaced."""


class UnstableOffsetCommitError(TransactionError, code=88):
    """An offset of the group is part of an open transaction."""


class GroupError(KafkaError):
    """The group coordinator refused a request."""


class CommitFailedError(GroupError):
    """The group has moved on: the partitions belong to another member now. The offsets were not committed."""


class InvalidGroupIdError(GroupError, code=24):
    """The call needs a `group.id`, or the one given is not valid."""


class IllegalGenerationError(GroupError, code=22):
    """The member's generation is not the group's."""


class UnknownMemberIdError(GroupError, code=25):
    """The coordinator does not know this member."""


class RebalanceInProgressError(GroupError, code=27):
    """The group is rebalancing: poll, then try again."""


class InconsistentGroupProtocolError(GroupError, code=23):
    """The member shares no assignor with the group."""


class InvalidSessionTimeoutError(GroupError, code=26):
    """`session.timeout.ms` is outside the broker's limits."""


class FencedInstanceIdError(GroupError, code=82):
    """Another member uses this `group.instance.id`."""


class GroupMaxSizeReachedError(GroupError, code=81):
    """The group is full."""


class GroupIdNotFoundError(GroupError, LookupError, code=69):
    """There is no such group."""


class NonEmptyGroupError(GroupError, code=68):
    """The group has members: they have to leave first."""


class GroupSubscribedToTopicError(GroupError, code=86):
    """A member of the group subscribes to the topic, so its offsets stay."""


class InvalidRecordStateError(KafkaError, code=121):
    """The member of a share group does not have the record any more: its lock has ended, or the record is done. It may come again."""


class ShareSessionNotFoundError(KafkaError, code=122):
    """The node does not know the share session: its connection has ended. What was acquired over it is released."""


class InvalidShareSessionEpochError(KafkaError, code=123):
    """A request is not the next one of its share session."""


class FencedStateEpochError(KafkaError, code=124):
    """The state of a share group's partition was written with a higher epoch: the group's offsets were altered."""


class ShareSessionLimitReachedError(KafkaError, code=133):
    """The node has as many share sessions as `group.share.max.share.sessions` allows."""


class OffsetMetadataTooLargeError(KafkaError, code=12):
    """The metadata text of a commit is longer than the broker takes."""


class UnknownServerError(KafkaError):
    """The broker met an error that has no code of its own."""


__all__ = [
    "AuthenticationError",
    "BufferExhaustedError",
    "ClosedError",
    "CommitFailedError",
    "ConcurrentAccessError",
    "ConcurrentTransactionsError",
    "ConfigError",
    "CorruptRecordError",
    "DamagedFileError",
    "DirectoryError",
    "DirectoryLockedError",
    "DuplicateSequenceError",
    "FencedInstanceIdError",
    "FencedLogError",
    "FencedStateEpochError",
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
    "InvalidRecordStateError",
    "InvalidRequiredAcksError",
    "InvalidSessionTimeoutError",
    "InvalidShareSessionEpochError",
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
    "PolicyViolationError",
    "ProducerFencedError",
    "ReadOnlyError",
    "RebalanceInProgressError",
    "RecordBatchTooLargeError",
    "RecordDeserializationError",
    "RecordTooLargeError",
    "ReplayRefusedError",
    "SaslAuthenticationError",
    "SchemaError",
    "ShareSessionLimitReachedError",
    "ShareSessionNotFoundError",
    "SslAuthenticationError",
    "StorageError",
    "TableConflictError",
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
