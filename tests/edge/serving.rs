//! What well-behaved clients get.

use crate::*;
use postonce::edge::ForwardHeader;
use std::sync::mpsc;

/// On the polling thread itself, on threads of its own, and on either.
fn both(test: impl Fn(Limits)) {
    for (workers, at_once) in [(0, 0), (2, 0), (2, 3)] {
        test(Limits { workers, at_once, ..Limits::default() });
    }
}

#[test]
fn small_plain_bodies_are_handled_on_the_polling_thread_and_others_are_not() {
    let front = start(Limits { at_once: 5, ..Limits::default() }, |_, reply| {
        let thread = std::thread::current().name().unwrap_or_default().to_owned();
        reply.send(Response::text(200, thread));
    });
    let mut wire = Wire::to(front.local_addr());
    assert_eq!(wire.ask(post("/", "tiny")).body, "edge-poll");
    assert_ne!(wire.ask(post("/", "large")).body, "edge-poll", "five bytes are not below five");
    let coded = "POST / HTTP/1.1\r\nHost: a\r\nContent-Encoding: gzip\r\nContent-Length: 4\r\n\r\ntiny";
    assert_ne!(wire.ask(coded).body, "edge-poll");
}

#[test]
fn one_connection_serves_many_requests_of_all_shapes() {
    both(|limits| {
        let served = serve(limits);
        let mut wire = Wire::to(served.front.local_addr());
        for _ in 0..3 {
            assert_eq!(wire.ask(post("/a?b=c", "hello")).body, "POST /a?b=c 5");
            assert_eq!(wire.ask(get("/x")).body, "GET /x 0");
            let chunked = "POST /c HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2;x\r\nde\r\n0\r\nT: v\r\n\r\n";
            assert_eq!(wire.ask(chunked).body, "POST /c 5");
            assert_eq!(wire.ask("GET http://a.example/y HTTP/1.1\r\nHost: a.example\r\n\r\n").body, "GET /y 0");
        }
        wire.send("HEAD /h HTTP/1.1\r\nHost: a\r\n\r\n");
        let answer = wire.try_answer_to("HEAD").unwrap();
        assert_eq!((answer.status, answer.header("Content-Length")), (200, Some("9")));
        assert_eq!(wire.ask(get("/after-head")).body, "GET /after-head 0");
        assert_eq!(served.front.stats().accepted, 1);
        assert_eq!(served.front.stats().answered[2], 14);
    });
}

#[test]
fn a_request_that_comes_byte_by_byte_is_served() {
    both(|limits| {
        let served = serve(limits);
        let mut wire = Wire::to(served.front.local_addr());
        for byte in post("/slow", "hello").as_bytes() {
            wire.send([*byte]);
        }
        assert_eq!(wire.answer().body, "POST /slow 5");
    });
}

#[test]
fn bodies_up_to_the_limit_arrive_whole_and_larger_ones_do_not() {
    let served = serve(Limits::default());
    let address = served.front.local_addr();
    assert_eq!(Wire::to(address).ask(post("/", &"x".repeat(100_000))).body, "POST / 100000");
    // far more than the socket buffers hold: the answer must still reach whoever sends first and reads later
    let mut wire = Wire::to(address);
    wire.try_send(post("/", &"x".repeat(600_000)));
    let answer = wire.answer();
    assert_eq!((answer.status, answer.header("Connection")), (413, Some("close")));
    assert!(wire.ends());
    let chunk = format!("C350\r\n{}\r\n", "x".repeat(50_000));
    let head = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
    assert_eq!(Wire::to(address).ask(format!("{head}{chunk}{chunk}0\r\n\r\n")).body, "POST / 100000");
    assert_eq!(Wire::to(address).ask(format!("{head}{chunk}{chunk}1\r\n")).status, 413);
    assert_eq!(served.handled.load(Ordering::SeqCst), 2);
}

#[test]
fn keep_alive_follows_version_and_header() {
    let served = serve(Limits::default());
    for (request, connection) in [
        ("GET / HTTP/1.0\r\n\r\n", Some("close")),
        ("GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n", Some("keep-alive")),
        ("GET / HTTP/1.1\r\nHost: a\r\n\r\n", None),
        ("GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n", Some("close")),
    ] {
        let mut wire = Wire::to(served.front.local_addr());
        let answer = wire.ask(request);
        assert_eq!((answer.status, answer.header("Connection")), (200, connection), "{request:?}");
        if connection == Some("close") {
            assert!(wire.closes(), "{request:?}");
        } else {
            assert_eq!(wire.ask(get("/again")).status, 200, "{request:?}");
        }
    }
}

