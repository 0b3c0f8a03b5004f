//! Feeds the comparison: the lines of a report and the entries of a window, both in the order of (kind, name), and what
//! lies beyond. Runs on one reading connection and its snapshot; writes nothing.

use super::reports::{self, StoredLine};
use crate::error::{Error, Result};
use crate::event::Millis;
use crate::money::{Currency, Money};
use crate::settlement::matching::{Around, MatchError, Ours, Scored, Theirs, compare};
use crate::store::claims;
use rusqlite::{Connection, OptionalExtension as _, Row, params};
use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// What is compared.
pub struct Scope<'a> {
    /// Whose ledger.
    pub book: i64,
    /// The report.
    pub report: i64,
    /// `[start, end)`: entries of that time are expected in it.
    pub window: (Millis, Millis),
    /// Score everything else that is open too.
    pub open_too: bool,
    /// Every entry before it is settled.
    pub open_from: i64,
    /// The last entry that is looked at.
    pub journal_upto: i64,
    /// Kinds that are expected in the report.
    pub covers: &'a dyn Fn(&str) -> bool,
    /// Kinds that no webhook announces.
    pub provider_only: &'a dyn Fn(&str) -> bool,
    /// Another integration's money, by rule.
    pub not_ours: &'a dyn Fn(&StoredLine) -> bool,
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

/// Names that come again and again are shared.
struct Words(RefCell<Vec<Arc<str>>>);

impl Words {
    fn get(&self, text: &str) -> Arc<str> {
        let mut known = self.0.borrow_mut();
        if let Some(word) = known.iter().rev().find(|w| ***w == *text) {
            return word.clone();
        }
        let word: Arc<str> = text.into();
        known.push(word.clone());
        word
    }
}

/// What of a book's claims changes the amounts of entries; looked at only where there is any.
struct Extras {
    corrections: bool,
    fees: bool,
}

const ENTRY: &str =
    "SELECT j.id, j.kind, j.ref, j.parent, j.amount, j.currency, j.occurred_at, s.line, s.entry IS NOT NULL
  FROM postonce_journal j LEFT JOIN postonce_settled s ON s.entry = j.id";

/// No line, but settled all the same: a person accepted it.
const ACCEPTED: i64 = -1;

/// What the feed saw on its way: fees, so that those that were not known can be posted, and lines that name two entries.
#[derive(Default)]
pub struct Seen {
    /// The line by the second entry that it names.
    pub also: HashMap<i64, i64>,
    /// Lines that tell a fee, in order.
    pub fee_lines: Vec<i64>,
    /// Entries whose fee is posted.
    pub fee_known: HashSet<i64>,
}

struct Feed<'a> {
    conn: &'a Connection,
    scope: &'a Scope<'a>,
    words: Words,
    extras: Extras,
    seen: RefCell<Seen>,
}

impl Feed<'_> {
    fn entry(&self, r: &Row) -> Result<Option<Ours>> {
        let (id, occurred_at): (i64, Millis) = (r.get(0)?, r.get(6)?);
        let (kind, name) = (r.get_ref(1)?.as_str().map_err(rusqlite::Error::from)?, r.get::<_, String>(2)?);
        if !(self.scope.covers)(kind) {
            return Ok(None);
        }
        let mut amount: i64 = r.get(4)?;
        if name.contains('@')
            && let Some(claims::Says::Mark(total)) =
                claims::find(self.conn, self.scope.book, kind, &name)?.and_then(|c| c.says)
        {
            amount = total; // the line tells the total so far, the entry what that total brought
        }
        if self.extras.corrections
            && let Some(row) = claims::find(self.conn, self.scope.book, "correction", &format!("{kind}:{name}"))?
            && row.done
            && let Some(claims::Says::Money { amount: corrected, .. }) = row.says
        {
            amount = corrected;
        }
        let currency = r.get::<_, String>(5)?;
        let currency = Currency::parse(&currency)
            .ok_or_else(|| Error::Apply(format!("entry {id} has an unknown currency {currency}")))?;
        let fee = if self.extras.fees { fee_of(self.conn, self.scope.book, kind, &name)? } else { None };
        if fee.is_some() {
            self.seen.borrow_mut().fee_known.insert(id);
        }
        let settled: bool = r.get(8)?;
        let (from, to) = self.scope.window;
        let in_window = occurred_at >= from && occurred_at < to && id <= self.scope.journal_upto;
        Ok(Some(Ours {
            item: id,
            kind: self.words.get(kind),
            name,
            aliases: Vec::new(),
            parent: r.get(3)?,
            order: None,
            amount,
            currency,
            fee,
            occurred_at,
            settled_by: settled.then_some(r.get::<_, Option<i64>>(7)?.unwrap_or(ACCEPTED)),
            in_window: in_window || (self.scope.open_too && !settled && occurred_at < to),
        }))
    }

    fn by_name(&self, kind: &str, name: &str) -> Result<Option<Ours>> {
        let Some(journal) = claims::find(self.conn, self.scope.book, kind, name)?.and_then(|c| c.journal) else {
            return Ok(None);
        };
        let mut statement =
            self.conn.prepare_cached(&format!("{ENTRY} WHERE j.id = ?1 AND j.settles = 1 AND j.book = ?2"))?;
        let mut rows = statement.query([journal, self.scope.book])?;
        match rows.next()? {
            Some(row) => self.entry(row),
            None => Ok(None),
        }
    }

    fn line(&self, line: StoredLine, settled_with: Option<i64>, in_window: bool) -> Theirs {
        let other = [&line.ref_alt, &line.reference].into_iter().flatten().find(|n| **n != line.name).cloned();
        // a dispute's or a returned debit's row names the payment where it has no reference of its own
        let by_parent = matches!(&*line.kind, "dispute_opened" | "dispute_won" | "payment_reversed");
        Theirs {
            item: line.id,
            kind: self.words.get(&line.kind),
            provider_only: (self.scope.provider_only)(&line.kind),
            not_ours: (self.scope.not_ours)(&line),
            name: line.name,
            other,
            by_parent: by_parent && line.parent.is_some(),
            parent: line.parent,
            order: line.order,
            gross: if line.gross == 0 { line.net } else { line.gross }, // a row that is nothing but a fee
            fee: if line.gross == 0 { 0 } else { line.fee },
            currency: line.currency,
            shown: line.shown,
            settled_only: self.scope.settled_only,
            pending: line.pending,
            parked: false,
            settled_with,
            in_window,
        }
    }

    /// The entry that this very line settled, found by its name, or by the line where they did not meet by name.
    fn settled_with(&self, line: &StoredLine) -> Result<Option<i64>> {
        if let Some(claim) = claims::find(self.conn, self.scope.book, &line.kind, &line.name)?
            && let Some(entry) = claim.journal
        {
            return Ok(self
                .conn
                .prepare_cached("SELECT entry FROM postonce_settled WHERE entry = ?1 AND line_ref = ?2")?
                .query_row(params![entry, line.line_ref], |r| r.get(0))
                .optional()?);
        }
        Ok(self
            .conn
            .prepare_cached(
                "SELECT entry FROM postonce_settled WHERE book = ?1 AND line_ref = ?2 AND rule IS NOT NULL",
            )?
            .query_row(params![self.scope.book, line.line_ref], |r| r.get(0))
            .optional()?)
    }
}

