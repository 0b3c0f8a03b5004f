//! Known answers: reads files of signature vectors and says what our verifiers make of them.
//!
//! One file is a JSON list of deliveries with secrets, a clock and an expected verdict; the format is described with the
//! vectors. Pure: no file is opened and nothing is fetched here.

use super::Catalog;
use super::handshake;
use super::signature::{Delivery, KeyRequest, Options, Secret, Verifier};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::sync::Arc;

/// One delivery with its known answer.
#[derive(Debug, Clone, Deserialize)]
pub struct Vector {
    /// Its name, unique within the provider.
    pub name: String,
    /// The provider whose file decides.
    pub provider: String,
    /// The HTTP method.
    pub method: String,
    /// The public address.
    pub url: String,
    /// The headers.
    pub headers: BTreeMap<String, String>,
    /// The body, in base64.
    pub body_base64: String,
    /// The secrets; any may have signed.
    pub secrets: Vec<String>,
    /// What kind of thing they are; text when absent.
    #[serde(default)]
    pub secret_kind: Option<String>,
    /// The clock, in Unix seconds.
    pub now: i64,
    /// `accept` or `reject`.
    #[serde(default)]
    pub expect: String,
    /// `core`, `edge`, `handshake` or `docderived`.
    #[serde(default)]
    pub class: String,
    /// The source's settings and what stands for the network.
    #[serde(default)]
    pub config: BTreeMap<String, serde_json::Value>,
    /// The answer that a handshake gets.
    #[serde(default)]
    pub handshake: Option<ExpectedReply>,
}

/// The answer that a handshake gets.
#[derive(Debug, Clone, Deserialize)]
pub struct ExpectedReply {
    /// The status.
    pub expect_status: u16,
    /// The body as text.
    #[serde(default)]
    pub expect_body: Option<String>,
    /// The body as JSON.
    #[serde(default)]
    pub expect_json: Option<serde_json::Value>,
}

/// What we make of a vector; written as one JSON line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verdict {
    /// The vector's name.
    pub name: String,
    /// Whether it is accepted.
    pub accepted: bool,
    /// The reason code when refused; `ok` when accepted.
    pub reason: String,
}

impl Verdict {
    /// `{"name":…,"verdict":"accept"|"reject","reason":…}`
    pub fn to_line(&self) -> String {
        let verdict = if self.accepted { "accept" } else { "reject" };
        serde_json::json!({ "name": self.name, "verdict": verdict, "reason": self.reason }).to_string()
    }
}

/// Judges all vectors of a file. Fails in words when the file is not of the format or names an unknown provider.
pub fn verify_vectors(catalog: &Catalog, text: &[u8]) -> Result<Vec<Verdict>, String> {
    let vectors: Vec<Vector> =
        serde_json::from_slice(text).map_err(|e| format!("this is no list of signature vectors: {e}"))?;
    vectors.iter().map(|vector| judge(catalog, vector)).collect()
}

/// Judges one vector.
pub fn judge(catalog: &Catalog, vector: &Vector) -> Result<Verdict, String> {
    let recipe = catalog.recipe(&vector.provider).ok_or_else(|| {
        format!("vector \"{}\": no provider \"{}\"; `postonce providers list` shows all", vector.name, vector.provider)
    })?;
    let recipe = recipe.map_err(|e| e.to_string())?;
    let body =
        STANDARD.decode(&vector.body_base64).map_err(|e| format!("vector \"{}\": body_base64: {e}", vector.name))?;
    let verdict =
        |accepted: bool, reason: &str| Verdict { name: vector.name.clone(), accepted, reason: reason.to_owned() };
    let verifier = match Verifier::new(&recipe.signature, &vector.secrets(), &vector.options()) {
        Ok(verifier) => verifier,
        Err(_) => return Ok(verdict(false, "secret_unusable")),
    };
    let headers: Vec<(&str, &[u8])> =
        vector.headers.iter().map(|(name, value)| (name.as_str(), value.as_bytes())).collect();
    let delivery = Delivery { headers: &headers, body: &body, ..Delivery::to(&vector.method, &vector.url) };
    let now_ms = vector.now.saturating_mul(1000);
    if vector.method == "GET"
        && let Some(reply) = handshake::answer(&recipe.handshake, &delivery, &verifier, now_ms, false)
    {
        let reason = if reply.status < 300 { "ok" } else { "handshake_refused" };
        return Ok(verdict(reply.status < 300, reason));
    }
    Ok(match verifier.verify(&delivery, now_ms) {
        Ok(_) => verdict(true, "ok"),
        Err(refusal) => verdict(false, refusal.reason.as_str()),
    })
}

