//! The main job end to end: what is sent once or many times is posted once and told once.

use crate::harness::{App, Server, Setup, stripe};

#[test]
fn a_payment_that_arrives_twice_is_credited_once_and_told_once() {
    let app = App::start();
    let server = Setup::new().deliver(&app).start();
    let body = stripe::charge("evt_1", "pi_1", 4999);
    for _ in 0..2 {
        server.send("stripe", &body).is(200);
    }
    server.delivered();
    assert_eq!(server.ledger(), ["payment pi_1 cus_1 4999 USD"]);
    assert_eq!(app.keys(), ["default:stripe:live:payment:pi_1"]);
    assert_eq!(app.messages().len(), 1);
    let states: Vec<String> = server.states().into_iter().map(|(state, _)| state).collect();
    assert_eq!(states, ["DONE", "DUPLICATE"]);
    server.check();
    server.stop();
    server.check();
    assert_eq!(server.restart().ledger().len(), 1);
}

#[test]
fn a_bad_signature_stores_nothing() {
    let server = Server::start();
    let body = stripe::charge("evt_1", "pi_1", 4999);
    let answer = server.send_with("stripe", "whsec_other", body.as_bytes(), &[]).is(401);
    assert!(answer.body.contains("no_secret_matches"), "{answer:?}");
    server.post("/webhooks/stripe", &[], body.as_bytes()).is(401);
    assert_eq!(server.count("SELECT count(*) FROM postonce_raw_events"), 0);
}
