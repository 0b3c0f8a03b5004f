//! A source at work: what the configuration says of it, compiled once.
//!
//! Holds secrets inside the verifier only; nothing here can print one.

use crate::config::{Ack, Config, Fault, Loaded, SecretConfig, SourceConfig, secret_from};
use crate::effects::{Happening, Rule};
use crate::error::Result;
use crate::event::Mode;
use crate::providers::interpret::Interpreter;
use crate::providers::signature::{Options, Secret, Settings, Verifier};
use crate::providers::{Catalog, Recipe};
use crate::pull::{Access, Client, Pace, PullError};
use crate::settlement::plan::Plan;
use crate::store::Tx;
use rusqlite::Connection;
use std::net::IpAddr;
use std::sync::Arc;
use toml::Spanned;

/// What runs inside the apply transaction beside our own statements.
pub type Effect = Arc<dyn Fn(&Tx, &Happening) -> Result<()> + Send + Sync>;

/// A source, ready to verify, read and post.
pub struct Source {
    /// The last part of its path.
    pub name: String,
    /// Whose money it is.
    pub tenant: String,
    /// The only mode it takes; `None`: both.
    pub mode: Option<Mode>,
    /// Its provider's file.
    pub recipe: Recipe,
    /// Proves who sent a delivery.
    pub verifier: Verifier,
    /// Reads what a body means.
    pub interpreter: Interpreter,
    /// The largest body.
    pub body_max: u64,
    /// Who may send; empty: all.
    pub allow_from: Vec<ipnet::IpNet>,
    /// When a delivery is answered.
    pub ack: Ack,
    /// Post amounts that the signature does not cover?
    pub trusts_unsigned_fields: bool,
    /// The provider's API key, and another address of its API.
    pub api_key: Option<String>,
    /// Another address of the provider's API.
    pub api_base: Option<String>,
    /// Requests a second that are let in.
    pub rate_limit: Option<u32>,
    /// How it is compared with the provider's report.
    pub settlement: Plan,
    endpoints: Vec<(String, Vec<String>)>,
    rules: Vec<Rule>,
    effects: Vec<Effect>,
}

