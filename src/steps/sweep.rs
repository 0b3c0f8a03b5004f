//! Sweep: what was claimed and never finished runs again.
//!
//! There is no second way for it: a claim has a lease, an event whose lease is over is due like any other, and the worker
//! takes what is due. What is left here is the start of a process and the operator's "now".

use crate::error::Result;
use crate::event::Millis;
use crate::retry;
use crate::store::{Store, outbox, raw};

/// How often the worker and the sender look for what is due even when nobody woke them: one look into an index. Also how
/// soon what another process changed (`postonce replay`) is seen.
pub const EVERY: Millis = 1_000;

/// At start: the claims of the process before are released at once. Gives how many events that made due.
///
/// Due times are those of the clock of the process before. No wait is longer than the longest there is; and when the file
/// remembers a time that is still to come, the clock has been set back since and no due time means anything: whatever
/// waits is due within moments.
pub fn at_start(store: &Store) -> Result<usize> {
    store.write(|tx| {
        let set_back = raw::newest_time(tx.conn)?.max(outbox::newest_time(tx.conn)?) > tx.now + CLOCK_SLACK;
        if set_back {
            log::warn!("the clock was set back since the process before: what waits is taken up at once");
        }
        let longest = |wait: Millis| if set_back { 0 } else { wait };
        outbox::release_all(tx, longest(super::deliver::RETRY_AFTER_MAX.max(retry::DELIVER.most)))?;
        raw::release_all(tx, longest(retry::APPLY.most.max(super::claim::LEASE)))
    })
}

/// A clock is corrected by so much now and then: no reason to forget what waits for what.
const CLOCK_SLACK: Millis = 30_000;
