//! The operator's listener: pages for people, an API for programs, health for machines.
//!
//! Everything is server-rendered and works without scripts. What providers sent is untrusted: it is escaped by the
//! templates and never becomes markup. Reads go through `Store::look`; each change is one transaction with its audit row.

mod access;
mod act;
mod answer;
mod api;
mod ask;
mod chart;
mod hours;
mod layout;
mod pages;
mod routes;

use crate::config::{Config, secret_from};
use crate::edge::{Client, Front, Head, Limits, Method, Proxies, Request, Response, Route};
use crate::engine::{Engine, Shared};
use crate::error::{Error, Result};
use access::{Access, Role};
use answer::{Failure, sealed};
use ask::{Ask, pairs};
use routes::{Entry, Kind, Routes};
use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Bodies are forms and small JSON.
const BODY_MOST: u64 = 64 << 10;

/// The running listener.
pub struct Operator {
    front: Front,
    clock: hours::Hours,
}

/// What the handlers share.
struct App {
    engine: Arc<Engine>,
    config: Config,
    access: Access,
    routes: Routes,
    check: Arc<Mutex<act::Check>>,
    started_at: crate::event::Millis,
}

impl Operator {
    /// Starts it on its listener.
    pub fn start(listener: TcpListener, engine: Arc<Engine>, config: &Config) -> Result<Operator> {
        let token = |place: &Option<toml::Spanned<String>>, name: &str| match place {
            None => Ok(None),
            Some(place) => match secret_from(place.get_ref()) {
                Ok(text) if text.trim().len() >= 16 => Ok(Some(text.trim().to_owned())),
                Ok(_) => Err(Error::refused(
                    format!("[operator] {name} is shorter than 16 characters"),
                    "make one with `openssl rand -hex 32`",
                )),
                Err(what) => Err(Error::refused(format!("[operator] {name}: {what}"), "env:NAME or file:PATH")),
            },
        };
        let operator = token(&config.operator.token, "token")?;
        let reader = token(&config.operator.read_only_token, "read_only_token")?;
        if operator.is_none() && !config.operator.listen.ip().is_loopback() {
            return Err(Error::refused(
                format!("the operator's listener on {} is open to others and has no token", config.operator.listen),
                "set [operator] token = \"env:NAME\", or listen on 127.0.0.1",
            ));
        }
        let app = App {
            access: Access::new(operator.as_deref(), reader.as_deref(), &config.operator.hosts),
            routes: Routes::new(),
            check: Arc::default(),
            started_at: crate::clock::wall(),
            config: config.clone(),
            engine,
        };
        let clock = hours::Hours::start(app.shared().clone())?;
        let proxies = Proxies { nets: config.trusted_proxies.clone(), ..Proxies::default() };
        let front = Front::start(
            listener,
            limits(),
            proxies,
            |_, _| Route::Read { limit: BODY_MOST },
            move |request, reply| reply.send(app.answer(&request)),
        )
        .map_err(|e| Error::Unavailable(e.to_string()))?;
        Ok(Operator { front, clock })
    }

    /// Where it listens.
    pub fn local_addr(&self) -> SocketAddr {
        self.front.local_addr()
    }

    /// Stops listening and answers what is in flight.
    pub fn stop(self, time: Duration) {
        self.clock.stop();
        self.front.stop(time);
    }
}

/// A filter of 500 characters may take 6000 bytes in a URL; people are few.
fn limits() -> Limits {
    Limits {
        line_bytes: 64 << 10,
        head_bytes: 80 << 10,
        connections: 512,
        connections_per_address: 256,
        ..Limits::default()
    }
}

impl App {
    fn shared(&self) -> &Arc<Shared> {
        self.engine.shared()
    }

