//! The APIs whose messages are known here.

use crate::messages;
use crate::schema::FieldSpec;
use crate::table::Message;

/// Calls a macro with `Api Request Response;` of every API, by key.
#[macro_export]
macro_rules! for_each_api {
    ($callback:ident) => {
        $callback! {
            Produce ProduceRequest ProduceResponse;
            Fetch FetchRequest FetchResponse;
            ListOffsets ListOffsetsRequest ListOffsetsResponse;
            Metadata MetadataRequest MetadataResponse;
            OffsetCommit OffsetCommitRequest OffsetCommitResponse;
            OffsetFetch OffsetFetchRequest OffsetFetchResponse;
            FindCoordinator FindCoordinatorRequest FindCoordinatorResponse;
            JoinGroup JoinGroupRequest JoinGroupResponse;
            Heartbeat HeartbeatRequest HeartbeatResponse;
            LeaveGroup LeaveGroupRequest LeaveGroupResponse;
            SyncGroup SyncGroupRequest SyncGroupResponse;
            DescribeGroups DescribeGroupsRequest DescribeGroupsResponse;
            ListGroups ListGroupsRequest ListGroupsResponse;
            SaslHandshake SaslHandshakeRequest SaslHandshakeResponse;
            ApiVersions ApiVersionsRequest ApiVersionsResponse;
            CreateTopics CreateTopicsRequest CreateTopicsResponse;
            DeleteTopics DeleteTopicsRequest DeleteTopicsResponse;
            DeleteRecords DeleteRecordsRequest DeleteRecordsResponse;
            InitProducerId InitProducerIdRequest InitProducerIdResponse;
            OffsetForLeaderEpoch OffsetForLeaderEpochRequest OffsetForLeaderEpochResponse;
            AddPartitionsToTxn AddPartitionsToTxnRequest AddPartitionsToTxnResponse;
            AddOffsetsToTxn AddOffsetsToTxnRequest AddOffsetsToTxnResponse;
            EndTxn EndTxnRequest EndTxnResponse;
            WriteTxnMarkers WriteTxnMarkersRequest WriteTxnMarkersResponse;
            TxnOffsetCommit TxnOffsetCommitRequest TxnOffsetCommitResponse;
            DescribeAcls DescribeAclsRequest DescribeAclsResponse;
            CreateAcls CreateAclsRequest CreateAclsResponse;
            DeleteAcls DeleteAclsRequest DeleteAclsResponse;
            DescribeConfigs DescribeConfigsRequest DescribeConfigsResponse;
            AlterConfigs AlterConfigsRequest AlterConfigsResponse;
            AlterReplicaLogDirs AlterReplicaLogDirsRequest AlterReplicaLogDirsResponse;
            DescribeLogDirs DescribeLogDirsRequest DescribeLogDirsResponse;
            SaslAuthenticate SaslAuthenticateRequest SaslAuthenticateResponse;
            CreatePartitions CreatePartitionsRequest CreatePartitionsResponse;
            DeleteGroups DeleteGroupsRequest DeleteGroupsResponse;
            ElectLeaders ElectLeadersRequest ElectLeadersResponse;
            IncrementalAlterConfigs IncrementalAlterConfigsRequest IncrementalAlterConfigsResponse;
            AlterPartitionReassignments AlterPartitionReassignmentsRequest AlterPartitionReassignmentsResponse;
            ListPartitionReassignments ListPartitionReassignmentsRequest ListPartitionReassignmentsResponse;
            OffsetDelete OffsetDeleteRequest OffsetDeleteResponse;
            DescribeClientQuotas DescribeClientQuotasRequest DescribeClientQuotasResponse;
            AlterClientQuotas AlterClientQuotasRequest AlterClientQuotasResponse;
            DescribeUserScramCredentials DescribeUserScramCredentialsRequest DescribeUserScramCredentialsResponse;
            AlterUserScramCredentials AlterUserScramCredentialsRequest AlterUserScramCredentialsResponse;
            DescribeQuorum DescribeQuorumRequest DescribeQuorumResponse;
            UpdateFeatures UpdateFeaturesRequest UpdateFeaturesResponse;
            DescribeCluster DescribeClusterRequest DescribeClusterResponse;
            DescribeProducers DescribeProducersRequest DescribeProducersResponse;
            DescribeTransactions DescribeTransactionsRequest DescribeTransactionsResponse;
            ListTransactions ListTransactionsRequest ListTransactionsResponse;
            ConsumerGroupHeartbeat ConsumerGroupHeartbeatRequest ConsumerGroupHeartbeatResponse;
            ConsumerGroupDescribe ConsumerGroupDescribeRequest ConsumerGroupDescribeResponse;
            ListConfigResources ListConfigResourcesRequest ListConfigResourcesResponse;
            DescribeTopicPartitions DescribeTopicPartitionsRequest DescribeTopicPartitionsResponse;
            ShareGroupHeartbeat ShareGroupHeartbeatRequest ShareGroupHeartbeatResponse;
            ShareGroupDescribe ShareGroupDescribeRequest ShareGroupDescribeResponse;
            ShareFetch ShareFetchRequest ShareFetchResponse;
            ShareAcknowledge ShareAcknowledgeRequest ShareAcknowledgeResponse;
            InitializeShareGroupState InitializeShareGroupStateRequest InitializeShareGroupStateResponse;
            ReadShareGroupState ReadShareGroupStateRequest ReadShareGroupStateResponse;
            WriteShareGroupState WriteShareGroupStateRequest WriteShareGroupStateResponse;
            DeleteShareGroupState DeleteShareGroupStateRequest DeleteShareGroupStateResponse;
            ReadShareGroupStateSummary ReadShareGroupStateSummaryRequest ReadShareGroupStateSummaryResponse;
            DescribeShareGroupOffsets DescribeShareGroupOffsetsRequest DescribeShareGroupOffsetsResponse;
            AlterShareGroupOffsets AlterShareGroupOffsetsRequest AlterShareGroupOffsetsResponse;
            DeleteShareGroupOffsets DeleteShareGroupOffsetsRequest DeleteShareGroupOffsetsResponse;
        }
    };
}

