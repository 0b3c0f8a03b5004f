//! Delimited files: one header and its rows (CSV, TSV), or records of several types (PayPal's sections).
//!
//! Columns are found by name, never by place; a row with another number of fields than its header is an error.

use super::cells::{Cells, Names};
use super::read::{HEAD_BYTES, ReadError, Tally};
use super::row::Row;
use super::{Control, Format, ReadOptions, ReportLine, ReportSpec, Sections};
use crate::money::Currency;
use std::collections::HashMap;
use std::io::Read;

fn reader(input: impl Read, delimiter: char) -> csv::Reader<impl Read> {
    csv::ReaderBuilder::new()
        .has_headers(false)
        .flexible(true)
        .delimiter(u8::try_from(delimiter).unwrap_or(b','))
        .buffer_capacity(HEAD_BYTES)
        .from_reader(Unix { input, held: false, last: b'\n' })
}

/// Turns CRLF into LF and gives the last line its end, so that physical lines can be counted by what was consumed.
struct Unix<R> {
    input: R,
    held: bool,
    last: u8,
}

impl<R: Read> Read for Unix<R> {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        if into.len() < 2 {
            return Err(std::io::ErrorKind::InvalidInput.into());
        }
        let start = usize::from(self.held);
        if self.held {
            into[0] = b'\r';
        }
        let read = self.input.read(&mut into[start..])?;
        self.held = false;
        if read == 0 && start == 0 {
            let missing = self.last != b'\n';
            into[0] = b'\n';
            self.last = b'\n';
            return Ok(usize::from(missing));
        }
        let mut length = start + read;
        if into[..length].contains(&b'\r') {
            let mut kept = 0;
            for at in 0..length {
                let byte = into[at];
                if byte == b'\r' && at + 1 == length && read > 0 {
                    self.held = true;
                } else if byte != b'\r' || into[at + 1..length].first() != Some(&b'\n') {
                    into[kept] = byte;
                    kept += 1;
                }
            }
            length = kept;
            if length == 0 {
                return self.read(into);
            }
        }
        self.last = into[length - 1];
        Ok(length)
    }
}

/// The separator with which the beginning of a file is this report; `None`: it is another one.
pub(super) fn delimiter(spec: &ReportSpec, head: &[u8]) -> Option<char> {
    let tab = ['\t'];
    let choices = if spec.format == Format::Tsv && spec.delimiters == [','] { &tab[..] } else { &spec.delimiters };
    choices.iter().copied().find(|delimiter| {
        let mut records = reader(head, *delimiter).into_records();
        let header = match &spec.sections {
            None => records.next().and_then(Result::ok),
            Some(sections) => {
                let first = records.next().and_then(Result::ok);
                let ours = first.is_some_and(|r| r.get(0) == Some(&sections.first));
                records.map_while(Result::ok).take(1000).find(|r| ours && r.get(0) == Some(&sections.header))
            }
        };
        header.is_some_and(|header| {
            let places = places(spec, &header);
            let has = |name: &String| places.contains_key(name);
            spec.detect.columns.iter().all(has) && !spec.detect.without.iter().any(has)
        })
    })
}

/// The rules' names of columns and where they stand in this header.
fn places(spec: &ReportSpec, header: &csv::StringRecord) -> HashMap<String, usize> {
    let mut places = HashMap::new();
    for (at, name) in header.iter().enumerate() {
        places.entry(name.trim().to_owned()).or_insert(at);
    }
    for (name, others) in &spec.columns {
        let found = others.all().iter().find_map(|other| places.get(other).copied());
        if let Some(at) = found {
            places.entry(name.clone()).or_insert(at);
        }
    }
    places
}

fn bind(spec: &ReportSpec, header: &csv::StringRecord, line: u64, options: &ReadOptions) -> Result<Row, ReadError> {
    let places = places(spec, header);
    let names = Names::Columns { places: &places, optional: &spec.optional };
    Row::bind(&spec.row, &names, options).map_err(|problem| ReadError::at(line, None, problem))
}

pub(super) fn read<E: From<ReadError>>(
    spec: &ReportSpec,
    mut input: impl Read,
    options: &ReadOptions,
    tally: &mut Tally,
    on_line: &mut dyn FnMut(ReportLine) -> Result<(), E>,
) -> Result<(), E> {
    let mut head = Vec::with_capacity(HEAD_BYTES);
    let fail = |e: std::io::Error| ReadError::file(format!("cannot be read: {e}"));
    (&mut input).take(HEAD_BYTES as u64).read_to_end(&mut head).map_err(fail)?;
    if head.iter().all(u8::is_ascii_whitespace) {
        return Err(ReadError::file("the file is empty").into());
    }
    let skip = if head.starts_with(b"\xEF\xBB\xBF") { 3 } else { 0 };
    let delimiter = delimiter(spec, &head[skip..]).ok_or_else(|| {
        let wanted = spec.detect.columns.join(", ");
        ReadError::file(format!("this is not the report it is said to be: its header must have the columns {wanted}"))
    })?;
    let whole = std::io::Cursor::new(&head[skip..]).chain(input);
    let mut records = reader(whole, delimiter);
    let mut place = Place::default();
    match &spec.sections {
        None => plain(spec, &mut records, &mut place, options, tally, on_line),
        Some(sections) => by_type(spec, sections, &mut records, &mut place, options, tally, on_line),
    }
}

/// Where the reader is.
#[derive(Default)]
struct Place {
    record: u64,
    line: u64,
}

