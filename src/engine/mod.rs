//! The engine: the store, the sources and the threads that move events on. What the server, the commands and an
//! embedding app share.
//!
//! `worker` reads what is due, claims and applies it; `sender` delivers the outbox; `settler` runs the daily settlement.
//! All ask the tables what there is to do; a wake-up only says "look".

mod answers;
mod fetcher;
pub mod heard;
mod keeper;
pub mod latency;
mod sender;
mod settler;
mod worker;

pub use answers::{Told, Waiter};
pub use settler::silence_of;

use crate::alerts::{Firing, Recipient};
use crate::config::{self, Config, Fault, Loaded, secret_from};
use crate::error::{Error, Result};
use crate::event::Millis;
use crate::fault;
use crate::metrics::Metrics;
use crate::providers::Catalog;
use crate::providers::signature::{Options as SignatureOptions, Secret, Verifier};
use crate::source::{self, Source};
use crate::steps::deliver::{self, Endpoint};
use crate::steps::mail::{self, Mail, Mailer, Receipt};
use crate::steps::sweep;
use crate::store::raw::State;
use crate::store::{Options, Store, foreign};
use answers::Answers;
use crossbeam_channel::{Receiver, Sender, bounded, unbounded};
use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// What the threads share.
pub struct Shared {
    /// The file.
    pub store: Store,
    /// The sources by name.
    pub sources: HashMap<String, Arc<Source>>,
    /// The endpoints by name.
    pub endpoints: HashMap<String, Arc<Endpoint>>,
    /// What happened since the start.
    pub counts: Counts,
    /// What was counted and measured since the start.
    pub metrics: Metrics,
    /// When each source was last heard.
    pub heard: heard::Heard,
    /// How it is operated, once the keeper runs.
    pub operations: OnceLock<Operations>,
    raised: Mutex<BTreeMap<(&'static str, String), Firing>>,
    wake_worker: Sender<()>,
    wake_sender: Sender<()>,
    stopping: AtomicBool,
    answers: Answers,
}

/// Counters since the start, for people, metrics and tests.
#[derive(Default)]
pub struct Counts {
    /// Raw events by the state they ended in (see [`State::ALL`]).
    pub ended: [AtomicU64; 8],
    /// Failed attempts to apply.
    pub failed_attempts: AtomicU64,
    /// Claims lost to the sweep.
    pub lost_claims: AtomicU64,
    /// Messages that were accepted.
    pub sent: AtomicU64,
    /// Attempts to send that failed.
    pub send_failures: AtomicU64,
    /// Refused signatures by source and reason. Both are words of ours, so that this cannot grow.
    pub refusals: Mutex<BTreeMap<(String, &'static str), Refusals>>,
}

/// Refused signatures of one source for one reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusals {
    /// How many since the start.
    pub count: u64,
    /// When the last one came.
    pub last: Millis,
    /// Where it came from.
    pub from: IpAddr,
}

impl Counts {
    pub(crate) fn refused(&self, source: &str, reason: &'static str, from: IpAddr) {
        let last = crate::clock::wall();
        let mut refusals = self.refusals.lock().expect("no panic while it is held");
        let entry = refusals.entry((source.to_owned(), reason)).or_insert(Refusals { count: 0, last, from });
        *entry = Refusals { count: entry.count + 1, last, from };
    }

    pub(crate) fn ended(&self, state: State) {
        let at = State::ALL.iter().position(|s| *s == state).unwrap_or(0);
        self.ended[at].fetch_add(1, Relaxed);
    }
}

/// Which threads run. All of them, but for measuring.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Parts {
    /// Read, claim and apply.
    pub apply: bool,
    /// Deliver the outbox.
    pub deliver: bool,
}

impl Parts {
    /// Everything that a server does.
    pub const ALL: Parts = Parts { apply: true, deliver: true };
}

/// How long a stop waits for a call to a provider.
const LEFT_BEHIND: Duration = Duration::from_secs(2);

