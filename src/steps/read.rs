//! Read: from stored bytes to what they mean. Runs before any transaction; may be slow, may fail, posts nothing.

use crate::event::{Event, Meaning, Millis, Proof};
use crate::providers::signature::Covers;
use crate::settlement::told;
use crate::source::Source;
use crate::store::raw::{Body, Origin};

/// What a raw event turned out to be.
#[derive(Debug)]
pub enum Read {
    /// One event.
    Event(Box<Event>),
    /// A delivery that holds so many events: each becomes a raw event of its own.
    Batch(usize),
}

/// Everything that a body says, in its order; never empty. Says of each event what proves it.
pub fn events(source: &Source, body: &Body, origin: Origin, received_at: Millis) -> Vec<Event> {
    let made_here = matches!(origin, Origin::Report | Origin::Imported);
    if made_here && body.headers.lines().any(|line| line == told::HEADER) {
        let mut told = vec![told::event(&body.bytes)];
        of_account(source, &mut told);
        return told;
    }
    let before = if origin == Origin::Imported { Before::of(&body.headers) } else { None };
    let received_at = before.map_or(received_at, |before| before.received_at);
    let headers: Vec<(&str, &str)> = body.headers.lines().filter_map(|line| line.split_once(": ")).collect();
    let mut events = match inflated(body, &headers) {
        Some(bytes) => source.interpreter.interpret(&bytes, &headers, &body.query, received_at).events,
        None => source.interpreter.interpret(&body.bytes, &headers, &body.query, received_at).events,
    };
    if matches!(origin, Origin::Fetched | Origin::Rebuilt) || before.is_some_and(|before| before.asked) {
        of_account(source, &mut events);
    }
    let proof = match (origin, source.verifier.covers()) {
        (Origin::Fetched | Origin::Rebuilt | Origin::Report | Origin::Manual, _) => Proof::Fetched,
        _ if before.is_some_and(|before| before.confirmed) => Proof::Fetched,
        (_, Covers::Body) => Proof::Body,
        (_, Covers::Part) => Proof::Part,
        (_, Covers::Nothing) => Proof::Nothing,
    };
    for event in &mut events {
        event.proof = proof;
        event.occurred_at = event.occurred_at.or(before.map(|before| before.received_at));
        if let (Proof::Part | Proof::Nothing, Meaning::Effects { movements, .. }) = (proof, &mut event.meaning) {
            movements.iter_mut().for_each(|movement| movement.unconfirmed = true);
        }
    }
    events
}

/// What we asked for ourselves is of the account that was asked, also where an object does not say so: its webhook would
/// have, and must find the same key.
fn of_account(source: &Source, events: &mut [Event]) {
    let account = &source.settlement.account;
    for event in events.iter_mut().filter(|event| !account.is_empty() && event.provider_account.is_none()) {
        event.provider_account = Some(account.clone());
    }
}

/// What is known of an event that an archive brought back and its bytes do not say. Written as a header of ours, and only
/// believed on what was imported: a delivery can never pass for one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Before {
    /// When it first came.
    pub received_at: Millis,
    /// The provider's API had confirmed what its signature did not prove.
    pub confirmed: bool,
    /// We had asked for it ourselves: it is of the account that was asked, which its bytes need not say.
    pub asked: bool,
}

impl Before {
    const NAME: &str = "postonce-before: ";

    /// Its line.
    pub fn line(self) -> String {
        let proof = if self.confirmed { "confirmed" } else { "as-signed" };
        format!("{}{} {proof}{}", Before::NAME, self.received_at, if self.asked { " asked" } else { "" })
    }

    /// Finds it.
    pub fn of(headers: &str) -> Option<Before> {
        let line = headers.lines().find_map(|line| line.strip_prefix(Before::NAME))?;
        let mut words = line.split(' ');
        let (received_at, proof) = (words.next()?.parse().ok()?, words.next()?);
        Some(Before { received_at, confirmed: proof == "confirmed", asked: words.next() == Some("asked") })
    }
}

/// What one raw event of a body is: the whole (`item` 0), which is taken out, or the `item`th of a batch.
pub fn one(events: &mut Vec<Event>, item: u32) -> Read {
    match (item, events.len()) {
        (0, 1) => Read::Event(Box::new(events.remove(0))),
        (0, count) => Read::Batch(count),
        (n, _) => Read::Event(Box::new(events.get(n as usize - 1).cloned().unwrap_or_else(|| Event {
            meaning: Meaning::Parked(format!("item {n} is no longer in the batch: the rules changed")),
            ..Event::default()
        }))),
    }
}

/// The bytes behind a content encoding; `None`: there is none.
fn inflated(body: &Body, headers: &[(&str, &str)]) -> Option<Vec<u8>> {
    let encoding = headers.iter().find(|(name, _)| name.eq_ignore_ascii_case("content-encoding"))?.1;
    if !is_gzip(encoding) {
        return None;
    }
    inflate(&body.bytes, crate::config::BODY_MAX_MOST).ok()
}

/// Is this content encoding gzip?
pub fn is_gzip(encoding: &str) -> bool {
    matches!(encoding.trim().to_ascii_lowercase().as_str(), "gzip" | "x-gzip")
}

/// Why a gzip body cannot be read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Inflate {
    /// It unpacks to more than the limit.
    TooLarge,
    /// It is no gzip.
    Malformed,
}

/// Unpacks a gzip body, and stops as soon as it is larger than `limit`.
pub fn inflate(bytes: &[u8], limit: u64) -> Result<Vec<u8>, Inflate> {
    use std::io::Read as _;
    let mut out = Vec::new();
    let mut reader = flate2::read::MultiGzDecoder::new(bytes).take(limit + 1);
    reader.read_to_end(&mut out).map_err(|_| Inflate::Malformed)?;
    if out.len() as u64 > limit { Err(Inflate::TooLarge) } else { Ok(out) }
}
