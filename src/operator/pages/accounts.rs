//! Accounts: what each holds, now or as of a time, by either clock.

use super::customer_link;
use super::ledger::{rows as entry_rows, tabs};
use crate::operator::answer::{Failure, Outcome};
use crate::operator::ask::Ask;
use crate::operator::layout::{
    choice_field, code, day_field, empty, href, instant, money_text, number, page, pager, table, text_field,
};
use crate::store::books::{self, AccountQuery, AccountRow, AsOf, Clock, CodeRow, EntryQuery};
use maud::{Markup, html};
use std::collections::BTreeMap;

/// The parameters of a list of accounts, on the page and in the API.
pub(in crate::operator) const PARAMETERS: [&str; 6] = ["holder", "code", "as_of", "clock", "cursor", "limit"];

/// The moment asked for.
pub(in crate::operator) fn as_of(ask: &Ask) -> Result<Option<AsOf>, Failure> {
    let clocks = [("recorded", Clock::Recorded), ("occurred", Clock::Occurred)];
    let clock = ask.one_of("clock", &clocks)?.unwrap_or_default();
    // A day means its end.
    let whole_day = ask.typed("as_of").trim().len() == 10;
    Ok(ask.time("as_of", true)?.map(|at| AsOf { at: if whole_day { at - 1 } else { at }, clock }))
}

/// Reads a question for accounts.
pub(in crate::operator) fn query(ask: &Ask) -> Result<AccountQuery, Failure> {
    ask.only(&PARAMETERS)?;
    Ok(AccountQuery {
        holder: ask.text("holder")?,
        code: ask.text("code")?,
        as_of: as_of(ask)?,
        after: ask.cursor()?.unwrap_or(0),
        limit: ask.limit()?,
    })
}

fn class(word: &str) -> &'static str {
    match word {
        "ASSET" => "what we have",
        "LIABILITY" => "what we owe",
        "INCOME" => "what we earned",
        "EXPENSE" => "what it cost",
        _ => "equity",
    }
}

fn whose(account: &AccountRow) -> Markup {
    html! {
        (account.tenant) " at " (account.provider)
        @if !account.provider_account.is_empty() { " (" (account.provider_account) ")" }
        @if account.mode == "test" { ", test" }
    }
}

fn account_table(caption: &str, accounts: &[AccountRow]) -> Markup {
    let rows = accounts
        .iter()
        .map(|account| {
            vec![
                html! { a href={ "/ledger/accounts/" (account.id) } { (account.code) } },
                html! { @if let Some(holder) = &account.holder { (customer_link(holder)) } },
                whose(account),
                html! { (class(&account.class)) },
                html! { (money_text(account.debits, &account.currency)) },
                html! { (money_text(account.credits, &account.currency)) },
                html! { strong { (money_text(account.balance, &account.currency)) } },
            ]
        })
        .collect();
    table(caption, &["Account", "Customer", "Book", "Holds", "#Debited", "#Credited", "#Balance"], rows)
}

fn code_table(codes: &[CodeRow]) -> Markup {
    let rows = codes
        .iter()
        .map(|row| {
            let account = &row.account;
            vec![
                html! {
                    @if row.customers == 0 { a href={ "/ledger/accounts/" (account.id) } { (account.code) } }
                    @else {
                        a href=(href("/ledger/accounts", &[("code", &account.code)])) { (account.code) }
                        span.soft { @if row.more { "more than " } (number(row.customers)) @if row.customers == 1 { " customer" } @else { " customers" } }
                    }
                },
                whose(account),
                html! { (class(&account.class)) },
                html! { (money_text(account.debits, &account.currency)) },
                html! { (money_text(account.credits, &account.currency)) },
                html! { strong { (money_text(account.balance, &account.currency)) } },
            ]
        })
        .collect();
    table(
        "Accounts of each book; those kept per customer are added up",
        &["Account", "Book", "Holds", "#Debited", "#Credited", "#Balance"],
        rows,
    )
}

/// What the providers hold for us, in a sentence: live money only.
fn held(codes: &[CodeRow]) -> String {
    let mut held: BTreeMap<&str, i64> = BTreeMap::new();
    for row in codes.iter().filter(|row| row.account.code == "clearing" && row.account.mode == "live") {
        *held.entry(&row.account.currency).or_default() += row.account.balance;
    }
    held.retain(|_, balance| *balance != 0);
    let held: Vec<String> = held.into_iter().map(|(currency, balance)| money_text(balance, currency)).collect();
    match held.split_last() {
        None => "The providers hold nothing for us.".into(),
        Some((only, [])) => format!("The providers hold {only} for us."),
        Some((last, others)) => format!("The providers hold {} and {last} for us.", others.join(", ")),
    }
}

