//! Metrics: what the server counts and measures, and how it is written for Prometheus (OpenMetrics text).
//!
//! Counting costs a few atomic additions and never a lock or an allocation: it happens while a provider waits. Figures
//! that the tables know (what is due, dead, late) are asked of them when somebody looks, not counted beside them.

use crate::clock;
use crate::engine::Shared;
use crate::engine::latency::{self, Latency};
use crate::error::{Error, Result};
use crate::event::Millis;
use crate::providers::signature::Reason;
use crate::store::raw::State;
use crate::store::{backup, health as tables};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric as _, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::{Registry, Unit};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// What became of one HTTP request on a source's path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// On the disk, answered 200.
    Stored,
    /// A challenge that was answered; nothing was stored.
    Handshake,
    /// The signature did not hold.
    Refused,
    /// Larger than the source takes.
    TooLarge,
    /// An encoding that is not read here, or broken gzip.
    Unreadable,
    /// It could not be stored now: 503.
    Unavailable,
    /// Its address is not allowed, or it is no POST.
    NotAllowed,
    /// The source's rate limit.
    Limited,
}

impl Outcome {
    /// All of them.
    pub const ALL: [Outcome; 8] = [
        Outcome::Stored,
        Outcome::Handshake,
        Outcome::Refused,
        Outcome::TooLarge,
        Outcome::Unreadable,
        Outcome::Unavailable,
        Outcome::NotAllowed,
        Outcome::Limited,
    ];

    /// Its label.
    pub fn as_str(self) -> &'static str {
        match self {
            Outcome::Stored => "stored",
            Outcome::Handshake => "handshake",
            Outcome::Refused => "refused",
            Outcome::TooLarge => "too_large",
            Outcome::Unreadable => "unreadable",
            Outcome::Unavailable => "unavailable",
            Outcome::NotAllowed => "not_allowed",
            Outcome::Limited => "limited",
        }
    }
}

const REASONS: [Reason; 14] = [
    Reason::MissingHeader,
    Reason::MalformedHeader,
    Reason::NoSecretMatches,
    Reason::TooOld,
    Reason::InTheFuture,
    Reason::SecretRetired,
    Reason::MalformedBody,
    Reason::CertificateUrl,
    Reason::CertificateUnavailable,
    Reason::CertificateUntrusted,
    Reason::UnknownKey,
    Reason::WrongAlgorithm,
    Reason::BodyHashDiffers,
    Reason::ClaimDiffers,
];

/// The counters of one source.
#[derive(Debug, Default)]
pub struct SourceCounters {
    outcomes: [AtomicU64; Outcome::ALL.len()],
    reasons: [AtomicU64; REASONS.len()],
    last_stored_at: AtomicI64,
}

impl SourceCounters {
    /// Counts a request.
    pub fn count(&self, outcome: Outcome) {
        self.outcomes[outcome as usize].fetch_add(1, Relaxed);
        if outcome == Outcome::Stored {
            self.last_stored_at.store(clock::wall(), Relaxed);
        }
    }

    /// Counts a refused signature with its reason.
    pub fn refused(&self, reason: Reason) {
        self.count(Outcome::Refused);
        if let Some(at) = REASONS.iter().position(|r| *r == reason) {
            self.reasons[at].fetch_add(1, Relaxed);
        }
    }

    /// Requests that ended so since the start.
    pub fn of(&self, outcome: Outcome) -> u64 {
        self.outcomes[outcome as usize].load(Relaxed)
    }

    /// Refusals by reason since the start, without those that are zero.
    pub fn reasons(&self) -> impl Iterator<Item = (Reason, u64)> {
        REASONS.into_iter().zip(&self.reasons).map(|(r, n)| (r, n.load(Relaxed))).filter(|(_, n)| *n > 0)
    }

    /// When the last event was stored, wall time; `None`: none since the start.
    pub fn last_stored_at(&self) -> Option<Millis> {
        Some(self.last_stored_at.load(Relaxed)).filter(|at| *at > 0)
    }
}

/// Upper bounds of the buckets, in microseconds: from a fast disk's fsync to "somebody gave up".
const BOUNDS_US: [u64; 16] = [
    500,
    1_000,
    2_500,
    5_000,
    10_000,
    25_000,
    50_000,
    100_000,
    250_000,
    500_000,
    1_000_000,
    2_500_000,
    5_000_000,
    15_000_000,
    60_000_000,
    600_000_000,
];

/// Durations in buckets; a record is two atomic additions.
#[derive(Debug, Default)]
pub struct Histogram {
    buckets: [AtomicU64; BOUNDS_US.len() + 1],
    sum_us: AtomicU64,
}

