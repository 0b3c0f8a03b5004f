//! Reports and their lines: gathered apart from the file, named and sorted there, then kept in order.
//!
//! Lines gather in a temporary table of a reading connection, so that a long list holds neither memory nor the write
//! lock. They are kept in the order of (kind, name): every chunk appends, and two sorted sides can be merged.

use crate::error::{Error, Result};
use crate::event::Millis;
use crate::money::{Currency, Money};
use crate::providers::report::ReportLine;
use crate::store::Tx;
use rusqlite::{Connection, OptionalExtension as _, Row, params};
use sha2::{Digest as _, Sha256};
use std::collections::HashMap;
use std::hash::{BuildHasher as _, RandomState};
use std::path::Path;

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

fn read(r: &Row, from: usize, id: i64) -> rusqlite::Result<StoredLine> {
    let currency = |at: usize| -> rusqlite::Result<Option<Currency>> {
        Ok(r.get_ref(at)?.as_str_or_null()?.and_then(Currency::parse))
    };
    let wrong = || rusqlite::Error::InvalidColumnName("currency".into());
    let shown = match (r.get::<_, Option<i64>>(from + 13)?, currency(from + 14)?) {
        (Some(minor), Some(currency)) => Some(Money { minor, currency }),
        _ => None,
    };
    Ok(StoredLine {
        id,
        kind: r.get(from)?,
        name: r.get(from + 1)?,
        place: r.get(from + 2)?,
        line_ref: r.get(from + 3)?,
        reference: r.get(from + 4)?,
        ref_alt: r.get(from + 5)?,
        parent: r.get(from + 6)?,
        order: r.get(from + 7)?,
        gross: r.get(from + 8)?,
        tax: r.get(from + 9)?,
        fee: r.get(from + 10)?,
        net: r.get(from + 11)?,
        currency: currency(from + 12)?.ok_or_else(wrong)?,
        shown,
        occurred_at: r.get(from + 15)?,
        available_at: r.get(from + 16)?,
        payout_ref: r.get(from + 17)?,
        pending: r.get(from + 18)?,
        unknown_kind: r.get(from + 19)?,
        also: r.get(from + 20)?,
    })
}

/// A kind that has two directions, by that of the money: what comes back has a key and a booking of its own.
pub fn kind_by_direction(kind: &str, money_in: bool) -> &str {
    match (kind, money_in) {
        ("fee", true) => "fee_reversal",
        ("fee_reversal", false) => "fee",
        ("reserve", true) => "reserve_release",
        ("hold", true) => "hold_release",
        ("hold_release", false) => "hold",
        ("conversion", true) => "conversion_in",
        ("conversion", false) => "conversion_out",
        ("adjustment", false) => "adjustment_out",
        (kind, _) => kind,
    }
}

/// Where lines gather.
pub struct Scratch {
    /// Of its own: a pull may wait long for the provider, and must not keep the database open meanwhile.
    conn: Connection,
    database: String,
    added: u64,
    hash: Sha256,
    ordinals: HashMap<u64, u32>,
    hasher: RandomState,
    merges: bool,
}

impl Scratch {
    /// An empty one, whose lines will be named by the database at `path`.
    pub fn open(path: &Path) -> Result<Scratch> {
        let conn = Connection::open("")?; // a file of SQLite's own, gone with the connection
        let plain = path.to_string_lossy().replace('%', "%25").replace('?', "%3f").replace('#', "%23");
        let database = format!("file:{plain}?mode=ro");
        conn.execute_batch(
            "PRAGMA temp_store = FILE; PRAGMA temp.journal_mode = OFF; PRAGMA temp.cache_size = -16000;
             CREATE TEMP TABLE gathered(kind TEXT, place INTEGER, line_ref TEXT, reference TEXT, ref_alt TEXT, parent TEXT, ord TEXT,
               gross INTEGER, tax INTEGER, fee INTEGER, net INTEGER, currency TEXT, shown_amount INTEGER, shown_currency TEXT,
               occurred_at INTEGER, available_at INTEGER, payout_ref TEXT, pending INTEGER, unknown_kind TEXT, merge INTEGER);
             BEGIN",
        )?;
        let (hash, hasher) = (Sha256::new(), RandomState::new());
        Ok(Scratch { conn, database, added: 0, hash, ordinals: HashMap::new(), hasher, merges: false })
    }

