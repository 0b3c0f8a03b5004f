//! `postonce verify`: explains step by step why a delivery is taken or refused, and judges files of known answers.
//!
//! Touches no database. Prints reasons, header names and times, never anything made from a secret.

use super::{Done, Outcome, output};
use crate::config::Loaded;
use crate::error::{Error, Result};
use crate::providers::Catalog;
use crate::providers::signature::{Delivery, Signs, Step, headers_from_text};
use crate::providers::vectors::verify_vectors;
use crate::source::Source;
use crate::steps::read::{inflate, is_gzip};
use clap::Args;
use std::io::Read as _;
use std::path::{Path, PathBuf};

/// `postonce verify`
#[derive(Args, Debug)]
pub(crate) struct Verify {
    /// The source whose secrets decide.
    #[arg(long, required_unless_present = "vectors", conflicts_with = "vectors")]
    pub source: Option<String>,
    /// The configuration that has it.
    #[arg(long, value_name = "FILE", default_value = "postonce.toml")]
    pub config: PathBuf,
    /// The delivery's headers: `Name: value` lines, or one JSON object.
    #[arg(long, value_name = "FILE", required_unless_present = "vectors")]
    pub headers: Option<PathBuf>,
    /// The delivery's body, byte for byte; - for standard input.
    #[arg(long, value_name = "FILE", required_unless_present = "vectors")]
    pub body: Option<PathBuf>,
    /// The clock: RFC 3339 or Unix seconds; now when absent.
    #[arg(long, value_name = "TIME")]
    pub at: Option<String>,
    /// The public address it was sent to, with its query; from the configuration when absent.
    #[arg(long)]
    pub url: Option<String>,
    /// The method it came with.
    #[arg(long, default_value = "POST")]
    pub method: String,
    /// A file of known answers instead: a JSON list of deliveries, each with its secrets and its clock.
    #[arg(long, value_name = "FILE")]
    pub vectors: Option<PathBuf>,
    /// A folder of provider files that override or extend the built-in ones, for --vectors.
    #[arg(long, value_name = "DIR")]
    pub providers_dir: Option<PathBuf>,
    /// One JSON object a line.
    #[arg(long)]
    pub json: bool,
}

pub(super) fn run(args: &Verify) -> Done {
    match (&args.vectors, &args.source) {
        (Some(file), _) => vectors(args, file),
        (None, Some(name)) => delivery(args, name),
        (None, None) => Err(Error::refused("there is nothing to verify", "name a --source, or a file with --vectors")),
    }
}

fn vectors(args: &Verify, file: &Path) -> Done {
    let catalog = catalog(args.providers_dir.as_deref())?;
    let verdicts = verify_vectors(&catalog, &read(file)?)
        .map_err(|what| Error::refused(format!("{}: {what}", file.display()), "its format is that of tests/vectors"))?;
    let mut out = std::io::stdout().lock();
    for verdict in verdicts {
        match args.json {
            true => output::line(&mut out, &verdict.to_line())?,
            false => {
                let word = if verdict.accepted { "accept" } else { "reject" };
                output::line(&mut out, &format!("{word}  {}  {}", verdict.name, verdict.reason))?;
            }
        }
    }
    Ok(Outcome::Fine)
}

