//! One node's fetch session, client side (spec 7.3). Kafka: `FetchSessionHandler`.

use std::sync::Arc;

use fletchlog_api::{ErrorCode, FetchRequest, FetchResponse, NO_TOPIC_ID, PartitionStates, TopicId, topic_id_of};
use fletchlog_protocol::local::FetchTopicIds;
use fletchlog_protocol::messages::fetch_request::{FetchPartition, FetchTopic, ForgottenTopic};
use fletchlog_records::TopicPartition;
use rustc_hash::{FxHashMap, FxHashSet};

/// What is wanted of a partition.
#[derive(Debug, Clone, PartialEq)]
pub struct Wanted {
    /// Id of its topic; [`NO_TOPIC_ID`] if it is not known.
    pub topic_id: TopicId,
    /// As the request has it.
    pub partition: FetchPartition,
}

/// The topics of a session's partitions by their ids. Kafka: `FetchSessionHandler#sessionTopicNames`.
#[derive(Debug, Clone, Default)]
struct SessionTopics {
    /// Topic name, and the number of the session's partitions with this id.
    names: FxHashMap<TopicId, (Arc<str>, usize)>,
    /// Partitions whose topic has no known id.
    without_id: usize,
}

impl SessionTopics {
    fn add(&mut self, topic: &Arc<str>, topic_id: TopicId) {
        if topic_id == NO_TOPIC_ID {
            self.without_id += 1;
            return;
        }
        self.names.entry(topic_id).or_insert_with(|| (Arc::clone(topic), 0)).1 += 1;
    }

    fn remove(&mut self, topic_id: TopicId) {
        if topic_id == NO_TOPIC_ID {
            self.without_id -= 1;
        } else if let Some((_, count)) = self.names.get_mut(&topic_id) {
            *count -= 1;
            if *count == 0 {
                self.names.remove(&topic_id);
            }
        }
    }
}

/// The client's view of the session: its partitions in the order in which they were added, with the last request's
/// values.
#[derive(Debug, Clone, Default)]
pub struct FetchSessionHandler {
    id: i32,
    epoch: i32,
    asked: PartitionStates<Wanted>,
    topics: SessionTopics,
    /// With an in-process broker: the partitions that were requested without the id of their topic.
    without_id: FxHashSet<TopicPartition>,
    /// With an in-process broker: the session uses topic ids.
    by_ids: bool,
    /// With an in-process broker: the request in flight uses ids and the session does not, or the reverse.
    refused: bool,
}

impl FetchSessionHandler {
    /// Builds a full request for what is wanted now, in this order, and remembers it.
    /// Kafka: `FetchSessionHandler.Builder#build`.
    pub fn build_full(&mut self, wanted: Vec<(TopicPartition, Wanted)>) -> FetchRequest {
        let topics = topics(&wanted);
        self.topics = SessionTopics::default();
        wanted
            .iter()
            .for_each(|(tp, wanted)| self.topics.add(&tp.topic, wanted.topic_id));
        self.asked = wanted.into_iter().collect();
        self.request(topics, &[], Vec::new())
    }

