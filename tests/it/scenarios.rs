//! Providers' events through the running server: each known answer alone, and whole stories in every order.
//!
//! The recipes are the built-in ones, with one change: what proves the sender is a token that this file can send, so
//! that bodies which only the provider can sign go the whole way. Each story has a tenant of its own.

use crate::api::Api;
use crate::harness::{Server, Setup, Wire};
use postonce::providers::Catalog;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

const TOKEN: &str = "the token of the tests";

fn vectors() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/vectors")
}

fn json_file(path: &Path) -> Value {
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

/// A list, or the one thing that stands for a list of one.
fn many(value: &Value) -> Vec<Value> {
    match value {
        Value::Array(all) => all.clone(),
        Value::Null => Vec::new(),
        one => vec![one.clone()],
    }
}

/// A delivery with its known answer.
#[derive(Clone)]
struct Fixture {
    provider: String,
    name: String,
    body: String,
    headers: Vec<(String, String)>,
    fetched: Vec<(String, String)>,
    expected: Value,
}

impl Fixture {
    /// What the ledger is asked for: after the fetch, where there is one.
    fn events(&self) -> Vec<Value> {
        let mut events = match &self.expected["events"] {
            Value::Array(all) => all.clone(),
            _ => vec![self.expected.clone()],
        };
        let pointing = events.iter_mut().filter(|event| event["disposition"] == "fetch");
        for (event, after) in pointing.zip(many(&self.expected["after_fetch"])) {
            *event = after;
        }
        events
    }

    /// What the API holds: (path, answer).
    fn objects(&self) -> Vec<(String, String)> {
        let events = many(&self.expected["events"]).into_iter().chain([self.expected.clone()]);
        let paths =
            events.flat_map(|event| many(&event["fetch"])).map(|fetch| fetch["path"].as_str().unwrap().to_owned());
        let answers = many(&self.expected["after_fetch"]);
        let answer = |after: Value| {
            let name = after["doc"].as_str().unwrap();
            self.fetched.iter().find(|(doc, _)| doc == name).unwrap().1.clone()
        };
        paths.zip(answers.into_iter().map(answer)).collect()
    }
}

fn fixtures() -> BTreeMap<String, Fixture> {
    let mut all = BTreeMap::new();
    for entry in std::fs::read_dir(vectors().join("events")).unwrap() {
        let path = entry.unwrap().path();
        let provider = path.file_stem().unwrap().to_string_lossy().into_owned();
        for row in json_file(&path).as_array().unwrap() {
            let pairs = |v: &Value| -> Vec<(String, String)> {
                let map = v.as_object().cloned().unwrap_or_default();
                map.into_iter().map(|(k, v)| (k, v.as_str().unwrap_or_default().to_owned())).collect()
            };
            let name = row["name"].as_str().unwrap().to_owned();
            let fixture = Fixture {
                provider: provider.clone(),
                name: name.clone(),
                body: row["body"].as_str().unwrap().to_owned(),
                headers: pairs(&row["headers"]),
                fetched: pairs(&row["fetched"]),
                expected: row["expected"].clone(),
            };
            all.insert(format!("{provider}/{name}"), fixture);
        }
    }
    all
}

/// One story: what is sent to one source, in order.
struct Story {
    title: String,
    deliver: Vec<Fixture>,
}

/// A provider's file whose sender proves itself with a token.
fn with_token(text: &str) -> String {
    let mut file: toml::Table = text.parse().unwrap();
    let signature: toml::Table = "kind = 'token'\nheader = 'X-Test-Token'\ncovers = 'body'".parse().unwrap();
    file.insert("signature".into(), toml::Value::Table(signature));
    file.remove("handshake");
    toml::to_string(&file).unwrap()
}

/// What became of a story.
struct Outcome {
    entries: Vec<Value>,
    events: Vec<Value>,
    entities: Vec<Value>,
    balances: Vec<Value>,
}

/// Tells all stories to one server and gives what became of each.
fn tell(stories: &[Story]) -> (Server, Vec<Outcome>) {
    let folder = crate::harness::Folder::new();
    let catalog = Catalog::open(None).unwrap();
    let names: BTreeSet<String> =
        stories.iter().map(|story| catalog.recipe(&story.deliver[0].provider).unwrap().unwrap().provider).collect();
    for name in &names {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("src/providers/{name}.toml"));
        std::fs::write(folder.join(&format!("{name}.toml")), with_token(&std::fs::read_to_string(path).unwrap()))
            .unwrap();
    }
    let mut answers = BTreeMap::new();
    for (at, story) in stories.iter().enumerate() {
        for fixture in &story.deliver {
            answers.extend(fixture.objects().into_iter().map(|(path, body)| (format!("/{at}{path}"), body)));
        }
    }
    let api = Api::with(Box::new(move |path| match answers.get(path) {
        Some(body) => (200, body.clone()),
        None => (404, r#"{"message":"no such object"}"#.to_owned()),
    }));
    let mut config = format!("providers_dir = {:?}\n", folder.join("").display().to_string());
    for (at, story) in stories.iter().enumerate() {
        let first = &story.deliver[0];
        let provider = catalog.recipe(&first.provider).unwrap().unwrap();
        config.push_str(&format!(
            "[[source]]\nname = \"s{at}\"\ntenant = \"t{at}\"\nprovider = \"{}\"\nsecrets = [\"env:TOKEN\"]\n",
            provider.provider
        ));
        if provider.api.is_some() {
            let base = format!("{}/{at}", api.base());
            config.push_str(&format!("api_key = \"env:KEY\"\napi_base = \"{base}\"\n"));
        }
        if let Some(options) = first.expected["options"].as_object() {
            let text = |v: &Value| v.as_str().map_or(v.to_string(), str::to_owned);
            let pairs: Vec<String> = options.iter().map(|(k, v)| format!("{k} = {:?}", text(v))).collect();
            config.push_str(&format!("options = {{ {} }}\n", pairs.join(", ")));
        }
    }
    let server = Setup::config(&config).env("TOKEN", TOKEN).env("KEY", "user:the API's key").start();
    let mut wire = Wire::to(server.public);
    let longest = stories.iter().map(|story| story.deliver.len()).max().unwrap();
    // One delivery of each story at a time, each settled before its next.
    for step in 0..longest {
        for (at, story) in stories.iter().enumerate() {
            let Some(fixture) = story.deliver.get(step) else { continue };
            let mut headers = fixture.headers.clone();
            headers.push(("X-Test-Token".into(), TOKEN.into()));
            wire.post(&format!("/webhooks/s{at}"), &headers, fixture.body.as_bytes()).is(200);
        }
        server.settled();
    }
    let by = |list: Vec<Value>, key: fn(&Value) -> String| {
        let mut map: BTreeMap<String, Vec<Value>> = BTreeMap::new();
        list.into_iter().for_each(|row| map.entry(key(&row)).or_default().push(row));
        map
    };
    let tenant = |row: &Value| row["tenant"].as_str().unwrap().to_owned();
    let mut entries = by(server.list(&["ledger"]), tenant);
    let mut entities = by(server.list(&["entities"]), tenant);
    let mut balances = by(server.list(&["balances"]), tenant);
    let mut events = by(server.list(&["events"]), |row| row["source"].as_str().unwrap().to_owned());
    let outcomes = (0..stories.len())
        .map(|at| Outcome {
            entries: entries.remove(&format!("t{at}")).unwrap_or_default(),
            entities: entities.remove(&format!("t{at}")).unwrap_or_default(),
            balances: balances.remove(&format!("t{at}")).unwrap_or_default(),
            events: events.remove(&format!("s{at}")).unwrap_or_default(),
        })
        .collect();
    server.check();
    (server, outcomes)
}

/// The provider's balance after a movement of this kind: added, taken, or not touched.
fn sign(kind: &str) -> i64 {
    match kind {
        "payment" | "dispute_won" | "payout_failed" | "transfer_reversed" | "topup" | "fee_reversal"
        | "refund_reversed" | "application_fee" | "correction" => 1,
        "refund"
        | "reversal"
        | "payment_reversed"
        | "dispute_opened"
        | "payout"
        | "transfer"
        | "topup_reversed"
        | "fee"
        | "application_fee_refund" => -1,
        "dispute_lost" | "credit" | "credit_reversed" | "credit_redeemed" => 0,
        other => panic!("the kind {other} is in no table of this test"),
    }
}

impl Outcome {
    /// The change of the provider's balance by the gross amounts, in one mode.
    fn gross(&self, mode: &str) -> BTreeMap<String, i64> {
        let mut sums = BTreeMap::new();
        let late_fee = |entry: &&Value| entry["kind"] == "fee" && entry["reference"].as_str().unwrap().contains('@');
        for entry in self.entries.iter().filter(|entry| entry["mode"] == mode && !late_fee(entry)) {
            let amount = entry["amount"].as_i64().unwrap() * sign(entry["kind"].as_str().unwrap());
            *sums.entry(entry["currency"].as_str().unwrap().to_owned()).or_insert(0) += amount;
        }
        sums.retain(|_, sum| *sum != 0);
        sums
    }

    /// The balance of an account, in all modes and customers.
    fn balance(&self, code: &str) -> BTreeMap<String, i64> {
        let mut sums = BTreeMap::new();
        for line in self.balances.iter().filter(|line| line["code"] == code) {
            *sums.entry(line["currency"].as_str().unwrap().to_owned()).or_insert(0) +=
                line["balance"].as_i64().unwrap();
        }
        sums.retain(|_, sum| *sum != 0);
        sums
    }

    fn states(&self) -> BTreeMap<String, usize> {
        let mut states = BTreeMap::new();
        self.events.iter().for_each(|e| *states.entry(e["state"].as_str().unwrap().to_owned()).or_insert(0) += 1);
        states
    }

    fn entity(&self, kind: &str, id: &str) -> Option<&str> {
        self.entities.iter().find(|e| e["kind"] == kind && e["id"] == id)?["status"].as_str()
    }

    fn show(&self) -> String {
        let line = |row: &Value, keys: &[&str]| keys.iter().map(|k| row[*k].to_string()).collect::<Vec<_>>().join(" ");
        let events = self.events.iter().map(|e| line(e, &["id", "type", "event_id", "state", "reason"]));
        let entries = self.entries.iter().map(|e| line(e, &["kind", "reference", "amount", "currency", "note"]));
        let entities = self.entities.iter().map(|e| line(e, &["kind", "id", "status", "as_of"]));
        events.chain(entries).chain(entities).collect::<Vec<_>>().join("\n    ")
    }
}

fn orders<T: Clone>(list: &[T]) -> Vec<Vec<T>> {
    if list.len() <= 1 {
        return vec![list.to_vec()];
    }
    let mut all = Vec::new();
    for at in 0..list.len() {
        let mut rest = list.to_vec();
        let first = rest.remove(at);
        all.extend(orders(&rest).into_iter().map(|tail| [vec![first.clone()], tail].concat()));
    }
    all
}

fn numbers(value: &Value) -> BTreeMap<String, i64> {
    value.as_object().into_iter().flatten().map(|(k, v)| (k.clone(), v.as_i64().unwrap())).collect()
}

#[test]
fn every_known_answer_comes_out_of_the_running_server() {
    let stories: Vec<Story> =
        fixtures().into_iter().map(|(title, fixture)| Story { title, deliver: vec![fixture] }).collect();
    assert!(stories.len() >= 188, "only {} fixtures", stories.len());
    let (_server, outcomes) = tell(&stories);
    let mut wrong = Vec::new();
    for (story, outcome) in stories.iter().zip(&outcomes) {
        if let Err(why) = answers(&story.deliver[0], outcome) {
            wrong.push(format!("{}: {why}\n    {}", story.title, outcome.show()));
        }
    }
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), stories.len(), wrong.join("\n"));
}

