//! Money: integers in minor units with their ISO 4217 currency.
//!
//! Never a float, also not for a moment: amounts enter as the text that was sent and leave as text. A conversion that
//! is not exact is an error for the caller to park; nothing is rounded, save estimates by a function that says so.

use std::fmt;

/// The largest amount of one posting and the largest counter of an account (10^15 minor units): small enough that a
/// stray double anywhere downstream still holds it exactly.
pub const AMOUNT_MAX: i64 = 1_000_000_000_000_000;

/// Currencies whose exponent is not 2, and codes that are no longer issued but still appear in late refunds.
const NOT_TWO: &[(&str, u8)] = &[
    ("BIF", 0),
    ("CLP", 0),
    ("DJF", 0),
    ("GNF", 0),
    ("ISK", 0),
    ("JPY", 0),
    ("KMF", 0),
    ("KRW", 0),
    ("PYG", 0),
    ("RWF", 0),
    ("UGX", 0),
    ("UYI", 0),
    ("VND", 0),
    ("VUV", 0),
    ("XAF", 0),
    ("XOF", 0),
    ("XPF", 0),
    ("BHD", 3),
    ("IQD", 3),
    ("JOD", 3),
    ("KWD", 3),
    ("LYD", 3),
    ("OMR", 3),
    ("TND", 3),
    ("CLF", 4),
    ("UYW", 4),
];

/// Two-decimal codes of ISO 4217; the last line holds withdrawn ones (BGN 2026, HRK 2023, ANG 2025, ZWL 2024,
/// SLL 2024, MRO 2018), kept for refunds that come late.
const TWO: &str = "AED AFN ALL AMD AOA ARS AUD AWG AZN BAM BBD BDT BMD BND BOB BOV BRL BSD BTN BWP BYN BZD CAD CDF \
CHE CHF CHW CNY COP COU CRC CUP CVE CZK DKK DOP DZD EGP ERN ETB EUR FJD FKP GBP GEL GHS GIP GMD GTQ GYD HKD HNL HTG \
HUF IDR ILS INR IRR JMD KES KGS KHR KPW KYD KZT LAK LBP LKR LRD LSL MAD MDL MGA MKD MMK MNT MOP MRU MUR MVR MWK MXN \
MXV MYR MZN NAD NGN NIO NOK NPR NZD PAB PEN PGK PHP PKR PLN QAR RON RSD RUB SAR SBD SCR SDG SEK SGD SHP SLE SOS SRD \
SSP STN SVC SYP SZL THB TJS TMT TOP TRY TTD TWD TZS UAH USD USN UYU UZS VED VES WST XAD XCD XCG YER ZAR ZMW ZWG \
BGN HRK ANG ZWL SLL MRO";

/// No such code.
const UNKNOWN: u8 = u8::MAX;

/// Exponents by the three letters: looked up for every amount that is read or shown.
static EXPONENTS: [u8; 26 * 26 * 26] = {
    const fn place(code: &[u8], at: usize) -> usize {
        (((code[at] - b'A') as usize) * 26 + (code[at + 1] - b'A') as usize) * 26 + (code[at + 2] - b'A') as usize
    }
    let mut table = [UNKNOWN; 26 * 26 * 26];
    let (two, mut at) = (TWO.as_bytes(), 0);
    while at < two.len() {
        table[place(two, at)] = 2;
        at += 4;
    }
    let mut at = 0;
    while at < NOT_TWO.len() {
        table[place(NOT_TWO[at].0.as_bytes(), 0)] = NOT_TWO[at].1;
        at += 1;
    }
    table
};

/// A currency that the table knows. Anything else is "unknown currency" and parks its event.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Currency([u8; 3]);

impl Currency {
    /// Reads an alphabetic code in any case, with blanks around it tolerated; `None` for a code ISO 4217 lacks.
    pub fn parse(text: &str) -> Option<Currency> {
        let mut code: [u8; 3] = text.trim().as_bytes().try_into().ok()?;
        code.make_ascii_uppercase();
        let currency = Currency(code);
        currency.lookup().map(|_| currency)
    }

    fn lookup(&self) -> Option<u8> {
        let letter = |at: usize| self.0[at].is_ascii_uppercase().then(|| usize::from(self.0[at] - b'A'));
        let at = (letter(0)? * 26 + letter(1)?) * 26 + letter(2)?;
        Some(EXPONENTS[at]).filter(|exponent| *exponent != UNKNOWN)
    }

    /// The upper-case code.
    pub fn code(&self) -> &str {
        std::str::from_utf8(&self.0).expect("a currency is three ASCII letters")
    }

    /// ISO 4217 decimals: JPY 0, USD 2, KWD 3.
    pub fn exponent(&self) -> u8 {
        self.lookup().expect("a currency is only made from the table")
    }
}

impl fmt::Display for Currency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.code())
    }
}

impl fmt::Debug for Currency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.code())
    }
}

/// An amount in minor units of its currency (ISO exponent). May be negative where the holder says so.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub struct Money {
    /// Minor units: cents, yen, fils.
    pub minor: i64,
    /// What they are units of.
    pub currency: Currency,
}

