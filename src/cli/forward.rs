//! `postonce forward`: each stored delivery also to another address, signed anew with the source's scheme, so that a
//! developer's machine sees what the provider sends. Changes nothing in the file.

use super::args::{Forward, Serve};
use super::{Done, Outcome, output};
use crate::clock;
use crate::config::secret_from;
use crate::error::Error;
use crate::providers::signature::{Delivery, Options, Secret, Verifier};
use crate::source::Source;
use crate::steps::deliver;
use crate::store::tail::{self, Stored};
use crate::store::{open_for_reading, raw};
use std::collections::HashMap;
use std::time::Duration;

const EVERY: Duration = Duration::from_millis(200);
const ROWS: usize = 50;
/// Of the connection, not of the delivery.
const NOT_FORWARDED: [&str; 8] =
    ["host", "content-length", "connection", "transfer-encoding", "keep-alive", "te", "upgrade", "expect"];

pub(super) fn run(args: &Forward) -> Done {
    if !args.to.starts_with("http://") && !args.to.starts_with("https://") {
        return Err(Error::refused(
            format!("{:?} is no http address", args.to),
            "--to http://127.0.0.1:3000/webhooks/stripe",
        ));
    }
    let serve = Serve {
        config: args.config.clone(),
        database: None,
        listen: None,
        operator: None,
        sources: Vec::new(),
        deliver: None,
        deliver_secret: None,
        adopt: false,
        any_file_system: false,
        log_format: None,
    };
    let loaded = super::serve::load(&serve)?;
    let sources = crate::source::build_all(&loaded).map_err(|faults| {
        let list: Vec<String> = faults.iter().map(ToString::to_string).collect();
        Error::refused(list.join("; "), "forwarding signs with the sources' secrets: mend the configuration")
    })?;
    let sources: HashMap<String, Source> = sources.into_iter().map(|s| (s.name.clone(), s)).collect();
    if let Some(name) = args.source.as_ref().filter(|name| !sources.contains_key(*name)) {
        let known: Vec<&str> = sources.keys().map(String::as_str).collect();
        return Err(Error::refused(format!("there is no source {name}"), format!("there are: {}", known.join(", "))));
    }
    let own = match (&args.secret, &args.source) {
        (Some(place), Some(source)) => Some(verifier(place, &sources[source])?),
        _ => None,
    };
    let conn = open_for_reading(&args.database.database)?;
    let mut after = match args.after {
        Some(after) => after,
        None => raw::newest(&conn)?,
    };
    let agent = deliver::agent();
    let mut sent = 0;
    loop {
        let deliveries = tail::deliveries(&conn, after, args.source.as_deref(), ROWS)?;
        let none = deliveries.is_empty();
        for stored in deliveries {
            after = stored.id;
            let source = sources.get(&stored.source);
            let signer = own.as_ref().or(source.map(|s| &s.verifier));
            let (answer, signed) = forward(&agent, &args.to, &stored, signer);
            let mut out = std::io::stdout().lock();
            if args.database.json {
                let line = serde_json::json!({
                    "id": stored.id, "source": stored.source, "signed": signed,
                    "status": answer.as_ref().ok(), "error": answer.as_ref().err(),
                });
                output::json_line(&mut out, &line)?;
            } else {
                let what = answer.map_or_else(|e| e, |status| status.to_string());
                let how = if signed { "" } else { "  (signature as it came)" };
                output::line(&mut out, &format!("{:>6} {} -> {what}{how}", stored.id, stored.source))?;
            }
            sent += 1;
            if args.count.is_some_and(|count| sent >= count) {
                return Ok(Outcome::Fine);
            }
        }
        if none {
            std::thread::sleep(EVERY);
        }
    }
}

fn verifier(place: &str, source: &Source) -> Result<Verifier, Error> {
    let bad = |what: String| Error::refused(format!("--secret: {what}"), "--secret env:STRIPE_LOCAL_SECRET");
    let (secret, _) = Secret::pasted("forward", &secret_from(place).map_err(bad)?);
    Verifier::new(&source.recipe.signature, &[secret], &Options::default()).map_err(|e| bad(e.to_string()))
}

/// Sends one. Gives the status or what went wrong, and whether it was signed anew.
fn forward(agent: &ureq::Agent, to: &str, stored: &Stored, signer: Option<&Verifier>) -> (Result<u16, String>, bool) {
    let Some(body) = &stored.body else { return (Err("its bytes are past their retention".into()), false) };
    let url = match body.query.is_empty() {
        true => to.to_owned(),
        false => format!("{to}{}{}", if to.contains('?') { '&' } else { '?' }, body.query),
    };
    let path = url.split_once("://").and_then(|(_, rest)| rest.find('/').map(|at| &rest[at..])).unwrap_or("/");
    let path = path.split('?').next().unwrap_or(path);
    let kept: Vec<(&str, &str)> = body
        .headers
        .lines()
        .filter_map(|line| line.split_once(": "))
        .filter(|(name, _)| !NOT_FORWARDED.iter().any(|n| name.eq_ignore_ascii_case(n)))
        .collect();
    let signed = signer.and_then(|signer| {
        let headers: Vec<(&str, &[u8])> = kept.iter().map(|(n, v)| (*n, v.as_bytes())).collect();
        let delivery =
            Delivery { method: "POST", url: &url, path, query: &body.query, headers: &headers, body: &body.bytes };
        signer.sign(&delivery, clock::wall(), &format!("msg_{}", stored.id)).ok()
    });
    let (anew, signed) = (signed.is_some(), signed.unwrap_or_default());
    let mut request = agent.post(&url).header("postonce-raw-event", stored.id.to_string());
    for (name, value) in kept.iter().filter(|(n, _)| !signed.iter().any(|(s, _)| s.eq_ignore_ascii_case(n))) {
        request = request.header(*name, *value);
    }
    for (name, value) in &signed {
        request = request.header(name, value);
    }
    (request.send(&body.bytes[..]).map(|r| r.status().as_u16()).map_err(|e| e.to_string()), anew)
}
