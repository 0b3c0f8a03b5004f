//! Compares the lines of a report with entries of the ledger: every item gets exactly one bucket.
//!
//! Pure: both sides come as iterators sorted by (kind, name); what lies beyond the window is asked for by callbacks.
//! A million pairs pass through; only what found no partner in the merge is held. Zero tolerance: an amount is equal or
//! it is not. An entry meets one line and a line one entry, for ever (`settled`). Nothing is matched by amount and date.

use crate::event::Millis;
use crate::money::{Currency, Money};
use std::cmp::Ordering;
use std::collections::HashMap;
use std::sync::Arc;

/// A line of the report, as far as it is compared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Theirs {
    /// The store's id of the line.
    pub item: i64,
    /// Our kind.
    pub kind: Arc<str>,
    /// The name to merge by: the movement's own reference, where the line has it.
    pub name: String,
    /// Another name of the movement in the line.
    pub other: Option<String>,
    /// The movement it belongs to; a partner is looked for by it only where [`Theirs::by_parent`].
    pub parent: Option<String>,
    /// The provider's file says that this kind of line can be found by its parent (and kind and amount).
    pub by_parent: bool,
    /// The merchant's order: with kind and amount a rule of its own, where the line has no id of a movement.
    pub order: Option<String>,
    /// Gross in the settled currency.
    pub gross: i64,
    /// Fee in the settled currency.
    pub fee: i64,
    /// The settled currency.
    pub currency: Currency,
    /// What the customer was shown, where that is another currency.
    pub shown: Option<Money>,
    /// The report never says what the customer was shown.
    pub settled_only: bool,
    /// The object has not succeeded yet.
    pub pending: bool,
    /// This kind has no webhook at this provider.
    pub provider_only: bool,
    /// A rule says it is another integration's money.
    pub not_ours: bool,
    /// A person has booked it by hand: an entry that comes for it now is the same money once more.
    pub booked: bool,
    /// What makes the same row the same line in another report.
    pub line_ref: String,
    /// The line is of the report that is scored; otherwise it only serves as a partner.
    pub in_window: bool,
}

/// An entry of ours that expects settlement, as far as it is compared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ours {
    /// The journal's id.
    pub item: i64,
    /// The kind.
    pub kind: Arc<str>,
    /// The movement's reference.
    pub name: String,
    /// Its other names.
    pub aliases: Vec<String>,
    /// The movement it belongs to.
    pub parent: Option<String>,
    /// The amount, never negative.
    pub amount: i64,
    /// Its currency.
    pub currency: Currency,
    /// The fee that is posted for it; `None`: not told yet.
    pub fee: Option<Money>,
    /// It happened at that time.
    pub occurred_at: Millis,
    /// The line that settled it in an earlier run.
    pub settled_by: Option<i64>,
    /// That line's `line_ref`: the same row again is no second line.
    pub settled_ref: Option<String>,
    /// It is of the window (or of the open set) that is scored; otherwise it only serves as a partner.
    pub in_window: bool,
}

/// Where an item ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Bucket {
    /// In both, equal.
    Matched,
    /// Theirs only: to be fetched.
    MissingOurs,
    /// Ours only, older than the grace.
    MissingTheirs,
    /// Ours only, younger than the grace.
    InTransit,
    /// Theirs only, not yet succeeded.
    PendingTheirs,
    /// Theirs; ours is parked, in conflict or dead.
    ParkedOurs,
    /// In both, the amounts differ.
    AmountDiffers,
    /// In both, the currencies differ.
    CurrencyDiffers,
    /// In both, the fees differ.
    FeeDiffers,
    /// In both; the report holds only the settled currency.
    NotComparable,
    /// A second line for an entry.
    DuplicateTheirs,
    /// A second entry for a line.
    DuplicateOurs,
    /// A kind that no webhook announces.
    ProviderOnly,
    /// Another integration's money.
    NotOurs,
}

