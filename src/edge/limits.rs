//! What one peer, and all peers together, may take: bytes, headers, connections, time.
//!
//! Values only, each with its reason. The front and the parser obey them; nothing here changes while a front runs, and
//! no limit may be absent: what has no bound here has no place in the edge.

use std::time::Duration;

/// The bounds of one front. `Limits::default()` is right for a webhook endpoint on a small machine.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Request line and headers together, bytes. Providers send 1 to 2 KiB; gateways add cookies and traces. Above: 431.
    pub head_bytes: usize,
    /// The request line alone, bytes. Paths here are short; the rest is for query strings of OAuth-like probes. Above: 414.
    pub line_bytes: usize,
    /// Header lines in a request, at most [`Limits::HEADERS_MOST`]. Real ones have 10 to 40. Above: 431.
    pub headers: usize,
    /// From the connection (later: from a request's first byte) to the end of its head. A head is one or two packets.
    pub head_time: Duration,
    /// From the end of the head to the end of the body. A megabyte in 30 s is 35 KB/s, slower than any provider.
    pub body_time: Duration,
    /// Bytes a second that a body must come in on average, looked at after [`Limits::body_grace`].
    pub body_rate: u64,
    /// How long a body may be slower than its rate: a lost packet or two, not a strategy.
    pub body_grace: Duration,
    /// How long a connection may rest between two requests. Providers reuse one within seconds or never.
    pub idle_time: Duration,
    /// How long an answer may wait for a peer that does not read (longer for big answers, by `body_rate`).
    pub write_time: Duration,
    /// After an answer that closes: how long (and [`Limits::linger_bytes`] how far) what the peer still sends is read and
    /// dropped, so that the answer is not lost to a reset.
    pub linger_time: Duration,
    /// See [`Limits::linger_time`].
    pub linger_bytes: usize,
    /// Open connections in all. Each idle one costs a descriptor and less than a kilobyte. At the limit the longest idle
    /// one makes room; if none is idle, the newcomer gets 503.
    pub connections: usize,
    /// Open connections of one address (IPv6: one /64). Providers keep tens. At the limit, room is made as above among
    /// that address's own; else 429. Trusted proxies are exempt.
    pub connections_per_address: usize,
    /// Bytes held for requests that are unfinished or unanswered, in all connections together. Above: 503. A thousand
    /// peers with a megabyte each must not be able to take the machine's memory.
    pub buffered_bytes: usize,
    /// Threads that run the handler. With 0 it runs on the polling thread itself: the fastest way for handlers that never
    /// block (check, queue, return), and the wrong one for any other.
    pub workers: usize,
    /// Bodies below this size, in no content coding, go to the handler on the polling thread all the same: for handlers
    /// that never block, and take long only over large ones. 0: none do, since a handler may block.
    pub at_once: usize,
}

impl Limits {
    /// The most header lines that can be configured.
    pub const HEADERS_MOST: usize = 128;
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            head_bytes: 16 * 1024,
            line_bytes: 8 * 1024,
            headers: 100,
            head_time: Duration::from_secs(10),
            body_time: Duration::from_secs(30),
            body_rate: 1024,
            body_grace: Duration::from_secs(5),
            idle_time: Duration::from_secs(60),
            write_time: Duration::from_secs(30),
            linger_time: Duration::from_secs(2),
            // more than examples/nginx.conf lets through: a proxy that cannot get rid of a body says 502 instead of our answer
            linger_bytes: 4 << 20,
            connections: 4096,
            connections_per_address: 512,
            buffered_bytes: 32 * 1024 * 1024,
            workers: 4,
            at_once: 0,
        }
    }
}
