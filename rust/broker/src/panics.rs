//! A panic ends the work in which it happens, and nothing else.

use std::any::Any;
use std::cell::Cell;
use std::fmt::Display;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use fletchlog_api::ErrorCode;

use crate::BrokerError;

thread_local! {
    /// How many panics were contained in this thread. A simulation with such a panic in one of its own threads has failed.
    pub static CONTAINED: Cell<usize> = const { Cell::new(0) };
}

/// Does one of several pieces of work. `None`: it panicked, which is logged, and the caller continues with the other pieces.
///
/// A payload that is not text is not a panic, but stops a thread of a simulation: it unwinds further.
pub fn contained<T>(what: impl Display, work: impl FnOnce() -> T) -> Option<T> {
    match catch_unwind(AssertUnwindSafe(work)) {
        Ok(done) => Some(done),
        Err(payload) => match text_of(&*payload) {
            Some(text) => {
                CONTAINED.set(CONTAINED.get() + 1);
                log::error!("{what} failed with a panic, which is a defect of the broker: {text}");
                None
            }
            None => resume_unwind(payload),
        },
    }
}

/// As [`contained`], for work that can fail: then a panic is a failure like any other.
///
/// # Errors
/// That of the work; UNKNOWN_SERVER_ERROR if it panicked.
pub(crate) fn failing<T>(what: impl Display, work: impl FnOnce() -> Result<T, BrokerError>) -> Result<T, BrokerError> {
    contained(&what, work).unwrap_or_else(|| {
        let text =
            format!("{what} failed with a panic, which is a defect of the broker; its text is a line of the log");
        Err(BrokerError::kafka(ErrorCode::UNKNOWN_SERVER_ERROR, text))
    })
}

fn text_of(payload: &(dyn Any + Send)) -> Option<&str> {
    let text = payload.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| payload.downcast_ref::<&str>().copied())
}

/// Places that panic when they are reached, and how often; for tests.
#[cfg(feature = "planted")]
pub static PLANTED: std::sync::Mutex<std::collections::BTreeMap<String, usize>> =
    std::sync::Mutex::new(std::collections::BTreeMap::new());

/// A place at which a test can plant a panic. In the product it does nothing.
#[inline]
pub fn place<T: Display>(name: impl FnOnce() -> T) {
    #[cfg(not(feature = "planted"))]
    let _ = name;
    #[cfg(feature = "planted")]
    {
        let name = name().to_string();
        let mut planted = PLANTED.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if let Some(left) = planted.get_mut(&name).filter(|left| **left > 0) {
            *left -= 1;
            drop(planted);
            panic!("planted at `{name}`");
        }
    }
}
