//! `NetworkClient` over connections that open, close and answer when the test says so.

use fletchlog_api::{
    ErrorCode, Failure, MetadataRequest, MetadataResponse, NodeId, ProduceRequest, Ready, Request, Response,
};
use fletchlog_testing::{Answer, ScriptedTransport};

use super::fixtures::cluster;
use super::{ClientResponse, InFlightRequest, NetworkClient, Reconnect, RequestId};
use crate::backoff::ExponentialBackoff;

fn sockets() -> ScriptedTransport {
    let sockets = ScriptedTransport::default();
    sockets.wire().bootstrap = vec![-1, -2];
    sockets
}

fn take_sent(sockets: &ScriptedTransport) -> Vec<(NodeId, RequestId)> {
    let sent = sockets.take_sent().into_iter();
    sent.map(|sent| (sent.node, sent.correlation_id)).collect()
}

fn disconnected(sockets: &ScriptedTransport) -> Vec<NodeId> {
    let mut nodes = sockets.wire().disconnected.clone();
    nodes.sort_unstable();
    nodes
}

fn setup() -> (ScriptedTransport, NetworkClient<()>) {
    let sockets = sockets();
    let client = NetworkClient::new(Box::new(sockets.clone()), 2, reconnect(None), 1);
    (sockets, client)
}

fn reconnect(rebootstrap_after_ms: Option<i64>) -> Reconnect {
    Reconnect {
        backoff: ExponentialBackoff::new(50, 50),
        rebootstrap_after_ms,
    }
}

fn any_request() -> Request {
    Request::Metadata(MetadataRequest::for_topics(None, false))
}

fn any_answer() -> Answer {
    Ok(Response::Heartbeat(fletchlog_api::HeartbeatResponse::default()))
}

/// Sends and writes; the request may take 1000 ms.
fn send(client: &mut NetworkClient<()>, node: NodeId, request: Request, now: i64) -> RequestId {
    let id = client.next_correlation_id();
    client.send(node, id, (), request, 1000);
    client.write(now);
    id
}

fn outcomes(responses: Vec<ClientResponse<()>>) -> Vec<(RequestId, Option<Failure>)> {
    let outcome = |r: ClientResponse<()>| (r.correlation_id, r.result.err());
    responses.into_iter().map(outcome).collect()
}

#[test]
fn a_connection_that_is_being_opened_is_waited_for_and_one_that_cannot_be_opened_is_left_alone() {
    let (sockets, mut client) = setup();
    sockets.set_ready(1, Ready::Connecting);
    assert!(client.is_idle());
    assert!(!client.ready(1, 0));
    assert!(!client.is_idle(), "there is something to wait for");
    assert!(client.connection_failure(1, 0).is_none() && !client.take_disconnects());
    sockets.set_ready(1, Ready::Failed(Failure::NotConnected("refused".into())));
    assert!(client.wait(0) && client.is_idle());
    assert!(!client.ready(1, 10));
    assert_eq!(client.connection_delay(1, 10), 50);
    assert!(client.connection_failure(1, 59).is_some() && client.take_disconnects());
    sockets.set_ready(1, Ready::Yes);
    sockets.wire().asked.clear();
    assert!(!client.ready(1, 59));
    assert!(sockets.wire().asked.is_empty(), "asking would open it");
    assert!(client.ready(1, 60));
}

#[test]
fn a_node_that_asked_for_a_pause_gets_it() {
    let (sockets, mut client) = setup();
    sockets.set_ready(1, Ready::Throttled(300));
    assert!(!client.ready(1, 0));
    sockets.set_ready(1, Ready::Yes);
    assert_eq!(
        (client.poll_delay_ms(100), client.connection_failure(1, 100)),
        (200, None)
    );
    assert!(!client.ready(1, 299));
    assert!(client.ready(1, 300));
}

#[test]
fn a_connection_takes_one_request_at_a_time_and_so_many_without_an_answer() {
    let (sockets, mut client) = setup();
    let first = client.next_correlation_id();
    client.send(1, first, (), any_request(), 1000);
    assert!(!client.ready(1, 0), "it waits to be written");
    assert!(take_sent(&sockets).is_empty());
    client.write(0);
    assert_eq!(take_sent(&sockets), [(1, first)]);
    assert!(client.ready(1, 0));
    send(&mut client, 1, any_request(), 0);
    assert!(!client.ready(1, 0), "two are without an answer");
    sockets.answer(1, first, any_answer());
    assert_eq!(outcomes(client.receive(1, 0)), [(first, None)]);
    assert!(client.ready(1, 0));
    // What gets no answer (acks=0) does not count, nor does it take too long.
    let produce = ProduceRequest {
        transactional_id: None,
        acks: 0,
        timeout_ms: 1000,
        topic_data: Vec::new(),
        ..Default::default()
    };
    for _ in 0..5 {
        send(&mut client, 2, Request::Produce(produce.clone()), 0);
    }
    assert!(client.ready(2, 5000));
    assert!(client.handle_timed_out_requests(5000).iter().all(|r| r.node == 1));
}

