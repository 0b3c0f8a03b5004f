//! Beside an app: two processes on one file, both writing, both killed. The app's credits are what the ledger says.

use crate::harness::{Folder, SECRET, Server, Setup, Wire, eventually, sign, stripe};
use postonce::rusqlite::{Connection, ErrorCode};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};

const CONFIG: &str = r#"
[[source]]
name = "stripe"
secrets = ["env:SECRET_STRIPE"]
[[source.effect]]
on = ["payment"]
account = "SELECT id FROM users WHERE stripe_id = :account"
sql = "UPDATE users SET credits = credits + :amount WHERE id = :customer"
expect_rows = 1
"#;

const CUSTOMERS: u64 = 20;

fn is_long() -> bool {
    std::env::var_os("POSTONCE_LONG").is_some()
}

fn connect(file: &Path) -> Connection {
    let db = Connection::open(file).unwrap();
    db.busy_timeout(Duration::from_secs(10)).unwrap();
    db
}

/// The app's tables on the file that postonce will take.
fn app_in(folder: &Folder) {
    let db = connect(&folder.join("postonce.db"));
    db.execute_batch(
        "PRAGMA journal_mode = WAL;
         CREATE TABLE users(id INTEGER PRIMARY KEY, stripe_id TEXT UNIQUE, credits INTEGER NOT NULL DEFAULT 0,
           visits INTEGER NOT NULL DEFAULT 0);
         CREATE TABLE visits(id INTEGER PRIMARY KEY, user INTEGER NOT NULL);",
    )
    .unwrap();
    for n in 0..CUSTOMERS {
        db.execute("INSERT INTO users(stripe_id) VALUES (?1)", [format!("cus_{n}")]).unwrap();
    }
}

/// Returns at this moment: for senders that keep a pace, and for deaths at random moments.
fn at(moment: Instant) {
    while let Some(left) = moment.checked_duration_since(Instant::now()).filter(|left| !left.is_zero()) {
        std::thread::park_timeout(left);
    }
}

/// One transaction of the app's own. `Err`: it waited ten seconds for the lock in vain, or met a stale snapshot.
fn visit(db: &Connection, n: u64) -> Result<(), ErrorCode> {
    let user = (n % CUSTOMERS + 1) as i64;
    let run = || -> postonce::rusqlite::Result<()> {
        db.prepare_cached("BEGIN IMMEDIATE")?.execute([])?;
        db.prepare_cached("UPDATE users SET visits = visits + 1 WHERE id = ?1")?.execute([user])?;
        db.prepare_cached("INSERT INTO visits(user) VALUES (?1)")?.execute([user])?;
        db.prepare_cached("COMMIT")?.execute([]).map(|_| ())
    };
    run().map_err(|e| {
        let _ = db.execute_batch("ROLLBACK");
        e.sqlite_error_code().unwrap_or_else(|| panic!("{e}"))
    })
}

/// Every acknowledged payment is credited once, the ledger says the same, and the app's own rows add up.
fn agree(server: &Server, acknowledged: u64) {
    server.settled();
    let count = |sql: &str| server.count(sql);
    assert_eq!(
        count(
            "SELECT count(*) FROM users u WHERE credits <> (SELECT ifnull(sum(amount), 0) FROM postonce_journal
             WHERE account = u.stripe_id)"
        ),
        0,
        "customers whose credits are not what the ledger says"
    );
    assert_eq!(count("SELECT count(*) FROM postonce_journal"), acknowledged as i64, "events posted");
    assert_eq!(count("SELECT sum(credits) FROM users"), acknowledged as i64 * 7, "credits in all");
    // In one statement: the app goes on writing.
    assert_eq!(
        count("SELECT (SELECT count(*) FROM visits) - (SELECT sum(visits) FROM users)"),
        0,
        "the app's own rows"
    );
    server.check();
}

fn payment(n: u64) -> String {
    let customer = format!("\"cus_{}\"", n % CUSTOMERS);
    stripe::charge(&format!("evt_{n}"), &format!("pi_{n}"), 7).replace("\"cus_1\"", &customer)
}

