//! Inside an app: the credit in the app's own table and the record that it was given commit together, or not at all,
//! whatever the app's code and the app's file are up to.

use crate::harness::{Answer, Folder, SECRET, Server, Setup, eventually, has_faults, open_db, stripe};
use base64::Engine as _;
use postonce::rusqlite::Connection;
use postonce::{ApplyError, Builder, Outcome, Post, Postonce, Reply, Source, apply_once};
use serde_json::Value;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::time::{Duration, Instant};

const CREDIT: &str = "UPDATE users SET credits = credits + :amount WHERE stripe_id = :account";

/// An app with its file, two customers, and postonce inside.
struct App {
    folder: Folder,
    db: Connection,
}

impl App {
    fn new() -> App {
        let folder = Folder::new();
        let db = Connection::open(folder.join("app.db")).unwrap();
        db.busy_timeout(Duration::from_secs(10)).unwrap();
        db.execute_batch(
            "PRAGMA page_size = 8192; PRAGMA user_version = 42; PRAGMA application_id = 77; PRAGMA journal_mode = WAL;
             CREATE TABLE users(id INTEGER PRIMARY KEY, stripe_id TEXT UNIQUE, credits INTEGER NOT NULL DEFAULT 0
               CHECK (credits < 1000000));
             CREATE TABLE other(what TEXT);
             INSERT INTO users(stripe_id) VALUES ('cus_1'), ('cus_2'), ('cus_3');",
        )
        .unwrap();
        App { folder, db }
    }

    fn file(&self) -> PathBuf {
        self.folder.join("app.db")
    }

    fn builder(&self) -> Builder {
        Postonce::builder(self.file())
    }

    /// One source whose rule is this TOML, started.
    fn with_rule(&self, rule: &str) -> Postonce {
        let postonce = self.builder().config_text(&self.source("stripe", rule)).open().unwrap();
        postonce.start().unwrap();
        postonce
    }

    /// A source of Stripe's that answers when applied, as a configuration.
    fn source(&self, name: &str, rest: &str) -> String {
        self.source_of(name, "stripe", rest)
    }

    fn source_of(&self, name: &str, provider: &str, rest: &str) -> String {
        let secret = self.folder.join("secret");
        std::fs::write(&secret, SECRET).unwrap();
        let secret = format!("file:{}", secret.display());
        format!(
            "[[source]]\nname = {name:?}\nprovider = {provider:?}\nack = \"applied\"\nsecrets = [{secret:?}]\n{rest}\n"
        )
    }

    fn credits(&self, customer: &str) -> i64 {
        self.db.query_row("SELECT credits FROM users WHERE stripe_id = ?1", [customer], |r| r.get(0)).unwrap()
    }

    /// State and reason of a raw event.
    fn state(&self, id: i64) -> (String, String) {
        let sql = "SELECT state, ifnull(reason, '') FROM postonce_raw_events WHERE id = ?1";
        self.db.query_row(sql, [id], |r| Ok((r.get(0)?, r.get(1)?))).unwrap()
    }

    fn count(&self, sql: &str) -> i64 {
        self.db.query_row(sql, [], |r| r.get(0)).unwrap()
    }

    /// Credits are what the ledger says, and every truth holds.
    fn agrees(&self) {
        let differ = self.count(
            "SELECT count(*) FROM users u WHERE credits <> (SELECT ifnull(sum(amount), 0) FROM postonce_journal
             WHERE kind = 'payment' AND account = u.stripe_id)",
        );
        assert_eq!(differ, 0, "customers whose credits are not what the ledger says");
        let offences = postonce::store::check::run(&open_db(&self.file())).unwrap();
        assert!(offences.is_empty(), "{:?}", offences.iter().map(|o| &o.what).collect::<Vec<_>>());
    }
}

/// A charge of this customer.
fn paid_by(event: &str, payment: &str, customer: &str, amount: i64) -> String {
    stripe::charge(event, payment, amount).replace("\"cus_1\"", &format!("{customer:?}"))
}

/// A rule on payments.
fn rule(sql: &str) -> String {
    format!("[[source.effect]]\non = [\"payment\"]\nsql = {}\n", serde_json::to_string(sql).unwrap())
}

