//! Claim: wins the keys of an event, or names why not.
//!
//! Runs in the write transaction, after interpretation and before apply, and commits before apply begins: a death
//! between the two is visible, and an attempt is counted before the work that may kill the process. Posts nothing.

use crate::error::{Error, Result};
use crate::event::{Amount, EntityState, Event, Meaning, Millis, Movement, Role};
use crate::fault;
use crate::money::Money;
use crate::source::Source;
use crate::store::claims::{self, Claim, Says};
use crate::store::entities;
use crate::store::raw::{self, Due, Origin, State};
use crate::store::{Book, Tx};
use std::sync::Arc;

/// How long an apply may take before the sweep lets somebody else try, in a process that lives.
pub const LEASE: Millis = 5 * 60_000;

/// The kind of the claim under which a primary's word corrects a mere announcement.
pub const CORRECTION: &str = "correction";

/// An event that has been read and asks for its keys.
#[derive(Clone)]
pub struct Prepared {
    /// The raw event.
    pub due: Due,
    /// Its source.
    pub source: Arc<Source>,
    /// What it says.
    pub event: Arc<Event>,
    /// Its attempt is counted already (after an unclean stop).
    pub counted: bool,
}

/// An event whose keys are ours.
#[derive(Clone)]
pub struct Won {
    /// The raw event.
    pub raw_event: i64,
    /// What its commit must still find.
    pub fence: i64,
    /// The attempts so far, this one included.
    pub attempts: u32,
    /// Whose ledger.
    pub book: i64,
    /// The same, by name.
    pub book_name: Book,
    /// Its source.
    pub source: Arc<Source>,
    /// What it says.
    pub event: Arc<Event>,
    /// The provider's time, or that of receipt.
    pub occurred_at: Millis,
    /// When it came.
    pub received_at: Millis,
    /// The event key is ours and ends with the apply.
    pub event_key: Option<String>,
    /// What is to be posted.
    pub plan: Vec<Planned>,
    /// How it came.
    pub origin: Origin,
}

/// What apply does with a movement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Planned {
    /// Post it: its key is ours.
    Post(Movement),
    /// Nothing moved (a trial, a free invoice): no key, no entry, perhaps a message.
    Nothing(Movement),
    /// It is posted already; at most a fee was not known then.
    Known(Movement),
    /// It waits for the movement that it takes back; the rest of the event does not.
    Waits(Movement),
    /// A mere announcement is posted; the owner of the money names another amount: post the difference.
    Correct(Movement, i64),
}

/// What became of it.
pub enum Claimed {
    /// Go on to apply.
    Won(Box<Won>),
    /// It ended here, in this state.
    Ended(State),
}

/// Why an event stops before apply, and whether some of its keys were won by then.
struct Stop(State, String, bool);

/// Whose ledger an event belongs to.
pub fn book_of(source: &Source, event: &Event) -> Book {
    Book {
        tenant: source.tenant.clone(),
        provider: source.recipe.keyed_as().to_owned(),
        provider_account: event.provider_account.clone().unwrap_or_default(),
        mode: event.mode.or(source.mode).unwrap_or(crate::event::Mode::Live),
    }
}

