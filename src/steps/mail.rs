//! Mail: receipts to customers and alerts to people, over SMTP.
//!
//! A mail is composed when it is sent, from the entry and the event, so the same entry gives the same bytes at each
//! attempt, under one Message-ID. Never puts what a stranger wrote into a header or into HTML as it is.

use crate::config::{EmailTemplate, OneOrMany, Smtp, SmtpSecurity, secret_from};
use crate::error::{Error, Result};
use crate::money::{Currency, Money};
use crate::providers::body::{self, BodyKind};
use crate::providers::json::Document;
use crate::source::Source;
use crate::store::ledger::{self, EntryLine};
use crate::store::outbox::DueMessage;
use crate::store::{Store, raw};
use lettre::message::{Mailbox, MultiPart, SinglePart, header::ContentType};
use lettre::transport::smtp::authentication::Credentials;
use lettre::transport::smtp::client::{Certificate, Tls, TlsParameters};
use lettre::{SmtpTransport, Transport as _};
use std::collections::HashMap;
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

/// How long one step of the conversation with the mail server may take.
const TIMEOUT: Duration = Duration::from_secs(15);

/// A mail server and who writes.
#[derive(Clone)]
pub struct Mailer {
    transport: SmtpTransport,
    from: Mailbox,
}

impl Mailer {
    /// From the configuration; the error says which of its values is wrong.
    pub fn new(smtp: &Smtp) -> std::result::Result<Mailer, String> {
        let host = smtp.host.get_ref();
        let from = mailbox(smtp.from.get_ref()).map_err(|e| format!("from: {e}"))?;
        let tls = || {
            let mut tls = TlsParameters::builder(host.clone());
            if let Some(path) = &smtp.ca {
                let bad = |what: String| format!("ca {}: {what}", path.display());
                let pem = std::fs::read(path).map_err(|e| bad(e.to_string()))?;
                tls = tls.add_root_certificate(Certificate::from_pem(&pem).map_err(|e| bad(e.to_string()))?);
            }
            tls.build().map_err(|e| format!("host: {e}"))
        };
        let (tls, port) = match smtp.security {
            SmtpSecurity::Starttls => (Tls::Required(tls()?), 587),
            SmtpSecurity::Tls => (Tls::Wrapper(tls()?), 465),
            SmtpSecurity::None => (Tls::None, 25),
        };
        let mut builder = SmtpTransport::builder_dangerous(host.clone())
            .tls(tls)
            .port(smtp.port.unwrap_or(port))
            .timeout(Some(TIMEOUT));
        match (&smtp.user, &smtp.password) {
            (Some(user), Some(place)) => {
                let password = secret_from(place.get_ref()).map_err(|what| format!("password: {what}"))?;
                builder = builder.credentials(Credentials::new(user.clone(), password.trim().to_owned()));
            }
            (None, None) => {}
            (Some(_), None) => return Err("there is a user without a password".into()),
            (None, Some(_)) => return Err("there is a password without a user".into()),
        }
        Ok(Mailer { transport: builder.build(), from })
    }

    /// Can it be reached, and does it let us in? For `doctor`.
    pub fn test(&self) -> std::result::Result<(), String> {
        match self.transport.test_connection() {
            Ok(true) => Ok(()),
            Ok(false) => Err("it does not answer as a mail server does".into()),
            Err(e) => Err(e.to_string()),
        }
    }
}

/// An address with or without a name.
pub fn mailbox(text: &str) -> std::result::Result<Mailbox, String> {
    text.trim().parse().map_err(|_| format!("{text:?} is no e-mail address"))
}

/// What an endpoint mails.
#[derive(Clone)]
pub enum Mail {
    /// A receipt, composed from the entry and the event.
    Receipt(Arc<Mailer>, Box<Receipt>),
    /// An alert, to these people.
    Alert(Arc<Mailer>, Mailbox),
}

/// The parsed template of a receipt.
#[derive(Clone)]
pub struct Receipt {
    to: Vec<Template>,
    from: Option<Mailbox>,
    subject: Template,
    text: Template,
    html: Option<Template>,
}

