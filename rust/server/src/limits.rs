//! Limits that keep one client from using up what the others need. Kafka: `ConnectionQuotas`, `SocketServerConfigs`.

use std::collections::HashMap;
use std::net::{IpAddr, ToSocketAddrs};

use fletchlog_api::{Config, ConfigError};

/// Open files kept for the logs and the rest of the process; half of the process's limit, if that is less.
const KEPT_DESCRIPTORS: usize = 512;

/// The limits of one listener, from the broker's properties.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// `socket.request.max.bytes`: largest request.
    pub socket_request_max_bytes: i32,
    /// `sasl.server.max.receive.size`: largest request of a client that has not authenticated yet.
    pub sasl_server_max_receive_size: i32,
    /// `connection.failed.authentication.delay.ms`: delay of the response to a failed authentication.
    pub failed_authentication_delay_ms: i64,
    /// `max.connections`: most connections at a time.
    pub max_connections: usize,
    /// Most connections that the process's limit of open files leaves room for.
    pub connections_of_process: usize,
    /// `max.connections.per.ip`: most connections of one address.
    pub max_connections_per_ip: usize,
    /// `max.connections.per.ip.overrides`: limits of single addresses.
    pub max_connections_per_ip_overrides: HashMap<IpAddr, usize>,
    /// `queued.max.requests`: when this many requests wait for a thread, no more are read.
    pub queued_max_requests: usize,
    /// `max.connection.creation.rate`: most connections that are accepted in a second.
    pub max_connection_creation_rate: usize,
    /// `queued.max.request.bytes`: most bytes of all large requests that are being read or handled.
    pub queued_max_request_bytes: usize,
    /// `connections.max.idle.ms`: a connection without a byte in either direction for this long is closed.
    pub connections_max_idle_ms: i64,
    /// `fletchlog.request.read.timeout.ms`: time within which a client must complete a request, and accept bytes of its response.
    pub request_read_timeout_ms: i64,
    /// `num.io.threads`: most threads that handle requests.
    pub num_io_threads: usize,
    /// Time for sending pending responses when the listener is closed.
    pub close_grace_ms: i64,
}

/// Times of events on a connection, in monotonic ms.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Times {
    /// When bytes last moved.
    pub last_active_ms: i64,
    /// When the first byte of an incomplete request arrived.
    pub frame_begun_ms: Option<i64>,
    /// Since when the client accepts no bytes.
    pub blocked_since_ms: Option<i64>,
    /// A request is in progress.
    pub is_busy: bool,
    /// Since when the client of the request in progress has closed its side.
    pub half_closed_since_ms: Option<i64>,
}

impl Limits {
    /// Reads the limits from the configuration.
    ///
    /// # Errors
    /// An entry of `max.connections.per.ip.overrides` has no valid address or number.
    pub fn new(config: &Config) -> Result<Self, ConfigError> {
        let size = |name: &str| usize::try_from(config.int(name)).unwrap_or(0);
        Ok(Self {
            socket_request_max_bytes: config.int("socket.request.max.bytes"),
            sasl_server_max_receive_size: config.int("sasl.server.max.receive.size"),
            failed_authentication_delay_ms: config.int("connection.failed.authentication.delay.ms").into(),
            max_connections: size("max.connections"),
            connections_of_process: usize::MAX,
            max_connections_per_ip: size("max.connections.per.ip"),
            max_connections_per_ip_overrides: overrides(&config.list("max.connections.per.ip.overrides"))?,
            queued_max_requests: size("queued.max.requests"),
            max_connection_creation_rate: size("max.connection.creation.rate"),
            // -1: unlimited.
            queued_max_request_bytes: usize::try_from(config.long("queued.max.request.bytes")).unwrap_or(usize::MAX),
            connections_max_idle_ms: config.long("connections.max.idle.ms"),
            request_read_timeout_ms: config.long("fletchlog.request.read.timeout.ms"),
            num_io_threads: size("num.io.threads"),
            close_grace_ms: 1000,
        })
    }

