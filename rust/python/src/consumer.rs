//! `fletchlog.Consumer`.

use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};

use fletchlog_api::{Config, ErrorCode, Scope};
use fletchlog_broker::Broker;
use fletchlog_client::consumer::{PolledRecords, RebalanceEvent, Until, WakeupHandle};
use fletchlog_client::{ClientError, Consumer as Engine};
use fletchlog_records::TopicPartition;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyString};

use crate::callbacks::ensure_callable;
use crate::client_arguments::{Client, close_owned, refuse_keywords};
use crate::convert::{
    describe, group_metadata_to_py, import_classes, is_partition, long, metrics_to_py, offset_and_metadata_to_py,
    offset_from_py, offsets_from_py, optional_int, partition_from_py, partition_to_py, partitions_from_py,
    partitions_to_py, some, topics_from_py, unpicklable,
};
use crate::deserializers::Deserializers;
use crate::errors::Failure;
use crate::fault_rules::{rules_from_py, with_rules};
use crate::fork::{Exclusive, Stop};
use crate::offsets::{found_to_py, offsets_to_py, times_from_py};
use crate::peer::Peer;
use crate::read_to_end::RecordsToEnd;
use crate::records::{Builder, RecordIterator, Records};
use crate::table::Table;
use crate::time::{TimeBound, Wait};
use crate::wakeups::{TimedWork, Wakeups};

/// How long a close waits. Kafka: `Consumer.DEFAULT_CLOSE_TIMEOUT_MS`.
const CLOSE: Wait = Wait(30_000);
/// How long one poll of a consumer that joins its group waits.
const JOIN_MS: i64 = 100;
/// How long one poll of an iteration waits.
const ITERATION_MS: i64 = 1000;

/// The rebalance callbacks of `subscribe`.
#[derive(Default)]
struct Listener {
    assigned: Option<Py<PyAny>>,
    revoked: Option<Py<PyAny>>,
    lost: Option<Py<PyAny>>,
}

impl Listener {
    /// The callback for an event, and the event's partitions.
    fn callback<'a>(&self, py: Python<'_>, event: &'a RebalanceEvent) -> (Option<Py<PyAny>>, &'a [TopicPartition]) {
        let (callback, partitions) = match event {
            RebalanceEvent::Assigned(partitions) => (&self.assigned, partitions),
            RebalanceEvent::Revoked(partitions) => (&self.revoked, partitions),
            // Kafka: ConsumerRebalanceListener#onPartitionsLost calls onPartitionsRevoked unless it is overridden
            RebalanceEvent::Lost(partitions) => {
                (if self.lost.is_some() { &self.lost } else { &self.revoked }, partitions)
            }
        };
        (callback.as_ref().map(|c| c.clone_ref(py)), partitions)
    }
}

#[doc = stub!(Consumer)]
#[pyclass(frozen, generic, module = "fletchlog")]
pub struct Consumer {
    inner: Arc<Exclusive<Engine>>,
    wakeup: WakeupHandle,
    listener: Mutex<Listener>,
    /// Records of a poll whose rebalance callback raised an exception. The next poll returns them, so that nothing is lost.
    stashed: Arc<Mutex<Option<PolledRecords>>>,
    /// Records of a stashed poll of which an iteration has returned some.
    left: Mutex<Option<RecordIterator>>,
    builder: Builder,
    deserializers: Option<Arc<Deserializers>>,
    /// `default.api.timeout.ms`
    default_timeout_ms: i64,
    /// `fletchlog.trace` is on.
    traced: bool,
    config: Config,
    /// The broker is read-only: its refusals then have their own error class.
    read_only: bool,
    /// The broker that was opened for this consumer.
    owned: Option<Py<PyAny>>,
    /// The broker, if it is in this process.
    broker: Option<Weak<Broker>>,
}

type Offsets<'py> = PyResult<Bound<'py, PyDict>>;
/// Callbacks and their partitions, in order.
type Calls<'py> = Vec<(Py<PyAny>, Bound<'py, PyList>)>;

