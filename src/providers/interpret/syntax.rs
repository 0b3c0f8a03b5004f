//! How expressions, pointers, conditions, amounts and times are written in a provider's file.
//!
//! Each refusal says what would be right; the TOML reader adds the line. Nothing is evaluated here.

use super::grammar::{
    AmountRule, Clock, Condition, Exactness, Expr, Number, Place, Pointer, Template, TemplatePart, Test, TimeRule,
    TypePattern, Unit,
};
use crate::providers::body::BodyKind;
use serde::de::value::{MapAccessDeserializer, StrDeserializer};
use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;

/// One or several, written alone or as an array.
#[derive(Debug, Clone)]
pub struct Vec1<T>(pub Vec<T>);

impl<T> Default for Vec1<T> {
    fn default() -> Self {
        Vec1(Vec::new())
    }
}

impl<T> std::ops::Deref for Vec1<T> {
    type Target = Vec<T>;
    fn deref(&self) -> &Vec<T> {
        &self.0
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Vec1<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct V<T>(PhantomData<T>);
        impl<'de, T: Deserialize<'de>> Visitor<'de> for V<T> {
            type Value = Vec1<T>;
            fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
                f.write_str("one value or an array of them")
            }
            fn visit_str<E: Error>(self, text: &str) -> Result<Vec1<T>, E> {
                T::deserialize(StrDeserializer::new(text)).map(|one| Vec1(vec![one]))
            }
            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Vec1<T>, A::Error> {
                T::deserialize(MapAccessDeserializer::new(map)).map(|one| Vec1(vec![one]))
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Vec1<T>, A::Error> {
                let mut all = Vec::new();
                while let Some(one) = list.next_element()? {
                    all.push(one);
                }
                if all.is_empty() {
                    Err(A::Error::custom("an empty array says nothing: leave it out"))
                } else {
                    Ok(Vec1(all))
                }
            }
        }
        deserializer.deserialize_any(V(PhantomData))
    }
}

/// Deserialises from a string by a function.
macro_rules! from_text {
    ($type:ty, $read:expr) => {
        impl<'de> Deserialize<'de> for $type {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = String::deserialize(deserializer)?;
                let read: fn(&str) -> Result<$type, String> = $read;
                read(&text).map_err(D::Error::custom)
            }
        }
    };
}

from_text!(BodyKind, |text| BodyKind::parse(text)
    .ok_or_else(|| format!("`{text}` is no kind of body: write json, form, form_json:FIELD or form_base64_xml:FIELD")));
from_text!(Pointer, Pointer::parse);
from_text!(TypePattern, |text| match text.strip_suffix('*') {
    _ if text.is_empty() => Err("an empty type: write the provider's name of it".into()),
    Some(begin) if begin.contains('*') => Err(format!("`{text}`: a * may only stand at the end")),
    Some(begin) => Ok(TypePattern::Begins(begin.to_owned())),
    None if text.contains('*') => Err(format!("`{text}`: a * may only stand at the end")),
    None => Ok(TypePattern::Is(text.to_owned())),
});
from_text!(Template, Template::parse);

impl Pointer {
    /// Reads a pointer, or the empty text: the value itself.
    pub fn or_body<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Pointer, D::Error> {
        match String::deserialize(deserializer)?.as_str() {
            "" => Ok(Pointer { keys: Vec::new(), slot: 0 }),
            text => Pointer::parse(text).map_err(D::Error::custom),
        }
    }

    fn parse(text: &str) -> Result<Pointer, String> {
        let field = if text.is_empty() { "field" } else { text };
        let path = text.strip_prefix('/').ok_or_else(|| format!("`{text}` is no pointer: write `/{field}`"))?;
        let keys: Vec<String> = path.split('/').map(|k| k.replace("~1", "/").replace("~0", "~")).collect();
        if keys.iter().any(String::is_empty) {
            return Err(format!("the pointer `{text}` has an empty key: write the name of the field behind each `/`"));
        }
        Ok(Pointer { keys, slot: 0 })
    }
}

