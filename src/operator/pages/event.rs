//! One event: its story from top to bottom, then its bytes. Replay shows first what it would change.

use super::{customer_link, entry_link, event_link, postings};
use crate::edge::Response;
use crate::event::Millis;
use crate::operator::act;
use crate::operator::answer::{Failure, Outcome, see};
use crate::operator::ask::Ask;
use crate::operator::layout::{
    code, csrf, duration, href, instant, instant_of, money_text, number, page as framed, since, state,
};
use crate::source::Source;
use crate::steps::preview::Preview;
use crate::store::audit::{self, Line};
use crate::store::ledger::EntryLine;
use crate::store::messages::{self, AttemptRow, MessageRow};
use crate::store::raw::{self, Body};
use crate::store::search::{self, EventRow};
use crate::store::{books, listing};
use maud::{Markup, html};
use std::sync::Arc;

/// Everything that is known of one event.
pub(in crate::operator) struct Story {
    pub row: EventRow,
    pub body: Option<Body>,
    pub entries: Vec<EntryLine>,
    pub messages: Vec<(MessageRow, Vec<AttemptRow>)>,
    pub audit: Vec<Line>,
    pub batch: Option<(i64, i64)>,
    pub items: Vec<i64>,
}

/// Reads it.
pub(in crate::operator) fn story(ask: &Ask, id: i64) -> Result<Story, Failure> {
    let found = ask.app.shared().store.look(|conn| {
        let Some(row) = search::event(conn, id)? else { return Ok(None) };
        let batch = search::batch_of(conn, id)?;
        let mut body = raw::body(conn, batch.map_or(id, |(batch, _)| batch))?;
        if let Some(body) = &mut body {
            body.headers = shown(&body.headers, ask.app.shared().sources.get(&row.source).map(Arc::as_ref));
        }
        let entries = books::entries_of_event(conn, id)?;
        let mut sent = Vec::new();
        for entry in &entries {
            for message in messages::about_entry(conn, entry.id)? {
                let attempts = messages::attempts(conn, message.id)?;
                sent.push((message, attempts));
            }
        }
        let audit = audit::list(conn, Some(&format!("event {id}")), None, 50)?;
        let items = if batch.is_none() { search::items_of(conn, id)? } else { Vec::new() };
        Ok(Some(Story { row, body, entries, messages: sent, audit, batch, items }))
    })?;
    found.ok_or_else(|| Failure::absent(format!("event {id}")))
}

/// The headers without what proves the sender, which is made from the secret. Of a source that is no longer configured
/// nobody can say which that is.
fn shown(headers: &str, source: Option<&Source>) -> String {
    let proves = |name: &str| source.is_none_or(|source| source.recipe.signature.is_proven_by(name));
    let line = |line: &str| match line.split_once(": ") {
        Some((name, value)) if proves(name) => format!("{name}: ({} bytes, kept and not shown)\n", value.len()),
        _ => format!("{line}\n"),
    };
    headers.lines().map(line).collect()
}

/// The page.
pub(in crate::operator) fn page(ask: &Ask) -> Outcome {
    ask.only(&["pretty"])?;
    let pretty = ask.one_of("pretty", &[("1", true)])?.unwrap_or(false);
    let story = story(ask, ask.id()?)?;
    let row = &story.row;
    let title = format!("Event {}", row.id);
    let content = html! {
        p.answer { (sentence(&story)) }
        @if can_replay(&row.state) && ask.may_change() {
            div.buttons { a.button href={ "/events/" (row.id) "/replay" } { "See what a replay would change" } }
        }
        h2 #story { "Story" }
        ol.story aria-labelledby="story" {
            (arrived(&story))
            (read_as(&story))
            (claimed(&story))
            @for entry in &story.entries { (posted(entry)) }
            @for (message, attempts) in &story.messages { (sent(message, attempts)) }
            @for line in story.audit.iter().rev() { (changed(line)) }
        }
        (bytes(&story, pretty))
    };
    Ok(framed(ask, &title, "/events", "One delivery of a provider, from its arrival to its end.", content))
}

fn can_replay(state: &str) -> bool {
    matches!(state, "DEAD" | "PARKED" | "CONFLICT" | "IGNORED")
}