    /// Builds an incremental request and remembers what it requests: new partitions in the given order, then altered
    /// ones in session order; partitions no longer wanted are removed. `now` has what is wanted of every partition that
    /// may have changed since the last request; it may include unchanged ones. Returns `None`, and remembers nothing,
    /// if no partition would be left in the session. Kafka: `FetchSessionHandler.Builder#build`.
    pub fn build_incremental(&mut self, now: Vec<(TopicPartition, Option<Wanted>)>) -> Option<FetchRequest> {
        let mut added = Vec::new();
        let mut altered = Vec::new();
        let mut forgotten = Vec::new();
        for (tp, wanted) in now {
            match (self.asked.place(&tp), wanted) {
                (None, Some(wanted)) => added.push((tp, wanted)),
                (Some(place), None) => forgotten.push((place, tp)),
                (Some(place), Some(wanted)) if self.asked.get(&tp) != Some(&wanted) => {
                    altered.push((place, (tp, wanted)));
                }
                _ => {}
            }
        }
        if self.asked.len() + added.len() == forgotten.len() {
            return None;
        }
        altered.sort_unstable_by_key(|&(place, _)| place);
        forgotten.sort_unstable_by_key(|&(place, _)| place);
        let mut former_ids: Vec<(TopicPartition, TopicId)> = Vec::new();
        for (_, tp) in forgotten {
            if let Some(former) = self.asked.get(&tp).map(|former| former.topic_id) {
                self.topics.remove(former);
                self.asked.remove(&tp);
                former_ids.push((tp, former));
            }
        }
        let mut partitions = added;
        partitions.extend(altered.into_iter().map(|(_, altered)| altered));
        let topics = topics(&partitions);
        let mut replaced = Vec::new();
        for (tp, wanted) in partitions {
            if let Some(former) = self.asked.get(&tp).map(|former| former.topic_id) {
                if former != wanted.topic_id && former != NO_TOPIC_ID && wanted.topic_id != NO_TOPIC_ID {
                    replaced.push((former, tp.partition));
                }
                self.topics.remove(former);
            }
            self.topics.add(&tp.topic, wanted.topic_id);
            self.asked.insert(tp, wanted);
        }
        Some(self.request(topics, &former_ids, replaced))
    }

    /// A request of these partitions that forgets others, with the ids that the session had for their topics. It can use ids if those of
    /// all topics of the session are known. Kafka: `FetchRequestData#canUseTopicIds`, `#toForget`, `#toReplace`.
    fn request(
        &self,
        topics: Vec<FetchTopic>,
        forgotten: &[(TopicPartition, TopicId)],
        replaced: Vec<(TopicId, i32)>,
    ) -> FetchRequest {
        let by_ids = self.topics.without_id == 0 && forgotten.iter().all(|(_, id)| *id != NO_TOPIC_ID);
        let runs = forgotten.chunk_by(|(a, id), (b, other)| a.topic == b.topic && id == other);
        let forgotten = runs.map(|run| ForgottenTopic {
            topic: Arc::clone(&run[0].0.topic),
            topic_id: run[0].1,
            partitions: run.iter().map(|(tp, _)| tp.partition).collect(),
        });
        FetchRequest {
            session_id: self.id,
            session_epoch: self.epoch,
            topics,
            forgotten_topics_data: forgotten.collect(),
            topic_ids: FetchTopicIds {
                by_ids,
                replaced,
                leader_only: false,
            },
            ..Default::default()
        }
    }

    /// Replaces the topic ids of a response with names. An id that the session does not know stays in place of the
    /// name. Returns whether the response had names already. Kafka: `FetchResponse#responseData`.
    pub fn name_topics(&self, response: &mut FetchResponse) -> bool {
        let mut has_names = false;
        for topic in &mut response.responses {
            let id = topic_id_of(&topic.topic);
            has_names |= id.is_none() && !topic.partitions.is_empty();
            if let Some((name, _)) = id.and_then(|id| self.topics.names.get(&id)) {
                topic.topic = Arc::clone(name);
            }
        }
        has_names
    }

    /// Records whether the request that was just built can use topic ids. A broker refuses a request that differs from
    /// its session in this, with FETCH_SESSION_TOPIC_ID_ERROR. Requests to an in-process broker carry only names, so
    /// the client does this check. Kafka: `FetchSessionHandler.Builder#build` (`canUseTopicIds`),
    /// `FetchManager#newContext` (spec 7.3).
    pub fn note_topic_ids(&mut self, request: &FetchRequest, without_id: FxHashSet<TopicPartition>) {
        let incremental = request.session_epoch > 0;
        let mut forgotten = request
            .forgotten()
            .map(|(topic, p)| TopicPartition::new(Arc::clone(topic), p));
        let forgets = incremental && forgotten.any(|tp| self.without_id.contains(&tp));
        let by_ids = without_id.is_empty() && !forgets;
        self.refused = incremental && by_ids != self.by_ids;
        if !incremental {
            self.by_ids = by_ids;
        }
        self.without_id = without_id;
    }