impl Bucket {
    /// The word in tables, the API and on pages.
    pub fn as_str(self) -> &'static str {
        match self {
            Bucket::Matched => "matched",
            Bucket::MissingOurs => "missing_ours",
            Bucket::MissingTheirs => "missing_theirs",
            Bucket::InTransit => "in_transit",
            Bucket::PendingTheirs => "pending_theirs",
            Bucket::ParkedOurs => "parked_ours",
            Bucket::AmountDiffers => "amount_differs",
            Bucket::CurrencyDiffers => "currency_differs",
            Bucket::FeeDiffers => "fee_differs",
            Bucket::NotComparable => "not_comparable",
            Bucket::DuplicateTheirs => "duplicate_theirs",
            Bucket::DuplicateOurs => "duplicate_ours",
            Bucket::ProviderOnly => "provider_only",
            Bucket::NotOurs => "not_ours",
        }
    }
}

/// By what two items met.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Rule {
    /// The line settled this entry before.
    LineRef,
    /// Kind and reference.
    KindReference,
    /// Kind and another name.
    KindAlias,
    /// Kind, parent and amount, where the provider's file allows it.
    Parent,
    /// Kind, order and amount.
    Order,
}

/// Which side an item is on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Side {
    /// The provider's.
    Theirs,
    /// The ledger's.
    Ours,
}

/// One item and its bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scored {
    /// Which side.
    pub side: Side,
    /// The line's or the entry's id.
    pub item: i64,
    /// Its bucket.
    pub bucket: Bucket,
    /// The item of the other side (for a duplicate: the one that is there already), and whether it is in the window.
    pub partner: Option<(i64, bool)>,
    /// How they met.
    pub rule: Option<Rule>,
    /// They have the same name: whoever knows the line finds the entry by it.
    pub named: bool,
    /// The line tells a fee, and ours is not posted.
    pub late_fee: bool,
}

/// Looks up one item by kind and one of its names (reference or alias), among those of all times.
pub type Lookup<'a, T, E> = &'a mut dyn FnMut(&str, &str) -> Result<Option<T>, E>;

/// Looks up a line for each of many entries at once: one walk for all of them.
pub type LookupAll<'a, E> = &'a mut dyn FnMut(&[&Ours]) -> Result<Vec<Option<Theirs>>, E>;

/// What lies beyond the two streams, and who is told.
pub struct Around<'a, E> {
    /// An entry of any time.
    pub ours: Lookup<'a, Ours, E>,
    /// The entry that the line with this `line_ref` settled before, where they did not meet by name.
    pub met: &'a mut dyn FnMut(&str) -> Result<Option<Ours>, E>,
    /// The entry of a merchant's order, among those of all times.
    pub of_order: &'a mut dyn FnMut(&str) -> Result<Option<Ours>, E>,
    /// Lines of earlier reports that no entry has met, though one should have: asked for once, where an entry is left.
    pub open: &'a mut dyn FnMut() -> Result<Vec<Theirs>, E>,
    /// A line by its number: the one that settled an entry.
    pub line: &'a mut dyn FnMut(i64) -> Result<Option<Theirs>, E>,
    /// For each of these entries a line of any report by one of its names.
    pub theirs: LookupAll<'a, E>,
    /// Whether an entry is younger than the grace of its kind and report.
    pub in_grace: &'a dyn Fn(&Ours) -> bool,
    /// Gets every item of the window once.
    pub emit: &'a mut dyn FnMut(Scored) -> Result<(), E>,
}

/// Why a comparison ended early.
#[derive(Debug, thiserror::Error)]
pub enum MatchError<E> {
    /// The feed's own error.
    #[error("{0}")]
    Feed(E),
    /// A side is not sorted by (kind, name): the result would be wrong.
    #[error("{0:?} is not sorted by kind and name at item {1}")]
    Unsorted(Side, i64),
}

