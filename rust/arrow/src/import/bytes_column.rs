//! A column of byte strings in any of Arrow's layouts.

use arrow_array::cast::AsArray;
use arrow_array::types::{
    BinaryType, BinaryViewType, ByteArrayType, LargeBinaryType, LargeUtf8Type, StringViewType, Utf8Type,
};
use arrow_array::{Array, BinaryViewArray, FixedSizeBinaryArray, GenericByteArray};
use arrow_buffer::{ArrowNativeType, Buffer, NullBuffer, ScalarBuffer};
use arrow_schema::DataType;

/// The bytes of each row, in the layout of the array.
#[derive(Debug, Clone)]
enum Layout {
    /// Binary, Utf8.
    Offsets32(ScalarBuffer<i32>, Buffer),
    /// LargeBinary, LargeUtf8.
    Offsets64(ScalarBuffer<i64>, Buffer),
    /// BinaryView, Utf8View (whose views are laid out alike).
    View(BinaryViewArray),
    /// FixedSizeBinary.
    Fixed(usize, Buffer),
    /// Dictionary: position of each row's value, and the values.
    Dictionary(Vec<usize>, Box<BytesColumn>),
    /// Null: no bytes at all.
    Null,
}

/// A nullable column of byte strings.
#[derive(Debug, Clone)]
pub(super) struct BytesColumn {
    layout: Layout,
    nulls: Option<NullBuffer>,
}

impl BytesColumn {
    /// `None`: not a type of bytes.
    pub(super) fn try_new(column: &dyn Array) -> Option<Self> {
        let layout = match column.data_type() {
            DataType::Binary => offsets32(column.as_bytes::<BinaryType>()),
            DataType::Utf8 => offsets32(column.as_bytes::<Utf8Type>()),
            DataType::LargeBinary => offsets64(column.as_bytes::<LargeBinaryType>()),
            DataType::LargeUtf8 => offsets64(column.as_bytes::<LargeUtf8Type>()),
            DataType::BinaryView => Layout::View(column.as_byte_view::<BinaryViewType>().clone()),
            DataType::Utf8View => Layout::View(column.as_byte_view::<StringViewType>().clone().to_binary_view()),
            DataType::FixedSizeBinary(_) => fixed(column.as_fixed_size_binary()),
            DataType::Dictionary(_, _) => {
                let dictionary = column.as_any_dictionary();
                let values = Self::try_new(dictionary.values().as_ref())?;
                let len = dictionary.values().len();
                // An empty dictionary has only null keys; the values under them are not read.
                let keys = if len == 0 {
                    vec![0; column.len()]
                } else {
                    dictionary.normalized_keys()
                };
                Layout::Dictionary(keys, Box::new(values))
            }
            DataType::Null => Layout::Null,
            _ => return None,
        };
        Some(Self {
            layout,
            nulls: column.nulls().cloned(),
        })
    }

    /// The bytes of a row, `None` = null. Panics beyond the last row.
    #[inline]
    pub(super) fn get(&self, row: usize) -> Option<&[u8]> {
        if let Some(nulls) = &self.nulls
            && nulls.is_null(row)
        {
            return None;
        }
        match &self.layout {
            Layout::Offsets32(offsets, data) => Some(&data[offsets[row].as_usize()..offsets[row + 1].as_usize()]),
            Layout::Offsets64(offsets, data) => Some(&data[offsets[row].as_usize()..offsets[row + 1].as_usize()]),
            Layout::View(view) => Some(view.value(row)),
            Layout::Fixed(width, data) => Some(&data[row * width..(row + 1) * width]),
            Layout::Dictionary(keys, values) => values.get(keys[row]),
            Layout::Null => None,
        }
    }
}

fn offsets32<T: ByteArrayType<Offset = i32>>(array: &GenericByteArray<T>) -> Layout {
    Layout::Offsets32(array.offsets().inner().clone(), array.values().clone())
}

fn offsets64<T: ByteArrayType<Offset = i64>>(array: &GenericByteArray<T>) -> Layout {
    Layout::Offsets64(array.offsets().inner().clone(), array.values().clone())
}

fn fixed(array: &FixedSizeBinaryArray) -> Layout {
    Layout::Fixed(array.value_length().as_usize(), array.values().clone())
}