#[test]
fn a_lost_connection_gives_up_all_its_requests_once() {
    let (sockets, mut client) = setup();
    let ids = [(); 2].map(|()| send(&mut client, 1, any_request(), 0));
    for id in ids {
        sockets.answer(1, id, Err(Failure::Disconnected));
    }
    let lost = outcomes(client.receive(1, 0));
    assert_eq!(lost, ids.map(|id| (id, Some(Failure::Disconnected))));
    assert!(!client.has_arrived(1), "else every later wait would end at once");
    assert!(client.is_idle() && client.take_disconnects());
    assert_eq!(client.connection_failure(1, 49), Some(&Failure::Disconnected));
    assert_eq!(client.connection_failure(1, 50), None);
}

#[test]
fn a_version_that_is_not_supported_fails_one_request_and_closes_nothing() {
    let (sockets, mut client) = setup();
    let ids = [(); 2].map(|()| send(&mut client, 1, any_request(), 0));
    let why = Failure::UnsupportedVersion("v9".into());
    sockets.answer(1, ids[0], Err(why.clone()));
    assert_eq!(outcomes(client.receive(1, 0)), [(ids[0], Some(why))]);
    assert!(!client.take_disconnects() && client.ready(1, 0) && !client.is_idle());
}

#[test]
fn a_request_may_wait_for_its_time_out_but_no_longer_unless_its_answer_has_arrived() {
    let (sockets, mut client) = setup();
    let id = send(&mut client, 1, any_request(), 100);
    let other = send(&mut client, 2, any_request(), 100);
    sockets.answer(2, other, any_answer());
    assert_eq!(client.poll_delay_ms(200), 901);
    assert!(client.handle_timed_out_requests(1100).is_empty());
    let late = client.handle_timed_out_requests(1101);
    assert_eq!(outcomes(late), [(id, Some(Failure::TimedOut))]);
    assert_eq!(sockets.wire().disconnected, [1]);
    assert_eq!(client.nodes_by_oldest(InFlightRequest::is_written), [2]);
}

#[test]
fn the_first_nodes_are_those_of_the_transport_and_a_lost_one_makes_way_for_the_next() {
    let (sockets, mut client) = setup();
    let first = client.least_loaded_ready_node(0).unwrap();
    assert!([-1, -2].contains(&first), "{first}");
    let second = -3 - first;
    sockets.set_ready(first, Ready::Failed(Failure::NotConnected("refused".into())));
    assert_eq!(client.least_loaded_ready_node(0), Some(second));
    sockets.set_ready(second, Ready::Connecting);
    assert_eq!(client.least_loaded_ready_node(1), None);
    assert_eq!(client.least_loaded_node(1), Some(second), "it will be ready");
    sockets.set_ready(second, Ready::Failed(Failure::TimedOut));
    assert_eq!(client.least_loaded_ready_node(2), None);
    assert_eq!((client.least_loaded_node(2), client.nodes_delay(2)), (None, 48));
}

#[test]
fn clients_begin_at_different_nodes() {
    let firsts = |nodes: &[NodeId]| -> Vec<NodeId> {
        let first = |seed| {
            let mut client = NetworkClient::<()>::new(Box::new(sockets()), 2, reconnect(None), seed);
            if !nodes.is_empty() {
                client.set_nodes(nodes);
            }
            client.least_loaded_ready_node(0).unwrap()
        };
        let mut firsts: Vec<NodeId> = (0..50).map(first).collect();
        firsts.sort_unstable();
        firsts.dedup();
        firsts
    };
    assert_eq!(firsts(&[]), [-2, -1]);
    assert_eq!(firsts(&[1, 2, 3]), [1, 2, 3]);
}

#[test]
fn the_node_with_the_fewest_requests_is_asked() {
    let (_, mut client) = knows_two_nodes(None);
    let first = client.least_loaded_ready_node(0).unwrap();
    send(&mut client, first, any_request(), 0);
    assert_eq!(client.least_loaded_ready_node(0), Some(first), "its connection is open");
    assert!(client.ready(3 - first, 0));
    assert_eq!(client.least_loaded_ready_node(0), Some(3 - first));
}

