//! Settlement by the APIs of nine providers, as their files declare them: the sample pages over real HTTP, a lost webhook
//! in each, fetched or rebuilt from the object, posted once, and nothing left for the second run.

use crate::harness::{Folder, eventually};
use postonce::config::Loaded;
use postonce::engine::{self, Engine, Parts};
use postonce::event::Millis;
use postonce::providers::report::ReportLine;
use postonce::pull::{Client, Pace, PullError};
use postonce::settlement::told::{self, Told};
use postonce::steps::settle::{self, Ask, Settled};
use postonce::store::bodies::StoredBody;
use postonce::store::raw::{self, NewRaw, Origin};
use postonce::store::settlement::scratch::kind_by_direction;
use postonce::store::{Access, Options};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// 2026-11-20, the window of all samples but Razorpay's, whose day is that of the settlement in India.
const DAY: (Millis, Millis) = (1_795_132_800_000, 1_795_219_200_000);
const INDIA: (Millis, Millis) = (1_795_458_600_000, 1_795_545_000_000);

/// One of the sample sets.
struct Sample {
    provider: &'static str,
    list: &'static str,
    page: u32,
    settings: &'static str,
    /// The provider's account, where its webhooks name one and it is part of the key.
    account: &'static str,
    window: (Millis, Millis),
    /// The provider's API gives a missing payment.
    gives: bool,
}

const SAMPLES: &[Sample] = &[
    Sample { provider: "paddle", list: "transactions", page: 5, settings: "", account: "", window: DAY, gives: true },
    Sample {
        provider: "lemonsqueezy",
        list: "orders",
        page: 5,
        settings: "store = \"1\"",
        account: "1",
        window: DAY,
        gives: true,
    },
    Sample {
        provider: "shopify",
        list: "balance_transactions",
        page: 5,
        settings: "shop = \"shop\"",
        account: "",
        window: DAY,
        gives: false,
    },
    Sample { provider: "paypal", list: "transactions", page: 5, settings: "", account: "", window: DAY, gives: true },
    Sample {
        provider: "square",
        list: "payments",
        page: 4,
        settings: "location = \"L88917AVBK2S5\"",
        account: "MLN7",
        window: DAY,
        gives: true,
    },
    Sample { provider: "razorpay", list: "recon", page: 5, settings: "", account: "acc_1", window: INDIA, gives: true },
    Sample {
        provider: "mollie",
        list: "balance_transactions",
        page: 5,
        settings: "",
        account: "",
        window: DAY,
        gives: true,
    },
    Sample { provider: "gocardless", list: "payments", page: 4, settings: "", account: "", window: DAY, gives: true },
    Sample { provider: "paystack", list: "transactions", page: 5, settings: "", account: "", window: DAY, gives: true },
];

/// One answer of a list: path, query, body, headers.
type Page = (String, BTreeMap<String, String>, Vec<u8>, Vec<(String, String)>);

/// A provider's API: the sample pages, and each of their objects on its own.
struct Api {
    provider: &'static str,
    pages: Vec<Page>,
    /// Answers by path, one after the other; the last stays.
    extra: BTreeMap<String, Vec<String>>,
    /// Answer everything with this status.
    broken: Option<u16>,
    objects: usize,
}

fn split(url: &str) -> (String, BTreeMap<String, String>) {
    let path = url.split_once("://").map_or(url, |(_, rest)| &rest[rest.find('/').unwrap()..]);
    let (path, query) = path.split_once('?').unwrap_or((path, ""));
    (path.to_owned(), form_urlencoded::parse(query.as_bytes()).into_owned().collect())
}

