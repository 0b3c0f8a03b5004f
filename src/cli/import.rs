//! `postonce import`: the history of a business that was there before, and what retention wrote to its archives.
//!
//! Through the same path as every event, in a file that nobody serves or beside a running server; sends no receipts.

use super::args::ImportHistory;
use super::desk::{Bar, Desk};
use super::reconcile::{parse_window, tell};
use super::{Done, Outcome, output};
use crate::clock;
use crate::error::{Error, Result};
use crate::pull::Pace;
use crate::settlement::window;
use crate::steps::bring_back::{self, BroughtBack};
use crate::steps::settle::Ask;
use crate::steps::{backfill, retain};
use std::path::PathBuf;
use std::time::Duration;

/// How long the worker may stand still before that is an error.
const WAIT: Duration = Duration::from_secs(60);

pub(super) fn run(args: &ImportHistory) -> Done {
    if args.archive.is_empty() { history(args) } else { archives(args) }
}

fn history(args: &ImportHistory) -> Done {
    let desk = Desk::open(&args.configured)?;
    let source = desk.source(args.source.as_deref())?;
    let zone = &source.settlement.zone;
    let now = clock::wall();
    let window = match (&args.since, &args.file) {
        (None, Some(_)) => None,
        (None, None) => {
            return Err(Error::refused("since when?", "--since 2026-01-01, --file REPORT, or --archive FILE"));
        }
        (Some(since), _) => {
            let last = args.until.clone().unwrap_or_else(|| window::yesterday(now, zone));
            Some(parse_window(&format!("{since}..{last}"), source)?)
        }
    };
    let bar = Bar::new("asking the provider");
    let imported = desk.with(|access, wake| {
        let ask = Ask {
            window,
            again: true,
            file: args.file.as_deref(),
            report: args.name.as_deref(),
            kept: None,
            now,
            wait: WAIT,
            pace: Pace::default(),
            wake,
            progress: &|phase, rows| bar.at(phase, rows),
        };
        backfill::import(access, source, &ask)
    })?;
    bar.clear();
    if args.configured.json {
        output::json_line(&mut std::io::stdout().lock(), &imported)?;
        return Ok(if imported.run.state == "COMPLETED" && imported.run.open == 0 {
            Outcome::Fine
        } else {
            Outcome::Found
        });
    }
    println!(
        "report {}: {} lines, {} imported, {} passed over (there already, not yet succeeded, or without a reference)",
        imported.report, imported.lines, imported.imported, imported.passed_over
    );
    tell(&imported.run, false)
}

/// The files that are named, and those of the folders that are.
fn files(named: &[PathBuf]) -> Result<Vec<PathBuf>> {
    let mut all = Vec::new();
    for path in named {
        if !path.is_dir() {
            all.push(path.clone());
            continue;
        }
        let mut inside = retain::archives_in(path)?;
        if inside.is_empty() {
            return Err(Error::refused(
                format!("there is no archive in {}", path.display()),
                "retention writes postonce-events-YYYY-MM.jsonl.zst there when `[retain] archive` names it",
            ));
        }
        all.append(&mut inside);
    }
    Ok(all)
}

fn archives(args: &ImportHistory) -> Done {
    let files = files(&args.archive)?;
    let desk = Desk::open(&args.configured)?;
    let bar = Bar::new("importing");
    let brought = desk.with(|access, wake| {
        let ask = bring_back::Ask { wait: WAIT, wake, progress: &|lines| bar.at("importing", lines) };
        bring_back::bring_back(access, &desk.sources, &files, &ask)
    })?;
    bar.clear();
    if args.configured.json {
        output::json_line(&mut std::io::stdout().lock(), &brought)?;
    } else {
        say(&brought)?;
    }
    let waits = |state: &String| matches!(state.as_str(), "PARKED" | "CONFLICT" | "DEAD");
    Ok(if brought.states.keys().any(waits) { Outcome::Found } else { Outcome::Fine })
}

fn say(brought: &BroughtBack) -> Result<()> {
    let mut out = std::io::stdout().lock();
    let text = format!(
        "{} events in the archives: {} imported, {} passed over (there already, or nothing that posts)",
        brought.lines, brought.imported, brought.passed_over
    );
    output::line(&mut out, &text)?;
    for (state, count) in &brought.states {
        output::line(&mut out, &format!("  {state:<10} {count:>9}"))?;
    }
    Ok(())
}
