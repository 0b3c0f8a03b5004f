//! Movements that come after the report that tells them: no later report repeats their line, and still they find it.

use crate::harness::Folder;
use crate::lab::{self, Lab};
use postonce::settlement::told::{self, Told};
use postonce::settlement::window;
use postonce::steps::settle::Settled;
use postonce::store::raw::Origin;
use std::collections::BTreeSet;
use std::path::PathBuf;

const HOUR: i64 = 3_600_000;
const DAY: i64 = 24 * HOUR;

/// One engine with the source of a bank that has disputes too.
fn lab() -> Lab {
    let folder = Folder::new();
    let (secret, recipes) = (folder.join("secret"), folder.join("providers"));
    std::fs::write(&secret, "token_of_the_lab").unwrap();
    std::fs::create_dir(&recipes).unwrap();
    let dispute = "[[movement]]\non = \"dispute\"\nkind = \"dispute_opened\"\nreference = \"/reference\"\namount = { minor = \"/amount\" }\ncurrency = \"/currency\"\n\n[report.statement]\n";
    let bank = crate::bank::BANK.replace("fee = \"fee\",", "fee = \"fee\", dispute = \"dispute_opened\",");
    let bank = bank.replace("type = \"/type\"\n", "type = \"/type\"\ntime = \"/at\"\n");
    let bank = bank
        .replace("\"part_of\"]", "\"part_of\", \"fee\"]")
        .replace("gross = \"amount\"\n", "gross = \"amount\"\nfee = \"fee\"\n");
    let bank = bank.replace("[report.statement]\n", dispute);
    std::fs::write(recipes.join("birchbank.toml"), bank).unwrap();
    let text = format!(
        "providers_dir = \"{}\"\n[[source]]\nname = \"bank\"\nprovider = \"birchbank\"\nmode = \"live\"\ntrust_unsigned_fields = true\nsecrets = [\"file:{}\"]\n\
         [[source.effect]]\non = [\"payment\"]\noperation_key = \"order-{{body.order}}\"\nsql = \"UPDATE shop_orders SET paid = paid + 1\"\n",
        recipes.display(),
        secret.display()
    );
    let app = postonce::rusqlite::Connection::open(folder.join("lab.db")).unwrap();
    app.execute_batch("PRAGMA journal_mode = WAL; CREATE TABLE shop_orders(paid INTEGER)").unwrap();
    Lab::open(folder, text)
}

fn start() -> i64 {
    window::days("2026-08-01", "2026-08-01", &jiff::tz::TimeZone::UTC).unwrap().0
}

fn tell(lab: &Lab, all: &[Told]) {
    lab.post("bank", told::HEADER, Origin::Imported, all.iter().map(Told::body));
}

fn told(kind: &str, reference: &str, amount: i64, at: i64) -> Told {
    lab::told(kind, reference, amount, "EUR", at)
}

/// A day's statement: eight payments that are there on both sides, and rows of one's own, without their time; a fee
/// stands behind a bar.
fn statement(lab: &Lab, day: i64, rows: &[&str]) -> PathBuf {
    let at = start() + (day - 1) * DAY + HOUR;
    let name = |n: i64| format!("p{day}-{n}");
    tell(lab, &(0..8).map(|n| told("payment", &name(n), 100 + n, at)).collect::<Vec<_>>());
    let time = postonce::clock::rfc3339(at);
    let mut text = "row,kind,reference,order,amount,currency,time,status,part_of,fee\n".to_owned();
    for n in 0..8 {
        text += &format!("r{day}-{n},payment,{},,{},EUR,{time},done,,0\n", name(n), 100 + n);
    }
    for row in rows {
        let (row, fee) = row.split_once('|').unwrap_or((row, "0"));
        text += &format!("{},{fee}\n", row.replace("TIME", &time));
    }
    lab.file(&format!("{day}.csv"), &text)
}

fn day(lab: &Lab, day: i64, rows: &[&str]) -> Settled {
    let file = statement(lab, day, rows);
    let date = format!("2026-08-{day:02}");
    lab.run("bank", &file, (&date, &date), start() + (day + 1) * DAY)
}

