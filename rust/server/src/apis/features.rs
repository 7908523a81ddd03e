//! Features: what ApiVersions says of them, and UpdateFeatures. Kafka: `ControllerApis#handleUpdateFeatures`,
//! `QuorumController#updateFeatures`, `ApiVersionsResponse`.

use fletchlog_broker::{AclOperation, Broker, Feature, FeatureUpdate, UpgradeType};
use fletchlog_protocol::messages::api_versions_response::{FinalizedFeatureKey, SupportedFeatureKey};
use fletchlog_protocol::messages::update_features_request::FeatureUpdateKey;
use fletchlog_protocol::messages::update_features_response::UpdatableFeatureResult;
use fletchlog_protocol::messages::{UpdateFeaturesRequest, UpdateFeaturesResponse};
use fletchlog_records::ErrorCode;

use super::authorization::cluster_refused;
use super::{Call, Handled, Unreadable};

/// A feature whose lowest level is 0 is listed from version 4 on: Java clients below 3.8 cannot read it.
/// Kafka: `ApiVersionsResponse#maybeFilterSupportedFeatureKeys` (KAFKA-17011).
pub(super) fn supported(version: i16) -> Vec<SupportedFeatureKey> {
    let all = Feature::ALL.into_iter().map(|feature| {
        let (min_version, max_version) = feature.supported();
        SupportedFeatureKey {
            name: feature.name().into(),
            min_version,
            max_version,
        }
    });
    all.filter(|f| version >= 4 || f.min_version > 0).collect()
}

/// The levels in effect. A feature of level 0 is not listed.
pub(super) fn finalized(broker: &Broker) -> Vec<FinalizedFeatureKey> {
    let levels = Feature::ALL.into_iter().map(|feature| {
        let level = broker.finalized_level(feature);
        FinalizedFeatureKey {
            name: feature.name().into(),
            min_version_level: level,
            max_version_level: level,
        }
    });
    levels.filter(|feature| feature.max_version_level > 0).collect()
}

pub(super) fn update_features(call: &mut Call<'_>) -> Result<Handled, Unreadable> {
    let request: UpdateFeaturesRequest = call.message()?;
    if let Err(error_code) = call.check_cluster(AclOperation::Alter) {
        return call.answer(UpdateFeaturesResponse {
            error_code,
            error_message: cluster_refused(),
            ..Default::default()
        });
    }
    let version = call.version();
    let updates = request.feature_updates.iter().map(|update| FeatureUpdate {
        feature: update.feature.to_string(),
        level: update.max_version_level,
        upgrade_type: upgrade_type(update, version),
    });
    let updates: Vec<_> = updates.collect();
    let updated = call.broker().update_features(&updates, request.validate_only);
    call.answer(match updated {
        Ok(()) => UpdateFeaturesResponse {
            error_message: Some(NO_ERROR.into()),
            results: request.feature_updates.iter().map(updated_result).collect(),
            ..Default::default()
        },
        Err(error) => {
            let text = error.kafka_message();
            let is_of_feature = error.code() == ErrorCode::INVALID_UPDATE_VERSION;
            let prefix = if is_of_feature { OF_FEATURE } else { "" };
            UpdateFeaturesResponse {
                error_code: error.code(),
                error_message: Some(format!("{prefix}{text}").into()),
                ..Default::default()
            }
        }
    })
}

/// The text of an update that succeeded. Kafka: `Errors#message` of NONE.
const NO_ERROR: &str = "NONE";
/// What Kafka puts before the reason why one feature was refused.
const OF_FEATURE: &str = "The update failed for all features since the following feature had an error: ";

/// Version 0 says only whether the level may fall. Kafka: `FeatureUpdate.UpgradeType#fromCode`.
fn upgrade_type(update: &FeatureUpdateKey, version: i16) -> Option<UpgradeType> {
    match (version, update.upgrade_type) {
        (0, _) if update.allow_downgrade => Some(UpgradeType::Downgrade),
        (0, _) | (_, 1) => Some(UpgradeType::Upgrade),
        (_, 2 | 3) => Some(UpgradeType::Downgrade),
        _ => None,
    }
}

fn updated_result(update: &FeatureUpdateKey) -> UpdatableFeatureResult {
    UpdatableFeatureResult {
        feature: update.feature.clone(),
        error_code: ErrorCode::NONE,
        error_message: Some(NO_ERROR.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_feature_that_begins_at_level_0_is_listed_from_version_4_on() {
        assert_eq!([0, 3, 4].map(|version| supported(version).len()), [1, 1, 7]);
    }
}
