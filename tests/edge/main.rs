//! The edge, spoken to over raw sockets: what it serves, what it refuses, and who it goes on serving meanwhile.
//!
//! Tests wait for facts (an answer, a closed connection, a counter), never for a fixed time; deadlines that are tested are
//! made short through `Limits`, all others keep their defaults.

mod crowds;
mod hostile;
mod serving;
mod time;

use postonce::edge::{Client, Front, Head, Limits, Proxies, Reply, Request, Response, Route, Stats, listen};
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Longer than any fact may take on a busy machine; reaching it is a failure.
const PATIENCE: Duration = Duration::from_secs(20);

/// A front whose handler answers 200 with `METHOD TARGET LENGTH` of what it got, and counts.
struct Served {
    front: Front,
    handled: Arc<AtomicUsize>,
}

/// Bodies up to 100,000 bytes; 404 for /nowhere, 405 for PUT.
fn usual_route(head: &Head, _: &Client) -> Route {
    match (head.method.as_str(), head.path()) {
        (_, "/nowhere") => Route::Answer(Response::text(404, "no such place\n")),
        ("PUT", _) => Route::Answer(Response::text(405, "not so\n").with_header("Allow", "POST")),
        _ => Route::Read { limit: 100_000 },
    }
}

fn describe(request: &Request) -> Response {
    let Request { head, body, .. } = request;
    Response::text(200, format!("{} {} {}", head.method.as_str(), head.target(), body.len()))
}

fn serve(limits: Limits) -> Served {
    let handled = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&handled);
    let front = start(limits, move |request, reply| {
        count.fetch_add(1, Ordering::SeqCst);
        reply.send(describe(&request));
    });
    Served { front, handled }
}

fn start(limits: Limits, handler: impl Fn(Request, Reply) + Send + Sync + 'static) -> Front {
    start_with(limits, Proxies::default(), usual_route, handler)
}

fn start_with(
    limits: Limits,
    proxies: Proxies,
    route: impl Fn(&Head, &Client) -> Route + Send + 'static,
    handler: impl Fn(Request, Reply) + Send + Sync + 'static,
) -> Front {
    let listener = listen("127.0.0.1:0".parse().unwrap()).unwrap();
    Front::start(listener, limits, proxies, route, handler).unwrap()
}

/// One raw connection.
struct Wire {
    stream: TcpStream,
    read: Vec<u8>,
}

#[derive(Debug, PartialEq, Eq)]
struct Answer {
    status: u16,
    head: String,
    body: String,
}

impl Answer {
    fn header(&self, name: &str) -> Option<&str> {
        self.head
            .lines()
            .filter_map(|line| line.split_once(": "))
            .find(|(other, _)| *other == name)
            .map(|(_, value)| value)
    }
}

impl Wire {
    fn to(address: SocketAddr) -> Wire {
        let stream = TcpStream::connect_timeout(&address, PATIENCE).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        stream.set_nodelay(true).unwrap();
        Wire { stream, read: Vec::new() }
    }

    fn send(&mut self, bytes: impl AsRef<[u8]>) -> &mut Wire {
        self.stream.write_all(bytes.as_ref()).unwrap();
        self
    }

    /// Sends as far as the other side lets it.
    fn try_send(&mut self, bytes: impl AsRef<[u8]>) -> bool {
        self.stream.write_all(bytes.as_ref()).is_ok()
    }

    fn more(&mut self) -> bool {
        let mut piece = [0; 65536];
        match self.stream.read(&mut piece) {
            Ok(0) => false,
            Ok(count) => {
                self.read.extend_from_slice(&piece[..count]);
                true
            }
            Err(error) if error.kind() == ErrorKind::ConnectionReset => false,
            Err(error) => panic!("nothing came: {error}; so far {:?}", String::from_utf8_lossy(&self.read)),
        }
    }

    fn try_answer_to(&mut self, method: &str) -> Option<Answer> {
        let end = loop {
            if let Some(at) = self.read.windows(4).position(|four| four == b"\r\n\r\n") {
                break at + 4;
            }
            if !self.more() {
                assert!(self.read.is_empty(), "half an answer: {:?}", String::from_utf8_lossy(&self.read));
                return None;
            }
        };
        let head = String::from_utf8(self.read.drain(..end).collect()).unwrap();
        let status =
            head.strip_prefix("HTTP/1.1 ").and_then(|rest| rest.get(..3)?.parse().ok()).expect("a status line");
        let mut answer = Answer { status, head, body: String::new() };
        let length = answer.header("Content-Length").map_or(0, |length| length.parse().unwrap());
        if method != "HEAD" {
            while self.read.len() < length {
                assert!(self.more(), "the answer's body is cut");
            }
            answer.body = String::from_utf8(self.read.drain(..length).collect()).unwrap();
        }
        Some(answer)
    }

    fn answer(&mut self) -> Answer {
        self.try_answer_to("GET").expect("an answer, not a closed connection")
    }

    fn ask(&mut self, request: impl AsRef<[u8]>) -> Answer {
        self.send(request).answer()
    }

    /// Whether the other side closes without another byte.
    fn closes(&mut self) -> bool {
        self.read.is_empty() && !self.more()
    }

    /// Whether the other side closes in order, with all it sent being read, and not by a reset.
    fn ends(&mut self) -> bool {
        self.read.is_empty() && matches!(self.stream.read(&mut [0]), Ok(0))
    }

    fn end(&self) {
        self.stream.shutdown(Shutdown::Write).unwrap();
    }
}

fn get(target: &str) -> String {
    format!("GET {target} HTTP/1.1\r\nHost: a\r\n\r\n")
}

fn post(target: &str, body: &str) -> String {
    format!("POST {target} HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n{body}", body.len())
}

/// Asserts that a new client is served.
fn is_well(front: &Front) {
    let answer = Wire::to(front.local_addr()).ask(post("/well", "yes"));
    assert_eq!((answer.status, answer.body.as_str()), (200, "POST /well 3"));
}

/// Waits until the front's numbers are as wanted.
fn until(front: &Front, what: &str, wanted: impl Fn(&Stats) -> bool) -> Stats {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let stats = front.stats();
        if wanted(&stats) {
            return stats;
        }
        assert!(Instant::now() < deadline, "never came: {what}; {stats:?}");
        std::thread::yield_now();
    }
}
