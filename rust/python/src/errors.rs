//! Maps the engine's errors to Python's classes: one table for variants, one for Kafka's codes.
//!
//! The classes live in `python/fletchlog/errors.py` and are looked up by name once.

use std::any::Any;
use std::collections::BTreeMap;

use arrow_schema::ArrowError;
use fletchlog_api::{ConfigError, ErrorCode};
use fletchlog_arrow::import::ImportError;
use fletchlog_broker::BrokerError;
use fletchlog_client::ClientError;
use fletchlog_client::assignor::AssignorError;
use fletchlog_faults::PlanError;
use fletchlog_log::scan::ScanError;
use fletchlog_log::{AppendError, LogError};
use fletchlog_proxy::ProxyError;
use fletchlog_records::{RecordError, TopicPartition};
use fletchlog_server::ListenError;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyDict;

use crate::convert;
use crate::once::once;

/// Context that becomes attributes of the exception.
#[derive(Debug, Clone)]
pub enum Context {
    /// Nothing but the text.
    None,
    /// `.partitions`: the partitions concerned.
    Partitions(Vec<TopicPartition>),
    /// `.partitions`: offsets by partition.
    Offsets(BTreeMap<TopicPartition, i64>),
    /// `.topic_partition` and `.offset`.
    Place(TopicPartition, i64),
    /// `.partitions` and `.divergent_offsets`: by partition, the position and the first diverging offset, if known.
    Cuts(BTreeMap<TopicPartition, (i64, Option<i64>)>),
}

/// An error on its way to Python.
#[derive(Debug, Clone)]
pub struct Failure {
    class: &'static str,
    code: Option<ErrorCode>,
    message: String,
    context: Context,
}

