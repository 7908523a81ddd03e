//! What can go wrong in a log: few kinds, each with what, where and what to do.

use std::io;
use std::path::{Path, PathBuf};

use fletchlog_records::{ErrorCode, RecordError};

/// A log could not be opened, read or written.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// Kafka: OFFSET_OUT_OF_RANGE (1).
    #[error("offset {offset} is outside {start}..={end} of {partition}")]
    OffsetOutOfRange {
        /// Partition.
        partition: String,
        /// The requested offset.
        offset: i64,
        /// Log start offset.
        start: i64,
        /// Log end offset.
        end: i64,
    },
    /// Bytes on disk are damaged.
    #[error("{path} is damaged at position {position}: {reason}")]
    Damaged {
        /// File.
        path: PathBuf,
        /// Byte position.
        position: u64,
        /// What is wrong and what to do.
        reason: String,
    },
    /// The operating system refused.
    #[error("cannot {action} {path}: {source}")]
    Io {
        /// open, read, write, ...
        action: &'static str,
        /// File.
        path: PathBuf,
        /// Cause.
        source: io::Error,
    },
    /// An earlier write failed: nothing is written until the log is reopened (docs/reliability.md, C15).
    #[error("the log in {path} is fenced after a failed write ({cause}); reopen the broker to recover it")]
    Fenced {
        /// Directory.
        path: PathBuf,
        /// The failure.
        cause: String,
    },
    /// Opened for reading only.
    #[error("{path} is open for reading only; open it without read_only to {action}")]
    ReadOnly {
        /// Directory.
        path: PathBuf,
        /// What the caller wanted to do.
        action: &'static str,
    },
    /// A segment that the cleaner had read was deleted by retention meanwhile.
    #[error("{path} was deleted while it was cleaned; clean again")]
    Replaced {
        /// The `.log` file.
        path: PathBuf,
    },
    /// The caller asked the cleaner to stop.
    #[error("cleaning {path} was cancelled; what is finished stays, the rest is as it was")]
    Cancelled {
        /// Directory.
        path: PathBuf,
    },
    /// The log was closed, or is read beside a writer, and its directory no longer exists.
    #[error("{path} is gone: its topic was deleted, or the directory was moved")]
    Gone {
        /// Directory.
        path: PathBuf,
    },
    /// Closed.
    #[error("the log is closed")]
    Closed,
    /// Records that cannot be decoded.
    #[error(transparent)]
    Record(#[from] RecordError),
}

impl LogError {
    pub(crate) fn io(action: &'static str, path: &Path, source: io::Error) -> Self {
        Self::Io {
            action,
            path: path.to_path_buf(),
            source,
        }
    }

    pub(crate) fn damaged(path: &Path, position: u64, reason: impl Into<String>) -> Self {
        Self::Damaged {
            path: path.to_path_buf(),
            position,
            reason: reason.into(),
        }
    }

    /// The disk or a quota is full. The log stays usable: a smaller append may still fit.
    pub fn is_full(&self) -> bool {
        use io::ErrorKind::{QuotaExceeded, StorageFull, WriteZero};
        let Self::Io { source, .. } = self else { return false };
        matches!(source.kind(), StorageFull | QuotaExceeded | WriteZero)
    }

    /// Whether a file does not exist (any more).
    pub(crate) fn is_not_found(&self) -> bool {
        matches!(self, Self::Io { source, .. } if source.kind() == io::ErrorKind::NotFound)
    }

    /// See [`is_out_of_descriptors`].
    pub(crate) fn is_out_of_descriptors(&self) -> bool {
        matches!(self, Self::Io { source, .. } if is_out_of_descriptors(source))
    }
}

/// Whether the process or the system has no file descriptor left. The file was not opened and is unchanged.
pub(crate) fn is_out_of_descriptors(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE))
}

/// An append was refused; the log is unchanged (spec 2.1).
#[derive(Debug, thiserror::Error)]
pub enum AppendError {
    /// Refused as Kafka refuses it.
    #[error("{message} (code {})", code.code())]
    Refused {
        /// Kafka's error.
        code: ErrorCode,
        /// What is wrong.
        message: String,
        /// Failing records: (index in batch, message); only per-record failures.
        record_errors: Vec<(i32, String)>,
        /// The log start offset if Kafka's response has it, else -1 (spec 2.1).
        log_start_offset: i64,
    },
    /// The log failed.
    #[error(transparent)]
    Log(#[from] LogError),
}
