//! Gather: the provider's report, pulled or read from a file, and kept as it is: the first half of a settlement run.
//!
//! A report that cannot be read, or does not keep its own word, ends here and counts for nothing. Compares nothing.

use super::settle::{Ask, book_of};
use crate::error::{Error, Result};
use crate::event::Millis;
use crate::providers::report::read::HEAD_BYTES;
use crate::providers::report::{self, Control, ReadError, ReadOptions};
use crate::pull::{Client, PullError};
use crate::settlement::plan::Spec;
use crate::settlement::window;
use crate::source::Source;
use crate::store::settlement::reports::{self, NewReport, Scratch};
use crate::store::{Access, Lock};
use sha2::{Digest as _, Sha256};
use std::fs::File;
use std::io::{BufReader, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};

/// Lines in one piece of work: about as long as an apply batch.
const LINES: usize = 400;

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

/// Keeps a report without comparing it: later runs find their partners in it. Gives its number and how many lines it has.
pub fn keep(access: &Access, source: &Source, ask: &Ask) -> Result<(i64, i64)> {
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
        keep_lines(access, source, ask, book, (from, to), gathered)
    });
    match kept {
        Ok(report) => Ok((report.id, report.rows)),
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
    let mut scratch = Scratch::open(access.path())?;
    let pulled = client.rows::<Stop>(name, (from, to), &mut |line| {
        scratch.add(&line)?;
        if scratch.len() % 1000 == 0 {
            (ask.progress)("pulled", scratch.len());
        }
        Ok(())
    })?;
    let (span, sha256) = (scratch.span()?, scratch.sha256((from, to)));
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
    mut file: File,
    path: PathBuf,
) -> Go<Gathered<'r>> {
    let Spec::File(name, rules) = spec else { return Err(Stop::Invalid("a list is not a file".into())) };
    let sha256 = sha256_of(&mut file).map_err(|e| Stop::Failed(no_file(&path, &e)))?;
    let mut scratch = Scratch::open(access.path())?;
    let zone = source.settlement.report_zone.clone();
    let options = ReadOptions { currency: source.settlement.currency, zone };
    let summary = report::read::<Stop>(rules, BufReader::new(&file), &options, &mut |line| {
        scratch.add(&line)?;
        if scratch.len() % 10_000 == 0 {
            (ask.progress)("read", scratch.len());
        }
        Ok(())
    })?;
    let skipped = serde_json::to_string(&summary.skipped).unwrap_or_default();
    let span = scratch.span()?;
    let lines = match access.read(|conn| reports::same(conn, book, name, &sha256))? {
        Some(report) => Lines::Kept(report),
        None => Lines::New(Box::new(scratch), sha256),
    };
    Ok(Gathered { spec, lines, control: summary.control, skipped, span, file: Some(path) })
}

/// The hash of a whole file, which is then at its beginning again.
fn sha256_of(file: &mut File) -> std::io::Result<[u8; 32]> {
    let (mut hash, mut buffer) = (Sha256::new(), vec![0; 64 << 10]);
    loop {
        match file.read(&mut buffer)? {
            0 => break,
            n => hash.update(&buffer[..n]),
        }
    }
    file.seek(SeekFrom::Start(0))?;
    Ok(hash.finalize().into())
}

/// Keeps the lines, in order, and the file.
pub(super) fn keep_lines(
    access: &Access,
    source: &Source,
    ask: &Ask,
    book: i64,
    (from, to): (Millis, Millis),
    gathered: Gathered,
) -> Go<reports::Report> {
    while access.write(move |tx| reports::sweep_unsealed(tx, book, LINES as i64))? {}
    let (mut scratch, sha256) = match gathered.lines {
        Lines::Kept(report) => return Ok(access.read(|conn| reports::get(conn, report))?),
        Lines::New(scratch, sha256) => (scratch, sha256),
    };
    if !scratch.is_empty() && ask.window.is_some() && scratch.within(from, to)? == 0 {
        return Err(Stop::Invalid("the report holds no line of the window: is it of another day?".into()));
    }
    scratch.sort(book)?;
    let new = NewReport {
        book,
        source: source.name.clone(),
        name: gathered.spec.name().to_owned(),
        file: gathered.file.as_ref().map(|p| p.display().to_string()),
        window: (from, to),
        sha256,
        skipped: gathered.skipped,
        control: serde_json::to_string(
            &gathered.control.iter().map(|c| (&c.what, c.stated, c.read)).collect::<Vec<_>>(),
        )
        .unwrap_or_else(|_| "[]".into()),
    };
    let report = access.write(move |tx| reports::begin(tx, &new))?;
    let mut pour = access.pour();
    let mut kept = 0;
    let (rows, repeats) = scratch.chunks(LINES, &mut |lines| {
        kept += lines.len() as u64;
        (ask.progress)("kept", kept);
        pour.push(move |tx| reports::add_lines(tx, report, &lines))
    })?;
    if let Some(path) = ask.file {
        let mut file = File::open(path).map_err(|e| Stop::Failed(no_file(path, &e)))?;
        for part in 0.. {
            let mut bytes = Vec::new();
            (&mut file).take(256 << 10).read_to_end(&mut bytes).map_err(|e| Stop::Failed(no_file(path, &e)))?;
            if bytes.is_empty() {
                break;
            }
            let packed = zstd::bulk::compress(&bytes, 3).map_err(|e| Error::Apply(e.to_string()))?;
            pour.push(move |tx| reports::add_part(tx, report, part, &packed))?;
        }
    }
    pour.finish()?;
    access.write(move |tx| reports::seal(tx, report, rows, repeats))?;
    Ok(access.read(|conn| reports::get(conn, report))?)
}
