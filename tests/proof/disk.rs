//! A disk under our control: a shim over SQLite's own VFS that notes every write and sync of the files of one database,
//! makes them fail on demand, and builds what a power cut at any moment could have left.
//!
//! Writes go through to the real files, so that other connections see them; what is durable is a matter of the notes. The
//! shared memory beside the file is not noted: a power cut takes it. Never used outside of tests.

use rand::rngs::StdRng;
use rand::seq::SliceRandom as _;
use rand::{Rng as _, RngExt as _, SeedableRng as _};
use rusqlite::ffi;
use std::collections::{BTreeMap, HashMap};
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::fs;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, Ordering::SeqCst};
use std::sync::{LazyLock, Mutex};

/// What a disk writes in one piece.
const SECTOR: usize = 512;

/// One thing that was asked of the disk; `file` is the end of its name: "", "-wal", "-journal".
#[derive(Clone, Debug)]
pub enum Op {
    Write {
        file: &'static str,
        at: usize,
        data: Vec<u8>,
    },
    Truncate {
        file: &'static str,
        size: usize,
    },
    Sync {
        file: &'static str,
    },
    Delete {
        file: &'static str,
    },
    /// The folder: what was deleted stays deleted.
    SyncFolder,
}

impl Op {
    fn file(&self) -> &'static str {
        match self {
            Op::Write { file, .. } | Op::Truncate { file, .. } | Op::Sync { file } | Op::Delete { file } => file,
            Op::SyncFolder => "/",
        }
    }
}

/// What becomes of the writes that no sync covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// All are there: a kill.
    Keeps,
    /// None is.
    Drops,
    /// Any of them, in any order, torn at any sector.
    Shuffles,
}

/// A disk, registered as a VFS under its name for as long as the process lives.
pub struct Disk {
    pub name: &'static str,
    base: *mut ffi::sqlite3_vfs,
    ops: Mutex<Vec<Op>>,
    /// The nth sync from now fails with EIO; what it should have covered is gone from the page cache too.
    pub fail_sync_in: AtomicI64,
    /// The nth write from now fails with EIO.
    pub fail_write_in: AtomicI64,
    /// No write finds room.
    pub full: AtomicBool,
    /// No write is allowed.
    pub read_only: AtomicBool,
    /// Every sync says that it is done, and is not.
    pub lies: AtomicBool,
}

// The base VFS is SQLite's own and lives as long as the process.
unsafe impl Send for Disk {}
unsafe impl Sync for Disk {}

/// A file that SQLite has open through a disk of ours, by its address.
#[derive(Clone, Copy)]
struct Opened {
    disk: &'static Disk,
    file: &'static str,
    path: &'static Path,
    methods: *const ffi::sqlite3_io_methods,
    /// It was made by this opening: SQLite's own VFS syncs the folder with its first sync.
    new: &'static AtomicBool,
}

unsafe impl Send for Opened {}

static OPEN: LazyLock<Mutex<HashMap<usize, Opened>>> = LazyLock::new(Mutex::default);

