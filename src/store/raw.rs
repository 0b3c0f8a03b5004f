//! Raw events and their bodies: kept, found when due, moved from state to state.

use super::bodies::{StoredBody, unpack};
use super::{Tx, or_fail};
use crate::error::Result;
use crate::event::Millis;
use rusqlite::{Connection, OptionalExtension as _, Row, params};
use std::fmt;

/// Where a raw event stands, and who moves it on.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum State {
    /// Stored. Moved on by interpretation and claim.
    Received,
    /// Its keys are won. Moved on by apply; after a crash, by sweep.
    Claimed,
    /// Everything it announced took effect. The end.
    Done,
    /// All its money and its event id were there already. The end.
    Duplicate,
    /// Nothing to do, with a reason. The end.
    Ignored,
    /// Cannot be posted without guessing. Moved on by a person (replay) or by the movement it waits for.
    Parked,
    /// Says something else than what is posted under its key. Moved on by a person.
    Conflict,
    /// Failed too often. Moved on by a person (replay).
    Dead,
}

impl State {
    /// All of them, in the order an event meets them.
    pub const ALL: [State; 8] = [
        State::Received,
        State::Claimed,
        State::Done,
        State::Duplicate,
        State::Ignored,
        State::Parked,
        State::Conflict,
        State::Dead,
    ];

    /// The word in the table.
    pub fn as_str(self) -> &'static str {
        match self {
            State::Received => "RECEIVED",
            State::Claimed => "CLAIMED",
            State::Done => "DONE",
            State::Duplicate => "DUPLICATE",
            State::Ignored => "IGNORED",
            State::Parked => "PARKED",
            State::Conflict => "CONFLICT",
            State::Dead => "DEAD",
        }
    }

    /// The state of a word, in any case.
    pub fn parse(text: &str) -> Option<State> {
        State::ALL.into_iter().find(|s| s.as_str().eq_ignore_ascii_case(text))
    }

    /// Does something still move it on by itself?
    pub fn is_waiting(self) -> bool {
        matches!(self, State::Received | State::Claimed)
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// How a raw event came to us.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Origin {
    /// A provider's delivery.
    Webhook,
    /// One item of a batch that a delivery brought.
    Item,
    /// Fetched from the provider by a settlement run.
    Fetched,
    /// Rebuilt from an object of the provider's API or report: today's state, not the event's.
    Rebuilt,
    /// History brought in.
    Imported,
    /// A line of a settlement report.
    Report,
    /// Entered by a person.
    Manual,
}

impl Origin {
    /// The word in the table.
    pub fn as_str(self) -> &'static str {
        match self {
            Origin::Webhook => "webhook",
            Origin::Item => "item",
            Origin::Fetched => "fetched",
            Origin::Rebuilt => "rebuilt",
            Origin::Imported => "imported",
            Origin::Report => "report",
            Origin::Manual => "manual",
        }
    }

    /// The reverse of [`Origin::as_str`]; unknown words read as a webhook's.
    pub fn parse(text: &str) -> Origin {
        use Origin::*;
        [Webhook, Item, Fetched, Rebuilt, Imported, Report, Manual]
            .into_iter()
            .find(|o| o.as_str() == text)
            .unwrap_or(Webhook)
    }
}

/// A verified delivery that is to be kept.
#[derive(Clone, Debug)]
pub struct NewRaw {
    /// The source's name.
    pub source: String,
    /// How it came.
    pub origin: Origin,
    /// The name of the secret that matched.
    pub secret: Option<String>,
    /// One `name: value` a line, without headers that carry secrets.
    pub headers: String,
    /// The query string of the request, without its `?`.
    pub query: String,
    /// The stored form of the bytes.
    pub body: StoredBody,
}

impl NewRaw {
    /// About how many bytes its row takes.
    pub fn stored_len(&self) -> usize {
        self.body.stored() + self.headers.len() + self.query.len() + 64
    }

