//! The event half of a provider's file: the rules, as they are after reading and checking.
//!
//! What a file may say is told in `src/providers/README.md`; how it is written is read in `syntax.rs`, whole tables are
//! checked in `tables.rs`, and here what no single table can know. No body is ever looked at here.

use super::syntax::Vec1;
use crate::money::Currency;
use crate::providers::body::BodyKind;
use std::collections::BTreeMap;

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
    /// Pointer to the array in the body; without keys: the body itself is the array.
    #[serde(deserialize_with = "Pointer::or_body")]
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
#[derive(Debug, Clone)]
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
#[derive(Debug, Clone)]
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
#[derive(Debug, Clone)]
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
#[derive(Debug, Clone)]
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

impl std::fmt::Display for TypePattern {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            TypePattern::Is(kind) => f.write_str(kind),
            TypePattern::Begins(begin) => write!(f, "{begin}*"),
        }
    }
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
    Map {
        /// The provider's word.
        from: Box<Expr>,
        /// Ours, by the provider's.
        words: BTreeMap<String, String>,
        /// For all others.
        rest: Option<String>,
    },
    /// Nothing for these texts (fixed, or an option's).
    Unless(Box<Expr>, Vec<Expr>),
    /// Nothing unless the conditions hold.
    If(Box<Expr>, Vec<Condition>),
    /// One text if the other is inside, else another.
    Contains {
        /// Where to look.
        from: Box<Expr>,
        /// What for.
        needle: String,
        /// If it is inside.
        then: String,
        /// If it is not.
        otherwise: String,
    },
    /// What stands before the first separator (`head`) or after the last (`tail`).
    Cut {
        /// The text.
        from: Box<Expr>,
        /// Where to cut.
        separator: String,
        /// Keep what follows the last one, rather than what precedes the first.
        tail: bool,
    },
    /// A field of the first element of an array that has these fields.
    Find {
        /// What the array's pointer starts from.
        place: Place,
        /// The array.
        array: Pointer,
        /// Fields of the element and the texts they must have.
        wanted: Vec<(Pointer, String)>,
        /// The field of the element.
        get: Pointer,
    },
}

/// A number: a text, or a sum.
#[derive(Debug, Clone)]
pub enum Number {
    /// As it stands.
    One(Expr),
    /// The sum; nothing if the first is missing, later ones count 0.
    Sum(Vec<Expr>),
    /// The sum over an array; nothing if no element has it.
    SumOf {
        /// What the array's pointer starts from.
        place: Place,
        /// The array.
        array: Pointer,
        /// The number in each element.
        item: Pointer,
        /// Fields of an element and the texts they must have to count.
        wanted: Vec<(Pointer, String)>,
    },
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
#[serde(try_from = "super::syntax::AmountFields")]
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
            Expr::Map { from, .. } | Expr::Contains { from, .. } | Expr::Cut { from, .. } => from.visit(show),
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
    /// Where its sums over arrays start.
    pub fn sums(&self) -> Vec<Place> {
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
        let rules =
            self.movements.len() + self.entities.len() + self.fetches.len() + self.ignores.len() + self.parks.len();
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
        let body_is_array = event.batch.as_ref().is_some_and(|batch| batch.items.keys.is_empty());
        if body_is_array && event.body.iter().all(|body| matches!(body, BodyKind::Form | BodyKind::FormXml(_))) {
            return Err(
                "[event] batch: items = \"\" says that the body itself is the array, and a form or XML never is \
                        one: write the pointer to the array, such as items = \"/list\""
                    .into(),
            );
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
            if let Expr::Option(name) = expr
                && !options.contains_key(name)
            {
                outside = Some(format!("option `{name}` (`${name}`) is not declared under [event.options]"));
            }
            if let Expr::Field(Place::Body, p) = expr
                && body_is_array
                && p.keys[0].parse::<usize>().is_err()
            {
                let keys = p.keys.join("/");
                outside = Some(format!(
                    "`^/{keys}`: the body is an array (batch.items = \"\") and has no such field: `/{keys}` is a field of the item"
                ));
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