/// Compares two sides, both sorted by (kind, name), and tells every item of the window its bucket.
///
/// A line that repeats another under the same `line_ref` with the same amounts is the same line: it must not be given
/// twice. Lines that are to be merged into a payment must have been.
pub fn compare<E>(
    theirs: impl Iterator<Item = Result<Theirs, E>>,
    ours: impl Iterator<Item = Result<Ours, E>>,
    around: Around<E>,
) -> Result<(), MatchError<E>> {
    let mut run = Run {
        around,
        entries: Met::default(),
        lines: Met::default(),
        lone_lines: Vec::new(),
        lone_entries: Vec::new(),
    };
    let mut theirs = Groups::new(theirs, Side::Theirs);
    let mut ours = Groups::new(ours, Side::Ours);
    let (mut lines, mut entries) = (theirs.next()?, ours.next()?);
    loop {
        let order = match (&lines, &entries) {
            (None, None) => break,
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (Some(t), Some(o)) => key(&t[0]).cmp(&key(&o[0])),
        };
        if order != Ordering::Greater {
            let group = std::mem::replace(&mut lines, theirs.next()?).unwrap_or_default();
            if order == Ordering::Equal {
                let partners = std::mem::replace(&mut entries, ours.next()?).unwrap_or_default();
                run.group(group, partners).map_err(MatchError::Feed)?;
            } else {
                run.lone_lines.extend(group);
            }
        } else {
            run.lone_entries.extend(std::mem::replace(&mut entries, ours.next()?).unwrap_or_default());
        }
    }
    run.finish().map_err(MatchError::Feed)
}

/// What both sides are sorted by.
trait Keyed {
    fn key(&self) -> (&str, &str);
    fn item(&self) -> i64;
}

impl Keyed for Theirs {
    fn key(&self) -> (&str, &str) {
        (&self.kind, &self.name)
    }
    fn item(&self) -> i64 {
        self.item
    }
}

impl Keyed for Ours {
    fn key(&self) -> (&str, &str) {
        (&self.kind, &self.name)
    }
    fn item(&self) -> i64 {
        self.item
    }
}

fn key(item: &impl Keyed) -> (&str, &str) {
    item.key()
}

/// Items of one key at a time.
struct Groups<I, T> {
    items: I,
    side: Side,
    held: Option<T>,
}

impl<T: Keyed, E, I: Iterator<Item = Result<T, E>>> Groups<I, T> {
    fn new(items: I, side: Side) -> Self {
        Groups { items, side, held: None }
    }

    fn next(&mut self) -> Result<Option<Vec<T>>, MatchError<E>> {
        let first = match self.held.take() {
            Some(held) => held,
            None => match self.items.next() {
                None => return Ok(None),
                Some(item) => item.map_err(MatchError::Feed)?,
            },
        };
        let mut group = vec![first];
        for item in self.items.by_ref() {
            let item = item.map_err(MatchError::Feed)?;
            match item.key().cmp(&group[0].key()) {
                Ordering::Equal => group.push(item),
                Ordering::Less => return Err(MatchError::Unsorted(self.side, item.item())),
                Ordering::Greater => {
                    self.held = Some(item);
                    break;
                }
            }
        }
        Ok(Some(group))
    }
}

/// Whether two that belong together agree; the first difference in the order of precedence.
fn verdict(line: &Theirs, entry: &Ours) -> Bucket {
    let (amount, currency) = match line.shown {
        Some(shown) if shown.currency == entry.currency || line.currency != entry.currency => {
            (shown.minor, shown.currency)
        }
        _ => (line.gross, line.currency),
    };
    if currency != entry.currency {
        return if line.settled_only { Bucket::NotComparable } else { Bucket::CurrencyDiffers };
    }
    if amount.unsigned_abs() != entry.amount.unsigned_abs() {
        return Bucket::AmountDiffers;
    }
    match entry.fee {
        Some(fee) if fee.currency == line.currency && fee.minor != line.fee => Bucket::FeeDiffers,
        _ => Bucket::Matched,
    }
}

