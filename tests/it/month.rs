//! Settlement on a synthetic month: faults of every bucket are planted, and exactly they are found, in any order.
//!
//! In this process, with the real engine and report files; the seed of a failing case is printed by proptest.

use crate::harness::Folder;
use crate::lab::{self, Lab};
use postonce::event::Millis;
use postonce::settlement::told::{self, Told};
use postonce::settlement::window;
use postonce::store::raw::Origin;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use std::collections::{BTreeMap, BTreeSet};

const DAY: Millis = 86_400_000;
const HOUR: Millis = 3_600_000;

/// Three sources in three zones, two tenants.
const SOURCES: [(&str, &str, &str); 3] =
    [("acme-utc", "acme", "UTC"), ("acme-tokyo", "other", "Asia/Tokyo"), ("birch", "birch", "Europe/Berlin")];

fn lab(extra: &str) -> Lab {
    let folder = Folder::new();
    let secret = folder.join("secret");
    std::fs::write(&secret, "whsec_of_the_lab").unwrap();
    let text = SOURCES
        .iter()
        .map(|(name, tenant, zone)| {
            format!(
                "[[source]]\nname = \"{name}\"\nprovider = \"stripe\"\ntenant = \"{tenant}\"\nmode = \"live\"\nsecrets = [\"file:{}\"]\n{extra}\n\
                 [source.settlement]\nzone = \"{zone}\"\nnot_ours = [\"foreign_*\"]\n",
                secret.display()
            )
        })
        .collect();
    Lab::open(folder, text)
}

/// Posts movements of ours through the path of every event.
fn post(lab: &Lab, source: &str, told: &[Told]) {
    lab.post(source, told::HEADER, Origin::Imported, told.iter().map(Told::body));
}

const HEAD: &str = "balance_transaction_id,created_utc,available_on_utc,currency,gross,fee,net,reporting_category,source_id,charge_id,payment_intent_id,customer_facing_amount,customer_facing_currency\n";

/// One row of the provider's file.
#[derive(Clone, Debug)]
struct Row {
    id: String,
    at: Millis,
    currency: &'static str,
    gross: i64,
    fee: i64,
    category: &'static str,
    source: String,
    charge: String,
    intent: String,
}

fn major(minor: i64, currency: &str) -> String {
    let currency = postonce::money::Currency::parse(currency).unwrap();
    let text = postonce::money::Money { minor, currency }.to_string();
    text.split(' ').next().unwrap().to_owned()
}

fn csv(rows: &[Row]) -> String {
    let mut text = HEAD.to_owned();
    for r in rows {
        let at = postonce::clock::rfc3339(r.at / 1000 * 1000).replace('T', " ").replace('Z', "");
        let (gross, fee, net) =
            (major(r.gross, r.currency), major(r.fee, r.currency), major(r.gross - r.fee, r.currency));
        text.push_str(&format!(
            "{},{at},{at},{},{gross},{fee},{net},{},{},{},{},,\n",
            r.id,
            r.currency.to_lowercase(),
            r.category,
            r.source,
            r.charge,
            r.intent
        ));
    }
    text
}

fn told(kind: &str, reference: String, amount: i64, currency: &str, fee: Option<i64>, at: Millis) -> Told {
    Told { fee, ..lab::told(kind, &reference, amount, currency, at) }
}

/// What is wrong with one movement.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Plant {
    Fine,
    LateFee,
    MissingOurs,
    MissingTheirs,
    InTransit,
    Amount,
    Currency,
    Fee,
    DuplicateTheirs,
    DuplicateOurs,
    Parked,
    NotOurs,
    ProviderOnly,
}

#[derive(Clone, Debug)]
struct Thing {
    plant: Plant,
    kind: u8,
    currency: &'static str,
    amount: i64,
    offset: Millis,
}

fn things() -> impl Strategy<Value = Vec<Thing>> {
    use Plant::*;
    let plant = prop_oneof![
        40 => Just(Fine), 6 => Just(LateFee), 2 => Just(MissingOurs), 2 => Just(MissingTheirs), 2 => Just(InTransit), 2 => Just(Amount),
        2 => Just(Currency), 2 => Just(Fee), 2 => Just(DuplicateTheirs), 2 => Just(DuplicateOurs), 2 => Just(Parked), 2 => Just(NotOurs), 3 => Just(ProviderOnly)
    ];
    let currency = prop_oneof![Just("EUR"), Just("JPY"), Just("KWD"), Just("USD")];
    // edges of days are as likely as all the rest
    let offset = prop_oneof![
        0..31 * DAY,
        (0..31_i64, -2000..2000_i64).prop_map(|(day, ms)| (day * DAY + ms).clamp(0, 31 * DAY - 1)),
    ];
    let thing = (plant, 0..3_u8, currency, 1..5_000_000_i64, offset)
        .prop_map(|(plant, kind, currency, amount, offset)| Thing { plant, kind, currency, amount, offset });
    prop::collection::vec(thing, 20..70)
}

