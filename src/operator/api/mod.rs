//! The API: all that the pages show and change, as JSON. Lists are pages with an opaque `next`; what goes wrong is a
//! problem document (RFC 9457). `openapi.json` describes every path here, and a test holds the two together.

use super::act;
use super::answer::{Failure, Outcome, json};
use super::ask::{Ask, cursor, cursor_of_key};
use super::pages;
use crate::clock::{rfc3339, wall};
use crate::edge::Response;
use crate::store::books;
use crate::store::search::{self, EventQuery, Page};
use crate::store::settlement_view as settlement;
use serde::Serialize;
use serde_json::{Value, json as object};

const DESCRIPTION: &str = include_str!("../openapi.json");

/// The description itself.
pub(super) fn description(ask: &Ask) -> Outcome {
    ask.only(&[])?;
    Ok(Response::json(200, DESCRIPTION.as_bytes()))
}

fn paged<T: Serialize>(rows: &[T], next: Option<String>, looked_back_to: Option<i64>) -> Outcome {
    json(&object!({ "items": rows, "next": next, "looked_back_to": looked_back_to.map(rfc3339) }))
}

fn list<T: Serialize>(page: &Page<T>) -> Outcome {
    paged(&page.rows, page.next.map(cursor), page.looked_back_to)
}

/// Only the fields that are understood may be sent.
fn fields(ask: &Ask, known: &[&str]) -> Result<(), Failure> {
    ask.only(&[])?;
    match ask.form.iter().find(|(name, _)| !known.contains(&name.as_str())) {
        Some((name, _)) => Err(Failure::malformed(format!("there is no field {name:?} here")).hint(known.join(", "))),
        None => Ok(()),
    }
}

/// The figures of the first page.
pub(super) fn overview(ask: &Ask) -> Outcome {
    ask.only(&[])?;
    let seen = pages::today::overview(ask)?;
    let span = |span: &crate::store::overview::Span, ack: Option<std::time::Duration>| {
        object!({ "received": span.received, "posted": span.posted, "repeats": span.repeats, "apply_p99_ms": span.apply_p99,
            "ack_p99_us": ack.map(|time| u64::try_from(time.as_micros()).unwrap_or(u64::MAX)) })
    };
    let waiting: Vec<Value> = seen
        .waiting
        .iter()
        .map(|w| object!({ "state": w.state, "count": w.count, "oldest": w.oldest.map(|(id, at)| object!({ "event": id, "received_at": rfc3339(at) })) }))
        .collect();
    json(&object!({
        "last_24_hours": span(&seen.now, seen.ack[0]), "a_week_ago": span(&seen.week_ago, seen.ack[1]),
        "for_a_person": waiting, "on_the_way": seen.on_the_way.count, "outbox": seen.outbox,
        "open_discrepancies": { "count": seen.open.count, "value": seen.open.value, "oldest": seen.open.oldest.map(|(_, at)| rfc3339(at)) },
    }))
}

/// Events.
pub(super) fn events(ask: &Ask) -> Outcome {
    let query = pages::events::query(ask)?;
    list(&ask.app.shared().store.look(|conn| search::events(conn, &query))?)
}

/// One event with everything that is known of it, its bytes excepted.
pub(super) fn event(ask: &Ask) -> Outcome {
    ask.only(&[])?;
    let story = pages::event::story(ask, ask.id()?)?;
    let messages: Vec<Value> = story
        .messages
        .iter()
        .map(|(message, attempts)| object!({ "message": message, "attempts": attempts }))
        .collect();
    let body = story.body.as_ref().map(
        |body| object!({ "bytes": body.bytes.len(), "sha256": hex::encode(body.sha256), "headers": body.headers }),
    );
    json(&object!({
        "event": story.row, "batch": story.batch.map(|(batch, item)| object!({ "event": batch, "item": item })), "items": story.items,
        "body": body, "entries": story.entries, "messages": messages, "audit": story.audit,
    }))
}

/// Its bytes.
pub(super) fn body(ask: &Ask) -> Outcome {
    pages::event::body(ask)
}

/// What a replay would change.
pub(super) fn preview(ask: &Ask) -> Outcome {
    ask.only(&[])?;
    let id = ask.id()?;
    let preview = act::preview(ask.app, id)?.ok_or_else(|| Failure::absent(format!("event {id}")))?;
    json(&preview)
}

