//! Operating it: metrics, health, copies of the file, retention, erasure, alerts, receipts by mail, following.

use crate::harness::{APP_SECRET, App, Folder, SECRET, Server, Setup, Wire, eventually, open_db, postonce, stripe};
use postonce::alerts::{Firing, Recipient, Watch};
use postonce::config::{AlertFormat, AlertRules, Retain};
use postonce::engine::{Engine, Parts};
use postonce::steps::retain;
use postonce::store::{Options, Store, retain as rows};
use rusqlite::Connection;
use serde_json::Value;
use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpListener;
use std::path::Path;
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

const DAY: i64 = 86_400_000;

fn get(server: &Server, path: &str) -> crate::harness::Answer {
    let mut wire = Wire::to(server.operator);
    wire.write(format!("GET {path} HTTP/1.1\r\nHost: test\r\n\r\n").as_bytes()).unwrap();
    wire.answer().unwrap()
}

fn pay(server: &Server, from: u32, to: u32) {
    for n in from..to {
        server.send("stripe", &stripe::charge(&format!("evt_{n}"), &format!("pi_{n}"), 100 + i64::from(n))).is(200);
    }
}

// Metrics and health ---------------------------------------------------------------------------------------------------

/// A reader of OpenMetrics text, strict about what scrapers are strict about: each family is announced once, with a help
/// and a type, its samples follow in one block under names its type allows, no sample comes twice, buckets grow up to
/// the count, and the text ends with its mark.
fn read_open_metrics(text: &str) -> Result<BTreeMap<String, String>, String> {
    let mut samples = BTreeMap::new();
    let (mut family, mut kind, mut seen) = (String::new(), String::new(), Vec::new());
    let body = text.strip_suffix("# EOF\n").ok_or("no # EOF at the end")?;
    let mut bucket: Option<u64> = None;
    for line in body.lines() {
        if let Some(rest) = line.strip_prefix("# ") {
            let mut words = rest.splitn(3, ' ');
            let (what, name, value) = (words.next(), words.next().ok_or(line)?, words.next().ok_or(line)?);
            match what {
                Some("HELP") => {
                    if seen.contains(&name.to_owned()) {
                        return Err(format!("{name} is announced twice"));
                    }
                    seen.push(name.to_owned());
                    (family, kind, bucket) = (name.to_owned(), String::new(), None);
                }
                Some("TYPE") if name == family => value.clone_into(&mut kind),
                Some("UNIT") if name == family && name.ends_with(&format!("_{value}")) => {}
                _ => return Err(format!("out of place: {line}")),
            }
            continue;
        }
        let (sample, value) = line.rsplit_once(' ').ok_or(line)?;
        let number: f64 = value.parse().map_err(|_| format!("no number: {line}"))?;
        let name = sample.split('{').next().unwrap_or(sample);
        let suffix = name.strip_prefix(&family).ok_or(format!("{name} is not of {family}"))?;
        let allowed: &[&str] = match kind.as_str() {
            "counter" => &["_total"],
            "gauge" => &[""],
            "histogram" => &["_bucket", "_sum", "_count"],
            other => return Err(format!("{family} has type {other:?}")),
        };
        if !allowed.contains(&suffix) || number.is_sign_negative() {
            return Err(format!("not allowed in a {kind}: {line}"));
        }
        if let Some(labels) = sample.split_once('{').map(|(_, l)| l) {
            let labels = labels.strip_suffix("\"}").ok_or(format!("labels: {line}"))?;
            for label in labels.split("\",") {
                label.split_once("=\"").filter(|(n, _)| !n.is_empty()).ok_or(format!("label: {line}"))?;
            }
        }
        if suffix == "_bucket" {
            let count = number as u64;
            if bucket.is_some_and(|before| count < before) {
                return Err(format!("a bucket that shrinks: {line}"));
            }
            bucket = Some(count);
            let all = samples.get(&format!("{family}_count")).cloned();
            if sample.contains("+Inf") && all.as_deref() != Some(value) {
                return Err(format!("the last bucket is not the count: {line}"));
            }
        }
        if samples.insert(sample.to_owned(), value.to_owned()).is_some() {
            return Err(format!("twice: {line}"));
        }
    }
    Ok(samples)
}

#[test]
fn metrics_are_valid_open_metrics_and_count_what_happened() {
    let server = Server::start();
    pay(&server, 0, 5);
    server.send("stripe", &stripe::charge("evt_0", "pi_0", 100)).is(200);
    server.send_with("stripe", "whsec_other", b"{}", &[]).is(401);
    server.post("/webhooks/nobody", &[], b"{}").is(404);
    server.settled();
    let answer = get(&server, "/metrics").is(200);
    assert!(answer.header("content-type").unwrap().starts_with("application/openmetrics-text"), "{answer:?}");
    let samples = read_open_metrics(&answer.body).unwrap();
    for (name, value) in [
        ("postonce_requests_total{source=\"stripe\",outcome=\"stored\"}", "6"),
        ("postonce_requests_total{source=\"stripe\",outcome=\"refused\"}", "1"),
        ("postonce_refused_signatures_total{source=\"stripe\",reason=\"no_secret_matches\"}", "1"),
        ("postonce_unknown_source_requests_total", "1"),
        ("postonce_events_total{state=\"done\"}", "5"),
        ("postonce_duplicates_total", "1"),
        ("postonce_acknowledge_seconds_count", "6"),
        ("postonce_apply_seconds_count", "5"),
        ("postonce_events_waiting", "0"),
    ] {
        assert_eq!(samples.get(name).map(String::as_str), Some(value), "{name}");
    }
    for (broken, why) in [
        ("# HELP a b\n# TYPE a counter\na 1\n# EOF\n", "a counter without _total"),
        ("# HELP a b\n# TYPE a gauge\na 1\na 2\n# EOF\n", "a sample twice"),
        ("# HELP a b\n# TYPE a gauge\na 1\n", "no end"),
    ] {
        assert!(read_open_metrics(broken).is_err(), "{why}");
    }
}

