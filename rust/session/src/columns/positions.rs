//! Requests that look offsets up: committed ones, and those of times.

use fletchlog_protocol::Message;
use fletchlog_protocol::messages::{ListOffsetsRequest, ListOffsetsResponse, OffsetFetchRequest, OffsetFetchResponse};
use rustc_hash::FxHashMap;

use super::{Columns, NONE};
use crate::format::SessionError;
use crate::index::Exchange;
use crate::session::{Body, Session};

impl Columns {
    pub(super) fn offset_fetch(
        &mut self,
        session: &Session,
        exchange: &Exchange,
        place: i64,
    ) -> Result<(), SessionError> {
        let Some(Body { message: asks, .. }) = session.request_body::<OffsetFetchRequest>(exchange)? else {
            return Ok(());
        };
        let Some(Body { message: responds, .. }) = session.response_body::<OffsetFetchResponse>(exchange)? else {
            return Ok(());
        };
        self.throttled(place, &responds);
        // Before version 8 they are about one group.
        let asks = asks.of_version(exchange.version);
        let responds = responds.of_version(exchange.version);
        let mut has_failed = false;
        for group in &responds.groups {
            has_failed |= group.error_code.code() != 0;
            // An older response does not repeat its id.
            let named = match asks.groups.as_slice() {
                [only] if group.group_id.is_empty() => &only.group_id,
                _ => &group.group_id,
            };
            let of_group = self.text(named).into();
            for topic in &group.topics {
                let name = self.topic(session, &topic.name, &topic.topic_id);
                for partition in &topic.partitions {
                    let lane = self.lane(name, partition.partition_index).into();
                    let error = partition.error_code.code();
                    has_failed |= error != 0;
                    self.positions
                        .push([place, of_group, lane, NONE, partition.committed_offset, error.into()]);
                }
            }
        }
        if has_failed {
            self.failed.push([place]);
        }
        Ok(())
    }

    pub(super) fn list_offsets(
        &mut self,
        session: &Session,
        exchange: &Exchange,
        place: i64,
    ) -> Result<(), SessionError> {
        let Some(Body { message: asks, .. }) = session.request_body::<ListOffsetsRequest>(exchange)? else {
            return Ok(());
        };
        let Some(Body { message: responds, .. }) = session.response_body::<ListOffsetsResponse>(exchange)? else {
            return Ok(());
        };
        self.throttled(place, &responds);
        let mut asked = FxHashMap::default();
        for (topic, partition) in asks.partitions() {
            let name = self.text(topic);
            asked.insert(self.lane(name, partition.partition_index), partition.timestamp);
        }
        let mut has_failed = false;
        for (topic, partition) in responds.partitions() {
            let name = self.text(topic);
            let lane = self.lane(name, partition.partition_index);
            let timestamp = asked.get(&lane).copied().unwrap_or(NONE);
            let error = partition.error_code.code();
            has_failed |= error != 0;
            self.positions
                .push([place, NONE, lane.into(), timestamp, partition.offset, error.into()]);
        }
        if has_failed {
            self.failed.push([place]);
        }
        Ok(())
    }
}
