//! The command line: parse, run, exit code. One file a command.
//!
//! Exit codes: 0 fine, 1 found something, 2 wrong usage, 3 could not do it. An error is two lines, `error:` and `try:`.

mod args;

mod bench;
mod check;
mod discrepancies;
mod init;
mod interpret;
mod list;
mod listen;
mod output;
mod providers;
mod reconcile;
mod replay;
mod send;
mod serve;
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
    let args = match Args::try_parse() {
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
        Command::Doctor(args) => serve::doctor(args),
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
        Command::Bench(args) => bench::run(args),
        Command::Torture(args) => torture::run(args),
        Command::Reconcile(args) => reconcile::main(args),
        Command::Discrepancies(args) => discrepancies::main(args),
        Command::Import(args) => reconcile::import(args),
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
