//! The ledger as people read it: accounts with their balances now or at a time, entries found by key.
//!
//! Reads only. What has no key is looked for from the newest back within the time of a page, as in `search`.

use super::history;
use super::ledger::{self, EntryFilter, EntryLine};
use super::search::{Page, first_entry_at};
use super::sums::{Moment, Moved};
use crate::error::Result;
use crate::event::Millis;
use rusqlite::{Connection, OptionalExtension as _, Row, params};
use serde::Serialize;
use std::collections::{BTreeSet, HashMap};
use std::time::{Duration, Instant};

/// How long a search without a key may look back.
const LOOK: Duration = Duration::from_millis(20);
/// Entries of one customer or reference that are followed.
const FOLLOWED: i64 = 2000;
/// Customers of a code are counted up to here; beyond it people read "more than".
const COUNTED: i64 = 50_000;

/// One account with its balance.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct AccountRow {
    /// Its number.
    pub id: i64,
    /// The tenant of its book.
    pub tenant: String,
    /// The provider of its book.
    pub provider: String,
    /// The provider's own account, where there is one.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub provider_account: String,
    /// live or test.
    pub mode: String,
    /// clearing, sales, …
    pub code: String,
    /// The customer whose sub-account it is.
    pub holder: Option<String>,
    /// ISO 4217.
    pub currency: String,
    /// ASSET, LIABILITY, INCOME or EXPENSE.
    pub class: String,
    /// Everything debited, minor units.
    pub debits: i64,
    /// Everything credited.
    pub credits: i64,
    /// By the class: debits minus credits, or the reverse.
    pub balance: i64,
}

/// A code of a book with what its sub-accounts hold together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CodeRow {
    /// The account itself, or the sum over its customers (then without a number: id 0).
    pub account: AccountRow,
    /// How many sub-accounts are added up; 0 for an account of the house.
    pub customers: i64,
    /// There are more sub-accounts than were counted; the sum is of all of them.
    pub more: bool,
}

/// By whose clock a balance is asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Clock {
    /// When it was recorded: what these pages would have shown then.
    #[default]
    Recorded,
    /// When the provider says it happened.
    Occurred,
}

/// A moment for balances.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AsOf {
    /// Entries at or before this count.
    pub at: Millis,
    /// By this clock.
    pub clock: Clock,
}

const COLUMNS: &str =
    "a.id, b.tenant, b.provider, b.provider_account, b.mode, a.code, nullif(a.holder, ''), a.currency, a.class,
  a.debits, a.credits FROM postonce_accounts a JOIN postonce_books b ON b.id = a.book";

fn row(r: &Row) -> rusqlite::Result<AccountRow> {
    let mut account = AccountRow {
        id: r.get(0)?,
        tenant: r.get(1)?,
        provider: r.get(2)?,
        provider_account: r.get(3)?,
        mode: r.get(4)?,
        code: r.get(5)?,
        holder: r.get(6)?,
        currency: r.get(7)?,
        class: r.get(8)?,
        debits: r.get(9)?,
        credits: r.get(10)?,
        balance: 0,
    };
    account.weigh();
    Ok(account)
}

impl AccountRow {
    fn weigh(&mut self) {
        let assets = matches!(self.class.as_str(), "ASSET" | "EXPENSE");
        self.balance = if assets { self.debits - self.credits } else { self.credits - self.debits };
    }

    /// Makes the counters those of then.
    fn turn_back(&mut self, conn: &Connection, moment: &Moment, as_of: AsOf) -> Result<()> {
        let moved = match &self.holder {
            Some(_) => {
                let (debits, credits) = moved_after(conn, self.id, as_of)?;
                Moved { debits: self.debits - debits, credits: self.credits - credits }
            }
            None => {
                let book: i64 = conn
                    .prepare_cached("SELECT book FROM postonce_accounts WHERE id = ?1")?
                    .query_row([self.id], |r| r.get(0))?;
                let sums = moment.moved(conn, book, &self.code, false)?;
                sums.into_iter().find(|(currency, _)| *currency == self.currency).map_or(Moved::default(), |(_, m)| m)
            }
        };
        (self.debits, self.credits) = (moved.debits, moved.credits);
        self.weigh();
        Ok(())
    }
}

/// What a customer's account was debited and credited after a moment.
fn moved_after(conn: &Connection, account: i64, as_of: AsOf) -> Result<(i64, i64)> {
    match as_of.clock {
        Clock::Recorded => history::moved_since(conn, account, first_entry_at(conn, as_of.at + 1)?),
        Clock::Occurred => history::moved_after(conn, account, as_of.at),
    }
}

