//! What can go wrong while operating, as types that say what to try.
//!
//! Mistakes of the program itself are no errors: they crash, and recovery takes over.

/// The result of what may fail while operating.
pub type Result<T> = std::result::Result<T, Error>;

/// An operating error: what happened, to what, and (by [`Error::hint`]) what to try.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// SQLite refused.
    #[error("{}", sqlite_text(.0))]
    Sqlite(#[from] rusqlite::Error),
    /// No reading connection could be had in time.
    #[error("no reading connection could be had: {0}")]
    Pool(#[from] r2d2::Error),
    /// The queue of bodies waiting for the disk is full.
    #[error("the queue before the disk is full")]
    QueueFull,
    /// The storage is stopping, or is being opened again after a failure.
    #[error("the storage is not available: {0}")]
    Unavailable(String),
    /// A worker's claim was taken by the sweep before it could commit.
    #[error("the claim was taken by somebody else")]
    LostClaim,
    /// An apply held the write lock longer than its budget and was interrupted.
    #[error("the apply ran longer than its budget of {0} ms and was interrupted")]
    OverBudget(u64),
    /// A batch that ran without savepoints met something to undo: it is undone whole and runs again with them.
    #[error("the batch runs again, one event at a time")]
    Again,
    /// Something a person has to mend: what, and what to try.
    #[error("{what}")]
    Refused {
        /// What happened, to what.
        what: String,
        /// What to try.
        hint: String,
    },
    /// The apply failed; it is tried again.
    #[error("{0}")]
    Apply(String),
    /// The program of an embedder or a rule said no, for good: trying again will not help.
    #[error("{0}")]
    Reject(String),
    /// The apply lacks something (a customer's row, a table that is being rebuilt): set aside, without counting as a
    /// failed attempt.
    #[error("{why}")]
    Parked {
        /// What is missing.
        why: String,
        /// It will come by itself: look again. Otherwise a person does.
        again: bool,
    },
    /// It says something else than what took effect under the same key: for a person.
    #[error("{0}")]
    Conflict(String),
    /// Code that is not ours ended the transaction, or SQLite did because of it.
    #[error("the transaction was lost: {0}")]
    LostTransaction(String),
}

impl Error {
    /// A refusal with its way out.
    pub fn refused(what: impl Into<String>, hint: impl Into<String>) -> Error {
        Error::Refused { what: what.into(), hint: hint.into() }
    }

    /// Sets an event aside.
    pub fn parked(why: impl Into<String>, again: bool) -> Error {
        Error::Parked { why: why.into(), again }
    }

    /// What to try, where there is something.
    pub fn hint(&self) -> Option<&str> {
        match self {
            Error::Refused { hint, .. } => Some(hint),
            Error::Sqlite(e) => match e.sqlite_error_code()? {
                rusqlite::ErrorCode::DiskFull => {
                    Some("free space on the disk of the database; nothing acknowledged is lost")
                }
                rusqlite::ErrorCode::DatabaseBusy | rusqlite::ErrorCode::DatabaseLocked => {
                    Some("another program holds the write lock: see who has the file open (`fuser FILE`)")
                }
                rusqlite::ErrorCode::ReadOnly
                | rusqlite::ErrorCode::PermissionDenied
                | rusqlite::ErrorCode::CannotOpen => {
                    Some("check that the file and its folder belong to the user that runs postonce")
                }
                rusqlite::ErrorCode::NotADatabase | rusqlite::ErrorCode::DatabaseCorrupt => {
                    Some("restore a backup (`postonce restore`), or look at it with `sqlite3 FILE .recover`")
                }
                _ => None,
            },
            _ => None,
        }
    }

    /// Did another connection hold the write lock for longer than we may wait?
    pub fn is_busy(&self) -> bool {
        matches!(self, Error::Sqlite(e) if matches!(e.sqlite_error_code(),
            Some(rusqlite::ErrorCode::DatabaseBusy | rusqlite::ErrorCode::DatabaseLocked)))
    }

    /// Has the disk (or a limit on it) no room?
    pub fn is_disk_full(&self) -> bool {
        matches!(self, Error::Sqlite(e) if e.sqlite_error_code() == Some(rusqlite::ErrorCode::DiskFull))
    }

    /// May what the file or the page cache holds differ from what we think? Then the connection must go.
    pub fn taints_connection(&self) -> bool {
        use rusqlite::ErrorCode::*;
        matches!(self, Error::Sqlite(e) if matches!(e.sqlite_error_code(),
            Some(SystemIoFailure | DatabaseCorrupt | NotADatabase | ReadOnly | CannotOpen | OutOfMemory | InternalMalfunction)))
    }
}

/// How the work of an embedder says that it cannot be done.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ApplyError {
    /// Not now: it is tried again with back-off, and given up after ten attempts. What `?` makes of other errors, and
    /// what a panic counts as.
    #[error("{0}")]
    Retry(String),
    /// Never: trying again will not help. The event is dead at once, and a person looks at it.
    #[error("{0}")]
    Reject(String),
}

impl From<ApplyError> for Error {
    fn from(error: ApplyError) -> Error {
        match error {
            ApplyError::Retry(why) => Error::Apply(why),
            ApplyError::Reject(why) => Error::Reject(why),
        }
    }
}

impl From<Error> for ApplyError {
    fn from(error: Error) -> ApplyError {
        match error {
            Error::Reject(why) | Error::Conflict(why) => ApplyError::Reject(why),
            other => ApplyError::Retry(other.to_string()),
        }
    }
}

impl From<&str> for ApplyError {
    fn from(why: &str) -> ApplyError {
        ApplyError::Retry(why.to_owned())
    }
}

impl From<String> for ApplyError {
    fn from(why: String) -> ApplyError {
        ApplyError::Retry(why)
    }
}

impl From<rusqlite::Error> for ApplyError {
    fn from(error: rusqlite::Error) -> ApplyError {
        ApplyError::Retry(sqlite_text(&error))
    }
}

impl From<serde_json::Error> for ApplyError {
    fn from(error: serde_json::Error) -> ApplyError {
        ApplyError::Retry(error.to_string())
    }
}

impl From<std::io::Error> for ApplyError {
    fn from(error: std::io::Error) -> ApplyError {
        ApplyError::Retry(error.to_string())
    }
}

fn sqlite_text(e: &rusqlite::Error) -> String {
    match e {
        rusqlite::Error::SqliteFailure(code, Some(text)) => format!("{text} (SQLite {})", code.extended_code),
        other => other.to_string(),
    }
}