/// Looks again at the first days with the statement of a later one, long after every grace.
fn again(lab: &Lab, day: i64) -> Settled {
    let file = statement(lab, day, &[]);
    lab.again("bank", &file, ("2026-08-01", &format!("2026-08-{day:02}")), start() + (day + 9) * DAY)
}

const OPEN: &str = "SELECT count(*) FROM postonce_discrepancies WHERE state <> 'RESOLVED'";
const LATE: &str =
    "SELECT count(*) FROM postonce_discrepancies WHERE class = 'MISSING_OURS' AND resolution = 'AUTO_LATE_MATCH'";
/// Entries that have a line of another entry too, or lines that have two.
const SHARED: &str = "SELECT count(*) - count(DISTINCT line) FROM postonce_settled";

#[test]
fn a_movement_that_comes_late_meets_the_line_of_an_earlier_report_whatever_leads_there() {
    let lab = lab();
    tell(&lab, &[told("payment", "p-disputed", 900, start() + HOUR)]);
    let rows = [
        "a1,payment,late-1,,500,EUR,TIME,done,",
        "a2,payment,ch-2,,600,EUR,TIME,done,", // the payment's other name
        "a3,payment,,order-33,700,EUR,TIME,done,",
        "a4,dispute,,,-900,EUR,TIME,done,p-disputed",
        "a5,payment,p-disputed,,900,EUR,TIME,done,",
        "a6,payment,late-6,,800,EUR,TIME,done,", // comes with another amount
    ];
    let first = day(&lab, 1, &rows);
    assert_eq!((first.state, first.found), ("COMPLETED", 5), "{first:?} {:?}", lab.items(first.run));
    assert_eq!(lab.number(OPEN), 5);

    let at = start() + HOUR;
    tell(
        &lab,
        &[
            told("payment", "late-1", 500, at),
            Told { aliases: vec!["ch-2".into()], ..told("payment", "pi-2", 600, at) },
            Told { parent: Some("p-disputed".into()), ..told("dispute_opened", "dp-4", 900, at) },
            told("payment", "late-6", 801, at),
        ],
    );
    let order = format!(
        r#"{{"id":"e3","type":"payment","reference":"pi-3","amount":700,"currency":"EUR","order":"33","at":"{}"}}"#,
        postonce::clock::rfc3339(at)
    );
    lab.post("bank", "content-type: application/json", Origin::Webhook, [order.into_bytes()].into_iter());

    let look = again(&lab, 5);
    assert_eq!(look.state, "COMPLETED", "{look:?}");
    assert_eq!(lab.items(look.run), BTreeSet::from(["amount_differs payment late-6".into()]), "{look:?}");
    assert_eq!((lab.number(LATE), lab.number(OPEN)), (5, 1), "each closed itself; what differs is for a person");
    let settled = "SELECT count(*) FROM postonce_settled s JOIN postonce_journal j ON j.id = s.entry WHERE j.ref IN ('late-1', 'pi-2', 'pi-3', 'dp-4')";
    assert_eq!((lab.number(settled), lab.number(SHARED)), (4, 0), "for good, and each a line of its own");

    // the next look finds nothing new, and what met stays met
    let next = again(&lab, 6);
    assert_eq!(lab.items(next.run), BTreeSet::from(["amount_differs payment late-6".into()]), "{next:?}");
    assert_eq!((next.opened, lab.number(OPEN), lab.number(SHARED)), (0, 1, 0));
    lab.check();
}

