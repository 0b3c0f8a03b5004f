//! Asks a provider's API: for rows of settlement, for events, for reports made on demand, for one object or event.
//!
//! Everything that differs between providers stands in their files (`providers/pull.rs`). No ledger, no store, and no
//! clock but the one that renews tokens: the caller gives the window and gets lines.

mod fill;
mod http;
pub mod keys;
mod pages;
#[cfg(test)]
mod tests;

pub use fill::wrap;

use crate::event::Millis;
use crate::money::Currency;
use crate::providers::Recipe;
use crate::providers::pull::Gives;
use crate::providers::report::cells::{Names, Test};
use crate::providers::report::{ReportLine, SKIPPED_SHOWN};
use http::{Body, Call, Http};
use serde_json::Value;
use std::collections::BTreeMap;
use std::time::Duration;

/// Why a pull failed. What can be tried again has been; see [`PullError::later`].
#[derive(Debug, thiserror::Error)]
pub enum PullError {
    /// The provider says, by a time or a known message, that the window is not complete yet.
    #[error("not ready yet: {0}")]
    NotReady(String),
    /// Too many requests, also after all tries.
    #[error("too many requests: {message}")]
    Throttled {
        /// The provider's words.
        message: String,
    },
    /// A status of 5xx, also after all tries.
    #[error("the provider answered {status}: {message}")]
    Broken {
        /// The HTTP status.
        status: u16,
        /// The provider's words.
        message: String,
    },
    /// No connection, or one that broke off, also after all tries.
    #[error("no answer: {0}")]
    Network(String),
    /// The provider will not do it: the key, its rights, or a parameter.
    #[error("the provider refused ({status}): {message}; check the key, its rights and the source's settings")]
    Refused {
        /// The HTTP status.
        status: u16,
        /// The provider's words.
        message: String,
    },
    /// There is no such object.
    #[error("the provider does not have it: {message}")]
    NotThere {
        /// The provider's words.
        message: String,
    },
    /// An answer that is not what the provider's file says.
    #[error("{0}")]
    Answer(String),
    /// An item that the rules cannot read.
    #[error("item {item} on page {page}, {pointer:?}: {problem}")]
    Unreadable {
        /// Its number in the pull, from 1.
        item: u64,
        /// The page it was on, from 1.
        page: u64,
        /// Where in the item.
        pointer: String,
        /// What is wrong.
        problem: String,
    },
    /// The same page came twice: the list would never end, or rows would count twice.
    #[error("page {page} repeats an earlier page")]
    Repeats {
        /// The page, from 1.
        page: u64,
    },
    /// More pages than the provider's file allows.
    #[error("more than {most} pages: ask for a shorter window")]
    TooManyPages {
        /// The cap.
        most: u32,
    },
    /// The next page is said to be on another host, which must not get the key.
    #[error("the answer points to {url}, which is not on {base}")]
    ForeignUrl {
        /// Where it points.
        url: String,
        /// Where calls go.
        base: String,
    },
    /// The source lacks a setting that the provider's file needs.
    #[error("the source needs the setting {name:?} for this provider's API")]
    Setting {
        /// Its name.
        name: String,
    },
    /// The window is no window.
    #[error("the window cannot be asked for: {0}")]
    Window(String),
    /// The provider's file is wrong, or has no such list.
    #[error("{0}")]
    Recipe(String),
    /// The program stops.
    #[error("stopped")]
    Stopped,
    /// What was downloaded cannot be kept.
    #[error("the download cannot be written: {0}")]
    Write(String),
}

impl PullError {
    /// Whether the same pull may work later without anybody doing something: the run is deferred, not invalid.
    pub fn later(&self) -> bool {
        use PullError::*;
        matches!(self, NotReady(_) | Throttled { .. } | Broken { .. } | Network(_) | Stopped)
    }
}

/// Who asks, and where.
#[derive(Clone, Default)]
pub struct Access {
    /// The API's base, where it is not the provider's own.
    pub base: Option<String>,
    /// User, key id or client id, where the proof has two parts.
    pub user: Option<String>,
    /// The key, token or secret.
    pub key: String,
    /// Ask the provider's host for test mode.
    pub test_mode: bool,
    /// Placeholders that only this source knows (`location`, `shop`, `store`).
    pub settings: BTreeMap<String, String>,
    /// Another page size than the provider's file says.
    pub page_size: Option<u32>,
    /// The settled currency, where items do not say it.
    pub currency: Option<Currency>,
}

impl std::fmt::Debug for Access {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Access").field("base", &self.base).field("settings", &self.settings).finish_non_exhaustive()
    }
}

/// How often and how fast.
#[derive(Clone, Copy)]
pub struct Pace {
    /// Tries of one call, the first included.
    pub tries: u32,
    /// The bound of the first wait; it doubles with every try.
    pub wait_first: Duration,
    /// The longest wait; a provider that asks for more ends the pull as "later".
    pub wait_max: Duration,
    /// The longest a single call may take.
    pub call_timeout: Duration,
    /// Waits, and says whether to go on.
    pub wait: fn(Duration) -> bool,
}