impl fmt::Display for Money {
    /// For people: `49.99 EUR`, `8000 JPY`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let exponent = self.currency.exponent() as usize;
        let sign = if self.minor < 0 { "-" } else { "" };
        let digits = format!("{:0>width$}", self.minor.unsigned_abs(), width = exponent + 1);
        let (whole, part) = digits.split_at(digits.len() - exponent);
        match exponent {
            0 => write!(f, "{sign}{whole} {}", self.currency),
            _ => write!(f, "{sign}{whole}.{part} {}", self.currency),
        }
    }
}

/// Why a text is no amount.
#[derive(Debug, PartialEq, Eq, Clone, Copy, thiserror::Error)]
pub enum AmountError {
    /// Not a plain decimal number (grouped digits, blanks inside, letters).
    #[error("not a plain decimal number")]
    Malformed,
    /// More decimals than the currency has, and they are not zeros.
    #[error("has a fraction of the smallest unit of its currency")]
    Inexact,
    /// Beyond [`AMOUNT_MAX`].
    #[error("is larger than 10^15 minor units")]
    TooLarge,
}

/// A decimal number as it was written: value = ±digits · 10^power.
struct Decimal<'t> {
    negative: bool,
    digits: std::borrow::Cow<'t, str>, // without leading zeros; empty for 0
    power: i64,
}

fn read_decimal(text: &str) -> Result<Decimal<'_>, AmountError> {
    let text = text.trim();
    let (negative, text) = match text.as_bytes().first() {
        Some(b'-') => (true, &text[1..]),
        Some(b'+') => (false, &text[1..]),
        _ => (false, text),
    };
    let (mantissa, power) = match text.find(['e', 'E']) {
        Some(at) => (&text[..at], text[at + 1..].parse::<i32>().map_err(|_| AmountError::Malformed)?),
        None => (text, 0),
    };
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let plain = |s: &str| s.bytes().all(|b| b.is_ascii_digit());
    if (whole.is_empty() && fraction.is_empty()) || !plain(whole) || !plain(fraction) || mantissa.ends_with('.') {
        return Err(AmountError::Malformed);
    }
    let power = i64::from(power) - fraction.len() as i64;
    let digits = match fraction {
        "" => std::borrow::Cow::Borrowed(whole.trim_start_matches('0')),
        _ => [whole, fraction].concat().trim_start_matches('0').to_owned().into(),
    };
    Ok(Decimal { negative, digits, power })
}

/// Reads a decimal number (`49.99`, `-5`, `1.2345E1`) into units of 10^-`exponent`, exactly or not at all.
pub fn decimal_to_minor(text: &str, exponent: u8) -> Result<i64, AmountError> {
    decimal_to_units(text, i32::from(exponent))
}

/// Like [`decimal_to_minor`], for any power of ten: with -2, `500000` is 5000 units of 10^2 (a provider that counts
/// hundredths of a currency that has none).
pub fn decimal_to_units(text: &str, exponent: i32) -> Result<i64, AmountError> {
    let Decimal { negative, digits, power } = read_decimal(text)?;
    if digits.is_empty() {
        return Ok(0);
    }
    let shift = power + i64::from(exponent);
    let cut = usize::try_from(-shift).unwrap_or(0);
    if cut >= digits.len() && cut > 0 || !digits[digits.len() - cut..].bytes().all(|b| b == b'0') {
        return Err(AmountError::Inexact);
    }
    if digits.len() as i64 + shift > 16 {
        return Err(AmountError::TooLarge);
    }
    let zeros = u32::try_from(shift).unwrap_or(0);
    let minor = digits[..digits.len() - cut].parse::<i64>().map_err(|_| AmountError::TooLarge)? * 10_i64.pow(zeros);
    if minor > AMOUNT_MAX {
        return Err(AmountError::TooLarge);
    }
    Ok(if negative { -minor } else { minor })
}

/// For senders whose numbers went through a binary float: drops what lies less than a hundred-thousandth of a unit
/// beside a whole number of units (`9.990000000000002` is 999 cents); anything else is inexact as ever.
pub fn float_to_units(text: &str, exponent: i32) -> Result<i64, AmountError> {
    nearest_units(text, exponent, 10)
}

/// For amounts that are estimates in the first place (the value of a coin in euros): the nearest whole number of units.
pub fn estimate_to_units(text: &str, exponent: i32) -> Result<i64, AmountError> {
    nearest_units(text, exponent, FINE_UNITS)
}

const FINE: i32 = 6;
const FINE_UNITS: i64 = 1_000_000;

