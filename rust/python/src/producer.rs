//! `fletchlog.Producer` and its futures.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use arrow_array::RecordBatch;
use fletchlog_api::{Config, ErrorCode, Scope};
use fletchlog_arrow::import::ProducerBatch;
use fletchlog_client::producer::{OnDecided, ProducerRecord, RecordColumns, RecordFuture as Future, RecordMetadata};
use fletchlog_client::{ClientError, Producer as Engine};
use pyo3::exceptions::{PyStopIteration, PyTypeError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::{PyByteArray, PyBytes, PyDict, PyIterator, PyString};

use crate::callbacks::{Callbacks, ensure_callable};
use crate::capsule::{Incoming, arrow_from_py};
use crate::client_arguments::{Client, close_owned, refuse_keywords};
use crate::convert::{
    bytes_from_py, describe, group_metadata_from_py, headers_from_py, import_classes, metrics_to_py, offsets_from_py,
    optional_bytes_from_py, optional_int, record_metadata_to_py, unpicklable,
};
use crate::deserializers::is_class_of_serde;
use crate::errors::Failure;
use crate::fault_rules::{rules_from_py, with_rules};
use crate::fork::{Shared, Stop};
use crate::gate::gate;
use crate::table::Table;
use crate::time::{Moment, Seconds, Wait};
use crate::transaction::Transaction;
use crate::wakeups::Wakeups;

/// Number of records of an iterable (which may be C code) after which the GIL is released and Ctrl-C is checked: about 10 ms. A thread
/// demands the GIL only after it has waited for 5 ms, and starts to wait again whenever the GIL is released earlier.
const BREATH: usize = 65_536;

#[doc = stub!(Producer)]
#[pyclass(frozen, generic, module = "fletchlog")]
pub struct Producer {
    inner: Arc<Shared<Engine>>,
    callbacks: Arc<Callbacks>,
    /// `fletchlog.trace` is on.
    traced: bool,
    config: Config,
    closed: AtomicBool,
    key_serializer: Option<Py<PyAny>>,
    value_serializer: Option<Py<PyAny>>,
    /// The broker that was opened for this producer.
    owned: Option<Py<PyAny>>,
}

impl Producer {
    /// The engine behind the handle.
    pub fn engine(&self) -> &Shared<Engine> {
        &self.inner
    }

    /// The function that the engine calls for a record with this callback. An unusable handle starts no thread.
    fn on_decided(&self, py: Python<'_>, callback: &Bound<'_, PyAny>) -> PyResult<OnDecided> {
        self.inner.get().map_err(|failure| failure.into_py(py))?;
        self.callbacks.on_decided(py, callback)
    }

    /// Queues a record for each value, until one would have to wait or [`BREATH`] records were queued; `sent` counts them.
    fn send_some(
        &self,
        py: Python<'_>,
        topic: &str,
        values: &mut Bound<'_, PyIterator>,
        mut keys: Option<&mut Bound<'_, PyIterator>>,
        partition: Option<i32>,
        sent: &mut usize,
    ) -> PyResult<Queued> {
        for value in values {
            let value = given("value", self.value_serializer.as_ref(), &value?)?;
            let key = match keys.as_mut().map(|keys| keys.next()) {
                Some(Some(key)) => given("key", self.key_serializer.as_ref(), &key?)?,
                Some(None) => {
                    return Err(Failure::argument("there are fewer keys than values: give as many").into_py(py));
                }
                None => None,
            };
            let row = OneRow(ProducerRecord {
                topic,
                partition,
                timestamp: None,
                key: key.as_deref(),
                value: value.as_deref(),
                headers: &[],
            });
            if !self.inner.at_once(py, |producer| producer.try_send_row(&row.0))? {
                return Ok(Queued::Not(Unsent::of(&row.0)));
            }
            *sent += 1;
            if sent.is_multiple_of(BREATH) {
                return Ok(Queued::Some);
            }
        }
        match keys.and_then(|keys| keys.next()).transpose()? {
            Some(_) => Err(Failure::argument("there are more keys than values: give as many").into_py(py)),
            None => Ok(Queued::All),
        }
    }

    /// Queues a record for each value; `sent` counts them.
    fn send_each(
        &self,
        py: Python<'_>,
        topic: &str,
        values: &Bound<'_, PyAny>,
        keys: Option<&Bound<'_, PyAny>>,
        partition: Option<i32>,
        sent: &mut usize,
    ) -> PyResult<()> {
        self.inner.get().map_err(|failure| failure.into_py(py))?;
        let mut keys = keys.map(|keys| iterator("keys", keys)).transpose()?;
        let mut values = iterator("values", values)?;
        loop {
            match self.send_some(py, topic, &mut values, keys.as_mut(), partition, sent)? {
                Queued::All => return Ok(()),
                Queued::Some => self.inner.call(py, |_, stop| match stop() {
                    true => Err(ClientError::Interrupted),
                    false => Ok(()),
                })?,
                Queued::Not(unsent) => {
                    self.send_row(py, unsent, *sent)?;
                    *sent += 1;
                }
            }
        }
    }

    /// Queues a row that has to wait, the one after `first`.
    fn send_row(&self, py: Python<'_>, unsent: Unsent, first: usize) -> PyResult<()> {
        let sent = self.inner.awaited(py, move |producer, stop| {
            let row = OneRow(unsent.record());
            producer.send_columns(&unsent.topic, &row, first, stop)
        });
        sent.map(drop)
    }

    fn future(&self, future: Future) -> RecordFuture {
        RecordFuture {
            is_asked: AtomicBool::new(false),
            inner: Shared::new("future", future),
            callbacks: Arc::downgrade(&self.callbacks),
        }
    }

    /// Calls the engine, then waits for the callbacks of the records that are done, as Java does.
    pub fn settled(
        &self,
        py: Python<'_>,
        call: impl FnOnce(&Engine, Stop<'_>) -> Result<(), ClientError> + Send + 'static,
    ) -> PyResult<()> {
        let callbacks = Arc::clone(&self.callbacks);
        self.inner.awaited(py, move |producer, stop| {
            let outcome = call(producer, stop);
            callbacks.settle(stop)?;
            outcome.map_err(Failure::from)
        })
    }
}

#[pymethods]
impl Producer {
    #[new]
    #[pyo3(
        signature = (source=None, config=None, *, faults=None, key_serializer=None, value_serializer=None, **others),
        text_signature = "(source=None, config=None, *, faults=None, key_serializer=None, value_serializer=None)"
    )]
    fn new(
        py: Python<'_>,
        source: Option<&Bound<'_, PyAny>>,
        config: Option<&Bound<'_, PyAny>>,
        faults: Option<&Bound<'_, PyAny>>,
        key_serializer: Option<&Bound<'_, PyAny>>,
        value_serializer: Option<&Bound<'_, PyAny>>,
        others: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Self> {
        import_classes(py)?;
        refuse_keywords("Producer", Scope::Producer, others)?;
        let key_serializer = serializer_from_py("key_serializer", key_serializer)?;
        let value_serializer = serializer_from_py("value_serializer", value_serializer)?;
        let Client { peer, config, owned } = Client::from_py(py, Scope::Producer, source, config, None)?;
        if peer.is_read_only() {
            let text = "the broker is open for reading only; to produce, open a directory on a disk without read_only";
            return Err(Failure::read_only(text).into());
        }
        let traced = config.boolean("fletchlog.trace");
        let faults = rules_from_py(faults)?;
        let given = config.clone();
        let engine = gate(py, |_| {
            let clock = peer.clock();
            let connected = peer.connect(&given, &clock)?;
            let transport = with_rules(connected, faults, &clock, &given)?;
            Ok(Engine::new(given, transport, clock)?)
        })?;
        Ok(Self {
            inner: Arc::new(Shared::new("producer", engine)),
            callbacks: Arc::default(),
            traced,
            config,
            closed: AtomicBool::new(false),
            key_serializer,
            value_serializer,
            owned,
        })
    }

    #[doc = stub!(Producer.send)]
    #[pyo3(signature = (topic, value=None, key=None, *, partition=None, timestamp_ms=None, headers=None, callback=None))]
    #[allow(clippy::too_many_arguments)] // the contract's keywords
    fn send(
        &self,
        py: Python<'_>,
        topic: &str,
        value: Option<&Bound<'_, PyAny>>,
        key: Option<&Bound<'_, PyAny>>,
        #[pyo3(from_py_with = optional_int)] partition: Option<i32>,
        timestamp_ms: Option<Moment>,
        headers: Option<&Bound<'_, PyAny>>,
        callback: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<RecordFuture> {
        let mut on_decided = callback.map(|callback| self.on_decided(py, callback)).transpose()?;
        let value = serialized("value", self.value_serializer.as_ref(), value)?;
        let key = serialized("key", self.key_serializer.as_ref(), key)?;
        let headers = headers_from_py(headers)?;
        let headers: Vec<(&str, Option<&[u8]>)> = headers.iter().map(|(k, v)| (k.as_str(), v.as_deref())).collect();
        let record = ProducerRecord {
            topic,
            partition,
            timestamp: timestamp_ms.map(|moment| moment.0),
            key: key.as_deref(),
            value: value.as_deref(),
            headers: &headers,
        };
        let queued = self
            .inner
            .at_once(py, |producer| producer.try_send_with(&record, &mut on_decided))?;
        let future = match queued {
            Some(future) => future,
            None if in_event_loop(py)? => self
                .inner
                .call(py, |producer, _| producer.send_later(&record, on_decided))?,
            None => self
                .inner
                .call(py, |producer, stop| producer.send_with(&record, on_decided, stop))?,
        };
        Ok(self.future(future))
    }

    #[doc = stub!(Producer.send_many)]
    #[pyo3(signature = (topic, values, keys=None, *, partition=None))]
    fn send_many(
        &self,
        py: Python<'_>,
        topic: &str,
        values: &Bound<'_, PyAny>,
        keys: Option<&Bound<'_, PyAny>>,
        #[pyo3(from_py_with = optional_int)] partition: Option<i32>,
    ) -> PyResult<usize> {
        let mut sent = 0;
        let outcome = self.send_each(py, topic, values, keys, partition, &mut sent);
        outcome.map_err(|error| noted(py, error, sent))?;
        Ok(sent)
    }

    #[doc = stub!(Producer.send_arrow)]
    fn send_arrow(&self, py: Python<'_>, topic: &str, data: &Bound<'_, PyAny>) -> PyResult<usize> {
        let batches = arrow_from_py(data)?;
        self.inner.call(py, |producer, stop| {
            check_schema(&batches)?;
            let mut rows = 0;
            for batch in batches {
                let columns = Columns(ProducerBatch::try_new(&batch?)?);
                rows += producer.send_columns(topic, &columns, rows, stop)?;
            }
            Ok::<_, Failure>(rows)
        })
    }

    #[doc = stub!(Producer._send_now)]
    #[pyo3(signature = (topic, value, key, partition, timestamp_ms, headers))]
    #[allow(clippy::too_many_arguments)] // those of `send`
    fn _send_now(
        &self,
        py: Python<'_>,
        topic: &str,
        value: Option<&Bound<'_, PyAny>>,
        key: Option<&Bound<'_, PyAny>>,
        #[pyo3(from_py_with = optional_int)] partition: Option<i32>,
        timestamp_ms: Option<Moment>,
        headers: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Sent> {
        let value = serialized("value", self.value_serializer.as_ref(), value)?;
        let key = serialized("key", self.key_serializer.as_ref(), key)?;
        let headers = headers_from_py(headers)?;
        let headers: Vec<(&str, Option<&[u8]>)> = headers.iter().map(|(k, v)| (k.as_str(), v.as_deref())).collect();
        let record = ProducerRecord {
            topic,
            partition,
            timestamp: timestamp_ms.map(|moment| moment.0),
            key: key.as_deref(),
            value: value.as_deref(),
            headers: &headers,
        };
        let queued = self
            .inner
            .at_once(py, |producer| producer.try_send_with(&record, &mut None))?;
        Ok(match queued {
            Some(future) => Sent::Queued(self.future(future)),
            None => Sent::Unsent(Unsent::of(&record)),
        })
    }

    #[doc = stub!(Producer._send_unsent)]
    fn _send_unsent(&self, py: Python<'_>, unsent: &Unsent) -> PyResult<RecordFuture> {
        let unsent = unsent.clone();
        let future = self.inner.awaited(py, move |producer, stop| {
            let headers: Vec<(&str, Option<&[u8]>)> =
                unsent.headers.iter().map(|(k, v)| (k.as_str(), v.as_deref())).collect();
            let record = ProducerRecord {
                headers: &headers,
                ..unsent.record()
            };
            producer.send_with(&record, None, stop)
        })?;
        Ok(self.future(future))
    }

    #[doc = stub!(Producer._send_rows)]
    fn _send_rows(
        &self,
        py: Python<'_>,
        topic: &str,
        mut values: Bound<'_, PyIterator>,
        mut keys: Option<Bound<'_, PyIterator>>,
        partition: Option<i32>,
        mut sent: usize,
    ) -> PyResult<(usize, bool, Option<Unsent>)> {
        let queued = self.send_some(py, topic, &mut values, keys.as_mut(), partition, &mut sent);
        Ok(match queued.map_err(|error| noted(py, error, sent))? {
            Queued::All => (sent, true, None),
            Queued::Some => (sent, false, None),
            Queued::Not(unsent) => (sent, false, Some(unsent)),
        })
    }

    #[doc = stub!(Producer._send_row)]
    fn _send_row(&self, py: Python<'_>, unsent: &Unsent, first: usize) -> PyResult<()> {
        self.send_row(py, unsent.clone(), first)
            .map_err(|error| noted(py, error, first))
    }

    #[doc = stub!(Producer._send_batch)]
    fn _send_batch(&self, py: Python<'_>, topic: &str, data: &ArrowRows, first: usize) -> PyResult<usize> {
        let (topic, columns) = (topic.to_owned(), data.current());
        self.inner.awaited(py, move |producer, stop| match columns {
            Some(columns) => producer.send_columns(&topic, &*columns, first, stop),
            None => Ok(0),
        })
    }

    #[doc = stub!(Producer._commit_if_open)]
    pub fn _commit_if_open(&self, py: Python<'_>) -> PyResult<()> {
        self.settled(py, |producer, stop| {
            // the block itself has ended the transaction
            if !producer.has_ongoing_transaction() {
                return Ok(());
            }
            let committed = producer.commit_transaction(stop);
            if matches!(&committed, Err(ClientError::Kafka { code, .. }) if *code == ErrorCode::TRANSACTION_ABORTABLE)
                && let Err(error) = producer.abort_transaction(stop)
            {
                log::warn!("a transaction that had failed could not be aborted: {error}");
            }
            committed
        })
    }

    #[doc = stub!(Producer._abort_if_open)]
    pub fn _abort_if_open(&self, py: Python<'_>) -> PyResult<()> {
        self.settled(py, |producer, stop| {
            if producer.has_ongoing_transaction() {
                producer.abort_transaction(stop)?;
            }
            Ok(())
        })
    }

    #[doc = stub!(Producer._watch)]
    fn _watch(&self, py: Python<'_>, wakeups: &Bound<'_, Wakeups>, token: u64) -> PyResult<()> {
        let waker = wakeups.get().waker(token);
        self.inner.call(py, |producer, _| {
            producer.watch(waker);
            Ok::<_, Failure>(())
        })
    }

    #[doc = stub!(Producer.flush)]
    #[pyo3(signature = (timeout=None, *, timeout_ms=None))]
    fn flush(&self, py: Python<'_>, timeout: Option<Seconds>, timeout_ms: Option<Wait>) -> PyResult<()> {
        let Some(ms) = limit(timeout, timeout_ms)? else {
            return self.settled(py, |producer, stop| producer.flush(stop));
        };
        let until = Instant::now() + Duration::from_millis(ms.unsigned_abs());
        let callbacks = Arc::clone(&self.callbacks);
        self.inner.awaited(py, move |producer, stop| {
            let flushed = producer.flush_within(Some(ms), &mut *stop);
            if matches!(flushed, Err(ClientError::Timeout(_))) {
                return flushed.map_err(Failure::from);
            }
            let mut is_late = false;
            let settled = callbacks.settle(&mut || {
                is_late = Instant::now() >= until;
                is_late || stop()
            });
            if is_late {
                let text = format!("everything is decided, and callbacks have not returned after {ms} ms");
                return Err(Failure::timeout(text));
            }
            settled?;
            flushed.map_err(Failure::from)
        })
    }

    #[doc = stub!(Producer.init_transactions)]
    fn init_transactions(&self, py: Python<'_>) -> PyResult<()> {
        self.inner
            .awaited(py, |producer, stop| producer.init_transactions(stop))
    }

    #[doc = stub!(Producer.begin_transaction)]
    fn begin_transaction(&self, py: Python<'_>) -> PyResult<()> {
        self.inner.call(py, |producer, _| producer.begin_transaction())
    }

    #[doc = stub!(Producer.send_offsets_to_transaction)]
    fn send_offsets_to_transaction(
        &self,
        py: Python<'_>,
        offsets: &Bound<'_, PyAny>,
        group_metadata: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        let offsets = offsets_from_py(offsets)?;
        let group = group_metadata_from_py(group_metadata)?;
        self.inner.awaited(py, move |producer, stop| {
            producer.send_offsets_to_transaction(&offsets, &group, stop)
        })
    }

    #[doc = stub!(Producer.commit_transaction)]
    fn commit_transaction(&self, py: Python<'_>) -> PyResult<()> {
        self.settled(py, |producer, stop| producer.commit_transaction(stop))
    }

    #[doc = stub!(Producer.abort_transaction)]
    fn abort_transaction(&self, py: Python<'_>) -> PyResult<()> {
        self.settled(py, |producer, stop| producer.abort_transaction(stop))
    }

    #[doc = stub!(Producer.transaction)]
    fn transaction(slf: Bound<'_, Self>) -> Transaction {
        Transaction::new(slf.unbind())
    }

    #[doc = stub!(Producer.partitions_for)]
    fn partitions_for(&self, py: Python<'_>, topic: &str) -> PyResult<i32> {
        let topic = topic.to_owned();
        self.inner
            .awaited(py, move |producer, stop| producer.partitions_for(&topic, stop))
    }

    #[doc = stub!(Producer.producer_id)]
    #[getter]
    fn producer_id(&self, py: Python<'_>) -> PyResult<Option<(i64, i16)>> {
        self.inner
            .call(py, |producer, _| Ok::<_, Failure>(producer.producer_id()))
    }

    #[doc = stub!(Producer.metrics)]
    fn metrics<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let metrics = self
            .inner
            .call(py, |producer, _| Ok::<_, Failure>(producer.metrics()))?;
        metrics_to_py(py, metrics)
    }

    #[doc = stub!(Producer.trace)]
    fn trace(&self, py: Python<'_>) -> PyResult<Table> {
        crate::trace::ensure_on(self.traced, "producer")?;
        self.inner
            .call(py, |producer, _| crate::trace::producer_table(&producer.trace()))
            .map(|table| crate::trace::with_config(table, "producer", &self.config))
    }

    #[doc = stub!(Producer.close)]
    #[pyo3(signature = (timeout_ms=None))]
    fn close(&self, py: Python<'_>, timeout_ms: Option<Wait>) -> PyResult<()> {
        let timeout_ms = timeout_ms.map(|wait| wait.0);
        let callbacks = Arc::clone(&self.callbacks);
        self.inner.awaited(py, move |producer, stop| {
            let closed = producer.close(timeout_ms, stop);
            if !matches!(closed, Err(ClientError::Interrupted)) {
                callbacks.close(stop)?;
            }
            closed.map_err(Failure::from)
        })?;
        self.closed.store(true, Ordering::Relaxed);
        self.callbacks.forget(py)?;
        close_owned(py, self.owned.as_ref())
    }

    fn __repr__(&self) -> String {
        let given = ["client.id", "transactional.id"].iter().filter_map(|name| {
            let value = self.config.get(name).filter(|value| !value.is_empty())?;
            Some(format!(" {name}={value}"))
        });
        let state = match (self.inner.get(), self.closed.load(Ordering::Relaxed)) {
            (Err(_), _) => "of another process",
            (_, true) => "closed",
            _ => "open",
        };
        format!("<fletchlog.Producer{}: {state}>", given.collect::<String>())
    }

    fn __enter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, py: Python<'_>, _exception: &Bound<'_, pyo3::types::PyTuple>) -> PyResult<()> {
        self.close(py, None)
    }

    fn __reduce__(&self) -> PyResult<()> {
        Err(unpicklable("Producer", "the directory's path and the configuration"))
    }
}

/// Arrow columns as the engine reads them.
struct Columns(ProducerBatch);

impl RecordColumns for Columns {
    fn len(&self) -> usize {
        self.0.len()
    }
    fn value(&self, row: usize) -> Option<&[u8]> {
        self.0.value(row)
    }
    fn key(&self, row: usize) -> Option<&[u8]> {
        self.0.key(row)
    }
    fn partition(&self, row: usize) -> Option<i32> {
        self.0.partition(row)
    }
    fn timestamp(&self, row: usize) -> Option<i64> {
        self.0.timestamp(row)
    }
    fn headers<'a>(&'a self, row: usize, out: &mut Vec<(&'a str, Option<&'a [u8]>)>) {
        self.0.headers(row, out);
    }
    fn no_headers(&self) -> bool {
        !self.0.has_headers()
    }
}

