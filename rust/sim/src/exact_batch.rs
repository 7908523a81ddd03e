//! Batches with a given number of records and a given size in bytes. Only these two decide the order of fetches, so a recorded log can be
//! rebuilt from them.

use bytes::Bytes;
use fletchlog_records::{BatchBuilder, BatchParams, Compression, record_size};

/// Time of every record: a batch whose records share one time has no timestamp deltas.
pub const TIMESTAMP_MS: i64 = 1_700_000_000_000;

/// Size of a v2 batch header.
const HEADER: usize = 61;

/// A batch of `count` records that is exactly `size` bytes long; `None` if none was found.
///
/// Keys are null, except for one that reaches a size that no value length gives. For a compressed batch, the search varies the number of
/// incompressible bytes.
pub fn exact_batch(count: usize, size: usize, params: &BatchParams) -> Option<Bytes> {
    let built = if params.compression == Compression::None {
        exact_plain(count, size, params)?
    } else {
        exact_compressed(count, size, params)?
    };
    (built.len() == size).then_some(built)
}

fn exact_plain(count: usize, size: usize, params: &BatchParams) -> Option<Bytes> {
    let room = size.checked_sub(HEADER)?;
    let equal = value_lengths(count, room)?;
    // One more byte of value makes the record one byte longer, or two or three if a length prefix grows. Then another record must be a byte
    // or two shorter.
    for shorter in 0..=equal[0].min(3) {
        let mut lengths = equal.clone();
        lengths[0] -= shorter;
        let mut missing = room - total(&lengths);
        for i in (0..count).rev().filter(|&i| i > 0 || shorter == 0) {
            while missing > 0 {
                let grown = record(i, lengths[i] + 1, None) - record(i, lengths[i], None);
                if grown > missing {
                    break;
                }
                lengths[i] += 1;
                missing -= grown;
            }
        }
        if missing == 0 {
            return Some(build_plain(&lengths, None, params));
        }
    }
    // The first record can have a key, which adds its length unless a length prefix grows.
    let missing = room - total(&equal);
    (record(0, equal[0], Some(missing)) == record(0, equal[0], None) + missing)
        .then(|| build_plain(&equal, Some(missing), params))
}

fn build_plain(lengths: &[usize], first_key: Option<usize>, params: &BatchParams) -> Bytes {
    let mut builder = BatchBuilder::with_capacity(total(lengths));
    for (i, &length) in lengths.iter().enumerate() {
        let key = first_key.filter(|_| i == 0).map(|length| vec![b'k'; length]);
        builder.append(TIMESTAMP_MS, key.as_deref(), Some(&vec![b'v'; length]), &[]);
    }
    builder.build(params)
}

/// The longest length that the values of all records can have, once for each record.
fn value_lengths(count: usize, room: usize) -> Option<Vec<usize>> {
    let fits = |length: usize| total(&vec![length; count]) <= room;
    if count == 0 || !fits(0) {
        return None;
    }
    let (mut low, mut high) = (0, room);
    while low < high {
        let middle = (low + high).div_ceil(2);
        if fits(middle) {
            low = middle;
        } else {
            high = middle - 1;
        }
    }
    Some(vec![low; count])
}

fn total(lengths: &[usize]) -> usize {
    lengths
        .iter()
        .enumerate()
        .map(|(i, &length)| record(i, length, None))
        .sum()
}

fn record(index: usize, value: usize, key: Option<usize>) -> usize {
    record_size(i32::try_from(index).unwrap_or(i32::MAX), 0, key, Some(value), &[])
}

fn exact_compressed(count: usize, size: usize, params: &BatchParams) -> Option<Bytes> {
    // More incompressible bytes make a longer batch, give or take a few bytes, so the right number is near the one found by bisection.
    // Another tail of zeros or another seed reaches the sizes that one series leaves out.
    for zeros in [0, 10, 3, 25, 60, 200] {
        for seed in 1..200u64 {
            let length = |noise: usize| compressed(count, noise, zeros, seed, params).len();
            if length(0) > size {
                break;
            }
            let (mut low, mut high) = (0, size);
            while low < high {
                let middle = (low + high).div_ceil(2);
                if length(middle) <= size {
                    low = middle;
                } else {
                    high = middle - 1;
                }
            }
            for noise in low.saturating_sub(3)..=low + 3 {
                let built = compressed(count, noise, zeros, seed, params);
                if built.len() == size {
                    return Some(built);
                }
            }
        }
    }
    None
}

/// A batch of `count` records: `noise` incompressible bytes are spread over the values, and `zeros` zero bytes follow in the first value.
fn compressed(count: usize, noise: usize, zeros: usize, seed: u64, params: &BatchParams) -> Bytes {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let mut builder = BatchBuilder::with_capacity(noise + 16 * count);
    for i in 0..count {
        let mine = noise / count + usize::from(i < noise % count);
        let mut value: Vec<u8> = (0..mine)
            .map(|_| {
                // xorshift64: any sequence without repetitions works.
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                state.to_le_bytes()[3]
            })
            .collect();
        if i == 0 {
            value.resize(mine + zeros, 0);
        }
        builder.append(TIMESTAMP_MS, None, Some(&value), &[]);
    }
    builder.build(params)
}

#[cfg(test)]
mod tests {
    use fletchlog_records::RecordBatch;

    use super::*;

    fn check(count: usize, size: usize, compression: Compression) {
        let params = BatchParams {
            compression,
            ..BatchParams::default()
        };
        let batch = exact_batch(count, size, &params)
            .unwrap_or_else(|| panic!("{count} records in {size} bytes, {compression:?}"));
        let parsed = RecordBatch::parse(&batch).unwrap().unwrap();
        parsed.ensure_valid().unwrap();
        assert_eq!(
            (parsed.bytes().len(), parsed.header().records_count),
            (size, i32::try_from(count).unwrap())
        );
    }

    #[test]
    fn plain_batches_have_any_size_from_the_smallest_on() {
        for size in 88..400 {
            check(3, size, Compression::None);
        }
        for size in (68..126).chain(127..192) {
            check(1, size, Compression::None);
        }
        // 61 + 65: a body of 64 bytes has a length prefix of two.
        assert!(exact_batch(1, 126, &BatchParams::default()).is_none());
        for size in 17_000..17_200 {
            check(1000, size, Compression::None);
        }
        check(910, 16_377, Compression::None);
        assert!(exact_batch(3, 70, &BatchParams::default()).is_none());
    }

    #[test]
    fn compressed_batches_of_recorded_sizes_are_found() {
        check(100, 834, Compression::Gzip);
        check(1, 90, Compression::Gzip);
        check(64, 953, Compression::Lz4);
        check(13, 199, Compression::Lz4);
        check(5, 263, Compression::Snappy);
        check(80, 1097, Compression::Snappy);
        check(5, 206, Compression::Zstd);
        check(64, 588, Compression::Zstd);
    }
}
