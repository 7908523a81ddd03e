//! ACLs and users of SCRAM. Kafka: `KafkaAdminClient`, one method each.

use fletchlog_api::ErrorCode;
use fletchlog_protocol::messages::alter_user_scram_credentials_request::{
    ScramCredentialDeletion, ScramCredentialUpsertion,
};
use fletchlog_protocol::messages::create_acls_request::AclCreation;
use fletchlog_protocol::messages::delete_acls_request::DeleteAclsFilter;
use fletchlog_protocol::messages::delete_acls_response::DeleteAclsMatchingAcl;
use fletchlog_protocol::messages::describe_acls_response::DescribeAclsResource;
use fletchlog_protocol::messages::describe_user_scram_credentials_response::DescribeUserScramCredentialsResult;
use fletchlog_protocol::messages::{
    AlterUserScramCredentialsRequest, CreateAclsRequest, DeleteAclsRequest, DescribeAclsRequest,
    DescribeUserScramCredentialsRequest,
};

use super::{AdminClient, AdminError, Interrupt, checked};

impl AdminClient {
    /// Adds ACLs; those that exist already stay.
    ///
    /// # Errors
    /// See [`AdminError`]; of the first one that was refused.
    pub fn create_acls(&mut self, acls: &[AclCreation], stop: Interrupt<'_>) -> Result<(), AdminError> {
        self.call(stop, |call| {
            let node = call.any_node()?;
            let creations = acls.to_vec();
            let results = call.ask(node, CreateAclsRequest { creations })?.results;
            let refused = results.iter().map(|r| (r.error_code, r.error_message.as_deref()));
            checked("an ACL was not created", refused)
        })
    }

    /// The ACLs that a filter matches.
    ///
    /// # Errors
    /// See [`AdminError`]; SECURITY_DISABLED.
    pub fn describe_acls(
        &mut self,
        filter: &DescribeAclsRequest,
        stop: Interrupt<'_>,
    ) -> Result<Vec<DescribeAclsResource>, AdminError> {
        self.call(stop, |call| {
            let node = call.any_node()?;
            let response = call.ask(node, filter.clone())?;
            let refused = [(response.error_code, response.error_message.as_deref())];
            checked("ACLs were not described", refused.into_iter())?;
            Ok(response.resources)
        })
    }

    /// Deletes the ACLs that filters match, and returns them.
    ///
    /// # Errors
    /// See [`AdminError`]; SECURITY_DISABLED; of the first one that was not deleted.
    pub fn delete_acls(
        &mut self,
        filters: &[DeleteAclsFilter],
        stop: Interrupt<'_>,
    ) -> Result<Vec<DeleteAclsMatchingAcl>, AdminError> {
        self.call(stop, |call| {
            let node = call.any_node()?;
            let filters = filters.to_vec();
            let results = call.ask(node, DeleteAclsRequest { filters })?.filter_results;
            let refused = results.iter().map(|r| (r.error_code, r.error_message.as_deref()));
            checked("ACLs were not deleted", refused)?;
            let deleted: Vec<_> = results.into_iter().flat_map(|result| result.matching_acls).collect();
            let refused = deleted.iter().map(|acl| (acl.error_code, acl.error_message.as_deref()));
            checked("an ACL was not deleted", refused)?;
            Ok(deleted)
        })
    }

    /// Users of SCRAM, each with its mechanisms.
    ///
    /// # Errors
    /// See [`AdminError`].
    pub fn describe_user_scram_credentials(
        &mut self,
        stop: Interrupt<'_>,
    ) -> Result<Vec<DescribeUserScramCredentialsResult>, AdminError> {
        self.call(stop, |call| {
            let node = call.any_node()?;
            let response = call.ask(node, DescribeUserScramCredentialsRequest { users: None })?;
            let whole = [(response.error_code, response.error_message.as_deref())].into_iter();
            let users = response.results.iter();
            let users = users.map(|user| (user.error_code, user.error_message.as_deref()));
            checked("users were not described", whole.chain(users))?;
            Ok(response.results)
        })
    }

    /// Changes users of SCRAM.
    ///
    /// # Errors
    /// See [`AdminError`]; RESOURCE_NOT_FOUND, UNACCEPTABLE_CREDENTIAL; of the first user that was refused.
    pub fn alter_user_scram_credentials(
        &mut self,
        deletions: &[ScramCredentialDeletion],
        upsertions: &[ScramCredentialUpsertion],
        stop: Interrupt<'_>,
    ) -> Result<(), AdminError> {
        self.call(stop, |call| {
            let node = call.any_node()?;
            let request = AlterUserScramCredentialsRequest {
                deletions: deletions.to_vec(),
                upsertions: upsertions.to_vec(),
            };
            let results = call.ask(node, request)?.results;
            let refused = results.iter().find(|user| user.error_code != ErrorCode::NONE);
            let what = refused.map_or_else(String::new, |user| format!("user {} was not changed", user.user));
            checked(
                &what,
                refused.map(|u| (u.error_code, u.error_message.as_deref())).into_iter(),
            )
        })
    }
}
