//! `postonce serve`: the server, until SIGTERM or SIGINT.

use super::args::Serve;
use super::{Done, Outcome};
use crate::config::{Config, Loaded};
use crate::error::{Error, Result};
use crate::server::{Server, default_config_path};
use crate::store::Options;
use signal_hook::consts::{SIGINT, SIGTERM, SIGXFSZ};
use signal_hook::iterator::Signals;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

pub(super) fn run(args: &Serve) -> Done {
    let loaded = load(args)?;
    let log = &loaded.config.log;
    super::log_lines::init(args.log_format.unwrap_or(log.format), log.events);
    // A limit on file sizes is met like a full disk: the write fails, and the process lives.
    let met = Arc::new(AtomicBool::new(false));
    signal_hook::flag::register(SIGXFSZ, met).map_err(|e| Error::Unavailable(e.to_string()))?;
    let mut signals = Signals::new([SIGTERM, SIGINT]).map_err(|e| Error::Unavailable(e.to_string()))?;
    let server = Server::start(&loaded, &options(args, &loaded.config))?;
    // Scripts read these two lines for the real ports.
    println!("listening on http://{}", server.public_addr());
    println!("operator on http://{}", server.operator_addr());
    for source in &loaded.config.sources {
        println!(
            "source {}: http://{}/webhooks/{}",
            source.name.get_ref(),
            server.public_addr(),
            source.name.get_ref()
        );
    }
    log::info!(
        "postonce {} with SQLite {} on {}",
        env!("CARGO_PKG_VERSION"),
        rusqlite::version(),
        loaded.config.database.display()
    );
    if loaded.config.sources.is_empty() {
        log::warn!("there is no source: nothing can be received; see --source or `postonce init`");
    }
    let signal = signals.forever().next();
    log::info!("stopping (signal {})", signal.unwrap_or_default());
    // A stop that hangs must not leave the machine waiting: whatever is not done by then is recovered at the next start.
    std::thread::spawn(|| {
        std::thread::sleep(crate::server::STOP_WITHIN);
        log::error!("the stop took too long; what is left is taken up at the next start");
        std::process::exit(3);
    });
    let began = Instant::now();
    server.stop();
    log::info!("stopped in {} ms", began.elapsed().as_millis());
    Ok(Outcome::Fine)
}

pub(super) fn options(args: &Serve, config: &Config) -> Options {
    Options { adopt: args.adopt, any_file_system: args.any_file_system || config.any_file_system, ..Options::default() }
}

/// The configuration: the file that is named, or postonce.toml here when nothing else is said, and what the command
/// line adds to it.
pub(super) fn load(args: &Serve) -> Result<Loaded> {
    let named = args.config.clone().or_else(|| {
        (args.sources.is_empty() && default_config_path().exists()).then(|| default_config_path().to_owned())
    });
    let mut text = match &named {
        Some(path) => std::fs::read_to_string(path).map_err(|e| {
            Error::refused(format!("cannot read {}: {e}", path.display()), "make one with `postonce init stripe`")
        })?,
        None => String::new(),
    };
    // What the command line adds is the same configuration, written after the file.
    for source in &args.sources {
        let Some((name, secret)) = source.split_once('=') else {
            return Err(Error::refused(
                "--source is NAME=SECRET, and this one has no `=`",
                "--source stripe=env:STRIPE_SECRET",
            ));
        };
        text.push_str(&format!("\n[[source]]\nname = {name:?}\nsecrets = [{secret:?}]\n"));
    }
    if let Some(url) = &args.deliver {
        text.push_str(&format!("\n[[deliver]]\nname = \"app\"\nurl = {url:?}\n"));
        if let Some(secret) = &args.deliver_secret {
            text.push_str(&format!("secret = {secret:?}\n"));
        }
    }
    let mut loaded = Loaded::parse(text).map_err(|faults| {
        let list: Vec<String> = faults.iter().map(ToString::to_string).collect();
        let file = named.map_or("the command line".to_owned(), |path| path.display().to_string());
        Error::refused(format!("{file}: {}", list.join("; ")), "`postonce init stripe` writes a file that works")
    })?;
    let config = &mut loaded.config;
    if let Some(database) = &args.database {
        config.database.clone_from(database);
    }
    config.listen = args.listen.unwrap_or(config.listen);
    config.operator.listen = args.operator.unwrap_or(config.operator.listen);
    if !config.operator.listen.ip().is_loopback() && config.operator.token.is_none() {
        return Err(Error::refused(
            format!("the operator's listener on {} is open to others and has no token", config.operator.listen),
            "set [operator] token = \"env:NAME\", or listen on 127.0.0.1",
        ));
    }
    Ok(loaded)
}
