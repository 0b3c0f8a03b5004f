//! The gate: the one thread that writes.
//!
//! Each commit does a bounded share of other work, then takes all bodies that wait, those that came meanwhile included,
//! and answers everybody after the fsync that covers them. The bound is what keeps the acknowledgement independent of the
//! work. Code that is not ours (a rule's SQL, an embedder's closure) never shares a transaction with bodies: it may lose
//! its own, not theirs. Nothing here waits for anything but the disk and, within its budget, another process's write lock.

mod disk;
#[cfg(test)]
mod tests;

use super::fresh::Fresh;
use super::open::{Identity, Options, Readers};
use super::raw::{self, NewRaw};
use super::{AtHand, Names, Tx, lock};
use crate::clock;
use crate::error::{Error, Result};
use crate::event::Millis;
use crate::fault;
use crossbeam_channel::{Receiver, Sender, TrySendError, bounded, never, select_biased, unbounded};
use rusqlite::Connection;
use std::cell::Cell;
use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Bodies in one commit: more only lengthens the wait of the first.
const INTAKE_MAX: usize = 512;
/// Bytes in one commit, so that large bodies do not pile up in one transaction.
const INTAKE_BYTES_MAX: usize = 4 << 20;
/// Other work in a commit while bodies wait: the share that may delay an answer.
const WORK_WITH_INTAKE: Duration = Duration::from_millis(6);
/// Other work in a commit when nobody waits at its beginning.
const WORK_ALONE: Duration = Duration::from_millis(10);

/// What senders and people are told then.
const DISK_FULL: &str = "the disk is full";
/// How long the storage rests before it is opened again.
const REOPEN_AFTER: Duration = Duration::from_millis(200);

thread_local! {
    /// Pages in the WAL after this thread's last commit, as SQLite tells it.
    static WAL_PAGES: Cell<i64> = const { Cell::new(0) };
}

/// Has SQLite tell us the size of the WAL at each commit of this connection, on the thread that commits.
fn watch_wal(conn: &Connection) {
    if let Err(e) = lock::wait_on(conn) {
        log::warn!("SQLite's own way to wait for a lock stays: {e}");
    }
    conn.wal_hook(Some(|_, pages| {
        WAL_PAGES.set(i64::from(pages));
        Ok(())
    }));
}

/// A verified body on its way to the disk.
pub struct Intake {
    /// What to keep.
    pub raw: NewRaw,
    /// When it came: how long it may wait for another process's lock counts from here.
    pub since: Instant,
    /// Told the raw event's id once it is durable, or why it is not.
    pub done: Box<dyn FnOnce(Result<i64>) + Send>,
}

/// What a job does inside the transaction. Whatever it meets that it cannot do it must give as an error: the transaction
/// runs again then, with a savepoint for each job.
pub type Work = Box<dyn FnMut(&Tx) -> Result<()> + Send>;
/// What follows the commit, or its failure; may give the next job.
pub type Then = Box<dyn FnOnce(Result<()>) -> Option<Job> + Send>;

/// A piece of work that runs inside the writer's transaction. Its error undoes what it did and nothing else.
pub struct Job {
    /// May run several times, when the transaction is undone meanwhile; has no effect beyond it.
    pub run: Work,
    /// Told the outcome after the commit; may hand over the work that follows.
    pub done: Then,
    /// Runs code that is not ours, in a transaction of its own.
    pub alone: bool,
}

/// Figures of the writer, for metrics and health.
#[derive(Default)]
pub struct Figures {
    /// Commits since the start.
    pub commits: AtomicU64,
    /// Pages in the WAL after the last checkpoint attempt.
    pub wal_pages: AtomicI64,
    /// How long the last checkpoint took, in microseconds.
    pub checkpoint_us: AtomicU64,
    /// How long writes waited for another process's lock, in microseconds, in all.
    pub lock_wait_us: AtomicU64,
    /// Times that the lock could not be had within its budget.
    pub lock_timeouts: AtomicU64,
    /// Steady time at which the writer last began a round, or is idle since.
    pub beat: AtomicI64,
    /// Is the storage out of order (being opened again, disk full)?
    pub trouble: Mutex<Option<String>>,
    /// Times that the connection was given up since it could not be trusted any more.
    pub reopened: AtomicU64,
    /// Free bytes on the disk, as last seen; 0 before that.
    pub free_bytes: AtomicU64,
}

