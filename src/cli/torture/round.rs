//! One round: the day is sent in a random order with duplicates while the server is killed, and then the file is judged.
//!
//! The senders do what providers do: they send again until they get a 2xx, and believe nothing else.

use super::child::{PUBLIC_URL, Server, configure, database};
use super::day::{Content, Day, content};
use super::receiver::Receiver;
use crate::error::{Error, Result};
use crate::steps::deliver;
use crate::store::{check, listing, open_for_reading, outbox, raw};
use indicatif::ProgressBar;
use rand::RngExt as _;
use rand::rngs::StdRng;
use rand::seq::SliceRandom as _;
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Requests under way at once.
const SENDERS: usize = 8;
/// A request that is not accepted for so long, or a server that gets nowhere, is a fault.
const PATIENCE: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(3);

pub(super) struct Round<'a> {
    pub day: &'a Day,
    pub folder: PathBuf,
    pub kills: u32,
    /// In the order of the day, once each.
    pub calm: bool,
    pub receiver: &'a Receiver,
    pub bar: &'a ProgressBar,
}

/// What a round came to.
#[derive(Default)]
pub(super) struct Report {
    pub deliveries: usize,
    pub duplicates: usize,
    pub kills: u32,
    pub ledger: Content,
    pub receipts: usize,
    pub sent_again: u32,
    pub lost: usize,
    pub doubled: usize,
    /// Everything that is not as it must be, for people.
    pub faults: Vec<String>,
}

/// What the senders share.
struct Traffic<'a> {
    day: &'a Day,
    order: Vec<usize>,
    next: AtomicUsize,
    accepted: AtomicUsize,
    address: Mutex<SocketAddr>,
    failed: Mutex<Option<Error>>,
    give_up: AtomicBool,
}

