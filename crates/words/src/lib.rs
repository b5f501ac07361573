//! Texts of errors, in the words of the local API: what happened, to which path or peer, and what
//! to do next. The crates below tell facts; this is the one place that speaks to people.
//!
//! | module | story |
//! |---|---|
//! | here | files, the store, fetching, the system |
//! | [`ssh`] | the way to another machine |
//! | [`copies`] | copies, and their single entries |

pub mod copies;
pub mod ssh;

use std::path::Path;
use std::time::{Duration, UNIX_EPOCH};

use towpath_api::{ApiError, ErrorKind};
use towpath_byte_store::ByteStoreError;
use towpath_files::{FileError, display_name, reason};
use towpath_store::StoreError;
use towpath_transfer::{FetchError, Outcome};

/// Advice on most of what ends a transfer.
const AGAIN: &str = "run the same command again: it goes on where it was";
/// The year 10000 in seconds since 1970.
const YEAR_10000: u64 = 253_402_300_800;
/// And about a full disk.
const FREE_SPACE: &str = "free some space and run the same command again";

/// An error of the place that the daemon keeps its own bytes in.
pub fn bytes(error: &ByteStoreError) -> ApiError {
    let message = error.to_string();
    let (kind, hint) = match error {
        ByteStoreError::NotHere => (ErrorKind::NotFound, ""),
        ByteStoreError::Denied { .. } => (
            ErrorKind::Refused,
            "check the credentials, and that they may read, write, list and delete there",
        ),
        ByteStoreError::Full { .. } => (
            ErrorKind::NoSpace,
            "make room there, or lower 'cache' in [store] and run 'tow gc'; then try again",
        ),
        ByteStoreError::Unreachable { .. } => {
            (ErrorKind::Unreachable, "check 'bytes_endpoint' in [store] and the network, and try again later")
        }
        ByteStoreError::Taken { .. } => {
            (ErrorKind::Refused, "give each daemon a prefix or directory of its own: 'bytes' in [store]")
        }
        ByteStoreError::Missing { .. } => (
            ErrorKind::NotFound,
            "make the bucket or mount the disk; if what was kept moved, name its new place as 'bytes' in [store]",
        ),
        ByteStoreError::Refused { .. } => (ErrorKind::Usage, ""),
        ByteStoreError::Input(source) => (io_kind(source), ""),
        ByteStoreError::Failed { source, .. } => {
            let message = format!("{message}: {source}");
            return ApiError::new(ErrorKind::Failed, message)
                .hint("check 'bytes' and what follows it in [store]");
        }
    };
    let error = ApiError::new(kind, message);
    if hint.is_empty() { error } else { error.hint(hint) }
}

/// An error of the store while working on `path`.
pub fn store(error: &StoreError) -> ApiError {
    let kind = match error {
        StoreError::NotHere | StoreError::NotYet => ErrorKind::NotFound,
        StoreError::SourceChanged { .. } => ErrorKind::Changed,
        StoreError::Corrupt { .. } => ErrorKind::Corrupt,
        StoreError::Refused { .. } => ErrorKind::Usage,
        StoreError::Bytes(error) => return bytes(error),
        StoreError::Io { source, .. } => io_kind(source),
    };
    let error = ApiError::new(kind, error.to_string());
    match kind {
        ErrorKind::Changed => error.hint("put it again when nothing writes to it"),
        ErrorKind::NoSpace => error.hint(FREE_SPACE),
        _ => error,
    }
}

/// An error of a file.
pub fn file(error: &FileError) -> ApiError {
    let message = error.to_string();
    match error {
        FileError::Exists { path, .. } => {
            let message = format!("{} is already there", display_name(path.as_os_str().as_encoded_bytes()));
            ApiError::new(ErrorKind::Exists, message)
                .hint("choose another name with -o, or remove what is there")
        }
        FileError::NoSpace { .. } => ApiError::new(ErrorKind::NoSpace, message).hint(FREE_SPACE),
        FileError::Vanished { .. } => ApiError::new(ErrorKind::NotFound, message),
        FileError::Permission { .. } => {
            ApiError::new(ErrorKind::Failed, message).hint("run it as a user who may write there")
        }
        FileError::Busy { .. } => {
            ApiError::new(ErrorKind::Failed, message).hint("another tow is writing there; wait for it to end")
        }
        _ => ApiError::new(ErrorKind::Failed, message),
    }
}

/// An error of a file that is read, or of one of many that are written.
pub fn source(error: &FileError) -> ApiError {
    let (message, kind) = (error.to_string(), ErrorKind::Failed);
    match error {
        FileError::Vanished { .. } | FileError::NotADirectory { .. } => {
            ApiError::new(ErrorKind::NotFound, message)
        }
        FileError::Permission { .. } => {
            ApiError::new(kind, message).hint("run it as a user who may, or change the permissions")
        }
        FileError::Changed { .. } => ApiError::new(ErrorKind::Changed, message)
            .hint("run the same command again when nothing writes to it"),
        FileError::Exists { .. } => ApiError::new(ErrorKind::Exists, message)
            .hint("something else made it meanwhile; run the same command again"),
        FileError::NoSpace { .. } | FileError::Busy { .. } => file(error),
        _ => ApiError::new(kind, message),
    }
}