impl Vector {
    /// The secrets, named 1, 2, …; with the key ids that the settings give them.
    pub fn secrets(&self) -> Vec<Secret> {
        if self.secret_kind.as_deref() == Some("trusted_root_certificate_der_base64") {
            return Vec::new();
        }
        if let Some(serde_json::Value::Object(by_id)) = self.config.get("key_ids") {
            let named = |(id, text): (&String, &serde_json::Value)| {
                let mut secret = Secret::exact(id, text.as_str()?);
                secret.key_id = Some(id.clone());
                Some(secret)
            };
            return by_id.iter().filter_map(named).collect();
        }
        self.secrets.iter().enumerate().map(|(at, text)| Secret::exact(&(at + 1).to_string(), text)).collect()
    }

    /// The options of the source: settings of the same names, tolerances, and `fetched_certs` instead of a network.
    pub fn options(&self) -> Options {
        let texts = |value: Option<&serde_json::Value>| -> Vec<String> {
            let list = value.and_then(serde_json::Value::as_array);
            list.into_iter().flatten().filter_map(|text| Some(text.as_str()?.to_owned())).collect()
        };
        let mut settings = BTreeMap::new();
        for (name, value) in &self.config {
            if let Some(text) = value.as_str() {
                settings.insert(name.clone(), text.to_owned());
            }
        }
        let fetched: BTreeMap<String, String> = match self.config.get("fetched_certs") {
            Some(serde_json::Value::Object(map)) => {
                map.iter().filter_map(|(url, pem)| Some((url.clone(), pem.as_str()?.to_owned()))).collect()
            }
            _ => BTreeMap::new(),
        };
        let answer = move |request: &KeyRequest<'_>| {
            fetched
                .get(request.url)
                .map(|pem| pem.clone().into_bytes())
                .ok_or_else(|| "is not among the fetched certificates".to_owned())
        };
        let trust_roots = match self.secret_kind.as_deref() {
            Some("trusted_root_certificate_der_base64") => self.secrets.clone(),
            _ => texts(self.config.get("trust_roots")),
        };
        Options {
            tolerance_s: self.config.get("tolerance_s").and_then(serde_json::Value::as_u64),
            future_s: None,
            settings,
            fetch: Some(Arc::new(answer)),
            trust_roots,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::{Path, PathBuf};

    fn folders() -> Vec<PathBuf> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let full = ["../shared/vectors/signatures", "../shared/vectors/signatures_docs"].map(|path| root.join(path));
        let shared = std::env::var_os("POSTONCE_VECTORS").map(PathBuf::from);
        let mut all: Vec<PathBuf> =
            shared.into_iter().flat_map(|p| [p.join("signatures"), p.join("signatures_docs")]).collect();
        all.extend(full);
        all.push(root.join("tests/vectors/signatures"));
        all.into_iter().filter(|path| path.is_dir()).collect()
    }

    fn all() -> Vec<Vector> {
        let mut vectors = Vec::new();
        for folder in folders() {
            let mut files: Vec<_> =
                std::fs::read_dir(folder).expect("a folder").map(|e| e.expect("an entry").path()).collect();
            files.sort();
            for file in files {
                let text = std::fs::read(&file).expect("readable");
                let list: Vec<Vector> =
                    serde_json::from_slice(&text).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
                vectors.extend(list);
            }
        }
        vectors
    }

    #[test]
    fn every_core_vector_gets_the_verdict_of_the_providers_own_sdk() {
        let catalog = Catalog::open(None).expect("built in");
        let (mut wrong, mut count) = (Vec::new(), 0);
        for vector in all().iter().filter(|vector| vector.class != "edge") {
            count += 1;
            let verdict = judge(&catalog, vector).expect("a verdict");
            if verdict.accepted != (vector.expect == "accept") {
                wrong.push(format!(
                    "{} {}: {} expected, {}",
                    vector.provider, vector.name, vector.expect, verdict.reason
                ));
            }
        }
        assert!(count > 100, "only {count} vectors");
        assert!(wrong.is_empty(), "{} of {count}:\n{}", wrong.len(), wrong.join("\n"));
    }

