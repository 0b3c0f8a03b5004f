//! Pages on a large file: every page and every listing of the API answers in less than 50 ms, whatever is in the file.
//!
//! With POSTONCE_LONG set, and only worth something in a release build: it fills a file with POSTONCE_ROWS events (a
//! million) and prints a line for each page. Otherwise a small file shows that every one of them answers.

use crate::harness::{Folder, SECRET, Server, Setup, Wire, eventually, open_db};
use postonce::store::{Options, Store, check};
use rusqlite::{Connection, params};
use serde_json::Value;
use std::sync::Arc;
use std::time::{Duration, Instant};

const BOUND: Duration = Duration::from_millis(50);
const DAY: i64 = 86_400_000;
const CUSTOMERS: i64 = 100_000;

/// One event of the past four months: its time, by number.
fn time_of(n: i64, all: i64, now: i64) -> i64 {
    now - 120 * DAY + n * (120 * DAY) / all
}

/// A file with `all` events: most of them paid, some repeated, ignored, parked, dead; of two sources, one of which fell silent.
fn fill(db: &mut Connection, all: i64, now: i64) {
    db.execute_batch("PRAGMA synchronous = OFF; PRAGMA cache_size = -200000; PRAGMA foreign_keys = OFF").unwrap();
    let began = db.transaction().unwrap();
    began
        .execute_batch(
            "INSERT INTO postonce_sources VALUES (1, 'stripe'), (2, 'gone');
             INSERT INTO postonce_books VALUES (1, 'default', 'stripe', '', 'live'), (2, 'default', 'stripe', '', 'test');
             INSERT INTO postonce_accounts(id, book, code, holder, currency, class) VALUES (1, 1, 'clearing', '', 'USD', 'ASSET'),
               (2, 1, 'fees', '', 'USD', 'EXPENSE'), (3, 1, 'suspense', '', 'USD', 'ASSET');",
        )
        .unwrap();
    {
        let mut account = began
            .prepare("INSERT INTO postonce_accounts(id, book, code, holder, currency, class) VALUES (?1, 1, 'sales', ?2, 'USD', 'INCOME')")
            .unwrap();
        for n in 0..CUSTOMERS.min(all) {
            account.execute(params![4 + n, format!("cus_{n}")]).unwrap();
        }
    }
    began.commit().unwrap();
    let pad = "x".repeat(700);
    let mut from = 0;
    while from < all {
        let tx = db.transaction().unwrap();
        {
            let mut raw = tx
                .prepare("INSERT INTO postonce_raw_events(id, source, origin, secret, received_at, state, ended_at, reason) VALUES (?1, ?2, 'webhook', 'secret 1', ?3, ?4, ?3 + 40, ?5)")
                .unwrap();
            let mut body = tx.prepare("INSERT INTO postonce_bodies VALUES (?1, 0, zeroblob(32), 'content-type: application/json', '', ?2)").unwrap();
            let mut event = tx
                .prepare("INSERT INTO postonce_events(id, book, event_id, type, occurred_at, unknown) VALUES (?1, 1, ?2, ?3, ?4, ?5)")
                .unwrap();
            let mut claim = tx
                .prepare("INSERT INTO postonce_claims(book, kind, ref, raw_event, state, amount, currency, fingerprint, journal) VALUES (1, ?1, ?2, ?3, 'DONE', ?4, ?5, ?6, ?7)")
                .unwrap();
            let mut entry = tx
                .prepare("INSERT INTO postonce_journal VALUES (?1, 1, 'payment', ?2, ?3, ?4, NULL, ?5, 'USD', NULL, ?6, ?7, 1, NULL, NULL, 2, zeroblob(32))")
                .unwrap();
            let mut posting = tx
                .prepare(
                    "INSERT INTO postonce_postings VALUES (?1, ?2, ?3, ?4, ?5,
                       (SELECT last FROM postonce_accounts WHERE id = ?3), (SELECT last FROM postonce_accounts WHERE id = ?4))",
                )
                .unwrap();
            let mut message = tx
                .prepare("INSERT INTO postonce_outbox(id, key, endpoint, raw_event, journal, state, attempts, created_at, ended_at, last_error) VALUES (?1, ?2, 'app', ?3, ?1, ?4, 1, ?5, ?5 + 90, ?6)")
                .unwrap();
            let mut attempt = tx.prepare("INSERT INTO postonce_attempts VALUES (?1, ?1, ?2, 200, 12, NULL)").unwrap();
            for n in from..(from + 20_000).min(all) {
                let (id, at) = (n + 1, time_of(n, all, now));
                let (state, reason): (&str, Option<&str>) = match n % 1000 {
                    0 => ("PARKED", Some("no reference")),
                    1 if n % 3000 == 1 => ("DEAD", Some("the effect failed")),
                    1 => ("CONFLICT", Some("another amount")),
                    2..150 => ("DUPLICATE", Some("came before")),
                    150..200 => ("IGNORED", Some("type without a rule")),
                    _ => ("DONE", None),
                };
                let source = if n < all / 100 { 2 } else { 1 };
                raw.execute(params![id, source, at, state, reason]).unwrap();
                body.execute(params![id, format!("{{\"id\":\"evt_{n}\",\"pad\":\"{pad}\"}}").as_bytes()]).unwrap();
                let kind = if state == "IGNORED" { "customer.updated" } else { "charge.succeeded" };
                event
                    .execute(params![id, format!("evt_{n}"), kind, at - 2000, state == "IGNORED" && n % 7 == 0])
                    .unwrap();
                if state != "DONE" {
                    continue;
                }
                let journal: i64 =
                    tx.query_row("SELECT ifnull(max(id), 0) + 1 FROM postonce_journal", [], |r| r.get(0)).unwrap();
                let (customer, amount) = (n * 7919 % CUSTOMERS.min(all), 100 + n % 9000);
                let reference = format!("pi_{n}");
                claim.execute(params!["event", format!("evt_{n}"), id, None::<i64>, None::<&str>, 1, journal]).unwrap();
                claim.execute(params!["payment", reference, id, amount, "USD", None::<i64>, journal]).unwrap();
                entry
                    .execute(params![journal, reference, id, format!("cus_{customer}"), amount, at - 2000, at + 40])
                    .unwrap();
                posting.execute(params![journal, 1, 1, 4 + customer, amount]).unwrap();
                posting.execute(params![journal, 2, 2, 1, 30]).unwrap();
                let dead = journal % 2000 == 0;
                message
                    .execute(params![
                        journal,
                        format!("app/{journal:012}"),
                        id,
                        if dead { "DEAD" } else { "SENT" },
                        at,
                        dead.then_some("410 gone")
                    ])
                    .unwrap();
                attempt.execute(params![journal, at]).unwrap();
            }
        }
        tx.commit().unwrap();
        from += 20_000;
    }
    let tx = db.transaction().unwrap();
    {
        let share = (all / 5).max(100);
        let mut entity = tx
            .prepare("INSERT INTO postonce_entities VALUES (1, 'subscription', ?1, ?2, ?2, NULL, ?3, 0, ?4, ?5)")
            .unwrap();
        for n in 0..share {
            let status = if n % 900 == 0 { "past_due" } else { "active" };
            entity.execute(params![format!("sub_{n}"), status, now - n, format!("cus_{n}"), n % all + 1]).unwrap();
        }
        let mut row = tx
            .prepare(
                "INSERT INTO postonce_audit(at, who, what, target, note) VALUES (?1, 'ann', 'replay', ?2, 'mended')",
            )
            .unwrap();
        for n in 0..share / 4 {
            row.execute(params![now - 100 * DAY + n, format!("event {}", n + 1)]).unwrap();
        }
        let mut report = tx
            .prepare("INSERT INTO postonce_reports(id, book, source, name, origin, window_start, window_end, sha256, first_line, fetched_at) VALUES (?1, 1, 1, 'balance', 'api', ?1, ?1 + 1, randomblob(32), 1, ?2)")
            .unwrap();
        let mut run = tx
            .prepare("INSERT INTO postonce_runs(id, book, source, report_name, day, again, window_start, window_end, started_at, state) VALUES (?1, 1, 1, 'balance', ?2, 0, ?1, ?1 + 1, ?3, 'RUNNING')")
            .unwrap();
        let mut end = tx
            .prepare("UPDATE postonce_runs SET state = 'COMPLETED', finished_at = started_at, report = ?1, journal_upto = 1, lines_total = 0, ours_total = 0, found = 1 WHERE id = ?1")
            .unwrap();
        for n in 1..=400_i64 {
            let at = now - (400 - n) * DAY;
            report.execute(params![n, at]).unwrap();
            tx.execute("UPDATE postonce_reports SET rows = 0 WHERE id = ?1", [n]).unwrap();
            run.execute(params![n, &postonce::clock::rfc3339(at)[..10], at]).unwrap();
            if n % 30 > 0 {
                end.execute([n]).unwrap();
            }
        }
        let mut found = tx
            .prepare(
                "INSERT INTO postonce_discrepancies(book, class, kind, reference, currency, our_amount, their_amount, entry, first_run, last_run, opened_at, state, resolution, resolved_at)
                 VALUES (1, ?1, 'payment', ?2, 'USD', 900, ?3, 1, ?4, ?4, ?5, ?6, ?7, ?8)",
            )
            .unwrap();
        let mut log = tx.prepare("INSERT INTO postonce_discrepancy_log(discrepancy, at, actor, from_state, to_state, note) VALUES (?1, ?2, 'settlement', '', 'OPEN', 'found')").unwrap();
        let many = (all / 200).max(250);
        for n in 0..many {
            let open = n < 200; // the oldest are those that nobody has looked at
            let at = now - 110 * DAY + n * 100 * DAY / many;
            let class = ["AMOUNT_DIFFERS", "MISSING_THEIRS", "MISSING_OURS"][n as usize % 3];
            let run = 400 - (now - at) / DAY;
            found
                .execute(params![
                    class,
                    format!("pi_{n}"),
                    800,
                    run,
                    at,
                    if open { "OPEN" } else { "RESOLVED" },
                    (!open).then_some("ACCEPTED"),
                    (!open).then_some(at + DAY)
                ])
                .unwrap();
            log.execute(params![n + 1, at]).unwrap();
        }
        let mut hour = tx.prepare("INSERT INTO postonce_hours VALUES (?1, ?2)").unwrap();
        for n in 0..90 * 24 {
            hour.execute(params![(now / 3_600_000 - n) * 3_600_000, format!("[{}7]", "7,".repeat(50))]).unwrap();
        }
    }
    tx.commit().unwrap();
    db.execute_batch("PRAGMA wal_checkpoint(TRUNCATE)").unwrap();
}

