//! Times of reports: patterns, offsets, named zones, abbreviations, and the hour that autumn repeats.
//!
//! A time without offset and without zone is an error; so is one that its zone skips in spring.

use super::rules::{Ambiguous, TimeRule};
use crate::event::Millis;
use jiff::civil::DateTime;
use jiff::tz::{AmbiguousOffset, TimeZone};
use std::collections::HashMap;

/// A bound time rule.
#[derive(Debug, Clone)]
pub(super) struct Clock {
    formats: Vec<Format>,
    zone: Option<Zone>,
    zones: HashMap<String, Zone>,
    ambiguous: Ambiguous,
}

#[derive(Debug, Clone)]
enum Format {
    Rfc3339,
    Unix,
    Pattern(Vec<u8>),
}

/// A fixed offset is kept as seconds: most reports need no table of zones.
#[derive(Debug, Clone)]
enum Zone {
    Fixed(i64),
    Named(TimeZone),
}

/// An instant and, where the clock showed the time twice, the other one.
pub(super) type Instant = (Millis, Option<Millis>);

impl Clock {
    /// Checks the rule's formats and zones.
    pub(super) fn new(rule: &TimeRule) -> Result<Clock, String> {
        let formats = rule
            .format
            .all()
            .iter()
            .map(|format| match format.as_str() {
                "rfc3339" => Format::Rfc3339,
                "unix" => Format::Unix,
                pattern => Format::Pattern(pattern.as_bytes().to_vec()),
            })
            .collect();
        let mut zones = HashMap::new();
        for (name, meaning) in &rule.zones {
            zones.insert(name.clone(), zone(meaning)?);
        }
        Ok(Clock { formats, zone: rule.zone.as_deref().map(zone).transpose()?, zones, ambiguous: rule.ambiguous })
    }

    /// Reads a time; `zone_name` is what the row says about its zone.
    pub(super) fn read(&mut self, text: &str, zone_name: Option<&str>) -> Result<Instant, String> {
        let parsed = self.formats.iter().find_map(|format| match format {
            Format::Rfc3339 => pattern(b"%Y-%m-%dT%H:%M:%S", text.as_bytes()),
            Format::Pattern(p) => pattern(p, text.as_bytes()),
            Format::Unix => text.parse::<i64>().ok().filter(|s| s.unsigned_abs() < 1 << 36).map(|seconds| Parts {
                seconds,
                millis: 0,
                offset: Some(0),
            }),
        });
        let Some(parts) = parsed else { return Err(format!("{text:?} is no time as this report writes it")) };
        if let Some(offset) = parts.offset {
            return Ok(((parts.seconds - offset) * 1000 + parts.millis, None));
        }
        let zone = match zone_name {
            Some(name) => {
                if !self.zones.contains_key(name) {
                    let found = zone(name).map_err(|_| {
                        format!("zone {name:?} is not known: name it under `zones` in the provider's file")
                    })?;
                    self.zones.insert(name.to_owned(), found);
                }
                self.zones.get(name)
            }
            None => self.zone.as_ref(),
        };
        match zone {
            None => Err(format!("{text:?} has no offset, and the report's zone is not known")),
            Some(Zone::Fixed(offset)) => Ok(((parts.seconds - offset) * 1000 + parts.millis, None)),
            Some(Zone::Named(zone)) => local(parts, zone, self.ambiguous, text),
        }
    }
}

fn local(parts: Parts, zone: &TimeZone, ambiguous: Ambiguous, text: &str) -> Result<Instant, String> {
    let civil = jiff::Timestamp::from_second(parts.seconds)
        .map(|at| jiff::tz::Offset::UTC.to_datetime(at))
        .map_err(|e| format!("{text:?}: {e}"))?;
    let at = |offset: jiff::tz::Offset| (parts.seconds - i64::from(offset.seconds())) * 1000 + parts.millis;
    match zone.to_ambiguous_timestamp(civil).offset() {
        AmbiguousOffset::Unambiguous { offset } => Ok((at(offset), None)),
        AmbiguousOffset::Gap { .. } => Err(format!("{text:?} does not exist in its zone: clocks were put forward")),
        AmbiguousOffset::Fold { before, after } => match ambiguous {
            Ambiguous::Earlier => Ok((at(before), Some(at(after)))),
            Ambiguous::Later => Ok((at(after), Some(at(before)))),
            Ambiguous::Error => {
                Err(format!("{text:?} happened twice, clocks were put back: `ambiguous` says which one is meant"))
            }
        },
    }
}

/// `UTC`, `+05:30`, `-0800` or an IANA name.
fn zone(text: &str) -> Result<Zone, String> {
    if text == "UTC" || text == "GMT" || text == "Z" {
        return Ok(Zone::Fixed(0));
    }
    if let Some((offset, rest)) = offset(text.as_bytes())
        && rest.is_empty()
    {
        return Ok(Zone::Fixed(offset));
    }
    TimeZone::get(text).map(Zone::Named).map_err(|_| format!("{text:?} is neither an IANA zone nor an offset"))
}

