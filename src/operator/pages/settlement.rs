//! Settlement: does our ledger say what the provider says? The trend, the runs, each discrepancy and its ways out.

use super::{entry_link, event_link};
use crate::clock::wall;
use crate::operator::act;
use crate::operator::answer::{Failure, Outcome, see};
use crate::operator::ask::Ask;
use crate::operator::chart;
use crate::operator::layout::{
    code, csrf, empty, href, instant, money_text, number, page as framed, pager, since, state, table,
};
use crate::store::books;
use crate::store::settlement::runs::{self, ItemLine, RunFilter, RunLine};
use crate::store::settlement_view::{self as view, Day, DiscrepancyRow, LineRow, LogRow, Open, RunRow};
use maud::{Markup, html};

/// Days of the trend.
pub(in crate::operator) const DAYS: i64 = 90;

/// A difference in words and money; the bold part of every list.
pub(super) fn difference(row: &DiscrepancyRow) -> String {
    let Some(currency) = &row.currency else { return "no amount".into() };
    match (row.our_amount, row.their_amount) {
        (Some(ours), Some(theirs)) => money_text(ours - theirs, currency),
        (Some(one), None) | (None, Some(one)) => money_text(one, currency),
        (None, None) => "no amount".into(),
    }
}

/// What a class means.
pub(super) fn class(word: &str) -> &str {
    match word {
        "MISSING_OURS" => "missing here",
        "MISSING_THEIRS" => "missing in their report",
        "AMOUNT_DIFFERS" => "amounts differ",
        "CURRENCY_DIFFERS" => "currencies differ",
        "FEE_DIFFERS" => "fees differ",
        "DUPLICATE_THEIRS" => "twice in their report",
        "DUPLICATE_OURS" => "twice here",
        "PARKED_OURS" => "parked or in conflict here",
        "UNKNOWN_KIND" => "of a kind nobody knows",
        "CONTROL_TOTAL" => "their totals do not add up",
        other => other,
    }
}

/// What is open, in one sentence's parts.
pub(super) fn open_facts(open: &Open, days: &[Day]) -> Markup {
    let week = |from: usize, to: usize| {
        let (from, to) = (days.len().saturating_sub(from), days.len().saturating_sub(to));
        days[from..to].iter().map(Day::total).sum::<i64>()
    };
    let per_day = |n: i64| format!("{}.{}", n / 7, n * 10 / 7 % 10);
    html! {
        dl.figures {
            div { dt { "Found a day, this week" } dd { (per_day(week(7, 0))) } dd.soft { "last week " (per_day(week(14, 7))) } }
            div { dt { "Open" } dd { (number(open.count)) } @if let Some((id, at)) = open.oldest { dd.soft { "oldest: " a href={ "/settlement/discrepancies/" (id) } { "number " (id) } ", " (since(at)) } } }
            @if !open.value.is_empty() {
                div { dt { "Their value" } @for (currency, value) in &open.value { dd { (money_text(*value, currency)) } } }
            }
        }
    }
}

/// A list of discrepancies.
pub(super) fn discrepancy_rows(caption: &str, found: &[DiscrepancyRow]) -> Markup {
    let rows = found
        .iter()
        .map(|row| {
            vec![
                html! { a href={ "/settlement/discrepancies/" (row.id) } { (row.id) } },
                html! { (class(&row.class)) span.soft { (row.kind) " " (code(&row.reference)) } },
                html! { strong { (difference(row)) } },
                html! { (state(&row.state)) @if let Some(assignee) = &row.assignee { " by " (assignee) } @if let Some(how) = &row.resolution { " " (how.to_lowercase().replace('_', " ")) } },
                since(row.opened_at),
            ]
        })
        .collect();
    table(caption, &["Number", "What", "#Difference", "State", "Opened"], rows)
}

