//! Who else writes to the file, and with which SQLite: an old one can lose a committed write of anybody (the WAL-reset
//! race of 3.7.0 to 3.51.2).
//!
//! Only looks: at the file's header, and where the system shows them (Linux) at the processes that have the file open and
//! at the libraries that they have loaded.

use crate::error::Result;
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, Read as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

/// A program beside us whose SQLite can lose a committed write.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Neighbour {
    /// `process 812 (python3)`, or `the program that last grew the file`.
    pub who: String,
    /// What it writes with: `3.40.1`, or the library and the day of its source.
    pub sqlite: String,
}

/// Has this version the WAL-reset fault? As SQLite numbers them: 3040001 is 3.40.1.
pub fn has_fault(version: u32) -> bool {
    let (minor, patch) = (version / 1000 % 1000, version % 1000);
    match version / 1_000_000 {
        3 => match minor {
            0..7 => false, // no WAL at all
            44 => patch < 6,
            50 => patch < 7,
            51 => patch < 3,
            _ => minor < 51,
        },
        _ => false,
    }
}

/// The fault was mended on the day of this source (SQLite writes it into each library); branches that were mended later
/// are judged by their version.
const MENDED: &str = "2026-03";

/// Everybody whose SQLite has the fault, as far as can be seen. For `doctor`.
pub fn with_the_fault(database: &Path) -> Result<Vec<Neighbour>> {
    let mut found = BTreeSet::new();
    if let Some(version) = last_writer(database)
        && has_fault(version)
    {
        found.insert(Neighbour { who: "the program that last grew the file".into(), sqlite: dotted(version) });
    }
    for process in processes_with(database) {
        for library in libraries_of(process) {
            if let Some(source) = source_of(&library).filter(|source| source.as_str() < MENDED) {
                let name = fs::read_to_string(format!("/proc/{process}/comm")).unwrap_or_default();
                let sqlite = format!("{}, SQLite of {}", library.display(), &source[..10.min(source.len())]);
                found.insert(Neighbour { who: format!("process {process} ({})", name.trim()), sqlite });
            }
        }
    }
    Ok(found.into_iter().collect())
}

fn dotted(version: u32) -> String {
    format!("{}.{}.{}", version / 1_000_000, version / 1000 % 1000, version % 1000)
}

/// The version that last changed the file's header, which says it at byte 96.
fn last_writer(database: &Path) -> Option<u32> {
    let mut header = [0; 100];
    File::open(database).ok()?.read_exact(&mut header).ok()?;
    let version = u32::from_be_bytes(header[96..100].try_into().ok()?);
    (header.starts_with(b"SQLite format 3\0") && version > 0).then_some(version)
}

/// The other processes that have this very file open.
fn processes_with(database: &Path) -> Vec<u32> {
    let Ok(own) = fs::metadata(database) else { return Vec::new() };
    let Ok(processes) = fs::read_dir("/proc") else { return Vec::new() };
    let ids = processes.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let has_it_open = |id: &u32| {
        let Ok(files) = fs::read_dir(format!("/proc/{id}/fd")) else { return false };
        files.flatten().any(|file| {
            fs::metadata(file.path()).is_ok_and(|other| (other.dev(), other.ino()) == (own.dev(), own.ino()))
        })
    };
    ids.filter(|id| *id != std::process::id()).filter(has_it_open).collect()
}

/// The libraries, and the program itself, that a process has loaded and that could hold SQLite.
fn libraries_of(process: u32) -> BTreeSet<PathBuf> {
    let Ok(maps) = File::open(format!("/proc/{process}/maps")) else { return BTreeSet::new() };
    let lines = BufReader::new(maps).lines().map_while(std::result::Result::ok);
    let paths = lines.filter_map(|line| {
        let path = PathBuf::from(&line[line.find('/')?..]);
        (line.contains(" r-x") && path.to_str()?.contains("sql")).then_some(path)
    });
    paths.collect()
}

/// The day and time of the SQLite source in a library: `2022-12-28 14:03:47`, which stands before a hash of 64 digits.
fn source_of(library: &Path) -> Option<String> {
    const LARGEST: u64 = 64 << 20;
    if fs::metadata(library).ok()?.len() > LARGEST {
        return None;
    }
    source_in(&fs::read(library).ok()?)
}

fn source_in(bytes: &[u8]) -> Option<String> {
    const SHAPE: &[u8; 20] = b"0000-00-00 00:00:00 ";
    let fits = |window: &[u8]| {
        let date = window.iter().zip(SHAPE).all(|(byte, shape)| match shape {
            b'0' => byte.is_ascii_digit(),
            other => byte == other,
        });
        date && window[20..].iter().all(u8::is_ascii_hexdigit)
    };
    let at = bytes.windows(20 + 64).position(fits)?;
    String::from_utf8(bytes[at..at + 19].to_vec()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_with_the_fault_are_told_from_those_without() {
        for version in [3_007_000, 3_040_001, 3_044_005, 3_045_000, 3_050_006, 3_051_000, 3_051_002] {
            assert!(has_fault(version), "{}", dotted(version));
        }
        for version in [3_006_023, 3_044_006, 3_050_007, 3_051_003, 3_053_002] {
            assert!(!has_fault(version), "{}", dotted(version));
        }
    }

    #[test]
    fn the_source_of_a_library_is_found_among_other_bytes() {
        let mut bytes = b"\0\xff2022-12-28 no\0".to_vec();
        bytes.extend(b"2022-12-28 14:03:47 ");
        bytes.extend([b'd'; 64]);
        bytes.push(0);
        assert_eq!(source_in(&bytes).as_deref(), Some("2022-12-28 14:03:47"));
        assert_eq!(source_in(b"2022-12-28 14:03:47 short"), None);
    }

    #[test]
    fn a_file_that_we_grew_has_no_such_neighbour() {
        let file = std::env::temp_dir().join(format!("postonce-neighbours-{}.db", std::process::id()));
        let conn = rusqlite::Connection::open(&file).expect("opens");
        conn.execute_batch("CREATE TABLE t(a)").expect("runs");
        assert_eq!(last_writer(&file), Some(rusqlite::version_number() as u32));
        assert_eq!(with_the_fault(&file).expect("looks"), []);
        let mut bytes = fs::read(&file).expect("is read");
        bytes[96..100].copy_from_slice(&3_040_001_u32.to_be_bytes());
        fs::write(&file, bytes).expect("is written");
        let found = with_the_fault(&file).expect("looks");
        assert_eq!(found.first().map(|n| n.sqlite.as_str()), Some("3.40.1"));
        drop(conn);
        let _ = fs::remove_file(&file);
    }
}
