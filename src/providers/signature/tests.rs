//! What must hold of verification, beyond the known answers: secrets, clocks, repeated headers, keys from elsewhere.
//!
//! Signatures are made here with the program's own `sign`; that these are the right ones is what the vectors prove.

use super::*;
use crate::providers::{Catalog, Recipe};
use proptest::prelude::*;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

const NOW_S: i64 = 1_796_040_000;
const NOW: i64 = NOW_S * 1000;
const BODY: &[u8] = br#"{"id":"evt_1","amount":5000}"#;

fn recipe(name: &str) -> Recipe {
    Catalog::open(None).expect("built in").recipe(name).expect("is there").expect("is right")
}

fn verifier(provider: &str, secrets: &[Secret], options: &Options) -> Verifier {
    Verifier::new(&recipe(provider).signature, secrets, options).expect("usable")
}

fn stripe(secret: &str) -> Verifier {
    verifier("stripe", &[Secret::exact("main", secret)], &Options::default())
}

fn hex_of(secret: &str, ts: &str, body: &[u8]) -> String {
    let content = [ts.as_bytes(), b".", body].concat();
    hex::encode(Keyed::new(Alg::Sha256, secret.as_bytes()).expect("a digest").over(&content).bytes())
}

fn request<'a>(headers: &'a [(&'a str, &'a [u8])], body: &'a [u8]) -> Delivery<'a> {
    Delivery { method: "POST", url: "https://h.test/webhooks/a", path: "/webhooks/a", query: "", headers, body }
}

/// What `verifier` says to this Stripe-Signature header.
fn says(verifier: &Verifier, header: &str) -> &'static str {
    let headers = [("Stripe-Signature", header.as_bytes())];
    verifier.verify(&request(&headers, BODY), NOW).map_or_else(|refusal| refusal.reason.as_str(), |_| "ok")
}

#[test]
fn every_providers_file_says_how_it_is_signed() {
    let catalog = Catalog::open(None).expect("built in");
    let mut count = 0;
    for name in catalog.names() {
        let recipe = catalog.recipe(name).expect("is there").unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(recipe.signature.kind == Kind::None, ["gumroad", "mollie_classic"].contains(&name), "{name}");
        if matches!(recipe.signature.kind, Kind::None | Kind::Token | Kind::Basic) {
            assert_eq!(recipe.signature.covers, Covers::Nothing, "{name}");
        }
        count += 1;
    }
    assert!(count >= 84);
}

#[test]
fn a_wrong_table_is_refused_when_it_is_read() {
    let text = "provider='x'\ntitle='X'\n[signature]\nkind='hmac'\ncovers='body'\nheader='X-S'\n";
    let problem = |more: &str| Recipe::read("x.toml", &format!("{text}{more}")).expect_err("wrong").problem;
    assert!(problem("").contains("alg"));
    assert!(problem("alg='sha256'").contains("content"));
    assert!(problem("alg='sha256'\ncontent='{ts}.{bdy}'").contains("bdy"));
    assert!(problem("alg='sha256'\ncontent='{body'").contains('}'));
    assert!(problem("alg='sha3'\ncontent='{body}'").contains("sha512"));
    assert!(Recipe::read("x.toml", "provider='x'\ntitle='X'\n").expect_err("wrong").problem.contains("signature"));
}

#[test]
fn all_signatures_of_the_version_that_counts_are_tried_and_no_other() {
    let v = stripe("s1");
    let good = hex_of("s1", &NOW_S.to_string(), BODY);
    let other = hex_of("s2", &NOW_S.to_string(), BODY);
    assert_eq!(says(&v, &format!("t={NOW_S},v1={good},v1={other}")), "ok");
    assert_eq!(says(&v, &format!("t={NOW_S},v1={other}, v1={good}")), "ok");
    assert_eq!(says(&v, &format!("t={NOW_S},v1={other},v0={good}")), "no_secret_matches");
    assert_eq!(says(&v, &format!("t={NOW_S},v0={good}")), "malformed_header");
    assert_eq!(says(&v, &format!("t={NOW_S},v1={}", good.to_uppercase())), "ok");
    assert_eq!(says(&v, &format!("t={NOW_S}{}", format!(",v1={other}").repeat(1000))), "malformed_header");
}