fn send(postonce: &Postonce, source: &str, body: &str) -> Reply {
    let headers = postonce.sign(source, body).unwrap();
    postonce.receive(source, headers.iter().map(|(n, v)| (n, v)), body)
}

fn json(reply: &Reply) -> Value {
    serde_json::from_slice(&reply.body).unwrap()
}

#[track_caller]
fn is(reply: &Reply, status: u16, word: &str) -> i64 {
    let body = json(reply);
    assert_eq!((reply.status, body["status"].as_str().or(body["error"].as_str())), (status, Some(word)), "{body}");
    body["id"].as_i64().unwrap_or(0)
}

#[test]
fn a_rule_credits_once_whatever_is_delivered_ten_times() {
    let app = App::new();
    let postonce = app.with_rule(&(rule(CREDIT) + "expect_rows = 1\n"));
    let body = paid_by("evt_1", "pi_1", "cus_1", 500);
    let first = send(&postonce, "stripe", &body);
    is(&first, 200, "processed");
    assert_eq!(json(&first)["entry"]["amount"], 500);
    for _ in 0..9 {
        let again = send(&postonce, "stripe", &body);
        is(&again, 200, "duplicate");
        assert_eq!(json(&again)["entry"], json(&first)["entry"], "the stored result");
    }
    assert_eq!(app.credits("cus_1"), 500);
    app.agrees();
}

#[test]
fn rules_that_do_not_fit_the_file_are_refused_at_the_start_with_their_statement() {
    let app = App::new();
    for (sql, word) in [
        ("UPDATE user SET credits = 1", "no such table: user"),
        ("UPDATE users SET credit = :amount", "no such column: credit"),
        ("UPDATE users SET credits = :amuont", ":amuont"),
        ("UPDAT users SET credits = 1", "syntax error"),
        ("DELETE FROM postonce_journal", "not allowed"),
        ("INSERT INTO other SELECT hash FROM postonce_journal", "not allowed"),
        ("UPDATE users SET credits = 1; COMMIT", "not allowed"),
        ("ATTACH 'other.db' AS o", "not allowed"),
        ("PRAGMA user_version = 1", "not allowed"),
        ("DROP TABLE users", "not allowed"),
        ("SELECT * FROM users", "changes nothing"),
        ("UPDATE users SET credits = :customer", ":customer"),
    ] {
        let refused = app.builder().config_text(&app.source("stripe", &rule(sql))).open();
        let text = refused.err().expect(sql).to_string();
        let statement = sql.rsplit("; ").next().unwrap();
        assert!(text.contains(word) && text.contains(statement), "{sql}: {text}");
    }
    let text =
        app.source("stripe", &(rule(CREDIT) + "operation_key = \"{ordr}\"\nreceipt = \"nobody\"\naccount = \"\"\n"));
    let text = app.builder().config_text(&text).open().err().expect("three faults").to_string();
    for word in ["{ordr}", "nobody", "account"] {
        assert!(text.contains(word), "{word}: {text}");
    }
}