/// Kafka's codes that have their own class. Any other code raises `KafkaError` with that code.
pub const CODE_CLASSES: &[(ErrorCode, &str)] = &[
    (ErrorCode::UNKNOWN_SERVER_ERROR, "UnknownServerError"),
    (ErrorCode::OFFSET_OUT_OF_RANGE, "OffsetOutOfRangeError"),
    (ErrorCode::CORRUPT_MESSAGE, "CorruptRecordError"),
    (ErrorCode::UNKNOWN_TOPIC_OR_PARTITION, "UnknownTopicOrPartitionError"),
    (ErrorCode::UNKNOWN_TOPIC_ID, "UnknownTopicOrPartitionError"),
    (ErrorCode::INCONSISTENT_TOPIC_ID, "UnknownTopicOrPartitionError"),
    (ErrorCode::LEADER_NOT_AVAILABLE, "LeaderError"),
    (ErrorCode::NOT_LEADER_OR_FOLLOWER, "LeaderError"),
    (ErrorCode::REPLICA_NOT_AVAILABLE, "LeaderError"),
    (ErrorCode::FENCED_LEADER_EPOCH, "LeaderError"),
    (ErrorCode::UNKNOWN_LEADER_EPOCH, "LeaderError"),
    (ErrorCode::OFFSET_NOT_AVAILABLE, "LeaderError"),
    (ErrorCode::REQUEST_TIMED_OUT, "KafkaTimeoutError"),
    (ErrorCode::MESSAGE_TOO_LARGE, "RecordTooLargeError"),
    (ErrorCode::RECORD_LIST_TOO_LARGE, "RecordBatchTooLargeError"),
    (ErrorCode::OFFSET_METADATA_TOO_LARGE, "OffsetMetadataTooLargeError"),
    (ErrorCode::NETWORK_EXCEPTION, "NetworkError"),
    (ErrorCode::COORDINATOR_LOAD_IN_PROGRESS, "GroupError"),
    (ErrorCode::COORDINATOR_NOT_AVAILABLE, "GroupError"),
    (ErrorCode::NOT_COORDINATOR, "GroupError"),
    (ErrorCode::INVALID_TOPIC_EXCEPTION, "InvalidTopicError"),
    (ErrorCode::NOT_ENOUGH_REPLICAS, "NotEnoughReplicasError"),
    (
        ErrorCode::NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        "NotEnoughReplicasAfterAppendError",
    ),
    (ErrorCode::INVALID_REQUIRED_ACKS, "InvalidRequiredAcksError"),
    (ErrorCode::ILLEGAL_GENERATION, "IllegalGenerationError"),
    (ErrorCode::INCONSISTENT_GROUP_PROTOCOL, "InconsistentGroupProtocolError"),
    (ErrorCode::INVALID_GROUP_ID, "InvalidGroupIdError"),
    (ErrorCode::UNKNOWN_MEMBER_ID, "UnknownMemberIdError"),
    (ErrorCode::MEMBER_ID_REQUIRED, "UnknownMemberIdError"),
    (ErrorCode::INVALID_SESSION_TIMEOUT, "InvalidSessionTimeoutError"),
    (ErrorCode::REBALANCE_IN_PROGRESS, "RebalanceInProgressError"),
    (ErrorCode::GROUP_MAX_SIZE_REACHED, "GroupMaxSizeReachedError"),
    (ErrorCode::FENCED_INSTANCE_ID, "FencedInstanceIdError"),
    (ErrorCode::GROUP_ID_NOT_FOUND, "GroupIdNotFoundError"),
    (ErrorCode::NON_EMPTY_GROUP, "NonEmptyGroupError"),
    (ErrorCode::GROUP_SUBSCRIBED_TO_TOPIC, "GroupSubscribedToTopicError"),
    (ErrorCode::INVALID_TIMESTAMP, "InvalidTimestampError"),
    (ErrorCode::UNSUPPORTED_VERSION, "UnsupportedFormatError"),
    (ErrorCode::UNSUPPORTED_FOR_MESSAGE_FORMAT, "UnsupportedFormatError"),
    (ErrorCode::UNSUPPORTED_COMPRESSION_TYPE, "UnsupportedFormatError"),
    (ErrorCode::TOPIC_ALREADY_EXISTS, "TopicAlreadyExistsError"),
    (ErrorCode::INVALID_PARTITIONS, "InvalidPartitionsError"),
    (ErrorCode::INVALID_CONFIG, "ConfigError"),
    (ErrorCode::INVALID_REQUEST, "InvalidArgumentError"),
    (ErrorCode::POLICY_VIOLATION, "PolicyViolationError"),
    (ErrorCode::OUT_OF_ORDER_SEQUENCE_NUMBER, "OutOfOrderSequenceError"),
    (ErrorCode::DUPLICATE_SEQUENCE_NUMBER, "DuplicateSequenceError"),
    (ErrorCode::INVALID_PRODUCER_EPOCH, "InvalidProducerEpochError"),
    (ErrorCode::PRODUCER_FENCED, "ProducerFencedError"),
    (ErrorCode::UNKNOWN_PRODUCER_ID, "UnknownProducerIdError"),
    (ErrorCode::INVALID_TXN_STATE, "InvalidTxnStateError"),
    (ErrorCode::INVALID_PRODUCER_ID_MAPPING, "InvalidPidMappingError"),
    (ErrorCode::INVALID_TRANSACTION_TIMEOUT, "InvalidTxnTimeoutError"),
    (ErrorCode::CONCURRENT_TRANSACTIONS, "ConcurrentTransactionsError"),
    (
        ErrorCode::TRANSACTION_COORDINATOR_FENCED,
        "TransactionCoordinatorFencedError",
    ),
    (ErrorCode::TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "TransactionError"),
    (ErrorCode::OPERATION_NOT_ATTEMPTED, "TransactionError"),
    (ErrorCode::TRANSACTION_ABORTABLE, "TransactionAbortableError"),
    (ErrorCode::UNSTABLE_OFFSET_COMMIT, "UnstableOffsetCommitError"),
    (ErrorCode::KAFKA_STORAGE_ERROR, "StorageError"),
    (ErrorCode::INVALID_RECORD, "InvalidRecordError"),
    (ErrorCode::INVALID_RECORD_STATE, "InvalidRecordStateError"),
    (ErrorCode::SHARE_SESSION_NOT_FOUND, "ShareSessionNotFoundError"),
    (ErrorCode::INVALID_SHARE_SESSION_EPOCH, "InvalidShareSessionEpochError"),
    (ErrorCode::FENCED_STATE_EPOCH, "FencedStateEpochError"),
    (ErrorCode::SHARE_SESSION_LIMIT_REACHED, "ShareSessionLimitReachedError"),
];

