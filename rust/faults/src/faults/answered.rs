//! The response of a request is ready: what its client gets, and what is recorded.

use bytes::Bytes;
use fletchlog_protocol::ApiKey;
use fletchlog_protocol::tree::{Node, Tree};

use super::Faults;
use super::exchange::{After, Answered, BLACK_HOLE, Exchange, Then};
use crate::error_answers::{Refusal, errors_of, merge};
use crate::frames::{self, SIZE, concat, first_bytes, response_of};
use crate::requests::answer_batches;
use crate::rule::{Action, Rule};

impl Faults {
    /// The response of a request is ready; `chunks` has its size in front. No bytes: the request has no response (acks=0).
    pub fn answered(&self, exchange: Exchange, chunks: Vec<Bytes>) -> Answered {
        let mut answered = Answered {
            delay_ms: 0,
            chunks,
            bytes_per_second: None,
            then: Then::Continue,
            outcome: "answered",
        };
        // What the broker said in a response that is discarded.
        let mut discarded = None;
        let mut outcome = match answered.chunks.is_empty() {
            true => "without response",
            false => "answered",
        };
        match &exchange.after {
            After::Nothing => {}
            After::Merge(errors, rule) => self.change(
                &exchange,
                &mut answered.chunks,
                |refusal, response| {
                    refusal.take_out(response, None);
                    merge(response, (**errors).clone());
                },
                rule,
            ),
            After::Mark(rule) => {
                self.change(
                    &exchange,
                    &mut answered.chunks,
                    |refusal, response| refusal.mark(response, None),
                    rule,
                );
            }
            After::Act(action) => match action {
                Action::Close(_) => {
                    discarded = Some(std::mem::take(&mut answered.chunks));
                    (answered.then, outcome) = (Then::Close, "response lost");
                }
                Action::BlackHole(_) => {
                    discarded = Some(std::mem::take(&mut answered.chunks));
                    (answered.then, outcome) = (Then::Nothing, BLACK_HOLE);
                }
                Action::DelayResponse(ms) => answered.delay_ms = *ms,
                Action::Slow(rate) => answered.bytes_per_second = Some(*rate),
                Action::Cut(bytes) => {
                    let first = first_bytes(&answered.chunks, *bytes);
                    discarded = Some(std::mem::replace(&mut answered.chunks, first));
                    (answered.then, outcome) = (Then::Close, "response cut");
                }
                Action::WrongCorrelationId => {
                    let mut bytes = concat(&answered.chunks);
                    if let Some(id) = bytes.get_mut(SIZE..2 * SIZE) {
                        id.copy_from_slice(&exchange.header.correlation_id.wrapping_add(1).to_be_bytes());
                    }
                    answered.chunks = vec![bytes.freeze()];
                }
                Action::Throttle(ms) => frames::change(&exchange.header, &mut answered.chunks, |_, response| {
                    response.set("throttle_time_ms", Node::Int((*ms).into()));
                }),
                _ => {}
            },
        }
        if let Some(chunks) = discarded {
            self.note_batches(&exchange, &chunks);
        }
        answered.outcome = outcome;
        self.finish(&exchange, outcome, Some(&answered.chunks));
        answered
    }

    /// Records what a response says about the batches of a Produce request.
    fn note_batches(&self, exchange: &Exchange, chunks: &[Bytes]) {
        if exchange.header.api_key != ApiKey::Produce.code() || !self.lock().records {
            return;
        }
        if let Some((_, response)) = response_of(&exchange.header, concat(chunks).freeze()) {
            let version = exchange.header.api_version;
            if let Some(row) = self.lock().requests.get(exchange.number) {
                answer_batches(&mut row.batches, &response, version, &self.names);
            }
        }
    }

    /// A request ends without a response: "closed", "client gone".
    pub fn ended(&self, exchange: &Exchange, outcome: &'static str) {
        self.finish(exchange, outcome, None);
    }

    /// Records what became of a request.
    pub(super) fn finish(&self, exchange: &Exchange, outcome: &'static str, chunks: Option<&[Bytes]>) {
        if !self.lock().records {
            return;
        }
        if let Some(chunks) = chunks.filter(|chunks| !chunks.is_empty()) {
            self.note_batches(exchange, chunks);
        }
        let mut errors = Vec::new();
        let bytes = chunks.filter(|chunks| !chunks.is_empty()).map(concat);
        if let Some((_, response)) = bytes
            .as_ref()
            .and_then(|bytes| response_of(&exchange.header, bytes.clone().freeze()))
        {
            errors_of(&response, exchange.header.api_version, &mut errors);
        }
        let now_ms = self.clock.monotonic_ms();
        if let Some(row) = self.lock().requests.get(exchange.number)
            && row.outcome != BLACK_HOLE
        {
            row.duration_ms = Some(now_ms - row.arrived_ms);
            row.response_bytes = bytes.map(|bytes| bytes.len().saturating_sub(SIZE));
            row.errors = errors;
            row.outcome = outcome;
        }
    }

    /// Changes the response to a request, if it can be read.
    fn change(
        &self,
        exchange: &Exchange,
        chunks: &mut Vec<Bytes>,
        change: impl FnOnce(&Refusal<'_>, &mut Tree),
        rule: &Rule,
    ) {
        let header = &exchange.header;
        frames::change(header, chunks, |api, response| {
            if let Some(refusal) = self.refusal(api, header.api_version, rule) {
                change(&refusal, response);
            }
        });
    }

    /// The error of a rule; `None`: it has another action.
    pub(super) fn refusal<'a>(&'a self, api: ApiKey, version: i16, rule: &'a Rule) -> Option<Refusal<'a>> {
        let Action::Error {
            code, log_start_offset, ..
        } = rule.action
        else {
            return None;
        };
        Some(Refusal {
            api,
            version,
            code,
            log_start_offset,
            selector: &rule.selector,
            names: &self.names,
        })
    }
}
