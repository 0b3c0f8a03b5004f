//! What shares a commit, and who is told of it.

use super::*;
use crate::store::Store;
use crate::store::bodies::StoredBody;
use crate::store::raw::Origin;

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
    delivery(b"{}", done)
}

fn delivery(bytes: &[u8], done: impl FnOnce(Result<i64>) + Send + 'static) -> Intake {
    let raw = NewRaw {
        source: "stripe".into(),
        origin: Origin::Webhook,
        secret: None,
        headers: "content-type: application/json".into(),
        query: "a=b".into(),
        body: StoredBody::pack(bytes),
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
fn work_that_the_tables_refuse_takes_nobody_else_s_with_it() {
    with_store("refused", |store| {
        let id = keep(store, b"{}");
        let (began, running) = bounded(1);
        let (go, wait) = bounded::<()>(1);
        let note = |key| move |tx: &Tx| crate::store::set_meta(tx.conn, key, "here");
        let back = |fence: i64| {
            move |tx: &Tx| {
                Ok(tx.conn.execute("UPDATE postonce_raw_events SET fence = ?2 WHERE id = ?1", (id, fence))?)
            }
        };
        store.write(back(5)).unwrap();
        std::thread::scope(|threads| {
            let first = threads.spawn(|| {
                store.gate().write(move |_| {
                    let _ = began.try_send(());
                    let _ = wait.recv_timeout(PATIENCE); // the first time; when it runs again, nobody is there
                    Ok(())
                })
            });
            running.recv_timeout(PATIENCE).unwrap();
            let before = threads.spawn(|| store.write(note("before")));
            let refused = threads.spawn(|| store.write(back(4)));
            let after = threads.spawn(|| store.write(note("after")));
            std::thread::sleep(Duration::from_millis(20)); // so that they wait together
            drop(go);
            first.join().unwrap().unwrap();
            before.join().unwrap().unwrap();
            after.join().unwrap().unwrap();
            let refused = refused.join().unwrap().unwrap_err().to_string();
            assert!(refused.contains("a fence only grows"), "{refused}");
        });
        let notes = "SELECT count(*) FROM postonce_meta WHERE key IN ('before', 'after')";
        assert_eq!(store.read(|conn| Ok(conn.query_row(notes, [], |r| r.get::<_, i64>(0))?)).unwrap(), 2);
    });
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

/// Keeps these bytes and gives their raw event.
fn keep(store: &Store, bytes: &[u8]) -> i64 {
    let (answer, kept) = bounded(1);
    store.gate().keep(delivery(bytes, move |id| answer.send(id).unwrap()));
    kept.recv_timeout(PATIENCE).unwrap().unwrap()
}

#[test]
fn what_was_kept_is_handed_on_as_the_file_holds_it() {
    with_store("handed", |store| {
        let sent: [&[u8]; 3] = [b"{}", &[b'x'; 900], &[b'y'; 40_000]];
        let ids = sent.map(|bytes| keep(store, bytes));
        let fresh = store.fresh().take_up_to(ids[2]);
        for (id, bytes) in ids.iter().zip(&sent[..2]) {
            let (handed, read) = (&fresh[id], store.read(|conn| raw::body(conn, *id)).unwrap().unwrap());
            assert_eq!(handed.bytes, *bytes);
            assert_eq!(handed, &read);
        }
        assert!(!fresh.contains_key(&ids[2]), "a large one waits in the file alone");
    });
}

#[test]
fn what_was_undone_or_is_of_another_file_is_not_handed_on() {
    with_store("not-handed", |store| {
        let path = store.path().to_owned();
        let id = keep(store, b"{}");
        std::fs::rename(&path, path.with_extension("away")).unwrap();
        let (answer, refused) = bounded(1);
        store.gate().keep(body(move |id| answer.send(id).unwrap()));
        assert!(refused.recv_timeout(PATIENCE).unwrap().is_err());
        assert!(store.fresh().take_up_to(id + 1).is_empty());
    });
}
