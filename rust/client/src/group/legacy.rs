//! The 0.8 high-level consumer (spec 8.1 - 8.3). Kafka: `ZookeeperConsumerConnector`, 0.8.2.
//!
//! A consumer opens a number of streams per topic; each stream is a thread of the group, `<consumerId>-<i>`, and is
//! polled by a thread of its own. The partitions of a topic are dealt to the threads of all consumers of the group; a
//! thread that gets none is idle and is warned about. The broker keeps members, owners and generations ([`registry`]);
//! offsets are committed as in a modern group.
//!
//! A rebalance: stop the streams, commit, release what is owned, read the group, assign, claim, start at the committed
//! offsets. A consumer claims only partitions that are released, so a partition never has two owners.
//!
//! Kafka rebalances in a watcher thread. Here calls run the steps, such as a poll of a stream or `owners`. A consumer
//! that waits for others of its process runs their steps too (`watch`). No thread is started.

mod connector;
mod consumer_id;
mod registry;
mod settings;
mod stream;
mod watch;

use std::collections::BTreeMap;
use std::sync::Arc;

use fletchlog_api::{Clock, Config, Transport};

use crate::ClientError;
use connector::Connector;
pub use stream::LegacyStream;

/// Makes one connection to the cluster; every stream has its own.
pub type TransportFactory = Box<dyn Fn() -> Box<dyn Transport> + Send + Sync>;

/// Topic -> partition -> thread id.
pub type Owners = BTreeMap<Arc<str>, BTreeMap<i32, Arc<str>>>;

/// One consumer of a legacy group. Thread-safe.
///
/// Dropping it (and its streams) without [`LegacyConsumer::shutdown`] is a crash: the group keeps its partitions until
/// zookeeper.session.timeout.ms has passed.
#[derive(Debug)]
pub struct LegacyConsumer {
    connector: Arc<Connector>,
}

impl LegacyConsumer {
    /// A consumer with `Scope::LegacyConsumer` properties. Joins nothing yet.
    ///
    /// # Errors
    /// `InvalidGroupId` without group.id.
    pub fn new(config: Config, transports: TransportFactory, clock: Arc<dyn Clock>) -> Result<Self, ClientError> {
        Ok(Self {
            connector: Arc::new(Connector::new(&config, transports, clock)?),
        })
    }

    /// `<group>_<consumer.id>`, or `<group>_<host>-<ms>-<8 hex digits>`.
    pub fn consumer_id(&self) -> &str {
        self.connector.consumer_id()
    }

    /// Joins the group with this number of streams per topic; once per consumer. The streams come topic by topic in the
    /// given order, thread 0 first. Consumers of the same process rebalance before this returns.
    ///
    /// # Errors
    /// `IllegalState` at the second call; `IllegalArgument` for fewer than one stream or a topic named twice; errors of
    /// the broker.
    pub fn create_message_streams(&self, topic_count: &[(&str, i32)]) -> Result<Vec<LegacyStream>, ClientError> {
        let cells = self.connector.register(topic_count)?;
        watch::add(&self.connector);
        watch::settle(&self.connector);
        Ok(cells
            .into_iter()
            .map(|cell| LegacyStream::new(Arc::clone(&self.connector), cell))
            .collect())
    }

    /// The owner of each partition of the group, after a rebalance that may be due.
    ///
    /// # Errors
    /// `Closed`; `IllegalState` before `create_message_streams`; `Timeout`.
    pub fn owners(&self) -> Result<Owners, ClientError> {
        watch::settle(&self.connector);
        self.connector.owners()
    }

    /// Commits the positions of all streams: everything that polls have returned.
    ///
    /// # Errors
    /// `Closed`; the first failure, after all streams have been tried.
    pub fn commit_offsets(&self) -> Result<(), ClientError> {
        self.connector.commit_offsets()
    }

    /// Commits (under auto.commit.enable), leaves the group and closes the streams. The other consumers of this process
    /// rebalance before it returns. The second call does nothing.
    ///
    /// # Errors
    /// Errors of the broker; the consumer is closed all the same.
    pub fn shutdown(&self) -> Result<(), ClientError> {
        let outcome = self.connector.shutdown();
        watch::remove(&self.connector);
        watch::settle_others(&self.connector);
        outcome
    }

    /// Whether `shutdown` was called.
    pub fn is_closed(&self) -> bool {
        self.connector.is_closed()
    }
}
