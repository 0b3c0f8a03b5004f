//! Discrepancies: opened once, ageing, closed with a resolution and a note; every change is a line of the log.

use crate::clock::{as_rfc3339, as_rfc3339_or_null};
use crate::error::{Error, Result};
use crate::event::Millis;
use crate::store::Tx;
use rusqlite::{Connection, OptionalExtension as _, Row, params};

/// How a person may close one. (`AUTO_…` are the program's.)
pub const RESOLUTIONS: [&str; 4] = ["POSTED_CORRECTION", "PROVIDER_ERROR", "ACCEPTED", "DUPLICATE_OF"];

/// Who writes in the log when nobody did.
pub const SETTLEMENT: &str = "settlement";

/// One discrepancy: the shape of `postonce discrepancies list --json` and of `/api/v1/discrepancies`.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Discrepancy {
    /// Its number.
    pub id: i64,
    /// Whose.
    pub tenant: String,
    /// At which provider.
    pub provider: String,
    /// The provider's own account, or empty.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub provider_account: String,
    /// `live` or `test`.
    pub mode: String,
    /// `MISSING_OURS`, `AMOUNT_DIFFERS`, …
    pub class: String,
    /// The movement's kind.
    pub kind: String,
    /// The movement's reference.
    pub reference: String,
    /// The currency of the amounts.
    pub currency: Option<String>,
    /// What we have, minor units.
    pub our_amount: Option<i64>,
    /// What they say, minor units.
    pub their_amount: Option<i64>,
    /// Our journal entry.
    pub entry: Option<i64>,
    /// Their line.
    pub line: Option<i64>,
    /// What is parked, or was fetched for it.
    pub raw_event: Option<i64>,
    /// The run that saw it first.
    pub first_run: Option<i64>,
    /// The run that saw it last.
    pub last_run: Option<i64>,
    /// How many runs saw it.
    pub seen: i64,
    /// When it was opened.
    #[serde(serialize_with = "as_rfc3339")]
    pub opened_at: Millis,
    /// `OPEN`, `FIXING`, `ASSIGNED`, `RESOLVED`.
    pub state: String,
    /// Who looks at it.
    pub assignee: Option<String>,
    /// How it was closed.
    pub resolution: Option<String>,
    /// When.
    #[serde(serialize_with = "as_rfc3339_or_null")]
    pub resolved_at: Option<Millis>,
}

/// One line of a discrepancy's log.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct LogLine {
    /// When.
    #[serde(serialize_with = "as_rfc3339")]
    pub at: Millis,
    /// Who.
    pub actor: String,
    /// From which state.
    pub from_state: String,
    /// To which.
    pub to_state: String,
    /// Why.
    pub note: String,
}

/// Which ones to list.
#[derive(Clone, Debug, Default)]
pub struct DiscrepancyFilter {
    /// Resolved ones too.
    pub all: bool,
    /// Only this tenant.
    pub tenant: Option<String>,
    /// Only this provider.
    pub provider: Option<String>,
    /// Only this class.
    pub class: Option<String>,
    /// Only those with an id above this.
    pub after: i64,
    /// At most so many.
    pub limit: Option<u32>,
}

const COLUMNS: &str = "SELECT d.id, b.tenant, b.provider, b.provider_account, b.mode, d.class, d.kind, d.reference, d.currency, d.our_amount,
    d.their_amount, d.entry, d.line, d.raw_event, d.first_run, d.last_run, d.seen, d.opened_at, d.state, d.assignee, d.resolution, d.resolved_at
  FROM postonce_discrepancies d JOIN postonce_books b ON b.id = d.book";

