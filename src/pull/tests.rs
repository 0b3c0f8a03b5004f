//! Pulls over real HTTP from a fake provider that serves the sample pages, well and badly.

use super::*;
use crate::providers::Catalog;
use serde_json::json;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

/// 2026-11-20, the window of all samples.
const DAY: (Millis, Millis) = (1_795_132_800_000, 1_795_219_200_000);

/// How one request is answered instead of well.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Fault {
    None,
    /// The sample's own answer to too many requests.
    TooMany,
    Status(u16),
    /// The connection ends in the middle of the body.
    Cut,
    /// The connection ends without an answer.
    Hangup,
    /// The page before is served again.
    Repeat,
    /// The token is no longer good.
    Expired,
}

struct Exchange {
    method: String,
    path: String,
    query: Vec<(String, String)>,
    body: Value,
    headers: Vec<(String, String)>,
    answer: Vec<u8>,
    answer_headers: Vec<(String, String)>,
}

#[derive(Default)]
struct State {
    exchanges: Vec<Exchange>,
    too_many: (u16, Vec<u8>),
    faults: Vec<Fault>,
    served: Vec<String>,
    last: usize,
    tokens: usize,
}

/// A provider on a port of its own; ends with the test's process.
struct Fake {
    base: String,
    state: Arc<Mutex<State>>,
}

fn pairs(query: &str) -> Vec<(String, String)> {
    let mut pairs: Vec<_> = form_urlencoded::parse(query.as_bytes()).into_owned().collect();
    pairs.sort();
    pairs
}

fn split(url: &str) -> (String, Vec<(String, String)>) {
    let path = url.split_once("://").map_or(url, |(_, rest)| &rest[rest.find('/').unwrap()..]);
    let (path, query) = path.split_once('?').unwrap_or((path, ""));
    (path.to_owned(), pairs(query))
}

fn folder(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/vectors/api").join(name)
}

fn file(name: &str, file: &str) -> Vec<u8> {
    std::fs::read(folder(name).join(file)).unwrap()
}

fn strings(object: &Value) -> Vec<(String, String)> {
    let object = object.as_object().cloned().unwrap_or_default();
    object.iter().map(|(k, v)| (k.to_lowercase(), v.as_str().unwrap().to_owned())).collect()
}

impl Fake {
    fn start(state: State) -> Fake {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let base = format!("http://{}", listener.local_addr().unwrap());
        let state = Arc::new(Mutex::new(state));
        let shared = state.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let _ = serve(stream.unwrap(), &mut shared.lock().unwrap());
            }
        });
        Fake { base, state }
    }

    fn sample(name: &str, faults: &[Fault]) -> Fake {
        let exchange: Value = serde_json::from_slice(&file(name, "exchange.json")).unwrap();
        let mut state = State { faults: faults.to_vec(), ..State::default() };
        for one in exchange["exchanges"].as_array().unwrap() {
            let answer = file(name, one["file"].as_str().unwrap());
            if one["error"] == true {
                state.too_many = (one["status"].as_u64().unwrap() as u16, answer);
                continue;
            }
            let (path, query) = split(one["url"].as_str().unwrap());
            let method = one["method"].as_str().unwrap().to_owned();
            let (headers, answer_headers) = (strings(&one["headers"]), strings(&one["response_headers"]));
            let body = one["body"].clone();
            state.exchanges.push(Exchange { method, path, query, body, headers, answer, answer_headers });
        }
        Fake::start(state)
    }

    fn served(&self) -> Vec<String> {
        self.state.lock().unwrap().served.clone()
    }
}

