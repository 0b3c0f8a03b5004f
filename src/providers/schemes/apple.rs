//! Apple's App Store notifications (version 2): a JWS in the body whose certificate chain must lead to Apple's root.
//!
//! There is no shared secret. What protects a source are the chain, Apple's two marker extensions, and the claims: the
//! notification must be for this application and this environment. Age is no part of the scheme.

use super::chain::{self, Root};
use crate::providers::signature::json::{self, Pointer};
use crate::providers::signature::keys::{Made, PublicKey};
use crate::providers::signature::template::skip_marks;
use crate::providers::signature::{
    Case, Encoding, Match, Options, Reason, Refusal, SecretError, Settings, SignatureSpec, Trace, decode,
};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;
use x509_parser::prelude::*;

/// What Apple's signing certificates carry.
const LEAF_MARK: &str = "1.2.840.113635.100.6.11.1";
const ISSUER_MARK: &str = "1.2.840.113635.100.6.2.1";

/// Apple's root, or those of a test.
pub(crate) struct Apple {
    roots: Vec<Root>,
    place: Pointer,
}

impl Apple {
    pub(crate) fn new(spec: &SignatureSpec, options: &Options) -> Result<Apple, SecretError> {
        let own = if options.trust_roots.is_empty() { &spec.keys.roots } else { &options.trust_roots };
        let roots = own.iter().map(|text| Root::read(text)).collect::<Result<_, _>>()?;
        let place = Pointer::parse("/signedPayload").map_err(|e| SecretError::new("(recipe)", e))?;
        Ok(Apple { roots, place })
    }

    pub(crate) fn verify(&self, case: &Case<'_>, trace: &mut Trace) -> Result<Match, Refusal> {
        let malformed = |about: &'static str| Refusal::new(Reason::MalformedBody, about);
        let untrusted = |about: &'static str| Refusal::new(Reason::CertificateUntrusted, about);
        let token = json::text_at(skip_marks(case.delivery.body), &self.place)
            .ok_or_else(|| malformed("the body is no JSON with a signedPayload"))?;
        let parts: Vec<&str> = token.split('.').collect();
        let [head_text, claims_text, signature] = parts[..] else {
            return Err(malformed("signedPayload is no token of three parts"));
        };
        let json_of = |text: &str| -> Option<Value> {
            serde_json::from_slice(&decode(Encoding::Base64url, text.as_bytes())?).ok()
        };
        let head = json_of(head_text).ok_or_else(|| malformed("signedPayload's header is no JSON"))?;
        let claims = json_of(claims_text).ok_or_else(|| malformed("signedPayload's claims are no JSON"))?;
        let signature = decode(Encoding::Base64url, signature.as_bytes());
        let signature = signature.ok_or_else(|| malformed("signedPayload's signature is not base64url"))?;
        if head.get("alg").and_then(Value::as_str) != Some("ES256") {
            return Err(Refusal::new(Reason::WrongAlgorithm, "signedPayload is not signed with ES256"));
        }
        let x5c = head.get("x5c").and_then(Value::as_array).filter(|list| list.len() == 3);
        let x5c = x5c.ok_or_else(|| untrusted("signedPayload does not carry a chain of three certificates"))?;
        let ders: Vec<Vec<u8>> = x5c.iter().filter_map(|text| STANDARD.decode(text.as_str()?).ok()).collect();
        let chain: Vec<_> = ders.iter().filter_map(|der| Some(X509Certificate::from_der(der).ok()?.1)).collect();
        let [leaf, issuer, _] = &chain[..] else {
            return Err(untrusted("signedPayload's certificates cannot be read"));
        };
        // A notification is judged by the time it was signed: it may arrive after its short-lived certificate has ended.
        let signed_at_ms =
            claims.get("signedDate").filter(|date| date.is_number()).and_then(|date| date.to_string().parse().ok());
        let at_s = signed_at_ms.unwrap_or(case.now_ms).div_euclid(1000);
        chain::leads_to(&chain[..2], &self.roots, at_s).map_err(untrusted)?;
        let marked = |certificate: &X509Certificate<'_>, mark: &str| {
            certificate.extensions().iter().any(|extension| extension.oid.to_id_string() == mark)
        };
        if !marked(leaf, LEAF_MARK) || !marked(issuer, ISSUER_MARK) {
            return Err(untrusted("the certificates are not those that Apple signs notifications with"));
        }
        trace.note(true, || "the chain of certificates leads to a root that is trusted".to_owned());
        let key =
            PublicKey::from_spki(leaf.public_key()).map_err(|_| untrusted("the certificate's key cannot be used"))?;
        let signed = &token[..head_text.len() + 1 + claims_text.len()];
        if !key.verifies(Made::EcdsaFixed, signed.as_bytes(), &signature) {
            return Err(Refusal::new(Reason::NoSecretMatches, "the certificate's key did not make this signature"));
        }
        check_claims(&claims, case.settings)?;
        trace.note(true, || "signed for this application and environment".to_owned());
        let id = claims.get("notificationUUID").and_then(Value::as_str).map(str::to_owned);
        Ok(Match { secret: None, id, signed_at_ms })
    }
}

/// Application and environment stand in `data`, or in `summary`, or elsewhere for newer kinds of notification.
fn check_claims(claims: &Value, settings: &Settings) -> Result<(), Refusal> {
    let differs = |about: &'static str| Refusal::new(Reason::ClaimDiffers, about);
    let holder = ["data", "summary", "externalPurchaseToken", "appData"].iter().find_map(|name| claims.get(name));
    let holder = holder.ok_or_else(|| differs("the notification names no application"))?;
    let told =
        |name: &str| holder.get(name).map(|value| value.as_str().map_or_else(|| value.to_string(), str::to_owned));
    if told("bundleId").as_ref() != settings.get("bundle_id") {
        return Err(differs("the notification is for another application"));
    }
    let wanted = settings.get("environment").map(String::as_str).unwrap_or_default();
    if told("environment").is_some_and(|environment| environment != wanted) {
        return Err(differs("the notification is for another environment"));
    }
    match (settings.get("app_apple_id"), told("appAppleId")) {
        (Some(wanted), Some(told)) if *wanted != told => Err(differs("the notification is for another application")),
        _ => Ok(()),
    }
}
