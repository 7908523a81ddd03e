//! A member of the classic protocol behind a socket, which assigns all partitions to itself.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use fletchlog_api::{ErrorCode, JoinGroupRequest, JoinGroupResponse, Request, Response, SyncGroupRequest};
use fletchlog_protocol::Value;
use fletchlog_protocol::messages::join_group_request::JoinGroupRequestProtocol;
use fletchlog_protocol::messages::sync_group_request::SyncGroupRequestAssignment;
use fletchlog_protocol::values::{ConsumerProtocolAssignment, ConsumerProtocolSubscription, consumer_protocol};

use crate::port_client::PortClient;

/// Versions of JoinGroup: one that takes a member in at once, and one that has static members.
const VERSIONS: (i16, i16) = (3, 9);

/// A member of a group, who subscribes to one topic. `id` is "" before it has joined.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ClassicMember<'a> {
    pub group: &'a str,
    pub id: &'a str,
    pub instance: Option<&'a str>,
    pub topic: &'a str,
}

impl ClassicMember<'_> {
    /// JoinGroup, if it is answered at once.
    pub(crate) fn join(&self, client: &PortClient) -> Result<JoinGroupResponse, ErrorCode> {
        let subscription = ConsumerProtocolSubscription {
            topics: vec![self.topic.into()],
            user_data: None,
            ..Default::default()
        };
        let metadata = subscription.encode(1).map_err(|_| ErrorCode::INVALID_REQUEST)?;
        let mut request = JoinGroupRequest {
            group_id: self.group.into(),
            session_timeout_ms: 10_000,
            rebalance_timeout_ms: 30_000,
            member_id: self.id.into(),
            group_instance_id: self.instance.map(Arc::from),
            protocol_type: consumer_protocol::PROTOCOL_TYPE.into(),
            protocols: vec![JoinGroupRequestProtocol {
                name: "range".into(),
                metadata,
            }],
            ..Default::default()
        };
        request.sender.version = if self.instance.is_some() {
            VERSIONS.1
        } else {
            VERSIONS.0
        };
        match client.ask(Request::JoinGroup(request))? {
            Response::JoinGroup(joined) if joined.error_code == ErrorCode::NONE => Ok(joined),
            Response::JoinGroup(joined) => Err(joined.error_code),
            _ => Err(ErrorCode::NETWORK_EXCEPTION),
        }
    }

    /// SyncGroup, with all partitions for itself.
    pub(crate) fn sync(
        &self,
        client: &PortClient,
        joined: &JoinGroupResponse,
        partitions: Range<i32>,
    ) -> Result<(), ErrorCode> {
        let assignment = ConsumerProtocolAssignment {
            assigned_partitions: vec![(self.topic.into(), partitions.collect()).into()],
            user_data: Some(Bytes::new()),
        };
        let assignment = assignment.encode(1).map_err(|_| ErrorCode::INVALID_REQUEST)?;
        let request = SyncGroupRequest {
            group_id: self.group.into(),
            generation_id: joined.generation_id,
            member_id: Arc::clone(&joined.member_id),
            group_instance_id: self.instance.map(Arc::from),
            assignments: vec![SyncGroupRequestAssignment {
                member_id: Arc::clone(&joined.member_id),
                assignment,
            }],
            ..Default::default()
        };
        match client.ask(Request::SyncGroup(request))? {
            Response::SyncGroup(synced) if synced.error_code == ErrorCode::NONE => Ok(()),
            Response::SyncGroup(synced) => Err(synced.error_code),
            _ => Err(ErrorCode::NETWORK_EXCEPTION),
        }
    }
}
