//! Ids of topics (KIP-516), for fetches that name topics by id.

use std::sync::Arc;

/// A topic's id. Kafka: `Uuid`.
pub type TopicId = [u8; 16];

/// The id is not known. Kafka: `Uuid#ZERO_UUID`.
pub const NO_TOPIC_ID: TopicId = [0; 16];

/// The prefix of the hexadecimal digits of an id.
const BY_ID: char = '\0';

/// The text that a fetch by topic ids (version 13 and higher) has in place of a topic's name. The broker's session keeps it, whatever topic
/// has the id, as Kafka keeps ids. No topic can have such a name. Kafka: `TopicIdPartition`, `CachedPartition#equals`.
pub fn topic_by_id(id: TopicId) -> Arc<str> {
    format!("{BY_ID}{:032x}", u128::from_be_bytes(id)).into()
}

/// The id in a text of [`topic_by_id`]; `None`: it is a name.
pub fn topic_id_of(topic: &str) -> Option<TopicId> {
    let digits = topic.strip_prefix(BY_ID)?;
    u128::from_str_radix(digits, 16).ok().map(u128::to_be_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_comes_back_from_what_stands_for_it_and_names_are_none() {
        for id in [NO_TOPIC_ID, [0xff; 16], *b"0123456789abcdef"] {
            assert_eq!(topic_id_of(&topic_by_id(id)), Some(id));
        }
        assert_eq!(topic_id_of("0123"), None);
    }
}
