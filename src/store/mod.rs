//! Storage: every SQL statement of postonce, in one SQLite file.
//!
//! `open` prepares the file, `gate` is the only place that begins a write, the other files hold the statements of one
//! table family each and take the open transaction. Nothing here knows of HTTP or of providers, and nothing here calls
//! out while a transaction is open.

mod access;
pub mod alerts;
pub mod audit;
pub mod backup;
pub mod bodies;
pub mod books;
pub mod check;
pub mod claims;
pub mod entities;
pub mod foreign;
mod fresh;
pub mod gate;
pub mod health;
mod history;
pub mod ledger;
pub mod listing;
mod lock;
pub mod messages;
pub mod neighbours;
pub mod once;
mod open;
pub mod outbox;
pub mod overview;
pub mod raw;
pub mod retain;
pub mod search;
pub mod settlement;
pub mod settlement_view;
pub mod sums;
pub mod tail;

use crate::error::{Error, Result};
use crate::event::{Millis, Mode};
pub use access::{Access, Beside, Pour};
use fresh::Fresh;
use gate::Gate;
#[cfg(feature = "faults")]
pub use open::Faulty;
pub use open::{Lock, Options, SQLITE_OLDEST, beside, file_system, open_for_reading};
use rusqlite::{CachedStatement, Connection, OptionalExtension as _, ToSql, params};
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, RwLock};
use std::time::Duration;

/// The open file: one gate for writes, a few connections for reads, and the lock that says it is ours.
pub struct Store {
    path: PathBuf,
    readers: open::Readers,
    gate: Gate,
    fresh: Arc<Fresh>,
    /// Held for as long as the store lives, so that a second process is refused.
    _lock: open::Lock,
    unclean: bool,
}

impl Store {
    /// Opens (or makes) the file for this one server process.
    pub fn open(path: &Path, options: &Options) -> Result<Store> {
        let lock = open::Lock::take(path)?;
        let (writer, unclean) = open::open_writer(path, options)?;
        let readers = open::Readers::new(RwLock::new(Some(open::readers(path, options)?)));
        let fresh = Arc::<Fresh>::default();
        let gate = Gate::start(writer, path.to_owned(), options.clone(), readers.clone(), fresh.clone());
        Ok(Store { path: path.to_owned(), readers, gate, fresh, _lock: lock, unclean })
    }

    /// Where the file is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Did the process before end without saying so (killed, power cut)?
    pub fn was_unclean(&self) -> bool {
        self.unclean
    }

    /// The way to write.
    pub fn gate(&self) -> &Gate {
        &self.gate
    }

    /// What was kept a moment ago.
    pub fn fresh(&self) -> &Fresh {
        &self.fresh
    }

    /// Runs `f` in a write transaction and returns once the fsync that covers it is done. `f` may run again when the
    /// transaction is lost, so it must have no effect beyond it.
    pub fn write<T: Send + 'static>(&self, f: impl FnMut(&Tx) -> Result<T> + Send + 'static) -> Result<T> {
        self.gate.write(f)
    }

    /// Runs `f` on a connection that cannot write.
    pub fn read<T>(&self, f: impl FnOnce(&Connection) -> Result<T>) -> Result<T> {
        f(&*self.pools()?.workers.get()?)
    }

    fn pools(&self) -> Result<open::Pools> {
        let pools = self.readers.read().expect("no panic while it is held").clone();
        pools.ok_or_else(|| Error::Unavailable("it has stopped, or is being opened again".into()))
    }

    /// Runs `f` for a person: on a connection set apart, over one snapshot, and for no longer than a person waits.
    pub fn look<T>(&self, f: impl FnOnce(&Connection) -> Result<T>) -> Result<T> {
        const PATIENCE: std::time::Duration = std::time::Duration::from_secs(5);
        let conn = self.pools()?.people.get()?;
        let until = std::time::Instant::now() + PATIENCE;
        conn.progress_handler(10_000, Some(move || std::time::Instant::now() > until))?;
        let snapshot = conn.unchecked_transaction()?;
        let found = f(&conn);
        drop(snapshot);
        conn.progress_handler(0, None::<fn() -> bool>)?;
        match found {
            Err(Error::Sqlite(e)) if e.sqlite_error_code() == Some(rusqlite::ErrorCode::OperationInterrupted) => Err(
                Error::refused("this question takes longer than a page may", "narrow it: a shorter time, one account"),
            ),
            other => other,
        }
    }

    /// Writes what is pending, marks the stop as clean and folds the WAL into the file, so that the file alone is whole.
    pub fn stop(&self) {
        // The writer closes last, so that SQLite folds the log in and removes it.
        drop(self.readers.write().expect("no panic while it is held").take());
        self.gate.stop();
    }
}

