//! Many connections at once: bursts, idle ones, too many, and no descriptors left.

use crate::*;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::sync::Barrier;

/// Raises the limit of open files and says how many connections (two descriptors each here) are possible.
fn room_for(wanted: usize) -> usize {
    let limit = getrlimit(Resource::Nofile);
    let most = limit.maximum.unwrap_or(1 << 20).min(1 << 20);
    if limit.current.is_some_and(|current| current < most) {
        setrlimit(Resource::Nofile, Rlimit { current: Some(most), maximum: limit.maximum }).unwrap();
    }
    wanted.min((most as usize).saturating_sub(500) / 2)
}

#[test]
fn requests_released_at_one_barrier_are_all_answered() {
    for workers in [0, 4] {
        let served = serve(Limits { workers, ..Limits::default() });
        let address = served.front.local_addr();
        let barrier = Barrier::new(64);
        std::thread::scope(|scope| {
            for number in 0..64 {
                let barrier = &barrier;
                scope.spawn(move || {
                    let mut wire = Wire::to(address);
                    for round in 0..50 {
                        barrier.wait();
                        assert_eq!(
                            wire.ask(post(&format!("/{number}/{round}"), "x")).body,
                            format!("POST /{number}/{round} 1")
                        );
                    }
                });
            }
        });
        assert_eq!(served.handled.load(Ordering::SeqCst), 64 * 50);
    }
}

#[test]
fn a_burst_of_connections_is_served_to_the_last() {
    let served = serve(Limits::default());
    let address = served.front.local_addr();
    let count = room_for(400);
    for _ in 0..3 {
        let mut wires: Vec<Wire> = (0..count).map(|_| Wire::to(address)).collect();
        for wire in &mut wires {
            wire.send(post("/burst", "x"));
        }
        for wire in &mut wires {
            assert_eq!(wire.answer().status, 200);
        }
    }
}

#[test]
fn thousands_of_idle_connections_cost_no_thread_and_disturb_nobody() {
    let count = room_for(2500);
    let served = serve(Limits { connections_per_address: 10_000, ..Limits::default() });
    let address = served.front.local_addr();
    let mut wires: Vec<Wire> = (0..count).map(|_| Wire::to(address)).collect();
    for wire in wires.iter_mut().step_by(2) {
        wire.send("GET /half HTTP/1.1\r\nHost");
    }
    until(&served.front, "all are open", |stats| stats.open == count);
    let mut good = Wire::to(address);
    for _ in 0..100 {
        assert_eq!(good.ask(post("/good", "x")).status, 200);
    }
    is_well(&served.front);
    // each of them can still become a good client
    for wire in wires.iter_mut().skip(1).step_by(2) {
        assert_eq!(wire.ask(get("/late")).status, 200);
    }
}

/// A front that answers /hold never, and the replies it holds.
fn holding(limits: Limits, proxies: Proxies) -> (Front, Arc<std::sync::Mutex<Vec<Reply>>>) {
    let held = Arc::new(std::sync::Mutex::new(Vec::new()));
    let keep = Arc::clone(&held);
    let front = start_with(limits, proxies, usual_route, move |request, reply| match request.head.path() {
        "/hold" => keep.lock().unwrap().push(reply),
        _ => reply.send(describe(&request)),
    });
    (front, held)
}

fn hold(front: &Front, held: &std::sync::Mutex<Vec<Reply>>, count: usize) -> Vec<Wire> {
    let mut wires: Vec<Wire> = (0..count).map(|_| Wire::to(front.local_addr())).collect();
    for wire in &mut wires {
        wire.send(get("/hold"));
    }
    let deadline = Instant::now() + PATIENCE;
    while held.lock().unwrap().len() < count {
        assert!(Instant::now() < deadline, "the handler did not get them all");
        std::thread::yield_now();
    }
    wires
}

#[test]
fn beyond_the_limit_the_longest_idle_connection_makes_room() {
    for limits in
        [Limits { connections: 10, ..Limits::default() }, Limits { connections_per_address: 10, ..Limits::default() }]
    {
        let served = serve(limits);
        let mut wires: Vec<Wire> = (0..10).map(|_| Wire::to(served.front.local_addr())).collect();
        for wire in &mut wires {
            assert_eq!(wire.ask(get("/")).status, 200);
        }
        // the first is used again, so the second is the longest idle
        assert_eq!(wires[0].ask(get("/")).status, 200);
        is_well(&served.front);
        assert!(wires[1].closes());
        assert_eq!(wires[0].ask(get("/")).status, 200);
        assert_eq!(served.front.stats().evicted, 1);
        assert_eq!(served.front.stats().refused, 0);
    }
}

