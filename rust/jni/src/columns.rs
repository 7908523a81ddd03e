//! The columns of a batch as addresses of their Arrow buffers.

use std::sync::Arc;

use arrow_array::{Array, ArrayRef, RecordBatch};
use arrow_data::ArrayData;
use arrow_schema::DataType;
use fletchlog_arrow::Column;
use fletchlog_records::TopicPartition;

use crate::typed::Typed;

/// Columns that Java asks for, by the bits of a number. Topic and partition are the same in all rows of a reader, and Java knows them.
const SCANNED: [Column; 6] = [
    Column::Key,
    Column::Value,
    Column::Offset,
    Column::Timestamp,
    Column::TimestampType,
    Column::Headers,
];
/// What could not be decoded, behind them.
const ERRORS: [Column; 2] = [Column::Key, Column::Value];
/// Addresses of one array: its validity (0: no row is null), and two buffers (0: the type has fewer).
const OF_ARRAY: usize = 3;

/// What Java reads of a row.
enum Part {
    /// As it is scanned.
    Scanned(Column),
    /// Decoded, by its place among those.
    Typed(usize),
    /// What could not be decoded.
    Error(usize),
}

/// The columns that Java asks for.
pub(crate) struct Asked {
    typed: Vec<Typed>,
    parts: Vec<Part>,
    /// What has to be scanned for them.
    pub(crate) scanned: Vec<Column>,
}

impl Asked {
    /// Those of the bits of a number, of which some are typed.
    pub(crate) fn new(bits: i32, typed: Vec<Typed>) -> Self {
        let is_asked = |bit: usize| bits & (1 << bit) != 0;
        let place = |column: Column| typed.iter().position(|one| one.column == column);
        let mut parts = Vec::new();
        for (bit, column) in SCANNED.into_iter().enumerate().filter(|(bit, _)| is_asked(*bit)) {
            let decoded = place(column).filter(|_| bit < ERRORS.len());
            parts.push(decoded.map_or(Part::Scanned(column), Part::Typed));
        }
        for (bit, column) in ERRORS.into_iter().enumerate() {
            if is_asked(SCANNED.len() + bit) {
                parts.extend(place(column).map(Part::Error));
            }
        }
        let needed = |column: &Column| {
            let is_scanned = parts
                .iter()
                .any(|part| matches!(part, Part::Scanned(own) if own == column));
            // the offset is for messages
            is_scanned
                || typed.iter().any(|one| match column {
                    Column::Offset => true,
                    Column::Headers => one.header.is_some(),
                    column => one.column == *column,
                })
        };
        let scanned = SCANNED.into_iter().filter(needed).collect();
        Self { typed, parts, scanned }
    }

    /// The columns of a batch that was scanned, in the order of the bits.
    pub(crate) fn of(&self, batch: &RecordBatch, tp: &TopicPartition) -> Result<Vec<ArrayRef>, String> {
        let scanned = |column: &Column| {
            let place = self.scanned.iter().position(|one| one == column);
            let found = place.and_then(|place| batch.columns().get(place)).map(Arc::clone);
            found.ok_or_else(|| "internal error: a column was not scanned".to_owned())
        };
        let mut decoded = Vec::with_capacity(self.typed.len());
        for one in &self.typed {
            let headers = one.header.as_ref().map(|_| scanned(&Column::Headers)).transpose()?;
            decoded.push(one.decoded(&scanned(&one.column)?, headers.as_ref(), batch, tp)?);
        }
        let typed = |place: &usize| {
            decoded
                .get(*place)
                .ok_or_else(|| "internal error: a column was not decoded".to_owned())
        };
        let parts = self.parts.iter();
        parts
            .map(|part| match part {
                Part::Scanned(column) => scanned(column),
                Part::Typed(place) => typed(place).map(|(values, _)| Arc::clone(values)),
                Part::Error(place) => typed(place).map(|(_, errors)| Arc::clone(errors)),
            })
            .collect()
    }
}

/// Writes the addresses of all arrays, column after column; those of a list, a map or a struct are followed by those of what is in it. They are valid as
/// long as the arrays are.
pub(crate) fn write_addresses(columns: &[ArrayRef], out: &mut [i64]) -> Result<(), String> {
    let mut places = out.chunks_exact_mut(OF_ARRAY);
    for column in columns {
        write(&column.to_data(), &mut places)?;
    }
    Ok(())
}

fn write(data: &ArrayData, places: &mut std::slice::ChunksExactMut<'_, i64>) -> Result<(), String> {
    let Some(place) = places.next() else {
        return Err("internal error: there are more arrays than Java has room for".to_owned());
    };
    if data.offset() != 0 || data.nulls().is_some_and(|nulls| nulls.offset() != 0) {
        return Err("internal error: an array does not begin with its buffers".to_owned());
    }
    let address = |index: usize| data.buffers().get(index).map_or(0, |buffer| buffer.as_ptr() as i64);
    let validity = data.nulls().map_or(0, |nulls| nulls.validity().as_ptr() as i64);
    place.copy_from_slice(&[validity, address(0), address(1)]);
    for child in data.child_data() {
        match data.data_type() {
            // the entries of a map have no nulls of their own
            DataType::Map(..) => child.child_data().iter().try_for_each(|part| write(part, places))?,
            _ => write(child, places)?,
        }
    }
    Ok(())
}
