//! Note: what of a run's scores a person should see, opened once each, with what both sides say.
//!
//! Writes discrepancies only; corrects nothing.

use super::gather::Go;
use super::repair;
use super::scores::Scores;
use super::settle::One;
use crate::settlement::matching::Bucket;
use crate::store::settlement::discrepancies::NewDiscrepancy;
use crate::store::settlement::{self as tables, feed, reports, runs};

impl One<'_> {
    /// Opens what a person should see. Gives how many are new.
    pub(super) fn note(&self, scores: &Scores) -> Go<i64> {
        let mut news = Vec::new();
        self.access.read(|conn| {
            let parked = scores.of(Bucket::ParkedOurs).next().is_some();
            let waiting = if parked { tables::waiting_bodies(conn, &self.source.name, 2000)? } else { Vec::new() };
            for one in &scores.singles {
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
    pub(super) fn control(&self) -> Go<i64> {
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
}
