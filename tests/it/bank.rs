//! Settlement with a provider that pays out, lists what has not succeeded yet, and reports in its settled currency only:
//! the buckets that a card provider's file cannot have. Faults are planted at random; exactly they are found, twice.

use crate::harness::Folder;
use crate::lab::{self, Lab};
use postonce::settlement::told;
use postonce::settlement::window;
use postonce::steps::settle::Settled;
use postonce::store::raw::Origin;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use std::collections::BTreeSet;
use std::path::Path;

const HOUR: i64 = 3_600_000;
const DAY: i64 = 24 * HOUR;

/// A bank that sends webhooks of payments, refunds and payouts, and whose report has one currency.
pub const BANK: &str = r#"
provider = "birchbank"
title = "Birch Bank"

[signature]
kind = "token"
header = "X-Bank-Token"
covers = "nothing"

[event]
body = "json"
id = "/id"
type = "/type"

[[movement]]
on = "payment"
kind = "payment"
reference = "/reference"
amount = { minor = "/amount" }
currency = "/currency"

[[movement]]
on = "refund"
kind = "refund"
reference = "/reference"
amount = { minor = "/amount" }
currency = "/currency"

[[movement]]
on = "payout"
kind = "payout"
reference = "/reference"
amount = { minor = "/amount" }
currency = "/currency"

[report.statement]
format = "csv"
detect = { columns = ["row", "kind", "reference", "order", "amount", "currency", "time", "status", "part_of"] }
covers = ["*"]
grace_h = 48

[report.statement.row]
numbers = { unit = "minor" }
currency = "currency"
time = { from = "time" }
gross = "amount"
reference = "reference"
parent = "part_of"
line_ref = "row"
order = "order"
pending = { status = "pending" }
kind = { from = "kind", map = { payment = "payment", refund = "refund", payout = "payout", fee = "fee", part = "payment" } }
case = [{ when = { kind = "part" }, merge = true }]
"#;

/// One engine with the bank's source.
fn lab(effects: &str) -> Lab {
    let folder = Folder::new();
    let (secret, recipes) = (folder.join("secret"), folder.join("providers"));
    std::fs::write(&secret, "token_of_the_lab").unwrap();
    std::fs::create_dir(&recipes).unwrap();
    std::fs::write(recipes.join("birchbank.toml"), BANK).unwrap();
    let text = format!(
        "providers_dir = \"{}\"\n[[source]]\nname = \"bank\"\nprovider = \"birchbank\"\nmode = \"live\"\ntrust_unsigned_fields = true\nsecrets = [\"file:{}\"]\n{effects}",
        recipes.display(),
        secret.display()
    );
    let app = postonce::rusqlite::Connection::open(folder.join("lab.db")).unwrap();
    app.execute_batch("PRAGMA journal_mode = WAL; CREATE TABLE shop_orders(paid INTEGER)").unwrap();
    Lab::open(folder, text)
}

fn post(lab: &Lab, headers: &str, origin: Origin, bodies: &[Vec<u8>]) {
    lab.post("bank", headers, origin, bodies.iter().cloned());
}

fn run(lab: &Lab, file: &Path, now: i64) -> Settled {
    lab.run("bank", file, ("2026-08-01", "2026-08-31"), now)
}

fn statement(lab: &Lab, name: &str, rows: &[String]) -> std::path::PathBuf {
    let head = "row,kind,reference,order,amount,currency,time,status,part_of\n".to_owned();
    lab.file(name, &rows.iter().fold(head, |text, row| text + row + "\n"))
}

fn told(kind: &str, reference: &str, amount: i64, currency: &str, at: i64) -> Vec<u8> {
    lab::told(kind, reference, amount, currency, at).body()
}

fn row(id: &str, kind: &str, reference: &str, amount: i64, currency: &str, at: i64, status: &str) -> String {
    format!("{id},{kind},{reference},,{amount},{currency},{},{status},", postonce::clock::rfc3339(at))
}

fn start() -> i64 {
    window::days("2026-08-01", "2026-08-31", &jiff::tz::TimeZone::UTC).unwrap().0
}

#[derive(Clone, Copy, Debug)]
enum Plant {
    Fine,
    Pending,
    SucceededLater,
    OtherCurrency,
    Missing,
    Young,
    Amount,
    Twice,
    Fee,
}

fn shuffled<T>(mut items: Vec<T>, mut seed: u64) -> Vec<T> {
    for at in (1..items.len()).rev() {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        items.swap(at, (seed >> 33) as usize % (at + 1));
    }
    items
}

