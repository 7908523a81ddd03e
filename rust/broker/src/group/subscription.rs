//! Which topics the members of a group subscribe to. Kafka: `ClassicGroup#computeSubscribedTopics`.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::state::Group;
use crate::fields::Reader;

/// The protocol type of consumers. Kafka: `ConsumerProtocol#PROTOCOL_TYPE`.
const CONSUMER: &str = "consumer";

impl Group {
    /// Whether its members are consumers, so that their metadata are subscriptions.
    pub(crate) fn uses_consumer_protocol(&self) -> bool {
        self.protocol_type.as_deref() == Some(CONSUMER)
    }

    /// What the members subscribe to; `None`: its members are not consumers, or their metadata cannot be read.
    pub(crate) fn compute_subscribed_topics(&self) -> Option<BTreeSet<Arc<str>>> {
        if !self.uses_consumer_protocol() {
            return None;
        }
        if self.members.is_empty() {
            return Some(BTreeSet::new());
        }
        let protocol = self.protocol.as_deref()?;
        let mut all = BTreeSet::new();
        for member in &self.members {
            all.extend(subscribed_topics(&member.metadata(protocol))?);
        }
        Some(all)
    }

    /// Whether a member may read the topic: a group of consumers whose subscriptions are not known may read any.
    pub(crate) fn is_subscribed_to(&self, topic: &str) -> bool {
        match &self.subscribed_topics {
            Some(topics) => topics.contains(topic),
            None => self.uses_consumer_protocol(),
        }
    }
}

/// The topics of a subscription, which are at the same place in every version (spec 8.8).
fn subscribed_topics(metadata: &[u8]) -> Option<Vec<Arc<str>>> {
    let mut r = Reader::new(metadata);
    let _version = r.i16()?;
    let count = r.i32()?;
    (0..count).map(|_| r.string()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fields::put_string;

    #[test]
    fn the_topics_of_any_version_are_read_and_what_is_no_subscription_is_none() {
        let mut metadata = 3i16.to_be_bytes().to_vec();
        metadata.extend(2i32.to_be_bytes());
        put_string(&mut metadata, "a");
        put_string(&mut metadata, "bc");
        assert_eq!(subscribed_topics(&metadata[..metadata.len() - 1]), None);
        metadata.extend(b"user data and what newer versions add");
        assert_eq!(subscribed_topics(&metadata), Some(vec!["a".into(), "bc".into()]));
        // A real Kafka never answers a join with such a count.
        for bad in [&b""[..], b"m-a", b"\0\0\x7f\xff\xff\xff\0\0"] {
            assert_eq!(subscribed_topics(bad), None, "{bad:?}");
        }
    }
}
