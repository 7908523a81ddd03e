//! Faults between clients and brokers, by rules: which requests, and what happens to each. A listener or a proxy asks about each request
//! and each response, and does what it is given; nothing here reads a socket or starts a thread. [`FaultTransport`] does it for a client in this
//! process, before its transport.
//!
//! ```text
//! frame -> Faults::arrived -> Arrived { step: handle it | answer with these bytes | close | nothing, after a wait }
//! answer -> Faults::answered -> Answered { bytes, and what happens to the connection }
//! ```
//!
//! A rule has selectors (API, version, client id, connection, node, topic, partition, group, transactional id, n-th match) and one action.
//! Every rule counts the requests that match it; the first rule, in the order in which they were added, whose turn it is decides.

mod error_answers;
mod faults;
mod frames;
mod messages;
mod plan;
mod random;
mod request_view;
mod requests;
mod rule;
mod transport;

pub use faults::{
    Answered, Arrived, BLACK_HOLE, Exchange, Faults, Predicate, RuleReport, Step, Then, TopicNames, Wait,
};
pub use plan::{PlanError, api_of, rule_json, rules_of};
pub use random::{RandomFaults, RandomKind};
pub use request_view::RequestView;
pub use requests::{ProducedBatch, RequestRow};
pub use rule::{Action, Glob, HANDSHAKE_FAILURE, Rule, Selector, When};
pub use transport::FaultTransport;
