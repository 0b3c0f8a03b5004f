//! A day of events, and what they come to: invented, or taken from a database.
//!
//! Invented days are Stripe's: payments told by one to three types of event, partial refunds, payouts, failures that move
//! nothing. Sends nothing; signatures are made when an event is sent.

use crate::clock;
use crate::error::{Error, Result};
use crate::providers::Catalog;
use crate::providers::signature::{Delivery, Options, Secret, Signs, Verifier};
use crate::steps::read::inflate;
use crate::store::ledger::{self, EntryFilter, EntryLine};
use crate::store::{listing, open_for_reading};
use rand::RngExt as _;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom as _;
use rusqlite::Connection;
use std::collections::BTreeMap;
use std::path::Path;

/// Content of the ledger: each line with how often it is there.
pub(super) type Content = BTreeMap<String, u32>;

/// A source of the day.
pub(super) struct DaySource {
    pub name: String,
    pub provider: String,
    pub tenant: String,
    /// Invented; never the real one, which no database holds.
    pub secret: &'static str,
    pub signer: Verifier,
}

/// An event as its provider sends it.
pub(super) struct DayEvent {
    pub source: usize,
    /// The message id, where the scheme signs one.
    pub id: String,
    pub headers: Vec<(String, String)>,
    pub query: String,
    pub body: Vec<u8>,
}

/// All of it.
pub(super) struct Day {
    pub sources: Vec<DaySource>,
    pub events: Vec<DayEvent>,
    /// What the ledger must hold; `None`: known after a round in peace.
    pub expected: Option<Content>,
    /// What cannot be sent again, for people.
    pub left_out: Vec<String>,
}

/// One of these is a secret that a provider's file accepts.
const SECRETS: [&str; 3] = [
    "whsec_dG9ydHVyZSB0b3J0dXJlIHRvcnR1cmUgdG9ydHVyZSE=",
    "dG9ydHVyZSB0b3J0dXJlIHRvcnR1cmUgdG9ydHVyZSE=",
    "746f7274757265746f7274757265746f7274757265746f727475726500112233",
];

impl DaySource {
    fn new(name: &str, provider: &str, tenant: &str, catalog: &Catalog) -> std::result::Result<DaySource, String> {
        let recipe = catalog.recipe(provider).ok_or_else(|| format!("no provider is called {provider:?}"))?;
        let recipe = recipe.map_err(|e| e.to_string())?;
        let mut last = String::new();
        for secret in SECRETS {
            let signer = Verifier::new(&recipe.signature, &[Secret::pasted("torture", secret).0], &Options::default());
            match signer {
                Ok(signer) => {
                    let (name, provider, tenant) = (name.into(), recipe.provider, tenant.into());
                    return Ok(DaySource { name, provider, tenant, secret, signer });
                }
                Err(e) => last = e.to_string(),
            }
        }
        Err(last)
    }

    /// The headers that prove this event now, as its provider would make them.
    pub fn sign(&self, event: &DayEvent, url: &str) -> std::result::Result<Vec<(String, String)>, String> {
        let headers: Vec<(&str, &[u8])> = event.headers.iter().map(|(n, v)| (n.as_str(), v.as_bytes())).collect();
        let gzip = event.headers.iter().any(|(n, _)| n.eq_ignore_ascii_case("content-encoding"));
        let inflated = (gzip && self.signer.signs() == Signs::Inflated)
            .then(|| inflate(&event.body, crate::config::BODY_MAX_MOST).ok())
            .flatten();
        let path = format!("/webhooks/{}", self.name);
        let delivery = Delivery {
            method: "POST",
            url,
            path: &path,
            query: &event.query,
            headers: &headers,
            body: inflated.as_deref().unwrap_or(&event.body),
        };
        self.signer.sign(&delivery, clock::wall(), &event.id)
    }
}

impl Day {
    /// At least one event, about `count` of them.
    pub fn invent(count: u64, rng: &mut StdRng) -> Day {
        let catalog = Catalog::open(None).expect("the built-in files are read in the tests");
        let sources = ["stripe", "birch"].map(|name| {
            let tenant = if name == "stripe" { "acme" } else { "birch" };
            DaySource::new(name, "stripe", tenant, &catalog).expect("the built-in file of Stripe takes a secret")
        });
        let mut day = Invented { events: Vec::new(), expected: Content::new(), number: 0 };
        while (day.events.len() as u64) < count.max(1) {
            day.number += 1;
            day.one_customer_comes(rng);
        }
        Day { sources: sources.into(), events: day.events, expected: Some(day.expected), left_out: Vec::new() }
    }