/// The nearest whole number of units, if it is no more than `within` millionths of a unit away.
fn nearest_units(text: &str, exponent: i32, within: i64) -> Result<i64, AmountError> {
    let exact = decimal_to_units(text, exponent);
    if exact != Err(AmountError::Inexact) {
        return exact;
    }
    let Decimal { negative, digits, power } = read_decimal(text)?;
    // whatever lies below a millionth of a unit is cut off
    let cut = usize::try_from(-(power + i64::from(exponent + FINE))).unwrap_or(0).min(digits.len());
    let kept = &digits[..digits.len() - cut];
    let fine = match kept {
        "" => 0,
        _ => decimal_to_units(&format!("{kept}e{}", power + cut as i64), exponent + FINE)?,
    };
    let units = (fine + FINE_UNITS / 2) / FINE_UNITS;
    if (fine - units * FINE_UNITS).abs() > within {
        return Err(AmountError::Inexact);
    }
    Ok(if negative { -units } else { units })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn currencies_are_read_in_any_case_and_unknown_ones_are_refused() {
        for text in ["usd", "USD", "Usd", " usd "] {
            assert_eq!(Currency::parse(text).map(|c| c.code().to_owned()).as_deref(), Some("USD"));
        }
        for text in ["XXQ", "", "US", "XAU", "usdd", "ü$", " MR"] {
            assert_eq!(Currency::parse(text), None, "{text:?}");
        }
        let exponent = |c| Currency::parse(c).unwrap().exponent();
        assert_eq!(
            (exponent("JPY"), exponent("EUR"), exponent("KWD"), exponent("CLF"), exponent("MRO")),
            (0, 2, 3, 4, 2)
        );
    }

    #[test]
    fn decimals_become_minor_units_exactly_or_not_at_all() {
        assert_eq!(decimal_to_minor("49.99", 2), Ok(4999));
        assert_eq!(decimal_to_minor("63.0", 2), Ok(6300));
        assert_eq!(decimal_to_minor("63", 2), Ok(6300));
        assert_eq!(decimal_to_minor("-0.01", 2), Ok(-1));
        assert_eq!(decimal_to_minor("1.2345E1", 3), Ok(12345));
        assert_eq!(decimal_to_minor("1200e-2", 0), Ok(12));
        assert_eq!(decimal_to_minor("0.000", 0), Ok(0));
        assert_eq!(decimal_to_minor("8.000", 3), Ok(8000));
        assert_eq!(decimal_to_minor("9.990000000000002", 2), Err(AmountError::Inexact));
        assert_eq!(decimal_to_minor("0.001", 2), Err(AmountError::Inexact));
        assert_eq!(decimal_to_minor("1,000.00", 2), Err(AmountError::Malformed));
        for text in ["", ".", "-", "1.", "1 000", "0x10", "NaN", "1e", "1.0.0", "--1", "１"] {
            assert_eq!(decimal_to_minor(text, 2), Err(AmountError::Malformed), "{text:?}");
        }
        assert_eq!(decimal_to_minor("10000000000000", 2), Ok(AMOUNT_MAX));
        assert_eq!(decimal_to_minor("10000000000000.01", 2), Err(AmountError::TooLarge));
        assert_eq!(decimal_to_minor("1e400", 2), Err(AmountError::TooLarge));
    }

    #[test]
    fn a_wire_exponent_may_differ_from_that_of_the_currency() {
        assert_eq!(decimal_to_units("500000", -2), Ok(5000));
        assert_eq!(decimal_to_units("500001", -2), Err(AmountError::Inexact));
        assert_eq!(decimal_to_units("50", -2), Err(AmountError::Inexact));
        assert_eq!(decimal_to_units("50", 2), Ok(5000));
        assert_eq!(decimal_to_units("0", -2), Ok(0));
    }

    #[test]
    fn only_the_noise_of_a_float_is_dropped() {
        assert_eq!(float_to_units("9.990000000000002", 2), Ok(999));
        assert_eq!(float_to_units("9.989999999999998", 2), Ok(999));
        assert_eq!(float_to_units("-0.30000000000000004", 2), Ok(-30));
        assert_eq!(float_to_units("1.2345E1", 3), Ok(12345));
        assert_eq!(float_to_units("1e-20", 2), Ok(0));
        for text in ["9.995", "9.994", "9.9901", "0.001", "0.0000011"] {
            assert_eq!(float_to_units(text, 2), Err(AmountError::Inexact), "{text}");
        }
        assert_eq!(float_to_units("1,5", 2), Err(AmountError::Malformed));
    }

    #[test]
    fn only_estimates_are_rounded() {
        assert_eq!(estimate_to_units("40.004", 2), Ok(4000));
        assert_eq!(estimate_to_units("40.0051", 2), Ok(4001));
        assert_eq!(estimate_to_units("0.000000000000000001", 2), Ok(0));
        assert_eq!(estimate_to_units("-1.999", 2), Ok(-200));
        assert_eq!(estimate_to_units("99999999999999", 2), Err(AmountError::TooLarge));
    }

    #[test]
    fn money_is_shown_with_the_decimals_of_its_currency() {
        let show = |minor, code| Money { minor, currency: Currency::parse(code).unwrap() }.to_string();
        assert_eq!(show(4999, "EUR"), "49.99 EUR");
        assert_eq!(show(-5, "USD"), "-0.05 USD");
        assert_eq!(show(8000, "JPY"), "8000 JPY");
        assert_eq!(show(8000, "KWD"), "8.000 KWD");
    }
}