/// A running engine.
pub struct Engine {
    shared: Arc<Shared>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl Engine {
    /// Opens the file and compiles the sources; nothing moves yet.
    pub fn open(
        database: &Path,
        sources: Vec<Source>,
        endpoints: Vec<Endpoint>,
        options: &Options,
    ) -> Result<(Engine, Waking)> {
        let store = Store::open(database, options)?;
        let mut faults = Vec::new();
        store.read(|conn| {
            foreign::guard(conn)?;
            sources.iter().for_each(|source| source.check_rules(conn, &mut faults));
            Ok(())
        })?;
        if !faults.is_empty() {
            let list: Vec<String> = faults.iter().map(ToString::to_string).collect();
            return Err(Error::refused(
                format!("{} effect(s) do not fit {}:\n  {}", list.len(), database.display(), list.join("\n  ")),
                "mend the statements, or make the app's tables first",
            ));
        }
        let (wake_worker, worker) = bounded(1);
        let wake = wake_worker.clone();
        store.gate().after_keeping(move || {
            let _ = wake.try_send(());
        });
        let (wake_sender, sender) = bounded(1);
        let metrics = Metrics::new(sources.iter().map(|s| s.name.clone()));
        let (news, answers) = unbounded();
        let shared = Arc::new(Shared {
            store,
            metrics,
            heard: heard::Heard::default(),
            operations: OnceLock::new(),
            raised: Mutex::default(),
            sources: sources.into_iter().map(|s| (s.name.clone(), Arc::new(s))).collect(),
            endpoints: endpoints.into_iter().map(|e| (e.name.clone(), Arc::new(e))).collect(),
            counts: Counts::default(),
            wake_worker,
            wake_sender,
            stopping: AtomicBool::new(false),
            answers: Answers::new(news),
        });
        Ok((Engine { shared, threads: Mutex::default() }, Waking { worker, sender, answers }))
    }

    /// Releases what the process before had claimed and starts the threads.
    pub fn start(&self, waking: Waking, parts: Parts) -> Result<()> {
        fault::point("before_release");
        // An app on the same file may hold the lock for its migration: a start waits for it, as long as anybody would.
        let until = Instant::now() + Duration::from_secs(30);
        let released = loop {
            match sweep::at_start(&self.shared.store) {
                Err(Error::Unavailable(why)) if Instant::now() < until => log::warn!("waiting to start: {why}"),
                done => break done?,
            }
        };
        fault::point("after_release");
        if released > 0 {
            self.shared.metrics.rescued.fetch_add(released as u64, Relaxed);
            log::info!("{released} events of the process before are taken up again");
        }
        let spawn = |name: &str, run: Box<dyn FnOnce() + Send>| {
            std::thread::Builder::new().name(name.into()).spawn(run).map_err(|e| Error::Unavailable(e.to_string()))
        };
        let mut threads = self.threads.lock().expect("no panic while it is held");
        let (shared, Waking { worker, sender, answers }) = (self.shared.clone(), waking);
        if parts.apply {
            threads.push(spawn("worker", Box::new(move || worker::run(&shared, &worker)))?);
        }
        let shared = self.shared.clone();
        if parts.deliver {
            threads.push(spawn("sender", Box::new(move || sender::run(&shared, &sender)))?);
        }
        if parts == Parts::ALL {
            let shared = self.shared.clone();
            threads.push(spawn("settler", Box::new(move || settler::run(&shared)))?);
        }
        let shared = self.shared.clone();
        threads.push(spawn("told", Box::new(move || answers::run(&shared, &answers)))?);
        Ok(())
    }

    /// Starts the thread that alerts, prunes and backs up.
    pub fn keep(&self, config: &Config) -> Result<()> {
        let operations = self.shared.operations.get_or_init(|| Operations::of(config)).clone();
        let shared = self.shared.clone();
        let thread = std::thread::Builder::new()
            .name("keeper".into())
            .spawn(move || keeper::run(&shared, &operations))
            .map_err(|e| Error::Unavailable(e.to_string()))?;
        self.threads.lock().expect("no panic while it is held").push(thread);
        Ok(())
    }

    /// What the threads share.
    pub fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// Lets the threads finish what they hold, then folds the file into one.
    pub fn stop(&self) {
        if !self.shared.stopping.swap(true, Relaxed) {
            fault::point("stopping");
        }
        self.shared.wake();
        self.shared.wake_sender();
        self.shared.answers.wake();
        for thread in self.threads.lock().expect("no panic while it is held").drain(..) {
            thread.thread().unpark();
            // one that waits for a provider's answer is left behind: all it can do from now on is fail
            let until = Instant::now() + LEFT_BEHIND;
            while thread.thread().name() == Some("settler") && !thread.is_finished() && Instant::now() < until {
                std::thread::sleep(Duration::from_millis(10));
            }
            if thread.thread().name() != Some("settler") || thread.is_finished() {
                let _ = thread.join();
            }
        }
        self.shared.store.stop();
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.stop();
    }
}

/// How it is operated: what the configuration says beside sources and endpoints.
#[derive(Clone, Debug)]
pub struct Operations {
    /// When something is worth an alert.
    pub alerts: config::AlertRules,
    /// Whom to tell.
    pub recipients: Vec<Recipient>,
    /// What is kept, and for how long.
    pub retain: config::Retain,
    /// The scheduled backups.
    pub backup: Option<config::Backup>,
}

impl Operations {
    fn of(config: &Config) -> Operations {
        let recipients = config.alert_endpoints.iter().map(|to| Recipient {
            endpoint: to.name.get_ref().clone(),
            on: to.on.clone(),
            format: to.format,
        });
        Operations {
            alerts: config.alerts.clone(),
            recipients: recipients.collect(),
            retain: config.retain.clone(),
            backup: config.backup.clone(),
        }
    }
}

/// The receiving ends of the wake-ups, handed to the threads at the start.
pub struct Waking {
    worker: Receiver<()>,
    sender: Receiver<()>,
    answers: Receiver<(i64, Option<Told>)>,
}

impl Shared {
    /// There may be something to read and apply.
    pub fn wake(&self) {
        let _ = self.wake_worker.try_send(());
    }

