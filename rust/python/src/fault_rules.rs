//! `fletchlog._core.FaultRules`: what `fletchlog.testing.FaultPlan` drives.

use std::sync::Arc;
use std::time::Duration;

use fletchlog_api::transport::SystemClock;
use fletchlog_api::{Clock, Config, Transport};
use fletchlog_faults::{
    FaultTransport, Faults, Predicate, ProducedBatch, RequestRow, RequestView, Rule, RuleReport, api_of, rule_json,
    rules_of,
};
use fletchlog_records::ErrorCode;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::convert::describe;
use crate::engine_threads::call_python;
use crate::errors::Failure;
use crate::gate::gate;

#[doc = stub!(FaultRules)]
#[pyclass(frozen, module = "fletchlog.testing")]
pub struct FaultRules {
    faults: Arc<Faults>,
}

/// `fletchlog.testing.FaultPlan` of the rules of a listener or of a proxy.
pub fn plan_of<'py>(py: Python<'py>, faults: &Arc<Faults>) -> PyResult<Bound<'py, PyAny>> {
    let rules = FaultRules {
        faults: Arc::clone(faults),
    };
    py.import("fletchlog.testing")?.getattr("FaultPlan")?.call1((rules,))
}

/// The rules of the plan that a client was given.
pub fn rules_from_py(plan: Option<&Bound<'_, PyAny>>) -> PyResult<Option<Arc<Faults>>> {
    let Some(plan) = plan else { return Ok(None) };
    let rules = plan.getattr("_rules").ok();
    match rules.as_ref().and_then(|rules| rules.cast::<FaultRules>().ok()) {
        Some(rules) => Ok(Some(Arc::clone(&rules.get().faults))),
        None => Err(PyTypeError::new_err(format!(
            "faults: give a fletchlog.testing.FaultPlan, as FaultPlan() makes it or as a listener, a proxy or the fixture has it, got {}",
            describe(plan)
        ))),
    }
}

/// The transport of a client, with rules before it if it was given any.
pub fn with_rules(
    transport: Box<dyn Transport>,
    rules: Option<Arc<Faults>>,
    clock: &Arc<dyn Clock>,
    config: &Config,
) -> Result<Box<dyn Transport>, Failure> {
    match rules {
        None => Ok(transport),
        Some(rules) => {
            // A name that the client made for itself is numbered; a seed gives the same faults whatever ran before.
            let is_given = config.is_explicit("client.id");
            let client_id = if is_given { config.text("client.id") } else { "" };
            let transport = FaultTransport::new(transport, rules, Arc::clone(clock), client_id)?;
            Ok(Box::new(transport))
        }
    }
}

/// number, name or description, selectors and action as JSON, matched, applied, held, optional, cleared
type Report = (u64, String, u64, u64, usize, bool, bool);