    /// Whether the request in flight is refused because of topic ids.
    pub fn is_refused(&self) -> bool {
        self.refused
    }

    /// Partitions of the session, in session order.
    pub fn partitions(&self) -> impl Iterator<Item = &TopicPartition> {
        self.asked.iter().map(|(tp, _)| tp)
    }

    /// Whether the request in flight is a full one or, if none is in flight, the next one must be.
    pub fn is_full(&self) -> bool {
        self.epoch == 0
    }

    /// The requested offset; `None` for a partition that is not in the session.
    pub fn fetch_offset(&self, tp: &TopicPartition) -> Option<i64> {
        self.asked.get(tp).map(|asked| asked.partition.fetch_offset)
    }

    /// Checks a response. `Err` has the reason why it must be discarded; the next request is then a full one.
    /// Kafka: `FetchSessionHandler#handleResponse`.
    pub fn handle_response(&mut self, response: &FetchResponse) -> Result<(), String> {
        if response.error_code != ErrorCode::NONE {
            if response.error_code == ErrorCode::FETCH_SESSION_ID_NOT_FOUND {
                self.id = 0;
            }
            self.epoch = 0;
            return Err(format!("the broker answered {}", response.error_code));
        }
        if self.refused {
            self.epoch = 0;
            return Err(format!("refused: {}", ErrorCode::FETCH_SESSION_TOPIC_ID_ERROR));
        }
        let partitions = || {
            let partitions = response.partitions();
            partitions.map(|(topic, p)| TopicPartition::new(Arc::clone(topic), p.partition_index))
        };
        let extra = partitions().find(|tp| !self.asked.contains(tp));
        if self.is_full() {
            let answered: FxHashSet<TopicPartition> = partitions().collect();
            let omitted = self.partitions().find(|tp| !answered.contains(tp)).cloned();
            if let Some(tp) = extra.or(omitted) {
                self.id = 0;
                return Err(format!(
                    "the answer to a full fetch has one partition too many or too few: {}",
                    shown(&tp)
                ));
            }
        } else if let Some(tp) = extra {
            self.epoch = 0;
            return Err(format!("the answer holds {}, which is not in the session", shown(&tp)));
        }
        if response.session_id == 0 {
            (self.id, self.epoch) = (0, 0);
        } else if self.is_full() {
            (self.id, self.epoch) = (response.session_id, 1);
        } else {
            self.epoch = if self.epoch == i32::MAX { 1 } else { self.epoch + 1 };
        }
        Ok(())
    }

    /// The connection was lost: the next request closes the old session and is a full one.
    pub fn handle_error(&mut self) {
        self.epoch = 0;
    }
}

/// The partitions in their order: only consecutive ones of a topic share its entry, since the order is that of the response. Kafka:
/// `FetchRequest.Builder#build`.
fn topics(partitions: &[(TopicPartition, Wanted)]) -> Vec<FetchTopic> {
    let runs = partitions.chunk_by(|(a, _), (b, _)| a.topic == b.topic);
    let topic = |run: &[(TopicPartition, Wanted)]| FetchTopic {
        topic: Arc::clone(&run[0].0.topic),
        topic_id: run[0].1.topic_id,
        partitions: run.iter().map(|(_, wanted)| wanted.partition.clone()).collect(),
    };
    runs.map(topic).collect()
}

/// The partition, for messages. It has no name if the response had a topic id that was not requested.
fn shown(tp: &TopicPartition) -> String {
    match topic_id_of(&tp.topic) {
        Some(id) => format!(
            "partition {} of topic id {:032x}",
            tp.partition,
            u128::from_be_bytes(id)
        ),
        None => tp.to_string(),
    }
}

#[cfg(test)]
mod tests;
