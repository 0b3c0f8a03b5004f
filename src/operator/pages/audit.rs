//! Audit: who changed what, and when.

use super::{entry_link, event_link};
use crate::operator::answer::Outcome;
use crate::operator::ask::Ask;
use crate::operator::layout::{empty, instant, page, pager, since, table, text_field};
use crate::store::audit;
use crate::store::search::Page;
use maud::{Markup, html};

/// A page of the audit.
pub(in crate::operator) fn find(ask: &Ask) -> Result<Page<audit::Line>, crate::operator::answer::Failure> {
    ask.only(&["target", "cursor", "limit"])?;
    let (target, before, limit) = (ask.text("target")?, ask.cursor()?, ask.limit()?);
    let mut rows = ask.app.shared().store.look(|conn| audit::list(conn, target.as_deref(), before, limit + 1))?;
    let more = rows.len() > limit;
    rows.truncate(limit);
    let next = if more { rows.last().map(|line| line.id) } else { None };
    Ok(Page { rows, next, looked_back_to: None })
}

fn target(text: &str) -> Markup {
    match text.split_once(' ').map(|(what, id)| (what, id.parse::<i64>())) {
        Some(("event", Ok(id))) => html! { "event " (event_link(id)) },
        Some(("entry", Ok(id))) => entry_link(id),
        Some(("message", Ok(id))) => html! { a href={ "/outbox/" (id) } { "message " (id) } },
        Some(("discrepancy", Ok(id))) => html! { a href={ "/settlement/discrepancies/" (id) } { "discrepancy " (id) } },
        _ => html! { (text) },
    }
}

/// The page.
pub(in crate::operator) fn list(ask: &Ask) -> Outcome {
    let found = find(ask)?;
    let rows = found
        .rows
        .iter()
        .map(|line| {
            vec![
                instant(line.at),
                html! { (line.who) },
                html! { (line.what) },
                target(&line.target),
                html! { (line.note.as_deref().unwrap_or_default()) },
            ]
        })
        .collect();
    let asked = ask.query.iter().any(|(_, value)| !value.is_empty());
    let content = html! {
        @if let Some(newest) = found.rows.first().filter(|_| !asked) { p.answer { "The newest change was made " (since(newest.at)) " by " (newest.who) "." } }
        form.filter role="search" aria-label="Find changes" {
            (text_field(ask, "target", "To what", "event 12, entry 7, discrepancy 3"))
            button { "Find" }
        }
        @if found.rows.is_empty() && asked { (empty("Nobody has changed that.", html! { p { a href="/audit" { "Show all changes" } } })) }
        @else if found.rows.is_empty() { (empty("Nobody has changed anything.", html! { p { "Each replay, requeue and correction is written here, in the commit of the change itself. It cannot be altered afterwards." } })) }
        @else { (table("Newest first", &["When", "Who", "What", "To what", "Note"], rows)) }
        (pager(ask, &found))
    };
    Ok(page(ask, "Audit", "/audit", "Every change that a person made: who, when, what, and why.", content))
}
