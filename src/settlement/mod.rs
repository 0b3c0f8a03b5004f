//! Settlement: the provider's word and our ledger, compared both ways.
//!
//! `matching` is the comparison itself, without storage: the store feeds it and keeps what it says.

pub mod matching;
