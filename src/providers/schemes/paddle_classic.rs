//! Paddle Classic: RSA with SHA-1 over all form fields, sorted and written as PHP's `serialize()` writes them.
//!
//! Lengths count bytes, all values are strings, empty ones stay; only the signature's own field is left out.

use crate::providers::signature::template::skip_marks;
use crate::providers::signature::{Case, Encoding, Key, Match, Reason, Refusal, Trace, decode, keys::Made};
use std::collections::BTreeMap;

/// The field that holds the signature.
const FIELD: &str = "p_signature";

pub(super) fn verify(case: &Case<'_>, trace: &mut Trace) -> Result<Match, Refusal> {
    let malformed = |about: &'static str| Refusal::new(Reason::MalformedBody, about);
    let mut fields = BTreeMap::new();
    for (name, value) in form_urlencoded::parse(skip_marks(case.delivery.body)) {
        fields.entry(name).or_insert(value); // of a field that came twice the first counts, as for the rest of the program
    }
    let signature = fields.remove(FIELD).ok_or_else(|| malformed("the form has no p_signature"))?;
    let signature = decode(Encoding::Base64, signature.as_bytes()).filter(|bytes| !bytes.is_empty());
    let signature = signature.ok_or_else(|| malformed("p_signature is not base64"))?;
    let mut signed = format!("a:{}:{{", fields.len());
    for (name, value) in &fields {
        for text in [name, value] {
            signed.push_str(&format!("s:{}:\"{text}\";", text.len()));
        }
    }
    signed.push('}');
    trace.note(true, || format!("RSA with SHA-1 over {} sorted form fields", fields.len()));
    let secret = case.secret_where(trace, |ready| {
        let Key::Public(key) = &ready.key else { return Ok(false) };
        Ok(key.verifies(Made::RsaSha1, signed.as_bytes(), &signature))
    })?;
    Ok(Match { secret: Some(secret), id: None, signed_at_ms: None })
}
