//! The worker: takes what is due, reads it outside of any transaction, and hands claims and applies to the gate.
//!
//! The one way through for every event: new, retried, swept, replayed, fetched, imported. Takes no work in a channel; a
//! wake-up says "look", and the table says what there is to do.

use super::Shared;
use super::fetcher::{Fetcher, Task};
use crate::clock;
use crate::error::{Error, Result};
use crate::event::{Event, Millis};
use crate::fault;
use crate::retry::APPLY;
use crate::steps::claim::{self, Claimed, Prepared, Won};
use crate::steps::read::{self, Read};
use crate::steps::{apply, fetch, sweep};
use crate::store::Tx;
use crate::store::gate::Job;
use crate::store::raw::{self, Body, Due, State};
use crossbeam_channel::{Receiver, Sender, select, unbounded};
use std::collections::HashSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Events in one job: a job is the share of a commit that other work may take, a few milliseconds.
const BATCH: usize = 128;
/// Events with effects of the app in one transaction of their own.
const BATCH_ALONE: usize = 16;
/// How long they may hold the write lock together; the last begun may take its own budget beyond it.
const WORK_ALONE: Duration = Duration::from_millis(10);
/// Events between reading and their last commit: enough to keep the writer busy, little enough to hold in memory.
const IN_FLIGHT_MAX: usize = 2048;

/// How long an event waits that found the fetchers busy.
const FETCHERS_BUSY: Millis = 2_000;

/// How often what is due is looked through from its start while events are under way.
const LOOK_AT_ALL: Duration = Duration::from_millis(500);

/// Events that left the pipeline; those whose commit failed must be released.
pub(super) struct Finished {
    pub ids: Vec<i64>,
    pub failed: bool,
}

/// The batch that was read last: its items come one after the other, and are not read anew for each.
struct LastRead {
    body: i64,
    events: Vec<Event>,
}

/// The bytes of a raw event that is taken up.
enum Bytes {
    Here(Body),
    /// Those of the one taken before it: the same batch.
    AsBefore,
    /// Past their retention, or erased.
    Gone,
}

struct Worker<'a> {
    shared: &'a Arc<Shared>,
    finished_in: Receiver<Finished>,
    finished: Sender<Finished>,
    in_flight: HashSet<i64>,
    unreleased: Vec<i64>,
    from: (Millis, i64),
    /// After an unclean stop: up to this raw event, one at a time, its attempt counted before it is even read.
    careful_until: i64,
    last_read: Option<LastRead>,
    fetcher: Fetcher,
    looked: Instant,
}

/// Runs until the engine stops.
pub(super) fn run(shared: &Arc<Shared>, wake: &Receiver<()>) {
    let (finished, finished_in) = unbounded();
    let unclean = shared.store.was_unclean();
    let careful_until = if unclean { shared.store.read(raw::newest).unwrap_or(i64::MAX) } else { 0 };
    let fetcher = Fetcher::start(shared, &finished);
    let mut worker = Worker {
        shared,
        finished_in,
        finished,
        in_flight: HashSet::new(),
        unreleased: Vec::new(),
        from: (0, 0),
        careful_until,
        last_read: None,
        fetcher,
        looked: Instant::now(),
    };
    while !shared.is_stopping() {
        worker.collect();
        match worker.step() {
            Ok(true) => {}
            Ok(false) => worker.wait(wake),
            Err(e) => {
                log::warn!("what is due could not be read: {e}");
                worker.pause(Duration::from_millis(200));
            }
        }
    }
    while !worker.in_flight.is_empty() {
        worker.pause(Duration::from_millis(100));
        worker.collect();
    }
}

