//! Listing and describing transactions. Kafka: `TransactionStateManager#listTransactionStates`,
//! `TransactionCoordinator#handleDescribeTransactions`.

use std::collections::HashSet;

use fletchlog_api::{ErrorCode, NodeId};
use regex::Regex;

use super::coordinator::{TransactionCoordinator, TransactionDescription};
use super::state::TransactionState;
use crate::BrokerError;

/// Which transactional ids to list; a field that is empty or `None` filters nothing.
#[derive(Debug, Clone, Default)]
pub struct TransactionFilter {
    /// Kafka's names of states, spelled as Kafka does.
    pub states: Vec<String>,
    /// Producer ids.
    pub producer_ids: Vec<i64>,
    /// Transactions that began longer ago than this, in ms. An id without a transaction counts as one that began in 1970.
    pub duration_ms: Option<i64>,
    /// Ids that match this expression from end to end.
    pub pattern: Option<String>,
}

/// What was found.
#[derive(Debug, Clone)]
pub struct TransactionListing {
    /// States of the filter that Kafka does not know.
    pub unknown_states: Vec<String>,
    /// By transactional id.
    pub transactions: Vec<TransactionDescription>,
}

/// Kafka's states that an id never has in fletchlog.
const NEVER: [&str; 2] = ["PrepareEpochFence", "Dead"];

impl TransactionCoordinator {
    /// `list_transactions`.
    pub(crate) fn list_transactions(
        &self,
        node: NodeId,
        filter: &TransactionFilter,
    ) -> Result<TransactionListing, BrokerError> {
        let pattern = filter.pattern.as_deref().filter(|pattern| !pattern.is_empty());
        let pattern = pattern
            .map(|pattern| Regex::new(&format!(r"\A(?:{pattern})\z")))
            .transpose();
        let pattern = pattern.map_err(|error| {
            BrokerError::kafka(
                ErrorCode::INVALID_REGULAR_EXPRESSION,
                format!("Invalid pattern: {error}"),
            )
        })?;
        let known = |state: &str| NEVER.contains(&state) || TransactionState::is_name(state);
        let unknown_states = filter.states.iter().filter(|state| !known(state)).cloned().collect();
        let now_ms = self.replicas.clock().now_ms();
        let states: HashSet<&str> = filter.states.iter().map(String::as_str).collect();
        let producer_ids: HashSet<i64> = filter.producer_ids.iter().copied().collect();
        let mut transactions = self.describe_transactions()?;
        transactions.retain(|t| {
            t.coordinator == node
                && (states.is_empty() || states.contains(t.state))
                && (producer_ids.is_empty() || producer_ids.contains(&t.producer_id))
                && filter
                    .duration_ms
                    .is_none_or(|ms| now_ms.saturating_sub(t.start_ms) > ms)
                && pattern
                    .as_ref()
                    .is_none_or(|pattern| pattern.is_match(&t.transactional_id))
        });
        Ok(TransactionListing {
            unknown_states,
            transactions,
        })
    }

    /// `describe_transaction`.
    pub(crate) fn describe_transaction(
        &self,
        node: NodeId,
        transactional_id: &str,
    ) -> Result<TransactionDescription, BrokerError> {
        let refuse = |code: ErrorCode| BrokerError::kafka(code, code.message());
        if self.coordinator_of(transactional_id) != node {
            return Err(refuse(ErrorCode::NOT_COORDINATOR));
        }
        let found = match self.replicas.is_read_only() {
            true => {
                self.replicas.controller().see_new_topics()?;
                self.read_transactions()?.remove(transactional_id)
            }
            false => self.find(transactional_id).and_then(|id| id.lock().get().cloned()),
        };
        let found = found.ok_or_else(|| refuse(ErrorCode::TRANSACTIONAL_ID_NOT_FOUND))?;
        Ok(self.description(found))
    }
}
