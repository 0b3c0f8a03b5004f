//! Twilio: an HMAC over the public address and the sorted form fields; for JSON the address carries the body's hash.
//!
//! The address is the configured one, tried with and without its default port, because both are signed in practice. A
//! second header may announce SHA-256; then nothing but SHA-256 is accepted.

use crate::providers::signature::template::skip_marks;
use crate::providers::signature::{
    Alg, Case, Encoding, Keyed, Match, Ready, Reason, Refusal, TAG_BYTES_MAX, Trace, decode_tag, same,
};
use sha2::Digest as _;
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

pub(super) const SIGNATURE: &str = "X-Twilio-Signature";
const SETTINGS: &str = "X-Twilio-Webhooks-Signature-Settings";

/// Both digests for each secret.
pub(crate) struct Twilio {
    macs: Vec<(String, Option<Keyed>, Option<Keyed>)>,
}

impl Twilio {
    pub(crate) fn new(secrets: &[Ready]) -> Twilio {
        let mac = |alg, ready: &Ready| Keyed::new(alg, ready.bytes());
        let both = |ready: &Ready| (ready.name.clone(), mac(Alg::Sha1, ready), mac(Alg::Sha256, ready));
        Twilio { macs: secrets.iter().map(both).collect() }
    }

    pub(crate) fn verify(&self, case: &Case<'_>, trace: &mut Trace) -> Result<Match, Refusal> {
        let delivery = case.delivery;
        let given = case.header(SIGNATURE)?;
        let mut buffer = [0; TAG_BYTES_MAX + 8];
        let length = decode_tag(Encoding::Base64, given.as_bytes(), &mut buffer)
            .ok_or_else(|| Refusal::new(Reason::MalformedHeader, format!("{SIGNATURE} is not base64")))?;
        let sha256 = match delivery.header_once(SETTINGS)? {
            None => false,
            Some(settings) => {
                let wanted =
                    settings.split(|b| *b == b',').find_map(|part| part.trim_ascii().strip_prefix(b"algorithm="));
                match wanted {
                    Some(alg) if alg.eq_ignore_ascii_case(b"HMAC_SHA256") => true,
                    Some(alg) if alg.eq_ignore_ascii_case(b"HMAC_SHA1") => false,
                    _ => {
                        return Err(Refusal::new(
                            Reason::WrongAlgorithm,
                            format!("{SETTINGS} names an unknown algorithm"),
                        ));
                    }
                }
            }
        };
        let is_json = delivery.header_once("Content-Type")?.is_some_and(|kind| kind.starts_with(b"application/json"));
        let mut fields = String::new();
        if is_json {
            let told = form_urlencoded::parse(delivery.query.as_bytes()).find(|(name, _)| name == "bodySHA256");
            let (_, told) = told.ok_or_else(|| {
                Refusal::new(
                    Reason::BodyHashDiffers,
                    "a JSON body whose hash is not in the address: nothing protects it",
                )
            })?;
            let hash = hex::encode(sha2::Sha256::digest(delivery.body));
            if !same(hash.as_bytes(), told.to_ascii_lowercase().as_bytes()) {
                return Err(Refusal::new(
                    Reason::BodyHashDiffers,
                    "bodySHA256 in the address is not the hash of this body",
                ));
            }
        } else {
            let mut sorted: BTreeMap<Cow<'_, str>, BTreeSet<Cow<'_, str>>> = BTreeMap::new();
            for (name, value) in form_urlencoded::parse(skip_marks(delivery.body)) {
                sorted.entry(name).or_default().insert(value);
            }
            for (name, values) in &sorted {
                values.iter().for_each(|value| fields.extend([name.as_ref(), value.as_ref()]));
            }
        }
        let addresses = addresses(delivery.url);
        trace.note(true, || {
            let kind = if is_json { "a JSON body, by its hash in the address" } else { "the form fields, sorted" };
            format!("{} over {} and {kind}", if sha256 { "HMAC-SHA256" } else { "HMAC-SHA1" }, addresses.join(" or "))
        });
        let secret = case.secret_where(trace, |ready| {
            let macs = self.macs.iter().find(|(name, ..)| *name == ready.name);
            let mac =
                macs.and_then(|(_, with_sha1, with_sha256)| if sha256 { with_sha256 } else { with_sha1 }.as_ref());
            Ok(addresses.iter().fold(false, |good, address| {
                let tag = mac.map(|mac| {
                    let mut mac = mac.clone();
                    mac.update(address.as_bytes());
                    mac.update(fields.as_bytes());
                    mac.tag()
                });
                good | tag.is_some_and(|tag| tag.is(&buffer[..length]))
            }))
        });
        let secret = secret.map_err(|refusal| match refusal.reason {
            Reason::NoSecretMatches => {
                let about = format!("{}; the address that we checked is {}", refusal.about, delivery.url);
                Refusal::new(Reason::NoSecretMatches, about)
            }
            _ => refusal,
        })?;
        Ok(Match { secret: Some(secret), id: None, signed_at_ms: None })
    }
}

/// The address as configured, and the same with its default port put in or taken out.
fn addresses(url: &str) -> Vec<String> {
    let Some((scheme, rest)) = url.split_once("://") else { return vec![url.to_owned()] };
    let port = if scheme == "http" { ":80" } else { ":443" };
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (host, path) = rest.split_at(end);
    let other = match host.strip_suffix(port) {
        Some(bare) => format!("{scheme}://{bare}{path}"),
        None if host.contains(':') => return vec![url.to_owned()],
        None => format!("{scheme}://{host}{port}{path}"),
    };
    vec![url.to_owned(), other]
}
