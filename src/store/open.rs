//! Opening the file: the lock beside it, the pragmas, the schema.
//!
//! Never changes what lasts in a file that an app shares with us (page size, user_version, application_id), never
//! migrates when only reading, and refuses a SQLite that can lose a committed write.

use super::{foreign, meta, set_meta};
use crate::error::{Error, Result};
use crate::fault;
use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags};
use scheduled_thread_pool::ScheduledThreadPool;
use std::fs::{self, File, OpenOptions};
use std::io::{Read as _, Seek as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock, RwLock};
use std::time::Duration;

/// SQLite before this can lose a committed write when two connections reset the log (the WAL-reset race).
pub const SQLITE_OLDEST: (i32, &str) = (3_051_003, "3.51.3");

/// What this program reads and writes.
const SCHEMA_VERSION: u32 = 1;
const SCHEMA: &str = include_str!("../../schema.sql");

/// How the file is opened.
#[derive(Clone, Debug)]
pub struct Options {
    /// How long a write may wait for another process that holds the lock, before its senders get 503.
    pub lock_wait: Duration,
    /// How many bodies may wait for the disk, before senders get 503.
    pub queue: usize,
    /// Reading connections.
    pub readers: u32,
    /// How long one apply that runs somebody else's code may hold the write lock.
    pub apply_budget: Duration,
    /// May we switch a file that an app made to WAL?
    pub adopt: bool,
    /// May the file be on a network or shared file system, where WAL is not safe?
    pub any_file_system: bool,
    /// WAL pages after which they are folded into the file.
    pub checkpoint_pages: i64,
    /// Free bytes on the disk below which the log warns.
    pub free_low: u64,
    /// Tests only: what is wrong with the storage.
    #[cfg(feature = "faults")]
    pub faulty: Faulty,
}

/// Tests only: storage that records or fails, or that promises less than it should.
#[cfg(feature = "faults")]
#[derive(Clone, Debug, Default)]
pub struct Faulty {
    /// The registered VFS that the writer goes through.
    pub vfs: Option<&'static str>,
    /// Commit with `synchronous=NORMAL`, which no power cut forgives: the proof that the tests would notice.
    pub synchronous_normal: bool,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            lock_wait: Duration::from_secs(2), // providers wait 5 s and more: answer 503 well before
            queue: 4096, // ~12 MB of typical bodies, packed and as sent; a tenth of a second's work
            readers: 4,
            apply_budget: Duration::from_millis(25),
            adopt: false,
            any_file_system: false,
            checkpoint_pages: fault::number("POSTONCE_CHECKPOINT_PAGES", 1000), // small and often: a large one holds back the next commit's fsync
            free_low: 256 << 20,
            #[cfg(feature = "faults")]
            faulty: Faulty::default(),
        }
    }
}

/// The lock beside the file, held by the operating system and so gone with the process.
pub struct Lock {
    _file: File,
}

impl Lock {
    /// Takes it, or says who has it.
    pub fn take(database: &Path) -> Result<Lock> {
        refuse_folder(database)?; // before a lock stands beside it
        Lock::take_for(database, "-postonce.lock")
    }

    /// The same for one kind of work that must not run twice at a time.
    pub fn take_for(database: &Path, suffix: &str) -> Result<Lock> {
        let path = beside(database, suffix);
        let mut file =
            OpenOptions::new().create(true).truncate(false).read(true).write(true).mode(0o600).open(&path).map_err(
                |e| {
                    Error::refused(
                        format!("cannot open {}: {e}", path.display()),
                        "check that the folder exists and belongs to the user that runs postonce",
                    )
                },
            )?;
        if rustix::fs::flock(&file, rustix::fs::FlockOperation::NonBlockingLockExclusive).is_err() {
            let mut holder = String::new();
            let _ = file.read_to_string(&mut holder);
            return Err(Error::refused(
                format!("{} is in use by {}", database.display(), holder.trim()),
                "stop that process first, or give this one a database of its own (--database FILE)",
            ));
        }
        let _ = file.set_len(0);
        let _ = file.rewind();
        let _ = writeln!(file, "pid {} (postonce {})", std::process::id(), env!("CARGO_PKG_VERSION"));
        Ok(Lock { _file: file })
    }
}

