//! Health for machines: is the process alive, and would a delivery be stored now?
//!
//! Ready is proven by a real write through the same gate as deliveries. Never says more than an operator may see.

use crate::clock;
use crate::engine::Shared;
use crate::store::gate::Job;
use crate::store::{backup, set_meta};
use crossbeam_channel::bounded;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

/// How long the writer may be silent, and how long the proof may take.
const STUCK_AFTER: Duration = Duration::from_secs(5);

/// Would a delivery be stored now? The error says why not, a line for each reason. May take up to five seconds.
pub fn ready(shared: &Shared) -> Result<(), Vec<String>> {
    let mut why = Vec::new();
    let gate = shared.store.gate();
    if shared.is_stopping() {
        why.push("the server is stopping".to_owned());
    }
    if let Some(trouble) = gate.figures().trouble.lock().expect("no panic while it is held").clone() {
        why.push(format!("storage: {trouble}"));
    }
    let free = backup::free_bytes(shared.store.path());
    let least = shared.disk_free_least();
    if let Some(free) = free.filter(|free| *free < least) {
        why.push(format!("disk nearly full: {} MiB free, {} MiB needed", free >> 20, least >> 20));
    }
    let beat = clock::steady() - gate.figures().beat.load(Relaxed);
    if beat > STUCK_AFTER.as_millis() as i64 {
        why.push(format!("the writer is stuck since {} s", beat / 1000));
    } else if why.is_empty()
        && let Err(reason) = write_through(shared)
    {
        why.push(reason);
    }
    if why.is_empty() { Ok(()) } else { Err(why) }
}

/// One small write through the gate, waited for with patience that ends.
fn write_through(shared: &Shared) -> Result<(), String> {
    let (told, answer) = bounded(1);
    shared.store.gate().submit(Job {
        alone: false,
        run: Box::new(|tx| set_meta(tx.conn, "ready_at", &tx.now.to_string())),
        done: Box::new(move |outcome| {
            let _ = told.send(outcome);
            None
        }),
    });
    match answer.recv_timeout(STUCK_AFTER) {
        Ok(Ok(())) => Ok(()),
        Ok(Err(error)) => Err(format!("a write failed: {error}")),
        Err(_) => Err(format!("a write took longer than {} s", STUCK_AFTER.as_secs())),
    }
}
