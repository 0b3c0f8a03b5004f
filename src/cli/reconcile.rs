//! `postonce reconcile`: read a report, compare it with the ledger, show runs and the trend.
//!
//! Works on a file that nobody serves, with a worker of its own, and beside a running server, whose worker then posts.

use super::args::{Reconcile, ReconcileFile, ReconcileRead, ReconcileRun, ReconcileShow, ReconcileTrend};
use super::desk::{Bar, Desk};
use super::{Done, Outcome, output};
use crate::clock;
use crate::error::{Error, Result};
use crate::providers::report::read::HEAD_BYTES;
use crate::providers::report::{self, ReadError, ReadOptions};
use crate::providers::{Catalog, Recipe};
use crate::pull::Pace;
use crate::settlement::window;
use crate::source::Source;
use crate::steps::settle::{self, Ask, Settled};
use crate::store::open_for_reading;
use crate::store::settlement::runs::{self, RunFilter, RunLine};
use crate::store::settlement::trend::{self, TrendDay, TrendFilter};
use std::fs::File;
use std::io::{BufReader, BufWriter, Read as _, Write as _};
use std::time::Duration;

pub(super) fn main(args: &Reconcile) -> Done {
    match args {
        Reconcile::Read(args) => read(args),
        Reconcile::Run(args) => run(args),
        Reconcile::Import(args) => import_file(args),
        Reconcile::Show(args) => show(args),
        Reconcile::Trend(args) => draw_trend(args),
    }
}

/// An error that ends the reading: the report's, or that of our own output.
enum ReadStop {
    Report(ReadError),
    Ours(Error),
}

impl From<ReadError> for ReadStop {
    fn from(e: ReadError) -> ReadStop {
        ReadStop::Report(e)
    }
}

fn read(args: &ReconcileRead) -> Done {
    let catalog =
        Catalog::open(args.providers_dir.as_deref()).map_err(|e| Error::refused(e.to_string(), "mend that file"))?;
    let recipe: Recipe = match catalog.recipe(&args.provider) {
        Some(recipe) => recipe.map_err(|e| Error::refused(e.to_string(), "mend that file"))?,
        None => return Err(Error::refused(format!("no provider is called {:?}", args.provider), "--provider stripe")),
    };
    let no_file = |e: std::io::Error| {
        Error::refused(format!("cannot read {}: {e}", args.file.display()), "name a report file that is there")
    };
    let known: Vec<&str> = recipe.report.keys().map(String::as_str).collect();
    let hint = match known.as_slice() {
        [] => format!("{} has no report files that are known", recipe.title),
        names => format!("--report NAME, one of: {}", names.join(", ")),
    };
    let name = match &args.report {
        Some(name) => name.clone(),
        None => {
            let mut head = Vec::new();
            File::open(&args.file).and_then(|f| f.take(HEAD_BYTES as u64).read_to_end(&mut head)).map_err(no_file)?;
            let found = report::detect(&recipe, &head).map(str::to_owned);
            found.ok_or_else(|| {
                Error::refused(format!("{} is no report of {} that is known", args.file.display(), recipe.title), &hint)
            })?
        }
    };
    let Some(spec) = recipe.report.get(&name) else {
        return Err(Error::refused(format!("{} has no report {name:?}", recipe.title), hint));
    };
    let currency = match &args.currency {
        None => None,
        Some(code) => Some(
            crate::money::Currency::parse(code)
                .ok_or_else(|| Error::refused(format!("no currency is called {code:?}"), "--currency EUR"))?,
        ),
    };
    let options = ReadOptions { currency, zone: args.zone.clone() };
    let mut out = BufWriter::new(std::io::stdout().lock());
    let bar = Bar::new("read");
    let mut rows = 0;
    let file = File::open(&args.file).map_err(no_file)?;
    let summary = report::read::<ReadStop>(spec, BufReader::new(file), &options, &mut |line| {
        rows += 1;
        bar.at("read", rows);
        let text = if args.json {
            spec.json(&line)
        } else {
            format!(
                "{:>7}  {}  {:<18} {:<34} {:>16} {:>14} {:>16}",
                line.line,
                line.occurred_at.and_then(report::utc_text).unwrap_or_else(|| "-".repeat(20)),
                line.kind,
                line.reference.as_deref().or(line.ref_alt.as_deref()).unwrap_or("-"),
                output::money(line.gross, line.currency.code()),
                output::money(line.fee, line.currency.code()),
                output::money(line.net, line.currency.code()),
            )
        };
        output::line(&mut out, &text).map_err(ReadStop::Ours)
    });
    bar.clear();
    let summary = match summary {
        Ok(summary) => summary,
        Err(ReadStop::Ours(e)) => return Err(e),
        Err(ReadStop::Report(e)) => {
            let _ = out.flush();
            let what = format!("{}: {e}", args.file.display());
            return Err(Error::refused(what, "nothing of this file counts; export it again, or name it with --report"));
        }
    };
    let _ = out.flush();
    eprintln!("{name}: {} rows, {} repeated", summary.rows, summary.repeats);
    for (line, why) in &summary.skipped_first {
        eprintln!("line {line}: skipped: {why}");
    }
    let unseen: u64 = summary.skipped.values().sum::<u64>().saturating_sub(summary.skipped_first.len() as u64);
    if unseen > 0 {
        eprintln!("{unseen} more skipped: {:?}", summary.skipped);
    }
    let mut whole = true;
    for control in &summary.control {
        whole &= control.holds();
        let verdict = if control.holds() { "holds" } else { "DOES NOT HOLD: the file is not whole" };
        eprintln!("{}: the file says {}, its rows give {}: {verdict}", control.what, control.stated, control.read);
    }
    Ok(if whole { Outcome::Fine } else { Outcome::Found })
}

