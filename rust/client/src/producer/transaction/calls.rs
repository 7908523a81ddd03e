//! The user's calls: each starts its operation under the lock, then waits for the sender, at most max.block.ms. Kafka:
//! `KafkaProducer#initTransactions`, `#beginTransaction`, `#sendOffsetsToTransaction`, `#commitTransaction`, `#abortTransaction`.

use std::sync::Arc;

use fletchlog_api::OffsetAndMetadata;
use fletchlog_records::TopicPartition;

use super::errors::aborted;
use super::manager::{NO_PRODUCER, TransactionManager};
use super::request::RequestResult;
use crate::ClientError;
use crate::group::ConsumerGroupMetadata;
use crate::producer::errors::with_cause;
use crate::producer::send::waiting::{after_waiting, fail_waiting, place};
use crate::producer::shared::{Guarded, Shared};
use crate::producer::waiter::Waiter;

/// What to do when a call has timed out but its operation continues.
const AGAIN: &str = "call it again to go on waiting";

fn manager(guarded: &mut Guarded) -> Result<&mut TransactionManager, ClientError> {
    guarded.check_open()?;
    guarded.transactions().ok_or_else(|| {
        ClientError::IllegalState("this producer has no transactions: set transactional.id to use them".to_owned())
    })
}

/// Waits for the outcome, at most max.block.ms; `hint`: what to do after that.
fn wait(
    waiter: &mut Waiter<'_, '_>,
    operation: &str,
    result: &Arc<RequestResult>,
    hint: &str,
) -> Result<(), ClientError> {
    let shared = waiter.shared;
    let outcome = waiter.until(
        shared.config.max_block_ms,
        |guarded| match result.outcome() {
            Some(outcome) => Ok(Some(outcome)),
            None => guarded.check_open().map(|()| None),
        },
        |waited| {
            let mut guard = shared.lock();
            let unreachable = guard.metadata.unreachable.clone();
            let refusal = guard.transactions().and_then(|t| t.last_refusal());
            ClientError::Timeout(with_cause(
                format!("{operation} has no outcome after {waited} ms (max.block.ms); {hint}"),
                refusal.or(unreachable.as_deref()),
            ))
        },
    )?;
    result.acknowledge();
    outcome
}

pub(crate) fn init_transactions(waiter: &mut Waiter<'_, '_>) -> Result<(), ClientError> {
    let result = manager(&mut *waiter.lock()?)?.initialize()?;
    wait(waiter, "init_transactions", &result, AGAIN)
}

pub(crate) fn begin_transaction(shared: &Shared) -> Result<(), ClientError> {
    let mut guard = shared.lock();
    // Records that still wait were sent outside of a transaction: they fail.
    place(shared, &mut guard);
    manager(&mut guard)?.begin()
}

pub(crate) fn send_offsets_to_transaction(
    waiter: &mut Waiter<'_, '_>,
    offsets: &[(TopicPartition, OffsetAndMetadata)],
    group: &ConsumerGroupMetadata,
) -> Result<(), ClientError> {
    if group.generation_id > 0 && group.member_id.is_empty() {
        return Err(ClientError::IllegalArgument(format!(
            "group metadata with generation {} must name its member id: pass consumer.group_metadata() as it is",
            group.generation_id
        )));
    }
    if let Some((tp, _)) = offsets.iter().find(|(_, o)| o.offset < 0) {
        return Err(ClientError::IllegalArgument(format!(
            "the offset for {tp} is negative; commit the offset of the next record to read"
        )));
    }
    let result = {
        let mut guard = waiter.lock()?;
        let manager = manager(&mut guard)?;
        if offsets.is_empty() {
            return Ok(());
        }
        manager.send_offsets(offsets.to_vec(), group.clone())?
    };
    wait(waiter, "send_offsets_to_transaction", &result, "abort the transaction")
}

pub(crate) fn end_transaction(waiter: &mut Waiter<'_, '_>, committed: bool) -> Result<(), ClientError> {
    let shared = waiter.shared;
    if committed {
        after_waiting(waiter, None, i64::MAX)?;
    }
    let (operation, result) = {
        let mut guard = waiter.lock()?;
        let producer = guard.producer_id().unwrap_or(NO_PRODUCER);
        let manager = manager(&mut guard)?;
        if committed {
            ("commit_transaction", manager.begin_commit()?)
        } else {
            let result = manager.begin_abort(producer)?;
            fail_waiting(shared, &mut guard, &aborted("this record was sent"));
            ("abort_transaction", result)
        }
    };
    wait(waiter, operation, &result, AGAIN)?;
    if !committed {
        // The failed rows belonged to the aborted transaction.
        shared.lock().accumulator.run_failure = None;
    }
    Ok(())
}
