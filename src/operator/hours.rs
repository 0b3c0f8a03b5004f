//! Keeps the times of answers, an hour a row, so that today can be compared with a week ago across restarts.

use crate::clock;
use crate::engine::Shared;
use crate::engine::latency::{BUCKETS, Reading};
use crate::error::{Error, Result};
use crate::event::Millis;
use crate::store::overview;
use crossbeam_channel::{RecvTimeoutError, Sender, bounded};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

/// An hour.
pub(super) const HOUR: Millis = 3_600_000;
/// How often the current hour is written when something was answered.
const EVERY: Duration = Duration::from_secs(60);

/// The thread that keeps them.
pub(super) struct Hours {
    stop: Sender<()>,
    thread: JoinHandle<()>,
}

impl Hours {
    pub(super) fn start(shared: Arc<Shared>) -> Result<Hours> {
        let (stop, stopped) = bounded(1);
        let thread = std::thread::Builder::new()
            .name("hours".into())
            .spawn(move || {
                let mut keeper = Keeper::new(&shared);
                loop {
                    let ended = stopped.recv_timeout(EVERY) != Err(RecvTimeoutError::Timeout);
                    if let Err(e) = keeper.keep(&shared) {
                        log::debug!("the times of answers were not kept: {e}");
                    }
                    if ended {
                        break;
                    }
                }
            })
            .map_err(|e| Error::Unavailable(e.to_string()))?;
        Ok(Hours { stop, thread })
    }

    pub(super) fn stop(self) {
        let _ = self.stop.send(());
        let _ = self.thread.join();
    }
}

struct Keeper {
    hour: Millis,
    /// What the hour's row held when we began with it.
    before: Reading,
    /// The counter when we began with it, and as it was written last.
    began: Reading,
    written: Reading,
}

impl Keeper {
    fn new(shared: &Shared) -> Keeper {
        let hour = this_hour();
        let before = of_hours(shared, hour, hour + HOUR).unwrap_or([0; BUCKETS]);
        let now = shared.metrics.acknowledge.reading();
        Keeper { hour, before, began: now, written: now }
    }

    fn keep(&mut self, shared: &Shared) -> Result<()> {
        let now = shared.metrics.acknowledge.reading();
        if now != self.written {
            let sum: Vec<u64> = (0..BUCKETS).map(|at| self.before[at] + now[at] - self.began[at]).collect();
            let (hour, text) = (self.hour, serde_json::json!(sum).to_string());
            shared.store.write(move |tx| overview::keep_hour(tx, hour, &text))?;
            self.written = now;
        }
        if this_hour() != self.hour {
            *self = Keeper { hour: this_hour(), before: [0; BUCKETS], began: now, written: now };
        }
        Ok(())
    }
}

fn this_hour() -> Millis {
    clock::wall() / HOUR * HOUR
}

/// The times of the answers of the hours that begin in `[from, to)`.
pub(super) fn of_hours(shared: &Shared, from: Millis, to: Millis) -> Result<Reading> {
    let rows = shared.store.look(|conn| overview::hours(conn, from, to))?;
    let mut sum = [0; BUCKETS];
    for row in rows {
        let counts: Vec<u64> = serde_json::from_str(&row).unwrap_or_default();
        sum.iter_mut().zip(counts).for_each(|(sum, count)| *sum += count);
    }
    Ok(sum)
}
