//! Amazon SNS: RSA over a few fields of the message, by a certificate that the message names the address of.
//!
//! Only addresses of SNS itself are followed: anybody can put a certificate elsewhere below amazonaws.com. Anybody may
//! also have a topic of their own, so a source names its topic, and messages of another are refused.

use crate::providers::signature::fetched::is_allowed;
use crate::providers::signature::json::{Pointer, text_at};
use crate::providers::signature::keys::{Made, PublicKey, der_blocks};
use crate::providers::signature::template::skip_marks;
use crate::providers::signature::{
    Case, Encoding, KeyRequest, Match, Reason, Refusal, SignatureSpec, Trace, Unit, decode, read_time, same,
};
use x509_parser::prelude::*;

/// The addresses that certificates may stand at.
pub(crate) struct Sns {
    hosts: Vec<String>,
}

/// The signed fields of a notification and of the messages about a subscription.
const NOTIFICATION: &[&str] = &["Message", "MessageId", "Subject", "Timestamp", "TopicArn", "Type"];
const SUBSCRIPTION: &[&str] = &["Message", "MessageId", "SubscribeURL", "Timestamp", "Token", "TopicArn", "Type"];

impl Sns {
    pub(crate) fn new(spec: &SignatureSpec) -> Sns {
        Sns { hosts: spec.keys.hosts.clone() }
    }

    pub(crate) fn verify(&self, case: &Case<'_>, trace: &mut Trace) -> Result<Match, Refusal> {
        let malformed = |about: String| Refusal::new(Reason::MalformedBody, about);
        let body = skip_marks(case.delivery.body);
        let find = |name: &str| text_at(body, &Pointer::parse(&format!("/{name}")).ok()?);
        let need = |name: &str| find(name).ok_or_else(|| malformed(format!("the message has no {name}")));
        let made = match need("SignatureVersion")?.as_str() {
            "1" => Made::RsaSha1,
            "2" => Made::RsaSha256,
            _ => return Err(Refusal::new(Reason::WrongAlgorithm, "SignatureVersion is neither 1 nor 2")),
        };
        let signature = decode(Encoding::Base64, need("Signature")?.as_bytes());
        let signature = signature.ok_or_else(|| malformed("Signature is not base64".to_owned()))?;
        let signed_at_ms = read_time(need("Timestamp")?.as_bytes(), Unit::Iso8601);
        let signed_at_ms = signed_at_ms.ok_or_else(|| malformed("Timestamp is no ISO 8601 time".to_owned()))?;
        let fields = if need("Type")? == "Notification" { NOTIFICATION } else { SUBSCRIPTION };
        let mut signed = String::new();
        for name in fields {
            match find(name) {
                Some(value) => signed.push_str(&format!("{name}\n{value}\n")),
                None if *name == "Subject" => {}
                None => return Err(malformed(format!("the message has no {name}"))),
            }
        }
        let url = need("SigningCertURL")?;
        if !is_allowed(&url, &self.hosts) {
            return Err(Refusal::new(Reason::CertificateUrl, "SigningCertURL is no https address of SNS"));
        }
        let pem = case.fetched.get(&KeyRequest { url: &url, post: None }, case.now_ms, case.online, false)?;
        let untrusted = |about: &'static str| Refusal::new(Reason::CertificateUntrusted, about);
        let der = der_blocks(&String::from_utf8_lossy(&pem)).into_iter().next().unwrap_or_default();
        let (_, leaf) = X509Certificate::from_der(&der)
            .map_err(|_| untrusted("what stands at SigningCertURL is no certificate"))?;
        let (life, at_s) = (leaf.validity(), signed_at_ms.div_euclid(1000));
        if at_s < life.not_before.timestamp() || at_s > life.not_after.timestamp() {
            return Err(untrusted("the certificate was not valid when the message was signed"));
        }
        let key =
            PublicKey::from_spki(leaf.public_key()).map_err(|_| untrusted("the certificate's key cannot be used"))?;
        let good = key.verifies(made, signed.as_bytes(), &signature);
        trace.note(good, || format!("the key at {url} {}", if good { "made this signature" } else { "did not" }));
        if !good {
            return Err(Refusal::new(Reason::NoSecretMatches, "the key of SNS did not make this signature"));
        }
        let wanted = case.settings.get("topic_arn").map(String::as_str).unwrap_or_default();
        if !same(need("TopicArn")?.as_bytes(), wanted.as_bytes()) {
            return Err(Refusal::new(Reason::ClaimDiffers, "the message is of another topic"));
        }
        Ok(Match { secret: None, id: find("MessageId"), signed_at_ms: Some(signed_at_ms) })
    }
}
