//! What goes when its time is over, and what a person has the right to have removed.
//!
//! Never touches keys, journal, postings, accounts, the newest raw event (its number must not be given again), what
//! waits for a person, or the bytes that an entity's latest state or an open discrepancy points at. Works in pages of
//! row ids: what is found by reading is removed by a small write that looks again.

use super::Tx;
use super::raw::{self, Body};
use crate::error::Result;
use crate::event::Millis;
use rusqlite::{Connection, params, params_from_iter};
use std::collections::HashSet;

/// Rows looked at in one go. A write removes at most as many: about the work of one batch of applies.
pub const PAGE: i64 = 100;

/// A finished raw event whose time is over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Old {
    /// Its number.
    pub id: i64,
    /// Whose bytes are its body.
    pub body: i64,
    /// 0, or the place in a batch.
    pub item: u32,
    /// Its source's name.
    pub source: String,
    /// How it came.
    pub origin: String,
    /// Its end state.
    pub state: String,
    /// When it came.
    pub received_at: Millis,
    /// The provider's API confirmed it, or gave it.
    pub confirmed: bool,
}

/// One page of a walk over the raw events.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    /// What may go.
    pub old: Vec<Old>,
    /// Where the next page begins; `None`: there is nothing older further on.
    pub next: Option<i64>,
}

/// Raw events after `from` that are finished since before `before`; of the kinds that need nobody any more.
pub fn finished(conn: &Connection, from: i64, before: Millis, spared: &HashSet<i64>, with_bytes: bool) -> Result<Page> {
    let mut statement = conn.prepare_cached(
        "SELECT r.id, ifnull(r.body, r.id), r.item, s.name, r.origin, r.state, r.received_at,
           r.state IN ('DONE', 'DUPLICATE', 'IGNORED') AND r.ended_at < ?2 AND r.received_at < ?2
             AND r.id < (SELECT max(id) FROM postonce_raw_events)
             AND NOT EXISTS (SELECT 1 FROM postonce_raw_events i WHERE i.body = r.id)
             AND (?4 = 0 OR EXISTS (SELECT 1 FROM postonce_bodies b WHERE b.id = r.id AND b.body IS NOT NULL)),
           ifnull((SELECT e.proof = 'fetched' FROM postonce_events e WHERE e.id = r.id), 0)
         FROM postonce_raw_events r JOIN postonce_sources s ON s.id = r.source WHERE r.id > ?1 ORDER BY r.id LIMIT ?3",
    )?;
    let mut rows = statement.query(params![from, before, PAGE, with_bytes])?;
    let (mut old, mut last, mut seen, mut young) = (Vec::new(), from, 0, 0);
    while let Some(r) = rows.next()? {
        let (id, received_at): (i64, Millis) = (r.get(0)?, r.get(6)?);
        (last, seen) = (id, seen + 1);
        young += i64::from(received_at >= before);
        if r.get(7)? && !spared.contains(&id) {
            old.push(Old {
                id,
                body: r.get(1)?,
                item: r.get(2)?,
                source: r.get(3)?,
                origin: r.get(4)?,
                state: r.get(5)?,
                received_at,
                confirmed: r.get(8)?,
            });
        }
    }
    // Numbers grow with time: a page of young ones ends the walk.
    let more = seen == PAGE && young < PAGE;
    Ok(Page { old, next: more.then_some(last) })
}

/// The raw events whose bytes somebody still points at: the latest state of an entity, a wait, an open discrepancy.
pub fn pointed_at(conn: &Connection) -> Result<HashSet<i64>> {
    let mut all = evidence(conn)?;
    for sql in ["SELECT raw_event FROM postonce_entities", "SELECT raw_event FROM postonce_waits"] {
        for id in conn.prepare(sql)?.query_map([], |r| r.get(0))? {
            all.insert(id?);
        }
    }
    Ok(all)
}

/// The raw events, and the deliveries whose bytes they are, behind discrepancies that are open.
fn evidence(conn: &Connection) -> Result<HashSet<i64>> {
    let mut statement = conn.prepare_cached(
        "WITH open(id) AS (
           SELECT raw_event FROM postonce_discrepancies WHERE state <> 'RESOLVED' AND raw_event IS NOT NULL
           UNION SELECT j.raw_event FROM postonce_discrepancies d JOIN postonce_journal j ON j.id = d.entry WHERE d.state <> 'RESOLVED')
         SELECT id FROM open UNION SELECT r.body FROM open JOIN postonce_raw_events r ON r.id = open.id WHERE r.body IS NOT NULL",
    )?;
    let ids = statement.query_map([], |r| r.get(0))?;
    Ok(ids.collect::<rusqlite::Result<_>>()?)
}

fn marks(count: usize) -> String {
    vec!["?"; count].join(", ")
}

