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
mod jwt;
pub(crate) mod keys;
mod secrets;
mod sign;
mod spec;
pub(crate) mod template;

pub use delivery::{Accepted, Delivery, Reason, Refusal, Step};
pub use fetched::{Fetch, KeyRequest};
pub use secrets::{Secret, SecretError};
pub use spec::*;

pub(crate) use delivery::Trace;
pub(crate) use digest::{Keyed, TAG_BYTES_MAX, decode, decode_tag, encode, same};
pub(crate) use envelope::read_time;
pub(crate) use jwt::fill;
pub(crate) use secrets::Key;

use crate::providers::schemes::Scheme;
use digest::Plain;
use envelope::Envelope;
use fetched::Fetched;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use template::{Place, Sight, Template};

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
    Jwt(jwt::Jwt),
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
                format!("secret \"{}\" {}", ready.name, if good { "made this signature" } else { "did not" })
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
            let key = secrets::decode_secret(spec, secret)?;
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
            Kind::Jwt => How::Jwt(jwt::Jwt::new(spec, envelope()?, &settings).map_err(fail)?),
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

    fn run(
        &self,
        delivery: &Delivery<'_>,
        now_ms: i64,
        ignore_age: bool,
        online: bool,
        trace: &mut Trace,
    ) -> Result<Accepted<'_>, Refusal> {
        if let Some(other) = &self.otherwise
            && !self.is_addressed(delivery)
        {
            trace.note(true, || "the usual header is absent: looking for the other way to sign".to_owned());
            return other.run(delivery, now_ms, ignore_age, online, trace);
        }
        let (secrets, settings, fetched, age) = (&self.secrets[..], &self.settings, &self.fetched, self.age);
        let case = Case { delivery, secrets, settings, fetched, age, now_ms, ignore_age, online };
        for (place, value) in &self.require {
            let sight = Sight { delivery, ts: None, id: None, secret: &[], pairs: &[], settings: &self.settings };
            match place.find(&sight)? {
                Some(found) if *found == *value.as_bytes() => {}
                Some(_) => {
                    return Err(Refusal::new(Reason::MalformedHeader, "a field is not what this provider sends"));
                }
                None => {
                    return Err(Refusal::new(
                        Reason::MissingHeader,
                        "a field that this provider always sends is absent",
                    ));
                }
            }
        }
        let found = match &self.how {
            How::Nothing => Match { secret: None, id: None, signed_at_ms: None },
            How::Scheme(scheme) => scheme.verify(&case, trace)?,
            How::Jwt(jwt) => jwt.verify(&case, trace)?,
            How::Token(envelope) => self.token(envelope, &case, trace)?,
            How::Basic(envelope) => Self::basic(envelope, &case, trace)?,
            How::Digest { .. } | How::Public { .. } => self.over_content(&case, trace)?,
        };
        if let (Some(at_ms), false) = (found.signed_at_ms, ignore_age) {
            check_age(at_ms, now_ms, self.age, trace)?;
        }
        let secret = found.secret.and_then(|at| self.secrets.get(at)).map_or("", |ready| ready.name.as_str());
        Ok(Accepted { secret, id: found.id, signed_at_ms: found.signed_at_ms })
    }

    /// Whether a header of this way to sign is there.
    fn is_addressed(&self, delivery: &Delivery<'_>) -> bool {
        match &self.how {
            How::Digest { envelope, .. } | How::Public { envelope, .. } => envelope.is_there(delivery),
            How::Token(envelope) | How::Basic(envelope) => envelope.is_there(delivery),
            How::Nothing | How::Jwt(_) | How::Scheme(_) => true,
        }
    }

    /// Digests and public keys: anything over a template.
    fn over_content(&self, case: &Case<'_>, trace: &mut Trace) -> Result<Match, Refusal> {
        let (How::Digest { envelope, content, .. } | How::Public { envelope, content, .. }) = &self.how else {
            return Err(Refusal::new(Reason::NoSecretMatches, "there is nothing to compare"));
        };
        let texts = envelope.texts(case.delivery, case.settings)?;
        let opened = envelope.open(&texts)?;
        trace.note(true, || {
            let (length, count) = (texts.iter().map(|text| text.len()).sum::<usize>(), opened.items.len());
            format!("{}: {length} bytes, {count} signature(s) of the kind that counts", envelope.name())
        });
        let before = Sight {
            delivery: case.delivery,
            ts: None,
            id: None,
            secret: &[],
            pairs: &opened.pairs,
            settings: case.settings,
        };
        let marks = envelope.marks(&before, &opened)?;
        if let Some(ts) = &marks.ts {
            trace.note(true, || format!("timestamp {} as it is signed", String::from_utf8_lossy(ts)));
        }
        let wanted_id = match &self.key_id {
            None => None,
            Some(header) => {
                let id = case.delivery.header_once(header)?;
                Some(id.ok_or_else(|| Refusal::new(Reason::MissingHeader, format!("{header} is not there")))?)
            }
        };
        let is_wanted =
            |ready: &Ready| wanted_id.is_none_or(|id| ready.key_id.as_deref().unwrap_or(&ready.name).as_bytes() == id);
        if wanted_id.is_some() && !case.secrets.iter().any(is_wanted) {
            return Err(Refusal::new(Reason::UnknownKey, "no secret here has the key id that the delivery names"));
        }
        let sight = Sight {
            delivery: case.delivery,
            ts: marks.ts.as_deref(),
            id: marks.id.as_deref(),
            secret: &[],
            pairs: &opened.pairs,
            settings: case.settings,
        };
        let mut complete = false;
        let mut buffer = [0; TAG_BYTES_MAX + 8];
        let secret = match &self.how {
            How::Digest { alg, encoding, keyed, bound, .. } => {
                if !opened.items.iter().any(|item| decode_tag(*encoding, item.value, &mut buffer).is_some()) {
                    let about = format!("{}: the signature is not written as this provider writes it", envelope.name());
                    return Err(Refusal::new(Reason::MalformedHeader, about));
                }
                case.secret_where(trace, |ready| {
                    let label = ready.key_id.as_deref().or(case.settings.get("public_key").map(String::as_str));
                    let mut good = false;
                    for template in content.iter().filter(|_| is_wanted(ready)) {
                        let sight = Sight { secret: ready.bytes(), ..sight };
                        let tag = match (keyed, &ready.mac, Plain::new(*alg)) {
                            (true, Some(mac), _) => {
                                let mut mac = mac.clone();
                                template.feed(&sight, &mut |bytes| mac.update(bytes))?.then(|| mac.tag())
                            }
                            (false, _, Some(mut hash)) => {
                                template.feed(&sight, &mut |bytes| hash.update(bytes))?.then(|| hash.tag())
                            }
                            _ => None,
                        };
                        let Some(tag) = tag else { continue };
                        complete = true;
                        for item in &opened.items {
                            let ours = !bound || label.is_some_and(|label| label.as_bytes() == item.label);
                            let length = decode_tag(*encoding, item.value, &mut buffer);
                            good |= ours && length.is_some_and(|length| tag.is(&buffer[..length]));
                        }
                    }
                    Ok(good)
                })
            }
            How::Public { made, encoding, .. } => {
                let signatures: Vec<_> = opened.items.iter().filter_map(|item| decode(*encoding, item.value)).collect();
                if signatures.is_empty() {
                    let about = format!("{}: the signature is not written as this provider writes it", envelope.name());
                    return Err(Refusal::new(Reason::MalformedHeader, about));
                }
                case.secret_where(trace, |ready| {
                    let Key::Public(key) = &ready.key else { return Ok(false) };
                    let mut good = false;
                    for template in content {
                        let mut message = Vec::with_capacity(case.delivery.body.len() + 64);
                        if template.feed(&sight, &mut |bytes| message.extend_from_slice(bytes))? {
                            complete = true;
                            good |= signatures.iter().any(|signature| key.verifies(*made, &message, signature));
                        }
                    }
                    Ok(good)
                })
            }
            _ => Err(Refusal::new(Reason::NoSecretMatches, "there is nothing to compare")),
        };
        match secret {
            Err(refusal) if refusal.reason == Reason::NoSecretMatches && !complete => {
                Err(Refusal::new(Reason::MalformedBody, "the delivery lacks fields that are signed"))
            }
            Err(refusal) => Err(refusal),
            Ok(secret) => Ok(Match {
                secret: Some(secret),
                id: marks.id.as_deref().map(|id| String::from_utf8_lossy(id).into_owned()),
                signed_at_ms: marks.signed_at_ms,
            }),
        }
    }

    fn token(&self, envelope: &Envelope, case: &Case<'_>, trace: &mut Trace) -> Result<Match, Refusal> {
        let texts = envelope.texts(case.delivery, case.settings)?;
        let opened = envelope.open(&texts)?;
        trace.note(true, || format!("{} is there; it is the secret itself and covers nothing", envelope.name()));
        let secret = case.secret_where(trace, |ready| {
            Ok(opened.items.iter().fold(false, |good, item| good | same(ready.bytes(), item.value)))
        })?;
        Ok(Match { secret: Some(secret), id: None, signed_at_ms: None })
    }

    fn basic(envelope: &Envelope, case: &Case<'_>, trace: &mut Trace) -> Result<Match, Refusal> {
        let texts = envelope.texts(case.delivery, case.settings)?;
        let malformed = || Refusal::new(Reason::MalformedHeader, format!("{} is no HTTP basic", envelope.name()));
        let text: &[u8] = texts.first().map_or(&[], Cow::as_ref);
        let (scheme, rest) = text.split_at_checked("Basic ".len()).ok_or_else(malformed)?;
        if !scheme.eq_ignore_ascii_case(b"Basic ") {
            return Err(malformed());
        }
        let given = decode(Encoding::Base64, rest).ok_or_else(malformed)?;
        trace.note(true, || format!("{} holds a user and a password; they cover nothing", envelope.name()));
        let secret = case.secret_where(trace, |ready| Ok(same(ready.bytes(), &given)))?;
        Ok(Match { secret: Some(secret), id: None, signed_at_ms: None })
    }
}

