//! Where the chunks of a compressed segment are in its object. All of them but the last hold the same number of bytes of the
//! segment; their sizes in the object are listed. The plug-in: `VariableSizeChunkIndex`, `ChunkSizesBinaryCodec`.
//!
//! The list, in zstd, in base64; numbers are big-endian:
//!
//! | off | size | field |
//! |---|---|---|
//! | 0 | u32 | count of chunks; 0: nothing follows; 1: only the last one follows |
//! | 4 | u32 | base |
//! | 8 | u8 | width, 1 to 4 |
//! | 9 | (count - 1) * width | bytes of each chunk but the last, less the base |
//! | | u32 | bytes of the last chunk |

use std::ops::Range;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use fletchlog_records::Compression;

/// The plug-in neither writes nor reads longer lists.
const MAX_LIST: usize = 10 << 20;

/// The chunks of one segment.
#[derive(Debug)]
pub(super) struct ChunkIndex {
    /// Bytes of the segment in each chunk but the last.
    chunk: u64,
    /// Bytes of the segment.
    size: u64,
    /// Where each chunk ends in the object, which has less than 2^31 bytes in the plug-in.
    ends: Vec<u32>,
}

impl ChunkIndex {
    /// # Errors
    /// What is wrong with the list.
    pub fn new(chunk: u64, size: u64, list: &str) -> Result<Self, String> {
        let compressed = STANDARD.decode(list).map_err(|e| format!("it is no base64: {e}"))?;
        let list = Compression::Zstd.decompress(&compressed, 2, MAX_LIST, 0);
        let sizes = sizes_in(&list.map_err(|e| e.to_string())?)?;
        let ends = sizes.iter().scan(0u32, |end, &size| {
            let next = end.checked_add(size);
            *end = next.unwrap_or(*end);
            Some(next)
        });
        let ends: Vec<u32> = ends.collect::<Option<_>>().ok_or("the sizes are too large")?;
        if chunk == 0 || ends.len() as u64 != size.div_ceil(chunk) {
            let count = ends.len();
            return Err(format!("{count} chunks of {chunk} bytes are not {size} bytes"));
        }
        Ok(Self { chunk, size, ends })
    }

    /// Bytes of the object.
    pub fn object_len(&self) -> u64 {
        self.ends.last().copied().unwrap_or(0).into()
    }

    /// The chunks that have these bytes of the segment.
    pub fn chunks_of(&self, range: &Range<u64>) -> Range<u64> {
        range.start / self.chunk..range.end.div_ceil(self.chunk)
    }

    /// Which bytes of the segment a chunk has.
    pub fn in_segment(&self, chunk: u64) -> Range<u64> {
        chunk * self.chunk..((chunk + 1) * self.chunk).min(self.size)
    }

    /// Which bytes of the object a chunk is.
    pub fn in_object(&self, chunk: u64) -> Range<u64> {
        let end_of = |chunk: u64| Some(u64::from(*self.ends.get(usize::try_from(chunk).ok()?)?));
        let start = chunk.checked_sub(1).and_then(end_of).unwrap_or(0);
        start..end_of(chunk).unwrap_or(start)
    }
}

fn sizes_in(mut list: &[u8]) -> Result<Vec<u32>, String> {
    let list = &mut list;
    let count = u32::from_be_bytes(take(list)?);
    let mut sizes = Vec::new();
    if let Some(listed) = count.checked_sub(1).filter(|listed| *listed > 0) {
        let base = u32::from_be_bytes(take(list)?);
        let [width] = take(list)?;
        if !(1..=4).contains(&width) {
            return Err(format!("{width} bytes for a size; 1 to 4 are possible"));
        }
        let len = usize::try_from(u64::from(listed) * u64::from(width)).map_err(|e| e.to_string())?;
        let (values, rest) = list.split_at_checked(len).ok_or("it is cut off")?;
        *list = rest;
        for value in values.chunks_exact(width.into()) {
            let value = value.iter().fold(0, |value: u32, byte| value << 8 | u32::from(*byte));
            sizes.push(base.checked_add(value).ok_or("a size is too large")?);
        }
    }
    if count > 0 {
        sizes.push(u32::from_be_bytes(take(list)?));
    }
    if list.is_empty() {
        Ok(sizes)
    } else {
        Err(format!("{} bytes follow the last size", list.len()))
    }
}

fn take<const N: usize>(bytes: &mut &[u8]) -> Result<[u8; N], String> {
    let (head, rest) = bytes.split_first_chunk().ok_or("it is cut off")?;
    *bytes = rest;
    Ok(*head)
}
