//! Copies of the file: made while it is in use, and put back.
//!
//! A copy is one snapshot, written under a temporary name, opened and checked like the original, synced, and only then
//! given its name. Never overwrites anything, never takes the write lock for the copy, and copies in small steps, so
//! that the disk stays free for those who wait for an answer.

use super::{check, meta, set_meta};
use crate::clock;
use crate::error::{Error, Result};
use crate::event::Millis;
use rusqlite::backup::{Backup, StepResult};
use rusqlite::{Connection, OpenFlags};
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Pages in one step: half a megabyte, a few milliseconds of a disk.
const STEP_PAGES: i32 = 128;
/// Room that must be left on the disk beside the copy.
const ROOM: u64 = 16 << 20;
const LAST: &str = "last_backup_at";

/// What a copy holds.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Report {
    /// Where it is.
    pub file: PathBuf,
    /// Its size.
    pub bytes: u64,
    /// Entries of its journal.
    pub entries: i64,
    /// Its raw events.
    pub events: i64,
    /// When its newest raw event came, wall time.
    pub newest_at: Option<Millis>,
    /// Events that were not applied yet when it was made.
    pub waiting: i64,
}

/// How the copying goes on: pages done and pages in all.
pub type Progress<'a> = &'a mut dyn FnMut(i64, i64);

/// Copies the database to `to`, which must not exist. `pause` is waited after each half megabyte.
pub fn backup(database: &Path, to: &Path, pause: Duration, progress: Progress) -> Result<Report> {
    let from = super::open_for_reading(database)?;
    let report = copy(&from, database, to, pause, progress)?;
    Ok(report)
}

/// Notes in the file when its last backup was made.
pub fn note_backup(conn: &Connection, at: Millis) -> Result<()> {
    set_meta(conn, LAST, &at.to_string())
}

/// When the last backup was made, wall time.
pub fn last_backup_at(conn: &Connection) -> Result<Option<Millis>> {
    Ok(meta(conn, LAST)?.and_then(|text| text.parse().ok()))
}

/// Puts a backup back as `to`, which must not exist: checked before it is copied and after.
pub fn restore(from: &Path, to: &Path, progress: Progress) -> Result<Report> {
    if !from.exists() {
        return Err(Error::refused(format!("{} does not exist", from.display()), "name a file of `postonce backup`"));
    }
    for beside in ["", "-wal", "-shm", "-journal"] {
        let there = super::beside(to, beside);
        if there.exists() {
            return Err(Error::refused(
                format!("{} is there already", there.display()),
                "restore never overwrites: move it away, or name another with --database FILE",
            ));
        }
    }
    let source = if super::beside(from, "-wal").exists() { super::open_for_reading(from)? } else { as_it_is(from)? };
    if let Some(what) = torn(from, &source)? {
        return Err(Error::refused(what, "take another backup, or start a server on it to see what it holds"));
    }
    refuse_offences(&source, from)?;
    copy(&source, from, to, Duration::ZERO, progress)
}

/// Free bytes for this user on the disk that holds a path; `None` when it cannot be asked.
pub fn free_bytes(path: &Path) -> Option<u64> {
    let stat = rustix::fs::statvfs(folder_of(path)).ok()?;
    Some(stat.f_bavail.saturating_mul(stat.f_frsize))
}

fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Opens a file that nobody writes, without making anything beside it.
fn as_it_is(path: &Path) -> Result<Connection> {
    let mut uri = String::from("file:");
    for byte in path.as_os_str().as_encoded_bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'/' | b'-' | b'_' | b'.' => uri.push(*byte as char),
            other => uri.push_str(&format!("%{other:02X}")),
        }
    }
    uri.push_str("?immutable=1");
    Ok(Connection::open_with_flags(
        uri,
        OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_URI | OpenFlags::SQLITE_OPEN_NO_MUTEX,
    )?)
}

fn refuse_offences(conn: &Connection, path: &Path) -> Result<()> {
    let offences = check::run(conn)?;
    match offences.first() {
        None => Ok(()),
        Some(first) => Err(Error::refused(
            format!("{} is not clean, {} offence(s): {}: {}", path.display(), offences.len(), first.truth, first.what),
            "`postonce check --database FILE` lists them; take an older backup",
        )),
    }
}

