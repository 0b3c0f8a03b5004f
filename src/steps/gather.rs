//! Gather: the provider's report, pulled or read from a file, and kept as it is: the first half of a settlement run.
//!
//! A report that cannot be read, or does not keep its own word, ends here and counts for nothing. Compares nothing.

use super::pieces::Pieces;
use super::settle::{Ask, book_of};
use crate::error::{Error, Result};
use crate::event::Millis;
use crate::providers::report::read::HEAD_BYTES;
use crate::providers::report::{self, Control, ReadError, ReadOptions};
use crate::pull::{Client, PullError};
use crate::settlement::plan::Spec;
use crate::settlement::sorter::Merged;
use crate::settlement::window;
use crate::source::Source;
use crate::store::settlement::packed;
use crate::store::settlement::reports::{self, NewReport};
use crate::store::settlement::scratch::{Scratch, aside};
use crate::store::{Access, Lock, Pour};
use sha2::{Digest as _, Sha256};
use std::fs::File;
use std::io::{BufReader, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};

/// Lines of an unfinished report that are taken away in one piece of work.
const LINES: i64 = 400;
/// Bytes of a file in one piece of work.
const PART: u64 = 256 << 10;

/// Why a run ends early.
pub(super) enum Stop {
    /// Later it may work by itself.
    Deferred(String),
    /// Somebody must look; nothing was changed.
    Invalid(String),
    /// It could not be done.
    Failed(Error),
}

impl From<Error> for Stop {
    fn from(e: Error) -> Stop {
        Stop::Failed(e)
    }
}

impl From<ReadError> for Stop {
    fn from(e: ReadError) -> Stop {
        Stop::Invalid(format!("the report cannot be read: {e}"))
    }
}

impl From<PullError> for Stop {
    fn from(e: PullError) -> Stop {
        if e.later() { Stop::Deferred(e.to_string()) } else { Stop::Invalid(e.to_string()) }
    }
}

pub(super) type Go<T> = std::result::Result<T, Stop>;

/// What was gathered.
pub(super) struct Gathered<'r> {
    pub spec: Spec<'r>,
    pub lines: Lines,
    pub control: Vec<Control>,
    pub skipped: String,
    pub span: Option<(Millis, Millis)>,
    pub file: Option<PathBuf>,
}

pub(super) enum Lines {
    New(Box<Scratch>, [u8; 32]),
    /// The same content is there already.
    Kept(i64),
}

/// Keeps a report without comparing it: later runs find their partners in it.
pub fn keep(access: &Access, source: &Source, ask: &Ask) -> Result<reports::Report> {
    let _alone = Lock::take_for(access.path(), "-postonce-settle.lock")?;
    let name = book_of(source);
    let book = access.write(move |tx| tx.book(&name))?;
    let kept = gather(access, source, book, ask).and_then(|gathered| {
        whole(&gathered)?;
        let (from, to) = match (&ask.window, gathered.span) {
            (Some((from, to, _)), _) => (*from, *to),
            (None, Some((first, last))) => (first, last + 1),
            (None, None) => return Err(Stop::Invalid("the report has no lines".into())),
        };
        match begin_keeping(access, source, ask, book, (from, to), gathered)? {
            Keeping::Kept(report) => Ok(report),
            Keeping::New(keeper) => Ok(keeper.finish()?),
        }
    });
    match kept {
        Ok(report) => Ok(report),
        Err(Stop::Failed(e)) => Err(e),
        Err(Stop::Deferred(why)) => Err(Error::refused(format!("not ready: {why}"), "try it again later")),
        Err(Stop::Invalid(why)) => Err(Error::refused(why, "nothing was kept; see `postonce reconcile read`")),
    }
}

/// Does the file keep its own word?
pub(super) fn whole(gathered: &Gathered) -> Go<()> {
    match gathered.control.iter().find(|c| !c.holds()) {
        None => Ok(()),
        Some(wrong) => Err(Stop::Invalid(format!(
            "the file is not whole: it says {} {}, its rows give {}",
            wrong.what, wrong.stated, wrong.read
        ))),
    }
}

