//! From bytes to requests: needs more, a head, a body, or a fault that names what is wrong.
//!
//! Pure: no sockets, clocks or threads, so that it can be fuzzed. However the bytes are cut into pieces, the outcome is the
//! same. Strict by intent: what two readers could understand differently is refused. Never panics on any input, never
//! keeps more than the limits, and after a fault never reads on.

use super::body::Body;
use super::headers::Headers;
use super::limits::Limits;
use std::fmt;

/// What a request may be refused for before anyone looks at its meaning.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs)] // each variant is explained by its own text below
pub enum Fault {
    NotHttp,
    BareLineFeed,
    LineTooLong,
    HeadTooLong,
    TooManyHeaders,
    Version,
    Target,
    HeaderLine,
    HostMissing,
    HostTwice,
    Host,
    LengthTwice,
    Length,
    LengthAndCoding,
    Coding,
    Expectation,
    TooLarge,
    ChunkSize,
    ChunkExtension,
    ChunkEnd,
    Trailer,
}

impl Fault {
    /// The status it is answered with.
    pub fn status(self) -> u16 {
        match self {
            Fault::LineTooLong => 414,
            Fault::HeadTooLong | Fault::TooManyHeaders => 431,
            Fault::Version => 505,
            Fault::Expectation => 417,
            Fault::TooLarge => 413,
            _ => 400,
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Fault::NotHttp => "this is not an HTTP/1.1 request (for https, put a proxy that ends TLS in front)",
            Fault::BareLineFeed => "a line of the head ends without a carriage return",
            Fault::LineTooLong => "the request line is too long",
            Fault::HeadTooLong => "the headers are too long",
            Fault::TooManyHeaders => "there are too many headers",
            Fault::Version => "only HTTP/1.0 and HTTP/1.1 are spoken here",
            Fault::Target => "the request target is not a path or an http address",
            Fault::HeaderLine => "a header line is malformed",
            Fault::HostMissing => "the Host header is missing",
            Fault::HostTwice => "there is more than one Host header",
            Fault::Host => "the Host header is malformed",
            Fault::LengthTwice => "there is more than one Content-Length header",
            Fault::Length => "Content-Length is not a number of bytes",
            Fault::LengthAndCoding => "Content-Length and Transfer-Encoding exclude each other",
            Fault::Coding => "chunked, on HTTP/1.1, is the only transfer coding understood here",
            Fault::Expectation => "100-continue is the only expectation understood here",
            Fault::TooLarge => "the body is larger than this endpoint takes",
            Fault::ChunkSize => "a chunk's size is malformed",
            Fault::ChunkExtension => "a chunk's extension is malformed or too long",
            Fault::ChunkEnd => "a chunk is longer or shorter than its size says",
            Fault::Trailer => "the trailers are malformed or too long",
        })
    }
}

impl std::error::Error for Fault {}

/// The method of a request; case matters.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
#[allow(missing_docs)]
pub enum Method {
    Get,
    Head,
    Post,
    Put,
    Patch,
    Delete,
    Options,
    /// Any other, as sent.
    Other(Box<str>),
}

impl Method {
    fn new(text: &str) -> Method {
        match text {
            "GET" => Method::Get,
            "HEAD" => Method::Head,
            "POST" => Method::Post,
            "PUT" => Method::Put,
            "PATCH" => Method::Patch,
            "DELETE" => Method::Delete,
            "OPTIONS" => Method::Options,
            other => Method::Other(other.into()),
        }
    }

    /// As it stands in the request line.
    pub fn as_str(&self) -> &str {
        match self {
            Method::Get => "GET",
            Method::Head => "HEAD",
            Method::Post => "POST",
            Method::Put => "PUT",
            Method::Patch => "PATCH",
            Method::Delete => "DELETE",
            Method::Options => "OPTIONS",
            Method::Other(text) => text,
        }
    }
}

/// A request without its body.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Head {
    /// The method.
    pub method: Method,
    /// The header lines.
    pub headers: Headers,
    target: Box<str>,
    framing: Framing,
    pub(super) minor: u8,
    pub(super) keep_alive: bool,
    pub(super) expects_continue: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Framing {
    Length(u64),
    Chunked,
}

