//! Faults from a seed. Whether a request fails, and how, is a function of the seed, its client id, its API and how many requests of this API
//! this client has sent: never of time.

use std::collections::HashMap;
use std::sync::Arc;

use fletchlog_records::{ErrorCode, mix};

use crate::request_view::RequestView;
use crate::rule::{Action, Glob, Rule, Selector, When};

/// A kind of fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RandomKind {
    /// An error that the client may repeat.
    Error,
    /// Carried out, and the connection is closed instead of a response.
    LoseResponse,
    /// The connection is closed, nothing is carried out.
    Close,
    /// Carried out 1 to 50 ms later.
    Delay,
}

impl RandomKind {
    /// All of them, with the names that plans have for them.
    pub const ALL: [(&'static str, Self); 4] = [
        ("error", Self::Error),
        ("lose_response", Self::LoseResponse),
        ("close", Self::Close),
        ("delay", Self::Delay),
    ];
}

/// Random faults for every request, but those that begin a connection.
#[derive(Debug, Clone)]
pub struct RandomFaults {
    /// The seed.
    pub seed: u64,
    /// How many of the requests fail, 0 to 1.
    pub rate: f64,
    /// Kinds of faults that may happen, each as often as the others.
    pub kinds: Vec<RandomKind>,
    /// Only these APIs; empty: every one.
    pub apis: Vec<&'static str>,
}

/// How many requests of an API each client id has sent.
pub(crate) type Sent = HashMap<(Arc<str>, &'static str), u64>;

/// Requests that begin a connection: clients give up when these fail.
const SPARED: [&str; 3] = ["ApiVersions", "SaslHandshake", "SaslAuthenticate"];

impl RandomFaults {
    /// What happens to the n-th request of an API of a client; `None`: nothing.
    fn action(&self, client_id: &str, api: &str, nth: u64) -> Option<Action> {
        let bits = [client_id, "\0", api]
            .concat()
            .bytes()
            .fold(mix(self.seed), |bits, byte| mix(bits ^ u64::from(byte)));
        let bits = mix(bits ^ nth);
        #[allow(clippy::cast_precision_loss, reason = "53 bits fit")]
        let draw = (bits >> 11) as f64 / (1_u64 << 53) as f64;
        let pick = |among: usize, salt: u64| usize::try_from(mix(bits ^ salt) % among.max(1) as u64).unwrap_or(0);
        let kind = self.kinds.get(pick(self.kinds.len(), 1)).filter(|_| draw < self.rate)?;
        Some(match kind {
            RandomKind::Error => {
                let codes = retriable(api);
                Action::Error {
                    code: codes[pick(codes.len(), 2)],
                    handled: false,
                    log_start_offset: None,
                }
            }
            RandomKind::LoseResponse => Action::Close(When::AfterHandling),
            RandomKind::Close => Action::Close(When::BeforeHandling),
            RandomKind::Delay => Action::Delay(1 + i64::try_from(pick(50, 3)).unwrap_or(0)),
        })
    }

    /// Counts a request, and says what happens to it, as a rule that does the same by itself.
    pub(crate) fn decide(&self, sent: &mut Sent, request: &RequestView) -> Option<Rule> {
        if SPARED.contains(&request.api) || !self.apis.is_empty() && !self.apis.contains(&request.api) {
            return None;
        }
        let count = sent.entry((Arc::clone(&request.client_id), request.api)).or_default();
        *count += 1;
        let action = self.action(&request.client_id, request.api, *count)?;
        Some(Rule {
            name: String::new(),
            selector: Selector {
                api: vec![request.api],
                client_id: Some(Glob(request.client_id.to_string())),
                ..Selector::default()
            },
            action,
            delay_ms: 0,
            nth: *count,
            times: Some(1),
            optional: false,
        })
    }
}

/// Errors of an API that a client repeats the request after.
fn retriable(api: &str) -> &'static [ErrorCode] {
    match api {
        "Produce" => &[
            ErrorCode::NOT_ENOUGH_REPLICAS,
            ErrorCode::REQUEST_TIMED_OUT,
            ErrorCode::NOT_LEADER_OR_FOLLOWER,
        ],
        "Fetch" | "ListOffsets" | "OffsetForLeaderEpoch" | "ShareFetch" | "ShareAcknowledge" => {
            &[ErrorCode::NOT_LEADER_OR_FOLLOWER, ErrorCode::UNKNOWN_TOPIC_OR_PARTITION]
        }
        "Metadata" => &[ErrorCode::LEADER_NOT_AVAILABLE],
        "FindCoordinator" => &[ErrorCode::COORDINATOR_NOT_AVAILABLE],
        "JoinGroup"
        | "SyncGroup"
        | "Heartbeat"
        | "OffsetCommit"
        | "OffsetFetch"
        | "LeaveGroup"
        | "ConsumerGroupHeartbeat"
        | "InitProducerId"
        | "AddPartitionsToTxn"
        | "AddOffsetsToTxn"
        | "EndTxn"
        | "TxnOffsetCommit" => &[ErrorCode::NOT_COORDINATOR, ErrorCode::COORDINATOR_LOAD_IN_PROGRESS],
        _ => &[ErrorCode::REQUEST_TIMED_OUT],
    }
}