#[test]
fn payouts_pending_lines_and_settled_currencies_are_found_as_what_they_are() {
    use Plant::*;
    let cases = std::env::var("POSTONCE_CASES").ok().and_then(|n| n.parse().ok()).unwrap_or(6);
    let mut runner =
        TestRunner::new(Config { cases, max_shrink_iters: 40, failure_persistence: None, ..Config::default() });
    let plant = prop_oneof![12 => Just(Fine), 2 => Just(Pending), 1 => Just(SucceededLater), 2 => Just(OtherCurrency), 1 => Just(Missing),
        1 => Just(Young), 1 => Just(Amount), 1 => Just(Twice), 1 => Just(Fee)];
    let thing = (plant, 0..3_usize, 1..9_000_000_i64, 0..28 * DAY);
    runner
        .run(&(prop::collection::vec(thing, 20..80), any::<u64>()), |(things, seed)| {
            let lab = lab("");
            let (mut ours, mut rows, mut wanted) = (Vec::new(), Vec::new(), BTreeSet::new());
            let (mut later, mut posted) = (Vec::new(), 0);
            for (n, (plant, kind, amount, offset)) in things.iter().enumerate() {
                let (kind, sign) = [("payment", 1), ("refund", -1), ("payout", -1)][*kind];
                let (id, name, at) = (format!("r{n:04}"), format!("m{n:04}"), start() + offset / 1000 * 1000);
                let line = |currency: &str, status: &str| row(&id, kind, &name, sign * amount, currency, at, status);
                let mut say = |bucket: &str| _ = wanted.insert(format!("{bucket} {kind} {name}"));
                match plant {
                    Fine => {}
                    Pending | SucceededLater => {
                        say("pending_theirs");
                        rows.push(line("EUR", "pending"));
                        if matches!(plant, SucceededLater) {
                            later.push((name.clone(), kind, *amount, at));
                        }
                        continue;
                    }
                    OtherCurrency => {
                        say("not_comparable");
                        ours.push(told(kind, &name, amount + 17, "USD", at));
                        rows.push(line("EUR", "done"));
                        continue;
                    }
                    Missing | Young => {
                        let (bucket, at) = match plant {
                            Young => ("in_transit", start() + 31 * DAY - 20 * HOUR),
                            _ => ("missing_theirs", at),
                        };
                        say(bucket);
                        ours.push(told(kind, &name, *amount, "EUR", at));
                        continue;
                    }
                    Amount => {
                        say("amount_differs");
                        ours.push(told(kind, &name, amount + 1, "EUR", at));
                        rows.push(line("EUR", "done"));
                        continue;
                    }
                    Twice => {
                        say("duplicate_theirs");
                        rows.push(row(&format!("{id}b"), kind, &name, sign * amount, "EUR", at, "done"));
                    }
                    Fee => {
                        wanted.insert(format!("provider_only fee f{n:04}"));
                        rows.push(row(&id, "fee", &format!("f{n:04}"), -amount, "EUR", at, "done"));
                        posted += 1;
                        continue;
                    }
                }
                ours.push(told(kind, &name, *amount, "EUR", at));
                rows.push(line("EUR", "done"));
            }
            let (ours, rows) = (shuffled(ours, seed), shuffled(rows, seed ^ 5));
            post(&lab, told::HEADER, Origin::Imported, &ours);
            let (file, now) = (statement(&lab, "1.csv", &rows), start() + 31 * DAY + HOUR);
            let before = lab.number("SELECT count(*) FROM postonce_journal");
            let first = run(&lab, &file, now);
            prop_assert_eq!(first.state, "COMPLETED", "{:?}", first);
            prop_assert_eq!(lab.items(first.run), wanted.clone(), "first run");
            prop_assert_eq!(
                (first.found, first.repaired, first.posted),
                (0, 0, posted),
                "pending is never posted early"
            );
            prop_assert_eq!(lab.number("SELECT count(*) FROM postonce_journal") - before, posted);
            // what was pending and succeeded since is missing no more than what was there all along
            let succeeded: Vec<Vec<u8>> =
                later.iter().map(|(name, kind, amount, at)| told(kind, name, *amount, "EUR", *at)).collect();
            if !succeeded.is_empty() {
                post(&lab, told::HEADER, Origin::Imported, &succeeded);
            }
            let second = run(&lab, &file, now);
            let gone: BTreeSet<&String> = later.iter().map(|(name, ..)| name).collect();
            let still: BTreeSet<String> = wanted
                .iter()
                .filter(|w| !w.starts_with("provider_only") && !gone.iter().any(|name| w.ends_with(name.as_str())))
                .cloned()
                .collect();
            prop_assert_eq!(lab.items(second.run), still, "second run");
            prop_assert_eq!((second.posted, second.opened), (0, 0), "a discrepancy is opened once");
            lab.check();
            Ok(())
        })
        .unwrap();
}

