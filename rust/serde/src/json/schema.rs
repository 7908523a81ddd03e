//! JSON values that follow a JSON Schema.

use std::collections::HashMap;
use std::sync::Arc;

use arrow_array::Array;
use arrow_schema::{ArrowError, DataType};
use jsonschema::{Draft, Retrieve, Uri, Validator};
use serde_json::Value;

use super::check::refused;
use super::left_out::Schemas;
use crate::column::Column;
use crate::decode::{ReadValue, each_value};
use crate::reason::{Reason, SchemaError};

/// A JSON Schema of the drafts 4, 6, 7, 2019-09 or 2020-12. One that does not say which is of draft 7, as Confluent's serializers take it.
#[derive(Debug, Clone)]
pub struct JsonSchema {
    validator: Arc<Validator>,
    pub(crate) schemas: Arc<Schemas>,
}

/// The schemas that another one refers to, by the names it has for them. Nothing is fetched.
struct References(Arc<Schemas>);

impl Retrieve for References {
    fn retrieve(&self, uri: &Uri<String>) -> Result<Value, Box<dyn std::error::Error + Send + Sync>> {
        let name = uri.as_str();
        let known = &self.0.references;
        let found = known.get(name).or_else(|| known.get(name.strip_prefix(BASE)?));
        found
            .cloned()
            .ok_or_else(|| format!("it refers to {name}, which is not given").into())
    }
}

const MOST_SHOWN: usize = 300;

/// What names without a scheme are relative to.
const BASE: &str = "json-schema:///";

impl JsonSchema {
    /// Parses a schema. `references` are the texts of those that it refers to.
    ///
    /// # Errors
    ///
    /// Not a JSON Schema, or one that refers to another that is not given.
    pub fn new(text: &str, references: &HashMap<String, String>) -> Result<Self, SchemaError> {
        let references = references.iter().map(|(name, text)| Ok((name.clone(), parsed(text)?)));
        let schemas = Arc::new(Schemas {
            root: parsed(text)?,
            references: references.collect::<Result<_, SchemaError>>()?,
        });
        let schema = &schemas.root;
        let mut options = jsonschema::options().with_retriever(References(Arc::clone(&schemas)));
        if schema.get("$id").or_else(|| schema.get("id")).is_none() {
            options = options.with_base_uri(BASE);
        }
        if schema.get("$schema").is_none() {
            options = options.with_draft(Draft::Draft7);
        }
        let validator = options.build(schema).map_err(|error| invalid(&error))?;
        Ok(Self {
            validator: Arc::new(validator),
            schemas,
        })
    }

    /// Why a value is not JSON, or does not follow the schema.
    #[must_use]
    pub fn refused(&self, bytes: &[u8]) -> Option<Reason> {
        if let Some(reason) = refused(bytes) {
            return Some(Reason::from(reason));
        }
        let value: Value = match serde_json::from_slice(bytes) {
            Ok(value) => value,
            Err(error) => return Some(Reason::from(format!("not JSON: {error}"))),
        };
        let error = self.validator.validate(&value).err()?;
        let path = error.instance_path().to_string();
        let at = if path.is_empty() {
            String::new()
        } else {
            format!(" at {path}")
        };
        // it shows the part of the value
        let shown: String = error.to_string().chars().take(MOST_SHOWN).collect();
        Some(Reason::from(format!("not as the JSON Schema says{at}: {shown}")))
    }

    /// The rows of a column that are refused, ascending, and why.
    ///
    /// # Errors
    ///
    /// The column has no bytes.
    pub fn refused_rows(&self, values: &dyn Array) -> Result<Vec<(usize, Reason)>, ArrowError> {
        let (mut rows, mut row) = (Vec::new(), 0);
        each_value(values, |value| {
            rows.extend(value.and_then(|bytes| self.refused(bytes)).map(|reason| (row, reason)));
            row += 1;
        })?;
        Ok(rows)
    }
}

fn parsed(text: &str) -> Result<Value, SchemaError> {
    serde_json::from_str(text).map_err(|error| invalid(&error))
}

fn invalid(error: &dyn std::fmt::Display) -> SchemaError {
    SchemaError::Invalid(format!("not a JSON Schema: {error}"))
}

/// Reads values that follow a schema, as what reads all of them.
pub struct JsonSchemaReader {
    schema: JsonSchema,
    values: Arc<dyn ReadValue>,
}

impl JsonSchemaReader {
    /// Values that do not follow `schema` are malformed; `values` reads the others.
    #[must_use]
    pub fn new(schema: JsonSchema, values: Arc<dyn ReadValue>) -> Self {
        Self { schema, values }
    }
}

impl ReadValue for JsonSchemaReader {
    fn data_type(&self) -> &DataType {
        self.values.data_type()
    }

    fn read(&self, bytes: &[u8], into: &mut Column) -> Result<(), Reason> {
        match self.schema.refused(bytes) {
            Some(reason) => Err(reason),
            None => self.values.read(bytes, into),
        }
    }

    fn pruned(&self, fields: &[Vec<String>]) -> Result<Arc<dyn ReadValue>, SchemaError> {
        Ok(Arc::new(Self {
            schema: self.schema.clone(),
            values: self.values.pruned(fields)?,
        }))
    }
}
