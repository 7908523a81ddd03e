//! ACLs from and to Python: `fletchlog.admin.AclBinding` and `AclFilter`.

use fletchlog_broker::{Acl, AclFilter, AclOperation, Coded, PatternType, PermissionType, ResourceType};
use fletchlog_protocol::messages::create_acls_request::AclCreation;
use fletchlog_protocol::messages::delete_acls_request::DeleteAclsFilter;
use fletchlog_protocol::messages::delete_acls_response::DeleteAclsMatchingAcl;
use fletchlog_protocol::messages::describe_acls_response::DescribeAclsResource;
use fletchlog_protocol::messages::{DescribeAclsRequest, describe_user_scram_credentials_response};
use fletchlog_sasl::{Mechanism, ScramMechanism};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

use crate::convert::{acl_binding_class, describe, each};
use crate::errors::Failure;

/// For what has no name here, as of a newer Kafka.
const UNKNOWN: &str = "UNKNOWN";

/// Type, name, principal, operation, permission, host, pattern type, as text.
type Fields = (
    String,
    Option<String>,
    Option<String>,
    String,
    String,
    Option<String>,
    String,
);

fn fields(class: &str, value: &Bound<'_, PyAny>) -> PyResult<Fields> {
    let expected = || {
        PyTypeError::new_err(format!(
            "expected fletchlog.admin.{class}(...), got {}",
            describe(value)
        ))
    };
    value
        .cast::<PyTuple>()
        .map_err(|_| expected())?
        .extract()
        .map_err(|_| expected())
}

fn coded<T: Coded>(what: &str, name: &str) -> Result<T, Failure> {
    let none = || {
        let text = format!("{what} is `{name}`: there is none of this name; the names are Kafka's, in capital letters");
        Failure::argument(text)
    };
    T::from_name(name).ok_or_else(none)
}

fn name_of<T: Coded>(code: i8) -> &'static str {
    T::from_code(code).map_or(UNKNOWN, Coded::name)
}

/// Takes an iterable of `AclBinding`.
pub fn acls_from_py(acls: &Bound<'_, PyAny>) -> PyResult<Vec<Acl>> {
    let acl = |value: Bound<'_, PyAny>| {
        let (kind, name, principal, operation, permission, host, pattern) = fields("AclBinding", &value)?;
        let (Some(name), Some(principal), Some(host)) = (name, principal, host) else {
            return Err(Failure::argument("an AclBinding has a resource_name, a principal and a host").into());
        };
        Ok(Acl {
            resource_type: coded("resource_type", &kind)?,
            resource_name: name,
            pattern_type: coded("pattern_type", &pattern)?,
            principal,
            host,
            operation: coded("operation", &operation)?,
            permission_type: coded("permission", &permission)?,
        })
    };
    if is_one(acls) {
        return Ok(vec![acl(acls.clone())?]);
    }
    each("an AclBinding or a list of them", acls)?
        .map(|value| acl(value?))
        .collect()
}

/// Takes an `AclFilter`.
pub fn filter_from_py(value: &Bound<'_, PyAny>) -> PyResult<AclFilter> {
    let (kind, name, principal, operation, permission, host, pattern) = fields("AclFilter", value)?;
    Ok(AclFilter {
        resource_type: coded("resource_type", &kind)?,
        resource_name: name,
        pattern_type: coded("pattern_type", &pattern)?,
        principal,
        host,
        operation: coded("operation", &operation)?,
        permission_type: coded("permission", &permission)?,
    })
}

/// Takes an `AclFilter`; without one, that which matches every ACL.
pub fn filter_or_all(py: Python<'_>, filter: Option<&Bound<'_, PyAny>>) -> PyResult<AclFilter> {
    match filter {
        Some(filter) => filter_from_py(filter),
        None => filter_from_py(&py.import("fletchlog.admin")?.call_method0("AclFilter")?),
    }
}

/// Takes one `AclFilter`, or an iterable of them.
pub fn filters_from_py(value: &Bound<'_, PyAny>) -> PyResult<Vec<AclFilter>> {
    if is_one(value) {
        return Ok(vec![filter_from_py(value)?]);
    }
    each("an AclFilter or a list of them", value)?
        .map(|filter| filter_from_py(&filter?))
        .collect()
}

/// Whether the value is one named tuple, not a collection of them.
fn is_one(value: &Bound<'_, PyAny>) -> bool {
    value
        .cast::<PyTuple>()
        .is_ok_and(|tuple| tuple.get_item(0).is_ok_and(|first| !first.is_instance_of::<PyTuple>()))
}

/// For a request to a cluster.
pub fn creation_of(acl: &Acl) -> AclCreation {
    AclCreation {
        resource_type: acl.resource_type.code(),
        resource_name: acl.resource_name.as_str().into(),
        resource_pattern_type: acl.pattern_type.code(),
        principal: acl.principal.as_str().into(),
        host: acl.host.as_str().into(),
        operation: acl.operation.code(),
        permission_type: acl.permission_type.code(),
    }
}

