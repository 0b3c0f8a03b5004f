//! Days and windows of settlement, in the provider's own zone. Pure.

use crate::event::Millis;
use jiff::civil::Date;
use jiff::tz::TimeZone;

/// The day of an instant, `2026-11-30`.
pub fn day_of(at: Millis, zone: &TimeZone) -> String {
    jiff::Timestamp::from_millisecond(at).map_or_else(|_| String::new(), |t| zone.to_datetime(t).date().to_string())
}

fn start_of(date: Date, zone: &TimeZone) -> Option<Millis> {
    // where the clock skips midnight, the day begins at the first instant after it
    let start = zone.to_ambiguous_timestamp(date.at(0, 0, 0, 0)).compatible().ok()?;
    Some(start.as_millisecond())
}

/// `[start, end)` of the days from `first` to `last`, both included.
pub fn days(first: &str, last: &str, zone: &TimeZone) -> Option<(Millis, Millis)> {
    let (first, last) = (first.parse::<Date>().ok()?, last.parse::<Date>().ok()?);
    let (start, end) = (start_of(first, zone)?, start_of(last.tomorrow().ok()?, zone)?);
    (start < end).then_some((start, end))
}

/// The day before the one of `now`.
pub fn yesterday(now: Millis, zone: &TimeZone) -> String {
    before(&day_of(now, zone), 1)
}

/// So many days before a day.
pub fn before(day: &str, days: i32) -> String {
    let Ok(day) = day.parse::<Date>() else { return String::new() };
    day.checked_sub(jiff::Span::new().days(days)).map_or_else(|_| String::new(), |d| d.to_string())
}

/// Reads `2026-11-30`, `2026-11-01..2026-11-30` (both days included), or two RFC 3339 instants with `..` between them
/// (the second not included). Gives the window and its last day.
pub fn parse(text: &str, zone: &TimeZone) -> Option<(Millis, Millis, String)> {
    let (from, to) = text.split_once("..").unwrap_or((text, text));
    if let Some((start, end)) = days(from, to, zone) {
        return Some((start, end, to.to_owned()));
    }
    let instant = |text: &str| text.parse::<jiff::Timestamp>().ok().map(|t| t.as_millisecond());
    let (start, end) = (instant(from)?, instant(to)?);
    (start < end).then(|| (start, end, day_of(end - 1, zone)))
}

/// A time of day in UTC, `13:00`, as minutes since midnight.
pub fn minute(text: &str) -> Option<u32> {
    let (hour, minute) = text.split_once(':')?;
    let (hour, minute) = (hour.parse::<u32>().ok()?, minute.parse::<u32>().ok()?);
    (hour < 24 && minute < 60).then_some(hour * 60 + minute)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_day_lasts_as_long_as_its_zone_says() {
        let berlin = TimeZone::get("Europe/Berlin").unwrap();
        let hours = |day: &str, zone: &TimeZone| {
            let (start, end) = days(day, day, zone).unwrap();
            (end - start) / 3_600_000
        };
        assert_eq!(hours("2026-10-25", &berlin), 25);
        assert_eq!(hours("2026-03-29", &berlin), 23);
        assert_eq!(hours("2026-03-29", &TimeZone::UTC), 24);
        let (start, _) = days("2026-11-30", "2026-11-30", &berlin).unwrap();
        assert_eq!(crate::clock::rfc3339(start), "2026-11-29T23:00:00Z");
        assert_eq!((day_of(start, &berlin), day_of(start - 1, &berlin)), ("2026-11-30".into(), "2026-11-29".into()));
    }

    #[test]
    fn windows_are_days_or_instants_and_never_empty() {
        let utc = TimeZone::UTC;
        let (start, end, day) = parse("2026-11-01..2026-11-30", &utc).unwrap();
        assert_eq!((end - start, day.as_str()), (30 * 86_400_000, "2026-11-30"));
        let (start, end, day) = parse("2026-11-30T10:00:00Z..2026-12-01T00:00:00Z", &utc).unwrap();
        assert_eq!((end - start, day.as_str()), (14 * 3_600_000, "2026-11-30"));
        for wrong in ["", "yesterday", "2026-11-30..2026-11-29", "2026-11-31", "2026-11-30T10:00:00Z"] {
            assert_eq!(parse(wrong, &utc), None, "{wrong}");
        }
        assert_eq!(yesterday(end, &utc), "2026-11-30");
        assert_eq!(before("2026-03-01", 1), "2026-02-28");
        assert_eq!((minute("13:05"), minute("24:00"), minute("1300")), (Some(785), None, None));
    }
}