impl Source {
    /// Compiles a source; what is wrong with it is added to `faults`, all of it.
    pub fn build(loaded: &Loaded, config: &SourceConfig, catalog: &Catalog, faults: &mut Vec<Fault>) -> Option<Source> {
        let name = config.name.get_ref();
        let before = faults.len();
        let mut fault =
            |line: usize, what: String, hint: &str| faults.push(Fault { line, what, hint: hint.to_owned() });
        let line = loaded.line(&config.name);
        if name.is_empty() || !name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_') {
            fault(line, format!("source name {name:?} cannot be part of a path"), "use letters, digits, - and _");
        }
        if config.tenant.is_empty() {
            fault(line, format!("source {name}: tenant is empty"), "name whose money it is");
        }
        if config.body_max == 0 || config.body_max > crate::config::BODY_MAX_MOST {
            fault(line, format!("source {name}: body_max {} is out of range", config.body_max), "1 to 33554432 bytes");
        }
        let mode = config.mode().unwrap_or_else(|what| {
            fault(
                config.mode.as_ref().map_or(line, |m| loaded.line(m)),
                format!("source {name}: {what}"),
                "mode = \"live\"",
            );
            None
        });
        let mut secrets = Vec::new();
        for secret in &config.secrets {
            match read_secret(secret.get_ref()) {
                Ok(secret) => secrets.push(secret),
                Err(what) => fault(loaded.line(secret), format!("source {name}: {what}"), "env:NAME or file:PATH"),
            }
        }
        let read_key = |key: &Option<Spanned<String>>| match key {
            None => Ok(None),
            Some(place) => secret_from(place.get_ref())
                .map(|key| Some(key.trim().to_owned()))
                .map_err(|what| (loaded.line(place), what)),
        };
        let api_key = read_key(&config.api_key).unwrap_or_else(|(line, what)| {
            fault(line, format!("source {name}: api_key: {what}"), "env:NAME or file:PATH");
            None
        });
        let provider_line = config.provider.as_ref().map_or(line, |p| loaded.line(p));
        let recipe = match catalog.recipe(config.provider()) {
            Some(Ok(recipe)) => recipe,
            Some(Err(error)) => {
                fault(provider_line, error.to_string(), "mend the provider's file");
                return None;
            }
            None => {
                let hint = format!("`postonce providers list` shows the {} that are known", catalog.names().count());
                fault(provider_line, format!("source {name}: no provider is called {:?}", config.provider()), &hint);
                return None;
            }
        };
        let (mut own, mut event, mut api_settings) = (Settings::new(), Settings::new(), Settings::new());
        for (key, value) in config.options.clone() {
            let place = match &key {
                key if recipe.signature.settings.contains_key(key) => &mut own,
                key if !recipe.event.options.contains_key(key) && recipe.asks_api_with(key) => &mut api_settings,
                _ => &mut event,
            };
            place.insert(key, value);
        }
        let options = Options {
            tolerance_s: config.tolerance,
            future_s: config.future,
            settings: own,
            fetch: Some(crate::pull::keys::fetcher()),
            ..Options::default()
        };
        let verifier = Verifier::new(&recipe.signature, &secrets, &options)
            .map_err(|e| {
                fault(line, format!("source {name}: {e}"), "set `secrets` to what the provider's dashboard shows")
            })
            .ok();
        let interpreter = Interpreter::new(&recipe.events(), &event)
            .map_err(|e| fault(line, format!("source {name}: {e}"), "see `postonce providers show`"))
            .ok();
        let rules = config.effects.iter().map(|effect| Rule::build(loaded, name, effect, faults)).collect();
        let mut settlement = Plan::build(loaded, config, &recipe, api_key.as_deref(), faults);
        complete(&mut settlement.access, &recipe, api_settings);
        if faults.len() > before {
            return None;
        }
        let endpoints = loaded
            .config
            .deliveries
            .iter()
            .filter(|d| d.sources.is_empty() || d.sources.contains(name))
            .map(|d| (d.name.get_ref().clone(), d.on.clone()))
            .collect();
        Some(Source {
            name: name.clone(),
            tenant: config.tenant.clone(),
            mode,
            verifier: verifier?,
            interpreter: interpreter?,
            recipe,
            body_max: config.body_max,
            allow_from: config.allow_from.clone(),
            ack: config.ack,
            trusts_unsigned_fields: config.trust_unsigned_fields,
            api_key,
            api_base: config.api_base.clone(),
            rate_limit: config.rate_limit,
            settlement,
            endpoints,
            rules,
            effects: Vec::new(),
        })
    }

    /// Who asks the provider's API, and where; `None`: the source has no key.
    pub fn access(&self, test_mode: bool) -> Option<Access> {
        self.api_key.as_ref()?;
        Some(Access { test_mode, ..self.settlement.access.clone() })
    }

    /// Can it confirm, or fetch, what the signature does not cover?
    pub fn can_confirm(&self) -> bool {
        let ways = !self.recipe.fetch_object.is_empty() || !self.recipe.fetches.rules.is_empty();
        self.api_key.is_some() && ways
    }

    /// What a person can do where the signature does not cover the amount.
    pub fn what_confirms(&self) -> &'static str {
        match self.api_key.is_none() && !self.recipe.fetch_object.is_empty() {
            true => "give the source an api_key, or set trust_unsigned_fields",
            false => "set trust_unsigned_fields if whoever knows the address and its secret is to be believed",
        }
    }

    /// The way to the provider's API.
    pub fn client(&self, test_mode: bool, pace: Pace) -> std::result::Result<Client<'_>, PullError> {
        let access =
            self.access(test_mode).ok_or_else(|| PullError::Recipe(format!("source {} has no api_key", self.name)))?;
        Client::new(&self.recipe, access, pace)
    }

    /// May this address send?
    pub fn allows(&self, address: IpAddr) -> bool {
        self.allow_from.is_empty() || self.allow_from.iter().any(|net| net.contains(&address))
    }

    /// The endpoints that want to hear of this kind.
    pub fn endpoints_for<'s>(&'s self, kind: &'s str) -> impl Iterator<Item = &'s str> {
        self.endpoints.iter().filter(move |(_, on)| on.iter().any(|o| matches(o, kind))).map(|(name, _)| name.as_str())
    }

    /// Does its apply run code that is not ours?
    pub fn has_effects(&self) -> bool {
        !self.effects.is_empty() || !self.rules.is_empty()
    }

    /// Adds an effect that runs inside the apply transaction.
    pub fn add_effect(&mut self, effect: Effect) {
        self.effects.push(effect);
    }

    /// Does a rule run for events of this type, whatever money they move?
    pub fn wants_type(&self, event_type: &str) -> bool {
        self.rules.iter().any(|rule| rule.wants_type(event_type))
    }

    /// Runs the effects of an event, in order; the first error undoes the whole apply.
    pub fn run_effects(&self, tx: &Tx, happening: &Happening) -> Result<()> {
        self.rules.iter().try_for_each(|rule| rule.run(tx, happening))?;
        self.effects.iter().try_for_each(|effect| effect(tx, happening))
    }

    /// Prepares the rules' statements on the real file; what does not fit it is added to `faults`.
    pub fn check_rules(&self, conn: &Connection, faults: &mut Vec<Fault>) {
        self.rules.iter().for_each(|rule| rule.check(conn, faults));
    }
}

