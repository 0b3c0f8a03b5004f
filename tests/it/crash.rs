//! Deaths: at each named place, of each kind, and what the next start makes of them.
//!
//! `kill -9` and aborts only: what a power cut does is in `power.rs`.

use crate::harness::{App, Server, Setup, eventually, has_faults, stripe};

/// Crash points in the order in which an event meets them.
const POINTS: [&str; 14] = [
    "kept_uncommitted",
    "after_keep", // not answered
    "before_answer",
    "before_read", // answered
    "keys_won",    // not committed
    "after_claim",
    "before_apply",
    "entry_without_postings",
    "message_written",
    "after_effect", // not committed
    "after_apply",
    "before_send",
    "after_send", // not noted
    "before_mark",
];

#[test]
fn killed_at_each_point_nothing_is_lost_and_nothing_doubled() {
    if !has_faults() {
        return;
    }
    for point in POINTS {
        let app = App::start();
        let setup = Setup::new().deliver(&app);
        let server = setup.clone().crash(point).start();
        let body = stripe::charge("evt_1", "pi_1", 4999);
        let acknowledged = server.send_to_its_death("stripe", &body);
        server.wait_for_crash(point);
        let server = server.restart_with(setup);
        if acknowledged {
            // Nobody helps it: the provider has its 200.
            server.wait_for("SELECT count(*) = 1 FROM postonce_raw_events WHERE state = 'DONE'");
        } else {
            server.send("stripe", &body).is(200);
        }
        server.delivered();
        assert_eq!(server.ledger(), ["payment pi_1 cus_1 4999 USD"], "{point}");
        assert_eq!(app.keys(), ["default:stripe:live:payment:pi_1"], "{point}");
        let messages = app.messages();
        assert!(messages.iter().all(|m| m.body == messages[0].body), "{point}: a repeat with other bytes");
        assert_eq!(messages.len(), if ["after_send", "before_mark"].contains(&point) { 2 } else { 1 }, "{point}");
        server.check();
        server.stop();
    }
}

#[test]
fn killed_between_the_ledger_write_and_the_commit_leaves_only_the_claim() {
    if !has_faults() {
        return;
    }
    let app = App::start();
    let setup = Setup::new().deliver(&app);
    let server = setup.clone().crash("after_effect").start();
    server.send_to_its_death("stripe", &stripe::charge("evt_1", "pi_1", 4999));
    server.wait_for_crash("after_effect");
    for nothing in ["postonce_journal", "postonce_postings", "postonce_accounts", "postonce_outbox"] {
        assert_eq!(server.count(&format!("SELECT count(*) FROM {nothing}")), 0, "{nothing}");
    }
    assert_eq!(server.count("SELECT count(*) FROM postonce_claims WHERE state = 'CLAIMED'"), 2, "event and payment");
    assert_eq!(server.states()[0].0, "CLAIMED");
    assert_eq!(server.count("SELECT attempts FROM postonce_raw_events"), 1);
    server.check();
    let server = server.restart_with(setup);
    server.delivered();
    assert_eq!(server.ledger(), ["payment pi_1 cus_1 4999 USD"]);
    assert_eq!(app.messages().len(), 1);
    server.check();
}

/// In a batch with others, so that the innocent share its transaction.
#[test]
fn an_event_that_aborts_the_process_every_time_ends_dead_and_the_rest_goes_on() {
    if !has_faults() {
        return;
    }
    let app = App::start();
    let setup = Setup::new().deliver(&app);
    // First keep them all: the worker sleeps before it reads.
    let server = setup.clone().delay("before_read", 60_000).start();
    for n in 0..20 {
        let event = if n == 7 { "evt_poison".to_owned() } else { format!("evt_{n}") };
        server.send("stripe", &stripe::charge(&event, &format!("pi_{n}"), 100)).is(200);
    }
    server.kill();
    let setup = setup.crash("apply/evt_poison");
    let mut starts = 0;
    let server = eventually("the server survives its poison", || {
        starts += 1;
        let server = Server::try_start_in(server.folder.clone(), setup.clone())?;
        let waiting = "SELECT count(*) FROM postonce_raw_events WHERE state IN ('RECEIVED', 'CLAIMED')";
        while server.ended().is_none() {
            if server.count(waiting) == 0 {
                return Some(server);
            }
        }
        None
    });
    assert!((10..=12).contains(&starts), "it took {starts} starts");
    server.delivered();
    let dead = server.list(&["dead"]);
    assert_eq!(dead.len(), 1, "{dead:?}");
    assert_eq!((dead[0]["id"].clone(), dead[0]["state"].clone()), (8.into(), "DEAD".into()));
    assert_eq!(dead[0]["attempts"], 10);
    assert_eq!(server.ledger().len(), 19);
    assert_eq!(app.keys().len(), 19);
    server.check();
    server.stop();
    // Its bug is mended: a person replays it.
    let server = server.restart_with(Setup::new().deliver(&app));
    assert_eq!(server.run(&["replay", "--all-dead"]).0, 0);
    server.wait_for("SELECT count(*) = 20 FROM postonce_journal");
    server.check();
}

#[test]
fn a_body_that_kills_the_process_while_it_is_read_ends_dead() {
    if !has_faults() {
        return;
    }
    let setup = Setup::new().crash("before_read");
    let server = setup.clone().start();
    server.send_to_its_death("stripe", &stripe::charge("evt_1", "pi_1", 100));
    server.wait_for_crash("before_read");
    let mut starts = 1;
    let server = eventually("the server survives its poison", || {
        starts += 1;
        let server = Server::try_start_in(server.folder.clone(), setup.clone())?;
        while server.ended().is_none() {
            if server.count("SELECT count(*) FROM postonce_raw_events WHERE state = 'DEAD'") == 1 {
                return Some(server);
            }
        }
        None
    });
    assert!((10..=13).contains(&starts), "it took {starts} starts");
    assert!(server.ledger().is_empty());
}

#[test]
fn killed_under_load_again_and_again_every_acknowledged_event_is_posted_once() {
    let app = App::start();
    let mut server = Setup::new().deliver(&app).start();
    let mut acknowledged = 0;
    for life in 0..6 {
        let bodies: Vec<String> =
            (0..40).map(|n| stripe::charge(&format!("evt_{life}_{n}"), &format!("pi_{life}_{n}"), 100)).collect();
        for body in &bodies {
            server.send("stripe", body).is(200);
            acknowledged += 1;
        }
        server.kill();
        server = server.restart();
    }
    server.delivered();
    assert_eq!(server.ledger().len(), acknowledged);
    assert_eq!(app.keys().len(), acknowledged);
    assert_eq!(server.count("SELECT count(*) FROM postonce_raw_events"), acknowledged as i64);
    server.check();
    server.stop();
}

#[test]
fn a_stop_gives_claims_back_and_the_next_start_needs_no_lease() {
    if !has_faults() {
        return;
    }
    let setup = Setup::new();
    let server = setup.clone().delay("before_apply", 300).start();
    for n in 0..5 {
        server.send("stripe", &stripe::charge(&format!("evt_{n}"), &format!("pi_{n}"), 100)).is(200);
    }
    server.stop();
    let server = server.restart_with(setup);
    server.settled();
    assert_eq!(server.ledger().len(), 5);
    server.check();
}
