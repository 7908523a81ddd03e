//! Transactional ids. Kafka: `KafkaAdminClient#listTransactions`, `#describeTransactions`.

use fletchlog_api::{ErrorCode, NodeId};
use fletchlog_protocol::messages::describe_transactions_response::TransactionState;
use fletchlog_protocol::messages::{DescribeTransactionsRequest, ListTransactionsRequest};

use super::{AdminClient, AdminError, Interrupt, checked};

impl AdminClient {
    /// The transactional ids of every node, each with its coordinator, by id. One that expires meanwhile is left out. Brokers before
    /// 3.0 do not list them.
    ///
    /// # Errors
    /// See [`AdminError`].
    pub fn transactions(&mut self, stop: Interrupt<'_>) -> Result<Vec<(TransactionState, NodeId)>, AdminError> {
        self.call(stop, |call| {
            let mut all = Vec::new();
            for node in call.metadata(Some(&[]))?.nodes() {
                let listed = call.ask(node, ListTransactionsRequest::default())?;
                checked("transactions were not listed", [(listed.error_code, None)].into_iter())?;
                // The node that lists an id is its coordinator.
                let ids = listed.transaction_states.into_iter();
                let transactional_ids = ids.map(|known| known.transactional_id).collect();
                let described = call.ask(node, DescribeTransactionsRequest { transactional_ids })?;
                let gone = ErrorCode::TRANSACTIONAL_ID_NOT_FOUND;
                let states = described.transaction_states.into_iter();
                for state in states.filter(|state| state.error_code != gone) {
                    let what = format!("transactional id {} was not described", state.transactional_id);
                    checked(&what, [(state.error_code, None)].into_iter())?;
                    all.push((state, node));
                }
            }
            all.sort_by(|a, b| a.0.transactional_id.cmp(&b.0.transactional_id));
            Ok(all)
        })
    }
}
