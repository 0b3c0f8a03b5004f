//! Today: is everything all right? One sentence, what needs a person, four figures, the trend, the sources, the outbox.

use super::health;
use super::outbox;
use super::settlement::{DAYS, class, difference, open_facts};
use super::sources::{self, SourceView};
use crate::clock::{steady, wall};
use crate::engine::latency;
use crate::event::Millis;
use crate::operator::answer::{Failure, Outcome};
use crate::operator::ask::Ask;
use crate::operator::chart;
use crate::operator::hours::{self, HOUR};
use crate::operator::layout::{count, duration, empty, number, page as framed, since, state, table};
use crate::store::messages::{self, Standing};
use crate::store::overview::{self, OnTheWay, Span, Waiting};
use crate::store::settlement_view::{self as settlement, Day, DiscrepancyRow, Open};
use maud::{Markup, html};
use std::time::Duration;

const DAY: Millis = 24 * HOUR;
/// Events that wait for longer are worth a word.
const LATE: Millis = 60_000;

/// What the first page knows.
pub(in crate::operator) struct Overview {
    pub now: Span,
    pub week_ago: Span,
    pub ack: [Option<Duration>; 2],
    pub waiting: Vec<Waiting>,
    pub on_the_way: OnTheWay,
    pub outbox: Standing,
    pub days: Vec<Day>,
    pub open: Open,
    pub open_rows: Vec<DiscrepancyRow>,
    pub entries: i64,
}

/// Reads it.
pub(in crate::operator) fn overview(ask: &Ask) -> Result<Overview, Failure> {
    let shared = ask.app.shared();
    let now = wall();
    let ack = |to: Millis| {
        let hour = to / HOUR * HOUR + HOUR;
        hours::of_hours(shared, hour - DAY, hour).map(|reading| latency::within(&reading, 99))
    };
    let mut recent = hours::of_hours(shared, now - DAY, now)?;
    if recent.iter().all(|n| *n == 0) {
        recent = shared.metrics.acknowledge.reading(); // the first minute
    }
    let acks = [latency::within(&recent, 99), ack(now - 7 * DAY)?];
    Ok(shared.store.look(|conn| {
        Ok(Overview {
            now: overview::span(conn, now - DAY, now + 1)?,
            week_ago: overview::span(conn, now - 8 * DAY, now - 7 * DAY)?,
            ack: acks,
            waiting: overview::for_a_person(conn)?,
            on_the_way: overview::on_the_way(conn)?,
            outbox: messages::standing(conn, steady())?,
            days: settlement::trend(conn, now, DAYS)?,
            open: settlement::open(conn)?,
            open_rows: settlement::discrepancies(conn, true, None, 5)?.rows,
            entries: crate::store::ledger::newest(conn)?,
        })
    })?)
}

/// The page.
pub(in crate::operator) fn page(ask: &Ask) -> Outcome {
    ask.only(&[])?;
    let seen = overview(ask)?;
    let (sources, back_to) = sources::views(ask)?;
    let troubles = health::troubles(ask)?;
    let needs = needs(&seen, &sources, &troubles);
    let nothing_yet = seen.now.received == 0 && seen.entries == 0;
    let content = html! {
        p.answer { (sentence(&seen, needs.len(), nothing_yet)) }
        @if !needs.is_empty() { ul.needs aria-label="Things that need a person" { @for need in &needs { li { (need) } } } }
        @if nothing_yet { (super::events::none_yet(ask)) }
        (figures(&seen))
        h2 { "Discrepancies with the providers' own reports" }
        @if seen.days.is_empty() {
            (empty("No settlement run has been made yet.", html! { p { "Once a day the provider's report can be compared with this ledger, both ways. What is found is drawn here, a bar a day: " a href="/settlement" { "how to begin" } "." } }))
        } @else {
            (chart::trend(&seen.days))
            (open_facts(&seen.open, &seen.days))
        }
        @if !sources.is_empty() { h2 { "Sources" } (source_rows(&sources, back_to)) }
        h2 { "Outbox" }
        p { (outbox::sentence(&seen.outbox)) " " a href="/outbox" { "See the outbox" } }
    };
    let what = "Whether every payment is where it belongs, over the last 24 hours and the last 90 days.";
    Ok(framed(ask, "Today", "/", what, content))
}

fn sentence(seen: &Overview, needs: usize, nothing_yet: bool) -> Markup {
    let matched = seen.days.iter().rev().skip(1).take(2).any(|day| day.expected > 0 && !day.is_gap());
    html! {
        @if needs == 1 { "1 thing needs a person." }
        @else if needs > 1 { (needs) " things need a person." }
        @else if nothing_yet { "Ready, and waiting for the first webhook." }
        @else if seen.on_the_way.oldest.is_some_and(|oldest| wall() - oldest > LATE) {
            (count(seen.on_the_way.count)) " events are on their way to the ledger, the oldest for " (duration(wall() - seen.on_the_way.oldest.unwrap_or_default())) "."
        }
        @else if seen.now.received == 0 { "Nothing has arrived in the last 24 hours; everything before is in the ledger." }
        @else {
            @if seen.now.posted == 1 { "The one movement of money of the last 24 hours is in the ledger" }
            @else { "All " (number(seen.now.posted)) " payments and other movements of the last 24 hours are in the ledger" }
            @if matched && seen.open.count == 0 { ", and the providers' reports agree" } "."
        }
    }
}