/// An error of the system on `path`.
pub fn io(doing: &str, path: &Path, error: &std::io::Error) -> ApiError {
    use std::io::ErrorKind::{AlreadyExists, NotADirectory, NotFound, PermissionDenied, StorageFull};
    let is_plain =
        matches!(error.kind(), AlreadyExists | NotADirectory | NotFound | PermissionDenied | StorageFull);
    let doing = if is_plain { String::new() } else { format!("{doing} ") };
    let shown = display_name(path.as_os_str().as_encoded_bytes());
    ApiError::new(io_kind(error), format!("{doing}{shown}: {}", reason(error)))
}

fn io_kind(error: &std::io::Error) -> ErrorKind {
    match error.kind() {
        std::io::ErrorKind::NotFound => ErrorKind::NotFound,
        std::io::ErrorKind::AlreadyExists => ErrorKind::Exists,
        std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded => ErrorKind::NoSpace,
        _ => ErrorKind::Failed,
    }
}

/// A ticket that ended at this time, in seconds since 1970.
pub fn ticket_expired(end: u64) -> ApiError {
    let end = time(end).map(|end| format!(" at {end}")).unwrap_or_default();
    ApiError::new(ErrorKind::Refused, format!("the ticket expired{end}"))
        .hint("ask the sender for a new ticket; if the time is still to come, this machine's clock is wrong")
}

/// A ticket that its issuer took back.
pub fn ticket_withdrawn() -> ApiError {
    ApiError::new(ErrorKind::Refused, "the sender took the ticket back")
        .hint("ask the sender for a new ticket")
}

/// What a running share waits for whose ticket was taken back.
pub const WAITS_FOR_HOLDERS: &str =
    "those who hold the ticket: it was taken back, and they are told when they ask";

/// A running share whose ticket was taken back.
pub fn share_taken_back() -> ApiError {
    ApiError::new(ErrorKind::Refused, "the ticket was taken back ('tow done')")
        .hint("the same command gives a new ticket")
}

/// A ticket that nothing can take back.
pub fn ticket_holds_all() -> ApiError {
    ApiError::new(ErrorKind::Refused, "the ticket holds the file itself: it can't be taken back")
        .hint("interrupt its 'tow share'; with --expires or --no-swarm a ticket does not hold its file")
}

/// A time in seconds since 1970, for people: `2026-11-25 22:00:00 UTC`. `None` after the year 9999.
pub fn time(seconds: u64) -> Option<String> {
    let time = UNIX_EPOCH.checked_add(Duration::from_secs(seconds)).filter(|_| seconds < YEAR_10000)?;
    let text = humantime::format_rfc3339_seconds(time).to_string();
    Some(text.replace('T', " ").replace('Z', " UTC"))
}

/// Reason why an object could not be fetched.
pub fn fetch(error: &FetchError) -> ApiError {
    let message = error.to_string();
    match error {
        FetchError::Ended(Outcome::NotHere) => {
            ApiError::new(ErrorKind::NotFound, message).hint("is the sender still sharing it?")
        }
        FetchError::Ended(Outcome::Refused(why)) if why.starts_with("by ") => {
            ApiError::new(ErrorKind::Refused, message)
                .hint("a processor of this host or of the sender does not let it pass")
        }
        FetchError::Ended(Outcome::Refused(_)) => {
            ApiError::new(ErrorKind::Refused, message).hint("ask the sender for a new ticket")
        }
        FetchError::Ended(Outcome::SourceChanged) => ApiError::new(ErrorKind::Changed, message)
            .hint("ask the sender to put it again, and use the new ticket"),
        FetchError::Ended(_) => ApiError::new(ErrorKind::NotFound, message),
        FetchError::Stalled { .. } => ApiError::new(ErrorKind::Unreachable, message)
            .hint(format!("see that the sender runs and can be reached, then {AGAIN}")),
        FetchError::Bad { .. } | FetchError::BindingWrong | FetchError::Statement(_) => {
            ApiError::new(ErrorKind::Corrupt, message)
                .hint("nothing wrong was written; do not use this sender, or ask it to put the object again")
        }
        FetchError::NoValues => ApiError::new(ErrorKind::NotFound, message)
            .hint("nothing was written; name a source that knows the object, its sender for example"),
        FetchError::Write(error) => {
            let error = ApiError::new(io_kind(error), message);
            if error.kind == ErrorKind::NoSpace {
                error.hint(format!("free some space, then {AGAIN}"))
            } else {
                error
            }
        }
        FetchError::StartedOver => ApiError::new(ErrorKind::Changed, message).hint(AGAIN),
        FetchError::Abandoned => {
            ApiError::new(ErrorKind::Failed, message).hint("ask the sender for a new ticket")
        }
        FetchError::TooLarge(_) | FetchError::Cancelled => ApiError::new(ErrorKind::Failed, message),
    }
}
