//! A request of many entries looks once for what the writer of a read-only directory has changed: a look reads all of the metadata.

use std::cell::Cell;

thread_local! {
    /// `None`: every call looks. Else whether the one look was done.
    static LOOK: Cell<Option<bool>> = const { Cell::new(None) };
}

/// While it lives, its thread looks once at what a directory has now. One within another does nothing.
#[derive(Debug)]
pub struct OneLook {
    is_outer: bool,
}

impl OneLook {
    /// A request begins.
    #[must_use]
    pub fn begin() -> Self {
        let is_outer = LOOK.get().is_none();
        if is_outer {
            LOOK.set(Some(false));
        }
        Self { is_outer }
    }

    /// Whether the thread has looked, and need not again.
    pub(crate) fn is_done() -> bool {
        LOOK.get() == Some(true)
    }

    /// The thread has looked.
    pub(crate) fn done() {
        LOOK.set(LOOK.get().map(|_| true));
    }
}

impl Drop for OneLook {
    fn drop(&mut self) {
        if self.is_outer {
            LOOK.set(None);
        }
    }
}
