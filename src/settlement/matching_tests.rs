//! Planted differences: each is found as what it is, nothing else is, whatever the order.

use super::*;
use proptest::prelude::*;
use std::convert::Infallible;

fn cur(code: &str) -> Currency {
    Currency::parse(code).unwrap()
}

fn line(item: i64, kind: &str, name: &str, gross: i64) -> Theirs {
    Theirs {
        item,
        kind: kind.into(),
        name: name.into(),
        other: None,
        parent: None,
        by_parent: false,
        order: None,
        gross,
        fee: 30,
        currency: cur("EUR"),
        shown: None,
        settled_only: false,
        pending: false,
        provider_only: false,
        not_ours: false,
        booked: false,
        line_ref: format!("row {item}"),
        in_window: true,
    }
}

fn entry(item: i64, kind: &str, name: &str, amount: i64) -> Ours {
    Ours {
        item,
        kind: kind.into(),
        name: name.into(),
        aliases: Vec::new(),
        parent: None,
        amount,
        currency: cur("EUR"),
        fee: Some(Money { minor: 30, currency: cur("EUR") }),
        occurred_at: 0,
        settled_by: None,
        settled_ref: None,
        in_window: true,
    }
}

/// Compares what is in the window; the rest is what can be looked up. Entries that happened at 1 are in their grace.
fn run(theirs: &[Theirs], ours: &[Ours]) -> Vec<Scored> {
    let mut t: Vec<_> = theirs.iter().filter(|t| t.in_window).cloned().collect();
    let mut o: Vec<_> = ours.iter().filter(|o| o.in_window).cloned().collect();
    t.sort_by(|a, b| a.key().cmp(&b.key()));
    o.sort_by(|a, b| a.key().cmp(&b.key()));
    let mut scored = Vec::new();
    let around = Around {
        ours: &mut |kind, name| {
            let named = |o: &&Ours| &*o.kind == kind && (o.name == name || o.aliases.iter().any(|a| a == name));
            Ok::<_, Infallible>(ours.iter().find(named).cloned())
        },
        met: &mut |line_ref| {
            let by_name = |o: &Ours| theirs.iter().any(|t| t.line_ref == line_ref && t.key() == o.key());
            let by_row = |o: &&Ours| o.settled_ref.as_deref() == Some(line_ref) && !by_name(o);
            Ok(ours.iter().find(by_row).cloned())
        },
        of_order: &mut |order| Ok(ours.iter().find(|o| o.parent.as_deref() == Some(order)).cloned()),
        open: &mut || Ok(Vec::new()),
        line: &mut |item| Ok(theirs.iter().find(|t| t.item == item && !t.in_window).cloned()),
        theirs: &mut |entries| {
            let of = |o: &&Ours| {
                let mut names = [&o.name].into_iter().chain(&o.aliases);
                names.find_map(|name| {
                    let named = |t: &&Theirs| t.kind == o.kind && (t.name == *name || t.other.as_ref() == Some(name));
                    theirs.iter().find(named).cloned()
                })
            };
            Ok(entries.iter().map(of).collect())
        },
        in_grace: &|entry| entry.occurred_at > 0,
        emit: &mut |item| {
            scored.push(item);
            Ok(())
        },
    };
    compare(t.into_iter().map(Ok), o.into_iter().map(Ok), around).unwrap();
    scored.sort_by_key(|s| (s.side, s.item));
    scored
}

fn buckets(scored: &[Scored]) -> Vec<(Side, i64, Bucket)> {
    scored.iter().map(|s| (s.side, s.item, s.bucket)).collect()
}

