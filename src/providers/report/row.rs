//! Evaluates the rules of `rules.rs` on one row: a CSV record or a JSON object.
//!
//! Rules are bound once (names become columns or pointers), then run for every row. A row becomes a line, is skipped
//! for a stated reason, or is an error with the column that caused it; it never becomes a guess.

use super::cells::{Cells, Field, Found, Names, Template, Test, Text};
use super::rules::*;
use super::times::{Clock, Instant};
use super::{ReadOptions, ReportLine, amounts};
use crate::money::{Currency, Money};
use std::borrow::Cow;
use std::collections::HashMap;

/// Why a row is unreadable: the column or pointer, and what is wrong with it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Fault {
    pub column: Option<String>,
    pub problem: String,
}

fn fault(column: &str, problem: impl Into<String>) -> Fault {
    Fault { column: Some(column.to_owned()), problem: problem.into() }
}

/// What one row gave: a line, and more where the rules say `also`; or why it is no movement.
pub(crate) type Outcome = Result<(ReportLine, Vec<ReportLine>), String>;

#[derive(Debug, Clone)]
struct Amount {
    parts: Vec<(String, Field, bool)>,
    turn: Test,
}

impl Amount {
    fn bind(rule: &AmountRule, names: &Names) -> Result<Amount, String> {
        let (add, sub, turn) = match rule {
            AmountRule::One(one) => (std::slice::from_ref(one), &[][..], Test::default()),
            AmountRule::Sum(sum) => (&sum.add[..], &sum.sub[..], Test::bind(&sum.minus_when, names)?),
        };
        let mut parts = Vec::new();
        for (list, minus) in [(add, false), (sub, true)] {
            for name in list {
                parts.push((name.clone(), names.field(name)?, minus));
            }
        }
        Ok(Amount { parts, turn })
    }

    /// The sum, and whether any part of it was written at all.
    fn get(&self, cells: Cells, row: &Row, currency: Currency) -> Result<(i64, bool), Fault> {
        let (mut sum, mut written) = (0i64, false);
        for (name, field, minus) in &self.parts {
            cells
                .each(field, &mut |text| {
                    let value = amounts::read(&text, &row.numbers, &row.exponents, currency)?;
                    sum = sum
                        .checked_add(if *minus { -value } else { value })
                        .filter(|s| s.abs() <= crate::money::AMOUNT_MAX)
                        .ok_or("the sum is larger than 10^15 minor units")?;
                    written = true;
                    Ok(())
                })
                .map_err(|problem| fault(name, problem))?;
        }
        if !self.turn.is_empty() && self.turn.holds(cells, Found::default()) {
            sum = -sum;
        }
        Ok((sum, written))
    }

    fn column(&self) -> &str {
        self.parts.first().map_or("", |(name, ..)| name)
    }
}

#[derive(Debug, Clone)]
struct When {
    from: Text,
    zone: Option<Field>,
    clock: Clock,
}

impl When {
    fn bind(rule: &TimeRule, names: &Names) -> Result<When, String> {
        Ok(When {
            from: Text::bind(&rule.from, names)?,
            zone: rule.zone_from.as_deref().map(|z| names.field(z)).transpose()?,
            clock: Clock::new(rule)?,
        })
    }

    fn get(&mut self, cells: Cells) -> Result<Option<Instant>, Fault> {
        let Some(text) = self.from.get(cells, Found::default()) else { return Ok(None) };
        let zone = self.zone.as_ref().and_then(|field| cells.get(field, Found::default()));
        let instant = self.clock.read(&text, zone.as_deref()).map_err(|p| fault(self.from.column(), p))?;
        Ok(Some(instant))
    }
}

#[derive(Debug, Clone)]
struct Kinds {
    from: Vec<Template>,
    map: HashMap<String, KindValue>,
    prefix: Vec<(String, KindValue)>,
    loose: bool,
    always: Option<String>,
}

fn loosen(text: &str) -> String {
    let text = text.rsplit_once("::").map_or(text, |(_, tail)| tail);
    text.chars().filter(|c| *c != '_' && *c != ' ').flat_map(char::to_lowercase).collect()
}

