//! A line between the report and its table (and an entry on its way to it): packed into bytes, so that a million of them
//! can be sorted and handed to the writer without a text of its own for every cell.
//!
//! Borrowed going in and coming out. Lives in files without names only: the form may change with every build.

use super::reports::StoredLine;
use crate::event::Millis;
use crate::money::{Currency, Money};
use crate::settlement::sorter::Record;

/// A line, borrowed. The fields are those of [`StoredLine`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct Line<'a> {
    pub kind: &'a str,
    pub name: &'a str,
    pub place: i64,
    pub line_ref: &'a str,
    pub reference: Option<&'a str>,
    pub ref_alt: Option<&'a str>,
    pub parent: Option<&'a str>,
    pub order: Option<&'a str>,
    pub gross: i64,
    pub tax: i64,
    pub fee: i64,
    pub net: i64,
    pub currency: Currency,
    pub shown: Option<Money>,
    pub occurred_at: Option<Millis>,
    pub available_at: Option<Millis>,
    pub payout_ref: Option<&'a str>,
    pub pending: bool,
    pub unknown_kind: Option<&'a str>,
    pub also: Option<i64>,
}

fn number(into: &mut Vec<u8>, value: i64) {
    let mut rest = ((value << 1) ^ (value >> 63)) as u64;
    while rest >= 0x80 {
        into.push(rest as u8 | 0x80);
        rest >>= 7;
    }
    into.push(rest as u8);
}

fn maybe(into: &mut Vec<u8>, value: Option<i64>) {
    into.push(u8::from(value.is_some()));
    if let Some(value) = value {
        number(into, value);
    }
}

fn text(into: &mut Vec<u8>, value: Option<&str>) {
    number(into, value.map_or(-1, |v| v.len() as i64));
    into.extend_from_slice(value.unwrap_or_default().as_bytes());
}

/// Reads what the functions above wrote.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }

    fn number(&mut self) -> Option<i64> {
        let (mut value, mut shift) = (0u64, 0);
        loop {
            let byte = self.byte()?;
            value |= u64::from(byte & 0x7f).checked_shl(shift)?;
            shift += 7;
            if byte < 0x80 {
                return Some((value >> 1) as i64 ^ -((value & 1) as i64));
            }
        }
    }

    fn maybe(&mut self) -> Option<Option<i64>> {
        if self.byte()? == 0 { Some(None) } else { self.number().map(Some) }
    }

    fn text(&mut self) -> Option<Option<&'a str>> {
        let Ok(length) = usize::try_from(self.number()?) else { return Some(None) };
        let (text, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        std::str::from_utf8(text).ok().map(Some)
    }

    fn currency(&mut self) -> Option<Currency> {
        let (code, rest) = self.0.split_at_checked(3)?;
        self.0 = rest;
        std::str::from_utf8(code).ok().and_then(Currency::parse)
    }
}

impl<'a> Line<'a> {
    /// What is sorted behind (kind, name): the row's own id, then its place.
    pub fn tail(&self, into: &mut Vec<u8>) {
        into.clear();
        into.extend_from_slice(self.line_ref.as_bytes());
        into.extend_from_slice(&self.place.to_be_bytes());
    }

    /// Everything that is not in the key.
    pub fn payload(&self, into: &mut Vec<u8>) {
        into.clear();
        text(into, self.reference);
        text(into, self.ref_alt);
        text(into, self.parent);
        text(into, self.order);
        text(into, self.payout_ref);
        text(into, self.unknown_kind);
        [self.gross, self.tax, self.fee, self.net].iter().for_each(|n| number(into, *n));
        into.extend_from_slice(self.currency.code().as_bytes());
        maybe(into, self.shown.map(|m| m.minor));
        into.extend_from_slice(self.shown.as_ref().map_or("EUR", |m| m.currency.code()).as_bytes());
        maybe(into, self.occurred_at);
        maybe(into, self.available_at);
        into.push(u8::from(self.pending));
        maybe(into, self.also);
    }

    /// A line from its record; `None`: it is none.
    pub fn of(record: &Record<'a>) -> Option<Line<'a>> {
        let whole = |bytes| std::str::from_utf8(bytes).ok();
        let (line_ref, place) = record.tail.split_last_chunk::<8>()?;
        let mut r = Reader(record.payload);
        let (reference, ref_alt, parent, order) = (r.text()?, r.text()?, r.text()?, r.text()?);
        let (payout_ref, unknown_kind) = (r.text()?, r.text()?);
        let (gross, tax, fee, net) = (r.number()?, r.number()?, r.number()?, r.number()?);
        let currency = r.currency()?;
        let (shown, shown_currency) = (r.maybe()?, r.currency()?);
        Some(Line {
            kind: whole(record.kind)?,
            name: whole(record.name)?,
            place: i64::from_be_bytes(*place),
            line_ref: whole(line_ref)?,
            reference,
            ref_alt,
            parent,
            order,
            gross,
            tax,
            fee,
            net,
            currency,
            shown: shown.map(|minor| Money { minor, currency: shown_currency }),
            occurred_at: r.maybe()?,
            available_at: r.maybe()?,
            payout_ref,
            pending: r.byte()? != 0,
            unknown_kind,
            also: r.maybe()?,
        })
    }

    /// The line with a number, of its own.
    pub fn stored(&self, id: i64) -> StoredLine {
        let own = |text: Option<&str>| text.map(str::to_owned);
        StoredLine {
            id,
            kind: self.kind.to_owned(),
            name: self.name.to_owned(),
            place: self.place,
            line_ref: self.line_ref.to_owned(),
            reference: own(self.reference),
            ref_alt: own(self.ref_alt),
            parent: own(self.parent),
            order: own(self.order),
            gross: self.gross,
            tax: self.tax,
            fee: self.fee,
            net: self.net,
            currency: self.currency,
            shown: self.shown,
            occurred_at: self.occurred_at,
            available_at: self.available_at,
            payout_ref: own(self.payout_ref),
            pending: self.pending,
            unknown_kind: own(self.unknown_kind),
            also: self.also,
        }
    }
}

/// An entry, borrowed: what is compared of it besides kind, name and number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct Entry<'a> {
    pub parent: Option<&'a str>,
    pub amount: i64,
    pub currency: Currency,
    pub occurred_at: Millis,
    pub settled_by: Option<i64>,
    pub settled_ref: Option<&'a str>,
    pub fee: Option<Money>,
}

