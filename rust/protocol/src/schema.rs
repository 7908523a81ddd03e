//! The tables as values.

use crate::error::Fault;

/// The end of an open range of versions.
pub(crate) const OPEN: i16 = i16::MAX;

/// A range of versions of a message; `min > max`: none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Versions {
    /// First.
    pub min: i16,
    /// Last.
    pub max: i16,
}

/// The type of a field.
#[derive(Debug, Clone, Copy, PartialEq)]
#[allow(missing_docs, reason = "Kafka's names of its types")]
pub enum FieldType {
    Bool,
    Int8,
    Int16,
    /// An int16 that is one of Kafka's errors.
    ErrorCode,
    Uint16,
    Int32,
    Int64,
    Float64,
    Uuid,
    String,
    Bytes,
    Records,
    Array(&'static FieldType),
    Struct(&'static str, &'static [FieldSpec]),
}

/// One row of a message's table.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct FieldSpec {
    /// Kafka's name in snake case.
    pub name: &'static str,
    /// Its type.
    pub field_type: FieldType,
    /// The default as it is written in the table; empty: the zero of the type.
    pub default: &'static str,
    /// In which versions it is present, nullable or tagged.
    pub presence: Presence,
}

/// In which versions of its message a field is present, may be null, or is tagged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Presence {
    /// Versions that have the field.
    pub versions: Versions,
    /// Versions in which it may be null.
    pub nullable: Versions,
    /// Its tag, if it is a tagged field (in all its versions).
    pub tag: Option<u32>,
    /// Whether a value may be left out silently in a version without the field.
    pub ignorable: bool,
}

/// A field's name without the mark of a name that is a keyword of Rust (`r#match`).
pub(crate) const fn unraw(name: &'static str) -> &'static str {
    match name.as_bytes() {
        [b'r', b'#', rest @ ..] => match str::from_utf8(rest) {
            Ok(name) => name,
            Err(_) => name,
        },
        _ => name,
    }
}

/// Where a version of a message has a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    Absent,
    Plain,
    Tagged,
}

impl FieldType {
    /// The type of an array's elements, otherwise the type itself.
    pub(crate) fn element(self) -> Self {
        match self {
            Self::Array(element) => *element,
            other => other,
        }
    }
}

impl Versions {
    const NONE: Self = Self { min: 0, max: -1 };

    /// Whether the version is one of them.
    pub const fn contains(self, version: i16) -> bool {
        self.min <= version && version <= self.max
    }
}

/// A field of this and all later versions.
pub(crate) const fn since(min: i16) -> Presence {
    between(min, OPEN)
}

/// A field of these versions only.
pub(crate) const fn between(min: i16, max: i16) -> Presence {
    Presence {
        versions: Versions { min, max },
        nullable: Versions::NONE,
        tag: None,
        ignorable: false,
    }
}

impl Presence {
    /// Null is possible from this version on.
    pub(crate) const fn nullable(mut self, min: i16) -> Self {
        self.nullable = Versions {
            min,
            max: self.versions.max,
        };
        self
    }

    /// Null is possible in the versions up to this one.
    pub(crate) const fn nullable_until(mut self, max: i16) -> Self {
        self.nullable = Versions {
            min: self.versions.min,
            max,
        };
        self
    }

    /// A tagged field.
    pub(crate) const fn tag(mut self, tag: u32) -> Self {
        self.tag = Some(tag);
        self
    }

    /// May be left out in versions without the field.
    pub(crate) const fn ignorable(mut self) -> Self {
        self.ignorable = true;
        self
    }

    /// Whether every version has it among its plain fields.
    pub(crate) const fn is_always_plain(self) -> bool {
        self.versions.min <= 0 && self.versions.max == OPEN && self.tag.is_none()
    }

    /// Where a version has the field.
    pub(crate) const fn place(self, version: i16) -> Place {
        match (self.versions.contains(version), self.tag) {
            (false, _) => Place::Absent,
            (true, None) => Place::Plain,
            (true, Some(_)) => Place::Tagged,
        }
    }

    /// Checks that a value may be left out in this version; tagged fields are written later.
    pub(crate) const fn check_absent(self, place: Place) -> Result<(), Fault> {
        match place {
            Place::Absent if !self.ignorable => Err(Fault::NotInVersion),
            _ => Ok(()),
        }
    }

    /// The tag of the field in this version.
    pub(crate) const fn tag_in(self, version: i16) -> Option<u32> {
        if self.versions.contains(version) {
            self.tag
        } else {
            None
        }
    }
}
