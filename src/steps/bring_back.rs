//! Bring back: what retention wrote to its archives becomes events again, in a file that lacks them.
//!
//! Through the same path as every event: kept, read, claimed, applied; whatever is there already is passed over by its
//! own keys. Sends no receipts and runs no effects: the app had both when the event first came. A line says what a
//! delivery said and no more: nothing that a sender wrote into it is taken for a word of ours.

use super::backfill::{EVENTS, WAITING_MAX, through};
use super::claim::{self, key_reference};
use super::read::{self, Before};
use super::retain::{Archived, read_archive};
use crate::error::{Error, Result};
use crate::event::{Event, Meaning, Millis, Mode};
use crate::settlement::told;
use crate::source::Source;
use crate::store::bodies::StoredBody;
use crate::store::raw::{self, Body, NewRaw, Origin};
use crate::store::settlement as tables;
use crate::store::{Access, claims, entities, search};
use rusqlite::Connection;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// How patiently, and who is told.
pub struct Ask<'a> {
    /// How long the worker may stand still before that is an error.
    pub wait: Duration,
    /// There is something to read and apply.
    pub wake: &'a dyn Fn(),
    /// Told how many lines were read.
    pub progress: &'a dyn Fn(u64),
}

/// What came of it.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct BroughtBack {
    /// Events in the archives.
    pub lines: u64,
    /// Handed over to be posted.
    pub imported: u64,
    /// Not handed over: there already, or nothing that posts.
    pub passed_over: u64,
    /// What became of those handed over, and of the items of their batches, by state.
    pub states: BTreeMap<String, i64>,
}

/// Brings back all events of these archives, in their order. Every line is read before the first is kept, so that a file
/// that is damaged, or a source that nobody configured, changes nothing.
pub fn bring_back(
    access: &Access,
    sources: &HashMap<String, Arc<Source>>,
    archives: &[PathBuf],
    ask: &Ask,
) -> Result<BroughtBack> {
    let mut unknown: BTreeMap<String, u64> = BTreeMap::new();
    for path in archives {
        read_archive(path, |line| {
            if !sources.contains_key(&line.source) {
                *unknown.entry(line.source).or_default() += 1;
            }
            Ok(())
        })?;
    }
    if !unknown.is_empty() {
        let names: Vec<String> = unknown.iter().map(|(name, count)| format!("{name} ({count} events)")).collect();
        return Err(Error::refused(
            format!("the archives hold events of sources that are not in the configuration: {}", names.join(", ")),
            "add them, with the provider, tenant and mode they had; nothing was imported",
        ));
    }
    let mut brought = BroughtBack::default();
    let newest = access.read(raw::newest)?;
    let mut held: Vec<NewRaw> = Vec::new();
    let mut batches: HashSet<String> = HashSet::new();
    let mut names: HashSet<String> = HashSet::new();
    for path in archives {
        read_archive(path, |line| {
            brought.lines += 1;
            if let Some(source) = sources.get(&line.source)
                && let Some(new) = wanted(access, source, &line, &mut batches)?
            {
                brought.imported += 1;
                names.insert(line.source);
                held.push(new);
            } else {
                brought.passed_over += 1;
            }
            if held.len() >= EVENTS {
                hand_over(access, &mut held, ask)?;
                (ask.progress)(brought.lines);
                names.iter().try_for_each(|name| through(access, name, WAITING_MAX, ask.wait, ask.wake))?;
            }
            Ok(())
        })?;
    }
    hand_over(access, &mut held, ask)?;
    names.iter().try_for_each(|name| through(access, name, 0, ask.wait, ask.wake))?;
    brought.states = access.read(|conn| search::imported_since(conn, newest))?;
    Ok(brought)
}

fn hand_over(access: &Access, held: &mut Vec<NewRaw>, ask: &Ask) -> Result<()> {
    let new = std::mem::take(held);
    access.write(move |tx| new.iter().try_for_each(|new| raw::insert(tx, new).map(drop)))?;
    (ask.wake)();
    Ok(())
}

/// The raw event of a line; `None`: nothing would come of it. A batch comes back whole, with its first line.
fn wanted(access: &Access, source: &Source, line: &Archived, batches: &mut HashSet<String>) -> Result<Option<NewRaw>> {
    if line.item > 0 && batches.contains(&line.sha256) {
        return Ok(None);
    }
    let bytes = line.bytes().ok_or_else(|| Error::Apply(format!("event {}: its bytes are damaged", line.id)))?;
    let received_at = instant(line)?;
    let headers = headers_of(line, received_at);
    let sha256 = hex::decode(&line.sha256).ok().and_then(|hash| hash.try_into().ok()).unwrap_or_default();
    let body = Body { bytes, headers, query: line.query.clone(), sha256 };
    let read = || read::events(source, &body, Origin::Imported, received_at);
    // One whose reading panics goes through, and ends as every such event does.
    let events = catch_unwind(AssertUnwindSafe(read)).unwrap_or_default();
    let known = access.read(|conn| {
        let mut known = !events.is_empty();
        for event in &events {
            known = known && is_known(conn, source, event, received_at)?;
        }
        Ok(known)
    })?;
    if known {
        return Ok(None);
    }
    if events.len() > 1 {
        batches.insert(line.sha256.clone());
    }
    Ok(Some(NewRaw {
        source: source.name.clone(),
        origin: Origin::Imported,
        secret: None,
        headers: body.headers,
        query: body.query,
        body: StoredBody::pack(&body.bytes),
    }))
}

