//! Waits that double with every failure. Kafka: `ExponentialBackoff`, with the multiplier and the jitter that its clients use.

const MULTIPLIER: f64 = 2.0;
const JITTER: f64 = 0.2;

/// Computes the wait between attempts: it grows from an initial to a maximum value (ms).
#[derive(Debug, Clone, Copy)]
pub struct ExponentialBackoff {
    initial_ms: i64,
    max_ms: i64,
}

impl ExponentialBackoff {
    /// If `max_ms` is not above `initial_ms`, the wait is constant, without jitter.
    pub(crate) fn new(initial_ms: i64, max_ms: i64) -> Self {
        Self { initial_ms, max_ms }
    }

    /// The wait after this number of earlier failures. `random` returns a number from 0 to 1; it is not called if the
    /// wait is constant.
    #[allow(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        reason = "bounded by the maximum"
    )]
    pub(crate) fn wait_ms(self, failures: i32, random: impl FnOnce() -> f64) -> i64 {
        if self.max_ms <= self.initial_ms {
            return self.initial_ms;
        }
        let (initial, max) = (self.initial_ms as f64, self.max_ms as f64);
        let most = (max / initial.max(1.0)).log2() / MULTIPLIER.log2();
        let wait = initial * MULTIPLIER.powf(f64::from(failures).min(most));
        let jitter = 1.0 - JITTER + 2.0 * JITTER * random();
        ((jitter * wait) as i64).min(self.max_ms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_doubles_up_to_the_maximum_with_a_fifth_of_jitter() {
        let backoff = ExponentialBackoff::new(50, 1000);
        let middle: Vec<i64> = (0..7).map(|failures| backoff.wait_ms(failures, || 0.5)).collect();
        assert_eq!(middle, [50, 100, 200, 400, 800, 1000, 1000]);
        assert_eq!((backoff.wait_ms(1, || 0.0), backoff.wait_ms(1, || 1.0)), (80, 120));
        // The jitter is of what is capped already.
        assert_eq!((backoff.wait_ms(9, || 0.0), backoff.wait_ms(9, || 1.0)), (800, 1000));
    }

    #[test]
    fn without_a_greater_maximum_it_is_constant() {
        for max_ms in [50, 0] {
            let never = || unreachable!("nothing is random");
            assert_eq!(ExponentialBackoff::new(50, max_ms).wait_ms(5, never), 50);
        }
        assert_eq!(ExponentialBackoff::new(0, 1000).wait_ms(5, || 0.5), 0);
    }
}
