//! Alerts: finds out what is wrong, groups it, and tells people through the outbox.
//!
//! One trouble of one source is one alert, however often it happens: told when it opens, when it grows, again with
//! growing waits while it lasts, and once when it is over. Never sends anything itself: an alert is a message like any
//! other, with attempts and an end.

use crate::clock;
use crate::config::{AlertFormat, AlertRules};
use crate::engine::{Shared, silence_of};
use crate::error::Result;
use crate::event::Millis;
use crate::source::matches;
use crate::store::alerts::{self as rows, Alert};
use crate::store::{Tx, backup, health, outbox};
use std::collections::{HashMap, VecDeque};

/// A trouble that holds now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Firing {
    /// dead, conflict, parked, dead_message, rejected, silence, discrepancy, invalid_run, disk, wal, outbox_lag, apply_lag, backup.
    pub kind: &'static str,
    /// The source or endpoint; empty for the whole server.
    pub subject: String,
    /// How much of it.
    pub count: i64,
    /// For a person: what, how much, what to do.
    pub what: String,
}

/// Whom to tell.
#[derive(Clone, Debug)]
pub struct Recipient {
    /// The endpoint's name.
    pub endpoint: String,
    /// The kinds it wants.
    pub on: Vec<String>,
    /// What its body looks like.
    pub format: AlertFormat,
}

/// Troubles must be away for this long before an alert is over, so that one that comes and goes is one alert.
const CALM: Millis = 30_000;
/// A growing trouble is told again after this at the earliest.
const GROWN_AFTER: Millis = 10 * 60_000;
/// Rejected signatures are counted over this long.
const REJECTED_WITHIN: Millis = 5 * 60_000;
/// A log of this size is not folded in any more.
const WAL_MAX_MB: u64 = 256;
const SILENCE_EVERY: Millis = 60_000;
const DAY: Millis = 24 * 3_600_000;

/// What is remembered between two looks.
pub struct Watch {
    refused: VecDeque<(Millis, HashMap<String, u64>)>,
    silent: Vec<Firing>,
    silence_at: Millis,
    seen: HashMap<(String, String), Millis>,
}

impl Watch {
    /// Begins to watch.
    pub fn begin() -> Watch {
        Watch { refused: VecDeque::new(), silent: Vec::new(), silence_at: 0, seen: HashMap::new() }
    }

    /// Looks for troubles now.
    pub fn look(&mut self, shared: &Shared, rules: &AlertRules) -> Result<Vec<Firing>> {
        let now = clock::wall();
        let mut firing = shared.raised();
        let backlog = shared.store.read(|conn| {
            grouped(
                &mut firing,
                "dead",
                "dead letter(s)",
                "postonce dead, then postonce replay",
                health::dead_by_source(conn)?,
            );
            let hint = "compare with the provider, then replay or correct it";
            grouped(&mut firing, "conflict", "conflict(s)", hint, health::conflicts_by_source(conn)?);
            let before = now - Millis::from(rules.parked_h) * 3_600_000;
            let words = format!("event(s) parked since more than {} h", rules.parked_h);
            let hint = "see why with `postonce dead`, then replay";
            grouped(&mut firing, "parked", &words, hint, health::parked_by_source(conn, before)?);
            let hint = "is the endpoint up? then requeue them";
            grouped(&mut firing, "dead_message", "dead message(s)", hint, health::dead_messages(conn)?);
            health::backlog(conn, clock::steady(), now)
        })?;
        let mut whole = |kind, count: i64, what: String| {
            firing.push(Firing { kind, subject: String::new(), count, what });
        };
        if backlog.outbox_lag_s > rules.outbox_lag_s {
            let what = format!("messages are late by {} s ({} wait)", backlog.outbox_lag_s, backlog.messages_waiting);
            whole("outbox_lag", backlog.outbox_lag_s, what);
        }
        if backlog.oldest_unapplied_s > rules.apply_lag_s {
            let what = format!(
                "an event waits since {} s to be applied ({} wait)",
                backlog.oldest_unapplied_s, backlog.waiting
            );
            whole("apply_lag", backlog.oldest_unapplied_s, what);
        }
        if backlog.discrepancies_open > 0 {
            let open = backlog.discrepancies_open;
            let what = format!("{open} settlement discrepancies are open; postonce discrepancies lists them");
            whole("discrepancy", open, what);
        }
        let wal = std::fs::metadata(crate::store::beside(shared.store.path(), "-wal")).map_or(0, |m| m.len()) >> 20;
        if wal >= WAL_MAX_MB {
            let what =
                format!("the log of the database has {wal} MiB: somebody holds an old snapshot open (`fuser FILE`)");
            whole("wal", i64::try_from(wal).unwrap_or(i64::MAX), what);
        }
        if let Some(free) = backup::free_bytes(shared.store.path()).map(|free| free >> 20)
            && free < rules.disk_free_mb
        {
            whole(
                "disk",
                i64::try_from(free).unwrap_or(0),
                format!("{free} MiB are free on the disk of the database: make room"),
            );
        }
        self.rejected(shared, rules, now, &mut firing);
        self.silent(shared, now, &mut firing);
        Ok(firing)
    }

