//! Every place where the process can die, walked through under load: alone, and in pairs whose second strikes while the
//! first is recovered from. The child must have died there; then everything acknowledged is posted once and told.

use crate::disk::{long, seed};
use crate::harness::{APP_SECRET, App, Folder, SECRET, Server, Setup, Wire, eventually, has_faults, sign, stripe};
use postonce::fault;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom as _;
use rand::{RngExt as _, SeedableRng as _};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};

/// Passed once in a life, at its start or its end.
const ONCE: [&str; 7] =
    ["opened", "schema_made", "before_release", "after_release", "stopping", "before_last_fold", "folded"];
/// Passed only while the backlog of an unclean stop is taken up.
const RECOVERY: [&str; 1] = ["attempt_counted"];
/// Reached only by a stop.
const AT_STOP: [&str; 3] = ["stopping", "before_last_fold", "folded"];

#[test]
fn the_list_of_crash_points_is_the_source_s() {
    fn collect(folder: &Path, found: &mut BTreeSet<String>) {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                collect(&path, found);
            } else if path.extension().is_some_and(|e| e == "rs") {
                let text = fs::read_to_string(&path).unwrap();
                for (at, _) in text.match_indices("fault::point(\"") {
                    let name = text[at..].split('"').nth(1).unwrap();
                    assert!(found.insert(name.to_owned()), "{name} is there twice");
                }
            }
        }
    }
    let mut found = BTreeSet::new();
    collect(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), &mut found);
    let listed: BTreeSet<String> = fault::ALL.iter().map(|name| (*name).to_owned()).collect();
    assert_eq!(listed, found);
    assert!(ONCE.iter().chain(&RECOVERY).all(|name| listed.contains(*name)));
}

/// What was sent in all lives on one file, and what was acknowledged of it.
struct World {
    folder: Arc<Folder>,
    app: App,
    next: AtomicU64,
    acknowledged: Mutex<BTreeSet<u64>>,
}

/// Every payment is told by two events.
fn body(event: u64) -> String {
    stripe::charge(&format!("evt_{event}"), &format!("pi_{}", event / 2), 100 + (event / 2) as i64)
}

impl World {
    fn new() -> World {
        World {
            folder: Arc::new(Folder::new()),
            app: App::start(),
            next: AtomicU64::new(0),
            acknowledged: Mutex::default(),
        }
    }

    fn setup(&self) -> Setup {
        Setup::new().deliver(&self.app).env("APP_SECRET", APP_SECRET).env("POSTONCE_CHECKPOINT_PAGES", "20")
    }

    fn crashes_at(&self, point: &str) -> usize {
        let log = fs::read(self.folder.join("server.log")).unwrap_or_default();
        String::from_utf8_lossy(&log).lines().filter(|line| *line == format!("crashed at {point}")).count()
    }

