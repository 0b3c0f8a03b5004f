//! The answers of `ack = "applied"`: who waits for the end of a raw event is told it here, on a thread of its own.
//!
//! Neither the writer nor an edge thread ever waits or reads for an answer. A waiter is called once, at the latest
//! after [`PATIENCE`]; one that comes too late for the end finds it in the table.

use super::Shared;
use crate::store::raw::{self, State};
use crossbeam_channel::{Receiver, RecvTimeoutError, Sender};
use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// How long an answer may be held back: most providers give up after 10 to 30 s, and one that gave up sends again.
pub const PATIENCE: Duration = Duration::from_secs(8);

/// What became of a raw event.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Told {
    /// It ended in this state.
    Ended(State),
    /// An attempt failed; it will be tried again.
    Failed,
    /// Nothing yet, and the waiter has waited for long enough.
    Late,
}

/// Told once what became of a raw event.
pub type Waiter = Box<dyn FnOnce(Told) + Send>;

/// Who waits, and the way to the thread that tells them.
pub(super) struct Answers {
    waiting: Mutex<HashMap<i64, (Instant, Waiter)>>,
    count: AtomicUsize,
    news: Sender<(i64, Option<Told>)>,
}

impl Answers {
    pub(super) fn new(news: Sender<(i64, Option<Told>)>) -> Answers {
        Answers { waiting: Mutex::default(), count: AtomicUsize::new(0), news }
    }

    pub(super) fn wait_for(&self, raw_event: i64, waiter: Waiter) {
        let until = Instant::now() + PATIENCE;
        self.waiting.lock().expect("no panic while it is held").insert(raw_event, (until, waiter));
        self.count.fetch_add(1, Relaxed);
        let _ = self.news.send((raw_event, None)); // it may have ended before this
    }

    pub(super) fn tell(&self, raw_event: i64, told: Told) {
        if self.count.load(Relaxed) > 0 {
            let _ = self.news.send((raw_event, Some(told)));
        }
    }

    /// It is time to end: the thread looks now, not when its wait is over.
    pub(super) fn wake(&self) {
        let _ = self.news.send((0, None));
    }

    fn call(&self, raw_event: i64, told: Told) {
        let waiter = self.waiting.lock().expect("no panic while it is held").remove(&raw_event);
        if let Some((_, waiter)) = waiter {
            self.count.fetch_sub(1, Relaxed);
            waiter(told);
        }
    }

    fn over(&self, now: Option<Instant>) -> Vec<i64> {
        let waiting = self.waiting.lock().expect("no panic while it is held");
        waiting.iter().filter(|(_, (until, _))| now.is_none_or(|now| now > *until)).map(|(id, _)| *id).collect()
    }
}

/// Runs until the engine stops; whoever still waits then is told that it is late.
pub(super) fn run(shared: &Shared, news: &Receiver<(i64, Option<Told>)>) {
    let answers = &shared.answers;
    while !shared.is_stopping() {
        match news.recv_timeout(Duration::from_millis(200)) {
            Ok((id, Some(told))) => answers.call(id, told),
            Ok((id, None)) => {
                if let Some(told) = look(shared, id) {
                    answers.call(id, told);
                }
            }
            Err(RecvTimeoutError::Timeout) => {
                answers.over(Some(Instant::now())).into_iter().for_each(|id| answers.call(id, Told::Late));
            }
            Err(RecvTimeoutError::Disconnected) => break,
        }
    }
    answers.over(None).into_iter().for_each(|id| answers.call(id, Told::Late));
}

/// What the table says of it already.
fn look(shared: &Shared, raw_event: i64) -> Option<Told> {
    let (state, attempts) = shared.store.read(|conn| raw::standing(conn, raw_event)).ok()??;
    match state {
        State::Claimed => None,
        State::Received => (attempts > 0).then_some(Told::Failed),
        ended => Some(Told::Ended(ended)),
    }
}