impl Api {
    fn start(provider: &'static str) -> (String, Arc<Mutex<Api>>) {
        let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/vectors/api").join(provider);
        let exchange: Value = serde_json::from_slice(&std::fs::read(folder.join("exchange.json")).unwrap()).unwrap();
        let mut pages = Vec::new();
        for one in exchange["exchanges"].as_array().unwrap().iter().filter(|one| one["error"] != true) {
            let (path, query) = split(one["url"].as_str().unwrap());
            let headers = one["response_headers"].as_object().cloned().unwrap_or_default();
            let headers = headers.into_iter().map(|(name, value)| (name, value.as_str().unwrap().to_owned())).collect();
            pages.push((path, query, std::fs::read(folder.join(one["file"].as_str().unwrap())).unwrap(), headers));
        }
        let api = Arc::new(Mutex::new(Api { provider, pages, extra: BTreeMap::new(), broken: None, objects: 0 }));
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (base, shared) = (format!("http://{}", listener.local_addr().unwrap()), api.clone());
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let _ = serve(stream.unwrap(), &mut shared.lock().unwrap());
            }
        });
        (base, api)
    }

    /// The item of a page that has this value under one of its fields.
    fn item(&self, id: &str) -> Option<Value> {
        fn find(value: &Value, id: &str) -> Option<Value> {
            match value {
                Value::Array(items) => items.iter().find_map(|item| find(item, id)),
                Value::Object(map) => {
                    let named =
                        ["id", "reference", "entity_id", "transaction_id"].iter().any(|key| match map.get(*key) {
                            Some(Value::String(text)) => text == id,
                            Some(Value::Number(number)) => number.to_string() == id,
                            _ => false,
                        });
                    let context = map.get("context").and_then(|c| c.get("paymentId")).is_some_and(|p| p == id);
                    if named || context { Some(value.clone()) } else { map.values().find_map(|inner| find(inner, id)) }
                }
                _ => None,
            }
        }
        self.pages.iter().find_map(|(_, _, body, _)| find(&serde_json::from_slice(body).unwrap(), id))
    }

    /// The object of one payment, as this provider's API tells it.
    fn object(&self, path: &str, query: &BTreeMap<String, String>) -> Option<Value> {
        let last = path.rsplit('/').next().unwrap_or_default();
        let id = query.get("payment").map_or(last, String::as_str);
        let item = self.item(id)?;
        let text = |pointer: &str| item.pointer(pointer).cloned().unwrap_or(Value::Null);
        Some(match self.provider {
            "paddle" | "paystack" | "lemonsqueezy" => json!({ "data": item }),
            "square" => json!({ "payment": item }),
            "razorpay" => {
                json!({"id": id, "entity": "payment", "amount": text("/amount"), "currency": text("/currency"), "status": "captured",
                    "order_id": text("/order_id"), "captured": true, "fee": text("/fee"), "tax": text("/tax"), "created_at": text("/created_at")})
            }
            "paypal" => {
                let amount = json!({"currency_code": text("/transaction_amount/currency_code"), "value": text("/transaction_amount/value")});
                json!({"id": id, "status": "COMPLETED", "amount": amount, "final_capture": true,
                    "create_time": "2026-11-20T09:00:00Z", "update_time": "2026-11-20T09:00:00Z"})
            }
            "mollie" => {
                json!({"resource": "payment", "id": id, "mode": "live", "status": "paid", "amount": text("/initialAmount"),
                "createdAt": text("/createdAt"), "paidAt": text("/createdAt"), "profileId": "pfl_1", "_embedded": {}, "_links": {}})
            }
            "gocardless" if path == "/events" => {
                json!({"events": [{"id": format!("EV_{id}"), "created_at": text("/created_at"),
                "resource_type": "payments", "action": "confirmed", "links": {"payment": id},
                "details": {"origin": "gocardless", "cause": "payment_confirmed"}, "metadata": {}}], "meta": {"cursors": {}}})
            }
            "gocardless" => json!({ "payments": item }),
            _ => return None,
        })
    }
}

