//! What the README promises, shown to hold while storage, clocks, processes and peers misbehave; and that the tests
//! would notice if it did not.
//!
//! Needs the feature `faults`. POSTONCE_LONG=1 runs the long forms; POSTONCE_SEED repeats a run. One file a topic.

mod broken_disk;
mod clock;
mod crash_points;
#[allow(dead_code, reason = "each topic uses its part of it")]
mod disk;
#[allow(dead_code, reason = "each topic uses its part of it")]
mod engine;
#[allow(dead_code, unused_imports, reason = "the tests in tests/it use the rest")]
#[path = "../harness/mod.rs"]
mod harness;
mod model;
mod mutations;
mod peers;
mod power;
mod secrets;
mod smuggling;
mod tools;