#[test]
fn five_hundred_events_a_second_beside_an_app_that_writes_two_hundred_times_a_second() {
    const SENDERS: u64 = 10;
    let seconds = if is_long() { 20 } else { 3 };
    let events = 500 * seconds;
    let folder = Arc::new(Folder::new());
    app_in(&folder);
    let server = Server::start_in(folder, Setup::config(CONFIG).env("SECRET_STRIPE", SECRET));
    let ended = AtomicBool::new(false);
    let (wrote, busy) = (AtomicU64::new(0), AtomicU64::new(0));
    let began = Instant::now();
    let mut took: Vec<Duration> = std::thread::scope(|scope| {
        scope.spawn(|| {
            let db = connect(&server.database());
            let mut n = 0;
            while !ended.load(SeqCst) {
                match visit(&db, n) {
                    Ok(()) => wrote.fetch_add(1, SeqCst),
                    Err(_) => busy.fetch_add(1, SeqCst),
                };
                n += 1;
                let due = began + Duration::from_millis(n * 5);
                at(due);
            }
        });
        let senders: Vec<_> = (0..SENDERS)
            .map(|sender| {
                let server = &server;
                scope.spawn(move || {
                    let mut wire = Wire::to(server.public);
                    let mut took = Vec::new();
                    for n in (sender..events).step_by(SENDERS as usize) {
                        let due = began + Duration::from_millis(n * 2);
                        at(due);
                        let body = payment(n);
                        let headers = sign("stripe", SECRET, body.as_bytes(), &[]);
                        let sent = Instant::now();
                        wire.post("/webhooks/stripe", &headers, body.as_bytes()).is(200);
                        took.push(sent.elapsed());
                    }
                    took
                })
            })
            .collect();
        let took = senders.into_iter().flat_map(|sender| sender.join().unwrap()).collect();
        ended.store(true, SeqCst);
        took
    });
    let elapsed = began.elapsed();
    took.sort();
    let (p50, p99) = (took[took.len() / 2], took[took.len() * 99 / 100]);
    let (wrote, busy) = (wrote.load(SeqCst), busy.load(SeqCst));
    println!(
        "{events} events in {elapsed:.1?}; acknowledged p50 {p50:?}, p99 {p99:?}; the app wrote {wrote} times, {busy} times SQLITE_BUSY"
    );
    agree(&server, events);
    assert_eq!(busy, 0, "the app could not write");
    if is_long() && !cfg!(debug_assertions) {
        assert!(p99 <= Duration::from_millis(50), "p99 of acknowledgement {p99:?}");
        assert!(wrote as f64 / elapsed.as_secs_f64() > 190.0, "the app wrote {wrote} times");
    }
    server.stop();
    let app = connect(&server.database());
    assert_eq!(visit(&app, 0), Ok(()), "the file is the app's again");
}

/// Not a test: the app's process in the next one, which kills it.
#[test]
#[ignore = "the app's process of another test"]
fn an_app_that_writes_until_it_is_killed() {
    let Some(file) = std::env::var_os("POSTONCE_TEST_APP") else { return };
    let db = connect(Path::new(&file));
    let began = Instant::now();
    let parent = std::os::unix::process::parent_id();
    for n in 0.. {
        if std::os::unix::process::parent_id() != parent {
            return; // the test failed and left us behind
        }
        let _ = visit(&db, n);
        at(began + Duration::from_millis(n * 5));
    }
}

fn start_app(file: &Path) -> Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "beside::an_app_that_writes_until_it_is_killed", "--ignored"]);
    command.env("POSTONCE_TEST_APP", file).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
}

#[test]
fn kill_9_of_either_at_random_leaves_the_apps_credits_equal_to_the_ledger() {
    let rounds = if is_long() { 100 } else { 10 };
    let seed = std::env::var("POSTONCE_SEED").ok().and_then(|s| s.parse().ok()).unwrap_or_else(rand::random::<u64>);
    println!("POSTONCE_SEED={seed}");
    let mut state = seed | 1;
    let mut random = move |below: u64| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state % below
    };
    let folder = Arc::new(Folder::new());
    app_in(&folder);
    let setup = Setup::config(CONFIG).env("SECRET_STRIPE", SECRET);
    let mut server = Server::start_in(folder, setup);
    let mut app = start_app(&server.database());
    let mut next = 0;
    let (mut servers, mut apps) = (0, 0);
    for _ in 0..rounds {
        let target = 20 + random(30);
        let (kill_server, after) = (random(2) == 0, Duration::from_millis(5 + random(120)));
        let public = server.public;
        // Sends until the wire breaks or everything of this round is acknowledged; says what was not.
        let sender = std::thread::spawn(move || {
            let mut wire = Wire::to(public);
            (next..next + target).find(|n| {
                let body = payment(*n);
                let headers = sign("stripe", SECRET, body.as_bytes(), &[]);
                !matches!(wire.try_post("/webhooks/stripe", &headers, body.as_bytes()), Ok(answer) if answer.status == 200)
            })
        });
        at(Instant::now() + after); // the moment of death, which is what this test varies
        if kill_server {
            server.kill();
            servers += 1;
        } else {
            app.kill().unwrap();
            app.wait().unwrap();
            apps += 1;
        }
        let unanswered = sender.join().unwrap();
        if kill_server {
            server = server.restart();
        } else {
            app = start_app(&server.database());
        }
        // What was not acknowledged is sent again, as a provider does.
        for n in unanswered.unwrap_or(next + target)..next + target {
            let body = payment(n);
            let sent = || Some(server.send("stripe", &body)).filter(|answer| answer.status == 200);
            eventually("a redelivery is taken", sent);
        }
        next += target;
        agree(&server, next);
    }
    println!("{next} events, {servers} servers and {apps} apps killed, nothing lost, nothing doubled");
    app.kill().unwrap();
    app.wait().unwrap();
    assert!(server.count("SELECT count(*) FROM visits") > 0, "the app has written");
    server.stop();
}