impl Figures {
    /// Is the storage in order, or what is the matter?
    fn set_trouble(&self, trouble: Option<String>) {
        *self.trouble.lock().expect("no panic while it is held") = trouble;
    }
}

/// The sending side of the gate.
pub struct Gate {
    intake: Sender<Intake>,
    jobs: Sender<Job>,
    stopping: Arc<AtomicBool>,
    figures: Arc<Figures>,
    kept: Arc<OnceLock<Hook>>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

type Hook = Box<dyn Fn() + Send + Sync>;

impl Gate {
    /// Starts the writer on its connection.
    pub(super) fn start(
        conn: Connection,
        path: PathBuf,
        options: Options,
        readers: Readers,
        fresh: Arc<Fresh>,
    ) -> Gate {
        let (intake, intake_in) = bounded(options.queue);
        let (jobs, jobs_in) = unbounded();
        let stopping = Arc::new(AtomicBool::new(false));
        let figures = Arc::new(Figures::default());
        let kept = Arc::new(OnceLock::new());
        let mut writer = Writer {
            conn: Some(conn),
            set_aside: None,
            readers,
            fresh,
            path,
            options,
            names: Names::default(),
            intake: intake_in,
            jobs: jobs_in,
            follow_ups: VecDeque::new(),
            stopping: stopping.clone(),
            figures: figures.clone(),
            due_latest: 0,
            reopen_at: None,
            checkpoint_from: Instant::now(),
            kept_latest: 0,
            file: None,
            log: None,
            free_seen: None,
            answers: answering(kept.clone()),
        };
        let thread = std::thread::Builder::new()
            .name("writer".into())
            .spawn(move || writer.run())
            .expect("a thread can be started");
        Gate { intake, jobs, stopping, figures, kept, thread: Mutex::new(Some(thread)) }
    }

    /// Has `hook` called after each commit that kept bodies, once their senders are answered. The first one stays.
    pub fn after_keeping(&self, hook: impl Fn() + Send + Sync + 'static) {
        let _ = self.kept.set(Box::new(hook));
    }

    /// Hands over a body. When the queue is full or the gate has stopped, its sender is told so at once.
    pub fn keep(&self, intake: Intake) {
        if self.stopping.load(Relaxed) {
            return (intake.done)(Err(Error::Unavailable("it is stopping".into())));
        }
        match self.intake.try_send(intake) {
            Ok(()) => {}
            Err(TrySendError::Full(intake)) => (intake.done)(Err(Error::QueueFull)),
            Err(TrySendError::Disconnected(intake)) => {
                (intake.done)(Err(Error::Unavailable("it has stopped".into())));
            }
        }
    }

    /// Hands over work without waiting for it.
    pub fn submit(&self, job: Job) {
        if let Err(unsent) = self.jobs.send(job) {
            (unsent.0.done)(Err(Error::Unavailable("it has stopped".into())));
        }
    }

    /// Runs `f` in a transaction and waits for the commit.
    pub fn write<T: Send + 'static>(&self, f: impl FnMut(&Tx) -> Result<T> + Send + 'static) -> Result<T> {
        self.write_in(false, f)
    }

