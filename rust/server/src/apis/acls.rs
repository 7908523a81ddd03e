//! DescribeAcls, CreateAcls, DeleteAcls. Kafka: `AclApis`, `AclControlManager`.

use std::sync::Arc;

use fletchlog_broker::{Acl, AclFilter, AclOperation, BrokerError, Coded, PatternType, PermissionType, ResourceType};
use fletchlog_protocol::messages::{
    CreateAclsRequest, CreateAclsResponse, DeleteAclsRequest, DeleteAclsResponse, DescribeAclsRequest,
    DescribeAclsResponse, create_acls_request, create_acls_response, delete_acls_request, delete_acls_response,
    describe_acls_response,
};
use fletchlog_records::ErrorCode;

use super::authorization::cluster_refused;
use super::{Call, Handled, TOO_LARGE, Unreadable};

/// A code that no request may use. Kafka: `UNKNOWN` of `ResourceType`, `PatternType`, `AclOperation`, `AclPermissionType`.
const UNKNOWN_CODE: i8 = 0;
/// Kafka closes the connection on such a request. Kafka: `CreateAclsRequest#validate`, `DescribeAclsRequest#normalizeAndValidate`.
const UNKNOWN: Unreadable =
    Unreadable::Refused("it names a type, a pattern, an operation or a permission that does not exist");

/// Why a request is refused as a whole.
type Refusal = (ErrorCode, Option<Arc<str>>);

/// Fails unless the client has this operation on the cluster and an authorizer is configured.
fn check(call: &Call<'_>, operation: AclOperation, no_authorizer: &str) -> Result<(), Refusal> {
    call.check_cluster(operation)
        .map_err(|error| (error, cluster_refused()))?;
    match call.broker().authorizer() {
        Some(_) => Ok(()),
        None => Err((ErrorCode::SECURITY_DISABLED, Some(no_authorizer.into()))),
    }
}

const NO_AUTHORIZER: &str = "No Authorizer is configured.";

fn refusal(error: &BrokerError) -> Refusal {
    (error.code(), Some(error.kafka_message().into()))
}

fn filter(
    kind: i8,
    name: Option<&Arc<str>>,
    pattern_type: i8,
    principal: Option<&Arc<str>>,
    host: Option<&Arc<str>>,
    operation: i8,
    permission_type: i8,
) -> Option<AclFilter> {
    let text = |text: Option<&Arc<str>>| text.map(ToString::to_string);
    Some(AclFilter {
        resource_type: ResourceType::from_code(kind)?,
        resource_name: text(name),
        pattern_type: PatternType::from_code(pattern_type)?,
        principal: text(principal),
        host: text(host),
        operation: AclOperation::from_code(operation)?,
        permission_type: PermissionType::from_code(permission_type)?,
    })
}

pub(super) fn describe_acls(call: &mut Call<'_>) -> Result<Handled, Unreadable> {
    let request: DescribeAclsRequest = call.message()?;
    let codes = [
        request.resource_type_filter,
        request.pattern_type_filter,
        request.operation,
        request.permission_type,
    ];
    if codes.contains(&UNKNOWN_CODE) {
        return Err(UNKNOWN);
    }
    let filter = filter(
        request.resource_type_filter,
        request.resource_name_filter.as_ref(),
        request.pattern_type_filter,
        request.principal_filter.as_ref(),
        request.host_filter.as_ref(),
        request.operation,
        request.permission_type,
    );
    let described = match check(
        call,
        AclOperation::Describe,
        "No Authorizer is configured on the broker",
    ) {
        Ok(()) => call
            .broker()
            .describe_acls(&filter.ok_or(UNKNOWN)?)
            .map_err(|error| refusal(&error)),
        Err(refused) => Err(refused),
    };
    call.answer(match described {
        Ok(acls) => DescribeAclsResponse {
            resources: resources(acls),
            ..Default::default()
        },
        Err((error, error_message)) => DescribeAclsResponse {
            error_code: error,
            error_message,
            ..Default::default()
        },
    })
}

/// Groups ACLs by their resources. The ACLs come sorted by resource.
fn resources(acls: Vec<Acl>) -> Vec<describe_acls_response::DescribeAclsResource> {
    let mut resources: Vec<describe_acls_response::DescribeAclsResource> = Vec::new();
    for acl in acls {
        let of = (
            acl.resource_type.code(),
            acl.resource_name.as_str(),
            acl.pattern_type.code(),
        );
        let description = describe_acls_response::AclDescription {
            principal: acl.principal.as_str().into(),
            host: acl.host.as_str().into(),
            operation: acl.operation.code(),
            permission_type: acl.permission_type.code(),
        };
        match resources.last_mut() {
            Some(last) if (last.resource_type, &*last.resource_name, last.pattern_type) == of => {
                last.acls.push(description)
            }
            _ => resources.push(describe_acls_response::DescribeAclsResource {
                resource_type: of.0,
                resource_name: of.1.into(),
                pattern_type: of.2,
                acls: vec![description],
            }),
        }
    }
    resources
}

