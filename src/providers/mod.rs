//! Providers are data: everything the program knows of one stands in `<provider>.toml` beside this file.
//!
//! The files are compiled in; a directory named in the configuration overrides or extends them. What no table can say
//! is a named scheme in code that the file refers to. No provider's name appears in Rust outside those schemes.

pub mod pull;
pub mod report;

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

    /// Reads and checks one provider's file; `None` when there is none of that name or alias.
    pub fn recipe(&self, name: &str) -> Option<Result<Recipe, RecipeError>> {
        let direct = self.files.iter().find(|(known, ..)| known == name);
        let (_, file, text) = direct.or_else(|| {
            let quoted = format!("\"{name}\"");
            self.files
                .iter()
                .find(|(.., text)| text.lines().any(|line| line.starts_with("aliases") && line.contains(&quoted)))
        })?;
        Some(Recipe::read(file, text))
    }
}

impl Recipe {
    /// Reads and checks a file's text; `file` is only for messages.
    pub fn read(file: &str, text: &str) -> Result<Recipe, RecipeError> {
        toml::from_str(text).map_err(|e| RecipeError { file: file.to_owned(), problem: e.to_string() })
    }
}
