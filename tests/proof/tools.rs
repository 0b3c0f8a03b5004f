//! SQLite's own tools have the same opinion of our file after a storm: sqlite3's integrity check and .recover, dbhash and
//! sqldiff where they are installed (Debian: sqlite3, sqlite3-tools; POSTONCE_SQLITE_TOOLS names a folder).

use crate::disk::{Cut, Disk, Replay, lay_out};
use crate::engine::{charge, keep_at_last, ledger_of, settled, start};
use crate::harness::Folder;
use postonce::store::{Faulty, Options, open_for_reading};
use std::ffi::OsString;
use std::fs::File;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::atomic::Ordering::SeqCst;

/// `None`, with a word: it is not installed.
fn tool(name: &str) -> Option<Command> {
    let folder = std::env::var_os("POSTONCE_SQLITE_TOOLS");
    let program = folder.map_or(OsString::from(name), |folder| Path::new(&folder).join(name).into_os_string());
    let there = |program: &OsString| {
        Command::new(program)
            .arg("--version")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()
            .is_ok()
    };
    let found = [program, OsString::from(name)].into_iter().find(there);
    if found.is_none() {
        eprintln!("skipped: there is no {name} here");
    }
    found.map(Command::new)
}

fn says(output: &Output) -> String {
    assert!(output.status.success(), "{output:?}");
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

#[test]
fn sqlite_s_own_tools_find_the_same_in_a_file_that_went_through_a_storm() {
    if tool("sqlite3").is_none() {
        return;
    }
    // Failed writes and syncs under load, then the power goes in the middle of it, then a life in peace.
    let (folder, disk) = (Folder::new(), Disk::register());
    let options = Options {
        checkpoint_pages: 30,
        faulty: Faulty { vfs: Some(disk.name), ..Faulty::default() },
        ..Options::default()
    };
    let engine = start(&folder.join("storm.db"), &options).unwrap();
    for n in 0..150 {
        if n % 10 == 5 {
            disk.fail_write_in.store(1 + n % 7, SeqCst);
        }
        keep_at_last(
            &engine,
            &charge(&format!("evt_{n}"), &format!("pi_{}", n / 2), 100 + n / 2, (n % 9) as usize * 500),
        );
    }
    let mut replay = Replay::of(disk.ops(), false);
    replay.advance(replay.len());
    let database = folder.join("postonce.db");
    lay_out(&replay.image(Cut::Shuffles, 7), &database);
    engine.stop();
    let engine = start(&database, &Options::default()).unwrap();
    settled(&engine);
    engine.stop();
    drop(engine);
    let ours = ledger_of(&open_for_reading(&database).unwrap()).unwrap();
    assert_eq!(ours.len(), 75);

    let ask = |database: &Path, sql: &str| says(&tool("sqlite3").unwrap().arg(database).arg(sql).output().unwrap());
    assert_eq!(ask(&database, "PRAGMA integrity_check; PRAGMA foreign_key_check;"), "ok");
    assert_eq!(ask(&database, "SELECT count(*) FROM postonce_journal"), "75");
    // What .recover finds page by page, without trusting any index, is what is there. Some builds (Debian 12) cannot
    // recover even a file with one empty table: there it is what .dump reads row by row.
    let (script, recovered, empty) = (folder.join("script.sql"), folder.join("recovered.db"), folder.join("empty.db"));
    ask(&empty, "CREATE TABLE t(a)");
    let recovers = tool("sqlite3").unwrap().arg(&empty).arg(".recover").output().unwrap().status.success();
    let command = if recovers { ".recover" } else { ".dump" };
    eprintln!("{command} of {}", ask(&empty, "SELECT sqlite_version()"));
    let made = tool("sqlite3").unwrap().arg(&database).arg(command).stdout(File::create(&script).unwrap()).status();
    assert!(made.unwrap().success());
    let fed = tool("sqlite3").unwrap().arg(&recovered).stdin(File::open(&script).unwrap()).output().unwrap();
    assert!(fed.stderr.is_empty(), "{}", String::from_utf8_lossy(&fed.stderr));
    assert_eq!(ledger_of(&open_for_reading(&recovered).unwrap()).unwrap(), ours);
    assert_eq!(ask(&recovered, "SELECT count(*) FROM sqlite_schema WHERE name LIKE 'lost_and_found%'"), "0");
    if let (Some(mut first), Some(mut second)) = (tool("dbhash"), tool("dbhash")) {
        let hash = |tool: &mut Command, of: &Path| {
            says(&tool.args(["--without-schema", "--like", "postonce_%"]).arg(of).output().unwrap())
                .split_whitespace()
                .next()
                .unwrap_or_default()
                .to_owned()
        };
        let hashes = (hash(&mut first, &database), hash(&mut second, &recovered));
        assert_eq!(hashes.0, hashes.1);
        assert_eq!(hashes.0.len(), 40);
    }
    if let Some(mut tool) = tool("sqldiff") {
        assert_eq!(says(&tool.arg(&database).arg(&recovered).output().unwrap()), "", "a difference");
    }
}