/// A record without headers, as a row.
struct OneRow<'a>(ProducerRecord<'a>);

impl RecordColumns for OneRow<'_> {
    fn len(&self) -> usize {
        1
    }
    fn value(&self, _: usize) -> Option<&[u8]> {
        self.0.value
    }
    fn key(&self, _: usize) -> Option<&[u8]> {
        self.0.key
    }
    fn partition(&self, _: usize) -> Option<i32> {
        self.0.partition
    }
    fn timestamp(&self, _: usize) -> Option<i64> {
        self.0.timestamp
    }
    fn headers<'a>(&'a self, _: usize, _: &mut Vec<(&'a str, Option<&'a [u8]>)>) {}
    fn no_headers(&self) -> bool {
        true
    }
}

/// What became of a record.
#[derive(IntoPyObject)]
enum Sent {
    Queued(RecordFuture),
    /// It has to wait.
    Unsent(Unsent),
}

/// What became of the records of an iterable.
enum Queued {
    All,
    /// There may be more.
    Some,
    /// This one has to wait; there may be more.
    Not(Unsent),
}

#[doc = stub!(_Unsent)]
#[pyclass(frozen, module = "fletchlog._core", name = "_Unsent")]
#[derive(Clone)]
pub struct Unsent {
    topic: Arc<str>,
    partition: Option<i32>,
    timestamp: Option<i64>,
    key: Option<Arc<[u8]>>,
    value: Option<Arc<[u8]>>,
    headers: Arc<[(String, Option<Vec<u8>>)]>,
}