#[test]
fn the_window_has_two_sides_and_the_digest_comes_before_it() {
    let v = stripe("s1");
    let at = |t: &str| says(&v, &format!("t={t},v1={}", hex_of("s1", t, BODY)));
    assert_eq!(at(&(NOW_S - 301).to_string()), "too_old");
    assert_eq!(at(&(NOW_S - 300).to_string()), "ok");
    assert_eq!(at(&(NOW_S + 300).to_string()), "ok");
    assert_eq!(at(&(NOW_S + 301).to_string()), "in_the_future");
    assert_eq!(at("abc"), "malformed_header");
    assert_eq!(at(""), "malformed_header");
    assert_eq!(at("99999999999999999999"), "malformed_header");
    let good = hex_of("s1", &NOW_S.to_string(), BODY);
    assert_eq!(says(&v, &format!("v1={good}")), "malformed_header");
    assert_eq!(says(&v, &format!("t={NOW_S},t={},v1={good}", NOW_S - 1)), "malformed_header");
    let forged_and_old = format!("t={},v1={good}", NOW_S - 9000);
    assert_eq!(says(&v, &forged_and_old), "no_secret_matches");
}

#[test]
fn a_source_may_widen_its_window_and_an_import_has_none() {
    let t = (NOW_S - 13_600).to_string();
    let header = format!("t={t},v1={}", hex_of("s1", &t, BODY));
    assert_eq!(says(&stripe("s1"), &header), "too_old");
    let wide = Options { tolerance_s: Some(86_400), ..Options::default() };
    assert_eq!(says(&verifier("stripe", &[Secret::exact("main", "s1")], &wide), &header), "ok");
    let headers = [("stripe-signature", header.as_bytes())];
    let found = stripe("s1").verify_ignoring_age(&request(&headers, BODY), NOW).map(|found| found.signed_at_ms);
    assert_eq!(found, Ok(Some((NOW_S - 13_600) * 1000)));
    assert!(stripe("s2").verify_ignoring_age(&request(&headers, BODY), NOW).is_err());
}

#[test]
fn each_live_secret_counts_and_the_verdict_names_it_and_a_retired_one_is_told_apart() {
    let mut retired = Secret::exact("before", "s0");
    retired.ends_at_ms = Some(NOW);
    let mut ending = Secret::exact("old", "s1");
    ending.ends_at_ms = Some(NOW + 1);
    let v = verifier("stripe", &[retired, ending, Secret::exact("new", "s2")], &Options::default());
    let by = |secret: &str| {
        let header = format!("t={NOW_S},v1={}", hex_of(secret, &NOW_S.to_string(), BODY));
        let headers = [("Stripe-Signature", header.as_bytes())];
        v.verify(&request(&headers, BODY), NOW).map(|found| found.secret.to_owned()).map_err(|refusal| refusal.reason)
    };
    assert_eq!(by("s1"), Ok("old".to_owned()));
    assert_eq!(by("s2"), Ok("new".to_owned()));
    assert_eq!(by("s0"), Err(Reason::SecretRetired));
    assert_eq!(by("s9"), Err(Reason::NoSecretMatches));
}

#[test]
fn a_header_name_has_no_case_and_a_repeated_header_is_one_list_or_a_refusal() {
    let good = hex_of("s1", &NOW_S.to_string(), BODY);
    let (whole, other) = (format!("t={NOW_S},v1={good}"), format!("t={NOW_S},v1={}", hex_of("s2", "1", BODY)));
    let v = stripe("s1");
    let with =
        |headers: &[(&str, &[u8])]| v.verify(&request(headers, BODY), NOW).map_err(|refusal| refusal.reason).map(drop);
    for name in ["Stripe-Signature", "stripe-signature", "STRIPE-SIGNATURE"] {
        assert_eq!(with(&[(name, whole.as_bytes())]), Ok(()));
    }
    assert_eq!(with(&[("Stripe-Signature", other.as_bytes()), ("stripe-signature", whole.as_bytes())]), Ok(()));
    assert_eq!(
        with(&[("Stripe-Signature", whole.as_bytes()), ("stripe-signature", b"t=1,v1=00")]),
        Err(Reason::MalformedHeader)
    );
    assert_eq!(with(&[]), Err(Reason::MissingHeader));

    let github = verifier("github", &[Secret::exact("main", "s1")], &Options::default());
    let signed = github.sign(&request(&[], BODY), NOW, "").expect("a signature");
    let one = ("X-Hub-Signature-256", signed[0].1.as_bytes());
    assert!(github.verify(&request(&[one], BODY), NOW).is_ok());
    let twice = [one, ("x-hub-signature-256", b"sha256=00".as_slice())];
    assert_eq!(github.verify(&request(&twice, BODY), NOW).expect_err("ambiguous").reason, Reason::MalformedHeader);
}

