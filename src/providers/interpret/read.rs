//! Evaluates one event against expressions, conditions, amounts, times.
//!
//! Amounts stay text until they are exact minor units; ids are the digits that were sent; a text that cannot be read
//! is a problem for the caller to park, never a default. Nothing here knows which provider it reads.

use super::grammar::{
    AmountRule, Applies, Clock, Condition, EntityRule, Exactness, Expr, MovementRule, Number, Place, Pointer, Template,
    TemplatePart, Test, TimeRule, Unit,
};
use super::{EFFECTS_MAX, ID_MAX};
use crate::event::{Amount, EntityState, Event, Millis, Movement, Role};
use crate::money::{AmountError, Currency, Money, decimal_to_units, estimate_to_units, float_to_units};
use crate::providers::body::query_value;
use crate::providers::json::{Kind, Value};
use std::borrow::Cow;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::fmt;

/// What pointers into one event have led to, so that each is followed once.
pub struct Memory(Vec<Cell<u32>>);

/// Bytes of a field that a rule reads: a loop that compares a long text again and again would not be linear.
const TEXT_MAX: usize = 4096;

const UNREAD: u32 = u32::MAX;
const ABSENT: u32 = u32::MAX - 1;

impl Memory {
    pub fn new(slots: usize) -> Memory {
        Memory(vec![Cell::new(UNREAD); slots])
    }

    pub fn forget(&self) {
        self.0.iter().for_each(|cell| cell.set(UNREAD));
    }
}

/// What a text is wanted for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum How {
    /// For people and comparisons.
    Plain,
    /// An id: a number must be plain digits.
    Id,
    /// A word of a map: one that the map lacks is a problem.
    Word,
}

/// What rules have found in one event.
#[derive(Default)]
pub struct Found {
    pub movements: Vec<Movement>,
    pub entities: Vec<EntityState>,
    /// The first thing about money that could not be read.
    pub problem: Option<String>,
    /// A state whose word is not known.
    pub unknown_state: Option<String>,
    /// A movement of nothing was left out.
    pub zero: bool,
    /// The first condition that did not hold.
    pub unmet: Option<String>,
}

impl Found {
    pub fn park(&mut self, problem: String) {
        self.problem.get_or_insert(problem);
    }
}

/// One event, and where in it a rule looks.
#[derive(Clone, Copy)]
pub struct Context<'x> {
    root: Value<'x>,
    item: Value<'x>,
    element: Option<Value<'x>>,
    headers: &'x [(&'x str, &'x str)],
    query: &'x str,
    root_memory: &'x Memory,
    item_memory: &'x Memory,
}

type Text<'x> = Result<Option<Cow<'x, str>>, String>;

/// Follows a pointer.
pub fn follow<'x>(value: Value<'x>, pointer: &Pointer) -> Option<Value<'x>> {
    pointer.keys.iter().try_fold(value, |value, key| match value.kind() {
        Kind::Object => value.get(key),
        Kind::Array => value.elements().nth(key.parse().ok()?),
        _ => None,
    })
}

