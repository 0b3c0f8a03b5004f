//! The tables guard themselves: whatever writes to the file, a program of ours or a hand with sqlite3, is refused what
//! would make the ledger untrue. Each misdeed with the words that refuse it.

use postonce::rusqlite::Connection;

/// Two entries of two books' accounts, the second taking back the first.
const GOOD: &str = "
    BEGIN;
    INSERT INTO postonce_books VALUES (1, 'default', 'stripe', '', 'live'), (2, 'default', 'mollie', '', 'live');
    INSERT INTO postonce_accounts(id, book, code, currency, class) VALUES
      (1, 1, 'clearing', 'usd', 'ASSET'), (2, 1, 'sales', 'usd', 'INCOME'), (3, 1, 'sales', 'eur', 'INCOME'), (4, 2, 'sales', 'usd', 'INCOME');
    INSERT INTO postonce_journal(id, book, kind, ref, raw_event, amount, currency, occurred_at, recorded_at, settles, posting_count, hash)
      VALUES (1, 1, 'payment', 'pi_1', 1, 500, 'usd', 1, 1, 1, 1, zeroblob(32));
    INSERT INTO postonce_postings VALUES (1, 1, 1, 2, 500, 0, 0);
    INSERT INTO postonce_journal(id, book, kind, ref, raw_event, amount, currency, occurred_at, recorded_at, settles, reverses, posting_count, hash)
      VALUES (2, 1, 'correction', 'c_1', 1, -500, 'usd', 1, 1, 0, 1, 1, zeroblob(32));
    INSERT INTO postonce_postings VALUES (2, 1, 2, 1, 500, 17, 17);
    INSERT INTO postonce_claims(book, kind, ref, raw_event, state, amount, currency) VALUES
      (1, 'payment', 'pi_1', 1, 'CLAIMED', 500, 'usd'), (1, 'payment', 'pi_2', 2, 'CLAIMED', 700, 'usd');
    UPDATE postonce_claims SET state = 'DONE', journal = 1 WHERE ref = 'pi_1';
    COMMIT;";

/// An entry of its own id with one posting.
fn entry(id: i64, reverses: &str, posting: &str) -> String {
    format!(
        "BEGIN; INSERT INTO postonce_journal(id, book, kind, ref, raw_event, amount, currency, occurred_at, recorded_at, settles, reverses, posting_count, hash)
           VALUES ({id}, 1, 'payment', 'pi_9', 1, 500, 'usd', 1, 1, 1, {reverses}, 1, zeroblob(32)); {posting}; COMMIT;"
    )
}

