//! How each type of a field is read and written. Kafka: `MessageDataGenerator`, `Readable`, `Writable`.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use fletchlog_records::ErrorCode;

use crate::error::{Fault, WireError};
use crate::reader::Reader;
use crate::schema::FieldType;
use crate::writer::Writer;

/// A type that a field can have.
pub(crate) trait Wire: Sized + PartialEq {
    /// For the printed table.
    const TYPE: FieldType;
    /// The value of a field whose table names no default.
    fn initial() -> Self;
    /// The field `throttle_time_ms` of a struct that has it.
    fn throttle(&self) -> i32 {
        0
    }
    /// The fewest bytes that a value takes.
    fn min_size(version: i16, flexible: bool) -> usize;
    /// Reads a value. `nullable`: whether this version of the field has null.
    fn read(r: &mut Reader, version: i16, nullable: bool) -> Result<Self, WireError>;
    /// Writes a value.
    fn write(&self, w: &mut Writer, version: i16, nullable: bool) -> Result<(), WireError>;
}

/// A type that can be null.
pub(crate) trait Nullable: Wire {
    const NULLABLE_TYPE: FieldType = Self::TYPE;
    fn nullable_initial() -> Option<Self> {
        Some(Self::initial())
    }
    fn nullable_min_size(version: i16, flexible: bool) -> usize {
        Self::min_size(version, flexible)
    }
    fn read_nullable(r: &mut Reader, version: i16) -> Result<Option<Self>, WireError>;
    fn write_nullable(value: Option<&Self>, w: &mut Writer, version: i16) -> Result<(), WireError>;
    /// Writes nothing in a version whose field cannot be null.
    fn write_missing(w: &mut Writer) -> Result<(), WireError> {
        let _ = w;
        Err(Fault::Null.into())
    }
}

impl<T: Nullable> Wire for Option<T> {
    const TYPE: FieldType = T::NULLABLE_TYPE;
    fn initial() -> Self {
        T::nullable_initial()
    }
    fn min_size(version: i16, flexible: bool) -> usize {
        T::nullable_min_size(version, flexible)
    }
    fn read(r: &mut Reader, version: i16, nullable: bool) -> Result<Self, WireError> {
        match nullable {
            true => T::read_nullable(r, version),
            false => T::read(r, version, false).map(Some),
        }
    }
    fn write(&self, w: &mut Writer, version: i16, nullable: bool) -> Result<(), WireError> {
        match (self, nullable) {
            (_, true) => T::write_nullable(self.as_ref(), w, version),
            (Some(value), false) => value.write(w, version, false),
            (None, false) => T::write_missing(w),
        }
    }
}

macro_rules! fixed {
    ($($type:ty, $name:ident, $variant:ident;)*) => {
        $(
            impl Wire for $type {
                const TYPE: FieldType = FieldType::$variant;
                fn initial() -> Self {
                    Self::default()
                }
                fn min_size(_: i16, _: bool) -> usize {
                    size_of::<Self>()
                }
                fn read(r: &mut Reader, _: i16, _: bool) -> Result<Self, WireError> {
                    Ok(r.$name()?)
                }
                fn write(&self, w: &mut Writer, _: i16, _: bool) -> Result<(), WireError> {
                    w.put(&self.to_be_bytes());
                    Ok(())
                }
            }
        )*
    };
}

fixed! {
    i8, i8, Int8;
    i16, i16, Int16;
    u16, u16, Uint16;
    i32, i32, Int32;
    i64, i64, Int64;
    f64, f64, Float64;
}

impl Wire for bool {
    const TYPE: FieldType = FieldType::Bool;
    fn initial() -> Self {
        false
    }
    fn min_size(_: i16, _: bool) -> usize {
        1
    }
    fn read(r: &mut Reader, _: i16, _: bool) -> Result<Self, WireError> {
        Ok(r.i8()? != 0)
    }
    fn write(&self, w: &mut Writer, _: i16, _: bool) -> Result<(), WireError> {
        w.put(&[u8::from(*self)]);
        Ok(())
    }
}

/// A code that is not in the table is UNKNOWN_SERVER_ERROR, with one warning for each. Kafka: `Errors#forCode`.
impl Wire for ErrorCode {
    const TYPE: FieldType = FieldType::ErrorCode;
    fn initial() -> Self {
        Self::NONE
    }
    fn min_size(_: i16, _: bool) -> usize {
        size_of::<i16>()
    }
    fn read(r: &mut Reader, _: i16, _: bool) -> Result<Self, WireError> {
        static REPORTED: Mutex<BTreeSet<i16>> = Mutex::new(BTreeSet::new());
        let code = r.i16()?;
        Ok(Self::from_code(code).unwrap_or_else(|| {
            let mut reported = REPORTED.lock().unwrap_or_else(PoisonError::into_inner);
            if reported.insert(code) {
                log::warn!("a node answered with the error code {code}, which this client does not know");
            }
            Self::UNKNOWN_SERVER_ERROR
        }))
    }
    fn write(&self, w: &mut Writer, _: i16, _: bool) -> Result<(), WireError> {
        w.put(&self.code().to_be_bytes());
        Ok(())
    }
}

