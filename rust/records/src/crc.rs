//! Checksums: CRC-32C for v2 batches and snapshots, IEEE CRC-32 for v0/v1 records.

/// CRC-32C (Castagnoli). `crc32c(b"123456789") == 0xE3069283`.
#[inline]
pub fn crc32c(data: &[u8]) -> u32 {
    crc_fast::crc32_iscsi(data)
}

/// IEEE CRC-32, used by message formats v0 and v1.
#[inline]
pub fn crc32(data: &[u8]) -> u32 {
    crc_fast::crc32_iso_hdlc(data)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn check_values_of_both_polynomials() {
        assert_eq!(crc32c(b"123456789"), 0xE306_9283);
        assert_eq!(crc32(b"123456789"), 0xCBF4_3926);
        assert_eq!((crc32c(b""), crc32(b"")), (0, 0));
    }
}
