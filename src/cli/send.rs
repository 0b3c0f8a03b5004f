//! `postonce send`: a signed event, as the provider would send it, to try a source out.

use super::args::Send;
use super::{Done, Outcome};
use crate::clock;
use crate::config::secret_from;
use crate::error::{Error, Result};
use crate::providers::signature::{Delivery, Options, Secret, Verifier};
use crate::providers::{Catalog, Recipe, SampleFields};
use crate::steps::deliver;

pub(super) fn run(args: &Send) -> Done {
    let path = args.url.split_once("://").and_then(|(_, rest)| rest.find('/').map(|at| &rest[at..])).unwrap_or("/");
    let name =
        args.provider.as_deref().unwrap_or_else(|| path.trim_end_matches('/').rsplit('/').next().unwrap_or_default());
    let recipe = recipe(name)?;
    let text = secret_from(&args.secret)
        .map_err(|what| Error::refused(format!("--secret: {what}"), "--secret env:STRIPE_SECRET"))?;
    let (secret, _) = Secret::pasted("send", &text);
    let signer = Verifier::new(&recipe.signature, &[secret], &Options::default())
        .map_err(|e| Error::refused(e.to_string(), "use the secret that the source has"))?;
    let event = format!("evt_{}", args.reference);
    let fields = SampleFields {
        reference: &args.reference,
        amount: args.amount,
        account: "cus_demo",
        event: &event,
        at: clock::wall(),
    };
    let (body, extra) = body(args, &recipe, &fields)?;
    let agent = deliver::agent();
    let mut refused = false;
    for _ in 0..args.times {
        let headers: Vec<(&str, &[u8])> = extra.iter().map(|(n, v)| (n.as_str(), v.as_bytes())).collect();
        let delivery = Delivery { method: "POST", url: &args.url, path, query: "", headers: &headers, body: &body };
        let signed = signer
            .sign(&delivery, clock::wall(), &event)
            .map_err(|what| Error::refused(what, "send it with the provider's own tools (stripe trigger, …)"))?;
        let mut request = agent.post(&args.url).header("content-type", "application/json");
        for (name, value) in extra.iter().chain(&signed) {
            request = request.header(name, value);
        }
        let mut response = request.send(&body).map_err(|e| {
            Error::refused(
                format!("cannot reach {}: {e}", args.url),
                "is the server running (`postonce serve`), and is that its port?",
            )
        })?;
        let answer = response.body_mut().read_to_string().unwrap_or_default();
        println!("{} {}", response.status().as_u16(), answer.trim());
        refused |= !response.status().is_success();
    }
    Ok(if refused { Outcome::Found } else { Outcome::Fine })
}

fn recipe(name: &str) -> Result<Recipe> {
    let catalog = Catalog::open(None).map_err(|e| Error::refused(e.to_string(), "mend that file"))?;
    match catalog.recipe(name) {
        Some(recipe) => recipe.map_err(|e| Error::refused(e.to_string(), "mend that file")),
        None => Err(Error::refused(format!("no provider is called {name:?}"), "name one with --provider stripe")),
    }
}

type Headers = Vec<(String, String)>;

fn body(args: &Send, recipe: &Recipe, fields: &SampleFields) -> Result<(Vec<u8>, Headers)> {
    if let Some(file) = &args.body {
        let bytes = std::fs::read(file)
            .map_err(|e| Error::refused(format!("cannot read {}: {e}", file.display()), "--body FILE"))?;
        return Ok((bytes, Vec::new()));
    }
    let Some(sample) = &recipe.sample else {
        return Err(Error::refused(format!("{} has no invented event", recipe.title), "give it one with --body FILE"));
    };
    let headers = sample.headers.iter().map(|(name, value)| (name.clone(), sample.fill(value, fields))).collect();
    Ok((sample.fill(&sample.body, fields).into_bytes(), headers))
}
