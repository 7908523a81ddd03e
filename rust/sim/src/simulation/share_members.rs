//! Members of a share group. They accept, release, reject and renew; are slow, so that locks run out; are killed, and leave.

use std::sync::Arc;

use fletchlog_api::ErrorCode;
use fletchlog_client::ClientError;
use fletchlog_client::ShareConsumer;
use fletchlog_client::share_consumer::AcknowledgeType;
use fletchlog_records::TopicPartition;

use super::cluster::TOPIC;
use super::network::lock;
use super::share_tap::{ShareTap, tap};
use super::world::{Hand, values_of};
use crate::history::Action;
use crate::share_history::Offsets;

/// The group.
pub(super) const SHARE_GROUP: &str = "share-group";

/// One life of a member.
pub(super) struct ShareMember {
    pub consumer: ShareConsumer,
    /// Its client.id, by which the broker knows it.
    name: Arc<str>,
    explicit: bool,
    /// The records of the last poll that are not sent as acknowledged yet, and as what.
    said: Vec<(TopicPartition, i64, AcknowledgeType)>,
}

/// How an explicit member acknowledges.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Manner {
    /// As it comes.
    Any,
    /// It accepts everything.
    Accepts,
}

impl ShareMember {
    pub fn start(hand: &mut Hand, name: &str) -> Self {
        let plan = hand.world.plan.share.unwrap_or_default();
        let process = hand.world.recorder().process();
        hand.world
            .recorder()
            .note(process, Action::Note(format!("{name} begins")));
        let most = (1 + hand.rng.below(20)).to_string();
        let explicit = plan.explicit;
        let properties = [
            ("group.id", SHARE_GROUP),
            ("client.id", name),
            (
                "share.acknowledgement.mode",
                if explicit { "explicit" } else { "implicit" },
            ),
            (
                "share.acquire.mode",
                if plan.record_limit {
                    "record_limit"
                } else {
                    "batch_optimized"
                },
            ),
            ("max.poll.records", most.as_str()),
            ("request.timeout.ms", "2000"),
            ("retry.backoff.ms", "50"),
            ("fetch.max.wait.ms", "100"),
            ("default.api.timeout.ms", "3000"),
        ];
        let mut consumer = hand.share_consumer(process, &properties);
        if let Err(error) = consumer.subscribe(&[TOPIC.into()], &mut || false) {
            hand.surprise(format!("subscribe of a share consumer: {error}"));
        }
        Self {
            consumer,
            name: name.into(),
            explicit,
            said: Vec::new(),
        }
    }

    fn note(&self, hand: &Hand, note: impl FnOnce(&mut ShareTap)) {
        let shares = Arc::clone(&lock(&hand.world.net).shares);
        note(&mut tap(&shares));
    }

    /// Polls, and acknowledges what it got. Returns the number of records.
    pub fn poll(&mut self, hand: &mut Hand, manner: Manner) -> usize {
        let timeout = i64::try_from(hand.rng.below(150)).unwrap_or(0);
        // The poll sends what was acknowledged before.
        self.said.clear();
        let polled = match self.consumer.poll(None, timeout, &mut || false) {
            Ok(polled) => polled,
            Err(error) => {
                unless_expected(hand, &error);
                return 0;
            }
        };
        let mut records = Vec::new();
        for run in &polled.runs {
            let values = run.spans.iter().flat_map(values_of);
            records.extend(values.map(|(offset, value)| (run.tp.clone(), offset, value, run.delivery_count)));
        }
        self.note(hand, |shares| {
            for (tp, offset, value, deliveries) in &records {
                let at = (hand.world.number(tp), *offset);
                shares.polled(&self.name, at, *value, deliveries.unwrap_or(0));
            }
        });
        self.said = records
            .into_iter()
            .map(|(tp, offset, ..)| (tp, offset, AcknowledgeType::Accept))
            .collect();
        if manner == Manner::Any && !self.said.is_empty() && hand.rng.chance(80) {
            // Maybe longer than its locks last.
            let lock_ms = hand.world.plan.share.map_or(0, |plan| plan.lock_ms);
            hand.sleep_some(usize::try_from(2 * lock_ms).unwrap_or(0));
        }
        if self.explicit {
            self.acknowledge(hand, manner);
        }
        self.said.len()
    }

    fn acknowledge(&mut self, hand: &mut Hand, manner: Manner) {
        for (tp, offset, kind) in &mut self.said {
            *kind = match hand.rng.below(20) {
                _ if manner == Manner::Accepts => AcknowledgeType::Accept,
                0..3 => AcknowledgeType::Release,
                3 => AcknowledgeType::Reject,
                4..6 => AcknowledgeType::Renew,
                _ => AcknowledgeType::Accept,
            };
            if let Err(error) = self.consumer.acknowledge(tp, *offset, *offset, *kind) {
                hand.surprise(format!("acknowledge of {tp} at {offset}: {error}"));
            }
        }
    }

    /// Commits what is acknowledged, and notes what has taken effect.
    pub fn commit(&mut self, hand: &Hand) {
        let results = match self.consumer.commit_sync(3_000, &mut || false) {
            Ok(results) => results,
            Err(error) => return unless_expected(hand, &error),
        };
        let said = std::mem::take(&mut self.said);
        for (tp, offset, kind) in said {
            let mut of_partition = results.iter().filter(|(of, _)| *of == tp).peekable();
            if of_partition.peek().is_none() || !of_partition.all(|(_, result)| result.is_ok()) {
                continue;
            }
            let offsets = Offsets {
                partition: hand.world.number(&tp),
                first: offset,
                last: offset,
            };
            self.note(hand, |shares| shares.confirmed(&self.name, offsets, kind as i8));
        }
    }

    /// Leaves.
    pub fn close(mut self, hand: &Hand) {
        if let Err(error) = self.consumer.close(3_000, &mut || false) {
            unless_expected(hand, &error);
        }
    }
}

/// The lives of one member.
pub(super) fn member(hand: &mut Hand, index: usize) {
    let Some(plan) = hand.world.plan.share else { return };
    let mut lives = 0;
    while hand.in_chaos() {
        lives += 1;
        let mut member = ShareMember::start(hand, &format!("share-{index}-{lives}"));
        loop {
            member.poll(hand, Manner::Any);
            match hand.rng.below(10) {
                0..3 => member.commit(hand),
                3 => {
                    if let Err(error) = member.consumer.commit_async() {
                        unless_expected(hand, &error);
                    }
                }
                _ => {}
            }
            if !hand.in_chaos() {
                break;
            }
            if hand.strikes(plan.end_every_ms, 100) {
                break;
            }
            hand.sleep_some(150);
        }
        if hand.rng.chance(400) {
            member.close(hand);
        } // else it is killed
        hand.sleep_some(1_000);
    }
}

/// Errors that members may see while there are faults.
fn unless_expected(hand: &Hand, error: &ClientError) {
    match error {
        ClientError::Timeout(_) => {}
        ClientError::Kafka { code, .. } if code.is_retriable() => {}
        // As of any group, what is persisted of its members may be lost.
        ClientError::Kafka { code, .. }
            if hand.world.plan.loses_acknowledged()
                && [ErrorCode::GROUP_ID_NOT_FOUND, ErrorCode::UNKNOWN_MEMBER_ID].contains(code) => {}
        error => hand.surprise(format!("share member: {error}")),
    }
}