/// Wins the keys of one event. Its own savepoint undoes half-won keys.
pub fn claim(tx: &Tx, prepared: &Prepared) -> Result<Claimed> {
    let Prepared { due, source, event, .. } = prepared;
    let book_name = book_of(source, event);
    let mode = book_name.mode;
    let book = tx.book(&book_name)?;
    raw::read_as(tx, due.id, book, event)?;
    let end = |state: State, reason: &str| {
        raw::end(tx, due.id, state, reason, None)?;
        Ok(Claimed::Ended(state))
    };
    if source.mode.is_some_and(|expected| expected != mode) {
        return end(State::Ignored, &format!("{mode} mode on a {} source", source.mode.unwrap_or(mode)));
    }
    let wanted = source.wants_type(&event.kind);
    if wanted && (event.id.is_none() || event.weak_id) {
        return end(State::Parked, "an effect runs on this type of event, and it has no id to run it once by");
    }
    let (movements, entities): (&[Movement], &[EntityState]) = match &event.meaning {
        Meaning::Effects { movements, entities } => (movements, entities),
        Meaning::Ignored(_) if wanted => (&[], &[]),
        Meaning::Ignored(why) => return end(State::Ignored, why),
        Meaning::Parked(why) => {
            // States are no money: those that could be read need not wait for a person.
            for state in &event.states_of_parked {
                entities::put(tx, book, state, event.occurred_at.unwrap_or(due.received_at), due.id)?;
            }
            return end(State::Parked, why);
        }
        Meaning::Fetch(what) => {
            return end(State::Parked, &format!("needs {what} fetched: give the source an api_key"));
        }
    };
    if !source.trusts_unsigned_fields && movements.iter().any(|m| m.unconfirmed) {
        let hint = source.what_confirms();
        return end(
            State::Parked,
            &format!("the signature does not cover the amount, and nothing confirms it: {hint}"),
        );
    }
    let mut stopped = None;
    let won = match tx.is_trusting() {
        true => Some(win(tx, prepared, book, movements)?),
        false => None,
    };
    let won = match won {
        Some(Ok(keys)) => Ok(keys),
        Some(Err(stop)) if stop.2 => return Err(Error::Again), // some of its keys are won, and must be given back
        Some(Err(stop)) => {
            stopped = Some(stop);
            Err(Error::LostClaim)
        }
        None => tx.savepoint(|| match win(tx, prepared, book, movements)? {
            Ok(won) => Ok(won),
            Err(stop) => {
                stopped = Some(stop);
                Err(Error::LostClaim)
            }
        }),
    };
    let (event_key, plan) = match (won, stopped) {
        (_, Some(Stop(State::Parked, reason, _))) => {
            // It waits for a movement that has not come: noted outside of the savepoint that was undone.
            for movement in movements {
                wait(tx, book, movement, due.id)?;
            }
            return end(State::Parked, &reason);
        }
        (_, Some(Stop(state, reason, _))) => return end(state, &reason),
        (won, None) => won?,
    };
    let mut only_known = !plan.is_empty();
    for planned in &plan {
        only_known = only_known
            && match planned {
                Planned::Known(movement) => !brings_a_fee(tx, book, movement)?,
                Planned::Waits(_) => true,
                _ => false,
            };
    }
    let waiting: Vec<&Movement> = plan.iter().filter_map(Planned::waiting).collect();
    if only_known && entities.is_empty() && !waiting.is_empty() {
        for movement in &waiting {
            wait(tx, book, movement, due.id)?;
        }
        return end(State::Parked, &waits_for(&waiting));
    }
    if only_known && entities.is_empty() && !wanted {
        if let Some(key) = &event_key {
            claims::done(tx, book, claims::EVENT, key, due.id, None)?;
        }
        let names: Vec<String> = movements.iter().map(|m| format!("{} {}", m.kind, m.reference)).collect();
        return end(State::Duplicate, &format!("already posted or under way: {}", names.join(", ")));
    }
    fault::point("keys_won");
    let fence = raw::claimed(tx, due.id, due.fence, LEASE, !prepared.counted)?;
    Ok(Claimed::Won(Box::new(Won {
        raw_event: due.id,
        fence,
        attempts: due.attempts + u32::from(!prepared.counted),
        book,
        book_name,
        source: source.clone(),
        event: event.clone(),
        occurred_at: event.occurred_at.unwrap_or(due.received_at),
        received_at: due.received_at,
        event_key,
        plan,
        origin: due.origin,
    })))
}

type Keys = (Option<String>, Vec<Planned>);

impl Planned {
    /// The movement that waits, if it does.
    pub fn waiting(&self) -> Option<&Movement> {
        match self {
            Planned::Waits(movement) => Some(movement),
            _ => None,
        }
    }
}

/// Why an event is parked until something else comes, in words.
pub(super) fn waits_for(waiting: &[&Movement]) -> String {
    let names: Vec<String> =
        waiting.iter().map(|m| format!("{} {}", m.if_prior.as_deref().unwrap_or("movement"), m.reference)).collect();
    format!("waits for the {} that it takes back", names.join(", the "))
}

