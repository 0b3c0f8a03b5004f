//! The main job end to end: what is sent once or many times, in whatever order, is posted once and told once.

use crate::harness::{App, SECRET, Server, Setup, Wire, sign, stripe};
use std::sync::Barrier;

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

/// Claims are won once, whoever comes, however many at a time.
#[test]
fn sixty_four_identical_deliveries_at_one_barrier_post_once_in_every_round() {
    const AT_ONCE: usize = 64;
    const ROUNDS: usize = 200;
    let app = App::start();
    let server = Setup::new().deliver(&app).start();
    let barrier = Barrier::new(AT_ONCE);
    std::thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                let mut wire = Wire::to(server.public);
                for round in 0..ROUNDS {
                    let body = stripe::charge(&format!("evt_{round}"), &format!("pi_{round}"), 1000);
                    let headers = sign("stripe", SECRET, body.as_bytes(), &[]);
                    barrier.wait();
                    wire.post("/webhooks/stripe", &headers, body.as_bytes()).is(200);
                }
            });
        }
    });
    server.delivered();
    let count = |sql: &str| server.count(sql) as usize;
    assert_eq!(count("SELECT count(*) FROM postonce_raw_events"), AT_ONCE * ROUNDS);
    assert_eq!(count("SELECT count(*) FROM postonce_raw_events WHERE state = 'DONE'"), ROUNDS, "claims won");
    assert_eq!(count("SELECT count(*) FROM postonce_raw_events WHERE state = 'DUPLICATE'"), (AT_ONCE - 1) * ROUNDS);
    assert_eq!(count("SELECT count(*) FROM postonce_journal"), ROUNDS);
    assert_eq!(count("SELECT count(*) FROM postonce_outbox"), ROUNDS);
    assert_eq!(app.keys().len(), ROUNDS);
    assert_eq!(app.messages().len(), ROUNDS, "nothing was sent twice");
    let warned = server.log().lines().filter(|line| line.contains("WARN") || line.contains("ERROR")).count();
    assert_eq!(warned, 0, "a lost claim is a normal outcome");
    server.check();
    server.stop();
}

/// All orders of the numbers below `n`.
pub fn orders(n: usize) -> Vec<Vec<usize>> {
    if n == 0 {
        return vec![Vec::new()];
    }
    let insert = |order: &Vec<usize>, at: usize| [&order[..at], &[n - 1], &order[at..]].concat();
    orders(n - 1).iter().flat_map(|order| (0..n).map(move |at| insert(order, at))).collect()
}

#[test]
fn three_announcements_of_one_payment_post_once_in_all_six_orders() {
    let app = App::start();
    let server = Setup::new().deliver(&app).start();
    for (at, order) in orders(3).iter().enumerate() {
        let payment = format!("pi_{at}");
        let bodies = [
            stripe::charge(&format!("evt_{at}_a"), &payment, 4900),
            stripe::intent(&format!("evt_{at}_b"), &payment, 4900),
            stripe::invoice(&format!("evt_{at}_c"), &format!("in_{at}"), &payment, 4900),
        ];
        for one in order {
            server.send("stripe", &bodies[*one]).is(200);
            server.settled();
        }
    }
    server.delivered();
    let expected: Vec<String> = (0..6).map(|at| format!("payment pi_{at} cus_1 4900 USD")).collect();
    assert_eq!(server.ledger(), expected);
    assert_eq!(app.keys().len(), 6);
    assert_eq!(server.count("SELECT count(*) FROM postonce_raw_events WHERE state = 'DUPLICATE'"), 12);
    server.check();
}

#[test]
fn two_true_payments_of_one_invoice_are_two_entries() {
    let server = Server::start();
    server.send("stripe", &stripe::invoice("evt_1", "in_5", "pi_a", 3000)).is(200);
    server.send("stripe", &stripe::invoice("evt_2", "in_5", "pi_b", 3000)).is(200);
    server.send("stripe", &stripe::charge("evt_3", "pi_a", 3000)).is(200);
    server.settled();
    assert_eq!(server.ledger(), ["payment pi_a cus_1 3000 USD", "payment pi_b cus_1 3000 USD"]);
}

