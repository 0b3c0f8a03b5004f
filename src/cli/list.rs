//! The listings: events, dead, ledger, balances, entities. All read-only, also while the server runs.

use super::args::{Balances, Database, Entities, Events, Ledger};
use super::{Done, Outcome, output};
use crate::error::Error;
use crate::store::ledger::{self, EntryFilter};
use crate::store::listing::{self, EventFilter};
use crate::store::open_for_reading;
use crate::store::raw::State;
use std::io::BufWriter;

pub(super) fn events(args: &Events) -> Done {
    if args.unknown_types {
        return unknown_types(&args.database);
    }
    let states = match &args.state {
        None => Vec::new(),
        Some(word) => match State::parse(word) {
            Some(state) => vec![state.as_str()],
            None => {
                let known: Vec<String> = State::ALL.iter().map(|s| s.as_str().to_lowercase()).collect();
                return Err(Error::refused(format!("there is no state {word:?}"), known.join(", ")));
            }
        },
    };
    let filter = EventFilter {
        states,
        kind: args.kind.clone(),
        id: args.id.clone(),
        before: None,
        limit: (args.limit > 0).then_some(args.limit),
    };
    list_events(&args.database, &filter).map(|_| Outcome::Fine)
}

/// The types that no rule knows: what a newcomer is missing.
fn unknown_types(args: &Database) -> Done {
    let conn = open_for_reading(&args.database)?;
    let mut out = BufWriter::new(std::io::stdout().lock());
    let all = listing::unknown_types(&conn)?;
    let mut rows = Vec::new();
    for one in &all {
        match args.json {
            true => output::json_line(&mut out, one)?,
            false => rows.push(vec![
                one.count.to_string(),
                one.provider.clone(),
                one.mode.clone(),
                one.kind.clone(),
                one.newest.to_string(),
            ]),
        }
    }
    match (args.json, all.is_empty()) {
        (true, _) => {}
        (false, true) => output::line(&mut out, "every type that came has a rule")?,
        (false, false) => {
            let head = ["count", "provider", "mode", "type", "newest event"];
            output::line(&mut out, output::table(&head, &[0, 4], &rows).trim_end())?;
        }
    }
    Ok(Outcome::Fine)
}

/// What waits for a person; exits 1 when something does.
pub(super) fn dead(args: &Database) -> Done {
    let states = [State::Dead, State::Conflict, State::Parked].iter().map(|s| s.as_str()).collect();
    let count = list_events(args, &EventFilter { states, ..EventFilter::default() })?;
    if count == 0 && !args.json {
        println!("nothing waits for a person");
    }
    Ok(if count == 0 { Outcome::Fine } else { Outcome::Found })
}

fn list_events(args: &Database, filter: &EventFilter) -> Result<usize, Error> {
    let conn = open_for_reading(&args.database)?;
    let mut out = BufWriter::new(std::io::stdout().lock());
    let mut rows = Vec::new();
    let mut count = 0;
    listing::events(&conn, filter, |event| {
        count += 1;
        if args.json {
            return output::json_line(&mut out, &event);
        }
        rows.push(vec![
            event.id.to_string(),
            event.received_at,
            event.source,
            event.kind.unwrap_or_default(),
            event.event_id.unwrap_or_default(),
            event.state,
            event.reason.unwrap_or_default(),
        ]);
        Ok(())
    })?;
    if !args.json && count > 0 {
        let head = ["id", "received", "source", "type", "event", "state", "reason"];
        output::line(&mut out, output::table(&head, &[0], &rows).trim_end())?;
    }
    Ok(count)
}

pub(super) fn ledger(args: &Ledger) -> Done {
    let conn = open_for_reading(&args.database.database)?;
    let filter = EntryFilter {
        account: args.account.clone(),
        kind: args.kind.clone(),
        reference: args.reference.clone(),
        tenant: args.tenant.clone(),
        after: 0,
        limit: args.limit,
        of_payment: true,
    };
    let mut out = BufWriter::new(std::io::stdout().lock());
    let mut rows = Vec::new();
    ledger::entries(&conn, &filter, |entry| {
        if args.database.json {
            return output::json_line(&mut out, &entry);
        }
        let moved: Vec<String> = entry
            .postings
            .iter()
            .map(|p| format!("{} -> {} {}", p.credit, p.debit, output::money(p.amount, &p.currency)))
            .collect();
        rows.push(vec![
            entry.id.to_string(),
            entry.occurred_at,
            entry.provider,
            entry.kind,
            entry.reference,
            entry.account.unwrap_or_default(),
            output::money(entry.amount, &entry.currency),
            moved.join(", "),
        ]);
        Ok(())
    })?;
    if !args.database.json {
        match rows.len() {
            0 => output::line(&mut out, "no entries yet")?,
            _ => {
                let head = ["id", "occurred", "provider", "kind", "reference", "account", "amount", "moved"];
                output::line(&mut out, output::table(&head, &[0, 6], &rows).trim_end())?;
            }
        }
    }
    Ok(Outcome::Fine)
}

pub(super) fn balances(args: &Balances) -> Done {
    let conn = open_for_reading(&args.database.database)?;
    let mut out = BufWriter::new(std::io::stdout().lock());
    let mut rows = Vec::new();
    ledger::balances(&conn, args.account.as_deref(), |line| {
        if args.database.json {
            return output::json_line(&mut out, &line);
        }
        rows.push(vec![
            line.tenant,
            line.provider,
            line.mode,
            line.code,
            line.account.unwrap_or_default(),
            output::money(line.balance, &line.currency),
        ]);
        Ok(())
    })?;
    if !args.database.json {
        match rows.len() {
            0 => output::line(&mut out, "no accounts yet")?,
            _ => {
                let head = ["tenant", "provider", "mode", "account", "customer", "balance"];
                output::line(&mut out, output::table(&head, &[5], &rows).trim_end())?;
            }
        }
    }
    Ok(Outcome::Fine)
}

pub(super) fn entities(args: &Entities) -> Done {
    let conn = open_for_reading(&args.database.database)?;
    let mut out = BufWriter::new(std::io::stdout().lock());
    let mut rows = Vec::new();
    listing::entities(&conn, args.kind.as_deref(), args.id.as_deref(), |entity| {
        if args.database.json {
            return output::json_line(&mut out, &entity);
        }
        rows.push(vec![
            entity.provider,
            entity.kind,
            entity.id,
            entity.status,
            entity.as_of,
            entity.account.unwrap_or_default(),
        ]);
        Ok(())
    })?;
    if !args.database.json {
        match rows.len() {
            0 => output::line(&mut out, "no entities yet")?,
            _ => {
                let head = ["provider", "kind", "id", "status", "as of", "account"];
                output::line(&mut out, output::table(&head, &[], &rows).trim_end())?;
            }
        }
    }
    Ok(Outcome::Fine)
}
