//! `postonce providers list | show | check`: what the program knows of a provider, and what a file of your own makes of a
//! sample. Touches no database.

use super::interpret::{describe, meaning, unknown};
use super::verify::{catalog, headers_of, read, time};
use super::{Done, Outcome, output};
use crate::config::secret_from;
use crate::error::{Error, Result};
use crate::event::Meaning;
use crate::providers::interpret::expected::to_expected_json;
use crate::providers::signature::{Delivery, Options, Secret, Verifier};
use crate::providers::{Catalog, Recipe};
use clap::{Args, Subcommand};
use std::collections::BTreeSet;
use std::path::PathBuf;

/// `postonce providers`
#[derive(Args, Debug)]
pub(crate) struct Providers {
    #[command(subcommand)]
    pub what: What,
}

/// What about them.
#[derive(Subcommand, Debug)]
pub(crate) enum What {
    /// All that are known, with what their signature covers.
    List(List),
    /// What is known of one: proof, settings, types of events, lists and reports.
    Show(Show),
    /// Check a file of your own, and show what it makes of a sample.
    Check(Box<Check>),
}

#[derive(Args, Debug)]
pub(crate) struct List {
    /// A folder of provider files that override or extend the built-in ones.
    #[arg(long, value_name = "DIR")]
    pub providers_dir: Option<PathBuf>,
    /// One JSON object a line.
    #[arg(long)]
    pub json: bool,
}

#[derive(Args, Debug)]
pub(crate) struct Show {
    /// Its name, or another name it is known by.
    pub name: String,
    /// The file itself.
    #[arg(long)]
    pub toml: bool,
    /// A folder of provider files that override or extend the built-in ones.
    #[arg(long, value_name = "DIR")]
    pub providers_dir: Option<PathBuf>,
}

#[derive(Args, Debug)]
pub(crate) struct Check {
    /// The provider's file.
    pub file: PathBuf,
    /// A body; - for standard input.
    #[arg(long, value_name = "BODY")]
    pub event: Option<PathBuf>,
    /// Its headers: `Name: value` lines, or one JSON object.
    #[arg(long, value_name = "FILE", requires = "event")]
    pub headers: Option<PathBuf>,
    /// The signing secret, as env:VAR or file:PATH, for the verdict.
    #[arg(long, requires = "event")]
    pub secret: Option<String>,
    /// The public address it was sent to.
    #[arg(long, default_value = "https://hooks.example.com/webhooks/x")]
    pub url: String,
    /// The clock of the verdict: RFC 3339 or Unix seconds; now when absent.
    #[arg(long, value_name = "TIME")]
    pub at: Option<String>,
    /// A setting of the source, as NAME=VALUE; may be repeated.
    #[arg(long = "option", value_name = "K=V")]
    pub options: Vec<String>,
    /// One JSON object.
    #[arg(long)]
    pub json: bool,
}

pub(super) fn run(args: &Providers) -> Done {
    match &args.what {
        What::List(args) => list(args),
        What::Show(args) => show(args),
        What::Check(args) => check(args),
    }
}

fn list(args: &List) -> Done {
    let catalog = catalog(args.providers_dir.as_deref())?;
    let mut out = std::io::stdout().lock();
    let mut rows = Vec::new();
    let names: Vec<String> = catalog.names().map(str::to_owned).collect();
    for name in &names {
        let recipe = recipe(&catalog, name)?;
        let money = !recipe.movements.rules.is_empty();
        let settles = !recipe.report.is_empty() || !recipe.pull.is_empty();
        if args.json {
            let row = serde_json::json!({
                "name": name, "title": recipe.title, "aliases": recipe.aliases,
                "covers": recipe.signature.covers.as_str(), "money": money, "settles": settles,
                "needs_secret": recipe.signature.needs_secret(),
            });
            output::json_line(&mut out, &row)?;
        } else {
            let yes = |it: bool| if it { "yes" } else { "-" }.to_owned();
            let covers = recipe.signature.covers.as_str().to_owned();
            rows.push(vec![name.clone(), recipe.title, covers, yes(money), yes(settles)]);
        }
    }
    if !args.json {
        let head = ["name", "provider", "signed", "money", "settlement"];
        output::line(&mut out, output::table(&head, &[], &rows).trim_end())?;
    }
    Ok(Outcome::Fine)
}

