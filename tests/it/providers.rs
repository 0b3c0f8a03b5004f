//! Providers as data: one invented here by a file and no Rust, what its signature does not cover, what it only points at,
//! and what the program says of a delivery that it refuses.

use crate::api::Api;
use crate::harness::{Answer, Folder, SECRET, Server, Setup, postonce, sign, sign_at, stripe};
use serde_json::{Value, json};
use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Instant;

/// Its token proves the sender and nothing of the body.
const ACORN: &str = r#"
provider = "acorn"
title = "Acorn Pay"

[signature]
kind = "token"
header = "X-Acorn-Token"
covers = "nothing"

[reply]
body = "thank you"

[api]
base = "https://api.acorn.example"
auth = "bearer"

[[fetch_object]]
kinds = ["payment"]
path = "/payments/{id}"
body = '{"all":[{"id":"api_{id}","type":"paid","at":"{/at}","payment":"{}"}]}'

[event]
body = "json"
id = "/id"
type = "/type"
time = { unix = "/at" }
batch = { items = "/all" }

[[movement]]
on = "paid"
kind = "payment"
reference = "/payment/id"
amount = { minor = "/payment/amount" }
currency = "/payment/currency"
account = "/payment/customer"

[[movement]]
on = "failed"
kind = "refund_reversed"
reference = "/refund"
amount = { minor = "/amount" }
currency = "=EUR"
if_prior = "refund"

[[movement]]
on = "both"
kind = "payment"
reference = "/payment/id"
amount = { minor = "/payment/amount" }
currency = "/payment/currency"

[[movement]]
on = "both"
kind = "refund_reversed"
reference = "/refund"
amount = { minor = "/amount" }
currency = "=EUR"
if_prior = "refund"

[[movement]]
on = "refunded"
kind = "refund"
reference = "/refund"
amount = { minor = "/amount" }
currency = "=EUR"

[[movement]]
on = "broken"
kind = "payment"
reference = "/nowhere"
amount = { minor = "/amount" }
currency = "=EUR"

[[entity]]
on = ["plan", "broken"]
kind = "subscription"
id = "/plan"
status = { from = "/status", map = { on = "active", off = "canceled" } }

[[fetch]]
on = "thin"
path = "/events/{/object}"
answer = "event"
"#;

/// A server with the invented provider; the rest of its source's table is given.
fn acorn(source: &str) -> Server {
    acorn_file(ACORN, source)
}

fn acorn_file(file: &str, source: &str) -> Server {
    let folder = Arc::new(Folder::new());
    fs::write(folder.join("acorn.toml"), file).unwrap();
    let config = format!(
        "providers_dir = {:?}\n[[source]]\nname = \"acorn\"\nsecrets = [\"env:TOKEN\"]\n{source}\n",
        folder.join("").display().to_string()
    );
    Server::start_in(folder, Setup::config(&config).env("TOKEN", "t0ken").env("KEY", "the key"))
}

fn send(server: &Server, event: &Value) -> Answer {
    let headers = [("X-Acorn-Token".to_owned(), "t0ken".to_owned())];
    server.post("/webhooks/acorn", &headers, json!({ "all": [event] }).to_string().as_bytes())
}

fn paid(event: &str, payment: &str, amount: i64) -> Value {
    json!({"id": event, "type": "paid", "at": 1_795_000_000, "payment": object(payment, amount)})
}

fn object(payment: &str, amount: i64) -> Value {
    json!({"id": payment, "amount": amount, "currency": "EUR", "customer": "cus", "at": 1_795_000_000})
}

fn keyed(api: &Api) -> String {
    format!("api_key = \"env:KEY\"\napi_base = \"{}\"", api.base())
}

fn proofs(server: &Server) -> Vec<String> {
    let mut events = server.list(&["events"]);
    events.reverse();
    events.iter().map(|e| e["proof"].as_str().unwrap_or("-").to_owned()).collect()
}

#[test]
fn a_provider_is_one_file_and_its_own_words_are_the_answer() {
    let server = acorn_file(&ACORN.replace("covers = \"nothing\"", "covers = \"body\""), "");
    let answer = send(&server, &paid("e1", "p1", 700)).is(200);
    assert_eq!((answer.body.as_str(), answer.header("Content-Type")), ("thank you", Some("text/plain; charset=utf-8")));
    server.settled();
    assert_eq!(server.ledger(), ["payment p1 cus 700 EUR"]);
    assert_eq!(proofs(&server), ["body"]);
    server.check();
}

