//! Users and ACLs, which are kept with the topics. Kafka: `QuorumController#alterUserScramCredentials`, `#createAcls`, `#deleteAcls`.

use super::Controller;
use crate::BrokerError;
use crate::security::{Authorizer, CurrentSecurity, SecurityRecord};

impl Controller {
    /// Users and ACLs.
    pub(crate) fn security(&self) -> &CurrentSecurity {
        &self.security
    }

    /// The authorizer, with the ACLs of now, if there is one.
    pub(crate) fn authorizer(&self) -> Option<Authorizer<'_>> {
        let rules = self.authorizer.as_ref()?;
        Some(rules.authorizer(self.security().get()))
    }

    /// Changes users or ACLs: first on disk, then in memory.
    pub(crate) fn alter_security<T>(
        &self,
        action: &'static str,
        change: impl FnOnce(&mut SecurityRecord) -> T,
    ) -> Result<T, BrokerError> {
        self.logs.for_writing(action)?;
        let mut metadata = self.metadata.lock();
        let mut changed = metadata.clone();
        let result = change(&mut changed.security);
        if changed.security != metadata.security {
            self.store_or_undo(&changed, &metadata)?;
            self.security.set(&changed.security);
            *metadata = changed;
        }
        Ok(result)
    }
}