/// The month of one source: what we post, what the provider's file has, what a run must say.
#[derive(Default)]
struct Month {
    ours: Vec<Told>,
    rows: Vec<Row>,
    expected: BTreeSet<String>,
    posted_later: usize,
    late_fees: usize,
}

fn month(things: &[Thing], start: Millis, now: Millis) -> Month {
    let mut m = Month::default();
    for (n, t) in things.iter().enumerate() {
        let Thing { plant, currency, amount, .. } = *t;
        // what must be old is, what must be young is
        let latest = match plant {
            Plant::InTransit => 31 * DAY - 1,
            _ => 31 * DAY - 50 * HOUR,
        };
        let earliest = if plant == Plant::InTransit { 31 * DAY - 40 * HOUR } else { 0 };
        let at = start + (earliest + t.offset % (latest - earliest + 1)) / 1000 * 1000;
        assert!(at < now);
        let only_payment = matches!(plant, Plant::DuplicateOurs | Plant::NotOurs | Plant::LateFee | Plant::Fee);
        let kind = if only_payment { 0 } else { t.kind };
        let (kind, category, sign, prefix) = match kind {
            0 => ("payment", "charge", 1, "pi"),
            1 => ("refund", "refund", -1, "re"),
            _ => ("dispute_opened", "dispute", -1, "dp"),
        };
        let (name, charge) = (format!("{prefix}_{n:04}"), format!("ch_{n:04}"));
        let fee = amount / 40;
        let row = Row {
            id: format!("txn_{n:04}"),
            at,
            currency,
            gross: sign * amount,
            fee,
            category,
            source: if kind == "payment" { charge.clone() } else { name.clone() },
            charge: charge.clone(),
            intent: if kind == "payment" { name.clone() } else { String::new() },
        };
        let mut mine = told(kind, name.clone(), amount, currency, Some(fee), at);
        if kind == "payment" && n % 2 == 0 {
            mine.aliases = vec![charge.clone()];
        }
        if fee == 0 {
            mine.fee = None;
        }
        let mut say = |bucket: &str, reference: &str| {
            m.expected.insert(format!("{bucket} {kind} {reference}"));
        };
        match plant {
            Plant::Fine => {}
            Plant::LateFee => {
                mine.fee = None;
                m.late_fees += usize::from(fee != 0);
            }
            Plant::MissingOurs => say("missing_ours", &row.source),
            Plant::MissingTheirs => say("missing_theirs", &name),
            Plant::InTransit => say("in_transit", &name),
            Plant::Amount => {
                say("amount_differs", &name);
                mine.amount += 1;
            }
            Plant::Currency => {
                say("currency_differs", &name);
                mine.currency = if currency == "EUR" { "USD".into() } else { "EUR".into() };
                mine.fee = None;
            }
            Plant::Fee => {
                say("fee_differs", &name);
                mine.fee = Some(fee + 1);
            }
            Plant::DuplicateTheirs => {
                say("duplicate_theirs", &name);
                m.rows.push(Row { id: format!("txn_{n:04}b"), ..row.clone() });
            }
            Plant::DuplicateOurs => {
                say("duplicate_ours", &charge);
                mine.aliases = vec![];
                m.ours.push(told(kind, charge.clone(), amount, currency, mine.fee, at));
            }
            Plant::Parked => {
                say("parked_ours", &row.source);
                mine.currency = "ZZZ".into();
                mine.aliases = vec![charge.clone()];
            }
            Plant::NotOurs => say("not_ours", "foreign"),
            Plant::ProviderOnly => {
                m.expected.insert(format!("provider_only fee txn_{n:04}"));
                m.posted_later += 1;
                m.rows.push(Row {
                    gross: -amount,
                    fee: 0,
                    category: "fee",
                    source: String::new(),
                    charge: String::new(),
                    intent: String::new(),
                    ..row
                });
                continue;
            }
        }
        match plant {
            Plant::NotOurs => {
                m.expected.remove("not_ours payment foreign");
                m.expected.insert(format!("not_ours payment foreign_{n:04}"));
                m.rows.push(Row { source: format!("foreign_{n:04}"), intent: String::new(), ..row });
            }
            Plant::MissingOurs => m.rows.push(row),
            Plant::MissingTheirs | Plant::InTransit => m.ours.push(mine),
            _ => {
                m.rows.push(row);
                m.ours.push(mine);
            }
        }
    }
    m
}

