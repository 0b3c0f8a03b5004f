//! Preview: what a replay would change, found out by doing it and undoing it.
//!
//! The same read, claim and apply as always, inside a savepoint that is rolled back; there is no second way to compute it.
//! Nothing is sent and nothing is kept. A rule's own SQL runs too, and is undone with the rest.

use super::apply;
use super::claim::{self, Claimed, Prepared};
use super::fetch;
use super::read::{self, Read};
use crate::error::{Error, Result};
use crate::source::Source;
use crate::store::ledger::EntryLine;
use crate::store::raw::{self, State};
use crate::store::{Store, Tx, books, search};
use serde::Serialize;
use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex};

/// What a replay would change: the shape of `/api/v1/events/{id}/preview`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Preview {
    /// May it be replayed at all? DONE and DUPLICATE have nothing to replay; what is waiting runs by itself.
    pub replayable: bool,
    /// The state it would end in.
    pub state: String,
    /// Why, where there is a reason.
    pub reason: Option<String>,
    /// Entries that would be written, numbered as they would be.
    pub entries: Vec<EntryLine>,
    /// Objects whose state would move: `subscription sub_1`.
    pub entities: Vec<String>,
    /// Messages that would be put in line.
    pub messages: i64,
    /// Entries that this raw event has brought already.
    pub posted_before: Vec<i64>,
}

/// Finds out what a replay of a raw event would change. `None`: there is no such event.
pub fn preview(store: &Store, sources: &HashMap<String, Arc<Source>>, id: i64) -> Result<Option<Preview>> {
    let read = store.read(|conn| {
        let Some(due) = raw::get(conn, id)? else { return Ok(None) };
        let body = raw::body(conn, due.body)?;
        let posted = books::entries_of_event(conn, id)?.iter().map(|entry| entry.id).collect();
        let state = search::event(conn, id)?.map(|row| (row.state, row.reason));
        Ok(Some((due, body, posted, state.unwrap_or_default())))
    })?;
    let Some((due, body, posted_before, (state, reason))) = read else { return Ok(None) };
    let still = Preview { state, reason, posted_before, ..Preview::default() };
    let may =
        matches!(State::parse(&still.state), Some(State::Ignored | State::Parked | State::Conflict | State::Dead));
    if !may {
        return Ok(Some(still));
    }
    let ends = |state: State, reason: &str| Preview {
        replayable: true,
        state: state.as_str().into(),
        reason: Some(reason.to_owned()),
        posted_before: still.posted_before.clone(),
        ..Preview::default()
    };
    let Some(source) = sources.get(&due.source) else {
        let why = format!("its source {} is not in the configuration", due.source);
        return Ok(Some(ends(State::Parked, &why)));
    };
    let Some(body) = body else {
        return Ok(Some(ends(State::Dead, "its bytes are past their retention")));
    };
    let event = match catch_unwind(AssertUnwindSafe(|| {
        read::one(&mut read::events(source, &body, due.origin, due.received_at), due.item)
    })) {
        Ok(Read::Event(event)) => *event,
        Ok(Read::Batch(items)) => {
            return Ok(Some(ends(State::Done, &format!("a batch of {items} events, each replayed by itself"))));
        }
        Err(_) => return Ok(Some(ends(State::Dead, "reading it panics"))),
    };
    if fetch::is_needed(source, &event) {
        let why = "the provider's API would be asked first, and what it says would be posted";
        return Ok(Some(ends(State::Received, why)));
    }
    let prepared = Prepared { due, source: source.clone(), event: event.into(), counted: false };
    let found: Arc<Mutex<Option<Result<Preview>>>> = Arc::default();
    let inside = found.clone();
    // Alone: it may run a rule's SQL, which must not take bodies down with it.
    let undone = store.gate().write_alone(move |tx| -> Result<()> {
        *inside.lock().expect("no panic while it is held") = Some(try_it(tx, &prepared));
        Err(Error::LostClaim) // undoes all of it
    });
    let found = found.lock().expect("no panic while it is held").take();
    match (found, undone) {
        (Some(Ok(preview)), _) => Ok(Some(Preview { posted_before: still.posted_before, ..preview })),
        (Some(Err(Error::Reject(why))), _) => Ok(Some(ends(State::Dead, &why))),
        (Some(Err(Error::Conflict(why))), _) => Ok(Some(ends(State::Conflict, &why))),
        (Some(Err(Error::Parked { why, .. })), _) => Ok(Some(ends(State::Parked, &why))),
        (Some(Err(error)), _) => {
            Ok(Some(ends(State::Received, &format!("it would fail, and be tried again: {error}"))))
        }
        (None, Err(error)) => Err(error),
        (None, Ok(())) => Err(Error::Unavailable("the preview did not run".into())),
    }
}

fn try_it(tx: &Tx, prepared: &Prepared) -> Result<Preview> {
    let id = prepared.due.id;
    let mark = marks(tx)?;
    raw::replay(tx, id)?;
    if let Claimed::Won(won) = claim::claim(tx, prepared)? {
        catch_unwind(AssertUnwindSafe(|| apply::apply(tx, &won)))
            .unwrap_or_else(|_| Err(Error::Apply("the apply panics".into())))?;
    }
    let row = search::event(tx.conn, id)?.ok_or(Error::LostClaim)?;
    let (before, after) = (mark, marks(tx)?);
    let entries = books::entries_of_event(tx.conn, id)?.into_iter().filter(|entry| entry.id > before.0).collect();
    Ok(Preview {
        replayable: true,
        state: row.state,
        reason: row.reason,
        entries,
        entities: crate::store::entities::brought_by(tx.conn, id, &prepared.event)?,
        messages: after.1 - before.1,
        posted_before: Vec::new(),
    })
}

/// The newest entry and message.
fn marks(tx: &Tx) -> Result<(i64, i64)> {
    Ok((crate::store::ledger::newest(tx.conn)?, crate::store::outbox::newest(tx.conn)?))
}