    /// The same in a transaction of its own, for code that is not ours.
    pub fn write_alone<T: Send + 'static>(&self, f: impl FnMut(&Tx) -> Result<T> + Send + 'static) -> Result<T> {
        self.write_in(true, f)
    }

    fn write_in<T: Send + 'static>(
        &self,
        alone: bool,
        mut f: impl FnMut(&Tx) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let (answer, answered) = bounded(1);
        let value = Arc::new(Mutex::new(None));
        let inside = value.clone();
        self.submit(Job {
            run: Box::new(move |tx| {
                *inside.lock().expect("no panic while it is held") = Some(f(tx)?);
                Ok(())
            }),
            done: Box::new(move |outcome| {
                let _ = answer.send(outcome);
                None
            }),
            alone,
        });
        answered.recv().map_err(|_| Error::Unavailable("it has stopped".into()))??;
        let value = value.lock().expect("no panic while it is held").take();
        value.ok_or_else(|| Error::Unavailable("the work was dropped".into()))
    }

    /// The writer's figures.
    pub fn figures(&self) -> &Figures {
        &self.figures
    }

    /// How many bodies wait for the disk.
    pub fn queued(&self) -> usize {
        self.intake.len()
    }

    /// Finishes what was handed over, marks the stop as clean and folds the WAL into the file.
    pub(super) fn stop(&self) {
        self.stopping.store(true, Relaxed);
        self.submit(Job { run: Box::new(|_| Ok(())), done: Box::new(|_| None), alone: false }); // wakes the writer
        if let Some(thread) = self.thread.lock().expect("no panic while it is held").take() {
            let _ = thread.join();
        }
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        self.stop();
    }
}

struct Writer {
    conn: Option<Connection>, // None while the storage is out of order
    /// A connection to a file that is no longer under its name. Never closed: that would delete by name what may belong to
    /// another file by now, and it is what the file can still be copied from.
    set_aside: Option<Connection>,
    readers: Readers,
    fresh: Arc<Fresh>,
    path: PathBuf,
    options: Options,
    names: Names,
    intake: Receiver<Intake>,
    jobs: Receiver<Job>,
    follow_ups: VecDeque<Job>,
    stopping: Arc<AtomicBool>,
    figures: Arc<Figures>,
    due_latest: Millis,
    reopen_at: Option<Instant>,
    checkpoint_from: Instant,
    /// The newest raw event that was acknowledged: whatever file is opened again must have it.
    kept_latest: i64,
    /// What we write to, so that a file that was deleted or replaced under us is noticed.
    file: Option<Identity>,
    log: Option<Identity>,
    free_seen: Option<Instant>,
    answers: Sender<Kept>,
}

type Kept = Vec<(Box<dyn FnOnce(Result<i64>) + Send>, Result<i64>)>;

/// A thread that answers the senders of one commit while the next one is under way.
fn answering(hook: Arc<OnceLock<Hook>>) -> Sender<Kept> {
    let (answers, kept) = unbounded::<Kept>();
    std::thread::Builder::new()
        .name("answers".into())
        .spawn(move || {
            for one_commit in kept.iter() {
                for (done, result) in one_commit {
                    fault::point("before_answer");
                    done(result);
                }
                fault::point("after_answers");
                if let Some(hook) = hook.get() {
                    hook();
                }
            }
        })
        .expect("a thread can be started");
    answers
}

impl Writer {
    fn run(&mut self) {
        lock::patience(self.options.lock_wait);
        self.conn.iter().for_each(watch_wal);
        self.file = Identity::of(&self.path);
        loop {
            self.look_at_the_disk();
            self.figures.beat.store(clock::steady(), Relaxed);
            let (intake, mut jobs) = self.gather();
            if intake.is_empty() && jobs.is_empty() {
                if self.stopping.load(Relaxed) && self.intake.is_empty() && self.jobs.is_empty() {
                    break;
                }
                self.notice_moved();
                self.reopen_if_due();
                continue;
            }
            if let Err(why) = self.ready() {
                for one in intake {
                    (one.done)(Err(Error::Unavailable(why.clone())));
                }
                for job in jobs.drain(..) {
                    (job.done)(Err(Error::Unavailable(why.clone())));
                }
                continue;
            }
            let (mut alone, shared): (VecDeque<Job>, VecDeque<Job>) = jobs.into_iter().partition(|job| job.alone);
            if !intake.is_empty() || !shared.is_empty() {
                self.round(intake, shared);
            }
            // One at a time: bodies that came meanwhile never wait for more than one budget.
            if let Some(job) = alone.pop_front() {
                self.follow_ups.extend(alone);
                self.round(Vec::new(), VecDeque::from([job]));
            }
            self.checkpoint();
        }
        self.close();
    }

