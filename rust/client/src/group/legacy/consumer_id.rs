//! The id of a consumer. Kafka: `ZookeeperConsumerConnector`, 0.8.2. This file asks the operating system for the host's name.

use std::hash::{BuildHasher, Hasher};
use std::sync::Arc;

/// `<group>_<consumer.id>` when configured, else `<group>_<host>-<ms>-<8 hex digits>`.
pub(super) fn consumer_id(group_id: &str, configured: Option<&str>, now_ms: i64) -> Arc<str> {
    match configured {
        Some(id) => format!("{group_id}_{id}").into(),
        None => format!("{group_id}_{}-{now_ms}-{:08x}", host(), random()).into(),
    }
}

fn host() -> String {
    let kernel = std::fs::read_to_string("/proc/sys/kernel/hostname").ok();
    let name = kernel
        .map(|name| name.trim().to_owned())
        .filter(|name| !name.is_empty());
    name.or_else(|| std::env::var("HOSTNAME").ok())
        .unwrap_or_else(|| "localhost".to_owned())
}

/// The first half of 64 random bits: Kafka takes the first 8 digits of a random UUID.
fn random() -> u32 {
    // A fresh RandomState is keyed by the operating system's randomness.
    let bits = std::collections::hash_map::RandomState::new().build_hasher().finish();
    u32::try_from(bits >> 32).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_the_groups_and_the_configured_one_or_made_of_host_time_and_chance() {
        assert_eq!(&*consumer_id("g", Some("c1"), 5), "g_c1");
        let made = consumer_id("g", None, 1_496_976_531_798);
        let digits = made.rsplit_once('-').unwrap().1;
        assert!(made.starts_with("g_") && made.contains("-1496976531798-"), "{made}");
        assert!(
            digits.len() == 8 && digits.chars().all(|c| c.is_ascii_hexdigit()),
            "{made}"
        );
        assert_ne!(made, consumer_id("g", None, 1_496_976_531_798));
    }
}
