//! The properties of consumer groups. Kafka: `GroupCoordinatorConfig`, `GroupConfigManager`.

use std::sync::Arc;

use fletchlog_api::{Config, ConfigResource};

use super::coordinator::GroupCoordinator;

impl GroupCoordinator {
    /// The broker's properties in effect.
    pub(super) fn config_in_effect(&self) -> Arc<Config> {
        Arc::clone(self.replicas.configs().of(1))
    }

    /// A property of a group: its own value, or that of the broker's property with the same meaning.
    pub(super) fn group_config(&self, group_id: &str, name: &str) -> i32 {
        let configs = self.replicas.configs();
        let own = configs.altered().get(&ConfigResource::Group(group_id.to_owned()), name);
        let own = own.and_then(|value| value.parse().ok());
        own.unwrap_or_else(|| configs.of(1).int(&format!("group.{name}")))
    }

    /// Whether the protocol of consumer groups is served. Kafka: `GroupCoordinatorConfig#isConsumerGroupProtocolEnabled`.
    pub(crate) fn serves_consumer_groups(&self) -> bool {
        let protocols = self.replicas.config().list("group.coordinator.rebalance.protocols");
        protocols.contains(&"consumer")
    }

    /// The names of the assignors, the default first.
    pub(super) fn assignors(&self) -> &[Arc<str>] {
        &self.assignors
    }

    /// Most members of a consumer group.
    pub(super) fn consumer_group_max_size(&self) -> usize {
        usize::try_from(self.replicas.config().int("group.consumer.max.size")).unwrap_or(usize::MAX)
    }

    /// Whether a classic group with members may become a consumer group. Kafka: `ConsumerGroupMigrationPolicy#isUpgradeEnabled`.
    pub(super) fn upgrades(&self) -> bool {
        matches!(self.migration_policy(), "upgrade" | "bidirectional")
    }

    /// Whether a consumer group with members may become a classic group. Kafka: `ConsumerGroupMigrationPolicy#isDowngradeEnabled`.
    pub(super) fn downgrades(&self) -> bool {
        matches!(self.migration_policy(), "downgrade" | "bidirectional")
    }

    /// Whether members of the classic protocol may be in a consumer group.
    pub(super) fn mixes(&self) -> bool {
        self.migration_policy() != "disabled"
    }

    fn migration_policy(&self) -> &str {
        self.replicas.config().text("group.consumer.migration.policy")
    }
}
