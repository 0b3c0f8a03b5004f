//! A list and its pages: seven ways to the next one, windows in parts, lists of lists, and when it is over.

use super::fill::{Vars, below, with_query};
use super::http::{Answer, Body, Call};
use super::{Client, PullError, Pulled};
use crate::event::Millis;
use crate::providers::pull::{Pages, PullSpec, Window};
use crate::providers::report::cells::{Cells, Names};
use crate::providers::report::row::Row;
use crate::providers::report::{ReadOptions, ReportLine, rfc3339_millis};
use serde_json::Value;
use std::collections::HashSet;
use std::hash::{BuildHasher, RandomState};

/// What is called with every item: the item, its number, its page.
type OnItem<'a, E> = &'a mut dyn FnMut(Value, u64, u64) -> Result<(), E>;

pub(super) fn rows<E: From<PullError>>(
    client: &mut Client,
    name: &str,
    from: Millis,
    to: Millis,
    on_line: &mut dyn FnMut(ReportLine) -> Result<(), E>,
) -> Result<Pulled, E> {
    let spec = spec(client, name)?;
    let rules = spec.row.as_ref().ok_or_else(|| PullError::Recipe(format!("[pull.{name}] has no rules for rows")))?;
    let options = ReadOptions { currency: client.access.currency, zone: None };
    let mut row = Row::bind(rules, &Names::Pointers, &options).map_err(PullError::Recipe)?;
    let mut skipped = Pulled::default();
    let mut pulled = items(client, name, from, to, &mut |item, number, page| {
        let outcome = row.read(Cells::Json(&item), number, page).map_err(|fault| PullError::Unreadable {
            item: number,
            page,
            pointer: fault.column.unwrap_or_default(),
            problem: fault.problem,
        })?;
        match outcome {
            Err(why) => {
                skipped.skip(number, why);
                Ok(())
            }
            Ok((first, more)) => std::iter::once(first).chain(more).try_for_each(|line| {
                skipped.given += 1;
                on_line(line)
            }),
        }
    })?;
    (pulled.given, pulled.skipped, pulled.skipped_first) = (skipped.given, skipped.skipped, skipped.skipped_first);
    Ok(pulled)
}

fn spec<'r>(client: &Client<'r>, name: &str) -> Result<&'r PullSpec, PullError> {
    client.recipe.pull.get(name).ok_or_else(|| PullError::Recipe(format!("there is no [pull.{name}]")))
}

/// Every item of a list within the window.
pub(super) fn items<E: From<PullError>>(
    client: &mut Client,
    name: &str,
    from: Millis,
    to: Millis,
    on_item: OnItem<E>,
) -> Result<Pulled, E> {
    let spec = spec(client, name)?;
    let before = client.http.tries;
    let mut pulled = Pulled::default();
    let mut parents = vec![None];
    if let Some(each) = &spec.for_each {
        parents.clear();
        let ids = &mut |item: Value, _, _| {
            parents.push(Some(super::text_at(&item, &each.id)?));
            Ok::<(), PullError>(())
        };
        pulled.pages += items(client, &each.pull, from, to, ids)?.pages;
    }
    for (from, to, day) in parts(spec, from, to)? {
        for parent in &parents {
            let mut vars = client.vars.clone();
            vars.window(from, to)?;
            if let Some(day) = day {
                vars.set("day.year", format!("{:04}", day.year()));
                vars.set("day.month", format!("{:02}", day.month()));
                vars.set("day.day", format!("{:02}", day.day()));
            }
            if let Some(parent) = parent {
                vars.set("parent", parent);
            }
            list(client, spec, &vars, (from, to), &mut pulled, on_item)?;
        }
    }
    pulled.calls = client.http.tries - before;
    Ok(pulled)
}

type Part = (Millis, Millis, Option<jiff::civil::Date>);

