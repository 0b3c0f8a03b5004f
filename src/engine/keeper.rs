//! The keeper: looks for troubles every few seconds, prunes every hour, makes the scheduled backups.
//!
//! One thread of its own, so that nothing it does delays a delivery; everything it writes goes through the gate in small
//! pieces.

use super::{Operations, Shared};
use crate::alerts::Watch;
use crate::clock;
use crate::config::{self, AlertRules};
use crate::error::{Error, Result};
use crate::event::Millis;
use crate::steps::retain;
use crate::store::backup::{self, Keep};
use crate::store::sums;
use std::sync::Arc;
use std::time::Duration;

/// Between two looks for troubles.
const LOOK_EVERY: Millis = 5_000;
/// Between two passes over what has an age, and how long after the start the first one comes.
const RETAIN_EVERY: Millis = 3_600_000;
const RETAIN_FIRST: Millis = 60_000;
/// Between two times that the ledger's sums are brought up to date, and between two pieces of that.
const SUM_EVERY: Millis = 10_000;
const SUM_PAUSE: Duration = Duration::from_millis(5);
/// After a failed backup.
const BACKUP_AGAIN: Millis = 15 * 60_000;
/// Between two steps of a scheduled copy: at most some 50 MB a second.
const BACKUP_PAUSE: Duration = Duration::from_millis(10);

/// Runs until the engine stops.
pub(super) fn run(shared: &Arc<Shared>, operations: &Operations) {
    let mut watch = Watch::begin();
    let start = clock::steady();
    let (mut look_at, mut sum_at, mut retain_at, mut backup_at) = (start, start, start + RETAIN_FIRST, start);
    while !shared.is_stopping() {
        let now = clock::steady();
        if now >= look_at {
            look_at = now + LOOK_EVERY;
            if let Err(e) = look(shared, operations, &mut watch) {
                log::warn!("the state of things could not be looked at: {e}");
            }
        }
        if now >= sum_at {
            sum_at = now + SUM_EVERY;
            if let Err(e) = add_up(shared) {
                log::warn!("the ledger's sums could not be brought up to date: {e}");
            }
        }
        if now >= retain_at {
            retain_at = now + RETAIN_EVERY;
            match retain::retain(&shared.store, &operations.retain, &|| shared.is_stopping()) {
                Ok(pruned) if pruned == retain::Pruned::default() => {}
                Ok(pruned) => log::info!(
                    "past their time: {} bodies, {} events, {} attempts, {} rows of the audit log ({} events archived)",
                    pruned.bodies,
                    pruned.events,
                    pruned.attempts,
                    pruned.audit,
                    pruned.archived
                ),
                Err(e) => log::error!("what is past its time could not be pruned: {e}"),
            }
        }
        if let Some(rules) = &operations.backup
            && now >= backup_at
        {
            backup_at = now + scheduled_backup(shared, rules);
        }
        std::thread::park_timeout(Duration::from_millis(250));
    }
}

/// Adds up what was posted since, for balances as of a time.
fn add_up(shared: &Shared) -> Result<()> {
    while !shared.is_stopping() {
        let Some(next) = shared.store.read(sums::next)? else { break };
        shared.store.write(move |tx| sums::add(tx, &next))?;
        std::thread::sleep(SUM_PAUSE);
    }
    Ok(())
}

fn look(shared: &Shared, operations: &Operations, watch: &mut Watch) -> Result<()> {
    let rules: &AlertRules = &operations.alerts;
    let firing = watch.look(shared, rules)?;
    watch.step(shared, rules, &operations.recipients, firing, clock::wall())?;
    Ok(())
}

/// Makes a backup if one is due; gives how long to wait until the next look.
fn scheduled_backup(shared: &Shared, rules: &config::Backup) -> Millis {
    let every = Millis::from(rules.every_hours.max(1)) * 3_600_000;
    let times = times_in(rules);
    let newest = times.iter().copied().max();
    if let Some(wait) = newest.map(|at| at + every - clock::wall()).filter(|wait| *wait > 0 && *wait <= every) {
        return wait.min(RETAIN_EVERY);
    }
    let made = make(shared, rules);
    match made {
        Ok(report) => {
            log::info!(
                "backup {}: {} entries, {} events, checked",
                report.file.display(),
                report.entries,
                report.events
            );
            shared.clear("backup", "");
            let keep = Keep {
                days: rules.keep_days as usize,
                weeks: rules.keep_weeks as usize,
                months: rules.keep_months as usize,
            };
            for at in backup::not_kept(&times_in(rules), keep) {
                let old = rules.dir.join(backup::name_at(at));
                match std::fs::remove_file(&old) {
                    Ok(()) => log::info!("backup {} is past its time", old.display()),
                    Err(e) => log::warn!("cannot remove {}: {e}", old.display()),
                }
            }
            every.min(RETAIN_EVERY)
        }
        Err(e) => {
            log::error!("no backup could be made: {e}");
            shared.raise(
                "backup",
                "",
                1,
                format!("no backup could be made: {e}; {}", e.hint().unwrap_or("see the log")),
            );
            BACKUP_AGAIN
        }
    }
}

fn make(shared: &Shared, rules: &config::Backup) -> Result<backup::Report> {
    std::fs::create_dir_all(&rules.dir).map_err(|e| {
        Error::refused(format!("cannot make {}: {e}", rules.dir.display()), "see `[backup] dir` and who owns it")
    })?;
    let at = clock::wall();
    let to = rules.dir.join(backup::name_at(at));
    let report = backup::backup(shared.store.path(), &to, BACKUP_PAUSE, &mut |_, _| {})?;
    shared.store.write(move |tx| backup::note_backup(tx.conn, at))?;
    Ok(report)
}

fn times_in(rules: &config::Backup) -> Vec<Millis> {
    let entries = std::fs::read_dir(&rules.dir).into_iter().flatten().flatten();
    entries.filter_map(|entry| backup::time_of(entry.file_name().to_str()?)).collect()
}