/// Twelve customers' worth of trouble: what a closure does for cus_2 must not touch cus_1 and cus_3.
#[test]
fn a_misbehaving_closure_harms_only_its_own_event() {
    type Misdeed = fn(&postonce::ApplyTx<'_>) -> Result<(), ApplyError>;
    let misdeeds: [(&str, Misdeed); 12] = [
        ("commits", |tx| Ok(tx.sql().execute_batch("COMMIT")?)),
        ("commits through the cache", |tx| Ok(tx.sql().prepare_cached("COMMIT")?.execute([]).map(|_| ())?)),
        ("swallows the error of a commit through the cache", |tx| {
            let _ = tx.sql().prepare_cached("COMMIT").and_then(|mut s| s.execute([]));
            Ok(())
        }),
        ("rolls back by a conflict clause", |tx| {
            let _ = tx.sql().execute_batch("INSERT OR ROLLBACK INTO users(stripe_id) VALUES ('cus_1')");
            Ok(())
        }),
        ("touches our tables", |tx| Ok(tx.sql().execute_batch("DELETE FROM postonce_claims")?)),
        ("attaches", |tx| Ok(tx.sql().execute_batch("ATTACH ':memory:' AS other")?)),
        ("drops a table", |tx| Ok(tx.sql().execute_batch("DROP TABLE users")?)),
        ("has a syntax error", |tx| Ok(tx.sql().execute_batch("UPDATE users SOT credits = 1")?)),
        ("names a missing column", |tx| Ok(tx.sql().execute_batch("UPDATE users SET credit = 1")?)),
        ("breaks a constraint", |tx| Ok(tx.sql().execute_batch("UPDATE users SET credits = 1000000")?)),
        ("panics", |_| panic!("the app's bug")),
        ("runs for ever", |tx| {
            let forever =
                "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) INSERT INTO other SELECT i FROM n";
            Ok(tx.sql().execute_batch(forever)?)
        }),
    ];
    for (name, misdeed) in misdeeds {
        let app = App::new();
        let opened = app.builder().source(Source::new("stripe").secret(SECRET)).apply(move |tx, event| {
            for paid in event.movements("payment") {
                let sql = "UPDATE users SET credits = credits + ?1 WHERE stripe_id = ?2";
                tx.sql().execute(sql, (paid.amount, &paid.account))?;
                if paid.account.as_deref() == Some("cus_2") {
                    misdeed(tx)?;
                }
            }
            Ok(())
        });
        let postonce = opened.open().unwrap();
        // All three wait when the threads start, so that they share a batch.
        let ids: Vec<i64> = (1..=3)
            .map(|n| {
                let body = paid_by(&format!("evt_{n}"), &format!("pi_{n}"), &format!("cus_{n}"), 100);
                is(&send(&postonce, "stripe", &body), 200, "stored")
            })
            .collect();
        postonce.start().unwrap();
        eventually(name, || (app.state(ids[0]).0 == "DONE" && app.state(ids[2]).0 == "DONE").then_some(()));
        eventually(name, || (!app.state(ids[1]).1.is_empty()).then_some(()));
        assert_ne!(app.state(ids[1]).0, "DONE", "{name}");
        assert_eq!((app.credits("cus_1"), app.credits("cus_2"), app.credits("cus_3")), (100, 0, 100), "{name}");
        assert_eq!(app.count("SELECT count(*) FROM postonce_journal"), 2, "{name}");
        postonce.stop();
        app.agrees();
    }
}

#[test]
fn a_rejected_event_is_dead_at_once_and_a_retried_one_is_done_in_the_end() {
    let app = App::new();
    let tries = Arc::new(AtomicU32::new(0));
    let counted = tries.clone();
    let source = Source::new("stripe").secret(SECRET).answer_when_applied();
    let opened = app.builder().source(source).apply(move |tx, event| {
        for paid in event.movements("*") {
            if paid.account.as_deref() == Some("cus_2") {
                return Err(ApplyError::Reject("cus_2 is not ours".into()));
            }
            if counted.fetch_add(1, SeqCst) == 0 {
                return Err(ApplyError::Retry("not in the mood".into()));
            }
            let sql = "UPDATE users SET credits = credits + ?1 WHERE stripe_id = ?2";
            tx.sql().execute(sql, (paid.amount, &paid.account))?;
        }
        Ok(())
    });
    let postonce = opened.open().unwrap();
    postonce.start().unwrap();
    let rejected = send(&postonce, "stripe", &paid_by("evt_2", "pi_2", "cus_2", 100));
    is(&rejected, 500, "failed");
    assert_eq!(app.state(1), ("DEAD".into(), "cus_2 is not ours".into()));
    let body = paid_by("evt_1", "pi_1", "cus_1", 100);
    is(&send(&postonce, "stripe", &body), 500, "failed");
    let meanwhile = send(&postonce, "stripe", &body);
    is(&meanwhile, 409, "in_flight");
    assert!(meanwhile.headers.iter().any(|(name, _)| *name == "Retry-After"), "{meanwhile:?}");
    assert_eq!(app.credits("cus_1"), 0);
    eventually("it is tried again", || (app.state(2).0 == "DONE").then_some(()));
    is(&send(&postonce, "stripe", &body), 200, "duplicate");
    assert_eq!((tries.load(SeqCst), app.credits("cus_1")), (2, 100));
    postonce.stop();
    app.agrees();
}

#[test]
fn a_payment_that_leads_its_customer_waits_for_them_and_is_credited_once() {
    let app = App::new();
    let text = "[[source.effect]]\non = [\"payment\"]\naccount = \"SELECT id FROM users WHERE stripe_id = :account\"
        sql = \"UPDATE users SET credits = credits + :amount WHERE id = :customer\"\nexpect_rows = 1";
    let postonce = app.with_rule(text);
    let body = paid_by("evt_1", "pi_1", "cus_77", 2000);
    let id = is(&send(&postonce, "stripe", &body), 200, "parked");
    let (state, reason) = app.state(id);
    assert!(state == "PARKED" && reason.contains("no account") && reason.contains("cus_77"), "{state}: {reason}");
    assert_eq!(app.count("SELECT count(*) FROM postonce_journal"), 0);
    app.db.execute("INSERT INTO users(stripe_id) VALUES ('cus_77')", []).unwrap();
    eventually("the customer is there", || (app.state(id).0 == "DONE").then_some(()));
    assert_eq!(app.credits("cus_77"), 2000);
    is(&send(&postonce, "stripe", &body), 200, "duplicate");
    postonce.stop();
    app.agrees();
}

#[test]
fn a_table_that_vanishes_parks_events_which_resume_when_it_is_back() {
    let app = App::new();
    let postonce = app.with_rule(&rule(CREDIT));
    is(&send(&postonce, "stripe", &paid_by("evt_1", "pi_1", "cus_1", 100)), 200, "processed");
    app.db.execute_batch("ALTER TABLE users RENAME TO users_old").unwrap();
    is(&send(&postonce, "stripe", &paid_by("evt_2", "pi_2", "cus_1", 50)), 200, "parked");
    assert!(app.state(2).1.contains("no such table: users"), "{:?}", app.state(2));
    app.db.execute_batch("ALTER TABLE users_old RENAME TO users").unwrap();
    eventually("the table is back", || (app.state(2).0 == "DONE").then_some(()));
    assert_eq!(app.credits("cus_1"), 150);
    postonce.stop();
    app.agrees();
}

#[test]
fn money_that_two_providers_announce_is_credited_once_by_its_operation() {
    let app = App::new();
    let rest = rule(CREDIT) + "operation_key = \"order-{body.data.object.metadata.order}\"\n";
    let text = app.source("stripe", &rest) + &app.source_of("other", "stripe_like", &rest);
    let folder = app.folder.join("providers");
    std::fs::create_dir(&folder).unwrap();
    let toml = include_str!("../../src/providers/stripe.toml");
    std::fs::write(
        folder.join("stripe_like.toml"),
        toml.replacen("provider = \"stripe\"", "provider = \"stripe_like\"", 1),
    )
    .unwrap();
    let text = format!("providers_dir = {folder:?}\n{text}");
    let postonce = app.builder().config_text(&text).open().unwrap();
    postonce.start().unwrap();
    let body = |event: &str, payment: &str, amount: i64| {
        paid_by(event, payment, "cus_1", amount).replacen(
            "\"customer\"",
            "\"metadata\":{\"order\":\"17\"},\"customer\"",
            1,
        )
    };
    is(&send(&postonce, "stripe", &body("evt_1", "pi_1", 300)), 200, "processed");
    let second = is(&send(&postonce, "other", &body("evt_9", "pi_9", 300)), 200, "processed");
    assert_eq!(app.state(second).1, "no effect: operation order-17 took place with raw event 1");
    assert_eq!(app.credits("cus_1"), 300);
    assert_eq!(app.count("SELECT count(*) FROM postonce_journal"), 2, "each provider's ledger says what it says");
    is(&send(&postonce, "other", &body("evt_10", "pi_10", 301)), 200, "conflict");
    is(&send(&postonce, "stripe", &paid_by("evt_11", "pi_11", "cus_1", 5)), 200, "parked");
    assert_eq!(app.credits("cus_1"), 300);
    assert_eq!(app.count("SELECT count(*) FROM postonce_journal"), 2);
    postonce.stop();
    let offences = postonce::store::check::run(&open_db(&app.file())).unwrap();
    assert!(offences.is_empty(), "{:?}", offences.iter().map(|o| &o.what).collect::<Vec<_>>());
}

#[test]
fn money_that_a_person_and_a_provider_announce_is_credited_once_by_its_operation() {
    let mut app = App::new();
    let rest = rule(CREDIT) + "operation_key = \"order-{body.data.object.metadata.order}\"\n";
    let postonce = app.with_rule(&(rest + &rule("INSERT INTO other VALUES (:reference)")));
    let body = |n: u32| {
        let order = format!("\"metadata\":{{\"order\":\"{n}\"}},\"customer\"");
        paid_by(&format!("evt_{n}"), &format!("pi_{n}"), "cus_1", 300).replacen("\"customer\"", &order, 1)
    };
    let credit = |tx: &postonce::store::once::Once<'_>| {
        tx.sql().execute("UPDATE users SET credits = credits + 300 WHERE stripe_id = 'cus_1'", [])?;
        Ok(Value::from("by ann"))
    };
    // By hand first: the webhook posts what the provider will settle, and credits nothing.
    let by_hand = apply_once(&mut app.db, "operation/default/live/order-1", credit).unwrap();
    assert_eq!(by_hand, Outcome::Processed(Value::from("by ann")));
    let id = is(&send(&postonce, "stripe", &body(1)), 200, "processed");
    assert_eq!(app.credits("cus_1"), 300);
    let (state, reason) = app.state(id);
    assert!(state == "DONE" && reason.contains("operation order-1 was done by hand"), "{state} {reason}");
    assert_eq!(app.count("SELECT count(*) FROM postonce_journal WHERE ref = 'pi_1'"), 1);
    assert_eq!(app.count("SELECT count(*) FROM other"), 1, "a rule without the key is not concerned");

    // The webhook first: whoever enters it by hand is told, by the library and by plain SQL.
    is(&send(&postonce, "stripe", &body(2)), 200, "processed");
    let by_hand = apply_once(&mut app.db, "operation/default/live/order-2", credit).unwrap();
    assert!(matches!(&by_hand, Outcome::Duplicate(done) if done["entry"] == 2), "{by_hand:?}");
    let note = |n: u32| {
        format!(
            "INSERT INTO postonce_once(key, at, result) VALUES ('operation/default/live/order-{n}', unixepoch() * 1000, '\"by ann\"')"
        )
    };
    assert!(app.db.execute_batch(&note(2)).is_err());
    assert_eq!(app.credits("cus_1"), 600);

    // In plain SQL first.
    app.db.execute_batch(&note(3)).unwrap();
    is(&send(&postonce, "stripe", &body(3)), 200, "processed");
    assert_eq!(app.credits("cus_1"), 600);
    postonce.stop();
}

