//! The engine inside the test's own process, on a folder of its own: keeps bodies, waits until nothing is due, reads the
//! ledger. Waits for facts with a deadline.

use crate::harness::{PATIENCE, SECRET, eventually};
use postonce::config::Loaded;
use postonce::engine::{self, Engine};
use postonce::error::Result;
use postonce::store::bodies::StoredBody;
use postonce::store::gate::Intake;
use postonce::store::ledger::{self, EntryFilter};
use postonce::store::raw::{self, NewRaw, Origin};
use postonce::store::{Options, check};
use rusqlite::Connection;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::mpsc;

/// A configuration with one Stripe source and nobody to tell, all ports free ones.
pub fn configuration(folder: &Path) -> Loaded {
    let secret = folder.join("secret");
    fs::write(&secret, SECRET).unwrap();
    Loaded::parse(format!(
        "database = {:?}\nlisten = \"127.0.0.1:0\"\n[operator]\nlisten = \"127.0.0.1:0\"\n[[source]]\nname = \"stripe\"\nsecrets = [\"file:{}\"]\n",
        folder.join("postonce.db"),
        secret.display()
    ))
    .unwrap()
}

/// Opens and starts it.
pub fn start(database: &Path, options: &Options) -> Result<Engine> {
    start_with(&configuration(database.parent().unwrap()), database, options, engine::Parts::ALL)
}

/// Opens and starts some of it with a configuration.
pub fn start_with(loaded: &Loaded, database: &Path, options: &Options, parts: engine::Parts) -> Result<Engine> {
    let (sources, endpoints) = engine::build(loaded).unwrap();
    let (engine, waking) = Engine::open(database, sources, endpoints, options)?;
    engine.start(waking, parts)?;
    Ok(engine)
}

/// Hands a body to the disk; the answer comes later.
pub fn hand_over(engine: &Engine, body: &str) -> mpsc::Receiver<Result<i64>> {
    let (done, answer) = mpsc::channel();
    keep_then(engine, body, move |kept| drop(done.send(kept)));
    answer
}

/// The same, with what to do at the moment of the answer.
pub fn keep_then(engine: &Engine, body: &str, then: impl FnOnce(Result<i64>) + Send + 'static) {
    let raw = NewRaw {
        source: "stripe".into(),
        origin: Origin::Webhook,
        secret: None,
        headers: "content-type: application/json\n".into(),
        query: String::new(),
        body: StoredBody::pack(body.as_bytes()),
    };
    let shared = engine.shared().clone();
    let done = Box::new(move |kept: Result<i64>| {
        if kept.is_ok() {
            shared.wake();
        }
        then(kept);
    });
    engine.shared().store.gate().keep(Intake { raw, since: std::time::Instant::now(), done });
}

/// Keeps a body and waits for the answer.
pub fn keep(engine: &Engine, body: &str) -> Result<i64> {
    hand_over(engine, body).recv_timeout(PATIENCE).expect("every body is answered")
}

/// Sends it until it is kept, as a provider does; gives how often it was refused.
pub fn keep_at_last(engine: &Engine, body: &str) -> usize {
    let mut refused = 0;
    eventually("the body is kept", || match keep(engine, body) {
        Ok(_) => Some(refused),
        Err(_) => {
            refused += 1;
            None
        }
    })
}

/// Waits until no raw event waits or is under way.
pub fn settled(engine: &Engine) {
    eventually("nothing is due any more", || engine.shared().store.read(raw::next_due).ok().filter(Option::is_none));
}

/// The journal: `kind reference` and its amount. An entry that is there twice fails.
pub fn ledger(engine: &Engine) -> BTreeMap<String, i64> {
    engine.shared().store.read(ledger_of).unwrap()
}

/// The same on a connection.
pub fn ledger_of(conn: &Connection) -> Result<BTreeMap<String, i64>> {
    let mut entries = BTreeMap::new();
    ledger::entries(conn, &EntryFilter::default(), |entry| {
        let key = format!("{} {}", entry.kind, entry.reference);
        assert!(entries.insert(key.clone(), entry.amount).is_none(), "{key} was posted twice");
        Ok(())
    })?;
    Ok(entries)
}

/// Nothing offends any truth.
pub fn check(engine: &Engine) {
    let offences = engine.shared().store.read(check::run).unwrap();
    assert!(offences.is_empty(), "{offences:#?}");
}

/// `charge.succeeded` of a payment, with so many bytes of ballast that no compression removes.
pub fn charge(event: &str, payment: &str, amount: i64, ballast: usize) -> String {
    let mut noise = 0x9e37_79b9_7f4a_7c15_u64;
    let ballast: String = (0..ballast)
        .map(|_| {
            noise = noise.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            char::from(b'a' + (noise >> 59) as u8 % 26)
        })
        .collect();
    format!(
        r#"{{"id":"{event}","object":"event","api_version":"2026-10-28.endive","created":1795000000,"data":{{"object":{{"id":"ch_{payment}","object":"charge","amount":{amount},"amount_captured":{amount},"captured":true,"currency":"usd","customer":"cus_1","payment_intent":"{payment}","description":"{ballast}"}}}},"livemode":true,"type":"charge.succeeded"}}"#
    )
}