    #[test]
    fn every_handshake_among_the_vectors_gets_its_answer() {
        let catalog = Catalog::open(None).expect("built in");
        let mut count = 0;
        for vector in all() {
            let Some(expected) = &vector.handshake else { continue };
            let recipe = catalog.recipe(&vector.provider).expect("is there").expect("is right");
            let verifier =
                Verifier::new(&recipe.signature, &vector.secrets(), &vector.options()).expect("good secrets");
            let body = STANDARD.decode(&vector.body_base64).expect("base64");
            let headers: Vec<_> =
                vector.headers.iter().map(|(name, value)| (name.as_str(), value.as_bytes())).collect();
            let delivery = Delivery { headers: &headers, body: &body, ..Delivery::to(&vector.method, &vector.url) };
            count += 1;
            let verified = vector.method == "POST" && verifier.verify(&delivery, vector.now * 1000).is_ok();
            if vector.method == "POST" && !verified {
                assert_eq!(expected.expect_status, 401, "{}", vector.name);
                continue;
            }
            let reply = handshake::answer(&recipe.handshake, &delivery, &verifier, 0, verified).expect("an answer");
            assert_eq!(reply.status, expected.expect_status, "{}", vector.name);
            let text = String::from_utf8(reply.body).expect("text");
            if let Some(body) = &expected.expect_body {
                assert_eq!(text, *body, "{}", vector.name);
            }
            if let Some(json) = &expected.expect_json {
                assert_eq!(serde_json::from_str::<serde_json::Value>(&text).expect("JSON"), *json, "{}", vector.name);
            }
        }
        assert!(count >= 4, "only {count} handshakes");
    }

    /// Where our verdict on an odd vector is not the SDK's: (vector, providers or *, we accept, why).
    const DIFFERENCES: &[(&str, &str, bool, &str)] = &[
        // laxer: nothing that is signed is weakened by it
        (
            "body_empty_signed",
            "*",
            true,
            "an empty body with a good signature is genuine; it is interpretation that has no use for it",
        ),
        (
            "bytes_bom",
            "*",
            true,
            "the raw bytes are signed, marks included; SDKs that refuse have decoded or parsed the body first",
        ),
        (
            "bytes_invalid_utf8",
            "*",
            true,
            "the raw bytes are signed, whatever they are; nothing is decoded before the digest",
        ),
        (
            "valid_body_pretty_trailing_newline",
            "zoom",
            true,
            "the SDK digests re-serialised JSON; the raw bytes are what was signed",
        ),
        ("valid_body_crlf", "zoom", true, "as above"),
        ("valid_body_odd_numbers_dup_keys", "zoom", true, "as above"),
        ("sig_mixed_case_hex", "*", true, "hex is compared as bytes (C019)"),
        ("sig_uppercase_hex", "*", true, "hex is compared as bytes (C019)"),
        ("uppercase_hex", "braintree opennode", true, "hex is compared as bytes (C019)"),
        ("space_after_comma", "stripe", true, "blanks between items are tolerated (C019)"),
        ("space_after_semicolon", "paddle", true, "blanks between items are tolerated (C019)"),
        ("multi_comma_space", "gr4vy", true, "blanks between items are tolerated (C019)"),
        ("order_swapped", "workos", true, "key=value items mean the same in any order"),
        ("v1_repeated_first_good", "mercadopago", true, "all signatures of a header are tried (C019)"),
        ("timestamp_future", "box", true, "5 s ahead: clocks drift, and the window is symmetric (C021)"),
        ("ts_leading_zero", "slack", true, "the digits are signed as they are and mean the same number"),
        ("ts_wrong_unit", "sanity", true, "signed and old, and this provider's SDK sets no limit of age"),
        ("payload_crlf", "braintree", true, "the field is signed as it came"),
        ("missing_x_shopify_api_version", "shopify", true, "not part of the signature; the SDK wants it for itself"),
        ("missing_x_shopify_shop_domain", "shopify", true, "as above"),
        ("missing_x_shopify_topic", "shopify", true, "as above"),
        ("missing_x_shopify_webhook_id", "shopify", true, "as above"),
        ("json_hash_upper", "twilio", true, "hex is compared as bytes (C019)"),
        ("escaped_slash_body", "midtrans_snapbi", true, "the text as sent is hashed; the SDK re-serialises it"),
        (
            "valid_secret_without_whsec",
            "openai",
            true,
            "the prefix carries nothing; without it the text is base64 all the same",
        ),
        // stricter: nobody who sends in earnest is refused by it
        ("alg_hs512", "qstash", false, "one algorithm is agreed; the sender does not choose"),
        ("algo_sha1", "paypal", false, "SHA-1 was never announced by the provider"),
        ("missing_paypal_auth_algo", "paypal", false, "an algorithm that is not named is not guessed"),
        ("cert_url_http", "paypal", false, "https only: whoever sits between could hand out a certificate"),
        ("json_no_hash_param", "twilio", false, "without its hash in the address nothing protects a JSON body"),
        ("keys_upper", "mercadopago", false, "keys are compared as they are"),
        ("v0_key", "workos", false, "only the version that counts counts (C019)"),
        ("version_empty", "openai", false, "only the version that counts counts (C019)"),
        ("version_upper", "replicate", false, "only the version that counts counts (C019)"),
        ("version_v2", "replicate", false, "only the version that counts counts (C019)"),
        (
            "secret_config_trailing_newline",
            "*",
            false,
            "vectors give secrets exactly; the program trims them when it reads them (C016)",
        ),
        ("sig_appended_char", "*", false, "a signature is decoded whole or not at all"),
        ("sig_appended_nul", "braintree", false, "a signature is decoded whole or not at all"),
        ("sig_extra_field", "*", false, "a signature is decoded whole or not at all"),
        ("sig_base64_no_padding", "*", false, "one spelling of a signature: padded, canonical, standard alphabet"),
        ("sig_base64_noncanonical_bits", "*", false, "one spelling of a signature"),
        ("sig_base64url_instead", "*", false, "one spelling of a signature"),
        ("signature_no_padding", "adyen", false, "one spelling of a signature"),
        ("signature_url_safe", "adyen", false, "one spelling of a signature"),
        ("unpadded_base64", "chargebee", false, "one spelling of the credentials"),
        ("value_float", "adyen", false, "the number's own text is digested; a float is never made of it"),
        ("tampered_appended_newline", "zoom", false, "the bytes are not those that were signed"),
        ("tampered_reserialized", "zoom", false, "the bytes are not those that were signed"),
        ("t_plus_sign", "stripe", false, "a timestamp is digits only (C021)"),
        ("t_with_leading_zero", "stripe", false, "the timestamp is signed as it came; this one was not"),
        ("t_with_trailing_letters", "stripe", false, "a timestamp is digits only (C021)"),
        ("ts_float", "*", false, "a timestamp is digits only (C021)"),
        ("ts_float_signed_literally", "replicate", false, "a timestamp is digits only (C021)"),
        (
            "ts_leading_zero",
            "creem dodo_payments resend standard_webhooks svix",
            false,
            "the timestamp is signed as it came; this one was not",
        ),
        ("ts_trailing_letters", "*", false, "a timestamp is digits only (C021)"),
        ("ts_future_hour", "*", false, "the window is symmetric (C021)"),
        ("ts_future_years", "*", false, "the window is symmetric (C021)"),
        ("ts_wrong_unit", "gr4vy mux paddle", false, "read in the right unit it lies far in the future (C021)"),
    ];