/// Replays it.
pub(super) fn replay(ask: &Ask) -> Outcome {
    fields(ask, &["note"])?;
    let id = ask.id()?;
    pages::event::story(ask, id)?;
    act::replay(ask, id, &ask.note()?)?;
    json(&object!({ "replayed": [id] }))
}

/// What waits for a person.
pub(super) fn dead(ask: &Ask) -> Outcome {
    ask.only(&["cursor", "limit"])?;
    let query = EventQuery {
        states: vec!["DEAD", "CONFLICT", "PARKED"],
        before: ask.cursor()?,
        limit: ask.limit()?,
        ..EventQuery::default()
    };
    list(&ask.app.shared().store.look(|conn| search::events(conn, &query))?)
}

/// Replays all that are dead.
pub(super) fn replay_dead(ask: &Ask) -> Outcome {
    fields(ask, &["note"])?;
    json(&object!({ "count": act::replay_dead(ask, &ask.note()?)? }))
}

/// Entries.
pub(super) fn entries(ask: &Ask) -> Outcome {
    let query = pages::ledger::query(ask)?;
    list(&ask.app.shared().store.look(|conn| books::entries(conn, &query))?)
}

/// One entry.
pub(super) fn entry(ask: &Ask) -> Outcome {
    ask.only(&[])?;
    let whole = pages::ledger::whole(ask)?;
    json(&object!({
        "entry": whole.entry, "reversed_by": whole.reversed_by, "hash": whole.hash, "hash_before": whole.hash_before,
        "messages": whole.messages,
    }))
}

/// The entry that would take one back.
pub(super) fn reversal(ask: &Ask) -> Outcome {
    ask.only(&["note"])?;
    pages::ledger::whole(ask)?;
    let note = ask.text("note")?.ok_or_else(|| Failure::malformed("note says why the entry is wrong"))?;
    json(&act::preview_reversal(ask.app, ask.id()?, &note)?)
}

/// Takes an entry back.
pub(super) fn reverse(ask: &Ask) -> Outcome {
    fields(ask, &["note"])?;
    let id = ask.id()?;
    pages::ledger::whole(ask)?;
    let note = ask.note()?;
    if note.is_empty() {
        return Err(Failure::malformed("note says why the entry is wrong"));
    }
    json(&object!({ "entry": act::reverse(ask, id, &note)? }))
}

/// Accounts with their balances.
pub(super) fn accounts(ask: &Ask) -> Outcome {
    let query = pages::accounts::query(ask)?;
    list(&ask.app.shared().store.look(|conn| books::accounts(conn, &query))?)
}

/// One account.
pub(super) fn account(ask: &Ask) -> Outcome {
    ask.only(&["as_of", "clock"])?;
    let (id, as_of) = (ask.id()?, pages::accounts::as_of(ask)?);
    let found = ask.app.shared().store.look(|conn| books::account(conn, id, as_of))?;
    json(&found.ok_or_else(|| Failure::absent(format!("account {id}")))?)
}

/// Entities.
pub(super) fn entities(ask: &Ask) -> Outcome {
    let found = pages::entities::find(ask)?;
    paged(&found.rows, found.next.as_ref().map(cursor_of_key), None)
}

/// Messages.
pub(super) fn outbox(ask: &Ask) -> Outcome {
    let (found, _) = pages::outbox::find(ask)?;
    list(&found)
}

/// One message with its attempts.
pub(super) fn message(ask: &Ask) -> Outcome {
    ask.only(&[])?;
    let (message, attempts) = pages::outbox::whole(ask)?;
    json(&object!({ "message": message, "attempts": attempts }))
}

/// Puts a dead message in line again.
pub(super) fn requeue(ask: &Ask) -> Outcome {
    fields(ask, &["note"])?;
    let id = ask.id()?;
    pages::outbox::whole(ask)?;
    act::requeue(ask, id, &ask.note()?)?;
    json(&object!({ "requeued": [id] }))
}

/// Puts all dead messages in line again.
pub(super) fn requeue_dead(ask: &Ask) -> Outcome {
    fields(ask, &["note"])?;
    json(&object!({ "count": act::requeue_dead(ask, &ask.note()?)? }))
}

/// The trend of discrepancies, a day a row.
pub(super) fn trend(ask: &Ask) -> Outcome {
    ask.only(&["days"])?;
    let days = ask.number("days")?.unwrap_or(pages::settlement::DAYS);
    if days > 400 {
        return Err(Failure::malformed("days is 1 to 400"));
    }
    let trend = ask.app.shared().store.look(|conn| settlement::trend(conn, wall(), days))?;
    paged(&trend, None, None)
}

