//! The topics whose names a pattern of Java's is found in, for Spark's `subscribePattern`.

use fletchlog_client::ClientError;
use fletchlog_client::consumer::TopicPattern;
use pyo3::prelude::*;

use crate::errors::Failure;

#[doc = stub!(find_topics)]
#[pyfunction]
pub fn find_topics(py: Python<'_>, pattern: &str, topics: Vec<String>) -> PyResult<Vec<String>> {
    let found = py.detach(|| -> Result<Vec<String>, ClientError> {
        let pattern = TopicPattern::found_anywhere(pattern)?;
        let matches = topics.into_iter().filter_map(|topic| match pattern.is_match(&topic) {
            Ok(is_match) => is_match.then_some(Ok(topic)),
            Err(error) => Some(Err(error)),
        });
        matches.collect()
    });
    found.map_err(|error| Failure::from(error).into())
}
