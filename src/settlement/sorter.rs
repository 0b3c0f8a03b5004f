//! Sorts any number of records by (kind, name, tail) in bounded memory: batches are sorted and laid aside in a file,
//! then read back as one ordered stream. Both sides of a comparison come this way.
//!
//! A record is its key and a payload that nobody here looks into. The file is gone with the sorter, whatever happens.

use std::cmp::Ordering;
use std::fs::File;
use std::io::{self, BufWriter, Write as _};
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Bytes that are sorted in one piece.
const BATCH: usize = 8 << 20;
/// Bytes read ahead of each piece when they are brought together.
const AHEAD: usize = 64 << 10;

/// Collects records.
pub struct Sorter {
    file: File,
    end: u64,
    pieces: Vec<(u64, u64)>,
    batch: Vec<u8>,
    starts: Vec<u32>,
    count: u64,
}

/// A file without a name, beside the database: gone with its last handle. It begins with a name that nobody else has.
pub fn nameless(path: &Path) -> io::Result<File> {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{}-{}", std::process::id(), NEXT.fetch_add(1, Relaxed)));
    let file = File::options().create_new(true).read(true).write(true).mode(0o600).open(&name)?;
    std::fs::remove_file(&name)?;
    Ok(file)
}

fn put(into: &mut Vec<u8>, part: &[u8]) {
    into.extend_from_slice(&(part.len() as u32).to_le_bytes());
    into.extend_from_slice(part);
}

/// Takes a length and that many bytes off the front; `None`: it is cut off.
fn take<'r>(rest: &mut &'r [u8]) -> Option<&'r [u8]> {
    let (length, tail) = rest.split_first_chunk::<4>()?;
    let (part, tail) = tail.split_at_checked(u32::from_le_bytes(*length) as usize)?;
    *rest = tail;
    Some(part)
}

/// A record, taken apart.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Record<'r> {
    /// First sorted by this.
    pub kind: &'r [u8],
    /// Then by this.
    pub name: &'r [u8],
    /// And last by this.
    pub tail: &'r [u8],
    /// The rest.
    pub payload: &'r [u8],
}

/// Takes a record apart; `None`: it is none.
fn apart(mut bytes: &[u8]) -> Option<Record<'_>> {
    let rest = &mut bytes;
    let (kind, name, tail) = (take(rest)?, take(rest)?, take(rest)?);
    Some(Record { kind, name, tail, payload: bytes })
}

impl<'r> Record<'r> {
    fn key(&self) -> (&'r [u8], &'r [u8], &'r [u8]) {
        (self.kind, self.name, self.tail)
    }
}

impl Sorter {
    /// An empty one that lays aside in `path`.
    pub fn new(path: &Path) -> io::Result<Sorter> {
        let file = nameless(path)?;
        Ok(Sorter { file, end: 0, pieces: Vec::new(), batch: Vec::new(), starts: Vec::new(), count: 0 })
    }

    /// Adds a record.
    pub fn add(&mut self, record: Record) -> io::Result<()> {
        let start = self.batch.len();
        self.batch.extend_from_slice(&[0; 4]);
        for part in [record.kind, record.name, record.tail] {
            put(&mut self.batch, part);
        }
        self.batch.extend_from_slice(record.payload);
        let length = (self.batch.len() - start - 4) as u32;
        self.batch[start..start + 4].copy_from_slice(&length.to_le_bytes());
        self.starts.push(start as u32);
        self.count += 1;
        if self.batch.len() >= BATCH { self.lay_aside() } else { Ok(()) }
    }

    /// How many records there are.
    pub fn len(&self) -> u64 {
        self.count
    }

    /// Is there none?
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    fn lay_aside(&mut self) -> io::Result<()> {
        let record = |start: u32| {
            let mut rest = &self.batch[start as usize..];
            take(&mut rest).and_then(apart).expect("it was just added")
        };
        // most comparisons end in the first bytes of kind and name, which lie beside each other this way
        let mut order: Vec<(u64, u128, u32)> = self.starts.iter().map(|start| hint(&record(*start), *start)).collect();
        order.sort_unstable_by(|a, b| match (a.0, a.1).cmp(&(b.0, b.1)) {
            Ordering::Equal => record(a.2).key().cmp(&record(b.2).key()),
            other => other,
        });
        let mut out = BufWriter::with_capacity(1 << 20, &self.file);
        let begin = self.end;
        for (_, _, start) in order {
            let whole = {
                let mut rest = &self.batch[start as usize..];
                let length = take(&mut rest).map_or(0, <[u8]>::len);
                &self.batch[start as usize..start as usize + 4 + length]
            };
            out.write_all(whole)?;
            self.end += whole.len() as u64;
        }
        out.flush()?;
        drop(out);
        self.pieces.push((begin, self.end));
        self.batch.clear();
        self.starts.clear();
        Ok(())
    }

    /// Everything that several sorters collected, in order.
    pub fn merged(sorters: Vec<Sorter>) -> io::Result<Merged> {
        let mut merged = Merged { pieces: Vec::new(), heap: Vec::new(), begun: false };
        for mut sorter in sorters {
            if !sorter.batch.is_empty() {
                sorter.lay_aside()?;
            }
            let file = Arc::new(sorter.file);
            for (at, end) in sorter.pieces {
                let mut piece = Piece { file: file.clone(), at, end, held: Vec::new(), from: 0, head: 0 };
                if piece.advance()? {
                    merged.heap.push(merged.pieces.len());
                    merged.pieces.push(piece);
                }
            }
        }
        for at in (0..merged.heap.len() / 2).rev() {
            merged.sink(at);
        }
        Ok(merged)
    }
}

