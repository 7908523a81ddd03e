//! The tables as Kafka's own JSON.

use serde_json::{Map, Value, json};

use crate::api_key::ApiKey;
use crate::schema::{FieldSpec, FieldType, OPEN, Versions};
use crate::values;

/// All tables as JSON in the words of Kafka's message definitions (`validVersions`, `nullableVersions`, ..): an array of
/// messages by API key, each request before its response. Names of fields are in snake case.
pub fn schema_json() -> String {
    let messages = ApiKey::ALL.iter().flat_map(|api| {
        let [request, response] = api.tables();
        [message(*api, "request", request), message(*api, "response", response)]
    });
    Value::Array(messages.collect()).to_string()
}

/// The tables of what is inside of records and of JoinGroup and SyncGroup ([`values`]), in the same form. The versions of a key are the type
/// of its record, as in its bytes.
pub fn value_schema_json() -> String {
    let value = |table: &values::Table| {
        json!({
            "name": table.name,
            "validVersions": range(table.versions),
            "flexibleVersions": open_range(table.first_flexible_version),
            "fields": fields(table.fields),
        })
    };
    values::TABLES.iter().map(value).collect::<Value>().to_string()
}

fn message(api: ApiKey, kind: &str, (name, table): (&str, &[FieldSpec])) -> Value {
    let valid = Versions {
        min: api.min_version(),
        max: api.max_version(),
    };
    json!({
        "apiKey": api.code(),
        "type": kind,
        "name": name,
        "validVersions": range(valid),
        "flexibleVersions": open_range(api.first_flexible_version()),
        "fields": fields(table),
    })
}

fn open_range(first: i16) -> String {
    match first {
        OPEN => "none".to_owned(),
        first => format!("{first}+"),
    }
}

fn fields(table: &[FieldSpec]) -> Value {
    table.iter().map(field).collect()
}

fn field(spec: &FieldSpec) -> Value {
    let presence = spec.presence;
    let mut object = Map::new();
    object.insert("name".into(), spec.name.into());
    object.insert("type".into(), type_name(spec.field_type).into());
    object.insert("versions".into(), range(presence.versions).into());
    if presence.nullable.min <= presence.nullable.max {
        object.insert("nullableVersions".into(), range(presence.nullable).into());
    }
    if let Some(tag) = presence.tag {
        object.insert("tag".into(), tag.into());
        object.insert("taggedVersions".into(), range(presence.versions).into());
    }
    if !spec.default.is_empty() {
        let default = if spec.default == "None" { "null" } else { spec.default };
        object.insert("default".into(), default.into());
    }
    if presence.ignorable {
        object.insert("ignorable".into(), true.into());
    }
    if let FieldType::Struct(_, inner) = spec.field_type.element() {
        object.insert("fields".into(), fields(inner));
    }
    object.into()
}

fn range(versions: Versions) -> String {
    match versions {
        Versions { min, max: OPEN } => format!("{min}+"),
        Versions { min, max } if min == max => min.to_string(),
        Versions { min, max } => format!("{min}-{max}"),
    }
}

fn type_name(field_type: FieldType) -> String {
    match field_type {
        FieldType::Array(element) => format!("[]{}", type_name(*element)),
        FieldType::Struct(name, _) => name.to_owned(),
        FieldType::ErrorCode => "int16".to_owned(),
        other => format!("{other:?}").to_lowercase(),
    }
}
