//! Who may look and who may change: tokens, sessions, forms, lockout.
//!
//! Tokens are compared in constant time and kept as hashes; sessions live in memory and end with the process. Nothing here
//! trusts a header that a page of another origin could set.

use super::answer::Failure;
use crate::edge::{Client, Head, Method};
use rand::RngExt as _;
use sha2::{Digest as _, Sha256};
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use subtle::ConstantTimeEq as _;

/// The session's cookie.
pub(super) const COOKIE: &str = "postonce_session";
/// A session ends after so long without a request.
const IDLE_MOST: Duration = Duration::from_secs(12 * 3600);
/// And in any case after this.
const AGE_MOST: Duration = Duration::from_secs(7 * 24 * 3600);
/// Sessions at once; the one that rests longest makes room.
const SESSIONS_MOST: usize = 1000;
/// Wrong tokens of one address that cost nothing but themselves.
const FREE_TRIES: u32 = 5;
/// No lockout is longer.
const LOCKOUT_MOST: Duration = Duration::from_secs(15 * 60);
/// Addresses whose wrong tokens are remembered; the oldest make room.
const REMEMBERED_MOST: usize = 10_000;

/// What somebody may do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Role {
    /// Look.
    Reader,
    /// Look and change.
    Operator,
}

/// Somebody who was let in.
#[derive(Clone, Debug)]
pub(super) struct Who {
    /// For the audit.
    pub name: String,
    pub role: Role,
    /// What their forms must carry; empty where there is no session.
    pub csrf: String,
    /// A cookie to set with the answer.
    pub new_cookie: Option<String>,
    /// What the last change had to say.
    pub flash: Option<String>,
}

struct Session {
    name: String,
    role: Role,
    csrf: String,
    flash: Option<String>,
    since: Instant,
    last: Instant,
}

struct Tries {
    wrong: u32,
    until: Instant,
    last: Instant,
}

/// The door.
pub(super) struct Access {
    operator: Option<[u8; 32]>,
    reader: Option<[u8; 32]>,
    hosts: Vec<String>,
    sessions: Mutex<HashMap<[u8; 32], Session>>,
    tries: Mutex<HashMap<IpAddr, Tries>>,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn hash(text: &[u8]) -> [u8; 32] {
    Sha256::digest(text).into()
}

/// 256 random bits in hex.
fn random() -> String {
    hex::encode(rand::rng().random::<[u8; 32]>())
}

impl Access {
    /// `operator` and `reader` are the tokens, trimmed; `hosts` the names of a proxy in front.
    pub(super) fn new(operator: Option<&str>, reader: Option<&str>, hosts: &[String]) -> Access {
        Access {
            operator: operator.map(|token| hash(token.as_bytes())),
            reader: reader.map(|token| hash(token.as_bytes())),
            hosts: hosts.iter().map(|host| host.to_ascii_lowercase()).collect(),
            sessions: Mutex::default(),
            tries: Mutex::default(),
        }
    }

    /// Is there a token to log in with?
    pub(super) fn has_token(&self) -> bool {
        self.operator.is_some() || self.reader.is_some()
    }

    /// The Host header must be one of ours: a name that somebody else points at this machine is not.
    pub(super) fn check_host(&self, head: &Head) -> Result<(), Failure> {
        let host = head.headers.get_str("host").unwrap_or_default();
        let name = host_name(host).to_ascii_lowercase();
        let ours = name == "localhost"
            || name.ends_with(".localhost")
            || name.trim_matches(['[', ']']).parse::<IpAddr>().is_ok()
            || self.hosts.contains(&name);
        // With a token and no list, the cookie is bound to the name anyway.
        if ours || (self.has_token() && self.hosts.is_empty()) {
            return Ok(());
        }
        Err(Failure::new(421, "unknown_host", format!("this listener is not called {name:?}"))
            .hint("use its address, or name it: [operator] hosts = [\"ops.example.com\"]"))
    }

