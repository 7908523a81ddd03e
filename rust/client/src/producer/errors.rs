//! The user's error for a code in a response, by release (spec 9.1). Kafka: `Errors#exception`.

use fletchlog_api::{ErrorCode, StorageFailure};
use fletchlog_records::TopicPartition;

use super::release::Release;
use crate::ClientError;

/// The code as this release understands it: before 2.7, 47 was ProducerFencedException and 90 unknown.
pub(crate) fn understood(code: ErrorCode, release: Release) -> ErrorCode {
    match code {
        ErrorCode::INVALID_PRODUCER_EPOCH if !release.fenced_is_90 => ErrorCode::PRODUCER_FENCED,
        ErrorCode::PRODUCER_FENCED if !release.fenced_is_90 => ErrorCode::UNKNOWN_SERVER_ERROR,
        other => other,
    }
}

/// An idempotent producer cannot continue after these. Kafka: `TransactionManager#maybeTransitionToErrorState`.
pub(crate) fn is_fatal(understood: ErrorCode) -> bool {
    matches!(
        understood,
        ErrorCode::PRODUCER_FENCED | ErrorCode::TRANSACTIONAL_ID_AUTHORIZATION_FAILED | ErrorCode::UNSUPPORTED_VERSION
    )
}

/// The user's error for a batch that the broker refused.
pub(crate) fn refused(understood: ErrorCode, tp: &TopicPartition, detail: Option<&str>) -> ClientError {
    let mut message = format!("records for {tp} were not acknowledged: {}", understood.message());
    if let Some(detail) = detail {
        message.push_str(": ");
        message.push_str(detail);
    }
    match understood {
        ErrorCode::MESSAGE_TOO_LARGE => ClientError::RecordTooLarge(message),
        code => ClientError::Kafka { code, message },
    }
}

/// The user's error for a batch past delivery.timeout.ms; `cause`: the error of its last attempt, else of a batch that it waited behind,
/// else the reason why nothing can be sent.
pub(crate) fn expired(tp: &TopicPartition, records: i32, waited_ms: i64, cause: Option<&str>) -> ClientError {
    let (s, were, they) = if records == 1 {
        ("", "was", "it")
    } else {
        ("s", "were", "they")
    };
    ClientError::Timeout(with_cause(
        format!(
            "{records} record{s} for {tp} {were} not acknowledged within {waited_ms} ms (delivery.timeout.ms); {they} may still be in the log"
        ),
        cause,
    ))
}

/// The text of a time-out, with the last failure before it.
pub(crate) fn with_cause(mut message: String, cause: Option<&str>) -> String {
    if let Some(cause) = cause {
        message.push_str("; last failure: ");
        message.push_str(cause);
    }
    message
}

/// Why a request was refused: the meaning of the code, and what the broker could not write.
pub(crate) fn reason(code: ErrorCode, failure: Option<&StorageFailure>) -> String {
    match failure {
        Some(failure) => format!("{}: {}", code.message(), failure.message),
        None => code.message().to_owned(),
    }
}

/// The error of a producer that can do nothing more because the broker's files must be recovered first.
pub(crate) fn until_reopened(what: &str, failure: &StorageFailure) -> ClientError {
    ClientError::Kafka {
        code: ErrorCode::KAFKA_STORAGE_ERROR,
        message: format!("{what}: {}", failure.message),
    }
}
