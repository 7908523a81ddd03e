//! Numbers that look random and are not.

/// A number of which every bit depends on every bit of `value`, always the same for the same `value`: the finalizer of `SplitMix64`.
pub fn mix(value: u64) -> u64 {
    let mut z = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first numbers of SplitMix64 with seed 0: its state grows by the constant that `mix` adds.
    #[test]
    fn it_is_the_finalizer_of_splitmix64() {
        let step = 0x9e37_79b9_7f4a_7c15_u64;
        let first = [0, step, step.wrapping_mul(2)].map(mix);
        let expected = [0xe220_a839_7b1d_cdaf, 0x6e78_9e6a_a1b9_65f4, 0x06c4_5d18_8009_454f];
        assert_eq!(first, expected);
    }
}