#[test]
fn a_server_whose_disk_is_nearly_full_is_alive_and_not_ready() {
    let config = format!(
        "[[source]]\nname = \"stripe\"\nsecrets = [\"env:S\"]\n[alerts]\ndisk_free_mb = {}\n",
        u64::from(u32::MAX)
    );
    let server = Setup::config(&config).env("S", SECRET).start();
    get(&server, "/healthz").is(200);
    let answer = get(&server, "/readyz").is(503);
    assert!(answer.body.contains("disk nearly full"), "{answer:?}");
    get(&Server::start(), "/readyz").is(200);
}

#[test]
fn a_writer_that_cannot_write_is_not_ready_and_is_again_when_it_can() {
    let server = Server::start();
    pay(&server, 0, 1);
    server.settled();
    let holder = Connection::open(server.database()).unwrap();
    holder.execute_batch("BEGIN IMMEDIATE").unwrap();
    let answer = get(&server, "/readyz").is(503);
    assert!(answer.body.contains("a write failed"), "{answer:?}");
    holder.execute_batch("ROLLBACK").unwrap();
    get(&server, "/readyz").is(200);
}

#[test]
fn the_log_as_json_is_one_object_a_line_without_bodies_and_secrets() {
    let config = "[log]\nformat = \"json\"\nevents = true\n[[source]]\nname = \"stripe\"\nsecrets = [\"env:S\"]\n";
    let server = Setup::config(config).env("S", SECRET).start();
    server.send("stripe", &stripe::charge("evt_1", "pi_secretive", 4999)).is(200);
    server.send_with("stripe", "whsec_other", b"{\"pi_secretive\":\"\\n\"}", &[("X-A", "b")]).is(401);
    server.settled();
    let log = eventually("the event's line", || Some(server.log()).filter(|log| log.contains("raw event 1: DONE")));
    for line in log.lines() {
        let value: Value = serde_json::from_str(line).unwrap_or_else(|e| panic!("{line}: {e}"));
        assert!(value["time"].is_string() && value["level"].is_string() && value["message"].is_string(), "{line}");
    }
    assert!(!log.contains("pi_secretive") && !log.contains(SECRET) && !log.contains("whsec_"), "{log}");
}

// Copies of the file ---------------------------------------------------------------------------------------------------

#[test]
fn a_plain_copy_after_a_clean_stop_is_a_backup() {
    let server = Server::start();
    pay(&server, 0, 20);
    server.settled();
    server.stop();
    let copy = server.folder.join("copy.db");
    std::fs::copy(server.database(), &copy).unwrap();
    let (code, text) = check(&copy);
    assert_eq!(code, 0, "{text}");
    assert_eq!(count(&copy, "SELECT count(*) FROM postonce_journal"), 20);
}

#[test]
fn a_plain_copy_of_a_live_file_without_its_log_is_shown_for_what_it_is() {
    let server = Server::start();
    pay(&server, 0, 20);
    server.settled();
    let copy = server.folder.join("copy.db");
    std::fs::copy(server.database(), &copy).unwrap();
    let (code, text) = check(&copy);
    assert_eq!(code, 1, "{text}");
    assert!(text.contains("was in use when it was copied"), "{text}");
    let (code, text) = server.run(&["restore", copy.to_str().unwrap()]);
    assert_eq!(code, 3, "{text}");
    server.check();
    server.kill();
    server.check(); // the log of a server that was killed is still beside its file
}

#[test]
fn every_backup_under_load_is_whole_and_has_all_that_was_acknowledged_before_it_began() {
    let server = Server::start();
    let (acknowledged, stop) = (AtomicU64::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut wire = Wire::to(server.public);
            let mut n = 0;
            while !stop.load(Relaxed) {
                let body = stripe::charge(&format!("evt_{n}"), &format!("pi_{n}"), 100);
                let headers = crate::harness::sign("stripe", SECRET, body.as_bytes(), &[]);
                wire.post("/webhooks/stripe", &headers, body.as_bytes()).is(200);
                n += 1;
                acknowledged.store(n, Relaxed);
            }
        });
        eventually("some are in", || (acknowledged.load(Relaxed) > 100).then_some(()));
        for round in 0..12 {
            let before = acknowledged.load(Relaxed) as i64;
            let to = server.folder.join(&format!("backup{round}.db"));
            let (code, text) = server.run(&["backup", to.to_str().unwrap(), "--json"]);
            assert_eq!(code, 0, "{text}");
            let report: Value = serde_json::from_str(&text).unwrap();
            let (code, text) = check(&to);
            assert_eq!(code, 0, "{text}");
            let there = count(&to, "SELECT count(*) FROM postonce_raw_events");
            assert!(there >= before, "round {round}: {before} were acknowledged, {there} are in the copy");
            assert_eq!(report["events"], there);
        }
        stop.store(true, Relaxed);
    });
    let left: Vec<String> = std::fs::read_dir(server.folder.join("."))
        .unwrap()
        .filter_map(|e| e.unwrap().file_name().into_string().ok())
        .filter(|name| name.contains("partial"))
        .collect();
    assert_eq!(left, [""; 0], "partial files are left");
    server.settled();
    server.check();
}

