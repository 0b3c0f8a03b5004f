//! Clocks that jump by a day, forward and back, while the process runs and while it does not: nothing is stuck, nothing is
//! swept early, and nobody is flooded with retries. Times that no clock of a computer shows, and hours that some days lack.

use crate::harness::{App, SECRET, Server, Setup, Wire, eventually, sign_at, stripe};
use std::fs;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const DAY: i64 = 86_400_000;

/// The server's clock is so far ahead from now on.
fn set(server: &Server, ahead: i64) {
    let file = server.folder.join("clock");
    fs::write(server.folder.join("clock.new"), ahead.to_string()).unwrap();
    fs::rename(server.folder.join("clock.new"), file).unwrap();
}

fn send(server: &Server, event: u32, ahead: i64) {
    let body = stripe::charge(&format!("evt_{event}"), &format!("pi_{event}"), 100);
    let headers = sign_at("stripe", SECRET, body.as_bytes(), &[], postonce::clock::wall() + ahead);
    Wire::to(server.public).post("/webhooks/stripe", &headers, body.as_bytes()).is(200);
}

type Came = Arc<Mutex<Vec<(Instant, String)>>>;

/// An app that is down at first; it notes what it was sent. Its own clock is right, so it is not asked what is genuine.
fn app(down: usize) -> (App, Came) {
    let came = Came::default();
    let noted = came.clone();
    let app = App::with(Box::new(move |nth, message| {
        noted.lock().unwrap().push((Instant::now(), message.key.clone()));
        (if nth < down { 503 } else { 200 }, None)
    }));
    (app, came)
}

fn setup(app: &App) -> Setup {
    Setup::new().deliver(app).env("POSTONCE_CLOCK_FILE", "clock")
}

/// Messages of two payments: each is tried, fails, and waits for its two seconds whatever the clock does meanwhile.
fn jump_while_running(ahead: i64) {
    let (app, came) = app(2);
    let server = setup(&app).start();
    set(&server, 0);
    send(&server, 1, 0);
    send(&server, 2, 0);
    eventually("both were tried", || (came.lock().unwrap().len() >= 2).then_some(()));
    let tried = Instant::now();
    set(&server, ahead);
    send(&server, 3, ahead);
    server.delivered();
    let came = came.lock().unwrap().clone();
    assert_eq!(came.len(), 5, "two failures, two retries, one new: {came:?}");
    let retried = came.iter().skip(2).filter(|(_, key)| !key.ends_with("pi_3")).map(|(at, _)| *at).min().unwrap();
    assert!(retried + Duration::from_millis(100) > tried + Duration::from_millis(700), "retried early");
    assert_eq!(server.ledger().len(), 3);
    server.check();
    server.stop();
}

#[test]
fn a_day_forward_wakes_no_retry_early_and_holds_nothing_back() {
    jump_while_running(DAY);
}

#[test]
fn a_day_back_wakes_no_retry_early_and_holds_nothing_back() {
    jump_while_running(-DAY);
}

#[test]
fn a_claim_under_way_is_not_swept_when_the_clock_jumps() {
    let (app, _) = app(0);
    let server = setup(&app).delay("before_apply", 1500).start();
    set(&server, 0);
    send(&server, 1, 0);
    server.wait_for("SELECT count(*) = 1 FROM postonce_raw_events WHERE state = 'CLAIMED'");
    set(&server, DAY);
    server.wait_for("SELECT count(*) = 1 FROM postonce_raw_events WHERE state = 'DONE'");
    assert_eq!(server.count("SELECT fence FROM postonce_raw_events"), 1, "somebody else took it");
    assert_eq!(server.count("SELECT attempts FROM postonce_raw_events"), 1);
}

#[test]
fn a_clock_that_was_a_day_ahead_and_is_set_right_between_two_lives_leaves_nothing_stuck() {
    let (app, came) = app(1);
    let server = setup(&app).start();
    set(&server, 0);
    server.stop();
    set(&server, DAY);
    let server = server.restart();
    send(&server, 1, DAY);
    eventually("it was tried", || (!came.lock().unwrap().is_empty()).then_some(()));
    server.wait_for("SELECT count(*) = 1 FROM postonce_outbox WHERE state = 'WAITING' AND attempts = 1");
    server.kill();
    set(&server, 0);
    let server = server.restart();
    server.delivered(); // within the patience of the tests, not a day later
    assert_eq!(came.lock().unwrap().len(), 2);
    assert_eq!(server.ledger().len(), 1);
}

#[test]
fn a_clock_that_drifts_quickly_changes_no_order_and_no_wait() {
    let (app, _) = app(0);
    let server = setup(&app).start();
    set(&server, 0);
    for step in 0..40 {
        let ahead = i64::from(step) * 997 * if step % 3 == 0 { -1 } else { 1 };
        set(&server, ahead);
        send(&server, step, ahead);
    }
    server.delivered();
    assert_eq!(server.ledger().len(), 40);
    assert_eq!(server.count("SELECT count(*) FROM postonce_raw_events WHERE attempts <> 1"), 0);
    server.check();
}

/// Paddle's own body of the vectors, at another time and under other names.
fn paddle(n: u32, at: &str) -> String {
    let all: serde_json::Value = serde_json::from_str(include_str!("../vectors/events/paddle.json")).unwrap();
    let body = all[0]["body"].as_str().unwrap();
    body.replace("2026-11-18T08:00:06.5Z", at)
        .replace("2026-11-18T08:00:06.123456Z", at)
        .replace("evt_01kx0000000000000000000001", &format!("evt_01kx00000000000000000009{n:02}"))
        .replace("txn_01kx9n4v8r0c7t5m2q3w1e6y0a", &format!("txn_01kx9n4v8r0c7t5m2q3w1e6y{n:02}"))
}

#[test]
fn a_leap_second_is_a_time_of_its_day_and_holds_no_payment_back() {
    let server = Setup::new().source("paddle", SECRET).start();
    let times =
        ["2026-12-31T23:59:59Z", "2026-12-31T23:59:60Z", "2026-12-31T23:59:60.75Z", "2027-01-01T00:59:60+01:00"];
    for (n, at) in times.iter().enumerate() {
        server.send("paddle", &paddle(n as u32, at)).is(200);
    }
    server.settled();
    let entries = server.list(&["ledger"]);
    assert_eq!(entries.len(), times.len(), "{:?}", server.states());
    for entry in entries {
        let at = entry["occurred_at"].as_str().unwrap();
        assert!(at.starts_with("2026-12-31T23:59:59"), "{entry}");
    }
    server.check();
}