#[test]
fn lines_that_nobody_was_told_of_and_lines_that_a_person_ended_are_met_too() {
    let lab = lab();
    // kept and never compared; not yet succeeded; ended by a person
    let kept = statement(&lab, 1, &["k1,payment,ch-k,,500,EUR,TIME,done,", "k2,payment,k-own,,510,EUR,TIME,done,|30"]);
    lab.keep("bank", &kept, ("2026-08-01", "2026-08-01"), start() + 2 * DAY);
    let rows = ["b1,payment,ch-p,,600,EUR,TIME,pending,", "b2,payment,ch-e,,700,EUR,TIME,done,"];
    let second = day(&lab, 2, &rows);
    assert_eq!((second.state, second.opened), ("COMPLETED", 1), "{second:?}");
    let shared = lab.engine.shared();
    let id = lab.number("SELECT id FROM postonce_discrepancies WHERE state = 'OPEN'");
    let end = move |tx: &postonce::store::Tx| {
        postonce::store::settlement::discrepancies::resolve(tx, id, "ACCEPTED", "ada", "it is ours, and small")
    };
    shared.store.write(end).unwrap();

    let also = |name: &str, of: Told| Told { aliases: vec![name.into()], ..of };
    let (one, two) = (start() + HOUR, start() + DAY + HOUR);
    tell(
        &lab,
        &[
            also("ch-k", told("payment", "pi-k", 500, one)),
            told("payment", "k-own", 510, one),
            also("ch-p", told("payment", "pi-p", 600, two)),
            also("ch-e", told("payment", "pi-e", 700, two)),
            also("ch-n", told("payment", "pi-n", 900, two)), // in no report at all
        ],
    );
    let look = again(&lab, 5);
    assert_eq!(lab.items(look.run), BTreeSet::from(["missing_theirs payment pi-n".into()]), "{look:?}");
    // those of the first day's payments, which were only kept, are settled by it as well
    assert_eq!(lab.number("SELECT count(*) FROM postonce_settled"), 8 * 3 + 4);
    assert_eq!((lab.number(SHARED), lab.number(OPEN)), (0, 1));
    let fee = "SELECT sum(amount) FROM postonce_journal WHERE kind = 'fee' AND parent = 'k-own'";
    assert_eq!((look.posted, lab.number(fee)), (1, 30), "what the line says of a fee is posted: {look:?}");
    lab.check();
}

#[test]
fn a_line_of_an_earlier_report_has_one_entry_for_ever_and_a_row_that_comes_again_is_one_line() {
    let lab = lab();
    let dispute =
        |name: &str| Told { parent: Some("p1-0".into()), ..told("dispute_opened", name, 900, start() + HOUR) };
    // it meets by the payment it belongs to, and is called by another name
    tell(&lab, &[dispute("dp-1")]);
    let first = day(&lab, 1, &["a1,dispute,dl-1,,-900,EUR,TIME,done,p1-0"]);
    assert_eq!((first.found, first.buckets.get("matched")), (0, Some(&9)), "{first:?}");
    tell(&lab, &[dispute("dl-1")]);
    let look = again(&lab, 4);
    assert_eq!(lab.items(look.run), BTreeSet::from(["duplicate_ours dispute_opened dl-1".into()]), "{look:?}");

    // also where a later report has the row again: it stays the line of what it met first
    let file = statement(&lab, 3, &["a1,dispute,dl-1,,-900,EUR,TIME,done,p1-0"]);
    let look = lab.again("bank", &file, ("2026-08-01", "2026-08-03"), start() + 20 * DAY);
    let items = lab.items(look.run);
    assert!(items.contains("duplicate_ours dispute_opened dl-1"), "{items:?}");
    assert_eq!(
        lab.number(
            "SELECT count(*) FROM postonce_settled s JOIN postonce_journal j ON j.id = s.entry WHERE j.ref = 'dl-1'"
        ),
        0
    );

    // a row that misses its entry is told again by the next report; then two come that it could be
    let row = "c1,dispute,,,-70,EUR,TIME,done,p1-1";
    let fifth = day(&lab, 5, &[row]);
    assert_eq!(fifth.found, 1, "{fifth:?}");
    let late =
        |name: &str| Told { parent: Some("p1-1".into()), ..told("dispute_opened", name, 70, start() + 4 * DAY + HOUR) };
    tell(&lab, &[late("dp-a"), late("dp-b")]);
    let file = statement(&lab, 6, &[row]);
    let look = lab.again("bank", &file, ("2026-08-05", "2026-08-06"), start() + 20 * DAY);
    let wanted = ["missing_theirs dispute_opened dp-b"].map(String::from);
    let items = lab.items(look.run);
    assert!(wanted.iter().all(|w| items.contains(w)) && !items.iter().any(|i| i.contains("dp-a")), "{items:?}");
    assert_eq!(lab.number(SHARED), 0);
    let open = "SELECT count(*) FROM postonce_discrepancies WHERE class = 'MISSING_OURS' AND state <> 'RESOLVED'";
    assert_eq!(lab.number(open), 0, "the row has its entry now");
    lab.check();
}

