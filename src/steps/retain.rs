//! Retain: what is past its time goes, in small writes with pauses between, so that nobody who waits for an answer
//! notices. What goes may be written to an archive first, which `import` reads back.
//!
//! Never holds the write lock for longer than a batch of applies, and never deletes what it could not archive.

use crate::clock;
use crate::config;
use crate::error::{Error, Result};
use crate::event::Millis;
use crate::store::retain::{self, Old, Page};
use crate::store::{Store, raw};
use base64::Engine as _;
use std::fs::{self, File, OpenOptions};
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Between two writes: intake and applies go first.
const PAUSE: Duration = Duration::from_millis(20);
const DAY: Millis = 86_400_000;
/// Alerts that are over, and the figures of each hour, are kept so long.
const FIGURES_DAYS: i64 = 90;

/// What one run removed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Pruned {
    /// Bodies emptied.
    pub bodies: usize,
    /// Events removed.
    pub events: usize,
    /// Attempts removed.
    pub attempts: usize,
    /// Rows of the audit log removed.
    pub audit: usize,
    /// Events written to the archive.
    pub archived: usize,
}

/// One pass over everything that has an age. `stop` is asked between the writes.
pub fn retain(store: &Store, rules: &config::Retain, stop: &dyn Fn() -> bool) -> Result<Pruned> {
    let mut pruned = Pruned::default();
    let age = |days: u32| (days > 0).then(|| clock::wall() - i64::from(days) * DAY);
    let first = match (age(rules.bodies_days), age(rules.events_days)) {
        (Some(bodies), Some(events)) => Some(bodies.max(events)),
        (one, other) => one.or(other),
    };
    let mut archive = match (&rules.archive, first) {
        (Some(folder), Some(_)) => Some(Archive::open(folder)?),
        _ => None,
    };
    if let Some(before) = age(rules.bodies_days) {
        walk(store, before, true, stop, &mut |old| {
            pruned.archived += archive_all(store, archive.as_mut(), old)?;
            let ids: Vec<i64> = old.iter().map(|o| o.id).collect();
            pruned.bodies += store.write(move |tx| retain::empty_bodies(tx, &ids))?;
            Ok(())
        })?;
    }
    if let Some(before) = age(rules.events_days) {
        walk(store, before, false, stop, &mut |old| {
            pruned.archived += archive_all(store, archive.as_mut(), old)?;
            let ids: Vec<i64> = old.iter().map(|o| o.id).collect();
            pruned.events += store.write(move |tx| retain::remove_events(tx, &ids))?;
            Ok(())
        })?;
    }
    if let Some(before) = age(rules.attempts_days) {
        let mut from = 0;
        while !stop() {
            let (gone, next) = store.write(move |tx| retain::remove_attempts(tx, before, from))?;
            pruned.attempts += gone;
            let Some(next) = next else { break };
            from = next;
            std::thread::sleep(PAUSE);
        }
    }
    if let Some(before) = age(rules.audit_days) {
        while !stop() {
            let gone = store.write(move |tx| retain::remove_audit(tx, before))?;
            pruned.audit += gone;
            if gone == 0 {
                break;
            }
            std::thread::sleep(PAUSE);
        }
    }
    if let Some(before) = age(rules.bodies_days) {
        while !stop() && store.write(move |tx| retain::remove_report_parts(tx, before))? > 0 {
            std::thread::sleep(PAUSE);
        }
    }
    let before = clock::wall() - FIGURES_DAYS * DAY;
    store.write(move |tx| retain::remove_alerts(tx, before))?;
    store.write(move |tx| retain::remove_hours(tx, before))?;
    while !stop() && store.write(retain::give_back)? > 0 {
        std::thread::sleep(PAUSE);
    }
    Ok(pruned)
}

fn walk(
    store: &Store,
    before: Millis,
    with_bytes: bool,
    stop: &dyn Fn() -> bool,
    each: &mut dyn FnMut(&[Old]) -> Result<()>,
) -> Result<()> {
    let spared = store.read(retain::pointed_at)?;
    let mut from = 0;
    while !stop() {
        let Page { old, next } = store.read(|conn| retain::finished(conn, from, before, &spared, with_bytes))?;
        if !old.is_empty() {
            each(&old)?;
            std::thread::sleep(PAUSE);
        }
        let Some(next) = next else { break };
        from = next;
    }
    Ok(())
}