fn recipe(catalog: &Catalog, name: &str) -> Result<Recipe> {
    match catalog.recipe(name) {
        Some(recipe) => recipe.map_err(|e| Error::refused(e.to_string(), "mend that file")),
        None => Err(unknown(name)),
    }
}

fn show(args: &Show) -> Done {
    let catalog = catalog(args.providers_dir.as_deref())?;
    let recipe = recipe(&catalog, &args.name)?;
    let mut out = std::io::stdout().lock();
    if args.toml {
        output::line(&mut out, catalog.text(&recipe.provider).unwrap_or_default().trim_end())?;
        return Ok(Outcome::Fine);
    }
    let mut lines = vec![format!("{} ({})", recipe.title, recipe.provider)];
    let mut say = |name: &str, value: String| {
        if !value.is_empty() {
            lines.push(format!("  {name:<11} {value}"));
        }
    };
    say("also", recipe.aliases.join(", "));
    say("events of", recipe.events_of.clone().unwrap_or_default());
    say("signed", recipe.signature.covers.as_str().to_owned());
    let secret = recipe.signature.secret.is.clone().unwrap_or_else(|| "the signing secret".into());
    say("secret", if recipe.signature.needs_secret() { secret } else { format!("{secret} (may be left out)") });
    for (name, setting) in &recipe.signature.settings {
        let need = if setting.required { "must be set" } else { "may be set" };
        say("option", format!("{name}: {} ({need})", setting.is));
    }
    for (name, option) in &recipe.event.options {
        let values = if option.values.is_empty() { String::new() } else { format!(": {}", option.values.join(", ")) };
        say("option", format!("{name} = {:?}{values}: {}", option.default, option.about));
    }
    let handshakes: Vec<&str> = recipe.handshake.iter().map(|shake| shake.name.as_str()).collect();
    say("handshakes", handshakes.join(", "));
    let kinds = |all: Vec<(String, String)>| {
        let line = |(what, on): (String, String)| format!("{}: {on}", what.trim_matches('`'));
        let all: BTreeSet<String> = all.into_iter().map(line).collect();
        all.into_iter().collect::<Vec<_>>()
    };
    let on = |applies: &crate::providers::interpret::grammar::Applies| {
        let all: Vec<String> = applies.on.iter().chain(&applies.answer).map(ToString::to_string).collect();
        all.join(", ")
    };
    for line in kinds(recipe.movements.rules.iter().map(|rule| (rule.kind.to_string(), on(&rule.applies))).collect()) {
        say("money", line);
    }
    for line in kinds(recipe.entities.rules.iter().map(|rule| (rule.kind.to_string(), on(&rule.applies))).collect()) {
        say("state", line);
    }
    for rule in &recipe.fetches.rules {
        say("fetched", on(&rule.applies));
    }
    for rule in &recipe.parks.rules {
        say("parked", format!("{}: {}", on(&rule.applies), rule.because));
    }
    say("lists", recipe.pull.keys().cloned().collect::<Vec<_>>().join(", "));
    say("reports", recipe.report.keys().cloned().collect::<Vec<_>>().join(", "));
    lines.push(format!("`postonce providers show {} --toml` prints the file itself", recipe.provider));
    output::line(&mut out, &lines.join("\n"))?;
    Ok(Outcome::Fine)
}

