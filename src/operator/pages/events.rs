//! Events: everything that arrived, found by what people have in hand.

use super::event_link;
use crate::event::Millis;
use crate::operator::answer::{Failure, Outcome};
use crate::operator::ask::Ask;
use crate::operator::layout::{
    choice_field, code, day_field, empty, instant, page, pager, since, state, table, text_field,
};
use crate::store::raw::State;
use crate::store::search::{self, EventQuery, EventRow};
use maud::{Markup, html};

/// The parameters of a search, on the page and in the API.
pub(in crate::operator) const PARAMETERS: [&str; 9] =
    ["id", "account", "type", "state", "source", "from", "to", "cursor", "limit"];

/// Reads a search.
pub(in crate::operator) fn query(ask: &Ask) -> Result<EventQuery, Failure> {
    ask.only(&PARAMETERS)?;
    let words: Vec<(String, State)> = State::ALL.iter().map(|s| (s.as_str().to_lowercase(), *s)).collect();
    let words: Vec<(&str, State)> = words.iter().map(|(word, state)| (word.as_str(), *state)).collect();
    Ok(EventQuery {
        id: ask.text("id")?,
        account: ask.text("account")?,
        kind: ask.text("type")?,
        states: ask.one_of("state", &words)?.map(|state| vec![state.as_str()]).unwrap_or_default(),
        source: ask.text("source")?,
        from: ask.time("from", false)?,
        to: ask.time("to", true)?,
        before: ask.cursor()?,
        limit: ask.limit()?,
    })
}

/// A list of events.
pub(in crate::operator) fn rows(caption: &str, events: &[EventRow]) -> Markup {
    let rows = events
        .iter()
        .map(|event| {
            vec![
                event_link(event.id),
                instant(event.received_at),
                html! { a href={ "/sources#" (event.source) } { (event.source) } },
                html! {
                    (event.kind.as_deref().unwrap_or("not read yet"))
                    @if let Some(id) = &event.event_id { span.soft { (code(id)) } }
                },
                html! {
                    (state(&event.state))
                    @if event.mode.as_deref() == Some("test") { " test" }
                    @if let Some(reason) = &event.reason { span.soft { (reason) } }
                },
            ]
        })
        .collect();
    table(caption, &["Event", "Received", "Source", "Type", "State"], rows)
}

/// The page.
pub(in crate::operator) fn list(ask: &Ask) -> Outcome {
    let query = query(ask)?;
    let found = ask.app.shared().store.look(|conn| search::events(conn, &query))?;
    let nothing_asked = ask.query.iter().all(|(_, value)| value.is_empty());
    let choices = |words: &[&str]| words.iter().map(|w| ((*w).to_owned(), (*w).to_owned())).collect::<Vec<_>>();
    let states: Vec<String> = State::ALL.iter().map(|s| s.as_str().to_lowercase()).collect();
    let states = choices(&states.iter().map(String::as_str).collect::<Vec<_>>());
    let mut sources: Vec<&str> = ask.app.shared().sources.keys().map(String::as_str).collect();
    sources.sort_unstable();
    let content = html! {
        @if !found.rows.is_empty() { p.answer { (found_so_many(found.rows.len(), found.next.is_some(), nothing_asked, found.rows.first().map(|row| row.received_at), "event")) } }
        form.filter role="search" aria-label="Find events" {
            (text_field(ask, "id", "Event id or reference", "evt_… pi_… re_…"))
            (text_field(ask, "account", "Customer", "cus_…"))
            (text_field(ask, "type", "Type", "charge.*"))
            (choice_field(ask, "state", "State", "any", &states))
            (choice_field(ask, "source", "Source", "any", &choices(&sources)))
            (day_field(ask, "from", "From"))
            (day_field(ask, "to", "To"))
            button { "Find" }
        }
        @if !found.rows.is_empty() {
            (rows("Newest first", &found.rows))
        } @else if nothing_asked {
            (none_yet(ask))
        } @else if found.looked_back_to.is_none() {
            (empty("No event is like that.", html! {
                p { "An event id is what the provider calls the event; a reference is a payment, refund, payout or the like. "
                    a href="/events" { "Show all events" } }
            }))
        }
        (pager(ask, &found))
    };
    let what = "Every verified delivery, as it was stored, and what became of it.";
    Ok(page(ask, "Events", "/events", what, content))
}

/// The first line of a list: how lively it is, or how many were found.
pub(super) fn found_so_many(n: usize, more: bool, all: bool, newest: Option<Millis>, what: &str) -> Markup {
    let what = if what == "entry" && n != 1 && !all {
        "entries".to_owned()
    } else if n != 1 && !all {
        format!("{what}s")
    } else {
        what.to_owned()
    };
    html! {
        @match newest.filter(|_| all) {
            Some(at) => { "The newest " (what) " came " (since(at)) "." },
            None => { @if more { "More than " } (n) " " (what) " found." },
        }
    }
}

/// What to do when nothing has arrived.
pub(in crate::operator) fn none_yet(ask: &Ask) -> Markup {
    let config = &ask.app.config;
    let base = config.public_url.clone().unwrap_or_else(|| format!("http://{}", config.listen));
    let mut sources: Vec<_> = ask.app.shared().sources.values().collect();
    sources.sort_unstable_by(|a, b| a.name.cmp(&b.name));
    empty(
        "No events yet.",
        html! {
            @if sources.is_empty() {
                p { "There is no source in the configuration. Make one with " code { "postonce init stripe" } "." }
            }
            @for source in sources.iter().take(3) {
                @let url = format!("{}/webhooks/{}", base.trim_end_matches('/'), source.name);
                p { "Point " (source.recipe.title) " at " (code(&url)) ", or try:" }
                pre { "postonce send " (url) " --secret env:" (source.recipe.provider.to_uppercase()) "_WEBHOOK_SECRET" }
            }
        },
    )
}
