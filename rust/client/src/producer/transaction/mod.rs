//! Transactions of one producer (spec 10, KIP-98, KIP-360, KIP-447): its states, its requests in their order, the user's calls. Kafka:
//! `TransactionManager`, without the sequences (see [`super::idempotence`]).

mod answers;
mod calls;
mod errors;
mod manager;
mod request;
mod state;

pub(crate) use answers::NewId;
pub(crate) use calls::{begin_transaction, end_transaction, init_transactions, send_offsets_to_transaction};
pub(crate) use manager::{NO_PRODUCER, TransactionManager};
pub(crate) use request::{Kind, TxnRequest};

#[cfg(test)]
mod tests;
