//! Fetch: asks the provider's API for what an event only points at, and for what its signature does not prove.
//!
//! Runs between read and claim, on threads of its own: never in a transaction, never on the worker's thread. Posts nothing
//! and guesses nothing: what the API does not confirm goes to a person.

use crate::event::{Event, Meaning, Millis, Movement, Proof};
use crate::money::Money;
use crate::pull::{Client, Pace, PullError};
use crate::source::Source;
use std::time::Duration;

/// One try of one call; the event's own attempts are the tries that follow. Short, since a stop waits for it.
pub fn pace() -> Pace {
    Pace { tries: 1, call_timeout: Duration::from_secs(5), wait: |_| false, ..Pace::default() }
}

/// Must this event be fetched, or confirmed, before its keys are asked for? Only a source with a key can.
pub fn is_needed(source: &Source, event: &Event) -> bool {
    source.api_key.is_some()
        && match &event.meaning {
            Meaning::Fetch(_) => true,
            Meaning::Effects { movements, .. } => {
                !source.trusts_unsigned_fields && movements.iter().any(|movement| movement.unconfirmed)
            }
            Meaning::Ignored(_) | Meaning::Parked(_) => false,
        }
}

/// The event as the provider's API tells it, or confirms it. An error is an attempt that failed and may work later.
pub fn fetch(client: &mut Client, source: &Source, event: &Event, received_at: Millis) -> Result<Event, String> {
    match &event.meaning {
        Meaning::Fetch(what) => pointed_at(client, source, event, what, received_at),
        Meaning::Effects { movements, .. } => {
            let mut confirmed = event.clone();
            let mut all = movements.clone();
            for movement in all.iter_mut().filter(|movement| movement.unconfirmed) {
                match confirm(client, source, movement, received_at)? {
                    Word::Same => movement.unconfirmed = false,
                    Word::Silent => {}
                    Word::Other(why) => {
                        confirmed.meaning = Meaning::Parked(why);
                        return Ok(confirmed);
                    }
                }
            }
            if all.iter().all(|movement| !movement.unconfirmed) {
                confirmed.proof = Proof::Fetched;
            }
            if let Meaning::Effects { movements, .. } = &mut confirmed.meaning {
                *movements = all;
            }
            Ok(confirmed)
        }
        Meaning::Ignored(_) | Meaning::Parked(_) => Ok(event.clone()),
    }
}

fn pointed_at(
    client: &mut Client,
    source: &Source,
    event: &Event,
    what: &str,
    received_at: Millis,
) -> Result<Event, String> {
    let parked = |why: String| Ok(Event { meaning: Meaning::Parked(why), answer: None, ..event.clone() });
    let answer = match client.get(what) {
        Ok(answer) => answer,
        Err(PullError::NotThere { message }) => return parked(format!("{what} is not there: {message}")),
        Err(error @ (PullError::ForeignUrl { .. } | PullError::Setting { .. } | PullError::Recipe(_))) => {
            return parked(format!("{what} cannot be fetched: {error}"));
        }
        Err(error) => return Err(format!("fetching {what}: {error}")),
    };
    let mut read = source.interpreter.interpret_answer(event, answer.to_string().as_bytes(), received_at).events;
    match (read.pop(), read.is_empty()) {
        (Some(one), true) => Ok(Event { proof: Proof::Fetched, ..one }),
        _ => parked(format!("{what} is several events; one was expected")),
    }
}

/// What the API says of a movement that an event announced.
enum Word {
    Same,
    Silent,
    Other(String),
}

fn confirm(client: &mut Client, source: &Source, movement: &Movement, received_at: Millis) -> Result<Word, String> {
    let Movement { kind, reference, .. } = movement;
    let object = match client.object(kind, reference, movement.parent.as_deref()) {
        Ok(Some(object)) => object,
        Ok(None) => return Ok(Word::Silent),
        Err(PullError::Setting { name }) => {
            return Ok(Word::Other(format!("{kind} {reference} cannot be confirmed without the setting {name:?}")));
        }
        Err(error) => return Err(format!("confirming {kind} {reference}: {error}")),
    };
    let no_headers: [(&str, &str); 0] = [];
    let body = object.body.to_string();
    let reading = source.interpreter.interpret(body.as_bytes(), &no_headers, "", received_at);
    let told = reading.events.iter().filter_map(|event| match &event.meaning {
        Meaning::Effects { movements, .. } => Some(movements),
        _ => None,
    });
    let same_name =
        |other: &&Movement| other.kind == *kind && (other.reference == *reference || other.aliases.contains(reference));
    let Some(theirs) = told.flatten().find(same_name) else {
        return Ok(Word::Other(format!(
            "the provider's API does not tell of the {kind} {reference} that the body announces"
        )));
    };
    if theirs.amount == movement.amount && theirs.currency == movement.currency {
        return Ok(Word::Same);
    }
    let money = |m: &Movement| Money { minor: m.amount.minor(), currency: m.currency };
    Ok(Word::Other(format!(
        "{kind} {reference} is {} in the body, which is not signed, and {} in the provider's API",
        money(movement),
        money(theirs)
    )))
}