    /// There may be something to send.
    pub fn wake_sender(&self) {
        let _ = self.wake_sender.try_send(());
    }

    /// Is it time to end?
    pub fn is_stopping(&self) -> bool {
        self.stopping.load(Relaxed)
    }

    /// Waits, and no longer once it is time to end.
    pub(crate) fn pause(&self, time: Duration) {
        let until = Instant::now() + time;
        while !self.is_stopping() && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(100).min(time));
        }
    }

    /// Says that something is wrong until [`Shared::clear`]: the keeper makes an alert of it. For troubles that no table
    /// shows, such as a run that failed.
    pub fn raise(&self, kind: &'static str, subject: &str, count: i64, what: String) {
        let firing = Firing { kind, subject: subject.to_owned(), count, what };
        self.raised.lock().expect("no panic while it is held").insert((kind, subject.to_owned()), firing);
    }

    /// It is no longer wrong.
    pub fn clear(&self, kind: &'static str, subject: &str) {
        self.raised.lock().expect("no panic while it is held").remove(&(kind, subject.to_owned()));
    }

    /// What was raised and not cleared.
    pub fn raised(&self) -> Vec<Firing> {
        self.raised.lock().expect("no panic while it is held").values().cloned().collect()
    }

    /// Below this many free bytes on the database's disk the server is not ready.
    pub fn disk_free_least(&self) -> u64 {
        let warned = self.operations.get().map_or(0, |operations| operations.alerts.disk_free_mb);
        (warned << 20) / 4
    }

    /// Tells `waiter`, on a thread of ours, once the raw event has ended or failed, or it takes too long.
    pub fn when_ended(&self, raw_event: i64, waiter: Waiter) {
        self.answers.wait_for(raw_event, waiter);
    }

    pub(crate) fn failed(&self, raw_event: i64) {
        self.counts.failed_attempts.fetch_add(1, Relaxed);
        self.answers.tell(raw_event, Told::Failed);
    }

    pub(crate) fn ended(&self, raw_event: i64, state: State) {
        self.counts.ended(state);
        log::info!(target: "postonce::event", "raw event {raw_event}: {state}");
        self.answers.tell(raw_event, Told::Ended(state));
    }
}

/// Compiles the sources and endpoints of a configuration, or names everything that is wrong with it.
pub fn build(loaded: &Loaded) -> std::result::Result<(Vec<Source>, Vec<Endpoint>), Vec<Fault>> {
    let (sources, mut faults) = match source::build_all(loaded) {
        Ok(sources) => (sources, Vec::new()),
        Err(faults) => (Vec::new(), faults),
    };
    let mut endpoints = Vec::new();
    build_endpoints(loaded, &mut endpoints, &mut faults);
    if faults.is_empty() { Ok((sources, endpoints)) } else { Err(faults) }
}