impl Histogram {
    /// Records one duration.
    pub fn record(&self, took: Duration) {
        let us = micros(took);
        let at = BOUNDS_US.iter().position(|bound| us <= *bound).unwrap_or(BOUNDS_US.len());
        self.buckets[at].fetch_add(1, Relaxed);
        self.sum_us.fetch_add(us, Relaxed);
    }

    /// How many were recorded.
    pub fn count(&self) -> u64 {
        self.buckets.iter().map(|b| b.load(Relaxed)).sum()
    }
}

/// Everything that is counted since the start, beside [`crate::engine::Counts`].
#[derive(Debug)]
pub struct Metrics {
    sources: BTreeMap<String, SourceCounters>,
    /// Requests for a source that is not in the configuration.
    pub unknown_source: AtomicU64,
    /// From the request's last byte to the 200: after the sync, or after the effect where the source answers so.
    pub acknowledge: Latency,
    /// From stored to applied.
    pub apply: Histogram,
    /// One attempt to deliver a message.
    pub deliver: Histogram,
    /// Events that were claimed and never finished, taken up again.
    pub rescued: AtomicU64,
    /// When the server started, wall time.
    pub started_at: Millis,
}

impl Metrics {
    /// With counters for these sources.
    pub fn new(sources: impl Iterator<Item = String>) -> Metrics {
        Metrics {
            sources: sources.map(|name| (name, SourceCounters::default())).collect(),
            unknown_source: AtomicU64::new(0),
            acknowledge: Latency::default(),
            apply: Histogram::default(),
            deliver: Histogram::default(),
            rescued: AtomicU64::new(0),
            started_at: clock::wall(),
        }
    }

    /// The counters of a source of the configuration.
    pub fn source(&self, name: &str) -> Option<&SourceCounters> {
        self.sources.get(name)
    }

    /// All sources with their counters, by name.
    pub fn sources(&self) -> impl Iterator<Item = (&str, &SourceCounters)> {
        self.sources.iter().map(|(name, counters)| (name.as_str(), counters))
    }

    /// Counts a request of a source.
    pub fn count(&self, source: &str, outcome: Outcome) {
        if let Some(counters) = self.source(source) {
            counters.count(outcome);
        }
    }

    /// Counts a refused signature.
    pub fn refused(&self, source: &str, reason: Reason) {
        if let Some(counters) = self.source(source) {
            counters.refused(reason);
        }
    }

    /// Notes that an event which came at `received_at` has taken effect.
    pub fn applied(&self, received_at: Millis) {
        self.apply.record(Duration::from_millis(u64::try_from(clock::wall() - received_at).unwrap_or(0)));
    }
}

/// What the machine and the tables say now. Sizes in bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Now {
    /// What waits, is late, or needs a person.
    pub tables: tables::Backlog,
    /// The database file.
    pub database_bytes: u64,
    /// Its log.
    pub wal_bytes: u64,
    /// Free on its disk, for us.
    pub disk_free_bytes: u64,
    /// Bodies before the disk.
    pub queued: usize,
    /// How long the last checkpoint took.
    pub checkpoint_us: u64,
    /// When the last backup was made, wall time.
    pub last_backup_at: Option<Millis>,
    /// What is wrong with the storage.
    pub trouble: Option<String>,
}

/// Asks the tables and the machine.
pub fn now(shared: &Shared) -> Result<Now> {
    let path = shared.store.path();
    let (tables, last_backup_at) = shared
        .store
        .read(|conn| Ok((tables::backlog(conn, clock::steady(), clock::wall())?, backup::last_backup_at(conn)?)))?;
    let size = |path: &std::path::Path| std::fs::metadata(path).map_or(0, |m| m.len());
    let figures = shared.store.gate().figures();
    Ok(Now {
        tables,
        database_bytes: size(path),
        wal_bytes: size(&crate::store::beside(path, "-wal")),
        disk_free_bytes: backup::free_bytes(path).unwrap_or(0),
        queued: shared.store.gate().queued(),
        checkpoint_us: figures.checkpoint_us.load(Relaxed),
        last_backup_at,
        trouble: figures.trouble.lock().expect("no panic while it is held").clone(),
    })
}

/// The media type of [`render`].
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// The media type of [`plain`].
pub const PLAIN: &str = "text/plain; version=0.0.4; charset=utf-8";

/// The same in Prometheus's older text format, for scrapers that do not ask for OpenMetrics: counters are announced under
/// the names of their samples, and what that format does not know is left out.
pub fn plain(open_metrics: &str) -> String {
    let mut text = String::with_capacity(open_metrics.len());
    let mut lines = open_metrics.lines().peekable();
    while let Some(line) = lines.next() {
        let mut announced = line.strip_prefix("# HELP ").and_then(|rest| rest.split_once(' '));
        if let Some((name, help)) = announced.take() {
            let total = lines.peek().is_some_and(|next| *next == format!("# TYPE {name} counter"));
            let name = if total { format!("{name}_total") } else { name.to_owned() };
            text.push_str(&format!("# HELP {name} {help}\n"));
        } else if let Some(name) = line.strip_prefix("# TYPE ").and_then(|rest| rest.strip_suffix(" counter")) {
            text.push_str(&format!("# TYPE {name}_total counter\n"));
        } else if !line.starts_with("# UNIT ") && line != "# EOF" {
            text.push_str(line);
            text.push('\n');
        }
    }
    text
}

