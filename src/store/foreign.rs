//! Code that is not ours inside our transaction: a rule's SQL, an embedder's closure.
//!
//! The connection carries an authorizer and a commit hook that act only while such code runs: it cannot end the
//! transaction, touch our tables, attach a file, change a setting or the schema. It is interrupted when it holds the
//! write lock beyond its budget. Nothing here knows what the code is for.

use crate::error::{Error, Result};
use rusqlite::hooks::{AuthAction, AuthContext, Authorization};
use rusqlite::{Connection, types::Value};
use std::cell::Cell;
use std::time::{Duration, Instant};

thread_local! {
    /// Does code that is not ours run on this thread's connection?
    static FOREIGN: Cell<bool> = const { Cell::new(false) };
}

/// Sets the flag, and puts it back however `f` ends.
fn with_flag<T>(foreign: bool, f: impl FnOnce() -> T) -> T {
    struct Back(bool);
    impl Drop for Back {
        fn drop(&mut self) {
            FOREIGN.set(self.0);
        }
    }
    let _back = Back(FOREIGN.replace(foreign));
    f()
}

/// Runs code that is not ours: what it prepares on a guarded connection is checked.
pub fn foreign<T>(f: impl FnOnce() -> T) -> T {
    with_flag(true, f)
}

/// Runs our own statements inside of code that is not ours.
pub fn own<T>(f: impl FnOnce() -> T) -> T {
    with_flag(false, f)
}

/// Puts the guard on a connection, for good.
pub fn guard(conn: &Connection) -> Result<()> {
    conn.authorizer(Some(
        |context: AuthContext<'_>| {
            if FOREIGN.get() { allowed(&context.action) } else { Authorization::Allow }
        },
    ))?;
    // A second lock: whatever way a COMMIT is reached by foreign code, it becomes a rollback, which is noticed.
    conn.commit_hook(Some(|| FOREIGN.get()))?;
    Ok(())
}

fn ours(table: &str) -> bool {
    const PREFIX: &[u8] = b"postonce_";
    table.len() >= PREFIX.len() && table.as_bytes()[..PREFIX.len()].eq_ignore_ascii_case(PREFIX)
}

fn allowed(action: &AuthAction<'_>) -> Authorization {
    let fine = match action {
        AuthAction::Select | AuthAction::Recursive => true,
        AuthAction::Read { table_name, .. } => !ours(table_name),
        AuthAction::Insert { table_name }
        | AuthAction::Delete { table_name }
        | AuthAction::Update { table_name, .. } => {
            !ours(table_name) && !table_name.to_ascii_lowercase().starts_with("sqlite_")
        }
        AuthAction::Function { function_name } => !function_name.eq_ignore_ascii_case("load_extension"),
        // Full-text tables of the app ask for it; it changes nothing.
        AuthAction::Pragma { pragma_name, pragma_value } => {
            pragma_name.eq_ignore_ascii_case("data_version") && pragma_value.is_none()
        }
        _ => false,
    };
    if fine { Authorization::Allow } else { Authorization::Deny }
}

/// Interrupts whatever statement runs when the budget is over; what took longer without SQL is refused afterwards.
pub fn limited<T>(conn: &Connection, budget: Duration, f: impl FnOnce() -> Result<T>) -> Result<T> {
    struct Off<'c>(&'c Connection);
    impl Drop for Off<'_> {
        fn drop(&mut self) {
            let _ = self.0.progress_handler(0, None::<fn() -> bool>);
        }
    }
    let until = Instant::now() + budget;
    conn.progress_handler(1000, Some(move || Instant::now() > until))?;
    let off = Off(conn);
    let result = f();
    drop(off);
    if Instant::now() > until { Err(Error::OverBudget(budget.as_millis() as u64)) } else { result }
}

/// One statement of a rule, with what its parameters are called.
#[derive(Clone, Debug)]
pub struct Statement {
    sql: String,
}

/// Why a statement of a rule cannot be used.
#[derive(Debug)]
pub struct Unfit {
    /// The statement.
    pub sql: String,
    /// What SQLite or we say of it.
    pub why: String,
}

/// What a statement is for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// It changes rows.
    Change,
    /// It finds one value.
    Find,
}

impl Statement {
    /// Splits a text at its semicolons, leaving those in quotes and comments alone.
    pub fn split(text: &str) -> Vec<Statement> {
        let mut found = Vec::new();
        let bytes = text.as_bytes();
        let (mut begin, mut at) = (0, 0);
        let mut holds_code = false;
        let skip_to = |from: usize, end: &str| text[from..].find(end).map_or(bytes.len(), |n| from + n + end.len());
        while at < bytes.len() {
            match bytes[at] {
                b'-' if bytes[at..].starts_with(b"--") => at = skip_to(at, "\n"),
                b'/' if bytes[at..].starts_with(b"/*") => at = skip_to(at + 2, "*/"),
                quote @ (b'\'' | b'"' | b'`' | b'[') => {
                    let end = match quote {
                        b'[' => "]",
                        b'\'' => "'",
                        b'"' => "\"",
                        _ => "`",
                    };
                    (at, holds_code) = (skip_to(at + 1, end), true);
                }
                b';' => {
                    if holds_code {
                        found.push(Statement { sql: text[begin..at].trim().to_owned() });
                    }
                    (begin, at, holds_code) = (at + 1, at + 1, false);
                }
                other => {
                    holds_code |= !other.is_ascii_whitespace();
                    at += 1;
                }
            }
        }
        if holds_code {
            found.push(Statement { sql: text[begin..].trim().to_owned() });
        }
        found
    }

