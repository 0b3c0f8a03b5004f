//! Correct: takes an entry back by a new one that reverses it, once, with a person's reason.
//!
//! Never changes what is written. The reversal has a permanent key of its own, like every movement.

use super::claim::CORRECTION;
use crate::error::{Error, Result};
use crate::source::Source;
use crate::store::claims::{self, Claim, Says};
use crate::store::ledger::{self, NewEntry};
use crate::store::{Tx, outbox};

/// The entry that would take `entry` back, or why there can be none.
pub fn reversal(tx: &Tx, entry: i64, note: &str) -> Result<NewEntry> {
    let note = note.trim();
    if note.is_empty() {
        return Err(Error::refused("a correction needs a note", "say in a few words why the entry is wrong"));
    }
    let Some(mut new) = ledger::whole(tx.conn, entry)? else {
        return Err(Error::refused(format!("there is no entry {entry}"), "see the ledger"));
    };
    if new.reverses.is_some() {
        return Err(Error::refused(
            format!("entry {entry} takes another one back itself"),
            "replay the event, or enter the movement anew",
        ));
    }
    for posting in &mut new.postings {
        std::mem::swap(&mut posting.debit, &mut posting.credit);
    }
    new.parent = Some(std::mem::replace(&mut new.reference, format!("entry:{entry}")));
    new.kind = CORRECTION.into();
    new.amount = -new.amount;
    new.tax = new.tax.map(|tax| -tax);
    new.occurred_at = tx.now;
    new.settles = false; // no report of the provider will show it
    new.reverses = Some(entry);
    new.note = Some(note.to_owned());
    Ok(new)
}

/// Writes the reversal of an entry, and tells the endpoints that want corrections. Gives its id.
pub fn reverse(tx: &Tx, entry: i64, note: &str, source: Option<&Source>) -> Result<i64> {
    let new = reversal(tx, entry, note)?;
    let says = Says::Money { amount: new.amount.abs(), currency: new.currency, secondary: false };
    match claims::claim(tx, new.book, CORRECTION, &new.reference, says, new.raw_event)? {
        Claim::Won => {}
        Claim::Duplicate { journal, .. } => {
            let by = journal.map_or(String::new(), |id| format!(" by entry {id}"));
            return Err(Error::refused(format!("entry {entry} is taken back already{by}"), "nothing is left to do"));
        }
        Claim::Conflict { .. } => {
            return Err(Error::refused(
                format!("entry {entry} has another correction already"),
                "look at its reference",
            ));
        }
    }
    let journal = ledger::append(tx, &new)?;
    claims::done(tx, new.book, CORRECTION, &new.reference, new.raw_event, Some(journal))?;
    for endpoint in source.into_iter().flat_map(|source| source.endpoints_for(CORRECTION)) {
        let key = format!("{endpoint}/{journal:012}");
        let message =
            outbox::NewMessage { key: &key, endpoint, raw_event: new.raw_event, journal: Some(journal), payload: None };
        outbox::insert(tx, &message)?;
    }
    Ok(journal)
}