/// Does the outcome hold exactly what the fixture says?
fn answers(fixture: &Fixture, outcome: &Outcome) -> Result<(), String> {
    let events = fixture.events();
    let told: Vec<&Value> = events.iter().flat_map(|e| e["movements"].as_array().into_iter().flatten()).collect();
    let text = |v: &Value| v.as_str().unwrap_or_default().to_owned();
    let key = |kind: &Value, reference: &Value| (text(kind), text(reference));
    let first: BTreeSet<_> =
        told.iter().filter(|m| m["if_prior"].is_null()).map(|m| key(&m["kind"], &m["reference"])).collect();
    let mut expected = BTreeMap::new();
    let mut waits = 0;
    for movement in &told {
        if !movement["if_prior"].is_null() && !first.contains(&key(&movement["if_prior"], &movement["reference"])) {
            waits += 1;
            continue;
        }
        let total = &movement["cumulative_amount"];
        let amount = if total.is_null() { &movement["amount"] } else { total }.as_i64().unwrap();
        if amount > 0 {
            let mut name = key(&movement["kind"], &movement["reference"]);
            if !total.is_null() {
                name.1 = format!("{}@{amount}", name.1);
            }
            expected.entry(name).or_insert((amount, text(&movement["currency"])));
        }
    }
    let posted: BTreeMap<_, _> = outcome
        .entries
        .iter()
        .map(|e| (key(&e["kind"], &e["reference"]), (e["amount"].as_i64().unwrap(), text(&e["currency"]))))
        .collect();
    if posted != expected {
        return Err(format!("posted {posted:?}, expected {expected:?}"));
    }
    for state in events.iter().flat_map(|e| e["entities"].as_array().into_iter().flatten()) {
        let (kind, id) = (text(&state["kind"]), text(&state["id"]));
        let same = events.iter().flat_map(|e| e["entities"].as_array().into_iter().flatten());
        if same.filter(|other| other["kind"] == kind && other["id"] == id).count() > 1 {
            continue; // told more than once in one body: a story of its own
        }
        if outcome.entity(&kind, &id) != state["status"].as_str() {
            return Err(format!("{kind} {id} is {:?}, expected {}", outcome.entity(&kind, &id), state["status"]));
        }
    }
    let states = outcome.states();
    let count = |state: &str| states.get(state).copied().unwrap_or(0);
    let of = |words: &[&str]| events.iter().filter(|e| words.iter().any(|w| e["disposition"] == *w)).count();
    let not_found = of(&["fetch"]);
    if count("PARKED") != of(&["quarantine"]) + waits + not_found {
        return Err(format!("{} wait for a person, {waits} for their prior; states {states:?}", of(&["quarantine"])));
    }
    if count("IGNORED") != of(&["announce", "control", "unknown"]) {
        return Err(format!("states {states:?}"));
    }
    match count("CONFLICT") + count("DEAD") + count("RECEIVED") + count("CLAIMED") {
        0 => Ok(()),
        _ => Err(format!("states {states:?}")),
    }
}