impl Default for Pace {
    fn default() -> Self {
        Pace {
            tries: 6,
            wait_first: Duration::from_secs(1),
            wait_max: Duration::from_secs(120),
            call_timeout: Duration::from_secs(60),
            wait: |time| {
                std::thread::sleep(time);
                true
            },
        }
    }
}

/// What a pull passed over.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Pulled {
    /// Pages that came.
    pub pages: u64,
    /// Items on them (those beyond the window left out).
    pub items: u64,
    /// Lines or events handed out.
    pub given: u64,
    /// Calls, tries included.
    pub calls: u64,
    /// Items that are no movements: how many for each reason.
    pub skipped: BTreeMap<String, u64>,
    /// The first of them, (item, reason).
    pub skipped_first: Vec<(u64, String)>,
}

/// An event as its webhook would have brought it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fetched {
    /// The body.
    pub body: Value,
    /// It was put together from the object as it is today, not kept by the provider.
    pub rebuilt: bool,
}

/// The way to one provider's API for one source.
pub struct Client<'r> {
    recipe: &'r Recipe,
    http: Http,
    vars: fill::Vars,
    access: Access,
}

impl<'r> Client<'r> {
    /// Checks that the provider has an API and the source all settings for its address. Nothing is asked yet.
    pub fn new(recipe: &'r Recipe, access: Access, pace: Pace) -> Result<Client<'r>, PullError> {
        let api = recipe.api.as_ref().ok_or_else(|| {
            PullError::Recipe(format!("{} has no API that can be asked: use its report files", recipe.title))
        })?;
        let mut vars = fill::Vars(api.settings.clone());
        access.settings.iter().for_each(|(name, value)| vars.set(name, value));
        let http = Http::new(api, access.clone(), pace, &vars)?;
        Ok(Client { recipe, http, vars, access })
    }

    /// Pulls the list `[pull.<name>]` for `[from, to)`; every row goes to `on_line` at once.
    pub fn rows<E: From<PullError>>(
        &mut self,
        name: &str,
        (from, to): (Millis, Millis),
        on_line: &mut dyn FnMut(ReportLine) -> Result<(), E>,
    ) -> Result<Pulled, E> {
        self.expect(name, Gives::Rows)?;
        pages::rows(self, name, from, to, on_line)
    }

    /// Pulls a list of events for `[from, to)`; each goes to `on_event` as the body its webhook has.
    pub fn events<E: From<PullError>>(
        &mut self,
        name: &str,
        (from, to): (Millis, Millis),
        on_event: &mut dyn FnMut(Value) -> Result<(), E>,
    ) -> Result<Pulled, E> {
        let spec = self.expect(name, Gives::Events)?;
        pages::items(self, name, from, to, &mut |item, _, _| {
            on_event(match &spec.wrap {
                Some(template) => wrap(template, &item, "")?,
                None => item,
            })
        })
    }

    /// Orders the report `[pull.<name>]` for `[from, to)`, waits for it and writes it to `out`; gives the name of the
    /// `[report.…]` that it is.
    pub fn report(
        &mut self,
        name: &str,
        (from, to): (Millis, Millis),
        out: &mut dyn std::io::Write,
    ) -> Result<&'r str, PullError> {
        let spec = self.expect(name, Gives::Report)?;
        let Some(steps) = &spec.steps else { return Err(PullError::Recipe(format!("[pull.{name}] has no steps"))) };
        let mut vars = self.vars.clone();
        vars.window(from, to)?;
        let mut form = form_urlencoded::Serializer::new(String::new());
        for (key, value) in &steps.form {
            form.append_pair(key, &vars.fill(value)?);
        }
        let body = match &steps.body {
            Some(body) => Body::Json(vars.fill_json(body)?),
            None => Body::Form(form.finish()),
        };
        let create = Call { method: "POST".into(), body: Some(body), ..self.call(&steps.create, &vars)? };
        let order = self.http.json(&create)?;
        vars.set("id", text_at(&order.json, &steps.id)?);
        let poll = self.call(&steps.poll, &vars)?;
        let mut waited = 0;
        let ready = loop {
            let answer = self.http.json(&poll)?;
            let state = text_at(&answer.json, &steps.state)?;
            if steps.done.all().contains(&state) {
                break answer.json;
            }
            if steps.failed.all().contains(&state) {
                return Err(PullError::Answer(format!("the provider could not make the report: {state}")));
            }
            if waited >= steps.most_s {
                return Err(PullError::NotReady(format!("the report is still {state} after {waited} s")));
            }
            self.http.wait(Duration::from_secs(steps.every_s))?;
            waited += steps.every_s.max(1);
        };
        let holder = match &steps.link {
            Some(path) => self.http.json(&self.call(path, &vars)?)?.json,
            None => ready,
        };
        let url = text_at(&holder, &steps.url)?;
        let call = self.download_call(&url, steps)?;
        self.http.download(&call, out)?;
        Ok(&steps.report)
    }