fn serve(mut stream: TcpStream, state: &mut State) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream.try_clone()?);
    let mut line = String::new();
    reader.read_line(&mut line)?;
    let mut words = line.split(' ');
    let (method, url) = (words.next().unwrap_or_default().to_owned(), words.next().unwrap_or_default().to_owned());
    let mut headers = Vec::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line)?;
        let Some((name, value)) = line.trim().split_once(": ") else { break };
        headers.push((name.to_lowercase(), value.to_owned()));
    }
    let header = |name: &str| headers.iter().find(|(n, _)| n == name).map(|(_, v)| v.as_str());
    let mut body = vec![0; header("content-length").and_then(|n| n.parse().ok()).unwrap_or(0)];
    std::io::Read::read_exact(&mut reader, &mut body)?;
    state.served.push(format!("{method} {url}"));
    if url == "/v1/oauth2/token" {
        assert_eq!(header("authorization"), Some("Basic dXNlcjpzZWNyZXQ="));
        assert_eq!(body, b"grant_type=client_credentials");
        state.tokens += 1;
        return reply(&mut stream, 200, &[], br#"{"access_token":"A21AA_x","expires_in":32400}"#, usize::MAX);
    }
    let fault = if state.faults.is_empty() { Fault::None } else { state.faults.remove(0) };
    match fault {
        Fault::Hangup => return Ok(()),
        Fault::Status(status) => return reply(&mut stream, status, &[], b"<html>oops</html>", usize::MAX),
        Fault::Expired => return reply(&mut stream, 401, &[], b"{\"message\":\"expired\"}", usize::MAX),
        Fault::TooMany => {
            let (status, answer) = state.too_many.clone();
            let wait = [("retry-after".to_owned(), "7".to_owned())];
            return reply(&mut stream, status, if status == 429 { &wait } else { &[] }, &answer, usize::MAX);
        }
        Fault::None | Fault::Cut | Fault::Repeat => {}
    }
    let (path, query) = split(&url);
    let json: Value = serde_json::from_slice(&body).unwrap_or(Value::Null);
    let fits = |e: &&Exchange| {
        let same_body = e.body.is_null() || e.body["variables"] == json["variables"] && e.body.get("query").is_some();
        e.method == method && e.path == path && e.query == query && same_body
    };
    let at = state.exchanges.iter().position(|e| fits(&e));
    let Some(at) = at else {
        return reply(&mut stream, 400, &[], format!("no such exchange: {url}").as_bytes(), usize::MAX);
    };
    let at = if fault == Fault::Repeat { state.last } else { at };
    state.last = at;
    let exchange = &state.exchanges[at];
    for (name, value) in &exchange.headers {
        assert_eq!(header(name), Some(value.as_str()), "{name} of {url}");
    }
    let cut = if fault == Fault::Cut { exchange.answer.len() / 2 } else { usize::MAX };
    reply(&mut stream, 200, &exchange.answer_headers, &exchange.answer, cut)
}

fn reply(
    out: &mut TcpStream,
    status: u16,
    headers: &[(String, String)],
    body: &[u8],
    cut: usize,
) -> std::io::Result<()> {
    write!(out, "HTTP/1.1 {status} x\r\nconnection: close\r\ncontent-length: {}\r\n", body.len())?;
    for (name, value) in headers {
        write!(out, "{name}: {value}\r\n")?;
    }
    out.write_all(b"\r\n")?;
    out.write_all(&body[..body.len().min(cut)])
}

/// Never sleeps.
fn pace() -> Pace {
    Pace { wait: |_| true, call_timeout: Duration::from_secs(20), ..Pace::default() }
}

struct Sample {
    provider: &'static str,
    folder: &'static str,
    list: &'static str,
    user: &'static str,
    key: &'static str,
    size: u32,
    setting: (&'static str, &'static str),
    window: (Millis, Millis),
}

/// The day of the settlement, in India, for Razorpay: 2026-11-24.
const INDIA: (Millis, Millis) = (1_795_458_600_000, 1_795_545_000_000);

