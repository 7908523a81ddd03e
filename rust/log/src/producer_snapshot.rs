//! `.snapshot`: the state of all producers below an offset (spec 1.8). Kafka: `ProducerStateManager#writeSnapshot`.
//!
//! | off | size | field |
//! |---|---|---|
//! | 0 | i16 | version, 1 |
//! | 2 | u32 | CRC-32C of everything from byte 6 on |
//! | 6 | i32 | number of entries |
//! | 10 | 46 each | producer id i64, epoch i16, last sequence i32, last offset i64, offset delta i32, timestamp i64, coordinator epoch i32, first offset of the open transaction i64 (-1 none) |
//!
//! The file is named after the offset: it covers everything strictly below. Only the newest batch of a producer survives.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use fletchlog_records::crc::crc32c;

use crate::LogError;
use crate::file_name::{SNAPSHOT, offset_of, segment_file, with_suffix};
use crate::fs::{DirEntry, Fs};

const VERSION: i16 = 1;
const CRC_POSITION: usize = 2;
const COUNT_POSITION: usize = 6;
const HEADER_SIZE: usize = 10;
const ENTRY_SIZE: usize = 46;

/// One producer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SnapshotEntry {
    /// Producer id.
    pub producer_id: i64,
    /// Producer epoch.
    pub epoch: i16,
    /// Last sequence of its newest batch, -1 none.
    pub last_sequence: i32,
    /// Last offset of its newest batch, -1 none.
    pub last_offset: i64,
    /// Last minus first offset of its newest batch.
    pub offset_delta: i32,
    /// Time of its newest batch or marker.
    pub timestamp: i64,
    /// Epoch of the coordinator of its newest marker, -1 none.
    pub coordinator_epoch: i32,
    /// First offset of its open transaction, -1 none.
    pub current_txn_first_offset: i64,
}

pub(crate) fn encode(entries: &[SnapshotEntry]) -> Vec<u8> {
    let mut out = Vec::with_capacity(HEADER_SIZE + entries.len() * ENTRY_SIZE);
    out.extend_from_slice(&VERSION.to_be_bytes());
    out.extend_from_slice(&[0; 4]);
    out.extend_from_slice(&u32::try_from(entries.len()).unwrap_or(u32::MAX).to_be_bytes());
    for entry in entries {
        out.extend_from_slice(&entry.producer_id.to_be_bytes());
        out.extend_from_slice(&entry.epoch.to_be_bytes());
        out.extend_from_slice(&entry.last_sequence.to_be_bytes());
        out.extend_from_slice(&entry.last_offset.to_be_bytes());
        out.extend_from_slice(&entry.offset_delta.to_be_bytes());
        out.extend_from_slice(&entry.timestamp.to_be_bytes());
        out.extend_from_slice(&entry.coordinator_epoch.to_be_bytes());
        out.extend_from_slice(&entry.current_txn_first_offset.to_be_bytes());
    }
    let crc = crc32c(&out[COUNT_POSITION..]);
    out[CRC_POSITION..COUNT_POSITION].copy_from_slice(&crc.to_be_bytes());
    out
}

fn field<const N: usize>(bytes: &mut &[u8]) -> Option<[u8; N]> {
    let (head, rest) = bytes.split_first_chunk::<N>()?;
    *bytes = rest;
    Some(*head)
}

