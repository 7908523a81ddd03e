//! What Kafka's tools ask of the broker, with the codes and texts that a Kafka 4.3.1 was recorded with (tests/golden/wire).

mod configs;
mod dynamic_configs;
mod listings;
mod topics;

use fletchlog_api::{ConfigResource, ErrorCode};
use fletchlog_broker::{AlterConfig, AlterConfigOp, Broker, BrokerError, NewTopic};

/// A topic of this many partitions and replicas.
fn new(partitions: i32, replication_factor: i16) -> NewTopic {
    NewTopic {
        partitions,
        replication_factor,
        ..NewTopic::default()
    }
}

fn with_config(config: &[(&str, Option<&str>)]) -> NewTopic {
    let pair = |(k, v): &(&str, Option<&str>)| ((*k).to_owned(), v.map(str::to_owned));
    NewTopic {
        config: config.iter().map(pair).collect(),
        ..new(1, 1)
    }
}

/// Code and text that a client is answered.
#[track_caller]
fn refused<T: std::fmt::Debug>(result: Result<T, BrokerError>) -> (ErrorCode, String) {
    let error = result.unwrap_err();
    (error.code(), error.kafka_message())
}

fn set(name: &str, value: &str) -> AlterConfig {
    change(name, AlterConfigOp::Set, Some(value))
}

fn change(name: &str, op: AlterConfigOp, value: Option<&str>) -> AlterConfig {
    AlterConfig {
        name: name.to_owned(),
        op,
        value: value.map(str::to_owned),
    }
}

fn topic(name: &str) -> ConfigResource {
    ConfigResource::Topic(name.to_owned())
}

fn value(broker: &Broker, topic: Option<&str>, name: &str) -> Option<String> {
    let entries = broker
        .describe_config(1, &topic.map_or(ConfigResource::Broker(1), self::topic))
        .unwrap();
    entries.into_iter().find(|entry| entry.name == name).unwrap().value
}