/// Which report it is.
pub(super) fn spec_of<'r>(source: &'r Source, ask: &Ask) -> Go<Spec<'r>> {
    let recipe = &source.recipe;
    let Some(path) = ask.file else {
        let Some(name) = ask.report.or(source.settlement.pull.as_deref()) else {
            return Err(Stop::Invalid(format!("{} has no list that can be pulled: give a report file", recipe.title)));
        };
        return match recipe.pull.get_key_value(name) {
            Some((name, spec)) if spec.steps.is_none() => Ok(Spec::List(name, spec)),
            Some((_, spec)) => {
                let steps = spec.steps.as_ref().map_or("", |s| s.report.as_str());
                let file = recipe.report.get_key_value(steps).map(|(name, spec)| Spec::File(name, spec));
                file.ok_or_else(|| Stop::Invalid(format!("there is no [report.{steps}]")))
            }
            None => Err(Stop::Invalid(format!("{} has no list {name:?}", recipe.title))),
        };
    };
    let name = match ask.report {
        Some(name) => name.to_owned(),
        None => {
            let mut head = Vec::new();
            let opened = File::open(path).and_then(|f| f.take(HEAD_BYTES as u64).read_to_end(&mut head));
            opened.map_err(|e| Stop::Failed(no_file(path, &e)))?;
            let found = report::detect(recipe, &head).map(str::to_owned);
            found.ok_or_else(|| {
                Stop::Invalid(format!("{} is no report of {} that is known", path.display(), recipe.title))
            })?
        }
    };
    let found = recipe.report.get_key_value(&name).map(|(name, spec)| Spec::File(name, spec));
    found.ok_or_else(|| Stop::Invalid(format!("{} has no report {name:?}", recipe.title)))
}

fn no_file(path: &Path, e: &std::io::Error) -> Error {
    Error::refused(format!("cannot read {}: {e}", path.display()), "name a report file that is there")
}

/// Reads the file, or pulls the list, into a place of its own.
pub(super) fn gather<'r>(access: &Access, source: &'r Source, book: i64, ask: &Ask) -> Go<Gathered<'r>> {
    let spec = spec_of(source, ask)?;
    if let Some(report) = ask.kept {
        let span = access.read(|conn| reports::get(conn, report))?.window;
        let lines = Lines::Kept(report);
        return Ok(Gathered { spec, lines, control: Vec::new(), skipped: "{}".into(), span: Some(span), file: None });
    }
    if let Some((_, to, _)) = &ask.window
        && *to > ask.now
    {
        return Err(Stop::Deferred("the window is not over yet".into()));
    }
    if let Some(path) = ask.file {
        let file = File::open(path).map_err(|e| Stop::Failed(no_file(path, &e)))?;
        return read_file(access, source, book, ask, spec, file, path.to_owned());
    }
    let (from, to) = match &ask.window {
        Some((from, to, _)) => (*from, *to),
        None => {
            let day = window::yesterday(ask.now, &source.settlement.zone);
            window::days(&day, &day, &source.settlement.zone)
                .ok_or_else(|| Stop::Invalid("the clock says no day".into()))?
        }
    };
    if source.api_key.is_none() {
        return Err(Stop::Invalid("the source has no api_key to pull the report with: give a report file".into()));
    }
    let mut client = Client::new(&source.recipe, source.settlement.access.clone(), ask.pace)?;
    let list = match spec {
        Spec::List(name, list) => (name, list),
        Spec::File(..) => {
            let pull = ask.report.or(source.settlement.pull.as_deref()).unwrap_or_default();
            let path = crate::store::beside(access.path(), "-postonce-report.tmp");
            let mut file = File::options().create(true).truncate(true).read(true).write(true).open(&path);
            let file = file.as_mut().map_err(|e| Stop::Failed(no_file(&path, e)))?;
            let ordered = client.report(pull, (from, to), file);
            let _ = std::fs::remove_file(&path); // it stays readable for as long as it is open
            ordered?;
            let rewound = file.flush().and_then(|()| file.seek(SeekFrom::Start(0))).and_then(|_| file.try_clone());
            let file = rewound.map_err(|e| Stop::Failed(no_file(&path, &e)))?;
            return read_file(access, source, book, ask, spec, file, PathBuf::from(format!("{pull} (pulled)")));
        }
    };
    let (name, list) = list;
    let from = from - Millis::from(list.look_back_h) * 3_600_000;
    let mut scratch = Scratch::open(access.path(), ask.span(), true);
    let pulled = client.rows::<Stop>(name, (from, to), &mut |line| {
        scratch.add(&line)?;
        if scratch.len().is_multiple_of(1000) {
            (ask.progress)("pulled", scratch.len());
        }
        Ok(())
    })?;
    let (span, sha256) = (scratch.span(), scratch.sha256((from, to)));
    let skipped = serde_json::to_string(&pulled.skipped).unwrap_or_default();
    let lines = match access.read(|conn| reports::same(conn, book, name, &sha256))? {
        Some(report) => Lines::Kept(report),
        None => Lines::New(Box::new(scratch), sha256),
    };
    Ok(Gathered { spec, lines, control: Vec::new(), skipped, span, file: None })
}

