//! What can be wrong with a message.

/// A message that cannot be decoded or encoded: which one, where, and why.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{message}{}{field}: {fault}", if field.is_empty() { "" } else { ", field " })]
pub struct WireError {
    /// Kafka's name of the message, "RequestHeader" and "ResponseHeader" included.
    pub message: &'static str,
    /// `Struct.field`, the innermost; empty if the message as a whole is meant.
    pub field: &'static str,
    /// What is wrong.
    pub fault: Fault,
}

/// What is wrong with a field or a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// The bytes end inside a value, or a length goes beyond them.
    #[error("{wanted} bytes or elements are announced, {remaining} bytes remain")]
    Cut {
        /// Bytes or elements that should follow.
        wanted: usize,
        /// Bytes that remain.
        remaining: usize,
    },
    /// A varint of more than five bytes.
    #[error("a varint is longer than 5 bytes")]
    Varint,
    /// Text of a value that is not UTF-8.
    #[error("a string is not UTF-8")]
    Text,
    /// Null where the version has no null.
    #[error("null is not allowed here in this version")]
    Null,
    /// Longer than a length field can express, in bytes or elements.
    #[error("a length of {0} is not possible here")]
    Length(usize),
    /// The values would take much more memory than the frame.
    #[error("the decoded message would take more than {0} bytes of memory")]
    Memory(usize),
    /// A value that cannot be sent in this version, and that may not be left out.
    #[error("a value other than the default cannot be sent in this version")]
    NotInVersion,
    /// A version that the message does not have.
    #[error("version {0} is not supported")]
    Version(i16),
}

impl WireError {
    /// The error of the whole message or, before [`Self::within`], of a place that is not known yet.
    pub(crate) fn of(message: &'static str, fault: Fault) -> Self {
        Self {
            message,
            field: "",
            fault,
        }
    }

    /// Names the field, unless an inner one is named.
    #[cold]
    pub(crate) fn at(mut self, field: &'static str) -> Self {
        if self.field.is_empty() {
            self.field = field;
        }
        self
    }

    /// Names the message.
    #[cold]
    pub(crate) fn within(mut self, message: &'static str) -> Self {
        self.message = message;
        self
    }
}

impl From<Fault> for WireError {
    fn from(fault: Fault) -> Self {
        Self::of("", fault)
    }
}
