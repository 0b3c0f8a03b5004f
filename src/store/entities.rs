//! The latest known state of each object. Moves forward only.

use super::Tx;
use super::search::Page;
use crate::error::Result;
use crate::event::{EntityState, Event, Meaning, Millis};
use rusqlite::{Connection, OptionalExtension as _, params};
use std::time::{Duration, Instant};

/// What became of a state that an event carried.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Moved {
    /// It is the latest now.
    Forward,
    /// A newer one is there already, brought by this raw event.
    Superseded(i64),
}

/// How much a status restricts, so that a tie ends the same in every order of arrival. Ended states restrict most.
fn severity(status: &str) -> u8 {
    match status {
        "canceled" | "ended" | "expired" | "lost" | "closed" => 9,
        "paused" => 7,
        "past_due" | "unpaid" => 6,
        "canceling" => 5,
        "pending" | "incomplete" => 4,
        "trialing" => 3,
        "active" | "won" => 2,
        _ => 1,
    }
}

/// Keeps `state` if it is newer than what is there: by version where both have one, else by time; in a tie the more
/// restrictive state stays and the row is flagged.
pub fn put(tx: &Tx, book: i64, state: &EntityState, event_at: Millis, raw_event: i64) -> Result<Moved> {
    let as_of = state.as_of.unwrap_or(event_at);
    let there = tx
        .conn
        .prepare_cached(
            "SELECT version, as_of, status, raw_event FROM postonce_entities WHERE book = ?1 AND kind = ?2 AND id = ?3",
        )?
        .query_row(params![book, state.kind, state.id], |r| {
            Ok((r.get::<_, Option<i64>>(0)?, r.get::<_, Millis>(1)?, r.get::<_, String>(2)?, r.get::<_, i64>(3)?))
        })
        .optional()?;
    let mut tied = false;
    if let Some((version, at, status, by)) = there {
        let order = match (state.version, version) {
            (Some(new), Some(old)) => new.cmp(&old),
            _ => as_of.cmp(&at),
        };
        tied = order.is_eq() && status != state.status;
        let wins = order.is_gt() || (order.is_eq() && severity(&state.status) > severity(&status));
        if !wins {
            if tied {
                tx.conn
                    .prepare_cached("UPDATE postonce_entities SET tied = 1 WHERE book = ?1 AND kind = ?2 AND id = ?3")?
                    .execute(params![book, state.kind, state.id])?;
            }
            return Ok(Moved::Superseded(by));
        }
    }
    tx.conn
        .prepare_cached(
            "INSERT INTO postonce_entities(book, kind, id, status, provider_status, version, as_of, tied, account, raw_event)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)
             ON CONFLICT (book, kind, id) DO UPDATE SET status = excluded.status, provider_status = excluded.provider_status,
               version = excluded.version, as_of = excluded.as_of, tied = excluded.tied,
               account = ifnull(excluded.account, account), raw_event = excluded.raw_event",
        )?
        .execute(params![
            book,
            state.kind,
            state.id,
            state.status,
            state.provider_status,
            state.version,
            as_of,
            tied,
            state.account,
            raw_event
        ])?;
    Ok(Moved::Forward)
}

/// Would this state change nothing, because a newer one or the same is there?
pub fn is_known(conn: &Connection, book: i64, state: &EntityState, event_at: Millis) -> Result<bool> {
    let there = conn
        .prepare_cached("SELECT version, as_of FROM postonce_entities WHERE book = ?1 AND kind = ?2 AND id = ?3")?
        .query_row(params![book, state.kind, state.id], |r| Ok((r.get::<_, Option<i64>>(0)?, r.get::<_, Millis>(1)?)))
        .optional()?;
    Ok(there.is_some_and(|(version, at)| match (state.version, version) {
        (Some(new), Some(old)) => new <= old,
        _ => state.as_of.unwrap_or(event_at) <= at,
    }))
}

/// Of the objects that an event carries, those whose latest state is its own: `subscription sub_1`.
pub fn brought_by(conn: &Connection, raw_event: i64, event: &Event) -> Result<Vec<String>> {
    let Meaning::Effects { entities, .. } = &event.meaning else { return Ok(Vec::new()) };
    let mut statement = conn.prepare_cached(
        "SELECT 1 FROM postonce_books b JOIN postonce_entities e ON e.book = b.id AND e.kind = ?1 AND e.id = ?2 WHERE e.raw_event = ?3",
    )?;
    let mut found = Vec::new();
    for state in entities {
        if statement.exists(params![state.kind, state.id, raw_event])? {
            found.push(format!("{} {}", state.kind, state.id));
        }
    }
    Ok(found)
}

