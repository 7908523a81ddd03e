//! The bytes of a session, version 1. Fixed integers are big-endian, as Kafka's are.
//!
//! ```text
//! file      header | block ..
//! header    magic `fltrace\n` 8 | version u16 | flags u16 (bit 0: records are kept) | started i64, us since the epoch
//!           | writer text16 | cluster id text16 (empty: not known) | crc u32: CRC-32C of all before it
//! block     length u32 of the zstd frame | raw length u32 | crc u32: CRC-32C of the two lengths and the frame | zstd frame
//! raw       base i64, us since the epoch | event ..
//! event     type u8 | length uvarint of what follows | fields. A reader skips types that it does not know, and what follows known fields
//! ```
//!
//! | type | event | fields |
//! |---|---|---|
//! | 1 | connection opened | time, connection, node zigzag, peer text, listener text |
//! | 2 | principal known | time, connection, principal text |
//! | 3 | connection closed | time, connection, reason text (empty: the client closed it) |
//! | 4 | request | time, connection, number, size, state u8, frame |
//! | 5 | response | time, number, size + 1 (0: there is none), state u8, outcome text, fault text (empty: no rule), frame |
//! | 6 | dropped | time, requests that were not recorded since the last such event, bodies that were left out for lack of room |
//! | 7 | end | time: the recording was closed |
//!
//! Integers without a type are uvarints: seven bits a byte, the lowest first, as in Kafka's records. `time` is a zigzag uvarint: us since the
//! event before it in the block, or since its base. `text` is a uvarint and as many bytes of UTF-8, `text16` the same with a u16. `frame` is
//! the rest of the event: header and body of Kafka's frame without its size. `size` is that of the frame as it was sent.
//!
//! | state | frame |
//! |---|---|
//! | 0 | as it was sent |
//! | 1 | Kafka's bytes without secrets; of each batch of records the header alone (format v2: 61 bytes, v1: 26, v0: 18), whose length field has the true length |
//! | 2 | the header of the request alone: the API is not known, its body cannot be read, or there was no room |
//! | 3 | nothing |

use std::path::PathBuf;

use fletchlog_records::crc::crc32c;

/// The first bytes of every session.
pub const MAGIC: &[u8; 8] = b"fltrace\n";
/// The version of the format that is written.
pub const VERSION: u16 = 1;
/// Flag: records are kept.
pub(crate) const KEEPS_RECORDS: u16 = 1;
/// Bytes in front of a block's zstd frame.
pub(crate) const BLOCK_HEAD: usize = 12;
/// Most raw bytes of a block. A larger event is recorded without its frame.
pub(crate) const LARGEST_BLOCK: usize = 64 * 1024 * 1024;
/// Longest text in a header.
const LONGEST_TEXT: usize = 1024;

/// Why a session cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum SessionError {
    /// The file cannot be opened or read.
    #[error("cannot read the session {}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// It does not begin as a session does.
    #[error(
        "{} is no session: it does not begin with `fltrace`; sessions are written by `fletchlog serve --record FILE`, `fletchlog proxy --record FILE` and `Broker.listen(record=FILE)`", .0.display()
    )]
    NotASession(PathBuf),
    /// A later release wrote it.
    #[error("the session {} has version {version}, and this release reads version {VERSION}; read it with the release that wrote it ({writer})", path.display())]
    Version {
        /// The file.
        path: PathBuf,
        /// The version.
        version: u16,
        /// Who wrote it.
        writer: String,
    },
    /// Bytes are damaged.
    #[error("the session {} is damaged at byte {at}: {what}; what is before can be read from a copy that is cut there", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// Where.
        at: u64,
        /// What is wrong.
        what: String,
    },
}

/// The head of a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Head {
    /// The version of its format.
    pub version: u16,
    /// Records are kept.
    pub keeps_records: bool,
    /// When it began, us since the epoch.
    pub started_us: i64,
    /// The program that wrote it, and its version.
    pub writer: String,
    /// The id of the cluster; empty: not known at the start.
    pub cluster_id: String,
}

