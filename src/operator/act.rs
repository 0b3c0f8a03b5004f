//! What a person can change: replay, requeue, take an entry back, check the file. Pages and API call the same functions.
//!
//! Each change and its audit row are one transaction.

use super::App;
use super::ask::Ask;
use crate::clock::as_rfc3339_or_null;
use crate::error::{Error, Result};
use crate::event::Millis;
use crate::steps::repair::{self, AskedAgain, Wanted};
use crate::steps::{correct, fetch, preview};
use crate::store::audit::{self, Change};
use crate::store::check::Offence;
use crate::store::ledger::EntryLine;
use crate::store::settlement::discrepancies;
use crate::store::{Access, Tx, books, check, listing, messages, open_for_reading, outbox, raw, search};
use serde::Serialize;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Dead events or messages that one button takes up.
const AT_ONCE: usize = 1000;

/// The last check of the file, or the one that runs.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct Check {
    pub running: bool,
    #[serde(serialize_with = "as_rfc3339_or_null")]
    pub began_at: Option<Millis>,
    #[serde(serialize_with = "as_rfc3339_or_null")]
    pub ended_at: Option<Millis>,
    /// Why it could not be made.
    pub error: Option<String>,
    /// What is not as promised; empty with `ended_at`: the file is clean.
    pub offences: Vec<Offence>,
}

fn change(ask: &Ask, what: &'static str, target: String, note: &str) -> Change {
    let who = format!("{} from {}", ask.who.name, ask.client.address);
    Change { who, what, target, note: note.to_owned() }
}

/// Runs a change with its audit row.
fn audited<T: Send + 'static>(
    app: &App,
    change: Change,
    mut f: impl FnMut(&Tx) -> Result<T> + Send + 'static,
) -> Result<T> {
    app.shared().store.write(move |tx| {
        let value = f(tx)?;
        audit::write(tx, &change)?;
        Ok(value)
    })
}

/// What a replay of an event would change.
pub(super) fn preview(app: &App, id: i64) -> Result<Option<preview::Preview>> {
    preview::preview(&app.shared().store, &app.shared().sources, id)
}

/// Sends an event through the same path again.
pub(super) fn replay(ask: &Ask, id: i64, note: &str) -> Result<()> {
    audited(ask.app, change(ask, "replay", format!("event {id}"), note), move |tx| {
        if raw::replay(tx, id)? {
            return Ok(());
        }
        let state = listing::state(tx.conn, id)?.unwrap_or_default();
        Err(Error::refused(
            format!("event {id} cannot be replayed: it is {state}"),
            "what is done or a repeat has nothing to replay; what is waiting runs by itself",
        ))
    })?;
    ask.app.shared().wake();
    Ok(())
}

/// Sends every dead event through again, at most a thousand; gives how many.
pub(super) fn replay_dead(ask: &Ask, note: &str) -> Result<usize> {
    let app = ask.app;
    let dead = search::EventQuery { states: vec!["DEAD"], limit: AT_ONCE, ..Default::default() };
    let ids: Vec<i64> =
        app.shared().store.look(|conn| search::events(conn, &dead))?.rows.iter().map(|r| r.id).collect();
    let template = change(ask, "replay", String::new(), note);
    let count = app.shared().store.write(move |tx| {
        let mut count = 0;
        for id in &ids {
            if raw::replay(tx, *id)? {
                audit::write(tx, &Change { target: format!("event {id}"), ..template.clone() })?;
                count += 1;
            }
        }
        Ok(count)
    })?;
    app.shared().wake();
    Ok(count)
}

/// Puts a dead message in line again.
pub(super) fn requeue(ask: &Ask, id: i64, note: &str) -> Result<()> {
    audited(ask.app, change(ask, "requeue", format!("message {id}"), note), move |tx| {
        if outbox::requeue(tx, id)? {
            return Ok(());
        }
        Err(Error::refused(format!("message {id} is not dead"), "what waits is sent by itself; what was sent is done"))
    })?;
    ask.app.shared().wake_sender();
    Ok(())
}

/// Puts every dead message in line again, at most a thousand; gives how many.
pub(super) fn requeue_dead(ask: &Ask, note: &str) -> Result<usize> {
    let app = ask.app;
    let ids = app.shared().store.look(|conn| messages::dead_ids(conn, AT_ONCE))?;
    let template = change(ask, "requeue", String::new(), note);
    let count = app.shared().store.write(move |tx| {
        let mut count = 0;
        for id in &ids {
            if outbox::requeue(tx, *id)? {
                audit::write(tx, &Change { target: format!("message {id}"), ..template.clone() })?;
                count += 1;
            }
        }
        Ok(count)
    })?;
    app.shared().wake_sender();
    Ok(count)
}

