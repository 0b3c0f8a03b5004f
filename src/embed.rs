//! The library: postonce inside an app, on the app's own file.
//!
//! A facade over the engine. What an embedder writes runs inside the apply transaction and cannot end it; what their web
//! server receives goes the same way as what ours receives. Nothing here knows SQL.

use crate::answer;
use crate::clock;
use crate::config::{Ack, Config, Given, Loaded, SecretConfig, SourceConfig};
use crate::edge::Response;
use crate::effects::{Happening, Moved};
use crate::engine::{self, Engine, Parts, Shared, Waking};
use crate::error::{ApplyError, Error, Result};
use crate::event::{EntityState, Millis, Mode};
use crate::providers::signature::Delivery;
use crate::source::{self, matches};
use crate::steps::apply;
pub use crate::steps::apply::Post;
use crate::store::{Options, Tx, foreign, outbox};
use crate::toml_file;
use crossbeam_channel::{RecvTimeoutError, bounded};
use rusqlite::Connection;
use serde::Serialize;
use std::collections::HashSet;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use toml::Spanned;

type Closure = Arc<dyn Fn(&ApplyTx<'_>, &AppliedEvent<'_>) -> std::result::Result<(), ApplyError> + Send + Sync>;

/// postonce on one SQLite file, inside this process. See the [crate] for a first look.
pub struct Postonce {
    engine: Engine,
    waking: Mutex<Option<Waking>>,
    config: Config,
    base: String,
}

/// What is to be opened; made by [`Postonce::builder`].
pub struct Builder {
    config: Config,
    options: Options,
    closures: Vec<Closure>,
    text: String,
}

impl Postonce {
    /// Begins with the SQLite file: the app's own, or a new one.
    pub fn builder(database: impl AsRef<Path>) -> Builder {
        let mut config: Config = toml_file::read("").expect("every value has a default");
        config.database = database.as_ref().to_owned();
        Builder { config, options: Options::default(), closures: Vec::new(), text: String::new() }
    }

    /// Starts the threads that read, apply, deliver, settle, alert, prune and back up: all that a server does but listen.
    /// What the process before had left undone is taken up at once. A second call does nothing.
    ///
    /// Bodies and finished events are pruned after 30 days, unless `[retain]` in [`Builder::config_text`] says otherwise;
    /// keys and the ledger never are.
    ///
    /// # Errors
    /// The file cannot be written, or the system gives no threads.
    pub fn start(&self) -> Result<()> {
        match self.waking.lock().expect("no panic while it is held").take() {
            Some(waking) => {
                self.engine.start(waking, Parts::ALL)?;
                self.engine.keep(&self.config)
            }
            None => Ok(()),
        }
    }

    /// Finishes what is under way (milliseconds; as long as an endpoint that is being called takes to answer), then
    /// folds the log into the file. Dropping does the same.
    pub fn stop(&self) {
        self.engine.stop();
    }

    /// Receives one POST of a provider and waits for its answer: until its bytes are synced to the disk, or, for a source
    /// that [answers when applied](Source::answer_when_applied), until its effect is committed.
    ///
    /// `headers` are pairs of name and value, such as a borrowed `http::HeaderMap`; `body` are the bytes as they came,
    /// never parsed and written anew. Give the [`Reply`] back to the provider as it is.
    pub fn receive<N, V>(
        &self,
        source: &str,
        headers: impl IntoIterator<Item = (N, V)>,
        body: impl AsRef<[u8]>,
    ) -> Reply
    where
        N: AsRef<str>,
        V: AsRef<[u8]>,
    {
        let (sender, answered) = bounded(1);
        let request = Request { method: "POST", path_and_query: &format!("/webhooks/{source}"), body: body.as_ref() };
        self.receive_then(source, request, headers, move |reply| {
            let _ = sender.send(reply);
        });
        match answered.recv_timeout(Duration::from_secs(30)) {
            Ok(reply) => reply,
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {
                answer::unavailable(&Error::Unavailable("it gave no answer".into())).into()
            }
        }
    }

