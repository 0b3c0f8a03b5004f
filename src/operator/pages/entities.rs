//! Entities: the latest state of subscriptions, disputes and the like.

use super::{customer_link, event_link};
use crate::operator::answer::{Failure, Outcome};
use crate::operator::ask::{Ask, cursor_of_key};
use crate::operator::layout::{code, empty, instant, number, page, pager_to, status, table, text_field};
use crate::store::entities::{self, EntityKey, EntityQuery, EntityRow};
use crate::store::search::Page;
use maud::html;
use std::collections::BTreeMap;

/// Reads a question for entities. The cursor is a place in the order of the keys.
pub(in crate::operator) fn find(ask: &Ask) -> Result<Page<EntityRow, EntityKey>, Failure> {
    ask.only(&["kind", "id", "status", "cursor", "limit"])?;
    let query = EntityQuery {
        kind: ask.text("kind")?,
        id: ask.text("id")?,
        status: ask.text("status")?,
        after: ask.cursor_key()?,
        limit: ask.limit()?,
    };
    Ok(ask.app.shared().store.look(|conn| entities::find(conn, &query))?)
}

/// What is on the page in a sentence: how many, and in which states.
fn answer(found: &Page<EntityRow, EntityKey>) -> String {
    let mut states: BTreeMap<&str, i64> = BTreeMap::new();
    found.rows.iter().for_each(|entity| *states.entry(&entity.status).or_default() += 1);
    let mut states: Vec<(&str, i64)> = states.into_iter().collect();
    states.sort_by_key(|(_, count)| -count);
    let states: Vec<String> = states.iter().map(|(status, count)| format!("{} {status}", number(*count))).collect();
    let many = found.rows.len() as i64;
    match (found.next.is_some(), many) {
        (true, _) => format!("The next {} objects: {}.", number(many), states.join(", ")),
        (false, 1) => format!("1 object: {}.", states.join(", ")),
        (false, _) => format!("{} objects: {}.", number(many), states.join(", ")),
    }
}

/// The page.
pub(in crate::operator) fn list(ask: &Ask) -> Outcome {
    let found = find(ask)?;
    let asked = ask.query.iter().any(|(_, value)| !value.is_empty());
    let rows = found
        .rows
        .iter()
        .map(|entity| {
            vec![
                code(&entity.id),
                html! { (entity.kind) },
                html! {
                    (status(&entity.status))
                    @if entity.provider_status.as_ref().is_some_and(|theirs| *theirs != entity.status) { span.soft { "theirs: " (entity.provider_status.as_deref().unwrap_or_default()) } }
                    @if entity.tied { span.soft { "two states of one instant: the stricter was kept" } }
                },
                html! { @if let Some(account) = &entity.account { (customer_link(account)) } @else { "not named" } },
                html! { (entity.tenant) " at " (entity.provider) @if entity.mode == "test" { ", test" } },
                instant(entity.as_of),
                event_link(entity.raw_event),
            ]
        })
        .collect();
    let content = html! {
        @if !found.rows.is_empty() { p.answer { (answer(&found)) } }
        form.filter role="search" aria-label="Find entities" {
            (text_field(ask, "id", "Id", "sub_… dp_…"))
            (text_field(ask, "kind", "Kind", "subscription, dispute, …"))
            (text_field(ask, "status", "Status", "active, past_due, …"))
            button { "Find" }
        }
        @if !found.rows.is_empty() { (table("In the order of their ids", &["Id", "Kind", "Status", "Customer", "Book", "As of", "Event"], rows)) }
        @else if asked { (empty("No entity is like that.", html! { p { a href="/entities" { "Show all entities" } } })) }
        @else { (empty("No entity is known yet.", html! { p { "When an event carries the state of a subscription, a dispute or the like, its latest state is kept here, and older events never turn it back." } })) }
        (pager_to(ask, found.next.as_ref().map(cursor_of_key), None))
    };
    Ok(page(
        ask,
        "Entities",
        "/entities",
        "The latest state of each object whose state we follow. It moves forward only.",
        content,
    ))
}