impl Disk {
    /// A new one.
    pub fn register() -> &'static Disk {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name: &'static CStr =
            Box::leak(CString::new(format!("disk{}", NEXT.fetch_add(1, SeqCst))).unwrap().into_boxed_c_str());
        // Also sees to it that SQLite is initialised.
        drop(rusqlite::Connection::open_in_memory().unwrap());
        let base = unsafe { ffi::sqlite3_vfs_find(std::ptr::null()) };
        assert!(!base.is_null());
        let disk: &'static Disk = Box::leak(Box::new(Disk {
            name: name.to_str().unwrap(),
            base,
            ops: Mutex::default(),
            fail_sync_in: AtomicI64::new(0),
            fail_write_in: AtomicI64::new(0),
            full: AtomicBool::new(false),
            read_only: AtomicBool::new(false),
            lies: AtomicBool::new(false),
        }));
        let mut vfs = unsafe { *base };
        vfs.pNext = std::ptr::null_mut();
        vfs.zName = name.as_ptr();
        vfs.pAppData = std::ptr::from_ref(disk).cast_mut().cast();
        vfs.xOpen = Some(open);
        vfs.xDelete = Some(delete);
        let code = unsafe { ffi::sqlite3_vfs_register(Box::leak(Box::new(vfs)), 0) };
        assert_eq!(code, ffi::SQLITE_OK);
        disk
    }

    /// How much was asked of it.
    pub fn moment(&self) -> usize {
        self.ops.lock().unwrap().len()
    }

    /// All that was asked of it.
    pub fn ops(&self) -> Vec<Op> {
        self.ops.lock().unwrap().clone()
    }

    /// Forgets what was asked of it, which it would keep for as long as it is registered.
    pub fn forget(&self) {
        *self.ops.lock().unwrap() = Vec::new();
    }

    /// All is well again.
    pub fn heal(&self) {
        self.fail_sync_in.store(0, SeqCst);
        self.fail_write_in.store(0, SeqCst);
        self.full.store(false, SeqCst);
        self.read_only.store(false, SeqCst);
    }

    fn note(&self, op: Op) {
        self.ops.lock().unwrap().push(op);
    }

    /// Does the countdown end here?
    fn strikes(countdown: &AtomicI64) -> bool {
        countdown.load(SeqCst) > 0 && countdown.fetch_sub(1, SeqCst) == 1
    }
}

/// The files of one database as a power cut leaves them.
pub type Image = BTreeMap<&'static str, Vec<u8>>;

/// Replays notes and builds images at rising moments.
pub struct Replay {
    ops: Vec<Op>,
    at: usize,
    durable: Image,
    pending: Vec<Op>,
    lies: bool,
}

impl Replay {
    /// From the beginning. A lying disk forgets every sync.
    pub fn of(ops: Vec<Op>, lies: bool) -> Replay {
        Replay { ops, at: 0, durable: Image::new(), pending: Vec::new(), lies }
    }

    /// From files that were there before.
    pub fn on(durable: Image, ops: Vec<Op>) -> Replay {
        Replay { ops, at: 0, durable, pending: Vec::new(), lies: false }
    }

    /// How many notes there are.
    pub fn len(&self) -> usize {
        self.ops.len()
    }

    /// Goes on to a moment: what a sync covered until then is durable.
    pub fn advance(&mut self, moment: usize) {
        while self.at < moment {
            let op = self.ops[self.at].clone();
            self.at += 1;
            match op {
                Op::Sync { .. } | Op::SyncFolder if self.lies => {}
                Op::Sync { file } => self.make_durable(|op| op.file() == file && !matches!(op, Op::Delete { .. })),
                Op::SyncFolder => self.make_durable(|op| matches!(op, Op::Delete { .. })),
                other => self.pending.push(other),
            }
        }
    }

    fn make_durable(&mut self, covered: impl Fn(&Op) -> bool) {
        let (covered, pending): (Vec<Op>, Vec<Op>) = std::mem::take(&mut self.pending).into_iter().partition(covered);
        self.pending = pending;
        covered.iter().for_each(|op| apply(&mut self.durable, op));
    }

    /// What a power cut now could leave.
    pub fn image(&self, cut: Cut, seed: u64) -> Image {
        let mut image = self.durable.clone();
        match cut {
            Cut::Drops => {}
            Cut::Keeps => self.pending.iter().for_each(|op| apply(&mut image, op)),
            Cut::Shuffles => {
                let mut rng = StdRng::seed_from_u64(seed);
                let mut pending = self.pending.clone();
                // A file that was deleted and made anew is another file: the old one is there with nothing of the new, or
                // the new one alone.
                while let Some(at) = pending.iter().position(|op| matches!(op, Op::Delete { .. })) {
                    let file = pending[at].file();
                    let gone = rng.random_bool(0.5);
                    if gone {
                        image.remove(file);
                    }
                    let mut n = 0;
                    pending.retain(|op| {
                        n += 1;
                        op.file() != file || (n - 1 < at) != gone && n - 1 != at
                    });
                }
                let mut pieces: Vec<Op> = pending.iter().flat_map(sectors).collect();
                if rng.random_bool(0.5) {
                    pieces.shuffle(&mut rng);
                }
                let share = [0.05, 0.5, 0.95][rng.random_range(0..3)];
                pieces.iter().filter(|_| rng.random_bool(share)).for_each(|op| apply(&mut image, op));
            }
        }
        image
    }
}

