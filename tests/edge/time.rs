//! Deadlines, and stopping.

use crate::*;
use std::sync::mpsc;

fn soon() -> Duration {
    Duration::from_millis(150)
}

#[test]
fn a_head_that_does_not_end_in_time_is_answered_408() {
    let served = serve(Limits { head_time: soon(), ..Limits::default() });
    let mut first = Wire::to(served.front.local_addr());
    assert_eq!(first.ask("GET / HTTP/1.1\r\nHos").status, 408);
    assert!(first.closes());
    // also the second one of a connection, and also when bytes keep coming
    let mut second = Wire::to(served.front.local_addr());
    assert_eq!(second.ask(get("/")).status, 200);
    let mut dripping = Wire { stream: second.stream.try_clone().unwrap(), read: Vec::new() };
    let drip = std::thread::spawn(move || while dripping.try_send("A") {});
    assert!(matches!(second.answer().status, 408 | 414));
    drop(second);
    drip.join().unwrap();
    is_well(&served.front);
}

#[test]
fn a_connection_that_says_nothing_is_closed_without_a_word() {
    let served = serve(Limits { head_time: soon(), ..Limits::default() });
    assert!(Wire::to(served.front.local_addr()).closes());
    let served = serve(Limits { idle_time: soon(), ..Limits::default() });
    let mut wire = Wire::to(served.front.local_addr());
    assert_eq!(wire.ask(get("/")).status, 200);
    assert!(wire.closes());
    is_well(&served.front);
}

#[test]
fn a_body_that_does_not_end_in_time_is_answered_408() {
    let others = PATIENCE * 10;
    let served = serve(Limits { body_time: soon(), body_grace: others, head_time: others, ..Limits::default() });
    for start in ["Content-Length: 10\r\n\r\nhello", "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n"] {
        let mut wire = Wire::to(served.front.local_addr());
        assert_eq!(wire.ask(format!("POST / HTTP/1.1\r\nHost: a\r\n{start}")).status, 408);
        assert!(wire.closes());
    }
    assert_eq!(served.front.stats().timed_out, 2);
    assert_eq!(served.handled.load(Ordering::SeqCst), 0);
}

#[test]
fn a_body_slower_than_the_rate_is_answered_408_long_before_its_deadline() {
    let limits = Limits { body_rate: 1_000_000, body_grace: soon(), body_time: PATIENCE * 10, ..Limits::default() };
    let served = serve(limits);
    let mut wire = Wire::to(served.front.local_addr());
    assert_eq!(wire.ask("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 100000\r\n\r\nhello").status, 408);
}

#[test]
fn slow_peers_hold_no_worker() {
    let served = serve(Limits { workers: 1, ..Limits::default() });
    let address = served.front.local_addr();
    let mut bodies: Vec<Wire> = (0..50).map(|_| Wire::to(address)).collect();
    let mut heads: Vec<Wire> = (0..50).map(|_| Wire::to(address)).collect();
    for (body, head) in bodies.iter_mut().zip(&mut heads) {
        body.send("POST /slow HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhell");
        head.send("GET /slow HTTP/1.1\r\nHost: a\r\n\r");
    }
    is_well(&served.front);
    for wire in &mut bodies {
        assert_eq!(wire.ask("o").body, "POST /slow 5");
    }
    for wire in &mut heads {
        assert_eq!(wire.ask("\n").body, "GET /slow 0");
    }
}

#[test]
fn a_stop_lets_requests_in_flight_finish() {
    for workers in [0, 2] {
        let (sender, replies) = mpsc::channel();
        let sender = std::sync::Mutex::new(sender);
        let front = start(Limits { workers, ..Limits::default() }, move |request, reply| {
            sender.lock().unwrap().send((request, reply)).unwrap();
        });
        let address = front.local_addr();
        let mut idle = Wire::to(address);
        idle.send(get("/first"));
        let (request, reply) = replies.recv_timeout(PATIENCE).unwrap();
        reply.send(describe(&request));
        assert_eq!(idle.answer().status, 200);
        let mut asked = Wire::to(address);
        asked.send(post("/asked", "x"));
        let (request, reply) = replies.recv_timeout(PATIENCE).unwrap();
        let mut half = Wire::to(address);
        half.send("POST /half HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhel");
        until(&front, "all are accepted", |stats| stats.open == 3);
        let stop = std::thread::spawn(move || front.stop(PATIENCE));
        assert!(idle.closes());
        assert!(TcpStream::connect(address).is_err(), "still accepts");
        half.send("lo");
        let (late, late_reply) = replies.recv_timeout(PATIENCE).unwrap();
        late_reply.send(describe(&late));
        reply.send(describe(&request));
        for (wire, body) in [(&mut asked, "POST /asked 1"), (&mut half, "POST /half 5")] {
            let answer = wire.answer();
            assert_eq!((answer.body.as_str(), answer.header("Connection")), (body, Some("close")));
            assert!(wire.closes());
            wire.end();
        }
        assert_eq!(stop.join().unwrap().cut, 0);
    }
}

#[test]
fn a_stop_does_not_wait_for_ever() {
    for workers in [0, 1] {
        let (sender, replies) = mpsc::channel();
        let sender = std::sync::Mutex::new(sender);
        let front =
            start(Limits { workers, ..Limits::default() }, move |_, reply| sender.lock().unwrap().send(reply).unwrap());
        let mut wire = Wire::to(front.local_addr());
        wire.send(get("/"));
        let reply = replies.recv_timeout(PATIENCE).unwrap();
        assert_eq!(front.stop(Duration::from_millis(50)).cut, 1);
        assert!(wire.closes());
        // too late, and harmless
        reply.send(Response::new(200));
    }
}

#[test]
fn a_handler_that_never_returns_does_not_keep_a_stop() {
    let (started, wait) = mpsc::channel();
    let started = std::sync::Mutex::new(started);
    let front = start(Limits { workers: 1, ..Limits::default() }, move |_, _reply| {
        started.lock().unwrap().send(()).unwrap();
        loop {
            std::thread::park();
        }
    });
    let mut wire = Wire::to(front.local_addr());
    wire.send(get("/"));
    wait.recv_timeout(PATIENCE).unwrap();
    assert_eq!(front.stop(Duration::from_millis(50)).cut, 1);
}
