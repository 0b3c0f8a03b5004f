//! What the sources look like: who may import whom, where SQL stands, headers, lengths, no sleeping tests.
//!
//! Reads the files as text; what it forbids it names with file and line. Never changes one.

use std::fs;
use std::path::{Path, PathBuf};

/// A Rust file: its path from the root, and its text.
struct File {
    path: String,
    text: String,
}

impl File {
    /// Lines that are no comment, with their numbers, up to the file's own tests.
    fn code(&self) -> impl Iterator<Item = (usize, &str)> {
        let lines = self.text.lines().enumerate().map(|(at, line)| (at + 1, line.trim_start()));
        lines.take_while(|(_, line)| *line != "#[cfg(test)]").filter(|(_, line)| !line.starts_with("//"))
    }

    /// `src/store/raw.rs` is of `store`, `src/money.rs` of `money`.
    fn module(&self) -> &str {
        let inside = self.path.strip_prefix("src/").unwrap_or(&self.path);
        inside.split_once('/').map_or(inside.trim_end_matches(".rs"), |(folder, _)| folder)
    }
}

fn files(folder: &str) -> Vec<File> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut found = Vec::new();
    let mut folders: Vec<PathBuf> = vec![root.join(folder)];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|e| e == "rs") {
                let text = fs::read_to_string(&path).unwrap();
                let path = path.strip_prefix(root).unwrap().display().to_string();
                found.push(File { path, text });
            }
        }
    }
    assert!(!found.is_empty(), "no files in {folder}");
    found.sort_by(|a, b| a.path.cmp(&b.path));
    found
}

fn all() -> Vec<File> {
    [files("src"), files("tests")].into_iter().flatten().collect()
}

fn none(what: &str, offenders: Vec<String>) {
    assert!(offenders.is_empty(), "{what}:\n  {}", offenders.join("\n  "));
}

/// The groups of lib.rs, by its own comments: `// 1. values`, and the modules below each.
fn groups() -> Vec<(String, usize)> {
    let text = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("src/lib.rs")).unwrap();
    let mut group = 0;
    let mut modules = Vec::new();
    for line in text.lines() {
        if let Some(number) = line.strip_prefix("// ").and_then(|l| l.split_once('.')).and_then(|(n, _)| n.parse().ok())
        {
            group = number;
        } else if let Some(name) = line.strip_prefix("pub mod ").or(line.strip_prefix("mod ")) {
            modules.push((name.trim_end_matches(';').to_owned(), group));
        }
    }
    assert!(modules.len() > 10 && group >= 5, "lib.rs names its groups: {modules:?}");
    modules
}

/// Why an import from below stands; each is a debt or a name that belongs to both.
const IMPORTS_FROM_BELOW: &[(&str, &str, &str)] = &[
    ("providers", "postings", "a provider's file says how its money is booked, and postings knows what can be said"),
    ("source", "steps", "an effect is given the won claim, whose type stands in the step"),
];

#[test]
fn a_module_imports_only_from_its_own_group_and_those_above() {
    let groups = groups();
    let of = |module: &str| groups.iter().find(|(name, _)| name == module).map(|(_, group)| *group);
    let mut offenders = Vec::new();
    for file in files("src") {
        let Some(own) = of(file.module()) else { continue };
        for (number, line) in file.code() {
            for used in line.split("crate::").skip(1) {
                let module: String = used.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
                let allowed = IMPORTS_FROM_BELOW.iter().any(|(from, to, _)| *from == file.module() && *to == module);
                if of(&module).is_some_and(|group| group > own) && !allowed {
                    offenders.push(format!("{}:{number}: {} imports {module}", file.path, file.module()));
                }
            }
        }
    }
    none("imports from a group below", offenders);
}

