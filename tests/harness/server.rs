//! What the integration tests stand on: a folder of their own, the real server, raw HTTP, signed bodies, a fake app.
//!
//! Waits for facts with a deadline; the only pause is the poll between two looks. A test that fails leaves its folder and
//! prints the command, the end of the server's log and what stands in the database. Kills only what it started.

use postonce::providers::Catalog;
use postonce::providers::signature::{Delivery, Options, Secret, Verifier};
use rusqlite::{Connection, OpenFlags};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Longer than any fact may take on a busy machine; reaching it is a failure.
pub const PATIENCE: Duration = Duration::from_secs(60);
/// Between two looks at a fact.
const POLL: Duration = Duration::from_millis(5);
/// The signing secret of a source, unless a test says otherwise.
pub const SECRET: &str = "whsec_dGhlIHNlY3JldCBvZiB0aGUgdGVzdHMgMDEyMzQ1Njc4OQ==";
/// The key of the messages to the fake app.
pub const APP_SECRET: &str = "whsec_dGhlIGtleSBvZiB0aGUgZmFrZSBhcHAgMDEyMzQ1Njc4OTAx";

/// Looks until `fact` gives something.
pub fn eventually<T>(what: &str, mut fact: impl FnMut() -> Option<T>) -> T {
    let until = Instant::now() + PATIENCE;
    loop {
        if let Some(value) = fact() {
            return value;
        }
        assert!(Instant::now() < until, "waited {PATIENCE:?} in vain: {what}");
        std::thread::sleep(POLL);
    }
}

/// Are crash points compiled in? Says so when not.
pub fn has_faults() -> bool {
    if !cfg!(feature = "faults") {
        eprintln!("skipped: crash points are not compiled in; run scripts/test, or cargo test --features faults");
    }
    cfg!(feature = "faults")
}

/// A folder of the test's own, gone afterwards unless the test fails.
pub struct Folder(PathBuf);

impl Folder {
    /// A new, empty one.
    pub fn new() -> Folder {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("postonce-it-{}-{}", std::process::id(), NEXT.fetch_add(1, SeqCst));
        let path = std::env::temp_dir().join(name);
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).unwrap();
        Folder(path)
    }

    /// A path inside it.
    pub fn join(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("left for you to look at: {}", self.0.display());
        } else {
            let _ = fs::remove_dir_all(&self.0);
        }
    }
}

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

    /// Starts it in a new folder.
    pub fn start(self) -> Server {
        Server::start_in(Arc::new(Folder::new()), self)
    }

    /// Starts it and gives what it said when it refused to.
    pub fn refused(self) -> String {
        let folder = Folder::new();
        let output = self.command(&folder).stdin(Stdio::null()).output().unwrap();
        assert!(!output.status.success(), "it should have refused");
        String::from_utf8_lossy(&output.stderr).into_owned()
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
            let log = self.log();
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

/// The headers that the provider of a source would send.
pub fn sign(source: &str, secret: &str, body: &[u8], headers: &[(&str, &str)]) -> Vec<(String, String)> {
    sign_at(source, secret, body, headers, postonce::clock::wall())
}

/// The same, signed at another time.
pub fn sign_at(
    source: &str,
    secret: &str,
    body: &[u8],
    headers: &[(&str, &str)],
    now_ms: i64,
) -> Vec<(String, String)> {
    let provider = source.split('-').next().unwrap_or(source);
    let pairs: Vec<(&str, &[u8])> = headers.iter().map(|(n, v)| (*n, v.as_bytes())).collect();
    let path = format!("/webhooks/{source}");
    let delivery = Delivery { method: "POST", url: &path, path: &path, query: "", headers: &pairs, body };
    verifier(provider, secret).sign(&delivery, now_ms, &format!("msg_{:x}", rand::random::<u64>())).unwrap()
}

/// A provider's rules with one secret.
pub fn verifier(provider: &str, secret: &str) -> Arc<Verifier> {
    static KNOWN: Mutex<BTreeMap<(String, String), Arc<Verifier>>> = Mutex::new(BTreeMap::new());
    let mut known = KNOWN.lock().unwrap();
    let make = || {
        let recipe = Catalog::open(None).unwrap().recipe(provider).unwrap().unwrap();
        Verifier::new(&recipe.signature, &[Secret::pasted("test", secret).0], &Options::default()).unwrap()
    };
    known.entry((provider.to_owned(), secret.to_owned())).or_insert_with(|| Arc::new(make())).clone()
}

/// What came back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The status.
    pub status: u16,
    /// The head, with its lines.
    pub head: String,
    /// The body.
    pub body: String,
}

