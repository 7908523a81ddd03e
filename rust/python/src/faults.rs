//! `fletchlog.testing.Faults`.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use arrow_array::{Int16Array, Int32Array, Int64Array, StringArray, UInt64Array};
use fletchlog_client::faults::{FaultLogEntry, FaultPartition, FaultRates, Faults as Engine, Held as Guard};
use pyo3::prelude::*;

use crate::convert::{counted, number_from_py, unpicklable};
use crate::errors::Failure;
use crate::gate::gate;
use crate::table::Table;
use crate::trace::{columns, table};

#[doc = stub!(Faults)]
#[pyclass(frozen, module = "fletchlog.testing")]
pub struct Faults {
    inner: Arc<Engine>,
    /// For its repr.
    plan: String,
}

impl Faults {
    /// The engine's faults, for a producer.
    pub fn engine(&self) -> Arc<Engine> {
        Arc::clone(&self.inner)
    }
}

#[pymethods]
impl Faults {
    #[new]
    #[pyo3(signature = (*, seed=None, lost_ack=0.0, refused=0.0, disconnect=0.0, script=None))]
    fn new(
        seed: Option<i64>,
        lost_ack: f64,
        refused: f64,
        disconnect: f64,
        script: Option<BTreeMap<i64, String>>,
    ) -> PyResult<Self> {
        let seed: Option<u64> = seed.map(|seed| number_from_py("seed", seed, 0)).transpose()?;
        let rates = FaultRates {
            lost_ack,
            refused,
            disconnect,
        };
        let plan = match &script {
            Some(script) => format!("a script of {}", counted(script.len(), "request")),
            None => format!(
                "seed={} lost_ack={lost_ack} refused={refused} disconnect={disconnect}",
                seed.unwrap_or(0)
            ),
        };
        let inner = match (script, seed) {
            (Some(script), None) if rates == FaultRates::default() => {
                // the engine refuses 0: requests are numbered from 1
                Engine::scripted(
                    script
                        .iter()
                        .map(|(number, action)| (u64::try_from(*number).unwrap_or(0), action.as_str())),
                )
                .map_err(Failure::from)?
            }
            (None, seed) => Engine::seeded(seed.unwrap_or(0), rates).map_err(Failure::from)?,
            (Some(_), _) => {
                return Err(Failure::argument(
                    "give either a script or a seed with rates; a script says everything that happens",
                )
                .into());
            }
        };
        Ok(Self { inner, plan })
    }

    #[doc = stub!(Faults.held)]
    fn held(&self) -> Held {
        Held {
            faults: Arc::clone(&self.inner),
            guards: Mutex::default(),
        }
    }

    #[doc = stub!(Faults.log)]
    fn log(&self, py: Python<'_>) -> PyResult<Table> {
        gate(py, |_| {
            let log = self.inner.log();
            let rows: Vec<(&FaultLogEntry, &FaultPartition)> = log
                .iter()
                .flat_map(|entry| entry.partitions.iter().map(move |part| (entry, part)))
                .collect();
            table(columns!(rows.iter(), row => {
                "request": UInt64Array = Some(row.0.number),
                "node": Int32Array = Some(row.0.node),
                "after": UInt64Array = Some(row.0.after),
                "action": StringArray = Some(row.0.action.as_str()),
                "topic": StringArray = Some(&*row.1.tp.topic),
                "partition": Int32Array = Some(row.1.tp.partition),
                "producer_id": Int64Array = (row.1.producer_id >= 0).then_some(row.1.producer_id),
                "producer_epoch": Int16Array = (row.1.producer_id >= 0).then_some(row.1.producer_epoch),
                "base_sequence": Int32Array = (row.1.base_sequence >= 0).then_some(row.1.base_sequence),
                "records": Int32Array = Some(row.1.records),
                "error": Int16Array = row.1.answer.map(|(code, _)| code),
                "base_offset": Int64Array = row.1.answer.map(|(_, offset)| offset),
            }))
        })
    }

    fn __repr__(&self) -> String {
        format!("<fletchlog.testing.Faults: {}>", self.plan)
    }

    fn __reduce__(&self) -> PyResult<()> {
        Err(unpicklable("Faults", "the seed and rates, or the script"))
    }
}

#[doc = stub!(Held)]
#[pyclass(frozen, module = "fletchlog.testing")]
pub struct Held {
    faults: Arc<Engine>,
    guards: Mutex<Vec<Guard>>,
}

#[pymethods]
impl Held {
    fn __repr__(&self) -> String {
        let held = self.guards.lock().is_ok_and(|guards| !guards.is_empty());
        format!("<fletchlog.Held: {}>", if held { "held" } else { "not held" })
    }

    fn __enter__(slf: Bound<'_, Self>) -> PyResult<Bound<'_, Self>> {
        let held = slf.get();
        // waits until no producer is choosing what to send
        let guard = gate(slf.py(), |_| Ok(held.faults.hold()))?;
        if let Ok(mut guards) = held.guards.lock() {
            guards.push(guard);
        }
        Ok(slf)
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, py: Python<'_>, _exception: &Bound<'_, pyo3::types::PyTuple>) -> PyResult<()> {
        let guard = self.guards.lock().ok().and_then(|mut guards| guards.pop());
        gate(py, |_| {
            drop(guard);
            Ok(())
        })
    }
}
