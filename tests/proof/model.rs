//! Random histories against a model that fits on a page: deliveries, redeliveries, reorderings, conflicts, sweeps in the
//! middle of work, replays, corrections, retention, settlement runs, crashes and power cuts. A failure is shrunk to the
//! shortest history that shows it.

use crate::disk::{Cut, Disk, Image, Replay, lay_out, long};
use crate::engine::{check, hand_over, settled, start_with};
use crate::harness::{Folder, SECRET};
use postonce::config::Loaded;
use postonce::engine::{Engine, Parts};
use postonce::pull::Pace;
use postonce::steps::settle::{self, Ask};
use postonce::steps::{correct, sweep};
use postonce::store::ledger::{self, EntryFilter};
use postonce::store::listing::{self, EventFilter};
use postonce::store::{Access, Faulty, Options, raw, retain};
use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestRng, TestRunner};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::sync::mpsc::TryRecvError;
use std::time::Duration;

/// What a provider says. Small numbers, so that histories collide.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Says {
    /// `event` tells of `payment`, with one of two amounts: both are told under each key now and then.
    Payment { event: u8, payment: u8, other_amount: bool, test: bool },
    /// A refund of a payment.
    Refund { event: u8, payment: u8, refund: u8 },
    /// A type that nobody asked for.
    Unknown,
    /// No JSON at all.
    Garbage,
}

#[derive(Clone, Copy, Debug)]
enum Step {
    /// Deliver and wait for the acknowledgement.
    Deliver(Says),
    /// Several at once, without waiting.
    Burst(Says, Says, Says),
    /// Let everything come to rest.
    Rest,
    /// Release every claim, under way or not: a sweep that comes far too early.
    Sweep,
    /// A person replays whatever waits for one.
    Replay,
    /// A person takes an entry back: the nth, over and over.
    Correct(u8),
    /// What is finished is past its age, every second or third of it: its bytes go, or all of it.
    Retain { every: u8, bytes_only: bool },
    /// The provider's report of the day, with some of the payments, is compared with the ledger.
    Settle(u8),
    /// The process dies here, and perhaps the power with it.
    Crash(u8, u64),
}

fn says() -> impl Strategy<Value = Says> {
    prop_oneof![
        8 => (0..8_u8, 0..4_u8, prop::bool::weighted(0.15), prop::bool::weighted(0.1))
            .prop_map(|(event, payment, other_amount, test)| Says::Payment { event, payment, other_amount, test }),
        3 => (0..8_u8, 0..4_u8, 0..3_u8).prop_map(|(event, payment, refund)| Says::Refund { event, payment, refund }),
        1 => Just(Says::Unknown),
        1 => Just(Says::Garbage),
    ]
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        8 => says().prop_map(Step::Deliver),
        4 => (says(), says(), says()).prop_map(|(a, b, c)| Step::Burst(a, b, c)),
        2 => Just(Step::Rest),
        1 => Just(Step::Sweep),
        1 => Just(Step::Replay),
        1 => (0..8_u8).prop_map(Step::Correct),
        1 => (1..4_u8, any::<bool>()).prop_map(|(every, bytes_only)| Step::Retain { every, bytes_only }),
        1 => (1..16_u8).prop_map(Step::Settle),
        2 => (0..3_u8, any::<u64>()).prop_map(|(how, seed)| Step::Crash(how, seed)),
    ];
    prop::collection::vec(step, 1..16)
}