#[test]
fn refunds_partial_and_several_stand_under_keys_of_their_own() {
    let server = Server::start();
    server.send("stripe", &stripe::charge("evt_1", "pi_1", 3000)).is(200);
    server.settled();
    for (event, refund, amount) in [("evt_2", "re_1", 1000), ("evt_3", "re_2", 500), ("evt_4", "re_2", 500)] {
        server.send("stripe", &stripe::refund(event, refund, "pi_1", amount)).is(200);
    }
    server.settled();
    assert_eq!(
        server.ledger(),
        ["payment pi_1 cus_1 3000 USD", "refund re_1 cus_1 1000 USD", "refund re_2 cus_1 500 USD"]
    );
    let clearing = server.list(&["balances"]).into_iter().find(|b| b["code"] == "clearing").unwrap();
    assert_eq!(clearing["balance"], 1500);
    server.check();
}

/// A refund names its payment and no customer; what is listed does not depend on which of the two came first.
#[test]
fn a_refund_that_comes_before_its_payment_is_listed_under_the_same_customer() {
    let server = Server::start();
    server.send("stripe", &stripe::refund("evt_1", "re_1", "pi_1", 300)).is(200);
    server.settled();
    assert_eq!(server.ledger(), ["refund re_1 - 300 USD"], "nobody knows yet");
    server.send("stripe", &stripe::charge("evt_2", "pi_1", 1000)).is(200);
    server.settled();
    assert_eq!(server.ledger(), ["payment pi_1 cus_1 1000 USD", "refund re_1 cus_1 300 USD"]);
    assert_eq!(server.list(&["ledger", "--account", "cus_1"]).len(), 2);
    server.check();
}

#[test]
fn the_same_key_with_another_amount_or_currency_is_a_conflict_that_is_shown_and_posts_nothing() {
    let server = Server::start();
    server.send("stripe", &stripe::charge("evt_1", "pi_1", 1000)).is(200);
    server.settled();
    server.send("stripe", &stripe::charge("evt_1", "pi_1", 2000)).is(200); // the same event with other money
    server.send("stripe", &stripe::charge("evt_2", "pi_1", 2000)).is(200);
    server.send("stripe", &stripe::charge_in("evt_3", "pi_1", 1000, "eur")).is(200);
    server.settled();
    assert_eq!(server.ledger(), ["payment pi_1 cus_1 1000 USD"]);
    let (code, _) = server.run(&["dead"]);
    assert_eq!(code, 1, "something waits for a person");
    let shown = server.list(&["dead"]);
    assert_eq!(shown.len(), 3);
    for event in &shown {
        assert_eq!(event["state"], "CONFLICT");
        assert!(event["reason"].as_str().unwrap().contains("raw event 1"), "{event}");
    }
    server.check();
    // A person looks, and says "again": it is still a conflict.
    let id = shown[0]["id"].to_string();
    assert_eq!(server.run(&["replay", &id]).0, 0);
    server.wait_for(&format!("SELECT state = 'CONFLICT' FROM postonce_raw_events WHERE id = {id}"));
    assert_eq!(server.ledger().len(), 1);
}

#[test]
fn keys_outlive_a_restart_and_can_not_be_deleted() {
    let server = Server::start();
    let body = stripe::charge("evt_1", "pi_1", 1000);
    server.send("stripe", &body).is(200);
    server.settled();
    server.stop();
    let server = server.restart();
    server.send("stripe", &body).is(200);
    server.settled();
    assert_eq!(server.ledger().len(), 1);
    assert_eq!(server.states()[1].0, "DUPLICATE");
    let db = rusqlite::Connection::open(server.database()).unwrap();
    db.execute_batch("PRAGMA recursive_triggers = ON").unwrap();
    for sql in [
        "DELETE FROM postonce_claims",
        "UPDATE postonce_claims SET state = 'CLAIMED'",
        "INSERT OR REPLACE INTO postonce_claims SELECT * FROM postonce_claims",
        "DELETE FROM postonce_journal",
        "UPDATE postonce_journal SET amount = 1",
        "DELETE FROM postonce_postings",
        "UPDATE postonce_accounts SET debits = debits + 1",
    ] {
        assert!(db.execute_batch(sql).is_err(), "{sql}");
    }
    server.check();
}