/// The entry that would take this one back: written, read, and undone.
pub(super) fn preview_reversal(app: &App, entry: i64, note: &str) -> Result<EntryLine> {
    let note = note.to_owned();
    let found: Arc<Mutex<Option<Result<Option<EntryLine>>>>> = Arc::default();
    let inside = found.clone();
    let undone = app.shared().store.write(move |tx| -> Result<()> {
        let tried = correct::reverse(tx, entry, &note, None).and_then(|id| books::entry(tx.conn, id));
        *inside.lock().expect("no panic while it is held") = Some(tried);
        Err(Error::LostClaim) // undoes it
    });
    match (found.lock().expect("no panic while it is held").take(), undone) {
        (Some(tried), _) => {
            tried?.ok_or_else(|| Error::refused(format!("there is no entry {entry}"), "see the ledger"))
        }
        (None, Err(error)) => Err(error),
        (None, Ok(())) => Err(Error::Unavailable("the preview did not run".into())),
    }
}

/// Takes an entry back by a new one; gives its id.
pub(super) fn reverse(ask: &Ask, entry: i64, note: &str) -> Result<i64> {
    let app = ask.app;
    let source = app.shared().store.look(|conn| {
        let Some(line) = books::entry(conn, entry)? else { return Ok(None) };
        Ok(search::event(conn, line.raw_event)?.map(|event| event.source))
    })?;
    let source = source.and_then(|name| app.shared().sources.get(&name).cloned());
    let note = note.to_owned();
    let id = audited(app, change(ask, "reverse", format!("entry {entry}"), &note.clone()), move |tx| {
        correct::reverse(tx, entry, &note, source.as_deref())
    })?;
    app.shared().wake_sender();
    Ok(id)
}

/// Begins a check of the file in a thread of its own, unless one runs; `false`: one runs already.
pub(super) fn start_check(ask: &Ask) -> Result<bool> {
    let app = ask.app;
    {
        let mut check = app.check.lock().expect("no panic while it is held");
        if check.running {
            return Ok(false);
        }
        *check = Check { running: true, began_at: Some(crate::clock::wall()), ..Check::default() };
    }
    let (kept, path) = (app.check.clone(), app.shared().store.path().to_owned());
    let run = move || {
        // A connection of its own: it may take minutes.
        let found = open_for_reading(&path).and_then(|conn| {
            let snapshot = conn.unchecked_transaction()?;
            let offences = check::run(&conn);
            drop(snapshot);
            offences
        });
        let mut check = kept.lock().expect("no panic while it is held");
        check.running = false;
        check.ended_at = Some(crate::clock::wall());
        match found {
            Ok(offences) => check.offences = offences,
            Err(error) => check.error = Some(error.to_string()),
        }
    };
    let spawned = std::thread::Builder::new().name("check".into()).spawn(run);
    if let Err(e) = spawned {
        app.check.lock().expect("no panic while it is held").running = false;
        return Err(Error::Unavailable(e.to_string()));
    }
    app.shared().store.write({
        let change = change(ask, "check", "the file".into(), "");
        move |tx| audit::write(tx, &change)
    })?;
    Ok(true)
}

/// How the last check went.
pub(super) fn last_check(app: &App) -> Check {
    app.check.lock().expect("no panic while it is held").clone()
}

/// Ends a discrepancy.
pub(super) fn resolve(ask: &Ask, id: i64, how: &'static str, note: &str) -> Result<()> {
    let change = change(ask, "resolve", format!("discrepancy {id}"), note);
    let (who, note) = (change.who.clone(), note.to_owned());
    audited(ask.app, change, move |tx| discrepancies::resolve(tx, id, how, &who, &note))
}

/// Gives a discrepancy to somebody.
pub(super) fn assign(ask: &Ask, id: i64, to: &str, note: &str) -> Result<()> {
    let change = change(ask, "assign", format!("discrepancy {id}"), note);
    let (who, to, note) = (change.who.clone(), to.to_owned(), note.to_owned());
    audited(ask.app, change, move |tx| discrepancies::assign(tx, id, &to, &who, &note))
}

/// How long one press of a button waits for what was fetched to be posted; it comes through without anybody waiting too.
const FETCHED_WITHIN: Duration = Duration::from_secs(5);

/// Asks the provider again for what is missing here.
pub(super) fn fetch_again(ask: &Ask, id: i64, note: &str) -> Result<AskedAgain> {
    let shared = ask.app.shared();
    let change = change(ask, "fetch", format!("discrepancy {id}"), note);
    let wanted = Wanted { discrepancy: id, change, wait: FETCHED_WITHIN };
    let sources = shared.sources.values().map(|source| &**source);
    repair::fetch_again(&Access::Ours(&shared.store), sources, fetch::pace(), &wanted, &|| shared.wake())
}
