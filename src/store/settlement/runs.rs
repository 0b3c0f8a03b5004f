//! Runs and their items: born RUNNING, ended once, completed only when they add up (the trigger of the schema).

use crate::error::Result;
use crate::event::Millis;
use crate::store::Tx;
use rusqlite::{Connection, OptionalExtension as _, Row, params};
use std::collections::BTreeMap;

/// One run, for people and scripts: the shape of `postonce reconcile show --json`.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct RunLine {
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
    /// The source that asked.
    pub source: String,
    /// Which report or list.
    pub report_name: String,
    /// Its number, once there is one.
    pub report: Option<i64>,
    /// Where the trend shows it.
    pub day: String,
    /// Looks again at days that had their run.
    pub again: bool,
    /// The window's beginning, RFC 3339.
    pub window_start: String,
    /// The window's end, not included.
    pub window_end: String,
    /// When it began.
    pub started_at: String,
    /// When it ended.
    pub finished_at: Option<String>,
    /// `RUNNING`, `COMPLETED`, `DEFERRED`, `INVALID`, `FAILED`.
    pub state: String,
    /// Why it did not complete.
    pub reason: Option<String>,
    /// Lines of the report.
    pub lines: Option<i64>,
    /// Entries of ours that were scored.
    pub ours: Option<i64>,
    /// Missing here before any repair.
    pub found: Option<i64>,
    /// Fetched or rebuilt.
    pub repaired: i64,
    /// Posted from the report.
    pub posted: i64,
    /// What the provider's balance says less what ours does, by currency.
    pub control_diff: serde_json::Value,
    /// Items by bucket: lines, and entries without a line.
    pub buckets: BTreeMap<String, i64>,
}

/// Which runs to list.
#[derive(Clone, Debug, Default)]
pub struct RunFilter {
    /// Only this one.
    pub id: Option<i64>,
    /// Only this tenant.
    pub tenant: Option<String>,
    /// Only this provider.
    pub provider: Option<String>,
    /// Only those of this source.
    pub source: Option<String>,
    /// At most so many, the newest first.
    pub limit: Option<u32>,
}

fn read(r: &Row) -> rusqlite::Result<RunLine> {
    let time = |at: Millis| crate::clock::rfc3339(at);
    Ok(RunLine {
        id: r.get(0)?,
        tenant: r.get(1)?,
        provider: r.get(2)?,
        provider_account: r.get(3)?,
        mode: r.get(4)?,
        source: r.get(5)?,
        report_name: r.get(6)?,
        report: r.get(7)?,
        day: r.get(8)?,
        again: r.get(9)?,
        window_start: time(r.get(10)?),
        window_end: time(r.get(11)?),
        started_at: time(r.get(12)?),
        finished_at: r.get::<_, Option<Millis>>(13)?.map(time),
        state: r.get(14)?,
        reason: r.get(15)?,
        lines: r.get(16)?,
        ours: r.get(17)?,
        found: r.get(18)?,
        repaired: r.get(19)?,
        posted: r.get(20)?,
        control_diff: serde_json::from_str(&r.get::<_, String>(21)?).unwrap_or_default(),
        buckets: BTreeMap::new(),
    })
}

/// Lists runs, the newest first.
pub fn list(conn: &Connection, filter: &RunFilter) -> Result<Vec<RunLine>> {
    let mut statement = conn.prepare_cached(
        "SELECT r.id, b.tenant, b.provider, b.provider_account, b.mode, s.name, r.report_name, r.report, r.day, r.again, r.window_start,
           r.window_end, r.started_at, r.finished_at, r.state, r.reason, r.lines_total, r.ours_total, r.found, r.repaired, r.posted, r.control_diff
         FROM postonce_runs r JOIN postonce_books b ON b.id = r.book JOIN postonce_sources s ON s.id = r.source
         WHERE (?1 IS NULL OR r.id = ?1) AND (?2 IS NULL OR b.tenant = ?2) AND (?3 IS NULL OR b.provider = ?3) AND (?4 IS NULL OR s.name = ?4)
         ORDER BY r.id DESC LIMIT ?5",
    )?;
    let limit = filter.limit.map_or(-1, i64::from);
    let rows = statement.query_map(params![filter.id, filter.tenant, filter.provider, filter.source, limit], read)?;
    let mut runs: Vec<RunLine> = rows.collect::<rusqlite::Result<_>>()?;
    let mut counts =
        conn.prepare_cached("SELECT bucket, sum(n) FROM postonce_run_counts WHERE run = ?1 GROUP BY bucket")?;
    for run in &mut runs {
        run.buckets = counts.query_map([run.id], |r| Ok((r.get(0)?, r.get(1)?)))?.collect::<rusqlite::Result<_>>()?;
    }
    Ok(runs)
}

