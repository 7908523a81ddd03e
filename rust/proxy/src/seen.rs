//! A request that is not passed unseen: rules may decide about it, and it may be recorded.

use std::sync::Arc;

use bytes::Bytes;
use fletchlog_faults::{Answered, Exchange, Faults, Then};
use fletchlog_session::{Recorded, Recorder};

/// A request between its arrival and its response.
#[derive(Debug)]
pub(crate) struct Seen {
    /// What rules say about it; `None`: there are none.
    pub(crate) exchange: Option<Exchange>,
    /// What of it is in the session; `None`: nothing.
    pub(crate) recorded: Option<Recorded>,
}

impl Seen {
    /// Its response, or none, as rules decide it. What is sent is recorded.
    pub(crate) fn answered(self, faults: &Faults, recorder: Option<&Recorder>, chunks: Vec<Bytes>) -> Answered {
        let fault = self.fault();
        let answered = match self.exchange {
            Some(exchange) => faults.answered(exchange, chunks),
            None => Answered {
                delay_ms: 0,
                outcome: if chunks.is_empty() {
                    "without response"
                } else {
                    "answered"
                },
                chunks,
                bytes_per_second: None,
                then: Then::Continue,
            },
        };
        if let (Some(recorder), Some(recorded)) = (recorder, self.recorded) {
            recorder.response(recorded, &answered.chunks, answered.outcome, fault);
        }
        answered
    }

    /// It ends without a response.
    pub(crate) fn ended(self, faults: &Faults, recorder: Option<&Recorder>, outcome: &'static str) {
        let fault = self.fault();
        if let Some(exchange) = &self.exchange {
            faults.ended(exchange, outcome);
        }
        if let (Some(recorder), Some(recorded)) = (recorder, self.recorded) {
            recorder.response(recorded, &[], outcome, fault);
        }
    }

    /// Nothing comes of it while its connection is open.
    pub(crate) fn silent(&mut self, recorder: Option<&Recorder>, outcome: &'static str) {
        let fault = self.fault();
        if let (Some(recorder), Some(recorded)) = (recorder, self.recorded.take()) {
            recorder.response(recorded, &[], outcome, fault);
        }
    }

    fn fault(&self) -> Option<Arc<str>> {
        self.exchange.as_ref().and_then(Exchange::fault)
    }
}