pub(super) fn parse_window(text: &str, source: &Source) -> Result<(i64, i64, String)> {
    window::parse(text, &source.settlement.zone).ok_or_else(|| {
        Error::refused(
            format!("{text:?} is no window"),
            "--window 2026-11-01..2026-11-30 (days, both included), one day, or two RFC 3339 times",
        )
    })
}

fn run(args: &ReconcileRun) -> Done {
    let desk = Desk::open(&args.configured)?;
    let source = desk.source(args.source.as_deref())?;
    let window = args.window.as_deref().map(|text| parse_window(text, source)).transpose()?;
    let bar = Bar::new("asking the provider");
    let settled = desk.with(|access, wake| {
        let ask = Ask {
            window,
            again: args.again,
            file: args.report.as_deref(),
            report: args.name.as_deref(),
            kept: None,
            now: clock::wall(),
            wait: Duration::from_secs(args.wait),
            pace: Pace::default(),
            wake,
            progress: &|phase, rows| bar.at(phase, rows),
        };
        settle::run(access, source, &ask)
    })?;
    bar.clear();
    tell(&settled, args.configured.json)
}

/// What a run came to. 1: a person is needed. 3: it could not be done yet.
pub(super) fn tell(settled: &Settled, json: bool) -> Done {
    let mut out = std::io::stdout().lock();
    if json {
        output::json_line(&mut out, settled)?;
    } else {
        output::line(&mut out, &format!("run {} for {}: {}", settled.run, settled.day, settled.state))?;
        if let Some(reason) = &settled.reason {
            output::line(&mut out, &format!("  {reason}"))?;
        } else {
            let lines = output::counted(settled.lines, "line", "lines");
            let head = format!("  {lines}, {} of ours", output::counted(settled.ours, "entry", "entries"));
            output::line(&mut out, &head)?;
            for (bucket, count) in &settled.buckets {
                output::line(&mut out, &format!("  {bucket:<18} {count:>9}"))?;
            }
            output::line(
                &mut out,
                &format!(
                    "  found {}, repaired {}, posted from the report {}, opened {}, waiting for a person {}",
                    settled.found, settled.repaired, settled.posted, settled.opened, settled.open
                ),
            )?;
        }
    }
    match settled.state {
        "DEFERRED" => {
            Err(Error::refused("deferred: nothing was compared", "run it again later; `serve` does by itself"))
        }
        "COMPLETED" if settled.open == 0 => Ok(Outcome::Fine),
        _ => Ok(Outcome::Found),
    }
}

