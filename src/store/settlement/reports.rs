//! Reports and their lines, kept in the order of (kind, name).
//!
//! The lines of a report are the ids from its first one on, without gaps: every chunk appends, a report is read without
//! an index, and one name is found by an index of every 64th line. The report counts each chunk as it is written, and
//! the schema believes no count that its lines do not have.

use super::packed::{Line, Lines};
use crate::error::{Error, Result};
use crate::event::Millis;
use crate::money::{Currency, Money};
use crate::store::Tx;
use rusqlite::{Connection, OptionalExtension as _, Row, Statement, params};
use std::collections::HashSet;

/// A line as it is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredLine {
    /// Its number; 0 before it is kept.
    pub id: i64,
    /// Our kind, by the direction of the money where a kind has two.
    pub kind: String,
    /// The movement's reference as the ledger knows it, or the line's own; empty where it has none.
    pub name: String,
    /// The physical line or the number of the item.
    pub place: i64,
    /// The same row has the same text.
    pub line_ref: String,
    /// The provider's reference.
    pub reference: Option<String>,
    /// Another name.
    pub ref_alt: Option<String>,
    /// The movement it belongs to.
    pub parent: Option<String>,
    /// The merchant's order.
    pub order: Option<String>,
    /// Gross, tax, fee, net in the settled currency, signed.
    pub gross: i64,
    /// Tax that the provider remits.
    pub tax: i64,
    /// The fee.
    pub fee: i64,
    /// What reached the balance.
    pub net: i64,
    /// The settled currency.
    pub currency: Currency,
    /// What the customer was shown, in another currency.
    pub shown: Option<Money>,
    /// When it happened.
    pub occurred_at: Option<Millis>,
    /// When it can be paid out.
    pub available_at: Option<Millis>,
    /// The payout that carried it.
    pub payout_ref: Option<String>,
    /// Not yet succeeded.
    pub pending: bool,
    /// The provider's word that nobody knows.
    pub unknown_kind: Option<String>,
    /// A second entry of ours that this line names.
    pub also: Option<i64>,
}

const COLUMNS: &str =
    "kind, name, place, line_ref, reference, ref_alt, parent, ord, gross, tax, fee, net, currency, shown_amount,
    shown_currency, occurred_at, available_at, payout_ref, pending, unknown_kind, also";

/// A line as it lies in a row, from this column on.
fn line_in<'r>(r: &'r Row, from: usize) -> rusqlite::Result<Line<'r>> {
    let text = |at: usize| -> rusqlite::Result<Option<&'r str>> { Ok(r.get_ref(from + at)?.as_str_or_null()?) };
    let sure = |at: usize| -> rusqlite::Result<&'r str> { Ok(r.get_ref(from + at)?.as_str()?) };
    let number = |at: usize| -> rusqlite::Result<Option<i64>> { Ok(r.get_ref(from + at)?.as_i64_or_null()?) };
    let amount = |at: usize| -> rusqlite::Result<i64> { Ok(r.get_ref(from + at)?.as_i64()?) };
    let wrong = || rusqlite::Error::InvalidColumnName("currency".into());
    let shown = match (number(13)?, text(14)?.and_then(Currency::parse)) {
        (Some(minor), Some(currency)) => Some(Money { minor, currency }),
        _ => None,
    };
    Ok(Line {
        kind: sure(0)?,
        name: sure(1)?,
        place: amount(2)?,
        line_ref: sure(3)?,
        reference: text(4)?,
        ref_alt: text(5)?,
        parent: text(6)?,
        order: text(7)?,
        gross: amount(8)?,
        tax: amount(9)?,
        fee: amount(10)?,
        net: amount(11)?,
        currency: Currency::parse(sure(12)?).ok_or_else(wrong)?,
        shown,
        occurred_at: number(15)?,
        available_at: number(16)?,
        payout_ref: text(17)?,
        pending: amount(18)? != 0,
        unknown_kind: text(19)?,
        also: number(20)?,
    })
}

fn read(r: &Row) -> rusqlite::Result<StoredLine> {
    Ok(line_in(r, 1)?.stored(r.get(0)?))
}