    /// Adapts to a process that may have `files` open files (`None`: no limit).
    #[must_use]
    pub fn of_process(mut self, files: Option<u64>) -> Self {
        let files = files.map_or(usize::MAX, |files| usize::try_from(files).unwrap_or(usize::MAX));
        self.connections_of_process = files - KEPT_DESCRIPTORS.min(files / 2);
        self
    }

    /// The reason to refuse one more connection of this address, if any.
    pub fn refuse(&self, open: usize, ip: IpAddr, of_ip: usize) -> Option<String> {
        let own = self.max_connections_per_ip_overrides.get(&ip.to_canonical());
        if open >= self.max_connections {
            Some(format!("{open} are open, which is max.connections"))
        } else if open >= self.connections_of_process {
            Some(format!(
                "{open} are open, and the files that this process may have open (ulimit -n) leave no more for connections"
            ))
        } else if let Some(own) = own.filter(|own| of_ip >= **own) {
            Some(format!(
                "{of_ip} of its address are open, and max.connections.per.ip.overrides allows it {own}"
            ))
        } else if own.is_none() && of_ip >= self.max_connections_per_ip {
            Some(format!(
                "{of_ip} of its address are open, which is max.connections.per.ip"
            ))
        } else {
            None
        }
    }

    /// The reason to close a connection now, if any. A connection is idle by the broker's clock `now_ms`, which a test sets ahead; how
    /// long bytes take is measured by the machine's, `machine_ms`. So a connection in the middle of a request is idle only if the request
    /// began that long ago by the machine's clock as well.
    pub fn time_out(&self, times: &Times, now_ms: i64, machine_ms: i64) -> Option<TimeOut> {
        let over = |since_ms: i64, limit_ms: i64| now_ms.saturating_sub(since_ms) >= limit_ms;
        let takes = |since_ms: Option<i64>, limit_ms: i64| {
            since_ms.is_some_and(|since_ms| machine_ms.saturating_sub(since_ms) >= limit_ms)
        };
        let (limit, idle) = (self.request_read_timeout_ms, self.connections_max_idle_ms);
        let is_within_frame = times.frame_begun_ms.is_some();
        if takes(times.frame_begun_ms, limit) {
            Some(TimeOut::Request(limit))
        } else if takes(times.blocked_since_ms, limit) {
            Some(TimeOut::Answer(limit))
        } else if times.half_closed_since_ms.is_some_and(|since| over(since, limit)) {
            Some(TimeOut::HalfClosed)
        } else if !times.is_busy
            && over(times.last_active_ms, idle)
            && (!is_within_frame || takes(times.frame_begun_ms, idle))
        {
            Some(TimeOut::Idle)
        } else {
            None
        }
    }
}

/// Limits by address, from `HOST:NUMBER`s. Kafka: `SocketServerConfigs`, `ConnectionQuotas`.
fn overrides(given: &[&str]) -> Result<HashMap<IpAddr, usize>, ConfigError> {
    let mut limits = HashMap::new();
    for one in given {
        let wrong = |why: &str| {
            ConfigError::Conflict(format!(
                "`max.connections.per.ip.overrides` wants HOST:NUMBER, separated by commas; of `{one}` {why}"
            ))
        };
        let (host, number) = one.rsplit_once(':').ok_or_else(|| wrong("the number is missing"))?;
        let number = number.parse().map_err(|_| wrong("the number is none"))?;
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let addresses = (host, 0)
            .to_socket_addrs()
            .map_err(|_| wrong("the host has no address"))?;
        limits.extend(addresses.map(|address| (address.ip().to_canonical(), number)));
    }
    Ok(limits)
}

/// The time limit that a connection has exceeded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TimeOut {
    /// A request is incomplete.
    #[error("it began a request and did not finish it within {0} ms (fletchlog.request.read.timeout.ms)")]
    Request(i64),
    /// The client does not read its response.
    #[error("it took nothing of its answer for {0} ms (fletchlog.request.read.timeout.ms)")]
    Answer(i64),
    /// The connection was idle.
    #[error("it was idle for connections.max.idle.ms")]
    Idle,
    /// A client that may be gone had no response within `fletchlog.request.read.timeout.ms`.
    #[error("its client closed its side and was not answered in time")]
    HalfClosed,
}

