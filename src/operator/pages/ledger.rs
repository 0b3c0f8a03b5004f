//! Ledger: the entries, one entry, and the correction that takes one back.

use super::{customer_link, entry_link, event_link, postings};
use crate::operator::act;
use crate::operator::answer::{Failure, Outcome, see};
use crate::operator::ask::Ask;
use crate::operator::layout::{
    code, csrf, day_field, empty, href, instant_of, money_text, page, pager, table, text_field,
};
use crate::store::books::{self, EntryQuery};
use crate::store::ledger::EntryLine;
use crate::store::messages::{self, MessageRow};
use maud::{Markup, html};

/// The parameters of a search for entries, on the page and in the API.
pub(in crate::operator) const PARAMETERS: [&str; 8] =
    ["account", "holder", "reference", "kind", "from", "to", "cursor", "limit"];

/// Reads a search for entries.
pub(in crate::operator) fn query(ask: &Ask) -> Result<EntryQuery, Failure> {
    ask.only(&PARAMETERS)?;
    Ok(EntryQuery {
        account: ask.number("account")?,
        holder: ask.text("holder")?,
        reference: ask.text("reference")?,
        kind: ask.text("kind")?,
        from: ask.time("from", false)?,
        to: ask.time("to", true)?,
        before: ask.cursor()?,
        limit: ask.limit()?,
    })
}

/// The two halves of the ledger.
pub(super) fn tabs(current: &str) -> Markup {
    html! {
        nav.tabs aria-label="Ledger" {
            @for (path, name) in [("/ledger", "Entries"), ("/ledger/accounts", "Accounts and balances")] {
                a href=(path) aria-current=[(path == current).then_some("page")] { (name) }
            }
        }
    }
}

/// A list of entries.
pub(super) fn rows(caption: &str, entries: &[EntryLine]) -> Markup {
    let rows = entries
        .iter()
        .map(|entry| {
            vec![
                html! { a href={ "/ledger/entries/" (entry.id) } { (entry.id) } },
                html! { (entry.kind) @if entry.mode == "test" { " (test)" } @if entry.reverses.is_some() { " (takes one back)" } },
                code(&entry.reference),
                html! { @if let Some(account) = &entry.account { (customer_link(account)) } },
                html! { a href={ "/ledger/entries/" (entry.id) } { (money_text(entry.amount, &entry.currency)) } },
                instant_of(&entry.occurred_at),
                instant_of(&entry.recorded_at),
            ]
        })
        .collect();
    table(caption, &["Entry", "Kind", "Reference", "Customer", "#Amount", "Happened", "Recorded"], rows)
}

/// The page of entries.
pub(in crate::operator) fn entries(ask: &Ask) -> Outcome {
    let query = query(ask)?;
    let found = ask.app.shared().store.look(|conn| books::entries(conn, &query))?;
    let asked = ask.query.iter().any(|(_, value)| !value.is_empty());
    let content = html! {
        @if let Some(first) = found.rows.first() {
            @let newest = first.recorded_at.parse::<jiff::Timestamp>().ok().map(|at| at.as_millisecond());
            p.answer { (super::events::found_so_many(found.rows.len(), found.next.is_some(), !asked, newest, "entry")) }
        }
        (tabs("/ledger"))
        form.filter role="search" aria-label="Find entries" {
            (text_field(ask, "reference", "Reference", "pi_… re_… po_…"))
            (text_field(ask, "holder", "Customer", "cus_…"))
            (text_field(ask, "kind", "Kind", "payment, refund, …"))
            (day_field(ask, "from", "Recorded from"))
            (day_field(ask, "to", "Recorded to"))
            button { "Find" }
        }
        @if !found.rows.is_empty() { (rows("Newest first", &found.rows)) }
        @else if asked { (empty("No entry is like that.", html! { p { a href="/ledger" { "Show all entries" } } })) }
        @else { (empty("No money has moved yet.", html! { p { "Each movement that an event announces becomes one entry here, once. " a href="/events" { "See what arrived" } } })) }
        (pager(ask, &found))
    };
    let what = "Every movement of money, posted once: what left one account came to another.";
    Ok(page(ask, "Ledger", "/ledger", what, content))
}

/// One entry with what belongs to it.
pub(in crate::operator) struct Whole {
    pub entry: EntryLine,
    pub reversed_by: Option<i64>,
    pub hash: String,
    pub hash_before: Option<String>,
    pub messages: Vec<MessageRow>,
}