    /// Its text.
    pub fn sql(&self) -> &str {
        &self.sql
    }

    /// Prepares it on the real file without running it. `known` tells whether a parameter's name (without its colon)
    /// will be bound.
    pub fn check(
        &self,
        conn: &Connection,
        purpose: Purpose,
        known: impl Fn(&str) -> bool,
    ) -> std::result::Result<(), Unfit> {
        let unfit = |why: String| Unfit { sql: self.sql.clone(), why };
        foreign(|| {
            let statement = conn.prepare(&self.sql).map_err(|e| unfit(reason(&e)))?;
            for at in 1..=statement.parameter_count() {
                match statement.parameter_name(at) {
                    Some(name) if known(&name[1..]) => {}
                    Some(name) => return Err(unfit(format!("there is no value called {name}"))),
                    None => return Err(unfit("its parameters must have names, as :amount".into())),
                }
            }
            match purpose {
                Purpose::Change if statement.is_explain() != 0 || statement.readonly() => {
                    Err(unfit("it changes nothing: an effect is INSERT, UPDATE or DELETE".into()))
                }
                Purpose::Find if !statement.readonly() || statement.column_count() == 0 => {
                    Err(unfit("it must be a SELECT of one value".into()))
                }
                _ => Ok(()),
            }
        })
    }

    /// Runs it with `value` asked for each name; gives how many rows it changed.
    pub fn change(&self, conn: &Connection, value: impl Fn(&str) -> Value) -> Result<u64> {
        foreign(|| {
            let mut statement = self.prepared(conn, value)?;
            let before = conn.total_changes();
            let mut rows = statement.raw_query();
            while rows.next().map_err(|e| self.why(conn, e))?.is_some() {}
            drop(rows);
            // Triggers of the app count in total_changes and not in changes.
            Ok(if conn.total_changes() > before { conn.changes() } else { 0 })
        })
    }

    /// Runs it and gives the first column of its first row.
    pub fn find(&self, conn: &Connection, value: impl Fn(&str) -> Value) -> Result<Option<Value>> {
        foreign(|| {
            let mut statement = self.prepared(conn, value)?;
            let mut rows = statement.raw_query();
            Ok(match rows.next().map_err(|e| self.why(conn, e))? {
                Some(row) => Some(row.get::<_, Value>(0)?).filter(|v| *v != Value::Null),
                None => None,
            })
        })
    }

    fn prepared<'c>(
        &self,
        conn: &'c Connection,
        value: impl Fn(&str) -> Value,
    ) -> Result<rusqlite::CachedStatement<'c>> {
        // What cannot be prepared now could be when it was checked: a table or column is gone. It may come back.
        let mut statement = conn.prepare_cached(&self.sql).map_err(|e| self.does_not_fit(&e))?;
        for at in 1..=statement.parameter_count() {
            let bound = statement.parameter_name(at).map_or(Value::Null, |name| value(&name[1..]));
            statement.raw_bind_parameter(at, bound)?;
        }
        Ok(statement)
    }
}

impl Statement {
    fn does_not_fit(&self, error: &rusqlite::Error) -> Error {
        Error::parked(format!("the effect does not fit the tables: {}, in: {}", reason(error), self.sql), true)
    }

    /// A statement from the cache is prepared anew when the schema has changed, and then fails while it runs.
    fn why(&self, conn: &Connection, error: rusqlite::Error) -> Error {
        match (error.sqlite_error_code(), conn.prepare(&self.sql)) {
            (Some(rusqlite::ErrorCode::Unknown), Err(now)) => self.does_not_fit(&now),
            _ => error.into(),
        }
    }
}

