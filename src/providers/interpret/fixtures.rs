//! Known answers: every fixture of `tests/vectors/events` (one file a provider) reads as expected; the uncompacted
//! originals beside the repository, where they are there, are the same.

use super::expected::to_expected_json;
use super::{Interpreter, Reading};
use crate::providers::Catalog;
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

const NOW: i64 = 1_796_000_000_123;

struct Fixture {
    name: String,
    body: Vec<u8>,
    headers: Vec<(String, String)>,
    fetched: BTreeMap<String, Vec<u8>>,
    expected: Value,
}

fn headers(value: &Value) -> Vec<(String, String)> {
    let map = value.as_object().cloned().unwrap_or_default();
    map.into_iter().map(|(k, v)| (k, v.as_str().unwrap_or_default().to_owned())).collect()
}

fn json_file(path: &Path) -> Value {
    let text = std::fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    serde_json::from_str(&text).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// The committed copies: (provider, fixtures).
fn compact() -> Vec<(String, Vec<Fixture>)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/vectors/events");
    let mut all: Vec<_> = std::fs::read_dir(folder).unwrap().map(|e| e.unwrap().path()).collect();
    all.sort();
    all.iter()
        .map(|path| {
            let rows = json_file(path).as_array().cloned().unwrap();
            let text = |v: &Value| v.as_str().unwrap().as_bytes().to_vec();
            let fixtures = rows.iter().map(|row| Fixture {
                name: row["name"].as_str().unwrap().to_owned(),
                body: text(&row["body"]),
                headers: headers(&row["headers"]),
                fetched: row["fetched"].as_object().into_iter().flatten().map(|(k, v)| (k.clone(), text(v))).collect(),
                expected: row["expected"].clone(),
            });
            (path.file_stem().unwrap().to_string_lossy().into_owned(), fixtures.collect())
        })
        .collect()
}

/// The originals beside the repository, byte for byte; nothing where they are not there.
fn originals() -> Vec<(String, Vec<Fixture>)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/vectors/events");
    let folder =
        if folder.is_dir() { folder } else { Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/vectors/events") };
    let list = |dir: &Path| -> Vec<PathBuf> {
        let mut all: Vec<_> = std::fs::read_dir(dir).into_iter().flatten().flatten().map(|e| e.path()).collect();
        all.sort();
        all
    };
    let providers = list(&folder).into_iter().filter(|p| p.is_dir());
    providers
        .map(|dir| {
            let files = list(&dir);
            let fixtures = files.iter().filter_map(|path| {
                let name = path.file_name()?.to_str()?.strip_suffix(".expected.json")?.to_owned();
                let beside = |end: &str| dir.join(format!("{name}{end}"));
                let body = std::fs::read(beside(".json")).or_else(|_| std::fs::read(beside(".form"))).unwrap();
                let headers =
                    std::fs::read(beside(".headers.json")).map(|h| headers(&serde_json::from_slice(&h).unwrap()));
                let begin = format!("{name}.fetched.");
                let fetched = files.iter().filter_map(|f| {
                    let doc = f.file_name()?.to_str()?.strip_prefix(&begin)?.strip_suffix(".json")?.to_owned();
                    Some((doc, std::fs::read(f).unwrap()))
                });
                Some(Fixture {
                    body,
                    headers: headers.unwrap_or_default(),
                    fetched: fetched.collect(),
                    expected: json_file(path),
                    name,
                })
            });
            (dir.file_name().unwrap().to_string_lossy().into_owned(), fixtures.collect())
        })
        .collect()
}

/// A built-in provider, compiled.
pub fn interpreter(provider: &str, options: &Value) -> Interpreter {
    let options = options.as_object().cloned().unwrap_or_default();
    let options = options.into_iter().map(|(k, v)| (k, v.as_str().map_or(v.to_string(), str::to_owned))).collect();
    let recipe = Catalog::open(None).unwrap().recipe(provider).expect(provider).unwrap();
    Interpreter::new(&recipe.events(), &options).unwrap()
}

