//! Reads bodies by the rules of a provider's file: events, movements of money, states of objects.
//!
//! Pure: bytes in, [`Reading`] out; no clock, no network, no database, and no provider's name. Everything a provider
//! can send gives a reading: what cannot be read without guessing becomes a parked event, never an error, a panic or a
//! made-up key. Work is linear in the body: a pointer into the event is followed once, whatever loops ask for it.

pub mod expected;
#[cfg(test)]
mod fixtures;
pub mod grammar;
#[cfg(test)]
mod limit_tests;
mod read;
pub mod syntax;
pub mod tables;
#[cfg(test)]
mod tests;

use super::body;
use super::json::Document;
use crate::event::{Event, Known, Meaning, Millis, Mode};
use grammar::{Applies, EntityRule, EventHalf, Expr, FetchRule, MovementRule, ParkRule, Place, Test, TypePattern};
use read::{Context, How, Memory};
use std::collections::{BTreeMap, HashMap};

/// Movements and states that one event may have; a provider's event has a handful.
pub const EFFECTS_MAX: usize = 1000;
/// Items of one batch: a few hundred are common, and each costs memory well beyond its bytes.
pub const BATCH_MAX: usize = 20_000;
/// Characters of an id or a reference; the longest known has 80.
pub const ID_MAX: usize = 500;

/// A provider's event half, compiled for one source.
#[derive(Debug)]
pub struct Interpreter {
    half: EventHalf,
    events: Index,
    answers: Index,
    slots: usize,
}

/// What a body says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reading {
    /// In the order of the body; never empty.
    pub events: Vec<Event>,
    /// The body was a batch.
    pub batch: bool,
    /// The time of receipt it was read with.
    pub received_at: Millis,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Rule {
    Movement(usize),
    Entity(usize),
    Fetch(usize),
    Park(usize),
}

/// Which rules a type wakes.
#[derive(Debug, Default)]
struct Index {
    exact: HashMap<String, Vec<Rule>>,
    begins: Vec<(String, Rule)>,
}

impl Index {
    fn add(&mut self, patterns: &[TypePattern], rule: Rule) {
        for pattern in patterns {
            match pattern {
                TypePattern::Is(kind) => self.exact.entry(kind.clone()).or_default().push(rule),
                TypePattern::Begins(begin) => self.begins.push((begin.clone(), rule)),
            }
        }
    }

    fn finish(&mut self) {
        for (kind, rules) in &mut self.exact {
            rules.extend(self.begins.iter().filter(|(begin, _)| kind.starts_with(begin)).map(|(_, rule)| *rule));
            rules.sort();
            rules.dedup();
        }
    }

    fn rules(&self, kind: &str) -> std::borrow::Cow<'_, [Rule]> {
        match self.exact.get(kind) {
            Some(rules) => rules.as_slice().into(),
            None => {
                let mut rules: Vec<Rule> =
                    self.begins.iter().filter(|(begin, _)| kind.starts_with(begin)).map(|(_, rule)| *rule).collect();
                rules.sort();
                rules.dedup();
                rules.into()
            }
        }
    }
}

