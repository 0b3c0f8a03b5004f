//! `postonce backup`: a copy of the file, also while the server writes it, opened and checked before it gets its name.

use super::args::BackupArgs;
use super::{Done, Outcome, output};
use crate::clock;
use crate::store::{self, backup};
use indicatif::{ProgressBar, ProgressStyle};
use std::time::Duration;

/// Between two steps of the copy: whoever waits for an answer goes first.
const PAUSE: Duration = Duration::from_millis(2);

pub(super) fn run(args: &BackupArgs) -> Done {
    let database = &args.database.database;
    let at = clock::wall();
    let to = if args.to.is_dir() { args.to.join(backup::name_at(at)) } else { args.to.clone() };
    let bar = bar(args.quiet || args.database.json);
    let report = backup::backup(database, &to, PAUSE, &mut |done, all| show(&bar, done, all));
    bar.finish_and_clear();
    let report = report?;
    store::write_beside(database, |tx| backup::note_backup(tx.conn, at))?;
    say(&report, args.database.json, args.quiet, "backup")?;
    Ok(Outcome::Fine)
}

/// A bar on a terminal, nothing in a pipe.
pub(super) fn bar(quiet: bool) -> ProgressBar {
    if quiet {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template("{bar:40} {percent}% {elapsed}").unwrap_or(ProgressStyle::default_bar());
    ProgressBar::new(0).with_style(style)
}

pub(super) fn show(bar: &ProgressBar, done: i64, all: i64) {
    bar.set_length(all.unsigned_abs());
    bar.set_position(done.unsigned_abs());
}

pub(super) fn say(report: &backup::Report, json: bool, quiet: bool, what: &str) -> crate::error::Result<()> {
    let mut out = std::io::stdout().lock();
    if json {
        return output::json_line(&mut out, report);
    }
    if quiet {
        return Ok(());
    }
    let newest = report.newest_at.map_or("none".to_owned(), clock::rfc3339);
    let text = format!(
        "{what} {}: {} KiB, {} entries, {} events (the newest {newest}), checked",
        report.file.display(),
        report.bytes >> 10,
        report.entries,
        report.events
    );
    output::line(&mut out, &text)
}
