//! `message!`: makes the struct, the decoder, the encoder and the printed schema of a message from one table.

use crate::error::{Fault, WireError};
use crate::reader::Reader;
use crate::schema::FieldSpec;
use crate::types::Wire;
use crate::writer::Writer;

/// A request or a response.
#[allow(private_bounds, reason = "only the tables of this crate make messages")]
pub trait Message: Sized + Wire + Default {
    /// Kafka's name, such as "FetchRequest".
    const NAME: &'static str;
    /// The API's code.
    const API_KEY: i16;
    /// First version that can be decoded and encoded. Kafka: `validVersions`.
    const MIN_VERSION: i16;
    /// Last one.
    const MAX_VERSION: i16;
    /// First version with compact lengths and tagged fields; `i16::MAX`: none has them.
    const FIRST_FLEXIBLE_VERSION: i16;
    /// The fields in the order of the wire.
    const TABLE: &'static [FieldSpec];

    /// Moves what this version says elsewhere from the fields of the newest version to its own. Before [`Self::encode`].
    #[must_use]
    fn for_version(self, version: i16) -> Self {
        let _ = version;
        self
    }

    /// The reverse of [`Self::for_version`]: moves what this version says elsewhere to the fields of the newest version. After
    /// [`Self::decode`].
    #[must_use]
    fn of_version(self, version: i16) -> Self {
        let _ = version;
        self
    }

    /// Its `throttle_time_ms`; 0 if it has none.
    fn throttle_time_ms(&self) -> i32 {
        self.throttle()
    }

    /// Reads a body. Bytes that follow it stay in the reader (Kafka ignores them after a request).
    fn decode(r: &mut Reader, version: i16) -> Result<Self, WireError> {
        check_version::<Self>(version)?;
        r.set_flexible(version >= Self::FIRST_FLEXIBLE_VERSION);
        Self::read(r, version, false).map_err(|error| error.within(Self::NAME))
    }

    /// Writes a body. An error if the version has no place for a value that may not be left out, or if a value does not fit its type; then
    /// the bytes written so far are useless.
    fn encode(&self, w: &mut Writer, version: i16) -> Result<(), WireError> {
        check_version::<Self>(version)?;
        w.set_flexible(version >= Self::FIRST_FLEXIBLE_VERSION);
        self.write(w, version, false).map_err(|error| error.within(Self::NAME))
    }
}

fn check_version<M: Message>(version: i16) -> Result<(), WireError> {
    match (M::MIN_VERSION..=M::MAX_VERSION).contains(&version) {
        true => Ok(()),
        false => Err(WireError::of(M::NAME, Fault::Version(version))),
    }
}

/// Whether a field's value differs from its default.
pub(crate) fn differs<T: PartialEq>(value: &T, default: &T) -> bool {
    value != default
}

/// The field `throttle_time_ms` of a struct, or 0.
macro_rules! throttle {
    ($value:ident) => {
        0
    };
    ($value:ident throttle_time_ms $($rest:ident)*) => {
        $value.throttle_time_ms
    };
    ($value:ident $other:ident $($rest:ident)*) => {
        throttle!($value $($rest)*)
    };
}

/// `message! { NAME, module: key K, versions A to B, flexible from F; Struct { field: type = default, presence; .. } .. }`
///
/// The first struct is the message. A struct may end with `@local /// doc field: type;`: what only a peer in the same process sees (each is
/// listed in ARCHITECTURE.md). It is never on the wire, so a decoded message has its default. Types: see `types.rs`; an `Option` is a field
/// that may be null in some version. `flexible from F, with for_version of_version`: the message has methods
/// of these names, of which either may be left out. Without `= default` a field's default is the zero of its type (also in an `Option`, as in Kafka).
macro_rules! message {
    (
        $message:ident, $module:ident: key $key:literal, versions $min:literal to $max:literal, flexible from $flexible:expr
        $(, with $($conversion:ident)+)?;
        $($structs:tt)*
    ) => {
        #[doc = concat!("`", stringify!($message), "`, versions ", $min, " to ", $max, ".")]
        pub mod $module {
            #[allow(unused_imports)]
            use std::sync::Arc;

            #[allow(unused_imports)]
            use bytes::Bytes;
            #[allow(unused_imports)]
            use fletchlog_records::ErrorCode;

            #[allow(unused_imports)]
            use crate::kinds::{CoordinatorType, IsolationLevel};
            #[allow(unused_imports)]
            use crate::schema::{between, since};

            structs! { $($structs)* }

            impl $crate::table::Message for $message {
                const NAME: &'static str = stringify!($message);
                const API_KEY: i16 = $key;
                const MIN_VERSION: i16 = $min;
                const MAX_VERSION: i16 = $max;
                const FIRST_FLEXIBLE_VERSION: i16 = $flexible;
                const TABLE: &'static [$crate::schema::FieldSpec] = $message::TABLE;
                $($(
                    fn $conversion(self, version: i16) -> Self {
                        $message::$conversion(self, version)
                    }
                )+)?
            }
        }
        pub use $module::$message;
    };
}

/// The default of a field.
macro_rules! initial {
    ($type:ty) => {
        <$type as $crate::types::Wire>::initial()
    };
    ($type:ty, $default:expr) => {
        $default
    };
}

