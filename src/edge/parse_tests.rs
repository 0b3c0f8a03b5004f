//! What the reader takes, what it refuses, and that the cutting of the input changes neither.

use super::*;
use proptest::prelude::*;

/// What came of a whole input: requests, and the fault that ended it.
#[derive(Debug, PartialEq, Eq)]
struct Outcome {
    requests: Vec<(Head, Vec<u8>)>,
    fault: Option<Fault>,
    idle: bool,
}

fn read_pieces<'a>(limits: &Limits, body_limit: u64, pieces: impl IntoIterator<Item = &'a [u8]>) -> Outcome {
    let mut reader = Reader::new(limits);
    let mut outcome = Outcome { requests: Vec::new(), fault: None, idle: true };
    let mut head = None;
    for mut piece in pieces {
        loop {
            let step = match reader.advance(piece) {
                Ok((taken, step)) => {
                    piece = &piece[taken..];
                    step
                }
                Err(fault) => {
                    outcome.fault = Some(fault);
                    return outcome;
                }
            };
            match step {
                Step::More => {
                    assert!(piece.is_empty(), "asked for more with {} bytes left", piece.len());
                    break;
                }
                Step::Head(new) => {
                    if let Err(fault) = reader.accept(body_limit) {
                        outcome.fault = Some(fault);
                        return outcome;
                    }
                    head = Some(new);
                }
                Step::Body(body) => outcome.requests.push((head.take().expect("a head before its body"), body)),
            }
            let most = (limits.head_bytes * 2).max(body_limit as usize) + piece.len().max(64);
            assert!(reader.held() <= most, "holds {} of at most {most}", reader.held());
        }
    }
    outcome.idle = reader.is_idle();
    outcome
}

fn read(text: &[u8]) -> Outcome {
    read_pieces(&Limits::default(), 1000, [text])
}

fn fault(text: impl AsRef<[u8]>) -> Option<Fault> {
    read(text.as_ref()).fault
}

fn one(text: &str) -> (Head, Vec<u8>) {
    let mut outcome = read(text.as_bytes());
    assert_eq!(outcome.fault, None, "{text:?}");
    assert_eq!(outcome.requests.len(), 1, "{text:?}");
    outcome.requests.pop().unwrap()
}

fn with(lines: &str) -> String {
    format!("POST /w HTTP/1.1\r\nHost: a\r\n{lines}\r\n0123456789")
}

#[test]
fn a_request_is_read_with_its_body_and_raw_target() {
    let (head, body) =
        one("POST /a%20b/c?x=1&y=%3F?z HTTP/1.1\r\nHost: a.b:80\r\nX-Sig:  v \r\nContent-Length: 5\r\n\r\nhello");
    assert_eq!(head.method, Method::Post);
    assert_eq!(head.target(), "/a%20b/c?x=1&y=%3F?z");
    assert_eq!((head.path(), head.query()), ("/a%20b/c", Some("x=1&y=%3F?z")));
    assert_eq!(head.headers.get("x-sig"), Some(b"v".as_slice()));
    assert_eq!(body, b"hello");
    assert!(head.keep_alive);
}

#[test]
fn absolute_targets_lose_scheme_and_authority() {
    for (target, path) in [
        ("http://a/b?c", "/b?c"),
        ("HTTPS://a:1/b", "/b"),
        ("http://a", "/"),
        ("http://a?c", "/?c"),
        ("http://a/http://b/c", "/http://b/c"),
        ("*", "*"),
    ] {
        assert_eq!(one(&format!("GET {target} HTTP/1.1\r\nHost: a\r\n\r\n")).0.target(), path);
    }
    for target in ["a:443", "ftp://a/b", "http:///b", "http://", "b", "/a#b", "/\u{e9}", "?x"] {
        assert_eq!(fault(format!("GET {target} HTTP/1.1\r\nHost: a\r\n\r\n")), Some(Fault::Target), "{target}");
    }
}

#[test]
fn keep_alive_follows_the_version_and_the_connection_header() {
    for (version, connection, expected) in [
        ("1.1", "", true),
        ("1.1", "Connection: close\r\n", false),
        ("1.1", "Connection: x, CLOSE\r\n", false),
        ("1.1", "Connection: keep-alive\r\nConnection: close\r\n", false),
        ("1.0", "", false),
        ("1.0", "Connection: Keep-Alive\r\n", true),
    ] {
        let head = one(&format!("GET / HTTP/{version}\r\nHost: a\r\n{connection}\r\n")).0;
        assert_eq!(head.keep_alive, expected, "{version} {connection:?}");
    }
}