#[test]
fn every_story_ends_the_same_in_every_order() {
    let fixtures = fixtures();
    let told = json_file(&vectors().join("scenarios.json"));
    let scenarios: Vec<Value> = told["scenarios"].as_array().unwrap().iter().cloned().chain(more()).collect();
    let (mut stories, mut wanted) = (Vec::new(), Vec::new());
    for scenario in &scenarios {
        let name = |v: &Value| {
            let name = v.as_str().unwrap();
            fixtures.get(name).unwrap_or_else(|| panic!("there is no fixture {name}")).clone()
        };
        let deliver: Vec<Fixture> = scenario["deliver"].as_array().unwrap().iter().map(name).collect();
        let all = if deliver.len() <= 5 { orders(&deliver) } else { vec![deliver] };
        for (at, deliver) in all.into_iter().enumerate() {
            let order: Vec<&str> = deliver.iter().map(|f| f.name.as_str()).collect();
            stories.push(Story { title: format!("{} [{}]", scenario["name"], order.join(", ")), deliver });
            wanted.push((scenario["expect"].clone(), at == 0));
        }
    }
    let (_server, outcomes) = tell(&stories);
    let mut wrong = Vec::new();
    for ((story, outcome), (expect, as_given)) in stories.iter().zip(&outcomes).zip(&wanted) {
        let mut fail = |what: String| wrong.push(format!("{}: {what}\n    {}", story.title, outcome.show()));
        let conflicts = outcome.states().get("CONFLICT").copied().unwrap_or(0) as i64;
        if expect["postings"].as_i64().is_some_and(|count| count != outcome.entries.len() as i64) {
            fail(format!("{} postings, expected {}", outcome.entries.len(), expect["postings"]));
        }
        if conflicts != expect["conflicts"].as_i64().unwrap_or(0) {
            fail(format!("{conflicts} conflicts"));
        }
        // Of two that differ the first is posted, so there the balance depends on the order.
        let compared = !expect["balance"].is_null() && (*as_given || conflicts == 0);
        if compared && outcome.gross("live") != numbers(&expect["balance"]) {
            fail(format!("{:?}, expected {}", outcome.gross("live"), expect["balance"]));
        }
        if outcome.gross("test") != numbers(&expect["balance_test"]) {
            fail(format!("test mode: {:?}", outcome.gross("test")));
        }
        if let Some([kind, id, status]) = expect["entity"].as_array().map(Vec::as_slice) {
            let is = outcome.entity(kind.as_str().unwrap(), id.as_str().unwrap());
            if is != status.as_str() {
                fail(format!("{kind} {id} is {is:?}, expected {status}"));
            }
        }
        for (code, sums) in expect["accounts"].as_object().into_iter().flatten() {
            if outcome.balance(code) != numbers(sums) {
                fail(format!("{code} is {:?}, expected {sums}", outcome.balance(code)));
            }
        }
        if let Some(parked) = expect["parked"].as_i64()
            && outcome.states().get("PARKED").copied().unwrap_or(0) as i64 != parked
        {
            fail(format!("{:?}, expected {parked} parked", outcome.states()));
        }
    }
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), stories.len(), wrong.join("\n"));
}