fn serve(mut stream: TcpStream, api: &mut Api) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream.try_clone()?);
    let mut line = String::new();
    reader.read_line(&mut line)?;
    let url = line.split(' ').nth(1).unwrap_or("/").to_owned();
    let mut length = 0;
    loop {
        line.clear();
        reader.read_line(&mut line)?;
        let Some((name, value)) = line.trim().split_once(": ") else { break };
        if name.eq_ignore_ascii_case("content-length") {
            length = value.parse().unwrap_or(0);
        }
    }
    reader.read_exact(&mut vec![0; length])?;
    let (path, query) = split(&url);
    let unlike = |wanted: &BTreeMap<String, String>| {
        let other = |a: &BTreeMap<String, String>, b: &BTreeMap<String, String>| {
            a.iter().filter(|(name, value)| b.get(*name) != Some(value)).count()
        };
        other(wanted, &query) + other(&query, wanted)
    };
    if let Some(answers) = api.extra.get_mut(&path).filter(|_| api.broken.is_none()) {
        let body = if answers.len() > 1 { answers.remove(0) } else { answers[0].clone() };
        write!(stream, "HTTP/1.1 200 x\r\nconnection: close\r\ncontent-length: {}\r\n\r\n", body.len())?;
        return stream.write_all(body.as_bytes());
    }
    let page = api.pages.iter().filter(|(p, ..)| *p == path).min_by_key(|(_, wanted, ..)| unlike(wanted));
    let (status, body, headers) = match (api.broken, page) {
        (Some(status), _) => (status, b"out of order".to_vec(), Vec::new()),
        (None, Some((_, _, body, headers))) => (200, body.clone(), headers.clone()),
        (None, None) if path == "/v1/oauth2/token" => {
            (200, br#"{"access_token":"A21AA_x","expires_in":32400}"#.to_vec(), Vec::new())
        }
        (None, None) => match api.object(&path, &query) {
            Some(object) => {
                api.objects += 1;
                (200, object.to_string().into_bytes(), Vec::new())
            }
            None => (404, b"{}".to_vec(), Vec::new()),
        },
    };
    write!(stream, "HTTP/1.1 {status} x\r\nconnection: close\r\ncontent-length: {}\r\n", body.len())?;
    for (name, value) in headers.iter().filter(|(name, _)| !name.eq_ignore_ascii_case("content-length")) {
        write!(stream, "{name}: {value}\r\n")?;
    }
    stream.write_all(b"\r\n")?;
    stream.write_all(&body)
}

struct Lab {
    engine: Engine,
    api: Arc<Mutex<Api>>,
    list: &'static str,
    window: (Millis, Millis),
    _folder: Folder,
}

/// Never sleeps.
fn pace() -> Pace {
    Pace { wait: |_| true, call_timeout: Duration::from_secs(20), ..Pace::default() }
}

impl Lab {
    fn new(sample: &Sample) -> Lab {
        let (base, api) = Api::start(sample.provider);
        let folder = Folder::new();
        let (secret, key) = (folder.join("secret"), folder.join("key"));
        std::fs::write(&secret, "whsec_bGFiIHNlY3JldCBvZiB0aGUgbGFi").unwrap();
        std::fs::write(&key, "key").unwrap();
        let text = format!(
            "[[source]]\nname = \"it\"\nprovider = \"{}\"\nmode = \"live\"\nsecrets = [\"file:{}\"]\napi_key = \"file:{}\"\napi_base = \"{base}\"\n\
             [source.settlement]\nenabled = false\nreport = \"{}\"\npage_size = {}\napi_user = \"file:{}\"\naccount = \"{}\"\nsettings = {{ {} }}\n",
            sample.provider,
            secret.display(),
            key.display(),
            sample.list,
            sample.page,
            key.display(),
            sample.account,
            sample.settings
        );
        let loaded = Loaded::parse(text).unwrap();
        let (sources, endpoints) =
            engine::build(&loaded).unwrap_or_else(|faults| panic!("{}: {faults:?}", sample.provider));
        let (engine, waking) = Engine::open(&folder.join("lab.db"), sources, endpoints, &Options::default()).unwrap();
        engine.start(waking, Parts { apply: true, deliver: false }).unwrap();
        Lab { engine, api, list: sample.list, window: sample.window, _folder: folder }
    }

    fn lines(&self) -> Vec<ReportLine> {
        let source = self.engine.shared().sources["it"].clone();
        let mut client = Client::new(&source.recipe, source.settlement.access.clone(), pace()).unwrap();
        let mut lines = Vec::new();
        let keep = &mut |line| {
            lines.push(line);
            Ok::<(), PullError>(())
        };
        client.rows(self.list, self.window, keep).unwrap();
        lines
    }

