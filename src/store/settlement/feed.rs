//! Feeds the comparison: the lines of a report and the entries of a window, both in the order of (kind, name), and what
//! lies beyond. Entries are read with their fees and corrections in a few ordered queries, not one look-up each; writes
//! nothing to the database.

use super::packed::{self, Line};
use super::reports::{self, Sought, StoredLine};
use super::scratch::aside;
use super::walk::{self, By};
use crate::error::{Error, Result};
use crate::event::Millis;
use crate::money::{Currency, Money};
use crate::settlement::matching::{Around, MatchError, Ours, Scored, Theirs, compare};
use crate::settlement::sorter::{Merged, Record, Sorter};
use crate::store::{Book, beside, claims};
use rusqlite::{Connection, OptionalExtension as _, Row, params};
use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher as _, RandomState};
use std::path::Path;
use std::sync::Arc;

/// Which entries are compared.
pub struct Wanted<'a> {
    /// Whose ledger.
    pub book: i64,
    /// `[start, end)`: entries of that time are expected in the report.
    pub window: (Millis, Millis),
    /// Score everything else that is open too.
    pub open_too: bool,
    /// Every entry before it is settled.
    pub open_from: i64,
    /// The last entry that is looked at.
    pub journal_upto: i64,
    /// Kinds that are expected in the report.
    pub covers: &'a (dyn Fn(&str) -> bool + Sync),
}

impl Wanted<'_> {
    fn inside(&self, id: i64, occurred_at: Millis) -> bool {
        occurred_at >= self.window.0 && occurred_at < self.window.1 && id <= self.journal_upto
    }
}

/// How they are compared.
pub struct Scope<'a> {
    /// The entries.
    pub of: Wanted<'a>,
    /// Kinds that no webhook announces.
    pub provider_only: &'a dyn Fn(&str) -> bool,
    /// Another integration's money, by rule.
    pub not_ours: &'a dyn Fn([Option<&str>; 4]) -> bool,
    /// Entries of that kind are young until so long after.
    pub grace: &'a dyn Fn(&str) -> Millis,
    /// The wall clock.
    pub now: Millis,
    /// The report never says what the customer was shown.
    pub settled_only: bool,
}

/// The last entry of the journal.
pub fn newest_entry(conn: &Connection) -> Result<i64> {
    Ok(conn.query_row("SELECT ifnull(max(id), 0) FROM postonce_journal", [], |r| r.get(0))?)
}

/// The first entry of a book, from `from` on, that expects settlement and has none; beyond the newest where all have.
pub fn first_open(conn: &Connection, book: i64, from: i64, upto: i64) -> Result<i64> {
    Ok(conn
        .prepare_cached(
            "SELECT j.id FROM postonce_journal j WHERE j.id >= ?2 AND j.id <= ?3 AND j.book = ?1 AND j.settles = 1
               AND NOT EXISTS (SELECT 1 FROM postonce_settled s WHERE s.entry = j.id) ORDER BY j.id LIMIT 1",
        )?
        .query_row([book, from, upto], |r| r.get(0))
        .optional()?
        .unwrap_or(upto + 1))
}

/// Kinds come again and again: each is one text, with what is known of it.
#[derive(Default)]
struct Words(RefCell<Vec<(Arc<str>, bool)>>);

impl Words {
    fn get(&self, text: &str, of: impl FnOnce() -> bool) -> (Arc<str>, bool) {
        let mut known = self.0.borrow_mut();
        if let Some(word) = known.iter().rev().find(|(word, _)| **word == *text) {
            return word.clone();
        }
        known.push((text.into(), of()));
        known[known.len() - 1].clone()
    }
}

const ENTRY: &str = "SELECT j.id, j.kind, j.ref, j.parent, j.amount, j.currency, j.occurred_at, s.entry IS NOT NULL, s.line,
    ifnull(s.line_ref, l.line_ref)
  FROM postonce_journal j LEFT JOIN postonce_settled s ON s.entry = j.id LEFT JOIN postonce_report_lines l ON l.id = s.line";

/// No line, but settled all the same: a person accepted it.
const ACCEPTED: i64 = -1;
/// Entries whose claims are looked up together.
const TOGETHER: usize = 20_000;
/// A line of a report that ended so long before a movement is none of it.
const LOOK_BACK: Millis = 120 * 86_400_000;

