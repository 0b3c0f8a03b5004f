//! Judge: is this the report that it should be? Then what no comparison can know: what is parked, what a later total
//! took over.
//!
//! A report of the wrong account, mode or window, an empty or a cut one must change nothing: it ends the run here.
//! Reads only.

use super::gather::{Go, Stop};
use super::repair;
use super::scores::Scores;
use super::settle::One;
use crate::settlement::matching::{Bucket, Rule};
use crate::settlement::plan::Spec;
use crate::store::settlement::{self as tables, discrepancies, feed, reports};
use rusqlite::Connection;
use std::collections::HashMap;

/// Repairs are allowed for this many lines, or this share of them: more means a wrong window, key, mode or account.
const REPAIR_LEAST: i64 = 20;
const REPAIR_SHARE: i64 = 20; // a twentieth

impl One<'_> {
    /// What the comparison alone cannot know: what is parked, two entries that one line names, totals that a later one
    /// took over.
    pub(super) fn look_closer(&self, conn: &Connection, also: &HashMap<i64, i64>, scores: &mut Scores) -> Go<()> {
        if scores.of(Bucket::MissingOurs).next().is_some() {
            let waiting = tables::waiting_bodies(conn, &self.source.name, 2000)?;
            let missing = scores.singles.iter_mut().filter(|v| v.bucket == Bucket::MissingOurs && !waiting.is_empty());
            for one in missing {
                if repair::parked_as(conn, one.item, &waiting)?.is_some() {
                    one.bucket = Bucket::ParkedOurs;
                }
            }
        }
        for one in &mut scores.singles {
            if !matches!(one.bucket, Bucket::InTransit | Bucket::MissingTheirs) {
                continue;
            }
            if let Some(line) = also.get(&one.item) {
                (one.bucket, one.partner, one.rule) = (Bucket::DuplicateOurs, *line, Some(Rule::KindAlias));
                continue;
            }
            if let Some(line) = feed::later_total(conn, self.book, one.item)? {
                (one.bucket, one.partner, one.rule) = (Bucket::Matched, line, Some(Rule::LineRef));
            }
        }
        Ok(())
    }

    /// Is this the report that it should be, of so many entries that are expected in it?
    pub(super) fn judge(
        &self,
        conn: &Connection,
        scores: &Scores,
        (report, expected): (&reports::Report, i64),
        spec: Spec,
    ) -> Go<()> {
        let counts = scores.counts();
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
        for one in scores.of(Bucket::MissingTheirs) {
            let known = discrepancies::is_open(conn, self.book, "MISSING_THEIRS", one.item)?;
            lone += i64::from(!known);
        }
        let ours = scores.ours();
        if lone > most(ours) {
            return Err(Stop::Invalid(format!(
                "{lone} of {ours} entries are not in the report, more than {}: is it cut off, or of another account or window?",
                most(ours)
            )));
        }
        // a list that ends early: half of the day is not in it, though its report is said to be complete within days
        let young = self.window_entries(conn, scores, Bucket::InTransit)?;
        if expected >= 5 && young * 2 > expected && spec.grace_h("payment") <= 72 {
            let why = format!("the report holds only {} of our {expected} entries of that time", expected - young);
            return Err(Stop::Deferred(why));
        }
        Ok(())
    }

    /// How many entries of the window, without a line in the report, are in this bucket.
    fn window_entries(&self, conn: &Connection, scores: &Scores, bucket: Bucket) -> Go<i64> {
        let mut count = 0;
        for one in scores.of(bucket).filter(|v| !v.theirs) {
            let facts = feed::entry_facts(conn, self.book, one.item)?;
            count += i64::from(facts.is_some_and(|f| f.occurred_at >= self.window.0));
        }
        Ok(count)
    }

    /// Missing here, and not known to be.
    pub(super) fn new_missing(&self, scores: &Scores) -> Go<i64> {
        let missing: Vec<i64> = scores.of(Bucket::MissingOurs).map(|v| v.item).collect();
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
}
