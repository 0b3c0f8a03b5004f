//! `postonce doctor`: what would go wrong, before it does. A line for each thing looked at: ok, warn or fail, and what
//! to do. Changes nothing; reaches out only to what the configuration names.

use super::args::Doctor;
use super::{Done, Outcome, output, serve};
use crate::clock;
use crate::config::{Config, Loaded};
use crate::error::Result;
use crate::steps::mail::Mailer;
use crate::store::{self, SQLITE_OLDEST, backup, neighbours};
use std::io::IsTerminal as _;
use std::path::Path;
use std::time::Duration;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Ok,
    Warn,
    Fail,
}

struct Findings<'a> {
    args: &'a Doctor,
    colours: bool,
    worst: Verdict,
    broken: Result<()>,
}

impl Findings<'_> {
    fn say(&mut self, verdict: Verdict, about: &str, what: impl Into<String>, hint: &str) {
        if verdict == Verdict::Fail || self.worst == Verdict::Ok {
            self.worst = verdict;
        }
        if self.args.quiet && verdict == Verdict::Ok {
            return;
        }
        let (word, colour) = match verdict {
            Verdict::Ok => ("ok", "32"),
            Verdict::Warn => ("warn", "33"),
            Verdict::Fail => ("fail", "31"),
        };
        let what = what.into();
        let mut out = std::io::stdout().lock();
        let said = if self.args.json {
            let hint = (verdict != Verdict::Ok && !hint.is_empty()).then_some(hint);
            output::json_line(
                &mut out,
                &serde_json::json!({ "verdict": word, "about": about, "what": what, "try": hint }),
            )
        } else {
            let word = format!("{word:4}");
            let word = if self.colours { format!("\x1b[{colour}m{word}\x1b[0m") } else { word };
            let mut text = format!("{word}  {about}: {what}");
            if verdict != Verdict::Ok && !hint.is_empty() {
                text.push_str(&format!("\n      try: {hint}"));
            }
            output::line(&mut out, &text)
        };
        if self.broken.is_ok() {
            self.broken = said;
        }
    }

    fn ok(&mut self, about: &str, what: impl Into<String>) {
        self.say(Verdict::Ok, about, what, "");
    }
}

pub(super) fn run(args: &Doctor) -> Done {
    let colours = std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|v| v.is_empty());
    let mut findings = Findings { args, colours, worst: Verdict::Ok, broken: Ok(()) };
    let f = &mut findings;
    match rusqlite::version_number() >= SQLITE_OLDEST.0 {
        true => f.ok("SQLite", format!("{} (needs {})", rusqlite::version(), SQLITE_OLDEST.1)),
        false => f.say(Verdict::Fail, "SQLite", rusqlite::version(), "build with the bundled SQLite"),
    }
    match serve::load(&args.serve) {
        Err(e) => f.say(Verdict::Fail, "configuration", e.to_string(), e.hint().unwrap_or_default()),
        Ok(loaded) => {
            configuration(f, &loaded);
            database(f, &loaded.config);
            backups(f, &loaded.config);
            ports(f, &loaded.config);
            if !args.offline {
                reach(f, &loaded.config);
            }
        }
    }
    this_clock(f);
    findings.broken?;
    Ok(if findings.worst == Verdict::Fail { Outcome::Found } else { Outcome::Fine })
}

