//! A decoder of its own: it walks over the printed table and makes JSON, and shares no code with the structs.

use fletchlog_protocol::schema::Versions;
use fletchlog_protocol::{FieldSpec, FieldType};
use serde_json::{Map, Value, json};

/// Bytes and how far they have been read.
pub struct Walk<'a> {
    pub rest: &'a [u8],
    pub version: i16,
    pub flexible: bool,
}

pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

pub fn unhex(text: &str) -> Vec<u8> {
    (0..text.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap())
        .collect()
}

/// A name as it can be compared: Kafka writes `TopicId` and `timeoutMs`, the tables `topic_id` and `timeout_ms`.
pub fn plain_name(name: &str) -> String {
    name.replace('_', "").to_lowercase()
}

fn has(versions: Versions, version: i16) -> bool {
    versions.min <= version && version <= versions.max
}

impl Walk<'_> {
    pub fn take(&mut self, len: usize) -> &[u8] {
        let (head, rest) = self.rest.split_at(len);
        self.rest = rest;
        head
    }

    fn int(&mut self, size: usize) -> i64 {
        let bytes = self.take(size);
        let sign = if bytes[0] >= 0x80 { -1 } else { 0 };
        bytes.iter().fold(sign, |value, byte| value << 8 | i64::from(*byte))
    }

    pub fn varint(&mut self) -> usize {
        let byte = usize::from(self.take(1)[0]);
        if byte < 0x80 {
            byte
        } else {
            byte & 0x7f | self.varint() << 7
        }
    }

    fn length(&mut self, size: usize) -> Option<usize> {
        match self.flexible {
            true => self.varint().checked_sub(1),
            false => usize::try_from(self.int(size)).ok(),
        }
    }

    pub fn structure(&mut self, table: &[FieldSpec]) -> Value {
        let mut object = Map::new();
        let version = self.version;
        let (tagged, fields): (Vec<&FieldSpec>, Vec<&FieldSpec>) = table
            .iter()
            .filter(|spec| has(spec.presence.versions, version))
            .partition(|spec| spec.presence.tag.is_some());
        for spec in fields {
            object.insert(plain_name(spec.name), self.field(spec));
        }
        for spec in &tagged {
            object.insert(plain_name(spec.name), self.default_of(spec));
        }
        for _ in 0..if self.flexible { self.varint() } else { 0 } {
            let (tag, size) = (self.varint(), self.varint());
            let end = self.rest.len() - size;
            let spec = tagged.iter().find(|spec| spec.presence.tag == u32::try_from(tag).ok());
            let spec = spec.unwrap_or_else(|| panic!("tag {tag} in {table:?}"));
            object.insert(plain_name(spec.name), self.field(spec));
            assert_eq!(self.rest.len(), end, "the size of tag {tag}");
        }
        object.into()
    }

    fn field(&mut self, spec: &FieldSpec) -> Value {
        self.value(spec.field_type, has(spec.presence.nullable, self.version))
    }

    fn value(&mut self, field_type: FieldType, nullable: bool) -> Value {
        let value = match field_type {
            FieldType::Bool => json!(self.int(1) != 0),
            FieldType::Int8 => json!(self.int(1)),
            FieldType::Int16 | FieldType::ErrorCode => json!(self.int(2)),
            FieldType::Uint16 => json!(self.int(2) & 0xffff),
            FieldType::Int32 => json!(self.int(4)),
            FieldType::Int64 => json!(self.int(8)),
            FieldType::Float64 => json!(f64::from_bits(self.int(8).cast_unsigned())),
            FieldType::Uuid => json!(hex(self.take(16))),
            FieldType::String => {
                let text = self.length(2).map(|len| self.take(len).to_vec());
                json!(text.map(|bytes| String::from_utf8(bytes).unwrap()))
            }
            FieldType::Bytes | FieldType::Records => json!(self.length(4).map(|len| hex(self.take(len)))),
            FieldType::Array(element) => {
                let count = self.length(4);
                json!(count.map(|count| (0..count).map(|_| self.value(*element, false)).collect::<Vec<_>>()))
            }
            FieldType::Struct(..) if nullable && self.int(1) < 0 => Value::Null,
            FieldType::Struct(_, table) => self.structure(table),
        };
        assert!(nullable || !value.is_null(), "null in {field_type:?}");
        value
    }

    /// What an absent tagged field is.
    fn default_of(&self, spec: &FieldSpec) -> Value {
        match spec.field_type {
            _ if spec.default == "None" => Value::Null,
            FieldType::Array(_) => json!([]),
            FieldType::String => json!(spec.default),
            FieldType::Uuid => json!("0".repeat(32)),
            FieldType::Bool => json!(spec.default == "true"),
            FieldType::Struct(_, table) => {
                let fields = table.iter().filter(|spec| has(spec.presence.versions, self.version));
                fields
                    .map(|spec| (plain_name(spec.name), self.default_of(spec)))
                    .collect::<Map<_, _>>()
                    .into()
            }
            _ if spec.default.is_empty() => json!(0),
            _ => json!(spec.default.replace(' ', "").parse::<i64>().unwrap()),
        }
    }
}
