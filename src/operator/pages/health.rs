//! Health: the machine, the file, and the check of every promise. Also what probes ask.

use crate::clock::{as_rfc3339, steady};
use crate::edge::Response;
use crate::event::Millis;
use crate::metrics as figures;
use crate::operator::act;
use crate::operator::answer::{Failure, Outcome, html as answer, see};
use crate::operator::ask::Ask;
use crate::operator::layout::{Sheet, count, csrf, document, duration, empty, instant, number, since, state, table};
use crate::store::overview;
use maud::{Markup, html};
use serde::Serialize;
use std::sync::atomic::Ordering::Relaxed;

/// Less room than this is nearly none.
const DISK_LEAST: u64 = 512 << 20;
/// A writer that has not begun a round for so long is stuck; it begins one every second.
const BEAT_MOST: Millis = 10_000;

/// It answers: that is all this says.
pub(in crate::operator) fn alive(_: &Ask) -> Outcome {
    Ok(Response::text(200, "ok\n"))
}

/// Can it take webhooks?
pub(in crate::operator) fn ready(ask: &Ask) -> Outcome {
    Ok(match crate::health::ready(ask.app.shared()) {
        Ok(()) => Response::text(200, "ready\n"),
        Err(why) => Response::text(503, why.join("\n") + "\n"),
    })
}

/// The figures, in the OpenMetrics format unless the scraper asks for other text only.
pub(in crate::operator) fn metrics(ask: &Ask) -> Outcome {
    let text = figures::render(ask.app.shared())?;
    let asked = ask.head.headers.get_str("accept").unwrap_or_default();
    let (kind, text) = match asked.contains("text/plain") && !asked.contains("application/openmetrics-text") {
        true => (figures::PLAIN, figures::plain(&text)),
        false => (figures::CONTENT_TYPE, text),
    };
    Ok(Response::new(200).with_header("Content-Type", kind).with_body(text.into_bytes()))
}

/// How it stands: the shape of `/api/v1/health`.
#[derive(Clone, Debug, Serialize)]
pub(in crate::operator) struct Health {
    pub version: &'static str,
    pub sqlite: &'static str,
    pub schema: String,
    #[serde(serialize_with = "as_rfc3339")]
    pub started_at: Millis,
    pub database: String,
    pub database_bytes: i64,
    pub free_bytes_inside: i64,
    pub wal_bytes: u64,
    pub disk_free_bytes: Option<u64>,
    pub raw_events: i64,
    pub entries: i64,
    /// Bodies that wait for the disk.
    pub queued: usize,
    /// Events on their way; counted up to 100,000.
    pub on_the_way: i64,
    pub commits: u64,
    pub last_checkpoint_us: u64,
    pub last_backup: Option<String>,
    /// What keeps it from taking webhooks; empty: it is ready.
    pub troubles: Vec<String>,
}

/// Reads it.
pub(in crate::operator) fn view(ask: &Ask) -> Result<Health, Failure> {
    let shared = ask.app.shared();
    let path = shared.store.path();
    let (facts, way) = shared.store.look(|conn| Ok((overview::file_facts(conn)?, overview::on_the_way(conn)?)))?;
    let folder = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(std::path::Path::new("."));
    let disk_free_bytes = rustix::fs::statvfs(folder).ok().map(|stat| stat.f_bavail * stat.f_frsize);
    let mut wal = path.as_os_str().to_owned();
    wal.push("-wal");
    let figures = shared.store.gate().figures();
    let mut troubles = Vec::new();
    troubles.extend(figures.trouble.lock().ok().and_then(|trouble| trouble.clone()));
    if disk_free_bytes.is_some_and(|free| free < DISK_LEAST) {
        troubles.push("the disk is nearly full".into());
    }
    let silent = steady() - figures.beat.load(Relaxed);
    if silent > BEAT_MOST {
        troubles.push(format!("the writer has not moved for {}", duration(silent)));
    }
    Ok(Health {
        version: env!("CARGO_PKG_VERSION"),
        sqlite: rusqlite::version(),
        schema: facts.schema,
        started_at: ask.app.started_at,
        database: path.display().to_string(),
        database_bytes: facts.pages * facts.page_size,
        free_bytes_inside: facts.free_pages * facts.page_size,
        wal_bytes: std::fs::metadata(&wal).map_or(0, |file| file.len()),
        disk_free_bytes,
        raw_events: facts.raw_events,
        entries: facts.entries,
        queued: shared.store.gate().queued(),
        on_the_way: way.count,
        commits: figures.commits.load(Relaxed),
        last_checkpoint_us: figures.checkpoint_us.load(Relaxed),
        last_backup: facts.last_backup,
        troubles,
    })
}

