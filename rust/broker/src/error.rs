//! Why the broker refused: few kinds, each with what, where and what to do.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use fletchlog_api::{ConfigError, ErrorCode, StorageFailure};
use fletchlog_log::LogError;
use fletchlog_log::fs::Fs;
use fletchlog_protocol::WireError;
use fletchlog_records::{RecordError, TopicPartition};

/// Who has the lock of a directory, and what to do.
fn who_has_it(pid: Option<u32>) -> String {
    if pid == Some(std::process::id()) {
        return "is open for writing in this process; give its Broker to the clients, or read with read_only=True"
            .to_owned();
    }
    let process = pid.map_or(String::new(), |pid| format!(" (process {pid})"));
    format!(
        "is locked by another writer{process}; open it with read_only=True to read beside it, or let that process listen() and connect to kafka://HOST:PORT"
    )
}

/// Why the broker refused.
#[derive(Debug, thiserror::Error)]
pub enum BrokerError {
    /// A code of Kafka's table (INVALID_TOPIC_EXCEPTION, TOPIC_ALREADY_EXISTS, UNKNOWN_TOPIC_OR_PARTITION, ...).
    #[error("{message}")]
    Kafka {
        /// Code.
        code: ErrorCode,
        /// What, where, what to do.
        message: String,
    },
    /// Bad property.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// Another writer has the directory.
    #[error("{path} {}", who_has_it(*pid))]
    DirectoryLocked {
        /// Directory.
        path: PathBuf,
        /// Its process id, if it is known.
        pid: Option<u32>,
    },
    /// A directory that is missing, inconsistent or holds something else.
    #[error("{path}: {reason}")]
    Directory {
        /// Directory.
        path: PathBuf,
        /// What is wrong and what to do.
        reason: String,
    },
    /// Storage failed.
    #[error(transparent)]
    Log(#[from] LogError),
    /// Opened for reading only.
    #[error("the broker is open for reading only; open it without read_only to {0}")]
    ReadOnly(&'static str),
    /// The directory is on an object store.
    #[error(
        "object stores are read-only; to {0}, copy the topics into a directory on a disk (fletchlog copy) and open that"
    )]
    ReadOnlyStore(&'static str),
    /// Closed.
    #[error("the broker is closed")]
    Closed,
}

/// Why a read is refused, as the response reports it: the code, and the reason if only this process knows it.
#[derive(Debug)]
pub(crate) struct ReadRefusal {
    pub(crate) code: ErrorCode,
    pub(crate) message: Option<String>,
}

impl From<ErrorCode> for ReadRefusal {
    fn from(code: ErrorCode) -> Self {
        Self { code, message: None }
    }
}

impl From<BrokerError> for ReadRefusal {
    fn from(error: BrokerError) -> Self {
        let code = error.code_for_reader();
        let has_message = matches!(code, ErrorCode::KAFKA_STORAGE_ERROR | ErrorCode::CORRUPT_MESSAGE);
        let message = has_message.then(|| error.to_string());
        Self { code, message }
    }
}

impl From<LogError> for ReadRefusal {
    fn from(error: LogError) -> Self {
        BrokerError::from(error).into()
    }
}

/// A coordinator's record that its fields do not fit into.
impl From<WireError> for BrokerError {
    fn from(error: WireError) -> Self {
        Self::kafka(ErrorCode::UNKNOWN_SERVER_ERROR, error.to_string())
    }
}

impl BrokerError {
    /// An error of Kafka's table.
    pub(crate) fn kafka(code: ErrorCode, message: impl Into<String>) -> Self {
        Self::Kafka {
            code,
            message: message.into(),
        }
    }

    /// Something is wrong with a directory or a file in it.
    pub(crate) fn directory(fs: &dyn Fs, path: &Path, reason: impl Into<String>) -> Self {
        Self::Directory {
            path: fs.display(path),
            reason: reason.into(),
        }
    }

    /// UNKNOWN_TOPIC_OR_PARTITION.
    pub(crate) fn unknown_partition(tp: &TopicPartition) -> Self {
        Self::kafka(
            ErrorCode::UNKNOWN_TOPIC_OR_PARTITION,
            format!("the broker has no partition {tp}; create_topic makes one, topics() lists what there is"),
        )
    }

    /// UNKNOWN_TOPIC_OR_PARTITION.
    pub(crate) fn unknown_topic(name: &str) -> Self {
        Self::kafka(
            ErrorCode::UNKNOWN_TOPIC_OR_PARTITION,
            format!("the broker has no topic `{name}`; create_topic makes one, topics() lists what there is"),
        )
    }

    /// The message that accompanies the error code when the broker's own files have failed.
    pub(crate) fn storage_failure(&self) -> Option<StorageFailure> {
        let until_reopened = match self {
            Self::Log(LogError::Fenced { .. }) => true,
            Self::Log(
                LogError::OffsetOutOfRange { .. }
                | LogError::Gone { .. }
                | LogError::Closed
                | LogError::Record(RecordError::RecordTooLarge { .. }),
            ) => return None,
            Self::Log(_) | Self::Directory { .. } => false,
            _ => return None,
        };
        Some(StorageFailure {
            message: Arc::from(self.to_string()),
            until_reopened,
        })
    }

    /// As [`BrokerError::code`], for a reader: a damaged file is CORRUPT_MESSAGE, which a consumer does not retry.
    pub(crate) fn code_for_reader(&self) -> ErrorCode {
        match self {
            Self::Log(LogError::Damaged { .. }) => ErrorCode::CORRUPT_MESSAGE,
            other => other.code(),
        }
    }

    /// The message that a remote client gets with the error code: Kafka's text where Kafka has one.
    pub fn kafka_message(&self) -> String {
        match self {
            Self::Config(error) => error.kafka_message(),
            other => other.to_string(),
        }
    }

    /// The error code that a client gets, of Kafka's table.
    pub fn code(&self) -> ErrorCode {
        match self {
            Self::Kafka { code, .. } => *code,
            Self::Config(_) => ErrorCode::INVALID_CONFIG,
            Self::Log(LogError::OffsetOutOfRange { .. }) => ErrorCode::OFFSET_OUT_OF_RANGE,
            Self::Log(LogError::Record(RecordError::RecordTooLarge { .. })) => ErrorCode::INVALID_RECORD,
            // As long as the broker is open, only a deletion of the topic closes a log.
            Self::Log(LogError::Gone { .. } | LogError::Closed) => ErrorCode::UNKNOWN_TOPIC_OR_PARTITION,
            Self::ReadOnly(_) | Self::ReadOnlyStore(_) => ErrorCode::POLICY_VIOLATION,
            Self::DirectoryLocked { .. } | Self::Directory { .. } | Self::Log(_) => ErrorCode::KAFKA_STORAGE_ERROR,
            Self::Closed => ErrorCode::NETWORK_EXCEPTION,
        }
    }
}

/// Makes the error of a write the result of each change that was part of it.
pub(crate) fn spread<T>(error: BrokerError, places: &[usize], results: &mut [Result<T, BrokerError>]) {
    let (code, text) = (error.code(), error.to_string());
    for place in places.iter().skip(1) {
        results[*place] = Err(BrokerError::kafka(code, text.clone()));
    }
    if let Some(first) = places.first() {
        results[*first] = Err(error);
    }
}
