//! The end of a row: fields that had no value, lists, what is known only now.

use super::plan::{Field, Kind, Message, Shape};
use super::read::{Decoder, full};
use super::wire::Fault;
use crate::column::{Column, Values};

impl Decoder<'_> {
    /// Ends the last row of a struct: fields that had no value get what stands for none, lists end.
    pub(crate) fn close(&mut self, message: &Message, into: &mut Column) -> Result<(), Fault> {
        let row = into.len();
        let Values::Struct(columns) = &mut into.values else {
            return Err(Fault::OtherColumn);
        };
        for (field, column) in message.with_columns().iter().zip(columns) {
            match field.shape {
                Shape::Implicit | Shape::Optional if column.len() == row => self.check_last(field, row, column)?,
                Shape::Optional => column.push_null(),
                Shape::Implicit => self.push_default(field, column)?,
                Shape::Repeated { .. } | Shape::Map(_) => {
                    self.only_last_entries(field, column)?;
                    let Values::List(list) = &mut column.values else {
                        return Err(Fault::OtherColumn);
                    };
                    list.close().map_err(full)?;
                    column.push_valid();
                }
            }
        }
        Ok(())
    }

    /// What is left to do for a value once the row is complete.
    fn check_last(&mut self, field: &Field, row: usize, column: &mut Column) -> Result<(), Fault> {
        match (&field.kind, &mut column.values) {
            (Kind::Message(inner), _) => self.close(inner, column),
            (Kind::Timestamp(place), Values::Int64(values)) => {
                let (seconds, nanos) = self.places.timestamps.get(*place).copied().unwrap_or_default();
                if let Some(last) = values.last_mut() {
                    *last = self.micros(seconds, nanos)?;
                }
                Ok(())
            }
            (Kind::String { is_checked: false }, Values::Bytes(values)) if self.checks || values.checks => {
                let last = values.values_from(row - 1).next().unwrap_or_default();
                std::str::from_utf8(last).map(drop).map_err(|_| Fault::NotUtf8)
            }
            _ => Ok(()),
        }
    }

    /// Appends the default of a field that cannot tell that it is absent.
    fn push_default(&mut self, field: &Field, column: &mut Column) -> Result<(), Fault> {
        match (&field.kind, &mut column.values) {
            (Kind::Message(inner), _) => {
                column.push_valid();
                return self.close(inner, column);
            }
            (Kind::Enum(of), Values::Bytes(values)) => match of.name(0) {
                Some(name) => values.push(name.as_bytes()).map_err(full)?,
                None => values.push(b"0").map_err(full)?,
            },
            (_, values) => values.push_default(),
        }
        column.push_valid();
        Ok(())
    }
}
