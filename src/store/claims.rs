//! Claims: the permanent keys, won once.
//!
//! Every retry has a named outcome. Keys never expire, whatever retention does to bodies.

use super::{Tx, or_fail};
use crate::error::Result;
use crate::event::Millis;
use crate::money::Currency;
use rusqlite::{Connection, OptionalExtension as _, params};

/// The kind under which the provider's event ids are claimed.
pub const EVENT: &str = "event";
/// The kind under which a rule's own operation keys are claimed.
pub const OPERATION: &str = "operation";

/// What a key stands for, so that a second use of it can be told apart from a repeat.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Says {
    /// A movement of this much.
    Money {
        /// Minor units.
        amount: i64,
        /// Of this currency.
        currency: Currency,
        /// Told by a mere announcement.
        secondary: bool,
    },
    /// An event that announced movements with this fingerprint, or a running total.
    Mark(i64),
}

/// The outcome of asking for a key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Claim {
    /// It is ours now (or was ours already, from an attempt before).
    Won,
    /// The same thing is there, or under way, under this raw event.
    Duplicate {
        /// Who has it.
        first: i64,
        /// Its journal entry, once it is posted.
        journal: Option<i64>,
    },
    /// The key is there and stands for something else.
    Conflict {
        /// Who has it.
        first: i64,
        /// What is claimed there.
        theirs: Says,
    },
}

/// A row of the table.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Row {
    /// Its own reference: that of the movement, when it was found by an alias.
    pub reference: String,
    /// Who has it.
    pub raw_event: i64,
    /// Has it taken effect?
    pub done: bool,
    /// What it stands for.
    pub says: Option<Says>,
    /// Its journal entry.
    pub journal: Option<i64>,
}

fn row_of(conn: &Connection, book: i64, kind: &str, reference: &str) -> Result<Option<(Row, Option<String>)>> {
    let row = conn
        .prepare_cached(
            "SELECT raw_event, state, alias_of, amount, currency, secondary, fingerprint, journal
             FROM postonce_claims WHERE book = ?1 AND kind = ?2 AND ref = ?3",
        )?
        .query_row(params![book, kind, reference], |r| {
            let amount: Option<i64> = r.get(3)?;
            let currency: Option<String> = r.get(4)?;
            let fingerprint: Option<i64> = r.get(6)?;
            let says = match (amount, currency.as_deref().and_then(Currency::parse), fingerprint) {
                (Some(amount), Some(currency), _) => Some(Says::Money { amount, currency, secondary: r.get(5)? }),
                (_, _, Some(print)) => Some(Says::Mark(print)),
                _ => None,
            };
            let done = r.get_ref(1)?.as_str()? == "DONE";
            let row = Row { reference: reference.to_owned(), raw_event: r.get(0)?, done, says, journal: r.get(7)? };
            Ok((row, r.get(2)?))
        })
        .optional()?;
    Ok(row)
}

/// The claim of a movement, under its reference or any other name it is known by.
pub fn find(conn: &Connection, book: i64, kind: &str, reference: &str) -> Result<Option<Row>> {
    match row_of(conn, book, kind, reference)? {
        Some((_, Some(movement))) => Ok(row_of(conn, book, kind, &movement)?.map(|(row, _)| row)),
        found => Ok(found.map(|(row, _)| row)),
    }
}

/// Every other name of a book's movements of a kind, and the movement that has it. Reads all claims of that kind.
pub fn aliases(conn: &Connection, book: i64, kind: &str, each: &mut dyn FnMut(&str, &str)) -> Result<()> {
    let mut statement = conn.prepare_cached(
        "SELECT ref, alias_of FROM postonce_claims WHERE book = ?1 AND kind = ?2 AND state = 'ALIAS'",
    )?;
    let mut rows = statement.query(params![book, kind])?;
    while let Some(row) = rows.next()? {
        let text = |n: usize| row.get_ref(n)?.as_str().map_err(rusqlite::Error::from);
        each(text(0)?, text(1)?);
    }
    Ok(())
}

/// Is another raw event's unfinished claim free to take? It is when that event ended without taking effect.
fn abandoned(conn: &Connection, raw_event: i64) -> Result<bool> {
    Ok(conn
        .prepare_cached("SELECT state NOT IN ('RECEIVED', 'CLAIMED') FROM postonce_raw_events WHERE id = ?1")?
        .query_row([raw_event], |r| r.get(0))
        .optional()?
        .unwrap_or(true))
}

