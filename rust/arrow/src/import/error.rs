//! Why columns cannot be produced.

use arrow_array::Array;

/// Why a table cannot be produced.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ImportError {
    /// A required column is missing.
    #[error("column {column:?} is missing; it must be one of: {accepted}")]
    MissingColumn {
        /// Its name.
        column: &'static str,
        /// Types it may have.
        accepted: &'static str,
    },
    /// A column has a type that cannot be read.
    #[error("column {column:?} has type {got}; it must be one of: {accepted}")]
    WrongType {
        /// Its name.
        column: &'static str,
        /// Its type.
        got: String,
        /// Types it may have.
        accepted: &'static str,
    },
    /// A column that a producer does not know.
    #[error("column {column:?} is not known; accepted are: {accepted}; drop or rename it")]
    UnknownColumn {
        /// Its name.
        column: String,
        /// Names that a producer knows.
        accepted: &'static str,
    },
    /// Two columns of one name.
    #[error("column {column:?} is there twice")]
    DuplicateColumn {
        /// Its name.
        column: String,
    },
    /// A cell that cannot be produced.
    #[error("column {column:?}, row {row}: {reason}")]
    InvalidValue {
        /// Its name.
        column: &'static str,
        /// Row in the batch, from 0.
        row: usize,
        /// What is wrong.
        reason: String,
    },
}

pub(super) fn wrong_type(column: &'static str, array: &dyn Array, accepted: &'static str) -> ImportError {
    ImportError::WrongType {
        column,
        got: array.data_type().to_string(),
        accepted,
    }
}
