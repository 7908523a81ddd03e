//! Which fields of messages are secrets. Kafka: `RequestLogger`, `KafkaConfig#maybeSensitive`.

use fletchlog_api::Scope;
use fletchlog_api::config_table::{Kind, keys};
use fletchlog_protocol::ApiKey;

/// Scopes whose properties requests alter.
const SCOPES: [Scope; 2] = [Scope::Topic, Scope::Broker];
const LISTENER_NAME: &str = "listener.name.";

/// Whether bytes of this field may be in a session: what members of groups tell each other is topics and partitions. All other fields of
/// bytes are left out: tokens, salts, passwords.
pub(crate) fn may_keep_bytes(api: ApiKey, field: &str) -> bool {
    match api {
        ApiKey::JoinGroup => field == "metadata",
        ApiKey::SyncGroup => field == "assignment",
        ApiKey::DescribeGroups => matches!(field, "member_metadata" | "member_assignment"),
        _ => false,
    }
}

/// Whether a message of the API has values of properties.
pub(crate) fn has_properties(api: ApiKey) -> bool {
    matches!(
        api,
        ApiKey::AlterConfigs | ApiKey::IncrementalAlterConfigs | ApiKey::DescribeConfigs | ApiKey::CreateTopics
    )
}

/// Whether the value of a property is a secret. As in Kafka, one that is not known is.
pub(crate) fn is_secret(property: &str) -> bool {
    let name = match property.strip_prefix(LISTENER_NAME) {
        Some(rest) => rest.split_once('.').map_or(rest, |(_, name)| name),
        None => property,
    };
    // Properties of a SASL mechanism: `scram-sha-256.sasl.jaas.config`.
    if name.ends_with("sasl.jaas.config") {
        return true;
    }
    let known = SCOPES
        .iter()
        .flat_map(|scope| keys(*scope))
        .find(|key| key.name == name);
    known.is_none_or(|key| key.kind == Kind::Password)
}
