//! Reading and administration of a cluster. Kafka: `KafkaAdminClient`.
//!
//! Each call waits for its responses. A request that is lost, gets no response within request.timeout.ms, or is refused with a retriable
//! error is repeated after retry.backoff.ms, at the next node if any node will do, until default.api.timeout.ms has passed. When none of
//! the known nodes returned metadata, those of bootstrap.servers are tried again (metadata.recovery.strategy).

use std::sync::Arc;
use std::time::Duration;

use fletchlog_api::transport::Waker;
use fletchlog_api::{
    Clock, Config, CoordinatorType, ErrorCode, Failure, FindCoordinatorRequest, MetadataRequest, MetadataResponse,
    NodeId, TopicId, Transport, waiting,
};
use fletchlog_protocol::ApiRequest;

use crate::tcp_transport::{ConnectionSettings, TcpTransport};

mod groups;
mod security;
mod topics;
mod transactions;

pub use groups::{CommittedAndEnd, Description};

/// Called about every 50 ms; true = stop.
pub type Interrupt<'a> = &'a mut dyn FnMut() -> bool;

/// Why a call failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AdminError {
    /// A broker refused it.
    #[error("{1}")]
    Refused(ErrorCode, String),
    /// default.api.timeout.ms has passed. With the last failure.
    #[error("no answer within {0} ms (default.api.timeout.ms): {1}")]
    TimedOut(i64, String),
    /// The brokers cannot do it, or their response is malformed.
    #[error("{0}")]
    Failed(Failure),
    /// The caller wants to stop.
    #[error("interrupted")]
    Interrupted,
}

/// A partition of a topic and its offsets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartitionOffsets {
    /// Number.
    pub partition: i32,
    /// Node that leads it.
    pub leader: NodeId,
    /// First readable offset.
    pub log_start_offset: i64,
    /// End for read_uncommitted.
    pub high_watermark: i64,
    /// End for read_committed.
    pub last_stable_offset: i64,
    /// -1: an older broker does not say.
    pub leader_epoch: i32,
    /// The preferred leader first.
    pub replicas: Vec<NodeId>,
    /// The replicas in sync.
    pub isr: Vec<NodeId>,
}

/// A topic.
#[derive(Debug, Clone)]
pub struct TopicOffsets {
    /// Name.
    pub name: Arc<str>,
    /// Its id.
    pub topic_id: TopicId,
    /// Ascending.
    pub partitions: Vec<PartitionOffsets>,
}

/// Why an attempt failed.
enum Stop {
    /// Another attempt may succeed.
    Again(String),
    /// No attempt will.
    Final(AdminError),
}

/// A client that reads and administers a cluster; each call waits for its result.
pub struct AdminClient {
    transport: TcpTransport,
    clock: Arc<dyn Clock>,
    limit_ms: i64,
    request_timeout_ms: i64,
    retry_backoff_ms: i64,
    next_id: i32,
    /// Nodes for requests that any node can serve, the next one first.
    nodes: Vec<NodeId>,
    /// Consecutive attempts without a response to a metadata request.
    without_metadata: usize,
    /// metadata.recovery.strategy=rebootstrap.
    rebootstraps: bool,
}

/// One call with its limit.
struct Call<'a, 'b> {
    client: &'a mut AdminClient,
    until_ms: i64,
    stop: Interrupt<'b>,
}

impl AdminClient {
    /// Connects with the first call. The properties are those of a consumer.
    ///
    /// # Errors
    /// The system cannot provide a selector.
    pub fn new(settings: ConnectionSettings, config: &Config, clock: Arc<dyn Clock>) -> std::io::Result<Self> {
        // As in Kafka, an administrator's connections are not checked.
        let settings = ConnectionSettings {
            checks_cluster: false,
            ..settings
        };
        let transport = TcpTransport::new(settings, Arc::clone(&clock))?;
        Ok(Self {
            nodes: transport.bootstrap(),
            transport,
            clock,
            limit_ms: i64::from(config.int("default.api.timeout.ms")),
            request_timeout_ms: i64::from(config.int("request.timeout.ms")),
            retry_backoff_ms: config.long("retry.backoff.ms"),
            next_id: 0,
            without_metadata: 0,
            rebootstraps: config.text("metadata.recovery.strategy") == "rebootstrap",
        })
    }

    /// See [`Transport::watch`].
    pub fn watch(&mut self, notify: Waker) -> Option<i32> {
        self.transport.watch(notify)
    }