impl Head {
    /// Its bytes.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        bytes.extend(self.version.to_be_bytes());
        bytes.extend(if self.keeps_records { KEEPS_RECORDS } else { 0 }.to_be_bytes());
        bytes.extend(self.started_us.to_be_bytes());
        for text in [&self.writer, &self.cluster_id] {
            let most = text.len().min(LONGEST_TEXT);
            let end = (0..=most).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
            bytes.extend(u16::try_from(end).unwrap_or(0).to_be_bytes());
            bytes.extend(&text.as_bytes()[..end]);
        }
        bytes.extend(crc32c(&bytes).to_be_bytes());
        bytes
    }

    /// Reads it from the first bytes of a file; returns it with its length. `None`: it is cut, or damaged.
    pub(crate) fn decode(bytes: &[u8]) -> Option<(Self, usize)> {
        let mut fields = Fields(bytes.strip_prefix(MAGIC)?);
        let version = u16::from_be_bytes(fields.array()?);
        let flags = u16::from_be_bytes(fields.array()?);
        let started_us = i64::from_be_bytes(fields.array()?);
        let mut text = || {
            let length = u16::from_be_bytes(fields.array()?);
            String::from_utf8(fields.take(length.into())?.to_vec()).ok()
        };
        let (writer, cluster_id) = (text()?, text()?);
        let length = bytes.len() - fields.0.len();
        if crc32c(&bytes[..length]) != u32::from_be_bytes(fields.array()?) {
            return None;
        }
        let head = Self {
            version,
            keeps_records: flags & KEEPS_RECORDS != 0,
            started_us,
            writer,
            cluster_id,
        };
        Some((head, length + 4))
    }
}

/// A whole session with one block of these raw bytes, for tests of readers.
///
/// # Errors
/// They cannot be packed.
pub fn file_of(raw: &[u8]) -> std::io::Result<Vec<u8>> {
    let head = Head {
        version: VERSION,
        keeps_records: false,
        started_us: 0,
        writer: "a test".to_owned(),
        cluster_id: String::new(),
    };
    Ok([head.encode(), block(raw, 1)?].concat())
}

/// The bytes of a block; raw bytes are `base | events`.
pub(crate) fn block(raw: &[u8], level: i32) -> std::io::Result<Vec<u8>> {
    let frame = zstd::bulk::compress(raw, level)?;
    let size = |length: usize| u32::try_from(length).unwrap_or(u32::MAX).to_be_bytes();
    let mut bytes = Vec::with_capacity(BLOCK_HEAD + frame.len());
    bytes.extend(size(frame.len()));
    bytes.extend(size(raw.len()));
    bytes.extend([0; 4]);
    bytes.extend(frame);
    let crc = block_crc(&bytes[..8], &bytes[BLOCK_HEAD..]);
    bytes[8..BLOCK_HEAD].copy_from_slice(&crc.to_be_bytes());
    Ok(bytes)
}

fn block_crc(lengths: &[u8], frame: &[u8]) -> u32 {
    crc32c(&[lengths, &crc32c(frame).to_be_bytes()].concat())
}

/// What the twelve bytes in front of a block say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BlockHead {
    pub(crate) length: usize,
    pub(crate) raw: usize,
    crc: u32,
}

impl BlockHead {
    pub(crate) fn decode(bytes: &[u8; BLOCK_HEAD]) -> Self {
        let int = |at: usize| u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        let size = |at: usize| usize::try_from(int(at)).unwrap_or(usize::MAX);
        Self {
            length: size(0),
            raw: size(4),
            crc: int(8),
        }
    }

    /// The raw bytes of the block.
    ///
    /// # Errors
    /// What is wrong with them.
    pub(crate) fn raw(&self, lengths: &[u8], frame: &[u8]) -> Result<Vec<u8>, String> {
        if block_crc(&lengths[..8], frame) != self.crc {
            return Err("the checksum of a block is wrong".to_owned());
        }
        let raw =
            zstd::bulk::decompress(frame, self.raw).map_err(|error| format!("a block cannot be unpacked: {error}"))?;
        match raw.len() == self.raw {
            true => Ok(raw),
            false => Err(format!("a block has {} bytes in place of {}", raw.len(), self.raw)),
        }
    }

