//! An axum app with a pool of its own on the same file, and postonce inside: one process, one file, one commit.
//!
//! STRIPE_SECRET=whsec_... cargo run --manifest-path examples/axum/Cargo.toml

use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use axum::routing::{get, post};
use axum::{Json, Router};
use postonce::{Postonce, Request, Source};
use r2d2_sqlite::SqliteConnectionManager;
use std::sync::Arc;
use std::time::Duration;

/// What the handlers share.
#[derive(Clone)]
struct App {
    postonce: Arc<Postonce>,
    pool: r2d2::Pool<SqliteConnectionManager>,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let file = std::env::var("APP_DB").unwrap_or_else(|_| "app.db".into());
    let port = std::env::var("PORT").unwrap_or_else(|_| "3002".into());
    let manager = SqliteConnectionManager::file(&file).with_init(|conn| conn.busy_timeout(Duration::from_secs(5)));
    let pool = r2d2::Pool::builder().max_size(4).build(manager)?;
    pool.get()?.execute_batch(
        "PRAGMA journal_mode = WAL;
         CREATE TABLE IF NOT EXISTS users(
           id INTEGER PRIMARY KEY, stripe_id TEXT NOT NULL UNIQUE, credits INTEGER NOT NULL DEFAULT 0);
         CREATE TABLE IF NOT EXISTS visits(id INTEGER PRIMARY KEY, at TEXT DEFAULT CURRENT_TIMESTAMP);
         INSERT OR IGNORE INTO users(stripe_id) VALUES ('cus_demo');",
    )?;
    let postonce = Postonce::builder(&file)
        .source(Source::new("stripe").secret_from("env:STRIPE_SECRET"))
        .apply(|tx, event| {
            for paid in event.movements("payment") {
                let sql = "UPDATE users SET credits = credits + ?1 WHERE stripe_id = ?2";
                if tx.sql().execute(sql, (paid.amount, &paid.account))? == 0 {
                    return Err("the customer is not there yet".into());
                }
            }
            Ok(())
        })
        .open()?;
    postonce.start()?;
    let routes = Router::new()
        .route("/webhooks/stripe", post(webhook))
        .route("/users", get(users))
        .route("/visits", post(visit))
        .with_state(App { postonce: Arc::new(postonce), pool });
    let listener = tokio::net::TcpListener::bind(format!("127.0.0.1:{port}")).await?;
    println!("listening on http://{}", listener.local_addr()?);
    axum::serve(listener, routes).await?;
    Ok(())
}

/// The bytes as they came, and no thread that waits: the answer comes once they are on the disk.
async fn webhook(State(app): State<App>, headers: HeaderMap, body: Bytes) -> (StatusCode, HeaderMap, Vec<u8>) {
    let (sender, answered) = tokio::sync::oneshot::channel();
    let request = Request { method: "POST", path_and_query: "/webhooks/stripe", body: &body };
    app.postonce.receive_then("stripe", request, &headers, |reply| {
        let _ = sender.send(reply);
    });
    let Ok(reply) = answered.await else {
        return (StatusCode::SERVICE_UNAVAILABLE, HeaderMap::new(), Vec::new());
    };
    let headers = reply.headers.into_iter().filter_map(|(name, value)| {
        Some((HeaderName::from_bytes(name.as_bytes()).ok()?, HeaderValue::from_str(&value).ok()?))
    });
    let status = StatusCode::from_u16(reply.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    (status, headers.collect(), reply.body)
}

async fn users(State(app): State<App>) -> Result<Json<Vec<serde_json::Value>>, StatusCode> {
    let list = move || -> Result<Vec<serde_json::Value>, Box<dyn std::error::Error>> {
        let conn = app.pool.get()?;
        let mut select = conn.prepare_cached("SELECT stripe_id, credits FROM users")?;
        let users = select.query_map([], |row| {
            let (id, credits): (String, i64) = (row.get(0)?, row.get(1)?);
            Ok(serde_json::json!({ "stripe_id": id, "credits": credits }))
        })?;
        Ok(users.collect::<Result<_, _>>()?)
    };
    match tokio::task::spawn_blocking(move || list().map_err(|e| e.to_string())).await {
        Ok(Ok(users)) => Ok(Json(users)),
        _ => Err(StatusCode::INTERNAL_SERVER_ERROR),
    }
}

async fn visit(State(app): State<App>) -> StatusCode {
    let write = move || Some(app.pool.get().ok()?.execute("INSERT INTO visits DEFAULT VALUES", []).is_ok());
    match tokio::task::spawn_blocking(write).await {
        Ok(Some(true)) => StatusCode::NO_CONTENT,
        _ => StatusCode::INTERNAL_SERVER_ERROR,
    }
}
