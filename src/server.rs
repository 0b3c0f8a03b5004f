//! The server: the public listener for providers, the operator's listener, and the life cycle of the process.
//!
//! Turns requests into deliveries and outcomes into answers. Never 2xx without a durable row; never 3xx.

use crate::answer::answer;
pub(crate) use crate::answer::problem;
use crate::config::Loaded;
use crate::edge::{self, Client, Front, Head, Limits, Method, Proxies, Reply, Request, Response, Route};
use crate::engine::{self, Engine, Parts, Shared};
use crate::error::{Error, Result};
use crate::metrics::Outcome;
use crate::operator::Operator;
use crate::providers::signature::{Delivery, Refusal};
use crate::rates::Rates;
use crate::source::Source;
use crate::store::Options;
use governor::{DefaultDirectRateLimiter, Quota, RateLimiter};
use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// How long a stop may take: SIGTERM to exit, everything in flight included.
pub const STOP_WITHIN: Duration = Duration::from_secs(8);

/// A running server.
pub struct Server {
    engine: Arc<Engine>,
    public: Option<Front>,
    operator: Option<Operator>,
}

impl Server {
    /// Opens the file, starts the threads, listens.
    pub fn start(loaded: &Loaded, options: &Options) -> Result<Server> {
        Server::start_with(loaded, options, Parts::ALL)
    }

    /// The same with some of its threads only: for measuring one thing at a time.
    pub fn start_with(loaded: &Loaded, options: &Options, parts: Parts) -> Result<Server> {
        let (sources, endpoints) = engine::build(loaded).map_err(|faults| {
            let list: Vec<String> = faults.iter().map(ToString::to_string).collect();
            Error::refused(
                format!("the configuration has {} fault(s):\n  {}", list.len(), list.join("\n  ")),
                "mend these and start again; `postonce doctor` shows more",
            )
        })?;
        let config = &loaded.config;
        let public = listen(config.listen, "listen")?;
        let operator = listen(config.operator.listen, "operator")?;
        let (engine, waking) = Engine::open(&config.database, sources, endpoints, options)?;
        let engine = Arc::new(engine);
        engine.start(waking, parts)?;
        engine.keep(config)?;
        let proxies = Proxies { nets: config.trusted_proxies.clone(), ..Proxies::default() };
        let base = config.public_url.clone().unwrap_or_else(|| format!("http://{}", config.listen));
        let hooks = Arc::new(Hooks {
            shared: engine.shared().clone(),
            base: base.trim_end_matches('/').to_owned(),
            rates: Rates::new(engine.shared().sources.values()),
            hints: RateLimiter::direct(Quota::per_second(HINTS_PER_SECOND)),
        });
        let (router, handler) = (hooks.clone(), hooks);
        let public = Front::start(
            public,
            limits(engine.shared().sources.values()),
            proxies,
            move |head, client| router.route(head, client),
            move |request, reply| handler.handle(request, reply),
        )
        .map_err(|e| Error::Unavailable(e.to_string()))?;
        let operator = Operator::start(operator, engine.clone(), config)?;
        Ok(Server { engine, public: Some(public), operator: Some(operator) })
    }

    /// Where providers reach us.
    pub fn public_addr(&self) -> SocketAddr {
        self.public.as_ref().expect("it is taken at the stop only").local_addr()
    }

    /// Where the operator reaches us.
    pub fn operator_addr(&self) -> SocketAddr {
        self.operator.as_ref().expect("it is taken at the stop only").local_addr()
    }

    /// The engine behind it.
    pub fn engine(&self) -> &Arc<Engine> {
        &self.engine
    }

    /// Stops listening, answers what is in flight, folds the file into one.
    pub fn stop(mut self) {
        if let Some(front) = self.public.take() {
            front.stop(STOP_WITHIN / 4);
        }
        if let Some(operator) = self.operator.take() {
            operator.stop(STOP_WITHIN / 4);
        }
        self.engine.stop();
    }
}

/// The bounds of the public listener. A webhook of the usual size is checked by the thread that read it, since handing it
/// over costs as much; unless a check may have to wait for a key. One such source is enough: a delivery that was refused is
/// looked at with the secrets of the others.
pub fn limits<'s>(mut sources: impl Iterator<Item = &'s Arc<Source>>) -> Limits {
    let at_once = if sources.all(|source| source.verifier.is_quick()) { 16 << 10 } else { 0 };
    Limits { at_once, ..Limits::default() }
}

fn listen(address: SocketAddr, name: &str) -> Result<std::net::TcpListener> {
    edge::listen(address).map_err(|e| {
        let hint = match e.kind() {
            std::io::ErrorKind::AddrInUse => {
                format!("another program listens there (`ss -ltnp`): stop it, or use --{name} with another port")
            }
            std::io::ErrorKind::PermissionDenied => {
                "ports below 1024 need rights: use one above and a proxy in front".to_owned()
            }
            std::io::ErrorKind::AddrNotAvailable => "that address is not one of this machine's".to_owned(),
            _ => format!("see --{name}"),
        };
        Error::refused(format!("cannot listen on {address}: {e}"), hint)
    })
}