#[test]
fn a_backup_never_overwrites_and_says_where_there_is_no_room() {
    let server = Server::start();
    pay(&server, 0, 3);
    let to = server.folder.join("b.db");
    assert_eq!(server.run(&["backup", to.to_str().unwrap()]).0, 0);
    let (code, text) = server.run(&["backup", to.to_str().unwrap()]);
    assert!(code == 3 && text.contains("is there already") && text.contains("try:"), "{text}");
    let (code, text) = server.run(&["backup", server.folder.join("no/b.db").to_str().unwrap()]);
    assert!(code == 3 && text.contains("does not exist"), "{text}");
    let small = server.folder.join("small");
    std::fs::create_dir(&small).unwrap();
    let mounted =
        std::process::Command::new("mount").args(["-t", "tmpfs", "-o", "size=1m", "none"]).arg(&small).output();
    if !mounted.is_ok_and(|o| o.status.success()) {
        eprintln!("skipped: a small disk can be mounted by root only");
        return;
    }
    let (code, text) = server.run(&["backup", small.join("b.db").to_str().unwrap()]);
    let left = std::fs::read_dir(&small).unwrap().count();
    std::process::Command::new("umount").arg(&small).status().unwrap();
    assert!(code == 3 && text.contains("small has") && text.contains("MiB free"), "{text}");
    assert_eq!(left, 0, "something was left on the small disk");
    pay(&server, 3, 4);
}

#[test]
fn what_is_restored_serves_on_and_knows_what_it_posted() {
    let server = Server::start();
    pay(&server, 0, 10);
    server.settled();
    let backup = server.folder.join("b.db");
    assert_eq!(server.run(&["backup", backup.to_str().unwrap(), "--quiet"]), (0, String::new()));
    pay(&server, 10, 12); // after the backup: lost with the disk
    server.settled();
    let (code, text) = server.run(&["restore", backup.to_str().unwrap()]);
    assert!(code == 3 && text.contains("is in use by"), "{text}");
    server.stop();
    let (code, text) = server.run(&["restore", backup.to_str().unwrap()]);
    assert!(code == 3 && text.contains("never overwrites"), "{text}");
    std::fs::remove_file(server.database()).unwrap();
    let _ = std::fs::remove_file(server.folder.join("postonce.db-shm"));
    let (code, text) = server.run(&["restore", backup.to_str().unwrap()]);
    assert_eq!(code, 0, "{text}");
    assert!(text.contains("10 entries") && text.contains("reconcile run"), "{text}");
    let server = server.restart();
    pay(&server, 8, 12); // two known, two that the backup lacks
    server.settled();
    assert_eq!(server.ledger().len(), 12);
    server.check();
}

#[test]
fn scheduled_backups_are_made_and_told() {
    let config = "[[source]]\nname = \"stripe\"\nsecrets = [\"env:S\"]\n[backup]\ndir = \"copies\"\n";
    let server = Setup::config(config).env("S", SECRET).start();
    let copy = eventually("a copy", || {
        let mut names = std::fs::read_dir(server.folder.join("copies"))
            .ok()?
            .filter_map(|e| e.ok()?.file_name().into_string().ok());
        names.find(|name| name.ends_with(".db"))
    });
    assert_eq!(check(&server.folder.join("copies").join(copy)).0, 0);
    let seen = eventually("its time in the metrics", || {
        let samples = read_open_metrics(&get(&server, "/metrics").body).unwrap();
        samples.get("postonce_last_backup_timestamp_seconds").cloned()
    });
    assert!(seen.parse::<i64>().unwrap() > 1_700_000_000);
}

fn check(file: &Path) -> (i32, String) {
    let output = postonce().args(["check", "--database"]).arg(file).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    (output.status.code().unwrap_or(-1), text.into_owned())
}

fn count(file: &Path, sql: &str) -> i64 {
    open_db(file).query_row(sql, [], |r| r.get(0)).unwrap()
}

// Retention and erasure ------------------------------------------------------------------------------------------------

/// Makes everything in a file that nobody serves `days` older.
fn age(file: &Path, days: i64) {
    let db = Connection::open(file).unwrap();
    db.execute_batch(&format!(
        "UPDATE postonce_raw_events SET received_at = received_at - {0}, ended_at = ended_at - {0};
         UPDATE postonce_attempts SET at = at - {0};",
        days * DAY
    ))
    .unwrap();
}

