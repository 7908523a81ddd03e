//! Kafka's own serializers of strings, numbers and booleans.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{Float32Type, Float64Type, Int16Type, Int32Type, Int64Type};
use arrow_array::{Array, PrimitiveArray};
use arrow_schema::DataType;

use crate::column::{Column, Values};
use crate::decode::ReadValue;
use crate::encode::{WriteColumn, WriteValue};
use crate::reason::{Reason, SchemaError, named};

/// Reads and writes values as one of Kafka's own serializers, named by the Arrow type: UTF-8 strings; int16, int32, int64, float and double in network
/// byte order; booleans as a byte, 0 or 1.
///
/// Kafka: `StringDeserializer`, `ShortDeserializer`, `IntegerDeserializer`, `LongDeserializer`, `FloatDeserializer`, `DoubleDeserializer`,
/// `BooleanDeserializer`.
#[derive(Debug, Clone)]
pub struct Primitive {
    data_type: DataType,
}

impl Primitive {
    /// For values of `data_type`.
    ///
    /// # Errors
    ///
    /// Kafka has no serializer of such values.
    pub fn new(data_type: &DataType) -> Result<Self, SchemaError> {
        match data_type {
            DataType::Utf8
            | DataType::Int16
            | DataType::Int32
            | DataType::Int64
            | DataType::Float32
            | DataType::Float64
            | DataType::Boolean => Ok(Self {
                data_type: data_type.clone(),
            }),
            other => Err(SchemaError::Invalid(format!(
                "Kafka has no serializer of {}",
                named(other)
            ))),
        }
    }

    fn sized<const N: usize>(&self, bytes: &[u8]) -> Result<[u8; N], Reason> {
        let fault = |_| {
            Reason::from(format!(
                "{} takes {N} bytes, the value has {}",
                self.kafka_name(),
                bytes.len()
            ))
        };
        bytes.try_into().map_err(fault)
    }

    const fn kafka_name(&self) -> &'static str {
        match self.data_type {
            DataType::Int16 => "Short",
            DataType::Int32 => "Integer",
            DataType::Int64 => "Long",
            DataType::Float32 => "Float",
            DataType::Float64 => "Double",
            DataType::Boolean => "Boolean",
            _ => "String",
        }
    }
}

impl ReadValue for Primitive {
    fn data_type(&self) -> &DataType {
        &self.data_type
    }

    fn read(&self, bytes: &[u8], into: &mut Column) -> Result<(), Reason> {
        match &mut into.values {
            Values::Bytes(texts) => match std::str::from_utf8(bytes) {
                Ok(_) => texts.push(bytes)?,
                Err(_) => texts.push(replaced(bytes).as_bytes())?,
            },
            Values::Int16(numbers) => numbers.push(i16::from_be_bytes(self.sized(bytes)?)),
            Values::Int32(numbers) => numbers.push(i32::from_be_bytes(self.sized(bytes)?)),
            Values::Int64(numbers) => numbers.push(i64::from_be_bytes(self.sized(bytes)?)),
            Values::Float32(numbers) => numbers.push(f32::from_be_bytes(self.sized(bytes)?)),
            Values::Float64(numbers) => numbers.push(f64::from_be_bytes(self.sized(bytes)?)),
            Values::Boolean(bits) => match self.sized(bytes)? {
                [byte @ 0..=1] => bits.append(byte == 1),
                [byte] => {
                    return Err(Reason::from(format!(
                        "Boolean takes a byte 0 or 1, the value is {byte}"
                    )));
                }
            },
            _ => {
                return Err(Reason::from(format!(
                    "Kafka has no serializer of {}",
                    named(&self.data_type)
                )));
            }
        }
        into.push_valid();
        Ok(())
    }

    fn pruned(&self, _fields: &[Vec<String>]) -> Result<Arc<dyn ReadValue>, SchemaError> {
        Err(SchemaError::Invalid(format!(
            "{} has no fields to choose of",
            named(&self.data_type)
        )))
    }
}

/// Bytes that are not UTF-8, with one U+FFFD where Java's decoder puts one.
///
/// A malformed sequence is replaced by one. What begins like an encoded surrogate is one sequence to Java, as far as its bytes go on like one.
fn replaced(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    let mut rest = bytes;
    loop {
        match std::str::from_utf8(rest) {
            Ok(valid) => {
                text.push_str(valid);
                return text;
            }
            Err(error) => {
                let (valid, malformed) = rest.split_at(error.valid_up_to());
                text.push_str(&String::from_utf8_lossy(valid));
                text.push('\u{FFFD}');
                let length = match malformed {
                    [0xED, 0xA0..=0xBF, 0x80..=0xBF, ..] => 3,
                    [0xED, 0xA0..=0xBF, ..] => 2,
                    _ => error.error_len().unwrap_or(malformed.len()),
                };
                rest = &malformed[length..];
            }
        }
    }
}