/// The codes of every book: accounts of the house as they are, those kept per customer added up.
pub fn codes(conn: &Connection, as_of: Option<AsOf>) -> Result<Vec<CodeRow>> {
    let mut names = conn.prepare_cached(
        "WITH RECURSIVE codes(book, code) AS (
           SELECT b.id, (SELECT min(code) FROM postonce_accounts a WHERE a.book = b.id) FROM postonce_books b
           UNION ALL SELECT c.book, (SELECT min(code) FROM postonce_accounts a WHERE a.book = c.book AND a.code > c.code)
             FROM codes c WHERE c.code IS NOT NULL)
         SELECT c.book, c.code FROM codes c JOIN postonce_books b ON b.id = c.book WHERE c.code IS NOT NULL
         ORDER BY b.tenant, b.provider, b.mode, b.provider_account, c.code LIMIT 500",
    )?;
    let codes: Vec<(i64, String)> =
        names.query_map([], |r| Ok((r.get(0)?, r.get(1)?)))?.collect::<rusqlite::Result<_>>()?;
    let moment = Moment::of(conn, as_of)?;
    let mut house = conn.prepare_cached(&format!(
        "SELECT {COLUMNS} WHERE a.book = ?1 AND a.code = ?2 AND a.holder = '' ORDER BY a.currency"
    ))?;
    let mut customer =
        conn.prepare_cached(&format!("SELECT {COLUMNS} WHERE a.book = ?1 AND a.code = ?2 AND a.holder <> '' LIMIT 1"))?;
    let mut count = conn.prepare_cached(
        "SELECT currency, count(*) FROM (SELECT currency FROM postonce_accounts WHERE book = ?1 AND code = ?2 AND holder > '' LIMIT ?3)
         GROUP BY currency",
    )?;
    let mut found: Vec<CodeRow> = Vec::new();
    for (book, code) in codes {
        for account in house.query_map(params![book, code], row)? {
            let mut account = account?;
            if let Some(as_of) = as_of {
                account.turn_back(conn, &moment, as_of)?;
            }
            found.push(CodeRow { account, customers: 0, more: false });
        }
        let Some(sample) = customer.query_map(params![book, code], row)?.next().transpose()? else { continue };
        let rows = count.query_map(params![book, code, COUNTED], |r| Ok((r.get(0)?, r.get(1)?)))?;
        let customers: HashMap<String, i64> = rows.collect::<rusqlite::Result<_>>()?;
        let more = customers.values().sum::<i64>() == COUNTED;
        for (currency, moved) in moment.moved(conn, book, &code, true)? {
            let (debits, credits) = (moved.debits, moved.credits);
            let customers = customers.get(&currency).copied().unwrap_or(0).max(1);
            let mut account = AccountRow { id: 0, holder: None, currency, debits, credits, ..sample.clone() };
            account.weigh();
            found.push(CodeRow { account, customers, more });
        }
    }
    Ok(found)
}

/// Which accounts to list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AccountQuery {
    /// Only those of this customer.
    pub holder: Option<String>,
    /// Only this code.
    pub code: Option<String>,
    /// Balances of then.
    pub as_of: Option<AsOf>,
    /// Numbers above this.
    pub after: i64,
    /// At most so many.
    pub limit: usize,
}

/// Lists accounts: by number, or those of one code by their customer.
pub fn accounts(conn: &Connection, query: &AccountQuery) -> Result<Page<AccountRow>> {
    let mut rows: Vec<AccountRow> = match (&query.holder, &query.code) {
        (None, Some(code)) => of_code(conn, code, query)?,
        (holder, code) => {
            let by_holder = if holder.is_some() { "a.holder = ?1 AND a.holder <> ''" } else { "?1 IS NULL" };
            let mut statement = conn.prepare_cached(&format!(
                "SELECT {COLUMNS} WHERE {by_holder} AND (?2 IS NULL OR a.code = ?2) AND a.id > ?3 ORDER BY a.id LIMIT ?4"
            ))?;
            let rows = statement.query_map(params![holder, code, query.after, query.limit as i64 + 1], row)?;
            rows.collect::<rusqlite::Result<_>>()?
        }
    };
    let more = rows.len() > query.limit;
    rows.truncate(query.limit);
    if let Some(as_of) = query.as_of {
        let moment = Moment::of(conn, Some(as_of))?;
        for account in &mut rows {
            account.turn_back(conn, &moment, as_of)?;
        }
    }
    let next = if more { rows.last().map(|a| a.id) } else { None };
    Ok(Page { rows, next, looked_back_to: None })
}