fn configuration(f: &mut Findings, loaded: &Loaded) {
    match crate::engine::build(loaded) {
        Ok((sources, endpoints)) => {
            f.ok("configuration", format!("{} source(s), {} endpoint(s)", sources.len(), endpoints.len()));
            if sources.is_empty() {
                f.say(Verdict::Warn, "configuration", "no source: nothing can be received", "postonce init stripe");
            }
            for source in &sources {
                let covers = source.verifier.covers().as_str();
                let what = format!("{} signs the {covers}", source.recipe.title);
                let safe = covers == "body" || source.can_confirm() || source.trusts_unsigned_fields;
                let verdict = if safe { Verdict::Ok } else { Verdict::Fail };
                f.say(verdict, &format!("source {}", source.name), what, source.what_confirms());
            }
            if loaded.config.alert_endpoints.is_empty() {
                f.say(
                    Verdict::Warn,
                    "alerts",
                    "nobody is told when something is wrong",
                    "[[alert]] name = \"ops\", url = \"…\"",
                );
            }
        }
        Err(faults) => faults.iter().for_each(|fault| {
            f.say(Verdict::Fail, "configuration", fault.to_string(), "mend it there; nothing starts before")
        }),
    }
    let now = clock::wall();
    for source in &loaded.config.sources {
        for secret in &source.secrets {
            let crate::config::SecretConfig::Named { name, ends: Some(ends), .. } = secret.get_ref() else { continue };
            let Ok(at) = ends.parse::<jiff::Timestamp>() else { continue };
            let days = (at.as_millisecond() - now).div_euclid(86_400_000);
            let about = format!("secret {name} of source {}", source.name.get_ref());
            match days {
                i64::MIN..0 => {
                    f.say(Verdict::Warn, &about, format!("it ended on {ends}"), "take it out of the configuration")
                }
                0..14 => f.say(Verdict::Warn, &about, format!("it ends in {days} days"), "is the next one in place?"),
                _ => f.ok(&about, format!("it ends in {days} days")),
            }
        }
    }
}

fn database(f: &mut Findings, config: &Config) {
    let path = &config.database;
    let about = format!("database {}", path.display());
    let folder = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    if !folder.is_dir() {
        f.say(Verdict::Fail, &about, "its folder does not exist", "make it, owned by the user that runs postonce");
        return;
    }
    match rustix::fs::access(folder, rustix::fs::Access::WRITE_OK) {
        Ok(()) => {}
        Err(e) => f.say(
            Verdict::Fail,
            &about,
            format!("its folder cannot be written: {e}"),
            "chown it to the user that runs postonce",
        ),
    }
    match store::file_system(path) {
        None => f.ok(&about, "on a local file system"),
        Some(name) => {
            let bad = if config.any_file_system { Verdict::Warn } else { Verdict::Fail };
            f.say(
                bad,
                &about,
                format!("on {name}, where SQLite's WAL can corrupt the file"),
                "move it to a local disk",
            );
        }
    }
    if let Some(free) = backup::free_bytes(path).map(|bytes| bytes >> 20) {
        let (warn, fail) = (config.alerts.disk_free_mb, config.alerts.disk_free_mb / 4);
        let verdict = if free < fail {
            Verdict::Fail
        } else if free < warn {
            Verdict::Warn
        } else {
            Verdict::Ok
        };
        f.say(verdict, &about, format!("{free} MiB are free on its disk"), "free some space");
    }
    if !path.exists() {
        f.ok(&about, "will be made at the first start");
        return;
    }
    match store::open_for_reading(path) {
        Err(e) => f.say(Verdict::Fail, &about, e.to_string(), e.hint().unwrap_or_default()),
        Ok(conn) => {
            match backup::torn(path, &conn) {
                Ok(None) => f.ok(&about, "opens"),
                Ok(Some(what)) => f.say(Verdict::Fail, &about, what, "restore a backup"),
                Err(e) => f.say(Verdict::Fail, &about, e.to_string(), e.hint().unwrap_or_default()),
            }
            match neighbours::with_the_fault(path) {
                Ok(found) if found.is_empty() => {}
                Ok(found) => found.iter().for_each(|one| {
                    let what =
                        format!("{} writes it with SQLite {}, which can lose a committed write", one.who, one.sqlite);
                    let hint =
                        "update that program's SQLite to 3.51.3 or newer (3.50.7, 3.44.6): https://sqlite.org/wal.html";
                    f.say(Verdict::Warn, &about, what, hint);
                }),
                Err(e) => f.say(Verdict::Warn, &about, format!("who else writes it cannot be seen: {e}"), ""),
            }
            let wal = std::fs::metadata(store::beside(path, "-wal")).map_or(0, |m| m.len()) >> 20;
            if wal > 256 {
                let hint = "a reader holds an old snapshot: see who has the file open (`fuser FILE`)";
                f.say(Verdict::Warn, &about, format!("its log has {wal} MiB"), hint);
            }
            match backup::last_backup_at(&conn) {
                Ok(Some(at)) => {
                    let days = (clock::wall() - at) / 86_400_000;
                    let verdict = if days > 2 { Verdict::Warn } else { Verdict::Ok };
                    f.say(
                        verdict,
                        "backup",
                        format!("the last one was made on {}", clock::rfc3339(at)),
                        "postonce backup FILE",
                    );
                }
                _ if config.backup.is_some() => {
                    f.ok("backup", "none yet; the server makes the first one when it starts")
                }
                _ => f.say(
                    Verdict::Warn,
                    "backup",
                    "none was ever made",
                    "[backup] dir = \"…\", or postonce backup FILE from cron",
                ),
            }
        }
    }
}