/// The window in the parts that the list can be asked for.
fn parts(spec: &PullSpec, from: Millis, to: Millis) -> Result<Vec<Part>, PullError> {
    if from >= to {
        return Err(PullError::Window("it ends before it begins".into()));
    }
    let wrong = |e: jiff::Error| PullError::Window(e.to_string());
    match &spec.window {
        Window::Query => Ok(vec![(from, to, None)]),
        Window::MostDays(days) => {
            let step = i64::from((*days).max(1)) * 86_400_000;
            let starts = (0..).map(|n| from + n * step).take_while(|start| *start < to);
            Ok(starts.map(|start| (start, to.min(start + step), None)).collect())
        }
        Window::Days(zone) => {
            let zone = jiff::tz::TimeZone::get(zone).map_err(wrong)?;
            let day = |at: Millis| Ok(zone.to_datetime(jiff::Timestamp::from_millisecond(at).map_err(wrong)?).date());
            let (mut date, last) = (day(from)?, day(to - 1)?);
            let mut parts = Vec::new();
            while date <= last {
                parts.push((from, to, Some(date)));
                date = date.tomorrow().map_err(wrong)?;
            }
            Ok(parts)
        }
    }
}

/// What the next page is asked with.
struct Asked {
    path: String,
    query: Vec<(String, String)>,
    body: Option<Value>,
    url: Option<String>,
}

impl Asked {
    fn set(&mut self, name: &str, value: String) {
        match self.query.iter_mut().find(|(known, _)| known == name) {
            Some((_, old)) => *old = value,
            None => self.query.push((name.to_owned(), value)),
        }
    }

    fn call(&self, spec: &PullSpec, base: &str) -> Call {
        let url = match &self.url {
            Some(url) => url.clone(),
            None => with_query(&format!("{}{}", base.trim_end_matches('/'), self.path), &self.query),
        };
        Call { method: spec.method.clone(), url, body: self.body.clone().map(Body::Json), with_key: true }
    }
}

fn list<E: From<PullError>>(
    client: &mut Client,
    spec: &PullSpec,
    vars: &Vars,
    (from, to): (Millis, Millis),
    pulled: &mut Pulled,
    on_item: OnItem<E>,
) -> Result<(), E> {
    let mut asked = Asked { path: vars.fill_path(&spec.path)?, query: Vec::new(), body: None, url: None };
    for (name, value) in &spec.query {
        asked.query.push((name.clone(), vars.fill(value)?));
    }
    let size = spec.page_size.as_ref().map(|p| client.access.page_size.map_or(p.size, |size| size.min(p.size)));
    if let (Some(page), Some(size)) = (&spec.page_size, size) {
        asked.set(&page.param, size.to_string());
    }
    if let Some(body) = &spec.body {
        asked.body = Some(vars.fill_json(body)?);
    }
    match &spec.pages {
        Pages::Number { param, .. } => asked.set(param, "1".into()),
        Pages::Offset { param } => asked.set(param, "0".into()),
        _ => {}
    }
    let (mut seen, hasher) = (HashSet::new(), RandomState::new());
    let mut passed = 0u64;
    for page in 1u64.. {
        if page > u64::from(spec.pages_max) {
            return Err(PullError::TooManyPages { most: spec.pages_max }.into());
        }
        let mut answer = client.http.json(&asked.call(spec, &client.http.base))?;
        pulled.pages += 1;
        is_ready(spec, &answer.json, to)?;
        let list = match answer.json.pointer_mut(&spec.items).map(Value::take) {
            Some(Value::Array(list)) => list,
            None | Some(Value::Null) => Vec::new(),
            Some(_) => return Err(PullError::Answer(format!("there is no list at {}", spec.items)).into()),
        };
        let whole = Value::Array(list);
        let mark = hasher.hash_one(whole.to_string());
        let Value::Array(list) = whole else { return Ok(()) };
        if !list.is_empty() && !seen.insert(mark) {
            return Err(PullError::Repeats { page }.into());
        }
        let (count, last) = (list.len() as u64, list.last().cloned());
        for item in list {
            let item = match spec.item_root.as_str() {
                "" => item,
                root => item.pointer(root).cloned().unwrap_or(Value::Null),
            };
            match place(spec, &item, from, to)? {
                Place::Older => return Ok(()),
                Place::Younger => continue,
                Place::Inside => {}
            }
            pulled.items += 1;
            pulled.given += 1;
            on_item(item, pulled.items, pulled.pages)?;
        }
        passed += count;
        let full = size.is_none_or(|size| count >= u64::from(size));
        if !advance(client, spec, &mut asked, &answer, last.as_ref(), (page, passed, full))? {
            return Ok(());
        }
        if count == 0 && matches!(spec.pages, Pages::LastItem { .. } | Pages::Offset { .. }) {
            return Err(PullError::Answer("the answer says there is more and holds nothing".into()).into());
        }
    }
    Ok(())
}

