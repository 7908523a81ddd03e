//! Reports of other threads to the thread of the sockets. Kafka: `RequestChannel`'s response queue.

use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use fletchlog_api::Response;
use fletchlog_api::transport::Waker;
use fletchlog_broker::Ticket;

use crate::apis::{Handled, Respond};
use crate::unsent::Reserved;

/// A connection: its slot, and a number that no other connection in that slot ever has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct ConnectionId {
    pub(crate) slot: usize,
    pub(crate) serial: u64,
}

/// A report about a connection's request.
pub(crate) enum Completion {
    /// Its response, and the reservation for its bytes until they are counted as unsent.
    Answer(Vec<Bytes>, Option<Reserved>),
    /// It has no response.
    NoAnswer,
    /// The connection is to be closed, for this reason.
    Close(String),
    /// The client gets these bytes after a delay; then the connection is to be closed.
    Refuse(Vec<Bytes>, String),
    /// The broker responds later; a [`Completion::Response`] follows.
    Waiting(Ticket, Respond),
    /// The broker's response to a waiting request.
    Response(Response),
    /// A rule that held the request back has released it.
    Released,
    /// Not about a request: the connection paused for the others and may have more to read or to write.
    Resume,
}

/// The queue of reports, and the waker of its reader.
pub(crate) struct Completions {
    queue: Mutex<Vec<(ConnectionId, Completion)>>,
    waker: Waker,
}

impl Completions {
    /// An empty queue.
    pub(crate) fn new(waker: Waker) -> Self {
        Self {
            queue: Mutex::default(),
            waker,
        }
    }

    /// Adds a report. Never waits: it is called under locks of the broker.
    pub(crate) fn push(&self, connection: ConnectionId, completion: Completion) {
        let was_empty = {
            let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
            queue.push((connection, completion));
            queue.len() == 1
        };
        if was_empty {
            self.wake();
        }
    }

    /// Wakes the reader.
    pub(crate) fn wake(&self) {
        (self.waker)();
    }

    /// Takes all reports.
    pub(crate) fn take(&self) -> Vec<(ConnectionId, Completion)> {
        std::mem::take(&mut *self.queue.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Must report on one request. If it is dropped without a report (the handler panicked), the connection is closed.
pub(crate) struct Reply {
    completions: Arc<Completions>,
    connection: ConnectionId,
    reported: bool,
}

impl Reply {
    /// Reports on a request of this connection.
    pub(crate) fn new(completions: Arc<Completions>, connection: ConnectionId) -> Self {
        Self {
            completions,
            connection,
            reported: false,
        }
    }

    /// Reports the handler's outcome.
    pub(crate) fn report(mut self, (handled, reserved): (Handled, Option<Reserved>)) {
        self.reported = true;
        let (completions, id) = (Arc::clone(&self.completions), self.connection);
        match handled {
            Handled::Answer(chunks) => completions.push(id, Completion::Answer(chunks, reserved)),
            Handled::NoAnswer => completions.push(id, Completion::NoAnswer),
            Handled::Close(reason) => completions.push(id, Completion::Close(reason)),
            Handled::Refuse(chunks, reason) => completions.push(id, Completion::Refuse(chunks, reason)),
            Handled::Later(ticket, respond) => {
                completions.push(id, Completion::Waiting(ticket.clone(), respond));
                ticket.on_ready(move |response| completions.push(id, Completion::Response(response)));
            }
        }
    }
}

impl Drop for Reply {
    fn drop(&mut self) {
        if !self.reported {
            let reason = "its handler failed, which is a defect of the broker".to_owned();
            self.completions.push(self.connection, Completion::Close(reason));
        }
    }
}
