//! A million report lines against a million entries: how long, how much memory, and how long senders wait meanwhile.
//!
//! Only with POSTONCE_LONG set, and only worth something in a release build; prints its figures.

use crate::harness::Folder;
use postonce::config::Loaded;
use postonce::engine::{self, Engine, Parts};
use postonce::money::Currency;
use postonce::postings;
use postonce::pull::Pace;
use postonce::steps::settle::{self, Ask};
use postonce::store::bodies::StoredBody;
use postonce::store::claims::{self, Says};
use postonce::store::gate::Intake;
use postonce::store::ledger::{self, AccountKey, NewEntry, NewPosting};
use postonce::store::raw::{NewRaw, Origin};
use postonce::store::{Access, Options};
use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const START: i64 = 1_780_272_000_000; // 2026-06-01
const DAY: i64 = 86_400_000;

/// Ids as providers make them: what they begin with grows with time, the rest is random.
fn id(prefix: &str, n: u64) -> String {
    let mixed = n.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    format!("{prefix}_3R{:05x}{:010x}", n / 256, mixed >> 24)
}

fn status(field: &str) -> u64 {
    let text = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = text.lines().find(|l| l.starts_with(field)).unwrap_or_default();
    line.split_whitespace().nth(1).and_then(|n| n.parse().ok()).unwrap_or(0)
}

fn peak_kb() -> u64 {
    status("VmHWM")
}

