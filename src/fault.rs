//! Crash points and delays that the tests switch on. Without the feature `faults` a point compiles to nothing.
//!
//! `POSTONCE_CRASH=after_claim` aborts at the first passage, `after_claim:3` at the third. `POSTONCE_DELAY=interpret:2000`
//! sleeps two seconds at each passage, `POSTONCE_HOLD=interpret:FILE` waits there until there is such a file. The last line
//! on standard error names the point, so that a test can assert that the process died there and nowhere else.

/// A number that a test may set by an environment variable.
#[cfg(not(feature = "faults"))]
#[inline(always)]
pub fn number(_variable: &str, usual: i64) -> i64 {
    usual
}

/// A number that a test may set by an environment variable.
#[cfg(feature = "faults")]
pub fn number(variable: &str, usual: i64) -> i64 {
    std::env::var(variable).ok().and_then(|text| text.parse().ok()).unwrap_or(usual)
}

/// How far a test has set the wall clock forward, in milliseconds.
#[cfg(not(feature = "faults"))]
#[inline(always)]
pub fn clock_off() -> i64 {
    0
}

/// How far a test has set the wall clock forward, in milliseconds: what stands in the file POSTONCE_CLOCK_FILE now.
#[cfg(feature = "faults")]
pub fn clock_off() -> i64 {
    static FILE: std::sync::OnceLock<Option<std::ffi::OsString>> = std::sync::OnceLock::new();
    let Some(file) = FILE.get_or_init(|| std::env::var_os("POSTONCE_CLOCK_FILE")) else { return 0 };
    std::fs::read_to_string(file).ok().and_then(|text| text.trim().parse().ok()).unwrap_or(0)
}

/// Every point, in the order in which a process and an event meet them: tests walk through all. A test compares the list
/// with the source.
#[cfg(feature = "faults")]
pub const ALL: &[&str] = &[
    "opened",
    "schema_made",
    "before_release",
    "after_release",
    "after_read",
    "before_keep",
    "kept_uncommitted",
    "before_commit",
    "after_commit",
    "after_keep",
    "before_answer",
    "after_answers",
    "attempt_counted",
    "before_read",
    "keys_won",
    "after_claim",
    "before_apply",
    "entry_without_postings",
    "message_written",
    "after_effect",
    "after_apply",
    "before_send",
    "after_send",
    "before_mark",
    "after_mark",
    "before_checkpoint",
    "after_checkpoint",
    "stopping",
    "before_last_fold",
    "folded",
];

/// A place where a test may stop the process.
#[cfg(not(feature = "faults"))]
#[inline(always)]
pub fn point(_name: &str) {}

/// The same for one event alone: `POSTONCE_CRASH=apply/evt_1`.
#[cfg(not(feature = "faults"))]
#[inline(always)]
pub fn point_for(_name: &str, _event: Option<&str>) {}

/// The same for one event alone: `POSTONCE_CRASH=apply/evt_1`.
#[cfg(feature = "faults")]
pub fn point_for(name: &str, event: Option<&str>) {
    if let Some(event) = event {
        point(&format!("{name}/{event}"));
    }
}

/// A place where a test may stop the process.
#[cfg(feature = "faults")]
pub fn point(name: &str) {
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
    static CRASH: OnceLock<Option<(String, u32)>> = OnceLock::new();
    static DELAY: OnceLock<Option<(String, u32)>> = OnceLock::new();
    static HOLD: OnceLock<Option<(String, String)>> = OnceLock::new();
    static PASSED: AtomicU32 = AtomicU32::new(0);
    let setting = |variable: &str, default: u32| {
        let text = std::env::var(variable).ok()?;
        let (point, number) = text.split_once(':').unwrap_or((&text, ""));
        Some((point.to_owned(), number.parse().unwrap_or(default)))
    };
    if let Some((at, ms)) = DELAY.get_or_init(|| setting("POSTONCE_DELAY", 1000))
        && at == name
    {
        std::thread::sleep(std::time::Duration::from_millis(u64::from(*ms)));
    }
    let hold = || std::env::var("POSTONCE_HOLD").ok()?.split_once(':').map(|(at, file)| (at.into(), file.into()));
    if let Some((at, file)) = HOLD.get_or_init(hold)
        && at == name
    {
        while !std::path::Path::new(file).exists() {
            std::thread::sleep(std::time::Duration::from_millis(2));
        }
    }
    if let Some((at, nth)) = CRASH.get_or_init(|| setting("POSTONCE_CRASH", 1))
        && at == name
        && PASSED.fetch_add(1, SeqCst) + 1 == *nth
    {
        eprintln!("crashed at {name}");
        std::process::abort();
    }
}