impl Says {
    /// An event id belongs to what it tells of, so that one id never tells of two payments; of two amounts it may.
    fn body(self) -> String {
        match self {
            Says::Payment { event, payment, test, .. } => {
                let (amount, live) = (self.amount(), !test);
                let object = format!(
                    r#"{{"id":"ch_{payment}","object":"charge","amount":{amount},"amount_captured":{amount},"captured":true,"currency":"usd","customer":"cus_{payment}","payment_intent":"pi_{payment}"}}"#
                );
                envelope(&format!("evt_p{payment}_{event}_{live}"), "charge.succeeded", &object, live)
            }
            Says::Refund { event, payment, refund } => {
                let object = format!(
                    r#"{{"id":"re_{payment}_{refund}","object":"refund","amount":10,"balance_transaction":"txn_1","currency":"usd","charge":"ch_{payment}","payment_intent":"pi_{payment}","reason":null,"status":"succeeded"}}"#
                );
                envelope(&format!("evt_r{payment}_{refund}_{event}"), "refund.created", &object, true)
            }
            Says::Unknown => envelope("evt_unknown", "weather.changed", r#"{"id":"w_1","object":"weather"}"#, true),
            Says::Garbage => "{\"id\": ".into(),
        }
    }

    fn amount(self) -> i64 {
        match self {
            Says::Payment { payment, other_amount, .. } => 100 + i64::from(payment) + i64::from(other_amount) * 50,
            _ => 10,
        }
    }

    /// The key of the money it tells of.
    fn key(self) -> Option<String> {
        match self {
            Says::Payment { payment, test, .. } => {
                Some(format!("{} payment pi_{payment}", if test { "test" } else { "live" }))
            }
            Says::Refund { payment, refund, .. } => Some(format!("live refund re_{payment}_{refund}")),
            Says::Unknown | Says::Garbage => None,
        }
    }
}

fn envelope(id: &str, kind: &str, object: &str, live: bool) -> String {
    format!(
        r#"{{"id":"{id}","object":"event","api_version":"2026-10-28.endive","created":1795000000,"data":{{"object":{object}}},"livemode":{live},"type":"{kind}"}}"#
    )
}

/// One process's life on the file, and what is known of the world outside.
struct World {
    engine: Option<Engine>,
    folder: Folder,
    loaded: Loaded,
    disk: &'static Disk,
    base: Image,
    lives: usize,
    /// Handed over; acknowledged or not we know later.
    open: Vec<(Says, std::sync::mpsc::Receiver<postonce::error::Result<i64>>)>,
    acknowledged: BTreeMap<i64, Says>,
    /// All money that was ever spoken of.
    said: BTreeSet<String>,
    /// Entries that a person took back.
    corrected: BTreeSet<i64>,
    /// Raw events whose bytes may be gone.
    pruned: BTreeSet<i64>,
    /// Payments that a report named: a later one of the same day names them again.
    reported: BTreeSet<i64>,
}

impl World {
    fn new() -> World {
        let folder = Folder::new();
        let secret = folder.join("secret");
        std::fs::write(&secret, SECRET).unwrap();
        let loaded = Loaded::parse(format!(
            "[[source]]\nname = \"stripe\"\nsecrets = [\"file:{}\"]\n[[deliver]]\nname = \"app\"\nurl = \"http://127.0.0.1:9/\"\n",
            secret.display()
        ))
        .unwrap();
        let mut world = World {
            folder,
            loaded,
            disk: Disk::register(),
            base: Image::new(),
            engine: None,
            lives: 0,
            open: Vec::new(),
            acknowledged: BTreeMap::new(),
            said: BTreeSet::new(),
            corrected: BTreeSet::new(),
            pruned: BTreeSet::new(),
            reported: BTreeSet::new(),
        };
        world.begin();
        world
    }

    fn begin(&mut self) {
        let database = self.folder.join(&format!("life{}.db", self.lives));
        lay_out(&self.base, &database);
        self.disk.forget();
        self.disk = Disk::register();
        let options = Options {
            checkpoint_pages: 40,
            readers: 2,
            faulty: Faulty { vfs: Some(self.disk.name), ..Faulty::default() },
            ..Options::default()
        };
        let parts = Parts { apply: true, deliver: false };
        self.engine = Some(start_with(&self.loaded, &database, &options, parts).unwrap());
        self.lives += 1;
    }

    fn engine(&self) -> &Engine {
        self.engine.as_ref().unwrap()
    }

    /// Takes what was acknowledged by now.
    fn hear(&mut self, wait: bool) {
        for (says, answer) in std::mem::take(&mut self.open) {
            let heard = if wait { answer.recv().map_err(|_| TryRecvError::Disconnected) } else { answer.try_recv() };
            match heard {
                Ok(Ok(id)) => drop(self.acknowledged.insert(id, says)),
                Ok(Err(e)) => panic!("nothing is wrong with the disk: {e}"),
                Err(_) => self.open.push((says, answer)),
            }
        }
    }

    fn crash(&mut self, how: u8, seed: u64) {
        // What is heard before the cut must survive it.
        self.hear(false);
        let ops = self.disk.ops();
        let mut replay = Replay::on(self.base.clone(), ops);
        replay.advance(replay.len());
        let cut = [Cut::Keeps, Cut::Drops, Cut::Shuffles][usize::from(how)];
        self.base = replay.image(cut, seed);
        self.open.clear(); // never heard of again: the provider would send them anew
        drop(self.engine.take());
        self.begin();
    }