    fn rejected(&mut self, shared: &Shared, rules: &AlertRules, now: Millis, firing: &mut Vec<Firing>) {
        use crate::metrics::Outcome;
        let counts: HashMap<String, u64> =
            shared.metrics.sources().map(|(name, c)| (name.to_owned(), c.of(Outcome::Refused))).collect();
        while self.refused.front().is_some_and(|(at, _)| now - at > REJECTED_WITHIN || *at > now) {
            self.refused.pop_front();
        }
        for (source, count) in &counts {
            let before = self.refused.front().and_then(|(_, then)| then.get(source)).copied().unwrap_or(0);
            let rejected = count.saturating_sub(before);
            if rejected < rules.rejected.max(1) {
                continue;
            }
            let reasons: Vec<String> = shared
                .metrics
                .source(source)
                .into_iter()
                .flat_map(|c| c.reasons())
                .map(|(reason, n)| format!("{} {n}", reason.as_str()))
                .collect();
            firing.push(Firing {
                kind: "rejected",
                subject: source.clone(),
                count: i64::try_from(rejected).unwrap_or(i64::MAX),
                what: format!(
                    "source {source}: {rejected} deliveries in five minutes with a bad signature (since the start: {}); \
                     is the secret the one in the provider's dashboard?",
                    reasons.join(", ")
                ),
            });
        }
        self.refused.push_back((now, counts));
    }

    /// By each source's own history or its configuration; looked at once a minute.
    fn silent(&mut self, shared: &Shared, now: Millis, firing: &mut Vec<Firing>) {
        if (now - self.silence_at).abs() >= SILENCE_EVERY {
            self.silence_at = now;
            self.silent.clear();
            if let Err(e) = shared.heard.look(&shared.store) {
                log::debug!("what came could not be looked at: {e}");
            }
            for source in shared.sources.values() {
                let mut heard = shared.heard.of(&source.name);
                let Some(quiet) = silence_of(heard.times.make_contiguous(), source, now) else { continue };
                let name = &source.name;
                self.silent.push(Firing {
                    kind: "silence",
                    subject: name.clone(),
                    count: (now - quiet.since) / 3_600_000,
                    what: format!(
                        "source {name}: nothing came since {}; look at the endpoint in the provider's dashboard, it may have \
                         been switched off",
                        clock::rfc3339(quiet.since)
                    ),
                });
            }
        }
        firing.extend(self.silent.iter().cloned());
    }

    /// Opens, tells, closes, as of `now` (wall time). Gives how many messages were written.
    pub fn step(
        &mut self,
        shared: &Shared,
        rules: &AlertRules,
        to: &[Recipient],
        firing: Vec<Firing>,
        now: Millis,
    ) -> Result<usize> {
        let open = shared.store.read(rows::open)?;
        let mut changes = Vec::new();
        for one in firing {
            let key = (one.kind.to_owned(), one.subject.clone());
            self.seen.insert(key, now);
            let there = open.iter().find(|a| a.kind == one.kind && a.subject == one.subject);
            match there {
                None => changes.push(Change::Open(one)),
                Some(alert) if is_due(alert, &one, rules, now) => changes.push(Change::Again(one)),
                Some(_) => {}
            }
        }
        for alert in open {
            let seen = *self.seen.entry((alert.kind.clone(), alert.subject.clone())).or_insert(now);
            if now - seen > CALM {
                self.seen.remove(&(alert.kind.clone(), alert.subject.clone()));
                changes.push(Change::Close(Box::new(alert)));
            }
        }
        if changes.is_empty() {
            return Ok(0);
        }
        for change in &changes {
            match change {
                Change::Open(one) => log::warn!("alert {} {}: {}", one.kind, one.subject, one.what),
                Change::Again(one) => log::warn!("alert {} {} lasts: {}", one.kind, one.subject, one.what),
                Change::Close(alert) => log::info!("alert {} {} is over", alert.kind, alert.subject),
            }
        }
        let to = to.to_vec();
        let written = shared.store.write(move |tx| changes.iter().map(|change| write(tx, change, &to)).sum())?;
        shared.wake_sender();
        Ok(written)
    }
}

