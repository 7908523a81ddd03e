//! In a read-only directory, a request with many entries checks only once what the writer has changed: a check reads all of the
//! metadata.

use std::cell::Cell;

thread_local! {
    /// `None`: every call checks. Otherwise whether the single check was done.
    static LOOK: Cell<Option<bool>> = const { Cell::new(None) };
}

/// While it exists, its thread checks a directory for changes only once. A nested one does nothing.
#[derive(Debug)]
pub struct RefreshOnce {
    is_outer: bool,
}

impl RefreshOnce {
    /// Called when a request begins.
    #[must_use]
    pub fn begin() -> Self {
        let is_outer = LOOK.get().is_none();
        if is_outer {
            LOOK.set(Some(false));
        }
        Self { is_outer }
    }

    /// Whether the thread has checked and need not check again.
    pub(crate) fn is_done() -> bool {
        LOOK.get() == Some(true)
    }

    /// Notes that the thread has checked.
    pub(crate) fn done() {
        LOOK.set(LOOK.get().map(|_| true));
    }
}

impl Drop for RefreshOnce {
    fn drop(&mut self) {
        if self.is_outer {
            LOOK.set(None);
        }
    }
}