impl StoredLine {
    /// What it calls itself and what it belongs to.
    pub fn names(&self) -> [Option<&str>; 4] {
        [&self.reference, &self.ref_alt, &self.order, &self.parent].map(Option::as_deref)
    }

    /// The line, borrowed.
    pub fn as_line(&self) -> Line<'_> {
        Line {
            kind: &self.kind,
            name: &self.name,
            place: self.place,
            line_ref: &self.line_ref,
            reference: self.reference.as_deref(),
            ref_alt: self.ref_alt.as_deref(),
            parent: self.parent.as_deref(),
            order: self.order.as_deref(),
            gross: self.gross,
            tax: self.tax,
            fee: self.fee,
            net: self.net,
            currency: self.currency,
            shown: self.shown,
            occurred_at: self.occurred_at,
            available_at: self.available_at,
            payout_ref: self.payout_ref.as_deref(),
            pending: self.pending,
            unknown_kind: self.unknown_kind.as_deref(),
            also: self.also,
        }
    }
}

/// A report before its lines are there.
#[derive(Clone, Debug)]
pub struct NewReport {
    /// Whose ledger.
    pub book: i64,
    /// The source's name.
    pub source: String,
    /// Which report or list.
    pub name: String,
    /// The file's name; `None`: pulled.
    pub file: Option<String>,
    /// `[start, end)`.
    pub window: (Millis, Millis),
    /// Of the file, or of the lines.
    pub sha256: [u8; 32],
    /// Rows that are no movements, by reason, as JSON.
    pub skipped: String,
    /// What the file says about itself, as JSON.
    pub control: String,
}

/// The report of the same content, if it is there.
pub fn same(conn: &Connection, book: i64, name: &str, sha256: &[u8; 32]) -> Result<Option<i64>> {
    Ok(conn
        .prepare_cached(
            "SELECT id FROM postonce_reports WHERE book = ?1 AND name = ?2 AND sha256 = ?3 AND rows IS NOT NULL",
        )?
        .query_row(params![book, name, sha256], |r| r.get(0))
        .optional()?)
}

/// Makes room for a report behind all lines that are there. Gives its number and the id of its first line.
pub fn begin(tx: &Tx, new: &NewReport) -> Result<(i64, i64)> {
    let source = tx.source(&new.source)?;
    tx.conn
        .prepare_cached(
            "INSERT INTO postonce_reports(book, source, name, origin, file, window_start, window_end, sha256, skipped, control, fetched_at, first_line)
             SELECT ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ifnull(max(id), 0) + 1 FROM postonce_report_lines",
        )?
        .execute(params![
            new.book,
            source,
            new.name,
            if new.file.is_some() { "file" } else { "api" },
            new.file,
            new.window.0,
            new.window.1,
            new.sha256,
            new.skipped,
            new.control,
            tx.now
        ])?;
    let report = tx.conn.last_insert_rowid();
    let first = tx
        .conn
        .prepare_cached("SELECT first_line FROM postonce_reports WHERE id = ?1")?
        .query_row([report], |r| r.get(0))?;
    Ok((report, first))
}

/// Adds a chunk of lines, with the ids that follow.
pub fn add_lines(tx: &Tx, report: i64, first: i64, lines: &Lines) -> Result<()> {
    // the rare columns only where a line has one: most have none of them, and each costs
    let mut plain = tx.conn.prepare_cached(
        "INSERT INTO postonce_report_lines(id, report, kind, name, place, line_ref, reference, gross, tax, fee, net, currency, occurred_at,
           available_at, pending) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, 0)",
    )?;
    let mut full = tx.conn.prepare_cached(
        "INSERT INTO postonce_report_lines(id, report, kind, name, place, line_ref, reference, gross, tax, fee, net, currency, occurred_at,
           available_at, pending, ref_alt, parent, ord, shown_amount, shown_currency, payout_ref, unknown_kind, also)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20, ?21, ?22, ?23)",
    )?;
    for (at, line) in lines.iter().enumerate() {
        let rare = [line.ref_alt, line.parent, line.order, line.payout_ref, line.unknown_kind];
        let special = line.pending || line.shown.is_some() || line.also.is_some() || rare.iter().any(Option::is_some);
        let insert = if special { &mut full } else { &mut plain };
        common(insert, first + at as i64, report, &line)?;
        if special {
            insert.raw_bind_parameter(15, line.pending)?;
            insert.raw_bind_parameter(16, line.ref_alt)?;
            insert.raw_bind_parameter(17, line.parent)?;
            insert.raw_bind_parameter(18, line.order)?;
            insert.raw_bind_parameter(19, line.shown.map(|m| m.minor))?;
            insert.raw_bind_parameter(20, line.shown.as_ref().map(|m| m.currency.code()))?;
            insert.raw_bind_parameter(21, line.payout_ref)?;
            insert.raw_bind_parameter(22, line.unknown_kind)?;
            insert.raw_bind_parameter(23, line.also)?;
        }
        insert.raw_execute()?;
    }
    tx.conn
        .prepare_cached("UPDATE postonce_reports SET kept = kept + ?2 WHERE id = ?1")?
        .execute(params![report, lines.len() as i64])?;
    Ok(())
}

