//! The decoders, compared with their encoders and with other readers of the same formats.

use std::io::Read;

use fletchlog_records::{Compression, RecordError};

use super::Input;

/// Largest output of one decoding.
const MOST: usize = 1 << 20;

/// `[choices u8] [payload]`: bits 0-1 are the magic, bits 2-6 the limit as a power of two.
fn codec(codec: Compression, data: &[u8], other: impl Fn(&[u8], usize) -> Option<Vec<u8>>) {
    let mut input = Input(data);
    let choices = input.byte();
    let magic = i8::try_from(choices & 3).unwrap().min(2);
    let limit = (1usize << (choices >> 2 & 31)).min(MOST);
    let payload = input.0;
    let decompress = |limit| codec.decompress(payload, magic, limit, 0);
    match decompress(limit) {
        Ok(out) => {
            assert!(out.len() <= limit);
            assert_eq!(decompress(out.len()).as_ref(), Ok(&out), "exactly enough is enough");
            if let Some(less) = out.len().checked_sub(1) {
                let refused = decompress(less);
                assert!(
                    matches!(refused, Err(RecordError::DecompressionLimit { .. })),
                    "{refused:?}"
                );
            }
            if let Some(theirs) = other(payload, limit) {
                assert!(theirs == out, "two readers of {codec:?} differ: {theirs:?}, {out:?}");
            }
            there_and_back(codec, &out);
        }
        Err(RecordError::DecompressionLimit { limit: named, .. }) => assert_eq!(named, limit),
        Err(error) => assert!(matches!(error, RecordError::Decompression { .. }), "{error:?}"),
    }
    there_and_back(codec, payload);
}

fn there_and_back(codec: Compression, bytes: &[u8]) {
    let mut compressed = Vec::new();
    codec.compress(bytes, None, &mut compressed);
    assert_eq!(codec.decompress(&compressed, 2, bytes.len(), 0).as_deref(), Ok(bytes));
}

/// All bytes of a reader; `None` if it fails or has more than `limit`.
fn read_all(reader: impl Read, limit: usize) -> Option<Vec<u8>> {
    let mut out = Vec::new();
    reader.take(u64::try_from(limit).ok()? + 1).read_to_end(&mut out).ok()?;
    (out.len() <= limit).then_some(out)
}

pub(super) fn gzip(data: &[u8]) {
    codec(Compression::Gzip, data, |payload, limit| {
        read_all(flate2::read::MultiGzDecoder::new(payload), limit)
    });
}

pub(super) fn snappy(data: &[u8]) {
    codec(Compression::Snappy, data, |payload, _| {
        let raw = !payload.starts_with(&[0x82, b'S', b'N', b'A', b'P', b'P', b'Y', 0]);
        raw.then(|| snap::raw::Decoder::new().decompress_vec(payload).ok())
            .flatten()
    });
}

pub(super) fn lz4(data: &[u8]) {
    codec(Compression::Lz4, data, |payload, limit| {
        // One frame, as this project's decoder reads it. This reader takes an empty block for the end; then bytes are left over, and
        // nothing is compared.
        let mut rest = payload;
        let out = read_all(lz4_flex::frame::FrameDecoder::new(&mut rest), limit)?;
        rest.is_empty().then_some(out)
    });
}

pub(super) fn zstd(data: &[u8]) {
    codec(Compression::Zstd, data, |payload, limit| {
        read_all(::zstd::stream::read::Decoder::new(payload).ok()?, limit)
    });
}