#[test]
fn a_million_lines_against_a_million_entries() {
    if std::env::var_os("POSTONCE_LONG").is_none() {
        eprintln!("skipped: set POSTONCE_LONG=1, in a release build");
        return;
    }
    let count: u64 = std::env::var("POSTONCE_ROWS").ok().and_then(|n| n.parse().ok()).unwrap_or(1_000_000);
    let folder = Folder::new();
    let secret = folder.join("secret");
    std::fs::write(&secret, "whsec_of_the_lab").unwrap();
    let text = format!("[[source]]\nname = \"stripe\"\nmode = \"live\"\nsecrets = [\"file:{}\"]\n", secret.display());
    let (sources, endpoints) = engine::build(&Loaded::parse(text).unwrap()).unwrap();
    let (engine, waking) = Engine::open(&folder.join("lab.db"), sources, endpoints, &Options::default()).unwrap();
    engine.start(waking, Parts { apply: false, deliver: false }).unwrap();
    let shared = engine.shared();
    let source = shared.sources["stripe"].clone();
    let name = settle::book_of(&source);
    let book = shared.store.write(move |tx| tx.book(&name)).unwrap();
    let began = Instant::now();
    for from in (0..count).step_by(2000) {
        shared
            .store
            .write(move |tx| {
                let eur = Currency::parse("EUR").unwrap();
                let key = |code: postings::Code| AccountKey {
                    book,
                    code: code.code,
                    holder: String::new(),
                    currency: eur,
                    class: code.class,
                };
                let rule = postings::rule("payment", postonce::providers::LedgerFacts::default());
                for n in from..(from + 2000).min(count) {
                    let (reference, amount) = (id("pi", n), 100 + (n % 9000) as i64);
                    let says = Says::Money { amount, currency: eur, secondary: false };
                    claims::claim(tx, book, "payment", &reference, says, 1)?;
                    let entry = ledger::append(
                        tx,
                        &NewEntry {
                            book,
                            kind: "payment".into(),
                            reference: reference.clone(),
                            raw_event: 1,
                            account: None,
                            parent: None,
                            amount,
                            currency: eur,
                            tax: None,
                            occurred_at: START + (n * 86_400_000 / count) as i64,
                            settles: true,
                            reverses: None,
                            note: None,
                            postings: vec![NewPosting { debit: key(rule.debit), credit: key(rule.credit), amount }],
                        },
                    )?;
                    claims::done(tx, book, "payment", &reference, 1, Some(entry))?;
                }
                Ok(())
            })
            .unwrap();
    }
    println!("{count} entries in {:?}", began.elapsed());
    let path = folder.join("report.csv");
    let mut file = BufWriter::new(File::create(&path).unwrap());
    writeln!(file, "balance_transaction_id,created_utc,available_on_utc,currency,gross,fee,net,reporting_category,source_id,charge_id,payment_intent_id").unwrap();
    for n in 0..count {
        let at = postonce::clock::rfc3339((START + (n * 86_400_000 / count) as i64) / 1000 * 1000);
        let at = at.replace('T', " ").replace('Z', "");
        let (amount, reference) = (100 + n % 9000, id("pi", n));
        let amount = format!("{}.{:02}", amount / 100, amount % 100);
        writeln!(file, "{},{at},{at},eur,{amount},0.00,{amount},charge,{reference},,", id("txn", n)).unwrap();
    }
    file.into_inner().unwrap().sync_all().unwrap();

    // senders, all the while
    let (stop, stopped) = std::sync::mpsc::channel::<()>();
    let waits: Arc<Mutex<Vec<Duration>>> = Arc::default();
    let (engine_of, waits_of) = (shared.clone(), waits.clone());
    let senders = std::thread::spawn(move || {
        while stopped.recv_timeout(Duration::from_millis(5)).is_err() {
            let raw = NewRaw {
                source: "other".into(),
                origin: Origin::Webhook,
                secret: None,
                headers: String::new(),
                query: String::new(),
                body: StoredBody::pack(&[b'x'; 900]),
            };
            let (sent, waits) = (Instant::now(), waits_of.clone());
            let done = Box::new(move |kept: postonce::error::Result<i64>| {
                kept.unwrap();
                waits.lock().unwrap().push(sent.elapsed());
            });
            engine_of.store.gate().keep(Intake { raw, since: std::time::Instant::now(), done });
        }
    });

    let _ = std::fs::write("/proc/self/clear_refs", "5"); // the peak from here on
    let before = status("VmRSS");
    let phases: Mutex<Vec<(&'static str, Instant, Instant)>> = Mutex::default();
    let began = Instant::now();
    let ask = Ask {
        window: Some((START, START + DAY, "2026-06-01".into())),
        again: false,
        file: Some(&path),
        report: None,
        kept: None,
        now: START + 2 * DAY,
        wait: Duration::from_secs(1),
        pace: Pace::default(),
        wake: &|| {},
        progress: &|phase, _| {
            let mut phases = phases.lock().unwrap();
            match phases.iter_mut().find(|(name, ..)| *name == phase) {
                Some((_, _, last)) => *last = Instant::now(),
                None => phases.push((phase, Instant::now(), Instant::now())),
            }
        },
    };
    let settled = settle::run(&Access::Ours(&shared.store), &source, &ask).unwrap();
    let took = began.elapsed();
    let peak = peak_kb();
    stop.send(()).unwrap();
    senders.join().unwrap();
    for (phase, first, last) in phases.lock().unwrap().iter() {
        println!("  {phase}: from {:?} to {:?}", *first - began, *last - began);
    }
    let mut waits = waits.lock().unwrap().clone();
    waits.sort_unstable();
    let at = |share: usize| waits[(waits.len() - 1) * share / 100];
    println!("{count} x {count}: {took:?}, peak {} MB (before {} MB)", peak / 1024, before / 1024);
    println!(
        "{} acknowledgements meanwhile: p50 {:?}, p99 {:?}, max {:?}",
        waits.len(),
        at(50),
        at(99),
        waits[waits.len() - 1]
    );
    assert_eq!((settled.state, settled.buckets.get("matched")), ("COMPLETED", Some(&(count as i64))), "{settled:?}");

    // the comparing itself: the same lines again, which are in the file now
    let compared: Mutex<Vec<(&'static str, Instant)>> = Mutex::default();
    let note = |phase, _| compared.lock().unwrap().push((phase, Instant::now()));
    let again = Ask { kept: Some(1), progress: &note, ..ask };
    let settled = settle::run(&Access::Ours(&shared.store), &source, &again).unwrap();
    assert_eq!((settled.state, settled.buckets.get("matched")), ("COMPLETED", Some(&(count as i64))), "{settled:?}");
    let at = |phase: &str| compared.lock().unwrap().iter().rev().find(|(name, _)| *name == phase).unwrap().1;
    println!("comparing itself: {:?}, and all of it again {:?}", at("compared") - at("sorted"), began.elapsed());

    // the yardstick: both sides in key order, nothing but the comparison
    let bare = shared.store.read(|conn| {
        let began = Instant::now();
        let mut lines = conn
            .prepare("SELECT name, gross, currency FROM postonce_report_lines WHERE report = 1 ORDER BY kind, name")
            .unwrap();
        let mut claims = conn
            .prepare(
                "SELECT ref, amount, currency FROM postonce_claims WHERE book = ?1 AND kind = 'payment' ORDER BY ref",
            )
            .unwrap();
        let (mut lines, mut claims) = (lines.query([]).unwrap(), claims.query([book]).unwrap());
        let mut same = 0;
        while let (Some(line), Some(claim)) = (lines.next().unwrap(), claims.next().unwrap()) {
            let equal = line.get_ref(0).unwrap() == claim.get_ref(0).unwrap()
                && line.get_ref(1).unwrap() == claim.get_ref(1).unwrap()
                && line.get_ref(2).unwrap() == claim.get_ref(2).unwrap();
            same += u64::from(equal);
        }
        assert_eq!(same, count);
        Ok(began.elapsed())
    });
    println!("a bare merge of the two: {:?}", bare.unwrap());
}
