//! Kafka's zig-zag varints (spec 1.3). Kafka: `ByteUtils#readVarint`, `#writeVarint`.
//!
//! A value is mapped to unsigned (0, -1, 1, -2, ... -> 0, 1, 2, 3, ...) and written in groups of seven bits, lowest
//! first, the high bit meaning "more". Longer encodings than needed are read, as Java reads them; bits beyond the
//! type's width in the last group are dropped, as Java drops them.

/// Most bytes a varint may take.
const MAX_VARINT: usize = 5;
/// Most bytes a varlong may take.
const MAX_VARLONG: usize = 10;

#[inline(always)]
#[allow(clippy::cast_possible_wrap)]
fn unzigzag32(raw: u32) -> i32 {
    ((raw >> 1) as i32) ^ -((raw & 1) as i32)
}

#[inline(always)]
#[allow(clippy::cast_possible_wrap)]
fn unzigzag64(raw: u64) -> i64 {
    ((raw >> 1) as i64) ^ -((raw & 1) as i64)
}

#[inline(always)]
#[allow(clippy::cast_sign_loss)]
fn zigzag32(value: i32) -> u32 {
    ((value << 1) ^ (value >> 31)) as u32
}

#[inline(always)]
#[allow(clippy::cast_sign_loss)]
fn zigzag64(value: i64) -> u64 {
    ((value << 1) ^ (value >> 63)) as u64
}

/// Reads a zig-zag varint of at most 5 bytes at `*pos`, advancing it. `None`: truncated or longer than 5 bytes.
#[inline(always)]
pub fn read_varint(buf: &[u8], pos: &mut usize) -> Option<i32> {
    let first = *buf.get(*pos)?;
    if first < 0x80 {
        *pos += 1;
        return Some(unzigzag32(u32::from(first)));
    }
    read_varint_slow(buf, pos)
}

#[inline(never)]
fn read_varint_slow(buf: &[u8], pos: &mut usize) -> Option<i32> {
    let mut raw = 0u32;
    for (i, &byte) in buf.get(*pos..)?.iter().take(MAX_VARINT).enumerate() {
        raw |= u32::from(byte & 0x7f) << (7 * i);
        if byte < 0x80 {
            *pos += i + 1;
            return Some(unzigzag32(raw));
        }
    }
    None
}

/// Reads a zig-zag varlong of at most 10 bytes at `*pos`, advancing it. `None`: truncated or longer than 10 bytes.
#[inline(always)]
pub fn read_varlong(buf: &[u8], pos: &mut usize) -> Option<i64> {
    let first = *buf.get(*pos)?;
    if first < 0x80 {
        *pos += 1;
        return Some(unzigzag64(u64::from(first)));
    }
    read_varlong_slow(buf, pos)
}

#[inline(never)]
fn read_varlong_slow(buf: &[u8], pos: &mut usize) -> Option<i64> {
    let mut raw = 0u64;
    for (i, &byte) in buf.get(*pos..)?.iter().take(MAX_VARLONG).enumerate() {
        raw |= u64::from(byte & 0x7f) << (7 * i);
        if byte < 0x80 {
            *pos += i + 1;
            return Some(unzigzag64(raw));
        }
    }
    None
}

/// Encodes into `out` from its start, returning the bytes used.
#[inline(always)]
#[allow(clippy::cast_possible_truncation, reason = "the low seven bits are wanted")]
fn encode(mut raw: u64, out: &mut [u8; MAX_VARLONG]) -> usize {
    let mut len = 0;
    while raw >= 0x80 && len < MAX_VARLONG - 1 {
        out[len] = (raw as u8) | 0x80;
        raw >>= 7;
        len += 1;
    }
    out[len] = raw as u8;
    len + 1
}

/// Appends a zig-zag varint.
#[inline(always)]
#[allow(clippy::cast_possible_truncation, reason = "below 0x80")]
pub fn write_varint(out: &mut Vec<u8>, value: i32) {
    let raw = zigzag32(value);
    if raw < 0x80 {
        out.push(raw as u8);
    } else {
        let mut bytes = [0; MAX_VARLONG];
        let len = encode(u64::from(raw), &mut bytes);
        out.extend_from_slice(&bytes[..len]);
    }
}