fn archive_all(store: &Store, archive: Option<&mut Archive>, old: &[Old]) -> Result<usize> {
    let Some(archive) = archive else { return Ok(0) };
    let mut lines = Vec::with_capacity(old.len());
    for one in old {
        // One without bytes was archived when they went.
        if let Some(body) = store.read(|conn| raw::body(conn, one.body))? {
            lines.push(Archived {
                id: one.id,
                source: one.source.clone(),
                origin: one.origin.clone(),
                state: one.state.clone(),
                received_at: clock::rfc3339(one.received_at),
                confirmed: one.confirmed,
                item: one.item,
                headers: body.headers,
                query: body.query,
                sha256: hex::encode(body.sha256),
                body: base64::engine::general_purpose::STANDARD.encode(&body.bytes),
            });
        }
    }
    archive.append(&lines)?;
    Ok(lines.len())
}

/// One event in an archive: a JSON line.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Archived {
    /// Its number in the file it came from.
    pub id: i64,
    /// The source's name.
    pub source: String,
    /// webhook, item, fetched, …
    pub origin: String,
    /// DONE, DUPLICATE or IGNORED.
    pub state: String,
    /// RFC 3339.
    pub received_at: String,
    /// The provider's API gave it, or confirmed what its signature does not prove.
    pub confirmed: bool,
    /// 0, or its place in the batch whose bytes these are.
    pub item: u32,
    /// One `name: value` a line.
    pub headers: String,
    /// The query string.
    pub query: String,
    /// SHA-256 of the bytes, in hex.
    pub sha256: String,
    /// The bytes as sent, in base64.
    pub body: String,
}

impl Archived {
    /// The bytes as sent; `None`: the line was damaged.
    pub fn bytes(&self) -> Option<Vec<u8>> {
        use sha2::Digest as _;
        let bytes = base64::engine::general_purpose::STANDARD.decode(&self.body).ok()?;
        (hex::encode(sha2::Sha256::digest(&bytes)) == self.sha256).then_some(bytes)
    }
}

/// The archive's file of this month: zstd frames one after the other, each synced before what it holds is deleted.
struct Archive {
    file: File,
    path: PathBuf,
}

impl Archive {
    fn open(folder: &Path) -> Result<Archive> {
        let month = clock::rfc3339(clock::wall()).get(..7).unwrap_or("unknown").to_owned();
        let path = folder.join(format!("postonce-events-{month}.jsonl.zst"));
        let file = fs::create_dir_all(folder)
            .and_then(|()| OpenOptions::new().create(true).append(true).mode(0o600).open(&path))
            .map_err(|e| cannot("open", &path, &e))?;
        Ok(Archive { file, path })
    }

    fn append(&mut self, lines: &[Archived]) -> Result<()> {
        if lines.is_empty() {
            return Ok(());
        }
        let mut text = String::new();
        for line in lines {
            text.push_str(&serde_json::to_string(line).map_err(|e| Error::Apply(e.to_string()))?);
            text.push('\n');
        }
        let written = zstd::bulk::compress(text.as_bytes(), 3)
            .and_then(|frame| self.file.write_all(&frame))
            .and_then(|()| self.file.sync_data());
        written.map_err(|e| cannot("write", &self.path, &e))
    }
}

fn cannot(do_what: &str, path: &Path, e: &std::io::Error) -> Error {
    Error::refused(
        format!("cannot {do_what} the archive {}: {e}", path.display()),
        "check the folder `[retain] archive` and its space; nothing that could not be archived was deleted",
    )
}

/// The archives in a folder, the oldest month first.
pub fn archives_in(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).map_err(|e| cannot("read", folder, &e))?.flatten() {
        let name = entry.file_name();
        let ours =
            name.to_str().is_some_and(|name| name.starts_with("postonce-events-") && name.ends_with(".jsonl.zst"));
        found.extend(ours.then(|| entry.path()));
    }
    found.sort();
    Ok(found)
}

/// Reads an archive, a line at a time. A line that was cut off or damaged is an error with its number.
pub fn read_archive(path: &Path, mut each: impl FnMut(Archived) -> Result<()>) -> Result<usize> {
    let bad = |what: String| Error::refused(format!("{}: {what}", path.display()), "the lines before it were read");
    let file = File::open(path).map_err(|e| bad(e.to_string()))?;
    let lines = BufReader::new(zstd::stream::read::Decoder::new(file).map_err(|e| bad(e.to_string()))?).lines();
    let mut count = 0;
    for line in lines {
        let line = line.map_err(|e| bad(format!("after line {count}: {e}")))?;
        let archived: Archived = serde_json::from_str(&line).map_err(|e| bad(format!("line {}: {e}", count + 1)))?;
        if archived.bytes().is_none() {
            return Err(bad(format!("line {}: the bytes are not those of its hash", count + 1)));
        }
        each(archived)?;
        count += 1;
    }
    Ok(count)
}
