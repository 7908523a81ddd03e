//! The tables of responses of share groups (KIP-932), whose other parts fletchlog does not serve. Kafka: `ShareFetchResponse.json`,
//! `ShareAcknowledgeResponse.json`, versions 1 and 2.

use fletchlog_protocol::schema::{FieldSpec, FieldType, Presence, Versions};

/// Key of the API.
pub(crate) const SHARE_FETCH: i16 = 78;
/// Key of the API.
pub(crate) const SHARE_ACKNOWLEDGE: i16 = 79;
/// The last version of both.
pub(crate) const MAX_VERSION: i16 = 2;

const fn since(min: i16, name: &'static str, field_type: FieldType) -> FieldSpec {
    FieldSpec {
        name,
        field_type,
        default: "",
        presence: Presence {
            versions: Versions { min, max: i16::MAX },
            nullable: Versions { min: 0, max: -1 },
            tag: None,
            ignorable: false,
        },
    }
}

const fn field(name: &'static str, field_type: FieldType) -> FieldSpec {
    since(0, name, field_type)
}

const LEADER: &[FieldSpec] = &[
    field("leader_id", FieldType::Int32),
    field("leader_epoch", FieldType::Int32),
];

const NODE_ENDPOINT: FieldType = FieldType::Struct(
    "NodeEndpoint",
    &[
        field("node_id", FieldType::Int32),
        field("host", FieldType::String),
        field("port", FieldType::Int32),
        field("rack", FieldType::String),
    ],
);

const ACQUIRED: FieldType = FieldType::Struct(
    "AcquiredRecords",
    &[
        field("first_offset", FieldType::Int64),
        field("last_offset", FieldType::Int64),
        field("delivery_count", FieldType::Int16),
    ],
);

const FETCHED: FieldType = FieldType::Struct(
    "PartitionData",
    &[
        field("partition_index", FieldType::Int32),
        field("error_code", FieldType::ErrorCode),
        field("error_message", FieldType::String),
        field("acknowledge_error_code", FieldType::ErrorCode),
        field("acknowledge_error_message", FieldType::String),
        field("current_leader", FieldType::Struct("LeaderIdAndEpoch", LEADER)),
        field("records", FieldType::Records),
        field("acquired_records", FieldType::Array(&ACQUIRED)),
    ],
);

const ACKNOWLEDGED: FieldType = FieldType::Struct(
    "PartitionData",
    &[
        field("partition_index", FieldType::Int32),
        field("error_code", FieldType::ErrorCode),
        field("error_message", FieldType::String),
        field("current_leader", FieldType::Struct("LeaderIdAndEpoch", LEADER)),
    ],
);

const FETCHED_TOPIC: FieldType = FieldType::Struct(
    "ShareFetchableTopicResponse",
    &[
        field("topic_id", FieldType::Uuid),
        field("partitions", FieldType::Array(&FETCHED)),
    ],
);

const ACKNOWLEDGED_TOPIC: FieldType = FieldType::Struct(
    "ShareAcknowledgeTopicResponse",
    &[
        field("topic_id", FieldType::Uuid),
        field("partitions", FieldType::Array(&ACKNOWLEDGED)),
    ],
);

/// Fields of the response to ShareFetch.
pub(crate) const SHARE_FETCH_RESPONSE: &[FieldSpec] = &[
    field("throttle_time_ms", FieldType::Int32),
    field("error_code", FieldType::ErrorCode),
    field("error_message", FieldType::String),
    since(1, "acquisition_lock_timeout_ms", FieldType::Int32),
    field("responses", FieldType::Array(&FETCHED_TOPIC)),
    field("node_endpoints", FieldType::Array(&NODE_ENDPOINT)),
];

/// Fields of the response to ShareAcknowledge.
pub(crate) const SHARE_ACKNOWLEDGE_RESPONSE: &[FieldSpec] = &[
    field("throttle_time_ms", FieldType::Int32),
    field("error_code", FieldType::ErrorCode),
    field("error_message", FieldType::String),
    since(2, "acquisition_lock_timeout_ms", FieldType::Int32),
    field("responses", FieldType::Array(&ACKNOWLEDGED_TOPIC)),
    field("node_endpoints", FieldType::Array(&NODE_ENDPOINT)),
];
