//! `apply_once`: the ten lines for those who want nothing else. One small table in the app's own connection says what
//! has been done under which key, and with what result, in the same commit as the work.
//!
//! Never changes a setting or a hook of the connection, which is the app's.

use crate::clock;
use crate::error::ApplyError;
use rusqlite::{Connection, OptionalExtension as _, TransactionBehavior, params};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// What became of the work under a key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome<R> {
    /// It was done now, and committed.
    Processed(R),
    /// It was done before; this is what it gave then.
    Duplicate(R),
}

impl<R> Outcome<R> {
    /// The result, whenever it was reached.
    pub fn into_inner(self) -> R {
        match self {
            Outcome::Processed(result) | Outcome::Duplicate(result) => result,
        }
    }
}

/// The open transaction of [`apply_once`]. It cannot be committed by whoever has it.
pub struct Once<'a> {
    conn: &'a Connection,
}

impl Once<'_> {
    /// Runs SQL on the app's connection, inside the transaction.
    ///
    /// `COMMIT` fails while the work runs, and `ROLLBACK` undoes everything and makes [`apply_once`] fail.
    pub fn sql(&self) -> &Connection {
        self.conn
    }
}

/// Does the work under `key` exactly once: the work and the note that it was done are one commit.
///
/// `key` is the provider's own reference (`stripe:payment:pi_1`), never a time or a hash of the body. The table
/// `postonce_once` is made when it is not there. The result is kept as JSON and given back to every later call, for ever.
/// Waits for other writers as long as the connection's `busy_timeout` says.
///
/// ```
/// use postonce::{Outcome, apply_once, rusqlite::Connection};
///
/// let mut conn = Connection::open_in_memory()?;
/// conn.execute_batch("CREATE TABLE users(id TEXT, credits INTEGER); INSERT INTO users VALUES ('ann', 0)")?;
/// for delivery in 1..=3 {
///     let outcome = apply_once(&mut conn, "stripe:payment:pi_1", |tx| {
///         tx.sql().execute("UPDATE users SET credits = credits + 500 WHERE id = 'ann'", [])?;
///         Ok(500)
///     })?;
///     assert_eq!(outcome, if delivery == 1 { Outcome::Processed(500) } else { Outcome::Duplicate(500) });
/// }
/// assert_eq!(conn.query_row("SELECT credits FROM users", [], |r| r.get::<_, i64>(0))?, 500);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// Whatever the work says, and [`ApplyError::Retry`] when SQLite fails, the work panics or ends the transaction itself.
/// In all cases nothing was written, and the key is free.
pub fn apply_once<R, F>(conn: &mut Connection, key: &str, work: F) -> Result<Outcome<R>, ApplyError>
where
    R: Serialize + DeserializeOwned,
    F: FnOnce(&Once<'_>) -> Result<R, ApplyError>,
{
    if key.is_empty() {
        return Err(ApplyError::Reject("an empty key would make everything the same".into()));
    }
    let tx = conn.transaction_with_behavior(TransactionBehavior::Immediate)?;
    if !tx.table_exists(None, "postonce_once")? {
        tx.execute_batch(schema())?;
    }
    if let Some(stored) = stored(&tx, key)? {
        let result = serde_json::from_str(&stored)
            .map_err(|e| ApplyError::Reject(format!("what is stored under {key:?} is of another type: {e}")))?;
        return Ok(Outcome::Duplicate(result));
    }
    let result = {
        let mut insert = tx.prepare_cached("INSERT INTO postonce_once(key, at) VALUES (?1, ?2) RETURNING key")?;
        let mut rows = insert.query(params![key, clock::wall()])?;
        rows.next()?;
        // While this statement has a row to give, SQLite refuses to commit.
        let result = catch_unwind(AssertUnwindSafe(|| work(&Once { conn: &tx })));
        if tx.is_autocommit() {
            return Err(ApplyError::Retry("the work ended the transaction itself; nothing was written".into()));
        }
        result.map_err(|_| ApplyError::Retry("the work panicked".into()))??
    };
    let text = serde_json::to_string(&result)?;
    let noted = tx
        .prepare_cached("UPDATE postonce_once SET result = ?2 WHERE key = ?1 AND result IS NULL")?
        .execute(params![key, text])?;
    if noted != 1 {
        return Err(ApplyError::Retry("the work removed the note of its own key".into()));
    }
    tx.commit()?;
    Ok(Outcome::Processed(result))
}

/// Notes inside of our own transaction that something was done under a key; `false`: it was there already.
pub(crate) fn note(tx: &super::Tx, key: &str, result: &str) -> crate::error::Result<bool> {
    let sql = "INSERT INTO postonce_once(key, at, result) VALUES (?1, ?2, ?3) ON CONFLICT DO NOTHING";
    Ok(tx.conn.prepare_cached(sql)?.execute(params![key, tx.now, result])? == 1)
}

/// What was done under a key gave this.
pub(crate) fn stored(conn: &Connection, key: &str) -> rusqlite::Result<Option<String>> {
    conn.prepare_cached("SELECT result FROM postonce_once WHERE key = ?1")?.query_row([key], |r| r.get(0)).optional()
}

/// The table's part of the schema.
fn schema() -> &'static str {
    const SCHEMA: &str = include_str!("../../schema.sql");
    const BEGIN: &str = "CREATE TABLE IF NOT EXISTS postonce_once";
    SCHEMA.find(BEGIN).map_or("", |at| &SCHEMA[at..])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn app() -> Connection {
        let conn = Connection::open_in_memory().expect("opens");
        conn.execute_batch("CREATE TABLE users(credits INTEGER CHECK (credits < 100)); INSERT INTO users VALUES (0)")
            .expect("runs");
        conn
    }

    fn credits(conn: &Connection) -> i64 {
        conn.query_row("SELECT credits FROM users", [], |r| r.get(0)).expect("reads")
    }

    fn add(tx: &Once<'_>) -> rusqlite::Result<usize> {
        tx.sql().execute("UPDATE users SET credits = credits + 7", [])
    }

    #[test]
    fn a_commit_inside_the_work_is_refused_and_the_work_goes_on() {
        let mut conn = app();
        let outcome = apply_once(&mut conn, "k", |tx| {
            add(tx)?;
            for sql in ["COMMIT", "END"] {
                assert!(tx.sql().execute_batch(sql).is_err(), "{sql} went through");
                assert!(!tx.sql().is_autocommit());
            }
            Ok("done".to_owned())
        });
        assert_eq!(outcome.expect("is done"), Outcome::Processed("done".to_owned()));
        assert_eq!(credits(&conn), 7);
    }

    #[test]
    fn work_that_rolls_back_fails_panics_or_breaks_a_constraint_leaves_nothing_and_its_key_free() {
        let mut conn = app();
        type Failing = fn(&Once<'_>) -> Result<(), ApplyError>;
        let failures: [Failing; 5] = [
            |tx| Ok(tx.sql().execute_batch("ROLLBACK")?),
            |_| Err(ApplyError::Reject("no".into())),
            |_| panic!("oh"),
            |tx| Ok(tx.sql().execute_batch("UPDATE users SET credits = 1000")?),
            |tx| Ok(tx.sql().execute_batch("DELETE FROM postonce_once; COMMIT")?),
        ];
        for (at, failure) in failures.into_iter().enumerate() {
            let outcome = apply_once(&mut conn, "k", |tx| {
                add(tx)?;
                failure(tx)
            });
            assert!(outcome.is_err(), "failure {at}");
            assert_eq!(credits(&conn), 0, "failure {at}");
            assert!(conn.is_autocommit(), "failure {at}");
        }
        let outcome = apply_once(&mut conn, "k", |tx| {
            add(tx)?;
            Ok(())
        });
        assert_eq!(outcome.expect("is done"), Outcome::Processed(()));
        assert_eq!(credits(&conn), 7);
    }

    #[test]
    fn what_was_done_is_never_forgotten() {
        let mut conn = app();
        apply_once(&mut conn, "k", |_| Ok(1)).expect("is done");
        assert!(conn.execute("DELETE FROM postonce_once", []).is_err());
        assert!(conn.execute("UPDATE postonce_once SET result = '2'", []).is_err());
        assert_eq!(apply_once(&mut conn, "k", |_| Ok(2)).expect("is told"), Outcome::Duplicate(1));
    }
}