impl Kinds {
    fn bind(rule: &KindRule, names: &Names) -> Result<Kinds, String> {
        let rule = match rule {
            KindRule::Always(kind) => {
                let (from, map, prefix) = Default::default();
                return Ok(Kinds { from, map, prefix, loose: false, always: Some(kind.clone()) });
            }
            KindRule::Mapped(map) => map,
        };
        let key = |text: &String| if rule.loose { loosen(text) } else { text.clone() };
        let mut prefix: Vec<_> = rule.prefix.iter().map(|(k, v)| (key(k), v.clone())).collect();
        prefix.sort_by_key(|(text, _)| std::cmp::Reverse(text.len()));
        Ok(Kinds {
            from: rule.from.all().iter().map(|t| Template::bind(t, names)).collect::<Result<_, _>>()?,
            map: rule.map.iter().map(|(k, v)| (key(k), v.clone())).collect(),
            prefix,
            loose: rule.loose,
            always: None,
        })
    }

    /// The kind, or `adjustment` and the provider's word where no rule knows it.
    fn get(&self, cells: Cells, negative: bool) -> (String, Option<String>) {
        if let Some(kind) = &self.always {
            return (kind.clone(), None);
        }
        let mut unknown = None;
        for from in &self.from {
            let Some(word) = from.get(cells, Found::default()) else { continue };
            let key = if self.loose { Cow::Owned(loosen(&word)) } else { Cow::Borrowed(&*word) };
            let value = self
                .map
                .get(&*key)
                .or_else(|| self.prefix.iter().find(|(p, _)| key.starts_with(p.as_str())).map(|(_, v)| v));
            if let Some(kind) = value.and_then(|v| by_sign(v, negative)) {
                return (kind.to_owned(), None);
            }
            unknown.get_or_insert_with(|| word.into_owned());
        }
        ("adjustment".into(), Some(unknown.unwrap_or_default()))
    }
}

fn by_sign(value: &KindValue, negative: bool) -> Option<&str> {
    match value {
        KindValue::One(kind) => Some(kind),
        KindValue::BySign { minus, .. } if negative => minus.as_deref(),
        KindValue::BySign { plus, .. } => plus.as_deref(),
    }
}

#[derive(Debug, Clone)]
struct Deviation {
    when: Test,
    kind: Option<KindValue>,
    reference: Option<Text>,
    ref_alt: Option<Text>,
    parent: Option<Text>,
    numbered: Vec<Template>,
    merge: bool,
}

#[derive(Debug, Clone)]
enum CurrencyFrom {
    Text(Text),
    Assumed(Currency),
    /// The sign beside the gross amount.
    Sign,
}

#[derive(Debug, Clone)]
struct Shown {
    amount: Amount,
    currency: Text,
    must_agree: bool,
    unsigned: bool,
}

/// Bound rules for one kind of row.
#[derive(Debug, Clone)]
pub(crate) struct Row {
    numbers: Numbers,
    exponents: std::collections::BTreeMap<String, u8>,
    currency: CurrencyFrom,
    time: Option<When>,
    available: Option<When>,
    gross: Option<Amount>,
    tax: Option<Amount>,
    fee: Option<Amount>,
    net: Option<Amount>,
    shown: Option<Shown>,
    kind: Kinds,
    cases: Vec<Deviation>,
    reference: Option<Text>,
    ref_alt: Option<Text>,
    parent: Option<Text>,
    line_ref: Option<Text>,
    payout: Option<Text>,
    order: Option<Text>,
    numbered: Vec<Template>,
    pending: Test,
    running_total: bool,
    skip: Vec<(Test, Template)>,
    only: Option<(Test, Template)>,
    skip_zero: Option<String>,
    also: Vec<(Test, Row)>,
    ordinals: HashMap<String, u32>,
}

fn texts(rule: &Option<TextRule>, names: &Names) -> Result<Option<Text>, String> {
    rule.as_ref().map(|rule| Text::bind(rule, names)).transpose()
}

