//! Requests of every served API, generated from the schema of the wire's messages.

use fletchlog_protocol::schema_json;
use serde_json::Value;

use crate::served_apis;

/// Number of topics, see [`thing`].
pub(super) const TOPICS: usize = 40;

/// Name of a topic, a group or anything else.
pub(super) fn thing(at: usize) -> String {
    format!("thing-{at}")
}

/// A served API and the table of its request.
pub(super) struct Api {
    pub(super) name: String,
    pub(super) key: i16,
    pub(super) min: i16,
    pub(super) max: i16,
    flexible_from: i16,
    fields: Vec<Value>,
}

/// The things that the entries of a list name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Values {
    /// The same thing in every entry.
    Same,
    /// Existing things, as far as they last; each twice.
    Twice,
    /// Existing things, as far as they last; each once.
    Known,
    /// Things that do not exist; each once.
    Unknown,
}

/// Which list of a request is long; the others have one entry.
#[derive(Debug, Clone, Copy)]
pub(super) struct Shape<'a> {
    /// The names of the fields that lead to the long list.
    pub(super) long: &'a str,
    pub(super) count: usize,
    pub(super) values: Values,
    /// Ids of the topics.
    pub(super) ids: &'a [[u8; 16]],
}

/// Every served API.
pub(super) fn all() -> Vec<Api> {
    let schema: Vec<Value> = serde_json::from_str(&schema_json()).unwrap();
    let api = |(name, key, min, max): (&str, i16, i16, i16)| {
        let is_request = |message: &&Value| message["apiKey"] == key && message["type"] == "request";
        let message = schema.iter().find(is_request).unwrap();
        let flexible = message["flexibleVersions"].as_str().unwrap();
        Api {
            name: name.to_owned(),
            key,
            min,
            max,
            flexible_from: flexible
                .strip_suffix('+')
                .map_or(i16::MAX, |first| first.parse().unwrap()),
            fields: message["fields"].as_array().unwrap().clone(),
        }
    };
    served_apis().map(api).collect()
}

fn contains(range: &Value, version: i16) -> bool {
    let Some(range) = range.as_str() else { return false };
    let (first, last) = match (range.strip_suffix('+'), range.split_once('-')) {
        (Some(first), _) => (first, "32767"),
        (None, Some(range)) => range,
        (None, None) => (range, range),
    };
    (first.parse().unwrap()..=last.parse().unwrap()).contains(&version)
}

impl Api {
    /// The paths of a request's lists: the names of the fields that lead to them.
    pub(super) fn lists(&self, version: i16) -> Vec<String> {
        let mut found = Vec::new();
        lists(&self.fields, version, "", &mut found);
        found
    }

    /// A request without the size in front.
    pub(super) fn request(&self, version: i16, correlation_id: i32, shape: &Shape<'_>) -> Vec<u8> {
        let mut out = Vec::new();
        out.extend(self.key.to_be_bytes());
        out.extend(version.to_be_bytes());
        out.extend(correlation_id.to_be_bytes());
        out.extend(4i16.to_be_bytes());
        out.extend(b"test");
        let mut body = Body {
            api: self,
            version,
            shape,
            is_flexible: version >= self.flexible_from,
            out,
        };
        body.end_of_fields();
        body.fields(&self.fields, "", 0);
        body.out
    }
}

fn lists(fields: &[Value], version: i16, path: &str, found: &mut Vec<String>) {
    for field in fields {
        if !contains(&field["versions"], version) || !field["tag"].is_null() {
            continue;
        }
        let path = format!("{path}/{}", field["name"].as_str().unwrap());
        if let Some(inner) = field["fields"].as_array() {
            lists(inner, version, &path, found);
        }
        if field["type"].as_str().unwrap().starts_with("[]") {
            found.push(path);
        }
    }
}

struct Body<'a> {
    api: &'a Api,
    version: i16,
    shape: &'a Shape<'a>,
    is_flexible: bool,
    out: Vec<u8>,
}

