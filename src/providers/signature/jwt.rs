//! JSON web tokens: one algorithm that is agreed beforehand, keys by id, claims, and the hash of the body.
//!
//! The token's own `alg` only has to agree; it never chooses. Claims are read after the signature is known to be good.

use super::delivery::{Reason, Refusal, Trace};
use super::digest::{decode, encode, same};
use super::envelope::Envelope;
use super::fetched::KeyRequest;
use super::keys::{Made, PublicKey};
use super::secrets::Key;
use super::spec::{Alg, Claim, Encoding, JwtSpec, KeysSpec, SignatureSpec};
use super::{Case, Match, Settings};
use serde_json::Value;
use sha2::Digest as _;
use std::borrow::Cow;

/// A compiled token rule.
pub(crate) struct Jwt {
    envelope: Envelope,
    alg: Alg,
    rules: JwtSpec,
    keys: KeysSpec,
}

/// `{setting:NAME}` in a text, filled in; an error when the source does not say it.
pub(crate) fn fill(text: &str, settings: &Settings) -> Result<String, String> {
    let mut out = String::new();
    let mut rest = text;
    while let Some(at) = rest.find("{setting:") {
        out.push_str(&rest[..at]);
        let name = &rest[at + "{setting:".len()..];
        let end = name.find('}').ok_or_else(|| format!("\"{text}\": a {{ without its }}"))?;
        let value = settings.get(&name[..end]);
        out.push_str(value.ok_or_else(|| format!("this source needs the setting \"{}\"", &name[..end]))?);
        rest = &name[end + 1..];
    }
    out.push_str(rest);
    Ok(out)
}

impl Jwt {
    /// `fetches`: the source gives no keys itself, so the settings for asking must be there.
    pub(crate) fn new(
        spec: &SignatureSpec,
        envelope: Envelope,
        settings: &Settings,
        fetches: bool,
    ) -> Result<Jwt, String> {
        let (mut rules, mut keys) = (spec.jwt.clone(), spec.keys.clone());
        for claim in rules.claims.values_mut() {
            match claim {
                Claim::Text(text) => *text = fill(text, settings)?,
                Claim::AnyOf(texts) => texts.iter_mut().try_for_each(|text| fill(text, settings).map(|t| *text = t))?,
                Claim::Is(_) => {}
            }
        }
        if fetches {
            let fetched = keys.url.iter_mut().chain(keys.post.iter_mut().flat_map(|post| post.values_mut()));
            for text in fetched {
                *text = fill(text, settings)?;
            }
        }
        Ok(Jwt { envelope, alg: spec.alg.unwrap_or(Alg::Hs256), rules, keys })
    }

    pub(crate) fn verify(&self, case: &Case<'_>, trace: &mut Trace) -> Result<Match, Refusal> {
        let texts = self.envelope.texts(case.delivery, case.settings)?;
        let opened = self.envelope.open(&texts)?;
        let token = opened.items.first().map_or(&[][..], |item| item.value);
        let parts = Parts::read(token).ok_or_else(|| {
            Refusal::new(Reason::MalformedHeader, format!("{} holds no token of three parts", self.envelope.name()))
        })?;
        let agreed = match self.alg {
            Alg::Rs256 => "RS256",
            Alg::Es256 => "ES256",
            _ => "HS256",
        };
        if parts.header.get("alg").and_then(Value::as_str) != Some(agreed) {
            return Err(Refusal::new(Reason::WrongAlgorithm, format!("the token is not signed with {agreed}")));
        }
        trace.note(true, || format!("{}: a token signed with {agreed}", self.envelope.name()));
        let secret = match self.alg {
            Alg::Rs256 => self.by_public_key(case, &parts, Made::RsaSha256, trace)?,
            Alg::Es256 => self.by_public_key(case, &parts, Made::EcdsaFixed, trace)?,
            _ => Some(case.secret_where(trace, |ready| {
                Ok(ready.mac.as_ref().is_some_and(|mac| mac.over(parts.signed).is(&parts.signature)))
            })?),
        };
        let claims: Value = decode(Encoding::Base64url, parts.payload)
            .and_then(|bytes| serde_json::from_slice(&bytes).ok())
            .ok_or_else(|| Refusal::new(Reason::MalformedHeader, "the token's claims are no JSON"))?;
        self.check_claims(case, &claims, trace)?;
        let signed_at_ms = seconds(&claims, "iat").map(|s| s.saturating_mul(1000));
        let id = claims.get("jti").and_then(Value::as_str).map(str::to_owned);
        // Age has its own rules in tokens and was looked at above.
        Ok(Match { secret, id, signed_at_ms: if self.rules.iat_max_age_s.is_some() { None } else { signed_at_ms } })
    }

