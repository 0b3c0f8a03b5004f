//! Which report a file is, and the reading of one: the errors, the sums, and the choice of the reader by format.

use super::row::Row;
use super::{Control, Format, ReadOptions, ReportLine, ReportSpec, SKIPPED_SHOWN, Summary, Total, json, table};
use crate::money::Currency;
use crate::providers::Recipe;
use std::collections::{BTreeMap, HashSet};
use std::hash::{BuildHasher, BuildHasherDefault, Hasher, RandomState};
use std::io::Read;

/// How much of a file's beginning is looked at to tell what it is.
pub const HEAD_BYTES: usize = 64 * 1024;

/// Why a report cannot be read: where, and what would have to be different. The whole file counts for nothing then.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReadError {
    /// The physical line, from 1; `None`: the file as a whole.
    pub line: Option<u64>,
    /// The column's name or the pointer.
    pub column: Option<String>,
    /// What is wrong.
    pub problem: String,
}

impl std::fmt::Display for ReadError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if let Some(line) = self.line {
            write!(f, "line {line}, ")?;
        }
        if let Some(column) = &self.column {
            write!(f, "column {column:?}: ")?;
        }
        f.write_str(&self.problem)
    }
}

impl std::error::Error for ReadError {}

impl ReadError {
    pub(super) fn file(problem: impl Into<String>) -> ReadError {
        ReadError { line: None, column: None, problem: problem.into() }
    }

    pub(super) fn at(line: u64, column: Option<String>, problem: impl Into<String>) -> ReadError {
        ReadError { line: Some(line), column, problem: problem.into() }
    }
}

/// The name of the report that begins with `head` (some [`HEAD_BYTES`]), by its header or first records; the one with
/// the most columns named in its `detect` where several fit. `None`: no report of this provider.
pub fn detect<'r>(recipe: &'r Recipe, head: &[u8]) -> Option<&'r str> {
    let head = head.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(head);
    let fits = |spec: &ReportSpec| match spec.format {
        Format::Json => json::looks_like(spec, head),
        _ => table::delimiter(spec, head).is_some(),
    };
    let candidates = recipe.report.iter().filter(|(_, spec)| fits(spec));
    candidates.max_by_key(|(_, spec)| spec.detect.columns.len()).map(|(name, _)| name.as_str())
}

/// Reads a report to its end. Every line goes to `on_line` as soon as it is read; its error ends the reading.
///
/// The summary tells what was skipped and why, and the file's control numbers beside what was read: whether they agree
/// is for the caller to judge (see [`Control::holds`]).
pub fn read<E: From<ReadError>>(
    spec: &ReportSpec,
    reader: impl Read,
    options: &ReadOptions,
    on_line: &mut dyn FnMut(ReportLine) -> Result<(), E>,
) -> Result<Summary, E> {
    let mut tally = Tally::default();
    match spec.format {
        Format::Json => json::read(spec, reader, options, &mut tally, on_line)?,
        _ => table::read(spec, reader, options, &mut tally, on_line)?,
    }
    Ok(tally.finish(spec))
}

/// The set's numbers are hashes already.
#[derive(Default)]
struct Hashed(u64);

impl Hasher for Hashed {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|b| self.0 = self.0.rotate_left(8) ^ u64::from(*b));
    }
    fn write_u64(&mut self, number: u64) {
        self.0 = number;
    }
}

/// What is counted while lines pass by.
#[derive(Default)]
pub(super) struct Tally {
    summary: Summary,
    totals: Vec<(Currency, Total)>,
    seen: HashSet<u64, BuildHasherDefault<Hashed>>,
    hasher: RandomState,
}

impl Tally {
    pub(super) fn skipped(&mut self, line: u64, why: String) {
        if self.summary.skipped_first.len() < SKIPPED_SHOWN {
            self.summary.skipped_first.push((line, why.clone()));
        }
        *self.summary.skipped.entry(why).or_insert(0) += 1;
    }

    fn count(&mut self, line: &ReportLine) {
        self.summary.rows += 1;
        // a repeat only changes sums: 64 bits of a keyed hash suffice, and keep a million rows small
        if let Some(id) = &line.line_ref {
            let identity = (id, &line.kind, line.gross, line.tax, line.fee, line.net, line.currency);
            if !self.seen.insert(self.hasher.hash_one(identity)) {
                self.summary.repeats += 1;
                return;
            }
        }
        let at = self.totals.iter().position(|(c, _)| *c == line.currency).unwrap_or_else(|| {
            self.totals.push((line.currency, Total::default()));
            self.totals.len() - 1
        });
        let total = &mut self.totals[at].1;
        let add = |sum: &mut i64, value: i64| *sum = sum.saturating_add(value);
        total.rows += 1;
        add(if line.gross < 0 { &mut total.gross_out } else { &mut total.gross_in }, line.gross);
        add(if line.fee < 0 { &mut total.fee_back } else { &mut total.fee_cost }, line.fee);
        add(&mut total.tax, line.tax);
        add(&mut total.net, line.net);
    }

    pub(super) fn total(&self, currency: Currency) -> Total {
        self.totals.iter().find(|(c, _)| *c == currency).map_or(Total::default(), |(_, total)| *total)
    }

    pub(super) fn control(&mut self, control: Control) {
        self.summary.control.push(control);
    }

    /// Runs the rules on one row and hands on what comes of it.
    pub(super) fn row<E: From<ReadError>>(
        &mut self,
        row: &mut Row,
        cells: super::cells::Cells,
        (line, record): (u64, u64),
        on_line: &mut dyn FnMut(ReportLine) -> Result<(), E>,
    ) -> Result<(), E> {
        match row.read(cells, line, record).map_err(|fault| ReadError::at(line, fault.column, fault.problem))? {
            Err(why) => {
                self.skipped(line, why);
                Ok(())
            }
            Ok((first, more)) => std::iter::once(first).chain(more).try_for_each(|line| {
                self.count(&line);
                on_line(line)
            }),
        }
    }

    fn finish(mut self, spec: &ReportSpec) -> Summary {
        if spec.sums_to_zero {
            for (currency, total) in &self.totals {
                let what = format!("net sum {currency}, the payout included");
                self.summary.control.push(Control { what, stated: 0, read: total.net });
            }
        }
        let totals: BTreeMap<_, _> = self.totals.iter().map(|(c, total)| (c.code().to_owned(), *total)).collect();
        self.summary.totals = totals;
        self.summary
    }
}