fn run_rows(runs: &[RunRow]) -> Markup {
    let rows = runs
        .iter()
        .map(|run| {
            let counted: Vec<String> = run
                .buckets
                .iter()
                .map(|(bucket, n)| format!("{} {}", number(*n), bucket.replace('_', " ")))
                .collect();
            vec![
                html! { a href={ "/settlement/runs/" (run.id) } { (run.day) } },
                html! { (run.provider) " " (run.report) @if run.mode == "test" { " (test)" } span.soft { (run.tenant) } },
                html! { (state(&run.state)) @if let Some(reason) = &run.reason { span.soft { (reason) } } },
                html! { (counted.join(", ")) @if run.repaired > 0 { span.soft { (run.repaired) " fetched and posted" } } },
                html! { @match (run.lines, run.entries) { (Some(lines), Some(entries)) => { (number(lines)) " / " (number(entries)) }, _ => {} } },
            ]
        })
        .collect();
    table("Runs, the newest first", &["Day", "Report", "State", "Buckets", "#Lines / entries"], rows)
}

/// The page.
pub(in crate::operator) fn page(ask: &Ask) -> Outcome {
    ask.only(&["show", "cursor", "limit"])?;
    let all = ask.one_of("show", &[("open", false), ("all", true), ("runs", false)])?.unwrap_or(false);
    let only_runs = ask.typed("show") == "runs";
    let (before, limit) = (ask.cursor()?, ask.limit()?);
    let (days, open, found, runs) = ask.app.shared().store.look(|conn| {
        let days = view::trend(conn, wall(), DAYS)?;
        let open = view::open(conn)?;
        let found = view::discrepancies(conn, !all, if only_runs { None } else { before }, limit)?;
        let runs = view::runs(conn, if only_runs { before } else { None }, if only_runs { limit } else { 14 })?;
        Ok((days, open, found, runs))
    })?;
    let what = "Once a day the provider's own report is compared with our ledger, line by line, both ways.";
    if days.is_empty() {
        let content = empty(
            "No run has been made yet.",
            html! {
                p { "A run reads the provider's settlement report of a day and looks for each of its lines here, and for each of our entries there. What is missing here is fetched and posted through the same path; the rest is shown to a person. Give the source an " code { "api_key" } ", or hand over a file:" }
                pre { "postonce reconcile --source stripe --file report.csv" }
            },
        );
        return Ok(framed(ask, "Settlement", "/settlement", what, content));
    }
    let content = html! {
        p.answer {
            @match open.count { 0 => "Nothing is open: both sides agree.", 1 => "1 discrepancy is open.", n => { (number(n)) " discrepancies are open." } }
        }
        (chart::trend(&days))
        (open_facts(&open, &days))
        nav.tabs aria-label="What to list" {
            @for (word, name) in [("open", "Open"), ("all", "All discrepancies"), ("runs", "Runs")] {
                @let current = if ask.typed("show").is_empty() { "open" } else { ask.typed("show") };
                a href=(href("/settlement", &[("show", word)])) aria-current=[(word == current).then_some("page")] { (name) }
            }
        }
        @if only_runs {
            (run_rows(&runs.rows)) (pager(ask, &runs))
        } @else {
            @if found.rows.is_empty() { p { "None." } } @else { (discrepancy_rows("Newest first", &found.rows)) }
            (pager(ask, &found))
            h2 { "Latest runs" }
            (run_rows(&runs.rows))
        }
    };
    Ok(framed(ask, "Settlement", "/settlement", what, content))
}

/// What a bucket means, and whether a person is needed.
fn bucket(word: &str) -> (&'static str, bool) {
    match word {
        "matched" => ("on both sides, and equal", false),
        "missing_ours" => ("in their report and not here: fetched and posted", true),
        "parked_ours" => ("in their report; here it waits for a person", true),
        "pending_theirs" => ("in their report, and not succeeded yet: looked at again", false),
        "in_transit" => ("here, and too young for their report: looked at again", false),
        "missing_theirs" => ("here, and not in their report", true),
        "amount_differs" => ("on both sides with different amounts", true),
        "currency_differs" => ("on both sides in different currencies", true),
        "fee_differs" => ("on both sides with different fees", true),
        "not_comparable" => ("their report holds only the settled currency", false),
        "duplicate_theirs" => ("twice in their report", true),
        "duplicate_ours" => ("twice here", true),
        "provider_only" => ("of a kind that no webhook announces: posted from the report", false),
        "not_ours" => ("another integration's money in the same account", false),
        _ => ("", false),
    }
}

