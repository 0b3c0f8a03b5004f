//! The ledger: accounts, journal entries with their postings, the hash chain.
//!
//! An entry is written whole or not at all, and never changed. The triggers of the schema are the second lock on
//! everything that this file promises.

use super::{Tx, or_fail};
use crate::error::{Error, Result};
use crate::event::Millis;
use crate::fault;
use crate::money::Currency;
use rusqlite::{Connection, OptionalExtension as _, params};
use sha2::{Digest as _, Sha256};

/// What an account is, which decides the sign of its balance.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum Class {
    /// What we have: debits minus credits.
    Asset,
    /// What we owe.
    Liability,
    /// What we earned.
    Income,
    /// What it cost: debits minus credits.
    Expense,
}

impl Class {
    /// The word in the table.
    pub fn as_str(self) -> &'static str {
        match self {
            Class::Asset => "ASSET",
            Class::Liability => "LIABILITY",
            Class::Income => "INCOME",
            Class::Expense => "EXPENSE",
        }
    }
}

/// An account by name.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct AccountKey {
    /// Whose ledger.
    pub book: i64,
    /// `clearing`, `sales`, …
    pub code: &'static str,
    /// The customer, or empty.
    pub holder: String,
    /// Its currency.
    pub currency: Currency,
    /// What it is.
    pub class: Class,
}

/// Names held in memory at once; beyond it the cache starts anew (about 2 MiB).
const ACCOUNTS_CACHED: usize = 20_000;

/// The id of an account, opened at zero when it is new.
pub fn account(tx: &Tx, key: &AccountKey) -> Result<i64> {
    if let Some(id) = tx.names.accounts.borrow().get(key) {
        return Ok(*id);
    }
    let found: Option<i64> = tx
        .conn
        .prepare_cached(
            "SELECT id FROM postonce_accounts WHERE book = ?1 AND code = ?2 AND holder = ?3 AND currency = ?4",
        )?
        .query_row(params![key.book, key.code, key.holder, key.currency.code()], |r| r.get(0))
        .optional()?;
    let id = match found {
        Some(id) => id,
        None => {
            tx.conn
                .prepare_cached(
                    "INSERT INTO postonce_accounts(book, code, holder, currency, class) VALUES (?1, ?2, ?3, ?4, ?5)",
                )?
                .execute(params![key.book, key.code, key.holder, key.currency.code(), key.class.as_str()])?;
            tx.conn.last_insert_rowid()
        }
    };
    let mut cache = tx.names.accounts.borrow_mut();
    if cache.len() >= ACCOUNTS_CACHED {
        cache.clear();
    }
    cache.insert(key.clone(), id);
    Ok(id)
}

/// One posting before it is written.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NewPosting {
    /// The account that is debited.
    pub debit: AccountKey,
    /// The account that is credited.
    pub credit: AccountKey,
    /// Minor units, positive.
    pub amount: i64,
}

/// An entry before it is written.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NewEntry {
    /// Whose ledger.
    pub book: i64,
    /// The movement's kind.
    pub kind: String,
    /// The movement's reference.
    pub reference: String,
    /// Which raw event brought it.
    pub raw_event: i64,
    /// The customer.
    pub account: Option<String>,
    /// The movement it belongs to.
    pub parent: Option<String>,
    /// What the movement says; may be negative in a correction.
    pub amount: i64,
    /// Its currency.
    pub currency: Currency,
    /// Tax inside the amount that the provider remits.
    pub tax: Option<i64>,
    /// The provider's clock.
    pub occurred_at: Millis,
    /// Is a line of a settlement report expected?
    pub settles: bool,
    /// The entry that this one takes back.
    pub reverses: Option<i64>,
    /// Why, in words.
    pub note: Option<String>,
    /// One to fifteen postings.
    pub postings: Vec<NewPosting>,
}

