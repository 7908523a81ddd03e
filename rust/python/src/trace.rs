//! Traces as Arrow tables: the actions of a consumer or producer, and their reasons.

use std::collections::HashMap;
use std::sync::Arc;

use arrow_array::{
    Array, ArrayRef, BooleanArray, Int16Array, Int32Array, Int64Array, ListArray, RecordBatch, StringArray,
    StructArray, UInt64Array,
};
use arrow_buffer::OffsetBuffer;
use arrow_schema::{ArrowError, Field};
use fletchlog_api::Config;
use fletchlog_client::consumer::TraceEvent as ConsumerEvent;
use fletchlog_client::producer::TraceEvent as ProducerEvent;
use fletchlog_records::TopicPartition;

use crate::errors::Failure;
use crate::table::Table;

/// Fails when tracing is off: an empty table would look as if nothing had happened.
pub fn ensure_on(traced: bool, what: &str) -> Result<(), Failure> {
    if traced {
        return Ok(());
    }
    Err(Failure::state(format!(
        "this {what} keeps no trace; create it with {{\"fletchlog.trace\": True}}"
    )))
}

/// The properties that were set, as schema metadata `fletchlog.config.<name>`, and `fletchlog.trace` = consumer or producer.
pub fn with_config(table: Table, whose: &str, config: &Config) -> Table {
    let mut metadata = HashMap::from([("fletchlog.trace".to_owned(), whose.to_owned())]);
    metadata.extend(
        config
            .shown()
            .map(|(name, value)| (format!("fletchlog.config.{name}"), value.to_owned())),
    );
    table.with_metadata(metadata)
}

/// A table from named columns; a column is nullable if it has a null.
pub fn table(columns: Vec<(&str, ArrayRef)>) -> Result<Table, Failure> {
    Ok(Table::new(batch(columns)?))
}

fn batch(columns: Vec<(&str, ArrayRef)>) -> Result<RecordBatch, ArrowError> {
    RecordBatch::try_from_iter_with_nullable(columns.into_iter().map(|(n, c)| (n, c, true)))
}

/// Columns of a table: one row per item of an iterator, each column from an expression about the item.
macro_rules! columns {
    ($items:expr, $item:pat => { $($name:literal: $array:ty = $value:expr,)* }) => {
        vec![$(($name, std::sync::Arc::new($items.map(|$item| $value).collect::<$array>()) as arrow_array::ArrayRef)),*]
    };
}
pub(crate) use columns;

/// Maps -1, which means that the field does not apply, to null.
fn known(value: i64) -> Option<i64> {
    (value >= 0).then_some(value)
}

/// One row per event of a consumer; the partitions of an event are a list of structs.
pub fn consumer_table(events: &[ConsumerEvent]) -> Result<Table, Failure> {
    let each = || events.iter().flat_map(|e| &e.partitions);
    let partitions = StructArray::from(batch(columns!(each(), p => {
        "topic": StringArray = Some(&*p.tp.topic),
        "partition": Int32Array = number(&p.tp),
        "offset": Int64Array = known(p.offset),
        "records": Int64Array = known(p.records),
        "bytes": Int64Array = known(p.bytes),
        "batches": Int64Array = known(p.batches),
        "error": StringArray = Some(p.error),
        "gone": BooleanArray = Some(p.gone),
    }))?);
    let lists = ListArray::try_new(
        Arc::new(Field::new("item", partitions.data_type().clone(), false)),
        OffsetBuffer::from_lengths(events.iter().map(|e| e.partitions.len())),
        Arc::new(partitions),
        None,
    )?;
    let mut columns = columns!(events.iter(), e => {
        "poll": UInt64Array = Some(e.poll),
        "kind": StringArray = Some(e.kind.name()),
        "node": Int32Array = (e.node >= 0).then_some(e.node),
        "full": BooleanArray = e.full,
        "topic": StringArray = e.tp.as_ref().map(|tp| &*tp.topic),
        "partition": Int32Array = e.tp.as_ref().and_then(number),
        "offset": Int64Array = known(e.offset),
        "last_offset": Int64Array = known(e.last_offset),
        "epoch": Int32Array = (e.epoch >= 0).then_some(e.epoch),
        "records": Int64Array = known(e.records),
        "text": StringArray = Some(&*e.text),
    });
    columns.push(("partitions", Arc::new(lists)));
    table(columns)
}

/// Number of a partition; `None` where a topic was given.
fn number(tp: &TopicPartition) -> Option<i32> {
    (tp.partition >= 0).then_some(tp.partition)
}

/// One row per event of a producer.
pub fn producer_table(events: &[ProducerEvent]) -> Result<Table, Failure> {
    table(columns!(events.iter(), e => {
        "time_ms": Int64Array = Some(e.time_ms),
        "kind": StringArray = Some(e.kind.name()),
        "topic": StringArray = e.tp.as_ref().map(|tp| &*tp.topic),
        "partition": Int32Array = e.tp.as_ref().map(|tp| tp.partition),
        "node": Int32Array = e.node,
        "batch": Int64Array = known(e.batch),
        "records": Int32Array = Some(e.records),
        "producer_id": Int64Array = known(e.producer.0),
        "producer_epoch": Int16Array = (e.producer.1 >= 0).then_some(e.producer.1),
        "base_sequence": Int32Array = (e.producer.2 >= 0).then_some(e.producer.2),
        "attempts": Int32Array = Some(e.attempts),
        "base_offset": Int64Array = known(e.base_offset),
        "error": StringArray = e.error.as_deref(),
    }))
}
