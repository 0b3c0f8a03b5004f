//! `postonce erase`: removes a person's data. Bytes of deliveries, headers, message texts and the name on kept objects
//! go; the journal, its hashes and the keys stay, under the provider's own pseudonymous id.

use super::args::Erase;
use super::{Done, Outcome, output};
use crate::error::Error;
use crate::store::audit::{self, Change};
use crate::store::{self, retain};

pub(super) fn run(args: &Erase) -> Done {
    let path = &args.database.database;
    let account = args.account.trim();
    if account.len() < 3 || args.mentions.iter().any(|m| m.trim().len() < 3) {
        return Err(Error::refused(
            "a text of less than three characters would match nearly everything",
            "name it in full",
        ));
    }
    let words: Vec<&str> = std::iter::once(account).chain(args.mentions.iter().map(|m| m.trim())).collect();
    let conn = store::open_for_reading(path)?;
    let (mut found, mut from) = (retain::Mentions::default(), 0);
    while let Some(next) = retain::mentions(&conn, from, &words, args.tenant.as_deref(), &mut found)? {
        from = next;
    }
    retain::linked(&conn, account, args.tenant.as_deref(), &mut found)?;
    let entries = retain::entries_of(&conn, account, args.tenant.as_deref())?;
    drop(conn);
    let (mut bodies, mut entities) = (found.bodies.len(), 0);
    if args.yes {
        bodies = 0;
        for ids in found.bodies.chunks(retain::PAGE as usize) {
            bodies += store::write_beside(path, |tx| retain::erase_bodies(tx, ids))?;
        }
        entities = store::write_beside(path, |tx| {
            let entities = retain::erase_entities(tx, account, args.tenant.as_deref())?;
            let done = format!("{bodies} deliveries, {entities} entities");
            let note = args.note.as_ref().map_or(done.clone(), |note| format!("{done}; {note}"));
            let change = Change { who: args.by.clone(), what: "erase", target: format!("account {account}"), note };
            audit::write(tx, &change)?;
            Ok(entities)
        })?;
    }
    let mut out = std::io::stdout().lock();
    if args.database.json {
        let report = serde_json::json!({
            "account": account, "done": args.yes, "deliveries": bodies, "entities": entities, "entries_kept": entries,
            "unfinished": found.unfinished,
        });
        output::json_line(&mut out, &report)?;
    } else {
        let verb = if args.yes { "emptied" } else { "would be emptied; --yes does it" };
        output::line(
            &mut out,
            &format!("{}: {verb}", output::counted(bodies as i64, "delivery mentions it", "deliveries mention it")),
        )?;
        if args.yes {
            output::line(
                &mut out,
                &format!("{} lost the name", output::counted(entities as i64, "object", "objects")),
            )?;
        }
        output::line(
            &mut out,
            &format!("{entries} journal entries keep the id {account:?}, which their hashes cover"),
        )?;
        if account.contains('@') {
            output::line(
                &mut out,
                "note: this id is an e-mail address: the provider gave no other name, and the journal keeps it",
            )?;
        }
        if !found.unfinished.is_empty() {
            let list: Vec<String> = found.unfinished.iter().map(ToString::to_string).collect();
            output::line(
                &mut out,
                &format!("not touched, since they are not finished: raw events {}", list.join(", ")),
            )?;
            output::line(&mut out, "try:   replay or resolve these first (`postonce dead`), then erase again")?;
        }
        output::line(&mut out, "copies are not touched: backups, archives and what providers keep")?;
    }
    Ok(if found.unfinished.is_empty() { Outcome::Fine } else { Outcome::Found })
}
