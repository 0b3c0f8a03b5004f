//! A Rust app with a web server of its own (tiny_http) and postonce inside: one process, one file, one commit.
//!
//! STRIPE_SECRET=whsec_... cargo run --example tiny_http

use postonce::rusqlite::Connection;
use postonce::{Postonce, Source};
use std::error::Error;
use std::io::Read as _;
use std::time::Duration;
use tiny_http::{Header, Method, Response, Server};

fn main() -> Result<(), Box<dyn Error>> {
    let file = std::env::var("APP_DB").unwrap_or_else(|_| "app.db".into());
    let port = std::env::var("PORT").unwrap_or_else(|_| "3001".into());
    let app = Connection::open(&file)?;
    app.busy_timeout(Duration::from_secs(5))?;
    app.execute_batch(
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
    let server = Server::http(format!("127.0.0.1:{port}")).map_err(|e| e.to_string())?;
    println!("listening on http://{}", server.server_addr());
    for mut request in server.incoming_requests() {
        let (status, body, headers) = match (request.method(), request.url()) {
            (Method::Post, "/webhooks/stripe") => {
                let mut body = Vec::new();
                request.as_reader().take(1 << 20).read_to_end(&mut body)?;
                let headers = request.headers().iter().map(|h| (h.field.as_str().as_str(), h.value.as_bytes()));
                let reply = postonce.receive("stripe", headers, body);
                (reply.status, reply.body, reply.headers)
            }
            (Method::Get, "/users") => {
                let mut users = Vec::new();
                let mut select = app.prepare_cached("SELECT stripe_id, credits FROM users")?;
                let mut rows = select.query([])?;
                while let Some(row) = rows.next()? {
                    let (id, credits): (String, i64) = (row.get(0)?, row.get(1)?);
                    users.push(format!("{{\"stripe_id\":{id:?},\"credits\":{credits}}}"));
                }
                (200, format!("[{}]", users.join(",")).into_bytes(), Vec::new())
            }
            (Method::Post, "/visits") => {
                app.execute("INSERT INTO visits DEFAULT VALUES", [])?;
                (204, Vec::new(), Vec::new())
            }
            _ => (404, Vec::new(), Vec::new()),
        };
        let mut response = Response::from_data(body).with_status_code(status);
        for (name, value) in headers {
            let header = Header::from_bytes(name, value).map_err(|()| "a header that cannot be sent")?;
            response.add_header(header);
        }
        request.respond(response)?;
    }
    Ok(())
}