/// An entry as it is read, before its fee and its correction are known.
struct Read {
    id: i64,
    kind: String,
    name: String,
    parent: Option<String>,
    amount: i64,
    currency: Currency,
    occurred_at: Millis,
    settled_by: Option<i64>,
    settled_ref: Option<String>,
    fee: Option<Money>,
}

fn read(r: &Row, covers: &dyn Fn(&str) -> bool) -> Result<Option<Read>> {
    let id: i64 = r.get(0)?;
    let kind = r.get_ref(1)?.as_str().map_err(rusqlite::Error::from)?;
    if !covers(kind) {
        return Ok(None);
    }
    let currency = r.get_ref(5)?.as_str().map_err(rusqlite::Error::from)?;
    let currency = Currency::parse(currency)
        .ok_or_else(|| Error::Apply(format!("entry {id} has an unknown currency {currency}")))?;
    let settled: bool = r.get(7)?;
    Ok(Some(Read {
        id,
        kind: kind.to_owned(),
        name: r.get(2)?,
        parent: r.get(3)?,
        amount: r.get(4)?,
        currency,
        occurred_at: r.get(6)?,
        settled_by: settled.then_some(r.get::<_, Option<i64>>(8)?.unwrap_or(ACCEPTED)),
        settled_ref: r.get(9)?,
        fee: None,
    }))
}

/// What of a book's claims changes the amounts of entries; looked at only where there is any.
#[derive(Clone, Copy)]
struct Extras {
    corrections: bool,
    fees: bool,
}

impl Extras {
    fn of(conn: &Connection, book: i64) -> Result<Extras> {
        let any = |kind: &str| -> Result<bool> {
            Ok(conn
                .prepare_cached("SELECT EXISTS (SELECT 1 FROM postonce_claims WHERE book = ?1 AND kind = ?2)")?
                .query_row(params![book, kind], |r| r.get(0))?)
        };
        Ok(Extras { corrections: any("correction")?, fees: any("fee")? })
    }

    /// Adds what claims say of some entries: totals, corrections, fees.
    fn add(self, conn: &Connection, book: i64, entries: &mut [Read]) -> Result<()> {
        for entry in entries.iter_mut().filter(|e| e.name.contains('@')) {
            if let Some(claims::Says::Mark(total)) =
                claims::find(conn, book, &entry.kind, &entry.name)?.and_then(|c| c.says)
            {
                entry.amount = total; // the line tells the total so far, the entry what that total brought
            }
        }
        let keys = |end: &str| -> Vec<(String, usize)> {
            let key = |(at, e): (usize, &Read)| (format!("{}:{}{end}", e.kind, e.name), at);
            let mut keys: Vec<_> = entries.iter().enumerate().map(key).collect();
            keys.sort_unstable();
            keys
        };
        let (corrections, fees) =
            (if self.corrections { keys("") } else { Vec::new() }, if self.fees { keys("@") } else { Vec::new() });
        let money = |row: &Row| -> Result<Option<Money>> {
            let done = row.get_ref(3)?.as_str().map_err(rusqlite::Error::from)? == "DONE";
            let currency = row.get::<_, Option<String>>(5)?;
            let (amount, currency) = (row.get::<_, Option<i64>>(4)?, currency.as_deref().and_then(Currency::parse));
            let money = amount.zip(currency).map(|(minor, currency)| Money { minor, currency });
            Ok(money.filter(|_| done))
        };
        let texts: Vec<&str> = corrections.iter().map(|(key, _)| key.as_str()).collect();
        walk::claims(conn, (book, "correction"), By::Reference, &texts, &mut |at, row| {
            if let Some(corrected) = money(row)? {
                entries[corrections[at].1].amount = corrected.minor;
            }
            Ok(())
        })?;
        let texts: Vec<&str> = fees.iter().map(|(key, _)| key.as_str()).collect();
        walk::claims(conn, (book, "fee"), By::Beginning, &texts, &mut |at, row| {
            if let Some(part) = money(row)? {
                let fee = entries[fees[at].1].fee.get_or_insert(Money { minor: 0, ..part });
                fee.minor = fee.minor.saturating_add(part.minor);
            }
            Ok(())
        })
    }
}

/// Entries that expect settlement, in the order of (kind, name).
pub struct Entries {
    merged: Merged,
    /// So many are of the window: what a run of any size must have scored.
    pub expected: u64,
    /// All of them, with what else is open.
    pub count: u64,
}

