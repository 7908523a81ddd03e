//! Reliability C4-C7: a slice of `make bit-flips`.

use fletchlog_sim::bit_flips::Partition;

#[test]
fn a_flipped_bit_is_reported_or_makes_no_difference() {
    let partition = Partition::new(1, 8 * 1024).unwrap();
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
        let flip = |bit| partition.flip(path, bit).unwrap_or_else(|what| panic!("{what}"));
        let reported = (0..bytes * 8).step_by(step).filter(|bit| flip(*bit)).count();
        assert!(reported > 0 || *bytes == 0, "no flip in {} is reported", path.display());
    }
}