#[rustfmt::skip]
const SAMPLES: &[Sample] = &[
    Sample { provider: "stripe", folder: "stripe", list: "balance_transactions", user: "", key: "sk_test_x", size: 8, setting: ("", ""), window: DAY },
    Sample { provider: "paddle", folder: "paddle", list: "transactions", user: "", key: "pdl_live_apikey_x", size: 5, setting: ("", ""), window: DAY },
    Sample { provider: "lemonsqueezy", folder: "lemonsqueezy", list: "orders", user: "", key: "x", size: 5, setting: ("store", "1"), window: DAY },
    Sample { provider: "shopify", folder: "shopify", list: "balance_transactions", user: "", key: "shpat_x", size: 5, setting: ("shop", "shop"), window: DAY },
    Sample { provider: "paypal", folder: "paypal", list: "transactions", user: "user", key: "secret", size: 5, setting: ("", ""), window: DAY },
    Sample { provider: "square", folder: "square", list: "payments", user: "", key: "EAAA_x", size: 4, setting: ("location", "L88917AVBK2S5"), window: DAY },
    Sample { provider: "razorpay", folder: "razorpay", list: "recon", user: "rzp_x", key: "x", size: 5, setting: ("", ""), window: INDIA },
    Sample { provider: "mollie", folder: "mollie", list: "balance_transactions", user: "", key: "access_x", size: 5, setting: ("", ""), window: DAY },
    Sample { provider: "gocardless", folder: "gocardless", list: "payments", user: "", key: "live_x", size: 4, setting: ("", ""), window: DAY },
    Sample { provider: "paystack", folder: "paystack", list: "transactions", user: "", key: "sk_test_made_up", size: 5, setting: ("", ""), window: DAY },
    Sample { provider: "braintree", folder: "braintree", list: "search", user: "pub", key: "priv", size: 4, setting: ("", ""), window: DAY },
];

fn recipe(provider: &str) -> Recipe {
    Catalog::open(None).unwrap().recipe(provider).unwrap().unwrap()
}

fn access(sample: &Sample, fake: &Fake) -> Access {
    Access {
        base: Some(fake.base.clone()),
        user: (!sample.user.is_empty()).then(|| sample.user.into()),
        key: sample.key.into(),
        settings: [(sample.setting.0.to_owned(), sample.setting.1.to_owned())].into(),
        page_size: Some(sample.size),
        ..Access::default()
    }
}

type Lines = Result<(Vec<ReportLine>, Pulled), PullError>;

fn pull(sample: &Sample, faults: &[Fault]) -> (Lines, Vec<String>) {
    let fake = Fake::sample(sample.folder, faults);
    let recipe = recipe(sample.provider);
    let mut client = Client::new(&recipe, access(sample, &fake), pace()).unwrap();
    let mut lines = Vec::new();
    let pulled = client.rows(sample.list, sample.window, &mut |line| {
        lines.push(line);
        Ok::<(), PullError>(())
    });
    (pulled.map(|pulled| (lines, pulled)), fake.served())
}

fn by_provider(provider: &str) -> &'static Sample {
    SAMPLES.iter().find(|s| s.provider == provider).unwrap()
}

#[test]
fn every_sample_gives_its_known_rows_through_its_pages() {
    for sample in SAMPLES {
        let (outcome, served) = pull(sample, &[]);
        let (lines, pulled) = outcome.unwrap_or_else(|e| panic!("{}: {e}\n{served:#?}", sample.provider));
        let expected: Value = serde_json::from_slice(&file(sample.folder, "expected.json")).unwrap();
        let rows = expected["rows"].as_array().unwrap();
        assert_eq!(lines.len(), rows.len(), "{}", sample.provider);
        for (line, want) in lines.iter().zip(rows) {
            let got: Value = serde_json::from_str(&line.json(None, false, line.tax != 0)).unwrap();
            for (key, value) in want.as_object().unwrap() {
                let beside = ["note", "provider_id", "event_code", "settlement", "status", "global_id"];
                if !beside.contains(&key.as_str()) {
                    assert_eq!(&got[key], value, "{} {key} of {want}\n got {got}", sample.provider);
                }
            }
            for key in ["ref_alt", "presentment", "tax_minor"] {
                assert_eq!(got.get(key).is_some(), want.get(key).is_some(), "{} {key} of {want}", sample.provider);
            }
            assert_eq!(line.unknown_kind, None);
        }
        let whys: Vec<&str> = pulled.skipped_first.iter().map(|(_, why)| why.as_str()).collect();
        if let Some(non_rows) = expected["non_rows"].as_array() {
            let want: Vec<&str> = non_rows.iter().map(|n| n["why"].as_str().unwrap()).collect();
            assert_eq!(whys, want, "{}", sample.provider);
        }
        // Mollie's second page holds what is older than the window: the third is not asked for
        assert_eq!(pulled.pages, if sample.provider == "mollie" { 2 } else { 3 }, "{}", sample.provider);
    }
}