/// Compares a report with the ledger; every item of the scope goes to `emit` once.
pub fn score(conn: &Connection, scope: &Scope, emit: &mut dyn FnMut(Scored) -> Result<()>) -> Result<Seen> {
    let any = |kind: &str| -> Result<bool> {
        Ok(conn
            .prepare_cached("SELECT EXISTS (SELECT 1 FROM postonce_claims WHERE book = ?1 AND kind = ?2)")?
            .query_row(params![scope.book, kind], |r| r.get(0))?)
    };
    let extras = Extras { corrections: any("correction")?, fees: any("fee")? };
    let feed = Feed { conn, scope, words: Words(RefCell::default()), extras, seen: RefCell::default() };
    let mut lines = reports::sorted_statement(conn)?;
    let theirs = reports::sorted(&mut lines, scope.report)?.map(|line| {
        let line = line?;
        let with = feed.settled_with(&line)?;
        if line.fee != 0 && line.gross != 0 {
            feed.seen.borrow_mut().fee_lines.push(line.id);
        }
        if let Some(second) = line.also {
            feed.seen.borrow_mut().also.insert(second, line.id);
        }
        Ok(feed.line(line, with, true))
    });
    let mut entries = conn.prepare(&format!(
        "{ENTRY} WHERE j.book = ?1 AND j.settles = 1 AND j.occurred_at >= ?2 AND j.occurred_at < ?3 AND j.id <= ?4
         UNION ALL {ENTRY} WHERE ?5 AND j.id >= ?6 AND j.id <= ?4 AND j.book = ?1 AND j.settles = 1 AND j.occurred_at < ?2 AND s.entry IS NULL
         ORDER BY 2, 3"
    ))?;
    let (from, to) = scope.window;
    let mut rows = entries.query(params![scope.book, from, to, scope.journal_upto, scope.open_too, scope.open_from])?;
    let ours = std::iter::from_fn(|| {
        loop {
            match rows.next() {
                Ok(None) => return None,
                Err(e) => return Some(Err(Error::from(e))),
                Ok(Some(row)) => match feed.entry(row) {
                    Ok(None) => {}
                    Ok(Some(entry)) => return Some(Ok(entry)),
                    Err(e) => return Some(Err(e)),
                },
            }
        }
    });
    let since = from - 120 * 86_400_000;
    let around = Around {
        ours: &mut |kind, name| feed.by_name(kind, name),
        theirs: &mut |kind, name| {
            let Some(line) = reports::find(conn, scope.book, scope.report, kind, name, since)? else { return Ok(None) };
            let with = feed.settled_with(&line)?;
            Ok(Some(feed.line(line, with, false)))
        },
        in_grace: &|entry| entry.occurred_at + (scope.grace)(&entry.kind) > scope.now,
        emit,
    };
    compare(theirs, ours, around).map_err(|e| match e {
        MatchError::Feed(e) => e,
        unsorted => Error::Apply(unsorted.to_string()),
    })?;
    let mut seen = feed.seen.into_inner();
    seen.fee_lines.sort_unstable();
    Ok(seen)
}

/// How many entries the window expects: what a run of any size must have scored.
pub fn expected(conn: &Connection, scope: &Scope) -> Result<i64> {
    let mut statement = conn.prepare_cached(
        "SELECT kind, count(*) FROM postonce_journal
         WHERE book = ?1 AND settles = 1 AND occurred_at >= ?2 AND occurred_at < ?3 AND id <= ?4 GROUP BY kind",
    )?;
    let (from, to) = scope.window;
    let rows = statement.query_map(params![scope.book, from, to, scope.journal_upto], |r| {
        Ok((r.get::<_, String>(0)?, r.get::<_, i64>(1)?))
    })?;
    let mut expected = 0;
    for row in rows {
        let (kind, count) = row?;
        expected += if (scope.covers)(&kind) { count } else { 0 };
    }
    Ok(expected)
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
