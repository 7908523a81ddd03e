//! Topics to create: `fletchlog.admin.NewTopic`.

use std::collections::HashSet;

use fletchlog_api::ErrorCode;
use fletchlog_broker::{NewTopic as Engine, is_internal};
use fletchlog_protocol::messages::create_topics_request::{CreatableTopic, CreatableTopicConfig};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyString, PyTuple};

use crate::convert::{describe, each, int, properties_from_py};
use crate::errors::Failure;

/// The cluster's default, in a request.
const DEFAULT: i16 = -1;

/// A topic to create.
pub struct NewTopic {
    pub name: String,
    pub partitions: i32,
    config: Vec<(String, String)>,
    replication_factor: Option<i16>,
}

impl NewTopic {
    /// A topic with these properties.
    pub fn new(
        name: &str,
        partitions: i32,
        config: Option<&Bound<'_, PyAny>>,
        replication_factor: Option<i16>,
    ) -> PyResult<Self> {
        let config = properties_from_py(config)?;
        if is_internal(name) && !config.iter().any(|(name, _)| name == "cleanup.policy") {
            let text = format!(
                "{name} is a topic of Kafka's own: the broker makes it, compacted, when it first needs it; to make it yourself, set its cleanup.policy"
            );
            return Err(Failure::argument(text).into());
        }
        Ok(Self {
            name: name.to_owned(),
            partitions,
            config,
            replication_factor,
        })
    }

    /// Takes a name, a `NewTopic`, or a tuple of its first fields.
    fn from_py(value: &Bound<'_, PyAny>) -> PyResult<Self> {
        if let Ok(name) = value.cast::<PyString>() {
            return Self::new(&name.to_cow()?, 1, None, None);
        }
        let expected = || {
            PyTypeError::new_err(format!(
                "expected the name of a topic, or NewTopic(name, partitions, config, replication_factor), got {}",
                describe(value)
            ))
        };
        let tuple = value.cast::<PyTuple>().map_err(|_| expected())?;
        let field = |place: usize| tuple.get_item(place).ok().filter(|field| !field.is_none());
        let number = |place: usize, default: i32| match field(place) {
            Some(field) => int::<i32>(&field).map_err(|_| expected()),
            None => Ok(default),
        };
        let name: String = field(0).and_then(|name| name.extract().ok()).ok_or_else(expected)?;
        let replication_factor = number(3, DEFAULT.into())?;
        match tuple.len() {
            1..=4 => Self::new(
                &name,
                number(1, 1)?,
                field(2).as_ref(),
                i16::try_from(replication_factor).ok(),
            ),
            _ => Err(expected()),
        }
    }

    /// For the engine.
    pub fn engine(&self) -> Engine {
        Engine {
            // Here -1 does not mean the default number of partitions.
            partitions: self.partitions.max(0),
            replication_factor: self.replication_factor.unwrap_or(DEFAULT),
            config: self.config.iter().map(|(k, v)| (k.clone(), Some(v.clone()))).collect(),
            ..Engine::default()
        }
    }

    /// For a cluster.
    pub fn creatable(&self) -> CreatableTopic {
        let configs = self.config.iter().map(|(name, value)| CreatableTopicConfig {
            name: name.as_str().into(),
            value: Some(value.as_str().into()),
        });
        CreatableTopic {
            name: self.name.as_str().into(),
            num_partitions: self.partitions,
            replication_factor: self.replication_factor.unwrap_or(DEFAULT),
            configs: configs.collect(),
            ..Default::default()
        }
    }

    /// The error of a topic that was refused, with the argument that accepts one that exists.
    pub fn refused(error: impl Into<Failure>) -> Failure {
        let failure = error.into();
        if !failure.is(ErrorCode::TOPIC_ALREADY_EXISTS) {
            return failure;
        }
        let text = failure.to_string();
        let text = format!("{}; exist_ok=True accepts that", text.trim_end_matches('.'));
        Failure::kafka(ErrorCode::TOPIC_ALREADY_EXISTS, text)
    }

    /// Whether a topic that exists, with `count` partitions, is the one that was asked for.
    pub fn check_existing(&self, count: usize) -> Result<(), Failure> {
        if usize::try_from(self.partitions).is_ok_and(|wanted| wanted == count) {
            return Ok(());
        }
        let text = format!(
            "topic {} exists with {count} partitions, not {}; ask for as many, or change it with create_partitions",
            self.name, self.partitions
        );
        Err(Failure::kafka(ErrorCode::INVALID_PARTITIONS, text))
    }
}

/// Takes an iterable of topics, each with a name of its own.
pub fn new_topics_from_py(topics: &Bound<'_, PyAny>) -> PyResult<Vec<NewTopic>> {
    let single =
        topics.is_instance_of::<PyString>() || topics.is_instance_of::<PyBytes>() || topics.is_instance_of::<PyDict>();
    if single {
        return Err(PyTypeError::new_err(format!(
            "expected a list of topics, got {}",
            describe(topics)
        )));
    }
    let topics = each("a list of topics", topics)?
        .map(|topic| NewTopic::from_py(&topic?))
        .collect::<PyResult<Vec<_>>>()?;
    let mut names = HashSet::new();
    match topics.iter().find(|topic| !names.insert(&*topic.name)) {
        Some(topic) => Err(Failure::argument(format!("topic {} is given twice", topic.name)).into()),
        None => Ok(topics),
    }
}