impl Unsent {
    fn of(record: &ProducerRecord<'_>) -> Self {
        let headers = record.headers.iter();
        Self {
            topic: record.topic.into(),
            partition: record.partition,
            timestamp: record.timestamp,
            key: record.key.map(Arc::from),
            value: record.value.map(Arc::from),
            headers: headers
                .map(|(name, value)| ((*name).to_owned(), value.map(<[u8]>::to_vec)))
                .collect(),
        }
    }

    /// The record without its headers.
    fn record(&self) -> ProducerRecord<'_> {
        ProducerRecord {
            topic: &self.topic,
            partition: self.partition,
            timestamp: self.timestamp,
            key: self.key.as_deref(),
            value: self.value.as_deref(),
            headers: &[],
        }
    }
}

#[doc = stub!(_ArrowRows)]
#[pyclass(frozen, module = "fletchlog._core", name = "_ArrowRows")]
pub struct ArrowRows {
    /// Taken while it is read: it may run Python.
    rest: Mutex<Option<Incoming>>,
    current: Mutex<Option<Arc<Columns>>>,
}

#[pymethods]
impl ArrowRows {
    #[new]
    fn new(py: Python<'_>, data: &Bound<'_, PyAny>) -> PyResult<Self> {
        let rest = arrow_from_py(data)?;
        check_schema(&rest).map_err(|failure| failure.into_py(py))?;
        Ok(Self {
            rest: Mutex::new(Some(rest)),
            current: Mutex::default(),
        })
    }

