//! Why a value is malformed.

use std::borrow::Cow;

use crate::reason::Reason;

/// A reason on its way out of the loop over a value: as small as a pointer.
#[derive(Debug)]
pub struct Bad(Box<Why>);

#[derive(Debug)]
enum Why {
    /// The bytes are no value of the schema.
    NoValue(Cow<'static, str>),
    /// A limit against values that take any amount of memory.
    Limit(&'static str),
    /// The bytes are a value of the writer's schema, but the type has no such value.
    Type(String),
}

impl Bad {
    #[cold]
    pub fn value(text: &'static str) -> Self {
        Self(Box::new(Why::NoValue(Cow::Borrowed(text))))
    }

    #[cold]
    pub fn no_value(text: String) -> Self {
        Self(Box::new(Why::NoValue(Cow::Owned(text))))
    }

    #[cold]
    pub fn limit(text: &'static str) -> Self {
        Self(Box::new(Why::Limit(text)))
    }

    #[cold]
    pub fn of_type(text: String) -> Self {
        Self(Box::new(Why::Type(text)))
    }

    /// The reason, for the value `data`.
    pub fn reason(self, data: &[u8]) -> Reason {
        match *self.0 {
            Why::NoValue(text) => {
                // magic byte 0 and the schema id
                let is_framed = data.len() > 5 && data.first() == Some(&0);
                let hint = if is_framed {
                    " (it begins as in Confluent's wire format: give the deserializer to Confluent)"
                } else {
                    ""
                };
                format!("not Avro of this schema: {text}{hint}").into()
            }
            Why::Limit(text) => format!("not read: {text}").into(),
            Why::Type(text) => text.into(),
        }
    }

    /// The text alone.
    pub fn text(self) -> String {
        match *self.0 {
            Why::NoValue(text) => text.into_owned(),
            Why::Limit(text) => text.to_owned(),
            Why::Type(text) => text,
        }
    }
}

/// A column without room.
impl From<Reason> for Bad {
    fn from(reason: Reason) -> Self {
        Self::of_type(reason.0.into_owned())
    }
}

#[cold]
pub fn cut_off() -> Bad {
    Bad::value("it is cut off")
}
