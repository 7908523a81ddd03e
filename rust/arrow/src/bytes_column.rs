//! One column of byte strings while it grows, and the memory that columns reuse.
#![allow(unsafe_code)]

use std::sync::Arc;

use arrow_array::BinaryArray;
use arrow_buffer::{BooleanBuffer, BooleanBufferBuilder, Buffer, NullBuffer, OffsetBuffer, ScalarBuffer};

use crate::pool::{Pool, into_buffer};

/// Free vectors of each element type.
#[derive(Debug, Clone)]
pub(crate) struct Pools {
    pub(crate) long: Arc<Pool<i64>>,
    pub(crate) int: Arc<Pool<i32>>,
    pub(crate) byte: Arc<Pool<u8>>,
}

impl Pools {
    pub(crate) fn new() -> Self {
        Self {
            long: Pool::new(),
            int: Pool::new(),
            byte: Pool::new(),
        }
    }

    /// How many vectors are inside batches that are still being read.
    pub(crate) fn lent(&self) -> usize {
        Arc::weak_count(&self.long) + Arc::weak_count(&self.int) + Arc::weak_count(&self.byte)
    }

    /// Bytes of the free vectors.
    pub(crate) fn free_bytes(&self) -> usize {
        self.long.free_bytes() + self.int.free_bytes() + self.byte.free_bytes()
    }
}

/// A nullable column of byte strings. Offsets hold the end of each row (with a leading 0 from the first row on); nulls are
/// kept as row numbers, ascending: they are rare, or all rows are null.
#[derive(Debug, Default)]
pub(crate) struct BytesColumn {
    pub(crate) offsets: Vec<i32>,
    pub(crate) data: Vec<u8>,
    pub(crate) nulls: Vec<u32>,
}

impl BytesColumn {
    pub(crate) fn rows(&self) -> usize {
        self.offsets.len().saturating_sub(1)
    }

    /// Bytes that it has room for.
    pub(crate) fn room(&self) -> usize {
        size_of::<i32>() * (self.offsets.capacity() + self.nulls.capacity()) + self.data.capacity()
    }

    /// Appends one value the plain way. The caller keeps the data below 2 GiB.
    pub(crate) fn push(&mut self, value: Option<&[u8]>) {
        if self.offsets.is_empty() {
            self.offsets.push(0);
        }
        if let Some(value) = value {
            self.data.extend_from_slice(value);
        } else {
            self.nulls.push(u32::try_from(self.rows()).unwrap_or(u32::MAX));
        }
        self.offsets.push(i32::try_from(self.data.len()).unwrap_or(i32::MAX));
    }

    pub(crate) fn truncate(&mut self, rows: usize) {
        if rows >= self.rows() {
            return;
        }
        self.offsets.truncate(rows + 1);
        self.data
            .truncate(self.offsets.last().map_or(0, |&end| usize::try_from(end).unwrap_or(0)));
        truncate_rows(&mut self.nulls, rows);
    }

    /// The column as an array, leaving it empty.
    pub(crate) fn take_array(&mut self, pools: &Pools) -> BinaryArray {
        let (offsets, data, nulls) = self.take(pools);
        debug_assert!(offsets.is_sorted());
        // SAFETY: a column's offsets begin with 0, never descend and end with the length of its data: both ways to append
        // write the running length.
        unsafe { BinaryArray::new_unchecked(OffsetBuffer::new_unchecked(offsets), data, nulls) }
    }

    /// Offsets, data and nulls, leaving the column empty.
    pub(crate) fn take(&mut self, pools: &Pools) -> (ScalarBuffer<i32>, Buffer, Option<NullBuffer>) {
        if self.offsets.is_empty() {
            self.offsets.push(0);
        }
        let nulls = null_buffer(&self.nulls, self.rows());
        self.nulls.clear();
        let offsets = ScalarBuffer::from(into_buffer(&pools.int, &mut self.offsets));
        (offsets, into_buffer(&pools.byte, &mut self.data), nulls)
    }
}

/// Removes the rows from `rows` on from an ascending list of row numbers.
pub(crate) fn truncate_rows(list: &mut Vec<u32>, rows: usize) {
    let keep = list.partition_point(|&row| (row as usize) < rows);
    list.truncate(keep);
}

/// The validity of `len` rows of which `nulls` are null, `None` if none is.
pub(crate) fn null_buffer(nulls: &[u32], len: usize) -> Option<NullBuffer> {
    if nulls.is_empty() {
        return None;
    }
    if nulls.len() == len {
        return Some(NullBuffer::new_null(len));
    }
    let mut bits = BooleanBufferBuilder::new(len);
    bits.append_n(len, true);
    for &row in nulls {
        bits.set_bit(row as usize, false);
    }
    let bits: BooleanBuffer = bits.finish();
    Some(NullBuffer::new(bits))
}
