//! How lists and errors look: aligned columns for people, one JSON object a line for scripts.

use super::{Done, Outcome};
use crate::error::{Error, Result};
use serde::Serialize;
use std::io::{self, Write};

/// Writes one JSON object a line. A reader that went away (`| head`) is no error: the listing just ends.
pub(super) fn json_line<T: Serialize>(out: &mut impl Write, value: &T) -> Result<()> {
    let text = serde_json::to_string(value).map_err(|e| Error::Apply(e.to_string()))?;
    writeln!(out, "{text}").map_err(gone)
}

/// Writes a line of text.
pub(super) fn line(out: &mut impl Write, text: &str) -> Result<()> {
    writeln!(out, "{text}").map_err(gone)
}

fn gone(e: io::Error) -> Error {
    if e.kind() == io::ErrorKind::BrokenPipe {
        std::process::exit(0);
    }
    Error::Unavailable(format!("cannot write: {e}"))
}

/// A table whose columns are as wide as their widest cell; the columns named `right` are aligned to the right.
pub(super) fn table(head: &[&str], right: &[usize], rows: &[Vec<String>]) -> String {
    let mut widths: Vec<usize> = head.iter().map(|h| h.chars().count()).collect();
    for row in rows {
        for (at, cell) in row.iter().enumerate() {
            widths[at] = widths[at].max(cell.chars().count());
        }
    }
    let mut text = String::new();
    let head: Vec<String> = head.iter().map(ToString::to_string).collect();
    for row in std::iter::once(&head).chain(rows) {
        let mut line = String::new();
        for (at, cell) in row.iter().enumerate() {
            let pad = " ".repeat(widths[at].saturating_sub(cell.chars().count()));
            let cell = if right.contains(&at) { format!("{pad}{cell}") } else { format!("{cell}{pad}") };
            line.push_str(&cell);
            line.push_str("  ");
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

/// `postonce version`.
pub(super) fn version() -> Done {
    println!("postonce {}, SQLite {}", env!("CARGO_PKG_VERSION"), rusqlite::version());
    Ok(Outcome::Fine)
}

/// A number with its noun.
pub(super) fn counted(n: i64, one: &str, more: &str) -> String {
    format!("{n} {}", if n == 1 { one } else { more })
}

/// An amount of minor units with the decimals of its currency.
pub(super) fn money(minor: i64, currency: &str) -> String {
    match crate::money::Currency::parse(currency) {
        Some(currency) => crate::money::Money { minor, currency }.to_string(),
        None => format!("{minor} {currency}"),
    }
}