#[test]
fn white_space_around_a_pasted_secret_is_taken_off_and_told() {
    for (text, had) in
        [("whsec_abc123\n", true), ("whsec_abc123\r\n", true), (" whsec_abc123", true), ("whsec_abc123", false)]
    {
        let (secret, trimmed) = Secret::pasted("main", text);
        assert_eq!((secret.text(), trimmed), ("whsec_abc123", had));
    }
    let (empty, _) = Secret::pasted("main", " \n");
    let problem = Verifier::new(&recipe("stripe").signature, &[empty], &Options::default()).expect_err("empty").problem;
    assert!(problem.contains("empty"), "{problem}");
}

#[test]
fn what_was_pasted_instead_of_a_secret_is_named() {
    let refused = |provider: &str, text: &str| {
        Verifier::new(&recipe(provider).signature, &[Secret::exact("main", text)], &Options::default())
            .expect_err("wrong")
            .to_string()
    };
    for (text, told) in [
        ("v1,whsec_QUJD", "version label of a signature"),
        ("whsec_not-base64!", "not base64"),
        ("sk_test_123", "API key"),
        ("we_123", "endpoint's id"),
        ("whsec_", "empty"),
    ] {
        let problem = refused("standard_webhooks", text);
        assert!(problem.contains(told), "{text}: {problem}");
        assert!(!problem.contains("QUJD") && !problem.contains("_123"), "shows the secret: {problem}");
    }
    verifier("standard_webhooks", &[Secret::exact("main", "whsec_QUJD")], &Options::default());
    assert!(refused("stripe", "sk_live_1").contains("API key"));
    assert!(refused("stripe", "-----BEGIN PUBLIC KEY-----\nAA==\n-----END PUBLIC KEY-----").contains("PEM"));
    assert!(refused("adyen", "not hex").contains("not hex"));
    assert!(refused("discord", "abcd").contains("32 bytes"));
    assert!(refused("wise", "hello").contains("PEM"));
    assert!(refused("chargebee", "nocolon").contains("user:password"));
    assert!(refused("braintree", "key").contains("public_key"));
    let none = Verifier::new(&recipe("stripe").signature, &[], &Options::default()).expect_err("no secret");
    assert!(none.problem.contains("no secret"));
}

/// An RSA key of 1024 bits: 128 bytes of modulus.
const SMALL_RSA: &str = "MIGfMA0GCSqGSIb3DQEBAQUAA4GNADCBiQKBgQDGqICwhdweX59Kn6V7r+MAKlzbn+ftX2XYu4q3xTqVYZdryMBxpZ8whdVAp9XJ\
JJ641KBDGf6Tw/OOKeolcf9bdgnH9C5eWYwudWu36+OSa5GXIw++/L48vs5P6TyuCMgN29xC6Mbzby90s0YJGe2EWjViAbUHxWZ/C73ml1yYEQIDAQAB";

#[test]
fn a_short_rsa_key_is_refused_when_it_is_read() {
    let refused = Verifier::new(&recipe("wise").signature, &[Secret::exact("main", SMALL_RSA)], &Options::default());
    let problem = refused.expect_err("too short").problem;
    assert!(problem.contains("1024 bits"), "{problem}");
}

#[test]
fn nothing_made_from_a_secret_shows_in_debug_refusals_or_explanations() {
    let secret = "s3cr3t-value";
    let v = stripe(secret);
    let tag = hex_of(secret, &NOW_S.to_string(), BODY);
    let header = format!("t={NOW_S},v1={}", "00".repeat(32));
    let headers = [("Stripe-Signature", header.as_bytes())];
    let (verdict, steps) = v.explain(&request(&headers, BODY), NOW);
    let shown = format!("{v:?} {:?} {verdict:?} {steps:?}", Secret::exact("main", secret));
    assert!(!shown.contains(secret) && !shown.contains(&tag[..8]), "{shown}");
    assert!(steps.iter().any(|step| !step.good && step.text.contains("no_secret_matches")), "{steps:?}");
}