fn check(args: &Check) -> Done {
    let mut catalog = catalog(None)?;
    let added = catalog
        .add(&args.file)
        .map_err(|e| Error::refused(e.to_string(), "src/providers/README.md tells the grammar"))?;
    let recipe = match catalog.recipe(&added) {
        Some(recipe) => {
            recipe.map_err(|e| Error::refused(e.to_string(), "src/providers/README.md tells the grammar"))?
        }
        None => return Err(unknown(&added)),
    };
    let mut out = std::io::stdout().lock();
    let Some(event) = &args.event else {
        output::line(&mut out, &format!("{} is right: {} ({})", args.file.display(), recipe.title, recipe.provider))?;
        output::line(&mut out, "give it a sample with --event BODY to see what it makes of it")?;
        return Ok(Outcome::Fine);
    };
    let (own, options): (Vec<String>, Vec<String>) = args.options.iter().cloned().partition(|option| {
        option.split_once('=').is_some_and(|(name, _)| recipe.signature.settings.contains_key(name))
    });
    let verdict = verdict(args, &recipe, &own, event)?;
    let reading = meaning(&recipe, &options, event, args.headers.as_ref(), "")?;
    let told = to_expected_json(&reading);
    let refused = verdict.as_ref().is_some_and(|(accepted, ..)| !accepted);
    if args.json {
        let verdict = verdict.map(|(accepted, reason, steps)| {
            serde_json::json!({ "verdict": if accepted { "accept" } else { "reject" }, "reason": reason, "steps": steps })
        });
        output::line(&mut out, &serde_json::json!({ "signature": verdict, "meaning": told }).to_string())?;
    } else {
        match verdict {
            None => output::line(&mut out, "signature: not looked at; give it --secret and --headers")?,
            Some((accepted, reason, steps)) => {
                output::line(&mut out, &format!("signature: {}", if accepted { "good" } else { reason }))?;
                for step in steps {
                    output::line(&mut out, &format!("  {step}"))?;
                }
            }
        }
        output::line(&mut out, describe(&told).trim_end())?;
    }
    let parked = reading.events.iter().any(|event| matches!(event.meaning, Meaning::Parked(_)));
    Ok(if refused || parked { Outcome::Found } else { Outcome::Fine })
}

type Explained = (bool, &'static str, Vec<String>);

fn verdict(args: &Check, recipe: &Recipe, settings: &[String], event: &std::path::Path) -> Result<Option<Explained>> {
    if args.secret.is_none() && recipe.signature.needs_secret() {
        return Ok(None);
    }
    let mut secrets = Vec::new();
    if let Some(place) = &args.secret {
        let text = secret_from(place)
            .map_err(|what| Error::refused(format!("--secret: {what}"), "--secret env:NAME or file:PATH"))?;
        secrets.push(Secret::pasted("check", &text).0);
    }
    let pairs = settings.iter().filter_map(|option| option.split_once('='));
    let options = Options {
        settings: pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect(),
        fetch: Some(crate::pull::keys::fetcher()),
        ..Options::default()
    };
    let verifier = Verifier::new(&recipe.signature, &secrets, &options)
        .map_err(|e| Error::refused(e.to_string(), "--secret env:NAME, --option NAME=VALUE"))?;
    let headers = args.headers.as_ref().map_or_else(|| Ok(Vec::new()), |file| headers_of(file))?;
    let pairs: Vec<(&str, &[u8])> = headers.iter().map(|(n, v)| (n.as_str(), v.as_bytes())).collect();
    let body = read(event)?;
    let now = args.at.as_deref().map_or_else(|| Ok(crate::clock::wall()), time)?;
    let delivery = Delivery { headers: &pairs, body: &body, ..Delivery::to("POST", &args.url) };
    let (verdict, steps) = verifier.explain(&delivery, now);
    let reason = verdict.as_ref().map_or_else(|refusal| refusal.reason.as_str(), |_| "ok");
    let steps = steps.iter().map(|step| format!("{} {}", if step.good { "ok " } else { "no " }, step.text)).collect();
    Ok(Some((verdict.is_ok(), reason, steps)))
}