macro_rules! api_keys {
    ($($api:ident $request:ident $response:ident;)*) => {
        /// An API, by Kafka's name. Kafka: `ApiKeys`.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[allow(missing_docs)]
        #[repr(i16)]
        pub enum ApiKey { $($api = messages::$request::API_KEY,)* }

        impl ApiKey {
            /// All of them, by key.
            pub const ALL: &'static [ApiKey] = &[$(ApiKey::$api,)*];

            /// The API with this code, if its messages are known here.
            pub fn from_code(code: i16) -> Option<Self> {
                match code {
                    $(messages::$request::API_KEY => Some(ApiKey::$api),)*
                    _ => None,
                }
            }

            /// The code on the wire.
            pub fn code(self) -> i16 {
                self as i16
            }

            /// Kafka's name, such as "Fetch".
            pub fn name(self) -> &'static str {
                match self { $(ApiKey::$api => stringify!($api),)* }
            }

            /// First version that can be decoded (Kafka's; a server may accept fewer).
            pub fn min_version(self) -> i16 {
                match self { $(ApiKey::$api => messages::$request::MIN_VERSION,)* }
            }

            /// Last version that can be decoded.
            pub fn max_version(self) -> i16 {
                match self { $(ApiKey::$api => messages::$request::MAX_VERSION,)* }
            }

            /// First version with compact lengths and tagged fields; `i16::MAX`: none has them.
            pub fn first_flexible_version(self) -> i16 {
                match self { $(ApiKey::$api => messages::$request::FIRST_FLEXIBLE_VERSION,)* }
            }

            /// Names and tables of the request and the response.
            pub(crate) fn tables(self) -> [(&'static str, &'static [FieldSpec]); 2] {
                match self {
                    $(ApiKey::$api => [
                        (messages::$request::NAME, messages::$request::TABLE),
                        (messages::$response::NAME, messages::$response::TABLE),
                    ],)*
                }
            }
        }
    };
}

for_each_api!(api_keys);

impl ApiKey {
    /// Oldest and newest version that fletchlog's clients can send, where they are fewer than this crate can encode.
    ///
    /// Produce 13 names topics by id alone, as TxnOffsetCommit 6, OffsetCommit 10 and OffsetFetch 10 do. AddPartitionsToTxn 4 is for brokers.
    /// JoinGroup 9 may ask a leader not to assign (KIP-814). A Metadata request below version 4 cannot forbid the creation of a topic.
    pub fn sent_versions(self) -> (i16, i16) {
        match self {
            Self::Produce => (3, 12),
            Self::Fetch => (4, 18),
            Self::Metadata => (4, 13),
            Self::JoinGroup => (0, 8),
            Self::OffsetCommit => (2, 9),
            Self::OffsetFetch => (1, 9),
            Self::InitProducerId => (0, 5),
            Self::AddPartitionsToTxn => (0, 3),
            Self::TxnOffsetCommit => (0, 5),
            // Version 0 is followed by bytes without headers.
            Self::SaslHandshake => (1, 1),
            other => (other.min_version(), other.max_version()),
        }
    }

