//! Settlement reports: which report a file is, and its rows as lines with kind, references and amounts.
//!
//! What a report looks like stands in the provider's file under `[report.<name>]`. Reading streams: a line is handed
//! to the caller and forgotten. A row that cannot be read stops the reading with its line and column.

mod amounts;
pub(crate) mod cells;
mod json;
pub mod read;
pub(crate) mod row;
pub mod rules;
mod table;
#[cfg(test)]
mod tests;
mod times;

pub use read::{ReadError, detect, read};
pub use rules::*;
pub use times::rfc3339_millis;

use crate::event::Millis;
use crate::money::{Currency, Money};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// One kind of report file, `[report.<name>]`.
#[derive(Debug, Clone, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
pub struct ReportSpec {
    /// How the file is built.
    pub format: Format,
    /// What field separators it may have; the first with which the header fits counts.
    #[serde(default = "comma")]
    pub delimiters: Vec<char>,
    /// How it is told from others.
    pub detect: Detect,
    /// Other names of columns (a localised header): the name in the rules, and what files call it.
    #[serde(default)]
    pub columns: BTreeMap<String, OneOrMany>,
    /// Columns that not every file has; they count as empty there. Any other missing column is an error.
    #[serde(default)]
    pub optional: Vec<String>,
    /// Record types, where `format` is `sections`.
    #[serde(default)]
    pub sections: Option<Sections>,
    /// Where the rows stand, where `format` is `json`: a pointer of object keys.
    #[serde(default)]
    pub items: String,
    /// The kinds that this report can contain; `*` for all. Only those of ours are expected in it.
    pub covers: Vec<String>,
    /// Hours after which an entry that is in no report goes to a person.
    pub grace_h: u32,
    /// The same by kind.
    #[serde(default)]
    pub grace_kind_h: BTreeMap<String, u32>,
    /// The sum of all nets of a file is zero (repeats left out), because the payout is a row of it.
    #[serde(default)]
    pub sums_to_zero: bool,
    /// What a person should know before trusting it.
    #[serde(default)]
    pub caution: Option<String>,
    /// How a row is read.
    pub row: RowSpec,
}

fn comma() -> Vec<char> {
    vec![',']
}

/// How a report file is built.
#[derive(Debug, Clone, Copy, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum Format {
    /// Delimited fields under one header.
    Csv,
    /// Delimited fields under one header, tabs between them unless `delimiters` says otherwise.
    Tsv,
    /// Delimited records of several types; the first field is the type.
    Sections,
    /// One JSON document with a list of objects.
    Json,
}

/// How a report is told from others.
#[derive(Debug, Clone, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
pub struct Detect {
    /// Columns that the header has (names as in the rules), for JSON: keys that stand in its beginning.
    pub columns: Vec<String>,
    /// Columns that the header must not have.
    #[serde(default)]
    pub without: Vec<String>,
}

/// Record types of a sections file.
#[derive(Debug, Clone, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
pub struct Sections {
    /// The type of the very first record.
    pub first: String,
    /// The type that names the columns.
    pub header: String,
    /// The types that are rows.
    pub rows: Vec<String>,
    /// The type that must end the file: without it the file is cut off.
    pub last: String,
    /// What the other types are, for the list of what was skipped.
    pub others: BTreeMap<String, String>,
    /// Types whose second field counts all rows of the file.
    #[serde(default)]
    pub counts: Vec<String>,
    /// The type whose records hold sums by currency: currency, then gross credits, gross debits, fee credits and fee
    /// debits, in the units of the rows, repeats left out; the last field is the number of rows.
    #[serde(default)]
    pub sums: Option<String>,
}

/// What the caller knows and the file may not say.
#[derive(Debug, Clone, Default)]
pub struct ReadOptions {
    /// The settled currency of files that name none or only a sign.
    pub currency: Option<Currency>,
    /// The account's zone, in place of the zone that the provider's file states.
    pub zone: Option<String>,
}

/// One line of a report or one item of an API: the provider's word on one movement. Amounts are minor units (ISO
/// 4217) of `currency`, seen from the merchant's balance: money in is positive, a fee that is a cost is positive,
/// and `net = gross − tax − fee`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReportLine {
    /// The physical line (from 1) where the row begins; for JSON the number of the item (from 1).
    pub line: u64,
    /// The number of the record (from 1, the header counts).
    pub record: u64,
    /// The provider's id of the row, where it has one: the same id with the same amounts is the same row.
    pub line_ref: Option<String>,
    /// Our kind.
    pub kind: String,
    /// The provider's word for the kind, where no rule knows it (`kind` is then `adjustment`, and a person looks).
    pub unknown_kind: Option<String>,
    /// The provider's reference of the movement.
    pub reference: Option<String>,
    /// Another name of it.
    pub ref_alt: Option<String>,
    /// The movement it belongs to.
    pub parent: Option<String>,
    /// What the customer paid or got, in the settled currency.
    pub gross: i64,
    /// Tax that the provider remits.
    pub tax: i64,
    /// The provider's fee.
    pub fee: i64,
    /// What reached the balance.
    pub net: i64,
    /// The settled currency.
    pub currency: Currency,
    /// What the customer was shown, where that is another currency.
    pub shown: Option<Money>,
    /// When it happened.
    pub occurred_at: Option<Millis>,
    /// The other instant that the local time may mean (the hour that autumn repeats).
    pub occurred_or: Option<Millis>,
    /// When it can be paid out.
    pub available_at: Option<Millis>,
    /// The payout that carried it.
    pub payout_ref: Option<String>,
    /// The merchant's order: with kind and amount it stands in where no id of the movement is told.
    pub order: Option<String>,
    /// The object has not succeeded yet.
    pub pending: bool,
    /// To be added to the payment that `parent` names before anything is compared.
    pub merge: bool,
    /// The amounts are the total so far of `parent`.
    pub running_total: bool,
}