#[test]
fn faults_in_between_change_no_row() {
    let faults =
        [Fault::Status(500), Fault::None, Fault::TooMany, Fault::Cut, Fault::None, Fault::Hangup, Fault::Status(503)];
    for sample in SAMPLES {
        let (well, _) = pull(sample, &[]);
        let (badly, served) = pull(sample, &faults);
        let badly = badly.unwrap_or_else(|e| panic!("{}: {e}\n{served:#?}", sample.provider));
        assert!(badly.0 == well.unwrap().0, "{}", sample.provider);
        let calls = served.iter().filter(|s| !s.contains("oauth2")).count();
        assert_eq!(calls, if sample.provider == "mollie" { 2 + 3 } else { 3 + 5 }, "{}", sample.provider);
    }
}

#[test]
fn what_the_provider_asks_to_wait_is_waited_and_more_than_the_bound_is_later() {
    static WAITED: Mutex<Vec<Duration>> = Mutex::new(Vec::new());
    let sample = by_provider("stripe");
    let fake = Fake::sample("stripe", &[Fault::TooMany, Fault::Status(500), Fault::Status(500), Fault::None]);
    let recipe = recipe("stripe");
    let wait = |time| {
        WAITED.lock().unwrap().push(time);
        true
    };
    let mut client = Client::new(&recipe, access(sample, &fake), Pace { wait, ..pace() }).unwrap();
    let none = &mut |_| Ok::<(), PullError>(());
    client.rows("balance_transactions", DAY, none).unwrap();
    let waited = WAITED.lock().unwrap().clone();
    assert_eq!(waited[0], Duration::from_secs(7));
    assert!(
        (1.0..=2.0).contains(&waited[1].as_secs_f64()) && (2.0..=4.0).contains(&waited[2].as_secs_f64()),
        "{waited:?}"
    );

    let fake = Fake::sample("stripe", &[Fault::TooMany]);
    let short = Pace { wait_max: Duration::from_secs(5), ..pace() };
    let mut client = Client::new(&recipe, access(sample, &fake), short).unwrap();
    let error = client.rows("balance_transactions", DAY, none).unwrap_err();
    assert!(matches!(error, PullError::Throttled { .. }) && error.later(), "{error}");
}

#[test]
fn tries_end_and_a_stop_is_heard() {
    let sample = by_provider("mollie");
    let (outcome, served) = pull(sample, &[Fault::Status(500); 20]);
    assert!(matches!(outcome, Err(PullError::Broken { status: 500, .. })));
    assert_eq!(served.len(), 6);
    let fake = Fake::sample("mollie", &[Fault::Status(500); 20]);
    let recipe = recipe("mollie");
    let mut client = Client::new(&recipe, access(sample, &fake), Pace { wait: |_| false, ..pace() }).unwrap();
    let outcome = client.rows("balance_transactions", DAY, &mut |_| Ok::<(), PullError>(()));
    assert!(matches!(outcome, Err(PullError::Stopped)));
    assert_eq!(fake.served().len(), 1);
}

