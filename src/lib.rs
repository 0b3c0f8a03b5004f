//! postonce receives payment webhooks and posts each one to a ledger exactly once.
//!
//! Inside an app, the ledger's entry and the change of the app's own table are one commit in the app's own SQLite file:
//!
//! ```
//! use postonce::{Postonce, Source};
//!
//! # let folder = std::env::temp_dir().join(format!("postonce-doc-{}", std::process::id()));
//! # std::fs::create_dir_all(&folder)?;
//! # let file = folder.join("app.db");
//! # let app = postonce::rusqlite::Connection::open(&file)?;
//! # app.execute_batch("PRAGMA journal_mode = WAL; CREATE TABLE users(stripe_id TEXT, credits INTEGER);
//! #   INSERT INTO users VALUES ('cus_1', 0)")?;
//! let postonce = Postonce::builder(&file)
//!     .source(Source::new("stripe").secret("whsec_from_the_dashboard").answer_when_applied())
//!     .apply(|tx, event| {
//!         for paid in event.movements("payment") {
//!             let sql = "UPDATE users SET credits = credits + ?1 WHERE stripe_id = ?2";
//!             tx.sql().execute(sql, (paid.amount, &paid.account))?;
//!         }
//!         Ok(())
//!     })
//!     .open()?;
//! postonce.start()?;
//!
//! // In the web server's handler for POST /webhooks/stripe, with the bytes as they came:
//! # let body = r#"{"id":"evt_1","object":"event","type":"payment_intent.succeeded","created":1767225600,"livemode":true,
//! #   "data":{"object":{"id":"pi_1","object":"payment_intent","amount":500,"amount_received":500,"currency":"usd",
//! #   "customer":"cus_1","status":"succeeded"}}}"#;
//! # let headers = postonce.sign("stripe", body)?;
//! # let headers = headers.iter().map(|(name, value)| (name, value));
//! # let again = headers.clone();
//! let reply = postonce.receive("stripe", headers, body);
//! assert_eq!(reply.status, 200);
//! # assert_eq!(postonce.receive("stripe", again, body).status, 200, "and once more");
//! # let credits: i64 = app.query_row("SELECT credits FROM users", [], |r| r.get(0))?;
//! # assert_eq!(credits, 500);
//!
//! postonce.stop();
//! # std::fs::remove_dir_all(&folder)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Amounts are integers in the minor units of their currency (ISO 4217), times are milliseconds since 1970 UTC, and
//! there is no float anywhere. [`Postonce`] is the whole of it, [`apply_once`] only the ten lines that make one piece of
//! work happen once. [`rusqlite`] is re-exported in the version that both take.
//!
//! How SQLite is compiled is settled by the app's own `.cargo/config.toml`, not by this crate. Without these lines it
//! shares page memory under one lock and calls `fsync` instead of `fdatasync`: as correct and as durable, only slower.
//!
//! ```toml
//! [env]
//! LIBSQLITE3_FLAGS = "-USQLITE_ENABLE_MEMORY_MANAGEMENT -DHAVE_FDATASYNC=1"
//! ```
//!
//! The modules stand in the order in which an event meets them, in groups; a module imports only from groups above its
//! own: values, then providers (data and how it is read), then the store (every SQL statement), then the steps, then
//! what runs them.

#![deny(missing_docs)]

pub use embed::{AppliedEvent, ApplyTx, Builder, Post, Postonce, Reply, Request, Source};
pub use error::{ApplyError, Error};
pub use rusqlite;
pub use store::once::{Once, Outcome, apply_once};

// 1. values
pub mod clock;
pub mod config;
pub mod error;
pub mod event;
pub mod fault;
pub mod money;
pub mod retry;
mod toml_file;
// 2. providers
pub mod providers;
pub mod pull;
// 3. the store
pub mod postings;
pub mod settlement;
pub mod store;
// 4. the steps
pub mod effects;
pub mod source;
pub mod steps;
// 5. what runs them
pub mod alerts;
pub mod answer;
pub mod cli;
pub mod edge;

pub mod embed;
pub mod engine;
pub mod health;
pub mod metrics;
pub mod operator;
pub mod rates;
pub mod server;
