//! Everything that needs more than one function: the real binary on a free port in a fresh folder, spoken to over
//! sockets, killed, started again, and checked.
//!
//! One file a topic. Tests wait for facts, never for time; a failure prints the command, the server's log and the state
//! of its database. What needs crash points is skipped with a message unless the feature `faults` is on (scripts/test).

mod api;
mod bank;
mod beside;
mod bundled;
mod busy;
mod cases;
mod cases_money;
mod cases_store;
mod cases_wire;
mod crash;
#[allow(dead_code, reason = "each topic uses its part of it")]
#[path = "../harness/mod.rs"]
mod harness;
mod inside;
mod keeping;
mod lab;
mod late;
mod latency;
mod million;
mod month;
mod operator;
mod ops;
mod pages;
mod plans;
mod power;
mod providers;
mod scenarios;
mod schema;
mod settled_apis;
mod settlement;
mod spine;
mod tidy;
mod torture;
