//! `fletchlog.Broker`.

use std::path::{Path, PathBuf};
use std::sync::{Arc, MutexGuard, PoisonError, Weak};

use bytes::Bytes;
use fletchlog_api::{Config, ConfigResource, CoordinatorType, NodeId, Scope, SettableClock, Transport};
use fletchlog_broker::{
    AlterConfig, AlterConfigOp, AlteredUsers, Broker as Engine, BrokerError, ConfigEntry, DirectoryKind,
    LocalTransport, OpenOptions, ScramDeletion, ScramUpsertion, TopicDescription, directory_kind,
};
use fletchlog_log::FetchBound;
use fletchlog_log::checkpoint::encode_uuid;
use fletchlog_records::{BatchIter, ErrorCode, TopicPartition};
use fletchlog_sasl::Secret;
use fletchlog_server::SocketServer;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::{PyBytes, PyDict, PyList, PyMapping, PyTuple};

use crate::acls::{acls_from_py, acls_to_py, filter_or_all, filters_from_py, scram_mechanism};
use crate::clock::{Clock, Listeners};
use crate::convert::{
    broker_resource, bytes_from_py, changes_from_py, check_resets, cleaned_partition_class, config_entry_class,
    config_from_py, counted, describe, described_resource, group_offsets_from_py, int, long, metrics_to_py,
    number_from_py, optional_int, partition_description_class, partitions_from_py, properties_from_py, starts_from_py,
    topic_description_class, topics_from_py, transaction_to_py, unpicklable,
};
use crate::errors::{Failure, errors_module};
use crate::fork::Shared;
use crate::gate::{beside, gate};
use crate::groups::{
    alter_share_request, consumer_group_to_py, delete_share_request, description_to_py, group_offsets_to_py, lag_to_py,
    listing_to_py, no_lag_of_share_group, share_group_offsets_to_py, share_group_to_py,
};
use crate::listener::{Listener, close_in_forked_children, record_options};
use crate::new_topics::{NewTopic, new_topics_from_py};
use crate::offsets;
use crate::peer::Peer;
use crate::scan::Scan;
use crate::scan_arguments::{Wanted, bound_of, threads_from_py, times_from_py};
use crate::scan_builders::Builders;
use crate::scan_typed::TypedArguments;
use crate::share_state::share_state_table;
use crate::store;
use crate::table::Table;
use crate::time::Wait;

/// The topic in which copies and Spark's sinks store their progress (`fletchlog/ledger.py`). Listed only with the internal topics.
pub const LEDGER: &str = "__fletchlog_ledger";

#[doc = stub!(Broker)]
#[pyclass(frozen, module = "fletchlog")]
pub struct Broker {
    inner: Shared<Arc<Engine>>,
    /// Its location, for the repr.
    place: String,
    /// Closed before the broker.
    listeners: Listeners,
    /// Memory of scans.
    builders: Arc<Builders>,
}

/// The result of `_sealed`.
type Sealed<'py> = (
    Vec<(PathBuf, PathBuf, Option<u64>)>,
    Vec<(PathBuf, Bound<'py, PyBytes>)>,
    Vec<(String, i32, i64, i64)>,
);

/// Kafka: `DeleteRecordsRequest.HIGH_WATERMARK`.
pub const TO_THE_END: i64 = -1;

/// Fails with the first error of a user, if any.
fn altered(users: AlteredUsers) -> Result<(), Failure> {
    users
        .into_iter()
        .try_for_each(|(_, outcome)| outcome)
        .map_err(Failure::from)
}

fn options(
    nodes: Option<&Bound<'_, PyAny>>,
    read_only: bool,
    config: Option<&Bound<'_, PyAny>>,
) -> PyResult<OpenOptions> {
    let named_nodes = nodes.and_then(|nodes| nodes.cast::<PyMapping>().ok());
    let count = nodes.filter(|_| named_nodes.is_none()).map(nodes_from_py).transpose()?;
    Ok(OpenOptions {
        named_nodes: named_nodes.map(named_nodes_from_py).transpose()?.unwrap_or_default(),
        nodes: count,
        read_only,
        config: config_from_py(Scope::Broker, config)?,
    })
}

/// A number of nodes.
fn nodes_from_py(nodes: &Bound<'_, PyAny>) -> PyResult<u32> {
    let wrong = |_| {
        let text = format!(
            "nodes is a number, or the racks of nodes by their ids, {{1: \"r1\", 2: None}}, not {}",
            describe(nodes)
        );
        PyTypeError::new_err(text)
    };
    Ok(number_from_py("nodes", long(nodes).map_err(wrong)?, 1)?)
}

/// Racks by the ids of nodes; `None`: a node without one.
fn named_nodes_from_py(nodes: &Bound<'_, PyMapping>) -> PyResult<Vec<(NodeId, Option<Arc<str>>)>> {
    let node = |item: Bound<'_, PyAny>| {
        let wrong = |_| {
            let text = format!(
                "nodes has ids and racks, {{1: \"r1\", 2: None}}, not {}",
                describe(&item)
            );
            PyTypeError::new_err(text)
        };
        let (id, rack): (i64, Option<String>) = item.extract().map_err(wrong)?;
        Ok((
            number_from_py("the id of a node", id, 0)?,
            rack.filter(|rack| !rack.is_empty()).map(Arc::from),
        ))
    };
    let named: Vec<_> = nodes.items()?.iter().map(node).collect::<PyResult<_>>()?;
    match named.is_empty() {
        true => Err(Failure::argument("nodes has no node; give a number, or at least one id").into()),
        false => Ok(named),
    }
}