/// Reads one entry.
pub(in crate::operator) fn whole(ask: &Ask) -> Result<Whole, Failure> {
    let id = ask.id()?;
    let found = ask.app.shared().store.look(|conn| {
        let Some(entry) = books::entry(conn, id)? else { return Ok(None) };
        let reversed_by = books::reversal_of(conn, id)?;
        let (hash, hash_before) = books::hashes(conn, id)?;
        let messages = messages::about_entry(conn, id)?;
        Ok(Some(Whole { entry, reversed_by, hash, hash_before, messages }))
    })?;
    found.ok_or_else(|| Failure::absent(format!("entry {id}")))
}

/// The page of one entry.
pub(in crate::operator) fn entry(ask: &Ask) -> Outcome {
    ask.only(&[])?;
    let whole = whole(ask)?;
    let entry = &whole.entry;
    let content = html! {
        p.answer {
            (money_text(entry.amount, &entry.currency)) ", " (entry.kind)
            @if let Some(account) = &entry.account { " of " (account) }
            @if let Some(by) = whole.reversed_by { ": taken back by " (entry_link(by)) }
            "."
        }
        @if let Some(note) = &entry.note { p { "Note: " (note) } }
        (postings(entry))
        h2 { "About it" }
        dl.facts {
            dt { "Reference" } dd { a href=(href("/ledger", &[("reference", &entry.reference)])) { (code(&entry.reference)) } }
            @if let Some(parent) = &entry.parent { dt { "Belongs to" } dd { a href=(href("/ledger", &[("reference", parent)])) { (code(parent)) } } }
            @if let Some(reverses) = entry.reverses { dt { "Takes back" } dd { (entry_link(reverses)) } }
            @if let Some(account) = &entry.account { dt { "Customer" } dd { (customer_link(account)) } }
            dt { "Book" } dd { (entry.tenant) " at " (entry.provider) @if !entry.provider_account.is_empty() { " (" (entry.provider_account) ")" } ", " (entry.mode) }
            dt { "Happened" } dd { (instant_of(&entry.occurred_at)) " by the provider's clock" }
            dt { "Recorded" } dd { (instant_of(&entry.recorded_at)) " by ours" }
            dt { "Brought by" } dd { "event " (event_link(entry.raw_event)) }
            @for message in &whole.messages {
                dt { "Told to " (message.endpoint) } dd { a href={ "/outbox/" (message.id) } { "message " (message.id) } ", " (message.state.to_lowercase()) }
            }
            dt { "Hash" } dd { (code(&whole.hash)) }
            @if let Some(before) = &whole.hash_before { dt { "Linked to" } dd { (code(before)) } }
        }
        @if whole.reversed_by.is_none() && entry.reverses.is_none() && ask.may_change() {
            h2 { "Correct it" }
            p { "An entry is never changed. A wrong one is taken back by a new one, with a reason." }
            form.note action={ "/ledger/entries/" (entry.id) "/reverse" } {
                label { span { "Why is it wrong?" } textarea name="note" required maxlength="2000" {} }
                button.plainer { "See the entry that would take it back" }
            }
        }
    };
    Ok(page(
        ask,
        &format!("Entry {}", entry.id),
        "/ledger",
        "One movement of money, with both clocks and its link in the chain.",
        content,
    ))
}

/// The entry that would take one back.
pub(in crate::operator) fn reversal(ask: &Ask) -> Outcome {
    ask.only(&["note"])?;
    let (id, note) = (ask.id()?, ask.typed("note").trim().to_owned());
    let entry = act::preview_reversal(ask.app, id, &note)?;
    let content = html! {
        p.answer { (money_text(entry.amount, &entry.currency)) " would be posted, taking back " (entry_link(id)) "." }
        p { "Note: " (note) }
        (postings(&entry))
        @if ask.may_change() {
            form.note method="post" action={ "/ledger/entries/" (id) "/reverse" } {
                (csrf(&ask.who))
                input type="hidden" name="note" value=(note);
                div.buttons { button { "Take entry " (id) " back" } a href={ "/ledger/entries/" (id) } { "Leave it" } }
            }
        }
    };
    let what = "It was written, read and undone: nothing has changed yet. An entry can be taken back once.";
    Ok(page(ask, &format!("Take entry {id} back?"), "/ledger", what, content))
}

/// Takes an entry back.
pub(in crate::operator) fn reverse(ask: &Ask) -> Outcome {
    let id = ask.id()?;
    let by = act::reverse(ask, id, &ask.note()?)?;
    ask.app.access.tell(ask.head, &format!("Entry {id} is taken back by entry {by}"));
    Ok(see(&format!("/ledger/entries/{by}")))
}
