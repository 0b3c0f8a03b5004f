//! The event half of a provider's file: what its tables may hold, read by serde and checked as it is read.
//!
//! Everything a file can get wrong is refused here, with what would be right; the place in the file is added by the
//! TOML reader. What the tables mean is told in `src/providers/README.md`. No body is ever looked at here.

use crate::money::Currency;
use crate::providers::body::BodyKind;
use serde::de::value::{MapAccessDeserializer, StrDeserializer};
use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;

/// The kinds of movement the ledger knows what to post for.
pub const KINDS: &[&str] = &[
    "payment",
    "payment_reversed",
    "refund",
    "refund_reversed",
    "reversal",
    "dispute_opened",
    "dispute_won",
    "dispute_lost",
    "payout",
    "payout_failed",
    "topup",
    "topup_reversed",
    "transfer",
    "transfer_reversed",
    "fee",
    "fee_reversal",
    "application_fee",
    "application_fee_refund",
    "credit",
    "credit_reversed",
    "credit_redeemed",
    "adjustment",
    "reserve",
    "hold",
    "hold_release",
    "conversion",
];

/// `[event]`: what every event of the provider has.
#[derive(Debug, Clone, serde::Deserialize, Default)]
#[serde(deny_unknown_fields)]
pub struct EventRules {
    /// Another provider's file whose event half is used; nothing else of this half may then be given.
    pub like: Option<String>,
    /// What a body is made of.
    #[serde(default)]
    pub body: Vec1<BodyKind>,
    /// The event id.
    pub id: Option<Expr>,
    /// See [`crate::event::Event::weak_id`].
    #[serde(default)]
    pub weak_id: bool,
    /// The type of the event.
    #[serde(rename = "type")]
    pub kind: Option<Expr>,
    /// The provider's clock.
    #[serde(default)]
    pub time: Vec1<TimeRule>,
    /// `live`, `test` or `unknown`.
    pub mode: Option<Expr>,
    /// The provider's own account.
    pub account: Option<Expr>,
    /// The account is part of every key: only where every event about money carries it.
    #[serde(default)]
    pub account_in_key: bool,
    /// The provider's version of the payload.
    pub api_version: Option<Expr>,
    /// Several events in a body.
    pub batch: Option<BatchRule>,
    /// Decimals of a currency on this provider's wire, where they differ from ISO 4217.
    #[serde(default)]
    pub exponents: BTreeMap<String, u8>,
    /// What a source may set.
    #[serde(default)]
    pub options: BTreeMap<String, OptionRule>,
    /// Mode, read from a fetched answer.
    pub answer_mode: Option<Expr>,
    /// The provider's own account, read from a fetched answer.
    pub answer_account: Option<Expr>,
}

/// Where the items of a batch stand.
#[derive(Debug, Clone, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BatchRule {
    /// Pointer to the array in the body.
    pub items: Pointer,
    /// Pointer into each element, where the event is wrapped.
    pub each: Option<Pointer>,
}

/// A setting of a source that rules may ask for.
#[derive(Debug, Clone, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OptionRule {
    /// Its value when the source does not set it.
    pub default: String,
    /// The values it may have; empty: any.
    #[serde(default)]
    pub values: Vec<String>,
    /// For the person who sets it.
    pub about: String,
}

/// `[[movement]]`
#[derive(Debug, Clone, serde::Deserialize)]
#[serde(try_from = "MovementFields")]
pub struct MovementRule {
    /// When the rule runs.
    pub applies: Applies,
    /// The kind, fixed or mapped.
    pub kind: Expr,
    /// The provider's reference.
    pub reference: Expr,
    /// Other names of the same movement.
    pub also: Vec<Expr>,
    /// How much.
    pub amount: Vec<AmountRule>,
    /// The amount is the total so far for the parent.
    pub running_total: bool,
    /// Its currency.
    pub currency: Expr,
    /// The customer.
    pub account: Option<Expr>,
    /// The provider's fee.
    pub fee: Vec<AmountRule>,
    /// Tax the provider remits itself.
    pub tax: Vec<AmountRule>,
    /// When the money moved.
    pub time: Vec<TimeRule>,
    /// The movement it belongs to.
    pub parent: Option<Expr>,
    /// See [`crate::event::Movement::if_prior`].
    pub if_prior: Option<String>,
    /// Secondary: a mere announcement.
    pub secondary: bool,
}