impl WriteColumn for Primitive {
    fn column_type(&self, _given: &DataType) -> Result<DataType, SchemaError> {
        Ok(self.data_type.clone())
    }

    fn writer<'a>(&'a self, column: &'a dyn Array) -> Result<Box<dyn WriteValue + 'a>, SchemaError> {
        if *column.data_type() != self.data_type {
            return Err(SchemaError::Invalid(format!(
                "a column of {} is not written as {}",
                named(column.data_type()),
                named(&self.data_type)
            )));
        }
        Ok(match &self.data_type {
            DataType::Int16 => Box::new(Numbers(column.as_primitive::<Int16Type>(), |number, out| {
                out.extend(i16::to_be_bytes(number))
            })),
            DataType::Int32 => Box::new(Numbers(column.as_primitive::<Int32Type>(), |number, out| {
                out.extend(i32::to_be_bytes(number))
            })),
            DataType::Int64 => Box::new(Numbers(column.as_primitive::<Int64Type>(), |number, out| {
                out.extend(i64::to_be_bytes(number))
            })),
            DataType::Float32 => Box::new(Numbers(column.as_primitive::<Float32Type>(), |number, out| {
                out.extend(f32::to_be_bytes(number))
            })),
            DataType::Float64 => Box::new(Numbers(column.as_primitive::<Float64Type>(), |number, out| {
                out.extend(f64::to_be_bytes(number))
            })),
            DataType::Boolean => Box::new(Booleans(column.as_boolean())),
            _ => Box::new(Texts(column.as_string())),
        })
    }
}

struct Numbers<'a, T: arrow_array::ArrowPrimitiveType>(&'a PrimitiveArray<T>, fn(T::Native, &mut Vec<u8>));

impl<T: arrow_array::ArrowPrimitiveType> WriteValue for Numbers<'_, T> {
    fn write(&self, row: usize, out: &mut Vec<u8>) -> Result<(), Reason> {
        (self.1)(self.0.value(row), out);
        Ok(())
    }
}

struct Booleans<'a>(&'a arrow_array::BooleanArray);

impl WriteValue for Booleans<'_> {
    fn write(&self, row: usize, out: &mut Vec<u8>) -> Result<(), Reason> {
        out.push(u8::from(self.0.value(row)));
        Ok(())
    }
}

struct Texts<'a>(&'a arrow_array::StringArray);

impl WriteValue for Texts<'_> {
    fn write(&self, row: usize, out: &mut Vec<u8>) -> Result<(), Reason> {
        out.extend_from_slice(self.0.value(row).as_bytes());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use arrow_array::BinaryArray;

    use super::*;
    use crate::{decode, encode};

    #[test]
    fn java_puts_one_replacement_for_each_malformed_sequence() {
        for (bytes, text) in [
            (&b"a\xffb"[..], "a\u{FFFD}b"),
            (b"\xed\xa0\x80x", "\u{FFFD}x"),
            (b"\xed\xa0x", "\u{FFFD}x"),
            (b"\xf0\x9f\x98", "\u{FFFD}"),
            (b"\xf0\x9fx", "\u{FFFD}x"),
            (b"\xc3\xa9\xc3", "é\u{FFFD}"),
        ] {
            assert_eq!(replaced(bytes), text, "{bytes:?}");
        }
    }

    #[test]
    fn a_number_has_the_bytes_of_its_type() {
        let long = Primitive::new(&DataType::Int64).unwrap();
        let values = BinaryArray::from_opt_vec(vec![Some(&[0, 0, 0, 0, 0, 0, 0, 7][..]), None, Some(b"x")]);
        let made = decode(&long, &values).unwrap();
        assert_eq!(
            made.column.as_primitive::<Int64Type>().iter().collect::<Vec<_>>(),
            [Some(7), None, None]
        );
        assert_eq!(
            made.reasons,
            [(2, Reason::from("Long takes 8 bytes, the value has 1".to_owned()))]
        );
        let back = encode(&long, &made.column).unwrap();
        assert_eq!(back.column.as_binary::<i32>().value(0), values.value(0));
    }
}