impl Wire for [u8; 16] {
    const TYPE: FieldType = FieldType::Uuid;
    fn initial() -> Self {
        [0; 16]
    }
    fn min_size(_: i16, _: bool) -> usize {
        16
    }
    fn read(r: &mut Reader, _: i16, _: bool) -> Result<Self, WireError> {
        Ok(r.uuid()?)
    }
    fn write(&self, w: &mut Writer, _: i16, _: bool) -> Result<(), WireError> {
        w.put(self);
        Ok(())
    }
}

impl Wire for Arc<str> {
    const TYPE: FieldType = FieldType::String;
    fn initial() -> Self {
        Arc::default()
    }
    fn min_size(_: i16, flexible: bool) -> usize {
        if flexible { 1 } else { 2 }
    }
    fn read(r: &mut Reader, version: i16, _: bool) -> Result<Self, WireError> {
        Ok(Self::read_nullable(r, version)?.ok_or(Fault::Null)?)
    }
    fn write(&self, w: &mut Writer, _: i16, _: bool) -> Result<(), WireError> {
        Ok(w.string(self)?)
    }
}

impl Nullable for Arc<str> {
    fn read_nullable(r: &mut Reader, _: i16) -> Result<Option<Self>, WireError> {
        Ok(r.string()?)
    }
    fn write_nullable(value: Option<&Self>, w: &mut Writer, _: i16) -> Result<(), WireError> {
        match value {
            Some(text) => w.string(text)?,
            None => w.null_string(),
        }
        Ok(())
    }
}

impl Wire for Bytes {
    const TYPE: FieldType = FieldType::Bytes;
    fn initial() -> Self {
        Self::new()
    }
    fn min_size(_: i16, flexible: bool) -> usize {
        if flexible { 1 } else { 4 }
    }
    fn read(r: &mut Reader, version: i16, _: bool) -> Result<Self, WireError> {
        Ok(Self::read_nullable(r, version)?.ok_or(Fault::Null)?)
    }
    fn write(&self, w: &mut Writer, _: i16, _: bool) -> Result<(), WireError> {
        w.length(self.len())?;
        w.splice(self);
        Ok(())
    }
}

/// `records`: nullable in every version, null unless the table says otherwise.
impl Nullable for Bytes {
    const NULLABLE_TYPE: FieldType = FieldType::Records;
    fn nullable_initial() -> Option<Self> {
        None
    }
    fn read_nullable(r: &mut Reader, _: i16) -> Result<Option<Self>, WireError> {
        match r.length()? {
            Some(len) => Ok(Some(r.slice(len)?)),
            None => Ok(None),
        }
    }
    fn write_nullable(value: Option<&Self>, w: &mut Writer, version: i16) -> Result<(), WireError> {
        match value {
            Some(bytes) => bytes.write(w, version, false)?,
            None => w.null(),
        }
        Ok(())
    }
    /// No records are records of no bytes.
    fn write_missing(w: &mut Writer) -> Result<(), WireError> {
        Ok(w.length(0)?)
    }
}

impl<T: Wire> Wire for Vec<T> {
    const TYPE: FieldType = FieldType::Array(&T::TYPE);
    fn initial() -> Self {
        Self::new()
    }
    fn min_size(_: i16, flexible: bool) -> usize {
        if flexible { 1 } else { 4 }
    }
    fn read(r: &mut Reader, version: i16, _: bool) -> Result<Self, WireError> {
        Self::read_nullable(r, version)?.ok_or_else(|| Fault::Null.into())
    }
    fn write(&self, w: &mut Writer, version: i16, _: bool) -> Result<(), WireError> {
        w.length(self.len())?;
        self.iter().try_for_each(|element| element.write(w, version, false))
    }
}

impl<T: Wire> Nullable for Vec<T> {
    fn read_nullable(r: &mut Reader, version: i16) -> Result<Option<Self>, WireError> {
        let Some(count) = r.length()? else {
            return Ok(None);
        };
        let mut elements = r.reserve(count, T::min_size(version, r.flexible()))?;
        for _ in 0..count {
            elements.push(T::read(r, version, false)?);
        }
        Ok(Some(elements))
    }
    fn write_nullable(value: Option<&Self>, w: &mut Writer, version: i16) -> Result<(), WireError> {
        match value {
            Some(elements) => elements.write(w, version, false)?,
            None => w.null(),
        }
        Ok(())
    }
}