/// Local seconds since the epoch, as if the time were UTC.
#[derive(Clone, Copy)]
struct Parts {
    seconds: i64,
    millis: i64,
    offset: Option<i64>,
}

fn digits(text: &[u8], most: usize) -> Option<(i64, &[u8])> {
    let n = text.iter().take(most).take_while(|b| b.is_ascii_digit()).count();
    (n > 0).then(|| (text[..n].iter().fold(0, |v, b| v * 10 + i64::from(b - b'0')), &text[n..]))
}

fn offset(text: &[u8]) -> Option<(i64, &[u8])> {
    let (sign, rest) = match text.split_first()? {
        (b'Z' | b'z', rest) => return Some((0, rest)),
        (b'+', rest) => (1, rest),
        (b'-', rest) => (-1, rest),
        _ => return None,
    };
    let (hours, rest) = digits(rest, 2)?;
    let rest = rest.strip_prefix(b":").unwrap_or(rest);
    let (minutes, rest) = digits(rest, 2).unwrap_or((0, rest));
    (hours < 24 && minutes < 60).then_some((sign * (hours * 3600 + minutes * 60), rest))
}

/// Reads `text` by a pattern. After the seconds a fraction and an offset may follow also when the pattern is silent.
fn pattern(pattern: &[u8], text: &[u8]) -> Option<Parts> {
    let (mut year, mut month, mut day, mut hour, mut minute, mut second) = (0, 1, 1, 0, 0, 0);
    let (mut afternoon, mut shift, mut millis) = (None, None, 0);
    let mut rest = text;
    let mut wanted = pattern.iter();
    while let Some(&byte) = wanted.next() {
        if byte != b'%' {
            let (&first, tail) = rest.split_first()?;
            if first != byte && !(byte == b'T' && (first == b' ' || first == b't')) {
                return None;
            }
            rest = tail;
            continue;
        }
        let field = *wanted.next()?;
        let number = |most| digits(rest, most);
        match field {
            b'Y' => (year, rest) = number(4).filter(|(y, _)| *y >= 1970)?,
            b'm' => (month, rest) = number(2)?,
            b'd' => (day, rest) = number(2)?,
            b'H' | b'I' => (hour, rest) = number(2)?,
            b'M' => (minute, rest) = number(2)?,
            b'S' => {
                (second, rest) = number(2)?;
                if let Some(tail) = rest.strip_prefix(b".")
                    && let Some((_, after)) = digits(tail, 9)
                {
                    let length = tail.len() - after.len();
                    let shown = &tail[..length.min(3)];
                    millis = digits(shown, 3)?.0 * 10i64.pow(3 - shown.len() as u32);
                    rest = after;
                }
            }
            b'p' => {
                let word = rest.get(..2)?;
                afternoon = match (word[0].to_ascii_uppercase(), word[1].to_ascii_uppercase()) {
                    (b'A', b'M') => Some(false),
                    (b'P', b'M') => Some(true),
                    _ => return None,
                };
                rest = &rest[2..];
            }
            b'z' => {
                let (seconds, tail) = offset(rest)?;
                (shift, rest) = (Some(seconds), tail);
            }
            _ => return None,
        }
    }
    if shift.is_none() && !rest.is_empty() {
        let (seconds, tail) = offset(rest.strip_prefix(b" ").unwrap_or(rest))?;
        (shift, rest) = (Some(seconds), tail);
    }
    if let Some(afternoon) = afternoon {
        if !(1..=12).contains(&hour) {
            return None;
        }
        hour = hour % 12 + if afternoon { 12 } else { 0 };
    }
    if !rest.is_empty() || hour > 23 || minute > 59 || second > 60 {
        return None;
    }
    // A leap second is the last moment of the day that it ends: the clock of computers has no number for it.
    if second == 60 {
        (second, millis) = (59, 999);
    }
    let date = DateTime::new(year as i16, month as i8, day as i8, 0, 0, 0, 0).ok()?.date();
    let days = i64::from(days_before(date.year().into()) + i32::from(date.day_of_year()) - 1);
    Some(Parts { seconds: days * 86_400 + hour * 3600 + minute * 60 + second, millis, offset: shift })
}

/// Days from 1970-01-01 to the first of January of a year from 1970 on.
fn days_before(year: i32) -> i32 {
    let past = year - 1;
    let leaps = |y: i32| y / 4 - y / 100 + y / 400;
    (year - 1970) * 365 + leaps(past) - leaps(1969)
}

