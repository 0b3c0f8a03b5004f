//! `postonce bench`: what this machine does, as ratios in one run. Never a timed test.
//!
//! The server runs in this process with the load beside it, on the disk of `--dir`. Each figure has a yardstick from the
//! same run: fdatasync alone, and one thread that appends the same rows in the same batches.

mod aim;
mod busy;
mod fill;
mod load;

use super::args::Bench;
use super::{Done, Outcome};
use crate::config::Loaded;
use crate::edge::{self, Front, Proxies, Reply, Response, Route};
use crate::engine::{self, Parts};
use crate::error::{Error, Result};
use crate::providers::signature::{Delivery, Options as SignatureOptions, Secret, Verifier};
use crate::providers::{Catalog, interpret::Interpreter};
use crate::server::{self, Server};
use crate::store::bodies::StoredBody;
use crate::store::raw::{self, NewRaw, Origin, State};
use crate::store::{Options, Store, sums};
use load::{Heard, Offer, SECRET};
use serde_json::json;
use std::collections::BTreeMap;
use std::io::{Seek as _, Write as _};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

const BODY: usize = 2500;

pub(super) fn run(args: &Bench) -> Done {
    if let Some(url) = &args.url {
        return aim::run(args, url, time(args)).map(|()| Outcome::Fine);
    }
    if let (Some(events), Some(file)) = (args.fill, &args.file) {
        return fill::run(file, events).map(|()| Outcome::Fine);
    }
    let dir =
        args.dir.clone().unwrap_or_else(|| PathBuf::from(".")).join(format!("postonce-bench-{}", std::process::id()));
    std::fs::create_dir_all(&dir)
        .map_err(|e| Error::refused(format!("cannot make {}: {e}", dir.display()), "--dir DIR"))?;
    let outcome = Run { args, dir: dir.clone(), time: time(args) }.all();
    let _ = std::fs::remove_dir_all(&dir);
    outcome.map(|()| Outcome::Fine)
}

fn time(args: &Bench) -> Duration {
    if args.quick { Duration::from_millis(500) } else { Duration::from_secs(args.seconds.max(1)) }
}

struct Run<'a> {
    args: &'a Bench,
    dir: PathBuf,
    time: Duration,
}