    fn take(&mut self, step: Step) {
        match step {
            Step::Deliver(says) => {
                self.say(says);
                self.hear(true);
            }
            Step::Burst(a, b, c) => [a, b, c].into_iter().for_each(|says| self.say(says)),
            Step::Rest => settled(self.engine()),
            Step::Sweep => drop(sweep::at_start(&self.engine().shared().store).unwrap()),
            Step::Replay => {
                let store = &self.engine().shared().store;
                let filter =
                    EventFilter { states: vec!["PARKED", "CONFLICT", "DEAD", "IGNORED"], ..EventFilter::default() };
                let mut ids = Vec::new();
                store
                    .read(|conn| {
                        listing::events(conn, &filter, |e| {
                            ids.push(e.id);
                            Ok(())
                        })
                    })
                    .unwrap();
                store.write(move |tx| ids.iter().try_for_each(|id| raw::replay(tx, *id).map(drop))).unwrap();
                self.engine().shared().wake();
            }
            Step::Correct(nth) => self.correct(nth),
            Step::Retain { every, bytes_only } => self.retain(every, bytes_only),
            Step::Settle(theirs) => self.settle(theirs),
            Step::Crash(how, seed) => self.crash(how, seed),
        }
    }

    fn say(&mut self, says: Says) {
        self.said.extend(says.key());
        let answer = hand_over(self.engine(), &says.body());
        self.open.push((says, answer));
    }

    fn correct(&mut self, nth: u8) {
        settled(self.engine());
        let entries = self.entries();
        let Some(entry) = entries.get(usize::from(nth) % entries.len().max(1)) else { return };
        let (id, reverses) = (entry.id, entry.reverses);
        let taken_back = self.engine().shared().store.write(move |tx| correct::reverse(tx, id, "it was wrong", None));
        let may = reverses.is_none() && !self.corrected.contains(&id);
        assert_eq!(taken_back.is_ok(), may, "entry {id}: {taken_back:?}");
        self.corrected.extend(may.then_some(id));
    }

    fn retain(&mut self, every: u8, bytes_only: bool) {
        settled(self.engine());
        let ids: Vec<i64> = self.events().keys().copied().filter(|id| id % i64::from(every) == 0).collect();
        self.pruned.extend(&ids);
        let go = move |tx: &postonce::store::Tx| match bytes_only {
            true => retain::empty_bodies(tx, &ids),
            false => retain::remove_events(tx, &ids),
        };
        self.engine().shared().store.write(go).unwrap();
    }

    /// Payments of the day by one bit each. What was posted as it stands there must match; nothing is ever posted by it.
    fn settle(&mut self, theirs: u8) {
        self.hear(true);
        settled(self.engine());
        let before = self.entries();
        let mut report = "balance_transaction_id,created_utc,available_on_utc,currency,gross,fee,net,reporting_category,source_id,charge_id,payment_intent_id\n".to_owned();
        let mut named: BTreeSet<i64> = (0..4).filter(|payment| theirs & 1 << payment != 0).collect();
        named.extend(&self.reported);
        for payment in &named {
            let at = "2026-11-18 11:06:40";
            let _ = writeln!(
                report,
                "txn_{payment},{at},{at},usd,1.0{payment},0.00,1.0{payment},charge,ch_{payment},,pi_{payment}"
            );
        }
        let posted = |payment: &i64| {
            let reference = format!("pi_{payment}");
            let same = |e: &ledger::EntryLine| (&*e.mode, &*e.kind, e.amount) == ("live", "payment", 100 + payment);
            before.iter().any(|e| same(e) && e.reference == reference)
        };
        let matching = named.iter().filter(|payment| posted(payment)).count();
        // A report of which nothing is ours, while we have entries of that time, looks like another account's.
        let foreign = !before.is_empty() && !named.iter().any(posted);
        let file = self.folder.join("report.csv");
        std::fs::write(&file, report).unwrap();
        let ask = Ask {
            window: Some((1_794_960_000_000, 1_795_046_400_000, "2026-11-18".into())),
            again: true,
            file: Some(&file),
            report: None,
            kept: None,
            now: postonce::clock::wall(),
            wait: Duration::from_secs(30),
            pace: Pace::default(),
            wake: &|| {},
            progress: &|_, _| {},
        };
        let shared = self.engine().shared();
        let run = settle::run(&Access::Ours(&shared.store), &shared.sources["stripe"], &ask).unwrap();
        if run.state == "INVALID" && foreign {
            assert!(run.reason.as_ref().is_some_and(|why| why.starts_with("none of ")), "{run:?}");
            assert_eq!(self.entries().len(), before.len(), "{run:?}");
            return;
        }
        assert_eq!(run.state, "COMPLETED", "{run:?}");
        assert_eq!(run.lines as usize, named.len());
        self.reported = named;
        let matched = run.buckets.get("matched").copied().unwrap_or(0);
        assert_eq!(matched, matching as i64, "{run:?}");
        settled(self.engine());
        assert_eq!(self.entries().len(), before.len(), "the comparison posted something: {run:?}");
    }

