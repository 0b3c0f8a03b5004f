//! What can be typed. The help texts are for people who see postonce for the first time.

use clap::{Args as ClapArgs, Parser, Subcommand};
use std::net::SocketAddr;
use std::path::PathBuf;

const AFTER: &str = "\
Begin with `postonce init stripe`, then `postonce serve`. `postonce COMMAND --help` shows more.
Listings work beside a running server. Exit codes: 0 fine, 1 found something, 2 wrong usage, 3 could not do it.";

/// Receives payment webhooks and posts each one to a ledger exactly once.
#[derive(Parser, Debug)]
#[command(name = "postonce", version, max_term_width = 100, disable_help_subcommand = true, after_help = AFTER)]
pub(crate) struct Args {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Subcommand, Debug)]
pub(crate) enum Command {
    /// Receive webhooks, post them, deliver messages, until it is told to stop.
    Serve(Serve),
    /// Write a commented configuration that works, for a provider.
    Init(Init),
    /// Look at the configuration, the file and the machine, and say what would go wrong.
    Doctor(Doctor),
    /// Check every promise of the file: balances, chain, claims. Exits 1 with a line for each offence.
    Check(Database),
    /// Send a signed event to a source, as the provider would.
    Send(Send),
    /// Show what postonce delivers: a receiver for development that verifies and prints.
    Listen(Listen),
    /// List what arrived and what became of it.
    Events(Events),
    /// List what waits for a person: dead, parked, in conflict.
    Dead(Database),
    /// List the journal: every entry with its postings.
    Ledger(Ledger),
    /// List the accounts with their balances.
    Balances(Balances),
    /// List the latest state of subscriptions, disputes and the like.
    Entities(Entities),
    /// Explain step by step why a delivery is taken or refused.
    Verify(super::verify::Verify),
    /// Show what a body means by a provider's rules.
    Interpret(super::interpret::Interpret),
    /// List the providers, show what is known of one, check a file of your own.
    Providers(super::providers::Providers),
    /// Send an event through the same path again, with its attempts reset.
    Replay(Replay),
    /// Take up now what was claimed and never finished, in a server that is not running.
    Sweep(Database),
    /// Follow what arrives and what becomes of it, live.
    Tail(Tail),
    /// Send each stored delivery on to another address, signed anew: for a developer's machine.
    Forward(Forward),
    /// Copy the database while it is in use; the copy is opened and checked.
    Backup(BackupArgs),
    /// Put a backup back; never overwrites.
    Restore(Restore),
    /// Remove a person's data: bytes of deliveries and names; money and hashes stay.
    Erase(Erase),
    /// Print the completions of a shell.
    Completions(Completions),
    /// Print the manual page.
    Man,
    /// Measure this machine: ratios against plain SQLite in one run.
    Bench(Bench),
    /// The proof on your own machine: a day of events under kills and duplicates. Exits 0 when nothing is lost or doubled.
    Torture(Torture),
    /// Compare the provider's own report with the ledger, both ways.
    #[command(subcommand)]
    Reconcile(Reconcile),
    /// What the comparisons found for a person, and what they decided.
    #[command(subcommand)]
    Discrepancies(Discrepancies),
    /// Bring in the history of a business that was there before, or an archive of retention, without sending receipts.
    Import(ImportHistory),
    /// The version, and that of SQLite.
    Version,
}

#[derive(ClapArgs, Debug, Clone)]
pub(crate) struct Database {
    /// The SQLite file.
    #[arg(long, env = "POSTONCE_DATABASE", default_value = "postonce.db", value_name = "FILE")]
    pub database: PathBuf,
    /// One JSON object a line.
    #[arg(long)]
    pub json: bool,
}

