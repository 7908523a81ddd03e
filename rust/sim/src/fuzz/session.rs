//! Recorded sessions: hostile frames as a recorder sees them, and files with damaged events.
//!
//! ```text
//! input   0 | raw bytes of a block           the reader finds events or says what is wrong
//! input   n | a request | response           split after n * 4 bytes: what is recorded is read again, and has no more than was sent
//! ```

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use fletchlog_protocol::tree::Node;
use fletchlog_session::format::file_of;
use fletchlog_session::{Columns, Message, Recorder, RecorderOptions, Session, SessionError, batches_of};

/// A file of this run alone, which is removed with it.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> Self {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("fletchlog-fuzz-{}-{number}.fltrace", std::process::id());
        Self(std::env::temp_dir().join(name))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

pub(super) fn session(input: &[u8]) {
    let Some((&split, rest)) = input.split_first() else {
        return;
    };
    let scratch = Scratch::new();
    match split {
        0 => events(rest, &scratch),
        _ => frames(rest.split_at((usize::from(split) * 4).min(rest.len())), &scratch),
    }
}

/// The raw bytes of a block.
fn events(raw: &[u8], scratch: &Scratch) {
    let mut block = 1_700_000_000_000_000_i64.to_be_bytes().to_vec();
    block.extend(raw);
    std::fs::write(&scratch.0, file_of(&block).unwrap()).unwrap();
    match Session::open(&scratch.0) {
        Ok(session) => read(&session),
        Err(error) => assert!(matches!(error, SessionError::Damaged { .. }), "{error}"),
    }
}

/// Every message can be asked for, and all of them are columns.
fn read(session: &Session) {
    let mut columns = Columns::new(|id| format!("{id:x?}"));
    let places = session.items();
    assert!(places.len() >= session.exchanges());
    for place in 0..session.exchanges() {
        let exchange = session.exchange(place).unwrap();
        assert_eq!(session.place_of(exchange.number), Some(place));
        let messages = [
            session.request(&exchange).unwrap(),
            session.response(&exchange).unwrap(),
        ];
        messages.into_iter().flatten().for_each(|message| walk(&message));
        columns.add(session, &exchange).unwrap();
    }
    assert!(
        columns
            .lines
            .columns
            .iter()
            .all(|column| column.len() == session.exchanges())
    );
}

fn walk(message: &Message) {
    let mut left: Vec<&Node> = message.tree.values.iter().collect();
    while let Some(node) = left.pop() {
        match node {
            Node::Bytes(bytes) => {
                let batches = batches_of(bytes.clone(), message.is_stripped);
                assert!(batches.len() <= bytes.len());
            }
            Node::Array(elements) => left.extend(elements),
            Node::Struct(tree) => left.extend(&tree.values),
            _ => {}
        }
    }
}

/// A request and its response, as they are on the wire.
fn frames((request, response): (&[u8], &[u8]), scratch: &Scratch) {
    let options = RecorderOptions {
        path: scratch.0.clone(),
        keeps_records: false,
        cluster_id: String::new(),
    };
    let recorder = Recorder::start(&options).unwrap();
    recorder.opened(1, 1, "peer".to_owned(), &"listener".into());
    let frame = Bytes::copy_from_slice(request);
    let recorded = recorder.request(1, &frame, false).unwrap();
    let answer = Bytes::copy_from_slice(response);
    recorder.response(recorded, &[answer], "answered", None);
    recorder.close();
    assert_eq!(recorder.failure(), None);
    let session = Session::open(&scratch.0).unwrap();
    assert!(session.has_ended() && !session.is_cut() && session.exchanges() == 1);
    let exchange = session.exchange(0).unwrap();
    assert_eq!(exchange.request_bytes, request.len() as u64);
    let kept = session.request_frame(&exchange).unwrap();
    // Text that is not UTF-8 may take three times its bytes in the header.
    assert!(
        kept.len() <= 3 * request.len() + 8,
        "{} of {}",
        kept.len(),
        request.len()
    );
    read(&session);
}
