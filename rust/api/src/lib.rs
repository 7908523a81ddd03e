//! What broker and clients share beside Kafka's messages: the table of every configuration property, the [`Transport`] between them, the
//! ordered map of partitions that both use, and what a legacy consumer asks for, for which Kafka has no message. No I/O.

mod client_id;
mod config_resource;
pub mod config_table;
pub mod java_hash;
mod legacy_group;
mod nearest;
mod other_clients;
pub mod partition_states;
mod security_texts;
mod settable_clock;
pub mod transport;
pub mod waiting;

pub use config_resource::ConfigResource;
pub use config_table::{Config, ConfigError, Scope};
pub use fletchlog_protocol::local::{StorageFailure, TransactionSupportedOperation};
pub use fletchlog_protocol::messages::{
    AddOffsetsToTxnRequest, AddOffsetsToTxnResponse, AddPartitionsToTxnRequest, AddPartitionsToTxnResponse,
    EndTxnRequest, EndTxnResponse, FetchRequest, FetchResponse, FindCoordinatorRequest, FindCoordinatorResponse,
    HeartbeatRequest, HeartbeatResponse, InitProducerIdRequest, InitProducerIdResponse, JoinGroupRequest,
    JoinGroupResponse, LeaveGroupRequest, LeaveGroupResponse, ListOffsetsRequest, ListOffsetsResponse, MetadataRequest,
    MetadataResponse, OffsetCommitRequest, OffsetCommitResponse, OffsetFetchRequest, OffsetFetchResponse,
    OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse, ProduceRequest, ProduceResponse, SyncGroupRequest,
    SyncGroupResponse, TxnOffsetCommitRequest, TxnOffsetCommitResponse,
};
pub use fletchlog_protocol::topic_ids::{NO_TOPIC_ID, TopicId, topic_by_id, topic_id_of};
pub use fletchlog_protocol::{CoordinatorType, IsolationLevel, OffsetAndMetadata, Request, Response};
pub use fletchlog_records::ErrorCode;
pub use legacy_group::{LegacyGroupAction, LegacyGroupMember, LegacyGroupRequest, LegacyGroupResponse};
pub use nearest::nearest_name;
pub use other_clients::takes_objects;
pub use partition_states::PartitionStates;
pub use settable_clock::{ClientClock, HeldClock, SettableClock};
pub use transport::{Clock, Completion, Failure, InProcess, NodeId, Ready, Transport};