/// Notes what a movement waits for. `false`: it is posted, there is nothing to wait for.
pub(super) fn wait(tx: &Tx, book: i64, movement: &Movement, raw_event: i64) -> Result<bool> {
    let Some(prior) = &movement.if_prior else { return Ok(false) };
    if claims::find(tx.conn, book, prior, &movement.reference)?.is_some_and(|claim| claim.done) {
        return Ok(false);
    }
    claims::wait_for(tx, book, prior, &movement.reference, raw_event)?;
    Ok(true)
}

/// Does this repeat of a movement name a fee that nobody has named yet?
fn brings_a_fee(tx: &Tx, book: i64, movement: &Movement) -> Result<bool> {
    let Some(fee) = movement.fee else { return Ok(false) };
    Ok(claims::find(tx.conn, book, "fee", &fee_reference(movement, fee))?.is_none_or(|claim| !claim.done))
}

/// The reference of a movement's fees, before their totals.
pub(super) fn fee_prefix(movement: &Movement) -> String {
    format!("{}:{}@", movement.kind, movement.reference)
}

/// The reference of a fee: its movement and the total that the provider names.
pub(super) fn fee_reference(movement: &Movement, fee: Money) -> String {
    format!("{}{}", fee_prefix(movement), fee.minor)
}

/// The event key first, then each movement's.
fn win(tx: &Tx, prepared: &Prepared, book: i64, movements: &[Movement]) -> Result<std::result::Result<Keys, Stop>> {
    let Prepared { due, event, .. } = prepared;
    let event_key = event.id.clone().filter(|_| !event.weak_id);
    if let Some(key) = &event_key {
        match claims::claim(tx, book, claims::EVENT, key, Says::Mark(fingerprint(movements)), due.id)? {
            Claim::Won => {}
            Claim::Duplicate { first, .. } => {
                return Ok(Err(Stop(
                    State::Duplicate,
                    format!("event {key} came before, as raw event {first}"),
                    false,
                )));
            }
            Claim::Conflict { first, .. } => {
                let reason = format!("event {key} came before with other money, as raw event {first}");
                return Ok(Err(Stop(State::Conflict, reason, false)));
            }
        }
    }
    let mut plan: Vec<Planned> = Vec::with_capacity(movements.len());
    for movement in movements {
        let here = |kind: &str| {
            plan.iter().any(|p| matches!(p, Planned::Post(m) if m.kind == kind && m.reference == movement.reference))
        };
        if let Some(prior) = &movement.if_prior
            && !here(prior)
            && !claims::find(tx.conn, book, prior, &movement.reference)?.is_some_and(|row| row.done)
        {
            // Code that is not ours sees an event once, and so whole.
            if movements.iter().all(|m| m.if_prior.is_some()) || prepared.source.has_effects() {
                return Ok(Err(Stop(State::Parked, waits_for(&[movement]), true)));
            }
            plan.push(Planned::Waits(movement.clone()));
            continue;
        }
        if here(&movement.kind) {
            continue; // named twice in one event
        }
        match win_movement(tx, book, due.id, movement)? {
            Ok(planned) => plan.push(planned),
            Err(stop) => return Ok(Err(stop)),
        }
    }
    Ok(Ok((event_key, plan)))
}

