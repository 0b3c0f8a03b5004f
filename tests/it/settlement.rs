//! Settlement: the provider's own word against the ledger, through the real binary and a fake provider over HTTP.

use crate::harness::{Folder, SECRET, Server, Setup, postonce};
use crate::operator::{ask, change};
use postonce::providers::{Catalog, SampleFields};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpListener;
use std::sync::{Arc, Mutex};

const DAY: i64 = 86_400_000;

/// What the fake provider has.
#[derive(Default)]
pub struct Shelf {
    /// Rows of the balance, in order.
    pub rows: Vec<Value>,
    /// Charges by id.
    pub charges: BTreeMap<String, Value>,
    /// Events whose delivery failed.
    pub events: Vec<Value>,
    /// Answer everything with this status.
    pub status: Option<u16>,
    /// Calls by path.
    pub calls: Vec<String>,
}

/// A provider with Stripe's API on a port of its own.
pub struct Provider {
    /// Its address.
    pub base: String,
    /// What it has.
    pub shelf: Arc<Mutex<Shelf>>,
}

impl Provider {
    pub fn start() -> Provider {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let base = format!("http://{}", listener.local_addr().unwrap());
        let shelf = Arc::new(Mutex::new(Shelf::default()));
        let shared = shelf.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (Ok(mut stream), shared) = (stream, shared.clone()) else { continue };
                std::thread::spawn(move || {
                    let mut reader = BufReader::new(stream.try_clone().unwrap());
                    loop {
                        let mut target = String::new();
                        if reader.read_line(&mut target).unwrap_or(0) == 0 {
                            return;
                        }
                        let mut line = String::new();
                        while reader.read_line(&mut line).unwrap_or(0) > 2 {
                            line.clear();
                        }
                        let target = target.split(' ').nth(1).unwrap_or("/").to_owned();
                        let (status, body) = answer(&mut shared.lock().unwrap(), &target);
                        let body = body.to_string();
                        let head = format!(
                            "HTTP/1.1 {status} x\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
                            body.len()
                        );
                        if stream.write_all((head + &body).as_bytes()).is_err() {
                            return;
                        }
                    }
                });
            }
        });
        Provider { base, shelf }
    }

    /// A payment as the provider's balance and its charge have it.
    pub fn has(&self, n: usize, at: i64, amount: i64, fee: i64) {
        let mut shelf = self.shelf.lock().unwrap();
        shelf.rows.push(balance_row(n, at, amount, fee));
        shelf.charges.insert(format!("ch_{n:05}"), charge(n, at, amount));
    }

    pub fn called(&self, path: &str) -> usize {
        self.shelf.lock().unwrap().calls.iter().filter(|c| c.starts_with(path)).count()
    }
}

pub fn balance_row(n: usize, at: i64, amount: i64, fee: i64) -> Value {
    json!({
        "id": format!("txn_{n:05}"), "object": "balance_transaction", "amount": amount, "available_on": at / 1000 + 172_800,
        "created": at / 1000, "currency": "eur", "fee": fee, "net": amount - fee, "reporting_category": "charge", "type": "charge",
        "source": {"id": format!("ch_{n:05}"), "object": "charge", "amount": amount, "currency": "eur",
            "payment_intent": format!("pi_{n:05}"), "status": "succeeded"},
    })
}

fn charge(n: usize, at: i64, amount: i64) -> Value {
    json!({
        "id": format!("ch_{n:05}"), "object": "charge", "amount": amount, "amount_captured": amount, "amount_refunded": 0,
        "captured": true, "paid": true, "refunded": false, "created": at / 1000, "currency": "eur", "livemode": true,
        "customer": format!("cus_{n:05}"), "payment_intent": format!("pi_{n:05}"), "status": "succeeded",
        "balance_transaction": format!("txn_{n:05}"), "metadata": {},
    })
}

