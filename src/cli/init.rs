//! `postonce init`: a commented configuration that works as soon as the secrets are set.

use super::args::Init;
use super::{Done, Outcome};
use crate::error::Error;
use crate::providers::Catalog;
use std::fs::OpenOptions;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;

pub(super) fn run(args: &Init) -> Done {
    let catalog = Catalog::open(None).map_err(|e| Error::refused(e.to_string(), "mend that file"))?;
    let Some(recipe) = catalog.recipe(&args.provider) else {
        let names: Vec<&str> = catalog.names().collect();
        return Err(Error::refused(format!("no provider is called {:?}", args.provider), names.join(", ")));
    };
    let recipe = recipe.map_err(|e| Error::refused(e.to_string(), "mend that file"))?;
    let variable = format!("{}_WEBHOOK_SECRET", recipe.provider.to_uppercase());
    let text = template(&recipe.provider, &recipe.title, &variable);
    let mut options = OpenOptions::new();
    options.write(true).mode(0o600);
    let made =
        if args.force { options.create(true).truncate(true) } else { options.create_new(true) }.open(&args.output);
    let written = made.and_then(|mut file| file.write_all(text.as_bytes()));
    written.map_err(|e| {
        let hint = if e.kind() == std::io::ErrorKind::AlreadyExists {
            "--force overwrites it, --output FILE names another"
        } else {
            "check the folder"
        };
        Error::refused(format!("cannot write {}: {e}", args.output.display()), hint)
    })?;
    let (file, provider, title) = (args.output.display(), &recipe.provider, &recipe.title);
    println!("wrote {file}. Next:");
    println!("  export {variable}=…      # from {title}'s dashboard, where the webhook endpoint is");
    println!("  postonce serve --config {file}");
    println!("  postonce send http://127.0.0.1:8787/webhooks/{provider} --secret env:{variable}");
    Ok(Outcome::Fine)
}

fn template(provider: &str, title: &str, variable: &str) -> String {
    format!(
        r#"# postonce: receives {title}'s webhooks and posts each one to a ledger exactly once.
# Secrets are named by env:NAME or file:PATH and never stand in this file.

# The one file: everything that was received and posted. Back it up with `postonce backup`, or `cp` after a stop.
database = "postonce.db"

# Where the provider reaches us. Put a TLS proxy (Caddy, nginx) in front and name it here, so that addresses are right.
listen = "127.0.0.1:8787"
# trusted_proxies = ["127.0.0.1/32"]

# How the provider writes our address; needed where its signature covers the URL.
# public_url = "https://hooks.example.com"

[operator]
# Pages, API and metrics. Anything but loopback needs a token.
listen = "127.0.0.1:8788"
# token = "env:POSTONCE_OPERATOR_TOKEN"

# A source is a path: webhooks go to /webhooks/{provider}.
[[source]]
name = "{provider}"
provider = "{provider}"
# Whose money it is; part of every key.
tenant = "default"
# Only real money: events of the other mode are kept and ignored. Without this line both are taken, in separate books.
# mode = "live"
# Several while you rotate: {{ name = "old", value = "env:OLD_SECRET", ends = "2027-01-31T00:00:00Z" }}
secrets = ["env:{variable}"]
# The largest body in bytes.
# body_max = 1048576
# Only from these addresses:
# allow_from = ["203.0.113.0/24"]
# For confirming amounts, fetching what was missed and the daily settlement:
# api_key = "env:{provider_upper}_API_KEY"

# Whom we tell: a signed call (Standard Webhooks) for each entry, with an Idempotency-Key, until it is accepted.
# [[deliver]]
# name = "app"
# url = "http://127.0.0.1:3000/payments"
# secret = "env:POSTONCE_DELIVER_SECRET"
# on = ["payment", "refund"]
"#,
        provider_upper = provider.to_uppercase()
    )
}
