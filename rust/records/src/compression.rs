//! The four codecs with Kafka's framings (spec 1.7).
//!
//! Every decoder takes a limit and never holds more than that: a compressed batch of 1 MiB can expand ten-thousandfold.

mod decode;
mod gzip;
mod lz4;
mod snappy;
mod zstd;

use self::decode::DecodeError;
use crate::RecordError;

/// Most bytes that one batch may expand to wherever a caller sets no limit of its own: on append, in scans and cleaning, and
/// the default of the consumer's `fletchlog.decompression.limit.bytes`. Kafka has no limit and decompresses record by
/// record; here a batch is inflated at once. 256 MiB is 256 times the default max.message.bytes: far above what producers
/// send (their batch.size and max.request.size limit uncompressed bytes), far below what a crafted megabyte of zstd
/// expands to (10 GiB).
pub const DECOMPRESSION_LIMIT: usize = 256 << 20;

/// Codec of a batch; the discriminant is the value in attribute bits 0-2.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Compression {
    /// No compression.
    None = 0,
    /// One gzip member.
    Gzip = 1,
    /// snappy-java's "xerial" block stream.
    Snappy = 2,
    /// LZ4 frame.
    Lz4 = 3,
    /// Zstandard frame.
    Zstd = 4,
}

impl Compression {
    /// Every codec, in the order of their ids.
    pub const ALL: [Self; 5] = [Self::None, Self::Gzip, Self::Snappy, Self::Lz4, Self::Zstd];

    /// The codec of attribute bits 0-2, `None` for 5-7.
    pub fn from_id(id: u8) -> Option<Self> {
        Self::ALL.get(usize::from(id)).copied()
    }
    /// Kafka's config name: none, gzip, snappy, lz4, zstd.
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Gzip => "gzip",
            Self::Snappy => "snappy",
            Self::Lz4 => "lz4",
            Self::Zstd => "zstd",
        }
    }
    /// The codec of a config name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|codec| codec.name() == name)
    }
    /// Compresses one payload, appending to `out`; `level` only where the codec has levels (else Kafka's default).
    /// The lz4 encoder has one level and ignores it.
    pub fn compress(self, input: &[u8], level: Option<i32>, out: &mut Vec<u8>) {
        match self {
            Self::None => out.extend_from_slice(input),
            Self::Gzip => gzip::compress(input, level, out),
            Self::Snappy => snappy::compress(input, out),
            Self::Lz4 => lz4::compress(input, out),
            Self::Zstd => zstd::compress(input, level, out),
        }
    }
    /// Decompresses one payload. `magic` matters for lz4 (v0's historical header checksum). Never returns more than
    /// `limit` bytes (`DecompressionLimit` instead); `base_offset` is only for the error.
    pub fn decompress(self, input: &[u8], magic: i8, limit: usize, base_offset: i64) -> Result<Vec<u8>, RecordError> {
        let decoded = match self {
            Self::None if input.len() > limit => Err(DecodeError::Limit),
            Self::None => Ok(input.to_vec()),
            Self::Gzip => gzip::decompress(input, limit),
            Self::Snappy => snappy::decompress(input, limit),
            Self::Lz4 => lz4::decompress(input, magic, limit),
            Self::Zstd => zstd::decompress(input, limit),
        };
        decoded.map_err(|error| match error {
            DecodeError::Limit => RecordError::DecompressionLimit { base_offset, limit },
            DecodeError::Malformed(reason) => RecordError::Decompression {
                codec: self.name().to_owned(),
                base_offset,
                reason,
            },
        })
    }
}

#[cfg(test)]
mod tests;
