//! Every path of this listener, in one table.

use super::answer::{Failure, Outcome};
use super::ask::Ask;
use super::{api, pages};
use crate::edge::{Head, Method};

/// Who may.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    /// Everybody who reaches the listener.
    Open,
    /// Whoever is let in.
    Look,
    /// Operators only; audited.
    Change,
}

/// What answers a method of a path.
pub(super) type Handler = for<'a> fn(&Ask<'a>) -> Outcome;

/// A row of the table.
pub(super) struct Entry {
    method: &'static str,
    path: &'static str,
    pub kind: Kind,
    pub handler: Handler,
}

const fn open(path: &'static str, handler: Handler) -> Entry {
    Entry { method: "GET", path, kind: Kind::Open, handler }
}

const fn look(path: &'static str, handler: Handler) -> Entry {
    Entry { method: "GET", path, kind: Kind::Look, handler }
}

const fn change(path: &'static str, handler: Handler) -> Entry {
    Entry { method: "POST", path, kind: Kind::Change, handler }
}

/// The paths. A part in braces is a number or a name.
const TABLE: &[Entry] = &[
    // for machines
    open("/healthz", pages::health::alive),
    open("/readyz", pages::health::ready),
    look("/metrics", pages::health::metrics),
    // for everybody
    open("/style.css", pages::style),
    open("/favicon.svg", pages::icon),
    open("/login", pages::login::form),
    Entry { method: "POST", path: "/login", kind: Kind::Open, handler: pages::login::enter },
    Entry { method: "POST", path: "/logout", kind: Kind::Open, handler: pages::login::leave },
    // pages
    look("/", pages::today::page),
    look("/events", pages::events::list),
    look("/events/{id}", pages::event::page),
    look("/events/{id}/body", pages::event::body),
    look("/events/{id}/replay", pages::event::preview),
    change("/events/{id}/replay", pages::event::replay),
    look("/ledger", pages::ledger::entries),
    look("/ledger/accounts", pages::accounts::list),
    look("/ledger/accounts/{id}", pages::accounts::one),
    look("/ledger/entries/{id}", pages::ledger::entry),
    look("/ledger/entries/{id}/reverse", pages::ledger::reversal),
    change("/ledger/entries/{id}/reverse", pages::ledger::reverse),
    look("/entities", pages::entities::list),
    look("/outbox", pages::outbox::list),
    look("/outbox/{id}", pages::outbox::one),
    change("/outbox/{id}/requeue", pages::outbox::requeue),
    change("/outbox/requeue", pages::outbox::requeue_dead),
    look("/dead", pages::dead::list),
    change("/dead/replay", pages::dead::replay_all),
    look("/settlement", pages::settlement::page),
    look("/settlement/runs/{id}", pages::settlement::run),
    look("/settlement/discrepancies/{id}", pages::settlement::one),
    change("/settlement/discrepancies/{id}/resolve", pages::settlement::resolve),
    change("/settlement/discrepancies/{id}/assign", pages::settlement::assign),
    change("/settlement/discrepancies/{id}/fetch", pages::settlement::fetch),
    look("/sources", pages::sources::page),
    look("/health", pages::health::page),
    change("/health/check", pages::health::check),
    look("/audit", pages::audit::list),
    // the API
    open("/api/v1/openapi.json", api::description),
    look("/api/v1/overview", api::overview),
    look("/api/v1/events", api::events),
    look("/api/v1/events/{id}", api::event),
    look("/api/v1/events/{id}/body", api::body),
    look("/api/v1/events/{id}/preview", api::preview),
    change("/api/v1/events/{id}/replay", api::replay),
    look("/api/v1/dead", api::dead),
    change("/api/v1/dead/replay", api::replay_dead),
    look("/api/v1/entries", api::entries),
    look("/api/v1/entries/{id}", api::entry),
    look("/api/v1/entries/{id}/reversal", api::reversal),
    change("/api/v1/entries/{id}/reverse", api::reverse),
    look("/api/v1/accounts", api::accounts),
    look("/api/v1/accounts/{id}", api::account),
    look("/api/v1/entities", api::entities),
    look("/api/v1/outbox", api::outbox),
    look("/api/v1/outbox/{id}", api::message),
    change("/api/v1/outbox/{id}/requeue", api::requeue),
    change("/api/v1/outbox/requeue", api::requeue_dead),
    look("/api/v1/trend", api::trend),
    look("/api/v1/runs", api::runs),
    look("/api/v1/runs/{id}", api::run),
    look("/api/v1/discrepancies", api::discrepancies),
    look("/api/v1/discrepancies/{id}", api::discrepancy),
    change("/api/v1/discrepancies/{id}/resolve", api::resolve),
    change("/api/v1/discrepancies/{id}/assign", api::assign),
    change("/api/v1/discrepancies/{id}/fetch", api::fetch),
    look("/api/v1/sources", api::sources),
    look("/api/v1/health", api::health),
    look("/api/v1/check", api::last_check),
    change("/api/v1/check", api::check),
    look("/api/v1/audit", api::audit),
];

/// The router.
pub(super) struct Routes(matchit::Router<Vec<&'static Entry>>);

impl Routes {
    pub(super) fn new() -> Routes {
        let mut paths: Vec<(&'static str, Vec<&'static Entry>)> = Vec::new();
        for entry in TABLE {
            match paths.iter_mut().find(|(path, _)| *path == entry.path) {
                Some((_, entries)) => entries.push(entry),
                None => paths.push((entry.path, vec![entry])),
            }
        }
        let mut router = matchit::Router::new();
        for (path, entries) in paths {
            router.insert(path, entries).expect("the table has no two paths that clash: a test reads it");
        }
        Routes(router)
    }

    /// The row for a request, and the part of its path that varies.
    pub(super) fn find<'h>(&self, head: &'h Head) -> Result<(&'static Entry, &'h str), Failure> {
        let path = head.path();
        let Ok(found) = self.0.at(path) else {
            return Err(Failure::absent(format!("page at {path}")));
        };
        let method = match &head.method {
            Method::Head => "GET",
            other => other.as_str(),
        };
        let arg = found.params.iter().next().map_or("", |(_, value)| value);
        match found.value.iter().find(|entry| entry.method == method) {
            Some(entry) => Ok((entry, arg)),
            None => {
                let mut allow: Vec<&str> = found.value.iter().map(|entry| entry.method).collect();
                if allow.contains(&"GET") {
                    allow.push("HEAD");
                }
                let mut failure = Failure::new(
                    405,
                    "method_not_allowed",
                    format!("{} is not how {path} is used", head.method.as_str()),
                );
                failure.allow = Some(allow.join(", "));
                Err(failure)
            }
        }
    }

    /// The methods and paths of the API, for the test that compares them with the description.
    #[cfg(test)]
    pub(super) fn of_the_api() -> Vec<(&'static str, &'static str)> {
        TABLE.iter().filter(|entry| entry.path.starts_with("/api/")).map(|entry| (entry.method, entry.path)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_path_is_found_and_every_change_is_a_post_for_operators() {
        Routes::new();
        for entry in TABLE {
            let login = ["/login", "/logout"].contains(&entry.path);
            assert_eq!(
                entry.kind == Kind::Change || (login && entry.method == "POST"),
                entry.method == "POST",
                "{}",
                entry.path
            );
        }
    }
}