#[test]
fn what_is_past_its_time_goes_and_keys_journal_and_what_people_need_stay() {
    let app = App::start();
    let server = Setup::new().deliver(&app).start();
    pay(&server, 0, 250);
    let subscription = stripe::object(
        "evt_s",
        "customer.subscription.updated",
        r#"{"id":"sub_1","object":"subscription","status":"active","customer":"cus_1"}"#,
    );
    server.send("stripe", &subscription).is(200);
    server.send("stripe", &stripe::charge("evt_x", "pi_0", 999_999)).is(200); // a conflict: a person needs its bytes
    pay(&server, 250, 251);
    server.delivered();
    assert_eq!(server.count("SELECT count(*) FROM postonce_raw_events WHERE state = 'CONFLICT'"), 1);
    server.stop();
    age(&server.database(), 31);
    let folder = server.folder.join("archive");
    let rules = Retain { archive: Some(folder.clone()), ..Retain::default() };
    let store = Store::open(&server.database(), &Options::default()).unwrap();
    let pruned = retain::retain(&store, &rules, &|| false).unwrap();
    assert_eq!((pruned.bodies, pruned.events, pruned.archived, pruned.attempts), (250, 250, 250, 251));
    let again = retain::retain(&store, &rules, &|| false).unwrap();
    assert_eq!(again, retain::Pruned::default(), "nothing is left to go");
    store.stop();
    drop(store);

    // The subscription's state, the conflict and the newest event stay, with their bytes.
    assert_eq!(server.count("SELECT count(*) FROM postonce_raw_events"), 3);
    assert_eq!(server.count("SELECT count(*) FROM postonce_bodies WHERE body IS NOT NULL"), 3);
    assert_eq!(server.count("SELECT count(*) FROM postonce_journal"), 251);
    server.check();
    let mut archived = Vec::new();
    let file = std::fs::read_dir(&folder).unwrap().next().unwrap().unwrap().path();
    let lines = retain::read_archive(&file, |line| {
        archived.push(line);
        Ok(())
    });
    assert_eq!(lines.unwrap(), 250);
    let body = String::from_utf8(archived[7].bytes().unwrap()).unwrap();
    assert_eq!(body, stripe::charge("evt_7", "pi_7", 107));

    // A resend six months later is known, although the event that paid is gone; numbers go on.
    let server = server.restart();
    pay(&server, 3, 4);
    server.settled();
    assert_eq!(server.count("SELECT count(*) FROM postonce_journal"), 251);
    assert_eq!(server.count("SELECT max(id) FROM postonce_raw_events"), 254);
    server.check();
}

#[test]
fn a_batch_keeps_its_bytes_until_its_last_item_may_go() {
    let folder = Folder::new();
    let file = folder.join("x.db");
    let store = Store::open(&file, &Options::default()).unwrap();
    let old = postonce::clock::wall() - 40 * DAY;
    store
        .write(move |tx| {
            let source = tx.source("stripe")?;
            let mut event = tx.conn.prepare(
                "INSERT INTO postonce_raw_events(id, source, body, item, origin, received_at, state, ended_at)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?6)",
            )?;
            for (id, body, item, origin, state) in [
                (1, None, 0, "webhook", "DONE"),
                (2, Some(1), 1, "item", "DONE"),
                (3, Some(1), 2, "item", "DEAD"),
                (4, None, 0, "webhook", "DONE"),
            ] {
                event.execute(rusqlite::params![id, source, body, item, origin, old, state])?;
            }
            for id in [1, 4] {
                tx.conn.execute(
                    "INSERT INTO postonce_bodies(id, codec, sha256, headers, body) VALUES (?1, 0, zeroblob(32), '', x'7b7d')",
                    [id],
                )?;
            }
            Ok(())
        })
        .unwrap();
    let first = retain::retain(&store, &Retain::default(), &|| false).unwrap();
    assert_eq!((first.bodies, first.events), (0, 1), "one item went; the other is dead and needs the bytes");
    store
        .write(|tx| Ok(tx.conn.execute("UPDATE postonce_raw_events SET state = 'IGNORED' WHERE id = 3", [])?))
        .unwrap();
    let second = retain::retain(&store, &Retain::default(), &|| false).unwrap();
    let third = retain::retain(&store, &Retain::default(), &|| false).unwrap();
    assert_eq!(second.events + third.events, 2, "then the item, then the delivery");
    let left: i64 =
        store.read(|conn| Ok(conn.query_row("SELECT max(id) FROM postonce_raw_events", [], |r| r.get(0))?)).unwrap();
    assert_eq!(left, 4);
    store.stop();
}

#[test]
fn the_audit_log_loses_only_what_retention_has_announced() {
    let folder = Folder::new();
    let store = Store::open(&folder.join("x.db"), &Options::default()).unwrap();
    store.write(|tx| rows::audit(tx, "ann", "replay", "raw event 1", None)).unwrap();
    let old = postonce::clock::wall() - 400 * DAY;
    store
        .write(move |tx| {
            tx.conn.execute("INSERT INTO postonce_audit(at, who, what, target) VALUES (?1, 'bob', 'x', 'y')", [old])?;
            Ok(())
        })
        .unwrap();
    for change in ["DELETE FROM postonce_audit", "UPDATE postonce_audit SET who = 'eve'"] {
        assert!(store.write(move |tx| Ok(tx.conn.execute(change, [])?)).is_err(), "{change}");
    }
    let rules = Retain { audit_days: 365, ..Retain::default() };
    assert_eq!(retain::retain(&store, &rules, &|| false).unwrap().audit, 1);
    assert!(store.write(|tx| Ok(tx.conn.execute("DELETE FROM postonce_audit", [])?)).is_err());
    store.stop();
}