    fn post(&self, new: Vec<NewRaw>) {
        let shared = self.engine.shared();
        shared.store.write(move |tx| new.iter().try_for_each(|n| raw::insert(tx, n).map(drop))).unwrap();
        shared.wake();
        self.applied();
    }

    fn applied(&self) {
        let left = "SELECT count(*) FROM postonce_raw_events WHERE due_at IS NOT NULL";
        eventually("all is applied", || (self.number(left) == 0).then_some(()));
    }

    fn number(&self, sql: &str) -> i64 {
        self.engine.shared().store.read(|conn| Ok(conn.query_row(sql, [], |r| r.get(0))?)).unwrap()
    }

    fn run(&self) -> Settled {
        self.run_over(self.window)
    }

    fn run_over(&self, (from, to): (Millis, Millis)) -> Settled {
        let shared = self.engine.shared();
        let ask = Ask {
            window: Some((from, to, "2026-11-20".into())),
            again: false,
            file: None,
            report: None,
            kept: None,
            now: to + 3_600_000,
            wait: Duration::from_secs(30),
            pace: pace(),
            wake: &|| shared.wake(),
            progress: &|_, _| {},
        };
        settle::run(&Access::Ours(&shared.store), &shared.sources["it"], &ask).unwrap()
    }
}

fn raw_of(origin: Origin, headers: &str, body: &[u8]) -> NewRaw {
    NewRaw {
        source: "it".into(),
        origin,
        secret: None,
        headers: format!("{headers}\n"),
        query: String::new(),
        body: StoredBody::pack(body),
    }
}

/// What a line tells, for those that arrived.
fn told_of(line: &ReportLine) -> Option<Told> {
    let kind = kind_by_direction(&line.kind, line.net > 0);
    let reference = match line.running_total {
        true => format!("{}@{}", line.reference.clone()?, line.gross.unsigned_abs()),
        false => line.reference.clone()?,
    };
    Some(Told {
        kind: kind.into(),
        reference,
        aliases: Vec::new(),
        parent: line.parent.clone(),
        amount: line.gross.abs(),
        currency: line.currency.code().into(),
        fee: None,
        fee_currency: None,
        tax: (line.tax != 0).then_some(line.tax),
        occurred_at: line.occurred_at?,
        mode: "live".into(),
        report: 0,
        line: 0,
    })
}

fn settles_by_its_api(sample: &'static Sample) {
    let what = sample.provider;
    let lab = Lab::new(sample);
    let lines = lab.lines();
    assert!(lines.len() >= 6, "{what}: {} lines", lines.len());
    // the webhook of one payment never came
    let lost = lines.iter().position(|l| l.kind == "payment" && !l.pending).unwrap() + 1;
    let lost = lines.iter().enumerate().skip(lost).find(|(_, l)| l.kind == "payment").unwrap().0;
    let arrived = lines.iter().enumerate().filter(|(at, _)| *at != lost);
    let bodies: Vec<NewRaw> =
        arrived.filter_map(|(_, l)| told_of(l)).map(|t| raw_of(Origin::Imported, told::HEADER, &t.body())).collect();
    lab.post(bodies);
    let name = lines[lost].reference.clone().unwrap();
    let payment = format!("SELECT count(*) FROM postonce_journal WHERE kind = 'payment' AND ref = '{name}'");
    assert_eq!(lab.number(&payment), 0, "{what}: {name} is lost");
    let before = lab.number("SELECT count(*) FROM postonce_journal WHERE kind <> 'fee'");

    let first = lab.run();
    assert_eq!((first.state, first.found), ("COMPLETED", 1), "{what}: {first:?}");
    assert_eq!(first.repaired, i64::from(sample.gives), "{what}: {first:?}");
    lab.applied();
    let open = "SELECT count(*) FROM postonce_discrepancies WHERE state <> 'RESOLVED'";
    let why = "SELECT ifnull(group_concat(class || ' ' || kind || ' ' || reference || ' ' || state || ': ' || (SELECT group_concat(note) FROM postonce_discrepancy_log l
        WHERE l.discrepancy = d.id)), '') FROM postonce_discrepancies d WHERE state <> 'RESOLVED'";
    let why: String = lab.engine.shared().store.read(|conn| Ok(conn.query_row(why, [], |r| r.get(0))?)).unwrap();
    let after = lab.number("SELECT count(*) FROM postonce_journal WHERE kind <> 'fee'");
    if sample.gives {
        assert_eq!(lab.number(&payment), 1, "{what}: posted once");
        assert_eq!(after - before, 1, "{what}: and nothing else is");
        let amount = format!("SELECT amount FROM postonce_journal WHERE kind = 'payment' AND ref = '{name}'");
        assert_eq!(lab.number(&amount), lines[lost].gross, "{what}: as the provider has it");
        assert!(lab.api.lock().unwrap().objects >= 1, "{what}: its API was asked");
    }
    assert_eq!(
        lab.number(open),
        i64::from(!sample.gives),
        "{what}: only what cannot be fetched is for a person: {why}"
    );
    assert_eq!(lab.number("SELECT count(DISTINCT book) FROM postonce_journal"), 1, "{what}: one account, one ledger");
    let second = lab.run();
    assert_eq!((second.state, second.found, second.repaired), ("COMPLETED", 0, 0), "{what}: {second:?}");
    assert_eq!(
        second.buckets.get("missing_ours").copied().unwrap_or(0),
        i64::from(!sample.gives),
        "{what}: {second:?}"
    );
    assert_eq!(lab.number("SELECT count(*) FROM postonce_journal WHERE kind <> 'fee'"), after, "{what}");
    assert_eq!(lab.number("SELECT max(found) FROM postonce_runs"), 1, "{what}: the rate stays");
    let offences = lab.engine.shared().store.read(postonce::store::check::run).unwrap();
    assert!(offences.is_empty(), "{what}: {offences:?}");
}