/// `[[entity]]`
#[derive(Debug, Clone, serde::Deserialize)]
#[serde(try_from = "EntityFields")]
pub struct EntityRule {
    /// When the rule runs.
    pub applies: Applies,
    /// `subscription`, `dispute`, …
    pub kind: String,
    /// The provider's id of the object.
    pub id: Expr,
    /// Our word for its state.
    pub status: Expr,
    /// The provider's word.
    pub provider_status: Option<Expr>,
    /// The time of the state; empty: the event's.
    pub time: Vec<TimeRule>,
    /// No time in the event orders this state: the time of receipt does.
    pub by_receipt: bool,
    /// The provider's version counter.
    pub version: Option<Expr>,
    /// The customer.
    pub account: Option<Expr>,
}

/// `[[fetch]]`
#[derive(Debug, Clone, serde::Deserialize)]
#[serde(try_from = "FetchFields")]
pub struct FetchRule {
    /// When the rule runs.
    pub applies: Applies,
    /// The path below the provider's API, with fields to fill in.
    pub path: Template,
    /// How the answer is read: `event`, or the name that rules carry in `answer`; `None`: the event's type.
    pub answer: Option<String>,
}

/// `[[ignore]]`
#[derive(Debug, Clone, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct IgnoreRule {
    /// The types.
    pub on: Vec1<TypePattern>,
    /// Why there is nothing to do.
    pub because: String,
    /// A test call, not an announcement.
    #[serde(default)]
    pub ping: bool,
}

/// `[[park]]`: money that the file cannot read, for a person.
#[derive(Debug, Clone, serde::Deserialize)]
#[serde(try_from = "ParkFields")]
pub struct ParkRule {
    /// When the rule runs.
    pub applies: Applies,
    /// What the person is told.
    pub because: String,
}

/// When a rule runs.
#[derive(Debug, Clone, Default)]
pub struct Applies {
    /// For these types of events.
    pub on: Vec<TypePattern>,
    /// For answers of this name.
    pub answer: Vec<TypePattern>,
    /// Only if the source's options have these values.
    pub option: BTreeMap<String, String>,
    /// Only if all of these hold.
    pub when: Vec<Condition>,
    /// Once for each element; from outer to inner array.
    pub each: Vec<(Place, Pointer)>,
}

/// A type, or the beginning of types.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TypePattern {
    /// Exactly this.
    Is(String),
    /// Written with a `*` at the end.
    Begins(String),
}

impl TypePattern {
    /// Whether a type is meant.
    pub fn matches(&self, kind: &str) -> bool {
        match self {
            TypePattern::Is(text) => text == kind,
            TypePattern::Begins(text) => kind.starts_with(text.as_str()),
        }
    }
}

/// A path into a document, `/data/object/id` (RFC 6901). `slot` is given when rules are compiled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pointer {
    /// The keys.
    pub keys: Vec<String>,
    /// The number under which one reading remembers what it found.
    pub slot: usize,
}

/// What a pointer starts from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// The event (an item of a batch).
    Item,
    /// The element of `each`, or of `find`.
    Element,
    /// The whole body.
    Body,
}

/// Where a text comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Expr {
    /// A field.
    Field(Place, Pointer),
    /// A header (lower case).
    Header(String),
    /// A query parameter.
    Query(String),
    /// A source's option; replaced by its text when rules are compiled.
    Option(String),
    /// A fixed text.
    Fixed(String),
    /// The first that gives a text.
    First(Vec<Expr>),
    /// All parts, or nothing.
    Join(Vec<Expr>, String),
    /// Another word for each word; `*` for the rest.
    Map { from: Box<Expr>, words: BTreeMap<String, String>, rest: Option<String> },
    /// Nothing for these texts (fixed, or an option's).
    Unless(Box<Expr>, Vec<Expr>),
    /// Nothing unless the conditions hold.
    If(Box<Expr>, Vec<Condition>),
    /// One text if the other is inside, else another.
    Contains { from: Box<Expr>, needle: String, then: String, otherwise: String },
    /// What stands before the first separator (`head`) or after the last (`tail`).
    Cut { from: Box<Expr>, separator: String, tail: bool },
    /// A field of the first element of an array that has these fields.
    Find { place: Place, array: Pointer, wanted: Vec<(Pointer, String)>, get: Pointer },
}

