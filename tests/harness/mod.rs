//! What the tests of the whole stand on, shared by `tests/it` and `tests/proof`: a folder of their own, the real server,
//! raw HTTP, signed bodies, a fake app, Stripe's events.
//!
//! Waits for facts with a deadline; the only pause is the poll between two looks. A test that fails leaves its folder and
//! prints the command, the end of the server's log and what stands in the database. Kills only what it started.

mod app;
mod server;
pub mod stripe;
mod wire;

pub use app::{APP_SECRET, App};
pub use server::{Server, Setup, open_db, postonce};
pub use wire::{Answer, Wire, post_bytes, sign, sign_at, verifier};

use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::time::{Duration, Instant};

/// Longer than any fact may take on a busy machine; reaching it is a failure.
pub const PATIENCE: Duration = Duration::from_secs(60);
/// Between two looks at a fact.
const POLL: Duration = Duration::from_millis(5);
/// The signing secret of a source, unless a test says otherwise.
pub const SECRET: &str = "whsec_dGhlIHNlY3JldCBvZiB0aGUgdGVzdHMgMDEyMzQ1Njc4OQ==";

/// Looks until `fact` gives something.
pub fn eventually<T>(what: &str, fact: impl FnMut() -> Option<T>) -> T {
    in_time(fact).unwrap_or_else(|| panic!("waited {PATIENCE:?} in vain: {what}"))
}

/// The same; `None` when it never came.
pub fn in_time<T>(mut fact: impl FnMut() -> Option<T>) -> Option<T> {
    let until = Instant::now() + PATIENCE;
    loop {
        let value = fact();
        if value.is_some() || Instant::now() >= until {
            return value;
        }
        std::thread::sleep(POLL);
    }
}

/// Are crash points compiled in? Says so when not.
pub fn has_faults() -> bool {
    if !cfg!(feature = "faults") {
        eprintln!("skipped: crash points are not compiled in; run scripts/test, or cargo test --features faults");
    }
    cfg!(feature = "faults")
}

/// A folder of the test's own, gone afterwards unless the test fails.
pub struct Folder(PathBuf);

impl Folder {
    /// A new, empty one.
    pub fn new() -> Folder {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("postonce-it-{}-{}", std::process::id(), NEXT.fetch_add(1, SeqCst));
        let path = std::env::temp_dir().join(name);
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).unwrap();
        Folder(path)
    }

    /// A path inside it.
    pub fn join(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("left for you to look at: {}", self.0.display());
        } else {
            let _ = fs::remove_dir_all(&self.0);
        }
    }
}
