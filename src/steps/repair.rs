//! Repair: what follows from a run. Fetches what is missing here, hands over what no webhook announces and fees that
//! were not known, opens discrepancies and closes those that are over.
//!
//! Corrects in one direction only: what the provider has and we lack, through the same path as every event. Never
//! posts anything itself, never touches what we have and the provider lacks.

use super::scores::Scores;
use super::settle::Ask;
use crate::error::{Error, Result};
use crate::pull::{Client, Pace, PullError};
use crate::settlement::matching::Bucket;
use crate::settlement::told::{self, Told};
use crate::source::Source;
use crate::store::audit::{self, Change};
use crate::store::bodies::StoredBody;
use crate::store::raw::{self, NewRaw, Origin};
use crate::store::settlement::discrepancies::{self, NewDiscrepancy, SETTLEMENT};
use crate::store::settlement::feed;
use crate::store::settlement::reports::{self, StoredLine};
use crate::store::settlement::runs;
use crate::store::settlement::{self as tables};
use crate::store::{Access, Lock, claims};
use rusqlite::Connection;
use std::time::{Duration, Instant};

/// Raw events in one piece of work.
const EVENTS: usize = 50;
/// Calls that fail one after the other before no more are tried.
const FAILURES_MAX: u32 = 3;

/// What a discrepancy about a line is called: the movement, or what there is of a name.
pub(super) fn name_of(line: &StoredLine) -> String {
    let names = [&line.reference, &line.ref_alt, &line.order];
    match names.into_iter().flatten().next() {
        _ if !line.name.is_empty() => line.name.clone(),
        Some(name) => name.clone(),
        None => line.line_ref.clone(),
    }
}

/// The raw event that waits for a person and names this line's movement.
pub(super) fn parked_as(conn: &Connection, line: i64, waiting: &[(i64, Vec<u8>)]) -> Result<Option<i64>> {
    let Some(line) = reports::line(conn, line)? else { return Ok(None) };
    let names: Vec<&String> = [&line.reference, &line.ref_alt].into_iter().flatten().chain([&line.name]).collect();
    let inside = |body: &[u8], name: &str| {
        let id = name.rsplit('/').next().unwrap_or(name); // `orders/12`: the body has 12
        id.len() >= 4
            && body.windows(id.len()).enumerate().any(|(at, part)| part == id.as_bytes() && whole(body, at, id.len()))
    };
    Ok(waiting.iter().find(|(_, body)| names.iter().any(|name| inside(body, name))).map(|(id, _)| *id))
}

/// A name found inside a body counts only when it does not go on: pi_1 is not pi_12.
fn whole(body: &[u8], at: usize, len: usize) -> bool {
    let word = |b: Option<&u8>| b.is_some_and(|b| b.is_ascii_alphanumeric() || *b == b'_');
    let before = at.checked_sub(1).and_then(|at| body.get(at));
    !word(body.get(at + len)) && !word(before)
}

/// Opens discrepancies, a few at a time; gives how many are new.
pub(super) fn open_all(access: &Access, news: Vec<NewDiscrepancy>) -> Result<i64> {
    let mut opened = 0;
    for chunk in news.chunks(EVENTS) {
        let chunk = chunk.to_vec();
        opened += access.write(move |tx| {
            let mut opened = 0;
            for new in &chunk {
                opened += i64::from(discrepancies::open(tx, new)?.1);
            }
            Ok(opened)
        })?;
    }
    Ok(opened)
}

/// What was handed over.
#[derive(Default)]
pub(super) struct Handed {
    pub repaired: i64,
    pub posted: i64,
    pub opened: i64,
    pub raw_events: Vec<i64>,
}

