//! The reader of a message: what is around the loop over one value.

use std::cell::Cell;
use std::ops::Range;
use std::sync::Arc;

use arrow_schema::DataType;

use super::descriptor::Files;
use super::indexes::Indexes;
use super::plan::Plan;
use super::read::Decoder;
use super::wire::Fault;
use crate::column::Column;
use crate::decode::ReadValue;
use crate::keep::Keep;
use crate::reason::{Reason, SchemaError};

/// A value of Confluent's wire format has as many bytes before its schema ends.
const FRAME: usize = 5;

thread_local! {
    /// What a thread used for its last value, to be used for the next.
    static PLACES: Cell<Places> = const { Cell::new(Places::NONE) };
}

/// What is known of the present row beyond its columns.
#[derive(Debug, Default)]
pub(crate) struct Places {
    /// Seconds and nanoseconds of each `Timestamp` that is not repeated: several of them are merged.
    pub(crate) timestamps: Vec<(i64, i32)>,
    /// Where the entries of each map are in the bytes.
    pub(crate) maps: Vec<Vec<Range<usize>>>,
}

impl Places {
    const NONE: Self = Self {
        timestamps: Vec::new(),
        maps: Vec::new(),
    };
}

/// Reads values of a message.
#[derive(Debug, Clone)]
pub struct ProtobufReader {
    plan: Plan,
    data_type: DataType,
    indexes: Option<Arc<Indexes>>,
}

impl ProtobufReader {
    /// A reader of the message `full_name`.
    ///
    /// `descriptors` are the bytes of a `google.protobuf.FileDescriptorSet`: its file and all that it imports. `indexes_of`: values begin with Confluent's
    /// message indexes, those of these descriptors, with which they were written.
    ///
    /// # Errors
    ///
    /// Not descriptors, or a message that is none of theirs, or one without an Arrow type: it contains itself, or is larger than any table.
    pub fn new(descriptors: &[u8], full_name: &str, indexes_of: Option<&[u8]>) -> Result<Self, SchemaError> {
        let files = Files::new(descriptors)?;
        let plan = Plan::new(&files, full_name)?;
        let indexes = match indexes_of {
            Some(same) if same == descriptors => Some(Indexes::new(&files, full_name)?),
            Some(written) => {
                let found = Indexes::new(&Files::new(written)?, full_name);
                Some(found.map_err(|error| SchemaError::Unresolvable(error.to_string()))?)
            }
            None => None,
        };
        let indexes = indexes.map(Arc::new);
        Ok(Self {
            data_type: plan.message.data_type(),
            plan,
            indexes,
        })
    }

    #[inline]
    fn read_message(&self, bytes: &[u8], into: &mut Column) -> Result<(), Reason> {
        let row = into.len();
        if self.read_once(bytes, into, false)? {
            // what was taken back may be a string that is not UTF-8, which no column has now
            into.truncate(row);
            self.read_once(bytes, into, true)?;
        }
        Ok(())
    }

    /// Reads a row. Returns whether a part of it was taken back, unless `checks`: that each string is checked at once.
    #[inline]
    fn read_once(&self, bytes: &[u8], into: &mut Column, checks: bool) -> Result<bool, Reason> {
        let has_places = self.plan.timestamps + self.plan.maps > 0;
        let places = if has_places { self.places() } else { Places::NONE };
        let mut decoder = Decoder::new(bytes, places, checks);
        match decoder.whole(&self.plan.message, into) {
            Ok(()) if has_places => PLACES.set(decoder.places),
            Ok(()) => {}
            Err(fault) => return Err(self.reason(fault, &decoder, bytes)),
        }
        Ok(decoder.took_back && !checks)
    }

    /// Those of this thread, enough of them for a row.
    fn places(&self) -> Places {
        let mut places = PLACES.take();
        let timestamps = places.timestamps.len().max(self.plan.timestamps);
        places.timestamps.resize(timestamps, (0, 0));
        places.maps.resize(places.maps.len().max(self.plan.maps), Vec::new());
        places
    }

    #[cold]
    fn reason(&self, fault: Fault, decoder: &Decoder<'_>, bytes: &[u8]) -> Reason {
        let framed = if bytes.len() > FRAME && bytes.first() == Some(&0) && self.indexes.is_none() {
            " (it begins as in Confluent's wire format: give the deserializer to Confluent)"
        } else {
            ""
        };
        let place = if decoder.wire.is_at_end() {
            String::new()
        } else {
            format!(", at byte {}", decoder.wire.at())
        };
        let what = match fault {
            Fault::Beyond => format!("a Timestamp of {} seconds is beyond timestamp[us]", decoder.seconds),
            other => Reason::from(other).to_string(),
        };
        Reason::from(format!("not a {}: {what}{place}{framed}", self.plan.message.full_name))
    }
}

impl ReadValue for ProtobufReader {
    fn data_type(&self) -> &DataType {
        &self.data_type
    }

    fn read(&self, bytes: &[u8], into: &mut Column) -> Result<(), Reason> {
        let message = match &self.indexes {
            Some(indexes) => indexes.rest(bytes)?,
            None => bytes,
        };
        self.read_message(message, into)
    }

    fn pruned(&self, fields: &[Vec<String>]) -> Result<Arc<dyn ReadValue>, SchemaError> {
        let plan = self.plan.pruned(&Keep::of(fields))?;
        Ok(Arc::new(Self {
            data_type: plan.message.data_type(),
            plan,
            indexes: self.indexes.clone(),
        }))
    }
}
