//! Limits, so that one client cannot use up what the others need. Kafka: `ConnectionQuotas`, `SocketServerConfigs`.

use fletchlog_api::Config;

/// The limits of one listener, from the broker's properties.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// `socket.request.max.bytes`: largest request.
    pub socket_request_max_bytes: i32,
    /// `sasl.server.max.receive.size`: largest request of a client that has not authenticated yet.
    pub sasl_server_max_receive_size: i32,
    /// `connection.failed.authentication.delay.ms`: how long the answer to a failed authentication is held back.
    pub failed_authentication_delay_ms: i64,
    /// `max.connections`: most connections at a time.
    pub max_connections: usize,
    /// `max.connections.per.ip`: most connections of one address.
    pub max_connections_per_ip: usize,
    /// `max.connection.creation.rate`: most connections that are accepted in a second.
    pub max_connection_creation_rate: usize,
    /// `queued.max.request.bytes`: what large requests may take together, while they are read and handled.
    pub queued_max_request_bytes: usize,
    /// `connections.max.idle.ms`: a connection without a byte in either direction for this long is closed.
    pub connections_max_idle_ms: i64,
    /// `fletchlog.request.read.timeout.ms`: a request that was begun must be complete by then, and a client must take its answer.
    pub request_read_timeout_ms: i64,
    /// `num.io.threads`: most threads that handle requests.
    pub num_io_threads: usize,
    /// How long answers that are on their way may take when the listener is closed.
    pub close_grace_ms: i64,
}

/// When things happened on a connection, in monotonic ms.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Times {
    /// Bytes moved last.
    pub last_active_ms: i64,
    /// An incomplete request was begun.
    pub frame_begun_ms: Option<i64>,
    /// Since when the client takes no bytes.
    pub blocked_since_ms: Option<i64>,
    /// A request is in work.
    pub is_busy: bool,
    /// A request is in work whose client has closed its side since then.
    pub half_closed_since_ms: Option<i64>,
}

impl Limits {
    /// As the broker is configured.
    pub fn new(config: &Config) -> Self {
        let size = |name: &str| usize::try_from(config.int(name)).unwrap_or(0);
        Self {
            socket_request_max_bytes: config.int("socket.request.max.bytes"),
            sasl_server_max_receive_size: config.int("sasl.server.max.receive.size"),
            failed_authentication_delay_ms: config.int("connection.failed.authentication.delay.ms").into(),
            max_connections: size("max.connections"),
            max_connections_per_ip: size("max.connections.per.ip"),
            max_connection_creation_rate: size("max.connection.creation.rate"),
            // -1: unlimited.
            queued_max_request_bytes: usize::try_from(config.long("queued.max.request.bytes")).unwrap_or(usize::MAX),
            connections_max_idle_ms: config.long("connections.max.idle.ms"),
            request_read_timeout_ms: config.long("fletchlog.request.read.timeout.ms"),
            num_io_threads: size("num.io.threads"),
            close_grace_ms: 1000,
        }
    }

    /// Why one more connection is refused, if it is.
    pub fn refuse(&self, open: usize, of_ip: usize) -> Option<String> {
        if open >= self.max_connections {
            Some(format!("{open} are open, which is max.connections"))
        } else if of_ip >= self.max_connections_per_ip {
            Some(format!(
                "{of_ip} of its address are open, which is max.connections.per.ip"
            ))
        } else {
            None
        }
    }

    /// Why a connection is to be closed now, if it is.
    pub fn time_out(&self, times: &Times, now_ms: i64) -> Option<TimeOut> {
        let over = |since_ms: i64, limit_ms: i64| now_ms.saturating_sub(since_ms) >= limit_ms;
        let limit = self.request_read_timeout_ms;
        if times.frame_begun_ms.is_some_and(|since| over(since, limit)) {
            Some(TimeOut::Request(limit))
        } else if times.blocked_since_ms.is_some_and(|since| over(since, limit)) {
            Some(TimeOut::Answer(limit))
        } else if times.half_closed_since_ms.is_some_and(|since| over(since, limit)) {
            Some(TimeOut::HalfClosed)
        } else if !times.is_busy && over(times.last_active_ms, self.connections_max_idle_ms) {
            Some(TimeOut::Idle)
        } else {
            None
        }
    }
}

/// What took too long.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TimeOut {
    /// A request was begun and not finished.
    #[error("it began a request and did not finish it within {0} ms (fletchlog.request.read.timeout.ms)")]
    Request(i64),
    /// The client does not read its answer.
    #[error("it took nothing of its answer for {0} ms (fletchlog.request.read.timeout.ms)")]
    Answer(i64),
    /// The connection was idle.
    #[error("it was idle for connections.max.idle.ms")]
    Idle,
    /// The answer of a client that may be gone was not there within `fletchlog.request.read.timeout.ms`.
    #[error("its client closed its side and was not answered in time")]
    HalfClosed,
}

impl TimeOut {
    /// Clients that idle, or end while they wait, do nothing wrong.
    pub fn is_reported(self) -> bool {
        matches!(self, Self::Request(_) | Self::Answer(_))
    }
}

#[cfg(test)]
mod tests {
    use fletchlog_api::Scope;

    use super::*;

    fn limits(given: &[(&str, &str)]) -> Limits {
        Limits::new(&Config::parse(Scope::Broker, given.iter().copied()).unwrap())
    }

    #[test]
    fn connections_are_counted_in_all_and_by_address() {
        let limits = limits(&[("max.connections", "3"), ("max.connections.per.ip", "2")]);
        assert_eq!(limits.refuse(2, 1), None);
        assert!(limits.refuse(3, 0).unwrap().contains("max.connections"));
        assert!(limits.refuse(2, 2).unwrap().contains("max.connections.per.ip"));
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
        assert_eq!(limits.time_out(&quiet, 99), None);
        assert_eq!(limits.time_out(&quiet, 100), Some(TimeOut::Idle));
        let waiting = Times { is_busy: true, ..quiet };
        assert_eq!(limits.time_out(&waiting, 1000), None, "a long poll is not idle");
        let half_closed = Times {
            half_closed_since_ms: Some(50),
            ..waiting
        };
        assert_eq!(limits.time_out(&half_closed, 79), None, "its client may still read");
        assert_eq!(limits.time_out(&half_closed, 80), Some(TimeOut::HalfClosed));
        let slow = Times {
            frame_begun_ms: Some(10),
            last_active_ms: 39,
            ..quiet
        };
        assert_eq!(limits.time_out(&slow, 39), None);
        assert_eq!(limits.time_out(&slow, 40), Some(TimeOut::Request(30)));
        let deaf = Times {
            blocked_since_ms: Some(10),
            is_busy: true,
            ..quiet
        };
        assert_eq!(limits.time_out(&deaf, 40), Some(TimeOut::Answer(30)));
    }
}