    /// The id of the cluster; empty if it has none.
    ///
    /// # Errors
    /// See [`AdminError`].
    pub fn cluster_id(&mut self, stop: Interrupt<'_>) -> Result<Arc<str>, AdminError> {
        self.call(stop, |call| {
            Ok(call.metadata(Some(&[]))?.cluster_id.unwrap_or_default())
        })
    }

    /// The ids of its nodes, ascending.
    ///
    /// # Errors
    /// See [`AdminError`].
    pub fn nodes(&mut self, stop: Interrupt<'_>) -> Result<Vec<NodeId>, AdminError> {
        let mut nodes: Vec<NodeId> = self.call(stop, |call| Ok(call.metadata(Some(&[]))?.nodes().collect()))?;
        nodes.sort_unstable();
        Ok(nodes)
    }

    /// The node that is the controller, or that takes its requests; `None`: none is known.
    ///
    /// # Errors
    /// See [`AdminError`].
    pub fn controller(&mut self, stop: Interrupt<'_>) -> Result<Option<NodeId>, AdminError> {
        self.call(stop, |call| {
            let controller = call.metadata(Some(&[]))?.controller_id;
            Ok((controller >= 0).then_some(controller))
        })
    }

    /// Repeats attempts until one succeeds, fails for good, or the time is over.
    fn call<T>(
        &mut self,
        stop: Interrupt<'_>,
        mut attempt: impl FnMut(&mut Call<'_, '_>) -> Result<T, Stop>,
    ) -> Result<T, AdminError> {
        let (limit_ms, backoff_ms) = (self.limit_ms, self.retry_backoff_ms);
        let until_ms = self.clock.monotonic_ms().saturating_add(limit_ms);
        let mut call = Call {
            client: self,
            until_ms,
            stop,
        };
        loop {
            let why = match attempt(&mut call) {
                Ok(value) => return Ok(value),
                Err(Stop::Final(error)) => return Err(error),
                Err(Stop::Again(why)) => why,
            };
            call.client.turn_to_next_node();
            let again_ms = call.now_ms().saturating_add(backoff_ms);
            if again_ms >= until_ms {
                return Err(AdminError::TimedOut(limit_ms, why));
            }
            while call.now_ms() < again_ms {
                call.wait(again_ms).map_err(|_| AdminError::Interrupted)?;
            }
        }
    }

    /// Kafka: `KafkaAdminClient.MetadataUpdateNodeIdProvider#provide` (KIP-899).
    fn turn_to_next_node(&mut self) {
        self.without_metadata += 1;
        if self.without_metadata < self.nodes.len() || !self.rebootstraps {
            self.nodes.rotate_left(1);
            return;
        }
        self.without_metadata = 0;
        self.nodes = self.transport.bootstrap();
    }

    /// A node asks the client to start again with bootstrap.servers. Kafka: `AdminMetadataManager#initiateRebootstrap` (KIP-1102).
    fn rebootstrap(&mut self, asks: NodeId) -> Stop {
        if self.rebootstraps {
            for node in std::mem::replace(&mut self.nodes, self.transport.bootstrap()) {
                self.transport.disconnect(node);
            }
        }
        let why = ErrorCode::REBOOTSTRAP_REQUIRED.message();
        Stop::Again(format!("node {asks}: {why}"))
    }
}

impl Call<'_, '_> {
    fn now_ms(&self) -> i64 {
        self.client.clock.monotonic_ms()
    }

    fn any_node(&self) -> Result<NodeId, Stop> {
        let first = self.client.nodes.first().copied();
        first.ok_or_else(|| Stop::Again("no server is known".to_owned()))
    }

    /// Waits for any event, at most until `until_ms` or the next check for an interrupt.
    fn wait(&mut self, until_ms: i64) -> Result<(), Stop> {
        let left_ms = until_ms.saturating_sub(self.now_ms()).max(1);
        let transport = &mut self.client.transport;
        waiting::wait(Duration::from_millis(left_ms.unsigned_abs()), |time| {
            transport.wait(time)
        });
        match (self.stop)() {
            true => Err(Stop::Final(AdminError::Interrupted)),
            false => Ok(()),
        }
    }

    fn new_id(&mut self) -> i32 {
        self.client.next_id = self.client.next_id.checked_add(1).unwrap_or(0);
        self.client.next_id
    }

    /// Sends a request and waits for its response.
    fn ask<Q: ApiRequest>(&mut self, node: NodeId, request: Q) -> Result<Q::Response, Stop> {
        let id = self.new_id();
        self.client.transport.send(node, id, request.into());
        let late_ms = self.late_ms();
        loop {
            while let Some(completion) = self.client.transport.receive(node) {
                if completion.correlation_id == id {
                    let response = completion.result.map_err(|failure| failed(node, failure))?;
                    let another = || failed(node, Failure::Malformed("the answer of another request".into()));
                    return Q::response(response).ok_or_else(another);
                }
            }
            self.wait_for_answer(node, late_ms)?;
        }
    }