/// A pointer and what it starts from: `/a` the event, `./a` the element, `^/a` the body.
pub fn place(text: &str) -> Result<(Place, Pointer), String> {
    match text.as_bytes().first() {
        Some(b'.') => Pointer::parse(&text[1..]).map(|p| (Place::Element, p)),
        Some(b'^') => Pointer::parse(&text[1..]).map(|p| (Place::Body, p)),
        _ => Pointer::parse(text).map(|p| (Place::Item, p)),
    }
}

impl Expr {
    fn parse(text: &str) -> Result<Expr, String> {
        let rest = text.get(1..).unwrap_or_default();
        match text.as_bytes().first() {
            Some(b'/' | b'.' | b'^') => place(text).map(|(at, pointer)| Expr::Field(at, pointer)),
            Some(b'=') => Ok(Expr::Fixed(rest.to_owned())),
            Some(b'@') if !rest.is_empty() => Ok(Expr::Header(rest.to_ascii_lowercase())),
            Some(b'?') if !rest.is_empty() => Ok(Expr::Query(rest.to_owned())),
            Some(b'$') if !rest.is_empty() => Ok(Expr::Option(rest.to_owned())),
            _ => Err(format!(
                "`{text}` is no expression: write `/field` for a field of the event, `./field` of the element of `each`, \
                 `^/field` of the whole body, `@header`, `?parameter`, `$option` or `=text`"
            )),
        }
    }
}

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct ExprFields {
    join: Option<Vec<Expr>>,
    with: Option<String>,
    from: Option<Expr>,
    map: Option<BTreeMap<String, String>>,
    unless: Option<Vec<String>>,
    #[serde(rename = "if")]
    when: Option<Vec<Condition>>,
    contains: Option<String>,
    then: Option<String>,
    #[serde(rename = "else")]
    otherwise: Option<String>,
    head: Option<String>,
    tail: Option<String>,
    find: Option<String>,
    #[serde(rename = "where", default)]
    wanted: BTreeMap<String, String>,
    get: Option<Pointer>,
    sum: Option<Vec<Expr>>,
    sum_of: Option<String>,
    item: Option<Pointer>,
}

fn wanted(fields: BTreeMap<String, String>) -> Result<Vec<(Pointer, String)>, String> {
    fields.into_iter().map(|(pointer, text)| Ok((Pointer::parse(&pointer)?, text))).collect()
}

impl TryFrom<ExprFields> for Number {
    type Error = String;
    fn try_from(f: ExprFields) -> Result<Number, String> {
        match f {
            ExprFields { join: None, from: None, find: None, sum: Some(list), sum_of: None, .. }
                if !list.is_empty() =>
            {
                Ok(Number::Sum(list))
            }
            ExprFields {
                join: None, from: None, find: None, sum: None, sum_of: Some(array), item: Some(item), ..
            } => {
                let (at, array) = place(&array)?;
                Ok(Number::SumOf { place: at, array, item, wanted: wanted(f.wanted)? })
            }
            other => Expr::try_from(other).map(Number::One),
        }
    }
}