/// A number: a text, or a sum.
#[derive(Debug, Clone)]
pub enum Number {
    /// As it stands.
    One(Expr),
    /// The sum; nothing if the first is missing, later ones count 0.
    Sum(Vec<Expr>),
    /// The sum over an array; nothing if no element has it.
    SumOf { place: Place, array: Pointer, item: Pointer, wanted: Vec<(Pointer, String)> },
}

/// What a number counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// The smallest unit (of the provider's exponent).
    Minor,
    /// Euros, dollars, yen.
    Major,
}

/// What may be dropped of a number to make it whole units.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exactness {
    /// Nothing.
    Exact,
    /// `noise = true`: the provider sends binary floats; what lies far below the smallest unit.
    Noise,
    /// `estimate = true`: the provider itself only estimates (a coin's value in euros); the fraction of a unit.
    Estimate,
}

/// One way to read an amount.
#[derive(Debug, Clone, serde::Deserialize)]
#[serde(try_from = "AmountFields")]
pub struct AmountRule {
    /// The number.
    pub number: Number,
    /// What it counts.
    pub unit: Unit,
    /// What is taken off.
    pub minus: Vec<Number>,
    /// The sign is dropped.
    pub abs: bool,
    /// What may be dropped of the number.
    pub exactness: Exactness,
    /// The amount's own currency. In a fee it is the fee's; elsewhere another than the movement's voids this way.
    pub currency: Option<Expr>,
}

/// How a time is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Clock {
    /// RFC 3339 with an offset.
    Rfc3339,
    /// Seconds since 1970.
    Unix,
    /// Milliseconds since 1970.
    UnixMs,
    /// Date and time without an offset, in UTC.
    NaiveUtc,
    /// Whichever of the first three it looks like.
    Auto,
}

/// One way to read a time.
#[derive(Debug, Clone)]
pub struct TimeRule {
    /// The text.
    pub from: Expr,
    /// How it is written.
    pub clock: Clock,
}

/// `[expression, operator, value]`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Condition {
    /// What is looked at.
    pub of: Expr,
    /// The comparison.
    pub test: Test,
}

/// A comparison of texts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Test {
    /// One of these (`eq`, `in`).
    In(Vec<String>),
    /// None of these, or missing (`ne`, `nin`).
    NotIn(Vec<String>),
    /// `in` or `nin` (false) the list that an option holds; replaced when rules are compiled.
    Option(String, bool),
    /// There and not null.
    Exists,
    /// Missing or null.
    Missing,
    /// A number above 0.
    Positive,
    /// A number below 0.
    Negative,
    /// Begins so.
    Starts(String),
    /// Does not begin so, or is missing.
    NotStarts(String),
    /// A flag that must be readable: anything but true and false parks the event.
    Is(bool),
}

/// A path with fields to fill in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Template(pub Vec<TemplatePart>);

/// A piece of a [`Template`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TemplatePart {
    /// As it stands.
    Text(String),
    /// `{/data/id}`: percent-encoded, one segment.
    Segment(Expr),
    /// `{/url|path below /v1/}`: a path that the event names, taken only below this prefix.
    Path(Expr, String),
}

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
    fn parse(text: &str) -> Result<Pointer, String> {
        let path = text.strip_prefix('/').ok_or_else(|| format!("`{text}` is no pointer: write `/{text}`"))?;
        let keys: Vec<String> = path.split('/').map(|k| k.replace("~1", "/").replace("~0", "~")).collect();
        if keys.iter().any(String::is_empty) {
            return Err(format!("the pointer `{text}` has an empty key"));
        }
        Ok(Pointer { keys, slot: 0 })
    }
}

