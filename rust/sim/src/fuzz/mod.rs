//! Fuzz targets: functions that take arbitrary bytes and panic when a promise is broken.
//!
//! `make fuzz` drives them with libFuzzer (crate `fuzz/`), `cargo test` replays `fuzz/corpus` through the same functions. Each checks the
//! promises of the code, not only that it does not crash: parsed values are the same after encoding, records that a log accepts can be
//! read, indexes never change a result, memory stays below the limit.
//!
//! Where a checksum guards the bytes, the target corrects it: a fuzzer does not find valid ones.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a target fails by panicking")]

mod arrow;
mod avro;
mod batches;
mod codecs;
mod connection;
mod coordinator_clients;
mod coordinators;
mod directory;
mod json;
mod log_files;
mod produce;
mod protobuf;
mod sasl;
mod scan;
mod session;
mod shares;
mod tls;
mod values;
mod wire;

use std::path::{Path, PathBuf};

use bytes::Bytes;
use fletchlog_log::fs::Fs;
use fletchlog_records::batch_header::{LOG_OVERHEAD, RECORD_BATCH_OVERHEAD};
use fletchlog_records::crc::{crc32, crc32c};
use fletchlog_records::{Header, Record, RecordCursor, RecordError, RecordsSlice, next_batch_size};

/// The time of every target's clock, in ms since the epoch.
const NOW_MS: i64 = 1_700_000_000_000;

/// One target.
#[derive(Debug)]
pub struct Target {
    /// Name of the target and of its corpus directory.
    pub name: &'static str,
    /// Runs one input. Panics if a promise is broken.
    pub run: fn(&[u8]),
    /// Longest input worth trying, in bytes.
    pub max_len: usize,
}

/// Every target.
pub const TARGETS: [Target; 25] = [
    target("batch", batches::batch, 4096),
    target("produce", produce::produce, 4096),
    target("gzip", codecs::gzip, 4096),
    target("snappy", codecs::snappy, 4096),
    target("lz4", codecs::lz4, 4096),
    target("zstd", codecs::zstd, 4096),
    target("index", log_files::index, 2048),
    target("snapshot", log_files::snapshot, 2048),
    target("checkpoint", log_files::checkpoint, 512),
    target("directory", directory::directory, 512),
    target("coordinators", coordinators::coordinators, 256),
    target("record_values", values::record_values, 512),
    target("arrow_export", arrow::export, 2048),
    target("arrow_import", arrow::import, 1024),
    target("avro", avro::avro, 256),
    target("confluent", avro::confluent, 256),
    target("json", json::json, 512),
    target("wire_request", wire::request, 1024),
    target("wire_response", wire::response, 1024),
    target("connection", connection::connection, 1024),
    target("protobuf", protobuf::protobuf, 1024),
    target("sasl", sasl::sasl, 512),
    target("session", session::session, 512),
    target("shares", shares::shares, 512),
    target("tls", tls::tls, 2048),
];

const fn target(name: &'static str, run: fn(&[u8]), max_len: usize) -> Target {
    Target { name, run, max_len }
}

/// The directory of a target's committed inputs.
pub fn corpus(target: &Target) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("../../fuzz/corpus")
        .join(target.name)
}

/// The bytes from which a target takes its choices, followed by endless zeros.
struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    fn byte(&mut self) -> u8 {
        let (first, rest) = self.0.split_first().unwrap_or((&0, &[]));
        self.0 = rest;
        *first
    }
    fn u16(&mut self) -> u16 {
        u16::from_be_bytes([self.byte(), self.byte()])
    }
    fn u32(&mut self) -> u32 {
        u32::from(self.u16()) << 16 | u32::from(self.u16())
    }
    fn i64(&mut self) -> i64 {
        let wide = u64::from(self.u32()) << 32 | u64::from(self.u32());
        wide.cast_signed()
    }
    /// The next `len` bytes, fewer at the end.
    fn take(&mut self, len: usize) -> &'a [u8] {
        let (head, rest) = self.0.split_at(len.min(self.0.len()));
        self.0 = rest;
        head
    }
    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Corrects the checksum of every complete batch.
fn mend_checksums(bytes: &mut [u8]) {
    let mut at = 0;
    while let Ok(Some(size)) = next_batch_size(&bytes[at..]) {
        let Some(batch) = bytes[at..].get_mut(..size) else {
            return;
        };
        if batch[16] < 2 {
            let crc = crc32(&batch[16..]);
            batch[12..16].copy_from_slice(&crc.to_be_bytes());
        } else if size >= RECORD_BATCH_OVERHEAD {
            let crc = crc32c(&batch[21..]);
            batch[17..21].copy_from_slice(&crc.to_be_bytes());
        }
        at += size.max(LOG_OVERHEAD);
    }
}

/// A record that owns its bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Owned {
    offset: i64,
    timestamp: i64,
    key: Option<Vec<u8>>,
    value: Option<Vec<u8>>,
    headers: Vec<(String, Option<Vec<u8>>)>,
}

impl From<Record<'_>> for Owned {
    fn from(record: Record<'_>) -> Self {
        let own = |header: Header<'_>| (header.key.to_owned(), header.value.map(<[u8]>::to_vec));
        let headers: Vec<_> = record.headers().map(own).collect();
        assert_eq!(headers.len(), usize::try_from(record.header_count).unwrap());
        Self {
            offset: record.offset,
            timestamp: record.timestamp,
            key: record.key.map(<[u8]>::to_vec),
            value: record.value.map(<[u8]>::to_vec),
            headers,
        }
    }
}

/// All records of a batch, read one by one, and the error that ended the reading.
fn records_of(slice: &RecordsSlice) -> (Vec<Owned>, Option<RecordError>) {
    let mut cursor = RecordCursor::new();
    let mut records = Vec::new();
    loop {
        match cursor.next(slice) {
            Ok(Some(record)) => records.push(record.into()),
            Ok(None) => return (records, None),
            Err(error) => {
                assert_eq!(cursor.next(slice).unwrap_err(), error, "an error repeats");
                return (records, Some(error));
            }
        }
    }
}

/// Panics at the first record that differs.
fn same(found: &[Owned], expected: &[Owned]) {
    for (found, expected) in found.iter().zip(expected) {
        assert_eq!(found, expected);
    }
    assert_eq!(found.len(), expected.len());
}

/// Files with their bytes.
type Files = Vec<(PathBuf, Vec<u8>)>;

/// Every file below a directory.
fn files(fs: &dyn Fs, dir: &Path) -> Files {
    let mut found = Vec::new();
    for entry in fs.read_dir(dir).unwrap() {
        let path = dir.join(&entry.name);
        if entry.is_dir {
            found.extend(files(fs, &path));
        } else {
            found.push((path.clone(), fs.read(&path).unwrap()));
        }
    }
    found
}

/// `bytes` with correct checksums.
fn mended(bytes: &[u8]) -> Bytes {
    let mut bytes = bytes.to_vec();
    mend_checksums(&mut bytes);
    Bytes::from(bytes)
}