/// Reads an RFC 3339 time with an offset (the colon in it may lack, a blank may stand for the `T`); `None` otherwise.
pub fn rfc3339_millis(text: &str) -> Option<Millis> {
    let parts = pattern(b"%Y-%m-%dT%H:%M:%S", text.as_bytes())?;
    Some((parts.seconds - parts.offset?) * 1000 + parts.millis)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn clock(toml: &str) -> Clock {
        Clock::new(&toml::from_str::<TimeRule>(&format!("from = 'x'\n{toml}")).unwrap()).unwrap()
    }

    fn utc(text: &str) -> Millis {
        text.parse::<jiff::Timestamp>().unwrap().as_millisecond()
    }

    #[test]
    fn every_notation_of_the_reports_gives_the_instant() {
        let mut rfc = clock("");
        assert_eq!(rfc.read("2026-11-20T12:00:00.5Z", None), Ok((utc("2026-11-20T12:00:00.5Z"), None)));
        assert_eq!(rfc.read("2026-11-20T12:00:00.123456+0000", None), Ok((utc("2026-11-20T12:00:00.123Z"), None)));
        assert_eq!(rfc.read("2026-11-20T18:43:47-05:00", None), Ok((utc("2026-11-20T23:43:47Z"), None)));
        assert!(rfc.read("2026-11-20T12:00:00", None).is_err());
        let mut shop = clock("format = '%Y-%m-%d %H:%M:%S %z'");
        assert_eq!(shop.read("2026-11-20 23:59:59 -0500", None), Ok((utc("2026-11-21T04:59:59Z"), None)));
        let mut twelve = clock("format = '%m/%d/%Y %I:%M:%S %p'\nzone = 'America/New_York'");
        assert_eq!(twelve.read("11/20/2026 12:00:00 AM", None), Ok((utc("2026-11-20T05:00:00Z"), None)));
        assert_eq!(twelve.read("11/20/2026 12:00:00 PM", None), Ok((utc("2026-11-20T17:00:00Z"), None)));
        assert_eq!(twelve.read("7/4/2026 5:18:22 AM", None), Ok((utc("2026-07-04T09:18:22Z"), None)));
        let mut unix = clock("format = 'unix'");
        assert_eq!(unix.read("1795218936", None), Ok((1795218936000, None)));
        assert!(unix.read("1795218936000000", None).is_err());
        let mut minute = clock("format = '%Y-%m-%d %H:%M'\nzone = 'UTC'");
        assert_eq!(minute.read("2028-02-29 23:59", None), Ok((utc("2028-02-29T23:59:00Z"), None)));
        for impossible in ["2026-02-29 10:00", "2026-13-01 10:00", "2026-11-20 24:00", "2026-11-20"] {
            assert!(minute.read(impossible, None).is_err(), "{impossible}");
        }
    }

    #[test]
    fn a_leap_second_belongs_to_the_day_that_it_ends() {
        let last = utc("2026-12-31T23:59:59.999Z");
        assert_eq!(clock("").read("2026-12-31T23:59:60Z", None), Ok((last, None)));
        assert_eq!(clock("").read("2027-01-01T05:29:60.5+05:30", None), Ok((last, None)));
        let mut plain = clock("format = '%Y-%m-%d %H:%M:%S'\nzone = 'Europe/Berlin'");
        assert_eq!(plain.read("2027-01-01 00:59:60", None), Ok((last, None)));
        assert!(plain.read("2027-01-01 00:59:61", None).is_err());
        assert_eq!(rfc3339_millis("2026-12-31T23:59:60Z"), Some(last));
    }

    #[test]
    fn abbreviations_are_offsets_and_unknown_ones_are_errors() {
        let mut pay = clock("format = '%m/%d/%Y %H:%M:%S'\nzones = { PST = '-08:00', PDT = '-07:00' }");
        assert_eq!(pay.read("11/01/2026 01:30:00", Some("PDT")), Ok((utc("2026-11-01T08:30:00Z"), None)));
        assert_eq!(pay.read("11/01/2026 01:30:00", Some("PST")), Ok((utc("2026-11-01T09:30:00Z"), None)));
        assert_eq!(pay.read("11/01/2026 01:30:00", Some("Europe/Berlin")), Ok((utc("2026-11-01T00:30:00Z"), None)));
        assert!(pay.read("11/01/2026 01:30:00", Some("ABC")).unwrap_err().contains("ABC"));
    }

    #[test]
    fn the_repeated_hour_follows_the_stated_rule_and_the_skipped_hour_is_an_error() {
        let text = "format = '%Y-%m-%d %H:%M:%S'\nzone = 'America/New_York'\n";
        let (early, late) = (utc("2026-11-01T05:30:00Z"), utc("2026-11-01T06:30:00Z"));
        let read = |rule: &str| clock(&format!("{text}{rule}")).read("2026-11-01 01:30:00", None);
        assert_eq!(read("ambiguous = 'earlier'"), Ok((early, Some(late))));
        assert_eq!(read("ambiguous = 'later'"), Ok((late, Some(early))));
        assert!(read("").unwrap_err().contains("twice"));
        assert!(clock(text).read("2026-03-08 02:30:00", None).unwrap_err().contains("forward"));
    }
}
