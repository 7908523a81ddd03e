//! Users of SCRAM. Kafka: `ScramControlManager`, `ScramImage`.

use std::collections::BTreeMap;

use fletchlog_api::ErrorCode;
use fletchlog_sasl::{MAX_ITERATIONS, MIN_ITERATIONS, ScramCredential, ScramMechanism, Secret, secure_random_string};

use super::SecurityRecord;
use crate::BrokerError;

/// Removes a user's credential.
#[derive(Debug, Clone)]
pub struct ScramDeletion {
    /// User.
    pub name: String,
    /// Kafka's number of the mechanism.
    pub mechanism: i8,
}

/// Sets a user's credential, or replaces it.
#[derive(Clone)]
pub struct ScramUpsertion {
    /// User.
    pub name: String,
    /// Kafka's number of the mechanism.
    pub mechanism: i8,
    /// Iterations of PBKDF2.
    pub iterations: i32,
    /// Random bytes.
    pub salt: Vec<u8>,
    /// The password, salted.
    pub salted_password: Vec<u8>,
}

impl ScramUpsertion {
    /// Derives the credential from a password. Kafka: `UserScramCredentialUpsertion`.
    ///
    /// # Errors
    /// The system has no random bytes.
    pub fn new(name: &str, mechanism: ScramMechanism, password: &Secret, iterations: u32) -> std::io::Result<Self> {
        let salt = secure_random_string()?.into_bytes();
        Ok(Self {
            name: name.to_owned(),
            mechanism: mechanism.code(),
            iterations: i32::try_from(iterations).unwrap_or(i32::MAX),
            salted_password: mechanism.salted_password(password, &salt, iterations.clamp(1, MAX_ITERATIONS)),
            salt,
        })
    }

    /// Kafka: `ScramControlManager#validateUpsertion`.
    fn credential(&self) -> Result<(ScramMechanism, ScramCredential), BrokerError> {
        let mechanism = check_user(&self.name, self.mechanism)?;
        let unacceptable = |text| BrokerError::kafka(ErrorCode::UNACCEPTABLE_CREDENTIAL, text);
        let iterations = match u32::try_from(self.iterations) {
            Ok(iterations) if iterations > MAX_ITERATIONS => return Err(unacceptable("Too many iterations")),
            Ok(iterations) if iterations >= MIN_ITERATIONS => iterations,
            _ => return Err(unacceptable("Too few iterations")),
        };
        let credential =
            ScramCredential::from_salted_password(mechanism, &self.salted_password, &self.salt, iterations);
        Ok((mechanism, credential))
    }
}

/// Kafka: `ScramControlManager#validateScramUsernameAndMechanism`.
fn check_user(name: &str, mechanism: i8) -> Result<ScramMechanism, BrokerError> {
    if name.is_empty() {
        return Err(BrokerError::kafka(
            ErrorCode::UNACCEPTABLE_CREDENTIAL,
            "Username must not be empty",
        ));
    }
    let unknown = || BrokerError::kafka(ErrorCode::UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism");
    ScramMechanism::from_code(mechanism).ok_or_else(unknown)
}

/// Users by name, with the outcome of each.
pub type AlteredUsers = Vec<(String, Result<(), BrokerError>)>;

/// A change of one user's credential.
enum Change {
    Delete(ScramMechanism),
    Upsert(ScramMechanism, ScramCredential),
}

fn check_deletion(deletion: &ScramDeletion, security: &SecurityRecord) -> Result<Change, BrokerError> {
    let mechanism = check_user(&deletion.name, deletion.mechanism)?;
    match security.scram.contains_key(&(deletion.name.clone(), mechanism)) {
        true => Ok(Change::Delete(mechanism)),
        false => Err(BrokerError::kafka(
            ErrorCode::RESOURCE_NOT_FOUND,
            "Attempt to delete a user credential that does not exist",
        )),
    }
}

/// The outcome for each user, once per name. Kafka: `ScramControlManager#alterCredentials`.
type Outcomes<T> = BTreeMap<String, Result<T, BrokerError>>;

fn check_all(
    deletions: &[ScramDeletion],
    upsertions: &[ScramUpsertion],
    security: &SecurityRecord,
) -> Outcomes<Change> {
    let mut outcomes: Outcomes<Change> = BTreeMap::new();
    let deletions = deletions.iter().map(|d| (&d.name, check_deletion(d, security)));
    let upsertions = upsertions.iter().map(|u| {
        let change = u
            .credential()
            .map(|(mechanism, credential)| Change::Upsert(mechanism, credential));
        (&u.name, change)
    });
    for (name, change) in deletions.chain(upsertions) {
        let twice = || {
            let text = "A user credential cannot be altered twice in the same request";
            Err(BrokerError::kafka(ErrorCode::DUPLICATE_RESOURCE, text))
        };
        outcomes
            .entry(name.clone())
            .and_modify(|known| {
                if known.is_ok() {
                    *known = twice();
                }
            })
            .or_insert(change);
    }
    outcomes
}

impl SecurityRecord {
    /// Changes users; the result of each by name. A user that cannot be changed does not affect the others.
    pub(crate) fn alter_scram(&mut self, deletions: &[ScramDeletion], upsertions: &[ScramUpsertion]) -> AlteredUsers {
        let outcomes = check_all(deletions, upsertions, self);
        let apply = |(name, change): (String, Result<Change, BrokerError>)| {
            let done = change.map(|change| match change {
                Change::Delete(mechanism) => drop(self.scram.remove(&(name.clone(), mechanism))),
                Change::Upsert(mechanism, credential) => {
                    self.scram.insert((name.clone(), mechanism), credential);
                }
            });
            (name, done)
        };
        outcomes.into_iter().map(apply).collect()
    }
}
