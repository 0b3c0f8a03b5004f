//! Sources: who sends, when they were last heard, what was refused, which secrets are live.

use super::event_link;
use crate::clock::{as_rfc3339_or_null, wall};
use crate::config::SecretConfig;
use crate::engine::silence_of;
use crate::event::Millis;
use crate::operator::answer::{Failure, Outcome};
use crate::operator::ask::Ask;
use crate::operator::layout::{code, duration, empty, instant, number, since, state, table};
use maud::{Markup, html};
use serde::Serialize;

/// A source with its pulse: the shape of `/api/v1/sources`.
#[derive(Clone, Debug, Serialize)]
pub(in crate::operator) struct SourceView {
    pub name: String,
    pub provider: String,
    pub title: String,
    pub tenant: String,
    pub mode: Option<&'static str>,
    /// The path that webhooks go to.
    pub path: String,
    pub last_event: Option<i64>,
    #[serde(serialize_with = "as_rfc3339_or_null")]
    pub last_at: Option<Millis>,
    /// Quieter than its own history, or than its configuration allows: an alert.
    pub quiet: bool,
    pub secrets: Vec<SecretView>,
    pub refused: Vec<RefusedView>,
    #[serde(skip)]
    pub longest_pause: Option<Millis>,
}

/// A secret by name; never what it is.
#[derive(Clone, Debug, Serialize)]
pub(in crate::operator) struct SecretView {
    pub name: String,
    /// RFC 3339, as configured.
    pub ends: Option<String>,
    pub ended: bool,
}

/// Signatures refused since the start, for one reason.
#[derive(Clone, Debug, Serialize)]
pub(in crate::operator) struct RefusedView {
    pub reason: &'static str,
    pub count: u64,
    #[serde(serialize_with = "as_rfc3339_or_null")]
    pub last_at: Option<Millis>,
    pub last_from: String,
}

/// All sources by name, and how far back their last events were looked for.
pub(in crate::operator) fn views(ask: &Ask) -> Result<(Vec<SourceView>, Option<Millis>), Failure> {
    let shared = ask.app.shared();
    shared.heard.look(&shared.store)?;
    let refusals = shared.counts.refusals.lock().map(|found| found.clone()).unwrap_or_default();
    let now = wall();
    let mut views: Vec<SourceView> = shared
        .sources
        .values()
        .map(|source| {
            let mut heard = shared.heard.of(&source.name);
            let times = heard.times.make_contiguous();
            let longest_pause = times.windows(2).map(|pair| pair[0] - pair[1]).max();
            let quiet = silence_of(times, source, now).is_some();
            SourceView {
                name: source.name.clone(),
                provider: source.recipe.provider.clone(),
                title: source.recipe.title.clone(),
                tenant: source.tenant.clone(),
                mode: source.mode.map(|mode| mode.as_str()),
                path: format!("/webhooks/{}", source.name),
                last_event: heard.last.map(|(id, _)| id),
                last_at: heard.last.map(|(_, at)| at),
                quiet,
                longest_pause,
                secrets: secrets(ask, &source.name, now),
                refused: refusals
                    .iter()
                    .filter(|((name, _), _)| *name == source.name)
                    .map(|((_, reason), refused)| RefusedView {
                        reason,
                        count: refused.count,
                        last_at: Some(refused.last),
                        last_from: refused.from.to_string(),
                    })
                    .collect(),
            }
        })
        .collect();
    views.sort_unstable_by(|a, b| a.name.cmp(&b.name));
    Ok((views, shared.heard.back_to()))
}

fn secrets(ask: &Ask, source: &str, now: Millis) -> Vec<SecretView> {
    let config = ask.app.config.sources.iter().find(|config| config.name.get_ref() == source);
    let named = config.into_iter().flat_map(|config| &config.secrets).map(|secret| match secret.get_ref() {
        SecretConfig::Plain(place) => (place.clone(), None),
        SecretConfig::Given { name, .. } => (name.clone(), None),
        SecretConfig::Named { name, ends, .. } => (name.clone(), ends.clone()),
    });
    named
        .map(|(name, ends)| {
            let end = ends.as_ref().and_then(|text| text.parse::<jiff::Timestamp>().ok());
            SecretView { name, ended: end.is_some_and(|end| end.as_millisecond() <= now), ends }
        })
        .collect()
}

