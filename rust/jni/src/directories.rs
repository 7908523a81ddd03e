//! Directories open for reading, one broker each, so that a task does not repeat the recovery of what an earlier task has
//! read.

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use fletchlog_api::transport::SystemClock;
use fletchlog_api::{Config, Scope};
use fletchlog_broker::{Broker, OpenOptions};

/// Device and inode of a directory: one that was recreated at the same path has others.
type Identity = (u64, u64);

/// The broker of a path. Locked while it is opened, so that tasks that read other directories do not wait.
type Slot = Arc<Mutex<Option<(Identity, Arc<Broker>)>>>;

static OPEN: Mutex<BTreeMap<PathBuf, Slot>> = Mutex::new(BTreeMap::new());

/// The broker of a directory, opened once per process and as long as the directory is the same.
pub(crate) fn open(path: &Path) -> Result<Arc<Broker>, String> {
    let found = path.metadata().map_err(|error| {
        let path = path.display();
        format!("{path} cannot be read on this machine: {error}; the driver and every executor have to see it under the same path")
    })?;
    let identity = (found.dev(), found.ino());
    let slot = {
        let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
        Slot::clone(open.entry(path.to_path_buf()).or_default())
    };
    let mut slot = slot.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((of, broker)) = &*slot
        && *of == identity
    {
        return Ok(Arc::clone(broker));
    }
    let options = OpenOptions {
        nodes: None,
        named_nodes: Vec::new(),
        read_only: true,
        config: Config::parse(Scope::Broker, []).map_err(|error| error.to_string())?,
    };
    let broker = Broker::open(path, options, Arc::new(SystemClock::default())).map_err(|error| error.to_string())?;
    *slot = Some((identity, Arc::clone(&broker)));
    Ok(broker)
}