    /// How many lines there are.
    pub fn len(&self) -> u64 {
        self.added
    }

    /// Is there none?
    pub fn is_empty(&self) -> bool {
        self.added == 0
    }

    /// SHA-256 of what was gathered, in order, and of the window that was asked for: two empty days are two lists.
    pub fn sha256(&self, (from, to): (Millis, Millis)) -> [u8; 32] {
        let mut hash = self.hash.clone();
        hash.update(from.to_be_bytes());
        hash.update(to.to_be_bytes());
        hash.finalize().into()
    }

    /// Adds a line.
    pub fn add(&mut self, line: &ReportLine) -> Result<()> {
        self.added += 1;
        self.merges |= line.merge;
        let kind = kind_by_direction(&line.kind, line.net > 0 || (line.net == 0 && line.gross > 0));
        let total = line.running_total.then(|| line.gross.unsigned_abs());
        let named = |name: &Option<String>| match (name, total) {
            (Some(name), Some(total)) => Some(format!("{name}@{total}")),
            (name, _) => name.clone(),
        };
        let (reference, ref_alt) = (named(&line.reference), named(&line.ref_alt));
        let line_ref = match &line.line_ref {
            Some(id) => id.clone(),
            None => {
                let name = [&reference, &ref_alt, &line.order, &line.parent].into_iter().find_map(Option::as_deref);
                let at = line.occurred_at.unwrap_or(0);
                let made = format!("{kind}|{}|{at}|{}|{}", name.unwrap_or_default(), line.gross, line.fee);
                let ordinal = self.ordinals.entry(self.hasher.hash_one(&made)).or_insert(0);
                *ordinal += 1;
                format!("{made}|{ordinal}")
            }
        };
        let (shown_amount, shown_currency) =
            (line.shown.map(|m| m.minor), line.shown.as_ref().map(|m| m.currency.code()));
        for text in [kind, &line_ref, line.currency.code(), reference.as_deref().unwrap_or("")] {
            self.hash.update(text.as_bytes());
            self.hash.update([0]);
        }
        for number in [line.gross, line.tax, line.fee, line.net, line.occurred_at.unwrap_or(0), i64::from(line.pending)]
        {
            self.hash.update(number.to_be_bytes());
        }
        self.conn
            .prepare_cached("INSERT INTO temp.gathered VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20)")?
            .execute(params![
                kind,
                line.line as i64,
                line_ref,
                reference,
                ref_alt,
                line.parent,
                line.order,
                line.gross,
                line.tax,
                line.fee,
                line.net,
                line.currency.code(),
                shown_amount,
                shown_currency,
                line.occurred_at,
                line.available_at,
                line.payout_ref,
                line.pending,
                line.unknown_kind,
                line.merge
            ])?;
        Ok(())
    }

    /// When the first and the last happened.
    pub fn span(&self) -> Result<Option<(Millis, Millis)>> {
        Ok(self.conn.query_row("SELECT min(occurred_at), max(occurred_at) FROM temp.gathered", [], |r| {
            Ok(r.get::<_, Option<Millis>>(0)?.zip(r.get::<_, Option<Millis>>(1)?))
        })?)
    }

    /// How many lines happened in `[from, to)`, or do not say when.
    pub fn within(&self, from: Millis, to: Millis) -> Result<i64> {
        Ok(self.conn.query_row(
            "SELECT count(*) FROM temp.gathered WHERE occurred_at IS NULL OR (occurred_at >= ?1 AND occurred_at < ?2)",
            [from, to],
            |r| r.get(0),
        )?)
    }

