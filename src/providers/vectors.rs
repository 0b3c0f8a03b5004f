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
    let delivery = Delivery { headers: &headers, body: &body, ..delivery_at(&vector.method, &vector.url) };
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

/// A delivery without headers and body to a public address.
pub fn delivery_at<'a>(method: &'a str, url: &'a str) -> Delivery<'a> {
    let after_host = url.split_once("://").map_or(url, |(_, rest)| rest);
    let target = after_host.find('/').map_or("/", |at| &after_host[at..]);
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    Delivery { method, url, path, query, headers: &[], body: &[] }
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
    fn edges() {
        let catalog = Catalog::open(None).expect("built in");
        let mut wrong = Vec::new();
        for vector in all().iter().filter(|vector| vector.class == "edge") {
            let verdict = judge(&catalog, vector).expect("a verdict");
            if verdict.accepted != (vector.expect == "accept") {
                wrong.push(format!(
                    "{} {}: {} expected, {}",
                    vector.name, vector.provider, vector.expect, verdict.reason
                ));
            }
        }
        wrong.sort();
        assert!(wrong.is_empty(), "{}:\n{}", wrong.len(), wrong.join("\n"));
    }
}
