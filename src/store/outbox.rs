//! The outbox: messages written in the apply transaction, sent after it.

use super::Tx;
use crate::error::Result;
use crate::event::Millis;
use crate::fault;
use rusqlite::{Connection, OptionalExtension as _, params};

/// A message before it is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewMessage<'a> {
    /// The Idempotency-Key: one message per endpoint and business fact. A second one is dropped.
    pub key: &'a str,
    /// The endpoint's name in the configuration.
    pub endpoint: &'a str,
    /// Which raw event caused it.
    pub raw_event: i64,
    /// The entry it is about.
    pub journal: Option<i64>,
    /// What to send; `None`: composed from the entry when it is sent.
    pub payload: Option<&'a str>,
}

/// Writes a message; `false` when one with its key is there.
pub fn insert(tx: &Tx, message: &NewMessage) -> Result<bool> {
    let inserted = tx.run(
        "INSERT INTO postonce_outbox(key, endpoint, raw_event, journal, payload, state, due_at, created_at)
             VALUES (?1, ?2, ?3, ?4, ?5, 'WAITING', ?6, ?7) ON CONFLICT (key) DO NOTHING",
        params![message.key, message.endpoint, message.raw_event, message.journal, message.payload, tx.due_now, tx.now],
    )?;
    fault::point("message_written");
    Ok(inserted == 1)
}

/// A message that should be sent now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DueMessage {
    /// Its id.
    pub id: i64,
    /// The Idempotency-Key.
    pub key: String,
    /// The endpoint's name.
    pub endpoint: String,
    /// The entry it is about.
    pub journal: Option<i64>,
    /// What to send, when it is not composed.
    pub payload: Option<String>,
    /// How often it was tried.
    pub attempts: u32,
    /// When the fact was recorded.
    pub created_at: Millis,
}

/// What is due, oldest first. Touches only what is due.
pub fn due(conn: &Connection, now: Millis, limit: usize) -> Result<Vec<DueMessage>> {
    let mut statement = conn.prepare_cached(
        "SELECT id, key, endpoint, journal, payload, attempts, created_at FROM postonce_outbox
         WHERE due_at <= ?1 ORDER BY due_at LIMIT ?2",
    )?;
    let rows = statement.query_map(params![now, limit as i64], |r| {
        Ok(DueMessage {
            id: r.get(0)?,
            key: r.get(1)?,
            endpoint: r.get(2)?,
            journal: r.get(3)?,
            payload: r.get(4)?,
            attempts: r.get(5)?,
            created_at: r.get(6)?,
        })
    })?;
    Ok(rows.collect::<rusqlite::Result<_>>()?)
}

/// What came of sending a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attempt {
    /// The message.
    pub message: i64,
    /// When it began, wall time.
    pub at: Millis,
    /// The HTTP status, if there was an answer.
    pub status: Option<u16>,
    /// How long it took.
    pub took_ms: i64,
    /// What went wrong; `None`: it was accepted.
    pub error: Option<String>,
    /// When to try again; `None` with an error: never, it is dead.
    pub retry_in: Option<Millis>,
    /// A remark on one that did not fail: there was nobody to send it to.
    pub note: Option<String>,
}

/// Notes an attempt and moves the message on.
pub fn attempted(tx: &Tx, attempt: &Attempt) -> Result<()> {
    tx.conn
        .prepare_cached(
            "INSERT INTO postonce_attempts(message, at, status, took_ms, error) VALUES (?1, ?2, ?3, ?4, ?5)",
        )?
        .execute(params![
            attempt.message,
            attempt.at,
            attempt.status,
            attempt.took_ms,
            attempt.error.as_ref().or(attempt.note.as_ref())
        ])?;
    let state = match (&attempt.error, attempt.retry_in) {
        (None, _) => "SENT",
        (Some(_), Some(_)) => "WAITING",
        (Some(_), None) => "DEAD",
    };
    let due_at = attempt.retry_in.filter(|_| state == "WAITING").map(|wait| tx.due_now + wait);
    let ended_at = (state != "WAITING").then_some(tx.now);
    tx.conn
        .prepare_cached(
            "UPDATE postonce_outbox SET state = ?2, due_at = ?3, ended_at = ?4, attempts = attempts + 1, last_error = ?5
             WHERE id = ?1 AND state = 'WAITING'",
        )?
        .execute(params![attempt.message, state, due_at, ended_at, attempt.error.as_ref().or(attempt.note.as_ref())])?;
    Ok(())
}

/// Sends a dead message again, with its attempts reset.
pub fn requeue(tx: &Tx, id: i64) -> Result<bool> {
    let changed = tx
        .conn
        .prepare_cached(
            "UPDATE postonce_outbox SET state = 'WAITING', due_at = ?2, attempts = 0, ended_at = NULL WHERE id = ?1 AND state = 'DEAD'",
        )?
        .execute(params![id, tx.due_now])?;
    Ok(changed > 0)
}

/// How many messages wait.
pub fn waiting(conn: &Connection) -> Result<i64> {
    Ok(conn
        .prepare_cached("SELECT count(*) FROM postonce_outbox WHERE due_at IS NOT NULL")?
        .query_row([], |r| r.get(0))?)
}

/// When a message was last tried; 0 when none was.
pub fn newest_time(conn: &Connection) -> Result<Millis> {
    let sql = "SELECT at FROM postonce_attempts ORDER BY rowid DESC LIMIT 1";
    Ok(conn.query_row(sql, [], |r| r.get(0)).optional()?.unwrap_or(0))
}

/// At start: what is due later than the longest wait from now (the clock was wrong then) is due within seconds, spread.
pub fn release_all(tx: &Tx, longest_wait: Millis) -> Result<usize> {
    Ok(tx
        .conn
        .prepare_cached("UPDATE postonce_outbox SET due_at = ?1 + abs(random() % 5000) WHERE due_at > ?1 + ?2")?
        .execute(params![tx.due_now, longest_wait])?)
}

/// When the next message is due.
pub fn next_due(conn: &Connection) -> Result<Option<Millis>> {
    Ok(conn
        .prepare_cached("SELECT min(due_at) FROM postonce_outbox WHERE due_at IS NOT NULL")?
        .query_row([], |r| r.get(0))?)
}

/// The newest message.
pub fn newest(conn: &Connection) -> Result<i64> {
    Ok(conn.query_row("SELECT ifnull(max(id), 0) FROM postonce_outbox", [], |r| r.get(0))?)
}