fn shuffle<T>(items: &mut [T], mut seed: u64) {
    for at in (1..items.len()).rev() {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        items.swap(at, (seed >> 33) as usize % (at + 1));
    }
}

#[test]
fn exactly_the_planted_faults_are_found_twice_and_in_any_order() {
    let cases = std::env::var("POSTONCE_CASES").ok().and_then(|n| n.parse().ok()).unwrap_or(6);
    let mut runner =
        TestRunner::new(Config { cases, max_shrink_iters: 40, failure_persistence: None, ..Config::default() });
    let three = (things(), things(), things(), any::<u64>());
    runner
        .run(&three, |(a, b, c, seed)| {
            let lab = lab("");
            for ((source, _, zone), things) in SOURCES.iter().zip([a, b, c]) {
                let zone = jiff::tz::TimeZone::get(zone).unwrap();
                let (start, end) = window::days("2026-08-01", "2026-08-31", &zone).unwrap();
                let now = end + HOUR;
                let mut m = month(&things, start, now);
                shuffle(&mut m.ours, seed);
                shuffle(&mut m.rows, seed ^ 77);
                post(&lab, source, &m.ours);
                let before = lab.number("SELECT count(*) FROM postonce_journal");
                let file = lab.file(&format!("{source}.csv"), &csv(&m.rows));
                let first = lab.run(source, &file, ("2026-08-01", "2026-08-31"), now);
                prop_assert_eq!(first.state, "COMPLETED", "{:?}", first);
                prop_assert_eq!(lab.items(first.run), m.expected.clone(), "first run");
                prop_assert_eq!(first.posted as usize, m.posted_later + m.late_fees);
                prop_assert_eq!(first.repaired, 0, "nobody can be asked");
                let after = lab.number("SELECT count(*) FROM postonce_journal");
                prop_assert_eq!(after - before, first.posted, "nothing but fees is posted");

                let open = lab.number("SELECT count(*) FROM postonce_discrepancies WHERE state <> 'RESOLVED'");
                let second = lab.run(source, &file, ("2026-08-01", "2026-08-31"), now);
                let still: BTreeSet<String> =
                    m.expected.iter().filter(|e| !e.starts_with("provider_only")).cloned().collect();
                prop_assert_eq!(lab.items(second.run), still, "second run");
                prop_assert_eq!((second.posted, second.opened), (0, 0), "a discrepancy is opened once");
                prop_assert_eq!(
                    lab.number("SELECT count(*) FROM postonce_discrepancies WHERE state <> 'RESOLVED'"),
                    open
                );
                prop_assert_eq!(lab.number("SELECT count(*) FROM postonce_journal"), after);
            }
            lab.check();
            Ok(())
        })
        .unwrap();
}

/// Forty payments of a day, posted and in the file.
fn quiet_day(lab: &Lab, source: &str, count: usize) -> (Vec<Row>, Millis) {
    let start = window::days("2026-08-10", "2026-08-10", &jiff::tz::TimeZone::UTC).unwrap().0;
    let things: Vec<Thing> = (0..count)
        .map(|n| Thing {
            plant: Plant::Fine,
            kind: 0,
            currency: "EUR",
            amount: 1000 + n as i64,
            offset: n as i64 * 600_000,
        })
        .collect();
    let m = month(&things, start, start + 40 * DAY);
    post(lab, source, &m.ours);
    (m.rows, start + DAY + 13 * HOUR)
}