fn place(text: &str) -> Result<(Place, Pointer), String> {
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
struct Word(Expr);

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
    fn words(&self) -> Vec<&str> {
        match &self.0 {
            Expr::Map { words, rest, .. } => words.values().chain(rest).map(String::as_str).collect(),
            Expr::Fixed(word) => vec![word],
            _ => vec![],
        }
    }
}

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct AmountFields {
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

#[derive(serde::Deserialize, Default)]
#[serde(deny_unknown_fields)]
struct MovementFields {
    #[serde(default)]
    on: Vec1<TypePattern>,
    #[serde(default)]
    answer: Vec1<TypePattern>,
    #[serde(default)]
    option: BTreeMap<String, String>,
    #[serde(default)]
    when: Vec<Condition>,
    #[serde(default)]
    each: Vec1<String>,
    role: Option<String>,
    kind: Option<Word>,
    reference: Option<Expr>,
    #[serde(default)]
    also: Vec1<Expr>,
    #[serde(default)]
    amount: Vec1<AmountRule>,
    #[serde(default)]
    running_total: Vec1<AmountRule>,
    currency: Option<Expr>,
    account: Option<Expr>,
    #[serde(default)]
    fee: Vec1<AmountRule>,
    #[serde(default)]
    tax: Vec1<AmountRule>,
    #[serde(default)]
    time: Vec1<TimeRule>,
    parent: Option<Expr>,
    if_prior: Option<String>,
}

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct EntityFields {
    #[serde(default)]
    on: Vec1<TypePattern>,
    #[serde(default)]
    answer: Vec1<TypePattern>,
    #[serde(default)]
    option: BTreeMap<String, String>,
    #[serde(default)]
    when: Vec<Condition>,
    #[serde(default)]
    each: Vec1<String>,
    kind: String,
    id: Expr,
    status: Word,
    provider_status: Option<Expr>,
    #[serde(default)]
    time: Vec1<TimeRule>,
    #[serde(default)]
    by_receipt: bool,
    version: Option<Expr>,
    account: Option<Expr>,
}

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct FetchFields {
    on: Vec1<TypePattern>,
    #[serde(default)]
    option: BTreeMap<String, String>,
    #[serde(default)]
    when: Vec<Condition>,
    path: Template,
    answer: Option<String>,
}

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct ParkFields {
    #[serde(default)]
    on: Vec1<TypePattern>,
    #[serde(default)]
    answer: Vec1<TypePattern>,
    #[serde(default)]
    option: BTreeMap<String, String>,
    #[serde(default)]
    when: Vec<Condition>,
    because: String,
}

impl TryFrom<ParkFields> for ParkRule {
    type Error = String;
    fn try_from(f: ParkFields) -> Result<ParkRule, String> {
        let applies = applies(f.on, f.answer, f.option, f.when, Vec1::default())?;
        let mut rule = ParkRule { applies, because: f.because };
        let mut all = Vec::new();
        rule.applies.visit(&mut |expr| all.push(expr.clone()));
        check_places(&rule.applies, &all, Vec::new())?;
        Ok(rule)
    }
}

fn applies(
    on: Vec1<TypePattern>,
    answer: Vec1<TypePattern>,
    option: BTreeMap<String, String>,
    when: Vec<Condition>,
    each: Vec1<String>,
) -> Result<Applies, String> {
    if on.is_empty() == answer.is_empty() {
        return Err("a rule has either `on` (types of events) or `answer` (the name of a fetched answer)".into());
    }
    let each = each.0.iter().map(|text| place(text)).collect::<Result<Vec<_>, _>>()?;
    if let Some((at, _)) = each.first() {
        if *at == Place::Element || each[1..].iter().any(|(at, _)| *at != Place::Element) {
            return Err(
                "`each` goes from outer to inner: the first \"/array\" of the event, then \"./array\" of its elements"
                    .into(),
            );
        }
    }
    Ok(Applies { on: on.0, answer: answer.0, option, when, each })
}

fn known_kind(kind: &str) -> Result<(), String> {
    if KINDS.contains(&kind) {
        return Ok(());
    }
    let near = KINDS.iter().min_by_key(|k| distance(k, kind)).filter(|k| distance(k, kind) <= 3);
    Err(match near {
        Some(near) => format!("`{kind}` is no kind of movement: did you mean `{near}`?"),
        None => format!("`{kind}` is no kind of movement: one of {}", KINDS.join(", ")),
    })
}

fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut corner = row[0];
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let old = row[j + 1];
            row[j + 1] = (corner + usize::from(x != *y)).min(old + 1).min(row[j] + 1);
            corner = old;
        }
    }
    row[b.len()]
}