#[test]
fn a_page_that_repeats_is_an_error_and_not_rows_twice() {
    for sample in SAMPLES {
        let (outcome, served) = pull(sample, &[Fault::None, Fault::Repeat]);
        let error = outcome.expect_err(sample.provider);
        assert!(matches!(error, PullError::Repeats { page: 2 }), "{}: {error}\n{served:?}", sample.provider);
        assert!(!error.later());
    }
}

#[test]
fn a_token_that_expires_is_renewed_once_and_a_bad_key_is_not_tried_again() {
    let sample = by_provider("paypal");
    let (outcome, served) = pull(sample, &[Fault::None, Fault::Expired]);
    assert_eq!(outcome.unwrap().0.len(), 12);
    assert_eq!(served.iter().filter(|s| s.contains("oauth2")).count(), 2);
    let (outcome, served) = pull(sample, &[Fault::Expired; 9]);
    assert!(matches!(outcome, Err(PullError::Refused { status: 401, .. })));
    assert_eq!(served.len(), 4);
    let (outcome, served) = pull(by_provider("stripe"), &[Fault::Expired; 9]);
    assert!(matches!(outcome, Err(PullError::Refused { status: 401, .. })));
    assert_eq!(served.len(), 1);
}

#[test]
fn a_day_that_is_not_complete_is_deferred() {
    let mut fake_page: Value = serde_json::from_slice(&file("paypal", "page1.json")).unwrap();
    fake_page["last_refreshed_datetime"] = json!("2026-11-20T20:59:59+0000");
    let fake = Fake::sample("paypal", &[]);
    fake.state.lock().unwrap().exchanges[0].answer = fake_page.to_string().into_bytes();
    let recipe = recipe("paypal");
    let mut client = Client::new(&recipe, access(by_provider("paypal"), &fake), pace()).unwrap();
    let error = client.rows("transactions", DAY, &mut |_| Ok::<(), PullError>(())).unwrap_err();
    assert!(matches!(error, PullError::NotReady(_)) && error.later(), "{error}");
}

#[test]
fn an_item_that_cannot_be_read_stops_the_pull_with_its_place() {
    let page: Value = serde_json::from_slice(&file("square", "page1.json")).unwrap();
    let mut page = page;
    page["payments"][1]["total_money"]["currency"] = json!("XQX");
    let fake = Fake::sample("square", &[]);
    fake.state.lock().unwrap().exchanges[0].answer = page.to_string().into_bytes();
    let recipe = recipe("square");
    let mut client = Client::new(&recipe, access(by_provider("square"), &fake), pace()).unwrap();
    let error = client.rows("payments", DAY, &mut |_| Ok::<(), PullError>(())).unwrap_err();
    let PullError::Unreadable { item: 2, page: 1, pointer, .. } = &error else { panic!("{error}") };
    assert_eq!(pointer, "/total_money/currency");
}

#[test]
fn a_missing_setting_and_a_foreign_list_are_named_before_anything_is_asked() {
    let fake = Fake::sample("square", &[]);
    let recipe = recipe("square");
    let access = Access { settings: BTreeMap::new(), ..access(by_provider("square"), &fake) };
    let mut client = Client::new(&recipe, access.clone(), pace()).unwrap();
    let none = &mut |_| Ok::<(), PullError>(());
    let error = client.rows("payments", DAY, none).unwrap_err();
    assert!(error.to_string().contains("location"), "{error}");
    assert!(client.rows("nothing", DAY, none).unwrap_err().to_string().contains("payout_entries"));
    assert!(fake.served().is_empty());
    let plain = Access { base: Some("http://api.example.com".into()), ..access };
    assert!(Client::new(&recipe, plain, pace()).is_err(), "a key must not go out unencrypted");
}

