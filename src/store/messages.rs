//! The outbox as people read it: what waits, what is late, what is dead, and every attempt.

use super::search::Page;
use crate::clock::{as_rfc3339, as_rfc3339_or_null};
use crate::error::Result;
use crate::event::Millis;
use rusqlite::{Connection, OptionalExtension as _, Row, params};
use serde::Serialize;

/// No count goes further than this.
const COUNT_MOST: i64 = super::overview::COUNT_MOST;

/// One message: the shape of `/api/v1/outbox`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct MessageRow {
    /// Its number.
    pub id: i64,
    /// One message an endpoint and business fact.
    pub key: String,
    /// The endpoint's name.
    pub endpoint: String,
    /// Which raw event caused it.
    pub raw_event: i64,
    /// The entry it is about.
    pub entry: Option<i64>,
    /// WAITING, SENT or DEAD.
    pub state: String,
    /// When it is tried next, by the steady clock.
    #[serde(serialize_with = "as_rfc3339_or_null")]
    pub due_at: Option<Millis>,
    /// How often it was tried since it was last put in line.
    pub attempts: u32,
    /// When the fact was recorded.
    #[serde(serialize_with = "as_rfc3339")]
    pub created_at: Millis,
    /// When it was accepted or given up.
    #[serde(serialize_with = "as_rfc3339_or_null")]
    pub ended_at: Option<Millis>,
    /// What went wrong last.
    pub last_error: Option<String>,
}

/// One attempt to send.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct AttemptRow {
    /// When it began.
    #[serde(serialize_with = "as_rfc3339")]
    pub at: Millis,
    /// The HTTP status; `None`: no answer.
    pub status: Option<u16>,
    /// How long it took.
    pub took_ms: i64,
    /// What went wrong; `None`: it was accepted.
    pub error: Option<String>,
}

const COLUMNS: &str = "id, key, endpoint, raw_event, journal, state, due_at, attempts, created_at, ended_at, last_error FROM postonce_outbox";

fn row(r: &Row) -> rusqlite::Result<MessageRow> {
    Ok(MessageRow {
        id: r.get(0)?,
        key: r.get(1)?,
        endpoint: r.get(2)?,
        raw_event: r.get(3)?,
        entry: r.get(4)?,
        state: r.get(5)?,
        due_at: r.get(6)?,
        attempts: r.get(7)?,
        created_at: r.get(8)?,
        ended_at: r.get(9)?,
        last_error: r.get(10)?,
    })
}

/// Which messages to list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Which {
    /// All, the newest first.
    #[default]
    All,
    /// Waiting, the newest first.
    Waiting,
    /// Given up, the newest first.
    Dead,
}

/// Waiting messages that are looked through; beyond it those that are due last are not listed.
const WAITING_MOST: i64 = 5_000;

/// Lists messages, the newest first.
pub fn list(conn: &Connection, which: Which, before: Option<i64>, limit: usize) -> Result<Page<MessageRow>> {
    let of = match which {
        Which::All => "",
        Which::Waiting => {
            "AND id IN (SELECT id FROM postonce_outbox WHERE due_at IS NOT NULL ORDER BY due_at LIMIT ?3)"
        }
        Which::Dead => "AND state = 'DEAD'",
    };
    let mut statement = conn.prepare_cached(&format!(
        "SELECT {COLUMNS} WHERE ?3 > 0 AND id < ifnull(?1, 9223372036854775807) {of} ORDER BY id DESC LIMIT ?2"
    ))?;
    let rows = statement.query_map(params![before, limit as i64 + 1, WAITING_MOST], row)?;
    let mut rows: Vec<MessageRow> = rows.collect::<rusqlite::Result<_>>()?;
    let more = rows.len() > limit;
    rows.truncate(limit);
    let next = if more { rows.last().map(|m| m.id) } else { None };
    Ok(Page { rows, next, looked_back_to: None })
}

/// One message by number.
pub fn message(conn: &Connection, id: i64) -> Result<Option<MessageRow>> {
    Ok(conn.prepare_cached(&format!("SELECT {COLUMNS} WHERE id = ?1"))?.query_row([id], row).optional()?)
}

/// The attempts of a message, the oldest first.
pub fn attempts(conn: &Connection, message: i64) -> Result<Vec<AttemptRow>> {
    let mut statement = conn.prepare_cached(
        "SELECT at, status, took_ms, error FROM postonce_attempts WHERE message = ?1 ORDER BY id LIMIT 200",
    )?;
    let rows = statement.query_map([message], |r| {
        Ok(AttemptRow { at: r.get(0)?, status: r.get(1)?, took_ms: r.get(2)?, error: r.get(3)? })
    })?;
    Ok(rows.collect::<rusqlite::Result<_>>()?)
}

/// The messages about an entry, found by their keys: `endpoint/entry`.
pub fn about_entry(conn: &Connection, entry: i64) -> Result<Vec<MessageRow>> {
    let mut statement = conn.prepare_cached(&format!(
        "WITH RECURSIVE ends(name) AS (
           SELECT (SELECT endpoint FROM postonce_outbox ORDER BY key LIMIT 1)
           UNION ALL SELECT (SELECT endpoint FROM postonce_outbox WHERE key > e.name || '0' ORDER BY key LIMIT 1)
             FROM ends e WHERE e.name IS NOT NULL LIMIT 200)
         SELECT {COLUMNS} WHERE key IN (SELECT name || '/' || ?1 FROM ends WHERE name IS NOT NULL) ORDER BY id"
    ))?;
    let rows = statement.query_map([format!("{entry:012}")], row)?;
    Ok(rows.collect::<rusqlite::Result<_>>()?)
}

/// How the outbox stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Standing {
    /// Messages that wait; counted up to 100,000.
    pub waiting: i64,
    /// Of these, those that were due more than a minute ago.
    pub late: i64,
    /// When the one that is due first was recorded.
    #[serde(serialize_with = "as_rfc3339_or_null")]
    pub oldest: Option<Millis>,
    /// Messages that were given up.
    pub dead: i64,
}

/// How the outbox stands at `now` (steady time).
pub fn standing(conn: &Connection, now: Millis) -> Result<Standing> {
    let count = |of: &str| -> Result<i64> {
        Ok(conn
            .prepare_cached(&format!(
                "SELECT count(*) FROM (SELECT 1 FROM postonce_outbox WHERE {of} LIMIT {COUNT_MOST})"
            ))?
            .query_row([], |r| r.get(0))?)
    };
    Ok(Standing {
        waiting: count("due_at IS NOT NULL")?,
        late: count(&format!("due_at < {}", now - 60_000))?,
        oldest: conn
            .prepare_cached(
                "SELECT min(created_at) FROM (SELECT created_at FROM postonce_outbox WHERE due_at IS NOT NULL ORDER BY due_at LIMIT 100)",
            )?
            .query_row([], |r| r.get(0))?,
        dead: count("state = 'DEAD'")?,
    })
}

/// The numbers of messages that were given up, at most `limit`.
pub fn dead_ids(conn: &Connection, limit: usize) -> Result<Vec<i64>> {
    let mut statement =
        conn.prepare_cached("SELECT id FROM postonce_outbox WHERE state = 'DEAD' ORDER BY id LIMIT ?1")?;
    let rows = statement.query_map([limit as i64], |r| r.get(0))?;
    Ok(rows.collect::<rusqlite::Result<_>>()?)
}
