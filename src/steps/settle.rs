//! Settle: one comparison of the provider's own report with our ledger, from asking for it to what follows.
//!
//! In order: gather the report, wait for what is received, keep its lines, compare, judge, store every score, note
//! what a person should see, and only then hand over what is missing. A report that is not what it should be changes
//! nothing. The write lock is never held longer than for a few hundred rows; nothing is asked of a provider inside.

pub use super::gather::keep;
use super::gather::{Gathered, Go, Keeping, Stop, begin_keeping, gather, spec_of, whole};
use super::repair;
use super::scores::Scores;
use crate::error::{Error, Result};
use crate::event::{Millis, Mode};
use crate::pull::Pace;
use crate::settlement::plan::Spec;
use crate::settlement::window;
use crate::source::Source;
use crate::store::settlement::discrepancies;
use crate::store::settlement::feed::{self, Entries, Feed, Scope, Wanted};
use crate::store::settlement::packed::Line;
use crate::store::settlement::reports;
use crate::store::settlement::runs::{self, Completed, NewRun};
use crate::store::settlement::{self as tables};
use crate::store::{Access, Book, Lock, begin_long_read, open_for_reading};
use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The control total is summed for reports of up to so many lines.
const CONTROL_MOST: i64 = 100_000;

/// What to compare, and how patiently.
pub struct Ask<'a> {
    /// `[start, end)` and its last day; `None`: yesterday, or the days that the file holds.
    pub window: Option<(Millis, Millis, String)>,
    /// Look again at days that had their run, and at everything that is open.
    pub again: bool,
    /// The report as a file, and its name where it is not told by its header; otherwise it is pulled.
    pub file: Option<&'a Path>,
    /// The name of the report.
    pub report: Option<&'a str>,
    /// A report that is kept already, instead of asking for one.
    pub kept: Option<i64>,
    /// The wall clock.
    pub now: Millis,
    /// How long to wait for what is received, and for what is handed over.
    pub wait: Duration,
    /// How often and how fast the provider is asked.
    pub pace: Pace,
    /// There is something to read and apply.
    pub wake: &'a dyn Fn(),
    /// Told the phase and how many rows it has done.
    pub progress: &'a dyn Fn(&'static str, u64),
}

impl Ask<'_> {
    /// `[start, end)`, where it is asked for.
    pub(super) fn span(&self) -> Option<(Millis, Millis)> {
        self.window.as_ref().map(|(from, to, _)| (*from, *to))
    }
}

/// What a run came to.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Settled {
    /// The run.
    pub run: i64,
    /// `COMPLETED`, `DEFERRED`, `INVALID`.
    pub state: &'static str,
    /// Why it did not complete.
    pub reason: Option<String>,
    /// The window's last day.
    pub day: String,
    /// Lines of the report.
    pub lines: i64,
    /// Entries scored.
    pub ours: i64,
    /// Items by bucket.
    pub buckets: BTreeMap<&'static str, i64>,
    /// Missing here before any repair.
    pub found: i64,
    /// Handed over to be posted because they were missing.
    pub repaired: i64,
    /// Handed over because no webhook announces them, or as late fees.
    pub posted: i64,
    /// Discrepancies that this run opened for a person.
    pub opened: i64,
    /// Discrepancies of this ledger that wait for a person.
    pub open: i64,
}

/// The book of a source's own account.
pub fn book_of(source: &Source) -> Book {
    Book {
        tenant: source.tenant.clone(),
        provider: source.recipe.keyed_as().to_owned(),
        provider_account: source.settlement.account.clone(),
        mode: source.mode.unwrap_or(Mode::Live),
    }
}

