//! The engine's log records as Python's: `fletchlog_client::group` becomes the logger `fletchlog.client.group`.

use log::{Log, Metadata, Record};
use pyo3::prelude::*;

use crate::capsule::Gil;

/// Hands records on under the package's name.
struct Renamed(pyo3_log::Logger);

fn renamed(target: &str) -> String {
    target.replacen("fletchlog_", "fletchlog::", 1)
}

impl Log for Renamed {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        let _gil = Gil::hold();
        self.0.enabled(
            &Metadata::builder()
                .level(metadata.level())
                .target(&renamed(metadata.target()))
                .build(),
        )
    }

    fn log(&self, record: &Record<'_>) {
        let _gil = Gil::hold();
        let target = renamed(record.target());
        let record = Record::builder()
            .args(*record.args())
            .level(record.level())
            .target(&target)
            .module_path(record.module_path())
            .file(record.file())
            .line(record.line())
            .build();
        self.0.log(&record);
    }

    fn flush(&self) {
        self.0.flush();
    }
}

/// Installs the bridge once per process. Levels are asked for at every record, so `logging.setLevel` works at any time:
/// the engine logs coarse events only.
pub fn install(py: Python<'_>) -> PyResult<()> {
    let logger = pyo3_log::Logger::new(py, pyo3_log::Caching::Loggers)?.filter(log::LevelFilter::Info);
    // a second import (another interpreter) finds the first one's logger: nothing to do
    if log::set_boxed_logger(Box::new(Renamed(logger))).is_ok() {
        log::set_max_level(log::LevelFilter::Info);
    }
    Ok(())
}