/// Appends a zig-zag varlong.
#[inline(always)]
#[allow(clippy::cast_possible_truncation, reason = "below 0x80")]
pub fn write_varlong(out: &mut Vec<u8>, value: i64) {
    let raw = zigzag64(value);
    if raw < 0x80 {
        out.push(raw as u8);
    } else {
        let mut bytes = [0; MAX_VARLONG];
        let len = encode(raw, &mut bytes);
        out.extend_from_slice(&bytes[..len]);
    }
}

/// Bytes that `write_varint` writes for this value.
#[inline(always)]
pub fn size_of_varint(value: i32) -> usize {
    size_of_raw(u64::from(zigzag32(value)))
}

/// Bytes that `write_varlong` writes for this value.
#[inline(always)]
pub fn size_of_varlong(value: i64) -> usize {
    size_of_raw(zigzag64(value))
}

/// One byte per started group of seven significant bits.
#[inline(always)]
fn size_of_raw(raw: u64) -> usize {
    if raw < 0x80 {
        return 1;
    }
    let bits = (64 - (raw | 1).leading_zeros()) as usize;
    bits.div_ceil(7)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Spec 1.3.
    const VECTORS: [(i32, &[u8]); 11] = [
        (0, &[0x00]),
        (-1, &[0x01]),
        (1, &[0x02]),
        (63, &[0x7e]),
        (-64, &[0x7f]),
        (64, &[0x80, 0x01]),
        (-65, &[0x81, 0x01]),
        (8191, &[0xfe, 0x7f]),
        (8192, &[0x80, 0x80, 0x01]),
        (i32::MAX, &[0xfe, 0xff, 0xff, 0xff, 0x0f]),
        (i32::MIN, &[0xff, 0xff, 0xff, 0xff, 0x0f]),
    ];

    #[test]
    fn kafka_vectors_encode_and_decode_alike_as_varint_and_varlong() {
        for (value, bytes) in VECTORS {
            let (mut int, mut long) = (Vec::new(), Vec::new());
            write_varint(&mut int, value);
            write_varlong(&mut long, i64::from(value));
            assert_eq!(int, bytes, "{value}");
            assert_eq!(long, bytes, "{value}");
            assert_eq!(size_of_varint(value), bytes.len());
            let mut pos = 0;
            assert_eq!(read_varint(bytes, &mut pos), Some(value));
            assert_eq!(pos, bytes.len());
        }
    }

    #[test]
    fn truncated_and_overlong_encodings_are_refused_without_moving() {
        for len in 0..MAX_VARINT {
            let mut pos = 0;
            assert_eq!(read_varint(&vec![0x80; len], &mut pos), None);
            assert_eq!(pos, 0);
        }
        let mut pos = 0;
        assert_eq!(read_varint(&[0x80, 0x80, 0x80, 0x80, 0x80, 0x00], &mut pos), None);
        assert_eq!(read_varlong(&[0x80; 9], &mut pos), None);
        let mut overlong = [0x80; 11];
        overlong[10] = 0;
        assert_eq!(read_varlong(&overlong, &mut pos), None);
        assert_eq!(read_varint(&[0], &mut 7), None);
        assert_eq!(read_varlong(&[0x80], &mut 7), None);
        assert_eq!(pos, 0);
    }

    #[test]
    fn encodings_longer_than_needed_are_read_as_java_reads_them() {
        let mut pos = 0;
        assert_eq!(read_varint(&[0x82, 0x80, 0x80, 0x80, 0x00], &mut pos), Some(1));
        assert_eq!(pos, 5);
        pos = 0;
        assert_eq!(
            read_varlong(&[0x82, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x00], &mut pos),
            Some(1)
        );
        assert_eq!(pos, 10);
        // The high bits of the last group fall off.
        pos = 0;
        assert_eq!(read_varint(&[0xff, 0xff, 0xff, 0xff, 0x7f], &mut pos), Some(i32::MIN));
    }

    proptest! {
        #[test]
        fn every_value_survives(int in any::<i32>(), long in any::<i64>(), shift in 0u32..64) {
            let long = long >> shift;
            let mut bytes = Vec::new();
            write_varint(&mut bytes, int);
            prop_assert_eq!(bytes.len(), size_of_varint(int));
            write_varlong(&mut bytes, long);
            prop_assert_eq!(bytes.len(), size_of_varint(int) + size_of_varlong(long));
            let mut pos = 0;
            prop_assert_eq!(read_varint(&bytes, &mut pos), Some(int));
            prop_assert_eq!(read_varlong(&bytes, &mut pos), Some(long));
            prop_assert_eq!(pos, bytes.len());
        }
    }
}