#[test]
fn check_finds_what_somebody_changed_behind_our_back() {
    let server = Server::start();
    for n in 0..3 {
        server.send("stripe", &stripe::charge(&format!("evt_{n}"), &format!("pi_{n}"), 1000)).is(200);
    }
    server.settled();
    server.stop();
    for (what, sql) in [
        (
            "hash chain",
            "DROP TRIGGER postonce_journal_fixed; UPDATE postonce_journal SET account = 'cus_evil' WHERE id = 2",
        ),
        (
            "balance",
            "DROP TRIGGER postonce_accounts_guard; UPDATE postonce_accounts SET debits = debits + 5 WHERE code = 'clearing'",
        ),
        ("claim", "DROP TRIGGER postonce_claims_kept; DELETE FROM postonce_claims WHERE ref = 'pi_1'"),
        ("gaps", "DROP TRIGGER postonce_journal_kept; DELETE FROM postonce_journal WHERE id = 1"),
    ] {
        let copy = server.folder.join("copy.db");
        std::fs::copy(server.database(), &copy).unwrap();
        rusqlite::Connection::open(&copy).unwrap().execute_batch(sql).unwrap();
        let output = crate::harness::postonce().args(["check", "--database"]).arg(&copy).output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert_eq!(output.status.code(), Some(1), "{sql}: {text}");
        assert!(text.contains(what), "{what}: {text}");
    }
    server.check();
}

#[test]
fn listings_work_in_a_pipe_that_closes_and_while_the_server_writes() {
    let server = Server::start();
    for n in 0..50 {
        server.send("stripe", &stripe::charge(&format!("evt_{n}"), &format!("pi_{n}"), 1000)).is(200);
        if n % 10 == 0 {
            assert_eq!(server.run(&["ledger", "--json"]).0, 0);
        }
    }
    server.settled();
    let entry = &server.list(&["ledger"])[0];
    for field in [
        "id",
        "tenant",
        "provider",
        "kind",
        "reference",
        "account",
        "amount",
        "currency",
        "occurred_at",
        "recorded_at",
        "postings",
    ] {
        assert!(!entry[field].is_null(), "{field} in {entry}");
    }
    for list in ["events", "dead", "balances", "entities"] {
        assert!(server.run(&[list, "--json"]).0 <= 1, "{list}");
    }
}

#[test]
fn what_is_no_database_of_ours_is_named_with_a_way_out() {
    let folder = crate::harness::Folder::new();
    let (text, other) = (folder.join("notes.txt"), folder.join("other.db"));
    std::fs::create_dir(folder.join("inner")).unwrap();
    let args = ["serve", "--listen", "127.0.0.1:0", "--operator", "127.0.0.1:0", "--source", "stripe=env:SECRET"];
    let mut serve = crate::harness::postonce();
    serve.args(args).env("SECRET", "whsec_x").arg("--database").arg(folder.join("inner"));
    let told = String::from_utf8_lossy(&serve.output().unwrap().stderr).into_owned();
    assert!(told.contains("is a folder") && told.contains("try:"), "{told}");
    assert!(!folder.join("inner-postonce.lock").exists(), "nothing is left beside it");
    std::fs::write(&text, "not a database ".repeat(100)).unwrap();
    rusqlite::Connection::open(&other).unwrap().execute_batch("CREATE TABLE t(x)").unwrap();
    for (path, what) in [
        (folder.join(""), "is a folder"),
        (folder.join("none.db"), "does not exist"),
        (text, "is no SQLite file"),
        (other, "has no postonce tables"),
    ] {
        for command in ["ledger", "events", "check"] {
            let output = crate::harness::postonce().args([command, "--database"]).arg(&path).output().unwrap();
            let told = String::from_utf8_lossy(&output.stderr).into_owned();
            let named = told.contains(what) && told.contains(path.to_str().unwrap()) && told.contains("try:");
            assert!(output.status.code() == Some(3) && named, "{command} {}: {told}", path.display());
        }
    }
}
