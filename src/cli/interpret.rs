//! `postonce interpret`: what a body means by a provider's file, for people and for comparison. Touches no database.

use super::verify::{catalog, headers_of, read};
use super::{Done, Outcome, output};
use crate::error::{Error, Result};
use crate::providers::Recipe;
use crate::providers::interpret::expected::to_expected_json;
use crate::providers::interpret::{Interpreter, Reading};
use clap::Args;
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// `postonce interpret`
#[derive(Args, Debug)]
pub(crate) struct Interpret {
    /// The provider whose rules read it.
    #[arg(long)]
    pub provider: String,
    /// The body; - for standard input.
    #[arg(long, value_name = "FILE")]
    pub event: PathBuf,
    /// Its headers: `Name: value` lines, or one JSON object.
    #[arg(long, value_name = "FILE")]
    pub headers: Option<PathBuf>,
    /// The query string it came with, without the question mark.
    #[arg(long, default_value = "")]
    pub query: String,
    /// A setting of the source, as NAME=VALUE; may be repeated.
    #[arg(long = "option", value_name = "K=V")]
    pub options: Vec<String>,
    /// A folder of provider files that override or extend the built-in ones.
    #[arg(long, value_name = "DIR")]
    pub providers_dir: Option<PathBuf>,
    /// One JSON object.
    #[arg(long)]
    pub json: bool,
}

pub(super) fn run(args: &Interpret) -> Done {
    let catalog = catalog(args.providers_dir.as_deref())?;
    let recipe = match catalog.recipe(&args.provider) {
        Some(recipe) => recipe.map_err(|e| Error::refused(e.to_string(), "mend that file"))?,
        None => return Err(unknown(&args.provider)),
    };
    let reading = meaning(&recipe, &args.options, &args.event, args.headers.as_ref(), &args.query)?;
    let told = to_expected_json(&reading);
    let mut out = std::io::stdout().lock();
    match args.json {
        true => output::line(&mut out, &told.to_string())?,
        false => output::line(&mut out, describe(&told).trim_end())?,
    }
    Ok(Outcome::Fine)
}

/// No provider is called so.
pub(super) fn unknown(name: &str) -> Error {
    Error::refused(format!("no provider is called {name:?}"), "`postonce providers list` shows all")
}

/// Reads a body by a recipe.
pub(super) fn meaning(
    recipe: &Recipe,
    options: &[String],
    event: &std::path::Path,
    headers: Option<&PathBuf>,
    query: &str,
) -> Result<Reading> {
    let mut settings = BTreeMap::new();
    for option in options {
        let (name, value) = option
            .split_once('=')
            .ok_or_else(|| Error::refused(format!("--option {option:?} has no value"), "--option auto_capture=true"))?;
        settings.insert(name.to_owned(), value.to_owned());
    }
    let interpreter = Interpreter::new(&recipe.events(), &settings)
        .map_err(|what| Error::refused(what, format!("`postonce providers show {}`", recipe.provider)))?;
    let headers = headers.map_or_else(|| Ok(Vec::new()), |file| headers_of(file))?;
    Ok(interpreter.interpret(&read(event)?, &headers, query, crate::clock::wall()))
}

/// The same for people: one event after the other.
pub(super) fn describe(told: &Value) -> String {
    let events = match &told["events"] {
        Value::Array(events) => events.clone(),
        _ => vec![told.clone()],
    };
    let word = |value: &Value| match value {
        Value::Null => "-".to_owned(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    let mut text = String::new();
    for event in &events {
        text.push_str(&format!(
            "event {} ({}), {} mode: {}\n",
            word(&event["event_id"]),
            word(&event["event_type"]),
            word(&event["mode"]),
            word(&event["disposition"])
        ));
        if let Some(reason) = event["reason"].as_str() {
            text.push_str(&format!("  because  {reason}\n"));
        }
        for fetch in event["fetch"].as_array().into_iter().flatten() {
            text.push_str(&format!("  fetch    {}\n", word(&fetch["path"])));
        }
        for money in event["movements"].as_array().into_iter().flatten() {
            let currency = money["currency"].as_str().unwrap_or_default();
            let of = |name: &str| money[name].as_i64().map(|minor| output::money(minor, currency));
            let amount = of("amount").or_else(|| of("cumulative_amount").map(|total| format!("{total} so far")));
            text.push_str(&format!("  {:<8} {}", word(&money["kind"]), word(&money["reference"])));
            text.push_str(&format!(", {}", amount.unwrap_or_default()));
            for name in ["fee", "tax"] {
                text.push_str(&of(name).map(|value| format!(", {name} {value}")).unwrap_or_default());
            }
            for name in ["account", "parent", "if_prior", "occurred_at"] {
                text.push_str(&money[name].as_str().map(|value| format!(", {name} {value}")).unwrap_or_default());
            }
            text.push('\n');
        }
        for state in event["entities"].as_array().into_iter().flatten() {
            text.push_str(&format!("  {} {} is {}", word(&state["kind"]), word(&state["id"]), word(&state["status"])));
            text.push_str(&format!(" (their word: {})\n", word(&state["provider_status"])));
        }
    }
    text
}
