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
                "/readyz" => match engine
                    .shared()
                    .store
                    .gate()
                    .figures()
                    .trouble
                    .lock()
                    .expect("no panic while it is held")
                    .clone()
                {
                    None => Response::text(200, "ready\n"),
                    Some(why) => Response::text(503, format!("{why}\n")),
                },
                _ => crate::server::problem(404, "not_found", "there is nothing here"),
            };
            reply.send(response);
        },
    )
    .map_err(|e| Error::Unavailable(e.to_string()))
}
