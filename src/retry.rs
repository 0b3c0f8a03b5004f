//! When to try again: exponential back-off with jitter, and when to stop trying.

use crate::event::Millis;
use rand::RngExt as _;

/// How failures are spaced and when they end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    /// The wait after the first failure.
    pub first: Millis,
    /// No wait is longer.
    pub most: Millis,
    /// After this many attempts it is dead, and a person is told.
    pub attempts_max: u32,
}

/// Failed applies: mostly a bug in a rule or a lock of the app; ten attempts span about an hour.
pub const APPLY: Backoff = Backoff { first: 1_000, most: 30 * 60_000, attempts_max: 10 };

/// Messages out: an app that is down for a day must still get its receipts (about 2.5 days in all).
pub const DELIVER: Backoff = Backoff { first: 2_000, most: 6 * 3_600_000, attempts_max: 20 };

impl Backoff {
    /// The wait after the `attempts`th failed attempt: doubled each time, then anywhere between half and all of it.
    pub fn wait(&self, attempts: u32) -> Millis {
        let doubled = self.first.saturating_mul(1_i64 << attempts.saturating_sub(1).min(40)).min(self.most).max(1);
        rand::rng().random_range(doubled / 2..=doubled)
    }

    /// Has it been tried often enough?
    pub fn exhausted(&self, attempts: u32) -> bool {
        attempts >= self.attempts_max
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_a_bound_and_never_collapse() {
        let backoff = Backoff { first: 1_000, most: 60_000, attempts_max: 3 };
        for attempts in 1..80 {
            let full = (1_000_i64 << (attempts - 1).min(20)).min(60_000);
            let wait = backoff.wait(attempts);
            assert!((full / 2..=full).contains(&wait), "attempt {attempts}: {wait}");
        }
        assert!(!backoff.exhausted(2) && backoff.exhausted(3));
    }
}
