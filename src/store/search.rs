//! Finding raw events for people: by id, reference, customer, type, state and time, on files with millions of them.
//!
//! Only keys that are there anyway are used; what has no key is looked for from the newest back, for as long as a page may
//! take, and the answer says how far back that was. Nothing here writes.

use super::history;
use crate::clock::{as_rfc3339, as_rfc3339_or_null};
use crate::error::Result;
use crate::event::Millis;
use rusqlite::{Connection, Row, params};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

/// How long a search without a key may look back before it gives what it has.
const LOOK: Duration = Duration::from_millis(20);
/// References of one customer or movement that are followed to their events.
const FOLLOWED: usize = 2000;

/// One raw event in a list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct EventRow {
    /// Its number.
    pub id: i64,
    /// The source's name.
    pub source: String,
    /// How it came: webhook, item, fetched, …
    pub origin: String,
    /// RECEIVED, CLAIMED, DONE, …
    pub state: String,
    /// The provider's event id.
    pub event_id: Option<String>,
    /// The provider's name of the type.
    #[serde(rename = "type")]
    pub kind: Option<String>,
    /// The tenant of its book.
    pub tenant: Option<String>,
    /// The provider of its book.
    pub provider: Option<String>,
    /// live or test.
    pub mode: Option<String>,
    /// When it came.
    #[serde(serialize_with = "as_rfc3339")]
    pub received_at: Millis,
    /// When it happened, by the provider's clock.
    #[serde(serialize_with = "as_rfc3339_or_null")]
    pub occurred_at: Option<Millis>,
    /// When it reached its end state.
    #[serde(serialize_with = "as_rfc3339_or_null")]
    pub ended_at: Option<Millis>,
    /// Attempts to apply it.
    pub attempts: u32,
    /// The name of the secret that matched.
    pub secret: Option<String>,
    /// Why it ended so, or the last failure.
    pub reason: Option<String>,
}

/// Which raw events to find. Everything that is given must hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EventQuery {
    /// An event id, a provider's reference, or the number of a raw event.
    pub id: Option<String>,
    /// The customer whose accounts it moved.
    pub account: Option<String>,
    /// The type; a `*` at the end matches the rest.
    pub kind: Option<String>,
    /// One of these states; empty: any.
    pub states: Vec<&'static str>,
    /// The source's name.
    pub source: Option<String>,
    /// Received at or after this.
    pub from: Option<Millis>,
    /// Received before this.
    pub to: Option<Millis>,
    /// Only numbers below this: where the page before ended.
    pub before: Option<i64>,
    /// At most so many.
    pub limit: usize,
}

/// A page of a list, the newest first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page<T, K = i64> {
    /// What was found.
    pub rows: Vec<T>,
    /// Where the next page begins; `None`: this was all.
    pub next: Option<K>,
    /// The search ended early, having looked back to here.
    pub looked_back_to: Option<Millis>,
}

const COLUMNS: &str =
    "r.id, s.name, r.origin, r.state, e.event_id, e.type, b.tenant, b.provider, b.mode, r.received_at, e.occurred_at,
  r.ended_at, r.attempts, r.secret, r.reason
  FROM postonce_raw_events r JOIN postonce_sources s ON s.id = r.source
  LEFT JOIN postonce_events e ON e.id = r.id LEFT JOIN postonce_books b ON b.id = e.book";

fn row(r: &Row) -> rusqlite::Result<EventRow> {
    Ok(EventRow {
        id: r.get(0)?,
        source: r.get(1)?,
        origin: r.get(2)?,
        state: r.get(3)?,
        event_id: r.get(4)?,
        kind: r.get(5)?,
        tenant: r.get(6)?,
        provider: r.get(7)?,
        mode: r.get(8)?,
        received_at: r.get(9)?,
        occurred_at: r.get(10)?,
        ended_at: r.get(11)?,
        attempts: r.get(12)?,
        secret: r.get(13)?,
        reason: r.get(14)?,
    })
}

/// One raw event by number.
pub fn event(conn: &Connection, id: i64) -> Result<Option<EventRow>> {
    let mut statement = conn.prepare_cached(&format!("SELECT {COLUMNS} WHERE r.id = ?1"))?;
    let mut rows = statement.query_map([id], row)?;
    Ok(rows.next().transpose()?)
}

