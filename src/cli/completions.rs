//! `postonce completions`: what a shell needs to complete our commands.

use super::args::{Args, Completions};
use super::{Done, Outcome};
use crate::error::Error;
use clap::CommandFactory as _;

pub(super) fn run(args: &Completions) -> Done {
    let shell = args.shell.or_else(clap_complete::Shell::from_env).ok_or_else(|| {
        Error::refused("which shell it is could not be found out", "postonce completions bash, zsh, fish, …")
    })?;
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut Args::command(), "postonce", &mut text);
    super::output::line(&mut std::io::stdout().lock(), String::from_utf8_lossy(&text).trim_end())?;
    Ok(Outcome::Fine)
}