impl Place {
    /// The next record; its physical line is where its first character stands.
    fn next(&mut self, records: &mut csv::Reader<impl Read>, into: &mut csv::StringRecord) -> Result<bool, ReadError> {
        let more = records.read_record(into).map_err(|e| {
            let line = e.position().map_or(self.line + 1, csv::Position::line);
            let problem = match e.kind() {
                csv::ErrorKind::Utf8 { .. } => "is not UTF-8: export the file again as UTF-8".to_owned(),
                _ => e.to_string(),
            };
            ReadError::at(line, None, problem)
        })?;
        if more {
            self.record += 1;
            let inside = into.as_slice().bytes().filter(|b| *b == b'\n').count() as u64;
            self.line = (records.position().line() - 1).saturating_sub(inside);
        }
        Ok(more)
    }

    fn now(&self) -> (u64, u64) {
        (self.line, self.record)
    }
}

fn same_width(record: &csv::StringRecord, header: &csv::StringRecord, line: u64) -> Result<(), ReadError> {
    if record.len() == header.len() {
        return Ok(());
    }
    let problem = format!(
        "has {} fields where the header has {}: the file is cut off or was changed",
        record.len(),
        header.len()
    );
    Err(ReadError::at(line, None, problem))
}

fn plain<E: From<ReadError>>(
    spec: &ReportSpec,
    records: &mut csv::Reader<impl Read>,
    place: &mut Place,
    options: &ReadOptions,
    tally: &mut Tally,
    on_line: &mut dyn FnMut(ReportLine) -> Result<(), E>,
) -> Result<(), E> {
    let mut header = csv::StringRecord::new();
    place.next(records, &mut header)?;
    let mut row = bind(spec, &header, place.line, options)?;
    tally.skipped(place.line, "header".into());
    let mut record = csv::StringRecord::new();
    while place.next(records, &mut record)? {
        same_width(&record, &header, place.line)?;
        tally.row(&mut row, Cells::Table(&record), place.now(), on_line)?;
    }
    Ok(())
}

fn by_type<E: From<ReadError>>(
    spec: &ReportSpec,
    sections: &Sections,
    records: &mut csv::Reader<impl Read>,
    place: &mut Place,
    options: &ReadOptions,
    tally: &mut Tally,
    on_line: &mut dyn FnMut(ReportLine) -> Result<(), E>,
) -> Result<(), E> {
    let mut bound: Option<(csv::StringRecord, Row)> = None;
    let mut record = csv::StringRecord::new();
    let (mut ended, mut money_rows, mut counts) = (false, 0u64, Vec::new());
    let mut sums = Vec::new();
    while place.next(records, &mut record)? {
        let line = place.line;
        let kind = record.get(0).unwrap_or_default().trim().to_owned();
        if ended {
            return Err(ReadError::at(line, None, format!("a record {kind:?} stands after the end of the file")).into());
        }
        if sections.rows.contains(&kind) {
            let Some((header, row)) = &mut bound else {
                return Err(ReadError::at(line, None, "a row stands before the names of its columns").into());
            };
            same_width(&record, header, line)?;
            money_rows += 1;
            tally.row(row, Cells::Table(&record), place.now(), on_line)?;
            continue;
        }
        let why = sections
            .others
            .get(&kind)
            .ok_or_else(|| ReadError::at(line, None, format!("{kind:?} is no record type of this report")))?;
        tally.skipped(line, format!("{kind} {why}"));
        if kind == sections.header {
            bound = Some((record.clone(), bind(spec, &record, line, options)?));
        }
        if sections.counts.contains(&kind) || kind == sections.last {
            let stated = record.get(1).and_then(|n| n.trim().parse::<i64>().ok());
            let stated = stated.ok_or_else(|| ReadError::at(line, None, "the number of rows is not a number"))?;
            counts.push((format!("rows ({kind})"), stated));
        }
        if sections.sums.as_ref() == Some(&kind) {
            sums.push((line, record.clone()));
        }
        ended = kind == sections.last;
    }
    if !ended {
        let problem = format!("ends without its {} record: the file is cut off", sections.last);
        return Err(ReadError::at(place.line, None, problem).into());
    }
    for (what, stated) in counts {
        tally.control(Control { what, stated, read: money_rows as i64 });
    }
    for (line, record) in sums {
        compare_sums(spec, &record, line, tally)?;
    }
    Ok(())
}

fn compare_sums(spec: &ReportSpec, record: &csv::StringRecord, line: u64, tally: &mut Tally) -> Result<(), ReadError> {
    let currency = record.get(1).and_then(Currency::parse);
    let currency = currency.ok_or_else(|| ReadError::at(line, None, "the sums name no currency we know"))?;
    let number = |at: usize| -> Result<i64, ReadError> {
        let text = record.get(at).unwrap_or_default().trim();
        let read = super::amounts::read(text, &spec.row.numbers, &spec.row.exponents, currency);
        read.map_err(|problem| ReadError::at(line, None, problem))
    };
    let total = tally.total(currency);
    let rows = record.get(record.len() - 1).and_then(|n| n.trim().parse().ok()).unwrap_or(-1);
    let pairs = [
        ("gross credits", number(2)?, total.gross_in),
        ("gross debits", number(3)?, -total.gross_out),
        ("fee credits", number(4)?, -total.fee_back),
        ("fee debits", number(5)?, total.fee_cost),
        ("rows without repeats", rows, total.rows as i64),
    ];
    for (what, stated, read) in pairs {
        tally.control(Control { what: format!("{what} {currency}"), stated, read });
    }
    Ok(())
}
