//! Settle: one comparison of the provider's own report with our ledger, from asking for it to what follows.
//!
//! In order: gather the report, wait for what is received, keep its lines, compare, judge, store every score, note
//! what a person should see, and only then hand over what is missing. A report that is not what it should be changes
//! nothing. The write lock is never held longer than for a few hundred rows; nothing is asked of a provider inside.

pub use super::gather::keep;
use super::gather::{Gathered, Go, Stop, gather, keep_lines, spec_of, whole};
use super::repair;
use crate::error::{Error, Result};
use crate::event::{Millis, Mode};
use crate::pull::Pace;
use crate::settlement::matching::{Bucket, Rule, Scored, Side};
use crate::settlement::plan::Spec;
use crate::settlement::window;
use crate::source::Source;
use crate::store::settlement::discrepancies::{self, NewDiscrepancy};
use crate::store::settlement::feed::{self, Scope};
use crate::store::settlement::reports;
use crate::store::settlement::runs::{self, Completed, NewItem, NewRun, NewSettled};
use crate::store::settlement::{self as tables};
use crate::store::{Access, Book, Lock, begin_long_read, open_for_reading};
use std::collections::{BTreeMap, HashSet};
use std::path::Path;
use std::time::{Duration, Instant};

/// Scores or settled rows in one piece of work.
const ROWS: usize = 1000;
/// Repairs are allowed for this many lines, or this share of them: more means a wrong window, key, mode or account.
const REPAIR_LEAST: i64 = 20;
const REPAIR_SHARE: i64 = 20; // a twentieth

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
        provider: source.recipe.provider.clone(),
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
        let mut one = One { access, source, ask, book, run, window: (from, to), day: day.clone() };
        one.go(gathered, &mut report)
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

fn covers_of(spec: &Spec) -> Vec<String> {
    match spec.covers() {
        all if all.iter().any(|k| k == "*") => vec!["*".into()],
        some => some.to_vec(),
    }
}

/// A score, as small as it can be held for a million lines.
#[derive(Clone, Copy)]
pub(super) struct Verdict {
    pub theirs: bool,
    pub item: i64,
    pub bucket: Bucket,
    pub partner: i64, // 0: none
    pub scored: bool,
    pub rule: Option<Rule>,
}

/// One run under way.
struct One<'a> {
    access: &'a Access<'a>,
    source: &'a Source,
    ask: &'a Ask<'a>,
    book: i64,
    run: i64,
    window: (Millis, Millis),
    day: String,
}