/// The statements of a transaction that every event needs, at hand until its end: to look one up by its text each time
/// costs a tenth of its work.
struct AtHand<'a> {
    conn: &'a Connection,
    statements: RefCell<Vec<(&'static str, CachedStatement<'a>)>>,
}

impl<'a> AtHand<'a> {
    fn of(conn: &'a Connection) -> AtHand<'a> {
        AtHand { conn, statements: RefCell::default() }
    }
}

/// Only so that a [`Tx`] need not name how long its statements live.
trait Run {
    fn run(&self, sql: &'static str, params: &[&dyn ToSql]) -> Result<usize>;
}

impl Run for AtHand<'_> {
    fn run(&self, sql: &'static str, params: &[&dyn ToSql]) -> Result<usize> {
        let mut statements = self.statements.borrow_mut();
        let at = match statements.iter().position(|(text, _)| std::ptr::eq(*text, sql)) {
            Some(at) => at,
            None => {
                statements.push((sql, self.conn.prepare_cached(sql)?));
                statements.len() - 1
            }
        };
        Ok(statements[at].1.execute(params)?)
    }
}

/// A statement, said twice: without savepoints its failure undoes the whole transaction, and it says so ("OR FAIL"), so that
/// it need not keep what it would take to undo itself.
macro_rules! or_fail {
    ($tx:expr, $verb:literal, $rest:literal) => {
        if $tx.trusting { concat!($verb, " OR FAIL ", $rest) } else { concat!($verb, " ", $rest) }
    };
}
use or_fail;

/// An open write transaction. Cannot commit: only the gate does.
pub struct Tx<'a> {
    /// The connection; SQL runs on it directly.
    pub conn: &'a Connection,
    /// Wall time at its beginning; for the bodies, which join at its end, the time of that.
    pub now: Millis,
    /// Steady time, for due times.
    pub due_now: Millis,
    /// How long one apply of code that is not ours may hold the write lock.
    pub apply_budget: Duration,
    names: &'a Names,
    trusting: bool,
    seen: Seen,
    at_hand: &'a dyn Run,
}

/// What this transaction has seen already, and nobody else can change before its end. Forgotten when a part is undone.
#[derive(Default)]
struct Seen {
    last_entry: Cell<Option<(i64, [u8; 32])>>,
    anybody_waits: Cell<Option<bool>>,
}

impl Seen {
    fn forget(&self) {
        self.last_entry.set(None);
        self.anybody_waits.set(None);
    }
}

/// Ids of names that are in nearly every key, kept in memory. Cleared whenever something is rolled back.
#[derive(Default)]
pub struct Names {
    sources: RefCell<HashMap<String, i64>>,
    books: RefCell<HashMap<Book, i64>>,
    pub(crate) accounts: RefCell<HashMap<ledger::AccountKey, i64>>,
}

impl Names {
    fn clear(&self) {
        self.sources.borrow_mut().clear();
        self.books.borrow_mut().clear();
        self.accounts.borrow_mut().clear();
    }
}

/// One ledger: whose, at which provider (and account there), live or test.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Book {
    /// The source's tenant.
    pub tenant: String,
    /// The provider's name.
    pub provider: String,
    /// The provider's own account, empty where there is none.
    pub provider_account: String,
    /// Live or test money.
    pub mode: Mode,
}

impl Book {
    /// The provider of keys that are unique across providers.
    const ACROSS_PROVIDERS: &str = "*";

    /// Where the operations of a book's tenant have their keys, whoever announces them.
    pub fn of_operations(book: &Book) -> Book {
        Book { provider: Book::ACROSS_PROVIDERS.into(), provider_account: String::new(), ..book.clone() }
    }
}

impl<'a> Tx<'a> {
    /// The same transaction as if the clock said something else: for what is brought in as of another day.
    pub fn as_of<T>(&self, now: Millis, f: impl FnOnce(&Tx) -> T) -> T {
        self.seen.forget();
        f(&Tx { now, seen: Seen::default(), ..*self })
    }