/// Reads entries into a place of their own beside the database at `path`, so that no snapshot of it has to stay while
/// they are compared.
pub fn entries(conn: &Connection, of: &Wanted, path: &Path) -> Result<Entries> {
    let extras = Extras::of(conn, of.book)?;
    let mut sorter = Sorter::new(&beside(path, "-postonce-entries.tmp")).map_err(|e| aside(&e))?;
    let mut together: Vec<Read> = Vec::new();
    let (from, to) = of.window;
    let of_window = format!(
        "{ENTRY} WHERE j.book = ?1 AND j.settles = 1 AND j.occurred_at >= ?2 AND j.occurred_at < ?3 AND j.id <= ?4"
    );
    let mut statement = conn.prepare(&of_window)?;
    let mut rows = statement.query(params![of.book, from, to, of.journal_upto])?;
    while let Some(row) = rows.next()? {
        together.extend(read(row, of.covers)?);
        if together.len() >= TOGETHER {
            sort_in(conn, of.book, extras, &mut together, &mut sorter)?;
        }
    }
    let expected = sorter.len() + together.len() as u64;
    if of.open_too {
        let open = format!(
            "{ENTRY} WHERE j.id >= ?3 AND j.id <= ?4 AND j.book = ?1 AND j.settles = 1 AND j.occurred_at < ?2 AND s.entry IS NULL"
        );
        let mut statement = conn.prepare(&open)?;
        let mut rows = statement.query(params![of.book, from, of.open_from, of.journal_upto])?;
        while let Some(row) = rows.next()? {
            together.extend(read(row, of.covers)?);
            if together.len() >= TOGETHER {
                sort_in(conn, of.book, extras, &mut together, &mut sorter)?;
            }
        }
    }
    sort_in(conn, of.book, extras, &mut together, &mut sorter)?;
    let count = sorter.len();
    Ok(Entries { merged: Sorter::merged(vec![sorter]).map_err(|e| aside(&e))?, expected, count })
}

/// Completes some entries by their claims and hands them to the sorter.
fn sort_in(conn: &Connection, book: i64, extras: Extras, entries: &mut Vec<Read>, sorter: &mut Sorter) -> Result<()> {
    extras.add(conn, book, entries)?;
    let mut payload = Vec::new();
    for entry in entries.drain(..) {
        packable(&entry).payload(&mut payload);
        let (kind, name, tail) = (entry.kind.as_bytes(), entry.name.as_bytes(), entry.id.to_be_bytes());
        sorter.add(Record { kind, name, tail: &tail, payload: &payload }).map_err(|e| aside(&e))?;
    }
    Ok(())
}

fn packable(entry: &Read) -> packed::Entry<'_> {
    packed::Entry {
        parent: entry.parent.as_deref(),
        amount: entry.amount,
        currency: entry.currency,
        occurred_at: entry.occurred_at,
        settled_by: entry.settled_by,
        settled_ref: entry.settled_ref.as_deref(),
        fee: entry.fee,
    }
}

/// What turns lines and entries into what is compared.
pub struct Feed<'a> {
    conn: &'a Connection,
    scope: &'a Scope<'a>,
    kinds: Words,
    extras: Extras,
    /// The rows that met their entry otherwise than by name, as hashes: every line is asked about, and hardly any is one.
    others: HashSet<u64>,
    hashes: RandomState,
    /// The book of the tenant's operations, if it has any.
    operations: Option<i64>,
    /// Lines of earlier reports that still lack an entry, by their row. A report that has the row again speaks for
    /// itself: it is taken out as it comes by.
    open: RefCell<HashMap<String, StoredLine>>,
    /// Rows that a person has booked by hand.
    booked: HashSet<String>,
}

