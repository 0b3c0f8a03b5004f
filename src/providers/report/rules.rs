//! The words in which a provider's file says how one row (of a report file or of an API page) becomes a report line.
//!
//! Only data as it stands in TOML; `row.rs` binds it to columns or JSON pointers and evaluates it. A text rule names a
//! column (`gross`) or a pointer (`/source/id`), or is a template with such names in braces (`orders/{/id}`). The
//! names `:kind` and `:sign` stand for what was found out about the row so far.

use serde::Deserialize;
use std::collections::BTreeMap;

/// One string or several.
#[derive(Debug, Clone, Deserialize, PartialEq, Eq)]
#[serde(untagged)]
pub enum OneOrMany {
    /// A single one.
    One(String),
    /// Several; the rule that holds them says whether the first that fits or all count.
    Many(Vec<String>),
}

impl OneOrMany {
    /// All of them, in order.
    pub fn all(&self) -> &[String] {
        match self {
            OneOrMany::One(one) => std::slice::from_ref(one),
            OneOrMany::Many(many) => many,
        }
    }
}

/// What a row must look like: every named value has to fit one of its patterns. A pattern is a value, `prefix*`, `*`
/// (there is something), the empty text (there is nothing), or `!value` (there is something else).
pub type Condition = BTreeMap<String, OneOrMany>;

/// Where a text of the row comes from: the first alternative that gives a text that is not empty.
#[derive(Debug, Clone, Deserialize, PartialEq, Eq)]
#[serde(untagged)]
pub enum TextRule {
    /// Alternatives as they are.
    Plain(OneOrMany),
    /// Alternatives of which only a part is meant.
    Part {
        /// The alternatives.
        from: OneOrMany,
        /// Leading and trailing characters that go (`#` of `#1001`).
        #[serde(default)]
        trim: String,
        /// Only what follows the last such text counts; a value without it gives nothing.
        #[serde(default)]
        after: String,
    },
}

/// Units in which amounts are written.
#[derive(Debug, Clone, Copy, Deserialize, PartialEq, Eq, Default)]
#[serde(rename_all = "lowercase")]
pub enum Unit {
    /// `12.34`
    #[default]
    Major,
    /// `1234`
    Minor,
}

/// How numbers are written.
#[derive(Debug, Clone, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
pub struct Numbers {
    /// Major or minor units.
    #[serde(default)]
    pub unit: Unit,
    /// The decimal mark.
    #[serde(default = "point")]
    pub decimal: char,
    /// The mark between groups of digits; without it a grouped number is an error.
    #[serde(default)]
    pub thousands: Option<char>,
    /// Signs of currencies that may stand beside a number; they say the currency where the row has no other word.
    #[serde(default)]
    pub signs: BTreeMap<char, String>,
}

fn point() -> char {
    '.'
}

impl Default for Numbers {
    fn default() -> Self {
        Numbers { unit: Unit::Major, decimal: '.', thousands: None, signs: BTreeMap::new() }
    }
}

/// Where an amount comes from.
#[derive(Debug, Clone, Deserialize, PartialEq, Eq)]
#[serde(untagged)]
pub enum AmountRule {
    /// One column or pointer.
    One(String),
    /// A sum; an empty part counts as nothing. `*` in a pointer takes every element of a list.
    Sum(SumRule),
}

/// The parts of a sum.
#[derive(Debug, Clone, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
pub struct SumRule {
    /// What is added.
    #[serde(default)]
    pub add: Vec<String>,
    /// What is taken off.
    #[serde(default)]
    pub sub: Vec<String>,
    /// The result changes its sign when this holds (a column that says debit or credit).
    #[serde(default)]
    pub minus_when: Condition,
}

/// Where the currency of the settled amounts comes from.
#[derive(Debug, Clone, Deserialize, PartialEq, Eq)]
#[serde(untagged)]
pub enum CurrencyRule {
    /// Columns or pointers.
    Text(TextRule),
    /// The file does not say it: this one, unless the source's configuration names another.
    Assumed {
        /// The code.
        assumed: String,
    },
}

