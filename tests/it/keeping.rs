//! Keeping: copies of the file made, restored and judged; what goes with its time, and what a person has removed.

use crate::cases_money::{ADYEN_KEY, adyen};
use crate::harness::{APP_SECRET, App, Folder, SECRET, Server, Setup, Wire, eventually, open_db, postonce, stripe};
use crate::lab::Lab;
use crate::ops::{get, pay, read_open_metrics};
use postonce::config::Retain;
use postonce::steps::{bring_back, retain};
use postonce::store::audit::{self, Change};
use postonce::store::raw::Origin;
use postonce::store::{Access, Options, Store};
use rusqlite::Connection;
use serde_json::Value;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

const DAY: i64 = 86_400_000;

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

/// The journal with its postings and the provider's clock, without what our own clock says.
fn books(file: &Path) -> Vec<String> {
    let db = open_db(file);
    let mut statement = db
        .prepare(
            "SELECT j.kind || ' ' || j.ref || ' ' || ifnull(j.account, '-') || ' ' || ifnull(j.parent, '-') || ' ' || j.amount || j.currency
               || ' ' || j.occurred_at || ' ' || j.settles || ' ' || b.tenant || '/' || b.provider || '/' || b.mode || ' ' ||
               (SELECT group_concat(d.code || d.holder || '>' || c.code || c.holder || ':' || p.amount)
                FROM postonce_postings p JOIN postonce_accounts d ON d.id = p.debit JOIN postonce_accounts c ON c.id = p.credit
                WHERE p.journal = j.id)
             FROM postonce_journal j JOIN postonce_books b ON b.id = j.book ORDER BY 1",
        )
        .unwrap();
    statement.query_map([], |r| r.get(0)).unwrap().map(Result::unwrap).collect()
}

