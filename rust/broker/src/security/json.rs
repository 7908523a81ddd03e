//! Users and ACLs as `fletchlog.metadata` keeps them.
//!
//! ```json
//! {"scram": [{"name": "alice", "mechanism": "SCRAM-SHA-256", "iterations": 8192, "salt": "base64", "stored.key": "base64",
//!             "server.key": "base64"}],
//!  "acls": [{"resource.type": "TOPIC", "resource.name": "orders", "pattern.type": "LITERAL", "principal": "User:alice", "host": "*",
//!            "operation": "READ", "permission.type": "ALLOW"}]}
//! ```

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use fletchlog_sasl::{Mechanism, ScramCredential, ScramMechanism};
use serde_json::{Map, Value, json};

use super::SecurityRecord;
use super::acl::{Acl, AclOperation, Coded, PatternType, PermissionType, ResourceType};

impl SecurityRecord {
    /// Adds the users and ACLs to the file's object.
    pub(crate) fn write(&self, file: &mut Value) {
        if !self.scram.is_empty() {
            let user = |((name, mechanism), credential): (&(String, ScramMechanism), &ScramCredential)| {
                json!({"name": name, "mechanism": mechanism.name(), "iterations": credential.iterations,
                    "salt": BASE64.encode(&credential.salt), "stored.key": BASE64.encode(&credential.stored_key),
                    "server.key": BASE64.encode(&credential.server_key)})
            };
            file["scram"] = self.scram.iter().map(user).collect();
        }
        if !self.acls.is_empty() {
            file["acls"] = self.acls.iter().map(acl_to_json).collect();
        }
    }

    /// Reads the users and ACLs of the file's object; the error says what is wrong, but shows no data of a user.
    pub(crate) fn read(file: &Map<String, Value>) -> Result<Self, String> {
        let rows = |name: &str| match file.get(name) {
            None => Ok(Vec::new()),
            Some(rows) => rows.as_array().cloned().ok_or_else(|| format!("has no valid `{name}`")),
        };
        let scram = rows("scram")?.iter().map(user_from_json).collect::<Option<_>>();
        let acls = rows("acls")?.iter().map(acl_from_json).collect::<Option<_>>();
        Ok(Self {
            scram: scram.ok_or("has a user in `scram` that is not valid")?,
            acls: acls.ok_or("has a rule in `acls` that is not valid")?,
        })
    }
}

fn user_from_json(user: &Value) -> Option<((String, ScramMechanism), ScramCredential)> {
    let text = |name: &str| user.get(name)?.as_str();
    let bytes = |name: &str| BASE64.decode(text(name)?).ok();
    let Mechanism::Scram(mechanism) = Mechanism::from_name(text("mechanism")?)? else {
        return None;
    };
    let credential = ScramCredential {
        salt: bytes("salt")?,
        stored_key: bytes("stored.key")?,
        server_key: bytes("server.key")?,
        iterations: u32::try_from(user.get("iterations")?.as_u64()?).ok()?,
    };
    Some(((text("name")?.to_owned(), mechanism), credential))
}

fn acl_to_json(acl: &Acl) -> Value {
    json!({"resource.type": acl.resource_type.name(), "resource.name": acl.resource_name,
        "pattern.type": acl.pattern_type.name(), "principal": acl.principal, "host": acl.host,
        "operation": acl.operation.name(), "permission.type": acl.permission_type.name()})
}

fn acl_from_json(acl: &Value) -> Option<Acl> {
    let text = |name: &str| acl.get(name)?.as_str();
    let acl = Acl {
        resource_type: ResourceType::from_name(text("resource.type")?)?,
        resource_name: text("resource.name")?.to_owned(),
        pattern_type: PatternType::from_name(text("pattern.type")?)?,
        principal: text("principal")?.to_owned(),
        host: text("host")?.to_owned(),
        operation: AclOperation::from_name(text("operation")?)?,
        permission_type: PermissionType::from_name(text("permission.type")?)?,
    };
    acl.validate().is_ok().then_some(acl)
}
