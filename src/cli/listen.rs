//! `postonce listen`: a receiver for development. Verifies what postonce delivers and prints it.
//!
//! On tiny_http, for friendly peers: it listens on loopback only.

use super::args::Listen;
use super::{Done, Outcome, output};
use crate::clock;
use crate::config::secret_from;
use crate::error::Error;
use crate::providers::Catalog;
use crate::providers::signature::{Delivery, Options, Secret, Verifier};
use std::io::Read as _;

pub(super) fn run(args: &Listen) -> Done {
    if !args.listen.ip().is_loopback() {
        return Err(Error::refused(
            format!("{} is not a loopback address", args.listen),
            "this receiver is for development: 127.0.0.1",
        ));
    }
    let verifier = match &args.secret {
        None => None,
        Some(place) => {
            let text = secret_from(place)
                .map_err(|what| Error::refused(format!("--secret: {what}"), "env:NAME or file:PATH"))?;
            Some(verifier(&text)?)
        }
    };
    let server = tiny_http::Server::http(args.listen).map_err(|e| {
        Error::refused(format!("cannot listen on {}: {e}", args.listen), "take another port with --listen")
    })?;
    println!("listening on http://{}", server.server_addr());
    for mut request in server.incoming_requests() {
        let mut body = Vec::new();
        let read = request.as_reader().take(1 << 20).read_to_end(&mut body);
        let headers: Vec<(String, Vec<u8>)> =
            request.headers().iter().map(|h| (h.field.to_string(), h.value.as_bytes().to_vec())).collect();
        let pairs: Vec<(&str, &[u8])> = headers.iter().map(|(n, v)| (n.as_str(), v.as_slice())).collect();
        let delivery =
            Delivery { method: "POST", url: "", path: request.url(), query: "", headers: &pairs, body: &body };
        let verdict = match &verifier {
            None => "not verified",
            Some(verifier) => match verifier.verify(&delivery, clock::wall()) {
                Ok(_) => "verified",
                Err(refusal) => refusal.reason.as_str(),
            },
        };
        let good = read.is_ok() && (verifier.is_none() || verdict == "verified");
        let key = delivery.header_all("idempotency-key").next().unwrap_or_default();
        let (key, text) = (String::from_utf8_lossy(key).into_owned(), String::from_utf8_lossy(&body).into_owned());
        let mut out = std::io::stdout().lock();
        if args.json {
            output::json_line(&mut out, &serde_json::json!({ "verdict": verdict, "key": key, "body": text }))?;
        } else {
            output::line(&mut out, &format!("{verdict}  {key}\n  {text}"))?;
        }
        drop(out);
        let _ = request.respond(tiny_http::Response::empty(if good { 200 } else { 401 }));
    }
    Ok(Outcome::Fine)
}

fn verifier(text: &str) -> Result<Verifier, Error> {
    let bad = |what: String| Error::refused(what, "whsec_ and at least 24 bytes in base64");
    let catalog = Catalog::open(None).map_err(|e| bad(e.to_string()))?;
    let recipe = catalog.recipe("standard_webhooks").ok_or_else(|| bad("no file for Standard Webhooks".into()))?;
    let recipe = recipe.map_err(|e| bad(e.to_string()))?;
    Verifier::new(&recipe.signature, &[Secret::pasted("listen", text).0], &Options::default())
        .map_err(|e| bad(e.to_string()))
}
