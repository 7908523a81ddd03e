//! What broker and clients share: request and response values, Kafka's error table, the table of every configuration property, the
//! [`Transport`] between them, and the ordered map of partitions that both use. No I/O.

mod config_resource;
pub mod config_table;
pub mod java_hash;
pub mod messages;
mod other_clients;
pub mod partition_states;
mod security_texts;
pub mod transport;

pub use config_resource::ConfigResource;
pub use config_table::{Config, ConfigError, Scope};
pub use fletchlog_protocol::topic_ids::{NO_TOPIC_ID, TopicId, topic_by_id, topic_id_of};
pub use fletchlog_records::ErrorCode;
pub use messages::*;
pub use other_clients::takes_objects;
pub use partition_states::PartitionStates;
pub use transport::{Clock, Completion, Failure, InProcess, NodeId, Ready, Transport};
