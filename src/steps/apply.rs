//! Apply: the exactly-once effect. This is the file to read first.
//!
//! Runs in one savepoint of the write transaction: entry, postings, balances, entity states, the rule's own effects and
//! the outbox rows appear together with the end of the claim, or not at all. Never sends anything.

use super::claim::{CORRECTION, Planned, Won, fee_prefix, fee_reference, key_reference, wait, waits_for};
use crate::effects::Happening;
use crate::error::{Error, Result};
use crate::event::{Amount, EntityState, Meaning, Movement};
use crate::fault;
use crate::money::{Currency, Money};
use crate::postings::{self, Code, Rule};
use crate::store::entities::{self, Moved};
use crate::store::ledger::{self, AccountKey, NewEntry, NewPosting};
use crate::store::raw::{Origin, State};
use crate::store::{Tx, claims, foreign, outbox, raw};

/// Applies one event whose keys are won. An error undoes all of it; [`crate::error::Error::LostClaim`] means that the sweep gave
/// it to somebody else. Gives the state that the event is in now.
pub fn apply(tx: &Tx, won: &Won) -> Result<State> {
    fault::point_for("apply", won.event.id.as_deref());
    let mut posted = Vec::new();
    for planned in &won.plan {
        match planned {
            Planned::Post(movement) => posted.push((post(tx, won, movement)?, movement)),
            Planned::Correct(movement, difference) => posted.push((correct(tx, won, movement, *difference)?, movement)),
            Planned::Known(movement) => {
                late_fee(tx, won, movement)?;
            }
            Planned::Nothing(_) | Planned::Waits(_) => {}
        }
    }
    let (mut forward, mut superseded) = (Vec::new(), None);
    if let Meaning::Effects { entities, .. } = &won.event.meaning {
        for state in entities {
            match entities::put(tx, won.book, state, won.occurred_at, won.raw_event)? {
                Moved::Forward => forward.push(state),
                Moved::Superseded(by) => superseded = Some((state, by)),
            }
        }
    }
    let mut remark = None;
    // history is brought in as it was: the app had its effects and its receipts then
    if won.source.has_effects() && won.origin != Origin::Imported {
        let happening = Happening::new(tx, won, &posted, forward)?;
        foreign::limited(tx.conn, tx.apply_budget, || won.source.run_effects(tx, &happening))?;
        remark = happening.remarked();
    }
    messages(tx, won, &posted)?;
    fault::point("after_effect");
    let waiting: Vec<&Movement> = won.plan.iter().filter_map(Planned::waiting).collect();
    if !waiting.is_empty() {
        return park(tx, won, &waiting);
    }
    if let Some(key) = &won.event_key {
        claims::done(tx, won.book, claims::EVENT, key, won.raw_event, posted.first().and_then(|(id, _)| *id))?;
    }
    raw::done(tx, won.raw_event, won.fence)?;
    if let Some((EntityState { kind, id, .. }, by)) = superseded {
        remark = Some(format!("superseded: {kind} {id} is newer since raw event {by}"));
    }
    if let Some(remark) = remark {
        raw::note(tx, won.raw_event, &remark)?;
    }
    Ok(State::Done)
}

/// A part of the event waits for what it takes back: its key stays open, and it comes again once that is posted.
fn park(tx: &Tx, won: &Won, waiting: &[&Movement]) -> Result<State> {
    let mut still = false;
    for movement in waiting {
        still |= wait(tx, won.book, movement, won.raw_event)?;
    }
    let why = waits_for(waiting);
    let ours = match still {
        true => raw::end(tx, won.raw_event, State::Parked, &why, Some(won.fence))?,
        false => raw::put_back(tx, won.raw_event, 0, &why, Some(won.fence))?,
    };
    match (ours, still) {
        (false, _) => Err(crate::error::Error::LostClaim),
        (true, true) => Ok(State::Parked),
        (true, false) => Ok(State::Received),
    }
}