    /// The secret whose key set made the signature, or `None` when a fetched key did.
    fn by_public_key(
        &self,
        case: &Case<'_>,
        parts: &Parts<'_>,
        made: Made,
        trace: &mut Trace,
    ) -> Result<Option<usize>, Refusal> {
        let kid = parts.header.get("kid").and_then(Value::as_str).unwrap_or_default();
        let of_kid = |keys: &[(String, PublicKey)]| {
            let mut found = keys.iter().filter(|(id, _)| id == kid).map(|(_, key)| key.clone());
            found.next()
        };
        let mut known = false;
        if !case.secrets.is_empty() {
            let found = case.secret_where(trace, |ready| {
                let key = match &ready.key {
                    Key::Set(keys) => of_kid(keys),
                    Key::Public(key) => Some((**key).clone()),
                    Key::Bytes(_) => None,
                };
                known |= key.is_some();
                Ok(key.is_some_and(|key| key.verifies(made, parts.signed, &parts.signature)))
            });
            return match found {
                Err(refusal) if refusal.reason == Reason::NoSecretMatches && !known => {
                    Err(Refusal::new(Reason::UnknownKey, "no key here has the id that the token names"))
                }
                found => found.map(Some),
            };
        }
        let Some(url) = &self.keys.url else {
            return Err(Refusal::new(Reason::CertificateUnavailable, "the provider's file names no address of keys"));
        };
        let is_safe = !kid.is_empty() && kid.len() <= 200 && kid.bytes().all(|b| b.is_ascii_graphic());
        if !is_safe {
            return Err(Refusal::new(Reason::UnknownKey, "the token names no key"));
        }
        let post = self.keys.post.as_ref().map(|post| {
            let filled = post.iter().map(|(name, text)| (name.clone(), Value::String(text.replace("{kid}", kid))));
            Value::Object(filled.collect()).to_string()
        });
        let request = KeyRequest { url, post: post.as_deref() };
        for anew in [false, true] {
            let answer = case.fetched.get(&request, case.now_ms, case.online, anew)?;
            let answer = match &self.keys.pointer {
                None => Cow::Borrowed(&answer[..]),
                Some(pointer) => {
                    let whole: Option<Value> = serde_json::from_slice(&answer).ok();
                    Cow::Owned(
                        whole.and_then(|v| v.pointer(pointer).map(Value::to_string)).unwrap_or_default().into_bytes(),
                    )
                }
            };
            let keys = PublicKey::set(&answer)
                .map_err(|_| Refusal::new(Reason::CertificateUnavailable, format!("{url} gave no keys")))?;
            if let Some(key) = of_kid(&keys) {
                let good = key.verifies(made, parts.signed, &parts.signature);
                trace.note(good, || {
                    format!("the key that {url} gave {}", if good { "made this token" } else { "did not" })
                });
                return match good {
                    true => Ok(None),
                    false => Err(Refusal::new(Reason::NoSecretMatches, "the provider's key did not make this token")),
                };
            }
        }
        Err(Refusal::new(Reason::UnknownKey, format!("{url} knows no key of the id that the token names")))
    }