#[test]
fn a_lost_webhook_of_every_declared_api_is_found_fetched_and_posted_once() {
    let only = std::env::var("POSTONCE_PROVIDER").ok();
    for sample in SAMPLES.iter().filter(|s| only.as_ref().is_none_or(|only| only == s.provider)) {
        settles_by_its_api(sample);
    }
}

#[test]
fn an_api_that_is_out_of_order_defers_the_run_and_changes_nothing() {
    for sample in SAMPLES {
        let lab = Lab::new(sample);
        lab.api.lock().unwrap().broken = Some(500);
        let run = lab.run();
        let reason = run.reason.clone().unwrap_or_default();
        assert_eq!(run.state, "DEFERRED", "{}: {reason}", sample.provider);
        assert!(reason.contains("500"), "{}: {reason}", sample.provider);
        for table in ["postonce_reports", "postonce_report_lines", "postonce_run_items", "postonce_discrepancies"] {
            assert_eq!(lab.number(&format!("SELECT count(*) FROM {table}")), 0, "{}: {table}", sample.provider);
        }
        assert_eq!(lab.number("SELECT count(*) FROM postonce_runs WHERE state = 'DEFERRED' AND found IS NULL"), 1);
    }
}

#[test]
fn a_report_that_is_made_on_demand_is_ordered_waited_for_downloaded_and_settled() {
    let lab = Lab::new(&Sample {
        provider: "paddle",
        list: "payout_reconciliation",
        page: 5,
        settings: "",
        account: "",
        window: DAY,
        gives: true,
    });
    let file = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/vectors/reports/paddle_payout_reconciliation.csv");
    let text = std::fs::read_to_string(file).unwrap();
    let source = lab.engine.shared().sources["it"].clone();
    let mut lines = Vec::new();
    let keep = &mut |line: ReportLine| {
        lines.push(line);
        Ok::<(), postonce::providers::report::ReadError>(())
    };
    let spec = &source.recipe.report["payout_reconciliation"];
    let summary = postonce::providers::report::read(spec, text.as_bytes(), &Default::default(), keep).unwrap();
    let rows = (summary.rows - summary.repeats) as i64;
    let arrived = lines.iter().filter(|l| !source.settlement.provider_only(&l.kind)).filter_map(told_of);
    lab.post(arrived.map(|t| raw_of(Origin::Imported, told::HEADER, &t.body())).collect());
    let base = source.settlement.access.base.clone().unwrap();
    let state = |state: &str| json!({"data": {"id": "rep_1", "status": state}}).to_string();
    let download = json!({"data": {"url": format!("{base}/files/report.csv")}}).to_string();
    lab.api.lock().unwrap().extra = [
        ("/reports".into(), vec![state("pending")]),
        ("/reports/rep_1".into(), vec![state("pending"), state("pending"), state("ready")]),
        ("/reports/rep_1/download-url".into(), vec![download]),
        ("/files/report.csv".into(), vec![text]),
    ]
    .into();
    let window = (DAY.0 - 2 * 86_400_000, DAY.1 + 2 * 86_400_000);
    let run = lab.run_over(window);
    assert_eq!((run.state, run.lines, run.found), ("COMPLETED", rows, 0), "{run:?}");
    assert_eq!(lab.number("SELECT count(*) FROM postonce_reports WHERE name = 'payout_reconciliation'"), 1);
    let again = lab.run_over(window);
    assert_eq!((again.state, again.posted), ("COMPLETED", 0), "{again:?}");
    assert_eq!(lab.number("SELECT count(*) FROM postonce_reports"), 1, "the same content is the same report");
    let offences = lab.engine.shared().store.read(postonce::store::check::run).unwrap();
    assert!(offences.is_empty(), "{offences:?}");
    // one that the provider cannot make changes nothing
    lab.api.lock().unwrap().extra.insert("/reports/rep_1".into(), vec![state("failed")]);
    let failed = lab.run_over(window);
    assert!(failed.state != "COMPLETED" && failed.reason.unwrap().contains("failed"));
}