fn delivery(args: &Verify, name: &str) -> Done {
    let (loaded, source) = source(&args.config, name)?;
    let headers = match &args.headers {
        Some(file) => headers_of(file)?,
        None => Vec::new(),
    };
    let body = args.body.as_deref().map_or_else(|| Ok(Vec::new()), read)?;
    let base = loaded.config.public_url.clone().unwrap_or_else(|| format!("http://{}", loaded.config.listen));
    let url = args.url.clone().unwrap_or_else(|| format!("{}/webhooks/{name}", base.trim_end_matches('/')));
    let now = match &args.at {
        None => crate::clock::wall(),
        Some(text) => time(text)?,
    };
    let pairs: Vec<(&str, &[u8])> = headers.iter().map(|(n, v)| (n.as_str(), v.as_bytes())).collect();
    let sent = Delivery { headers: &pairs, body: &body, ..Delivery::to(&args.method, &url) };
    let gzip = sent.header_all("content-encoding").any(|v| is_gzip(&String::from_utf8_lossy(v)));
    let inflated = match gzip && source.verifier.signs() != Signs::Sent {
        true => inflate(&body, source.body_max)
            .map_err(|_| Error::refused("the body says gzip and cannot be unpacked", "save it as it was sent"))?,
        false => body.clone(),
    };
    let delivery = Delivery { body: &inflated, ..sent };
    let (verdict, mut steps) = source.verifier.explain(&delivery, now);
    if verdict.is_err()
        && let Some(other) = other_source(&loaded, &source, &delivery, now)
    {
        let text = format!("a secret of source {other} made it: the provider sends to the wrong address");
        steps.push(Step { good: false, text });
    }
    let (word, reason) = match &verdict {
        Ok(_) => ("accept", "ok"),
        Err(refusal) => ("reject", refusal.reason.as_str()),
    };
    let mut out = std::io::stdout().lock();
    if args.json {
        let list: Vec<_> =
            steps.iter().map(|step| serde_json::json!({ "good": step.good, "text": step.text })).collect();
        let secret = verdict.as_ref().ok().map(|found| found.secret).filter(|secret| !secret.is_empty());
        let all = serde_json::json!({
            "name": name, "verdict": word, "reason": reason, "secret": secret,
            "covers": source.verifier.covers().as_str(), "steps": list,
        });
        output::line(&mut out, &all.to_string())?;
    } else {
        output::line(&mut out, &format!("source {name}, {}, at {}", source.recipe.title, crate::clock::rfc3339(now)))?;
        for step in &steps {
            output::line(&mut out, &format!("  {} {}", if step.good { "ok " } else { "no " }, step.text))?;
        }
        let covers = match source.verifier.covers().as_str() {
            "body" => "every byte of the body".to_owned(),
            part => format!("{part} of the body"),
        };
        output::line(&mut out, &format!("{word}: {reason} (what is signed: {covers})"))?;
    }
    Ok(if verdict.is_ok() { Outcome::Fine } else { Outcome::Found })
}

fn other_source(loaded: &Loaded, mine: &Source, delivery: &Delivery, now: i64) -> Option<String> {
    let catalog = Catalog::open(loaded.config.providers_dir.as_deref()).ok()?;
    let others = loaded.config.sources.iter().filter(|other| *other.name.get_ref() != mine.name);
    let built = others.filter_map(|other| Source::build(loaded, other, &catalog, &mut Vec::new()));
    built.into_iter().find(|other| other.verifier.secret_that_matches(delivery, now).is_some()).map(|other| other.name)
}

/// One source of a configuration; the secrets of the others need not be there.
fn source(file: &Path, name: &str) -> Result<(Loaded, Source)> {
    let all = |faults: Vec<crate::config::Fault>| {
        let list: Vec<String> = faults.iter().map(ToString::to_string).collect();
        Error::refused(format!("{}: {}", file.display(), list.join("; ")), "name the file with --config")
    };
    let loaded = Loaded::read(file).map_err(all)?;
    let catalog = catalog(loaded.config.providers_dir.as_deref())?;
    let Some(config) = loaded.config.sources.iter().find(|source| source.name.get_ref() == name) else {
        let known: Vec<&str> = loaded.config.sources.iter().map(|s| s.name.get_ref().as_str()).collect();
        return Err(Error::refused(
            format!("{} has no source {name:?}", file.display()),
            format!("it has: {}", known.join(", ")),
        ));
    };
    let mut faults = Vec::new();
    match Source::build(&loaded, config, &catalog, &mut faults) {
        Some(source) => Ok((loaded, source)),
        None => Err(all(faults)),
    }
}

/// The providers' files.
pub(super) fn catalog(dir: Option<&Path>) -> Result<Catalog> {
    Catalog::open(dir).map_err(|e| Error::refused(e.to_string(), "name a folder of provider files"))
}

/// A file's bytes; `-` is standard input.
pub(super) fn read(file: &Path) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let got = match file.to_str() {
        Some("-") => std::io::stdin().lock().read_to_end(&mut bytes).map(|_| ()),
        _ => std::fs::read(file).map(|read| bytes = read),
    };
    got.map_err(|e| {
        Error::refused(format!("cannot read {}: {e}", file.display()), "name a file, or - for standard input")
    })?;
    Ok(bytes)
}

/// The headers that a file lists.
pub(super) fn headers_of(file: &Path) -> Result<Vec<(String, String)>> {
    let text = String::from_utf8_lossy(&read(file)?).into_owned();
    headers_from_text(&text).map_err(|what| {
        Error::refused(format!("{}: {what}", file.display()), "one `Name: value` a line, or one JSON object")
    })
}

/// A time as RFC 3339 or in Unix seconds, in milliseconds.
pub(super) fn time(text: &str) -> Result<i64> {
    let seconds = text.parse::<i64>().ok().and_then(|s| s.checked_mul(1000));
    seconds
        .or_else(|| text.parse::<jiff::Timestamp>().ok().map(|t| t.as_millisecond()))
        .ok_or_else(|| Error::refused(format!("--at {text:?} is no time"), "2026-11-18T10:00:00Z, or 1795000000"))
}