#[test]
fn an_effect_on_a_type_without_money_runs_once() {
    let app = App::new();
    let text = "[[source.effect]]\non = [\"customer.created\"]\nsql = \"INSERT INTO other VALUES (:event_type)\"";
    let postonce = app.with_rule(text);
    let body = stripe::charge("evt_1", "pi_1", 1).replace("charge.succeeded", "customer.created");
    let body = body.replace("payment_intent.succeeded", "customer.created");
    is(&send(&postonce, "stripe", &body), 200, "processed");
    is(&send(&postonce, "stripe", &body), 200, "duplicate");
    let other = body.replace("customer.created", "customer.updated").replace("evt_1", "evt_2");
    is(&send(&postonce, "stripe", &other), 200, "ignored");
    assert_eq!(app.count("SELECT count(*) FROM other WHERE what = 'customer.created'"), 1);
    assert_eq!(app.count("SELECT count(*) FROM other"), 1);
}

#[test]
fn an_extra_entry_and_a_message_of_the_apps_own_commit_with_the_event() {
    let app = App::new();
    let source = Source::new("stripe").secret(SECRET).answer_when_applied();
    let opened = app.builder().source(source).deliver("mail", "http://127.0.0.1:9/", None).apply(|tx, event| {
        for paid in event.movements("payment") {
            tx.post(Post {
                kind: "credit",
                reference: "bonus-1",
                amount: 10,
                currency: "USD",
                account: paid.account.as_deref(),
                ..Post::default()
            })?;
            tx.enqueue("mail", "welcome", &serde_json::json!({ "hello": paid.account }))?;
            if paid.amount == 666 {
                tx.enqueue("nobody", "x", &())?;
            }
        }
        Ok(())
    });
    let postonce = opened.open().unwrap();
    postonce.start().unwrap();
    is(&send(&postonce, "stripe", &paid_by("evt_1", "pi_1", "cus_1", 100)), 200, "processed");
    is(&send(&postonce, "stripe", &paid_by("evt_2", "pi_2", "cus_1", 100)), 200, "processed");
    is(&send(&postonce, "stripe", &paid_by("evt_3", "pi_3", "cus_1", 666)), 500, "failed");
    assert_eq!(app.count("SELECT count(*) FROM postonce_journal WHERE kind = 'credit' AND amount = 10"), 1);
    assert_eq!(app.count("SELECT count(*) FROM postonce_outbox WHERE key = 'mail/default/welcome'"), 1);
    assert_eq!(app.count("SELECT count(*) FROM postonce_journal WHERE ref = 'pi_3'"), 0);
    postonce.stop();
    let offences = postonce::store::check::run(&open_db(&app.file())).unwrap();
    assert!(offences.is_empty(), "{:?}", offences.iter().map(|o| &o.what).collect::<Vec<_>>());
}