#[test]
fn a_pair_has_the_first_difference_in_the_order_of_precedence() {
    let pair = |change: &dyn Fn(&mut Theirs, &mut Ours)| {
        let (mut t, mut o) = (line(1, "payment", "p", 100), entry(1, "payment", "p", 100));
        change(&mut t, &mut o);
        let scored = run(&[t], &[o]);
        assert_eq!((scored.len(), scored[0].bucket), (2, scored[1].bucket));
        scored[0].bucket
    };
    let usd = |minor| Some(Money { minor, currency: cur("USD") });
    assert_eq!(pair(&|_, _| ()), Bucket::Matched);
    assert_eq!(pair(&|t, _| t.fee = 31), Bucket::FeeDiffers);
    assert_eq!(pair(&|t, o| (t.fee, o.fee) = (31, None)), Bucket::Matched);
    assert_eq!(pair(&|t, _| (t.fee, t.gross) = (31, 101)), Bucket::AmountDiffers);
    assert_eq!(pair(&|t, o| (t.gross, o.currency) = (101, cur("USD"))), Bucket::CurrencyDiffers);
    assert_eq!(pair(&|t, o| (t.settled_only, o.currency) = (true, cur("USD"))), Bucket::NotComparable);
    assert_eq!(pair(&|t, o| (t.shown, o.currency) = (usd(100), cur("USD"))), Bucket::Matched);
    assert_eq!(pair(&|t, o| (t.shown, o.currency) = (usd(99), cur("USD"))), Bucket::AmountDiffers);
    assert_eq!(pair(&|t, _| t.shown = usd(7)), Bucket::Matched, "ours is in the settled currency");
    assert_eq!(pair(&|t, o| (t.shown, o.currency) = (usd(100), cur("GBP"))), Bucket::CurrencyDiffers);
}

#[test]
fn one_entry_meets_one_line_and_one_line_one_entry() {
    let two = [line(1, "payment", "p", 100), line(2, "payment", "p", 100)];
    let scored = run(&two, &[entry(1, "payment", "p", 100)]);
    let want = [
        (Side::Theirs, 1, Bucket::Matched),
        (Side::Theirs, 2, Bucket::DuplicateTheirs),
        (Side::Ours, 1, Bucket::Matched),
    ];
    assert_eq!(buckets(&scored), want);
    let scored = run(&two[..1], &[entry(1, "payment", "p", 100), entry(2, "payment", "p", 100)]);
    let want =
        [(Side::Theirs, 1, Bucket::Matched), (Side::Ours, 1, Bucket::Matched), (Side::Ours, 2, Bucket::DuplicateOurs)];
    assert_eq!(buckets(&scored), want);
    // the equal one is the partner, not the first one
    let scored = run(&[line(1, "payment", "p", 50), line(2, "payment", "p", 100)], &[entry(1, "payment", "p", 100)]);
    assert_eq!(buckets(&scored)[..2], [(Side::Theirs, 1, Bucket::DuplicateTheirs), (Side::Theirs, 2, Bucket::Matched)]);
}

#[test]
fn another_name_leads_to_the_same_entry_and_never_to_a_second_one() {
    let mut t = line(1, "payment", "ch_1", 100);
    t.other = Some("pi_1".into());
    let mut o = entry(1, "payment", "pi_1", 100);
    o.aliases = vec!["ch_1".into()];
    let scored = run(std::slice::from_ref(&t), std::slice::from_ref(&o));
    assert!(scored.iter().all(|s| s.bucket == Bucket::Matched && s.rule == Some(Rule::KindAlias)), "{scored:?}");
    let second = Theirs { item: 2, name: "pi_1".into(), other: None, ..t.clone() };
    let scored = run(&[t.clone(), second], std::slice::from_ref(&o));
    assert_eq!(scored.iter().filter(|s| s.bucket == Bucket::DuplicateTheirs).count(), 1, "{scored:?}");
    // posted under both names: one of them is too many
    let scored = run(&[t], &[entry(1, "payment", "pi_1", 100), entry(2, "payment", "ch_1", 100)]);
    assert_eq!(scored.iter().filter(|s| s.bucket == Bucket::DuplicateOurs).count(), 1, "{scored:?}");
}

