//! Share groups at the leaders of partitions (spec 14.5): what is in flight, who fetches and acknowledges it. Kafka: `SharePartitionManager`.

mod acquire;
mod change;
mod dead_letters;
mod delayed_share_fetch;
mod group_config;
mod in_flight_batch;
mod record_state;
mod session;
mod share_acknowledge;
mod share_fetch;
mod share_partition;
mod share_partition_manager;
#[cfg(test)]
mod tests;

pub(crate) use session::ConnectionId;
pub(crate) use share_fetch::ShareFetched;
pub(crate) use share_partition_manager::SharePartitionManager;
pub use share_partition_manager::ShareRecordState;
