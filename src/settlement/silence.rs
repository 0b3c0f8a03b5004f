//! Silence: a source that has been quiet for longer than its own history makes likely. Pure.

use crate::event::Millis;

/// Fewer arrivals say nothing about what is usual.
const ARRIVALS_LEAST: usize = 12;
/// A source is not silent before this.
const LEAST: Millis = 3_600_000;

/// A source that is too quiet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Silence {
    /// The last arrival.
    pub since: Millis,
    /// A pause up to this long would have been usual.
    pub usual: Millis,
}

/// Judges by the arrivals, the newest first: quiet for more than twice the longest pause there was is silent.
pub fn judge(arrivals: &[Millis], now: Millis, configured: Option<Millis>) -> Option<Silence> {
    let since = *arrivals.first()?;
    let usual = match configured {
        Some(usual) => usual,
        None if arrivals.len() < ARRIVALS_LEAST => return None,
        None => {
            let longest = arrivals.windows(2).map(|pair| pair[0] - pair[1]).max()?;
            longest.saturating_mul(2).max(LEAST)
        }
    };
    (now - since > usual).then_some(Silence { since, usual })
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Millis = 3_600_000;

    /// Five a day between 8 and 20 o'clock, the newest first.
    fn days(count: i64) -> Vec<Millis> {
        let mut all: Vec<Millis> =
            (0..count).flat_map(|day| (0..5).map(move |n| (day * 24 + 8 + n * 3) * HOUR)).collect();
        all.reverse();
        all
    }

    #[test]
    fn a_night_is_no_silence_and_two_days_are() {
        let arrivals = days(30);
        let last = arrivals[0];
        assert_eq!(judge(&arrivals, last + 23 * HOUR, None), None);
        assert_eq!(judge(&arrivals, last + 25 * HOUR, None), Some(Silence { since: last, usual: 24 * HOUR }));
    }

    #[test]
    fn a_newcomer_is_not_judged_and_the_configuration_wins() {
        assert_eq!(judge(&days(2), 900 * HOUR, None), None);
        assert_eq!(judge(&[], 900 * HOUR, Some(1)), None);
        assert!(judge(&days(1), 100 * HOUR, Some(6 * HOUR)).is_some());
    }
}
