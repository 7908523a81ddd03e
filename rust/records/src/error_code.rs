//! Kafka's error table (spec 12): the single source of codes, names and retriability.

macro_rules! error_codes {
    ($($code:literal $name:ident $retriable:literal $text:literal;)*) => {
        /// An error code of Kafka's protocol. Kafka: `Errors`.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[allow(non_camel_case_types, missing_docs)]
        #[repr(i16)]
        pub enum ErrorCode { $($name = $code,)* }

        impl ErrorCode {
            /// Every code known here.
            pub const ALL: &'static [ErrorCode] = &[$(ErrorCode::$name,)*];
            /// The code with this number.
            pub fn from_code(code: i16) -> Option<Self> {
                match code { $($code => Some(ErrorCode::$name),)* _ => None }
            }
            /// The code with this name (as in Kafka's table, upper case).
            pub fn from_name(name: &str) -> Option<Self> {
                match name { $(stringify!($name) => Some(ErrorCode::$name),)* _ => None }
            }
            /// Kafka's name.
            pub fn name(self) -> &'static str {
                match self { $(ErrorCode::$name => stringify!($name),)* }
            }
            /// Whether a client may retry.
            pub fn is_retriable(self) -> bool {
                match self { $(ErrorCode::$name => $retriable,)* }
            }
            /// What it means, in one sentence.
            pub fn message(self) -> &'static str {
                match self { $(ErrorCode::$name => $text,)* }
            }
            /// The number on the wire.
            pub fn code(self) -> i16 { self as i16 }
        }
    };
}

