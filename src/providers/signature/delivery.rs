//! What a verifier is given, and what it answers.
//!
//! A delivery is borrowed as it came off the wire; nothing here changes a byte of it. An answer names reasons, header
//! names and times, and never anything that was made from a secret.

use std::borrow::Cow;

/// One HTTP request, as far as signatures are concerned.
#[derive(Clone, Copy)]
pub struct Delivery<'a> {
    /// The method, in capitals.
    pub method: &'a str,
    /// The public address as configured, with path and query as they came: `https://hooks.example.com/webhooks/x?a=1`.
    /// Never built from what a proxy says.
    pub url: &'a str,
    /// The path of `url`.
    pub path: &'a str,
    /// The query string without the `?`.
    pub query: &'a str,
    /// The headers in the order in which they came, with all repetitions.
    pub headers: &'a [(&'a str, &'a [u8])],
    /// The bytes that are signed: as sent, or inflated where the provider signs those (`SignatureSpec::signs`).
    pub body: &'a [u8],
}

impl<'a> Delivery<'a> {
    /// A delivery to a public address (`https://host/path?query`), without headers and body yet.
    pub fn to(method: &'a str, url: &'a str) -> Delivery<'a> {
        let after_host = url.split_once("://").map_or(url, |(_, rest)| rest);
        let target = after_host.find('/').map_or("/", |at| &after_host[at..]);
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        Delivery { method, url, path, query, headers: &[], body: &[] }
    }

    /// All values of a header, without the blanks around them.
    pub fn header_all(&self, name: &str) -> impl Iterator<Item = &'a [u8]> {
        let all = self.headers;
        all.iter().filter(move |(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, value)| value.trim_ascii())
    }

    /// A header that may come once: `None` when absent, a refusal when it came twice with different values.
    pub fn header_once(&self, name: &str) -> Result<Option<&'a [u8]>, Refusal> {
        let mut all = self.header_all(name);
        let first = all.next();
        match all.all(|other| Some(other) == first) {
            true => Ok(first),
            false => {
                Err(Refusal::new(Reason::MalformedHeader, format!("{name} came more than once, with different values")))
            }
        }
    }
}

/// Headers from a file: `Name: value` lines as a client sends them (a request line in front is passed over), or one JSON
/// object. The error names the line.
pub fn headers_from_text(text: &str) -> Result<Vec<(String, String)>, String> {
    if text.trim_start().starts_with('{') {
        let map: std::collections::BTreeMap<String, String> = serde_json::from_str(text)
            .map_err(|e| format!("headers as JSON are one object of texts, as in {{\"X-Signature\": \"…\"}}: {e}"))?;
        return Ok(map.into_iter().collect());
    }
    let mut headers = Vec::new();
    for (at, line) in text.lines().map(str::trim).enumerate().filter(|(_, line)| !line.is_empty()) {
        match line.split_once(':') {
            Some((name, value)) if !name.contains(' ') => headers.push((name.to_owned(), value.trim().to_owned())),
            _ if at == 0 => {}
            _ => return Err(format!("line {}: a header is written \"Name: value\"", at + 1)),
        }
    }
    Ok(headers)
}

/// Why a delivery is refused. The words are part of the HTTP contract.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Reason {
    /// The signature's header, or one that is signed, is absent.
    MissingHeader,
    /// A header is there but cannot be read.
    MalformedHeader,
    /// No configured secret made this signature.
    NoSecretMatches,
    /// Genuine, but signed too long ago.
    TooOld,
    /// Genuine, but dated ahead of our clock.
    InTheFuture,
    /// Genuine by a secret whose end date has passed.
    SecretRetired,
    /// The body is not what this provider sends, or lacks the fields that are signed.
    MalformedBody,
    /// The address of the certificate or of the keys is not one of the provider's.
    CertificateUrl,
    /// The certificate or the keys could not be fetched now.
    CertificateUnavailable,
    /// The certificate does not lead to a root that is trusted, or is for another name or time.
    CertificateUntrusted,
    /// No key of the id that the delivery names.
    UnknownKey,
    /// An algorithm other than the one that is agreed.
    WrongAlgorithm,
    /// The signed hash is not that of this body.
    BodyHashDiffers,
    /// A signed statement (audience, issuer, application …) is not the one that this source expects.
    ClaimDiffers,
}

impl Reason {
    /// The code in answers, logs and counters.
    pub fn as_str(self) -> &'static str {
        match self {
            Reason::MissingHeader => "missing_header",
            Reason::MalformedHeader => "malformed_header",
            Reason::NoSecretMatches => "no_secret_matches",
            Reason::TooOld => "too_old",
            Reason::InTheFuture => "in_the_future",
            Reason::SecretRetired => "secret_retired",
            Reason::MalformedBody => "malformed_body",
            Reason::CertificateUrl => "certificate_url",
            Reason::CertificateUnavailable => "certificate_unavailable",
            Reason::CertificateUntrusted => "certificate_untrusted",
            Reason::UnknownKey => "unknown_key",
            Reason::WrongAlgorithm => "wrong_algorithm",
            Reason::BodyHashDiffers => "body_hash_differs",
            Reason::ClaimDiffers => "claim_differs",
        }
    }

    /// Whether the same delivery may pass a moment later: to be answered 503, not 401.
    pub fn is_temporary(self) -> bool {
        self == Reason::CertificateUnavailable
    }
}

/// A refused delivery.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}: {about}", reason.as_str())]
pub struct Refusal {
    /// The code.
    pub reason: Reason,
    /// What it is about, for people: header names, times, never values made from a secret.
    pub about: Cow<'static, str>,
}

impl Refusal {
    pub(crate) fn new(reason: Reason, about: impl Into<Cow<'static, str>>) -> Refusal {
        Refusal { reason, about: about.into() }
    }
}

/// A genuine delivery.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Accepted<'v> {
    /// The name of the secret that matched; empty where the provider signs nothing.
    pub secret: &'v str,
    /// The signed message id, where the scheme has one.
    pub id: Option<String>,
    /// When it was signed, in Unix milliseconds, where the scheme says so.
    pub signed_at_ms: Option<i64>,
}

/// One step of an explained verdict.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// Whether this step speaks for the delivery.
    pub good: bool,
    /// What was looked at and found.
    pub text: String,
}

/// Collects steps when somebody asked for them, and costs nothing otherwise.
pub(crate) struct Trace(Option<Vec<Step>>);

impl Trace {
    pub(crate) fn off() -> Trace {
        Trace(None)
    }

    pub(crate) fn on() -> Trace {
        Trace(Some(Vec::new()))
    }

    pub(crate) fn note(&mut self, good: bool, text: impl FnOnce() -> String) {
        if let Some(steps) = &mut self.0 {
            steps.push(Step { good, text: text() });
        }
    }

    pub(crate) fn steps(self) -> Vec<Step> {
        self.0.unwrap_or_default()
    }
}
