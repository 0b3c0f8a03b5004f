//! Operating it: metrics, health, alerts, receipts by mail, following, the doctor.

use crate::harness::{APP_SECRET, App, Folder, SECRET, Server, Setup, Wire, eventually, postonce, stripe};
use postonce::alerts::{Firing, Recipient, Watch};
use postonce::config::{AlertFormat, AlertRules};
use postonce::engine::{Engine, Parts};
use postonce::store::{Options, Store};
use rusqlite::Connection;
use serde_json::Value;
use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpListener;
use std::path::Path;
use std::process::Stdio;
use std::sync::{Arc, Mutex};

/// Asks the operator's listener.
pub fn get(server: &Server, path: &str) -> crate::harness::Answer {
    let mut wire = Wire::to(server.operator);
    wire.write(format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n").as_bytes()).unwrap();
    wire.answer().unwrap()
}

/// Sends the payments of these numbers.
pub fn pay(server: &Server, from: u32, to: u32) {
    for n in from..to {
        server.send("stripe", &stripe::charge(&format!("evt_{n}"), &format!("pi_{n}"), 100 + i64::from(n))).is(200);
    }
}

// Metrics and health ---------------------------------------------------------------------------------------------------

/// A reader of OpenMetrics text, strict about what scrapers are strict about: each family is announced once, with a help
/// and a type, its samples follow in one block under names its type allows, no sample comes twice, buckets grow up to
/// the count, and the text ends with its mark.
pub fn read_open_metrics(text: &str) -> Result<BTreeMap<String, String>, String> {
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
fn the_dashboard_and_the_rules_ask_for_metrics_that_are_there() {
    let config = "[[source]]\nname = \"stripe\"\nsecrets = [\"env:S\"]\n[backup]\ndir = \"copies\"\n";
    let server = Setup::config(config).env("S", SECRET).start();
    server.send_with("stripe", "whsec_other", b"{}", &[]).is(401);
    let samples = eventually("a backup", || {
        let samples = read_open_metrics(&get(&server, "/metrics").body).unwrap();
        samples.contains_key("postonce_last_backup_timestamp_seconds").then_some(samples)
    });
    let there: Vec<&str> = samples.keys().map(|name| name.split('{').next().unwrap()).collect();
    for file in ["grafana-dashboard.json", "prometheus-rules.yml"] {
        let text = std::fs::read_to_string(format!("{}/examples/{file}", env!("CARGO_MANIFEST_DIR"))).unwrap();
        // Every query, and every label it groups or selects by.
        let queries: Vec<&str> =
            text.lines().filter_map(|line| line.trim().trim_start_matches('"').strip_prefix("expr")).collect();
        assert!(queries.len() > 10, "{file}");
        let mut names = std::collections::BTreeSet::new();
        for query in queries {
            let words = query.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
            names.extend(words.filter(|word| word.starts_with("postonce_")));
        }
        for name in names {
            assert!(there.contains(&name), "{file} asks for {name}, which is not there");
        }
    }
    // The same figures for a scraper that wants the older text.
    let mut wire = Wire::to(server.operator);
    let asked = "GET /metrics HTTP/1.1\r\nHost: localhost\r\nAccept: text/plain\r\n\r\n";
    wire.write(asked.as_bytes()).unwrap();
    let plain = wire.answer().unwrap().is(200);
    assert_eq!(plain.header("content-type"), Some("text/plain; version=0.0.4; charset=utf-8"));
    assert!(plain.body.contains("# TYPE postonce_requests_total counter\n"), "{}", plain.body);
    assert!(plain.body.contains("# HELP postonce_lock_wait_seconds_total Time"), "{}", plain.body);
    assert!(!plain.body.contains("# EOF") && !plain.body.contains("# UNIT"), "{}", plain.body);
    for (n, line) in plain.body.lines().enumerate() {
        let name = line.split([' ', '{']).next().unwrap();
        assert!(line.starts_with("# ") || there.contains(&name), "line {n}: {line}");
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
    let mut watch = Watch::begin();
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
    let mut watch = Watch::begin();
    let rules = AlertRules { disk_free_mb: 0, ..AlertRules::default() };
    shared.raise("invalid_run", "stripe", 1, "the run of 2026-11-30 is invalid".into());
    let firing = watch.look(shared, &rules).unwrap();
    assert_eq!((firing.len(), firing[0].kind, firing[0].subject.as_str()), (1, "invalid_run", "stripe"));
    shared.clear("invalid_run", "stripe");
    assert_eq!(watch.look(shared, &rules).unwrap(), []);
    engine.stop();
}

#[test]
fn an_event_that_is_parked_for_too_long_is_an_alert() {
    let folder = Folder::new();
    let engine = engine(&folder.join("x.db"));
    let shared = engine.shared();
    let hours = |n: i64| postonce::clock::wall() - n * 3_600_000;
    let times = [(hours(30), "PARKED"), (hours(29), "PARKED"), (hours(28), "DONE"), (hours(2), "PARKED")];
    shared
        .store
        .write(move |tx| {
            let source = tx.source("stripe")?;
            for (at, state) in times {
                tx.conn.execute(
                    "INSERT INTO postonce_raw_events(source, origin, received_at, state, ended_at, reason) VALUES (?1, 'webhook', ?2, ?3, ?2, 'no reference')",
                    rusqlite::params![source, at, state],
                )?;
            }
            Ok(())
        })
        .unwrap();
    let mut watch = Watch::begin();
    let rules = AlertRules { disk_free_mb: 0, ..AlertRules::default() };
    let parked = |firing: Vec<Firing>| firing.into_iter().filter(|f| f.kind == "parked").collect::<Vec<_>>();
    let firing = parked(watch.look(shared, &rules).unwrap());
    assert_eq!((firing.len(), firing[0].subject.as_str(), firing[0].count), (1, "stripe", 2), "{firing:?}");
    assert!(firing[0].what.contains("the newest is 2 (no reference)"), "{firing:?}");
    let patient = AlertRules { parked_h: 31, ..rules };
    assert_eq!(parked(watch.look(shared, &patient).unwrap()), []);
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
    // An app with an old SQLite on the same file: the version of whoever grew it stands at byte 96.
    let db = folder.join("x.db");
    Store::open(&db, &Options::default()).unwrap().stop();
    let old = |lines: &[Value]| {
        lines.iter().any(|l| l["verdict"] == "warn" && l["what"].as_str().unwrap().contains("SQLite 3.40.1"))
    };
    assert!(!old(&doctor(good, &["--offline"]).1));
    let mut bytes = std::fs::read(&db).unwrap();
    bytes[96..100].copy_from_slice(&3_040_001_u32.to_be_bytes());
    std::fs::write(&db, bytes).unwrap();
    let (code, lines) = doctor(good, &["--offline"]);
    assert!(code == 0 && old(&lines), "{lines:?}");
    let nobody = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let (code, lines) = doctor(&format!("{good}api_base = \"http://{nobody}\"\n"), &[]);
    assert_eq!(code, 1, "{lines:?}");
    assert!(
        lines
            .iter()
            .any(|l| l["verdict"] == "fail" && l["about"].as_str().unwrap().starts_with("API of source stripe"))
    );
}

/// The reference of the configuration, with everything in it that is only an example, is a configuration.
#[test]
fn everything_that_the_example_configuration_shows_can_be_set() {
    let text = include_str!("../../examples/postonce.toml");
    let setting = |line: &str| {
        let text = line.strip_prefix("# ")?;
        let key = text.split(' ').next().unwrap_or_default();
        let is_key = key.chars().all(|c| c.is_ascii_lowercase() || c == '_');
        let starts = |with: &str| text.split(" = ").nth(1).is_some_and(|value| value.starts_with(with));
        let is_value = ["\"", "[", "true", "false"].iter().any(|with| starts(with))
            || text.split(" = ").nth(1).is_some_and(|value| value.starts_with(|c: char| c.is_ascii_digit()));
        let table = text.starts_with('[') && text.ends_with(']');
        ((is_key && is_value) || table).then(|| text.to_owned())
    };
    let whole: Vec<String> = text.lines().map(|line| setting(line).unwrap_or_else(|| line.to_owned())).collect();
    let whole = whole.join("\n");
    let keys =
        ["operation_key", "silent_after_h", "archive", "keep_months", "parked_h", "rate_limit", "html", "password"];
    for key in keys {
        assert!(whole.lines().any(|line| line.starts_with(&format!("{key} = "))), "{key} is not shown");
    }
    if let Err(faults) = postonce::config::Loaded::parse(whole) {
        panic!("{}", faults.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"));
    }
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
    assert_eq!(run(&["help", "replay"]), run(&["replay", "--help"]));
    assert_eq!(run(&["help"]), help);
    let (man, bash) = (run(&["man"]), run(&["completions", "bash"]));
    for command in commands {
        assert!(bash.contains(command), "{command} is not completed");
        assert!(man.contains(&format!(".SH {}", command.to_uppercase())), "{command} is not in the manual");
    }
}
