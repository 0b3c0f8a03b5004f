//! The real binary on free ports in a folder: how it is started, spoken to, killed, started again, and asked what it did.

use super::app::{APP_SECRET, App};
use super::wire::{Answer, Wire, sign};
use super::{Folder, SECRET, eventually, in_time};
use rusqlite::{Connection, OpenFlags};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// How a server is started.
#[derive(Clone, Default)]
pub struct Setup {
    config: Option<String>,
    args: Vec<String>,
    env: BTreeMap<String, String>,
    files: BTreeMap<String, String>,
}

impl Setup {
    /// One source `stripe`, nobody to tell.
    pub fn new() -> Setup {
        Setup::default().source("stripe", SECRET)
    }

    /// Nothing but a configuration file, without `database` and addresses. Secrets are set by [`Setup::env`].
    pub fn config(text: &str) -> Setup {
        Setup { config: Some(text.to_owned()), ..Setup::default() }
    }

    /// One more source, whose provider is its name.
    pub fn source(self, name: &str, secret: &str) -> Setup {
        let variable = format!("SECRET_{}", name.to_uppercase());
        self.arg("--source").arg(&format!("{name}=env:{variable}")).env(&variable, secret)
    }

    /// Tell this app.
    pub fn deliver(self, app: &App) -> Setup {
        self.arg("--deliver")
            .arg(&app.url())
            .arg("--deliver-secret")
            .arg("env:APP_SECRET")
            .env("APP_SECRET", APP_SECRET)
    }

    /// A file in its folder, where it starts.
    pub fn file(mut self, name: &str, text: &str) -> Setup {
        self.files.insert(name.into(), text.into());
        self
    }

    /// An environment variable.
    pub fn env(mut self, name: &str, value: &str) -> Setup {
        self.env.insert(name.into(), value.into());
        self
    }

    /// An argument of `serve`.
    pub fn arg(mut self, arg: &str) -> Setup {
        self.args.push(arg.into());
        self
    }

    /// Abort at a crash point; see `fault.rs`.
    pub fn crash(self, at: &str) -> Setup {
        self.env("POSTONCE_CRASH", at)
    }

    /// Pause at a crash point.
    pub fn delay(self, at: &str, ms: u32) -> Setup {
        self.env("POSTONCE_DELAY", &format!("{at}:{ms}"))
    }

    /// Wait at a crash point until [`Server::release`].
    pub fn hold(self, at: &str) -> Setup {
        self.env("POSTONCE_HOLD", &format!("{at}:released"))
    }

    /// Starts it in a new folder.
    pub fn start(self) -> Server {
        Server::start_in(Arc::new(Folder::new()), self)
    }

    /// Starts it and gives what it said when it refused to.
    pub fn refused(self) -> String {
        self.refused_in(&Folder::new())
    }

    /// The same in a folder that may be in use.
    pub fn refused_in(self, folder: &Folder) -> String {
        let log = File::create(folder.join("refused.log")).unwrap();
        let mut command = self.command(folder);
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).spawn().unwrap();
        let ended = in_time(|| child.try_wait().unwrap());
        let _ = child.kill(); // one that serves instead never ends by itself
        let _ = child.wait();
        let said = fs::read_to_string(folder.join("refused.log")).unwrap();
        assert!(ended.is_some_and(|status| !status.success()), "it should have refused: {said}");
        said
    }

    fn command(&self, folder: &Folder) -> Command {
        let mut command = postonce();
        command.current_dir(&folder.0).args(["serve", "--database"]).arg(folder.join("postonce.db"));
        command.args(["--listen", "127.0.0.1:0", "--operator", "127.0.0.1:0"]).args(&self.args).envs(&self.env);
        for (name, text) in &self.files {
            fs::create_dir_all(folder.join(name).parent().unwrap()).unwrap();
            fs::write(folder.join(name), text).unwrap();
        }
        if let Some(text) = &self.config {
            fs::write(folder.join("test.toml"), text).unwrap();
            command.arg("--config").arg(folder.join("test.toml"));
        }
        command
    }
}

/// The binary, with nothing of ours in its environment.
pub fn postonce() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_postonce"));
    command
        .env_remove("POSTONCE_CRASH")
        .env_remove("POSTONCE_DELAY")
        .env_remove("POSTONCE_HOLD")
        .env_remove("POSTONCE_DATABASE")
        .env_remove("RUST_LOG");
    command
}

/// A running server, or one that ended and whose folder is still there.
pub struct Server {
    /// Where its files are.
    pub folder: Arc<Folder>,
    /// How it was started.
    pub setup: Setup,
    /// Where providers reach it.
    pub public: SocketAddr,
    /// Where the operator reaches it.
    pub operator: SocketAddr,
    command: String,
    child: Mutex<Child>,
}