fn common(insert: &mut Statement, id: i64, report: i64, line: &Line) -> rusqlite::Result<()> {
    insert.raw_bind_parameter(1, id)?;
    insert.raw_bind_parameter(2, report)?;
    insert.raw_bind_parameter(3, line.kind)?;
    insert.raw_bind_parameter(4, line.name)?;
    insert.raw_bind_parameter(5, line.place)?;
    insert.raw_bind_parameter(6, line.line_ref)?;
    insert.raw_bind_parameter(7, line.reference)?;
    insert.raw_bind_parameter(8, line.gross)?;
    insert.raw_bind_parameter(9, line.tax)?;
    insert.raw_bind_parameter(10, line.fee)?;
    insert.raw_bind_parameter(11, line.net)?;
    insert.raw_bind_parameter(12, line.currency.code())?;
    insert.raw_bind_parameter(13, line.occurred_at)?;
    insert.raw_bind_parameter(14, line.available_at)
}

/// Adds a part of the file.
pub fn add_part(tx: &Tx, report: i64, part: i64, bytes: &[u8]) -> Result<()> {
    tx.conn
        .prepare_cached("INSERT INTO postonce_report_parts VALUES (?1, ?2, ?3)")?
        .execute(params![report, part, bytes])?;
    Ok(())
}

/// All lines are there: from now on the report is fixed. The schema refuses another number.
pub fn seal(tx: &Tx, report: i64, rows: i64, repeats: i64) -> Result<()> {
    tx.conn
        .prepare_cached("UPDATE postonce_reports SET rows = ?2, repeats = ?3 WHERE id = ?1 AND rows IS NULL")?
        .execute(params![report, rows, repeats])?;
    Ok(())
}

/// Takes away a share of what a run left unfinished; `false`: there is nothing left.
pub fn sweep_unsealed(tx: &Tx, book: i64, most: i64) -> Result<bool> {
    let report: Option<i64> = tx
        .conn
        .prepare_cached("SELECT id FROM postonce_reports WHERE book = ?1 AND rows IS NULL LIMIT 1")?
        .query_row([book], |r| r.get(0))
        .optional()?;
    let Some(report) = report else { return Ok(false) };
    let lines = tx
        .conn
        .prepare_cached(
            "DELETE FROM postonce_report_lines WHERE report = ?1 AND id IN (SELECT l.id FROM postonce_reports r
               JOIN postonce_report_lines l ON l.id >= r.first_line WHERE r.id = ?1 LIMIT ?2)",
        )?
        .execute([report, most])?;
    let parts = tx
        .conn
        .prepare_cached("DELETE FROM postonce_report_parts WHERE report = ?1 AND part IN (SELECT part FROM postonce_report_parts WHERE report = ?1 LIMIT 8)")?
        .execute([report])?;
    if lines == 0 && parts == 0 {
        tx.conn.prepare_cached("DELETE FROM postonce_reports WHERE id = ?1")?.execute([report])?;
    }
    Ok(true)
}

/// A report, for those who score or show it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// Its number.
    pub id: i64,
    /// Its name.
    pub name: String,
    /// Lines.
    pub rows: i64,
    /// The id of the first; the others follow it.
    pub first_line: i64,
    /// Its window.
    pub window: (Millis, Millis),
}

