//! Pieces: how much of a long work goes into one job of the writer.
//!
//! A piece is measured by time, not by rows: what one took says how large the next may be. Two of them and their
//! commits fit into the 50 ms that a sender may wait: a body that comes just too late for the commit of one waits for the
//! next as well.

use crate::error::Result;
use crate::store::Tx;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// What a piece should take: less than half of an apply's budget.
const AIM: Duration = Duration::from_millis(10);
/// Rows of the first piece, and the most and fewest of any.
const FIRST: usize = 1000;
const FEWEST: usize = 50;
const MOST: usize = 40_000;

/// Knows how large the next piece of one kind of work may be.
#[derive(Clone)]
pub(super) struct Pieces(Arc<AtomicUsize>);

impl Pieces {
    pub(super) fn new() -> Pieces {
        Pieces(Arc::new(AtomicUsize::new(FIRST)))
    }

    /// Rows of the next piece.
    pub(super) fn rows(&self) -> usize {
        self.0.load(Relaxed)
    }

    /// The work of a piece of so many rows, measured.
    pub(super) fn measured(
        &self,
        rows: usize,
        mut work: impl FnMut(&Tx) -> Result<()> + Send + 'static,
    ) -> impl FnMut(&Tx) -> Result<()> + Send + 'static {
        let this = self.clone();
        move |tx| {
            let began = Instant::now();
            work(tx)?;
            this.learn(rows, began.elapsed());
            Ok(())
        }
    }

    fn learn(&self, rows: usize, took: Duration) {
        let fits = (rows as u128 * AIM.as_micros() / took.as_micros().max(1)) as usize;
        // half way to what this one says: one slow sync is no rule
        let next = (self.rows() + fits.min(4 * rows)) / 2;
        self.0.store(next.clamp(FEWEST, MOST), Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_grow_and_shrink_to_what_their_time_allows() {
        let pieces = Pieces::new();
        for _ in 0..20 {
            let rows = pieces.rows();
            pieces.learn(rows, Duration::from_micros(2 * rows as u64));
        }
        assert!((4_500..=5_500).contains(&pieces.rows()), "10 ms at 2 us a row: {}", pieces.rows());
        for _ in 0..30 {
            let rows = pieces.rows();
            pieces.learn(rows, Duration::from_millis(rows as u64));
        }
        assert_eq!(pieces.rows(), FEWEST);
        (0..40).for_each(|_| pieces.learn(pieces.rows(), Duration::ZERO));
        assert_eq!(pieces.rows(), MOST);
    }
}