impl TryFrom<MovementFields> for MovementRule {
    type Error = String;
    fn try_from(f: MovementFields) -> Result<MovementRule, String> {
        let applies = applies(f.on, f.answer, f.option, f.when, f.each)?;
        let need = |what: &str, how: &str| format!("a movement needs `{what}`, such as {how}");
        let kind = f.kind.ok_or_else(|| need("kind", "\"payment\""))?;
        for word in kind.words() {
            known_kind(word)?;
        }
        if let Some(prior) = &f.if_prior {
            known_kind(prior)?;
            if kind.words().contains(&prior.as_str()) {
                return Err(format!("`if_prior = \"{prior}\"` on the same kind would wait for itself"));
            }
        }
        let (amount, running_total) = match (f.amount.0, f.running_total.0) {
            (amount, none) if !amount.is_empty() && none.is_empty() => (amount, false),
            (none, total) if none.is_empty() && !total.is_empty() => (total, true),
            _ => return Err(need("amount", "{ minor = \"/amount\" }, or `running_total` instead")),
        };
        if running_total && f.parent.is_none() {
            return Err("`running_total` needs `parent`: the total is that of the parent".into());
        }
        let mut rule = MovementRule {
            applies,
            kind: kind.0,
            reference: f.reference.ok_or_else(|| need("reference", "\"/id\""))?,
            also: f.also.0,
            amount,
            running_total,
            currency: f.currency.ok_or_else(|| need("currency", "\"/currency\" or \"=USD\""))?,
            account: f.account,
            fee: f.fee.0,
            tax: f.tax.0,
            time: f.time.0,
            parent: f.parent,
            if_prior: f.if_prior,
            secondary: match f.role.as_deref() {
                None | Some("primary") => false,
                Some("secondary") => true,
                Some(other) => return Err(format!("`role = \"{other}\"`: primary or secondary")),
            },
        };
        let mut all = Vec::new();
        rule.visit(&mut |expr| all.push(expr.clone()));
        check_places(&rule.applies, &all, rule.sums())?;
        if matches!(rule.reference, Expr::Fixed(_)) {
            return Err("a fixed text is no reference: all movements would share it".into());
        }
        Ok(rule)
    }
}

impl TryFrom<EntityFields> for EntityRule {
    type Error = String;
    fn try_from(f: EntityFields) -> Result<EntityRule, String> {
        if f.by_receipt && !f.time.is_empty() {
            return Err("`by_receipt = true` says that no time orders this state: leave out `time`".into());
        }
        let mut rule = EntityRule {
            applies: applies(f.on, f.answer, f.option, f.when, f.each)?,
            kind: f.kind,
            id: f.id,
            status: f.status.0,
            provider_status: f.provider_status,
            time: f.time.0,
            by_receipt: f.by_receipt,
            version: f.version,
            account: f.account,
        };
        let mut all = Vec::new();
        rule.visit(&mut |expr| all.push(expr.clone()));
        check_places(&rule.applies, &all, Vec::new())?;
        Ok(rule)
    }
}

impl TryFrom<FetchFields> for FetchRule {
    type Error = String;
    fn try_from(f: FetchFields) -> Result<FetchRule, String> {
        let mut rule = FetchRule {
            applies: applies(f.on, Vec1::default(), f.option, f.when, Vec1::default())?,
            path: f.path,
            answer: f.answer,
        };
        let mut all = Vec::new();
        rule.visit(&mut |expr| all.push(expr.clone()));
        check_places(&rule.applies, &all, Vec::new())?;
        Ok(rule)
    }
}

/// `./` only under `each`; and under `each` nothing that walks an array of the event again for every element (time
/// would no longer be linear in the body).
fn check_places(applies: &Applies, all: &[Expr], sums: Vec<Place>) -> Result<(), String> {
    let loops = !applies.each.is_empty();
    let mut walked = sums;
    for expr in all {
        match expr {
            Expr::Field(Place::Element, p) if !loops => {
                return Err(format!("`./{}` needs `each`: there is no element", p.keys.join("/")));
            }
            Expr::Find { place, .. } => walked.push(*place),
            _ => {}
        }
    }
    if walked.contains(&Place::Element) && !loops {
        return Err("`./` needs `each`: there is no element".into());
    }
    if loops && walked.iter().any(|place| *place != Place::Element) {
        return Err("under `each`, `find` and `sum_of` can only walk arrays of the element (\"./array\")".into());
    }
    Ok(())
}

