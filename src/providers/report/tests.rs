//! The sample reports against their known answers, and what must not be read.

use super::*;
use crate::providers::{Catalog, Recipe};
use serde_json::Value;
use std::path::PathBuf;

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/vectors/reports")
}

fn recipe(provider: &str) -> Recipe {
    Catalog::open(None).unwrap().recipe(provider).unwrap().unwrap()
}

/// Reads a text as the provider's report that it is.
fn try_read(provider: &str, text: &[u8]) -> Result<(ReportSpec, Vec<ReportLine>, Summary), ReadError> {
    let recipe = recipe(provider);
    let name = detect(&recipe, &text[..text.len().min(read::HEAD_BYTES)]);
    let name = name.ok_or_else(|| ReadError::file("no report of this provider"))?;
    let spec = recipe.report[name].clone();
    let mut lines = Vec::new();
    let summary = read(&spec, text, &ReadOptions::default(), &mut |line| {
        lines.push(line);
        Ok::<(), ReadError>(())
    })?;
    Ok((spec, lines, summary))
}

const SAMPLES: &[(&str, &str)] = &[
    ("adyen", "adyen_settlement_detail.csv"),
    ("gocardless", "gocardless_payout_events.csv"),
    ("mollie", "mollie_settlement.csv"),
    ("paddle", "paddle_payout_reconciliation.csv"),
    ("paypal", "paypal_activity_us.csv"),
    ("paypal", "paypal_stl.csv"),
    ("paystack", "paystack_settlement_transactions.json"),
    ("razorpay", "razorpay_settlement_recon.csv"),
    ("shopify", "shopify_payments_transactions.csv"),
    ("square", "square_transactions.csv"),
    ("stripe", "stripe_balance_change_from_activity.csv"),
    ("stripe", "stripe_balance_history.csv"),
];

fn sample(file: &str) -> (Vec<u8>, Value) {
    let text = std::fs::read(folder().join(file)).unwrap();
    let stem = file.rsplit_once('.').unwrap().0;
    let expected = std::fs::read(folder().join(format!("{stem}.expected.json"))).unwrap();
    (text, serde_json::from_slice(&expected).unwrap())
}

#[test]
fn every_row_of_every_sample_is_its_known_answer() {
    let mut seen = 0;
    for (provider, file) in SAMPLES {
        let (text, expected) = sample(file);
        let (spec, lines, summary) = try_read(provider, &text).unwrap_or_else(|e| panic!("{file}: {e}"));
        let wanted = expected["rows"].as_array().unwrap();
        assert_eq!(lines.len(), wanted.len(), "{file}");
        for (line, want) in lines.iter().zip(wanted) {
            let got: Value = serde_json::from_str(&spec.json(line)).unwrap();
            // what the sample says beside the row, in words of its own
            let beside =
                ["note", "duplicate_of_line", "duplicate_of", "parent_unknown", "ambiguous_local_time", "batch"];
            let more = ["event_code", "completed_at_utc", "provider_id", "settlement", "payment", "refund", "payout"];
            for (key, value) in want.as_object().unwrap() {
                if beside.contains(&key.as_str()) || more.contains(&key.as_str()) || value == "" {
                    continue;
                }
                assert_eq!(&got[key], value, "{file} {key} of {want}\n got {got}");
            }
            for key in
                ["ref_alt", "presentment", "net_currency", "settled_gross_minor", "tax_minor", "alt_occurred_at_utc"]
            {
                assert_eq!(got.get(key).is_some(), want.get(key).is_some(), "{file} {key} of {want}\n got {got}");
            }
            assert_eq!(line.unknown_kind, None, "{file}: {want}");
            assert_eq!(line.gross - line.tax - line.fee, line.net);
            seen += 1;
        }
        let skipped: Vec<(u64, String)> = expected["non_rows"]
            .as_array()
            .unwrap()
            .iter()
            .map(|n| (n["line"].as_u64().unwrap(), n["why"].as_str().unwrap().to_owned()))
            .collect();
        assert_eq!(summary.skipped_first, skipped, "{file}");
        let repeated = wanted.iter().filter(|w| w.get("duplicate_of_line").or(w.get("duplicate_of")).is_some()).count();
        // Shopify's file has no row ids: nothing of it can be told to be a repeat
        assert_eq!(summary.repeats, if *provider == "shopify" { 0 } else { repeated as u64 }, "{file}");
        assert!(summary.control.iter().all(Control::holds), "{file}: {:?}", summary.control);
    }
    assert_eq!(seen, 375);
}