/// One item of a run that is not matched, with what both sides say.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct ItemLine {
    /// Its bucket.
    pub bucket: String,
    /// The movement's kind.
    pub kind: String,
    /// Its reference.
    pub reference: String,
    /// The line of the report.
    pub line: Option<i64>,
    /// Where it stands in the file or list.
    pub place: Option<i64>,
    /// The entry.
    pub entry: Option<i64>,
    /// What they say, minor units, seen from the balance.
    pub their_amount: Option<i64>,
    /// What we have, minor units.
    pub our_amount: Option<i64>,
    /// The currency of theirs, or else of ours.
    pub currency: Option<String>,
    /// When it happened, RFC 3339.
    pub occurred_at: Option<String>,
}

/// The items of a run that are not matched, at most `limit`.
pub fn items(conn: &Connection, run: i64, limit: u32) -> Result<Vec<ItemLine>> {
    let mut statement = conn.prepare_cached(
        "SELECT i.bucket, ifnull(l.kind, j.kind), coalesce(nullif(l.name, ''), l.reference, l.ref_alt, j.ref, l.line_ref), l.id, l.place, j.id,
           ifnull(l.shown_amount, l.gross), j.amount, coalesce(l.shown_currency, l.currency, j.currency), ifnull(l.occurred_at, j.occurred_at)
         FROM postonce_run_items i
           LEFT JOIN postonce_report_lines l ON l.id = CASE i.side WHEN 'T' THEN i.item ELSE i.partner END
           LEFT JOIN postonce_journal j ON j.id = CASE i.side WHEN 'O' THEN i.item ELSE i.partner END
         WHERE i.run = ?1 AND i.bucket <> 'matched' ORDER BY i.bucket, i.side, i.item LIMIT ?2",
    )?;
    let rows = statement.query_map(params![run, limit], |r| {
        Ok(ItemLine {
            bucket: r.get(0)?,
            kind: r.get(1)?,
            reference: r.get(2)?,
            line: r.get(3)?,
            place: r.get(4)?,
            entry: r.get(5)?,
            their_amount: r.get(6)?,
            our_amount: r.get(7)?,
            currency: r.get(8)?,
            occurred_at: r.get::<_, Option<Millis>>(9)?.map(crate::clock::rfc3339),
        })
    })?;
    Ok(rows.collect::<rusqlite::Result<_>>()?)
}

/// A run before it begins.
#[derive(Clone, Debug)]
pub struct NewRun {
    /// Whose ledger.
    pub book: i64,
    /// The source's name.
    pub source: String,
    /// Which report or list.
    pub report_name: String,
    /// Where the trend shows it.
    pub day: String,
    /// Looks again at days that had their run.
    pub again: bool,
    /// `[start, end)`.
    pub window: (Millis, Millis),
    /// Kinds that are expected in the report; `["*"]`: all.
    pub covers: Vec<String>,
}

/// Begins a run.
pub fn begin(tx: &Tx, new: &NewRun) -> Result<i64> {
    let source = tx.source(&new.source)?;
    let covers = serde_json::Value::from(new.covers.clone()).to_string();
    tx.conn
        .prepare_cached(
            "INSERT INTO postonce_runs(book, source, report_name, day, again, window_start, window_end, started_at, state, covers)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, 'RUNNING', ?9)",
        )?
        .execute(params![
            new.book,
            source,
            new.report_name,
            new.day,
            new.again,
            new.window.0,
            new.window.1,
            tx.now,
            covers
        ])?;
    Ok(tx.conn.last_insert_rowid())
}

