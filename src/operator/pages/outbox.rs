//! Outbox: what waits to be sent, what is late, what was given up, and every attempt.

use super::{entry_link, event_link};
use crate::clock;
use crate::operator::act;
use crate::operator::answer::{Failure, Outcome, see};
use crate::operator::ask::Ask;
use crate::operator::layout::{
    choice_field, code, count, csrf, empty, instant, number, page, pager, since, state, table,
};
use crate::store::messages::{self, AttemptRow, MessageRow, Standing, Which};
use crate::store::search::Page;
use maud::{Markup, html};

const STATES: [(&str, Which); 2] = [("waiting", Which::Waiting), ("dead", Which::Dead)];

/// Reads a question for messages.
pub(in crate::operator) fn find(ask: &Ask) -> Result<(Page<MessageRow>, Standing), Failure> {
    ask.only(&["state", "cursor", "limit"])?;
    let which = ask.one_of("state", &STATES)?.unwrap_or_default();
    let (before, limit) = (ask.cursor()?, ask.limit()?);
    Ok(ask
        .app
        .shared()
        .store
        .look(|conn| Ok((messages::list(conn, which, before, limit)?, messages::standing(conn, clock::steady())?)))?)
}

/// A list of messages.
pub(super) fn rows(caption: &str, messages: &[MessageRow]) -> Markup {
    let now = clock::steady();
    let rows = messages
        .iter()
        .map(|message| {
            let late = message.due_at.is_some_and(|due| due < now - 60_000);
            vec![
                html! { a href={ "/outbox/" (message.id) } { (message.id) } },
                html! { (message.endpoint) },
                html! { @if let Some(entry) = message.entry { (entry_link(entry)) } @else { "event " (event_link(message.raw_event)) } },
                html! {
                    (state(if late { "late" } else { &message.state }))
                    @if let Some(error) = message.last_error.as_ref().filter(|_| message.state != "SENT") { span.soft { (error) } }
                },
                html! { (message.attempts) },
                html! { @match (message.due_at, message.ended_at) { (Some(due), _) => { "next " (since(due)) }, (_, Some(ended)) => { (instant(ended)) }, _ => {} } },
            ]
        })
        .collect();
    table(caption, &["Message", "Endpoint", "About", "State", "#Attempts", "When"], rows)
}

/// The page.
pub(in crate::operator) fn list(ask: &Ask) -> Outcome {
    let (found, standing) = find(ask)?;
    let words: Vec<(String, String)> =
        STATES.iter().map(|(word, _)| ((*word).to_owned(), (*word).to_owned())).collect();
    let content = html! {
        p.answer { (sentence(&standing)) }
        form.filter aria-label="Filter messages" { (choice_field(ask, "state", "State", "any", &words)) button { "Show" } }
        @if standing.dead > 0 && ask.may_change() {
            div.buttons { form method="post" action="/outbox/requeue" { (csrf(&ask.who)) button.plainer { "Send all dead messages again" } } }
        }
        @if !found.rows.is_empty() { (rows("Newest first", &found.rows)) }
        @else if ask.app.shared().endpoints.is_empty() {
            (empty("Nobody is told.", html! {
                p { "Name an endpoint of your app, and each entry is sent to it, signed, until it is accepted:" }
                pre { "[[deliver]]\nname = \"app\"\nurl = \"http://127.0.0.1:3000/payments\"\nsecret = \"env:POSTONCE_DELIVER_SECRET\"" }
                p { "To see what would come: " code { "postonce listen" } }
            }))
        }
        @else { (empty("No message is here.", html! { p { "A message is put in line with each entry that an endpoint wants to hear of." } })) }
        (pager(ask, &found))
    };
    let what = "Messages to your app. Each is written with its entry, in one commit, and sent until it is accepted.";
    Ok(page(ask, "Outbox", "/outbox", what, content))
}

