//! What else a server does while it is measured: old events are pruned, and days are compared with a report.
//!
//! On a file that `--fill` made: its oldest days are past their retention, and the report of a day is written from the
//! entries of that day.

use super::fill::DAYS;
use crate::clock;
use crate::config::Retain;
use crate::engine::Shared;
use crate::error::{Error, Result};
use crate::pull::Pace;
use crate::server::Server;
use crate::steps::retain::{self, Pruned};
use crate::steps::settle::{self, Ask};
use crate::store::ledger::{self, EntryFilter};
use crate::store::{Access, raw};
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::Duration;

/// Two threads that work until they are told to stop.
pub(super) struct Busy {
    stop: Arc<AtomicBool>,
    pruning: JoinHandle<Result<Pruned>>,
    settling: JoinHandle<Result<(u64, u64)>>,
}

impl Busy {
    pub(super) fn start(server: &Server, dir: &Path) -> Busy {
        let stop = Arc::new(AtomicBool::new(false));
        let (shared, over) = (server.engine().shared().clone(), stop.clone());
        let pruning = std::thread::spawn(move || prune(&shared, &over));
        let (shared, over, report) = (server.engine().shared().clone(), stop.clone(), dir.join("report.csv"));
        let settling = std::thread::spawn(move || settle_days(&shared, &report, &over));
        Busy { stop, pruning, settling }
    }

    /// Ends it; says how much was done.
    pub(super) fn stop(self) -> Result<Value> {
        self.stop.store(true, Relaxed);
        let died = |_| Error::Apply("it panicked".into());
        let pruned = self.pruning.join().map_err(died)??;
        let (runs, lines) = self.settling.join().map_err(died)??;
        Ok(
            json!({ "bodies_pruned": pruned.bodies, "events_pruned": pruned.events, "settlement_runs": runs, "report_lines": lines }),
        )
    }
}

fn prune(shared: &Shared, over: &AtomicBool) -> Result<Pruned> {
    let rules = Retain { bodies_days: 60, events_days: 80, ..Retain::default() };
    let mut all = Pruned::default();
    while !over.load(Relaxed) {
        let pruned = retain::retain(&shared.store, &rules, &|| over.load(Relaxed))?;
        all.bodies += pruned.bodies;
        all.events += pruned.events;
        std::thread::sleep(Duration::from_millis(50));
    }
    Ok(all)
}

/// A hundredth of the file after the other, the newest first. Gives how many, and the lines of their reports.
fn settle_days(shared: &Shared, report: &Path, over: &AtomicBool) -> Result<(u64, u64)> {
    let source = shared.sources.values().next().ok_or_else(|| Error::Apply("no source".into()))?.clone();
    let (mut runs, mut lines) = (0, 0);
    let newest = shared.store.read(raw::newest)?;
    let day = (newest / DAYS).clamp(1, 200_000);
    for part in 1..newest / day {
        if over.load(Relaxed) {
            break;
        }
        let filter =
            EntryFilter { after: newest - (part + 1) * day, limit: u32::try_from(day).ok(), ..EntryFilter::default() };
        let mut payments = Vec::new();
        shared.store.read(|conn| {
            ledger::entries(conn, &filter, |entry| {
                let at = entry.occurred_at.parse::<jiff::Timestamp>().map_or(0, jiff::Timestamp::as_millisecond);
                payments.push((at, entry.reference, entry.amount));
                Ok(())
            })
        })?;
        let (Some(first), Some(last)) = (payments.first(), payments.last()) else { break };
        let window = (first.0, last.0 + 1000, clock::rfc3339(last.0)[..10].to_owned());
        std::fs::write(report, csv(&payments)).map_err(|e| Error::Unavailable(e.to_string()))?;
        let ask = Ask {
            window: Some(window),
            again: false,
            file: Some(report),
            report: None,
            kept: None,
            now: clock::wall(),
            wait: Duration::from_secs(1),
            pace: Pace::default(),
            wake: &|| {},
            progress: &|_, _| {},
        };
        lines += settle::run(&Access::Ours(&shared.store), &source, &ask)?.lines as u64;
        runs += 1;
    }
    Ok((runs, lines))
}

/// The day as Stripe's activity report has it.
fn csv(payments: &[(i64, String, i64)]) -> String {
    let mut text = "balance_transaction_id,created_utc,available_on_utc,currency,gross,fee,net,reporting_category,source_id,charge_id,payment_intent_id\n".to_owned();
    for (at, reference, amount) in payments {
        let at = clock::rfc3339(at / 1000 * 1000).replace('T', " ").replace('Z', "");
        let (name, amount) = (&reference[3..], format!("{}.{:02}", amount / 100, amount % 100));
        let _ = writeln!(text, "txn_{name},{at},{at},usd,{amount},0.00,{amount},charge,ch_{name},,{reference}");
    }
    text
}