/// Stories of our own: what announces one money, and what is taken back.
fn more() -> Vec<Value> {
    let story =
        |name: &str, deliver: &[&str], expect: Value| json!({"name": name, "deliver": deliver, "expect": expect});
    vec![
        story(
            "stripe: a charge and two announcements of it",
            &[
                "stripe/01_charge_succeeded",
                "stripe/03_invoice_paid_with_payments_list",
                "stripe/06_invoice_payment_paid",
            ],
            json!({"postings": 1, "balance": {"EUR": 4999}}),
        ),
        story(
            "stripe: reformatted and sent again",
            &["stripe/01_charge_succeeded", "stripe/30_charge_succeeded_reformatted", "stripe/01_charge_succeeded"],
            json!({"postings": 1, "balance": {"EUR": 4999}}),
        ),
        story(
            "stripe: a charge, its thin event, a part of it refunded",
            &["stripe/01_charge_succeeded", "stripe/39_v1_thin_charge_succeeded", "stripe/12_refund_created_partial"],
            json!({"postings": 2, "balance": {"EUR": 3499}}),
        ),
        story(
            "paddle: paid, then completed with the fee",
            &["paddle/01_transaction_paid", "paddle/12_transaction_completed_replayed_new_notification"],
            json!({"balance": {"EUR": 4998}, "accounts": {"clearing": {"EUR": 4998 - 798 - 300}, "fees": {"EUR": 300}}}),
        ),
        story(
            "shopify: a sale, a refund, and a stale state of the order",
            &[
                "shopify/01_order_transactions_create_sale",
                "shopify/02_orders_paid",
                "shopify/04_order_transactions_create_refund",
                "shopify/14_orders_updated_stale",
            ],
            json!({"postings": 2, "balance": {"EUR": 11990 - 1995}, "entity": ["order", "6300000000001", "paid"]}),
        ),
        story(
            "stripe: a subscription that is deleted, whatever came before",
            &[
                "stripe/21_subscription_updated_active",
                "stripe/22_subscription_updated_stale_past_due",
                "stripe/23_subscription_deleted",
            ],
            json!({"postings": 0, "entity": ["subscription", "sub_1RzA0xPostOnce3", "canceled"]}),
        ),
        story(
            "mercadopago: three notifications of one payment",
            &[
                "mercadopago/01_payment_updated_thin",
                "mercadopago/02_payment_created_same_payment",
                "mercadopago/03_ipn_topic_payment",
            ],
            json!({"postings": 2, "balance": {"BRL": 14990 - 5000}, "parked": 0}),
        ),
        story(
            "gocardless: charged back, then for good",
            &["gocardless/02_payment_charged_back", "gocardless/06_chargeback_settled"],
            json!({"postings": 2, "balance": {"GBP": -2500}, "parked": 0, "accounts": {"hold": {}, "dispute_loss": {"GBP": 2500}}}),
        ),
        story(
            "braintree: a subscription's payment and its settlement",
            &["braintree/01_subscription_charged_successfully", "braintree/02_transaction_settled_same_money"],
            json!({"postings": 1, "balance": {"USD": 2900}, "entity": ["subscription", "nordsub1", "active"]}),
        ),
        story(
            "polar: the order again, written otherwise",
            &["polar/01_order_paid", "polar/09_order_paid_reformatted"],
            json!({"postings": 1, "balance": {"USD": 2900}}),
        ),
        story(
            "paypal: a subscription that is canceled, then told as active from before",
            &["paypal/11_billing_subscription_cancelled", "paypal/12_billing_subscription_activated_stale"],
            json!({"postings": 0, "entity": ["subscription", "I-BR200HCXQD6R", "canceled"]}),
        ),
    ]
}