/// A recorded request, in the order of the fields of `fletchlog.testing.Request`.
type Row = (
    (u64, i64, u64, i32, &'static str, i16, String, i32, usize),
    (Vec<(String, i32)>, Vec<String>, Vec<String>, Vec<String>),
    (
        Option<i64>,
        Option<usize>,
        Vec<&'static str>,
        &'static str,
        Option<String>,
        u64,
        Vec<Batch>,
    ),
);

/// A batch of a recorded Produce, in the order of the fields of `fletchlog.testing.ProducedBatch`.
type Batch = (
    String,
    i32,
    Option<i64>,
    Option<i16>,
    Option<i32>,
    i32,
    Option<&'static str>,
    Option<i64>,
);

/// How often a wait looks whether the caller was interrupted.
const LOOK: Duration = Duration::from_millis(50);

#[pymethods]
impl FaultRules {
    #[new]
    fn new() -> Self {
        let faults = Faults::of_clients(Arc::new(SystemClock::default()));
        faults.record(true);
        Self {
            faults: Arc::new(faults),
        }
    }

    #[doc = stub!(FaultRules.add)]
    #[pyo3(signature = (plan, when=None))]
    fn add(&self, py: Python<'_>, plan: &str, when: Option<Py<PyAny>>) -> PyResult<Vec<u64>> {
        let predicate = when.map(predicate);
        gate(py, |_| {
            let (rules, random) = rules_of(plan)?;
            let faults = &self.faults;
            faults.check(&rules)?;
            if random.is_some() {
                faults.set_random(random);
            }
            let add = |rule: Rule| faults.add(rule, predicate.clone());
            Ok::<_, Failure>(rules.into_iter().map(add).collect())
        })
    }

    #[doc = stub!(FaultRules.clear)]
    #[pyo3(signature = (number=None))]
    fn clear(&self, py: Python<'_>, number: Option<u64>) -> PyResult<()> {
        gate(py, |_| {
            self.faults.clear(number);
            Ok::<_, Failure>(())
        })
    }

    #[doc = stub!(FaultRules.report)]
    fn report(&self, py: Python<'_>) -> PyResult<Vec<Report>> {
        gate(py, |_| {
            let reports = self.faults.report();
            Ok::<_, Failure>(reports.into_iter().map(report).collect())
        })
    }

    #[doc = stub!(FaultRules.seed)]
    fn seed(&self, py: Python<'_>) -> PyResult<Option<u64>> {
        gate(py, |_| Ok::<_, Failure>(self.faults.seed()))
    }

    #[doc = stub!(FaultRules.drawn)]
    fn drawn(&self, py: Python<'_>) -> PyResult<Vec<String>> {
        gate(py, |_| {
            let drawn = self.faults.drawn();
            Ok::<_, Failure>(drawn.iter().map(|rule| rule_json(rule).to_string()).collect())
        })
    }

    #[doc = stub!(FaultRules.wait)]
    fn wait(&self, py: Python<'_>, number: u64, at_most_ms: u64) -> PyResult<bool> {
        let mut left = Duration::from_millis(at_most_ms);
        loop {
            let now = left.min(LOOK);
            let holds = py.detach(|| self.faults.wait_until_held(number, now));
            left -= now;
            if holds || left.is_zero() {
                return Ok(holds);
            }
            py.check_signals()?;
        }
    }

    #[doc = stub!(FaultRules.release)]
    fn release(&self, py: Python<'_>, number: u64) -> PyResult<()> {
        gate(py, |_| {
            self.faults.release(number);
            Ok::<_, Failure>(())
        })
    }

    #[doc = stub!(FaultRules.record)]
    fn record(&self, py: Python<'_>, records: bool) -> PyResult<()> {
        gate(py, |_| {
            self.faults.record(records);
            Ok::<_, Failure>(())
        })
    }

    #[doc = stub!(FaultRules.collect_sends)]
    fn collect_sends(&self, py: Python<'_>) -> PyResult<()> {
        gate(py, |_| {
            self.faults.collect_sends();
            Ok::<_, Failure>(())
        })
    }

    #[doc = stub!(FaultRules.resume_sends)]
    fn resume_sends(&self, py: Python<'_>) -> PyResult<()> {
        gate(py, |_| {
            self.faults.resume_sends();
            Ok::<_, Failure>(())
        })
    }

    #[doc = stub!(FaultRules.check_api)]
    #[staticmethod]
    fn check_api(name: &str) -> PyResult<()> {
        Ok(api_of(name).map(drop).map_err(Failure::argument)?)
    }

    #[doc = stub!(FaultRules.requests)]
    fn requests(&self, py: Python<'_>) -> PyResult<Vec<Row>> {
        gate(py, |_| {
            let rows = self.faults.requests();
            Ok::<_, Failure>(rows.into_iter().map(row).collect())
        })
    }
}

fn report(report: RuleReport) -> Report {
    let rule = &report.rule;
    let text = rule_json(rule).to_string();
    (
        report.number,
        text,
        report.matched,
        report.applied,
        report.held,
        rule.optional,
        report.is_cleared,
    )
}

fn texts(texts: &[Arc<str>]) -> Vec<String> {
    texts.iter().map(|text| text.to_string()).collect()
}

fn partitions(request: &RequestView) -> Vec<(String, i32)> {
    let of = |(topic, numbers): &(Arc<str>, Vec<i32>)| {
        numbers
            .iter()
            .map(|number| (topic.to_string(), *number))
            .collect::<Vec<_>>()
    };
    request.topics.iter().flat_map(of).collect()
}

fn topics(request: &RequestView) -> Vec<String> {
    request.topics.iter().map(|(topic, _)| topic.to_string()).collect()
}

fn row(row: RequestRow) -> Row {
    let request = &row.request;
    (
        (
            row.number,
            row.time_ms,
            request.connection,
            request.node,
            request.api,
            request.version,
            request.client_id.to_string(),
            request.correlation_id,
            request.bytes,
        ),
        (
            partitions(request),
            topics(request),
            texts(&request.groups),
            texts(&request.transactional_ids),
        ),
        (
            row.duration_ms,
            row.response_bytes,
            row.errors.iter().map(|error| error.name()).collect(),
            row.outcome,
            row.fault.map(|fault| fault.to_string()),
            row.after,
            row.batches.into_iter().map(batch).collect(),
        ),
    )
}

fn batch(batch: ProducedBatch) -> Batch {
    let known = batch.producer_id >= 0;
    let error = batch.answer.map(|(error, _)| error);
    (
        batch.topic.to_string(),
        batch.partition,
        known.then_some(batch.producer_id),
        known.then_some(batch.producer_epoch),
        (batch.base_sequence >= 0).then_some(batch.base_sequence),
        batch.records,
        error.filter(|error| *error != ErrorCode::NONE).map(ErrorCode::name),
        batch.answer.map(|(_, offset)| offset).filter(|offset| *offset >= 0),
    )
}

/// A condition in Python. What it raises is reported as that of a callback, and the rule does not apply.
fn predicate(when: Py<PyAny>) -> Predicate {
    Arc::new(move |request| {
        let applies = call_python(|py| {
            let asked = asked(py, &when, request);
            asked.unwrap_or_else(|raised| {
                raised.write_unraisable(py, Some(when.bind(py)));
                false
            })
        });
        applies.unwrap_or(false)
    })
}

fn asked(py: Python<'_>, when: &Py<PyAny>, request: &RequestView) -> PyResult<bool> {
    let view = PyDict::new(py);
    view.set_item("api", request.api)?;
    view.set_item("version", request.version)?;
    view.set_item("client_id", &*request.client_id)?;
    view.set_item("correlation_id", request.correlation_id)?;
    view.set_item("connection", request.connection)?;
    view.set_item("node", request.node)?;
    view.set_item("request_bytes", request.bytes)?;
    view.set_item("partitions", partitions(request))?;
    view.set_item("topics", topics(request))?;
    view.set_item("groups", texts(&request.groups))?;
    view.set_item("transactional_ids", texts(&request.transactional_ids))?;
    when.bind(py).call1((view,))?.is_truthy()
}