#[test]
fn erasing_a_person_leaves_money_and_hashes_and_no_word_of_them() {
    let server = Server::start();
    let jane = |event: &str, payment: &str| {
        stripe::charge(event, payment, 4999)
            .replace("cus_1", "cus_jane")
            .replace("\"captured\":true", "\"captured\":true,\"receipt_email\":\"jane.roe@example.com\"")
    };
    server.send("stripe", &jane("evt_1", "pi_1")).is(200);
    server.send("stripe", &jane("evt_1", "pi_1")).is(200); // a duplicate has her data too
    for n in 100..250 {
        // Many, so that pages split and move around her.
        server.send("stripe", &jane(&format!("evt_{n}"), &format!("pi_{n}"))).is(200);
        server.send("stripe", &stripe::charge(&format!("evt_o{n}"), &format!("pi_o{n}"), 100)).is(200);
    }
    server
        .send(
            "stripe",
            &stripe::charge("evt_2", "pi_2", 100)
                .replace("\"captured\":true", "\"captured\":true,\"receipt_email\":\"jane.roe@example.com\""),
        )
        .is(200);
    pay(&server, 10, 20);
    server.settled();
    let (_, text) = server.run(&["erase", "--account", "cus_jane", "--mentions", "Jane.Roe@example.com"]);
    assert!(text.contains("153 deliveries mention it: would be emptied"), "{text}");
    assert_eq!(server.count("SELECT count(*) FROM postonce_bodies WHERE body IS NULL"), 0);
    let args = [
        "erase",
        "--account",
        "cus_jane",
        "--mentions",
        "jane.roe@example.com",
        "--yes",
        "--by",
        "ann",
        "--note",
        "ticket 7",
    ];
    let (code, text) = server.run(&args);
    assert_eq!(code, 0, "{text}");
    assert_eq!(server.count("SELECT count(*) FROM postonce_bodies WHERE body IS NULL AND headers = ''"), 153);
    assert_eq!(server.ledger().len(), 312);
    let audit = "SELECT count(*) FROM postonce_audit WHERE who = 'ann' AND what = 'erase' AND target = 'account cus_jane' AND note LIKE '%ticket 7'";
    assert_eq!(server.count(audit), 1);
    server.check();
    server.stop();
    server.check();
    let bytes = std::fs::read(server.database()).unwrap();
    let word = b"jane.roe@example.com";
    assert!(!bytes.windows(word.len()).any(|w| w == word), "her address is still in the file");
}

/// Bytes, rows and a copy of the file go out while deliveries come in: nobody waits for it, nothing is lost.
#[test]
fn retention_and_backups_do_not_hold_back_the_answers() {
    const OLD: i64 = 6_000;
    const SENDERS: usize = 4;
    const EACH: usize = 250;
    let folder = Folder::new();
    let file = folder.join("x.db");
    let old = postonce::clock::wall() - 40 * DAY;
    let store = Store::open(&file, &Options::default()).unwrap();
    store
        .write(move |tx| {
            let source = tx.source("stripe")?;
            let numbers = format!("WITH RECURSIVE n(id) AS (SELECT 1 UNION ALL SELECT id + 1 FROM n WHERE id < {OLD})");
            tx.conn.execute_batch(&format!(
                "INSERT INTO postonce_raw_events(id, source, origin, received_at, state, ended_at)
                   {numbers} SELECT id, {source}, 'webhook', {old}, 'IGNORED', {old} FROM n;
                 INSERT INTO postonce_bodies(id, codec, sha256, headers, body)
                   {numbers} SELECT id, 0, zeroblob(32), '', randomblob(900) FROM n;"
            ))?;
            Ok(())
        })
        .unwrap();
    store.stop();
    drop(store);
    let text = format!(
        "database = {:?}\nlisten = \"127.0.0.1:0\"\n[operator]\nlisten = \"127.0.0.1:0\"\n[[source]]\nname = \"stripe\"\nsecrets = [\"file:{}\"]\n",
        file.display(),
        folder.join("secret").display()
    );
    std::fs::write(folder.join("secret"), SECRET).unwrap();
    let loaded = postonce::config::Loaded::parse(text).unwrap();
    let server = postonce::server::Server::start(&loaded, &Options::default()).unwrap();
    let shared = server.engine().shared().clone();
    let (address, copy) = (server.public_addr(), folder.join("copy.db"));
    let mut took = std::thread::scope(|scope| {
        let senders: Vec<_> = (0..SENDERS)
            .map(|sender| {
                scope.spawn(move || {
                    let mut wire = Wire::to(address);
                    let mut took = Vec::with_capacity(EACH);
                    for n in 0..EACH {
                        let name = format!("{sender}_{n}");
                        let body = stripe::charge(&format!("evt_{name}"), &format!("pi_{name}"), 100);
                        let headers = crate::harness::sign("stripe", SECRET, body.as_bytes(), &[]);
                        let began = std::time::Instant::now();
                        wire.post("/webhooks/stripe", &headers, body.as_bytes()).is(200);
                        took.push(began.elapsed());
                    }
                    took
                })
            })
            .collect();
        let pruning = scope.spawn(|| retain::retain(&shared.store, &Retain::default(), &|| false).unwrap());
        let backup = scope.spawn(|| {
            postonce::store::backup::backup(&file, &copy, std::time::Duration::from_millis(2), &mut |_, _| {}).unwrap()
        });
        let took: Vec<_> = senders.into_iter().flat_map(|s| s.join().unwrap()).collect();
        backup.join().unwrap();
        assert_eq!(pruning.join().unwrap().events as i64, OLD);
        took
    });
    took.sort();
    let (p50, p99) = (took[took.len() / 2], took[took.len() * 99 / 100]);
    eprintln!("answers while pruning and copying: p50 {p50:?}, p99 {p99:?}");
    assert!(p99 < std::time::Duration::from_millis(500), "p99 of the answers: {p99:?}");
    eventually("all are applied", || {
        let sql = "SELECT count(*) FROM postonce_journal";
        let count: i64 = shared.store.read(|conn| Ok(conn.query_row(sql, [], |r| r.get(0))?)).unwrap();
        (count == (SENDERS * EACH) as i64).then_some(())
    });
    drop(shared);
    server.stop();
    for file in [&file, &copy] {
        let (code, text) = check(file);
        assert_eq!(code, 0, "{text}");
    }
    assert_eq!(
        count(&file, "PRAGMA freelist_count") * 5 / 4 / count(&file, "PRAGMA page_count"),
        0,
        "the file was not given back"
    );
}