    /// The same without waiting, for asynchronous servers and for providers that use other methods or sign the address:
    /// `then` is called once, on another thread or this one.
    pub fn receive_then<N, V>(
        &self,
        source: &str,
        request: Request<'_>,
        headers: impl IntoIterator<Item = (N, V)>,
        then: impl FnOnce(Reply) + Send + 'static,
    ) where
        N: AsRef<str>,
        V: AsRef<[u8]>,
    {
        let shared = self.engine.shared();
        let Some(source) = shared.sources.get(source) else {
            return then(answer::problem(404, "unknown_source", &format!("there is no source {source:?}")).into());
        };
        if request.body.len() as u64 > source.body_max {
            return then(answer::problem(413, "body_too_large", "the body is larger than the source takes").into());
        }
        let owned: Vec<(N, V)> = headers.into_iter().collect();
        let headers: Vec<(&str, &[u8])> = owned.iter().map(|(n, v)| (n.as_ref(), v.as_ref())).collect();
        let (path, query) = request.path_and_query.split_once('?').unwrap_or((request.path_and_query, ""));
        let url = format!("{}{}", self.base, request.path_and_query);
        let body = request.body;
        let delivery = Delivery { method: request.method, url: &url, path, query, headers: &headers, body };
        let refused = |refusal: &crate::providers::signature::Refusal| {
            log::warn!("source {}: refused: {} ({})", source.name, refusal.reason.as_str(), refusal.about);
            None
        };
        answer::answer(shared, source, &delivery, refused, Box::new(move |response| then(response.into())));
    }

    /// Signs a body as the source's provider would, now, and gives the headers: for the app's own tests.
    ///
    /// # Errors
    /// There is no such source, or its provider signs with a key that only the provider has.
    pub fn sign(&self, source: &str, body: impl AsRef<[u8]>) -> Result<Vec<(String, String)>> {
        let Some(source) = self.engine.shared().sources.get(source) else {
            return Err(Error::refused(format!("there is no source {source:?}"), "name one that was added"));
        };
        let path = format!("/webhooks/{}", source.name);
        let url = format!("{}{path}", self.base);
        let body = body.as_ref();
        let delivery = Delivery { method: "POST", url: &url, path: &path, query: "", headers: &[], body };
        source
            .verifier
            .sign(&delivery, clock::wall(), "msg_test")
            .map_err(|what| Error::refused(what, "use a body that the provider has signed"))
    }

    /// What the threads share: the store, the sources, the counters. For those who need more than the facade.
    pub fn shared(&self) -> &Arc<Shared> {
        self.engine.shared()
    }
}

/// A request, without its headers.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// In capitals.
    pub method: &'a str,
    /// As the provider sent it: `/webhooks/stripe?x=1`.
    pub path_and_query: &'a str,
    /// The bytes.
    pub body: &'a [u8],
}

/// The answer to a delivery.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    /// The HTTP status.
    pub status: u16,
    /// `Content-Type`, and `Retry-After` where there is one.
    pub headers: Vec<(&'static str, String)>,
    /// JSON, or what a handshake asks for.
    pub body: Vec<u8>,
}

impl From<Response> for Reply {
    fn from(response: Response) -> Reply {
        let headers = ["Content-Type", "Retry-After"]
            .into_iter()
            .filter_map(|name| Some((name, response.header(name)?.to_owned())))
            .collect();
        Reply { status: response.status(), headers, body: response.body().to_vec() }
    }
}

impl Builder {
    /// Adds a source: a provider that sends events.
    pub fn source(mut self, source: Source) -> Builder {
        self.config.sources.push(source.config);
        self
    }

    /// What is to happen to the app's own tables for each event that moves money or brings a newer state of an object,
    /// in the same commit as the ledger. Called on the one thread that writes, inside the open transaction: keep it to
    /// milliseconds and call nothing over a network. May be called again for the same event when its transaction was
    /// lost, and then nothing of the call before is there.
    pub fn apply<F>(mut self, work: F) -> Builder
    where
        F: Fn(&ApplyTx<'_>, &AppliedEvent<'_>) -> std::result::Result<(), ApplyError> + Send + Sync + 'static,
    {
        self.closures.push(Arc::new(work));
        self
    }

    /// Adds an endpoint that is told of every entry, and of what [`ApplyTx::enqueue`] writes to it. `secret` is the key of
    /// its Standard Webhooks signature, `whsec_…` by `env:NAME` or `file:PATH`.
    pub fn deliver(self, name: &str, url: &str, secret: Option<&str>) -> Builder {
        let secret = secret.map_or(String::new(), |place| format!("secret = {}\n", quoted(place)));
        self.config_text(&format!("[[deliver]]\nname = {}\nurl = {}\n{secret}", quoted(name), quoted(url)))
    }

    /// Adds what a `postonce.toml` can say: sources with rules, endpoints, alerts, mail, retention, backups. Its listeners
    /// and its `database` are not used.
    pub fn config_text(mut self, text: &str) -> Builder {
        self.text.push_str(text);
        self.text.push('\n');
        self
    }

    /// How providers write the app's address, `https://app.example.com`: needed where a signature covers it.
    pub fn public_url(mut self, url: &str) -> Builder {
        self.config.public_url = Some(url.to_owned());
        self
    }