impl Run<'_> {
    fn all(&self) -> Result<()> {
        self.say("machine", json!({ "cores": std::thread::available_parallelism().map_or(0, usize::from), "sqlite": rusqlite::version(), "postonce": env!("CARGO_PKG_VERSION") }), None);
        if self.wants("verify interpret pack") {
            self.pure()?;
        }
        if self.wants("fdatasync") {
            self.disk()?;
        }
        if self.wants("null handler") {
            self.null_handler()?;
        }
        if self.wants("append alone keep and answer") {
            for rows in [1, 8, 64] {
                let figures = json!({ "rows_per_s": self.sqlite_alone(rows)? as u64 });
                self.say(&format!("append alone, {rows} a commit"), figures, None);
            }
            self.keep()?;
        }
        if self.wants("end to end file memory") {
            self.end_to_end()?;
        }
        Ok(())
    }

    fn wants(&self, names: &str) -> bool {
        self.args.only.as_ref().is_none_or(|word| names.contains(word.as_str()))
    }

    /// One line for people, one object for scripts.
    fn say(&self, name: &str, figures: serde_json::Value, note: Option<&str>) {
        if self.args.json {
            let mut line = json!({ "figure": name });
            if let (Some(line), Some(figures)) = (line.as_object_mut(), figures.as_object()) {
                line.extend(figures.clone());
            }
            println!("{line}");
        } else {
            let cells: Vec<String> = figures
                .as_object()
                .into_iter()
                .flatten()
                .map(|(key, value)| {
                    format!("{key} {}", value.as_str().map_or_else(|| value.to_string(), ToString::to_string))
                })
                .collect();
            println!("{name:<34} {}{}", cells.join("  "), note.map_or(String::new(), |n| format!("   ({n})")));
        }
    }

    /// What needs no disk: verifying and reading one event, in microseconds of one core.
    fn pure(&self) -> Result<()> {
        let bad = |e: String| Error::Apply(e);
        let catalog = Catalog::open(None).map_err(|e| bad(e.to_string()))?;
        let recipe =
            catalog.recipe("stripe").ok_or_else(|| bad("no stripe.toml".into()))?.map_err(|e| bad(e.to_string()))?;
        let verifier =
            Verifier::new(&recipe.signature, &[Secret::exact("bench", SECRET)], &SignatureOptions::default())
                .map_err(|e| bad(e.to_string()))?;
        let interpreter = Interpreter::new(&recipe.events(), &Default::default()).map_err(bad)?;
        let body = load::numbered_body(BODY, 1);
        let plain = Delivery { method: "POST", url: "", path: "", query: "", headers: &[], body: &body };
        let now = crate::clock::wall();
        let signed = verifier.sign(&plain, now, "").map_err(bad)?;
        let headers: Vec<(&str, &[u8])> = signed.iter().map(|(n, v)| (n.as_str(), v.as_bytes())).collect();
        let delivery = Delivery { headers: &headers, ..plain };
        let bare = each_us(|| load::bare_hmac(&body));
        let verify = each_us(|| usize::from(verifier.verify(&delivery, now).is_ok()));
        let read = each_us(|| interpreter.interpret::<&str, &str>(&body, &[], "", now).events.len());
        self.say(
            "verify 2.5 KB",
            json!({ "us": round(verify), "bare_hmac_us": round(bare), "ratio": round(verify / bare) }),
            None,
        );
        self.say("interpret 2.5 KB", json!({ "us": round(read) }), None);
        let pack = each_us(|| StoredBody::pack(&body).stored());
        self.say("pack 2.5 KB", json!({ "us": round(pack), "bytes": StoredBody::pack(&body).stored() }), None);
        Ok(())
    }

    fn disk(&self) -> Result<()> {
        let fail = |e: std::io::Error| Error::Unavailable(e.to_string());
        let mut file = std::fs::File::create(self.dir.join("probe")).map_err(fail)?;
        file.write_all(&[0; 4096]).map_err(fail)?;
        file.sync_all().map_err(fail)?;
        let (began, mut times) = (Instant::now(), Vec::new());
        while began.elapsed() < self.time / 2 {
            let one = Instant::now();
            file.rewind().and_then(|()| file.write_all(&[1; 4096])).and_then(|()| file.sync_data()).map_err(fail)?;
            times.push(one.elapsed());
        }
        times.sort_unstable();
        let ms = |share: f64| round(times[((times.len() - 1) as f64 * share) as usize].as_secs_f64() * 1000.0);
        let rate = (times.len() as f64 / began.elapsed().as_secs_f64()) as u64;
        self.say("fdatasync of 4 KiB", json!({ "per_s": rate, "p50_ms": ms(0.5), "p99_ms": ms(0.99) }), None);
        Ok(())
    }

    /// The edge with a handler that does nothing: what HTTP alone costs here.
    fn null_handler(&self) -> Result<()> {
        let fail = |e: std::io::Error| Error::Unavailable(e.to_string());
        let listener = edge::listen(SocketAddr::from(([127, 0, 0, 1], 0))).map_err(fail)?;
        let front = Front::start(
            listener,
            server::limits(std::iter::empty()),
            Proxies::default(),
            |_, _| Route::Read { limit: 1 << 20 },
            |_, reply: Reply| reply.send(Response::text(200, "ok")),
        )
        .map_err(fail)?;
        for connections in &self.args.connections {
            let offer = Offer { connections: *connections, ..self.base(front.local_addr()) };
            self.say(&format!("null handler, {connections} connections"), figures(&load::run(&offer)?), None);
        }
        front.stop(Duration::from_secs(1));
        Ok(())
    }

    /// One thread that appends the same rows, so many a commit: the yardstick of keep-and-answer.
    fn sqlite_alone(&self, batch: usize) -> Result<f64> {
        let path = self.dir.join("alone.db");
        let store = Store::open(&path, &Options::default())?;
        let rows: Vec<NewRaw> = (0..256).map(sample_row).collect();
        let (began, mut count) = (Instant::now(), 0);
        while began.elapsed() < self.time {
            let part: Vec<NewRaw> = (0..batch).map(|i| rows[(count + i) % rows.len()].clone()).collect();
            store.write(move |tx| part.iter().try_for_each(|row| raw::insert(tx, row).map(|_| ())))?;
            count += batch;
        }
        let rate = count as f64 / began.elapsed().as_secs_f64();
        store.stop();
        remove(&path);
        Ok(rate)
    }

    fn keep(&self) -> Result<()> {
        for connections in &self.args.connections {
            let server = self.server(&format!("keep{connections}.db"), false)?;
            let commits = || server.engine().shared().store.gate().figures().commits.load(Relaxed);
            let (cpu_before, before) = (cpu_by_thread(), commits());
            let heard = self.offer(&server, *connections, None, self.first(&server)?)?;
            let batch = (heard.answered as f64 / (commits() - before).max(1) as f64).round().max(1.0) as usize;
            let cpu = cpu_each_us(&cpu_before, heard.answered);
            self.end(server);
            let alone = self.sqlite_alone(batch)?;
            let mut figures = figures(&heard);
            figures["a_commit"] = json!(batch);
            figures["alone_per_s"] = json!(alone as u64);
            figures["of_alone"] = json!(round(heard.rate() / alone));
            figures["cpu_us"] = json!(cpu);
            self.say(&format!("keep and answer, {connections} connections"), figures, None);
        }
        for rate in self.rates(&[1000, 5000]) {
            let server = self.server("offered.db", false)?;
            let heard = self.offer(&server, 64, Some(rate), self.first(&server)?)?;
            self.say(&format!("keep and answer, {rate}/s offered"), figures(&heard), None);
            self.end(server);
        }
        Ok(())
    }

    /// Everything durable and applied: claim, entry, posting, balances, outbox row.
    fn end_to_end(&self) -> Result<()> {
        let server = self.server("whole.db", true)?;
        let mut first = self.first(&server)?;
        let busy = self.args.busy.then(|| busy::Busy::start(&server, &self.dir));
        let before = self.size(&server);
        let done = || {
            server.engine().shared().counts.ended[State::ALL.iter().position(|s| *s == State::Done).unwrap_or(0)]
                .load(Relaxed)
        };
        let rates = self.rates(&[1000, 5000, 10_000, 15_000, 20_000]);
        for rate in rates.into_iter().map(Some).chain([None]) {
            let before = done();
            let cpu_before = cpu_by_thread();
            let heard = self.offer(&server, 128, rate, first)?;
            first = heard.next;
            let applied = done() - before;
            let (waited, behind) = (Instant::now(), heard.answered.saturating_sub(applied));
            while done() - before < heard.answered && waited.elapsed() < Duration::from_secs(120) {
                std::thread::sleep(Duration::from_millis(5));
            }
            let all = heard.seconds + waited.elapsed().as_secs_f64();
            let mut figures = figures(&heard);
            figures["behind"] = json!(behind);
            figures["done_per_s"] = json!((heard.answered as f64 / all) as u64);
            figures["cpu_us"] = json!(cpu_each_us(&cpu_before, heard.answered));
            let name =
                rate.map_or("end to end, closed loop".to_owned(), |rate| format!("end to end, {rate}/s offered"));
            self.say(&name, figures, None);
        }
        if let Some(busy) = busy {
            self.say("meanwhile", busy.stop()?, None);
        }
        let path = server.engine().shared().store.path().to_owned();
        let events = done().max(1);
        server.stop();
        let size = std::fs::metadata(&path).map_or(0, |m| m.len());
        self.say(
            "file",
            json!({ "bytes_per_payment": size.saturating_sub(before) / events, "payments": events, "bytes": size }),
            None,
        );
        self.say("memory", json!({ "peak_mib": peak_mib() }), Some("with the load generator"));
        Ok(())
    }

    /// Where the numbers of new events begin: after those that the file holds.
    fn first(&self, server: &Server) -> Result<u64> {
        server.engine().shared().store.read(|conn| Ok(u64::try_from(raw::newest(conn)?).unwrap_or(0) + 1))
    }

    fn rates(&self, usual: &[u64]) -> Vec<u64> {
        if self.args.rate.is_empty() { usual.to_vec() } else { self.args.rate.clone() }
    }

    fn size(&self, server: &Server) -> u64 {
        std::fs::metadata(server.engine().shared().store.path()).map_or(0, |m| m.len())
    }

    fn base(&self, address: SocketAddr) -> Offer<'static> {
        Offer {
            address,
            path: "/webhooks/stripe",
            secret: SECRET,
            hot: self.args.hot,
            connections: 64,
            time: self.time,
            rate: None,
            size: BODY,
            duplicate_every: every(self.args.duplicates),
            first: 0,
        }
    }

    fn offer(&self, server: &Server, connections: usize, rate: Option<u64>, first: u64) -> Result<Heard> {
        load::run(&Offer { connections, rate, first, ..self.base(server.public_addr()) })
    }

    fn server(&self, name: &str, applies: bool) -> Result<Server> {
        let path = self.args.file.clone().unwrap_or_else(|| self.dir.join(name));
        let loaded = configuration(&path, &self.dir)?;
        let began = Instant::now();
        let server = Server::start_with(&loaded, &Options::default(), Parts { apply: applies, deliver: false })?;
        if self.args.file.is_some() {
            let (took, events) = (began.elapsed().as_secs_f64() * 1000.0, self.first(&server)? - 1);
            self.say("start", json!({ "ms": round(took), "events": events, "bytes": self.size(&server) }), None);
        }
        // what an earlier run left to be applied and added up in this file is no part of what is measured
        let store = &server.engine().shared().store;
        while applies && store.read(raw::next_due)?.is_some() || store.read(sums::next)?.is_some() {
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(server)
    }

    fn end(&self, server: Server) {
        let path = server.engine().shared().store.path().to_owned();
        server.stop();
        if self.args.file.is_none() {
            remove(&path);
        }
    }
}

