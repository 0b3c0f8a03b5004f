//! Providers are data: everything the program knows of one stands in `<provider>.toml` beside this file.
//!
//! The files are compiled in; a directory named in the configuration overrides or extends them. What no table can say
//! is a named scheme in code that the file refers to. No provider's name appears in Rust outside those schemes.

pub mod body;
pub mod handshake;
pub mod interpret;
pub mod json;
pub mod pull;
pub mod report;
pub mod schemes;
pub mod signature;
pub mod vectors;

use crate::toml_file;
use interpret::grammar::{EntityRule, EventHalf, EventRules, FetchRule, IgnoreRule, MovementRule, ParkRule};
use interpret::tables::Rules;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::Path;

/// The files that are compiled in: (name, text).
const BUILT_IN: &[(&str, &str)] = include!(concat!(env!("OUT_DIR"), "/providers.rs"));

/// One provider's file.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Recipe {
    /// The name used in keys, sources and file names.
    pub provider: String,
    /// The name for people.
    pub title: String,
    /// Other names that find this file.
    #[serde(default)]
    pub aliases: Vec<String>,
    /// What proves who sent a delivery.
    pub signature: signature::SignatureSpec,
    /// Requests that are answered at once and are no events.
    #[serde(default)]
    pub handshake: Vec<handshake::Handshake>,
    /// What a delivery that is kept is answered with, where the provider waits for certain words.
    #[serde(default)]
    pub reply: Option<ReplySpec>,
    /// What every event has.
    #[serde(default)]
    pub event: EventRules,
    /// The provider whose event half this file borrows.
    #[serde(skip)]
    pub events_of: Option<String>,
    /// Which types move money, and how.
    #[serde(default, rename = "movement")]
    pub movements: Rules<MovementRule>,
    /// Which types carry the state of an object.
    #[serde(default, rename = "entity")]
    pub entities: Rules<EntityRule>,
    /// Which types only point at an object.
    #[serde(default, rename = "fetch")]
    pub fetches: Rules<FetchRule>,
    /// Which types are money that the file cannot read.
    #[serde(default, rename = "park")]
    pub parks: Rules<ParkRule>,
    /// Which types are known and ask for nothing.
    #[serde(default, rename = "ignore")]
    pub ignores: Vec<IgnoreRule>,
    /// Report files and how they are read.
    #[serde(default)]
    pub report: BTreeMap<String, report::ReportSpec>,
    /// How the provider's API is reached.
    #[serde(default)]
    pub api: Option<pull::ApiSpec>,
    /// Lists that are pulled from it, and reports that it makes on demand.
    #[serde(default)]
    pub pull: BTreeMap<String, pull::PullSpec>,
    /// How one object is fetched again, by kind and reference.
    #[serde(default)]
    pub fetch_object: Vec<pull::FetchObject>,
    /// How one event is fetched again by its id.
    #[serde(default)]
    pub fetch_event: Option<pull::FetchEvent>,
    /// An invented event, for `postonce send`, the demo and the proofs.
    pub sample: Option<Sample>,
    /// How its money looks in the ledger.
    #[serde(default)]
    pub ledger: LedgerFacts,
}

/// What a provider's money looks like in the ledger: the `[ledger]` part of its file.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LedgerFacts {
    /// Paddle, Lemon Squeezy, Polar, Dodo: the provider remits the tax, so it never becomes ours.
    pub merchant_of_record: bool,
    /// No event says that a dispute is lost: what is taken is booked as a loss at once, and won back if it is won.
    pub disputes_end_silently: bool,
}

/// The answer to a delivery that is kept.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReplySpec {
    /// Its content type.
    #[serde(default = "plain_text")]
    pub content_type: String,
    /// Its text.
    pub body: String,
}

fn plain_text() -> String {
    "text/plain; charset=utf-8".into()
}

/// An invented event of a provider.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sample {
    /// The body, where `{reference}`, `{amount}` (minor units), `{account}`, `{event}`, `{seconds}` (Unix) and `{time}` (RFC 3339) are filled in.
    pub body: String,
    /// Further headers, filled in alike.
    #[serde(default)]
    pub headers: BTreeMap<String, String>,
}

/// What an invented event says.
#[derive(Debug, Clone)]
pub struct SampleFields<'a> {
    /// The movement's reference.
    pub reference: &'a str,
    /// Minor units.
    pub amount: i64,
    /// The customer.
    pub account: &'a str,
    /// The event's id.
    pub event: &'a str,
    /// When, in milliseconds since 1970.
    pub at: crate::event::Millis,
}

impl Sample {
    /// Fills in the body, or a header's value.
    pub fn fill(&self, text: &str, fields: &SampleFields) -> String {
        text.replace("{reference}", fields.reference)
            .replace("{amount}", &fields.amount.to_string())
            .replace("{account}", fields.account)
            .replace("{event}", fields.event)
            .replace("{seconds}", &(fields.at / 1000).to_string())
            .replace("{time}", &crate::clock::rfc3339(fields.at / 1000 * 1000))
    }
}

/// Why a provider's file cannot be used. Names the file, the line where TOML knows it, and what would be right.
#[derive(Debug, thiserror::Error)]
#[error("{file}: {problem}")]
pub struct RecipeError {
    /// The file's path, or `<name>.toml (built in)`.
    pub file: String,
    /// What is wrong and what would be right.
    pub problem: String,
}

/// All files by name: the built-in ones and those of `providers_dir`, which win.
#[derive(Debug, Clone, Default)]
pub struct Catalog {
    files: Vec<(String, String, String)>, // (name, where from, text)
}