/// The engine's variants and their classes.
pub const VARIANT_CLASSES: &[(&str, &str)] = &[
    ("config", "ConfigError"),
    ("argument", "InvalidArgumentError"),
    ("schema", "SchemaError"),
    ("state", "IllegalStateError"),
    ("closed", "ClosedError"),
    ("concurrent", "ConcurrentAccessError"),
    ("forked", "ForkedHandleError"),
    ("read-only", "ReadOnlyError"),
    ("timeout", "KafkaTimeoutError"),
    ("buffer", "BufferExhaustedError"),
    ("wakeup", "WakeupError"),
    ("internal", "InternalError"),
    ("storage", "StorageError"),
    ("directory", "DirectoryError"),
    ("listener", "ListenerError"),
    ("locked", "DirectoryLockedError"),
    ("damaged", "DamagedFileError"),
    ("fenced", "FencedLogError"),
    ("no-offset", "NoOffsetForPartitionError"),
    ("out-of-range", "OffsetOutOfRangeError"),
    ("truncated", "LogTruncationError"),
    ("corrupt", "CorruptRecordError"),
    ("invalid-record", "InvalidRecordError"),
    ("too-large", "RecordTooLargeError"),
    ("unsupported", "UnsupportedFormatError"),
    ("commit-failed", "CommitFailedError"),
    ("group-id", "InvalidGroupIdError"),
    ("aborted", "TransactionAbortedError"),
    ("ssl-authentication", "SslAuthenticationError"),
    ("sasl-authentication", "SaslAuthenticationError"),
];

/// The class of one of Kafka's codes.
fn class_of_code(code: ErrorCode) -> &'static str {
    CODE_CLASSES
        .iter()
        .find(|(c, _)| *c == code)
        .map_or("KafkaError", |&(_, class)| class)
}

impl Failure {
    /// An error of the variant table; its code is that of the class.
    pub fn of(variant: &'static str, message: impl Into<String>) -> Self {
        let class = VARIANT_CLASSES
            .iter()
            .find(|(v, _)| *v == variant)
            .map_or("KafkaError", |&(_, class)| class);
        Self {
            class,
            code: None,
            message: message.into(),
            context: Context::None,
        }
    }

    /// An error of Kafka's table.
    pub fn kafka(code: ErrorCode, message: impl Into<String>) -> Self {
        Self {
            class: class_of_code(code),
            code: Some(code),
            message: message.into(),
            context: Context::None,
        }
    }

    /// Whether it has this code of Kafka.
    pub fn is(&self, code: ErrorCode) -> bool {
        self.code == Some(code)
    }

    fn with(mut self, context: Context) -> Self {
        self.context = context;
        self
    }

    /// The same error with the partition and offset at which it happened.
    pub fn at(mut self, tp: &TopicPartition, offset: i64) -> Self {
        self.message = format!("{tp} at offset {offset}: {}", self.message);
        self.with(Context::Place(tp.clone(), offset))
    }

    /// An error in a record, with the record's offset if known, else that of its batch (`base_offset`).
    pub fn of_record(error: RecordError, tp: &TopicPartition, base_offset: i64) -> Self {
        let offset = match error {
            RecordError::Timestamp { offset, .. } => offset,
            _ => base_offset,
        };
        Self::from(error).at(tp, offset)
    }

    /// A wrong argument.
    pub fn argument(message: impl Into<String>) -> Self {
        Self::of("argument", message)
    }

    /// A call that is illegal in the current state of the handle.
    pub fn state(message: impl Into<String>) -> Self {
        Self::of("state", message)
    }