impl Answer {
    /// The first value of a header.
    pub fn header(&self, name: &str) -> Option<&str> {
        let pairs = self.head.lines().filter_map(|line| line.split_once(": "));
        pairs.into_iter().find(|(other, _)| other.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }

    /// Asserts a 2xx.
    #[track_caller]
    pub fn ok(self) -> Answer {
        assert!((200..300).contains(&self.status), "{self:?}");
        self
    }

    /// Asserts a status.
    #[track_caller]
    pub fn is(self, status: u16) -> Answer {
        assert_eq!(self.status, status, "{self:?}");
        self
    }
}

/// One raw connection, kept alive.
pub struct Wire {
    stream: TcpStream,
    read: Vec<u8>,
}

impl Wire {
    /// Connects.
    pub fn to(address: SocketAddr) -> Wire {
        Wire::try_to(address).unwrap()
    }

    /// Connects if there is somebody.
    pub fn try_to(address: SocketAddr) -> std::io::Result<Wire> {
        let stream = TcpStream::connect_timeout(&address, PATIENCE)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        stream.set_nodelay(true)?;
        Ok(Wire { stream, read: Vec::new() })
    }

    /// Sends bytes.
    pub fn write(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        self.stream.write_all(bytes)
    }

    /// A POST and its answer.
    pub fn post(&mut self, path: &str, headers: &[(String, String)], body: &[u8]) -> Answer {
        self.try_post(path, headers, body).unwrap()
    }

    /// A POST and its answer, if the connection lives that long.
    pub fn try_post(&mut self, path: &str, headers: &[(String, String)], body: &[u8]) -> std::io::Result<Answer> {
        // It may be refused before it is all sent: the answer counts.
        let written = self.write(&post_bytes(path, headers, body));
        self.answer().map_err(|e| written.err().unwrap_or(e))
    }

    /// The next answer.
    pub fn answer(&mut self) -> std::io::Result<Answer> {
        loop {
            if let Some(end) = self.read.windows(4).position(|w| w == b"\r\n\r\n") {
                let head = String::from_utf8_lossy(&self.read[..end]).into_owned();
                let status = head.split(' ').nth(1).and_then(|s| s.parse().ok()).unwrap_or(0);
                let mut answer = Answer { status, head, body: String::new() };
                let length: usize = answer.header("content-length").and_then(|v| v.parse().ok()).unwrap_or(0);
                while self.read.len() < end + 4 + length {
                    self.more()?;
                }
                answer.body = String::from_utf8_lossy(&self.read[end + 4..end + 4 + length]).into_owned();
                self.read.drain(..end + 4 + length);
                return Ok(answer);
            }
            self.more()?;
        }
    }

    fn more(&mut self) -> std::io::Result<()> {
        let mut piece = [0; 16384];
        match self.stream.read(&mut piece)? {
            0 => Err(std::io::ErrorKind::UnexpectedEof.into()),
            count => {
                self.read.extend_from_slice(&piece[..count]);
                Ok(())
            }
        }
    }
}

/// A POST as bytes.
pub fn post_bytes(path: &str, headers: &[(String, String)], body: &[u8]) -> Vec<u8> {
    let mut head = format!("POST {path} HTTP/1.1\r\nHost: test\r\nContent-Length: {}\r\n", body.len());
    for (name, value) in headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    head.push_str("\r\n");
    [head.as_bytes(), body].concat()
}

/// A message that the fake app got.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// Its Idempotency-Key.
    pub key: String,
    /// Its body as sent.
    pub body: String,
    /// Does its signature hold?
    pub genuine: bool,
}

