//! Kafka's wire messages: bytes to values and back.
//!
//! One table per message (`messages/*.rs`) gives the struct, its decoder, its encoder and the printed schema; `values/*.rs` are the tables
//! of what messages and coordinators' records carry as bytes. No I/O. Of fletchlog's crates
//! it needs only `fletchlog-records`. Kafka: `common/message/*.json` and what its generator makes of them.
//!
//! ```
//! use bytes::Bytes;
//! use fletchlog_protocol::header::{RequestHeader, ResponseHeader, response_header_version};
//! use fletchlog_protocol::messages::{HeartbeatRequest, HeartbeatResponse};
//! use fletchlog_protocol::{Message, Reader, frame};
//! use fletchlog_records::ErrorCode;
//!
//! fn answer(request: Bytes) -> Result<Vec<Bytes>, fletchlog_protocol::WireError> {
//!     let mut reader = Reader::new(request);
//!     let header = RequestHeader::decode(&mut reader)?;
//!     let _heartbeat = HeartbeatRequest::decode(&mut reader, header.api_version)?;
//!     let mut writer = frame::begin();
//!     let version = response_header_version(header.api_key, header.api_version);
//!     ResponseHeader { correlation_id: header.correlation_id }.encode(&mut writer, version);
//!     HeartbeatResponse { error_code: ErrorCode::UNKNOWN_MEMBER_ID, ..Default::default() }.encode(&mut writer, header.api_version)?;
//!     frame::finish(writer)
//! }
//! let request = Bytes::from_static(b"\0\x0c\0\0\0\0\0\x07\xff\xff\0\x01g\0\0\0\x01\0\x01m");
//! assert_eq!(answer(request).unwrap().concat(), b"\0\0\0\x06\0\0\0\x07\0\x19");
//! ```

#[macro_use]
mod table;

pub mod api_key;
pub mod by_topic;
pub mod error;
pub mod frame;
pub mod header;
mod json;
mod kinds;
pub mod local;
pub mod messages;
mod offset_and_metadata;
pub mod reader;
pub mod request;
pub mod schema;
pub mod topic_ids;
pub mod tree;
mod types;
pub mod values;
pub mod writer;

pub use api_key::{ApiKey, api_name};
pub use error::{Fault, WireError};
pub use json::{schema_json, value_schema_json};
pub use kinds::{CoordinatorType, IsolationLevel};
pub use offset_and_metadata::OffsetAndMetadata;
pub use reader::Reader;
pub use request::{ApiRequest, Request, Response};
pub use schema::{FieldSpec, FieldType};
pub use table::{Message, Value};
pub use writer::Writer;
