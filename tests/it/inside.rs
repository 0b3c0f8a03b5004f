//! The engine without its server: what can only be arranged from inside, such as two workers with one claim, and effects
//! that take too long.

use crate::harness::{Folder, SECRET, eventually, sign, stripe};
use postonce::config::Loaded;
use postonce::engine::{self, Engine, Parts, Waking};
use postonce::error::Error;
use postonce::event::Meaning;
use postonce::providers::signature::Delivery;
use postonce::source::{Effect, Source};
use postonce::steps::claim::{Claimed, Prepared, Won, claim};
use postonce::steps::read::{self, Read};
use postonce::steps::receive::{Received, receive};
use postonce::steps::{apply, sweep};
use postonce::store::gate::Intake;
use postonce::store::{Options, check, open_for_reading, raw};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// An engine in a folder of its own.
pub struct Inside {
    /// The engine, started or not. Stops before its folder is gone.
    pub engine: Engine,
    /// Its folder; gone with it.
    pub folder: Folder,
}

impl Inside {
    /// With a source `stripe` and one endpoint that nobody listens on.
    pub fn open(change: impl FnOnce(&mut Source)) -> (Inside, Waking) {
        let folder = Folder::new();
        std::fs::write(folder.join("secret"), SECRET).unwrap();
        let place = folder.join("secret").display().to_string();
        let text = format!(
            "[[source]]\nname = \"stripe\"\nsecrets = [\"file:{place}\"]\n[[deliver]]\nname = \"app\"\nurl = \"http://127.0.0.1:9/\"\n"
        );
        let (mut sources, endpoints) = engine::build(&Loaded::parse(text).unwrap()).unwrap();
        change(&mut sources[0]);
        let (engine, waking) =
            Engine::open(&folder.join("inside.db"), sources, endpoints, &Options::default()).unwrap();
        (Inside { folder, engine }, waking)
    }

    /// With an effect, and started.
    pub fn start(effect: Option<Effect>) -> Inside {
        let (inside, waking) = Inside::open(|source| effect.into_iter().for_each(|e| source.add_effect(e)));
        inside.engine.start(waking, Parts::ALL).unwrap();
        inside
    }

    fn source(&self) -> &Arc<Source> {
        &self.engine.shared().sources["stripe"]
    }

    /// Receives a signed body; gives its raw event, once it is durable, and how long that took.
    pub fn receive(&self, body: &str) -> (i64, Duration) {
        let headers = sign("stripe", SECRET, body.as_bytes(), &[]);
        let headers: Vec<(&str, &[u8])> = headers.iter().map(|(n, v)| (n.as_str(), v.as_bytes())).collect();
        let path = "/webhooks/stripe";
        let delivery =
            Delivery { method: "POST", url: path, path, query: "", headers: &headers, body: body.as_bytes() };
        let (told, tell) = mpsc::channel();
        let began = Instant::now();
        let Received::Keep(raw) = receive(self.source(), &delivery) else { panic!("it was refused") };
        let shared = self.engine.shared().clone();
        let done = Box::new(move |kept: Result<i64, Error>| {
            shared.wake();
            told.send(kept).unwrap();
        });
        self.engine.shared().store.gate().keep(Intake { raw, since: std::time::Instant::now(), done });
        (tell.recv().unwrap().unwrap(), began.elapsed())
    }

    /// Reads a raw event as the worker does.
    fn prepared(&self, id: i64) -> Prepared {
        let (due, body) = self
            .engine
            .shared()
            .store
            .read(|conn| Ok((raw::get(conn, id)?.unwrap(), raw::body(conn, id)?.unwrap())))
            .unwrap();
        let mut events = read::events(self.source(), &body, due.origin, due.received_at);
        let Read::Event(event) = read::one(&mut events, 0) else { panic!("a batch") };
        assert!(matches!(event.meaning, Meaning::Effects { .. }));
        Prepared { due, source: self.source().clone(), event: Arc::new(*event), counted: false }
    }

    fn won(&self, id: i64) -> Won {
        let prepared = self.prepared(id);
        match self.engine.shared().store.write(move |tx| claim(tx, &prepared)).unwrap() {
            Claimed::Won(won) => *won,
            Claimed::Ended(state) => panic!("it ended as {state:?}"),
        }
    }

    fn apply(&self, won: &Won) -> Result<(), Error> {
        let won = won.clone();
        self.engine.shared().store.write(move |tx| apply::apply(tx, &won).map(|_| ()))
    }

    /// A number from the database.
    pub fn count(&self, sql: &str) -> i64 {
        self.engine.shared().store.read(|conn| Ok(conn.query_row(sql, [], |r| r.get(0))?)).unwrap()
    }

    /// Attempts to apply that have failed.
    fn attempts(&self) -> u64 {
        self.engine.shared().counts.failed_attempts.load(Relaxed)
    }

