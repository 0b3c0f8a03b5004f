//! The log on standard error: one line for each thing that happened, plain or as JSON.
//!
//! Never more than one line, whatever a peer sent: control characters are written as escapes.

use crate::clock;
use crate::config::LogFormat;
use std::io::Write as _;

/// Starts it. `RUST_LOG` overrides what is shown.
pub(super) fn init(format: LogFormat, events: bool) {
    let default = if events { "info" } else { "info,postonce::event=warn" };
    let mut builder = env_logger::Builder::from_env(env_logger::Env::default().default_filter_or(default));
    builder.format(move |out, record| {
        let line = line(format, clock::wall(), record.level(), record.target(), &record.args().to_string());
        writeln!(out, "{line}")
    });
    builder.init();
}

fn line(format: LogFormat, at: i64, level: log::Level, target: &str, text: &str) -> String {
    let time = clock::rfc3339(at);
    match format {
        LogFormat::Json => {
            let level = level.as_str().to_lowercase();
            serde_json::json!({ "time": time, "level": level, "target": target, "message": text }).to_string()
        }
        LogFormat::Plain => {
            let mut line = format!("{time} {level:5} ");
            for c in text.chars() {
                match c {
                    '\n' => line.push_str("\\n"),
                    c if c.is_control() => line.extend(c.escape_default()),
                    c => line.push(c),
                }
            }
            line
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whatever_is_logged_takes_one_line() {
        let hostile = "a\nb\r\x1b[31mred";
        let plain = line(LogFormat::Plain, 1_796_049_900_000, log::Level::Warn, "t", hostile);
        assert_eq!(plain, "2026-11-30T14:45:00Z WARN  a\\nb\\r\\u{1b}[31mred");
        let json = line(LogFormat::Json, 1_796_049_900_000, log::Level::Warn, "postonce::server", hostile);
        let value: serde_json::Value = serde_json::from_str(&json).unwrap();
        assert!(!json.contains('\n') && value["message"] == hostile && value["level"] == "warn");
    }
}