/// A run with what did not match.
pub(in crate::operator) fn whole_run(ask: &Ask) -> Result<(RunRow, RunLine, Vec<ItemLine>), Failure> {
    const ITEMS: u32 = 200;
    let id = ask.id()?;
    let found = ask.app.shared().store.look(|conn| {
        let filter = RunFilter { id: Some(id), limit: Some(1), ..RunFilter::default() };
        let row = view::runs(conn, Some(id.saturating_add(1)), 1)?.rows.pop().filter(|row| row.id == id);
        let (Some(row), Some(run)) = (row, runs::list(conn, &filter)?.pop()) else { return Ok(None) };
        Ok(Some((row, run, runs::items(conn, id, ITEMS)?)))
    })?;
    found.ok_or_else(|| Failure::absent(format!("run {id}")))
}

/// The page of one run.
pub(in crate::operator) fn run(ask: &Ask) -> Outcome {
    ask.only(&[])?;
    let (_, run, items) = whole_run(ask)?;
    let matched = run.buckets.get("matched").copied().unwrap_or(0);
    let needed: i64 = run.buckets.iter().filter(|(word, _)| bucket(word).1).map(|(_, n)| n).sum();
    let counted = run
        .buckets
        .iter()
        .map(|(word, n)| {
            let (what, _) = bucket(word);
            vec![html! { (word.replace('_', " ")) }, html! { (number(*n)) }, html! { (what) }]
        })
        .collect();
    let listed = items
        .iter()
        .map(|item| {
            let money = |amount: Option<i64>| match (amount, &item.currency) {
                (Some(amount), Some(currency)) => money_text(amount, currency),
                _ => "nothing".into(),
            };
            vec![
                html! { (item.bucket.replace('_', " ")) span.soft { (item.kind) } },
                code(&item.reference),
                html! { @if let Some(entry) = item.entry { (entry_link(entry)) " " } (money(item.our_amount)) },
                html! { @if let Some(place) = item.place { "line " (place) " " } (money(item.their_amount)) },
                html! { @if let Some(at) = &item.occurred_at { (crate::operator::layout::instant_of(at)) } },
            ]
        })
        .collect();
    let content = html! {
        p.answer {
            @match run.state.as_str() {
                "COMPLETED" => { (number(matched)) " of " (number(run.lines.unwrap_or(0))) " lines match" @if needed > 0 { "; " (number(needed)) " did not when they were compared" } "." },
                "RUNNING" => "It is being compared.",
                _ => "Nothing was compared.",
            }
        }
        p { (state(&run.state)) @if let Some(reason) = &run.reason { " " (reason) } }
        dl.facts {
            dt { "Report" } dd { (run.provider) " " (run.report_name) ", " (run.tenant) @if run.mode == "test" { " (test)" } }
            dt { "Window" } dd { (crate::operator::layout::instant_of(&run.window_start)) " to " (crate::operator::layout::instant_of(&run.window_end)) @if run.again { ", and everything that was open" } }
            dt { "Made" } dd { (crate::operator::layout::instant_of(&run.started_at)) }
            @if let (Some(lines), Some(ours)) = (run.lines, run.ours) { dt { "Compared" } dd { (number(lines)) @if lines == 1 { " line, " } @else { " lines, " } (number(ours)) @if ours == 1 { " entry of ours" } @else { " entries of ours" } } }
            @if run.repaired > 0 { dt { "Fetched" } dd { (number(run.repaired)) " were missing here, and were sent through the same path" } }
            @if run.posted > 0 { dt { "Posted" } dd { (number(run.posted)) " that no webhook announces" } }
            @for (currency, apart) in run.control_diff.as_object().into_iter().flatten() {
                @if let Some(apart) = apart.as_i64() { dt { "Their total" } dd { (money_text(apart, currency)) " apart from their lines" } }
            }
        }
        @if !run.buckets.is_empty() { (table("Each line and each entry is in one bucket", &["Bucket", "#How many", "Meaning"], counted)) }
        @if !items.is_empty() { (table("What did not match; the first two hundred", &["What", "Reference", "#Ours", "#Theirs", "Happened"], listed)) }
        p { a href="/settlement?show=runs" { "All runs" } " · " a href="/settlement?show=open" { "What is open now" } }
    };
    let title = format!("Run {} for {}", run.id, run.day);
    Ok(framed(
        ask,
        &title,
        "/settlement",
        "One comparison of the provider's report with our ledger, as it was found.",
        content,
    ))
}