impl Body<'_> {
    fn end_of_fields(&mut self) {
        if self.is_flexible {
            self.out.push(0);
        }
    }

    fn fields(&mut self, fields: &[Value], path: &str, at: usize) {
        for field in fields {
            if contains(&field["versions"], self.version) && field["tag"].is_null() {
                let name = field["name"].as_str().unwrap();
                self.value(
                    field,
                    field["type"].as_str().unwrap(),
                    name,
                    &format!("{path}/{name}"),
                    at,
                );
            }
        }
        self.end_of_fields();
    }

    fn value(&mut self, field: &Value, kind: &str, name: &str, path: &str, at: usize) {
        let may_be_null = contains(&field["nullableVersions"], self.version);
        let is_within = path.len() > self.shape.long.len() && path.starts_with(self.shape.long);
        if may_be_null && kind.starts_with("[]") && is_within && self.shape.values == Values::Same {
            // Null asks for everything.
            return self.null(4);
        }
        if let Some(element) = kind.strip_prefix("[]") {
            let count = if path == self.shape.long { self.shape.count } else { 1 };
            self.length(count, 4);
            let mut field = field.clone();
            field["nullableVersions"] = Value::Null;
            for entry in 0..count {
                let at = if path == self.shape.long { entry } else { at };
                self.value(&field, element, name, path, at);
            }
            return;
        }
        match kind {
            "string" => match self.text(name, path, at) {
                None if may_be_null => self.null(2),
                text => {
                    let text = text.unwrap_or_default();
                    self.length(text.len(), 2);
                    self.out.extend(text.bytes());
                }
            },
            "bytes" => self.length(0, 4),
            "records" => {
                self.length(UNKNOWN_CODEC.len(), 4);
                self.out.extend(UNKNOWN_CODEC);
            }
            "bool" => self.out.push(u8::from(name.starts_with("include"))),
            "uuid" => {
                let known = self
                    .shape
                    .ids
                    .get(self.place(at))
                    .filter(|_| self.shape.values != Values::Unknown);
                self.out
                    .extend(known.copied().unwrap_or((1u128 << 100 | at as u128).to_be_bytes()));
            }
            "float64" => self.out.extend(1f64.to_be_bytes()),
            "int8" | "int16" | "uint16" | "int32" | "int64" => {
                let bits = kind.trim_start_matches(char::is_alphabetic);
                let size = bits.parse::<usize>().unwrap() / 8;
                self.out.extend(&self.number(name, path, at).to_be_bytes()[8 - size..]);
            }
            _ if may_be_null => self.out.push(0xff),
            _ => self.fields(field["fields"].as_array().unwrap(), path, at),
        }
    }

    fn length(&mut self, length: usize, size: usize) {
        if !self.is_flexible {
            return self.out.extend(&(length as u64).to_be_bytes()[8 - size..]);
        }
        let mut left = length + 1;
        while left >= 0x80 {
            self.out.push(left.to_le_bytes()[0] | 0x80);
            left >>= 7;
        }
        self.out.push(left.to_le_bytes()[0]);
    }

    fn null(&mut self, size: usize) {
        match self.is_flexible {
            true => self.out.push(0),
            false => self.out.extend(&(-1i64).to_be_bytes()[8 - size..]),
        }
    }

    fn place(&self, at: usize) -> usize {
        match self.shape.values {
            Values::Same => 0,
            Values::Twice => at / 2,
            Values::Known | Values::Unknown => at,
        }
    }

    /// A text; `None`: null, where it is allowed.
    fn text(&self, name: &str, path: &str, at: usize) -> Option<String> {
        let place = self.place(at);
        let named = match self.shape.values {
            Values::Unknown => thing(1_000_000 + at),
            _ => thing(place),
        };
        let api = &*self.api.name;
        Some(match (api, name) {
            // A property of a topic or a group, unless the properties are the long list.
            (_, "name" | "value") if path.contains("/configs/") && !self.shape.long.ends_with("/configs") => {
                let [property, value] = match self.alters_groups() {
                    true => ["consumer.session.timeout.ms", "45000"],
                    false => ["retention.ms", "60000"],
                };
                if name == "name" { property } else { value }.to_owned()
            }
            ("LeaveGroup", "group_id") => "members".to_owned(),
            ("JoinGroup", "protocol_type") => "consumer".to_owned(),
            ("LeaveGroup" | "JoinGroup", "group_instance_id") => named,
            (_, "group_instance_id" | "transactional_id_pattern") => return None,
            // These requests come from a producer without transactions.
            ("Produce" | "InitProducerId", "transactional_id") => return None,
            (_, "member_id") if api != "SyncGroup" => String::new(),
            (_, "principal" | "principal_filter") => format!("User:{named}"),
            _ => named,
        })
    }

    /// Whether to alter groups instead of topics: a group can have any name, but few topics exist.
    fn alters_groups(&self) -> bool {
        self.shape.values == Values::Unknown && self.api.name.ends_with("AlterConfigs")
    }

    fn number(&self, name: &str, path: &str, at: usize) -> i64 {
        let place = self.place(at) as i64;
        let at = at as i64;
        match name {
            // Partition 0 on node 1, the only assignment of a topic.
            _ if path.contains("/assignments/") && !self.shape.long.ends_with("/assignments") => {
                i64::from(name == "broker_ids")
            }
            "num_partitions" | "replication_factor" => -1,
            "resource_type" if self.alters_groups() => 32,
            "acks" | "timestamp" | "replica_id" | "session_epoch" | "retention_time_ms" | "duration_filter" => -1,
            "broker_ids" | "replicas" | "mechanism" | "endpoint_type" => 1,
            "count" => 2,
            "resource_types" => 2,
            "partition_max_bytes" | "max_bytes" => 1 << 20,
            "iterations" => 4096,
            "response_partition_limit" => 2000,
            "producer_id" | "producer_epoch" | "v3_and_below_producer_id" | "v3_and_below_producer_epoch" => 0,
            "producer_id_filters" => place,
            _ if name.starts_with("resource_type") => 2,
            _ if name.contains("pattern_type") || name == "operation" || name == "permission_type" => 3,
            _ if name.ends_with("epoch") || name.starts_with("generation") => -1,
            _ if name.ends_with("timeout_ms") => 10_000,
            _ if name.contains("partition") || name.contains("index") => match self.shape.values {
                Values::Unknown => 1_000_000 + at,
                _ => place,
            },
            _ => 0,
        }
    }
}

/// A batch whose codec does not exist.
const UNKNOWN_CODEC: [u8; 61] = {
    let mut batch = [0; 61];
    batch[11] = 49;
    batch[16] = 2;
    batch[22] = 7;
    batch
};
