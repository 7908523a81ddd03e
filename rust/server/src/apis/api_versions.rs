//! ApiVersions, and the table of what is served. Kafka: `ApiVersionManager`, `ApiVersionsRequest`.

use std::sync::PoisonError;

use fletchlog_protocol::ApiKey;
use fletchlog_protocol::header::ResponseHeader;
use fletchlog_protocol::messages::{ApiVersionsRequest, ApiVersionsResponse, api_versions_response};
use fletchlog_protocol::{Message, frame};
use fletchlog_records::ErrorCode;

use super::{
    CLOSED, Call, Handled, Handler, Unreadable, acls, cluster, configs, consumer_groups, features, fetch, group_admin,
    group_offsets, groups, metadata, offsets, produce, quorum, replicas, sasl, security, share_fetch, share_groups,
    topics, transaction_admin, transactions,
};

/// One served API.
struct Served {
    /// Its key.
    api: ApiKey,
    /// Lowest version that is accepted.
    min: i16,
    /// Highest version.
    max: i16,
    handler: Handler,
}

const fn served(api: ApiKey, min: i16, max: i16, handler: Handler) -> Served {
    Served { api, min, max, handler }
}

/// Highest version of ApiVersions.
const API_VERSIONS: i16 = 5;

/// Every served API, by key. A request for any other API closes its connection.
const SERVED: &[Served] = &[
    served(ApiKey::Produce, 3, 13, produce::produce),
    served(ApiKey::Fetch, 4, 18, fetch::fetch),
    served(ApiKey::ListOffsets, 1, 11, offsets::list_offsets),
    served(ApiKey::Metadata, 0, 13, metadata::metadata),
    served(ApiKey::OffsetCommit, 2, 10, group_offsets::offset_commit),
    served(ApiKey::OffsetFetch, 1, 10, group_offsets::offset_fetch),
    served(ApiKey::FindCoordinator, 0, 6, metadata::find_coordinator),
    served(ApiKey::JoinGroup, 0, 9, groups::join_group),
    served(ApiKey::Heartbeat, 0, 4, groups::heartbeat),
    served(ApiKey::LeaveGroup, 0, 5, groups::leave_group),
    served(ApiKey::SyncGroup, 0, 5, groups::sync_group),
    served(ApiKey::DescribeGroups, 0, 6, group_admin::describe_groups),
    served(ApiKey::ListGroups, 0, 5, group_admin::list_groups),
    served(ApiKey::SaslHandshake, 0, 1, sasl::sasl_handshake),
    served(ApiKey::ApiVersions, 0, API_VERSIONS, api_versions),
    served(ApiKey::CreateTopics, 2, 7, topics::create_topics),
    served(ApiKey::DeleteTopics, 1, 6, topics::delete_topics),
    served(ApiKey::DeleteRecords, 0, 2, topics::delete_records),
    served(ApiKey::InitProducerId, 0, 5, transactions::init_producer_id),
    served(ApiKey::OffsetForLeaderEpoch, 2, 4, offsets::offset_for_leader_epoch),
    served(ApiKey::AddPartitionsToTxn, 0, 5, transactions::add_partitions_to_txn),
    served(ApiKey::AddOffsetsToTxn, 0, 4, transactions::add_offsets_to_txn),
    served(ApiKey::EndTxn, 0, 5, transactions::end_txn),
    served(ApiKey::WriteTxnMarkers, 1, 2, transaction_admin::write_txn_markers),
    served(ApiKey::TxnOffsetCommit, 0, 6, group_offsets::txn_offset_commit),
    served(ApiKey::DescribeAcls, 1, 3, acls::describe_acls),
    served(ApiKey::CreateAcls, 1, 3, acls::create_acls),
    served(ApiKey::DeleteAcls, 1, 3, acls::delete_acls),
    served(ApiKey::DescribeConfigs, 1, 4, configs::describe_configs),
    served(ApiKey::AlterConfigs, 0, 2, configs::alter_configs),
    served(ApiKey::AlterReplicaLogDirs, 1, 2, replicas::alter_replica_log_dirs),
    served(ApiKey::DescribeLogDirs, 1, 5, cluster::describe_log_dirs),
    served(ApiKey::SaslAuthenticate, 0, 2, sasl::sasl_authenticate),
    served(ApiKey::CreatePartitions, 0, 3, topics::create_partitions),
    served(ApiKey::DeleteGroups, 0, 3, group_admin::delete_groups),
    served(ApiKey::ElectLeaders, 0, 2, replicas::elect_leaders),
    served(
        ApiKey::IncrementalAlterConfigs,
        0,
        1,
        configs::incremental_alter_configs,
    ),
    served(
        ApiKey::AlterPartitionReassignments,
        0,
        1,
        replicas::alter_partition_reassignments,
    ),
    served(
        ApiKey::ListPartitionReassignments,
        0,
        0,
        replicas::list_partition_reassignments,
    ),
    served(ApiKey::OffsetDelete, 0, 0, group_admin::offset_delete),
    served(ApiKey::DescribeClientQuotas, 0, 1, security::describe_client_quotas),
    served(
        ApiKey::DescribeUserScramCredentials,
        0,
        0,
        security::describe_user_scram_credentials,
    ),
    served(
        ApiKey::AlterUserScramCredentials,
        0,
        0,
        security::alter_user_scram_credentials,
    ),
    served(ApiKey::DescribeQuorum, 0, 2, quorum::describe_quorum),
    served(ApiKey::UpdateFeatures, 0, 2, features::update_features),
    served(ApiKey::DescribeCluster, 0, 2, cluster::describe_cluster),
    served(ApiKey::DescribeProducers, 0, 0, transaction_admin::describe_producers),
    served(
        ApiKey::DescribeTransactions,
        0,
        0,
        transaction_admin::describe_transactions,
    ),
    served(ApiKey::ListTransactions, 0, 2, transaction_admin::list_transactions),
    served(
        ApiKey::ConsumerGroupHeartbeat,
        0,
        1,
        consumer_groups::consumer_group_heartbeat,
    ),
    served(
        ApiKey::ConsumerGroupDescribe,
        0,
        1,
        consumer_groups::consumer_group_describe,
    ),
    served(ApiKey::ListConfigResources, 0, 1, configs::list_config_resources),
    served(
        ApiKey::DescribeTopicPartitions,
        0,
        0,
        cluster::describe_topic_partitions,
    ),
    served(ApiKey::ShareGroupHeartbeat, 1, 1, share_groups::share_group_heartbeat),
    served(ApiKey::ShareGroupDescribe, 1, 1, share_groups::share_group_describe),
    served(ApiKey::ShareFetch, 1, 2, share_fetch::share_fetch),
    served(ApiKey::ShareAcknowledge, 1, 2, share_fetch::share_acknowledge),
    served(
        ApiKey::InitializeShareGroupState,
        0,
        0,
        share_fetch::initialize_share_group_state,
    ),
    served(ApiKey::ReadShareGroupState, 0, 0, share_fetch::read_share_group_state),
    served(ApiKey::WriteShareGroupState, 0, 1, share_fetch::write_share_group_state),
    served(
        ApiKey::DeleteShareGroupState,
        0,
        0,
        share_fetch::delete_share_group_state,
    ),
    served(
        ApiKey::ReadShareGroupStateSummary,
        0,
        1,
        share_fetch::read_share_group_state_summary,
    ),
    served(
        ApiKey::DescribeShareGroupOffsets,
        0,
        1,
        share_groups::describe_share_group_offsets,
    ),
    served(
        ApiKey::AlterShareGroupOffsets,
        0,
        0,
        share_groups::alter_share_group_offsets,
    ),
    served(
        ApiKey::DeleteShareGroupOffsets,
        0,
        0,
        share_groups::delete_share_group_offsets,
    ),
];