/// Finds raw events, the newest first.
pub fn events(conn: &Connection, query: &EventQuery) -> Result<Page<EventRow>> {
    let mut keyed: Option<BTreeSet<i64>> = None;
    let mut narrow = |found: BTreeSet<i64>| {
        keyed = Some(match keyed.take() {
            Some(before) => before.intersection(&found).copied().collect(),
            None => found,
        });
    };
    if let Some(id) = &query.id {
        narrow(under(conn, id)?);
    }
    if let Some(account) = &query.account {
        narrow(of_customer(conn, account)?);
    }
    match keyed {
        Some(ids) => among(conn, query, ids.into_iter().rev()),
        None if !query.states.is_empty() && query.states.iter().all(|s| FOR_A_PERSON.contains(s)) => {
            among(conn, query, for_a_person(conn, query)?.into_iter())
        }
        None => look_back(conn, query),
    }
}

const FOR_A_PERSON: [&str; 3] = ["PARKED", "CONFLICT", "DEAD"];

/// The numbers of what waits for a person, from the index that is kept for it.
fn for_a_person(conn: &Connection, query: &EventQuery) -> Result<Vec<i64>> {
    let mut ids: Vec<i64> = Vec::new();
    for state in &query.states {
        let mut statement = conn.prepare_cached(
            "SELECT id FROM postonce_raw_events WHERE state = ?1 AND (state = 'PARKED' OR state = 'CONFLICT' OR state = 'DEAD')
               AND id < ifnull(?2, 9223372036854775807) ORDER BY id DESC LIMIT ?3",
        )?;
        let rows = statement.query_map(params![state, query.before, FOLLOWED as i64], |r| r.get(0))?;
        for id in rows {
            ids.push(id?);
        }
    }
    ids.sort_unstable_by(|a, b| b.cmp(a));
    Ok(ids)
}

/// Everything filed under an event id or reference: its claims in every book, and what belongs to it.
fn under(conn: &Connection, text: &str) -> Result<BTreeSet<i64>> {
    let mut found = BTreeSet::new();
    if let Ok(number) = text.parse::<i64>()
        && number > 0
    {
        found.insert(number);
    }
    let mut statement = conn.prepare_cached(
        "WITH RECURSIVE kinds(book, kind) AS (
           SELECT b.id, (SELECT min(kind) FROM postonce_claims c WHERE c.book = b.id) FROM postonce_books b
           UNION ALL SELECT k.book, (SELECT min(kind) FROM postonce_claims c WHERE c.book = k.book AND c.kind > k.kind)
             FROM kinds k WHERE k.kind IS NOT NULL)
         SELECT c.raw_event FROM kinds k CROSS JOIN postonce_claims c ON c.book = k.book AND c.kind = k.kind AND c.ref = ?1
         UNION SELECT c.raw_event FROM kinds k CROSS JOIN postonce_claims c
           ON c.book = k.book AND c.kind = k.kind AND c.ref > ?1 || '@' AND c.ref < ?1 || 'A'
         UNION SELECT j.raw_event FROM postonce_books b CROSS JOIN postonce_journal j ON j.book = b.id AND j.parent = ?1
         LIMIT ?2",
    )?;
    let rows = statement.query_map(params![text, FOLLOWED as i64], |r| r.get(0))?;
    for id in rows {
        found.insert(id?);
    }
    Ok(found)
}

/// The events behind the newest entries that moved a customer's accounts.
fn of_customer(conn: &Connection, holder: &str) -> Result<BTreeSet<i64>> {
    let accounts: Vec<i64> = conn
        .prepare_cached("SELECT id FROM postonce_accounts WHERE holder = ?1 AND holder <> '' LIMIT 500")?
        .query_map([holder], |r| r.get(0))?
        .collect::<rusqlite::Result<_>>()?;
    let mut found = BTreeSet::new();
    let mut event_of = conn.prepare_cached("SELECT raw_event FROM postonce_journal WHERE id = ?1")?;
    for account in accounts {
        for entry in history::entries(conn, account, 0, i64::MAX, FOLLOWED)? {
            found.insert(event_of.query_row([entry], |r| r.get(0))?);
        }
    }
    Ok(found)
}

fn fits(query: &EventQuery, row: &EventRow) -> bool {
    let kind = query.kind.as_ref().is_none_or(|pattern| {
        let kind = row.kind.as_deref().unwrap_or_default();
        match pattern.strip_suffix('*') {
            Some(begin) => kind.starts_with(begin),
            None => kind == pattern,
        }
    });
    kind && (query.states.is_empty() || query.states.iter().any(|s| *s == row.state))
        && query.source.as_ref().is_none_or(|source| *source == row.source)
        && query.from.is_none_or(|from| row.received_at >= from)
        && query.to.is_none_or(|to| row.received_at < to)
        && query.before.is_none_or(|before| row.id < before)
}

