//! The events of a session, and their bytes: see the table in [`format`](mod@crate::format).

use std::ops::Range;

use crate::format::{Fields, put_text, put_uvarint, put_zigzag};

const OPENED: u8 = 1;
const PRINCIPAL: u8 = 2;
const CLOSED: u8 = 3;
const REQUEST: u8 = 4;
const RESPONSE: u8 = 5;
const DROPPED: u8 = 6;
const END: u8 = 7;

/// What of a frame is in the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    /// All of it.
    Whole,
    /// All but secrets and records.
    Stripped,
    /// The header of the request.
    Header,
    /// Nothing.
    Nothing,
}

impl State {
    fn code(self) -> u8 {
        match self {
            Self::Whole => 0,
            Self::Stripped => 1,
            Self::Header => 2,
            Self::Nothing => 3,
        }
    }

    /// A state of a later release has a frame that this one cannot read.
    fn of_code(code: u8) -> Self {
        match code {
            0 => Self::Whole,
            1 => Self::Stripped,
            2 => Self::Header,
            _ => Self::Nothing,
        }
    }
}

/// An event; texts and frames are those of the block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Event<'a> {
    Opened {
        connection: u64,
        node: i32,
        peer: &'a str,
        listener: &'a str,
    },
    Principal {
        connection: u64,
        principal: &'a str,
    },
    Closed {
        connection: u64,
        reason: &'a str,
    },
    Request {
        connection: u64,
        number: u64,
        size: u64,
        state: State,
        frame: &'a [u8],
    },
    Response {
        number: u64,
        size: Option<u64>,
        state: State,
        outcome: &'a str,
        fault: &'a str,
        frame: &'a [u8],
    },
    Dropped {
        requests: u64,
        bodies: u64,
    },
    End,
    /// Of a later release.
    Unknown,
}

/// Appends an event that happened `after_us` after the one before it.
pub(crate) fn put(raw: &mut Vec<u8>, after_us: i64, event: &Event<'_>) {
    let mut fields = Vec::with_capacity(64);
    put_zigzag(&mut fields, after_us);
    let mut bytes: &[u8] = &[];
    let code = match *event {
        Event::Opened {
            connection,
            node,
            peer,
            listener,
        } => {
            put_uvarint(&mut fields, connection);
            put_zigzag(&mut fields, node.into());
            put_text(&mut fields, peer);
            put_text(&mut fields, listener);
            OPENED
        }
        Event::Principal { connection, principal } => {
            put_uvarint(&mut fields, connection);
            put_text(&mut fields, principal);
            PRINCIPAL
        }
        Event::Closed { connection, reason } => {
            put_uvarint(&mut fields, connection);
            put_text(&mut fields, reason);
            CLOSED
        }
        Event::Request {
            connection,
            number,
            size,
            state,
            frame,
        } => {
            [connection, number, size]
                .into_iter()
                .for_each(|number| put_uvarint(&mut fields, number));
            fields.push(state.code());
            bytes = frame;
            REQUEST
        }
        Event::Response {
            number,
            size,
            state,
            outcome,
            fault,
            frame,
        } => {
            put_uvarint(&mut fields, number);
            put_uvarint(&mut fields, size.map_or(0, |size| size.saturating_add(1)));
            fields.push(state.code());
            put_text(&mut fields, outcome);
            put_text(&mut fields, fault);
            bytes = frame;
            RESPONSE
        }
        Event::Dropped { requests, bodies } => {
            [requests, bodies]
                .into_iter()
                .for_each(|number| put_uvarint(&mut fields, number));
            DROPPED
        }
        Event::End | Event::Unknown => END,
    };
    raw.push(code);
    put_uvarint(raw, (fields.len() + bytes.len()) as u64);
    raw.extend(fields);
    raw.extend(bytes);
}

/// An event, its time after the one before, and where its bytes are in the block.
pub(crate) struct Read<'a> {
    pub(crate) after_us: i64,
    pub(crate) event: Event<'a>,
    pub(crate) place: Range<usize>,
}

/// The event at `at`; `None`: these are no such bytes.
pub(crate) fn read(raw: &[u8], at: usize) -> Option<Read<'_>> {
    let mut fields = Fields(raw.get(at..)?);
    let code = fields.byte()?;
    let length = usize::try_from(fields.uvarint()?).ok()?;
    let begin = raw.len() - fields.0.len();
    let mut fields = Fields(fields.take(length)?);
    let f = &mut fields;
    let after_us = f.zigzag()?;
    let event = match code {
        OPENED => Event::Opened {
            connection: f.uvarint()?,
            node: i32::try_from(f.zigzag()?).ok()?,
            peer: f.text()?,
            listener: f.text()?,
        },
        PRINCIPAL => Event::Principal {
            connection: f.uvarint()?,
            principal: f.text()?,
        },
        CLOSED => Event::Closed {
            connection: f.uvarint()?,
            reason: f.text()?,
        },
        REQUEST => Event::Request {
            connection: f.uvarint()?,
            number: f.uvarint()?,
            size: f.uvarint()?,
            state: State::of_code(f.byte()?),
            frame: f.0,
        },
        RESPONSE => Event::Response {
            number: f.uvarint()?,
            size: f.uvarint()?.checked_sub(1),
            state: State::of_code(f.byte()?),
            outcome: f.text()?,
            fault: f.text()?,
            frame: f.0,
        },
        DROPPED => Event::Dropped {
            requests: f.uvarint()?,
            bodies: f.uvarint()?,
        },
        END => Event::End,
        _ => Event::Unknown,
    };
    Some(Read {
        after_us,
        event,
        place: at..begin + length,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_come_back_and_unknown_ones_are_skipped() {
        let events = [
            Event::Opened {
                connection: 7,
                node: -1,
                peer: "127.0.0.1:5",
                listener: "127.0.0.1:9092",
            },
            Event::Principal {
                connection: 7,
                principal: "alice",
            },
            Event::Request {
                connection: 7,
                number: 300,
                size: 70_000,
                state: State::Stripped,
                frame: b"frame",
            },
            Event::Response {
                number: 300,
                size: None,
                state: State::Nothing,
                outcome: "black hole",
                fault: "",
                frame: b"",
            },
            Event::Response {
                number: 300,
                size: Some(0),
                state: State::Whole,
                outcome: "answered",
                fault: "a rule",
                frame: b"x",
            },
            Event::Dropped {
                requests: 3,
                bodies: 1 << 40,
            },
            Event::Closed {
                connection: 7,
                reason: "",
            },
            Event::End,
        ];
        let mut raw = vec![0; 8];
        raw.extend([99, 2, 0, 55]);
        for (at, event) in (0..).zip(&events) {
            put(&mut raw, at - 3, event);
        }
        let mut at = 8;
        let mut found = Vec::new();
        while at < raw.len() {
            let Read { after_us, event, place } = read(&raw, at).unwrap();
            assert_eq!(place.start, at);
            at = place.end;
            found.push((after_us, event));
        }
        assert_eq!(found.remove(0), (0, Event::Unknown));
        assert_eq!(
            found,
            (0..).zip(events).map(|(at, event)| (at - 3, event)).collect::<Vec<_>>()
        );
    }
}