impl Worker<'_> {
    /// Takes back what has left the pipeline.
    fn collect(&mut self) {
        while let Ok(Finished { ids, failed }) = self.finished_in.try_recv() {
            for id in &ids {
                self.in_flight.remove(id);
            }
            if failed {
                self.unreleased.extend(ids);
            }
        }
    }

    fn pause(&self, time: Duration) {
        if let Ok(finished) = self.finished_in.recv_timeout(time) {
            let _ = self.finished.send(finished);
        }
    }

    /// Waits for a wake-up, for a finished batch, or until something is due.
    fn wait(&mut self, wake: &Receiver<()>) {
        if self.in_flight.len() >= IN_FLIGHT_MAX {
            return self.pause(Duration::from_secs(1)); // room comes with what is finished
        }
        let next = self.shared.store.read(raw::next_due).ok().flatten();
        let wait = match next {
            Some(due) if !self.in_flight.is_empty() || !self.unreleased.is_empty() => {
                (due - clock::steady()).clamp(50, 1000)
            }
            Some(due) => (due - clock::steady()).clamp(1, sweep::EVERY),
            None => sweep::EVERY,
        };
        // From the start again when nothing is under way: what is would have to be passed over each time.
        if self.in_flight.is_empty() {
            self.start_over();
        }
        let finished_in = self.finished_in.clone();
        select! {
            recv(wake) -> _ => {}
            recv(finished_in) -> finished => if let Ok(finished) = finished { let _ = self.finished.send(finished); },
            default(Duration::from_millis(wait as u64)) => {}
        }
    }

    fn start_over(&mut self) {
        self.from = (0, 0);
        self.looked = Instant::now();
    }

    /// Takes one batch of what is due. `false`: there is nothing to take now.
    fn step(&mut self) -> Result<bool> {
        self.release()?;
        if self.in_flight.len() >= IN_FLIGHT_MAX {
            return Ok(false);
        }
        // A look at all of it now and then finds what was made due behind our back.
        if self.looked.elapsed() > LOOK_AT_ALL {
            self.start_over();
        }
        let careful = self.careful_until > 0;
        let (from, limit) = (self.from, if careful { 1 } else { BATCH });
        let in_flight = &self.in_flight;
        let mut loaded = self.last_read.as_ref().map(|last| last.body);
        let store = &self.shared.store;
        let (taken, last) = store.read(|conn| {
            let _snapshot = conn.unchecked_transaction()?; // of the whole batch: a read of its own for each body costs more
            let due = raw::due(conn, clock::steady(), from, BATCH)?;
            let last = due.last().map(|d| (d.due_at, d.id));
            let mut fresh = store.fresh().take_up_to(due.iter().map(|d| d.body).max().unwrap_or(0));
            let mut taken: Vec<(Due, Bytes)> = Vec::with_capacity(due.len());
            for one in due.into_iter().filter(|d| !in_flight.contains(&d.id)).take(limit) {
                let known = loaded == Some(one.body) && one.item > 0;
                let body = match known {
                    true => Bytes::AsBefore,
                    false => match fresh.remove(&one.body) {
                        Some(body) => Bytes::Here(body),
                        None => raw::body(conn, one.body)?.map_or(Bytes::Gone, Bytes::Here),
                    },
                };
                loaded = Some(one.body);
                taken.push((one, body));
            }
            Ok((taken, last))
        })?;
        let Some(last) = last else {
            if careful && from == (0, 0) {
                self.careful_until = 0; // the backlog is through
            }
            return Ok(false);
        };
        if careful {
            return self.take_carefully(taken);
        }
        self.from = last;
        if taken.is_empty() {
            return Ok(true);
        }
        self.take(taken, false);
        Ok(true)
    }

    /// One event of the backlog of an unclean stop: counted first, followed to its end before the next.
    fn take_carefully(&mut self, taken: Vec<(Due, Bytes)>) -> Result<bool> {
        let Some((due, _)) = taken.first() else { return Ok(false) };
        let id = due.id;
        if id > self.careful_until {
            self.careful_until = 0;
            return Ok(true);
        }
        if !APPLY.exhausted(due.attempts) {
            self.shared.store.write(move |tx| raw::count_attempt(tx, id))?;
            fault::point("attempt_counted");
        }
        self.take(
            taken.into_iter().map(|(due, body)| (Due { attempts: due.attempts + 1, ..due }, body)).collect(),
            true,
        );
        while self.in_flight.len() > self.fetcher.busy() && !self.shared.is_stopping() {
            self.pause(Duration::from_millis(50));
            self.collect();
        }
        Ok(true)
    }

    /// Reads a batch and hands its claims to the gate, which goes on to apply.
    fn take(&mut self, taken: Vec<(Due, Bytes)>, counted: bool) {
        let mut asks = Vec::with_capacity(taken.len());
        for (due, body) in taken {
            self.in_flight.insert(due.id);
            if due.was_claimed {
                self.shared.metrics.rescued.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            }
            asks.extend(self.ask(due, body, counted));
        }
        if asks.is_empty() {
            return;
        }
        let job = claim_job(self.shared.clone(), self.finished.clone(), asks);
        self.shared.store.gate().submit(job);
    }

    /// What the gate is to be asked; `None`: the fetchers have it now.
    fn ask(&mut self, due: Due, body: Bytes, counted: bool) -> Option<Ask> {
        let tried = due.attempts - u32::from(counted);
        if APPLY.exhausted(tried) {
            let why = format!("given up after {tried} attempts");
            return Some(Ask::End(due.id, State::Dead, why));
        }
        let Some(source) = self.shared.sources.get(&due.source).cloned() else {
            let why = format!("its source {} is no longer in the configuration", due.source);
            return Some(Ask::End(due.id, State::Parked, why));
        };
        fault::point("before_read");
        let read = catch_unwind(AssertUnwindSafe(|| {
            let last = self.last_read.take().filter(|last| last.body == due.body && due.item > 0);
            let mut events = match (last, body) {
                (Some(last), _) => last.events,
                (None, Bytes::Here(body)) => read::events(&source, &body, due.origin, due.received_at),
                (None, Bytes::AsBefore) => return Err(Ask::Wait(due.id, 0, "to be read again")),
                (None, Bytes::Gone) => {
                    return Err(Ask::End(due.id, State::Dead, "its bytes are past their retention".into()));
                }
            };
            let read = read::one(&mut events, due.item);
            if events.len() > 1 {
                self.last_read = Some(LastRead { body: due.body, events });
            }
            Ok(read)
        }));
        Some(match read {
            Ok(Ok(Read::Event(event))) => {
                let prepared = Box::new(Prepared { due, source, event: Arc::new(*event), counted });
                if !fetch::is_needed(&prepared.source, &prepared.event) {
                    return Some(Ask::Claim(prepared));
                }
                match self.fetcher.take(Task { prepared }) {
                    Ok(()) => return None,
                    Err(task) => Ask::Wait(task.prepared.due.id, FETCHERS_BUSY, "waits for its turn to be fetched"),
                }
            }
            Ok(Ok(Read::Batch(items))) => Ask::Split(due.id, items),
            Ok(Err(ask)) => ask,
            Err(_) => Ask::Fail(due.id, tried + 1, counted, "reading it panicked".into()),
        })
    }

    /// Puts back what a failed commit left claimed, so that nothing waits for a lease.
    fn release(&mut self) -> Result<()> {
        if self.unreleased.is_empty() {
            return Ok(());
        }
        let ids = self.unreleased.clone();
        self.shared.store.write(move |tx| {
            ids.iter().try_for_each(|id| raw::put_back(tx, *id, 1000, "the commit failed", None).map(|_| ()))
        })?;
        self.unreleased.clear();
        Ok(())
    }
}

