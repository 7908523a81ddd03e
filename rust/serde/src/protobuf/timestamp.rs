//! `google.protobuf.Timestamp`, a column of microseconds.

use super::descriptor::low_i32;
use super::read::Decoder;
use super::wire::{END_GROUP, Fault, GROUP, VARINT, check_end, deeper};
use crate::column::{Column, Values};

const PER_SECOND: i128 = 1_000_000;

impl Decoder<'_> {
    pub(crate) fn place_timestamp(
        &mut self,
        place: usize,
        tag: u32,
        before: (i64, i32),
        levels: u32,
    ) -> Result<(), Fault> {
        let read = self.timestamp(tag, before, levels)?;
        if let Some(kept) = self.places.timestamps.get_mut(place) {
            *kept = read;
        }
        Ok(())
    }

    /// Seconds and nanoseconds of a `Timestamp`, of which some are known.
    pub(crate) fn timestamp(&mut self, tag: u32, before: (i64, i32), levels: u32) -> Result<(i64, i32), Fault> {
        let levels = deeper(levels)?;
        let (mut seconds, mut nanos) = before;
        let is_group = tag & 7 == GROUP;
        let after = if is_group { None } else { Some(self.wire.enter()?) };
        loop {
            if self.wire.is_at_end() {
                if is_group {
                    return Err(Fault::EndsInGroup);
                }
                break;
            }
            let inner = self.wire.tag()?;
            match (inner >> 3, inner & 7) {
                (_, END_GROUP) => {
                    check_end(inner, if is_group { tag } else { 0 })?;
                    break;
                }
                (1, VARINT) => seconds = self.wire.varint()?.cast_signed(),
                (2, VARINT) => nanos = low_i32(self.wire.varint()?),
                _ => self.wire.skip(inner, levels)?,
            }
        }
        if let Some(after) = after {
            self.wire.leave(after);
        }
        Ok((seconds, nanos))
    }

    pub(crate) fn micros(&mut self, seconds: i64, nanos: i32) -> Result<i64, Fault> {
        self.seconds = seconds;
        let micros = i128::from(seconds) * PER_SECOND + i128::from(nanos.div_euclid(1000));
        i64::try_from(micros).map_err(|_| Fault::Beyond)
    }
}

pub(crate) fn push_timestamp(micros: i64, column: &mut Column) -> Result<(), Fault> {
    let Values::Int64(values) = &mut column.values else {
        return Err(Fault::OtherColumn);
    };
    values.push(micros);
    column.push_valid();
    Ok(())
}