fn scalar(value: Option<Value<'_>>, how: How) -> Text<'_> {
    let Some(value) = value else { return Ok(None) };
    if how == How::Id && value.kind() == Kind::Number && value.raw().contains(['.', 'e', 'E']) {
        return Err(format!("`{}` is a number but no id: only plain digits are", shown(value.raw())));
    }
    if value.raw().len() > TEXT_MAX {
        return Err(format!("`{}` is longer than {TEXT_MAX} bytes", shown(value.raw())));
    }
    Ok(value.text().filter(|text| !text.is_empty()))
}

fn has(value: Value<'_>, wanted: &[(Pointer, String)]) -> bool {
    wanted.iter().all(|(pointer, text)| follow(value, pointer).and_then(|v| v.text()).is_some_and(|t| t == *text))
}

/// A provider's text inside a message: short, on one line.
fn shown(text: &str) -> String {
    let clean: String = text.chars().take(60).map(|c| if c.is_control() { '\u{FFFD}' } else { c }).collect();
    if clean.len() < text.len() && text.chars().count() > 60 { clean + "…" } else { clean }
}

impl<'x> Context<'x> {
    pub fn new(
        root: Value<'x>,
        item: Value<'x>,
        headers: &'x [(&'x str, &'x str)],
        query: &'x str,
        root_memory: &'x Memory,
        item_memory: &'x Memory,
    ) -> Context<'x> {
        Context { root, item, element: None, headers, query, root_memory, item_memory }
    }

    fn field(&self, place: Place, pointer: &Pointer) -> Option<Value<'x>> {
        let (from, memory) = match place {
            Place::Element => return follow(self.element?, pointer),
            Place::Item => (self.item, self.item_memory),
            Place::Body => (self.root, self.root_memory),
        };
        let Some(cell) = memory.0.get(pointer.slot) else { return follow(from, pointer) };
        match cell.get() {
            ABSENT => None,
            UNREAD => {
                let found = follow(from, pointer);
                cell.set(found.map_or(ABSENT, Value::number));
                found
            }
            number => from.sibling(number),
        }
    }

    fn start(&self, place: Place) -> Option<Value<'x>> {
        match place {
            Place::Item => Some(self.item),
            Place::Element => self.element,
            Place::Body => Some(self.root),
        }
    }

    /// The text of an expression; `None` where there is none (missing, null, empty).
    pub fn text(&self, expr: &'x Expr, how: How) -> Text<'x> {
        let borrowed = |text: &'x str| Ok(Some(Cow::Borrowed(text)).filter(|t| !t.is_empty()));
        match expr {
            Expr::Field(place, pointer) => scalar(self.field(*place, pointer), how),
            Expr::Header(name) => match self.headers.iter().find(|(known, _)| known.eq_ignore_ascii_case(name)) {
                Some((_, value)) => borrowed(value.trim()),
                None => Ok(None),
            },
            Expr::Query(name) => Ok(query_value(self.query, name).filter(|t| !t.is_empty())),
            Expr::Option(_) => Ok(None), // replaced when the rules were compiled
            Expr::Fixed(text) => borrowed(text),
            Expr::First(all) => {
                for one in all {
                    if let Some(text) = self.text(one, how)? {
                        return Ok(Some(text));
                    }
                }
                Ok(None)
            }
            Expr::Join(parts, separator) => {
                let mut joined = String::new();
                for (i, part) in parts.iter().enumerate() {
                    let Some(text) = self.text(part, how)? else { return Ok(None) };
                    if i > 0 {
                        joined.push_str(separator);
                    }
                    joined.push_str(&text);
                }
                Ok(Some(Cow::Owned(joined)))
            }
            Expr::Map { from, words, rest } => {
                let Some(text) = self.text(from, How::Plain)? else { return Ok(None) };
                match words.get(text.as_ref()).or(rest.as_ref()) {
                    Some(word) => borrowed(word),
                    None if how == How::Word => Err(format!("unknown value `{}` at {from}", shown(&text))),
                    None => Ok(None),
                }
            }
            Expr::Unless(from, texts) => {
                let Some(text) = self.text(from, how)? else { return Ok(None) };
                let excepted = |expr: &Expr| matches!(expr, Expr::Fixed(fixed) if *fixed == text);
                Ok((!texts.iter().any(excepted)).then_some(text))
            }
            Expr::If(from, when) => {
                for condition in when {
                    if !self.holds(condition)? {
                        return Ok(None);
                    }
                }
                self.text(from, how)
            }
            Expr::Contains { from, needle, then, otherwise } => match self.text(from, How::Plain)? {
                Some(text) if text.contains(needle.as_str()) => borrowed(then),
                Some(_) => borrowed(otherwise),
                None => Ok(None),
            },
            Expr::Cut { from, separator, tail } => {
                let Some(text) = self.text(from, how)? else { return Ok(None) };
                let cut = match tail {
                    true => text.rsplit(separator.as_str()).next(),
                    false => text.split(separator.as_str()).next(),
                };
                Ok(cut.filter(|t| !t.is_empty()).map(|t| Cow::Owned(t.to_owned())))
            }
            Expr::Find { place, array, wanted, get } => {
                let Some(array) = self.start(*place).and_then(|from| follow(from, array)) else { return Ok(None) };
                let found = array.elements().find(|element| has(*element, wanted));
                scalar(found.and_then(|element| follow(element, get)), how)
            }
        }
    }

    fn there(&self, expr: &'x Expr) -> Result<bool, String> {
        match expr {
            Expr::Field(place, pointer) => Ok(self.field(*place, pointer).is_some_and(|value| match value.kind() {
                Kind::Null => false,
                Kind::Text => !value.raw().is_empty(),
                _ => true,
            })),
            Expr::First(all) => {
                for one in all {
                    if self.there(one)? {
                        return Ok(true);
                    }
                }
                Ok(false)
            }
            other => Ok(self.text(other, How::Plain)?.is_some()),
        }
    }

    /// Whether a condition holds; an error where it must be readable and is not.
    pub fn holds(&self, condition: &'x Condition) -> Result<bool, String> {
        match &condition.test {
            Test::Exists => return self.there(&condition.of),
            Test::Missing => return self.there(&condition.of).map(|there| !there),
            _ => {}
        }
        let text = self.text(&condition.of, How::Plain)?;
        let sign = |text: &str| match decimal_to_units(text, 0) {
            // digits decide: an amount may be inexact or huge and still have a sign
            _ if !text.contains(|c: char| ('1'..='9').contains(&c)) => 0,
            Err(AmountError::Malformed) => 0,
            _ if text.trim_start().starts_with('-') => -1,
            _ => 1,
        };
        Ok(match (&condition.test, text.as_deref()) {
            (Test::In(texts), Some(text)) => texts.iter().any(|t| t == text),
            (Test::In(_), None) => false,
            (Test::NotIn(texts), Some(text)) => !texts.iter().any(|t| t == text),
            (Test::Positive, Some(text)) => sign(text) > 0,
            (Test::Negative, Some(text)) => sign(text) < 0,
            (Test::Starts(begin), Some(text)) => text.starts_with(begin.as_str()),
            (Test::NotStarts(begin), Some(text)) => !text.starts_with(begin.as_str()),
            (Test::NotIn(_) | Test::NotStarts(_), None) => true,
            (Test::Positive | Test::Negative | Test::Starts(_), None) => false,
            (Test::Is(wanted), Some(text @ ("true" | "false"))) => (text == "true") == *wanted,
            (Test::Is(_), Some(text)) => {
                return Err(format!("flag unreadable: {} is `{}`, neither true nor false", condition.of, shown(text)));
            }
            (Test::Is(_), None) => return Err(format!("flag unreadable: {} is missing", condition.of)),
            (Test::Exists | Test::Missing | Test::Option(..), _) => false, // seen to above; replaced when compiled
        })
    }

    /// Runs a rule once for each element it loops over (once in all if it does not) where its conditions hold.
    pub fn each(&self, applies: &'x Applies, found: &mut Found, run: &mut dyn FnMut(&Context<'x>, &mut Found)) {
        self.level(applies, 0, found, run);
    }

    fn level(
        &self,
        applies: &'x Applies,
        depth: usize,
        found: &mut Found,
        run: &mut dyn FnMut(&Context<'x>, &mut Found),
    ) {
        let Some((place, pointer)) = applies.each.get(depth) else {
            for condition in &applies.when {
                match self.holds(condition) {
                    Ok(true) => {}
                    Ok(false) => {
                        found.unmet.get_or_insert_with(|| condition.to_string());
                        return;
                    }
                    Err(problem) => return found.park(problem),
                }
            }
            return run(self, found);
        };
        let Some(array) = self.start(*place).and_then(|from| follow(from, pointer)) else { return };
        for element in array.elements() {
            if found.problem.is_some() {
                return; // parked as a whole: what else it holds makes no difference
            }
            Context { element: Some(element), ..*self }.level(applies, depth + 1, found, run);
        }
    }

    /// The first time that can be read.
    pub fn time(&self, rules: &'x [TimeRule]) -> Option<Millis> {
        rules.iter().find_map(|rule| {
            let text = self.text(&rule.from, How::Plain).ok()??;
            let stamp = |text: &str| Some(text.parse::<jiff::Timestamp>().ok()?.as_millisecond());
            match rule.clock {
                Clock::Rfc3339 => stamp(&text),
                Clock::Unix => decimal_to_units(&text, 3).ok(),
                Clock::UnixMs => decimal_to_units(&text, 0).ok(),
                Clock::NaiveUtc => {
                    let naive = text.trim_end_matches('Z').parse::<jiff::civil::DateTime>().ok()?;
                    Some(jiff::tz::TimeZone::UTC.to_timestamp(naive).ok()?.as_millisecond())
                }
                Clock::Auto => match decimal_to_units(&text, 0) {
                    Ok(number) if number.unsigned_abs() >= 100_000_000_000 => Some(number),
                    Ok(number) => number.checked_mul(1000),
                    Err(_) => stamp(&text),
                },
            }
        })
    }

    /// A number in units of 10^-`exponent`; `None` where there is none.
    fn number(&self, number: &'x Number, exponent: i32, rule: &AmountRule) -> Result<Option<i64>, String> {
        let units = |text: &str| {
            if rule.unit == Unit::Minor && text.contains(['.', 'e', 'E']) {
                return Err(format!("amount `{}`: the smallest unit has no decimals", shown(text)));
            }
            match rule.exactness {
                Exactness::Exact => decimal_to_units(text, exponent),
                Exactness::Noise => float_to_units(text, exponent),
                Exactness::Estimate => estimate_to_units(text, exponent),
            }
            .map_err(|problem| format!("amount `{}` {}", shown(text), amount_problem(problem)))
        };
        let add = |a: i64, b: i64| a.checked_add(b).ok_or("a sum of amounts is too large".to_owned());
        match number {
            Number::One(expr) => self.text(expr, How::Plain)?.map(|text| units(&text)).transpose(),
            Number::Sum(parts) => {
                let mut sum = None;
                for (i, part) in parts.iter().enumerate() {
                    match self.text(part, How::Plain)? {
                        Some(text) => sum = Some(add(sum.unwrap_or(0), units(&text)?)?),
                        None if i == 0 => return Ok(None),
                        None => {}
                    }
                }
                Ok(sum)
            }
            Number::SumOf { place, array, item, wanted } => {
                let mut sum = None;
                let array = self.start(*place).and_then(|from| follow(from, array));
                for element in array.iter().flat_map(|a| a.elements()).filter(|e| has(*e, wanted)) {
                    if let Some(text) = scalar(follow(element, item), How::Plain)? {
                        sum = Some(add(sum.unwrap_or(0), units(&text)?)?);
                    }
                }
                Ok(sum)
            }
        }
    }

    /// The first way to read an amount that gives one. An amount of another currency than `currency` is passed over,
    /// unless `any_currency`.
    fn amount(
        &self,
        rules: &'x [AmountRule],
        currency: Currency,
        any_currency: bool,
        exponents: &BTreeMap<String, u8>,
    ) -> Result<Option<Money>, String> {
        for rule in rules {
            let own = match &rule.currency {
                None => currency,
                Some(expr) => match self.text(expr, How::Plain)? {
                    None => currency,
                    Some(code) => match Currency::parse(&code) {
                        Some(own) => own,
                        None => return Err(format!("unknown currency `{}`", shown(&code))),
                    },
                },
            };
            if own != currency && !any_currency {
                continue;
            }
            let iso = i32::from(own.exponent());
            let exponent = match rule.unit {
                Unit::Major => iso,
                Unit::Minor => iso - exponents.get(own.code()).map_or(iso, |e| i32::from(*e)),
            };
            let Some(mut minor) = self.number(&rule.number, exponent, rule)? else { continue };
            for less in &rule.minus {
                minor = minor
                    .checked_sub(self.number(less, exponent, rule)?.unwrap_or(0))
                    .ok_or("an amount is too large")?;
            }
            return Ok(Some(Money { minor: if rule.abs { minor.abs() } else { minor }, currency: own }));
        }
        Ok(None)
    }

    /// An id of at most [`ID_MAX`] characters.
    fn id(&self, expr: &'x Expr, what: &str) -> Result<Option<String>, String> {
        match self.text(expr, How::Id).map_err(|problem| format!("{what}: {problem}"))? {
            Some(id) if id.len() > ID_MAX => Err(format!("{what} is longer than {ID_MAX} characters")),
            id => Ok(id.map(Cow::into_owned)),
        }
    }

    /// Runs a movement rule here.
    pub fn movement(&self, rule: &'x MovementRule, exponents: &BTreeMap<String, u8>, event: &Event, found: &mut Found) {
        match self.read_movement(rule, exponents, event) {
            Ok(Some(_)) if found.movements.len() == EFFECTS_MAX => {
                found.park(format!("more than {EFFECTS_MAX} movements in one event"));
            }
            Ok(Some(movement)) => found.movements.push(movement),
            Ok(None) => found.zero = true,
            Err(problem) => found.park(problem),
        }
    }

    /// `None`: an amount of nothing.
    fn read_movement(
        &self,
        rule: &'x MovementRule,
        exponents: &BTreeMap<String, u8>,
        event: &Event,
    ) -> Result<Option<Movement>, String> {
        let kind = self.text(&rule.kind, How::Word)?.ok_or_else(|| format!("required field missing: {}", rule.kind))?;
        let about = |problem: String| format!("{kind}: {problem}");
        let missing = |expr: &dyn fmt::Display| about(format!("required field missing: {expr}"));
        let code = self.text(&rule.currency, How::Plain).map_err(about)?.ok_or_else(|| missing(&rule.currency))?;
        let currency = Currency::parse(&code).ok_or_else(|| about(format!("unknown currency `{}`", shown(&code))))?;
        let amount = self
            .amount(&rule.amount, currency, false, exponents)
            .map_err(about)?
            .ok_or_else(|| missing(&rule.amount[0]))?
            .minor;
        if amount < 0 {
            return Err(about(format!("the amount is negative ({amount})")));
        }
        let reference = self
            .id(&rule.reference, "reference")
            .map_err(about)?
            .ok_or_else(|| about(format!("no reference: nothing at {}", rule.reference)))?;
        if amount == 0 {
            return Ok(None);
        }
        let mut aliases: Vec<String> = Vec::new();
        for expr in &rule.also {
            if let Some(name) = self.id(expr, "reference").map_err(about)?
                && name != reference
                && !aliases.contains(&name)
            {
                aliases.push(name);
            }
        }
        let fee = self.amount(&rule.fee, currency, true, exponents).map_err(|p| about(format!("fee: {p}")))?;
        let tax = self.amount(&rule.tax, currency, false, exponents).map_err(|p| about(format!("tax: {p}")))?;
        let account = match &rule.account {
            Some(expr) => self.text(expr, How::Plain).map_err(about)?.map(Cow::into_owned),
            None => None,
        };
        if account.as_ref().is_some_and(|account| account.len() > ID_MAX) {
            return Err(about(format!("account is longer than {ID_MAX} characters")));
        }
        Ok(Some(Movement {
            reference,
            aliases,
            account,
            amount: if rule.running_total { Amount::RunningTotal(amount) } else { Amount::Exact(amount) },
            currency,
            fee,
            tax: tax.map(|t| t.minor),
            occurred_at: self.time(&rule.time).or(event.occurred_at),
            parent: rule.parent.as_ref().map_or(Ok(None), |expr| self.id(expr, "parent")).map_err(about)?,
            if_prior: rule.if_prior.clone(),
            role: if rule.secondary { Role::Secondary } else { Role::Primary },
            unconfirmed: false,
            kind: kind.into_owned(),
        }))
    }

    /// Runs an entity rule here. Without an id there is nothing to keep a state of.
    pub fn entity(&self, rule: &'x EntityRule, event: &Event, received_at: Millis, found: &mut Found) {
        let plain = |expr: &'x Option<Expr>| {
            expr.as_ref().and_then(|expr| self.text(expr, How::Plain).ok().flatten()).map(Cow::into_owned)
        };
        let Ok(Some(id)) = self.id(&rule.id, "id") else { return };
        let status = match self.text(&rule.status, How::Word) {
            Ok(Some(status)) => status.into_owned(),
            Ok(None) => return,
            Err(problem) => {
                found.unknown_state.get_or_insert_with(|| format!("{} {}: {problem}", rule.kind, shown(&id)));
                "unknown".into()
            }
        };
        if found.entities.len() == EFFECTS_MAX {
            return found.park(format!("more than {EFFECTS_MAX} states in one event"));
        }
        found.entities.push(EntityState {
            kind: rule.kind.clone(),
            id,
            status,
            provider_status: plain(&rule.provider_status),
            version: plain(&rule.version).and_then(|text| text.parse().ok()),
            as_of: match rule.by_receipt {
                true => Some(received_at),
                false => self.time(&rule.time).or(event.occurred_at),
            },
            account: plain(&rule.account),
        });
    }

    /// A path to fetch. Fields are one percent-encoded segment each; a whole path that the event names is taken only
    /// below the prefix that the provider's file fixes. Neither can leave the provider's API.
    pub fn fill(&self, template: &'x Template) -> Result<String, String> {
        let mut path = String::new();
        for part in &template.0 {
            match part {
                TemplatePart::Text(text) => path.push_str(text),
                TemplatePart::Segment(expr) => {
                    let id = self.id(expr, "to fetch")?.ok_or_else(|| format!("nothing to fetch at {expr}"))?;
                    if id.bytes().all(|b| b == b'.') {
                        return Err(format!("to fetch: `{}` is no id", shown(&id)));
                    }
                    for byte in id.bytes() {
                        match byte {
                            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => {
                                path.push(byte as char)
                            }
                            _ => path.push_str(&format!("%{byte:02X}")),
                        }
                    }
                }
                TemplatePart::Path(expr, below) => {
                    let named = self.id(expr, "to fetch")?.ok_or_else(|| format!("nothing to fetch at {expr}"))?;
                    let plain = |b: u8| b.is_ascii_alphanumeric() || b"-_.~/".contains(&b);
                    let inside = named.strip_prefix(below.as_str()).is_some_and(|rest| {
                        rest.bytes().all(plain)
                            && rest.split('/').all(|s| !s.is_empty() && !s.bytes().all(|b| b == b'.'))
                    });
                    if !inside {
                        return Err(format!("to fetch: `{}` is no path below {below}", shown(&named)));
                    }
                    path.push_str(&named);
                }
            }
        }
        Ok(path)
    }
}

