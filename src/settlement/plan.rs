//! How a source is settled: what the configuration says of it, compiled, beside what its provider's file says.

use crate::config::{Fault, Loaded, SettlementConfig, SourceConfig, secret_from};
use crate::event::Millis;
use crate::money::Currency;
use crate::providers::Recipe;
use crate::providers::interpret::grammar::Expr;
use crate::providers::pull::{Gives, PullSpec, Window};
use crate::providers::report::ReportSpec;
use crate::pull::Access;
use jiff::tz::TimeZone;
use std::collections::{BTreeMap, BTreeSet};

/// The settlement of one source.
pub struct Plan {
    /// Runs daily by itself.
    pub daily: bool,
    /// At which minute of the day (UTC).
    pub at_minute: u32,
    /// The list or report that is pulled; `None`: the provider has none that gives rows.
    pub pull: Option<String>,
    /// The zone of its days.
    pub zone: TimeZone,
    /// The zone of times in its report files, where it is not what the provider's file says.
    pub report_zone: Option<String>,
    /// How many days are looked at again.
    pub again_days: u32,
    /// The settled currency of files that do not say it.
    pub currency: Option<Currency>,
    /// The provider's account whose book it is.
    pub account: String,
    /// How the API is asked; the key is the source's.
    pub access: Access,
    /// After so long without a delivery it is silent, whatever its history says.
    pub silent_after_h: Option<u32>,
    grace_h: Option<u32>,
    grace_kind_h: BTreeMap<String, u32>,
    not_ours: Vec<String>,
    announced: BTreeSet<String>,
}

impl Plan {
    /// Compiles it; what is wrong is added to `faults`.
    pub fn build(
        loaded: &Loaded,
        source: &SourceConfig,
        recipe: &Recipe,
        api_key: Option<&str>,
        faults: &mut Vec<Fault>,
    ) -> Plan {
        let config = source.settlement.clone().unwrap_or_default();
        let (name, line) = (source.name.get_ref(), loaded.line(&source.name));
        let mut fault = |what: String, hint: &str| {
            faults.push(Fault { line, what: format!("source {name}: settlement: {what}"), hint: hint.to_owned() });
        };
        let at_minute = super::window::minute(&config.at).unwrap_or_else(|| {
            fault(format!("at {:?} is no time of day", config.at), "at = \"13:00\", in UTC");
            0
        });
        let gives_rows = |(_, spec): &(&String, &PullSpec)| matches!(spec.gives, Gives::Rows | Gives::Report);
        let pull = match &config.report {
            Some(named) if recipe.pull.get_key_value(named).is_some_and(|p| gives_rows(&p)) => Some(named.clone()),
            Some(named) => {
                let known: Vec<&str> = recipe.pull.iter().filter(gives_rows).map(|(n, _)| n.as_str()).collect();
                fault(format!("there is no list or report {named:?}"), &format!("one of: {}", known.join(", ")));
                None
            }
            None => default_pull(recipe),
        };
        let zone = match (&config.zone, pull.as_ref().and_then(|p| recipe.pull.get(p)).map(|p| &p.window)) {
            (Some(name), _) => TimeZone::get(name).ok(),
            (None, Some(Window::Days(name))) => TimeZone::get(name).ok(),
            (None, _) => Some(TimeZone::UTC),
        };
        let zone = zone.unwrap_or_else(|| {
            fault(
                format!("zone {:?} is not known", config.zone.as_deref().unwrap_or_default()),
                "zone = \"Europe/Berlin\"",
            );
            TimeZone::UTC
        });
        let currency = config.currency.as_deref().and_then(|code| {
            let known = Currency::parse(code);
            if known.is_none() {
                fault(format!("currency {code:?} is not known"), "currency = \"EUR\"");
            }
            known
        });
        let user = config.api_user.as_ref().and_then(|place| match secret_from(place.get_ref()) {
            Ok(user) => Some(user.trim().to_owned()),
            Err(what) => {
                fault(format!("api_user: {what}"), "env:NAME or file:PATH");
                None
            }
        });
        if let Some(zone) = config.report_zone.as_ref().filter(|zone| TimeZone::get(zone).is_err()) {
            fault(format!("report_zone {zone:?} is not known"), "report_zone = \"Europe/Berlin\"");
        }
        let access = Access {
            base: source.api_base.clone(),
            user,
            key: api_key.unwrap_or_default().to_owned(),
            test_mode: source.mode.as_ref().is_some_and(|m| m.get_ref() == "test"),
            settings: config.settings.clone(),
            page_size: config.page_size,
            currency,
        };
        let SettlementConfig {
            enabled,
            report_zone,
            again_days,
            account,
            grace_h,
            grace_kind_h,
            not_ours,
            silent_after_h,
            ..
        } = config;
        Plan {
            daily: enabled && api_key.is_some() && pull.is_some(),
            at_minute,
            pull,
            zone,
            report_zone,
            again_days,
            currency,
            account,
            access,
            silent_after_h,
            grace_h,
            grace_kind_h,
            not_ours,
            announced: announced(recipe),
        }
    }