#[test]
fn money_that_no_signature_covers_waits_unless_the_source_trusts_it() {
    let server = acorn("");
    send(&server, &paid("e1", "p1", 700)).is(200);
    server.settled();
    assert!(server.ledger().is_empty());
    let (state, reason) = server.states().remove(0);
    assert!(state == "PARKED" && reason.contains("does not cover the amount"), "{state} {reason}");
    assert_eq!(proofs(&server), ["nothing"]);
    let trusting = acorn("trust_unsigned_fields = true");
    send(&trusting, &paid("e1", "p1", 700)).is(200);
    trusting.settled();
    assert_eq!(trusting.ledger(), ["payment p1 cus 700 EUR"]);
    assert_eq!(proofs(&trusting), ["nothing"]);
}

#[test]
fn money_that_no_signature_covers_is_posted_when_the_api_says_the_same() {
    let api = Api::with(Box::new(|path| match path {
        "/payments/p1" => (200, object("p1", 700).to_string()),
        "/payments/p2" => (200, object("p2", 7).to_string()),
        _ => (404, "{}".into()),
    }));
    let server = acorn(&keyed(&api));
    for (event, payment) in [("e1", "p1"), ("e2", "p2"), ("e3", "forged")] {
        send(&server, &paid(event, payment, 700)).is(200);
        server.settled();
    }
    assert_eq!(server.ledger(), ["payment p1 cus 700 EUR"]);
    let states = server.states();
    assert_eq!(states[0].0, "DONE");
    assert!(states[1].0 == "PARKED" && states[1].1.contains("7.00 EUR in the body"), "{states:?}");
    assert!(states[1].1.contains("0.07 EUR in the provider's API"), "{states:?}");
    assert_eq!(states[2].0, "PARKED", "{states:?}");
    assert_eq!(proofs(&server), ["fetched", "nothing", "nothing"]);
    assert_eq!(api.asked(), ["/payments/p1", "/payments/p2", "/payments/forged"]);
    server.check();
}

#[test]
fn an_api_that_fails_is_asked_again_and_the_money_is_posted_once() {
    let tries = Arc::new(AtomicUsize::new(0));
    let seen = tries.clone();
    let api = Api::with(Box::new(move |_| match seen.fetch_add(1, SeqCst) {
        0 => (500, "{}".into()),
        1 => (429, "{}".into()),
        _ => (200, json!({"all": [paid("e1", "p1", 700)]}).to_string()),
    }));
    let server = acorn(&keyed(&api));
    send(&server, &json!({"id": "t1", "type": "thin", "object": "e1"})).is(200);
    send(&server, &json!({"id": "t2", "type": "thin", "object": "e1"})).is(200);
    server.settled();
    assert_eq!(server.ledger(), ["payment p1 cus 700 EUR"]);
    assert!(tries.load(SeqCst) >= 4, "asked {} times", tries.load(SeqCst));
    let mut states: Vec<String> = server.states().into_iter().map(|(state, _)| state).collect();
    states.sort();
    assert_eq!(states, ["DONE", "DUPLICATE"]);
    server.check();
}

