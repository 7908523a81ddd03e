//! Types of fields whose number stands for one of a few named values.

use crate::error::WireError;
use crate::reader::Reader;
use crate::schema::FieldType;
use crate::types::Wire;
use crate::writer::Writer;

macro_rules! kinds {
    ($(
        $(#[$doc:meta])*
        $name:ident { $( $(#[$of:meta])* $variant:ident = $code:literal, )+ }
    )*) => {
        $(
            $(#[$doc])*
            #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
            pub enum $name {
                $( $(#[$of])* $variant, )+
                /// A number that this release does not know.
                Other(i8),
            }

            impl $name {
                /// The number on the wire.
                fn code(self) -> i8 {
                    match self {
                        $( Self::$variant => $code, )+
                        Self::Other(code) => code,
                    }
                }
            }

            impl From<i8> for $name {
                fn from(code: i8) -> Self {
                    match code {
                        $( $code => Self::$variant, )+
                        other => Self::Other(other),
                    }
                }
            }

            /// The value of number 0.
            impl Default for $name {
                fn default() -> Self {
                    Self::from(0)
                }
            }

            impl Wire for $name {
                const TYPE: FieldType = FieldType::Int8;
                fn initial() -> Self {
                    Self::default()
                }
                fn min_size(_: i16, _: bool) -> usize {
                    size_of::<i8>()
                }
                fn read(r: &mut Reader, _: i16, _: bool) -> Result<Self, WireError> {
                    Ok(r.i8()?.into())
                }
                fn write(&self, w: &mut Writer, _: i16, _: bool) -> Result<(), WireError> {
                    w.put(&self.code().to_be_bytes());
                    Ok(())
                }
            }
        )*
    };
}

kinds! {
    /// Isolation of a reader. Kafka: `IsolationLevel`.
    IsolationLevel {
        /// Everything below the high watermark.
        ReadUncommitted = 0,
        /// Everything below the last stable offset, aborted data filtered by the client.
        ReadCommitted = 1,
    }
    /// What a coordinator is looked up for. Kafka: `FindCoordinatorRequest.CoordinatorType`.
    CoordinatorType {
        /// The key is a group.id.
        Group = 0,
        /// The key is a transactional.id.
        Transaction = 1,
        /// The key is a partition of a share group: group.id, topic id and number, with colons between.
        Share = 2,
    }
}
