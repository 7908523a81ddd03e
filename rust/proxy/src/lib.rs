//! A proxy in front of a Kafka cluster: a port for each of its nodes. Bytes pass as they are; only the addresses in responses are replaced
//! by those of the proxy's own ports, so that clients stay behind it.
//!
//! ```text
//! Proxy        opens and closes; one thread                                      (proxy)
//!   Relay      the thread: ports, connections, events                             (relay)
//!     Link     a client's connection and that to its node; backpressure           (link)
//!       Responses  in the order of the requests; those of rules for faults         (responses)
//!       End    one socket, with or without TLS                                    (end)
//!       Splitter  bytes -> heads of frames, bytes that pass, whole frames         (frames)
//!     rewrite  the addresses in a response, by the tables of the protocol         (rewrite)
//!     Tail     a large Fetch response that passes, but for the addresses at its end (tail)
//!     Resolver names -> addresses, in a thread of its own                         (resolver)
//! ```

mod end;
mod frames;
mod link;
mod proxy;
mod relay;
mod resolver;
mod responses;
mod rewrite;
mod seen;
mod share;
mod tail;

pub use proxy::{Proxy, ProxyError, ProxyOptions};
