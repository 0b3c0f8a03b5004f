//! Waiting for another process's write lock.
//!
//! SQLite's own busy handler sleeps up to 100 ms between two looks, which is longer than an acknowledgement may take.
//! This one looks often, for as long as its thread is patient. Only the writer's connection has it.

use rusqlite::Connection;
use std::cell::Cell;
use std::time::{Duration, Instant};

thread_local! {
    static PATIENCE: Cell<Duration> = const { Cell::new(Duration::from_secs(2)) };
    static SINCE: Cell<Option<Instant>> = const { Cell::new(None) };
}

/// Lets this thread wait so long for a lock, from now on.
pub fn patience(time: Duration) {
    PATIENCE.set(time);
}

/// Runs `f` with another patience: what can be put off does not wait.
pub fn within<T>(time: Duration, f: impl FnOnce() -> T) -> T {
    let before = PATIENCE.replace(time);
    let result = f();
    PATIENCE.set(before);
    result
}

/// Puts the handler on a connection that only the calling thread uses.
pub fn wait_on(conn: &Connection) -> rusqlite::Result<()> {
    conn.busy_handler(Some(look_again))
}

fn look_again(looks: i32) -> bool {
    let now = Instant::now();
    if looks == 0 {
        SINCE.set(Some(now));
    }
    let waited = now - SINCE.get().unwrap_or(now);
    if waited >= PATIENCE.get() {
        return false;
    }
    // Often at first: an app's transaction is over within a millisecond. Then seldom: it costs a system call each.
    let step = match waited.as_millis() {
        0..10 => 250,
        10..100 => 1_000,
        _ => 5_000,
    };
    std::thread::sleep(Duration::from_micros(step));
    true
}
