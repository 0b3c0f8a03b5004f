//! `postonce discrepancies`: what a person should see, and what they decided. Works beside a running server.

use super::args::{
    Discrepancies, DiscrepanciesAssign, DiscrepanciesFetch, DiscrepanciesList, DiscrepanciesResolve, DiscrepanciesShow,
};
use super::desk::Desk;
use super::{Done, Outcome, output};
use crate::clock;
use crate::error::Error;
use crate::pull::Pace;
use crate::steps::repair::{self, Wanted};
use crate::store::audit::Change;
use crate::store::settlement::discrepancies::{self, Discrepancy, DiscrepancyFilter};
use crate::store::settlement::reports;
use crate::store::{open_for_reading, write_beside};
use std::io::BufWriter;
use std::time::Duration;

pub(super) fn main(args: &Discrepancies) -> Done {
    match args {
        Discrepancies::List(args) => list(args),
        Discrepancies::Show(args) => show(args),
        Discrepancies::Assign(args) => assign(args),
        Discrepancies::Fetch(args) => fetch(args),
        Discrepancies::Resolve(args) => resolve(args),
    }
}

fn age(ms: i64) -> String {
    let hours = (clock::wall() - ms) / 3_600_000;
    if hours < 48 { format!("{hours} h") } else { format!("{} d", hours / 24) }
}

fn list(args: &DiscrepanciesList) -> Done {
    let conn = open_for_reading(&args.database.database)?;
    let filter = DiscrepancyFilter {
        all: args.all,
        tenant: args.tenant.clone(),
        provider: args.provider.clone(),
        class: args.class.clone().map(|c| c.to_ascii_uppercase()),
        ..DiscrepancyFilter::default()
    };
    let found = discrepancies::list(&conn, &filter)?;
    let mut out = BufWriter::new(std::io::stdout().lock());
    if args.database.json {
        found.iter().try_for_each(|one| output::json_line(&mut out, one))?;
    } else if found.is_empty() {
        output::line(&mut out, "nothing is open")?;
    } else {
        let rows: Vec<Vec<String>> = found.iter().map(row).collect();
        let head = ["id", "age", "provider", "class", "kind", "reference", "ours", "theirs", "state", "who"];
        output::line(&mut out, output::table(&head, &[0, 6, 7], &rows).trim_end())?;
    }
    let open = found.iter().any(|d| matches!(d.state.as_str(), "OPEN" | "ASSIGNED"));
    Ok(if open { Outcome::Found } else { Outcome::Fine })
}

fn row(d: &Discrepancy) -> Vec<String> {
    let money =
        |amount: Option<i64>| amount.map_or("-".into(), |a| output::money(a, d.currency.as_deref().unwrap_or("")));
    vec![
        d.id.to_string(),
        age(d.opened_at),
        format!("{}/{}/{}", d.tenant, d.provider, d.mode),
        d.class.clone(),
        d.kind.clone(),
        d.reference.clone(),
        money(d.our_amount),
        money(d.their_amount),
        d.resolution.clone().unwrap_or_else(|| d.state.clone()),
        d.assignee.clone().unwrap_or_default(),
    ]
}

fn show(args: &DiscrepanciesShow) -> Done {
    let conn = open_for_reading(&args.database.database)?;
    let Some((found, log)) = discrepancies::show(&conn, args.id)? else {
        return Err(Error::refused(format!("there is no discrepancy {}", args.id), "`postonce discrepancies list`"));
    };
    let line = match found.line {
        Some(line) => reports::line(&conn, line)?,
        None => None,
    };
    let mut out = std::io::stdout().lock();
    if args.database.json {
        let mut value = serde_json::to_value(&found).map_err(|e| Error::Apply(e.to_string()))?;
        value["log"] = serde_json::to_value(&log).map_err(|e| Error::Apply(e.to_string()))?;
        return output::json_line(&mut out, &value).map(|()| Outcome::Fine);
    }
    let rows = [row(&found)];
    let head = ["id", "age", "provider", "class", "kind", "reference", "ours", "theirs", "state", "who"];
    output::line(&mut out, output::table(&head, &[0, 6, 7], &rows).trim_end())?;
    if let Some(entry) = found.entry {
        output::line(&mut out, &format!("our entry {entry}: `postonce ledger --reference {}`", found.reference))?;
    }
    if let Some(line) = line {
        let at = line.occurred_at.map(clock::rfc3339).unwrap_or_default();
        let text = format!(
            "their line {} at place {}: {} {} gross {} fee {} net {} {} ({})",
            line.id, line.place, line.kind, line.name, line.gross, line.fee, line.net, line.currency, at
        );
        output::line(&mut out, &text)?;
    }
    if let Some(raw) = found.raw_event {
        output::line(&mut out, &format!("raw event {raw}: `postonce replay {raw}` sends it through again"))?;
    }
    for line in log {
        let at = crate::clock::rfc3339(line.at);
        let text = format!("{at}  {}  {} -> {}: {}", line.actor, line.from_state, line.to_state, line.note);
        output::line(&mut out, &text)?;
    }
    Ok(Outcome::Fine)
}

fn who(named: &Option<String>) -> String {
    named.clone().or_else(|| std::env::var("USER").ok()).unwrap_or_default()
}

fn assign(args: &DiscrepanciesAssign) -> Done {
    let (actor, note) = (who(&args.by), args.note.clone().unwrap_or_else(|| format!("given to {}", args.to)));
    write_beside(&args.database.database, |tx| discrepancies::assign(tx, args.id, &args.to, &actor, &note))?;
    println!("discrepancy {}: ASSIGNED to {}", args.id, args.to);
    Ok(Outcome::Fine)
}

fn resolve(args: &DiscrepanciesResolve) -> Done {
    let (actor, resolution) = (who(&args.by), args.resolution.to_ascii_uppercase().replace('-', "_"));
    write_beside(&args.database.database, |tx| discrepancies::resolve(tx, args.id, &resolution, &actor, &args.note))?;
    println!("discrepancy {}: RESOLVED as {resolution}", args.id);
    Ok(Outcome::Fine)
}

fn fetch(args: &DiscrepanciesFetch) -> Done {
    let desk = Desk::open(&args.configured)?;
    let change = Change {
        who: who(&args.by),
        what: "fetch",
        target: format!("discrepancy {}", args.id),
        note: args.note.clone(),
    };
    let wanted = Wanted { discrepancy: args.id, change, wait: Duration::from_secs(args.wait) };
    let sources = desk.sources.values().map(|source| &**source);
    let asked = desk.with(|access, wake| repair::fetch_again(access, sources, Pace::default(), &wanted, wake))?;
    if args.configured.json {
        output::json_line(&mut std::io::stdout().lock(), &asked)?;
    } else {
        println!("discrepancy {}: {}: {}", asked.discrepancy, asked.state, asked.what);
    }
    Ok(if asked.state == "RESOLVED" { Outcome::Fine } else { Outcome::Found })
}