#[test]
fn the_failed_events_of_stripe_come_as_their_webhooks_bring_them() {
    let fake = Fake::sample("stripe_events", &[Fault::TooMany]);
    let recipe = recipe("stripe");
    let sample = Sample { size: 6, ..Sample { folder: "stripe_events", ..*by_provider("stripe") } };
    let mut client = Client::new(&recipe, access(&sample, &fake), pace()).unwrap();
    let mut events = Vec::new();
    client
        .events("events", DAY, &mut |event| {
            events.push(event);
            Ok::<(), PullError>(())
        })
        .unwrap();
    let expected: Value = serde_json::from_slice(&file("stripe_events", "expected.json")).unwrap();
    let rows = expected["rows"].as_array().unwrap();
    assert_eq!(events.len(), rows.len());
    for (event, want) in events.iter().zip(rows) {
        assert_eq!((&event["id"], &event["type"]), (&want["event_id"], &want["type"]));
        assert_eq!(event["data"]["object"]["id"], want["object_id"]);
    }
}

fn answer(state: &mut State, method: &str, url: &str, answer: Value) {
    let (path, query) = split(&format!("http://x{url}"));
    state.exchanges.push(Exchange {
        method: method.into(),
        path,
        query,
        body: Value::Null,
        headers: vec![("authorization".into(), "Bearer k".into())],
        answer: answer.to_string().into_bytes(),
        answer_headers: Vec::new(),
    });
}

fn client_for<'r>(recipe: &'r Recipe, fake: &Fake) -> Client<'r> {
    let access = Access { base: Some(fake.base.clone()), key: "k".into(), ..Access::default() };
    Client::new(recipe, access, pace()).unwrap()
}

#[test]
fn a_missing_payment_is_rebuilt_from_its_object_only_when_it_succeeded() {
    let mut state = State::default();
    let charge = json!({"id": "ch_1", "status": "succeeded", "captured": true, "created": 7, "livemode": true});
    answer(&mut state, "GET", "/v1/charges/ch_1", charge.clone());
    answer(&mut state, "GET", "/v1/charges/ch_2", json!({"id": "ch_2", "status": "pending", "captured": false}));
    answer(&mut state, "GET", "/v1/charges?payment_intent=pi_1&limit=1", json!({"data": [charge]}));
    answer(&mut state, "GET", "/v1/events/evt_1", json!({"id": "evt_1"}));
    let fake = Fake::start(state);
    let recipe = recipe("stripe");
    let mut client = client_for(&recipe, &fake);
    let got = client.object("payment", "ch_1", None).unwrap().unwrap();
    assert!(got.rebuilt);
    assert_eq!((&got.body["type"], &got.body["data"]["object"]), (&json!("charge.succeeded"), &charge));
    assert_eq!(got.body["created"], 7);
    assert_eq!(client.object("payment", "pi_1", None).unwrap().unwrap().body["data"]["object"], charge);
    assert_eq!(client.object("payment", "ch_2", None).unwrap(), None);
    assert_eq!(client.object("fee", "txn_1", None).unwrap(), None);
    assert_eq!(client.event("evt_1").unwrap(), Some(json!({"id": "evt_1"})));
    assert_eq!(client.get("/v1/events/evt_1").unwrap(), json!({"id": "evt_1"}));
    assert!(matches!(client.get("https://evil.example/v1"), Err(PullError::ForeignUrl { .. })));
}