    fn download_call(&self, url: &str, steps: &crate::providers::pull::Steps) -> Result<Call, PullError> {
        if let Ok(url) = fill::below(url, &self.http.declared, &self.http.base) {
            return Ok(Call { with_key: steps.url_auth, ..Call::get(url) });
        }
        let host = fill::origin(url).and_then(|o| o.strip_prefix("https://").map(str::to_owned)).unwrap_or_default();
        let listed = steps.hosts.iter().any(|allowed| match allowed.strip_prefix('*') {
            Some(tail) => host.ends_with(tail) && host.len() > tail.len(),
            None => host == *allowed,
        });
        if !listed {
            return Err(PullError::ForeignUrl { url: url.to_owned(), base: self.http.base.clone() });
        }
        Ok(Call { with_key: steps.url_auth, ..Call::get(url.to_owned()) })
    }

    /// Fetches what a report line or a movement names, as the event its webhook would have brought. `None`: the
    /// provider's file says no way for this kind and reference, or the object has not come so far (`only`).
    pub fn object(&mut self, kind: &str, reference: &str, parent: Option<&str>) -> Result<Option<Fetched>, PullError> {
        let fits = |prefix: &String| reference.starts_with(prefix.as_str());
        let way =
            self.recipe.fetch_object.iter().find(|way| {
                way.kinds.iter().any(|k| k == kind) && (way.prefix.is_empty() || way.prefix.iter().any(fits))
            });
        let Some(way) = way else { return Ok(None) };
        let folder = way.prefix.iter().find(|prefix| prefix.ends_with('/') && fits(prefix));
        let id = folder.and_then(|folder| reference.strip_prefix(folder.as_str())).unwrap_or(reference);
        let mut vars = self.vars.clone();
        vars.set("id", id);
        if let Some(parent) = parent {
            vars.set("parent", parent);
        } else if way.path.contains("{parent}") {
            return Ok(None);
        }
        let answer = match self.http.json(&self.call(&way.path, &vars)?) {
            Err(PullError::NotThere { .. }) => return Ok(None),
            other => other?.json,
        };
        let Some(object) = answer.pointer(&way.at) else { return Ok(None) };
        let only = Test::bind(&way.only, &Names::Pointers).map_err(PullError::Recipe)?;
        if !way.only.is_empty() && !only.holds_for(object) {
            return Ok(None);
        }
        Ok(Some(Fetched { body: wrap(&way.body, object, id)?, rebuilt: !way.kept }))
    }

    /// Fetches an event by its id. `None`: the provider keeps none, or not this one.
    pub fn event(&mut self, id: &str) -> Result<Option<Value>, PullError> {
        let Some(way) = &self.recipe.fetch_event else { return Ok(None) };
        let mut vars = self.vars.clone();
        vars.set("id", id);
        match self.http.json(&self.call(&way.path, &vars)?) {
            Err(PullError::NotThere { .. }) => Ok(None),
            other => Ok(other?.json.pointer(&way.at).cloned()),
        }
    }

    /// Gets what an event points to: a path below the API's base, or a URL on it.
    pub fn get(&mut self, path_or_url: &str) -> Result<Value, PullError> {
        let url = match path_or_url.strip_prefix('/') {
            Some(_) => format!("{}{path_or_url}", self.http.base.trim_end_matches('/')),
            None => fill::below(path_or_url, &self.http.declared, &self.http.base)?,
        };
        Ok(self.http.json(&Call::get(url))?.json)
    }

    /// Downloads a file whose address on the API's own host the provider told (Adyen's `REPORT_AVAILABLE`); bytes.
    pub fn file(&mut self, url: &str, out: &mut dyn std::io::Write) -> Result<u64, PullError> {
        let url = fill::below(url, &self.http.declared, &self.http.base)?;
        self.http.download(&Call::get(url), out)
    }

    fn call(&self, path: &str, vars: &fill::Vars) -> Result<Call, PullError> {
        Ok(Call::get(format!("{}{}", self.http.base.trim_end_matches('/'), vars.fill_path(path)?)))
    }

    fn expect(&self, name: &str, gives: Gives) -> Result<&'r crate::providers::pull::PullSpec, PullError> {
        let spec = self.recipe.pull.get(name).ok_or_else(|| {
            let known: Vec<&str> = self.recipe.pull.keys().map(String::as_str).collect();
            PullError::Recipe(format!("{} has no list {name:?}; it has: {}", self.recipe.title, known.join(", ")))
        })?;
        if spec.gives != gives {
            return Err(PullError::Recipe(format!("[pull.{name}] does not give {gives:?}")));
        }
        Ok(spec)
    }
}

impl Pulled {
    fn skip(&mut self, item: u64, why: String) {
        if self.skipped_first.len() < SKIPPED_SHOWN {
            self.skipped_first.push((item, why.clone()));
        }
        *self.skipped.entry(why).or_insert(0) += 1;
    }
}

fn text_at(value: &Value, pointer: &str) -> Result<String, PullError> {
    match value.pointer(pointer) {
        Some(Value::String(text)) if !text.is_empty() => Ok(text.clone()),
        Some(Value::Number(number)) => Ok(number.to_string()),
        _ => Err(PullError::Answer(format!("the answer has nothing at {pointer}"))),
    }
}