fn is_ready(spec: &PullSpec, answer: &Value, to: Millis) -> Result<(), PullError> {
    let Some(at) = &spec.ready else { return Ok(()) };
    let text = super::text_at(answer, at)?;
    let until = rfc3339_millis(&text).ok_or_else(|| PullError::Answer(format!("{text:?} at {at} is no time")))?;
    if until < to {
        return Err(PullError::NotReady(format!("complete until {text} only")));
    }
    Ok(())
}

enum Place {
    Inside,
    Younger,
    Older,
}

fn place(spec: &PullSpec, item: &Value, from: Millis, to: Millis) -> Result<Place, PullError> {
    let Some(at) = &spec.stop_when_older else { return Ok(Place::Inside) };
    let text = super::text_at(item, at)?;
    let time = rfc3339_millis(&text).ok_or_else(|| PullError::Answer(format!("{text:?} at {at} is no time")))?;
    Ok(match time {
        time if time < from => Place::Older,
        time if time >= to => Place::Younger,
        _ => Place::Inside,
    })
}

/// Prepares the next page; false: this was the last one.
fn advance(
    client: &Client,
    spec: &PullSpec,
    asked: &mut Asked,
    answer: &Answer,
    last: Option<&Value>,
    (page, passed, full): (u64, u64, bool),
) -> Result<bool, PullError> {
    let json = &answer.json;
    let yes = |at: &String| json.pointer(at).and_then(Value::as_bool).unwrap_or(false);
    let text = |at: &String| super::text_at(json, at).ok();
    match &spec.pages {
        Pages::One => Ok(false),
        Pages::LastItem { param, id, more } => {
            let Some(last) = last.filter(|_| yes(more)) else { return Ok(yes(more)) };
            asked.set(param, super::text_at(last, id)?);
            Ok(true)
        }
        Pages::NextUrl { at, more, among_links } => {
            let next = match json.pointer(at) {
                Some(Value::Array(links)) if *among_links => links.iter().find(|link| link["rel"] == "next"),
                _ => None,
            };
            let url = if *among_links { next.and_then(|n| super::text_at(n, "/href").ok()) } else { text(at) };
            let Some(url) = url.filter(|_| more.as_ref().is_none_or(yes)) else { return Ok(false) };
            asked.url = Some(below(&url, &client.http.declared, &client.http.base)?);
            Ok(true)
        }
        Pages::LinkHeader => match answer.link.as_deref().and_then(next_link) {
            None => Ok(false),
            Some(url) => {
                asked.url = Some(below(url, &client.http.declared, &client.http.base)?);
                Ok(true)
            }
        },
        Pages::Cursor { param, at } => match text(at) {
            None => Ok(false),
            Some(cursor) => {
                asked.set(param, cursor);
                Ok(true)
            }
        },
        Pages::Number { param, total } => {
            let total = super::text_at(json, total)?;
            let total: u64 =
                total.parse().map_err(|_| PullError::Answer(format!("{total:?} is no number of pages")))?;
            asked.set(param, (page + 1).to_string());
            Ok(page < total)
        }
        Pages::Offset { param } => {
            asked.set(param, passed.to_string());
            Ok(full)
        }
        Pages::BodyCursor { at, more, set } => {
            let Some(cursor) = text(at).filter(|_| more.as_ref().is_none_or(yes)) else { return Ok(false) };
            put(asked.body.get_or_insert(Value::Null), set, cursor)?;
            Ok(true)
        }
    }
}

/// Puts a text at a pointer of a body; the last key may be new.
fn put(body: &mut Value, pointer: &str, text: String) -> Result<(), PullError> {
    let (parent, key) = pointer.rsplit_once('/').unwrap_or(("", pointer));
    match body.pointer_mut(parent) {
        Some(Value::Object(map)) => {
            map.insert(key.to_owned(), Value::String(text));
            Ok(())
        }
        _ => Err(PullError::Recipe(format!("the body has no object for {pointer}"))),
    }
}

/// The URL of `rel="next"` in a `Link` header.
fn next_link(header: &str) -> Option<&str> {
    header.split(",").find_map(|link| {
        let (url, rest) = link.trim().strip_prefix('<')?.split_once('>')?;
        let next = rest.split(';').any(|p| matches!(p.trim(), "rel=\"next\"" | "rel=next"));
        next.then_some(url)
    })
}
