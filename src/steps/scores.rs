//! Scores: what a comparison came to, held small, and how it is written.
//!
//! Nearly all of a report are pairs that met by name and are equal: sixteen bytes each, and one row for each stretch of
//! them. Everything else is a score of its own. Never written before the run is judged.

use super::pieces::Pieces;
use super::settle::Ask;
use crate::error::Result;
use crate::settlement::matching::{Bucket, Rule, Scored, Side};
use crate::store::Access;
use crate::store::settlement::runs::{self, NewItem, NewSettled};
use std::collections::BTreeMap;

/// A score that stands alone.
#[derive(Clone, Copy)]
pub(super) struct Verdict {
    pub theirs: bool,
    pub item: i64,
    pub bucket: Bucket,
    pub partner: i64, // 0: none
    pub scored: bool,
    pub rule: Option<Rule>,
    pub late_fee: bool,
}

/// An equal pair that met by name: its line as the distance from the report's first one.
#[derive(Clone, Copy)]
struct Met {
    entry: i64,
    line: u32,
    scored: bool,
    /// They met in an earlier run.
    before: bool,
    late_fee: bool,
}

impl Met {
    /// What the row of a stretch says.
    fn how(&self) -> (bool, bool) {
        (self.scored, self.before)
    }
}

/// The scores of a run.
pub(super) struct Scores {
    first_line: i64,
    pub singles: Vec<Verdict>,
    met: Vec<Met>,
}

impl Scores {
    pub fn new(first_line: i64) -> Scores {
        Scores { first_line, singles: Vec::new(), met: Vec::new() }
    }

    /// Takes a score. The entry's half of a pair whose line is in the report stands in the line's.
    pub fn take(&mut self, scored: Scored) {
        let duplicate = matches!(scored.bucket, Bucket::DuplicateTheirs | Bucket::DuplicateOurs);
        let theirs = scored.side == Side::Theirs;
        let (partner, inside) = scored.partner.unwrap_or((0, false));
        if !theirs && inside && !duplicate {
            return;
        }
        let equal = scored.bucket == Bucket::Matched;
        let by_name = matches!(scored.rule, Some(Rule::KindReference | Rule::LineRef)) && scored.named;
        if theirs
            && equal
            && by_name
            && let Ok(line) = u32::try_from(scored.item - self.first_line)
        {
            self.met.push(Met {
                entry: partner,
                line,
                scored: inside,
                before: scored.rule == Some(Rule::LineRef),
                late_fee: scored.late_fee,
            });
            return;
        }
        self.singles.push(Verdict {
            theirs,
            item: scored.item,
            bucket: scored.bucket,
            partner,
            scored: theirs && inside && !duplicate,
            rule: scored.rule,
            late_fee: scored.late_fee,
        });
    }