impl Round<'_> {
    pub fn run(&self, rng: &mut StdRng) -> Result<Report> {
        let Round { day, folder, receiver, .. } = self;
        if database(folder).exists() {
            return Err(Error::refused(
                format!("{} holds a round already", folder.display()),
                "name an empty folder with --dir",
            ));
        }
        configure(folder, day, &receiver.url())?;
        receiver.collect();
        let order = if self.calm { (0..day.events.len()).collect() } else { shuffled(day.events.len(), rng) };
        let mut report = Report { kills: self.kills, ..Report::default() };
        let mut server = Server::start(folder, day)?;
        server = self.send(server, order, self.kills, &mut report, rng)?;
        if !self.calm {
            // Much later, a tenth of it once more: keys never expire.
            let late = (0..day.events.len()).filter(|_| rng.random_bool(0.1)).collect();
            server = self.send(server, late, 0, &mut report, rng)?;
        }
        report.duplicates = report.deliveries.saturating_sub(day.events.len());
        report.faults.extend(server.stop()?);
        self.judge(&mut report)?;
        Ok(report)
    }

    /// Sends events in this order, kills the server at random points, and waits until everything is done.
    fn send(
        &self,
        server: Server,
        order: Vec<usize>,
        kills: u32,
        report: &mut Report,
        rng: &mut StdRng,
    ) -> Result<Server> {
        self.bar.set_position(0);
        self.bar.set_length(order.len() as u64);
        report.deliveries += order.len();
        // Some of the kills come after the last answer, into the backlog.
        let mut points: Vec<usize> = (0..kills).map(|_| order.len() * rng.random_range(0..115) / 100).collect();
        points.sort_unstable();
        let traffic = Traffic {
            day: self.day,
            order,
            next: AtomicUsize::new(0),
            accepted: AtomicUsize::new(0),
            address: Mutex::new(server.address),
            failed: Mutex::new(None),
            give_up: AtomicBool::new(false),
        };
        std::thread::scope(|scope| {
            for _ in 0..SENDERS {
                scope.spawn(|| traffic.work());
            }
            let outcome = self.torment(server, &points, &traffic, rng);
            traffic.give_up.store(outcome.is_err(), Relaxed);
            outcome
        })
        .and_then(|server| match traffic.failed.lock().expect("no panic while it is held").take() {
            None => Ok(server),
            Some(error) => Err(error),
        })
    }

    fn torment(&self, mut server: Server, points: &[usize], traffic: &Traffic, rng: &mut StdRng) -> Result<Server> {
        for point in points {
            traffic.reach(*point, &mut server, self.bar)?;
            std::thread::sleep(Duration::from_micros(rng.random_range(0..30_000)));
            server.kill()?;
            server = Server::start(&self.folder, self.day)?;
            *traffic.address.lock().expect("no panic while it is held") = server.address;
        }
        traffic.reach(traffic.order.len(), &mut server, self.bar)?;
        self.at_rest(&mut server)?;
        Ok(server)
    }

    /// Waits until nothing is due or under way. Progress of any kind renews the patience.
    fn at_rest(&self, server: &mut Server) -> Result<()> {
        let conn = open_for_reading(&database(&self.folder))?;
        let (mut since, mut before) = (Instant::now(), None);
        loop {
            let (events, messages) = (raw::waiting(&conn)?, outbox::waiting(&conn)?);
            if (events, messages) == (0, 0) {
                return Ok(());
            }
            if before.replace((events, messages)) != Some((events, messages)) {
                since = Instant::now();
            }
            if since.elapsed() > PATIENCE {
                return Err(Error::refused(
                    format!("{events} events and {messages} messages wait and nothing moves"),
                    format!("look at {} with `postonce events`", database(&self.folder).display()),
                ));
            }
            server.alive()?;
            std::thread::sleep(POLL);
        }
    }

    fn judge(&self, report: &mut Report) -> Result<()> {
        let path = database(&self.folder);
        if path.with_extension("db-wal").exists() {
            report.faults.push("the stop left a WAL beside the file".into());
        }
        let conn = open_for_reading(&path)?;
        for offence in check::run(&conn)? {
            report.faults.push(format!("check: {}: {}", offence.truth, offence.what));
        }
        let (ledger, entries) = content(&conn)?;
        if let Some(expected) = &self.day.expected {
            for (line, count) in expected {
                let there = ledger.get(line).copied().unwrap_or(0);
                if there < *count {
                    report.lost += 1;
                    report.faults.push(format!("lost: {line} is in the ledger {there} times, not {count}"));
                }
            }
            for (line, count) in &ledger {
                let due = expected.get(line).copied().unwrap_or(0);
                if *count > due {
                    report.doubled += 1;
                    report.faults.push(format!("doubled: {line} is in the ledger {count} times, not {due}"));
                }
            }
        }
        let got = self.receiver.collect();
        // A fee that was told later is no message of its own.
        let owed: BTreeSet<String> =
            entries.iter().filter(|e| e.kind != "fee" || e.parent.is_none()).map(deliver::key_of).collect();
        for key in owed.iter().filter(|key| !got.keys.contains_key(*key)) {
            report.lost += 1;
            report.faults.push(format!("lost: no message {key} was delivered"));
        }
        for key in got.keys.keys().filter(|key| !owed.contains(*key)) {
            report.doubled += 1;
            report.faults.push(format!("doubled: a message {key} was delivered and no entry is behind it"));
        }
        if got.forged > 0 {
            report.faults.push(format!("{} messages had a bad signature", got.forged));
        }
        let dead = listing::dead_ids(&conn)?.len();
        if dead > 0 {
            report.faults.push(format!("{dead} events are dead"));
        }
        report.receipts = got.keys.len();
        report.sent_again = got.keys.values().map(|count| count - 1).sum();
        report.ledger = ledger;
        Ok(())
    }
}

impl Report {
    /// A line for people.
    pub fn line(&self, name: &str) {
        println!(
            "{name}: {} deliveries ({} duplicates), {} kills, {} entries, {} receipts ({} sent again), lost = {}, doubled = {}",
            self.deliveries,
            self.duplicates,
            self.kills,
            self.ledger.values().sum::<u32>(),
            self.receipts,
            self.sent_again,
            self.lost,
            self.doubled
        );
    }
}

