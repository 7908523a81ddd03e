//! JoinGroup, API key 11.

message! {
    JoinGroupRequest, join_group_request: key 11, versions 0 to 9, flexible from 6;
    JoinGroupRequest {
        group_id: Arc<str>, since(0);
        session_timeout_ms: i32, since(0);
        rebalance_timeout_ms: i32 = -1, since(1).ignorable();
        member_id: Arc<str>, since(0);
        group_instance_id: Option<Arc<str>> = None, since(5).nullable(5);
        protocol_type: Arc<str>, since(0);
        protocols: Vec<JoinGroupRequestProtocol>, since(0);
        reason: Option<Arc<str>> = None, since(8).nullable(8).ignorable();
        @local
        /// The client that joins.
        sender: crate::local::JoinSender;
    }
    JoinGroupRequestProtocol {
        name: Arc<str>, since(0);
        metadata: Bytes, since(0);
    }
}

message! {
    JoinGroupResponse, join_group_response: key 11, versions 0 to 9, flexible from 6;
    JoinGroupResponse {
        throttle_time_ms: i32, since(2).ignorable();
        error_code: ErrorCode, since(0);
        generation_id: i32 = -1, since(0);
        protocol_type: Option<Arc<str>> = None, since(7).nullable(7).ignorable();
        protocol_name: Option<Arc<str>>, since(0).nullable(7);
        leader: Arc<str>, since(0);
        skip_assignment: bool, since(9);
        member_id: Arc<str>, since(0);
        members: Vec<JoinGroupResponseMember>, since(0);
    }
    JoinGroupResponseMember {
        member_id: Arc<str>, since(0);
        group_instance_id: Option<Arc<str>> = None, since(5).nullable(5).ignorable();
        metadata: Bytes, since(0);
    }
}

impl JoinGroupRequest {
    /// Whether a member without an id first gets one and joins again with it. Kafka: `JoinGroupRequest#requiresKnownMemberId`.
    pub fn requires_known_member_id(&self) -> bool {
        self.sender.version >= 4
    }

    /// Whether a static leader that comes back understands `skip_assignment`. Kafka: `JoinGroupRequest#supportsSkippingAssignment`.
    pub fn supports_skipping_assignment(&self) -> bool {
        self.sender.version >= 9
    }
}
