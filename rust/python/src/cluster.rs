//! `fletchlog.Cluster`.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use fletchlog_api::transport::SystemClock;
use fletchlog_api::{Clock, Config, ConfigResource, ErrorCode, NodeId};
use fletchlog_broker::{GroupDescription, GroupListing, GroupMember, ScramUpsertion, TransactionDescription};
use fletchlog_log::checkpoint::encode_uuid;
use fletchlog_net::{AdminClient, AdminError, ConnectionSettings, Description, TopicOffsets};
use fletchlog_protocol::messages::alter_user_scram_credentials_request::{
    ScramCredentialDeletion, ScramCredentialUpsertion,
};
use fletchlog_protocol::messages::describe_configs_response::DescribeConfigsResourceResult;
use fletchlog_protocol::messages::describe_groups_response::DescribedGroup;
use fletchlog_protocol::messages::describe_transactions_response::{TopicData, TransactionState};
use fletchlog_records::TopicPartition;
use fletchlog_sasl::Secret;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyTuple};

use crate::acls;
use crate::broker::{LEDGER, TO_THE_END};
use crate::client_arguments::{arguments, peer_of};
use crate::convert::{
    broker_resource, changes_from_py, check_resets, cluster_config_from_py, config_entry_class, described_resource,
    group_offsets_from_py, int, number_from_py, optional_int, partition_description_class, partitions_from_py,
    properties_from_py, some, starts_from_py, topic_description_class, topics_from_py, transaction_to_py, unpicklable,
};
use crate::errors::Failure;
use crate::fork::Exclusive;
use crate::gate::gate;
use crate::groups::{
    consumer_group_to_py, description_to_py, group_offsets_to_py, lag_to_py, listing_to_py, no_lag_of_share_group,
    share_group_offsets_to_py, share_group_to_py,
};
use crate::listener::record_options;
use crate::new_topics::{NewTopic, new_topics_from_py};
use crate::oauth::split_callback;
use crate::offsets;
use crate::peer::{Peer, no_client};
use crate::proxy::Proxy;
use crate::scan::Scan;
use crate::scan_arguments::{Wanted, bound_of, times_from_py};
use crate::scan_typed::TypedArguments;
use crate::wakeups::Wakeups;

/// Stands for a number that a cluster does not report.
const UNKNOWN: i64 = -1;

#[doc = stub!(Cluster)]
#[pyclass(frozen, module = "fletchlog")]
pub struct Cluster {
    inner: Arc<Exclusive<AdminClient>>,
    peer: Arc<Peer>,
    config: Config,
    given: Given,
}

impl Cluster {
    /// Changes properties; `None` resets one.
    fn alter_config(
        &self,
        py: Python<'_>,
        of: ConfigResource,
        config: &Bound<'_, PyAny>,
        validate_only: bool,
    ) -> PyResult<()> {
        let changes = changes_from_py(config)?;
        self.inner.awaited(py, move |client, stop| {
            check_resets(&of, &changes, || {
                let entries = client.describe_config(Some(&of), &mut *stop)?;
                Ok::<_, AdminError>(entries.iter().map(|entry| entry.name.to_string()).collect())
            })?;
            Ok::<_, Failure>(client.alter_config(&of, &changes, validate_only, stop)?)
        })
    }

    /// Creates topics; the error is that of the first one that was refused.
    fn create(&self, py: Python<'_>, topics: Vec<NewTopic>, exist_ok: bool) -> PyResult<()> {
        if topics.is_empty() {
            return Ok(());
        }
        self.inner.awaited(py, move |client, stop| {
            let new: Vec<_> = topics.iter().map(NewTopic::creatable).collect();
            let outcomes = client.create_topics(&new, &mut *stop)?;
            topics
                .iter()
                .zip(outcomes)
                .try_for_each(|(topic, outcome)| match outcome {
                    Err(AdminError::Refused(ErrorCode::TOPIC_ALREADY_EXISTS, _)) if exist_ok => {
                        let found = client.topics(Some(&[topic.name.as_str().into()]), &mut *stop)?;
                        topic.check_existing(found.iter().map(|topic| topic.partitions.len()).sum())
                    }
                    outcome => outcome.map_err(NewTopic::refused),
                })
        })
    }
}

