//! Bodies of random messages, made from the tables: each is as Kafka would write it (tagged fields in order and only when
//! they differ from their default), so that a codec that is right gives the same bytes again.

use fletchlog_protocol::schema::Versions;
use fletchlog_protocol::{FieldSpec, FieldType};
use fletchlog_records::ErrorCode;

/// What a generated message is chosen by: bytes, then zeros without end. Fewer bytes make smaller messages.
pub struct Choices<'a>(pub &'a [u8]);

impl Choices<'_> {
    pub fn byte(&mut self) -> u8 {
        let (first, rest) = self.0.split_first().unwrap_or((&0, &[]));
        self.0 = rest;
        *first
    }

    pub fn below(&mut self, end: usize) -> usize {
        usize::from(self.byte()) % end
    }

    /// Mostly the ends of the range and what defaults are made of.
    fn integer(&mut self, size: usize) -> Vec<u8> {
        let max = i64::MAX >> (64 - 8 * size);
        let known = [0, -1, 1, max, -max - 1, 3, -2, 60_000 & max];
        let value = match self.byte() {
            choice @ 0..128 => known[usize::from(choice) % known.len()],
            _ => return (0..size).map(|_| self.byte()).collect(),
        };
        value.to_be_bytes()[8 - size..].to_vec()
    }

    fn text(&mut self) -> Vec<u8> {
        let known = [
            "",
            "a",
            "topic-1",
            "größer",
            "\u{1F980}",
            &"long".repeat(40),
            &"x".repeat(200),
            "127.0.0.1",
        ];
        known[self.below(known.len())].as_bytes().to_vec()
    }

    fn bytes(&mut self) -> Vec<u8> {
        let len = [0, 1, 5, 127, 128, 1023, 1024, 5000][self.below(8)];
        let fill = self.byte();
        vec![fill; len]
    }
}

/// Writes bodies of one version.
#[derive(Clone, Copy)]
pub struct Body {
    pub version: i16,
    pub flexible: bool,
}

fn put_varint(out: &mut Vec<u8>, mut value: usize) {
    while value >= 0x80 {
        out.push(u8::try_from(value & 0x7f).unwrap() | 0x80);
        value >>= 7;
    }
    out.push(u8::try_from(value).unwrap());
}

impl Body {
    fn has(self, versions: Versions) -> bool {
        versions.contains(self.version)
    }

    fn length(self, out: &mut Vec<u8>, len: Option<usize>, size: usize) {
        match self.flexible {
            true => put_varint(out, len.map_or(0, |len| len + 1)),
            false => {
                let length = len.map_or(-1, |len| i64::try_from(len).unwrap());
                out.extend_from_slice(&length.to_be_bytes()[8 - size..]);
            }
        }
    }

    pub fn structure(self, out: &mut Vec<u8>, table: &[FieldSpec], choices: &mut Choices) {
        let mut tagged: Vec<(u32, Vec<u8>)> = Vec::new();
        for spec in table.iter().filter(|spec| self.has(spec.presence.versions)) {
            let nullable = self.has(spec.presence.nullable);
            let Some(tag) = spec.presence.tag else {
                self.value(out, spec.field_type, nullable, choices);
                continue;
            };
            let (mut value, mut default) = (Vec::new(), Vec::new());
            self.value(&mut value, spec.field_type, nullable, choices);
            self.default_of(&mut default, spec);
            if value != default {
                tagged.push((tag, value));
            }
        }
        if self.flexible {
            tagged.sort();
            put_varint(out, tagged.len());
            for (tag, value) in tagged {
                put_varint(out, usize::try_from(tag).unwrap());
                put_varint(out, value.len());
                out.extend_from_slice(&value);
            }
        }
    }

    fn value(self, out: &mut Vec<u8>, field_type: FieldType, nullable: bool, choices: &mut Choices) {
        let null = nullable && choices.below(4) == 1;
        match field_type {
            FieldType::Bool => out.push(choices.byte() & 1),
            // A code that is not in the table would come back as another.
            FieldType::ErrorCode => {
                let code = ErrorCode::ALL[choices.below(ErrorCode::ALL.len())];
                out.extend_from_slice(&code.code().to_be_bytes());
            }
            FieldType::Float64 => out.extend_from_slice(&f64::from(choices.byte()).sqrt().to_be_bytes()),
            FieldType::Uuid => {
                let byte = choices.byte();
                out.extend_from_slice(&[byte; 16]);
            }
            FieldType::String | FieldType::Bytes | FieldType::Records if null => {
                self.length(out, None, if matches!(field_type, FieldType::String) { 2 } else { 4 });
            }
            FieldType::String => {
                let text = choices.text();
                self.length(out, Some(text.len()), 2);
                out.extend_from_slice(&text);
            }
            FieldType::Bytes | FieldType::Records => {
                let bytes = choices.bytes();
                self.length(out, Some(bytes.len()), 4);
                out.extend_from_slice(&bytes);
            }
            FieldType::Array(_) if null => self.length(out, None, 4),
            FieldType::Array(element) => {
                let count = [0, 1, 2, 3][choices.below(4)];
                self.length(out, Some(count), 4);
                (0..count).for_each(|_| self.value(out, *element, false, choices));
            }
            FieldType::Struct(_, table) => {
                if nullable {
                    out.push(if null { 0xff } else { 1 });
                }
                if !null {
                    self.structure(out, table, choices);
                }
            }
            integer => out.extend_from_slice(&choices.integer(integer_size(integer))),
        }
    }

    /// The default as it would be written.
    fn default_of(self, out: &mut Vec<u8>, spec: &FieldSpec) {
        match spec.field_type {
            FieldType::Struct(..) if spec.default == "None" => out.push(0xff),
            _ if spec.default == "None" => self.length(out, None, 4),
            FieldType::Array(_) | FieldType::String => self.length(out, Some(0), 4),
            FieldType::Uuid => out.extend_from_slice(&[0; 16]),
            FieldType::Bool => out.push(u8::from(spec.default == "true")),
            FieldType::Struct(_, table) => {
                for spec in table.iter().filter(|spec| self.has(spec.presence.versions)) {
                    assert!(
                        spec.presence.tag.is_none(),
                        "tagged field in a tagged struct: {}",
                        spec.name
                    );
                    self.default_of(out, spec);
                }
                put_varint(out, 0);
            }
            integer => {
                let text = spec.default.replace(' ', "");
                let value: i64 = if text.is_empty() { 0 } else { text.parse().unwrap() };
                out.extend_from_slice(&value.to_be_bytes()[8 - integer_size(integer)..]);
            }
        }
    }
}

fn integer_size(field_type: FieldType) -> usize {
    match field_type {
        FieldType::Int8 => 1,
        FieldType::Int16 | FieldType::Uint16 | FieldType::ErrorCode => 2,
        FieldType::Int32 => 4,
        FieldType::Int64 => 8,
        other => panic!("{other:?} is no integer"),
    }
}