/// What the gate is asked to do with a raw event.
#[derive(Clone)]
pub(super) enum Ask {
    Claim(Box<Prepared>),
    Wait(i64, Millis, &'static str),
    Split(i64, usize),
    Fail(i64, u32, bool, String),
    End(i64, State, String),
}

impl Ask {
    fn id(&self) -> i64 {
        match self {
            Ask::Claim(prepared) => prepared.due.id,
            Ask::Split(id, _) | Ask::Fail(id, ..) | Ask::End(id, ..) | Ask::Wait(id, ..) => *id,
        }
    }
}

/// What one event of a claim job came to.
enum Came {
    Won(Box<Won>),
    Ended(State),
    PutBack,
    Waits,
}

/// One commit's share of claims, and what follows from it.
pub(super) fn claim_job(shared: Arc<Shared>, finished: Sender<Finished>, asks: Vec<Ask>) -> Job {
    let ids: Vec<i64> = asks.iter().map(Ask::id).collect();
    let asks = Arc::new(asks);
    let came: Arc<Mutex<Vec<(i64, Came)>>> = Arc::default();
    let (inside, again) = (came.clone(), asks.clone());
    Job {
        alone: false,
        run: Box::new(move |tx| {
            let came = asks.iter().map(|ask| Ok((ask.id(), settle_ask(tx, ask)?))).collect::<Result<Vec<_>>>()?;
            *inside.lock().expect("no panic while it is held") = came;
            Ok(())
        }),
        done: Box::new(move |outcome| {
            if let Err(error) = outcome {
                // One of them lost the transaction for all: each again by itself; the one by itself is the culprit.
                let lost = matches!(error, Error::LostTransaction(_));
                if lost && again.len() > 1 {
                    for one in again.iter() {
                        shared.store.gate().submit(claim_job(shared.clone(), finished.clone(), vec![one.clone()]));
                    }
                } else if lost && let Ask::Claim(one) = &again[0] {
                    let attempts = one.due.attempts + u32::from(!one.counted);
                    let ask = Ask::Fail(one.due.id, attempts, one.counted, error.to_string());
                    return Some(claim_job(shared, finished, vec![ask]));
                } else {
                    let _ = finished.send(Finished { ids, failed: true });
                }
                return None;
            }
            fault::point("after_claim");
            let mut left = Vec::new();
            let (mut plain, mut alone) = (Vec::new(), Vec::new());
            for (id, came) in std::mem::take(&mut *came.lock().expect("no panic while it is held")) {
                match came {
                    Came::Won(won) if won.source.has_effects() => alone.push(*won),
                    Came::Won(won) => plain.push(*won),
                    Came::Ended(state) => {
                        shared.ended(id, state);
                        left.push(id);
                    }
                    Came::Waits => left.push(id),
                    Came::PutBack => {
                        shared.failed(id);
                        left.push(id);
                    }
                }
            }
            if !left.is_empty() {
                let _ = finished.send(Finished { ids: left, failed: false });
            }
            while !alone.is_empty() {
                let rest = alone.split_off(alone.len().min(BATCH_ALONE));
                let batch = std::mem::replace(&mut alone, rest);
                shared.store.gate().submit(apply_job(shared.clone(), finished.clone(), batch, true));
            }
            (!plain.is_empty()).then(|| apply_job(shared.clone(), finished.clone(), plain, false))
        }),
    }
}

fn settle_ask(tx: &Tx, ask: &Ask) -> Result<Came> {
    // Outside of the savepoint: whatever becomes of it now, it is no longer parked and due.
    if !matches!(ask, Ask::Claim(prepared) if !prepared.due.parked) {
        raw::unpark(tx, ask.id())?;
    }
    match ask {
        Ask::Claim(prepared) => match tx.savepoint(|| claim::claim(tx, prepared)) {
            Ok(Claimed::Won(won)) => Ok(Came::Won(won)),
            Ok(Claimed::Ended(state)) => Ok(Came::Ended(state)),
            Err(error @ (Error::Unavailable(_) | Error::LostTransaction(_) | Error::Again)) => Err(error),
            Err(Error::LostClaim) => Ok(Came::PutBack), // it ended while it waited here
            Err(error) => {
                let attempts = prepared.due.attempts + u32::from(!prepared.counted);
                failed(tx, prepared.due.id, attempts, !prepared.counted, &error.to_string(), None)
            }
        },
        Ask::Split(id, items) => {
            raw::insert_items(tx, *id, *items)?;
            let state = if *items == 0 { State::Ignored } else { State::Done };
            raw::end(tx, *id, state, &format!("a batch of {items} events"), None)?;
            Ok(Came::Ended(state))
        }
        Ask::Wait(id, wait, why) => {
            raw::put_back(tx, *id, *wait, why, None)?;
            Ok(Came::Waits)
        }
        Ask::Fail(id, attempts, counted, why) => failed(tx, *id, *attempts, !counted, why, None),
        Ask::End(id, state, why) => {
            raw::end(tx, *id, *state, why, None)?;
            Ok(Came::Ended(*state))
        }
    }
}

/// A failed attempt: back with a wait, or dead after the last.
fn failed(tx: &Tx, id: i64, attempts: u32, count: bool, why: &str, fence: Option<i64>) -> Result<Came> {
    if count {
        raw::count_attempt(tx, id)?;
    }
    if APPLY.exhausted(attempts) {
        log::error!("raw event {id} is dead after {attempts} attempts: {why}");
        raw::end(tx, id, State::Dead, why, fence)?;
        return Ok(Came::Ended(State::Dead));
    }
    raw::put_back(tx, id, APPLY.wait(attempts), why, fence)?;
    Ok(Came::PutBack)
}

/// One commit's share of applies. A bad one rolls back alone.
fn apply_job(shared: Arc<Shared>, finished: Sender<Finished>, won: Vec<Won>, alone: bool) -> Job {
    let ids: Vec<i64> = won.iter().map(|w| w.raw_event).collect();
    let won = Arc::new(won);
    let came: Arc<Mutex<Vec<(i64, Came)>>> = Arc::default();
    let (inside, again) = (came.clone(), won.clone());
    Job {
        alone,
        run: Box::new(move |tx| {
            fault::point("before_apply");
            let began = Instant::now();
            let mut came = Vec::with_capacity(won.len());
            for one in won.iter() {
                if alone && !came.is_empty() && began.elapsed() > WORK_ALONE {
                    break; // the rest in a transaction of its own: others wait for the lock
                }
                came.push((one.raw_event, apply_one(tx, one)?));
            }
            *inside.lock().expect("no panic while it is held") = came;
            Ok(())
        }),
        done: Box::new(move |outcome| {
            if let Err(error) = outcome {
                // One of them lost the transaction for all: each again by itself; the one by itself is the culprit.
                // Code that is not ours may also be why the commit failed.
                let lost = !matches!(error, Error::Unavailable(_) | Error::Sqlite(_));
                if again.len() > 1 && (lost || alone) {
                    for one in again.iter() {
                        let job = apply_job(shared.clone(), finished.clone(), vec![one.clone()], alone);
                        shared.store.gate().submit(job);
                    }
                } else if lost {
                    return Some(fail_job(shared, finished, again[0].clone(), error.to_string()));
                } else {
                    let _ = finished.send(Finished { ids, failed: true });
                }
                return None;
            }
            let mut ids = ids;
            fault::point("after_apply");
            let came = std::mem::take(&mut *came.lock().expect("no panic while it is held"));
            let rest = again[came.len()..].to_vec();
            ids.truncate(came.len());
            for ((id, came), won) in came.into_iter().zip(again.iter()) {
                match came {
                    Came::Ended(state) => {
                        if state == State::Done {
                            shared.metrics.applied(won.received_at);
                        }
                        shared.ended(id, state);
                    }
                    Came::Waits => {}
                    Came::PutBack | Came::Won(_) => shared.failed(id),
                }
            }
            let _ = finished.send(Finished { ids, failed: false });
            shared.wake_sender();
            if !rest.is_empty() {
                let job = apply_job(shared.clone(), finished, rest, alone);
                shared.store.gate().submit(job);
            }
            None
        }),
    }
}

fn end(tx: &Tx, won: &Won, state: State, why: &str) -> Result<Came> {
    raw::end(tx, won.raw_event, state, why, Some(won.fence))?;
    Ok(Came::Ended(state))
}

/// When to look again for what an event of this age lacks: a customer's row comes within seconds, and whoever sees it
/// missing should see it applied within the interval of the sweep. After a day it hardly comes by itself.
fn look_again_in(age: Millis) -> Millis {
    const DAY: Millis = 86_400_000;
    if age < DAY { (age / 4).clamp(1_000, 120_000) } else { (age / 96).clamp(900_000, DAY / 4) }
}

fn apply_one(tx: &Tx, won: &Won) -> Result<Came> {
    let applied = tx.savepoint(|| {
        catch_unwind(AssertUnwindSafe(|| apply::apply(tx, won)))
            .unwrap_or_else(|_| Err(Error::Apply("the apply panicked".into())))
    });
    match applied {
        Ok(State::Received) => Ok(Came::Waits),
        Ok(state) => Ok(Came::Ended(state)),
        Err(Error::LostClaim) => {
            log::warn!("raw event {}: the claim was taken by somebody else; nothing was written", won.raw_event);
            Ok(Came::PutBack)
        }
        Err(error) if tx.conn.is_autocommit() || matches!(error, Error::Again) => Err(error),
        Err(Error::Reject(why)) => end(tx, won, State::Dead, &why),
        Err(Error::Conflict(why)) => end(tx, won, State::Conflict, &why),
        Err(Error::Parked { why, again: false }) => end(tx, won, State::Parked, &why),
        Err(Error::Parked { why, again: true }) => {
            let age = tx.now - raw::get(tx.conn, won.raw_event)?.map_or(tx.now, |due| due.received_at);
            raw::park(tx, won.raw_event, look_again_in(age), &why, Some(won.fence))?;
            Ok(Came::Ended(State::Parked))
        }
        Err(error) => failed(tx, won.raw_event, won.attempts, false, &error.to_string(), Some(won.fence)),
    }
}

/// Notes the failure of an event that took its own transaction down.
fn fail_job(shared: Arc<Shared>, finished: Sender<Finished>, won: Won, why: String) -> Job {
    let id = won.raw_event;
    Job {
        alone: false,
        run: Box::new(move |tx| failed(tx, id, won.attempts, false, &why, Some(won.fence)).map(|_| ())),
        done: Box::new(move |outcome| {
            shared.failed(id);
            let _ = finished.send(Finished { ids: vec![id], failed: outcome.is_err() });
            None
        }),
    }
}