impl One<'_> {
    fn go(&mut self, gathered: Gathered, kept: &mut Option<i64>) -> Go<Settled> {
        let spec = gathered.spec;
        whole(&gathered)?;
        self.drain()?;
        let report = keep_lines(self.access, self.source, self.ask, self.book, self.window, gathered)?;
        *kept = Some(report.id);
        let (from, to) = self.window;
        let conn = open_for_reading(self.access.path())?;
        begin_long_read(&conn)?;
        let plan = &self.source.settlement;
        let scope = Scope {
            book: self.book,
            report: report.id,
            window: self.window,
            open_too: self.ask.again,
            open_from: runs::open_from(&conn, self.book)?,
            journal_upto: feed::newest_entry(&conn)?,
            covers: &|kind| spec.expects(kind),
            provider_only: &|kind| plan.provider_only(kind),
            not_ours: &|line| plan.not_ours(line),
            grace: &|kind| plan.grace(kind, spec.grace_h(kind)),
            now: self.ask.now,
            settled_only: spec.settled_only(),
        };
        let mut verdicts: Vec<Verdict> = Vec::with_capacity(report.rows as usize + 64);
        let seen = feed::score(&conn, &scope, &mut |scored| {
            if verdicts.len().is_multiple_of(50_000) {
                (self.ask.progress)("compared", verdicts.len() as u64);
            }
            verdicts.extend(verdict(scored));
            Ok(())
        })?;
        self.look_closer(&conn, &seen, &mut verdicts)?;
        let expected = feed::expected(&conn, &scope)?;
        let counts = self.judge(&conn, &verdicts, &report, expected, spec)?;
        let journal_upto = scope.journal_upto;
        drop(conn); // nothing may hold back the log while the scores are written
        let found = self.new_missing(&verdicts)?;

        self.store(&mut verdicts)?;
        let open_from = self
            .access
            .read(|conn| feed::first_open(conn, self.book, runs::open_from(conn, self.book)?, journal_upto))?;
        let ours = verdicts.iter().map(|v| i64::from(!v.theirs) + i64::from(v.theirs && v.scored)).sum();
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

        let opened_differences = self.note(&verdicts)?;
        let handed = repair::after(self.access, self.source, self.ask, (self.book, run, report.id), &verdicts, &seen)?;
        let opened_missing = repair::follow_up(self.access, self.source, self.ask, self.book, &handed.raw_events)?;
        let (repaired, posted) = (handed.repaired, handed.posted);
        self.close_over(&verdicts)?;
        let opened_control = if report.rows <= CONTROL_MOST { self.control()? } else { 0 };
        log::info!(
            "settlement of {} for {}: {} lines, {} entries, found {found}, {from}..{to}",
            self.source.name,
            self.day,
            report.rows,
            ours
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

    /// What the comparison alone cannot know: what is parked, two entries that one line names, totals that a later one
    /// took over.
    fn look_closer(&self, conn: &rusqlite::Connection, seen: &feed::Seen, verdicts: &mut [Verdict]) -> Go<()> {
        if verdicts.iter().any(|v| v.bucket == Bucket::MissingOurs) {
            let waiting = tables::waiting_bodies(conn, &self.source.name, 2000)?;
            for one in verdicts.iter_mut().filter(|v| v.bucket == Bucket::MissingOurs && !waiting.is_empty()) {
                if repair::parked_as(conn, one.item, &waiting)?.is_some() {
                    one.bucket = Bucket::ParkedOurs;
                }
            }
        }
        let lone = |v: &&mut Verdict| matches!(v.bucket, Bucket::InTransit | Bucket::MissingTheirs);
        for one in verdicts.iter_mut().filter(lone) {
            if let Some(line) = seen.also.get(&one.item) {
                (one.bucket, one.partner, one.rule) = (Bucket::DuplicateOurs, *line, Some(Rule::KindAlias));
                continue;
            }
            if let Some(line) = feed::later_total(conn, self.book, one.item)? {
                (one.bucket, one.partner, one.rule) = (Bucket::Matched, line, Some(Rule::LineRef));
            }
        }
        Ok(())
    }

    /// Is this the report that it should be? Counts the buckets on the way.
    fn judge(
        &self,
        conn: &rusqlite::Connection,
        verdicts: &[Verdict],
        report: &reports::Report,
        expected: i64,
        spec: Spec,
    ) -> Go<BTreeMap<&'static str, i64>> {
        let mut counts: BTreeMap<&'static str, i64> = BTreeMap::new();
        verdicts.iter().for_each(|v| *counts.entry(v.bucket.as_str()).or_insert(0) += 1);
        let count = |bucket: Bucket| counts.get(bucket.as_str()).copied().unwrap_or(0);
        let (missing, matched) = (count(Bucket::MissingOurs), count(Bucket::Matched));
        let differ = count(Bucket::AmountDiffers) + count(Bucket::FeeDiffers) + count(Bucket::CurrencyDiffers);
        let met = matched + differ + count(Bucket::NotComparable) + count(Bucket::DuplicateTheirs);
        let most = |of: i64| REPAIR_LEAST.max(of / REPAIR_SHARE);
        if report.rows == 0 && expected > 0 {
            let why = format!("the report is empty, and {expected} entries of ours are of that time");
            let late = self.ask.now - self.window.1 > 48 * 3_600_000;
            return Err(if late { Stop::Invalid(why) } else { Stop::Deferred(why) });
        }
        if missing > most(report.rows) {
            return Err(Stop::Invalid(format!(
                "{missing} of {} lines are not in our ledger, more than {}: is it the right account, mode, window and tenant? \
                 Nothing was changed. History is brought in by `postonce import`",
                report.rows,
                most(report.rows)
            )));
        }
        if met == 0 && missing >= 3 && expected >= 1 {
            return Err(Stop::Invalid(format!(
                "none of {} lines is in our ledger, and none of our {expected} entries is in the report: is it of another account or mode?",
                report.rows
            )));
        }
        let mut lone = 0;
        for one in verdicts.iter().filter(|v| v.bucket == Bucket::MissingTheirs) {
            let known = discrepancies::is_open(conn, self.book, "MISSING_THEIRS", one.item)?;
            lone += i64::from(!known);
        }
        let ours = verdicts.iter().map(|v| i64::from(!v.theirs) + i64::from(v.theirs && v.scored)).sum();
        if lone > most(ours) {
            return Err(Stop::Invalid(format!(
                "{lone} of {ours} entries are not in the report, more than {}: is it cut off, or of another account or window?",
                most(ours)
            )));
        }
        // a list that ends early: half of the day is not in it, though its report is said to be complete within days
        let young = self.window_entries(conn, verdicts, Bucket::InTransit)?;
        if expected >= 5 && young * 2 > expected && spec.grace_h("payment") <= 72 {
            let why = format!("the report holds only {} of our {expected} entries of that time", expected - young);
            return Err(Stop::Deferred(why));
        }
        let in_window = self.window_entries(conn, verdicts, Bucket::Matched)?;
        let scored: i64 = verdicts.iter().map(|v| i64::from(v.theirs && v.scored)).sum();
        log::debug!("{scored} pairs, {in_window} entries matched elsewhere");
        Ok(counts)
    }

    /// How many entries of the window, without a line in the report, are in this bucket.
    fn window_entries(&self, conn: &rusqlite::Connection, verdicts: &[Verdict], bucket: Bucket) -> Go<i64> {
        let mut count = 0;
        for one in verdicts.iter().filter(|v| !v.theirs && v.bucket == bucket) {
            let facts = feed::entry_facts(conn, self.book, one.item)?;
            count += i64::from(facts.is_some_and(|f| f.occurred_at >= self.window.0));
        }
        Ok(count)
    }

    /// Missing here, and not known to be.
    fn new_missing(&self, verdicts: &[Verdict]) -> Go<i64> {
        let missing: Vec<i64> = verdicts.iter().filter(|v| v.bucket == Bucket::MissingOurs).map(|v| v.item).collect();
        Ok(self.access.read(|conn| {
            let mut found = 0;
            for line in missing {
                if let Some(line) = reports::line(conn, line)? {
                    let name = repair::name_of(&line);
                    found +=
                        i64::from(!discrepancies::is_open_for(conn, self.book, "MISSING_OURS", &line.kind, &name)?);
                }
            }
            Ok(found)
        })?)
    }

    /// Every score, then what is settled for good: each in the order of its key, so that all of it appends.
    fn store(&self, verdicts: &mut [Verdict]) -> Go<()> {
        verdicts.sort_unstable_by_key(|v| (v.theirs, v.item)); // as the table sorts: O before T
        let run = self.run;
        let mut pour = self.access.pour();
        let mut done = 0;
        for chunk in verdicts.chunks(ROWS) {
            let items: Vec<NewItem> = chunk.iter().map(item).collect();
            pour.push(move |tx| runs::add_items(tx, run, &items))?;
            done += chunk.len() as u64;
            (self.ask.progress)("scored", done);
        }
        let met = |v: &&Verdict| matches!(v.bucket, Bucket::Matched | Bucket::FeeDiffers | Bucket::NotComparable);
        let mut pairs: Vec<NewSettled> = verdicts
            .iter()
            .filter(met)
            .map(|v| {
                let (line, entry) = if v.theirs { (v.item, v.partner) } else { (v.partner, v.item) };
                let odd = v.rule.filter(|r| matches!(r, Rule::Parent | Rule::Order)).map(rule_word);
                NewSettled { entry, line, rule: odd }
            })
            .filter(|pair| pair.line > 0)
            .collect();
        pairs.sort_unstable_by_key(|p| p.entry);
        let book = self.book;
        for chunk in pairs.chunks(ROWS) {
            let chunk = chunk.to_vec();
            pour.push(move |tx| runs::settle(tx, book, Some(run), &chunk))?;
        }
        pour.finish()?;
        Ok(())
    }

    /// Opens what a person should see. Gives how many are new.
    fn note(&self, verdicts: &[Verdict]) -> Go<i64> {
        let mut news = Vec::new();
        self.access.read(|conn| {
            let parked = verdicts.iter().any(|v| v.bucket == Bucket::ParkedOurs);
            let waiting = if parked { tables::waiting_bodies(conn, &self.source.name, 2000)? } else { Vec::new() };
            for one in verdicts {
                let (class, why) = match one.bucket {
                    Bucket::MissingTheirs => {
                        ("MISSING_THEIRS", "in our ledger, and in no report of the provider within its grace")
                    }
                    Bucket::AmountDiffers => ("AMOUNT_DIFFERS", "the provider's report names another amount"),
                    Bucket::CurrencyDiffers => ("CURRENCY_DIFFERS", "the provider's report names another currency"),
                    Bucket::FeeDiffers => ("FEE_DIFFERS", "the provider's report names another fee"),
                    Bucket::DuplicateTheirs => {
                        ("DUPLICATE_THEIRS", "a second line of the provider for one entry of ours")
                    }
                    Bucket::DuplicateOurs => ("DUPLICATE_OURS", "a second entry of ours for one line of the provider"),
                    Bucket::ParkedOurs => ("PARKED_OURS", "in the report; ours waits for a person"),
                    _ => continue,
                };
                let (line, entry) = if one.theirs { (one.item, one.partner) } else { (one.partner, one.item) };
                let line = if line > 0 { reports::line(conn, line)? } else { None };
                let entry_id = entry;
                let entry = if entry > 0 { feed::entry_facts(conn, self.book, entry)? } else { None };
                let (fee_ours, fee_theirs) = match (one.bucket, &line, &entry) {
                    (Bucket::FeeDiffers, Some(line), Some(entry)) => {
                        (feed::fee_of(conn, self.book, &entry.kind, &entry.reference)?.map(|m| m.minor), Some(line.fee))
                    }
                    _ => (None, None),
                };
                let theirs =
                    line.as_ref().map(|l| l.shown.map_or(if l.gross == 0 { l.net } else { l.gross }, |m| m.minor));
                let (kind, reference) = match (&entry, &line) {
                    (_, Some(line)) if one.bucket == Bucket::DuplicateTheirs => {
                        (line.kind.clone(), line.line_ref.clone())
                    }
                    (Some(entry), _) => (entry.kind.clone(), entry.reference.clone()),
                    (None, Some(line)) => (line.kind.clone(), repair::name_of(line)),
                    (None, None) => continue,
                };
                let currency = match (&entry, &line) {
                    (Some(entry), _) => entry.currency.clone(),
                    (None, Some(line)) => line.shown.as_ref().map_or(line.currency, |m| m.currency).code().to_owned(),
                    (None, None) => continue,
                };
                let raw_event = match (one.bucket, &line) {
                    (Bucket::ParkedOurs, Some(line)) => repair::parked_as(conn, line.id, &waiting)?,
                    _ => None,
                };
                news.push(NewDiscrepancy {
                    book: self.book,
                    class,
                    kind,
                    reference,
                    currency: Some(currency),
                    our_amount: fee_ours.or(entry.as_ref().map(|e| e.amount)),
                    their_amount: fee_theirs.or(theirs.map(i64::abs)),
                    entry: (entry_id > 0).then_some(entry_id),
                    line: line.as_ref().map(|l| l.id),
                    raw_event,
                    run: Some(self.run),
                    fixing: false,
                    note: why.into(),
                });
            }
            Ok(())
        })?;
        Ok(repair::open_all(self.access, news)?)
    }

    /// What the matched lines brought to the balance against what our clearing account moved for them: it sees what no
    /// comparison of amounts can (a tax or a fee that is booked elsewhere).
    fn control(&self) -> Go<i64> {
        let run = self.run;
        let diff = self.access.read(|conn| runs::control_diff(conn, run))?;
        if diff.is_empty() {
            return Ok(0);
        }
        let news = diff.iter().map(|(currency, minor)| NewDiscrepancy {
            book: self.book,
            class: "CONTROL_TOTAL",
            kind: "clearing".into(),
            reference: format!("{} {currency}", self.day),
            currency: Some(currency.clone()),
            our_amount: Some(0),
            their_amount: Some(*minor),
            entry: None,
            line: None,
            raw_event: None,
            run: Some(run),
            fixing: false,
            note: "what the matched lines brought is not what our clearing account moved for them".into(),
        });
        let opened = repair::open_all(self.access, news.collect())?;
        self.access.write(move |tx| runs::control(tx, run, &diff))?;
        Ok(opened)
    }

    /// Closes by itself what is over: an entry that met its line, a movement that came.
    fn close_over(&self, verdicts: &[Verdict]) -> Go<()> {
        let matched: HashSet<i64> = verdicts
            .iter()
            .filter(|v| v.bucket == Bucket::Matched)
            .map(|v| if v.theirs { v.partner } else { v.item })
            .collect();
        repair::close_over(self.access, self.source, (self.book, self.run), &matched)?;
        Ok(())
    }
}

/// The row of a score. The entry's half of a pair whose line is in the report stands in the line's row.
fn verdict(scored: Scored) -> Option<Verdict> {
    let duplicate = matches!(scored.bucket, Bucket::DuplicateTheirs | Bucket::DuplicateOurs);
    let theirs = scored.side == Side::Theirs;
    let (partner, inside) = scored.partner.unwrap_or((0, false));
    if !theirs && inside && !duplicate {
        return None;
    }
    let scored_too = theirs && inside && !duplicate;
    Some(Verdict { theirs, item: scored.item, bucket: scored.bucket, partner, scored: scored_too, rule: scored.rule })
}

fn rule_word(rule: Rule) -> &'static str {
    match rule {
        Rule::LineRef => "LINE_REF",
        Rule::KindReference => "KIND+SOURCE",
        Rule::KindAlias => "KIND+ALT",
        Rule::Parent => "PARENT",
        Rule::Order => "ORDER+AMOUNT",
    }
}

fn item(v: &Verdict) -> NewItem {
    NewItem {
        side: if v.theirs { "T" } else { "O" },
        item: v.item,
        bucket: v.bucket.as_str(),
        partner: (v.partner != 0).then_some((v.partner, v.scored)),
        rule: v.rule.map(rule_word),
    }
}
