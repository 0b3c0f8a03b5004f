//! How long something took, counted in buckets: cheap to note on the hot path, good enough for "99 of 100 within".

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// Buckets; each ends half as far again (a factor of the square root of two) as the one before: from 0.1 ms to an hour.
pub const BUCKETS: usize = 51;

/// A growing count of times, and their sum.
#[derive(Debug)]
pub struct Latency {
    buckets: [AtomicU64; BUCKETS],
    sum_us: AtomicU64,
}

/// A reading of it, or the sum of several.
pub type Reading = [u64; BUCKETS];

impl Default for Latency {
    fn default() -> Latency {
        Latency { buckets: std::array::from_fn(|_| AtomicU64::new(0)), sum_us: AtomicU64::new(0) }
    }
}

/// Where a bucket ends; the last one takes all that is longer.
pub fn end_of(bucket: usize) -> Duration {
    let doubled = 100_u64 << (bucket / 2);
    Duration::from_micros(if bucket % 2 == 1 { doubled * 141 / 100 } else { doubled })
}

impl Latency {
    /// Counts one.
    pub fn note(&self, took: Duration) {
        let at = (0..BUCKETS - 1).find(|bucket| took <= end_of(*bucket)).unwrap_or(BUCKETS - 1);
        self.buckets[at].fetch_add(1, Relaxed);
        self.sum_us.fetch_add(u64::try_from(took.as_micros()).unwrap_or(u64::MAX), Relaxed);
    }

    /// The counts at this moment.
    pub fn reading(&self) -> Reading {
        std::array::from_fn(|at| self.buckets[at].load(Relaxed))
    }

    /// All of them together, in microseconds.
    pub fn sum_us(&self) -> u64 {
        self.sum_us.load(Relaxed)
    }
}

/// The time within which `percent` of a hundred ended, or somewhat less; `None`: nothing was counted.
pub fn within(reading: &Reading, percent: u64) -> Option<Duration> {
    let total: u64 = reading.iter().sum();
    let wanted = (total * percent).div_ceil(100);
    let mut seen = 0;
    for (bucket, count) in reading.iter().enumerate() {
        seen += count;
        if total > 0 && seen >= wanted {
            return Some(end_of(bucket));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slowest_of_a_hundred_is_found_within_half_its_size() {
        let latency = Latency::default();
        (0..99).for_each(|_| latency.note(Duration::from_millis(3)));
        latency.note(Duration::from_secs(2));
        let reading = latency.reading();
        let p99 = within(&reading, 99).unwrap();
        assert!((Duration::from_millis(3)..Duration::from_micros(4300)).contains(&p99), "{p99:?}");
        assert!(within(&reading, 100).unwrap() >= Duration::from_secs(2));
        assert_eq!(within(&Latency::default().reading(), 99), None);
    }
}
