//! Settlement as people read it: the trend over ninety days, runs with their buckets, discrepancies with both sides.
//!
//! Reads only, from the tables that settlement steps write. What a run found is read as it was before any repair.

use super::search::Page;
use super::settlement;
pub use super::settlement::discrepancies::{Discrepancy as DiscrepancyRow, LogLine as LogRow};
use crate::clock::{as_rfc3339, as_rfc3339_or_null};
use crate::error::Result;
use crate::event::Millis;
use rusqlite::{Connection, OptionalExtension as _, params};
use serde::Serialize;
use std::collections::BTreeMap;

/// A day in milliseconds.
const DAY: Millis = 86_400_000;

/// One day of the trend.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Day {
    /// `2026-11-30`, by the provider's zone.
    pub day: String,
    /// Books whose run for this day completed.
    pub completed: i64,
    /// Books that have had a run before: so many should have one every day. 0: before the first run ever.
    pub expected: i64,
    /// Newly found, by class.
    pub found: BTreeMap<String, i64>,
    /// Open at the day's end (UTC).
    pub open: i64,
}

impl Day {
    /// Is a run missing? Then the day is a gap, not a zero.
    pub fn is_gap(&self) -> bool {
        self.expected > 0 && self.completed < self.expected
    }

    /// All that was newly found.
    pub fn total(&self) -> i64 {
        self.found.values().sum()
    }
}

/// The trend over the `days` that end with the day of `now`, the oldest first. Empty: no run has ever been made.
pub fn trend(conn: &Connection, now: Millis, days: i64) -> Result<Vec<Day>> {
    let first = now / DAY - days + 1;
    let name = |day: i64| crate::clock::rfc3339(day * DAY).chars().take(10).collect::<String>();
    let mut statement = conn.prepare_cached(
        "SELECT b.id, (SELECT min(day) FROM postonce_runs r WHERE r.book = b.id) AS since FROM postonce_books b WHERE since IS NOT NULL",
    )?;
    let since: Vec<(i64, String)> =
        statement.query_map([], |r| Ok((r.get(0)?, r.get(1)?)))?.collect::<rusqlite::Result<_>>()?;
    if since.is_empty() {
        return Ok(Vec::new());
    }
    let mut completed: BTreeMap<String, i64> = BTreeMap::new();
    let mut of_book = conn.prepare_cached(
        "SELECT day, max(state = 'COMPLETED') FROM postonce_runs WHERE book = ?1 AND day >= ?2 GROUP BY day",
    )?;
    for (book, _) in &since {
        let rows =
            of_book.query_map(params![book, name(first)], |r| Ok((r.get::<_, String>(0)?, r.get::<_, i64>(1)?)))?;
        for row in rows {
            let (day, done) = row?;
            *completed.entry(day).or_default() += done;
        }
    }
    let mut found: BTreeMap<String, BTreeMap<String, i64>> = BTreeMap::new();
    let mut opened: BTreeMap<i64, i64> = BTreeMap::new();
    // Grouped by what the index holds; the run's day is looked up once a group.
    let mut day_of = conn.prepare_cached("SELECT day FROM postonce_runs WHERE id = ?1")?;
    let mut statement = conn.prepare_cached(
        "SELECT first_run, class, opened_at / 86400000, count(*) FROM postonce_discrepancies WHERE opened_at >= ?1 GROUP BY 1, 2, 3",
    )?;
    let mut rows = statement.query([first * DAY])?;
    while let Some(r) = rows.next()? {
        let (run, opened_on, n): (Option<i64>, i64, i64) = (r.get(0)?, r.get(2)?, r.get(3)?);
        let day = day_of.query_row([run], |r| r.get(0)).optional()?.unwrap_or_else(|| name(opened_on));
        *found.entry(day).or_default().entry(r.get(1)?).or_default() += n;
        *opened.entry(opened_on).or_default() += n;
    }
    let resolved: BTreeMap<i64, i64> = conn
        .prepare_cached(
            "SELECT resolved_at / 86400000, count(*) FROM postonce_discrepancies WHERE resolved_at >= ?1 GROUP BY 1",
        )?
        .query_map([first * DAY], |r| Ok((r.get(0)?, r.get(1)?)))?
        .collect::<rusqlite::Result<_>>()?;
    // Backwards from what is open now.
    let mut open = open_count(conn)?;
    let mut trend = Vec::with_capacity(days as usize);
    for number in (first..first + days).rev() {
        let day = name(number);
        trend.push(Day {
            completed: completed.get(&day).copied().unwrap_or(0),
            // The last day that has ended is the newest that can have its run.
            expected: since.iter().filter(|(_, since)| *since <= day && number < now / DAY).count() as i64,
            found: found.remove(&day).unwrap_or_default(),
            open,
            day,
        });
        open += resolved.get(&number).unwrap_or(&0) - opened.get(&number).unwrap_or(&0);
    }
    trend.reverse();
    Ok(trend)
}

