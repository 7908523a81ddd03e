//! What a failure means for the transaction, and the errors of later calls.

use fletchlog_api::ErrorCode;

use crate::ClientError;

/// The error of later calls after an abortable error: its cause, and that the transaction has to be aborted. It has a
/// code of its own (TRANSACTION_ABORTABLE), so that it cannot be confused with a time-out of the call itself.
pub(super) fn abortable(what: &str, cause: &ClientError) -> ClientError {
    ClientError::Kafka {
        code: ErrorCode::TRANSACTION_ABORTABLE,
        message: format!("{what}: the transaction has failed and must be aborted (abort_transaction): {cause}"),
    }
}

/// The error of later calls after a fatal error.
pub(super) fn fatal(what: &str, cause: &ClientError) -> ClientError {
    let message = format!("{what}: this producer can do nothing more, close it and make a new one: {cause}");
    match cause {
        ClientError::Kafka { code, .. } => ClientError::Kafka { code: *code, message },
        _ => ClientError::IllegalState(message),
    }
}

/// The error of anything that was to be part of an aborted transaction.
pub(super) fn aborted(before: &str) -> ClientError {
    ClientError::TransactionAborted(format!("the transaction was aborted before {before}"))
}

/// A newer producer with the same transactional.id exists.
pub(super) fn fenced(transactional_id: &str) -> ClientError {
    ClientError::kafka(
        ErrorCode::PRODUCER_FENCED,
        format_args!("producer with transactional.id {transactional_id} is fenced"),
    )
}

/// Whether the broker no longer knows the transactional id: EndTxn would be refused.
pub(super) fn is_unknown_id(error: &ClientError) -> bool {
    matches!(
        error,
        ClientError::Kafka {
            code: ErrorCode::INVALID_PRODUCER_ID_MAPPING,
            ..
        }
    )
}