    /// Who is asking? `Err`: nobody that we know.
    pub(super) fn who(&self, head: &Head, client: &Client) -> Result<Who, Failure> {
        if let Some(value) = head.headers.get_str("authorization") {
            let token = value.split_once(' ').filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"));
            let Some((_, token)) = token else {
                return Err(Failure::new(401, "unknown_scheme", "the Authorization header is not a bearer token"));
            };
            let role = self.try_token(token.trim(), client.address)?;
            let name = match role {
                Role::Operator => "token",
                Role::Reader => "read-only token",
            };
            return Ok(Who { name: name.into(), role, csrf: String::new(), new_cookie: None, flash: None });
        }
        if let Some(who) = self.session(head) {
            return Ok(who);
        }
        if !self.has_token() && client.address.is_loopback() && client.peer.ip().is_loopback() {
            let wants_page = head.method == Method::Get && !head.path().starts_with("/api/");
            let csrf = random();
            let new_cookie = wants_page.then(|| self.open(head, "local", Role::Operator, &csrf));
            return Ok(Who { name: "local".into(), role: Role::Operator, csrf, new_cookie, flash: None });
        }
        let hint = if self.has_token() {
            "send `Authorization: Bearer …` with the token of [operator], or log in at /login"
        } else {
            "only this machine may look without a token: set [operator] token"
        };
        Err(Failure::new(401, "token_needed", "this needs a token").hint(hint))
    }

    /// The role of a token; a wrong one counts against its address.
    pub(super) fn try_token(&self, token: &str, address: IpAddr) -> Result<Role, Failure> {
        let now = Instant::now();
        {
            let tries = locked(&self.tries);
            if let Some(tries) = tries.get(&address).filter(|tries| tries.until > now) {
                let wait = (tries.until - now).as_secs() + 1;
                return Err(Failure::new(429, "locked_out", format!("too many wrong tokens: wait {wait} seconds"))
                    .retry_after(wait));
            }
        }
        let given = hash(token.as_bytes());
        let is = |token: &Option<[u8; 32]>| token.is_some_and(|known| bool::from(known.ct_eq(&given)));
        let (operator, reader) = (is(&self.operator), is(&self.reader)); // both, always
        if operator || reader {
            locked(&self.tries).remove(&address);
            return Ok(if operator { Role::Operator } else { Role::Reader });
        }
        self.count_wrong(address, now);
        log::warn!("operator: a wrong token from {address}");
        Err(Failure::new(401, "wrong_token", "this is not the token").hint("it is what [operator] token names"))
    }

    fn count_wrong(&self, address: IpAddr, now: Instant) {
        let mut tries = locked(&self.tries);
        if tries.len() >= REMEMBERED_MOST
            && let Some(oldest) = tries.iter().min_by_key(|(_, tries)| tries.last).map(|(address, _)| *address)
        {
            tries.remove(&oldest);
        }
        let entry = tries.entry(address).or_insert(Tries { wrong: 0, until: now, last: now });
        if now - entry.last > LOCKOUT_MOST * 2 {
            entry.wrong = 0;
        }
        entry.wrong += 1;
        entry.last = now;
        if entry.wrong >= FREE_TRIES {
            let doubled = Duration::from_secs(1 << (entry.wrong - FREE_TRIES).min(20));
            entry.until = now + doubled.min(LOCKOUT_MOST);
        }
    }

    /// Opens a session; gives the cookie to set.
    pub(super) fn open(&self, head: &Head, name: &str, role: Role, csrf: &str) -> String {
        let (secret, now) = (random(), Instant::now());
        let mut sessions = locked(&self.sessions);
        if sessions.len() >= SESSIONS_MOST
            && let Some(oldest) = sessions.iter().min_by_key(|(_, s)| s.last).map(|(key, _)| *key)
        {
            sessions.remove(&oldest);
        }
        let session =
            Session { name: name.to_owned(), role, csrf: csrf.to_owned(), flash: None, since: now, last: now };
        sessions.insert(hash(secret.as_bytes()), session);
        // A proxy that ends TLS says so; who claims it without one only locks himself out.
        let secure = if head.headers.get_str("x-forwarded-proto") == Some("https") { "; Secure" } else { "" };
        format!("{COOKIE}={secret}; Path=/; HttpOnly; SameSite=Strict{secure}")
    }

    /// Opens a session after a login.
    pub(super) fn log_in(&self, head: &Head, name: &str, role: Role) -> String {
        self.open(head, name, role, &random())
    }

