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
            TxnOffsetCommit TxnOffsetCommitRequest TxnOffsetCommitResponse;
            DescribeAcls DescribeAclsRequest DescribeAclsResponse;
            CreateAcls CreateAclsRequest CreateAclsResponse;
            DeleteAcls DeleteAclsRequest DeleteAclsResponse;
            DescribeConfigs DescribeConfigsRequest DescribeConfigsResponse;
            AlterConfigs AlterConfigsRequest AlterConfigsResponse;
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
            ListConfigResources ListConfigResourcesRequest ListConfigResourcesResponse;
            DescribeTopicPartitions DescribeTopicPartitionsRequest DescribeTopicPartitionsResponse;
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