#[test]
fn a_running_total_is_compared_with_what_all_of_its_parts_posted() {
    let sample = SAMPLES.iter().find(|s| s.provider == "lemonsqueezy").unwrap();
    let lab = Lab::new(sample);
    let order = |refunded: i64, updated: &str| {
        json!({"type": "orders", "id": "77", "attributes": {"store_id": 1, "customer_id": 5, "currency": "USD", "total": 1000, "tax": 0,
            "status": if refunded == 0 { "paid" } else { "partial_refund" }, "refunded": false, "refunded_amount": refunded,
            "refunded_at": if refunded == 0 { Value::Null } else { json!("2026-11-20T12:00:00.000000Z") },
            "created_at": "2026-11-20T10:00:00.000000Z", "updated_at": updated, "test_mode": false}})
    };
    let event = |name: &str, refunded: i64, updated: &str| {
        let body =
            json!({"meta": {"event_name": name, "test_mode": false}, "data": order(refunded, updated)}).to_string();
        raw_of(Origin::Webhook, "content-type: application/json", body.as_bytes())
    };
    lab.post(vec![event("order_created", 0, "2026-11-20T10:00:00.000000Z")]);
    lab.post(vec![event("order_refunded", 300, "2026-11-20T11:00:00.000000Z")]);
    lab.post(vec![event("order_refunded", 800, "2026-11-20T12:00:00.000000Z")]);
    assert_eq!(lab.number("SELECT sum(amount) FROM postonce_journal WHERE kind = 'refund'"), 800, "300, then 500 more");
    let page = json!({"data": [order(800, "2026-11-20T12:00:00.000000Z")], "links": {}}).to_string();
    lab.api.lock().unwrap().extra.insert("/v1/orders".into(), vec![page]);
    let first = lab.run();
    assert_eq!((first.state, first.found, first.opened), ("COMPLETED", 0, 0), "{first:?}");
    assert_eq!(
        first.buckets.get("amount_differs"),
        None,
        "the line's 800 are the entry's 500 and the 300 before: {first:?}"
    );
    let second = lab.run();
    assert_eq!(
        second.buckets,
        BTreeMap::from([("matched", 3)]),
        "the payment, the total, and the part that it took over"
    );
    // the provider's total is larger than what we heard of: the line is missing here
    let page = json!({"data": [order(900, "2026-11-20T13:00:00.000000Z")], "links": {}}).to_string();
    lab.api.lock().unwrap().extra.insert("/v1/orders".into(), vec![page]);
    let third = lab.run();
    assert_eq!(third.buckets.get("missing_ours"), Some(&1), "{third:?}");
}