/// One source, and an app whose messages are written and not sent: their delivery is not what is measured.
fn configuration(database: &Path, dir: &Path) -> Result<Loaded> {
    let text = format!(
        "database = {:?}\nlisten = \"127.0.0.1:0\"\n[operator]\nlisten = \"127.0.0.1:0\"\n[[source]]\nname = \"stripe\"\nsecrets = [\"file:{}\"]\n[[deliver]]\nname = \"app\"\nurl = \"http://127.0.0.1:9/\"\n",
        database.display().to_string(),
        dir.join("secret").display()
    );
    std::fs::write(dir.join("secret"), SECRET).map_err(|e| Error::Unavailable(e.to_string()))?;
    let loaded = Loaded::parse(text).map_err(|faults| Error::Apply(faults[0].to_string()))?;
    engine::build(&loaded).map_err(|faults| Error::Apply(faults[0].to_string()))?;
    Ok(loaded)
}

/// Every how many requests one repeats.
fn every(percent: u64) -> u64 {
    100_u64.checked_div(percent).unwrap_or(0)
}

fn figures(heard: &Heard) -> serde_json::Value {
    let mut figures = json!({
        "per_s": heard.rate() as u64,
        "p50_ms": round(heard.within_ms(0.5)),
        "p99_ms": round(heard.within_ms(0.99)),
    });
    if heard.refused > 0 {
        figures["refused"] = json!(heard.refused);
    }
    figures
}

