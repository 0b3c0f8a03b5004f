//! `postonce man`: the manual page, for `man -l -` or a package.

use super::args::Args;
use super::{Done, Outcome, output};
use crate::error::Error;
use clap::CommandFactory as _;

pub(super) fn run() -> Done {
    let mut text = Vec::new();
    let mut command = Args::command();
    command.build();
    let written = clap_mangen::Man::new(command.clone()).render(&mut text).and_then(|()| {
        for sub in command.get_subcommands().filter(|sub| !sub.is_hide_set()) {
            let man = clap_mangen::Man::new(sub.clone());
            text.extend_from_slice(format!(".SH {}\n", sub.get_name().to_uppercase()).as_bytes());
            man.render_description_section(&mut text)?;
            man.render_options_section(&mut text)?;
        }
        Ok(())
    });
    written.map_err(|e| Error::Unavailable(e.to_string()))?;
    output::line(&mut std::io::stdout().lock(), String::from_utf8_lossy(&text).trim_end())?;
    Ok(Outcome::Fine)
}