impl Interpreter {
    /// Compiles the event half of a recipe (see [`super::Recipe::events`]) with a source's options. Errors name the
    /// option and what it may be.
    pub fn new(half: &EventHalf, options: &BTreeMap<String, String>) -> Result<Interpreter, String> {
        let mut half = half.clone();
        for (name, value) in options {
            match half.event.options.get(name) {
                None => {
                    let known: Vec<&str> = half.event.options.keys().map(String::as_str).collect();
                    return Err(match known.is_empty() {
                        true => format!("option `{name}`: this provider has no options"),
                        false => format!("option `{name}`: this provider knows {}", known.join(", ")),
                    });
                }
                Some(rule) if !rule.values.is_empty() && !rule.values.contains(value) => {
                    return Err(format!("option `{name}` = `{value}`: one of {} is expected", rule.values.join(", ")));
                }
                Some(_) => {}
            }
        }
        let value = |name: &str| match (options.get(name), half.event.options.get(name)) {
            (Some(value), _) => value.clone(),
            (None, Some(rule)) => rule.default.clone(),
            (None, None) => String::new(),
        };
        let values: BTreeMap<String, String> = half.event.options.keys().map(|n| (n.clone(), value(n))).collect();
        let holds = |applies: &Applies| applies.option.iter().all(|(name, wanted)| values.get(name) == Some(wanted));
        half.movements.retain(|rule| holds(&rule.applies));
        half.entities.retain(|rule| holds(&rule.applies));
        half.fetches.retain(|rule| holds(&rule.applies));
        half.parks.retain(|rule| holds(&rule.applies));
        for applies in half.all_applies() {
            applies.when.retain_mut(|condition| {
                let Test::Option(name, inside) = &condition.test else { return true };
                let list: Vec<String> = values
                    .get(name)
                    .into_iter()
                    .flat_map(|v| v.split(','))
                    .map(|word| word.trim().to_owned())
                    .collect();
                let (any, inside) = (list.iter().any(|word| word == "*"), *inside);
                condition.test = if inside { Test::In(list) } else { Test::NotIn(list) };
                !(any && inside)
            });
        }

        let mut slots: HashMap<Vec<String>, usize> = HashMap::new();
        half.visit(&mut |expr| match expr {
            Expr::Option(name) => *expr = Expr::Fixed(values.get(name).cloned().unwrap_or_default()),
            Expr::Field(Place::Item | Place::Body, pointer) => {
                let fresh = slots.len();
                pointer.slot = *slots.entry(pointer.keys.clone()).or_insert(fresh);
            }
            _ => {}
        });
        let (mut events, mut answers) = (Index::default(), Index::default());
        let mut add = |applies: &Applies, rule| {
            events.add(&applies.on, rule);
            answers.add(&applies.answer, rule);
        };
        half.movements.iter().enumerate().for_each(|(i, r)| add(&r.applies, Rule::Movement(i)));
        half.entities.iter().enumerate().for_each(|(i, r)| add(&r.applies, Rule::Entity(i)));
        half.fetches.iter().enumerate().for_each(|(i, r)| add(&r.applies, Rule::Fetch(i)));
        half.parks.iter().enumerate().for_each(|(i, r)| add(&r.applies, Rule::Park(i)));
        events.finish();
        answers.finish();
        Ok(Interpreter { half, events, answers, slots: slots.len() })
    }

    /// Reads a delivery. `query` is the raw query string of the request, header names may have any case.
    pub fn interpret<N: AsRef<str>, V: AsRef<str>>(
        &self,
        body: &[u8],
        headers: &[(N, V)],
        query: &str,
        received_at: Millis,
    ) -> Reading {
        if self.half.event.kind.is_none() {
            let meaning = Meaning::Ignored("this provider's file has no rules for events".into());
            let event = Event { known: Known::No, meaning, ..Event::default() };
            return Reading { events: vec![event], batch: false, received_at };
        }
        let headers: Vec<(&str, &str)> = headers.iter().map(|(n, v)| (n.as_ref(), v.as_ref())).collect();
        let content_type = headers.iter().find(|(n, _)| n.eq_ignore_ascii_case("content-type")).map(|(_, v)| *v);
        match body::to_json(&self.half.event.body, body, content_type) {
            Ok(text) => self.read_body(&text, &headers, query, received_at),
            Err(problem) => parked(problem, received_at),
        }
    }

    /// Reads what a provider answered to the fetch that an event asked for ([`Meaning::Fetch`]).
    pub fn interpret_answer(&self, asked: &Event, answer: &[u8], received_at: Millis) -> Reading {
        let alone = |event| Reading { events: vec![event], batch: false, received_at };
        let again = |meaning| alone(Event { meaning, answer: None, ..asked.clone() });
        let text = match body::to_json(&[body::BodyKind::Json], answer, None) {
            Ok(text) => text,
            Err(problem) => return again(Meaning::Parked(format!("the fetched answer: {problem}"))),
        };
        let document = match Document::read(&text) {
            Ok(document) => document,
            Err(problem) => return again(Meaning::Parked(format!("the fetched answer is {problem}"))),
        };
        let name = asked.answer.as_deref().unwrap_or(&asked.kind);
        if name == "event" {
            let mut reading = self.read_body(&text, &[], "", received_at);
            for event in &mut reading.events {
                if matches!(event.meaning, Meaning::Fetch(_)) {
                    event.meaning = Meaning::Parked("the fetched answer points on to another object".into());
                }
                event.provider_account = event.provider_account.take().or_else(|| asked.provider_account.clone());
                event.account_seen = event.account_seen.take().or_else(|| asked.account_seen.clone());
                event.mode = event.mode.or(asked.mode);
            }
            return reading;
        }
        let memory = Memory::new(self.slots);
        let context = Context::new(document.root(), document.root(), &[], "", &memory, &memory);
        let mut event = Event { answer: None, meaning: Meaning::default(), known: Known::Rule, ..asked.clone() };
        let mode = self.half.event.answer_mode.as_ref().map_or(Ok(None), |expr| mode(&context, expr));
        event.mode = mode.as_ref().ok().copied().flatten().or(event.mode);
        if let Some(Ok(Some(account))) = self.half.event.answer_account.as_ref().map(|e| context.text(e, How::Id)) {
            self.set_account(&mut event, account.into_owned());
        }
        let rules = self.answers.rules(name);
        if rules.is_empty() {
            event.meaning = Meaning::Parked(format!("no rule reads the fetched answer `{name}`"));
            return alone(event);
        }
        self.apply(&mut event, name, &rules, &context, received_at);
        park_unknown_mode(&mut event, mode);
        alone(event)
    }

