//! The load of `postonce bench`: keep-alive connections on one thread, unique signed bodies, exact percentiles.
//!
//! Closed loop (each connection sends its next request when the last is answered) or an offered rate, where the time of a
//! request counts from when it was due, so that a server that stalls cannot hide it.

use crate::error::{Error, Result};
use hmac::{Hmac, KeyInit as _, Mac as _};
use polling::{Event, Events, PollMode, Poller};
use sha2::Sha256;
use std::collections::VecDeque;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

/// The secret of the bench's source.
pub(super) const SECRET: &str = "whsec_bench";

/// What to offer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Offer<'a> {
    pub address: SocketAddr,
    /// The path of the source.
    pub path: &'a str,
    /// Its secret.
    pub secret: &'a str,
    /// One customer for all.
    pub hot: bool,
    pub connections: usize,
    pub time: Duration,
    /// Requests a second; `None`: as fast as they are answered.
    pub rate: Option<u64>,
    /// Bytes of a body.
    pub size: usize,
    /// Every so many requests repeat an earlier event; 0 none.
    pub duplicate_every: u64,
    /// Where the numbering of events begins.
    pub first: u64,
}

/// What came of it.
#[derive(Clone, Debug, Default)]
pub(super) struct Heard {
    pub answered: u64,
    pub refused: u64,
    pub seconds: f64,
    pub next: u64,
    latencies_us: Vec<u32>,
}

impl Heard {
    pub(super) fn rate(&self) -> f64 {
        self.answered as f64 / self.seconds
    }

    /// The time within which this share of the requests was answered, in milliseconds.
    pub(super) fn within_ms(&self, share: f64) -> f64 {
        if self.latencies_us.is_empty() {
            return 0.0;
        }
        let at = ((self.latencies_us.len() - 1) as f64 * share) as usize;
        f64::from(self.latencies_us[at]) / 1000.0
    }
}

struct Conn {
    stream: TcpStream,
    out: Vec<u8>,
    sent: usize,
    inbox: Vec<u8>,
    since: Instant,
    busy: bool,
    /// The socket was full: it is watched for room too.
    full: bool,
}

/// Unique signed requests.
struct Maker {
    key: Hmac<Sha256>,
    accounts: u64,
    filler: String,
    body: Vec<u8>,
}

impl Maker {
    fn new(size: usize, secret: &str, hot: bool) -> Maker {
        let letters: String = (0..size).map(|i| (b'a' + ((i * 7 + i / 26 * 11) % 26) as u8) as char).collect();
        Maker {
            key: Hmac::new_from_slice(secret.as_bytes()).expect("any length"),
            accounts: if hot { 1 } else { 1000 },
            filler: letters[..size.saturating_sub(900)].to_owned(),
            body: Vec::with_capacity(size + 200),
        }
    }

    /// A payment of Stripe's shape under provider-like ids: a common prefix, growing in time.
    fn body(&mut self, number: u64, now: i64) {
        let (account, amount) =
            ((number.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 33) % self.accounts, 100 + number % 9900);
        self.body.clear();
        let _ = write!(
            self.body,
            r#"{{"id":"evt_1S{number:014x}","object":"event","api_version":"2026-08-27.basil","created":{now},"data":{{"object":{{"id":"pi_3S{number:014x}","object":"payment_intent","amount":{amount},"amount_received":{amount},"currency":"usd","customer":"cus_{account:08}","latest_charge":"ch_3S{number:014x}","livemode":true,"metadata":{{"order_id":"{number}"}},"payment_method_types":["card"],"shipping":{{"address":{{"city":"San Francisco","country":"US","line1":"510 Townsend St","line2":null,"postal_code":"94103","state":"CA"}},"name":"Jenny Rosen"}},"status":"succeeded","note":"{}"}}}},"livemode":true,"pending_webhooks":2,"request":{{"id":"req_{number:x}","idempotency_key":null}},"type":"payment_intent.succeeded"}}"#,
            self.filler
        );
    }

    fn request(&mut self, number: u64, path: &str, out: &mut Vec<u8>) {
        let now = crate::clock::wall() / 1000;
        self.body(number, now);
        let mut mac = self.key.clone();
        mac.update(format!("{now}.").as_bytes());
        mac.update(&self.body);
        let signature = hex::encode(mac.finalize().into_bytes());
        let _ = write!(
            out,
            "POST {path} HTTP/1.1\r\nHost: bench\r\nContent-Type: application/json; charset=utf-8\r\nUser-Agent: Stripe/1.0 (+https://stripe.com/docs/webhooks)\r\nAccept: */*; q=0.5, application/xml\r\nCache-Control: no-cache\r\nStripe-Signature: t={now},v1={signature}\r\nContent-Length: {}\r\n\r\n",
            self.body.len()
        );
        out.extend_from_slice(&self.body);
    }
}

/// The body of one event.
pub(super) fn numbered_body(size: usize, number: u64) -> Vec<u8> {
    body_at(size, number, crate::clock::wall() / 1000)
}

/// The body of one event of another time, in seconds.
pub(super) fn body_at(size: usize, number: u64, at: i64) -> Vec<u8> {
    let mut maker = Maker::new(size, SECRET, false);
    maker.body(number, at);
    maker.body
}

/// The yardstick of verification: the HMAC alone, its key prepared.
pub(super) fn bare_hmac(body: &[u8]) -> usize {
    thread_local! {
        static KEY: Hmac<Sha256> = Hmac::new_from_slice(SECRET.as_bytes()).expect("any length");
    }
    let mut mac = KEY.with(Clone::clone);
    mac.update(body);
    usize::from(mac.finalize().into_bytes()[0])
}

