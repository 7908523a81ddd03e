//! Client quotas, of which there are none, and users of SCRAM. Kafka: `ClientQuotasImage`, `ScramImage`, `ScramControlManager`.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use fletchlog_broker::{AclOperation, ScramDeletion, ScramUpsertion};
use fletchlog_protocol::messages::{
    AlterUserScramCredentialsRequest, AlterUserScramCredentialsResponse, DescribeClientQuotasRequest,
    DescribeClientQuotasResponse, DescribeUserScramCredentialsRequest, DescribeUserScramCredentialsResponse,
    alter_user_scram_credentials_response, describe_client_quotas_request, describe_user_scram_credentials_response,
};
use fletchlog_records::ErrorCode;

use super::authorization::cluster_refused;
use super::{CLOSED, Call, Handled, Unreadable, repeated};

pub(super) fn describe_client_quotas(call: &mut Call<'_>) -> Result<Handled, Unreadable> {
    let request: DescribeClientQuotasRequest = call.message()?;
    if let Err(error) = call.check_cluster(AclOperation::DescribeConfigs) {
        return call.answer(DescribeClientQuotasResponse {
            error_code: error,
            error_message: None,
            entries: None,
            ..Default::default()
        });
    }
    call.answer(match check_quota_filter(&request.components) {
        Ok(()) => DescribeClientQuotasResponse {
            error_message: Some("".into()),
            entries: Some(Vec::new()),
            ..Default::default()
        },
        Err((error, text)) => DescribeClientQuotasResponse {
            error_code: error,
            error_message: Some(text.into()),
            entries: None,
            ..Default::default()
        },
    })
}

/// Kafka: `ClientQuotasImage#describe`.
fn check_quota_filter(components: &[describe_client_quotas_request::ComponentData]) -> Result<(), (ErrorCode, String)> {
    let invalid = |text: String| Err((ErrorCode::INVALID_REQUEST, text));
    let mut seen = HashSet::new();
    for component in components {
        let kind = &*component.entity_type;
        if kind.is_empty() {
            return invalid("Invalid empty entity type.".to_owned());
        }
        if !seen.insert(kind) {
            return invalid(format!(
                "Entity type {kind} cannot appear more than once in the filter."
            ));
        }
        if !["user", "client-id", "ip"].contains(&kind) {
            return Err((
                ErrorCode::UNSUPPORTED_VERSION,
                format!("Unsupported entity type {kind}"),
            ));
        }
        // 0: the named entity, 1: the default, 2: any named entity.
        match (component.match_type, component.r#match.is_some()) {
            (0, true) | (1 | 2, false) => {}
            (0, false) => {
                return invalid("Request specified MATCH_TYPE_EXACT, but set match string to null.".to_owned());
            }
            (1 | 2, true) => {
                let name = ["DEFAULT", "SPECIFIED"][usize::from(component.match_type == 2)];
                return invalid(format!(
                    "Request specified MATCH_TYPE_{name}, but also specified a match string."
                ));
            }
            (unknown, _) => return invalid(format!("Unknown match type {unknown}")),
        }
    }
    if seen.contains("ip") && seen.len() > 1 {
        return invalid("Invalid entity filter component combination. IP filter component should not be used with user or clientId filter component.".to_owned());
    }
    Ok(())
}