/// Writes an entry with its postings and links it into the hash chain.
pub fn append(tx: &Tx, entry: &NewEntry) -> Result<i64> {
    if entry.postings.is_empty()
        || entry.postings.iter().any(|p| p.debit.currency != p.credit.currency || p.amount <= 0)
    {
        return Err(Error::Apply(format!("{} {} has no posting that balances", entry.kind, entry.reference)));
    }
    let (before, hash_before) = match tx.seen.last_entry.get() {
        Some(last) => last,
        None => tx
            .conn
            .prepare_cached("SELECT id, hash FROM postonce_journal ORDER BY id DESC LIMIT 1")?
            .query_row([], |r| Ok((r.get(0)?, r.get(1)?)))
            .optional()?
            .unwrap_or((0, [0; 32])),
    };
    let id = before + 1;
    let mut accounts = Vec::with_capacity(entry.postings.len());
    for posting in &entry.postings {
        accounts.push((account(tx, &posting.debit)?, account(tx, &posting.credit)?, posting.amount));
    }
    let content = Content {
        id,
        book: entry.book,
        kind: &entry.kind,
        reference: &entry.reference,
        raw_event: entry.raw_event,
        account: entry.account.as_deref(),
        parent: entry.parent.as_deref(),
        amount: entry.amount,
        currency: entry.currency.code(),
        tax: entry.tax,
        occurred_at: entry.occurred_at,
        recorded_at: tx.now,
        settles: entry.settles,
        reverses: entry.reverses,
        note: entry.note.as_deref(),
    };
    let hash = content.hash(&hash_before, accounts.iter().copied());
    tx.run(
        or_fail!(
            tx,
            "INSERT",
            "INTO postonce_journal(id, book, kind, ref, raw_event, account, parent, amount, currency, tax, occurred_at,
               recorded_at, settles, reverses, note, posting_count, hash)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17)"
        ),
        params![
            id,
            entry.book,
            entry.kind,
            entry.reference,
            entry.raw_event,
            entry.account,
            entry.parent,
            entry.amount,
            entry.currency.code(),
            entry.tax,
            entry.occurred_at,
            tx.now,
            entry.settles,
            entry.reverses,
            entry.note,
            accounts.len() as i64,
            hash
        ],
    )?;
    fault::point("entry_without_postings");
    for (at, (debit, credit, amount)) in accounts.into_iter().enumerate() {
        tx.run(or_fail!(tx, "INSERT", "INTO postonce_postings(journal, seq, debit, credit, amount, debit_before, credit_before) VALUES
                   (?1, ?2, ?3, ?4, ?5, (SELECT last FROM postonce_accounts WHERE id = ?3), (SELECT last FROM postonce_accounts WHERE id = ?4))"),
            params![id, at as i64 + 1, debit, credit, amount])?;
    }
    tx.seen.last_entry.set(Some((id, hash)));
    Ok(id)
}

/// What the hash of an entry covers.
pub(super) struct Content<'a> {
    pub id: i64,
    pub book: i64,
    pub kind: &'a str,
    pub reference: &'a str,
    pub raw_event: i64,
    pub account: Option<&'a str>,
    pub parent: Option<&'a str>,
    pub amount: i64,
    pub currency: &'a str,
    pub tax: Option<i64>,
    pub occurred_at: Millis,
    pub recorded_at: Millis,
    pub settles: bool,
    pub reverses: Option<i64>,
    pub note: Option<&'a str>,
}

impl Content<'_> {
    /// sha256(hash of the entry before, then each field with its length, so that no two contents share a text).
    pub(super) fn hash(&self, before: &[u8], postings: impl Iterator<Item = (i64, i64, i64)>) -> [u8; 32] {
        let mut sha = Sha256::new();
        sha.update(before);
        let number = |sha: &mut Sha256, n: i64| sha.update(n.to_be_bytes());
        let text = |sha: &mut Sha256, t: Option<&str>| {
            sha.update((t.map_or(-1, |t| t.len() as i64)).to_be_bytes());
            sha.update(t.unwrap_or_default());
        };
        for n in [
            self.id,
            self.book,
            self.raw_event,
            self.amount,
            self.occurred_at,
            self.recorded_at,
            i64::from(self.settles),
        ] {
            number(&mut sha, n);
        }
        for n in [self.tax, self.reverses] {
            number(&mut sha, i64::from(n.is_some()));
            number(&mut sha, n.unwrap_or(0));
        }
        for t in [Some(self.kind), Some(self.reference), self.account, self.parent, Some(self.currency), self.note] {
            text(&mut sha, t);
        }
        for (debit, credit, amount) in postings {
            for n in [debit, credit, amount] {
                number(&mut sha, n);
            }
        }
        sha.finalize().into()
    }
}