// Alerts ---------------------------------------------------------------------------------------------------------------

fn engine(file: &Path) -> Engine {
    let (engine, waking) = Engine::open(file, Vec::new(), Vec::new(), &Options::default()).unwrap();
    engine.start(waking, Parts { apply: false, deliver: false }).unwrap();
    engine
}

#[test]
fn one_trouble_is_one_alert_told_when_it_opens_lasts_and_ends() {
    let folder = Folder::new();
    let engine = engine(&folder.join("x.db"));
    let shared = engine.shared();
    let to = |name: &str, on: &str, format| Recipient { endpoint: name.into(), on: vec![on.into()], format };
    let to = [
        to("all", "*", AlertFormat::Json),
        to("chat", "dead*", AlertFormat::Slack),
        to("disk", "disk", AlertFormat::Json),
    ];
    let rules = AlertRules::default();
    let mut watch = Watch::begin(shared).unwrap();
    let dead = |count| vec![Firing { kind: "dead", subject: "stripe".into(), count, what: format!("{count} dead") }];
    let now = postonce::clock::wall();
    let mut step = |firing, at| watch.step(shared, &rules, &to, firing, at).unwrap();
    assert_eq!(step(dead(1), now), 2, "two want to know");
    assert_eq!(step(dead(1), now + 5_000), 0, "nothing new");
    assert_eq!(step(dead(9), now + 10_000), 0, "more of the same is grouped");
    assert_eq!(step(dead(9), now + 11 * 60_000), 2, "it has grown");
    assert_eq!(step(Vec::new(), now + 11 * 60_000 + 5_000), 0, "away for five seconds is not over");
    assert_eq!(step(Vec::new(), now + 12 * 60_000), 2, "it is over");
    assert_eq!(step(Vec::new(), now + 13 * 60_000), 0);
    let messages: Vec<(String, Value)> = shared
        .store
        .read(|conn| {
            let mut statement = conn.prepare("SELECT endpoint, payload FROM postonce_outbox ORDER BY id")?;
            let rows = statement.query_map([], |r| Ok((r.get(0)?, r.get::<_, String>(1)?)))?;
            Ok(rows.map(|r| r.unwrap()).map(|(e, p)| (e, serde_json::from_str(&p).unwrap())).collect())
        })
        .unwrap();
    let types: Vec<&str> =
        messages.iter().filter(|(e, _)| e == "all").map(|(_, p)| p["type"].as_str().unwrap()).collect();
    assert_eq!(types, ["alert.opened", "alert.lasts", "alert.closed"]);
    let chat: Vec<&str> =
        messages.iter().filter(|(e, _)| e == "chat").map(|(_, p)| p["text"].as_str().unwrap()).collect();
    assert_eq!(
        chat,
        [
            "[postonce] dead: stripe\n1 dead",
            "[postonce] still dead: stripe\n9 dead",
            "[postonce] over: dead: stripe\n9 dead"
        ]
    );
    engine.stop();
}

#[test]
fn what_is_raised_by_hand_is_an_alert_until_it_is_cleared() {
    let folder = Folder::new();
    let engine = engine(&folder.join("x.db"));
    let shared = engine.shared();
    let mut watch = Watch::begin(shared).unwrap();
    let rules = AlertRules { disk_free_mb: 0, ..AlertRules::default() };
    shared.raise("invalid_run", "stripe", 1, "the run of 2026-11-30 is invalid".into());
    let firing = watch.look(shared, &rules).unwrap();
    assert_eq!((firing.len(), firing[0].kind, firing[0].subject.as_str()), (1, "invalid_run", "stripe"));
    shared.clear("invalid_run", "stripe");
    assert_eq!(watch.look(shared, &rules).unwrap(), []);
    engine.stop();
}

#[test]
fn a_conflict_and_a_storm_of_bad_signatures_reach_the_people_who_are_told() {
    let app = App::start();
    let config = format!(
        "[[source]]\nname = \"stripe\"\nsecrets = [\"env:S\"]\n[alerts]\nrejected = 5\n
         [[alert]]\nname = \"ops\"\nurl = \"{}\"\nsecret = \"env:APP\"\n",
        app.url()
    );
    let server = Setup::config(&config).env("S", SECRET).env("APP", APP_SECRET).start();
    pay(&server, 0, 1);
    server.settled();
    server.send("stripe", &stripe::charge("evt_x", "pi_0", 77)).is(200);
    for _ in 0..6 {
        server.send_with("stripe", "whsec_other", b"{}", &[]).is(401);
    }
    let kinds = eventually("both alerts", || {
        let messages = app.messages();
        let mut kinds: Vec<String> = messages
            .iter()
            .map(|m| serde_json::from_str::<Value>(&m.body).unwrap())
            .map(|body| format!("{} {}", body["type"].as_str().unwrap(), body["data"]["kind"].as_str().unwrap()))
            .collect();
        kinds.sort();
        (kinds.len() >= 2).then_some(kinds)
    });
    assert_eq!(kinds, ["alert.opened conflict", "alert.opened rejected"]);
    assert_eq!(server.count("SELECT count(*) FROM postonce_alerts WHERE closed_at IS NULL"), 2);
}