impl Head {
    /// Path and query as sent: nothing decoded, scheme and authority of an absolute target removed.
    pub fn target(&self) -> &str {
        &self.target
    }

    /// The part of the target before the first `?`; starts with `/` (or is `*`). Percent-encoding is left as it is.
    pub fn path(&self) -> &str {
        self.target.split_once('?').map_or(&self.target, |(path, _)| path)
    }

    /// The part of the target behind the first `?`, as sent.
    pub fn query(&self) -> Option<&str> {
        self.target.split_once('?').map(|(_, query)| query)
    }

    /// The number of bytes the body will have; `None` when it comes in chunks.
    pub fn body_length(&self) -> Option<u64> {
        match self.framing {
            Framing::Length(length) => Some(length),
            Framing::Chunked => None,
        }
    }
}

/// What a reader came to.
#[derive(Debug)]
pub enum Step {
    /// All input is taken and more is needed.
    More,
    /// A head is complete. The reader goes on after [`Reader::accept`].
    Head(Head),
    /// The body is complete, and with it the request. The reader is ready for the next one.
    Body(Vec<u8>),
}

/// Reads one request after another from the bytes of one connection.
#[derive(Debug)]
pub struct Reader {
    head_bytes: usize,
    line_bytes: usize,
    headers: usize,
    state: State,
}

#[derive(Debug)]
enum State {
    Head { buffer: Vec<u8>, scan: Scan },
    Decide(Framing),
    Body { body: Body, bytes: Vec<u8>, limit: u64 },
}

impl State {
    const START: State =
        State::Head { buffer: Vec::new(), scan: Scan { at: 0, start: 0, line: 0, blank: false, lines: 0 } };
}

impl Reader {
    /// A reader at the start of a connection.
    pub fn new(limits: &Limits) -> Reader {
        Reader {
            head_bytes: limits.head_bytes,
            line_bytes: limits.line_bytes,
            headers: limits.headers.min(Limits::HEADERS_MOST),
            state: State::START,
        }
    }

    /// Takes bytes from the front of `input`: how many, and what came of it. Call again with the rest until
    /// [`Step::More`]; after [`Step::Head`] and [`Reader::accept`] also when there is no rest.
    ///
    /// # Errors
    /// The first fault in the order of the bytes. The connection cannot be read any further then.
    pub fn advance(&mut self, input: &[u8]) -> Result<(usize, Step), Fault> {
        match &mut self.state {
            State::Head { buffer, scan } => {
                let before = buffer.len();
                let joined = if before == 0 {
                    input
                } else {
                    buffer.extend_from_slice(input);
                    buffer.as_slice()
                };
                let Some(end) = scan.find_end(joined, self.head_bytes, self.line_bytes)? else {
                    if before == 0 {
                        buffer.extend_from_slice(input);
                    }
                    return Ok((input.len(), Step::More));
                };
                let head = parse_head(&joined[scan.start..end], self.headers)?;
                self.state = State::Decide(head.framing);
                Ok((end - before, Step::Head(head)))
            }
            State::Decide(_) => Ok((0, Step::More)),
            State::Body { body, bytes, limit } => {
                let (taken, complete) = body.read(input, bytes, *limit)?;
                if !complete {
                    return Ok((taken, Step::More));
                }
                let bytes = std::mem::take(bytes);
                self.state = State::START;
                Ok((taken, Step::Body(bytes)))
            }
        }
    }

    /// Says that the body of the head just read is wanted, up to `limit` bytes.
    ///
    /// # Errors
    /// [`Fault::TooLarge`] when it is declared longer than that.
    pub fn accept(&mut self, limit: u64) -> Result<(), Fault> {
        let State::Decide(framing) = self.state else { return Ok(()) };
        let body = match framing {
            Framing::Length(length) if length > limit => return Err(Fault::TooLarge),
            Framing::Length(length) => Body::Counted(length),
            Framing::Chunked => Body::chunked(),
        };
        self.state = State::Body { body, bytes: Vec::new(), limit };
        Ok(())
    }

