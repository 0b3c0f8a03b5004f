//! Disks that fail: a full one, one that loses a write or a sync, one that turns read-only, a file that goes away.
//!
//! Nothing that was refused was acknowledged, nothing acknowledged is lost, and when the disk is well again the process
//! goes on by itself.

use crate::disk::{Disk, beside};
use crate::engine::{charge, check, keep, keep_at_last, ledger, settled, start};
use crate::harness::{self, Folder, SECRET, Server, Setup, Wire, eventually, stripe};
use postonce::engine::Engine;
use postonce::store::{Faulty, Options};
use std::fs;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};

fn on(disk: &Disk) -> Options {
    Options { checkpoint_pages: 20, faulty: Faulty { vfs: Some(disk.name), ..Faulty::default() }, ..Options::default() }
}

fn body(n: usize) -> String {
    charge(&format!("evt_{n}"), &format!("pi_{n}"), 100 + n as i64, 600)
}

fn trouble(engine: &Engine) -> Option<String> {
    engine.shared().store.gate().figures().trouble.lock().unwrap().clone()
}

/// A payment for each number, each once.
fn expect(engine: &Engine, numbers: std::ops::Range<usize>) {
    settled(engine);
    check(engine);
    let expected = numbers.map(|n| (format!("payment pi_{n}"), 100 + n as i64)).collect();
    assert_eq!(ledger(engine), expected);
}

/// One countdown after the other strikes while events come; each is sent until it is kept.
fn fails_once_in_each_place(places: i64, set: impl Fn(&Disk, i64), struck: impl Fn(&Disk) -> bool) {
    let (folder, disk) = (Folder::new(), Disk::register());
    let engine = start(&folder.join("postonce.db"), &on(disk)).unwrap();
    let (mut sent, mut refused) = (0, 0);
    for place in 1..=places {
        set(disk, place);
        while !struck(disk) {
            refused += keep_at_last(&engine, &body(sent));
            sent += 1;
            assert!(sent < 4000, "place {place} is never reached");
        }
    }
    refused += keep_at_last(&engine, &body(sent));
    let reopened = engine.shared().store.gate().figures().reopened.load(Relaxed);
    assert!(reopened as i64 >= places / 2, "given up {reopened} times");
    expect(&engine, 0..sent + 1);
    eprintln!("{places} failures over {sent} events: {refused} refused, {reopened} times opened again");
    engine.stop();
    drop(engine);
    let engine = start(&folder.join("postonce.db"), &Options::default()).unwrap();
    expect(&engine, 0..sent + 1);
}

#[test]
fn after_each_failed_sync_nothing_acknowledged_is_lost_and_nothing_is_posted_twice() {
    fails_once_in_each_place(
        50,
        |disk, n| disk.fail_sync_in.store(n, SeqCst),
        |disk| disk.fail_sync_in.load(SeqCst) == 0,
    );
}

#[test]
fn after_each_failed_write_nothing_acknowledged_is_lost_and_nothing_is_posted_twice() {
    fails_once_in_each_place(
        50,
        |disk, n| disk.fail_write_in.store(n, SeqCst),
        |disk| disk.fail_write_in.load(SeqCst) == 0,
    );
}

/// The disk is ill for a while, with events of before still to be applied.
fn ill_for_a_while(fall_ill: impl Fn(&Disk), says: &str) {
    let (folder, disk) = (Folder::new(), Disk::register());
    let engine = start(&folder.join("postonce.db"), &on(disk)).unwrap();
    for n in 0..20 {
        keep(&engine, &body(n)).unwrap();
    }
    fall_ill(disk);
    for n in 20..40 {
        let error = keep(&engine, &body(n)).expect_err("no disk, no acknowledgement");
        assert!(error.to_string().contains(says), "{error}");
    }
    assert!(trouble(&engine).is_some_and(|why| why.contains(says)), "{:?}", trouble(&engine));
    disk.heal();
    eventually("it goes on by itself", || trouble(&engine).is_none().then_some(()));
    for n in 20..40 {
        keep_at_last(&engine, &body(n));
    }
    expect(&engine, 0..40);
}

#[test]
fn a_full_disk_refuses_with_its_reason_and_goes_on_when_there_is_room() {
    ill_for_a_while(|disk| disk.full.store(true, SeqCst), "the disk is full");
}

