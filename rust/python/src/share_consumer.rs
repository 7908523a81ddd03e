//! `fletchlog.ShareConsumer`.

use std::sync::{Arc, Mutex, Weak};

use fletchlog_api::Scope;
use fletchlog_broker::Broker;
use fletchlog_client::consumer::{PolledRecords, WakeupHandle};
use fletchlog_client::share_consumer::{AcknowledgeType, AcknowledgementCommit, CommitResult};
use fletchlog_client::{ClientError, ShareConsumer as Engine};
use fletchlog_records::TopicPartition;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyTuple};

use crate::client_arguments::{Client, close_owned, refuse_keywords};
use crate::convert::{
    describe, import_classes, metrics_to_py, optional_int, partition_to_py, some, topics_from_py, unpicklable,
};
use crate::deserializers::Deserializers;
use crate::errors::Failure;
use crate::fault_rules::{rules_from_py, with_rules};
use crate::fork::Exclusive;
use crate::peer::Peer;
use crate::records::{Builder, RecordIterator, Records};
use crate::time::Wait;
use crate::wakeups::{TimedWork, Wakeups};

/// How long a close waits. Kafka: `ConsumerUtils.DEFAULT_CLOSE_TIMEOUT_MS`.
const CLOSE: Wait = Wait(30_000);
/// How long one poll of an iteration waits.
const ITERATION_MS: i64 = 1000;

#[doc = stub!(ShareConsumer)]
#[pyclass(frozen, generic, module = "fletchlog")]
pub struct ShareConsumer {
    inner: Arc<Exclusive<Engine>>,
    wakeup: WakeupHandle,
    on_acknowledgement: Option<Py<PyAny>>,
    /// Records of a poll whose callback raised an exception. The next poll returns them.
    stashed: Arc<Mutex<Option<PolledRecords>>>,
    /// Records of a stashed poll of which an iteration has returned some.
    left: Mutex<Option<RecordIterator>>,
    builder: Builder,
    deserializers: Option<Arc<Deserializers>>,
    default_timeout_ms: i64,
    group: String,
    /// The broker that was opened for this consumer.
    owned: Option<Py<PyAny>>,
    /// The broker, if it is in this process.
    broker: Option<Weak<Broker>>,
}

/// Arguments of the callback, one call a tuple.
type Calls<'py> = Vec<Bound<'py, PyTuple>>;
type Results<'py> = Bound<'py, PyDict>;

impl ShareConsumer {
    fn poll_engine(
        &self,
        py: Python<'_>,
        most: Option<usize>,
        timeout_ms: i64,
    ) -> PyResult<(PolledRecords, Vec<AcknowledgementCommit>)> {
        let stashed = Arc::clone(&self.stashed);
        self.inner.awaited(py, move |consumer, stop| {
            let stashed = stashed.lock().ok().and_then(|mut stashed| stashed.take());
            let polled = match stashed {
                Some(records) => records,
                None => consumer.poll(most, timeout_ms, stop)?,
            };
            Ok::<_, Failure>((polled, consumer.take_acknowledgement_commits()))
        })
    }

    /// Polls, and runs the callback. `most` limits the number of records.
    fn poll_within(&self, py: Python<'_>, most: Option<usize>, timeout_ms: i64) -> PyResult<PolledRecords> {
        let (polled, commits) = self.poll_engine(py, most, timeout_ms)?;
        if let Err(error) = self.run_callback(py, commits) {
            if let Ok(mut stashed) = self.stashed.lock() {
                *stashed = (polled.count() > 0).then_some(polled);
            }
            return Err(error);
        }
        Ok(polled)
    }

    fn run_callback(&self, py: Python<'_>, commits: Vec<AcknowledgementCommit>) -> PyResult<()> {
        let Some(callback) = &self.on_acknowledgement else {
            return Ok(());
        };
        for arguments in calls(py, commits)? {
            callback.call1(py, arguments)?;
        }
        Ok(())
    }

    fn records(&self, polled: PolledRecords) -> Records {
        Records::of_share_group(polled, Arc::clone(&self.builder), self.deserializers.clone())
    }

    fn timeout(&self, given: Option<Wait>) -> i64 {
        given.map_or(self.default_timeout_ms, |wait| wait.0)
    }

    fn commit_engine(
        &self,
        py: Python<'_>,
        timeout_ms: i64,
    ) -> PyResult<(Vec<CommitResult>, Vec<AcknowledgementCommit>)> {
        self.inner.awaited(py, move |consumer, stop| {
            let results = consumer.commit_sync(timeout_ms, stop)?;
            Ok::<_, Failure>((results, consumer.take_acknowledgement_commits()))
        })
    }

