//! Kafka's lists: values of another serializer, one after the other.
//!
//! ```text
//! 0, number of nulls: int32, their indexes: int32 each, length: int32, items that are not null      items of a fixed size
//! 1, length: int32, for each item its size: int32, -1 for null, and the item                        others
//! ```
//!
//! Kafka: `ListSerializer#serialize`, `ListDeserializer#deserialize`.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{Array, ListArray};
use arrow_buffer::NullBuffer;
use arrow_schema::{DataType, Field};

use crate::column::{Column, Values};
use crate::decode::ReadValue;
use crate::encode::{WriteColumn, WriteValue};
use crate::reason::{Reason, SchemaError, named};

const CONSTANT_SIZE: u8 = 0;
const VARIABLE_SIZE: u8 = 1;
const NULL_ENTRY: i32 = -1;

/// Reads lists, as `list<item>`.
pub struct ListReader {
    items: Arc<dyn ReadValue>,
    size: Option<usize>,
    data_type: DataType,
}

impl ListReader {
    /// Lists of what `items` reads; `size` is the number of bytes of an item, if Kafka has it for that type.
    #[must_use]
    pub fn new(items: Arc<dyn ReadValue>, size: Option<usize>) -> Self {
        Self {
            data_type: list_of(items.data_type().clone()),
            items,
            size,
        }
    }
}

fn list_of(item: DataType) -> DataType {
    DataType::List(Arc::new(Field::new("item", item, true)))
}

impl ReadValue for ListReader {
    fn data_type(&self) -> &DataType {
        &self.data_type
    }

    fn read(&self, bytes: &[u8], into: &mut Column) -> Result<(), Reason> {
        let Values::List(list) = &mut into.values else {
            return Err(Reason::plain("a column of no lists"));
        };
        let mut rest = Rest(bytes);
        let mut nulls = Vec::new();
        let size = match rest.take(1)? {
            [CONSTANT_SIZE] => {
                let size = self.size.ok_or(Reason::plain(
                    "the list has items of a constant size, and those of this type have none",
                ))?;
                for _ in 0..rest.count("nulls", bytes.len() / size_of::<i32>())? {
                    nulls.push(rest.int()?);
                }
                nulls.sort_unstable();
                Some(size)
            }
            [VARIABLE_SIZE] => None,
            other => {
                return Err(Reason::from(format!(
                    "a list begins with 0 or 1, the value with {other:?}"
                )));
            }
        };
        for place in 0..rest.count("items", bytes.len())? {
            let size = match size {
                Some(size) => (!is_in(&nulls, place)).then_some(size),
                None => match rest.int()? {
                    NULL_ENTRY => None,
                    size => {
                        Some(usize::try_from(size).map_err(|_| Reason::from(format!("an item has the size {size}")))?)
                    }
                },
            };
            match size {
                Some(size) => self.items.read(rest.take(size)?, &mut list.items)?,
                None => list.items.push_null(),
            }
        }
        // what comes after the items is ignored, as by Kafka
        list.close()?;
        into.push_valid();
        Ok(())
    }

    fn pruned(&self, fields: &[Vec<String>]) -> Result<Arc<dyn ReadValue>, SchemaError> {
        Ok(Arc::new(Self::new(self.items.pruned(fields)?, self.size)))
    }
}

fn is_in(sorted: &[i32], place: usize) -> bool {
    i32::try_from(place).is_ok_and(|place| sorted.binary_search(&place).is_ok())
}

/// What is left of a value.
struct Rest<'a>(&'a [u8]);

impl<'a> Rest<'a> {
    fn take(&mut self, size: usize) -> Result<&'a [u8], Reason> {
        let ends = Reason::plain("the list ends too early");
        let (taken, rest) = self.0.split_at_checked(size).ok_or(ends)?;
        self.0 = rest;
        Ok(taken)
    }

    fn int(&mut self) -> Result<i32, Reason> {
        let ends = Reason::plain("the list ends too early");
        let (taken, rest) = self.0.split_first_chunk().ok_or(ends)?;
        self.0 = rest;
        Ok(i32::from_be_bytes(*taken))
    }

    /// A number of things, of which the value has room for `most`.
    fn count(&mut self, things: &str, most: usize) -> Result<usize, Reason> {
        let count = self.int()?;
        let counted = usize::try_from(count).ok().filter(|count| *count <= most);
        counted.ok_or_else(|| Reason::from(format!("the list says that it has {count} {things}")))
    }
}

/// Writes lists.
pub struct ListWriter {
    items: Arc<dyn WriteColumn>,
    size: Option<usize>,
}

