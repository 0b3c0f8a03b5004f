//! The history of an account: its postings from the newest back.
//!
//! Each posting names the one that moved its account before, so that no index has to be kept for it: an index by account
//! would dirty a page of its own for each customer. An account that is in nearly every entry is read from the entries
//! instead, once walking would take longer. Reads only.

use crate::error::Result;
use crate::event::Millis;
use rusqlite::{Connection, params};

/// Postings that are walked one by one. An account with more of them since then is in so many entries that reading those
/// in a row is quicker.
const WALKED: usize = if cfg!(test) { 20 } else { 10_000 };

/// From posting to posting: `at` is entry * 16 + seq, and `debit` says on which side the account is.
const WALK: &str = "WITH RECURSIVE walk(at) AS (
   SELECT last FROM postonce_accounts WHERE id = ?1
   UNION ALL SELECT CASE p.debit WHEN ?1 THEN p.debit_before ELSE p.credit_before END
     FROM walk w JOIN postonce_postings p ON p.journal = w.at / 16 AND p.seq = w.at % 16 WHERE w.at > 0)
 SELECT p.journal, p.debit = ?1, p.amount FROM walk w JOIN postonce_postings p ON p.journal = w.at / 16 AND p.seq = w.at % 16";

/// A posting of the account: its entry, whether it debits the account, and how much.
type Step = (i64, bool, i64);

/// The postings in entries from `lower` on, the newest first; `None`: there are more than are walked.
fn walk(conn: &Connection, account: i64, lower: i64, mut see: impl FnMut(Step) -> bool) -> Result<Option<()>> {
    let mut statement = conn.prepare_cached(WALK)?;
    let mut rows = statement.query([account])?;
    let mut steps = 0;
    while let Some(row) = rows.next()? {
        let step: Step = (row.get(0)?, row.get(1)?, row.get(2)?);
        if step.0 < lower || !see(step) {
            break;
        }
        steps += 1;
        if steps == WALKED {
            return Ok(None);
        }
    }
    Ok(Some(()))
}

/// What an account was debited and credited in the entries from `lower` on.
pub(super) fn moved_since(conn: &Connection, account: i64, lower: i64) -> Result<(i64, i64)> {
    let (mut debits, mut credits) = (0, 0);
    let all = walk(conn, account, lower, |(_, debit, amount)| {
        *(if debit { &mut debits } else { &mut credits }) += amount;
        true
    })?;
    if all.is_some() {
        return Ok((debits, credits));
    }
    let sql =
        "SELECT ifnull(sum(CASE debit WHEN ?1 THEN amount END), 0), ifnull(sum(CASE credit WHEN ?1 THEN amount END), 0)
               FROM postonce_postings WHERE journal >= ?2";
    Ok(conn.prepare_cached(sql)?.query_row(params![account, lower], |r| Ok((r.get(0)?, r.get(1)?)))?)
}

/// What an account was debited and credited in entries that happened after a time, by the provider's clock.
pub(super) fn moved_after(conn: &Connection, account: i64, at: Millis) -> Result<(i64, i64)> {
    let mut steps = Vec::new();
    let all = walk(conn, account, 0, |step| {
        steps.push(step);
        true
    })?;
    if all.is_none() {
        let sql = "SELECT ifnull(sum(CASE p.debit WHEN a.id THEN p.amount END), 0), ifnull(sum(CASE p.credit WHEN a.id THEN p.amount END), 0)
                   FROM postonce_accounts a CROSS JOIN postonce_journal j INDEXED BY postonce_journal_by_time
                     ON j.book = a.book AND j.occurred_at > ?2
                   CROSS JOIN postonce_postings p ON p.journal = j.id AND (p.debit = a.id OR p.credit = a.id) WHERE a.id = ?1";
        return Ok(conn.prepare_cached(sql)?.query_row(params![account, at], |r| Ok((r.get(0)?, r.get(1)?)))?);
    }
    let (mut debits, mut credits) = (0, 0);
    let mut happened = conn.prepare_cached("SELECT occurred_at > ?2 FROM postonce_journal WHERE id = ?1")?;
    for (entry, debit, amount) in steps {
        if happened.query_row([entry, at], |r| r.get(0))? {
            *(if debit { &mut debits } else { &mut credits }) += amount;
        }
    }
    Ok((debits, credits))
}

