//! Where the texts of a row come from: columns, JSON pointers, templates of both, and conditions on them.
//!
//! Names are bound once to a header or to pointers; a name that the file lacks is an error then, not an empty text later.

use super::rules::{Condition, TextRule};
use serde_json::Value;
use std::borrow::Cow;
use std::collections::HashMap;

/// One row.
#[derive(Clone, Copy)]
pub(crate) enum Cells<'a> {
    /// A record of a delimited file.
    Table(&'a csv::StringRecord),
    /// An object of a JSON file or an API page.
    Json(&'a Value),
}

#[derive(Debug, Clone)]
pub(super) enum Field {
    Column(usize),
    Absent,
    Pointer(String),
    Each(Vec<String>),
    Kind,
    Sign,
}

/// What a name in a rule means for the file at hand.
pub(crate) enum Names<'a> {
    /// Column names (after the report's own list of other names) to their places.
    Columns { places: &'a HashMap<String, usize>, optional: &'a [String] },
    /// Names are JSON pointers.
    Pointers,
}

impl Names<'_> {
    pub(super) fn field(&self, name: &str) -> Result<Field, String> {
        match (name, self) {
            (":kind", _) => Ok(Field::Kind),
            (":sign", _) => Ok(Field::Sign),
            (_, Names::Columns { places, optional }) => match places.get(name) {
                Some(place) => Ok(Field::Column(*place)),
                None if optional.iter().any(|o| o == name) => Ok(Field::Absent),
                None => Err(format!("the header has no column {name:?}")),
            },
            (pointer, Names::Pointers) if pointer.starts_with('/') => Ok(if pointer.contains("/*") {
                Field::Each(pointer[1..].split('/').map(str::to_owned).collect())
            } else {
                Field::Pointer(pointer.to_owned())
            }),
            (other, Names::Pointers) => Err(format!("{other:?} is no JSON pointer: it must begin with `/`")),
        }
    }
}

/// What is known of the row besides its cells.
#[derive(Clone, Copy, Default)]
pub(super) struct Found<'k> {
    pub(super) kind: &'k str,
    pub(super) negative: bool,
}

fn json_text(value: &Value) -> Option<Cow<'_, str>> {
    match value {
        Value::String(text) if !text.is_empty() => Some(Cow::Borrowed(text)),
        Value::Number(number) => Some(Cow::Owned(number.to_string())),
        Value::Bool(yes) => Some(Cow::Borrowed(if *yes { "true" } else { "false" })),
        _ => None,
    }
}