    /// Waits until there is something to do, then takes all bodies that wait and the work at hand.
    fn gather(&mut self) -> (Vec<Intake>, VecDeque<Job>) {
        let mut intake = Vec::new();
        let mut jobs = std::mem::take(&mut self.follow_ups);
        let wait =
            if jobs.is_empty() && !self.stopping.load(Relaxed) { Duration::from_secs(1) } else { Duration::ZERO };
        let idle = if wait.is_zero() { never() } else { crossbeam_channel::after(wait) };
        if wait.is_zero() {
            intake.extend(self.intake.try_recv());
        } else {
            select_biased! {
                recv(self.intake) -> one => intake.extend(one),
                recv(self.jobs) -> job => jobs.extend(job),
                recv(idle) -> _ => {}
            }
        }
        take_waiting(&self.intake, &mut intake);
        while jobs.len() < 64 {
            let Ok(job) = self.jobs.try_recv() else { break };
            jobs.push_back(job);
        }
        (intake, jobs)
    }

    /// One transaction: as much of the work as fits, then the bodies. What does not fit comes first in the next.
    fn round(&mut self, mut intake: Vec<Intake>, mut jobs: VecDeque<Job>) {
        let budget = if intake.is_empty() { WORK_ALONE } else { WORK_WITH_INTAKE };
        let mut care = if jobs.front().is_some_and(|job| job.alone) { Care::Alone } else { Care::Trusting };
        let mut failed: Vec<(Job, Error)> = Vec::new();
        let (outcome, done) = loop {
            match self.transaction(&mut intake, &mut jobs, budget, care) {
                Ok((ids, done)) => break (Ok(ids), done),
                Err(Lost::Trust) => care = Care::Savepoints,
                // One job lost the whole transaction: everything else runs again without it.
                Err(Lost::By(at, error)) => {
                    let job = jobs.remove(at).expect("it ran");
                    failed.push((job, error));
                    if intake.is_empty() && jobs.is_empty() {
                        break (Ok((Vec::new(), Vec::new())), 0);
                    }
                }
                Err(Lost::Whole(error)) => break (Err(error), jobs.len()),
            }
        };
        let rest = jobs.split_off(done);
        for (job, error) in failed {
            self.follow_ups.extend((job.done)(Err(error)));
        }
        match outcome {
            Ok((ids, mut results)) => {
                self.figures.set_trouble(None);
                self.kept_latest = ids.last().copied().unwrap_or(self.kept_latest);
                self.figures.commits.fetch_add(1, Relaxed);
                if !intake.is_empty() {
                    let (kept, bodies): (Kept, Vec<_>) =
                        intake.into_iter().zip(ids).map(|(one, id)| ((one.done, Ok(id)), (id, one.raw))).unzip();
                    self.fresh.put(bodies.into_iter().filter_map(|(id, raw)| Some((id, raw.into_body()?))));
                    let _ = self.answers.send(kept);
                }
                for (job, result) in jobs.into_iter().zip(results.drain(..)) {
                    self.follow_ups.extend((job.done)(result));
                }
            }
            Err(error) => self.everything_failed(intake, jobs, error),
        }
        self.follow_ups.extend(rest);
    }