/// The path of a file that stands beside the database.
pub fn beside(database: &Path, suffix: &str) -> PathBuf {
    let mut name = database.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}

/// The writing connection, with the schema in place, and whether the process before stopped without saying so.
pub fn open_writer(path: &Path, options: &Options) -> Result<(Connection, bool)> {
    refuse_old_sqlite()?;
    set_up_memory();
    refuse_unsafe_file_system(path, options)?;
    make_private(path)?;
    let conn = connect(path, options)?;
    fault::point("opened");
    let ours = has_schema(&conn, path)?;
    let mode: String = conn.query_row("PRAGMA journal_mode", [], |r| r.get(0))?;
    let empty: bool = conn.query_row("SELECT NOT EXISTS (SELECT 1 FROM sqlite_schema)", [], |r| r.get(0))?;
    if mode != "wal" {
        if !empty && !ours && !options.adopt {
            return Err(Error::refused(
                format!("{} is an app's file in journal mode {mode}; postonce needs WAL", path.display()),
                "start once with --adopt, which switches the file to WAL for good, or use a file of its own",
            ));
        }
        if empty {
            conn.execute_batch("PRAGMA auto_vacuum = INCREMENTAL")?; // a file of our own can shrink
        }
        conn.query_row("PRAGMA journal_mode = WAL", [], |r| r.get::<_, String>(0))?;
    }
    if !ours {
        conn.execute_batch(&format!("BEGIN IMMEDIATE;\n{SCHEMA}\nCOMMIT;"))?;
    }
    fault::point("schema_made");
    refuse_other_schema(&conn, path)?;
    let unclean = meta(&conn, "clean_stop")?.as_deref() != Some("1");
    set_meta(&conn, "clean_stop", "0")?;
    // Into the file itself, so that a copy of it without its log shows what it is.
    conn.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(()))?;
    Ok((conn, unclean))
}

/// A connection for commands that only read: never writes, never migrates.
pub fn open_for_reading(path: &Path) -> Result<Connection> {
    if !path.exists() {
        return Err(Error::refused(
            format!("{} does not exist", path.display()),
            "name the database with --database FILE, or start the server once (`postonce serve`)",
        ));
    }
    refuse_folder(path)?;
    let conn = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX)?;
    conn.busy_timeout(Duration::from_secs(5))?;
    if !has_schema(&conn, path)? {
        return Err(Error::refused(
            format!("{} has no postonce tables", path.display()),
            "name the database that `postonce serve` writes",
        ));
    }
    refuse_other_schema(&conn, path)?;
    Ok(conn)
}

/// The pools of reading connections; `None` once it is stopped, and while the storage is out of order.
pub type Readers = Arc<RwLock<Option<Pools>>>;

type Pool = r2d2::Pool<r2d2_sqlite::SqliteConnectionManager>;

/// Connections that cannot write.
#[derive(Clone)]
pub struct Pools {
    /// For the threads that move events on.
    pub workers: Pool,
    /// For people: a slow page must not hold a connection that a worker needs.
    pub people: Pool,
}

/// Opens connections for all pools. A storage that is opened again and again would leave threads of each pool behind.
static HELPER: LazyLock<Arc<ScheduledThreadPool>> =
    LazyLock::new(|| Arc::new(ScheduledThreadPool::builder().num_threads(2).thread_name_pattern("readers-{}").build()));

/// Pools of connections that cannot write.
pub fn readers(path: &Path, options: &Options) -> Result<Pools> {
    let pool = |size: u32, idle: u32| -> Result<Pool> {
        let manager = r2d2_sqlite::SqliteConnectionManager::file(path)
            .with_flags(OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX)
            .with_init(|conn| {
                conn.set_prepared_statement_cache_capacity(64);
                conn.busy_timeout(Duration::from_secs(2))?;
                one_plan(conn)?;
                conn.execute_batch("PRAGMA query_only = ON; PRAGMA cache_size = -2000; PRAGMA mmap_size = 0")
            });
        // A reader never waits in the pool for longer than its connection would wait in SQLite.
        Ok(r2d2::Pool::builder()
            .thread_pool(HELPER.clone())
            .max_size(size)
            .min_idle(Some(idle))
            .connection_timeout(Duration::from_secs(3))
            .build(manager)?)
    };
    Ok(Pools { workers: pool(options.readers, 1)?, people: pool(3, 0)? })
}

