//! Share groups: the requests of leaders of partitions, and what is in flight.

use fletchlog_protocol::messages::{
    DeleteShareGroupStateRequest, DeleteShareGroupStateResponse, InitializeShareGroupStateRequest,
    InitializeShareGroupStateResponse, ReadShareGroupStateRequest, ReadShareGroupStateResponse,
    ReadShareGroupStateSummaryRequest, ReadShareGroupStateSummaryResponse, WriteShareGroupStateRequest,
    WriteShareGroupStateResponse,
};

use super::Broker;
use crate::sync::Answer;
use crate::{BrokerError, ShareRecordState};

/// A request that only the share coordinator handles.
macro_rules! of_coordinator {
    ($($name:ident $request:ident $response:ident $text:literal;)*) => {
        impl Broker {
            $(
                #[doc = $text]
                ///
                /// # Errors
                /// `Closed`. The errors of partitions are in the response.
                pub fn $name(&self, request: &$request) -> Result<$response, BrokerError> {
                    let _open = self.enter()?;
                    Ok(self.share_coordinator.$name(request))
                }
            )*
        }
    };
}

of_coordinator! {
    initialize_state InitializeShareGroupStateRequest InitializeShareGroupStateResponse "InitializeShareGroupState.";
    read_state ReadShareGroupStateRequest ReadShareGroupStateResponse "ReadShareGroupState.";
    write_state WriteShareGroupStateRequest WriteShareGroupStateResponse "WriteShareGroupState.";
    delete_state DeleteShareGroupStateRequest DeleteShareGroupStateResponse "DeleteShareGroupState.";
    read_state_summary ReadShareGroupStateSummaryRequest ReadShareGroupStateSummaryResponse "ReadShareGroupStateSummary.";
}

impl Broker {
    /// The records of a topic that a share group is not done with, as ranges of equal states, by partition and offset. Only partitions
    /// that the group has fetched since the broker was opened, or since its last connection was closed, are in memory.
    ///
    /// # Errors
    /// UNKNOWN_TOPIC_OR_PARTITION, `Closed`.
    pub fn share_state(&self, group_id: &str, topic: &str) -> Result<Vec<ShareRecordState>, BrokerError> {
        let _open = self.enter()?;
        self.share.share_state(group_id, topic)
    }

    /// Drops a fetch whose client has disconnected.
    pub(crate) fn cancel_fetch(&self, answer: &Answer) {
        self.replicas.purgatory().cancel(answer);
        self.share.cancel(answer);
    }

    /// Answers a waiting fetch for which there is nothing to read.
    pub(crate) fn answer_if_without_data(&self, answer: &Answer) {
        self.replicas.answer_if_without_data(answer);
        self.share.answer_now(answer);
    }

    /// Called when a client in this process has closed its connection to a node.
    pub(crate) fn share_disconnected(&self, connection: crate::share::ConnectionId) {
        if let Ok(_open) = self.enter() {
            self.share.disconnected(connection);
        }
    }

    /// Called when a connection from outside has closed, by a thread that must not wait.
    pub(crate) fn share_disconnects(&self, connection: crate::share::ConnectionId) {
        self.share.disconnects(connection);
    }
}
