//! What a person does to a discrepancy: assign it, or end it with a resolution. Never without a note.

use super::Tx;
use crate::error::{Error, Result};
use rusqlite::{OptionalExtension as _, params};

/// How a person may end one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resolution {
    /// A correcting entry was posted.
    PostedCorrection,
    /// The provider's report is wrong.
    ProviderError,
    /// It is as it is, for the reason in the note.
    Accepted,
    /// It is told by another discrepancy.
    DuplicateOf,
}

impl Resolution {
    /// All of them, with the words of forms and API.
    pub const WORDS: [(&str, Resolution); 4] = [
        ("accepted", Resolution::Accepted),
        ("posted_correction", Resolution::PostedCorrection),
        ("provider_error", Resolution::ProviderError),
        ("duplicate_of", Resolution::DuplicateOf),
    ];

    /// The word in the table.
    pub fn as_str(self) -> &'static str {
        match self {
            Resolution::PostedCorrection => "POSTED_CORRECTION",
            Resolution::ProviderError => "PROVIDER_ERROR",
            Resolution::Accepted => "ACCEPTED",
            Resolution::DuplicateOf => "DUPLICATE_OF",
        }
    }
}

fn noted(note: &str) -> Result<&str> {
    let note = note.trim();
    if note.is_empty() {
        return Err(Error::refused("a discrepancy is changed with a note only", "say in a few words why"));
    }
    Ok(note)
}

/// Its state and what it is about, if it is still open.
fn still_open(tx: &Tx, id: i64) -> Result<(String, String, i64, Option<i64>)> {
    let found: Option<(String, String, i64, Option<i64>)> = tx
        .conn
        .prepare_cached("SELECT state, class, book, entry FROM postonce_discrepancies WHERE id = ?1")?
        .query_row([id], |r| Ok((r.get(0)?, r.get(1)?, r.get(2)?, r.get(3)?)))
        .optional()?;
    match found {
        None => Err(Error::refused(format!("there is no discrepancy {id}"), "see the settlement page")),
        Some((state, ..)) if state == "RESOLVED" => {
            Err(Error::refused(format!("discrepancy {id} is resolved"), "a resolved one is history"))
        }
        Some(found) => Ok(found),
    }
}

fn log(tx: &Tx, id: i64, who: &str, from: &str, to: &str, note: &str) -> Result<()> {
    tx.conn
        .prepare_cached(
            "INSERT INTO postonce_discrepancy_log(discrepancy, at, actor, from_state, to_state, note) VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
        )?
        .execute(params![id, tx.now, who, from, to, note])?;
    Ok(())
}

/// Gives it to somebody.
pub fn assign(tx: &Tx, id: i64, to: &str, who: &str, note: &str) -> Result<()> {
    let note = noted(note)?;
    let (state, ..) = still_open(tx, id)?;
    tx.conn
        .prepare_cached("UPDATE postonce_discrepancies SET state = 'ASSIGNED', assignee = ?2 WHERE id = ?1")?
        .execute(params![id, to])?;
    log(tx, id, who, &state, "ASSIGNED", note)
}

/// Ends it. An entry that is accepted as missing in their report counts as settled from now on.
pub fn resolve(tx: &Tx, id: i64, how: Resolution, who: &str, note: &str) -> Result<()> {
    let note = noted(note)?;
    let (state, class, book, entry) = still_open(tx, id)?;
    tx.conn
        .prepare_cached(
            "UPDATE postonce_discrepancies SET state = 'RESOLVED', resolution = ?2, resolved_at = ?3 WHERE id = ?1",
        )?
        .execute(params![id, how.as_str(), tx.now])?;
    if let (Some(entry), "MISSING_THEIRS") = (entry, class.as_str()) {
        tx.conn
            .prepare_cached(
                "INSERT INTO postonce_settled(entry, book, line_ref, line, run, at) VALUES (?1, ?2, ?3, NULL, NULL, ?4)
                 ON CONFLICT (entry) DO NOTHING",
            )?
            .execute(params![entry, book, format!("discrepancy:{id}"), tx.now])?;
    }
    log(tx, id, who, &state, "RESOLVED", note)
}
