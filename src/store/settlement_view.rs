//! Settlement as people read it: the trend over ninety days, runs, discrepancies.
//!
//! Reads only, from tables that the settlement steps write.

use crate::event::Millis;

/// One day of the trend.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Day {
    /// Its begin, UTC.
    pub at: Millis,
    /// Did a run for this day complete? Without one the day is a gap, not a zero.
    pub completed: bool,
    /// Newly found, by bucket, before any repair.
    pub found: Vec<(String, i64)>,
    /// Open at the day's end.
    pub open: i64,
}