#[test]
fn whatever_would_make_the_ledger_untrue_is_refused_by_the_tables_themselves() {
    let fits = "INSERT INTO postonce_postings VALUES (3, 1, 1, 2, 500, 33, 33)";
    let misdeeds: Vec<(String, &str)> = vec![
        (entry(4, "NULL", "INSERT INTO postonce_postings VALUES (4, 1, 1, 2, 500, 33, 33)"), "no gaps"),
        (entry(0, "NULL", "INSERT INTO postonce_postings VALUES (0, 1, 1, 2, 500, 33, 33)"), "closed"),
        (entry(3, "NULL", "SELECT 1"), "FOREIGN KEY"),
        (entry(3, "NULL", "INSERT INTO postonce_postings VALUES (3, 2, 1, 2, 500, 33, 33)"), "without gaps"),
        (
            entry(3, "NULL", &format!("{fits}; INSERT INTO postonce_postings VALUES (3, 2, 1, 2, 500, 49, 49)")),
            "one that its entry declares",
        ),
        (entry(3, "NULL", "INSERT INTO postonce_postings VALUES (3, 1, 1, 3, 500, 33, 0)"), "of one currency"),
        (entry(3, "NULL", "INSERT INTO postonce_postings VALUES (3, 1, 1, 4, 500, 33, 0)"), "of its book"),
        (entry(3, "NULL", "INSERT INTO postonce_postings VALUES (3, 1, 1, 2, 500, 17, 33)"), "after their last"),
        (entry(3, "NULL", "INSERT INTO postonce_postings VALUES (3, 1, 1, 1, 500, 33, 33)"), "credit <> debit"),
        (entry(3, "NULL", "INSERT INTO postonce_postings VALUES (3, 1, 1, 2, -5, 33, 33)"), "amount BETWEEN"),
        (entry(3, "2", fits), "a reversal takes back"),
        (entry(3, "3", fits), "a reversal takes back"),
        (entry(3, "7", fits), "a reversal takes back"),
        (entry(3, "1", fits), "UNIQUE constraint failed: postonce_journal.reverses"),
        ("INSERT INTO postonce_postings VALUES (2, 2, 1, 2, 500, 33, 33)".into(), "one that its entry declares"),
        ("INSERT INTO postonce_postings VALUES (1, 2, 1, 2, 500, 33, 33)".into(), "this entry is closed"),
        ("UPDATE postonce_journal SET note = 'x' WHERE id = 1".into(), "the journal is never changed"),
        ("DELETE FROM postonce_journal WHERE id = 2".into(), "the journal is never changed"),
        ("UPDATE postonce_postings SET amount = 1".into(), "postings are never changed"),
        ("DELETE FROM postonce_postings".into(), "postings are never changed"),
        (
            "INSERT OR REPLACE INTO postonce_postings SELECT * FROM postonce_postings".into(),
            "postings are never changed",
        ),
        ("UPDATE postonce_accounts SET debits = debits + 1 WHERE id = 1".into(), "only with a new posting"),
        ("UPDATE postonce_accounts SET last = last + 16 WHERE id = 1".into(), "only with a new posting"),
        ("UPDATE postonce_accounts SET holder = 'cus_9' WHERE id = 1".into(), "whose account it is"),
        ("UPDATE postonce_accounts SET class = 'LIABILITY' WHERE id = 1".into(), "whose account it is"),
        ("UPDATE postonce_accounts SET rowid = 99 WHERE id = 3".into(), "whose account it is"),
        ("UPDATE postonce_accounts SET _rowid_ = 99 WHERE id = 3".into(), "whose account it is"),
        ("DELETE FROM postonce_accounts WHERE id = 3".into(), "accounts are kept"),
        (
            "INSERT INTO postonce_accounts(book, code, currency, class, debits) VALUES (1, 'x', 'usd', 'ASSET', 5)"
                .into(),
            "accounts open at zero",
        ),
        ("DELETE FROM postonce_claims".into(), "claims never expire"),
        ("INSERT OR REPLACE INTO postonce_claims SELECT * FROM postonce_claims".into(), "claims never expire"),
        ("UPDATE postonce_claims SET state = 'CLAIMED' WHERE ref = 'pi_1'".into(), "this claim has ended"),
        ("UPDATE postonce_claims SET amount = 1 WHERE ref = 'pi_2'".into(), "what was claimed is fixed"),
        ("UPDATE postonce_claims SET ref = 'pi_3' WHERE ref = 'pi_2'".into(), "what was claimed is fixed"),
    ];
    for (sql, words) in misdeeds {
        let db = Connection::open_in_memory().unwrap();
        db.execute_batch("PRAGMA foreign_keys = ON; PRAGMA recursive_triggers = ON").unwrap();
        db.execute_batch(include_str!("../../schema.sql")).unwrap();
        db.execute_batch(GOOD).unwrap();
        let refused = db.execute_batch(&sql).expect_err(&sql).to_string();
        assert!(refused.contains(words), "{sql}\nis refused with {refused:?} and not for {words:?}");
        if !db.is_autocommit() {
            db.execute_batch("ROLLBACK").unwrap();
        }
        let left: (i64, i64, i64) = db
            .query_row(
                "SELECT (SELECT count(*) FROM postonce_journal), (SELECT sum(debits + credits) FROM postonce_accounts), (SELECT count(*) FROM postonce_claims)",
                [],
                |r| Ok((r.get(0)?, r.get(1)?, r.get(2)?)),
            )
            .unwrap();
        assert_eq!(left, (2, 2000, 2), "{sql}");
    }
}