fn read_file<'r>(
    access: &Access,
    source: &Source,
    book: i64,
    ask: &Ask,
    spec: Spec<'r>,
    file: File,
    path: PathBuf,
) -> Go<Gathered<'r>> {
    let Spec::File(name, rules) = spec else { return Err(Stop::Invalid("a list is not a file".into())) };
    let mut scratch = Scratch::open(access.path(), ask.span(), false);
    let mut hashed = Hashed { file, hash: Sha256::new() };
    let zone = source.settlement.report_zone.clone();
    let options = ReadOptions { currency: source.settlement.currency, zone };
    let summary =
        report::read::<Stop>(rules, BufReader::with_capacity(PART as usize, &mut hashed), &options, &mut |line| {
            scratch.add(&line)?;
            if scratch.len().is_multiple_of(10_000) {
                (ask.progress)("read", scratch.len());
            }
            Ok(())
        })?;
    std::io::copy(&mut hashed, &mut std::io::sink()).map_err(|e| Stop::Failed(no_file(&path, &e)))?;
    let sha256 = hashed.hash.finalize().into();
    let skipped = serde_json::to_string(&summary.skipped).unwrap_or_default();
    let span = scratch.span();
    let lines = match access.read(|conn| reports::same(conn, book, name, &sha256))? {
        Some(report) => Lines::Kept(report),
        None => Lines::New(Box::new(scratch), sha256),
    };
    Ok(Gathered { spec, lines, control: summary.control, skipped, span, file: Some(path) })
}

/// A file whose bytes are hashed as they are read.
struct Hashed {
    file: File,
    hash: Sha256,
}

impl std::io::Read for Hashed {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        let read = self.file.read(into)?;
        self.hash.update(&into[..read]);
        Ok(read)
    }
}

/// Gathered lines on their way into the file, and where the report is that they become.
pub(super) enum Keeping<'a> {
    /// They are there already.
    Kept(reports::Report),
    /// They come now, in order.
    New(Box<Keeper<'a>>),
}

/// Takes away what an earlier run left unfinished, names and sorts the lines and makes room for them.
pub(super) fn begin_keeping<'a>(
    access: &'a Access<'a>,
    source: &Source,
    ask: &'a Ask<'a>,
    book: i64,
    window: (Millis, Millis),
    gathered: Gathered,
) -> Go<Keeping<'a>> {
    while access.write(move |tx| reports::sweep_unsealed(tx, book, LINES))? {}
    let (scratch, sha256) = match gathered.lines {
        Lines::Kept(report) => return Ok(Keeping::Kept(access.read(|conn| reports::get(conn, report))?)),
        Lines::New(scratch, sha256) => (scratch, sha256),
    };
    // a list was asked for by its window, and may be one of settlement days, whose payments are older
    if !scratch.is_empty() && ask.window.is_some() && ask.file.is_some() && !scratch.touches_window() {
        return Err(Stop::Invalid("the report holds no line of the window: is it of another day?".into()));
    }
    let lines = scratch.sort(book)?;
    let new = NewReport {
        book,
        source: source.name.clone(),
        name: gathered.spec.name().to_owned(),
        file: gathered.file.as_ref().map(|p| p.display().to_string()),
        window,
        sha256,
        skipped: gathered.skipped,
        control: serde_json::to_string(
            &gathered.control.iter().map(|c| (&c.what, c.stated, c.read)).collect::<Vec<_>>(),
        )
        .unwrap_or_else(|_| "[]".into()),
    };
    let (report, first) = access.write(move |tx| reports::begin(tx, &new))?;
    let parts = match ask.file {
        Some(path) => {
            let file = File::open(path).map_err(|e| Stop::Failed(no_file(path, &e)))?;
            let (parts, packed) = crossbeam_channel::bounded(2);
            std::thread::spawn(move || packing(file, &parts));
            Some(packed)
        }
        None => None,
    };
    Ok(Keeping::New(Box::new(Keeper {
        ask,
        access,
        pour: access.pour(),
        lines,
        parts,
        part: 0,
        report,
        first,
        kept: 0,
        given: 0,
        repeats: 0,
        before: Before::default(),
        chunk: packed::Lines::default(),
        pieces: Pieces::new(),
    })))
}

