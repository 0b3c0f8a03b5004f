//! What the writer does about its disk: notices a file that moved, gives up a connection that cannot be trusted, opens the
//! storage again, folds the log into the file, and leaves one whole file at the stop.

use super::{DISK_FULL, REOPEN_AFTER, WAL_PAGES, Writer, watch_wal};
use crate::error::{Error, Result};
use crate::fault;
use crate::store::open::{self, Identity};
use crate::store::{lock, raw, set_meta};
use rusqlite::Connection;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

/// WAL pages after which readers are waited for, so that the log starts anew.
const RESTART_PAGES: i64 = 16_000;
/// After a checkpoint that a reader held back.
const CHECKPOINT_AGAIN: Duration = Duration::from_millis(250);
/// How long the last one waits for those who read.
const LAST_FOLD: Duration = Duration::from_secs(1);

impl Writer {
    /// After a failed sync neither the page cache nor a connection can be trusted: start from what is on the disk.
    pub(super) fn give_up_if_tainted(&mut self, error: &Error) {
        if error.taints_connection() || error.is_disk_full() {
            self.give_up();
        }
    }

    fn give_up(&mut self) {
        drop(self.readers.write().expect("no panic while it is held").take());
        self.conn = None;
        self.log = None;
        self.fresh.clear();
        self.figures.reopened.fetch_add(1, Relaxed);
        self.reopen_at = Some(Instant::now() + REOPEN_AFTER);
    }

    /// Is what we write to still what stands under its name? If not, whatever is acknowledged from now on would be lost:
    /// says so and stops writing. A log that was taken away alone is folded into the file while we still have it.
    pub(super) fn notice_moved(&mut self) {
        let Some(conn) = &self.conn else { return };
        let file = Identity::of(&self.path);
        let log = Identity::of(&open::beside(&self.path, "-wal"));
        let (file_moved, log_moved) = (self.file.is_some() && file != self.file, self.log.is_some() && log != self.log);
        if !file_moved && !log_moved {
            self.log = log;
            return;
        }
        if file_moved {
            let what = self.moved(file);
            log::error!("nothing is acknowledged any more: {what}");
            self.figures.set_trouble(Some(what));
            self.set_aside = self.conn.take();
            self.fresh.clear();
            self.reopen_at = Some(Instant::now() + REOPEN_AFTER);
            return;
        }
        let folded = conn.query_row("PRAGMA wal_checkpoint(FULL)", [], |r| r.get::<_, i64>(0));
        let path = self.path.display();
        log::error!("{path}-wal was deleted or replaced; what it held was folded into the file: {folded:?}");
        self.figures.set_trouble(Some("its log was deleted or replaced".to_owned()));
        self.give_up();
    }

    fn moved(&self, now: Option<Identity>) -> String {
        let path = self.path.display();
        match now {
            None => format!(
                "{path} was deleted or moved away; put it back, or copy it from /proc/{}/fd before this process ends",
                std::process::id()
            ),
            Some(_) => format!("{path} was replaced by another file; put the right one there and start again"),
        }
    }

    /// How much room there is, once in a while; warns when it becomes little.
    pub(super) fn look_at_the_disk(&mut self) {
        if self.free_seen.is_some_and(|at| at.elapsed() < Duration::from_secs(5)) {
            return;
        }
        self.free_seen = Some(Instant::now());
        let Some(free) = open::free_bytes(&self.path) else { return };
        let before = self.figures.free_bytes.swap(free, Relaxed);
        if free < self.options.free_low && (before == 0 || before >= self.options.free_low) {
            log::warn!(
                "only {} MiB are free on the disk of {}: when it is full, senders get 503",
                free >> 20,
                self.path.display()
            );
        }
    }

    pub(super) fn ready(&mut self) -> std::result::Result<(), String> {
        self.notice_moved();
        self.reopen_if_due();
        match self.conn {
            Some(_) => Ok(()),
            None => Err(self
                .figures
                .trouble
                .lock()
                .expect("no panic while it is held")
                .clone()
                .unwrap_or_else(|| "the storage is being opened again".into())),
        }
    }

    pub(super) fn reopen_if_due(&mut self) {
        if self.conn.is_some() || self.reopen_at.is_some_and(|at| Instant::now() < at) {
            return;
        }
        self.names.clear();
        match self.opened_again() {
            Ok(conn) => {
                log::warn!("the storage takes writes again");
                self.figures.set_trouble(None);
                watch_wal(&conn);
                self.conn = Some(conn);
                self.reopen_at = None;
                self.checkpoint_from = Instant::now();
            }
            Err(e) => {
                let text = if e.is_disk_full() { DISK_FULL.to_owned() } else { e.to_string() };
                self.figures.set_trouble(Some(text));
                self.reopen_at = Some(Instant::now() + Duration::from_secs(1));
            }
        }
    }