/// What the customer was shown, where that is another currency than the settled one.
#[derive(Debug, Clone, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
pub struct ShownRule {
    /// The amount.
    pub amount: AmountRule,
    /// Its currency.
    pub currency: TextRule,
    /// The report's gross column is this amount (normalised rows then print it as gross, the settled one apart).
    #[serde(default)]
    pub is_gross: bool,
    /// Where both currencies are the same, the amount must equal the gross of the row, or the row is unreadable.
    #[serde(default)]
    pub must_agree: bool,
    /// Written without a sign: takes the sign of the gross.
    #[serde(default)]
    pub unsigned: bool,
}

/// When money moved.
#[derive(Debug, Clone, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
pub struct TimeRule {
    /// Where it stands; a template joins date and time.
    pub from: TextRule,
    /// `rfc3339` (also without the colon in the offset), `unix`, or patterns of `%Y %m %d %H %I %M %S %p %z` that are
    /// tried in order.
    #[serde(default = "rfc3339")]
    pub format: OneOrMany,
    /// The zone of a time without offset: `UTC`, an IANA name or an offset such as `+05:30`.
    #[serde(default)]
    pub zone: Option<String>,
    /// Where the row names its zone.
    #[serde(default)]
    pub zone_from: Option<String>,
    /// What the row's zone names mean: an IANA name or an offset. A name that is not listed must be an IANA name.
    #[serde(default)]
    pub zones: BTreeMap<String, String>,
    /// What a local time means that the clock shows twice in autumn.
    #[serde(default)]
    pub ambiguous: Ambiguous,
}

fn rfc3339() -> OneOrMany {
    OneOrMany::One("rfc3339".into())
}

/// The rule for the hour that autumn repeats.
#[derive(Debug, Clone, Copy, Deserialize, PartialEq, Eq, Default)]
#[serde(rename_all = "lowercase")]
pub enum Ambiguous {
    /// The row cannot be read.
    #[default]
    Error,
    /// The first pass (summer time); the line carries the other instant too.
    Earlier,
    /// The second pass (winter time); the line carries the other instant too.
    Later,
}

/// A kind, or one by the sign of the net amount.
#[derive(Debug, Clone, Deserialize, PartialEq, Eq)]
#[serde(untagged)]
pub enum KindValue {
    /// Always this one.
    One(String),
    /// By the sign; a sign that is not listed makes the kind unknown.
    BySign {
        /// Money in.
        #[serde(rename = "+")]
        plus: Option<String>,
        /// Money out.
        #[serde(rename = "-")]
        minus: Option<String>,
    },
}

/// Which kind a row is.
#[derive(Debug, Clone, Deserialize, PartialEq, Eq)]
#[serde(untagged)]
pub enum KindRule {
    /// All rows are of this kind.
    Always(String),
    /// By a value of the row.
    Mapped(KindMap),
}

/// Kinds by the provider's own words.
#[derive(Debug, Clone, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
pub struct KindMap {
    /// Where the words stand; the first alternative with a word that is listed decides.
    pub from: OneOrMany,
    /// Whole words.
    #[serde(default)]
    pub map: BTreeMap<String, KindValue>,
    /// Beginnings; the longest that fits counts.
    #[serde(default)]
    pub prefix: BTreeMap<String, KindValue>,
    /// Words are compared without case, underscores and blanks, and without what stands before `::`.
    #[serde(default)]
    pub loose: bool,
}