const STILL_FINISHED: &str =
    "r.state IN ('DONE', 'DUPLICATE', 'IGNORED') AND r.id < (SELECT max(id) FROM postonce_raw_events)";

/// Empties the bytes of finished events. Gives how many.
pub fn empty_bodies(tx: &Tx, ids: &[i64]) -> Result<usize> {
    let open = evidence(tx.conn)?;
    let ids: Vec<i64> = ids.iter().copied().filter(|id| !open.contains(id)).collect();
    let sql = format!(
        "UPDATE postonce_bodies SET body = NULL, headers = '', query = '' WHERE body IS NOT NULL AND id IN
           (SELECT r.id FROM postonce_raw_events r WHERE {STILL_FINISHED} AND r.id IN ({}))",
        marks(ids.len())
    );
    Ok(tx.conn.execute(&sql, params_from_iter(ids))?)
}

/// Removes finished events with their bytes and what they were read as. Gives how many.
pub fn remove_events(tx: &Tx, ids: &[i64]) -> Result<usize> {
    let open = evidence(tx.conn)?;
    let ids: Vec<i64> = ids.iter().copied().filter(|id| !open.contains(id)).collect();
    let still: Vec<i64> = tx
        .conn
        .prepare(&format!(
            "SELECT r.id FROM postonce_raw_events r WHERE {STILL_FINISHED} AND r.id IN ({})
               AND NOT EXISTS (SELECT 1 FROM postonce_raw_events i WHERE i.body = r.id)",
            marks(ids.len())
        ))?
        .query_map(params_from_iter(ids), |r| r.get(0))?
        .collect::<rusqlite::Result<_>>()?;
    for table in ["postonce_events", "postonce_bodies", "postonce_raw_events"] {
        tx.conn
            .execute(&format!("DELETE FROM {table} WHERE id IN ({})", marks(still.len())), params_from_iter(&still))?;
    }
    Ok(still.len())
}

/// Removes old attempts of messages that are not waiting or dead; gives how many, and where to go on.
pub fn remove_attempts(tx: &Tx, before: Millis, from: i64) -> Result<(usize, Option<i64>)> {
    let last: Option<i64> = tx.conn.query_row(
        "SELECT max(id) FROM (SELECT id, at FROM postonce_attempts WHERE id > ?1 ORDER BY id LIMIT ?3) WHERE at < ?2",
        params![from, before, PAGE],
        |r| r.get(0),
    )?;
    let Some(last) = last else { return Ok((0, None)) };
    let gone = tx.conn.execute(
        "DELETE FROM postonce_attempts WHERE id > ?1 AND id <= ?2 AND at < ?3
           AND NOT EXISTS (SELECT 1 FROM postonce_outbox o WHERE o.id = message AND o.state <> 'SENT')",
        params![from, last, before],
    )?;
    Ok((gone, Some(last)))
}

/// Removes the bytes of report files whose run is long over and whose lines nothing open points at; the lines stay. Gives
/// how many parts.
pub fn remove_report_parts(tx: &Tx, before: Millis) -> Result<usize> {
    Ok(tx.conn.execute(
        "DELETE FROM postonce_report_parts WHERE (report, part) IN
           (SELECT p.report, p.part FROM postonce_report_parts p JOIN postonce_reports r ON r.id = p.report
            WHERE r.fetched_at < ?1 AND r.rows IS NOT NULL AND NOT EXISTS (SELECT 1 FROM postonce_discrepancies d
              JOIN postonce_report_lines l ON l.id = d.line WHERE d.state <> 'RESOLVED' AND l.report = r.id) LIMIT 16)",
        params![before],
    )?)
}

/// Removes alerts that are over, and their messages. Gives how many.
pub fn remove_alerts(tx: &Tx, before: Millis) -> Result<usize> {
    tx.conn.execute(
        "DELETE FROM postonce_outbox WHERE id IN
           (SELECT id FROM postonce_outbox WHERE raw_event = 0 AND state <> 'WAITING' AND ended_at < ?1 AND key >= 'alert/' AND key < 'alert0' LIMIT ?2)",
        params![before, PAGE],
    )?;
    Ok(tx.conn.execute(
        "DELETE FROM postonce_alerts WHERE id IN (SELECT id FROM postonce_alerts WHERE closed_at < ?1 LIMIT ?2)",
        params![before, PAGE],
    )?)
}

/// Removes the hourly figures before a time. Gives how many.
pub fn remove_hours(tx: &Tx, before: Millis) -> Result<usize> {
    Ok(tx.conn.execute("DELETE FROM postonce_hours WHERE hour < ?1", [before])?)
}