fn answer(shelf: &mut Shelf, target: &str) -> (u16, Value) {
    shelf.calls.push(target.to_owned());
    if let Some(status) = shelf.status {
        return (status, json!({"error": {"message": "out of order"}}));
    }
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let query: BTreeMap<String, String> = form_urlencoded::parse(query.as_bytes()).into_owned().collect();
    let number = |name: &str| query.get(name).and_then(|n| n.parse::<i64>().ok());
    let page = |rows: &[Value]| {
        let (from, to) = (number("created[gte]").unwrap_or(0), number("created[lt]").unwrap_or(i64::MAX));
        let inside = |r: &&Value| (from..to).contains(&r["created"].as_i64().unwrap());
        let rows: Vec<&Value> = rows.iter().filter(inside).collect();
        let start = query.get("starting_after").map_or(0, |id| rows.iter().position(|r| r["id"] == **id).unwrap() + 1);
        let end = (start + 100).min(rows.len());
        json!({"object": "list", "data": rows[start..end], "has_more": end < rows.len()})
    };
    match path {
        "/v1/balance_transactions" => (200, page(&shelf.rows)),
        "/v1/events" => (200, page(&shelf.events)),
        path => match path.strip_prefix("/v1/charges/").and_then(|id| shelf.charges.get(id)) {
            Some(charge) => (200, charge.clone()),
            None => (404, json!({"error": {"message": "no such object"}})),
        },
    }
}

fn now() -> i64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    i64::try_from(since.as_millis()).unwrap()
}

/// Yesterday's beginning (UTC) and its name.
fn yesterday() -> (i64, String) {
    let start = now() / DAY * DAY - DAY;
    (start, postonce::clock::rfc3339(start)[..10].to_owned())
}

/// A webhook of one payment.
pub fn webhook(n: usize, at: i64, amount: i64) -> String {
    let recipe = Catalog::open(None).unwrap().recipe("stripe").unwrap().unwrap();
    let sample = recipe.sample.as_ref().unwrap();
    let (reference, event, account) = (format!("{n:05}"), format!("evt_{n:05}"), format!("cus_{n:05}"));
    sample.fill(&sample.body, &SampleFields { reference: &reference, amount, account: &account, event: &event, at })
}

fn config(base: &str) -> String {
    format!(
        "[[source]]\nname = \"stripe\"\nsecrets = [\"env:STRIPE\"]\nmode = \"live\"\napi_key = \"env:KEY\"\napi_base = \"{base}\"\n\
         [source.settlement]\nenabled = false\n"
    )
}

fn setup(text: &str) -> Setup {
    Setup::config(text).env("STRIPE", SECRET).env("KEY", "sk_live_key")
}

/// Runs a settlement command with the server's configuration; its exit code and the object it prints.
fn settle(server: &Server, args: &[&str]) -> (i32, Value) {
    run_in(&server.folder, args)
}

fn run_in(folder: &Folder, args: &[&str]) -> (i32, Value) {
    let mut command = postonce();
    command.args(args).arg("--json").arg("--config").arg(folder.join("test.toml"));
    command.arg("--database").arg(folder.join("postonce.db")).env("STRIPE", SECRET).env("KEY", "sk_live_key");
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let value = text.lines().next().map(|line| serde_json::from_str(line).unwrap()).unwrap_or(Value::Null);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.code() != Some(2), "wrong usage: {args:?}: {said}");
    if value.is_null() {
        eprintln!("{args:?}: {said}");
    }
    (output.status.code().unwrap_or(-1), value)
}