/// Fetches what is missing and hands over the rest.
pub(super) fn after(
    access: &Access,
    source: &Source,
    ask: &Ask,
    (book, run, report): (i64, i64, i64),
    scores: &Scores,
) -> Result<Handed> {
    let mut handed = Handed::default();
    missing(access, source, ask, (book, run), scores, &mut handed)?;
    let mut told = Vec::new();
    let mut unknown = Vec::new();
    let mode = super::settle::book_of(source).mode;
    access.read(|conn| {
        for (line, entry) in scores.late_fees() {
            let (line, entry) = (reports::line(conn, line)?, feed::entry_facts(conn, book, entry)?);
            if let (Some(line), Some(entry)) = (line, entry)
                && !entry.reference.contains('@')
            {
                told.push(fee_told(&line, entry, source));
            }
        }
        for one in scores.of(Bucket::ProviderOnly) {
            let Some(line) = reports::line(conn, one.item)? else { continue };
            let at = line.occurred_at.or(line.available_at);
            if line.unknown_kind.is_some() || line.name.is_empty() || at.is_none() {
                unknown.push(unknown_kind(&line, book, run));
            }
            if !line.name.is_empty() && at.is_some() {
                let body = told_of(&line, mode.as_str(), report).body();
                told.push(raw_of(source, Origin::Report, told::HEADER, body));
            }
        }
        Ok(())
    })?;
    handed.opened += open_all(access, unknown)?;
    for chunk in told.chunks(EVENTS) {
        let new = chunk.to_vec();
        let ids = access.write(move |tx| new.iter().map(|raw| raw::insert(tx, raw)).collect::<Result<Vec<i64>>>())?;
        handed.posted += ids.len() as i64;
        handed.raw_events.extend(ids);
    }
    if handed.repaired + handed.posted > 0 {
        let (repaired, posted) = (handed.repaired, handed.posted);
        access.write(move |tx| runs::handed_over(tx, run, repaired, posted))?;
        (ask.wake)();
    }
    Ok(handed)
}

/// A raw event that we made or fetched.
pub(super) fn raw_of(source: &Source, origin: Origin, headers: &str, bytes: Vec<u8>) -> NewRaw {
    NewRaw {
        source: source.name.clone(),
        origin,
        secret: None,
        headers: format!("{headers}\n"),
        query: String::new(),
        body: StoredBody::pack(&bytes),
    }
}

/// A line as the movement that it tells.
pub(super) fn told_of(line: &StoredLine, mode: &str, report: i64) -> Told {
    let settled = if line.gross == 0 { line.net } else { line.gross };
    let (amount, currency) = match line.shown {
        Some(shown) => (shown.minor, shown.currency),
        None => (settled, line.currency),
    };
    let aliases = [&line.reference, &line.ref_alt].into_iter().flatten().filter(|n| **n != line.name).cloned();
    Told {
        kind: line.kind.clone(),
        reference: line.name.clone(),
        aliases: aliases.collect(),
        parent: line.parent.clone(),
        amount: amount.saturating_abs(),
        currency: currency.code().into(),
        fee: (line.gross != 0 && line.fee != 0).then_some(line.fee),
        fee_currency: (currency != line.currency).then(|| line.currency.code().into()),
        tax: (line.tax != 0).then_some(line.tax.saturating_abs()),
        occurred_at: line.occurred_at.or(line.available_at).unwrap_or(0),
        mode: mode.into(),
        report,
        line: line.id,
    }
}

fn unknown_kind(line: &StoredLine, book: i64, run: i64) -> NewDiscrepancy {
    let what = match &line.unknown_kind {
        Some(word) => format!("the provider calls it {word:?}, which nobody knows: it is booked to suspense"),
        None => "a line without a reference or a time, of a kind that no webhook announces: it is not posted".into(),
    };
    NewDiscrepancy {
        class: "UNKNOWN_KIND",
        their_amount: Some(line.net.saturating_abs()),
        fixing: false,
        note: what,
        ..about(line, book, run)
    }
}

fn about(line: &StoredLine, book: i64, run: i64) -> NewDiscrepancy {
    let shown = line
        .shown
        .map_or((if line.gross == 0 { line.net } else { line.gross }, line.currency), |m| (m.minor, m.currency));
    NewDiscrepancy {
        book,
        class: "MISSING_OURS",
        kind: line.kind.clone(),
        reference: name_of(line),
        currency: Some(shown.1.code().into()),
        our_amount: None,
        their_amount: Some(shown.0.saturating_abs()),
        entry: None,
        line: Some(line.id),
        raw_event: None,
        run: Some(run),
        fixing: true,
        note: String::new(),
    }
}

