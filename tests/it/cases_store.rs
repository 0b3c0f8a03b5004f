//! Faults that happened to people with SQLite: locks, growing logs, full disks, two processes on one file. See `cases.rs`.

use crate::harness::{App, SECRET, Server, Setup, Wire, eventually, has_faults, sign, stripe};
use crate::ops::{get, read_open_metrics};
use rusqlite::Connection;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

fn beside(server: &Server) -> Connection {
    let other = Connection::open(server.database()).unwrap();
    other.busy_timeout(Duration::from_secs(5)).unwrap();
    other
}

/// C087, C088: no lock error reaches a sender or the log, whoever else reads and writes.
#[test]
fn many_senders_and_another_process_on_the_file_see_no_lock_error() {
    let app = App::start();
    let server = Setup::new().deliver(&app).start();
    let sent = AtomicUsize::new(0);
    const SENDERS: usize = 50;
    const EACH: usize = 20;
    std::thread::scope(|scope| {
        // An app that reads first and writes then, on its own table in the same file, once for each five events.
        scope.spawn(|| {
            let mut other = beside(&server);
            other.execute_batch("CREATE TABLE app(x)").unwrap();
            for n in 0..SENDERS * EACH / 5 {
                eventually("more is sent", || (sent.load(SeqCst) >= n * 5).then_some(()));
                let tx = other.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate).unwrap();
                tx.query_row("SELECT count(*) FROM postonce_journal", [], |_| Ok(())).unwrap();
                tx.execute("INSERT INTO app VALUES (1)", []).unwrap();
                tx.commit().unwrap();
            }
        });
        scope.spawn(|| (0..20).for_each(|_| assert_eq!(server.run(&["ledger", "--json"]).0, 0)));
        for sender in 0..SENDERS {
            let (server, sent) = (&server, &sent);
            scope.spawn(move || {
                let mut wire = Wire::to(server.public);
                for n in 0..EACH {
                    let body = stripe::charge(&format!("evt_{sender}_{n}"), &format!("pi_{sender}_{}", n / 2), 100);
                    let headers = sign("stripe", SECRET, body.as_bytes(), &[]);
                    wire.post("/webhooks/stripe", &headers, body.as_bytes()).is(200);
                    sent.fetch_add(1, SeqCst);
                }
            });
        }
    });
    server.delivered();
    assert_eq!(server.ledger().len(), 500);
    assert_eq!(server.count("SELECT count(*) FROM postonce_raw_events"), sent.load(SeqCst) as i64);
    let log = server.log();
    assert!(!log.contains("locked") && !log.contains("busy"), "{log}");
    server.check();
    server.stop();
}

/// C089, C090: while somebody else holds the write lock, senders are told to come again, soon; then all goes on.
#[test]
fn a_held_write_lock_means_503_within_the_budget_and_no_loss() {
    let server = Server::start();
    server.send("stripe", &stripe::charge("evt_0", "pi_0", 100)).is(200);
    server.settled();
    let other = beside(&server);
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    std::thread::scope(|scope| {
        for n in 0..20 {
            let server = &server;
            scope.spawn(move || {
                let answer =
                    server.send("stripe", &stripe::charge(&format!("evt_{n}"), &format!("pi_{n}"), 100)).is(503);
                assert!(answer.header("retry-after").is_some(), "{answer:?}");
            });
        }
    });
    // They were told while it was held, many at the end of one wait and not each after its own: the budget is a body's.
    let samples = read_open_metrics(&get(&server, "/metrics").body).unwrap();
    let waits: u32 = samples["postonce_lock_timeouts_total"].parse().unwrap();
    assert!((1..10).contains(&waits), "{waits} waits for twenty senders");
    // Reading goes on all the while.
    assert_eq!(server.ledger().len(), 1);
    other.execute_batch("COMMIT").unwrap();
    for n in 0..20 {
        server.send("stripe", &stripe::charge(&format!("evt_{n}"), &format!("pi_{n}"), 100)).is(200);
    }
    server.settled();
    assert_eq!(server.ledger().len(), 20);
    server.check();
}

/// C091: clients that go away in the middle leave nothing open.
#[test]
fn a_client_that_goes_away_leaves_no_transaction_behind() {
    let server = Server::start();
    for n in 0..50 {
        let body = stripe::charge(&format!("evt_{n}"), &format!("pi_{n}"), 100);
        let bytes = crate::harness::post_bytes(
            "/webhooks/stripe",
            &sign("stripe", SECRET, body.as_bytes(), &[]),
            body.as_bytes(),
        );
        let mut wire = Wire::to(server.public);
        // All of it, or a part, and gone.
        wire.write(&bytes[..if n % 2 == 0 { bytes.len() } else { bytes.len() / 2 }]).unwrap();
    }
    server.send("stripe", &stripe::charge("evt_last", "pi_last", 100)).is(200);
    server.wait_for("SELECT count(*) = 1 FROM postonce_journal WHERE ref = 'pi_last'");
    server.wait_for("SELECT count(*) = 26 FROM postonce_journal");
    server.check();
}

