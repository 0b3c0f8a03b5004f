//! The trend: one row a day and book, for the first page, the terminal and the metrics.
//!
//! A day without a completed run is a gap, not a zero. What is open is counted from the discrepancies themselves, as it
//! was at the end of each day.

use crate::error::Result;
use crate::event::Millis;
use rusqlite::{Connection, params};
use std::collections::BTreeMap;

/// Which days and whose.
#[derive(Clone, Debug, Default)]
pub struct TrendFilter {
    /// Only this tenant.
    pub tenant: Option<String>,
    /// Only this provider.
    pub provider: Option<String>,
    /// The first day, `2026-11-01`.
    pub from: String,
    /// The last day, included.
    pub to: String,
}

/// One day of one book.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct TrendDay {
    /// `2026-11-30`: the last day of the windows of its runs.
    pub day: String,
    /// Whose.
    pub tenant: String,
    /// At which provider.
    pub provider: String,
    /// The provider's own account, or empty.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub provider_account: String,
    /// `live` or `test`.
    pub mode: String,
    /// No run of that day completed: every number about it is unknown.
    pub gap: bool,
    /// The state of the last run of that day that did not complete, and why.
    pub trouble: Option<String>,
    /// Missing here before any repair, by the first completed run of each window. `None`: a gap.
    pub found: Option<i64>,
    /// Items of all completed runs for that day's own window, by bucket.
    pub buckets: BTreeMap<String, i64>,
    /// Lines that were compared with entries: matched and differing, per thousand of all that could be.
    pub matched_per_mille: Option<i64>,
    /// Discrepancies opened on that day (UTC), those that repaired themselves left out.
    pub opened: i64,
    /// Discrepancies open at its end (UTC).
    pub open: i64,
    /// Their value by currency, in minor units.
    pub value: BTreeMap<String, i64>,
    /// Since when the oldest of them is open.
    pub oldest_at: Option<Millis>,
}

/// A day's beginning in UTC.
fn start_of(day: &str) -> Millis {
    let date: Option<jiff::civil::Date> = day.parse().ok();
    date.and_then(|d| jiff::tz::TimeZone::UTC.to_timestamp(d.at(0, 0, 0, 0)).ok()).map_or(0, |t| t.as_millisecond())
}

/// All days from `from` to `to`, both included; empty when they are no days.
pub fn days(from: &str, to: &str) -> Vec<String> {
    let (Ok(mut day), Ok(last)) = (from.parse::<jiff::civil::Date>(), to.parse::<jiff::civil::Date>()) else {
        return Vec::new();
    };
    let mut days = Vec::new();
    while day <= last && days.len() < 4000 {
        days.push(day.to_string());
        let Ok(next) = day.tomorrow() else { break };
        day = next;
    }
    days
}

/// The trend of every book that ever had a run, day by day from its first run's day on, in order of book and day.
pub fn trend(conn: &Connection, filter: &TrendFilter) -> Result<Vec<TrendDay>> {
    let mut statement = conn.prepare_cached(
        "SELECT b.id, b.tenant, b.provider, b.provider_account, b.mode, ifnull(min(CASE r.again WHEN 0 THEN r.day END), max(r.day)) FROM postonce_runs r JOIN postonce_books b ON b.id = r.book
         WHERE (?1 IS NULL OR b.tenant = ?1) AND (?2 IS NULL OR b.provider = ?2)
         GROUP BY b.id ORDER BY b.tenant, b.provider, b.provider_account, b.mode",
    )?;
    let books: Vec<(i64, TrendDay, String)> = statement
        .query_map(params![filter.tenant, filter.provider], |r| {
            let book = TrendDay {
                tenant: r.get(1)?,
                provider: r.get(2)?,
                provider_account: r.get(3)?,
                mode: r.get(4)?,
                ..TrendDay::default()
            };
            Ok((r.get(0)?, book, r.get(5)?))
        })?
        .collect::<rusqlite::Result<_>>()?;
    let mut all = Vec::new();
    for (id, book, first) in books {
        let from = if first > filter.from { &first } else { &filter.from };
        for day in days(from, &filter.to) {
            all.push(one(conn, id, TrendDay { day, ..book.clone() })?);
        }
    }
    Ok(all)
}

fn one(conn: &Connection, book: i64, mut day: TrendDay) -> Result<TrendDay> {
    let (completed, found): (i64, Option<i64>) = conn
        .prepare_cached(
            "SELECT ifnull(sum(again = 0), 0), sum(found) FROM postonce_runs WHERE book = ?1 AND day = ?2 AND state = 'COMPLETED'",
        )?
        .query_row(params![book, day.day], |r| Ok((r.get(0)?, r.get(1)?)))?;
    day.gap = completed == 0;
    day.found = if day.gap { None } else { Some(found.unwrap_or(0)) };
    let mut troubles = conn.prepare_cached(
        "SELECT state || ': ' || ifnull(reason, '') FROM postonce_runs
         WHERE book = ?1 AND day = ?2 AND state IN ('DEFERRED', 'INVALID', 'FAILED') ORDER BY id DESC LIMIT 1",
    )?;
    day.trouble = troubles.query_map(params![book, day.day], |r| r.get(0))?.next().transpose()?;
    // the day's own window, as its last completed run saw it
    let mut buckets = conn.prepare_cached(
        "SELECT c.bucket, sum(c.n) FROM postonce_run_counts c
         WHERE c.run = (SELECT max(id) FROM postonce_runs WHERE book = ?1 AND day = ?2 AND state = 'COMPLETED' AND again = 0)
           GROUP BY c.bucket",
    )?;
    let rows = buckets.query_map(params![book, day.day], |r| Ok((r.get::<_, String>(0)?, r.get::<_, i64>(1)?)))?;
    day.buckets = rows.collect::<rusqlite::Result<_>>()?;
    let aside = ["provider_only", "not_ours", "pending_theirs", "in_transit"];
    let comparable: i64 = day.buckets.iter().filter(|(b, _)| !aside.contains(&b.as_str())).map(|(_, n)| n).sum();
    let matched = day.buckets.get("matched").copied().unwrap_or(0);
    day.matched_per_mille = (comparable > 0).then(|| matched.saturating_mul(1000) / comparable);
    let (start, end) = (start_of(&day.day), start_of(&day.day) + 86_400_000);
    day.opened = conn
        .prepare_cached(
            "SELECT count(*) FROM postonce_discrepancies WHERE book = ?1 AND opened_at >= ?2 AND opened_at < ?3
               AND ifnull(resolution, '') <> 'AUTO_FETCHED' AND state <> 'FIXING'",
        )?
        .query_row(params![book, start, end], |r| r.get(0))?;
    let mut open = conn.prepare_cached(
        "SELECT ifnull(currency, ''), count(*), sum(abs(ifnull(their_amount, 0) - ifnull(our_amount, 0))), min(opened_at)
         FROM postonce_discrepancies WHERE book = ?1 AND opened_at < ?2 AND (resolved_at IS NULL OR resolved_at >= ?2)
         GROUP BY 1",
    )?;
    let rows = open.query_map(params![book, end], |r| {
        Ok((r.get::<_, String>(0)?, r.get::<_, i64>(1)?, r.get::<_, i64>(2)?, r.get::<_, Option<Millis>>(3)?))
    })?;
    for row in rows {
        let (currency, count, value, oldest) = row?;
        day.open += count;
        if !currency.is_empty() {
            day.value.insert(currency, value);
        }
        day.oldest_at = match (day.oldest_at, oldest) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
    }
    Ok(day)
}
