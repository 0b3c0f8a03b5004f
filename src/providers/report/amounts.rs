//! Amounts of reports: grouped digits, decimal commas, signs of currencies, exponents that differ from ISO 4217.
//!
//! Exact or an error; nothing is rounded and no separator is guessed.

use super::rules::{Numbers, Unit};
use crate::money::{self, AmountError, Currency};
use std::collections::BTreeMap;

/// Why a text is no amount, and what it looked like.
pub(super) fn read(
    text: &str,
    numbers: &Numbers,
    exponents: &BTreeMap<String, u8>,
    currency: Currency,
) -> Result<i64, String> {
    let iso = currency.exponent();
    let wire = match numbers.unit {
        Unit::Major => iso,
        Unit::Minor => exponents.get(currency.code()).copied().unwrap_or(iso),
    };
    let units = match numbers.unit {
        Unit::Major => decimal(text, numbers, iso)?,
        Unit::Minor => decimal(text, numbers, 0)?,
    };
    rescale(units, wire, iso).ok_or_else(|| format!("{text:?} is not a whole number of the smallest {currency} unit"))
}

fn rescale(units: i64, wire: u8, iso: u8) -> Option<i64> {
    if wire <= iso {
        return units.checked_mul(10i64.checked_pow((iso - wire).into())?).filter(|n| n.abs() <= money::AMOUNT_MAX);
    }
    let by = 10i64.checked_pow((wire - iso).into())?;
    (units % by == 0).then_some(units / by)
}

fn decimal(text: &str, numbers: &Numbers, exponent: u8) -> Result<i64, String> {
    if let Some(fast) = plain(text.as_bytes(), numbers.decimal, exponent) {
        return Ok(fast);
    }
    let bad = |why: &str| format!("{text:?} is no amount: {why}");
    let cleaned = ungroup(text, numbers).map_err(|why| bad(&why))?;
    money::decimal_to_minor(&cleaned, exponent).map_err(|e| match e {
        AmountError::Malformed => bad(&format!(
            "expected digits with {:?} as the decimal mark{}",
            numbers.decimal,
            numbers.thousands.map(|t| format!(" and {t:?} between groups")).unwrap_or_default()
        )),
        other => bad(&format!("it {other}")),
    })
}

/// The common case without an allocation: an optional minus, digits, at most one mark, no more decimals than fit.
fn plain(text: &[u8], mark: char, exponent: u8) -> Option<i64> {
    let (negative, digits) = match text.split_first()? {
        (b'-', rest) => (true, rest),
        _ => (false, text),
    };
    if digits.is_empty() || digits.len() > 15 {
        return None;
    }
    let mark = u8::try_from(mark).ok()?;
    let (mut value, mut decimals, mut whole) = (0i64, None::<u8>, 0u8);
    for &byte in digits {
        match byte {
            b'0'..=b'9' => {
                value = value * 10 + i64::from(byte - b'0');
                match &mut decimals {
                    Some(n) => *n += 1,
                    None => whole += 1,
                }
            }
            b if b == mark && decimals.is_none() && whole > 0 => decimals = Some(0),
            _ => return None,
        }
    }
    let missing = match decimals {
        Some(0) => return None,
        Some(n) if n > exponent => return None,
        Some(n) => exponent - n,
        None => exponent,
    };
    let value = value.checked_mul(10i64.checked_pow(missing.into())?)?;
    (value <= money::AMOUNT_MAX).then_some(if negative { -value } else { value })
}