/// What was posted for one movement, as far as later decisions need it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Posted {
    /// Its journal id.
    pub id: i64,
    /// The customer.
    pub account: Option<String>,
    /// Its amount.
    pub amount: i64,
    /// Its currency.
    pub currency: Currency,
    /// The provider's time.
    pub occurred_at: Millis,
}

/// An entry by id.
pub fn posted(conn: &Connection, id: i64) -> Result<Option<Posted>> {
    Ok(conn
        .prepare_cached("SELECT id, account, amount, currency, occurred_at FROM postonce_journal WHERE id = ?1")?
        .query_row([id], |r| Ok((r.get(0)?, r.get(1)?, r.get(2)?, r.get::<_, String>(3)?, r.get(4)?)))
        .optional()?
        .and_then(|(id, account, amount, currency, occurred_at)| {
            Some(Posted { id, account, amount, currency: Currency::parse(&currency)?, occurred_at })
        }))
}

/// The sum of the entries of one kind that belong to `parent`.
pub fn total_of(conn: &Connection, book: i64, kind: &str, parent: &str) -> Result<i64> {
    Ok(conn
        .prepare_cached(
            "SELECT ifnull(sum(amount), 0) FROM postonce_journal WHERE book = ?1 AND parent = ?2 AND kind = ?3",
        )?
        .query_row(params![book, parent, kind], |r| r.get(0))?)
}

/// The sum of the entries of one kind under a reference, running totals of it included.
pub fn total_of_reference(conn: &Connection, book: i64, kind: &str, reference: &str) -> Result<i64> {
    Ok(conn
        .prepare_cached(
            "SELECT ifnull(sum(j.amount), 0) FROM postonce_claims c JOIN postonce_journal j ON j.id = c.journal
             WHERE c.book = ?1 AND c.kind = ?2 AND (c.ref = ?3 OR (c.ref > ?3 || '@' AND c.ref < ?3 || 'A'))",
        )?
        .query_row(params![book, kind, reference], |r| r.get(0))?)
}

/// One posting, for people.
#[derive(Clone, PartialEq, Eq, Debug, serde::Serialize)]
pub struct PostingLine {
    /// The account that is debited.
    pub debit: String,
    /// The account that is credited.
    pub credit: String,
    /// The customer whose sub-account it is, where there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub holder: Option<String>,
    /// Minor units.
    pub amount: i64,
    /// Its currency.
    pub currency: String,
}

/// One entry, for people and scripts: the shape of `postonce ledger --json`.
#[derive(Clone, PartialEq, Eq, Debug, serde::Serialize)]
pub struct EntryLine {
    /// Without gaps.
    pub id: i64,
    /// The source's tenant.
    pub tenant: String,
    /// The provider.
    pub provider: String,
    /// The provider's own account, where there is one.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub provider_account: String,
    /// `live` or `test`.
    pub mode: String,
    /// The movement's kind.
    pub kind: String,
    /// The provider's reference.
    pub reference: String,
    /// The customer.
    pub account: Option<String>,
    /// The movement it belongs to.
    pub parent: Option<String>,
    /// Minor units.
    pub amount: i64,
    /// ISO 4217.
    pub currency: String,
    /// The provider's time, RFC 3339.
    pub occurred_at: String,
    /// Ours.
    pub recorded_at: String,
    /// Who brought it.
    pub raw_event: i64,
    /// The entry it takes back.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reverses: Option<i64>,
    /// Why.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// What moved.
    pub postings: Vec<PostingLine>,
}

/// Which entries to list.
#[derive(Clone, Debug, Default)]
pub struct EntryFilter {
    /// Only those of this customer.
    pub account: Option<String>,
    /// Only this kind.
    pub kind: Option<String>,
    /// Only this reference (or movement it belongs to).
    pub reference: Option<String>,
    /// Only those of this tenant.
    pub tenant: Option<String>,
    /// Only ids above this.
    pub after: i64,
    /// At most so many; `None` all.
    pub limit: Option<u32>,
    /// Name the customer of its payment where the event named none (a refund that came before its payment). Lists for
    /// people want it; a message does not, since its bytes must never change.
    pub of_payment: bool,
}