/// A complete report by its number.
pub fn get(conn: &Connection, id: i64) -> Result<Report> {
    conn.prepare_cached(
        "SELECT id, name, rows, window_start, window_end, first_line FROM postonce_reports WHERE id = ?1 AND rows IS NOT NULL",
    )?
    .query_row([id], report)
    .optional()?
    .ok_or_else(|| Error::refused(format!("there is no report {id}"), "`postonce reconcile trend` shows the runs"))
}

fn report(r: &Row) -> rusqlite::Result<Report> {
    let window = (r.get(3)?, r.get(4)?);
    Ok(Report { id: r.get(0)?, name: r.get(1)?, rows: r.get(2)?, window, first_line: r.get(5)? })
}

/// A line by its number.
pub fn line(conn: &Connection, id: i64) -> Result<Option<StoredLine>> {
    Ok(conn
        .prepare_cached(&format!("SELECT id, {COLUMNS} FROM postonce_report_lines WHERE id = ?1"))?
        .query_row([id], read)
        .optional()?)
}

/// The lines of a report from the one after `after` on, at most `most`, in the order in which they are kept.
pub fn lines(conn: &Connection, report: &Report, after: i64, most: u32) -> Result<Vec<StoredLine>> {
    let mut statement = conn.prepare_cached(&format!(
        "SELECT id, {COLUMNS} FROM postonce_report_lines WHERE id > max(?1, ?2 - 1) AND id < ?2 + ?3 ORDER BY id LIMIT ?4"
    ))?;
    let rows = statement.query_map(params![after, report.first_line, report.rows, most], read)?;
    Ok(rows.collect::<rusqlite::Result<_>>()?)
}

/// Every line of a report, as `of` sees it, in the order in which they are kept.
pub fn all<'s, T>(
    statement: &'s mut Statement,
    report: &Report,
    mut of: impl FnMut(i64, &Line) -> T + 's,
) -> Result<impl Iterator<Item = Result<T>> + 's> {
    let mut rows = statement.query([report.first_line, report.first_line + report.rows])?;
    Ok(std::iter::from_fn(move || match rows.next() {
        Ok(row) => row.map(|r| Ok(of(r.get(0)?, &line_in(r, 1)?))),
        Err(e) => Some(Err(e.into())),
    }))
}

/// The statement for [`all`].
pub fn all_statement(conn: &Connection) -> Result<Statement<'_>> {
    let sql = format!("SELECT id, {COLUMNS} FROM postonce_report_lines WHERE id >= ?1 AND id < ?2 ORDER BY id");
    Ok(conn.prepare(&sql)?)
}

/// A name that is looked for in reports that ended after its time.
#[derive(Clone, Copy, Debug)]
pub struct Sought<'a> {
    /// The kind.
    pub kind: &'a str,
    /// The name.
    pub name: &'a str,
    /// What ended before cannot have it.
    pub since: Millis,
}

/// A report (`p`, of book ?1) that was judged INVALID and by no run since believed is no evidence: it may be of another
/// account. One that was only kept is.
const BELIEVED: &str =
    "p.id NOT IN (SELECT report FROM postonce_runs WHERE book = ?1 AND state = 'INVALID' AND report IS NOT NULL
    EXCEPT SELECT report FROM postonce_runs WHERE book = ?1 AND state = 'COMPLETED')";

/// Rows that are stepped over before seeking is cheaper: more than lie between two indexed ones.
const NEAR: usize = 192;

/// For each name, in the order of (kind, name), the newest line of another report of the book. Each report is walked
/// once for all names that are still without a line: a thousand names cost no thousand times what one does.
pub fn find_all(conn: &Connection, book: i64, but: i64, sought: &[Sought]) -> Result<Vec<Option<StoredLine>>> {
    let mut found = vec![None; sought.len()];
    let Some(since) = sought.iter().map(|s| s.since).min() else { return Ok(found) };
    let mut statement = conn.prepare_cached(&format!(
        "SELECT id, name, rows, window_start, window_end, first_line FROM postonce_reports p
         WHERE book = ?1 AND rows > 0 AND id <> ?2 AND window_end > ?3 AND {BELIEVED} ORDER BY id DESC"
    ))?;
    let reports: Vec<Report> =
        statement.query_map(params![book, but, since], report)?.collect::<rusqlite::Result<_>>()?;
    let mut left: Vec<usize> = (0..sought.len()).collect();
    for report in &reports {
        let wanted: Vec<usize> = left.iter().copied().filter(|at| sought[*at].since < report.window.1).collect();
        find_in(conn, report, sought, &wanted, &mut found)?;
        left.retain(|at| found[*at].is_none());
        if left.is_empty() {
            break;
        }
    }
    Ok(found)
}