/// The endpoints of `[[deliver]]` and `[[alert]]`: a URL or e-mail each.
fn build_endpoints(loaded: &Loaded, endpoints: &mut Vec<Endpoint>, faults: &mut Vec<Fault>) {
    let (agent, config) = (deliver::agent(), &loaded.config);
    let mut fault = |line: usize, what: String, hint: &str| faults.push(Fault { line, what, hint: hint.to_owned() });
    let mailer = config.smtp.as_ref().and_then(|smtp| match Mailer::new(smtp) {
        Ok(mailer) => Some(Arc::new(mailer)),
        Err(what) => {
            fault(
                loaded.line(&smtp.host),
                format!("smtp: {what}"),
                "host, from, and user with password where it wants them",
            );
            None
        }
    });
    let places = config
        .deliveries
        .iter()
        .map(|d| ("deliver", &d.name, &d.url, &d.secret, d.email.as_ref().map(MailTo::Template)))
        .chain(
            config
                .alert_endpoints
                .iter()
                .map(|a| ("alert", &a.name, &a.url, &a.secret, a.email.as_ref().map(MailTo::Address))),
        );
    for (table, name, url, secret, email) in places {
        let (line, name) = (loaded.line(name), name.get_ref());
        if name.is_empty() || endpoints.iter().any(|e: &Endpoint| e.name == *name) {
            fault(
                line,
                format!("{table} {name}: the name is there twice or empty"),
                "each [[deliver]] and [[alert]] has a name of its own",
            );
        }
        let signer = match secret {
            None => Ok(None),
            Some(place) => secret_from(place.get_ref()).and_then(|text| signer(&text)).map(Some),
        };
        let signer = signer.unwrap_or_else(|what| {
            fault(
                secret.as_ref().map_or(line, |place| loaded.line(place)),
                format!("{table} {name}: {what}"),
                "secret = \"env:NAME\" with whsec_ and at least 24 bytes in base64",
            );
            None
        });
        let (url, mail) = match (url, email) {
            (Some(url), None) => {
                let text = url.get_ref();
                if !text.starts_with("http://") && !text.starts_with("https://") {
                    fault(
                        loaded.line(url),
                        format!("{table} {name}: {text:?} is no http address"),
                        "https://app.example.com/hooks",
                    );
                }
                (text.clone(), None)
            }
            (None, Some(email)) => {
                if mailer.is_none() && config.smtp.is_none() {
                    fault(
                        line,
                        format!("{table} {name}: there is no mail server"),
                        "[smtp] host = \"…\", from = \"…\"",
                    );
                }
                let made = match email {
                    MailTo::Template(template) => Receipt::new(template.get_ref())
                        .map(|receipt| mailer.clone().map(|mailer| Mail::Receipt(mailer, Box::new(receipt)))),
                    MailTo::Address(address) => {
                        mail::mailbox(address.get_ref()).map(|to| mailer.clone().map(|mailer| Mail::Alert(mailer, to)))
                    }
                };
                let mail = made.unwrap_or_else(|what| {
                    fault(line, format!("{table} {name}: email: {what}"), "see the example configuration");
                    None
                });
                ("mailto:".to_owned(), mail)
            }
            _ => {
                fault(
                    line,
                    format!("{table} {name}: it needs either a url or an email"),
                    "url = \"https://app.example.com/hooks\"",
                );
                continue;
            }
        };
        endpoints.push(Endpoint { name: name.clone(), url, signer, agent: agent.clone(), mail });
    }
}

/// To whom an endpoint mails.
enum MailTo<'c> {
    Template(&'c toml::Spanned<config::EmailTemplate>),
    Address(&'c toml::Spanned<String>),
}

/// Signs outgoing messages the way Standard Webhooks says, with the same code that verifies incoming ones.
fn signer(text: &str) -> std::result::Result<Verifier, String> {
    let catalog = Catalog::open(None).map_err(|e| e.to_string())?;
    let recipe = catalog
        .recipe("standard_webhooks")
        .ok_or("the file of Standard Webhooks is missing")?
        .map_err(|e| e.to_string())?;
    let (secret, _) = Secret::pasted("deliver", text);
    Verifier::new(&recipe.signature, &[secret], &SignatureOptions::default()).map_err(|e| e.to_string())
}
