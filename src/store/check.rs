//! The one list of truths about the file: each has a name and a query that returns its offenders.
//!
//! The operator's `check` runs it, and so does every crash, load and property test.

use super::ledger::Content;
use crate::error::Result;
use rusqlite::Connection;

/// A truth that does not hold, and where.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Offence {
    /// The truth's name.
    pub truth: &'static str,
    /// What offends it.
    pub what: String,
}

/// Each query returns one text a row for each offender.
const TRUTHS: &[(&str, &str)] = &[
    (
        "every raw event has its bytes, or had them",
        "SELECT 'raw event ' || r.id FROM postonce_raw_events r LEFT JOIN postonce_bodies b ON b.id = ifnull(r.body, r.id) WHERE b.id IS NULL",
    ),
    (
        "every balance is the sum of its postings",
        "WITH moved(account, debits, credits) AS (
           SELECT account, sum(debit), sum(credit) FROM (
             SELECT debit AS account, amount AS debit, 0 AS credit FROM postonce_postings
             UNION ALL SELECT credit, 0, amount FROM postonce_postings) GROUP BY account)
         SELECT 'account ' || a.id || ' (' || a.code || ' ' || a.holder || '): counters ' || a.debits || '/' || a.credits
           || ', postings ' || ifnull(m.debits, 0) || '/' || ifnull(m.credits, 0)
         FROM postonce_accounts a LEFT JOIN moved m ON m.account = a.id
         WHERE (a.debits, a.credits) IS NOT (ifnull(m.debits, 0), ifnull(m.credits, 0))",
    ),
    (
        "what is added up for pages is what the postings say",
        "WITH upto(id) AS (SELECT ifnull((SELECT CAST(value AS INTEGER) FROM postonce_meta WHERE key = 'summed_upto'), 0)),
           posted(book, code, customers, currency, block, hour, debits, credits) AS (
             SELECT j.book, a.code, a.holder <> '', a.currency, (j.id - 1) / 2000, j.occurred_at / 3600000,
               CASE side WHEN 'D' THEN p.amount ELSE 0 END, CASE side WHEN 'C' THEN p.amount ELSE 0 END
             FROM postonce_journal j JOIN upto ON j.id <= upto.id JOIN postonce_postings p ON p.journal = j.id
               JOIN (SELECT 'D' AS side UNION ALL SELECT 'C') JOIN postonce_accounts a ON a.id = CASE side WHEN 'D' THEN p.debit ELSE p.credit END),
           again AS (
             SELECT book, code, customers, 'R' AS clock, currency, block AS at, sum(debits) AS debits, sum(credits) AS credits FROM posted GROUP BY 1, 2, 3, 5, 6
             UNION ALL SELECT book, code, customers, 'O', currency, hour, sum(debits), sum(credits) FROM posted GROUP BY 1, 2, 3, 5, 6)
         SELECT 'book ' || book || ' ' || code || ' ' || currency || ' ' || clock || ' ' || at FROM (
           SELECT * FROM (SELECT * FROM again EXCEPT SELECT * FROM postonce_sums)
           UNION SELECT * FROM (SELECT * FROM postonce_sums EXCEPT SELECT * FROM again)) LIMIT 20",
    ),
    (
        "every posting moves money between two accounts of one book and currency",
        "SELECT 'posting ' || p.journal || '/' || p.seq FROM postonce_postings p
         LEFT JOIN postonce_accounts d ON d.id = p.debit LEFT JOIN postonce_accounts c ON c.id = p.credit
         WHERE d.id IS NULL OR c.id IS NULL OR (d.book, d.currency) IS NOT (c.book, c.currency)",
    ),
    (
        "every posting names the one that moved its account before",
        "WITH moves(account, at, before) AS (
           SELECT debit, journal * 16 + seq, debit_before FROM postonce_postings
           UNION ALL SELECT credit, journal * 16 + seq, credit_before FROM postonce_postings
           UNION ALL SELECT id, 9223372036854775807, last FROM postonce_accounts)
         SELECT 'account ' || account || ': ' || iif(at = 9223372036854775807, 'its last', 'before ' || at / 16 || '/' || at % 16)
           || ' is ' || before / 16 || '/' || before % 16 || ', not ' || really / 16 || '/' || really % 16
         FROM (SELECT *, lag(at, 1, 0) OVER (PARTITION BY account ORDER BY at) AS really FROM moves) WHERE before <> really",
    ),
    (
        "every entry has the postings that it declares",
        "SELECT 'entry ' || j.id FROM postonce_journal j
         WHERE j.posting_count IS NOT (SELECT count(*) FROM postonce_postings p WHERE p.journal = j.id)",
    ),
    (
        "the journal has no gaps",
        "SELECT 'between 1 and ' || max(id) || ' there are ' || count(*) || ' entries' FROM postonce_journal HAVING max(id) <> count(*)",
    ),
    (
        "every entry has exactly one claim that made it",
        "SELECT 'entry ' || j.id || ' (' || j.kind || ' ' || j.ref || ')' FROM postonce_journal j
         WHERE NOT EXISTS (SELECT 1 FROM postonce_claims c WHERE c.book = j.book AND c.kind = j.kind AND c.ref = j.ref
           AND c.state = 'DONE' AND c.journal = j.id)",
    ),
    (
        "every count of a settlement run is the number of its rows",
        "SELECT 'run ' || c.run || ': ' || c.n || ' ' || c.bucket FROM postonce_run_counts c
         WHERE c.n IS NOT (SELECT sum(ifnull(i.upto, i.item) - i.item + 1) FROM postonce_run_items i WHERE i.run = c.run AND i.side = c.side AND i.bucket = c.bucket
           AND ifnull(i.scored, 0) = c.scored)",
    ),
    (
        "a completed settlement run scored every entry that its window expects",
        "SELECT 'run ' || r.id FROM postonce_runs r WHERE r.state = 'COMPLETED' AND r.ours_total <
           (SELECT count(*) FROM postonce_journal j WHERE j.book = r.book AND j.settles = 1 AND j.occurred_at >= r.window_start
              AND j.occurred_at < r.window_end AND j.id <= r.journal_upto
              AND (r.covers = '[\"*\"]' OR j.kind IN (SELECT value FROM json_each(r.covers))))",
    ),
    (
        "a settled line has one entry, and only totals so far share one",
        "SELECT 'line ' || ifnull(s.line_ref, l.line_ref) || ' of book ' || s.book FROM postonce_settled s JOIN postonce_journal j ON j.id = s.entry
           LEFT JOIN postonce_report_lines l ON l.id = s.line
         WHERE instr(j.ref, '@') = 0 GROUP BY s.book, ifnull(s.line_ref, l.line_ref) HAVING count(*) > 1",
    ),
    (
        "what is settled is an entry that expects a line, and a line that is there",
        "SELECT 'entry ' || s.entry FROM postonce_settled s LEFT JOIN postonce_journal j ON j.id = s.entry
           LEFT JOIN postonce_report_lines l ON l.id = s.line
         WHERE j.settles IS NOT 1 OR j.book IS NOT s.book OR (s.line IS NOT NULL AND l.id IS NULL)",
    ),
    (
        "a settlement run settled as many entries as it counted",
        "SELECT 'run ' || r.id || ': ' || r.settled FROM postonce_runs r
           LEFT JOIN (SELECT run, count(*) AS n FROM postonce_settled WHERE run IS NOT NULL GROUP BY run) s ON s.run = r.id
         WHERE r.state = 'COMPLETED' AND r.settled IS NOT ifnull(s.n, 0)",
    ),
    (
        "the lines of a report are its own, and stand in order",
        "SELECT 'line ' || l.id || ' of report ' || r.id FROM postonce_reports r
           JOIN postonce_report_lines l ON l.id >= r.first_line AND l.id < r.first_line + r.rows
           LEFT JOIN postonce_report_lines n ON n.id = l.id + 1 AND n.id < r.first_line + r.rows
         WHERE l.report <> r.id OR (n.kind, n.name) < (l.kind, l.name)",
    ),
    (
        "every finished claim of money has its entry",
        "SELECT 'claim ' || c.kind || ' ' || c.ref || ' of book ' || c.book FROM postonce_claims c
         LEFT JOIN postonce_journal j ON j.id = c.journal
         WHERE c.state = 'DONE' AND c.amount IS NOT NULL AND (c.journal IS NULL OR j.id IS NULL)",
    ),
    (
        "every unfinished claim belongs to an event that is not done",
        "SELECT 'claim ' || c.kind || ' ' || c.ref || ' of raw event ' || c.raw_event FROM postonce_claims c
         JOIN postonce_raw_events r ON r.id = c.raw_event WHERE c.state = 'CLAIMED' AND r.state = 'DONE'",
    ),
    (
        "every alias names a movement",
        "SELECT 'alias ' || a.kind || ' ' || a.ref FROM postonce_claims a WHERE a.state = 'ALIAS' AND NOT EXISTS (
           SELECT 1 FROM postonce_claims c WHERE c.book = a.book AND c.kind = a.kind AND c.ref = a.alias_of AND c.state <> 'ALIAS')",
    ),
    (
        "no movement is posted twice",
        "SELECT j.kind || ' ' || j.ref || ' has ' || count(*) || ' entries' FROM postonce_journal j GROUP BY j.book, j.kind, j.ref HAVING count(*) > 1",
    ),
    (
        "every message is about an entry or event that is there",
        "SELECT 'message ' || o.id FROM postonce_outbox o LEFT JOIN postonce_journal j ON j.id = o.journal
         WHERE o.journal IS NOT NULL AND j.id IS NULL",
    ),
];

