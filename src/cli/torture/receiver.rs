//! The app of the torture: takes every message on loopback, verifies it and counts its key.
//!
//! On tiny_http, for this one friendly peer.

use crate::clock;
use crate::error::{Error, Result};
use crate::providers::Catalog;
use crate::providers::signature::{Delivery, Options, Secret, Verifier};
use std::collections::HashMap;
use std::io::Read as _;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

/// The key that messages are signed with.
pub(super) const SECRET: &str = "whsec_bWVzc2FnZXMgb2YgdGhlIHRvcnR1cmUsIHNpZ25lZCE=";

pub(super) struct Receiver {
    server: Arc<tiny_http::Server>,
    got: Arc<Mutex<Got>>,
    thread: Option<JoinHandle<()>>,
}

/// What came since it was last asked.
#[derive(Default, Clone)]
pub(super) struct Got {
    /// Each Idempotency-Key with how often it came.
    pub keys: HashMap<String, u32>,
    /// Messages whose signature does not hold.
    pub forged: u32,
}

impl Receiver {
    pub fn start() -> Result<Receiver> {
        let refused = |what: String| Error::refused(what, "a loopback address and a free port are needed");
        let server = tiny_http::Server::http("127.0.0.1:0").map_err(|e| refused(format!("cannot listen: {e}")))?;
        let recipe = Catalog::open(None).ok().and_then(|c| c.recipe("standard_webhooks")?.ok());
        let recipe = recipe.ok_or_else(|| refused("the file of Standard Webhooks is missing".into()))?;
        let verifier = Verifier::new(&recipe.signature, &[Secret::pasted("torture", SECRET).0], &Options::default())
            .map_err(|e| refused(e.to_string()))?;
        let (server, got) = (Arc::new(server), Arc::new(Mutex::new(Got::default())));
        let (incoming, kept) = (server.clone(), got.clone());
        let thread = std::thread::spawn(move || {
            for request in incoming.incoming_requests() {
                take(request, &verifier, &kept);
            }
        });
        Ok(Receiver { server, got, thread: Some(thread) })
    }

    /// Where messages go.
    pub fn url(&self) -> String {
        format!("http://{}/", self.server.server_addr())
    }

    /// Gives what came, and begins anew.
    pub fn collect(&self) -> Got {
        std::mem::take(&mut *self.got.lock().expect("no panic while it is held"))
    }
}

fn take(mut request: tiny_http::Request, verifier: &Verifier, got: &Mutex<Got>) {
    let mut body = Vec::new();
    if request.as_reader().take(1 << 20).read_to_end(&mut body).is_err() {
        return;
    }
    let headers: Vec<(String, Vec<u8>)> =
        request.headers().iter().map(|h| (h.field.to_string(), h.value.as_bytes().to_vec())).collect();
    let pairs: Vec<(&str, &[u8])> = headers.iter().map(|(n, v)| (n.as_str(), v.as_slice())).collect();
    let delivery = Delivery { method: "POST", url: "", path: request.url(), query: "", headers: &pairs, body: &body };
    let key = String::from_utf8_lossy(delivery.header_all("idempotency-key").next().unwrap_or_default()).into_owned();
    let genuine = verifier.verify(&delivery, clock::wall()).is_ok();
    {
        let mut got = got.lock().expect("no panic while it is held");
        *got.keys.entry(key).or_default() += 1;
        got.forged += u32::from(!genuine);
    }
    let _ = request.respond(tiny_http::Response::empty(if genuine { 200 } else { 401 }));
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.server.unblock();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
