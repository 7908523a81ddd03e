//! Groups as `Broker` describes them.

use fletchlog_broker::{GroupDescription, GroupListing, GroupMember};
use fletchlog_client::group::protocol::Assignment;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::convert::{group_description_class, group_listing_class, group_member_class, partitions_to_py};

/// `GroupListing`.
pub fn listing_to_py(py: Python<'_>, group: &GroupListing) -> PyResult<Py<PyAny>> {
    let row = (&*group.group_id, &*group.protocol_type, group.state, group.coordinator);
    Ok(group_listing_class(py)?.call1(row)?.unbind())
}

/// `GroupDescription`.
pub fn description_to_py(py: Python<'_>, group: &GroupDescription) -> PyResult<Py<PyAny>> {
    let is_consumer = &*group.protocol_type == "consumer";
    let members = group.members.iter().map(|member| member_to_py(py, member, is_consumer));
    let row = (
        &*group.group_id,
        group.state,
        &*group.protocol_type,
        &*group.protocol,
        members.collect::<PyResult<Vec<_>>>()?,
        group.coordinator,
    );
    Ok(group_description_class(py)?.call1(row)?.unbind())
}

/// What the leader of another type of group assigned means nothing here: such a member has no partitions.
fn member_to_py(py: Python<'_>, member: &GroupMember, is_consumer: bool) -> PyResult<Py<PyAny>> {
    let assigned = is_consumer
        .then(|| Assignment::decode(&member.assignment).ok())
        .flatten();
    let partitions = assigned.map(|assigned| assigned.partitions).unwrap_or_default();
    let row = (
        &*member.member_id,
        member.group_instance_id.as_deref(),
        &*member.client_id,
        &*member.client_host,
        partitions_to_py(py, &partitions)?,
        PyBytes::new(py, &member.metadata),
        PyBytes::new(py, &member.assignment),
    );
    Ok(group_member_class(py)?.call1(row)?.unbind())
}