/// A statement of the tests below: a day's payments that are there on both sides, and rows of one's own.
fn day_of(lab: &Lab, rows: &[String], name: &str) -> std::path::PathBuf {
    let ours: Vec<Vec<u8>> =
        (0..8).map(|n| told("payment", &format!("p{n}"), 100 + n, "EUR", start() + HOUR)).collect();
    post(lab, told::HEADER, Origin::Imported, &ours);
    let theirs =
        (0..8).map(|n| row(&format!("r{n}"), "payment", &format!("p{n}"), 100 + n, "EUR", start() + HOUR, "done"));
    let all: Vec<String> = theirs.chain(rows.iter().cloned()).collect();
    statement(lab, name, &all)
}

#[test]
fn rows_that_belong_to_a_payment_are_added_to_it_before_they_are_compared() {
    let lab = lab("");
    let at = postonce::clock::rfc3339(start() + HOUR);
    post(&lab, told::HEADER, Origin::Imported, &[told("payment", "whole", 700, "EUR", start() + HOUR)]);
    let rows = [
        format!("a1,payment,whole,,1000,EUR,{at},done,"),
        format!("a2,part,x,,-250,EUR,{at},done,whole"),
        format!("a3,part,y,,-50,EUR,{at},done,whole"),
        format!("a4,part,z,,-9,EUR,{at},done,nobody"),
    ];
    let file = day_of(&lab, &rows, "parts.csv");
    let settled = run(&lab, &file, start() + 31 * DAY + HOUR);
    let items = lab.items(settled.run);
    assert_eq!(settled.buckets.get("matched"), Some(&9), "1000 - 250 - 50 is what we have: {items:?}");
    assert_eq!(settled.lines, 10, "and what found no payment stays a line");
    assert_eq!(items, BTreeSet::from(["missing_ours payment z".into()]));
    lab.check();
}

#[test]
fn a_line_with_nothing_but_the_merchants_order_finds_the_entry_of_that_order() {
    let lab = lab(
        "[[source.effect]]\non = [\"payment\"]\noperation_key = \"order-{body.order}\"\nsql = \"UPDATE shop_orders SET paid = paid + 1\"\n",
    );
    let body = |order: &str, reference: &str, amount: i64| {
        format!(r#"{{"id":"e-{reference}","type":"payment","reference":"{reference}","amount":{amount},"currency":"EUR","order":"{order}"}}"#)
            .into_bytes()
    };
    post(&lab, "content-type: application/json", Origin::Webhook, &[body("7", "w7", 500), body("8", "w8", 600)]);
    assert_eq!(lab.number("SELECT count(*) FROM postonce_claims WHERE kind = 'operation' AND state = 'DONE'"), 2);
    let at = postonce::clock::rfc3339(start() + 2 * HOUR);
    // the amount is right for one of them
    let rows = [format!("o7,payment,,order-7,500,EUR,{at},done,"), format!("o8,payment,,order-8,601,EUR,{at},done,")];
    let settled = run(&lab, &day_of(&lab, &rows, "orders.csv"), start() + 31 * DAY + HOUR);
    let by_order = "SELECT count(*) FROM postonce_settled WHERE rule = 'ORDER+AMOUNT'";
    assert_eq!((settled.buckets.get("matched"), lab.number(by_order)), (Some(&9), 1), "{:?}", lab.items(settled.run));
    assert_eq!(settled.buckets.get("missing_ours"), Some(&1), "another amount is another movement");
    // the same row again finds the same entry, by what it settled
    let again = run(&lab, &day_of(&lab, &rows, "orders.csv"), start() + 31 * DAY + HOUR);
    assert_eq!((again.buckets.get("matched"), lab.number(by_order)), (Some(&9), 1), "{:?}", lab.items(again.run));
    lab.check();
}

#[test]
fn a_correction_by_a_person_is_expected_in_no_report() {
    let lab = lab("");
    let file = day_of(&lab, &[], "day.csv");
    let shared = lab.engine.shared();
    let entry = lab.number("SELECT id FROM postonce_journal WHERE ref = 'p3'");
    shared.store.write(move |tx| postonce::steps::correct::reverse(tx, entry, "a wrong entry", None)).unwrap();
    assert_eq!(lab.number("SELECT count(*) FROM postonce_journal WHERE kind = 'correction' AND settles = 1"), 0);
    // long after: the correction happened now, far outside of the month, and is in no bucket of a window that has it
    let settled = run(&lab, &file, start() + 31 * DAY + HOUR);
    assert_eq!((settled.state, settled.ours, settled.opened), ("COMPLETED", 8, 0), "{:?}", lab.items(settled.run));
    assert_eq!(lab.number("SELECT count(*) FROM postonce_settled"), 8);
    let entries = "SELECT count(*) FROM postonce_journal j WHERE j.settles = 1 AND j.kind = 'correction'";
    assert_eq!(lab.number(entries), 0, "nothing of a person waits for a line");
    lab.check();
}
