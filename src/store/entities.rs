//! The latest known state of each object. Moves forward only.

use super::Tx;
use crate::error::Result;
use crate::event::{EntityState, Millis};
use rusqlite::{OptionalExtension as _, params};

/// What became of a state that an event carried.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Moved {
    /// It is the latest now.
    Forward,
    /// A newer one is there already, brought by this raw event.
    Superseded(i64),
}

/// How much a status restricts, so that a tie ends the same in every order of arrival. Ended states restrict most.
fn severity(status: &str) -> u8 {
    match status {
        "canceled" | "ended" | "expired" | "lost" | "closed" => 9,
        "paused" => 7,
        "past_due" | "unpaid" => 6,
        "canceling" => 5,
        "pending" | "incomplete" => 4,
        "trialing" => 3,
        "active" | "won" => 2,
        _ => 1,
    }
}

/// Keeps `state` if it is newer than what is there: by version where both have one, else by time; in a tie the more
/// restrictive state stays and the row is flagged.
pub fn put(tx: &Tx, book: i64, state: &EntityState, event_at: Millis, raw_event: i64) -> Result<Moved> {
    let as_of = state.as_of.unwrap_or(event_at);
    let there = tx
        .conn
        .prepare_cached(
            "SELECT version, as_of, status, raw_event FROM postonce_entities WHERE book = ?1 AND kind = ?2 AND id = ?3",
        )?
        .query_row(params![book, state.kind, state.id], |r| {
            Ok((r.get::<_, Option<i64>>(0)?, r.get::<_, Millis>(1)?, r.get::<_, String>(2)?, r.get::<_, i64>(3)?))
        })
        .optional()?;
    let mut tied = false;
    if let Some((version, at, status, by)) = there {
        let order = match (state.version, version) {
            (Some(new), Some(old)) => new.cmp(&old),
            _ => as_of.cmp(&at),
        };
        tied = order.is_eq() && status != state.status;
        let wins = order.is_gt() || (order.is_eq() && severity(&state.status) > severity(&status));
        if !wins {
            if tied {
                tx.conn
                    .prepare_cached("UPDATE postonce_entities SET tied = 1 WHERE book = ?1 AND kind = ?2 AND id = ?3")?
                    .execute(params![book, state.kind, state.id])?;
            }
            return Ok(Moved::Superseded(by));
        }
    }
    tx.conn
        .prepare_cached(
            "INSERT INTO postonce_entities(book, kind, id, status, provider_status, version, as_of, tied, account, raw_event)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)
             ON CONFLICT (book, kind, id) DO UPDATE SET status = excluded.status, provider_status = excluded.provider_status,
               version = excluded.version, as_of = excluded.as_of, tied = excluded.tied,
               account = ifnull(excluded.account, account), raw_event = excluded.raw_event",
        )?
        .execute(params![
            book,
            state.kind,
            state.id,
            state.status,
            state.provider_status,
            state.version,
            as_of,
            tied,
            state.account,
            raw_event
        ])?;
    Ok(Moved::Forward)
}