impl<'a> Feed<'a> {
    /// For lookups beyond both streams, `conn` is asked.
    pub fn new(conn: &'a Connection, scope: &'a Scope<'a>) -> Result<Feed<'a>> {
        let (hashes, mut others) = (RandomState::new(), HashSet::new());
        let mut rows =
            conn.prepare_cached("SELECT line_ref FROM postonce_settled WHERE book = ?1 AND rule IS NOT NULL")?;
        let mut rows = rows.query([scope.of.book])?;
        while let Some(row) = rows.next()? {
            others.insert(hashes.hash_one(row.get_ref(0)?.as_str().map_err(rusqlite::Error::from)?));
        }
        let operations = match super::book(conn, scope.of.book)? {
            Some(book) => super::book_id(conn, &Book::of_operations(&book))?,
            None => None,
        };
        let extras = Extras::of(conn, scope.of.book)?;
        let open = reports::open(conn, scope.of.book)?.into_iter().map(|line| (line.line_ref.clone(), line));
        let open = RefCell::new(open.collect());
        let booked = reports::booked_by_hand(conn, scope.of.book)?;
        Ok(Feed { conn, scope, kinds: Words::default(), extras, others, hashes, operations, open, booked })
    }

    fn ours(&self, record: &Record) -> Option<Ours> {
        let text = |bytes| std::str::from_utf8(bytes).ok();
        let entry = packed::Entry::of(record)?;
        Some(Ours {
            item: i64::from_be_bytes(record.tail.try_into().ok()?),
            kind: self.kinds.get(text(record.kind)?, || false).0,
            name: text(record.name)?.to_owned(),
            aliases: Vec::new(),
            parent: entry.parent.map(str::to_owned),
            amount: entry.amount,
            currency: entry.currency,
            fee: entry.fee,
            occurred_at: entry.occurred_at,
            settled_by: entry.settled_by,
            settled_ref: entry.settled_ref.map(str::to_owned),
            in_window: true,
        })
    }

    /// An entry of any time by its number.
    fn entry(&self, journal: i64) -> Result<Option<Ours>> {
        let sql = format!("{ENTRY} WHERE j.id = ?1 AND j.settles = 1 AND j.book = ?2");
        let mut statement = self.conn.prepare_cached(&sql)?;
        let mut rows = statement.query([journal, self.scope.of.book])?;
        let Some(row) = rows.next()? else { return Ok(None) };
        let Some(entry) = read(row, self.scope.of.covers)? else { return Ok(None) };
        let mut one = [entry];
        self.extras.add(self.conn, self.scope.of.book, &mut one)?;
        let [entry] = one;
        let of = &self.scope.of;
        let inside = of.inside(entry.id, entry.occurred_at);
        let open = of.open_too && entry.settled_by.is_none() && entry.occurred_at < of.window.1;
        Ok(Some(Ours {
            item: entry.id,
            kind: self.kinds.get(&entry.kind, || false).0,
            name: entry.name,
            aliases: Vec::new(),
            parent: entry.parent,
            amount: entry.amount,
            currency: entry.currency,
            fee: entry.fee,
            occurred_at: entry.occurred_at,
            settled_by: entry.settled_by,
            settled_ref: entry.settled_ref,
            in_window: inside || open,
        }))
    }

    fn by_name(&self, kind: &str, name: &str) -> Result<Option<Ours>> {
        match claims::find(self.conn, self.scope.of.book, kind, name)?.and_then(|c| c.journal) {
            Some(journal) => self.entry(journal),
            None => Ok(None),
        }
    }

    /// The entry that this very line settled, where they did not meet by name.
    fn met(&self, line_ref: &str) -> Result<Option<Ours>> {
        if self.others.is_empty() || !self.others.contains(&self.hashes.hash_one(line_ref)) {
            return Ok(None);
        }
        let entry: Option<i64> = self
            .conn
            .prepare_cached(
                "SELECT entry FROM postonce_settled WHERE book = ?1 AND line_ref = ?2 AND rule IS NOT NULL",
            )?
            .query_row(params![self.scope.of.book, line_ref], |r| r.get(0))
            .optional()?;
        entry.map_or(Ok(None), |entry| self.entry(entry))
    }

    /// The entry of an operation of that key: a merchant's order, where a rule names it.
    fn of_order(&self, order: &str) -> Result<Option<Ours>> {
        let Some(operations) = self.operations else { return Ok(None) };
        match claims::find(self.conn, operations, claims::OPERATION, order)?.and_then(|c| c.journal) {
            Some(journal) => self.entry(journal),
            None => Ok(None),
        }
    }

    /// A line of the report that is scored, or (not `in_window`) of another one.
    pub fn line(&self, id: i64, line: &Line, in_window: bool) -> Theirs {
        if in_window && !self.open.borrow().is_empty() {
            self.open.borrow_mut().remove(line.line_ref);
        }
        let (kind, provider_only) = self.kinds.get(line.kind, || (self.scope.provider_only)(line.kind));
        let other = [line.ref_alt, line.reference].into_iter().flatten().find(|n| *n != line.name);
        // a dispute's or a returned debit's row names the payment where it has no reference of its own
        let by_parent = matches!(line.kind, "dispute_opened" | "dispute_won" | "payment_reversed");
        Theirs {
            item: id,
            kind,
            provider_only,
            not_ours: (self.scope.not_ours)([line.reference, line.ref_alt, line.order, line.parent]),
            name: line.name.to_owned(),
            other: other.map(str::to_owned),
            by_parent: by_parent && line.parent.is_some(),
            parent: line.parent.map(str::to_owned),
            order: line.order.map(str::to_owned),
            gross: if line.gross == 0 { line.net } else { line.gross }, // a row that is nothing but a fee
            fee: if line.gross == 0 { 0 } else { line.fee },
            currency: line.currency,
            shown: line.shown,
            settled_only: self.scope.settled_only,
            pending: line.pending,
            booked: !self.booked.is_empty() && self.booked.contains(line.line_ref),
            line_ref: line.line_ref.to_owned(),
            in_window,
        }
    }
}

impl Feed<'_> {
    fn earlier(&self, line: &StoredLine) -> Theirs {
        self.line(line.id, &line.as_line(), false)
    }

