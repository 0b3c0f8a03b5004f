//! The clock: the only file that reads the system's.
//!
//! Wall time is what people and providers see. Steady time is wall time at start plus what has passed since: due times
//! are made of it, so that a clock that is set forward or back neither wakes everything at once nor leaves it asleep.

use crate::event::Millis;
use std::sync::OnceLock;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// Milliseconds since 1970 by the system's clock.
pub fn wall() -> Millis {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX).saturating_add(crate::fault::clock_off())
}

/// Milliseconds since 1970 as they were at the first call, plus the time that has passed since then.
pub fn steady() -> Millis {
    static START: OnceLock<(Millis, Instant)> = OnceLock::new();
    let (wall_then, then) = START.get_or_init(|| (wall(), Instant::now()));
    wall_then + i64::try_from(then.elapsed().as_millis()).unwrap_or(i64::MAX)
}

/// RFC 3339 in UTC, with milliseconds only where there are any: `2026-11-30T12:00:00Z`.
pub fn rfc3339(at: Millis) -> String {
    jiff::Timestamp::from_millisecond(at).map_or_else(|_| format!("{at} ms"), |t| t.to_string())
}

/// For serde: an instant as RFC 3339 text.
pub fn as_rfc3339<S: serde::Serializer>(at: &Millis, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(&rfc3339(*at))
}

/// For serde: an instant that may be absent.
pub fn as_rfc3339_or_null<S: serde::Serializer>(at: &Option<Millis>, to: S) -> Result<S::Ok, S::Error> {
    match at {
        Some(at) => to.serialize_str(&rfc3339(*at)),
        None => to.serialize_none(),
    }
}
