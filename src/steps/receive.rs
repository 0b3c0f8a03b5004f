//! Receive: verify, then say what to keep or what to answer. Nothing is parsed before it is stored, and nothing touches the
//! database before the signature is proven. The caller hands what is kept to the gate, and answers 2xx only when it is
//! durable.

use super::read::{Inflate, inflate, is_gzip};
use crate::clock;
use crate::providers::handshake::{self, HandshakeReply};
use crate::providers::signature::{Delivery, Refusal, Signs};
use crate::source::Source;
use crate::store::bodies::StoredBody;
use crate::store::raw::{NewRaw, Origin};
use std::borrow::Cow;

/// What becomes of a request on a source's path.
pub enum Received {
    /// Genuine: to be stored.
    Keep(NewRaw),
    /// A handshake or a probe that is answered and is no event.
    Handshake(HandshakeReply),
    /// The signature does not hold.
    Refused(Refusal),
    /// An encoding that we do not read.
    UnknownEncoding(String),
    /// It unpacks to more than the limit.
    TooLarge,
    /// It says gzip and is not.
    BadGzip,
}

/// Verifies a request; `delivery.body` is as sent.
pub fn receive(source: &Source, delivery: &Delivery) -> Received {
    let encoding = delivery.header_all("content-encoding").next().map(String::from_utf8_lossy);
    let signed: Cow<[u8]> = match encoding {
        None => Cow::Borrowed(delivery.body),
        Some(plain) if plain.is_empty() || plain.eq_ignore_ascii_case("identity") => Cow::Borrowed(delivery.body),
        Some(gzip) if is_gzip(&gzip) => match (inflate(delivery.body, source.body_max), source.verifier.signs()) {
            (Ok(_), Signs::Sent) => Cow::Borrowed(delivery.body),
            (Ok(inflated), _) => Cow::Owned(inflated),
            (Err(Inflate::TooLarge), _) => return Received::TooLarge,
            (Err(Inflate::Malformed), _) => return Received::BadGzip,
        },
        Some(other) => return Received::UnknownEncoding(other.into_owned()),
    };
    let signed = Delivery { body: &signed, ..*delivery };
    let now = clock::wall();
    let shake = |verified| handshake::answer(&source.recipe.handshake, &signed, &source.verifier, now, verified);
    if let Some(reply) = shake(false) {
        return Received::Handshake(reply);
    }
    let secret = match source.verifier.verify(&signed, now) {
        Ok(accepted) => (!accepted.secret.is_empty()).then(|| accepted.secret.to_owned()),
        Err(refusal) => return Received::Refused(refusal),
    };
    if let Some(reply) = shake(true) {
        return Received::Handshake(reply);
    }
    Received::Keep(NewRaw {
        source: source.name.clone(),
        origin: Origin::Webhook,
        secret,
        headers: kept_headers(delivery.headers, source),
        query: delivery.query.to_owned(),
        body: StoredBody::pack(delivery.body),
    })
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