/// Refuses to create a directory from a mistyped path, and to write to one of a Kafka broker unless the caller asks for it.
fn check_for_writing(path: &Path, create: bool, take_over: bool) -> Result<(), Failure> {
    let advice = match directory_kind(path)? {
        DirectoryKind::Missing if !create => "does not exist; check the name, or give create=True to make it",
        DirectoryKind::Kafka if !take_over => {
            "was written by a Kafka broker; give read_only=True to read it, or take_over=True to write to it and keep fletchlog's metadata there"
        }
        _ => return Ok(()),
    };
    Err(Failure::of("directory", format!("{}: {advice}", path.display())))
}

impl Broker {
    fn open_with(
        py: Python<'_>,
        place: String,
        open: impl FnOnce() -> Result<Arc<Engine>, BrokerError> + Send,
    ) -> PyResult<Self> {
        errors_module(py)?;
        let engine = gate(py, |_| open().map_err(Into::into))?;
        Ok(Self {
            inner: Shared::new("broker", engine),
            place,
            listeners: Listeners::default(),
            builders: Builders::of_broker(),
        })
    }

    fn open_store(
        py: Python<'_>,
        uri: &Path,
        options: OpenOptions,
        storage_options: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Self> {
        let uri = uri.to_string_lossy();
        if !options.read_only {
            let reason = "object stores are read-only; open it with read_only=True, or a directory on a disk to write";
            return Err(Failure::of("read-only", reason).into());
        }
        let (fs, place) = store::open(py, &uri, storage_options)?;
        Self::open_with(py, format!("'{place}'"), || {
            Engine::open_in(
                Arc::new(fs),
                Path::new(&place),
                options,
                Arc::new(SettableClock::default()),
            )
        })
    }

    /// The engine, for new clients of this broker. Fails if the broker is closed.
    pub fn engine(&self) -> Result<Arc<Engine>, Failure> {
        let engine = self.inner.get()?;
        if engine.is_closed() {
            return Err(Failure::closed("broker"));
        }
        Ok(Arc::clone(engine))
    }

    /// A function that connects new clients of this broker. Fails if the broker is closed.
    pub fn transports(&self) -> Result<impl Fn() -> Box<dyn Transport> + Send + Sync + 'static, Failure> {
        let engine = self.engine()?;
        Ok(move || Box::new(LocalTransport::new(Arc::clone(&engine))) as Box<dyn Transport>)
    }

    fn listeners(&self) -> MutexGuard<'_, Vec<Weak<SocketServer>>> {
        self.listeners.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until every listener has closed the connections of stopped nodes, and accepts those of running ones.
    fn follow_nodes(&self) -> Result<(), Failure> {
        let open: Vec<_> = self.listeners().iter().filter_map(Weak::upgrade).collect();
        open.iter().try_for_each(|listener| Ok(listener.follow_nodes()?))
    }

    fn describe(py: Python<'_>, topic: &TopicDescription) -> PyResult<Py<PyAny>> {
        let class = partition_description_class(py)?;
        let partitions = topic
            .partitions
            .iter()
            .map(|p| {
                class.call1((
                    p.partition,
                    p.leader,
                    p.log_start_offset,
                    p.high_watermark,
                    p.last_stable_offset,
                    p.size_bytes,
                    p.segments,
                    p.leader_epoch,
                    PyTuple::new(py, &p.replicas)?,
                    PyTuple::new(py, &p.isr)?,
                ))
            })
            .collect::<PyResult<Vec<_>>>()?;
        let config = topic.config.clone();
        Ok(topic_description_class(py)?
            .call1((&*topic.name, encode_uuid(&topic.topic_id), config, partitions))?
            .unbind())
    }
}

impl Broker {
    /// Creates topics; the error is that of the first one that was refused.
    fn create(&self, py: Python<'_>, topics: &[NewTopic], exist_ok: bool) -> PyResult<()> {
        self.inner.call(py, |broker, _| {
            let new: Vec<_> = topics.iter().map(NewTopic::engine).collect();
            let named: Vec<_> = topics.iter().map(|topic| &*topic.name).zip(&new).collect();
            let outcomes = broker.create_topics(&named)?;
            topics.iter().zip(outcomes).try_for_each(|(topic, outcome)| {
                let Err(error) = outcome else { return Ok(()) };
                let exists = exist_ok && error.code() == ErrorCode::TOPIC_ALREADY_EXISTS;
                match if exists {
                    broker.topic_page(&topic.name.as_str().into(), 0, 0)?.all
                } else {
                    0
                } {
                    0 => Err(NewTopic::refused(error)),
                    count => topic.check_existing(count),
                }
            })
        })
    }

    /// Changes properties; `None` removes one.
    fn alter_config(
        &self,
        py: Python<'_>,
        of: &ConfigResource,
        config: &Bound<'_, PyAny>,
        validate_only: bool,
    ) -> PyResult<()> {
        let given = changes_from_py(config)?;
        let change = |(name, value): (String, Option<String>)| AlterConfig {
            name,
            op: match value {
                Some(_) => AlterConfigOp::Set,
                None => AlterConfigOp::Delete,
            },
            value,
        };
        self.inner.call(py, |broker, _| {
            check_resets(of, &given, || {
                let entries = broker.describe_config(1, of)?;
                Ok::<_, BrokerError>(entries.iter().map(|entry| entry.name.to_string()).collect())
            })?;
            let changes: Vec<_> = given.into_iter().map(change).collect();
            Ok::<_, Failure>(broker.alter_config(of, &changes, validate_only)?)
        })
    }
}