#[test]
fn a_receipt_is_written_once_for_each_payment_to_whom_the_rule_says() {
    let app = App::new();
    let rest = rule(CREDIT) + "receipt = \"mail\"\nto = \"{body.data.object.receipt_email}\"\n";
    let text = app.source("stripe", &rest) + "[[deliver]]\nname = \"mail\"\nurl = \"http://127.0.0.1:9/\"\non = []\n";
    let postonce = app.builder().config_text(&text).open().unwrap();
    postonce.start().unwrap();
    let body = paid_by("evt_1", "pi_1", "cus_1", 100);
    let mailed = body.replacen("\"customer\"", "\"receipt_email\":\"ann@example.com\",\"customer\"", 1);
    for _ in 0..2 {
        send(&postonce, "stripe", &mailed);
    }
    is(&send(&postonce, "stripe", &paid_by("evt_2", "pi_2", "cus_1", 100)), 200, "processed");
    let (count, payload): (i64, String) = app
        .db
        .query_row("SELECT count(*), max(payload) FROM postonce_outbox", [], |r| Ok((r.get(0)?, r.get(1)?)))
        .unwrap();
    let payload: Value = serde_json::from_str(&payload).unwrap();
    assert_eq!((count, &payload["to"], &payload["data"]["amount"]), (1, &"ann@example.com".into(), &100.into()));
    postonce.stop();
    app.agrees();
}