    fn check_claims(&self, case: &Case<'_>, claims: &Value, trace: &mut Trace) -> Result<(), Refusal> {
        for (name, wanted) in &self.rules.claims {
            let found = claims.get(name);
            let text = found.and_then(Value::as_str);
            let is = |wanted: &str| text == Some(if wanted == "{url}" { case.delivery.url } else { wanted });
            let good = match wanted {
                Claim::Is(wanted) => found.and_then(Value::as_bool) == Some(*wanted),
                Claim::Text(wanted) => is(wanted),
                Claim::AnyOf(wanted) => wanted.iter().any(|wanted| is(wanted)),
            };
            trace.note(good, || format!("claim {name} {}", if good { "is as expected" } else { "is another" }));
            if !good {
                return Err(Refusal::new(
                    Reason::ClaimDiffers,
                    format!("the token's \"{name}\" is not what this source expects"),
                ));
            }
        }
        if let Some(name) = &self.rules.body_hash_claim {
            let hash = encode(self.rules.body_hash_encoding, &sha2::Sha256::digest(case.delivery.body));
            let told = claims.get(name).and_then(Value::as_str).unwrap_or_default().trim_end_matches('=');
            let good = same(hash.as_bytes(), told.as_bytes());
            trace.note(good, || format!("claim {name} {} the hash of this body", if good { "is" } else { "is not" }));
            if !good {
                return Err(Refusal::new(Reason::BodyHashDiffers, "the token was made for another body"));
            }
        }
        if case.ignore_age { Ok(()) } else { self.check_times(case, claims) }
    }

    fn check_times(&self, case: &Case<'_>, claims: &Value) -> Result<(), Refusal> {
        let now = case.now_ms.div_euclid(1000);
        let skew = i64::try_from(self.rules.skew_s).unwrap_or(i64::MAX);
        let (exp, iat) = (seconds(claims, "exp"), seconds(claims, "iat"));
        if self.rules.exp_required && exp.is_none() {
            return Err(Refusal::new(Reason::ClaimDiffers, "the token says no end (\"exp\")"));
        }
        if exp.is_some_and(|exp| now > exp.saturating_add(skew)) {
            return Err(Refusal::new(Reason::TooOld, "genuine, but the token has ended"));
        }
        if [seconds(claims, "nbf"), iat].into_iter().flatten().any(|from| now < from.saturating_sub(skew)) {
            return Err(Refusal::new(
                Reason::InTheFuture,
                "genuine, but the token is not valid yet; is our clock right?",
            ));
        }
        if let (Some(max), Some(exp)) = (self.rules.lifetime_max_s, exp) {
            let from = iat.unwrap_or(now);
            if exp.saturating_sub(from) > i64::try_from(max).unwrap_or(i64::MAX) {
                return Err(Refusal::new(Reason::ClaimDiffers, "the token lives longer than this provider's do"));
            }
        }
        match (case.age.tolerance_s.or(self.rules.iat_max_age_s), iat) {
            (None, _) => Ok(()),
            (Some(_), None) => {
                Err(Refusal::new(Reason::ClaimDiffers, "the token does not say when it was made (\"iat\")"))
            }
            (Some(max), Some(iat)) if now.saturating_sub(iat) > i64::try_from(max).unwrap_or(i64::MAX) => Err(
                Refusal::new(Reason::TooOld, format!("genuine, but made {} s ago; {max} s are accepted", now - iat)),
            ),
            _ => Ok(()),
        }
    }
}

/// A claim in Unix seconds; whole numbers only, fractions are cut off.
pub(crate) fn seconds(claims: &Value, name: &str) -> Option<i64> {
    let number = claims.get(name).filter(|value| value.is_number())?.to_string();
    number.split('.').next()?.parse().ok()
}

/// A token in three parts.
pub(crate) struct Parts<'t> {
    pub header: Value,
    pub payload: &'t [u8],
    pub signed: &'t [u8],
    pub signature: Vec<u8>,
}

impl<'t> Parts<'t> {
    pub(crate) fn read(token: &'t [u8]) -> Option<Parts<'t>> {
        let mut dots = token.iter().enumerate().filter(|(_, b)| **b == b'.').map(|(at, _)| at);
        let (first, second) = (dots.next()?, dots.next()?);
        if dots.next().is_some() {
            return None;
        }
        let header: Value = serde_json::from_slice(&decode(Encoding::Base64url, &token[..first])?).ok()?;
        let signature = decode(Encoding::Base64url, &token[second + 1..])?;
        let (payload, signed) = (&token[first + 1..second], &token[..second]);
        header.is_object().then_some(Parts { header, payload, signed, signature })
    }
}