#[pymethods]
impl Broker {
    #[new]
    #[pyo3(signature = (path, *positional, create=false, nodes=None, read_only=false, take_over=false, config=None, storage_options=None), text_signature = "(path, *, create=False, nodes=None, read_only=False, take_over=False, config=None, storage_options=None)")]
    #[allow(clippy::too_many_arguments)] // the contract's keywords
    fn new(
        py: Python<'_>,
        path: PathBuf,
        positional: &Bound<'_, PyTuple>,
        create: bool,
        nodes: Option<&Bound<'_, PyAny>>,
        read_only: bool,
        take_over: bool,
        config: Option<&Bound<'_, PyAny>>,
        storage_options: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Self> {
        if let Ok(second) = positional.get_item(0) {
            return Err(PyTypeError::new_err(format!(
                "a Broker takes the path first and the rest by name, Broker(PATH, nodes=3, config={{...}}), got {}",
                describe(&second)
            )));
        }
        let options = options(nodes, read_only, config)?;
        let (kind, path) = store::place(py, path)?;
        if kind == "cluster" {
            return Err(
                Failure::argument("a cluster is opened by Cluster, Consumer and Producer, not by Broker").into(),
            );
        }
        if kind == "store" {
            return Self::open_store(py, &path, options, storage_options);
        }
        if storage_options.is_some() {
            let reason = "storage_options are for an object store, Broker('s3://BUCKET/PREFIX', read_only=True, ...)";
            return Err(Failure::argument(reason).into());
        }
        if !read_only {
            check_for_writing(&path, create, take_over)?;
        } else if create || take_over {
            let reason = "create and take_over are for writing; read_only never writes: leave one of them out";
            return Err(Failure::argument(reason).into());
        }
        let place = format!("'{}'", path.display());
        Self::open_with(py, place, || {
            Engine::open(&path, options, Arc::new(SettableClock::default()))
        })
    }

    #[doc = stub!(Broker.in_memory)]
    #[staticmethod]
    #[pyo3(signature = (*, nodes=None, config=None), text_signature = "(*, nodes=1, config=None)")]
    fn in_memory(
        py: Python<'_>,
        nodes: Option<&Bound<'_, PyAny>>,
        config: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Self> {
        let options = options(nodes, false, config)?;
        Self::open_with(py, "in memory".to_owned(), || {
            Engine::in_memory(options, Arc::new(SettableClock::default()))
        })
    }

    fn __repr__(&self, py: Python<'_>) -> String {
        let state = match self.inner.get() {
            Err(_) => "of another process".to_owned(),
            Ok(broker) if broker.is_closed() => "closed".to_owned(),
            Ok(broker) => {
                let mode = if broker.is_read_only() {
                    "open for reading only"
                } else {
                    "open"
                };
                match self.inner.call(py, |broker, _| broker.topics(false)) {
                    Ok(topics) => {
                        let shown = topics.iter().filter(|name| &***name != LEDGER);
                        format!("{}, {mode}", counted(shown.count(), "topic"))
                    }
                    Err(_) => mode.to_owned(),
                }
            }
        };
        format!("<fletchlog.Broker {}: {state}>", self.place)
    }

    /// What a notebook shows: the topics.
    fn _repr_html_<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        crate::interop::call(slf.as_any(), "broker_html", None)
    }

    #[doc = stub!(Broker.nodes)]
    #[getter]
    fn nodes(&self, py: Python<'_>) -> PyResult<Vec<i32>> {
        self.inner.call(py, |broker, _| Ok::<_, Failure>(broker.nodes()))
    }

    #[doc = stub!(Broker.read_only)]
    #[getter]
    fn read_only(&self, py: Python<'_>) -> PyResult<bool> {
        self.inner.call(py, |broker, _| Ok::<_, Failure>(broker.is_read_only()))
    }

    #[doc = stub!(Broker.controller)]
    #[getter]
    fn controller(&self, py: Python<'_>) -> PyResult<i32> {
        let nodes = self.nodes(py)?;
        Ok(nodes.first().copied().unwrap_or(1))
    }

    #[doc = stub!(Broker.cluster_id)]
    #[getter]
    fn cluster_id(&self, py: Python<'_>) -> PyResult<Option<String>> {
        let id = self.inner.call(py, |broker, _| broker.cluster_id())?;
        Ok(id.map(|id| id.to_string()))
    }

    #[doc = stub!(Broker.clock)]
    #[getter]
    fn clock(&self) -> PyResult<Clock> {
        Ok(Clock::new(self.inner.get()?, &self.listeners))
    }

    #[doc = stub!(Broker._place)]
    fn _place(&self) -> &str {
        let quoted = self.place.strip_prefix('\'').and_then(|place| place.strip_suffix('\''));
        quoted.unwrap_or(&self.place)
    }

    #[doc = stub!(Broker.create_topic)]
    #[pyo3(signature = (topic, partitions=1, *, config=None, exist_ok=false))]
    fn create_topic(
        &self,
        py: Python<'_>,
        topic: &str,
        #[pyo3(from_py_with = int)] partitions: i32,
        config: Option<&Bound<'_, PyAny>>,
        exist_ok: bool,
    ) -> PyResult<()> {
        self.create(py, &[NewTopic::new(topic, partitions, config, None)?], exist_ok)
    }

    #[doc = stub!(Broker.create_topics)]
    #[pyo3(signature = (topics, *, exist_ok=false))]
    fn create_topics(&self, py: Python<'_>, topics: &Bound<'_, PyAny>, exist_ok: bool) -> PyResult<()> {
        self.create(py, &new_topics_from_py(topics)?, exist_ok)
    }

    #[doc = stub!(Broker.delete_topic)]
    fn delete_topic(&self, py: Python<'_>, topic: &str) -> PyResult<()> {
        self.inner.call(py, |broker, _| broker.delete_topic(topic))
    }

    #[doc = stub!(Broker.create_partitions)]
    #[pyo3(signature = (topic, partitions, *, validate_only=false))]
    fn create_partitions(
        &self,
        py: Python<'_>,
        topic: &str,
        #[pyo3(from_py_with = int)] partitions: i32,
        validate_only: bool,
    ) -> PyResult<()> {
        self.inner.call(py, |broker, _| {
            broker.create_partitions(topic, partitions, None, validate_only)
        })
    }

    #[doc = stub!(Broker.alter_topic_config)]
    #[pyo3(signature = (topic, config, *, validate_only=false))]
    fn alter_topic_config(
        &self,
        py: Python<'_>,
        topic: &str,
        config: &Bound<'_, PyAny>,
        validate_only: bool,
    ) -> PyResult<()> {
        self.alter_config(py, &ConfigResource::Topic(topic.to_owned()), config, validate_only)
    }

    #[doc = stub!(Broker.alter_broker_config)]
    #[pyo3(signature = (config, *, node=None, validate_only=false))]
    fn alter_broker_config(
        &self,
        py: Python<'_>,
        config: &Bound<'_, PyAny>,
        #[pyo3(from_py_with = optional_int)] node: Option<i32>,
        validate_only: bool,
    ) -> PyResult<()> {
        self.alter_config(py, &broker_resource(node), config, validate_only)
    }

    #[doc = stub!(Broker.alter_group_config)]
    #[pyo3(signature = (group, config, *, validate_only=false))]
    fn alter_group_config(
        &self,
        py: Python<'_>,
        group: String,
        config: &Bound<'_, PyAny>,
        validate_only: bool,
    ) -> PyResult<()> {
        self.alter_config(py, &ConfigResource::Group(group), config, validate_only)
    }

    #[doc = stub!(Broker.describe_config)]
    #[pyo3(signature = (topic=None, *, node=None, group=None))]
    fn describe_config(
        &self,
        py: Python<'_>,
        topic: Option<String>,
        #[pyo3(from_py_with = optional_int)] node: Option<i32>,
        group: Option<String>,
    ) -> PyResult<Vec<Py<PyAny>>> {
        let of = described_resource(topic, node, group)?.unwrap_or(ConfigResource::Broker(1));
        let entries = self.inner.call(py, |broker, _| broker.describe_config(1, &of))?;
        let class = config_entry_class(py)?;
        let entry = |entry: &ConfigEntry| {
            let synonyms = entry.synonyms.iter();
            let synonyms: Vec<_> = synonyms
                .map(|s| (&*s.name, s.value.as_str(), s.source.name()))
                .collect();
            let row = (
                &*entry.name,
                entry.value.as_deref(),
                entry.source.name(),
                entry.read_only,
                entry.config_type.name(),
                synonyms,
                entry.documentation,
            );
            Ok(class.call1(row)?.unbind())
        };
        entries.iter().map(entry).collect()
    }

    #[doc = stub!(Broker.metrics)]
    fn metrics<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let metrics = self.inner.call(py, |broker, _| broker.metrics())?;
        metrics_to_py(py, metrics)
    }