    /// Lines of earlier reports that still lack an entry.
    fn open(&self) -> Vec<Theirs> {
        let open = std::mem::take(&mut *self.open.borrow_mut());
        let mut lines: Vec<Theirs> = open.values().map(|line| self.earlier(line)).collect();
        lines.sort_unstable_by_key(|line| line.item);
        lines
    }

    /// For each entry the newest line of another report under its name, or else under another name of it.
    fn by_names(&self, report: i64, entries: &[&Ours]) -> Result<Vec<Option<Theirs>>> {
        let book = self.scope.of.book;
        let since = |entry: &Ours| entry.occurred_at.min(self.scope.of.window.0) - LOOK_BACK;
        let mut found: Vec<Option<Theirs>> = entries.iter().map(|_| None).collect();
        type Names<'n> = Vec<(&'n str, &'n str, usize)>;
        let look = |mut names: Names, found: &mut [Option<Theirs>]| -> Result<()> {
            names.sort_unstable();
            let sought: Vec<Sought> =
                names.iter().map(|(kind, name, at)| Sought { kind, name, since: since(entries[*at]) }).collect();
            for ((.., at), line) in names.iter().zip(reports::find_all(self.conn, book, report, &sought)?) {
                if let Some(line) = line
                    && found[*at].is_none()
                {
                    found[*at] = Some(self.earlier(&line));
                }
            }
            Ok(())
        };
        look(entries.iter().enumerate().map(|(at, e)| (&*e.kind, e.name.as_str(), at)).collect(), &mut found)?;
        let left: HashMap<(&str, &str), usize> = (entries.iter().enumerate())
            .filter(|(at, e)| found[*at].is_none() && e.settled_by.is_none())
            .map(|(at, e)| ((&*e.kind, e.name.as_str()), at))
            .collect();
        let Some(since) = left.values().map(|at| since(entries[*at])).min() else { return Ok(found) };
        if !reports::any_untold(self.conn, book, report, since)? {
            return Ok(found);
        }
        // a line had the name that it gives itself when nobody knew the movement
        let kinds: HashSet<&str> = left.keys().map(|(kind, _)| *kind).collect();
        let mut others: Vec<(&str, String, usize)> = Vec::new();
        for kind in kinds {
            claims::aliases(self.conn, book, kind, &mut |alias, movement| {
                if let Some(at) = left.get(&(kind, movement)) {
                    others.push((kind, alias.to_owned(), *at));
                }
            })?;
        }
        look(others.iter().map(|(kind, name, at)| (*kind, name.as_str(), *at)).collect(), &mut found)?;
        Ok(found)
    }
}