/// What can be looked at, with every way to narrow it.
fn paths(server: &Server, all: i64) -> Vec<String> {
    let day = |ago: i64| postonce::clock::rfc3339(postonce::clock::wall() - ago * DAY)[..10].to_owned();
    let middle = all / 2;
    let mut paths: Vec<String> = [
        "/",
        "/entities",
        "/dead",
        "/settlement",
        "/sources",
        "/health",
        "/audit",
        "/outbox",
        "/ledger",
        "/events",
        "/ledger/accounts",
        "/metrics",
        "/readyz",
    ]
    .map(str::to_owned)
    .to_vec();
    let narrowed = [
        (
            "/events",
            vec![
                format!("id=evt_{middle}"),
                format!("id=pi_{middle}"),
                "id=nothing".into(),
                format!("id={middle}"),
                "account=cus_7".into(),
                "account=nobody".into(),
                "type=customer.updated".into(),
                "type=nothing*".into(),
                "state=parked".into(),
                "state=dead".into(),
                "state=claimed".into(),
                "state=ignored".into(),
                "source=gone".into(),
                "source=never".into(),
                format!("from={}&to={}", day(60), day(59)),
                format!("to={}", day(90)),
                "limit=200".into(),
                format!("state=parked&to={}", day(60)),
                "type=customer.updated&source=gone".into(),
            ],
        ),
        (
            "/ledger",
            vec![
                "holder=cus_7".into(),
                "holder=nobody".into(),
                "kind=refund".into(),
                "kind=payment".into(),
                format!("reference=pi_{middle}"),
                "reference=nothing".into(),
                "account=1".into(),
                "account=2".into(),
                format!("from={}&to={}", day(60), day(59)),
                format!("account=1&to={}", day(60)),
                "limit=200".into(),
            ],
        ),
        (
            "/ledger/accounts",
            vec![
                "holder=cus_7".into(),
                "holder=nobody".into(),
                "code=sales".into(),
                "code=suspense".into(),
                "code=nothing".into(),
                format!("as_of={}", day(60)),
                format!("as_of={}", day(1)),
                format!("as_of={}", day(119)),
                format!("as_of={}&clock=occurred", day(60)),
                format!("as_of={}&clock=occurred", day(1)),
                format!("as_of={}&clock=occurred", day(119)),
                format!("holder=cus_7&as_of={}", day(60)),
                format!("code=sales&as_of={}", day(60)),
                "code=fees&limit=200".into(),
            ],
        ),
        (
            "/entities",
            vec![
                "kind=subscription".into(),
                "kind=nothing".into(),
                format!("id=sub_{}", all / 10),
                "id=nothing".into(),
                "status=past_due".into(),
                "status=lost".into(),
                "limit=200".into(),
            ],
        ),
        ("/outbox", vec!["state=waiting".into(), "state=dead".into(), "limit=200".into()]),
        ("/audit", vec!["target=event%207".into(), "target=nothing".into(), "limit=200".into()]),
        ("/settlement", vec!["show=open".into(), "show=all".into(), "show=runs".into()]),
        ("/dead", vec!["limit=200".into()]),
    ];
    for (path, queries) in &narrowed {
        paths.extend(queries.iter().map(|query| format!("{path}?{query}")));
        let api = match *path {
            "/ledger" => "/api/v1/entries",
            "/ledger/accounts" => "/api/v1/accounts",
            "/settlement" => continue,
            path => &format!("/api/v1{path}"),
        };
        paths.extend(queries.iter().map(|query| format!("{api}?{query}")));
    }
    paths.extend(["open", "all"].map(|show| format!("/api/v1/discrepancies?show={show}")));
    paths.push("/api/v1/trend?days=400".into());
    for page in [
        "/events/{id}",
        "/events/{id}/body",
        "/ledger/accounts/{id}",
        "/ledger/entries/{id}",
        "/outbox/{id}",
        "/settlement/discrepancies/{id}",
        "/settlement/runs/{id}",
    ] {
        paths.push(page.replace("{id}", &(all / 10).clamp(1, 20).to_string()));
    }
    for as_of in [format!("as_of={}", day(60)), format!("as_of={}&clock=occurred", day(60))] {
        paths.extend(
            ["/ledger/accounts/1", "/ledger/accounts/2", "/api/v1/accounts/1"].map(|path| format!("{path}?{as_of}")),
        );
    }
    // whatever else the API says that it lists
    let description: Value = serde_json::from_str(&look(server, "/api/v1/openapi.json").1).unwrap();
    for (path, methods) in description["paths"].as_object().unwrap() {
        if methods.get("get").is_some() && !path.ends_with("/reversal") && !path.ends_with("/preview") {
            paths.push(path.replace("{id}", "7"));
        }
    }
    paths
}