#[test]
fn a_report_that_looked_like_another_accounts_settles_nothing_later() {
    let lab = lab();
    let names = |n: i64| format!("x{n},payment,x-{n},,{},EUR,TIME,done,", 500 + n);
    let rows: Vec<String> = (0..8).map(names).collect();
    let time = postonce::clock::rfc3339(start() + HOUR);
    let head = "row,kind,reference,order,amount,currency,time,status,part_of,fee\n".to_owned();
    let foreign = rows.iter().fold(head, |text, row| text + &row.replace("TIME", &time) + ",0\n");
    let foreign = lab.file("foreign.csv", &foreign);
    tell(&lab, &(0..8).map(|n| told("payment", &format!("p1-{n}"), 100 + n, start() + HOUR)).collect::<Vec<_>>());
    let first = lab.run("bank", &foreign, ("2026-08-01", "2026-08-01"), start() + 2 * DAY);
    assert_eq!(first.state, "INVALID", "{first:?}");
    day(&lab, 1, &[]);
    tell(&lab, &[told("payment", "x-3", 503, start() + HOUR)]);
    let look = again(&lab, 5);
    assert_eq!(lab.items(look.run), BTreeSet::from(["missing_theirs payment x-3".into()]), "{look:?}");
    lab.check();
}

#[test]
fn a_movement_that_comes_after_a_person_booked_its_line_is_for_a_person() {
    let lab = lab();
    let rows = ["a1,payment,booked-1,,500,EUR,TIME,done,", "a2,payment,ch-2,,600,EUR,TIME,done,"];
    let first = day(&lab, 1, &rows);
    assert_eq!(first.found, 2, "{first:?}");
    book_by_hand(&lab, &["booked-1", "ch-2"]);
    let at = start() + HOUR;
    let second = Told { aliases: vec!["ch-2".into()], ..told("payment", "pi-2", 600, at) };
    tell(&lab, &[told("payment", "booked-1", 500, at), second]);
    let look = again(&lab, 5);
    let twice = ["duplicate_ours payment booked-1", "duplicate_ours payment ch-2"].map(String::from);
    assert_eq!(lab.items(look.run), BTreeSet::from(twice), "the money may stand in the books twice: {look:?}");
    lab.check();
}

#[test]
fn where_a_later_report_repeats_a_line_that_a_person_booked_the_entry_that_came_is_for_a_person_too() {
    let lab = lab();
    let time = postonce::clock::rfc3339(start() + HOUR);
    let rows = ["a1,payment,booked-1,,500,EUR,TIME,done,", "a2,payment,ch-2,,600,EUR,TIME,done,"];
    let rows = rows.map(|row| row.replace("TIME", &time));
    let rows = rows.each_ref().map(String::as_str);
    day(&lab, 1, &rows);
    book_by_hand(&lab, &["booked-1", "ch-2"]);
    let second = Told { aliases: vec!["ch-2".into()], ..told("payment", "pi-2", 600, start() + HOUR) };
    tell(&lab, &[told("payment", "booked-1", 500, start() + HOUR), second]);
    for nth in 2..4 {
        let look = day(&lab, nth, &rows);
        let twice = ["duplicate_ours payment booked-1", "duplicate_ours payment pi-2"].map(String::from);
        let unlike = |item: &String| !item.starts_with("matched");
        let items: BTreeSet<String> = lab.items(look.run).into_iter().filter(unlike).collect();
        assert_eq!(items, BTreeSet::from(twice), "{look:?}");
        assert_eq!(lab.number(OPEN), 2, "one for each entry that came too late, however often its line is repeated");
    }
    lab.check();
}

/// A person says of these lines that an entry was booked for them.
fn book_by_hand(lab: &Lab, lines: &[&str]) {
    for line in lines {
        let id = lab.number(&format!("SELECT id FROM postonce_discrepancies WHERE reference = '{line}'"));
        let end = move |tx: &postonce::store::Tx| {
            let how = "POSTED_CORRECTION";
            postonce::store::settlement::discrepancies::resolve(tx, id, how, "ada", "booked by hand, credit 17")
        };
        lab.engine.shared().store.write(end).unwrap();
    }
}
