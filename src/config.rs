//! The configuration: `postonce.toml`, or the same from the command line.
//!
//! Checked as a whole: every fault is named at once, with its line and what would be right. Secrets come by `env:NAME` or
//! `file:PATH` and are never part of a message.

use crate::event::Mode;
use crate::toml_file;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use toml::Spanned;

/// Bodies above this many bytes are refused, unless a source says otherwise.
pub const BODY_MAX: u64 = 1 << 20;
/// No source may allow more: what is stored must stay readable in one piece.
pub const BODY_MAX_MOST: u64 = 32 << 20;

/// The whole configuration.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// The SQLite file.
    #[serde(default = "default_database")]
    pub database: PathBuf,
    /// Where providers reach us.
    #[serde(default = "default_listen")]
    pub listen: SocketAddr,
    /// How providers write our address: needed where a signature covers the URL.
    #[serde(default)]
    pub public_url: Option<String>,
    /// Peers whose `X-Forwarded-For` is believed, as addresses or networks.
    #[serde(default)]
    pub trusted_proxies: Vec<ipnet::IpNet>,
    /// A folder of provider files that override or extend the built-in ones.
    #[serde(default)]
    pub providers_dir: Option<PathBuf>,
    /// May the file be on a network file system?
    #[serde(default)]
    pub any_file_system: bool,
    /// The operator's listener.
    #[serde(default)]
    pub operator: Operator,
    /// Who sends us what.
    #[serde(default, rename = "source")]
    pub sources: Vec<SourceConfig>,
    /// Whom we tell.
    #[serde(default, rename = "deliver")]
    pub deliveries: Vec<Delivery>,
    /// How the log looks.
    #[serde(default)]
    pub log: Log,
    /// What is kept, and for how long.
    #[serde(default)]
    pub retain: Retain,
    /// Copies of the file that the server makes by itself.
    #[serde(default)]
    pub backup: Option<Backup>,
    /// The mail server for receipts and alerts.
    #[serde(default)]
    pub smtp: Option<Smtp>,
    /// When something is worth an alert.
    #[serde(default)]
    pub alerts: AlertRules,
    /// Whom to tell when something is wrong.
    #[serde(default, rename = "alert")]
    pub alert_endpoints: Vec<AlertEndpoint>,
}

fn default_database() -> PathBuf {
    "postonce.db".into()
}

fn default_listen() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 8787))
}

/// The operator's listener.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Operator {
    /// Its address; loopback by default.
    pub listen: SocketAddr,
    /// The bearer token, by `env:` or `file:`. Required when the address is not a loopback one.
    pub token: Option<Spanned<String>>,
    /// A second token that may look and change nothing.
    pub read_only_token: Option<Spanned<String>>,
    /// Names under which a proxy in front of it is reached (`ops.example.com`); addresses and localhost always are.
    pub hosts: Vec<String>,
}

impl Default for Operator {
    fn default() -> Operator {
        Operator {
            listen: SocketAddr::from(([127, 0, 0, 1], 8788)),
            token: None,
            read_only_token: None,
            hosts: Vec::new(),
        }
    }
}

