//! A fake app on loopback: takes our messages, verifies them, keeps them, and answers as it is told.

use super::wire::verifier;
use postonce::providers::signature::Delivery;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

/// The key of the messages to the fake app.
pub const APP_SECRET: &str = "whsec_dGhlIGtleSBvZiB0aGUgZmFrZSBhcHAgMDEyMzQ1Njc4OTAx";

/// A message that the fake app got.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// Its Idempotency-Key.
    pub key: String,
    /// Its body as sent.
    pub body: String,
    /// Does its signature hold?
    pub genuine: bool,
}

/// How the fake app answers the nth message (from 0): a status, and what stands in Retry-After.
pub type Manners = Box<dyn Fn(usize, &Message) -> (u16, Option<&'static str>) + Send>;

/// A fake app: takes messages on loopback, verifies them as Standard Webhooks says, and keeps them.
pub struct App {
    server: Arc<tiny_http::Server>,
    got: Arc<Mutex<Vec<Message>>>,
    thread: Option<JoinHandle<()>>,
}

impl App {
    /// Accepts everything.
    pub fn start() -> App {
        App::with(Box::new(|_, _| (200, None)))
    }

    /// Answers as it is told.
    pub fn with(manners: Manners) -> App {
        let server = Arc::new(tiny_http::Server::http("127.0.0.1:0").unwrap());
        let got: Arc<Mutex<Vec<Message>>> = Arc::default();
        let (incoming, kept) = (server.clone(), got.clone());
        let verifier = verifier("standard_webhooks", APP_SECRET);
        let thread = std::thread::spawn(move || {
            for mut request in incoming.incoming_requests() {
                let mut body = Vec::new();
                if request.as_reader().read_to_end(&mut body).is_err() {
                    continue;
                }
                let headers: Vec<(String, Vec<u8>)> =
                    request.headers().iter().map(|h| (h.field.to_string(), h.value.as_bytes().to_vec())).collect();
                let pairs: Vec<(&str, &[u8])> = headers.iter().map(|(n, v)| (n.as_str(), v.as_slice())).collect();
                let delivery =
                    Delivery { method: "POST", url: "", path: request.url(), query: "", headers: &pairs, body: &body };
                let key = delivery.header_all("idempotency-key").next().unwrap_or_default();
                let message = Message {
                    key: String::from_utf8_lossy(key).into_owned(),
                    body: String::from_utf8_lossy(&body).into_owned(),
                    genuine: verifier.verify(&delivery, postonce::clock::wall()).is_ok(),
                };
                let mut got = kept.lock().unwrap();
                let (status, retry_after) = manners(got.len(), &message);
                got.push(message);
                drop(got);
                let mut response = tiny_http::Response::empty(status);
                if let Some(text) = retry_after {
                    response.add_header(tiny_http::Header::from_bytes("Retry-After", text).unwrap());
                }
                let _ = request.respond(response);
            }
        });
        App { server, got, thread: Some(thread) }
    }

    /// Where it listens.
    pub fn url(&self) -> String {
        format!("http://{}/", self.server.server_addr())
    }

    /// All it got, in order; every signature must hold.
    pub fn messages(&self) -> Vec<Message> {
        let got = self.got.lock().unwrap().clone();
        assert!(got.iter().all(|m| m.genuine), "a message with a bad signature: {got:?}");
        got
    }

    /// The distinct keys, sorted.
    pub fn keys(&self) -> Vec<String> {
        let mut keys: Vec<String> = self.messages().into_iter().map(|m| m.key).collect();
        keys.sort();
        keys.dedup();
        keys
    }
}

impl Drop for App {
    fn drop(&mut self) {
        self.server.unblock();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
