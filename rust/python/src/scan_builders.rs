//! Builders of finished scans, kept for the next scans of the same broker: a scan of some hundred megabytes would spend a third of its
//! time on the fresh pages of its first batches.

use std::sync::{Arc, Mutex};

use fletchlog_arrow::{Column, RowsBuilder};
use fletchlog_records::TimeRange;

/// Bytes that a broker keeps: what a scan on two threads uses.
const MAX_KEPT: usize = 64 << 20;

/// The builders that no scan uses, the one used last first; `None`: none is kept. If the lock is taken, or was left locked by a fork,
/// a builder is freed, or a new one made.
#[derive(Default)]
pub struct Builders(Mutex<Option<Vec<RowsBuilder>>>);

impl Builders {
    /// Those of a broker, until it is closed. The default ones keep nothing.
    pub fn of_broker() -> Arc<Self> {
        Arc::new(Self(Mutex::new(Some(Vec::new()))))
    }

    /// Frees what is kept, and keeps nothing from now on.
    pub fn close(&self) {
        if let Ok(mut kept) = self.0.try_lock() {
            *kept = None;
        }
    }

    /// A builder for these columns of the records with these times.
    pub fn lend(self: &Arc<Self>, columns: &Arc<[Column]>, times: TimeRange) -> Lent {
        Lent {
            home: Arc::clone(self),
            columns: Arc::clone(columns),
            times,
            builder: None,
        }
    }

    /// One of these columns, which has them ready, or else the one used last.
    fn take(&self, columns: &[Column]) -> Option<RowsBuilder> {
        let mut kept = self.0.try_lock().ok()?;
        let kept = kept.as_mut().filter(|kept| !kept.is_empty())?;
        let at = kept.iter().position(|builder| builder.columns() == columns);
        Some(kept.remove(at.unwrap_or(0)))
    }

    fn put(&self, builder: RowsBuilder) {
        if let Ok(mut kept) = self.0.try_lock()
            && let Some(kept) = kept.as_mut()
        {
            kept.insert(0, builder);
            let mut left = MAX_KEPT;
            kept.retain(|builder| {
                let rest = builder.idle_bytes().and_then(|bytes| left.checked_sub(bytes));
                left = rest.unwrap_or(left);
                rest.is_some()
            });
        }
    }
}

/// A builder that a scan uses and gives back when it is dropped.
pub struct Lent {
    home: Arc<Builders>,
    columns: Arc<[Column]>,
    times: TimeRange,
    /// There from its first use on.
    builder: Option<RowsBuilder>,
}

impl Lent {
    /// The builder.
    pub fn get(&mut self) -> &mut RowsBuilder {
        self.builder.get_or_insert_with(|| match self.home.take(&self.columns) {
            Some(builder) => builder.reused(&self.columns, self.times),
            None => RowsBuilder::of(&self.columns, self.times),
        })
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        // After a panic nothing is known about it.
        if let Some(builder) = self.builder.take().filter(|_| !std::thread::panicking()) {
            self.home.put(builder);
        }
    }
}