/// What an expected file says, without what only explains it.
fn told(value: &Value) -> Value {
    const KEYS: [&str; 10] = [
        "event_id",
        "event_type",
        "mode",
        "tenant",
        "disposition",
        "movements",
        "entities",
        "fetch",
        "batch",
        "events",
    ];
    let Value::Object(map) = value else { return value.clone() };
    let kept = map.iter().filter(|(k, _)| KEYS.contains(&k.as_str()));
    let mut kept: Map<String, Value> = kept.map(|(k, v)| (k.clone(), v.clone())).collect();
    if let Some(Value::Array(events)) = kept.get_mut("events") {
        events.iter_mut().for_each(|event| *event = told(event));
    }
    Value::Object(kept)
}

fn check(provider: &str, fixture: &Fixture, failures: &mut Vec<String>) {
    let interpreter = interpreter(provider, &fixture.expected["options"]);
    let reading = interpreter.interpret(&fixture.body, &fixture.headers, "", NOW);
    let mut compare = |what: &str, got: Value, expected: Value| {
        // null and absent are the same answer
        if without_null(&got) != without_null(&expected) {
            let pretty = |v: &Value| serde_json::to_string_pretty(v).unwrap();
            failures.push(format!(
                "{provider}/{} {what}\ngot {}\nexpected {}",
                fixture.name,
                pretty(&got),
                pretty(&expected)
            ));
        }
    };
    compare("", told(&to_expected_json(&reading)), told(&fixture.expected));
    let after = match &fixture.expected["after_fetch"] {
        Value::Array(all) => all.clone(),
        Value::Null => vec![],
        one => vec![one.clone()],
    };
    for after in after {
        let name = after["as"].as_str().unwrap();
        let asked = reading.events.iter().find(|e| e.answer.as_deref() == Some(name)).expect("an event that fetches");
        let answer = interpreter.interpret_answer(asked, &fixture.fetched[after["doc"].as_str().unwrap()], NOW);
        let got = to_expected_json(&answer);
        let pick = |v: &Value| serde_json::json!({ "movements": v["movements"], "entities": v["entities"] });
        compare("after the fetch", pick(&got), pick(&after));
    }
}

fn without_null(value: &Value) -> Value {
    match value {
        Value::Object(map) => {
            Value::Object(map.iter().filter(|(_, v)| !v.is_null()).map(|(k, v)| (k.clone(), without_null(v))).collect())
        }
        Value::Array(all) => all.iter().map(without_null).collect(),
        other => other.clone(),
    }
}

fn check_all(all: &[(String, Vec<Fixture>)]) -> usize {
    let mut failures = Vec::new();
    for (provider, fixtures) in all {
        fixtures.iter().for_each(|fixture| check(provider, fixture, &mut failures));
    }
    let count = all.iter().map(|(_, f)| f.len()).sum();
    assert!(failures.is_empty(), "{} of {count} differ:\n{}", failures.len(), failures.join("\n\n"));
    count
}

#[test]
fn every_known_answer_is_given() {
    let count = check_all(&compact());
    assert!(count >= 188, "only {count} fixtures are there");
}

#[test]
fn the_originals_beside_the_repository_give_the_same_answers() {
    check_all(&originals());
}

/// Who reads it, body, headers.
pub type Delivery = (Interpreter, Vec<u8>, Vec<(String, String)>);

/// The fixtures' bodies, for tests that change them.
pub fn bodies() -> Vec<Delivery> {
    let all = compact().into_iter();
    all.flat_map(|(provider, fixtures)| {
        fixtures.into_iter().map(move |f| (interpreter(&provider, &f.expected["options"]), f.body, f.headers))
    })
    .collect()
}

/// One fixture's reading.
pub fn reading(provider: &str, name: &str) -> Reading {
    let all = compact();
    let (_, fixtures) = all.iter().find(|(p, _)| p == provider).unwrap();
    let fixture = fixtures.iter().find(|f| f.name == name).unwrap();
    interpreter(provider, &fixture.expected["options"]).interpret(&fixture.body, &fixture.headers, "", NOW)
}