/// One source: binds a path to a tenant, a provider, a mode and secrets.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SourceConfig {
    /// The last part of its path, `/webhooks/<name>`.
    pub name: Spanned<String>,
    /// The provider's file; the name of the source when absent.
    #[serde(default)]
    pub provider: Option<Spanned<String>>,
    /// Whose money it is.
    #[serde(default = "default_tenant")]
    pub tenant: String,
    /// `live` or `test`: events of the other mode are kept and ignored. Absent: both, in books of their own.
    #[serde(default)]
    pub mode: Option<Spanned<String>>,
    /// The live signing secrets.
    #[serde(default)]
    pub secrets: Vec<Spanned<SecretConfig>>,
    /// The largest body in bytes.
    #[serde(default = "default_body_max")]
    pub body_max: u64,
    /// How old a signature may be, in seconds; absent: what the provider's file says.
    #[serde(default)]
    pub tolerance: Option<u64>,
    /// How far ahead of our clock a signature may be dated, in seconds; absent: as `tolerance`.
    #[serde(default)]
    pub future: Option<u64>,
    /// Addresses or networks that may send; empty: all.
    #[serde(default)]
    pub allow_from: Vec<ipnet::IpNet>,
    /// Requests a second that are let in; absent: no limit.
    #[serde(default)]
    pub rate_limit: Option<u32>,
    /// Post amounts that the signature does not cover, without confirming them by a fetch?
    #[serde(default)]
    pub trust_unsigned_fields: bool,
    /// The provider's API key, by `env:` or `file:`; `user:key` where it has two parts
    /// (`key:` where the key is the user).
    #[serde(default)]
    pub api_key: Option<Spanned<String>>,
    /// Another address of the provider's API (a proxy, a test double).
    #[serde(default)]
    pub api_base: Option<String>,
    /// `stored` (default): answer once the bytes are safe. `applied`: answer after the effect.
    #[serde(default)]
    pub ack: Ack,
    /// How it is compared with the provider's own report.
    #[serde(default)]
    pub settlement: Option<SettlementConfig>,
    /// Settings that the provider's file asks for.
    #[serde(default)]
    pub options: BTreeMap<String, String>,
    /// Changes to the app's own tables, in the same commit.
    #[serde(default, rename = "effect")]
    pub effects: Vec<EffectConfig>,
}

fn default_tenant() -> String {
    "default".into()
}

fn default_body_max() -> u64 {
    BODY_MAX
}

/// When a delivery is answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Ack {
    /// Once its bytes are safe.
    #[default]
    Stored,
    /// Once its effect is committed.
    Applied,
}

/// A signing secret: the plain form, or with a name and an end.
#[derive(Debug, Clone, Deserialize)]
#[serde(untagged)]
pub enum SecretConfig {
    /// `env:NAME` or `file:PATH`; its name is that text.
    Plain(String),
    /// The secret itself, from a program that embeds us; no file can say this.
    #[serde(skip)]
    Given {
        /// Shown in rows, pages and logs.
        name: String,
        /// The secret.
        value: Given,
    },
    /// With a name and an optional end.
    Named {
        /// Shown in rows, pages and logs.
        name: String,
        /// `env:NAME` or `file:PATH`.
        value: String,
        /// RFC 3339; after it the secret matches nothing.
        #[serde(default)]
        ends: Option<String>,
    },
}

/// A secret that a program has handed over. Cannot be printed.
#[derive(Clone)]
pub struct Given(pub String);

impl fmt::Debug for Given {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(a secret)")
    }
}

/// How a source is compared with the provider's own report: `[source.settlement]`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SettlementConfig {
    /// Run every day by itself. Needs an `api_key`.
    pub enabled: bool,
    /// At which time of day (UTC); most reports of a day are complete at noon of the next.
    pub at: String,
    /// Which list or report of the provider's file; absent: the one that covers most.
    pub report: Option<String>,
    /// The zone of the provider's days, `Europe/Berlin`; absent: what the provider's file says, or UTC.
    pub zone: Option<String>,
    /// The zone of times in report files that do not name it, where the account has another than the provider's usual one.
    pub report_zone: Option<String>,
    /// How many days before the last are looked at again.
    pub again_days: u32,
    /// Hours after which an entry that is in no report goes to a person; absent: what the provider's file says.
    pub grace_h: Option<u32>,
    /// The same by kind.
    pub grace_kind_h: BTreeMap<String, u32>,
    /// The settled currency of reports that do not say it.
    pub currency: Option<String>,
    /// The provider's own account whose report it is, where events carry one.
    pub account: String,
    /// The user, key id or client id beside the `api_key`, where the provider has two parts; `env:` or `file:`.
    pub api_user: Option<Spanned<String>>,
    /// What the addresses of the provider's API need (`shop`, `location`).
    pub settings: BTreeMap<String, String>,
    /// Another page size than the provider's file says.
    pub page_size: Option<u32>,
    /// References, parents or orders (`*` at the end matches the rest) that are another integration's money.
    pub not_ours: Vec<String>,
    /// Hours without a delivery after which the source counts as silent; absent: from its own history.
    pub silent_after_h: Option<u32>,
}