#[derive(ClapArgs, Debug, Clone)]
pub(crate) struct Serve {
    /// The configuration; without it, and without postonce.toml here, the options below are all there is.
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// The SQLite file.
    #[arg(long, env = "POSTONCE_DATABASE", value_name = "FILE")]
    pub database: Option<PathBuf>,
    /// Where providers reach it; port 0 takes a free one and prints it.
    #[arg(long, value_name = "ADDR")]
    pub listen: Option<SocketAddr>,
    /// Where the operator reaches it.
    #[arg(long, value_name = "ADDR")]
    pub operator: Option<SocketAddr>,
    /// A source: NAME=env:VAR or NAME=file:PATH with its signing secret; the provider is the source's name.
    #[arg(long = "source", value_name = "NAME=SECRET")]
    pub sources: Vec<String>,
    /// Deliver a signed message for each entry to this address.
    #[arg(long, value_name = "URL")]
    pub deliver: Option<String>,
    /// The key of those messages (whsec_…), as env:VAR or file:PATH.
    #[arg(long, value_name = "SECRET", requires = "deliver")]
    pub deliver_secret: Option<String>,
    /// Switch an app's file to WAL, for good.
    #[arg(long)]
    pub adopt: bool,
    /// Use a file on a network or shared file system, where WAL is not safe.
    #[arg(long)]
    pub any_file_system: bool,
    /// How the log on standard error looks: plain or json.
    #[arg(long, value_name = "FORMAT")]
    pub log_format: Option<crate::config::LogFormat>,
}

#[derive(ClapArgs, Debug)]
pub(crate) struct Doctor {
    #[command(flatten)]
    pub serve: Serve,
    /// Do not reach out: no providers, no mail server, no time comparison.
    #[arg(long)]
    pub offline: bool,
    /// One JSON object a line.
    #[arg(long)]
    pub json: bool,
    /// Only what is not well.
    #[arg(long)]
    pub quiet: bool,
}

#[derive(ClapArgs, Debug)]
pub(crate) struct Tail {
    #[command(flatten)]
    pub database: Database,
    /// Only this source.
    #[arg(long)]
    pub source: Option<String>,
    /// Only this type; a * at the end matches the rest.
    #[arg(long = "type", value_name = "TYPE")]
    pub kind: Option<String>,
    /// Only this state, several with commas: dead,parked,conflict.
    #[arg(long, value_delimiter = ',')]
    pub state: Vec<String>,
    /// Begin with the newest so many.
    #[arg(long, default_value_t = 10, value_name = "COUNT")]
    pub last: i64,
    /// End after so many lines.
    #[arg(long, value_name = "COUNT")]
    pub count: Option<u64>,
}

#[derive(ClapArgs, Debug)]
pub(crate) struct Forward {
    /// Where to: http://127.0.0.1:3000/webhooks/stripe.
    #[arg(long, value_name = "URL")]
    pub to: String,
    #[command(flatten)]
    pub database: Database,
    /// The configuration with the sources; postonce.toml here when it is not named.
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Only this source.
    #[arg(long)]
    pub source: Option<String>,
    /// Sign with this secret instead of the source's own, as env:VAR or file:PATH; needs --source.
    #[arg(long, value_name = "SECRET", requires = "source")]
    pub secret: Option<String>,
    /// Begin after this raw event instead of with the next one; 0 for all that are kept.
    #[arg(long, value_name = "RAW_EVENT")]
    pub after: Option<i64>,
    /// End after so many deliveries.
    #[arg(long, value_name = "COUNT")]
    pub count: Option<u64>,
}

#[derive(ClapArgs, Debug)]
pub(crate) struct BackupArgs {
    /// The file to write; a folder gets a file named by the time.
    #[arg(value_name = "DEST")]
    pub to: PathBuf,
    #[command(flatten)]
    pub database: Database,
    /// Say nothing but what went wrong.
    #[arg(long)]
    pub quiet: bool,
}

#[derive(ClapArgs, Debug)]
pub(crate) struct Restore {
    /// The backup.
    #[arg(value_name = "FILE")]
    pub from: PathBuf,
    #[command(flatten)]
    pub database: Database,
    /// Say nothing but what went wrong.
    #[arg(long)]
    pub quiet: bool,
}

