//! What malformed and malicious requests get, and that nobody else notices.

use crate::*;

/// Sends each, wants this status, a closed connection, and that the handler saw nothing.
fn refused(cases: &[(&str, u16)]) {
    for workers in [0, 2] {
        let served = serve(Limits { workers, ..Limits::default() });
        for (request, status) in cases {
            let mut wire = Wire::to(served.front.local_addr());
            let answer = wire.ask(request);
            assert_eq!(
                (answer.status, answer.header("Connection")),
                (*status, Some("close")),
                "{request:?}: {answer:?}"
            );
            assert!(wire.closes(), "more than one answer to {request:?}: {:?}", String::from_utf8_lossy(&wire.read));
        }
        assert_eq!(served.handled.load(Ordering::SeqCst), 0);
        assert_eq!(served.front.stats().faults, cases.len() as u64);
        is_well(&served.front);
    }
}

/// The body that a lax reader would serve as a second request.
const SECOND: &str = "GET /second HTTP/1.1\r\nHost: a\r\n\r\n";

#[test]
fn lengths_that_two_readers_could_understand_differently_are_refused() {
    let cases: Vec<(String, u16)> =
        ["abc", "-1", "+5", "5, 5", "5,5", "18446744073709551616", "0x10", "", "1e2", "5 5"]
            .iter()
            .map(|value| (format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {value}\r\n\r\n{SECOND}"), 400))
            .chain([
                (format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\nContent-Length: 34\r\n\r\n{SECOND}"), 400),
                (
                    format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 34\r\nContent-Length: 34\r\n\r\n{SECOND}"),
                    400,
                ),
                (
                    format!(
                        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\nTransfer-Encoding: chunked\r\n\r\n{SECOND}"
                    ),
                    400,
                ),
                (
                    "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nContent-Length: 0\r\n\r\n0\r\n\r\n"
                        .to_owned(),
                    400,
                ),
            ])
            .collect();
    refused(&cases.iter().map(|(request, status)| (request.as_str(), *status)).collect::<Vec<_>>());
}

#[test]
fn codings_other_than_chunked_are_refused() {
    let cases: Vec<String> = [
        "xchunked",
        "identity",
        "gzip",
        "gzip, chunked",
        "chunked, identity",
        "\x0bchunked",
        "chunked\r\nTransfer-Encoding: x",
    ]
    .iter()
    .map(|coding| format!("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: {coding}\r\n\r\n0\r\n\r\n{SECOND}"))
    .chain([format!("POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n{SECOND}")])
    .collect();
    refused(&cases.iter().map(|request| (request.as_str(), 400)).collect::<Vec<_>>());
}

#[test]
fn malformed_heads_are_refused() {
    refused(&[
        ("GET / HTTP/1.1\nHost: a\n\n", 400),
        ("GET / HTTP/1.1\r\nHost: a\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost: a\r\nX: a\0b\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost: a\r\nX: a\x1b[0m\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost: a\r\nX: a\rb\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost: a\r\nX: a\r\n folded\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost: a\r\nX : a\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost: a\r\n: a\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 400),
        ("GET nowhere HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        ("CONNECT a:443 HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        ("GET /\r\n\r\n", 400),
        ("\x16\x03\x01\x02\0\x01", 400),
        ("GET / HTTP/2.0\r\nHost: a\r\n\r\n", 505),
        ("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505),
        ("GET / HTTP/0.9\r\nHost: a\r\n\r\n", 505),
    ]);
}

#[test]
fn bad_chunks_are_refused() {
    let long = format!("5;{}\r\nhello\r\n0\r\n\r\n", "x".repeat(1000));
    let cases: Vec<String> = [
        "x\r\n",
        "\r\n",
        "-1\r\nx\r\n",
        "0x1\r\nx\r\n",
        "1 \r\nx\r\n",
        "1\nx\n0\n\n",
        "00000000000000001\r\nx\r\n",
        "1\r\nxy\r\n0\r\n\r\n",
        "1\r\nx\n0\r\n\r\n",
        "0\r\nbad\r\n\r\n",
        "0\r\nX: \0\r\n\r\n",
        long.as_str(),
    ]
    .iter()
    .map(|body| format!("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n{body}"))
    .collect();
    refused(&cases.iter().map(|request| (request.as_str(), 400)).collect::<Vec<_>>());
    refused(&[("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\n", 413)]);
}

#[test]
fn a_huge_declared_length_is_refused_before_a_byte_of_it_comes() {
    refused(&[
        ("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1099511627776\r\n\r\n", 413),
        ("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9223372036854775808\r\n\r\n", 413),
        ("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 18446744073709551615\r\n\r\n", 413),
        ("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 100001\r\n\r\n", 413),
    ]);
    // and to a path that nobody serves
    let served = serve(Limits::default());
    let request = "POST /nowhere HTTP/1.1\r\nHost: a\r\nContent-Length: 1099511627776\r\n\r\n";
    assert_eq!(Wire::to(served.front.local_addr()).ask(request).status, 404);
    is_well(&served.front);
}

#[test]
fn parts_without_an_end_are_cut_at_their_limit() {
    let served = serve(Limits::default());
    let chunks = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
    for (start, endless, status) in [
        ("GET /", "a", 414),
        ("GET / HTTP/1.1\r\nHost: a\r\nX: ", "a", 431),
        ("GET / HTTP/1.1\r\nHost: a\r\n", "X: a\r\n", 431),
        (chunks, "0", 400),
        (&format!("{chunks}1;"), "a", 400),
        (&format!("{chunks}0\r\nX: "), "a", 400),
        (&format!("{chunks}0\r\n"), "X: a\r\n", 400),
    ] {
        let mut wire = Wire::to(served.front.local_addr());
        wire.send(start);
        let piece = endless.repeat(60_000 / endless.len());
        // as a rule the answer is there long before; what is sent behind it is dropped, up to a point
        for _ in 0..200 {
            if !wire.try_send(&piece) {
                break;
            }
        }
        // whoever goes on and on may see the connection reset instead of the answer
        if let Some(answer) = wire.try_answer_to("GET") {
            assert_eq!(answer.status, status, "{start:?}");
        }
        let mut modest = Wire::to(served.front.local_addr());
        assert_eq!(modest.send(start).ask(&piece).status, status, "{start:?}");
    }
    assert_eq!(served.handled.load(Ordering::SeqCst), 0);
    is_well(&served.front);
}

#[test]
fn a_body_shorter_than_declared_is_never_handed_over() {
    let served = serve(Limits::default());
    for request in [
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nhello",
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n",
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n",
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Le",
    ] {
        let mut wire = Wire::to(served.front.local_addr());
        wire.send(request).end();
        assert!(wire.closes(), "{request:?}");
    }
    until(&served.front, "all are closed", |stats| stats.open == 0);
    assert_eq!(served.handled.load(Ordering::SeqCst), 0);
}

#[test]
fn a_client_that_pipelines_and_never_reads_is_not_read_either() {
    for workers in [0, 2] {
        let limits =
            Limits { workers, write_time: Duration::from_millis(300), body_rate: 1 << 30, ..Limits::default() };
        let handled = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&handled);
        let front = start(limits, move |request, reply| {
            let nr = count.fetch_add(1, Ordering::SeqCst);
            reply.send(if request.head.path() == "/well" {
                describe(&request)
            } else {
                Response::text(200, "x".repeat(100_000 + nr))
            });
        });
        let mut wire = Wire::to(front.local_addr());
        let many = get("/flood").repeat(1000);
        // until it is closed for not reading
        let mut sent = 0;
        while wire.try_send(&many) {
            sent += 1;
            assert!(sent < 10_000, "took 300 MB from a client that reads nothing");
            if sent == 5 {
                is_well(&front);
            }
        }
        until(&front, "it ran out of time", |stats| stats.timed_out == 1 && stats.open == 0);
        // what the sockets' own buffers hold is answered, not more
        assert!(handled.load(Ordering::SeqCst) < 200, "{} answers to nobody", handled.load(Ordering::SeqCst));
        is_well(&front);
    }
}

#[test]
fn what_all_peers_together_may_have_in_memory_is_bounded() {
    let served = serve(Limits { buffered_bytes: 300_000, ..Limits::default() });
    let address = served.front.local_addr();
    let body = "x".repeat(60_000);
    let mut wires: Vec<Wire> = (0..20).map(|_| Wire::to(address)).collect();
    for wire in &mut wires {
        wire.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 100000\r\n\r\n").try_send(&body);
    }
    let refused = until(&served.front, "some are refused", |stats| stats.answered[5] >= 10).answered[5];
    assert!(refused < 20, "none got through");
    is_well(&served.front);
    // when these are gone there is room again
    drop(wires);
    until(&served.front, "all are closed", |stats| stats.open == 0);
    let mut wire = Wire::to(address);
    for _ in 0..10 {
        assert_eq!(wire.ask(post("/", &"x".repeat(100_000))).status, 200);
    }
}

#[test]
fn line_breaks_never_get_into_an_answer() {
    let front = start(Limits::default(), |request, reply| match request.head.path() {
        "/well" => reply.send(describe(&request)),
        _ => reply.send(Response::new(200).with_header("X-Echo", "a\r\nSet-Cookie: b=c")),
    });
    let answer = Wire::to(front.local_addr()).ask(get("/"));
    assert_eq!((answer.status, answer.header("Set-Cookie")), (500, None));
    is_well(&front);
}

#[test]
fn urgent_bytes_are_ordinary_bytes() {
    let served = serve(Limits::default());
    let mut wire = Wire::to(served.front.local_addr());
    wire.send("GE");
    socket2::SockRef::from(&wire.stream).send_out_of_band(b"T").unwrap();
    assert_eq!(wire.ask(" /urgent HTTP/1.1\r\nHost: a\r\n\r\n").body, "GET /urgent 0");
}

#[test]
fn an_empty_line_after_a_body_is_not_the_start_of_a_request() {
    let served = serve(Limits { head_time: Duration::from_millis(100), ..Limits::default() });
    let mut wire = Wire::to(served.front.local_addr());
    assert_eq!(wire.ask(format!("{}\r\n", post("/a", "x"))).body, "POST /a 1");
    // another connection lives through a whole deadline meanwhile
    assert_eq!(Wire::to(served.front.local_addr()).ask("GET").status, 408);
    assert_eq!(wire.ask(get("/b")).body, "GET /b 0");
}
