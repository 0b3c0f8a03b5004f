//! An answer, and how it is written.
//!
//! Content-Length is always counted here and Connection always decided by the front, so that no caller can break the
//! framing. A header that could is not sent: the peer gets a plain 500 and the log says why.

use std::borrow::Cow;

type Text = Cow<'static, str>;

/// Status, headers and body of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Response {
    status: u16,
    headers: Vec<(Text, Text)>,
    body: Cow<'static, [u8]>,
}

impl Response {
    /// An answer without a body. `status` is 200 to 599.
    pub fn new(status: u16) -> Response {
        Response { status, headers: Vec::new(), body: Cow::Borrowed(&[]) }
    }

    /// Plain text.
    pub fn text(status: u16, text: impl Into<Text>) -> Response {
        Response::new(status).with_header("Content-Type", "text/plain; charset=utf-8").with_body(match text.into() {
            Cow::Borrowed(text) => Cow::Borrowed(text.as_bytes()),
            Cow::Owned(text) => Cow::Owned(text.into_bytes()),
        })
    }

    /// JSON that is already written.
    pub fn json(status: u16, json: impl Into<Cow<'static, [u8]>>) -> Response {
        Response::new(status).with_header("Content-Type", "application/json").with_body(json)
    }

    /// Adds a header. `Content-Length`, `Transfer-Encoding` and `Connection` are the front's own.
    pub fn with_header(mut self, name: impl Into<Text>, value: impl Into<Text>) -> Response {
        self.headers.push((name.into(), value.into()));
        self
    }

    /// Sets the body.
    pub fn with_body(mut self, body: impl Into<Cow<'static, [u8]>>) -> Response {
        self.body = body.into();
        self
    }

    /// The status.
    pub fn status(&self) -> u16 {
        self.status
    }

    /// The body.
    pub fn body(&self) -> &[u8] {
        &self.body
    }

    /// The first value of a header.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(other, _)| other.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_ref())
    }

    /// The first header that must not be sent: one that is malformed, or whose name is the front's.
    fn offence(&self) -> Option<&str> {
        let fine = |name: &str, value: &str| {
            !name.is_empty()
                && name.bytes().all(super::parse::is_token)
                && value.bytes().all(super::parse::is_value)
                && !["content-length", "transfer-encoding", "connection"]
                    .iter()
                    .any(|own| name.eq_ignore_ascii_case(own))
        };
        self.headers.iter().find(|(name, value)| !fine(name, value)).map(|(name, _)| name.as_ref())
    }

    /// Writes the answer into `out` and returns the status it has there.
    pub(super) fn encode(&self, out: &mut Vec<u8>, head_only: bool, connection: Option<&str>) -> u16 {
        if let Some(name) = self.offence() {
            log::error!("an answer was not sent because its header {name:?} is not allowed or has line breaks in it");
            return Response::text(500, "the answer could not be written\n").encode(out, head_only, connection);
        }
        if !(200..600).contains(&self.status) {
            log::error!("an answer was not sent because {} is no status", self.status);
            return Response::text(500, "the answer could not be written\n").encode(out, head_only, connection);
        }
        out.extend_from_slice(b"HTTP/1.1 ");
        push_number(out, usize::from(self.status));
        out.push(b' ');
        out.extend_from_slice(reason(self.status).as_bytes());
        out.extend_from_slice(b"\r\n");
        for (name, value) in &self.headers {
            push_header(out, name, value);
        }
        let bodiless = matches!(self.status, 204 | 304);
        if !bodiless {
            out.extend_from_slice(b"Content-Length: ");
            push_number(out, self.body.len());
            out.extend_from_slice(b"\r\n");
        }
        if let Some(connection) = connection {
            push_header(out, "Connection", connection);
        }
        out.extend_from_slice(b"\r\n");
        if !head_only && !bodiless {
            out.extend_from_slice(&self.body);
        }
        self.status
    }
}

fn push_header(out: &mut Vec<u8>, name: &str, value: &str) {
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b": ");
    out.extend_from_slice(value.as_bytes());
    out.extend_from_slice(b"\r\n");
}

fn push_number(out: &mut Vec<u8>, number: usize) {
    let mut digits = [0; 20];
    let mut at = digits.len();
    let mut rest = number;
    loop {
        at -= 1;
        digits[at] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    out.extend_from_slice(&digits[at..]);
}

/// The words behind a status.
pub(super) fn reason(status: u16) -> &'static str {
    match status {
        200 => "OK",
        201 => "Created",
        202 => "Accepted",
        204 => "No Content",
        301 => "Moved Permanently",
        302 => "Found",
        303 => "See Other",
        304 => "Not Modified",
        400 => "Bad Request",
        401 => "Unauthorized",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        408 => "Request Timeout",
        409 => "Conflict",
        410 => "Gone",
        411 => "Length Required",
        413 => "Content Too Large",
        414 => "URI Too Long",
        415 => "Unsupported Media Type",
        417 => "Expectation Failed",
        422 => "Unprocessable Content",
        429 => "Too Many Requests",
        431 => "Request Header Fields Too Large",
        500 => "Internal Server Error",
        501 => "Not Implemented",
        503 => "Service Unavailable",
        505 => "HTTP Version Not Supported",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(response: &Response, head_only: bool, connection: Option<&str>) -> String {
        let mut out = Vec::new();
        response.encode(&mut out, head_only, connection);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn the_length_is_counted_and_the_body_follows() {
        let response = Response::text(200, "hello").with_header("Allow", "POST");
        let head = "HTTP/1.1 200 OK\r\nContent-Type: text/plain; charset=utf-8\r\nAllow: POST\r\nContent-Length: 5\r\n";
        assert_eq!(written(&response, false, None), format!("{head}\r\nhello"));
        assert_eq!(written(&response, true, None), format!("{head}\r\n"));
        assert_eq!(written(&response, false, Some("close")), format!("{head}Connection: close\r\n\r\nhello"));
    }

    #[test]
    fn no_content_has_neither_length_nor_body() {
        assert_eq!(
            written(&Response::text(204, "x").with_body(b"x".as_slice()), false, None).find("Content-Length"),
            None
        );
        assert!(written(&Response::new(204), false, None).ends_with("\r\n\r\n"));
    }

    #[test]
    fn a_header_that_would_break_the_framing_becomes_a_500() {
        for (name, value) in [
            ("X-Echo", "a\r\nSet-Cookie: b"),
            ("X-Echo", "a\nb"),
            ("X-Echo", "a\0b"),
            ("X Echo", "a"),
            ("", "a"),
            ("content-length", "7"),
            ("Transfer-Encoding", "chunked"),
        ] {
            let text = written(&Response::new(200).with_header(name, value), false, None);
            assert!(text.starts_with("HTTP/1.1 500 "), "{name:?}: {value:?} gave {text}");
            assert!(!text.contains("Set-Cookie"));
        }
        assert!(written(&Response::new(100), false, None).starts_with("HTTP/1.1 500 "));
    }
}