#[derive(ClapArgs, Debug)]
pub(crate) struct Erase {
    #[command(flatten)]
    pub database: Database,
    /// The customer, as the provider names them.
    #[arg(long)]
    pub account: String,
    /// Only this tenant's.
    #[arg(long)]
    pub tenant: Option<String>,
    /// Also deliveries that mention this: an e-mail address, a name. May be given several times.
    #[arg(long = "mentions", value_name = "TEXT")]
    pub mentions: Vec<String>,
    /// Do it; without this it only says what would go.
    #[arg(long)]
    pub yes: bool,
    /// Who asks, for the audit log.
    #[arg(long, env = "USER", default_value = "cli")]
    pub by: String,
    /// Why, for the audit log; no personal data.
    #[arg(long)]
    pub note: Option<String>,
}

#[derive(ClapArgs, Debug)]
pub(crate) struct Completions {
    /// bash, zsh, fish, elvish or powershell; found out from $SHELL when it is not named.
    pub shell: Option<clap_complete::Shell>,
}

#[derive(ClapArgs, Debug)]
pub(crate) struct Init {
    /// The provider: stripe, paddle, lemonsqueezy, shopify, github, standard_webhooks, …
    #[arg(default_value = "stripe")]
    pub provider: String,
    /// Where to write it.
    #[arg(long, default_value = "postonce.toml", value_name = "FILE")]
    pub output: PathBuf,
    /// Overwrite a file that is there.
    #[arg(long)]
    pub force: bool,
}

#[derive(ClapArgs, Debug)]
pub(crate) struct Send {
    /// The whole address: http://127.0.0.1:8787/webhooks/stripe.
    pub url: String,
    /// The signing secret, as env:VAR or file:PATH.
    #[arg(long, value_name = "SECRET")]
    pub secret: String,
    /// The provider, when it is not the last part of the address.
    #[arg(long)]
    pub provider: Option<String>,
    /// The body to send; without it an invented payment of the provider.
    #[arg(long, value_name = "FILE")]
    pub body: Option<PathBuf>,
    /// A reference for the invented payment, so that it can be sent again.
    #[arg(long, default_value = "demo1")]
    pub reference: String,
    /// The amount of the invented payment in minor units.
    #[arg(long, default_value_t = 4999)]
    pub amount: i64,
    /// How many times to send it.
    #[arg(long, default_value_t = 1)]
    pub times: u32,
}

#[derive(ClapArgs, Debug)]
pub(crate) struct Listen {
    /// Where to listen; loopback only.
    #[arg(long, default_value = "127.0.0.1:8789", value_name = "ADDR")]
    pub listen: SocketAddr,
    /// The key (whsec_…) to verify with, as env:VAR or file:PATH.
    #[arg(long, value_name = "SECRET")]
    pub secret: Option<String>,
    /// One JSON object a line.
    #[arg(long)]
    pub json: bool,
}

#[derive(ClapArgs, Debug)]
pub(crate) struct Events {
    #[command(flatten)]
    pub database: Database,
    /// Only this state: received, claimed, done, duplicate, ignored, parked, conflict, dead.
    #[arg(long)]
    pub state: Option<String>,
    /// Only this type; a * at the end matches the rest.
    #[arg(long = "type", value_name = "TYPE")]
    pub kind: Option<String>,
    /// Only this event id or provider reference.
    #[arg(long, value_name = "ID")]
    pub id: Option<String>,
    /// The newest so many; 0 for all.
    #[arg(long, default_value_t = 0)]
    pub limit: u32,
    /// Instead: the types that nobody has a rule for, with how many came of each.
    #[arg(long, conflicts_with_all = ["state", "kind", "id", "limit"])]
    pub unknown_types: bool,
}

#[derive(ClapArgs, Debug)]
pub(crate) struct Ledger {
    #[command(flatten)]
    pub database: Database,
    /// Only this customer.
    #[arg(long)]
    pub account: Option<String>,
    /// Only this kind of movement.
    #[arg(long)]
    pub kind: Option<String>,
    /// Only this reference, and what belongs to it.
    #[arg(long)]
    pub reference: Option<String>,
    /// Only this tenant.
    #[arg(long)]
    pub tenant: Option<String>,
    /// At most so many.
    #[arg(long)]
    pub limit: Option<u32>,
}

