//! Transactional ids. Kafka: `KafkaAdminClient#listTransactions`, `#describeTransactions`.

use std::sync::Arc;

use fletchlog_api::{CoordinatorType, ErrorCode, NodeId};
use fletchlog_wire::ApiKey;
use fletchlog_wire::messages::describe_transactions_response::TransactionState;
use fletchlog_wire::messages::{
    DescribeTransactionsRequest, DescribeTransactionsResponse, ListTransactionsRequest, ListTransactionsResponse,
};

use super::{AdminClient, AdminError, Interrupt, Stop, checked};

impl AdminClient {
    /// The transactional ids of every node, each with its coordinator, by id. One that expires meanwhile is left out. Brokers before
    /// 3.0 do not list them.
    ///
    /// # Errors
    /// See [`AdminError`].
    pub fn transactions(&mut self, stop: Interrupt<'_>) -> Result<Vec<(TransactionState, NodeId)>, AdminError> {
        let ids = self.call(&mut *stop, |call| {
            let mut ids: Vec<Arc<str>> = Vec::new();
            for node in call.metadata(Some(&[]))?.nodes {
                let response: ListTransactionsResponse =
                    call.exchange(node, ApiKey::ListTransactions, |_| ListTransactionsRequest::default())?;
                checked(
                    "transactions were not listed",
                    [(response.error_code, None)].into_iter(),
                )?;
                ids.extend(
                    response
                        .transaction_states
                        .into_iter()
                        .map(|known| known.transactional_id),
                );
            }
            ids.sort();
            Ok(ids)
        })?;
        let mut all = Vec::with_capacity(ids.len());
        for id in ids {
            all.extend(self.transaction(&id, &mut *stop)?);
        }
        Ok(all)
    }

    /// A transactional id and its coordinator; `None` if there is no such id.
    fn transaction(
        &mut self,
        id: &Arc<str>,
        stop: Interrupt<'_>,
    ) -> Result<Option<(TransactionState, NodeId)>, AdminError> {
        self.call(stop, |call| {
            let node = call.coordinator(CoordinatorType::Transaction, id)?;
            let transactional_ids = vec![Arc::clone(id)];
            let response: DescribeTransactionsResponse =
                call.exchange(node, ApiKey::DescribeTransactions, move |_| {
                    DescribeTransactionsRequest { transactional_ids }
                })?;
            let Some(state) = response.transaction_states.into_iter().next() else {
                return Err(Stop::Again(format!(
                    "node {node} did not describe transactional id {id}"
                )));
            };
            if state.error_code == ErrorCode::TRANSACTIONAL_ID_NOT_FOUND.code() {
                return Ok(None);
            }
            checked(
                &format!("transactional id {id} was not described"),
                [(state.error_code, None)].into_iter(),
            )?;
            Ok(Some((state, node)))
        })
    }
}
