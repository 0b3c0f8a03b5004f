//! The fetchers: a few threads that ask providers' APIs, so that nobody else ever waits for one.
//!
//! Takes events that were read and need more than their body, and sends them on into the same claim and apply as all
//! others. The queue is bounded; what does not fit stays in its table and comes again.

use super::Shared;
use super::worker::{Ask, Finished, claim_job};
use crate::event::Mode;
use crate::pull::Client;
use crate::source::Source;
use crate::steps::claim::Prepared;
use crate::steps::fetch;
use crossbeam_channel::{Receiver, Sender, bounded};
use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::thread::JoinHandle;

/// Calls at a time: providers limit them, and two cores have other things to do.
const THREADS: usize = 3;
/// Events that wait for one of them: less than the worker holds in flight, so that others always pass.
const QUEUE: usize = 256;

/// An event that needs the provider's API.
pub(super) struct Task {
    pub prepared: Box<Prepared>,
}

/// The threads and the way to them.
pub(super) struct Fetcher {
    tasks: Option<Sender<Task>>,
    busy: Arc<AtomicUsize>,
    threads: Vec<JoinHandle<()>>,
}

impl Fetcher {
    /// Starts the threads where a source has an API key; without any, nothing is ever taken.
    pub(super) fn start(shared: &Arc<Shared>, finished: &Sender<Finished>) -> Fetcher {
        let (tasks, waiting) = bounded(QUEUE);
        let busy = Arc::new(AtomicUsize::new(0));
        let wanted = shared.sources.values().any(|source| source.api_key.is_some());
        let threads = (0..if wanted { THREADS } else { 0 })
            .filter_map(|at| {
                let (shared, waiting, finished, busy) =
                    (shared.clone(), waiting.clone(), finished.clone(), busy.clone());
                let run = move || run(&shared, &waiting, &finished, &busy);
                std::thread::Builder::new().name(format!("fetcher{at}")).spawn(run).ok()
            })
            .collect();
        Fetcher { tasks: Some(tasks), busy, threads }
    }

    /// Hands over an event; gives it back when there are too many.
    pub(super) fn take(&self, task: Task) -> Result<(), Task> {
        let Some(tasks) = &self.tasks else { return Err(task) };
        self.busy.fetch_add(1, Relaxed);
        tasks.try_send(task).map_err(|full| {
            self.busy.fetch_sub(1, Relaxed);
            full.into_inner()
        })
    }

    /// How many events are with them.
    pub(super) fn busy(&self) -> usize {
        self.busy.load(Relaxed)
    }
}

impl Drop for Fetcher {
    fn drop(&mut self) {
        self.tasks = None;
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

/// A client keeps connections and tokens: one for each source and mode in each thread.
type Clients<'s> = HashMap<(&'s str, bool), Client<'s>>;

fn run(shared: &Arc<Shared>, tasks: &Receiver<Task>, finished: &Sender<Finished>, busy: &AtomicUsize) {
    let mut clients = Clients::new();
    while let Ok(Task { prepared }) = tasks.recv() {
        let (id, counted) = (prepared.due.id, prepared.counted);
        let attempts = prepared.due.attempts + u32::from(!counted);
        if shared.is_stopping() {
            busy.fetch_sub(1, Relaxed);
            let _ = finished.send(Finished { ids: vec![id], failed: false }); // still due, for the next start
            continue;
        }
        let ask = match shared.sources.get(&prepared.due.source) {
            Some(source) => catch_unwind(AssertUnwindSafe(|| ask(&mut clients, source, *prepared)))
                .unwrap_or_else(|_| Ask::Fail(id, attempts, counted, "fetching it panicked".into())),
            None => Ask::Claim(prepared),
        };
        busy.fetch_sub(1, Relaxed);
        shared.store.gate().submit(claim_job(shared.clone(), finished.clone(), vec![ask]));
    }
}

fn ask<'s>(clients: &mut Clients<'s>, source: &'s Source, prepared: Prepared) -> Ask {
    let Prepared { due, counted, .. } = &prepared;
    let attempts = due.attempts + u32::from(!counted);
    let (id, counted, received_at) = (due.id, *counted, due.received_at);
    let test = prepared.event.mode.or(source.mode) == Some(Mode::Test);
    let client = match clients.entry((&source.name, test)) {
        std::collections::hash_map::Entry::Occupied(there) => there.into_mut(),
        std::collections::hash_map::Entry::Vacant(free) => match source.client(test, fetch::pace()) {
            Ok(client) => free.insert(client),
            Err(error) => return Ask::Fail(id, attempts, counted, error.to_string()),
        },
    };
    match fetch::fetch(client, source, &prepared.event, received_at) {
        Ok(event) => Ask::Claim(Box::new(Prepared { event: event.into(), ..prepared })),
        Err(why) => Ask::Fail(id, attempts, counted, why),
    }
}
