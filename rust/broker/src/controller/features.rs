//! Which levels of features are in effect, and their change. Kafka: `FeatureControlManager`.

use std::sync::atomic::{AtomicI16, Ordering};

use super::Controller;
use crate::BrokerError;
use crate::features::{Feature, FeatureUpdate, FinalizedFeatures};

/// The levels, read without a lock.
#[derive(Debug)]
pub(super) struct CurrentLevels {
    transaction_version: AtomicI16,
}

impl CurrentLevels {
    pub(super) fn new(features: &FinalizedFeatures) -> Self {
        let levels = Self {
            transaction_version: AtomicI16::new(0),
        };
        levels.set(features);
        levels
    }

    pub(super) fn set(&self, features: &FinalizedFeatures) {
        let level = features.level(Feature::TransactionVersion);
        self.transaction_version.store(level, Ordering::Relaxed);
    }

    fn get(&self, feature: Feature) -> i16 {
        match feature {
            Feature::TransactionVersion => self.transaction_version.load(Ordering::Relaxed),
            fixed => fixed.default_level(),
        }
    }
}

impl Controller {
    /// The level of a feature that is in effect. Kafka: `FinalizedFeatures`.
    pub(crate) fn finalized_level(&self, feature: Feature) -> i16 {
        self.levels.get(feature)
    }

    /// The number of changes of levels so far.
    pub(crate) fn features_epoch(&self) -> i64 {
        self.metadata.lock().features.epoch
    }

    /// Changes levels, all or none: first on disk, then in memory.
    pub(crate) fn update_features(&self, updates: &[FeatureUpdate], validate_only: bool) -> Result<(), BrokerError> {
        self.logs.for_writing("change features")?;
        let mut metadata = self.metadata.lock();
        let mut changed = metadata.clone();
        for update in updates {
            changed.features = changed.features.updated(update)?;
        }
        if !validate_only && changed.features != metadata.features {
            changed.features.epoch += 1;
            self.store_or_undo(&changed, &metadata)?;
            self.levels.set(&changed.features);
            *metadata = changed;
        }
        Ok(())
    }
}