/// How many discrepancies are open.
pub fn open_count(conn: &Connection) -> Result<i64> {
    Ok(conn
        .prepare_cached("SELECT count(*) FROM postonce_discrepancies WHERE state <> 'RESOLVED'")?
        .query_row([], |r| r.get(0))?)
}

/// What is open, in sums.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Open {
    /// How many.
    pub count: i64,
    /// The difference between both sides, by currency, minor units, without its sign.
    pub value: BTreeMap<String, i64>,
    /// The oldest, and since when.
    pub oldest: Option<(i64, Millis)>,
}

/// What is open, in sums.
pub fn open(conn: &Connection) -> Result<Open> {
    let mut statement = conn.prepare_cached(
        "SELECT id, opened_at, currency, abs(ifnull(our_amount, 0) - ifnull(their_amount, 0)) FROM postonce_discrepancies WHERE state <> 'RESOLVED'",
    )?;
    let mut rows = statement.query([])?;
    let mut open = Open::default();
    while let Some(r) = rows.next()? {
        let (id, at): (i64, Millis) = (r.get(0)?, r.get(1)?);
        open.count += 1;
        if open.oldest.is_none_or(|(_, oldest)| at < oldest) {
            open.oldest = Some((id, at));
        }
        if let Some(currency) = r.get::<_, Option<String>>(2)? {
            let sum = open.value.entry(currency).or_default();
            *sum = sum.saturating_add(r.get(3)?);
        }
    }
    Ok(open)
}

/// A run: the shape of `/api/v1/runs`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RunRow {
    /// Its number.
    pub id: i64,
    /// The tenant of its book.
    pub tenant: String,
    /// The provider of its book.
    pub provider: String,
    /// live or test.
    pub mode: String,
    /// Which report.
    pub report: String,
    /// The last day of its window.
    pub day: String,
    /// RUNNING, COMPLETED, DEFERRED, INVALID or FAILED.
    pub state: String,
    /// Why it did not complete.
    pub reason: Option<String>,
    /// When it began.
    #[serde(serialize_with = "as_rfc3339")]
    pub started_at: Millis,
    /// When it ended.
    #[serde(serialize_with = "as_rfc3339_or_null")]
    pub finished_at: Option<Millis>,
    /// Lines of the report.
    pub lines: Option<i64>,
    /// Entries of ours that were expected in it.
    pub entries: Option<i64>,
    /// Missing here, before any repair; only a window's first completed run has it.
    pub found: Option<i64>,
    /// Fetched or rebuilt, and handed to the worker.
    pub repaired: i64,
    /// How many items are in each bucket, both sides of a pair counted once.
    pub buckets: BTreeMap<String, i64>,
}