#[test]
fn an_explanation_tells_what_was_looked_at_in_order() {
    let t = (NOW_S - 10).to_string();
    let header = format!("t={t},v1={}", hex_of("s1", &t, BODY));
    let headers = [("Stripe-Signature", header.as_bytes())];
    let two = [Secret::exact("old", "s0"), Secret::exact("new", "s1")];
    let v = verifier("stripe", &two, &Options::default());
    let (_, steps) = v.explain(&request(&headers, BODY), NOW);
    let told: Vec<_> = steps.iter().map(|step| (step.good, step.text.as_str())).collect();
    let ts = format!("timestamp {t} as it is signed");
    assert_eq!(
        told,
        [
            (true, "Stripe-Signature: 80 bytes, 1 signature(s) of the kind that counts"),
            (true, ts.as_str()),
            (false, "secret \"old\" did not make it"),
            (true, "secret \"new\" made this signature"),
            (true, "signed 10 s ago; 300 s are accepted"),
            (true, "accepted by secret \"new\""),
        ]
    );
}

#[test]
fn a_delivery_to_the_wrong_source_names_the_secret_that_made_it() {
    let birch = verifier("stripe", &[Secret::exact("birch main", "s2")], &Options::default());
    let header = format!("t=1,v1={}", hex_of("s2", "1", BODY));
    let headers = [("Stripe-Signature", header.as_bytes())];
    let delivery = request(&headers, BODY);
    assert_eq!(stripe("s1").verify(&delivery, NOW).expect_err("another's").reason, Reason::NoSecretMatches);
    assert_eq!(birch.secret_that_matches(&delivery, NOW), Some("birch main"));
    assert_eq!(stripe("s1").secret_that_matches(&delivery, NOW), None);
    let nothing = verifier("gumroad", &[], &Options::default());
    assert_eq!(nothing.secret_that_matches(&delivery, NOW), None);
}

/// A secret that fits the provider.
fn fitting(spec: &SignatureSpec) -> Secret {
    let (pem, set) = (vector("wise", "valid_body_basic"), vector("plaid", "valid_body_basic"));
    let text = match spec.secret.decode {
        Decode::Base64 if spec.kind == Kind::Ed25519 => "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=",
        Decode::Base64 => "whsec_c2VjcmV0LXNlY3JldC1zZWNyZXQtc2VjcmV0ISE=",
        Decode::Hex => "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f",
        Decode::Pem => &pem.secrets[0],
        Decode::KeySet => &set.secrets[0],
        Decode::Utf8 | Decode::Sha1 | Decode::Sha256Hex => "user:secret",
    };
    let mut secret = Secret::exact("main", text);
    secret.key_id = Some("key-1".to_owned());
    secret
}

fn settings() -> Settings {
    ["audience", "email", "bundle_id", "public_key", "merchant_id", "verify_token", "topic_arn"]
        .map(|name| (name.to_owned(), "x".to_owned()))
        .into()
}

#[test]
fn what_we_sign_we_verify_and_a_changed_body_we_refuse() {
    let catalog = Catalog::open(None).expect("built in");
    let mut count = 0;
    for name in catalog.names() {
        let spec = recipe(name).signature;
        let options = Options { settings: settings(), ..Options::default() };
        let v = Verifier::new(&spec, &[fitting(&spec)], &options).expect("usable");
        let own = [("content-type", b"application/json".as_slice())];
        let body = format!("{{\"id\":\"evt_1\",\"webhookTimestamp\":{NOW}}}");
        let plain = Delivery { query: "data.id=1", ..request(&own, body.as_bytes()) };
        let Ok(signed) = v.sign(&plain, NOW, "msg_1") else { continue };
        let mut headers = own.to_vec();
        headers.extend(signed.iter().map(|(name, value)| (name.as_str(), value.as_bytes())));
        let delivery = Delivery { headers: &headers, ..plain };
        v.verify(&delivery, NOW).unwrap_or_else(|refusal| panic!("{name}: {refusal}"));
        let changed = body.replace("evt_1", "evt_2");
        let changed = Delivery { body: changed.as_bytes(), ..delivery };
        assert_eq!(v.verify(&changed, NOW).is_ok(), spec.covers != Covers::Body, "{name}");
        count += 1;
    }
    assert!(count > 50, "only {count}");
}