fn sentence(story: &Story) -> Markup {
    let row = &story.row;
    let reason = row.reason.as_deref().unwrap_or("no reason was noted");
    html! {
        @match row.state.as_str() {
            "DONE" => {
                @if let Some(entry) = story.entries.first() {
                    "Posted: " a href={ "/ledger/entries/" (entry.id) } { (money_text(entry.amount, &entry.currency)) }
                    " (" (entry.kind) "), " (took(row)) " after it arrived."
                } @else if let Some(reason) = &row.reason { "Done, and no money moved: " (reason) "." }
                @else { "Done. No money moved." }
            }
            "DUPLICATE" => { "A repeat, ignored: " (reason) "." }
            "IGNORED" => { "Ignored: " (reason) "." }
            "PARKED" => { "Parked for a person: " (reason) "." }
            "CONFLICT" => { "In conflict: " (reason) "." }
            "DEAD" => { "Dead after " (row.attempts) " attempts: " (reason) "." }
            _ => {
                "On its way."
                @if let Some(reason) = &row.reason { " The last attempt failed: " (reason) "." }
            }
        }
    }
}

fn took(row: &EventRow) -> String {
    row.ended_at.map_or("some time".into(), |ended| duration((ended - row.received_at).max(0)))
}

fn step(class: &str, name: &str, at: Option<Millis>, content: Markup) -> Markup {
    html! {
        li class=(class) {
            h3 { (name) }
            @if let Some(at) = at { (instant(at)) }
            (content)
        }
    }
}

fn arrived(story: &Story) -> Markup {
    let row = &story.row;
    let content = html! {
        p {
            "by " a href={ "/sources#" (row.source) } { (row.source) } " as " (row.origin)
            @if let Some((batch, item)) = story.batch { ", number " (item) " of the batch in event " (event_link(batch)) }
            @if let Some(secret) = &row.secret { "; the signature holds with the secret " (code(secret)) }
            @else { "; no secret was needed" }
            @if let Some(body) = &story.body { "; " a href="#body" { (number(body.bytes.len() as i64)) " bytes" } }
            "."
        }
        @if !story.items.is_empty() {
            p { "It brought " (story.items.len()) " events: "
                @for (at, item) in story.items.iter().take(50).enumerate() { @if at > 0 { ", " } (event_link(*item)) }
                @if story.items.len() > 50 { ", …" }
            }
        }
    };
    step("done", "Arrived", Some(row.received_at), content)
}

fn read_as(story: &Story) -> Markup {
    let row = &story.row;
    let Some(kind) = &row.kind else {
        let what = if row.state == "RECEIVED" { "not yet" } else { "not as one event" };
        return step("wait", "Read", None, html! { p { (what) "." } });
    };
    let content = html! {
        p {
            "as " (code(kind))
            @if let Some(id) = &row.event_id {
                ", event " a href=(href("/events", &[("id", id)])) { (code(id)) }
            }
            @if let Some(mode) = &row.mode { ", " (mode) " mode" }
            @if let (Some(tenant), Some(provider)) = (&row.tenant, &row.provider) { ", for " (tenant) " at " (provider) }
            "."
            @if let Some(at) = row.occurred_at { " It happened at " (instant(at)) " by the provider's clock." }
        }
    };
    step("done", "Read", None, content)
}

fn claimed(story: &Story) -> Markup {
    let row = &story.row;
    let (class, name) = match row.state.as_str() {
        "DONE" => ("done", "Claimed"),
        "RECEIVED" => ("wait", "Waiting"),
        "CLAIMED" => ("wait", "Claimed"),
        "DUPLICATE" => ("plain", "Known already"),
        "IGNORED" => ("plain", "Ignored"),
        "PARKED" => ("need", "Parked"),
        "CONFLICT" => ("need", "In conflict"),
        _ => ("need", "Given up"),
    };
    let attempts = match row.attempts {
        0 => "without an attempt to post".to_owned(),
        1 => "in the first attempt".to_owned(),
        n => format!("after {n} attempts"),
    };
    let content = html! {
        p { (state(&row.state)) " " (attempts) "." }
        @if let Some(reason) = &row.reason { p { (reason) "." } }
        @if let Some(hint) = hint(&row.state) { p.soft { "Try: " (hint) } }
    };
    step(class, name, row.ended_at, content)
}

fn hint(state: &str) -> Option<&'static str> {
    match state {
        "PARKED" => Some("mend what the reason names, then replay. What waits for another movement goes on by itself."),
        "CONFLICT" => Some(
            "compare the two amounts with the provider's dashboard. If the posted one is wrong, take its entry back with a note.",
        ),
        "DEAD" => Some("mend the cause (often a rule's SQL), then replay: its attempts are counted anew."),
        _ => None,
    }
}

fn posted(entry: &EntryLine) -> Markup {
    let content = html! {
        p {
            (entry_link(entry.id)) ": " strong { (money_text(entry.amount, &entry.currency)) } ", "
            (entry.kind) " " (code(&entry.reference))
            @if let Some(account) = &entry.account { " of " (customer_link(account)) }
            @if let Some(reverses) = entry.reverses { ", takes back " (entry_link(reverses)) }
        }
        (postings(entry))
    };
    html! { li.done { h3 { "Posted" } (instant_of(&entry.recorded_at)) (content) } }
}

