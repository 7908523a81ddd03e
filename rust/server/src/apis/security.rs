//! ACLs, quotas and SCRAM credentials, of which there are none: answered as a Kafka without an authorizer does. Kafka: `AclApis`,
//! `ClientQuotasImage`, `ScramImage`.

use std::collections::HashSet;
use std::sync::Arc;

use fletchlog_records::ErrorCode;
use fletchlog_wire::messages::{
    CreateAclsRequest, CreateAclsResponse, DeleteAclsRequest, DeleteAclsResponse, DescribeAclsRequest,
    DescribeAclsResponse, DescribeClientQuotasRequest, DescribeClientQuotasResponse,
    DescribeUserScramCredentialsRequest, DescribeUserScramCredentialsResponse, create_acls_response,
    delete_acls_response, describe_client_quotas_request, describe_user_scram_credentials_response,
};

use super::{Call, Handled, Unreadable};

/// No resource has this type: Kafka cannot read a request with it. Kafka: `ResourceType#UNKNOWN`.
const UNKNOWN_TYPE: i8 = 0;
const UNKNOWN: Unreadable = Unreadable::Refused("it names a resource type that does not exist");

fn no_authorizer() -> Option<Arc<str>> {
    Some("No Authorizer is configured.".into())
}

pub(super) fn describe_acls(call: &mut Call<'_>) -> Result<Handled, Unreadable> {
    let request: DescribeAclsRequest = call.message()?;
    if request.resource_type_filter == UNKNOWN_TYPE {
        return Err(UNKNOWN);
    }
    call.answer(&DescribeAclsResponse {
        error_code: ErrorCode::SECURITY_DISABLED.code(),
        error_message: Some("No Authorizer is configured on the broker".into()),
        ..Default::default()
    })
}

pub(super) fn create_acls(call: &mut Call<'_>) -> Result<Handled, Unreadable> {
    let request: CreateAclsRequest = call.message()?;
    if request.creations.iter().any(|acl| acl.resource_type == UNKNOWN_TYPE) {
        return Err(UNKNOWN);
    }
    let refused = || create_acls_response::AclCreationResult {
        error_code: ErrorCode::SECURITY_DISABLED.code(),
        error_message: no_authorizer(),
    };
    call.answer(&CreateAclsResponse {
        results: request.creations.iter().map(|_| refused()).collect(),
        ..Default::default()
    })
}

pub(super) fn delete_acls(call: &mut Call<'_>) -> Result<Handled, Unreadable> {
    let request: DeleteAclsRequest = call.message()?;
    if request
        .filters
        .iter()
        .any(|filter| filter.resource_type_filter == UNKNOWN_TYPE)
    {
        return Err(UNKNOWN);
    }
    let refused = || delete_acls_response::DeleteAclsFilterResult {
        error_code: ErrorCode::SECURITY_DISABLED.code(),
        error_message: no_authorizer(),
        ..Default::default()
    };
    call.answer(&DeleteAclsResponse {
        filter_results: request.filters.iter().map(|_| refused()).collect(),
        ..Default::default()
    })
}

pub(super) fn describe_client_quotas(call: &mut Call<'_>) -> Result<Handled, Unreadable> {
    let request: DescribeClientQuotasRequest = call.message()?;
    call.answer(&match check_quota_filter(&request.components) {
        Ok(()) => DescribeClientQuotasResponse {
            error_message: Some("".into()),
            entries: Some(Vec::new()),
            ..Default::default()
        },
        Err((error, text)) => DescribeClientQuotasResponse {
            error_code: error.code(),
            error_message: Some(text.into()),
            entries: None,
            ..Default::default()
        },
    })
}

/// Kafka: `ClientQuotasImage#describe`.
fn check_quota_filter(components: &[describe_client_quotas_request::ComponentData]) -> Result<(), (ErrorCode, String)> {
    let mut seen = HashSet::new();
    for component in components {
        let kind = &*component.entity_type;
        if kind.is_empty() {
            return Err((ErrorCode::INVALID_REQUEST, "Invalid empty entity type.".to_owned()));
        }
        if !["user", "client-id", "ip"].contains(&kind) {
            return Err((
                ErrorCode::UNSUPPORTED_VERSION,
                format!("Unsupported entity type {kind}"),
            ));
        }
        if !(0..=2).contains(&component.match_type) {
            return Err((
                ErrorCode::INVALID_REQUEST,
                format!("Unknown match type {}", component.match_type),
            ));
        }
        if !seen.insert(kind) {
            let text = format!("Entity type {kind} cannot appear more than once in the filter.");
            return Err((ErrorCode::INVALID_REQUEST, text));
        }
    }
    if seen.contains("ip") && seen.len() > 1 {
        let text = "Invalid entity filter component combination. IP filter component should not be used with user or clientId filter component.";
        return Err((ErrorCode::INVALID_REQUEST, text.to_owned()));
    }
    Ok(())
}

pub(super) fn describe_user_scram_credentials(call: &mut Call<'_>) -> Result<Handled, Unreadable> {
    let request: DescribeUserScramCredentialsRequest = call.message()?;
    let names: Vec<_> = request
        .users
        .unwrap_or_default()
        .into_iter()
        .map(|user| user.name)
        .collect();
    let mut seen = HashSet::new();
    let twice: HashSet<_> = names
        .iter()
        .filter(|name| !seen.insert(Arc::clone(name)))
        .cloned()
        .collect();
    let results = seen.iter().map(|user| {
        let (error, text) = if twice.contains(user) {
            let text = "Cannot describe SCRAM credentials for the same user twice in a single request";
            (ErrorCode::DUPLICATE_RESOURCE, text)
        } else {
            let text = "Attempt to describe a user credential that does not exist";
            (ErrorCode::RESOURCE_NOT_FOUND, text)
        };
        describe_user_scram_credentials_response::DescribeUserScramCredentialsResult {
            user: Arc::clone(user),
            error_code: error.code(),
            error_message: Some(format!("{text}: {user}").into()),
            ..Default::default()
        }
    });
    call.answer(&DescribeUserScramCredentialsResponse {
        error_message: Some("".into()),
        results: results.collect(),
        ..Default::default()
    })
}
