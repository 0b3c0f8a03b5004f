//! Alerts as rows: one for each trouble while it lasts.

use super::Tx;
use crate::error::Result;
use crate::event::Millis;
use rusqlite::{Connection, Row, params};

/// An alert.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Alert {
    /// Its number.
    pub id: i64,
    /// dead, conflict, rejected, silence, disk, …
    pub kind: String,
    /// The source or endpoint; empty for the whole server.
    pub subject: String,
    /// Since when, wall time.
    pub opened_at: Millis,
    /// Until when; `None`: it lasts.
    pub closed_at: Option<Millis>,
    /// How much of it.
    pub count: i64,
    /// How often it was told.
    pub told: u32,
    /// When it was told last.
    pub told_at: Millis,
    /// The count then.
    pub told_count: i64,
    /// For a person.
    pub what: String,
}

const COLUMNS: &str =
    "id, kind, subject, opened_at, closed_at, count, told, told_at, told_count, what FROM postonce_alerts";

fn row(r: &Row) -> rusqlite::Result<Alert> {
    Ok(Alert {
        id: r.get(0)?,
        kind: r.get(1)?,
        subject: r.get(2)?,
        opened_at: r.get(3)?,
        closed_at: r.get(4)?,
        count: r.get(5)?,
        told: r.get(6)?,
        told_at: r.get(7)?,
        told_count: r.get(8)?,
        what: r.get(9)?,
    })
}

/// Those that last.
pub fn open(conn: &Connection) -> Result<Vec<Alert>> {
    let mut statement = conn.prepare_cached(&format!("SELECT {COLUMNS} WHERE closed_at IS NULL ORDER BY id"))?;
    Ok(statement.query_map([], row)?.collect::<rusqlite::Result<_>>()?)
}

/// The newest, open or not.
pub fn newest(conn: &Connection, limit: u32) -> Result<Vec<Alert>> {
    let mut statement = conn.prepare_cached(&format!("SELECT {COLUMNS} ORDER BY id DESC LIMIT ?1"))?;
    Ok(statement.query_map([limit], row)?.collect::<rusqlite::Result<_>>()?)
}

/// Opens one; gives its number, or that of the one that lasts already.
pub fn insert(tx: &Tx, kind: &str, subject: &str, count: i64, what: &str) -> Result<i64> {
    Ok(tx
        .conn
        .prepare_cached(
            "INSERT INTO postonce_alerts(kind, subject, opened_at, seen_at, count, what) VALUES (?1, ?2, ?3, ?3, ?4, ?5)
             ON CONFLICT (kind, subject) WHERE closed_at IS NULL DO UPDATE SET seen_at = excluded.seen_at,
               count = excluded.count, what = excluded.what
             RETURNING id",
        )?
        .query_row(params![kind, subject, tx.now, count, what], |r| r.get(0))?)
}

/// Notes that it was told.
pub fn told(tx: &Tx, id: i64) -> Result<()> {
    tx.conn
        .prepare_cached("UPDATE postonce_alerts SET told = told + 1, told_at = ?2, told_count = count WHERE id = ?1")?
        .execute(params![id, tx.now])?;
    Ok(())
}

/// It is over.
pub fn close(tx: &Tx, id: i64) -> Result<bool> {
    let changed = tx
        .conn
        .prepare_cached("UPDATE postonce_alerts SET closed_at = ?2 WHERE id = ?1 AND closed_at IS NULL")?
        .execute(params![id, tx.now])?;
    Ok(changed > 0)
}