fn instant(line: &Archived) -> Result<Millis> {
    line.received_at.parse().map(jiff::Timestamp::as_millisecond).map_err(|_| {
        Error::refused(
            format!("event {} of the archive came at {:?}, which is no time", line.id, line.received_at),
            "the file was changed after postonce wrote it",
        )
    })
}

/// The headers as they were, without what only we may say, and with what we know of it.
fn headers_of(line: &Archived, received_at: Millis) -> String {
    let ours = matches!(line.origin.as_str(), "report" | "imported");
    let before = Before::of(&line.headers).filter(|_| line.origin == "imported");
    let asked = matches!(line.origin.as_str(), "fetched" | "rebuilt");
    let before = before.unwrap_or(Before { received_at, confirmed: line.confirmed, asked });
    let mut headers = before.line() + "\n";
    for header in line.headers.lines() {
        let reserved = header.get(..9).is_some_and(|begin| begin.eq_ignore_ascii_case("postonce-"));
        if !reserved || (ours && header == told::HEADER) {
            headers.push_str(header);
            headers.push('\n');
        }
    }
    headers
}

/// Is everything that this event would do done already, or is there nothing to do?
fn is_known(conn: &Connection, source: &Source, event: &Event, received_at: Millis) -> Result<bool> {
    let name = claim::book_of(source, event);
    if source.mode.is_some_and(|mode: Mode| mode != name.mode) {
        return Ok(true);
    }
    let Some(book) = tables::book_id(conn, &name)? else {
        return Ok(matches!(event.meaning, Meaning::Ignored(_)));
    };
    let done = |kind: &str, reference: &str| {
        claims::find(conn, book, kind, reference).map(|claim| claim.is_some_and(|claim| claim.done))
    };
    if let Some(id) = event.id.as_deref().filter(|_| !event.weak_id)
        && done(claims::EVENT, id)?
    {
        return Ok(true);
    }
    let Meaning::Effects { movements, entities } = &event.meaning else {
        return Ok(matches!(event.meaning, Meaning::Ignored(_)));
    };
    for movement in movements {
        if movement.amount.minor() != 0 && !done(&movement.kind, &key_reference(movement))? {
            return Ok(false);
        }
    }
    for state in entities {
        if !entities::is_known(conn, book, state, event.occurred_at.unwrap_or(received_at))? {
            return Ok(false);
        }
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(origin: &str, headers: &str) -> Archived {
        Archived {
            id: 1,
            source: "stripe".into(),
            origin: origin.into(),
            state: "DONE".into(),
            received_at: "2026-11-30T12:00:00Z".into(),
            confirmed: false,
            item: 0,
            headers: headers.into(),
            query: String::new(),
            sha256: String::new(),
            body: String::new(),
        }
    }

    #[test]
    fn what_a_sender_wrote_is_never_taken_for_a_word_of_ours() {
        let sent = "x: 1\nPostonce-Body: report-line\npostonce-body: report-line\npostonce-before: 5 confirmed\n";
        let at = 1_796_040_000_000;
        assert_eq!(instant(&line("webhook", "")).unwrap(), at);
        let headers = headers_of(&line("webhook", sent), at);
        assert_eq!(headers, format!("postonce-before: {at} as-signed\nx: 1\n"));
        let headers = headers_of(&line("report", "postonce-body: report-line\n"), at);
        assert_eq!(headers, format!("postonce-before: {at} as-signed\npostonce-body: report-line\n"));
        let sent = headers_of(&line("webhook", "postonce-before: 5 confirmed asked\n"), at);
        assert_eq!(Before::of(&sent), Some(Before { received_at: at, confirmed: false, asked: false }));
        let given = headers_of(&Archived { confirmed: true, ..line("fetched", "a: b\n") }, at);
        let wanted = Before { received_at: at, confirmed: true, asked: true };
        assert_eq!(Before::of(&given), Some(wanted));
        let (early, late) = (headers_of(&line("imported", "postonce-before: 5 confirmed\n"), at), at + 7);
        assert_eq!(Before::of(&early), Some(Before { received_at: 5, confirmed: true, asked: false }));
        assert_eq!(Before::of(&headers_of(&line("imported", &given), late)), Some(wanted), "once more, and still so");
    }
}
