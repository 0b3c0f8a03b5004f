//! `postonce replay`, `postonce sweep`: take an event up again. Works beside a running server, which sees it within a
//! second.

use super::args::{Database, Replay};
use super::{Done, Outcome};
use crate::error::Error;
use crate::store::audit::{self, Change};
use crate::store::{self, listing, raw};

pub(super) fn run(args: &Replay) -> Done {
    let path = &args.database.database;
    let conn = store::open_for_reading(path)?;
    let mut ids = args.ids.clone();
    if args.all_dead {
        ids.extend(listing::dead_ids(&conn)?);
    }
    let mut refused = 0;
    for id in ids {
        let before = listing::state(&conn, id)?;
        let Some(before) = before else {
            return Err(Error::refused(format!("there is no raw event {id}"), "`postonce events` lists them"));
        };
        let replayed = store::write_beside(path, |tx| {
            let replayed = raw::replay(tx, id)?;
            if replayed {
                let change = Change { who: who(), what: "replay", target: format!("event {id}"), note: String::new() };
                audit::write(tx, &change)?;
            }
            Ok(replayed)
        })?;
        if replayed {
            println!("raw event {id}: {before} -> RECEIVED");
        } else {
            refused += 1;
            println!("raw event {id}: nothing to replay, it is {before}");
        }
    }
    Ok(if refused == 0 { Outcome::Fine } else { Outcome::Found })
}

/// For the audit: the user that runs the command.
fn who() -> String {
    let user = std::env::var("SUDO_USER").or_else(|_| std::env::var("USER")).unwrap_or_default();
    if user.is_empty() { "command line".into() } else { format!("{user} on the command line") }
}

pub(super) fn sweep(args: &Database) -> Done {
    // Beside a running server this would take claims from its own workers: only for a file that nobody serves.
    let _lock = store::Lock::take(&args.database)?;
    let released = store::write_beside(&args.database, |tx| raw::release_all(tx, 0))?;
    println!("{} will be taken up at the next start", super::output::counted(released as i64, "event", "events"));
    Ok(Outcome::Fine)
}
