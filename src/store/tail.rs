//! Following what arrives: for `tail` and `forward`. Each call is one short read, so that no snapshot is held.

use super::raw::{self, Body};
use crate::clock::rfc3339;
use crate::error::Result;
use rusqlite::{Connection, params};

/// What a follower sees of a raw event.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Seen {
    /// Its number.
    pub id: i64,
    /// When it came, RFC 3339.
    pub received_at: String,
    /// The source's name.
    pub source: String,
    /// webhook, item, fetched, …
    pub origin: String,
    /// RECEIVED, CLAIMED, DONE, …
    pub state: String,
    /// The provider's name of the type, once it was read.
    #[serde(rename = "type")]
    pub kind: Option<String>,
    /// The provider's event id.
    pub event_id: Option<String>,
    /// Why it ended so, or the last failure.
    pub reason: Option<String>,
    /// What it posted: `payment pi_1 4999 EUR`, one a piece.
    pub posted: Vec<String>,
}

/// Raw events after `after` and those in `again`, by number.
pub fn seen(conn: &Connection, after: i64, again: &[i64], limit: usize) -> Result<Vec<Seen>> {
    let list: Vec<String> = again.iter().map(ToString::to_string).collect();
    let mut statement = conn.prepare(&format!(
        "SELECT r.id, r.received_at, s.name, r.origin, r.state, e.type, e.event_id, r.reason FROM postonce_raw_events r
         JOIN postonce_sources s ON s.id = r.source LEFT JOIN postonce_events e ON e.id = r.id
         WHERE r.id IN ({}) OR r.id > ?1 ORDER BY r.id LIMIT ?2",
        list.join(", ")
    ))?;
    let mut rows = statement.query(params![after, limit as i64])?;
    let mut all = Vec::new();
    while let Some(r) = rows.next()? {
        all.push(Seen {
            id: r.get(0)?,
            received_at: rfc3339(r.get(1)?),
            source: r.get(2)?,
            origin: r.get(3)?,
            state: r.get(4)?,
            kind: r.get(5)?,
            event_id: r.get(6)?,
            reason: r.get(7)?,
            posted: Vec::new(),
        });
    }
    Ok(all)
}

/// What raw events posted: `(raw event, kind, reference, amount in minor units, currency)`, of the entries after `after`.
pub fn posted(conn: &Connection, after: i64) -> Result<(Vec<(i64, String)>, i64)> {
    let mut statement = conn.prepare_cached(
        "SELECT id, raw_event, kind, ref, amount, currency FROM postonce_journal WHERE id > ?1 ORDER BY id LIMIT 10000",
    )?;
    let mut rows = statement.query([after])?;
    let (mut all, mut last) = (Vec::new(), after);
    while let Some(r) = rows.next()? {
        last = r.get(0)?;
        let (kind, reference, amount, currency): (String, String, i64, String) =
            (r.get(2)?, r.get(3)?, r.get(4)?, r.get(5)?);
        all.push((r.get(1)?, format!("{kind} {reference} {amount} {currency}")));
    }
    Ok((all, last))
}

/// The newest entry.
pub fn newest_entry(conn: &Connection) -> Result<i64> {
    Ok(conn.query_row("SELECT ifnull(max(id), 0) FROM postonce_journal", [], |r| r.get(0))?)
}

/// A stored delivery to send on.
pub struct Stored {
    /// Its number.
    pub id: i64,
    /// The source's name.
    pub source: String,
    /// Its bytes and what came with them; `None`: past their retention.
    pub body: Option<Body>,
}

/// Deliveries after `after`, of one source where it is given; without items of batches and what we made ourselves.
pub fn deliveries(conn: &Connection, after: i64, source: Option<&str>, limit: usize) -> Result<Vec<Stored>> {
    let mut statement = conn.prepare_cached(
        "SELECT r.id, s.name FROM postonce_raw_events r JOIN postonce_sources s ON s.id = r.source
         WHERE r.id > ?1 AND r.origin = 'webhook' AND (?2 IS NULL OR s.name = ?2) ORDER BY r.id LIMIT ?3",
    )?;
    let mut rows = statement.query(params![after, source, limit as i64])?;
    let mut all = Vec::new();
    while let Some(r) = rows.next()? {
        let id = r.get(0)?;
        all.push(Stored { id, source: r.get(1)?, body: raw::body(conn, id)? });
    }
    Ok(all)
}
