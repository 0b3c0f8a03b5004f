//! Making the headers that a provider would send: for `postonce send`, forwarding, tests, and our own outbox.
//!
//! Only what a shared secret can make: digests, tokens, HTTP basic. Never used on the way in.

use super::digest::{Plain, encode};
use super::spec::{Format, Unit};
use super::template::{Place, Sight};
use super::{Delivery, How, Verifier};

impl Verifier {
    /// The headers to send `delivery` with, as this provider would at `now_ms` (Unix milliseconds) under the first
    /// secret; `id` is used where the scheme signs a message id. The error says why this provider's signature cannot be
    /// made here.
    pub fn sign(&self, delivery: &Delivery<'_>, now_ms: i64, id: &str) -> Result<Vec<(String, String)>, String> {
        let secret = self.secrets.first().ok_or("there is no secret to sign with")?;
        let header_of = |envelope: &super::Envelope| {
            let name = envelope.header_names().first().map(|name| name.replace("{n}", "1"));
            name.ok_or("this provider's signature stands inside the body".to_owned())
        };
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
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
            How::Digest { envelope, content, alg, encoding, keyed, .. } => {
                let name = header_of(envelope)?;
                let ts = envelope.unit.map(|unit| written(now_ms, unit)).transpose()?;
                let mut headers: Vec<(String, String)> = Vec::new();
                for (place, value) in
                    [(envelope.timestamp_places().first(), ts.as_deref()), (envelope.id_places().first(), Some(id))]
                {
                    if let (Some(Place::Header(name)), Some(value)) = (place, value) {
                        headers.push((name.clone(), value.to_owned()));
                    }
                }
                if let Some(Place::Json(_) | Place::Form(..)) = envelope.timestamp_places().first() {
                    return Err("this provider's timestamp stands inside the body".to_owned());
                }
                if let Some(header) = &self.key_id {
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
                    secret: secret.bytes(),
                    pairs: &pairs,
                    settings: &self.settings,
                };
                let mut tag = None;
                for template in content {
                    let mut signed = Vec::new();
                    if template.feed(&sight, &mut |bytes| signed.extend_from_slice(bytes)).map_err(|e| e.to_string())? {
                        tag = match (keyed, &secret.mac, Plain::new(*alg)) {
                            (true, Some(mac), _) => Some(mac.over(&signed)),
                            (false, _, Some(mut hash)) => {
                                hash.update(&signed);
                                Some(hash.tag())
                            }
                            _ => None,
                        };
                        break;
                    }
                }
                let tag = tag.ok_or("the delivery lacks something that this provider signs")?;
                let value = encode(*encoding, tag.bytes());
                let (format, item, kv, ts_key, sig_key, prefix) = envelope.parts();
                let ts = ts.unwrap_or_default();
                let named = content.iter().any(super::Template::names_headers);
                let value = match format {
                    Format::Raw | Format::List => value,
                    Format::Kv if ts_key.is_empty() => format!("{sig_key}{kv}{value}"),
                    Format::Kv if named => format!("{ts_key}{kv}{ts}{item}h{kv}content-type{item}{sig_key}{kv}{value}"),
                    Format::Kv => format!("{ts_key}{kv}{ts}{item}{sig_key}{kv}{value}"),
                    Format::VersionedList => format!("{sig_key}{kv}{value}"),
                    Format::Positional => format!("{ts}{item}{value}"),
                    Format::Keyed => return Err("this provider's signature stands inside the body".to_owned()),
                };
                headers.push((name, format!("{}{value}", prefix.unwrap_or_default())));
                Ok(headers)
            }
            How::Public { .. } | How::Jwt(_) | How::Scheme(_) => {
                Err("only the provider can make this signature; try a provider with a shared secret".to_owned())
            }
        }
    }
}

fn written(now_ms: i64, unit: Unit) -> Result<String, String> {
    Ok(match unit {
        Unit::S => now_ms.div_euclid(1000).to_string(),
        Unit::Ms => now_ms.to_string(),
        Unit::Iso8601 => {
            let at = jiff::Timestamp::from_millisecond(now_ms).map_err(|e| format!("the clock is wrong: {e}"))?;
            at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
        }
    })
}