#[test]
fn a_node_that_does_not_answer_attempts_to_connect_is_not_chosen_while_another_one_answers() {
    for seed in 0..10 {
        let sockets = sockets();
        let mut client = NetworkClient::new(Box::new(sockets.clone()), 2, reconnect(None), seed);
        client.set_nodes(&[1, 2]);
        sockets.set_ready(1, Ready::Connecting);
        assert!(!client.ready(1, 0) && client.ready(2, 0));
        send(&mut client, 2, any_request(), 0);
        assert_eq!(client.least_loaded_node(1), Some(2));
        assert_eq!(client.node_for_metadata(1), Some(2));
        assert!(client.metadata_go_first(true, 1), "they can be sent");
        sockets.set_ready(1, Ready::Failed(Failure::TimedOut));
        assert!(!client.ready(1, 10_000));
        sockets.set_ready(1, Ready::Connecting);
        assert_eq!(
            client.node_for_metadata(10_100),
            Some(2),
            "nor when its back-off is over"
        );
    }
}

#[test]
fn of_the_connections_that_are_being_opened_the_first_that_is_open_is_used() {
    let (sockets, mut client) = knows_two_nodes(None);
    for node in [1, 2] {
        sockets.set_ready(node, Ready::Connecting);
        assert!(!client.ready(node, 0));
    }
    assert_eq!(client.least_loaded_ready_node(1), None);
    sockets.set_ready(2, Ready::Yes);
    assert_eq!(client.least_loaded_ready_node(2), Some(2));
}

#[test]
fn one_connection_at_a_time_is_opened_the_one_first_that_was_not_tried_for_longest() {
    let (sockets, mut client) = knows_two_nodes(None);
    for node in [1, 2] {
        sockets.set_ready(node, Ready::Connecting);
    }
    let mut opened = Vec::new();
    for now in [0, 100, 200, 300] {
        assert_eq!(client.least_loaded_ready_node(now), None);
        let node = client.least_loaded_node(now).unwrap();
        sockets.wire().asked.clear();
        assert_eq!(client.least_loaded_ready_node(now), None);
        assert!(sockets.wire().asked.iter().all(|&asked| asked == node));
        sockets.set_ready(node, Ready::Failed(Failure::TimedOut));
        assert!(!client.ready(node, now));
        sockets.set_ready(node, Ready::Connecting);
        opened.push(node);
    }
    assert_eq!((opened[0] + opened[1], &opened[..2]), (3, &opened[2..]));
}

#[test]
fn metadata_that_wait_for_a_connection_hold_nothing_back() {
    let (sockets, mut client) = knows_two_nodes(None);
    assert!(client.metadata_go_first(true, 0), "they can be sent");
    assert!(!client.metadata_go_first(false, 0), "none are due");
    for node in [1, 2] {
        sockets.set_ready(node, Ready::Failed(Failure::Disconnected));
        assert!(!client.ready(node, 0));
        sockets.set_ready(node, Ready::Connecting);
    }
    assert!(client.metadata_go_first(true, 0), "no connection is being opened");
    assert_eq!(client.node_for_metadata(50), None);
    assert!(!client.metadata_go_first(true, 51));
    for node in [1, 2] {
        sockets.set_ready(node, Ready::Yes);
    }
    assert!(client.metadata_go_first(true, 52));
}

/// A client that begins anew after 1000 ms without metadata, and knows the nodes 1 and 2.
fn knows_two_nodes(rebootstrap_after_ms: Option<i64>) -> (ScriptedTransport, NetworkClient<()>) {
    let sockets = sockets();
    let mut client = NetworkClient::new(Box::new(sockets.clone()), 2, reconnect(rebootstrap_after_ms), 1);
    client.set_nodes(&[1, 2]);
    (sockets, client)
}

#[test]
fn when_no_known_node_can_be_reached_those_of_the_beginning_are_asked() {
    let (sockets, mut client) = knows_two_nodes(Some(1000));
    sockets.set_ready(1, Ready::Failed(Failure::Disconnected));
    assert_eq!(client.node_for_metadata(0), Some(2), "one of them can");
    assert!(!client.ready(1, 0));
    sockets.set_ready(2, Ready::Throttled(30));
    assert_eq!(client.node_for_metadata(1), None, "it only asked for a pause");
    sockets.set_ready(2, Ready::Failed(Failure::NotConnected("refused".into())));
    assert!(is_first(client.node_for_metadata(31)));
    client.set_nodes(&[3]);
    assert_eq!(client.node_for_metadata(32), Some(3), "the answer names another one");
    for node in [3, -1, -2] {
        sockets.set_ready(node, Ready::Failed(Failure::Disconnected));
    }
    assert_eq!(client.node_for_metadata(33), None);
    assert_eq!(
        client.nodes_delay(34),
        49,
        "each of them is left alone as long as any other node"
    );
    sockets.set_ready(-2, Ready::Yes);
    assert_eq!(client.node_for_metadata(83), Some(-2));
}