#[test]
fn three_lost_webhooks_in_a_hundred_are_found_fetched_and_posted_once() {
    let provider = Provider::start();
    let server = setup(&config(&provider.base)).start();
    let (start, day) = yesterday();
    for n in 0..200 {
        let at = start + n as i64 * 400_000;
        provider.has(n, at, 1000 + n as i64, 30);
        if n % 33 != 7 {
            assert_eq!(server.send("stripe", &webhook(n, at, 1000 + n as i64)).status, 200);
        }
    }
    let lost = (0..200).filter(|n| n % 33 == 7).count() as i64;
    server.settled();
    let (code, first) = settle(&server, &["reconcile", "run", "--window", &day]);
    assert_eq!((code, first["state"].as_str()), (0, Some("COMPLETED")), "{first}");
    assert_eq!((first["found"].as_i64(), first["repaired"].as_i64()), (Some(lost), Some(lost)), "{first}");
    assert_eq!(first["buckets"], json!({"matched": 200 - lost, "missing_ours": lost}));
    server.settled();
    assert_eq!(server.count("SELECT count(*) FROM postonce_journal WHERE kind = 'payment'"), 200);
    assert_eq!(
        server.count("SELECT sum(amount) FROM postonce_journal WHERE kind = 'payment'"),
        (0..200).map(|n| 1000 + n).sum::<i64>()
    );
    assert_eq!(server.count("SELECT count(*) FROM postonce_journal WHERE kind = 'fee'"), 200, "late fees");
    let customers =
        server.count("SELECT count(*) FROM postonce_journal WHERE kind = 'payment' AND account IS NOT NULL");
    assert_eq!(customers, 200, "what was fetched knows its customer");

    let (code, again) = settle(&server, &["reconcile", "run", "--window", &day]);
    assert_eq!((code, again["buckets"].clone()), (0, json!({"matched": 200})), "{again}");
    assert_eq!((again["found"].as_i64(), again["posted"].as_i64()), (Some(0), Some(0)));
    assert_eq!(server.count("SELECT count(*) FROM postonce_settled"), 200);
    let trend = server.list(&["reconcile", "trend", "--to", &day]);
    assert_eq!(trend.last().unwrap()["found"], json!(lost), "a rerun after the repair does not hide it");
    assert_eq!(server.count("SELECT count(*) FROM postonce_discrepancies WHERE resolution = 'AUTO_FETCHED'"), lost);
    assert_eq!(server.count("SELECT count(*) FROM postonce_discrepancies WHERE state <> 'RESOLVED'"), 0);
    server.check();
}

#[test]
fn history_is_brought_in_without_receipts_and_the_next_run_finds_nothing() {
    let provider = Provider::start();
    let (start, day) = yesterday();
    for n in 0..44 {
        provider.has(n, start + n as i64 * 1_000_000, 2000 + n as i64, 40);
    }
    let text = config(&provider.base) + "[[deliver]]\nname = \"app\"\nurl = \"http://127.0.0.1:9/\"\n";
    let server = setup(&text).start();
    // nine days of silence come to more than may be repaired without a person
    let (code, refused) = settle(&server, &["reconcile", "run", "--window", &day]);
    assert_eq!((code, refused["state"].as_str()), (1, Some("INVALID")), "{refused}");
    assert!(refused["reason"].as_str().unwrap().contains("44 of 44 lines are not in our ledger"), "{refused}");
    assert_eq!(server.count("SELECT count(*) FROM postonce_raw_events"), 0, "nothing is posted, nothing corrected");

    let (code, imported) = settle(&server, &["import", "--since", &day]);
    assert_eq!(
        (code, imported["imported"].as_i64(), imported["run"]["open"].as_i64()),
        (0, Some(44), Some(0)),
        "{imported}"
    );
    assert_eq!(imported["run"]["buckets"], json!({"matched": 44}));
    assert_eq!(server.count("SELECT count(*) FROM postonce_journal WHERE kind = 'payment'"), 44);
    assert_eq!(server.count("SELECT count(*) FROM postonce_outbox"), 0, "no receipts for what is history");
    let (_, again) = settle(&server, &["import", "--since", &day]);
    assert_eq!(server.count("SELECT count(*) FROM postonce_journal WHERE kind = 'payment'"), 44, "{again}");
    let (code, run) = settle(&server, &["reconcile", "run", "--window", &day]);
    assert_eq!((code, run["found"].as_i64(), run["buckets"].clone()), (0, Some(0), json!({"matched": 44})), "{run}");
    // a webhook that comes after all, under its other name, is a repeat
    server.send("stripe", &webhook(3, start, 2003));
    server.settled();
    assert_eq!(server.states().last().unwrap().0, "DUPLICATE");
    server.check();
}