/// The pragmas that every writing connection needs; they are of the connection, not of the file. What is deleted or moved
/// inside a page is overwritten at once (secure_delete = FAST: without one more write), so that erasing a person later
/// finds no stale copies. The file must be there.
pub fn connect(path: &Path, options: &Options) -> Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    #[cfg(not(feature = "faults"))]
    let conn = Connection::open_with_flags(path, flags)?;
    #[cfg(feature = "faults")]
    let conn = match options.faulty.vfs {
        Some(vfs) => Connection::open_with_flags_and_vfs(path, flags, vfs)?,
        None => Connection::open_with_flags(path, flags)?,
    };
    conn.set_prepared_statement_cache_capacity(128);
    conn.busy_timeout(options.lock_wait)?;
    one_plan(&conn)?;
    conn.execute_batch(
        "PRAGMA synchronous = FULL; PRAGMA foreign_keys = ON; PRAGMA recursive_triggers = ON;
         PRAGMA wal_autocheckpoint = 0; PRAGMA cache_size = -8000; PRAGMA temp_store = MEMORY;
         PRAGMA secure_delete = FAST",
    )?;
    #[cfg(feature = "faults")]
    if options.faulty.synchronous_normal {
        conn.execute_batch("PRAGMA synchronous = NORMAL")?;
        return Ok(conn);
    }
    let synchronous: i64 = conn.query_row("PRAGMA synchronous", [], |r| r.get(0))?;
    assert_eq!(synchronous, 2, "an acknowledgement promises a synced commit");
    foreign::guard(&conn)?;
    Ok(conn)
}

/// A statement keeps its plan whatever values are bound. Without it SQLite prepares a range over an index anew each time it
/// runs, which takes longer than running it; and the plans that are tested are those that run.
fn one_plan(conn: &Connection) -> rusqlite::Result<()> {
    conn.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true).map(|_| ())
}

/// What a name in the file system stands for now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Identity(u64, u64);

impl Identity {
    /// `None`: there is nothing under that name.
    pub fn of(path: &Path) -> Option<Identity> {
        use std::os::unix::fs::MetadataExt as _;
        fs::metadata(path).ok().map(|m| Identity(m.dev(), m.ino()))
    }
}

/// Free bytes on the disk of this path, for the user that we are.
pub fn free_bytes(path: &Path) -> Option<u64> {
    let folder = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    rustix::fs::statvfs(folder).ok().map(|s| s.f_bavail * s.f_frsize)
}

fn has_schema(conn: &Connection, path: &Path) -> Result<bool> {
    let sql = "SELECT EXISTS (SELECT 1 FROM sqlite_schema WHERE name = 'postonce_meta')";
    conn.query_row(sql, [], |r| r.get(0)).map_err(|e| match e.sqlite_error_code() {
        Some(rusqlite::ErrorCode::NotADatabase) => Error::refused(
            format!("{} is no SQLite file", path.display()),
            "name the file that `postonce serve` writes; if this was one, restore a backup (`postonce restore`)",
        ),
        _ => e.into(),
    })
}

fn refuse_folder(path: &Path) -> Result<()> {
    if fs::metadata(path).is_ok_and(|m| m.is_dir()) {
        return Err(Error::refused(format!("{} is a folder", path.display()), "name a file in it"));
    }
    Ok(())
}