fn import_file(args: &ReconcileFile) -> Done {
    let desk = Desk::open(&args.configured)?;
    let source = desk.source(args.source.as_deref())?;
    let window = args.window.as_deref().map(|text| parse_window(text, source)).transpose()?;
    let bar = Bar::new("reading");
    let kept = desk.with(|access, wake| {
        let ask = Ask {
            window,
            again: false,
            file: Some(&args.file),
            report: args.name.as_deref(),
            kept: None,
            now: clock::wall(),
            wait: Duration::ZERO,
            pace: Pace::default(),
            wake,
            progress: &|phase, rows| bar.at(phase, rows),
        };
        settle::keep(access, source, &ask)
    })?;
    bar.clear();
    let (report, lines) = (kept.id, kept.rows);
    if args.configured.json {
        output::json_line(&mut std::io::stdout().lock(), &serde_json::json!({ "report": report, "lines": lines }))?;
    } else {
        println!(
            "report {report}: {} kept; the same file again changes nothing",
            output::counted(lines, "line", "lines")
        );
    }
    Ok(Outcome::Fine)
}

fn show(args: &ReconcileShow) -> Done {
    let conn = open_for_reading(&args.database.database)?;
    let filter = RunFilter { id: args.run, limit: args.run.map_or(Some(30), |_| None), ..RunFilter::default() };
    let found = runs::list(&conn, &filter)?;
    let mut out = BufWriter::new(std::io::stdout().lock());
    let Some(run) = args.run else {
        for run in &found {
            if args.database.json {
                output::json_line(&mut out, run)?;
            }
        }
        if !args.database.json {
            output::line(&mut out, run_table(&found).trim_end())?;
        }
        return Ok(Outcome::Fine);
    };
    let Some(one) = found.first() else {
        return Err(Error::refused(format!("there is no run {run}"), "`postonce reconcile show` lists them"));
    };
    let items = runs::items(&conn, run, args.limit)?;
    if args.database.json {
        let mut value = serde_json::to_value(one).map_err(|e| Error::Apply(e.to_string()))?;
        value["items"] = serde_json::to_value(&items).map_err(|e| Error::Apply(e.to_string()))?;
        output::json_line(&mut out, &value)?;
    } else {
        output::line(&mut out, run_table(&found).trim_end())?;
        if let Some(reason) = &one.reason {
            output::line(&mut out, reason)?;
        }
        for (bucket, count) in &one.buckets {
            output::line(&mut out, &format!("{bucket:<18} {count:>9}"))?;
        }
        let rows: Vec<Vec<String>> = items
            .iter()
            .map(|i| {
                let money = |amount: Option<i64>| {
                    amount.map_or("-".into(), |a| output::money(a, i.currency.as_deref().unwrap_or_default()))
                };
                vec![
                    i.bucket.clone(),
                    i.kind.clone(),
                    i.reference.clone(),
                    money(i.our_amount),
                    money(i.their_amount),
                    i.occurred_at.clone().unwrap_or_default(),
                    i.place.map_or("-".into(), |p| p.to_string()),
                ]
            })
            .collect();
        if !rows.is_empty() {
            let head = ["bucket", "kind", "reference", "ours", "theirs", "occurred", "at line"];
            output::line(&mut out, output::table(&head, &[3, 4, 6], &rows).trim_end())?;
        }
    }
    let good = one.state == "COMPLETED" && items.iter().all(|i| !PERSON.contains(&i.bucket.as_str()));
    Ok(if good { Outcome::Fine } else { Outcome::Found })
}