/// The arguments: servers and properties.
type Given = (Option<Py<PyAny>>, Option<Py<PyAny>>);

impl Cluster {
    /// The servers and the properties that it was made with, for its clients.
    pub fn given<'py>(&self, py: Python<'py>) -> (Option<Bound<'py, PyAny>>, Option<Bound<'py, PyAny>>) {
        let bound = |given: &Option<Py<PyAny>>| given.as_ref().map(|given| given.bind(py).clone());
        (bound(&self.given.0), bound(&self.given.1))
    }
}

#[pymethods]
impl Cluster {
    #[new]
    #[pyo3(signature = (servers, config=None))]
    fn new(py: Python<'_>, servers: &Bound<'_, PyAny>, config: Option<&Bound<'_, PyAny>>) -> PyResult<Self> {
        let (servers, config) = arguments(Some(servers), config)?;
        let given = (servers.map(|s| s.clone().unbind()), config.map(|c| c.clone().unbind()));
        let (config, callback) = split_callback(config)?;
        let config = cluster_config_from_py(config.as_ref())?;
        let peer = peer_of(py, servers, &config, callback)?;
        let Peer::Cluster(addresses, tokens) = &peer else {
            return Err(Failure::argument("a Broker is no cluster: it has these methods itself").into());
        };
        let client = gate(py, |_| {
            let clock: Arc<dyn Clock> = Arc::new(SystemClock::default());
            let settings = ConnectionSettings::new(&config, addresses.clone(), tokens.clone())?;
            let client = AdminClient::new(settings, &config, clock);
            client.map_err(|error| no_client(&error))
        })?;
        Ok(Self {
            inner: Arc::new(Exclusive::new("cluster", client)),
            peer: Arc::new(peer),
            config,
            given,
        })
    }