fn copy(from: &Connection, origin: &Path, to: &Path, pause: Duration, progress: Progress) -> Result<Report> {
    let folder = folder_of(to);
    if to.exists() {
        return Err(Error::refused(
            format!("{} is there already", to.display()),
            "a backup never overwrites: name another",
        ));
    }
    if !folder.is_dir() {
        return Err(Error::refused(format!("the folder {} does not exist", folder.display()), "make it first"));
    }
    let pages: u64 = from.query_row("PRAGMA page_count", [], |r| r.get::<_, i64>(0))?.unsigned_abs();
    let page: u64 = from.query_row("PRAGMA page_size", [], |r| r.get::<_, i64>(0))?.unsigned_abs();
    let needed = pages * page + ROOM;
    if let Some(free) = free_bytes(to).filter(|free| *free < needed) {
        return Err(Error::refused(
            format!(
                "{} has {} MiB free; a copy of {} needs {} MiB",
                folder.display(),
                free >> 20,
                origin.display(),
                needed.div_ceil(1 << 20)
            ),
            "free space there, or name a folder on another disk; nothing was written",
        ));
    }
    let partial = Partial(super::beside(to, &format!(".partial-{}", std::process::id())));
    OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&partial.0)
        .map_err(|e| cannot("make", &partial.0, &e))?;
    copy_pages(from, &partial.0, pause, progress).map_err(|e| match e.is_disk_full() {
        true => Error::refused(
            format!("{} became full while the copy was written", folder.display()),
            "free space there, or name a folder on another disk; the part that was written is removed",
        ),
        false => e,
    })?;
    let copied = as_it_is(&partial.0)?;
    refuse_offences(&copied, &partial.0)?;
    let count = |sql: &str| -> Result<Option<i64>> { Ok(copied.query_row(sql, [], |r| r.get(0))?) };
    let report = Report {
        file: to.to_owned(),
        bytes: fs::metadata(&partial.0).map_or(0, |m| m.len()),
        entries: count("SELECT count(*) FROM postonce_journal")?.unwrap_or(0),
        events: count("SELECT count(*) FROM postonce_raw_events")?.unwrap_or(0),
        newest_at: count(
            "SELECT max(received_at) FROM (SELECT received_at FROM postonce_raw_events ORDER BY id DESC LIMIT 1)",
        )?,
        waiting: count("SELECT count(*) FROM postonce_raw_events WHERE due_at IS NOT NULL AND state <> 'PARKED'")?
            .unwrap_or(0),
    };
    drop(copied);
    File::open(&partial.0).and_then(|file| file.sync_all()).map_err(|e| cannot("sync", &partial.0, &e))?;
    // A hard link never replaces what came there meanwhile; a file system without links gets a rename.
    if fs::hard_link(&partial.0, to).is_err() {
        if to.exists() {
            return Err(Error::refused(format!("{} came into being meanwhile", to.display()), "name another"));
        }
        fs::rename(&partial.0, to).map_err(|e| cannot("name", to, &e))?;
    }
    drop(partial);
    File::open(folder).and_then(|dir| dir.sync_all()).map_err(|e| cannot("sync", folder, &e))?;
    Ok(report)
}

fn cannot(do_what: &str, path: &Path, e: &std::io::Error) -> Error {
    Error::refused(format!("cannot {do_what} {}: {e}", path.display()), "check the folder, its owner and its space")
}

/// One snapshot, in steps; then the marks of a file that is whole.
fn copy_pages(from: &Connection, to: &Path, pause: Duration, progress: Progress) -> Result<()> {
    let mut copy =
        Connection::open_with_flags(to, OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX)?;
    // Nobody looks at it before it is complete and synced.
    copy.execute_batch("PRAGMA synchronous = OFF")?;
    // With a read transaction held open the steps all see one snapshot, whatever is committed meanwhile.
    from.execute_batch("BEGIN")?;
    let held = from.query_row("SELECT count(*) FROM postonce_meta", [], |r| r.get::<_, i64>(0));
    let copied = held.map_err(Error::from).and_then(|_| {
        let steps = Backup::new(from, &mut copy)?;
        loop {
            let came = steps.step(STEP_PAGES)?;
            let state = steps.progress();
            progress(i64::from(state.pagecount - state.remaining), i64::from(state.pagecount));
            match came {
                StepResult::Done => return Ok(()),
                StepResult::More => std::thread::sleep(pause),
                _ => std::thread::sleep(Duration::from_millis(20)),
            }
        }
    });
    let _ = from.execute_batch("COMMIT");
    copied?;
    copy.close().map_err(|(_, e)| e)?;
    // Closing the last connection folds the log in: the one file is whole, and says so.
    let copy = Connection::open_with_flags(to, OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX)?;
    set_meta(&copy, "clean_stop", "1")?;
    set_meta(&copy, "copied_at", &clock::wall().to_string())?;
    copy.close().map_err(|(_, e)| e)?;
    Ok(())
}

/// A file that goes unless it was given its name, with what SQLite may have left beside it.
struct Partial(PathBuf);

impl Drop for Partial {
    fn drop(&mut self) {
        for beside in ["", "-wal", "-shm", "-journal"] {
            let _ = fs::remove_file(super::beside(&self.0, beside));
        }
    }
}

