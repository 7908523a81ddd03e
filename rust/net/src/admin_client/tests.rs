//! Real sockets of this machine; what is at the other end is in the hands of the test.

use std::net::TcpListener;

use fletchlog_api::transport::SystemClock;
use fletchlog_protocol::ApiKey;
use fletchlog_protocol::messages::api_versions_response::ApiVersion;
use fletchlog_protocol::messages::metadata_response::{MetadataResponseBroker, MetadataResponseTopic};
use fletchlog_protocol::messages::{ApiVersionsResponse, MetadataResponse};

use super::*;
use crate::tcp_transport::tests::{answer, read_request, server, settings};

/// Accepts one connection, says that Metadata is served, and answers its requests.
fn serve(listener: &TcpListener, answers: &[MetadataResponse]) {
    let mut stream = listener.accept().unwrap().0;
    let asked = read_request(&mut stream);
    let versions = ApiVersionsResponse {
        api_keys: vec![ApiVersion {
            api_key: ApiKey::Metadata.code(),
            min_version: 0,
            max_version: 13,
        }],
        ..Default::default()
    };
    answer(&mut stream, &asked, &versions);
    for response in answers {
        let asked = read_request(&mut stream);
        answer(&mut stream, &asked, response);
    }
}

fn names(topic: &str, node_id: i32, port: u16) -> MetadataResponse {
    MetadataResponse {
        brokers: vec![MetadataResponseBroker {
            node_id,
            host: "127.0.0.1".into(),
            port: port.into(),
            rack: None,
        }],
        topics: vec![MetadataResponseTopic {
            name: Some(topic.into()),
            ..Default::default()
        }],
        ..Default::default()
    }
}

fn begin_anew() -> MetadataResponse {
    MetadataResponse {
        error_code: ErrorCode::REBOOTSTRAP_REQUIRED,
        ..Default::default()
    }
}

fn client(bootstrap: u16, strategy: &str) -> AdminClient {
    let properties = [
        ("metadata.recovery.strategy", strategy),
        ("retry.backoff.ms", "1"),
        ("default.api.timeout.ms", "20000"),
    ];
    let config = Config::parse(fletchlog_api::Scope::Consumer, properties).unwrap();
    let settings = settings(&[bootstrap], 20_000);
    AdminClient::new(settings, &config, Arc::new(SystemClock::default())).unwrap()
}

fn topics(client: &mut AdminClient) -> Vec<String> {
    let topics = client.topics(None, &mut || false).unwrap();
    topics
        .iter()
        .map(|topic| topic.name.as_deref().unwrap().to_owned())
        .collect()
}

#[test]
fn a_node_that_asks_to_begin_anew_sends_the_client_to_bootstrap_servers() {
    let ((first, first_port), (second, second_port)) = (server(), server());
    let mut client = client(first_port, "rebootstrap");
    std::thread::scope(|scope| {
        let (old, new) = (names("a", 1, second_port), names("b", 2, first_port));
        scope.spawn(move || serve(&first, &[old, new]));
        scope.spawn(move || serve(&second, &[begin_anew()]));
        assert_eq!(topics(&mut client), ["a"]);
        assert_eq!(topics(&mut client), ["b"]);
        drop(client);
    });
}

#[test]
fn under_metadata_recovery_strategy_none_the_same_node_is_asked_again() {
    let ((first, first_port), (second, second_port)) = (server(), server());
    let mut client = client(first_port, "none");
    std::thread::scope(|scope| {
        let (old, new) = (names("a", 1, second_port), names("b", 1, second_port));
        scope.spawn(move || serve(&first, &[old]));
        scope.spawn(move || serve(&second, &[begin_anew(), new]));
        assert_eq!(topics(&mut client), ["a"]);
        assert_eq!(topics(&mut client), ["b"]);
        drop(client);
    });
}
