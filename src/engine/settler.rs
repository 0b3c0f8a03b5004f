//! The settler: runs the daily settlement of each source that has a key, asks for what was sent while we were down,
//! and notes when a source falls silent.
//!
//! What is due is a question to the tables, so that a restart neither loses a day nor runs one twice. Nothing here is
//! in anybody's way: every write is a short one through the gate.

use super::Shared;
use crate::clock;
use crate::error::Result;
use crate::event::Millis;
use crate::pull::Pace;
use crate::settlement::{silence, window};
use crate::source::Source;
use crate::steps::backfill;
use crate::steps::settle::{self, Ask, Settled};
use crate::store::settlement::runs;
use crate::store::{self, Access};
use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

/// Between two looks at what is due.
const EVERY: Duration = Duration::from_secs(20);
/// After a run that did not complete, and that may work later.
const AGAIN_AFTER: Millis = 3_600_000;
/// A pause longer than this was a down time in which deliveries may have been lost for good.
const DOWN: Millis = 3 * 60_000;
/// How far before the down time events are asked for: what was on its way then.
const BEFORE_DOWN: Millis = 10 * 60_000;
/// No provider keeps events much longer.
const DOWN_MOST: Millis = 30 * 86_400_000;
/// The fact that says when this process was last alive.
const ALIVE: &str = "alive_at";

/// Runs until the engine stops.
pub(super) fn run(shared: &Arc<Shared>) {
    let names = shared.sources.keys().map(String::as_str).collect();
    if let Err(e) = shared.heard.look_back(&shared.store, &names, &|| shared.is_stopping()) {
        log::warn!("when the sources were last heard could not be read: {e}");
    }
    if let Err(e) = catch_up(shared) {
        log::warn!("what was sent while we were down could not be asked for: {e}");
    }
    let mut silent = HashSet::new();
    while !shared.is_stopping() {
        let alive = shared.store.write(|tx| {
            let now = tx.now.to_string();
            store::set_meta(tx.conn, ALIVE, &now)
        });
        if let Err(e) = alive {
            log::debug!("the time could not be noted: {e}");
        }
        if let Err(e) = shared.heard.look(&shared.store) {
            log::debug!("what came could not be looked at: {e}");
        }
        for source in shared.sources.values() {
            if source.settlement.daily
                && let Err(e) = daily(shared, source)
            {
                log::error!("settlement of {}: {e}", source.name);
            }
            listen_for(shared, source, &mut silent);
        }
        shared.pause(EVERY);
    }
}

/// Asks the providers that keep a list of events for those of the down time.
fn catch_up(shared: &Shared) -> Result<()> {
    let now = clock::wall();
    let alive: Option<Millis> = shared.store.read(|conn| store::meta(conn, ALIVE))?.and_then(|text| text.parse().ok());
    let Some(from) = alive.filter(|alive| now - alive > DOWN) else { return Ok(()) };
    let window = (from.max(now - DOWN_MOST) - BEFORE_DOWN, now);
    let access = Access::Ours(&shared.store);
    for source in shared.sources.values() {
        match backfill::missed(&access, source, window, Pace::default()) {
            Ok(None) => {}
            Ok(Some(count)) => {
                log::info!("{}: {count} events that were sent while we were down", source.name);
                shared.wake();
            }
            Err(e) => log::warn!("{}: what was sent while we were down: {e}", source.name),
        }
    }
    Ok(())
}

/// What is due for a source: the days without a run, the oldest first, then once the look at all that is open.
fn daily(shared: &Shared, source: &Source) -> Result<()> {
    let now = clock::wall();
    let plan = &source.settlement;
    if (now / 60_000 % 1440) < Millis::from(plan.at_minute) {
        return Ok(());
    }
    let yesterday = window::yesterday(now, &plan.zone);
    let first = window::before(&yesterday, plan.again_days as i32 - 1);
    let days = shared.store.read(|conn| runs::days_due(conn, &source.name, &first, &yesterday, now - AGAIN_AFTER))?;
    for day in days {
        if shared.is_stopping() {
            return Ok(());
        }
        one(shared, source, &day, &day, false)?;
    }
    if plan.again_days == 0 {
        return Ok(());
    }
    let looked = shared.store.read(|conn| runs::newest(conn, &source.name, true))?;
    let due = looked.is_none_or(|(state, started_at, day)| {
        let over = matches!(state.as_str(), "COMPLETED" | "INVALID") && day >= window::before(&yesterday, 1);
        !over && started_at < now - AGAIN_AFTER
    });
    if due {
        let last = window::before(&yesterday, 1);
        one(shared, source, &window::before(&last, plan.again_days as i32 - 1), &last, true)?;
    }
    Ok(())
}

fn one(shared: &Shared, source: &Source, first: &str, last: &str, again: bool) -> Result<()> {
    let Some((from, to)) = window::days(first, last, &source.settlement.zone) else { return Ok(()) };
    let access = Access::Ours(&shared.store);
    let ask = Ask {
        window: Some((from, to, last.to_owned())),
        again,
        file: None,
        report: None,
        kept: None,
        now: clock::wall(),
        wait: Duration::from_secs(60),
        pace: Pace::default(),
        wake: &|| shared.wake(),
        progress: &|_, _| {},
    };
    let Settled { run, state, found, open, reason, .. } = settle::run(&access, source, &ask)?;
    match state {
        "INVALID" => {
            let why = reason.unwrap_or_default();
            let what = format!("settlement run {run} of {} for {first}..{last} is invalid: {why}", source.name);
            shared.raise("invalid_run", &source.name, 1, what);
        }
        "COMPLETED" => shared.clear("invalid_run", &source.name),
        _ => {}
    }
    log::info!("settlement of {} for {first}..{last}: {state}, {found} found, {open} wait for a person", source.name);
    Ok(())
}

/// Says once when a source falls silent, and once when it speaks again.
fn listen_for(shared: &Shared, source: &Source, silent: &mut HashSet<String>) {
    match silence_of(shared.heard.of(&source.name).times.make_contiguous(), source, clock::wall()) {
        Some(quiet) => {
            if silent.insert(source.name.clone()) {
                let hours = (clock::wall() - quiet.since) / 3_600_000;
                log::error!(
                    "source {} is silent: nothing for {hours} h; is its endpoint still switched on?",
                    source.name
                );
            }
        }
        None => {
            if silent.remove(&source.name) {
                log::info!("source {} speaks again", source.name);
            }
        }
    }
}

/// Is a source silent, by its own history or its configuration? `times` are its arrivals, the newest first. For alerts and
/// pages.
pub fn silence_of(times: &[Millis], source: &Source, now: Millis) -> Option<silence::Silence> {
    let configured = source.settlement.silent_after_h.map(|hours| Millis::from(hours) * 3_600_000);
    silence::judge(times, now, configured)
}