/// Writes the entry of a movement and ends its claim. `None`: a running total that brought nothing new.
fn post(tx: &Tx, won: &Won, movement: &Movement) -> Result<Option<i64>> {
    let facts = won.source.recipe.ledger;
    let reference = key_reference(movement);
    let amount = match movement.amount {
        Amount::Exact(amount) => amount,
        Amount::RunningTotal(total) => {
            let parent = movement.parent.as_deref().unwrap_or(&movement.reference);
            total - ledger::total_of(tx.conn, won.book, &movement.kind, parent)?
        }
    };
    let journal = if amount <= 0 {
        None
    } else {
        let rule = postings::rule(&movement.kind, facts);
        let mut entry = entry(tx, won, movement, &reference, amount, rule)?;
        let holder = entry.account.clone();
        let booked = postings::booked(movement, amount, facts);
        entry.postings.extend(posting(
            won.book,
            rule.debit,
            rule.credit,
            &holder,
            Money { minor: booked, ..money(movement) },
        ));
        if let Some(fee) = movement.fee {
            entry.postings.extend(posting(won.book, postings::FEES, postings::CLEARING, &None, fee));
        }
        if movement.kind == "dispute_lost" {
            close_at_most_the_hold(tx, won, movement, &mut entry)?;
        }
        Some(ledger::append(tx, &entry)?)
    };
    claims::done(tx, won.book, &movement.kind, &reference, won.raw_event, journal)?;
    if let (Some(journal), Some(fee)) = (journal, movement.fee) {
        claim_fee(tx, won, movement, fee, fee.minor, Some(journal))?;
    }
    for name in movement.aliases.iter().chain([&movement.reference]) {
        claims::wake(tx, won.book, &movement.kind, name)?;
    }
    Ok(journal)
}

fn money(movement: &Movement) -> Money {
    Money { minor: movement.amount.minor(), currency: movement.currency }
}

/// An entry without its postings. The customer of a refund is that of its payment, and of what takes back that of what is
/// taken back, when the event does not say.
fn entry(tx: &Tx, won: &Won, movement: &Movement, reference: &str, amount: i64, rule: Rule) -> Result<NewEntry> {
    let account = match (&movement.account, &movement.parent, &movement.if_prior) {
        (Some(account), ..) => Some(account.clone()),
        (None, Some(parent), _) => customer_of(tx, won.book, "payment", parent)?,
        (None, None, Some(prior)) => customer_of(tx, won.book, prior, &movement.reference)?,
        (None, None, None) => None,
    };
    Ok(NewEntry {
        book: won.book,
        kind: movement.kind.clone(),
        reference: reference.to_owned(),
        raw_event: won.raw_event,
        account,
        parent: movement.parent.clone().or_else(|| match movement.amount {
            Amount::RunningTotal(_) => Some(movement.reference.clone()),
            Amount::Exact(_) => None,
        }),
        amount,
        currency: movement.currency,
        tax: movement.tax,
        occurred_at: movement.occurred_at.unwrap_or(won.occurred_at),
        settles: rule.settles,
        reverses: None,
        note: (!rule.known).then(|| format!("nobody knows the kind {}: booked to suspense", movement.kind)),
        postings: Vec::with_capacity(2),
    })
}

fn customer_of(tx: &Tx, book: i64, kind: &str, reference: &str) -> Result<Option<String>> {
    let journal = claims::find(tx.conn, book, kind, reference)?.and_then(|claim| claim.journal);
    Ok(match journal {
        Some(id) => ledger::posted(tx.conn, id)?.and_then(|entry| entry.account),
        None => None,
    })
}

