//! Sums that are kept beside the ledger, so that a balance as of any time is a few thousand rows away and not a million.
//!
//! Derived from the postings and from nothing else: the keeper adds up what was posted since, in small pieces, and `check`
//! adds up everything again. Whoever reads adds what is not in the sums yet. Never written by apply.

use super::Tx;
use super::books::{AsOf, Clock};
use super::search::first_entry_at;
use crate::error::{Error, Result};
use crate::event::Millis;
use rusqlite::{Connection, Row, params};
use std::collections::HashMap;

/// Entries in one row by our clock, which is the order of the journal.
pub const BLOCK: i64 = 2_000;
/// Time in one row by the provider's clock.
const HOUR: Millis = 3_600_000;
/// Entries that are added up in one piece of work: of history that is brought in each may be of an hour of its own, and a
/// piece then writes twice as many rows.
const PIECE: i64 = 500;
/// The fact that says up to which entry the sums go.
const UPTO: &str = "summed_upto";

/// Whose sum: a book, a code, whether it is that of its customers together or of the account without one, a currency.
pub type Whose = (i64, String, bool, String);

/// Debited and credited.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moved {
    /// Minor units.
    pub debits: i64,
    /// Minor units.
    pub credits: i64,
}

/// A row to be added: whose, which clock, which of its rows, how much.
type Piece = (Whose, &'static str, i64, Moved);

/// What was posted since the last time, ready to be added; `None`: nothing. Reads only.
pub fn next(conn: &Connection) -> Result<Option<Next>> {
    let upto = upto(conn)?;
    let newest = super::ledger::newest(conn)?;
    // A piece never crosses a block.
    let last = newest.min(upto + PIECE).min((upto / BLOCK + 1) * BLOCK);
    if last <= upto {
        return Ok(None);
    }
    let mut pieces: HashMap<(Whose, &'static str, i64), Moved> = HashMap::new();
    for (side, debit) in [("debit", true), ("credit", false)] {
        let mut statement = conn.prepare_cached(&format!(
            "SELECT j.book, a.code, a.holder <> '', a.currency, j.occurred_at / {HOUR}, sum(p.amount)
             FROM postonce_journal j CROSS JOIN postonce_postings p ON p.journal = j.id
               CROSS JOIN postonce_accounts a ON a.id = p.{side}
             WHERE j.id > ?1 AND j.id <= ?2 GROUP BY 1, 2, 3, 4, 5"
        ))?;
        let mut rows = statement.query([upto, last])?;
        while let Some(r) = rows.next()? {
            let (whose, hour, amount): (Whose, i64, i64) = (whose(r)?, r.get(4)?, r.get(5)?);
            for (clock, at) in [("R", upto / BLOCK), ("O", hour)] {
                let moved = pieces.entry((whose.clone(), clock, at)).or_default();
                *(if debit { &mut moved.debits } else { &mut moved.credits }) += amount;
            }
        }
    }
    let pieces = pieces.into_iter().map(|((whose, clock, at), moved)| (whose, clock, at, moved)).collect();
    Ok(Some(Next { after: upto, upto: last, pieces }))
}

/// See [`next`].
#[derive(Clone, Debug)]
pub struct Next {
    after: i64,
    upto: i64,
    pieces: Vec<Piece>,
}

/// Adds it.
pub fn add(tx: &Tx, next: &Next) -> Result<()> {
    if upto(tx.conn)? != next.after {
        return Err(Error::LostClaim); // somebody else has added it
    }
    let mut statement = tx.conn.prepare_cached(
        "INSERT INTO postonce_sums VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)
         ON CONFLICT DO UPDATE SET debits = debits + excluded.debits, credits = credits + excluded.credits",
    )?;
    for ((book, code, customers, currency), clock, at, moved) in &next.pieces {
        statement.execute(params![book, code, customers, clock, currency, at, moved.debits, moved.credits])?;
    }
    super::set_meta(tx.conn, UPTO, &next.upto.to_string())
}

fn upto(conn: &Connection) -> Result<i64> {
    Ok(super::meta(conn, UPTO)?.and_then(|text| text.parse().ok()).unwrap_or(0))
}

fn whose(r: &Row) -> rusqlite::Result<Whose> {
    Ok((r.get(0)?, r.get(1)?, r.get(2)?, r.get(3)?))
}

/// A moment, as the sums and the ledger's keys know it.
pub struct Moment {
    /// The rows of the sums that lie before it.
    clock: &'static str,
    before: i64,
    /// What lies between them and it.
    rest: HashMap<Whose, Moved>,
}

impl Moment {
    /// That of a question; `None`: now.
    pub fn of(conn: &Connection, as_of: Option<AsOf>) -> Result<Moment> {
        let upto = upto(conn)?;
        let (clock, before, rest) = match as_of {
            Some(AsOf { at, clock: Clock::Occurred }) => {
                let hour = (at + 1) / HOUR;
                let within = "j.book = b.id AND j.occurred_at >= ?1 AND j.occurred_at <= ?2 AND j.id <= ?3";
                let by_time = format!(
                    "postonce_books b CROSS JOIN postonce_journal j INDEXED BY postonce_journal_by_time ON {within}"
                );
                let mut rest = added_up(conn, &by_time, "", [hour * HOUR, at, upto])?;
                let late = "WHERE j.id > ?3 AND j.occurred_at <= ?2 AND ?1 IS NOT NULL";
                for (whose, moved) in added_up(conn, "postonce_journal j NOT INDEXED", late, [0, at, upto])? {
                    let sum = rest.entry(whose).or_default();
                    sum.debits += moved.debits;
                    sum.credits += moved.credits;
                }
                ("O", hour, rest)
            }
            other => {
                let cut = match other {
                    Some(AsOf { at, .. }) => first_entry_at(conn, at + 1)?,
                    None => i64::MAX,
                };
                // All of a piece lies in one block, so that the blocks before the last that is begun are whole.
                let block = (cut - 1).min(upto) / BLOCK;
                let within = "WHERE j.id > ?1 AND j.id < ?2 AND ?3 IS NOT NULL";
                ("R", block, added_up(conn, "postonce_journal j NOT INDEXED", within, [block * BLOCK, cut, 0])?)
            }
        };
        Ok(Moment { clock, before, rest })
    }

    /// What a code of a book was debited and credited until then, by currency: its customers together, or the account
    /// without one.
    pub fn moved(&self, conn: &Connection, book: i64, code: &str, customers: bool) -> Result<Vec<(String, Moved)>> {
        let mut statement = conn.prepare_cached(
            "SELECT currency, sum(debits), sum(credits) FROM postonce_sums
             WHERE book = ?1 AND code = ?2 AND customers = ?3 AND clock = ?4 AND at < ?5 GROUP BY currency",
        )?;
        let rows = statement.query_map(params![book, code, customers, self.clock, self.before], |r| {
            Ok((r.get(0)?, Moved { debits: r.get(1)?, credits: r.get(2)? }))
        })?;
        let mut found: HashMap<String, Moved> = rows.collect::<rusqlite::Result<_>>()?;
        for ((b, c, of_customers, currency), moved) in &self.rest {
            if (*b, c.as_str(), *of_customers) == (book, code, customers) {
                let sum = found.entry(currency.clone()).or_default();
                sum.debits += moved.debits;
                sum.credits += moved.credits;
            }
        }
        let mut found: Vec<(String, Moved)> = found.into_iter().collect();
        found.sort_unstable_by(|a, b| a.0.cmp(&b.0));
        Ok(found)
    }
}

/// The postings of some entries of the journal, added up. Where they are told by number, the journal must be read by it
/// (`NOT INDEXED`): the newest are few, and those before a time are nearly all.
fn added_up(conn: &Connection, entries: &str, which: &str, values: [i64; 3]) -> Result<HashMap<Whose, Moved>> {
    let mut found: HashMap<Whose, Moved> = HashMap::new();
    for (side, debit) in [("debit", true), ("credit", false)] {
        let mut statement = conn.prepare_cached(&format!(
            "SELECT j.book, a.code, a.holder <> '', a.currency, sum(p.amount)
             FROM {entries} CROSS JOIN postonce_postings p ON p.journal = j.id CROSS JOIN postonce_accounts a ON a.id = p.{side}
             {which} GROUP BY 1, 2, 3, 4"
        ))?;
        let mut rows = statement.query(values)?;
        while let Some(r) = rows.next()? {
            let moved = found.entry(whose(r)?).or_default();
            *(if debit { &mut moved.debits } else { &mut moved.credits }) += r.get::<_, i64>(4)?;
        }
    }
    Ok(found)
}
