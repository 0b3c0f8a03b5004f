//! Sweep: what was claimed and never finished runs again.
//!
//! There is no second way for it: a claim has a lease, an event whose lease is over is due like any other, and the worker
//! takes what is due. What is left here is the start of a process and the operator's "now".

use crate::error::Result;
use crate::event::Millis;
use crate::retry;
use crate::store::{Store, raw};

/// How often the worker and the sender look for what is due even when nobody woke them: one look into an index. Also how
/// soon what another process changed (`postonce replay`) is seen.
pub const EVERY: Millis = 1_000;

/// At start: the claims of the process before are released at once. Gives how many events that made due.
pub fn at_start(store: &Store) -> Result<usize> {
    store.write(|tx| raw::release_all(tx, retry::APPLY.most.max(super::claim::LEASE)))
}