fn look(server: &Server, path: &str) -> (Duration, String) {
    let mut wire = Wire::to(server.operator);
    let began = Instant::now();
    wire.write(format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n").as_bytes()).unwrap();
    let answer = wire.answer().unwrap();
    let took = began.elapsed();
    // What takes longer than a page may is refused after a while.
    assert!(matches!(answer.status, 200 | 409), "{path}: {answer:?}");
    (took, answer.body)
}

/// A balance of then, by either clock, is what the postings up to then come to, before and after they were added up.
fn balances_of_then(server: &Server, all: i64) {
    let db = open_db(&server.database());
    let sum = |code: &str, which: &str| -> (i64, i64) {
        let side = |side: &str| -> i64 {
            let sql = format!(
                "SELECT ifnull(sum(p.amount), 0) FROM postonce_postings p JOIN postonce_journal j ON j.id = p.journal
                 JOIN postonce_accounts a ON a.id = p.{side} WHERE a.code = '{code}' AND {which}"
            );
            db.query_row(&sql, [], |r| r.get(0)).unwrap()
        };
        (side("debit"), side("credit"))
    };
    for added_up in [false, true] {
        if added_up {
            server.wait_for(
                "SELECT (SELECT CAST(value AS INTEGER) FROM postonce_meta WHERE key = 'summed_upto') = (SELECT max(id) FROM postonce_journal)",
            );
        }
        for at in [
            time_of(all / 3, all, postonce::clock::wall()),
            time_of(all / 2, all, postonce::clock::wall()) / DAY * DAY - 1,
        ] {
            for (clock, column) in [("recorded", "recorded_at"), ("occurred", "occurred_at")] {
                let as_of = postonce::clock::rfc3339(at).replace(':', "%3A");
                let (_, body) = look(server, &format!("/api/v1/accounts/1?as_of={as_of}&clock={clock}"));
                let account: Value = serde_json::from_str(&body).unwrap();
                let told = (account["debits"].as_i64().unwrap(), account["credits"].as_i64().unwrap());
                assert_eq!(told, sum("clearing", &format!("j.{column} <= {at}")), "clearing as of {as_of} by {clock}");
            }
        }
    }
}

#[test]
fn every_page_answers_in_time_on_a_large_file() {
    let long = std::env::var_os("POSTONCE_LONG").is_some();
    let rows = std::env::var("POSTONCE_ROWS").ok().and_then(|n| n.parse().ok());
    let all: i64 = rows.unwrap_or(if long { 1_000_000 } else { 3_000 });
    let folder = Arc::new(Folder::new());
    let file = folder.join("postonce.db");
    Store::open(&file, &Options::default()).unwrap().stop();
    let began = Instant::now();
    fill(&mut Connection::open(&file).unwrap(), all, postonce::clock::wall());
    println!("{all} events, {} MB, filled in {:?}", std::fs::metadata(&file).unwrap().len() >> 20, began.elapsed());
    if !long {
        // Like a real one in everything but the hashes.
        let mut wrong = check::run(&open_db(&file)).unwrap();
        wrong.retain(|one| !one.truth.contains("hash chain"));
        wrong.truncate(5);
        assert!(wrong.is_empty(), "{wrong:?}");
    }
    // as it is kept for years: nothing is pruned while it is looked at
    let config = "[retain]\nbodies_days = 0\nevents_days = 0\nattempts_days = 0\n[[source]]\nname = \"stripe\"\nsecrets = [\"env:S\"]\n\
                  [[source]]\nname = \"gone\"\nprovider = \"stripe\"\nsecrets = [\"env:S\"]\n[[source]]\nname = \"never\"\nprovider = \"stripe\"\nsecrets = [\"env:S\"]\n";
    let server = Server::start_in(folder, Setup::config(config).env("S", SECRET));
    // The source that fell silent months ago is found, however many events of another came since.
    eventually("when the silent source was last heard", || {
        let sources: Value = serde_json::from_str(&look(&server, "/api/v1/sources").1).unwrap();
        let gone = sources["items"].as_array()?.iter().find(|one| one["name"] == "gone")?.clone();
        (sources["looked_back_to"].is_null() && gone["quiet"] == true && gone["last_event"] == all / 100).then_some(())
    });
    // Accounts of a code are all there, page by page.
    let mut seen = std::collections::BTreeSet::new();
    let mut cursor = String::new();
    for _ in 0..20 {
        let (_, page) = look(&server, &format!("/api/v1/accounts?code=sales&limit=200{cursor}"));
        let page: Value = serde_json::from_str(&page).unwrap();
        seen.extend(page["items"].as_array().unwrap().iter().map(|one| one["id"].as_i64().unwrap()));
        let Some(next) = page["next"].as_str() else { break };
        cursor = format!("&cursor={next}");
    }
    assert_eq!(seen.len() as i64, CUSTOMERS.min(all).min(4000));
    balances_of_then(&server, all);
    let mut slow = Vec::new();
    let mut seen = Vec::new();
    for path in paths(&server, all) {
        let first = look(&server, &path).0;
        let mut times: Vec<Duration> = (0..if long { 5 } else { 1 }).map(|_| look(&server, &path).0).collect();
        times.sort_unstable();
        let (median, worst) = (times[times.len() / 2], times[times.len() - 1].max(first));
        seen.push((median, worst, path.clone()));
        if median > BOUND {
            slow.push(format!("{path}: {median:?}, first {first:?}"));
        }
    }
    seen.sort_unstable();
    seen.reverse();
    for (median, worst, path) in seen.iter().take(if long { 40 } else { 3 }) {
        println!("{median:>10.1?} median, {worst:>10.1?} worst  {path}");
    }
    println!("{} pages and listings; the slowest median {:?}", seen.len(), seen[0].0);
    if long {
        assert_eq!(slow, Vec::<String>::new(), "slower than {BOUND:?} with {all} events");
    }
}