#[test]
fn sql_stands_in_the_store_and_nowhere_else() {
    const WORDS: [&str; 9] = [
        "\"SELECT ",
        "FROM postonce_",
        "INTO postonce_",
        "UPDATE postonce_",
        "INSERT OR",
        "CREATE TABLE",
        "\"PRAGMA ",
        "\"SAVEPOINT",
        "BEGIN IMMEDIATE",
    ];
    let mut offenders = Vec::new();
    for file in files("src").iter().filter(|f| !f.path.starts_with("src/store/")) {
        for (number, line) in file.code() {
            if WORDS.iter().any(|word| line.contains(word)) && line.contains('"') {
                offenders.push(format!("{}:{number}: {line}", file.path));
            }
        }
    }
    none("SQL outside of src/store", offenders);
}

#[test]
fn every_file_says_its_duty_in_at_most_twelve_lines() {
    let mut offenders = Vec::new();
    for file in all() {
        let header = file.text.lines().take_while(|line| line.starts_with("//!")).count();
        if file.path != "src/lib.rs" && !(1..=12).contains(&header) {
            offenders.push(format!("{}: {header} lines", file.path));
        }
    }
    none("files without a header, or with a long one", offenders);
}

/// Longer than this one loses one's way.
const LINES_MAX: usize = 720;

#[test]
fn no_file_is_too_long() {
    let mut offenders = Vec::new();
    for file in all() {
        let lines = file.text.lines().count();
        if lines > LINES_MAX {
            offenders.push(format!("{}: {lines} lines", file.path));
        }
    }
    none("long files", offenders);
}

/// A load has a pace, and a death its moment: these are no waits for a fact.
const PACES: &[&str] = &["tests/harness/mod.rs", "tests/it/beside.rs", "tests/it/million.rs", "tests/proof/peers.rs"];

#[test]
fn tests_wait_for_facts_and_never_sleep() {
    let sleeps = [["thread::", "sleep"].concat(), ["park_", "timeout"].concat()];
    let mut offenders = Vec::new();
    for file in files("tests") {
        for (number, line) in file.code().filter(|(_, line)| sleeps.iter().any(|sleep| line.contains(sleep))) {
            if !PACES.contains(&file.path.as_str()) {
                offenders.push(format!("{}:{number}: {line}", file.path));
            }
        }
    }
    let harness = files("tests/harness").into_iter().find(|f| f.path == "tests/harness/mod.rs").unwrap();
    assert_eq!(harness.text.matches(&sleeps[0]).count(), 1, "the harness sleeps between two looks only");
    none("tests that sleep", offenders);
}

#[test]
fn nothing_names_the_machine_it_was_written_on() {
    let marks = [["/wo", "rk/"].concat(), ["/ho", "me/"].concat(), ["/ro", "ot/"].concat(), ["/Us", "ers/"].concat()];
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut texts: Vec<(String, String)> = all().into_iter().map(|f| (f.path, f.text)).collect();
    for name in ["Cargo.toml", "schema.sql", "README.md", "CHANGELOG.md", "scripts/run", "scripts/test", ".ci/run"] {
        texts.extend(fs::read_to_string(root.join(name)).map(|text| (name.to_owned(), text)));
    }
    let mut offenders = Vec::new();
    for (path, text) in &texts {
        for (at, line) in text.lines().enumerate() {
            if marks.iter().any(|mark| line.contains(mark)) {
                offenders.push(format!("{path}:{}: {line}", at + 1));
            }
        }
    }
    none("paths of a machine", offenders);
}

/// Files that draw or measure, and touch no amount; and one that names the types in order to refuse them.
const FLOATS: &[&str] =
    &["src/cli/bench", "src/operator/pages/chart", "src/operator/chart", "src/metrics", "src/charts", "src/toml_file"];

#[test]
fn no_float_comes_near_an_amount() {
    let mut offenders = Vec::new();
    for file in files("src") {
        for (number, line) in file.code() {
            let word = |word: &str| line.split(|c: char| !c.is_alphanumeric() && c != '_').any(|w| w == word);
            if (word("f64") || word("f32")) && !FLOATS.iter().any(|allowed| file.path.starts_with(allowed)) {
                offenders.push(format!("{}:{number}: {line}", file.path));
            }
        }
    }
    none("floats outside of charts and benchmarks", offenders);
}