/// Fetches each missing movement from the provider; what cannot be fetched is for a person.
fn missing(
    access: &Access,
    source: &Source,
    ask: &Ask,
    (book, run): (i64, i64),
    scores: &Scores,
    handed: &mut Handed,
) -> Result<()> {
    let lines = access
        .read(|conn| scores.of(Bucket::MissingOurs).map(|v| reports::line(conn, v.item)).collect::<Result<Vec<_>>>())?;
    let mut client = match source.api_key {
        Some(_) => Client::new(&source.recipe, source.settlement.access.clone(), ask.pace).ok(),
        None => None,
    };
    let mut failures = 0;
    for (at, line) in lines.into_iter().flatten().enumerate() {
        (ask.progress)("fetched", at as u64);
        let fetched = match &mut client {
            None => Err("the source has no api_key to fetch it with".to_owned()),
            Some(_) if failures >= FAILURES_MAX => Err("the provider could not be asked".to_owned()),
            Some(client) => fetch(client, &line).map_err(|e| {
                failures = if e.later() { failures + 1 } else { failures };
                format!("it could not be fetched: {e}")
            }),
        };
        let mut new = about(&line, book, run);
        let raw = match fetched {
            Ok(Some((origin, body))) => {
                new.note = format!("{}: sent through the same path as its webhook", origin.as_str());
                Some(raw_of(source, origin, "content-type: application/json", body))
            }
            Ok(None) => {
                (new.fixing, new.note) = (false, "the provider's API does not give it, or not as succeeded".into());
                None
            }
            Err(why) => {
                (new.fixing, new.note) = (false, why);
                None
            }
        };
        let (id, is_new) = access.write(move |tx| {
            let mut new = new.clone();
            if let Some(raw) = &raw {
                new.raw_event = Some(raw::insert(tx, raw)?);
            }
            let (_, is_new) = discrepancies::open(tx, &new)?;
            Ok((new.raw_event, is_new))
        })?;
        match id {
            Some(id) => {
                handed.repaired += 1;
                handed.raw_events.push(id);
                (ask.wake)();
            }
            None => handed.opened += i64::from(is_new),
        }
    }
    Ok(())
}

fn fetch(client: &mut Client, line: &StoredLine) -> std::result::Result<Option<(Origin, Vec<u8>)>, PullError> {
    let mut names: Vec<&String> = Vec::new();
    for name in [&line.reference, &line.ref_alt].into_iter().flatten().chain([&line.name]) {
        if !name.is_empty() && !names.contains(&name) {
            names.push(name);
        }
    }
    for name in names {
        if let Some(found) = client.object(&line.kind, name, line.parent.as_deref())? {
            let origin = if found.rebuilt { Origin::Rebuilt } else { Origin::Fetched };
            return Ok(Some((origin, found.body.to_string().into_bytes())));
        }
    }
    Ok(None)
}

/// What came of asking again for what is missing.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct AskedAgain {
    /// The discrepancy.
    pub discrepancy: i64,
    /// What the provider gave, as a raw event; `None`: it gave nothing.
    pub event: Option<i64>,
    /// Where the discrepancy stands now: `RESOLVED`, `OPEN`, or `FIXING` while the event is under way.
    pub state: String,
    /// In words.
    pub what: String,
}

/// Who wants it, and why.
#[derive(Clone, Debug)]
pub struct Wanted {
    /// The discrepancy.
    pub discrepancy: i64,
    /// The audit row: who, and the note.
    pub change: Change,
    /// How long to wait for what was fetched to come through.
    pub wait: Duration,
}