/// The page of accounts.
pub(in crate::operator) fn list(ask: &Ask) -> Outcome {
    let query = query(ask)?;
    let overview = query.holder.is_none() && query.code.is_none();
    let (codes, found) = ask.app.shared().store.look(|conn| {
        Ok(if overview {
            (books::codes(conn, query.as_of)?, None)
        } else {
            (Vec::new(), Some(books::accounts(conn, &query)?))
        })
    })?;
    let clocks = [("occurred".to_owned(), "the provider's".to_owned())];
    let content = html! {
        @if overview && !codes.is_empty() { p.answer { (held(&codes)) } }
        (tabs("/ledger/accounts"))
        form.filter role="search" aria-label="Find accounts" {
            (text_field(ask, "holder", "Customer", "cus_…"))
            (text_field(ask, "code", "Account", "clearing, sales, …"))
            (day_field(ask, "as_of", "As of the end of"))
            (choice_field(ask, "clock", "By whose clock", "ours", &clocks))
            button { "Show" }
        }
        @if let Some(as_of) = query.as_of {
            p { "Balances as of " (instant(as_of.at)) " by " (if as_of.clock == Clock::Recorded { "our clock: what this page would have shown then." } else { "the provider's clock: late events count for when they happened." }) }
        }
        @match &found {
            None if codes.is_empty() => { (empty("No account has been opened yet.", html! { p { "Accounts open by themselves with the first entry that needs them. " a href="/events" { "See what arrived" } } })) }
            None => { (code_table(&codes)) }
            Some(found) if found.rows.is_empty() => { (empty("No account is like that.", html! { p { a href="/ledger/accounts" { "Show all accounts" } } })) }
            Some(found) => { (account_table("Accounts", &found.rows)) (pager(ask, found)) }
        }
        @if let Some(holder) = &query.holder { p { a href=(href("/ledger", &[("holder", holder)])) { "Entries of " (holder) } " · " a href=(href("/events", &[("account", holder)])) { "Events of " (holder) } } }
    };
    let what = "What each account holds. Clearing is what the provider holds for us until it pays out.";
    Ok(page(ask, "Accounts", "/ledger", what, content))
}

/// The page of one account.
pub(in crate::operator) fn one(ask: &Ask) -> Outcome {
    ask.only(&["as_of", "clock", "cursor", "limit"])?;
    let (id, as_of) = (ask.id()?, as_of(ask)?);
    let entries = EntryQuery { account: Some(id), before: ask.cursor()?, limit: ask.limit()?, ..EntryQuery::default() };
    let found = ask.app.shared().store.look(|conn| {
        let Some(account) = books::account(conn, id, as_of)? else { return Ok(None) };
        Ok(Some((account, books::entries(conn, &entries)?)))
    })?;
    let (account, entries) = found.ok_or_else(|| Failure::absent(format!("account {id}")))?;
    let clocks = [("occurred".to_owned(), "the provider's".to_owned())];
    let content = html! {
        p.answer {
            (money_text(account.balance, &account.currency))
            @if let Some(as_of) = as_of { " as of " (instant(as_of.at)) } "."
        }
        dl.facts {
            dt { "Account" } dd { (code(&account.code)) ", " (class(&account.class)) }
            @if let Some(holder) = &account.holder { dt { "Customer" } dd { (customer_link(holder)) } }
            dt { "Book" } dd { (whose(&account)) }
            dt { "Debited" } dd { (money_text(account.debits, &account.currency)) }
            dt { "Credited" } dd { (money_text(account.credits, &account.currency)) }
        }
        form.filter aria-label="Balance as of a time" {
            (day_field(ask, "as_of", "As of the end of"))
            (choice_field(ask, "clock", "By whose clock", "ours", &clocks))
            button { "Show" }
        }
        @if !entries.rows.is_empty() { (entry_rows("Entries that moved it, the newest first", &entries.rows)) }
        (pager(ask, &entries))
    };
    let title = match &account.holder {
        Some(holder) => format!("{} of {holder}", account.code),
        None => account.code.clone(),
    };
    Ok(page(ask, &title, "/ledger", "One account: two counters that only grow, and what moved them.", content))
}