    #[doc = stub!(Cluster.proxy)]
    #[pyo3(signature = (listen="127.0.0.1:0", *, advertised=None, config=None, faults=None, record=None, record_values=false))]
    #[allow(clippy::too_many_arguments)] // the contract's keywords
    fn proxy<'py>(
        &self,
        py: Python<'py>,
        listen: &str,
        advertised: Option<String>,
        config: Option<&Bound<'py, PyAny>>,
        faults: Option<&Bound<'py, PyAny>>,
        record: Option<&Bound<'py, PyAny>>,
        record_values: bool,
    ) -> PyResult<Bound<'py, Proxy>> {
        let Peer::Cluster(servers, _) = &*self.peer else {
            return Err(Failure::argument("a Broker is no cluster: use its listen()").into());
        };
        let config = properties_from_py(config)?;
        let requests = record
            .and_then(|record| record.cast::<PyBool>().ok())
            .map(|flag| flag.is_true());
        let path = record
            .filter(|_| requests.is_none())
            .map(|path| path.extract::<PathBuf>());
        let path = path.transpose()?;
        let session = record_options(path, record_values)?;
        let proxy = Proxy::open(py, servers, self.config.clone(), listen, advertised, config, session)?;
        let proxy = Bound::new(py, proxy)?;
        let plan = proxy.getattr("faults")?;
        if requests == Some(true) {
            plan.call_method0("record_requests")?;
        }
        if let Some(faults) = faults {
            plan.call_method1("load", (faults,))?;
        }
        Ok(proxy)
    }

    #[doc = stub!(Cluster.nodes)]
    #[getter]
    fn nodes(&self, py: Python<'_>) -> PyResult<Vec<i32>> {
        self.inner.awaited(py, |client, stop| client.nodes(stop))
    }

    #[doc = stub!(Cluster.controller)]
    #[getter]
    fn controller(&self, py: Python<'_>) -> PyResult<Option<i32>> {
        self.inner.awaited(py, |client, stop| client.controller(stop))
    }

    #[doc = stub!(Cluster.cluster_id)]
    #[getter]
    fn cluster_id(&self, py: Python<'_>) -> PyResult<Option<String>> {
        let id = self.inner.awaited(py, move |client, stop| client.cluster_id(stop))?;
        Ok((!id.is_empty()).then(|| id.to_string()))
    }

    #[doc = stub!(Cluster.topics)]
    #[pyo3(signature = (*, include_internal=false))]
    fn topics(&self, py: Python<'_>, include_internal: bool) -> PyResult<Vec<String>> {
        let topics = self.inner.awaited(py, move |client, stop| client.topics(None, stop))?;
        let shown = topics.into_iter().filter_map(|topic| {
            let name = topic.name?.to_string();
            (include_internal || !(topic.is_internal || name == LEDGER)).then_some(name)
        });
        let mut names: Vec<String> = shown.collect();
        names.sort_unstable();
        Ok(names)
    }

    #[doc = stub!(Cluster.describe_topic)]
    fn describe_topic(&self, py: Python<'_>, topic: String) -> PyResult<Py<PyAny>> {
        let (described, config) = self
            .inner
            .awaited(py, move |client, stop| client.describe_topic(&topic, stop))?;
        topic_to_py(py, &described, config)
    }

    #[doc = stub!(Cluster.create_topic)]
    #[pyo3(signature = (topic, partitions=1, *, config=None, replication_factor=None, exist_ok=false))]
    fn create_topic(
        &self,
        py: Python<'_>,
        topic: String,
        #[pyo3(from_py_with = int)] partitions: i32,
        config: Option<&Bound<'_, PyAny>>,
        #[pyo3(from_py_with = optional_int)] replication_factor: Option<i16>,
        exist_ok: bool,
    ) -> PyResult<()> {
        let new = NewTopic::new(&topic, partitions, config, replication_factor)?;
        self.create(py, vec![new], exist_ok)
    }

    #[doc = stub!(Cluster.create_topics)]
    #[pyo3(signature = (topics, *, exist_ok=false))]
    fn create_topics(&self, py: Python<'_>, topics: &Bound<'_, PyAny>, exist_ok: bool) -> PyResult<()> {
        self.create(py, new_topics_from_py(topics)?, exist_ok)
    }

    #[doc = stub!(Cluster.delete_topic)]
    fn delete_topic(&self, py: Python<'_>, topic: String) -> PyResult<()> {
        self.inner
            .awaited(py, move |client, stop| client.delete_topic(&topic, stop))
    }

    #[doc = stub!(Cluster.create_partitions)]
    #[pyo3(signature = (topic, partitions, *, validate_only=false))]
    fn create_partitions(
        &self,
        py: Python<'_>,
        topic: String,
        #[pyo3(from_py_with = int)] partitions: i32,
        validate_only: bool,
    ) -> PyResult<()> {
        self.inner.awaited(py, move |client, stop| {
            client.create_partitions(&topic, partitions, validate_only, stop)
        })
    }

    #[doc = stub!(Cluster.alter_topic_config)]
    #[pyo3(signature = (topic, config, *, validate_only=false))]
    fn alter_topic_config(
        &self,
        py: Python<'_>,
        topic: String,
        config: &Bound<'_, PyAny>,
        validate_only: bool,
    ) -> PyResult<()> {
        self.alter_config(py, ConfigResource::Topic(topic), config, validate_only)
    }

    #[doc = stub!(Cluster.alter_broker_config)]
    #[pyo3(signature = (config, *, node=None, validate_only=false))]
    fn alter_broker_config(
        &self,
        py: Python<'_>,
        config: &Bound<'_, PyAny>,
        #[pyo3(from_py_with = optional_int)] node: Option<i32>,
        validate_only: bool,
    ) -> PyResult<()> {
        self.alter_config(py, broker_resource(node), config, validate_only)
    }

    #[doc = stub!(Cluster.alter_group_config)]
    #[pyo3(signature = (group, config, *, validate_only=false))]
    fn alter_group_config(
        &self,
        py: Python<'_>,
        group: String,
        config: &Bound<'_, PyAny>,
        validate_only: bool,
    ) -> PyResult<()> {
        self.alter_config(py, ConfigResource::Group(group), config, validate_only)
    }

    #[doc = stub!(Cluster.describe_config)]
    #[pyo3(signature = (topic=None, *, node=None, group=None))]
    fn describe_config(
        &self,
        py: Python<'_>,
        topic: Option<String>,
        #[pyo3(from_py_with = optional_int)] node: Option<i32>,
        group: Option<String>,
    ) -> PyResult<Vec<Py<PyAny>>> {
        let of = described_resource(topic, node, group)?;
        let entries = self
            .inner
            .awaited(py, move |client, stop| client.describe_config(of.as_ref(), stop))?;
        let class = config_entry_class(py)?;
        let entry = |entry: &DescribeConfigsResourceResult| {
            let synonyms = entry.synonyms.iter();
            let synonyms: Vec<_> = synonyms
                .map(|s| (&*s.name, s.value.as_deref().unwrap_or(""), config_source(s.source)))
                .collect();
            let row = (
                &*entry.name,
                entry.value.as_deref(),
                config_source(entry.config_source),
                entry.read_only,
                config_type(entry.config_type),
                synonyms,
                entry.documentation.as_deref().unwrap_or(""),
            );
            Ok(class.call1(row)?.unbind())
        };
        entries.iter().map(entry).collect()
    }

    #[doc = stub!(Cluster.delete_records)]
    fn delete_records(
        &self,
        py: Python<'_>,
        topic: String,
        #[pyo3(from_py_with = int)] partition: i32,
        #[pyo3(from_py_with = int)] before_offset: i64,
    ) -> PyResult<i64> {
        let before_offset = Some(before_offset).filter(|offset| *offset != TO_THE_END);
        if let Some(offset) = before_offset.filter(|offset| *offset < 0) {
            return Err(Failure::argument(format!("before_offset is {offset}; offsets start at 0")).into());
        }
        let tp = TopicPartition::new(topic, partition);
        self.inner
            .awaited(py, move |client, stop| client.delete_records(&tp, before_offset, stop))
    }

    #[doc = stub!(Cluster.scan)]
    #[pyo3(signature = (topic, partition=None, start_offset=None, end_offset=None, *, batch_rows=131_072, include_headers=false, isolation_level="read_uncommitted", order="offset", columns=None, start_time=None, end_time=None, timestamp_unit="us", tail=None, key=None, value=None, on_error="raise", unnest=false))]
    #[allow(clippy::too_many_arguments)] // the contract's keywords
    fn scan(
        slf: &Bound<'_, Self>,
        topic: String,
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
        let wanted = Wanted {
            partition,
            start_offset,
            end_offset,
            batch_rows: number_from_py("batch_rows", batch_rows, 1)?,
            columns,
            isolation_level,
            order,
            times: times_from_py(start_time, end_time)?,
            threads: 1, // One thread reads from all leaders at once.
            tail: tail.map(|tail| number_from_py("tail", tail, 0)).transpose()?,
        };
        let (this, py) = (slf.get(), slf.py());
        let start_time = wanted.start_time();
        let (described, firsts) = this.inner.awaited(py, move |client, stop| {
            let described = client.topic_offsets(&topic, stop)?;
            let firsts = match start_time {
                Some(time) => client.first_offsets_of_times(&topic, time, stop)?,
                None => BTreeMap::new(),
            };
            Ok::<_, AdminError>((described, firsts))
        })?;
        let scan = gate(py, |stop| {
            Scan::of_cluster(&this.peer, &this.config, &described, &firsts, &wanted, stop)
        })?;
        Ok(scan.at(slf.as_any(), &wanted).typed(typed))
    }

    #[doc = stub!(Cluster.beginning_offsets)]
    fn beginning_offsets<'py>(&self, py: Python<'py>, partitions: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyDict>> {
        let partitions = partitions_from_py(partitions)?;
        let found = self.inner.call(py, |_, stop| {
            let (peer, config) = (&self.peer, &self.config);
            offsets::beginnings(peer, config, &partitions, stop)
        })?;
        offsets::offsets_to_py(py, found)
    }

    #[doc = stub!(Cluster.end_offsets)]
    #[pyo3(signature = (partitions, *, isolation_level="read_uncommitted"))]
    fn end_offsets<'py>(
        &self,
        py: Python<'py>,
        partitions: &Bound<'py, PyAny>,
        isolation_level: &str,
    ) -> PyResult<Bound<'py, PyDict>> {
        let partitions = partitions_from_py(partitions)?;
        bound_of(isolation_level)?;
        let found = self.inner.call(py, |_, stop| {
            let (peer, config) = (&self.peer, &self.config);
            offsets::ends(peer, config, &partitions, isolation_level, stop)
        })?;
        offsets::offsets_to_py(py, found)
    }

    #[doc = stub!(Cluster.offsets_for_times)]
    fn offsets_for_times<'py>(&self, py: Python<'py>, times: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyDict>> {
        let times = offsets::times_from_py(times)?;
        let found = self.inner.call(py, |_, stop| {
            let (peer, config) = (&self.peer, &self.config);
            offsets::of_times(peer, config, &times, stop)
        })?;
        offsets::found_to_py(py, found)
    }

    #[doc = stub!(Cluster.create_acls)]
    fn create_acls(&self, py: Python<'_>, acls: &Bound<'_, PyAny>) -> PyResult<()> {
        let acls: Vec<_> = acls::acls_from_py(acls)?.iter().map(acls::creation_of).collect();
        self.inner
            .awaited(py, move |client, stop| client.create_acls(&acls, stop))
    }

    #[doc = stub!(Cluster.describe_acls)]
    #[pyo3(signature = (acl_filter=None))]
    fn describe_acls<'py>(
        &self,
        py: Python<'py>,
        acl_filter: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Vec<Bound<'py, PyAny>>> {
        let filter = acls::request_of(&acls::filter_or_all(py, acl_filter)?);
        let described = self
            .inner
            .awaited(py, move |client, stop| client.describe_acls(&filter, stop))?;
        acls::described_to_py(py, described)
    }

    #[doc = stub!(Cluster.delete_acls)]
    fn delete_acls<'py>(&self, py: Python<'py>, filters: &Bound<'py, PyAny>) -> PyResult<Vec<Bound<'py, PyAny>>> {
        let filters: Vec<_> = acls::filters_from_py(filters)?.iter().map(acls::deletion_of).collect();
        let deleted = self
            .inner
            .awaited(py, move |client, stop| client.delete_acls(&filters, stop))?;
        acls::deleted_to_py(py, deleted)
    }

    #[doc = stub!(Cluster.describe_user_scram_credentials)]
    fn describe_user_scram_credentials<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let users = self
            .inner
            .awaited(py, move |client, stop| client.describe_user_scram_credentials(stop))?;
        acls::users_to_py(py, users)
    }

    #[doc = stub!(Cluster.upsert_user_scram_credential)]
    #[pyo3(signature = (user, password, mechanism="SCRAM-SHA-256", iterations=4096))]
    fn upsert_user_scram_credential(
        &self,
        py: Python<'_>,
        user: &str,
        password: &str,
        mechanism: &str,
        #[pyo3(from_py_with = int)] iterations: u32,
    ) -> PyResult<()> {
        let mechanism = acls::scram_mechanism(mechanism)?;
        if password.is_empty() {
            return Err(Failure::argument("the password is empty").into());
        }
        let (user, password) = (user.to_owned(), Secret::new(password));
        self.inner.awaited(py, move |client, stop| {
            let upsertion = ScramUpsertion::new(&user, mechanism, &password, iterations);
            let upsertion = upsertion.map_err(|error| Failure::state(error.to_string()))?;
            let upsertion = ScramCredentialUpsertion {
                name: upsertion.name.into(),
                mechanism: upsertion.mechanism,
                iterations: upsertion.iterations,
                salt: upsertion.salt.into(),
                salted_password: upsertion.salted_password.into(),
            };
            let altered = client.alter_user_scram_credentials(&[], &[upsertion], stop);
            altered.map_err(Failure::from)
        })
    }

    #[doc = stub!(Cluster.delete_user_scram_credential)]
    #[pyo3(signature = (user, mechanism="SCRAM-SHA-256"))]
    fn delete_user_scram_credential(&self, py: Python<'_>, user: &str, mechanism: &str) -> PyResult<()> {
        let deletion = ScramCredentialDeletion {
            name: user.into(),
            mechanism: acls::scram_mechanism(mechanism)?.code(),
        };
        self.inner.awaited(py, move |client, stop| {
            client.alter_user_scram_credentials(&[deletion], &[], stop)
        })
    }

    #[doc = stub!(Cluster.share_group_offsets)]
    fn share_group_offsets<'py>(&self, py: Python<'py>, group_id: String) -> PyResult<Bound<'py, PyDict>> {
        let topics = self
            .inner
            .awaited(py, move |client, stop| client.share_group_offsets(&group_id, stop))?;
        share_group_offsets_to_py(py, topics)
    }

    #[doc = stub!(Cluster.alter_share_group_offsets)]
    fn alter_share_group_offsets(&self, py: Python<'_>, group_id: String, offsets: &Bound<'_, PyAny>) -> PyResult<()> {
        let starts = starts_from_py(offsets)?;
        self.inner.awaited(py, move |client, stop| {
            client.alter_share_group_offsets(&group_id, &starts, stop)
        })
    }

    #[doc = stub!(Cluster.delete_share_group_offsets)]
    fn delete_share_group_offsets(&self, py: Python<'_>, group_id: String, topics: &Bound<'_, PyAny>) -> PyResult<()> {
        let topics = topics_from_py(topics)?;
        self.inner.awaited(py, move |client, stop| {
            client.delete_share_group_offsets(&group_id, &topics, stop)
        })
    }

    #[doc = stub!(Cluster.delete_group)]
    fn delete_group(&self, py: Python<'_>, group_id: String) -> PyResult<()> {
        self.inner
            .awaited(py, move |client, stop| client.delete_group(&group_id, stop))
    }

    #[doc = stub!(Cluster.delete_offsets)]
    fn delete_offsets(&self, py: Python<'_>, group_id: String, partitions: &Bound<'_, PyAny>) -> PyResult<()> {
        let partitions = partitions_from_py(partitions)?;
        self.inner.awaited(py, move |client, stop| {
            client.delete_offsets(&group_id, &partitions, stop)
        })
    }

    #[doc = stub!(Cluster.alter_offsets)]
    fn alter_offsets(&self, py: Python<'_>, group_id: String, offsets: &Bound<'_, PyAny>) -> PyResult<()> {
        let offsets = group_offsets_from_py(offsets)?;
        self.inner
            .awaited(py, move |client, stop| client.alter_offsets(&group_id, &offsets, stop))
    }

    #[doc = stub!(Cluster.groups)]
    fn groups(&self, py: Python<'_>) -> PyResult<Vec<Py<PyAny>>> {
        let groups = self.inner.awaited(py, |client, stop| client.groups(stop))?;
        let listing =
            |(group, coordinator): &(fletchlog_protocol::messages::list_groups_response::ListedGroup, NodeId)| {
                let listed = GroupListing {
                    group_id: Arc::clone(&group.group_id),
                    protocol_type: Arc::clone(&group.protocol_type),
                    state: state_of(&group.group_state),
                    group_type: Arc::clone(&group.group_type),
                    coordinator: *coordinator,
                };
                listing_to_py(py, &listed)
            };
        groups.iter().map(listing).collect()
    }

    #[doc = stub!(Cluster.group_offsets)]
    fn group_offsets<'py>(&self, py: Python<'py>, group_id: String) -> PyResult<Bound<'py, PyDict>> {
        let offsets = self
            .inner
            .awaited(py, move |client, stop| client.group_offsets(&group_id, stop))?;
        group_offsets_to_py(py, offsets)
    }

    #[doc = stub!(Cluster.lag)]
    fn lag<'py>(&self, py: Python<'py>, group_id: String) -> PyResult<Bound<'py, PyDict>> {
        let name = group_id.clone();
        let (lag, is_share) = self.inner.awaited(py, move |client, stop| {
            let lag = client.lag(&group_id, stop)?;
            let is_share =
                lag.is_empty() && matches!(client.describe_group(&group_id, stop), Ok((Description::Share(_), _)));
            Ok::<_, AdminError>((lag, is_share))
        })?;
        if is_share {
            return Err(no_lag_of_share_group(&name).into());
        }
        lag_to_py(py, lag)
    }

    #[doc = stub!(Cluster.transactions)]
    fn transactions<'py>(&self, py: Python<'py>) -> PyResult<Vec<Bound<'py, PyAny>>> {
        let all = self.inner.awaited(py, |client, stop| client.transactions(stop))?;
        let described = all.into_iter().map(|(state, node)| transaction_of(state, node));
        described.map(|known| transaction_to_py(py, &known)).collect()
    }

    #[doc = stub!(Cluster.describe_group)]
    fn describe_group(&self, py: Python<'_>, group_id: String) -> PyResult<Py<PyAny>> {
        let described = self
            .inner
            .awaited(py, move |client, stop| client.describe_group(&group_id, stop))?;
        match described {
            (Description::Classic(group), node) => description_to_py(py, &group_of(group, node)),
            (Description::Consumer(group), node) => consumer_group_to_py(py, &group, node),
            (Description::Share(group), node) => share_group_to_py(py, &group, node),
        }
    }

    #[doc = stub!(Cluster.close)]
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        self.inner.close(py, |client, _| {
            drop(client);
            Ok::<_, Failure>(())
        })
    }

    #[doc = stub!(Cluster._watch)]
    fn _watch(&self, py: Python<'_>, wakeups: &Bound<'_, Wakeups>, token: u64) -> PyResult<Option<i32>> {
        let waker = wakeups.get().waker(token);
        let watched = self
            .inner
            .call_if_open(py, |client, _| Ok::<_, Failure>(client.watch(waker)))?;
        Ok(watched.flatten())
    }

    fn __repr__(&self) -> String {
        let Peer::Cluster(addresses, _) = &*self.peer else {
            return "<fletchlog.Cluster>".to_owned();
        };
        let state = self.inner.peek(|_| "open".to_owned());
        format!("<fletchlog.Cluster kafka://{}: {state}>", some(addresses))
    }

    fn __enter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, py: Python<'_>, _exception: &Bound<'_, PyTuple>) -> PyResult<()> {
        self.close(py)
    }

    fn __reduce__(&self) -> PyResult<()> {
        Err(unpicklable("Cluster", "the address of its servers"))
    }
}

