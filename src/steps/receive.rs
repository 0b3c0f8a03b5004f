//! Receive: verify, keep, answer. Nothing is parsed before it is stored, and nothing touches the database before the
//! signature is proven. Never a 2xx without a durable row.

use super::read::{Inflate, inflate, is_gzip};
use crate::clock;
use crate::error::Error;
use crate::providers::handshake::{self, HandshakeReply};
use crate::providers::signature::{Delivery, Refusal, Signs};
use crate::source::Source;
use crate::store::gate::{Gate, Intake};
use crate::store::raw::{NewRaw, Origin, StoredBody};
use std::borrow::Cow;

/// A request on a source's path, as far as we are concerned.
pub struct Incoming<'a> {
    /// In capitals.
    pub method: &'a str,
    /// The public address, with path and query.
    pub url: &'a str,
    /// Its path.
    pub path: &'a str,
    /// Its query, without the `?`.
    pub query: &'a str,
    /// In order, with repetitions.
    pub headers: &'a [(&'a str, &'a [u8])],
    /// As sent.
    pub body: Vec<u8>,
}

/// What is answered at once; storing is answered later, through the callback.
pub enum Answer {
    /// On its way to the disk: the callback will be told.
    Later,
    /// A handshake that the provider wants answered.
    Handshake(HandshakeReply),
    /// The signature does not hold.
    Refused(Refusal),
    /// An encoding that we do not read.
    UnknownEncoding(String),
    /// It unpacks to more than the limit.
    TooLarge,
    /// It says gzip and is not.
    BadGzip,
    /// It could not be stored.
    Unavailable(Error),
}

/// Verifies a delivery and hands it to the disk.
pub fn receive(
    gate: &Gate,
    source: &Source,
    incoming: Incoming,
    done: Box<dyn FnOnce(crate::error::Result<i64>) + Send>,
) -> Answer {
    let Incoming { method, url, path, query, headers, body } = incoming;
    let encoding = headers.iter().find(|(name, _)| name.eq_ignore_ascii_case("content-encoding"));
    let signed: Cow<[u8]> = match encoding.map(|(_, value)| String::from_utf8_lossy(value)) {
        None => Cow::Borrowed(&body),
        Some(plain) if plain.trim().is_empty() || plain.trim().eq_ignore_ascii_case("identity") => Cow::Borrowed(&body),
        Some(gzip) if is_gzip(&gzip) => match (inflate(&body, source.body_max), source.verifier.signs()) {
            (Ok(_), Signs::Sent) => Cow::Borrowed(&body),
            (Ok(inflated), _) => Cow::Owned(inflated),
            (Err(Inflate::TooLarge), _) => return Answer::TooLarge,
            (Err(Inflate::Malformed), _) => return Answer::BadGzip,
        },
        Some(other) => return Answer::UnknownEncoding(other.into_owned()),
    };
    let delivery = Delivery { method, url, path, query, headers, body: &signed };
    let now = clock::wall();
    let shake = |verified| handshake::answer(&source.recipe.handshake, &delivery, &source.verifier, now, verified);
    if let Some(reply) = shake(false) {
        return Answer::Handshake(reply);
    }
    let secret = match source.verifier.verify(&delivery, now) {
        Ok(accepted) => (!accepted.secret.is_empty()).then(|| accepted.secret.to_owned()),
        Err(refusal) => return Answer::Refused(refusal),
    };
    if let Some(reply) = shake(true) {
        return Answer::Handshake(reply);
    }
    drop(signed);
    let raw = NewRaw {
        source: source.name.clone(),
        origin: Origin::Webhook,
        secret,
        headers: kept_headers(headers, source),
        query: query.to_owned(),
        body: StoredBody::pack(body),
    };
    match gate.keep(Intake { raw, done }) {
        Ok(()) => Answer::Later,
        Err((_, error)) => Answer::Unavailable(error),
    }
}

/// Headers that say who may, not what happened: never stored.
const SECRET_HEADERS: [&str; 5] = ["authorization", "proxy-authorization", "cookie", "x-callback-token", "verif-hash"];
/// The headers of one delivery are cut at this many bytes.
const HEADERS_MAX: usize = 8 << 10;

fn kept_headers(headers: &[(&str, &[u8])], source: &Source) -> String {
    let mut kept = String::with_capacity(400);
    for (name, value) in headers {
        let secret = SECRET_HEADERS.iter().any(|s| name.eq_ignore_ascii_case(s))
            || source.recipe.signature.carries_secret_in(name);
        if secret || kept.len() + name.len() + value.len() > HEADERS_MAX {
            continue;
        }
        kept.push_str(name);
        kept.push_str(": ");
        kept.push_str(&String::from_utf8_lossy(value));
        kept.push('\n');
    }
    kept
}