error_codes! {
    -1 UNKNOWN_SERVER_ERROR false "the broker met an unexpected error";
    0 NONE false "no error";
    1 OFFSET_OUT_OF_RANGE false "the offset is outside the range that the log holds";
    2 CORRUPT_MESSAGE true "the batch failed its CRC check, has an invalid size, or is otherwise corrupt";
    3 UNKNOWN_TOPIC_OR_PARTITION true "this broker does not hold that topic-partition";
    5 LEADER_NOT_AVAILABLE true "the partition has no leader at the moment";
    6 NOT_LEADER_OR_FOLLOWER true "this broker does not lead that topic-partition";
    7 REQUEST_TIMED_OUT true "the request timed out";
    8 BROKER_NOT_AVAILABLE false "the broker is not available";
    9 REPLICA_NOT_AVAILABLE true "the replica is not available";
    10 MESSAGE_TOO_LARGE false "the batch is larger than max.message.bytes";
    12 OFFSET_METADATA_TOO_LARGE false "the metadata of the committed offset is too large";
    13 NETWORK_EXCEPTION true "the connection was lost before the answer came";
    14 COORDINATOR_LOAD_IN_PROGRESS true "the coordinator is loading";
    15 COORDINATOR_NOT_AVAILABLE true "the coordinator is not available";
    16 NOT_COORDINATOR true "this broker is not the coordinator of that group";
    17 INVALID_TOPIC_EXCEPTION false "the topic name is not valid";
    18 RECORD_LIST_TOO_LARGE false "the batch is larger than segment.bytes";
    19 NOT_ENOUGH_REPLICAS true "fewer replicas in sync than required";
    20 NOT_ENOUGH_REPLICAS_AFTER_APPEND true "written, but fewer replicas in sync than required";
    21 INVALID_REQUIRED_ACKS false "acks must be -1, 0 or 1";
    22 ILLEGAL_GENERATION false "the member's generation is not the group's";
    23 INCONSISTENT_GROUP_PROTOCOL false "the member shares no protocol with the group";
    24 INVALID_GROUP_ID false "the group id is not valid";
    25 UNKNOWN_MEMBER_ID false "the coordinator does not know this member";
    26 INVALID_SESSION_TIMEOUT false "session.timeout.ms is outside the broker's limits";
    27 REBALANCE_IN_PROGRESS false "the group is rebalancing, the member has to rejoin";
    28 INVALID_COMMIT_OFFSET_SIZE false "the committed offsets are too large for one batch";
    29 TOPIC_AUTHORIZATION_FAILED false "not authorized for the topic";
    30 GROUP_AUTHORIZATION_FAILED false "not authorized for the group";
    31 CLUSTER_AUTHORIZATION_FAILED false "not authorized for the cluster";
    32 INVALID_TIMESTAMP false "a timestamp is outside the accepted range";
    33 UNSUPPORTED_SASL_MECHANISM false "the broker does not offer this SASL mechanism";
    34 ILLEGAL_SASL_STATE false "the SASL request does not fit the state of the connection";
    35 UNSUPPORTED_VERSION false "the version of the request is not supported";
    36 TOPIC_ALREADY_EXISTS false "a topic with this name exists";
    37 INVALID_PARTITIONS false "the number of partitions is not valid";
    38 INVALID_REPLICATION_FACTOR false "the replication factor is not valid";
    39 INVALID_REPLICA_ASSIGNMENT false "the assignment of replicas is not valid";
    40 INVALID_CONFIG false "a configuration is not valid";
    41 NOT_CONTROLLER true "this node is not the controller";
    42 INVALID_REQUEST false "the request is not valid";
    43 UNSUPPORTED_FOR_MESSAGE_FORMAT false "the message format on the broker does not support this request";
    44 POLICY_VIOLATION false "the request violates a policy";
    45 OUT_OF_ORDER_SEQUENCE_NUMBER false "the broker received a sequence number that is not the next one";
    46 DUPLICATE_SEQUENCE_NUMBER false "the broker already has a batch with this sequence number";
    47 INVALID_PRODUCER_EPOCH false "the producer's epoch is older than the broker's";
    48 INVALID_TXN_STATE false "the producer attempted an operation its transaction does not allow";
    49 INVALID_PRODUCER_ID_MAPPING false "the producer id does not belong to the transactional id";
    50 INVALID_TRANSACTION_TIMEOUT false "the transaction timeout is larger than the broker allows";
    51 CONCURRENT_TRANSACTIONS true "another transaction of this producer is still completing";
    52 TRANSACTION_COORDINATOR_FENCED false "the transaction coordinator has been replaced";
    53 TRANSACTIONAL_ID_AUTHORIZATION_FAILED false "not authorized for the transactional id";
    54 SECURITY_DISABLED false "the broker has no security to configure";
    55 OPERATION_NOT_ATTEMPTED false "another part of the request was refused, so this one was not tried";
    56 KAFKA_STORAGE_ERROR true "the log could not be read or written";
    57 LOG_DIR_NOT_FOUND false "the broker has no such log directory";
    58 SASL_AUTHENTICATION_FAILED false "SASL authentication failed";
    59 UNKNOWN_PRODUCER_ID false "the broker holds no state for this producer id";
    60 REASSIGNMENT_IN_PROGRESS false "replicas of the partition are being moved";
    68 NON_EMPTY_GROUP false "the group has members";
    69 GROUP_ID_NOT_FOUND false "there is no such group";
    70 FETCH_SESSION_ID_NOT_FOUND true "the fetch session id is unknown";
    71 INVALID_FETCH_SESSION_EPOCH true "the fetch session epoch is not the next one";
    72 LISTENER_NOT_FOUND true "the leader has no address for this listener";
    73 TOPIC_DELETION_DISABLED false "topics cannot be deleted: delete.topic.enable is false";
    74 FENCED_LEADER_EPOCH true "the leader epoch of the request is older than the broker's";
    75 UNKNOWN_LEADER_EPOCH true "the leader epoch of the request is newer than the broker's";
    76 UNSUPPORTED_COMPRESSION_TYPE false "the codec is not supported by this version of the request";
    78 OFFSET_NOT_AVAILABLE true "the leader has not caught up with its own epoch yet";
    79 MEMBER_ID_REQUIRED false "the member has to join with the id it was given";
    80 PREFERRED_LEADER_NOT_AVAILABLE true "the first replica of the partition cannot lead now";
    81 GROUP_MAX_SIZE_REACHED false "the group is full";
    82 FENCED_INSTANCE_ID false "another member uses this group.instance.id";
    83 ELIGIBLE_LEADERS_NOT_AVAILABLE true "no replica of the partition can lead now";
    84 ELECTION_NOT_NEEDED false "the leader of the partition is the preferred one";
    85 NO_REASSIGNMENT_IN_PROGRESS false "no replicas of the partition are being moved";
    86 GROUP_SUBSCRIBED_TO_TOPIC false "a member of the group subscribes to the topic";
    87 INVALID_RECORD false "the broker refused a record";
    88 UNSTABLE_OFFSET_COMMIT true "an offset is being committed by a transaction";
    89 THROTTLING_QUOTA_EXCEEDED true "the quota of the client is exceeded for the moment";
    90 PRODUCER_FENCED false "a newer producer with the same transactional id exists";
    91 RESOURCE_NOT_FOUND false "what the request names does not exist";
    92 DUPLICATE_RESOURCE false "the request names the same thing twice";
    93 UNACCEPTABLE_CREDENTIAL false "the credential is not acceptable";
    95 INVALID_UPDATE_VERSION false "the feature cannot have that level";
    100 UNKNOWN_TOPIC_ID true "this broker does not hold that topic id";
    103 INCONSISTENT_TOPIC_ID true "the topic id does not match";
    105 TRANSACTIONAL_ID_NOT_FOUND false "the transactional id is not known";
    106 FETCH_SESSION_TOPIC_ID_ERROR true "the fetch session used topic ids inconsistently";
    110 FENCED_MEMBER_EPOCH false "the member epoch is fenced";
    111 UNRELEASED_INSTANCE_ID false "the instance id is still in use";
    112 UNSUPPORTED_ASSIGNOR false "the assignor is not supported";
    113 STALE_MEMBER_EPOCH false "the member epoch is stale";
    114 MISMATCHED_ENDPOINT_TYPE false "the request was sent to a broker and asks for a controller, or the reverse";
    115 UNSUPPORTED_ENDPOINT_TYPE false "the type of endpoint is not known";
    120 TRANSACTION_ABORTABLE false "the transaction has to be aborted";
    121 INVALID_RECORD_STATE false "the record is not in a state in which its delivery can be acknowledged";
    122 SHARE_SESSION_NOT_FOUND true "the share session does not exist";
    123 INVALID_SHARE_SESSION_EPOCH true "the epoch of the share session is not the next one";
    124 FENCED_STATE_EPOCH false "the state of the share group has another epoch";
    128 INVALID_REGULAR_EXPRESSION false "the pattern is not valid";
    129 REBOOTSTRAP_REQUIRED false "the metadata is out of date, bootstrap.servers must be asked again";
    133 SHARE_SESSION_LIMIT_REACHED true "the node has as many share sessions as it may have";
    134 GROUP_DELETION_FAILED false "the group could not be deleted";
    135 STREAMS_TOPOLOGY_DESCRIPTION_UPDATE_FAILED false "the description of the topology could not be stored";
    136 CONTROLLER_ID_NOT_REGISTERED false "the controller is not registered";
}

impl std::fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} ({})", self.name(), self.code())
    }
}
