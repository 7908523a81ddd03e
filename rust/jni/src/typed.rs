//! Keys and values as typed columns: the options `key.format` and `value.format`.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, BinaryArray, RecordBatch, StringArray, StructArray};
use arrow_schema::{DataType, Field, Fields};
use fletchlog_arrow::Column;
use fletchlog_records::TopicPartition;
use fletchlog_serde::confluent;
use fletchlog_serde::{Decoded, ReadValue, Reason, decode, description};
use serde_json::Value;

use crate::spark_types::{as_spark, name_of};

/// What becomes of a value that cannot be decoded.
#[derive(Clone, Copy, PartialEq)]
enum OnError {
    Fail,
    Null,
    Column,
}

/// One column that is decoded.
pub(crate) struct Typed {
    pub(crate) column: Column,
    name: String,
    reader: Arc<dyn ReadValue>,
    /// The header of records that may say by which schema it was written.
    pub(crate) header: Option<String>,
    fields: Vec<Vec<String>>,
    /// The type that Java reads, in Spark's words; empty: only errors are asked for.
    expected: String,
    on_error: OnError,
}

impl Typed {
    /// The columns that `described` (of the task) has and `asked` (of the query) uses: JSON objects by the names of columns.
    ///
    /// ```text
    /// described: {"value": {"reader": {"format": "avro", ..}, "on_error": "fail", "headers": true}}
    /// asked:     {"value": {"fields": [["id"], ["customer", "name"]], "type": "struct<..>"}}
    /// ```
    pub(crate) fn parse(described: &str, asked: &str) -> Result<Vec<Self>, String> {
        if described.is_empty() {
            return Ok(Vec::new());
        }
        let parse = |text: &str| {
            serde_json::from_str::<Value>(text).map_err(|error| format!("internal error: {text}: {error}"))
        };
        let (described, asked) = (parse(described)?, parse(asked)?);
        let mut made = Vec::new();
        for (name, column) in [("key", Column::Key), ("value", Column::Value)] {
            if let (Some(described), Some(asked)) = (described.get(name), asked.get(name)) {
                made.push(Self::of(name, column, described, asked)?);
            }
        }
        Ok(made)
    }

    fn of(name: &str, column: Column, described: &Value, asked: &Value) -> Result<Self, String> {
        let reader = described.get("reader").unwrap_or(&Value::Null);
        let reader = description::reader_of(reader).map_err(|error| format!("option {name}.schema: {error}"))?;
        let fields: Vec<Vec<String>> = asked.get("fields").map(paths).unwrap_or_default();
        let is_whole = fields.is_empty() || fields.iter().any(Vec::is_empty);
        let reader = if is_whole {
            reader
        } else {
            reader
                .pruned(&fields)
                .map_err(|error| format!("option {name}.schema: {error}"))?
        };
        let on_error = match described.get("on_error").and_then(Value::as_str) {
            Some("null") => OnError::Null,
            Some("collect") => OnError::Column,
            _ => OnError::Fail,
        };
        Ok(Self {
            column,
            name: name.to_owned(),
            reader,
            header: match described.get("headers") {
                Some(Value::Bool(true)) => Some(format!("__{name}_schema_id")),
                _ => None,
            },
            fields,
            expected: asked.get("type").and_then(Value::as_str).unwrap_or_default().to_owned(),
            on_error,
        })
    }

    /// The typed column, and the column of errors. `headers` are those of the records, for a column that has a `header`.
    pub(crate) fn decoded(
        &self,
        bytes: &ArrayRef,
        headers: Option<&ArrayRef>,
        batch: &RecordBatch,
        tp: &TopicPartition,
    ) -> Result<(ArrayRef, ArrayRef), String> {
        let framed = match (&self.header, headers) {
            (Some(header), Some(headers)) => confluent::with_headers(bytes.as_binary(), headers, header),
            _ => Ok(Arc::clone(bytes)),
        };
        let decoded = framed.and_then(|framed| decode(self.reader.as_ref(), &framed));
        let Decoded { column, reasons } = decoded.map_err(|error| error.to_string())?;
        if let (OnError::Fail, Some((row, reason))) = (self.on_error, reasons.first()) {
            let offset = offset_of(batch, *row);
            return Err(format!(
                "the {name} of {tp} at offset {offset} cannot be decoded: {reason}; the option {name}.on_error can be null or column",
                name = self.name
            ));
        }
        let paths: Vec<&[String]> = self.fields.iter().map(Vec::as_slice).collect();
        let made = as_spark(&column, &paths).map_err(|why| format!("the {}s of {tp}: {why}", self.name))?;
        let found = name_of(made.data_type());
        // Java reads memory by the type that it knows
        if !self.expected.is_empty() && found != self.expected {
            return Err(format!(
                "internal error: the column {} is {found}, planned was {}",
                self.name, self.expected
            ));
        }
        Ok((made, errors(bytes, &reasons)?))
    }
}

fn paths(value: &Value) -> Vec<Vec<String>> {
    let names = |path: &Value| {
        path.as_array().map(|parts| {
            parts
                .iter()
                .filter_map(|part| part.as_str().map(str::to_owned))
                .collect()
        })
    };
    value
        .as_array()
        .map(|all| all.iter().filter_map(names).collect())
        .unwrap_or_default()
}

fn offset_of(batch: &RecordBatch, row: usize) -> i64 {
    let offsets = batch
        .column_by_name("offset")
        .and_then(|column| column.as_primitive_opt::<arrow_array::types::Int64Type>());
    offsets
        .and_then(|offsets| offsets.values().get(row).copied())
        .unwrap_or(-1)
}

/// `struct<reason: string, data: binary>`, null where all was well.
fn errors(bytes: &ArrayRef, reasons: &[(usize, Reason)]) -> Result<ArrayRef, String> {
    let mut why: Vec<Option<String>> = vec![None; bytes.len()];
    for (row, reason) in reasons {
        if let Some(place) = why.get_mut(*row) {
            *place = Some(reason.to_string());
        }
    }
    let data = bytes.as_binary::<i32>();
    let kept: BinaryArray = why
        .iter()
        .zip(data.iter())
        .map(|(why, data)| why.as_ref().and(data))
        .collect();
    let nulls = why.iter().map(Option::is_some).collect();
    let fields = Fields::from(vec![
        Field::new("reason", DataType::Utf8, true),
        Field::new("data", DataType::Binary, true),
    ]);
    let parts: Vec<ArrayRef> = vec![Arc::new(StringArray::from(why)), Arc::new(kept)];
    let made = StructArray::try_new(fields, parts, Some(nulls)).map_err(|error| error.to_string())?;
    Ok(Arc::new(made))
}
