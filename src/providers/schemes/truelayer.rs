//! TrueLayer: a detached JWS (ES512) over method, path, some headers and the body.
//!
//! The keys stand at an address that the token may name; only the addresses in the provider's file are followed. A source
//! may give the key set itself instead.

use crate::providers::signature::keys::{Made, PublicKey};
use crate::providers::signature::{
    Case, Encoding, Key, KeyRequest, Match, Reason, Refusal, SignatureSpec, Trace, decode, encode,
};
use serde::Deserialize;

pub(super) const SIGNATURE: &str = "Tl-Signature";
/// How many headers a token may name.
const HEADERS_MAX: usize = 32;

/// The addresses of keys that a token may name.
pub(crate) struct Truelayer {
    urls: Vec<String>,
}

#[derive(Deserialize)]
struct Head {
    alg: String,
    kid: Option<String>,
    tl_version: Option<String>,
    tl_headers: Option<String>,
    jku: Option<String>,
}

impl Truelayer {
    pub(crate) fn new(spec: &SignatureSpec) -> Truelayer {
        Truelayer { urls: spec.keys.urls.clone() }
    }

    pub(crate) fn verify(&self, case: &Case<'_>, trace: &mut Trace) -> Result<Match, Refusal> {
        let malformed = |about: &'static str| Refusal::new(Reason::MalformedHeader, format!("{SIGNATURE}: {about}"));
        let token = case.header(SIGNATURE)?;
        let (head_text, signature) = token.split_once("..").ok_or_else(|| malformed("no detached token"))?;
        let head = decode(Encoding::Base64url, head_text.as_bytes()).ok_or_else(|| malformed("not base64url"))?;
        let head: Head = serde_json::from_slice(&head).map_err(|_| malformed("its header is no JSON"))?;
        let signature = decode(Encoding::Base64url, signature.as_bytes()).ok_or_else(|| malformed("not base64url"))?;
        if head.alg != "ES512" {
            return Err(Refusal::new(Reason::WrongAlgorithm, "the token is not signed with ES512"));
        }
        if head.tl_version.as_deref() != Some("2") {
            return Err(malformed("its version is not 2"));
        }
        let named = head.tl_headers.as_deref().unwrap_or_default();
        let mut lines = String::new();
        for (at, name) in named.split(',').map(str::trim).filter(|name| !name.is_empty()).enumerate() {
            if at >= HEADERS_MAX {
                return Err(malformed("it names too many headers"));
            }
            let value = case.delivery.header_once(name)?.and_then(|value| std::str::from_utf8(value).ok());
            let value = value
                .ok_or_else(|| Refusal::new(Reason::MissingHeader, "a header that the token names is not there"))?;
            lines.push_str(&format!("{name}: {value}\n"));
        }
        trace.note(true, || format!("{SIGNATURE}: ES512 over method, path, headers \"{named}\" and body"));
        let kid = head.kid.as_deref().unwrap_or_default();
        let path = case.delivery.path;
        let other_path = path.strip_suffix('/').map_or_else(|| format!("{path}/"), str::to_owned);
        let messages = [path, &other_path].map(|path| {
            let mut payload = format!("{} {path}\n{lines}", case.delivery.method).into_bytes();
            payload.extend_from_slice(case.delivery.body);
            format!("{head_text}.{}", encode(Encoding::Base64url, &payload))
        });
        let good =
            |key: &PublicKey| messages.iter().any(|m| key.verifies(Made::Ecdsa512Fixed, m.as_bytes(), &signature));
        let of_kid = |keys: &[(String, PublicKey)]| keys.iter().any(|(id, key)| id == kid && good(key));
        if !case.secrets.is_empty() {
            let mut known = false;
            let found = case.secret_where(trace, |ready| {
                let Key::Set(keys) = &ready.key else { return Ok(false) };
                known |= keys.iter().any(|(id, _)| id == kid);
                Ok(of_kid(keys))
            });
            return match found {
                Err(refusal) if refusal.reason == Reason::NoSecretMatches && !known => {
                    Err(Refusal::new(Reason::UnknownKey, "no key here has the id that the token names"))
                }
                Err(refusal) => Err(refusal),
                Ok(secret) => Ok(Match { secret: Some(secret), id: None, signed_at_ms: None }),
            };
        }
        let jku = head.jku.ok_or_else(|| Refusal::new(Reason::CertificateUrl, "the token names no address of keys"))?;
        if !self.urls.contains(&jku) {
            return Err(Refusal::new(
                Reason::CertificateUrl,
                "the token names an address of keys that is not TrueLayer's",
            ));
        }
        for anew in [false, true] {
            let answer = case.fetched.get(&KeyRequest { url: &jku, post: None }, case.now_ms, case.online, anew)?;
            let keys = PublicKey::set(&answer)
                .map_err(|_| Refusal::new(Reason::CertificateUnavailable, format!("{jku} gave no keys")))?;
            if keys.iter().any(|(id, _)| id == kid) {
                return match of_kid(&keys) {
                    true => Ok(Match { secret: None, id: None, signed_at_ms: None }),
                    false => Err(Refusal::new(Reason::NoSecretMatches, "the provider's key did not make this token")),
                };
            }
        }
        Err(Refusal::new(Reason::UnknownKey, format!("{jku} knows no key of the id that the token names")))
    }
}