impl Expr {
    /// Shows every expression inside, itself first.
    pub fn visit(&mut self, show: &mut dyn FnMut(&mut Expr)) {
        show(self);
        match self {
            Expr::First(all) | Expr::Join(all, _) => all.iter_mut().for_each(|e| e.visit(show)),
            Expr::Unless(from, texts) => {
                from.visit(show);
                texts.iter_mut().for_each(|e| e.visit(show));
            }
            Expr::Map { from, .. } | Expr::Contains { from, .. } | Expr::Cut { from, .. } => {
                from.visit(show)
            }
            Expr::If(from, when) => {
                from.visit(show);
                when.iter_mut().for_each(|c| c.of.visit(show));
            }
            _ => {}
        }
    }
}

impl Number {
    fn visit(&mut self, show: &mut dyn FnMut(&mut Expr)) {
        match self {
            Number::One(expr) => expr.visit(show),
            Number::Sum(all) => all.iter_mut().for_each(|e| e.visit(show)),
            Number::SumOf { .. } => {}
        }
    }
}

impl Applies {
    /// Shows every expression of the conditions.
    pub fn visit(&mut self, show: &mut dyn FnMut(&mut Expr)) {
        self.when.iter_mut().for_each(|c| c.of.visit(show));
    }
}

impl MovementRule {
    fn sums(&self) -> Vec<Place> {
        let amounts = self.amount.iter().chain(&self.fee).chain(&self.tax);
        let numbers = amounts.flat_map(|a| a.minus.iter().chain([&a.number]));
        numbers.filter_map(|n| if let Number::SumOf { place, .. } = n { Some(*place) } else { None }).collect()
    }

    /// Shows every expression of the rule.
    pub fn visit(&mut self, show: &mut dyn FnMut(&mut Expr)) {
        self.applies.visit(show);
        let fields = [&mut self.kind, &mut self.reference, &mut self.currency];
        let more = self.also.iter_mut().chain(&mut self.account).chain(&mut self.parent);
        fields.into_iter().chain(more).for_each(|e| e.visit(show));
        self.time.iter_mut().for_each(|t| t.from.visit(show));
        for amount in self.amount.iter_mut().chain(&mut self.fee).chain(&mut self.tax) {
            amount.minus.iter_mut().chain([&mut amount.number]).for_each(|n| n.visit(show));
            amount.currency.iter_mut().for_each(|e| e.visit(show));
        }
    }
}

impl EntityRule {
    /// Shows every expression of the rule.
    pub fn visit(&mut self, show: &mut dyn FnMut(&mut Expr)) {
        self.applies.visit(show);
        let fields = [&mut self.id, &mut self.status];
        let more = self.provider_status.iter_mut().chain(&mut self.version).chain(&mut self.account);
        fields.into_iter().chain(more).for_each(|e| e.visit(show));
        self.time.iter_mut().for_each(|t| t.from.visit(show));
    }
}

impl FetchRule {
    /// Shows every expression of the rule.
    pub fn visit(&mut self, show: &mut dyn FnMut(&mut Expr)) {
        self.applies.visit(show);
        for part in &mut self.path.0 {
            match part {
                TemplatePart::Segment(expr) | TemplatePart::Path(expr, _) => expr.visit(show),
                TemplatePart::Text(_) => {}
            }
        }
    }
}

/// The event half as a whole.
#[derive(Debug, Clone, Default)]
pub struct EventHalf {
    /// `[event]`
    pub event: EventRules,
    /// `[[movement]]`
    pub movements: Vec<MovementRule>,
    /// `[[entity]]`
    pub entities: Vec<EntityRule>,
    /// `[[fetch]]`
    pub fetches: Vec<FetchRule>,
    /// `[[park]]`
    pub parks: Vec<ParkRule>,
    /// `[[ignore]]`
    pub ignores: Vec<IgnoreRule>,
}

impl EventHalf {
    /// The conditions of every rule.
    pub fn all_applies(&mut self) -> impl Iterator<Item = &mut Applies> {
        let movements = self.movements.iter_mut().map(|r| &mut r.applies);
        let entities = self.entities.iter_mut().map(|r| &mut r.applies);
        let fetches = self.fetches.iter_mut().map(|r| &mut r.applies);
        movements.chain(entities).chain(fetches).chain(self.parks.iter_mut().map(|r| &mut r.applies))
    }