/// SQLite counts its memory under a lock that every allocation of every thread takes, a tenth of a write's time, and nobody
/// here reads the count. And what it keeps at hand for each connection is made large enough for the registers of our
/// triggers, which otherwise are allocated at each row. Has to come before the first connection of the process; later it
/// changes nothing.
fn set_up_memory() {
    static ONCE: std::sync::Once = std::sync::Once::new();
    const AT_HAND: (std::ffi::c_int, std::ffi::c_int) = (4096, 64);
    // Safety: options without pointers, read by SQLite when it initialises.
    ONCE.call_once(|| unsafe {
        rusqlite::ffi::sqlite3_config(rusqlite::ffi::SQLITE_CONFIG_MEMSTATUS, 0);
        rusqlite::ffi::sqlite3_config(rusqlite::ffi::SQLITE_CONFIG_LOOKASIDE, AT_HAND.0, AT_HAND.1);
    });
}

fn refuse_old_sqlite() -> Result<()> {
    if rusqlite::version_number() < SQLITE_OLDEST.0 {
        return Err(Error::refused(
            format!("linked with SQLite {}, which can lose a committed write", rusqlite::version()),
            format!("build with rusqlite's `bundled` feature, or against SQLite {} or later", SQLITE_OLDEST.1),
        ));
    }
    Ok(())
}

fn refuse_other_schema(conn: &Connection, path: &Path) -> Result<()> {
    let version = meta(conn, "schema_version")?.and_then(|v| v.parse::<u32>().ok());
    match version {
        Some(SCHEMA_VERSION) => Ok(()),
        Some(newer) if newer > SCHEMA_VERSION => Err(Error::refused(
            format!(
                "{} was written by a newer postonce (schema {newer}; this one knows {SCHEMA_VERSION})",
                path.display()
            ),
            "install the newer version again; an older one never opens a newer file",
        )),
        other => Err(Error::refused(
            format!("{} has no readable schema version ({other:?})", path.display()),
            "restore a backup, or look at the table postonce_meta",
        )),
    }
}

/// WAL needs shared memory and locks that network and shared file systems do not give.
fn refuse_unsafe_file_system(path: &Path, options: &Options) -> Result<()> {
    match file_system(path) {
        Some(name) if !options.any_file_system => Err(Error::refused(
            format!("{} is on {name}, where SQLite's WAL can corrupt the file", path.display()),
            "move the database to a local disk; --any-file-system if you know better",
        )),
        _ => Ok(()),
    }
}

/// The name of a network or shared file system that holds this path; `None` for local ones.
pub fn file_system(path: &Path) -> Option<&'static str> {
    let folder = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let found = rustix::fs::statfs(folder).ok()?.f_type;
    let magic = fault::number("POSTONCE_FILE_SYSTEM", found as i64) as u64 & 0xffff_ffff;
    match magic {
        0x6969 => Some("NFS"),
        0xff53_4d42 | 0xfe53_4d42 => Some("a Windows share (SMB)"),
        0x0102_1997 => Some("9p"),
        0x6573_5546 => Some("FUSE or virtiofs"),
        _ => None,
    }
}

/// The file is made before SQLite would make it, readable by its owner only; WAL and shm inherit its mode.
fn make_private(path: &Path) -> Result<()> {
    let made = OpenOptions::new().create_new(true).write(true).mode(0o600).open(path);
    match made {
        Ok(_) => Ok(()),
        Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => refuse_folder(path),
        Err(e) => Err(Error::refused(
            format!("cannot make {}: {e}", path.display()),
            "check that the folder exists and belongs to the user that runs postonce",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pools_that_are_made_again_and_again_leave_no_threads_behind() {
        let folder = std::env::temp_dir().join(format!("postonce-pools-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let path = folder.join("x.db");
        Connection::open(&path).unwrap().execute_batch("CREATE TABLE t(x)").unwrap();
        let threads = || fs::read_dir("/proc/self/task").unwrap().count();
        let before = threads();
        for _ in 0..40 {
            let pools = readers(&path, &Options::default()).unwrap();
            pools.workers.get().unwrap().query_row("SELECT count(*) FROM t", [], |r| r.get::<_, i64>(0)).unwrap();
        }
        let after = threads();
        fs::remove_dir_all(&folder).unwrap();
        assert!(after < before + 40, "{before} threads before, {after} after");
    }
}