/// One discrepancy with all that belongs to it.
pub(in crate::operator) struct Whole {
    pub row: DiscrepancyRow,
    pub line: Option<LineRow>,
    pub log: Vec<LogRow>,
    pub entry: Option<crate::store::ledger::EntryLine>,
}

/// Reads one.
pub(in crate::operator) fn whole(ask: &Ask) -> Result<Whole, Failure> {
    let id = ask.id()?;
    let found = ask.app.shared().store.look(|conn| {
        let Some((row, line, log)) = view::discrepancy(conn, id)? else { return Ok(None) };
        let entry = row.entry.map(|entry| books::entry(conn, entry)).transpose()?.flatten();
        Ok(Some(Whole { row, line, log, entry }))
    })?;
    found.ok_or_else(|| Failure::absent(format!("discrepancy {id}")))
}

/// The page of one discrepancy.
pub(in crate::operator) fn one(ask: &Ask) -> Outcome {
    ask.only(&[])?;
    let Whole { row, line, log, entry } = whole(ask)?;
    let amount = |amount: Option<i64>| match (amount, &row.currency) {
        (Some(amount), Some(currency)) => money_text(amount, currency),
        _ => "nothing".into(),
    };
    let sides = vec![
        vec![html! { "Amount" }, html! { (amount(row.our_amount)) }, html! { (amount(row.their_amount)) }],
        vec![
            html! { "Where" },
            html! { @if let Some(entry) = &entry { (entry_link(entry.id)) ", event " (event_link(entry.raw_event)) } @else if let Some(event) = row.raw_event { "event " (event_link(event)) } @else { "nowhere" } },
            html! { @if let Some(line) = &line { (line.report) ", line " (line.place) } @else { "nowhere" } },
        ],
        vec![
            html! { "Reference" },
            html! { (code(&row.reference)) },
            html! { @if let Some(line) = &line { (code(line.reference.as_deref().unwrap_or(&line.line_ref))) } },
        ],
        vec![
            html! { "Happened" },
            html! { @if let Some(entry) = &entry { (crate::operator::layout::instant_of(&entry.occurred_at)) } },
            html! { @if let Some(at) = line.as_ref().and_then(|line| line.occurred_at) { (instant(at)) } },
        ],
    ];
    let title = format!("Discrepancy {}", row.id);
    let content = html! {
        p.answer { strong { (difference(&row)) } ": " (row.kind) ", " (class(&row.class)) "." }
        p { (state(&row.state)) @if let Some(at) = row.resolved_at { " " (since(at)) "." } " Opened " (instant(row.opened_at)) ", " (since(row.opened_at)) ", seen by " (row.seen) @if row.seen == 1 { " run" } @else { " runs" } @if let Some(assignee) = &row.assignee { ", assigned to " (assignee) } "." }
        (table("Both sides", &["", "Ours", "Theirs"], sides))
        @if let Some(line) = &line {
            p.soft { "Their line: gross " (money_text(line.gross, &line.currency)) ", fee " (money_text(line.fee, &line.currency)) ", net " (money_text(line.net, &line.currency)) @if let Some(payout) = &line.payout { ", in payout " (code(payout)) } "." }
        }
        h2 { "What was done" }
        @if log.is_empty() { p { "Nothing yet." } }
        @else {
            ol.story {
                @for step in &log {
                    li class=(if step.to_state == "RESOLVED" { "done" } else { "plain" }) {
                        h3 { (step.from_state.to_lowercase()) " → " (step.to_state.to_lowercase()) } (instant(step.at))
                        p { (step.note) span.soft { " by " (step.actor) } }
                    }
                }
            }
        }
        @if row.state != "RESOLVED" && ask.may_change() { (ways_out(ask, &row)) }
    };
    Ok(framed(ask, &title, "/settlement", "The provider's word against ours, and the ways out.", content))
}