/// An entry that an embedder adds to the event's own.
#[derive(Clone, Copy, Debug, Default)]
pub struct Post<'a> {
    /// One of the kinds that the ledger knows (`credit`, `fee`, `adjustment`, …): it decides the accounts.
    pub kind: &'a str,
    /// Its own reference. With the kind it is the key: an entry under it is written once, whatever posts it.
    pub reference: &'a str,
    /// Minor units, positive.
    pub amount: i64,
    /// ISO 4217.
    pub currency: &'a str,
    /// The customer, as the provider names them.
    pub account: Option<&'a str>,
    /// The movement it belongs to.
    pub parent: Option<&'a str>,
    /// Why, in words.
    pub note: Option<&'a str>,
}

/// Writes an embedder's entry; `None`: it is there already.
pub fn extra(tx: &Tx, won: &Won, post: &Post) -> Result<Option<i64>> {
    let refuse = |what: String| Err(Error::Reject(format!("post {} {}: {what}", post.kind, post.reference)));
    let rule = postings::rule(post.kind, won.source.recipe.ledger);
    if !rule.known {
        return refuse("the ledger knows no such kind".into());
    }
    if post.reference.is_empty() || post.amount <= 0 {
        return refuse("it needs a reference and a positive amount".into());
    }
    let Some(currency) = Currency::parse(post.currency) else {
        return refuse(format!("there is no currency {:?}", post.currency));
    };
    let says = claims::Says::Money { amount: post.amount, currency, secondary: false };
    match claims::claim(tx, won.book, post.kind, post.reference, says, won.raw_event)? {
        claims::Claim::Won => {}
        claims::Claim::Duplicate { .. } => return Ok(None),
        claims::Claim::Conflict { first, .. } => {
            let what = format!("{} {} is another amount since raw event {first}", post.kind, post.reference);
            return Err(Error::Conflict(what));
        }
    }
    let account = post.account.map(str::to_owned);
    let amount = Money { minor: post.amount, currency };
    let entry = NewEntry {
        book: won.book,
        kind: post.kind.to_owned(),
        reference: post.reference.to_owned(),
        raw_event: won.raw_event,
        parent: post.parent.map(str::to_owned),
        amount: post.amount,
        currency,
        tax: None,
        occurred_at: won.occurred_at,
        settles: false,
        reverses: None,
        note: post.note.map(str::to_owned),
        postings: posting(won.book, rule.debit, rule.credit, &account, amount).into_iter().collect(),
        account,
    };
    let journal = ledger::append(tx, &entry)?;
    claims::done(tx, won.book, post.kind, post.reference, won.raw_event, Some(journal))?;
    Ok(Some(journal))
}

/// A posting of a signed amount: a negative one swaps its sides, zero is none.
fn posting(book: i64, debit: Code, credit: Code, holder: &Option<String>, amount: Money) -> Option<NewPosting> {
    let (debit, credit) = if amount.minor < 0 { (credit, debit) } else { (debit, credit) };
    let key = |code: Code| AccountKey {
        book,
        code: code.code,
        holder: holder.clone().filter(|_| code.per_customer).unwrap_or_default(),
        currency: amount.currency,
        class: code.class,
    };
    (amount.minor != 0).then(|| NewPosting { debit: key(debit), credit: key(credit), amount: amount.minor.abs() })
}

/// A lost dispute closes what is still held for it, and no more: the rest would be a discrepancy, not a posting.
fn close_at_most_the_hold(tx: &Tx, won: &Won, movement: &Movement, entry: &mut NewEntry) -> Result<()> {
    let sum = |kind| ledger::total_of_reference(tx.conn, won.book, kind, &movement.reference);
    let held = sum("dispute_opened")? - sum("dispute_won")? - sum("dispute_lost")?;
    if let Some(posting) = entry.postings.first_mut()
        && posting.amount > held
        && held > 0
    {
        entry.note = Some(format!("lost {} but only {held} was still held", posting.amount));
        posting.amount = held;
    }
    Ok(())
}

