//! The tables of a provider's file: `[[movement]]`, `[[entity]]`, `[[fetch]]`, `[[park]]`, each checked as a whole.
//!
//! A table that is wrong is remembered with its place in the file, so that the message can name the line.

use super::grammar::{
    AmountRule, Applies, Condition, EntityRule, Expr, FetchRule, KINDS, MovementRule, ParkRule, Place, Template,
    TimeRule, TypePattern,
};
use super::syntax::{Vec1, Word, place};
use serde::de::{Deserialize, DeserializeOwned, Deserializer, SeqAccess, Visitor};
use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;

/// A rule that is read from the fields of a table.
pub trait Table: Sized {
    /// The table as it is written.
    type Fields: DeserializeOwned;
    /// Checks the table; the error says what would be right.
    fn check(fields: Self::Fields) -> Result<Self, String>;
}

/// All tables of one name.
#[derive(Debug, Clone)]
pub struct Rules<T> {
    /// Those that are right.
    pub rules: Vec<T>,
    /// The first that is not: its place (byte) in the file, and what is wrong.
    pub wrong: Option<(usize, String)>,
}

impl<T> Default for Rules<T> {
    fn default() -> Self {
        Rules { rules: Vec::new(), wrong: None }
    }
}

impl<'de, T: Table> Deserialize<'de> for Rules<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct V<T>(PhantomData<T>);
        impl<'de, T: Table> Visitor<'de> for V<T> {
            type Value = Rules<T>;
            fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
                f.write_str("tables in double brackets, [[..]]")
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Rules<T>, A::Error> {
                let mut all = Rules::default();
                while let Some(table) = list.next_element::<toml::Spanned<T::Fields>>()? {
                    let at = table.span().start;
                    match T::check(table.into_inner()) {
                        Ok(rule) => all.rules.push(rule),
                        Err(problem) => all.wrong = all.wrong.or(Some((at, problem))),
                    }
                }
                Ok(all)
            }
        }
        deserializer.deserialize_seq(V(PhantomData))
    }
}

#[derive(serde::Deserialize, Default)]
#[serde(deny_unknown_fields)]
#[allow(missing_docs)] // the rule's own fields are documented
pub struct MovementFields {
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
#[allow(missing_docs)] // the rule's own fields are documented
pub struct EntityFields {
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
#[allow(missing_docs)] // the rule's own fields are documented
pub struct FetchFields {
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
#[allow(missing_docs)] // the rule's own fields are documented
pub struct ParkFields {
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

impl Table for ParkRule {
    type Fields = ParkFields;
    fn check(f: ParkFields) -> Result<ParkRule, String> {
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
    if let Some((at, _)) = each.first()
        && (*at == Place::Element || each[1..].iter().any(|(at, _)| *at != Place::Element))
    {
        return Err(
            "`each` goes from outer to inner: the first \"/array\" of the event, then \"./array\" of its elements"
                .into(),
        );
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

impl Table for MovementRule {
    type Fields = MovementFields;
    fn check(f: MovementFields) -> Result<MovementRule, String> {
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

impl Table for EntityRule {
    type Fields = EntityFields;
    fn check(f: EntityFields) -> Result<EntityRule, String> {
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

impl Table for FetchRule {
    type Fields = FetchFields;
    fn check(f: FetchFields) -> Result<FetchRule, String> {
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