#[test]
fn what_a_person_decides_needs_a_note_and_is_written_down() {
    let provider = Provider::start();
    let server = setup(&config(&provider.base)).start();
    let (start, day) = yesterday();
    for n in 0..6 {
        provider.has(n, start + n as i64 * 1000, 900, 0);
        server.send("stripe", &webhook(n, start + n as i64 * 1000, if n == 2 { 800 } else { 900 }));
    }
    server.settled();
    let (code, run) = settle(&server, &["reconcile", "run", "--window", &day]);
    assert_eq!((code, run["buckets"].clone()), (1, json!({"amount_differs": 1, "matched": 5})), "{run}");
    assert_eq!(server.run(&["reconcile", "show", &run["run"].to_string()]).0, 1);
    let listed = server.list(&["discrepancies", "list"]);
    assert_eq!(
        (&listed[0]["class"], &listed[0]["our_amount"], &listed[0]["their_amount"]),
        (&json!("AMOUNT_DIFFERS"), &json!(800), &json!(900))
    );
    let id = listed[0]["id"].to_string();
    assert_eq!(server.run(&["discrepancies", "assign", &id, "mira", "--by", "joe"]).0, 0);
    let bare = server.run(&["discrepancies", "resolve", &id, "--as", "accepted", "--note", " ", "--by", "mira"]);
    assert_eq!(bare.0, 3, "{}", bare.1);
    assert_eq!(server.run(&["discrepancies", "resolve", &id, "--as", "forgotten", "--note", "x", "--by", "mira"]).0, 3);
    // while it is open its evidence stays
    let db = rusqlite::Connection::open(server.database()).unwrap();
    let erase = "UPDATE postonce_bodies SET body = NULL WHERE id = (SELECT j.raw_event FROM postonce_journal j JOIN postonce_discrepancies d ON d.entry = j.id)";
    assert!(db.execute(erase, []).unwrap_err().to_string().contains("evidence"));
    let done = server.run(&[
        "discrepancies",
        "resolve",
        &id,
        "--as",
        "provider-error",
        "--note",
        "they mended it",
        "--by",
        "mira",
    ]);
    assert_eq!(done.0, 0, "{}", done.1);
    assert_eq!(db.execute(erase, []).unwrap(), 1);
    assert_eq!(server.run(&["discrepancies", "list"]).0, 0);
    let shown = server.list(&["discrepancies", "show", &id]);
    let log: Vec<&str> = shown[0]["log"].as_array().unwrap().iter().map(|l| l["to_state"].as_str().unwrap()).collect();
    assert_eq!(log, ["OPEN", "ASSIGNED", "RESOLVED"]);
    for sql in [
        "DELETE FROM postonce_discrepancy_log",
        "UPDATE postonce_discrepancy_log SET note = 'x'",
        "DELETE FROM postonce_discrepancies",
    ] {
        assert!(db.execute(sql, []).is_err(), "{sql}");
    }
    server.check();
}

#[test]
fn a_wrong_key_is_for_a_person_and_changes_nothing() {
    let provider = Provider::start();
    provider.shelf.lock().unwrap().status = Some(401);
    let server = setup(&config(&provider.base)).start();
    let (_, day) = yesterday();
    let (code, run) = settle(&server, &["reconcile", "run", "--window", &day]);
    assert_eq!((code, run["state"].as_str()), (1, Some("INVALID")), "{run}");
    assert!(provider.called("/v1/balance_transactions") >= 1);
    assert_eq!(server.count("SELECT count(*) FROM postonce_raw_events"), 0);
}

#[test]
fn a_server_settles_every_day_by_itself_and_asks_for_what_it_slept_through() {
    let provider = Provider::start();
    let (start, day) = yesterday();
    for n in 0..3 {
        provider.has(n, start + n as i64 * 1000, 700, 0);
    }
    let text = config(&provider.base).replace("enabled = false", "at = \"00:00\"");
    let server = setup(&text).start();
    server.wait_for("SELECT count(*) = 2 FROM postonce_runs WHERE state = 'COMPLETED'");
    server.settled();
    assert_eq!(server.count("SELECT count(*) FROM postonce_journal WHERE kind = 'payment'"), 3);
    assert_eq!(server.count(&format!("SELECT found FROM postonce_runs WHERE again = 0 AND day = '{day}'")), 3);
    assert_eq!(server.count("SELECT count(*) FROM postonce_runs WHERE again = 1"), 1, "and all that is open");
    server.stop();

    // an hour of sleep, in which one event was sent
    let db = rusqlite::Connection::open(server.database()).unwrap();
    db.execute("UPDATE postonce_meta SET value = value - 3600000 WHERE key = 'alive_at'", []).unwrap();
    drop(db);
    let at = now() - 600_000;
    let event: Value = serde_json::from_str(&webhook(9, at, 4200)).unwrap();
    provider.shelf.lock().unwrap().events.push(event);
    let server = server.restart();
    server.wait_for("SELECT count(*) = 4 FROM postonce_journal WHERE kind = 'payment'");
    let first = postonce::settlement::window::before(&day, 6);
    let due = postonce::store::settlement::runs::days_due(&server.db(), "stripe", &first, &day, now()).unwrap();
    assert_eq!(due, Vec::<String>::new(), "no day runs twice, and none before the first");
    assert_eq!(
        server.list(&["reconcile", "trend", "--to", &day]).len(),
        1,
        "the days before the first run are no gaps"
    );
    server.send("stripe", &webhook(9, at, 4200));
    server.settled();
    assert_eq!(server.count("SELECT count(*) FROM postonce_journal WHERE kind = 'payment'"), 4);
    // an empty window that is looked at again is the same empty list
    for _ in 0..2 {
        let (code, run) = settle(&server, &["reconcile", "run", "--window", "2026-01-05"]);
        assert_eq!((code, run["state"].as_str()), (0, Some("COMPLETED")), "{run}");
    }
    server.check();
}