#[test]
fn control_numbers_that_stand_in_a_file_or_beside_it_agree_with_its_rows() {
    let (text, _) = sample("paypal_stl.csv");
    let (.., summary) = try_read("paypal", &text).unwrap();
    let whats: Vec<&str> = summary.control.iter().map(|c| c.what.as_str()).collect();
    assert!(whats.contains(&"rows (FF)") && whats.contains(&"gross credits HUF"), "{whats:?}");
    assert_eq!(summary.control.len(), 3 + 4 * 5);
    for (provider, file, key, currency) in [
        ("mollie", "mollie_settlement.csv", "settlement_total_minor", "EUR"),
        ("paddle", "paddle_payout_reconciliation.csv", "payout_total_minor", "USD"),
        ("razorpay", "razorpay_settlement_recon.csv", "settled_total_minor", "INR"),
    ] {
        let (text, expected) = sample(file);
        let (.., summary) = try_read(provider, &text).unwrap();
        assert_eq!(summary.totals[currency].net, expected[key].as_i64().unwrap(), "{file}");
    }
}

#[test]
fn a_changed_amount_or_a_lost_row_breaks_a_control_number() {
    let (text, _) = sample("paypal_stl.csv");
    let text = String::from_utf8(text).unwrap();
    let changed = text.replacen("\"CR\",105159,", "\"CR\",105158,", 1);
    let (.., summary) = try_read("paypal", changed.as_bytes()).unwrap();
    assert!(summary.control.iter().any(|c| !c.holds() && c.what == "gross credits USD"));
    let lost: String = text.split_inclusive('\n').filter(|l| !l.contains("\"INV-712\"")).collect();
    let (.., summary) = try_read("paypal", lost.as_bytes()).unwrap();
    assert!(summary.control.iter().any(|c| !c.holds() && c.what == "rows (SC)"));
    let (text, _) = sample("adyen_settlement_detail.csv");
    let text = String::from_utf8(text).unwrap();
    let lost: String = text.split_inclusive('\n').filter(|l| !l.contains("ord_9005")).collect();
    let (.., summary) = try_read("adyen", lost.as_bytes()).unwrap();
    assert!(summary.control.iter().any(|c| !c.holds()));
}

/// A file with one place changed.
fn broken(file: &str, from: &str, to: &str) -> Vec<u8> {
    let (text, _) = sample(file);
    let text = String::from_utf8(text).unwrap();
    assert!(text.contains(from), "{file} has no {from}");
    text.replacen(from, to, 1).into_bytes()
}

