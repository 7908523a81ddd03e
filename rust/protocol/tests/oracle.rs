//! The crate `kafka-protocol` reads what we write, and writes what we read.

use std::ops::RangeInclusive;

use bytes::{Bytes, BytesMut};
use fletchlog_protocol::ApiKey;
use kafka_protocol::protocol::{Decodable, Encodable, Message, VersionRange};
use proptest::prelude::*;

use crate::messages::kinds;
use crate::properties::{all, generate};

/// One message of that crate.
struct Theirs {
    versions: VersionRange,
    /// Decodes a body and encodes it again.
    again: fn(&Bytes, i16) -> Result<Bytes, String>,
}

fn theirs<M: Message + Decodable + Encodable>() -> Theirs {
    Theirs {
        versions: M::VERSIONS,
        again: |body, version| {
            let mut rest = body.clone();
            let message = M::decode(&mut rest, version).map_err(|error| error.to_string())?;
            if !rest.is_empty() {
                return Err(format!("{} bytes left", rest.len()));
            }
            let mut out = BytesMut::new();
            message.encode(&mut out, version).map_err(|error| error.to_string())?;
            Ok(out.freeze())
        },
    }
}

macro_rules! oracle {
    ($($api:ident $request:ident $response:ident;)*) => {
        fn of(api: fletchlog_protocol::ApiKey) -> [Theirs; 2] {
            use kafka_protocol::messages::*;
            match api {
                $(fletchlog_protocol::ApiKey::$api => [theirs::<$request>(), theirs::<$response>()],)*
            }
        }
    };
}

fletchlog_protocol::for_each_api!(oracle);

fn shared(api: ApiKey, theirs: &Theirs) -> RangeInclusive<i16> {
    api.min_version().max(theirs.versions.min)..=api.max_version().min(theirs.versions.max)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn kafka_protocol_reads_and_writes_the_same_bytes(choices in prop::collection::vec(any::<u8>(), 0..400)) {
        for (api, kind, body) in all() {
            let [request, response] = of(api);
            let theirs = if kind.name.ends_with("Request") { request } else { response };
            if !shared(api, &theirs).contains(&body.version) {
                continue;
            }
            let what = format!("{} v{}", kind.name, body.version);
            let bytes = generate(kind, body, &choices);
            let (ours, _) = (kind.again)(bytes, body.version).unwrap();
            let ours = Bytes::from(ours.concat());
            let theirs = (theirs.again)(&ours, body.version).unwrap_or_else(|error| panic!("{what}: {error}"));
            prop_assert_eq!(&theirs, &ours, "{}", &what);
        }
    }
}

/// The comparison is worth something only while that crate knows what we know.
#[test]
fn kafka_protocol_has_all_our_versions_but_these() {
    let mut missing = Vec::new();
    for api in ApiKey::ALL {
        for (kind, theirs) in kinds(*api).iter().zip(of(*api)) {
            let versions = api.min_version()..=api.max_version();
            let alone = versions.filter(|version| !shared(*api, &theirs).contains(version));
            missing.extend(alone.map(|version| format!("{} v{version}", kind.name)));
        }
    }
    let not_in_kafka_4_1 = [
        "ListOffsetsRequest v11",
        "ListOffsetsResponse v11",
        "OffsetCommitRequest v10",
        "OffsetFetchRequest v10",
        "ApiVersionsRequest v5",
        "ApiVersionsResponse v5",
        "InitProducerIdRequest v6",
        "WriteTxnMarkersRequest v2",
        "WriteTxnMarkersResponse v2",
        "TxnOffsetCommitRequest v6",
        "TxnOffsetCommitResponse v6",
        "DescribeLogDirsRequest v5",
        "DescribeLogDirsResponse v5",
        "DeleteGroupsRequest v3",
        "DeleteGroupsResponse v3",
        "ShareFetchRequest v2",
        "ShareFetchResponse v2",
        "ShareAcknowledgeRequest v2",
        "ShareAcknowledgeResponse v2",
        "WriteShareGroupStateRequest v1",
        "WriteShareGroupStateResponse v1",
        "ReadShareGroupStateSummaryRequest v1",
        "ReadShareGroupStateSummaryResponse v1",
        "DescribeShareGroupOffsetsRequest v1",
        "DescribeShareGroupOffsetsResponse v1",
    ];
    assert_eq!(missing, not_in_kafka_4_1);
}
