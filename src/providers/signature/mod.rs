//! Verifying who sent a delivery: a spec and its secrets, compiled once into a `Verifier` that is cheap per call.
//!
//! The order is always the same: read the signature, find the secret that made it, and only then look at its age, so that
//! a refusal can say "genuine but stale". All configured secrets and all signatures of a delivery are tried; comparisons
//! take the same time whatever is compared. Refusals, `Debug` and explanations never hold anything made from a secret.
//! No network is touched here: where keys must be fetched, a closure given from outside does it, and nothing in this
//! module may be called while a database transaction is open.

mod delivery;
mod digest;
mod envelope;
pub(crate) mod fetched;
pub(crate) mod json;
mod judge;
mod jwt;
pub(crate) mod keys;
mod secrets;
mod sign;
mod spec;
pub(crate) mod template;
#[cfg(test)]
mod tests;

pub use delivery::{Accepted, Delivery, Reason, Refusal, Step, headers_from_text};
pub use fetched::{Fetch, KeyRequest};
pub use secrets::{Secret, SecretError};
pub use spec::*;

pub(crate) use delivery::Trace;
pub(crate) use digest::{Keyed, TAG_BYTES_MAX, decode, decode_tag, encode, same};
pub(crate) use envelope::read_time;
pub(crate) use jwt::fill;
pub(crate) use secrets::Key;

use crate::providers::schemes::Scheme;
use envelope::Envelope;
use fetched::Fetched;
use std::collections::BTreeMap;
use std::fmt;
use template::{Place, Template};

/// What a source says beside its secrets: `audience`, `public_key`, `verify_token` …
pub type Settings = BTreeMap<String, String>;

/// How many secrets one source may have.
pub const SECRETS_MAX: usize = 16;

/// What a source sets on its own.
#[derive(Clone, Default)]
pub struct Options {
    /// How old a delivery may be, in seconds, instead of the provider's own tolerance.
    pub tolerance_s: Option<u64>,
    /// How far ahead of our clock it may be dated, in seconds; as `tolerance_s` when absent.
    pub future_s: Option<u64>,
    /// The source's settings.
    pub settings: Settings,
    /// Fetches keys and certificates; without it schemes that need them refuse with `certificate_unavailable`.
    pub fetch: Option<Fetch>,
    /// Root certificates (PEM, or DER in base64) to trust instead of the provider's or the public web's.
    pub trust_roots: Vec<String>,
}

/// A secret with everything that can be prepared.
pub(crate) struct Ready {
    pub name: String,
    pub key_id: Option<String>,
    pub ends_at_ms: Option<i64>,
    pub key: Key,
    pub mac: Option<Keyed>,
}

impl Ready {
    pub(crate) fn bytes(&self) -> &[u8] {
        match &self.key {
            Key::Bytes(bytes) => bytes,
            Key::Public(_) | Key::Set(_) => &[],
        }
    }

    fn is_live(&self, now_ms: i64) -> bool {
        self.ends_at_ms.is_none_or(|end| now_ms < end)
    }
}

/// A provider's proof and a source's secrets, ready to verify deliveries. Share it between threads.
pub struct Verifier {
    how: How,
    secrets: Vec<Ready>,
    settings: Settings,
    require: Vec<(Place, String)>,
    key_id: Option<String>,
    age: Age,
    fetched: Fetched,
    covers: Covers,
    signs: Signs,
    otherwise: Option<Box<Verifier>>,
}

impl fmt::Debug for Verifier {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.secrets.iter().map(|ready| ready.name.as_str()).collect();
        out.debug_struct("Verifier").field("secrets", &names).field("covers", &self.covers).finish_non_exhaustive()
    }
}

/// How far from now a delivery may be dated.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Age {
    pub tolerance_s: Option<u64>,
    pub future_s: Option<u64>,
}

enum How {
    Nothing,
    Digest { envelope: Envelope, content: Vec<Template>, alg: Alg, encoding: Encoding, keyed: bool, bound: bool },
    Token(Envelope),
    Basic(Envelope),
    Public { envelope: Envelope, content: Vec<Template>, made: keys::Made, encoding: Encoding },
    Jwt(Box<jwt::Jwt>),
    Scheme(Scheme),
}

/// What a scheme found before age is looked at.
pub(crate) struct Match {
    /// Which secret; `None` where the key was fetched or is part of the program.
    pub secret: Option<usize>,
    pub id: Option<String>,
    pub signed_at_ms: Option<i64>,
}

/// Everything that a scheme may use for one delivery.
pub(crate) struct Case<'c> {
    pub delivery: &'c Delivery<'c>,
    pub secrets: &'c [Ready],
    pub settings: &'c Settings,
    pub fetched: &'c Fetched,
    pub age: Age,
    pub now_ms: i64,
    pub ignore_age: bool,
    /// Whether keys may be fetched for this delivery.
    pub online: bool,
}