    /// Items by bucket.
    pub fn counts(&self) -> BTreeMap<&'static str, i64> {
        let mut counts = BTreeMap::new();
        for one in &self.singles {
            *counts.entry(one.bucket.as_str()).or_insert(0) += 1;
        }
        if !self.met.is_empty() {
            *counts.entry(Bucket::Matched.as_str()).or_insert(0) += self.met.len() as i64;
        }
        counts
    }

    /// How many entries are scored: each beside its line where that is in this report, else by a row of its own (`O`). So
    /// does one whose line an earlier report has: it is matched and its partner that line, which counts with the lines
    /// of its own report alone. The run adds up as it does where the entry had no line at all.
    pub fn ours(&self) -> i64 {
        let singles = self.singles.iter().filter(|v| !v.theirs || v.scored).count();
        (singles + self.met.iter().filter(|m| m.scored).count()) as i64
    }

    /// Scores of one bucket, of those that stand alone.
    pub fn of(&self, bucket: Bucket) -> impl Iterator<Item = &Verdict> {
        self.singles.iter().filter(move |v| v.bucket == bucket)
    }

    /// Lines that tell a fee of their entry that is not posted: (line, entry).
    pub fn late_fees(&self) -> impl Iterator<Item = (i64, i64)> + '_ {
        let met = self.met.iter().filter(|m| m.late_fee).map(|m| (self.first_line + i64::from(m.line), m.entry));
        let single = |v: &Verdict| if v.theirs { (v.item, v.partner) } else { (v.partner, v.item) };
        met.chain(self.singles.iter().filter(|v| v.late_fee).map(single))
    }

    /// Is this entry equal to its line now?
    pub fn is_matched(&self, entry: i64) -> bool {
        let of = |v: &&Verdict| (if v.theirs { v.partner } else { v.item }) == entry;
        // sorted by entry once they are written
        let at = self.met.partition_point(|m| m.entry < entry);
        self.met.get(at).is_some_and(|m| m.entry == entry) || self.of(Bucket::Matched).any(|v| of(&v))
    }

    /// The rows of the run's items, in the order of their key: O before T.
    fn rows(&mut self) -> Vec<NewItem> {
        self.met.sort_unstable_by_key(|m| m.line);
        self.singles.sort_unstable_by_key(|v| (v.theirs, v.item));
        let mut rows: Vec<NewItem> = self.singles.iter().map(item).collect();
        let ours = self.singles.partition_point(|v| !v.theirs);
        let follows = |a: &Met, b: &Met| a.line + 1 == b.line && a.how() == b.how();
        for stretch in self.met.chunk_by(follows) {
            let (first, last) = (stretch[0], stretch[stretch.len() - 1]);
            rows.push(NewItem {
                side: "T",
                item: self.first_line + i64::from(first.line),
                upto: Some(self.first_line + i64::from(last.line)),
                bucket: Bucket::Matched.as_str(),
                partner: None,
                scored: Some(first.scored),
                rule: Some(rule_word(if first.before { Rule::LineRef } else { Rule::KindReference })),
            });
        }
        rows[ours..].sort_unstable_by_key(|row| row.item);
        rows
    }

    /// What is settled by this run for good, in the order of entries.
    fn settled(&mut self) -> Vec<NewSettled> {
        self.met.sort_unstable_by_key(|m| m.entry);
        let met = |v: &&Verdict| matches!(v.bucket, Bucket::Matched | Bucket::FeeDiffers | Bucket::NotComparable);
        let mut others: Vec<NewSettled> = self
            .singles
            .iter()
            .filter(met)
            .map(|v| {
                let (line, entry) = if v.theirs { (v.item, v.partner) } else { (v.partner, v.item) };
                let odd = v.rule.filter(|r| matches!(r, Rule::Parent | Rule::Order)).map(rule_word);
                NewSettled { entry, line, rule: odd }
            })
            .filter(|pair| pair.line > 0)
            .collect();
        others.sort_unstable_by_key(|pair| pair.entry);
        let by_name = self.met.iter().filter(|m| !m.before);
        let by_name =
            by_name.map(|m| NewSettled { entry: m.entry, line: self.first_line + i64::from(m.line), rule: None });
        let mut all: Vec<NewSettled> = Vec::with_capacity(self.met.len() + others.len());
        all.extend(by_name);
        if !others.is_empty() {
            all.extend(others);
            all.sort_by_key(|pair| pair.entry);
        }
        all
    }

    /// Writes every score, then what is settled for good: each in the order of its key, so that all of it appends.
    pub fn store(&mut self, access: &Access, ask: &Ask, (book, run): (i64, i64)) -> Result<()> {
        let (rows, mut pour, pieces, mut done) = (self.rows(), access.pour(), Pieces::new(), 0);
        while done < rows.len() {
            let chunk = rows[done..rows.len().min(done + pieces.rows())].to_vec();
            done += chunk.len();
            pour.push(pieces.measured(chunk.len(), move |tx| runs::add_items(tx, run, &chunk)))?;
            (ask.progress)("scored", done as u64);
        }
        drop(rows);
        let (pairs, pieces, mut done) = (self.settled(), Pieces::new(), 0);
        while done < pairs.len() {
            let chunk = pairs[done..pairs.len().min(done + pieces.rows())].to_vec();
            done += chunk.len();
            pour.push(pieces.measured(chunk.len(), move |tx| runs::settle(tx, (book, run), &chunk)))?;
            (ask.progress)("settled", done as u64);
        }
        pour.finish()
    }
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
        upto: None,
        bucket: v.bucket.as_str(),
        partner: (v.partner != 0).then_some(v.partner),
        scored: (v.partner != 0).then_some(v.scored),
        rule: v.rule.map(rule_word),
    }
}