impl Receipt {
    /// Parses a template; the error says which part is wrong.
    pub fn new(email: &EmailTemplate) -> std::result::Result<Receipt, String> {
        let part = |name: &str, text: &str| Template::parse(text).map_err(|what| format!("{name}: {what}"));
        let to = OneOrMany::as_slice(&email.to);
        if to.is_empty() {
            return Err("to: it names nobody".into());
        }
        Ok(Receipt {
            to: to.iter().map(|one| part("to", one)).collect::<std::result::Result<_, _>>()?,
            from: email.from.as_deref().map(mailbox).transpose().map_err(|e| format!("from: {e}"))?,
            subject: part("subject", &email.subject)?,
            text: part("text", &email.text)?,
            html: email.html.as_deref().map(|html| part("html", html)).transpose()?,
        })
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    Literal(String),
    Field(Field),
    Body(Vec<String>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Field {
    Amount,
    Currency,
    Kind,
    Reference,
    Account,
    Date,
    Tenant,
}

/// A text with places in braces.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Template(Vec<Part>);

impl Template {
    fn parse(text: &str) -> std::result::Result<Template, String> {
        let mut parts = Vec::new();
        let mut literal = String::new();
        let mut rest = text;
        while let Some(at) = rest.find(['{', '}']) {
            literal.push_str(&rest[..at]);
            let (brace, after) = rest[at..].split_at(1);
            if let Some(after) = after.strip_prefix(brace) {
                literal.push_str(brace);
                rest = after;
                continue;
            }
            if brace == "}" {
                return Err("a } without its {; write }} for a brace".into());
            }
            let Some((name, after)) = after.split_once('}') else {
                return Err("a { without its }; write {{ for a brace".into());
            };
            parts.push(Part::Literal(std::mem::take(&mut literal)));
            parts.push(place(name.trim())?);
            rest = after;
        }
        literal.push_str(rest);
        parts.push(Part::Literal(literal));
        parts.retain(|part| *part != Part::Literal(String::new()));
        Ok(Template(parts))
    }

    fn fill(&self, facts: &Facts, escape: bool) -> String {
        let mut out = String::new();
        for part in &self.0 {
            match part {
                Part::Literal(text) => out.push_str(text),
                Part::Field(field) => push(&mut out, &facts.field(*field), escape),
                Part::Body(pointer) => push(&mut out, &facts.of_body(pointer), escape),
            }
        }
        out
    }
}

fn place(name: &str) -> std::result::Result<Part, String> {
    if let Some(pointer) = name.strip_prefix("body:") {
        if !pointer.starts_with('/') {
            return Err(format!("{{{name}}}: a place in the body begins with /, as in {{body:/data/object/email}}"));
        }
        let keys = pointer[1..].split('/').map(|key| key.replace("~1", "/").replace("~0", "~"));
        return Ok(Part::Body(keys.collect()));
    }
    Ok(Part::Field(match name {
        "amount" => Field::Amount,
        "currency" => Field::Currency,
        "kind" => Field::Kind,
        "reference" => Field::Reference,
        "account" => Field::Account,
        "date" => Field::Date,
        "tenant" => Field::Tenant,
        other => {
            return Err(format!(
                "{{{other}}} stands for nothing; amount, currency, kind, reference, account, date, tenant and body:/… do"
            ));
        }
    }))
}

fn push(out: &mut String, value: &str, escape: bool) {
    if !escape {
        return out.push_str(value);
    }
    for c in value.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            c => out.push(c),
        }
    }
}

/// What a receipt can say.
struct Facts {
    entry: EntryLine,
    /// The event as JSON; empty when its bytes are gone.
    json: String,
}

impl Facts {
    fn field(&self, field: Field) -> String {
        let entry = &self.entry;
        match field {
            Field::Amount => match Currency::parse(&entry.currency) {
                Some(currency) => {
                    let text = Money { minor: entry.amount, currency }.to_string();
                    text.split(' ').next().unwrap_or_default().to_owned()
                }
                None => entry.amount.to_string(),
            },
            Field::Currency => entry.currency.clone(),
            Field::Kind => entry.kind.clone(),
            Field::Reference => entry.reference.clone(),
            Field::Account => entry.account.clone().unwrap_or_default(),
            Field::Date => entry.occurred_at.get(..10).unwrap_or_default().to_owned(),
            Field::Tenant => entry.tenant.clone(),
        }
    }