impl Report {
    /// Adds the counts and faults of another.
    pub fn add(&mut self, other: Report) {
        self.kills += other.kills;
        self.duplicates += other.duplicates;
        self.lost += other.lost;
        self.doubled += other.doubled;
        self.faults.extend(other.faults);
    }
}

/// Every event once or a few times, in a random order; some of them twice in the same instant.
fn shuffled(events: usize, rng: &mut StdRng) -> Vec<usize> {
    let mut order = Vec::with_capacity(events * 2);
    for event in 0..events {
        let times = match rng.random_range(0..20) {
            0..11 => 1,
            11..16 => 2,
            16..19 => 3,
            _ => 4,
        };
        order.extend(std::iter::repeat_n(event, times));
    }
    order.shuffle(rng);
    let twins = |event: usize, rng: &mut StdRng| std::iter::repeat_n(event, 1 + usize::from(rng.random_bool(0.1)));
    order.into_iter().flat_map(|event| twins(event, rng).collect::<Vec<_>>()).collect()
}

impl Traffic<'_> {
    /// A sender: takes the next event and sends it until it is accepted.
    fn work(&self) {
        let agent = deliver::agent();
        while let Some(at) = self.order.get(self.next.fetch_add(1, Relaxed)) {
            match self.deliver(&agent, *at) {
                Ok(()) => self.accepted.fetch_add(1, Relaxed),
                Err(error) => {
                    *self.failed.lock().expect("no panic while it is held") = Some(error);
                    self.give_up.store(true, Relaxed);
                    return;
                }
            };
        }
    }

    fn deliver(&self, agent: &ureq::Agent, at: usize) -> Result<()> {
        let event = &self.day.events[at];
        let source = &self.day.sources[event.source];
        let query = if event.query.is_empty() { String::new() } else { format!("?{}", event.query) };
        let target = format!("/webhooks/{}{query}", source.name);
        let began = Instant::now();
        loop {
            let signed = source
                .sign(event, &format!("{PUBLIC_URL}{target}"))
                .map_err(|what| Error::refused(what, "leave its source out"))?;
            let address = *self.address.lock().expect("no panic while it is held");
            let mut request = agent.post(format!("http://{address}{target}"));
            for (name, value) in event.headers.iter().chain(&signed) {
                request = request.header(name, value);
            }
            let answer = request.send(&event.body[..]);
            let said = match answer {
                Ok(response) if response.status().is_success() => return Ok(()),
                Ok(response) if response.status().is_client_error() && response.status() != 429 => {
                    let mut response = response;
                    let text = response.body_mut().read_to_string().unwrap_or_default();
                    return Err(Error::refused(
                        format!("event {at} of source {} was refused: {} {text}", source.name, response.status()),
                        "this is a fault of the torture or of the server: neither should happen",
                    ));
                }
                Ok(response) => response.status().to_string(),
                Err(e) => e.to_string(),
            };
            if began.elapsed() > PATIENCE || self.give_up.load(Relaxed) {
                return Err(Error::refused(
                    format!("event {at} was not accepted for {:?}: {said}", began.elapsed()),
                    "look at the log of the server",
                ));
            }
            std::thread::sleep(POLL);
        }
    }

    /// Waits until so many deliveries are accepted, all of them at the most.
    fn reach(&self, point: usize, server: &mut Server, bar: &ProgressBar) -> Result<()> {
        loop {
            let accepted = self.accepted.load(Relaxed);
            bar.set_position(accepted as u64);
            if accepted >= point.min(self.order.len()) {
                return Ok(());
            }
            if self.give_up.load(Relaxed) {
                let error = self.failed.lock().expect("no panic while it is held").take();
                return Err(error.unwrap_or_else(|| Error::Unavailable("the senders gave up".into())));
            }
            server.alive()?;
            std::thread::sleep(POLL);
        }
    }
}