/// The newest runs below `before`.
pub fn runs(conn: &Connection, before: Option<i64>, limit: usize) -> Result<Page<RunRow>> {
    let mut statement = conn.prepare_cached(
        "SELECT r.id, b.tenant, b.provider, b.mode, r.report_name, r.day, r.state, r.reason, r.started_at, r.finished_at,
           r.lines_total, r.ours_total, r.found, r.repaired FROM postonce_runs r JOIN postonce_books b ON b.id = r.book
         WHERE r.id < ifnull(?1, 9223372036854775807) ORDER BY r.id DESC LIMIT ?2",
    )?;
    let rows = statement.query_map(params![before, limit as i64 + 1], |r| {
        Ok(RunRow {
            id: r.get(0)?,
            tenant: r.get(1)?,
            provider: r.get(2)?,
            mode: r.get(3)?,
            report: r.get(4)?,
            day: r.get(5)?,
            state: r.get(6)?,
            reason: r.get(7)?,
            started_at: r.get(8)?,
            finished_at: r.get(9)?,
            lines: r.get(10)?,
            entries: r.get(11)?,
            found: r.get(12)?,
            repaired: r.get(13)?,
            buckets: BTreeMap::new(),
        })
    })?;
    let mut rows: Vec<RunRow> = rows.collect::<rusqlite::Result<_>>()?;
    let more = rows.len() > limit;
    rows.truncate(limit);
    let mut buckets = conn.prepare_cached(
        "SELECT bucket, sum(n) FROM postonce_run_counts WHERE run = ?1 AND side IN ('T', 'O') GROUP BY bucket",
    )?;
    for run in &mut rows {
        run.buckets = buckets.query_map([run.id], |r| Ok((r.get(0)?, r.get(1)?)))?.collect::<rusqlite::Result<_>>()?;
    }
    let next = if more { rows.last().map(|run| run.id) } else { None };
    Ok(Page { rows, next, looked_back_to: None })
}

/// Lists discrepancies, the newest first: those that are open, or all.
pub fn discrepancies(
    conn: &Connection,
    open_only: bool,
    before: Option<i64>,
    limit: usize,
) -> Result<Page<DiscrepancyRow>> {
    let mut rows = settlement::discrepancies::page(conn, open_only, before, limit + 1)?;
    let more = rows.len() > limit;
    rows.truncate(limit);
    let next = if more { rows.last().map(|d| d.id) } else { None };
    Ok(Page { rows, next, looked_back_to: None })
}

/// The provider's line, as far as people compare it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LineRow {
    /// Its number.
    pub id: i64,
    /// The file or list it stands in.
    pub report: String,
    /// The line in the file, or the item of the list, from 1.
    pub place: i64,
    /// The provider's id of the row.
    pub line_ref: String,
    /// The movement's reference.
    pub reference: Option<String>,
    /// In the settled currency, signed, minor units.
    pub gross: i64,
    /// Likewise.
    pub fee: i64,
    /// Likewise.
    pub net: i64,
    /// ISO 4217.
    pub currency: String,
    /// The provider's clock.
    #[serde(serialize_with = "as_rfc3339_or_null")]
    pub occurred_at: Option<Millis>,
    /// The payout it belongs to.
    pub payout: Option<String>,
}

/// A discrepancy with its line and its log.
pub type Whole = (DiscrepancyRow, Option<LineRow>, Vec<LogRow>);

/// One discrepancy with its line and its log.
pub fn discrepancy(conn: &Connection, id: i64) -> Result<Option<Whole>> {
    let Some((row, log)) = settlement::discrepancies::show(conn, id)? else { return Ok(None) };
    let line = match row.line {
        None => None,
        Some(line) => conn
            .prepare_cached(
                "SELECT l.id, ifnull(p.file, p.name), l.place, l.line_ref, l.reference, l.gross, l.fee, l.net, l.currency, l.occurred_at, l.payout_ref
                 FROM postonce_report_lines l JOIN postonce_reports p ON p.id = l.report WHERE l.id = ?1",
            )?
            .query_row([line], |r| {
                Ok(LineRow {
                    id: r.get(0)?,
                    report: r.get(1)?,
                    place: r.get(2)?,
                    line_ref: r.get(3)?,
                    reference: r.get(4)?,
                    gross: r.get(5)?,
                    fee: r.get(6)?,
                    net: r.get(7)?,
                    currency: r.get(8)?,
                    occurred_at: r.get(9)?,
                    payout: r.get(10)?,
                })
            })
            .optional()?,
    };
    Ok(Some((row, line, log)))
}