#[test]
fn what_is_missing_is_fetched_again_when_a_person_asks_and_posted_once() {
    let provider = Provider::start();
    let server = setup(&config(&provider.base)).start();
    let (start, day) = yesterday();
    for n in 0..4 {
        provider.has(n, start + n as i64 * 1000, 900, 0);
        if n > 1 {
            server.send("stripe", &webhook(n, start + n as i64 * 1000, 900));
        }
    }
    let kept: Vec<Value> = {
        let charges = &mut provider.shelf.lock().unwrap().charges;
        (0..2).map(|n| charges.remove(&format!("ch_{n:05}")).unwrap()).collect()
    };
    server.settled();
    let (code, run) = settle(&server, &["reconcile", "run", "--window", &day]);
    assert_eq!((code, run["buckets"].clone()), (1, json!({"matched": 2, "missing_ours": 2})), "{run}");
    let open = server.list(&["discrepancies", "list"]);
    let ids: Vec<String> = open.iter().map(|d| d["id"].to_string()).collect();
    assert!(open.iter().all(|d| d["class"] == "MISSING_OURS" && d["state"] == "OPEN"), "{open:?}");

    // Still nothing: the log and the audit say that somebody asked.
    let api = |id: &str, body: &str| change(&server, &format!("/api/v1/discrepancies/{id}/fetch"), body);
    api(&ids[0], "{}").is(400);
    api("999", r#"{"note": "x"}"#).is(404);
    let asked: Value = serde_json::from_str(&api(&ids[0], r#"{"note": "they say it is there"}"#).is(200).body).unwrap();
    assert_eq!((&asked["state"], &asked["event"]), (&json!("OPEN"), &Value::Null), "{asked}");
    assert_eq!(
        server.count("SELECT count(*) FROM postonce_audit WHERE what = 'fetch' AND note = 'they say it is there'"),
        1
    );
    assert_eq!(server.count("SELECT count(*) FROM postonce_raw_events WHERE origin <> 'webhook'"), 0);

    // The provider has them now: one by the API, one by the page.
    let mut kept = kept.into_iter();
    for n in 0..2 {
        provider.shelf.lock().unwrap().charges.insert(format!("ch_{n:05}"), kept.next().unwrap());
    }
    let asked: Value = serde_json::from_str(&api(&ids[0], r#"{"note": "again"}"#).is(200).body).unwrap();
    assert_eq!((&asked["state"], asked["event"].is_i64()), (&json!("RESOLVED"), true), "{asked}");
    api(&ids[0], r#"{"note": "and again"}"#).is(409);
    let page = format!("/settlement/discrepancies/{}", ids[1]);
    let form = ask(&server, "GET", &page, &[], "").is(200);
    let cookie = form.header("set-cookie").unwrap().split(';').next().unwrap().to_owned();
    let form = form.body;
    assert!(form.contains(&format!("action=\"{page}/fetch\"")), "{form}");
    let csrf = form.split("name=\"csrf\" value=\"").nth(1).and_then(|rest| rest.split('"').next()).unwrap();
    let headers = [("Content-Type", "application/x-www-form-urlencoded"), ("Cookie", cookie.as_str())];
    ask(&server, "POST", &format!("{page}/fetch"), &headers, "note=now").is(403);
    ask(&server, "POST", &format!("{page}/fetch"), &headers, &format!("csrf={csrf}&note=now")).is(303);
    assert_eq!(server.count("SELECT count(*) FROM postonce_discrepancies WHERE resolution = 'AUTO_FETCHED'"), 2);
    assert_eq!(server.count("SELECT count(*) FROM postonce_journal WHERE kind = 'payment'"), 4);
    assert_eq!(server.count("SELECT count(*) FROM postonce_audit WHERE what = 'fetch'"), 3);
    // Its webhook after all: known.
    server.send("stripe", &webhook(0, start, 900));
    server.settled();
    assert_eq!(server.count("SELECT count(*) FROM postonce_journal WHERE kind = 'payment'"), 4);
    assert_eq!(settle(&server, &["discrepancies", "fetch", &ids[0], "--note", "x", "--by", "mira"]).0, 3);
    let (code, run) = settle(&server, &["reconcile", "run", "--window", &day]);
    assert_eq!((code, run["buckets"].clone()), (0, json!({"matched": 4})), "{run}");
    server.check();
}

#[test]
fn the_command_line_fetches_what_is_missing_beside_a_server() {
    let provider = Provider::start();
    let server = setup(&config(&provider.base)).start();
    let (start, day) = yesterday();
    provider.has(0, start, 900, 0);
    let charge = provider.shelf.lock().unwrap().charges.remove("ch_00000").unwrap();
    assert_eq!(settle(&server, &["reconcile", "run", "--window", &day]).0, 1);
    let id = server.list(&["discrepancies", "list"])[0]["id"].to_string();
    let fetch = || settle(&server, &["discrepancies", "fetch", &id, "--note", "asked them", "--by", "mira"]);
    assert_eq!(fetch().0, 1);
    provider.shelf.lock().unwrap().charges.insert("ch_00000".into(), charge);
    let (code, asked) = fetch();
    assert_eq!((code, &asked["state"]), (0, &json!("RESOLVED")), "{asked}");
    assert_eq!(server.count("SELECT count(*) FROM postonce_audit WHERE what = 'fetch' AND who = 'mira'"), 2);
    assert_eq!(server.count("SELECT count(*) FROM postonce_journal WHERE kind = 'payment'"), 1);
}

/// The provider's days are those of its zone, on the days too that have an hour less or more.
#[test]
fn a_day_of_twenty_three_hours_and_one_of_twenty_five_are_compared_whole() {
    let text = config("http://127.0.0.1:9").replace("enabled = false", "enabled = false\nzone = \"Europe/Berlin\"");
    let server = setup(&text).start();
    const HOUR: i64 = 3_600_000;
    for (day, start, hours) in [("2026-03-29", "2026-03-28T23:00:00Z", 23), ("2026-10-25", "2026-10-24T22:00:00Z", 25)]
    {
        let start = start.parse::<jiff::Timestamp>().unwrap().as_millisecond();
        let mut report = "balance_transaction_id,created_utc,available_on_utc,currency,gross,fee,net,reporting_category,source_id,charge_id,payment_intent_id\n".to_owned();
        // The last of the day before and the first of the day after are no part of it.
        for hour in -1..=hours {
            let at = start + hour * HOUR + HOUR / 2;
            let n = (start / HOUR + hour) as usize;
            server.send("stripe", &webhook(n, at, 1000)).is(200);
            if (0..hours).contains(&hour) {
                let at = postonce::clock::rfc3339(at).replace('T', " ").replace('Z', "");
                report += &format!("txn_{n:05},{at},{at},eur,10.00,0.00,10.00,charge,ch_{n:05},,pi_{n:05}\n");
            }
        }
        server.settled();
        let file = server.folder.join(day);
        std::fs::write(&file, report).unwrap();
        let (code, run) = settle(&server, &["reconcile", "run", "--window", day, "--report", file.to_str().unwrap()]);
        assert_eq!((code, run["state"].as_str(), run["day"].as_str()), (0, Some("COMPLETED"), Some(day)), "{run}");
        assert_eq!((run["lines"].as_i64(), &run["buckets"]), (Some(hours), &json!({"matched": hours})), "{run}");
    }
    server.check();
}