impl Default for SettlementConfig {
    fn default() -> SettlementConfig {
        SettlementConfig {
            enabled: true,
            at: "13:00".into(),
            report: None,
            zone: None,
            report_zone: None,
            again_days: 7,
            grace_h: None,
            grace_kind_h: BTreeMap::new(),
            currency: None,
            account: String::new(),
            api_user: None,
            settings: BTreeMap::new(),
            page_size: None,
            not_ours: Vec::new(),
            silent_after_h: None,
        }
    }
}

/// A rule's own SQL on the app's tables in the same file.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EffectConfig {
    /// Kinds of movement, entity kinds (`subscription`) or event types it is for; `*` at the end matches the rest.
    pub on: Spanned<Vec<String>>,
    /// One or more statements, with the values of [`crate::effects::VALUES`] bound where they are named (`:amount`).
    #[serde(default)]
    pub sql: Option<Spanned<String>>,
    /// How many rows the statements together must change.
    #[serde(default)]
    pub expect_rows: Option<u64>,
    /// How the app's customer is found: a SELECT whose first column is bound as `:customer`. An event whose customer is
    /// not there yet is set aside, and applied once they are.
    #[serde(default)]
    pub account: Option<String>,
    /// For money that two providers can announce, or a provider and a person: `order-{body.data.object.metadata.order}`.
    /// The effect runs once for each key of a tenant and mode, across providers; one that is announced again with another
    /// amount is a conflict. It stops the effect and the rule's receipt, not the entry: each provider settles what it has
    /// announced, so each one's ledger holds it. Whoever does the same by hand writes, in the transaction that does it,
    /// the key `operation/<tenant>/<mode>/<key>` to `postonce_once` (with [`crate::apply_once`], or in plain SQL:
    /// `INSERT INTO postonce_once(key, at, result) VALUES ('operation/default/live/order-17', unixepoch() * 1000, '"by ann"')`,
    /// which fails when the rule was first); then the rule does nothing.
    #[serde(default)]
    pub operation_key: Option<String>,
    /// The `[[deliver]]` that sends a receipt.
    #[serde(default)]
    pub receipt: Option<String>,
    /// Whom the receipt goes to: a template, or a SELECT of one value.
    #[serde(default)]
    pub to: Option<String>,
}

impl EffectConfig {
    /// Its line, for messages.
    pub fn line(&self, loaded: &Loaded) -> usize {
        loaded.line(&self.on)
    }
}

/// An endpoint of the app.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Delivery {
    /// Its name in the outbox.
    pub name: Spanned<String>,
    /// Where to; absent for e-mail.
    #[serde(default)]
    pub url: Option<Spanned<String>>,
    /// A receipt by e-mail instead of a call.
    #[serde(default)]
    pub email: Option<Spanned<EmailTemplate>>,
    /// The key of the Standard Webhooks signature (`whsec_…`), by `env:` or `file:`.
    #[serde(default)]
    pub secret: Option<Spanned<String>>,
    /// Kinds of movement it wants; absent: all.
    #[serde(default = "all_kinds")]
    pub on: Vec<String>,
    /// Sources it wants; empty: all.
    #[serde(default)]
    pub sources: Vec<String>,
}

fn all_kinds() -> Vec<String> {
    vec!["*".into()]
}

// Operating it: log, retention, backups, mail, alerts ------------------------------------------------------------------

/// How the log on standard error looks.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Log {
    /// `plain` or `json`.
    pub format: LogFormat,
    /// One line for each event that ends, with its ids.
    pub events: bool,
}

/// The form of a line of the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// Time, level, text.
    #[default]
    Plain,
    /// One JSON object.
    Json,
}

/// How long things are kept, in days; 0 keeps them for ever. Keys, the journal and open evidence are always kept.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Retain {
    /// Bytes of finished events.
    pub bodies_days: u32,
    /// Finished events themselves: what came, when, and what became of it.
    pub events_days: u32,
    /// Attempts to deliver.
    pub attempts_days: u32,
    /// The audit log.
    pub audit_days: u32,
    /// A folder where events are written as compressed JSON lines before they go.
    pub archive: Option<PathBuf>,
}

impl Default for Retain {
    fn default() -> Retain {
        Retain { bodies_days: 30, events_days: 30, attempts_days: 30, audit_days: 0, archive: None }
    }
}