/// What a file held besides its lines.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Summary {
    /// Lines handed out.
    pub rows: u64,
    /// Rows that are no movements: how many for each reason.
    pub skipped: BTreeMap<String, u64>,
    /// The first of them, (line, reason), at most [`SKIPPED_SHOWN`].
    pub skipped_first: Vec<(u64, String)>,
    /// Rows that repeat an earlier one by `line_ref` and amounts.
    pub repeats: u64,
    /// Sums by currency, repeats left out.
    pub totals: BTreeMap<String, Total>,
    /// What the file says about itself, and what was read.
    pub control: Vec<Control>,
}

/// How many skipped rows a summary names one by one.
pub const SKIPPED_SHOWN: usize = 1000;

/// Sums of one currency.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Total {
    /// Lines.
    pub rows: u64,
    /// Sum of the positive gross amounts.
    pub gross_in: i64,
    /// Sum of the negative gross amounts.
    pub gross_out: i64,
    /// Sum of the fees that are a cost.
    pub fee_cost: i64,
    /// Sum of the fees given back, negative.
    pub fee_back: i64,
    /// Sum of the taxes.
    pub tax: i64,
    /// Sum of the nets.
    pub net: i64,
}

/// One control number of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Control {
    /// Which: `rows`, `gross credits USD`, …
    pub what: String,
    /// What the file says.
    pub stated: i64,
    /// What its rows give.
    pub read: i64,
}

impl Control {
    /// Whether the file keeps its word. A file that does not is incomplete or not what it seems.
    pub fn holds(&self) -> bool {
        self.stated == self.read
    }
}

impl ReportSpec {
    /// Whether a kind of ours is expected in this report.
    pub fn covers(&self, kind: &str) -> bool {
        self.covers.iter().any(|k| k == "*" || k == kind)
    }

    /// Hours until an entry of that kind, in no report, goes to a person.
    pub fn grace_h(&self, kind: &str) -> u32 {
        self.grace_kind_h.get(kind).copied().unwrap_or(self.grace_h)
    }

    /// One line as JSON in the shape of `reconcile read --json`; `of` says where the row stands.
    pub fn json(&self, line: &ReportLine) -> String {
        let pointer = (self.format == Format::Json).then(|| format!("{}/{}", self.items, line.line - 1));
        let shown_is_gross = self.row.shown.as_ref().is_some_and(|s| s.is_gross);
        line.json(pointer, shown_is_gross, self.row.tax.is_some())
    }
}

#[derive(Serialize)]
struct Printed<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    pointer: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    line: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    record: Option<u64>,
    reference: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ref_alt: Option<&'a str>,
    kind: &'a str,
    gross_minor: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    settled_gross_minor: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tax_minor: Option<i64>,
    fee_minor: i64,
    net_minor: i64,
    currency: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    net_currency: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    presentment: Option<Presentment<'a>>,
    occurred_at_utc: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    alt_occurred_at_utc: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    parent: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    line_ref: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    payout_ref: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    order: Option<&'a str>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pending: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    unknown_kind: Option<&'a str>,
}

#[derive(Serialize)]
struct Presentment<'a> {
    amount_minor: i64,
    currency: &'a str,
}

/// An instant as `2026-11-20T12:00:00Z`, without fractions; `None` outside of what a calendar holds.
pub fn utc_text(at: Millis) -> Option<String> {
    let at = jiff::Timestamp::from_second(at.div_euclid(1000)).ok()?;
    Some(at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string())
}

impl ReportLine {
    /// The line as one JSON object: amounts in minor units, times in UTC. Where what the customer was shown is the
    /// report's gross, it is printed as `gross_minor` in `currency`, and the settled amounts are in `net_currency`.
    pub fn json(&self, pointer: Option<String>, shown_is_gross: bool, with_tax: bool) -> String {
        let gross = self.shown.filter(|_| shown_is_gross);
        let beside = self.shown.as_ref().filter(|_| !shown_is_gross);
        let placed = pointer.is_none();
        let printed = Printed {
            pointer,
            line: placed.then_some(self.line),
            record: placed.then_some(self.record),
            reference: self.reference.as_deref(),
            ref_alt: self.ref_alt.as_deref(),
            kind: &self.kind,
            gross_minor: gross.map_or(self.gross, |m| m.minor),
            settled_gross_minor: gross.map(|_| self.gross),
            tax_minor: with_tax.then_some(self.tax),
            fee_minor: self.fee,
            net_minor: self.net,
            currency: gross.as_ref().map_or(self.currency.code(), |m| m.currency.code()),
            net_currency: gross.as_ref().map(|_| self.currency.code()),
            presentment: beside.map(|m| Presentment { amount_minor: m.minor, currency: m.currency.code() }),
            occurred_at_utc: self.occurred_at.and_then(utc_text),
            alt_occurred_at_utc: self.occurred_or.and_then(utc_text),
            parent: self.parent.as_deref(),
            line_ref: self.line_ref.as_deref(),
            payout_ref: self.payout_ref.as_deref(),
            order: self.order.as_deref(),
            pending: self.pending,
            unknown_kind: self.unknown_kind.as_deref(),
        };
        serde_json::to_string(&printed).unwrap_or_default()
    }
}