fn apply(image: &mut Image, op: &Op) {
    match op {
        Op::Write { file, at, data } => {
            let bytes = image.entry(file).or_default();
            bytes.resize(bytes.len().max(at + data.len()), 0);
            bytes[*at..at + data.len()].copy_from_slice(data);
        }
        Op::Truncate { file, size } => image.entry(file).or_default().resize(*size, 0),
        Op::Delete { file } => drop(image.remove(file)),
        Op::Sync { .. } | Op::SyncFolder => {}
    }
}

/// A write in the pieces that a disk writes whole.
fn sectors(op: &Op) -> Vec<Op> {
    let Op::Write { file, at, data } = op else { return vec![op.clone()] };
    let mut pieces = Vec::new();
    let mut from = 0;
    while from < data.len() {
        let to = (from + SECTOR - (at + from) % SECTOR).min(data.len());
        pieces.push(Op::Write { file, at: at + from, data: data[from..to].to_vec() });
        from = to;
    }
    pieces
}

/// Puts an image under a name.
pub fn lay_out(image: &Image, database: &Path) {
    for file in ["", "-wal", "-journal", "-shm", "-postonce.lock"] {
        let _ = fs::remove_file(beside(database, file));
    }
    for (file, bytes) in image {
        fs::write(beside(database, file), bytes).unwrap();
    }
}

/// A file beside the database.
pub fn beside(database: &Path, end: &str) -> PathBuf {
    PathBuf::from(format!("{}{end}", database.display()))
}

/// Which of the files we note; the name's end.
fn noted(flags: c_int) -> Option<&'static str> {
    if flags & ffi::SQLITE_OPEN_MAIN_DB != 0 {
        Some("")
    } else if flags & ffi::SQLITE_OPEN_WAL != 0 {
        Some("-wal")
    } else if flags & ffi::SQLITE_OPEN_MAIN_JOURNAL != 0 {
        Some("-journal")
    } else {
        None
    }
}

unsafe fn disk_of(vfs: *mut ffi::sqlite3_vfs) -> &'static Disk {
    unsafe { &*(*vfs).pAppData.cast::<Disk>() }
}

unsafe extern "C" fn open(
    vfs: *mut ffi::sqlite3_vfs,
    name: ffi::sqlite3_filename,
    file: *mut ffi::sqlite3_file,
    flags: c_int,
    out: *mut c_int,
) -> c_int {
    unsafe {
        let disk = disk_of(vfs);
        let there = !name.is_null() && CStr::from_ptr(name).to_str().is_ok_and(|path| Path::new(path).exists());
        let code = (*disk.base).xOpen.unwrap()(disk.base, name, file, flags, out);
        let (Some(end), false) = (noted(flags), name.is_null()) else { return code };
        if code != ffi::SQLITE_OK || (*file).pMethods.is_null() {
            return code;
        }
        let path: &'static Path = Box::leak(PathBuf::from(CStr::from_ptr(name).to_str().unwrap()).into_boxed_path());
        let methods = (*file).pMethods;
        let new = Box::leak(Box::new(AtomicBool::new(!there)));
        OPEN.lock().unwrap().insert(file as usize, Opened { disk, file: end, path, methods, new });
        let mut ours = *methods;
        ours.xClose = Some(close);
        ours.xWrite = Some(write);
        ours.xTruncate = Some(truncate);
        ours.xSync = Some(sync);
        (*file).pMethods = Box::leak(Box::new(ours));
        code
    }
}

unsafe extern "C" fn delete(vfs: *mut ffi::sqlite3_vfs, name: *const c_char, sync_folder: c_int) -> c_int {
    unsafe {
        let disk = disk_of(vfs);
        let path = CStr::from_ptr(name).to_str().unwrap();
        if let Some(file) = ["-wal", "-journal"].into_iter().find(|end| path.ends_with(end)) {
            disk.note(Op::Delete { file });
            if sync_folder != 0 {
                disk.note(Op::SyncFolder);
            }
        }
        (*disk.base).xDelete.unwrap()(disk.base, name, sync_folder)
    }
}

