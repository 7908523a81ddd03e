//! Takes what happens on connections, for the thread that writes it.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use bytes::Bytes;
use fletchlog_api::transport::MicrosClock;

use crate::body::{ApiVersion, Bodies};
use crate::capture::Captured;
use crate::format::{Head, VERSION};
use crate::writer::Writer;

/// Most bytes of frames that wait to be written, and most events.
const MOST_BYTES: usize = 64 * 1024 * 1024;
const MOST_EVENTS: usize = 200_000;
/// From so many bytes or events on the thread is woken; before, it looks at this interval.
const MANY_BYTES: usize = 2 * 1024 * 1024;
const MANY_EVENTS: usize = 4_000;
const LOOK: Duration = Duration::from_millis(20);
/// What was recorded is in the file after this time at the latest.
const FLUSH_US: i64 = 1_000_000;

/// What a session has beside its events.
#[derive(Debug, Clone)]
pub struct RecorderOptions {
    /// The file. One of this name is replaced.
    pub path: PathBuf,
    /// Records are kept, with keys, values and headers.
    pub keeps_records: bool,
    /// The id of the cluster; empty: not known.
    pub cluster_id: String,
}

/// A request that is recorded, for what becomes of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Recorded {
    number: u64,
    /// `None`: nothing of it may be recorded.
    of: Option<ApiVersion>,
}

/// What happened, with the time.
#[derive(Debug)]
pub(crate) enum Happened {
    Opened {
        connection: u64,
        node: i32,
        peer: String,
        listener: Arc<str>,
    },
    Principal {
        connection: u64,
        principal: String,
    },
    Closed {
        connection: u64,
        reason: String,
    },
    Request {
        connection: u64,
        number: u64,
        frame: Captured,
        size: usize,
    },
    Response {
        number: u64,
        /// Its API, if its bytes may be recorded.
        of: Option<ApiVersion>,
        /// Bytes without the size before them; `None`: there is no response.
        size: Option<usize>,
        frame: Captured,
        outcome: &'static str,
        fault: Option<Arc<str>>,
    },
}

#[derive(Debug, Default)]
pub(crate) struct Queue {
    events: VecDeque<(i64, Happened)>,
    bytes: usize,
    /// Requests that were not recorded, and bodies that were left out, since the writer saw the queue last.
    pub(crate) dropped: (u64, u64),
    is_closed: bool,
    /// The thread waits for an event, however long that takes.
    sleeps: bool,
    last: u64,
}

