//! Settlement: the provider's word and our ledger, compared both ways.
//!
//! `matching` is the comparison itself, without storage: the store feeds it and keeps what it says. `plan` says how a
//! source is settled, `window` which days, `told` how a line becomes an event. `steps/settle.rs` is the run.

pub mod matching;
pub mod plan;
pub mod silence;
pub mod sorter;
pub mod told;
pub mod window;