/// Packs the bytes of a file, part by part, until nobody takes them any more.
fn packing(mut file: File, parts: &crossbeam_channel::Sender<std::io::Result<Vec<u8>>>) {
    loop {
        let mut bytes = Vec::new();
        let packed = match (&mut file).take(PART).read_to_end(&mut bytes) {
            Ok(0) => return,
            Ok(_) => zstd::bulk::compress(&bytes, 1),
            Err(e) => Err(e),
        };
        let failed = packed.is_err();
        if parts.send(packed).is_err() || failed {
            return;
        }
    }
}

/// The line before: a row that repeats it is left out and counted.
#[derive(Default)]
struct Before {
    any: bool,
    line_ref: String,
    amounts: (i64, i64, i64),
}

/// Hands out lines in the order of (kind, name), and writes each on its way.
pub(super) struct Keeper<'a> {
    ask: &'a Ask<'a>,
    access: &'a Access<'a>,
    pour: Pour<'a>,
    lines: Merged,
    parts: Option<crossbeam_channel::Receiver<std::io::Result<Vec<u8>>>>,
    part: i64,
    /// The report's number.
    pub report: i64,
    /// The id of its first line.
    pub first: i64,
    kept: i64,
    /// Lines that were handed to the writer.
    given: i64,
    repeats: i64,
    before: Before,
    chunk: packed::Lines,
    pieces: Pieces,
}

impl Keeper<'_> {
    /// The next line and its id, as `of` sees it; it is on its way into the file then.
    pub fn next<T>(&mut self, of: impl FnOnce(i64, &packed::Line) -> T) -> Result<Option<T>> {
        loop {
            if self.chunk.len() >= self.pieces.rows() {
                self.hand_over()?;
            }
            let Some(record) = self.lines.next_record().map_err(|e| aside(&e))? else { return Ok(None) };
            let Some(line) = packed::Line::of(&record) else {
                return Err(Error::Apply("a line came back cut".into()));
            };
            let amounts = (line.gross, line.fee, line.net);
            if self.before.any && self.before.amounts == amounts && self.before.line_ref == line.line_ref {
                self.repeats += 1;
                continue;
            }
            (self.before.any, self.before.amounts) = (true, amounts);
            self.before.line_ref.clear();
            self.before.line_ref.push_str(line.line_ref);
            self.chunk.add(&record);
            let id = self.first + self.kept;
            self.kept += 1;
            return Ok(Some(of(id, &line)));
        }
    }

    fn hand_over(&mut self) -> Result<()> {
        let (lines, report, first) = (std::mem::take(&mut self.chunk), self.report, self.first + self.given);
        let rows = lines.len();
        self.given += rows as i64;
        self.pour.push(self.pieces.measured(rows, move |tx| reports::add_lines(tx, report, first, &lines)))?;
        (self.ask.progress)("kept", self.given as u64);
        while let Some(part) = self.parts.as_ref().and_then(|parts| parts.try_recv().ok()) {
            self.add_part(part)?;
        }
        Ok(())
    }

    fn add_part(&mut self, packed: std::io::Result<Vec<u8>>) -> Result<()> {
        let packed =
            packed.map_err(|e| Error::refused(format!("the report cannot be read again: {e}"), "try it again"))?;
        let (report, part) = (self.report, self.part);
        self.part += 1;
        self.pour.push(move |tx| reports::add_part(tx, report, part, &packed))
    }

    /// Writes what is left, and closes the report: from now on it is fixed.
    pub fn finish(mut self) -> Result<reports::Report> {
        while self.next(|_, _| ())?.is_some() {}
        if !self.chunk.is_empty() {
            self.hand_over()?;
        }
        if let Some(parts) = self.parts.take() {
            for part in parts.iter() {
                self.add_part(part)?;
            }
        }
        self.pour.finish()?;
        let (report, kept, repeats) = (self.report, self.kept, self.repeats);
        self.access.write(move |tx| reports::seal(tx, report, kept, repeats))?;
        self.access.read(|conn| reports::get(conn, report))
    }
}