    /// The journal.
    fn entries(&self) -> Vec<ledger::EntryLine> {
        let mut entries = Vec::new();
        let each = |e| {
            entries.push(e);
            Ok(())
        };
        self.engine().shared().store.read(|conn| ledger::entries(conn, &EntryFilter::default(), each)).unwrap();
        entries
    }

    /// States of all raw events.
    fn events(&self) -> BTreeMap<i64, String> {
        let mut states = BTreeMap::new();
        let each = |e: listing::EventLine| {
            states.insert(e.id, e.state);
            Ok(())
        };
        self.engine().shared().store.read(|conn| listing::events(conn, &EventFilter::default(), each)).unwrap();
        states
    }

    /// All that must hold when everything has come to rest.
    fn judge(&mut self) -> Result<(), TestCaseError> {
        self.hear(true);
        settled(self.engine());
        check(self.engine());
        let store = &self.engine().shared().store;
        let states = self.events();
        let mut posted: BTreeMap<String, i64> = BTreeMap::new();
        let mut taken_back = BTreeSet::new();
        for e in self.entries() {
            if let Some(entry) = e.reverses {
                prop_assert!(taken_back.insert(entry), "entry {} is taken back twice", entry);
                continue;
            }
            let key = format!("{} {} {}", e.mode, e.kind, e.reference);
            prop_assert!(posted.insert(key.clone(), e.amount).is_none(), "{} is posted twice", key);
        }
        prop_assert_eq!(&taken_back, &self.corrected, "what was taken back");
        // Whatever was kept (acknowledged or not) is what the ledger may be made of.
        let bodies: BTreeMap<i64, Vec<u8>> = store
            .read(|conn| {
                let all = states.keys().map(|id| Ok(raw::body(conn, *id)?.map(|body| (*id, body.bytes))));
                all.filter_map(postonce::error::Result::transpose).collect()
            })
            .unwrap();
        for (id, says) in self.acknowledged.iter().filter(|(id, _)| !self.pruned.contains(id)) {
            prop_assert_eq!(
                bodies.get(id).map(|b| String::from_utf8_lossy(b).into_owned()),
                Some(says.body()),
                "raw event {} is lost",
                id
            );
        }
        let mut done: BTreeMap<String, usize> = BTreeMap::new();
        for (id, says) in &self.acknowledged {
            let pruned = self.pruned.contains(id);
            let state = match states.get(id) {
                Some(state) => state.as_str(),
                None if pruned => "",
                None => return Err(TestCaseError::fail(format!("raw event {id} is lost"))),
            };
            let Some(key) = says.key() else {
                prop_assert!(
                    ["IGNORED", "PARKED", "DUPLICATE"].contains(&state) || pruned,
                    "raw event {} of no money is {}",
                    id,
                    state
                );
                continue;
            };
            let Some(amount) = posted.get(&key) else {
                return Err(TestCaseError::fail(format!("{key} was acknowledged and is not posted; it is {state}")));
            };
            let expected: &[&str] = if *amount == says.amount() { &["DONE", "DUPLICATE"] } else { &["CONFLICT"] };
            prop_assert!(expected.contains(&state) || state.is_empty(), "raw event {} of {} is {}", id, key, state);
            *done.entry(key).or_default() += usize::from(state == "DONE");
        }
        prop_assert!(done.values().all(|n| *n <= 1), "done twice: {:?}", done);
        let told: i64 =
            store.read(|conn| Ok(conn.query_row("SELECT count(*) FROM postonce_outbox", [], |r| r.get(0))?)).unwrap();
        prop_assert_eq!(told, posted.len() as i64, "one message for each entry");
        for key in posted.keys() {
            prop_assert!(self.said.contains(key), "{} came from nowhere", key);
        }
        Ok(())
    }
}

impl Drop for World {
    /// The engine stops before its folder is gone: a file that is deleted under it is kept open for ever.
    fn drop(&mut self) {
        drop(self.engine.take());
        self.disk.forget();
    }
}

#[test]
fn every_history_comes_to_what_the_model_says() {
    let seed = crate::disk::seed();
    let cases = if long() { 10_000 } else { 150 };
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    let config = Config { cases, failure_persistence: None, max_shrink_iters: 400, ..Config::default() };
    let mut runner = TestRunner::new_with_rng(config, TestRng::from_seed(RngAlgorithm::ChaCha, &bytes));
    let outcome = runner.run(&steps(), |steps| {
        let mut world = World::new();
        for step in steps {
            world.take(step);
        }
        world.judge()
    });
    if let Err(e) = outcome {
        panic!("{e}\nPOSTONCE_SEED={seed}");
    }
}
