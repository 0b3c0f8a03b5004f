//! The order of a verdict: conditions, the signature, the secret that made it, and only then its age.
//!
//! The declarative kinds are judged here; named schemes and tokens by their own files. Nothing is fetched here, and
//! nothing is compared in less than constant time.

use super::digest::Plain;
use super::envelope::{Envelope, Item};
use super::template::{Sight, Template};
use super::{
    Accepted, Age, Case, Delivery, Encoding, How, Key, Match, Ready, Reason, Refusal, TAG_BYTES_MAX, Trace, Verifier,
    decode, decode_tag, same,
};
use std::borrow::Cow;

impl Verifier {
    pub(super) fn run(
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
        let (How::Digest { envelope, content, encoding, .. } | How::Public { envelope, content, encoding, .. }) =
            &self.how
        else {
            return Err(Refusal::new(Reason::NoSecretMatches, "there is nothing to compare"));
        };
        let texts = envelope.texts(case.delivery, case.settings)?;
        let opened = envelope.open(&texts)?;
        trace.note(true, || {
            let (length, count) = (texts.iter().map(|text| text.len()).sum::<usize>(), opened.items.len());
            format!("{}: {length} bytes, {count} signature(s) of the kind that counts", envelope.name())
        });
        let (delivery, settings) = (case.delivery, case.settings);
        let bare = Sight { delivery, ts: None, id: None, secret: &[], pairs: &opened.pairs, settings };
        let marks = envelope.marks(&bare, &opened)?;
        if let Some(ts) = &marks.ts {
            trace.note(true, || format!("timestamp {} as it is signed", String::from_utf8_lossy(ts)));
        }
        let sight = Sight { ts: marks.ts.as_deref(), id: marks.id.as_deref(), ..bare };
        let malformed = || {
            let about = format!("{}: the signature is not written as this provider writes it", envelope.name());
            Refusal::new(Reason::MalformedHeader, about)
        };
        let mut complete = false;
        let secret = match &self.how {
            How::Public { made, .. } => {
                let signatures: Vec<_> = opened.items.iter().filter_map(|item| decode(*encoding, item.value)).collect();
                if signatures.is_empty() {
                    return Err(malformed());
                }
                case.secret_where(trace, |ready| {
                    let Key::Public(key) = &ready.key else { return Ok(false) };
                    let mut good = false;
                    for template in content {
                        let mut message = Vec::with_capacity(delivery.body.len() + 64);
                        if template.feed(&sight, &mut |bytes| message.extend_from_slice(bytes))? {
                            complete = true;
                            good |= signatures.iter().any(|signature| key.verifies(*made, &message, signature));
                        }
                    }
                    Ok(good)
                })
            }
            _ => {
                let mut buffer = [0; TAG_BYTES_MAX + 8];
                if !opened.items.iter().any(|item| decode_tag(*encoding, item.value, &mut buffer).is_some()) {
                    return Err(malformed());
                }
                let wanted = self.wanted_key(case)?;
                case.secret_where(trace, |ready| match (wanted, &ready.key_id) {
                    (Some(wanted), Some(id)) if id.as_bytes() != wanted => Ok(false),
                    _ => self.digest_is_of(
                        ready,
                        &Sight { secret: ready.bytes(), ..sight },
                        &opened.items,
                        &mut complete,
                    ),
                })
            }
        };
        let secret = secret.map_err(|refusal| match refusal.reason {
            Reason::NoSecretMatches if !complete => {
                Refusal::new(Reason::MalformedBody, "the delivery lacks fields that are signed")
            }
            Reason::NoSecretMatches if content.iter().any(Template::holds_url) => {
                // The commonest mistake with these: the address that we know is not the one that was signed.
                let about = format!("{}; the address that we checked is {}", refusal.about, delivery.url);
                Refusal::new(Reason::NoSecretMatches, about)
            }
            _ => refusal,
        })?;
        let id = marks.id.as_deref().map(|id| String::from_utf8_lossy(id).into_owned());
        Ok(Match { secret: Some(secret), id, signed_at_ms: marks.signed_at_ms })
    }

    /// The key id that the delivery names, where this provider's deliveries do. A secret that was configured without a
    /// key id counts for any.
    fn wanted_key<'c>(&self, case: &Case<'c>) -> Result<Option<&'c [u8]>, Refusal> {
        let Some(header) = &self.key_id else { return Ok(None) };
        let id = case.delivery.header_once(header)?;
        let id = id.ok_or_else(|| Refusal::new(Reason::MissingHeader, format!("{header} is not there")))?;
        let fits = |ready: &Ready| ready.key_id.as_ref().is_none_or(|known| known.as_bytes() == id);
        match case.secrets.iter().any(fits) {
            true => Ok(Some(id)),
            false => Err(Refusal::new(Reason::UnknownKey, "no secret here has the key id that the delivery names")),
        }
    }

    /// Whether one of the signatures is the digest under this secret. `complete` is set once a template found all that it
    /// signs. All signatures are compared, whichever matches.
    fn digest_is_of(
        &self,
        ready: &Ready,
        sight: &Sight<'_>,
        items: &[Item<'_>],
        complete: &mut bool,
    ) -> Result<bool, Refusal> {
        let How::Digest { content, alg, encoding, keyed, bound, .. } = &self.how else { return Ok(false) };
        let label = ready.key_id.as_deref().or(sight.settings.get("public_key").map(String::as_str));
        let mut buffer = [0; TAG_BYTES_MAX + 8];
        let mut good = false;
        for template in content {
            let tag = match (keyed, &ready.mac, Plain::new(*alg)) {
                (true, Some(mac), _) => {
                    let mut mac = mac.clone();
                    template.feed(sight, &mut |bytes| mac.update(bytes))?.then(|| mac.tag())
                }
                (false, _, Some(mut hash)) => {
                    template.feed(sight, &mut |bytes| hash.update(bytes))?.then(|| hash.tag())
                }
                _ => None,
            };
            let Some(tag) = tag else { continue };
            *complete = true;
            for item in items {
                let ours = !bound || label.is_some_and(|label| label.as_bytes() == item.label);
                let length = decode_tag(*encoding, item.value, &mut buffer);
                good |= ours && length.is_some_and(|length| tag.is(&buffer[..length]));
            }
        }
        Ok(good)
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