    fn read_body(&self, text: &str, headers: &[(&str, &str)], query: &str, received_at: Millis) -> Reading {
        let document = match Document::read(text) {
            Ok(document) => document,
            Err(problem) => return parked(format!("the body is {problem}"), received_at),
        };
        let root = document.root();
        let whole = Memory::new(self.slots);
        let Some(batch) = &self.half.event.batch else {
            let context = Context::new(root, root, headers, query, &whole, &whole);
            return Reading { events: vec![self.read_event(&context, received_at)], batch: false, received_at };
        };
        let Some(items) = read::follow(root, &batch.items).filter(|v| v.kind() == super::json::Kind::Array) else {
            let what = match batch.items.keys.as_slice() {
                [] => "the body is no array".to_owned(),
                keys => format!("no array at /{}", keys.join("/")),
            };
            return parked(format!("unexpected shape: {what}"), received_at);
        };
        if items.elements().nth(BATCH_MAX).is_some() {
            return parked(format!("a batch of more than {BATCH_MAX} items"), received_at);
        }
        let memory = Memory::new(self.slots);
        let mut events: Vec<Event> = items
            .elements()
            .map(|element| {
                memory.forget();
                let item = match &batch.each {
                    None => Some(element),
                    Some(pointer) => read::follow(element, pointer),
                };
                match item {
                    Some(item) => {
                        self.read_event(&Context::new(root, item, headers, query, &whole, &memory), received_at)
                    }
                    None => parked_event("unexpected shape: this item of the batch is no event".into()),
                }
            })
            .collect();
        if events.is_empty() {
            let meaning = Meaning::Ignored("a batch without items".into());
            events.push(Event { known: Known::Announcement, meaning, ..Event::default() });
        }
        Reading { events, batch: true, received_at }
    }

    fn set_account(&self, event: &mut Event, account: String) {
        match self.half.event.account_in_key {
            true => event.provider_account = Some(account),
            false => event.account_seen = Some(account),
        }
    }

    fn read_event(&self, context: &Context<'_>, received_at: Millis) -> Event {
        let rules = &self.half.event;
        let text = |expr: &Option<Expr>, how| match expr {
            Some(expr) => context.text(expr, how).map(|t| t.map(|t| t.into_owned())),
            None => Ok(None),
        };
        let mut event = Event { weak_id: rules.weak_id, ..Event::default() };
        event.id = text(&rules.id, How::Id).ok().flatten().filter(|id| id.len() <= ID_MAX);
        event.api_version = text(&rules.api_version, How::Plain).ok().flatten();
        event.occurred_at = context.time(&rules.time);
        match text(&rules.account, How::Id) {
            Ok(Some(account)) => self.set_account(&mut event, account),
            Ok(None) => {}
            Err(problem) if rules.account_in_key => {
                event.meaning = Meaning::Parked(format!("the provider's account: {problem}"));
                return event;
            }
            Err(_) => {}
        }
        let mode = rules.mode.as_ref().map_or(Ok(None), |expr| mode(context, expr));
        event.mode = mode.as_ref().ok().copied().flatten();
        event.kind = match text(&rules.kind, How::Plain) {
            Ok(Some(kind)) if kind.len() <= ID_MAX => kind,
            _ => {
                let at = rules.kind.as_ref().map(|e| e.to_string()).unwrap_or_default();
                event.meaning = Meaning::Parked(format!("unexpected shape: no event type at {at}"));
                return event;
            }
        };
        let woken = self.events.rules(&event.kind);
        let kind = event.kind.clone();
        self.apply(&mut event, &kind, &woken, context, received_at);
        park_unknown_mode(&mut event, mode);
        event
    }

