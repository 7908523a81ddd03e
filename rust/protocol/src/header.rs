//! The headers of requests and responses. Kafka: `RequestHeader`, `ResponseHeader`, `ApiMessageType#requestHeaderVersion`.
//!
//! | request header | from | bytes |
//! |---|---|---|
//! | api key | | 2 |
//! | api version | | 2 |
//! | correlation id | | 4 |
//! | client id | | 2 and as many (never compact; -1: null) |
//! | tagged fields | version 2 | |
//!
//! | response header | from | bytes |
//! |---|---|---|
//! | correlation id | | 4 |
//! | tagged fields | version 1 | |

use std::sync::Arc;

use bytes::Bytes;

use crate::api_key::{ApiKey, api_name};
use crate::error::{Fault, WireError};
use crate::reader::Reader;
use crate::writer::Writer;

const REQUEST: &str = "RequestHeader";
const RESPONSE: &str = "ResponseHeader";
/// Most characters of a client id in a line of the log.
const LONGEST_CLIENT_ID: usize = 100;

/// What is in front of every request.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RequestHeader {
    /// The API's code, known or not.
    pub api_key: i16,
    /// The version, supported or not.
    pub api_version: i16,
    /// The client's number of the request, which the response repeats.
    pub correlation_id: i32,
    /// client.id. Bytes that are not UTF-8 have become U+FFFD.
    pub client_id: Option<Arc<str>>,
}

/// What is in front of every response.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ResponseHeader {
    /// That of the request.
    pub correlation_id: i32,
}

/// 2 in flexible versions of an API, otherwise 1; also beyond the versions that are known, and for unknown APIs.
/// (Only ControlledShutdown had version 0; Kafka 4 does not have it.)
pub fn request_header_version(api_key: i16, api_version: i16) -> i16 {
    1 + i16::from(is_flexible(api_key, api_version))
}

/// 1 in flexible versions of an API, otherwise 0. Always 0 for ApiVersions: a client must understand the response before it knows the
/// broker's versions.
pub fn response_header_version(api_key: i16, api_version: i16) -> i16 {
    i16::from(api_key != ApiKey::ApiVersions.code() && is_flexible(api_key, api_version))
}

fn is_flexible(api_key: i16, version: i16) -> bool {
    ApiKey::from_code(api_key).is_some_and(|api| version >= api.first_flexible_version())
}

/// Describes a request that cannot be decoded, as far as its header can be read: API, version, client id. For a line of the log.
pub fn outline(frame: Bytes) -> String {
    let mut r = Reader::new(frame);
    let Ok(code) = r.i16() else {
        return format!("its request of {} bytes", r.remaining());
    };
    let api = api_name(code).map_or_else(|| format!("API {code}"), str::to_owned);
    let Ok(version) = r.i16() else {
        return format!("its {api} request");
    };
    let client_id = r.i32().and_then(|_| r.string()).ok().flatten();
    let client_id: String = client_id
        .as_deref()
        .unwrap_or("")
        .chars()
        .take(LONGEST_CLIENT_ID)
        .collect();
    format!(
        "its {api} request, version {version}, client id `{}`",
        client_id.escape_debug()
    )
}

impl RequestHeader {
    /// Reads a header; its version follows from the API and the version that it names.
    pub fn decode(r: &mut Reader) -> Result<Self, WireError> {
        let read = |r: &mut Reader| {
            r.set_flexible(false);
            let header = Self {
                api_key: r.i16()?,
                api_version: r.i16()?,
                correlation_id: r.i32()?,
                client_id: r.string()?,
            };
            if request_header_version(header.api_key, header.api_version) >= 2 {
                r.tags::<Fault>(&mut |_, _| Ok(false))?;
            }
            Ok(header)
        };
        read(r).map_err(|fault| WireError::of(REQUEST, fault))
    }

    /// Writes a header in the version that belongs to its API and version.
    pub fn encode(&self, w: &mut Writer) -> Result<(), WireError> {
        w.set_flexible(false);
        w.put(&self.api_key.to_be_bytes());
        w.put(&self.api_version.to_be_bytes());
        w.put(&self.correlation_id.to_be_bytes());
        match &self.client_id {
            Some(client_id) => w.string(client_id).map_err(|fault| WireError::of(REQUEST, fault))?,
            None => w.null_string(),
        }
        if request_header_version(self.api_key, self.api_version) >= 2 {
            w.unsigned_varint(0);
        }
        Ok(())
    }
}

impl ResponseHeader {
    /// Reads a header of a version that [`response_header_version`] returned.
    pub fn decode(r: &mut Reader, header_version: i16) -> Result<Self, WireError> {
        let read = |r: &mut Reader| {
            let correlation_id = r.i32()?;
            if header_version >= 1 {
                r.tags::<Fault>(&mut |_, _| Ok(false))?;
            }
            Ok(Self { correlation_id })
        };
        read(r).map_err(|fault| WireError::of(RESPONSE, fault))
    }

    /// Writes a header of a version that [`response_header_version`] returned.
    pub fn encode(&self, w: &mut Writer, header_version: i16) {
        w.put(&self.correlation_id.to_be_bytes());
        if header_version >= 1 {
            w.unsigned_varint(0);
        }
    }
}