// Mail -----------------------------------------------------------------------------------------------------------------

/// A mail server that says yes, except to `refused@…`, and keeps what it is given.
struct MailServer {
    port: u16,
    mails: Arc<Mutex<Vec<(String, String)>>>,
}

impl MailServer {
    fn start() -> MailServer {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (port, mails) = (listener.local_addr().unwrap().port(), Arc::new(Mutex::new(Vec::new())));
        let kept = mails.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let kept = kept.clone();
                std::thread::spawn(move || {
                    let mut out = stream.try_clone().unwrap();
                    let mut lines = BufReader::new(stream).lines().map_while(Result::ok);
                    let _ = out.write_all(b"220 test ESMTP\r\n");
                    let mut to = String::new();
                    while let Some(line) = lines.next() {
                        let word = line.split([' ', ':']).next().unwrap_or_default().to_ascii_uppercase();
                        let answer = match word.as_str() {
                            "EHLO" => "250-test\r\n250 8BITMIME\r\n",
                            "RCPT" if line.contains("refused@") => "550 5.1.1 no such user\r\n",
                            "RCPT" => {
                                to = line;
                                "250 ok\r\n"
                            }
                            "DATA" => {
                                let _ = out.write_all(b"354 go on\r\n");
                                let body: Vec<String> = lines.by_ref().take_while(|line| line != ".").collect();
                                kept.lock().unwrap().push((to.clone(), body.join("\n")));
                                "250 taken\r\n"
                            }
                            "QUIT" => "221 bye\r\n",
                            _ => "250 ok\r\n",
                        };
                        let _ = out.write_all(answer.as_bytes());
                    }
                });
            }
        });
        MailServer { port, mails }
    }

    fn mails(&self) -> Vec<(String, String)> {
        self.mails.lock().unwrap().clone()
    }
}

fn with_mail(event: &str, payment: &str, address: Option<&str>) -> String {
    let email = address.map_or(String::new(), |a| format!("\"receipt_email\":\"{a}\","));
    stripe::charge(event, payment, 4999).replace("\"captured\":true", &format!("{email}\"captured\":true"))
}

#[test]
fn a_payment_is_answered_by_one_receipt_by_mail_and_a_refused_address_is_dead_at_once() {
    let mail = MailServer::start();
    let config = format!(
        "[[source]]\nname = \"stripe\"\nsecrets = [\"env:S\"]\n
         [smtp]\nhost = \"127.0.0.1\"\nport = {}\nsecurity = \"none\"\nfrom = \"Shop <billing@shop.example>\"\n
         [[deliver]]\nname = \"receipts\"\non = [\"payment\"]\n[deliver.email]\nto = \"{{body:/data/object/receipt_email}}\"\n
         subject = \"Your payment of {{amount}} {{currency}}\"\ntext = \"Thank you. Reference {{reference}}.\"\n
         html = \"<p>Thank you, {{body:/data/object/receipt_email}}</p>\"\n",
        mail.port
    );
    let server = Setup::config(&config).env("S", SECRET).start();
    for _ in 0..3 {
        server.send("stripe", &with_mail("evt_1", "pi_1", Some("jane@example.com"))).is(200);
    }
    server.send("stripe", &with_mail("evt_2", "pi_2", None)).is(200);
    server.send("stripe", &with_mail("evt_3", "pi_3", Some("refused@example.com"))).is(200);
    server.send("stripe", &with_mail("evt_4", "pi_4", Some("a@example.com, b@example.com"))).is(200);
    server.delivered();
    let mails = mail.mails();
    assert_eq!(mails.len(), 1, "{mails:?}");
    let (to, text) = &mails[0];
    assert!(to.contains("<jane@example.com>"), "{to}");
    for part in [
        "From: Shop <billing@shop.example>",
        "Subject: Your payment of 49.99 USD",
        "Message-ID: <",
        "Thank you. Reference pi_1.",
        "<p>Thank you, jane@example.com</p>",
        "multipart/alternative",
    ] {
        assert!(text.contains(part), "{part} is not in {text}");
    }
    let state = |payment: &str| {
        let sql = format!(
            "SELECT o.state || ' ' || ifnull(o.last_error, '') FROM postonce_outbox o JOIN postonce_journal j ON j.id = o.journal WHERE j.ref = '{payment}'"
        );
        server.db().query_row(&sql, [], |r| r.get::<_, String>(0)).unwrap()
    };
    assert_eq!(state("pi_1"), "SENT ");
    assert_eq!(state("pi_2"), "SENT nothing was sent: the event has no address");
    assert!(state("pi_3").starts_with("DEAD") && state("pi_3").contains("550"), "{}", state("pi_3"));
    assert!(state("pi_4").starts_with("DEAD") && state("pi_4").contains("no e-mail address"), "{}", state("pi_4"));
}