/// The first line of each wanted name in one report.
fn find_in(
    conn: &Connection,
    report: &Report,
    sought: &[Sought],
    wanted: &[usize],
    found: &mut [Option<StoredLine>],
) -> Result<()> {
    // within a report lines stand in this order: those behind the indexed one before the name are looked at
    let mut before = conn.prepare_cached(
        "SELECT id FROM postonce_report_lines WHERE report = ?1 AND id % 64 = 0 AND (kind, name) < (?2, ?3)
         ORDER BY report DESC, kind DESC, name DESC LIMIT 1",
    )?;
    let mut from_there =
        conn.prepare_cached("SELECT id, kind, name FROM postonce_report_lines WHERE id >= ?1 AND id < ?2 ORDER BY id")?;
    let key = |at: usize| (sought[wanted[at]].kind, sought[wanted[at]].name);
    let mut at = 0;
    while at < wanted.len() {
        let (kind, name) = key(at);
        let start = before.query_row(params![report.id, kind, name], |r| r.get(0)).optional()?;
        let start: i64 = start.unwrap_or(report.first_line);
        let mut rows = from_there.query([start, report.first_line + report.rows])?;
        let mut passed = 0;
        while passed < NEAR {
            let Some(row) = rows.next()? else { return Ok(()) };
            let text = |n: usize| row.get_ref(n)?.as_str().map_err(rusqlite::Error::from);
            let here = (text(1)?, text(2)?);
            passed += 1;
            while at < wanted.len() && key(at) <= here {
                if key(at) == here {
                    found[wanted[at]] = line(conn, row.get(0)?)?;
                }
                (at, passed) = (at + 1, 0);
            }
            if at == wanted.len() {
                return Ok(());
            }
        }
    }
    Ok(())
}

/// May a report of the book that ended after `since` hold lines without an entry which nobody was told of: one that was
/// kept and never compared, or one with lines that had not succeeded or were another's?
pub fn any_untold(conn: &Connection, book: i64, but: i64, since: Millis) -> Result<bool> {
    Ok(conn
        .prepare_cached(
            &format!("SELECT EXISTS (SELECT 1 FROM postonce_reports p WHERE p.book = ?1 AND p.rows > 0 AND p.id <> ?2 AND p.window_end > ?3
                 AND {BELIEVED} AND p.id NOT IN (SELECT r.report FROM postonce_runs r WHERE r.book = ?1 AND r.state = 'COMPLETED'))
               OR EXISTS (SELECT 1 FROM postonce_runs r JOIN postonce_run_counts c ON c.run = r.id AND c.side = 'T'
                 WHERE r.book = ?1 AND r.state = 'COMPLETED' AND r.window_end > ?3 AND c.bucket IN ('pending_theirs', 'not_ours'))"),
        )?
        .query_row(params![book, but, since], |r| r.get(0))?)
}

/// A discrepancy (`d`) of a line that lacks its entry, and got none since; in these words for its index.
const LACKS_ITS_ENTRY: &str =
    "(d.class = 'MISSING_OURS' OR d.class = 'PARKED_OURS') AND d.resolution IS NOT 'AUTO_FETCHED'
    AND d.resolution IS NOT 'AUTO_LATE_MATCH' AND d.resolution IS NOT 'DUPLICATE_OF'";

