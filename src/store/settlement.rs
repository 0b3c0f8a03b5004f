//! Settlement's tables: reports and their lines, runs and their items, what is settled, discrepancies, the trend.
//!
//! The statements only; what a run does with them stands in `steps/settle.rs`. Lines, items and settled rows are
//! written in chunks by the caller, in the order of their keys, so that no chunk holds the write lock for long.

pub mod discrepancies;
pub mod feed;
pub mod packed;
pub mod reports;
pub mod runs;
pub mod scratch;
pub mod trend;
mod walk;

use crate::error::Result;
use crate::event::{Millis, Mode};
use crate::store::Book;
use rusqlite::{Connection, OptionalExtension as _, params};

/// A book by its id.
pub fn book(conn: &Connection, id: i64) -> Result<Option<Book>> {
    Ok(conn
        .prepare_cached("SELECT tenant, provider, provider_account, mode FROM postonce_books WHERE id = ?1")?
        .query_row([id], |r| {
            Ok(Book {
                tenant: r.get(0)?,
                provider: r.get(1)?,
                provider_account: r.get(2)?,
                mode: Mode::parse(&r.get::<_, String>(3)?).unwrap_or(Mode::Live),
            })
        })
        .optional()?)
}

/// The id of a book, if it is there.
pub fn book_id(conn: &Connection, book: &Book) -> Result<Option<i64>> {
    Ok(conn
        .prepare_cached(
            "SELECT id FROM postonce_books WHERE tenant = ?1 AND provider = ?2 AND provider_account = ?3 AND mode = ?4",
        )?
        .query_row(params![book.tenant, book.provider, book.provider_account, book.mode.as_str()], |r| r.get(0))
        .optional()?)
}

/// Is the body of this raw event evidence of something open? Retention must leave it.
pub fn is_evidence(conn: &Connection, raw_event: i64) -> Result<bool> {
    Ok(conn
        .prepare_cached(
            "SELECT EXISTS (SELECT 1 FROM postonce_discrepancies d LEFT JOIN postonce_journal j ON j.id = d.entry
               LEFT JOIN postonce_raw_events r ON r.id IN (j.raw_event, d.raw_event)
             WHERE d.state <> 'RESOLVED' AND ifnull(r.body, r.id) = ?1)",
        )?
        .query_row([raw_event], |r| r.get(0))?)
}

/// Has this source something that is received and not yet through, older than `before`?
pub fn undrained(conn: &Connection, source: &str, before: Millis) -> Result<i64> {
    Ok(conn
        .prepare_cached(
            "SELECT count(*) FROM postonce_raw_events r JOIN postonce_sources s ON s.id = r.source
             WHERE r.due_at IS NOT NULL AND r.state IN ('RECEIVED', 'CLAIMED') AND s.name = ?1 AND r.received_at < ?2",
        )?
        .query_row(params![source, before], |r| r.get(0))?)
}

/// What of a source waits for a person, with its bytes, the newest first: where a missing movement may be.
pub fn waiting_bodies(conn: &Connection, source: &str, most: u32) -> Result<Vec<(i64, Vec<u8>)>> {
    let mut statement = conn.prepare_cached(
        "SELECT r.id, ifnull(r.body, r.id) FROM postonce_raw_events r JOIN postonce_sources s ON s.id = r.source
         WHERE (r.state = 'PARKED' OR r.state = 'CONFLICT' OR r.state = 'DEAD') AND s.name = ?1 ORDER BY r.id DESC LIMIT ?2",
    )?;
    let ids: Vec<(i64, i64)> =
        statement.query_map(params![source, most], |r| Ok((r.get(0)?, r.get(1)?)))?.collect::<rusqlite::Result<_>>()?;
    let mut found = Vec::with_capacity(ids.len());
    for (id, body) in ids {
        if let Some(body) = crate::store::raw::body(conn, body)? {
            found.push((id, body.bytes));
        }
    }
    Ok(found)
}

/// The state of a raw event with its reason.
pub fn state_of(conn: &Connection, raw_event: i64) -> Result<Option<(String, Option<String>)>> {
    Ok(conn
        .prepare_cached("SELECT state, reason FROM postonce_raw_events WHERE id = ?1")?
        .query_row([raw_event], |r| Ok((r.get(0)?, r.get(1)?)))
        .optional()?)
}

/// How many of these raw events still wait to be read and applied.
pub fn still_waiting(conn: &Connection, raw_events: &[i64]) -> Result<usize> {
    let mut statement = conn.prepare_cached("SELECT due_at IS NOT NULL FROM postonce_raw_events WHERE id = ?1")?;
    let mut waiting = 0;
    for id in raw_events {
        waiting += usize::from(statement.query_row([id], |r| r.get::<_, bool>(0)).optional()?.unwrap_or(false));
    }
    Ok(waiting)
}

/// One raw event, as far as it says when its source was heard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// The raw event.
    pub id: i64,
    /// Its source's name.
    pub source: String,
    /// Was it a delivery, and not something that we made or fetched?
    pub webhook: bool,
    /// When it came.
    pub at: Millis,
}

/// What came after a raw event, the oldest first.
pub fn arrivals_after(conn: &Connection, id: i64, most: u32) -> Result<Vec<Arrival>> {
    arrivals(conn, "r.id > ?1 ORDER BY r.id", id, most)
}

/// What came before a raw event, the newest first.
pub fn arrivals_before(conn: &Connection, id: i64, most: u32) -> Result<Vec<Arrival>> {
    arrivals(conn, "r.id < ?1 ORDER BY r.id DESC", id, most)
}

fn arrivals(conn: &Connection, which: &str, id: i64, most: u32) -> Result<Vec<Arrival>> {
    let mut statement = conn.prepare_cached(&format!(
        "SELECT r.id, s.name, r.origin = 'webhook', r.received_at FROM postonce_raw_events r JOIN postonce_sources s ON s.id = r.source
         WHERE {which} LIMIT ?2"
    ))?;
    let rows = statement.query_map(params![id, most], |r| {
        Ok(Arrival { id: r.get(0)?, source: r.get(1)?, webhook: r.get(2)?, at: r.get(3)? })
    })?;
    Ok(rows.collect::<rusqlite::Result<_>>()?)
}