    /// When a request that is sent now will have waited too long.
    fn late_ms(&self) -> i64 {
        let late_ms = self.now_ms().saturating_add(self.client.request_timeout_ms);
        late_ms.min(self.until_ms)
    }

    /// Kafka: `NetworkClient#handleTimedOutRequests`: the connection of a request that has waited too long is closed.
    fn wait_for_answer(&mut self, node: NodeId, late_ms: i64) -> Result<(), Stop> {
        if self.now_ms() >= late_ms {
            self.client.transport.disconnect(node);
            let address = self.client.transport.address(node).unwrap_or_default();
            return Err(Stop::Again(format!("node {node} ({address}): {}", Failure::TimedOut)));
        }
        self.wait(late_ms)
    }

    /// Metadata in which every topic requested by name is known.
    fn metadata(&mut self, names: Option<&[Arc<str>]>) -> Result<MetadataResponse, Stop> {
        let metadata = self.metadata_of_any(names)?;
        for topic in metadata.topics.iter().filter(|_| names.is_some()) {
            let name = topic.name.as_deref().unwrap_or_default();
            match topic.error_code {
                ErrorCode::NONE => {}
                code @ ErrorCode::LEADER_NOT_AVAILABLE => {
                    return Err(Stop::Again(format!("topic {name}: {}", code.message())));
                }
                // Final, although the error is retriable: Kafka's client does not retry it either.
                code => {
                    let why = format!("topic {name}: {}", code.message());
                    return Err(Stop::Final(AdminError::Refused(code, why)));
                }
            }
        }
        Ok(metadata)
    }

    /// Metadata that may include unknown topics: these have an error.
    fn metadata_of_any(&mut self, names: Option<&[Arc<str>]>) -> Result<MetadataResponse, Stop> {
        let node = self.any_node()?;
        let request = MetadataRequest::for_topics(names.map(<[_]>::to_vec), false);
        let metadata = self.ask(node, request)?;
        self.client.without_metadata = 0;
        if metadata.error_code == ErrorCode::REBOOTSTRAP_REQUIRED {
            return Err(self.client.rebootstrap(node));
        }
        if !metadata.brokers.is_empty() {
            self.client.nodes = metadata.nodes().collect();
        }
        Ok(metadata)
    }

    fn coordinator(&mut self, group_id: &Arc<str>) -> Result<NodeId, Stop> {
        let node = self.any_node()?;
        let lookup = FindCoordinatorRequest::of(CoordinatorType::Group, Arc::clone(group_id));
        let found = self.ask(node, lookup)?;
        let what = || format!("the coordinator of group {group_id} was not found");
        found.coordinator_node().map_err(|error| refused(&what(), error, None))
    }

    /// The id of some node: those of bootstrap.servers have none yet.
    fn a_broker(&mut self) -> Result<NodeId, Stop> {
        let first = self.metadata(Some(&[]))?.nodes().next();
        first.ok_or_else(|| Stop::Again("the metadata names no node".to_owned()))
    }
}

/// A failure of the connection or of the node itself.
fn failed(node: NodeId, failure: Failure) -> Stop {
    match failure {
        Failure::Disconnected | Failure::TimedOut | Failure::NotConnected(_) => {
            Stop::Again(format!("node {node}: {failure}"))
        }
        Failure::SslAuthentication(_)
        | Failure::SaslAuthentication(_)
        | Failure::UnsupportedVersion(_)
        | Failure::RebootstrapRequired
        | Failure::Malformed(_) => Stop::Final(AdminError::Failed(failure)),
    }
}

/// Fails with the first error of a response, if there is one.
fn checked<'a>(what: &str, mut codes: impl Iterator<Item = (ErrorCode, Option<&'a str>)>) -> Result<(), Stop> {
    match codes.find(|&(code, _)| code != ErrorCode::NONE) {
        Some((code, message)) => Err(refused(what, code, message)),
        None => Ok(()),
    }
}

/// What to do after this error.
fn refused(what: &str, code: ErrorCode, message: Option<&str>) -> Stop {
    let why = format!("{what}: {}", message.unwrap_or_else(|| code.message()));
    let is_final = !code.is_retriable() || code == ErrorCode::UNKNOWN_TOPIC_OR_PARTITION;
    match is_final {
        true => Stop::Final(AdminError::Refused(code, why)),
        false => Stop::Again(why),
    }
}

#[cfg(test)]
mod tests;