    /// What was kept, as [`body`] would read it back; `None`: it is to be read back.
    pub(super) fn into_body(self) -> Option<Body> {
        let sha256 = self.body.sha256;
        Some(Body { bytes: self.body.into_plain()?, headers: self.headers, query: self.query, sha256 })
    }
}

/// Keeps a delivery: two appended rows.
pub fn insert(tx: &Tx, new: &NewRaw) -> Result<i64> {
    let source = tx.source(&new.source)?;
    tx.run(
        "INSERT INTO postonce_raw_events(source, origin, secret, received_at, state, due_at)
             VALUES (?1, ?2, ?3, ?4, 'RECEIVED', ?5)",
        params![source, new.origin.as_str(), new.secret, tx.now, tx.due_now],
    )?;
    let id = tx.conn.last_insert_rowid();
    tx.run(
        "INSERT INTO postonce_bodies(id, codec, sha256, headers, query, body) VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
        params![id, new.body.codec, new.body.sha256, new.headers, new.query, new.body.bytes],
    )?;
    Ok(id)
}

/// Adds the items of a batch, each a raw event of its own over the delivery's bytes.
pub fn insert_items(tx: &Tx, delivery: i64, items: usize) -> Result<()> {
    for item in 1..=items {
        tx.conn
            .prepare_cached(
                "INSERT INTO postonce_raw_events(source, body, item, origin, secret, received_at, state, due_at)
                 SELECT source, id, ?2, CASE origin WHEN 'webhook' THEN 'item' ELSE origin END, secret, received_at, 'RECEIVED', ?3
                 FROM postonce_raw_events WHERE id = ?1",
            )?
            .execute(params![delivery, item as i64, tx.due_now])?;
    }
    Ok(())
}

/// A raw event that somebody should look at now.
#[derive(Clone, Debug)]
pub struct Due {
    /// Its id.
    pub id: i64,
    /// Its source's name.
    pub source: String,
    /// Whose bytes are its body.
    pub body: i64,
    /// 0, or the place in a batch.
    pub item: u32,
    /// How it came.
    pub origin: Origin,
    /// When it came.
    pub received_at: Millis,
    /// When it was due.
    pub due_at: Millis,
    /// How often it was tried.
    pub attempts: u32,
    /// How often it was claimed.
    pub fence: i64,
    /// It was set aside for something that comes by itself, and this is another look ([`park`]).
    pub parked: bool,
    /// It was claimed before, and whoever claimed it never finished.
    pub was_claimed: bool,
}

const DUE_COLUMNS: &str =
    "r.id, s.name, ifnull(r.body, r.id), r.item, r.origin, r.received_at, ifnull(r.due_at, 0), r.attempts,
    r.fence, r.state = 'PARKED', r.state = 'CLAIMED' FROM postonce_raw_events r JOIN postonce_sources s ON s.id = r.source";

fn due_row(row: &Row) -> rusqlite::Result<Due> {
    Ok(Due {
        id: row.get(0)?,
        source: row.get(1)?,
        body: row.get(2)?,
        item: row.get(3)?,
        origin: Origin::parse(row.get_ref(4)?.as_str()?),
        received_at: row.get(5)?,
        due_at: row.get(6)?,
        attempts: row.get(7)?,
        fence: row.get(8)?,
        parked: row.get(9)?,
        was_claimed: row.get(10)?,
    })
}

/// What is due, oldest first, from `(due_at, id)` on. Touches only what is due.
pub fn due(conn: &Connection, now: Millis, from: (Millis, i64), limit: usize) -> Result<Vec<Due>> {
    let mut statement = conn.prepare_cached(&format!(
        "SELECT {DUE_COLUMNS} WHERE r.due_at BETWEEN ?2 AND ?1 AND (r.due_at, r.id) > (?2, ?3) ORDER BY r.due_at, r.id LIMIT ?4"
    ))?;
    let rows = statement.query_map(params![now, from.0, from.1, limit as i64], due_row)?;
    Ok(rows.collect::<rusqlite::Result<_>>()?)
}

