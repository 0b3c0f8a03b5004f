//! `postonce tail`: what arrives and what becomes of it, live, also while the server runs.

use super::args::Tail;
use super::{Done, Outcome, output};
use crate::error::Error;
use crate::source::matches;
use crate::store::raw::State;
use crate::store::tail::{self, Seen};
use crate::store::{open_for_reading, raw};
use std::collections::HashMap;
use std::io::{IsTerminal as _, Write as _};
use std::time::Duration;

/// Between two looks.
const EVERY: Duration = Duration::from_millis(200);
/// Rows of one look.
const ROWS: usize = 500;

pub(super) fn run(args: &Tail) -> Done {
    let mut states = Vec::new();
    for word in &args.state {
        let known = || State::ALL.iter().map(|s| s.as_str().to_lowercase()).collect::<Vec<_>>().join(", ");
        states.push(
            State::parse(word).ok_or_else(|| Error::refused(format!("there is no state {word:?}"), known()))?.as_str(),
        );
    }
    let conn = open_for_reading(&args.database.database)?;
    let mut after = (raw::newest(&conn)? - args.last.max(0)).max(0);
    let mut entry = if args.last > 0 { 0 } else { tail::newest_entry(&conn)? };
    let mut posted: HashMap<i64, Vec<String>> = HashMap::new();
    let mut waiting: Vec<i64> = Vec::new();
    let colours = std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|v| v.is_empty());
    let mut shown = 0;
    loop {
        let seen = tail::seen(&conn, after, &waiting, ROWS)?;
        let full = seen.len() >= ROWS;
        after = seen.iter().map(|s| s.id).max().unwrap_or(0).max(after);
        loop {
            let (more, last) = tail::posted(&conn, entry)?;
            if last == entry {
                break;
            }
            entry = last;
            for (id, text) in more.into_iter().filter(|(id, _)| seen.iter().any(|s| s.id == *id)) {
                posted.entry(id).or_default().push(text);
            }
        }
        for mut event in seen {
            let ended = State::parse(&event.state).is_some_and(|state| !state.is_waiting());
            let known = waiting.contains(&event.id);
            if !ended {
                if !known {
                    waiting.push(event.id);
                }
                continue;
            }
            waiting.retain(|id| *id != event.id);
            event.posted = posted.remove(&event.id).unwrap_or_default();
            let wanted = args.source.as_ref().is_none_or(|s| *s == event.source)
                && args.kind.as_ref().is_none_or(|k| event.kind.as_ref().is_some_and(|kind| matches(k, kind)))
                && (states.is_empty() || states.contains(&event.state.as_str()));
            if !wanted {
                continue;
            }
            let mut out = std::io::stdout().lock();
            match args.database.json {
                true => output::json_line(&mut out, &event)?,
                false => output::line(&mut out, &line(&event, colours))?,
            }
            let _ = out.flush();
            shown += 1;
            if args.count.is_some_and(|count| shown >= count) {
                return Ok(Outcome::Fine);
            }
        }
        if !full {
            std::thread::sleep(EVERY);
        }
    }
}

fn line(event: &Seen, colours: bool) -> String {
    let time = event.received_at.get(11..19).unwrap_or(&event.received_at);
    let colour = match event.state.as_str() {
        "DONE" => "32",
        "DEAD" | "CONFLICT" => "31",
        "PARKED" => "33",
        _ => "90",
    };
    let state = format!("{:9}", event.state);
    let state = if colours { format!("\x1b[{colour}m{state}\x1b[0m") } else { state };
    let rest = match (&event.reason, event.posted.is_empty()) {
        (Some(reason), _) => reason.clone(),
        (None, false) => event.posted.join(", "),
        (None, true) => String::new(),
    };
    let kind = event.kind.as_deref().unwrap_or("-");
    let text = format!("{time} {:>6} {state} {} {kind}  {rest}", event.id, event.source);
    // What a provider sent must not steer the terminal; only our own colours may.
    let clean = |c: char| if c.is_control() && !(colours && c == '\x1b') { ' ' } else { c };
    text.trim_end().chars().map(clean).collect()
}
