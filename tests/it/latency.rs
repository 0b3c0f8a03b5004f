//! What the provider waits for: never the worker. Shown by the order of facts, not by times, which say more about the
//! machine; the times are printed, and `postonce bench` measures them.

use crate::harness::{SECRET, Server, Setup, Wire, has_faults, sign, stripe};
use std::time::{Duration, Instant};

/// Sends an event and measures the answer.
fn measure(wire: &mut Wire, n: usize) -> Duration {
    let body = stripe::charge(&format!("evt_{n}"), &format!("pi_{n}"), 100);
    let headers = sign("stripe", SECRET, body.as_bytes(), &[]);
    let began = Instant::now();
    wire.post("/webhooks/stripe", &headers, body.as_bytes()).is(200);
    began.elapsed()
}

fn p99(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times[times.len() * 99 / 100]
}

#[test]
fn four_hundred_are_answered_while_the_worker_stands_before_the_first() {
    if !has_faults() {
        return;
    }
    let (quick, held) = (Server::start(), Setup::new().hold("before_read").start());
    let (mut to_quick, mut to_held) = (Wire::to(quick.public), Wire::to(held.public));
    let times: Vec<_> = (0..400).map(|n| (measure(&mut to_quick, n), measure(&mut to_held, n))).collect();
    assert_eq!(held.count("SELECT count(*) FROM postonce_raw_events WHERE state = 'RECEIVED'"), 400, "all are kept");
    let (quick_times, held_times) = times.into_iter().unzip();
    println!(
        "p99 of the answers: {:?} beside a worker, {:?} beside one that stands",
        p99(quick_times),
        p99(held_times)
    );
    held.release();
    held.settled();
    assert_eq!(held.ledger().len(), 400);
    held.check();
}
