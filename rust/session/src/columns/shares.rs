//! Requests of share groups: what they acknowledge and acquire, and the partitions of the share session between them (KIP-932).

use fletchlog_protocol::messages::{
    ShareAcknowledgeRequest, ShareAcknowledgeResponse, ShareFetchRequest, ShareFetchResponse,
};
use rustc_hash::FxHashMap;

use super::{Columns, NONE, number};
use crate::batches::batches_of;
use crate::fetch_sessions::number_of;
use crate::format::SessionError;
use crate::index::Exchange;
use crate::session::{Body, Session};

/// Of what a row has of a request.
pub(super) const NAMES: [&str; 17] = [
    "place",
    "group",
    "member",
    "epoch",
    "wanted",
    "max_records",
    "batch_size",
    "max_wait_ms",
    "min_bytes",
    "max_bytes",
    "acquire_mode",
    "renews",
    "lock_ms",
    "error",
    "acknowledged",
    "acquired",
    "size",
];
/// Ends a share session. Kafka: `ShareRequestMetadata#FINAL_EPOCH`.
const FINAL_EPOCH: i32 = -1;

impl Columns {
    pub(super) fn share_fetch(
        &mut self,
        session: &Session,
        exchange: &Exchange,
        place: i64,
    ) -> Result<(), SessionError> {
        let Some(Body { message: asks, .. }) = session.request_body::<ShareFetchRequest>(exchange)? else {
            return Ok(());
        };
        let responds = session.response_body::<ShareFetchResponse>(exchange)?;
        let member = self.text(asks.member_id.as_deref().unwrap_or_default());
        let known = self.share_sessions.remove(&(exchange.connection, member));
        let mut lanes = known.filter(|_| asks.share_session_epoch != 0).unwrap_or_default();
        for topic in &asks.forgotten_topics_data {
            let name = self.topic(session, "", &topic.topic_id);
            for partition in &topic.partitions {
                let forgotten = self.lane(name, *partition);
                lanes.retain(|lane| *lane != forgotten);
            }
        }
        let (acknowledged_from, acquired_from) = (self.acknowledged.rows(), self.acquired.rows());
        let (mut error, mut lock_ms, mut size, mut errors) = (0, 0, 0, FxHashMap::default());
        if let Some(responds) = &responds {
            error = responds.message.error_code.code().into();
            lock_ms = responds.message.acquisition_lock_timeout_ms.into();
            (size, errors) = self.acquires(session, place, responds);
        }
        for topic in &asks.topics {
            let name = self.topic(session, "", &topic.topic_id);
            for partition in &topic.partitions {
                let lane = self.lane(name, partition.partition_index);
                if !lanes.contains(&lane) {
                    lanes.push(lane);
                }
                for batch in &partition.acknowledgement_batches {
                    let offsets = (batch.first_offset, batch.last_offset);
                    self.acknowledges(lane, offsets, &batch.acknowledge_types, (error, &errors));
                }
            }
        }
        let wanted = self.sessions.number(&lanes, &mut self.wanted);
        if asks.share_session_epoch != FINAL_EPOCH {
            self.share_sessions.insert((exchange.connection, member), lanes);
        }
        let group = self.text(asks.group_id.as_deref().unwrap_or_default());
        self.shares.push([
            place,
            group.into(),
            member.into(),
            asks.share_session_epoch.into(),
            wanted.into(),
            asks.max_records.into(),
            asks.batch_size.into(),
            asks.max_wait_ms.into(),
            asks.min_bytes.into(),
            asks.max_bytes.into(),
            asks.share_acquire_mode.into(),
            asks.is_renew_ack.into(),
            lock_ms,
            error,
            acknowledged_from,
            acquired_from,
            size,
        ]);
        Ok(())
    }

