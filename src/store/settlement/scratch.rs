//! Lines between the report and its table: gathered as they come, then named as the ledger names them, and sorted.
//!
//! They are packed, and what is more than a few megabytes lies in files without a name, so that a list of any length
//! holds neither memory nor the write lock; while lines gather the database is not looked at, since a pull may wait
//! long for its provider. Naming reads the claims in their own order, on both cores where there is much of it.

use super::packed::{Line, Lines};
use super::walk::{self, By};
use crate::error::{Error, Result};
use crate::event::Millis;
use crate::providers::report::ReportLine;
use crate::settlement::sorter::{Merged, Record, Sorter, nameless};
use crate::store::{beside, open_for_reading};
use rusqlite::Connection;
use sha2::{Digest as _, Sha256};
use std::borrow::Cow;
use std::collections::HashMap;
use std::fs::File;
use std::hash::{BuildHasher as _, RandomState};
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// Lines that are named and sorted in one piece.
const PIECE: usize = 30_000;
/// So many look at the claims at a time.
const NAMERS: usize = 2;

/// What went wrong beside the database.
pub fn aside(e: &io::Error) -> Error {
    Error::refused(format!("lines cannot be laid aside beside the database: {e}"), "is the disk full?")
}

/// A kind that has two directions, by that of the money: what comes back has a key and a booking of its own.
pub fn kind_by_direction(kind: &str, money_in: bool) -> &str {
    match (kind, money_in) {
        ("fee", true) => "fee_reversal",
        ("fee_reversal", false) => "fee",
        ("reserve", true) => "reserve_release",
        ("hold", true) => "hold_release",
        ("hold_release", false) => "hold",
        ("conversion", true) => "conversion_in",
        ("conversion", false) => "conversion_out",
        ("adjustment", false) => "adjustment_out",
        (kind, _) => kind,
    }
}

/// Where lines gather.
pub struct Scratch {
    database: PathBuf,
    window: Option<(Millis, Millis)>,
    /// Pieces laid aside: where, how many bytes, how many lines.
    file: Option<File>,
    pieces: Vec<(u64, usize, usize)>,
    held: Lines,
    /// Lines that are to be added to their payment's.
    merges: Lines,
    added: u64,
    hash: Option<Sha256>,
    ordinals: HashMap<u64, u32>,
    hasher: RandomState,
    span: Option<(Millis, Millis)>,
    within: u64,
    tail: Vec<u8>,
    payload: Vec<u8>,
}

/// What is added to a line.
#[derive(Clone, Copy, Default)]
struct More {
    gross: i64,
    tax: i64,
    fee: i64,
    net: i64,
}

impl Scratch {
    /// An empty one, whose lines will be named by the database at `path`. Lines inside of `window` are counted; a list
    /// has its content hashed on the way, a file is hashed as it is.
    pub fn open(path: &Path, window: Option<(Millis, Millis)>, list: bool) -> Scratch {
        Scratch {
            database: path.to_owned(),
            window,
            file: None,
            pieces: Vec::new(),
            held: Lines::default(),
            merges: Lines::default(),
            added: 0,
            hash: list.then(Sha256::new),
            ordinals: HashMap::new(),
            hasher: RandomState::new(),
            span: None,
            within: 0,
            tail: Vec::new(),
            payload: Vec::new(),
        }
    }

    /// How many lines there are.
    pub fn len(&self) -> u64 {
        self.added
    }

    /// Is there none?
    pub fn is_empty(&self) -> bool {
        self.added == 0
    }

    /// SHA-256 of a list: what was gathered, in order, and the window that was asked for: two empty days are two lists.
    pub fn sha256(&self, (from, to): (Millis, Millis)) -> [u8; 32] {
        let mut hash = self.hash.clone().unwrap_or_default();
        hash.update(from.to_be_bytes());
        hash.update(to.to_be_bytes());
        hash.finalize().into()
    }

    /// When the first and the last happened.
    pub fn span(&self) -> Option<(Millis, Millis)> {
        self.span
    }

    /// Did any line happen or become available inside of the window, or does one not say when?
    pub fn touches_window(&self) -> bool {
        self.within > 0
    }

