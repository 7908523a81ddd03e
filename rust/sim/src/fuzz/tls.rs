//! TLS: arbitrary bytes sent to either end, and two honest ends between which bytes are damaged, lost or repeated.

use std::collections::VecDeque;
use std::io::{self, ErrorKind, IoSlice, Read, Write};
use std::sync::LazyLock;

use fletchlog_api::{Config, Scope};
use fletchlog_tls::{ClientTls, ServerTls, Session};

use super::Input;

const AUTHORITY: &str = include_str!("../../../tls/testdata/authority.pem");
const BROKER: &str = include_str!("../../../tls/testdata/broker.pem");

static CLIENT: LazyLock<ClientTls> = LazyLock::new(|| {
    let given = [("ssl.truststore.certificates", AUTHORITY)];
    ClientTls::new(&Config::parse(Scope::Consumer, given).unwrap()).unwrap()
});
static SERVER: LazyLock<ServerTls> = LazyLock::new(|| {
    let given = [("ssl.keystore.certificate.chain", BROKER), ("ssl.keystore.key", BROKER)];
    ServerTls::new(&Config::parse(Scope::Broker, given).unwrap()).unwrap()
});

/// The bytes that each end sends.
const QUESTION: &[u8] = b"a question of the client, longer than an alert";
const ANSWER: &[u8] = b"an answer of the listener, longer than that";
/// Number of turns of both ends: a handshake needs five.
const TURNS: usize = 12;

/// The socket of one end of a connection.
struct Socket<'a> {
    input: &'a mut VecDeque<u8>,
    output: &'a mut VecDeque<u8>,
    step: usize,
}

impl Read for Socket<'_> {
    fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        let count = room.len().min(self.input.len()).min(self.step);
        if count == 0 {
            return Err(ErrorKind::WouldBlock.into());
        }
        self.input
            .drain(..count)
            .zip(room)
            .for_each(|(byte, place)| *place = byte);
        Ok(count)
    }
}

impl Write for Socket<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = bytes.len().min(self.step);
        self.output.extend(&bytes[..count]);
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

struct End {
    session: Session,
    unsent: &'static [u8],
    heard: Vec<u8>,
    has_failed: bool,
}

impl End {
    fn new(session: Session, unsent: &'static [u8]) -> Self {
        Self {
            session,
            unsent,
            heard: Vec::new(),
            has_failed: false,
        }
    }

    fn turn(&mut self, mut socket: Socket<'_>) {
        let mut room = [0; 64];
        loop {
            match self.session.read(&mut socket, &mut room) {
                Ok(0) => return,
                Ok(count) => self.heard.extend(&room[..count]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(_) => {
                    self.has_failed = true;
                    let again = self.session.read(&mut socket, &mut room);
                    assert!(again.is_err(), "a session that failed goes on");
                    return;
                }
            }
        }
        if let Ok(count) = self.session.write(&mut socket, &[IoSlice::new(self.unsent)]) {
            self.unsent = &self.unsent[count..];
        }
    }
}

/// The first byte selects the kind of test: bytes to the server, bytes to the client, two ends with damaged bytes, or two honest ends.
pub(super) fn tls(bytes: &[u8]) {
    let mut input = Input(bytes);
    let mut client = End::new(CLIENT.session("localhost").unwrap(), QUESTION);
    let mut server = End::new(SERVER.session().unwrap(), ANSWER);
    let (mut up, mut down) = (VecDeque::new(), VecDeque::new());
    let choice = input.byte();
    let step = usize::from(input.byte()) + 1;
    match choice % 4 {
        0 => up.extend(input.take(usize::MAX)),
        1 => down.extend(input.take(usize::MAX)),
        _ => {}
    }
    let (alone, damages) = (choice % 4 < 2, choice % 4 == 2);
    for _ in 0..TURNS {
        if !alone || choice % 4 == 1 {
            client.turn(Socket {
                input: &mut down,
                output: &mut up,
                step,
            });
        }
        if damages && !input.is_empty() {
            damage(&mut up, &mut input);
        }
        if !alone || choice % 4 == 0 {
            server.turn(Socket {
                input: &mut up,
                output: &mut down,
                step,
            });
        }
        if damages && !input.is_empty() {
            damage(&mut down, &mut input);
        }
    }
    assert!(ANSWER.starts_with(&client.heard), "the client heard what nobody said");
    assert!(
        QUESTION.starts_with(&server.heard),
        "the listener heard what nobody said"
    );
    let is_whole = client.heard == ANSWER && server.heard == QUESTION;
    assert!(
        choice % 4 != 3 || is_whole || step < 64,
        "honest ends do not understand each other"
    );
    assert!(!alone || !is_whole, "bytes without a key were believed");
}

/// Changes, removes or repeats a byte.
fn damage(bytes: &mut VecDeque<u8>, input: &mut Input<'_>) {
    let (kind, at) = (input.byte(), usize::from(input.u16()));
    if bytes.is_empty() {
        return;
    }
    let at = at % bytes.len();
    match kind % 3 {
        0 => bytes[at] ^= input.byte(),
        1 => drop(bytes.remove(at)),
        _ => bytes.insert(at, bytes[at]),
    }
}
