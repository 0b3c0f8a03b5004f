//! The sender: takes what is due in the outbox, sends it from a few threads, and notes what came of it.
//!
//! A slow endpoint holds its own share of the threads and no more. Sends nothing while a transaction is open, and nothing
//! twice because what came of it cannot be written down yet.

use super::Shared;
use crate::clock;
use crate::fault;
use crate::steps::deliver::{self, Message};
use crate::steps::sweep;
use crate::store::outbox::{self, Attempt, DueMessage};
use crossbeam_channel::{Receiver, Sender, bounded, select, unbounded};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

/// Messages under way at once.
const THREADS: usize = 8;
/// Messages under way at once to one endpoint.
const PER_ENDPOINT: usize = 4;
/// Due messages looked at in one go.
const BATCH: usize = 64;
/// After what came of messages could not be written down.
const NOTE_AGAIN: Duration = Duration::from_secs(1);

/// Runs until the engine stops.
pub(super) fn run(shared: &Arc<Shared>, wake: &Receiver<()>) {
    let (work, work_in) = bounded::<DueMessage>(THREADS);
    let (noted, noted_in) = unbounded::<Attempt>();
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            let (work_in, noted) = (work_in.clone(), noted.clone());
            scope.spawn(move || work_in.iter().for_each(|due| attempt(shared, due, &noted)));
        }
        let mut under_way: HashMap<i64, String> = HashMap::new();
        let mut back = Back::default();
        while !shared.is_stopping() || !under_way.is_empty() {
            back.note(shared, &noted_in, &mut under_way);
            let sent = if shared.is_stopping() { 0 } else { hand_out(shared, &work, &mut under_way) };
            if sent == 0 {
                wait(shared, wake, &noted_in, &noted, &under_way);
            }
        }
        drop(work);
    });
}

fn hand_out(shared: &Shared, work: &Sender<DueMessage>, under_way: &mut HashMap<i64, String>) -> usize {
    let limit = BATCH + under_way.len();
    let due = match shared.store.read(|conn| outbox::due(conn, clock::steady(), limit)) {
        Ok(due) => due,
        Err(e) => {
            log::warn!("the outbox could not be read: {e}");
            return 0;
        }
    };
    let mut sent = 0;
    let mut full: HashSet<String> = HashSet::new();
    for message in due {
        let busy = under_way.values().filter(|e| **e == message.endpoint).count();
        if under_way.contains_key(&message.id) || full.contains(&message.endpoint) || busy >= PER_ENDPOINT {
            full.insert(message.endpoint);
            continue;
        }
        let (id, endpoint) = (message.id, message.endpoint.clone());
        if work.try_send(message).is_err() {
            break;
        }
        under_way.insert(id, endpoint);
        sent += 1;
    }
    sent
}

fn attempt(shared: &Shared, due: DueMessage, noted: &Sender<Attempt>) {
    let refused = |error: String| Attempt {
        message: due.id,
        at: clock::wall(),
        status: None,
        took_ms: 0,
        error: Some(error),
        retry_in: Some(60_000),
        note: None,
    };
    let endpoint = shared.endpoints.get(&due.endpoint);
    if let Some(mail) = endpoint.and_then(|endpoint| endpoint.mail.as_ref()) {
        let _ = noted.send(deliver::send_mail(mail, &shared.store, &shared.sources, &due));
        return;
    }
    let attempt = match (endpoint, deliver::compose(&shared.store, &due)) {
        (None, _) => {
            Attempt { retry_in: None, ..refused(format!("there is no endpoint {} in the configuration", due.endpoint)) }
        }
        (_, Err(e)) => refused(e.to_string()),
        (Some(endpoint), Ok(message)) => {
            let message: Message = message;
            fault::point("before_send");
            deliver::send(endpoint, &due, &message)
        }
    };
    fault::point("after_send");
    let _ = noted.send(attempt);
}

/// Messages that are back, until what came of them is written down. While it cannot be (the disk is full, another process
/// holds the lock) they stay under way: sent again they would reach the app over and over.
#[derive(Default)]
struct Back {
    attempts: Vec<Attempt>,
    again_at: Option<Instant>,
}

impl Back {
    /// Writes down what came of them, many in one commit.
    fn note(&mut self, shared: &Shared, noted_in: &Receiver<Attempt>, under_way: &mut HashMap<i64, String>) {
        for attempt in noted_in.try_iter() {
            count(shared, &attempt, under_way);
            self.attempts.push(attempt);
        }
        let stopping = shared.is_stopping();
        if self.attempts.is_empty() || (!stopping && self.again_at.is_some_and(|at| Instant::now() < at)) {
            return;
        }
        fault::point("before_mark");
        let attempts: Vec<Attempt> = self.attempts.iter().take(BATCH).cloned().collect();
        let ids: Vec<i64> = attempts.iter().map(|a| a.message).collect();
        let written =
            shared.store.write(move |tx| attempts.iter().try_for_each(|attempt| outbox::attempted(tx, attempt)));
        match written {
            Ok(()) => self.again_at = None,
            Err(e) if stopping => {
                log::warn!(
                    "what came of {} messages could not be noted; the next start sends them again: {e}",
                    ids.len()
                );
            }
            Err(e) => {
                log::warn!("what came of {} messages could not be noted yet: {e}", ids.len());
                self.again_at = Some(Instant::now() + NOTE_AGAIN);
                return;
            }
        }
        fault::point("after_mark");
        self.attempts.drain(..ids.len());
        for id in ids {
            under_way.remove(&id);
        }
    }
}

fn count(shared: &Shared, attempt: &Attempt, under_way: &HashMap<i64, String>) {
    shared.metrics.deliver.record(Duration::from_millis(u64::try_from(attempt.took_ms).unwrap_or(0)));
    match &attempt.error {
        None => shared.counts.sent.fetch_add(1, Relaxed),
        Some(error) => {
            log::info!(
                "message {} to {}: {error}",
                attempt.message,
                under_way.get(&attempt.message).map_or("?", |e| e)
            );
            shared.counts.send_failures.fetch_add(1, Relaxed)
        }
    };
}

fn wait(
    shared: &Shared,
    wake: &Receiver<()>,
    noted_in: &Receiver<Attempt>,
    noted: &Sender<Attempt>,
    under_way: &HashMap<i64, String>,
) {
    let next = shared.store.read(outbox::next_due).ok().flatten();
    let wait = match next {
        _ if shared.is_stopping() => 50,
        Some(due) if under_way.is_empty() => (due - clock::steady()).clamp(5, sweep::EVERY),
        Some(_) => 1000,
        None => sweep::EVERY,
    };
    select! {
        recv(wake) -> _ => {}
        recv(noted_in) -> attempt => if let Ok(attempt) = attempt { let _ = noted.send(attempt); },
        default(Duration::from_millis(wait as u64)) => {}
    }
}
