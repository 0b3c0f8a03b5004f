//! `postonce restore`: puts a backup back where nothing is, takes up what was under way, and says what to do about the
//! time between the backup and now.

use super::args::Restore;
use super::{Done, Outcome, backup, output};
use crate::clock;
use crate::store::{self, backup as copies, raw};

pub(super) fn run(args: &Restore) -> Done {
    let database = &args.database.database;
    let _lock = store::Lock::take(database)?;
    let bar = backup::bar(args.quiet || args.database.json);
    let report = copies::restore(&args.from, database, &mut |done, all| backup::show(&bar, done, all));
    bar.finish_and_clear();
    let report = report?;
    let released = store::write_beside(database, |tx| raw::release_all(tx, 0))?;
    backup::say(&report, args.database.json, args.quiet, "restored")?;
    if args.quiet || args.database.json {
        return Ok(Outcome::Fine);
    }
    let mut out = std::io::stdout().lock();
    let waiting = report.waiting.max(released as i64);
    output::line(
        &mut out,
        &format!(
            "{} not applied yet; the server takes them up when it starts",
            output::counted(waiting, "event was", "events were")
        ),
    )?;
    if let Some(newest) = report.newest_at {
        let hours = (clock::wall() - newest) / 3_600_000;
        let since = clock::rfc3339(newest);
        output::line(&mut out, &format!("what came after {since} ({hours} hours ago) is not in it. Next:"))?;
        output::line(&mut out, "  postonce serve                           # start it again")?;
        let day = since.get(..10).unwrap_or_default();
        let run =
            format!("  postonce reconcile run --source NAME --since {day}  # for each source: fetch what is missing");
        output::line(&mut out, &run)?;
    }
    Ok(Outcome::Fine)
}