    #[doc = stub!(_ArrowRows.next)]
    fn next(&self, py: Python<'_>) -> PyResult<bool> {
        let next = gate(py, |_| {
            let rest = lock(&self.rest).take();
            let Some(mut rest) = rest else { return Ok(None) };
            let batch = rest.next().transpose()?;
            *lock(&self.rest) = Some(rest);
            let columns = batch.map(|batch| ProducerBatch::try_new(&batch)).transpose()?;
            Ok(columns.map(|columns| Arc::new(Columns(columns))))
        })?;
        let is_there = next.is_some();
        *lock(&self.current) = next;
        Ok(is_there)
    }
}

impl ArrowRows {
    fn current(&self) -> Option<Arc<Columns>> {
        lock(&self.current).clone()
    }
}

/// The error of `send_many`, which says how many records were queued before.
fn noted(py: Python<'_>, error: PyErr, sent: usize) -> PyErr {
    let note = format!("send_many has queued {sent} records before this");
    let noted = error.value(py).call_method1(intern!(py, "add_note"), (note,));
    noted.err().unwrap_or(error)
}

/// The schema is checked even if the stream is empty, so that a wrong one is reported before the first row.
fn check_schema(batches: &Incoming) -> Result<(), Failure> {
    ProducerBatch::try_new(&RecordBatch::new_empty(batches.schema()))?;
    Ok(())
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The awaited outcome of a record, if it is known already: the event loop has nothing to do.
#[pyclass(frozen, module = "fletchlog._core", name = "_Decided")]
struct Decided(Result<RecordMetadata, ClientError>);

#[pymethods]
impl Decided {
    fn __iter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<()> {
        match &self.0 {
            Ok(metadata) => Err(PyStopIteration::new_err((
                record_metadata_to_py(py, metadata)?.unbind(),
            ))),
            Err(error) => Err(Failure::from(error.clone()).into_py(py)),
        }
    }
}

#[doc = stub!(RecordFuture)]
#[pyclass(frozen, module = "fletchlog.types")]
pub struct RecordFuture {
    inner: Shared<Future>,
    /// The producer's callbacks. Every record is done before its producer is dropped.
    callbacks: Weak<Callbacks>,
    /// Somebody has asked for the outcome, or waits for it.
    is_asked: AtomicBool,
}

impl RecordFuture {
    fn asked(&self) {
        self.is_asked.store(true, Ordering::Relaxed);
    }
}

/// A failure that nobody asked for would leave no trace. The engine warns of records whose futures were dropped before they failed.
impl Drop for RecordFuture {
    fn drop(&mut self) {
        static LAST: Mutex<Option<Instant>> = Mutex::new(None);
        if self.is_asked.load(Ordering::Relaxed) {
            return;
        }
        let Ok(Some(Err(error))) = self.inner.get().map(Future::try_result) else {
            return;
        };
        let mut last = lock(&LAST);
        let is_pause = last.is_some_and(|last| last.elapsed() < Duration::from_secs(1));
        if !is_pause && !matches!(error, ClientError::TransactionAborted(_)) {
            *last = Some(Instant::now());
            log::warn!(
                "a record was not written, which only this warning reports, as its future was dropped without being asked: {error}"
            );
        }
    }
}

#[pymethods]
impl RecordFuture {
    #[doc = stub!(RecordFuture.result)]
    #[pyo3(signature = (timeout=None, *, timeout_ms=None))]
    fn result(&self, py: Python<'_>, timeout: Option<Seconds>, timeout_ms: Option<Wait>) -> PyResult<Py<PyAny>> {
        self.asked();
        let timeout_ms = limit(timeout, timeout_ms)?;
        let metadata = self.inner.call(py, |future, stop| future.result(timeout_ms, stop))?;
        Ok(record_metadata_to_py(py, &metadata)?.unbind())
    }

    #[doc = stub!(RecordFuture.exception)]
    #[pyo3(signature = (timeout=None, *, timeout_ms=None))]
    fn exception(&self, py: Python<'_>, timeout: Option<Seconds>, timeout_ms: Option<Wait>) -> PyResult<Option<PyErr>> {
        self.asked();
        let timeout_ms = limit(timeout, timeout_ms)?;
        let outcome = self.inner.call(py, |future, stop| {
            let waited = future.result(timeout_ms, stop);
            Ok::<_, Failure>(match (future.try_result(), waited) {
                // not done: the wait itself failed (time-out, Ctrl-C), which is an error of this call
                (None, Err(error)) => Err(error),
                (Some(outcome), _) => Ok(outcome.err()),
                (None, Ok(_)) => Ok(None),
            })
        })?;
        let failed = outcome.map_err(|error| Failure::from(error).into_py(py))?;
        Ok(failed.map(|error| Failure::from(error).into_py(py)))
    }

    #[doc = stub!(RecordFuture.add_done_callback)]
    fn add_done_callback(slf: &Bound<'_, Self>, callback: &Bound<'_, PyAny>) -> PyResult<()> {
        ensure_callable(callback, "callback(future)")?;
        let (py, this) = (slf.py(), slf.get());
        this.asked();
        let registered = match this.callbacks.upgrade() {
            Some(callbacks) if !this.done(py)? => {
                let on_done = callbacks.on_done(slf, callback)?;
                this.inner
                    .call(py, |future, _| Ok::<_, Failure>(future.on_decided(on_done)))?
            }
            _ => false,
        };
        match registered {
            true => Ok(()),
            false => callback.call1((slf,)).map(drop),
        }
    }

    #[doc = stub!(RecordFuture.__await__)]
    fn __await__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        let py = slf.py();
        slf.get().asked();
        if let Some(outcome) = slf.get().inner.at_once(py, Future::try_result)? {
            return Ok(Bound::new(py, Decided(outcome))?.into_any());
        }
        let outcome = py.import("fletchlog.aio")?.call_method1("outcome", (slf,))?;
        outcome.call_method0("__await__")
    }

    #[doc = stub!(RecordFuture._watch)]
    fn _watch(&self, py: Python<'_>, wakeups: &Bound<'_, Wakeups>, token: u64) -> PyResult<bool> {
        let waker = wakeups.get().waker(token);
        self.inner
            .at_once(py, |future| future.on_decided(Box::new(move |_| waker())))
    }

    #[doc = stub!(RecordFuture.done)]
    fn done(&self, py: Python<'_>) -> PyResult<bool> {
        self.inner
            .call(py, |future, _| Ok::<_, Failure>(future.try_result().is_some()))
    }

    #[doc = stub!(RecordFuture.running)]
    fn running(&self, py: Python<'_>) -> PyResult<bool> {
        Ok(!self.done(py)?)
    }

    #[doc = stub!(RecordFuture.cancel)]
    fn cancel(&self) -> bool {
        false
    }

    #[doc = stub!(RecordFuture.cancelled)]
    fn cancelled(&self) -> bool {
        false
    }

    #[doc = stub!(RecordFuture.future)]
    fn future<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        slf.py().import("fletchlog.aio")?.call_method1("future", (slf,))
    }

    fn __repr__(&self) -> String {
        let state = match self.inner.get().map(Future::try_result) {
            Err(_) => "of another process".to_owned(),
            Ok(None) => "undecided".to_owned(),
            Ok(Some(Ok(at))) if at.offset < 0 => format!("{}-{}, offset unknown", at.topic, at.partition),
            Ok(Some(Ok(at))) => format!("{}-{} at offset {}", at.topic, at.partition, at.offset),
            Ok(Some(Err(error))) => format!("failed: {error}"),
        };
        format!("<fletchlog.types.RecordFuture: {state}>")
    }

    fn __reduce__(&self) -> PyResult<()> {
        Err(unpicklable("RecordFuture", "its result()"))
    }
}