/// The first bytes of kind and name, in an order that never contradicts theirs.
fn hint(record: &Record, start: u32) -> (u64, u128, u32) {
    fn first<const N: usize>(text: &[u8]) -> [u8; N] {
        let mut first = [0; N];
        let length = text.len().min(N);
        first[..length].copy_from_slice(&text[..length]);
        first
    }
    let kind = u64::from_be_bytes(first(record.kind));
    // kinds that begin alike must not be told apart by their names
    let name = if record.kind.len() < 8 { u128::from_be_bytes(first(record.name)) } else { 0 };
    (kind, name, start)
}

/// An ordered piece of the file, read as it is needed.
struct Piece {
    file: Arc<File>,
    at: u64,
    end: u64,
    held: Vec<u8>,
    from: usize,
    /// Length of the record that stands at `from`.
    head: usize,
}

impl Piece {
    fn record(&self) -> Record<'_> {
        apart(&self.held[self.from + 4..self.from + 4 + self.head]).unwrap_or(Record {
            kind: b"",
            name: b"",
            tail: b"",
            payload: b"",
        })
    }

    /// Moves to the record after the one at hand; `false`: there is none.
    fn advance(&mut self) -> io::Result<bool> {
        if self.head > 0 {
            self.from += 4 + self.head;
        }
        if !self.hold(4)? {
            return Ok(false);
        }
        let length: [u8; 4] = self.held[self.from..self.from + 4].try_into().map_err(|_| cut())?;
        self.head = u32::from_le_bytes(length) as usize;
        if !self.hold(4 + self.head)? || apart(&self.held[self.from + 4..self.from + 4 + self.head]).is_none() {
            return Err(cut());
        }
        Ok(true)
    }

    /// Are so many bytes at hand, or can they be had?
    fn hold(&mut self, wanted: usize) -> io::Result<bool> {
        while self.held.len() - self.from < wanted {
            if self.at >= self.end {
                return Ok(false);
            }
            self.held.drain(..self.from);
            self.from = 0;
            let more = (self.end - self.at).min(AHEAD.max(wanted) as u64) as usize;
            let before = self.held.len();
            self.held.resize(before + more, 0);
            self.file.read_exact_at(&mut self.held[before..], self.at)?;
            self.at += more as u64;
        }
        Ok(true)
    }
}

fn cut() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "what was laid aside cannot be read again")
}

/// The records of all pieces, in order.
pub struct Merged {
    pieces: Vec<Piece>,
    heap: Vec<usize>,
    begun: bool,
}

impl Merged {
    /// The next record.
    pub fn next_record(&mut self) -> io::Result<Option<Record<'_>>> {
        if self.begun
            && let Some(&top) = self.heap.first()
        {
            if !self.pieces[top].advance()? {
                self.heap.swap_remove(0);
            }
            self.sink(0);
        }
        self.begun = true;
        Ok(self.heap.first().map(|top| self.pieces[*top].record()))
    }

    fn before(&self, a: usize, b: usize) -> bool {
        let (a, b) = (self.heap[a], self.heap[b]);
        (self.pieces[a].record().key(), a) < (self.pieces[b].record().key(), b)
    }

    fn sink(&mut self, mut at: usize) {
        loop {
            let mut least = at;
            for child in [2 * at + 1, 2 * at + 2] {
                if child < self.heap.len() && self.before(child, least) {
                    least = child;
                }
            }
            if least == at {
                return;
            }
            self.heap.swap(at, least);
            at = least;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]
        #[test]
        fn whatever_is_added_comes_back_whole_and_in_order(
            texts in proptest::collection::vec(("[a-c]{0,12}", "\\PC{0,40}", ".{0,6}", 0usize..400), 0..300),
            at in 0usize..3,
        ) {
            let path = std::env::temp_dir().join(format!("postonce-sorter-{}-{at}", std::process::id()));
            let mut sorters = [Sorter::new(&path).unwrap(), Sorter::new(&path).unwrap()];
            let mut wanted = Vec::new();
            for (n, (kind, name, tail, length)) in texts.iter().enumerate() {
                // some far larger than what is read ahead
                let payload = vec![n as u8; if n == 7 { 3 * AHEAD } else { *length }];
                let (kind, name, tail) = (kind.as_bytes(), name.as_bytes(), tail.as_bytes());
                sorters[n % 2].add(Record { kind, name, tail, payload: &payload }).unwrap();
                if n % 50 == at {
                    sorters[n % 2].lay_aside().unwrap(); // as if the batch were full
                }
                wanted.push((kind.to_vec(), name.to_vec(), tail.to_vec(), payload));
            }
            let mut merged = Sorter::merged(sorters.into_iter().collect()).unwrap();
            let mut got = Vec::new();
            while let Some(r) = merged.next_record().unwrap() {
                got.push((r.kind.to_vec(), r.name.to_vec(), r.tail.to_vec(), r.payload.to_vec()));
            }
            prop_assert!(merged.next_record().unwrap().is_none());
            let key = |r: &(Vec<u8>, Vec<u8>, Vec<u8>, Vec<u8>)| (r.0.clone(), r.1.clone(), r.2.clone());
            prop_assert!(got.windows(2).all(|two| key(&two[0]) <= key(&two[1])), "not in order");
            got.sort();
            wanted.sort();
            prop_assert_eq!(got, wanted);
        }
    }
}