/// Ends a run without a result.
pub fn end(tx: &Tx, run: i64, state: &str, reason: &str, report: Option<i64>) -> Result<()> {
    tx.conn
        .prepare_cached(
            "UPDATE postonce_runs SET state = ?2, reason = ?3, report = ifnull(?4, report), finished_at = ?5 WHERE id = ?1 AND state = 'RUNNING'",
        )?
        .execute(params![run, state, reason, report, tx.now])?;
    Ok(())
}

/// What a process that died left RUNNING ends as FAILED, so that nothing seems to be under way for ever.
pub fn end_abandoned(tx: &Tx, source: &str) -> Result<usize> {
    let source = tx.source(source)?;
    Ok(tx
        .conn
        .prepare_cached(
            "UPDATE postonce_runs SET state = 'FAILED', reason = 'the process ended before the run did', finished_at = ?2
             WHERE source = ?1 AND state = 'RUNNING'",
        )?
        .execute(params![source, tx.now])?)
}

/// One item to be written: side `T` or `O`, item, bucket, partner with whether this row scores it too, rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NewItem {
    /// `T` for a line, `O` for an entry without a line in the report.
    pub side: &'static str,
    /// Its id.
    pub item: i64,
    /// The last line, where this row is of several that met the entries of their names.
    pub upto: Option<i64>,
    /// Its bucket.
    pub bucket: &'static str,
    /// The partner; `None` also where [`NewItem::upto`] is given.
    pub partner: Option<i64>,
    /// Whether this row scores its partner too; `None`: it has none.
    pub scored: Option<bool>,
    /// How they met.
    pub rule: Option<&'static str>,
}

/// Writes a chunk of items, in order of their key.
pub fn add_items(tx: &Tx, run: i64, items: &[NewItem]) -> Result<()> {
    let mut statement = tx.conn.prepare_cached(
        "INSERT INTO postonce_run_items(run, side, item, bucket, partner, scored, rule, upto) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
    )?;
    for i in items {
        statement.execute(params![run, i.side, i.item, i.bucket, i.partner, i.scored, i.rule, i.upto])?;
    }
    Ok(())
}

/// An entry that met its line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NewSettled {
    /// The entry.
    pub entry: i64,
    /// The line.
    pub line: i64,
    /// How they met, where it was not by name.
    pub rule: Option<&'static str>,
}

const SETTLE: &str =
    "INSERT INTO postonce_settled(entry, book, line, run, at) VALUES (?1, ?2, ?3, ?4, ?5) ON CONFLICT DO NOTHING";

/// Entries of a run that lie farther apart are counted apart: what lies between them others settled.
const FAR: i64 = 1000;

/// Settles a chunk of entries of a run for good, in their order. One that is settled already stays as it is.
pub fn settle(tx: &Tx, (book, run): (i64, i64), pairs: &[NewSettled]) -> Result<()> {
    let mut by_name = tx.conn.prepare_cached(SETTLE)?;
    let mut pass =
        tx.conn.prepare_cached("UPDATE postonce_runs SET settled_upto = max(settled_upto, ?2) WHERE id = ?1")?;
    let mut count =
        tx.conn.prepare_cached("UPDATE postonce_runs SET settled = settled + ?2, settled_upto = ?3 WHERE id = ?1")?;
    for near in pairs.chunk_by(|one, next| next.entry - one.entry <= FAR) {
        let mut settled = 0;
        for pair in near {
            settled += match pair.rule {
                None => by_name.execute([pair.entry, book, pair.line, run, tx.now])?,
                Some(rule) => otherwise(tx, (book, Some(run)), pair, rule)?,
            };
        }
        if let (Some(first), Some(last)) = (near.first(), near.last()) {
            pass.execute([run, first.entry - 1])?;
            count.execute([run, settled as i64, last.entry])?;
        }
    }
    Ok(())
}

fn otherwise(tx: &Tx, (book, run): (i64, Option<i64>), pair: &NewSettled, rule: &str) -> Result<usize> {
    Ok(tx
        .conn
        .prepare_cached(
            "INSERT INTO postonce_settled(entry, book, line, run, at, rule, line_ref)
             SELECT ?1, ?2, id, ?4, ?5, ?6, line_ref FROM postonce_report_lines WHERE id = ?3 ON CONFLICT DO NOTHING",
        )?
        .execute(params![pair.entry, book, pair.line, run, tx.now, rule])?)
}

