//! Which version of an API a node and this client both know. Kafka: `NodeApiVersions`.

use std::collections::BTreeMap;

use fletchlog_protocol::ApiKey;
use fletchlog_protocol::messages::ApiVersionsResponse;

/// The name of the feature that says how transactions end (KIP-890). Kafka: `TransactionVersion#FEATURE_NAME`.
const TRANSACTION_VERSION: &str = "transaction.version";

/// The levels of the cluster's features, as one node has reported them: those that this client acts on.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct FinalizedFeatures {
    /// Grows with each change; -1: the node does not know.
    epoch: i64,
    /// 0: the cluster has no such feature.
    pub(crate) transaction_version: i16,
}

impl FinalizedFeatures {
    fn of(response: &ApiVersionsResponse) -> Self {
        let mut levels = response.finalized_features.iter();
        let level = levels.find(|feature| &*feature.name == TRANSACTION_VERSION);
        Self {
            epoch: response.finalized_features_epoch,
            transaction_version: level.map_or(0, |feature| feature.max_version_level),
        }
    }

    /// Takes the report of another node, unless it is older. Kafka: `ApiVersions#update`.
    pub(crate) fn update(&mut self, reported: Self) {
        if reported.epoch >= self.epoch {
            *self = reported;
        }
    }
}

/// What one node serves.
#[derive(Debug, Default)]
pub(crate) struct Versions {
    served: BTreeMap<ApiKey, (i16, i16)>,
    pub(crate) features: FinalizedFeatures,
}

impl Versions {
    /// The ranges that a node has named. An invalid range counts as none.
    pub(crate) fn of(response: &ApiVersionsResponse) -> Self {
        let ranges = response.api_keys.iter();
        let known = ranges.filter_map(|v| Some((ApiKey::from_code(v.api_key)?, (v.min_version, v.max_version))));
        Self {
            served: known.collect(),
            features: FinalizedFeatures::of(response),
        }
    }

    /// The newest version that both know and that is not above `newest`, or why there is none. Kafka:
    /// `NodeApiVersions#latestUsableVersion`.
    pub(crate) fn usable(&self, api: ApiKey, newest: i16) -> Result<i16, String> {
        let (min, max) = api.sent_versions();
        let max = max.min(newest);
        let Some(&(served_min, served_max)) = self.served.get(&api) else {
            return Err(format!("it does not serve {}", api.name()));
        };
        let version = max.min(served_max);
        if version < min.max(served_min) {
            return Err(format!(
                "it serves {} in versions {served_min} to {served_max}, this client sends {min} to {max}",
                api.name()
            ));
        }
        Ok(version)
    }
}

/// The version of ApiVersions to ask with next, after a node has refused one with UNSUPPORTED_VERSION. Kafka:
/// `NetworkClient#handleApiVersionsResponse`.
pub(crate) fn next_api_versions(response: &ApiVersionsResponse, refused: i16) -> Option<i16> {
    let served = Versions::of(response);
    let version = match served.served.get(&ApiKey::ApiVersions) {
        Some(&(_, max)) => max,
        None => 0,
    };
    (0..refused).contains(&version).then_some(version)
}

#[cfg(test)]
mod tests {
    use fletchlog_protocol::messages::api_versions_response::{ApiVersion, FinalizedFeatureKey};

    use super::*;

    const ANY: i16 = i16::MAX;

    fn response(ranges: &[(i16, i16, i16)]) -> ApiVersionsResponse {
        let range = |&(api_key, min_version, max_version): &(i16, i16, i16)| ApiVersion {
            api_key,
            min_version,
            max_version,
        };
        ApiVersionsResponse {
            api_keys: ranges.iter().map(range).collect(),
            ..Default::default()
        }
    }

    #[test]
    fn the_newest_version_that_both_know_is_used() {
        let versions = Versions::of(&response(&[(0, 3, 9), (1, 4, 18), (2, 0, 1), (3, 9, 8), (999, 0, 1)]));
        assert_eq!(versions.usable(ApiKey::Produce, ANY), Ok(9));
        assert_eq!(versions.usable(ApiKey::Fetch, ANY), Ok(18));
        assert_eq!(versions.usable(ApiKey::Fetch, 12), Ok(12));
        assert_eq!(versions.usable(ApiKey::ListOffsets, ANY), Ok(1));
        assert!(
            versions
                .usable(ApiKey::Metadata, ANY)
                .unwrap_err()
                .contains("versions 9 to 8")
        );
        assert!(
            versions
                .usable(ApiKey::JoinGroup, ANY)
                .unwrap_err()
                .contains("does not serve JoinGroup")
        );
        let new = Versions::of(&response(&[(1, 13, 18)]));
        assert!(new.usable(ApiKey::Fetch, 12).unwrap_err().contains("sends 4 to 12"));
    }

    #[test]
    fn the_newest_report_of_the_features_counts() {
        let reported = |epoch, levels: &[(&str, i16)]| {
            let level = |&(name, max_version_level): &(&str, i16)| FinalizedFeatureKey {
                name: name.into(),
                max_version_level,
                min_version_level: 0,
            };
            Versions::of(&ApiVersionsResponse {
                finalized_features_epoch: epoch,
                finalized_features: levels.iter().map(level).collect(),
                ..Default::default()
            })
            .features
        };
        let mut features = FinalizedFeatures::default();
        for (epoch, levels, expected) in [
            (-1, &[][..], 0),
            (0, &[("group.version", 1), ("transaction.version", 2)], 2),
            (-1, &[], 2),
            (4, &[("transaction.version", 1)], 1),
            (3, &[("transaction.version", 2)], 1),
            (5, &[], 0),
        ] {
            features.update(reported(epoch, levels));
            assert_eq!(
                features.transaction_version, expected,
                "after the report of epoch {epoch}"
            );
        }
    }

    #[test]
    fn a_refused_version_is_replaced_by_the_one_named_or_by_0_and_never_by_itself() {
        assert_eq!(next_api_versions(&response(&[(18, 0, 3)]), 4), Some(3));
        assert_eq!(next_api_versions(&response(&[]), 4), Some(0));
        assert_eq!(next_api_versions(&response(&[(18, 0, 4)]), 4), None);
        assert_eq!(next_api_versions(&response(&[(18, 0, -7)]), 4), None);
        assert_eq!(next_api_versions(&response(&[]), 0), None);
    }
}