    /// A call that exceeded its time limit.
    pub fn timeout(message: impl Into<String>) -> Self {
        Self::of("timeout", message)
    }

    /// A write to a read-only broker.
    pub fn read_only(message: impl Into<String>) -> Self {
        Self::of("read-only", message)
    }

    /// A directory of the wrong kind.
    pub fn directory(message: impl Into<String>) -> Self {
        Self::of("directory", message)
    }

    /// A call that a signal ended; `gate` raises the signal's own exception instead.
    pub fn interrupted() -> Self {
        Self::internal("interrupted")
    }

    /// A handle that was closed.
    pub fn closed(what: &str) -> Self {
        Self::of("closed", format!("the {what} is closed; open a new one"))
    }

    /// A handle of the parent process.
    pub fn forked(what: &str, pid: u32) -> Self {
        Self::of(
            "forked",
            format!(
                "this {what} was opened by process {pid} and cannot be used in process {}; open a new one here, from the path and \
                 the configuration",
                std::process::id()
            ),
        )
    }

    /// Two threads in one handle.
    pub fn concurrent(what: &str) -> Self {
        Self::of(
            "concurrent",
            format!(
                "another thread or task is inside this {what}; nothing has changed. Give each thread and each task its own {what}"
            ),
        )
    }

    /// A handle in which a panic happened earlier.
    pub fn broken(what: &str) -> Self {
        Self::of(
            "internal",
            format!("this {what} met an internal error earlier and cannot be used any more; open a new one"),
        )
    }

    /// A panic inside the engine.
    pub fn panic(panic: &(dyn Any + Send)) -> Self {
        let text = panic
            .downcast_ref::<&str>()
            .map(ToString::to_string)
            .or_else(|| panic.downcast_ref::<String>().cloned())
            .unwrap_or_default();
        Self::of(
            "internal",
            format!("internal error: {text}. This is a defect of fletchlog; the handle cannot be used any more"),
        )
    }

    /// A defect that is not a panic.
    pub fn internal(message: impl Into<String>) -> Self {
        Self::of("internal", message)
    }

    /// A log that cannot be read: a damaged file is reported to the reader like a damaged batch.
    pub fn reading(error: &LogError) -> Self {
        match error {
            LogError::Damaged { .. } => Self::of("corrupt", error.to_string()),
            other => other.into(),
        }
    }

    /// The Python exception. As with `raise`, its context is the exception that is being handled: a `with` block that fails and whose close
    /// then fails shows both.
    pub fn into_py(self, py: Python<'_>) -> PyErr {
        let error = self.build(py).unwrap_or_else(|error| error);
        error.set_context(py, handled(py));
        error
    }

    fn build(&self, py: Python<'_>) -> PyResult<PyErr> {
        let exception = errors_module(py)?.getattr(self.class)?.call1((&self.message,))?;
        if let Some(code) = self.code {
            exception.setattr("code", code.code())?;
            exception.setattr("name", code.name())?;
            exception.setattr("retriable", code.is_retriable())?;
        }
        match &self.context {
            Context::None => {}
            Context::Partitions(partitions) => {
                exception.setattr("partitions", convert::partitions_to_py(py, partitions)?)?
            }
            Context::Offsets(offsets) => {
                let dict = PyDict::new(py);
                for (tp, offset) in offsets {
                    dict.set_item(convert::partition_to_py(py, tp)?, offset)?;
                }
                exception.setattr("partitions", dict)?;
            }
            Context::Cuts(cuts) => {
                let (positions, divergent) = (PyDict::new(py), PyDict::new(py));
                for (tp, (position, at)) in cuts {
                    let tp = convert::partition_to_py(py, tp)?;
                    positions.set_item(&tp, position)?;
                    if let Some(at) = at {
                        divergent.set_item(&tp, at)?;
                    }
                }
                exception.setattr("partitions", positions)?;
                exception.setattr("divergent_offsets", divergent)?;
            }
            Context::Place(tp, offset) => {
                exception.setattr("topic_partition", convert::partition_to_py(py, tp)?)?;
                exception.setattr("offset", offset)?;
            }
        }
        Ok(PyErr::from_value(exception))
    }
}

