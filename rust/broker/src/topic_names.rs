//! Names of topics. Kafka: `Topic`.

/// Kafka's topic of committed offsets and groups.
pub(crate) const CONSUMER_OFFSETS: &str = "__consumer_offsets";
/// Kafka's topic of transactional ids.
pub(crate) const TRANSACTION_STATE: &str = "__transaction_state";
/// Kafka's topic of the states of share groups.
pub(crate) const SHARE_GROUP_STATE: &str = "__share_group_state";
const MAX_NAME_LENGTH: usize = 249;

/// Kafka: `Topic#validate`, with the texts of its errors. The error says which part of the rule the name breaks.
pub(crate) fn validate_name(name: &str) -> Result<(), String> {
    let reason = if name.is_empty() {
        "the empty string is not allowed".to_owned()
    } else if name == "." || name == ".." {
        format!("'{name}' is not allowed")
    } else if name.len() > MAX_NAME_LENGTH {
        format!("the length of '{name}' is longer than the max allowed length {MAX_NAME_LENGTH}")
    } else if !name
        .chars()
        .all(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-'))
    {
        format!("'{name}' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'")
    } else {
        return Ok(());
    };
    Err(format!("Topic name is invalid: {reason}"))
}

/// The name as Kafka's metrics have it: they map `.` to `_`, so two names that differ only in these collide. Kafka:
/// `Topic#unifyCollisionChars`.
pub(crate) fn unified(name: &str) -> String {
    name.replace('.', "_")
}

/// KRaft's own log, no topic of the data plane. Kafka: `Topic#CLUSTER_METADATA_TOPIC_NAME`.
pub(crate) const CLUSTER_METADATA: &str = "__cluster_metadata";

/// Whether the broker makes this topic for itself. Kafka: `Topic#isInternal`.
pub fn is_internal(name: &str) -> bool {
    name == CONSUMER_OFFSETS || name == TRANSACTION_STATE || name == SHARE_GROUP_STATE
}

#[cfg(test)]
mod tests {
    use fletchlog_api::topic_by_id;

    use super::*;

    #[test]
    fn names_follow_kafkas_rule() {
        assert!(validate_name(&topic_by_id([1; 16])).is_err());
        for good in ["a", "A.b_c-9", "...", &"x".repeat(249)] {
            assert_eq!(validate_name(good), Ok(()), "{good}");
        }
        for bad in ["", ".", "..", "a b", "a/b", "ä", "a\n", &"x".repeat(250)] {
            assert!(validate_name(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn names_that_differ_only_in_dot_and_underscore_collide() {
        assert_eq!(unified("a.b"), unified("a_b"));
        assert_ne!(unified("a.b"), unified("a-b"));
        assert_ne!(unified("a.b"), unified("a_bc"));
    }
}
