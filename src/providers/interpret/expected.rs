//! A reading as JSON, for `postonce interpret`, for `providers check`, and for the known answers of the tests.
//!
//! Only what the body says: amounts are integers in minor units, times RFC 3339 in UTC, an unknown value is null.

use super::Reading;
use crate::event::{Amount, EntityState, Event, Known, Meaning, Millis, Movement};
use serde_json::{Value, json};

/// One object for one event (`event_id, event_type, mode, tenant, disposition, movements, entities`, with `fetch` where
/// the body only points at an object and `reason` where nothing is done); `{"batch": true, "events": [..]}` for a batch.
pub fn to_expected_json(reading: &Reading) -> Value {
    match (reading.batch, reading.events.as_slice()) {
        (false, [event]) => event_json(event, reading.received_at),
        (_, events) => {
            let events: Vec<Value> = events.iter().map(|event| event_json(event, reading.received_at)).collect();
            json!({ "batch": true, "events": events })
        }
    }
}

fn event_json(event: &Event, received_at: Millis) -> Value {
    let none = (&Vec::new(), &event.states_of_parked);
    let (disposition, reason, (movements, entities)) = match &event.meaning {
        Meaning::Effects { movements, entities } if movements.is_empty() => ("entity", None, (movements, entities)),
        Meaning::Effects { movements, entities } => ("movement", None, (movements, entities)),
        Meaning::Fetch(_) => ("fetch", None, none),
        Meaning::Parked(why) => ("quarantine", Some(why), none),
        Meaning::Ignored(why) => match event.known {
            Known::Rule | Known::Announcement => ("announce", Some(why), none),
            Known::Ping => ("control", Some(why), none),
            Known::No => ("unknown", Some(why), none),
        },
    };
    let mut all = json!({
        "event_id": event.id,
        "event_type": event.kind,
        "mode": event.mode.map_or("unknown", |mode| mode.as_str()),
        "tenant": event.provider_account.as_ref().or(event.account_seen.as_ref()),
        "disposition": disposition,
        "movements": movements.iter().map(|m| movement_json(m, event)).collect::<Vec<_>>(),
        "entities": entities.iter().map(|e| entity_json(e, event, received_at)).collect::<Vec<_>>(),
    });
    if let Meaning::Fetch(path) = &event.meaning {
        all["fetch"] = json!([{ "path": path }]);
    }
    if let Some(why) = reason {
        all["reason"] = json!(why);
    }
    all
}

/// RFC 3339 in UTC, milliseconds where there are some.
fn time_json(time: Option<Millis>) -> Value {
    time.and_then(|ms| jiff::Timestamp::from_millisecond(ms).ok()).map_or(Value::Null, |t| {
        match t.subsec_millisecond() {
            0 => json!(t.to_string()),
            _ => json!(format!("{t:.3}")),
        }
    })
}

fn movement_json(movement: &Movement, event: &Event) -> Value {
    let fee = movement.fee.filter(|fee| fee.currency == movement.currency).map(|fee| fee.minor);
    let mut all = json!({
        "kind": movement.kind,
        "reference": movement.reference,
        "account": movement.account,
        "amount": match movement.amount { Amount::Exact(minor) => Some(minor), Amount::RunningTotal(_) => None },
        "currency": movement.currency.code(),
        "fee": fee,
        "occurred_at": time_json(movement.occurred_at.or(event.occurred_at)),
        "parent": movement.parent,
    });
    if let Amount::RunningTotal(minor) = movement.amount {
        all["cumulative_amount"] = json!(minor);
    }
    if let Some(tax) = movement.tax {
        all["tax"] = json!(tax);
    }
    if let Some(prior) = &movement.if_prior {
        all["if_prior"] = json!(prior);
    }
    all
}

fn entity_json(entity: &EntityState, event: &Event, received_at: Millis) -> Value {
    let as_of = entity.as_of.or(event.occurred_at).filter(|time| *time != received_at);
    let mut all = json!({
        "kind": entity.kind,
        "id": entity.id,
        "status": entity.status,
        "provider_status": entity.provider_status,
        "as_of": time_json(as_of),
    });
    if let Some(version) = entity.version {
        all["version"] = json!(version);
    }
    all
}