impl Consumer {
    /// Runs the rebalance callbacks in order, outside the engine, because they may call this consumer.
    fn run_callbacks(&self, py: Python<'_>, events: &[RebalanceEvent]) -> PyResult<()> {
        for event in events {
            let (callback, partitions) = match self.listener.lock() {
                Ok(listener) => listener.callback(py, event),
                Err(_) => return Ok(()),
            };
            if let Some(callback) = callback {
                callback.call1(py, (partitions_to_py(py, partitions)?,))?;
            }
        }
        Ok(())
    }

    /// What a poll returned, for Python.
    pub fn records(&self, polled: PolledRecords) -> Records {
        Records::new(polled, Arc::clone(&self.builder), self.deserializers.clone())
    }

    /// How long a call may take. Kafka: `KafkaConsumer`, whose methods without a timeout use `default.api.timeout.ms`.
    fn timeout(&self, given: Option<Wait>) -> i64 {
        given.map_or(self.default_timeout_ms, |wait| wait.0)
    }

    /// Polls, without records at or beyond these ends.
    pub fn poll_to(&self, py: Python<'_>, until: &Until, timeout_ms: i64) -> PyResult<PolledRecords> {
        self.poll_within(py, None, Some(until), timeout_ms)
    }

    /// The partitions that are not read to these ends.
    pub fn behind(&self, py: Python<'_>, until: &Until) -> PyResult<Vec<TopicPartition>> {
        self.inner
            .call(py, |consumer, _| Ok::<_, Failure>(consumer.behind(until)))
    }

    /// The ends of the assigned partitions. For a subscription it waits until the group assigns some; what a poll returns meanwhile is
    /// returned by the next one.
    fn ends_of_assigned(&self, py: Python<'_>) -> PyResult<Until> {
        let limit_ms = self.default_timeout_ms;
        let deadline = Instant::now() + Duration::from_millis(limit_ms.unsigned_abs());
        let assigned = || {
            self.inner
                .call(py, |consumer, _| Ok::<_, Failure>(consumer.assignment()))
        };
        while assigned()?.is_empty() {
            let polled = self.poll_at_most(py, None, JOIN_MS)?;
            if polled.count() > 0
                && let Ok(mut stashed) = self.stashed.lock()
            {
                *stashed = Some(polled);
            }
            if Instant::now() >= deadline && assigned()?.is_empty() {
                let text = format!("the group has assigned no partition within {limit_ms} ms (default.api.timeout.ms)");
                return Err(Failure::timeout(text).into());
            }
        }
        self.inner.call(py, |consumer, stop| {
            let partitions = consumer.assignment();
            let ends = consumer.end_offsets(&partitions, limit_ms, stop)?;
            Ok::<_, Failure>(ends.into_iter().collect())
        })
    }

    /// One poll of the engine, or what an earlier one left; and the events for the rebalance callbacks. `most` replaces max.poll.records.
    fn poll_engine(
        &self,
        py: Python<'_>,
        most: Option<usize>,
        timeout_ms: i64,
    ) -> PyResult<(PolledRecords, Vec<RebalanceEvent>)> {
        let stashed = Arc::clone(&self.stashed);
        self.inner.awaited(py, move |consumer, stop| {
            let stashed = stashed.lock().ok().and_then(|mut stashed| stashed.take());
            let polled = match stashed {
                Some(records) => records,
                None => consumer.poll_at_most(most, timeout_ms, stop)?,
            };
            Ok::<_, Failure>((polled, consumer.take_rebalance_events()))
        })
    }

    /// Polls and runs the rebalance callbacks. `most` replaces max.poll.records.
    fn poll_at_most(&self, py: Python<'_>, most: Option<usize>, timeout_ms: i64) -> PyResult<PolledRecords> {
        self.poll_within(py, most, None, timeout_ms)
    }

