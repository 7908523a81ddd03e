//! Columns whose rows are all alike, built once and sliced.

use std::sync::Arc;

use arrow_array::{Array, ArrayRef, BinaryArray, Int32Array, StringArray};
use arrow_buffer::{Buffer, NullBuffer, OffsetBuffer, ScalarBuffer};
use fletchlog_records::TopicPartition;

/// Templates kept per kind; with more topics or partitions than this they replace each other.
const MAX_KEPT: usize = 8;
/// Rows of the smallest template.
const MIN_ROWS: usize = 1024;
/// A topic's template is made longer than needed only up to this size.
const MAX_TEMPLATE_BYTES: usize = 64 << 20;

/// Consecutive rows of one partition and timestamp type.
#[derive(Debug, Clone)]
pub(crate) struct Run {
    pub(crate) tp: TopicPartition,
    pub(crate) timestamp_type: i32,
    pub(crate) rows: usize,
}

/// The templates.
#[derive(Debug, Default)]
pub(crate) struct Constants {
    topics: Vec<(Arc<str>, StringArray)>,
    ints: Vec<(i32, Int32Array)>,
    null_key: Option<BinaryArray>,
}

impl Constants {
    /// Bytes of the templates.
    pub(crate) fn bytes(&self) -> usize {
        let topics = self.topics.iter().map(|(_, topics)| topics.get_buffer_memory_size());
        let ints = self.ints.iter().map(|(_, ints)| ints.get_buffer_memory_size());
        let null_key = self.null_key.iter().map(Array::get_buffer_memory_size);
        topics.chain(ints).chain(null_key).sum()
    }

    /// `rows` null keys.
    pub(crate) fn null_keys(&mut self, rows: usize) -> ArrayRef {
        let template = self.null_key.take().filter(|template| template.len() >= rows);
        let template = template.unwrap_or_else(|| {
            let rows = template_rows(rows);
            let offsets = OffsetBuffer::new_zeroed(rows);
            BinaryArray::new(
                offsets,
                Buffer::from(Vec::<u8>::new()),
                Some(NullBuffer::new_null(rows)),
            )
        });
        let column = Arc::new(template.slice(0, rows));
        self.null_key = Some(template);
        column
    }

    /// The topic column. The caller keeps its bytes below 2 GiB.
    pub(crate) fn topics(&mut self, runs: &[Run]) -> ArrayRef {
        if let Some(first) = runs.first()
            && runs.iter().all(|run| run.tp.topic == first.tp.topic)
        {
            return Arc::new(self.topic(&first.tp.topic, runs.iter().map(|run| run.rows).sum()));
        }
        let bytes = runs.iter().map(|run| run.rows * run.tp.topic.len()).sum();
        let mut data: Vec<u8> = Vec::with_capacity(bytes);
        let mut offsets = Vec::with_capacity(runs.iter().map(|run| run.rows).sum::<usize>() + 1);
        offsets.push(0i32);
        for run in runs {
            let (length, begin) = (run.tp.topic.len(), data.len());
            data.extend_from_slice(&self.topic(&run.tp.topic, run.rows).value_data()[..run.rows * length]);
            offsets.extend((1..=run.rows).map(|row| i32::try_from(begin + row * length).unwrap_or(i32::MAX)));
        }
        let offsets = OffsetBuffer::new(ScalarBuffer::from(offsets));
        Arc::new(StringArray::new(offsets, Buffer::from_vec(data), None))
    }

    /// An Int32 column of one value per run.
    pub(crate) fn ints(&mut self, runs: &[Run], value: impl Fn(&Run) -> i32) -> ArrayRef {
        if let Some(first) = runs.first()
            && runs.iter().all(|run| value(run) == value(first))
        {
            return Arc::new(self.int(value(first), runs.iter().map(|run| run.rows).sum()));
        }
        let mut values = Vec::with_capacity(runs.iter().map(|run| run.rows).sum());
        for run in runs {
            values.resize(values.len() + run.rows, value(run));
        }
        Arc::new(Int32Array::new(ScalarBuffer::from(values), None))
    }

    fn topic(&mut self, topic: &Arc<str>, rows: usize) -> StringArray {
        let template = keep(&mut self.topics, topic, rows, StringArray::len, |template| {
            let template = if template.saturating_mul(topic.len()) > MAX_TEMPLATE_BYTES {
                rows
            } else {
                template
            };
            StringArray::new_repeated(&**topic, template)
        });
        template.slice(0, rows)
    }

    fn int(&mut self, value: i32, rows: usize) -> Int32Array {
        let make = |template| Int32Array::new(ScalarBuffer::from(vec![value; template]), None);
        keep(&mut self.ints, &value, rows, Int32Array::len, make).slice(0, rows)
    }
}

/// Rows of the template for `rows` rows.
fn template_rows(rows: usize) -> usize {
    rows.max(MIN_ROWS).next_power_of_two()
}

/// The template of `key`, created if missing and replaced if it is shorter than `rows`.
fn keep<'a, K: PartialEq + Clone, A>(
    kept: &'a mut Vec<(K, A)>,
    key: &K,
    rows: usize,
    len: impl Fn(&A) -> usize,
    make: impl FnOnce(usize) -> A,
) -> &'a A {
    let found = kept.iter().position(|(k, _)| k == key);
    let at = match found {
        Some(at) if len(&kept[at].1) >= rows => at,
        _ => {
            if let Some(at) = found {
                kept.remove(at);
            } else if kept.len() == MAX_KEPT {
                kept.remove(0);
            }
            kept.push((key.clone(), make(template_rows(rows))));
            kept.len() - 1
        }
    };
    &kept[at].1
}
