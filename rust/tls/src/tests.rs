use std::collections::VecDeque;
use std::io::{self, ErrorKind, IoSlice, Read, Write};

use fletchlog_api::{Config, Scope};

use crate::pem::Pem;
use crate::{ClientTls, ServerTls, Session, TlsFailure, principal};

const AUTHORITY: &str = include_str!("../testdata/authority.pem");
const BROKER: &str = include_str!("../testdata/broker.pem");
const ENCRYPTED: &str = include_str!("../testdata/encrypted.pem");

fn config(scope: Scope, given: &[(&str, &str)]) -> Config {
    Config::parse(scope, given.iter().copied()).unwrap()
}

fn client(more: &[(&str, &str)]) -> Session {
    let given = [&[("ssl.truststore.certificates", AUTHORITY)], more].concat();
    let tls = ClientTls::new(&config(Scope::Consumer, &given)).unwrap();
    tls.session("localhost").unwrap()
}

fn server(more: &[(&str, &str)]) -> Session {
    let store = [("ssl.keystore.certificate.chain", BROKER), ("ssl.keystore.key", BROKER)];
    let given = [&store, more].concat();
    ServerTls::new(&config(Scope::Broker, &given))
        .unwrap()
        .session()
        .unwrap()
}

/// One direction of a socket that takes and gives so many bytes at a time, and has room for some.
struct Pipe {
    bytes: VecDeque<u8>,
    room: usize,
    step: usize,
    /// Bytes that were put in, ever.
    passed: usize,
}

/// One end of two pipes.
struct Socket<'a> {
    input: &'a mut Pipe,
    output: &'a mut Pipe,
}

impl Read for Socket<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = buffer.len().min(self.input.step).min(self.input.bytes.len());
        if count == 0 {
            return Err(ErrorKind::WouldBlock.into());
        }
        self.input
            .bytes
            .drain(..count)
            .zip(buffer)
            .for_each(|(byte, place)| *place = byte);
        Ok(count)
    }
}

impl Write for Socket<'_> {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        let free = self.output.room - self.output.bytes.len();
        let count = buffer.len().min(self.output.step).min(free);
        if count == 0 {
            return Err(ErrorKind::WouldBlock.into());
        }
        self.output.bytes.extend(&buffer[..count]);
        self.output.passed += count;
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// What one end still has to say, and what it has heard.
struct End {
    session: Session,
    unsent: Vec<u8>,
    heard: Vec<u8>,
    room: usize,
}

