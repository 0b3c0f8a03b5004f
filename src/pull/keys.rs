//! Fetches what verifiers and handshakes need from outside: certificates, key sets, and a visit that says yes.
//!
//! Which addresses may be asked is decided by who calls (`signature/fetched.rs`, `handshake.rs`); here each call is https,
//! short, small, and follows nobody. Runs on threads that serve requests, so every wait is bounded.

use crate::providers::signature::{Fetch, KeyRequest};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::time::Duration;

/// A certificate chain or a key set has a few KiB.
const ANSWER_BYTES_MAX: u64 = 256 << 10;
/// Providers wait ten seconds and more for our answer; a key that does not come by then is asked for by their next try.
const TIMEOUT: Duration = Duration::from_secs(4);
/// Visits at a time.
const VISITS_MAX: u32 = 4;

/// What a verifier is given to ask for keys with.
pub fn fetcher() -> Fetch {
    let agent = agent();
    Arc::new(move |request: &KeyRequest<'_>| {
        let sent = match request.post {
            None => agent.get(request.url).call(),
            Some(body) => agent.post(request.url).header("content-type", "application/json").send(body),
        };
        let mut response = sent.map_err(|e| e.to_string())?;
        match response.status().as_u16() {
            200..300 => response
                .body_mut()
                .with_config()
                .limit(ANSWER_BYTES_MAX)
                .read_to_vec()
                .map_err(|e| format!("the answer cannot be read: {e}")),
            status => Err(format!("answered {status}")),
        }
    })
}

/// Visits an address once, on a thread of its own; what comes of it stands in the log only.
pub fn visit(url: String) {
    static VISITS: AtomicU32 = AtomicU32::new(0);
    if VISITS.fetch_add(1, SeqCst) >= VISITS_MAX {
        VISITS.fetch_sub(1, SeqCst);
        log::warn!("a confirmation is not visited: {VISITS_MAX} others are under way; the provider will ask again");
        return;
    }
    let run = move || {
        match agent().get(&url).call() {
            Ok(response) => log::info!("a confirmation was visited and answered {}", response.status().as_u16()),
            Err(error) => log::warn!("a confirmation could not be visited: {error}"),
        }
        VISITS.fetch_sub(1, SeqCst);
    };
    if std::thread::Builder::new().name("visit".into()).spawn(run).is_err() {
        VISITS.fetch_sub(1, SeqCst);
    }
}

fn agent() -> ureq::Agent {
    ureq::Agent::config_builder()
        .https_only(true)
        .timeout_global(Some(TIMEOUT))
        .max_redirects(0)
        .max_redirects_will_error(false)
        .http_status_as_error(false)
        .user_agent(concat!("postonce/", env!("CARGO_PKG_VERSION")))
        .build()
        .into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_never_asked_for_without_tls() {
        let why = fetcher()(&KeyRequest { url: "http://127.0.0.1:9/keys", post: None }).unwrap_err();
        assert!(why.contains("https"), "{why}");
    }
}
