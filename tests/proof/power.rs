//! Power cuts, at every sync boundary and between: whatever the disk kept, dropped, tore or reordered of what no sync
//! covers, every acknowledged event is there, the file is sound, and the ledger comes to what it would have been.

use crate::disk::{Cut, Disk, Image, Op, Replay, lay_out, long, seed};
use crate::engine::{charge, check, keep_then, ledger, settled, start};
use crate::harness::Folder;
use postonce::store::{Faulty, Options, check as truths, open_for_reading, raw};
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::{Arc, Mutex};

/// A raw event that was acknowledged, at this moment of the disk.
#[derive(Clone, Copy)]
struct Kept {
    moment: usize,
    id: i64,
    event: usize,
}

/// What one run left: the notes of the disk, and what was acknowledged when.
struct History {
    ops: Vec<Op>,
    kept: Vec<Kept>,
}

/// Every payment is told by two events.
fn body(event: usize) -> String {
    charge(&format!("evt_{event}"), &format!("pi_{}", event / 2), 100 + (event / 2) as i64, event % 7 * 900)
}

/// A short life under load, with checkpoints, on a disk that takes notes.
fn history(events: usize, synchronous_normal: bool) -> History {
    let (folder, disk) = (Folder::new(), Disk::register());
    let options = Options {
        checkpoint_pages: 25,
        faulty: Faulty { vfs: Some(disk.name), synchronous_normal },
        ..Options::default()
    };
    let engine = start(&folder.join("postonce.db"), &options).unwrap();
    let kept: Arc<Mutex<Vec<Kept>>> = Arc::default();
    std::thread::scope(|scope| {
        for part in 0..3 {
            let (engine, kept) = (&engine, &kept);
            scope.spawn(move || {
                for event in (0..events).filter(|n| n % 3 == part) {
                    let kept = kept.clone();
                    let (told, answered) = std::sync::mpsc::channel();
                    keep_then(engine, &body(event), move |outcome| {
                        let id = outcome.expect("nothing is wrong with the disk");
                        kept.lock().unwrap().push(Kept { moment: disk.moment(), id, event });
                        told.send(()).unwrap();
                    });
                    answered.recv().unwrap();
                }
            });
        }
    });
    settled(&engine);
    assert_eq!(ledger(&engine).len(), events.div_ceil(2));
    engine.stop();
    let kept = kept.lock().unwrap().clone();
    assert_eq!(kept.len(), events);
    History { ops: disk.ops(), kept }
}

/// Opens what a cut left; says what is wrong with it.
fn verdict(image: &Image, promised: &[Kept], database: &Path) -> Result<(), String> {
    lay_out(image, database);
    let (store, _) = match postonce::store::Store::open(database, &Options::default()) {
        Ok(store) => (store, ()),
        Err(e) => return Err(format!("it does not open: {e}")),
    };
    let offences = store.read(truths::run).map_err(|e| e.to_string())?;
    if !offences.is_empty() {
        return Err(format!("it is not clean: {offences:?}"));
    }
    for one in promised {
        let kept = store.read(|conn| raw::body(conn, one.id)).map_err(|e| e.to_string())?;
        if kept.is_none_or(|kept| kept.bytes != body(one.event).into_bytes()) {
            return Err(format!("event {} was acknowledged and is not there", one.event));
        }
    }
    Ok(())
}

/// Lets a process take over what a cut left: in the end every payment whose event is there is posted once.
fn take_over(image: &Image, database: &Path) {
    lay_out(image, database);
    let engine = start(database, &Options::default()).unwrap();
    settled(&engine);
    check(&engine);
    let expected: BTreeMap<String, i64> = engine
        .shared()
        .store
        .read(|conn| {
            let mut payments = BTreeMap::new();
            for id in 1..=raw::newest(conn)? {
                let body: serde_json::Value = serde_json::from_slice(&raw::body(conn, id)?.unwrap().bytes).unwrap();
                let charge = &body["data"]["object"];
                payments.insert(
                    format!("payment {}", charge["payment_intent"].as_str().unwrap()),
                    charge["amount"].as_i64().unwrap(),
                );
            }
            Ok(payments)
        })
        .unwrap();
    assert_eq!(ledger(&engine), expected);
    engine.stop();
    drop(engine);
    open_for_reading(database).unwrap();
}