/// `/metrics`: everything as OpenMetrics text.
pub fn render(shared: &Shared) -> Result<String> {
    let lock_wait_us = shared.store.gate().figures().lock_wait_us.load(Relaxed);
    let page = Page { now: now(shared)?, lines: lines(shared), lock_wait_us, histograms: histograms(shared) };
    let mut registry = Registry::with_prefix("postonce");
    registry.register_collector(Box::new(page));
    let mut text = String::with_capacity(8 << 10);
    prometheus_client::encoding::text::encode(&mut text, &registry)
        .map_err(|e| Error::Unavailable(format!("the metrics could not be written: {e}")))?;
    Ok(text)
}

/// One counter family: name, help, unit and its values by labels.
type Family = (&'static str, &'static str, Option<Unit>, Vec<(Vec<(&'static str, String)>, u64)>);
/// One histogram: name, help, sum in microseconds, and its buckets by their ends in microseconds.
type Buckets = (&'static str, &'static str, u64, Vec<(u64, u64)>);

struct Page {
    now: Now,
    lines: Vec<Family>,
    lock_wait_us: u64,
    histograms: Vec<Buckets>,
}

impl fmt::Debug for Page {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Page")
    }
}

fn lines(shared: &Shared) -> Vec<Family> {
    let (metrics, counts, figures) = (&shared.metrics, &shared.counts, shared.store.gate().figures());
    let one = |value: u64| vec![(Vec::new(), value)];
    let mut requests = Vec::new();
    let mut refusals = Vec::new();
    for (name, counters) in metrics.sources() {
        for outcome in Outcome::ALL {
            let labels = vec![("source", name.to_owned()), ("outcome", outcome.as_str().to_owned())];
            requests.push((labels, counters.of(outcome)));
        }
        for (reason, count) in counters.reasons() {
            refusals.push((vec![("source", name.to_owned()), ("reason", reason.as_str().to_owned())], count));
        }
    }
    let ended = State::ALL
        .into_iter()
        .zip(&counts.ended)
        .filter(|(state, _)| !state.is_waiting())
        .map(|(state, count)| (vec![("state", state.as_str().to_lowercase())], count.load(Relaxed)))
        .collect();
    let of = |state: State| {
        let at = State::ALL.iter().position(|s| *s == state).unwrap_or(0);
        one(counts.ended[at].load(Relaxed))
    };
    vec![
        ("requests", "Requests of providers by source and outcome", None, requests),
        ("unknown_source_requests", "Requests for a source that is not configured", None, {
            one(metrics.unknown_source.load(Relaxed))
        }),
        ("refused_signatures", "Refused signatures by source and reason", None, refusals),
        ("events", "Raw events by the state they ended in", None, ended),
        ("duplicates", "Events whose money was there already", None, of(State::Duplicate)),
        ("conflicts", "Events that contradict what is posted", None, of(State::Conflict)),
        ("dead_letters", "Events given up", None, of(State::Dead)),
        ("failed_applies", "Failed attempts to apply", None, one(counts.failed_attempts.load(Relaxed))),
        ("sweep_rescues", "Events taken up again after a crash or a lost worker", None, {
            one(metrics.rescued.load(Relaxed))
        }),
        ("messages_sent", "Messages accepted by their endpoint", None, one(counts.sent.load(Relaxed))),
        ("send_failures", "Attempts to deliver that failed", None, one(counts.send_failures.load(Relaxed))),
        ("commits", "Commits of the writer", None, one(figures.commits.load(Relaxed))),
        ("lock_timeouts", "Times that another process held the write lock for too long", None, {
            one(figures.lock_timeouts.load(Relaxed))
        }),
    ]
}

fn histograms(shared: &Shared) -> Vec<Buckets> {
    let of = |name, help, histogram: &Histogram| {
        let ends = BOUNDS_US.into_iter().chain([u64::MAX]);
        let counts = ends.zip(&histogram.buckets).map(|(end, count)| (end, count.load(Relaxed))).collect();
        (name, help, histogram.sum_us.load(Relaxed), counts)
    };
    let acknowledge = &shared.metrics.acknowledge;
    let micros = |at| if at + 1 < latency::BUCKETS { micros(latency::end_of(at)) } else { u64::MAX };
    let counts = acknowledge.reading().into_iter().enumerate().map(|(at, count)| (micros(at), count)).collect();
    vec![
        ("acknowledge", "From the last byte of a delivery to its 200", acknowledge.sum_us(), counts),
        of("apply", "From stored to applied", &shared.metrics.apply),
        of("deliver", "One attempt to deliver a message", &shared.metrics.deliver),
    ]
}

impl Collector for Page {
    fn encode(&self, mut to: DescriptorEncoder) -> fmt::Result {
        for (name, help, unit, values) in &self.lines {
            let mut family = to.encode_descriptor(name, help, unit.as_ref(), MetricType::Counter)?;
            for (labels, value) in values {
                let labels: Vec<(&str, &str)> = labels.iter().map(|(n, v)| (*n, v.as_str())).collect();
                ConstCounter::new(*value).encode(family.encode_family(&labels)?)?;
            }
        }
        let now = &self.now;
        let tables = &now.tables;
        let figures: [(&str, &str, Option<Unit>, i64); 14] = [
            ("events_waiting", "Raw events not applied yet", None, tables.waiting),
            ("oldest_unapplied", "Age of the oldest event not applied", Some(Unit::Seconds), tables.oldest_unapplied_s),
            ("messages_waiting", "Messages not accepted yet", None, tables.messages_waiting),
            ("outbox_lag", "How late the most overdue message is", Some(Unit::Seconds), tables.outbox_lag_s),
            ("messages_dead", "Messages given up", None, tables.messages_dead),
            ("dead", "Dead letters that wait for a person", None, tables.dead),
            ("parked", "Events that wait for a person or a movement", None, tables.parked),
            ("conflict", "Conflicts that wait for a person", None, tables.conflict),
            ("alerts_open", "Alerts that last", None, tables.alerts_open),
            ("discrepancies_open", "Settlement discrepancies for a person", None, tables.discrepancies_open),
            ("database", "Size of the file", Some(Unit::Bytes), signed(now.database_bytes)),
            ("wal", "Size of its log", Some(Unit::Bytes), signed(now.wal_bytes)),
            ("disk_free", "Free space on its disk", Some(Unit::Bytes), signed(now.disk_free_bytes)),
            ("queued", "Bodies that wait for the disk", None, now.queued as i64),
        ];
        for (name, help, unit, value) in &figures {
            let gauge = to.encode_descriptor(name, help, unit.as_ref(), MetricType::Gauge)?;
            ConstGauge::new(*value).encode(gauge)?;
        }
        let waited = "Time that writes waited for another process's lock";
        let counter = to.encode_descriptor("lock_wait", waited, Some(&Unit::Seconds), MetricType::Counter)?;
        ConstCounter::new(seconds(self.lock_wait_us)).encode(counter)?;
        let checkpoint = "How long the last checkpoint took";
        let gauge = to.encode_descriptor("checkpoint", checkpoint, Some(&Unit::Seconds), MetricType::Gauge)?;
        ConstGauge::new(seconds(now.checkpoint_us)).encode(gauge)?;
        if let Some(at) = now.last_backup_at {
            let help = "When the last backup was made";
            let gauge = to.encode_descriptor("last_backup_timestamp", help, Some(&Unit::Seconds), MetricType::Gauge)?;
            ConstGauge::new(at.div_euclid(1000)).encode(gauge)?;
        }
        for (name, help, sum_us, counts) in &self.histograms {
            let bound = |us: u64| if us == u64::MAX { f64::INFINITY } else { seconds(us) };
            let buckets: Vec<(f64, u64)> = counts.iter().map(|(end, count)| (bound(*end), *count)).collect();
            let mut to = to.encode_descriptor(name, help, Some(&Unit::Seconds), MetricType::Histogram)?;
            let count = counts.iter().map(|(_, count)| count).sum();
            to.encode_histogram::<NoLabelSet>(seconds(*sum_us), count, &buckets, None)?;
        }
        Ok(())
    }
}

/// Seconds as Prometheus wants them; times only, never money.
fn seconds(us: u64) -> f64 {
    us as f64 / 1e6
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

fn signed(bytes: u64) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reason_of_refusal_has_its_own_counter() {
        let counters = SourceCounters::default();
        for reason in REASONS {
            counters.refused(reason);
        }
        assert_eq!(counters.reasons().count(), REASONS.len());
        assert_eq!(counters.of(Outcome::Refused), REASONS.len() as u64);
        assert_eq!(counters.last_stored_at(), None);
        counters.count(Outcome::Stored);
        assert!(counters.last_stored_at().is_some());
    }

    #[test]
    fn outcomes_stand_at_their_own_place() {
        for (at, outcome) in Outcome::ALL.into_iter().enumerate() {
            assert_eq!(at, outcome as usize, "{outcome:?}");
        }
    }
}