#[test]
fn what_is_settled_stays_settled_across_runs() {
    let mut o = entry(1, "payment", "p", 100);
    (o.settled_by, o.settled_ref) = (Some(77), Some("row 77".into()));
    let scored = run(&[line(5, "payment", "p", 100)], std::slice::from_ref(&o));
    assert_eq!(scored[0].bucket, Bucket::DuplicateTheirs, "another line for a settled entry: {scored:?}");
    assert_eq!((scored[1].bucket, scored[1].partner), (Bucket::Matched, Some((77, false))));
    let mut again = line(78, "payment", "p", 100);
    again.line_ref = "the same row".into();
    o.settled_ref = Some("the same row".into());
    let scored = run(&[again], &[o]);
    assert!(scored.iter().all(|s| s.bucket == Bucket::Matched && s.rule == Some(Rule::LineRef)), "{scored:?}");
}

#[test]
fn a_partner_beyond_the_window_still_has_to_be_equal() {
    let mut o = entry(1, "payment", "p", 100);
    o.in_window = false;
    let scored = run(&[line(1, "payment", "p", 100)], std::slice::from_ref(&o));
    assert_eq!((scored.len(), scored[0].bucket, scored[0].partner), (1, Bucket::Matched, Some((1, false))));
    assert_eq!(run(&[line(1, "payment", "p", 101)], &[o])[0].bucket, Bucket::AmountDiffers);
    let mut t = line(1, "payment", "p", 101);
    t.in_window = false;
    let scored = run(&[t], &[entry(1, "payment", "p", 100)]);
    assert_eq!((scored.len(), scored[0].bucket, scored[0].partner), (1, Bucket::AmountDiffers, Some((1, false))));
}

#[test]
fn parent_and_order_lead_to_a_partner_only_where_the_rules_allow_it_and_the_amount_is_equal() {
    let mut t = line(1, "dispute_opened", "T1201-row", -100);
    t.parent = Some("p".into());
    let mut o = entry(1, "dispute_opened", "PP-D-1:DEBIT:x", 100);
    o.parent = Some("p".into());
    assert_eq!(run(std::slice::from_ref(&t), std::slice::from_ref(&o))[0].bucket, Bucket::MissingOurs);
    t.by_parent = true;
    let scored = run(std::slice::from_ref(&t), std::slice::from_ref(&o));
    assert!(scored.iter().all(|s| s.bucket == Bucket::Matched && s.rule == Some(Rule::Parent)));
    t.gross = -99;
    assert_eq!(run(&[t], &[o])[0].bucket, Bucket::MissingOurs);
    // the merchant's order leads to one entry, once, and only with its amount
    let with_order = |item| Theirs { order: Some("#1".into()), ..line(item, "payment", "checkout", 10) };
    let ours = Ours { parent: Some("#1".into()), ..entry(1, "payment", "a", 10) };
    let scored = run(&[with_order(1), with_order(2)], std::slice::from_ref(&ours));
    let count = |bucket| scored.iter().filter(|s| s.bucket == bucket).count();
    assert_eq!((count(Bucket::Matched), count(Bucket::MissingOurs)), (2, 1), "{scored:?}");
    assert_eq!(scored[0].rule, Some(Rule::Order));
    assert_eq!(run(&[Theirs { gross: 11, ..with_order(1) }], &[ours])[0].bucket, Bucket::MissingOurs);
}

#[test]
fn what_met_without_a_name_meets_by_its_row_again_also_beyond_the_window() {
    let mut t = line(9, "dispute_opened", "T1201-row", -100);
    (t.line_ref, t.by_parent, t.parent) = ("row".into(), true, Some("p".into()));
    let mut o = entry(1, "dispute_opened", "PP-D-1:DEBIT:x", 100);
    (o.settled_by, o.settled_ref, o.in_window) = (Some(4), Some("row".into()), false);
    let scored = run(std::slice::from_ref(&t), std::slice::from_ref(&o));
    assert_eq!((scored.len(), scored[0].bucket, scored[0].rule), (1, Bucket::Matched, Some(Rule::LineRef)));
    // another row about the same payment does not get the entry that is settled
    (t.line_ref, o.in_window, o.parent) = ("other row".into(), true, Some("p".into()));
    assert_eq!(run(&[t], &[o])[0].bucket, Bucket::MissingOurs);
}