/// Settles one entry with a discrepancy that is over, outside of a run: nothing where it expects no line.
pub fn settle_one(tx: &Tx, book: i64, entry: i64, line: i64) -> Result<()> {
    tx.conn
        .prepare_cached(
            "INSERT INTO postonce_settled(entry, book, line, at) SELECT id, book, ?3, ?4 FROM postonce_journal
             WHERE id = ?2 AND book = ?1 AND settles = 1 ON CONFLICT DO NOTHING",
        )?
        .execute([book, entry, line, tx.now])?;
    Ok(())
}

/// How a run completes.
#[derive(Clone, Debug, Default)]
pub struct Completed {
    /// The report.
    pub report: i64,
    /// The last entry when it was scored.
    pub journal_upto: i64,
    /// Every entry before it is settled.
    pub open_from: i64,
    /// Lines.
    pub lines: i64,
    /// Entries.
    pub ours: i64,
    /// Missing here.
    pub found: i64,
    /// Stated balance less ours, by currency, as JSON.
    pub control_diff: String,
}

/// Completes a run; the schema refuses one that does not add up. `found` is kept only by the first run of a window.
pub fn complete(tx: &Tx, run: i64, done: &Completed) -> Result<()> {
    let first: bool = tx
        .conn
        .prepare_cached(
            "SELECT NOT EXISTS (SELECT 1 FROM postonce_runs a JOIN postonce_runs b ON b.id = ?1 AND (a.book, a.report_name, a.window_start, a.window_end)
               IS (b.book, b.report_name, b.window_start, b.window_end) WHERE a.found IS NOT NULL)",
        )?
        .query_row([run], |r| r.get(0))?;
    tx.conn
        .prepare_cached(
            "UPDATE postonce_runs SET state = 'COMPLETED', report = ?2, journal_upto = ?3, open_from = ?4, lines_total = ?5, ours_total = ?6,
               found = ?7, control_diff = ?8, finished_at = ?9 WHERE id = ?1 AND state = 'RUNNING'",
        )?
        .execute(params![
            run,
            done.report,
            done.journal_upto,
            done.open_from,
            done.lines,
            done.ours,
            first.then_some(done.found),
            done.control_diff,
            tx.now
        ])?;
    Ok(())
}

/// Notes what a run handed to the worker.
pub fn handed_over(tx: &Tx, run: i64, repaired: i64, posted: i64) -> Result<()> {
    tx.conn
        .prepare_cached("UPDATE postonce_runs SET repaired = repaired + ?2, posted = posted + ?3 WHERE id = ?1")?
        .execute(params![run, repaired, posted])?;
    Ok(())
}

/// The beginning of the open set: every entry of the book before it is settled, as the last completed run saw it.
pub fn open_from(conn: &Connection, book: i64) -> Result<i64> {
    Ok(conn
        .prepare_cached("SELECT ifnull(max(open_from), 0) FROM postonce_runs WHERE book = ?1 AND state = 'COMPLETED'")?
        .query_row([book], |r| r.get(0))?)
}

/// The newest run of a source: (state, started_at, day).
pub fn newest(conn: &Connection, source: &str, again: bool) -> Result<Option<(String, Millis, String)>> {
    Ok(conn
        .prepare_cached(
            "SELECT r.state, r.started_at, r.day FROM postonce_runs r JOIN postonce_sources s ON s.id = r.source
             WHERE s.name = ?1 AND r.again = ?2 ORDER BY r.id DESC LIMIT 1",
        )?
        .query_row(params![source, again], |r| Ok((r.get(0)?, r.get(1)?, r.get(2)?)))
        .optional()?)
}