fn sent(message: &MessageRow, attempts: &[AttemptRow]) -> Markup {
    let (class, name) = match message.state.as_str() {
        "SENT" => ("done", "Sent"),
        "DEAD" => ("need", "Not delivered"),
        _ => ("wait", "To be sent"),
    };
    let content = html! {
        p {
            a href={ "/outbox/" (message.id) } { "message " (message.id) } " to " (message.endpoint)
            @if let Some(due) = message.due_at { ", next attempt " (since(due)) }
            "."
        }
        @for attempt in attempts.iter().rev().take(5) {
            p.soft {
                (instant(attempt.at)) ": "
                @if let Some(status) = attempt.status { "answered " (status) } @else { "no answer" }
                " in " (attempt.took_ms) " ms"
                @if let (None, Some(error)) = (attempt.status, &attempt.error) { ", " (error) }
            }
        }
        @if attempts.len() > 5 { p.soft { "and " (attempts.len() - 5) " attempts before" } }
    };
    step(class, name, message.ended_at, content)
}

fn changed(line: &Line) -> Markup {
    let content = html! {
        p { (line.what) " by " (line.who) @if let Some(note) = &line.note { ": " (note) } "." }
    };
    step("plain", "Changed by a person", Some(line.at), content)
}

/// What is shown of a body on the page; the whole is a download.
const SHOWN: usize = 256 << 10;