fn templates(list: &[String], names: &Names) -> Result<Vec<Template>, String> {
    list.iter().map(|text| Template::bind(text, names)).collect()
}

impl Row {
    /// Binds the rules to the names of a file. The error names the rule's name that the file lacks.
    pub(crate) fn bind(spec: &RowSpec, names: &Names, options: &ReadOptions) -> Result<Row, String> {
        let amount = |rule: &Option<AmountRule>| rule.as_ref().map(|r| Amount::bind(r, names)).transpose();
        let when = |rule: &Option<TimeRule>| rule.as_ref().map(|r| When::bind(r, names)).transpose();
        let currency = match &spec.currency {
            Some(CurrencyRule::Text(rule)) => CurrencyFrom::Text(Text::bind(rule, names)?),
            Some(CurrencyRule::Assumed { assumed }) => CurrencyFrom::Assumed(match options.currency {
                Some(given) => given,
                None => Currency::parse(assumed).ok_or_else(|| format!("{assumed:?} is no currency"))?,
            }),
            None => match options.currency {
                Some(given) => CurrencyFrom::Assumed(given),
                None => CurrencyFrom::Sign,
            },
        };
        let time = match (&spec.time, &options.zone) {
            (Some(rule), Some(zone)) if rule.zone.is_some() => {
                Some(When::bind(&TimeRule { zone: Some(zone.clone()), ..rule.clone() }, names)?)
            }
            _ => when(&spec.time)?,
        };
        let mut cases = Vec::new();
        for case in &spec.case {
            cases.push(Deviation {
                when: Test::bind(&case.when, names)?,
                kind: case.kind.clone(),
                reference: texts(&case.reference, names)?,
                ref_alt: texts(&case.ref_alt, names)?,
                parent: texts(&case.parent, names)?,
                numbered: templates(&case.numbered, names)?,
                merge: case.merge,
            });
        }
        let shown = match &spec.shown {
            None => None,
            Some(rule) => Some(Shown {
                amount: Amount::bind(&rule.amount, names)?,
                currency: Text::bind(&rule.currency, names)?,
                must_agree: rule.must_agree,
                unsigned: rule.unsigned,
            }),
        };
        let mut also = Vec::new();
        for second in &spec.also {
            also.push((Test::bind(&second.when, names)?, Row::bind(&second.row, names, options)?));
        }
        let mut skip = Vec::new();
        for rule in &spec.skip {
            skip.push((Test::bind(&rule.when, names)?, Template::bind_text(&rule.why, names)?));
        }
        let only = match &spec.only {
            Some(rule) => Some((Test::bind(&rule.when, names)?, Template::bind_text(&rule.why, names)?)),
            None => None,
        };
        Ok(Row {
            numbers: spec.numbers.clone(),
            exponents: spec.exponents.clone(),
            currency,
            time,
            available: when(&spec.available)?,
            gross: amount(&spec.gross)?,
            tax: amount(&spec.tax)?,
            fee: amount(&spec.fee)?,
            net: amount(&spec.net)?,
            shown,
            kind: Kinds::bind(&spec.kind, names)?,
            cases,
            reference: texts(&spec.reference, names)?,
            ref_alt: texts(&spec.ref_alt, names)?,
            parent: texts(&spec.parent, names)?,
            line_ref: texts(&spec.line_ref, names)?,
            payout: texts(&spec.payout, names)?,
            order: texts(&spec.order, names)?,
            numbered: templates(&spec.numbered, names)?,
            pending: Test::bind(&spec.pending, names)?,
            running_total: spec.running_total,
            skip,
            only,
            skip_zero: spec.skip_zero.clone(),
            also,
            ordinals: HashMap::new(),
        })
    }

