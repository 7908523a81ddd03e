//! Names to addresses, in a thread: the system's resolver may wait for the network.

use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::{Arc, Mutex, PoisonError, mpsc};

use fletchlog_api::transport::Waker;

use crate::link::LinkId;

/// A connection that waits, and its addresses or why there are none.
pub(crate) type Resolved = (LinkId, Result<Vec<SocketAddr>, String>);

/// The thread `fletchlog-proxy-resolver`, which starts with the first name and ends with this.
pub(crate) struct Resolver {
    resolved: Arc<Mutex<Vec<Resolved>>>,
    waker: Waker,
    names: Option<mpsc::Sender<(LinkId, String, u16)>>,
}

impl Resolver {
    /// `waker` is called when a name is resolved.
    pub(crate) fn new(waker: Waker) -> Self {
        Self {
            resolved: Arc::default(),
            waker,
            names: None,
        }
    }

    /// Looks up a name for the connection; [`Resolver::take`] returns the result. An address needs no look-up.
    pub(crate) fn resolve(&mut self, link: LinkId, host: &str, port: u16) {
        if let Ok(ip) = host.parse() {
            self.put(link, Ok(vec![SocketAddr::new(ip, port)]));
            return;
        }
        if self.names.is_none() {
            match self.start() {
                Ok(names) => self.names = Some(names),
                Err(error) => return self.put(link, Err(format!("no thread can be started: {error}"))),
            }
        }
        if let Some(names) = &self.names {
            // The thread ends only with this.
            let _ = names.send((link, host.to_owned(), port));
        }
    }

    fn start(&self) -> std::io::Result<mpsc::Sender<(LinkId, String, u16)>> {
        let (names, wanted) = mpsc::channel::<(LinkId, String, u16)>();
        let (resolved, waker) = (Arc::clone(&self.resolved), Arc::clone(&self.waker));
        std::thread::Builder::new()
            .name("fletchlog-proxy-resolver".to_owned())
            .spawn(move || {
                for (link, host, port) in wanted {
                    let addresses = (host.as_str(), port).to_socket_addrs();
                    let addresses = addresses.map(Iterator::collect).map_err(|error| error.to_string());
                    lock(&resolved).push((link, addresses));
                    waker();
                }
            })?;
        Ok(names)
    }

    fn put(&self, link: LinkId, addresses: Result<Vec<SocketAddr>, String>) {
        lock(&self.resolved).push((link, addresses));
        (self.waker)();
    }

    /// What was resolved since the last call.
    pub(crate) fn take(&self) -> Vec<Resolved> {
        std::mem::take(&mut *lock(&self.resolved))
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
