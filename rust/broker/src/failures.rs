//! Storage failures as clients and the program's log see them: named in the response, and logged when their state changes, not with
//! every retry of a client.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::sync::atomic::{AtomicBool, Ordering};

use fletchlog_api::{ErrorCode, StorageFailure};

use crate::BrokerError;
use crate::sync::{Mutex, Rank};

/// Why a request was refused: Kafka's code, and the failure behind it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Refused {
    pub(crate) code: ErrorCode,
    pub(crate) failure: Option<StorageFailure>,
}

impl From<ErrorCode> for Refused {
    fn from(code: ErrorCode) -> Self {
        Self { code, failure: None }
    }
}

impl Refused {
    /// A refusal with this code, caused by `error`.
    pub(crate) fn by(code: ErrorCode, error: &BrokerError) -> Self {
        Self {
            code,
            failure: error.storage_failure(),
        }
    }

    /// For CONCURRENT_TRANSACTIONS: adds the failure that keeps the previous transaction from completing.
    pub(crate) fn because(mut self, incomplete: Option<StorageFailure>) -> Self {
        if self.code == ErrorCode::CONCURRENT_TRANSACTIONS {
            self.failure = incomplete;
        }
        self
    }
}

impl From<BrokerError> for Refused {
    fn from(error: BrokerError) -> Self {
        Self::by(error.code(), &error)
    }
}

/// The operations that currently fail, by name.
#[derive(Debug)]
pub(crate) struct Failures {
    any: AtomicBool,
    /// By operation: whether only reopening helps.
    ongoing: Mutex<BTreeMap<String, bool>>,
}

impl Default for Failures {
    fn default() -> Self {
        Self {
            any: AtomicBool::new(false),
            ongoing: Mutex::new(Rank::Failures, BTreeMap::new()),
        }
    }
}

impl Failures {
    /// Records that `what` has failed. Logged if the failure is new, and when from now on only reopening helps.
    pub(crate) fn failed(&self, what: impl Display, error: &BrokerError) {
        let until_reopened = error.storage_failure().is_some_and(|failure| failure.until_reopened);
        let before = {
            let mut ongoing = self.ongoing.lock();
            self.any.store(true, Ordering::Relaxed);
            ongoing.insert(what.to_string(), until_reopened)
        };
        if before.is_none_or(|before| until_reopened && !before) {
            log::error!("{what} failed: {error} (not logged again while it goes on)");
        }
    }

    /// Records that an operation works that may have failed before, see [`Failures::failed`]; costs nothing while nothing fails.
    pub(crate) fn succeeded<T: Display>(&self, what: impl FnOnce() -> T) {
        if !self.any.load(Ordering::Relaxed) {
            return;
        }
        let what = what().to_string();
        let failed_before = {
            let mut ongoing = self.ongoing.lock();
            let before = ongoing.remove(&what);
            self.any.store(!ongoing.is_empty(), Ordering::Relaxed);
            before.is_some()
        };
        if failed_before {
            log::info!("{what} works again");
        }
    }
}