    fn end(&self, py: Python<'_>, timeout_ms: i64) -> PyResult<Vec<AcknowledgementCommit>> {
        let commits = self.inner.awaited_if_open(py, move |consumer, stop| {
            consumer.close(timeout_ms, stop)?;
            Ok::<_, Failure>(consumer.take_acknowledgement_commits())
        });
        // The handle is closed, also after an error.
        let closed = self.inner.close(py, |_, _| Ok::<_, Failure>(()));
        commits.and_then(|commits| closed.map(|()| commits.unwrap_or_default()))
    }
}

/// The error of a partition as a Python object; None without one.
fn error_to_py<'py>(py: Python<'py>, result: Result<(), ClientError>) -> Bound<'py, PyAny> {
    match result {
        Ok(()) => py.None().into_bound(py),
        Err(error) => Failure::from(error)
            .into_py(py)
            .into_value(py)
            .into_bound(py)
            .into_any(),
    }
}

/// (partition, offsets, error) of each result.
fn calls(py: Python<'_>, commits: Vec<AcknowledgementCommit>) -> PyResult<Calls<'_>> {
    let one = |commit: AcknowledgementCommit| {
        let offsets = commit.offsets.into_iter().flat_map(|(first, last)| first..=last);
        let offsets = PyList::new(py, offsets.collect::<Vec<i64>>())?;
        let error = error_to_py(py, commit.result);
        PyTuple::new(py, [partition_to_py(py, &commit.tp)?, offsets.into_any(), error])
    };
    commits.into_iter().map(one).collect()
}

fn results_to_py(py: Python<'_>, results: Vec<CommitResult>) -> PyResult<Results<'_>> {
    let dict = PyDict::new(py);
    for (tp, result) in results {
        let (tp, error) = (partition_to_py(py, &tp)?, error_to_py(py, result));
        // Records of one partition may have been acquired from two leaders: an error counts.
        if !error.is_none() || !dict.contains(&tp)? {
            dict.set_item(tp, error)?;
        }
    }
    Ok(dict)
}

fn kind_from_py(name: &str) -> Result<AcknowledgeType, Failure> {
    Ok(match name {
        "accept" => AcknowledgeType::Accept,
        "release" => AcknowledgeType::Release,
        "reject" => AcknowledgeType::Reject,
        "renew" => AcknowledgeType::Renew,
        other => {
            return Err(Failure::argument(format!(
                "a record is acknowledged with accept, release, reject or renew, not {other:?}"
            )));
        }
    })
}

/// Partition, first and last offset of what is acknowledged: a record, (topic, partition, offset), a list of these, or all of `Records`.
fn stretches_from_py(given: &Bound<'_, PyAny>) -> PyResult<Vec<(TopicPartition, i64, i64)>> {
    if let Ok(records) = given.cast::<Records>() {
        return Ok(records.get().stretches());
    }
    if let Ok(list) = given.cast::<PyList>() {
        let each = list.iter().map(|record| stretches_from_py(&record));
        return Ok(each.collect::<PyResult<Vec<_>>>()?.concat());
    }
    let expected = || {
        PyTypeError::new_err(format!(
            "acknowledge takes a record, (topic, partition, offset), a list of records, or Records, got {}",
            describe(given)
        ))
    };
    let tuple = given.cast::<PyTuple>().map_err(|_| expected())?;
    if tuple.len() < 3 {
        return Err(expected());
    }
    let (topic, partition, offset): (String, i32, i64) = tuple.get_slice(0, 3).extract().map_err(|_| expected())?;
    Ok(vec![(TopicPartition::new(topic, partition), offset, offset)])
}

#[pymethods]
impl ShareConsumer {
    #[new]
    #[pyo3(
        signature = (source=None, config=None, *, group=None, topics=None, on_acknowledgement=None, faults=None, key_deserializer=None, value_deserializer=None, **others),
        text_signature = "(source=None, config=None, *, group=None, topics=None, on_acknowledgement=None, faults=None, key_deserializer=None, value_deserializer=None)"
    )]
    #[allow(clippy::too_many_arguments, reason = "keyword arguments of Python")]
    fn new<'py>(
        py: Python<'py>,
        source: Option<&Bound<'py, PyAny>>,
        config: Option<&Bound<'py, PyAny>>,
        group: Option<&str>,
        topics: Option<&Bound<'py, PyAny>>,
        on_acknowledgement: Option<Py<PyAny>>,
        faults: Option<&Bound<'py, PyAny>>,
        key_deserializer: Option<&Bound<'py, PyAny>>,
        value_deserializer: Option<&Bound<'py, PyAny>>,
        others: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Self> {
        import_classes(py)?;
        refuse_keywords("ShareConsumer", Scope::Consumer, others)?;
        let faults = rules_from_py(faults)?;
        let deserializers = Deserializers::from_py(key_deserializer, value_deserializer)?;
        if let Some(callback) = &on_acknowledgement {
            crate::callbacks::ensure_callable(callback.bind(py), "on_acknowledgement(partition, offsets, error)")?;
        }
        let topics = topics.map(topics_from_py).transpose()?;
        let Client { peer, config, owned } = Client::from_py(py, Scope::Consumer, source, config, group)?;
        let broker = match &peer {
            Peer::Broker(engine) => Some(Arc::downgrade(engine)),
            Peer::Cluster(..) => None,
        };
        let (default_timeout_ms, group) = (
            i64::from(config.int("default.api.timeout.ms")),
            config.get("group.id").unwrap_or_default().to_owned(),
        );
        let listens = on_acknowledgement.is_some();
        let engine = crate::gate::gate(py, |stop| {
            let clock = peer.clock();
            let transport = with_rules(peer.connect(&config, &clock)?, faults, &clock, &config)?;
            let mut engine = Engine::new(&config, transport, clock)?;
            engine.listen(listens);
            if let Some(topics) = &topics {
                engine.subscribe(topics, stop)?;
            }
            Ok(engine)
        })?;
        let wakeup = engine.wakeup_handle();
        Ok(Self {
            inner: Arc::new(Exclusive::new("share consumer", engine)),
            wakeup,
            on_acknowledgement,
            stashed: Arc::default(),
            left: Mutex::default(),
            builder: Builder::default(),
            deserializers,
            default_timeout_ms,
            group,
            owned,
            broker,
        })
    }

    #[doc = stub!(ShareConsumer.subscribe)]
    fn subscribe(&self, py: Python<'_>, topics: &Bound<'_, PyAny>) -> PyResult<()> {
        let topics = topics_from_py(topics)?;
        self.inner
            .awaited(py, move |consumer, stop| consumer.subscribe(&topics, stop))
    }

    #[doc = stub!(ShareConsumer.unsubscribe)]
    fn unsubscribe(&self, py: Python<'_>) -> PyResult<()> {
        self.inner.awaited(py, |consumer, stop| consumer.unsubscribe(stop))
    }

    #[doc = stub!(ShareConsumer.subscription)]
    fn subscription(&self, py: Python<'_>) -> PyResult<Vec<String>> {
        let topics = self
            .inner
            .call(py, |consumer, _| Ok::<_, Failure>(consumer.subscription()))?;
        Ok(topics.iter().map(ToString::to_string).collect())
    }

    #[doc = stub!(ShareConsumer.poll)]
    #[pyo3(signature = (timeout_ms=Wait(1000)), text_signature = "($self, timeout_ms=1000)")]
    fn poll(&self, py: Python<'_>, timeout_ms: Wait) -> PyResult<Records> {
        Ok(self.records(self.poll_within(py, None, timeout_ms.0)?))
    }

    #[doc = stub!(ShareConsumer.__iter__)]
    fn __iter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    #[doc = stub!(ShareConsumer.__next__)]
    fn __next__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        loop {
            // A stashed poll may have more than one record; the rest is returned by the next calls.
            let left = self.left.lock().ok().and_then(|mut left| left.take());
            let rows = match left {
                Some(rows) => rows,
                None => self.records(self.poll_within(py, Some(1), ITERATION_MS)?).rows(),
            };
            let record = rows.next(py).transpose();
            if !rows.is_at_end()
                && let Ok(mut left) = self.left.lock()
            {
                *left = Some(rows);
            }
            if let Some(record) = record {
                return record;
            }
        }
    }

    #[doc = stub!(ShareConsumer.acknowledge)]
    #[pyo3(signature = (records, kind="accept"))]
    fn acknowledge(&self, py: Python<'_>, records: &Bound<'_, PyAny>, kind: &str) -> PyResult<()> {
        let kind = kind_from_py(kind)?;
        let stretches = stretches_from_py(records)?;
        self.inner.call(py, |consumer, _| {
            stretches
                .iter()
                .try_for_each(|(tp, first, last)| consumer.acknowledge(tp, *first, *last, kind))
        })
    }

    #[doc = stub!(ShareConsumer.commit)]
    #[pyo3(signature = (timeout_ms=None))]
    fn commit<'py>(&self, py: Python<'py>, timeout_ms: Option<Wait>) -> PyResult<Results<'py>> {
        let (results, commits) = self.commit_engine(py, self.timeout(timeout_ms))?;
        self.run_callback(py, commits)?;
        results_to_py(py, results)
    }

    #[doc = stub!(ShareConsumer.commit_async)]
    fn commit_async(&self, py: Python<'_>) -> PyResult<()> {
        self.inner.call(py, |consumer, _| consumer.commit_async())
    }

    #[doc = stub!(ShareConsumer.acquisition_lock_timeout)]
    #[getter]
    fn acquisition_lock_timeout(&self, py: Python<'_>) -> PyResult<Option<i32>> {
        self.inner.call(py, |consumer, _| {
            Ok::<_, Failure>(consumer.acquisition_lock_timeout_ms())
        })
    }

    #[doc = stub!(ShareConsumer.metrics)]
    fn metrics<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let metrics = self
            .inner
            .call(py, |consumer, _| Ok::<_, Failure>(consumer.metrics()))?;
        metrics_to_py(py, metrics)
    }

    #[doc = stub!(ShareConsumer._poll)]
    fn _poll<'py>(
        &self,
        py: Python<'py>,
        #[pyo3(from_py_with = optional_int)] most: Option<usize>,
        timeout_ms: Wait,
    ) -> PyResult<(Records, Calls<'py>)> {
        let (polled, commits) = self.poll_engine(py, most, timeout_ms.0)?;
        Ok((self.records(polled), calls(py, commits)?))
    }

    #[doc = stub!(ShareConsumer._hand_back)]
    fn _hand_back(&self, records: &Bound<'_, Records>) {
        if let Ok(mut stashed) = self.stashed.lock() {
            *stashed = records.get().give_back();
        }
    }

    #[doc = stub!(ShareConsumer._commit)]
    fn _commit<'py>(&self, py: Python<'py>, timeout_ms: Option<Wait>) -> PyResult<(Results<'py>, Calls<'py>)> {
        let (results, commits) = self.commit_engine(py, self.timeout(timeout_ms))?;
        Ok((results_to_py(py, results)?, calls(py, commits)?))
    }

    #[doc = stub!(ShareConsumer._close)]
    fn _close<'py>(&self, py: Python<'py>, timeout_ms: Wait) -> PyResult<Calls<'py>> {
        let commits = self.inner.awaited_if_open(py, move |consumer, stop| {
            consumer.close(timeout_ms.0, stop)?;
            Ok::<_, Failure>(consumer.take_acknowledgement_commits())
        })?;
        calls(py, commits.unwrap_or_default())
    }

    #[doc = stub!(ShareConsumer._release)]
    fn _release(&self, py: Python<'_>) -> PyResult<()> {
        self.inner.close(py, |_, _| Ok::<_, Failure>(()))?;
        close_owned(py, self.owned.as_ref())
    }

    #[doc = stub!(ShareConsumer._watch)]
    fn _watch(&self, py: Python<'_>, wakeups: &Bound<'_, Wakeups>, token: u64) -> PyResult<Option<i32>> {
        let waker = wakeups.get().waker(token);
        let watched = self
            .inner
            .call_if_open(py, |consumer, _| Ok::<_, Failure>(consumer.watch(waker)))?;
        Ok(watched.flatten())
    }

    #[doc = stub!(ShareConsumer._timed_work)]
    fn _timed_work(&self) -> Option<TimedWork> {
        self.broker.as_ref().and_then(Weak::upgrade).map(TimedWork::new)
    }

    #[doc = stub!(ShareConsumer.wakeup)]
    fn wakeup(&self) {
        self.wakeup.wake();
    }

    #[doc = stub!(ShareConsumer.close)]
    #[pyo3(signature = (timeout_ms=CLOSE), text_signature = "($self, timeout_ms=30000)")]
    fn close(&self, py: Python<'_>, timeout_ms: Wait) -> PyResult<()> {
        let ended = self.end(py, timeout_ms.0);
        let called_back = ended.and_then(|commits| self.run_callback(py, commits));
        called_back.and(close_owned(py, self.owned.as_ref()))
    }

    fn __repr__(&self) -> String {
        let state = self.inner.peek(|consumer| match consumer.subscription() {
            topics if topics.is_empty() => "has no subscription".to_owned(),
            topics => format!("subscribed to {}", some(&topics)),
        });
        format!("<fletchlog.ShareConsumer group.id={}: {state}>", self.group)
    }

    fn __enter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, py: Python<'_>, _exception: &Bound<'_, PyTuple>) -> PyResult<()> {
        self.close(py, CLOSE)
    }

    fn __reduce__(&self) -> PyResult<()> {
        Err(unpicklable(
            "ShareConsumer",
            "the address of the cluster and the configuration",
        ))
    }
}