/// A deviation for some rows; the first whose condition holds counts, after the kind was found by the `kind` rule.
#[derive(Debug, Clone, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
pub struct Case {
    /// Which rows. May use `:kind` and `:sign`.
    pub when: Condition,
    /// Another kind.
    #[serde(default)]
    pub kind: Option<KindValue>,
    /// Another reference; the empty text takes it away.
    #[serde(default)]
    pub reference: Option<TextRule>,
    /// Another alternative reference; the empty text takes it away.
    #[serde(default)]
    pub ref_alt: Option<TextRule>,
    /// Another parent; the empty text takes it away.
    #[serde(default)]
    pub parent: Option<TextRule>,
    /// Such rows carry no id: see [`RowSpec::numbered`].
    #[serde(default)]
    pub numbered: Vec<String>,
    /// The row's amounts belong to the payment that `parent` names and are added to it before anything is compared.
    #[serde(default)]
    pub merge: bool,
}

/// Rows that are no movements, and why.
#[derive(Debug, Clone, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
pub struct Skip {
    /// Which rows.
    pub when: Condition,
    /// The reason, a template.
    pub why: String,
}

/// A second line that some rows hold (the refund that is a field of the order).
#[derive(Debug, Clone, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
pub struct Also {
    /// Which rows hold one.
    pub when: Condition,
    /// How to read it.
    pub row: RowSpec,
}

/// How one row becomes a report line.
#[derive(Debug, Clone, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
pub struct RowSpec {
    /// How numbers are written.
    #[serde(default)]
    pub numbers: Numbers,
    /// Currencies that this surface counts in another exponent than ISO 4217 (minor units only).
    #[serde(default)]
    pub exponents: BTreeMap<String, u8>,
    /// The currency of gross, tax, fee and net.
    #[serde(default)]
    pub currency: Option<CurrencyRule>,
    /// When money moved.
    #[serde(default)]
    pub time: Option<TimeRule>,
    /// When it can be paid out.
    #[serde(default)]
    pub available: Option<TimeRule>,
    /// The gross amount. Of gross, fee and net any two suffice, and all three must agree.
    #[serde(default)]
    pub gross: Option<AmountRule>,
    /// Tax that the provider keeps and remits.
    #[serde(default)]
    pub tax: Option<AmountRule>,
    /// The fee, positive where it is a cost.
    #[serde(default)]
    pub fee: Option<AmountRule>,
    /// What reaches the balance: gross − tax − fee.
    #[serde(default)]
    pub net: Option<AmountRule>,
    /// What the customer was shown.
    #[serde(default)]
    pub shown: Option<ShownRule>,
    /// The kind.
    pub kind: KindRule,
    /// Deviations.
    #[serde(default)]
    pub case: Vec<Case>,
    /// The provider's reference of the movement.
    #[serde(default)]
    pub reference: Option<TextRule>,
    /// Another name of the same movement.
    #[serde(default)]
    pub ref_alt: Option<TextRule>,
    /// The movement that this one belongs to.
    #[serde(default)]
    pub parent: Option<TextRule>,
    /// The provider's id of the row itself: the same id again, with the same amounts, is the same row.
    #[serde(default)]
    pub line_ref: Option<TextRule>,
    /// The payout that carried it.
    #[serde(default)]
    pub payout: Option<TextRule>,
    /// The merchant's order, where no id of the movement stands in the row.
    #[serde(default)]
    pub order: Option<TextRule>,
    /// Rows without an id: the reference is these texts and the ordinal of equal ones in this file, joined by `/`;
    /// what is empty or repeats an earlier part is left out.
    #[serde(default)]
    pub numbered: Vec<String>,
    /// In the report, and the object has not succeeded yet.
    #[serde(default)]
    pub pending: Condition,
    /// The amounts are totals so far of the parent, not of one movement.
    #[serde(default)]
    pub running_total: bool,
    /// Rows that are no movements; the first that fits gives the reason.
    #[serde(default)]
    pub skip: Vec<Skip>,
    /// Only rows like this are movements; all others are skipped for its reason.
    #[serde(default)]
    pub only: Option<Skip>,
    /// A row whose gross and net are zero is no movement, for this reason.
    #[serde(default)]
    pub skip_zero: Option<String>,
    /// Second lines.
    #[serde(default)]
    pub also: Vec<Also>,
}