    /// How long an entry of that kind may be in no report.
    pub fn grace(&self, kind: &str, declared_h: u32) -> Millis {
        let hours = self.grace_kind_h.get(kind).copied().or(self.grace_h).unwrap_or(declared_h);
        Millis::from(hours) * 3_600_000
    }

    /// Does no webhook of this provider announce that kind?
    pub fn provider_only(&self, kind: &str) -> bool {
        let base = match kind {
            "conversion_in" | "conversion_out" => "conversion",
            "adjustment_out" => "adjustment",
            "reserve_release" => "reserve",
            kind => kind,
        };
        kind != "payment" && !self.announced.contains(kind) && !self.announced.contains(base)
    }

    /// Does a rule say that a line with one of these names is another integration's money?
    pub fn not_ours(&self, names: [Option<&str>; 4]) -> bool {
        let fits = |pattern: &String, name: &str| match pattern.strip_suffix('*') {
            Some(begin) => name.starts_with(begin),
            None => pattern == name,
        };
        self.not_ours.iter().any(|pattern| names.iter().flatten().any(|name| fits(pattern, name)))
    }
}

/// The list that covers most.
fn default_pull(recipe: &Recipe) -> Option<String> {
    let breadth = |spec: &PullSpec| if spec.covers.iter().any(|k| k == "*") { usize::MAX } else { spec.covers.len() };
    let rows = recipe.pull.iter().filter(|(_, spec)| spec.gives == Gives::Rows);
    let widest = rows.max_by_key(|(_, spec)| breadth(spec));
    let report = || recipe.pull.iter().find(|(_, spec)| spec.gives == Gives::Report);
    widest.or_else(report).map(|(name, _)| name.clone())
}

/// The kinds that the provider's webhooks announce, as far as its file names them.
fn announced(recipe: &Recipe) -> BTreeSet<String> {
    fn words(expr: &Expr, into: &mut BTreeSet<String>) {
        match expr {
            Expr::Fixed(kind) => {
                into.insert(kind.clone());
            }
            Expr::First(all) => all.iter().for_each(|one| words(one, into)),
            Expr::Map { words: map, rest, .. } => into.extend(map.values().chain(rest).cloned()),
            Expr::Unless(one, _) | Expr::If(one, _) => words(one, into),
            Expr::Contains { then, otherwise, .. } => into.extend([then.clone(), otherwise.clone()]),
            _ => {}
        }
    }
    let mut kinds = BTreeSet::new();
    recipe.movements.rules.iter().for_each(|rule| words(&rule.kind, &mut kinds));
    kinds
}

/// Which report a run scores, and what its file says of it.
#[derive(Clone, Copy)]
pub enum Spec<'r> {
    /// A list of the API.
    List(&'r str, &'r PullSpec),
    /// A report file.
    File(&'r str, &'r ReportSpec),
}

impl<'r> Spec<'r> {
    /// Its name.
    pub fn name(&self) -> &'r str {
        match self {
            Spec::List(name, _) | Spec::File(name, _) => name,
        }
    }

    /// Kinds that it can contain.
    pub fn covers(&self) -> &'r [String] {
        match self {
            Spec::List(_, spec) => &spec.covers,
            Spec::File(_, spec) => &spec.covers,
        }
    }

    /// Is an entry of that kind expected in it?
    pub fn expects(&self, kind: &str) -> bool {
        self.covers().iter().any(|k| k == "*" || k == kind)
    }

    /// Hours until such an entry is missing.
    pub fn grace_h(&self, kind: &str) -> u32 {
        match self {
            Spec::List(_, spec) => spec.grace_h,
            Spec::File(_, spec) => spec.grace_h(kind),
        }
    }

    /// Does it never say what the customer was shown?
    pub fn settled_only(&self) -> bool {
        match self {
            Spec::List(_, spec) => spec.row.as_ref().is_some_and(|row| row.shown.is_none()),
            Spec::File(_, spec) => spec.row.shown.is_none(),
        }
    }

    /// Does it tell fees? Where it does not, a fee of zero says nothing.
    pub fn tells_tax(&self) -> bool {
        match self {
            Spec::List(_, spec) => spec.row.as_ref().is_some_and(|row| row.tax.is_some()),
            Spec::File(_, spec) => spec.row.tax.is_some(),
        }
    }
}