#[test]
fn a_report_that_is_not_what_it_should_be_changes_nothing() {
    let lab = lab("");
    let (rows, now) = quiet_day(&lab, "acme-utc", 40);
    let whole = csv(&rows);
    let foreign: Vec<Row> = (0..30)
        .map(|n| Row {
            id: format!("txn_x{n}"),
            source: format!("ch_x{n}"),
            intent: format!("pi_x{n}"),
            ..rows[n].clone()
        })
        .collect();
    let few: Vec<Row> = foreign[..4].to_vec();
    type Case<'a> = (&'a str, String, (&'a str, &'a str), &'a str, &'a str);
    let cases: Vec<Case> = vec![
        ("another account", csv(&foreign), ("2026-08-10", "2026-08-10"), "INVALID", "account"),
        ("a small other account", csv(&few), ("2026-08-10", "2026-08-10"), "INVALID", "another account"),
        ("another day", whole.clone(), ("2026-08-12", "2026-08-12"), "DEFERRED", "not over"),
        ("another window", whole.clone(), ("2026-08-05", "2026-08-05"), "INVALID", "no line of the window"),
        ("empty", HEAD.into(), ("2026-08-10", "2026-08-10"), "DEFERRED", "empty"),
        ("cut in a row", whole[..whole.len() - 70].into(), ("2026-08-10", "2026-08-10"), "INVALID", "line 41"),
        ("cut between rows", csv(&rows[..12]), ("2026-08-10", "2026-08-10"), "DEFERRED", "12 of our 40"),
        ("no report at all", "<html>sign in</html>".into(), ("2026-08-10", "2026-08-10"), "INVALID", "no report"),
    ];
    let before = lab.number("SELECT count(*) FROM postonce_journal");
    for (n, (what, text, days, state, why)) in cases.into_iter().enumerate() {
        let settled = lab.run("acme-utc", &lab.file(&format!("{n}.csv"), &text), days, now);
        let reason = settled.reason.clone().unwrap_or_default();
        assert_eq!(settled.state, state, "{what}: {reason}");
        assert!(reason.contains(why), "{what}: {reason}");
    }
    // the same when all is long past its grace
    let late = now + 30 * DAY;
    let empty = lab.run("acme-utc", &lab.file("empty.csv", HEAD), ("2026-08-10", "2026-08-10"), late);
    assert_eq!(empty.state, "INVALID", "{empty:?}");
    let cut = lab.run("acme-utc", &lab.file("cut.csv", &csv(&rows[..12])), ("2026-08-10", "2026-08-10"), late);
    assert_eq!(cut.state, "INVALID", "{cut:?}");
    assert_eq!(lab.number("SELECT count(*) FROM postonce_journal"), before, "nothing is posted");
    for table in ["postonce_discrepancies", "postonce_settled", "postonce_run_items"] {
        assert_eq!(lab.number(&format!("SELECT count(*) FROM {table}")), 0, "{table}");
    }
    let trend = lab.engine.shared().store.read(|conn| {
        let filter = postonce::store::settlement::trend::TrendFilter {
            from: "2026-08-10".into(),
            to: "2026-08-10".into(),
            ..Default::default()
        };
        postonce::store::settlement::trend::trend(conn, &filter)
    });
    let trend = trend.unwrap();
    assert!(trend[0].gap && trend[0].found.is_none() && trend[0].trouble.is_some(), "a gap is no zero: {trend:?}");
    // and the right one is fine
    let right = lab.run("acme-utc", &lab.file("right.csv", &whole), ("2026-08-10", "2026-08-10"), now);
    assert_eq!((right.state, right.buckets), ("COMPLETED", BTreeMap::from([("matched", 40)])));
    lab.check();
}

#[test]
fn a_late_line_closes_its_discrepancy_and_a_second_line_for_a_settled_entry_is_told() {
    let lab = lab("");
    let (rows, now) = quiet_day(&lab, "birch", 30);
    let late = now + 5 * DAY;
    let without: Vec<Row> = rows[1..].to_vec();
    let window = ("2026-08-10", "2026-08-11");
    let first = lab.run("birch", &lab.file("1.csv", &csv(&without)), window, late);
    assert_eq!((first.buckets.get("missing_theirs"), first.opened, first.open), (Some(&1), 1, 1), "{first:?}");
    let second = lab.run("birch", &lab.file("2.csv", &csv(&rows)), window, late);
    assert_eq!((second.open, second.buckets.get("matched")), (0, Some(&30)), "{second:?}");
    assert_eq!(lab.number("SELECT count(*) FROM postonce_discrepancies WHERE resolution = 'AUTO_LATE_MATCH'"), 1);
    // the next report brings another line for an entry that is settled: exclusive across runs
    let mut more = rows.clone();
    more[5].id = "txn_again".into();
    let third = lab.run("birch", &lab.file("3.csv", &csv(&more)), window, late);
    assert_eq!(third.buckets.get("duplicate_theirs"), Some(&1), "{third:?}");
    lab.check();
}