    /// Adds what is to be added to its payment, names every line as the ledger of `book` does, and sorts.
    pub fn sort(&mut self, book: i64) -> Result<()> {
        self.ordinals = HashMap::new();
        if self.merges {
            self.merge()?;
        }
        self.conn.execute_batch("COMMIT")?;
        self.conn.execute("ATTACH DATABASE ?1 AS ours", [&self.database])?;
        self.conn.prepare(
            "CREATE TEMP TABLE sorted AS SELECT g.kind, coalesce(c.alias_of, c.ref, o.alias_of, o.ref, g.reference, g.ref_alt, '') AS name,
               g.place, g.line_ref, g.reference, g.ref_alt, g.parent, g.ord, g.gross, g.tax, g.fee, g.net, g.currency, g.shown_amount,
               g.shown_currency, g.occurred_at, g.available_at, g.payout_ref, g.pending, g.unknown_kind,
               CASE WHEN ifnull(c.alias_of, c.ref) <> ifnull(o.alias_of, o.ref) THEN o.journal END AS also
             FROM temp.gathered g
               LEFT JOIN ours.postonce_claims c ON c.book = ?1 AND c.kind = g.kind AND c.ref = g.reference
               LEFT JOIN ours.postonce_claims o ON o.book = ?1 AND o.kind = g.kind AND o.ref = g.ref_alt
             ORDER BY 1, 2, 4, 3",
        )?
        .execute([book])?;
        // also ends the look at the database, so that its log can be folded while the lines are kept
        self.conn.execute_batch("DETACH DATABASE ours; DROP TABLE temp.gathered")?;
        Ok(())
    }

    fn merge(&self) -> Result<()> {
        for name in ["reference", "ref_alt"] {
            self.conn.execute_batch(&format!(
                "UPDATE temp.gathered AS g SET gross = g.gross + x.gross, tax = g.tax + x.tax, fee = g.fee + x.fee, net = g.net + x.net
                 FROM (SELECT parent, currency, kind, sum(gross) AS gross, sum(tax) AS tax, sum(fee) AS fee, sum(net) AS net
                       FROM temp.gathered WHERE merge = 1 AND parent IS NOT NULL GROUP BY parent, currency, kind) AS x
                 WHERE g.merge = 0 AND g.kind = x.kind AND g.currency = x.currency AND g.{name} = x.parent;
                 DELETE FROM temp.gathered WHERE merge = 1 AND EXISTS (SELECT 1 FROM temp.gathered p
                   WHERE p.merge = 0 AND p.kind = gathered.kind AND p.currency = gathered.currency AND p.{name} = gathered.parent)"
            ))?;
        }
        Ok(())
    }