fn read(r: &Row) -> rusqlite::Result<Discrepancy> {
    Ok(Discrepancy {
        id: r.get(0)?,
        tenant: r.get(1)?,
        provider: r.get(2)?,
        provider_account: r.get(3)?,
        mode: r.get(4)?,
        class: r.get(5)?,
        kind: r.get(6)?,
        reference: r.get(7)?,
        currency: r.get(8)?,
        our_amount: r.get(9)?,
        their_amount: r.get(10)?,
        entry: r.get(11)?,
        line: r.get(12)?,
        raw_event: r.get(13)?,
        first_run: r.get(14)?,
        last_run: r.get(15)?,
        seen: r.get(16)?,
        opened_at: r.get(17)?,
        state: r.get(18)?,
        assignee: r.get(19)?,
        resolution: r.get(20)?,
        resolved_at: r.get(21)?,
    })
}

/// Lists them, oldest first.
pub fn list(conn: &Connection, filter: &DiscrepancyFilter) -> Result<Vec<Discrepancy>> {
    let mut statement = conn.prepare_cached(&format!(
        "{COLUMNS} WHERE d.id > ?1 AND (?2 OR d.state <> 'RESOLVED') AND (?3 IS NULL OR b.tenant = ?3)
           AND (?4 IS NULL OR b.provider = ?4) AND (?5 IS NULL OR d.class = ?5) ORDER BY d.id LIMIT ?6"
    ))?;
    let limit = filter.limit.map_or(-1, i64::from);
    let rows = statement
        .query_map(params![filter.after, filter.all, filter.tenant, filter.provider, filter.class, limit], read)?;
    Ok(rows.collect::<rusqlite::Result<_>>()?)
}

/// A page of them, the newest first: those that are open, or all, below `before`, at most `limit`.
pub fn page(conn: &Connection, open_only: bool, before: Option<i64>, limit: usize) -> Result<Vec<Discrepancy>> {
    let mut statement = conn.prepare_cached(&format!(
        "{COLUMNS} WHERE (NOT ?1 OR d.state <> 'RESOLVED') AND d.id < ifnull(?2, 9223372036854775807) ORDER BY d.id DESC LIMIT ?3"
    ))?;
    let rows = statement.query_map(params![open_only, before, limit as i64], read)?;
    Ok(rows.collect::<rusqlite::Result<_>>()?)
}

/// One, with its log.
pub fn show(conn: &Connection, id: i64) -> Result<Option<(Discrepancy, Vec<LogLine>)>> {
    let found = conn.prepare_cached(&format!("{COLUMNS} WHERE d.id = ?1"))?.query_row([id], read).optional()?;
    let Some(found) = found else { return Ok(None) };
    let mut statement = conn.prepare_cached(
        "SELECT at, actor, from_state, to_state, note FROM postonce_discrepancy_log WHERE discrepancy = ?1 ORDER BY id",
    )?;
    let log = statement.query_map([id], |r| {
        Ok(LogLine { at: r.get(0)?, actor: r.get(1)?, from_state: r.get(2)?, to_state: r.get(3)?, note: r.get(4)? })
    })?;
    let log = log.collect::<rusqlite::Result<_>>()?;
    Ok(Some((found, log)))
}

/// What is open of one book and class.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct OpenSum {
    /// Whose.
    pub tenant: String,
    /// At which provider.
    pub provider: String,
    /// `live` or `test`.
    pub mode: String,
    /// The class.
    pub class: String,
    /// How many wait for a person.
    pub open: i64,
    /// When the oldest was opened.
    pub oldest_at: Millis,
}

/// What waits for a person, by book and class.
pub fn open_sums(conn: &Connection) -> Result<Vec<OpenSum>> {
    let mut statement = conn.prepare_cached(
        "SELECT b.tenant, b.provider, b.mode, d.class, count(*), min(d.opened_at) FROM postonce_discrepancies d JOIN postonce_books b ON b.id = d.book
         WHERE d.state IN ('OPEN', 'ASSIGNED') GROUP BY b.id, d.class ORDER BY 1, 2, 3, 4",
    )?;
    let rows = statement.query_map([], |r| {
        Ok(OpenSum {
            tenant: r.get(0)?,
            provider: r.get(1)?,
            mode: r.get(2)?,
            class: r.get(3)?,
            open: r.get(4)?,
            oldest_at: r.get(5)?,
        })
    })?;
    Ok(rows.collect::<rusqlite::Result<_>>()?)
}