fn topic_to_py(
    py: Python<'_>,
    described: &TopicOffsets,
    config: Option<BTreeMap<String, String>>,
) -> PyResult<Py<PyAny>> {
    let class = partition_description_class(py)?;
    let partition = |p: &fletchlog_net::PartitionOffsets| {
        let ends = (p.log_start_offset, p.high_watermark, p.last_stable_offset);
        let (replicas, isr) = (PyTuple::new(py, &p.replicas)?, PyTuple::new(py, &p.isr)?);
        let state = (p.leader_epoch, replicas, isr);
        class.call1((
            p.partition,
            p.leader,
            ends.0,
            ends.1,
            ends.2,
            UNKNOWN,
            UNKNOWN,
            state.0,
            state.1,
            state.2,
        ))
    };
    let partitions = described
        .partitions
        .iter()
        .map(partition)
        .collect::<PyResult<Vec<_>>>()?;
    let row = (&*described.name, encode_uuid(&described.topic_id), config, partitions);
    Ok(topic_description_class(py)?.call1(row)?.unbind())
}

/// Kafka: `DescribeConfigsResponse.ConfigSource`.
fn config_source(id: i8) -> &'static str {
    match id {
        1 => "DYNAMIC_TOPIC_CONFIG",
        2 => "DYNAMIC_BROKER_CONFIG",
        3 => "DYNAMIC_DEFAULT_BROKER_CONFIG",
        4 => "STATIC_BROKER_CONFIG",
        5 => "DEFAULT_CONFIG",
        6 => "DYNAMIC_BROKER_LOGGER_CONFIG",
        7 => "DYNAMIC_CLIENT_METRICS_CONFIG",
        8 => "DYNAMIC_GROUP_CONFIG",
        _ => "UNKNOWN",
    }
}

