//! postonce receives payment webhooks and posts each one to a ledger exactly once.
//!
//! The modules stand in the order in which an event meets them, in groups; a module imports only from groups above its
//! own: values, then providers (data and how it is read), then the store (every SQL statement), then the steps, then
//! what runs them.

// 1. values
pub mod clock;
pub mod config;
pub mod error;
pub mod event;
pub mod fault;
pub mod money;
pub mod retry;
// 2. providers
pub mod providers;
// 3. the store
pub mod postings;
pub mod store;
// 4. the steps
pub mod source;
pub mod steps;
// 5. what runs them
pub mod alerts;
pub mod cli;
pub mod edge;
pub mod engine;
pub mod health;
pub mod metrics;
pub mod operator;
pub mod server;