impl TryFrom<ExprFields> for Expr {
    type Error = String;
    fn try_from(f: ExprFields) -> Result<Expr, String> {
        if f.sum.is_some() || f.sum_of.is_some() || f.item.is_some() {
            return Err(
                "a sum stands only in amounts, as { sum = [..] } or { sum_of = \"/array\", item = \"/field\" }".into(),
            );
        }
        match f {
            ExprFields { join: Some(parts), from: None, find: None, with, .. } if !parts.is_empty() => {
                Ok(Expr::Join(parts, with.unwrap_or_else(|| "/".into())))
            }
            ExprFields { find: Some(array), get: Some(get), join: None, from: None, .. } => {
                if f.wanted.is_empty() {
                    return Err("`find` needs `where = { \"/field\" = \"text\" }`".into());
                }
                let (at, array) = place(&array)?;
                Ok(Expr::Find { place: at, array, wanted: wanted(f.wanted)?, get })
            }
            ExprFields { from: Some(from), join: None, find: None, .. } => {
                let from = Box::new(from);
                match (f.map, f.unless, f.when, f.contains, f.head, f.tail) {
                    (Some(mut words), None, None, None, None, None) => {
                        let rest = words.remove("*");
                        Ok(Expr::Map { from, words, rest })
                    }
                    (None, Some(texts), None, None, None, None) => {
                        let text = |text: String| match text.strip_prefix('$') {
                            Some(option) => Expr::Option(option.to_owned()),
                            None => Expr::Fixed(text),
                        };
                        Ok(Expr::Unless(from, texts.into_iter().map(text).collect()))
                    }
                    (None, None, Some(when), None, None, None) => Ok(Expr::If(from, when)),
                    (None, None, None, Some(needle), None, None) => match (f.then, f.otherwise) {
                        (Some(then), Some(otherwise)) => Ok(Expr::Contains { from, needle, then, otherwise }),
                        _ => Err("`contains` needs `then` and `else`".into()),
                    },
                    (None, None, None, None, Some(separator), None) => Ok(Expr::Cut { from, separator, tail: false }),
                    (None, None, None, None, None, Some(separator)) => Ok(Expr::Cut { from, separator, tail: true }),
                    _ => Err("`from` goes with exactly one of map, unless, if, contains, head, tail".into()),
                }
            }
            _ => Err("a table here is { join = [..] }, { from = .., map|unless|if|contains|head|tail = .. } or \
                      { find = \"/array\", where = {..}, get = \"/field\" }"
                .into()),
        }
    }
}

/// Visits text, array, table of an expression-like value.
struct ExprVisitor<T>(PhantomData<T>);

impl<'de, T: From<Expr> + TryFrom<ExprFields, Error = String>> Visitor<'de> for ExprVisitor<T> {
    type Value = T;
    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("an expression: a text such as \"/data/id\", an array of alternatives, or a table")
    }
    fn visit_str<E: Error>(self, text: &str) -> Result<T, E> {
        Expr::parse(text).map(T::from).map_err(E::custom)
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<T, A::Error> {
        let mut all = Vec::new();
        while let Some(one) = list.next_element::<Expr>()? {
            all.push(one);
        }
        Ok(T::from(Expr::First(all)))
    }
    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<T, A::Error> {
        let fields = ExprFields::deserialize(MapAccessDeserializer::new(map))?;
        T::try_from(fields).map_err(A::Error::custom)
    }
}

impl<'de> Deserialize<'de> for Expr {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ExprVisitor(PhantomData))
    }
}

impl From<Expr> for Number {
    fn from(one: Expr) -> Number {
        Number::One(one)
    }
}

impl<'de> Deserialize<'de> for Number {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ExprVisitor(PhantomData))
    }
}

/// A word as it stands (`"payment"`), or an expression table.
pub struct Word(pub Expr);

impl<'de> Deserialize<'de> for Word {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct V;
        impl<'de> Visitor<'de> for V {
            type Value = Word;
            fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
                f.write_str("a word, or { from = .., map = {..} }")
            }
            fn visit_str<E: Error>(self, text: &str) -> Result<Word, E> {
                if text.is_empty() || text.starts_with(['/', '.', '^', '@', '?', '$', '=']) {
                    return Err(E::custom(format!(
                        "`{text}`: a field is mapped with {{ from = \"{text}\", map = {{ .. }} }}"
                    )));
                }
                Ok(Word(Expr::Fixed(text.to_owned())))
            }
            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Word, A::Error> {
                let fields = ExprFields::deserialize(MapAccessDeserializer::new(map))?;
                match Expr::try_from(fields).map_err(A::Error::custom)? {
                    expr @ Expr::Map { .. } => Ok(Word(expr)),
                    _ => Err(A::Error::custom("only a word or { from = .., map = {..} } can stand here")),
                }
            }
        }
        deserializer.deserialize_any(V)
    }
}

impl Word {
    /// All the words it can give.
    pub fn words(&self) -> Vec<&str> {
        match &self.0 {
            Expr::Map { words, rest, .. } => words.values().chain(rest).map(String::as_str).collect(),
            Expr::Fixed(word) => vec![word],
            _ => vec![],
        }
    }
}

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(missing_docs)] // the fields of AmountRule are documented
pub struct AmountFields {
    minor: Option<Number>,
    major: Option<Number>,
    #[serde(default)]
    minus: Vec<Number>,
    #[serde(default)]
    abs: bool,
    #[serde(default)]
    noise: bool,
    #[serde(default)]
    estimate: bool,
    currency: Option<Expr>,
}