/// Kafka: `DescribeConfigsResponse.ConfigType`.
fn config_type(id: i8) -> &'static str {
    match id {
        1 => "BOOLEAN",
        2 => "STRING",
        3 => "INT",
        4 => "SHORT",
        5 => "LONG",
        6 => "DOUBLE",
        7 => "LIST",
        8 => "CLASS",
        9 => "PASSWORD",
        _ => "UNKNOWN",
    }
}

/// Kafka: `ConsumerGroupState`. Before version 4, ListGroups has no state.
fn state_of(text: &str) -> &'static str {
    match text {
        "Empty" => "Empty",
        "PreparingRebalance" => "PreparingRebalance",
        "CompletingRebalance" => "CompletingRebalance",
        "Stable" => "Stable",
        "Dead" => "Dead",
        "Assigning" => "Assigning",
        "Reconciling" => "Reconciling",
        _ => "Unknown",
    }
}

/// Kafka: `TransactionState`.
fn transaction_state_of(text: &str) -> &'static str {
    match text {
        "Empty" => "Empty",
        "Ongoing" => "Ongoing",
        "PrepareCommit" => "PrepareCommit",
        "PrepareAbort" => "PrepareAbort",
        "CompleteCommit" => "CompleteCommit",
        "CompleteAbort" => "CompleteAbort",
        "PrepareEpochFence" => "PrepareEpochFence",
        "Dead" => "Dead",
        _ => "Unknown",
    }
}

