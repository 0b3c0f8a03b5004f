//! Box: two signature headers, each tied to its own key.
//!
//! The first secret (or the one with key id "primary") belongs to the primary header, the second to the secondary one; a
//! signature in the other header never counts. Either is enough, which is how Box rotates keys.

use crate::providers::signature::{
    Alg, Case, Encoding, Keyed, Match, Ready, Reason, Refusal, TAG_BYTES_MAX, Trace, Unit, decode_tag, read_time,
};

/// A keyed digest and the header for each secret.
pub(crate) struct BoxKeys {
    keys: Vec<(String, &'static str, Option<Keyed>)>,
}

pub(super) const PRIMARY: &str = "box-signature-primary";
pub(super) const SECONDARY: &str = "box-signature-secondary";

impl BoxKeys {
    pub(crate) fn new(secrets: &[Ready]) -> BoxKeys {
        let header = |at: usize, ready: &Ready| match ready.key_id.as_deref() {
            Some("primary") => PRIMARY,
            Some("secondary") => SECONDARY,
            _ if at == 0 => PRIMARY,
            _ => SECONDARY,
        };
        let key = |(at, ready): (usize, &Ready)| {
            (ready.name.clone(), header(at, ready), Keyed::new(Alg::Sha256, ready.bytes()))
        };
        BoxKeys { keys: secrets.iter().enumerate().map(key).collect() }
    }

    pub(crate) fn verify(&self, case: &Case<'_>, trace: &mut Trace) -> Result<Match, Refusal> {
        if case.header("box-signature-version")? != "1" || case.header("box-signature-algorithm")? != "HmacSHA256" {
            return Err(Refusal::new(
                Reason::WrongAlgorithm,
                "the signature's version or algorithm is not the one that is known",
            ));
        }
        let time = case.header("box-delivery-timestamp")?;
        let signed_at_ms = read_time(time.as_bytes(), Unit::Iso8601)
            .ok_or_else(|| Refusal::new(Reason::MalformedHeader, "box-delivery-timestamp is no ISO 8601 time"))?;
        let (primary, secondary) = (case.delivery.header_once(PRIMARY)?, case.delivery.header_once(SECONDARY)?);
        if primary.is_none() && secondary.is_none() {
            return Err(Refusal::new(Reason::MissingHeader, format!("{PRIMARY} is not there")));
        }
        let mut buffer = [0; TAG_BYTES_MAX + 8];
        let secret = case.secret_where(trace, |ready| {
            let Some((_, header, Some(mac))) = self.keys.iter().find(|(name, ..)| *name == ready.name) else {
                return Ok(false);
            };
            let given = if *header == PRIMARY { primary } else { secondary };
            let length = given.and_then(|given| decode_tag(Encoding::Base64, given, &mut buffer));
            let mut mac = mac.clone();
            mac.update(case.delivery.body);
            mac.update(time.as_bytes());
            Ok(length.is_some_and(|length| mac.tag().is(&buffer[..length])))
        })?;
        Ok(Match { secret: Some(secret), id: None, signed_at_ms: Some(signed_at_ms) })
    }
}
