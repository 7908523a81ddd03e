//! `message!`: makes the struct, the decoder, the encoder and the printed schema of a message from one table. `value!`: the same for what
//! messages and records carry as bytes.

use std::ops::RangeInclusive;

use bytes::Bytes;

use crate::error::{Fault, WireError};
use crate::reader::Reader;
use crate::schema::{FieldSpec, Place, Presence};
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
        check_version(Self::NAME, Self::MIN_VERSION..=Self::MAX_VERSION, version)?;
        r.set_flexible(version >= Self::FIRST_FLEXIBLE_VERSION);
        Self::read(r, version, false).map_err(|error| error.within(Self::NAME))
    }

    /// Writes a body. An error if the version has no place for a value that may not be left out, or if a value does not fit its type; then
    /// the bytes written so far are useless.
    fn encode(&self, w: &mut Writer, version: i16) -> Result<(), WireError> {
        check_version(Self::NAME, Self::MIN_VERSION..=Self::MAX_VERSION, version)?;
        w.set_flexible(version >= Self::FIRST_FLEXIBLE_VERSION);
        self.write(w, version, false).map_err(|error| error.within(Self::NAME))
    }
}

/// What messages and records carry as bytes: an int16, which is its version, and the fields of that version.
#[allow(private_bounds, reason = "only the tables of this crate make values")]
pub trait Value: Sized + Wire + Default {
    /// Kafka's name, such as "OffsetCommitValue".
    const NAME: &'static str;
    /// First version that can be decoded and encoded.
    const MIN_VERSION: i16;
    /// Last one.
    const MAX_VERSION: i16;
    /// Whether newer versions are read as the last one: their fields are appended to those of the last one.
    const READS_NEWER: bool;
    /// First version with compact lengths and tagged fields; `i16::MAX`: none has them.
    const FIRST_FLEXIBLE_VERSION: i16;
    /// The fields in the order of the bytes.
    const TABLE: &'static [FieldSpec];

    /// Reads a value. Bytes that follow it are ignored.
    fn decode(bytes: Bytes) -> Result<Self, WireError> {
        let mut r = Reader::of_value(bytes);
        let version = r.i16().map_err(|fault| WireError::of(Self::NAME, fault))?;
        Self::decode_fields(&mut r, version)
    }

    /// Writes a value. An error if the version does not exist or has no place for a field that may not be left out, or if a field does not
    /// fit its type.
    fn encode(&self, version: i16) -> Result<Bytes, WireError> {
        let mut w = Writer::new();
        w.put(&version.to_be_bytes());
        self.encode_fields(&mut w, version)?;
        Ok(w.into_bytes())
    }

    /// Reads what follows the version.
    fn decode_fields(r: &mut Reader, version: i16) -> Result<Self, WireError> {
        let version = match Self::READS_NEWER {
            true => version.min(Self::MAX_VERSION),
            false => version,
        };
        check_version(Self::NAME, Self::MIN_VERSION..=Self::MAX_VERSION, version)?;
        r.set_flexible(version >= Self::FIRST_FLEXIBLE_VERSION);
        Self::read(r, version, false).map_err(|error| error.within(Self::NAME))
    }

    /// Writes what follows the version.
    fn encode_fields(&self, w: &mut Writer, version: i16) -> Result<(), WireError> {
        check_version(Self::NAME, Self::MIN_VERSION..=Self::MAX_VERSION, version)?;
        w.set_flexible(version >= Self::FIRST_FLEXIBLE_VERSION);
        self.write(w, version, false).map_err(|error| error.within(Self::NAME))
    }
}

pub(crate) fn check_version(name: &'static str, known: RangeInclusive<i16>, version: i16) -> Result<(), WireError> {
    match known.contains(&version) {
        true => Ok(()),
        false => Err(WireError::of(name, Fault::Version(version))),
    }
}

/// Reads a field; `name` is for errors.
#[inline]
pub(crate) fn read_field<T: Wire>(
    r: &mut Reader,
    version: i16,
    presence: Presence,
    name: &'static str,
) -> Result<T, WireError> {
    T::read(r, version, presence.nullable.contains(version)).map_err(|error| error.at(name))
}

/// Writes a field; `name` is for errors.
#[inline]
pub(crate) fn write_field<T: Wire>(
    value: &T,
    w: &mut Writer,
    version: i16,
    presence: Presence,
    name: &'static str,
) -> Result<(), WireError> {
    let written = value.write(w, version, presence.nullable.contains(version));
    written.map_err(|error| error.at(name))
}

