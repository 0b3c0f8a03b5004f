//! From a delivery to its answer: receives it for a source and says, as HTTP, what came of it.
//!
//! Shared by the server and by an app that brings its own web server. Never 2xx without a durable row, never 3xx, and no
//! thread waits: the answer is handed to a closure, now or after the effect.

use crate::config::Ack;
use crate::edge::Response;
use crate::engine::{Shared, Told};
use crate::error::{Error, Result};
use crate::fault;
use crate::metrics::Outcome;
use crate::providers::ReplySpec;
use crate::providers::signature::{Delivery, Refusal};
use crate::source::Source;
use crate::steps::receive::{Received, receive};
use crate::store::gate::Intake;
use crate::store::raw::{self, NewRaw, State};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Instant;

/// Takes the answer, once, on whatever thread has it.
pub type Answering = Box<dyn FnOnce(Response) + Send>;

/// Receives a delivery and answers it. `refused` is told of a signature that does not hold, and may give an answer of its
/// own.
pub fn answer(
    shared: &Arc<Shared>,
    source: &Source,
    delivery: &Delivery,
    refused: impl FnOnce(&Refusal) -> Option<Response>,
    answering: Answering,
) {
    fault::point("after_read");
    let began = Instant::now();
    let count = |outcome| shared.metrics.count(&source.name, outcome);
    let response = match receive(source, delivery) {
        Received::Keep(raw) => return keep(shared, raw, source, began, answering),
        Received::Handshake(answer) => {
            count(Outcome::Handshake);
            if let Some(url) = answer.visit {
                crate::pull::keys::visit(url);
            }
            Response::new(answer.status).with_header("Content-Type", answer.content_type).with_body(answer.body)
        }
        Received::Refused(refusal) => {
            shared.metrics.refused(&source.name, refusal.reason);
            let status = if refusal.reason.is_temporary() { 503 } else { 401 };
            refused(&refusal).unwrap_or_else(|| problem(status, refusal.reason.as_str(), &refusal.about))
        }
        Received::UnknownEncoding(encoding) => {
            count(Outcome::Unreadable);
            let what = format!("the content encoding {encoding:?} is not read here; gzip is");
            problem(415, "unknown_encoding", &what)
        }
        Received::TooLarge => {
            count(Outcome::TooLarge);
            problem(413, "body_too_large", "the body unpacks to more than the source takes")
        }
        Received::BadGzip => {
            count(Outcome::Unreadable);
            problem(400, "bad_gzip", "the body says gzip and cannot be unpacked")
        }
    };
    answering(response);
}

/// Hands a genuine body to the disk; the answer follows once it is durable, or applied, or cannot be.
fn keep(shared: &Arc<Shared>, raw: NewRaw, source: &Source, began: Instant, answering: Answering) {
    let (engine, ack) = (shared.clone(), source.ack);
    let answering: Answering = match source.recipe.reply.clone() {
        None => answering,
        Some(words) => Box::new(move |response| answering(in_their_words(response, words))),
    };
    let source = raw.source.clone();
    let done = Box::new(move |stored: Result<i64>| match (stored, ack) {
        (Err(error), _) => {
            engine.metrics.count(&source, Outcome::Unavailable);
            answering(unavailable(&error));
        }
        (Ok(id), Ack::Stored) => {
            engine.metrics.count(&source, Outcome::Stored);
            answering(said(200, json!({ "status": "stored", "id": id })));
            engine.metrics.acknowledge.note(began.elapsed());
        }
        (Ok(id), Ack::Applied) => {
            let shared = engine.clone();
            engine.metrics.count(&source, Outcome::Stored);
            let told = move |told| {
                let response = applied(&shared, id, told);
                let acknowledged = response.status() == 200;
                answering(response);
                if acknowledged {
                    shared.metrics.acknowledge.note(began.elapsed());
                }
            };
            engine.when_ended(id, Box::new(told));
        }
    });
    fault::point("before_keep");
    shared.store.gate().keep(Intake { raw, since: began, done });
}

/// The answer after the effect. What is stored and verified gets a 2xx, unless it failed or is still under way.
fn applied(shared: &Shared, id: i64, told: Told) -> Response {
    let ended = match told {
        Told::Ended(state) => state,
        Told::Failed => {
            let reason = shared.store.read(|conn| raw::told(conn, id)).ok().flatten().and_then(|told| told.reason);
            return problem(500, "failed", &reason.unwrap_or_else(|| "the effect failed".into()));
        }
        Told::Late => return in_flight("it is stored, and its effect has not taken place yet"),
    };
    let result = match shared.store.read(|conn| raw::told(conn, id)) {
        Ok(Some(result)) => result,
        Ok(None) => return problem(500, "failed", "its row is gone"),
        Err(error) => return unavailable(&error),
    };
    let entry = result.entry.map(
        |e| json!({ "id": e.id, "kind": e.kind, "reference": e.reference, "amount": e.amount, "currency": e.currency }),
    );
    match ended {
        State::Done => said(200, json!({ "status": "processed", "id": id, "entry": entry })),
        State::Duplicate if result.state.is_waiting() => in_flight("another delivery of this event is being applied"),
        State::Duplicate => {
            said(200, json!({ "status": "duplicate", "id": id, "first": result.first, "entry": entry }))
        }
        State::Dead => problem(500, "failed", &result.reason.unwrap_or_default()),
        other => said(200, json!({ "status": other.as_str().to_lowercase(), "id": id, "reason": result.reason })),
    }
}

/// A yes in the words that the provider waits for.
fn in_their_words(response: Response, words: ReplySpec) -> Response {
    match response.status() {
        200 => Response::new(200).with_header("Content-Type", words.content_type).with_body(words.body.into_bytes()),
        _ => response,
    }
}

fn in_flight(what: &str) -> Response {
    problem(409, "in_flight", what).with_header("Retry-After", "2")
}

fn said(status: u16, value: Value) -> Response {
    Response::json(status, value.to_string().into_bytes())
}

/// An answer that says what is wrong, in JSON.
pub fn problem(status: u16, code: &str, what: &str) -> Response {
    said(status, json!({ "error": code, "message": what }))
}

/// It could not be stored: the provider sends it again.
pub fn unavailable(error: &Error) -> Response {
    problem(503, "unavailable", &error.to_string()).with_header("Retry-After", "5")
}