impl<'a> Cells<'a> {
    pub(super) fn get(&self, field: &Field, found: Found<'a>) -> Option<Cow<'a, str>> {
        match (field, self) {
            (Field::Column(at), Cells::Table(record)) => {
                let text = record.get(*at)?;
                let padded = |b: Option<&u8>| b.is_none_or(|b| b.is_ascii_whitespace() || !b.is_ascii());
                let bytes = text.as_bytes();
                let text = if padded(bytes.first()) || padded(bytes.last()) { text.trim() } else { text };
                (!text.is_empty()).then_some(Cow::Borrowed(text))
            }
            (Field::Pointer(pointer), Cells::Json(value)) => value.pointer(pointer).and_then(json_text),
            (Field::Kind, _) => Some(Cow::Borrowed(found.kind)),
            (Field::Sign, _) => Some(Cow::Borrowed(if found.negative { "-" } else { "+" })),
            _ => None,
        }
    }

    /// All values of a field: one, or one for each element where the pointer has `*`.
    pub(super) fn each(
        &self,
        field: &Field,
        visit: &mut dyn FnMut(Cow<'a, str>) -> Result<(), String>,
    ) -> Result<(), String> {
        match (field, self) {
            (Field::Each(steps), Cells::Json(value)) => walk(value, steps, visit),
            _ => self.get(field, Found::default()).map_or(Ok(()), visit),
        }
    }
}

fn walk<'a>(
    value: &'a Value,
    steps: &[String],
    visit: &mut dyn FnMut(Cow<'a, str>) -> Result<(), String>,
) -> Result<(), String> {
    match steps.split_first() {
        None => json_text(value).map_or(Ok(()), visit),
        Some((star, rest)) if star == "*" => match value {
            Value::Array(items) => items.iter().try_for_each(|item| walk(item, rest, visit)),
            _ => Ok(()),
        },
        Some((key, rest)) => match value.get(key.as_str()) {
            Some(inner) => walk(inner, rest, visit),
            None => Ok(()),
        },
    }
}

/// A name or a template with names in braces.
#[derive(Debug, Clone)]
pub(crate) struct Template {
    text: String,
    parts: Vec<Part>,
}

#[derive(Debug, Clone)]
enum Part {
    Literal(String),
    Field(Field),
}

impl Template {
    pub(crate) fn bind(text: &str, names: &Names) -> Result<Template, String> {
        let mut parts = Vec::new();
        if !text.contains('{') {
            if !text.is_empty() {
                parts.push(Part::Field(names.field(text)?));
            }
        } else {
            Template::bind_mixed(text, names, &mut parts)?;
        }
        Ok(Template { text: text.to_owned(), parts })
    }

    /// A text with optional names in braces; without braces it is only text.
    pub(crate) fn bind_text(text: &str, names: &Names) -> Result<Template, String> {
        let mut parts = Vec::new();
        Template::bind_mixed(text, names, &mut parts)?;
        Ok(Template { text: text.to_owned(), parts })
    }

    fn bind_mixed(text: &str, names: &Names, parts: &mut Vec<Part>) -> Result<(), String> {
        let mut rest = text;
        while let Some((literal, tail)) = rest.split_once('{') {
            if !literal.is_empty() {
                parts.push(Part::Literal(literal.to_owned()));
            }
            let (name, tail) = tail.split_once('}').ok_or_else(|| format!("{text:?} has a brace without its end"))?;
            parts.push(Part::Field(names.field(name)?));
            rest = tail;
        }
        if !rest.is_empty() {
            parts.push(Part::Literal(rest.to_owned()));
        }
        Ok(())
    }

    pub(super) fn get<'a>(&self, cells: Cells<'a>, found: Found<'a>) -> Option<Cow<'a, str>> {
        if let [Part::Field(field)] = self.parts.as_slice() {
            return cells.get(field, found);
        }
        let mut out = String::new();
        for part in &self.parts {
            match part {
                Part::Literal(text) => out.push_str(text),
                Part::Field(field) => out.push_str(&cells.get(field, found)?),
            }
        }
        (!out.is_empty()).then_some(Cow::Owned(out))
    }
}

#[derive(Debug, Clone)]
pub(super) struct Text {
    alternatives: Vec<Template>,
    trim: String,
    after: String,
}

impl Text {
    pub(super) fn bind(rule: &TextRule, names: &Names) -> Result<Text, String> {
        let (from, trim, after) = match rule {
            TextRule::Plain(from) => (from, String::new(), String::new()),
            TextRule::Part { from, trim, after } => (from, trim.clone(), after.clone()),
        };
        let alternatives = from.all().iter().map(|t| Template::bind(t, names)).collect::<Result<_, _>>()?;
        Ok(Text { alternatives, trim, after })
    }

    pub(super) fn get<'a>(&self, cells: Cells<'a>, found: Found<'a>) -> Option<Cow<'a, str>> {
        let text = self.alternatives.iter().find_map(|t| t.get(cells, found))?;
        if self.trim.is_empty() && self.after.is_empty() {
            return Some(text);
        }
        let part = if self.after.is_empty() { &*text } else { text.rsplit_once(&self.after)?.1 };
        let part = part.trim_matches(|c| self.trim.contains(c));
        (!part.is_empty()).then(|| Cow::Owned(part.to_owned()))
    }

    pub(super) fn column(&self) -> &str {
        self.alternatives.first().map_or("", |t| &t.text)
    }
}

/// A bound condition.
#[derive(Debug, Clone, Default)]
pub(crate) struct Test {
    all: Vec<(Field, Vec<Pattern>)>,
}

#[derive(Debug, Clone)]
enum Pattern {
    Is(String),
    Begins(String),
    IsNot(String),
    Anything,
    Nothing,
}

impl Test {
    pub(crate) fn bind(condition: &Condition, names: &Names) -> Result<Test, String> {
        let mut all = Vec::new();
        for (name, patterns) in condition {
            let patterns = patterns.all().iter().map(|text| match text.as_str() {
                "" => Pattern::Nothing,
                "*" => Pattern::Anything,
                t if t.starts_with('!') => Pattern::IsNot(t[1..].to_owned()),
                t if t.ends_with('*') => Pattern::Begins(t[..t.len() - 1].to_owned()),
                t => Pattern::Is(t.to_owned()),
            });
            all.push((names.field(name)?, patterns.collect()));
        }
        Ok(Test { all })
    }

    /// Nothing is asked: it holds for every row.
    pub(super) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// A condition on a JSON answer as a whole, not on a row.
    pub(crate) fn holds_for(&self, value: &Value) -> bool {
        !self.all.is_empty() && self.holds(Cells::Json(value), Found::default())
    }

    pub(super) fn holds<'a>(&self, cells: Cells<'a>, found: Found<'a>) -> bool {
        self.all.iter().all(|(field, patterns)| {
            let value = cells.get(field, found);
            let value = value.as_deref();
            patterns.iter().any(|pattern| match pattern {
                Pattern::Is(text) => value == Some(text),
                Pattern::Begins(text) => value.is_some_and(|v| v.starts_with(text.as_str())),
                Pattern::IsNot(text) => value.is_some_and(|v| v != text),
                Pattern::Anything => value.is_some(),
                Pattern::Nothing => value.is_none(),
            })
        })
    }
}
