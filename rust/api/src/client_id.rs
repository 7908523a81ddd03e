//! The `client.id` that a client makes for itself, so that all its requests carry one name.
//! Kafka: `ConsumerConfig#maybeOverrideClientId`, `ProducerConfig#maybeOverrideClientId`.

use std::sync::atomic::{AtomicU32, Ordering};

use crate::config_table::{Config, Scope};

/// Kafka: `ConsumerConfig.CONSUMER_CLIENT_ID_SEQUENCE`.
static CONSUMERS: AtomicU32 = AtomicU32::new(1);
/// Kafka: `ProducerConfig.PRODUCER_CLIENT_ID_SEQUENCE`.
static PRODUCERS: AtomicU32 = AtomicU32::new(1);

impl Config {
    /// The same properties, with a `client.id` if a consumer or a producer has none: `consumer-GROUP-N` or `producer-N`, numbered in
    /// the process, or with group.instance.id or transactional.id in place of the number. Called once for each client, before its
    /// transport is made. It stays a property that was not given: [`Config::is_explicit`] is false.
    #[must_use]
    pub fn with_client_id(mut self) -> Self {
        if !self.text("client.id").is_empty() {
            return self;
        }
        let given = |name| self.get(name).filter(|text| !text.is_empty());
        let numbered = |sequence: &AtomicU32| sequence.fetch_add(1, Ordering::Relaxed).to_string();
        let client_id = match self.scope() {
            Scope::Consumer => {
                let last = given("group.instance.id").map_or_else(|| numbered(&CONSUMERS), str::to_owned);
                format!("consumer-{}-{last}", given("group.id").unwrap_or("null"))
            }
            Scope::Producer => {
                let last = given("transactional.id").map_or_else(|| numbered(&PRODUCERS), str::to_owned);
                format!("producer-{last}")
            }
            Scope::Topic | Scope::Broker | Scope::LegacyConsumer => return self,
        };
        self.values.insert("client.id", client_id);
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client_id(scope: Scope, given: &[(&str, &str)]) -> String {
        let config = Config::parse(scope, given.iter().copied()).unwrap().with_client_id();
        assert_eq!(
            config.is_explicit("client.id"),
            given.iter().any(|(name, _)| *name == "client.id")
        );
        config.text("client.id").to_owned()
    }

    #[test]
    fn a_client_without_client_id_gets_the_name_that_java_gives_it() {
        let (group, instance) = (("group.id", "g"), ("group.instance.id", "i"));
        assert_eq!(client_id(Scope::Consumer, &[group, ("client.id", "me")]), "me");
        assert_eq!(client_id(Scope::Consumer, &[group, instance]), "consumer-g-i");
        assert_eq!(client_id(Scope::Producer, &[("transactional.id", "t")]), "producer-t");
        let number = |text: String, prefix| text.strip_prefix(prefix).unwrap().parse::<u32>().unwrap();
        let first = number(client_id(Scope::Consumer, &[group]), "consumer-g-");
        let second = number(client_id(Scope::Consumer, &[]), "consumer-null-");
        assert!(second > first, "one sequence for all consumers");
        number(client_id(Scope::Producer, &[]), "producer-");
    }
}