/// What the source's options say of the API's addresses, and a key of two parts written as `user:key`.
fn complete(access: &mut Access, recipe: &Recipe, options: Settings) {
    for (name, value) in options {
        access.settings.entry(name).or_insert(value);
    }
    let two_parts = recipe.api.as_ref().is_some_and(|api| api.auth.has_two_parts());
    if let (true, None, Some((user, key))) = (two_parts, &access.user, access.key.split_once(':')) {
        (access.user, access.key) = (Some(user.to_owned()), key.to_owned());
    }
}

/// `payment`, `invoice.*`, `*`.
pub fn matches(pattern: &str, word: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(begin) => word.starts_with(begin),
        None => pattern == word,
    }
}

fn read_secret(config: &SecretConfig) -> std::result::Result<Secret, String> {
    if let SecretConfig::Given { name, value } = config {
        return match value.0.trim() {
            "" => Err(format!("secret {name} is empty")),
            _ => Ok(Secret::pasted(name, &value.0).0),
        };
    }
    let (name, value, ends) = match config {
        SecretConfig::Given { .. } => return Err("it is given by the program".into()),
        SecretConfig::Plain(place) => (place, place, None),
        SecretConfig::Named { name, value, ends } => (name, value, ends.as_ref()),
    };
    let (mut secret, trimmed) = Secret::pasted(name, &secret_from(value)?);
    if trimmed {
        log::info!("secret {name}: white space around it was taken off");
    }
    if let Some(ends) = ends {
        let at: jiff::Timestamp =
            ends.parse().map_err(|_| format!("secret {name}: `ends` is no time (2026-12-31T00:00:00Z)"))?;
        secret.ends_at_ms = Some(at.as_millisecond());
    }
    Ok(secret)
}

/// Compiles all sources of a configuration, or names everything that is wrong with it.
pub fn build_all(loaded: &Loaded) -> std::result::Result<Vec<Source>, Vec<Fault>> {
    let config: &Config = &loaded.config;
    let mut faults = Vec::new();
    let catalog = match Catalog::open(config.providers_dir.as_deref()) {
        Ok(catalog) => catalog,
        Err(error) => return Err(vec![Fault { line: 0, what: error.to_string(), hint: "see providers_dir".into() }]),
    };
    let mut sources: Vec<Source> = Vec::new();
    for one in &config.sources {
        if sources.iter().any(|s| s.name == *one.name.get_ref()) {
            let what = format!("source {} is there twice", one.name.get_ref());
            faults.push(Fault { line: loaded.line(&one.name), what, hint: "each source has a name of its own".into() });
        }
        sources.extend(Source::build(loaded, one, &catalog, &mut faults));
    }
    for delivery in &config.deliveries {
        for source in &delivery.sources {
            if !config.sources.iter().any(|s| s.name.get_ref() == source) {
                let what = format!("deliver {}: there is no source {source}", delivery.name.get_ref());
                faults.push(Fault { line: loaded.line(&delivery.name), what, hint: "name a [[source]]".into() });
            }
        }
    }
    if faults.is_empty() { Ok(sources) } else { Err(faults) }
}

#[cfg(test)]
mod tests {
    use super::matches;

    #[test]
    fn a_pattern_matches_itself_or_what_its_star_leaves_open() {
        assert!(matches("payment", "payment") && matches("*", "payment") && matches("pay*", "payout"));
        assert!(!matches("payment", "payment_reversed") && !matches("refund*", "payment"));
    }
}