fn bytes(story: &Story, pretty: bool) -> Markup {
    let id = story.row.id;
    let Some(body) = &story.body else {
        return html! { h2 #body { "Body" } p { "Its bytes are past their retention, or were erased. What was posted stays." } };
    };
    let printed = pretty.then(|| pretty_json(&body.bytes)).flatten();
    html! {
        h2 { "Headers" }
        pre tabindex="0" aria-label="Headers" { (body.headers) }
        h2 #body { "Body" }
        p.soft { "Byte for byte as sent; SHA-256 " (code(&hex::encode(body.sha256))) }
        div.buttons {
            a href={ "/events/" (id) "/body" } { "Download" }
            @if pretty { a href={ "/events/" (id) "#body" } { "As sent" } }
            @else { a href={ "/events/" (id) "?pretty=1#body" } { "Pretty-print" } }
        }
        @if pretty && printed.is_none() { p { "This body is no JSON." } }
        pre tabindex="0" aria-label="Body" {
            @match printed {
                Some(text) => (text),
                None => (String::from_utf8_lossy(&body.bytes[..body.bytes.len().min(SHOWN)])),
            }
        }
        @if body.bytes.len() > SHOWN { p.soft { "Cut here; the download has all of it." } }
    }
}

/// Indents JSON and touches nothing else: no value is read, so that no number and no order changes.
fn pretty_json(bytes: &[u8]) -> Option<String> {
    serde_json::from_slice::<serde::de::IgnoredAny>(bytes).ok().filter(|_| bytes.len() <= SHOWN)?;
    let text = std::str::from_utf8(bytes).ok()?;
    let (mut out, mut depth) = (String::with_capacity(text.len() * 2), 0_usize);
    let (mut in_text, mut escaped) = (false, false);
    let mut rest = text.chars().peekable();
    while let Some(c) = rest.next() {
        if in_text {
            out.push(c);
            in_text = escaped || c != '"';
            escaped = !escaped && c == '\\';
            continue;
        }
        let line = |out: &mut String, depth: usize| {
            out.push('\n');
            out.extend(std::iter::repeat_n("  ", depth));
        };
        match c {
            '"' => {
                in_text = true;
                out.push(c);
            }
            '{' | '[' => {
                out.push(c);
                while rest.next_if(|c| c.is_whitespace()).is_some() {}
                if let Some(close) = rest.next_if(|c| matches!(c, '}' | ']')) {
                    out.push(close);
                } else {
                    depth += 1;
                    line(&mut out, depth);
                }
            }
            '}' | ']' => {
                depth = depth.saturating_sub(1);
                line(&mut out, depth);
                out.push(c);
            }
            ',' => {
                out.push(c);
                line(&mut out, depth);
            }
            ':' => out.push_str(": "),
            c if c.is_whitespace() => {}
            c => out.push(c),
        }
    }
    Some(out)
}

/// The bytes, as a download and never as anything a browser would run.
pub(in crate::operator) fn body(ask: &Ask) -> Outcome {
    ask.only(&[])?;
    let id = ask.id()?;
    let found = ask.app.shared().store.look(|conn| {
        let batch = search::batch_of(conn, id)?;
        listing::state(conn, id)?.map(|_| raw::body(conn, batch.map_or(id, |(batch, _)| batch))).transpose()
    })?;
    let body = found.ok_or_else(|| Failure::absent(format!("event {id}")))?;
    let body =
        body.ok_or_else(|| Failure::new(410, "gone", format!("the bytes of event {id} are past their retention")))?;
    Ok(Response::new(200)
        .with_header("Content-Type", "application/octet-stream")
        .with_header("Content-Disposition", format!("attachment; filename=\"event-{id}.body\""))
        .with_body(body.bytes))
}

/// What a replay would change.
pub(in crate::operator) fn preview(ask: &Ask) -> Outcome {
    ask.only(&[])?;
    let id = ask.id()?;
    let preview = act::preview(ask.app, id)?.ok_or_else(|| Failure::absent(format!("event {id}")))?;
    let content = html! {
        p.answer { (verdict(&preview)) }
        @for entry in &preview.entries {
            h2 { "Would be posted: " (money_text(entry.amount, &entry.currency)) ", " (entry.kind) " " (code(&entry.reference)) }
            (postings(entry))
        }
        @if !preview.entities.is_empty() { p { "Would move on: " (preview.entities.join(", ")) "." } }
        @if preview.messages > 0 { p { "Would be put in line: " (preview.messages) " message(s)." } }
        @if preview.replayable && ask.may_change() {
            form.note method="post" action={ "/events/" (id) "/replay" } {
                (csrf(&ask.who))
                label { span { "Why? For the audit (optional)" } textarea name="note" maxlength="2000" {} }
                div.buttons { button { "Replay event " (id) } a href={ "/events/" (id) } { "Leave it" } }
            }
        } @else {
            p { a href={ "/events/" (id) } { "Back to event " (id) } }
        }
    };
    let what = "The same steps as always were taken and undone: nothing has changed yet.";
    Ok(framed(ask, &format!("Replay event {id}?"), "/events", what, content))
}

fn verdict(preview: &Preview) -> Markup {
    html! {
        @if !preview.replayable {
            @if let Some(entry) = preview.posted_before.first() { "Nothing: already posted as " (entry_link(*entry)) "." }
            @else if preview.state == "DUPLICATE" { "Nothing: " (preview.reason.as_deref().unwrap_or("it is a repeat")) "." }
            @else if preview.state == "DONE" { "Nothing: it is done." }
            @else { "Nothing: it is on its way and runs by itself." }
        } @else if preview.state == "DONE" {
            @match preview.entries.len() {
                0 => "It would be done, and no money would move.",
                1 => "It would be posted.",
                n => { "It would be posted with " (n) " entries." },
            }
        } @else {
            "It would end " (match preview.state.as_str() { "CONFLICT" => "in conflict", "DUPLICATE" => "as a repeat", "RECEIVED" => "on its way", "PARKED" => "parked", "IGNORED" => "ignored", _ => "dead" })
            @if let Some(reason) = &preview.reason { ": " (reason) } "."
        }
    }
}

/// Replays it.
pub(in crate::operator) fn replay(ask: &Ask) -> Outcome {
    let id = ask.id()?;
    act::replay(ask, id, &ask.note()?)?;
    ask.app.access.tell(ask.head, &format!("Event {id} is on its way again"));
    Ok(see(&format!("/events/{id}")))
}

#[cfg(test)]
mod tests {
    use super::pretty_json;

    #[test]
    fn pretty_printing_changes_white_space_and_nothing_else() {
        let sent = r#"{"b":1.10,"a":[1,{"t":"x{,}\"\\"}],"e":{},"n":[ ]}"#;
        let pretty = pretty_json(sent.as_bytes()).unwrap();
        assert!(pretty.starts_with("{\n  \"b\": 1.10,\n  \"a\": [\n    1,"), "{pretty}");
        assert!(
            pretty.contains(r#""x{,}\"\\""#) && pretty.contains("\"e\": {},") && pretty.ends_with("\"n\": []\n}"),
            "{pretty}"
        );
        assert_eq!(pretty_json(b"a=b&c=d"), None);
    }

    #[test]
    fn of_a_source_that_is_no_longer_configured_no_header_shows_its_value() {
        let shown = super::shown("Stripe-Signature: t=1,v1=ab\nHost: x\n", None);
        assert_eq!(shown, "Stripe-Signature: (9 bytes, kept and not shown)\nHost: (1 bytes, kept and not shown)\n");
    }
}