/// Runs.
pub(super) fn runs(ask: &Ask) -> Outcome {
    ask.only(&["cursor", "limit"])?;
    let (before, limit) = (ask.cursor()?, ask.limit()?);
    list(&ask.app.shared().store.look(|conn| settlement::runs(conn, before, limit))?)
}

/// One run with what did not match, at most two hundred items.
pub(super) fn run(ask: &Ask) -> Outcome {
    ask.only(&[])?;
    let (run, _, items) = pages::settlement::whole_run(ask)?;
    json(&object!({ "run": run, "items": items }))
}

/// Discrepancies.
pub(super) fn discrepancies(ask: &Ask) -> Outcome {
    ask.only(&["show", "cursor", "limit"])?;
    let open_only = ask.one_of("show", &[("open", true), ("all", false)])?.unwrap_or(true);
    let (before, limit) = (ask.cursor()?, ask.limit()?);
    list(&ask.app.shared().store.look(|conn| settlement::discrepancies(conn, open_only, before, limit))?)
}

/// One discrepancy.
pub(super) fn discrepancy(ask: &Ask) -> Outcome {
    ask.only(&[])?;
    let whole = pages::settlement::whole(ask)?;
    json(&object!({ "discrepancy": whole.row, "line": whole.line, "entry": whole.entry, "log": whole.log }))
}

/// The note without which nothing happens to a discrepancy.
fn needed_note(ask: &Ask) -> Result<String, Failure> {
    let note = ask.note()?;
    if note.is_empty() { Err(Failure::malformed("note says why")) } else { Ok(note) }
}

/// Ends a discrepancy.
pub(super) fn resolve(ask: &Ask) -> Outcome {
    fields(ask, &["resolution", "note"])?;
    let id = ask.id()?;
    pages::settlement::whole(ask)?;
    act::resolve(ask, id, pages::settlement::resolution(ask)?, &needed_note(ask)?)?;
    json(&object!({ "resolved": id }))
}

/// Gives a discrepancy to somebody.
pub(super) fn assign(ask: &Ask) -> Outcome {
    fields(ask, &["to", "note"])?;
    let id = ask.id()?;
    pages::settlement::whole(ask)?;
    act::assign(ask, id, &pages::settlement::assignee(ask)?, &needed_note(ask)?)?;
    json(&object!({ "assigned": id }))
}

/// Asks the provider again for what a discrepancy says is missing here.
pub(super) fn fetch(ask: &Ask) -> Outcome {
    fields(ask, &["note"])?;
    let id = ask.id()?;
    pages::settlement::whole(ask)?;
    json(&act::fetch_again(ask, id, &needed_note(ask)?)?)
}

/// Sources.
pub(super) fn sources(ask: &Ask) -> Outcome {
    ask.only(&[])?;
    let (views, back_to) = pages::sources::views(ask)?;
    paged(&views, None, back_to)
}

/// How it stands.
pub(super) fn health(ask: &Ask) -> Outcome {
    ask.only(&[])?;
    json(&pages::health::view(ask)?)
}

/// The last check.
pub(super) fn last_check(ask: &Ask) -> Outcome {
    ask.only(&[])?;
    json(&act::last_check(ask.app))
}

/// Begins a check; the answer is how it stands.
pub(super) fn check(ask: &Ask) -> Outcome {
    fields(ask, &[])?;
    act::start_check(ask)?;
    json(&act::last_check(ask.app))
}

/// The audit.
pub(super) fn audit(ask: &Ask) -> Outcome {
    list(&pages::audit::find(ask)?)
}

#[cfg(test)]
mod tests {
    use super::DESCRIPTION;
    use crate::operator::routes::Routes;
    use std::collections::BTreeSet;

    #[test]
    fn the_description_has_every_path_and_no_other() {
        let description: serde_json::Value = serde_json::from_str(DESCRIPTION).unwrap();
        let mut described = BTreeSet::new();
        for (path, methods) in description["paths"].as_object().unwrap() {
            for method in methods.as_object().unwrap().keys() {
                described.insert((method.to_uppercase(), path.clone()));
            }
        }
        let served: BTreeSet<_> = Routes::of_the_api().into_iter().map(|(m, p)| (m.to_owned(), p.to_owned())).collect();
        assert_eq!(described, served);
    }
}