    /// Adds a line.
    pub fn add(&mut self, line: &ReportLine) -> Result<()> {
        self.added += 1;
        let kind = kind_by_direction(&line.kind, line.net > 0 || (line.net == 0 && line.gross > 0));
        let total = line.running_total.then(|| line.gross.unsigned_abs());
        let named = |name: &'_ Option<String>| -> Option<Cow<'_, str>> {
            match (name, total) {
                (Some(name), Some(total)) => Some(Cow::Owned(format!("{name}@{total}"))),
                (Some(name), None) => Some(Cow::Owned(name.clone())),
                (None, _) => None,
            }
        };
        let of_total = total.map(|_| (named(&line.reference), named(&line.ref_alt)));
        let (reference, ref_alt) = match &of_total {
            Some((reference, ref_alt)) => (reference.as_deref(), ref_alt.as_deref()),
            None => (line.reference.as_deref(), line.ref_alt.as_deref()),
        };
        let line_ref: Cow<str> = match &line.line_ref {
            Some(id) => Cow::Borrowed(id),
            None => {
                let names = [reference, ref_alt, line.order.as_deref(), line.parent.as_deref()];
                let (name, at) = (names.into_iter().flatten().next(), line.occurred_at.unwrap_or(0));
                let made = format!("{kind}|{}|{at}|{}|{}", name.unwrap_or_default(), line.gross, line.fee);
                let ordinal = self.ordinals.entry(self.hasher.hash_one(&made)).or_insert(0);
                *ordinal += 1;
                Cow::Owned(format!("{made}|{ordinal}"))
            }
        };
        if let Some(hash) = &mut self.hash {
            for text in [kind, &line_ref, line.currency.code(), reference.unwrap_or("")] {
                hash.update(text.as_bytes());
                hash.update([0]);
            }
            let happened = line.occurred_at.unwrap_or(0);
            for number in [line.gross, line.tax, line.fee, line.net, happened, i64::from(line.pending)] {
                hash.update(number.to_be_bytes());
            }
        }
        if let Some(at) = line.occurred_at {
            let (first, last) = self.span.unwrap_or((at, at));
            self.span = Some((first.min(at), last.max(at)));
        }
        let inside = |at: Millis| self.window.is_none_or(|(from, to)| at >= from && at < to);
        self.within += u64::from(line.occurred_at.is_none_or(inside) || line.available_at.is_some_and(inside));
        let packed = Line {
            kind,
            name: "",
            place: line.line as i64,
            line_ref: &line_ref,
            reference,
            ref_alt,
            parent: line.parent.as_deref(),
            order: line.order.as_deref(),
            gross: line.gross,
            tax: line.tax,
            fee: line.fee,
            net: line.net,
            currency: line.currency,
            shown: line.shown,
            occurred_at: line.occurred_at,
            available_at: line.available_at,
            payout_ref: line.payout_ref.as_deref(),
            pending: line.pending,
            unknown_kind: line.unknown_kind.as_deref(),
            also: None,
        };
        packed.tail(&mut self.tail);
        packed.payload(&mut self.payload);
        let record = Record { kind: kind.as_bytes(), name: b"", tail: &self.tail, payload: &self.payload };
        if line.merge && line.parent.is_some() {
            self.merges.add(&record);
            return Ok(());
        }
        self.held.add(&record);
        if self.held.len() >= PIECE { self.lay_aside().map_err(|e| aside(&e)) } else { Ok(()) }
    }

    fn lay_aside(&mut self) -> io::Result<()> {
        let file = match &mut self.file {
            Some(file) => file,
            none => none.insert(nameless(&beside(&self.database, "-postonce-lines.tmp"))?),
        };
        let held = std::mem::take(&mut self.held);
        let at = self.pieces.last().map_or(0, |(at, bytes, _)| at + *bytes as u64);
        file.write_all_at(held.bytes(), at)?;
        self.pieces.push((at, held.bytes().len(), held.len()));
        Ok(())
    }

    fn piece(&self, number: usize) -> io::Result<Lines> {
        let (at, bytes, count) = self.pieces[number];
        let mut read = vec![0; bytes];
        match &self.file {
            Some(file) => file.read_exact_at(&mut read, at)?,
            None => return Err(io::ErrorKind::NotFound.into()),
        }
        Ok(Lines::from_bytes(read, count))
    }

    /// Adds what is to be added to its payment, names every line as the ledger of `book` does, and sorts.
    pub fn sort(mut self, book: i64) -> Result<Merged> {
        self.ordinals = HashMap::new();
        let added = if self.merges.is_empty() { HashMap::new() } else { self.merge().map_err(|e| aside(&e))? };
        let next = AtomicUsize::new(0);
        let (this, added) = (&self, &added);
        let sorter = |number: usize| -> Result<(Connection, Sorter)> {
            let path = beside(&this.database, &format!("-postonce-sort-{number}.tmp"));
            Ok((open_for_reading(&this.database)?, Sorter::new(&path).map_err(|e| aside(&e))?))
        };
        let (conn, mut first) = sorter(0)?;
        let pieces = |conn: &Connection, sorter: &mut Sorter| -> Result<()> {
            loop {
                let number = next.fetch_add(1, Relaxed);
                if number >= this.pieces.len() {
                    return Ok(());
                }
                name(conn, book, &this.piece(number).map_err(|e| aside(&e))?, added, sorter)?;
            }
        };
        let mut sorters = std::thread::scope(|scope| -> Result<Vec<Sorter>> {
            let others: Vec<_> = (1..NAMERS.min(this.pieces.len()))
                .map(|number| {
                    scope.spawn(move || -> Result<Sorter> {
                        let (conn, mut other) = sorter(number)?;
                        pieces(&conn, &mut other)?;
                        Ok(other)
                    })
                })
                .collect();
            pieces(&conn, &mut first)?;
            let lost = || Error::Apply("a thread that sorted lines was lost".into());
            others.into_iter().map(|other| other.join().map_err(|_| lost())?).collect()
        })?;
        name(&conn, book, &self.held, added, &mut first)?;
        sorters.push(first);
        Sorter::merged(sorters).map_err(|e| aside(&e))
    }