/// Whether this thread runs an event loop of asyncio, which must not block. The module takes long to import; if it is not imported, no loop
/// exists.
fn in_event_loop(py: Python<'_>) -> PyResult<bool> {
    let modules = py.import(intern!(py, "sys"))?.getattr(intern!(py, "modules"))?;
    let asyncio = modules.cast::<PyDict>()?.get_item(intern!(py, "asyncio.events"))?;
    let Some(asyncio) = asyncio else { return Ok(false) };
    let running = asyncio.call_method0(intern!(py, "_get_running_loop"))?;
    Ok(!running.is_none())
}

fn serializer_from_py(name: &str, given: Option<&Bound<'_, PyAny>>) -> PyResult<Option<Py<PyAny>>> {
    let Some(serializer) = given else { return Ok(None) };
    if !serializer.is_callable() || is_class_of_serde(serializer)? {
        return Err(PyTypeError::new_err(format!(
            "{name} is called as {name}(value) and returns bytes: give a function or an object of fletchlog.serde, such as serde.Json(), got {}",
            describe(serializer)
        )));
    }
    Ok(Some(serializer.clone().unbind()))
}

/// A key or value as bytes; None stays None.
fn serialized(
    name: &str,
    serializer: Option<&Py<PyAny>>,
    value: Option<&Bound<'_, PyAny>>,
) -> PyResult<Option<PyBackedBytes>> {
    match (serializer, value) {
        (Some(serializer), Some(value)) => {
            let made = serializer.bind(value.py()).call1((value,))?;
            optional_bytes_from_py(name, (!made.is_none()).then_some(&made))
        }
        (None, Some(value)) => bytes_from_py(name, value)
            .map(Some)
            .map_err(|error| with_serializer_to_give(name, value, error)),
        (_, None) => Ok(None),
    }
}