#[test]
fn nothing_that_lasts_in_the_apps_file_is_changed() {
    let app = App::new();
    let settings = ["page_size", "user_version", "application_id", "auto_vacuum", "journal_mode", "encoding"];
    let read = |db: &Connection| -> Vec<String> {
        let value =
            |name: &&str| db.query_row(&format!("PRAGMA {name}"), [], |r| r.get_ref(0).map(|v| format!("{v:?}")));
        settings.iter().map(|name| value(name).unwrap()).collect()
    };
    let before = read(&app.db);
    let postonce = app.with_rule(&rule(CREDIT));
    is(&send(&postonce, "stripe", &paid_by("evt_1", "pi_1", "cus_1", 100)), 200, "processed");
    postonce.stop();
    drop(postonce);
    assert_eq!(read(&Connection::open(app.file()).unwrap()), before);
    // A file that is not in WAL is switched only when that is asked for.
    let file = app.folder.join("old.db");
    let mode =
        || Connection::open(&file).unwrap().query_row("PRAGMA journal_mode", [], |r| r.get::<_, String>(0)).unwrap();
    Connection::open(&file).unwrap().execute_batch("CREATE TABLE users(stripe_id TEXT)").unwrap();
    let text = Postonce::builder(&file).open().err().expect("it is not ours").to_string();
    assert!(text.contains("journal mode delete"), "{text}");
    assert_eq!(mode(), "delete");
    Postonce::builder(&file).adopt().open().unwrap();
    assert_eq!(mode(), "wal");
}

