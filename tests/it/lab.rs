//! A ledger to settle: the real engine in this process, without listeners, and report files to compare it with.

use crate::harness::{Folder, eventually};
use postonce::config::Loaded;
use postonce::engine::{self, Engine, Parts};
use postonce::event::Millis;
use postonce::pull::Pace;
use postonce::settlement::told::Told;
use postonce::settlement::window;
use postonce::source::Source;
use postonce::steps::settle::{self, Ask, Settled};
use postonce::store::bodies::StoredBody;
use postonce::store::raw::{self, NewRaw, Origin};
use postonce::store::{Access, Options};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

pub struct Lab {
    pub engine: Engine,
    folder: Folder,
}

impl Lab {
    /// An engine with these sources, its file in this folder (`lab.db`).
    pub fn open(folder: Folder, sources: String) -> Lab {
        let (sources, endpoints) = engine::build(&Loaded::parse(sources).unwrap()).unwrap();
        let (engine, waking) = Engine::open(&folder.join("lab.db"), sources, endpoints, &Options::default()).unwrap();
        engine.start(waking, Parts { apply: true, deliver: false }).unwrap();
        Lab { engine, folder }
    }

    /// Sends bodies through the path of every event, and waits for their end.
    pub fn post(&self, source: &str, headers: &str, origin: Origin, bodies: impl Iterator<Item = Vec<u8>>) {
        let new: Vec<NewRaw> = bodies
            .map(|body| NewRaw {
                source: source.into(),
                origin,
                secret: None,
                headers: format!("{headers}\n"),
                query: String::new(),
                body: StoredBody::pack(&body),
            })
            .collect();
        let shared = self.engine.shared();
        shared.store.write(move |tx| new.iter().try_for_each(|n| raw::insert(tx, n).map(drop))).unwrap();
        shared.wake();
        let waiting = "SELECT count(*) FROM postonce_raw_events WHERE state IN ('RECEIVED', 'CLAIMED')";
        eventually("all is applied", || (self.number(waiting) == 0).then_some(()));
    }

    pub fn number(&self, sql: &str) -> i64 {
        self.engine.shared().store.read(|conn| Ok(conn.query_row(sql, [], |r| r.get(0))?)).unwrap()
    }

    pub fn file(&self, name: &str, text: &str) -> PathBuf {
        let path = self.folder.join(name);
        std::fs::write(&path, text).unwrap();
        path
    }

    /// Compares a report file with these days, first and last.
    pub fn run(&self, source: &str, file: &Path, days: (&str, &str), now: Millis) -> Settled {
        self.compare(source, file, (days, false), now)
    }

    /// Looks again at these days, and at all that is open.
    pub fn again(&self, source: &str, file: &Path, days: (&str, &str), now: Millis) -> Settled {
        self.compare(source, file, (days, true), now)
    }

    fn compare(&self, source: &str, file: &Path, (days, again): ((&str, &str), bool), now: Millis) -> Settled {
        let source = &self.engine.shared().sources[source];
        self.ask(source, file, (days, again), now, &|access, ask| settle::run(access, source, ask).unwrap())
    }

    /// Keeps a report file of these days, without comparing it.
    pub fn keep(&self, source: &str, file: &Path, days: (&str, &str), now: Millis) {
        let source = &self.engine.shared().sources[source];
        self.ask(source, file, (days, false), now, &|access, ask| settle::keep(access, source, ask).map(drop).unwrap());
    }

    fn ask<T>(
        &self,
        source: &Source,
        file: &Path,
        (days, again): ((&str, &str), bool),
        now: Millis,
        what: &dyn Fn(&Access, &Ask) -> T,
    ) -> T {
        let shared = self.engine.shared();
        let (from, to) = window::days(days.0, days.1, &source.settlement.zone).unwrap();
        let ask = Ask {
            window: Some((from, to, days.1.into())),
            again,
            file: Some(file),
            report: None,
            kept: None,
            now,
            wait: Duration::from_secs(30),
            pace: Pace::default(),
            wake: &|| shared.wake(),
            progress: &|_, _| {},
        };
        what(&Access::Ours(&shared.store), &ask)
    }

    /// Items of a run that are not matched, as `bucket kind reference`.
    pub fn items(&self, run: i64) -> BTreeSet<String> {
        let items = self.engine.shared().store.read(|conn| postonce::store::settlement::runs::items(conn, run, 10_000));
        items.unwrap().into_iter().map(|i| format!("{} {} {}", i.bucket, i.kind, i.reference)).collect()
    }

    pub fn check(&self) {
        let offences = self.engine.shared().store.read(postonce::store::check::run).unwrap();
        assert!(offences.is_empty(), "{offences:?}");
    }
}

/// A movement as a line of a report tells it.
pub fn told(kind: &str, reference: &str, amount: i64, currency: &str, at: Millis) -> Told {
    Told {
        kind: kind.into(),
        reference: reference.into(),
        aliases: vec![],
        parent: None,
        amount,
        currency: currency.into(),
        fee: None,
        fee_currency: None,
        tax: None,
        occurred_at: at,
        mode: "live".into(),
        report: 0,
        line: 0,
    }
}
