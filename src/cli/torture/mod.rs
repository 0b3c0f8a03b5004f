//! `postonce torture`: the proof, on the user's own machine.
//!
//! A day of events is sent three times, each time to an empty file, in another random order and with duplicates, while
//! the server is killed with SIGKILL at random points. Each time the ledger must hold exactly what the day says, every
//! entry must have been told under one key, and `check` must be clean. Writes nothing outside of its folder.

mod child;
mod day;
mod receiver;
mod round;

use super::args::Torture;
use super::{Done, Outcome, output};
use crate::error::{Error, Result};
use day::Day;
use indicatif::{ProgressBar, ProgressStyle};
use rand::SeedableRng as _;
use rand::rngs::StdRng;
use receiver::Receiver;
use round::{Report, Round};
use std::fs;
use std::path::PathBuf;
use std::time::Instant;

/// How often the day is replayed.
const ROUNDS: u32 = 3;
/// Differences that are printed.
const SHOWN: usize = 10;

pub(super) fn run(args: &Torture) -> Done {
    // In 53 bits, so that it survives being copied through anything.
    let seed = args.seed.unwrap_or_else(|| rand::random::<u64>() >> 11);
    let mut rng = StdRng::seed_from_u64(seed);
    let mut day = match &args.from {
        None => Day::invent(args.events, &mut rng),
        Some(file) => Day::of(file)?,
    };
    if day.events.is_empty() {
        return Err(Error::refused("there is no event to send", "--events N, or --from a database that has some"));
    }
    let folder = Folder::make(args, seed)?;
    let receiver = Receiver::start()?;
    let began = Instant::now();
    println!(
        "seed {seed}: {} events, {ROUNDS} rounds, {} kills, in {}",
        day.events.len(),
        args.kills,
        folder.0.display()
    );
    for left in &day.left_out {
        println!("left out: {left}");
    }
    let play = |day: &Day, name: String, kills: u32, calm: bool, rng: &mut StdRng| {
        let bar = ProgressBar::new(0);
        bar.set_style(
            ProgressStyle::with_template("{msg} {wide_bar} {pos}/{len}")
                .unwrap_or_else(|_| ProgressStyle::default_bar()),
        );
        bar.set_message(name.clone());
        let outcome = Round { day, folder: folder.0.join(&name), kills, calm, receiver: &receiver, bar: &bar }.run(rng);
        bar.finish_and_clear();
        outcome
    };
    if day.expected.is_none() {
        // What the events of a file come to is what they come to in peace, in their own order.
        let report = play(&day, "calm".into(), 0, true, &mut rng)?;
        day.expected = Some(report.ledger.clone());
        report.line("in peace");
    }
    let mut total = Report::default();
    for round in 1..=ROUNDS {
        let kills = args.kills / ROUNDS + u32::from(round <= args.kills % ROUNDS);
        let report = play(&day, format!("round-{round}"), kills, false, &mut rng)?;
        report.line(&format!("round {round}"));
        total.add(report);
    }
    for what in total.faults.iter().take(SHOWN) {
        println!("  {what}");
    }
    if total.faults.len() > SHOWN {
        println!("  and {} more", total.faults.len() - SHOWN);
    }
    println!(
        "seed {seed}, kills {}, duplicates {}, lost = {}, doubled = {} ({:.1?})",
        total.kills,
        total.duplicates,
        total.lost,
        total.doubled,
        began.elapsed()
    );
    if total.faults.is_empty() {
        folder.remove();
        return Ok(Outcome::Fine);
    }
    let mut out = std::io::stdout().lock();
    output::line(
        &mut out,
        &format!("the files are in {}; --seed {seed} plays the same day again", folder.0.display()),
    )?;
    Ok(Outcome::Found)
}

/// Where it works.
struct Folder(PathBuf, bool);

impl Folder {
    fn make(args: &Torture, seed: u64) -> Result<Folder> {
        let (path, ours) = match &args.dir {
            Some(path) => (path.clone(), false),
            None => (std::env::temp_dir().join(format!("postonce-torture-{seed}-{}", std::process::id())), true),
        };
        fs::create_dir_all(&path).map_err(|e| {
            Error::refused(format!("cannot make {}: {e}", path.display()), "name a folder of your own with --dir")
        })?;
        Ok(Folder(path, ours))
    }

    /// Only what it made itself.
    fn remove(&self) {
        if self.1 {
            let _ = fs::remove_dir_all(&self.0);
        }
    }
}