impl Server {
    /// One source `stripe`, nobody to tell, in a new folder.
    pub fn start() -> Server {
        Setup::new().start()
    }

    /// Starts in a folder that may hold the database of the one before.
    pub fn start_in(folder: Arc<Folder>, setup: Setup) -> Server {
        let log = folder.join("server.log");
        let command = format!("{:?}", setup.command(&folder));
        Server::try_start_in(folder, setup)
            .unwrap_or_else(|| panic!("it did not start: {command}\n{}", fs::read_to_string(log).unwrap_or_default()))
    }

    /// The same for one that may die while it starts.
    pub fn try_start_in(folder: Arc<Folder>, setup: Setup) -> Option<Server> {
        let log = OpenOptions::new().create(true).append(true).open(folder.join("server.log")).unwrap();
        let mut command = setup.command(&folder);
        let text = format!("{command:?}");
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(log).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut address = |begin: &str| -> Option<SocketAddr> {
            let line = lines.next()?.ok()?;
            line.strip_prefix(begin)?.strip_prefix("http://")?.parse().ok()
        };
        let (public, operator) = (address("listening on "), address("operator on "));
        let (Some(public), Some(operator)) = (public, operator) else {
            let _ = child.kill();
            let _ = child.wait();
            return None;
        };
        std::thread::spawn(move || lines.for_each(drop));
        Some(Server { folder, setup, public, operator, command: text, child: Mutex::new(child) })
    }

    /// Starts another in the same folder, the same way. The old one must have ended.
    pub fn restart(&self) -> Server {
        self.restart_with(self.setup.clone())
    }

    /// Starts another in the same folder.
    pub fn restart_with(&self, setup: Setup) -> Server {
        assert!(self.ended().is_some(), "the one before still runs");
        Server::start_in(self.folder.clone(), setup)
    }

    /// The database.
    pub fn database(&self) -> PathBuf {
        self.folder.join("postonce.db")
    }

    /// The process id.
    pub fn pid(&self) -> u32 {
        self.child.lock().unwrap().id()
    }

    /// How it ended, if it did.
    pub fn ended(&self) -> Option<ExitStatus> {
        self.child.lock().unwrap().try_wait().unwrap()
    }

    /// What is held at a crash point goes on.
    pub fn release(&self) {
        fs::write(self.folder.join("released"), "").unwrap();
    }

    /// SIGKILL.
    pub fn kill(&self) {
        let mut child = self.child.lock().unwrap();
        let _ = child.kill();
        child.wait().unwrap();
    }

    /// Sends a signal by its name, as `kill` knows it.
    pub fn signal(&self, name: &str) {
        let pid = self.pid().to_string();
        assert!(Command::new("kill").args(["-s", name, &pid]).status().unwrap().success());
    }

    /// SIGTERM; it ends within ten seconds with exit code 0 and leaves one file that is whole.
    pub fn stop(&self) {
        let began = Instant::now();
        self.signal("TERM");
        let status = eventually("the server ends after SIGTERM", || self.ended());
        assert!(status.success(), "it ended with {status}");
        assert!(began.elapsed() < Duration::from_secs(10), "it took {:?} to stop", began.elapsed());
        assert!(!self.folder.join("postonce.db-wal").exists(), "a WAL is left after a clean stop");
    }

    /// Waits until it dies by itself, and asserts that it did so at this crash point.
    pub fn wait_for_crash(&self, point: &str) {
        let status = eventually("the server dies at its crash point", || self.ended());
        assert!(!status.success(), "it ended well");
        let log = self.log();
        let last = log.lines().rfind(|line| !line.is_empty()).unwrap_or_default();
        assert_eq!(last, format!("crashed at {point}"), "it died elsewhere");
    }

    /// All it has written to standard error, of all processes in this folder.
    pub fn log(&self) -> String {
        let mut text = Vec::new();
        File::open(self.folder.join("server.log")).and_then(|mut f| f.read_to_end(&mut text)).unwrap();
        String::from_utf8_lossy(&text).into_owned()
    }

    /// Runs a command on the database: `server.run(&["ledger", "--json"])` gives its exit code and output.
    pub fn run(&self, args: &[&str]) -> (i32, String) {
        let mut command = postonce();
        let output =
            command.current_dir(&self.folder.0).args(args).arg("--database").arg(self.database()).output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
        (output.status.code().unwrap_or(-1), text.into_owned())
    }