    /// Why no writer made such a block.
    pub(crate) fn fault(&self) -> Option<String> {
        let is_wrong =
            self.raw > LARGEST_BLOCK || self.raw < 8 || self.length > zstd::zstd_safe::compress_bound(LARGEST_BLOCK);
        is_wrong.then(|| format!("a block says that it has {} bytes, packed {}", self.raw, self.length))
    }
}

/// Reads fields from unchecked bytes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Fields<'a>(pub(crate) &'a [u8]);

impl<'a> Fields<'a> {
    pub(crate) fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    pub(crate) fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take(N)?.try_into().ok()
    }

    pub(crate) fn byte(&mut self) -> Option<u8> {
        self.take(1).map(|bytes| bytes[0])
    }

    pub(crate) fn uvarint(&mut self) -> Option<u64> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
        None
    }

    pub(crate) fn zigzag(&mut self) -> Option<i64> {
        self.uvarint()
            .map(|value| (value >> 1).cast_signed() ^ -((value & 1).cast_signed()))
    }

    pub(crate) fn text(&mut self) -> Option<&'a str> {
        let length = usize::try_from(self.uvarint()?).ok()?;
        str::from_utf8(self.take(length)?).ok()
    }
}

pub(crate) fn put_uvarint(bytes: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        bytes.push((value & 0x7f) as u8 | 0x80);
        value >>= 7;
    }
    bytes.push((value & 0x7f) as u8);
}

pub(crate) fn put_zigzag(bytes: &mut Vec<u8>, value: i64) {
    put_uvarint(bytes, ((value << 1) ^ (value >> 63)).cast_unsigned());
}

pub(crate) fn put_text(bytes: &mut Vec<u8>, text: &str) {
    put_uvarint(bytes, text.len() as u64);
    bytes.extend(text.as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_texts_come_back() {
        for value in [0, 1, 127, 128, 300, u64::from(u32::MAX), u64::MAX] {
            let mut bytes = Vec::new();
            put_uvarint(&mut bytes, value);
            assert_eq!(Fields(&bytes).uvarint(), Some(value));
        }
        for value in [0, -1, 1, 63, -64, 1_000_000, i64::MIN, i64::MAX] {
            let mut bytes = Vec::new();
            put_zigzag(&mut bytes, value);
            assert_eq!(Fields(&bytes).zigzag(), Some(value));
        }
        let mut bytes = Vec::new();
        put_text(&mut bytes, "größe");
        assert_eq!(Fields(&bytes).text(), Some("größe"));
        assert_eq!(Fields(&[0xff; 10]).uvarint(), None);
    }

    #[test]
    fn a_header_comes_back_and_every_changed_byte_is_found() {
        let head = Head {
            version: VERSION,
            keeps_records: true,
            started_us: 1_700_000_000_000_000,
            writer: "fletchlog 0.1.0".to_owned(),
            cluster_id: "an-id".to_owned(),
        };
        let bytes = head.encode();
        assert_eq!(Head::decode(&bytes), Some((head.clone(), bytes.len())));
        for at in 0..bytes.len() {
            let mut changed = bytes.clone();
            changed[at] ^= 1;
            assert_eq!(Head::decode(&changed), None, "byte {at}");
            assert_eq!(Head::decode(&bytes[..at]), None, "{at} bytes");
        }
    }

    #[test]
    fn a_block_comes_back_and_every_changed_byte_is_found() {
        let raw = b"12345678 and events, and events, and events".to_vec();
        let bytes = block(&raw, 3).unwrap();
        let read = |bytes: &[u8]| BlockHead::decode(bytes.first_chunk().unwrap()).raw(bytes, &bytes[BLOCK_HEAD..]);
        assert_eq!(read(&bytes), Ok(raw));
        for at in 0..bytes.len() {
            let mut changed = bytes.clone();
            changed[at] ^= 1;
            assert!(read(&changed).is_err(), "byte {at}");
        }
    }
}
