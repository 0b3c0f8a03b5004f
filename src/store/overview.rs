//! Figures for the first page: counted from keys and by halving, never by a scan of what may be millions.

use super::search::{first_at, first_entry_at};
use crate::error::Result;
use crate::event::Millis;
use rusqlite::{Connection, OptionalExtension as _, params};

/// No count goes further than this; beyond it people read "more than".
pub const COUNT_MOST: i64 = 100_000;

/// What happened in a span of time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Span {
    /// Raw events received.
    pub received: i64,
    /// Journal entries written.
    pub posted: i64,
    /// Raw events that turned out to be repeats; at most [`COUNT_MOST`].
    pub repeats: i64,
    /// How long the slowest of a hundred took from receipt to its end, by a sample; `None`: nothing ended.
    pub apply_p99: Option<Millis>,
}

/// The figures of `[from, to)`.
pub fn span(conn: &Connection, from: Millis, to: Millis) -> Result<Span> {
    let (first, last) = (first_at(conn, from)?, first_at(conn, to)?);
    let posted = first_entry_at(conn, to)? - first_entry_at(conn, from)?;
    let repeats = conn
        .prepare_cached(
            "SELECT count(*) FROM (SELECT 1 FROM postonce_raw_events WHERE state = 'DUPLICATE' AND ended_at >= ?1 AND ended_at < ?2 LIMIT ?3)",
        )?
        .query_row(params![from, to, COUNT_MOST], |r| r.get(0))?;
    Ok(Span { received: (last - first).max(0), posted, repeats, apply_p99: apply_p99(conn, first, last)? })
}

/// From a sample of at most a thousand, spread over the span.
fn apply_p99(conn: &Connection, first: i64, last: i64) -> Result<Option<Millis>> {
    const SAMPLE: i64 = 1000;
    let mut statement =
        conn.prepare_cached("SELECT ended_at - received_at FROM postonce_raw_events WHERE id = ?1 AND state = 'DONE'")?;
    let step = ((last - first) / SAMPLE).max(1);
    let mut took = Vec::new();
    let mut id = first;
    while id < last {
        took.extend(statement.query_row([id], |r| r.get::<_, Millis>(0)).optional()?);
        id += step;
    }
    took.sort_unstable();
    let at = (took.len() * 99).div_ceil(100).saturating_sub(1);
    Ok(took.get(at).copied())
}

/// What waits for a person in one state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// PARKED, CONFLICT or DEAD.
    pub state: &'static str,
    /// How many; at most [`COUNT_MOST`].
    pub count: i64,
    /// The raw event that waits longest, and since when.
    pub oldest: Option<(i64, Millis)>,
}

/// What waits for a person, by state.
pub fn for_a_person(conn: &Connection) -> Result<Vec<Waiting>> {
    let mut found = Vec::new();
    for state in ["DEAD", "CONFLICT", "PARKED"] {
        let count = conn
            .prepare_cached(
                "SELECT count(*) FROM (SELECT 1 FROM postonce_raw_events WHERE state = ?1 AND (state = 'PARKED' OR state = 'CONFLICT' OR state = 'DEAD') LIMIT ?2)",
            )?
            .query_row(params![state, COUNT_MOST], |r| r.get(0))?;
        let oldest = conn
            .prepare_cached(
                "SELECT id, received_at FROM postonce_raw_events WHERE state = ?1 AND (state = 'PARKED' OR state = 'CONFLICT' OR state = 'DEAD')
                 ORDER BY id LIMIT 1",
            )?
            .query_row([state], |r| Ok((r.get(0)?, r.get(1)?)))
            .optional()?;
        found.push(Waiting { state, count, oldest });
    }
    Ok(found)
}

/// Raw events that are still on their way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OnTheWay {
    /// How many; at most [`COUNT_MOST`].
    pub count: i64,
    /// When the oldest of them was received (of the hundred that are due first).
    pub oldest: Option<Millis>,
}

/// Raw events that are still on their way.
pub fn on_the_way(conn: &Connection) -> Result<OnTheWay> {
    let count = conn
        .prepare_cached("SELECT count(*) FROM (SELECT 1 FROM postonce_raw_events WHERE due_at IS NOT NULL LIMIT ?1)")?
        .query_row([COUNT_MOST], |r| r.get(0))?;
    let oldest = conn
        .prepare_cached(
            "SELECT min(received_at) FROM (SELECT received_at FROM postonce_raw_events WHERE due_at IS NOT NULL ORDER BY due_at LIMIT 100)",
        )?
        .query_row([], |r| r.get(0))?;
    Ok(OnTheWay { count, oldest })
}

/// Keeps the times of an hour's answers.
pub fn keep_hour(tx: &super::Tx, hour: Millis, buckets: &str) -> Result<()> {
    tx.conn
        .prepare_cached(
            "INSERT INTO postonce_hours VALUES (?1, ?2) ON CONFLICT (hour) DO UPDATE SET buckets = excluded.buckets",
        )?
        .execute(params![hour, buckets])?;
    Ok(())
}

/// The times of answers, an hour a text, of the hours that begin in `[from, to)`.
pub fn hours(conn: &Connection, from: Millis, to: Millis) -> Result<Vec<String>> {
    let mut statement = conn.prepare_cached("SELECT buckets FROM postonce_hours WHERE hour >= ?1 AND hour < ?2")?;
    let rows = statement.query_map(params![from, to], |r| r.get(0))?;
    Ok(rows.collect::<rusqlite::Result<_>>()?)
}

/// The newest migration facts and sizes of the file, for the health page.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FileFacts {
    /// Pages of the file.
    pub pages: i64,
    /// Bytes a page.
    pub page_size: i64,
    /// Pages that are free inside it.
    pub free_pages: i64,
    /// The newest raw event.
    pub raw_events: i64,
    /// The newest journal entry: they have no gaps.
    pub entries: i64,
    /// The version of the tables.
    pub schema: String,
    /// The newest backup, as the backup itself noted it.
    pub last_backup: Option<String>,
}

/// Facts about the file.
pub fn file_facts(conn: &Connection) -> Result<FileFacts> {
    let number = |sql: &str| -> Result<i64> { Ok(conn.query_row(sql, [], |r| r.get(0))?) };
    Ok(FileFacts {
        pages: number("PRAGMA page_count")?,
        page_size: number("PRAGMA page_size")?,
        free_pages: number("PRAGMA freelist_count")?,
        raw_events: super::raw::newest(conn)?,
        entries: number("SELECT ifnull(max(id), 0) FROM postonce_journal")?,
        schema: super::meta(conn, "schema_version")?.unwrap_or_default(),
        last_backup: super::meta(conn, "last_backup")?,
    })
}