/// Compares once. Every end but a failure of our own is a row of the runs.
pub fn run(access: &Access, source: &Source, ask: &Ask) -> Result<Settled> {
    let _alone = Lock::take_for(access.path(), "-postonce-settle.lock")?;
    let (book_name, name) = (book_of(source), source.name.clone());
    let book = access.write(move |tx| {
        runs::end_abandoned(tx, &name)?;
        tx.book(&book_name)
    })?;
    let plan = &source.settlement;
    let early = early(access, source, ask, book);
    let gathered = gather(access, source, book, ask);
    let spec = match &gathered {
        Ok(gathered) => Ok(gathered.spec),
        Err(_) => spec_of(source, ask),
    };
    let (report_name, covers) = match &spec {
        Ok(spec) => (spec.name().to_owned(), covers_of(spec)),
        Err(_) => (ask.report.unwrap_or("unknown").to_owned(), vec!["*".to_owned()]),
    };
    let span = gathered.as_ref().ok().and_then(|g| g.span);
    let (from, to, day) = match (&ask.window, span.filter(|_| ask.file.is_some())) {
        (Some(window), _) => window.clone(),
        (None, Some((first, last))) => {
            let (first, last) = (window::day_of(first, &plan.zone), window::day_of(last, &plan.zone));
            let days = window::days(&first, &last, &plan.zone);
            days.map(|(from, to)| (from, to, last))
                .ok_or_else(|| Error::refused("the report's times are no days", "name the window: --window FROM..TO"))?
        }
        (None, None) => {
            let day = window::yesterday(ask.now, &plan.zone);
            let days = window::days(&day, &day, &plan.zone);
            days.map(|(from, to)| (from, to, day))
                .ok_or_else(|| Error::refused("the clock says no day", "set it (NTP)"))?
        }
    };
    let new = NewRun {
        book,
        source: source.name.clone(),
        report_name,
        day: day.clone(),
        again: ask.again,
        window: (from, to),
        covers,
    };
    let run = access.write(move |tx| runs::begin(tx, &new))?;
    let mut report = None;
    let outcome = gathered.and_then(|gathered| {
        let one = One { access, source, ask, book, run, window: (from, to), day: day.clone() };
        one.go(gathered, early, &mut report)
    });
    let (state, reason) = match outcome {
        Ok(settled) => return Ok(settled),
        Err(Stop::Deferred(reason)) => ("DEFERRED", reason),
        Err(Stop::Invalid(reason)) => ("INVALID", reason),
        Err(Stop::Failed(error)) => {
            let reason = error.to_string();
            access.write(move |tx| runs::end(tx, run, "FAILED", &reason, report))?;
            return Err(error);
        }
    };
    let text = reason.clone();
    access.write(move |tx| runs::end(tx, run, state, &text, report))?;
    log::warn!("settlement of {} for {day}: {state}: {reason}", source.name);
    Ok(Settled {
        run,
        state,
        reason: Some(reason),
        day,
        lines: 0,
        ours: 0,
        buckets: BTreeMap::new(),
        found: 0,
        repaired: 0,
        posted: 0,
        opened: 0,
        open: access.read(|conn| discrepancies::open_count(conn, book))?,
    })
}

/// The entries of a run, on their way.
type Reading = JoinHandle<Result<Read>>;

struct Read {
    entries: Entries,
    open_from: i64,
    journal_upto: i64,
}

/// Reads the entries that a report is compared with, on a thread and a connection of its own: half of a large run's
/// reading, beside that of the report.
fn reading(path: &Path, (book, window, open_too): (i64, (Millis, Millis), bool), spec: Spec) -> Reading {
    let (path, kinds) = (path.to_owned(), covers_of(&spec));
    std::thread::spawn(move || {
        let conn = open_for_reading(&path)?;
        begin_long_read(&conn)?;
        let (open_from, journal_upto) = (runs::open_from(&conn, book)?, feed::newest_entry(&conn)?);
        let covers = |kind: &str| kinds.iter().any(|k| k == "*" || k == kind);
        let wanted = Wanted { book, window, open_too, open_from, journal_upto, covers: &covers };
        Ok(Read { entries: feed::entries(&conn, &wanted, &path)?, open_from, journal_upto })
    })
}

/// The same before the report is read, where it is a file that is there already and nothing is on its way through.
fn early(access: &Access, source: &Source, ask: &Ask, book: i64) -> Option<Reading> {
    let (window, spec) = (ask.span().filter(|_| ask.file.is_some())?, spec_of(source, ask).ok()?);
    let drained = access.read(|conn| tables::undrained(conn, &source.name, window.1)).is_ok_and(|left| left == 0);
    drained.then(|| reading(access.path(), (book, window, ask.again), spec))
}

fn covers_of(spec: &Spec) -> Vec<String> {
    match spec.covers() {
        all if all.iter().any(|k| k == "*") => vec!["*".into()],
        some => some.to_vec(),
    }
}

/// One run under way.
pub(super) struct One<'a> {
    pub access: &'a Access<'a>,
    pub source: &'a Source,
    pub ask: &'a Ask<'a>,
    pub book: i64,
    pub run: i64,
    pub window: (Millis, Millis),
    pub day: String,
}

/// What a comparison gave.
struct Compared {
    report: reports::Report,
    scores: Scores,
    /// The line by the second entry that it names.
    also: HashMap<i64, i64>,
}

