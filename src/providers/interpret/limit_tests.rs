//! What a body may cost: linear time, bounded memory, never a panic, whatever it holds.

use super::Interpreter;
use super::expected::to_expected_json;
use super::fixtures::{Delivery, bodies, interpreter};
use super::tests::{event, invented, parked, read};
use crate::event::Meaning;
use proptest::prelude::*;
use rustix::time::{ClockId, clock_gettime};
use serde_json::json;
use std::time::Duration;

/// How long this thread has been on a processor: what others do on the machine meanwhile does not count. The clock of the
/// thread itself; the scheduler's statistics lag by up to a tick, which is longer than a small body takes.
fn worked() -> Duration {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(now.tv_sec.unsigned_abs(), now.tv_nsec.unsigned_abs() as u32)
}

/// How many times as much is in the large body as in the small one.
const TIMES: usize = 32;
/// How much more the large one may cost than as many small ones: 1 is linear, [`TIMES`] is a square.
const DEARER: u128 = 6;

/// One body that holds `TIMES` as much must not cost many times what `TIMES` bodies do. Both are read in turn, so that a
/// busy machine (caches, clock rate) is as hard on the one as on the other; the median of the rounds counts.
fn linear(name: &str, body: impl Fn(usize) -> String, interpreter: &Interpreter) {
    let (small, large) = (body(500), body(500 * TIMES));
    let cost = |body: &str, times: usize| {
        let start = worked();
        (0..times).for_each(|_| drop(std::hint::black_box(read(interpreter, body))));
        worked() - start
    };
    let mut rounds: Vec<(u128, Duration, Duration)> = (0..3)
        .map(|_| (cost(&small, TIMES), cost(&large, 1)))
        .map(|(many, one)| (one.as_nanos() * 100 / many.as_nanos().max(1), many, one))
        .collect();
    rounds.sort();
    let (percent, many, one) = rounds[rounds.len() / 2];
    println!("{name}: one large body costs {percent} % of what {TIMES} small ones do");
    assert!(percent < DEARER * 100, "{name}: {one:?} for one large body, {many:?} for {TIMES} small ones");
}

#[test]
fn time_grows_with_the_body_and_not_with_its_square() {
    let invented = invented();
    let keys = |n: usize| (0..n).map(|i| format!("\"k{i}\":{i},")).collect::<String>();
    linear(
        "batch",
        |n| {
            format!(
                "{{\"list\":[{}7]}}",
                r#"{"wrapped":{"what":"passed","ok":true,"pass":"p","cents":1,"money":"EUR"}},"#.repeat(n)
            )
        },
        &invented,
    );
    let parts = |n: usize| r#"{"no":1,"cents":0,"done":true},"#.repeat(n);
    linear(
        "each beside many keys",
        |n| {
            format!(
                "{{\"list\":[{{\"wrapped\":{{{}\"what\":\"returned\",\"pass\":\"p\",\"money\":\"EUR\",\"parts\":[{}7]}}}}]}}",
                keys(n),
                parts(n)
            )
        },
        &invented,
    );
    linear(
        "a long text that a loop asks for",
        |n| {
            let long = r"\u0041".repeat(n);
            format!(
                "{{\"list\":[{{\"wrapped\":{{\"what\":\"returned\",\"pass\":\"{long}\",\"money\":\"EUR\",\"parts\":[{}7]}}}}]}}",
                parts(n)
            )
        },
        &invented,
    );
    linear("deep", |n| "[".repeat(n), &invented);
    linear("strings", |n| format!("{{\"list\":[\"{}\"]}}", r"\ud83d\u0000".repeat(n)), &invented);
    linear("form", |n| "price=1&%41=%42&".repeat(n), &interpreter("gumroad", &json!({})));
    linear(
        "live flag beside a batch",
        |n| {
            format!(
                "{{{}\"live\":\"true\",\"notificationItems\":[{}7]}}",
                keys(n),
                r#"{"NotificationRequestItem":{"eventCode":"X"}},"#.repeat(n)
            )
        },
        &interpreter("adyen", &json!({})),
    );
}

#[test]
fn countless_movements_and_countless_items_are_parked() {
    let parts: String = (0..1001).map(|i| format!(r#"{{"no":{i},"cents":1,"done":true}},"#)).collect();
    let event = event(&format!(r#""what":"returned","pass":"p","money":"EUR","parts":[{parts}7]"#));
    assert!(parked(&event).contains("more than 1000"));
    let batch = read(&invented(), &format!("{{\"list\":[{}7]}}", "{},".repeat(20_000)));
    assert!(parked(&batch.events[0]).contains("more than 20000 items"));
}

fn check(interpreter: &Interpreter, body: &[u8], headers: &[(String, String)]) {
    let reading = interpreter.interpret(body, headers, "topic=payment&id=1", 1);
    assert!(!reading.events.is_empty());
    to_expected_json(&reading);
    for event in &reading.events {
        match &event.meaning {
            Meaning::Effects { movements, entities } => {
                assert!(!movements.is_empty() || !entities.is_empty());
                for movement in movements {
                    assert!(movement.amount.minor() > 0 && !movement.reference.is_empty(), "{movement:?}");
                    assert!(super::grammar::KINDS.contains(&movement.kind.as_str()));
                }
            }
            Meaning::Fetch(path) => assert!(path.starts_with('/') && !path.starts_with("//"), "{path}"),
            Meaning::Ignored(why) | Meaning::Parked(why) => assert!(!why.is_empty()),
        }
    }
    interpreter.interpret_answer(&reading.events[0], body, 1);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn no_change_to_a_body_makes_interpretation_panic(
        pick in any::<prop::sample::Index>(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>(), 0..4u8), 1..6),
    ) {
        static ALL: std::sync::OnceLock<Vec<Delivery>> = std::sync::OnceLock::new();
        let (interpreter, body, headers) = pick.get(ALL.get_or_init(bodies));
        let mut body = body.clone();
        for (at, byte, how) in changes {
            if body.is_empty() { break }
            let at = at.index(body.len());
            match how {
                0 => body[at] = byte,
                1 => body.insert(at, byte),
                2 => { body.remove(at); }
                _ => body.truncate(at),
            }
        }
        check(interpreter, &body, headers);
    }

    #[test]
    fn no_value_in_a_field_makes_interpretation_panic(
        pick in any::<prop::sample::Index>(),
        field in any::<prop::sample::Index>(),
        value in prop_oneof![
            Just("null".to_owned()), Just("[]".into()), Just("{}".into()), Just("\"\"".into()), Just("-1e999".into()),
            Just("1e-999".into()), Just("true".into()), Just("99999999999999999999".into()), Just("0".into()),
            Just(r#""\ud800""#.into()), Just("[[[]]]".into()), "[0-9.eE+-]{1,30}".prop_map(|s| format!("\"{s}\"")),
        ],
    ) {
        static ALL: std::sync::OnceLock<Vec<Delivery>> = std::sync::OnceLock::new();
        let (interpreter, body, headers) = pick.get(ALL.get_or_init(bodies));
        let text = String::from_utf8_lossy(body).into_owned();
        let values: Vec<usize> = text.match_indices(':').map(|(at, _)| at + 1).collect();
        if !values.is_empty() {
            let at = *field.get(&values);
            let end = text[at..].find([',', '}']).map_or(text.len(), |n| at + n);
            check(interpreter, format!("{}{value}{}", &text[..at], &text[end..]).as_bytes(), headers);
        }
    }
}