#[test]
fn a_row_that_settled_an_entry_otherwise_than_by_name_stays_its_own_when_one_of_its_name_comes() {
    let mut t = line(9, "dispute_opened", "d", -100);
    t.line_ref = "row".into();
    let mut first = entry(1, "dispute_opened", "PP-D-1", 100);
    (first.settled_by, first.settled_ref) = (Some(4), Some("row".into()));
    let second = entry(2, "dispute_opened", "d", 100);
    let wanted =
        [(Side::Theirs, 9, Bucket::Matched), (Side::Ours, 1, Bucket::Matched), (Side::Ours, 2, Bucket::DuplicateOurs)];
    for in_window in [true, false] {
        first.in_window = in_window;
        let scored = run(std::slice::from_ref(&t), &[first.clone(), second.clone()]);
        let wanted: Vec<_> = wanted.iter().filter(|w| in_window || w.1 != 1).copied().collect();
        assert_eq!(buckets(&scored), wanted, "{scored:?}");
        assert_eq!(scored[0].partner, Some((1, in_window)));
    }
    // where the one of its name lies beyond the window
    let beyond = Ours { in_window: false, ..second };
    let scored = run(&[t], &[first, beyond]);
    assert_eq!((scored.len(), scored[0].partner), (1, Some((1, false))), "{scored:?}");
}

#[test]
fn a_side_that_is_not_sorted_is_refused() {
    let lines = [line(1, "payment", "b", 1), line(2, "payment", "a", 1)];
    let around = Around::<Infallible> {
        ours: &mut |_, _| Ok(None),
        met: &mut |_| Ok(None),
        of_order: &mut |_| Ok(None),
        open: &mut || Ok(Vec::new()),
        line: &mut |_| Ok(None),
        theirs: &mut |entries| Ok(vec![None; entries.len()]),
        in_grace: &|_| false,
        emit: &mut |_| Ok(()),
    };
    let outcome = compare(lines.into_iter().map(Ok), std::iter::empty(), around);
    assert!(matches!(outcome, Err(MatchError::Unsorted(Side::Theirs, 2))));
}

/// What can be planted for one movement.
const PLANTS: usize = 18;

