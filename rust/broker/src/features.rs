//! Features whose level the user chooses. Kafka: `FeatureControlManager`, `Feature`.

use std::collections::BTreeMap;

use fletchlog_api::ErrorCode;
use serde_json::{Map, Value, json};

use crate::BrokerError;

/// Key in `fletchlog.metadata`.
const JSON: &str = "features";

/// A feature, with the levels of Kafka 4.4. Kafka: `Feature`, `MetadataVersion`, `GroupVersion`, ..
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Feature {
    /// Which replicas may lead; with one copy of each partition it has no effect.
    EligibleLeaderReplicasVersion,
    /// Consumer groups (KIP-848).
    GroupVersion,
    /// How the quorum of controllers changes (KIP-853): there is none, so it has voters that are configured.
    KraftVersion,
    /// What the metadata can say.
    MetadataVersion,
    /// Share groups (KIP-932).
    ShareVersion,
    /// Streams groups (KIP-1071), which are not served.
    StreamsVersion,
    /// How transactions end (KIP-890).
    TransactionVersion,
}

impl Feature {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::EligibleLeaderReplicasVersion,
        Self::GroupVersion,
        Self::KraftVersion,
        Self::MetadataVersion,
        Self::ShareVersion,
        Self::StreamsVersion,
        Self::TransactionVersion,
    ];

    /// Kafka's name.
    pub fn name(self) -> &'static str {
        match self {
            Self::EligibleLeaderReplicasVersion => "eligible.leader.replicas.version",
            Self::GroupVersion => "group.version",
            Self::KraftVersion => "kraft.version",
            Self::MetadataVersion => "metadata.version",
            Self::ShareVersion => "share.version",
            Self::StreamsVersion => "streams.version",
            Self::TransactionVersion => "transaction.version",
        }
    }

    /// The lowest and the highest level that Kafka knows.
    pub fn supported(self) -> (i16, i16) {
        match self {
            Self::EligibleLeaderReplicasVersion | Self::GroupVersion | Self::KraftVersion | Self::StreamsVersion => {
                (0, 1)
            }
            Self::MetadataVersion => (7, 33),
            Self::ShareVersion | Self::TransactionVersion => (0, 2),
        }
    }

    /// The level in effect unless another was chosen.
    pub(crate) fn default_level(self) -> i16 {
        match self {
            Self::KraftVersion | Self::StreamsVersion => 0,
            served => served.supported().1,
        }
    }

    /// Whether another level can be chosen.
    fn is_chosen(self) -> bool {
        self == Self::TransactionVersion
    }

    fn of(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|feature| feature.name() == name)
    }
}

/// Whether a level may fall. Kafka: `FeatureUpdate.UpgradeType`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UpgradeType {
    /// It only rises.
    Upgrade,
    /// It falls; every level here can be left without loss.
    Downgrade,
}

/// The level that a feature is to have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FeatureUpdate {
    /// Its name.
    pub feature: String,
    /// The new level; 0 is without the feature.
    pub level: i16,
    /// Whether it may fall; `None`: of an unknown kind.
    pub upgrade_type: Option<UpgradeType>,
}

/// The levels that were chosen.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct FinalizedFeatures {
    /// Number of changes: clients take the levels with the highest number.
    pub(crate) epoch: i64,
    levels: BTreeMap<Feature, i16>,
}

impl FinalizedFeatures {
    /// Nothing was ever changed.
    pub(crate) fn is_default(&self) -> bool {
        self.epoch == 0
    }

    /// The level in effect.
    pub(crate) fn level(&self, feature: Feature) -> i16 {
        self.levels.get(&feature).copied().unwrap_or(feature.default_level())
    }

    /// Adds itself to the JSON of `fletchlog.metadata`.
    pub(crate) fn write(&self, metadata: &mut Value) {
        if !self.is_default() {
            let levels: Map<String, Value> = self
                .levels
                .iter()
                .map(|(f, l)| (f.name().to_owned(), json!(l)))
                .collect();
            metadata[JSON] = json!({"epoch": self.epoch, "levels": levels});
        }
    }

    /// Reads what [`FinalizedFeatures::write`] wrote; the error says what is wrong with the file.
    pub(crate) fn read(metadata: &Map<String, Value>) -> Result<Self, String> {
        let wrong = || format!("has no valid `{JSON}`");
        let Some(features) = metadata.get(JSON) else {
            return Ok(Self::default());
        };
        let epoch = features
            .get("epoch")
            .and_then(Value::as_i64)
            .filter(|epoch| *epoch >= 0);
        let levels = features.get("levels").and_then(Value::as_object).ok_or_else(wrong)?;
        let level = |(name, level): (&String, &Value)| {
            let feature = Feature::of(name)?;
            let (lowest, highest) = feature.supported();
            let level = i16::try_from(level.as_i64()?).ok()?;
            let is_known = feature.is_chosen() && (lowest..=highest).contains(&level);
            is_known.then_some((feature, level))
        };
        Ok(Self {
            epoch: epoch.ok_or_else(wrong)?,
            levels: levels.iter().map(level).collect::<Option<_>>().ok_or_else(wrong)?,
        })
    }