/// Scheduled copies of the file.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Backup {
    /// The folder for them.
    pub dir: PathBuf,
    /// Hours from one to the next.
    #[serde(default = "a_day")]
    pub every_hours: u32,
    /// The newest of each of so many days is kept,
    #[serde(default = "seven")]
    pub keep_days: u32,
    /// of each of so many weeks,
    #[serde(default = "four")]
    pub keep_weeks: u32,
    /// and of each of so many months.
    #[serde(default)]
    pub keep_months: u32,
}

fn a_day() -> u32 {
    24
}

fn seven() -> u32 {
    7
}

fn four() -> u32 {
    4
}

/// A mail server.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Smtp {
    /// Its name.
    pub host: Spanned<String>,
    /// Its port; absent: 587, 465 for `tls`, 25 for `none`.
    #[serde(default)]
    pub port: Option<u16>,
    /// How the connection is protected.
    #[serde(default)]
    pub security: SmtpSecurity,
    /// The user, where it wants one.
    #[serde(default)]
    pub user: Option<String>,
    /// The password, by `env:` or `file:`.
    #[serde(default)]
    pub password: Option<Spanned<String>>,
    /// A file with a certificate (PEM) to trust beside the public roots: a mail server with a CA of its own.
    #[serde(default)]
    pub ca: Option<PathBuf>,
    /// Who writes: `Shop <billing@example.com>`.
    pub from: Spanned<String>,
}

/// How a connection to a mail server is protected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SmtpSecurity {
    /// Plain at first, TLS before anything is said.
    #[default]
    Starttls,
    /// TLS from the first byte.
    Tls,
    /// Not at all: for a mail server on this machine.
    None,
}

/// A receipt. `{amount}`, `{currency}`, `{kind}`, `{reference}`, `{account}`, `{date}`, `{tenant}` and `{body:/json/pointer}` stand for
/// what the entry and the event say; `{{` is a brace.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EmailTemplate {
    /// To whom: an address or a placeholder, `{body:/data/object/receipt_email}`. Several: the first that is not empty.
    pub to: OneOrMany,
    /// The subject.
    pub subject: String,
    /// The text.
    pub text: String,
    /// The same as HTML; what is filled in is escaped.
    #[serde(default)]
    pub html: Option<String>,
    /// Another sender than `[smtp] from`.
    #[serde(default)]
    pub from: Option<String>,
}

/// One text or a list of them.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(untagged)]
pub enum OneOrMany {
    /// One.
    One(String),
    /// A list.
    Many(Vec<String>),
}

impl OneOrMany {
    /// All of them.
    pub fn as_slice(&self) -> &[String] {
        match self {
            OneOrMany::One(one) => std::slice::from_ref(one),
            OneOrMany::Many(many) => many,
        }
    }
}

/// When something is worth an alert.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct AlertRules {
    /// Rejected signatures of one source in five minutes.
    pub rejected: u64,
    /// Free space of the database's disk in MiB, below which it is told; at a quarter of it the server is not ready.
    pub disk_free_mb: u64,
    /// Seconds that a message may be late.
    pub outbox_lag_s: i64,
    /// Seconds that an event may wait to be applied.
    pub apply_lag_s: i64,
    /// Hours that an event may be parked, for a person or for what it waits for.
    pub parked_h: u32,
    /// Minutes between two looks at the same trouble before it is told again; doubled each time, up to a day.
    pub repeat_minutes: u32,
}

impl Default for AlertRules {
    fn default() -> AlertRules {
        AlertRules {
            rejected: 20,
            disk_free_mb: 1024,
            outbox_lag_s: 900,
            apply_lag_s: 300,
            parked_h: 24,
            repeat_minutes: 60,
        }
    }
}

/// Whom to tell when something is wrong: a URL, or an address.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AlertEndpoint {
    /// Its name in the outbox.
    pub name: Spanned<String>,
    /// Where to, by HTTP.
    #[serde(default)]
    pub url: Option<Spanned<String>>,
    /// To whom, by e-mail.
    #[serde(default)]
    pub email: Option<Spanned<String>>,
    /// The body that the URL understands.
    #[serde(default)]
    pub format: AlertFormat,
    /// The key of the Standard Webhooks signature, by `env:` or `file:`.
    #[serde(default)]
    pub secret: Option<Spanned<String>>,
    /// Kinds of alert it wants; absent: all.
    #[serde(default = "all_kinds")]
    pub on: Vec<String>,
}

