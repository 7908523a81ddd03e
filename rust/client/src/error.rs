//! Errors of client calls. The Python classes are chosen by variant, in one table.

use std::collections::BTreeMap;

use fletchlog_api::{ConfigError, ErrorCode, Failure};
use fletchlog_records::TopicPartition;

/// Every failure of a client call. Kafka's Java exception names are in brackets.
#[derive(Debug, Clone, thiserror::Error)]
pub enum ClientError {
    /// Bad or contradictory property [ConfigException].
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// An error of Kafka's table; the text says what happened, where, and what to do.
    #[error("{message}")]
    Kafka {
        /// The code.
        code: ErrorCode,
        /// The text.
        message: String,
    },
    /// The call does not fit the client's state [IllegalStateException].
    #[error("{0}")]
    IllegalState(String),
    /// An argument is wrong [IllegalArgumentException].
    #[error("{0}")]
    IllegalArgument(String),
    /// No committed offset and auto.offset.reset=none [NoOffsetForPartitionException].
    #[error("no committed offset and auto.offset.reset is none for {}; commit an offset, seek, or set a policy", list(.0))]
    NoOffsetForPartition(Vec<TopicPartition>),
    /// Position outside the log and auto.offset.reset=none [OffsetOutOfRangeException].
    #[error("position out of range and auto.offset.reset is none: {}; seek to an offset that exists", offsets(.0))]
    OffsetOutOfRange(BTreeMap<TopicPartition, i64>),
    /// A log was cut below a position and auto.offset.reset=none [LogTruncationException]: position and first offset that
    /// differs, if known, of each partition.
    #[error("the log was cut below the position and auto.offset.reset is none: {}; seek to the offset to go on from", cuts(.0))]
    LogTruncation(BTreeMap<TopicPartition, (i64, Option<i64>)>),
    /// A record could not be decoded; the position has not moved [KafkaException, CorruptRecordException].
    #[error("{tp} at offset {offset}: {reason}; seek past it to continue")]
    CorruptRecord {
        /// Partition.
        tp: TopicPartition,
        /// Offset of the batch or record.
        offset: i64,
        /// What is wrong.
        reason: String,
    },
    /// The group has moved on [CommitFailedException].
    #[error("commit failed: {0}")]
    CommitFailed(String),
    /// commit or subscribe without group.id [InvalidGroupIdException].
    #[error("{0}")]
    InvalidGroupId(String),
    /// `wakeup()` was called [WakeupException].
    #[error("the call was interrupted by wakeup()")]
    Wakeup,
    /// The interrupt callback asked to stop (Ctrl-C).
    #[error("interrupted")]
    Interrupted,
    /// The call did not finish in time [TimeoutException].
    #[error("{0}")]
    Timeout(String),
    /// Larger than max.request.size or buffer.memory [RecordTooLargeException].
    #[error("{0}")]
    RecordTooLarge(String),
    /// No buffer space within max.block.ms [BufferExhaustedException].
    #[error("{0}")]
    BufferExhausted(String),
    /// The record belongs to a transaction that was aborted [TransactionAbortedException].
    #[error("{0}")]
    TransactionAborted(String),
    /// Closed before the call.
    #[error("{0}")]
    Closed(String),
    /// TLS to a broker cannot be set up [SslAuthenticationException].
    #[error("{0}")]
    SslAuthentication(String),
    /// A broker refused the credentials [SaslAuthenticationException].
    #[error("{0}")]
    SaslAuthentication(String),
}

/// The error of a client whose embedded broker was closed.
pub(crate) fn broker_closed() -> ClientError {
    ClientError::Closed("the broker is closed; open it again and make a new client".to_owned())
}

fn list(tps: &[TopicPartition]) -> String {
    tps.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

fn offsets(map: &BTreeMap<TopicPartition, i64>) -> String {
    map.iter()
        .map(|(tp, o)| format!("{tp} at {o}"))
        .collect::<Vec<_>>()
        .join(", ")
}

fn cuts(map: &BTreeMap<TopicPartition, (i64, Option<i64>)>) -> String {
    let cut = |(tp, (position, at)): (&TopicPartition, &(i64, Option<i64>))| match at {
        Some(at) => format!("{tp} at {position} differs from {at} on"),
        None => format!("{tp} at {position} differs from an unknown offset on"),
    };
    map.iter().map(cut).collect::<Vec<_>>().join(", ")
}

impl ClientError {
    /// The error for a fatal failure, which no retry can help; `None` for other failures. Kafka: `Metadata#fatalError`.
    pub(crate) fn of_fatal(failure: &Failure) -> Option<Self> {
        match failure {
            Failure::SslAuthentication(why) => Some(Self::SslAuthentication(why.to_string())),
            Failure::SaslAuthentication(why) => Some(Self::SaslAuthentication(why.to_string())),
            Failure::UnsupportedVersion(_) => Some(Self::Kafka {
                code: ErrorCode::UNSUPPORTED_VERSION,
                message: failure.to_string(),
            }),
            Failure::Disconnected
            | Failure::TimedOut
            | Failure::NotConnected(_)
            | Failure::RebootstrapRequired
            | Failure::Malformed(_) => None,
        }
    }

    /// The error for a log that the broker cannot read, with the broker's reason.
    pub(crate) fn unreadable(tp: &TopicPartition, code: ErrorCode, why: &str) -> Self {
        Self::Kafka {
            code,
            message: format!("{tp} cannot be read: {why}"),
        }
    }

    /// An error of Kafka's table with its standard text.
    pub fn kafka(code: ErrorCode, context: impl std::fmt::Display) -> Self {
        Self::Kafka {
            code,
            message: format!("{context}: {}", code.message()),
        }
    }
}
