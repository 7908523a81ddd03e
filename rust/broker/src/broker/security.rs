//! Users and ACLs. Kafka: `Admin#describeAcls` and the like.

use fletchlog_sasl::{ScramCredential, ScramMechanism};

use super::Broker;
use crate::BrokerError;
use crate::security::{Acl, AclFilter, AlteredUsers, Authorizer, ScramDeletion, ScramUpsertion, SecurityRecord};

impl Broker {
    /// The authorizer with the present ACLs; `None`: every client may do everything.
    pub fn authorizer(&self) -> Option<Authorizer<'_>> {
        self.replicas.controller().authorizer()
    }

    /// The ACLs that a filter matches. Kafka: DescribeAcls.
    ///
    /// # Errors
    /// `Closed`.
    pub fn describe_acls(&self, filter: &AclFilter) -> Result<Vec<Acl>, BrokerError> {
        let _open = self.enter()?;
        self.replicas.controller().see_new_topics()?;
        let security = self.replicas.controller().security().get();
        Ok(filter.matched(&security.acls).into_iter().cloned().collect())
    }

    /// Adds ACLs; those that exist already stay. Durable when it returns, and in effect for every request that begins later. Kafka:
    /// CreateAcls.
    ///
    /// # Errors
    /// INVALID_REQUEST for one of them, `ReadOnly`, `Closed`, storage errors: then none was added.
    pub fn create_acls(&self, acls: &[Acl]) -> Result<(), BrokerError> {
        let _open = self.enter()?;
        acls.iter().try_for_each(Acl::validate)?;
        self.replicas
            .controller()
            .alter_security("create ACLs", |security| security.acls.extend(acls.iter().cloned()))
    }

    /// Deletes the ACLs that the filters match, and returns them for each filter; `None`: they are more than `room` bytes, counted for
    /// each filter, and none was deleted. Durable when it returns. Kafka: DeleteAcls.
    ///
    /// # Errors
    /// `ReadOnly`, `Closed`, storage errors: then none was deleted.
    pub fn delete_acls(&self, filters: &[AclFilter], room: usize) -> Result<Option<Vec<Vec<Acl>>>, BrokerError> {
        let _open = self.enter()?;
        let delete = |security: &mut SecurityRecord| security.delete_acls(filters, room);
        self.replicas.controller().alter_security("delete ACLs", delete)
    }

    /// Users of SCRAM by name, each with a mechanism and its iterations. Kafka: DescribeUserScramCredentials.
    ///
    /// # Errors
    /// `Closed`; read-only: the directory has become unreadable.
    pub fn describe_user_scram_credentials(&self) -> Result<Vec<(String, ScramMechanism, u32)>, BrokerError> {
        let _open = self.enter()?;
        self.replicas.controller().see_new_topics()?;
        let security = self.replicas.controller().security().get();
        let rows = security.scram.iter();
        Ok(rows
            .map(|((name, mechanism), credential)| (name.clone(), *mechanism, credential.iterations))
            .collect())
    }

    /// Changes SCRAM users; returns the result of each user by name. A user that cannot be changed does not affect the others.
    /// Durable when it returns, and in effect for clients that authenticate later. Kafka: AlterUserScramCredentials.
    ///
    /// # Errors
    /// `ReadOnly`, `Closed`, storage errors: then nothing has changed. Per user: RESOURCE_NOT_FOUND, UNACCEPTABLE_CREDENTIAL (no
    /// name, too few or too many iterations), UNSUPPORTED_SASL_MECHANISM, DUPLICATE_RESOURCE.
    pub fn alter_user_scram_credentials(
        &self,
        deletions: &[ScramDeletion],
        upsertions: &[ScramUpsertion],
    ) -> Result<AlteredUsers, BrokerError> {
        let _open = self.enter()?;
        let alter = |security: &mut SecurityRecord| security.alter_scram(deletions, upsertions);
        self.replicas.controller().alter_security("alter users", alter)
    }

    /// The stored credential of a user.
    pub fn scram_credential(&self, mechanism: ScramMechanism, name: &str) -> Option<ScramCredential> {
        let _open = self.enter().ok()?;
        self.replicas.controller().see_new_topics().ok()?;
        self.replicas
            .controller()
            .security()
            .get()
            .scram
            .get(&(name.to_owned(), mechanism))
            .cloned()
    }
}
