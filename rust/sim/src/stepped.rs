//! Helpers for a producer whose sender runs within its calls (`Producer::stepped`).

use fletchlog_client::ClientError;
use fletchlog_client::producer::Producer;

/// Never interrupts a call.
pub fn never() -> bool {
    false
}

/// Commits or aborts a transaction.
///
/// # Errors
/// Those of `Producer::commit_transaction` and `abort_transaction`.
pub fn decide(producer: &Producer, committed: bool) -> Result<(), ClientError> {
    if committed {
        producer.commit_transaction(&mut never)
    } else {
        producer.abort_transaction(&mut never)
    }
}