#[test]
fn while_a_secret_is_replaced_we_sign_with_both() {
    let both = [Secret::exact("new", "whsec_QUJD"), Secret::exact("old", "whsec_REVG")];
    let signed = verifier("standard_webhooks", &both, &Options::default()).sign(&request(&[], BODY), NOW, "msg_1");
    let signed = signed.expect("a signature");
    let headers: Vec<_> = signed.iter().map(|(name, value)| (name.as_str(), value.as_bytes())).collect();
    for secret in both {
        let v = verifier("standard_webhooks", &[secret], &Options::default());
        assert!(v.verify(&request(&headers, BODY), NOW).is_ok());
    }
}

#[test]
fn headers_are_read_from_lines_and_from_json() {
    let lines =
        headers_from_text("POST /webhooks/a HTTP/1.1\r\nHost: h\r\nX-Sig:  t=1,v1=a:b \r\n\r\n").expect("headers");
    assert_eq!(lines, [("Host".to_owned(), "h".to_owned()), ("X-Sig".to_owned(), "t=1,v1=a:b".to_owned())]);
    assert_eq!(headers_from_text(" {\"A\":\"b\"}").expect("headers"), [("A".to_owned(), "b".to_owned())]);
    assert!(headers_from_text("Host: h\nnonsense here\n").expect_err("no header").contains("line 2"));
}

#[test]
fn two_secrets_of_one_name_are_refused() {
    let both = [Secret::exact("a", "s1"), Secret::exact("a", "s2")];
    let refused = Verifier::new(&recipe("stripe").signature, &both, &Options::default()).expect_err("ambiguous");
    assert!(refused.problem.contains("two secrets"));
}

#[test]
fn an_address_that_is_signed_is_named_when_it_does_not_match() {
    let v = verifier("square", &[Secret::exact("main", "s1")], &Options::default());
    let signed = v.sign(&request(&[], BODY), NOW, "").expect("a signature");
    let headers: Vec<_> = signed.iter().map(|(name, value)| (name.as_str(), value.as_bytes())).collect();
    let other = Delivery { url: "http://10.0.0.1:8080/webhooks/a", ..request(&headers, BODY) };
    let refusal = v.verify(&other, NOW).expect_err("another address");
    assert!(refusal.about.contains("http://10.0.0.1:8080/webhooks/a"), "{refusal}");
}

#[test]
fn a_message_id_that_is_signed_is_handed_on() {
    let v = verifier("standard_webhooks", &[Secret::exact("main", "whsec_QUJD")], &Options::default());
    let signed = v.sign(&request(&[], BODY), NOW, "msg_7").expect("a signature");
    let headers: Vec<_> = signed.iter().map(|(name, value)| (name.as_str(), value.as_bytes())).collect();
    assert_eq!(v.verify(&request(&headers, BODY), NOW).expect("good").id.as_deref(), Some("msg_7"));
}

#[test]
fn keys_are_fetched_once_an_hour_and_an_outage_is_told_apart_from_a_forgery() {
    let asked = Arc::new(AtomicUsize::new(0));
    let counter = asked.clone();
    let fetch: Fetch = Arc::new(move |request: &KeyRequest<'_>| {
        assert_eq!(request.url, "https://www.googleapis.com/oauth2/v3/certs");
        counter.fetch_add(1, Ordering::Relaxed);
        Ok(br#"{"keys":[{"kid":"k1","kty":"RSA","n":"AQAB","e":"AQAB"}]}"#.to_vec())
    });
    let options = Options { settings: settings(), fetch: Some(fetch), ..Options::default() };
    let v = verifier("google_pubsub_push", &[], &options);
    // {"alg":"RS256","kid":"k9"} . {} . nothing
    let headers = [("Authorization", b"Bearer eyJhbGciOiJSUzI1NiIsImtpZCI6Ims5In0.e30.AA".as_slice())];
    let reason = |v: &Verifier| v.verify(&request(&headers, BODY), NOW).expect_err("no such key").reason;
    assert_eq!(reason(&v), Reason::UnknownKey);
    assert_eq!(asked.load(Ordering::Relaxed), 2, "an unknown key id asks once more");
    for _ in 0..100 {
        v.verify(&request(&headers, BODY), NOW).expect_err("no such key");
    }
    assert!(asked.load(Ordering::Relaxed) <= 30, "a flood of unknown key ids must not become a flood of fetches");
    let away = verifier("google_pubsub_push", &[], &Options { settings: settings(), ..Options::default() });
    assert_eq!(reason(&away), Reason::CertificateUnavailable);
    assert!(Reason::CertificateUnavailable.is_temporary());
    assert_eq!(away.secret_that_matches(&request(&headers, BODY), NOW), None);
}