fn size(bytes: u64) -> String {
    match bytes {
        b if b >= 10 << 30 => format!("{} GiB", b >> 30),
        b if b >= 1 << 20 => format!("{} MiB", b >> 20),
        b if b >= 1 << 10 => format!("{} KiB", b >> 10),
        b => format!("{b} bytes"),
    }
}

/// The page.
pub(in crate::operator) fn page(ask: &Ask) -> Outcome {
    ask.only(&[])?;
    let (view, check) = (view(ask)?, act::last_check(ask.app));
    let content = html! {
        p.answer {
            @if view.troubles.is_empty() { "Ready: webhooks are taken and posted." }
            @else { "Not ready: " (view.troubles.join("; ")) "." }
        }
        dl.figures {
            div { dt { "Room on the disk" } dd { (view.disk_free_bytes.map_or("unknown".to_owned(), size)) } }
            div { dt { "The file" } dd { (size(view.database_bytes.unsigned_abs())) } dd.soft { (size(view.free_bytes_inside.unsigned_abs())) " of it free" } }
            div { dt { "Its log (WAL)" } dd { (size(view.wal_bytes)) } dd.soft { "last checkpoint took " (view.last_checkpoint_us / 1000) "." (view.last_checkpoint_us % 1000 / 100) " ms" } }
            div { dt { "Waiting for the disk" } dd { (view.queued) } dd.soft { (count(view.on_the_way)) " on their way to the ledger" } }
        }
        dl.facts {
            dt { "Version" } dd { "postonce " (view.version) ", SQLite " (view.sqlite) ", tables of version " (view.schema) }
            dt { "Running since" } dd { (instant(view.started_at)) }
            dt { "File" } dd { code.id { (view.database) } }
            dt { "In it" } dd { (number(view.raw_events)) " events received, " (number(view.entries)) " entries" }
            dt { "Last backup" } dd { @match &view.last_backup { Some(at) => (at), None => { "none that is known here. Try: " code { "postonce backup DEST" } } } }
        }
        (checks(ask, &check))
    };
    let sheet = Sheet {
        title: "Health",
        nav: "/health",
        what: "The machine, the file, and whether every promise of it holds.",
        again: check.running.then_some(2),
        content,
    };
    Ok(answer(200, document(Some(&ask.who), sheet)))
}

fn checks(ask: &Ask, check: &act::Check) -> Markup {
    let rows = check
        .offences
        .iter()
        .take(200)
        .map(|offence| vec![html! { (offence.truth) }, html! { (offence.what) }])
        .collect();
    html! {
        h2 { "Check" }
        @if check.running { p role="status" { (state("RUNNING")) " since " (check.began_at.map(instant).unwrap_or_default()) ". This page loads itself again." } }
        @else if let Some(error) = &check.error { p.warn { "! It could not be made: " (error) "." } }
        @else if let Some(ended) = check.ended_at {
            @if check.offences.is_empty() { p { (state("ok")) " Every balance, key and link was as promised " (since(ended)) "." } }
            @else {
                p.warn { "! " (check.offences.len()) " things were not as promised " (since(ended)) "." }
                (table("What is not so", &["Promise", "Where"], rows))
            }
        } @else {
            (empty("Not checked since the start.", html! { p { "A check reads the whole file: every balance against its postings, every key, the chain of hashes. It takes about a minute for a million entries and holds nothing up." } }))
        }
        @if !check.running && ask.may_change() {
            form method="post" action="/health/check" { (csrf(&ask.who)) button { "Check the file now" } }
        }
    }
}

/// Begins a check.
pub(in crate::operator) fn check(ask: &Ask) -> Outcome {
    act::start_check(ask)?;
    Ok(see("/health"))
}

/// For the first page: what is wrong with the machine.
pub(super) fn troubles(ask: &Ask) -> Result<Vec<String>, Failure> {
    Ok(view(ask)?.troubles)
}

#[cfg(test)]
mod tests {
    #[test]
    fn sizes_are_told_in_a_unit_that_leaves_a_short_number() {
        for (bytes, told) in [(12, "12 bytes"), (2048, "2 KiB"), (3 << 20, "3 MiB"), (20 << 30, "20 GiB")] {
            assert_eq!(super::size(bytes), told);
        }
    }
}
