//! A panic ends the work in which it happens, and nothing else.

use std::any::Any;
use std::fmt::Display;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};

/// How many panics were contained in this process. A simulation that has one has failed.
pub static CONTAINED: AtomicUsize = AtomicUsize::new(0);

/// Does one of several pieces of work. `None`: it panicked, which is logged; the other pieces are done all the same.
///
/// A payload that is no text is not a panic, but a thread of a simulation that is stopped: it unwinds further.
pub fn contained<T>(what: impl Display, work: impl FnOnce() -> T) -> Option<T> {
    match catch_unwind(AssertUnwindSafe(work)) {
        Ok(done) => Some(done),
        Err(payload) => match text_of(&*payload) {
            Some(text) => {
                CONTAINED.fetch_add(1, Ordering::Relaxed);
                log::error!("{what} failed with a panic, which is a defect of the broker: {text}");
                None
            }
            None => resume_unwind(payload),
        },
    }
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
