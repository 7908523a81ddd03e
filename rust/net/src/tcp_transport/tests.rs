//! Real sockets of this machine; what is at the other end is in the hands of the test.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Mutex;

use fletchlog_api::HeartbeatRequest;
use fletchlog_api::transport::SystemClock;
use fletchlog_protocol::ApiKey;
use fletchlog_protocol::header::{RequestHeader, ResponseHeader, response_header_version};
use fletchlog_protocol::messages::api_versions_response::ApiVersion;
use fletchlog_protocol::messages::{ApiVersionsResponse, HeartbeatResponse};
use fletchlog_protocol::{Message, Reader, frame};

use super::*;

/// Longer than anything here may take.
const LONG: Duration = Duration::from_secs(20);

pub(crate) fn settings(bootstrap: &[u16], request_timeout_ms: i64) -> ConnectionSettings {
    let address = |&port: &u16| Address {
        host: "127.0.0.1".into(),
        port,
    };
    ConnectionSettings {
        bootstrap: bootstrap.iter().map(address).collect(),
        client_id: "test".into(),
        request_timeout_ms,
        setup_timeout_ms: 5_000,
        setup_timeout_max_ms: 10_000,
        checks_cluster: true,
        security: Arc::default(),
    }
}

fn transport(bootstrap: &[u16], request_timeout_ms: i64) -> TcpTransport {
    let settings = settings(bootstrap, request_timeout_ms);
    TcpTransport::new(settings, Arc::new(SystemClock::default())).unwrap()
}

/// The system's sockets, and a name with these addresses; one of them does not answer.
struct Named {
    system: SystemSockets,
    addresses: Vec<SocketAddr>,
    silent: Option<SocketAddr>,
    tried: Arc<Mutex<Vec<SocketAddr>>>,
}

impl Sockets for Named {
    type Socket = mio::net::TcpStream;
    fn resolve(&mut self, _: &str, _: u16) -> std::io::Result<Vec<SocketAddr>> {
        Ok(self.addresses.clone())
    }
    fn connect(&mut self, address: SocketAddr, token: usize) -> std::io::Result<Self::Socket> {
        self.tried.lock().unwrap().push(address);
        if self.silent != Some(address) {
            return self.system.connect(address, token);
        }
        let never = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None)?;
        Ok(mio::net::TcpStream::from_std(never.into()))
    }
    fn connected(socket: &Self::Socket) -> std::io::Result<()> {
        SystemSockets::connected(socket)
    }
    fn forget(&mut self, socket: &mut Self::Socket) {
        self.system.forget(socket);
    }
    fn wait(&mut self, timeout: Duration, events: &mut Vec<SocketEvent>) -> std::io::Result<()> {
        self.system.wait(timeout, events)
    }
    fn waker(&self) -> Waker {
        self.system.waker()
    }
    fn for_heartbeats(&self) -> std::io::Result<Option<Self>> {
        Ok(None)
    }
}

pub(crate) fn server() -> (TcpListener, u16) {
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = server.local_addr().unwrap().port();
    (server, port)
}

fn heartbeat() -> Request {
    Request::Heartbeat(HeartbeatRequest {
        group_id: "g".into(),
        generation_id: 1,
        member_id: "m".into(),
        group_instance_id: None,
    })
}

/// Waits until the connection is ready or has failed.
fn settled(transport: &mut TcpTransport, node: NodeId) -> Ready {
    loop {
        match transport.ready(node) {
            Ready::Connecting => assert!(transport.wait(LONG), "nothing changed"),
            other => return other,
        }
    }
}

pub(crate) fn read_request(stream: &mut TcpStream) -> RequestHeader {
    let mut size = [0; 4];
    stream.read_exact(&mut size).unwrap();
    let mut payload = vec![0; u32::from_be_bytes(size) as usize];
    stream.read_exact(&mut payload).unwrap();
    RequestHeader::decode(&mut Reader::new(payload.into())).unwrap()
}

pub(crate) fn answer(stream: &mut TcpStream, request: &RequestHeader, message: &impl Message) {
    let mut writer = frame::begin();
    let version = response_header_version(request.api_key, request.api_version);
    let header = ResponseHeader {
        correlation_id: request.correlation_id,
    };
    header.encode(&mut writer, version);
    message.encode(&mut writer, request.api_version).unwrap();
    stream.write_all(&frame::finish(writer).unwrap().concat()).unwrap();
}

