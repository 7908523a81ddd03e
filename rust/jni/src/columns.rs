//! The columns of a batch as addresses of their Arrow buffers.

use arrow_array::{Array, RecordBatch};
use arrow_data::ArrayData;
use fletchlog_arrow::Column;

/// Columns that Java asks for, by the bits of a number. Topic and partition are the same in all rows of a reader, and Java knows them.
const ASKED: [Column; 6] = [
    Column::Key,
    Column::Value,
    Column::Offset,
    Column::Timestamp,
    Column::TimestampType,
    Column::Headers,
];
/// Addresses of one array: its validity (0: no row is null), and two buffers (0: the type has fewer).
const OF_ARRAY: usize = 3;
/// Longs that Java makes room for: arrays of all columns, of which headers are a list, keys and values.
pub(crate) const SLOTS: usize = OF_ARRAY * (ASKED.len() + 2);

/// The columns for the bits of a number.
pub(crate) fn columns_of(bits: i32) -> Vec<Column> {
    let is_asked = |&(bit, _): &(usize, Column)| bits & (1 << bit) != 0;
    ASKED
        .into_iter()
        .enumerate()
        .filter(is_asked)
        .map(|(_, column)| column)
        .collect()
}

/// Writes the addresses of all arrays, column after column; those of a list are followed by those of its items' fields. They are valid as long
/// as the batch is.
pub(crate) fn write_addresses(batch: &RecordBatch, out: &mut [i64; SLOTS]) {
    let mut places = out.chunks_exact_mut(OF_ARRAY);
    let mut write = |data: &ArrayData| {
        let Some(place) = places.next() else { return };
        let address = |index: usize| data.buffers().get(index).map_or(0, |buffer| buffer.as_ptr() as i64);
        debug_assert_eq!(data.offset(), 0, "the arrays of a batch begin with their buffers");
        let validity = data.nulls().map_or(0, |nulls| nulls.validity().as_ptr() as i64);
        place.copy_from_slice(&[validity, address(0), address(1)]);
    };
    for column in batch.columns() {
        let data = column.to_data();
        write(&data);
        for item in data.child_data() {
            item.child_data().iter().for_each(&mut write);
        }
    }
}