/// `-$1,234.56`, `1.234,56 €` or `(12.00)` is refused or becomes `-1234.56`, `1234.56`.
fn ungroup(text: &str, numbers: &Numbers) -> Result<String, String> {
    let mut rest = text.trim();
    let mut negative = false;
    loop {
        let Some(first) = rest.chars().next() else { return Err("it has no digits".into()) };
        if (first == '-' || first == '\u{2212}') && !negative {
            negative = true;
        } else if first != '+' && !numbers.signs.contains_key(&first) && !first.is_whitespace() {
            break;
        }
        rest = &rest[first.len_utf8()..];
    }
    let rest = rest.trim_end_matches(|c: char| numbers.signs.contains_key(&c) || c.is_whitespace());
    let (whole, fraction) = match rest.split_once(numbers.decimal) {
        Some((whole, fraction)) => (whole, Some(fraction)),
        None => (rest, None),
    };
    let mut out = String::with_capacity(rest.len() + 1);
    if negative {
        out.push('-');
    }
    match numbers.thousands {
        Some(mark) if whole.contains(mark) => {
            let groups: Vec<&str> = whole.split(mark).collect();
            let last = groups.len() - 1;
            // three digits a group; two in the inner ones of the Indian way of writing
            let fits = groups.iter().enumerate().all(|(n, g)| match n {
                0 => (1..=3).contains(&g.len()),
                n if n == last => g.len() == 3,
                _ => g.len() == 3 || g.len() == 2,
            });
            if !fits {
                return Err(format!("{mark:?} does not stand between groups of three digits"));
            }
            groups.iter().for_each(|g| out.push_str(g));
        }
        _ => out.push_str(whole),
    }
    if let Some(fraction) = fraction {
        out.push('.');
        out.push_str(fraction);
    }
    Ok(out)
}

/// The currency that a sign beside the number says.
pub(super) fn sign_of(text: &str, numbers: &Numbers) -> Option<Currency> {
    text.chars().find_map(|c| numbers.signs.get(&c)).and_then(|code| Currency::parse(code))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cur(code: &str) -> Currency {
        Currency::parse(code).unwrap()
    }

    fn us() -> Numbers {
        Numbers { thousands: Some(','), signs: [('$', "USD".to_string())].into(), ..Numbers::default() }
    }

    fn de() -> Numbers {
        Numbers { decimal: ',', thousands: Some('.'), signs: [('€', "EUR".to_string())].into(), ..Numbers::default() }
    }

    #[test]
    fn grouped_and_signed_numbers_are_read_exactly() {
        let read = |text, numbers: &Numbers, code| super::read(text, numbers, &BTreeMap::new(), cur(code));
        assert_eq!(read("-$1,234.56", &us(), "USD"), Ok(-123456));
        assert_eq!(read("$0.15", &us(), "USD"), Ok(15));
        assert_eq!(read("52,025", &us(), "JPY"), Ok(52025));
        assert_eq!(read("12,34,567.80", &us(), "INR"), Ok(123456780));
        assert_eq!(read("1.613,04", &de(), "EUR"), Ok(161304));
        assert_eq!(read("-1.613,04 €", &de(), "EUR"), Ok(-161304));
        assert_eq!(read("1.0", &Numbers::default(), "INR"), Ok(100));
        assert_eq!(read("35.860", &Numbers::default(), "KWD"), Ok(35860));
    }

    #[test]
    fn a_number_in_the_other_notation_is_refused_and_not_guessed() {
        let read = |text, numbers: &Numbers| super::read(text, numbers, &BTreeMap::new(), cur("USD"));
        for (text, numbers) in
            [("1.613,04", us()), ("12,34", us()), ("1,234.56", de()), ("1,000.00", Numbers::default())]
        {
            assert!(read(text, &numbers).is_err(), "{text} was read as {:?}", read(text, &numbers));
        }
        assert!(read("10.001", &us()).is_err());
        assert!(read("abc", &us()).is_err());
        assert!(read("--1", &us()).is_err());
    }

    #[test]
    fn minor_units_follow_the_providers_exponent_and_end_as_iso() {
        let minor = Numbers { unit: Unit::Minor, ..Numbers::default() };
        let exponents: BTreeMap<String, u8> = [("HUF".into(), 0), ("ISK".into(), 2)].into();
        assert_eq!(read("88470", &minor, &exponents, cur("HUF")), Ok(8847000));
        assert_eq!(read("51999", &minor, &exponents, cur("JPY")), Ok(51999));
        assert_eq!(read("1200", &minor, &exponents, cur("ISK")), Ok(12));
        assert!(read("1250", &minor, &exponents, cur("ISK")).is_err());
        assert!(read("12.5", &minor, &exponents, cur("USD")).is_err());
    }
}
