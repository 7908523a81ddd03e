//! Warns once about wanted topics with a metadata error, such as topics that do not exist, and about assigned
//! partitions that their topic does not have. Polls return nothing of them.
//! Kafka: `NetworkClient.DefaultMetadataUpdater#handleSuccessfulResponse`.

use std::borrow::Cow;
use std::sync::Arc;

use fletchlog_api::ErrorCode;
use fletchlog_records::TopicPartition;

use super::metadata::ConsumerMetadata;
use super::subscription_state::SubscriptionState;
use super::trace::{Trace, TraceEvent, TraceKind};

/// What is missing, as last reported.
#[derive(Debug, Default)]
pub(super) struct Missing {
    /// Versions of the metadata and of the assignment at the last check.
    seen: (u64, u64),
    /// A missing topic has partition -1.
    reported: Vec<(TopicPartition, Cow<'static, str>)>,
}

impl Missing {
    /// Reports what is missing now and was not at the last call. Cheap while nothing has changed.
    pub(super) fn report(&mut self, metadata: &ConsumerMetadata, subs: &SubscriptionState, trace: &mut Trace) {
        let now = (metadata.version(), subs.assignments());
        if self.seen == now || metadata.awaits_new_topics() {
            return;
        }
        self.seen = now;
        let found = find(metadata, subs);
        let new: Vec<_> = found.iter().filter(|one| !self.reported.contains(one)).collect();
        let topics: Vec<String> = new
            .iter()
            .filter(|(tp, _)| tp.partition < 0)
            .filter_map(|(tp, _)| Some(format!("{}={}", tp.topic, metadata.error_of(&tp.topic)?.name())))
            .collect();
        warn_of_topics(&topics);
        for (tp, text) in &new {
            if tp.partition >= 0 {
                log::warn!("Leader for partition {tp} is unknown: {text}");
            }
            trace.push(|| TraceEvent::of(TraceKind::Error, tp).because(text.clone()));
        }
        self.reported = found;
    }
}

fn warn_of_topics(topics: &[String]) {
    if !topics.is_empty() {
        log::warn!(
            "The metadata response from the cluster reported a recoverable issue: {{{}}}; polls return no record of what is missing",
            topics.join(", ")
        );
    }
}

/// The topics of a share consumer that are missing, as last reported.
#[derive(Debug, Default)]
pub(crate) struct MissingTopics {
    /// Version of the metadata at the last check.
    seen: u64,
    reported: Vec<(Arc<str>, ErrorCode)>,
}

impl MissingTopics {
    /// Reports what is missing now and was not at the last call.
    pub(crate) fn report(&mut self, metadata: &ConsumerMetadata) {
        if self.seen == metadata.version() || metadata.awaits_new_topics() {
            return;
        }
        self.seen = metadata.version();
        let found = metadata.errors();
        let new = found.iter().filter(|one| !self.reported.contains(one));
        let new: Vec<String> = new.map(|(topic, error)| format!("{topic}={}", error.name())).collect();
        warn_of_topics(&new);
        self.reported = found.to_vec();
    }
}

fn find(metadata: &ConsumerMetadata, subs: &SubscriptionState) -> Vec<(TopicPartition, Cow<'static, str>)> {
    let topics = metadata.errors().iter().map(|(topic, error)| {
        let text = match *error {
            ErrorCode::UNKNOWN_TOPIC_OR_PARTITION => {
                Cow::Owned(format!("there is no topic {topic}: polls return nothing of it"))
            }
            other => Cow::Owned(format!("topic {topic}: {}: polls return nothing of it", other.name())),
        };
        (TopicPartition::new(topic.clone(), -1), text)
    });
    let partitions = subs.iter().filter_map(|(tp, _)| {
        let count = metadata.partition_count(&tp.topic)?;
        let partitions = if count == 1 { "partition" } else { "partitions" };
        let text = format!(
            "there is no partition {}, topic {} has {count} {partitions}: polls return nothing of it",
            tp.partition, tp.topic
        );
        (tp.partition >= count).then(|| (tp.clone(), Cow::Owned(text)))
    });
    topics.chain(partitions).collect()
}