    /// The levels after a change of one. Kafka: `FeatureControlManager#updateFeature`.
    pub(crate) fn updated(&self, update: &FeatureUpdate) -> Result<Self, BrokerError> {
        let FeatureUpdate {
            feature: name,
            level,
            upgrade_type,
        } = update;
        let refuse = |reason: String| {
            let text = format!("Invalid update version {level} for feature {name}. {reason}");
            Err(BrokerError::kafka(ErrorCode::INVALID_UPDATE_VERSION, text))
        };
        let Some(upgrade_type) = upgrade_type else {
            return refuse("The controller does not support the given upgrade type.".to_owned());
        };
        if *level < 0 {
            return refuse("A feature version cannot be less than 0.".to_owned());
        }
        let Some(feature) = Feature::of(name) else {
            // Level 0 is supported of every feature, and none of this name is found then.
            return refuse(match level {
                0 => format!("Feature {name} not found."),
                _ => "Local controller 1 does not support this feature.".to_owned(),
            });
        };
        let (lowest, highest) = feature.supported();
        if !(lowest..=highest).contains(level) {
            return refuse(format!("Local controller 1 only supports versions {lowest}-{highest}"));
        }
        let current = self.level(feature);
        if *level < current && *upgrade_type == UpgradeType::Upgrade {
            let reason = "Can't downgrade the version of this feature without setting the upgrade type to either safe or unsafe downgrade.";
            return refuse(reason.to_owned());
        }
        if *level > current && *upgrade_type == UpgradeType::Downgrade {
            return refuse("Can't downgrade to a newer version.".to_owned());
        }
        let mut next = self.clone();
        if feature.is_chosen() {
            next.levels.insert(feature, *level);
        } else if *level != current {
            return refuse("The level of this feature cannot be changed here.".to_owned());
        }
        Ok(next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn update(feature: &str, level: i16, upgrade_type: Option<UpgradeType>) -> FeatureUpdate {
        FeatureUpdate {
            feature: feature.to_owned(),
            level,
            upgrade_type,
        }
    }

    #[test]
    fn a_level_falls_only_if_that_is_asked_for_and_is_kept_in_the_file() {
        const NAME: &str = "transaction.version";
        let up = Some(UpgradeType::Upgrade);
        let down = Some(UpgradeType::Downgrade);
        let features = FinalizedFeatures::default();
        let levels = [
            Feature::TransactionVersion,
            Feature::StreamsVersion,
            Feature::KraftVersion,
        ];
        assert_eq!(levels.map(|feature| features.level(feature)), [2, 0, 0]);
        let lowered = features.updated(&update(NAME, 1, down)).unwrap();
        assert_eq!(lowered.level(Feature::TransactionVersion), 1);
        for (from, refused, reason) in [
            (&features, update(NAME, 1, up), "without setting the upgrade type"),
            (&lowered, update(NAME, 2, down), "Can't downgrade to a newer version"),
            (&features, update(NAME, 3, up), "only supports versions 0-2"),
            (&features, update(NAME, -1, down), "less than 0"),
            (&features, update(NAME, 1, None), "the given upgrade type"),
            (&features, update("kraft.version", 1, up), "cannot be changed here"),
            (
                &features,
                update("streams.version", 2, up),
                "only supports versions 0-1",
            ),
            (&features, update("no.version", 1, up), "does not support this feature"),
            (
                &features,
                update("no.version", 0, down),
                "Feature no.version not found.",
            ),
        ] {
            let error = from.updated(&refused).unwrap_err();
            assert_eq!(error.code(), ErrorCode::INVALID_UPDATE_VERSION);
            assert!(error.to_string().contains(reason), "{error}");
        }
        let kept = FinalizedFeatures { epoch: 3, ..lowered };
        let mut file = json!({});
        kept.write(&mut file);
        assert_eq!(FinalizedFeatures::read(file.as_object().unwrap()), Ok(kept));
        for wrong in [
            json!({"epoch": -1, "levels": {}}),
            json!({"epoch": 1, "levels": {NAME: 3}}),
            json!({"epoch": 1, "levels": {"x": 1}}),
            json!(7),
        ] {
            assert!(
                FinalizedFeatures::read(json!({"features": wrong}).as_object().unwrap()).is_err(),
                "{wrong}"
            );
        }
    }
}