    /// The id of a source by name.
    pub fn source(&self, name: &str) -> Result<i64> {
        if let Some(id) = self.names.sources.borrow().get(name) {
            return Ok(*id);
        }
        self.conn
            .prepare_cached("INSERT INTO postonce_sources(name) VALUES (?1) ON CONFLICT DO NOTHING")?
            .execute([name])?;
        let id = self
            .conn
            .prepare_cached("SELECT id FROM postonce_sources WHERE name = ?1")?
            .query_row([name], |r| r.get(0))?;
        self.names.sources.borrow_mut().insert(name.to_owned(), id);
        Ok(id)
    }

    /// The id of a book.
    pub fn book(&self, book: &Book) -> Result<i64> {
        if let Some(id) = self.names.books.borrow().get(book) {
            return Ok(*id);
        }
        let key = params![book.tenant, book.provider, book.provider_account, book.mode.as_str()];
        self.conn
            .prepare_cached(
                "INSERT INTO postonce_books(tenant, provider, provider_account, mode) VALUES (?1, ?2, ?3, ?4)
                 ON CONFLICT DO NOTHING",
            )?
            .execute(key)?;
        let id = self
            .conn
            .prepare_cached(
                "SELECT id FROM postonce_books WHERE tenant = ?1 AND provider = ?2 AND provider_account = ?3 AND mode = ?4",
            )?
            .query_row(key, |r| r.get(0))?;
        self.names.books.borrow_mut().insert(book.clone(), id);
        Ok(id)
    }

    /// Is this a transaction without savepoints? They cost more than the work that they guard, and nearly never is there
    /// anything to undo. Whatever would need one gives [`Error::Again`] there, which a job passes on: the gate undoes the
    /// whole transaction and runs it again with them.
    pub fn is_trusting(&self) -> bool {
        self.trusting
    }

    /// Runs one of the statements that every event needs. Gives the number of rows.
    fn run(&self, sql: &'static str, params: &[&dyn ToSql]) -> Result<usize> {
        self.at_hand.run(sql, params)
    }

    /// Runs `f` in a savepoint: its error undoes what it did and nothing else.
    pub fn savepoint<T>(&self, f: impl FnOnce() -> Result<T>) -> Result<T> {
        if self.trusting {
            return f().map_err(|_| Error::Again);
        }
        let run = |sql: &str| self.conn.prepare_cached(sql)?.execute([]).map(|_| ());
        run("SAVEPOINT postonce_one")?;
        match f() {
            Ok(value) => {
                run("RELEASE postonce_one")?;
                Ok(value)
            }
            Err(error) => {
                self.names.clear();
                self.seen.forget();
                if self.conn.is_autocommit() {
                    return Err(match error {
                        known @ (Error::LostTransaction(_) | Error::OverBudget(_)) => known,
                        other => Error::LostTransaction(other.to_string()),
                    });
                }
                run("ROLLBACK TO postonce_one")?;
                run("RELEASE postonce_one")?;
                Err(error)
            }
        }
    }
}

/// One transaction on a file that a server may have open: for commands. Waits for the lock like any other process.
pub fn write_beside<T>(path: &Path, f: impl FnOnce(&Tx) -> Result<T>) -> Result<T> {
    open_for_reading(path)?; // says it well when there is no file, no schema, or a newer one
    let options = Options { lock_wait: Duration::from_secs(5), ..Options::default() };
    let conn = open::connect(path, &options)?;
    let names = Names::default();
    conn.execute_batch("BEGIN IMMEDIATE")?;
    let value = f(&Tx {
        conn: &conn,
        now: crate::clock::wall(),
        due_now: crate::clock::steady(),
        apply_budget: options.apply_budget,
        names: &names,
        trusting: false,
        seen: Seen::default(),
        at_hand: &AtHand::of(&conn),
    })?;
    conn.execute_batch("COMMIT")?;
    Ok(value)
}

/// Begins a read of one snapshot that looks at much of the file, on a connection of its own.
pub fn begin_long_read(conn: &Connection) -> Result<()> {
    Ok(conn.execute_batch("PRAGMA cache_size = -16000; BEGIN")?)
}

/// A value of the table of facts about the file itself.
pub fn meta(conn: &Connection, key: &str) -> Result<Option<String>> {
    Ok(conn.query_row("SELECT value FROM postonce_meta WHERE key = ?1", [key], |r| r.get(0)).optional()?)
}

/// Sets a value of the table of facts about the file itself.
pub fn set_meta(conn: &Connection, key: &str, value: &str) -> Result<()> {
    conn.prepare_cached(
        "INSERT INTO postonce_meta VALUES (?1, ?2) ON CONFLICT (key) DO UPDATE SET value = excluded.value",
    )?
    .execute([key, value])?;
    Ok(())
}
