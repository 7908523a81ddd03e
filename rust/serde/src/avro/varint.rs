//! Avro's numbers of variable length, written.

/// Appends an int or long.
pub fn put(out: &mut Vec<u8>, value: i64) {
    let mut bits = ((value << 1) ^ (value >> 63)).cast_unsigned();
    while bits >= 0x80 {
        out.push((bits & 0x7F) as u8 | 0x80);
        bits >>= 7;
    }
    out.push((bits & 0x7F) as u8);
}

/// Appends a count, or the number of a branch.
pub fn put_size(out: &mut Vec<u8>, size: usize) {
    put(out, i64::try_from(size).unwrap_or(i64::MAX));
}

/// Appends bytes after their length.
pub fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_size(out, bytes.len());
    out.extend_from_slice(bytes);
}