    /// The objects that a listing prints.
    pub fn list(&self, args: &[&str]) -> Vec<Value> {
        let mut all = args.to_vec();
        all.push("--json");
        let (_, text) = self.run(&all);
        text.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|e| panic!("{line}: {e}"))).collect()
    }

    /// `postonce check` finds nothing.
    pub fn check(&self) {
        let (code, text) = self.run(&["check"]);
        assert_eq!(code, 0, "check: {text}");
    }

    /// The journal as `kind reference account amount currency`, sorted.
    pub fn ledger(&self) -> Vec<String> {
        let text = |value: &Value| value.as_str().unwrap_or("-").to_owned();
        let mut lines: Vec<String> = self
            .list(&["ledger"])
            .iter()
            .map(|e| {
                let (kind, reference, account) = (text(&e["kind"]), text(&e["reference"]), text(&e["account"]));
                format!("{kind} {reference} {account} {} {}", e["amount"], text(&e["currency"]))
            })
            .collect();
        lines.sort();
        lines
    }

    /// States of all raw events with their reasons, in the order in which they came.
    pub fn states(&self) -> Vec<(String, String)> {
        let mut events = self.list(&["events"]);
        events.reverse();
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        events.iter().map(|e| (text(&e["state"]), text(&e["reason"]))).collect()
    }

    /// A connection that only reads.
    pub fn db(&self) -> Connection {
        open_db(&self.database())
    }

    /// A number from the database.
    pub fn count(&self, sql: &str) -> i64 {
        self.db().query_row(sql, [], |r| r.get(0)).unwrap_or_else(|e| panic!("{sql}: {e}"))
    }

    /// Waits until no raw event waits or is under way.
    pub fn settled(&self) {
        self.wait_for("SELECT count(*) = 0 FROM postonce_raw_events WHERE state IN ('RECEIVED', 'CLAIMED')");
    }

    /// Waits until no message waits.
    pub fn delivered(&self) {
        self.settled();
        self.wait_for("SELECT count(*) = 0 FROM postonce_outbox WHERE state = 'WAITING'");
    }

    /// Waits until a query is true.
    pub fn wait_for(&self, sql: &str) {
        let db = self.db();
        eventually(sql, || db.query_row(sql, [], |r| r.get::<_, bool>(0)).ok().filter(|fact| *fact));
    }

    /// Sends a body to a source, signed by its provider's rules with the default secret. The provider is the name up to
    /// the first dash: `stripe-birch` is signed as Stripe does.
    pub fn send(&self, source: &str, body: &str) -> Answer {
        self.send_with(source, SECRET, body.as_bytes(), &[])
    }

    /// Sends to a server that may die before it answers; says whether it answered 200.
    pub fn send_to_its_death(&self, source: &str, body: &str) -> bool {
        let headers = sign(source, SECRET, body.as_bytes(), &[]);
        let answer = Wire::to(self.public).try_post(&format!("/webhooks/{source}"), &headers, body.as_bytes());
        answer.is_ok_and(|answer| answer.status == 200)
    }

    /// The same with a secret and headers of your own.
    pub fn send_with(&self, source: &str, secret: &str, body: &[u8], headers: &[(&str, &str)]) -> Answer {
        let mut all = sign(source, secret, body, headers);
        all.extend(headers.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())));
        self.post(&format!("/webhooks/{source}"), &all, body)
    }

    /// A POST with exactly these headers, on a connection of its own.
    pub fn post(&self, path: &str, headers: &[(String, String)], body: &[u8]) -> Answer {
        Wire::to(self.public).post(path, headers, body)
    }

    /// Bytes as they are, on a connection of its own; the answer to the first request in them.
    pub fn raw(&self, bytes: &[u8]) -> Answer {
        let mut wire = Wire::to(self.public);
        wire.write(bytes).unwrap();
        wire.answer().unwrap()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if std::thread::panicking() {
            // A second panic here would abort the process, and nobody would see the first.
            let log = fs::read(self.folder.join("server.log")).unwrap_or_default();
            let log = String::from_utf8_lossy(&log);
            let tail: Vec<&str> = log.lines().rev().take(40).collect();
            eprintln!("--- command\n{}", self.command);
            eprintln!("--- end of the log\n{}", tail.into_iter().rev().collect::<Vec<_>>().join("\n"));
            eprintln!("--- events\n{}", self.run(&["events"]).1);
            eprintln!("--- ledger\n{}", self.run(&["ledger"]).1);
        }
        self.kill();
    }
}

/// A connection that only reads.
pub fn open_db(path: &Path) -> Connection {
    let db = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_ONLY).unwrap();
    db.busy_timeout(Duration::from_secs(5)).unwrap();
    db
}
