//! The session that a listener records: which calls of the recorder belong to what happens on its connections.

use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use fletchlog_api::NodeId;
use fletchlog_session::{Recorded, Recorder};

use crate::apis::Peer;
use crate::endpoint::Endpoint;

/// The recorder of a listener, and the addresses of its nodes.
#[derive(Debug)]
pub(crate) struct Recording {
    pub(crate) recorder: Arc<Recorder>,
    addresses: Vec<(NodeId, Arc<str>)>,
}

/// What of a connection is recorded so far.
#[derive(Debug, Default)]
pub(crate) struct RecordedChannel {
    /// The request in progress.
    pub(crate) request: Option<Recorded>,
    is_identified: bool,
}

impl Recording {
    /// Records into `recorder`.
    pub(crate) fn new(recorder: Arc<Recorder>, endpoints: &[Endpoint]) -> Self {
        let address = |endpoint: &Endpoint| format!("{}:{}", endpoint.host, endpoint.port).into();
        Self {
            recorder,
            addresses: endpoints
                .iter()
                .map(|endpoint| (endpoint.node, address(endpoint)))
                .collect(),
        }
    }

    /// A connection was accepted.
    pub(crate) fn opened(&self, connection: u64, node: NodeId, peer: SocketAddr) {
        let known = self.addresses.iter().find(|(known, _)| *known == node);
        let unknown = Arc::from("");
        let listener = known.map_or(&unknown, |(_, address)| address);
        self.recorder.opened(connection, node, peer.to_string(), listener);
    }

    /// A request has arrived. Its client may have authenticated with the one before.
    pub(crate) fn request(&self, connection: u64, channel: &mut RecordedChannel, peer: &Peer, frame: &Bytes) {
        if let Some(user) = peer.user().filter(|_| !channel.is_identified) {
            channel.is_identified = true;
            self.recorder.identified(connection, user);
        }
        channel.request = self.recorder.request(connection, frame, peer.expects_bare_token());
    }

    /// What is sent in response; no bytes: nothing.
    pub(crate) fn response(
        &self,
        channel: &mut RecordedChannel,
        chunks: &[Bytes],
        outcome: &'static str,
        fault: Option<Arc<str>>,
    ) {
        if let Some(request) = channel.request.take() {
            self.recorder.response(request, chunks, outcome, fault);
        }
    }

    /// A connection was closed.
    pub(crate) fn closed(&self, connection: u64, reason: Option<&str>) {
        self.recorder.closed(connection, reason.unwrap_or(""));
    }
}