    #[doc = stub!(Broker.topics)]
    #[pyo3(signature = (*, include_internal=false))]
    fn topics(&self, py: Python<'_>, include_internal: bool) -> PyResult<Vec<String>> {
        let names = self.inner.call(py, |broker, _| broker.topics(include_internal))?;
        let shown = names.iter().filter(|name| include_internal || &***name != LEDGER);
        Ok(shown.map(ToString::to_string).collect())
    }

    #[doc = stub!(Broker.transactions)]
    fn transactions<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let known = self.inner.call(py, |broker, _| broker.transactions())?;
        let rows: Vec<_> = known
            .iter()
            .map(|known| transaction_to_py(py, known))
            .collect::<PyResult<_>>()?;
        PyList::new(py, rows)
    }

    #[doc = stub!(Broker.share_state)]
    fn share_state(&self, py: Python<'_>, group_id: &str, topic: &str) -> PyResult<Table> {
        let rows = self.inner.call(py, |broker, _| broker.share_state(group_id, topic))?;
        Ok(share_state_table(&rows)?)
    }

    #[doc = stub!(Broker.move_leader)]
    #[pyo3(signature = (topic, partition, *, to, replicated_after_ms=Wait(0)), text_signature = "($self, topic, partition, *, to, replicated_after_ms=0)")]
    fn move_leader(
        &self,
        py: Python<'_>,
        topic: &str,
        #[pyo3(from_py_with = int)] partition: i32,
        #[pyo3(from_py_with = int)] to: i32,
        replicated_after_ms: Wait,
    ) -> PyResult<()> {
        let tp = TopicPartition::new(topic, partition);
        self.inner.call(py, |broker, _| match replicated_after_ms.0 {
            0 => broker.move_leader(&tp, to),
            late => broker.move_leader_slowly(&tp, to, late),
        })
    }

    #[doc = stub!(Broker.move_coordinator)]
    #[pyo3(signature = (*, group_id=None, transactional_id=None, to, loading_ms=Wait(0)), text_signature = "($self, *, group_id=None, transactional_id=None, to, loading_ms=0)")]
    fn move_coordinator(
        &self,
        py: Python<'_>,
        group_id: Option<&str>,
        transactional_id: Option<&str>,
        #[pyo3(from_py_with = int)] to: i32,
        loading_ms: Wait,
    ) -> PyResult<()> {
        let (of, id) = match (group_id, transactional_id) {
            (Some(id), None) => (CoordinatorType::Group, id),
            (None, Some(id)) => (CoordinatorType::Transaction, id),
            _ => return Err(Failure::argument("give either group_id or transactional_id").into()),
        };
        self.inner
            .call(py, |broker, _| broker.move_coordinator(of, id, to, loading_ms.0))
    }

    #[doc = stub!(Broker.stop_node)]
    #[pyo3(signature = (node, *, closes_after_ms=Wait(0), election_ms=Wait(0)), text_signature = "($self, node, *, closes_after_ms=0, election_ms=0)")]
    fn stop_node(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = int)] node: i32,
        closes_after_ms: Wait,
        election_ms: Wait,
    ) -> PyResult<()> {
        self.inner.call(py, |broker, _| {
            broker.set_election_ms(node, election_ms.0);
            broker.shut_down_node(node, closes_after_ms.0)?;
            self.follow_nodes()
        })
    }

    #[doc = stub!(Broker.kill_node)]
    #[pyo3(signature = (node, *, detected_after_ms=Wait(0), election_ms=Wait(0)), text_signature = "($self, node, *, detected_after_ms=0, election_ms=0)")]
    fn kill_node(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = int)] node: i32,
        detected_after_ms: Wait,
        election_ms: Wait,
    ) -> PyResult<()> {
        self.inner.call(py, |broker, _| {
            broker.set_election_ms(node, election_ms.0);
            broker.crash_node(node, detected_after_ms.0)?;
            self.follow_nodes()
        })
    }

    #[doc = stub!(Broker.start_node)]
    fn start_node(&self, py: Python<'_>, #[pyo3(from_py_with = int)] node: i32) -> PyResult<()> {
        self.inner.call(py, |broker, _| {
            broker.start_node(node)?;
            self.follow_nodes()
        })
    }

    #[doc = stub!(Broker.groups)]
    fn groups(&self, py: Python<'_>) -> PyResult<Vec<Py<PyAny>>> {
        let groups = self.inner.call(py, |broker, _| broker.groups())?;
        groups.iter().map(|group| listing_to_py(py, group)).collect()
    }

    #[doc = stub!(Broker.describe_group)]
    fn describe_group(&self, py: Python<'_>, group_id: &str) -> PyResult<Py<PyAny>> {
        // as Kafka's admin client: a consumer group first, then the others
        let consumer = self.inner.call(py, |broker, _| {
            let group = broker.describe_consumer_group(group_id).ok();
            Ok::<_, Failure>(group.map(|group| (group, broker.group_coordinator(group_id))))
        })?;
        if let Some((group, coordinator)) = consumer {
            return consumer_group_to_py(py, &group, coordinator);
        }
        let share = self.inner.call(py, |broker, _| {
            let group = broker.describe_share_group(group_id).ok();
            Ok::<_, Failure>(group.map(|group| (group, broker.group_coordinator(group_id))))
        })?;
        if let Some((group, coordinator)) = share {
            return share_group_to_py(py, &group, coordinator);
        }
        let group = self.inner.call(py, |broker, _| broker.describe_group(group_id))?;
        description_to_py(py, &group)
    }

    #[doc = stub!(Broker.group_offsets)]
    fn group_offsets<'py>(&self, py: Python<'py>, group_id: &str) -> PyResult<Bound<'py, PyDict>> {
        let offsets = self.inner.call(py, |broker, _| broker.group_offsets(group_id))?;
        group_offsets_to_py(py, offsets)
    }

    #[doc = stub!(Broker.lag)]
    fn lag<'py>(&self, py: Python<'py>, group_id: &str) -> PyResult<Bound<'py, PyDict>> {
        let lag = self.inner.call(py, |broker, _| {
            let lag = broker.lag(group_id)?;
            if lag.is_empty() && broker.describe_share_group(group_id).is_ok() {
                return Err(no_lag_of_share_group(group_id));
            }
            Ok(lag)
        })?;
        lag_to_py(py, lag)
    }

    #[doc = stub!(Broker.share_group_offsets)]
    fn share_group_offsets<'py>(&self, py: Python<'py>, group_id: &str) -> PyResult<Bound<'py, PyDict>> {
        let topics = self
            .inner
            .call(py, |broker, _| broker.share_group_offsets(&group_id.into(), None))?;
        share_group_offsets_to_py(py, topics)
    }

    #[doc = stub!(Broker.alter_share_group_offsets)]
    fn alter_share_group_offsets(&self, py: Python<'_>, group_id: &str, offsets: &Bound<'_, PyAny>) -> PyResult<()> {
        let starts = starts_from_py(offsets)?;
        self.inner.call(py, |broker, _| {
            let set = broker.alter_share_group_offsets(&alter_share_request(group_id, starts))?;
            let mut partitions = set.iter().flat_map(|topic| {
                let name = &topic.topic_name;
                topic.partitions.iter().map(move |p| (name, p))
            });
            match partitions.find(|(_, p)| p.error_code != ErrorCode::NONE) {
                None => Ok(()),
                Some((topic, p)) => {
                    let text = format!("{topic}-{}: {}", p.partition_index, p.error_code.message());
                    Err(Failure::kafka(p.error_code, text))
                }
            }
        })
    }

    #[doc = stub!(Broker.delete_share_group_offsets)]
    fn delete_share_group_offsets(&self, py: Python<'_>, group_id: &str, topics: &Bound<'_, PyAny>) -> PyResult<()> {
        let topics = topics_from_py(topics)?;
        self.inner.call(py, |broker, _| {
            let request = delete_share_request(group_id, topics);
            let deleted = broker.delete_share_group_offsets(&request)?;
            match deleted.iter().find(|topic| topic.error_code != ErrorCode::NONE) {
                None => Ok(()),
                Some(topic) => {
                    let why = topic.error_message.as_deref().unwrap_or(topic.error_code.message());
                    Err(Failure::kafka(topic.error_code, format!("{}: {why}", topic.topic_name)))
                }
            }
        })
    }

    #[doc = stub!(Broker.delete_group)]
    fn delete_group(&self, py: Python<'_>, group_id: &str) -> PyResult<()> {
        self.inner.call(py, |broker, _| broker.delete_group(group_id))
    }

    #[doc = stub!(Broker.create_acls)]
    fn create_acls(&self, py: Python<'_>, acls: &Bound<'_, PyAny>) -> PyResult<()> {
        let acls = acls_from_py(acls)?;
        self.inner.call(py, |broker, _| broker.create_acls(&acls))
    }

    #[doc = stub!(Broker.describe_acls)]
    #[pyo3(signature = (acl_filter=None))]
    fn describe_acls<'py>(
        &self,
        py: Python<'py>,
        acl_filter: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Vec<Bound<'py, PyAny>>> {
        let filter = filter_or_all(py, acl_filter)?;
        let acls = self.inner.call(py, |broker, _| broker.describe_acls(&filter))?;
        acls_to_py(py, &acls)
    }

    #[doc = stub!(Broker.delete_acls)]
    fn delete_acls<'py>(&self, py: Python<'py>, filters: &Bound<'py, PyAny>) -> PyResult<Vec<Bound<'py, PyAny>>> {
        let filters = filters_from_py(filters)?;
        let deleted = self
            .inner
            .call(py, |broker, _| broker.delete_acls(&filters, usize::MAX))?;
        let mut acls: Vec<_> = deleted.into_iter().flatten().flatten().collect();
        acls.sort();
        acls.dedup();
        acls_to_py(py, &acls)
    }

    #[doc = stub!(Broker.describe_user_scram_credentials)]
    fn describe_user_scram_credentials<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let users = self
            .inner
            .call(py, |broker, _| broker.describe_user_scram_credentials())?;
        let all = PyDict::new(py);
        for (name, mechanism, iterations) in users {
            if !all.contains(&name)? {
                all.set_item(&name, PyDict::new(py))?;
            }
            let of_user = all.get_item(&name)?;
            of_user.map_or(Ok(()), |of_user| of_user.set_item(mechanism.name(), iterations))?;
        }
        Ok(all)
    }

    #[doc = stub!(Broker.upsert_user_scram_credential)]
    #[pyo3(signature = (user, password, mechanism="SCRAM-SHA-256", iterations=4096))]
    fn upsert_user_scram_credential(
        &self,
        py: Python<'_>,
        user: &str,
        password: &str,
        mechanism: &str,
        #[pyo3(from_py_with = int)] iterations: u32,
    ) -> PyResult<()> {
        let mechanism = scram_mechanism(mechanism)?;
        if password.is_empty() {
            return Err(Failure::argument("the password is empty").into());
        }
        let password = Secret::new(password);
        self.inner.call(py, |broker, _| {
            let upsertion = ScramUpsertion::new(user, mechanism, &password, iterations);
            let upsertion = upsertion.map_err(|error| Failure::state(error.to_string()))?;
            altered(broker.alter_user_scram_credentials(&[], &[upsertion])?)
        })
    }

    #[doc = stub!(Broker.delete_user_scram_credential)]
    #[pyo3(signature = (user, mechanism="SCRAM-SHA-256"))]
    fn delete_user_scram_credential(&self, py: Python<'_>, user: &str, mechanism: &str) -> PyResult<()> {
        let deletion = ScramDeletion {
            name: user.to_owned(),
            mechanism: scram_mechanism(mechanism)?.code(),
        };
        self.inner.call(py, |broker, _| {
            altered(broker.alter_user_scram_credentials(&[deletion], &[])?)
        })
    }

    #[doc = stub!(Broker.delete_offsets)]
    fn delete_offsets(&self, py: Python<'_>, group_id: &str, partitions: &Bound<'_, PyAny>) -> PyResult<()> {
        let partitions = partitions_from_py(partitions)?;
        let deleted = self
            .inner
            .call(py, |broker, _| broker.delete_offsets(group_id, &partitions))?;
        let refused = deleted.into_iter().find(|(_, code)| *code != ErrorCode::NONE);
        match refused {
            Some((tp, code)) => Err(Failure::kafka(code, format!("{tp}: {}", code.message())).into()),
            None => Ok(()),
        }
    }

    #[doc = stub!(Broker.alter_offsets)]
    fn alter_offsets(&self, py: Python<'_>, group_id: &str, offsets: &Bound<'_, PyAny>) -> PyResult<()> {
        let offsets = group_offsets_from_py(offsets)?;
        self.inner
            .call(py, |broker, _| broker.alter_offsets(&group_id.into(), &offsets))
    }

    #[doc = stub!(Broker.describe_topic)]
    fn describe_topic(&self, py: Python<'_>, topic: &str) -> PyResult<Py<PyAny>> {
        let description = self.inner.call(py, |broker, _| broker.describe_topic(topic))?;
        Self::describe(py, &description)
    }

    #[doc = stub!(Broker.scan)]
    #[pyo3(signature = (topic, partition=None, start_offset=None, end_offset=None, *, batch_rows=131_072, include_headers=false, isolation_level="read_uncommitted", order="offset", columns=None, start_time=None, end_time=None, threads=None, timestamp_unit="us", tail=None, key=None, value=None, on_error="raise", unnest=false))]
    #[allow(clippy::too_many_arguments)] // the contract's keywords
    fn scan(
        slf: &Bound<'_, Self>,
        topic: &str,
        #[pyo3(from_py_with = optional_int)] partition: Option<i32>,
        #[pyo3(from_py_with = optional_int)] start_offset: Option<i64>,
        #[pyo3(from_py_with = optional_int)] end_offset: Option<i64>,
        #[pyo3(from_py_with = int)] batch_rows: i64,
        include_headers: bool,
        isolation_level: &str,
        order: &str,
        columns: Option<&Bound<'_, PyAny>>,
        start_time: Option<&Bound<'_, PyAny>>,
        end_time: Option<&Bound<'_, PyAny>>,
        #[pyo3(from_py_with = optional_int)] threads: Option<i64>,
        timestamp_unit: &str,
        #[pyo3(from_py_with = optional_int)] tail: Option<i64>,
        key: Option<&Bound<'_, PyAny>>,
        value: Option<&Bound<'_, PyAny>>,
        on_error: &str,
        unnest: bool,
    ) -> PyResult<Scan> {
        let typed = TypedArguments {
            key,
            value,
            on_error,
            unnest,
        };
        let (columns, typed) = typed.columns(slf.py(), columns, include_headers, timestamp_unit)?;
        let batch_rows = number_from_py("batch_rows", batch_rows, 1)?;
        let wanted = Wanted {
            partition,
            start_offset,
            end_offset,
            batch_rows,
            columns,
            isolation_level,
            order,
            times: times_from_py(start_time, end_time)?,
            threads: threads_from_py(threads)?,
            tail: tail.map(|tail| number_from_py("tail", tail, 0)).transpose()?,
        };
        let this = slf.get();
        let scan = this
            .inner
            .call(slf.py(), |broker, _| Scan::open(broker, &this.builders, topic, &wanted))?;
        Ok(scan.at(slf.as_any(), &wanted).typed(typed))
    }

    #[doc = stub!(Broker.beginning_offsets)]
    fn beginning_offsets<'py>(&self, py: Python<'py>, partitions: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyDict>> {
        let partitions = partitions_from_py(partitions)?;
        let found = self.inner.call(py, |broker, stop| {
            let (peer, config) = (Peer::Broker(Arc::clone(broker)), Config::parse(Scope::Consumer, [])?);
            offsets::beginnings(&peer, &config, &partitions, stop)
        })?;
        offsets::offsets_to_py(py, found)
    }

    #[doc = stub!(Broker.end_offsets)]
    #[pyo3(signature = (partitions, *, isolation_level="read_uncommitted"))]
    fn end_offsets<'py>(
        &self,
        py: Python<'py>,
        partitions: &Bound<'py, PyAny>,
        isolation_level: &str,
    ) -> PyResult<Bound<'py, PyDict>> {
        let partitions = partitions_from_py(partitions)?;
        bound_of(isolation_level)?;
        let found = self.inner.call(py, |broker, stop| {
            let (peer, config) = (Peer::Broker(Arc::clone(broker)), Config::parse(Scope::Consumer, [])?);
            offsets::ends(&peer, &config, &partitions, isolation_level, stop)
        })?;
        offsets::offsets_to_py(py, found)
    }

    #[doc = stub!(Broker.offsets_for_times)]
    fn offsets_for_times<'py>(&self, py: Python<'py>, times: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyDict>> {
        let times = offsets::times_from_py(times)?;
        let found = self.inner.call(py, |broker, stop| {
            let (peer, config) = (Peer::Broker(Arc::clone(broker)), Config::parse(Scope::Consumer, [])?);
            offsets::of_times(&peer, &config, &times, stop)
        })?;
        offsets::found_to_py(py, found)
    }

    #[doc = stub!(Broker.append_batches)]
    fn append_batches(
        &self,
        py: Python<'_>,
        topic: &str,
        #[pyo3(from_py_with = int)] partition: i32,
        data: &Bound<'_, PyAny>,
    ) -> PyResult<(i64, i64, i64)> {
        let data = bytes_from_py("data", data)?;
        self.inner.call(py, |broker, _| {
            broker.append_batches(&TopicPartition::new(topic, partition), Bytes::from_owner(Backed(data)))
        })
    }

    #[doc = stub!(Broker.read_batches)]
    fn read_batches<'py>(
        &self,
        py: Python<'py>,
        topic: &str,
        #[pyo3(from_py_with = int)] partition: i32,
        #[pyo3(from_py_with = int)] offset: i64,
        #[pyo3(from_py_with = int)] max_bytes: i64,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let max_bytes = number_from_py("max_bytes", max_bytes, 0)?;
        let records = self.inner.call(py, |broker, _| {
            let log = broker.partition_log(&TopicPartition::new(topic, partition))?;
            Ok::<_, Failure>(log.read(offset, max_bytes, true, FetchBound::HighWatermark)?.records)
        })?;
        Ok(PyBytes::new(py, &records))
    }

    #[doc = stub!(Broker._control_batches)]
    fn _control_batches(
        &self,
        py: Python<'_>,
        topic: &str,
        partition: i32,
        start_offset: i64,
        end_offset: i64,
    ) -> PyResult<Vec<(i64, i64)>> {
        self.inner.call(py, |broker, _| {
            let log = broker.partition_log(&TopicPartition::new(topic, partition))?;
            let mut found = Vec::new();
            let mut from = start_offset;
            while from < end_offset {
                let mut next = from;
                for batch in BatchIter::new(
                    log.read(from, fletchlog_log::scan::READ_BYTES, true, FetchBound::HighWatermark)?
                        .records,
                ) {
                    let header = *batch?.header();
                    if header.is_control() && header.base_offset < end_offset {
                        found.push((header.base_offset, header.last_offset()));
                    }
                    next = next.max(header.next_offset());
                }
                if next == from {
                    break; // The end of the log.
                }
                from = next;
            }
            Ok::<_, Failure>(found)
        })
    }

    /// For the Spark source: base offset and bytes of every segment of a partition.
    fn _segments(&self, py: Python<'_>, topic: &str, partition: i32) -> PyResult<Vec<(i64, u64)>> {
        self.inner.call(py, |broker, _| {
            Ok::<_, Failure>(broker.partition_log(&TopicPartition::new(topic, partition))?.segments())
        })
    }

    /// For `fletchlog.exporting`: the files of a copy of these topics. (path in the copy, source, bytes of it or None for all) of those that
    /// are copied; (path, bytes) of those that are made, in the order in which they are to be written; (topic, partition, start, end).
    #[pyo3(signature = (topics=None))]
    fn _sealed<'py>(&self, py: Python<'py>, topics: Option<Vec<String>>) -> PyResult<Sealed<'py>> {
        let sealed = self.inner.call(py, |broker, _| broker.seal(topics.as_deref()))?;
        let copied = sealed.copied.into_iter().map(|f| (f.path, f.source, f.len)).collect();
        let made = sealed.made.into_iter();
        let made = made.map(|(path, bytes)| (path, PyBytes::new(py, &bytes))).collect();
        let partition = |(tp, start, end): (TopicPartition, i64, i64)| (tp.topic.to_string(), tp.partition, start, end);
        Ok((copied, made, sealed.partitions.into_iter().map(partition).collect()))
    }

    #[doc = stub!(Broker.delete_records)]
    fn delete_records(
        &self,
        py: Python<'_>,
        topic: &str,
        #[pyo3(from_py_with = int)] partition: i32,
        #[pyo3(from_py_with = int)] before_offset: i64,
    ) -> PyResult<i64> {
        let tp = TopicPartition::new(topic, partition);
        let before_offset = Some(before_offset).filter(|offset| *offset != TO_THE_END);
        self.inner
            .call(py, |broker, _| broker.delete_records(&tp, before_offset))
    }

    #[doc = stub!(Broker.run_retention)]
    fn run_retention(&self, py: Python<'_>) -> PyResult<usize> {
        self.inner.call(py, |broker, _| broker.run_retention())
    }

    #[doc = stub!(Broker.clean_topic)]
    #[pyo3(signature = (topic, *, force=false))]
    fn clean_topic(&self, py: Python<'_>, topic: &str, force: bool) -> PyResult<Vec<Py<PyAny>>> {
        let cleaned = self.inner.call(py, |broker, stop| {
            beside(stop, |stop| broker.clean_topic(topic, force, stop))
        })?;
        let class = cleaned_partition_class(py)?;
        cleaned
            .iter()
            .map(|done| {
                let stats = &done.stats;
                let row = (
                    done.partition,
                    done.rounds,
                    stats.first_dirty_offset,
                    stats.end_offset,
                    stats.messages_read,
                    stats.messages_written,
                    stats.bytes_read,
                    stats.bytes_written,
                    stats.segments_read,
                    stats.segments_written,
                );
                Ok(class.call1(row)?.unbind())
            })
            .collect()
    }

    #[doc = stub!(Broker.flush)]
    fn flush(&self, py: Python<'_>) -> PyResult<()> {
        self.inner.call(py, |broker, _| broker.flush())
    }

    #[doc = stub!(Broker.listen)]
    #[pyo3(signature = (host="127.0.0.1", port=0, *, advertised=None, config=None, record=None, record_values=false))]
    #[allow(clippy::too_many_arguments)] // the contract's keywords
    fn listen(
        &self,
        py: Python<'_>,
        host: &str,
        #[pyo3(from_py_with = int)] port: u16,
        advertised: Option<&str>,
        config: Option<&Bound<'_, PyAny>>,
        record: Option<PathBuf>,
        record_values: bool,
    ) -> PyResult<Listener> {
        if let Some((name, number)) = host.split_once(':')
            && number.parse::<u16>().is_ok()
        {
            let reason =
                format!("the host is {host}: the port is an argument of its own, listen(\"{name}\", {number})");
            return Err(Failure::argument(reason).into());
        }
        let record = record_options(record, record_values)?;
        close_in_forked_children(py)?;
        let config = properties_from_py(config)?;
        let server = self.inner.call(py, |broker, _| {
            if broker.is_closed() {
                return Err(Failure::closed("broker"));
            }
            let server = Listener::open(broker, host, port, advertised, config, record)?;
            let mut listeners = self.listeners();
            listeners.retain(|listener| listener.strong_count() > 0);
            listeners.push(Arc::downgrade(&server));
            Ok(server)
        })?;
        Ok(Listener::new(server))
    }

    #[doc = stub!(Broker.close)]
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        self.inner.call(py, |broker, _| {
            let listeners = std::mem::take(&mut *self.listeners());
            for listener in listeners.iter().filter_map(Weak::upgrade) {
                listener.close();
            }
            self.builders.close();
            broker.close()
        })
    }

    fn __enter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, py: Python<'_>, _exception: &Bound<'_, pyo3::types::PyTuple>) -> PyResult<()> {
        self.close(py)
    }

    fn __reduce__(&self) -> PyResult<()> {
        Err(unpicklable("Broker", "the directory's path"))
    }
}

/// Python's bytes as the owner of a [`Bytes`].
struct Backed(PyBackedBytes);

impl AsRef<[u8]> for Backed {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}
