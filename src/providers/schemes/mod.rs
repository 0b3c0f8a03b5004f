//! Signature schemes that no table can express, each named by the provider's file as `scheme = "…"`.
//!
//! One file a scheme. A scheme gets a delivery, the source's secrets and a way to fetch keys; it answers which secret
//! matched, or a refusal. It never looks at age itself where the verifier can, and writes no cryptography.

mod adyen;
mod apple;
mod box_keys;
mod chain;
mod paddle_classic;
mod paypal;
mod sns;
mod truelayer;
mod twilio;

use super::signature::{Case, Match, Options, Ready, Refusal, SecretError, SignatureSpec, Trace};

/// The names that a file may use.
pub const NAMES: &[&str] = &["adyen", "apple_jws", "box", "paddle_classic", "paypal", "sns", "truelayer", "twilio"];

/// Whether there is a scheme of that name.
pub fn is_known(name: &str) -> bool {
    NAMES.contains(&name)
}

/// The headers in which the signatures of a scheme stand; the others' stand in the body.
pub(super) fn signature_headers(scheme: &str) -> &'static [&'static str] {
    match scheme {
        "box" => &[box_keys::PRIMARY, box_keys::SECONDARY],
        "paypal" => &[paypal::SIGNATURE],
        "truelayer" => &[truelayer::SIGNATURE],
        "twilio" => &[twilio::SIGNATURE],
        _ => &[],
    }
}

/// A scheme with what it keeps between deliveries.
pub(crate) enum Scheme {
    Adyen(adyen::Adyen),
    Apple(apple::Apple),
    Box(box_keys::BoxKeys),
    PaddleClassic,
    Paypal(paypal::Paypal),
    Sns(sns::Sns),
    Truelayer(truelayer::Truelayer),
    Twilio(twilio::Twilio),
}

impl Scheme {
    pub(crate) fn new(spec: &SignatureSpec, secrets: &[Ready], options: &Options) -> Result<Scheme, SecretError> {
        Ok(match spec.scheme.as_deref().unwrap_or_default() {
            "adyen" => Scheme::Adyen(adyen::Adyen::new(secrets)),
            "apple_jws" => Scheme::Apple(apple::Apple::new(spec, options)?),
            "box" => Scheme::Box(box_keys::BoxKeys::new(secrets)),
            "paddle_classic" => Scheme::PaddleClassic,
            "paypal" => Scheme::Paypal(paypal::Paypal::new(spec, options)?),
            "sns" => Scheme::Sns(sns::Sns::new(spec)),
            "truelayer" => Scheme::Truelayer(truelayer::Truelayer::new(spec)),
            "twilio" => Scheme::Twilio(twilio::Twilio::new(secrets)),
            other => return Err(SecretError::new("(recipe)", format!("[signature] scheme: there is no \"{other}\""))),
        })
    }

    pub(crate) fn verify(&self, case: &Case<'_>, trace: &mut Trace) -> Result<Match, Refusal> {
        match self {
            Scheme::Adyen(scheme) => scheme.verify(case, trace),
            Scheme::Apple(scheme) => scheme.verify(case, trace),
            Scheme::Box(scheme) => scheme.verify(case, trace),
            Scheme::PaddleClassic => paddle_classic::verify(case, trace),
            Scheme::Paypal(scheme) => scheme.verify(case, trace),
            Scheme::Sns(scheme) => scheme.verify(case, trace),
            Scheme::Truelayer(scheme) => scheme.verify(case, trace),
            Scheme::Twilio(scheme) => scheme.verify(case, trace),
        }
    }
}