#[test]
fn an_archive_is_read_back_once_and_gives_the_same_ledger() {
    let app = App::start();
    let config = format!(
        "[[source]]\nname = \"stripe\"\nsecrets = [\"env:S\"]\n[[deliver]]\nname = \"app\"\nurl = {:?}\nsecret = \"env:APP\"\n
         [[source]]\nname = \"adyen\"\nsecrets = [\"env:A\"]\ntrust_unsigned_fields = true\noptions = {{ auto_capture = \"true\" }}\n",
        app.url()
    );
    let server = Setup::config(&config).env("S", SECRET).env("A", ADYEN_KEY).env("APP", APP_SECRET).start();
    pay(&server, 0, 120);
    server.send("stripe", &stripe::intent("evt_i", "pi_3", 103)).is(200); // a duplicate of its money
    server.send("stripe", &stripe::refund("evt_r", "re_1", "pi_5", 50)).is(200);
    let untrue = [("postonce-body", "report-line")]; // a sender's own word for what it sends
    server.send_with("stripe", SECRET, stripe::charge("evt_u", "pi_u", 700).as_bytes(), &untrue).is(200);
    let flag = Value::String("true".into());
    let batch = adyen(&[("P1", "AUTHORISATION", 100, flag.clone()), ("P2", "AUTHORISATION", 250, flag)]);
    server.post("/webhooks/adyen", &[], batch.as_bytes()).is(200);
    server.send("stripe", &stripe::object("evt_n", "product.created", r#"{"id":"prod_1","object":"product"}"#)).is(200);
    server
        .send("stripe", &stripe::object("evt_last", "product.created", r#"{"id":"prod_1","object":"product"}"#))
        .is(200);
    server.delivered();
    let told = app.messages().len();
    server.stop();
    let before = books(&server.database());
    assert_eq!(before.len(), 124);

    age(&server.database(), 31);
    let folder = server.folder.join("archive");
    let store = Store::open(&server.database(), &Options::default()).unwrap();
    let rules = Retain { archive: Some(folder.clone()), ..Retain::default() };
    let pruned = retain::retain(&store, &rules, &|| false).unwrap();
    assert!(pruned.archived >= 126, "{pruned:?}");
    store.stop();
    drop(store);

    let new = server.folder.join("new.db");
    let import = |config: &str, what: &Path| {
        let file = server.folder.join("import.toml");
        std::fs::write(&file, config).unwrap();
        let mut command = postonce();
        command.args(["import", "--json", "--archive"]).arg(what).arg("--config").arg(file).arg("--database").arg(&new);
        let output = command.env("S", SECRET).env("A", ADYEN_KEY).env("APP", APP_SECRET).output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
        (output.status.code().unwrap_or(-1), text.into_owned())
    };
    let (code, text) = import("[[source]]\nname = \"stripe\"\nsecrets = [\"env:S\"]\n", &folder);
    assert!(code == 3 && text.contains("adyen (") && text.contains("nothing was imported"), "{text}");
    let (code, text) = import(&config, &folder);
    assert_eq!(code, 0, "{text}");
    assert_eq!(books(&new), before);
    assert_eq!(check(&new).0, 0);
    let events = count(&new, "SELECT count(*) FROM postonce_raw_events");
    let (code, text) = import(&config, &folder);
    let again: Value = serde_json::from_str(text.trim()).unwrap_or_else(|e| panic!("{text}: {e}"));
    assert_eq!((code, again["imported"].as_i64()), (0, Some(0)), "{text}");
    assert_eq!(books(&new), before);
    assert_eq!(count(&new, "SELECT count(*) FROM postonce_raw_events"), events);
    assert_eq!(count(&new, "SELECT count(*) FROM postonce_outbox"), 0, "nobody is told again");
    assert_eq!(app.messages().len(), told);

    // Beside a server that knows a part of it: only the rest comes.
    let other = Setup::config(&config).env("S", SECRET).env("A", ADYEN_KEY).env("APP", APP_SECRET).start();
    pay(&other, 0, 10);
    other.settled();
    let archive = std::fs::read_dir(&folder).unwrap().next().unwrap().unwrap().path();
    let (code, text) = {
        let mut command = postonce();
        command.current_dir(other.folder.join(".")).args(["import", "--config", "test.toml", "--json", "--archive"]);
        command.arg(&archive).arg("--database").arg(other.database());
        let output = command.env("S", SECRET).env("A", ADYEN_KEY).env("APP", APP_SECRET).output().unwrap();
        (
            output.status.code(),
            String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr),
        )
    };
    assert_eq!(code, Some(0), "{text}");
    assert_eq!(books(&other.database()), before);
    other.check();

    // One that was cut off is refused before anything of it is kept.
    let bytes = std::fs::read(&archive).unwrap();
    let cut = server.folder.join("cut.jsonl.zst");
    std::fs::write(&cut, &bytes[..bytes.len() - 5]).unwrap();
    std::fs::remove_file(&new).unwrap();
    let (code, text) = import(&config, &cut);
    assert!(code == 3 && text.contains("cut.jsonl.zst"), "{text}");
    assert_eq!(count(&new, "SELECT count(*) FROM postonce_raw_events"), 0);
}

#[test]
fn what_was_fetched_goes_back_to_the_account_that_was_asked_and_a_delivery_does_not() {
    let lab = || {
        let folder = Folder::new();
        let secret = folder.join("secret");
        std::fs::write(&secret, "whsec_of_the_lab").unwrap();
        let text = format!(
            "[[source]]\nname = \"stripe\"\nsecrets = [\"file:{}\"]\n[source.settlement]\naccount = \"acct_asked\"\n",
            secret.display()
        );
        Lab::open(folder, text)
    };
    // what nothing of an event says: whose account its book is
    let accounts = |lab: &Lab| -> Vec<String> {
        let sql = "SELECT j.ref || ' ' || b.provider_account FROM postonce_journal j JOIN postonce_books b ON b.id = j.book ORDER BY 1";
        let shared = lab.engine.shared();
        let read = |conn: &Connection| -> rusqlite::Result<Vec<String>> {
            conn.prepare(sql)?.query_map([], |r| r.get(0))?.collect()
        };
        shared.store.read(|conn| Ok(read(conn)?)).unwrap()
    };
    let json = "content-type: application/json";
    let body = |n: u32| stripe::charge(&format!("evt_{n}"), &format!("pi_{n}"), 100 + i64::from(n)).into_bytes();
    let bring = |lab: &Lab, archive: &Path| {
        let shared = lab.engine.shared();
        let ask = bring_back::Ask { wait: Duration::from_secs(30), wake: &|| shared.wake(), progress: &|_| {} };
        bring_back::bring_back(&Access::Ours(&shared.store), &shared.sources, &[archive.to_owned()], &ask).unwrap()
    };
    let archived = |lab: &Lab, name: &str| {
        age(&lab.file("x", "").with_file_name("lab.db"), 31);
        let folder = lab.file("y", "").with_file_name(name);
        let rules = Retain { archive: Some(folder.clone()), ..Retain::default() };
        let pruned = retain::retain(&lab.engine.shared().store, &rules, &|| false).unwrap();
        assert!(pruned.archived >= 3, "{pruned:?}");
        std::fs::read_dir(&folder).unwrap().next().unwrap().unwrap().path()
    };
    let first = lab();
    for (n, origin) in [(1, Origin::Webhook), (2, Origin::Fetched), (3, Origin::Rebuilt), (4, Origin::Webhook)] {
        first.post("stripe", json, origin, [body(n)].into_iter());
    }
    let before = accounts(&first);
    assert_eq!(before, ["pi_1 ", "pi_2 acct_asked", "pi_3 acct_asked", "pi_4 "]);
    let second = lab();
    let brought = bring(&second, &archived(&first, "first"));
    assert_eq!(accounts(&second), before[..brought.imported as usize], "{brought:?}");
    // and from an archive of what an archive brought
    second.post("stripe", json, Origin::Webhook, [body(4)].into_iter());
    let third = lab();
    let again = archived(&second, "second");
    bring(&third, &again);
    assert_eq!(accounts(&third)[..3], before[..3]);
    // there already: nothing is brought in twice under another account
    assert_eq!(bring(&third, &again).imported, 0);
    third.check();
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
    let change = Change { who: "ann".into(), what: "replay", target: "event 1".into(), note: String::new() };
    store.write(move |tx| audit::write(tx, &change)).unwrap();
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