/// What an alert looks like over HTTP.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AlertFormat {
    /// Our own JSON.
    #[default]
    Json,
    /// `{"text": …}`, which Slack, Mattermost, Discord (`/slack`) and their like understand.
    Slack,
}

// ----------------------------------------------------------------------------------------------------------------------

/// One thing that is wrong with the configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// The line in the file; 0 where there is none.
    pub line: usize,
    /// What is wrong.
    pub what: String,
    /// What would be right.
    pub hint: String,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.line > 0 {
            write!(f, "line {}: ", self.line)?;
        }
        write!(f, "{} ({})", self.what, self.hint)
    }
}

/// A configuration with its text, so that faults can name lines.
#[derive(Debug, Clone)]
pub struct Loaded {
    /// What it says.
    pub config: Config,
    text: String,
}

impl Loaded {
    /// Made by a program: faults have no lines.
    pub fn from_config(config: Config) -> Loaded {
        Loaded { config, text: String::new() }
    }

    /// From a file.
    pub fn read(path: &Path) -> Result<Loaded, Vec<Fault>> {
        let text = std::fs::read_to_string(path).map_err(|e| {
            vec![Fault {
                line: 0,
                what: format!("cannot read {}: {e}", path.display()),
                hint: "name the file with --config, or make one with `postonce init stripe`".into(),
            }]
        })?;
        Loaded::parse(text)
    }

    /// From a text.
    pub fn parse(text: String) -> Result<Loaded, Vec<Fault>> {
        match toml_file::read(&text) {
            Ok(config) => Ok(Loaded { config, text }),
            Err(e) => {
                let line = e.span().map_or(0, |span| line_of(&text, span.start));
                Err(vec![Fault {
                    line,
                    what: without_the_value(e.message().trim()),
                    hint: "see `postonce init stripe` for a file that works".into(),
                }])
            }
        }
    }

    /// The line of a value, for messages.
    pub fn line<T>(&self, value: &Spanned<T>) -> usize {
        if self.text.is_empty() { 0 } else { line_of(&self.text, value.span().start) }
    }
}

/// A value in the wrong place may be a secret: the message says what kind of thing it is, not what it says.
fn without_the_value(message: &str) -> String {
    match (message.find("string \""), message.rfind("\", expected")) {
        (Some(from), Some(to)) if from < to => format!("{}text{}", &message[..from], &message[to + 1..]),
        _ => message.to_owned(),
    }
}

fn line_of(text: &str, at: usize) -> usize {
    text.as_bytes().iter().take(at).filter(|b| **b == b'\n').count() + 1
}

/// Reads a secret by `env:NAME` or `file:PATH`. The error says what is wrong with the place, never what was in it.
pub fn secret_from(place: &str) -> Result<String, String> {
    let text = match place.split_once(':') {
        Some(("env", name)) => {
            std::env::var(name).map_err(|_| format!("the environment variable {name} is not set"))?
        }
        Some(("file", path)) => std::fs::read_to_string(path).map_err(|e| format!("cannot read {path}: {e}"))?,
        _ => return Err("a secret is named by env:NAME or file:PATH, never written here".into()),
    };
    if text.trim().is_empty() {
        return Err(format!("{place} is empty"));
    }
    Ok(text)
}

impl SourceConfig {
    /// The provider's name.
    pub fn provider(&self) -> &str {
        self.provider.as_ref().map_or(self.name.get_ref(), |p| p.get_ref())
    }

    /// Its mode, when it is restricted to one.
    pub fn mode(&self) -> Result<Option<Mode>, String> {
        match &self.mode {
            None => Ok(None),
            Some(text) => match Mode::parse(text.get_ref()) {
                Some(mode) => Ok(Some(mode)),
                None => Err(format!("mode {:?} is not known: it is live or test", text.get_ref())),
            },
        }
    }
}