    /// A new connection to the same file, with everything that was acknowledged in it, that takes writes.
    fn opened_again(&mut self) -> Result<Connection> {
        let file = Identity::of(&self.path);
        if file != self.file {
            return Err(Error::Unavailable(self.moved(file)));
        }
        if let Some(conn) = self.set_aside.take() {
            return Ok(conn); // it is back under its name
        }
        let conn = open::connect(&self.path, &self.options)?;
        let newest = raw::newest(&conn)?;
        if newest < self.kept_latest {
            return Err(Error::Unavailable(format!(
                "raw event {} was acknowledged and the file ends at {newest}: the disk lost it; restore the file",
                self.kept_latest
            )));
        }
        // A log that filled the disk is folded before anything else asks for room: once the log has taken all of it, the
        // file cannot grow by what the log holds, and neither ever gets out.
        let folded = lock::within(Duration::from_millis(100), || {
            conn.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |r| r.get::<_, i64>(0)).map_err(Error::from)
        });
        if let Err(e) = folded
            && e.is_disk_full()
        {
            return Err(e);
        }
        // A write that changes nothing but must reach the disk: the proof that it takes writes again.
        set_meta(&conn, "clean_stop", "0")?;
        let readers = open::readers(&self.path, &self.options)?;
        *self.readers.write().expect("no panic while it is held") = Some(readers);
        Ok(conn)
    }

    /// Folds the WAL into the file when it has grown enough. After the answers, and on this thread: another thread
    /// would hold back the same disk.
    pub(super) fn checkpoint(&mut self) {
        let Some(conn) = &self.conn else { return };
        let pages = WAL_PAGES.get();
        if pages < self.options.checkpoint_pages || Instant::now() < self.checkpoint_from {
            return;
        }
        fault::point("before_checkpoint");
        let began = Instant::now();
        // While anybody reads, the log does not start anew. Where little room is left it must: a log that has taken the
        // last of it leaves the file none to grow by what the log holds.
        let little = self.figures.free_bytes.load(Relaxed) < self.options.free_low;
        let how = match little || pages > RESTART_PAGES {
            true => "PRAGMA wal_checkpoint(RESTART)",
            false => "PRAGMA wal_checkpoint(PASSIVE)",
        };
        // A reader of the app that stays must hold back neither this nor the next commit.
        let left = lock::within(Duration::from_millis(10), || {
            conn.query_row(how, [], |r| Ok((r.get::<_, i64>(1)?, r.get::<_, i64>(2)?)))
        });
        fault::point("after_checkpoint");
        self.figures.checkpoint_us.store(began.elapsed().as_micros() as u64, Relaxed);
        match left {
            Ok((pages, folded)) => {
                self.figures.wal_pages.store(pages, Relaxed);
                if folded < pages {
                    self.checkpoint_from = Instant::now() + CHECKPOINT_AGAIN;
                }
            }
            Err(e) => {
                let error = Error::from(e);
                self.checkpoint_from = Instant::now() + CHECKPOINT_AGAIN;
                if error.is_busy() {
                    return log::debug!("checkpoint put off: {error}");
                }
                log::error!("the log could not be folded into the file: {error}");
                let full = error.is_disk_full();
                self.figures.set_trouble(Some(if full { DISK_FULL.to_owned() } else { error.to_string() }));
                self.give_up_if_tainted(&error);
            }
        }
    }

    pub(super) fn close(&mut self) {
        drop(self.readers.write().expect("no panic while it is held").take());
        std::mem::forget(self.set_aside.take());
        if let Some(conn) = self.conn.take() {
            fault::point("before_last_fold");
            let marked = set_meta(&conn, "clean_stop", "1");
            let folded = lock::within(LAST_FOLD, || {
                conn.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |r| r.get::<_, i64>(0))
            });
            fault::point("folded");
            match (marked, folded) {
                (Ok(()), Ok(0)) => {}
                (Ok(()), Ok(_)) => log::warn!(
                    "another program reads the file: if it goes on, the log stays beside it, and a plain copy needs both"
                ),
                (marked, folded) => log::warn!("the log could not be folded into the file: {marked:?}, {folded:?}"),
            }
            drop(conn);
            self.leave_one_file();
        }
    }

    /// SQLite removes the log when the last connection closes. A reader that was still busy closes a moment after us.
    fn leave_one_file(&self) {
        let log = open::beside(&self.path, "-wal");
        let until = Instant::now() + LAST_FOLD;
        while log.exists() && Identity::of(&self.path) == self.file && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(25));
            if let Ok(conn) = open::connect(&self.path, &self.options) {
                // One that stays, such as Litestream, is not waited for.
                let _ = lock::within(Duration::from_millis(25), || {
                    conn.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |r| r.get::<_, i64>(0))
                });
            }
        }
    }
}