    /// First version of the response whose client pauses for `throttle_time_ms`; `None`: it never does. Kafka:
    /// `AbstractResponse#shouldClientThrottle` of each response, release 4.4.0.
    pub(crate) fn first_throttling_version(self) -> Option<i16> {
        Some(match self {
            Self::ElectLeaders
            | Self::IncrementalAlterConfigs
            | Self::AlterPartitionReassignments
            | Self::ListPartitionReassignments
            | Self::OffsetDelete
            | Self::DescribeUserScramCredentials
            | Self::AlterUserScramCredentials
            | Self::DescribeTopicPartitions => 0,
            Self::DeleteRecords
            | Self::InitProducerId
            | Self::AddPartitionsToTxn
            | Self::AddOffsetsToTxn
            | Self::EndTxn
            | Self::TxnOffsetCommit
            | Self::DescribeAcls
            | Self::CreateAcls
            | Self::DeleteAcls
            | Self::AlterConfigs
            | Self::AlterReplicaLogDirs
            | Self::DescribeLogDirs
            | Self::CreatePartitions
            | Self::DeleteGroups => 1,
            Self::FindCoordinator
            | Self::Heartbeat
            | Self::LeaveGroup
            | Self::SyncGroup
            | Self::DescribeGroups
            | Self::ListGroups
            | Self::ApiVersions
            | Self::DeleteTopics
            | Self::DescribeConfigs => 2,
            Self::ListOffsets | Self::JoinGroup | Self::CreateTopics => 3,
            Self::OffsetCommit | Self::OffsetFetch => 4,
            Self::Produce | Self::Metadata => 6,
            Self::Fetch => 8,
            _ => return None,
        })
    }
}

/// Requests of Kafka 4.4 whose messages are not known here.
const OTHERS: &[(i16, &str)] = &[
    (4, "LeaderAndIsr"),
    (5, "StopReplica"),
    (6, "UpdateMetadata"),
    (7, "ControlledShutdown"),
    (38, "CreateDelegationToken"),
    (39, "RenewDelegationToken"),
    (40, "ExpireDelegationToken"),
    (41, "DescribeDelegationToken"),
    (52, "Vote"),
    (53, "BeginQuorumEpoch"),
    (54, "EndQuorumEpoch"),
    (56, "AlterPartition"),
    (58, "Envelope"),
    (59, "FetchSnapshot"),
    (62, "BrokerRegistration"),
    (63, "BrokerHeartbeat"),
    (64, "UnregisterBroker"),
    (67, "AllocateProducerIds"),
    (70, "ControllerRegistration"),
    (71, "GetTelemetrySubscriptions"),
    (72, "PushTelemetry"),
    (73, "AssignReplicasToDirs"),
    (80, "AddRaftVoter"),
    (81, "RemoveRaftVoter"),
    (82, "UpdateRaftVoter"),
    (88, "StreamsGroupHeartbeat"),
    (89, "StreamsGroupDescribe"),
    (93, "StreamsGroupTopologyDescriptionUpdate"),
    (94, "UnregisterController"),
];

/// Kafka's name of any of its requests, such as "Fetch" or "Vote"; `None`: Kafka has no such code.
pub fn api_name(code: i16) -> Option<&'static str> {
    let other = || OTHERS.iter().find(|(known, _)| *known == code).map(|(_, name)| *name);
    ApiKey::from_code(code).map(ApiKey::name).or_else(other)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_of_kafka_has_one_name() {
        let known = (0..=94).filter(|code| ApiKey::from_code(*code).is_some()).count();
        assert_eq!(known, ApiKey::ALL.len());
        assert!(OTHERS.iter().all(|(code, _)| ApiKey::from_code(*code).is_none()));
        let unnamed: Vec<i16> = (0..=95).filter(|code| api_name(*code).is_none()).collect();
        assert_eq!(unnamed, [95]);
        assert_eq!(
            (api_name(1), api_name(93)),
            (Some("Fetch"), Some("StreamsGroupTopologyDescriptionUpdate"))
        );
    }
}