/// A committed vector.
fn vector(provider: &str, name: &str) -> crate::providers::vectors::Vector {
    let path = format!("{}/tests/vectors/signatures/{provider}.json", env!("CARGO_MANIFEST_DIR"));
    let list: Vec<crate::providers::vectors::Vector> =
        serde_json::from_slice(&std::fs::read(path).expect("readable")).expect("vectors");
    list.into_iter().find(|vector| vector.name == name).expect("is there")
}

fn verdict(v: &Verifier, vector: &crate::providers::vectors::Vector) -> Result<(), Reason> {
    use base64::Engine as _;
    let headers: Vec<_> = vector.headers.iter().map(|(name, value)| (name.as_str(), value.as_bytes())).collect();
    let body = base64::engine::general_purpose::STANDARD.decode(&vector.body_base64).expect("base64");
    let delivery = Delivery { headers: &headers, body: &body, ..Delivery::to(&vector.method, &vector.url) };
    v.verify(&delivery, vector.now * 1000).map(drop).map_err(|refusal| refusal.reason)
}

#[test]
fn a_key_is_asked_for_by_its_id_with_the_sources_credentials() {
    let vector = vector("plaid", "valid_body_basic");
    let set: serde_json::Value = serde_json::from_str(&vector.secrets[0]).expect("a key set");
    let answer = serde_json::json!({ "key": set["keys"][0] }).to_string().into_bytes();
    let fetch: Fetch = Arc::new(move |request: &KeyRequest<'_>| {
        assert_eq!(request.url, "https://sandbox.plaid.com/webhook_verification_key/get");
        assert_eq!(request.post, Some(r#"{"client_id":"c1","key_id":"test-kid-1","secret":"s1"}"#));
        Ok(answer.clone())
    });
    let named = [("environment", "sandbox"), ("client_id", "c1"), ("api_secret", "s1")];
    let settings: Settings = named.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
    let v = verifier("plaid", &[], &Options { settings, fetch: Some(fetch), ..Options::default() });
    assert_eq!(verdict(&v, &vector), Ok(()));
    let without = Verifier::new(&recipe("plaid").signature, &[], &Options::default()).expect_err("no credentials");
    assert!(without.problem.contains("client_id"), "{without}");
}

#[test]
fn a_certificate_is_fetched_once_and_an_outage_is_no_forgery() {
    let vector = vector("paypal", "valid_basic");
    let (asked, options) = (Arc::new(AtomicUsize::new(0)), vector.options());
    let (counter, inner) = (asked.clone(), options.fetch.clone().expect("the vector's"));
    let fetch: Fetch = Arc::new(move |request: &KeyRequest<'_>| {
        counter.fetch_add(1, Ordering::Relaxed);
        inner(request)
    });
    let v = verifier("paypal", &vector.secrets(), &Options { fetch: Some(fetch), ..options.clone() });
    assert_eq!((verdict(&v, &vector), verdict(&v, &vector)), (Ok(()), Ok(())));
    assert_eq!(asked.load(Ordering::Relaxed), 1);
    let down: Fetch = Arc::new(|_: &KeyRequest<'_>| Err("connection refused".to_owned()));
    let v = verifier("paypal", &vector.secrets(), &Options { fetch: Some(down), ..options.clone() });
    assert_eq!(verdict(&v, &vector), Err(Reason::CertificateUnavailable));
    let the_webs_roots = Options { trust_roots: Vec::new(), ..options };
    let v = verifier("paypal", &vector.secrets(), &the_webs_roots);
    assert_eq!(verdict(&v, &vector), Err(Reason::CertificateUntrusted));
}

#[test]
fn a_delivery_sends_us_to_no_host_but_the_providers() {
    let hosts = ["paypal.com".to_owned()];
    for good in ["https://api.paypal.com/v1/certs/1", "https://paypal.com", "https://API.PayPal.com/x?y"] {
        assert!(fetched::is_allowed(good, &hosts), "{good}");
    }
    for bad in [
        "http://api.paypal.com/",
        "https://paypal.com.evil.test/",
        "https://evilpaypal.com/",
        "https://api.paypal.com:8443/",
        "https://api.paypal.com@evil.test/",
        "https://evil.test\\.paypal.com/",
        "https://evil.test#.paypal.com/",
        "https://api.paypal.com/\r\nX: y",
        "https:///api.paypal.com/",
        "ftp://api.paypal.com/",
        "",
    ] {
        assert!(!fetched::is_allowed(bad, &hosts), "{bad}");
    }
}

#[test]
fn a_star_in_a_host_is_one_label() {
    let hosts = ["sns.*.amazonaws.com".to_owned()];
    assert!(fetched::is_allowed("https://sns.eu-west-1.amazonaws.com/x.pem", &hosts));
    for bad in [
        "https://bucket.s3.amazonaws.com/x.pem",
        "https://sns.a.b.amazonaws.com/",
        "https://sns..amazonaws.com/",
        "https://x.sns.eu-west-1.amazonaws.com/",
        "https://amazonaws.com/",
    ] {
        assert!(!fetched::is_allowed(bad, &hosts), "{bad}");
    }
}

#[test]
fn the_root_that_comes_with_the_program_is_apples() {
    use base64::Engine as _;
    use sha2::Digest as _;
    let root = recipe("apple_app_store").signature.keys.roots.remove(0);
    let der = base64::engine::general_purpose::STANDARD.decode(root).expect("base64");
    let print = hex::encode(sha2::Sha256::digest(der));
    assert_eq!(print, "63343abfb89a6a03ebb57e9b3f5fa7be7c4f5c756f3017b3a8c488c3653e9179");
}

#[test]
fn a_page_of_signatures_that_cannot_match_costs_no_more_than_reading_it() {
    let v = stripe("s1");
    let header = "v1=".repeat(100_000);
    assert_eq!(says(&v, &header), "malformed_header");
}

#[test]
fn verifying_costs_at_most_twice_the_bare_digest() {
    let body = vec![b'x'; 2_500];
    let header = format!("t={NOW_S},v1={}", hex_of("s1", &NOW_S.to_string(), &body));
    let headers =
        [("host", b"h".as_slice()), ("content-type", b"application/json"), ("Stripe-Signature", header.as_bytes())];
    let (v, delivery) = (stripe("s1"), request(&headers, &body));
    let best = |work: &dyn Fn()| {
        let run = || {
            let start = std::time::Instant::now();
            (0..200).for_each(|_| work());
            start.elapsed()
        };
        (0..15).map(|_| run()).min().unwrap_or_default()
    };
    let bare = best(&|| {
        let tag = Keyed::new(Alg::Sha256, b"s1").map(|mac| mac.over(&body));
        std::hint::black_box(tag.is_some());
    });
    let whole = best(&|| assert!(v.verify(&delivery, NOW).is_ok()));
    // Without optimisation our own code is several times slower than the compiled crates: the bound is for releases.
    let factor = if cfg!(debug_assertions) { 6 } else { 2 };
    println!("verifying {whole:?}, bare digest {bare:?}, 200 times");
    assert!(whole <= bare * factor, "verifying takes {whole:?}, the bare digest {bare:?}");
}

/// Headers that schemes read beside the signature's own.
const OTHER_HEADERS: &[&str] = &[
    "webhook-id",
    "webhook-timestamp",
    "Content-Type",
    "X-Twilio-Signature",
    "X-Twilio-Webhooks-Signature-Settings",
    "Tl-Signature",
    "box-signature-primary",
    "box-delivery-timestamp",
    "PAYPAL-TRANSMISSION-SIG",
    "PAYPAL-CERT-URL",
];

/// Every provider with a secret that fits, compiled once.
fn all_providers() -> &'static [(Recipe, Verifier)] {
    static ALL: std::sync::OnceLock<Vec<(Recipe, Verifier)>> = std::sync::OnceLock::new();
    ALL.get_or_init(|| {
        let catalog = Catalog::open(None).expect("built in");
        let ready = |name: &str| {
            let recipe = recipe(name);
            let options = Options { settings: settings(), ..Options::default() };
            let v = Verifier::new(&recipe.signature, &[fitting(&recipe.signature)], &options);
            (recipe, v.unwrap_or_else(|e| panic!("{name}: {e}")))
        };
        catalog.names().map(ready).collect()
    })
}