/// What needs a person, each with its age and one button.
fn needs(seen: &Overview, sources: &[SourceView], troubles: &[String]) -> Vec<Markup> {
    let need = |what: Markup, href: String, button: &str| html! { p { (what) } a.button href=(href) { (button) } };
    let mut needs = Vec::new();
    for trouble in troubles {
        needs.push(need(html! { "! The machine: " (trouble) "." }, "/health".into(), "See health"));
    }
    for waiting in seen.waiting.iter().filter(|w| w.count > 0) {
        let what = match waiting.state {
            "DEAD" => ("failed too often and stopped", "failed too often and stopped"),
            "CONFLICT" => ("says another amount than what is posted", "say another amount than what is posted"),
            _ => ("cannot be posted without guessing", "cannot be posted without guessing"),
        };
        let what = html! {
            "! " (count(waiting.count)) @if waiting.count == 1 { " event " (what.0) } @else { " events " (what.1) }
            @if let Some((_, at)) = waiting.oldest { ", the oldest " (since(at)) } "."
        };
        let one = waiting.oldest.filter(|_| waiting.count == 1);
        match one {
            Some((id, _)) => needs.push(need(what, format!("/events/{id}"), &format!("Look at event {id}"))),
            None => {
                let state = waiting.state.to_lowercase();
                needs.push(need(what, format!("/events?state={state}"), &format!("Look at {state} events")));
            }
        }
    }
    for row in seen.open_rows.iter().filter(|row| row.state == "OPEN") {
        let what = html! { "! " strong { (difference(row)) } " " (class(&row.class)) ", " (row.kind) " at " (row.provider) ", since " (since(row.opened_at)) "." };
        needs.push(need(
            what,
            format!("/settlement/discrepancies/{}", row.id),
            &format!("Look at discrepancy {}", row.id),
        ));
    }
    if seen.open.count > 5 {
        let what = html! { "! " (number(seen.open.count)) " discrepancies are open in all." };
        needs.push(need(what, "/settlement".into(), "See all discrepancies"));
    }
    if seen.outbox.dead > 0 {
        let what = html! { "! " (count(seen.outbox.dead)) @if seen.outbox.dead == 1 { " message was" } @else { " messages were" } " given up: your app has not accepted it." };
        needs.push(need(what, "/outbox?state=dead".into(), "See dead messages"));
    }
    for source in sources.iter().filter(|source| source.secrets.iter().any(|secret| secret.ended)) {
        let what = html! { "! A secret of source " (source.name) " has ended." };
        needs.push(need(what, format!("/sources#{}", source.name), &format!("See source {}", source.name)));
    }
    needs
}

fn figures(seen: &Overview) -> Markup {
    let time = |time: Option<Duration>| match time {
        Some(time) if time < Duration::from_millis(10) => {
            format!("{}.{} ms", time.as_millis(), time.as_micros() % 1000 / 100)
        }
        Some(time) if time < Duration::from_secs(2) => format!("{} ms", time.as_millis()),
        Some(time) => duration(time.as_millis() as Millis),
        None => "none".into(),
    };
    let apply = |span: &Span| {
        span.apply_p99.map_or("none".to_owned(), |ms| if ms < 2_000 { format!("{ms} ms") } else { duration(ms) })
    };
    let failed: i64 = seen.waiting.iter().map(|w| w.count).sum();
    let figure = |name: &str, now: String, then: String| html! { div { dt { (name) } dd { (now) } dd.soft { "a week ago " (then) } } };
    let slowest = |name: &str, now: String, then: String| html! { div { dt { (name) } dd { (now) } dd.soft { "for 99 of 100; a week ago " (then) } } };
    html! {
        dl.figures aria-label="The last 24 hours" {
            (figure("Received", number(seen.now.received), number(seen.week_ago.received)))
            (figure("Entries posted", number(seen.now.posted), number(seen.week_ago.posted)))
            (figure("Repeats ignored", count(seen.now.repeats), count(seen.week_ago.repeats)))
            div { dt { "Waiting for a person" } dd { (count(failed)) } dd.soft { (count(seen.on_the_way.count)) " on their way" } }
            (slowest("Time to answer", time(seen.ack[0]), time(seen.ack[1])))
            (slowest("Time to post", apply(&seen.now), apply(&seen.week_ago)))
        }
    }
}

fn source_rows(sources: &[SourceView], back_to: Option<Millis>) -> Markup {
    let rows = sources
        .iter()
        .map(|source| {
            let refused: u64 = source.refused.iter().map(|r| r.count).sum();
            vec![
                html! { a href={ "/sources#" (source.name) } { (source.name) } },
                sources::heard(source, back_to),
                html! { @if refused > 0 { (state("refused")) " " (number(refused as i64)) } @else { "none" } },
                html! { (source.mode.unwrap_or("live and test")) },
            ]
        })
        .collect();
    table("Who sends, and when they were last heard", &["Source", "Last event", "Refused signatures", "Mode"], rows)
}
