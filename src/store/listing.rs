//! Lists of events and entities, for people and scripts.

use crate::clock::rfc3339;
use crate::error::Result;
use rusqlite::{Connection, OptionalExtension as _, params};
use serde::Serialize;

/// One raw event: the shape of `postonce events --json`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct EventLine {
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
    /// live or test.
    pub mode: Option<String>,
    /// When it came, RFC 3339.
    pub received_at: String,
    /// When it happened, by the provider's clock.
    pub occurred_at: Option<String>,
    /// When it reached its end state.
    pub ended_at: Option<String>,
    /// Attempts to apply it.
    pub attempts: u32,
    /// The name of the secret that matched.
    pub secret: Option<String>,
    /// What proves it: `body`, `part` or `nothing` of it is signed, or it was `fetched` from the provider.
    pub proof: Option<String>,
    /// Why it ended so, or the last failure.
    pub reason: Option<String>,
    /// SHA-256 of the bytes as sent, in hex.
    pub sha256: String,
}

/// Which events to list.
#[derive(Clone, Debug, Default)]
pub struct EventFilter {
    /// In one of these states; empty: any.
    pub states: Vec<&'static str>,
    /// Of this type; a `*` at the end matches the rest.
    pub kind: Option<String>,
    /// With this event id, or with money under this reference.
    pub id: Option<String>,
    /// Only numbers below this.
    pub before: Option<i64>,
    /// The newest so many.
    pub limit: Option<u32>,
}

/// The condition of the index of what waits for a person, word for word: SQLite uses it only for queries that repeat it.
const FOR_A_PERSON: &str = " AND (r.state = 'PARKED' OR r.state = 'CONFLICT' OR r.state = 'DEAD')";

/// Lists raw events, the newest first.
pub fn events(conn: &Connection, filter: &EventFilter, mut each: impl FnMut(EventLine) -> Result<()>) -> Result<()> {
    let mut sql = String::from(
        "SELECT r.id, s.name, r.origin, r.state, e.event_id, e.type, b.mode, r.received_at, e.occurred_at, r.ended_at, r.attempts,
           r.secret, r.reason, lower(hex(o.sha256)), e.proof
         FROM postonce_raw_events r JOIN postonce_sources s ON s.id = r.source
         LEFT JOIN postonce_events e ON e.id = r.id LEFT JOIN postonce_books b ON b.id = e.book
         LEFT JOIN postonce_bodies o ON o.id = ifnull(r.body, r.id) WHERE r.id < ifnull(?1, 9223372036854775807)",
    );
    if !filter.states.is_empty() {
        // Words of our own, never a person's.
        let list: Vec<String> = filter.states.iter().map(|s| format!("'{s}'")).collect();
        sql.push_str(&format!(" AND r.state IN ({})", list.join(", ")));
        if filter.states.iter().all(|s| FOR_A_PERSON.contains(&format!("'{s}'"))) {
            sql.push_str(FOR_A_PERSON);
        }
    }
    if filter.kind.is_some() {
        sql.push_str(" AND e.type GLOB ?2");
    } else {
        sql.push_str(" AND ?2 IS NULL");
    }
    if filter.id.is_some() {
        sql.push_str(
            " AND r.id IN (SELECT id FROM postonce_events WHERE event_id = ?3
               UNION SELECT c.raw_event FROM postonce_claims c WHERE c.ref = ?3
               UNION SELECT j.raw_event FROM postonce_journal j WHERE j.ref = ?3)",
        );
    } else {
        sql.push_str(" AND ?3 IS NULL");
    }
    sql.push_str(" ORDER BY r.id DESC LIMIT ?4");
    let mut statement = conn.prepare(&sql)?;
    let limit = filter.limit.map_or(-1, i64::from);
    let mut rows = statement.query(params![filter.before, filter.kind, filter.id, limit])?;
    while let Some(r) = rows.next()? {
        let time = |at| -> rusqlite::Result<Option<String>> { Ok(r.get::<_, Option<i64>>(at)?.map(rfc3339)) };
        each(EventLine {
            id: r.get(0)?,
            source: r.get(1)?,
            origin: r.get(2)?,
            state: r.get(3)?,
            event_id: r.get(4)?,
            kind: r.get(5)?,
            mode: r.get(6)?,
            received_at: rfc3339(r.get(7)?),
            occurred_at: time(8)?,
            ended_at: time(9)?,
            attempts: r.get(10)?,
            secret: r.get(11)?,
            proof: r.get(14)?,
            reason: r.get(12)?,
            sha256: r.get::<_, Option<String>>(13)?.unwrap_or_default(),
        })?;
    }
    Ok(())
}

/// A type of event that no rule knows: the shape of `postonce events --unknown-types --json`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct UnknownType {
    /// The provider.
    pub provider: String,
    /// live or test.
    pub mode: String,
    /// The provider's name of the type; empty where its file has no rules at all.
    #[serde(rename = "type")]
    pub kind: String,
    /// How many came.
    pub count: i64,
    /// The newest of them.
    pub newest: i64,
}