/// Name, key, lowest and highest version of every served API, by key.
pub fn served_apis() -> impl Iterator<Item = (&'static str, i16, i16, i16)> {
    SERVED.iter().map(|s| (s.api.name(), s.api.code(), s.min, s.max))
}

/// The handler of a request, if it is served. ApiVersions is handled in any version: its response lists the served ones.
pub(super) fn handler(key: i16, version: i16) -> Option<(ApiKey, Handler)> {
    let served = SERVED.iter().find(|s| s.api.code() == key)?;
    let is_known = (served.min..=served.max).contains(&version) || served.api == ApiKey::ApiVersions;
    is_known.then_some((served.api, served.handler))
}

/// Why [`handler`] returned `None`.
pub(super) fn why_not_served(key: i16) -> String {
    match SERVED.iter().find(|s| s.api.code() == key) {
        Some(served) => format!("versions {} to {} are served", served.min, served.max),
        None => "this API is not served".to_owned(),
    }
}

/// The lowest version in the response. Old clients of librdkafka refuse a broker that does not list Produce from 0 on, and Kafka lists it
/// (KAFKA-18659).
fn advertised_min(served: &Served) -> i16 {
    if served.api == ApiKey::Produce { 0 } else { served.min }
}

fn api_versions(call: &mut Call<'_>) -> Result<Handled, Unreadable> {
    let keys = |only: Option<ApiKey>| {
        let chosen = SERVED.iter().filter(|s| only.is_none_or(|api| s.api == api));
        chosen
            .map(|s| api_versions_response::ApiVersion {
                api_key: s.api.code(),
                min_version: advertised_min(s),
                max_version: s.max,
            })
            .collect()
    };
    if !(0..=API_VERSIONS).contains(&call.version()) {
        // A newer client reads the response of version 0 and asks again.
        return unsupported(call, keys(Some(ApiKey::ApiVersions)));
    }
    let request: ApiVersionsRequest = call.message()?;
    let refused = |error_code| {
        call.answer(ApiVersionsResponse {
            error_code,
            ..Default::default()
        })
    };
    if call.version() >= 3 {
        let (name, version) = (&request.client_software_name, &request.client_software_version);
        if !is_valid_software(name) || !is_valid_software(version) {
            return refused(ErrorCode::INVALID_REQUEST);
        }
        if let Err(error) = check_destination(call, &request)? {
            return refused(error);
        }
        let mut software = call.peer.software.write().unwrap_or_else(PoisonError::into_inner);
        let is_new = software.is_empty();
        let first = |text: &str| text[..text.len().min(SOFTWARE_LETTERS)].to_owned();
        *software = format!("{} {}", first(name), first(version)).into();
        drop(software);
        if is_new {
            log::info!("connected: {}", call.peer.name());
        }
    }
    call.versions_answered();
    call.answer(ApiVersionsResponse {
        api_keys: keys(None),
        supported_features: features::supported(call.version()),
        finalized_features_epoch: call.broker().features_epoch(),
        finalized_features: features::finalized(call.broker()),
        ..Default::default()
    })
}