/// What SQLite says, with the place in the statement where it knows it.
fn reason(error: &rusqlite::Error) -> String {
    match error {
        rusqlite::Error::SqlInputError { msg, offset, .. } if *offset > 0 => format!("{msg}, at character {offset}"),
        rusqlite::Error::SqlInputError { msg, .. } => msg.clone(),
        rusqlite::Error::SqliteFailure(code, _)
            if code.code == rusqlite::ErrorCode::AuthorizationForStatementDenied =>
        {
            "not allowed here: an effect reads and changes rows of the app's own tables, and nothing else".into()
        }
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn guarded() -> Connection {
        let conn = Connection::open_in_memory().expect("opens");
        conn.execute_batch(
            "CREATE TABLE users(id INTEGER PRIMARY KEY, credits INTEGER NOT NULL DEFAULT 0);
             CREATE TABLE postonce_claims(ref TEXT); CREATE TABLE log(what TEXT);
             CREATE INDEX of_log ON log(what); CREATE VIEW sly AS SELECT * FROM postonce_claims;
             CREATE TRIGGER slyer AFTER DELETE ON log BEGIN DELETE FROM Postonce_claims; END;
             INSERT INTO users(id) VALUES (1), (2);",
        )
        .expect("runs");
        guard(&conn).expect("guards");
        conn
    }

    #[test]
    fn foreign_code_cannot_leave_the_apps_own_rows() {
        let conn = guarded();
        conn.execute_batch("BEGIN").expect("ours may");
        for sql in [
            "COMMIT",
            "END",
            "ROLLBACK",
            "SAVEPOINT a",
            "RELEASE one",
            "ROLLBACK TO one",
            "BEGIN",
            "ATTACH 'x.db' AS x",
            "DETACH main",
            "PRAGMA synchronous = OFF",
            "PRAGMA user_version",
            "DROP TABLE users",
            "ALTER TABLE users ADD COLUMN x",
            "CREATE TABLE t(a)",
            "CREATE TEMP TABLE t(a)",
            "CREATE INDEX i ON users(credits)",
            "DELETE FROM POSTONCE_claims",
            "INSERT INTO postonce_claims VALUES ('a')",
            "UPDATE postonce_claims SET ref = 'a'",
            "SELECT * FROM postonce_claims",
            "SELECT * FROM sly",
            "DELETE FROM log",
            "INSERT INTO users SELECT 3, count(*) FROM postonce_claims",
            "UPDATE sqlite_schema SET sql = ''",
            "SELECT * FROM pragma_table_info('users')",
            "VACUUM",
            "REINDEX",
            "ANALYZE",
        ] {
            assert!(foreign(|| conn.execute_batch(sql)).is_err(), "{sql} was let through");
        }
        assert!(!conn.is_autocommit(), "the transaction is still open");
        foreign(|| conn.execute_batch("UPDATE users SET credits = credits + abs(-1)")).expect("its own rows it may");
        own(|| conn.execute_batch("DELETE FROM postonce_claims")).expect("ours may");
    }

    #[test]
    fn a_cached_commit_of_ours_commits_nothing_for_foreign_code() {
        let conn = guarded();
        conn.prepare_cached("BEGIN").and_then(|mut s| s.execute([])).expect("begins");
        conn.prepare_cached("COMMIT").and_then(|mut s| s.execute([])).expect("commits");
        conn.execute_batch("BEGIN; UPDATE users SET credits = 7").expect("begins");
        assert!(foreign(|| conn.prepare_cached("COMMIT").and_then(|mut s| s.execute([]))).is_err());
        let credits: i64 = conn.query_row("SELECT sum(credits) FROM users", [], |r| r.get(0)).expect("reads");
        assert_eq!(credits, 0);
    }

    #[test]
    fn a_text_is_split_where_statements_end() {
        let texts = |text: &str| Statement::split(text).iter().map(|s| s.sql().to_owned()).collect::<Vec<_>>();
        assert_eq!(texts("a 'x;y' ; b -- c;\n d; /* e; */ ;"), ["a 'x;y'", "b -- c;\n d"]);
        assert_eq!(texts("\"a;\" [b;] `c;`"), ["\"a;\" [b;] `c;`"]);
        assert_eq!(texts("'it''s; fine'; 'open; x"), ["'it''s; fine'", "'open; x"]);
        assert!(texts(" ;; -- only words").is_empty());
    }

    #[test]
    fn a_check_shows_what_is_wrong_before_anything_runs() {
        let conn = guarded();
        let check = |sql: &str, purpose| {
            let statement = Statement::split(sql).remove(0);
            statement.check(&conn, purpose, |name| name == "amount").map_err(|unfit| unfit.why)
        };
        assert!(check("UPDATE users SET credits = credits + :amount", Purpose::Change).is_ok());
        assert!(check("SELECT id FROM users WHERE credits = :amount", Purpose::Find).is_ok());
        for (sql, purpose, word) in [
            ("UPDATE user SET credits = :amount", Purpose::Change, "no such table: user"),
            ("UPDATE users SET credit = :amount", Purpose::Change, "no such column: credit"),
            ("UPDATE users SET credits = :amont", Purpose::Change, ":amont"),
            ("UPDATE users SET credits = ?", Purpose::Change, "names"),
            ("UPDAT users SET credits = 1", Purpose::Change, "syntax error"),
            ("SELECT id FROM users", Purpose::Change, "changes nothing"),
            ("UPDATE users SET credits = 1", Purpose::Find, "SELECT"),
            ("DROP TABLE users", Purpose::Change, "not allowed"),
        ] {
            let why = check(sql, purpose).expect_err(sql);
            assert!(why.contains(word), "{sql}: {why}");
        }
    }

    #[test]
    fn a_statement_that_runs_for_ever_is_interrupted() {
        let conn = guarded();
        let forever = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n";
        let result =
            limited(&conn, Duration::from_millis(30), || Ok(conn.query_row(forever, [], |r| r.get::<_, i64>(0))?));
        assert!(matches!(result, Err(Error::OverBudget(30))), "{result:?}");
        assert!(conn.query_row("SELECT 1", [], |r| r.get::<_, i64>(0)).is_ok(), "and the next one runs");
    }
}