/// C092: a reader that stays keeps the log from shrinking, not the intake from going on.
#[test]
fn a_reader_that_stays_stops_nothing_and_the_log_shrinks_after_it() {
    let server = Server::start();
    let reader = server.db();
    reader.execute_batch("BEGIN").unwrap();
    reader.query_row("SELECT count(*) FROM postonce_journal", [], |_| Ok(())).unwrap();
    let filler = "x".repeat(20_000);
    let send = |from: usize, count: usize| {
        let mut wire = Wire::to(server.public);
        for n in from..from + count {
            // Bytes that do not compress away.
            let noise: String = (0..200).map(|_| format!("{:x}", rand::random::<u64>())).collect();
            let body = stripe::charge(&format!("evt_{n}"), &format!("pi_{n}"), 100)
                .replace("cus_1", &format!("cus_1\",\"d\":\"{noise}{filler}"));
            let headers = sign("stripe", SECRET, body.as_bytes(), &[]);
            wire.post("/webhooks/stripe", &headers, body.as_bytes()).is(200);
        }
    };
    send(0, 700);
    server.settled();
    let log = server.folder.join("postonce.db-wal");
    let grown = std::fs::metadata(&log).unwrap().len();
    assert!(grown > 4 << 20, "the log grew while it was read: {grown}");
    drop(reader);
    send(700, 50);
    server.settled();
    // From here on it is written anew from its beginning.
    send(750, 300);
    let after = std::fs::metadata(&log).unwrap().len();
    assert!(after < grown * 2, "{after} after {grown}");
    server.check();
    server.stop();
}

/// C093, C095.
#[test]
fn the_linked_sqlite_is_one_that_keeps_what_it_committed() {
    assert!(rusqlite::version_number() >= postonce::store::SQLITE_OLDEST.0);
    let server = Server::start();
    let output = crate::harness::postonce().arg("version").output().unwrap();
    assert!(String::from_utf8_lossy(&output.stdout).contains(rusqlite::version()), "it says which");
    assert!(server.log().contains(rusqlite::version()), "also at the start");
    let mode: String = server.db().query_row("PRAGMA journal_mode", [], |r| r.get(0)).unwrap();
    assert_eq!(mode, "wal");
}

/// Mounts a small file system in the folder, if we may.
struct Mounted(std::path::PathBuf);