/// Writes a field that some versions do not have in this place. Returns whether [`write_tagged`] has to write it.
pub(crate) fn write_if_present<T: Wire>(
    value: &T,
    w: &mut Writer,
    version: i16,
    presence: Presence,
    initial: fn() -> T,
    name: &'static str,
) -> Result<bool, WireError> {
    match presence.place(version) {
        Place::Plain => write_field(value, w, version, presence, name).map(|()| false),
        place if *value != initial() => match presence.check_absent(place) {
            Ok(()) => Ok(place == Place::Tagged),
            Err(fault) => Err(WireError::from(fault).at(name)),
        },
        _ => Ok(false),
    }
}

/// Writes a tagged field whose value differs from its default.
pub(crate) fn write_tagged<T: Wire>(
    value: &T,
    w: &mut Writer,
    version: i16,
    presence: Presence,
    initial: fn() -> T,
    name: &'static str,
) -> Result<(), WireError> {
    match presence.tag_in(version).filter(|_| *value != initial()) {
        Some(tag) => w.tag(tag, &mut |w| write_field(value, w, version, presence, name)),
        None => Ok(()),
    }
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
/// The first struct is the message. A struct may end with `@local /// doc field: type;`, one or more: what only a peer in the same process sees (each is
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

/// `value! { NAME, module: versions A to B, flexible from F; Struct { field: type = default, presence; .. } .. }`, or `versions A to B or
/// newer` if newer versions are read as B. The rest is as in `message!`.
macro_rules! value {
    (
        $value:ident, $module:ident: versions $min:literal to $max:literal $(or $newer:ident)?, flexible from $flexible:expr;
        $($structs:tt)*
    ) => {
        #[doc = concat!("`", stringify!($value), "`, versions ", $min, " to ", $max, $(" or ", stringify!($newer),)? ".")]
        pub mod $module {
            #[allow(unused_imports)]
            use std::sync::Arc;

            #[allow(unused_imports)]
            use bytes::Bytes;

            #[allow(unused_imports)]
            use crate::schema::{between, since};

            structs! { $($structs)* }

            impl $crate::table::Value for $value {
                const NAME: &'static str = stringify!($value);
                const MIN_VERSION: i16 = $min;
                const MAX_VERSION: i16 = $max;
                const READS_NEWER: bool = !stringify!($($newer)?).is_empty();
                const FIRST_FLEXIBLE_VERSION: i16 = $flexible;
                const TABLE: &'static [$crate::schema::FieldSpec] = $value::TABLE;
            }
        }
        pub use $module::$value;
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
            $( @local $(#[$doc:meta])* $local:ident : $local_type:ty; )*
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
                )*
            }

            impl Default for $name {
                fn default() -> Self {
                    Self {
                        $( $field: initial!($type $(, $default)?), )*
                        $( $local: Default::default(), )*
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
                        if const { $presence.tag.is_none() } && const { $presence }.versions.contains(version) {
                            let name = concat!(stringify!($name), ".", stringify!($field));
                            value.$field = $crate::table::read_field(r, version, const { $presence }, name)?;
                        }
                    )*
                    if r.flexible() {
                        r.tags::<$crate::WireError>(&mut |r, tag| {
                            $(
                                // A branch that a constant rules out is not compiled.
                                if const { $presence.tag.is_some() } && const { $presence }.tag_in(version) == Some(tag) {
                                    let name = concat!(stringify!($name), ".", stringify!($field));
                                    value.$field = $crate::table::read_field(r, version, const { $presence }, name)?;
                                    return Ok(true);
                                }
                            )*
                            let _ = (r, tag);
                            Ok(false)
                        })?;
                    }
                    Ok(value)
                }
                fn write(&self, w: &mut $crate::Writer, version: i16, _: bool) -> Result<(), $crate::WireError> {
                    let mut tags = 0;
                    $(
                        let name = concat!(stringify!($name), ".", stringify!($field));
                        // A branch that a constant rules out is not compiled.
                        if const { $presence.is_always_plain() } {
                            $crate::table::write_field(&self.$field, w, version, const { $presence }, name)?;
                        } else {
                            let initial = || initial!($type $(, $default)?);
                            let presence = const { $presence };
                            let is_tagged = $crate::table::write_if_present(&self.$field, w, version, presence, initial, name)?;
                            tags += u32::from(is_tagged);
                        }
                    )*
                    if w.flexible() {
                        w.unsigned_varint(tags);
                        $(
                            if const { $presence.tag.is_some() } {
                                let name = concat!(stringify!($name), ".", stringify!($field));
                                let initial = || initial!($type $(, $default)?);
                                $crate::table::write_tagged(&self.$field, w, version, const { $presence }, initial, name)?;
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