#[test]
fn the_body_is_invited_only_when_it_is_wanted() {
    let served = serve(Limits::default());
    let address = served.front.local_addr();
    let head = |target: &str, length: usize| {
        format!("POST {target} HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: {length}\r\n\r\n")
    };
    let mut wire = Wire::to(address);
    let invitation = wire.ask(head("/w", 5));
    assert_eq!(invitation.head, "HTTP/1.1 100 Continue\r\n\r\n");
    assert_eq!(wire.ask("hello").body, "POST /w 5");
    // sent without waiting: no invitation is needed
    assert_eq!(wire.ask(format!("{}hello", head("/w", 5))).status, 200);
    for (request, status) in [(head("/nowhere", 5), 404), (head("/w", 200_000), 413)] {
        let mut wire = Wire::to(address);
        assert_eq!(wire.ask(request).status, status);
        assert!(wire.closes());
    }
    let odd = "POST / HTTP/1.1\r\nHost: a\r\nExpect: a-pony\r\nContent-Length: 5\r\n\r\n";
    assert_eq!(Wire::to(address).ask(odd).status, 417);
}

#[test]
fn the_router_answers_without_the_handler() {
    let served = serve(Limits::default());
    let mut wire = Wire::to(served.front.local_addr());
    assert_eq!(wire.ask(get("/nowhere")).status, 404);
    assert_eq!(wire.ask(get("/nowhere")).status, 404);
    let answer = wire.ask("PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello");
    assert_eq!(
        (answer.status, answer.header("Allow"), answer.header("Connection")),
        (405, Some("POST"), Some("close"))
    );
    assert!(wire.closes());
    assert_eq!(served.handled.load(Ordering::SeqCst), 0);
    assert_eq!(served.front.stats().answered[4], 3);
}

#[test]
fn requests_that_came_in_one_packet_need_no_further_bytes_to_be_answered() {
    both(|limits| {
        let (sender, replies) = mpsc::channel();
        let sender = std::sync::Mutex::new(sender);
        let front = start(limits, move |request, reply| sender.lock().unwrap().send((request, reply)).unwrap());
        let mut wire = Wire::to(front.local_addr());
        wire.send(format!("{}{}{}", post("/1", "x"), get("/2"), get("/3")));
        for expected in ["POST /1 1", "GET /2 0", "GET /3 0"] {
            let (request, reply) = replies.recv_timeout(PATIENCE).unwrap();
            assert!(replies.try_recv().is_err(), "handed over before the one before it was answered");
            reply.send(describe(&request));
            assert_eq!(wire.answer().body, expected);
        }
    });
}

#[test]
fn pipelined_requests_are_answered_in_order() {
    both(|limits| {
        let (sender, replies) = mpsc::channel();
        let sender = std::sync::Mutex::new(sender);
        let front = start(limits, move |request, reply| sender.lock().unwrap().send((request, reply)).unwrap());
        // another thread answers, now and then late
        let answering = std::thread::spawn(move || {
            for (request, reply) in replies {
                std::thread::yield_now();
                reply.send(describe(&request));
            }
        });
        let mut wire = Wire::to(front.local_addr());
        let targets: Vec<String> = (0..200).map(|number| format!("/{number}")).collect();
        let requests: String = targets
            .iter()
            .enumerate()
            .map(|(number, target)| match number % 4 {
                0 => get("/nowhere"),
                1 => post(target, &"x".repeat(number * 10)),
                _ => get(target),
            })
            .collect();
        let mut sending = Wire { stream: wire.stream.try_clone().unwrap(), read: Vec::new() };
        let sender = std::thread::spawn(move || sending.send(requests).end());
        for (number, target) in targets.iter().enumerate() {
            let answer = wire.answer();
            match number % 4 {
                0 => assert_eq!(answer.status, 404),
                1 => assert_eq!(answer.body, format!("POST {target} {}", number * 10)),
                _ => assert_eq!(answer.body, format!("GET {target} 0")),
            }
        }
        assert!(wire.closes());
        sender.join().unwrap();
        drop(front);
        answering.join().unwrap();
    });
}

#[test]
fn answers_may_come_later_from_another_thread() {
    both(|limits| {
        let held = Arc::new(std::sync::Mutex::new(Vec::new()));
        let keep = Arc::clone(&held);
        let front = start(limits, move |request, reply| keep.lock().unwrap().push((reply, describe(&request))));
        let mut wires: Vec<Wire> = (0..20).map(|_| Wire::to(front.local_addr())).collect();
        for round in 0..3 {
            for (number, wire) in wires.iter_mut().enumerate() {
                wire.send(post(&format!("/{round}/{number}"), "x"));
            }
            let deadline = Instant::now() + PATIENCE;
            while held.lock().unwrap().len() < wires.len() {
                assert!(Instant::now() < deadline);
                std::thread::yield_now();
            }
            for (reply, response) in std::mem::take(&mut *held.lock().unwrap()) {
                reply.send(response);
            }
            for (number, wire) in wires.iter_mut().enumerate() {
                assert_eq!(wire.answer().body, format!("POST /{round}/{number} 1"));
            }
        }
    });
}