fn acl(creation: &create_acls_request::AclCreation) -> Option<Acl> {
    Some(Acl {
        resource_type: ResourceType::from_code(creation.resource_type)?,
        resource_name: creation.resource_name.to_string(),
        pattern_type: PatternType::from_code(creation.resource_pattern_type)?,
        principal: creation.principal.to_string(),
        host: creation.host.to_string(),
        operation: AclOperation::from_code(creation.operation)?,
        permission_type: PermissionType::from_code(creation.permission_type)?,
    })
}

pub(super) fn create_acls(call: &mut Call<'_>) -> Result<Handled, Unreadable> {
    let request: CreateAclsRequest = call.message()?;
    let codes = |acl: &create_acls_request::AclCreation| {
        [
            acl.resource_type,
            acl.resource_pattern_type,
            acl.operation,
            acl.permission_type,
        ]
    };
    if request.creations.iter().any(|acl| codes(acl).contains(&UNKNOWN_CODE)) {
        return Err(UNKNOWN);
    }
    let result = |outcome: Result<(), Refusal>| {
        // Kafka sets no message, whose default is "".
        let (error, error_message) = outcome.err().unwrap_or((ErrorCode::NONE, Some(Arc::default())));
        create_acls_response::AclCreationResult {
            error_code: error,
            error_message,
        }
    };
    let results = match check(call, AclOperation::Alter, NO_AUTHORIZER) {
        Err(refused) => request.creations.iter().map(|_| result(Err(refused.clone()))).collect(),
        Ok(()) => {
            let acls = request
                .creations
                .iter()
                .map(acl)
                .collect::<Option<Vec<Acl>>>()
                .ok_or(UNKNOWN)?;
            let (good, outcomes) = validated(acls);
            let created = call.broker().create_acls(&good).map_err(|error| refusal(&error));
            outcomes
                .into_iter()
                .map(|outcome| result(outcome.and(created.clone())))
                .collect()
        }
    };
    call.answer(CreateAclsResponse {
        results,
        ..Default::default()
    })
}

/// Returns the valid ACLs, and the outcome of each entry.
fn validated(acls: Vec<Acl>) -> (Vec<Acl>, Vec<Result<(), Refusal>>) {
    let outcomes: Vec<_> = acls
        .iter()
        .map(|acl| acl.validate().map_err(|error| refusal(&error)))
        .collect();
    let good = acls.into_iter().zip(&outcomes).filter(|(_, outcome)| outcome.is_ok());
    (good.map(|(acl, _)| acl).collect(), outcomes)
}

pub(super) fn delete_acls(call: &mut Call<'_>) -> Result<Handled, Unreadable> {
    let request: DeleteAclsRequest = call.message()?;
    let codes = |filter: &delete_acls_request::DeleteAclsFilter| {
        [
            filter.resource_type_filter,
            filter.pattern_type_filter,
            filter.operation,
            filter.permission_type,
        ]
    };
    if request
        .filters
        .iter()
        .any(|filter| codes(filter).contains(&UNKNOWN_CODE))
    {
        return Err(UNKNOWN);
    }
    let meant = |asked: &delete_acls_request::DeleteAclsFilter| {
        filter(
            asked.resource_type_filter,
            asked.resource_name_filter.as_ref(),
            asked.pattern_type_filter,
            asked.principal_filter.as_ref(),
            asked.host_filter.as_ref(),
            asked.operation,
            asked.permission_type,
        )
    };
    let deleted = match check(call, AclOperation::Alter, NO_AUTHORIZER) {
        Err(refused) => Err(refused),
        Ok(()) => {
            let filters = request
                .filters
                .iter()
                .map(meant)
                .collect::<Option<Vec<_>>>()
                .ok_or(UNKNOWN)?;
            match call.broker().delete_acls(&filters, call.room().0) {
                Ok(deleted) => Ok(deleted.ok_or(TOO_LARGE)?),
                Err(error) => Err(refusal(&error)),
            }
        }
    };
    let filter_results = match deleted {
        Ok(of_filters) => of_filters.into_iter().map(deleted_by_filter).collect(),
        Err((error, error_message)) => {
            let refused = |_: &delete_acls_request::DeleteAclsFilter| delete_acls_response::DeleteAclsFilterResult {
                error_code: error,
                error_message: error_message.clone(),
                ..Default::default()
            };
            request.filters.iter().map(refused).collect()
        }
    };
    call.answer(DeleteAclsResponse {
        filter_results,
        ..Default::default()
    })
}

fn deleted_by_filter(acls: Vec<Acl>) -> delete_acls_response::DeleteAclsFilterResult {
    let deleted = |acl: Acl| delete_acls_response::DeleteAclsMatchingAcl {
        resource_type: acl.resource_type.code(),
        resource_name: acl.resource_name.as_str().into(),
        pattern_type: acl.pattern_type.code(),
        principal: acl.principal.as_str().into(),
        host: acl.host.as_str().into(),
        operation: acl.operation.code(),
        permission_type: acl.permission_type.code(),
        error_message: None,
        ..Default::default()
    };
    delete_acls_response::DeleteAclsFilterResult {
        error_message: None,
        matching_acls: acls.into_iter().map(deleted).collect(),
        ..Default::default()
    }
}