/// The accounts of a code, book by book in the order of their customers, from the one behind `query.after` on: that is
/// the order of the key, so that a code that is rare among millions costs no more than one that is not.
fn of_code(conn: &Connection, code: &str, query: &AccountQuery) -> Result<Vec<AccountRow>> {
    let (book, mut holder, mut currency): (i64, String, String) = conn
        .prepare_cached("SELECT book, holder, currency FROM postonce_accounts WHERE id = ?1")?
        .query_row([query.after], |r| Ok((r.get(0)?, r.get(1)?, r.get(2)?)))
        .optional()?
        .unwrap_or_default();
    let books: Vec<i64> = conn
        .prepare_cached("SELECT id FROM postonce_books WHERE id >= ?1 ORDER BY id")?
        .query_map([book], |r| r.get(0))?
        .collect::<rusqlite::Result<_>>()?;
    let mut statement = conn.prepare_cached(&format!(
        "SELECT {COLUMNS} WHERE a.book = ?1 AND a.code = ?2 AND (a.holder, a.currency) > (?3, ?4)
         ORDER BY a.holder, a.currency LIMIT ?5"
    ))?;
    let mut found = Vec::new();
    for one in books {
        if one != book {
            (holder, currency) = Default::default();
        }
        let left = (query.limit + 1 - found.len()) as i64;
        let rows = statement.query_map(params![one, code, holder, currency, left], row)?;
        for row in rows {
            found.push(row?);
        }
        if found.len() > query.limit {
            break;
        }
    }
    Ok(found)
}

/// One account, now or at a moment.
pub fn account(conn: &Connection, id: i64, as_of: Option<AsOf>) -> Result<Option<AccountRow>> {
    let found = conn.prepare_cached(&format!("SELECT {COLUMNS} WHERE a.id = ?1"))?.query_row([id], row).optional()?;
    let Some(mut account) = found else { return Ok(None) };
    if let Some(as_of) = as_of {
        let moment = Moment::of(conn, Some(as_of))?;
        account.turn_back(conn, &moment, as_of)?;
    }
    Ok(Some(account))
}

/// Which entries to find.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EntryQuery {
    /// Of this account, by number.
    pub account: Option<i64>,
    /// Of this customer.
    pub holder: Option<String>,
    /// Under this reference, or belonging to it.
    pub reference: Option<String>,
    /// Of this kind.
    pub kind: Option<String>,
    /// Recorded at or after this.
    pub from: Option<Millis>,
    /// Recorded before this.
    pub to: Option<Millis>,
    /// Only ids below this: where the page before ended.
    pub before: Option<i64>,
    /// At most so many.
    pub limit: usize,
}

/// One entry by id.
pub fn entry(conn: &Connection, id: i64) -> Result<Option<EntryLine>> {
    let mut found = None;
    let only = EntryFilter { after: id.saturating_sub(1), limit: Some(1), ..EntryFilter::default() };
    ledger::entries(conn, &only, |entry| {
        found = Some(entry);
        Ok(())
    })?;
    Ok(found.filter(|entry| entry.id == id))
}

/// The entry that takes this one back, if there is one.
pub fn reversal_of(conn: &Connection, id: i64) -> Result<Option<i64>> {
    Ok(conn
        .prepare_cached("SELECT id FROM postonce_journal WHERE reverses = ?1")?
        .query_row([id], |r| r.get(0))
        .optional()?)
}

/// The hash of an entry and that of the one before it, in hex.
pub fn hashes(conn: &Connection, id: i64) -> Result<(String, Option<String>)> {
    let mut statement = conn.prepare_cached("SELECT lower(hex(hash)) FROM postonce_journal WHERE id = ?1")?;
    let own = statement.query_row([id], |r| r.get(0))?;
    Ok((own, statement.query_row([id - 1], |r| r.get(0)).optional()?))
}

/// The entries that a raw event brought.
pub fn entries_of_event(conn: &Connection, raw_event: i64) -> Result<Vec<EntryLine>> {
    let ids: Vec<i64> = conn
        .prepare_cached("SELECT id FROM postonce_journal WHERE raw_event = ?1 ORDER BY id LIMIT 200")?
        .query_map([raw_event], |r| r.get(0))?
        .collect::<rusqlite::Result<_>>()?;
    let mut entries = Vec::with_capacity(ids.len());
    for id in ids {
        entries.extend(entry(conn, id)?);
    }
    Ok(entries)
}