#[derive(ClapArgs, Debug)]
pub(crate) struct Balances {
    #[command(flatten)]
    pub database: Database,
    /// Only this customer.
    #[arg(long)]
    pub account: Option<String>,
}

#[derive(ClapArgs, Debug)]
pub(crate) struct Entities {
    #[command(flatten)]
    pub database: Database,
    /// Only this kind: subscription, dispute, …
    #[arg(long)]
    pub kind: Option<String>,
    /// Only this id.
    #[arg(long)]
    pub id: Option<String>,
}

#[derive(ClapArgs, Debug)]
pub(crate) struct Replay {
    #[command(flatten)]
    pub database: Database,
    /// The raw events, by number.
    #[arg(value_name = "RAW_EVENT", required_unless_present = "all_dead")]
    pub ids: Vec<i64>,
    /// All that are dead.
    #[arg(long)]
    pub all_dead: bool,
}

#[derive(ClapArgs, Debug)]
pub(crate) struct Torture {
    /// How many events to make.
    #[arg(long, default_value_t = 2000)]
    pub events: u64,
    /// How often to kill the server, in all.
    #[arg(long, default_value_t = 20)]
    pub kills: u32,
    /// Repeat a run.
    #[arg(long)]
    pub seed: Option<u64>,
    /// Take the events of this database instead of invented ones.
    #[arg(long, value_name = "FILE")]
    pub from: Option<PathBuf>,
    /// Where to work, an empty folder that is kept; a temporary one otherwise.
    #[arg(long, value_name = "DIR")]
    pub dir: Option<PathBuf>,
}

#[derive(ClapArgs, Debug)]
pub(crate) struct Bench {
    /// Seconds for each figure.
    #[arg(long, default_value_t = 5)]
    pub seconds: u64,
    /// A short run that shows that it works.
    #[arg(long)]
    pub quick: bool,
    /// Only what has this word in its name, such as `end to end` or `append`.
    #[arg(long, value_name = "WORD")]
    pub only: Option<String>,
    /// Connections, one figure each.
    #[arg(long, value_delimiter = ',', default_values_t = [1, 16, 64, 256])]
    pub connections: Vec<usize>,
    /// Requests a second to offer, one figure each, instead of the usual ones.
    #[arg(long, value_delimiter = ',')]
    pub rate: Vec<u64>,
    /// How many of a hundred requests repeat an event.
    #[arg(long, value_name = "PERCENT", default_value_t = 0, value_parser = clap::value_parser!(u64).range(..=50))]
    pub duplicates: u64,
    /// All payments are of one customer.
    #[arg(long)]
    pub hot: bool,
    /// Retention and settlement run all the while; takes a file that --fill made.
    #[arg(long, requires = "file")]
    pub busy: bool,
    /// Load this server instead, in a process of its own: a source with the rules of Stripe, and loopback only.
    #[arg(long, value_name = "URL", conflicts_with_all = ["only", "file"])]
    pub url: Option<String>,
    /// The secret of that source, as env:VAR or file:PATH.
    #[arg(long, value_name = "SECRET", requires = "url")]
    pub secret: Option<String>,
    /// The file of that server: also waits until all is applied, and says how fast.
    #[arg(long, value_name = "FILE", requires = "url")]
    pub database: Option<PathBuf>,
    /// That server may be on another machine.
    #[arg(long, requires = "url")]
    pub anywhere: bool,
    /// Make a file with so many events in it, as of the last hundred days, and nothing else. Needs --file.
    #[arg(long, value_name = "EVENTS", requires = "file")]
    pub fill: Option<u64>,
    /// Work on this file, which --fill made, and leave it there.
    #[arg(long, value_name = "FILE")]
    pub file: Option<PathBuf>,
    /// Where to work; a temporary folder on the disk of the current one otherwise.
    #[arg(long, value_name = "DIR")]
    pub dir: Option<PathBuf>,
    /// One JSON object a line.
    #[arg(long)]
    pub json: bool,
}