/// How the main file and its log stand to each other: `Some` says what is missing.
///
/// A server marks the file as being in use, and the mark goes at a clean stop. A file with the mark and without its log
/// was copied while it was in use, and lacks what was only in the log.
pub fn torn(database: &Path, conn: &Connection) -> Result<Option<String>> {
    let in_use = meta(conn, "clean_stop")?.as_deref() == Some("0");
    // A reader makes an empty one.
    let log = fs::metadata(super::beside(database, "-wal")).is_ok_and(|log| log.len() > 0);
    Ok((in_use && !log).then(|| {
        format!(
            "{0} was in use when it was copied, and its log {0}-wal did not come with it: what was committed since the last \
             checkpoint is missing. Copy with `postonce backup`, or after a stop. (A copy that Litestream restored is whole and \
             loses this mark at its first clean stop.)",
            database.display()
        )
    }))
}

/// The name of a scheduled copy.
pub fn name_at(at: Millis) -> String {
    let text = clock::rfc3339(at - at.rem_euclid(1000));
    format!("postonce-{}.db", text.replace(['-', ':'], ""))
}

/// When a scheduled copy was made, by its name; `None`: it is none.
pub fn time_of(name: &str) -> Option<Millis> {
    let text = name.strip_prefix("postonce-")?.strip_suffix(".db")?;
    let (date, time) = text.strip_suffix('Z')?.split_once('T')?;
    if date.len() != 8 || time.len() != 6 || !text.is_ascii() {
        return None;
    }
    let text = format!("{}-{}-{}T{}:{}:{}Z", &date[..4], &date[4..6], &date[6..], &time[..2], &time[2..4], &time[4..]);
    text.parse::<jiff::Timestamp>().ok().map(jiff::Timestamp::as_millisecond)
}

/// How many copies are kept, by age.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Keep {
    /// The newest of each of the last so many days that have one.
    pub days: usize,
    /// Of each of the last so many weeks.
    pub weeks: usize,
    /// Of each of the last so many months.
    pub months: usize,
}

/// Which of these times no rule keeps. The newest is always kept.
pub fn not_kept(times: &[Millis], keep: Keep) -> Vec<Millis> {
    let mut newest_first = times.to_vec();
    newest_first.sort_unstable_by(|a, b| b.cmp(a));
    let day = |at: Millis| at.div_euclid(86_400_000);
    let month = |at: Millis| {
        let date = jiff::Timestamp::from_millisecond(at).ok().map(|t| jiff::tz::Offset::UTC.to_datetime(t));
        date.map_or(0, |d| i64::from(d.year()) * 12 + i64::from(d.month()))
    };
    let mut kept: Vec<Millis> = newest_first.first().copied().into_iter().collect();
    let rules: [(usize, &dyn Fn(Millis) -> i64); 3] =
        [(keep.days, &day), (keep.weeks, &|at| (day(at) + 3).div_euclid(7)), (keep.months, &month)];
    for (count, period) in rules {
        let mut seen: Vec<i64> = Vec::new();
        for at in &newest_first {
            if seen.len() < count && !seen.contains(&period(*at)) {
                seen.push(period(*at));
                kept.push(*at);
            }
        }
    }
    newest_first.retain(|at| !kept.contains(at));
    newest_first
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: Millis = 86_400_000;

    #[test]
    fn a_name_gives_back_its_time_and_other_names_none() {
        let at = 1_796_049_900_000;
        assert_eq!(name_at(at + 7), "postonce-20261130T144500Z.db");
        assert_eq!(time_of(&name_at(at)), Some(at));
        for other in ["postonce.db", "postonce-2026.db", "postonce-20261130T144500Z.db-wal", "postonce-äöüäTäöüZ.db"]
        {
            assert_eq!(time_of(other), None, "{other}");
        }
    }

    #[test]
    fn the_newest_of_each_day_week_and_month_is_kept() {
        let now = 1_796_049_900_000; // a Monday
        let twice_a_day: Vec<Millis> = (0..120).map(|half| now - half * DAY / 2).collect();
        let gone = not_kept(&twice_a_day, Keep { days: 7, weeks: 4, months: 3 });
        let kept: Vec<Millis> = twice_a_day.iter().copied().filter(|at| !gone.contains(at)).collect();
        assert!(kept.contains(&now) && kept.len() <= 7 + 4 + 3, "{} are kept", kept.len());
        assert_eq!(kept.iter().filter(|at| **at > now - 7 * DAY).count(), 7);
        assert!(kept.iter().any(|at| *at < now - 20 * DAY), "an older month has one");
        assert_eq!(not_kept(&[now, now - DAY], Keep { days: 0, weeks: 0, months: 0 }), [now - DAY]);
        assert!(not_kept(&[], Keep { days: 1, weeks: 1, months: 1 }).is_empty());
    }
}