    /// The deliveries of a database, signed anew.
    pub fn of(file: &Path) -> Result<Day> {
        let conn = open_for_reading(file)?;
        let catalog = Catalog::open(None).map_err(|e| Error::refused(e.to_string(), "mend that file"))?;
        let mut day = Day { sources: Vec::new(), events: Vec::new(), expected: None, left_out: Vec::new() };
        let mut without: BTreeMap<String, String> = BTreeMap::new();
        listing::deliveries(&conn, |line| {
            if without.contains_key(&line.source) {
                return Ok(());
            }
            let source = match day.sources.iter().position(|s| s.name == line.source) {
                Some(at) => at,
                None => match DaySource::new(&line.source, &line.provider, &line.tenant, &catalog) {
                    Ok(source) => {
                        day.sources.push(source);
                        day.sources.len() - 1
                    }
                    Err(why) => {
                        without.insert(line.source, why);
                        return Ok(());
                    }
                },
            };
            let headers = line.headers.lines().filter_map(|l| l.split_once(": "));
            let headers = headers.map(|(n, v)| (n.to_owned(), v.to_owned()));
            let mut event =
                DayEvent { source, id: PROBE.into(), headers: headers.collect(), query: line.query, body: line.body };
            match day.sources[source].sign(&event, "") {
                Ok(signed) => {
                    // The header that carries a message id shows itself: it must keep the id that it had.
                    let id = signed
                        .iter()
                        .find(|(_, value)| value == PROBE)
                        .and_then(|(name, _)| event.headers.iter().find(|(other, _)| other.eq_ignore_ascii_case(name)));
                    event.id = id.map_or_else(|| format!("msg_{}", day.events.len()), |(_, value)| value.clone());
                    let replaced = |name: &str| {
                        OF_THE_CONNECTION.iter().any(|h| name.eq_ignore_ascii_case(h))
                            || signed.iter().any(|(other, _)| other.eq_ignore_ascii_case(name))
                    };
                    event.headers.retain(|(name, _)| !replaced(name));
                    day.events.push(event);
                }
                Err(why) => {
                    without.insert(line.source, why);
                }
            }
            Ok(())
        })?;
        day.left_out = without.into_iter().map(|(source, why)| format!("source {source}: {why}")).collect();
        Ok(day)
    }
}

/// A message id that no provider gives.
const PROBE: &str = "postonce_torture_probe";

/// Headers of the request that brought it, not of the event.
const OF_THE_CONNECTION: [&str; 9] = [
    "host",
    "content-length",
    "connection",
    "transfer-encoding",
    "accept-encoding",
    "expect",
    "user-agent",
    "accept",
    "keep-alive",
];

struct Invented {
    events: Vec<DayEvent>,
    expected: Content,
    number: u64,
}