/// The owner of the money names another amount than the announcement that was posted first: one entry for the difference.
fn correct(tx: &Tx, won: &Won, movement: &Movement, difference: i64) -> Result<Option<i64>> {
    let key = format!("{}:{}", movement.kind, movement.reference);
    let rule = postings::rule(&movement.kind, won.source.recipe.ledger);
    // its line is that of the movement it corrects
    let mut entry = entry(tx, won, movement, &key, difference, Rule { settles: false, ..rule })?;
    entry.kind = CORRECTION.into();
    entry.parent = Some(movement.reference.clone());
    entry.note = Some(format!("an announcement of {} {} named another amount", movement.kind, movement.reference));
    let holder = entry.account.clone();
    entry.postings.extend(posting(
        won.book,
        rule.debit,
        rule.credit,
        &holder,
        Money { minor: difference, ..money(movement) },
    ));
    let journal = ledger::append(tx, &entry)?;
    claims::done(tx, won.book, CORRECTION, &key, won.raw_event, Some(journal))?;
    Ok(Some(journal))
}

/// A fee that was not known when its movement was posted, or that changed since: the difference is posted, once for each
/// total that the provider names, and never back to an older one.
fn late_fee(tx: &Tx, won: &Won, movement: &Movement) -> Result<()> {
    let Some(fee) = movement.fee else { return Ok(()) };
    let mut total = 0;
    for known in claims::amounts_below(tx.conn, won.book, "fee", &fee_prefix(movement))? {
        // A total that was named before, or by an event that is newer than this one, is not gone back to.
        let newer = known.event_at.zip(won.event.occurred_at).is_some_and(|(theirs, ours)| theirs > ours);
        if known.reference == fee_reference(movement, fee) || newer {
            return Ok(());
        }
        total += known.amount;
    }
    let difference = fee.minor - total;
    if difference == 0 {
        return Ok(());
    }
    let reference = fee_reference(movement, fee);
    claim_fee(tx, won, movement, fee, difference, None)?;
    let rule = Rule { settles: false, ..postings::rule("fee", won.source.recipe.ledger) };
    let mut entry = entry(tx, won, movement, &reference, difference, rule)?;
    entry.kind = "fee".into();
    entry.currency = fee.currency;
    entry.tax = None;
    entry.parent = Some(movement.reference.clone());
    entry.postings.extend(posting(
        won.book,
        postings::FEES,
        postings::CLEARING,
        &None,
        Money { minor: difference, ..fee },
    ));
    let journal = ledger::append(tx, &entry)?;
    claims::done(tx, won.book, "fee", &reference, won.raw_event, Some(journal))
}

/// Claims a fee of a movement by its total; with the entry, when it is posted in the movement's own.
fn claim_fee(tx: &Tx, won: &Won, movement: &Movement, fee: Money, difference: i64, journal: Option<i64>) -> Result<()> {
    let says = claims::Says::Money { amount: difference, currency: fee.currency, secondary: false };
    let reference = fee_reference(movement, fee);
    claims::claim(tx, won.book, "fee", &reference, says, won.raw_event)?;
    match journal {
        Some(_) => claims::done(tx, won.book, "fee", &reference, won.raw_event, journal),
        None => Ok(()),
    }
}

/// One message for each entry and endpoint that wants its kind. Composed from the entry when it is sent.
fn messages(tx: &Tx, won: &Won, posted: &[(Option<i64>, &Movement)]) -> Result<()> {
    if matches!(won.origin, Origin::Imported | Origin::Report) {
        return Ok(());
    }
    for (journal, movement) in posted {
        let Some(journal) = journal else { continue };
        for endpoint in won.source.endpoints_for(&movement.kind) {
            let key = format!("{endpoint}/{journal:012}");
            let message = outbox::NewMessage {
                key: &key,
                endpoint,
                raw_event: won.raw_event,
                journal: Some(*journal),
                payload: None,
            };
            outbox::insert(tx, &message)?;
        }
    }
    Ok(())
}