enum Change {
    Open(Firing),
    Again(Firing),
    Close(Box<Alert>),
}

fn grouped(firing: &mut Vec<Firing>, kind: &'static str, words: &str, hint: &str, groups: Vec<health::Group>) {
    for health::Group { name, count, newest, reason } in groups {
        let what = format!("{name}: {count} {words}, the newest is {newest} ({reason}); {hint}");
        firing.push(Firing { kind, subject: name, count, what });
    }
}

/// Is a trouble that lasts to be told again? When it has grown, after ten minutes; else after waits that double.
fn is_due(alert: &Alert, now_is: &Firing, rules: &AlertRules, now: Millis) -> bool {
    let since = now - alert.told_at;
    let counted =
        matches!(now_is.kind, "dead" | "conflict" | "parked" | "dead_message" | "discrepancy" | "invalid_run");
    if counted && now_is.count > alert.told_count && since >= GROWN_AFTER {
        return true;
    }
    let first = Millis::from(rules.repeat_minutes.max(1)) * 60_000;
    since >= first.saturating_mul(1 << alert.told.saturating_sub(1).min(20)).min(DAY)
}

fn write(tx: &Tx, change: &Change, to: &[Recipient]) -> Result<usize> {
    let (id, kind, subject, count, what, event, opened_at) = match change {
        Change::Open(one) | Change::Again(one) => {
            let id = rows::insert(tx, one.kind, &one.subject, one.count, &one.what)?;
            let event = if matches!(change, Change::Open(_)) { "alert.opened" } else { "alert.lasts" };
            (id, one.kind, &one.subject, one.count, &one.what, event, tx.now)
        }
        Change::Close(alert) => {
            if !rows::close(tx, alert.id)? {
                return Ok(0);
            }
            (alert.id, alert.kind.as_str(), &alert.subject, alert.count, &alert.what, "alert.closed", alert.opened_at)
        }
    };
    rows::told(tx, id)?;
    let about = if subject.is_empty() { kind.to_owned() } else { format!("{kind}: {subject}") };
    let title = match event {
        "alert.opened" => about,
        "alert.lasts" => format!("still {about}"),
        _ => format!("over: {about}"),
    };
    let mut written = 0;
    for one in to.iter().filter(|one| one.on.iter().any(|on| matches(on, kind))) {
        let payload = match one.format {
            AlertFormat::Slack => serde_json::json!({ "text": format!("[postonce] {title}\n{what}") }),
            AlertFormat::Json => serde_json::json!({
                "type": event,
                "timestamp": clock::rfc3339(tx.now),
                "title": title,
                "data": {
                    "alert": id, "kind": kind, "subject": subject, "count": count, "what": what,
                    "opened_at": clock::rfc3339(opened_at),
                },
            }),
        };
        let key = format!("alert/{id}/{}/{event}/{}", one.endpoint, tx.now);
        let message = outbox::NewMessage {
            key: &key,
            endpoint: &one.endpoint,
            raw_event: 0,
            journal: None,
            payload: Some(&payload.to_string()),
        };
        written += usize::from(outbox::insert(tx, &message)?);
    }
    Ok(written)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn alert(told: u32, told_at: Millis, told_count: i64) -> Alert {
        Alert {
            id: 1,
            kind: "dead".into(),
            subject: "stripe".into(),
            opened_at: 0,
            closed_at: None,
            count: told_count,
            told,
            told_at,
            told_count,
            what: String::new(),
        }
    }

    fn firing(kind: &'static str, count: i64) -> Firing {
        Firing { kind, subject: "stripe".into(), count, what: String::new() }
    }

    #[test]
    fn a_trouble_that_lasts_is_told_again_with_growing_waits_up_to_a_day() {
        let rules = AlertRules::default();
        let hour = 3_600_000;
        for (told, wait) in [(1, hour), (2, 2 * hour), (3, 4 * hour), (9, 24 * hour), (60, 24 * hour)] {
            let alert = alert(told, 0, 3);
            assert!(!is_due(&alert, &firing("dead", 3), &rules, wait - 1), "told {told} times");
            assert!(is_due(&alert, &firing("dead", 3), &rules, wait), "told {told} times");
        }
    }

    #[test]
    fn a_count_that_grows_is_told_after_ten_minutes_and_a_lag_that_grows_is_not() {
        let rules = AlertRules::default();
        assert!(!is_due(&alert(1, 0, 3), &firing("dead", 4), &rules, GROWN_AFTER - 1));
        assert!(is_due(&alert(1, 0, 3), &firing("dead", 4), &rules, GROWN_AFTER));
        assert!(!is_due(&alert(1, 0, 3), &firing("outbox_lag", 4000), &rules, GROWN_AFTER));
    }
}
