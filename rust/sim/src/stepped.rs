//! Calls of a producer whose sender runs within them (`Producer::stepped`).

use fletchlog_client::ClientError;
use fletchlog_client::producer::Producer;

/// No call is interrupted.
pub fn never() -> bool {
    false
}

/// Commits or aborts.
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