#[derive(Subcommand, Debug)]
pub(crate) enum Reconcile {
    /// Print the normalised rows of a report file; what was skipped, and why, goes to standard error.
    Read(ReconcileRead),
    /// Compare: yesterday by the provider's API, another window, or a report file. Exits 1 when a person is needed.
    Run(ReconcileRun),
    /// Keep a report file without comparing it; the same file again changes nothing.
    Import(ReconcileFile),
    /// Show a run with what did not match, or list the newest runs.
    Show(ReconcileShow),
    /// Draw what was found day by day; a day without a run is a gap, not a zero.
    Trend(ReconcileTrend),
}

#[derive(ClapArgs, Debug, Clone)]
pub(crate) struct Configured {
    /// The configuration; postonce.toml here when it is not named.
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// The SQLite file; the configuration's when it is not named.
    #[arg(long, env = "POSTONCE_DATABASE", value_name = "FILE")]
    pub database: Option<PathBuf>,
    /// One JSON object a line.
    #[arg(long)]
    pub json: bool,
}

#[derive(ClapArgs, Debug)]
pub(crate) struct ReconcileRead {
    /// The report file.
    pub file: PathBuf,
    /// Whose report it is.
    #[arg(long)]
    pub provider: String,
    /// Which report it is, when its header should not decide.
    #[arg(long, value_name = "NAME")]
    pub report: Option<String>,
    /// The settled currency, where the file does not say it.
    #[arg(long, value_name = "CODE")]
    pub currency: Option<String>,
    /// The zone of its times, where it is not the provider's usual one.
    #[arg(long)]
    pub zone: Option<String>,
    /// A folder of provider files that override the built-in ones.
    #[arg(long, value_name = "DIR")]
    pub providers_dir: Option<PathBuf>,
    /// One JSON object a line.
    #[arg(long)]
    pub json: bool,
}

#[derive(ClapArgs, Debug)]
pub(crate) struct ReconcileRun {
    #[command(flatten)]
    pub configured: Configured,
    /// The source; not needed where there is only one.
    #[arg(long)]
    pub source: Option<String>,
    /// A day, FROM..TO in days (both included) or in RFC 3339 times; yesterday when it is not given.
    #[arg(long, value_name = "WINDOW")]
    pub window: Option<String>,
    /// A report file instead of the API.
    #[arg(long, value_name = "FILE")]
    pub report: Option<PathBuf>,
    /// Which list of the API, or which report the file is.
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,
    /// Look at everything that is open too, whatever its time.
    #[arg(long)]
    pub again: bool,
    /// Seconds to wait for what is received and for what is repaired.
    #[arg(long, default_value_t = 30, value_name = "SECONDS")]
    pub wait: u64,
}

#[derive(ClapArgs, Debug)]
pub(crate) struct ReconcileFile {
    #[command(flatten)]
    pub configured: Configured,
    /// The report file.
    pub file: PathBuf,
    /// The source; not needed where there is only one.
    #[arg(long)]
    pub source: Option<String>,
    /// Which report it is, when its header should not decide.
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,
    /// Its window; what its rows span when it is not given.
    #[arg(long, value_name = "WINDOW")]
    pub window: Option<String>,
}

#[derive(ClapArgs, Debug)]
pub(crate) struct ReconcileShow {
    #[command(flatten)]
    pub database: Database,
    /// The run; without it the newest are listed.
    #[arg(value_name = "RUN")]
    pub run: Option<i64>,
    /// At most so many items.
    #[arg(long, default_value_t = 200)]
    pub limit: u32,
}

