//! Keys and certificates that stand at an address: asked for through a closure, remembered, and never asked for often.
//!
//! Whoever sends a delivery may name an address, so both the addresses and the number of fetches are bounded here. The
//! closure does the network part; this file never does.

use super::delivery::{Reason, Refusal};
use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

/// One thing to fetch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeyRequest<'a> {
    /// The address; always https, always of the provider's hosts.
    pub url: &'a str,
    /// The JSON body to post; a plain GET when absent.
    pub post: Option<&'a str>,
}

/// Fetches a key set or a certificate; bounded in time and size by whoever wrote it. The error is for people.
pub type Fetch = Arc<dyn Fn(&KeyRequest<'_>) -> Result<Vec<u8>, String> + Send + Sync>;

/// How many answers are kept.
const ANSWERS_MAX: usize = 64;
/// How long an answer is used, in milliseconds.
const ANSWER_LIFE_MS: i64 = 60 * 60 * 1000;
/// How many fetches a minute may cause.
const FETCHES_PER_MINUTE_MAX: u32 = 30;

/// What was fetched for one source.
pub(crate) struct Fetched {
    fetch: Option<Fetch>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    answers: HashMap<String, (i64, Arc<Vec<u8>>)>,
    minute: i64,
    fetches: u32,
}

impl fmt::Debug for Fetched {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("Fetched")
    }
}

impl Fetched {
    pub(crate) fn new(fetch: Option<Fetch>) -> Fetched {
        Fetched { fetch, state: Mutex::default() }
    }

    /// What stands at `url`, from memory if it was fetched within the hour. `anew` asks again (an unknown key id).
    pub(crate) fn get(
        &self,
        request: &KeyRequest<'_>,
        now_ms: i64,
        online: bool,
        anew: bool,
    ) -> Result<Arc<Vec<u8>>, Refusal> {
        let away = |why: &str| Refusal::new(Reason::CertificateUnavailable, format!("{}: {why}", request.url));
        let name = format!("{} {}", request.url, request.post.unwrap_or_default());
        let lock = || self.state.lock().unwrap_or_else(PoisonError::into_inner);
        {
            let mut state = lock();
            if let Some((at, answer)) = state.answers.get(&name)
                && !anew
                && now_ms.saturating_sub(*at) < ANSWER_LIFE_MS
            {
                return Ok(answer.clone());
            }
            if !online {
                return Err(away("is not fetched for this"));
            }
            let minute = now_ms.div_euclid(60_000);
            if state.minute != minute {
                (state.minute, state.fetches) = (minute, 0);
            }
            state.fetches += 1;
            if state.fetches > FETCHES_PER_MINUTE_MAX {
                return Err(away("too many keys were asked for within a minute"));
            }
        }
        let fetch = self.fetch.as_ref().ok_or_else(|| away("this program was given no way to fetch keys"))?;
        let answer = Arc::new(fetch(request).map_err(|why| away(&why))?);
        let mut state = lock();
        if state.answers.len() >= ANSWERS_MAX {
            let oldest = state.answers.iter().min_by_key(|(_, (at, _))| *at).map(|(name, _)| name.clone());
            oldest.into_iter().for_each(|name| drop(state.answers.remove(&name)));
        }
        state.answers.insert(name, (now_ms, answer.clone()));
        Ok(answer)
    }
}

/// Whether a delivery may send us to this address: https, no user, no port, and a host of the list or below one. In an
/// entry with `*` that stands for exactly one label, and nothing below it counts.
pub(crate) fn is_allowed(url: &str, hosts: &[String]) -> bool {
    let Some(rest) = url.strip_prefix("https://") else { return false };
    let host = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let plain = host.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'.' || b == b'-');
    let printable = url.bytes().all(|b| b.is_ascii_graphic() && b != b'\\');
    let host = host.to_ascii_lowercase();
    let is = |known: &String| match known.contains('*') {
        false => host == *known || host.strip_suffix(known.as_str()).is_some_and(|front| front.ends_with('.')),
        true => {
            let same_count = host.split('.').count() == known.split('.').count();
            let mut labels = host.split('.').zip(known.split('.'));
            same_count && labels.all(|(label, known)| label == known || (known == "*" && !label.is_empty()))
        }
    };
    plain && printable && hosts.iter().any(is)
}