#[test]
fn while_the_app_holds_the_lock_senders_get_503_in_time_and_nothing_is_lost() {
    let app = App::new();
    let postonce = app.with_rule(&rule(CREDIT));
    app.db.execute_batch("BEGIN IMMEDIATE; UPDATE users SET credits = credits + 0").unwrap();
    let body = paid_by("evt_1", "pi_1", "cus_1", 100);
    let began = Instant::now();
    let reply = send(&postonce, "stripe", &body);
    // its own wait for the lock, after that of a write that was waiting already
    assert!(began.elapsed() < Duration::from_secs(4), "{:?}", began.elapsed());
    is(&reply, 503, "unavailable");
    assert!(reply.headers.iter().any(|(name, _)| *name == "Retry-After"), "{reply:?}");
    app.db.execute_batch("COMMIT").unwrap();
    is(&send(&postonce, "stripe", &body), 200, "processed");
    let figures = postonce.shared().store.gate().figures();
    assert!(figures.lock_timeouts.load(SeqCst) > 0 && figures.lock_wait_us.load(SeqCst) > 1_000_000);
    postonce.stop();
    app.agrees();
}

#[test]
fn a_reader_of_the_app_that_never_ends_slows_no_answer() {
    let app = App::new();
    let postonce = app.with_rule(&rule(CREDIT));
    let reader = Connection::open(app.file()).unwrap();
    reader.execute_batch("BEGIN; SELECT * FROM users").unwrap();
    let mut took = Vec::new();
    for n in 0..280 {
        // Bodies that do not compress, so that the log grows past every threshold.
        let mut noise = vec![0; 520_000];
        rand::fill(&mut noise[..]);
        let noise = base64::engine::general_purpose::STANDARD.encode(noise);
        let body = paid_by(&format!("evt_{n}"), &format!("pi_{n}"), "cus_1", 1);
        let body = body.replacen("\"customer\"", &format!("\"x\":\"{noise}\",\"customer\""), 1);
        let began = Instant::now();
        is(&send(&postonce, "stripe", &body), 200, "processed");
        took.push(began.elapsed());
    }
    // No absolute time: with all of the log held, an answer takes what it took when there was almost none of it.
    let figures = postonce.shared().store.gate().figures();
    let pages = figures.wal_pages.load(SeqCst);
    assert!(pages > 16_000, "readers were never waited for: {pages} pages in the log");
    let (first, last) = took.split_at_mut(140);
    first.sort();
    last.sort();
    println!("half of the answers took {:?}, with a log of {pages} pages {:?}", first[70], last[70]);
    assert!(last[70] < first[70] * 4, "half of the answers took {:?}, then {:?}", first[70], last[70]);
    assert_eq!(figures.lock_timeouts.load(SeqCst), 0);
    drop(reader);
    postonce.stop();
    app.agrees();
}

#[test]
fn over_http_too_an_answer_after_the_effect_tells_the_result() {
    let config = "[[source]]\nname = \"stripe\"\nack = \"applied\"\nsecrets = [\"env:SECRET_STRIPE\"]\n";
    let server = Setup::config(config).env("SECRET_STRIPE", SECRET).start();
    let body = stripe::charge("evt_1", "pi_1", 700);
    let first = server.send("stripe", &body).is(200);
    let again = server.send("stripe", &body).is(200);
    let read = |answer: &Answer| -> Value { serde_json::from_str(&answer.body).unwrap() };
    assert_eq!((&read(&first)["status"], &read(&again)["status"]), (&"processed".into(), &"duplicate".into()));
    assert_eq!(read(&first)["entry"], read(&again)["entry"]);
    assert_eq!(read(&first)["entry"]["amount"], 700);
    server.stop();
}

