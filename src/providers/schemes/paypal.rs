//! PayPal: RSA over a few headers and the CRC-32 of the body, by a certificate that the delivery names the address of.
//!
//! That address is chosen by whoever sends: only https and PayPal's own hosts are followed, the certificate must lead to
//! a trusted root and be made out to one of those hosts. A CRC protects a body against nobody: the file says `part`.

use super::chain::{self, Root};
use crate::providers::signature::fetched::is_allowed;
use crate::providers::signature::keys::{Made, PublicKey, der_blocks};
use crate::providers::signature::{
    Case, Encoding, KeyRequest, Match, Options, Reason, Refusal, SecretError, SignatureSpec, Trace, Unit, decode,
    read_time,
};
use x509_parser::prelude::*;

pub(super) const SIGNATURE: &str = "PAYPAL-TRANSMISSION-SIG";

/// The hosts and roots that are trusted.
pub(crate) struct Paypal {
    hosts: Vec<String>,
    roots: Vec<Root>,
}

impl Paypal {
    pub(crate) fn new(spec: &SignatureSpec, options: &Options) -> Result<Paypal, SecretError> {
        let own = if options.trust_roots.is_empty() { &spec.keys.roots } else { &options.trust_roots };
        let roots = match own.is_empty() {
            true => Root::of_the_web(),
            false => own.iter().map(|text| Root::read(text)).collect::<Result<_, _>>()?,
        };
        Ok(Paypal { hosts: spec.keys.hosts.clone(), roots })
    }

    pub(crate) fn verify(&self, case: &Case<'_>, trace: &mut Trace) -> Result<Match, Refusal> {
        let id = case.header("PAYPAL-TRANSMISSION-ID")?;
        let time = case.header("PAYPAL-TRANSMISSION-TIME")?;
        let signature = case.header(SIGNATURE)?;
        let url = case.header("PAYPAL-CERT-URL")?;
        let signature = decode(Encoding::Base64, signature.as_bytes())
            .ok_or_else(|| Refusal::new(Reason::MalformedHeader, "PAYPAL-TRANSMISSION-SIG is not base64"))?;
        let signed_at_ms = read_time(time.as_bytes(), Unit::Iso8601)
            .ok_or_else(|| Refusal::new(Reason::MalformedHeader, "PAYPAL-TRANSMISSION-TIME is no ISO 8601 time"))?;
        if case.header("PAYPAL-AUTH-ALGO")? != "SHA256withRSA" {
            return Err(Refusal::new(Reason::WrongAlgorithm, "PAYPAL-AUTH-ALGO is not SHA256withRSA"));
        }
        if !is_allowed(url, &self.hosts) {
            return Err(Refusal::new(Reason::CertificateUrl, "PAYPAL-CERT-URL is no https address of PayPal"));
        }
        let pem = case.fetched.get(&KeyRequest { url, post: None }, case.now_ms, case.online, false)?;
        let untrusted = |about: &'static str| Refusal::new(Reason::CertificateUntrusted, about);
        let blocks = der_blocks(&String::from_utf8_lossy(&pem));
        let chain: Vec<_> = blocks.iter().map_while(|der| Some(X509Certificate::from_der(der).ok()?.1)).collect();
        let leaf = chain.first().ok_or_else(|| untrusted("what stands at PAYPAL-CERT-URL is no certificate"))?;
        chain::leads_to(&chain, &self.roots, case.now_ms.div_euclid(1000)).map_err(untrusted)?;
        if !self.is_made_out_to_us(leaf) {
            return Err(untrusted("the certificate is for another name"));
        }
        let key =
            PublicKey::from_spki(leaf.public_key()).map_err(|_| untrusted("the certificate's key cannot be used"))?;
        trace.note(true, || {
            format!("the certificate at {url} leads to a root that is trusted and is for the provider's name")
        });
        let crc = crc32fast::hash(case.delivery.body);
        trace.note(true, || format!("CRC-32 of the body: {crc}"));
        let secret = case.secret_where(trace, |ready| {
            let webhook = String::from_utf8_lossy(ready.bytes());
            Ok(key.verifies(Made::RsaSha256, format!("{id}|{time}|{webhook}|{crc}").as_bytes(), &signature))
        })?;
        Ok(Match { secret: Some(secret), id: Some(id.to_owned()), signed_at_ms: Some(signed_at_ms) })
    }

    /// Alternative names decide where there are any, the common name where there are none.
    fn is_made_out_to_us(&self, leaf: &X509Certificate<'_>) -> bool {
        let ours =
            |name: &str| is_allowed(&format!("https://{}", name.strip_prefix("*.").unwrap_or(name)), &self.hosts);
        if let Ok(Some(names)) = leaf.subject_alternative_name() {
            return names
                .value
                .general_names
                .iter()
                .any(|name| matches!(name, GeneralName::DNSName(name) if ours(name)));
        }
        leaf.subject().iter_common_name().any(|name| name.as_str().is_ok_and(ours))
    }
}