/// How the outbox stands, in words.
pub(super) fn sentence(standing: &Standing) -> Markup {
    html! {
        @if standing.waiting == 0 { "Nothing waits to be sent" }
        @else {
            (count(standing.waiting)) @if standing.waiting == 1 { " message waits" } @else { " messages wait" }
            @if let Some(oldest) = standing.oldest { ", the oldest written " (since(oldest)) }
            @if standing.late > 0 { "; " (count(standing.late)) " late" }
        }
        @if standing.dead > 0 { "; " (number(standing.dead)) " given up" }
        "."
    }
}

/// One message with its attempts.
pub(in crate::operator) fn whole(ask: &Ask) -> Result<(MessageRow, Vec<AttemptRow>), Failure> {
    let id = ask.id()?;
    let found = ask.app.shared().store.look(|conn| {
        let Some(message) = messages::message(conn, id)? else { return Ok(None) };
        Ok(Some((message, messages::attempts(conn, id)?)))
    })?;
    found.ok_or_else(|| Failure::absent(format!("message {id}")))
}

/// The page of one message.
pub(in crate::operator) fn one(ask: &Ask) -> Outcome {
    ask.only(&[])?;
    let (message, attempts) = whole(ask)?;
    let id = message.id;
    let url = ask.app.shared().endpoints.get(&message.endpoint).map(|endpoint| endpoint.url.clone());
    let rows = attempts
        .iter()
        .rev()
        .map(|attempt| {
            vec![
                instant(attempt.at),
                html! { @if let Some(status) = attempt.status { (status) } @else { "no answer" } },
                html! { (attempt.took_ms) " ms" },
                html! { @match &attempt.error { Some(error) => (error), None => "accepted" } },
            ]
        })
        .collect();
    let content = html! {
        p.answer {
            @match message.state.as_str() {
                "SENT" => { "Accepted by " (message.endpoint) "." },
                "DEAD" => { "Given up: " (message.last_error.as_deref().unwrap_or("no answer")) "." },
                _ => { "Waits for " (message.endpoint) @if let Some(due) = message.due_at { ", next attempt " (since(due)) } "." },
            }
        }
        dl.facts {
            dt { "Endpoint" } dd { (message.endpoint) @match &url { Some(url) => { ", " (code(url)) }, None => ", which is no longer in the configuration" } }
            dt { "About" } dd { @if let Some(entry) = message.entry { (entry_link(entry)) ", " } "event " (event_link(message.raw_event)) }
            dt { "Idempotency-Key" } dd { (code(&message.key)) }
            dt { "Written" } dd { (instant(message.created_at)) }
            dt { "State" } dd { (state(&message.state)) }
        }
        @if message.state == "DEAD" && ask.may_change() {
            form.note method="post" action={ "/outbox/" (id) "/requeue" } {
                (csrf(&ask.who))
                label { span { "Why? For the audit (optional)" } textarea name="note" maxlength="2000" {} }
                button { "Send message " (id) " again" }
            }
        }
        @if attempts.is_empty() { p { "No attempt yet." } } @else { (table("Attempts, the newest first", &["When", "#Status", "#Took", "Outcome"], rows)) }
    };
    Ok(page(
        ask,
        &format!("Message {id}"),
        "/outbox",
        "One message to one endpoint, and every attempt to deliver it.",
        content,
    ))
}

/// Puts a dead message in line again.
pub(in crate::operator) fn requeue(ask: &Ask) -> Outcome {
    let id = ask.id()?;
    act::requeue(ask, id, &ask.note()?)?;
    ask.app.access.tell(ask.head, &format!("Message {id} is in line again"));
    Ok(see(&format!("/outbox/{id}")))
}

/// Puts all dead messages in line again.
pub(in crate::operator) fn requeue_dead(ask: &Ask) -> Outcome {
    let count = act::requeue_dead(ask, &ask.note()?)?;
    ask.app.access.tell(ask.head, &format!("{count} messages are in line again"));
    Ok(see("/outbox"))
}