    /// What a response hands out: bytes, and by partition the error of what was acknowledged.
    fn acquires(
        &mut self,
        session: &Session,
        place: i64,
        responds: &Body<ShareFetchResponse>,
    ) -> (i64, FxHashMap<u32, i64>) {
        self.throttled(place, &responds.message);
        let mut has_failed = responds.message.error_code.code() != 0;
        let (mut size, mut errors) = (0_i64, FxHashMap::default());
        for topic in &responds.message.responses {
            let name = self.topic(session, "", &topic.topic_id);
            for partition in &topic.partitions {
                let lane = self.lane(name, partition.partition_index);
                let error = i64::from(partition.acknowledge_error_code.code());
                errors.insert(lane, error);
                has_failed |= error != 0 || partition.error_code.code() != 0;
                let records = partition.records.iter();
                let batches: Vec<_> = records
                    .flat_map(|records| batches_of(records.clone(), responds.is_stripped))
                    .collect();
                for batch in &batches {
                    size = size.saturating_add(number(batch.size));
                }
                for acquired in &partition.acquired_records {
                    let (first, last) = (acquired.first_offset, acquired.last_offset);
                    let from = batches.partition_point(|batch| batch.last_offset < first);
                    let of = batches[from..].iter().take_while(|batch| batch.base_offset <= last);
                    let written_ms = of.map(|batch| batch.max_timestamp).max().unwrap_or(-1);
                    self.acquired
                        .push([lane.into(), first, last, acquired.delivery_count.into(), written_ms]);
                }
            }
        }
        if has_failed {
            self.failed.push([place]);
        }
        (size, errors)
    }

    pub(super) fn share_acknowledge(
        &mut self,
        session: &Session,
        exchange: &Exchange,
        place: i64,
    ) -> Result<(), SessionError> {
        let Some(Body { message: asks, .. }) = session.request_body::<ShareAcknowledgeRequest>(exchange)? else {
            return Ok(());
        };
        let (mut error, mut lock_ms, mut errors) = (0, 0, FxHashMap::default());
        if let Some(Body { message: responds, .. }) = session.response_body::<ShareAcknowledgeResponse>(exchange)? {
            self.throttled(place, &responds);
            error = responds.error_code.code().into();
            lock_ms = responds.acquisition_lock_timeout_ms.into();
            for topic in &responds.responses {
                let name = self.topic(session, "", &topic.topic_id);
                for partition in &topic.partitions {
                    let lane = self.lane(name, partition.partition_index);
                    errors.insert(lane, partition.error_code.code().into());
                }
            }
            if error != 0 || errors.values().any(|error| *error != 0) {
                self.failed.push([place]);
            }
        }
        let (acknowledged_from, acquired_from) = (self.acknowledged.rows(), self.acquired.rows());
        for topic in &asks.topics {
            let name = self.topic(session, "", &topic.topic_id);
            for partition in &topic.partitions {
                let lane = self.lane(name, partition.partition_index);
                for batch in &partition.acknowledgement_batches {
                    let offsets = (batch.first_offset, batch.last_offset);
                    self.acknowledges(lane, offsets, &batch.acknowledge_types, (error, &errors));
                }
            }
        }
        let group = self.text(asks.group_id.as_deref().unwrap_or_default());
        let member = self.text(asks.member_id.as_deref().unwrap_or_default());
        if asks.share_session_epoch == FINAL_EPOCH {
            self.share_sessions.remove(&(exchange.connection, member));
        }
        let mut row = [0; 17];
        row[..5].copy_from_slice(&[
            place,
            group.into(),
            member.into(),
            asks.share_session_epoch.into(),
            NONE,
        ]);
        row[11..16].copy_from_slice(&[
            asks.is_renew_ack.into(),
            lock_ms,
            error,
            acknowledged_from,
            acquired_from,
        ]);
        self.shares.push(row);
        Ok(())
    }

    /// `errors`: that of the response, and those of its partitions.
    fn acknowledges(&mut self, lane: u32, offsets: (i64, i64), types: &[i8], errors: (i64, &FxHashMap<u32, i64>)) {
        let kind = number_of(types, &mut self.type_numbers, &mut self.types);
        let error = match errors {
            (0, of_partitions) => of_partitions.get(&lane).copied().unwrap_or(0),
            (error, _) => error,
        };
        self.acknowledged
            .push([lane.into(), offsets.0, offsets.1, kind.into(), error]);
    }
}