    /// Reads one row. `line` and `record` are only passed on.
    pub(crate) fn read(&mut self, cells: Cells, line: u64, record: u64) -> Result<Outcome, Fault> {
        let none = Found::default();
        let skip = self.skip.iter().find(|(test, _)| test.holds(cells, none));
        let skip = skip.or_else(|| self.only.as_ref().filter(|(test, _)| !test.holds(cells, none)));
        if let Some((_, why)) = skip {
            let why = why.get(cells, none);
            return Ok(Err(why.map_or_else(|| "no movement".into(), Cow::into_owned)));
        }
        let first = match self.line(cells, line, record)? {
            Ok(first) => first,
            Err(why) => return Ok(Err(why)),
        };
        let mut more = Vec::new();
        if !self.also.is_empty() {
            let mut also = std::mem::take(&mut self.also);
            let seconds = also.iter_mut().filter(|(test, _)| test.holds(cells, none));
            let outcome = seconds
                .map(|(_, row)| row.line(cells, line, record))
                .try_for_each(|read| read.map(|second| more.extend(second.ok())));
            self.also = also;
            outcome?;
        }
        Ok(Ok((first, more)))
    }

    fn currency(&self, cells: Cells) -> Result<Currency, Fault> {
        match &self.currency {
            CurrencyFrom::Assumed(currency) => Ok(*currency),
            CurrencyFrom::Text(text) => {
                let code = text.get(cells, Found::default());
                let code = code.ok_or_else(|| fault(text.column(), "there is no currency"))?;
                Currency::parse(&code).ok_or_else(|| fault(text.column(), format!("{code:?} is no currency we know")))
            }
            CurrencyFrom::Sign => {
                let amount = self.gross.as_ref().or(self.net.as_ref());
                let (name, field, _) = amount
                    .and_then(|a| a.parts.first())
                    .ok_or_else(|| fault("currency", "nothing says the currency: the caller must name it"))?;
                let text = cells.get(field, Found::default()).unwrap_or_default();
                amounts::sign_of(&text, &self.numbers)
                    .ok_or_else(|| fault(name, format!("{text:?} has no currency sign we know: name the currency")))
            }
        }
    }

    /// Gross, tax, fee and net; what is not written follows from the others, and all must agree.
    fn amounts(&self, cells: Cells, currency: Currency) -> Result<(i64, i64, i64, i64), Fault> {
        let need = |amount: &Option<Amount>| match amount {
            None => Ok(None),
            Some(amount) => match amount.get(cells, self, currency)? {
                (value, true) => Ok(Some(value)),
                (_, false) => Err(fault(amount.column(), "there is no amount")),
            },
        };
        let optional = |amount: &Option<Amount>| {
            amount.as_ref().map(|a| a.get(cells, self, currency).map(|(value, _)| value)).transpose()
        };
        let (gross, net) = (need(&self.gross)?, need(&self.net)?);
        let (tax, fee) = (optional(&self.tax)?.unwrap_or(0), optional(&self.fee)?);
        Ok(match (gross, fee, net) {
            (Some(gross), Some(fee), Some(net)) if gross - tax - fee != net => {
                let column = self.net.as_ref().map_or("", Amount::column);
                return Err(fault(column, format!("gross {gross} − tax {tax} − fee {fee} is not net {net}")));
            }
            (Some(gross), Some(fee), _) => (gross, tax, fee, gross - tax - fee),
            (Some(gross), None, Some(net)) => (gross, tax, gross - tax - net, net),
            (None, Some(fee), Some(net)) => (net + fee + tax, tax, fee, net),
            (Some(gross), None, None) => (gross, tax, 0, gross - tax),
            (None, None, Some(net)) => (net + tax, tax, 0, net),
            (None, _, None) => return Err(fault("gross", "the report's rules name neither gross nor net")),
        })
    }

