//! Pseudo-random numbers of low quality, the same for the same seed (xorshift64*).

use fletchlog_api::Clock;

#[derive(Debug)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }
    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }
    /// 0 .. bound.
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        usize::try_from((self.next() >> 33) % (bound.max(1) as u64)).unwrap_or(0)
    }
    /// 0.0 .. 1.0.
    pub(crate) fn fraction(&mut self) -> f64 {
        #[allow(clippy::cast_precision_loss, reason = "53 bits fit")]
        let value = (self.next() >> 11) as f64;
        value / (1u64 << 53) as f64
    }
}

/// A seed from the time: it differs between two clients, and is the same each time in a simulation.
pub(crate) fn seed_of(clock: &dyn Clock) -> u64 {
    clock.now_ms().cast_unsigned() ^ clock.monotonic_ms().cast_unsigned().rotate_left(32)
}