/// Moments just before and after every sync, and some between.
fn moments(ops: &[Op], rng: &mut StdRng, between: usize) -> BTreeSet<usize> {
    let mut moments: BTreeSet<usize> = ops
        .iter()
        .enumerate()
        .filter(|(_, op)| matches!(op, Op::Sync { .. }))
        .flat_map(|(at, _)| [at, at + 1])
        .collect();
    moments.extend((0..between).map(|_| rng.random_range(0..=ops.len())));
    moments
}

/// Cuts the power at each moment in each way; gives the first thing that went wrong and how many cuts there were.
fn cut_everywhere(
    history: &History,
    seed: u64,
    lies: bool,
    between: usize,
    shuffles: u64,
    takers: usize,
) -> (Option<String>, usize) {
    let folder = Folder::new();
    let database = folder.join("postonce.db");
    crate::engine::configuration(database.parent().unwrap());
    let mut rng = StdRng::seed_from_u64(seed);
    let moments = moments(&history.ops, &mut rng, between);
    let every = (moments.len() / takers.max(1)).max(1);
    let mut replay = Replay::of(history.ops.clone(), lies);
    let mut cuts = 0;
    for (nth, moment) in moments.into_iter().enumerate() {
        replay.advance(moment);
        let promised: Vec<Kept> = history.kept.iter().filter(|kept| kept.moment <= moment).copied().collect();
        let ways = [(Cut::Keeps, 0), (Cut::Drops, 0)].into_iter();
        for (cut, salt) in ways.chain((0..shuffles).map(|salt| (Cut::Shuffles, salt))) {
            let image = replay.image(cut, seed ^ (moment as u64) << 8 ^ salt);
            cuts += 1;
            if let Err(wrong) = verdict(&image, &promised, &database) {
                return (Some(format!("cut at {moment} of {}, {cut:?} {salt}: {wrong}", history.ops.len())), cuts);
            }
            if takers > 0 && nth % every == 0 && (cut == Cut::Shuffles || nth % 2 == 0) {
                take_over(&image, &database);
            }
        }
    }
    (None, cuts)
}

#[test]
fn after_a_power_cut_at_any_moment_every_acknowledged_event_is_there_and_the_file_is_clean() {
    let seed = seed();
    let (events, between, shuffles, takers) = if long() { (150, 600, 6, 100) } else { (18, 16, 1, 5) };
    let history = history(events, false);
    let checkpoints = history.ops.iter().filter(|op| matches!(op, Op::Sync { file: "" })).count();
    assert!(checkpoints >= 3, "the log was folded {checkpoints} times");
    let (wrong, cuts) = cut_everywhere(&history, seed, false, between, shuffles, takers);
    assert_eq!(wrong, None);
    eprintln!("{cuts} power cuts over {} writes and syncs survived", history.ops.len());
}

#[test]
fn the_same_cuts_lose_acknowledged_events_with_synchronous_normal() {
    let seed = seed();
    let history = history(12, true);
    let (wrong, _) = cut_everywhere(&history, seed, false, 0, 0, 0);
    assert!(wrong.is_some_and(|wrong| wrong.contains("acknowledged and is not there")), "the cuts prove nothing");
}

#[test]
fn the_same_cuts_lose_acknowledged_events_on_a_disk_that_lies_about_its_syncs() {
    let seed = seed();
    let history = history(12, false);
    let (wrong, _) = cut_everywhere(&history, seed, true, 0, 1, 0);
    assert!(wrong.is_some(), "the cuts prove nothing");
}