/// Accepts, and says that Heartbeat is served.
fn accept(server: &TcpListener) -> TcpStream {
    let mut stream = server.accept().unwrap().0;
    let asked = read_request(&mut stream);
    let versions = ApiVersionsResponse {
        api_keys: vec![ApiVersion {
            api_key: ApiKey::Heartbeat.code(),
            min_version: 0,
            max_version: 4,
        }],
        ..Default::default()
    };
    answer(&mut stream, &asked, &versions);
    stream
}

/// A transport whose first connection is ready, and its other end.
fn connected(server: &TcpListener, port: u16) -> (TcpTransport, TcpStream) {
    let mut transport = transport(&[port], 30_000);
    assert_eq!(transport.ready(-1), Ready::Connecting);
    let stream = std::thread::scope(|scope| {
        let other = scope.spawn(|| accept(server));
        assert_eq!(settled(&mut transport, -1), Ready::Yes);
        other.join().unwrap()
    });
    (transport, stream)
}

#[test]
fn a_request_is_answered_and_a_pause_that_the_node_asks_for_is_kept() {
    let (server, port) = server();
    let (mut transport, mut stream) = connected(&server, port);
    transport.send(-1, 7, heartbeat());
    let asked = read_request(&mut stream);
    let response = HeartbeatResponse {
        throttle_time_ms: 200,
        ..Default::default()
    };
    answer(&mut stream, &asked, &response);
    assert!(transport.wait(LONG));
    let completion = transport.receive(-1).unwrap();
    assert!(matches!(completion.result, Ok(fletchlog_api::Response::Heartbeat(_))));
    assert_eq!((completion.node, completion.correlation_id), (-1, 7));
    assert!(matches!(transport.ready(-1), Ready::Throttled(1..=200)));
    let begun = transport.clock.monotonic_ms();
    transport.send(-1, 8, heartbeat());
    stream.set_nonblocking(true).unwrap();
    assert!(stream.read(&mut [0; 1]).is_err(), "nothing is sent during the pause");
    stream.set_nonblocking(false).unwrap();
    while transport.ready(-1) != Ready::Yes {
        transport.wait(Duration::from_millis(20));
    }
    read_request(&mut stream);
    assert!(transport.clock.monotonic_ms() - begun >= 150);
}

#[test]
fn a_refused_connection_is_said_once_and_the_next_question_tries_again() {
    let (closed, port) = server();
    drop(closed);
    let mut transport = transport(&[port], 30_000);
    for _ in 0..2 {
        assert_eq!(transport.ready(-1), Ready::Connecting);
        let failed = settled(&mut transport, -1);
        assert!(
            matches!(&failed, Ready::Failed(Failure::NotConnected(why)) if why.contains("refused")),
            "{failed:?}"
        );
    }
    // What was sent meanwhile is answered with the reason.
    transport.send(-1, 3, heartbeat());
    assert!(transport.wait(LONG));
    let lost = transport.receive(-1).unwrap();
    assert!(
        matches!((lost.correlation_id, &lost.result), (3, Err(Failure::NotConnected(_)))),
        "{lost:?}"
    );
    assert!(matches!(transport.ready(99), Ready::Failed(_)), "no such node");
}

#[test]
fn a_node_that_says_nothing_is_given_up_and_one_that_hangs_up_is_named() {
    let (silent, port) = server();
    let mut transport = transport(&[port], 100);
    assert_eq!(transport.ready(-1), Ready::Connecting);
    let failed = settled(&mut transport, -1);
    assert!(
        matches!(&failed, Ready::Failed(Failure::NotConnected(why)) if why.contains("request.timeout.ms")),
        "{failed:?}"
    );
    let first = silent.accept().unwrap().0;
    drop(first);
    assert_eq!(transport.ready(-1), Ready::Connecting);
    drop(silent.accept().unwrap().0);
    let failed = settled(&mut transport, -1);
    assert!(matches!(&failed, Ready::Failed(Failure::NotConnected(_))), "{failed:?}");
}

#[test]
fn a_lost_connection_answers_what_is_outstanding_oldest_first() {
    let (server, port) = server();
    let (mut transport, stream) = connected(&server, port);
    for id in 1..=3 {
        transport.send(-1, id, heartbeat());
    }
    drop(stream);
    assert!(transport.wait(LONG));
    let lost: Vec<_> = std::iter::from_fn(|| transport.receive(-1)).collect();
    assert_eq!(lost.iter().map(|c| c.correlation_id).collect::<Vec<_>>(), [1, 2, 3]);
    assert!(
        lost.iter().all(|c| matches!(c.result, Err(Failure::Disconnected))),
        "{lost:?}"
    );
}

