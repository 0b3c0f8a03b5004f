//! Making the headers that a provider would send: for `postonce send`, forwarding, tests, and our own outbox.
//!
//! Only what a shared secret can make: digests, tokens, HTTP basic. Never used on the way in.

use super::digest::{Plain, Tag, encode};
use super::spec::{Format, Unit};
use super::template::{Place, Sight};
use super::{Alg, Delivery, Envelope, How, Ready, Template, Verifier};

impl Verifier {
    /// The headers to send `delivery` with, as this provider would at `now_ms` (Unix milliseconds) under each live
    /// secret (the first where only one signature fits). `id` is used where the scheme signs a message id; a timestamp
    /// that stands inside the body is taken as it is. The error says why this signature cannot be made here.
    pub fn sign(&self, delivery: &Delivery<'_>, now_ms: i64, id: &str) -> Result<Vec<(String, String)>, String> {
        let live: Vec<&Ready> = self.secrets.iter().filter(|ready| ready.is_live(now_ms)).collect();
        let header_of = |envelope: &Envelope| {
            let name = envelope.header_names().first().map(|name| name.replace("{n}", "1"));
            name.ok_or("this provider's signature stands inside the body".to_owned())
        };
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        if matches!(self.how, How::Nothing) {
            return Ok(Vec::new());
        }
        let secret = live.first().ok_or("there is no secret to sign with")?;
        match &self.how {
            How::Nothing => Ok(Vec::new()),
            How::Token(envelope) => {
                let prefix = envelope.parts().5.unwrap_or_default();
                Ok(vec![(header_of(envelope)?, format!("{prefix}{}", text(secret.bytes())))])
            }
            How::Basic(envelope) => {
                let value = format!("Basic {}", encode(super::Encoding::Base64, secret.bytes()));
                Ok(vec![(header_of(envelope)?, value)])
            }
            How::Digest { envelope, .. } => {
                self.sign_content(envelope, header_of(envelope)?, &live, delivery, now_ms, id)
            }
            How::Public { .. } | How::Jwt(_) | How::Scheme(_) => {
                Err("only the provider can make this signature; try a provider with a shared secret".to_owned())
            }
        }
    }

    /// The headers of a digest over a template.
    fn sign_content(
        &self,
        envelope: &Envelope,
        name: String,
        live: &[&Ready],
        delivery: &Delivery<'_>,
        now_ms: i64,
        id: &str,
    ) -> Result<Vec<(String, String)>, String> {
        let How::Digest { content, alg, encoding, keyed, .. } = &self.how else {
            return Err("this provider does not sign with a digest".to_owned());
        };
        let ts = envelope.unit.map(|unit| written(now_ms, unit)).transpose()?;
        let mut headers: Vec<(String, String)> = Vec::new();
        for (place, value) in
            [(envelope.timestamp_places().first(), ts.as_deref()), (envelope.id_places().first(), Some(id))]
        {
            if let (Some(Place::Header(name)), Some(value)) = (place, value) {
                headers.push((name.clone(), value.to_owned()));
            }
        }
        if let Some(header) = &self.key_id {
            let secret = live.first().ok_or("there is no secret to sign with")?;
            headers.push((header.clone(), secret.key_id.clone().unwrap_or_else(|| secret.name.clone())));
        }
        let all: Vec<(&str, &[u8])> = delivery
            .headers
            .iter()
            .copied()
            .chain(headers.iter().map(|(name, value)| (name.as_str(), value.as_bytes())))
            .collect();
        let delivery = Delivery { headers: &all, ..*delivery };
        let pairs: [(&[u8], &[u8]); 1] = [(b"h", b"content-type")];
        let sight = Sight {
            delivery: &delivery,
            ts: ts.as_deref().map(str::as_bytes),
            id: Some(id.as_bytes()),
            secret: &[],
            pairs: &pairs,
            settings: &self.settings,
        };
        let mut values = Vec::new();
        for secret in live {
            let sight = Sight { secret: secret.bytes(), ..sight };
            values.push(encode(*encoding, one_tag(&sight, content, secret, *alg, *keyed)?.bytes()));
        }
        let (format, item, kv, ts_key, sig_key, prefix) = envelope.parts();
        let ts = ts.unwrap_or_default();
        let first = values.first().cloned().unwrap_or_default();
        let list = |before: &str| {
            let all: Vec<String> = values.iter().map(|value| format!("{before}{value}")).collect();
            all.join(&item.to_string())
        };
        let value = match format {
            Format::Raw => first,
            Format::List => list(""),
            Format::Kv if ts_key.is_empty() => list(&format!("{sig_key}{kv}")),
            Format::Kv if content.iter().any(Template::names_headers) => {
                format!("{ts_key}{kv}{ts}{item}h{kv}content-type{item}{}", list(&format!("{sig_key}{kv}")))
            }
            Format::Kv => format!("{ts_key}{kv}{ts}{item}{}", list(&format!("{sig_key}{kv}"))),
            Format::VersionedList => list(&format!("{sig_key}{kv}")),
            Format::Positional => format!("{ts}{item}{}", list("")),
            Format::Keyed => return Err("this provider's signature stands inside the body".to_owned()),
        };
        headers.push((name, format!("{}{value}", prefix.unwrap_or_default())));
        Ok(headers)
    }
}

/// The tag over the first template that the delivery has everything for.
fn one_tag(sight: &Sight<'_>, content: &[Template], secret: &Ready, alg: Alg, keyed: bool) -> Result<Tag, String> {
    for template in content {
        let mut signed = Vec::new();
        if template.feed(sight, &mut |bytes| signed.extend_from_slice(bytes)).map_err(|e| e.to_string())? {
            let tag = match (keyed, &secret.mac, Plain::new(alg)) {
                (true, Some(mac), _) => Some(mac.over(&signed)),
                (false, _, Some(mut hash)) => {
                    hash.update(&signed);
                    Some(hash.tag())
                }
                _ => None,
            };
            return tag.ok_or_else(|| "this secret is of another way to sign".to_owned());
        }
    }
    Err("the delivery lacks something that this provider signs".to_owned())
}

fn written(now_ms: i64, unit: Unit) -> Result<String, String> {
    Ok(match unit {
        Unit::S => now_ms.div_euclid(1000).to_string(),
        Unit::Ms | Unit::SOrMs => now_ms.to_string(),
        Unit::Iso8601 => {
            let at = jiff::Timestamp::from_millisecond(now_ms).map_err(|e| format!("the clock is wrong: {e}"))?;
            at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
        }
    })
}