    /// Lets the file of the app be switched to WAL, for good, when it is in another journal mode.
    pub fn adopt(mut self) -> Builder {
        self.options.adopt = true;
        self
    }

    /// How long one apply may hold the write lock before it is interrupted and counts as failed; 25 ms by default.
    pub fn apply_budget(mut self, budget: Duration) -> Builder {
        self.options.apply_budget = budget;
        self
    }

    /// Opens the file and makes the tables that are missing. Nothing moves before [`Postonce::start`].
    ///
    /// # Errors
    /// Everything that is wrong with the sources, endpoints and rules, at once; another process has the file open; the
    /// file cannot be used.
    pub fn open(self) -> Result<Postonce> {
        let Builder { mut config, mut options, closures, text } = self;
        let refused = |faults: Vec<crate::config::Fault>| {
            let list: Vec<String> = faults.iter().map(ToString::to_string).collect();
            Error::refused(list.join("\n"), "mend what is named here")
        };
        let loaded = Loaded::parse(text).map_err(refused)?;
        let said = loaded.config;
        config.sources.extend(said.sources);
        let config = Config {
            database: config.database,
            sources: config.sources,
            public_url: config.public_url.or(said.public_url),
            ..said
        };
        let base = config.public_url.clone().unwrap_or_default();
        let (mut sources, endpoints) = engine::build(&Loaded::from_config(config.clone())).map_err(refused)?;
        let names: Arc<HashSet<String>> = Arc::new(endpoints.iter().map(|e| e.name.clone()).collect());
        for source in &mut sources {
            for closure in &closures {
                source.add_effect(effect(closure.clone(), names.clone()));
            }
        }
        options.any_file_system |= config.any_file_system;
        let (engine, waking) = Engine::open(&config.database, sources, endpoints, &options)?;
        let waking = Mutex::new(Some(waking));
        Ok(Postonce { engine, waking, config, base: base.trim_end_matches('/').to_owned() })
    }
}

/// A string of TOML.
fn quoted(text: &str) -> String {
    toml::Value::String(text.to_owned()).to_string()
}

/// Runs a closure as an effect: guarded, and with the transaction looked at afterwards.
fn effect(closure: Closure, endpoints: Arc<HashSet<String>>) -> source::Effect {
    Arc::new(move |tx: &Tx, happening: &Happening| {
        let (handle, event) = (ApplyTx { tx, happening, endpoints: &endpoints }, AppliedEvent { tx, happening });
        let result = foreign::foreign(|| closure(&handle, &event));
        if tx.conn.is_autocommit() {
            return Err(Error::LostTransaction("the closure ended the transaction".into()));
        }
        result.map_err(Error::from)
    })
}

/// A provider that sends events, for [`Builder::source`].
pub struct Source {
    config: SourceConfig,
}

impl Source {
    /// A source by its name, the last part of its path. The provider has the same name unless [`Source::provider`] says
    /// otherwise.
    pub fn new(name: &str) -> Source {
        let mut config: SourceConfig = toml_file::read("name = \"x\"").expect("every other value has a default");
        config.name = here(name.to_owned());
        Source { config }
    }

    /// The provider's file: `stripe`, `paddle`, … (`postonce providers list`).
    pub fn provider(mut self, provider: &str) -> Source {
        self.config.provider = Some(here(provider.to_owned()));
        self
    }

    /// A signing secret, as the provider's dashboard shows it. Several may be live at once.
    pub fn secret(mut self, secret: &str) -> Source {
        let name = format!("secret {}", self.config.secrets.len() + 1);
        self.config.secrets.push(here(SecretConfig::Given { name, value: Given(secret.to_owned()) }));
        self
    }

    /// A signing secret by `env:NAME` or `file:PATH`.
    pub fn secret_from(mut self, place: &str) -> Source {
        self.config.secrets.push(here(SecretConfig::Plain(place.to_owned())));
        self
    }

    /// Whose money it is: part of every key.
    pub fn tenant(mut self, tenant: &str) -> Source {
        self.config.tenant = tenant.to_owned();
        self
    }

    /// The only mode whose events are applied; those of the other are kept and ignored. Without it both are applied, in
    /// books of their own.
    pub fn mode(mut self, mode: Mode) -> Source {
        self.config.mode = Some(here(mode.as_str().to_owned()));
        self
    }

    /// Answers after the effect is committed: 200 `processed`, 200 `duplicate` with the first result, 409 with
    /// `Retry-After` while another delivery of the event is under way, 500 when the effect failed.
    pub fn answer_when_applied(mut self) -> Source {
        self.config.ack = Ack::Applied;
        self
    }

    /// Everything else that a `[[source]]` of the configuration can say.
    pub fn configure(mut self, change: impl FnOnce(&mut SourceConfig)) -> Source {
        change(&mut self.config);
        self
    }
}

