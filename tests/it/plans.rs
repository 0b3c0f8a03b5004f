//! Which index each scan of the steady state uses: none may grow with what is already done.
//!
//! The statements are not repeated here: SQLite tells what it ran, and is asked for its plan.

use crate::harness::{Server, stripe};
use postonce::store::{claims, listing, outbox, raw};
use rusqlite::Connection;
use rusqlite::trace::{TraceEvent, TraceEventCodes};
use std::sync::Mutex;

static RAN: Mutex<Vec<String>> = Mutex::new(Vec::new());

fn note(event: TraceEvent) {
    if let TraceEvent::Stmt(statement, _) = event {
        RAN.lock().unwrap().push(statement.sql().into_owned());
    }
}

/// The plans of the statements that `ask` runs, each line of each.
fn plans(db: &Connection, ask: &dyn Fn(&Connection)) -> Vec<String> {
    RAN.lock().unwrap().clear();
    db.trace_v2(TraceEventCodes::SQLITE_TRACE_STMT, Some(note));
    ask(db);
    db.trace_v2(TraceEventCodes::empty(), None);
    let ran = std::mem::take(&mut *RAN.lock().unwrap());
    assert!(!ran.is_empty(), "nothing was asked");
    let plan = |sql: &String| -> Vec<String> {
        let mut statement = db.prepare(&format!("EXPLAIN QUERY PLAN {sql}")).unwrap();
        let mut rows = statement.raw_query();
        let mut lines = Vec::new();
        while let Some(row) = rows.next().unwrap() {
            lines.push(row.get(3).unwrap());
        }
        lines
    };
    ran.iter().flat_map(plan).collect()
}

#[test]
fn what_is_due_and_what_is_dead_are_found_by_their_indexes() {
    let server = Server::start();
    server.send("stripe", &stripe::charge("evt_1", "pi_1", 100)).is(200);
    server.settled();
    let db = server.db();
    type Ask<'a> = (&'a str, &'a dyn Fn(&Connection), &'a str);
    let asks: [Ask; 8] = [
        ("due events", &|db| _ = raw::due(db, i64::MAX, (0, 0), 64).unwrap(), "postonce_raw_events_due"),
        ("next due event", &|db| _ = raw::next_due(db).unwrap(), "postonce_raw_events_due"),
        ("waiting events", &|db| _ = raw::waiting(db).unwrap(), "postonce_raw_events_due"),
        ("due messages", &|db| _ = outbox::due(db, i64::MAX, 64).unwrap(), "postonce_outbox_due"),
        ("next due message", &|db| _ = outbox::next_due(db).unwrap(), "postonce_outbox_due"),
        ("waiting messages", &|db| _ = outbox::waiting(db).unwrap(), "postonce_outbox_due"),
        ("dead events", &|db| _ = listing::dead_ids(db).unwrap(), "postonce_raw_events_for_a_person"),
        ("a claim", &|db| _ = claims::find(db, 1, "payment", "pi_1").unwrap(), "PRIMARY KEY"),
    ];
    for (what, ask, index) in asks {
        let lines = plans(&db, ask);
        assert!(lines.iter().any(|line| line.contains(index)), "{what}: {lines:?}");
        for line in &lines {
            let scan = line.starts_with("SCAN") && !line.contains(index) && !line.contains("CONSTANT");
            assert!(!scan, "{what} looks at every row: {lines:?}");
            assert!(!line.contains("TEMP B-TREE"), "{what} sorts what it found: {lines:?}");
        }
    }
    let filter = listing::EventFilter { states: vec!["DEAD", "PARKED", "CONFLICT"], ..Default::default() };
    let lines = plans(&db, &|db| listing::events(db, &filter, |_| Ok(())).unwrap());
    let found = lines.iter().any(|line| line.contains("postonce_raw_events_for_a_person"));
    assert!(found, "the list of the dead: {lines:?}");
}

#[test]
fn no_row_that_is_written_makes_sqlite_build_a_table_for_a_list_of_words() {
    let db = Connection::open_in_memory().unwrap();
    db.execute_batch(include_str!("../../schema.sql")).unwrap();
    let all = |sql: &str| -> Vec<String> {
        let mut statement = db.prepare(sql).unwrap();
        let rows = statement.raw_query().mapped(|r| r.get(0)).collect::<rusqlite::Result<_>>();
        rows.unwrap()
    };
    let tables = all("SELECT name FROM sqlite_schema WHERE type = 'table' AND name LIKE 'postonce_%'");
    assert!(tables.len() > 20, "{tables:?}");
    for table in tables {
        let columns = all(&format!("SELECT name FROM pragma_table_info('{table}')"));
        let values = vec!["?"; columns.len()].join(", ");
        let sql = format!("EXPLAIN INSERT INTO {table}({}) VALUES ({values})", columns.join(", "));
        let mut statement = db.prepare(&sql).unwrap();
        let mut steps = statement.raw_query();
        while let Some(step) = steps.next().unwrap() {
            let what: String = step.get(1).unwrap();
            assert_ne!(what, "OpenEphemeral", "a row of {table}: write its IN with OR");
        }
    }
}