#[derive(Debug, Default)]
struct Shared {
    queue: Mutex<Queue>,
    arrived: Condvar,
    /// Requests that were not recorded, in all.
    dropped: AtomicU64,
    /// Why the file cannot be written.
    failure: Mutex<Option<String>>,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Records a session. Thread-safe; no call waits for the disk. Dropping it closes it.
#[derive(Debug)]
pub struct Recorder {
    shared: Arc<Shared>,
    clock: MicrosClock,
    bodies: Bodies,
    path: PathBuf,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Recorder {
    /// Creates the file, and starts the thread that writes it.
    ///
    /// # Errors
    /// The file cannot be created, or no thread is available.
    pub fn start(options: &RecorderOptions) -> std::io::Result<Arc<Self>> {
        let clock = MicrosClock::default();
        let head = Head {
            version: VERSION,
            keeps_records: options.keeps_records,
            started_us: clock.now_us(),
            writer: format!("fletchlog {}", env!("CARGO_PKG_VERSION")),
            cluster_id: options.cluster_id.clone(),
        };
        let bodies = Bodies {
            keeps_records: options.keeps_records,
        };
        let writer = Writer::create(&options.path, &head, bodies)?;
        let shared = Arc::new(Shared::default());
        let of_thread = Arc::clone(&shared);
        let thread = std::thread::Builder::new()
            .name("fletchlog-record".to_owned())
            .spawn(move || run(&of_thread, clock, writer))?;
        Ok(Arc::new(Self {
            shared,
            clock,
            bodies,
            path: options.path.clone(),
            thread: Mutex::new(Some(thread)),
        }))
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Requests that were not recorded because the queue was full.
    pub fn dropped(&self) -> u64 {
        self.shared.dropped.load(Ordering::Relaxed)
    }

    /// Why nothing more is written, if that is so.
    pub fn failure(&self) -> Option<String> {
        self.shared
            .failure
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// A connection was accepted. `listener` is the address that its client used.
    pub fn opened(&self, connection: u64, node: i32, peer: String, listener: &Arc<str>) {
        self.push(Happened::Opened {
            connection,
            node,
            peer,
            listener: Arc::clone(listener),
        });
    }

    /// The client of a connection has authenticated.
    pub fn identified(&self, connection: u64, principal: &str) {
        self.push(Happened::Principal {
            connection,
            principal: principal.to_owned(),
        });
    }

    /// A connection was closed; an empty reason: by its client.
    pub fn closed(&self, connection: u64, reason: &str) {
        self.push(Happened::Closed {
            connection,
            reason: reason.to_owned(),
        });
    }

    /// A request has arrived, without the size in front. `is_secret`: none of its bytes may be recorded. `None`: there is no room for it.
    pub fn request(&self, connection: u64, frame: &Bytes, is_secret: bool) -> Option<Recorded> {
        let now_us = self.clock.now_us();
        let of = ApiVersion::of_request(frame).filter(|_| !is_secret);
        let captured = of.map_or(Captured::Nothing, |of| Captured::of_request(self.bodies, of, frame));
        let mut queue = self.shared.lock();
        queue.last += 1;
        let number = queue.last;
        let is_full = queue.events.len() >= MOST_EVENTS || queue.bytes >= MOST_BYTES;
        if is_full || queue.is_closed {
            queue.dropped.0 += 1;
            self.shared.dropped.fetch_add(1, Ordering::Relaxed);
            return None;
        }
        let bytes = captured.held();
        let happened = Happened::Request {
            connection,
            number,
            frame: captured,
            size: frame.len(),
        };
        self.add(queue, now_us, bytes, happened);
        Some(Recorded { number, of })
    }

    /// The response to a request is sent, with the size before it; no bytes: it has none.
    pub fn response(&self, request: Recorded, chunks: &[Bytes], outcome: &'static str, fault: Option<Arc<str>>) {
        let now_us = self.clock.now_us();
        let length: usize = chunks.iter().map(Bytes::len).sum();
        let captured = match request.of {
            Some(of) if length > 0 => Captured::of_response(self.bodies, of, chunks),
            _ => Captured::Nothing,
        };
        let mut queue = self.shared.lock();
        let is_full = queue.bytes >= MOST_BYTES && captured.held() > 0;
        queue.dropped.1 += u64::from(is_full);
        let frame = if is_full { Captured::Nothing } else { captured };
        let bytes = frame.held();
        let happened = Happened::Response {
            number: request.number,
            of: request.of,
            size: (length > 0).then(|| length.saturating_sub(4)),
            frame,
            outcome,
            fault,
        };
        self.add(queue, now_us, bytes, happened);
    }

    fn push(&self, happened: Happened) {
        let now_us = self.clock.now_us();
        self.add(self.shared.lock(), now_us, 0, happened);
    }

    fn add(&self, mut queue: MutexGuard<'_, Queue>, now_us: i64, bytes: usize, happened: Happened) {
        queue.events.push_back((now_us, happened));
        queue.bytes += bytes;
        let is_many = queue.bytes >= MANY_BYTES || queue.events.len() >= MANY_EVENTS;
        if is_many || queue.sleeps {
            queue.sleeps = false;
            self.shared.arrived.notify_one();
        }
    }

    /// Writes what was recorded and ends the file. Idempotent; what happens later is not recorded.
    pub fn close(&self) {
        self.shared.lock().is_closed = true;
        self.shared.arrived.notify_one();
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread {
            // Its panic was reported when it happened.
            let _ = thread.join();
        }
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        self.close();
    }
}

/// The thread: takes events from the queue and writes them, until it is closed or the file fails.
fn run(shared: &Shared, clock: MicrosClock, mut writer: Writer) {
    let mut written_us = clock.now_us();
    loop {
        let (events, dropped, is_closed) = take(shared, !writer.has_unwritten());
        let done = events
            .into_iter()
            .try_for_each(|(at_us, happened)| writer.add(at_us, happened))
            .and_then(|()| writer.dropped(clock.now_us(), dropped))
            .and_then(|()| match is_closed {
                true => writer.end(clock.now_us()),
                false if clock.now_us() - written_us >= FLUSH_US => {
                    written_us = clock.now_us();
                    writer.flush()
                }
                false => Ok(()),
            });
        if let Err(error) = done {
            log::error!("the session is not recorded any further: {error}");
            *shared.failure.lock().unwrap_or_else(PoisonError::into_inner) = Some(error.to_string());
            let mut queue = shared.lock();
            (queue.is_closed, queue.bytes) = (true, 0);
            queue.events.clear();
            return;
        }
        if is_closed {
            return;
        }
    }
}

/// What has happened since the last call; waits for it. `may_sleep`: nothing is to be written without an event.
fn take(shared: &Shared, may_sleep: bool) -> (VecDeque<(i64, Happened)>, (u64, u64), bool) {
    let mut queue = shared.lock();
    if queue.events.is_empty() && !queue.is_closed && may_sleep {
        queue.sleeps = true;
        while queue.events.is_empty() && !queue.is_closed {
            queue = shared.arrived.wait(queue).unwrap_or_else(PoisonError::into_inner);
        }
    }
    // Many events have one wake-up, and one block.
    if !queue.is_closed && queue.bytes < MANY_BYTES && queue.events.len() < MANY_EVENTS {
        let waited = shared.arrived.wait_timeout(queue, LOOK);
        queue = waited.unwrap_or_else(PoisonError::into_inner).0;
    }
    queue.sleeps = false;
    queue.bytes = 0;
    let dropped = std::mem::take(&mut queue.dropped);
    (std::mem::take(&mut queue.events), dropped, queue.is_closed)
}
