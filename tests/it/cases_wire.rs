//! Faults that happened to people between the wire and the row: bytes, secrets, clocks, HTTP. See `cases.rs`.

use crate::harness::{SECRET, Server, Setup, Wire, sign, sign_at, stripe, verifier};
use postonce::providers::signature::Delivery;
use postonce::store::{open_for_reading, raw};
use sha2::{Digest as _, Sha256};
use std::io::Write as _;

fn stored(server: &Server, id: i64) -> raw::Body {
    raw::body(&open_for_reading(&server.database()).unwrap(), id).unwrap().unwrap()
}

/// Sends bytes that are signed as they are, and asserts that exactly they are stored.
fn kept_as_sent(server: &Server, source: &str, body: &[u8], headers: &[(&str, &str)]) {
    let answer = server.send_with(source, SECRET, body, headers).is(200);
    let answer: serde_json::Value = serde_json::from_str(&answer.body).unwrap();
    let kept = stored(server, answer["id"].as_i64().unwrap());
    assert_eq!(kept.bytes, body);
    assert_eq!(kept.sha256[..], Sha256::digest(body)[..]);
}

/// C001, C002, C003, C004, C005, C009, C074.
#[test]
fn bytes_are_verified_and_stored_exactly_as_they_came() {
    let server = Server::start();
    let event = |id: &str, inside: &str| {
        format!(
            "{{\n  \"z\": 1.50,\n  \"type\": \"charge.succeeded\",\n  \"id\": \"{id}\", \"livemode\": true, \"created\": 1795000000,\n  \"data\": {{\"object\": {{\"captured\": true, \"payment_intent\": \"pi_{id}\", \"amount_captured\": 5000, \"currency\": \"eur\", {inside}}}}}, \"a\": [ ]\n}}\n"
        )
    };
    let cases: Vec<(&str, String)> = vec![
        ("spaces", event("spaces", r#""m": 1"#)),
        ("empty", event("empty", r#""breakdown":{},"tags":[]"#)),
        ("crlf", event("crlf", "\"m\": 1").replace('\n', "\r\n")),
        ("unicode", event("unicode", r#""name": "Zoë 😊 Müßig""#)),
        ("escapes", event("escapes", r#""sku":"\u2028\u202855-A""#)),
        ("separators", event("separators", "\"sku\":\"\u{2028}\u{2028}55-A\"")),
        ("mark", format!("\u{feff}{}", event("mark", r#""m": 1"#))),
        ("marks", format!("\u{feff}\u{feff}{}", event("marks", r#""m": 1"#))),
        ("nul", event("nul", r#""note":"a\u0000b""#)),
        ("surrogate", event("surrogate", r#""note":"a\ud83db""#)),
    ];
    for (name, body) in &cases {
        kept_as_sent(&server, "stripe", body.as_bytes(), &[]);
        // The same object written anew does not match the signature of the first.
        let headers = sign("stripe", SECRET, body.as_bytes(), &[]);
        for changed in
            [body.replace(['\n', ' '], ""), format!("{body} "), body.replace("\r\n", "\n"), body.replace('ë', "e")]
        {
            if changed != *body {
                let answer = server.post("/webhooks/stripe", &headers, changed.as_bytes()).is(401);
                assert!(answer.body.contains("no_secret_matches"), "{name}: {answer:?}");
            }
        }
    }
    server.settled();
    let mut expected: Vec<String> = cases.iter().map(|(name, _)| format!("payment pi_{name} - 5000 EUR")).collect();
    expected.sort();
    assert_eq!(server.ledger(), expected);
    // What was stored proves itself again.
    let verifier = verifier("stripe", SECRET);
    for id in 1..=cases.len() as i64 {
        let kept = stored(&server, id);
        let headers: Vec<(&str, &[u8])> =
            kept.headers.lines().filter_map(|l| l.split_once(": ")).map(|(n, v)| (n, v.as_bytes())).collect();
        let delivery = Delivery { method: "POST", url: "", path: "", query: "", headers: &headers, body: &kept.bytes };
        assert!(verifier.verify_ignoring_age(&delivery, 0).is_ok(), "raw event {id}");
    }
    let log = server.log();
    let refused = log.lines().find(|l| l.contains("no_secret_matches")).unwrap();
    assert!(refused.contains(" bytes"), "the log says how long it was: {refused}");
}

/// C006, C007: forms, and content types that say something else.
#[test]
fn forms_and_odd_content_types_are_verified_over_their_bytes() {
    let server = Setup::new().source("slack", SECRET).start();
    for body in ["text=one", "text=one+two", "text=one%20two"] {
        kept_as_sent(&server, "slack", body.as_bytes(), &[("content-type", "application/x-www-form-urlencoded")]);
    }
    let body = stripe::charge("evt_1", "pi_1", 100);
    for kind in
        [Some("application/json; charset=utf-8"), Some("application/x-www-form-urlencoded"), Some("text/plain"), None]
    {
        let headers: Vec<(&str, &str)> = kind.map(|k| ("content-type", k)).into_iter().collect();
        kept_as_sent(&server, "stripe", body.as_bytes(), &headers);
    }
    server.settled();
    assert_eq!(server.ledger(), ["payment pi_1 cus_1 100 USD"]);
}

/// C011, C079: ids are what they are, digit by digit and letter by letter.
#[test]
fn references_keep_their_case_and_their_digits() {
    let server = Setup::new().source("shopify", SECRET).start();
    server.send("stripe", &stripe::charge("evt_1", "ORDER123", 100)).is(200);
    server.send("stripe", &stripe::charge("evt_2", "order123", 100)).is(200);
    let shopify = |event: &str, id: &str| {
        let body = format!(
            r#"{{"id":{id},"order_id":1,"kind":"sale","gateway":"shopify_payments","status":"success","created_at":"2026-11-30T12:00:00Z","test":false,"currency":"USD","amount":"1.00"}}"#
        );
        let headers = [
            ("x-shopify-topic", "order_transactions/create"),
            ("x-shopify-event-id", event),
            ("x-shopify-shop-domain", "s.myshopify.com"),
        ];
        server.send_with("shopify", SECRET, body.as_bytes(), &headers).is(200);
    };
    for (event, id) in [
        ("e1", "9007199254740992"),
        ("e2", "9007199254740993"),
        ("e3", "9223372036854775807"),
        ("e4", "123"),
        ("e5", "\"123\""),
        ("e6", "123.0"),
        ("e7", "1.23e2"),
    ] {
        shopify(event, id);
    }
    server.settled();
    let references: Vec<String> =
        server.ledger().iter().map(|line| line.split(' ').nth(1).unwrap().to_owned()).collect();
    assert_eq!(
        references,
        ["123", "9007199254740992", "9007199254740993", "9223372036854775807", "ORDER123", "order123"]
    );
    assert_eq!(
        server.count("SELECT count(*) FROM postonce_raw_events WHERE state = 'PARKED'"),
        2,
        "no id with a point"
    );
}

/// C012: what proxies say of our address is not believed.
#[test]
fn a_signature_over_the_address_is_checked_against_the_configured_one() {
    let server = Setup::config(
        "public_url = \"https://hooks.example.com\"\n[[source]]\nname = \"square\"\nsecrets = [\"env:S\"]\n",
    )
    .env("S", SECRET)
    .start();
    let body = br#"{"merchant_id":"M","type":"nothing","event_id":"e","created_at":"2026-11-30T12:00:00Z"}"#;
    let signed = |url: &str| {
        let path = "/webhooks/square?k=1&a=2";
        let delivery = Delivery { method: "POST", url, path, query: "k=1&a=2", headers: &[], body };
        verifier("square", SECRET).sign(&delivery, 0, "").unwrap()
    };
    let path = "/webhooks/square?k=1&a=2";
    let headers = signed("https://hooks.example.com/webhooks/square?k=1&a=2");
    server.post(path, &headers, body).is(200);
    for (name, value) in [("x-forwarded-host", "evil.example"), ("x-forwarded-proto", "http"), ("host", "evil.example")]
    {
        let mut more = headers.clone();
        more.push((name.into(), value.into()));
        let status = server.post(path, &more, body).status;
        assert!(status == 200 || (name == "host" && status == 400), "{name}: {status}");
    }
    server.post("/webhooks/square?a=2&k=1", &headers, body).is(401);
    server.post(path, &signed("http://127.0.0.1/webhooks/square?k=1&a=2"), body).is(401);
}

/// C015.
#[test]
fn a_retry_with_another_body_under_the_old_signature_is_no_event() {
    let server = Server::start();
    let headers = sign("stripe", SECRET, stripe::charge("evt_1", "pi_1", 100).as_bytes(), &[]);
    let rebuilt = stripe::charge("evt_1", "pi_1", 100).replace("1795000000", "1795000001");
    server.post("/webhooks/stripe", &headers, rebuilt.as_bytes()).is(401);
    assert_eq!(server.count("SELECT count(*) FROM postonce_raw_events"), 0);
}

/// C016.
#[test]
fn a_secret_with_white_space_around_it_is_trimmed_and_an_empty_one_stops_the_start() {
    for pasted in [format!("{SECRET}\n"), format!("{SECRET}\r\n"), format!(" {SECRET}")] {
        let server = Setup::default().source("stripe", &pasted).start();
        server.send("stripe", &stripe::charge("evt_1", "pi_1", 100)).is(200);
        assert!(server.log().contains("white space"), "it says so");
        assert!(!server.log().contains(SECRET));
    }
    for empty in ["", " \n"] {
        let said = Setup::default().source("stripe", empty).refused();
        assert!(said.contains("empty"), "{said}");
    }
}

/// C017.
#[test]
fn what_is_no_secret_is_refused_at_the_start_by_what_it_is() {
    let provider = "standard_webhooks";
    Setup::default().source(provider, "whsec_QUJDREVGR0hJSktMTU5PUFFSU1RVVldYWVo=").start();
    for (pasted, named) in [
        ("v1,whsec_QUJDREVGR0hJSktMTU5PUFFSU1RVVldYWVo=", "version label"),
        ("whsec_not-base64!", "base64"),
        ("sk_test_123", "API key"),
        ("we_123", "endpoint"),
    ] {
        let said = Setup::default().source(provider, pasted).refused();
        assert!(said.contains(named), "{pasted}: {said}");
        assert!(!said.contains(pasted.trim_start_matches("whsec_")), "the secret is in the message: {said}");
    }
}

/// C018, C033.
#[test]
fn tenants_do_not_share_secrets_keys_or_money() {
    let other = "whsec_YW5vdGhlciBzZWNyZXQgb2YgdGhlIHRlc3RzIDAxMjM0NQ==";
    let server = Setup::config(
        r#"
[[source]]
name = "stripe-acme"
provider = "stripe"
tenant = "acme"
secrets = ["env:S1"]
[[source]]
name = "stripe-birch"
provider = "stripe"
tenant = "birch"
secrets = ["env:S2"]
"#,
    )
    .env("S1", SECRET)
    .env("S2", other)
    .start();
    for n in 0..25 {
        let body = stripe::charge(&format!("evt_{n}"), &format!("pi_{n}"), 100);
        server.send_with("stripe-acme", SECRET, body.as_bytes(), &[]).is(200);
        server.send_with("stripe-birch", other, body.as_bytes(), &[]).is(200);
    }
    let stray = stripe::charge("evt_x", "pi_x", 100);
    server.send_with("stripe-acme", other, stray.as_bytes(), &[]).is(401);
    server.settled();
    let log = server.log();
    assert!(log.contains("a secret of source stripe-birch matches"), "{log}");
    let of = |tenant: &str| server.list(&["ledger", "--tenant", tenant]).len();
    assert_eq!((of("acme"), of("birch")), (25, 25));
    server.check();
}

/// C019, C027.
#[test]
fn of_several_signatures_any_good_one_counts_and_header_names_have_no_case() {
    let server = Server::start();
    let body = stripe::charge("evt_1", "pi_1", 100);
    let header = sign("stripe", SECRET, body.as_bytes(), &[]).remove(0).1;
    let (t, good) = header.split_once(",v1=").unwrap();
    let other = "0".repeat(64);
    let send = |headers: &[(&str, String)]| {
        let headers: Vec<(String, String)> = headers.iter().map(|(n, v)| (n.to_string(), v.clone())).collect();
        server.post("/webhooks/stripe", &headers, body.as_bytes()).status
    };
    let one = |value: String| send(&[("Stripe-Signature", value)]);
    assert_eq!(one(format!("{t},v1={good},v1={other}")), 200);
    assert_eq!(one(format!("{t},v1={other},v1={good}")), 200);
    assert_eq!(one(format!("{t}, v1={good}")), 200, "a blank after the comma");
    assert_eq!(one(format!("{t},v1={}", good.to_uppercase())), 200, "hex has no case");
    assert_eq!(one(format!("{t},v1={other},v0={good}")), 401, "an older scheme never counts");
    assert_eq!(one(format!("v1={good}")), 401);
    for name in ["stripe-signature", "STRIPE-SIGNATURE", "Stripe-Signature"] {
        assert_eq!(send(&[(name, header.clone())]), 200, "{name}");
    }
    // Twice: one list, or no list; never silently the first.
    let twice = send(&[("Stripe-Signature", header.clone()), ("Stripe-Signature", format!("t=1,v1={other}"))]);
    assert_eq!(twice, 401);
}

/// C020.
#[test]
fn several_live_secrets_are_tried_and_a_retired_one_is_named() {
    let (old, gone) =
        ("whsec_b2xkIHNlY3JldCBvZiB0aGUgdGVzdHMgMDEyMzQ1Njc=", "whsec_Z29uZSBzZWNyZXQgb2YgdGhlIHRlc3RzIDAxMjM0NQ==");
    let server = Setup::config(
        r#"
[[source]]
name = "stripe"
secrets = [
  { name = "new", value = "env:NEW" },
  { name = "old", value = "env:OLD", ends = "2099-01-01T00:00:00Z" },
  { name = "gone", value = "env:GONE", ends = "2026-01-01T00:00:00Z" },
]
"#,
    )
    .env("NEW", SECRET)
    .env("OLD", old)
    .env("GONE", gone)
    .start();
    server.send_with("stripe", SECRET, stripe::charge("evt_1", "pi_1", 1).as_bytes(), &[]).is(200);
    server.send_with("stripe", old, stripe::charge("evt_2", "pi_2", 1).as_bytes(), &[]).is(200);
    let refused = server.send_with("stripe", gone, stripe::charge("evt_3", "pi_3", 1).as_bytes(), &[]).is(401);
    assert!(refused.body.contains("secret_retired"), "{refused:?}");
    let secrets: Vec<_> = server.list(&["events"]).iter().map(|e| e["secret"].clone()).collect();
    assert_eq!(secrets, ["old", "new"]);
}

/// C021, C022.
#[test]
fn a_signature_has_an_age_in_both_directions_and_the_window_is_the_sources() {
    let server = Setup::config(
        "[[source]]\nname = \"stripe\"\nsecrets = [\"env:S\"]\n[[source]]\nname = \"stripe-slow\"\nprovider = \"stripe\"\nsecrets = [\"env:S\"]\ntolerance = 86400\n",
    )
    .env("S", SECRET)
    .start();
    let body = stripe::charge("evt_1", "pi_1", 100);
    let at = |source: &str, ahead_s: i64| {
        let headers = sign_at(source, SECRET, body.as_bytes(), &[], postonce::clock::wall() + ahead_s * 1000);
        server.post(&format!("/webhooks/{source}"), &headers, body.as_bytes())
    };
    at("stripe", -290).is(200);
    at("stripe", 290).is(200);
    assert!(at("stripe", -310).is(401).body.contains("too_old"));
    assert!(at("stripe", 310).is(401).body.contains("in_the_future"));
    at("stripe-slow", -13_600).is(200);
    let header = sign("stripe", SECRET, body.as_bytes(), &[]).remove(0).1;
    let (t, good) = header.split_once(",v1=").unwrap();
    for bad in [format!("t=abc,v1={good}"), format!("v1={good}"), format!("{t},t=5,v1={good}")] {
        server.post("/webhooks/stripe", &[("stripe-signature".into(), bad)], body.as_bytes()).is(401);
    }
    server.settled();
    assert_eq!(server.ledger().len(), 1);
}

/// C023: a replay starts from the stored row; nothing is verified again.
#[test]
fn an_old_event_is_replayed_without_its_age_being_asked() {
    let server = Setup::config("[[source]]\nname = \"stripe\"\nsecrets = [\"env:S\"]\nmode = \"test\"\n")
        .env("S", SECRET)
        .start();
    let body = stripe::charge("evt_1", "pi_1", 100);
    let headers = sign_at("stripe", SECRET, body.as_bytes(), &[], postonce::clock::wall() - 299_000);
    server.post("/webhooks/stripe", &headers, body.as_bytes()).is(200);
    server.settled();
    assert_eq!(server.states()[0].0, "IGNORED", "a live event on a test source");
    server.stop();
    let server = server.restart_with(Setup::new()); // the fault of the configuration is mended
    assert_eq!(server.run(&["replay", "1"]).0, 0);
    server.wait_for("SELECT count(*) = 1 FROM postonce_journal");
    assert_eq!(server.run(&["replay", "1"]).0, 1, "there is nothing more to replay");
    assert_eq!(server.ledger().len(), 1);
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut packer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    packer.write_all(bytes).unwrap();
    packer.finish().unwrap()
}

/// C024.
#[test]
fn gzip_is_read_where_the_signature_covers_what_it_unpacks_to() {
    let server = Server::start();
    let body = stripe::charge("evt_1", "pi_1", 100);
    let packed = gzip(body.as_bytes());
    for encoding in ["gzip", " GZIP "] {
        let mut headers = sign("stripe", SECRET, body.as_bytes(), &[]);
        headers.push(("content-encoding".into(), encoding.into()));
        server.post("/webhooks/stripe", &headers, &packed).is(200);
    }
    assert_eq!(stored(&server, 1).bytes, packed, "stored as it came");
    let mut headers = sign("stripe", SECRET, &packed, &[]);
    headers.push(("content-encoding".into(), "gzip".into()));
    server.post("/webhooks/stripe", &headers, &packed).is(401);
    headers[1].1 = "br".into();
    server.post("/webhooks/stripe", &headers, &packed).is(415);
    headers[1].1 = "gzip".into();
    server.post("/webhooks/stripe", &headers, b"no gzip").is(400);
    let bomb = gzip(&vec![b' '; 200 << 20]);
    assert!(bomb.len() < 1 << 20);
    server.post("/webhooks/stripe", &headers, &bomb).is(413);
    let memory = std::fs::read_to_string(format!("/proc/{}/status", server.pid())).unwrap_or_default();
    let peak =
        memory.lines().find_map(|l| l.strip_prefix("VmHWM:")).map(|l| l.trim().trim_end_matches(" kB").to_owned());
    if let Some(peak) = peak {
        assert!(peak.parse::<u64>().unwrap() < 100 << 10, "{peak} kB for a body that unpacks to 200 MiB");
    }
    server.settled();
    assert_eq!(server.ledger(), ["payment pi_1 cus_1 100 USD"]);
}

/// C025, C026.
#[test]
fn large_bodies_are_applied_up_to_the_limit_and_refused_above_it() {
    let server = Setup::config("[[source]]\nname = \"stripe\"\nsecrets = [\"env:S\"]\nbody_max = 5000000\n")
        .env("S", SECRET)
        .start();
    let body = |n: usize, size: usize| {
        let item = r#"{"sku":"x","quantity":1,"price":100},"#;
        let begin = stripe::charge(&format!("evt_{n}"), &format!("pi_{n}"), 100);
        let items = item.repeat((size - begin.len()) / item.len() + 1);
        begin.replace(r#""livemode":true"#, &format!(r#""livemode":true,"items":[{}]"#, items.trim_end_matches(',')))
    };
    for (n, size) in [60_000, 99_000, 101_000, 1_000_000, 4_900_000].into_iter().enumerate() {
        server.send("stripe", &body(n, size)).is(200);
    }
    let over = body(9, 5_000_001);
    server.send("stripe", &over).is(413);
    // The same in chunks: cut off on the way.
    let mut wire = Wire::to(server.public);
    let mut head = "POST /webhooks/stripe HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n".to_owned();
    for (name, value) in sign("stripe", SECRET, over.as_bytes(), &[]) {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    wire.write(format!("{head}\r\n").as_bytes()).unwrap();
    for piece in over.as_bytes().chunks(100_000) {
        let whole = [format!("{:x}\r\n", piece.len()).as_bytes(), piece, b"\r\n"].concat();
        if wire.write(&whole).is_err() {
            break;
        }
    }
    if let Ok(answer) = wire.answer() {
        assert_eq!(answer.status, 413);
    }
    server.settled();
    assert_eq!(server.ledger().len(), 5);
}

/// C028, C029, C036.
#[test]
fn paths_and_methods_never_redirect_and_probes_are_no_events() {
    let server = Server::start();
    let body = stripe::charge("evt_1", "pi_1", 100);
    let headers = sign("stripe", SECRET, body.as_bytes(), &[]);
    for path in ["/webhooks/stripe", "/webhooks/stripe/", "/webhooks/stripe?utm=1"] {
        server.post(path, &headers, body.as_bytes()).is(200);
    }
    for path in ["//webhooks/stripe", "/webhooks//stripe", "/webhooks", "/webhooks/", "/webhooks/nobody", "/"] {
        let answer = server.post(path, &headers, body.as_bytes()).is(404);
        assert!(answer.body.contains("/webhooks/"), "{path}: {answer:?}");
    }
    let ask = |line: &str| server.raw(format!("{line} HTTP/1.1\r\nHost: t\r\nConnection: close\r\n\r\n").as_bytes());
    let probe = ask("GET /webhooks/stripe").is(200);
    assert_eq!(probe.body, "");
    ask("GET /webhooks/nobody").is(404);
    for method in ["OPTIONS", "PUT", "DELETE", "PATCH"] {
        let answer = ask(&format!("{method} /webhooks/stripe")).is(405);
        assert_eq!(answer.header("allow"), Some("POST, GET, HEAD"), "{method}");
    }
    // HEAD has no body to wait for.
    let mut wire = Wire::to(server.public);
    wire.write(b"HEAD /webhooks/stripe HTTP/1.1\r\nHost: t\r\n\r\n").unwrap();
    assert_eq!(wire.answer().unwrap().status, 200);
    assert_eq!(server.count("SELECT count(*) FROM postonce_raw_events"), 3);
}

/// C030.
#[test]
fn handshakes_are_answered_and_are_no_events() {
    let server = Setup::config(
        "[[source]]\nname = \"meta\"\nsecrets = [\"env:S\"]\noptions = { verify_token = \"right\" }\n[[source]]\nname = \"slack\"\nsecrets = [\"env:S\"]\n",
    )
    .env("S", SECRET)
    .start();
    let ask = |token: &str| {
        let line = format!("GET /webhooks/meta?hub.mode=subscribe&hub.challenge=4711&hub.verify_token={token}");
        server.raw(format!("{line} HTTP/1.1\r\nHost: t\r\nConnection: close\r\n\r\n").as_bytes())
    };
    assert_eq!(ask("right").is(200).body, "4711");
    let wrong = ask("wrong");
    assert!(wrong.status == 403 && !wrong.body.contains("4711"), "{wrong:?}");
    let challenge = r#"{"type":"url_verification","challenge":"<b>xyz</b>"}"#;
    let answer = server.send("slack", challenge).is(200);
    assert!(answer.body.contains("<b>xyz</b>"));
    assert!(!answer.header("content-type").unwrap_or_default().contains("html"), "{answer:?}");
    server.post("/webhooks/slack", &[], challenge.as_bytes()).is(401);
    assert_eq!(server.count("SELECT count(*) FROM postonce_raw_events"), 0);
}

/// C068: whatever goes wrong before the row is durable, the provider is not told that it is well.
#[test]
fn no_exit_of_the_intake_says_2xx_without_a_row() {
    let server = Server::start();
    let body = stripe::charge("evt_1", "pi_1", 100);
    server.send_with("stripe", "whsec_wrong", body.as_bytes(), &[]).is(401);
    server.post("/webhooks/stripe", &[], b"").is(401);
    server.post("/webhooks/stripe", &[("stripe-signature".into(), "\u{1}".into())], body.as_bytes()).is(400);
    server
        .raw(b"POST /webhooks/stripe HTTP/1.1\r\nHost: t\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello")
        .is(400);
    assert_eq!(server.count("SELECT count(*) FROM postonce_raw_events"), 0);
    // Bytes that are signed and mean nothing are kept and accepted: a person looks.
    server.send_with("stripe", SECRET, b"\xff\xfe no json", &[]).is(200);
    server.send("stripe", "[1, 2, 3]").is(200);
    server.settled();
    for (state, reason) in server.states() {
        assert!(matches!(state.as_str(), "PARKED" | "IGNORED"), "{state} {reason}");
        assert!(!reason.to_lowercase().contains("signature"), "{reason}");
    }
}