impl ListWriter {
    /// Lists of what `items` writes; see [`ListReader::new`].
    #[must_use]
    pub fn new(items: Arc<dyn WriteColumn>, size: Option<usize>) -> Self {
        Self { items, size }
    }
}

impl WriteColumn for ListWriter {
    fn column_type(&self, given: &DataType) -> Result<DataType, SchemaError> {
        match given {
            DataType::List(item)
            | DataType::LargeList(item)
            | DataType::FixedSizeList(item, _)
            | DataType::ListView(item)
            | DataType::LargeListView(item) => Ok(list_of(self.items.column_type(item.data_type())?)),
            DataType::Null => Ok(list_of(self.items.column_type(given)?)),
            other => Err(SchemaError::Invalid(format!(
                "a column of {} has no lists",
                named(other)
            ))),
        }
    }

    fn writer<'a>(&'a self, column: &'a dyn Array) -> Result<Box<dyn WriteValue + 'a>, SchemaError> {
        let no_lists = || SchemaError::Invalid(format!("a column of {} has no lists", named(column.data_type())));
        let lists = column.as_list_opt::<i32>().ok_or_else(no_lists)?;
        Ok(Box::new(Lists {
            lists,
            nulls: lists.values().logical_nulls(),
            items: self.items.writer(lists.values())?,
            is_sized: self.size.is_some(),
        }))
    }
}

struct Lists<'a> {
    lists: &'a ListArray,
    /// Of the items.
    nulls: Option<NullBuffer>,
    items: Box<dyn WriteValue + 'a>,
    is_sized: bool,
}

impl WriteValue for Lists<'_> {
    fn write(&self, row: usize, out: &mut Vec<u8>) -> Result<(), Reason> {
        let (start, length) = (self.lists.value_offsets()[row], self.lists.value_length(row));
        let is_null = |place: i32| {
            self.nulls
                .as_ref()
                .is_some_and(|nulls| nulls.is_null(index(start + place)))
        };
        if self.is_sized {
            let nulls: Vec<i32> = (0..length).filter(|place| is_null(*place)).collect();
            out.push(CONSTANT_SIZE);
            // not more than the items, whose number is an int32
            out.extend(i32::try_from(nulls.len()).unwrap_or(i32::MAX).to_be_bytes());
            out.extend(nulls.into_iter().flat_map(i32::to_be_bytes));
        } else {
            out.push(VARIABLE_SIZE);
        }
        out.extend(length.to_be_bytes());
        for place in 0..length {
            if is_null(place) {
                if !self.is_sized {
                    out.extend(NULL_ENTRY.to_be_bytes());
                }
                continue;
            }
            let before = out.len();
            if self.is_sized {
                self.items.write(index(start + place), out)?;
                continue;
            }
            out.extend([0; size_of::<i32>()]);
            self.items.write(index(start + place), out)?;
            let size = i32::try_from(out.len() - before - size_of::<i32>());
            let size = size.map_err(|_| Reason::plain("an item is larger than 2 GiB"))?;
            out[before..before + size_of::<i32>()].copy_from_slice(&size.to_be_bytes());
        }
        Ok(())
    }
}

/// An offset, which is not negative.
fn index(offset: i32) -> usize {
    usize::try_from(offset).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use arrow_array::BinaryArray;
    use arrow_array::types::Int64Type;

    use super::*;
    use crate::{Primitive, decode, encode};

    #[test]
    fn a_list_of_a_fixed_size_names_its_nulls_first() {
        let longs = Primitive::new(&DataType::Int64).unwrap();
        let column = ListArray::from_iter_primitive::<Int64Type, _, _>([Some(vec![None, Some(7)]), None, Some(vec![])]);
        let written = encode(&ListWriter::new(Arc::new(longs.clone()), Some(8)), &column).unwrap();
        let bytes: &BinaryArray = written.column.as_binary();
        let first = [0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 7];
        assert_eq!(
            bytes.iter().collect::<Vec<_>>(),
            [Some(&first[..]), None, Some(&[0; 9][..])]
        );
        let read = decode(&ListReader::new(Arc::new(longs), Some(8)), bytes).unwrap();
        assert_eq!((read.column.as_list::<i32>(), read.reasons.len()), (&column, 0));
    }

    #[test]
    fn a_list_that_says_too_much_takes_no_memory() {
        let texts: Arc<dyn ReadValue> = Arc::new(Primitive::new(&DataType::Utf8).unwrap());
        let value = [1, 0x7f, 0xff, 0xff, 0xff, 0, 0, 0, 0];
        let read = decode(&ListReader::new(texts, None), &BinaryArray::from_vec(vec![&value])).unwrap();
        let why = Reason::from("the list says that it has 2147483647 items".to_owned());
        assert_eq!(read.reasons, [(0, why)]);
    }
}
