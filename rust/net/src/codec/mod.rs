//! Converts requests and responses of the clients to and from messages of the wire, at the version that was negotiated.
//!
//! A value for which a version has no field is left out if the table of `protocol` says `ignorable`; otherwise the request is refused,
//! since leaving it out would change what the request means.

mod cluster;
mod log;

use std::sync::Arc;

use fletchlog_api::{
    FetchRequest, FetchResponse, FindCoordinatorResponse, ProduceRequest, ProduceResponse, Request, Response,
    list_offsets,
};
use fletchlog_protocol::by_topic::grouped;
use fletchlog_protocol::{ApiKey, Message, Reader, WireError, Writer};
use fletchlog_records::TopicPartition;

use crate::address_book::AddressBook;

/// The pause that the node asks for, ms.
type Throttle = i32;

/// The API of a request.
pub(crate) fn api_of(request: &Request) -> ApiKey {
    match request {
        Request::Produce(_) => ApiKey::Produce,
        Request::Fetch(_) => ApiKey::Fetch,
        Request::ListOffsets(_) => ApiKey::ListOffsets,
        Request::OffsetForLeaderEpoch(_) => ApiKey::OffsetForLeaderEpoch,
        Request::Metadata(_) => ApiKey::Metadata,
        Request::InitProducerId(_) => ApiKey::InitProducerId,
        Request::AddPartitionsToTxn(_) => ApiKey::AddPartitionsToTxn,
        Request::AddOffsetsToTxn(_) => ApiKey::AddOffsetsToTxn,
        Request::TxnOffsetCommit(_) => ApiKey::TxnOffsetCommit,
        Request::EndTxn(_) => ApiKey::EndTxn,
        Request::FindCoordinator(_) => ApiKey::FindCoordinator,
        Request::JoinGroup(_) => ApiKey::JoinGroup,
        Request::SyncGroup(_) => ApiKey::SyncGroup,
        Request::Heartbeat(_) => ApiKey::Heartbeat,
        Request::LeaveGroup(_) => ApiKey::LeaveGroup,
        Request::OffsetCommit(_) => ApiKey::OffsetCommit,
        Request::OffsetFetch(_) => ApiKey::OffsetFetch,
    }
}

/// The newest version that can carry a request.
pub(crate) fn newest_version(request: &Request) -> i16 {
    match request {
        Request::Fetch(fetch) => FetchRequest::newest_version(fetch),
        _ => i16::MAX,
    }
}

/// Refuses a request that would mean something else in this version. Kafka: `ListOffsetsRequest.Builder#forConsumer`.
pub(crate) fn check(request: &Request, version: i16) -> Result<(), &'static str> {
    let Request::ListOffsets(request) = request else {
        return Ok(());
    };
    let needed = request.partitions.iter().map(|&(_, _, timestamp)| match timestamp {
        list_offsets::MAX_TIMESTAMP => 7,
        list_offsets::EARLIEST_LOCAL_TIMESTAMP => 8,
        list_offsets::LATEST_TIERED_TIMESTAMP => 9,
        list_offsets::EARLIEST_PENDING_UPLOAD_TIMESTAMP => 11,
        _ => 0,
    });
    match needed.max() {
        Some(needed) if needed > version => Err("its version of ListOffsets does not know this special timestamp"),
        _ => Ok(()),
    }
}

/// Most bytes of records that the response should have.
pub(crate) fn bytes_asked_for(request: &Request) -> usize {
    match request {
        Request::Fetch(fetch) => usize::try_from(fetch.max_bytes).unwrap_or(0),
        _ => 0,
    }
}

/// Takes the place of the response for a request that has none (acks=0).
pub(crate) fn no_answer() -> Response {
    Response::Produce(ProduceResponse::default())
}