    fn session(&self, head: &Head) -> Option<Who> {
        let key = hash(cookie(head)?.as_bytes());
        let now = Instant::now();
        let mut sessions = locked(&self.sessions);
        let session = sessions.get_mut(&key)?;
        if now - session.last > IDLE_MOST || now - session.since > AGE_MOST {
            sessions.remove(&key);
            return None;
        }
        session.last = now;
        let flash = if head.method == Method::Get { session.flash.take() } else { None };
        Some(Who {
            name: session.name.clone(),
            role: session.role,
            csrf: session.csrf.clone(),
            new_cookie: None,
            flash,
        })
    }

    /// Leaves a sentence for the next page of this session.
    pub(super) fn tell(&self, head: &Head, what: &str) {
        if let Some(secret) = cookie(head)
            && let Some(session) = locked(&self.sessions).get_mut(&hash(secret.as_bytes()))
        {
            session.flash = Some(what.to_owned());
        }
    }

    /// Ends the session of this request.
    pub(super) fn log_out(&self, head: &Head) {
        if let Some(secret) = cookie(head) {
            locked(&self.sessions).remove(&hash(secret.as_bytes()));
        }
    }
}

/// A change must come from a page of ours: by its origin, and by the token of its form or header where there is a session.
pub(super) fn check_origin(head: &Head) -> Result<(), Failure> {
    let foreign = |what: &str| Err(Failure::new(403, "foreign_origin", format!("this change came from {what}")));
    if let Some(origin) = head.headers.get_str("origin") {
        let host = head.headers.get_str("host").unwrap_or_default();
        let theirs = origin.split_once("://").map_or("", |(_, authority)| authority);
        if !theirs.eq_ignore_ascii_case(host) {
            return foreign("another site");
        }
    }
    match head.headers.get_str("sec-fetch-site") {
        None | Some("same-origin" | "none") => Ok(()),
        Some(_) => foreign("another site"),
    }
}

/// Is this what the session's forms carry?
pub(super) fn same_secret(known: &str, given: &str) -> bool {
    !known.is_empty() && bool::from(known.as_bytes().ct_eq(given.as_bytes()))
}

fn cookie(head: &Head) -> Option<&str> {
    let line = head.headers.get_str("cookie")?;
    line.split(';').find_map(|pair| pair.trim().strip_prefix(COOKIE)?.strip_prefix('='))
}

/// The name in `name:port` or `[::1]:port`.
fn host_name(host: &str) -> &str {
    match host.rfind(':') {
        Some(at) if host[at + 1..].bytes().all(|b| b.is_ascii_digit()) && !host.ends_with(']') => &host[..at],
        _ => host,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(last: u8) -> IpAddr {
        IpAddr::from([203, 0, 113, last])
    }

    #[test]
    fn a_token_opens_its_own_role_and_nothing_else_does() {
        let access = Access::new(Some("operator-token"), Some("reader-token"), &[]);
        assert_eq!(access.try_token("operator-token", address(1)).unwrap(), Role::Operator);
        assert_eq!(access.try_token("reader-token", address(1)).unwrap(), Role::Reader);
        assert_eq!(access.try_token("operator-toke", address(1)).unwrap_err().status, 401);
        assert_eq!(access.try_token("", address(1)).unwrap_err().status, 401);
        assert!(Access::new(None, None, &[]).try_token("", address(1)).is_err());
    }

    #[test]
    fn wrong_tokens_lock_their_address_out_and_no_other() {
        let access = Access::new(Some("right"), None, &[]);
        for _ in 0..FREE_TRIES {
            assert_eq!(access.try_token("wrong", address(1)).unwrap_err().status, 401);
        }
        let locked = access.try_token("right", address(1)).unwrap_err();
        assert_eq!(locked.status, 429);
        assert!(locked.retry_after.is_some_and(|seconds| seconds >= 1));
        assert!(access.try_token("right", address(2)).is_ok());
    }

    #[test]
    fn the_name_in_a_host_header_is_found_with_and_without_a_port() {
        for (host, name) in
            [("localhost:8788", "localhost"), ("[::1]:80", "[::1]"), ("[::1]", "[::1]"), ("127.0.0.1", "127.0.0.1")]
        {
            assert_eq!(host_name(host), name);
        }
    }
}