    #[test]
    fn every_edge_where_we_differ_from_an_sdk_has_its_reason() {
        let catalog = Catalog::open(None).expect("built in");
        let (mut unexplained, mut used, vectors) = (Vec::new(), std::collections::BTreeSet::new(), all());
        for vector in vectors.iter().filter(|vector| vector.class == "edge") {
            let verdict = judge(&catalog, vector).expect("a verdict");
            if verdict.accepted == (vector.expect == "accept") {
                continue;
            }
            let row = DIFFERENCES.iter().position(|(name, providers, accepted, _)| {
                let ours = *providers == "*" || providers.split(' ').any(|known| known == vector.provider);
                *name == vector.name && ours && *accepted == verdict.accepted
            });
            match row {
                Some(row) => drop(used.insert(row)),
                None => unexplained.push(format!("{} {}: {}", vector.provider, vector.name, verdict.reason)),
            }
        }
        assert!(unexplained.is_empty(), "{}", unexplained.join("\n"));
        if vectors.len() > 1000 {
            let idle: Vec<_> =
                (0..DIFFERENCES.len()).filter(|row| !used.contains(row)).map(|row| DIFFERENCES[row].0).collect();
            assert!(idle.is_empty(), "rows without a vector: {idle:?}");
        }
    }

    #[test]
    fn a_verdict_is_one_line_of_json() {
        let verdict = Verdict { name: "a\"b".to_owned(), accepted: false, reason: "too_old".to_owned() };
        assert_eq!(verdict.to_line(), r#"{"name":"a\"b","reason":"too_old","verdict":"reject"}"#);
    }
}