impl One<'_> {
    fn go(&self, gathered: Gathered, early: Option<Reading>, kept: &mut Option<i64>) -> Go<Settled> {
        let spec = gathered.spec;
        whole(&gathered)?;
        self.drain()?;
        let plan = &self.source.settlement;
        let (book, window, again) = (self.book, self.window, self.ask.again);
        let ours = early.unwrap_or_else(|| reading(self.access.path(), (book, window, again), spec));
        let keeping = begin_keeping(self.access, self.source, self.ask, book, window, gathered);
        let ours = ours.join().unwrap_or_else(|_| Err(Error::Apply("the thread that reads entries was lost".into())));
        let (Read { entries, open_from, journal_upto }, keeping) = (ours?, keeping?);
        (self.ask.progress)("sorted", entries.count);
        let expected = entries.expected as i64;
        let scope = Scope {
            of: Wanted { book, window, open_too: again, open_from, journal_upto, covers: &|kind| spec.expects(kind) },
            provider_only: &|kind| plan.provider_only(kind),
            not_ours: &|names| plan.not_ours(names),
            grace: &|kind| plan.grace(kind, spec.grace_h(kind)),
            now: self.ask.now,
            settled_only: spec.settled_only(),
        };
        let mut compared = self.compare(&scope, keeping, entries)?;
        let (scores, report) = (&mut compared.scores, &compared.report);
        *kept = Some(report.id);
        (self.ask.progress)("compared", report.rows as u64);
        let conn = open_for_reading(self.access.path())?;
        self.look_closer(&conn, &compared.also, scores)?;
        self.judge(&conn, scores, (report, expected), spec)?;
        drop(conn);
        let found = self.new_missing(scores)?;
        let (counts, ours) = (scores.counts(), scores.ours());
        if ours < expected {
            let why = format!("{expected} entries of the window are expected in the report, and {ours} have a score");
            return Err(Stop::Failed(Error::Apply(why)));
        }

        scores.store(self.access, self.ask, (self.book, self.run))?;
        // only the look at all that is open has seen what lies before the window
        let open_from = match again {
            true => self.access.read(|conn| feed::first_open(conn, book, open_from, journal_upto))?,
            false => open_from,
        };
        let done = Completed {
            report: report.id,
            journal_upto,
            open_from,
            lines: report.rows,
            ours,
            found,
            control_diff: "{}".into(),
        };
        let run = self.run;
        self.access.write(move |tx| runs::complete(tx, run, &done))?;

        let opened_differences = self.note(scores)?;
        let handed = repair::after(self.access, self.source, self.ask, (self.book, run, report.id), scores)?;
        let opened_missing = repair::follow_up(self.access, self.source, self.ask, self.book, &handed.raw_events)?;
        let (repaired, posted) = (handed.repaired, handed.posted);
        repair::close_over(self.access, self.source, self.book, scores)?;
        let opened_control = if report.rows <= CONTROL_MOST { self.control()? } else { 0 };
        log::info!(
            "settlement of {} for {}: {} lines, {ours} entries, found {found}",
            self.source.name,
            self.day,
            report.rows,
        );
        Ok(Settled {
            run,
            state: "COMPLETED",
            reason: None,
            day: self.day.clone(),
            lines: report.rows,
            ours,
            buckets: counts,
            found,
            repaired,
            posted,
            opened: opened_differences + handed.opened + opened_missing + opened_control,
            open: self.access.read(|conn| discrepancies::open_count(conn, self.book))?,
        })
    }

    /// The comparison, with the lines on their way into the file where they are new.
    fn compare(&self, scope: &Scope, keeping: Keeping, entries: Entries) -> Go<Compared> {
        let conn = open_for_reading(self.access.path())?;
        let feed = Feed::new(&conn, scope)?;
        let (mut also, mut done) = (HashMap::new(), 0);
        let mut seen = |id: i64, line: &Line| {
            if let Some(second) = line.also {
                also.insert(second, id);
            }
            done += 1;
            if done % 50_000 == 0 {
                (self.ask.progress)("compared", done);
            }
            feed.line(id, line, true)
        };
        let (report, scores) = match keeping {
            Keeping::Kept(report) => {
                let mut scores = Scores::new(report.first_line);
                let reading = open_for_reading(self.access.path())?;
                let mut lines = reports::all_statement(&reading)?;
                let lines = reports::all(&mut lines, &report, &mut seen)?;
                let emit = &mut |scored| {
                    scores.take(scored);
                    Ok(())
                };
                feed::score(&feed, lines, entries, (report.id, emit))?;
                (report, scores)
            }
            Keeping::New(mut keeper) => {
                let (mut scores, report) = (Scores::new(keeper.first), keeper.report);
                let lines = std::iter::from_fn(|| keeper.next(&mut seen).transpose());
                let emit = &mut |scored| {
                    scores.take(scored);
                    Ok(())
                };
                feed::score(&feed, lines, entries, (report, emit))?;
                (keeper.finish()?, scores)
            }
        };
        Ok(Compared { report, scores, also })
    }

    /// Nothing of the window may still be on its way through.
    fn drain(&self) -> Go<()> {
        let until = Instant::now() + self.ask.wait;
        loop {
            let left = self.access.read(|conn| tables::undrained(conn, &self.source.name, self.window.1))?;
            if left == 0 {
                return Ok(());
            }
            if Instant::now() >= until {
                let why =
                    format!("{left} events of the window are received and not applied yet; is the server running?");
                return Err(Stop::Deferred(why));
            }
            (self.ask.wake)();
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}