    fn poll_within(
        &self,
        py: Python<'_>,
        most: Option<usize>,
        until: Option<&Until>,
        timeout_ms: i64,
    ) -> PyResult<PolledRecords> {
        let deadline = Instant::now() + Duration::from_millis(timeout_ms.unsigned_abs());
        loop {
            let left =
                i64::try_from(deadline.saturating_duration_since(Instant::now()).as_millis()).unwrap_or(i64::MAX);
            let (polled, events) = match until {
                None => self.poll_engine(py, most, left)?,
                Some(until) => self.inner.call(py, |consumer, stop| {
                    let stashed = self.stashed.lock().ok().and_then(|mut stashed| stashed.take());
                    let polled = match stashed {
                        Some(records) => consumer.cut(until, records)?,
                        None => consumer.poll_until(until, most, left, stop)?,
                    };
                    Ok::<_, Failure>((polled, consumer.take_rebalance_events()))
                })?,
            };
            if let Err(error) = self.run_callbacks(py, &events) {
                if let Ok(mut stashed) = self.stashed.lock() {
                    *stashed = (polled.count() > 0).then_some(polled);
                }
                return Err(error);
            }
            // the engine returns for events before it has read from the new partitions: poll again
            if events.is_empty() || polled.count() > 0 || left == 0 {
                return Ok(polled);
            }
        }
    }

    /// The rebalance callbacks for these events, each with its partitions, for a caller that runs them itself.
    fn callbacks<'py>(&self, py: Python<'py>, events: &[RebalanceEvent]) -> PyResult<Calls<'py>> {
        let mut all = Vec::new();
        for event in events {
            let Ok(listener) = self.listener.lock() else { break };
            let (callback, partitions) = listener.callback(py, event);
            drop(listener);
            if let Some(callback) = callback {
                all.push((callback, partitions_to_py(py, partitions)?));
            }
        }
        Ok(all)
    }

    /// Offsets by partition, as a dict.
    fn offsets<'py>(
        &self,
        py: Python<'py>,
        partitions: &Bound<'py, PyAny>,
        timeout_ms: Option<Wait>,
        f: impl FnOnce(&mut Engine, &[TopicPartition], i64, Stop<'_>) -> Result<Vec<(TopicPartition, i64)>, Failure>
        + Send
        + 'static,
    ) -> Offsets<'py> {
        let timeout_ms = self.timeout(timeout_ms);
        let partitions = partitions_from_py(partitions)?;
        let found = self
            .inner
            .awaited(py, move |consumer, stop| f(consumer, &partitions, timeout_ms, stop))?;
        offsets_to_py(py, found)
    }
}

/// Takes `{tp: offset}`.
fn until_from_py(until: &Bound<'_, PyAny>) -> PyResult<Until> {
    let offsets = offsets_from_py(until)?;
    Ok(offsets.into_iter().map(|(tp, end)| (tp, end.offset)).collect())
}