#[test]
fn a_reply_that_is_dropped_or_lost_in_a_panic_answers_500() {
    both(|limits| {
        let front = start(limits, |request, reply| match request.head.path() {
            "/drop" => drop(reply),
            "/panic" => panic!("as the test wants"),
            _ => reply.send(describe(&request)),
        });
        let mut wire = Wire::to(front.local_addr());
        for _ in 0..5 {
            assert_eq!(wire.ask(get("/drop")).status, 500);
            assert_eq!(wire.ask(get("/panic")).status, 500);
        }
        is_well(&front);
    });
}

#[test]
fn a_router_that_panics_answers_500_and_lives() {
    let front = start_with(
        Limits::default(),
        Proxies::default(),
        |head, client| if head.path() == "/panic" { panic!("as the test wants") } else { usual_route(head, client) },
        |request, reply| reply.send(describe(&request)),
    );
    assert_eq!(Wire::to(front.local_addr()).ask(get("/panic")).status, 500);
    is_well(&front);
}

#[test]
fn an_answer_larger_than_the_socket_takes_arrives_whole() {
    both(|limits| {
        let size = 20_000_000;
        let front = start(limits, move |_, reply| reply.send(Response::text(200, "x".repeat(size))));
        let mut wire = Wire::to(front.local_addr());
        for _ in 0..2 {
            assert_eq!(wire.ask(get("/big")).body.len(), size);
        }
        // the rest of an answer is sent also when it is the last
        let answer = wire.ask("GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
        assert_eq!(answer.body.len(), size);
        assert!(wire.closes());
    });
}

#[test]
fn a_client_that_ends_its_side_still_gets_its_answer() {
    both(|limits| {
        let served = serve(limits);
        let mut wire = Wire::to(served.front.local_addr());
        wire.send(post("/half", "x")).end();
        assert_eq!(wire.answer().body, "POST /half 1");
        assert!(wire.closes());
    });
}

#[test]
fn an_answer_to_a_client_that_is_gone_harms_nobody() {
    let (sender, replies) = mpsc::channel();
    let sender = std::sync::Mutex::new(sender);
    let front = start(Limits::default(), move |request, reply| match request.head.path() {
        "/gone" => sender.lock().unwrap().send(reply).unwrap(),
        _ => reply.send(describe(&request)),
    });
    let mut wire = Wire::to(front.local_addr());
    wire.send(get("/gone"));
    let reply = replies.recv_timeout(PATIENCE).unwrap();
    drop(wire);
    is_well(&front);
    reply.send(Response::text(200, "x".repeat(1_000_000)));
    until(&front, "the connection closed", |stats| stats.open == 0);
    is_well(&front);
}

#[test]
fn headers_arrive_in_order_with_their_bytes_and_duplicates() {
    let front = start(Limits::default(), |request, reply| {
        let lines: Vec<String> =
            request.head.headers.iter().map(|(name, value)| format!("{name}={}", value.escape_ascii())).collect();
        reply.send(Response::text(200, lines.join(" ")));
    });
    let answer =
        Wire::to(front.local_addr()).ask(b"GET / HTTP/1.1\r\nHost: a\r\nx-B: 1\r\nX-b:\xff\xfe \r\nA:\r\n\r\n");
    assert_eq!(answer.body, "Host=a x-B=1 X-b=\\xff\\xfe A=");
}

#[test]
fn the_client_is_named_by_trusted_proxies_only() {
    for (net, expected) in [("127.0.0.0/8", "198.51.100.7"), ("10.0.0.0/8", "127.0.0.1")] {
        let proxies = Proxies { nets: vec![net.parse().unwrap()], header: ForwardHeader::XForwardedFor };
        let front = start_with(Limits::default(), proxies, usual_route, |request, reply| {
            reply.send(Response::text(200, request.client.address.to_string()));
        });
        let request = "GET / HTTP/1.1\r\nHost: a\r\nX-Forwarded-For: 6.6.6.6, 198.51.100.7\r\n\r\n";
        assert_eq!(Wire::to(front.local_addr()).ask(request).body, expected, "{net}");
    }
}

#[test]
fn two_fronts_serve_side_by_side() {
    let public = serve(Limits::default());
    let operator = start(Limits::default(), |_, reply| reply.send(Response::new(204)));
    assert_ne!(public.front.local_addr(), operator.local_addr());
    assert_eq!(Wire::to(operator.local_addr()).ask(get("/")).status, 204);
    is_well(&public.front);
}
