//! Why a value or a schema was refused.

use std::borrow::Cow;

/// Why one value cannot be read or written: a sentence without a full stop, for the people who look for the producer's fault.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Reason(pub Cow<'static, str>);

impl Reason {
    /// A reason that needs no value.
    #[must_use]
    pub const fn plain(text: &'static str) -> Self {
        Self(Cow::Borrowed(text))
    }
}

impl From<String> for Reason {
    fn from(text: String) -> Self {
        Self(Cow::Owned(text))
    }
}

/// A schema that is none, that has no Arrow type, or that cannot be read as the reader's.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SchemaError {
    /// Not a schema, or none with an Arrow type: what is wrong, and where.
    #[error("{0}")]
    Invalid(String),
    /// No value of the writer's schema can be read by the reader's.
    #[error("{0}")]
    Unresolvable(String),
}
