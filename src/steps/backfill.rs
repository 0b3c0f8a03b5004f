//! Backfill: the history of a business that was there before us, brought in through the same path as every event.
//!
//! From a report file or the provider's API. Sends no receipts. Ends with a run over the same report, so that what was
//! brought in is settled and the first daily run starts at zero. Also fetches what a provider sent while we were down.

use super::repair::{raw_of, told_of};
use super::settle::{self, Ask, Settled, book_of};
use crate::error::{Error, Result};
use crate::event::Millis;
use crate::providers::pull::Gives;
use crate::pull::{Client, Pace, PullError};
use crate::settlement::told;
use crate::source::Source;
use crate::store::raw::{self, NewRaw, Origin};
use crate::store::settlement::{self as tables, reports};
use crate::store::{Access, claims};
use std::time::{Duration, Instant};

/// Raw events in one piece of work, and how many may wait for the worker.
pub(super) const EVENTS: usize = 100;
pub(super) const WAITING_MAX: i64 = 5_000;

/// What was brought in.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Imported {
    /// The report that it came from.
    pub report: i64,
    /// Its lines.
    pub lines: i64,
    /// Handed over to be posted.
    pub imported: i64,
    /// Not handed over: there already, not yet succeeded, another integration's, or without a reference.
    pub passed_over: i64,
    /// The run over it.
    pub run: Settled,
}

/// Brings in all of a report, and settles it.
pub fn import(access: &Access, source: &Source, ask: &Ask) -> Result<Imported> {
    let kept = settle::keep(access, source, ask)?;
    let (report, lines) = (kept.id, kept.rows);
    let name = book_of(source);
    let mode = name.mode;
    let book = access.write(move |tx| tx.book(&name))?;
    let (mut imported, mut passed_over, mut after) = (0, 0, 0);
    loop {
        let chunk = access.read(|conn| reports::lines(conn, &kept, after, EVENTS as u32))?;
        let Some(last) = chunk.last() else { break };
        after = last.id;
        let mut new: Vec<NewRaw> = Vec::new();
        for line in &chunk {
            let there = access.read(|conn| claims::find(conn, book, &line.kind, &line.name))?;
            let known = there.is_some_and(|c| c.done) && line.fee == 0;
            let at = line.occurred_at.or(line.available_at);
            let named = !line.name.is_empty() && !line.name.contains('@') && at.is_some();
            if known || line.pending || !named || source.settlement.not_ours(line.names()) {
                passed_over += 1;
                continue;
            }
            new.push(raw_of(source, Origin::Imported, told::HEADER, told_of(line, mode.as_str(), report).body()));
        }
        imported += new.len() as i64;
        access.write(move |tx| new.iter().try_for_each(|new| raw::insert(tx, new).map(drop)))?;
        (ask.wake)();
        (ask.progress)("imported", (imported + passed_over) as u64);
        through(access, &source.name, WAITING_MAX, ask.wait, ask.wake)?;
    }
    through(access, &source.name, 0, ask.wait, ask.wake)?;
    let run =
        settle::run(access, source, &Ask { kept: Some(report), again: true, window: ask.window.clone(), ..*ask })?;
    Ok(Imported { report, lines, imported, passed_over, run })
}

/// Waits until no more than `most` events of the source wait to be applied.
pub(super) fn through(access: &Access, source: &str, most: i64, wait: Duration, wake: &dyn Fn()) -> Result<()> {
    let mut until = Instant::now() + wait;
    let mut before = i64::MAX;
    loop {
        let left = access.read(|conn| tables::undrained(conn, source, Millis::MAX))?;
        if left <= most {
            return Ok(());
        }
        if left < before {
            (before, until) = (left, Instant::now() + wait); // it moves
        }
        if Instant::now() > until {
            return Err(Error::refused(
                format!("{left} events wait to be applied, and nobody takes them"),
                "start the server and run it again: nothing is brought in twice",
            ));
        }
        wake();
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Asks a provider that keeps a list of events for those of `[from, to)`, and hands them over as if they had been
/// delivered. Gives how many; `None`: it has no such list, or the source no key.
pub fn missed(access: &Access, source: &Source, window: (Millis, Millis), pace: Pace) -> Result<Option<u64>> {
    let list = source.recipe.pull.iter().find(|(_, spec)| spec.gives == Gives::Events);
    let (Some((name, _)), Some(_)) = (list, &source.api_key) else { return Ok(None) };
    let failed = |e: PullError| Error::refused(format!("{}: {e}", source.name), "the next settlement run looks again");
    let mut client = Client::new(&source.recipe, source.settlement.access.clone(), pace).map_err(failed)?;
    let mut bodies: Vec<Vec<u8>> = Vec::new();
    let mut count = 0;
    let keep = |bodies: &mut Vec<Vec<u8>>| -> Result<()> {
        let new: Vec<NewRaw> =
            bodies.drain(..).map(|b| raw_of(source, Origin::Fetched, "content-type: application/json", b)).collect();
        access.write(move |tx| new.iter().try_for_each(|new| raw::insert(tx, new).map(drop)))
    };
    let mut broken = None;
    let pulled = client.events::<PullError>(name, window, &mut |event| {
        bodies.push(event.to_string().into_bytes());
        count += 1;
        if bodies.len() >= EVENTS
            && let Err(e) = keep(&mut bodies)
        {
            broken = Some(e);
            return Err(PullError::Stopped);
        }
        Ok(())
    });
    if let Some(e) = broken {
        return Err(e);
    }
    keep(&mut bodies)?;
    pulled.map_err(failed)?;
    Ok(Some(count))
}
