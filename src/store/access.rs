//! The file from the side of a command: through the gate of this process, or beside another process that has it.
//!
//! Either way a piece of work is one short transaction. [`Pour`] writes many pieces without waiting for each.

use super::{Names, Options, Store, Tx, open, open_for_reading};
use crate::error::{Error, Result};
use crate::store::gate::Job;
use crossbeam_channel::{Receiver, Sender, unbounded};
use rusqlite::Connection;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How a command reaches the file.
pub enum Access<'s> {
    /// This process has it.
    Ours(&'s Store),
    /// A server may have it: its own connection, its own short transactions.
    Beside(Box<Beside>),
}

/// A connection beside a server.
pub struct Beside {
    path: PathBuf,
    conn: Connection,
    names: Names,
}

impl Beside {
    /// Opens it; the file must be there.
    pub fn open(path: &Path) -> Result<Beside> {
        open_for_reading(path)?; // says it well when there is no file, no schema, or a newer one
        let options = Options { lock_wait: Duration::from_secs(10), ..Options::default() };
        Ok(Beside { path: path.to_owned(), conn: open::connect(path, &options)?, names: Names::default() })
    }

    fn write<T>(&self, f: &mut dyn FnMut(&Tx) -> Result<T>) -> Result<T> {
        self.conn.execute_batch("BEGIN IMMEDIATE")?;
        let tx = Tx {
            conn: &self.conn,
            now: crate::clock::wall(),
            due_now: crate::clock::steady(),
            apply_budget: Options::default().apply_budget,
            names: &self.names,
            trusting: false,
            seen: super::Seen::default(),
            at_hand: &super::AtHand::of(&self.conn),
        };
        match f(&tx).and_then(|value| Ok(self.conn.execute_batch("COMMIT").map(|()| value)?)) {
            Ok(value) => Ok(value),
            Err(e) => {
                self.names.clear();
                if !self.conn.is_autocommit() {
                    self.conn.execute_batch("ROLLBACK")?;
                }
                Err(e)
            }
        }
    }
}

impl Access<'_> {
    /// Where the file is.
    pub fn path(&self) -> &Path {
        match self {
            Access::Ours(store) => store.path(),
            Access::Beside(beside) => &beside.path,
        }
    }

    /// Runs `f` on a connection that reads.
    pub fn read<T>(&self, f: impl FnOnce(&Connection) -> Result<T>) -> Result<T> {
        match self {
            Access::Ours(store) => store.read(f),
            Access::Beside(beside) => f(&beside.conn),
        }
    }

    /// Runs `f` in a write transaction and waits for its commit.
    pub fn write<T: Send + 'static>(&self, mut f: impl FnMut(&Tx) -> Result<T> + Send + 'static) -> Result<T> {
        match self {
            Access::Ours(store) => store.write(f),
            Access::Beside(beside) => beside.write(&mut f),
        }
    }

    /// Writes many pieces in order.
    pub fn pour(&self) -> Pour<'_> {
        let (answer, answers) = unbounded();
        Pour { access: self, answer, answers, under_way: 0 }
    }
}

/// Pieces handed to the gate before anything more is prepared: enough to keep it busy, little enough to hold.
const UNDER_WAY_MAX: usize = 16;

/// Many pieces of work, written in order, a few of them under way at a time. The first error ends it.
pub struct Pour<'a> {
    access: &'a Access<'a>,
    answer: Sender<Result<()>>,
    answers: Receiver<Result<()>>,
    under_way: usize,
}

impl Pour<'_> {
    /// Hands over a piece.
    pub fn push(&mut self, mut f: impl FnMut(&Tx) -> Result<()> + Send + 'static) -> Result<()> {
        let store = match self.access {
            Access::Beside(beside) => return beside.write(&mut f),
            Access::Ours(store) => store,
        };
        while self.under_way >= UNDER_WAY_MAX {
            self.one()?;
        }
        let answer = self.answer.clone();
        self.under_way += 1;
        store.gate().submit(Job {
            run: Box::new(f),
            done: Box::new(move |outcome| {
                let _ = answer.send(outcome);
                None
            }),
            alone: false,
        });
        Ok(())
    }

    fn one(&mut self) -> Result<()> {
        let outcome = self.answers.recv().map_err(|_| Error::Unavailable("the writer has stopped".into()))?;
        self.under_way -= 1;
        outcome
    }

    /// Waits for all of them.
    pub fn finish(mut self) -> Result<()> {
        while self.under_way > 0 {
            self.one()?;
        }
        Ok(())
    }
}
