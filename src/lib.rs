//! postonce receives payment webhooks and posts each one to a ledger exactly once.

pub mod event;
pub mod money;
pub mod providers;
pub mod pull;
pub mod settlement;