    /// Whether a rule knows this type, rather than being for every type.
    fn names(&self, rule: Rule, kind: &str) -> bool {
        let applies = match rule {
            Rule::Movement(i) => &self.half.movements[i].applies,
            Rule::Entity(i) => &self.half.entities[i].applies,
            Rule::Fetch(i) => &self.half.fetches[i].applies,
            Rule::Park(i) => &self.half.parks[i].applies,
        };
        let mut patterns = applies.on.iter().chain(&applies.answer);
        patterns.any(|pattern| pattern.matches(kind) && *pattern != TypePattern::Begins(String::new()))
    }

    /// Runs the rules that a type woke and settles what the event means.
    fn apply(&self, event: &mut Event, name: &str, rules: &[Rule], context: &Context<'_>, received_at: Millis) {
        let mut found = read::Found::default();
        let mut fetch = None;
        for rule in rules {
            match rule {
                Rule::Movement(i) => {
                    let rule: &MovementRule = &self.half.movements[*i];
                    context.each(&rule.applies, &mut found, &mut |context, found| {
                        context.movement(rule, &self.half.event.exponents, event, found);
                    });
                }
                Rule::Entity(i) => {
                    let rule: &EntityRule = &self.half.entities[*i];
                    context.each(&rule.applies, &mut found, &mut |context, found| {
                        context.entity(rule, event, received_at, found);
                    });
                }
                Rule::Fetch(i) if fetch.is_none() => {
                    let rule: &FetchRule = &self.half.fetches[*i];
                    context.each(&rule.applies, &mut found, &mut |context, _| {
                        fetch = Some((context.fill(&rule.path), rule.answer.clone()));
                    });
                }
                Rule::Fetch(_) => {}
                Rule::Park(i) => {
                    let rule: &ParkRule = &self.half.parks[*i];
                    context.each(&rule.applies, &mut found, &mut |_, found| found.park(rule.because.clone()));
                }
            }
        }
        let read::Found { movements, entities, problem, unknown_state, zero, unmet } = found;
        event.meaning = if let Some(problem) = problem {
            event.states_of_parked = entities;
            Meaning::Parked(problem)
        } else if let (true, Some(unknown)) = (movements.is_empty(), unknown_state) {
            event.states_of_parked = entities;
            Meaning::Parked(unknown)
        } else if !movements.is_empty() || !entities.is_empty() {
            Meaning::Effects { movements, entities }
        } else if let Some((path, answer)) = fetch {
            match path {
                Ok(path) => {
                    event.answer = Some(answer.unwrap_or_else(|| event.kind.clone()));
                    Meaning::Fetch(path)
                }
                Err(problem) => Meaning::Parked(problem),
            }
        } else if zero {
            Meaning::Ignored("zero amount: nothing to post".into())
        } else {
            let known = self.half.ignores.iter().find(|rule| rule.on.iter().any(|on| on.matches(name)));
            let meant = rules.iter().any(|rule| self.names(*rule, name));
            event.known = match (known, meant) {
                (Some(rule), _) if rule.ping => Known::Ping,
                (Some(_), _) => Known::Announcement,
                (None, true) => Known::Rule,
                (None, false) => Known::No,
            };
            Meaning::Ignored(match (known, unmet) {
                (None, _) if !meant => format!("no rule for type `{name}`"),
                (_, Some(unmet)) => format!("no money moves here: it would if {unmet}"),
                (Some(rule), None) => rule.because.clone(),
                (None, None) => "nothing in it moves money or tells a state".into(),
            })
        };
    }
}

fn mode(context: &Context<'_>, expr: &Expr) -> Result<Option<Mode>, String> {
    Ok(context.text(expr, How::Word)?.and_then(|word| Mode::parse(&word)))
}

/// Money of unknown mode must not reach either book; states may.
fn park_unknown_mode(event: &mut Event, mode: Result<Option<Mode>, String>) {
    match (mode, &mut event.meaning) {
        (Err(problem), Meaning::Effects { movements, entities }) if !movements.is_empty() => {
            event.states_of_parked = std::mem::take(entities);
            event.meaning = Meaning::Parked(format!("mode: {problem}"));
        }
        _ => {}
    }
}

fn parked_event(problem: String) -> Event {
    Event { meaning: Meaning::Parked(problem), ..Event::default() }
}

fn parked(problem: String, received_at: Millis) -> Reading {
    Reading { events: vec![parked_event(problem)], batch: false, received_at }
}