/// The types that nobody has a rule for, the most frequent first.
pub fn unknown_types(conn: &Connection) -> Result<Vec<UnknownType>> {
    let mut statement = conn.prepare_cached(
        "SELECT b.provider, b.mode, e.type, count(*), max(e.id) FROM postonce_events e JOIN postonce_books b ON b.id = e.book
         WHERE e.unknown = 1 GROUP BY b.provider, b.mode, e.type ORDER BY 4 DESC, 1, 2, 3",
    )?;
    let rows = statement.query_map([], |r| {
        Ok(UnknownType { provider: r.get(0)?, mode: r.get(1)?, kind: r.get(2)?, count: r.get(3)?, newest: r.get(4)? })
    })?;
    Ok(rows.collect::<rusqlite::Result<_>>()?)
}

/// One entity: the shape of `postonce entities --json`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct EntityLine {
    /// The source's tenant.
    pub tenant: String,
    /// The provider.
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
    pub as_of: String,
    /// Two states of one instant: the stricter was kept.
    pub tied: bool,
    /// Whose body holds the object.
    pub raw_event: i64,
}

/// Lists entities in order, of one kind or with one id where these are given.
pub fn entities(
    conn: &Connection,
    kind: Option<&str>,
    id: Option<&str>,
    mut each: impl FnMut(EntityLine) -> Result<()>,
) -> Result<()> {
    let mut statement = conn.prepare_cached(
        "SELECT b.tenant, b.provider, b.mode, e.kind, e.id, e.status, e.provider_status, e.account, e.as_of, e.tied, e.raw_event
         FROM postonce_entities e JOIN postonce_books b ON b.id = e.book
         WHERE (?1 IS NULL OR e.kind = ?1) AND (?2 IS NULL OR e.id = ?2) ORDER BY e.book, e.kind, e.id",
    )?;
    let mut rows = statement.query(params![kind, id])?;
    while let Some(r) = rows.next()? {
        each(EntityLine {
            tenant: r.get(0)?,
            provider: r.get(1)?,
            mode: r.get(2)?,
            kind: r.get(3)?,
            id: r.get(4)?,
            status: r.get(5)?,
            provider_status: r.get(6)?,
            account: r.get(7)?,
            as_of: rfc3339(r.get(8)?),
            tied: r.get(9)?,
            raw_event: r.get(10)?,
        })?;
    }
    Ok(())
}

/// A delivery as it came, to be sent again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeliveryLine {
    /// The source's name.
    pub source: String,
    /// Its provider.
    pub provider: String,
    /// Its tenant.
    pub tenant: String,
    /// One `name: value` a line.
    pub headers: String,
    /// The query string.
    pub query: String,
    /// Exactly as sent.
    pub body: Vec<u8>,
}

/// The deliveries whose bytes are there, in the order in which they came. Provider and tenant of a source are those that
/// its events were read with.
pub fn deliveries(conn: &Connection, mut each: impl FnMut(DeliveryLine) -> Result<()>) -> Result<()> {
    let mut statement = conn.prepare(
        "WITH read AS (
           SELECT r.source, max(b.provider) AS provider, max(b.tenant) AS tenant FROM postonce_events e
           JOIN postonce_raw_events r ON r.id = e.id JOIN postonce_books b ON b.id = e.book GROUP BY r.source)
         SELECT r.id, s.name, read.provider, read.tenant FROM postonce_raw_events r
         JOIN postonce_sources s ON s.id = r.source JOIN read ON read.source = r.source
         WHERE r.body IS NULL AND r.origin = 'webhook' ORDER BY r.id",
    )?;
    let mut rows = statement.query([])?;
    while let Some(r) = rows.next()? {
        let Some(body) = super::raw::body(conn, r.get(0)?)? else { continue };
        let (source, provider, tenant) = (r.get(1)?, r.get(2)?, r.get(3)?);
        each(DeliveryLine { source, provider, tenant, headers: body.headers, query: body.query, body: body.bytes })?;
    }
    Ok(())
}

/// The end state of a raw event, if it has one.
pub fn state(conn: &Connection, id: i64) -> Result<Option<String>> {
    Ok(conn
        .prepare_cached("SELECT state FROM postonce_raw_events WHERE id = ?1")?
        .query_row([id], |r| r.get(0))
        .optional()?)
}

/// The raw events that are dead.
pub fn dead_ids(conn: &Connection) -> Result<Vec<i64>> {
    let mut statement = conn.prepare_cached(&format!(
        "SELECT r.id FROM postonce_raw_events r WHERE r.state = 'DEAD'{FOR_A_PERSON} ORDER BY r.id"
    ))?;
    let ids = statement.query_map([], |r| r.get(0))?.collect::<rusqlite::Result<_>>()?;
    Ok(ids)
}