#[test]
fn an_unreadable_row_stops_the_reading_with_its_line_and_column() {
    let stripe = "stripe_balance_change_from_activity.csv";
    for (provider, file, from, to, line, column) in [
        ("stripe", stripe, ",954.24,27.97,926.27,", ",954.245,27.97,926.27,", 3, "gross"),
        ("stripe", stripe, ",954.24,27.97,926.27,", ",954.24,27.97,926.28,", 3, "net"),
        ("stripe", stripe, ",954.24,27.97,926.27,", ",954.24,27.97,,", 3, "net"),
        ("stripe", stripe, "2026-11-18 15:33:24,2026", "2026-11-31 15:33:24,2026", 3, "created_utc"),
        ("stripe", stripe, ",usd,954.24,", ",xqx,954.24,", 3, "currency"),
        ("paypal", "paypal_activity_us.csv", "\"PDT\",\"Pat", "\"XYZ\",\"Pat", 2, "{Date} {Time}"),
        ("paypal", "paypal_activity_us.csv", "\"1,815.47\"", "\"1.815,47\"", 3, "Gross"),
        (
            "adyen",
            "adyen_settlement_detail.csv",
            ",,414.58,1,EUR,,413.95,",
            ",,414.58,1,EUR,,413.94,",
            3,
            "Gross Credit (GC)",
        ),
    ] {
        let outcome = try_read(provider, &broken(file, from, to));
        let error = outcome.expect_err(&format!("{file} was read with {to:?}"));
        assert_eq!((error.line, error.column.as_deref()), (Some(line), Some(column)), "{error}");
    }
}

#[test]
fn a_cut_empty_or_foreign_file_is_no_report() {
    let (text, _) = sample("paypal_stl.csv");
    let cut = &text[..text.len() * 2 / 3];
    let cut = &cut[..cut.iter().rposition(|b| *b == b'\n').unwrap() + 1];
    let error = try_read("paypal", cut).unwrap_err();
    assert!(error.problem.contains("cut off"), "{error}");
    let (text, _) = sample("stripe_balance_history.csv");
    let half = &text[..text.len() - 40];
    assert!(try_read("stripe", half).unwrap_err().problem.contains("cut off"));
    assert!(try_read("stripe", b"").is_err());
    assert!(try_read("paypal", &text).is_err());
    let json = sample("paystack_settlement_transactions.json").0;
    assert!(try_read("paystack", &json[..json.len() - 30]).unwrap_err().line.is_some());
    let spec = recipe("stripe").report["balance_history"].clone();
    for wrong in [&b""[..], b"  \n", b"a,b\n1,2\n"] {
        let none = &mut |_| Ok::<(), ReadError>(());
        assert!(read(&spec, wrong, &ReadOptions::default(), none).is_err());
    }
}

#[test]
fn a_file_in_another_encoding_is_refused_at_its_line() {
    let (text, _) = sample("mollie_settlement.csv");
    let at = text.windows(2).position(|w| w == "ö".as_bytes()).or(text.windows(2).position(|w| w == "á".as_bytes()));
    let mut latin = text.clone();
    latin.splice(at.unwrap()..at.unwrap() + 2, [0xE1]);
    let line = text[..at.unwrap()].iter().filter(|b| **b == b'\n').count() as u64 + 1;
    let error = try_read("mollie", &latin).unwrap_err();
    assert_eq!(error.line, Some(line), "{error}");
    assert!(error.problem.contains("UTF-8"), "{error}");
}

#[test]
fn every_sample_is_told_from_every_other_report() {
    let catalog = Catalog::open(None).unwrap();
    for (provider, file) in SAMPLES {
        let (text, _) = sample(file);
        for name in catalog.names() {
            let recipe = catalog.recipe(name).unwrap().unwrap();
            // Mollie's two kinds of webhook have two files and one report
            let own = name == *provider || (*provider == "mollie" && name == "mollie_classic");
            assert_eq!(detect(&recipe, &text).is_some(), own, "{file} as {name}");
        }
    }
}

#[test]
fn the_same_rows_in_another_dress_are_the_same_lines() {
    let (text, _) = sample("stripe_balance_history.csv");
    let (_, plain, _) = try_read("stripe", &text).unwrap();
    let text = String::from_utf8(text).unwrap();
    let dressed = format!("\u{feff}{}", text.replace('\n', "\r\n"));
    assert!(try_read("stripe", dressed.as_bytes()).unwrap().1 == plain);
    let blank = text.replacen("\n", "\n\n", 1);
    let (_, lines, _) = try_read("stripe", blank.trim_end().as_bytes()).unwrap();
    assert!(
        lines.iter().zip(&plain).all(|(blank, plain)| blank.line == plain.line + 1 && blank.record == plain.record)
    );
    let shuffled: String = text.lines().map(|l| format!("x,{l}\n")).collect();
    assert!(try_read("stripe", shuffled.as_bytes()).unwrap().1 == plain);
}