fn opened(file: *mut ffi::sqlite3_file) -> Opened {
    OPEN.lock().unwrap()[&(file as usize)]
}

unsafe extern "C" fn close(file: *mut ffi::sqlite3_file) -> c_int {
    unsafe {
        let opened = OPEN.lock().unwrap().remove(&(file as usize)).unwrap();
        (*file).pMethods = opened.methods;
        (*opened.methods).xClose.unwrap()(file)
    }
}

unsafe extern "C" fn write(file: *mut ffi::sqlite3_file, data: *const c_void, count: c_int, at: i64) -> c_int {
    unsafe {
        let Opened { disk, file: end, methods, .. } = opened(file);
        if disk.full.load(SeqCst) {
            return ffi::SQLITE_FULL;
        }
        if disk.read_only.load(SeqCst) {
            return ffi::SQLITE_READONLY;
        }
        if Disk::strikes(&disk.fail_write_in) {
            return ffi::SQLITE_IOERR_WRITE;
        }
        let code = (*methods).xWrite.unwrap()(file, data, count, at);
        if code == ffi::SQLITE_OK {
            let data = std::slice::from_raw_parts(data.cast::<u8>(), count as usize).to_vec();
            disk.note(Op::Write { file: end, at: at as usize, data });
        }
        code
    }
}

unsafe extern "C" fn truncate(file: *mut ffi::sqlite3_file, size: i64) -> c_int {
    unsafe {
        let Opened { disk, file: end, methods, .. } = opened(file);
        if disk.read_only.load(SeqCst) {
            return ffi::SQLITE_IOERR_TRUNCATE;
        }
        let code = (*methods).xTruncate.unwrap()(file, size);
        if code == ffi::SQLITE_OK {
            disk.note(Op::Truncate { file: end, size: size as usize });
        }
        code
    }
}

unsafe extern "C" fn sync(file: *mut ffi::sqlite3_file, _flags: c_int) -> c_int {
    let Opened { disk, file: end, path, new, .. } = opened(file);
    if Disk::strikes(&disk.fail_sync_in) {
        forget_unsynced(disk, end, path);
        return ffi::SQLITE_IOERR_FSYNC;
    }
    if new.swap(false, SeqCst) {
        disk.note(Op::SyncFolder); // before: what was under that name until then is another file
    }
    disk.note(Op::Sync { file: end });
    ffi::SQLITE_OK
}

/// After a failed fsync the kernel marks the pages clean and may drop them: what was written is gone, without a word.
fn forget_unsynced(disk: &Disk, file: &'static str, path: &Path) {
    let mut ops = disk.ops.lock().unwrap();
    let since = ops.iter().rposition(|op| matches!(op, Op::Sync { file: f } if *f == file)).map_or(0, |at| at + 1);
    let mut durable = Image::new();
    ops[..since].iter().filter(|op| op.file() == file).for_each(|op| apply(&mut durable, op));
    let bytes = durable.remove(file).unwrap_or_default();
    // Not through rename or truncate to zero: the file is open and must stay the same one.
    let real = fs::OpenOptions::new().write(true).open(path).unwrap();
    real.write_all_at(&bytes, 0).unwrap();
    real.set_len(bytes.len() as u64).unwrap();
    let mut at = 0;
    ops.retain(|op| {
        at += 1;
        at <= since || op.file() != file
    });
}

/// A seed for this run: given, or new; printed, so that a failure can be repeated.
pub fn seed() -> u64 {
    let seed = std::env::var("POSTONCE_SEED")
        .ok()
        .and_then(|s| s.parse().ok())
        .unwrap_or_else(|| rand::rng().next_u64() >> 16);
    eprintln!("POSTONCE_SEED={seed}");
    seed
}

/// Is this the long run?
pub fn long() -> bool {
    std::env::var("POSTONCE_LONG").is_ok_and(|v| !v.is_empty() && v != "0")
}