    /// Sends events on three connections until nobody answers; `true` stops earlier, after so many.
    fn load(&self, server: &Server, enough: u64) {
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    let mut wire: Option<Wire> = None;
                    while self.next.load(SeqCst) < enough {
                        let Some(connected) = wire.take().or_else(|| Wire::try_to(server.public).ok()) else { return };
                        wire = Some(connected);
                        let event = self.next.fetch_add(1, SeqCst);
                        if !self.send(wire.as_mut().unwrap(), event) {
                            wire = None;
                        }
                    }
                });
            }
        });
    }

    fn send(&self, wire: &mut Wire, event: u64) -> bool {
        let body = body(event);
        let headers = sign("stripe", SECRET, body.as_bytes(), &[]);
        let answer = wire.try_post("/webhooks/stripe", &headers, body.as_bytes());
        let good = answer.is_ok_and(|answer| answer.status == 200);
        if good {
            self.acknowledged.lock().unwrap().insert(event);
        }
        good
    }

    /// One life that must end at this point.
    fn live_and_die(&self, point: &str, nth: u32) {
        let before = self.crashes_at(point);
        let setup = self.setup().crash(&format!("{point}:{nth}"));
        if let Some(server) = Server::try_start_in(self.folder.clone(), setup) {
            let many = if AT_STOP.contains(&point) { self.next.load(SeqCst) + 20 } else { u64::MAX };
            self.load(&server, many);
            if AT_STOP.contains(&point) {
                server.signal("TERM");
            }
            let status = eventually("it dies", || server.ended());
            assert!(!status.success(), "it ended well instead of dying at {point}");
        }
        assert_eq!(self.crashes_at(point), before + 1, "it died elsewhere than at {point}");
    }

    /// A life that leaves events that were kept and not taken up.
    fn leave_a_backlog(&self) {
        let server = Server::try_start_in(self.folder.clone(), self.setup().delay("before_read", 60_000)).unwrap();
        self.load(&server, self.next.load(SeqCst) + 6);
        server.kill();
    }

    /// A life without faults: what was acknowledged takes effect by itself, what was not is sent again; then all of it is
    /// in the ledger and at the app, once.
    fn live_well(&self) {
        let server = Server::start_in(self.folder.clone(), self.setup());
        server.settled();
        let payment = |event: u64| format!("payment pi_{} cus_1 {} USD", event / 2, 100 + event / 2);
        let acknowledged = self.acknowledged.lock().unwrap().clone();
        let ledger: BTreeSet<String> = server.ledger().into_iter().collect();
        let lost: Vec<u64> = acknowledged.iter().copied().filter(|event| !ledger.contains(&payment(*event))).collect();
        assert!(lost.is_empty(), "acknowledged, and not in the ledger: {lost:?}");
        let mut wire = Wire::to(server.public);
        for event in (0..self.next.load(SeqCst)).filter(|event| !acknowledged.contains(event)) {
            assert!(self.send(&mut wire, event), "event {event} is not taken");
        }
        server.delivered();
        let sent: BTreeMap<u64, String> = (0..self.next.load(SeqCst)).map(|e| (e / 2, payment(e))).collect();
        let mut expected: Vec<String> = sent.values().cloned().collect();
        expected.sort();
        assert_eq!(server.ledger(), expected);
        let mut keys: Vec<String> = sent.keys().map(|n| format!("default:stripe:live:payment:pi_{n}")).collect();
        keys.sort();
        assert_eq!(self.app.keys(), keys);
        server.check();
        server.stop();
    }
}

fn nth(point: &str, rng: &mut StdRng) -> u32 {
    if ONCE.contains(&point) || RECOVERY.contains(&point) { 1 } else { rng.random_range(1..=4) }
}

/// Walks on so many threads.
fn side_by_side<T: Send>(work: Vec<T>, each: impl Fn(T) + Sync) {
    let work = Mutex::new(work);
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                loop {
                    let next = work.lock().unwrap().pop();
                    let Some(one) = next else { return };
                    each(one);
                }
            });
        }
    });
}

#[test]
fn whatever_point_it_dies_at_everything_acknowledged_is_posted_once_and_told() {
    assert!(has_faults());
    let mut rng = StdRng::seed_from_u64(seed());
    let work: Vec<(&str, u32)> = fault::ALL.iter().map(|point| (*point, nth(point, &mut rng))).collect();
    side_by_side(work, |(point, nth)| {
        eprintln!("{point}:{nth}");
        let world = World::new();
        if RECOVERY.contains(&point) {
            world.leave_a_backlog();
        }
        world.live_and_die(point, nth);
        world.live_well();
    });
}

#[test]
fn whatever_second_point_it_dies_at_while_it_recovers_nothing_is_lost_or_doubled() {
    let mut rng = StdRng::seed_from_u64(seed());
    let all: Vec<(&str, &str)> =
        fault::ALL.iter().flat_map(|first| fault::ALL.iter().map(move |second| (*first, *second))).collect();
    let pairs: Vec<(&str, &str)> = if long() { all } else { all.sample(&mut rng, 14).copied().collect() };
    let work: Vec<_> = pairs.into_iter().map(|(a, b)| ((a, nth(a, &mut rng)), (b, nth(b, &mut rng)))).collect();
    side_by_side(work, |((first, nth_first), (second, nth_second))| {
        eprintln!("{first}:{nth_first} then {second}:{nth_second}");
        let world = World::new();
        if RECOVERY.contains(&first) {
            world.leave_a_backlog();
        }
        world.live_and_die(first, nth_first);
        if RECOVERY.contains(&second) {
            world.leave_a_backlog();
        }
        world.live_and_die(second, nth_second);
        world.live_well();
    });
}