/// Rows that a person has booked by hand: an entry that comes for one of them may be the same money once more.
pub fn booked_by_hand(conn: &Connection, book: i64) -> Result<HashSet<String>> {
    let mut statement = conn.prepare_cached(&format!(
        "SELECT l.line_ref FROM postonce_discrepancies d JOIN postonce_report_lines l ON l.id = d.line
         WHERE d.book = ?1 AND {LACKS_ITS_ENTRY} AND d.resolution = 'POSTED_CORRECTION'"
    ))?;
    let rows = statement.query_map([book], |r| r.get(0))?;
    Ok(rows.collect::<rusqlite::Result<_>>()?)
}

/// Lines of reports that no entry has met though one should have, the newest of each row: those of which somebody was
/// told, and where neither an entry came since, nor a person said that there is another line.
pub fn open(conn: &Connection, book: i64) -> Result<Vec<StoredLine>> {
    let mut statement = conn.prepare_cached(&format!(
        "SELECT l.id, {} FROM postonce_discrepancies d JOIN postonce_report_lines l ON l.id = d.line
         WHERE d.book = ?1 AND {LACKS_ITS_ENTRY} ORDER BY l.id",
        COLUMNS.split(", ").map(|c| format!("l.{}", c.trim())).collect::<Vec<_>>().join(", "),
    ))?;
    let rows = statement.query_map([book], read)?;
    Ok(rows.collect::<rusqlite::Result<_>>()?)
}

/// Did the row of this line settle an entry otherwise than by name?
pub fn row_is_settled(conn: &Connection, book: i64, line: i64) -> Result<bool> {
    Ok(conn
        .prepare_cached(
            "SELECT EXISTS (SELECT 1 FROM postonce_report_lines l JOIN postonce_settled s ON s.book = ?1 AND s.line_ref = l.line_ref
               AND s.rule IS NOT NULL WHERE l.id = ?2)",
        )?
        .query_row([book, line], |r| r.get(0))?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(30))]
        #[test]
        fn each_name_is_found_in_the_newest_report_that_has_it_and_ended_after_its_time(
            mut reports in proptest::collection::vec(proptest::collection::vec("[a-c]{1,6}", 0..700), 1..4),
            mut sought in proptest::collection::vec(("[a-c]{1,6}", 0_i64..5), 0..60),
        ) {
            let conn = Connection::open_in_memory().unwrap();
            conn.execute_batch(include_str!("../../../schema.sql")).unwrap();
            let mut id = 7;
            for (at, names) in reports.iter_mut().enumerate() {
                names.sort();
                let (report, first) = (at as i64 + 1, id);
                let sql = "INSERT INTO postonce_reports(id, book, source, name, origin, window_start, window_end, sha256, fetched_at, first_line)
                           VALUES (?1, 1, 1, 'list', 'api', -1, ?1, randomblob(32), 0, ?2)";
                conn.execute(sql, [report, first]).unwrap();
                for name in names.iter() {
                    let sql = "INSERT INTO postonce_report_lines(id, report, kind, name, place, line_ref, gross, tax, fee, net, currency, pending)
                               VALUES (?1, ?2, 'payment', ?3, 1, 'r' || ?1, 5, 0, 0, 5, 'EUR', 0)";
                    conn.execute(sql, params![id, report, name]).unwrap();
                    id += 1;
                }
                conn.execute("UPDATE postonce_reports SET kept = kept + ?2 WHERE id = ?1", [report, names.len() as i64]).unwrap();
                conn.execute("UPDATE postonce_reports SET rows = kept WHERE id = ?1", [report]).unwrap();
            }
            sought.sort();
            let but = 2;
            let wanted: Vec<Sought> =
                sought.iter().map(|(name, since)| Sought { kind: "payment", name, since: *since }).collect();
            let found = find_all(&conn, 1, but, &wanted).unwrap();
            for ((name, since), found) in sought.iter().zip(&found) {
                let newest = (1..=reports.len() as i64)
                    .rev()
                    .find(|report| *report != but && *since < *report && reports[*report as usize - 1].contains(name));
                let sql = "SELECT report FROM postonce_report_lines WHERE id = ?1";
                let found = found.as_ref().map(|line| {
                    assert_eq!(&line.name, name);
                    conn.query_row(sql, [line.id], |r| r.get::<_, i64>(0)).unwrap()
                });
                prop_assert_eq!(found, newest, "{} since {}", name, since);
            }
        }
    }
}