/// Ids that were met, as bits: ids of one run lie close together.
#[derive(Default)]
struct Met {
    pages: HashMap<i64, Box<[u64; 64]>>,
}

impl Met {
    fn place(id: i64) -> (i64, usize, u64) {
        (id >> 12, (id as usize >> 6) & 63, 1 << (id & 63))
    }

    fn insert(&mut self, id: i64) {
        let (page, word, bit) = Met::place(id);
        self.pages.entry(page).or_insert_with(|| Box::new([0; 64]))[word] |= bit;
    }

    fn contains(&self, id: i64) -> bool {
        let (page, word, bit) = Met::place(id);
        self.pages.get(&page).is_some_and(|page| page[word] & bit != 0)
    }
}

/// Did this very line (or the same row in an earlier report) settle that entry?
fn met_before(line: &Theirs, entry: &Ours) -> bool {
    entry.settled_by == Some(line.item) || entry.settled_ref.as_ref().is_some_and(|by| *by == line.line_ref)
}

struct Run<'a, E> {
    around: Around<'a, E>,
    /// Entries that have met a line.
    entries: Met,
    /// Lines that have met an entry.
    lines: Met,
    lone_lines: Vec<Theirs>,
    lone_entries: Vec<Ours>,
}

impl<E> Run<'_, E> {
    fn tell(&mut self, is_told: bool, scored: Scored) -> Result<(), E> {
        if is_told { (self.around.emit)(scored) } else { Ok(()) }
    }

    /// Two that belong together, exclusively.
    fn pair(&mut self, line: &Theirs, entry: &Ours, rule: Rule) -> Result<(), E> {
        if line.booked && entry.settled_by.is_none() {
            self.entries.insert(entry.item);
            self.lines.insert(line.item);
            // told by the line too: the entry may be of an earlier window
            let theirs = (Side::Theirs, line.item, line.in_window);
            self.alone(theirs, Bucket::DuplicateOurs, Some((entry.item, entry.in_window)), Some(rule))?;
            return self.second_entry(entry, (line.item, line.in_window), rule);
        }
        let rule = if met_before(line, entry) { Rule::LineRef } else { rule };
        let bucket = verdict(line, entry);
        self.entries.insert(entry.item);
        self.lines.insert(line.item);
        let theirs = Scored {
            side: Side::Theirs,
            item: line.item,
            bucket,
            partner: Some((entry.item, entry.in_window)),
            rule: Some(rule),
            named: line.name == entry.name,
            late_fee: bucket == Bucket::Matched && line.fee != 0 && entry.fee.is_none(),
        };
        let ours = Scored { side: Side::Ours, item: entry.item, partner: Some((line.item, line.in_window)), ..theirs };
        self.tell(line.in_window, theirs)?;
        self.tell(entry.in_window, ours)
    }

    fn alone(
        &mut self,
        (side, item, is_told): (Side, i64, bool),
        bucket: Bucket,
        partner: Option<(i64, bool)>,
        rule: Option<Rule>,
    ) -> Result<(), E> {
        self.tell(is_told, Scored { side, item, bucket, partner, rule, named: false, late_fee: false })
    }

    fn second_line(&mut self, line: &Theirs, entry: (i64, bool), rule: Rule) -> Result<(), E> {
        self.alone((Side::Theirs, line.item, line.in_window), Bucket::DuplicateTheirs, Some(entry), Some(rule))
    }

    fn second_entry(&mut self, entry: &Ours, line: (i64, bool), rule: Rule) -> Result<(), E> {
        self.alone((Side::Ours, entry.item, entry.in_window), Bucket::DuplicateOurs, Some(line), Some(rule))
    }

    /// A row that met its entry otherwise than by name is that entry's for ever, also where one of its name came since.
    /// False: there is none, or it has another line.
    fn by_what_it_settled(&mut self, line: &Theirs) -> Result<bool, E> {
        match (self.around.met)(&line.line_ref)? {
            Some(entry) if !self.entries.contains(entry.item) => {
                self.pair(line, &entry, Rule::LineRef)?;
                Ok(true)
            }
            _ => Ok(false),
        }
    }

    /// Lines and entries of one key.
    fn group(&mut self, all: Vec<Theirs>, mut entries: Vec<Ours>) -> Result<(), E> {
        let first_line = (all[0].item, all[0].in_window);
        let mut lines = Vec::with_capacity(all.len());
        for line in all {
            if !self.by_what_it_settled(&line)? {
                lines.push(line);
            }
        }
        entries.retain(|entry| !self.entries.contains(entry.item));
        if entries.is_empty() {
            self.lone_lines.extend(lines);
            return Ok(());
        }
        if let ([line], [entry]) = (lines.as_slice(), entries.as_slice())
            && (entry.settled_by.is_none() || met_before(line, entry))
        {
            return self.pair(line, entry, Rule::KindReference);
        }
        lines.sort_by_key(|l| l.item);
        entries.sort_by_key(|e| e.item);
        let first_line = lines.first().map_or(first_line, |line| (line.item, line.in_window));
        let first_entry = (entries[0].item, entries[0].in_window);
        // what met before meets again; then what is equal; then what is left, in order
        let free = |_: &Theirs, e: &Ours| e.settled_by.is_none();
        let equal = |l: &Theirs, e: &Ours| free(l, e) && matches!(verdict(l, e), Bucket::Matched | Bucket::FeeDiffers);
        for fits in [&met_before as &dyn Fn(&Theirs, &Ours) -> bool, &equal, &free] {
            let mut at = 0;
            while at < lines.len() {
                match entries.iter().position(|e| fits(&lines[at], e)) {
                    Some(found) => self.pair(&lines.remove(at), &entries.remove(found), Rule::KindReference)?,
                    None => at += 1,
                }
            }
        }
        for line in lines {
            self.second_line(&line, first_entry, Rule::KindReference)?;
        }
        for entry in entries {
            match entry.settled_by {
                Some(_) => self.lone_entries.push(entry),
                None => self.second_entry(&entry, first_line, Rule::KindReference)?,
            }
        }
        Ok(())
    }

    /// What found no partner under the name it is sorted by.
    fn finish(mut self) -> Result<(), E> {
        let mut lines = std::mem::take(&mut self.lone_lines);
        let mut entries = std::mem::take(&mut self.lone_entries);
        lines.sort_by_key(|l| l.item);
        entries.sort_by_key(|e| e.item);
        if entries.iter().any(|e| e.settled_by.is_none()) {
            // behind those of this report: a movement that came late meets the line that missed it, by every rule
            lines.extend((self.around.open)()?);
        }
        let mut names: HashMap<(&str, &str), &Ours> = HashMap::new();
        for entry in &entries {
            for name in entry.aliases.iter().chain([&entry.name]) {
                names.entry((&entry.kind, name)).or_insert(entry);
            }
        }
        let mut still = Vec::new();
        for line in lines {
            if !self.by_what_it_settled(&line)? && !self.by_name(&line, &names)? {
                still.push(line);
            }
        }
        let mut by_parent: HashMap<(&str, &str), Vec<&Ours>> = HashMap::new();
        if still.iter().any(|line| line.by_parent) {
            for entry in &entries {
                if let Some(parent) = &entry.parent {
                    by_parent.entry((&entry.kind, parent)).or_default().push(entry);
                }
            }
        }
        for line in still {
            if !self.by_relation(&line, &by_parent)? {
                let bucket = match () {
                    () if line.pending => Bucket::PendingTheirs,
                    () if line.provider_only => Bucket::ProviderOnly,
                    () if line.not_ours => Bucket::NotOurs,
                    () => Bucket::MissingOurs,
                };
                self.alone((Side::Theirs, line.item, line.in_window), bucket, None, None)?;
            }
        }
        let mut asked = Vec::new();
        for entry in &entries {
            if self.entries.contains(entry.item) {
                continue;
            }
            let by = match entry.settled_by {
                Some(line) => (self.around.line)(line)?,
                None => None,
            };
            match by.filter(|line| !self.lines.contains(line.item) && verdict(line, entry) == Bucket::Matched) {
                Some(line) => self.pair(&line, entry, Rule::LineRef)?,
                None => asked.push(entry),
            }
        }
        if asked.is_empty() {
            return Ok(());
        }
        let found = (self.around.theirs)(&asked)?;
        for (entry, line) in asked.into_iter().zip(found) {
            self.lone_entry(entry, line)?;
        }
        Ok(())
    }

    /// A line whose partner has another name, or lies beyond the window. False: it has none.
    fn by_name(&mut self, line: &Theirs, names: &HashMap<(&str, &str), &Ours>) -> Result<bool, E> {
        for (name, rule) in [(Some(&line.name), Rule::KindReference), (line.other.as_ref(), Rule::KindAlias)] {
            let Some(name) = name.filter(|n| !n.is_empty()) else { continue };
            let entry = match names.get(&(&*line.kind, name.as_str())) {
                Some(entry) => Some((*entry).clone()),
                None => (self.around.ours)(&line.kind, name)?,
            };
            let Some(entry) = entry else { continue };
            let rule = if entry.name == *name { rule } else { Rule::KindAlias };
            let taken = self.entries.contains(entry.item) || (entry.settled_by.is_some() && !met_before(line, &entry));
            if taken && entry.settled_by != Some(line.item) {
                self.second_line(line, (entry.item, entry.in_window), rule)?;
            } else {
                self.pair(line, &entry, rule)?;
            }
            return Ok(true);
        }
        Ok(false)
    }

    /// A line without a movement's name: by the movement it belongs to, or by the merchant's order, with the same amount
    /// and free on both sides. False: it has none.
    fn by_relation(&mut self, line: &Theirs, by_parent: &HashMap<(&str, &str), Vec<&Ours>>) -> Result<bool, E> {
        let fits = |run: &Self, entry: &Ours| {
            let free = !run.entries.contains(entry.item) && entry.settled_by.is_none();
            free && entry.kind == line.kind && verdict(line, entry) == Bucket::Matched
        };
        let parent = line.parent.as_deref().filter(|_| line.by_parent);
        let of_parent = parent.and_then(|parent| by_parent.get(&(&*line.kind, parent)));
        if let Some(entry) = of_parent.and_then(|all| all.iter().find(|entry| fits(self, entry))) {
            self.pair(line, entry, Rule::Parent)?;
            return Ok(true);
        }
        if let Some(order) = &line.order
            && let Some(entry) = (self.around.of_order)(order)?
            && fits(self, &entry)
        {
            self.pair(line, &entry, Rule::Order)?;
            return Ok(true);
        }
        Ok(false)
    }

    /// An entry without a line in the report, and the one that an earlier report has of its name.
    fn lone_entry(&mut self, entry: &Ours, line: Option<Theirs>) -> Result<(), E> {
        if let Some(line) = line {
            let other = (self.around.met)(&line.line_ref)?.is_some_and(|other| other.item != entry.item);
            if other || self.lines.contains(line.item) {
                return self.second_entry(entry, (line.item, line.in_window), Rule::KindAlias);
            }
            if !line.in_window {
                return self.pair(&line, entry, Rule::KindReference);
            }
        }
        let scored = (Side::Ours, entry.item, entry.in_window);
        if let Some(line) = entry.settled_by {
            // its line lies in an earlier report: what they differed in was told then
            return self.alone(scored, Bucket::Matched, Some((line, false)), Some(Rule::LineRef));
        }
        let bucket = if (self.around.in_grace)(entry) { Bucket::InTransit } else { Bucket::MissingTheirs };
        self.alone(scored, bucket, None, None)
    }
}

#[cfg(test)]
#[path = "matching_tests.rs"]
mod tests;
