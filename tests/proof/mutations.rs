//! The fuzz targets without a fuzzer: seeds mutated at random for a few seconds each, so that every run of the tests tries
//! what scripts/fuzz tries for hours.

use crate::disk::{long, seed};
use rand::rngs::StdRng;
use rand::seq::IndexedRandom as _;
use rand::{Rng as _, RngExt as _, SeedableRng as _};
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

#[path = "../../fuzz/src/lib.rs"]
mod targets;

fn seeds(folders: &[&str], choices: usize) -> Vec<Vec<u8>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut seeds = Vec::new();
    for folder in folders {
        let mut files: Vec<_> = fs::read_dir(root.join(folder)).unwrap().map(|entry| entry.unwrap().path()).collect();
        files.sort();
        for file in files.iter().filter(|file| file.is_file()) {
            let mut bytes = fs::read(file).unwrap();
            bytes.truncate(4000);
            if choices > 0 {
                bytes.insert(0, (seeds.len() % choices.min(256)) as u8);
            }
            seeds.push(bytes);
        }
    }
    seeds
}

const WORDS: [&[u8]; 22] = [
    b"\r\n",
    b"\n",
    b"\r\n\r\n",
    b"0",
    b"-1",
    b"18446744073709551616",
    b"1e999",
    b"\0",
    b"\xff\xfe",
    b"\xef\xbb\xbf",
    b"{",
    b"[",
    b"\"",
    b"\\u0000",
    b",",
    b"chunked",
    b"Content-Length: ",
    b"Transfer-Encoding: ",
    b"null",
    b"1970-01-01",
    b"\xf0\x9f\x92\xb6",
    b";",
];

fn mutate(bytes: &mut Vec<u8>, seeds: &[Vec<u8>], rng: &mut StdRng) {
    for _ in 0..rng.random_range(1..8) {
        let at = rng.random_range(0..=bytes.len());
        match rng.random_range(0..7) {
            0 if at < bytes.len() => bytes[at] ^= 1 << rng.random_range(0..8),
            1 if at < bytes.len() => bytes[at] = rng.next_u32() as u8,
            2 => drop(bytes.splice(at..at, WORDS.choose(rng).unwrap().iter().copied())),
            3 => {
                let to = (at + rng.random_range(0..40)).min(bytes.len());
                bytes.drain(at..to);
            }
            4 => {
                let to = (at + rng.random_range(0..200)).min(bytes.len());
                let piece = bytes[at..to].to_vec();
                bytes.splice(at..at, piece);
            }
            5 => {
                let other = seeds.choose(rng).unwrap();
                let from = rng.random_range(0..=other.len());
                bytes.truncate(at);
                bytes.extend_from_slice(&other[from..]);
            }
            _ => bytes.truncate(at),
        }
        bytes.truncate(16_384);
    }
}

fn run(target: fn(&[u8]), seeds: &[Vec<u8>]) {
    let mut rng = StdRng::seed_from_u64(seed());
    seeds.iter().for_each(|seed| target(seed));
    let time = Duration::from_secs(if long() { 120 } else { 3 });
    let (began, mut tries) = (Instant::now(), 0_u64);
    while began.elapsed() < time {
        let mut bytes = seeds.choose(&mut rng).unwrap().clone();
        mutate(&mut bytes, seeds, &mut rng);
        let tried = bytes.clone();
        let survived = std::panic::catch_unwind(|| target(&bytes)).is_ok();
        assert!(survived, "after {tries} tries: {:?}", String::from_utf8_lossy(&tried));
        tries += 1;
    }
    eprintln!("{tries} tries");
}

#[test]
fn mutated_requests_are_read_the_same_however_they_are_cut() {
    run(targets::http, &seeds(&["fuzz/seeds/http"], 0));
}

#[test]
fn mutated_signatures_prove_nothing_and_break_nothing() {
    run(targets::signature, &seeds(&["tests/vectors/signatures"], targets::choices("signature")));
}

#[test]
fn mutated_events_break_nothing() {
    run(targets::interpret, &seeds(&["tests/vectors/events"], targets::choices("interpret")));
}

#[test]
fn mutated_reports_break_nothing() {
    run(targets::report, &seeds(&["tests/vectors/reports"], targets::choices("report")));
}

#[test]
fn mutated_json_breaks_nothing() {
    run(targets::json, &seeds(&["tests/vectors/events"], 0));
}