    fn of_body(&self, pointer: &[String]) -> String {
        let Ok(document) = Document::read(&self.json) else { return String::new() };
        let mut value = document.root();
        for key in pointer {
            let next = value.get(key).or_else(|| value.elements().nth(key.parse().ok()?));
            let Some(next) = next else { return String::new() };
            value = next;
        }
        value.text().map(|text| text.into_owned()).unwrap_or_default()
    }
}

/// What came of a mail.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Mailed {
    /// The mail server took it; with its code.
    Taken(u16),
    /// There is nobody to send it to.
    Nobody,
    /// Not this time; with the server's code, if it gave one.
    NotYet(Option<u16>, String),
    /// Never: the mail server refuses this address, or it is none.
    Never(Option<u16>, String),
}

/// Composes and sends the mail of a message.
pub fn send(mail: &Mail, store: &Store, sources: &HashMap<String, Arc<Source>>, due: &DueMessage) -> Mailed {
    match mail {
        Mail::Alert(mailer, to) => {
            let payload: serde_json::Value =
                serde_json::from_str(due.payload.as_deref().unwrap_or_default()).unwrap_or_default();
            let said = |at: &str| payload.pointer(at).and_then(|v| v.as_str()).unwrap_or_default().to_owned();
            let subject = format!("[postonce] {}", said("/title"));
            let text = format!("{}\n\nopened: {}\n", said("/data/what"), said("/data/opened_at"));
            deliver(mailer, &mailer.from, to.clone(), &due.key, due.created_at, subject, text, None)
        }
        Mail::Receipt(mailer, receipt) => match facts(store, sources, due) {
            Err(error) => Mailed::NotYet(None, error.to_string()),
            Ok(None) => Mailed::Never(None, "a receipt is about a journal entry, and this message has none".into()),
            Ok(Some(facts)) => {
                let to = receipt.to.iter().map(|to| to.fill(&facts, false)).find(|to| !to.trim().is_empty());
                let Some(to) = to else { return Mailed::Nobody };
                let to = match mailbox(&to) {
                    Ok(to) => to,
                    Err(what) => return Mailed::Never(None, what),
                };
                let from = receipt.from.as_ref().unwrap_or(&mailer.from);
                let html = receipt.html.as_ref().map(|html| html.fill(&facts, true));
                let (subject, text) = (receipt.subject.fill(&facts, false), receipt.text.fill(&facts, false));
                deliver(mailer, from, to, &due.key, due.created_at, subject, text, html)
            }
        },
    }
}

fn facts(store: &Store, sources: &HashMap<String, Arc<Source>>, due: &DueMessage) -> Result<Option<Facts>> {
    let Some(journal) = due.journal else { return Ok(None) };
    store.read(|conn| {
        let mut found = None;
        let only = ledger::EntryFilter { after: journal - 1, limit: Some(1), ..Default::default() };
        ledger::entries(conn, &only, |entry| {
            found = (entry.id == journal).then_some(entry);
            Ok(())
        })?;
        let entry = found.ok_or_else(|| Error::Apply(format!("entry {journal} is not there")))?;
        let event = raw::get(conn, entry.raw_event)?;
        let bytes = event.as_ref().map(|event| raw::body(conn, event.body)).transpose()?.flatten();
        let source = event.as_ref().and_then(|event| sources.get(&event.source));
        let json = match (bytes, source) {
            (Some(body), Some(source)) => as_json(&source.recipe.events().event.body, &body).unwrap_or_default(),
            _ => String::new(),
        };
        Ok(Some(Facts { entry, json }))
    })
}

fn as_json(kinds: &[BodyKind], stored: &raw::Body) -> Option<String> {
    let header = |wanted: &str| {
        let mut lines = stored.headers.lines().filter_map(|line| line.split_once(": "));
        lines.find(|(name, _)| name.eq_ignore_ascii_case(wanted)).map(|(_, value)| value)
    };
    let unpacked = match header("content-encoding") {
        Some(encoding) if super::read::is_gzip(encoding) => {
            super::read::inflate(&stored.bytes, crate::config::BODY_MAX_MOST).ok()?
        }
        _ => stored.bytes.clone(),
    };
    body::to_json(kinds, &unpacked, header("content-type")).ok().map(|text| text.into_owned())
}

