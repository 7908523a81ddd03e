//! The headers column: collects only rows that have headers, and expands them to all rows at the end.

use std::sync::Arc;

use arrow_array::{ArrayRef, BinaryArray, ListArray, StringArray, StructArray};
use arrow_buffer::{OffsetBuffer, ScalarBuffer};
use arrow_schema::ArrowError;
use fletchlog_records::Header;

use crate::bytes_column::{BytesColumn, Pools, null_buffer};
use crate::schema::{header_element, header_fields};

/// Header keys and values back to back, and for each row that has any (ascending) where its headers end.
#[derive(Debug, Default)]
pub(crate) struct HeadersColumn {
    rows: Vec<(u32, i32)>,
    keys: BytesColumn,
    values: BytesColumn,
}

impl HeadersColumn {
    pub(crate) fn data_len(&self) -> usize {
        self.keys.data.len() + self.values.data.len()
    }

    /// Bytes that it has room for.
    pub(crate) fn room(&self) -> usize {
        size_of::<(u32, i32)>() * self.rows.capacity() + self.keys.room() + self.values.room()
    }

    pub(crate) fn largest(&self) -> usize {
        self.keys.rows().max(self.keys.data.len()).max(self.values.data.len())
    }

    pub(crate) fn push<'a>(&mut self, row: usize, headers: impl Iterator<Item = Header<'a>>) {
        for header in headers {
            self.keys.push(Some(header.key.as_bytes()));
            self.values.push(header.value);
        }
        let end = i32::try_from(self.keys.rows()).unwrap_or(i32::MAX);
        self.rows.push((u32::try_from(row).unwrap_or(u32::MAX), end));
    }

    pub(crate) fn truncate(&mut self, rows: usize) {
        let keep = self.rows.partition_point(|&(row, _)| (row as usize) < rows);
        self.rows.truncate(keep);
        let headers = self
            .rows
            .last()
            .map_or(0, |&(_, end)| usize::try_from(end).unwrap_or(0));
        self.keys.truncate(headers);
        self.values.truncate(headers);
    }

    /// The column for `rows` rows, null where a row has no headers.
    pub(crate) fn take(&mut self, rows: usize, pools: &Pools) -> Result<ArrayRef, ArrowError> {
        let mut offsets = Vec::with_capacity(rows + 1);
        let mut nulls = Vec::new();
        let mut end = 0;
        offsets.push(0);
        for &(row, row_end) in &self.rows {
            let row = row as usize;
            nulls.extend((offsets.len() - 1..row).filter_map(|row| u32::try_from(row).ok()));
            offsets.resize(row + 1, end);
            offsets.push(row_end);
            end = row_end;
        }
        nulls.extend((offsets.len() - 1..rows).filter_map(|row| u32::try_from(row).ok()));
        offsets.resize(rows + 1, end);
        self.rows.clear();

        let (key_offsets, key_data, key_nulls) = self.keys.take(pools);
        let (value_offsets, value_data, value_nulls) = self.values.take(pools);
        let keys = StringArray::try_new(OffsetBuffer::new(key_offsets), key_data, key_nulls)?;
        let values = BinaryArray::try_new(OffsetBuffer::new(value_offsets), value_data, value_nulls)?;
        let entries = StructArray::try_new(header_fields(), vec![Arc::new(keys), Arc::new(values)], None)?;
        let offsets = OffsetBuffer::new(ScalarBuffer::from(offsets));
        let nulls = null_buffer(&nulls, rows);
        Ok(Arc::new(ListArray::try_new(
            header_element(),
            offsets,
            Arc::new(entries),
            nulls,
        )?))
    }
}