impl Case<'_> {
    /// The secret for which `matches` says yes. All live ones are asked, then the retired ones.
    pub(crate) fn secret_where(
        &self,
        trace: &mut Trace,
        mut matches: impl FnMut(&Ready) -> Result<bool, Refusal>,
    ) -> Result<usize, Refusal> {
        let live = |ready: &Ready| self.ignore_age || ready.is_live(self.now_ms);
        for (at, ready) in self.secrets.iter().enumerate().filter(|(_, ready)| live(ready)) {
            let good = matches(ready)?;
            trace.note(good, || {
                format!("secret \"{}\" {}", ready.name, if good { "made this signature" } else { "did not make it" })
            });
            if good {
                return Ok(at);
            }
        }
        for ready in self.secrets.iter().filter(|ready| !live(ready)) {
            if matches(ready)? {
                let about = format!("genuine, but by secret \"{}\", whose end date has passed", ready.name);
                trace.note(false, || about.clone());
                return Err(Refusal::new(Reason::SecretRetired, about));
            }
        }
        Err(Refusal::new(Reason::NoSecretMatches, "none of this source's secrets made this signature"))
    }

    /// The place's value as text; a refusal when it is absent, with `reason`.
    pub(crate) fn header(&self, name: &'static str) -> Result<&str, Refusal> {
        let value = self.delivery.header_once(name)?;
        let value = value.ok_or_else(|| Refusal::new(Reason::MissingHeader, format!("{name} is not there")))?;
        match std::str::from_utf8(value) {
            Ok(text) if !text.is_empty() => Ok(text),
            _ => Err(Refusal::new(Reason::MalformedHeader, format!("{name} is empty or no text"))),
        }
    }
}

impl Verifier {
    /// Does it judge within microseconds, by digests of the delivery and the secrets? Others work with public keys, or fetch
    /// one first and wait for it.
    pub fn is_quick(&self) -> bool {
        let here = match self.how {
            How::Nothing | How::Digest { .. } | How::Token(_) | How::Basic(_) => true,
            How::Public { .. } | How::Jwt(_) | How::Scheme(_) => false,
        };
        here && self.otherwise.as_ref().is_none_or(|other| other.is_quick())
    }

    /// Compiles `spec` with a source's secrets. Fails in words for people when a secret is missing, empty or of an
    /// obviously wrong kind, or when a setting that the provider needs is absent.
    pub fn new(spec: &SignatureSpec, secrets: &[Secret], options: &Options) -> Result<Verifier, SecretError> {
        spec.check().map_err(|problem| SecretError::new("(recipe)", problem))?;
        let fail = |problem: String| SecretError::new("(recipe)", problem);
        if secrets.is_empty() && spec.needs_secret() {
            let what = spec.secret.is.as_deref().unwrap_or("the signing secret");
            return Err(SecretError::new("(none)", format!("this source has no secret; it needs {what}")));
        }
        if secrets.len() > SECRETS_MAX {
            return Err(SecretError::new(
                "(all)",
                format!("more than {SECRETS_MAX} secrets; remove those that have ended"),
            ));
        }
        for (at, secret) in secrets.iter().enumerate() {
            if secrets[..at].iter().any(|other| other.name == secret.name) {
                return Err(SecretError::new(
                    &secret.name,
                    "two secrets have this name; verdicts could not say which one matched",
                ));
            }
        }
        let mut settings = options.settings.clone();
        for (name, setting) in &spec.settings {
            if let (None, Some(default)) = (settings.get(name), &setting.default) {
                settings.insert(name.clone(), default.clone());
            }
            if setting.required && settings.get(name).is_none_or(|value| value.trim().is_empty()) {
                return Err(SecretError::new(
                    name,
                    format!("this source needs the setting \"{name}\": {}", setting.is),
                ));
            }
        }
        let mut ready = Vec::new();
        for secret in secrets.iter().filter(|_| spec.kind != Kind::None) {
            secrets::check_kind(spec, secret)?;
            let key = match secrets::decode_secret(spec, secret) {
                // Where there are two ways to sign, a secret may be of the other.
                Err(_) if spec.otherwise.is_some() => continue,
                key => key?,
            };
            let mac = match (&key, spec.kind, spec.alg) {
                (Key::Bytes(bytes), Kind::Hmac | Kind::Jwt, Some(alg)) => Keyed::new(alg, bytes),
                _ => None,
            };
            let (name, key_id, ends_at_ms) = (secret.name.clone(), secret.key_id.clone(), secret.ends_at_ms);
            ready.push(Ready { name, key_id, ends_at_ms, key, mac });
        }
        let envelope = || Envelope::new(spec).map_err(fail);
        let content = || {
            let all = spec.content.all().iter().map(|text| Template::parse(text)).collect::<Result<Vec<_>, _>>();
            all.map_err(fail)
        };
        let how = match spec.kind {
            Kind::None => How::Nothing,
            Kind::Token => How::Token(envelope()?),
            Kind::Basic => How::Basic(envelope()?),
            Kind::Hmac | Kind::Hash => How::Digest {
                envelope: envelope()?,
                content: content()?,
                alg: spec.alg.unwrap_or(Alg::Sha256),
                encoding: spec.encoding,
                keyed: spec.kind == Kind::Hmac,
                bound: spec.format == Format::Keyed,
            },
            Kind::Ed25519 | Kind::Ecdsa | Kind::Rsa => How::Public {
                envelope: envelope()?,
                content: content()?,
                made: match (spec.kind, spec.alg) {
                    (Kind::Ed25519, _) => keys::Made::Ed25519,
                    (Kind::Ecdsa, _) => keys::Made::EcdsaAsn1,
                    (_, Some(Alg::Sha1)) => keys::Made::RsaSha1,
                    (_, Some(Alg::Sha512)) => keys::Made::RsaSha512,
                    _ => keys::Made::RsaSha256,
                },
                encoding: spec.encoding,
            },
            Kind::Jwt => {
                How::Jwt(Box::new(jwt::Jwt::new(spec, envelope()?, &settings, secrets.is_empty()).map_err(fail)?))
            }
            Kind::Scheme => How::Scheme(Scheme::new(spec, &ready, options)?),
        };
        let require = spec.require.iter().map(|(place, value)| Ok((Place::parse(place)?, value.clone())));
        let stamp = spec.timestamp.as_ref();
        let tolerance_s = options.tolerance_s.or(stamp.and_then(|t| t.tolerance_s));
        let own_future = if options.tolerance_s.is_some() { None } else { stamp.and_then(|t| t.future_s) };
        let otherwise = match &spec.otherwise {
            None => None,
            Some(other) => Some(Box::new(Verifier::new(other, secrets, options)?)),
        };
        Ok(Verifier {
            how,
            secrets: ready,
            settings,
            require: require.collect::<Result<Vec<_>, String>>().map_err(fail)?,
            key_id: spec.key_id.clone(),
            age: Age { tolerance_s, future_s: options.future_s.or(own_future).or(tolerance_s) },
            fetched: Fetched::new(options.fetch.clone()),
            covers: spec.covers,
            signs: spec.signs,
            otherwise,
        })
    }