fn ways_out(ask: &Ask, row: &DiscrepancyRow) -> Markup {
    html! {
        h2 { "Ways out" }
        ul {
            @if let Some(event) = row.raw_event { li { "Look at " a href={ "/events/" (event) } { "event " (event) } ", which was parked or fetched for it: a replay posts it." } }
            @if let Some(entry) = row.entry { li { "Is our entry wrong? See " a href={ "/ledger/entries/" (entry) } { "entry " (entry) } ", and take it back there with a note." } }
        }
        @if row.class == "MISSING_OURS" {
            form.note method="post" action={ "/settlement/discrepancies/" (row.id) "/fetch" } {
                (csrf(&ask.who))
                p { "Ask the provider for it once more: what it gives goes through the same path as its webhook, and can be posted once only." }
                label { span { "Why now? For the log" } input type="text" name="note" required maxlength="2000"; }
                button { "Fetch it again" }
            }
        }
        form.note method="post" action={ "/settlement/discrepancies/" (row.id) "/resolve" } {
            (csrf(&ask.who))
            label { span { "How does it end?" } select name="resolution" {
                option value="accepted" { "Accepted as it is" }
                option value="posted_correction" { "A correction was posted" }
                option value="provider_error" { "The provider's report is wrong" }
                option value="duplicate_of" { "Another discrepancy tells it" }
            } }
            label { span { "Why? There is no way out without a note" } textarea name="note" required maxlength="2000" {} }
            button { "Resolve discrepancy " (row.id) }
        }
        details {
            summary { "Give it to somebody" }
            form.note method="post" action={ "/settlement/discrepancies/" (row.id) "/assign" } {
                (csrf(&ask.who))
                label { span { "To whom" } input type="text" name="to" required maxlength="60"; }
                label { span { "Note" } textarea name="note" required maxlength="2000" {} }
                button.plainer { "Assign" }
            }
        }
    }
}

/// Ends one.
pub(in crate::operator) fn resolve(ask: &Ask) -> Outcome {
    let id = ask.id()?;
    act::resolve(ask, id, resolution(ask)?, &ask.note()?)?;
    ask.app.access.tell(ask.head, &format!("Discrepancy {id} is resolved"));
    Ok(see("/settlement"))
}

/// Asks the provider again.
pub(in crate::operator) fn fetch(ask: &Ask) -> Outcome {
    let id = ask.id()?;
    let note = ask.note()?;
    if note.is_empty() {
        return Err(Failure::malformed("note says why"));
    }
    let asked = act::fetch_again(ask, id, &note)?;
    ask.app.access.tell(ask.head, &format!("Discrepancy {id} is {}: {}", asked.state.to_lowercase(), asked.what));
    Ok(see(&format!("/settlement/discrepancies/{id}")))
}

/// How a person may end one: the word of forms and API, and that of the table.
const RESOLUTIONS: [(&str, &str); 4] = [
    ("accepted", "ACCEPTED"),
    ("posted_correction", "POSTED_CORRECTION"),
    ("provider_error", "PROVIDER_ERROR"),
    ("duplicate_of", "DUPLICATE_OF"),
];

/// The resolution that was sent.
pub(in crate::operator) fn resolution(ask: &Ask) -> Result<&'static str, Failure> {
    let word = ask.field("resolution").unwrap_or_default();
    let found = RESOLUTIONS.iter().find(|(known, _)| *known == word).map(|(_, how)| *how);
    found.ok_or_else(|| {
        let known: Vec<&str> = RESOLUTIONS.iter().map(|(word, _)| *word).collect();
        Failure::malformed(format!("resolution is one of: {}", known.join(", ")))
    })
}

/// Gives one to somebody.
pub(in crate::operator) fn assign(ask: &Ask) -> Outcome {
    let id = ask.id()?;
    act::assign(ask, id, &assignee(ask)?, &ask.note()?)?;
    ask.app.access.tell(ask.head, &format!("Discrepancy {id} is assigned"));
    Ok(see(&format!("/settlement/discrepancies/{id}")))
}

/// To whom it is given.
pub(in crate::operator) fn assignee(ask: &Ask) -> Result<String, Failure> {
    let to = ask.field("to").unwrap_or_default();
    if to.is_empty() || to.chars().count() > 60 || to.chars().any(char::is_control) {
        return Err(Failure::malformed("to is a name of 1 to 60 characters"));
    }
    Ok(to.to_owned())
}