/// One entity: the shape of `/api/v1/entities`.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct EntityRow {
    /// The tenant of its book.
    pub tenant: String,
    /// The provider of its book.
    pub provider: String,
    /// live or test.
    pub mode: String,
    /// subscription, dispute, …
    pub kind: String,
    /// The provider's id.
    pub id: String,
    /// Our word for its state.
    pub status: String,
    /// The provider's word.
    pub provider_status: Option<String>,
    /// The customer.
    pub account: Option<String>,
    /// When it was so, by the provider's clock.
    #[serde(serialize_with = "crate::clock::as_rfc3339")]
    pub as_of: Millis,
    /// Two states of one instant: the stricter was kept.
    pub tied: bool,
    /// Whose body holds the object.
    pub raw_event: i64,
}

/// Which entities to find.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EntityQuery {
    /// Of this kind.
    pub kind: Option<String>,
    /// With this id.
    pub id: Option<String>,
    /// In this state.
    pub status: Option<String>,
    /// Behind this one: where the page before ended.
    pub after: Option<EntityKey>,
    /// At most so many.
    pub limit: usize,
}

/// A place in the order of entities: book, kind, id.
pub type EntityKey = (i64, String, String);

/// Finds entities in the order of their keys.
pub fn find(conn: &Connection, query: &EntityQuery) -> Result<Page<EntityRow, EntityKey>> {
    const LOOK: Duration = Duration::from_millis(30);
    let began = Instant::now();
    let groups: Vec<(i64, String)> = conn
        .prepare_cached(
            "WITH RECURSIVE kinds(book, kind) AS (
               SELECT b.id, (SELECT min(kind) FROM postonce_entities e WHERE e.book = b.id) FROM postonce_books b
               UNION ALL SELECT k.book, (SELECT min(kind) FROM postonce_entities e WHERE e.book = k.book AND e.kind > k.kind)
                 FROM kinds k WHERE k.kind IS NOT NULL)
             SELECT book, kind FROM kinds WHERE kind IS NOT NULL ORDER BY book, kind",
        )?
        .query_map([], |r| Ok((r.get(0)?, r.get(1)?)))?
        .collect::<rusqlite::Result<_>>()?;
    let by_id = if query.id.is_some() { "e.id = ?4" } else { "?4 IS NULL" };
    let mut statement = conn.prepare_cached(&format!(
        "SELECT b.tenant, b.provider, b.mode, e.kind, e.id, e.status, e.provider_status, e.account, e.as_of, e.tied, e.raw_event
         FROM postonce_entities e JOIN postonce_books b ON b.id = e.book
         WHERE e.book = ?1 AND e.kind = ?2 AND e.id > ?3 AND {by_id} ORDER BY e.id"
    ))?;
    let mut page = Page { rows: Vec::new(), next: None, looked_back_to: None };
    let (mut looked, mut last) = (0_u32, None);
    for (book, kind) in groups {
        let from = match &query.after {
            Some((b, k, _)) if (book, &kind) < (*b, k) => continue,
            Some((b, k, id)) if (book, &kind) == (*b, k) => id.as_str(),
            _ => "",
        };
        if query.kind.as_ref().is_some_and(|wanted| *wanted != kind) {
            continue;
        }
        let mut rows = statement.query(params![book, kind, from, query.id])?;
        while let Some(r) = rows.next()? {
            let late = looked.is_multiple_of(64) && looked > 0 && began.elapsed() > LOOK;
            if page.rows.len() == query.limit || late {
                page.next = last;
                return Ok(page);
            }
            let entity = EntityRow {
                tenant: r.get(0)?,
                provider: r.get(1)?,
                mode: r.get(2)?,
                kind: r.get(3)?,
                id: r.get(4)?,
                status: r.get(5)?,
                provider_status: r.get(6)?,
                account: r.get(7)?,
                as_of: r.get(8)?,
                tied: r.get(9)?,
                raw_event: r.get(10)?,
            };
            looked += 1;
            last = Some((book, kind.clone(), entity.id.clone()));
            if query.status.as_ref().is_none_or(|wanted| *wanted == entity.status) {
                page.rows.push(entity);
            }
        }
    }
    Ok(page)
}