#[derive(ClapArgs, Debug)]
pub(crate) struct ReconcileTrend {
    #[command(flatten)]
    pub database: Database,
    /// Only this tenant.
    #[arg(long)]
    pub tenant: Option<String>,
    /// Only this provider.
    #[arg(long)]
    pub provider: Option<String>,
    /// So many days.
    #[arg(long, default_value_t = 30)]
    pub days: u32,
    /// The last day; yesterday when it is not given.
    #[arg(long, value_name = "DAY")]
    pub to: Option<String>,
}

#[derive(ClapArgs, Debug)]
pub(crate) struct ImportHistory {
    #[command(flatten)]
    pub configured: Configured,
    /// The source; not needed where there is only one.
    #[arg(long)]
    pub source: Option<String>,
    /// The first day.
    #[arg(long, value_name = "DAY")]
    pub since: Option<String>,
    /// The last day; yesterday when it is not given.
    #[arg(long, value_name = "DAY", requires = "since")]
    pub until: Option<String>,
    /// A report file instead of the API.
    #[arg(long, value_name = "FILE")]
    pub file: Option<PathBuf>,
    /// Which list of the API, or which report the file is.
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,
    /// Instead: the archives that retention wrote (`[retain] archive`), or a folder of them; several are read in order.
    #[arg(long, value_name = "FILE", num_args = 1.., conflicts_with_all = ["source", "since", "until", "file", "name"])]
    pub archive: Vec<PathBuf>,
}

#[derive(Subcommand, Debug)]
pub(crate) enum Discrepancies {
    /// List those that are open, oldest first. Exits 1 when there is one.
    List(DiscrepanciesList),
    /// Show one with its log.
    Show(DiscrepanciesShow),
    /// Give one to somebody.
    Assign(DiscrepanciesAssign),
    /// Ask the provider again for what is missing here; what it gives goes through the same path as its webhook.
    Fetch(DiscrepanciesFetch),
    /// Close one, with how and why.
    Resolve(DiscrepanciesResolve),
}

#[derive(ClapArgs, Debug)]
pub(crate) struct DiscrepanciesList {
    #[command(flatten)]
    pub database: Database,
    /// Resolved ones too.
    #[arg(long)]
    pub all: bool,
    /// Only this tenant.
    #[arg(long)]
    pub tenant: Option<String>,
    /// Only this provider.
    #[arg(long)]
    pub provider: Option<String>,
    /// Only this class: missing_ours, missing_theirs, amount_differs, …
    #[arg(long)]
    pub class: Option<String>,
}

#[derive(ClapArgs, Debug)]
pub(crate) struct DiscrepanciesShow {
    #[command(flatten)]
    pub database: Database,
    /// Its number.
    pub id: i64,
}

#[derive(ClapArgs, Debug)]
pub(crate) struct DiscrepanciesAssign {
    #[command(flatten)]
    pub database: Database,
    /// Its number.
    pub id: i64,
    /// Who looks at it.
    pub to: String,
    /// Who says so; $USER when it is not given.
    #[arg(long, value_name = "NAME")]
    pub by: Option<String>,
    /// Why.
    #[arg(long)]
    pub note: Option<String>,
}

#[derive(ClapArgs, Debug)]
pub(crate) struct DiscrepanciesFetch {
    #[command(flatten)]
    pub configured: Configured,
    /// Its number.
    pub id: i64,
    /// Why now.
    #[arg(long)]
    pub note: String,
    /// Who says so; $USER when it is not given.
    #[arg(long, value_name = "NAME")]
    pub by: Option<String>,
    /// Seconds to wait for what was fetched to come through.
    #[arg(long, default_value_t = 30, value_name = "SECONDS")]
    pub wait: u64,
}

#[derive(ClapArgs, Debug)]
pub(crate) struct DiscrepanciesResolve {
    #[command(flatten)]
    pub database: Database,
    /// Its number.
    pub id: i64,
    /// How: posted_correction, provider_error, accepted, duplicate_of.
    #[arg(long = "as", value_name = "HOW")]
    pub resolution: String,
    /// What was found out.
    #[arg(long)]
    pub note: String,
    /// Who says so; $USER when it is not given.
    #[arg(long, value_name = "NAME")]
    pub by: Option<String>,
}
