//! The audit: who changed what, and when. Written in the transaction of the change itself; never changed, never deleted.

use super::Tx;
use crate::clock::as_rfc3339;
use crate::error::Result;
use crate::event::Millis;
use rusqlite::{Connection, params};
use serde::Serialize;

/// One change by a person, before it is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// Who: the name given at login, the token's role, or the user of the command line.
    pub who: String,
    /// What: `replay`, `requeue`, `reverse`, …
    pub what: &'static str,
    /// To what: `event 12`, `message 3`, `entry 812`.
    pub target: String,
    /// Why, in the person's words; may be empty.
    pub note: String,
}

/// One change as it was written: the shape of `/api/v1/audit`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Line {
    /// In the order of the changes.
    pub id: i64,
    /// When.
    #[serde(serialize_with = "as_rfc3339")]
    pub at: Millis,
    /// See [`Change::who`].
    pub who: String,
    /// See [`Change::what`].
    pub what: String,
    /// See [`Change::target`].
    pub target: String,
    /// See [`Change::note`].
    pub note: Option<String>,
}

/// Writes a change.
pub fn write(tx: &Tx, change: &Change) -> Result<()> {
    tx.conn
        .prepare_cached("INSERT INTO postonce_audit(at, who, what, target, note) VALUES (?1, ?2, ?3, ?4, ?5)")?
        .execute(params![
            tx.now,
            change.who,
            change.what,
            change.target,
            (!change.note.is_empty()).then_some(&change.note)
        ])?;
    Ok(())
}

/// The newest changes below `before`, at most `limit`; of one target when it is named.
pub fn list(conn: &Connection, target: Option<&str>, before: Option<i64>, limit: usize) -> Result<Vec<Line>> {
    let of = if target.is_some() { "target = ?1 AND" } else { "?1 IS NULL AND" };
    let mut statement = conn.prepare_cached(&format!(
        "SELECT id, at, who, what, target, note FROM postonce_audit
         WHERE {of} id < ifnull(?2, 9223372036854775807) ORDER BY id DESC LIMIT ?3"
    ))?;
    let rows = statement.query_map(params![target, before, limit as i64], |r| {
        Ok(Line { id: r.get(0)?, at: r.get(1)?, who: r.get(2)?, what: r.get(3)?, target: r.get(4)?, note: r.get(5)? })
    })?;
    Ok(rows.collect::<rusqlite::Result<_>>()?)
}
