//! The engine: the store, the sources and the threads that move events on. What the server, the commands and an
//! embedding app share.
//!
//! `worker` reads what is due, claims and applies it; `sender` delivers the outbox; `settler` runs the daily settlement.
//! All ask the tables what there is to do; a wake-up only says "look".

mod answers;
mod fetcher;
pub mod latency;
mod sender;
mod settler;
mod worker;

pub use answers::{Told, Waiter};
pub use settler::silence_of;

use crate::config::{Fault, Loaded, secret_from};
use crate::error::{Error, Result};
use crate::event::Millis;
use crate::fault;
use crate::providers::Catalog;
use crate::providers::signature::{Options as SignatureOptions, Secret, Verifier};
use crate::source::{self, Source};
use crate::steps::deliver::{self, Endpoint};
use crate::steps::sweep;
use crate::store::raw::State;
use crate::store::{Options, Store, foreign};
use answers::Answers;
use crossbeam_channel::{Receiver, Sender, bounded, unbounded};
use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
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
    /// From a complete request to its answer, on the webhook paths.
    pub acknowledged: latency::Latency,
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
        let (wake_sender, sender) = bounded(1);
        let (news, answers) = unbounded();
        let shared = Arc::new(Shared {
            store,
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
        self.answers.tell(raw_event, Told::Ended(state));
    }
}

/// Compiles the sources and endpoints of a configuration, or names everything that is wrong with it.
pub fn build(loaded: &Loaded) -> std::result::Result<(Vec<Source>, Vec<Endpoint>), Vec<Fault>> {
    let (sources, mut faults) = match source::build_all(loaded) {
        Ok(sources) => (sources, Vec::new()),
        Err(faults) => (Vec::new(), faults),
    };
    let agent = deliver::agent();
    let mut endpoints = Vec::new();
    for delivery in &loaded.config.deliveries {
        let name = delivery.name.get_ref();
        let signer = match &delivery.secret {
            None => Ok(None),
            Some(place) => secret_from(place.get_ref()).and_then(|text| signer(&text)).map(Some),
        };
        match signer {
            Ok(signer) => endpoints.push(Endpoint {
                name: name.clone(),
                url: delivery.url.get_ref().clone(),
                signer,
                agent: agent.clone(),
            }),
            Err(what) => faults.push(Fault {
                line: delivery.secret.as_ref().map_or(0, |place| loaded.line(place)),
                what: format!("deliver {name}: {what}"),
                hint: "secret = \"env:NAME\" with whsec_ and at least 24 bytes in base64".into(),
            }),
        }
    }
    if faults.is_empty() { Ok((sources, endpoints)) } else { Err(faults) }
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