#[test]
fn a_connection_that_is_given_up_has_no_late_answers() {
    let (server, port) = server();
    let (mut transport, mut stream) = connected(&server, port);
    transport.send(-1, 1, heartbeat());
    let asked = read_request(&mut stream);
    transport.disconnect(-1);
    let _ = stream.write_all(&[0; 4]);
    assert!(!transport.has_arrived(-1));
    assert_eq!(asked.api_key, ApiKey::Heartbeat.code());
    // It is opened anew.
    transport.send(-1, 2, heartbeat());
    std::thread::scope(|scope| {
        let other = scope.spawn(|| {
            let mut stream = accept(&server);
            let asked = read_request(&mut stream);
            answer(&mut stream, &asked, &HeartbeatResponse::default());
            stream
        });
        while !transport.has_arrived(-1) {
            assert!(transport.wait(LONG));
        }
        other.join().unwrap();
    });
    assert_eq!(transport.receive(-1).unwrap().correlation_id, 2);
}

#[test]
fn another_thread_ends_a_wait() {
    let mut transport = transport(&[1], 1);
    let waker = transport.waker().unwrap();
    let waking = std::thread::spawn(move || waker());
    assert!(!transport.wait(LONG));
    waking.join().unwrap();
}

#[test]
fn of_a_name_with_two_addresses_the_second_is_used_when_the_first_refuses_or_is_silent() {
    for is_silent in [false, true] {
        let (closed, _) = server();
        let first = closed.local_addr().unwrap();
        drop(closed);
        let (server, port) = server();
        let second = server.local_addr().unwrap();
        let tried = Arc::new(Mutex::new(Vec::new()));
        let sockets = Named {
            system: SystemSockets::new().unwrap(),
            addresses: vec![first, second],
            silent: is_silent.then_some(first),
            tried: Arc::clone(&tried),
        };
        let settings = ConnectionSettings {
            setup_timeout_ms: if is_silent { 50 } else { 60_000 },
            ..settings(&[port], 30_000)
        };
        let mut transport = TcpTransport::over(sockets, settings, Arc::new(SystemClock::default()));
        std::thread::scope(|scope| {
            let other = scope.spawn(|| accept(&server));
            loop {
                match transport.ready(-1) {
                    Ready::Connecting => assert!(transport.wait(LONG), "nothing changed"),
                    ready => break assert_eq!(ready, Ready::Yes),
                }
            }
            other.join().unwrap();
        });
        assert_eq!(*tried.lock().unwrap(), [first, second]);
    }
}

/// Waits as a call that must not sleep does: it only looks, again and again.
fn suspended(transport: &mut TcpTransport) {
    let start = std::time::Instant::now();
    while !transport.wait(Duration::ZERO) {
        assert!(start.elapsed() < LONG, "nothing changed");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_call_that_must_not_sleep_has_names_looked_up_in_a_thread_and_its_requests_wait_for_the_address() {
    let (server, port) = server();
    let mut settings = settings(&[port], 30_000);
    settings.bootstrap[0].host = "localhost".into();
    let mut transport = TcpTransport::new(settings, Arc::new(SystemClock::default())).unwrap();
    std::thread::scope(|scope| {
        let other = scope.spawn(|| {
            let mut stream = accept(&server);
            let asked = read_request(&mut stream);
            answer(&mut stream, &asked, &HeartbeatResponse::default());
        });
        fletchlog_api::waiting::suspending(|| {
            transport.send(-1, 7, heartbeat());
            // The thread may have the answer at once.
            let is_looked_up = transport.resolving.contains_key(&-1);
            assert!(is_looked_up || transport.channels.contains_key(&-1));
            assert_eq!(transport.ready(-1), Ready::Connecting);
            while !transport.has_arrived(-1) {
                suspended(&mut transport);
            }
        });
        let answered = transport.receive(-1).unwrap();
        assert_eq!(answered.correlation_id, 7);
        assert!(answered.result.is_ok());
        other.join().unwrap();
    });
}

#[test]
fn a_name_that_no_resolver_knows_fails_the_requests_that_wait_for_its_address() {
    let mut settings = settings(&[9], 30_000);
    settings.bootstrap[0].host = "no-such-host.invalid".into();
    let mut transport = TcpTransport::new(settings, Arc::new(SystemClock::default())).unwrap();
    fletchlog_api::waiting::suspending(|| {
        transport.send(-1, 7, heartbeat());
        suspended(&mut transport);
        assert!(matches!(
            transport.receive(-1).unwrap().result,
            Err(Failure::NotConnected(_))
        ));
        assert_eq!(transport.ready(-1), Ready::Connecting);
        suspended(&mut transport);
        assert!(matches!(transport.ready(-1), Ready::Failed(Failure::NotConnected(_))));
    });
}
