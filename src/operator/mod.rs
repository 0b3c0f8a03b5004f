//! The operator's listener: health for machines; pages, API and metrics for people.

use crate::config::Config;
use crate::edge::{Front, Limits, Proxies, Response, Route};
use crate::engine::Engine;
use crate::error::{Error, Result};
use std::net::TcpListener;
use std::sync::Arc;

/// Starts it on its listener.
pub fn start(listener: TcpListener, engine: Arc<Engine>, _config: &Config) -> Result<Front> {
    Front::start(
        listener,
        Limits::default(),
        Proxies::default(),
        |_, _| Route::Read { limit: 1 << 20 },
        move |request, reply| {
            let response = match request.head.path() {
                "/healthz" => Response::text(200, "ok\n"),
                "/readyz" => match crate::health::ready(engine.shared()) {
                    Ok(()) => Response::text(200, "ready\n"),
                    Err(why) => Response::text(503, format!("{}\n", why.join("\n"))),
                },
                "/metrics" => match crate::metrics::render(engine.shared()) {
                    Ok(text) => Response::new(200)
                        .with_header("Content-Type", crate::metrics::CONTENT_TYPE)
                        .with_body(text.into_bytes()),
                    Err(error) => crate::server::problem(503, "unavailable", &error.to_string()),
                },
                _ => crate::server::problem(404, "not_found", "there is nothing here"),
            };
            reply.send(response);
        },
    )
    .map_err(|e| Error::Unavailable(e.to_string()))
}