/// When a source was last heard, in words.
pub(super) fn heard(view: &SourceView, back_to: Option<Millis>) -> Markup {
    html! {
        @match (view.last_at, back_to) {
            (Some(at), _) => {
                (since(at))
                @if view.quiet { " " (state("quiet")) }
            },
            (None, Some(back_to)) => { "not since " (instant(back_to)) },
            (None, None) => "never",
        }
    }
}

/// The page.
pub(in crate::operator) fn page(ask: &Ask) -> Outcome {
    ask.only(&[])?;
    let (views, back_to) = views(ask)?;
    let quiet = views.iter().filter(|view| view.quiet).count();
    let refused: u64 = views.iter().flat_map(|view| &view.refused).map(|r| r.count).sum();
    let started = ask.app.started_at;
    let content = html! {
        @if views.is_empty() {
            (empty("No source is configured.", html! { p { "A source binds a path to a provider, a tenant and its secrets. Make a configuration that works:" } pre { "postonce init stripe" } }))
        } @else {
            p.answer {
                @match quiet { 0 => "Every source is as lively as usual", 1 => "1 source is quieter than usual", n => { (n) " sources are quieter than usual" } }
                @if refused > 0 { "; " (number(refused as i64)) @if refused == 1 { " signature was refused" } @else { " signatures were refused" } " since " (instant(started)) }
                "."
            }
        }
        @for view in &views {
            section {
                h2 id=(view.name) { (view.name) }
                dl.facts {
                    dt { "Provider" } dd { (view.title) }
                    dt { "Tenant" } dd { (view.tenant) ", " (view.mode.map_or("live and test in books of their own".to_owned(), |mode| format!("{mode} money only"))) }
                    dt { "Webhooks go to" } dd { (code(&format!("{}{}", ask.app.config.public_url.as_deref().unwrap_or_default().trim_end_matches('/'), view.path))) }
                    dt { "Last event" } dd {
                        (heard(view, back_to)) @if let Some(id) = view.last_event { ", event " (event_link(id)) }
                        @if let Some(pause) = view.longest_pause { span.soft { " (longest recent pause: " (duration(pause)) ")" } }
                    }
                    dt { "Secrets" } dd {
                        @if view.secrets.is_empty() { "none" }
                        @for (at, secret) in view.secrets.iter().enumerate() {
                            @if at > 0 { ", " }
                            (code(&secret.name))
                            @match (&secret.ends, secret.ended) {
                                (Some(ends), true) => { " " (state("refused")) " ended " (ends) },
                                (Some(ends), false) => { " until " (ends) },
                                _ => {}
                            }
                        }
                    }
                }
                @if view.refused.is_empty() { p.soft { "No signature was refused since " (instant(started)) "." } }
                @else { (refusals(view)) }
            }
        }
    };
    Ok(crate::operator::layout::page(
        ask,
        "Sources",
        "/sources",
        "Who sends, on which path, and how we know that it is them.",
        content,
    ))
}

fn refusals(view: &SourceView) -> Markup {
    let rows = view
        .refused
        .iter()
        .map(|refused| {
            vec![
                html! { (refused.reason) span.soft { (explain(refused.reason)) } },
                html! { (number(refused.count as i64)) },
                html! { @if let Some(at) = refused.last_at { (instant(at)) } },
                code(&refused.last_from),
            ]
        })
        .collect();
    table("Refused signatures", &["Reason", "#How often", "Last", "From"], rows)
}

/// What is usually behind a reason.
fn explain(reason: &str) -> &'static str {
    match reason {
        "no_secret_matches" => "mostly the secret of another endpoint, or a rotated one",
        "missing_header" => "somebody else than the provider, or a proxy that drops headers",
        "too_old" => "a late replay, or this machine's clock is ahead",
        "in_the_future" => "this machine's clock is behind",
        _ => "",
    }
}