/// The newest entries that moved an account, below `upper` and from `lower` on.
pub(super) fn entries(conn: &Connection, account: i64, lower: i64, upper: i64, limit: usize) -> Result<Vec<i64>> {
    let mut found: Vec<i64> = Vec::new();
    let all = walk(conn, account, lower, |(entry, ..)| {
        if entry < upper && found.last() != Some(&entry) {
            found.push(entry);
        }
        found.len() < limit
    })?;
    if all.is_some() {
        return Ok(found);
    }
    let mut statement = conn.prepare_cached(
        "SELECT DISTINCT journal FROM postonce_postings WHERE journal < ?3 AND journal >= ?2 AND (debit = ?1 OR credit = ?1)
         ORDER BY journal DESC LIMIT ?4",
    )?;
    let rows = statement.query_map(params![account, lower, upper, limit as i64], |r| r.get(0))?;
    Ok(rows.collect::<rusqlite::Result<_>>()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sixty entries: account 1 is in all, 2 in every second, 3 in every seventh twice, 4 in none.
    fn file() -> Connection {
        let db = Connection::open_in_memory().unwrap();
        db.execute_batch(include_str!("../../schema.sql")).unwrap();
        db.execute_batch(
            "PRAGMA foreign_keys = ON; BEGIN; INSERT INTO postonce_books VALUES (1, 't', 'p', '', 'live');
             INSERT INTO postonce_accounts(id, book, code, holder, currency, class)
               VALUES (1, 1, 'a', '', 'USD', 'ASSET'), (2, 1, 'b', '', 'USD', 'INCOME'), (3, 1, 'c', '', 'USD', 'EXPENSE'),
                 (4, 1, 'd', '', 'USD', 'INCOME'), (5, 1, 'e', '', 'USD', 'INCOME')",
        )
        .unwrap();
        for entry in 1..=60_i64 {
            let postings: &[(i64, i64)] = match entry {
                _ if entry % 7 == 0 => &[(1, 3), (3, 1)],
                _ if entry % 2 == 0 => &[(2, 1)],
                _ => &[(1, 5)],
            };
            db.execute(
                "INSERT INTO postonce_journal(id, book, kind, ref, raw_event, amount, currency, occurred_at, recorded_at, settles,
                   posting_count, hash) VALUES (?1, 1, 'payment', 'r' || ?1, ?1, 1, 'USD', ?1 * 7 % 60, 0, 0, ?2, zeroblob(32))",
                params![entry, postings.len() as i64],
            )
            .unwrap();
            for (at, (debit, credit)) in postings.iter().enumerate() {
                db.execute(
                    "INSERT INTO postonce_postings VALUES (?1, ?2, ?3, ?4, ?5,
                       (SELECT last FROM postonce_accounts WHERE id = ?3), (SELECT last FROM postonce_accounts WHERE id = ?4))",
                    params![entry, at as i64 + 1, debit, credit, entry * 100 + at as i64],
                )
                .unwrap();
            }
        }
        db.execute_batch("COMMIT").unwrap();
        db
    }

    fn all(db: &Connection, sql: &str, account: i64, lower: i64, upper: i64) -> Vec<i64> {
        db.prepare(sql)
            .unwrap()
            .query_map([account, lower, upper], |r| r.get(0))
            .unwrap()
            .collect::<rusqlite::Result<_>>()
            .unwrap()
    }

    #[test]
    fn walking_back_finds_what_a_look_at_every_posting_finds_whatever_the_account_and_the_range() {
        let db = file();
        for account in 1..=5 {
            for (lower, upper) in [(0, i64::MAX), (0, 31), (14, 15), (31, 61), (7, 50), (61, i64::MAX)] {
                let sums = "SELECT ifnull(sum(amount), 0) FROM postonce_postings WHERE debit = ?1 AND journal >= ?2 AND ?3 > 0
                            UNION ALL SELECT ifnull(sum(amount), 0) FROM postonce_postings WHERE credit = ?1 AND journal >= ?2";
                let (debits, credits) = moved_since(&db, account, lower).unwrap();
                assert_eq!(vec![debits, credits], all(&db, sums, account, lower, upper), "{account} since {lower}");
                let happened = "SELECT ifnull(sum(p.amount), 0) FROM postonce_postings p JOIN postonce_journal j ON j.id = p.journal
                                WHERE p.debit = ?1 AND j.occurred_at > ?2 AND ?3 > 0
                                UNION ALL SELECT ifnull(sum(p.amount), 0) FROM postonce_postings p JOIN postonce_journal j
                                ON j.id = p.journal WHERE p.credit = ?1 AND j.occurred_at > ?2";
                let (debits, credits) = moved_after(&db, account, lower).unwrap();
                assert_eq!(vec![debits, credits], all(&db, happened, account, lower, upper), "{account} after {lower}");
                let listed =
                    "SELECT DISTINCT journal FROM postonce_postings WHERE (debit = ?1 OR credit = ?1) AND journal >= ?2
                              AND journal < ?3 ORDER BY journal DESC LIMIT 9";
                assert_eq!(
                    entries(&db, account, lower, upper, 9).unwrap(),
                    all(&db, listed, account, lower, upper),
                    "{account} from {lower} below {upper}"
                );
            }
        }
    }

    #[test]
    fn a_posting_that_does_not_follow_its_accounts_last_one_is_refused() {
        let db = file();
        db.execute_batch("BEGIN; INSERT INTO postonce_journal(id, book, kind, ref, raw_event, amount, currency, occurred_at,
            recorded_at, settles, posting_count, hash) VALUES (61, 1, 'payment', 'r61', 61, 1, 'USD', 0, 0, 0, 1, zeroblob(32))")
            .unwrap();
        let refused = db.execute("INSERT INTO postonce_postings VALUES (61, 1, 1, 5, 1, 0, 0)", []).unwrap_err();
        assert!(refused.to_string().contains("after their last"), "{refused}");
    }
}