/// Adds the movement `n` with the plant, and says which buckets its items must have.
fn plant(
    n: usize,
    plant: usize,
    ids: &mut dyn FnMut() -> i64,
    theirs: &mut Vec<Theirs>,
    ours: &mut Vec<Ours>,
    want: &mut Vec<(Side, i64, Bucket)>,
) {
    let kind = ["payment", "refund", "payout"][n % 3];
    let (name, gross) = (format!("m{n:05}"), [100, -100, -5000][n % 3] + n as i64 % 7);
    let mut t = line(ids(), kind, &name, gross);
    let mut o = entry(ids(), kind, &name, gross.abs());
    let (ti, oi) = (t.item, o.item);
    let both = |bucket| vec![(Side::Theirs, ti, bucket), (Side::Ours, oi, bucket)];
    let (mut has_t, mut has_o) = (true, true);
    let expected = match plant {
        0 => {
            has_o = false;
            vec![(Side::Theirs, ti, Bucket::MissingOurs)]
        }
        1 => {
            has_t = false;
            vec![(Side::Ours, oi, Bucket::MissingTheirs)]
        }
        2 => {
            (has_t, o.occurred_at) = (false, 1);
            vec![(Side::Ours, oi, Bucket::InTransit)]
        }
        3 => {
            (has_o, t.pending) = (false, true);
            vec![(Side::Theirs, ti, Bucket::PendingTheirs)]
        }
        4 => {
            (t.line_ref, o.settled_by, o.settled_ref) = ("row".into(), Some(-9), Some("row".into()));
            both(Bucket::Matched)
        }
        5 => {
            t.gross += 1;
            both(Bucket::AmountDiffers)
        }
        6 => {
            o.currency = cur("JPY");
            both(Bucket::CurrencyDiffers)
        }
        7 => {
            t.fee += 1;
            both(Bucket::FeeDiffers)
        }
        8 => {
            (t.settled_only, o.currency) = (true, cur("KWD"));
            both(Bucket::NotComparable)
        }
        9 => {
            theirs.push(Theirs { item: ids(), ..t.clone() });
            let second = theirs[theirs.len() - 1].item;
            let (first, second) = (ti.min(second), ti.max(second));
            vec![
                (Side::Theirs, first, Bucket::Matched),
                (Side::Theirs, second, Bucket::DuplicateTheirs),
                (Side::Ours, oi, Bucket::Matched),
            ]
        }
        10 => {
            ours.push(Ours { item: ids(), ..o.clone() });
            let second = ours[ours.len() - 1].item;
            let (first, second) = (oi.min(second), oi.max(second));
            vec![
                (Side::Theirs, ti, Bucket::Matched),
                (Side::Ours, first, Bucket::Matched),
                (Side::Ours, second, Bucket::DuplicateOurs),
            ]
        }
        11 => {
            (has_o, t.provider_only) = (false, true);
            vec![(Side::Theirs, ti, Bucket::ProviderOnly)]
        }
        12 => {
            (has_o, t.not_ours) = (false, true);
            vec![(Side::Theirs, ti, Bucket::NotOurs)]
        }
        13 => {
            (t.name, t.other) = (format!("ch{n:05}"), Some(name.clone()));
            both(Bucket::Matched)
        }
        14 => {
            (t.name, o.aliases) = (format!("ch{n:05}"), vec![format!("ch{n:05}")]);
            t.gross += 1;
            both(Bucket::AmountDiffers)
        }
        15 => {
            o.in_window = false;
            vec![(Side::Theirs, ti, Bucket::Matched)]
        }
        16 => {
            o.settled_by = Some(-1);
            vec![(Side::Theirs, ti, Bucket::DuplicateTheirs), (Side::Ours, oi, Bucket::Matched)]
        }
        _ => both(Bucket::Matched),
    };
    want.extend(expected);
    if has_t {
        theirs.push(t);
    }
    if has_o {
        ours.push(o);
    }
}

proptest! {
    #[test]
    fn exactly_what_was_planted_is_found_in_any_order(
        plants in proptest::collection::vec(0..PLANTS, 0..120),
        ids in Just((1..1000i64).collect::<Vec<_>>()).prop_shuffle(),
    ) {
        let (mut theirs, mut ours, mut want) = (Vec::new(), Vec::new(), Vec::new());
        let mut ids = ids.into_iter();
        let mut next = || ids.next().unwrap();
        for (n, what) in plants.iter().enumerate() {
            plant(n, *what, &mut next, &mut theirs, &mut ours, &mut want);
        }
        want.sort();
        let scored = run(&theirs, &ours);
        prop_assert_eq!(&buckets(&scored), &want);
        // both sides of a pair inside the window tell the same
        for s in &scored {
            let pair = matches!(s.bucket, Bucket::Matched | Bucket::AmountDiffers | Bucket::CurrencyDiffers
                | Bucket::FeeDiffers | Bucket::NotComparable);
            if let (true, Some((partner, true))) = (pair, s.partner) {
                let other = scored.iter().find(|o| o.side != s.side && o.item == partner).unwrap();
                prop_assert_eq!((other.bucket, other.partner), (s.bucket, Some((s.item, true))));
            }
        }
        theirs.reverse();
        ours.reverse();
        prop_assert_eq!(run(&theirs, &ours), scored);
    }
}