/// One raw event, whatever its state.
pub fn get(conn: &Connection, id: i64) -> Result<Option<Due>> {
    Ok(conn.prepare_cached(&format!("SELECT {DUE_COLUMNS} WHERE r.id = ?1"))?.query_row([id], due_row).optional()?)
}

/// Where a raw event stands, and how often it was tried.
pub fn standing(conn: &Connection, id: i64) -> Result<Option<(State, u32)>> {
    let row = conn
        .prepare_cached("SELECT state, attempts FROM postonce_raw_events WHERE id = ?1")?
        .query_row([id], |r| Ok((r.get::<_, String>(0)?, r.get(1)?)))
        .optional()?;
    Ok(row.and_then(|(state, attempts)| Some((State::parse(&state)?, attempts))))
}

/// The result of a raw event, as it is told to the provider.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Told {
    /// The raw event that took effect: this one, or the first delivery of the same event.
    pub first: i64,
    /// Where that one stands.
    pub state: State,
    /// Why this one ended as it did.
    pub reason: Option<String>,
    /// The entry that the event posted first.
    pub entry: Option<Entry>,
}

/// An entry, in short.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its id.
    pub id: i64,
    /// The movement's kind.
    pub kind: String,
    /// The provider's reference.
    pub reference: String,
    /// Minor units.
    pub amount: i64,
    /// Of this currency.
    pub currency: String,
}

/// What a raw event came to, or the delivery that it repeats. Looks up keys only.
pub fn told(conn: &Connection, id: i64) -> Result<Option<Told>> {
    let row = conn
        .prepare_cached(
            "SELECT f.id, f.state, r.reason, j.id, j.kind, j.ref, j.amount, j.currency
             FROM postonce_raw_events r
             LEFT JOIN postonce_events e ON e.id = r.id
             LEFT JOIN postonce_claims c ON c.book = e.book AND c.kind = 'event' AND c.ref = e.event_id
             JOIN postonce_raw_events f ON f.id = ifnull(c.raw_event, r.id)
             LEFT JOIN postonce_journal j ON j.id = c.journal
             WHERE r.id = ?1",
        )?
        .query_row([id], |r| {
            let entry = match r.get::<_, Option<i64>>(3)? {
                Some(id) => {
                    Some(Entry { id, kind: r.get(4)?, reference: r.get(5)?, amount: r.get(6)?, currency: r.get(7)? })
                }
                None => None,
            };
            Ok((r.get(0)?, r.get::<_, String>(1)?, r.get(2)?, entry))
        })
        .optional()?;
    Ok(row.and_then(|(first, state, reason, entry)| Some(Told { first, state: State::parse(&state)?, reason, entry })))
}

/// When the next raw event is due.
pub fn next_due(conn: &Connection) -> Result<Option<Millis>> {
    Ok(conn
        .prepare_cached("SELECT min(due_at) FROM postonce_raw_events WHERE due_at IS NOT NULL")?
        .query_row([], |r| r.get(0))?)
}

/// How many raw events wait or are under way.
pub fn waiting(conn: &Connection) -> Result<i64> {
    Ok(conn
        .prepare_cached("SELECT count(*) FROM postonce_raw_events WHERE due_at IS NOT NULL")?
        .query_row([], |r| r.get(0))?)
}

/// The bytes and what came with them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Body {
    /// Exactly as sent.
    pub bytes: Vec<u8>,
    /// One `name: value` a line.
    pub headers: String,
    /// The query string.
    pub query: String,
    /// SHA-256 of the bytes as sent.
    pub sha256: [u8; 32],
}

impl Body {
    /// About how much memory it takes.
    pub(super) fn held(&self) -> usize {
        self.bytes.len() + self.headers.len() + self.query.len() + 128
    }
}

