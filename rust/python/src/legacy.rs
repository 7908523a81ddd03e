//! `fletchlog.legacy.LegacyConsumer`: the 0.8 high-level consumer and its streams.

use std::sync::Arc;

use fletchlog_api::{ClientClock, Scope};
use fletchlog_client::group::legacy::{LegacyConsumer as Engine, LegacyStream as Stream};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};

use crate::broker::Broker;
use crate::convert::{config_from_py, partitions_to_py, unpicklable};
use crate::errors::Failure;
use crate::fork::{Exclusive, Shared};
use crate::gate::gate;
use crate::records::{Builder, Records};
use crate::time::Wait;

#[doc = stub!(LegacyConsumer)]
#[pyclass(frozen, module = "fletchlog.legacy")]
pub struct LegacyConsumer {
    inner: Shared<Engine>,
}

#[pymethods]
impl LegacyConsumer {
    #[new]
    #[pyo3(signature = (broker, config=None))]
    fn new(py: Python<'_>, broker: &Bound<'_, Broker>, config: Option<&Bound<'_, PyAny>>) -> PyResult<Self> {
        let config = config_from_py(Scope::LegacyConsumer, config)?;
        let transports = broker.get().transports()?;
        let clock = Arc::new(ClientClock::new(broker.get().engine()?.clock()));
        let engine = gate(py, |_| Ok(Engine::new(config, Box::new(transports), clock)?))?;
        Ok(Self {
            inner: Shared::new("legacy consumer", engine),
        })
    }

    #[doc = stub!(LegacyConsumer.consumer_id)]
    #[getter]
    fn consumer_id(&self) -> PyResult<String> {
        Ok(self.inner.get()?.consumer_id().to_owned())
    }

    #[doc = stub!(LegacyConsumer.create_message_streams)]
    fn create_message_streams<'py>(
        &self,
        py: Python<'py>,
        topic_count: &Bound<'py, PyDict>,
    ) -> PyResult<Bound<'py, PyDict>> {
        let counts: Vec<(String, i32)> = topic_count
            .iter()
            .map(|(topic, streams)| Ok((topic.extract()?, streams.extract()?)))
            .collect::<PyResult<_>>()?;
        let streams = self.inner.call(py, |consumer, _| {
            let counts: Vec<(&str, i32)> = counts.iter().map(|(topic, n)| (topic.as_str(), *n)).collect();
            consumer.create_message_streams(&counts)
        })?;
        let topics = PyDict::new(py);
        for (topic, _) in &counts {
            topics.set_item(topic, PyList::empty(py))?;
        }
        for stream in streams {
            let list = topics
                .get_item(stream.topic())?
                .ok_or_else(|| Failure::internal("a stream of a topic that was not requested"))?;
            list.call_method1("append", (LegacyStream::new(stream),))?;
        }
        Ok(topics)
    }

    #[doc = stub!(LegacyConsumer.owners)]
    fn owners<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let owners = self.inner.call(py, |consumer, _| consumer.owners())?;
        let topics = PyDict::new(py);
        for (topic, partitions) in owners {
            let threads = PyDict::new(py);
            for (partition, thread) in partitions {
                threads.set_item(partition, &*thread)?;
            }
            topics.set_item(&*topic, threads)?;
        }
        Ok(topics)
    }

    #[doc = stub!(LegacyConsumer.commit_offsets)]
    fn commit_offsets(&self, py: Python<'_>) -> PyResult<()> {
        self.inner.call(py, |consumer, _| consumer.commit_offsets())
    }

    #[doc = stub!(LegacyConsumer.shutdown)]
    fn shutdown(&self, py: Python<'_>) -> PyResult<()> {
        self.inner.call(py, |consumer, _| consumer.shutdown())
    }

    #[doc = stub!(LegacyConsumer.close)]
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        self.shutdown(py)
    }

    fn __repr__(&self) -> String {
        match self.inner.get() {
            Ok(consumer) => format!("<fletchlog.legacy.LegacyConsumer: {}>", consumer.consumer_id()),
            Err(_) => "<fletchlog.legacy.LegacyConsumer of another process>".to_owned(),
        }
    }

    fn __enter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, py: Python<'_>, _exception: &Bound<'_, pyo3::types::PyTuple>) -> PyResult<()> {
        self.shutdown(py)
    }

    fn __reduce__(&self) -> PyResult<()> {
        Err(unpicklable(
            "LegacyConsumer",
            "the directory's path and the configuration",
        ))
    }
}

#[doc = stub!(LegacyStream)]
#[pyclass(frozen, module = "fletchlog.legacy")]
pub struct LegacyStream {
    inner: Exclusive<Stream>,
    thread_id: String,
    topic: String,
    builder: Builder,
}

impl LegacyStream {
    fn new(stream: Stream) -> Self {
        Self {
            thread_id: stream.thread_id().to_owned(),
            topic: stream.topic().to_owned(),
            inner: Exclusive::new("stream", stream),
            builder: Builder::default(),
        }
    }
}

#[pymethods]
impl LegacyStream {
    #[doc = stub!(LegacyStream.thread_id)]
    #[getter]
    fn thread_id(&self) -> &str {
        &self.thread_id
    }

    #[doc = stub!(LegacyStream.topic)]
    #[getter]
    fn topic(&self) -> &str {
        &self.topic
    }

    fn __repr__(&self) -> String {
        format!("<fletchlog.legacy.LegacyStream: {} of {}>", self.thread_id, self.topic)
    }

    #[doc = stub!(LegacyStream.assignment)]
    fn assignment<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let partitions = self.inner.call(py, |stream, _| Ok::<_, Failure>(stream.assignment()))?;
        partitions_to_py(py, &partitions)
    }

    #[doc = stub!(LegacyStream.poll)]
    #[pyo3(signature = (timeout_ms=Wait(1000)), text_signature = "($self, timeout_ms=1000)")]
    fn poll(&self, py: Python<'_>, timeout_ms: Wait) -> PyResult<Records> {
        let polled = self.inner.call(py, |stream, stop| stream.poll(timeout_ms.0, stop))?;
        Ok(Records::new(polled, Arc::clone(&self.builder), None))
    }

    #[doc = stub!(LegacyStream.__iter__)]
    fn __iter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    #[doc = stub!(LegacyStream.__next__)]
    fn __next__<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let taken = self.inner.call(py, |stream, stop| stream.next(stop))?;
        match taken {
            Some(polled) => Records::new(polled, Arc::clone(&self.builder), None).rows().next(py),
            None => Ok(None),
        }
    }

    fn __reduce__(&self) -> PyResult<()> {
        Err(unpicklable(
            "LegacyStream",
            "the directory's path and the configuration",
        ))
    }
}
