//! LeaveGroup, API key 13.

message! {
    LeaveGroupRequest, leave_group_request: key 13, versions 0 to 5, flexible from 4;
    LeaveGroupRequest {
        group_id: Arc<str>, since(0);
        member_id: Arc<str>, between(0, 2);
        members: Vec<MemberIdentity>, since(3);
    }
    MemberIdentity {
        member_id: Arc<str>, since(3);
        group_instance_id: Option<Arc<str>> = None, since(3).nullable(3);
        reason: Option<Arc<str>> = None, since(5).nullable(5).ignorable();
    }
}

message! {
    LeaveGroupResponse, leave_group_response: key 13, versions 0 to 5, flexible from 4;
    LeaveGroupResponse {
        throttle_time_ms: i32, since(1).ignorable();
        error_code: ErrorCode, since(0);
        members: Vec<MemberResponse>, since(3);
    }
    MemberResponse {
        member_id: Arc<str>, since(3);
        group_instance_id: Option<Arc<str>>, since(3).nullable(3);
        error_code: ErrorCode, since(3);
    }
}