#[test]
fn a_german_paypal_file_is_read_by_its_own_words_and_numbers() {
    let text = "\u{feff}\"Datum\",\"Uhrzeit\",\"Zeitzone\",\"Name\",\"Typ\",\"Status\",\"Währung\",\"Brutto\",\"Entgelt\",\"Netto\",\
        \"Transaktionscode\",\"Zugehöriger Transaktionscode\",\"Auswirkung auf Guthaben\"\r\n\
        \"20.11.2026\",\"23:30:00\",\"Europe/Berlin\",\"A\",\"PayPal Express-Zahlung\",\"Abgeschlossen\",\"EUR\",\"1.613,04\",\"-40,51\",\"1.572,53\",\"TX1\",\"\",\"Haben\"\r\n\
        \"20.11.2026\",\"23:31:00\",\"Europe/Berlin\",\"A\",\"Etwas Neues\",\"Abgeschlossen\",\"EUR\",\"-5,00\",\"0,00\",\"-5,00\",\"TX2\",\"TX1\",\"Soll\"\r\n";
    let (_, lines, _) = try_read("paypal", text.as_bytes()).unwrap();
    assert_eq!((lines[0].kind.as_str(), lines[0].gross, lines[0].fee), ("payment", 161304, 4051));
    assert_eq!(lines[0].occurred_at.and_then(utc_text).unwrap(), "2026-11-20T22:30:00Z");
    assert_eq!((lines[1].kind.as_str(), lines[1].unknown_kind.as_deref()), ("adjustment", Some("Etwas Neues")));
}

#[test]
fn a_partial_capture_is_to_be_merged_and_never_a_refund() {
    let text = broken(
        "stripe_balance_change_from_activity.csv",
        ",refund,re_33zi9d7S7eTNYEH8JDeUcigV,",
        ",partial_capture_reversal,re_33zi9d7S7eTNYEH8JDeUcigV,",
    );
    let (_, lines, _) = try_read("stripe", &text).unwrap();
    let merged: Vec<_> = lines.iter().filter(|l| l.merge).collect();
    assert_eq!(merged.len(), 1);
    assert_eq!((merged[0].kind.as_str(), merged[0].gross), ("payment", -43751));
    assert_eq!(merged[0].parent.as_deref(), Some("ch_3tZ1kvweGW0sEiS3EnQqa8Ct"));
}

#[test]
fn every_provider_file_is_readable_and_its_reports_say_what_they_cover() {
    let catalog = Catalog::open(None).unwrap();
    for name in catalog.names() {
        let recipe = catalog.recipe(name).unwrap().unwrap_or_else(|e| panic!("{e}"));
        for (report, spec) in &recipe.report {
            assert!(!spec.covers.is_empty() && spec.grace_h > 0, "{name} {report}");
            assert_eq!(spec.format == Format::Sections, spec.sections.is_some(), "{name} {report}");
        }
    }
}

proptest::proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig::with_cases(64))]

    #[test]
    fn a_damaged_file_is_read_or_refused_and_never_a_crash(
        which in 0..SAMPLES.len(),
        damage in proptest::collection::vec((proptest::prelude::any::<u32>(), proptest::prelude::any::<u8>()), 1..6),
    ) {
        let (provider, file) = SAMPLES[which];
        let (mut text, _) = sample(file);
        for (at, byte) in damage {
            let at = at as usize % text.len();
            text[at] = byte;
        }
        // whatever is read adds up
        if let Ok((_, lines, _)) = try_read(provider, &text) {
            for line in lines {
                proptest::prop_assert_eq!(line.gross - line.tax - line.fee, line.net);
            }
        }
    }
}