#[test]
fn an_object_that_is_not_there_waits_for_a_person() {
    let api = Api::with(Box::new(|_| (404, r#"{"message":"no such event"}"#.into())));
    let server = acorn(&keyed(&api));
    send(&server, &json!({"id": "t1", "type": "thin", "object": "e1"})).is(200);
    server.settled();
    let (state, reason) = server.states().remove(0);
    assert!(state == "PARKED" && reason.contains("/events/e1 is not there"), "{state} {reason}");
}

/// More events than there are fetchers wait for an API that does not answer; a payment that needs none passes them, and
/// the server stops in time.
#[test]
fn an_api_that_hangs_holds_nobody_else() {
    let hanging = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let base = format!("http://{}", hanging.local_addr().unwrap());
    let plain = "[[source]]\nname = \"stripe\"\nsecrets = [\"env:S\"]";
    let folder = Arc::new(Folder::new());
    fs::write(folder.join("acorn.toml"), ACORN).unwrap();
    let config = format!(
        "providers_dir = {:?}\n[[source]]\nname = \"acorn\"\nsecrets = [\"env:TOKEN\"]\napi_key = \"env:KEY\"\napi_base = \"{base}\"\n{plain}\n",
        folder.join("").display().to_string()
    );
    let setup = Setup::config(&config).env("TOKEN", "t0ken").env("KEY", "the key").env("S", SECRET);
    let server = Server::start_in(folder, setup);
    for n in 0..400 {
        send(&server, &json!({"id": format!("t{n}"), "type": "thin", "object": "e1"})).is(200);
    }
    server.send("stripe", &stripe::charge("evt_1", "pi_1", 100)).is(200);
    server.wait_for("SELECT count(*) = 1 FROM postonce_journal");
    // Three are asked for at a time, and each gives up after five seconds: it did not wait for its turn.
    let tried = server.count("SELECT count(*) FROM postonce_raw_events WHERE attempts > 0 AND state <> 'DONE'");
    assert!(tried < 100, "{tried} of 400 came first");
    server.stop();
    assert_eq!(server.count("SELECT count(*) FROM postonce_raw_events WHERE state = 'DEAD'"), 0);
}

#[test]
fn what_takes_back_waits_for_what_it_takes_back_and_holds_back_nothing_else() {
    let server = acorn("trust_unsigned_fields = true");
    let both = json!({"id": "e1", "type": "both", "at": 1_795_000_000, "refund": "r1", "amount": 300, "payment": object("p1", 800)});
    send(&server, &both).is(200);
    server.settled();
    assert_eq!(server.ledger(), ["payment p1 - 800 EUR"]);
    assert_eq!(server.states()[0], ("PARKED".into(), "waits for the refund r1 that it takes back".into()));
    send(&server, &both).is(200); // its key is still open: it waits too
    server.settled();
    send(&server, &json!({"id": "e2", "type": "refunded", "refund": "r1", "amount": 300})).is(200);
    server.settled();
    server.wait_for("SELECT count(*) = 0 FROM postonce_raw_events WHERE state IN ('PARKED', 'RECEIVED', 'CLAIMED')");
    assert_eq!(server.ledger(), ["payment p1 - 800 EUR", "refund r1 - 300 EUR", "refund_reversed r1 - 300 EUR"]);
    send(&server, &json!({"id": "e3", "type": "failed", "refund": "r1", "amount": 300})).is(200);
    server.settled();
    assert_eq!(server.ledger().len(), 3);
    server.check();
}

#[test]
fn a_state_is_kept_although_the_money_beside_it_cannot_be_read() {
    let server = acorn("trust_unsigned_fields = true");
    send(&server, &json!({"id": "e1", "type": "broken", "amount": 5, "plan": "s1", "status": "off"})).is(200);
    server.settled();
    assert_eq!(server.states()[0].0, "PARKED");
    assert_eq!(server.list(&["entities"])[0]["status"], "canceled");
}

#[test]
fn types_that_nobody_has_a_rule_for_are_counted() {
    let server = acorn("");
    for (event, kind) in [("e1", "leaf.fell"), ("e2", "leaf.fell"), ("e3", "squirrel.came")] {
        send(&server, &json!({"id": event, "type": kind})).is(200);
    }
    server.settled();
    assert!(server.states().iter().all(|(state, why)| state == "IGNORED" && why.contains("no rule for type")));
    let unknown = server.list(&["events", "--unknown-types"]);
    let told: Vec<String> = unknown.iter().map(|row| format!("{} {}", row["count"], row["type"])).collect();
    assert_eq!(told, ["2 \"leaf.fell\"", "1 \"squirrel.came\""]);
    let (code, text) = server.run(&["events", "--unknown-types"]);
    assert!(code == 0 && text.contains("leaf.fell"), "{text}");
}

/// Reading a body once for each of its items would take minutes here.
#[test]
fn a_large_batch_is_read_once_and_not_for_each_of_its_items() {
    let server = acorn("trust_unsigned_fields = true\nbody_max = 8000000");
    let all: Vec<Value> = (0..6000).map(|n| paid(&format!("e{n}"), &format!("p{n}"), 1 + n)).collect();
    let headers = [("X-Acorn-Token".to_owned(), "t0ken".to_owned())];
    let body = json!({ "all": all, "ballast": "x".repeat(3_000_000) }).to_string();
    server.post("/webhooks/acorn", &headers, body.as_bytes()).is(200);
    server.wait_for("SELECT count(*) = 6000 FROM postonce_journal");
    server.settled();
    assert_eq!(server.count("SELECT sum(amount) FROM postonce_journal"), 6000 * 6001 / 2);
    server.check();
}

#[test]
fn a_secret_with_an_end_is_good_before_it_and_retired_after_it() {
    let config = r#"
[[source]]
name = "stripe"
secrets = [
  "env:NEW",
  { name = "the old one", value = "env:OLD", ends = "2026-01-01T00:00:00Z" },
  { name = "the next one", value = "env:NEXT", ends = "2999-01-01T00:00:00Z" },
]
"#;
    let (old, next) = ("whsec_b2xkIG9sZCBvbGQgb2xkIG9sZA==", "whsec_bmV4dCBuZXh0IG5leHQgbmV4dA==");
    let server = Setup::config(config).env("NEW", SECRET).env("OLD", old).env("NEXT", next).start();
    let body = stripe::charge("evt_1", "pi_1", 100);
    let answer = server.send_with("stripe", old, body.as_bytes(), &[]).is(401);
    assert!(answer.body.contains("secret_retired") && answer.body.contains("the old one"), "{answer:?}");
    assert_eq!(server.count("SELECT count(*) FROM postonce_raw_events"), 0);
    server.send_with("stripe", next, body.as_bytes(), &[]).is(200);
    server.send_with("stripe", SECRET, body.as_bytes(), &[]).is(200);
    server.settled();
    let names: Vec<Value> = server.list(&["events"]).iter().rev().map(|e| e["secret"].clone()).collect();
    assert_eq!(names, ["the next one", "env:NEW"]);
}

#[test]
fn how_old_and_how_far_ahead_a_signature_may_be_is_set_for_each_source() {
    let source = |name: &str, more: &str| {
        format!("[[source]]\nname = \"{name}\"\nprovider = \"stripe\"\nsecrets = [\"env:S\"]\n{more}\n")
    };
    let config = source("stripe-a", "") + &source("stripe-b", "tolerance = 3600\nfuture = 5");
    let server = Setup::config(&config).env("S", SECRET).start();
    let body = stripe::charge("evt_1", "pi_1", 100);
    let answer = |name: &str, seconds: i64| {
        let at = postonce::clock::wall() + seconds * 1000;
        let headers = sign_at(name, SECRET, body.as_bytes(), &[], at);
        let answer = server.post(&format!("/webhooks/{name}"), &headers, body.as_bytes());
        (answer.status, answer.body)
    };
    let refused = |(status, body): (u16, String), why: &str| status == 401 && body.contains(why);
    assert!(refused(answer("stripe-a", -900), "too_old") && answer("stripe-b", -900).0 == 200);
    assert!(refused(answer("stripe-b", -4000), "too_old"));
    assert!(answer("stripe-a", 60).0 == 200 && refused(answer("stripe-b", 60), "in_the_future"));
}

#[test]
fn a_source_without_a_secret_does_not_start() {
    let told = Setup::config("[[source]]\nname = \"stripe\"\n").refused();
    assert!(told.contains("source stripe") && told.contains("has no secret"), "{told}");
    let told = Setup::config("[[source]]\nname = \"stripe\"\nsecrets = [\"env:NOBODY_SETS_THIS\"]\n").refused();
    assert!(told.contains("NOBODY_SETS_THIS is not set"), "{told}");
}

#[test]
fn a_refusal_names_the_source_whose_secret_it_was_and_a_flood_of_them_does_not() {
    const FLOOD: usize = 200;
    let other = "whsec_dGhlIHNlY3JldCBvZiB0aGUgb3RoZXIgb25l";
    let source = |name: &str, secret: &str| {
        format!("[[source]]\nname = \"{name}\"\nprovider = \"stripe\"\nsecrets = [\"env:{secret}\"]\n")
    };
    let config = source("stripe-acme", "A") + &source("stripe-birch", "B");
    let server = Setup::config(&config).env("A", SECRET).env("B", other).start();
    let body = stripe::charge("evt_1", "pi_1", 100);
    let began = Instant::now();
    for _ in 0..FLOOD {
        let status = server.send_with("stripe-acme", other, body.as_bytes(), &[]).status;
        assert!(status == 401 || status == 429, "{status}");
    }
    let seconds = began.elapsed().as_secs() as usize + 1;
    let log = server.log();
    let hints = log.lines().filter(|line| line.contains("a secret of source stripe-birch matches")).count();
    assert!(hints >= 1, "{log}");
    assert!(hints <= 5 + 5 * seconds, "{hints} hints in {seconds} s");
    assert!(!log.contains(other), "a secret is in the log");
}

#[test]
fn a_fee_that_is_a_running_sum_ends_at_the_newest_total_in_every_order() {
    let fixtures: Value =
        serde_json::from_str(include_str!("../vectors/events/square.json")).expect("the fixtures are JSON");
    let update = fixtures.as_array().unwrap().iter().find(|f| f["name"] == "02_payment_updated_fee_arrives").unwrap();
    let update: Value = serde_json::from_str(update["body"].as_str().unwrap()).unwrap();
    let with = |event: &str, minute: u32, fees: &[i64]| {
        let mut update = update.clone();
        update["event_id"] = json!(event);
        update["created_at"] = json!(format!("2026-11-18T17:{minute:02}:06Z"));
        let list: Vec<Value> = fees.iter().map(|f| json!({"amount_money": {"amount": f, "currency": "USD"}})).collect();
        update["data"]["object"]["payment"]["processing_fee"] = json!(list);
        update.to_string()
    };
    let events = [with("e1", 1, &[97]), with("e2", 2, &[97, -5]), with("e3", 3, &[97, -5, 20])];
    let orders = [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]];
    for order in orders {
        let config =
            "public_url = \"https://hooks.example.com\"\n[[source]]\nname = \"square\"\nsecrets = [\"env:S\"]\n";
        let server = Setup::config(config).env("S", "the key of square").start();
        for at in order {
            let url = "https://hooks.example.com/webhooks/square";
            let body = events[at].as_bytes();
            let delivery = postonce::providers::signature::Delivery {
                body,
                ..postonce::providers::signature::Delivery::to("POST", url)
            };
            let signer = crate::harness::verifier("square", "the key of square");
            let headers = signer.sign(&delivery, postonce::clock::wall(), "x").unwrap();
            server.post("/webhooks/square", &headers, body).is(200);
            server.settled();
        }
        let balance = |code: &str| {
            let all = server.list(&["balances"]);
            all.iter().find(|line| line["code"] == code).map_or(0, |line| line["balance"].as_i64().unwrap())
        };
        assert_eq!((balance("fees"), balance("clearing")), (112, 2300 - 112), "{order:?}: {:?}", server.ledger());
        server.check();
    }
}

#[test]
fn a_payment_that_was_posted_and_taken_back_is_not_posted_again_by_itself() {
    let file = ACORN.replace("covers = \"nothing\"", "covers = \"body\"")
        + "\n[[movement]]\non = \"bounced\"\nkind = \"payment_reversed\"\nreference = \"/payment\"\namount = { minor = \"/amount\" }\ncurrency = \"=EUR\"\nif_prior = \"payment\"\n";
    let server = acorn_file(&file, "");
    let at = |mut event: Value, at: i64| {
        event["at"] = json!(at);
        event
    };
    send(&server, &at(paid("e1", "p1", 700), 1_795_000_000)).is(200);
    server.settled();
    let bounced = json!({"id": "e2", "type": "bounced", "payment": "p1", "amount": 700});
    send(&server, &at(bounced, 1_795_000_100)).is(200);
    server.settled();
    send(&server, &at(paid("e3", "p1", 700), 1_795_000_200)).is(200);
    send(&server, &at(paid("e4", "p1", 700), 1_795_000_000)).is(200); // the first, told late
    server.settled();
    let states: Vec<String> = server.states().into_iter().map(|(state, _)| state).collect();
    assert_eq!(states.iter().filter(|state| *state == "PARKED").count(), 1, "{states:?}");
    assert_eq!(server.ledger(), ["payment p1 cus 700 EUR", "payment_reversed p1 cus 700 EUR"]);
    server.check();
}

#[test]
fn verify_explains_and_interpret_and_providers_read_without_a_database() {
    let folder = Folder::new();
    let write = |name: &str, text: &str| {
        let path = folder.join(name);
        fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let run = |args: &[&str]| {
        let output = postonce().env("A", SECRET).env("T", "t0ken").args(args).output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
        (output.status.code().unwrap(), text)
    };
    let config = write("postonce.toml", "[[source]]\nname = \"stripe\"\nsecrets = [\"env:A\"]\n");
    let body = stripe::charge("evt_1", "pi_1", 100);
    let event = write("body.json", &body);
    let headers: Vec<String> =
        sign("stripe", SECRET, body.as_bytes(), &[]).iter().map(|(name, value)| format!("{name}: {value}")).collect();
    let headers = write("headers", &headers.join("\n"));
    let verify = ["verify", "--source", "stripe", "--config", &config, "--headers", &headers, "--body", &event];
    let (code, text) = run(&verify);
    assert!(code == 0 && text.contains("made this signature") && text.contains("accept: ok"), "{code} {text}");
    let (code, text) = run(&[&verify[..], &["--at", "2027-01-01T00:00:00Z", "--json"]].concat());
    let verdict: Value = serde_json::from_str(text.trim()).unwrap();
    assert_eq!((code, &verdict["verdict"], &verdict["reason"]), (1, &json!("reject"), &json!("too_old")));
    assert!(!text.contains(SECRET));

    let (code, text) = run(&["interpret", "--provider", "stripe", "--event", &event, "--json"]);
    let told: Value = serde_json::from_str(text.trim()).unwrap();
    assert_eq!((code, &told["movements"][0]["reference"]), (0, &json!("pi_1")), "{text}");

    let file = write("acorn.toml", ACORN);
    let sample = write("sample.json", &json!({"all": [paid("e1", "p1", 700)]}).to_string());
    let token = write("token", "X-Acorn-Token: t0ken\n");
    let (code, text) =
        run(&["providers", "check", &file, "--event", &sample, "--headers", &token, "--secret", "env:T"]);
    assert!(code == 0 && text.contains("signature: good") && text.contains("payment  p1, 7.00 EUR"), "{code} {text}");
    let wrong = write("wrong.toml", &ACORN.replace("kind = \"refund\"\n", "kind = \"refunt\"\n"));
    let (code, text) = run(&["providers", "check", &wrong]);
    assert!(code == 3 && text.contains("line") && text.contains("refunt"), "{code} {text}");
    let (code, text) = run(&["providers", "list", "--json"]);
    assert!(code == 0 && text.lines().count() > 50, "{text}");
    let (code, text) = run(&["providers", "show", "stripe"]);
    assert!(code == 0 && text.contains("charge.succeeded"), "{text}");
    assert!(!folder.join("postonce.db").exists());

    let vectors = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/vectors/signatures/stripe.json");
    let (code, text) = run(&["verify", "--vectors", vectors, "--json"]);
    let first: Value = serde_json::from_str(text.lines().next().unwrap()).unwrap();
    assert!(
        code == 0 && first["name"].is_string() && ["accept", "reject"].contains(&first["verdict"].as_str().unwrap())
    );
}

#[test]
fn a_body_that_is_itself_the_array_of_a_batch_is_a_batch() {
    let server = acorn_file(&ACORN.replace("items = \"/all\"", "items = \"\""), "trust_unsigned_fields = true");
    let post = |body: &Value| {
        let headers = [("X-Acorn-Token".to_owned(), "t0ken".to_owned())];
        server.post("/webhooks/acorn", &headers, body.to_string().as_bytes()).is(200);
        server.settled();
    };
    post(&json!([paid("e1", "p1", 100), paid("e2", "p2", 200), 7]));
    let states = "SELECT group_concat(state || ' ' || n, ', ') FROM (SELECT state, count(*) AS n FROM postonce_raw_events GROUP BY 1 ORDER BY 1)";
    let text = |sql: &str| -> String { server.db().query_row(sql, [], |r| r.get(0)).unwrap() };
    let posted =
        "SELECT group_concat(ref || ' ' || amount, ', ') FROM (SELECT ref, amount FROM postonce_journal ORDER BY 1)";
    assert_eq!(text(posted), "p1 100, p2 200");
    let first = text(states);
    assert!(first.contains("PARKED 1"), "the item that is no event is for a person, the others are not: {first}");
    // the same array again posts nothing, nor does a body that is none
    post(&json!([paid("e2", "p2", 200), paid("e3", "p3", 300)]));
    post(&json!({ "all": [paid("e4", "p4", 400)] }));
    assert_eq!(text(posted), "p1 100, p2 200, p3 300");
    let why = "SELECT reason FROM postonce_raw_events WHERE state = 'PARKED' ORDER BY id DESC LIMIT 1";
    assert!(text(why).contains("the body is no array"), "{}", text(why));
    server.check();
}