#[test]
fn a_report_on_demand_is_ordered_awaited_and_downloaded() {
    let mut state = State::default();
    answer(&mut state, "POST", "/reports", json!({"data": {"id": "rep_1", "status": "pending"}}));
    answer(&mut state, "GET", "/reports/rep_1", json!({"data": {"status": "ready"}}));
    answer(
        &mut state,
        "GET",
        "/reports/rep_1/download-url",
        json!({"data": {"url": "https://api.paddle.com/files/1.csv"}}),
    );
    answer(&mut state, "GET", "/files/1.csv", json!("a,b"));
    state.exchanges[3].headers.clear();
    state.faults = vec![Fault::None, Fault::Status(500)];
    let fake = Fake::start(state);
    let recipe = recipe("paddle");
    let mut out = Vec::new();
    let name = client_for(&recipe, &fake).report("payout_reconciliation", DAY, &mut out).unwrap();
    assert_eq!((name, out.as_slice()), ("payout_reconciliation", &b"\"a,b\""[..]));
    assert!(recipe.report.contains_key(name));

    let mut state = State::default();
    answer(&mut state, "POST", "/reports", json!({"data": {"id": "rep_1"}}));
    answer(&mut state, "GET", "/reports/rep_1", json!({"data": {"status": "pending"}}));
    let fake = Fake::start(state);
    let error = client_for(&recipe, &fake).report("payout_reconciliation", DAY, &mut out).unwrap_err();
    assert!(matches!(error, PullError::NotReady(_)), "{error}");
    let mut state = State::default();
    answer(&mut state, "POST", "/reports", json!({"data": {"id": "rep_1"}}));
    answer(&mut state, "GET", "/reports/rep_1", json!({"data": {"status": "ready"}}));
    answer(&mut state, "GET", "/reports/rep_1/download-url", json!({"data": {"url": "https://evil.example/1.csv"}}));
    let fake = Fake::start(state);
    let error = client_for(&recipe, &fake).report("payout_reconciliation", DAY, &mut out).unwrap_err();
    assert!(matches!(error, PullError::ForeignUrl { .. }), "{error}");
}

#[test]
fn a_report_file_whose_address_a_webhook_told_is_downloaded_with_the_report_users_key() {
    let mut state = State::default();
    let csv = std::fs::read(folder("../reports/adyen_settlement_detail.csv")).unwrap();
    let webhook: Value = serde_json::from_slice(&file("adyen", "page1.json")).unwrap();
    let told = webhook.pointer("/notificationItems/0/NotificationRequestItem/reason").unwrap().as_str().unwrap();
    answer(&mut state, "GET", &split(told).0, Value::Null);
    state.exchanges[0].headers = vec![("authorization".into(), "Basic cmVwb3J0Ong=".into())];
    state.exchanges[0].answer = csv.clone();
    state.faults = vec![Fault::Status(503), Fault::None, Fault::Cut];
    let fake = Fake::start(state);
    let recipe = recipe("adyen");
    let access =
        Access { base: Some(fake.base.clone()), user: Some("report".into()), key: "x".into(), ..Access::default() };
    let mut client = Client::new(&recipe, access, pace()).unwrap();
    let mut out = Vec::new();
    assert_eq!(client.file(told, &mut out).unwrap(), csv.len() as u64);
    assert!(out == csv);
    assert!(matches!(client.file(told, &mut Vec::new()), Err(PullError::Network(_))), "half a file is no file");
}

#[test]
fn a_next_page_among_links_is_the_one_called_next() {
    let mut state = State::default();
    let first =
        "/v1/notifications/webhooks-events?start_time=2026-11-20T00:00:00Z&end_time=2026-11-21T00:00:00Z&page_size=300";
    let links = json!([{"rel": "self", "href": format!("https://api-m.paypal.com{first}")},
        {"rel": "next", "href": "https://api-m.paypal.com/v1/notifications/webhooks-events?page=2"}]);
    answer(&mut state, "GET", first, json!({"events": [{"id": "WH-1"}], "links": links}));
    let end = json!({"events": [{"id": "WH-2"}], "links": [links[0]]});
    answer(&mut state, "GET", "/v1/notifications/webhooks-events?page=2", end);
    state.exchanges.iter_mut().for_each(|e| e.headers.clear());
    let fake = Fake::start(state);
    let recipe = recipe("paypal");
    let mut client = Client::new(&recipe, access(by_provider("paypal"), &fake), Pace { ..pace() }).unwrap();
    client.access.page_size = None;
    let mut ids = Vec::new();
    let pulled = client.events("events", DAY, &mut |event| {
        ids.push(event["id"].clone());
        Ok::<(), PullError>(())
    });
    assert_eq!(ids, ["WH-1", "WH-2"]);
    assert_eq!(pulled.unwrap().pages, 2);
}