fn here<T>(value: T) -> Spanned<T> {
    Spanned::new(0..0, value)
}

/// The open transaction, as a closure has it. There is no way to commit it.
pub struct ApplyTx<'a> {
    tx: &'a Tx<'a>,
    happening: &'a Happening<'a>,
    endpoints: &'a HashSet<String>,
}

impl ApplyTx<'_> {
    /// Runs SQL on the app's own tables. Transaction control, `ATTACH`, `PRAGMA`, changes of the schema and postonce's own
    /// tables are refused, and the apply fails with them. Leave the connection's hooks and settings alone.
    pub fn sql(&self) -> &Connection {
        self.tx.conn
    }

    /// The time of this transaction, milliseconds since 1970.
    pub fn now(&self) -> Millis {
        self.tx.now
    }

    /// Adds an entry to the ledger, in the event's book. Gives its id, or `None` when it is there already.
    ///
    /// # Errors
    /// [`ApplyError::Reject`]: an unknown kind or currency, no reference, an amount that is not positive, or an entry of
    /// that kind and reference with another amount.
    pub fn post(&self, post: Post<'_>) -> std::result::Result<Option<i64>, ApplyError> {
        foreign::own(|| Ok(apply::extra(self.tx, self.happening.won, &post)?))
    }

    /// Writes a message of your own to an endpoint, sent after the commit, at least once. `key` names the business fact
    /// within that endpoint and the event's tenant: a second message under it is dropped (`false`). The receiver sees
    /// `endpoint/tenant/key` as `Idempotency-Key`.
    ///
    /// # Errors
    /// [`ApplyError::Reject`]: no endpoint has that name.
    pub fn enqueue(
        &self,
        endpoint: &str,
        key: &str,
        payload: &impl Serialize,
    ) -> std::result::Result<bool, ApplyError> {
        if !self.endpoints.contains(endpoint) {
            return Err(ApplyError::Reject(format!("enqueue: no endpoint is called {endpoint:?}")));
        }
        let won = self.happening.won;
        let key = format!("{endpoint}/{}/{key}", won.book_name.tenant);
        let payload = serde_json::to_string(payload)?;
        let (raw_event, payload) = (won.raw_event, Some(payload.as_str()));
        let message = outbox::NewMessage { key: &key, endpoint, raw_event, journal: None, payload };
        foreign::own(|| Ok(outbox::insert(self.tx, &message)?))
    }
}

/// An event while it is applied, as a closure sees it.
pub struct AppliedEvent<'a> {
    tx: &'a Tx<'a>,
    happening: &'a Happening<'a>,
}

impl AppliedEvent<'_> {
    /// The movements of money that this event has posted, those whose kind is `pattern` (`payment`, `dispute_*`, `*`).
    /// What another event announced before is not among them: each movement is here exactly once, ever.
    pub fn movements(&self, pattern: &str) -> impl Iterator<Item = &Moved> {
        self.happening.moved.iter().filter(move |moved| matches(pattern, &moved.kind))
    }

    /// The objects whose latest state this event has brought, those whose kind is `pattern` (`subscription`, `*`).
    pub fn entities(&self, pattern: &str) -> impl Iterator<Item = &EntityState> {
        self.happening.entities.iter().copied().filter(move |state| matches(pattern, &state.kind))
    }

    /// The provider's event id, where it has one.
    pub fn id(&self) -> Option<&str> {
        self.happening.won.event.id.as_deref()
    }

    /// The provider's name of the type: `charge.succeeded`.
    pub fn event_type(&self) -> &str {
        &self.happening.won.event.kind
    }

    /// When it happened by the provider's clock, or when it came; milliseconds since 1970.
    pub fn occurred_at(&self) -> Millis {
        self.happening.won.occurred_at
    }

    /// The source's name.
    pub fn source(&self) -> &str {
        &self.happening.won.source.name
    }

    /// Whose money it is.
    pub fn tenant(&self) -> &str {
        &self.happening.won.book_name.tenant
    }

    /// The provider's name.
    pub fn provider(&self) -> &str {
        &self.happening.won.book_name.provider
    }

    /// Live or test money.
    pub fn mode(&self) -> Mode {
        self.happening.won.book_name.mode
    }

    /// The raw event's id, as pages and commands show it.
    pub fn raw_event(&self) -> i64 {
        self.happening.won.raw_event
    }

    /// The bytes as they were sent; those of the whole delivery, when it brought several events.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn body(&self) -> std::result::Result<&[u8], ApplyError> {
        foreign::own(|| Ok(self.happening.body(self.tx)?))
    }
}
