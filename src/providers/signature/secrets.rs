//! Secrets: from what somebody pasted into a file or a variable to a key.
//!
//! A wrong kind of text is refused when the program starts, in a sentence that says what it seems to be; a secret that
//! cannot work must never show itself as "no secret matches" for every delivery. Secrets have no `Display`, and their
//! `Debug` shows the name only.

use super::digest::decode;
use super::keys::PublicKey;
use super::spec::{Decode, Encoding, Kind, SignatureSpec};
use sha2::Digest as _;
use std::fmt;

/// One configured secret (or public key, or certificate, or webhook id).
#[derive(Clone, PartialEq, Eq)]
pub struct Secret {
    /// Its name in the configuration; recorded with each delivery that it proves.
    pub name: String,
    /// The provider's id for it, where deliveries say which key they used.
    pub key_id: Option<String>,
    /// When it stops to count, in Unix milliseconds.
    pub ends_at_ms: Option<i64>,
    text: String,
}

impl fmt::Debug for Secret {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Secret")
            .field("name", &self.name)
            .field("ends_at_ms", &self.ends_at_ms)
            .finish_non_exhaustive()
    }
}

impl Secret {
    /// A secret exactly as given.
    pub fn exact(name: &str, text: &str) -> Secret {
        Secret { name: name.to_owned(), key_id: None, ends_at_ms: None, text: text.to_owned() }
    }

    /// A secret from a file or a variable: white space around it is taken off. The flag says whether there was any, so
    /// that the program can warn once at start.
    pub fn pasted(name: &str, text: &str) -> (Secret, bool) {
        let text_only = text.trim().trim_start_matches('\u{feff}');
        (Secret::exact(name, text_only), text_only != text)
    }

    pub(crate) fn text(&self) -> &str {
        &self.text
    }
}

/// Why a secret cannot be one of this provider. Never shows any of it beyond a well-known prefix.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("secret \"{name}\": {problem}")]
pub struct SecretError {
    /// The secret's name, or the setting's.
    pub name: String,
    /// What it seems to be, and what to paste instead.
    pub problem: String,
}

impl SecretError {
    pub(crate) fn new(name: &str, problem: impl Into<String>) -> SecretError {
        SecretError { name: name.to_owned(), problem: problem.into() }
    }
}

/// A secret that is ready for use.
pub(crate) enum Key {
    Bytes(Vec<u8>),
    Public(Box<PublicKey>),
    Set(Vec<(String, PublicKey)>),
}

/// What a source of this provider needs, for people.
fn wanted(spec: &SignatureSpec) -> &str {
    spec.secret.is.as_deref().unwrap_or("the signing secret")
}

/// Refuses what is obviously not the kind of text that this provider's secret is.
pub(crate) fn check_kind(spec: &SignatureSpec, secret: &Secret) -> Result<(), SecretError> {
    let what = wanted(spec);
    let fail = |problem: String| SecretError::new(&secret.name, problem);
    let text = secret.text();
    if text.is_empty() {
        return Err(fail(format!("is empty; paste {what}")));
    }
    for (prefix, it_is) in &spec.secret.refuse {
        if text.starts_with(prefix.as_str()) {
            return Err(fail(format!("starts with \"{prefix}\": that is {it_is}, and what is needed is {what}")));
        }
    }
    if text.starts_with("-----BEGIN") && spec.secret.decode != Decode::Pem {
        return Err(fail(format!("is a key or certificate in PEM form, and what is needed is {what}")));
    }
    if text.contains("PRIVATE KEY-----") {
        return Err(fail(format!("is a private key, which has no place here; what is needed is {what}")));
    }
    Ok(())
}

/// Decodes a secret as the spec says.
pub(crate) fn decode_secret(spec: &SignatureSpec, secret: &Secret) -> Result<Key, SecretError> {
    let (what, text) = (wanted(spec), secret.text());
    let fail = |problem: String| SecretError::new(&secret.name, problem);
    let bare = match &spec.secret.strip_prefix {
        Some(prefix) => text.strip_prefix(prefix.as_str()).unwrap_or(text),
        None => text,
    };
    let not = |form: &str| fail(format!("is not {form}; paste {what} whole, as the provider shows it"));
    let bytes = match spec.secret.decode {
        Decode::Utf8 => bare.as_bytes().to_vec(),
        Decode::Base64 => decode_base64(bare).ok_or_else(|| not("base64"))?,
        Decode::Hex => decode(Encoding::Hex, bare.as_bytes()).ok_or_else(|| not("hex"))?,
        Decode::Sha1 => sha1::Sha1::digest(bare.as_bytes()).to_vec(),
        Decode::Sha256Hex => hex::encode(sha2::Sha256::digest(bare.as_bytes())).into_bytes(),
        Decode::Pem => {
            return PublicKey::from_pem_or_der(bare).map(|key| Key::Public(Box::new(key))).map_err(fail);
        }
        Decode::KeySet => return PublicKey::set(bare.as_bytes()).map(Key::Set).map_err(fail),
    };
    if bytes.is_empty() {
        return Err(fail(format!("is empty after its prefix; paste {what} whole")));
    }
    match spec.kind {
        Kind::Ed25519 => PublicKey::ed25519(&bytes).map(|key| Key::Public(Box::new(key))).map_err(fail),
        Kind::Basic if !text.contains(':') => Err(fail("is not of the form user:password".to_owned())),
        _ => Ok(Key::Bytes(bytes)),
    }
}

/// Base64 of a secret: people lose the padding when they copy, and it carries nothing.
fn decode_base64(text: &str) -> Option<Vec<u8>> {
    use base64::Engine as _;
    let bare = text.trim_end_matches('=');
    base64::engine::general_purpose::STANDARD_NO_PAD.decode(bare).ok()
}