/// For a request to a cluster.
pub fn request_of(filter: &AclFilter) -> DescribeAclsRequest {
    let DeleteAclsFilter {
        resource_type_filter,
        resource_name_filter,
        pattern_type_filter,
        principal_filter,
        host_filter,
        operation,
        permission_type,
        ..
    } = deletion_of(filter);
    DescribeAclsRequest {
        resource_type_filter,
        resource_name_filter,
        pattern_type_filter,
        principal_filter,
        host_filter,
        operation,
        permission_type,
    }
}

/// For a request to a cluster.
pub fn deletion_of(filter: &AclFilter) -> DeleteAclsFilter {
    let text = |text: &Option<String>| text.as_deref().map(Into::into);
    DeleteAclsFilter {
        resource_type_filter: filter.resource_type.code(),
        resource_name_filter: text(&filter.resource_name),
        pattern_type_filter: filter.pattern_type.code(),
        principal_filter: text(&filter.principal),
        host_filter: text(&filter.host),
        operation: filter.operation.code(),
        permission_type: filter.permission_type.code(),
    }
}

/// `AclBinding`s of the engine's ACLs.
pub fn acls_to_py<'py>(py: Python<'py>, acls: &[Acl]) -> PyResult<Vec<Bound<'py, PyAny>>> {
    let class = acl_binding_class(py)?;
    let binding = |acl: &Acl| {
        class.call1((
            acl.resource_type.name(),
            &acl.resource_name,
            &acl.principal,
            acl.operation.name(),
            acl.permission_type.name(),
            &acl.host,
            acl.pattern_type.name(),
        ))
    };
    acls.iter().map(binding).collect()
}

/// `AclBinding`s of what a cluster described, sorted.
pub fn described_to_py<'py>(py: Python<'py>, resources: Vec<DescribeAclsResource>) -> PyResult<Vec<Bound<'py, PyAny>>> {
    let deleted = resources.into_iter().flat_map(|resource| {
        resource.acls.into_iter().map(move |acl| DeleteAclsMatchingAcl {
            resource_type: resource.resource_type,
            resource_name: resource.resource_name.clone(),
            pattern_type: resource.pattern_type,
            principal: acl.principal,
            host: acl.host,
            operation: acl.operation,
            permission_type: acl.permission_type,
            ..Default::default()
        })
    });
    deleted_to_py(py, deleted.collect())
}

/// `AclBinding`s of what a cluster deleted, sorted.
pub fn deleted_to_py<'py>(py: Python<'py>, mut acls: Vec<DeleteAclsMatchingAcl>) -> PyResult<Vec<Bound<'py, PyAny>>> {
    let key = |acl: &DeleteAclsMatchingAcl| {
        let resource = (acl.resource_type, acl.resource_name.clone(), acl.pattern_type);
        (
            resource,
            acl.principal.clone(),
            acl.host.clone(),
            acl.operation,
            acl.permission_type,
        )
    };
    acls.sort_by_key(key);
    acls.dedup_by_key(|acl| key(acl));
    let class = acl_binding_class(py)?;
    let binding = |acl: &DeleteAclsMatchingAcl| {
        class.call1((
            name_of::<ResourceType>(acl.resource_type),
            &*acl.resource_name,
            &*acl.principal,
            name_of::<AclOperation>(acl.operation),
            name_of::<PermissionType>(acl.permission_type),
            &*acl.host,
            name_of::<PatternType>(acl.pattern_type),
        ))
    };
    acls.iter().map(binding).collect()
}

/// Parses SCRAM-SHA-256 or SCRAM-SHA-512.
pub fn scram_mechanism(name: &str) -> Result<ScramMechanism, Failure> {
    match Mechanism::from_name(name) {
        Some(Mechanism::Scram(mechanism)) => Ok(mechanism),
        _ => Err(Failure::argument(format!(
            "mechanism must be SCRAM-SHA-256 or SCRAM-SHA-512, not `{name}`"
        ))),
    }
}

/// `{user: {mechanism: iterations}}` of what a cluster described.
pub fn users_to_py(
    py: Python<'_>,
    users: Vec<describe_user_scram_credentials_response::DescribeUserScramCredentialsResult>,
) -> PyResult<Bound<'_, PyDict>> {
    let all = PyDict::new(py);
    for user in users {
        let of_user = PyDict::new(py);
        for info in user.credential_infos {
            let name = ScramMechanism::from_code(info.mechanism).map_or(UNKNOWN, ScramMechanism::name);
            of_user.set_item(name, info.iterations)?;
        }
        all.set_item(&*user.user, of_user)?;
    }
    Ok(all)
}