#[pymethods]
impl Consumer {
    #[new]
    #[pyo3(
        signature = (source=None, config=None, *, group=None, topics=None, faults=None, key_deserializer=None, value_deserializer=None, **others),
        text_signature = "(source=None, config=None, *, group=None, topics=None, faults=None, key_deserializer=None, value_deserializer=None)"
    )]
    #[allow(clippy::too_many_arguments, reason = "keyword arguments of Python")]
    fn new<'py>(
        py: Python<'py>,
        source: Option<&Bound<'py, PyAny>>,
        config: Option<&Bound<'py, PyAny>>,
        group: Option<&str>,
        topics: Option<&Bound<'py, PyAny>>,
        faults: Option<&Bound<'py, PyAny>>,
        key_deserializer: Option<&Bound<'py, PyAny>>,
        value_deserializer: Option<&Bound<'py, PyAny>>,
        others: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Self> {
        import_classes(py)?;
        refuse_keywords("Consumer", Scope::Consumer, others)?;
        let topics = topics.map(topics_from_py).transpose()?;
        let faults = rules_from_py(faults)?;
        let deserializers = Deserializers::from_py(key_deserializer, value_deserializer)?;
        let Client { peer, config, owned } = Client::from_py(py, Scope::Consumer, source, config, group)?;
        let traced = config.boolean("fletchlog.trace");
        let read_only = peer.is_read_only();
        let broker = match &peer {
            Peer::Broker(engine) => Some(Arc::downgrade(engine)),
            Peer::Cluster(..) => None,
        };
        let given = config.clone();
        let engine = crate::gate::gate(py, |_| {
            let clock = peer.clock();
            let transport = with_rules(peer.connect(&given, &clock)?, faults, &clock, &given)?;
            let mut engine = Engine::new(given, transport, clock)?;
            if let Some(topics) = topics.filter(|topics| !topics.is_empty()) {
                engine.subscribe(&topics)?;
            }
            Ok(engine)
        })?;
        let wakeup = engine.wakeup_handle();
        Ok(Self {
            inner: Arc::new(Exclusive::new("consumer", engine)),
            wakeup,
            listener: Mutex::default(),
            stashed: Arc::default(),
            left: Mutex::default(),
            builder: Builder::default(),
            deserializers,
            default_timeout_ms: i64::from(config.int("default.api.timeout.ms")),
            traced,
            config,
            read_only,
            owned,
            broker,
        })
    }

    #[doc = stub!(Consumer.subscribe)]
    #[pyo3(signature = (topics=None, *, pattern=None, on_assigned=None, on_revoked=None, on_lost=None))]
    fn subscribe(
        &self,
        py: Python<'_>,
        topics: Option<&Bound<'_, PyAny>>,
        pattern: Option<String>,
        on_assigned: Option<Py<PyAny>>,
        on_revoked: Option<Py<PyAny>>,
        on_lost: Option<Py<PyAny>>,
    ) -> PyResult<()> {
        let callbacks = [
            (&on_assigned, "on_assigned(partitions)"),
            (&on_revoked, "on_revoked(partitions)"),
            (&on_lost, "on_lost(partitions)"),
        ];
        for (callback, so) in callbacks {
            if let Some(callback) = callback {
                ensure_callable(callback.bind(py), so)?;
            }
        }
        let listens = callbacks.iter().any(|(callback, _)| callback.is_some());
        match (topics, pattern) {
            (Some(topics), None) => {
                let topics = topics_from_py(topics)?;
                if topics.is_empty() {
                    return self.unsubscribe(py);
                }
                self.inner.call(py, |consumer, _| {
                    consumer.stop_for_rebalance(listens);
                    consumer.subscribe(&topics)
                })?;
            }
            (None, Some(pattern)) => self.inner.call(py, |consumer, _| {
                consumer.stop_for_rebalance(listens);
                consumer.subscribe_pattern(&pattern)
            })?,
            _ => {
                return Err(
                    Failure::argument("subscribe takes either a list of topics or pattern=, one of the two").into(),
                );
            }
        }
        let listener = Listener {
            assigned: on_assigned,
            revoked: on_revoked,
            lost: on_lost,
        };
        // dropping the former callbacks may run Python code, so the lock is released first
        let former = self
            .listener
            .lock()
            .map(|mut slot| std::mem::replace(&mut *slot, listener));
        drop(former);
        Ok(())
    }

    #[doc = stub!(Consumer.assign)]
    fn assign(&self, py: Python<'_>, partitions: &Bound<'_, PyAny>) -> PyResult<()> {
        let partitions = partitions_from_py(partitions)?;
        self.inner.call(py, |consumer, _| consumer.assign(&partitions))
    }

    #[doc = stub!(Consumer.unsubscribe)]
    fn unsubscribe(&self, py: Python<'_>) -> PyResult<()> {
        let events = self
            .inner
            .call(py, |consumer, _| Ok::<_, Failure>(consumer.leaving_events()))?;
        let called_back = self.run_callbacks(py, &events);
        self._end_unsubscribe(py)?;
        called_back
    }

    #[doc = stub!(Consumer.poll)]
    #[pyo3(signature = (timeout_ms=Wait(1000), *, until=None), text_signature = "($self, timeout_ms=1000, *, until=None)")]
    fn poll(&self, py: Python<'_>, timeout_ms: Wait, until: Option<&Bound<'_, PyAny>>) -> PyResult<Records> {
        let until = until.map(until_from_py).transpose()?;
        let polled = self.poll_within(py, None, until.as_ref(), timeout_ms.0)?;
        Ok(self.records(polled))
    }

    #[doc = stub!(Consumer.read_to_end)]
    #[pyo3(signature = (timeout_ms=None))]
    fn read_to_end(slf: &Bound<'_, Self>, timeout_ms: Option<Wait>) -> PyResult<RecordsToEnd> {
        let this = slf.get();
        let ends = this.ends_of_assigned(slf.py())?;
        Ok(RecordsToEnd::new(slf.clone().unbind(), ends, this.timeout(timeout_ms)))
    }

    #[doc = stub!(Consumer.__iter__)]
    fn __iter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    #[doc = stub!(Consumer.__next__)]
    fn __next__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        loop {
            // A stashed poll may have more than one record; the rest is returned by the next calls.
            let left = self.left.lock().ok().and_then(|mut left| left.take());
            let rows = match left {
                Some(rows) => rows,
                None => self.records(self.poll_at_most(py, Some(1), ITERATION_MS)?).rows(),
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

    #[doc = stub!(Consumer.assignment)]
    fn assignment<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let partitions = self
            .inner
            .call(py, |consumer, _| Ok::<_, Failure>(consumer.assignment()))?;
        partitions_to_py(py, &partitions)
    }

    #[doc = stub!(Consumer.subscription)]
    fn subscription(&self, py: Python<'_>) -> PyResult<Vec<String>> {
        let topics = self
            .inner
            .call(py, |consumer, _| Ok::<_, Failure>(consumer.subscription()))?;
        Ok(topics.iter().map(ToString::to_string).collect())
    }

    #[doc = stub!(Consumer.seek)]
    fn seek(&self, py: Python<'_>, partition: &Bound<'_, PyAny>, offset: &Bound<'_, PyAny>) -> PyResult<()> {
        let tp = partition_from_py(partition)?;
        if let Ok(offset) = long(offset) {
            return self.inner.call(py, |consumer, _| consumer.seek(&tp, offset));
        }
        if let Some(TimeBound(ms)) = TimeBound::of_datetime(offset)? {
            let timeout_ms = self.default_timeout_ms;
            return self.inner.awaited(py, move |consumer, stop| {
                let found = consumer.offsets_for_times(&[(tp.clone(), ms)], timeout_ms, stop)?;
                match found.into_iter().find_map(|(_, found)| found) {
                    Some(found) => consumer.seek(&tp, found.offset),
                    None => consumer.seek_to_end(std::slice::from_ref(&tp)),
                }
            });
        }
        if offset.is_instance_of::<PyString>() {
            let text = format!(
                "{tp}: seek takes an offset, an OffsetAndMetadata or a datetime, got {}; for the ends of the log there are seek_to_beginning and seek_to_end",
                describe(offset)
            );
            return Err(PyTypeError::new_err(text));
        }
        let committed = offset_from_py(&tp, offset)?;
        self.inner
            .call(py, |consumer, _| consumer.seek_committed(&tp, &committed))
    }

    #[doc = stub!(Consumer.seek_to_beginning)]
    #[pyo3(signature = (partitions=None))]
    fn seek_to_beginning(&self, py: Python<'_>, partitions: Option<&Bound<'_, PyAny>>) -> PyResult<()> {
        let partitions = partitions.map(partitions_from_py).transpose()?.unwrap_or_default();
        self.inner
            .call(py, |consumer, _| consumer.seek_to_beginning(&partitions))
    }

    #[doc = stub!(Consumer.seek_to_end)]
    #[pyo3(signature = (partitions=None))]
    fn seek_to_end(&self, py: Python<'_>, partitions: Option<&Bound<'_, PyAny>>) -> PyResult<()> {
        let partitions = partitions.map(partitions_from_py).transpose()?.unwrap_or_default();
        self.inner.call(py, |consumer, _| consumer.seek_to_end(&partitions))
    }

    #[doc = stub!(Consumer.position)]
    #[pyo3(signature = (partition, timeout_ms=None))]
    fn position(&self, py: Python<'_>, partition: &Bound<'_, PyAny>, timeout_ms: Option<Wait>) -> PyResult<i64> {
        let tp = partition_from_py(partition)?;
        let timeout_ms = self.timeout(timeout_ms);
        self.inner
            .awaited(py, move |consumer, stop| consumer.position(&tp, timeout_ms, stop))
    }

    #[doc = stub!(Consumer.offsets_for_times)]
    #[pyo3(signature = (times, timeout_ms=None))]
    fn offsets_for_times<'py>(
        &self,
        py: Python<'py>,
        times: &Bound<'py, PyAny>,
        timeout_ms: Option<Wait>,
    ) -> Offsets<'py> {
        let timeout_ms = self.timeout(timeout_ms);
        let times = times_from_py(times)?;
        let found = self.inner.awaited(py, move |consumer, stop| {
            consumer.offsets_for_times(&times, timeout_ms, stop)
        })?;
        found_to_py(py, found)
    }

    #[doc = stub!(Consumer.beginning_offsets)]
    #[pyo3(signature = (partitions, timeout_ms=None))]
    fn beginning_offsets<'py>(
        &self,
        py: Python<'py>,
        partitions: &Bound<'py, PyAny>,
        timeout_ms: Option<Wait>,
    ) -> Offsets<'py> {
        self.offsets(py, partitions, timeout_ms, |consumer, tps, ms, stop| {
            Ok(consumer.beginning_offsets(tps, ms, stop)?)
        })
    }

    #[doc = stub!(Consumer.end_offsets)]
    #[pyo3(signature = (partitions, timeout_ms=None))]
    fn end_offsets<'py>(
        &self,
        py: Python<'py>,
        partitions: &Bound<'py, PyAny>,
        timeout_ms: Option<Wait>,
    ) -> Offsets<'py> {
        self.offsets(py, partitions, timeout_ms, |consumer, tps, ms, stop| {
            Ok(consumer.end_offsets(tps, ms, stop)?)
        })
    }

    #[doc = stub!(Consumer.commit)]
    #[pyo3(signature = (offsets=None, timeout_ms=None))]
    fn commit(&self, py: Python<'_>, offsets: Option<&Bound<'_, PyAny>>, timeout_ms: Option<Wait>) -> PyResult<()> {
        let timeout_ms = self.timeout(timeout_ms);
        let offsets = offsets.map(offsets_from_py).transpose()?;
        let read_only = self.read_only;
        self.inner.awaited(py, move |consumer, stop| {
            consumer
                .commit(offsets.as_deref(), timeout_ms, stop)
                .map_err(|error| match error {
                    ClientError::Kafka {
                        code: ErrorCode::POLICY_VIOLATION,
                        message,
                    } if read_only => Failure::read_only(message),
                    other => other.into(),
                })
        })
    }

    #[doc = stub!(Consumer.committed)]
    #[pyo3(signature = (partitions, timeout_ms=None))]
    fn committed<'py>(
        &self,
        py: Python<'py>,
        partitions: &Bound<'py, PyAny>,
        timeout_ms: Option<Wait>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let timeout_ms = self.timeout(timeout_ms);
        let single = is_partition(partitions);
        let partitions = partitions_from_py(partitions)?;
        let found = self.inner.awaited(py, move |consumer, stop| {
            consumer.committed(&partitions, timeout_ms, stop)
        })?;
        let dict = PyDict::new(py);
        for (tp, offset) in found {
            let offset = offset
                .map(|offset| offset_and_metadata_to_py(py, &offset))
                .transpose()?;
            if single {
                return Ok(offset.unwrap_or_else(|| py.None().into_bound(py)));
            }
            dict.set_item(partition_to_py(py, &tp)?, offset)?;
        }
        Ok(if single {
            py.None().into_bound(py)
        } else {
            dict.into_any()
        })
    }

    #[doc = stub!(Consumer.pause)]
    fn pause(&self, py: Python<'_>, partitions: &Bound<'_, PyAny>) -> PyResult<()> {
        let partitions = partitions_from_py(partitions)?;
        self.inner.call(py, |consumer, _| consumer.pause(&partitions))
    }

    #[doc = stub!(Consumer.resume)]
    fn resume(&self, py: Python<'_>, partitions: &Bound<'_, PyAny>) -> PyResult<()> {
        let partitions = partitions_from_py(partitions)?;
        self.inner.call(py, |consumer, _| consumer.resume(&partitions))
    }

    #[doc = stub!(Consumer.paused)]
    fn paused<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let partitions = self.inner.call(py, |consumer, _| Ok::<_, Failure>(consumer.paused()))?;
        partitions_to_py(py, &partitions)
    }

    #[doc = stub!(Consumer.late_records)]
    #[getter]
    fn late_records(&self, py: Python<'_>) -> PyResult<u64> {
        self.inner
            .call(py, |consumer, _| Ok::<_, Failure>(consumer.late_records()))
    }

    #[doc = stub!(Consumer.metrics)]
    fn metrics<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let metrics = self
            .inner
            .call(py, |consumer, _| Ok::<_, Failure>(consumer.metrics()))?;
        metrics_to_py(py, metrics)
    }

    #[doc = stub!(Consumer.group_metadata)]
    fn group_metadata<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let group = self
            .inner
            .call(py, |consumer, _| Ok::<_, Failure>(consumer.group_metadata()))?;
        group.map(|group| group_metadata_to_py(py, &group)).transpose()
    }

    #[doc = stub!(Consumer.lag)]
    fn lag<'py>(&self, py: Python<'py>) -> Offsets<'py> {
        let lag = self
            .inner
            .call(py, |consumer, _| Ok::<_, Failure>(consumer.end_offset_lag()))?;
        let dict = PyDict::new(py);
        for (tp, records) in lag {
            dict.set_item(partition_to_py(py, &tp)?, records)?;
        }
        Ok(dict)
    }

    #[doc = stub!(Consumer.trace)]
    fn trace(&self, py: Python<'_>) -> PyResult<Table> {
        crate::trace::ensure_on(self.traced, "consumer")?;
        self.inner
            .call(py, |consumer, _| crate::trace::consumer_table(consumer.trace()))
            .map(|table| crate::trace::with_config(table, "consumer", &self.config))
    }

    #[doc = stub!(Consumer._begin_from_committed)]
    fn _begin_from_committed(&self, py: Python<'_>, offsets: &Bound<'_, PyAny>) -> PyResult<()> {
        let offsets = offsets_from_py(offsets)?;
        self.inner.call(py, |consumer, _| {
            consumer.begin_from_committed(offsets);
            Ok::<_, Failure>(())
        })
    }

    #[doc = stub!(Consumer.explain)]
    fn explain<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        crate::trace::ensure_on(slf.get().traced, "consumer")?;
        crate::interop::call(slf.as_any(), "explain", None)
    }

    #[doc = stub!(Consumer._poll)]
    fn _poll<'py>(
        &self,
        py: Python<'py>,
        #[pyo3(from_py_with = optional_int)] most: Option<usize>,
        timeout_ms: Wait,
    ) -> PyResult<(Records, Calls<'py>)> {
        let (polled, events) = self.poll_engine(py, most, timeout_ms.0)?;
        Ok((self.records(polled), self.callbacks(py, &events)?))
    }

    #[doc = stub!(Consumer._hand_back)]
    fn _hand_back(&self, records: &Bound<'_, Records>) {
        if let Ok(mut stashed) = self.stashed.lock() {
            *stashed = records.get().give_back();
        }
    }

    #[doc = stub!(Consumer._begin_unsubscribe)]
    fn _begin_unsubscribe<'py>(&self, py: Python<'py>) -> PyResult<Calls<'py>> {
        let events = self
            .inner
            .call(py, |consumer, _| Ok::<_, Failure>(consumer.leaving_events()))?;
        self.callbacks(py, &events)
    }

    #[doc = stub!(Consumer._end_unsubscribe)]
    fn _end_unsubscribe(&self, py: Python<'_>) -> PyResult<()> {
        self.inner.call(py, |consumer, _| {
            consumer.unsubscribe()?;
            consumer.take_rebalance_events(); // their callbacks have run
            Ok::<_, Failure>(())
        })
    }

    #[doc = stub!(Consumer._begin_close)]
    fn _begin_close<'py>(&self, py: Python<'py>, timeout_ms: Wait) -> PyResult<Calls<'py>> {
        let events = self
            .inner
            .awaited_if_open(py, move |consumer, stop| consumer.prepare_close(timeout_ms.0, stop))?;
        self.callbacks(py, &events.unwrap_or_default())
    }

    #[doc = stub!(Consumer._end_close)]
    fn _end_close(&self, py: Python<'_>, timeout_ms: Wait) -> PyResult<()> {
        self.inner
            .close(py, move |mut consumer, stop| consumer.close(timeout_ms.0, stop))
    }

    #[doc = stub!(Consumer._release)]
    fn _release(&self, py: Python<'_>) -> PyResult<()> {
        close_owned(py, self.owned.as_ref())
    }

    #[doc = stub!(Consumer._watch)]
    fn _watch(&self, py: Python<'_>, wakeups: &Bound<'_, Wakeups>, token: u64) -> PyResult<Option<i32>> {
        let waker = wakeups.get().waker(token);
        let watched = self
            .inner
            .call_if_open(py, |consumer, _| Ok::<_, Failure>(consumer.watch(waker)))?;
        Ok(watched.flatten())
    }

    #[doc = stub!(Consumer._timed_work)]
    fn _timed_work(&self) -> Option<TimedWork> {
        self.broker.as_ref().and_then(Weak::upgrade).map(TimedWork::new)
    }

    #[doc = stub!(Consumer.wakeup)]
    fn wakeup(&self) {
        self.wakeup.wake();
    }

    #[doc = stub!(Consumer.close)]
    #[pyo3(signature = (timeout_ms=CLOSE), text_signature = "($self, timeout_ms=30000)")]
    fn close(&self, py: Python<'_>, timeout_ms: Wait) -> PyResult<()> {
        let prepared = self
            .inner
            .call_if_open(py, |consumer, stop| consumer.prepare_close(timeout_ms.0, stop));
        let called_back = prepared.and_then(|events| self.run_callbacks(py, &events.unwrap_or_default()));
        let closed = self._end_close(py, timeout_ms);
        called_back.and(closed).and(self._release(py))
    }

    fn __repr__(&self) -> String {
        let state = self
            .inner
            .peek(|consumer| match (consumer.assignment(), consumer.subscription()) {
                (mut assigned, _) if !assigned.is_empty() => {
                    assigned.sort();
                    format!("reads {}", some(&assigned))
                }
                (_, topics) if !topics.is_empty() => format!("subscribed to {}, has no partition now", some(&topics)),
                _ => "reads nothing yet".to_owned(),
            });
        let given = ["client.id", "group.id"].iter().filter_map(|name| {
            let value = self.config.get(name).filter(|value| !value.is_empty())?;
            Some(format!(" {name}={value}"))
        });
        format!("<fletchlog.Consumer{}: {state}>", given.collect::<String>())
    }

    fn __enter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, py: Python<'_>, _exception: &Bound<'_, pyo3::types::PyTuple>) -> PyResult<()> {
        self.close(py, CLOSE)
    }

    fn __reduce__(&self) -> PyResult<()> {
        Err(unpicklable("Consumer", "the directory's path and the configuration"))
    }
}