    /// Checks what no single table can know; the error says what would be right.
    pub fn check(&mut self) -> Result<(), String> {
        let event = &self.event;
        let rules = self.movements.len() + self.entities.len() + self.fetches.len() + self.ignores.len() + self.parks.len();
        if let Some(like) = &event.like {
            return match rules {
                0 if event.kind.is_none() && event.body.is_empty() => Ok(()),
                _ => Err(format!(
                    "[event] like = \"{like}\" takes the whole event half from there: leave out the rest of it"
                )),
            };
        }
        if event.kind.is_none() {
            return match rules {
                0 => Ok(()),
                _ => Err("[event] needs `type`, such as type = \"/type\"".into()),
            };
        }
        if event.body.is_empty() {
            return Err("[event] needs `body`, such as body = \"json\"".into());
        }
        for (code, decimals) in &event.exponents {
            if Currency::parse(code).is_none() || *decimals > 8 {
                return Err(format!(
                    "[event] exponents: `{code} = {decimals}` is no currency of ISO 4217 with 0 to 8 decimals"
                ));
            }
        }
        if event.account_in_key && event.account.is_none() {
            return Err("[event] account_in_key = true needs `account`".into());
        }
        for (name, mode) in [("mode", event.mode.clone()), ("answer_mode", event.answer_mode.clone())] {
            let mut bad = None;
            let mut check = |word: &str| {
                if !matches!(word, "live" | "test" | "unknown") {
                    bad = Some(word.to_owned());
                }
            };
            if let Some(mut expr) = mode {
                expr.visit(&mut |e| match e {
                    Expr::Map { words, rest, .. } => words.values().chain(rest.as_ref()).for_each(|w| check(w)),
                    Expr::Contains { then, otherwise, .. } => [then, otherwise].into_iter().for_each(|w| check(w)),
                    _ => {}
                });
            }
            if let Some(word) = bad {
                return Err(format!("[event] {name}: `{word}` is no mode: live, test or unknown"));
            }
        }
        for (name, option) in &event.options {
            if !option.values.is_empty() && !option.values.contains(&option.default) {
                return Err(format!("[event] options.{name}: the default `{}` is none of its values", option.default));
            }
        }
        let options = event.options.clone();
        for applies in self.all_applies() {
            for (name, value) in &applies.option {
                match options.get(name) {
                    Some(option) if option.values.is_empty() || option.values.contains(value) => {}
                    Some(_) => return Err(format!("option = {{ {name} = \"{value}\" }}: that is none of its values")),
                    None => return Err(format!("option `{name}` is not declared under [event.options]")),
                }
            }
            for condition in &applies.when {
                match &condition.test {
                    Test::Option(name, _) if !options.contains_key(name) => {
                        return Err(format!("option `{name}` (`${name}`) is not declared under [event.options]"));
                    }
                    _ => {}
                }
            }
        }
        let mut outside = None;
        self.visit(&mut |expr| {
            if let Expr::Option(name) = expr {
                if !options.contains_key(name) {
                    outside = Some(format!("option `{name}` (`${name}`) is not declared under [event.options]"));
                }
            }
        });
        for expr in self.event.expressions() {
            expr.visit(&mut |e| {
                if let Expr::Field(Place::Element, p) = e {
                    outside = Some(format!("[event]: `./{}` needs an element, there is none here", p.keys.join("/")));
                }
            });
        }
        outside.map_or(Ok(()), Err)
    }

    /// Shows every expression of the half.
    pub fn visit(&mut self, show: &mut dyn FnMut(&mut Expr)) {
        self.event.expressions().for_each(|e| e.visit(show));
        self.movements.iter_mut().for_each(|r| r.visit(show));
        self.entities.iter_mut().for_each(|r| r.visit(show));
        self.fetches.iter_mut().for_each(|r| r.visit(show));
        self.parks.iter_mut().for_each(|r| r.applies.visit(show));
    }
}

impl EventRules {
    fn expressions(&mut self) -> impl Iterator<Item = &mut Expr> {
        let modes = self.mode.iter_mut().chain(&mut self.answer_mode);
        let accounts = self.account.iter_mut().chain(&mut self.answer_account);
        let rest = self.id.iter_mut().chain(&mut self.kind).chain(&mut self.api_version);
        modes.chain(accounts).chain(rest).chain(self.time.0.iter_mut().map(|t| &mut t.from))
    }
}