/// The body of a raw event; `None` when it is past its retention or was erased.
pub fn body(conn: &Connection, id: i64) -> Result<Option<Body>> {
    let row = conn
        .prepare_cached(
            "SELECT codec, body, headers, query, sha256 FROM postonce_bodies WHERE id = ?1 AND body IS NOT NULL",
        )?
        .query_row([id], |r| Ok((r.get(0)?, r.get(1)?, r.get(2)?, r.get(3)?, r.get(4)?)))
        .optional()?;
    Ok(row.and_then(|(codec, bytes, headers, query, sha256)| {
        Some(Body { bytes: unpack(codec, bytes)?, headers, query, sha256 })
    }))
}

/// Its keys are won: counts the attempt and gives the fence that its commit must still find. Only if nobody claimed it since
/// it was found due under `fence`.
pub fn claimed(tx: &Tx, id: i64, fence: i64, lease: Millis, count_attempt: bool) -> Result<i64> {
    let changed = tx.run(
        or_fail!(
            tx,
            "UPDATE",
            "postonce_raw_events SET state = 'CLAIMED', attempts = attempts + ?4, fence = fence + 1, due_at = ?3
             WHERE id = ?1 AND state IN ('RECEIVED', 'CLAIMED') AND fence = ?2"
        ),
        params![id, fence, tx.due_now + lease, i64::from(count_attempt)],
    )?;
    if changed == 0 { Err(crate::error::Error::LostClaim) } else { Ok(fence + 1) }
}

/// Counts an attempt before anything of the event is touched, for events that may kill the process. Only while it waits.
pub fn count_attempt(tx: &Tx, id: i64) -> Result<()> {
    tx.conn
        .prepare_cached(
            "UPDATE postonce_raw_events SET attempts = attempts + 1 WHERE id = ?1 AND state IN ('RECEIVED', 'CLAIMED')",
        )?
        .execute([id])?;
    Ok(())
}

/// Done, if the claim is still ours.
pub fn done(tx: &Tx, id: i64, fence: i64) -> Result<()> {
    let changed = tx.run(
        "UPDATE postonce_raw_events SET state = 'DONE', due_at = NULL, ended_at = ?3, reason = NULL
             WHERE id = ?1 AND state = 'CLAIMED' AND fence = ?2",
        params![id, fence, tx.now],
    )?;
    if changed == 0 { Err(crate::error::Error::LostClaim) } else { Ok(()) }
}

/// Adds a remark to an event that is done.
pub fn note(tx: &Tx, id: i64, remark: &str) -> Result<()> {
    tx.conn.prepare_cached("UPDATE postonce_raw_events SET reason = ?2 WHERE id = ?1")?.execute(params![id, remark])?;
    Ok(())
}

/// Ends it in `state` with a reason, if it is still waiting and (when a fence is given) still ours.
pub fn end(tx: &Tx, id: i64, state: State, reason: &str, fence: Option<i64>) -> Result<bool> {
    let changed = tx
        .conn
        .prepare_cached(
            "UPDATE postonce_raw_events SET state = ?2, due_at = NULL, ended_at = ?3, reason = ?4
             WHERE id = ?1 AND state IN ('RECEIVED', 'CLAIMED') AND (?5 IS NULL OR fence = ?5)",
        )?
        .execute(params![id, state.as_str(), tx.now, reason, fence])?;
    Ok(changed > 0)
}

/// Puts it back to be tried again after `wait`.
pub fn put_back(tx: &Tx, id: i64, wait: Millis, reason: &str, fence: Option<i64>) -> Result<bool> {
    let changed = tx
        .conn
        .prepare_cached(
            "UPDATE postonce_raw_events SET state = 'RECEIVED', due_at = ?2, reason = ?3
             WHERE id = ?1 AND state IN ('RECEIVED', 'CLAIMED') AND (?4 IS NULL OR fence = ?4)",
        )?
        .execute(params![id, tx.due_now + wait, reason, fence])?;
    Ok(changed > 0)
}