fn amount_problem(problem: AmountError) -> String {
    match problem {
        AmountError::Malformed => format!("is {problem}"),
        AmountError::Inexact | AmountError::TooLarge => problem.to_string(),
    }
}

impl fmt::Display for Expr {
    /// As it is written in a provider's file, shortened.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Expr::Field(Place::Item, p) => write!(f, "/{}", p.keys.join("/")),
            Expr::Field(Place::Element, p) => write!(f, "./{}", p.keys.join("/")),
            Expr::Field(Place::Body, p) => write!(f, "^/{}", p.keys.join("/")),
            Expr::Header(name) => write!(f, "header {name}"),
            Expr::Query(name) => write!(f, "query parameter {name}"),
            Expr::Option(name) => write!(f, "option {name}"),
            Expr::Fixed(text) => write!(f, "`{text}`"),
            Expr::First(all) => all.iter().enumerate().try_for_each(|(i, e)| match i {
                0 => e.fmt(f),
                _ => write!(f, " or {e}"),
            }),
            Expr::Join(all, with) => all.iter().enumerate().try_for_each(|(i, e)| match i {
                0 => e.fmt(f),
                _ => write!(f, " {with} {e}"),
            }),
            Expr::Map { from, .. }
            | Expr::Unless(from, _)
            | Expr::If(from, _)
            | Expr::Contains { from, .. }
            | Expr::Cut { from, .. } => from.fmt(f),
            Expr::Find { array, get, .. } => write!(f, "/{}[…]/{}", array.keys.join("/"), get.keys.join("/")),
        }
    }
}

impl fmt::Display for AmountRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.number {
            Number::One(expr) => expr.fmt(f),
            Number::Sum(all) => all.iter().try_for_each(|e| write!(f, "{e} ")),
            Number::SumOf { array, item, .. } => write!(f, "/{}[…]/{}", array.keys.join("/"), item.keys.join("/")),
        }
    }
}

impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let of = &self.of;
        match &self.test {
            Test::In(texts) => write!(f, "{of} is {}", texts.join(" or ")),
            Test::NotIn(texts) => write!(f, "{of} is not {}", texts.join(" or ")),
            Test::Option(name, _) => write!(f, "{of} suits option {name}"),
            Test::Exists => write!(f, "{of} is there"),
            Test::Missing => write!(f, "{of} is missing"),
            Test::Positive => write!(f, "{of} is above 0"),
            Test::Negative => write!(f, "{of} is below 0"),
            Test::Starts(begin) => write!(f, "{of} begins with `{begin}`"),
            Test::NotStarts(begin) => write!(f, "{of} does not begin with `{begin}`"),
            Test::Is(flag) => write!(f, "{of} is {flag}"),
        }
    }
}