/// A discrepancy before it is opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewDiscrepancy {
    /// Whose ledger.
    pub book: i64,
    /// Its class.
    pub class: &'static str,
    /// The movement's kind.
    pub kind: String,
    /// The movement's reference, or what stands for it.
    pub reference: String,
    /// The currency of the amounts.
    pub currency: Option<String>,
    /// What we have.
    pub our_amount: Option<i64>,
    /// What they say.
    pub their_amount: Option<i64>,
    /// Our entry.
    pub entry: Option<i64>,
    /// Their line.
    pub line: Option<i64>,
    /// What is parked, or was fetched.
    pub raw_event: Option<i64>,
    /// The run that saw it.
    pub run: Option<i64>,
    /// Fetched and under way: for nobody yet.
    pub fixing: bool,
    /// Why, for the log.
    pub note: String,
}

/// Opens one, or notes that it was seen again. Gives its id and whether it is new.
pub fn open(tx: &Tx, new: &NewDiscrepancy) -> Result<(i64, bool)> {
    let there: Option<(i64, String)> = tx
        .conn
        .prepare_cached(
            "SELECT id, state FROM postonce_discrepancies
             WHERE book = ?1 AND class = ?2 AND kind = ?3 AND reference = ?4 AND state <> 'RESOLVED'",
        )?
        .query_row(params![new.book, new.class, new.kind, new.reference], |r| Ok((r.get(0)?, r.get(1)?)))
        .optional()?;
    if let Some((id, state)) = there {
        tx.conn
            .prepare_cached(
                "UPDATE postonce_discrepancies SET seen = seen + (ifnull(last_run, 0) IS NOT ?2), last_run = ?2, our_amount = ?3,
                   their_amount = ?4, line = ifnull(?5, line), entry = ifnull(?6, entry), raw_event = ifnull(?7, raw_event) WHERE id = ?1",
            )?
            .execute(params![id, new.run, new.our_amount, new.their_amount, new.line, new.entry, new.raw_event])?;
        if state == "FIXING" && !new.fixing {
            change(tx, id, "OPEN", SETTLEMENT, &new.note)?;
        }
        return Ok((id, false));
    }
    let state = if new.fixing { "FIXING" } else { "OPEN" };
    tx.conn
        .prepare_cached(
            "INSERT INTO postonce_discrepancies(book, class, kind, reference, currency, our_amount, their_amount, entry, line,
               raw_event, first_run, last_run, opened_at, state)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?11, ?12, ?13)",
        )?
        .execute(params![
            new.book,
            new.class,
            new.kind,
            new.reference,
            new.currency,
            new.our_amount,
            new.their_amount,
            new.entry,
            new.line,
            new.raw_event,
            new.run,
            tx.now,
            state
        ])?;
    let id = tx.conn.last_insert_rowid();
    log(tx, id, SETTLEMENT, "", state, &new.note)?;
    Ok((id, true))
}

fn log(tx: &Tx, id: i64, actor: &str, from: &str, to: &str, note: &str) -> Result<()> {
    tx.conn
        .prepare_cached(
            "INSERT INTO postonce_discrepancy_log(discrepancy, at, actor, from_state, to_state, note) VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
        )?
        .execute(params![id, tx.now, actor, from, to, note])?;
    Ok(())
}

fn state_of(tx: &Tx, id: i64) -> Result<String> {
    let state: Option<String> = tx
        .conn
        .prepare_cached("SELECT state FROM postonce_discrepancies WHERE id = ?1")?
        .query_row([id], |r| r.get(0))
        .optional()?;
    match state.as_deref() {
        None => {
            Err(Error::refused(format!("there is no discrepancy {id}"), "`postonce discrepancies list` shows them"))
        }
        Some("RESOLVED") => Err(Error::refused(
            format!("discrepancy {id} is resolved"),
            "a new one is opened by the next run if it is still there",
        )),
        Some(state) => Ok(state.to_owned()),
    }
}