impl End {
    fn turn(&mut self, socket: &mut Socket<'_>) -> io::Result<()> {
        let mut room = vec![0; self.room];
        match self.session.read(socket, &mut room) {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(count) => self.heard.extend(&room[..count]),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
        let (first, rest) = self.unsent.split_at(self.unsent.len() / 3);
        let slices = [IoSlice::new(first), IoSlice::new(rest)];
        let written = match self.unsent.is_empty() {
            true => self.session.flush(socket).map(|()| 0),
            false => self.session.write(socket, &slices),
        };
        match written {
            Ok(count) => drop(self.unsent.drain(..count)),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }
}

/// Lets both ends talk until nothing moves any more; the first error of each.
fn talk(client: &mut End, server: &mut End, step: usize, room: usize) -> (Option<io::Error>, Option<io::Error>) {
    let pipe = || Pipe {
        bytes: VecDeque::new(),
        room,
        step,
        passed: 0,
    };
    let (mut up, mut down) = (pipe(), pipe());
    let (mut of_client, mut of_server) = (None, None);
    let mut quiet = 0;
    while quiet < 3 {
        let before = (
            client.unsent.len(),
            server.unsent.len(),
            client.heard.len(),
            server.heard.len(),
            up.passed,
            down.passed,
        );
        if of_client.is_none() {
            of_client = client
                .turn(&mut Socket {
                    input: &mut down,
                    output: &mut up,
                })
                .err();
        }
        if of_server.is_none() {
            of_server = server
                .turn(&mut Socket {
                    input: &mut up,
                    output: &mut down,
                })
                .err();
        }
        let after = (
            client.unsent.len(),
            server.unsent.len(),
            client.heard.len(),
            server.heard.len(),
            up.passed,
            down.passed,
        );
        quiet = if before == after { quiet + 1 } else { 0 };
    }
    (of_client, of_server)
}

fn ends(client: Session, server: Session, said: [&[u8]; 2], room: usize) -> (End, End) {
    let end = |session, unsent: &[u8]| End {
        session,
        unsent: unsent.to_vec(),
        heard: Vec::new(),
        room,
    };
    (end(client, said[0]), end(server, said[1]))
}

#[test]
fn what_one_end_says_the_other_hears_however_the_socket_cuts_it() {
    let question: Vec<u8> = (0..300_u32).map(|i| i.to_le_bytes()[0]).collect();
    let answer: Vec<u8> = (0..60_000_u32).map(|i| i.to_le_bytes()[1]).collect();
    for version in ["TLSv1.2", "TLSv1.3"] {
        for (step, room) in [
            (1_000_000, 1_000_000),
            (1, 1_000_000),
            (700, 900),
            (16_384, 20_000),
            (5, 30_000),
        ] {
            for buffer in [1, 4096, 1_000_000] {
                let versions = [("ssl.enabled.protocols", version)];
                let (mut client, mut server) = ends(client(&versions), server(&[]), [&question, &answer], buffer);
                let failures = talk(&mut client, &mut server, step, room);
                assert!(
                    matches!(failures, (None, None)),
                    "{version} {step} {room}: {failures:?}"
                );
                assert!(
                    client.heard == answer && server.heard == question,
                    "{version} {step} {room} {buffer}"
                );
                assert!(!client.session.is_handshaking() && !server.session.wants_write());
            }
        }
    }
}

#[test]
fn a_damaged_byte_ends_both_ends_with_an_error_and_never_changes_what_is_heard() {
    for at in [0, 3, 5, 40, 900, 1500] {
        let (mut client, mut server) = ends(client(&[]), server(&[]), [b"question", b"answer"], 100);
        let pipe = || Pipe {
            bytes: VecDeque::new(),
            room: 100_000,
            step: 100_000,
            passed: 0,
        };
        let (mut up, mut down) = (pipe(), pipe());
        let mut failed = false;
        let mut passed = 0;
        for _ in 0..20 {
            failed |= client
                .turn(&mut Socket {
                    input: &mut down,
                    output: &mut up,
                })
                .is_err();
            failed |= server
                .turn(&mut Socket {
                    input: &mut up,
                    output: &mut down,
                })
                .is_err();
            let here = down.bytes.len();
            if (passed..passed + here).contains(&at) {
                down.bytes[at - passed] ^= 0x55;
            }
            passed += here;
        }
        assert!(b"answer".starts_with(&client.heard[..]), "{at}: {:?}", client.heard);
        assert!(failed || client.heard == b"answer", "{at}");
    }
}

#[test]
fn a_failure_is_said_again_and_the_other_end_gets_the_alert() {
    let (mut client, mut server) = ends(
        client(&[("ssl.truststore.certificates", BROKER)]),
        server(&[]),
        [b"q", b"a"],
        100,
    );
    let (of_client, of_server) = talk(&mut client, &mut server, 100_000, 100_000);
    let of_client = of_client.unwrap();
    assert!(
        TlsFailure::of(&of_client).unwrap().to_string().contains("not trusted"),
        "{of_client}"
    );
    let text = of_server.unwrap().to_string();
    assert!(
        text.contains("may not trust the certificate of this listener"),
        "{text}"
    );
    let nothing = || Pipe {
        bytes: VecDeque::new(),
        room: 0,
        step: 1,
        passed: 0,
    };
    let mut socket = Socket {
        input: &mut nothing(),
        output: &mut nothing(),
    };
    let again = client.session.read(&mut socket, &mut [0; 10]).unwrap_err();
    assert_eq!(again.to_string(), of_client.to_string());
}

#[test]
fn the_subject_of_a_certificate_is_written_as_java_writes_it() {
    let pem = |text: &str| Pem {
        property: "p",
        file: None,
        text: text.to_owned(),
    };
    let certificate = &pem(BROKER).certificates().unwrap()[0];
    assert_eq!(
        principal::subject(certificate).unwrap(),
        "CN=\\#broker\\ ,OU=a \\+ b,O=Ask\\, Inc.,C=GB"
    );
    assert_eq!(
        principal::subject(&pem(AUTHORITY).certificates().unwrap()[0]).unwrap(),
        "CN=authority,O=fletchlog tests"
    );
}

#[test]
fn pem_may_be_one_line_and_a_key_encrypted_and_what_is_wrong_is_named_without_the_text() {
    let pem = |text: &str| Pem {
        property: "ssl.keystore.key",
        file: None,
        text: text.to_owned(),
    };
    let plain = pem(BROKER).key(None).unwrap();
    assert_eq!(pem(&BROKER.replace('\n', " ")).key(None).unwrap(), plain);
    assert_eq!(
        pem(ENCRYPTED).key(Some("s3cret")).unwrap().secret_der().len(),
        plain.secret_der().len()
    );
    let cut = &BROKER[..BROKER.len() / 4];
    for (text, password, reason) in [
        (ENCRYPTED, None, "give ssl.key.password"),
        (ENCRYPTED, Some("other"), "ssl.key.password is another one"),
        (AUTHORITY, None, "it has no `-----BEGIN PRIVATE KEY-----`"),
        (cut, None, "it has no `-----BEGIN PRIVATE KEY-----`"),
        (
            "-----BEGIN PRIVATE KEY-----!?-----END PRIVATE KEY-----",
            None,
            "is damaged",
        ),
        (
            "-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\n\nAAAA\n-----END RSA PRIVATE KEY-----",
            None,
            "openssl pkcs8 -topk8",
        ),
    ] {
        let error = pem(text).key(password).unwrap_err().to_string();
        assert!(error.contains(reason) && error.contains("ssl.keystore.key"), "{error}");
        assert!(!error.contains("MI"), "{error}");
    }
    assert!(
        pem("")
            .certificates()
            .unwrap_err()
            .to_string()
            .contains("BEGIN CERTIFICATE")
    );
}

/// A client that closes says so and waits for the socket's end, as Python's asyncio does for 30 seconds.
#[test]
fn a_side_that_says_that_nothing_follows_is_heard_to_the_end_and_then_has_ended() {
    for (step, room) in [(1_000_000, 1_000_000), (1, 1_000_000), (700, 900)] {
        let (mut client, mut server) = ends(client(&[]), server(&[]), [b"first", b""], 4);
        let failures = talk(&mut client, &mut server, step, room);
        assert!(matches!(failures, (None, None)), "{failures:?}");
        client.unsent = b"and last".to_vec();
        let mut up = Pipe {
            bytes: VecDeque::new(),
            room,
            step,
            passed: 0,
        };
        let mut down = Pipe {
            bytes: VecDeque::new(),
            room,
            step,
            passed: 0,
        };
        while !client.unsent.is_empty() {
            let (input, output) = (&mut down, &mut up);
            client.turn(&mut Socket { input, output }).unwrap();
        }
        client.session.end();
        let mut ended = None;
        for _ in 0..2_000 {
            let (input, output) = (&mut down, &mut up);
            let _ = client.session.flush(&mut Socket { input, output });
            let (input, output) = (&mut up, &mut down);
            ended = server.turn(&mut Socket { input, output }).err();
            if ended.is_some() {
                break;
            }
        }
        assert_eq!(ended.map(|e| e.kind()), Some(ErrorKind::UnexpectedEof), "{step} {room}");
        assert_eq!(server.heard, b"firstand last");
    }
}

/// A socket that has some bytes, then says something else once, then that it has nothing.
struct Ending {
    bytes: Vec<u8>,
    then: Option<io::Result<usize>>,
}

impl Read for Ending {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if !self.bytes.is_empty() {
            let count = buffer.len().min(self.bytes.len());
            self.bytes
                .drain(..count)
                .zip(buffer)
                .for_each(|(byte, place)| *place = byte);
            return Ok(count);
        }
        self.then.take().unwrap_or_else(|| Err(ErrorKind::WouldBlock.into()))
    }
}

impl Write for Ending {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        Ok(buffer.len())
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn what_stands_behind_the_last_bytes_is_not_lost_though_the_socket_says_it_once() {
    let reset = || Some(Err(ErrorKind::ConnectionReset.into()));
    /// What follows the words, whether it is known with them, and the outcome of the next read.
    type Case = (&'static [u8], Option<io::Result<usize>>, bool, Result<usize, ErrorKind>);
    let cases: [Case; 4] = [
        (b"", None, false, Err(ErrorKind::WouldBlock)),
        (b"", Some(Ok(0)), true, Ok(0)),
        (b"", reset(), true, Err(ErrorKind::ConnectionReset)),
        (&[23, 3, 3, 0, 4, 1, 2, 3, 4], None, true, Err(ErrorKind::InvalidData)),
    ];
    for (rubbish, then, is_over, expected) in cases {
        let (mut client, mut server) = ends(client(&[]), server(&[]), [b"first", b""], 100);
        let failures = talk(&mut client, &mut server, 1_000_000, 1_000_000);
        assert!(matches!(failures, (None, None)), "{failures:?}");
        let pipe = || Pipe {
            bytes: VecDeque::new(),
            room: 1_000_000,
            step: 1_000_000,
            passed: 0,
        };
        let (mut up, mut down) = (pipe(), pipe());
        client.unsent = b"words".to_vec();
        while !client.unsent.is_empty() {
            let (input, output) = (&mut down, &mut up);
            client.turn(&mut Socket { input, output }).unwrap();
        }
        let mut socket = Ending {
            bytes: up.bytes.iter().chain(rubbish).copied().collect(),
            then,
        };
        let mut room = [0; 100];
        let count = server.session.read(&mut socket, &mut room).unwrap();
        assert_eq!(&room[..count], b"words");
        assert_eq!(server.session.is_over(), is_over, "{expected:?}");
        let next = server.session.read(&mut socket, &mut room);
        assert_eq!(next.map_err(|error| error.kind()), expected);
    }
}