/// Asks the provider once more for what a discrepancy says is missing here, and sends it through the same path. The
/// discrepancy's log and the audit say who wanted it, also when the provider gave nothing.
pub fn fetch_again<'s>(
    access: &Access,
    sources: impl IntoIterator<Item = &'s Source>,
    pace: Pace,
    wanted: &Wanted,
    wake: &dyn Fn(),
) -> Result<AskedAgain> {
    let id = wanted.discrepancy;
    let (book, line) = access.read(|conn| discrepancies::missing(conn, id))?;
    let _alone = Lock::take_for(access.path(), "-postonce-settle.lock")?;
    let name = access.read(|conn| tables::book(conn, book))?;
    let source = sources.into_iter().find(|source| Some(super::settle::book_of(source)) == name).ok_or_else(|| {
        Error::refused(
            format!("no source of the configuration has the ledger of discrepancy {id}"),
            "name a configuration with its source",
        )
    })?;
    if source.api_key.is_none() {
        return Err(Error::refused(
            format!("the source {} has no api_key to fetch it with", source.name),
            "api_key = \"env:NAME\" in its [[source]], or `postonce send --body` with the event from the dashboard",
        ));
    }
    let line = access
        .read(|conn| reports::line(conn, line))?
        .ok_or_else(|| Error::refused(format!("the report line of discrepancy {id} is gone"), "run the day again"))?;
    let fetched = Client::new(&source.recipe, source.settlement.access.clone(), pace)
        .and_then(|mut client| fetch(&mut client, &line));
    let (raw, what) = match fetched {
        Ok(Some((origin, body))) => (
            Some(raw_of(source, origin, "content-type: application/json", body)),
            format!("{}: sent through the same path as its webhook", origin.as_str()),
        ),
        Ok(None) => (None, "the provider's API does not give it, or not as succeeded".to_owned()),
        Err(e) => (None, format!("it could not be fetched: {e}")),
    };
    let change = wanted.change.clone();
    let said = if change.note.is_empty() { what.clone() } else { format!("{}; {what}", change.note) };
    let event = access.write(move |tx| {
        let event = raw.as_ref().map(|raw| raw::insert(tx, raw)).transpose()?;
        discrepancies::asked_again(tx, id, event, &change.who, &said)?;
        audit::write(tx, &change)?;
        Ok(event)
    })?;
    if let Some(event) = event {
        wake();
        followed(access, source, book, &[event], wanted.wait, wake)?;
    }
    let (row, log) = access.read(|conn| discrepancies::show(conn, id))?.ok_or(Error::LostClaim)?;
    let what = log.last().filter(|_| event.is_some() && row.state != "FIXING").map_or(what, |line| line.note.clone());
    Ok(AskedAgain { discrepancy: id, event, state: row.state, what })
}

/// Waits for what was handed over, and says of each repair whether it came through. Gives how many are for a person now.
pub(super) fn follow_up(access: &Access, source: &Source, ask: &Ask, book: i64, handed: &[i64]) -> Result<i64> {
    followed(access, source, book, handed, ask.wait, ask.wake)
}

fn followed(
    access: &Access,
    source: &Source,
    book: i64,
    handed: &[i64],
    wait: Duration,
    wake: &dyn Fn(),
) -> Result<i64> {
    let until = Instant::now() + wait;
    while access.read(|conn| tables::still_waiting(conn, handed))? > 0 && Instant::now() < until {
        wake();
        std::thread::sleep(Duration::from_millis(20));
    }
    let fixing: Vec<_> =
        access.read(|conn| discrepancies::open_of(conn, book))?.into_iter().filter(|d| d.state == "FIXING").collect();
    let mut opened = 0;
    for one in fixing {
        let (state, reason) = match one.raw_event {
            Some(raw) => access.read(|conn| tables::state_of(conn, raw))?.unwrap_or_default(),
            None => Default::default(),
        };
        match state.as_str() {
            "RECEIVED" | "CLAIMED" => {} // the next run looks again
            "DONE" | "DUPLICATE" => {
                let came = access.read(|conn| claims::find(conn, book, &one.kind, &one.reference))?;
                if came.is_some_and(|c| c.done) {
                    let note = "it was fetched and is posted";
                    over(access, source, book, &one, "AUTO_FETCHED", note)?;
                } else {
                    opened += 1;
                    let why = format!("what was fetched did not post {} {}", one.kind, one.reference);
                    access.write(move |tx| discrepancies::for_a_person(tx, one.id, &why))?;
                }
            }
            _ => {
                opened += 1;
                let why = format!("what was fetched ended as {state}: {}", reason.unwrap_or_default());
                log::warn!("settlement of {}: {} {}: {why}", source.name, one.kind, one.reference);
                access.write(move |tx| discrepancies::for_a_person(tx, one.id, &why))?;
            }
        }
    }
    Ok(opened)
}