fn win_movement(tx: &Tx, book: i64, raw_event: i64, movement: &Movement) -> Result<std::result::Result<Planned, Stop>> {
    let Movement { kind, currency, role, .. } = movement;
    let minor = movement.amount.minor();
    if minor == 0 {
        return Ok(Ok(Planned::Nothing(movement.clone())));
    }
    let secondary = *role == Role::Secondary;
    let says = match movement.amount {
        Amount::Exact(amount) => Says::Money { amount, currency: *currency, secondary },
        Amount::RunningTotal(total) => Says::Mark(total),
    };
    let reference = key_reference(movement);
    let conflict = |first: i64, theirs: String| {
        let ours = crate::money::Money { minor, currency: *currency };
        Stop(State::Conflict, format!("{kind} {reference} is {ours} here and {theirs} in raw event {first}"), true)
    };
    match claims::claim(tx, book, kind, &reference, says, raw_event)? {
        Claim::Won => {
            for alias in &movement.aliases {
                if *alias != reference
                    && let Some(other) = claims::add_alias(tx, book, kind, alias, &reference, raw_event)?
                {
                    return one_movement_under_two_keys(movement, &reference, alias, &other).map(Err);
                }
            }
            Ok(Ok(Planned::Post(movement.clone())))
        }
        Claim::Duplicate { journal, .. } => {
            if kind == "payment" && taken_back(tx, book, &reference, journal, movement)? {
                let reason = format!("payment {reference} was posted and taken back before: is this a second one?");
                return Ok(Err(Stop(State::Parked, reason, true)));
            }
            Ok(Ok(Planned::Known(movement.clone())))
        }
        Claim::Conflict { first, theirs: Says::Money { amount, currency: theirs, secondary: announced } } => {
            if theirs != *currency || (announced == secondary && !announced) {
                return Ok(Err(conflict(first, crate::money::Money { minor: amount, currency: theirs }.to_string())));
            }
            if secondary && !announced {
                return Ok(Ok(Planned::Known(movement.clone()))); // the owner of the money has spoken
            }
            // Theirs is a mere announcement: the owner's word corrects it once; other announcements only repeat it.
            let key = format!("{kind}:{reference}");
            let corrected = claims::find(tx.conn, book, CORRECTION, &key)?;
            if secondary {
                let same =
                    matches!(corrected.and_then(|c| c.says), Some(Says::Money { amount, .. }) if amount == minor);
                return Ok(if same {
                    Ok(Planned::Known(movement.clone()))
                } else {
                    Err(conflict(first, crate::money::Money { minor: amount, currency: theirs }.to_string()))
                });
            }
            match claims::claim(
                tx,
                book,
                CORRECTION,
                &key,
                Says::Money { amount: minor, currency: *currency, secondary: false },
                raw_event,
            )? {
                Claim::Won => Ok(Ok(Planned::Correct(movement.clone(), minor - amount))),
                Claim::Duplicate { .. } => Ok(Ok(Planned::Known(movement.clone()))),
                Claim::Conflict { first, .. } => Ok(Err(conflict(first, "something else".into()))),
            }
        }
        Claim::Conflict { first, .. } => Ok(Err(conflict(first, "a running total".into()))),
    }
}

/// The reference in a movement's key. Where the provider tells only a total so far, each total is a key of its own.
pub fn key_reference(movement: &Movement) -> String {
    match movement.amount {
        Amount::Exact(_) => movement.reference.clone(),
        Amount::RunningTotal(total) => format!("{}@{total}", movement.reference),
    }
}

/// This event shows that two references mean one movement. If the other name is free-standing money already, it would be
/// posted twice: the claim is undone and the event is a repeat of it.
fn one_movement_under_two_keys(movement: &Movement, reference: &str, alias: &str, other: &claims::Row) -> Result<Stop> {
    let same = matches!(&other.says, Some(Says::Money { amount, currency, .. })
        if *amount == movement.amount.minor() && *currency == movement.currency);
    let what = format!(
        "{} {reference} is also known as {alias}, which is posted by raw event {}",
        movement.kind, other.raw_event
    );
    Ok(if same {
        Stop(State::Duplicate, what, true)
    } else {
        Stop(State::Conflict, format!("{what} with another amount"), true)
    })
}

/// A payment that was posted and then taken back (a failed direct debit) and is announced anew, later.
fn taken_back(tx: &Tx, book: i64, reference: &str, journal: Option<i64>, movement: &Movement) -> Result<bool> {
    let Some(back) = claims::find(tx.conn, book, "payment_reversed", reference)? else { return Ok(false) };
    let (Some(back), Some(_), Some(at)) = (back.journal, journal, movement.occurred_at) else { return Ok(false) };
    Ok(crate::store::ledger::posted(tx.conn, back)?.is_some_and(|entry| entry.occurred_at < at))
}

/// What an event announced, in 63 bits: two deliveries under one event id must announce the same money.
fn fingerprint(movements: &[Movement]) -> i64 {
    use sha2::{Digest as _, Sha256};
    let mut lines: Vec<String> = movements
        .iter()
        .map(|m| format!("{}\n{}\n{}\n{}\n", m.kind, key_reference(m), m.amount.minor(), m.currency))
        .collect();
    lines.sort_unstable();
    let hash = Sha256::digest(lines.concat());
    i64::from_be_bytes(hash[..8].try_into().expect("a SHA-256 has eight bytes")) & i64::MAX
}