/// Runs the load and waits for the last answers.
pub(super) fn run(offer: &Offer) -> Result<Heard> {
    let fail = |e: std::io::Error| Error::Unavailable(format!("the load could not be offered: {e}"));
    let poller = Poller::new().map_err(fail)?;
    let mut conns = Vec::with_capacity(offer.connections);
    for at in 0..offer.connections {
        let stream = TcpStream::connect(offer.address).map_err(fail)?;
        stream.set_nodelay(true).map_err(fail)?;
        stream.set_nonblocking(true).map_err(fail)?;
        // Safety: the stream lives in `conns` until the poller is dropped.
        unsafe { poller.add_with_mode(&stream, Event::readable(at), PollMode::Level) }.map_err(fail)?;
        let since = Instant::now();
        conns.push(Conn { stream, out: Vec::new(), sent: 0, inbox: Vec::new(), since, busy: false, full: false });
    }
    let mut heard = Heard { next: offer.first, ..Heard::default() };
    let mut maker = Maker::new(offer.size, offer.secret, offer.hot);
    let mut idle: VecDeque<usize> = (0..offer.connections).collect();
    let began = Instant::now();
    let gap = offer.rate.map(|rate| Duration::from_secs(1).div_f64(rate as f64));
    let mut due = began;
    let mut events = Events::new();
    loop {
        let now = Instant::now();
        let over = now - began >= offer.time;
        while !over && let Some(at) = idle.front().copied() {
            let since = match gap {
                Some(_) if due > Instant::now() => break,
                Some(gap) => {
                    let since = due;
                    due += gap;
                    since
                }
                None => Instant::now(),
            };
            idle.pop_front();
            let number = match offer.duplicate_every {
                n if n > 0 && heard.next.is_multiple_of(n) && heard.next > offer.first + 1000 => heard.next - 997,
                _ => heard.next,
            };
            heard.next += 1;
            let conn = &mut conns[at];
            conn.out.clear();
            conn.sent = 0;
            maker.request(number, offer.path, &mut conn.out);
            conn.since = since;
            conn.busy = true;
            push(conn, &poller, at).map_err(fail)?;
        }
        if over && conns.iter().all(|c| !c.busy) {
            break;
        }
        if now - began > offer.time + Duration::from_secs(20) {
            break; // what is not answered by now is not answered
        }
        let wait = match gap {
            Some(_) if !over && !idle.is_empty() => due.saturating_duration_since(Instant::now()),
            _ => Duration::from_millis(100),
        };
        events.clear();
        poller.wait(&mut events, Some(wait)).map_err(fail)?;
        for event in events.iter() {
            let conn = &mut conns[event.key];
            if event.writable {
                push(conn, &poller, event.key).map_err(fail)?;
            }
            if event.readable && pull(conn, &mut heard).map_err(fail)? {
                idle.push_back(event.key);
            }
        }
    }
    heard.seconds = began.elapsed().min(offer.time).as_secs_f64();
    heard.latencies_us.sort_unstable();
    for conn in &conns {
        let _ = poller.delete(&conn.stream);
    }
    Ok(heard)
}

/// Writes what the socket takes, and watches it for room only while there is more.
fn push(conn: &mut Conn, poller: &Poller, at: usize) -> std::io::Result<()> {
    while conn.sent < conn.out.len() {
        match conn.stream.write(&conn.out[conn.sent..]) {
            Ok(count) => conn.sent += count,
            Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => break,
            Err(e) => return Err(e),
        }
    }
    let full = conn.sent < conn.out.len();
    if full != conn.full {
        conn.full = full;
        poller.modify_with_mode(&conn.stream, Event::new(at, true, full), PollMode::Level)?;
    }
    Ok(())
}

/// Reads what is there; `true` when an answer is complete.
fn pull(conn: &mut Conn, heard: &mut Heard) -> std::io::Result<bool> {
    let mut buffer = [0; 4096];
    loop {
        match conn.stream.read(&mut buffer) {
            Ok(0) => return Err(std::io::ErrorKind::UnexpectedEof.into()),
            Ok(count) => conn.inbox.extend_from_slice(&buffer[..count]),
            Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => break,
            Err(e) => return Err(e),
        }
        if conn.inbox.len() < 4096 {
            break;
        }
    }
    let mut headers = [httparse::EMPTY_HEADER; 32];
    let mut answer = httparse::Response::new(&mut headers);
    let head = match answer.parse(&conn.inbox) {
        Ok(httparse::Status::Complete(head)) => head,
        Ok(httparse::Status::Partial) => return Ok(false),
        Err(e) => return Err(std::io::Error::other(format!("an answer is no HTTP: {e}"))),
    };
    let length = answer.headers.iter().find(|h| h.name.eq_ignore_ascii_case("content-length"));
    let length: usize = length.and_then(|h| std::str::from_utf8(h.value).ok()?.trim().parse().ok()).unwrap_or(0);
    if conn.inbox.len() < head + length {
        return Ok(false);
    }
    let refused = answer.code != Some(200);
    let took = conn.since.elapsed().as_micros();
    heard.latencies_us.push(u32::try_from(took).unwrap_or(u32::MAX));
    heard.answered += 1;
    heard.refused += u64::from(refused);
    conn.inbox.clear();
    conn.busy = false;
    Ok(true)
}