/// Asks for a key.
pub fn claim(tx: &Tx, book: i64, kind: &str, reference: &str, says: Says, raw_event: i64) -> Result<Claim> {
    let (amount, currency, secondary, print) = match &says {
        Says::Money { amount, currency, secondary } => (Some(*amount), Some(currency.code()), *secondary, None),
        Says::Mark(print) => (None, None, false, Some(*print)),
    };
    let inserted = tx.run(
        "INSERT INTO postonce_claims(book, kind, ref, raw_event, state, amount, currency, secondary, fingerprint)
             VALUES (?1, ?2, ?3, ?4, 'CLAIMED', ?5, ?6, ?7, ?8) ON CONFLICT DO NOTHING",
        params![book, kind, reference, raw_event, amount, currency, secondary, print],
    )?;
    if inserted == 1 {
        return Ok(Claim::Won);
    }
    let Some(there) = find(tx.conn, book, kind, reference)? else {
        return Err(crate::error::Error::Apply(format!("the alias {kind} {reference} names no movement")));
    };
    let same = match (&there.says, &says) {
        (Some(Says::Money { amount: a, currency: c, .. }), Says::Money { amount, currency, .. }) => {
            a == amount && c == currency
        }
        (Some(Says::Mark(a)), Says::Mark(b)) => a == b,
        _ => false,
    };
    let ours = there.raw_event == raw_event;
    if same && !there.done && there.reference == reference && (ours || abandoned(tx.conn, there.raw_event)?) {
        tx.conn
            .prepare_cached("UPDATE postonce_claims SET raw_event = ?4 WHERE book = ?1 AND kind = ?2 AND ref = ?3")?
            .execute(params![book, kind, there.reference, raw_event])?;
        return Ok(Claim::Won);
    }
    match there.says {
        Some(theirs) if !same => Ok(Claim::Conflict { first: there.raw_event, theirs }),
        _ => Ok(Claim::Duplicate { first: there.raw_event, journal: there.journal }),
    }
}

/// Gives a movement another name. `Some`: another movement has that name already.
pub fn add_alias(tx: &Tx, book: i64, kind: &str, alias: &str, movement: &str, raw_event: i64) -> Result<Option<Row>> {
    let inserted = tx.run(
        "INSERT INTO postonce_claims(book, kind, ref, raw_event, state, alias_of) VALUES (?1, ?2, ?3, ?4, 'ALIAS', ?5)
             ON CONFLICT DO NOTHING",
        params![book, kind, alias, raw_event, movement],
    )?;
    if inserted == 1 {
        return Ok(None);
    }
    Ok(find(tx.conn, book, kind, alias)?.filter(|row| row.reference != movement))
}

/// Ends a claim with its result.
pub fn done(tx: &Tx, book: i64, kind: &str, reference: &str, raw_event: i64, journal: Option<i64>) -> Result<()> {
    let changed = tx.run(
        or_fail!(
            tx,
            "UPDATE",
            "postonce_claims SET state = 'DONE', journal = ?5
             WHERE book = ?1 AND kind = ?2 AND ref = ?3 AND state = 'CLAIMED' AND raw_event = ?4"
        ),
        params![book, kind, reference, raw_event, journal],
    )?;
    if changed == 0 { Err(crate::error::Error::LostClaim) } else { Ok(()) }
}

/// A raw event waits for a movement that has not come yet.
pub fn wait_for(tx: &Tx, book: i64, kind: &str, reference: &str, raw_event: i64) -> Result<()> {
    tx.conn
        .prepare_cached("INSERT INTO postonce_waits VALUES (?1, ?2, ?3, ?4) ON CONFLICT DO NOTHING")?
        .execute(params![book, kind, reference, raw_event])?;
    tx.seen.anybody_waits.set(Some(true));
    Ok(())
}

/// Does any raw event wait for a movement? Nearly always nobody does: asked once a transaction.
fn anybody_waits(tx: &Tx) -> Result<bool> {
    if let Some(known) = tx.seen.anybody_waits.get() {
        return Ok(known);
    }
    let sql = "SELECT EXISTS (SELECT 1 FROM postonce_waits)";
    let waits = tx.conn.prepare_cached(sql)?.query_row([], |r| r.get(0))?;
    tx.seen.anybody_waits.set(Some(waits));
    Ok(waits)
}

/// The movement is posted: whoever waited for it is due.
pub fn wake(tx: &Tx, book: i64, kind: &str, reference: &str) -> Result<()> {
    if !anybody_waits(tx)? {
        return Ok(());
    }
    let mut statement = tx
        .conn
        .prepare_cached("DELETE FROM postonce_waits WHERE book = ?1 AND kind = ?2 AND ref = ?3 RETURNING raw_event")?;
    let waiting: Vec<i64> =
        statement.query_map(params![book, kind, reference], |r| r.get(0))?.collect::<rusqlite::Result<_>>()?;
    for raw_event in waiting {
        super::raw::replay(tx, raw_event)?;
    }
    Ok(())
}

/// A claim that is part of a sum.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Part {
    /// Its reference.
    pub reference: String,
    /// Its amount.
    pub amount: i64,
    /// The provider's time of the event that won it.
    pub event_at: Option<Millis>,
}

/// The claims whose reference begins with `prefix`: what a running total was made of.
pub fn amounts_below(conn: &Connection, book: i64, kind: &str, prefix: &str) -> Result<Vec<Part>> {
    let mut statement = conn.prepare_cached(
        "SELECT c.ref, ifnull(c.amount, 0), e.occurred_at FROM postonce_claims c
         LEFT JOIN postonce_events e ON e.id = c.raw_event
         WHERE c.book = ?1 AND c.kind = ?2 AND c.ref >= ?3 AND c.ref < ?3 || char(1114111) AND c.state <> 'ALIAS'",
    )?;
    let rows = statement.query_map(params![book, kind, prefix], |r| {
        Ok(Part { reference: r.get(0)?, amount: r.get(1)?, event_at: r.get(2)? })
    })?;
    Ok(rows.collect::<rusqlite::Result<_>>()?)
}