#[allow(clippy::too_many_arguments)]
fn deliver(
    mailer: &Mailer,
    from: &Mailbox,
    to: Mailbox,
    key: &str,
    at: i64,
    subject: String,
    text: String,
    html: Option<String>,
) -> Mailed {
    use sha2::Digest as _;
    let mut id = String::new();
    for byte in sha2::Sha256::digest(key.as_bytes()).iter().take(16) {
        let _ = write!(id, "{byte:02x}");
    }
    let domain = from.email.domain();
    let subject: String = subject.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    let builder = lettre::Message::builder()
        .from(from.clone())
        .to(to)
        .subject(subject.trim())
        .message_id(Some(format!("<{id}@{domain}>")))
        .date(SystemTime::UNIX_EPOCH + Duration::from_millis(u64::try_from(at).unwrap_or(0)))
        .user_agent(concat!("postonce/", env!("CARGO_PKG_VERSION")).into());
    let message = match html {
        None => builder.singlepart(SinglePart::builder().header(ContentType::TEXT_PLAIN).body(text)),
        Some(html) => builder.multipart(
            MultiPart::alternative()
                .boundary(format!("{id}-part"))
                .singlepart(SinglePart::plain(text))
                .singlepart(SinglePart::html(html)),
        ),
    };
    let message = match message {
        Ok(message) => message,
        Err(e) => return Mailed::Never(None, e.to_string()),
    };
    match mailer.transport.send(&message) {
        Ok(answer) => Mailed::Taken(answer.code().into()),
        Err(e) => {
            let code: Option<u16> = e.status().map(Into::into);
            // Only these speak of the recipient; the rest (no login, no room, no relay) a person mends, then it goes out.
            match code {
                Some(550 | 551 | 553) => Mailed::Never(code, e.to_string()),
                _ => Mailed::NotYet(code, e.to_string()),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(json: &str) -> Facts {
        Facts {
            entry: EntryLine {
                id: 7,
                tenant: "acme".into(),
                provider: "stripe".into(),
                provider_account: String::new(),
                mode: "live".into(),
                kind: "payment".into(),
                reference: "pi_1".into(),
                account: Some("cus_<1>".into()),
                parent: None,
                amount: 4999,
                currency: "EUR".into(),
                occurred_at: "2026-11-30T12:00:00Z".into(),
                recorded_at: "2026-11-30T12:00:01Z".into(),
                raw_event: 3,
                reverses: None,
                note: None,
                postings: Vec::new(),
            },
            json: json.into(),
        }
    }

    fn filled(template: &str, json: &str, escape: bool) -> String {
        Template::parse(template).unwrap().fill(&facts(json), escape)
    }

    #[test]
    fn a_template_says_what_entry_and_event_say() {
        assert_eq!(
            filled("{amount} {currency} for {reference} on {date}", "{}", false),
            "49.99 EUR for pi_1 on 2026-11-30"
        );
        let json = r#"{"data":{"items":[{"name":"a/b"}],"x/y":"slash"}}"#;
        assert_eq!(filled("{body:/data/items/0/name}, {body:/data/x~1y}", json, false), "a/b, slash");
        assert_eq!(filled("{body:/nothing/there}", json, false), "");
        assert_eq!(filled("{{not a place}} {kind}", json, false), "{not a place} payment");
    }

    #[test]
    fn what_is_filled_into_html_is_escaped_and_the_template_is_not() {
        let json = r#"{"name":"<script>alert('x')</script>&\""}"#;
        let html = filled("<b>{body:/name}</b> {account}", json, true);
        assert_eq!(html, "<b>&lt;script&gt;alert(&#39;x&#39;)&lt;/script&gt;&amp;&quot;</b> cus_&lt;1&gt;");
    }

    #[test]
    fn a_template_that_names_nothing_known_is_refused() {
        for wrong in ["{amuont}", "{body:data}", "{amount", "amount}"] {
            assert!(Template::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn two_addresses_in_one_field_are_no_address() {
        assert!(mailbox("a@example.com, b@example.com").is_err());
        assert!(mailbox("a@example.com\r\nBcc: b@example.com").is_err());
        assert!(mailbox("Shop <a@example.com>").is_ok());
    }
}
