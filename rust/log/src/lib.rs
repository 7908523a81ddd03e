//! Kafka's log: segments, indexes, producer state, validation, recovery, retention, lookups.
//! Synchronous; files are reached only through [`fs::Fs`], time comes in as an argument.

mod append;
mod batch_walk;
pub mod checkpoint;
mod cleaner;
mod close;
pub mod config;
pub mod dump;
pub mod error;
pub mod file_name;
mod flush;
pub mod fs;
mod leader_epoch;
mod load_decision;
mod load_plan;
mod loader;
mod offset_index;
pub mod partition_log;
mod producer_snapshot;
mod producer_state;
mod read;
mod recovery;
mod refresh;
mod retention;
mod roll;
pub mod scan;
mod seal;
mod segment;
mod segment_files;
mod segment_indexes;
mod sync;
mod time_index;
mod timestamps;
mod txn_index;
mod validator;
pub mod verify;
mod view;

pub use cleaner::{Cleanable, CleanerOptions, CleanerStats};
pub use config::LogConfig;
pub use dump::{BatchDescription, SegmentBatches, inspect_segment};
pub use error::{AppendError, LogError};
pub use partition_log::{
    AppendInfo, AppendOrigin, FetchBound, FetchDataInfo, LogBounds, OpenMode, PartitionLog, ProducerState,
    TimestampAndOffset,
};
pub use seal::SealedFile;
pub use verify::{PartitionReport, verify_partition};
