//! Who may connect and who may do what: SCRAM users, ACLs, the authorizer. Kafka: `ScramControlManager`, `AclControlManager`,
//! `StandardAuthorizer`.

mod acl;
mod authorizer;
mod json;
mod scram;
mod search;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use fletchlog_sasl::{ScramCredential, ScramMechanism};

use crate::sync::{Mutex, Rank};

pub use acl::{Acl, AclFilter, AclOperation, CLUSTER_NAME, Coded, PatternType, PermissionType, ResourceType};
pub(crate) use authorizer::Rules;
pub use authorizer::{Action, Authorizer, Principal};
pub use scram::{AlteredUsers, ScramDeletion, ScramUpsertion};

/// The users and ACLs that `fletchlog.metadata` keeps.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct SecurityRecord {
    /// Credentials by user name and mechanism.
    pub(crate) scram: BTreeMap<(String, ScramMechanism), ScramCredential>,
    /// All ACLs.
    pub(crate) acls: BTreeSet<Acl>,
}

/// The record as requests read it, without waiting for a write.
#[derive(Debug)]
pub(crate) struct CurrentSecurity(Mutex<Arc<SecurityRecord>>);

impl CurrentSecurity {
    /// Starts with the record of the directory.
    pub(crate) fn new(record: &SecurityRecord) -> Self {
        Self(Mutex::new(Rank::Security, Arc::new(record.clone())))
    }

    /// The record that is in effect.
    pub(crate) fn get(&self) -> Arc<SecurityRecord> {
        Arc::clone(&self.0.lock())
    }

    /// Puts a record into effect.
    pub(crate) fn set(&self, record: &SecurityRecord) {
        *self.0.lock() = Arc::new(record.clone());
    }
}
