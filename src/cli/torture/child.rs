//! The server under torture: this same executable as a child process, started, killed, and stopped.
//!
//! Kills only what it started, and leaves no child behind.

use super::day::Day;
use super::receiver::SECRET;
use crate::error::{Error, Result};
use rustix::process::{Pid, Signal, kill_process};
use std::fs::{self, OpenOptions};
use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// How the address is written in what URL-signing providers sign.
pub(super) const PUBLIC_URL: &str = "http://torture.invalid";
/// A stop may take ten seconds; more is a fault.
const STOP_WITHIN: Duration = Duration::from_secs(10);

pub(super) struct Server {
    child: Child,
    pub address: SocketAddr,
    folder: PathBuf,
}

/// The database of a round.
pub(super) fn database(folder: &Path) -> PathBuf {
    folder.join("postonce.db")
}

/// Writes the configuration of a round.
pub(super) fn configure(folder: &Path, day: &Day, deliver: &str) -> Result<()> {
    let mut text = format!(
        "database = {:?}\nlisten = \"127.0.0.1:0\"\npublic_url = {PUBLIC_URL:?}\n[operator]\nlisten = \"127.0.0.1:0\"\n",
        database(folder).display().to_string()
    );
    for (at, source) in day.sources.iter().enumerate() {
        text.push_str(&format!(
            "[[source]]\nname = {:?}\nprovider = {:?}\ntenant = {:?}\nsecrets = [\"env:TORTURE_{at}\"]\n",
            source.name, source.provider, source.tenant
        ));
    }
    text.push_str(&format!("[[deliver]]\nname = \"app\"\nurl = {deliver:?}\nsecret = \"env:TORTURE_APP\"\n"));
    let made = fs::create_dir_all(folder).and_then(|()| fs::write(folder.join("torture.toml"), text));
    made.map_err(|e| Error::refused(format!("cannot write in {}: {e}", folder.display()), "--dir FOLDER"))
}

impl Server {
    /// Starts it on a free port and waits until it says which.
    pub fn start(folder: &Path, day: &Day) -> Result<Server> {
        let failed = |what: String| {
            Error::refused(format!("the server did not start: {what}"), format!("see {}", log(folder).display()))
        };
        let output =
            OpenOptions::new().create(true).append(true).open(log(folder)).map_err(|e| failed(e.to_string()))?;
        let program = std::env::current_exe().map_err(|e| failed(e.to_string()))?;
        let mut command = Command::new(program);
        command.arg("serve").arg("--config").arg(folder.join("torture.toml")).env("TORTURE_APP", SECRET);
        command.env_remove("POSTONCE_DATABASE").stdin(Stdio::null()).stdout(Stdio::piped()).stderr(output);
        for (at, source) in day.sources.iter().enumerate() {
            command.env(format!("TORTURE_{at}"), source.secret);
        }
        let mut child = command.spawn().map_err(|e| failed(e.to_string()))?;
        let mut lines = BufReader::new(child.stdout.take().expect("it is piped")).lines();
        let first = lines.next().and_then(|line| line.ok()).unwrap_or_default();
        let Some(address) = first.strip_prefix("listening on http://").and_then(|a| a.parse().ok()) else {
            let _ = child.kill();
            let _ = child.wait();
            return Err(failed(format!("it said {first:?}")));
        };
        // What else it prints must go somewhere, or it would block.
        std::thread::spawn(move || lines.for_each(drop));
        Ok(Server { child, address, folder: folder.to_owned() })
    }

    /// SIGKILL, in the middle of whatever it does.
    pub fn kill(mut self) -> Result<()> {
        self.alive()?;
        let gone = self.child.kill().and_then(|()| self.child.wait());
        gone.map(|_| ())
            .map_err(|e| Error::refused(format!("the server could not be killed: {e}"), "look at it with `ps`"))
    }

    /// It must not have ended by itself.
    pub fn alive(&mut self) -> Result<()> {
        match self.child.try_wait() {
            Ok(None) => Ok(()),
            ended => Err(Error::refused(
                format!("the server ended by itself: {ended:?}"),
                format!("see {}", log(&self.folder).display()),
            )),
        }
    }

    /// SIGTERM; what is wrong with how it ended, if anything is.
    pub fn stop(mut self) -> Result<Option<String>> {
        self.alive()?;
        let pid = Pid::from_child(&self.child);
        kill_process(pid, Signal::TERM).map_err(|e| Error::Unavailable(format!("SIGTERM could not be sent: {e}")))?;
        let began = Instant::now();
        while began.elapsed() < STOP_WITHIN {
            if let Ok(Some(status)) = self.child.try_wait() {
                return Ok((!status.success()).then(|| format!("the server ended with {status} after SIGTERM")));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(Some(format!("the server did not end within {STOP_WITHIN:?} of SIGTERM")))
    }
}

fn log(folder: &Path) -> PathBuf {
    folder.join("server.log")
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