/// It is one of bootstrap.servers.
fn is_first(node: Option<NodeId>) -> bool {
    node.is_some_and(|node| node < 0)
}

#[test]
fn metadata_recovery_strategy_none_goes_on_with_the_known_nodes() {
    let (sockets, mut client) = knows_two_nodes(None);
    for node in [1, 2] {
        sockets.set_ready(node, Ready::Failed(Failure::Disconnected));
    }
    for now in [0, 60, 1_000_000] {
        assert_eq!(client.node_for_metadata(now), None);
        assert!(client.handle_timed_out_requests(now).is_empty());
    }
    assert!(sockets.wire().asked.iter().all(|&node| node > 0));
}

#[test]
fn metadata_that_do_not_come_for_the_trigger_s_time_close_the_connections_and_begin_anew() {
    let (sockets, mut client) = knows_two_nodes(Some(1000));
    assert!(client.node_for_metadata(100).is_some());
    let id = send(&mut client, 2, any_request(), 900);
    assert!(client.handle_timed_out_requests(1100).is_empty(), "not over yet");
    assert_eq!(
        outcomes(client.handle_timed_out_requests(1101)),
        [(id, Some(Failure::Disconnected))]
    );
    assert_eq!(disconnected(&sockets), [1, 2]);
    assert!(is_first(client.node_for_metadata(1102)));
    assert!(
        client.handle_timed_out_requests(2101).is_empty(),
        "the time begins anew"
    );
    client.set_nodes(&[1]);
    assert!(client.handle_timed_out_requests(9_000).is_empty(), "an answer came");
}

fn metadata(error: ErrorCode, nodes: &[NodeId]) -> MetadataResponse {
    MetadataResponse {
        error_code: error,
        ..cluster(nodes.iter().copied(), [])
    }
}

#[test]
fn a_node_that_asks_for_it_makes_the_client_begin_anew_at_once() {
    let (sockets, mut client) = knows_two_nodes(Some(300_000));
    let id = send(&mut client, 2, any_request(), 10);
    assert!(!client.handle_metadata(&metadata(ErrorCode::REBOOTSTRAP_REQUIRED, &[7])));
    assert!(
        !is_first(client.node_for_metadata(11)),
        "not before its connections are closed"
    );
    assert_eq!(
        outcomes(client.handle_timed_out_requests(11)),
        [(id, Some(Failure::Disconnected))]
    );
    assert_eq!(disconnected(&sockets), [1, 2]);
    assert!(is_first(client.node_for_metadata(12)));
    assert!(client.handle_timed_out_requests(13).is_empty(), "once");
    assert!(client.handle_metadata(&metadata(ErrorCode::NONE, &[3])));
    assert_eq!(client.node_for_metadata(14), Some(3));
}

#[test]
fn a_connection_to_another_node_or_cluster_makes_the_client_begin_anew_at_once() {
    let (sockets, mut client) = knows_two_nodes(Some(300_000));
    let id = send(&mut client, 2, any_request(), 10);
    sockets
        .wire()
        .ready
        .insert(1, Ready::Failed(Failure::RebootstrapRequired));
    assert!(!client.ready(1, 11));
    assert_eq!(
        outcomes(client.handle_timed_out_requests(11)),
        [(id, Some(Failure::Disconnected))]
    );
    assert_eq!(disconnected(&sockets), [2]);
    assert!(is_first(client.node_for_metadata(12)));
}

#[test]
fn under_metadata_recovery_strategy_none_a_node_that_asks_to_begin_anew_is_asked_again() {
    let (sockets, mut client) = knows_two_nodes(None);
    assert!(!client.handle_metadata(&metadata(ErrorCode::REBOOTSTRAP_REQUIRED, &[])));
    assert!(client.handle_timed_out_requests(1).is_empty());
    assert!([1, 2].map(Some).contains(&client.node_for_metadata(1)));
    assert!(sockets.wire().disconnected.is_empty());
}

#[test]
fn metadata_of_a_node_that_has_just_started_change_nothing() {
    let (_, mut client) = knows_two_nodes(None);
    assert!(!client.handle_metadata(&metadata(ErrorCode::NONE, &[])));
    assert!([1, 2].map(Some).contains(&client.node_for_metadata(1)));
}