/// The error for a key or value that is no bytes, where the producer has no serializer for it.
fn with_serializer_to_give(name: &str, value: &Bound<'_, PyAny>, error: PyErr) -> PyErr {
    if !error.is_instance_of::<PyTypeError>(value.py()) {
        return error;
    }
    let such = if value.is_instance_of::<PyString>() {
        "String"
    } else {
        "Json"
    };
    PyTypeError::new_err(format!(
        "{}, or give the producer a {name}_serializer, such as serde.{such}()",
        error.value(value.py()).to_string().trim_end_matches(" first")
    ))
}

/// A key or value of an iterable as bytes; None stays None.
fn given(name: &str, serializer: Option<&Py<PyAny>>, value: &Bound<'_, PyAny>) -> PyResult<Option<PyBackedBytes>> {
    serialized(name, serializer, (!value.is_none()).then_some(value))
}

/// The iterator of an iterable. A single value is refused: it would be split.
fn iterator<'py>(name: &str, values: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyIterator>> {
    let single = values.is_instance_of::<PyBytes>()
        || values.is_instance_of::<PyByteArray>()
        || values.is_instance_of::<PyString>();
    match values.try_iter() {
        Ok(iterator) if !single => Ok(iterator),
        _ => Err(PyTypeError::new_err(format!(
            "{name}: expected a list or another iterable of {name}, got {}",
            describe(values)
        ))),
    }
}

/// How long to wait, in milliseconds: `timeout` is seconds, as in Python's futures, `timeout_ms` milliseconds.
fn limit(timeout: Option<Seconds>, timeout_ms: Option<Wait>) -> Result<Option<i64>, Failure> {
    match (timeout, timeout_ms) {
        (Some(_), Some(_)) => Err(Failure::argument(
            "give either timeout (seconds) or timeout_ms (milliseconds), not both",
        )),
        (Some(Seconds(ms)), None) | (None, Some(Wait(ms))) => Ok(Some(ms)),
        (None, None) => Ok(None),
    }
}