fn backups(f: &mut Findings, config: &Config) {
    let Some(rules) = &config.backup else { return };
    let about = format!("backup folder {}", rules.dir.display());
    match std::fs::metadata(&rules.dir) {
        Err(_) => f.ok(&about, "will be made"),
        Ok(meta) if !meta.is_dir() => f.say(Verdict::Fail, &about, "is no folder", "name another in [backup] dir"),
        Ok(_) => {
            let size = std::fs::metadata(&config.database).map_or(0, |m| m.len());
            let free = backup::free_bytes(&rules.dir.join("x")).unwrap_or(u64::MAX);
            let verdict = if free < size {
                Verdict::Fail
            } else if free / 4 < size {
                Verdict::Warn
            } else {
                Verdict::Ok
            };
            f.say(
                verdict,
                &about,
                format!("{} MiB free, a copy needs {}", free >> 20, size >> 20),
                "another disk, or keep fewer",
            );
        }
    }
}

fn ports(f: &mut Findings, config: &Config) {
    for (address, name) in [(config.listen, "listen"), (config.operator.listen, "operator")] {
        let about = format!("address {address} ({name})");
        match std::net::TcpListener::bind(address) {
            Ok(_) => f.ok(&about, "free"),
            Err(e) if e.kind() == std::io::ErrorKind::AddrInUse => {
                let hint = "by postonce itself, or another program: ss -ltnp";
                f.say(Verdict::Warn, &about, "is in use", hint);
            }
            Err(e) => f.say(Verdict::Fail, &about, e.to_string(), "use another address"),
        }
    }
    if !config.listen.ip().is_loopback() && config.trusted_proxies.is_empty() {
        let hint = "put a TLS proxy in front, listen on 127.0.0.1 and name the proxy in trusted_proxies";
        f.say(Verdict::Warn, "listen", "providers reach it without TLS", hint);
    }
}

fn reach(f: &mut Findings, config: &Config) {
    for source in &config.sources {
        let Some(base) = &source.api_base else { continue };
        let agent = crate::steps::deliver::agent();
        let about = format!("API of source {} at {base}", source.name.get_ref());
        match agent.get(base).call() {
            Ok(response) => {
                f.ok(&about, format!("answers ({})", response.status().as_u16()));
                compare_clocks(f, &about, response.headers().get("date").and_then(|v| v.to_str().ok()));
            }
            Err(e) => f.say(Verdict::Fail, &about, e.to_string(), "see api_base, DNS and the firewall"),
        }
    }
    if let Some(smtp) = &config.smtp {
        let about = format!("mail server {}", smtp.host.get_ref());
        match Mailer::new(smtp).and_then(|mailer| mailer.test()) {
            Ok(()) => f.ok(&about, "lets us in"),
            Err(what) => f.say(Verdict::Fail, &about, what, "see host, port, security, user and password in [smtp]"),
        }
    }
}

/// A wrong clock refuses genuine deliveries as too old: providers sign the time.
fn compare_clocks(f: &mut Findings, about: &str, date: Option<&str>) {
    let Some(theirs) = date.and_then(|text| jiff::fmt::rfc2822::parse(text).ok()) else { return };
    let apart = Duration::from_millis((theirs.timestamp().as_millisecond() - clock::wall()).unsigned_abs()).as_secs();
    let verdict = if apart > 60 {
        Verdict::Fail
    } else if apart > 5 {
        Verdict::Warn
    } else {
        Verdict::Ok
    };
    f.say(verdict, "clock", format!("{apart} s apart from {about}"), "set it by NTP: timedatectl set-ntp true");
}

fn this_clock(f: &mut Findings) {
    let now = clock::rfc3339(clock::wall());
    match now.get(..4).and_then(|year| year.parse::<u32>().ok()) {
        Some(2025..2100) => f.ok("clock", now),
        _ => f.say(Verdict::Fail, "clock", now, "set it by NTP: timedatectl set-ntp true"),
    }
}