impl TimeOut {
    /// Whether it is logged. Clients that idle, or disconnect while they wait, do nothing wrong.
    pub fn is_reported(self) -> bool {
        matches!(self, Self::Request(_) | Self::Answer(_))
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use fletchlog_api::Scope;

    use super::*;

    fn limits(given: &[(&str, &str)]) -> Limits {
        Limits::new(&Config::parse(Scope::Broker, given.iter().copied()).unwrap()).unwrap()
    }

    const IP: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

    #[test]
    fn connections_are_counted_in_all_and_by_address() {
        let limits = limits(&[("max.connections", "3"), ("max.connections.per.ip", "2")]);
        assert_eq!(limits.refuse(2, IP, 1), None);
        assert!(limits.refuse(3, IP, 0).unwrap().ends_with("which is max.connections"));
        assert!(limits.refuse(2, IP, 2).unwrap().contains("max.connections.per.ip"));
    }

    #[test]
    fn an_address_may_have_a_limit_of_its_own() {
        let given = "127.0.0.1:3, [::1]:0";
        let limits = limits(&[
            ("max.connections.per.ip", "1"),
            ("max.connections.per.ip.overrides", given),
        ]);
        assert_eq!(limits.refuse(9, IP, 2), None);
        assert!(limits.refuse(9, IP, 3).unwrap().contains("overrides allows it 3"));
        assert_eq!(limits.refuse(9, "::ffff:127.0.0.1".parse().unwrap(), 2), None);
        assert!(limits.refuse(0, "::1".parse().unwrap(), 0).is_some());
        assert!(limits.refuse(9, "10.0.0.1".parse().unwrap(), 1).is_some());
        for wrong in ["127.0.0.1", "127.0.0.1:x", "no such host:1"] {
            let config = Config::parse(Scope::Broker, [("max.connections.per.ip.overrides", wrong)]).unwrap();
            assert!(Limits::new(&config).unwrap_err().to_string().contains(wrong));
        }
    }

    #[test]
    fn connections_leave_files_to_the_logs() {
        for (files, connections) in [(20_000, 19_488), (1024, 512), (100, 50)] {
            let limits = limits(&[]).of_process(Some(files));
            assert_eq!(limits.refuse(connections - 1, IP, 0), None);
            assert!(limits.refuse(connections, IP, 0).unwrap().contains("ulimit -n"));
        }
        assert_eq!(limits(&[]).of_process(None).refuse(1_000_000, IP, 0), None);
    }

    #[test]
    fn a_connection_is_closed_for_what_took_too_long() {
        let limits = limits(&[
            ("connections.max.idle.ms", "100"),
            ("fletchlog.request.read.timeout.ms", "30"),
        ]);
        let quiet = Times {
            last_active_ms: 0,
            frame_begun_ms: None,
            blocked_since_ms: None,
            is_busy: false,
            half_closed_since_ms: None,
        };
        assert_eq!(limits.time_out(&quiet, 99, 99), None);
        assert_eq!(limits.time_out(&quiet, 100, 100), Some(TimeOut::Idle));
        let waiting = Times { is_busy: true, ..quiet };
        assert_eq!(limits.time_out(&waiting, 1000, 1000), None, "a long poll is not idle");
        let half_closed = Times {
            half_closed_since_ms: Some(50),
            ..waiting
        };
        assert_eq!(limits.time_out(&half_closed, 79, 79), None, "its client may still read");
        assert_eq!(limits.time_out(&half_closed, 80, 80), Some(TimeOut::HalfClosed));
        let slow = Times {
            frame_begun_ms: Some(10),
            last_active_ms: 39,
            ..quiet
        };
        assert_eq!(limits.time_out(&slow, 39, 39), None);
        assert_eq!(limits.time_out(&slow, 40, 40), Some(TimeOut::Request(30)));
        assert_eq!(limits.time_out(&slow, 10_000, 39), None, "the clock was set ahead");
        let deaf = Times {
            blocked_since_ms: Some(10),
            is_busy: true,
            ..quiet
        };
        assert_eq!(limits.time_out(&deaf, 40, 40), Some(TimeOut::Answer(30)));
    }
}
