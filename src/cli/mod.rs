//! The command line: parse, run, exit code. One file a command.
//!
//! Exit codes: 0 fine, 1 found something, 2 wrong usage, 3 could not do it. An error is two lines, `error:` and `try:`.

mod args;

mod backup;
mod bench;
mod check;
mod completions;
mod desk;
mod discrepancies;
mod doctor;
mod erase;
mod forward;
mod import;
mod init;
mod interpret;
mod list;
mod listen;
mod log_lines;
mod man;
mod output;
mod providers;
mod reconcile;
mod replay;
mod restore;
mod send;
mod serve;
mod tail;
mod torture;
mod verify;

use crate::error::Error;
use args::{Args, Command};
use clap::Parser as _;
use std::process::ExitCode;

/// What a command came to.
pub(crate) enum Outcome {
    /// Fine: 0.
    Fine,
    /// It found something that a person should see: 1.
    Found,
}

type Done = Result<Outcome, Error>;

/// Runs the command line of this process.
pub fn main() -> ExitCode {
    // `postonce help replay` is what people type who know other programs.
    let mut words: Vec<_> = std::env::args_os().collect();
    if words.get(1).is_some_and(|word| word == "help") {
        words.remove(1);
        words.push("--help".into());
    }
    let args = match Args::try_parse_from(words) {
        Ok(args) => args,
        Err(e) => {
            let _ = e.print();
            return ExitCode::from(if e.use_stderr() { 2 } else { 0 });
        }
    };
    let outcome = match &args.command {
        Command::Serve(args) => serve::run(args),
        Command::Init(args) => init::run(args),
        Command::Check(args) => check::run(args),
        Command::Doctor(args) => doctor::run(args),
        Command::Send(args) => send::run(args),
        Command::Listen(args) => listen::run(args),
        Command::Events(args) => list::events(args),
        Command::Dead(args) => list::dead(args),
        Command::Ledger(args) => list::ledger(args),
        Command::Balances(args) => list::balances(args),
        Command::Entities(args) => list::entities(args),
        Command::Verify(args) => verify::run(args),
        Command::Interpret(args) => interpret::run(args),
        Command::Providers(args) => providers::run(args),
        Command::Replay(args) => replay::run(args),
        Command::Sweep(args) => replay::sweep(args),
        Command::Tail(args) => tail::run(args),
        Command::Forward(args) => forward::run(args),
        Command::Backup(args) => backup::run(args),
        Command::Restore(args) => restore::run(args),
        Command::Erase(args) => erase::run(args),
        Command::Completions(args) => completions::run(args),
        Command::Man => man::run(),
        Command::Bench(args) => bench::run(args),
        Command::Torture(args) => torture::run(args),
        Command::Reconcile(args) => reconcile::main(args),
        Command::Discrepancies(args) => discrepancies::main(args),
        Command::Import(args) => import::run(args),
        Command::Version => output::version(),
    };
    match outcome {
        Ok(Outcome::Fine) => ExitCode::SUCCESS,
        Ok(Outcome::Found) => ExitCode::from(1),
        Err(error) => {
            eprintln!("error: {error}");
            if let Some(hint) = error.hint() {
                eprintln!("try:   {hint}");
            }
            ExitCode::from(3)
        }
    }
}