fn sample_headers(number: u64) -> String {
    format!(
        "{}\n{number}",
        "host: bench\ncontent-type: application/json; charset=utf-8\nuser-agent: Stripe/1.0 (+https://stripe.com/docs/webhooks)\naccept: */*; q=0.5, application/xml\ncache-control: no-cache\nstripe-signature: t=1796040000,v1=5257a869e7ecebeda32affa62cdca3fa51cad7e77a0e56ff536d0ce8e108d8bd\ncontent-length: 2500"
    )
}

fn sample_row(number: u64) -> NewRaw {
    NewRaw {
        source: "stripe".into(),
        origin: Origin::Webhook,
        secret: Some("bench".into()),
        headers: sample_headers(number),
        query: String::new(),
        body: StoredBody::pack(&load::numbered_body(BODY, number)),
    }
}

/// Microseconds of one call, the best of several rounds.
fn each_us(mut f: impl FnMut() -> usize) -> f64 {
    const CALLS: u32 = 2000;
    (0..5)
        .map(|_| {
            let began = Instant::now();
            let mut sum = 0;
            for _ in 0..CALLS {
                sum += std::hint::black_box(f());
            }
            std::hint::black_box(sum);
            began.elapsed().as_secs_f64() * 1e6 / f64::from(CALLS)
        })
        .fold(f64::INFINITY, f64::min)
}

fn round(x: f64) -> f64 {
    (x * 100.0).round() / 100.0
}

fn remove(path: &Path) {
    for suffix in ["", "-wal", "-shm", "-postonce.lock"] {
        let mut name = path.as_os_str().to_owned();
        name.push(suffix);
        let _ = std::fs::remove_file(name);
    }
}

/// CPU seconds of this process by the name of the thread, as the kernel tells it.
fn cpu_by_thread() -> BTreeMap<String, f64> {
    let mut seconds = BTreeMap::new();
    for task in std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten() {
        let stat = std::fs::read_to_string(task.path().join("schedstat")).unwrap_or_default();
        let name = std::fs::read_to_string(task.path().join("comm")).unwrap_or_default();
        let nanoseconds = stat.split(' ').next().and_then(|n| n.parse::<f64>().ok()).unwrap_or(0.0);
        let name = name.trim().trim_end_matches(|c: char| c.is_ascii_digit() || c == '-').to_owned();
        *seconds.entry(name).or_insert(0.0) += nanoseconds / 1e9;
    }
    seconds
}

/// What one event cost each kind of thread since `before`: "writer 31.2, worker 9.0", the dearest first.
fn cpu_each_us(before: &BTreeMap<String, f64>, events: u64) -> String {
    let mut costs: Vec<(String, f64)> = cpu_by_thread()
        .into_iter()
        .map(|(name, seconds)| {
            let since = seconds - before.get(&name).copied().unwrap_or(0.0);
            (name, since * 1e6 / events.max(1) as f64)
        })
        .filter(|(_, us)| *us >= 0.1)
        .collect();
    costs.sort_by(|a, b| b.1.total_cmp(&a.1));
    costs.iter().map(|(name, us)| format!("{name} {us:.1}")).collect::<Vec<_>>().join(", ")
}

/// The most memory this process has held, in MiB, as the kernel tells it.
fn peak_mib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|l| l.starts_with("VmHWM:")).unwrap_or_default();
    line.split_whitespace().nth(1).and_then(|kib| kib.parse::<u64>().ok()).unwrap_or(0) / 1024
}