    /// Says that the head just read has no body, or that nobody wants to know, and goes on to the next request.
    pub(super) fn skip(&mut self) {
        self.state = State::START;
    }

    /// Whether nothing of a request has arrived yet (the empty line that some clients send after a body is nothing).
    pub(super) fn is_idle(&self) -> bool {
        matches!(&self.state, State::Head { buffer, .. } if buffer.is_empty() || buffer == b"\r\n")
    }

    /// While a body is on its way: the bytes of it that are here.
    pub(super) fn body_received(&self) -> Option<u64> {
        match &self.state {
            State::Body { bytes, .. } => Some(bytes.len() as u64),
            _ => None,
        }
    }

    /// Bytes of memory held for the unfinished request.
    pub fn held(&self) -> usize {
        match &self.state {
            State::Head { buffer, .. } => buffer.capacity(),
            State::Decide(_) => 0,
            State::Body { bytes, .. } => bytes.capacity(),
        }
    }
}

/// Looks for the end of the head, each byte once.
#[derive(Debug)]
struct Scan {
    at: usize,
    start: usize,
    line: usize,
    blank: bool,
    lines: usize,
}

impl Scan {
    fn find_end(&mut self, bytes: &[u8], head_bytes: usize, line_bytes: usize) -> Result<Option<usize>, Fault> {
        loop {
            if self.lines == 0 {
                match bytes.get(self.start) {
                    Some(&first) if !is_token(first) && first != b'\r' => return Err(Fault::NotHttp),
                    _ => {}
                }
            }
            let found = bytes[self.at..].iter().position(|&byte| byte == b'\n');
            // a line without an end yet is at least this long
            let end = found.map_or(bytes.len(), |offset| self.at + offset);
            if self.lines == 0 && end - self.start > line_bytes {
                return Err(Fault::LineTooLong);
            }
            if end - self.start > head_bytes {
                return Err(Fault::HeadTooLong);
            }
            if found.is_none() {
                self.at = end;
                return Ok(None);
            }
            if end == self.line || bytes[end - 1] != b'\r' {
                return Err(Fault::BareLineFeed);
            }
            self.at = end + 1;
            let empty = end - 1 == self.line;
            self.line = end + 1;
            match (empty, self.lines) {
                // one empty line before a request is an old habit of clients
                (true, 0) if !self.blank => {
                    self.blank = true;
                    self.start = end + 1;
                }
                (true, 0) => return Err(Fault::NotHttp),
                (true, _) => return Ok(Some(end + 1)),
                (false, _) => self.lines += 1,
            }
        }
    }
}

/// The bytes a header name or a method may have.
pub(super) fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

/// The bytes a header value may have.
pub(super) fn is_value(byte: u8) -> bool {
    byte == b'\t' || (byte >= 0x20 && byte != 0x7f)
}