impl SignatureSpec {
    /// Whether a source of this provider does not start without a secret.
    pub fn needs_secret(&self) -> bool {
        self.kind != Kind::None && !self.secret.optional
    }
}

/// Refuses what is dated too far from now, either way. Whole seconds are compared as whole seconds.
fn check_age(at_ms: i64, now_ms: i64, age: Age, trace: &mut Trace) -> Result<(), Refusal> {
    let whole = at_ms % 1000 == 0;
    let now_ms = if whole { now_ms.div_euclid(1000).saturating_mul(1000) } else { now_ms };
    let old_ms = i128::from(now_ms) - i128::from(at_ms);
    let over = |limit: Option<u64>, by_ms: i128| limit.is_some_and(|limit| by_ms > i128::from(limit) * 1000);
    let (reason, about) = if over(age.tolerance_s, old_ms) {
        let limit = age.tolerance_s.unwrap_or(0);
        (Reason::TooOld, format!("genuine, but signed {} s ago; this source accepts {limit} s", old_ms / 1000))
    } else if over(age.future_s, -old_ms) {
        let limit = age.future_s.unwrap_or(0);
        let about = format!(
            "genuine, but dated {} s ahead of our clock; this source accepts {limit} s: is it right?",
            -old_ms / 1000
        );
        (Reason::InTheFuture, about)
    } else {
        trace.note(true, || match age.tolerance_s {
            Some(limit) => format!("signed {} s ago; {limit} s are accepted", old_ms / 1000),
            None => format!("signed {} s ago; this source sets no limit", old_ms / 1000),
        });
        return Ok(());
    };
    trace.note(false, || about.clone());
    Err(Refusal::new(reason, about))
}
