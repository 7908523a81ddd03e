//! LeaveGroup, API key 13.

use fletchlog_records::ErrorCode;

message! {
    LeaveGroupRequest, leave_group_request: key 13, versions 0 to 5, flexible from 4, with for_version of_version;
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
    LeaveGroupResponse, leave_group_response: key 13, versions 0 to 5, flexible from 4, with for_version;
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

/// First version with a list of members.
const MANY_MEMBERS: i16 = 3;

impl LeaveGroupRequest {
    /// In an older version, moves the only member of the list into the fields of that version. Several members stay, and the encoder
    /// refuses them. Kafka: `LeaveGroupRequest.Builder#build`.
    fn for_version(mut self, version: i16) -> Self {
        if version < MANY_MEMBERS && self.members.len() == 1 {
            self.member_id = self.members.swap_remove(0).member_id;
        }
        self
    }

    /// The reverse of [`Self::for_version`]: the members are in the list, whatever version was read. Kafka:
    /// `LeaveGroupRequest#members`.
    fn of_version(mut self, version: i16) -> Self {
        if version < MANY_MEMBERS {
            let member_id = std::mem::take(&mut self.member_id);
            self.members = vec![leave_group_request::MemberIdentity {
                member_id,
                ..Default::default()
            }];
        }
        self
    }
}

impl LeaveGroupResponse {
    /// In an older version, replaces the list by the error of its only member, unless the response has an error of its own. Kafka:
    /// `LeaveGroupResponse`.
    fn for_version(mut self, version: i16) -> Self {
        if version < MANY_MEMBERS {
            let of_member = self.members.first().map_or(ErrorCode::NONE, |member| member.error_code);
            if self.error_code == ErrorCode::NONE {
                self.error_code = of_member;
            }
            self.members.clear();
        }
        self
    }
}