    /// What the proof covers.
    pub fn covers(&self) -> Covers {
        self.covers
    }

    /// Which bytes to hand over as the body when it came compressed.
    pub fn signs(&self) -> Signs {
        self.signs
    }

    /// The source's settings, with the provider's defaults filled in.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// The provider's id of the secret that is in use now.
    pub(crate) fn key_id_now(&self, now_ms: i64) -> Option<&str> {
        let ready = self.secrets.iter().find(|ready| ready.is_live(now_ms))?;
        ready.key_id.as_deref().or(self.settings.get("public_key").map(String::as_str))
    }

    /// A keyed digest under the secret that is in use now: for handshakes that want a proof back.
    pub(crate) fn keyed_text(&self, alg: Alg, encoding: Encoding, bytes: &[u8], now_ms: i64) -> Option<String> {
        let ready = self.secrets.iter().find(|ready| ready.is_live(now_ms))?;
        Some(encode(encoding, Keyed::new(alg, ready.bytes())?.over(bytes).bytes()))
    }

    /// Whether the delivery is genuine and fresh.
    pub fn verify(&self, delivery: &Delivery<'_>, now_ms: i64) -> Result<Accepted<'_>, Refusal> {
        self.run(delivery, now_ms, false, true, &mut Trace::off())
    }

    /// Whether the delivery is genuine, however old it is and whichever secret has ended since: for imports.
    pub fn verify_ignoring_age(&self, delivery: &Delivery<'_>, now_ms: i64) -> Result<Accepted<'_>, Refusal> {
        self.run(delivery, now_ms, true, true, &mut Trace::off())
    }

    /// The name of the secret that made this signature, whatever its age: to tell somebody that a delivery went to the
    /// wrong source. Fetches nothing, and says `None` for schemes without a secret of their own.
    pub fn secret_that_matches(&self, delivery: &Delivery<'_>, now_ms: i64) -> Option<&str> {
        if matches!(self.how, How::Nothing) {
            return None;
        }
        let found = self.run(delivery, now_ms, true, false, &mut Trace::off()).ok()?;
        (!found.secret.is_empty()).then_some(found.secret)
    }

    /// The verdict with the steps that led to it.
    pub fn explain(&self, delivery: &Delivery<'_>, now_ms: i64) -> (Result<Accepted<'_>, Refusal>, Vec<Step>) {
        let mut trace = Trace::on();
        let verdict = self.run(delivery, now_ms, false, true, &mut trace);
        match &verdict {
            Ok(found) if found.secret.is_empty() => trace.note(true, || "accepted".to_owned()),
            Ok(found) => trace.note(true, || format!("accepted by secret \"{}\"", found.secret)),
            Err(refusal) => trace.note(false, || format!("refused: {refusal}")),
        }
        (verdict, trace.steps())
    }
}

impl SignatureSpec {
    /// Whether a source of this provider does not start without a secret.
    pub fn needs_secret(&self) -> bool {
        self.kind != Kind::None && !self.secret.optional
    }
}