impl TryFrom<AmountFields> for AmountRule {
    type Error = String;
    fn try_from(f: AmountFields) -> Result<AmountRule, String> {
        let (number, unit) = match (f.minor, f.major) {
            (Some(number), None) => (number, Unit::Minor),
            (None, Some(number)) => (number, Unit::Major),
            _ => return Err("an amount is { minor = .. } (cents) or { major = .. } (euros), one of them".into()),
        };
        let exactness = match (f.noise, f.estimate) {
            (false, false) => Exactness::Exact,
            _ if unit == Unit::Minor => {
                return Err("`noise` and `estimate` are for major units: minor units are whole".into());
            }
            (true, false) => Exactness::Noise,
            (false, true) => Exactness::Estimate,
            (true, true) => return Err("`noise` or `estimate`, not both".into()),
        };
        Ok(AmountRule { number, unit, minus: f.minus, abs: f.abs, exactness, currency: f.currency })
    }
}

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct TimeFields {
    rfc3339: Option<Expr>,
    unix: Option<Expr>,
    unix_ms: Option<Expr>,
    naive_utc: Option<Expr>,
    auto: Option<Expr>,
}

impl<'de> Deserialize<'de> for TimeRule {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct V;
        impl<'de> Visitor<'de> for V {
            type Value = TimeRule;
            fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
                f.write_str(
                    "a time: \"/field\" (RFC 3339), { unix = .. }, { unix_ms = .. }, { naive_utc = .. }, { auto = .. }",
                )
            }
            fn visit_str<E: Error>(self, text: &str) -> Result<TimeRule, E> {
                Expr::parse(text).map(|from| TimeRule { from, clock: Clock::Rfc3339 }).map_err(E::custom)
            }
            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<TimeRule, A::Error> {
                let f = TimeFields::deserialize(MapAccessDeserializer::new(map))?;
                let mut all = [
                    (f.rfc3339, Clock::Rfc3339),
                    (f.unix, Clock::Unix),
                    (f.unix_ms, Clock::UnixMs),
                    (f.naive_utc, Clock::NaiveUtc),
                    (f.auto, Clock::Auto),
                ]
                .into_iter()
                .filter_map(|(from, clock)| from.map(|from| TimeRule { from, clock }));
                match (all.next(), all.next()) {
                    (Some(one), None) => Ok(one),
                    _ => Err(A::Error::custom("a time has exactly one of rfc3339, unix, unix_ms, naive_utc, auto")),
                }
            }
        }
        deserializer.deserialize_any(V)
    }
}

/// A constant in a condition: text, number and flag are all compared as the text they have in JSON.
struct Constant(Vec<String>);

impl<'de> Deserialize<'de> for Constant {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct V;
        impl<'de> Visitor<'de> for V {
            type Value = Constant;
            fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
                f.write_str("a text, a whole number, true, false, or an array of texts")
            }
            fn visit_str<E: Error>(self, text: &str) -> Result<Constant, E> {
                Ok(Constant(vec![text.to_owned()]))
            }
            fn visit_bool<E: Error>(self, flag: bool) -> Result<Constant, E> {
                Ok(Constant(vec![flag.to_string()]))
            }
            fn visit_i64<E: Error>(self, number: i64) -> Result<Constant, E> {
                Ok(Constant(vec![number.to_string()]))
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Constant, A::Error> {
                let mut all = Vec::new();
                while let Some(text) = list.next_element::<String>()? {
                    all.push(text);
                }
                Ok(Constant(all))
            }
        }
        deserializer.deserialize_any(V)
    }
}