#[test]
fn a_configuration_of_mail_that_cannot_work_is_refused_with_every_fault() {
    let config = "[[source]]\nname = \"stripe\"\nsecrets = [\"env:S\"]\n
        [[deliver]]\nname = \"a\"\n[[deliver]]\nname = \"b\"\nemail = { to = \"{nobody}\", subject = \"x\", text = \"y\" }\n
        [[alert]]\nname = \"b\"\nurl = \"ftp://x\"\n[[alert]]\nname = \"c\"\nemail = \"no address\"\n";
    let text = Setup::config(config).env("S", SECRET).refused();
    for fault in [
        "deliver a: it needs either a url or an email",
        "deliver b: there is no mail server",
        "{nobody} stands for nothing",
        "alert b: the name is there twice",
        "\"ftp://x\" is no http address",
        "\"no address\" is no e-mail address",
    ] {
        assert!(text.contains(fault), "{fault} is not in {text}");
    }
}

// Following ------------------------------------------------------------------------------------------------------------

#[test]
fn tail_shows_what_arrives_while_it_looks() {
    let server = Server::start();
    pay(&server, 0, 1);
    server.settled();
    let mut child = postonce()
        .args(["tail", "--json", "--state", "done", "--count", "3", "--database"])
        .arg(server.database())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut next = || serde_json::from_str::<Value>(&lines.next().unwrap().unwrap()).unwrap();
    assert_eq!(next()["posted"][0], "payment pi_0 100 USD");
    server.send("stripe", &stripe::charge("evt_0", "pi_0", 100)).is(200); // a duplicate: not asked for
    pay(&server, 1, 3);
    let (second, third) = (next(), next());
    assert_eq!((&second["event_id"], &third["event_id"]), (&Value::from("evt_1"), &Value::from("evt_2")));
    assert!(child.wait().unwrap().success());
}

#[test]
fn forward_sends_each_delivery_on_signed_so_that_the_other_side_accepts_it() {
    let there = Server::start();
    let here = Server::start();
    pay(&here, 0, 3);
    std::fs::write(here.folder.join("f.toml"), "[[source]]\nname = \"stripe\"\nsecrets = [\"env:S\"]\n").unwrap();
    let output = postonce()
        .args(["forward", "--to", &format!("http://{}/webhooks/stripe", there.public), "--after", "0", "--count", "3"])
        .arg("--config")
        .arg(here.folder.join("f.toml"))
        .arg("--database")
        .arg(here.database())
        .env("S", SECRET)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && text.matches("-> 200").count() == 3, "{text} {output:?}");
    there.settled();
    assert_eq!(there.ledger(), here.ledger());
}

#[test]
fn doctor_says_what_is_wrong_and_what_to_do() {
    let folder = Folder::new();
    let config = folder.join("c.toml");
    let doctor = |text: &str, args: &[&str]| {
        std::fs::write(&config, text).unwrap();
        let output = postonce()
            .args(["doctor", "--json", "--config"])
            .arg(&config)
            .arg("--database")
            .arg(folder.join("x.db"))
            .args(args)
            .env("S", SECRET)
            .output()
            .unwrap();
        let lines = String::from_utf8(output.stdout).unwrap();
        let lines: Vec<Value> = lines.lines().map(|l| serde_json::from_str(l).unwrap()).collect();
        (output.status.code().unwrap(), lines)
    };
    let good = "listen = \"127.0.0.1:0\"\n[operator]\nlisten = \"127.0.0.1:0\"\n[[source]]\nname = \"stripe\"\nsecrets = [\"env:S\"]\n";
    let (code, lines) = doctor(good, &["--offline"]);
    assert_eq!(code, 0, "{lines:?}");
    assert!(lines.iter().any(|l| l["verdict"] == "warn" && l["about"] == "alerts"), "{lines:?}");
    let (code, lines) = doctor(&good.replace("env:S", "env:NOT_SET"), &["--offline", "--quiet"]);
    assert_eq!(code, 1);
    let fail = lines.iter().find(|l| l["verdict"] == "fail").unwrap();
    assert!(fail["what"].as_str().unwrap().contains("NOT_SET") && fail["try"].is_string(), "{fail}");
    assert!(lines.iter().all(|l| l["verdict"] != "ok"), "quiet shows what is not well only");
    let nobody = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let (code, lines) = doctor(&format!("{good}api_base = \"http://{nobody}\"\n"), &[]);
    assert_eq!(code, 1, "{lines:?}");
    assert!(
        lines
            .iter()
            .any(|l| l["verdict"] == "fail" && l["about"].as_str().unwrap().starts_with("API of source stripe"))
    );
}

#[test]
fn completions_and_the_manual_page_name_every_command() {
    let run = |args: &[&str]| String::from_utf8(postonce().args(args).output().unwrap().stdout).unwrap();
    let help = run(&["--help"]);
    let commands: Vec<&str> = help
        .lines()
        .skip_while(|l| !l.starts_with("Commands:"))
        .skip(1)
        .take_while(|l| l.starts_with("  "))
        .filter(|l| l.as_bytes().get(2).is_some_and(|b| *b != b' '))
        .filter_map(|l| l.split_whitespace().next())
        .collect();
    assert!(commands.contains(&"backup") && commands.len() > 15, "{commands:?}");
    let (man, bash) = (run(&["man"]), run(&["completions", "bash"]));
    for command in commands {
        assert!(bash.contains(command), "{command} is not completed");
        assert!(man.contains(&format!(".SH {}", command.to_uppercase())), "{command} is not in the manual");
    }
}