    /// Finds the payment of each line that is to be added to one, by its reference and then by its other name. Gives
    /// what is added, by place and row id; what found none stays a line.
    fn merge(&mut self) -> io::Result<HashMap<(i64, String), More>> {
        type Key = (String, [u8; 3], String);
        let key = |kind: &str, line: &Line, name: &str| -> Key {
            (kind.to_owned(), line.currency.code().as_bytes().try_into().unwrap_or_default(), name.to_owned())
        };
        let merges = std::mem::take(&mut self.merges);
        let mut sums: HashMap<Key, More> = HashMap::new();
        for line in merges.iter() {
            let sum = sums.entry(key(line.kind, &line, line.parent.unwrap_or_default())).or_default();
            sum.gross += line.gross;
            sum.tax += line.tax;
            sum.fee += line.fee;
            sum.net += line.net;
        }
        let mut added = HashMap::new();
        for by_alt in [false, true] {
            for number in 0..=self.pieces.len() {
                let read = if number < self.pieces.len() { Some(self.piece(number)?) } else { None };
                for line in read.as_ref().unwrap_or(&self.held).iter() {
                    let Some(name) = (if by_alt { line.ref_alt } else { line.reference }) else { continue };
                    if let Some(more) = sums.remove(&key(line.kind, &line, name)) {
                        added.insert((line.place, line.line_ref.to_owned()), more);
                    }
                }
            }
        }
        let (mut tail, mut payload) = (Vec::new(), Vec::new());
        for line in merges.iter() {
            if sums.contains_key(&key(line.kind, &line, line.parent.unwrap_or_default())) {
                line.tail(&mut tail);
                line.payload(&mut payload);
                self.held.add(&Record { kind: line.kind.as_bytes(), name: b"", tail: &tail, payload: &payload });
            }
        }
        Ok(added)
    }
}

/// A movement that a claim leads to.
struct Known<'l> {
    name: Cow<'l, str>,
    journal: Option<i64>,
}

/// Names lines as the ledger does: by the claim of the reference, or else of the other name, or as they call themselves.
fn name(
    conn: &Connection,
    book: i64,
    lines: &Lines,
    added: &HashMap<(i64, String), More>,
    sorter: &mut Sorter,
) -> Result<()> {
    let lines: Vec<Line> = lines.iter().collect();
    let mut asked: Vec<(&str, &str, u32, bool)> = Vec::with_capacity(lines.len() * 2);
    for (at, line) in lines.iter().enumerate() {
        asked.extend(line.reference.map(|name| (line.kind, name, at as u32, false)));
        asked.extend(line.ref_alt.map(|name| (line.kind, name, at as u32, true)));
    }
    asked.sort_unstable();
    let mut known: Vec<[Option<Known>; 2]> = Vec::with_capacity(lines.len());
    known.resize_with(lines.len(), || [None, None]);
    for of_kind in asked.chunk_by(|a, b| a.0 == b.0) {
        let names: Vec<&str> = of_kind.iter().map(|(_, name, ..)| *name).collect();
        walk::claims(conn, (book, of_kind[0].0), By::Reference, &names, &mut |at, row| {
            let (_, name, line, alt) = of_kind[at];
            let name = match row.get::<_, Option<String>>(1)? {
                Some(movement) => Cow::Owned(movement),
                None => Cow::Borrowed(name),
            };
            known[line as usize][usize::from(alt)] = Some(Known { name, journal: row.get(2)? });
            Ok(())
        })?;
    }
    let (mut tail, mut payload) = (Vec::new(), Vec::new());
    for (line, known) in lines.iter().zip(&known) {
        let mut line = *line;
        let [own, other] = known;
        line.name = match (own, other) {
            (Some(known), _) | (None, Some(known)) => &known.name,
            (None, None) => line.reference.or(line.ref_alt).unwrap_or_default(),
        };
        if let (Some(own), Some(other)) = (own, other)
            && own.name != other.name
        {
            line.also = other.journal;
        }
        if !added.is_empty()
            && let Some(more) = added.get(&(line.place, line.line_ref.to_owned()))
        {
            line.gross += more.gross;
            line.tax += more.tax;
            line.fee += more.fee;
            line.net += more.net;
        }
        line.tail(&mut tail);
        line.payload(&mut payload);
        let record = Record { kind: line.kind.as_bytes(), name: line.name.as_bytes(), tail: &tail, payload: &payload };
        sorter.add(record).map_err(|e| aside(&e))?;
    }
    Ok(())
}
