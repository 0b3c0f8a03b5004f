//! Rates: how much one source takes, and how many bad signatures one address may send.
//!
//! A genuine delivery is never refused for what others did from its address: behind a proxy or a provider's gateway
//! everybody may share one. So a signature is verified first (microseconds, without the database); only those that do not
//! hold are counted, and above the limit they get a short answer and no line in the log. Memory is bounded by the
//! addresses that failed of late.

use crate::edge::Response;
use crate::source::Source;
use governor::clock::{Clock as _, DefaultClock};
use governor::{DefaultDirectRateLimiter, DefaultKeyedRateLimiter, NotUntil, Quota, RateLimiter};
use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Bad signatures of one address in a second: a wrong secret at a provider that retries stays far below.
const BAD_A_SECOND: NonZeroU32 = NonZeroU32::new(5).unwrap();
/// And at once.
const BAD_AT_ONCE: NonZeroU32 = NonZeroU32::new(100).unwrap();
/// Failures between two looks for addresses that can be forgotten.
const FORGET_EVERY: u64 = 1024;

/// The limits at work.
pub struct Rates {
    sources: HashMap<String, DefaultDirectRateLimiter>,
    bad: DefaultKeyedRateLimiter<IpAddr>,
    failures: AtomicU64,
    clock: DefaultClock,
}

impl Rates {
    /// Limits for these sources.
    pub fn new<'a>(sources: impl Iterator<Item = &'a Arc<Source>>) -> Rates {
        let limited = |source: &Arc<Source>| {
            let a_second = NonZeroU32::new(source.rate_limit?)?;
            Some((source.name.clone(), RateLimiter::direct(Quota::per_second(a_second))))
        };
        Rates {
            sources: sources.filter_map(limited).collect(),
            bad: RateLimiter::keyed(Quota::per_second(BAD_A_SECOND).allow_burst(BAD_AT_ONCE)),
            failures: AtomicU64::new(0),
            clock: DefaultClock::default(),
        }
    }

    /// An answer when the source takes no more now.
    pub fn source_takes(&self, source: &str) -> Option<Response> {
        let until = self.sources.get(source)?.check().err()?;
        Some(self.too_many(&until, "rate_limit", &format!("source {source} takes no more requests a second")))
    }

    /// Counts a bad signature; an answer when the address has sent too many.
    pub fn failed(&self, address: IpAddr) -> Option<Response> {
        if self.failures.fetch_add(1, Relaxed) % FORGET_EVERY == FORGET_EVERY - 1 {
            self.bad.retain_recent();
            self.bad.shrink_to_fit();
        }
        let until = self.bad.check_key(&network(address)).err()?;
        Some(self.too_many(&until, "too_many_refused", "too many requests from this address have a bad signature"))
    }

    fn too_many(
        &self,
        until: &NotUntil<<DefaultClock as governor::clock::Clock>::Instant>,
        code: &str,
        what: &str,
    ) -> Response {
        let wait = until.wait_time_from(self.clock.now()).as_secs() + 1;
        crate::answer::problem(429, code, what).with_header("Retry-After", wait.to_string())
    }
}

/// Who has one IPv6 address has the whole /64.
fn network(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(_) => address,
        IpAddr::V6(v6) => v6.to_ipv4_mapped().map_or_else(
            || {
                let mut segments = v6.segments();
                segments[4..].fill(0);
                IpAddr::V6(Ipv6Addr::from(segments))
            },
            IpAddr::V4,
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_address_is_limited_and_its_neighbour_is_not() {
        let rates = Rates::new(std::iter::empty());
        let [bad, other]: [IpAddr; 2] = ["203.0.113.7".parse().unwrap(), "203.0.113.8".parse().unwrap()];
        let refused = (0..300).filter(|_| rates.failed(bad).is_some()).count();
        assert!((150..=200).contains(&refused), "{refused}");
        let answer = rates.failed(bad).unwrap();
        assert_eq!(answer.status(), 429);
        assert!(rates.failed(other).is_none());
    }

    #[test]
    fn an_ipv6_peer_cannot_escape_within_its_network_and_a_mapped_address_is_its_ipv4() {
        let of = |text: &str| network(text.parse().unwrap());
        assert_eq!(of("2001:db8:1:2:aaaa::1"), of("2001:db8:1:2:bbbb::2"));
        assert_ne!(of("2001:db8:1:2::1"), of("2001:db8:1:3::1"));
        assert_eq!(of("::ffff:203.0.113.7"), of("203.0.113.7"));
    }
}