/// The public listener's duty.
struct Hooks {
    shared: Arc<Shared>,
    base: String,
    rates: Rates,
    hints: DefaultDirectRateLimiter,
}

/// How many refused requests a second are looked at with the secrets of the other sources.
const HINTS_PER_SECOND: NonZeroU32 = NonZeroU32::new(5).expect("it is not zero");

const PREFIX: &str = "/webhooks/";

impl Hooks {
    /// The source of a path; a trailing slash is accepted, since no provider follows a redirect.
    fn source(&self, path: &str) -> Option<&Arc<Source>> {
        let name = path.strip_prefix(PREFIX)?;
        self.shared.sources.get(name.strip_suffix('/').unwrap_or(name))
    }

    fn route(&self, head: &Head, client: &Client) -> Route {
        let Some(source) = self.source(head.path()) else {
            self.shared.metrics.unknown_source.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            let what = format!("there is nothing at {}; webhooks go to {}{PREFIX}<source>", head.path(), self.base);
            return Route::Answer(problem(404, "unknown_source", &what));
        };
        let count = |outcome| self.shared.metrics.count(&source.name, outcome);
        if !matches!(head.method, Method::Post | Method::Head | Method::Get) {
            count(Outcome::NotAllowed);
            let what = "a webhook is a POST";
            return Route::Answer(problem(405, "method_not_allowed", what).with_header("Allow", "POST, GET, HEAD"));
        }
        if !source.allows(client.address) {
            count(Outcome::NotAllowed);
            return Route::Answer(problem(
                403,
                "address_not_allowed",
                "this address is not in the source's allow_from",
            ));
        }
        if let Some(answer) = self.rates.source_takes(&source.name) {
            return Route::Answer(answer);
        }
        match head.body_length() {
            Some(length) if length > source.body_max => {
                count(Outcome::TooLarge);
                let what = format!("the body has {length} bytes; source {} takes {}", source.name, source.body_max);
                Route::Answer(problem(413, "body_too_large", &what))
            }
            _ => Route::Read { limit: source.body_max },
        }
    }

    fn handle(&self, request: Request, reply: Reply) {
        let Request { head, body, client } = &request;
        let Some(source) = self.source(head.path()) else {
            return reply.send(problem(404, "unknown_source", "there is no such source"));
        };
        let url = format!("{}{}", self.base, head.target());
        let headers: Vec<(&str, &[u8])> = head.headers.iter().collect();
        let delivery = Delivery {
            method: head.method.as_str(),
            url: &url,
            path: head.path(),
            query: head.query().unwrap_or_default(),
            headers: &headers,
            body,
        };
        answer(
            &self.shared,
            source,
            &delivery,
            |refusal| self.note_refusal(source, refusal, &delivery, client),
            Box::new(move |response| reply.send(response)),
        );
    }

    /// The commonest mistake is the secret of another endpoint: the log says whose it is, by name. An address that sends
    /// too many of them gets another answer, and no more lines.
    fn note_refusal(
        &self,
        source: &Source,
        refusal: &Refusal,
        delivery: &Delivery,
        client: &Client,
    ) -> Option<Response> {
        if let Some(answer) = self.rates.failed(client.address) {
            return Some(answer);
        }
        let now = crate::clock::wall();
        self.shared.counts.refused(&source.name, refusal.reason.as_str(), client.address);
        // A flood of bad signatures must not cost a verification for each of the other sources and for each request.
        let others = if self.hints.check().is_ok() { self.shared.sources.len() } else { 0 };
        let other = self
            .shared
            .sources
            .values()
            .take(others)
            .filter(|other| other.name != source.name)
            .find(|other| other.verifier.secret_that_matches(delivery, now).is_some());
        let hint = other.map_or(String::new(), |other| format!("; a secret of source {} matches", other.name));
        log::warn!(
            "source {}: refused from {}: {} ({}), {} bytes{hint}",
            source.name,
            client.address,
            refusal.reason.as_str(),
            refusal.about,
            delivery.body.len()
        );
        None
    }
}

/// Where the demo and `init` put things when nobody says otherwise.
pub fn default_config_path() -> &'static Path {
    Path::new("postonce.toml")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_checked_where_it_is_read_when_a_check_may_take_long_or_wait_for_a_key() {
        let at_once = |providers: &[&str]| {
            let mut text = String::from("database = \"x.db\"\n");
            for provider in providers {
                let secrets = if *provider == "aws_sns" {
                    "options.topic_arn = \"arn:aws:sns:eu-west-1:1:t\"\n"
                } else {
                    "secrets = [\"env:PATH\"]\n"
                };
                text.push_str(&format!("[[source]]\nname = \"{provider}\"\n{secrets}"));
            }
            let loaded = Loaded::parse(text).unwrap();
            let (sources, _) = engine::build(&loaded).unwrap();
            let sources: Vec<Arc<Source>> = sources.into_iter().map(Arc::new).collect();
            limits(sources.iter()).at_once
        };
        assert!(at_once(&["stripe", "gocardless"]) > 0);
        assert_eq!(at_once(&["stripe", "aws_sns"]), 0, "it fetches its certificate");
    }
}
