//! Kafka's clients as engines: the consumer's poll order, the producer's accumulator and sender, the assignors.
//! They meet a broker only through [`fletchlog_api::Transport`].

pub mod assignor;
mod backoff;
pub mod consumer;
pub mod error;
pub mod group;
mod metrics;
mod net;
pub mod producer;
mod random;
pub mod share_consumer;

pub use consumer::Consumer;
pub use error::ClientError;
pub use metrics::Metric;
pub use producer::Producer;
pub use share_consumer::ShareConsumer;