/// The customer of the payment that an entry belongs to, under whichever name.
const CUSTOMER_OF_PAYMENT: &str = "SELECT p.account FROM postonce_claims c
    JOIN postonce_claims m ON m.book = c.book AND m.kind = 'payment' AND m.ref = ifnull(c.alias_of, c.ref)
    JOIN postonce_journal p ON p.id = m.journal WHERE c.book = j.book AND c.kind = 'payment' AND c.ref = j.parent";

const ENTRY: &str =
    "SELECT j.id, b.tenant, b.provider, b.provider_account, b.mode, j.kind, j.ref, {account}, j.parent, j.amount,
    j.currency, j.occurred_at, j.recorded_at, j.raw_event, j.reverses, j.note
  FROM postonce_journal j JOIN postonce_books b ON b.id = j.book";

/// Lists entries in order, each handed to `each` as it is read.
pub fn entries(conn: &Connection, filter: &EntryFilter, mut each: impl FnMut(EntryLine) -> Result<()>) -> Result<()> {
    let account =
        if filter.of_payment { format!("ifnull(j.account, ({CUSTOMER_OF_PAYMENT}))") } else { "j.account".to_owned() };
    let select = ENTRY.replace("{account}", &account);
    let sql = format!(
        "{select} WHERE j.id > ?1 AND (?2 IS NULL OR {account} = ?2) AND (?3 IS NULL OR j.kind = ?3)
           AND (?4 IS NULL OR j.ref = ?4 OR j.parent = ?4) AND (?5 IS NULL OR b.tenant = ?5) ORDER BY j.id LIMIT ?6"
    );
    let mut statement = conn.prepare_cached(&sql)?;
    let limit = filter.limit.map_or(-1, i64::from);
    let mut rows =
        statement.query(params![filter.after, filter.account, filter.kind, filter.reference, filter.tenant, limit])?;
    while let Some(r) = rows.next()? {
        let id = r.get(0)?;
        each(EntryLine {
            id,
            tenant: r.get(1)?,
            provider: r.get(2)?,
            provider_account: r.get(3)?,
            mode: r.get(4)?,
            kind: r.get(5)?,
            reference: r.get(6)?,
            account: r.get(7)?,
            parent: r.get(8)?,
            amount: r.get(9)?,
            currency: r.get(10)?,
            occurred_at: crate::clock::rfc3339(r.get(11)?),
            recorded_at: crate::clock::rfc3339(r.get(12)?),
            raw_event: r.get(13)?,
            reverses: r.get(14)?,
            note: r.get(15)?,
            postings: postings(conn, id)?,
        })?;
    }
    Ok(())
}

/// How many entries there are.
pub fn count(conn: &Connection) -> Result<i64> {
    Ok(conn.query_row("SELECT count(*) FROM postonce_journal", [], |r| r.get(0))?)
}

/// The postings of an entry.
pub fn postings(conn: &Connection, journal: i64) -> Result<Vec<PostingLine>> {
    let mut statement = conn.prepare_cached(
        "SELECT d.code, c.code, nullif(max(d.holder, c.holder), ''), p.amount, d.currency FROM postonce_postings p
         JOIN postonce_accounts d ON d.id = p.debit JOIN postonce_accounts c ON c.id = p.credit
         WHERE p.journal = ?1 ORDER BY p.seq",
    )?;
    let rows = statement.query_map([journal], |r| {
        Ok(PostingLine {
            debit: r.get(0)?,
            credit: r.get(1)?,
            holder: r.get(2)?,
            amount: r.get(3)?,
            currency: r.get(4)?,
        })
    })?;
    Ok(rows.collect::<rusqlite::Result<_>>()?)
}

/// One account with its balance, for people and scripts: the shape of `postonce balances --json`.
#[derive(Clone, PartialEq, Eq, Debug, serde::Serialize)]
pub struct BalanceLine {
    /// The source's tenant.
    pub tenant: String,
    /// The provider.
    pub provider: String,
    /// `live` or `test`.
    pub mode: String,
    /// The account's code.
    pub code: String,
    /// The customer whose sub-account it is.
    pub account: Option<String>,
    /// ISO 4217.
    pub currency: String,
    /// ASSET, LIABILITY, INCOME or EXPENSE.
    pub class: String,
    /// Everything debited, minor units.
    pub debits: i64,
    /// Everything credited.
    pub credits: i64,
    /// By the class: debits minus credits, or the reverse.
    pub balance: i64,
}