/// Closes one, and settles the entry that came for its line, where both say the same.
fn over(
    access: &Access,
    source: &Source,
    book: i64,
    one: &discrepancies::OpenOne,
    resolution: &'static str,
    note: &'static str,
) -> Result<()> {
    let pair = access.read(|conn| {
        let Some(entry) = claims::find(conn, book, &one.kind, &one.reference)?.and_then(|c| c.journal) else {
            return Ok(None);
        };
        let line = match one.line {
            Some(line) => reports::line(conn, line)?,
            None => None,
        };
        let facts = feed::entry_facts(conn, book, entry)?;
        let (Some(line), Some(facts)) = (line, facts) else { return Ok(None) };
        let (amount, currency) = line.shown.map_or((line.gross, line.currency), |m| (m.minor, m.currency));
        let same = amount.saturating_abs() == facts.amount && currency.code() == facts.currency && facts.settles;
        let fee =
            line.gross != 0 && line.fee != 0 && feed::fee_of(conn, book, &facts.kind, &facts.reference)?.is_none();
        let fee = (same && fee && !facts.reference.contains('@')).then(|| fee_told(&line, facts, source));
        Ok(same.then_some((entry, line.id, fee)))
    })?;
    let id = one.id;
    access.write(move |tx| {
        if let Some((entry, line, fee)) = &pair {
            runs::settle_one(tx, book, *entry, *line)?;
            if let Some(fee) = fee {
                raw::insert(tx, fee)?;
            }
        }
        discrepancies::close(tx, id, resolution, SETTLEMENT, note)
    })
}

/// The fee that a line tells of an entry that had none.
fn fee_told(line: &StoredLine, entry: feed::EntryFacts, source: &Source) -> NewRaw {
    let mode = super::settle::book_of(source).mode;
    let told = Told {
        kind: entry.kind,
        reference: entry.reference,
        aliases: Vec::new(),
        parent: None,
        tax: None,
        amount: entry.amount,
        currency: entry.currency,
        occurred_at: entry.occurred_at,
        ..told_of(line, mode.as_str(), 0)
    };
    raw_of(source, Origin::Report, told::HEADER, told.body())
}

/// Closes what is over: an entry whose line came, a movement that came.
pub(super) fn close_over(access: &Access, source: &Source, book: i64, scores: &Scores) -> Result<()> {
    for one in access.read(|conn| discrepancies::open_of(conn, book))? {
        let met = one.entry.is_some_and(|entry| scores.is_matched(entry));
        let came = |class: &str| matches!(class, "MISSING_OURS" | "PARKED_OURS");
        match one.class.as_str() {
            "MISSING_THEIRS" | "AMOUNT_DIFFERS" | "CURRENCY_DIFFERS" | "FEE_DIFFERS" | "DUPLICATE_OURS" if met => {
                let id = one.id;
                let note = "its line is in the provider's report now, and both say the same";
                access.write(move |tx| discrepancies::close(tx, id, "AUTO_LATE_MATCH", SETTLEMENT, note))?;
            }
            class if came(class) && one.state != "FIXING" => {
                let there = access.read(|conn| claims::find(conn, book, &one.kind, &one.reference))?;
                let row = |line| access.read(|conn| reports::row_is_settled(conn, book, line));
                if there.is_some_and(|c| c.done && c.journal.is_some()) {
                    over(access, source, book, &one, "AUTO_LATE_MATCH", "it came, and is posted")?;
                } else if one.line.map_or(Ok(false), row)? {
                    // by the movement it belongs to, or by the merchant's order: it is known by no name of the line
                    let (id, note) = (one.id, "it came under another name, and both say the same");
                    access.write(move |tx| discrepancies::close(tx, id, "AUTO_LATE_MATCH", SETTLEMENT, note))?;
                }
            }
            _ => {}
        }
    }
    Ok(())
}