#[test]
fn what_a_server_does_beside_its_listeners_an_app_gets_too() {
    let app = App::new();
    let copies = app.folder.join("copies");
    let text = format!(
        "[backup]\ndir = {copies:?}\n[alerts]\ndisk_free_mb = {}\n[[alert]]\nname = \"ops\"\nurl = \"http://127.0.0.1:9/\"\non = [\"disk\"]\n",
        u32::MAX
    );
    let postonce = app.builder().config_text(&app.source("stripe", "")).config_text(&text).open().unwrap();
    assert!(!copies.exists(), "nothing moves before the start");
    postonce.start().unwrap();
    for _ in 0..2 {
        assert_eq!(send(&postonce, "stripe", &paid_by("evt_1", "pi_1", "cus_1", 100)).status, 200);
    }
    // counted once it is given, so a moment after we have it
    let counted = || postonce.shared().metrics.acknowledge.reading().iter().sum::<u64>();
    eventually("both answers are counted", || (counted() >= 2).then_some(()));
    let copy = eventually("a scheduled backup", || {
        let mut names = std::fs::read_dir(&copies).ok()?.flatten().map(|e| e.path());
        names.find(|path| path.extension().is_some_and(|end| end == "db"))
    });
    assert!(postonce::store::check::run(&open_db(&copy)).unwrap().is_empty());
    eventually("an alert, and its message", || {
        let told =
            "SELECT count(*) FROM postonce_alerts a, postonce_outbox o WHERE a.kind = 'disk' AND o.endpoint = 'ops'";
        (app.count(told) > 0).then_some(())
    });
    assert_eq!(counted(), 2, "each answer is counted once");
    postonce.stop();
}

#[test]
fn over_http_too_what_is_in_flight_gets_409_and_an_effect_that_fails_500_until_it_is_mended() {
    if !has_faults() {
        return;
    }
    let folder = Arc::new(Folder::new());
    let app = Connection::open(folder.join("postonce.db")).unwrap();
    app.execute_batch(
        "PRAGMA journal_mode = WAL; CREATE TABLE users(stripe_id TEXT PRIMARY KEY, credits INTEGER CHECK (credits < 1000));
         INSERT INTO users VALUES ('cus_1', 0)",
    )
    .unwrap();
    let config = format!(
        "[[source]]\nname = \"stripe\"\nack = \"applied\"\nsecrets = [\"env:SECRET_STRIPE\"]\n{}",
        rule(CREDIT)
    );
    let setup = Setup::config(&config).env("SECRET_STRIPE", SECRET).hold("before_read");
    let server = Server::start_in(folder, setup);
    let (small, large) = (stripe::charge("evt_1", "pi_1", 700), stripe::charge("evt_2", "pi_2", 5000));
    let status = |answer: &Answer| serde_json::from_str::<Value>(&answer.body).unwrap()["status"].clone();
    let held = server.send("stripe", &small).is(409);
    assert!(held.header("retry-after").is_some(), "{held:?}");
    assert!(held.body.contains("in_flight"), "{held:?}");
    server.release();
    server.settled();
    assert_eq!(status(&server.send("stripe", &small).is(200)), "duplicate");
    server.send("stripe", &large).is(500);
    let credits = || app.query_row("SELECT credits FROM users", [], |r| r.get::<_, i64>(0)).unwrap();
    assert_eq!((credits(), server.ledger().len()), (700, 1), "neither the credit nor the entry");
    app.execute_batch(
        "BEGIN; ALTER TABLE users RENAME TO old; CREATE TABLE users(stripe_id TEXT PRIMARY KEY, credits INTEGER);
         INSERT INTO users SELECT * FROM old; DROP TABLE old; COMMIT",
    )
    .unwrap();
    server.settled();
    assert_eq!((credits(), server.ledger().len()), (5700, 2), "it is tried again by itself");
    assert_eq!(status(&server.send("stripe", &large).is(200)), "duplicate");
    server.check();
}