macro_rules! structs {
    ($(
        $name:ident {
            $( $field:ident : $type:ty $(= $default:expr)?, $presence:expr; )*
            $( @local $(#[$doc:meta])* $local:ident : $local_type:ty; )?
        }
    )*) => {
        $(
            #[doc = concat!("Kafka: `", stringify!($name), "`.")]
            #[derive(Debug, Clone, PartialEq)]
            pub struct $name {
                $(
                    #[doc = concat!("`", stringify!($presence), "`", $(", default ", stringify!($default),)? ".")]
                    pub $field: $type,
                )*
                $(
                    $(#[$doc])*
                    pub $local: $local_type,
                )?
            }

            impl Default for $name {
                fn default() -> Self {
                    Self {
                        $( $field: initial!($type $(, $default)?), )*
                        $( $local: Default::default(), )?
                    }
                }
            }

            impl $name {
                const TABLE: &'static [$crate::schema::FieldSpec] = &[
                    $(
                        $crate::schema::FieldSpec {
                            name: $crate::schema::unraw(stringify!($field)),
                            field_type: <$type as $crate::types::Wire>::TYPE,
                            default: concat!($(stringify!($default))?),
                            presence: $presence,
                        },
                    )*
                ];
            }

            impl $crate::types::Wire for $name {
                const TYPE: $crate::schema::FieldType = $crate::schema::FieldType::Struct(stringify!($name), Self::TABLE);
                fn initial() -> Self {
                    Self::default()
                }
                fn min_size(version: i16, flexible: bool) -> usize {
                    let mut size = usize::from(flexible); // the count of tagged fields
                    $(
                        if const { $presence }.place(version) == $crate::schema::Place::Plain {
                            size += <$type as $crate::types::Wire>::min_size(version, flexible);
                        }
                    )*
                    size
                }
                fn throttle(&self) -> i32 {
                    let _message = self;
                    throttle!(_message $($field)*)
                }
                fn read(r: &mut $crate::Reader, version: i16, _: bool) -> Result<Self, $crate::WireError> {
                    let mut value = Self::default();
                    $(
                        let presence = const { $presence };
                        if presence.place(version) == $crate::schema::Place::Plain {
                            value.$field = $crate::types::Wire::read(r, version, presence.nullable.contains(version))
                                .map_err(|error| error.at(concat!(stringify!($name), ".", stringify!($field))))?;
                        }
                    )*
                    if r.flexible() {
                        r.tags(|r, tag| {
                            $(
                                let presence = const { $presence };
                                if presence.tag_in(version) == Some(tag) {
                                    value.$field = $crate::types::Wire::read(r, version, presence.nullable.contains(version))
                                        .map_err(|error| error.at(concat!(stringify!($name), ".", stringify!($field))))?;
                                    return Ok(true);
                                }
                            )*
                            let _ = (r, tag);
                            Ok::<_, $crate::WireError>(false)
                        })?;
                    }
                    Ok(value)
                }
                fn write(&self, w: &mut $crate::Writer, version: i16, _: bool) -> Result<(), $crate::WireError> {
                    let mut tags = 0;
                    $(
                        let presence = const { $presence };
                        let result = match presence.place(version) {
                            $crate::schema::Place::Plain => {
                                $crate::types::Wire::write(&self.$field, w, version, presence.nullable.contains(version))
                            }
                            place if $crate::table::differs(&self.$field, &initial!($type $(, $default)?)) => {
                                tags += u32::from(place == $crate::schema::Place::Tagged);
                                presence.check_absent(place).map_err($crate::WireError::from)
                            }
                            _ => Ok(()),
                        };
                        result.map_err(|error| error.at(concat!(stringify!($name), ".", stringify!($field))))?;
                    )*
                    if w.flexible() {
                        w.unsigned_varint(tags);
                        $(
                            let presence = const { $presence };
                            if let Some(tag) = presence.tag_in(version)
                                && $crate::table::differs(&self.$field, &initial!($type $(, $default)?))
                            {
                                let nullable = presence.nullable.contains(version);
                                w.tag(tag, |w| $crate::types::Wire::write(&self.$field, w, version, nullable))
                                    .map_err(|error| error.at(concat!(stringify!($name), ".", stringify!($field))))?;
                            }
                        )*
                    }
                    Ok(())
                }
            }

            /// A struct that may be null has a byte in front: negative if it is.
            impl $crate::types::Nullable for $name {
                fn nullable_min_size(_: i16, _: bool) -> usize {
                    1
                }
                fn read_nullable(r: &mut $crate::Reader, version: i16) -> Result<Option<Self>, $crate::WireError> {
                    match r.i8()? {
                        ..0 => Ok(None),
                        _ => <Self as $crate::types::Wire>::read(r, version, false).map(Some),
                    }
                }
                fn write_nullable(value: Option<&Self>, w: &mut $crate::Writer, version: i16) -> Result<(), $crate::WireError> {
                    w.put(&[if value.is_some() { 1 } else { 0xff }]);
                    value.map_or(Ok(()), |value| $crate::types::Wire::write(value, w, version, false))
                }
            }
        )*
    };
}
