//! A fake provider's API on loopback: answers as a test says, and remembers what it was asked.

use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

/// What is answered to the path of a request: a status and JSON.
pub type Manners = Box<dyn Fn(&str) -> (u16, String) + Send>;

/// The API. Calls without a key get 401.
pub struct Api {
    server: Arc<tiny_http::Server>,
    asked: Arc<Mutex<Vec<String>>>,
    thread: Option<JoinHandle<()>>,
}

impl Api {
    /// Answers as it is told.
    pub fn with(manners: Manners) -> Api {
        let server = Arc::new(tiny_http::Server::http("127.0.0.1:0").unwrap());
        let asked: Arc<Mutex<Vec<String>>> = Arc::default();
        let (incoming, log) = (server.clone(), asked.clone());
        let thread = std::thread::spawn(move || {
            for request in incoming.incoming_requests() {
                let key = request.headers().iter().any(|h| h.field.equiv("Authorization"));
                log.lock().unwrap().push(request.url().to_owned());
                let (status, body) = match key {
                    true => manners(request.url()),
                    false => (401, r#"{"message":"who asks?"}"#.to_owned()),
                };
                let _ = request.respond(tiny_http::Response::from_string(body).with_status_code(status));
            }
        });
        Api { server, asked, thread: Some(thread) }
    }

    /// Its address.
    pub fn base(&self) -> String {
        format!("http://{}", self.server.server_addr())
    }

    /// The paths it was asked for, in order.
    pub fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap().clone()
    }
}

impl Drop for Api {
    fn drop(&mut self) {
        self.server.unblock();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