#[test]
fn other_versions_are_told_apart_from_noise() {
    for version in ["HTTP/2.0", "HTTP/0.9", "HTTP/1.2", "HTTP/3.0"] {
        assert_eq!(fault(format!("GET / {version}\r\nHost: a\r\n\r\n")), Some(Fault::Version), "{version}");
    }
    assert_eq!(fault("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), Some(Fault::Version));
    for noise in [
        "GET /\r\n\r\n",
        "GET / http/1.1\r\nHost: a\r\n\r\n",
        "GET  / HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET / HTTP/1.1 \r\nHost: a\r\n\r\n",
        "GET / x HTTP/1.1\r\nHost: a\r\n\r\n",
        "\x16\x03\x01\x02",
        " GET / HTTP/1.1\r\n\r\n",
        "\r\n\r\n",
        "G\0T / HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET /\0 HTTP/1.1\r\nHost: a\r\n\r\n",
    ] {
        assert_eq!(fault(noise), Some(Fault::NotHttp), "{noise:?}");
    }
}

#[test]
fn one_empty_line_before_a_request_is_forgiven() {
    assert_eq!(one("\r\nGET /a HTTP/1.1\r\nHost: a\r\n\r\n").0.target(), "/a");
    assert_eq!(fault("\nGET /a HTTP/1.1\r\nHost: a\r\n\r\n"), Some(Fault::NotHttp));
}

#[test]
fn a_length_is_digits_once_and_within_64_bits() {
    for value in ["abc", "-1", "+5", "5, 5", "5,5", "5 5", "0x5", "", "5;", "18446744073709551616", "1e3", "\u{664}"] {
        assert_eq!(fault(with(&format!("Content-Length: {value}\r\n"))), Some(Fault::Length), "{value:?}");
    }
    assert_eq!(fault(with("Content-Length: 5\r\nContent-Length: 5\r\n")), Some(Fault::LengthTwice));
    assert_eq!(fault(with("Content-Length: 5\r\ncontent-length: 6\r\n")), Some(Fault::LengthTwice));
    assert_eq!(fault(with("Content-Length: 18446744073709551615\r\n")), Some(Fault::TooLarge));
    assert_eq!(fault(with("Content-Length: 1001\r\n")), Some(Fault::TooLarge));
    assert_eq!(one(&with("Content-Length: 0010\r\n")).1, b"0123456789");
}

#[test]
fn chunked_alone_on_1_1_is_the_only_coding() {
    let both =
        ["Content-Length: 5\r\nTransfer-Encoding: chunked\r\n", "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n"];
    for lines in both {
        assert_eq!(fault(with(lines)), Some(Fault::LengthAndCoding), "{lines:?}");
    }
    for coding in [
        "xchunked",
        "identity",
        "gzip",
        "gzip, chunked",
        "chunked, chunked",
        "chunked;q=1",
        "\"chunked\"",
        "",
        "chunke",
    ] {
        assert_eq!(fault(with(&format!("Transfer-Encoding: {coding}\r\n"))), Some(Fault::Coding), "{coding:?}");
    }
    let twice = "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n";
    assert_eq!(fault(with(twice)), Some(Fault::Coding));
    let old = "POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n";
    assert_eq!(fault(old), Some(Fault::Coding));
}

#[test]
fn header_lines_are_strict() {
    for line in [
        "Name : v",
        "Name\t: v",
        " Name: v",
        "Na me: v",
        ": v",
        "Name",
        "X: a\r\n folded",
        "X: a\r\n\tfolded",
        "X: a\0b",
        "X: a\x1bb",
        "X: a\x7fb",
        "X: a\rb",
        "N\0: v",
        "N\u{e9}: v",
        "N(: v",
    ] {
        let got = fault(format!("GET / HTTP/1.1\r\nHost: a\r\n{line}\r\n\r\n"));
        assert!(matches!(got, Some(Fault::HeaderLine | Fault::NotHttp)), "{line:?} gave {got:?}");
    }
    let head = one("GET / HTTP/1.1\r\nHost: a\r\nX: \u{e9}\t~\r\n\r\n").0;
    assert_eq!(head.headers.get("x"), Some("\u{e9}\t~".as_bytes()));
}

#[test]
fn bare_line_feeds_are_refused_at_once() {
    for text in [
        "GET / HTTP/1.1\n",
        "GET / HTTP/1.1\r\nHost: a\n",
        "GET / HTTP/1.1\r\nHost: a\r\n\n",
        "GET / HTTP/1.1\r\nX: a\nb",
    ] {
        assert_eq!(fault(text), Some(Fault::BareLineFeed), "{text:?}");
    }
}

#[test]
fn a_host_is_named_once() {
    assert_eq!(fault("GET / HTTP/1.1\r\n\r\n"), Some(Fault::HostMissing));
    assert_eq!(fault("GET / HTTP/1.1\r\nHost: a\r\nhost: a\r\n\r\n"), Some(Fault::HostTwice));
    assert_eq!(fault("GET / HTTP/1.1\r\nHost: a b\r\n\r\n"), Some(Fault::Host));
    assert_eq!(fault("GET / HTTP/1.1\r\nHost: a/b\r\n\r\n"), Some(Fault::Host));
    one("GET / HTTP/1.0\r\n\r\n");
    one("GET / HTTP/1.1\r\nHost: [::1]:80\r\n\r\n");
}

#[test]
fn the_head_is_bounded_in_every_direction() {
    let limits = Limits::default();
    let line =
        |length: usize| format!("GET /{} HTTP/1.1\r\nHost: a\r\n\r\n", "a".repeat(length - "GET / HTTP/1.1\r".len()));
    assert_eq!(fault(line(limits.line_bytes)), None);
    assert_eq!(fault(line(limits.line_bytes + 1)), Some(Fault::LineTooLong));
    assert_eq!(fault("A".repeat(limits.line_bytes + 1)), Some(Fault::LineTooLong));
    let start = "GET / HTTP/1.1\r\nHost: a\r\nX: ";
    let head = |length: usize| format!("{start}{}\r\n\r\n", "a".repeat(length - start.len() - 4));
    assert_eq!(fault(head(limits.head_bytes)), None);
    assert_eq!(fault(head(limits.head_bytes + 2)), Some(Fault::HeadTooLong));
    assert_eq!(fault(format!("{start}{}", "a".repeat(limits.head_bytes))), Some(Fault::HeadTooLong));
    let many = |count: usize| format!("GET / HTTP/1.1\r\nHost: a\r\n{}\r\n", "X: a\r\n".repeat(count - 1));
    assert_eq!(fault(many(limits.headers)), None);
    assert_eq!(fault(many(limits.headers + 1)), Some(Fault::TooManyHeaders));
    assert_eq!(fault(many(Limits::HEADERS_MOST + 1)), Some(Fault::TooManyHeaders));
}

#[test]
fn expectations_other_than_100_continue_are_refused() {
    assert!(one(&with("Expect: 100-Continue\r\nContent-Length: 10\r\n")).0.expects_continue);
    assert_eq!(fault(with("Expect: a-pony\r\nContent-Length: 10\r\n")), Some(Fault::Expectation));
    let old = "POST / HTTP/1.0\r\nExpect: 100-continue\r\nContent-Length: 1\r\n\r\nx";
    assert!(!one(old).0.expects_continue);
}

fn chunked(body: &str) -> String {
    format!("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: Chunked\r\n\r\n{body}")
}

#[test]
fn chunks_are_joined_and_trailers_dropped() {
    for (body, expected) in [
        ("0\r\n\r\n", ""),
        ("5\r\nhello\r\n0\r\n\r\n", "hello"),
        ("5;a=b;c=\"d\"\r\nhello\r\n00A\r\n0123456789\r\n000\r\n\r\n", "hello0123456789"),
        ("1\r\n\r\r\n1\r\n\n\r\n0;x\r\nTrailer: v\r\nX:\r\n\r\n", "\r\n"),
    ] {
        assert_eq!(one(&chunked(body)).1, expected.as_bytes(), "{body:?}");
    }
    assert_eq!(one(&chunked("0\r\nX-Sig: no\r\n\r\n")).0.headers.get("x-sig"), None);
}

#[test]
fn bad_chunks_are_refused() {
    let digits = "0".repeat(17);
    let extension = format!("5;{}", "a".repeat(300));
    let trailer = format!("0\r\nX: {}", "a".repeat(5000));
    let trailers = format!("0\r\n{}", "X: a\r\n".repeat(1000));
    for (body, expected) in [
        ("\r\n", Fault::ChunkSize),
        ("g\r\n", Fault::ChunkSize),
        ("-5\r\n", Fault::ChunkSize),
        ("+5\r\n", Fault::ChunkSize),
        ("0x5\r\n", Fault::ChunkSize),
        (" 5\r\n", Fault::ChunkSize),
        ("5 \r\n", Fault::ChunkSize),
        ("5\n", Fault::ChunkSize),
        ("5\rx", Fault::ChunkSize),
        (";a\r\n", Fault::ChunkSize),
        (digits.as_str(), Fault::ChunkSize),
        (extension.as_str(), Fault::ChunkExtension),
        ("5;a\nhello", Fault::ChunkExtension),
        ("5;a\0\r\n", Fault::ChunkExtension),
        ("5\r\nhelloo\r\n", Fault::ChunkEnd),
        ("5\r\nhello\n", Fault::ChunkEnd),
        ("5\r\nhello\rx", Fault::ChunkEnd),
        ("3e9\r\n", Fault::TooLarge),
        ("ffffffffffffffff\r\n", Fault::TooLarge),
        ("0\r\nX\r\n", Fault::Trailer),
        ("0\r\n folded\r\n", Fault::Trailer),
        ("0\r\nX: a\0\r\n", Fault::Trailer),
        ("0\r\nX: a\n", Fault::Trailer),
        ("0\r\n\rx", Fault::Trailer),
        (trailer.as_str(), Fault::Trailer),
        (trailers.as_str(), Fault::Trailer),
    ] {
        assert_eq!(fault(chunked(body)), Some(expected), "{body:?}");
    }
}

#[test]
fn chunks_together_are_held_to_the_limit() {
    let hundred = format!("64\r\n{}\r\n", "x".repeat(100));
    assert_eq!(one(&chunked(&format!("{}0\r\n\r\n", hundred.repeat(10)))).1.len(), 1000);
    assert_eq!(fault(chunked(&format!("{}1\r\n", hundred.repeat(10)))), Some(Fault::TooLarge));
}

#[test]
fn a_body_that_is_not_whole_is_never_handed_over() {
    for text in [with("Content-Length: 11\r\n"), chunked("5\r\nhello\r\n0\r\n"), chunked("5\r\nhell")] {
        let outcome = read(text.as_bytes());
        assert_eq!((outcome.requests.len(), outcome.fault, outcome.idle), (0, None, false), "{text:?}");
    }
}

#[test]
fn what_is_declared_is_not_reserved() {
    let mut reader = Reader::new(&Limits::default());
    let head = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1099511627776\r\n\r\nabc";
    let (taken, step) = reader.advance(head).unwrap();
    assert!(matches!(step, Step::Head(_)));
    reader.accept(u64::MAX).unwrap();
    assert!(matches!(reader.advance(&head[taken..]), Ok((3, Step::More))));
    assert!(reader.held() < 64, "holds {}", reader.held());
}

#[test]
fn pipelined_requests_are_read_in_turn() {
    let text = format!("{}{}", with("Content-Length: 10\r\n"), "GET /2 HTTP/1.1\r\nHost: a\r\n\r\n").repeat(3);
    let targets: Vec<_> = read(text.as_bytes()).requests.iter().map(|(head, _)| head.target().to_owned()).collect();
    assert_eq!(targets, ["/w", "/2", "/w", "/2", "/w", "/2"]);
}

/// Inputs near the rules: whole requests, pieces of them in wrong places, and noise.
fn inputs() -> impl Strategy<Value = Vec<u8>> {
    let part = prop_oneof![
        8 => prop::sample::select(vec![
            "GET / HTTP/1.1\r\n", "POST /a?b HTTP/1.1\r\n", "PUT http://a/b HTTP/1.0\r\n", "GET / HTTP/2.0\r\n",
            "Host: a\r\n", "Content-Length: 5\r\n", "Content-Length: 0\r\n", "Transfer-Encoding: chunked\r\n",
            "Connection: close\r\n", "Expect: 100-continue\r\n", "X-Long: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\r\n",
            "\r\n", "\n", "\r", "hello", "5\r\n", "5;a=b\r\n", "0\r\n", "hello\r\n", " ", ":", "\0", "X: \t\r\n",
            "GET / HTTP/1.1\r\nHost: a\r\n\r\n", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello",
            "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\nA: b\r\n\r\n",
        ]).prop_map(|text| text.as_bytes().to_vec()),
        1 => prop::collection::vec(any::<u8>(), 0..20),
    ];
    prop::collection::vec(part, 0..12).prop_map(|parts| parts.concat())
}

proptest! {
    #[test]
    fn cutting_the_input_changes_nothing(input in inputs(), cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..8)) {
        let limits = Limits { head_bytes: 120, line_bytes: 40, headers: 4, ..Limits::default() };
        let whole = read_pieces(&limits, 8, [input.as_slice()]);
        let bytes = read_pieces(&limits, 8, input.chunks(1));
        prop_assert_eq!(&whole, &bytes);
        let mut ends: Vec<usize> = cuts.iter().map(|cut| cut.index(input.len() + 1)).collect();
        ends.sort_unstable();
        let starts = std::iter::once(0).chain(ends.iter().copied());
        let pieces: Vec<&[u8]> =
            starts.zip(ends.iter().copied().chain([input.len()])).map(|(from, to)| &input[from..to]).collect();
        prop_assert_eq!(&whole, &read_pieces(&limits, 8, pieces));
    }

    #[test]
    fn noise_is_read_without_a_panic_and_within_limits(input in prop::collection::vec(any::<u8>(), 0..2000)) {
        read_pieces(&Limits::default(), 100, [input.as_slice()]);
        let mut chunks = chunked("").into_bytes();
        chunks.extend_from_slice(&input);
        read_pieces(&Limits::default(), 100, chunks.chunks(7));
    }
}