/// `Err`: why the file cannot be used.
pub(crate) fn decode(bytes: &[u8]) -> Result<Vec<SnapshotEntry>, String> {
    let mut rest = bytes;
    let short = || format!("{} bytes are too few", bytes.len());
    let version = i16::from_be_bytes(field(&mut rest).ok_or_else(short)?);
    if version != VERSION {
        return Err(format!("version {version}, expected {VERSION}"));
    }
    let crc = u32::from_be_bytes(field(&mut rest).ok_or_else(short)?);
    let computed = crc32c(rest);
    if crc != computed {
        return Err(format!("stored CRC {crc:#010x}, the bytes give {computed:#010x}"));
    }
    let count = u32::from_be_bytes(field(&mut rest).ok_or_else(short)?);
    if rest.len() as u64 != u64::from(count) * ENTRY_SIZE as u64 {
        return Err(format!("{count} entries announced in {} bytes", rest.len()));
    }
    let mut entries = Vec::with_capacity(rest.len() / ENTRY_SIZE);
    while !rest.is_empty() {
        let entry = (|| {
            Some(SnapshotEntry {
                producer_id: i64::from_be_bytes(field(&mut rest)?),
                epoch: i16::from_be_bytes(field(&mut rest)?),
                last_sequence: i32::from_be_bytes(field(&mut rest)?),
                last_offset: i64::from_be_bytes(field(&mut rest)?),
                offset_delta: i32::from_be_bytes(field(&mut rest)?),
                timestamp: i64::from_be_bytes(field(&mut rest)?),
                coordinator_epoch: i32::from_be_bytes(field(&mut rest)?),
                current_txn_first_offset: i64::from_be_bytes(field(&mut rest)?),
            })
        })();
        entries.push(entry.ok_or_else(short)?);
    }
    Ok(entries)
}

/// The snapshots in a listing: offset to path.
pub(crate) fn list(dir: &Path, entries: &[DirEntry]) -> BTreeMap<i64, PathBuf> {
    let files = entries.iter().filter(|entry| !entry.is_dir);
    files
        .filter_map(|entry| Some((offset_of(&entry.name, SNAPSHOT)?, dir.join(&entry.name))))
        .collect()
}

/// Writes the snapshot of an offset under a temporary name first, so that a crash leaves no half file; the CRC guards
/// against what a power loss may leave.
pub(crate) fn write(fs: &dyn Fs, dir: &Path, offset: i64, entries: &[SnapshotEntry]) -> Result<(), LogError> {
    let path = segment_file(dir, offset, SNAPSHOT);
    let temporary = with_suffix(&path, ".tmp");
    let bytes = encode(entries);
    let written = (|| -> io::Result<()> {
        let file = fs.open(&temporary, true, true)?;
        file.set_len(0)?;
        file.write_at(0, &bytes)?;
        fs.rename(&temporary, &path)
    })();
    written.map_err(|e| LogError::io("write", &path, e))
}

/// Reads a snapshot; `Err` says why it cannot be used.
pub(crate) fn read(fs: &dyn Fs, path: &Path) -> Result<Vec<SnapshotEntry>, String> {
    decode(&fs.read(path).map_err(|e| e.to_string())?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn golden() -> (SnapshotEntry, Vec<u8>) {
        let entry = SnapshotEntry {
            producer_id: 7,
            epoch: 1,
            last_sequence: 4,
            last_offset: 6,
            offset_delta: 1,
            timestamp: 1005,
            coordinator_epoch: -1,
            current_txn_first_offset: 5,
        };
        let hex = "0001363e8bc600000001000000000000000700010000000400000000000000060000000100000000000003edffffffff0000000000000005";
        let bytes = (0..hex.len())
            .step_by(2)
            .map(|i| u8::from_str_radix(&hex[i..i + 2], 16).unwrap())
            .collect();
        (entry, bytes)
    }

    #[test]
    fn a_snapshot_has_kafkas_bytes() {
        let (entry, bytes) = golden();
        assert_eq!(encode(&[entry]), bytes);
        assert_eq!(decode(&bytes), Ok(vec![entry]));
        assert_eq!(decode(&encode(&[])), Ok(vec![]));
        assert_eq!(encode(&[]).len(), 10);
    }

    #[test]
    fn a_damaged_snapshot_is_refused() {
        let (_, bytes) = golden();
        for cut in 0..bytes.len() {
            assert!(decode(&bytes[..cut]).is_err(), "{cut}");
        }
        for position in 0..bytes.len() {
            let mut flipped = bytes.clone();
            flipped[position] ^= 1;
            assert!(decode(&flipped).is_err(), "{position}");
        }
    }
}
