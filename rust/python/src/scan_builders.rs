//! Builders of finished scans, kept for later scans of the same broker. Otherwise a scan of a few hundred megabytes would spend a third of
//! its time on fresh memory pages for its first batches.

use std::sync::{Arc, Mutex};

use fletchlog_arrow::{Column, RowsBuilder};
use fletchlog_records::TimeRange;

/// Most bytes that a broker keeps: as many as a scan on two threads uses.
const MAX_KEPT: usize = 64 << 20;

/// The unused builders, most recently used first; `None`: none are kept. If the lock is taken, or was locked during a fork, a new builder
/// is made, or a used one freed.
#[derive(Default)]
pub struct Builders(Mutex<Option<Vec<RowsBuilder>>>);

impl Builders {
    /// The builders of a broker, kept until it is closed. The default keeps nothing.
    pub fn of_broker() -> Arc<Self> {
        Arc::new(Self(Mutex::new(Some(Vec::new()))))
    }

    /// Frees the builders, and keeps none from now on.
    pub fn close(&self) {
        if let Ok(mut kept) = self.0.try_lock() {
            *kept = None;
        }
    }

    /// Lends a builder for these columns and a range of times.
    pub fn lend(self: &Arc<Self>, columns: &Arc<[Column]>, times: TimeRange) -> Lent {
        Lent {
            home: Arc::clone(self),
            columns: Arc::clone(columns),
            times,
            builder: None,
        }
    }

    /// A builder that has these columns, else the most recently used one.
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

/// A builder in use by a scan. Dropping it returns the builder.
pub struct Lent {
    home: Arc<Builders>,
    columns: Arc<[Column]>,
    times: TimeRange,
    /// Set at the first use.
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
        // After a panic its state is unknown, so it is not kept.
        if let Some(builder) = self.builder.take().filter(|_| !std::thread::panicking()) {
            self.home.put(builder);
        }
    }
}
