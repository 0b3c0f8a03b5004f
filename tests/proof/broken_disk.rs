//! Disks that fail: a full one, one that loses a write or a sync, one that turns read-only, a file that goes away.
//!
//! Nothing that was refused was acknowledged, nothing acknowledged is lost, and when the disk is well again the process
//! goes on by itself.

use crate::disk::{Disk, beside};
use crate::engine::{Folder, charge, check, eventually, keep, keep_at_last, ledger, settled, start};
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