    fn answer(&self, request: &Request) -> Response {
        let Request { head, client, body } = request;
        let api = head.path().starts_with("/api/");
        let (entry, arg) = match self.routes.find(head) {
            Ok(found) => found,
            Err(failure) => return sealed(self.failed(&failure, head, client, api), None),
        };
        let mut who = None;
        let outcome = self.admit(entry, head, client).and_then(|admitted| {
            who = Some(admitted.clone());
            let form = self.form(entry, head, body, &admitted, api)?;
            let query = pairs(head.query().unwrap_or_default().as_bytes());
            (entry.handler)(&Ask { app: self, head, client: *client, who: admitted, arg, query, form, api })
        });
        let response = outcome.unwrap_or_else(|failure| self.failed(&failure, head, client, api));
        sealed(response, who.as_ref())
    }

    /// Lets in, or says why not.
    fn admit(&self, entry: &Entry, head: &Head, client: &Client) -> std::result::Result<access::Who, Failure> {
        self.access.check_host(head)?;
        if entry.kind == Kind::Open {
            let anybody = access::Who {
                name: String::new(),
                role: Role::Reader,
                csrf: String::new(),
                new_cookie: None,
                flash: None,
            };
            return Ok(self.access.who(head, client).unwrap_or(anybody));
        }
        let who = self.access.who(head, client)?;
        if entry.kind == Kind::Change && who.role != Role::Operator {
            return Err(Failure::new(403, "read_only", "this login may look and change nothing")
                .hint("log in with the operator's token"));
        }
        Ok(who)
    }

    /// The body as fields; for a change, only when it comes from a page of ours or from a program with its token.
    fn form(
        &self,
        entry: &Entry,
        head: &Head,
        body: &[u8],
        who: &access::Who,
        api: bool,
    ) -> std::result::Result<Vec<(String, String)>, Failure> {
        if head.method != Method::Post {
            return Ok(Vec::new());
        }
        access::check_origin(head)?;
        let content = head.headers.get_str("content-type").unwrap_or_default();
        let content = content.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
        let form = if api {
            match (content.as_str(), body.is_empty()) {
                // Without a body there is no content type to ask for, and a foreign page's form always has one.
                ("", true) => Vec::new(),
                ("application/json", _) => json_fields(body)?,
                _ => {
                    return Err(Failure::new(415, "not_json", "the API takes application/json"));
                }
            }
        } else if content == "application/x-www-form-urlencoded" {
            pairs(body)
        } else {
            return Err(Failure::new(415, "not_a_form", "this takes a form"));
        };
        let has_cookie = !api || head.headers.get("authorization").is_none() && head.headers.get("cookie").is_some();
        if entry.kind == Kind::Change && has_cookie {
            let field = form.iter().find(|(name, _)| name == "csrf").map(|(_, value)| value.as_str());
            let given = field.or(head.headers.get_str("x-csrf-token")).unwrap_or_default();
            if !access::same_secret(&who.csrf, given) {
                return Err(Failure::new(403, "stale_form", "this form is not of your session any more")
                    .hint("go back, load the page again, and repeat what you did"));
            }
        }
        Ok(form)
    }

    /// A failure, as a page for people and as a problem document for programs.
    fn failed(&self, failure: &Failure, head: &Head, client: &Client, api: bool) -> Response {
        if api {
            return failure.problem();
        }
        if failure.status == 401 && head.method == Method::Get && self.access.has_token() {
            return pages::login::redirect(head);
        }
        let who = self.access.who(head, client).ok();
        failure.with_headers(answer::html(failure.status, layout::failure(failure, who.as_ref())))
    }
}

/// The fields of a flat JSON object, as text.
fn json_fields(body: &[u8]) -> std::result::Result<Vec<(String, String)>, Failure> {
    if body.is_empty() {
        return Ok(Vec::new());
    }
    let object: serde_json::Map<String, serde_json::Value> =
        serde_json::from_slice(body).map_err(|e| Failure::malformed(format!("the body is no JSON object: {e}")))?;
    object
        .into_iter()
        .map(|(name, value)| match value {
            serde_json::Value::String(text) => Ok((name, text)),
            _ => Err(Failure::malformed(format!("{name} is a text"))),
        })
        .collect()
}