/// REBOOTSTRAP_REQUIRED, if the client meant another cluster or another node; it names both or neither. Kafka:
/// `KafkaApis#handleApiVersionsRequest`, `ApiVersionsRequest#isValid` (KIP-1242).
fn check_destination(call: &Call<'_>, request: &ApiVersionsRequest) -> Result<Result<(), ErrorCode>, Unreadable> {
    Ok(match (&request.cluster_id, request.node_id) {
        (None, NO_NODE) => Ok(()),
        (None, _) | (_, NO_NODE) => Err(ErrorCode::INVALID_REQUEST),
        (Some(cluster_id), node) => {
            let own = call.broker().cluster_id().map_err(|_| CLOSED)?;
            let is_meant = own.as_ref() == Some(cluster_id) && node == call.peer.port.node();
            is_meant.then_some(()).ok_or(ErrorCode::REBOOTSTRAP_REQUIRED)
        }
    })
}

/// In place of a node's id.
const NO_NODE: i32 = -1;

/// UNSUPPORTED_VERSION in the layout of version 0, which every client reads. Kafka: `ApiVersionsRequest#getErrorResponse`.
fn unsupported(call: &Call<'_>, api_keys: Vec<api_versions_response::ApiVersion>) -> Result<Handled, Unreadable> {
    let mut writer = frame::begin();
    let correlation_id = call.header.correlation_id;
    ResponseHeader { correlation_id }.encode(&mut writer, 0);
    let response = ApiVersionsResponse {
        error_code: ErrorCode::UNSUPPORTED_VERSION,
        api_keys,
        ..Default::default()
    };
    response.encode(&mut writer, 0)?;
    Ok(Handled::Answer(frame::finish(writer)?))
}

/// Length to which the name and the version of a client's software are cut.
const SOFTWARE_LETTERS: usize = 100;

/// Letters and digits, with `-` and `.` between. Kafka: `ApiVersionsRequest#SOFTWARE_NAME_VERSION_PATTERN`.
fn is_valid_software(text: &str) -> bool {
    let ends = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric());
    ends(text.chars().next())
        && ends(text.chars().next_back())
        && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '-' || c == '.')
}
