//! What waits, what is late, what needs a person: asked by metrics, alerts and pages. Reads only, by small indexes.

use super::search;
use crate::error::Result;
use crate::event::Millis;
use rusqlite::{Connection, Row};

/// What the tables hold of unfinished things now. Counts, and ages in seconds.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Backlog {
    /// Raw events not ended.
    pub waiting: i64,
    /// Age of the oldest of them; 0 when nothing waits.
    pub oldest_unapplied_s: i64,
    /// Messages not accepted yet.
    pub messages_waiting: i64,
    /// How late the most overdue message is; 0 when none is.
    pub outbox_lag_s: i64,
    /// Messages given up.
    pub messages_dead: i64,
    /// Dead letters.
    pub dead: i64,
    /// Parked events.
    pub parked: i64,
    /// Conflicts.
    pub conflict: i64,
    /// Alerts that last.
    pub alerts_open: i64,
    /// Settlement discrepancies that a person has to see.
    pub discrepancies_open: i64,
}

/// The oldest of what waits is looked for among this many that are due first.
const LOOK_AT: i64 = 1000;

/// Asks the tables.
pub fn backlog(conn: &Connection, steady: Millis, wall: Millis) -> Result<Backlog> {
    let number = |sql: &str| -> Result<i64> { Ok(conn.prepare_cached(sql)?.query_row([], |r| r.get(0))?) };
    let oldest: Option<Millis> = conn
        .prepare_cached(
            "SELECT min(received_at) FROM (SELECT received_at FROM postonce_raw_events WHERE due_at IS NOT NULL AND state <> 'PARKED' ORDER BY due_at LIMIT ?1)",
        )?
        .query_row([LOOK_AT], |r| r.get(0))?;
    let first_due: Option<Millis> = conn
        .prepare_cached("SELECT min(due_at) FROM postonce_outbox WHERE due_at IS NOT NULL")?
        .query_row([], |r| r.get(0))?;
    let mut backlog = Backlog {
        waiting: number("SELECT count(*) FROM postonce_raw_events WHERE due_at IS NOT NULL AND state <> 'PARKED'")?,
        oldest_unapplied_s: oldest.map_or(0, |at| (wall - at).max(0) / 1000),
        messages_waiting: number("SELECT count(*) FROM postonce_outbox WHERE due_at IS NOT NULL")?,
        outbox_lag_s: first_due.map_or(0, |due| (steady - due).max(0) / 1000),
        messages_dead: number("SELECT count(*) FROM postonce_outbox WHERE state = 'DEAD'")?,
        alerts_open: number("SELECT count(*) FROM postonce_alerts WHERE closed_at IS NULL")?,
        discrepancies_open: number("SELECT count(*) FROM postonce_discrepancies WHERE state <> 'RESOLVED'")?,
        ..Backlog::default()
    };
    let mut statement = conn.prepare_cached(
        "SELECT state, count(*) FROM postonce_raw_events WHERE (state = 'PARKED' OR state = 'CONFLICT' OR state = 'DEAD') GROUP BY state",
    )?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        let count = row.get(1)?;
        match row.get::<_, String>(0)?.as_str() {
            "PARKED" => backlog.parked = count,
            "CONFLICT" => backlog.conflict = count,
            _ => backlog.dead = count,
        }
    }
    Ok(backlog)
}

/// One group of troubled things: whose, how many, the newest of them and its reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// The source's or endpoint's name.
    pub name: String,
    /// How many.
    pub count: i64,
    /// The newest's number.
    pub newest: i64,
    /// Why the newest is there.
    pub reason: String,
}

fn groups(conn: &Connection, sql: &str) -> Result<Vec<Group>> {
    let mut statement = conn.prepare_cached(sql)?;
    let rows = statement.query_map([], group)?;
    Ok(rows.collect::<rusqlite::Result<_>>()?)
}

fn group(r: &Row) -> rusqlite::Result<Group> {
    let reason = r.get::<_, Option<String>>(3)?.unwrap_or_default();
    Ok(Group { name: r.get(0)?, count: r.get(1)?, newest: r.get(2)?, reason })
}

/// Dead letters by source.
pub fn dead_by_source(conn: &Connection) -> Result<Vec<Group>> {
    groups(
        conn,
        "SELECT s.name, count(*), max(r.id), r.reason FROM postonce_raw_events r JOIN postonce_sources s ON s.id = r.source
         WHERE r.state = 'DEAD' GROUP BY s.name",
    )
}

/// Conflicts by source.
pub fn conflicts_by_source(conn: &Connection) -> Result<Vec<Group>> {
    groups(
        conn,
        "SELECT s.name, count(*), max(r.id), r.reason FROM postonce_raw_events r JOIN postonce_sources s ON s.id = r.source
         WHERE r.state = 'CONFLICT' GROUP BY s.name",
    )
}

/// Parked events by source: those that came before `before`, by number (numbers grow with time).
pub fn parked_by_source(conn: &Connection, before: Millis) -> Result<Vec<Group>> {
    let first = search::first_at(conn, before)?;
    let mut statement = conn.prepare_cached(
        "SELECT s.name, count(*), max(r.id), r.reason FROM postonce_raw_events r JOIN postonce_sources s ON s.id = r.source
         WHERE r.state = 'PARKED' AND r.id < ?1 GROUP BY s.name",
    )?;
    let rows = statement.query_map([first], group)?;
    Ok(rows.collect::<rusqlite::Result<_>>()?)
}

/// Dead messages by endpoint, without those of alerts.
pub fn dead_messages(conn: &Connection) -> Result<Vec<Group>> {
    groups(
        conn,
        "SELECT endpoint, count(*), max(id), last_error FROM postonce_outbox WHERE state = 'DEAD' AND raw_event > 0 GROUP BY endpoint",
    )
}