/// The accounts with their balances, handed to `each` in order; of one customer when `holder` is given.
pub fn balances(
    conn: &Connection,
    holder: Option<&str>,
    mut each: impl FnMut(BalanceLine) -> Result<()>,
) -> Result<()> {
    let sql = "SELECT b.tenant, b.provider, b.mode, a.code, nullif(a.holder, ''), a.currency, a.class, a.debits, a.credits, a.balance
       FROM postonce_accounts a JOIN postonce_books b ON b.id = a.book";
    let order = "ORDER BY b.tenant, b.provider, b.mode, a.code, a.holder, a.currency";
    let (mut statement, bound) = match holder {
        Some(holder) => (conn.prepare(&format!("{sql} WHERE a.holder = ?1 AND a.holder <> '' {order}"))?, vec![holder]),
        None => (conn.prepare(&format!("{sql} {order}"))?, vec![]),
    };
    let mut rows = statement.query(rusqlite::params_from_iter(bound))?;
    while let Some(r) = rows.next()? {
        each(BalanceLine {
            tenant: r.get(0)?,
            provider: r.get(1)?,
            mode: r.get(2)?,
            code: r.get(3)?,
            account: r.get(4)?,
            currency: r.get(5)?,
            class: r.get(6)?,
            debits: r.get(7)?,
            credits: r.get(8)?,
            balance: r.get(9)?,
        })?;
    }
    Ok(())
}

/// The newest entry.
pub fn newest(conn: &Connection) -> Result<i64> {
    Ok(conn.query_row("SELECT ifnull(max(id), 0) FROM postonce_journal", [], |r| r.get(0))?)
}

/// An entry with its postings as they were written, for a correction to start from.
pub fn whole(conn: &Connection, id: i64) -> Result<Option<NewEntry>> {
    let found = conn
        .prepare_cached(
            "SELECT book, kind, ref, raw_event, account, parent, amount, currency, tax, occurred_at, settles, reverses, note
             FROM postonce_journal WHERE id = ?1",
        )?
        .query_row([id], |r| {
            let currency: String = r.get(7)?;
            let Some(currency) = Currency::parse(&currency) else { return Ok(None) };
            Ok(Some(NewEntry {
                book: r.get(0)?,
                kind: r.get(1)?,
                reference: r.get(2)?,
                raw_event: r.get(3)?,
                account: r.get(4)?,
                parent: r.get(5)?,
                amount: r.get(6)?,
                currency,
                tax: r.get(8)?,
                occurred_at: r.get(9)?,
                settles: r.get(10)?,
                reverses: r.get(11)?,
                note: r.get(12)?,
                postings: Vec::new(),
            }))
        })
        .optional()?;
    let Some(mut entry) = found.flatten() else { return Ok(None) };
    let mut statement =
        conn.prepare_cached("SELECT debit, credit, amount FROM postonce_postings WHERE journal = ?1 ORDER BY seq")?;
    let legs: Vec<(i64, i64, i64)> =
        statement.query_map([id], |r| Ok((r.get(0)?, r.get(1)?, r.get(2)?)))?.collect::<rusqlite::Result<_>>()?;
    for (debit, credit, amount) in legs {
        entry.postings.push(NewPosting { debit: key_of(conn, debit)?, credit: key_of(conn, credit)?, amount });
    }
    Ok(Some(entry))
}

fn key_of(conn: &Connection, account: i64) -> Result<AccountKey> {
    let (book, code, holder, currency): (i64, String, String, String) = conn
        .prepare_cached("SELECT book, code, holder, currency FROM postonce_accounts WHERE id = ?1")?
        .query_row([account], |r| Ok((r.get(0)?, r.get(1)?, r.get(2)?, r.get(3)?)))?;
    let known = crate::postings::CODES.iter().find(|known| known.code == code);
    let (Some(known), Some(currency)) = (known, Currency::parse(&currency)) else {
        return Err(Error::Apply(format!("account {account} ({code} {currency}) is of no kind that is known here")));
    };
    Ok(AccountKey { book, code: known.code, holder, currency, class: known.class })
}
