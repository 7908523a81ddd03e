//! A column of headers: a list of structs, or a map.

use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, OffsetSizeTrait, StructArray};
use arrow_buffer::{NullBuffer, OffsetBuffer};
use arrow_schema::DataType;

use super::bytes_column::BytesColumn;
use super::error::{ImportError, wrong_type};

const ACCEPTED: &str =
    "List or LargeList of Struct(key: Utf8, value: Binary or Utf8), Map of Utf8 to Binary or Utf8, Null";

/// Where each row's headers are among all headers.
#[derive(Debug, Clone)]
pub(super) struct HeadersColumn {
    /// Position of each row's first header, and the end of the last row's.
    bounds: Vec<usize>,
    nulls: Option<NullBuffer>,
    /// Headers that are themselves null.
    entry_nulls: Option<NullBuffer>,
    keys: Option<BytesColumn>,
    values: Option<BytesColumn>,
}

impl HeadersColumn {
    pub(super) fn try_new(column: &dyn Array) -> Result<Self, ImportError> {
        let wrong = || wrong_type("headers", column, ACCEPTED);
        let (bounds, entries): (Vec<usize>, StructArray) = match column.data_type() {
            DataType::List(_) => {
                let list = column.as_list::<i32>();
                (bounds(list.offsets()), struct_of(list.values()).ok_or_else(wrong)?)
            }
            DataType::LargeList(_) => {
                let list = column.as_list::<i64>();
                (bounds(list.offsets()), struct_of(list.values()).ok_or_else(wrong)?)
            }
            DataType::Map(_, _) => {
                let map = column.as_map();
                (bounds(map.offsets()), map.entries().clone())
            }
            DataType::Null => {
                let bounds = vec![0; column.len() + 1];
                return Ok(Self {
                    bounds,
                    nulls: None,
                    entry_nulls: None,
                    keys: None,
                    values: None,
                });
            }
            _ => return Err(wrong()),
        };
        if entries.num_columns() != 2 {
            return Err(wrong());
        }
        // A map may use any names for its columns; in a struct the names say which is which.
        let is_map = matches!(column.data_type(), DataType::Map(_, _));
        let named = |name: &str, at: usize| {
            if is_map {
                Some(entries.column(at))
            } else {
                entries.column_by_name(name)
            }
        };
        let keys = named("key", 0).ok_or_else(wrong)?;
        let values = named("value", 1).ok_or_else(wrong)?;
        if !is_string(keys.data_type()) {
            return Err(wrong());
        }
        let headers = Self {
            bounds,
            nulls: column.nulls().cloned(),
            entry_nulls: entries.nulls().cloned(),
            keys: Some(BytesColumn::try_new(keys).ok_or_else(wrong)?),
            values: Some(BytesColumn::try_new(values).ok_or_else(wrong)?),
        };
        headers.check(column.len())?;
        Ok(headers)
    }

    /// Checks that no header and no header key of a row that is not null is null.
    fn check(&self, rows: usize) -> Result<(), ImportError> {
        for row in 0..rows {
            for at in self.range(row) {
                if self.entry_nulls.as_ref().is_some_and(|nulls| nulls.is_null(at)) || self.key(at).is_none() {
                    let reason = "a header or its key is null".to_owned();
                    return Err(ImportError::InvalidValue {
                        column: "headers",
                        row,
                        reason,
                    });
                }
            }
        }
        Ok(())
    }

    #[inline]
    fn range(&self, row: usize) -> std::ops::Range<usize> {
        if self.nulls.as_ref().is_some_and(|nulls| nulls.is_null(row)) {
            return 0..0;
        }
        self.bounds[row]..self.bounds[row + 1]
    }

    #[inline]
    fn key(&self, at: usize) -> Option<&str> {
        // Keys are of a string type, whose bytes are UTF-8.
        std::str::from_utf8(self.keys.as_ref()?.get(at)?).ok()
    }

    #[inline]
    pub(super) fn get<'a>(&'a self, row: usize, out: &mut Vec<(&'a str, Option<&'a [u8]>)>) {
        for at in self.range(row) {
            if let Some(key) = self.key(at) {
                out.push((key, self.values.as_ref().and_then(|values| values.get(at))));
            }
        }
    }
}

fn bounds<O: OffsetSizeTrait>(offsets: &OffsetBuffer<O>) -> Vec<usize> {
    offsets.iter().map(|offset| offset.as_usize()).collect()
}

fn struct_of(values: &ArrayRef) -> Option<StructArray> {
    values.as_struct_opt().cloned()
}

fn is_string(data_type: &DataType) -> bool {
    match data_type {
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => true,
        DataType::Dictionary(_, values) => is_string(values),
        _ => false,
    }
}