fn transaction_of(known: TransactionState, coordinator: NodeId) -> TransactionDescription {
    let of_topic = |topic: &TopicData| {
        let name = Arc::clone(&topic.topic);
        let partitions = topic.partitions.iter();
        partitions
            .map(move |&partition| TopicPartition::new(Arc::clone(&name), partition))
            .collect::<Vec<_>>()
    };
    let mut partitions: Vec<_> = known.topics.iter().flat_map(of_topic).collect();
    partitions.sort();
    TransactionDescription {
        transactional_id: known.transactional_id,
        coordinator,
        state: transaction_state_of(&known.transaction_state),
        producer_id: known.producer_id,
        producer_epoch: known.producer_epoch,
        timeout_ms: known.transaction_timeout_ms,
        start_ms: known.transaction_start_time_ms,
        partitions,
    }
}

fn group_of(group: DescribedGroup, coordinator: NodeId) -> GroupDescription {
    let members = group.members.into_iter().map(|member| GroupMember {
        member_id: member.member_id,
        group_instance_id: member.group_instance_id,
        client_id: member.client_id,
        client_host: member.client_host,
        metadata: member.member_metadata,
        assignment: member.member_assignment,
    });
    GroupDescription {
        state: state_of(&group.group_state),
        group_id: group.group_id,
        protocol_type: group.protocol_type,
        protocol: group.protocol_data,
        members: members.collect(),
        coordinator,
    }
}

impl From<AdminError> for Failure {
    fn from(error: AdminError) -> Self {
        let message = error.to_string();
        match error {
            AdminError::Refused(code, _) => Self::kafka(code, message),
            AdminError::TimedOut(..) => Self::timeout(message),
            AdminError::Failed(failure) => match failure {
                fletchlog_api::Failure::SslAuthentication(_) => Self::of("ssl-authentication", message),
                fletchlog_api::Failure::SaslAuthentication(_) => Self::of("sasl-authentication", message),
                _ => Self::state(message),
            },
            AdminError::Interrupted => Self::interrupted(),
        }
    }
}
