//! A file with millions of events in it, for `postonce bench --file`: the rows that a server would have written in a
//! hundred days.
//!
//! Goes through the same steps as every event (read, claim, apply), many to a commit; only signatures, HTTP and the app are
//! left out, and the clock says the day of the event. `postonce check` finds nothing in it.

use super::load::body_at;
use super::{BODY, configuration, sample_headers};
use crate::clock;
use crate::engine;
use crate::error::{Error, Result};
use crate::event::Millis;
use crate::source::Source;
use crate::steps::apply;
use crate::steps::claim::{Claimed, Prepared, claim};
use crate::steps::read::{self, Read};
use crate::store::bodies::StoredBody;
use crate::store::outbox::{self, Attempt};
use crate::store::raw::{self, Body, Due, NewRaw, Origin};
use crate::store::{Options, Store, Tx, sums};
use sha2::{Digest as _, Sha256};
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::sync_channel;
use std::time::Instant;

/// Over how many days they are spread, up to now.
pub(super) const DAYS: i64 = 100;
const DAY: Millis = 86_400_000;
/// Events of a commit.
const BATCH: u64 = 2000;

struct Ready {
    at: Millis,
    raw: NewRaw,
    prepared: Prepared,
}

/// When event `number` of so many came, if the last came now.
fn came_at(number: u64, of: u64, now: Millis) -> Millis {
    now - DAYS * DAY + (i128::from(number) * i128::from(DAYS * DAY) / i128::from(of.max(1))) as i64
}

/// Makes the file; one that is there is filled up.
pub(super) fn run(file: &Path, events: u64) -> Result<()> {
    let dir = file.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let loaded = configuration(file, dir)?;
    let (sources, _) = engine::build(&loaded).map_err(|faults| Error::Apply(faults[0].to_string()))?;
    let source = sources.into_iter().next().map(Arc::new).ok_or_else(|| Error::Apply("no source".into()))?;
    let store = Store::open(file, &Options { checkpoint_pages: 4000, ..Options::default() })?;
    let from = store.read(|conn| Ok(u64::try_from(raw::newest(conn)?).unwrap_or(0)))?;
    let (began, now) = (Instant::now(), clock::wall());
    let (hand, ready) = sync_channel::<Vec<Ready>>(4);
    std::thread::scope(|scope| -> Result<()> {
        scope.spawn(|| {
            let hand = hand; // gone with this thread, so that the other one ends
            let mut next = from;
            while next < events {
                let until = (next + BATCH).min(events);
                let batch = (next..until).map(|n| prepare(&source, n + 1, came_at(n, events, now))).collect();
                if hand.send(batch).is_err() {
                    return;
                }
                next = until;
            }
        });
        let mut made = from;
        for batch in &ready {
            made += batch.len() as u64;
            let day = batch.last().map_or(now, |one| one.at);
            store.write(move |tx| tx.as_of(day, |tx| batch.iter().try_for_each(|one| put(tx, one))))?;
            if made.is_multiple_of(BATCH * 50) || made == events {
                eprintln!("filling: {made} of {events} in {} s", began.elapsed().as_secs());
            }
        }
        Ok(())
    })?;
    // a server that had run for so long would have added up what it posted
    while let Some(next) = store.read(sums::next)? {
        store.write(move |tx| sums::add(tx, &next))?;
    }
    store.stop();
    Ok(())
}

fn prepare(source: &Arc<Source>, number: u64, at: Millis) -> Ready {
    let bytes = body_at(BODY, number, at / 1000);
    let raw = NewRaw {
        source: source.name.clone(),
        origin: Origin::Webhook,
        secret: Some("bench".into()),
        headers: sample_headers(number),
        query: String::new(),
        body: StoredBody::pack(&bytes),
    };
    let sha256 = Sha256::digest(&bytes).into();
    let body = Body { bytes, headers: raw.headers.clone(), query: String::new(), sha256 };
    let mut events = read::events(source, &body, Origin::Webhook, at);
    let Read::Event(event) = read::one(&mut events, 0) else { unreachable!("one event a body") };
    let due = Due {
        id: 0,
        source: source.name.clone(),
        body: 0,
        item: 0,
        origin: Origin::Webhook,
        received_at: at,
        due_at: 0,
        attempts: 0,
        fence: 0,
        parked: false,
        was_claimed: false,
    };
    Ready { at, raw, prepared: Prepared { due, source: source.clone(), event: Arc::new(*event), counted: false } }
}

/// One event, from its bytes to its entry.
fn put(tx: &Tx, one: &Ready) -> Result<()> {
    let id = raw::insert(tx, &one.raw)?;
    let mut prepared = one.prepared.clone();
    (prepared.due.id, prepared.due.body) = (id, id);
    match claim(tx, &prepared)? {
        Claimed::Won(won) => {
            apply::apply(tx, &won)?;
            let message = outbox::newest(tx.conn)?;
            let sent =
                Attempt { message, at: one.at, status: Some(200), took_ms: 3, error: None, retry_in: None, note: None };
            outbox::attempted(tx, &sent)
        }
        Claimed::Ended(state) => {
            Err(Error::Apply(format!("event {id} ended as {state:?}: was the file filled otherwise?")))
        }
    }
}
