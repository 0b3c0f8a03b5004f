//! The load of `postonce bench` on a server of another process: ours, or what somebody wants to compare it with.
//!
//! Sends invented payments, signed as Stripe does. Never leaves this machine unless that is said.

use super::load::{self, Offer, SECRET};
use super::{BODY, every, figures, round};
use crate::cli::args::Bench;
use crate::clock;
use crate::config::secret_from;
use crate::error::{Error, Result};
use crate::store::{open_for_reading, raw};
use serde_json::json;
use std::net::{SocketAddr, ToSocketAddrs as _};
use std::path::Path;
use std::time::{Duration, Instant};

/// Longer than any backlog that a figure is worth.
const BEHIND_MAX: Duration = Duration::from_secs(120);

/// One figure for each number of connections, or for each rate over the last of them.
pub(super) fn run(args: &Bench, url: &str, time: Duration) -> Result<()> {
    let (address, path) = target(url, args.anywhere)?;
    let secret = match &args.secret {
        Some(place) => {
            secret_from(place).map_err(|what| Error::refused(format!("--secret: {what}"), "--secret env:NAME"))?
        }
        None => SECRET.to_owned(),
    };
    let most = args.connections.last().copied().unwrap_or(64);
    let offers: Vec<(usize, Option<u64>)> = match args.rate.is_empty() {
        true => args.connections.iter().map(|connections| (*connections, None)).collect(),
        false => args.rate.iter().map(|rate| (most, Some(*rate))).collect(),
    };
    for (connections, rate) in offers {
        let offer = Offer {
            address,
            path: &path,
            secret: &secret,
            hot: args.hot,
            connections,
            time,
            rate,
            size: BODY,
            duplicate_every: every(args.duplicates),
            first: u64::try_from(clock::wall()).unwrap_or(0) << 14, // nobody has met these numbers
        };
        let heard = load::run(&offer)?;
        let mut line = json!({ "connections": connections, "offered": rate });
        let came = figures(&heard);
        if let (Some(line), Some(came)) = (line.as_object_mut(), came.as_object()) {
            line.extend(came.clone());
        }
        if let Some(database) = &args.database {
            let waited = all_applied(database)?;
            line["behind_s"] = json!(round(waited.as_secs_f64()));
            line["done_per_s"] = json!((heard.answered as f64 / (heard.seconds + waited.as_secs_f64())) as u64);
        }
        match args.json {
            true => println!("{line}"),
            false => {
                let cells = line.as_object().into_iter().flatten().filter(|(_, value)| !value.is_null());
                println!("{}", cells.map(|(key, value)| format!("{key} {value}")).collect::<Vec<_>>().join("  "));
            }
        }
    }
    Ok(())
}

/// How long it took from now until nothing waited any more.
fn all_applied(database: &Path) -> Result<Duration> {
    let conn = open_for_reading(database)?;
    let began = Instant::now();
    while raw::waiting(&conn)? > 0 && began.elapsed() < BEHIND_MAX {
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(began.elapsed())
}

fn target(url: &str, anywhere: bool) -> Result<(SocketAddr, String)> {
    let refuse = |what: String| Error::refused(what, "--url http://127.0.0.1:8787/webhooks/stripe");
    let rest = url.strip_prefix("http://").ok_or_else(|| refuse(format!("{url} does not begin with http://")))?;
    let (host, path) = rest.split_once('/').ok_or_else(|| refuse(format!("{url} names no path")))?;
    let mut found = host.to_socket_addrs().map_err(|e| refuse(format!("{host}: {e} (it needs a port)")))?;
    let address = found.next().ok_or_else(|| refuse(format!("{host} has no address")))?;
    if !anywhere && !address.ip().is_loopback() {
        return Err(refuse(format!("{host} is not this machine: --anywhere if it is yours and may be flooded")));
    }
    Ok((address, format!("/{path}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_this_machine_is_loaded_unless_that_is_said() {
        let (address, path) = target("http://127.0.0.1:8787/webhooks/stripe", false).unwrap();
        assert_eq!((address.port(), path.as_str()), (8787, "/webhooks/stripe"));
        assert!(target("http://192.0.2.1:80/x", false).is_err());
        assert!(target("http://192.0.2.1:80/x", true).is_ok());
        for broken in ["https://127.0.0.1:1/x", "http://127.0.0.1:1", "http://127.0.0.1/x", "127.0.0.1:1/x"] {
            assert!(target(broken, true).is_err(), "{broken}");
        }
    }
}