/// Removes the audit log before a time, after announcing it: the table refuses anything younger. Gives how many.
pub fn remove_audit(tx: &Tx, before: Millis) -> Result<usize> {
    super::set_meta(tx.conn, "audit_kept_since", &before.to_string())?;
    let gone = tx.conn.execute(
        "DELETE FROM postonce_audit WHERE id IN (SELECT id FROM postonce_audit WHERE at < ?1 ORDER BY id LIMIT ?2)",
        params![before, PAGE],
    )?;
    Ok(gone)
}

/// Gives free pages at the end of a file of our own back to the disk, some at a time; gives how many are left to give.
pub fn give_back(tx: &Tx) -> Result<i64> {
    let number = |sql: &str| -> Result<i64> { Ok(tx.conn.query_row(sql, [], |r| r.get(0))?) };
    if number("PRAGMA auto_vacuum")? != 2 {
        return Ok(0);
    }
    let (free, all) = (number("PRAGMA freelist_count")?, number("PRAGMA page_count")?);
    // A tenth may stay: the next events take it.
    let too_many = free - all / 10;
    if too_many < PAGE {
        return Ok(0);
    }
    let mut statement = tx.conn.prepare(&format!("PRAGMA incremental_vacuum({PAGE})"))?;
    let mut rows = statement.query([])?;
    while rows.next()?.is_some() {}
    Ok(too_many - PAGE)
}

// Erasure of a person's data -------------------------------------------------------------------------------------------

/// What mentions a person.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mentions {
    /// Deliveries that are finished.
    pub bodies: Vec<i64>,
    /// Raw events that are not: they must end first, since without their bytes they cannot be posted.
    pub unfinished: Vec<i64>,
}

/// Looks through stored bytes after `from` for any of `words`; gives where to go on. A word counts where it stands alone:
/// cus_1 is not in cus_12. Bytes inside of base64 are not looked into; [`linked`] finds those that posted something.
pub fn mentions(
    conn: &Connection,
    from: i64,
    words: &[&str],
    tenant: Option<&str>,
    found: &mut Mentions,
) -> Result<Option<i64>> {
    let mut statement =
        conn.prepare_cached("SELECT id FROM postonce_bodies WHERE id > ?1 AND body IS NOT NULL ORDER BY id LIMIT ?2")?;
    let ids: Vec<i64> = statement.query_map(params![from, PAGE], |r| r.get(0))?.collect::<rusqlite::Result<_>>()?;
    for id in &ids {
        let Some(body) = raw::body(conn, *id)? else { continue };
        let mut others = conn.prepare_cached(
            "SELECT EXISTS (SELECT 1 FROM postonce_events e JOIN postonce_books b ON b.id = e.book WHERE e.id = ?1 AND b.tenant <> ?2)",
        )?;
        if mentioned(&body, words) && !others.query_row(params![id, tenant], |r| r.get(0))? {
            add(conn, *id, found)?;
        }
    }
    Ok(ids.last().copied())
}

/// Adds the bytes that brought this account's entries and objects.
pub fn linked(conn: &Connection, account: &str, tenant: Option<&str>, found: &mut Mentions) -> Result<()> {
    let mut statement = conn.prepare(
        "SELECT DISTINCT ifnull(r.body, r.id) FROM (
           SELECT raw_event, book FROM postonce_journal WHERE account = ?1
           UNION SELECT raw_event, book FROM postonce_entities WHERE account = ?1) k
         JOIN postonce_books b ON b.id = k.book JOIN postonce_raw_events r ON r.id = k.raw_event
         JOIN postonce_bodies o ON o.id = ifnull(r.body, r.id)
         WHERE o.body IS NOT NULL AND (?2 IS NULL OR b.tenant = ?2)",
    )?;
    let ids: Vec<i64> =
        statement.query_map(params![account, tenant], |r| r.get(0))?.collect::<rusqlite::Result<_>>()?;
    ids.into_iter().try_for_each(|id| add(conn, id, found))
}

fn add(conn: &Connection, id: i64, found: &mut Mentions) -> Result<()> {
    let mut unfinished = conn.prepare_cached(
        "SELECT id FROM postonce_raw_events WHERE (id = ?1 OR body = ?1) AND state NOT IN ('DONE', 'DUPLICATE', 'IGNORED')",
    )?;
    let mut unfinished: Vec<i64> = unfinished.query_map([id], |r| r.get(0))?.collect::<rusqlite::Result<_>>()?;
    if unfinished.is_empty() && evidence(conn)?.contains(&id) {
        unfinished.push(id);
    }
    let (list, ids) = match unfinished.is_empty() {
        true => (&mut found.bodies, vec![id]),
        false => (&mut found.unfinished, unfinished),
    };
    ids.into_iter().filter(|id| !list.contains(id)).collect::<Vec<_>>().into_iter().for_each(|id| list.push(id));
    Ok(())
}