    /// Runs the transaction. `Ok`: the ids of the bodies, and each finished job's own result; how many jobs ran.
    #[allow(clippy::type_complexity)]
    fn transaction(
        &mut self,
        intake: &mut Vec<Intake>,
        jobs: &mut VecDeque<Job>,
        budget: Duration,
        care: Care,
    ) -> std::result::Result<((Vec<i64>, Vec<Result<()>>), usize), Lost> {
        let conn = self.conn.as_ref().expect("ready() was asked");
        let whole = |names: &Names, error: Error| {
            names.clear();
            if !conn.is_autocommit() {
                let _ = conn.execute_batch("ROLLBACK");
            }
            Lost::Whole(error)
        };
        let asked = Instant::now();
        // A body that came while the writer waited for the same lock before has waited that long already.
        let waited = intake.first().map_or(Duration::ZERO, |one| asked - one.since);
        let begun = lock::within(self.options.lock_wait.saturating_sub(waited), || {
            conn.prepare_cached("BEGIN IMMEDIATE").and_then(|mut begin| begin.execute([]))
        });
        let began = Instant::now();
        if began - asked > Duration::from_millis(1) {
            self.figures.lock_wait_us.fetch_add((began - asked).as_micros() as u64, Relaxed);
        }
        if let Err(e) = begun {
            self.figures.lock_timeouts.fetch_add(1, Relaxed);
            return Err(Lost::Whole(e.into()));
        }
        self.due_latest = self.due_latest.max(clock::steady());
        let at_hand = AtHand::of(conn);
        let mut tx = Tx {
            conn,
            now: clock::wall(),
            due_now: self.due_latest,
            apply_budget: self.options.apply_budget,
            names: &self.names,
            trusting: care == Care::Trusting,
            seen: super::Seen::default(),
            at_hand: &at_hand,
        };
        let mut results = Vec::with_capacity(jobs.len());
        for (at, job) in jobs.iter_mut().enumerate() {
            if at > 0 && began.elapsed() > budget {
                break;
            }
            let result = if tx.trusting { (job.run)(&tx) } else { tx.savepoint(|| (job.run)(&tx)) };
            if tx.trusting && result.is_err() {
                self.names.clear();
                // A guard of the tables has undone it already.
                if !conn.is_autocommit() {
                    conn.execute_batch("ROLLBACK").map_err(|e| Lost::Whole(e.into()))?;
                }
                return Err(Lost::Trust);
            }
            if conn.is_autocommit() {
                self.names.clear();
                let itself = || Error::LostTransaction("the work ended the transaction itself".into());
                return Err(Lost::By(at, result.err().unwrap_or_else(itself)));
            }
            results.push(result);
        }
        let ran = results.len();
        if care != Care::Alone {
            take_waiting(&self.intake, intake);
        }
        // Theirs is the time of now: nobody looks for what is due behind the time at which others fell due meanwhile.
        self.due_latest = self.due_latest.max(clock::steady());
        (tx.now, tx.due_now) = (clock::wall(), self.due_latest);
        let mut ids = Vec::with_capacity(intake.len());
        for one in intake.iter() {
            ids.push(raw::insert(&tx, &one.raw).map_err(|e| whole(&self.names, e))?);
        }
        if !intake.is_empty() {
            fault::point("kept_uncommitted");
        }
        fault::point("before_commit");
        conn.prepare_cached("COMMIT")
            .and_then(|mut commit| commit.execute([]))
            .map_err(|e| whole(&self.names, e.into()))?;
        fault::point("after_commit");
        if !intake.is_empty() {
            fault::point("after_keep");
        }
        Ok(((ids, results), ran))
    }

    fn everything_failed(&mut self, intake: Vec<Intake>, jobs: VecDeque<Job>, error: Error) {
        if !error.is_busy() {
            log::error!("nothing was written: {error}");
        }
        let text = if error.is_disk_full() { DISK_FULL.to_owned() } else { error.to_string() };
        if !error.is_busy() {
            self.figures.set_trouble(Some(text.clone()));
        }
        for one in intake {
            (one.done)(Err(Error::Unavailable(text.clone())));
        }
        for job in jobs {
            self.follow_ups.extend((job.done)(Err(Error::Unavailable(text.clone()))));
        }
        self.give_up_if_tainted(&error);
    }
}

/// Takes the bodies that wait, up to what one commit may hold.
fn take_waiting(waiting: &Receiver<Intake>, intake: &mut Vec<Intake>) {
    let mut bytes: usize = intake.iter().map(|i| i.raw.stored_len()).sum();
    while intake.len() < INTAKE_MAX && bytes < INTAKE_BYTES_MAX {
        let Ok(one) = waiting.try_recv() else { break };
        bytes += one.raw.stored_len();
        intake.push(one);
    }
}

/// What a transaction does to survive its jobs.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Care {
    /// Nothing: ours do not fail, and if one does the transaction runs again with savepoints.
    Trusting,
    /// Each job has a savepoint of its own.
    Savepoints,
    /// It is code that is not ours: nothing else is in its transaction.
    Alone,
}

/// Why a transaction came to nothing.
enum Lost {
    /// The job at this place ended it.
    By(usize, Error),
    /// The disk or the lock.
    Whole(Error),
    /// A job met something to undo, and there were no savepoints to undo it by.
    Trust,
}