impl<'a> Entry<'a> {
    /// Everything that is not in the key.
    pub fn payload(&self, into: &mut Vec<u8>) {
        into.clear();
        text(into, self.parent);
        text(into, self.settled_ref);
        number(into, self.amount);
        number(into, self.occurred_at);
        maybe(into, self.settled_by);
        into.extend_from_slice(self.currency.code().as_bytes());
        maybe(into, self.fee.map(|m| m.minor));
        into.extend_from_slice(self.fee.as_ref().map_or("EUR", |m| m.currency.code()).as_bytes());
    }

    /// An entry from its record; `None`: it is none.
    pub fn of(record: &Record<'a>) -> Option<Entry<'a>> {
        let mut r = Reader(record.payload);
        let (parent, settled_ref) = (r.text()?, r.text()?);
        let (amount, occurred_at, settled_by) = (r.number()?, r.number()?, r.maybe()?);
        let currency = r.currency()?;
        let (fee, fee_currency) = (r.maybe()?, r.currency()?);
        let fee = fee.map(|minor| Money { minor, currency: fee_currency });
        Some(Entry { parent, amount, currency, occurred_at, settled_by, settled_ref, fee })
    }
}

/// Lines one behind the other, for one piece of the writer's work.
#[derive(Default)]
pub struct Lines {
    bytes: Vec<u8>,
    count: usize,
}

impl Lines {
    /// Adds a record as it is.
    pub fn add(&mut self, record: &Record) {
        for part in [record.kind, record.name, record.tail, record.payload] {
            number(&mut self.bytes, part.len() as i64);
            self.bytes.extend_from_slice(part);
        }
        self.count += 1;
    }

    /// All of them as bytes, and back.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// So many lines from their [`Lines::bytes`].
    pub fn from_bytes(bytes: Vec<u8>, count: usize) -> Lines {
        Lines { bytes, count }
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Is there none?
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// All of them, in order.
    pub fn iter(&self) -> impl Iterator<Item = Line<'_>> {
        let mut rest = Reader(&self.bytes);
        std::iter::from_fn(move || {
            let mut part = || {
                let length = usize::try_from(rest.number()?).ok()?;
                let (part, tail) = rest.0.split_at_checked(length)?;
                rest.0 = tail;
                Some(part)
            };
            Line::of(&Record { kind: part()?, name: part()?, tail: part()?, payload: part()? })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_line_comes_out_as_it_went_in(
            texts in proptest::collection::vec(proptest::option::of("\\PC{0,12}"), 8),
            numbers in proptest::collection::vec(proptest::option::of(any::<i64>()), 8),
        ) {
            let text = |at: usize| texts[at].as_deref();
            let sure = |at: usize| numbers[at].unwrap_or(i64::MIN);
            let line = Line {
                kind: "payment",
                name: text(0).unwrap_or_default(),
                place: sure(0),
                line_ref: text(1).unwrap_or_default(),
                reference: text(2),
                ref_alt: text(3),
                parent: text(4),
                order: text(5),
                gross: sure(1),
                tax: sure(2),
                fee: sure(3),
                net: sure(4),
                currency: Currency::parse("KWD").unwrap(),
                shown: numbers[5].map(|minor| Money { minor, currency: Currency::parse("JPY").unwrap() }),
                occurred_at: numbers[6],
                available_at: numbers[7],
                payout_ref: text(6),
                pending: numbers[0].is_some(),
                unknown_kind: text(7),
                also: numbers[1],
            };
            let (mut tail, mut payload) = (Vec::new(), Vec::new());
            line.tail(&mut tail);
            line.payload(&mut payload);
            let record =
                Record { kind: line.kind.as_bytes(), name: line.name.as_bytes(), tail: &tail, payload: &payload };
            prop_assert_eq!(Line::of(&record), Some(line));
            let mut lines = Lines::default();
            (0..3).for_each(|_| lines.add(&record));
            prop_assert_eq!(lines.iter().collect::<Vec<_>>(), vec![line; 3]);
        }
    }
}
