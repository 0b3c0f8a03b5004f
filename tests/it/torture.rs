//! `postonce torture`: that it proves something, in a short run, and that it takes events from a file.

use crate::harness::{Folder, Setup, postonce, stripe};

fn torture(folder: &Folder, args: &[&str]) -> (i32, String) {
    let output = postonce().arg("torture").args(args).arg("--dir").arg(folder.join("torture")).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    (output.status.code().unwrap_or(-1), text.into_owned())
}

#[test]
fn a_day_of_events_survives_kills_and_duplicates() {
    let folder = Folder::new();
    let events = std::env::var("POSTONCE_TORTURE_EVENTS").unwrap_or("1000".into());
    let kills = std::env::var("POSTONCE_TORTURE_KILLS").unwrap_or("100".into());
    let seed = std::env::var("POSTONCE_SEED").unwrap_or_else(|_| (rand::random::<u32>()).to_string());
    let (code, text) = torture(&folder, &["--events", &events, "--kills", &kills, "--seed", &seed]);
    assert_eq!(code, 0, "POSTONCE_SEED={seed}: {text}");
    let last = text.lines().last().unwrap();
    assert!(last.starts_with(&format!("seed {seed}, kills {kills}, duplicates ")), "{text}");
    assert!(last.contains("lost = 0, doubled = 0"), "{text}");
}

#[test]
fn the_events_of_a_database_are_replayed() {
    let server = Setup::new().start();
    for n in 0..30 {
        server.send("stripe", &stripe::charge(&format!("evt_{n}"), &format!("pi_{}", n / 3), 100)).is(200);
    }
    server.settled();
    let file = server.database();
    let (code, text) = torture(&server.folder, &["--kills", "3", "--from", file.to_str().unwrap()]);
    assert_eq!(code, 0, "{text}");
    assert!(text.contains("in peace: 30 deliveries") && text.contains("10 entries, 10 receipts"), "{text}");
}

#[test]
fn a_folder_that_is_in_use_is_left_alone() {
    let folder = Folder::new();
    std::fs::create_dir_all(folder.join("torture/round-1")).unwrap();
    std::fs::write(folder.join("torture/round-1/postonce.db"), "mine").unwrap();
    let (code, text) = torture(&folder, &["--events", "10", "--kills", "0"]);
    assert_eq!(code, 3, "{text}");
    assert_eq!(std::fs::read(folder.join("torture/round-1/postonce.db")).unwrap(), b"mine");
}