pub(super) fn describe_user_scram_credentials(call: &mut Call<'_>) -> Result<Handled, Unreadable> {
    let request: DescribeUserScramCredentialsRequest = call.message()?;
    if let Err(error) = call.check_cluster(AclOperation::Describe) {
        // Kafka's response does not repeat the names.
        let refused = |_| describe_user_scram_credentials_response::DescribeUserScramCredentialsResult {
            error_code: error,
            error_message: None,
            ..Default::default()
        };
        return call.answer(DescribeUserScramCredentialsResponse {
            error_code: error,
            error_message: None,
            results: request.users.unwrap_or_default().into_iter().map(refused).collect(),
            ..Default::default()
        });
    }
    let mut known: BTreeMap<String, Vec<_>> = BTreeMap::new();
    for (name, mechanism, iterations) in call.broker().describe_user_scram_credentials().map_err(|_| CLOSED)? {
        known
            .entry(name)
            .or_default()
            .push(describe_user_scram_credentials_response::CredentialInfo {
                mechanism: mechanism.code(),
                iterations: i32::try_from(iterations).unwrap_or(i32::MAX),
            });
    }
    let asked = request.users.unwrap_or_default().into_iter().map(|user| user.name);
    let mut asked: Vec<Arc<str>> = asked.collect();
    let twice = repeated(asked.iter().cloned());
    if asked.is_empty() {
        asked = known.keys().map(|name| name.as_str().into()).collect();
    }
    let mut seen = HashSet::new();
    asked.retain(|name| seen.insert(Arc::clone(name)));
    let results = asked.into_iter().map(|user| {
        let refused = |error: ErrorCode, text| (error, Some(format!("{text}: {user}").into()), Vec::new());
        let (error, error_message, credential_infos) = match known.remove(&*user) {
            _ if twice.contains(&user) => refused(
                ErrorCode::DUPLICATE_RESOURCE,
                "Cannot describe SCRAM credentials for the same user twice in a single request",
            ),
            Some(credentials) => (ErrorCode::NONE, None, credentials),
            None => refused(
                ErrorCode::RESOURCE_NOT_FOUND,
                "Attempt to describe a user credential that does not exist",
            ),
        };
        describe_user_scram_credentials_response::DescribeUserScramCredentialsResult {
            user,
            error_code: error,
            error_message,
            credential_infos,
        }
    });
    let results = results.collect();
    call.answer(DescribeUserScramCredentialsResponse {
        error_message: Some("".into()),
        results,
        ..Default::default()
    })
}

pub(super) fn alter_user_scram_credentials(call: &mut Call<'_>) -> Result<Handled, Unreadable> {
    let request: AlterUserScramCredentialsRequest = call.message()?;
    let deletions = request.deletions.into_iter().map(|deletion| ScramDeletion {
        name: deletion.name.to_string(),
        mechanism: deletion.mechanism,
    });
    let upsertions = request.upsertions.into_iter().map(|upsertion| ScramUpsertion {
        name: upsertion.name.to_string(),
        mechanism: upsertion.mechanism,
        iterations: upsertion.iterations,
        salt: upsertion.salt.to_vec(),
        salted_password: upsertion.salted_password.to_vec(),
    });
    let (deletions, upsertions): (Vec<_>, Vec<_>) = (deletions.collect(), upsertions.collect());
    let altered = match call.check_cluster(AclOperation::Alter) {
        Ok(()) => {
            let altered = call.broker().alter_user_scram_credentials(&deletions, &upsertions);
            altered.map_err(|error| (error.code(), Some(error.kafka_message().into())))
        }
        Err(error) => Err((error, cluster_refused())),
    };
    let result = |user: &str, error: ErrorCode, error_message: Option<Arc<str>>| {
        alter_user_scram_credentials_response::AlterUserScramCredentialsResult {
            user: user.into(),
            error_code: error,
            error_message,
        }
    };
    let results = match altered {
        Ok(outcomes) => outcomes
            .into_iter()
            .map(|(user, outcome)| match outcome {
                Ok(()) => result(&user, ErrorCode::NONE, None),
                Err(error) => result(&user, error.code(), Some(error.kafka_message().into())),
            })
            .collect(),
        Err((error, text)) => {
            let names = deletions
                .iter()
                .map(|d| &d.name)
                .chain(upsertions.iter().map(|u| &u.name));
            let names: HashSet<&String> = names.collect();
            names
                .into_iter()
                .map(|name| result(name, error, text.clone()))
                .collect()
        }
    };
    call.answer(AlterUserScramCredentialsResponse {
        results,
        ..Default::default()
    })
}
