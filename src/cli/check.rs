//! `postonce check`: every promise of the file, a line for each offence.

use super::args::Database;
use super::{Done, Outcome, output};
use crate::store::{backup, check, ledger, open_for_reading};

pub(super) fn run(args: &Database) -> Done {
    let conn = open_for_reading(&args.database)?;
    // One snapshot for all checks: the server may be writing.
    conn.execute_batch("BEGIN")?;
    let mut offences = check::run(&conn)?;
    if let Some(what) = backup::torn(&args.database, &conn)? {
        offences.insert(0, check::Offence { truth: "the file is whole", what });
    }
    let mut out = std::io::stdout().lock();
    for offence in &offences {
        if args.json {
            output::json_line(&mut out, offence)?;
        } else {
            output::line(&mut out, &format!("not so: {}: {}", offence.truth, offence.what))?;
        }
    }
    if offences.is_empty() && !args.json {
        let entries = ledger::count(&conn)?;
        output::line(
            &mut out,
            &format!(
                "clean: {}, every balance and every key as promised",
                output::counted(entries, "entry", "entries")
            ),
        )?;
    }
    Ok(if offences.is_empty() { Outcome::Fine } else { Outcome::Found })
}