/// Finds entries, the newest first.
pub fn entries(conn: &Connection, query: &EntryQuery) -> Result<Page<EntryLine>> {
    let upper = match query.to {
        Some(to) => query.before.unwrap_or(i64::MAX).min(first_entry_at(conn, to)?),
        None => query.before.unwrap_or(i64::MAX),
    };
    let lower = query.from.map_or(Ok(0), |from| first_entry_at(conn, from))?;
    let within = |id: &i64| *id < upper && *id >= lower;
    let ids: Box<dyn Iterator<Item = Result<i64>>> = if let Some(reference) = &query.reference {
        Box::new(under(conn, reference)?.into_iter().rev().filter(within).map(Ok))
    } else if let Some(account) = query.account {
        Box::new(of_accounts(conn, &[account], lower, upper)?.into_iter().rev().map(Ok))
    } else if let Some(holder) = &query.holder {
        let accounts: Vec<i64> = conn
            .prepare_cached("SELECT id FROM postonce_accounts WHERE holder = ?1 AND holder <> '' LIMIT 500")?
            .query_map([holder], |r| r.get(0))?
            .collect::<rusqlite::Result<_>>()?;
        Box::new(of_accounts(conn, &accounts, lower, upper)?.into_iter().rev().map(Ok))
    } else {
        let newest: i64 = conn.query_row("SELECT ifnull(max(id), 0) FROM postonce_journal", [], |r| r.get(0))?;
        Box::new((lower.max(1)..upper.min(newest + 1)).rev().map(Ok))
    };
    let began = Instant::now();
    let mut page = Page { rows: Vec::new(), next: None, looked_back_to: None };
    let mut kind_of = conn.prepare_cached("SELECT kind, account, recorded_at FROM postonce_journal WHERE id = ?1")?;
    for (looked, id) in ids.enumerate() {
        let id = id?;
        if page.rows.len() == query.limit {
            page.next = page.rows.last().map(|e: &EntryLine| e.id);
            break;
        }
        let seen: Option<(String, Option<String>, Millis)> =
            kind_of.query_row([id], |r| Ok((r.get(0)?, r.get(1)?, r.get(2)?))).optional()?;
        let Some((kind, _, recorded_at)) = seen else { continue };
        if query.kind.as_ref().is_none_or(|wanted| *wanted == kind) {
            page.rows.extend(entry(conn, id)?);
        } else if looked % 64 == 63 && began.elapsed() > LOOK {
            page.next = Some(id);
            page.looked_back_to = Some(recorded_at);
            break;
        }
    }
    Ok(page)
}

/// Entries under a reference in any book, and those that belong to it.
fn under(conn: &Connection, reference: &str) -> Result<BTreeSet<i64>> {
    let mut statement = conn.prepare_cached(
        "WITH RECURSIVE kinds(book, kind) AS (
           SELECT b.id, (SELECT min(kind) FROM postonce_claims c WHERE c.book = b.id) FROM postonce_books b
           UNION ALL SELECT k.book, (SELECT min(kind) FROM postonce_claims c WHERE c.book = k.book AND c.kind > k.kind)
             FROM kinds k WHERE k.kind IS NOT NULL)
         SELECT ifnull(c.journal, m.journal) FROM kinds k
           CROSS JOIN postonce_claims c ON c.book = k.book AND c.kind = k.kind AND c.ref = ?1
           LEFT JOIN postonce_claims m ON m.book = c.book AND m.kind = c.kind AND m.ref = c.alias_of
         UNION SELECT c.journal FROM kinds k CROSS JOIN postonce_claims c
           ON c.book = k.book AND c.kind = k.kind AND c.ref > ?1 || '@' AND c.ref < ?1 || 'A'
         UNION SELECT j.id FROM postonce_books b CROSS JOIN postonce_journal j ON j.book = b.id AND j.parent = ?1
         LIMIT ?2",
    )?;
    let rows = statement.query_map(params![reference, FOLLOWED], |r| r.get::<_, Option<i64>>(0))?;
    let found: Vec<Option<i64>> = rows.collect::<rusqlite::Result<_>>()?;
    Ok(found.into_iter().flatten().collect())
}

fn of_accounts(conn: &Connection, accounts: &[i64], lower: i64, upper: i64) -> Result<BTreeSet<i64>> {
    let mut found = BTreeSet::new();
    for account in accounts {
        found.extend(history::entries(conn, *account, lower, upper, FOLLOWED as usize)?);
    }
    Ok(found)
}