    fn shown(&self, cells: Cells, currency: Currency, gross: i64) -> Result<Option<Money>, Fault> {
        let Some(rule) = &self.shown else { return Ok(None) };
        let Some(code) = rule.currency.get(cells, Found::default()) else { return Ok(None) };
        let shown = Currency::parse(&code)
            .ok_or_else(|| fault(rule.currency.column(), format!("{code:?} is no currency we know")))?;
        if shown == currency && !rule.must_agree {
            return Ok(None);
        }
        let (mut minor, written) = rule.amount.get(cells, self, shown)?;
        if !written {
            return Ok(None);
        }
        if rule.unsigned && gross < 0 {
            minor = -minor;
        }
        if shown != currency {
            return Ok(Some(Money { minor, currency: shown }));
        }
        if minor != gross {
            let problem = format!("{minor} is not the gross {gross} that follows from the other columns");
            return Err(fault(rule.amount.column(), problem));
        }
        Ok(None)
    }

    /// One line, or (inner error) why the row is no movement.
    fn line(&mut self, cells: Cells, line: u64, record: u64) -> Result<Result<ReportLine, String>, Fault> {
        let currency = self.currency(cells)?;
        let (gross, tax, fee, net) = self.amounts(cells, currency)?;
        if let Some(why) = &self.skip_zero
            && gross == 0
            && net == 0
        {
            return Ok(Err(why.clone()));
        }
        let negative = net < 0 || (net == 0 && gross < 0);
        let (mut kind, mut unknown_kind) = self.kind.get(cells, negative);
        let found = Found { kind: &kind, negative };
        let case = self.cases.iter().find(|case| case.when.holds(cells, found));
        if let Some(value) = case.and_then(|c| c.kind.as_ref()) {
            match by_sign(value, negative) {
                Some(other) => (kind, unknown_kind) = (other.to_owned(), None),
                None => unknown_kind = Some(format!("{kind} with this sign")),
            }
        }
        let found = Found { kind: &kind, negative };
        let text = |special: Option<&Option<Text>>, usual: &Option<Text>| {
            special.and_then(Option::as_ref).or(usual.as_ref()).and_then(|t| t.get(cells, found)).map(Cow::into_owned)
        };
        let numbered = match case {
            Some(case) if !case.numbered.is_empty() => &case.numbered,
            _ => &self.numbered,
        };
        let own_id = case.is_none_or(|c| c.numbered.is_empty());
        let mut reference = if own_id { text(case.map(|c| &c.reference), &self.reference) } else { None };
        let mut line_ref = if own_id { text(None, &self.line_ref) } else { None };
        if reference.is_none() && !numbered.is_empty() {
            let mut parts: Vec<Cow<str>> = Vec::new();
            for part in numbered.iter().filter_map(|t| t.get(cells, found)) {
                if !parts.contains(&part) {
                    parts.push(part);
                }
            }
            let base = parts.join("/");
            let ordinal = self.ordinals.entry(base.clone()).or_insert(0);
            *ordinal += 1;
            reference = Some(format!("{base}/{ordinal}"));
            line_ref = line_ref.or_else(|| reference.clone());
        }
        let ref_alt = text(case.map(|c| &c.ref_alt), &self.ref_alt).filter(|alt| reference.as_ref() != Some(alt));
        let parent = text(case.map(|c| &c.parent), &self.parent).filter(|parent| reference.as_ref() != Some(parent));
        let order = text(None, &self.order);
        let payout_ref = text(None, &self.payout);
        let merge = case.is_some_and(|c| c.merge);
        let shown = self.shown(cells, currency, gross)?;
        let pending = !self.pending.is_empty() && self.pending.holds(cells, found);
        let occurred = match &mut self.time {
            Some(when) => Some(when.get(cells)?.ok_or_else(|| fault(when.from.column(), "there is no time"))?),
            None => None,
        };
        let available_at = match &mut self.available {
            Some(when) => when.get(cells)?.map(|(at, _)| at),
            None => None,
        };
        Ok(Ok(ReportLine {
            line,
            record,
            line_ref,
            kind,
            unknown_kind,
            reference,
            ref_alt,
            parent,
            gross,
            tax,
            fee,
            net,
            currency,
            shown,
            occurred_at: occurred.map(|(at, _)| at),
            occurred_or: occurred.and_then(|(_, other)| other),
            available_at,
            payout_ref,
            order,
            pending,
            merge,
            running_total: self.running_total,
        }))
    }
}
