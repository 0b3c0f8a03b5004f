//! Power cuts. A kill keeps the page cache, so the log is cut instead: whatever prefix of it reached the disk, the file
//! that it opens to is whole, and holds every event whose answer came after the sync that covers it.

use crate::harness::{Server, stripe};
use postonce::store::{check, open_for_reading};
use std::fs;
use std::io::Write as _;

/// A page and its head in the log.
const FRAME: usize = 4096 + 24;
/// The head of the log.
const HEAD: usize = 32;

#[test]
fn every_prefix_of_the_wal_opens_to_a_clean_file_with_every_acknowledged_event() {
    let server = Server::start();
    server.send("stripe", &stripe::charge("evt_first", "pi_first", 100)).is(200);
    server.settled();
    server.stop(); // the schema and the first event are in the file
    let server = server.restart();
    let log = server.folder.join("postonce.db-wal");
    // After each answer: how much log there was. What is in it then was synced, or came later.
    let mut acknowledged = Vec::new();
    for n in 0..12 {
        server.send("stripe", &stripe::charge(&format!("evt_{n}"), &format!("pi_{}", n / 2), 100)).is(200);
        acknowledged.push(fs::metadata(&log).unwrap().len() as usize);
    }
    server.settled();
    server.kill();
    let (file, log) = (fs::read(server.database()).unwrap(), fs::read(&log).unwrap());
    assert!(log.len() > HEAD + 12 * FRAME, "there is a log to cut: {} bytes", log.len());
    let mut lengths: Vec<usize> = (0..).map(|n| HEAD + n * FRAME).take_while(|l| *l < log.len()).collect();
    lengths.extend([0, 7, HEAD - 1, log.len()]);
    // Torn in the middle of a frame, too.
    lengths.extend((0..40).map(|n| (HEAD + n * FRAME * 3 + 1000 + n).min(log.len())));
    let mut seen = Vec::new();
    for length in lengths {
        for torn in [false, true] {
            let copy = server.folder.join("cut.db");
            fs::write(&copy, &file).unwrap();
            let mut cut = fs::File::create(server.folder.join("cut.db-wal")).unwrap();
            cut.write_all(&log[..length]).unwrap();
            if torn {
                cut.write_all(&[0xa5; 3000]).unwrap(); // a sector that was never written
            }
            let _ = fs::remove_file(server.folder.join("cut.db-shm"));
            let conn = open_for_reading(&copy).unwrap_or_else(|e| panic!("{length} bytes of log: {e}"));
            let offences = check::run(&conn).unwrap();
            assert!(offences.is_empty(), "{length} bytes of log: {offences:?}");
            let kept: i64 = conn.query_row("SELECT count(*) - 1 FROM postonce_raw_events", [], |r| r.get(0)).unwrap();
            let promised = acknowledged.iter().filter(|at| **at <= length).count() as i64;
            assert!(kept >= promised, "{length} bytes of log: {promised} events were acknowledged, {kept} are there");
            seen.push(kept);
        }
    }
    assert!(seen.contains(&0) && seen.contains(&12), "the cuts reach from nothing to all: {seen:?}");
    // And one of the halves is a database that a server can go on with.
    let half = HEAD + (log.len() - HEAD) / FRAME / 2 * FRAME;
    fs::write(server.database(), &file).unwrap();
    fs::write(server.folder.join("postonce.db-wal"), &log[..half]).unwrap();
    let _ = fs::remove_file(server.folder.join("postonce.db-shm"));
    let server = server.restart();
    for n in 0..12 {
        server.send("stripe", &stripe::charge(&format!("evt_{n}"), &format!("pi_{}", n / 2), 100)).is(200);
    }
    server.settled();
    assert_eq!(server.ledger().len(), 7);
    server.check();
}