    /// Nothing is wrong with the file.
    pub fn check(&self) {
        let offences = check::run(&open_for_reading(&self.folder.join("inside.db")).unwrap()).unwrap();
        assert!(offences.is_empty(), "{offences:?}");
    }
}

#[test]
fn a_slow_worker_cannot_commit_after_the_sweep() {
    let (inside, _waking) = Inside::open(|_| {});
    let (id, _) = inside.receive(&stripe::charge("evt_1", "pi_1", 100));
    let slow = inside.won(id);
    // Its lease is over; the sweep gives the event to another worker.
    assert_eq!(sweep::at_start(&inside.engine.shared().store).unwrap(), 1);
    let other = inside.won(id);
    assert!(other.fence > slow.fence);
    assert!(matches!(inside.apply(&slow), Err(Error::LostClaim)), "the slow one commits before the other");
    assert_eq!(inside.count("SELECT count(*) FROM postonce_journal"), 0, "its writes are undone");
    assert_eq!(inside.count("SELECT count(*) FROM postonce_outbox"), 0);
    inside.apply(&other).unwrap();
    assert!(matches!(inside.apply(&slow), Err(Error::LostClaim)), "the slow one commits after the other");
    assert!(matches!(inside.apply(&other), Err(Error::LostClaim)), "the other commits twice");
    assert_eq!(inside.count("SELECT count(*) FROM postonce_journal"), 1);
    assert_eq!(inside.count("SELECT count(*) FROM postonce_outbox"), 1);
    assert_eq!(inside.count("SELECT count(*) FROM postonce_raw_events WHERE state = 'DONE'"), 1);
    inside.check();
}

/// Counts for ever: if it were not interrupted, nobody would be answered again.
const ENDLESS: &str = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n";

fn p99(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times[times.len() * 99 / 100]
}

#[test]
fn an_apply_over_its_budget_is_interrupted_and_no_answer_waits_for_more_than_one() {
    let endless: Effect = Arc::new(|tx, _| {
        tx.conn.execute_batch("CREATE TABLE IF NOT EXISTS app(x); INSERT INTO app VALUES (1)")?;
        Ok(tx.conn.query_row(ENDLESS, [], |_| Ok(()))?)
    });
    let (calm, slow) = (Inside::start(None), Inside::start(Some(endless)));
    let (mut calm_times, mut slow_times, mut waited_for) = (Vec::new(), Vec::new(), Vec::new());
    for n in 0..300 {
        let body = stripe::charge(&format!("evt_{n}"), &format!("pi_{n}"), 100);
        calm_times.push(calm.receive(&body).1);
        let before = slow.attempts();
        slow_times.push(slow.receive(&body).1);
        waited_for.push(slow.attempts() - before);
    }
    // One may be under way when the body comes; it goes into the next commit. (The count runs on while the answer is on its
    // way, so some see more: not the half of them.)
    waited_for.sort();
    assert!(waited_for[150] <= 2, "applies that ended while a body waited: {waited_for:?}");
    eventually("an attempt fails", || (slow.count("SELECT max(attempts) FROM postonce_raw_events") > 0).then_some(()));
    eventually("it says why", || {
        let sql = "SELECT count(*) FROM postonce_raw_events WHERE reason LIKE '%longer than its budget%'";
        (slow.count(sql) > 0).then_some(())
    });
    assert_eq!(slow.count("SELECT count(*) FROM postonce_journal"), 0, "nothing of it is kept");
    assert_eq!(slow.count("SELECT count(*) FROM postonce_outbox"), 0);
    assert_eq!(slow.count("SELECT count(*) FROM sqlite_schema WHERE name = 'app'"), 0, "not the app's part either");
    assert!(slow.attempts() > 0);
    let (calm_p99, slow_p99) = (p99(calm_times), p99(slow_times));
    println!("p99 of the acknowledgement: {calm_p99:?} in peace, {slow_p99:?} with applies that never end");
    calm.check();
    slow.check();
}

#[test]
fn an_effect_that_fails_or_panics_undoes_everything_and_hurts_nobody_else() {
    let moody: Effect = Arc::new(|tx, now| {
        tx.conn.execute_batch("CREATE TABLE IF NOT EXISTS app(x); INSERT INTO app VALUES (1)")?;
        match now.won.event.id.as_deref() {
            Some("evt_error") => Err(Error::Apply("no such customer".into())),
            Some("evt_panic") => panic!("a bug of the app"),
            _ => Ok(()),
        }
    });
    let inside = Inside::start(Some(moody));
    for event in ["evt_error", "evt_panic"] {
        inside.receive(&stripe::charge(event, &format!("pi_{event}"), 100));
        let (id, _) = inside.receive(&stripe::charge(&format!("{event}_after"), &format!("pi_{event}_after"), 100));
        let done = format!("SELECT count(*) FROM postonce_raw_events WHERE state = 'DONE' AND id = {id}");
        eventually("the next one is posted", || (inside.count(&done) == 1).then_some(()));
    }
    let failed =
        "SELECT count(*) FROM postonce_raw_events WHERE attempts > 0 AND state <> 'DONE' AND reason IS NOT NULL";
    eventually("each failure is noted", || (inside.count(failed) == 2).then_some(()));
    assert_eq!(inside.count("SELECT count(*) FROM postonce_journal"), 2);
    assert_eq!(inside.count("SELECT count(*) FROM app"), 2);
    inside.check();
}