#[test]
fn beyond_the_limit_newcomers_are_refused_while_all_others_are_at_work() {
    for (limits, status) in [
        (Limits { connections: 10, ..Limits::default() }, 503),
        (Limits { connections_per_address: 10, ..Limits::default() }, 429),
    ] {
        let (front, held) = holding(limits, Proxies::default());
        let wires = hold(&front, &held, 10);
        let mut newcomer = Wire::to(front.local_addr());
        let answer = newcomer.answer();
        assert_eq!((answer.status, answer.header("Retry-After")), (status, Some("1")));
        assert!(newcomer.closes());
        assert_eq!(front.stats().refused, 1);
        for reply in held.lock().unwrap().drain(..) {
            reply.send(Response::new(200));
        }
        for mut wire in wires {
            assert_eq!(wire.answer().status, 200);
        }
        is_well(&front);
    }
}

#[test]
fn stalled_requests_make_room_for_newcomers() {
    let served = serve(Limits { connections_per_address: 10, ..Limits::default() });
    let mut wires: Vec<Wire> = (0..10).map(|_| Wire::to(served.front.local_addr())).collect();
    for wire in &mut wires {
        wire.send("GET / HTTP/1.1\r\nHos");
    }
    let deadline = Instant::now() + PATIENCE;
    loop {
        // refused as long as the stalled ones are young
        let mut wire = Wire::to(served.front.local_addr());
        wire.try_send(get("/"));
        if wire.try_answer_to("GET").is_some_and(|answer| answer.status == 200) {
            break;
        }
        assert!(Instant::now() < deadline, "never served");
    }
    assert!(served.front.stats().evicted >= 1);
}

#[test]
fn trusted_proxies_are_exempt_from_the_limit_of_an_address() {
    let proxies = Proxies { nets: vec!["127.0.0.0/8".parse().unwrap()], ..Proxies::default() };
    let (front, held) = holding(Limits { connections_per_address: 10, ..Limits::default() }, proxies);
    let _wires = hold(&front, &held, 30);
    is_well(&front);
}

const CHILD: &str = "POSTONCE_TEST_FEW_DESCRIPTORS";

/// Runs in a process of its own, because the limit of open files is the whole process's.
#[test]
fn without_descriptors_accepting_pauses_and_recovers() {
    if std::env::var_os(CHILD).is_none() {
        let program = std::env::current_exe().unwrap();
        let name = "crowds::without_descriptors_accepting_pauses_and_recovers";
        let output = std::process::Command::new(program)
            .args(["--exact", name, "--nocapture"])
            .env(CHILD, "1")
            .output()
            .unwrap();
        assert!(
            output.status.success(),
            "{}{}",
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        );
        assert!(String::from_utf8_lossy(&output.stdout).contains("1 passed"), "the child ran no test");
        return;
    }
    let (front, held) = holding(Limits::default(), Proxies::default());
    // connections whose answers are out, so that there is none to give back
    let busy = hold(&front, &held, 20);
    let mut late: Vec<Wire> = (0..20).map(|_| Wire::to(front.local_addr())).collect();
    until(&front, "all are open", |stats| stats.open == 40);
    for wire in &mut late {
        wire.send(get("/hold"));
    }
    let deadline = Instant::now() + PATIENCE;
    while held.lock().unwrap().len() < 40 {
        assert!(Instant::now() < deadline);
        std::thread::yield_now();
    }
    // from now on the clients' own sockets fit, the front's do not: sockets first, the limit between
    let sockets: Vec<socket2::Socket> =
        (0..10).map(|_| socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap()).collect();
    let before = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: Some(8), maximum: before.maximum }).unwrap();
    let mut waiting: Vec<Wire> = sockets
        .into_iter()
        .map(|socket| {
            socket.connect(&front.local_addr().into()).unwrap();
            let stream: TcpStream = socket.into();
            stream.set_read_timeout(Some(PATIENCE)).unwrap();
            Wire { stream, read: Vec::new() }
        })
        .collect();
    let paused = until(&front, "accepting pauses", |stats| stats.paused >= 2);
    assert_eq!(paused.open, 40);
    // those that are in are still served
    for reply in held.lock().unwrap().drain(..) {
        reply.send(Response::new(204));
    }
    for mut wire in busy.into_iter().chain(late) {
        assert_eq!(wire.answer().status, 204);
    }
    setrlimit(Resource::Nofile, before).unwrap();
    for wire in &mut waiting {
        assert_eq!(wire.ask(get("/")).status, 200);
    }
    is_well(&front);
}