#[test]
fn a_list_of_lists_asks_once_for_each_parent() {
    let mut state = State::default();
    let window = "begin_time=2026-11-20T00:00:00Z&end_time=2026-11-21T00:00:00Z&location_id=L1&limit=100";
    answer(&mut state, "GET", &format!("/v2/payouts?{window}"), json!({"payouts": [{"id": "po_1"}, {"id": "po_2"}]}));
    for (payout, payment, cursor) in [("po_1", "p1", ""), ("po_2", "p2", "")] {
        let entry = json!({"id": format!("e_{payment}"), "payout_id": payout, "type": "CHARGE", "effective_at": "2026-11-20T10:00:00Z",
            "gross_amount_money": {"amount": 100, "currency_code": "USD"}, "fee_amount_money": {"amount": 3},
            "net_amount_money": {"amount": 97}, "type_charge_details": {"payment_id": payment}});
        let page = json!({"payout_entries": [entry], "cursor": cursor});
        answer(&mut state, "GET", &format!("/v2/payouts/{payout}/payout-entries?limit=100"), page);
    }
    let fake = Fake::start(state);
    let recipe = recipe("square");
    let access = Access {
        base: Some(fake.base.clone()),
        key: "k".into(),
        settings: [("location".to_owned(), "L1".to_owned())].into(),
        ..Access::default()
    };
    let mut references = Vec::new();
    let mut client = Client::new(&recipe, access, pace()).unwrap();
    let pulled = client.rows("payout_entries", DAY, &mut |line| {
        references.push((line.reference.unwrap(), line.payout_ref.unwrap(), line.net));
        Ok::<(), PullError>(())
    });
    assert_eq!(references, [("p1".into(), "po_1".into(), 97), ("p2".to_owned(), "po_2".to_owned(), 97)]);
    assert_eq!(pulled.unwrap().pages, 3);
}

#[test]
fn every_provider_file_can_be_bound_and_its_lists_name_what_they_need() {
    let catalog = Catalog::open(None).unwrap();
    let mut lists_of_events = Vec::new();
    for name in catalog.names() {
        let recipe = catalog.recipe(name).unwrap().unwrap();
        for (list, spec) in &recipe.pull {
            assert!(recipe.api.is_some(), "{name}");
            match spec.gives {
                Gives::Rows => {
                    let row = spec.row.as_ref().unwrap_or_else(|| panic!("{name} {list}"));
                    crate::providers::report::row::Row::bind(row, &Names::Pointers, &Default::default()).unwrap();
                    assert!(!spec.covers.is_empty() && spec.grace_h > 0, "{name} {list}");
                }
                Gives::Report => {
                    let steps = spec.steps.as_ref().unwrap_or_else(|| panic!("{name} {list}"));
                    assert!(recipe.report.contains_key(&steps.report), "{name} {list}");
                }
                Gives::Events => lists_of_events.push(name.to_owned()),
                Gives::Objects => {}
            }
            if let Some(each) = &spec.for_each {
                assert!(recipe.pull.contains_key(&each.pull), "{name} {list}");
            }
            if let Some(body) = &spec.body {
                serde_json::from_str::<Value>(body).unwrap_or_else(|e| panic!("{name} {list}: {e}"));
            }
        }
        for way in &recipe.fetch_object {
            let body = wrap(&way.body, &json!({"marker": 1}), "x").unwrap_or_else(|e| panic!("{name}: {e}"));
            assert!(body.to_string().contains("marker"), "{name}: {}", way.path);
            Test::bind(&way.only, &Names::Pointers).unwrap();
        }
    }
    assert_eq!(lists_of_events, ["gocardless", "paddle", "paypal", "square", "stripe"]);
}