fn parse_head(bytes: &[u8], headers_most: usize) -> Result<Head, Fault> {
    let mut lines = [httparse::EMPTY_HEADER; Limits::HEADERS_MOST];
    let mut request = httparse::Request::new(&mut lines);
    match request.parse(bytes) {
        Ok(httparse::Status::Complete(length)) if length == bytes.len() => {}
        Ok(_) => return Err(Fault::NotHttp),
        Err(httparse::Error::TooManyHeaders) => return Err(Fault::TooManyHeaders),
        Err(httparse::Error::Version) if names_other_version(bytes) => return Err(Fault::Version),
        Err(httparse::Error::HeaderName | httparse::Error::HeaderValue) => return Err(Fault::HeaderLine),
        Err(_) => return Err(Fault::NotHttp),
    }
    let (Some(method), Some(target), Some(minor)) = (request.method, request.path, request.version) else {
        return Err(Fault::NotHttp);
    };
    if request.headers.len() > headers_most {
        return Err(Fault::TooManyHeaders);
    }
    let mut headers = Headers::with_capacity(request.headers.len(), bytes.len());
    let mut length = None;
    let mut coding = None;
    let mut hosts = 0;
    let mut close = false;
    let mut keep_alive = false;
    let mut expects_continue = false;
    for line in request.headers.iter() {
        let value = line.value.trim_ascii();
        if !line.name.bytes().all(is_token) || !value.iter().all(|&byte| is_value(byte)) {
            return Err(Fault::HeaderLine);
        }
        headers.push(line.name, value);
        if line.name.eq_ignore_ascii_case("host") {
            hosts += 1;
            if value.iter().any(|byte| !byte.is_ascii_graphic() || b"/\\@?#,\"<>".contains(byte)) {
                return Err(Fault::Host);
            }
        } else if line.name.eq_ignore_ascii_case("content-length") {
            if length.is_some() {
                return Err(Fault::LengthTwice);
            }
            length = Some(parse_length(value)?);
        } else if line.name.eq_ignore_ascii_case("transfer-encoding") {
            if coding.is_some() || !value.eq_ignore_ascii_case(b"chunked") {
                return Err(Fault::Coding);
            }
            coding = Some(());
        } else if line.name.eq_ignore_ascii_case("connection") {
            for word in value.split(|&byte| byte == b',').map(<[u8]>::trim_ascii) {
                close |= word.eq_ignore_ascii_case(b"close");
                keep_alive |= word.eq_ignore_ascii_case(b"keep-alive");
            }
        } else if line.name.eq_ignore_ascii_case("expect") {
            if !value.eq_ignore_ascii_case(b"100-continue") {
                return Err(Fault::Expectation);
            }
            expects_continue = minor >= 1;
        }
    }
    match hosts {
        0 if minor >= 1 => return Err(Fault::HostMissing),
        0 | 1 => {}
        _ => return Err(Fault::HostTwice),
    }
    let framing = match (length, coding) {
        (Some(_), Some(())) => return Err(Fault::LengthAndCoding),
        (None, Some(())) if minor == 0 => return Err(Fault::Coding),
        (None, Some(())) => Framing::Chunked,
        (length, None) => Framing::Length(length.unwrap_or(0)),
    };
    Ok(Head {
        method: Method::new(method),
        target: parse_target(target)?,
        headers,
        framing,
        minor,
        keep_alive: !close && (minor >= 1 || keep_alive),
        expects_continue,
    })
}

/// Digits and nothing else, within 64 bits.
fn parse_length(value: &[u8]) -> Result<u64, Fault> {
    if value.is_empty() || !value.iter().all(u8::is_ascii_digit) {
        return Err(Fault::Length);
    }
    std::str::from_utf8(value).ok().and_then(|text| text.parse().ok()).ok_or(Fault::Length)
}

fn names_other_version(bytes: &[u8]) -> bool {
    let line = bytes.split(|&byte| byte == b'\r').next().unwrap_or_default();
    let version = line.splitn(3, |&byte| byte == b' ').nth(2).unwrap_or_default();
    matches!(version, [b'H', b'T', b'T', b'P', b'/', major, b'.', minor] if major.is_ascii_digit() && minor.is_ascii_digit())
}

fn parse_target(target: &str) -> Result<Box<str>, Fault> {
    if target.bytes().any(|byte| !byte.is_ascii_graphic() || byte == b'#') {
        return Err(Fault::Target);
    }
    if target.starts_with('/') || target == "*" {
        return Ok(target.into());
    }
    let (scheme, rest) = target.split_once("://").ok_or(Fault::Target)?;
    if !scheme.eq_ignore_ascii_case("http") && !scheme.eq_ignore_ascii_case("https") {
        return Err(Fault::Target);
    }
    match rest.find(['/', '?']) {
        Some(0) => Err(Fault::Target),
        None if rest.is_empty() => Err(Fault::Target),
        None => Ok("/".into()),
        Some(at) if rest.as_bytes()[at] == b'/' => Ok(rest[at..].into()),
        Some(at) => Ok(format!("/{}", &rest[at..]).into()),
    }
}

#[cfg(test)]
#[path = "parse_tests.rs"]
mod tests;