impl Catalog {
    /// The built-in files, overridden and extended by the `*.toml` files of `dir`.
    pub fn open(dir: Option<&Path>) -> Result<Catalog, RecipeError> {
        let mut files: Vec<_> = BUILT_IN
            .iter()
            .map(|(name, text)| (name.to_string(), format!("{name}.toml (built in)"), text.to_string()))
            .collect();
        if let Some(dir) = dir {
            let fail = |problem: String| RecipeError { file: dir.display().to_string(), problem };
            for entry in std::fs::read_dir(dir).map_err(|e| fail(format!("cannot be listed: {e}")))? {
                let path = entry.map_err(|e| fail(e.to_string()))?.path();
                if path.extension().is_none_or(|x| x != "toml") {
                    continue;
                }
                let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
                let text = std::fs::read_to_string(&path).map_err(|e| RecipeError {
                    file: path.display().to_string(),
                    problem: format!("cannot be read: {e}"),
                })?;
                files.retain(|(known, ..)| *known != name);
                files.push((name, path.display().to_string(), text));
            }
        }
        files.sort();
        Ok(Catalog { files })
    }

    /// The names, in order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.files.iter().map(|(name, ..)| name.as_str())
    }

    /// Adds one more file, which wins over one of the same name; gives its name.
    pub fn add(&mut self, path: &Path) -> Result<String, RecipeError> {
        let fail = |problem: String| RecipeError { file: path.display().to_string(), problem };
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let text = std::fs::read_to_string(path).map_err(|e| fail(format!("cannot be read: {e}")))?;
        self.files.retain(|(known, ..)| *known != name);
        self.files.push((name.clone(), path.display().to_string(), text));
        Ok(name)
    }

    /// A file as it is written.
    pub fn text(&self, name: &str) -> Option<&str> {
        self.files.iter().find(|(known, ..)| known == name).map(|(.., text)| text.as_str())
    }

    /// Reads and checks one provider's file; `None` when there is none of that name or alias.
    pub fn recipe(&self, name: &str) -> Option<Result<Recipe, RecipeError>> {
        let direct = self.files.iter().find(|(known, ..)| known == name);
        let (_, file, text) = direct.or_else(|| {
            let quoted = format!("\"{name}\"");
            self.files
                .iter()
                .find(|(.., text)| text.lines().any(|line| line.starts_with("aliases") && line.contains(&quoted)))
        })?;
        Some(Recipe::read(file, text).and_then(|recipe| self.with_borrowed_events(file, recipe)))
    }

    /// Puts the event half of the file named by `[event] like` in its place.
    fn with_borrowed_events(&self, file: &str, mut recipe: Recipe) -> Result<Recipe, RecipeError> {
        let Some(name) = recipe.event.like.take() else { return Ok(recipe) };
        let fail = |problem: String| RecipeError { file: file.to_owned(), problem };
        let (_, from, text) = self
            .files
            .iter()
            .find(|(known, ..)| *known == name)
            .ok_or_else(|| fail(format!("[event] like = \"{name}\": there is no {name}.toml")))?;
        let lender = Recipe::read(from, text)?;
        if lender.event.like.is_some() {
            return Err(fail(format!("[event] like = \"{name}\": that file borrows its events itself")));
        }
        recipe.events_of = Some(lender.provider);
        recipe.event = lender.event;
        recipe.movements = lender.movements;
        recipe.entities = lender.entities;
        recipe.fetches = lender.fetches;
        recipe.parks = lender.parks;
        recipe.ignores = lender.ignores;
        Ok(recipe)
    }
}

impl Recipe {
    /// Reads and checks a file's text; `file` is only for messages.
    pub fn read(file: &str, text: &str) -> Result<Recipe, RecipeError> {
        let fail = |problem: String| RecipeError { file: file.to_owned(), problem };
        let recipe: Recipe = toml_file::read(text).map_err(|e| fail(e.to_string()))?;
        recipe.signature.check().map_err(fail)?;
        recipe.handshake.iter().try_for_each(handshake::Handshake::check).map_err(fail)?;
        let wrong = [&recipe.movements.wrong, &recipe.entities.wrong, &recipe.fetches.wrong, &recipe.parks.wrong];
        if let Some((at, problem)) = wrong.into_iter().flatten().min() {
            let line = text.bytes().take(*at).filter(|b| *b == b'\n').count() + 1;
            return Err(fail(format!("line {line}, in the table that begins there: {problem}")));
        }
        recipe.events().check().map_err(fail)?;
        Ok(recipe)
    }

    /// The provider's name in keys: two files with the same events (an old and a new way to sign) tell the same money.
    pub fn keyed_as(&self) -> &str {
        self.events_of.as_deref().unwrap_or(&self.provider)
    }

    /// Is this name a placeholder of the API's addresses and calls, for a source to fill in?
    pub fn asks_api_with(&self, name: &str) -> bool {
        let Some(api) = &self.api else { return false };
        let hole = format!("{{{name}}}");
        let base = [&api.base].into_iter().chain(&api.base_test);
        let lists =
            self.pull.values().flat_map(|pull| [&pull.path].into_iter().chain(pull.query.values()).chain(&pull.body));
        let objects = self.fetch_object.iter().map(|way| &way.path);
        base.chain(api.headers.values()).chain(lists).chain(objects).any(|text| text.contains(&hole))
    }

    /// The event half, for [`interpret::Interpreter::new`].
    pub fn events(&self) -> EventHalf {
        EventHalf {
            event: self.event.clone(),
            movements: self.movements.rules.clone(),
            entities: self.entities.rules.clone(),
            fetches: self.fetches.rules.clone(),
            parks: self.parks.rules.clone(),
            ignores: self.ignores.clone(),
        }
    }
}