#[test]
fn a_disk_that_turns_read_only_refuses_and_goes_on_when_it_may_write() {
    ill_for_a_while(|disk| disk.read_only.store(true, SeqCst), "readonly");
}

#[test]
fn a_full_disk_costs_no_event_its_attempts() {
    let (folder, disk) = (Folder::new(), Disk::register());
    let engine = start(&folder.join("postonce.db"), &on(disk)).unwrap();
    for n in 0..200 {
        keep(&engine, &body(n)).unwrap();
    }
    for _ in 0..20 {
        disk.fail_sync_in.store(2, SeqCst);
        eventually("the sync fails", || {
            let _ = keep(&engine, &body(0));
            (disk.fail_sync_in.load(SeqCst) == 0).then_some(())
        });
        eventually("it is open again", || trouble(&engine).is_none().then_some(()));
    }
    expect(&engine, 0..200);
}

#[test]
fn a_deleted_file_is_noticed_and_nothing_more_is_acknowledged() {
    let folder = Folder::new();
    let database = folder.join("postonce.db");
    let engine = start(&database, &Options::default()).unwrap();
    keep(&engine, &body(0)).unwrap();
    settled(&engine);
    let aside = folder.join("aside.db");
    fs::rename(&database, &aside).unwrap();
    let error = keep(&engine, &body(1)).expect_err("it would go into a file that nobody can find");
    assert!(error.to_string().contains("deleted or moved away"), "{error}");
    assert!(trouble(&engine).is_some());
    fs::rename(&aside, &database).unwrap();
    keep_at_last(&engine, &body(1));
    expect(&engine, 0..2);
}

#[test]
fn a_replaced_file_is_noticed_without_traffic_and_never_written_to() {
    let folder = Folder::new();
    let (database, other) = (folder.join("postonce.db"), folder.join("other.db"));
    drop(start(&other, &Options::default()).unwrap());
    let before = fs::read(&other).unwrap();
    let engine = start(&database, &Options::default()).unwrap();
    keep(&engine, &body(0)).unwrap();
    settled(&engine);
    fs::rename(&other, &database).unwrap();
    let why = eventually("it is noticed", || trouble(&engine));
    assert!(why.contains("replaced by another file"), "{why}");
    keep(&engine, &body(1)).expect_err("this is not our file");
    engine.stop();
    assert_eq!(fs::read(&database).unwrap(), before);
}

#[test]
fn a_deleted_log_loses_nothing_of_what_it_held() {
    let folder = Folder::new();
    let database = folder.join("postonce.db");
    let engine = start(&database, &Options::default()).unwrap();
    for n in 0..10 {
        keep(&engine, &body(n)).unwrap();
    }
    settled(&engine);
    fs::remove_file(beside(&database, "-wal")).unwrap();
    eventually("it is noticed", || (engine.shared().store.gate().figures().reopened.load(Relaxed) > 0).then_some(()));
    keep_at_last(&engine, &body(10));
    settled(&engine);
    drop(engine);
    let engine = start(&database, &Options::default()).unwrap();
    expect(&engine, 0..11);
}

/// A file system of a few megabytes, unmounted when it is dropped. `None`, with a word: we may not mount.
struct Small(std::path::PathBuf);

