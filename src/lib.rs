//! postonce receives payment webhooks and posts each one to a ledger exactly once.

pub mod clock;
pub mod error;
pub mod event;
pub mod fault;
pub mod money;
pub mod providers;
pub mod retry;
pub mod store;
