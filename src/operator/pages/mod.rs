//! The pages, one a file. Each answers one question in its first line and then shows how it knows.

pub(super) mod accounts;
pub(super) mod audit;
pub(super) mod dead;
pub(super) mod entities;
pub(super) mod event;
pub(super) mod events;
pub(super) mod health;
pub(super) mod ledger;
pub(super) mod login;
pub(super) mod outbox;
pub(super) mod settlement;
pub(super) mod sources;
pub(super) mod today;

use super::answer::Outcome;
use super::ask::Ask;
use super::layout::{code, href};
use crate::edge::Response;
use crate::store::ledger::EntryLine;
use maud::{Markup, html};

const SHEET: &str = include_str!("../style.css");

/// The sheet, kept by browsers until its content changes.
pub(super) fn style(ask: &Ask) -> Outcome {
    use sha2::{Digest as _, Sha256};
    let tag = format!("\"{}\"", &hex::encode(Sha256::digest(SHEET))[..16]);
    let same = ask.head.headers.get_str("if-none-match") == Some(tag.as_str());
    let response = if same { Response::new(304) } else { Response::new(200).with_body(SHEET.as_bytes()) };
    Ok(response
        .with_header("Content-Type", "text/css; charset=utf-8")
        .with_header("Cache-Control", "no-cache")
        .with_header("ETag", tag))
}

/// One line and one stroke: a payment, once.
const ICON: &str = r##"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 32 32"><rect width="32" height="32" rx="7" fill="#0b57a4"/><path d="M8 17l6 6 11-14" fill="none" stroke="#fff" stroke-width="4" stroke-linecap="round" stroke-linejoin="round"/></svg>"##;

/// The icon.
pub(super) fn icon(_: &Ask) -> Outcome {
    Ok(Response::new(200)
        .with_header("Content-Type", "image/svg+xml")
        .with_header("Cache-Control", "max-age=86400")
        .with_body(ICON.as_bytes()))
}

/// A link to a raw event.
fn event_link(id: i64) -> Markup {
    html! { a href={ "/events/" (id) } { (id) } }
}

/// A link to an entry.
fn entry_link(id: i64) -> Markup {
    html! { a href={ "/ledger/entries/" (id) } { "entry " (id) } }
}

/// A customer, linked to their accounts.
fn customer_link(name: &str) -> Markup {
    html! { a href=(href("/ledger/accounts", &[("holder", name)])) { (code(name)) } }
}

/// The postings of an entry: from which account to which.
fn postings(entry: &EntryLine) -> Markup {
    let whose = |holder: &Option<String>| holder.as_deref().map(|holder| html! { " of " (customer_link(holder)) });
    let rows = entry
        .postings
        .iter()
        .map(|posting| {
            vec![
                html! { (posting.debit) },
                html! { (posting.credit) },
                html! { (super::layout::money_text(posting.amount, &posting.currency)) },
                html! { @if let Some(whose) = whose(&posting.holder) { "sub-account" (whose) } },
            ]
        })
        .collect();
    super::layout::table("What moved", &["Debit", "Credit", "#Amount", "Customer"], rows)
}