#[test]
fn an_effect_that_takes_its_time_without_sql_is_undone_afterwards_and_all_others_go_on() {
    let slow: Effect = Arc::new(|tx, now| {
        tx.conn.execute_batch("CREATE TABLE IF NOT EXISTS app(x); INSERT INTO app VALUES (1)")?;
        if now.won.event.id.as_deref() == Some("evt_slow") {
            let until = Instant::now() + Duration::from_millis(400);
            while Instant::now() < until {
                std::hint::spin_loop();
            }
        }
        Ok(())
    });
    let inside = Inside::start(Some(slow));
    let (slow, _) = inside.receive(&stripe::charge("evt_slow", "pi_slow", 100));
    for n in 0..30 {
        inside.receive(&stripe::charge(&format!("evt_{n}"), &format!("pi_{n}"), 100));
    }
    let others = format!("SELECT count(*) FROM postonce_raw_events WHERE state = 'DONE' AND id <> {slow}");
    eventually("all others are posted", || (inside.count(&others) == 30).then_some(()));
    let told = format!(
        "SELECT count(*) FROM postonce_raw_events WHERE id = {slow} AND state = 'RECEIVED' AND attempts > 0 AND reason LIKE '%longer than its budget%'"
    );
    eventually("it says why", || (inside.count(&told) == 1).then_some(()));
    assert_eq!(inside.count("SELECT count(*) FROM postonce_journal"), 30);
    assert_eq!(inside.count("SELECT count(*) FROM app"), 30, "what it wrote is undone with it");
    inside.check();
}

#[test]
fn an_engine_that_is_opened_and_stopped_again_and_again_leaves_no_file_and_no_thread_behind() {
    let listed = |of: &str| -> Vec<std::path::PathBuf> {
        let all = std::fs::read_dir(of).unwrap().filter_map(|entry| Some(entry.ok()?.path()));
        all.filter_map(|path| std::fs::read_link(&path).ok().or(Some(path))).collect()
    };
    let round = |n: i64| {
        let inside = Inside::start(None);
        inside.receive(&stripe::charge(&format!("evt_{n}"), &format!("pi_{n}"), 100));
        eventually("it is posted", || (inside.count("SELECT count(*) FROM postonce_journal") == 1).then_some(()));
        inside.check();
    };
    (0..3).for_each(round);
    let (files, threads) = (listed("/proc/self/fd").len(), listed("/proc/self/task").len());
    (0..12).for_each(round);
    eventually("no more threads than before", || (listed("/proc/self/task").len() <= threads).then_some(()));
    let now = listed("/proc/self/fd");
    assert!(now.len() <= files, "{files} files before, now {}: {now:#?}", now.len());
}

#[test]
fn an_event_that_loses_the_transaction_for_all_takes_none_of_its_neighbours_with_it() {
    for (table, step) in [("postonce_claims", "claimed"), ("postonce_journal", "applied")] {
        let (inside, waking) = Inside::open(|_| {});
        // All of them before anybody takes them up: they come into one batch.
        let ids: Vec<i64> =
            (0..20).map(|n| inside.receive(&stripe::charge(&format!("evt_{n}"), &format!("pi_{n}"), 100)).0).collect();
        let file = rusqlite::Connection::open(inside.folder.join("inside.db")).unwrap();
        file.execute_batch(&format!(
            "CREATE TRIGGER app_refuses BEFORE INSERT ON {table} WHEN NEW.ref = 'pi_7'
               BEGIN SELECT RAISE(ROLLBACK, 'the app refuses it'); END"
        ))
        .unwrap();
        inside.engine.start(waking, Parts::ALL).unwrap();
        eventually("all but the one are posted", || {
            (inside.count("SELECT count(*) FROM postonce_journal") == 19).then_some(())
        });
        let more_than_once = "SELECT count(*) FROM postonce_raw_events WHERE attempts > 1 AND state = 'DONE'";
        assert_eq!(inside.count(more_than_once), 0, "a neighbour needed another attempt when it was to be {step}");
        let bad = format!(
            "SELECT count(*) FROM postonce_raw_events WHERE id = {} AND attempts > 0 AND reason LIKE '%the app refuses it%'",
            ids[7]
        );
        eventually("the one is put back with its reason", || (inside.count(&bad) == 1).then_some(()));
        file.execute_batch("DROP TRIGGER app_refuses").unwrap();
        eventually("it is posted too", || (inside.count("SELECT count(*) FROM postonce_journal") == 20).then_some(()));
        inside.check();
    }
}