/// Writes the body of a request. `rack`: client.rack.
pub(crate) fn encode(request: Request, rack: &Arc<str>, version: i16, w: &mut Writer) -> Result<(), WireError> {
    match request {
        Request::Produce(request) => ProduceRequest::for_version(request, version).encode(w, version),
        Request::Fetch(mut request) => {
            request.rack_id = Arc::clone(rack);
            request.for_version(version).encode(w, version)
        }
        Request::ListOffsets(request) => log::list_offsets(request, version, w),
        Request::OffsetForLeaderEpoch(request) => log::offset_for_leader_epoch(request, version, w),
        Request::Metadata(request) => cluster::metadata(request, version, w),
        Request::FindCoordinator(request) => request.for_version(version).encode(w, version),
        Request::InitProducerId(request) => request.encode(w, version),
        Request::AddPartitionsToTxn(request) => request.encode(w, version),
        Request::AddOffsetsToTxn(request) => request.encode(w, version),
        Request::TxnOffsetCommit(request) => request.encode(w, version),
        Request::EndTxn(request) => request.encode(w, version),
        Request::JoinGroup(request) => request.encode(w, version),
        Request::SyncGroup(request) => request.encode(w, version),
        Request::Heartbeat(request) => request.encode(w, version),
        Request::LeaveGroup(request) => request.for_version(version).encode(w, version),
        Request::OffsetCommit(request) => request.encode(w, version),
        Request::OffsetFetch(request) => request.for_version(version).encode(w, version),
    }
}

/// Reads the body of a response; addresses in it go into the address book.
pub(crate) fn decode(
    api: ApiKey,
    version: i16,
    r: &mut Reader,
    book: &mut AddressBook,
) -> Result<(Response, Throttle), WireError> {
    macro_rules! whole {
        ($api:ident, $response:ty) => {{
            let response = <$response>::decode(r, version)?.of_version(version);
            let throttle_ms = response.throttle_time_ms;
            Ok((Response::$api(response), throttle_ms))
        }};
    }
    match api {
        ApiKey::Produce => whole!(Produce, ProduceResponse),
        ApiKey::Fetch => whole!(Fetch, FetchResponse),
        ApiKey::ListOffsets => log::listed_offsets(version, r),
        ApiKey::OffsetForLeaderEpoch => log::epoch_ends(version, r),
        ApiKey::Metadata => cluster::metadata_answer(version, r, book),
        ApiKey::FindCoordinator => {
            let mut response = FindCoordinatorResponse::decode(r, version)?.of_version(version);
            cluster::note_coordinators(&mut response, book);
            let throttle_ms = response.throttle_time_ms;
            Ok((Response::FindCoordinator(response), throttle_ms))
        }
        ApiKey::InitProducerId => whole!(InitProducerId, fletchlog_api::InitProducerIdResponse),
        ApiKey::AddPartitionsToTxn => whole!(AddPartitionsToTxn, fletchlog_api::AddPartitionsToTxnResponse),
        ApiKey::AddOffsetsToTxn => whole!(AddOffsetsToTxn, fletchlog_api::AddOffsetsToTxnResponse),
        ApiKey::TxnOffsetCommit => whole!(TxnOffsetCommit, fletchlog_api::TxnOffsetCommitResponse),
        ApiKey::EndTxn => whole!(EndTxn, fletchlog_api::EndTxnResponse),
        ApiKey::JoinGroup => whole!(JoinGroup, fletchlog_api::JoinGroupResponse),
        ApiKey::SyncGroup => whole!(SyncGroup, fletchlog_api::SyncGroupResponse),
        ApiKey::Heartbeat => whole!(Heartbeat, fletchlog_api::HeartbeatResponse),
        ApiKey::LeaveGroup => whole!(LeaveGroup, fletchlog_api::LeaveGroupResponse),
        ApiKey::OffsetCommit => whole!(OffsetCommit, fletchlog_api::OffsetCommitResponse),
        // `api_of` returns no other API.
        _ => whole!(OffsetFetch, fletchlog_api::OffsetFetchResponse),
    }
}

/// A topic and values of its partitions.
type OfTopic<T> = (Arc<str>, Vec<(i32, T)>);

/// Partitions by topic: topics in the order of their first partition, partitions in the order given.
fn by_topic<T>(partitions: impl IntoIterator<Item = (TopicPartition, T)>) -> Vec<OfTopic<T>> {
    grouped(
        partitions
            .into_iter()
            .map(|(tp, value)| (tp.topic, (tp.partition, value))),
    )
}

/// The partitions of all topics in one list.
fn flat<P, T>(
    topics: impl IntoIterator<Item = (Arc<str>, Vec<P>)>,
    mut value: impl FnMut(&Arc<str>, P) -> T,
) -> Vec<T> {
    let mut all = Vec::new();
    for (topic, partitions) in topics {
        all.extend(partitions.into_iter().map(|partition| value(&topic, partition)));
    }
    all
}

fn tp(topic: &Arc<str>, partition: i32) -> TopicPartition {
    TopicPartition {
        topic: Arc::clone(topic),
        partition,
    }
}