/// Sets it aside for something that comes by itself, and looks again after `wait`. The attempt that found it missing
/// does not count.
pub fn park(tx: &Tx, id: i64, wait: Millis, reason: &str, fence: Option<i64>) -> Result<bool> {
    let changed = tx
        .conn
        .prepare_cached(
            "UPDATE postonce_raw_events SET state = 'PARKED', due_at = ?2, ended_at = ?3, reason = ?4,
               attempts = max(attempts - 1, 0)
             WHERE id = ?1 AND state IN ('RECEIVED', 'CLAIMED') AND (?5 IS NULL OR fence = ?5)",
        )?
        .execute(params![id, tx.due_now + wait, tx.now, reason, fence])?;
    Ok(changed > 0)
}

/// Takes up again what was set aside for a time ([`park`]); leaves alone what waits for a person.
pub fn unpark(tx: &Tx, id: i64) -> Result<()> {
    tx.conn
        .prepare_cached(
            "UPDATE postonce_raw_events SET state = 'RECEIVED', ended_at = NULL
             WHERE id = ?1 AND state = 'PARKED' AND due_at IS NOT NULL",
        )?
        .execute([id])?;
    Ok(())
}

/// Sends an ended raw event through the same path again, with its attempts reset. `false`: it is not in an end state
/// that a person may leave (DONE and DUPLICATE have nothing to replay; what is waiting will run by itself).
pub fn replay(tx: &Tx, id: i64) -> Result<bool> {
    let changed = tx
        .conn
        .prepare_cached(
            "UPDATE postonce_raw_events SET state = 'RECEIVED', due_at = ?2, attempts = 0, ended_at = NULL
             WHERE id = ?1 AND state IN ('IGNORED', 'PARKED', 'CONFLICT', 'DEAD')",
        )?
        .execute(params![id, tx.due_now])?;
    Ok(changed > 0)
}

/// At start: what the process before had claimed is released at once, and no due time lies further ahead than the
/// longest back-off (the clock may have been wrong then).
pub fn release_all(tx: &Tx, longest_wait: Millis) -> Result<usize> {
    Ok(tx
        .conn
        .prepare_cached(
            "UPDATE postonce_raw_events SET state = CASE state WHEN 'CLAIMED' THEN 'RECEIVED' ELSE state END, due_at = ?1
             WHERE due_at IS NOT NULL AND (state = 'CLAIMED' OR due_at > ?1 + ?2)",
        )?
        .execute(params![tx.due_now, longest_wait])?)
}

/// When the newest raw event came; 0 when there is none.
pub fn newest_time(conn: &Connection) -> Result<Millis> {
    let sql = "SELECT received_at FROM postonce_raw_events ORDER BY id DESC LIMIT 1";
    Ok(conn.query_row(sql, [], |r| r.get(0)).optional()?.unwrap_or(0))
}

/// The newest raw event.
pub fn newest(conn: &Connection) -> Result<i64> {
    Ok(conn.query_row("SELECT ifnull(max(id), 0) FROM postonce_raw_events", [], |r| r.get(0))?)
}

/// Notes what a raw event was read as.
pub fn read_as(tx: &Tx, id: i64, book: i64, event: &crate::event::Event) -> Result<()> {
    tx.run(
        "INSERT INTO postonce_events(id, book, event_id, type, occurred_at, api_version, unknown, proof)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)
             ON CONFLICT (id) DO UPDATE SET book = excluded.book, event_id = excluded.event_id, type = excluded.type,
               occurred_at = excluded.occurred_at, api_version = excluded.api_version, unknown = excluded.unknown,
               proof = excluded.proof",
        params![
            id,
            book,
            event.id,
            event.kind,
            event.occurred_at,
            event.api_version,
            event.known == crate::event::Known::No,
            event.proof.as_str()
        ],
    )?;
    Ok(())
}