/// The days from `first` to `last` that still need their own run: none that completed or was invalid, none that was
/// tried after `tried_before`. Days before the source's first run need none, but the last.
pub fn days_due(conn: &Connection, source: &str, first: &str, last: &str, tried_before: Millis) -> Result<Vec<String>> {
    let oldest: Option<String> = conn
        .prepare_cached(
            "SELECT min(r.day) FROM postonce_runs r JOIN postonce_sources s ON s.id = r.source WHERE s.name = ?1 AND r.again = 0",
        )?
        .query_row([source], |r| r.get(0))?;
    let from = oldest.unwrap_or_else(|| last.to_owned()).max(first.to_owned());
    let mut statement = conn.prepare_cached(
        "SELECT NOT EXISTS (SELECT 1 FROM postonce_runs r JOIN postonce_sources s ON s.id = r.source
           WHERE s.name = ?1 AND r.again = 0 AND r.day = ?2 AND (r.state IN ('COMPLETED', 'INVALID') OR r.started_at > ?3))",
    )?;
    let mut due = Vec::new();
    for day in super::trend::days(&from, last) {
        if statement.query_row(params![source, day, tried_before], |r| r.get(0))? {
            due.push(day);
        }
    }
    Ok(due)
}

/// What the lines that a run matched brought to the balance, less what our clearing account moved for the same entries
/// with their fees and corrections, by currency, where it is not zero. Pairs in two currencies and running totals are
/// left out.
pub fn control_diff(conn: &Connection, run: i64) -> Result<BTreeMap<String, i64>> {
    let mut statement = conn.prepare_cached(
        "WITH pairs AS (SELECT item AS line, partner AS entry FROM postonce_run_items
             WHERE run = ?1 AND side = 'T' AND bucket = 'matched' AND upto IS NULL
           UNION ALL SELECT l.id, c.journal FROM postonce_run_items i JOIN postonce_runs r ON r.id = i.run
             JOIN postonce_report_lines l ON l.id BETWEEN i.item AND i.upto
             JOIN postonce_claims c ON c.book = r.book AND c.kind = l.kind AND c.ref = l.name
             WHERE i.run = ?1 AND i.side = 'T' AND i.bucket = 'matched' AND i.upto IS NOT NULL),
         met AS MATERIALIZED (SELECT l.net, l.currency, j.id AS entry, j.book, j.ref, j.kind FROM pairs
             JOIN postonce_report_lines l ON l.id = pairs.line AND l.shown_amount IS NULL
             JOIN postonce_journal j ON j.id = pairs.entry AND j.currency = l.currency AND instr(j.ref, '@') = 0),
         booked AS (SELECT entry AS id FROM met UNION SELECT f.id FROM met m JOIN postonce_journal f ON f.book = m.book AND f.parent = m.ref
             AND f.kind IN ('fee', 'correction') AND f.settles = 0 AND f.ref LIKE m.kind || ':%'),
         moved AS (SELECT a.currency, sum(CASE p.debit WHEN a.id THEN p.amount ELSE -p.amount END) AS ours FROM booked b
             JOIN postonce_postings p ON p.journal = b.id JOIN postonce_accounts a ON a.id IN (p.debit, p.credit) AND a.code = 'clearing'
           GROUP BY a.currency)
         SELECT t.currency, t.theirs - ifnull(moved.ours, 0) FROM (SELECT currency, sum(net) AS theirs FROM met GROUP BY currency) t
           LEFT JOIN moved ON moved.currency = t.currency WHERE t.theirs <> ifnull(moved.ours, 0)",
    )?;
    let rows = statement.query_map([run], |r| Ok((r.get(0)?, r.get(1)?)))?;
    Ok(rows.collect::<rusqlite::Result<_>>()?)
}

