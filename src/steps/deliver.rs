//! Deliver: sends one message of the outbox and says what came of it.
//!
//! At least once, with the same bytes and the same Idempotency-Key at every attempt. Runs outside of any transaction.

use crate::clock;
use crate::error::Result;
use crate::event::Millis;
use crate::providers::signature::{Delivery as Signed, Verifier};
use crate::retry::DELIVER;
use crate::source::Source;
use crate::steps::mail::{self, Mail, Mailed};
use crate::store::outbox::{Attempt, DueMessage};
use crate::store::{Store, ledger};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long an endpoint may take to answer.
pub const TIMEOUT: Duration = Duration::from_secs(15);
/// No `Retry-After` is waited for longer.
pub const RETRY_AFTER_MAX: Millis = 24 * 3_600_000;

/// An endpoint at work.
pub struct Endpoint {
    /// Its name in the outbox.
    pub name: String,
    /// Where to.
    pub url: String,
    /// Signs what it is sent, where the configuration gives a key.
    pub signer: Option<Verifier>,
    /// Its connections.
    pub agent: ureq::Agent,
    /// Mails instead of calling.
    pub mail: Option<Mail>,
}

/// What is sent: composed from an entry, or as it was written.
pub struct Message {
    /// The Idempotency-Key.
    pub key: String,
    /// JSON.
    pub body: String,
}

/// Composes the bytes of a message. The same entry gives the same bytes, always.
pub fn compose(store: &Store, due: &DueMessage) -> Result<Message> {
    let Some(journal) = due.journal else {
        return Ok(Message { key: due.key.clone(), body: due.payload.clone().unwrap_or_default() });
    };
    store.read(|conn| {
        let mut message = None;
        let only = ledger::EntryFilter { after: journal - 1, limit: Some(1), ..Default::default() };
        ledger::entries(conn, &only, |entry| {
            let key = key_of(&entry);
            let body = serde_json::json!({
                "type": entry.kind,
                "timestamp": entry.recorded_at,
                "data": {
                    "entry": entry.id, "tenant": entry.tenant, "provider": entry.provider, "mode": entry.mode,
                    "kind": entry.kind, "reference": entry.reference, "account": entry.account, "parent": entry.parent,
                    "amount": entry.amount, "currency": entry.currency, "occurred_at": entry.occurred_at,
                },
            });
            message = Some(Message { key, body: body.to_string() });
            Ok(())
        })?;
        message.ok_or_else(|| crate::error::Error::Apply(format!("entry {journal} is not there")))
    })
}

/// The Idempotency-Key of the message about an entry: the money's own name.
pub fn key_of(entry: &ledger::EntryLine) -> String {
    let account =
        if entry.provider_account.is_empty() { String::new() } else { format!("{}:", entry.provider_account) };
    format!("{}:{}:{account}{}:{}:{}", entry.tenant, entry.provider, entry.mode, entry.kind, entry.reference)
}

/// Sends it once.
pub fn send(endpoint: &Endpoint, due: &DueMessage, message: &Message) -> Attempt {
    let at = clock::wall();
    let began = Instant::now();
    let result = post(endpoint, message, at);
    let (status, error, retry_after) = match result {
        Ok((status, _)) if (200..300).contains(&status) => (Some(status), None, None),
        Ok((status, retry_after)) => (Some(status), Some(format!("answered {status}")), retry_after),
        Err(error) => (None, Some(error), None),
    };
    let attempts = due.attempts + 1;
    let gone = status == Some(410); // the endpoint says that it wants no more of this
    let wait = DELIVER.wait(attempts).max(retry_after.unwrap_or(0));
    let retry_in = (error.is_some() && !gone && !DELIVER.exhausted(attempts)).then_some(wait);
    Attempt { message: due.id, at, status, took_ms: began.elapsed().as_millis() as i64, error, retry_in, note: None }
}

/// Composes and mails it once.
pub fn send_mail(mail: &Mail, store: &Store, sources: &HashMap<String, Arc<Source>>, due: &DueMessage) -> Attempt {
    let (at, began) = (clock::wall(), Instant::now());
    let attempts = due.attempts + 1;
    let (status, error, again, note) = match mail::send(mail, store, sources, due) {
        Mailed::Taken(code) => (Some(code), None, false, None),
        Mailed::Nobody => (None, None, false, Some("nothing was sent: the event has no address".to_owned())),
        Mailed::NotYet(code, why) => (code, Some(why), !DELIVER.exhausted(attempts), None),
        Mailed::Never(code, why) => (code, Some(why), false, None),
    };
    let retry_in = again.then(|| DELIVER.wait(attempts));
    Attempt { message: due.id, at, status, took_ms: began.elapsed().as_millis() as i64, error, retry_in, note }
}

fn post(endpoint: &Endpoint, message: &Message, now: Millis) -> std::result::Result<(u16, Option<Millis>), String> {
    let mut request = endpoint
        .agent
        .post(&endpoint.url)
        .header("content-type", "application/json")
        .header("user-agent", concat!("postonce/", env!("CARGO_PKG_VERSION")))
        .header("idempotency-key", &message.key);
    if let Some(signer) = &endpoint.signer {
        let delivery = Signed {
            method: "POST",
            url: &endpoint.url,
            path: "",
            query: "",
            headers: &[],
            body: message.body.as_bytes(),
        };
        // The id is part of the signed text, where a dot separates.
        let id = message.key.replace('.', "_");
        for (name, value) in signer.sign(&delivery, now, &id)? {
            request = request.header(name, value);
        }
    }
    let response = request.send(message.body.as_bytes()).map_err(|e| e.to_string())?;
    let retry_after =
        response.headers().get("retry-after").and_then(|v| v.to_str().ok()).and_then(|v| retry_after(v, now));
    Ok((response.status().as_u16(), retry_after))
}

/// `Retry-After` in seconds or as an HTTP date, as a wait.
pub fn retry_after(text: &str, now: Millis) -> Option<Millis> {
    let text = text.trim();
    let wait = match text.parse::<i64>() {
        Ok(seconds) => seconds.checked_mul(1000)?,
        Err(_) => jiff::fmt::rfc2822::parse(text).ok()?.timestamp().as_millisecond() - now,
    };
    (wait > 0).then_some(wait.min(RETRY_AFTER_MAX))
}

/// An agent that follows no redirect and gives up in time.
pub fn agent() -> ureq::Agent {
    ureq::Agent::config_builder()
        .timeout_global(Some(TIMEOUT))
        .timeout_connect(Some(Duration::from_secs(5)))
        .max_redirects(0)
        .http_status_as_error(false)
        .build()
        .into()
}

#[cfg(test)]
mod tests {
    use super::retry_after;

    #[test]
    fn retry_after_is_read_in_both_forms_and_bounded() {
        assert_eq!(retry_after("120", 0), Some(120_000));
        assert_eq!(retry_after("Wed, 21 Oct 2015 07:28:00 GMT", 1_445_412_420_000), Some(60_000));
        assert_eq!(retry_after("999999999", 0), Some(24 * 3_600_000));
        assert_eq!(retry_after("-5", 0), None);
        assert_eq!(retry_after("soon", 0), None);
    }
}