    /// Hands out the sorted lines in chunks; a row that repeats the one before is left out and counted.
    pub fn chunks(&self, size: usize, each: &mut dyn FnMut(Vec<StoredLine>) -> Result<()>) -> Result<(i64, i64)> {
        let mut statement = self.conn.prepare(&format!("SELECT {COLUMNS} FROM temp.sorted ORDER BY rowid"))?;
        let mut rows = statement.query([])?;
        let (mut kept, mut repeats) = (0, 0);
        let mut chunk: Vec<StoredLine> = Vec::with_capacity(size);
        let mut before: Option<(String, i64, i64, i64)> = None;
        while let Some(row) = rows.next()? {
            let line = read(row, 0, 0)?;
            let same = before.as_ref().is_some_and(|(id, gross, fee, net)| {
                *id == line.line_ref && (*gross, *fee, *net) == (line.gross, line.fee, line.net)
            });
            if same {
                repeats += 1;
                continue;
            }
            before = Some((line.line_ref.clone(), line.gross, line.fee, line.net));
            kept += 1;
            chunk.push(line);
            if chunk.len() == size {
                each(std::mem::replace(&mut chunk, Vec::with_capacity(size)))?;
            }
        }
        if !chunk.is_empty() {
            each(chunk)?;
        }
        Ok((kept, repeats))
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

/// Makes room for a report.
pub fn begin(tx: &Tx, new: &NewReport) -> Result<i64> {
    let source = tx.source(&new.source)?;
    tx.conn
        .prepare_cached(
            "INSERT INTO postonce_reports(book, source, name, origin, file, window_start, window_end, sha256, skipped, control, fetched_at)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)",
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
    Ok(tx.conn.last_insert_rowid())
}

/// Adds a chunk of lines.
pub fn add_lines(tx: &Tx, report: i64, lines: &[StoredLine]) -> Result<()> {
    let mut statement = tx.conn.prepare_cached(&format!(
        "INSERT INTO postonce_report_lines(report, {COLUMNS})
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20, ?21, ?22)"
    ))?;
    for l in lines {
        statement.execute(params![
            report,
            l.kind,
            l.name,
            l.place,
            l.line_ref,
            l.reference,
            l.ref_alt,
            l.parent,
            l.order,
            l.gross,
            l.tax,
            l.fee,
            l.net,
            l.currency.code(),
            l.shown.map(|m| m.minor),
            l.shown.as_ref().map(|m| m.currency.code()),
            l.occurred_at,
            l.available_at,
            l.payout_ref,
            l.pending,
            l.unknown_kind,
            l.also
        ])?;
    }
    Ok(())
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
            "DELETE FROM postonce_report_lines WHERE id IN (SELECT id FROM postonce_report_lines WHERE report = ?1 LIMIT ?2)",
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
    /// Its window.
    pub window: (Millis, Millis),
}

/// A complete report by its number.
pub fn get(conn: &Connection, id: i64) -> Result<Report> {
    conn.prepare_cached(
        "SELECT id, name, rows, window_start, window_end FROM postonce_reports WHERE id = ?1 AND rows IS NOT NULL",
    )?
    .query_row([id], |r| Ok(Report { id: r.get(0)?, name: r.get(1)?, rows: r.get(2)?, window: (r.get(3)?, r.get(4)?) }))
    .optional()?
    .ok_or_else(|| Error::refused(format!("there is no report {id}"), "`postonce reconcile trend` shows the runs"))
}

/// A line by its number.
pub fn line(conn: &Connection, id: i64) -> Result<Option<StoredLine>> {
    Ok(conn
        .prepare_cached(&format!("SELECT id, {COLUMNS} FROM postonce_report_lines WHERE id = ?1"))?
        .query_row([id], |r| read(r, 1, r.get(0)?))
        .optional()?)
}

/// The lines of a report from `after` on, at most `most`, in the order in which they are kept.
pub fn lines(conn: &Connection, report: i64, after: i64, most: u32) -> Result<Vec<StoredLine>> {
    let mut statement = conn.prepare_cached(&format!(
        "SELECT id, {COLUMNS} FROM postonce_report_lines WHERE report = ?1 AND id > ?2 ORDER BY id LIMIT ?3"
    ))?;
    let rows = statement.query_map(params![report, after, most], |r| read(r, 1, r.get(0)?))?;
    Ok(rows.collect::<rusqlite::Result<_>>()?)
}

/// Every line of a report in the order of (kind, name).
pub fn sorted<'s>(
    statement: &'s mut rusqlite::Statement,
    report: i64,
) -> Result<impl Iterator<Item = rusqlite::Result<StoredLine>> + 's> {
    Ok(statement.query_map([report], |r| read(r, 1, r.get(0)?))?)
}

/// The statement for [`sorted`].
pub fn sorted_statement(conn: &Connection) -> Result<rusqlite::Statement<'_>> {
    Ok(conn.prepare(&format!(
        "SELECT id, {COLUMNS} FROM postonce_report_lines WHERE report = ?1 ORDER BY kind, name, id"
    ))?)
}

/// The newest line of another report under this kind and name, among reports of the book that ended after `since`.
pub fn find(
    conn: &Connection,
    book: i64,
    but: i64,
    kind: &str,
    name: &str,
    since: Millis,
) -> Result<Option<StoredLine>> {
    Ok(conn
        .prepare_cached(&format!(
            "SELECT l.id, {} FROM postonce_reports p JOIN postonce_report_lines l ON l.report = p.id AND l.kind = ?3 AND l.name = ?4
             WHERE p.book = ?1 AND p.rows IS NOT NULL AND p.id <> ?2 AND p.window_end > ?5 ORDER BY p.id DESC LIMIT 1",
            COLUMNS.split(", ").map(|c| format!("l.{}", c.trim())).collect::<Vec<_>>().join(", ")
        ))?
        .query_row(params![book, but, kind, name, since], |r| read(r, 1, r.get(0)?))
        .optional()?)
}
