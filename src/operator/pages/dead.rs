//! Dead letters: what waits for a person, with what to do about it.

use super::event_link;
use crate::clock::wall;
use crate::operator::act;
use crate::operator::answer::{Outcome, see};
use crate::operator::ask::Ask;
use crate::operator::layout::{code, count, csrf, duration, empty, instant, page, pager, state, table};
use crate::store::overview;
use crate::store::search::{self, EventQuery};
use maud::html;

/// The page.
pub(in crate::operator) fn list(ask: &Ask) -> Outcome {
    ask.only(&["cursor", "limit"])?;
    let query = EventQuery {
        states: vec!["DEAD", "CONFLICT", "PARKED"],
        before: ask.cursor()?,
        limit: ask.limit()?,
        ..EventQuery::default()
    };
    let (found, waiting) =
        ask.app.shared().store.look(|conn| Ok((search::events(conn, &query)?, overview::for_a_person(conn)?)))?;
    let total: i64 = waiting.iter().map(|w| w.count).sum();
    let dead = waiting.iter().find(|w| w.state == "DEAD").map_or(0, |w| w.count);
    let oldest = waiting.iter().filter_map(|w| w.oldest).map(|(_, at)| at).min();
    let rows = found
        .rows
        .iter()
        .map(|event| {
            vec![
                event_link(event.id),
                html! { (state(&event.state)) },
                html! {
                    (event.reason.as_deref().unwrap_or_default())
                    span.soft { (event.source) ": " (event.kind.as_deref().unwrap_or("not read")) @if let Some(id) = &event.event_id { " " (code(id)) } }
                },
                instant(event.received_at),
                html! { @if ask.may_change() { a.button.plainer href={ "/events/" (event.id) "/replay" } { "Replay" span.skip { " event " (event.id) } "…" } } },
            ]
        })
        .collect();
    let content = html! {
        p.answer {
            @if total == 0 { "Nothing waits for a person." }
            @else { (count(total)) @if total == 1 { " event waits" } @else { " events wait" } " for a person" @if let Some(oldest) = oldest { ", the oldest for " (duration(wall() - oldest)) } "." }
        }
        @if dead > 1 && ask.may_change() {
            div.buttons { form method="post" action="/dead/replay" { (csrf(&ask.who)) button.plainer { "Replay all " (count(dead)) " dead events" } } }
        }
        @if !found.rows.is_empty() { (table("Newest first", &["Event", "State", "Why", "Received", "What to do"], rows)) }
        @else {
            (empty("All clear.", html! {
                p { "Here you would find events that failed too often (dead), that cannot be posted without guessing (parked), or that say another amount than what is posted (in conflict). None is lost: its bytes are kept, and a replay sends it through the same path." }
            }))
        }
        (pager(ask, &found))
    };
    let what = "Events that postonce will not go on with by itself.";
    Ok(page(ask, "Dead letters", "/dead", what, content))
}

/// Replays all dead events.
pub(in crate::operator) fn replay_all(ask: &Ask) -> Outcome {
    let count = act::replay_dead(ask, &ask.note()?)?;
    ask.app.access.tell(ask.head, &format!("{count} events are on their way again"));
    Ok(see("/dead"))
}