fn said(actor: &str, note: &str) -> Result<()> {
    if actor.trim().is_empty() || note.trim().is_empty() {
        return Err(Error::refused("who and why is missing", "--by NAME --note \"what was found out\""));
    }
    Ok(())
}

fn change(tx: &Tx, id: i64, to: &str, actor: &str, note: &str) -> Result<()> {
    let from = state_of(tx, id)?;
    tx.conn.prepare_cached("UPDATE postonce_discrepancies SET state = ?2 WHERE id = ?1")?.execute(params![id, to])?;
    log(tx, id, actor, &from, to, note)
}

/// Gives it to somebody.
pub fn assign(tx: &Tx, id: i64, to: &str, actor: &str, note: &str) -> Result<()> {
    said(actor, note)?;
    if to.trim().is_empty() {
        return Err(Error::refused("nobody is named", "assign ID NAME"));
    }
    let from = state_of(tx, id)?;
    tx.conn
        .prepare_cached("UPDATE postonce_discrepancies SET state = 'ASSIGNED', assignee = ?2 WHERE id = ?1")?
        .execute(params![id, to.trim()])?;
    log(tx, id, actor, &from, "ASSIGNED", note)
}

/// Notes that a person had what is missing asked for again: what was fetched is under way, or there was nothing.
pub fn asked_again(tx: &Tx, id: i64, raw_event: Option<i64>, actor: &str, note: &str) -> Result<()> {
    said(actor, note)?;
    let from = state_of(tx, id)?;
    let Some(raw_event) = raw_event else { return log(tx, id, actor, &from, &from, note) };
    tx.conn
        .prepare_cached("UPDATE postonce_discrepancies SET state = 'FIXING', raw_event = ?2 WHERE id = ?1")?
        .execute(params![id, raw_event])?;
    log(tx, id, actor, &from, "FIXING", note)
}

/// Closes it. An entry whose missing line a person accepts is settled with that: nobody waits for a line any more.
pub fn resolve(tx: &Tx, id: i64, resolution: &str, actor: &str, note: &str) -> Result<()> {
    said(actor, note)?;
    if !RESOLUTIONS.contains(&resolution) {
        return Err(Error::refused(format!("there is no resolution {resolution:?}"), RESOLUTIONS.join(", ")));
    }
    close(tx, id, resolution, actor, note)?;
    tx.conn
        .prepare_cached(
            "INSERT INTO postonce_settled(entry, book, line_ref, rule, at)
             SELECT d.entry, d.book, 'accepted: discrepancy ' || d.id, 'MANUAL', ?2 FROM postonce_discrepancies d
               JOIN postonce_journal j ON j.id = d.entry AND j.settles = 1
             WHERE d.id = ?1 AND d.class IN ('MISSING_THEIRS', 'DUPLICATE_OURS')
             ON CONFLICT DO NOTHING",
        )?
        .execute(params![id, tx.now])?;
    Ok(())
}

/// Closes it by itself: what was missing is there.
pub fn close(tx: &Tx, id: i64, resolution: &str, actor: &str, note: &str) -> Result<()> {
    let from = state_of(tx, id)?;
    tx.conn
        .prepare_cached(
            "UPDATE postonce_discrepancies SET state = 'RESOLVED', resolution = ?2, resolved_at = ?3 WHERE id = ?1",
        )?
        .execute(params![id, resolution, tx.now])?;
    log(tx, id, actor, &from, "RESOLVED", note)
}