impl Invented {
    /// One customer's business: a payment or two, told in several ways, perhaps refunded, perhaps failed at first.
    fn one_customer_comes(&mut self, rng: &mut StdRng) {
        let n = self.number;
        let (source, tenant) = *[(0, "acme"), (0, "acme"), (1, "birch")].choose(rng).expect("three");
        let currency = *["usd", "eur", "jpy"].choose(rng).expect("three");
        // Both tenants count from one: the same reference in two tenants is two payments.
        let (payment, customer) = (format!("pi_{n}"), format!("cus_{}", n % 50));
        let amount = rng.random_range(50..100_000_i64);
        let told = |day: &mut Invented, kind: &str, what: &str, object: String| {
            let id = format!("evt_{n}_{what}");
            day.tell(source, &id, kind, &object);
        };
        if rng.random_bool(0.1) {
            told(
                self,
                "payment_intent.payment_failed",
                "failed",
                format!(
                    r#"{{"id":"{payment}","object":"payment_intent","amount":{amount},"amount_received":0,"currency":"{currency}","customer":"{customer}","status":"requires_payment_method"}}"#
                ),
            );
        }
        let ways = rng.random_range(1..8_u8);
        if ways & 1 != 0 {
            told(
                self,
                "charge.succeeded",
                "charge",
                format!(
                    r#"{{"id":"ch_{n}","object":"charge","amount":{amount},"amount_captured":{amount},"amount_refunded":0,"captured":true,"currency":"{currency}","customer":"{customer}","description":"{}","paid":true,"payment_intent":"{payment}","status":"succeeded"}}"#,
                    "order ".repeat(rng.random_range(0..120))
                ),
            );
        }
        if ways & 2 != 0 {
            told(
                self,
                "payment_intent.succeeded",
                "intent",
                format!(
                    r#"{{"id":"{payment}","object":"payment_intent","amount":{amount},"amount_received":{amount},"currency":"{currency}","customer":"{customer}","latest_charge":"ch_{n}","status":"succeeded"}}"#
                ),
            );
        }
        if ways & 4 != 0 {
            told(
                self,
                "invoice.paid",
                "invoice",
                format!(
                    r#"{{"id":"in_{n}","object":"invoice","amount_paid":{amount},"attempt_count":1,"currency":"{currency}","customer":"{customer}","paid_out_of_band":false,"payment_intent":"{payment}","status":"paid"}}"#
                ),
            );
        }
        self.expect(tenant, "payment", &payment, &customer, amount, currency);
        let mut left = amount;
        let mut refund = 0;
        while left > 1 && rng.random_bool(0.2) {
            refund += 1;
            let part = rng.random_range(1..=left);
            left -= part;
            let id = format!("re_{n}_{refund}");
            told(
                self,
                "refund.created",
                &format!("refund{refund}"),
                format!(
                    r#"{{"id":"{id}","object":"refund","amount":{part},"balance_transaction":"txn_{id}","charge":"ch_{n}","currency":"{currency}","payment_intent":"{payment}","reason":null,"status":"succeeded"}}"#
                ),
            );
            if rng.random_bool(0.3) {
                told(
                    self,
                    "charge.refund.updated",
                    &format!("updated{refund}"),
                    format!(
                        r#"{{"id":"{id}","object":"refund","amount":{part},"balance_transaction":"txn_{id}","charge":"ch_{n}","currency":"{currency}","payment_intent":"{payment}","reason":null,"status":"succeeded"}}"#
                    ),
                );
            }
            self.expect(tenant, "refund", &id, &customer, part, currency);
        }
    }

    fn tell(&mut self, source: usize, id: &str, kind: &str, object: &str) {
        let created = 1_795_000_000 + self.number;
        let body = format!(
            r#"{{"id":"{id}","object":"event","api_version":"2026-10-28.endive","created":{created},"data":{{"object":{object}}},"livemode":true,"pending_webhooks":1,"type":"{kind}"}}"#
        );
        let headers = vec![("content-type".to_owned(), "application/json; charset=utf-8".to_owned())];
        self.events.push(DayEvent {
            source,
            id: id.to_owned(),
            headers,
            query: String::new(),
            body: body.into_bytes(),
        });
    }

    fn expect(&mut self, tenant: &str, kind: &str, reference: &str, account: &str, amount: i64, currency: &str) {
        let line = line(tenant, "stripe", kind, reference, account, amount, &currency.to_uppercase());
        *self.expected.entry(line).or_default() += 1;
    }
}

fn line(
    tenant: &str,
    provider: &str,
    kind: &str,
    reference: &str,
    account: &str,
    amount: i64,
    currency: &str,
) -> String {
    format!("{tenant} {provider} {kind} {reference} {account} {amount} {currency}")
}

/// What a ledger holds, without numbers and times of its own.
pub(super) fn content(conn: &Connection) -> Result<(Content, Vec<EntryLine>)> {
    let (mut content, mut entries) = (Content::new(), Vec::new());
    ledger::entries(conn, &EntryFilter { of_payment: true, ..EntryFilter::default() }, |e| {
        let account = e.account.as_deref().unwrap_or("-");
        *content
            .entry(line(&e.tenant, &e.provider, &e.kind, &e.reference, account, e.amount, &e.currency))
            .or_default() += 1;
        entries.push(e);
        Ok(())
    })?;
    Ok((content, entries))
}