/// Buckets that a person must look at.
const PERSON: [&str; 8] = [
    "missing_ours",
    "missing_theirs",
    "parked_ours",
    "amount_differs",
    "currency_differs",
    "fee_differs",
    "duplicate_theirs",
    "duplicate_ours",
];

fn run_table(runs: &[RunLine]) -> String {
    let rows: Vec<Vec<String>> = runs
        .iter()
        .map(|r| {
            vec![
                r.id.to_string(),
                r.day.clone(),
                r.source.clone(),
                r.report_name.clone(),
                if r.again { format!("{} (again)", r.state) } else { r.state.clone() },
                r.lines.map_or("-".into(), |n| n.to_string()),
                r.ours.map_or("-".into(), |n| n.to_string()),
                r.buckets.get("matched").map_or("-".into(), ToString::to_string),
                r.found.map_or("-".into(), |n| n.to_string()),
                r.repaired.to_string(),
                r.posted.to_string(),
            ]
        })
        .collect();
    let head = ["run", "day", "source", "report", "state", "lines", "ours", "matched", "found", "repaired", "posted"];
    output::table(&head, &[0, 5, 6, 7, 8, 9, 10], &rows)
}

fn draw_trend(args: &ReconcileTrend) -> Done {
    let conn = open_for_reading(&args.database.database)?;
    let today = window::day_of(clock::wall(), &jiff::tz::TimeZone::UTC);
    let to = args.to.clone().unwrap_or_else(|| window::before(&today, 1));
    let from = window::before(&to, i32::try_from(args.days).unwrap_or(30).max(1) - 1);
    let filter = TrendFilter { tenant: args.tenant.clone(), provider: args.provider.clone(), from, to };
    let days = trend::trend(&conn, &filter)?;
    let mut out = BufWriter::new(std::io::stdout().lock());
    if args.database.json {
        days.iter().try_for_each(|day| output::json_line(&mut out, day))?;
    } else if days.is_empty() {
        output::line(&mut out, "no settlement has run yet: `postonce reconcile run --source NAME`")?;
    } else {
        for book in days.chunk_by(|a, b| {
            (&a.tenant, &a.provider, &a.provider_account, &a.mode)
                == (&b.tenant, &b.provider, &b.provider_account, &b.mode)
        }) {
            output::line(&mut out, &drawn(book))?;
        }
    }
    let worried = days.last().is_some_and(|d| d.gap || d.open > 0) || days.iter().any(|d| d.gap);
    Ok(if worried { Outcome::Found } else { Outcome::Fine })
}

/// One book's days, a bar for what was found.
fn drawn(days: &[TrendDay]) -> String {
    const WIDTH: i64 = 24;
    let first = &days[0];
    let account =
        if first.provider_account.is_empty() { String::new() } else { format!(" {}", first.provider_account) };
    let mut text = format!("{} · {}{account} · {}\n", first.tenant, first.provider, first.mode);
    let most = days.iter().filter_map(|d| d.found).max().unwrap_or(0).max(1);
    let rows: Vec<Vec<String>> = days
        .iter()
        .map(|day| {
            let bar = match day.found {
                None => "gap".to_owned(),
                Some(0) => "·".to_owned(),
                Some(found) => "█".repeat(usize::try_from((found * WIDTH + most - 1) / most).unwrap_or(1)),
            };
            let share = day.matched_per_mille.map_or("-".into(), |m| format!("{}.{} %", m / 10, m % 10));
            let value: Vec<String> = day.value.iter().map(|(c, v)| output::money(*v, c)).collect();
            vec![
                day.day.clone(),
                day.found.map_or("-".into(), |n| n.to_string()),
                bar,
                share,
                day.opened.to_string(),
                day.open.to_string(),
                value.join(", "),
                day.trouble.clone().filter(|_| day.gap).unwrap_or_default(),
            ]
        })
        .collect();
    let head = ["day", "found", "", "matched", "opened", "open", "value", "trouble"];
    text.push_str(&output::table(&head, &[1, 3, 4, 5], &rows));
    text
}