/// Runs every check, SQLite's own first. An empty list: the file is clean.
pub fn run(conn: &Connection) -> Result<Vec<Offence>> {
    let mut offences = Vec::new();
    let mut add = |truth, what| offences.push(Offence { truth, what });
    let mut statement = conn.prepare("PRAGMA integrity_check(20)")?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        let text: String = row.get(0)?;
        if text != "ok" {
            add("the file is sound (SQLite's integrity_check)", text);
        }
    }
    drop(rows);
    for (truth, sql) in TRUTHS {
        let mut statement = conn.prepare(sql)?;
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            add(truth, row.get(0)?);
        }
    }
    for what in broken_links(conn)? {
        add("the hash chain is whole: no entry was changed or removed", what);
    }
    Ok(offences)
}

fn broken_links(conn: &Connection) -> Result<Vec<String>> {
    let mut broken = Vec::new();
    let mut before = vec![0; 32];
    let mut statement = conn.prepare(
        "SELECT id, book, kind, ref, raw_event, account, parent, amount, currency, tax, occurred_at, recorded_at, settles,
           reverses, note, hash FROM postonce_journal ORDER BY id",
    )?;
    let mut legs =
        conn.prepare("SELECT debit, credit, amount FROM postonce_postings WHERE journal = ?1 ORDER BY seq")?;
    let mut rows = statement.query([])?;
    while let Some(r) = rows.next()? {
        let text = |at| -> rusqlite::Result<Option<String>> { r.get(at) };
        let (kind, reference, account, parent) = (text(2)?, text(3)?, text(5)?, text(6)?);
        let (currency, note) = (text(8)?, text(14)?);
        let id = r.get(0)?;
        let postings: Vec<(i64, i64, i64)> =
            legs.query_map([id], |p| Ok((p.get(0)?, p.get(1)?, p.get(2)?)))?.collect::<rusqlite::Result<_>>()?;
        let content = Content {
            id,
            book: r.get(1)?,
            kind: kind.as_deref().unwrap_or_default(),
            reference: reference.as_deref().unwrap_or_default(),
            raw_event: r.get(4)?,
            account: account.as_deref(),
            parent: parent.as_deref(),
            amount: r.get(7)?,
            currency: currency.as_deref().unwrap_or_default(),
            tax: r.get(9)?,
            occurred_at: r.get(10)?,
            recorded_at: r.get(11)?,
            settles: r.get(12)?,
            reverses: r.get(13)?,
            note: note.as_deref(),
        };
        let kept: Vec<u8> = r.get(15)?;
        if content.hash(&before, postings.into_iter()) != kept[..] {
            broken.push(format!("entry {id}"));
        }
        before = kept;
    }
    Ok(broken)
}
