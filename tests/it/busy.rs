//! Retention and backups while events arrive: nobody who waits for an answer notices, nothing is lost, and the original,
//! the backups and the restored file are clean.
//!
//! With POSTONCE_LONG, in a release build, a thousand events arrive each second and the promised 50 ms are held to:
//! `POSTONCE_LONG=1 cargo test --release --test it retention_and_backup -- --nocapture`.

use crate::harness::{Folder, SECRET, Wire, eventually, open_db, sign, stripe};
use postonce::config::{Loaded, Retain};
use postonce::server::Server;
use postonce::steps::retain;
use postonce::store::{Options, backup, check};
use rusqlite::Connection;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};

const SENDERS: u64 = 8;
const DAY: i64 = 86_400_000;

fn start(folder: &Folder) -> Server {
    std::fs::write(folder.join("secret"), SECRET).unwrap();
    let text = format!(
        "database = {:?}\nlisten = \"127.0.0.1:0\"\n[operator]\nlisten = \"127.0.0.1:0\"\n[retain]\nbodies_days = 0\nevents_days = 0\n\
         attempts_days = 0\n[[source]]\nname = \"stripe\"\nsecrets = [\"file:{}\"]\n",
        folder.join("postonce.db"),
        folder.join("secret").display()
    );
    Server::start(&Loaded::parse(text).unwrap(), &Options::default()).unwrap()
}

/// Returns at this moment, for senders that keep a pace.
fn wait_until(moment: Instant) {
    let _ = crossbeam_channel::at(moment).recv();
}

/// Sends the payments `from..to`, each sender its share, the nth at `pace(n)`; gives how long each answer took, from the
/// moment that it was due.
fn send(
    server: &Server,
    from: u64,
    to: u64,
    ended: &AtomicBool,
    sent: &AtomicU64,
    pace: impl Fn(u64) -> Option<Instant> + Sync,
) -> Vec<Duration> {
    let address = server.public_addr();
    std::thread::scope(|scope| {
        let senders: Vec<_> = (0..SENDERS)
            .map(|sender| {
                let pace = &pace;
                scope.spawn(move || {
                    let (mut wire, mut took) = (Wire::to(address), Vec::new());
                    for n in (from + sender..to).step_by(SENDERS as usize) {
                        if ended.load(SeqCst) {
                            break;
                        }
                        let body = stripe::charge(&format!("evt_{n}"), &format!("pi_{n}"), 100 + n as i64 % 900);
                        let headers = sign("stripe", SECRET, body.as_bytes(), &[]);
                        let due = pace(n - from).unwrap_or_else(Instant::now);
                        wait_until(due);
                        wire.post("/webhooks/stripe", &headers, body.as_bytes()).is(200);
                        took.push(due.elapsed());
                        sent.fetch_add(1, SeqCst);
                    }
                    took
                })
            })
            .collect();
        senders.into_iter().flat_map(|sender| sender.join().unwrap()).collect()
    })
}

fn count(file: &Path, sql: &str) -> u64 {
    open_db(file).query_row(sql, [], |r| r.get::<_, i64>(0)).unwrap() as u64
}

fn is_clean(file: &Path) {
    let wrong = check::run(&open_db(file)).unwrap();
    assert!(wrong.is_empty(), "{}: {:?}", file.display(), &wrong[..wrong.len().min(5)]);
}

#[test]
fn retention_and_backup_disturb_nobody_and_lose_nothing() {
    let long = std::env::var_os("POSTONCE_LONG").is_some();
    let (old, rate) = if long { (60_000, 1_000) } else { (1_500, 100) };
    let folder = Folder::new();
    let file = folder.join("postonce.db");
    let posted = "SELECT count(*) FROM postonce_journal";
    let nobody = AtomicBool::new(false);

    // What is past its time when the load begins.
    let server = start(&folder);
    let sent = AtomicU64::new(0);
    send(&server, 0, old, &nobody, &sent, |_| None);
    eventually("the old events are posted", || (count(&file, posted) == old).then_some(()));
    server.stop();
    let age =
        format!("UPDATE postonce_raw_events SET received_at = received_at - {0}, ended_at = ended_at - {0}", 40 * DAY);
    Connection::open(&file).unwrap().execute_batch(&age).unwrap();

    let server = start(&folder);
    let store = &server.engine().shared().store;
    let (ended, sent) = (AtomicBool::new(false), AtomicU64::new(0));
    let began = Instant::now();
    let (mut took, pruned, backups) = std::thread::scope(|scope| {
        let retention = scope.spawn(|| {
            let rules = Retain { archive: Some(folder.join("archive")), ..Retain::default() };
            let first = retain::retain(store, &rules, &|| false).unwrap();
            (first, began.elapsed())
        });
        let copies = scope.spawn(|| {
            let mut made = Vec::new();
            while made.len() < 2 || !ended.load(SeqCst) {
                let (before, to) = (sent.load(SeqCst), folder.join(&format!("backup{}.db", made.len())));
                backup::backup(&file, &to, Duration::from_millis(10), &mut |_, _| {}).unwrap();
                made.push((to, before));
            }
            made
        });
        let load = scope.spawn(|| {
            send(&server, old, u64::MAX, &ended, &sent, |n| Some(began + Duration::from_micros(n * 1_000_000 / rate)))
        });
        let pruned = retention.join().unwrap();
        let least = Duration::from_secs(if long { 30 } else { 2 });
        wait_until(began + least);
        ended.store(true, SeqCst);
        (load.join().unwrap(), pruned, copies.join().unwrap())
    });
    let (elapsed, sent) = (began.elapsed(), sent.load(SeqCst));
    eventually("what was acknowledged is posted", || (count(&file, posted) == old + sent).then_some(()));
    server.stop();
    took.sort_unstable();
    let at = |percent: usize| took[(took.len() - 1) * percent / 100];
    println!(
        "{sent} events in {elapsed:.1?} ({} a second); acknowledged p50 {:.1?}, p99 {:.1?}, worst {:.1?}; {} events pruned and archived in {:.1?}; {} backups",
        sent * 1000 / elapsed.as_millis() as u64,
        at(50),
        at(99),
        at(100),
        pruned.0.events,
        pruned.1,
        backups.len()
    );
    // None of the old but the newest is left, and all of them are in the archive.
    assert_eq!((pruned.0.events as u64, pruned.0.archived as u64), (old, old), "{:?}", pruned.0);
    let mut archived = 0;
    for path in retain::archives_in(&folder.join("archive")).unwrap() {
        archived += retain::read_archive(&path, |_| Ok(())).unwrap() as u64;
    }
    assert_eq!(archived, old);
    is_clean(&file);
    for (copy, before) in &backups {
        is_clean(copy);
        let there = count(copy, "SELECT max(id) FROM postonce_raw_events");
        assert!(
            there >= old + before,
            "{before} were acknowledged before {} began; it ends at {there}",
            copy.display()
        );
    }
    let restored = folder.join("restored.db");
    backup::restore(&backups[backups.len() - 1].0, &restored, &mut |_, _| {}).unwrap();
    is_clean(&restored);
    if long && !cfg!(debug_assertions) {
        assert!(at(99) < Duration::from_millis(50), "p99 of acknowledgement {:?}", at(99));
        assert!(sent as f64 / elapsed.as_secs_f64() > rate as f64 * 0.95, "the load was not there");
    }
}