/// The module of the error classes. It is imported before files are opened: later no descriptor may be left to import it.
pub fn errors_module(py: Python<'_>) -> PyResult<Bound<'_, PyModule>> {
    static MODULE: PyOnceLock<Py<PyModule>> = PyOnceLock::new();
    let module = once(py, &MODULE, || py.import("fletchlog.errors").map(Bound::unbind))?;
    Ok(module.bind(py).clone())
}

/// The exception that the running Python code is handling.
#[allow(unsafe_code)]
fn handled(py: Python<'_>) -> Option<PyErr> {
    // SAFETY: returns a new reference to an exception, or null.
    let handled = unsafe { Bound::from_owned_ptr_or_opt(py, pyo3::ffi::PyErr_GetHandledException()) };
    handled.filter(|value| !value.is_none()).map(PyErr::from_value)
}

impl From<Failure> for PyErr {
    fn from(failure: Failure) -> Self {
        Python::attach(|py| failure.into_py(py))
    }
}

impl From<ListenError> for Failure {
    fn from(error: ListenError) -> Self {
        let variant = match error {
            ListenError::Address { .. } | ListenError::Start(_) => "listener",
            ListenError::Wildcard(_) | ListenError::Ports { .. } => "argument",
            ListenError::Record { .. } => "storage",
            ListenError::Config(error) => return error.into(),
        };
        Self::of(variant, error.to_string())
    }
}

impl From<ProxyError> for Failure {
    fn from(error: ProxyError) -> Self {
        let variant = match error {
            ProxyError::Address { .. } | ProxyError::Start(_) => "listener",
            ProxyError::Wildcard(_) => "argument",
            ProxyError::Record { .. } => "storage",
            ProxyError::Config(error) => return error.into(),
        };
        Self::of(variant, error.to_string())
    }
}

impl From<ConfigError> for Failure {
    fn from(error: ConfigError) -> Self {
        Self::of("config", error.to_string())
    }
}

impl From<AssignorError> for Failure {
    fn from(error: AssignorError) -> Self {
        Self::argument(error.to_string())
    }
}

impl From<PlanError> for Failure {
    fn from(error: PlanError) -> Self {
        Self::argument(error.to_string())
    }
}

impl From<RecordError> for Failure {
    fn from(error: RecordError) -> Self {
        let variant = match &error {
            RecordError::Corrupt { .. }
            | RecordError::Decompression { .. }
            | RecordError::DecompressionLimit { .. } => "corrupt",
            RecordError::Invalid { .. } | RecordError::RecordTooLarge { .. } => "invalid-record",
            RecordError::Timestamp { .. } => return Self::kafka(ErrorCode::INVALID_TIMESTAMP, error.to_string()),
            RecordError::UnsupportedMagic { .. } => "unsupported",
        };
        Self::of(variant, error.to_string())
    }
}

impl From<LogError> for Failure {
    fn from(error: LogError) -> Self {
        Self::from(&error)
    }
}

impl From<&LogError> for Failure {
    fn from(error: &LogError) -> Self {
        let variant = match error {
            LogError::Record(error) => return error.clone().into(),
            LogError::OffsetOutOfRange { .. } => "out-of-range",
            LogError::Damaged { .. } => "damaged",
            LogError::Io { .. } => "storage",
            LogError::Fenced { .. } => "fenced",
            LogError::ReadOnly { .. } => "read-only",
            LogError::Replaced { .. } => "storage",
            LogError::Cancelled { .. } => "closed",
            LogError::Gone { .. } => return Self::kafka(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION, error.to_string()),
            LogError::Closed => "closed",
        };
        Self::of(variant, error.to_string())
    }
}

impl From<ScanError> for Failure {
    fn from(error: ScanError) -> Self {
        match error {
            ScanError::Backwards { .. } => Self::argument(error.to_string()),
            ScanError::Gone { .. } => Self::kafka(ErrorCode::OFFSET_OUT_OF_RANGE, error.to_string()),
            ScanError::Unreadable { tp, offset, source } => Self::reading(&source).at(&tp, offset),
        }
    }
}

impl From<AppendError> for Failure {
    fn from(error: AppendError) -> Self {
        match error {
            AppendError::Refused { code, message, .. } => Self::kafka(code, message),
            AppendError::Log(error) => error.into(),
        }
    }
}

impl From<BrokerError> for Failure {
    fn from(error: BrokerError) -> Self {
        let variant = match error {
            BrokerError::Kafka { code, message } => return Self::kafka(code, message),
            BrokerError::Config(error) => return error.into(),
            BrokerError::Log(error) => return error.into(),
            BrokerError::DirectoryLocked { .. } => "locked",
            BrokerError::Directory { .. } => "directory",
            BrokerError::ReadOnly(_) | BrokerError::ReadOnlyStore(_) => "read-only",
            BrokerError::Closed => "closed",
        };
        Self::of(variant, error.to_string())
    }
}

impl From<ClientError> for Failure {
    fn from(error: ClientError) -> Self {
        let message = error.to_string();
        match error {
            ClientError::Config(error) => error.into(),
            ClientError::Kafka { code, message } => Self::kafka(code, message),
            ClientError::IllegalState(_) => Self::of("state", message),
            ClientError::IllegalArgument(_) => Self::argument(message),
            ClientError::NoOffsetForPartition(partitions) => {
                Self::of("no-offset", message).with(Context::Partitions(partitions))
            }
            ClientError::OffsetOutOfRange(offsets) => Self::of("out-of-range", message).with(Context::Offsets(offsets)),
            ClientError::LogTruncation(cuts) => Self::of("truncated", message).with(Context::Cuts(cuts)),
            ClientError::CorruptRecord { tp, offset, .. } => {
                Self::of("corrupt", message).with(Context::Place(tp, offset))
            }
            ClientError::CommitFailed(_) => Self::of("commit-failed", message),
            ClientError::InvalidGroupId(_) => Self::of("group-id", message),
            ClientError::Wakeup => Self::of("wakeup", message),
            // only if the call was stopped without an exception, which `gate` would have raised
            ClientError::Interrupted => Self::interrupted(),
            ClientError::Timeout(_) => Self::of("timeout", message),
            ClientError::RecordTooLarge(_) => Self::of("too-large", message),
            ClientError::BufferExhausted(_) => Self::of("buffer", message),
            ClientError::SslAuthentication(_) => Self::of("ssl-authentication", message),
            ClientError::SaslAuthentication(_) => Self::of("sasl-authentication", message),
            ClientError::Closed(_) => Self::of("closed", message),
            ClientError::TransactionAborted(_) => Self::of("aborted", message),
        }
    }
}

impl From<ImportError> for Failure {
    fn from(error: ImportError) -> Self {
        let variant = match error {
            ImportError::InvalidValue { .. } => "argument",
            ImportError::MissingColumn { .. }
            | ImportError::WrongType { .. }
            | ImportError::UnknownColumn { .. }
            | ImportError::DuplicateColumn { .. } => "schema",
        };
        Self::of(variant, error.to_string())
    }
}

/// Arrow data that cannot be imported or exported.
impl From<ArrowError> for Failure {
    fn from(error: ArrowError) -> Self {
        Self::argument(error.to_string())
    }
}

#[doc = stub!(error_classes)]
#[pyfunction]
pub fn error_classes() -> Vec<(&'static str, Option<i16>, bool, &'static str)> {
    let codes = ErrorCode::ALL
        .iter()
        .filter(|code| **code != ErrorCode::NONE)
        .map(|code| {
            (
                code.name(),
                Some(code.code()),
                code.is_retriable(),
                class_of_code(*code),
            )
        });
    VARIANT_CLASSES
        .iter()
        .map(|&(variant, class)| (variant, None, false, class))
        .chain(codes)
        .collect()
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message)
    }
}