/// Compares lines, in the order of (kind, name), with entries; every item of the scope goes to `emit` once. An error,
/// where not every entry of the window came by.
pub fn score(
    feed: &Feed,
    lines: impl Iterator<Item = Result<Theirs>>,
    mut entries: Entries,
    (report, emit): (i64, &mut dyn FnMut(Scored) -> Result<()>),
) -> Result<()> {
    let (conn, scope) = (feed.conn, feed.scope);
    let (mut seen, expected) = (0, entries.expected);
    let ours = std::iter::from_fn(|| match entries.merged.next_record() {
        Ok(None) => None,
        Ok(Some(record)) => {
            let entry = feed.ours(&record).ok_or_else(|| Error::Apply("an entry came back cut".into()));
            seen += entry.iter().filter(|e| scope.of.inside(e.item, e.occurred_at)).count() as u64;
            Some(entry)
        }
        Err(e) => Some(Err(aside(&e))),
    });
    let around = Around {
        ours: &mut |kind, name| feed.by_name(kind, name),
        met: &mut |line_ref| feed.met(line_ref),
        of_order: &mut |order| feed.of_order(order),
        open: &mut || Ok(feed.open()),
        line: &mut |line| Ok(reports::line(conn, line)?.map(|line| feed.earlier(&line))),
        theirs: &mut |entries| feed.by_names(report, entries),
        in_grace: &|entry| entry.occurred_at + (scope.grace)(&entry.kind) > scope.now,
        emit,
    };
    compare(lines, ours, around).map_err(|e| match e {
        MatchError::Feed(e) => e,
        unsorted => Error::Apply(unsorted.to_string()),
    })?;
    if seen != expected {
        return Err(Error::Apply(format!(
            "{expected} entries of the window are expected in the report, {seen} came by"
        )));
    }
    Ok(())
}

/// What an entry says, for a discrepancy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EntryFacts {
    /// The kind.
    pub kind: String,
    /// The reference.
    pub reference: String,
    /// The amount that it was compared with.
    pub amount: i64,
    /// Its currency.
    pub currency: String,
    /// When it happened.
    pub occurred_at: Millis,
    /// A line is expected for it.
    pub settles: bool,
}

/// An entry, with the amount after a correction.
pub fn entry_facts(conn: &Connection, book: i64, entry: i64) -> Result<Option<EntryFacts>> {
    let found = conn
        .prepare_cached("SELECT kind, ref, amount, currency, occurred_at, settles FROM postonce_journal WHERE id = ?1")?
        .query_row([entry], |r| {
            Ok(EntryFacts {
                kind: r.get(0)?,
                reference: r.get(1)?,
                amount: r.get(2)?,
                currency: r.get(3)?,
                occurred_at: r.get(4)?,
                settles: r.get(5)?,
            })
        })
        .optional()?;
    let Some(mut facts) = found else { return Ok(None) };
    let key = format!("{}:{}", facts.kind, facts.reference);
    if let Some(claims::Says::Money { amount, .. }) = claims::find(conn, book, "correction", &key)?.and_then(|c| c.says)
    {
        facts.amount = amount;
    }
    Ok(Some(facts))
}

/// Is a later total of the same running total settled? Then this one is part of what that line tells.
pub fn later_total(conn: &Connection, book: i64, entry: i64) -> Result<Option<i64>> {
    Ok(conn
        .prepare_cached(
            "SELECT max(s.line) FROM postonce_journal e JOIN postonce_journal j ON j.book = e.book AND j.parent = e.parent AND j.kind = e.kind AND j.id > e.id
               JOIN postonce_settled s ON s.entry = j.id AND s.line IS NOT NULL
             WHERE e.id = ?1 AND e.book = ?2 AND e.parent IS NOT NULL AND instr(e.ref, '@') > 0",
        )?
        .query_row([entry, book], |r| r.get(0))
        .optional()?
        .flatten())
}

/// The fee that is posted for a movement.
pub fn fee_of(conn: &Connection, book: i64, kind: &str, name: &str) -> Result<Option<Money>> {
    let below = format!("{kind}:{name}@");
    let (sum, currency): (Option<i64>, Option<String>) = conn
        .prepare_cached(
            "SELECT sum(amount), max(currency) FROM postonce_claims
             WHERE book = ?1 AND kind = 'fee' AND ref >= ?2 AND ref < ?2 || char(1114111) AND state = 'DONE'",
        )?
        .query_row(params![book, below], |r| Ok((r.get(0)?, r.get(1)?)))?;
    Ok(sum.zip(currency.as_deref().and_then(Currency::parse)).map(|(minor, currency)| Money { minor, currency }))
}