/// How the fake app answers the nth message (from 0): a status, and what stands in Retry-After.
pub type Manners = Box<dyn Fn(usize, &Message) -> (u16, Option<&'static str>) + Send>;

/// A fake app: takes messages on loopback, verifies them as Standard Webhooks says, and keeps them.
pub struct App {
    server: Arc<tiny_http::Server>,
    got: Arc<Mutex<Vec<Message>>>,
    thread: Option<JoinHandle<()>>,
}

impl App {
    /// Accepts everything.
    pub fn start() -> App {
        App::with(Box::new(|_, _| (200, None)))
    }

    /// Answers as it is told.
    pub fn with(manners: Manners) -> App {
        let server = Arc::new(tiny_http::Server::http("127.0.0.1:0").unwrap());
        let got: Arc<Mutex<Vec<Message>>> = Arc::default();
        let (incoming, kept) = (server.clone(), got.clone());
        let verifier = verifier("standard_webhooks", APP_SECRET);
        let thread = std::thread::spawn(move || {
            for mut request in incoming.incoming_requests() {
                let mut body = Vec::new();
                if request.as_reader().read_to_end(&mut body).is_err() {
                    continue;
                }
                let headers: Vec<(String, Vec<u8>)> =
                    request.headers().iter().map(|h| (h.field.to_string(), h.value.as_bytes().to_vec())).collect();
                let pairs: Vec<(&str, &[u8])> = headers.iter().map(|(n, v)| (n.as_str(), v.as_slice())).collect();
                let delivery =
                    Delivery { method: "POST", url: "", path: request.url(), query: "", headers: &pairs, body: &body };
                let key = delivery.header_all("idempotency-key").next().unwrap_or_default();
                let message = Message {
                    key: String::from_utf8_lossy(key).into_owned(),
                    body: String::from_utf8_lossy(&body).into_owned(),
                    genuine: verifier.verify(&delivery, postonce::clock::wall()).is_ok(),
                };
                let mut got = kept.lock().unwrap();
                let (status, retry_after) = manners(got.len(), &message);
                got.push(message);
                drop(got);
                let mut response = tiny_http::Response::empty(status);
                if let Some(text) = retry_after {
                    response.add_header(tiny_http::Header::from_bytes("Retry-After", text).unwrap());
                }
                let _ = request.respond(response);
            }
        });
        App { server, got, thread: Some(thread) }
    }

    /// Where it listens.
    pub fn url(&self) -> String {
        format!("http://{}/", self.server.server_addr())
    }

    /// All it got, in order; every signature must hold.
    pub fn messages(&self) -> Vec<Message> {
        let got = self.got.lock().unwrap().clone();
        assert!(got.iter().all(|m| m.genuine), "a message with a bad signature: {got:?}");
        got
    }

    /// The distinct keys, sorted.
    pub fn keys(&self) -> Vec<String> {
        let mut keys: Vec<String> = self.messages().into_iter().map(|m| m.key).collect();
        keys.sort();
        keys.dedup();
        keys
    }
}

impl Drop for App {
    fn drop(&mut self) {
        self.server.unblock();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Stripe's events, as small as they may be.
pub mod stripe {
    /// `charge.succeeded` of a payment intent.
    pub fn charge(event: &str, payment: &str, amount: i64) -> String {
        charge_in(event, payment, amount, "usd")
    }

    /// The same in another currency.
    pub fn charge_in(event: &str, payment: &str, amount: i64, currency: &str) -> String {
        object(
            event,
            "charge.succeeded",
            &format!(
                r#"{{"id":"ch_{payment}","object":"charge","amount":{amount},"amount_captured":{amount},"captured":true,"currency":"{currency}","customer":"cus_1","payment_intent":"{payment}"}}"#
            ),
        )
    }

    /// `payment_intent.succeeded`.
    pub fn intent(event: &str, payment: &str, amount: i64) -> String {
        object(
            event,
            "payment_intent.succeeded",
            &format!(
                r#"{{"id":"{payment}","object":"payment_intent","amount":{amount},"amount_received":{amount},"currency":"usd","customer":"cus_1","latest_charge":"ch_{payment}","status":"succeeded"}}"#
            ),
        )
    }

    /// `invoice.paid` of an older API version, which names its payment.
    pub fn invoice(event: &str, invoice: &str, payment: &str, amount: i64) -> String {
        object(
            event,
            "invoice.paid",
            &format!(
                r#"{{"id":"{invoice}","object":"invoice","amount_paid":{amount},"attempt_count":1,"currency":"usd","customer":"cus_1","paid_out_of_band":false,"payment_intent":"{payment}","status":"paid"}}"#
            ),
        )
    }

    /// `refund.created`.
    pub fn refund(event: &str, refund: &str, payment: &str, amount: i64) -> String {
        object(
            event,
            "refund.created",
            &format!(
                r#"{{"id":"{refund}","object":"refund","amount":{amount},"balance_transaction":"txn_{refund}","currency":"usd","charge":"ch_{payment}","payment_intent":"{payment}","reason":null,"status":"succeeded"}}"#
            ),
        )
    }

    /// An event around an object.
    pub fn object(event: &str, kind: &str, object: &str) -> String {
        object_at(event, kind, object, 1_795_000_000)
    }

    /// An event around an object, with its time in seconds.
    pub fn object_at(event: &str, kind: &str, object: &str, created: i64) -> String {
        format!(
            r#"{{"id":"{event}","object":"event","api_version":"2026-10-28.endive","created":{created},"data":{{"object":{object}}},"livemode":true,"type":"{kind}"}}"#
        )
    }
}
