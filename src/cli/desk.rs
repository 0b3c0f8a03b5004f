//! What the commands of settlement and import work with: the configuration's sources, and the file.
//!
//! On a file that nobody serves with a worker of its own; beside a running server, whose worker then posts.

use super::args::Configured;
use crate::config::Loaded;
use crate::engine::{self, Engine, Parts};
use crate::error::{Error, Result};
use crate::server::default_config_path;
use crate::source::Source;
use crate::store::{Access, Beside, Lock, Options};
use indicatif::{ProgressBar, ProgressStyle};
use std::cell::Cell;
use std::collections::HashMap;
use std::io::IsTerminal as _;
use std::path::Path;
use std::sync::Arc;

/// The configuration's sources, and the file.
pub(super) struct Desk {
    /// By name.
    pub sources: HashMap<String, Arc<Source>>,
    hold: Hold,
}

enum Hold {
    Ours(Box<Engine>),
    Beside(Access<'static>),
}

impl Desk {
    /// Reads the configuration and opens the file.
    pub fn open(config: &Configured) -> Result<Desk> {
        let path = config.config.clone().unwrap_or_else(|| default_config_path().to_owned());
        let loaded = Loaded::read(&path).map_err(|faults| faulty(&path, &faults))?;
        let (sources, endpoints) = engine::build(&loaded).map_err(|faults| faulty(&path, &faults))?;
        let database = config.database.clone().unwrap_or_else(|| loaded.config.database.clone());
        if Lock::take(&database).is_ok() {
            let options = Options { any_file_system: loaded.config.any_file_system, ..Options::default() };
            let (engine, waking) = Engine::open(&database, sources, endpoints, &options)?;
            engine.start(waking, Parts { apply: true, deliver: false })?;
            let sources = engine.shared().sources.clone();
            return Ok(Desk { sources, hold: Hold::Ours(Box::new(engine)) });
        }
        let sources = sources.into_iter().map(|source| (source.name.clone(), Arc::new(source))).collect();
        Ok(Desk { sources, hold: Hold::Beside(Access::Beside(Box::new(Beside::open(&database)?))) })
    }

    /// The source of that name, or the only one.
    pub fn source(&self, name: Option<&str>) -> Result<&Source> {
        let mut names: Vec<&str> = self.sources.keys().map(String::as_str).collect();
        names.sort_unstable();
        let wanted = match (name, names.as_slice()) {
            (Some(name), _) => name,
            (None, [only]) => only,
            (None, _) => "",
        };
        self.sources.get(wanted).map(|source| &**source).ok_or_else(|| {
            let what = name.map_or("which source?".to_owned(), |name| format!("there is no source {name:?}"));
            Error::refused(what, format!("--source NAME, one of: {}", names.join(", ")))
        })
    }

    /// Runs `f` on the file, with what wakes our worker, if it is ours.
    pub fn with<T>(&self, f: impl FnOnce(&Access, &dyn Fn()) -> Result<T>) -> Result<T> {
        match &self.hold {
            Hold::Ours(engine) => f(&Access::Ours(&engine.shared().store), &|| engine.shared().wake()),
            Hold::Beside(beside) => f(beside, &|| {}),
        }
    }
}

fn faulty(path: &Path, faults: &[crate::config::Fault]) -> Error {
    let list: Vec<String> = faults.iter().map(ToString::to_string).collect();
    Error::refused(format!("{}: {}", path.display(), list.join("; ")), "`postonce doctor` shows more")
}

/// Progress on a terminal, nothing in a pipe.
pub(super) struct Bar {
    bar: Option<ProgressBar>,
    last: Cell<u64>,
    phase: Cell<&'static str>,
}

impl Bar {
    pub fn new(phase: &'static str) -> Bar {
        let bar = std::io::stderr().is_terminal().then(|| {
            let style = ProgressStyle::with_template("{spinner} {msg} {human_pos} rows, {per_sec}, {elapsed}");
            ProgressBar::new_spinner().with_style(style.unwrap_or_else(|_| ProgressStyle::default_spinner()))
        });
        if let Some(bar) = &bar {
            bar.set_message(phase);
        }
        Bar { bar, last: Cell::new(0), phase: Cell::new(phase) }
    }

    pub fn at(&self, phase: &'static str, rows: u64) {
        let Some(bar) = &self.bar else { return };
        if self.phase.replace(phase) != phase {
            bar.reset();
            bar.set_message(phase);
            self.last.set(0);
        }
        if rows >= self.last.get() + 512 || rows == 0 {
            self.last.set(rows);
            bar.set_position(rows);
        }
    }

    pub fn clear(&self) {
        self.bar.iter().for_each(|bar| bar.finish_and_clear());
    }
}