/// As sent, unpacked, as decoded JSON and as a decoded form: wherever a word can stand.
fn mentioned(body: &Body, words: &[&str]) -> bool {
    let unpacked = gunzipped(&body.bytes);
    let bytes = unpacked.as_deref().unwrap_or(&body.bytes);
    let in_form = |text: &[u8]| {
        form_urlencoded::parse(text).any(|(key, value)| holds(key.as_bytes(), words) || holds(value.as_bytes(), words))
    };
    holds(bytes, words)
        || in_form(body.query.as_bytes())
        || (bytes.contains(&b'%') && in_form(bytes))
        || (bytes.contains(&b'\\')
            && serde_json::from_slice::<serde_json::Value>(bytes)
                .is_ok_and(|json| holds(json.to_string().as_bytes(), words)))
        || body.headers.lines().any(|line| holds(line.as_bytes(), words))
}

fn holds(text: &[u8], words: &[&str]) -> bool {
    let is_part = |byte: Option<&u8>| byte.is_some_and(|b| b.is_ascii_alphanumeric() || *b == b'_' || *b >= 0x80);
    words.iter().map(|word| word.as_bytes()).any(|word| {
        text.windows(word.len()).enumerate().any(|(at, window)| {
            window.eq_ignore_ascii_case(word)
                && !is_part(at.checked_sub(1).and_then(|before| text.get(before)))
                && !is_part(text.get(at + word.len()))
        })
    })
}

/// The text behind a gzip body, as far as it can be read.
fn gunzipped(bytes: &[u8]) -> Option<Vec<u8>> {
    use std::io::Read as _;
    let mut out = Vec::new();
    if !bytes.starts_with(&[0x1f, 0x8b]) {
        return None;
    }
    let _ = flate2::read::MultiGzDecoder::new(bytes).take(64 << 20).read_to_end(&mut out);
    Some(out)
}

/// Removes these bytes for good: what was there is overwritten with zeros in the file.
pub fn erase_bodies(tx: &Tx, ids: &[i64]) -> Result<usize> {
    tx.conn.execute_batch("PRAGMA secure_delete = ON")?;
    let list = marks(ids.len());
    tx.conn.execute(
        &format!("UPDATE postonce_outbox SET payload = '{{\"erased\":true}}' WHERE payload IS NOT NULL AND state <> 'WAITING' AND raw_event IN
                    (SELECT id FROM postonce_raw_events WHERE id IN ({list}) OR body IN ({list}))"),
        params_from_iter(ids.iter().chain(ids)),
    )?;
    let sql = format!(
        "UPDATE postonce_bodies SET body = NULL, headers = '', query = '' WHERE body IS NOT NULL AND id IN ({list})"
    );
    Ok(tx.conn.execute(&sql, params_from_iter(ids))?)
}

/// Takes the person's name off the objects whose state is kept, and off nothing else. Gives how many.
pub fn erase_entities(tx: &Tx, account: &str, tenant: Option<&str>) -> Result<usize> {
    Ok(tx.conn.execute(
        "UPDATE postonce_entities SET account = NULL WHERE account = ?1
           AND book IN (SELECT id FROM postonce_books WHERE ?2 IS NULL OR tenant = ?2)",
        params![account, tenant],
    )?)
}

/// How many journal entries name this account: they stay as they are, since the hash chain covers them.
pub fn entries_of(conn: &Connection, account: &str, tenant: Option<&str>) -> Result<i64> {
    Ok(conn.query_row(
        "SELECT count(*) FROM postonce_journal j JOIN postonce_books b ON b.id = j.book
         WHERE j.account = ?1 AND (?2 IS NULL OR b.tenant = ?2)",
        params![account, tenant],
        |r| r.get(0),
    )?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn body(bytes: &[u8], query: &str) -> Body {
        Body { bytes: bytes.to_vec(), headers: String::new(), query: query.into(), sha256: [0; 32] }
    }

    #[test]
    fn a_word_is_found_where_it_stands_alone_in_whatever_form_it_was_sent() {
        let found = |bytes: &[u8], word: &str| mentioned(&body(bytes, ""), &[word]);
        assert!(found(br#"{"customer":"cus_1"}"#, "cus_1"));
        assert!(!found(br#"{"customer":"cus_12","other":"xcus_1"}"#, "cus_1"));
        assert!(found(b"email=jane%40example.com&x=1", "Jane@Example.com"));
        assert!(found(b"payload=%7B%22customer%22%3A%22cus_1%22%7D", "cus_1"));
        assert!(found(br#"{"name":"J\u00f6rg\/x"}"#, "Jörg"));
        assert!(mentioned(&body(b"{}", "id=7&email=jane%40example.com"), &["jane@example.com"]));
        use std::io::Write as _;
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        gzip.write_all(br#"{"customer":"cus_1"}"#).unwrap();
        assert!(found(&gzip.finish().unwrap(), "cus_1"));
    }
}