impl Small {
    fn over(folder: &Folder, options: &str) -> Option<Small> {
        let path = folder.join("");
        let mounted =
            std::process::Command::new("mount").args(["-t", "tmpfs", "-o", options, "tmpfs"]).arg(&path).status();
        if !mounted.is_ok_and(|status| status.success()) {
            eprintln!("skipped: a file system cannot be mounted here (needs root)");
            return None;
        }
        Some(Small(path))
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        let _ = std::process::Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

/// Is its storage ready, and what does it say if not? (That little room is left is another reason, and stays here.)
fn ready(server: &Server) -> Result<(), String> {
    let mut wire = Wire::to(server.operator);
    let request = format!("GET /readyz HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n", server.operator);
    wire.write(request.as_bytes()).unwrap();
    let answer = wire.answer().unwrap();
    let storage = answer.body.lines().find(|line| line.starts_with("storage: "));
    assert!(storage.is_none() || answer.status == 503, "{answer:?}");
    storage.map_or(Ok(()), |why| Err(why.to_owned()))
}

fn send(server: &Server, n: usize) -> harness::Answer {
    let ballast: String = (0..40).map(|i| format!("{:x}", (n * 31 + i).wrapping_mul(0x9e37_79b9_7f4a_7c15))).collect();
    let object = stripe::charge(&format!("evt_{n}"), &format!("pi_{n}"), 100)
        .replace(r#""captured""#, &format!(r#""description":"{ballast}","captured""#));
    let headers = harness::sign("stripe", SECRET, object.as_bytes(), &[]);
    server.post("/webhooks/stripe", &headers, object.as_bytes())
}

/// Sends until there is no room; makes room; sends again what was refused.
fn until_full(server: &Server, reason: &str, make_room: impl FnOnce()) {
    let mut refused = Vec::new();
    let mut n = 0;
    while refused.len() < 30 {
        let answer = send(server, n);
        match answer.status {
            200 => {}
            503 => {
                assert!(answer.body.contains(reason), "{answer:?}");
                assert!(answer.header("retry-after").is_some());
                refused.push(n);
            }
            _ => panic!("{answer:?}"),
        }
        n += 1;
        assert!(n < 20_000, "it never gets full");
    }
    let why = ready(server).expect_err("a full disk is not ready");
    assert!(why.contains(reason), "{why}");
    assert!(server.ended().is_none());
    make_room();
    eventually("it goes on by itself", || ready(server).ok());
    for n in &refused {
        eventually("it is taken", || (send(server, *n).status == 200).then_some(()));
    }
    server.settled();
    assert_eq!(server.ledger().len(), n);
    assert_eq!(server.count("SELECT count(*) FROM postonce_raw_events WHERE state = 'DEAD'"), 0);
    server.check();
    eprintln!("{n} events, {} refused", refused.len());
}

/// Where the room ends decides whether the log or the file meets it first: with more and with less of it.
#[test]
fn on_a_full_file_system_the_server_says_so_and_recovers_by_itself() {
    for ballast in [1200 << 10, 1500 << 10, 1800 << 10] {
        let folder = std::sync::Arc::new(Folder::new());
        let Some(_small) = Small::over(&folder, "size=3m") else { return };
        let log = tempfile();
        std::os::unix::fs::symlink(&log, folder.join("server.log")).unwrap();
        fs::write(folder.join("ballast"), vec![1; ballast]).unwrap();
        let server = Server::start_in(folder.clone(), Setup::new().env("POSTONCE_CHECKPOINT_PAGES", "100"));
        until_full(&server, "the disk is full", || fs::remove_file(folder.join("ballast")).unwrap());
        assert!(server.log().contains("are free on the disk"), "it warned before");
        server.stop();
        fs::remove_file(log).unwrap();
    }
}

fn tempfile() -> std::path::PathBuf {
    std::env::temp_dir().join(format!("postonce-proof-log-{}", std::process::id()))
}

#[test]
fn at_a_limit_of_its_file_size_the_server_lives_says_so_and_recovers_by_itself() {
    use rustix::process::{Pid, Resource, Rlimit, prlimit};
    let server = Setup::new().env("POSTONCE_CHECKPOINT_PAGES", "100").env("RUST_LOG", "off").start();
    let limit = |bytes: Option<u64>| {
        let pid = Pid::from_raw(server.pid() as i32);
        prlimit(pid, Resource::Fsize, Rlimit { current: bytes, maximum: None }).unwrap();
    };
    limit(Some(700 << 10));
    until_full(&server, "disk I/O error", || limit(None));
    server.stop();
}

#[test]
fn without_room_for_another_name_the_server_refuses_to_start_and_starts_when_there_is() {
    let folder = std::sync::Arc::new(Folder::new());
    let Some(_small) = Small::over(&folder, "size=3m,nr_inodes=4") else { return };
    let log = tempfile().with_extension("inodes");
    std::os::unix::fs::symlink(&log, folder.join("server.log")).unwrap();
    fs::write(folder.join("ballast"), b"1").unwrap();
    assert!(Server::try_start_in(folder.clone(), Setup::new()).is_none());
    let said = fs::read_to_string(&log).unwrap();
    assert!(said.contains("error:") && said.contains("No space left"), "{said}");
    drop(_small);
    let server = Server::start_in(folder, Setup::new());
    server.send("stripe", &stripe::charge("evt_1", "pi_1", 100)).is(200);
    fs::remove_file(log).unwrap();
}