#[test]
fn every_header_that_holds_a_signature_is_known_as_one() {
    for (recipe, _) in all_providers() {
        for name in recipe.signature.header.all() {
            assert!(recipe.signature.is_proven_by(&name.replace("{n}", "2")), "{}: {name}", recipe.provider);
        }
        assert!(!recipe.signature.is_proven_by("Content-Type"), "{}", recipe.provider);
    }
    for (provider, name) in [
        ("box", "box-signature-primary"),
        ("box", "Box-Signature-Secondary"),
        ("docusign", "x-docusign-signature-3"),
        ("paypal", "paypal-transmission-sig"),
        ("truelayer", "tl-signature"),
        ("twilio", "x-twilio-signature"),
    ] {
        assert!(recipe(provider).signature.is_proven_by(name), "{provider}: {name}");
    }
}

proptest! {
    #[test]
    fn no_delivery_makes_any_verifier_panic(
        body in prop_oneof![
            proptest::collection::vec(any::<u8>(), 0..300),
            "[{}\\[\\]\":,a-z0-9 .]{0,200}".prop_map(String::into_bytes),
            "(data|id|p_signature|bt_signature|bt_payload|hashed_order)=[%=&|a-zA-Z0-9]{0,100}".prop_map(String::into_bytes),
        ],
        value in prop_oneof![
            "[tv10h=, ;.A-Za-z+/]{0,120}".prop_map(String::into_bytes),
            "[a-zA-Z0-9_-]{0,40}\\.[a-zA-Z0-9_-]{0,40}\\.[a-zA-Z0-9_-]{0,40}".prop_map(String::into_bytes),
            "(Bearer|Basic|sha256=|v0=|v1,)[ a-zA-Z0-9+/=]{0,80}".prop_map(String::into_bytes),
            proptest::collection::vec(any::<u8>(), 0..100),
        ],
        query in "[a-z.=&%0-9A-F]{0,60}",
        now in any::<i64>(),
    ) {
        for (recipe, v) in all_providers() {
            let named: Vec<String> = recipe.signature.header.all().iter().map(|name| name.replace("{n}", "1")).collect();
            let mut headers: Vec<(&str, &[u8])> = named.iter().map(|name| (name.as_str(), value.as_slice())).collect();
            headers.extend(OTHER_HEADERS.iter().map(|name| (*name, value.as_slice())));
            let delivery = Delivery { method: "POST", url: "https://h.test/a", path: "/a", query: &query, headers: &headers, body: &body };
            let explained = v.explain(&delivery, now).0.is_ok();
            prop_assert_eq!(explained, v.verify(&delivery, now).is_ok());
            prop_assert!(recipe.signature.covers != Covers::Body || !explained, "{} accepts noise", recipe.provider);
            let _ = v.sign(&delivery, now, "id");
            for (method, verified) in [("POST", false), ("POST", true), ("GET", false)] {
                let delivery = Delivery { method, ..delivery };
                let _ = crate::providers::handshake::answer(&recipe.handshake, &delivery, v, now, verified);
            }
        }
    }

    #[test]
    fn no_table_makes_reading_it_panic(
        content in "[{}\\[\\]a-z:#/.]{0,40}",
        place in "[a-z:#/.]{0,20}",
        kind in "(hmac|hash|rsa|token|scheme|jwt|none)",
        format in "(raw|kv|versioned_list|positional|list|keyed)",
    ) {
        let text = format!(
            "provider='x'\ntitle='X'\n[signature]\nkind='{kind}'\nalg='sha256'\ncovers='body'\nheader='X'\nformat='{format}'\nsig_key='v1'\ncontent='{content}'\nid='{place}'"
        );
        if let Ok(recipe) = Recipe::read("x.toml", &text) {
            let v = Verifier::new(&recipe.signature, &[Secret::exact("main", "s")], &Options::default()).expect("a checked table");
            let headers = [("X", b"t=1,v1=00".as_slice())];
            let _ = v.verify(&request(&headers, BODY), NOW);
        }
    }
}