impl Mounted {
    fn small(server_folder: &std::path::Path, kind: &str, options: &str) -> Option<Mounted> {
        let made = Command::new("mount").args(["-t", kind, "-o", options, kind]).arg(server_folder).output().ok()?;
        if made.status.success() {
            return Some(Mounted(server_folder.to_owned()));
        }
        eprintln!("skipped: no {kind} may be mounted here ({})", String::from_utf8_lossy(&made.stderr).trim());
        None
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

/// C097.
#[test]
fn a_full_disk_means_503_and_goes_on_by_itself_when_there_is_room() {
    let folder = std::sync::Arc::new(crate::harness::Folder::new());
    let Some(_mounted) = Mounted::small(&folder.join("."), "tmpfs", "size=6m") else { return };
    let server = Server::start_in(folder.clone(), Setup::new());
    std::fs::write(folder.join("ballast"), vec![0; 2 << 20]).unwrap();
    let body = |n: usize| {
        let noise: String = (0..2000).map(|_| format!("{:x}", rand::random::<u64>())).collect();
        stripe::charge(&format!("evt_{n}"), &format!("pi_{n}"), 100)
            .replace("cus_1", &format!("cus_1\",\"d\":\"{noise}"))
    };
    let mut accepted = 0;
    let refused = loop {
        let answer = server.send("stripe", &body(accepted));
        if answer.status != 200 {
            break answer;
        }
        accepted += 1;
        assert!(accepted < 1000, "the disk never fills");
    };
    assert_eq!(refused.status, 503, "{refused:?}");
    assert!(refused.body.contains("disk is full") && refused.header("retry-after").is_some(), "{refused:?}");
    assert!(server.log().contains("full"), "the log says so");
    std::fs::remove_file(folder.join("ballast")).unwrap();
    eventually("it takes writes again without a restart", || {
        (server.send("stripe", &body(accepted)).status == 200).then_some(())
    });
    server.settled();
    assert_eq!(server.count("SELECT count(*) FROM postonce_journal"), accepted as i64 + 1);
    server.check();
    server.kill();
}

/// C098.
#[test]
fn a_second_server_on_the_file_is_refused_and_told_who_has_it() {
    let server = Server::start();
    server.send("stripe", &stripe::charge("evt_1", "pi_1", 100)).is(200);
    let said = Setup::new().refused_in(&server.folder);
    assert!(said.contains(&format!("pid {}", server.pid())), "{said}");
    server.settled();
    server.stop();
    // The lock is the system's, not a file's content: what is written in it hinders nobody.
    let server = server.restart();
    assert_eq!(server.ledger().len(), 1);
    server.kill();
    server.restart().check();
}

/// C036: no part of a key may be absent, or two of them would never meet.
#[test]
fn the_schema_refuses_keys_without_a_part() {
    let server = Server::start();
    server.stop();
    let db = beside(&server);
    for row in ["NULL, 'payment', 'pi_1'", "1, NULL, 'pi_1'", "1, 'payment', NULL", "1, '', 'pi_1'", "1, 'payment', ''"]
    {
        let sql =
            format!("INSERT INTO postonce_claims(book, kind, ref, raw_event, state) VALUES ({row}, 1, 'CLAIMED')");
        assert!(db.execute_batch(&sql).is_err(), "{row}");
    }
    for row in [
        "NULL, 'stripe', '', 'live'",
        "'', 'stripe', '', 'live'",
        "'a', NULL, '', 'live'",
        "'a', 'stripe', NULL, 'live'",
        "'a', 'stripe', '', ''",
    ] {
        let sql = format!("INSERT INTO postonce_books(tenant, provider, provider_account, mode) VALUES ({row})");
        assert!(db.execute_batch(&sql).is_err(), "{row}");
    }
}

/// C064.
#[test]
fn rolling_restarts_under_load_leave_no_claim_behind() {
    let app = App::start();
    let mut server = Setup::new().deliver(&app).start();
    let mut accepted = 0;
    for life in 0..5 {
        for n in 0..30 {
            server.send("stripe", &stripe::charge(&format!("evt_{life}_{n}"), &format!("pi_{life}_{n}"), 100)).is(200);
            accepted += 1;
        }
        server.stop();
        server = server.restart();
    }
    server.delivered();
    assert_eq!(server.ledger().len(), accepted);
    assert_eq!(server.count("SELECT count(*) FROM postonce_claims WHERE state = 'CLAIMED'"), 0);
    assert_eq!(server.count("SELECT max(attempts) FROM postonce_raw_events"), 1, "a stop is no failed attempt");
    server.check();
}

/// C094: WAL on a network or shared file system corrupts files. The kind is what statfs would say.
#[test]
fn a_network_or_shared_file_system_is_refused_by_its_name_and_a_local_one_is_not() {
    if !has_faults() {
        return;
    }
    let on = |magic: u32| Setup::new().env("POSTONCE_FILE_SYSTEM", &magic.to_string());
    let shared =
        [(0x6969, "NFS"), (0xff53_4d42, "SMB"), (0xfe53_4d42, "SMB"), (0x0102_1997, "9p"), (0x6573_5546, "FUSE")];
    for (magic, name) in shared {
        let why = on(magic).refused();
        let line = why.lines().find(|line| line.starts_with("error:")).unwrap_or_default();
        assert!(line.contains(name) && line.contains("WAL can corrupt"), "{magic:x}: {why}");
        assert!(why.contains("--any-file-system"), "{why}");
    }
    for (magic, args) in [(0xef53_u32, None), (0x0102_1994, None), (0x6969, Some("--any-file-system"))] {
        let server = args.into_iter().fold(on(magic), Setup::arg).start();
        server.send("stripe", &stripe::charge("evt_1", "pi_1", 100)).is(200);
        server.stop();
    }
    let server = Server::start();
    let doctor = |magic: u32| {
        let mut command = crate::harness::postonce();
        command
            .args(["doctor", "--offline", "--source", "stripe=env:S", "--database"])
            .arg(server.database())
            .env("POSTONCE_FILE_SYSTEM", magic.to_string())
            .env("S", SECRET);
        String::from_utf8_lossy(&command.output().unwrap().stdout).into_owned()
    };
    assert!(doctor(0x6969).contains("NFS") && !doctor(0xef53).contains("NFS"), "{}", doctor(0x6969));
}