/// The known ones of a set of numbers, in the order given.
fn among(conn: &Connection, query: &EventQuery, ids: impl Iterator<Item = i64>) -> Result<Page<EventRow>> {
    let mut page = Page { rows: Vec::new(), next: None, looked_back_to: None };
    for id in ids.filter(|id| query.before.is_none_or(|before| *id < before)) {
        let Some(row) = event(conn, id)?.filter(|row| fits(query, row)) else { continue };
        if page.rows.len() == query.limit {
            page.next = page.rows.last().map(|r: &EventRow| r.id);
            break;
        }
        page.rows.push(row);
    }
    Ok(page)
}

/// Row by row from the newest, within the time that a page may take.
fn look_back(conn: &Connection, query: &EventQuery) -> Result<Page<EventRow>> {
    let began = Instant::now();
    let upper = match query.to {
        Some(to) => query.before.unwrap_or(i64::MAX).min(first_at(conn, to)?),
        None => query.before.unwrap_or(i64::MAX),
    };
    let lower = query.from.map_or(Ok(0), |from| first_at(conn, from))?;
    let mut statement =
        conn.prepare_cached(&format!("SELECT {COLUMNS} WHERE r.id < ?1 AND r.id >= ?2 ORDER BY r.id DESC"))?;
    let mut rows = statement.query(params![upper, lower])?;
    let mut page = Page { rows: Vec::new(), next: None, looked_back_to: None };
    let mut looked = 0_u32;
    while let Some(r) = rows.next()? {
        let found = row(r)?;
        if page.rows.len() == query.limit {
            page.next = page.rows.last().map(|r: &EventRow| r.id);
            return Ok(page);
        }
        let (id, received_at) = (found.id, found.received_at);
        if fits(query, &found) {
            page.rows.push(found);
        }
        looked += 1;
        if looked.is_multiple_of(64) && began.elapsed() > LOOK {
            page.next = Some(id);
            page.looked_back_to = Some(received_at);
            return Ok(page);
        }
    }
    Ok(page)
}

/// The first raw event received at or after an instant; beyond the newest when there is none. Numbers grow with time, so
/// it is found by halving.
pub fn first_at(conn: &Connection, at: Millis) -> Result<i64> {
    halve(conn, "postonce_raw_events", "received_at", at)
}

/// The first entry recorded at or after an instant.
pub fn first_entry_at(conn: &Connection, at: Millis) -> Result<i64> {
    halve(conn, "postonce_journal", "recorded_at", at)
}

fn halve(conn: &Connection, table: &'static str, column: &'static str, at: Millis) -> Result<i64> {
    let (mut low, mut high): (i64, i64) = conn
        .prepare_cached(&format!(
            "SELECT ifnull((SELECT min(id) FROM {table}), 1), ifnull((SELECT max(id) FROM {table}), 0) + 1"
        ))?
        .query_row([], |r| Ok((r.get(0)?, r.get(1)?)))?;
    let mut statement =
        conn.prepare_cached(&format!("SELECT id, {column} FROM {table} WHERE id >= ?1 ORDER BY id LIMIT 1"))?;
    while low < high {
        let middle = low + (high - low) / 2;
        let (id, time): (i64, Millis) = statement.query_row([middle], |r| Ok((r.get(0)?, r.get(1)?)))?;
        if time < at {
            low = id + 1;
        } else {
            high = middle;
        }
    }
    Ok(low)
}

/// What became of the events that were imported after `id`, by state.
pub fn imported_since(conn: &Connection, id: i64) -> Result<BTreeMap<String, i64>> {
    let mut statement = conn.prepare_cached(
        "SELECT state, count(*) FROM postonce_raw_events WHERE id > ?1 AND origin = 'imported' GROUP BY state",
    )?;
    let rows = statement.query_map([id], |r| Ok((r.get(0)?, r.get(1)?)))?;
    Ok(rows.collect::<rusqlite::Result<_>>()?)
}

/// The items that a batch delivery brought: they were written together, soon after it.
pub fn items_of(conn: &Connection, batch: i64) -> Result<Vec<i64>> {
    let mut statement = conn.prepare_cached(
        "SELECT id FROM postonce_raw_events WHERE id > ?1 AND id < ?1 + 5000 AND body = ?1 ORDER BY id LIMIT 500",
    )?;
    let rows = statement.query_map([batch], |r| r.get(0))?;
    Ok(rows.collect::<rusqlite::Result<_>>()?)
}

/// The delivery whose bytes an item shares; `None` for a delivery of its own.
pub fn batch_of(conn: &Connection, id: i64) -> Result<Option<(i64, i64)>> {
    let mut statement =
        conn.prepare_cached("SELECT body, item FROM postonce_raw_events WHERE id = ?1 AND body IS NOT NULL")?;
    let mut rows = statement.query_map([id], |r| Ok((r.get(0)?, r.get(1)?)))?;
    Ok(rows.next().transpose()?)
}