impl<'de> Deserialize<'de> for Condition {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct V;
        impl<'de> Visitor<'de> for V {
            type Value = Condition;
            fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
                f.write_str("a condition: [\"/field\", \"eq\", \"text\"]")
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Condition, A::Error> {
                let needs = || {
                    A::Error::custom(
                        "a condition is [expression, operator, value], `exists` and `missing` without value",
                    )
                };
                let of: Expr = list.next_element()?.ok_or_else(needs)?;
                let operator: String = list.next_element()?.ok_or_else(needs)?;
                let value: Option<Constant> = list.next_element()?;
                if list.next_element::<serde::de::IgnoredAny>()?.is_some() {
                    return Err(needs());
                }
                let test = test(&operator, value.map(|c| c.0)).map_err(A::Error::custom)?;
                Ok(Condition { of, test })
            }
        }
        deserializer.deserialize_seq(V)
    }
}

fn test(operator: &str, value: Option<Vec<String>>) -> Result<Test, String> {
    match (operator, value.as_deref()) {
        ("exists", None) => Ok(Test::Exists),
        ("missing", None) => Ok(Test::Missing),
        ("exists" | "missing", Some(_)) => Err(format!("`{operator}` takes no value")),
        ("eq", Some([one])) => Ok(Test::In(vec![one.clone()])),
        ("ne", Some([one])) => Ok(Test::NotIn(vec![one.clone()])),
        ("in" | "nin", Some([one])) if one.starts_with('$') => Ok(Test::Option(one[1..].to_owned(), operator == "in")),
        ("in", Some(all @ [_, ..])) => Ok(Test::In(all.to_vec())),
        ("nin", Some(all @ [_, ..])) => Ok(Test::NotIn(all.to_vec())),
        ("gt" | "lt", Some([zero])) if zero != "0" => Err(format!("`{operator}` compares with 0 only")),
        ("gt", Some([_])) => Ok(Test::Positive),
        ("lt", Some([_])) => Ok(Test::Negative),
        ("starts", Some([begin])) => Ok(Test::Starts(begin.clone())),
        ("nstarts", Some([begin])) => Ok(Test::NotStarts(begin.clone())),
        ("is", Some([flag])) if flag == "true" || flag == "false" => Ok(Test::Is(flag == "true")),
        ("is", _) => Err("`is` goes with true or false".into()),
        ("eq" | "ne" | "in" | "nin" | "gt" | "lt" | "starts" | "nstarts", _) => {
            Err(format!("`{operator}` does not go with this value: in and nin take an array, the others one value"))
        }
        _ => Err(format!("`{operator}` is no operator: eq, ne, in, nin, exists, missing, gt, lt, starts, nstarts, is")),
    }
}

impl Template {
    fn parse(text: &str) -> Result<Template, String> {
        let mut parts = Vec::new();
        let mut rest = text;
        while let Some(at) = rest.find('{') {
            if at > 0 {
                parts.push(TemplatePart::Text(rest[..at].to_owned()));
            }
            let end = rest.find('}').filter(|end| *end > at).ok_or_else(|| format!("`{text}`: a {{ without }}"))?;
            let inner = &rest[at + 1..end];
            rest = &rest[end + 1..];
            parts.push(match inner.split_once('|') {
                None => TemplatePart::Segment(Expr::parse(inner)?),
                Some((field, "tail")) => {
                    let from = Box::new(Expr::parse(field)?);
                    TemplatePart::Segment(Expr::Cut { from, separator: "/".into(), tail: true })
                }
                Some((field, below)) => match below.strip_prefix("path below ") {
                    Some(prefix) if prefix.starts_with('/') && prefix.ends_with('/') && parts.is_empty() && rest.is_empty() => {
                        TemplatePart::Path(Expr::parse(field)?, prefix.to_owned())
                    }
                    _ => {
                        return Err(format!(
                            "`{{{inner}}}`: write {{/field}}, {{/field|tail}}, or for a whole path {{/field|path below /v1/}}"
                        ));
                    }
                },
            });
        }
        if !rest.is_empty() {
            parts.push(TemplatePart::Text(rest.to_owned()));
        }
        match parts.first() {
            Some(TemplatePart::Text(first)) if first.starts_with('/') && !first.starts_with("//") => {
                Ok(Template(parts))
            }
            Some(TemplatePart::Path(..)) => Ok(Template(parts)),
            _ => Err(format!("`{text}`: a path below the provider's API begins with a fixed /")),
        }
    }
}
