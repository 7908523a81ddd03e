//! Numbers of variable length, as Avro and Protobuf write them: seven bits a byte, the lowest first; the highest bit says that more follow.

/// The bits of seven in each byte.
const SEVENS: u64 = 0x7f7f_7f7f_7f7f_7f7f;
const MORE: u64 = 0x8080_8080_8080_8080;

/// A number of at most eight bytes at the front of `bytes`, and how many it has; `None` if it has more, or if fewer than eight bytes are there.
#[inline]
pub(crate) fn of_eight(bytes: &[u8]) -> Option<(u64, usize)> {
    let word = u64::from_le_bytes(*bytes.first_chunk()?);
    let ends = !word & MORE;
    if ends == 0 {
        return None;
    }
    // all bytes up to the first without the bit, without the other bits
    let sevens = word & (ends ^ (ends - 1)) & SEVENS;
    let pairs = (sevens & 0x007f_007f_007f_007f) | ((sevens & 0x7f00_7f00_7f00_7f00) >> 1);
    let fours = (pairs & 0x0000_3fff_0000_3fff) | ((pairs & 0x3fff_0000_3fff_0000) >> 2);
    let number = (fours & 0x0fff_ffff) | ((fours >> 32) << 28);
    Some((number, ends.trailing_zeros() as usize / 8 + 1))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::of_eight;
    use crate::protobuf::put_varint;

    proptest! {
        #[test]
        fn a_number_is_read_as_it_was_written(number in any::<u64>(), bits in 0_u32..64, behind in any::<[u8; 8]>()) {
            let number = number >> bits;
            let mut bytes = Vec::new();
            put_varint(number, &mut bytes);
            let length = bytes.len();
            bytes.extend(behind);
            prop_assert_eq!(of_eight(&bytes), (length <= 8).then_some((number, length)));
            bytes.truncate(7);
            prop_assert_eq!(of_eight(&bytes), None);
        }
    }
}