/// One that is open, as far as it takes to see whether it is over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenOne {
    /// Its number.
    pub id: i64,
    /// Its class.
    pub class: String,
    /// The movement's kind.
    pub kind: String,
    /// The movement's reference.
    pub reference: String,
    /// Our entry.
    pub entry: Option<i64>,
    /// Their line.
    pub line: Option<i64>,
    /// What is parked, or was fetched.
    pub raw_event: Option<i64>,
    /// Its state.
    pub state: String,
}

/// What is missing here and was not ended: its book, its class and its line. An error says why there is nothing to ask for.
pub fn missing(conn: &Connection, id: i64) -> Result<(i64, i64)> {
    let row: Option<(i64, String, String, Option<i64>)> = conn
        .prepare_cached("SELECT book, class, state, line FROM postonce_discrepancies WHERE id = ?1")?
        .query_row([id], |r| Ok((r.get(0)?, r.get(1)?, r.get(2)?, r.get(3)?)))
        .optional()?;
    let refused = |what: String, hint: &str| Err(Error::refused(what, hint));
    match row {
        None => refused(format!("there is no discrepancy {id}"), "`postonce discrepancies list` shows them"),
        Some((_, _, state, _)) if state == "RESOLVED" => {
            refused(format!("discrepancy {id} is resolved"), "a new one is opened by the next run if it is still there")
        }
        Some((book, class, _, Some(line))) if class == "MISSING_OURS" => Ok((book, line)),
        Some((_, class, ..)) => refused(
            format!("discrepancy {id} is {class}: only what is missing here is fetched"),
            "take the entry back, or resolve it with a note",
        ),
    }
}

/// The open ones of a book.
pub fn open_of(conn: &Connection, book: i64) -> Result<Vec<OpenOne>> {
    let mut statement = conn.prepare_cached(
        "SELECT id, class, kind, reference, entry, line, raw_event, state FROM postonce_discrepancies
         WHERE book = ?1 AND state <> 'RESOLVED' ORDER BY id",
    )?;
    let rows = statement.query_map([book], |r| {
        Ok(OpenOne {
            id: r.get(0)?,
            class: r.get(1)?,
            kind: r.get(2)?,
            reference: r.get(3)?,
            entry: r.get(4)?,
            line: r.get(5)?,
            raw_event: r.get(6)?,
            state: r.get(7)?,
        })
    })?;
    Ok(rows.collect::<rusqlite::Result<_>>()?)
}

/// Is one of this class open for a movement?
pub fn is_open_for(conn: &Connection, book: i64, class: &str, kind: &str, reference: &str) -> Result<bool> {
    Ok(conn
        .prepare_cached(
            "SELECT EXISTS (SELECT 1 FROM postonce_discrepancies WHERE book = ?1 AND class = ?2 AND kind = ?3 AND reference = ?4 AND state <> 'RESOLVED')",
        )?
        .query_row(params![book, class, kind, reference], |r| r.get(0))?)
}

/// Is one of this class open for an entry?
pub fn is_open(conn: &Connection, book: i64, class: &str, entry: i64) -> Result<bool> {
    Ok(conn
        .prepare_cached(
            "SELECT EXISTS (SELECT 1 FROM postonce_journal j JOIN postonce_discrepancies d ON d.book = ?1 AND d.class = ?2 AND d.kind = j.kind
               AND d.reference = j.ref AND d.state <> 'RESOLVED' WHERE j.id = ?3)",
        )?
        .query_row(params![book, class, entry], |r| r.get(0))?)
}

/// Takes one that was being repaired to a person, with the reason.
pub fn for_a_person(tx: &Tx, id: i64, why: &str) -> Result<()> {
    change(tx, id, "OPEN", SETTLEMENT, why)
}

/// Waiting for a person, of one book: those that are being repaired are not.
pub fn open_count(conn: &Connection, book: i64) -> Result<i64> {
    Ok(conn
        .prepare_cached(
            "SELECT count(*) FROM postonce_discrepancies WHERE book = ?1 AND state IN ('OPEN', 'ASSIGNED')",
        )?
        .query_row([book], |r| r.get(0))?)
}
