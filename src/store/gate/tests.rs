//! What shares a commit, and who is told of it.

use super::*;
use crate::store::Store;
use crate::store::raw::{Origin, StoredBody};

const PATIENCE: Duration = Duration::from_secs(20);

fn with_store(name: &str, test: impl FnOnce(&Store)) {
    let folder = std::env::temp_dir().join(format!("postonce-gate-{name}-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let store = Store::open(&folder.join("x.db"), &Options::default()).unwrap();
    test(&store);
    drop(store);
    std::fs::remove_dir_all(&folder).unwrap();
}

fn body(done: impl FnOnce(Result<i64>) + Send + 'static) -> Intake {
    let raw = NewRaw {
        source: "stripe".into(),
        origin: Origin::Webhook,
        secret: None,
        headers: String::new(),
        query: String::new(),
        body: StoredBody::pack(b"{}"),
    };
    Intake { raw, since: Instant::now(), done: Box::new(done) }
}

/// How many commits a job and a body take that comes while the job runs.
fn commits_of_both(store: &Store, alone: bool) -> u64 {
    let before = store.gate().figures().commits.load(Relaxed);
    let (began, running) = bounded(1);
    let (go, wait) = bounded::<()>(1);
    let (answer, kept) = bounded(1);
    let mut came = 0;
    let work = move |_: &Tx| {
        began.send(()).unwrap();
        wait.recv_timeout(PATIENCE).unwrap();
        Ok(())
    };
    std::thread::scope(|threads| {
        let work = threads.spawn(|| if alone { store.gate().write_alone(work) } else { store.gate().write(work) });
        running.recv_timeout(PATIENCE).unwrap();
        std::thread::sleep(Duration::from_millis(5)); // so that its time cannot be that at which the work began
        came = clock::steady();
        store.gate().keep(body(move |id| answer.send(id).unwrap()));
        go.send(()).unwrap();
        work.join().unwrap().unwrap();
    });
    let id = kept.recv_timeout(PATIENCE).unwrap().unwrap();
    assert_eq!(store.read(raw::newest).unwrap(), id);
    assert!(store.read(raw::next_due).unwrap().unwrap() >= came, "it is due before it came");
    store.gate().figures().commits.load(Relaxed) - before
}

#[test]
fn a_body_that_comes_while_work_runs_is_in_its_commit() {
    with_store("joins", |store| assert_eq!(commits_of_both(store, false), 1));
}

#[test]
fn a_body_that_comes_while_code_that_is_not_ours_runs_has_a_commit_without_it() {
    with_store("apart", |store| assert_eq!(commits_of_both(store, true), 2));
}

#[test]
fn whoever_takes_bodies_up_hears_of_each_commit_that_kept_some_and_of_no_other() {
    with_store("hears", |store| {
        let (hear, heard) = unbounded();
        store.gate().after_keeping(move || hear.send(()).unwrap());
        store.write(|_| Ok(())).unwrap();
        let (answer, kept) = bounded(1);
        store.gate().keep(body(move |id| answer.send(id).unwrap()));
        kept.recv_timeout(PATIENCE).unwrap().unwrap();
        heard.recv_timeout(PATIENCE).unwrap();
        store.write(|_| Ok(())).unwrap();
        store.stop();
        assert!(heard.try_recv().is_err());
    });
}
