//! The columns of a batch while they grow.

use arrow_array::{BinaryArray, TimestampMicrosecondArray};
use arrow_buffer::ScalarBuffer;

use crate::bytes_column::{BytesColumn, Pools, null_buffer, truncate_rows};
use crate::headers::HeadersColumn;
use crate::pool::{Pool, into_buffer};
use crate::schema::Column;

/// Bits for the columns asked for that differ from row to row. Headers are asked for if [`Columns::headers`] is `Some`.
pub(crate) mod asked {
    pub(crate) const KEY: u8 = 1;
    pub(crate) const VALUE: u8 = 2;
    pub(crate) const OFFSET: u8 = 4;
    pub(crate) const TIMESTAMP: u8 = 8;
}

/// The columns that differ from row to row. Columns not asked for stay empty. Until a key is seen, `key` stays empty and all
/// keys are null.
#[derive(Debug, Default)]
pub(crate) struct Columns {
    pub(crate) asked: u8,
    pub(crate) rows: usize,
    pub(crate) key: BytesColumn,
    pub(crate) value: BytesColumn,
    pub(crate) offsets: Vec<i64>,
    pub(crate) timestamps: Vec<i64>,
    pub(crate) timestamp_nulls: Vec<u32>,
    /// Units of the timestamp column in a millisecond.
    pub(crate) per_millisecond: i64,
    pub(crate) headers: Option<HeadersColumn>,
    /// Sizes that the next batch may have: rows, value bytes, key bytes.
    hint: (usize, usize, usize),
}

/// Makes room in `vec` for `more` elements. If it has no memory yet, it gets a pooled vector with room for `hint + more`.
fn reserve<T>(pool: &Pool<T>, vec: &mut Vec<T>, more: usize, hint: usize) {
    if vec.capacity() == 0 {
        *vec = pool.take(hint + more);
    } else {
        vec.reserve(more);
    }
}

fn bit(column: Column) -> u8 {
    match column {
        Column::Key => asked::KEY,
        Column::Value => asked::VALUE,
        Column::Offset => asked::OFFSET,
        Column::Timestamp | Column::TimestampMillis => asked::TIMESTAMP,
        Column::Topic | Column::Partition | Column::TimestampType | Column::Headers => 0,
    }
}

impl Columns {
    pub(crate) fn new(columns: &[Column]) -> Self {
        Self {
            asked: columns.iter().fold(0, |asked, column| asked | bit(*column)),
            headers: columns.contains(&Column::Headers).then(HeadersColumn::default),
            per_millisecond: if columns.contains(&Column::TimestampMillis) {
                1
            } else {
                1000
            },
            ..Self::default()
        }
    }

    /// Whether one of these columns is asked for.
    pub(crate) fn asks(&self, columns: u8) -> bool {
        self.asked & columns != 0
    }

    pub(crate) fn has_keys(&self) -> bool {
        !self.key.offsets.is_empty()
    }

    pub(crate) fn payload_bytes(&self) -> usize {
        self.key.data.len() + self.value.data.len() + self.headers.as_ref().map_or(0, HeadersColumn::data_len)
    }

    /// Bytes that they have room for.
    pub(crate) fn room(&self) -> usize {
        let times = self.offsets.capacity() + self.timestamps.capacity();
        let headers = self.headers.as_ref().map_or(0, HeadersColumn::room);
        size_of::<i64>() * times + self.key.room() + self.value.room() + headers
    }

    /// The largest of the numbers that must stay below 2^31: rows, bytes of a column, headers.
    pub(crate) fn largest(&self) -> usize {
        let headers = self.headers.as_ref().map_or(0, |headers| headers.largest());
        self.rows
            .max(self.key.data.len())
            .max(self.value.data.len())
            .max(headers)
    }

    /// Makes room in the columns asked for: `rows` rows whose keys and values have `bytes` bytes at most, and `slack` beyond
    /// them.
    pub(crate) fn reserve(&mut self, pools: &Pools, rows: usize, bytes: usize, slack: usize) {
        let (row_hint, value_hint, _) = self.hint;
        if self.asks(asked::OFFSET) {
            reserve(&pools.long, &mut self.offsets, rows, row_hint);
        }
        if self.asks(asked::TIMESTAMP) {
            reserve(&pools.long, &mut self.timestamps, rows, row_hint);
        }
        if self.asks(asked::VALUE) {
            reserve(&pools.int, &mut self.value.offsets, rows + 1, row_hint + 1);
            reserve(&pools.byte, &mut self.value.data, bytes + slack, value_hint + slack);
            if self.value.offsets.is_empty() {
                self.value.offsets.push(0);
            }
        }
        if self.has_keys() {
            self.reserve_keys(pools, rows, bytes, slack);
        }
    }

    /// The same for the key column, which is materialised at the first key that is not null.
    pub(crate) fn reserve_keys(&mut self, pools: &Pools, rows: usize, bytes: usize, slack: usize) {
        let (row_hint, _, key_hint) = self.hint;
        reserve(&pools.int, &mut self.key.offsets, rows + 1, row_hint + 1);
        reserve(&pools.byte, &mut self.key.data, bytes + slack, key_hint + slack);
    }

    /// Materialises the null keys of the first `rows` rows.
    pub(crate) fn begin_keys(&mut self, rows: usize) {
        self.key.offsets.resize(rows + 1, 0);
        self.key.nulls.extend(0..u32::try_from(rows).unwrap_or(u32::MAX));
    }

    pub(crate) fn truncate(&mut self, rows: usize) {
        self.rows = self.rows.min(rows);
        self.offsets.truncate(rows);
        self.timestamps.truncate(rows);
        truncate_rows(&mut self.timestamp_nulls, rows);
        self.value.truncate(rows);
        self.key.truncate(rows);
        if let Some(headers) = &mut self.headers {
            headers.truncate(rows);
        }
    }

    /// Offset and timestamp arrays, key array (`None`: all null) and value array, leaving the columns empty. Arrays of
    /// columns not asked for are empty.
    pub(crate) fn take(&mut self, pools: &Pools) -> Taken {
        let rows = std::mem::take(&mut self.rows);
        // The last batch of a range is small, but the next may be as large as those before it: the hint shrinks slowly.
        let size = |now: usize, hint: usize| now.max(hint - hint / 8);
        let (row_hint, value_hint, key_hint) = self.hint;
        self.hint = (
            size(rows, row_hint),
            size(self.value.data.len(), value_hint),
            size(self.key.data.len(), key_hint),
        );
        let timestamp_nulls = null_buffer(&self.timestamp_nulls, rows);
        self.timestamp_nulls.clear();
        let timestamps = ScalarBuffer::from(into_buffer(&pools.long, &mut self.timestamps));
        Taken {
            key: self.has_keys().then(|| self.key.take_array(pools)),
            value: self.value.take_array(pools),
            offsets: ScalarBuffer::from(into_buffer(&pools.long, &mut self.offsets)),
            timestamps: TimestampMicrosecondArray::new(timestamps, timestamp_nulls),
        }
    }
}

/// The result of [`Columns::take`].
pub(crate) struct Taken {
    pub(crate) key: Option<BinaryArray>,
    pub(crate) value: BinaryArray,
    pub(crate) offsets: ScalarBuffer<i64>,
    pub(crate) timestamps: TimestampMicrosecondArray,
}
