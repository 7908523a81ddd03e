//! Reliability C4-C7: a slice of `make bit-flips`.

use fletchlog_sim::bit_flips::Partition;

#[test]
fn a_flipped_bit_is_told_of_or_makes_no_difference() {
    let partition = Partition::new(1, 8 * 1024).unwrap();
    let (mut told, mut harmless) = (0, 0);
    // No checksum covers a base offset: each of its bits.
    for (path, position) in &partition.base_offsets {
        for bit in 0..64 {
            let bit = usize::try_from(*position).unwrap() * 8 + bit;
            assert!(partition.flip(path, bit).unwrap_or_else(|what| panic!("{what}")));
        }
    }
    for (path, bytes) in &partition.files {
        // Every bit of small files; of others enough to meet each byte of a batch header in some batch.
        let step = if *bytes < 1024 { 1 } else { 37 };
        for bit in (0..bytes * 8).step_by(step) {
            let found = partition.flip(path, bit).unwrap_or_else(|what| panic!("{what}"));
            told += usize::from(found);
            harmless += usize::from(!found);
        }
    }
    assert!(told > 2_000, "{told} told, {harmless} harmless");
}