/// Notes the control total of a run.
pub fn control(tx: &Tx, run: i64, diff: &BTreeMap<String, i64>) -> Result<()> {
    let text = serde_json::to_string(diff).unwrap_or_else(|_| "{}".into());
    tx.conn.prepare_cached("UPDATE postonce_runs SET control_diff = ?2 WHERE id = ?1")?.execute(params![run, text])?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A sealed report of four lines (11 to 14), four entries, and a run of it that has not scored anything.
    fn book() -> Connection {
        let conn = Connection::open_in_memory().unwrap();
        conn.execute_batch(include_str!("../../../schema.sql")).unwrap();
        conn.execute_batch(
            "PRAGMA foreign_keys = OFF;
             INSERT INTO postonce_reports(id, book, source, name, origin, window_start, window_end, sha256, fetched_at, first_line)
               VALUES (1, 1, 1, 'list', 'api', 0, 100, zeroblob(32), 0, 11);
             WITH n(x) AS (VALUES (1), (2), (3), (4))
               INSERT INTO postonce_report_lines(id, report, kind, name, place, line_ref, gross, tax, fee, net, currency, pending)
               SELECT 10 + x, 1, 'payment', 'p' || x, x, 'r' || x, 5, 0, 0, 5, 'EUR', 0 FROM n;
             UPDATE postonce_reports SET kept = kept + 4 WHERE id = 1;
             UPDATE postonce_reports SET rows = 4 WHERE id = 1;
             INSERT INTO postonce_runs(id, book, source, report_name, day, again, window_start, window_end, started_at, state)
               VALUES (1, 1, 1, 'list', 'd', 0, 0, 100, 0, 'RUNNING')",
        )
        .unwrap();
        for id in 1..=4 {
            let sql = "INSERT INTO postonce_journal(id, book, kind, ref, raw_event, amount, currency, occurred_at, recorded_at, settles, posting_count, hash)
                       VALUES (?1, 1, 'payment', 'p' || ?1, ?1, 5, 'EUR', 50, 50, 1, 1, zeroblob(32))";
            conn.execute(sql, [id]).unwrap();
        }
        conn
    }

    const STRETCH: &str = "INSERT INTO postonce_run_items(run, side, item, bucket, scored, rule, upto) VALUES (1, 'T', 11, 'matched', 1, 'KIND+SOURCE', 14)";
    const SETTLED: &str =
        "INSERT INTO postonce_settled(entry, book, line, run, at) SELECT id, 1, 10 + id, 1, 0 FROM postonce_journal";
    const COUNTED: &str = "UPDATE postonce_runs SET settled = settled + 4, settled_upto = 4 WHERE id = 1";
    const COMPLETE: &str = "UPDATE postonce_runs SET state = 'COMPLETED', finished_at = 1, report = 1, journal_upto = 4, lines_total = 4, ours_total = 4, found = 0 WHERE id = 1";

    fn refused(conn: &Connection, sql: &str) -> String {
        conn.execute_batch(sql).expect_err(sql).to_string()
    }

    #[test]
    fn a_run_whose_lines_and_entries_add_up_completes() {
        let conn = book();
        for sql in [STRETCH, SETTLED, COUNTED, COMPLETE] {
            conn.execute_batch(sql).unwrap();
        }
        let counted: i64 = conn.query_row("SELECT n FROM postonce_run_counts", [], |r| r.get(0)).unwrap();
        assert_eq!(counted, 4, "a stretch counts all of its lines");
        assert!(refused(&conn, STRETCH).contains("the run is over"));
    }

    #[test]
    fn a_run_that_does_not_add_up_is_refused_whatever_is_missing() {
        let short = STRETCH.replace("14)", "13)");
        let foreign = STRETCH.replace("11,", "12,").replace("14)", "15)");
        let one = STRETCH.replace("14)", "NULL)").replace("matched', 1, 'KIND+SOURCE'", "missing_ours', NULL, NULL");
        let cases: [(&str, &[&str], &str); 6] = [
            ("no score at all", &[SETTLED, COUNTED], "a line has no bucket"),
            ("one line short", &[&short, SETTLED, COUNTED], "a line has no bucket"),
            ("lines of another report", &[&foreign, SETTLED, COUNTED], "a line of another report has a bucket"),
            ("a line twice", &[STRETCH, SETTLED, COUNTED, &one], "this item has its row"),
            ("entries that nothing settled", &[STRETCH], "an entry of the window has no bucket"),
            ("more settled than there is", &[STRETCH, COUNTED], "this entry expects no settlement"),
        ];
        for (what, steps, why) in cases {
            let conn = book();
            let all = steps.iter().chain([&COMPLETE]);
            let refusal = all.map(|sql| conn.execute_batch(sql)).find_map(|done| done.err());
            let refusal = refusal.map(|e| e.to_string()).unwrap_or_default();
            assert!(refusal.contains(why), "{what}: {refusal:?}");
        }
    }

    #[test]
    fn what_a_run_settles_expects_a_line_and_is_counted() {
        let conn = book();
        // an entry that expects no line, another book's, and one that is not counted
        let sql = "INSERT INTO postonce_journal(id, book, kind, ref, raw_event, amount, currency, occurred_at, recorded_at, settles, posting_count, hash)
                   VALUES (5, 1, 'fee', 'f', 5, 5, 'EUR', 50, 50, 0, 1, zeroblob(32))";
        conn.execute_batch(sql).unwrap();
        conn.execute_batch(SETTLED).unwrap();
        assert!(refused(&conn, &COUNTED.replace("_upto = 4", "_upto = 5")).contains("expects no settlement"));
        assert!(
            refused(&conn, &COUNTED.replace("+ 4", "+ 5").replace("_upto = 4", "_upto = 5")).contains("expects no")
        );
        assert!(refused(&conn, &COUNTED.replace("+ 4", "+ 3")).contains("expects no settlement"));
    }

    #[test]
    fn a_run_does_not_look_at_what_others_settled_however_much_it_is() {
        use std::sync::{
            Arc,
            atomic::{AtomicU64, Ordering::Relaxed},
        };
        let conn = book();
        conn.execute_batch(
            "WITH RECURSIVE n(x) AS (VALUES (10) UNION ALL SELECT x + 1 FROM n WHERE x < 30000)
               INSERT INTO postonce_settled(entry, book, line, run, at) SELECT x, 1, x, 9, 0 FROM n;
             INSERT INTO postonce_journal(id, book, kind, ref, raw_event, amount, currency, occurred_at, recorded_at, settles, posting_count, hash)
               SELECT 30000 + id, 1, 'payment', 'late' || id, id, 5, 'EUR', 50, 50, 1, 1, zeroblob(32) FROM postonce_journal",
        )
        .unwrap();
        let names = crate::store::Names::default();
        let tx = Tx {
            conn: &conn,
            now: 0,
            due_now: 0,
            apply_budget: std::time::Duration::from_secs(1),
            names: &names,
            trusting: false,
            seen: crate::store::Seen::default(),
            at_hand: &crate::store::AtHand::of(&conn),
        };
        let steps = Arc::new(AtomicU64::new(0));
        let each = steps.clone();
        let count = move || {
            each.fetch_add(1, Relaxed);
            false // go on
        };
        conn.progress_handler(1, Some(count)).unwrap();
        // one chunk with entries on both sides of all that, then one behind it
        let pair = |entry: i64, line| NewSettled { entry, line, rule: None };
        settle(&tx, (1, 1), &[pair(3, 11), pair(4, 12), pair(30_001, 13)]).unwrap();
        settle(&tx, (1, 1), &[pair(30_002, 14)]).unwrap();
        let steps = steps.load(Relaxed);
        assert!(steps > 0 && steps < 5_000, "{steps} steps of SQLite's machine for four entries beside 30,000");
        let counted = conn.query_row("SELECT settled, settled_upto FROM postonce_runs", [], |r| {
            Ok((r.get::<_, i64>(0)?, r.get::<_, i64>(1)?))
        });
        assert_eq!(counted.unwrap(), (4, 30_002));
        let back = refused(&conn, "UPDATE postonce_runs SET settled_upto = 4 WHERE id = 1");
        assert!(back.contains("in the order of its entries"), "{back}");
    }

    #[test]
    fn a_report_counts_its_lines_and_believes_no_other_number() {
        let conn = book();
        let more = "INSERT INTO postonce_reports(id, book, source, name, origin, window_start, window_end, sha256, fetched_at, first_line)
                      VALUES (2, 1, 1, 'list', 'api', 0, 100, randomblob(32), 0, 15);
                    INSERT INTO postonce_report_lines(id, report, kind, name, place, line_ref, gross, tax, fee, net, currency, pending)
                      VALUES (15, 2, 'payment', 'q', 1, 'q', 5, 0, 0, 5, 'EUR', 0)";
        conn.execute_batch(more).unwrap();
        for wrong in ["SET kept = kept + 2 WHERE id = 2", "SET rows = 1 WHERE id = 2", "SET kept = 5 WHERE id = 1"] {
            let refusal = refused(&conn, &format!("UPDATE postonce_reports {wrong}"));
            assert!(refusal.contains("not stored") || refusal.contains("complete"), "{wrong}: {refusal}");
        }
        conn.execute_batch("UPDATE postonce_reports SET kept = kept + 1 WHERE id = 2").unwrap();
        conn.execute_batch("UPDATE postonce_reports SET rows = 1 WHERE id = 2").unwrap();
    }
}
