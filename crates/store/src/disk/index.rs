//! The index: one SQLite file, how it is opened, and what its transactions promise.
//!
//! One connection writes, behind a lock; others, kept in a small pool, read beside it without
//! waiting (WAL). Several processes may use one index: write transactions take SQLite's lock at
//! their beginning and wait for each other up to ten seconds.
//!
//! [`Durability::Synced`] transactions are on the disk when they return, with everything before
//! them. [`Durability::Cached`] ones may be undone, newest first, by a power cut, though not by a
//! crash of the process: they hold what can be found out again by reading files.
//!
//! An index that is damaged is renamed aside, never deleted, and a new one begun. One that a newer
//! program wrote is left alone.

use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rusqlite::config::DbConfig;
use rusqlite::{Connection, ErrorCode, Transaction, TransactionBehavior};
use rustix::fs::FlockOperation;
use towpath_content::DecodeError;

use super::points;
use crate::error::StoreError;
use towpath_content::lock::lock;

/// The schema's version, kept in `user_version`.
const VERSION: u64 = 5;
const SCHEMA: &str = include_str!("schema.sql");
const FROM_1: &str = include_str!("from_1.sql");
const FROM_2: &str = include_str!("from_2.sql");
const BUSY_TIMEOUT: Duration = Duration::from_secs(10);
/// Idle reading connections kept; each takes up to some 2 MiB of cache.
const MAX_IDLE_READERS: usize = 8;
/// The writer's page cache in KiB; a large tree's rows go in faster with the hot pages at hand.
const WRITER_CACHE: i64 = 8 * 1024;

/// Protection of a transaction from a power cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Durability {
    /// It survives one.
    Synced,
    /// It survives one that does not come within seconds.
    Cached,
}

/// Faults inside a transaction.
#[derive(Debug)]
pub(crate) enum IndexFault {
    Sql(rusqlite::Error),
    Store(StoreError),
}

impl From<rusqlite::Error> for IndexFault {
    fn from(error: rusqlite::Error) -> Self {
        Self::Sql(error)
    }
}

impl From<StoreError> for IndexFault {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

/// Result of a part of a transaction.
pub(crate) type IndexOutcome<T> = Result<T, IndexFault>;

struct IndexWriter {
    connection: Connection,
    durability: Durability,
}

/// The open index.
pub(crate) struct ObjectIndex {
    path: PathBuf,
    writer: Mutex<IndexWriter>,
    readers: Mutex<Vec<Connection>>,
}

impl ObjectIndex {
    /// Opens the index in `dir`, or begins one.
    pub(crate) fn open(dir: &Path) -> Result<Self, StoreError> {
        let path = dir.join("index.db");
        // Held until the schema stands, so that no two processes rename or create at once.
        let _guard = open_lock(&dir.join("index.lock"))?;
        if marker(&path).exists() {
            set_aside(&path)?;
        }
        let connection = match open_writer(&path) {
            Err(IndexFault::Sql(error)) if is_damage(&error) => {
                tracing::warn!(path = %path.display(), %error, "the index is damaged");
                set_aside(&path)?;
                open_writer(&path)
            }
            result => result,
        };
        let connection = connection.map_err(|fault| explain(&path, "opening", fault))?;
        let writer = Mutex::new(IndexWriter { connection, durability: Durability::Cached });
        Ok(Self { path, writer, readers: Mutex::default() })
    }

    /// Runs look-ups on a connection of their own.
    pub(crate) fn read<T>(
        &self,
        what: &str,
        look_up: impl FnOnce(&Connection) -> IndexOutcome<T>,
    ) -> Result<T, StoreError> {
        let reader = self.reader().map_err(|error| self.fail("opening", error.into()))?;
        let result = look_up(&reader).map_err(|fault| self.fail(what, fault));
        let mut idle = lock(&self.readers);
        if idle.len() < MAX_IDLE_READERS {
            idle.push(reader);
        }
        result
    }

    fn reader(&self) -> rusqlite::Result<Connection> {
        let idle = lock(&self.readers).pop();
        idle.map_or_else(|| connect(&self.path), Ok)
    }

    /// Runs one transaction; an error undoes it.
    pub(crate) fn write<T>(
        &self,
        durability: Durability,
        what: &str,
        change: impl FnOnce(&Transaction<'_>) -> IndexOutcome<T>,
    ) -> Result<T, StoreError> {
        let mut writer = lock(&self.writer);
        writer.transact(durability, change).map_err(|fault| self.fail(what, fault))
    }

    /// True if a damaged index lies beside this one, or will.
    pub(crate) fn has_damaged(&self) -> Result<bool, StoreError> {
        let folder = self.path.parent().unwrap_or(Path::new("/"));
        let is_aside = |name: OsString| name.as_encoded_bytes().starts_with(b"index.db.damaged-");
        let names: io::Result<Vec<_>> = std::fs::read_dir(folder)
            .and_then(|entries| entries.map(|entry| entry.map(|entry| entry.file_name())).collect());
        let names = names.map_err(|error| StoreError::io("listing", folder, error))?;
        Ok(marker(&self.path).exists() || names.into_iter().any(is_aside))
    }

    /// Explains a fault. Damage found on the way is marked, and the index set aside at the next
    /// start: others may be using it now.
    fn fail(&self, what: &str, fault: IndexFault) -> StoreError {
        if matches!(&fault, IndexFault::Sql(error) if is_damage(error)) {
            tracing::error!(path = %self.path.display(), "the index is damaged; restart to begin it anew");
            if let Err(error) = File::create(marker(&self.path)) {
                tracing::warn!(%error, "the damage could not be marked");
            }
        }
        explain(&self.path, what, fault)
    }
}

impl IndexWriter {
    fn transact<T>(
        &mut self,
        durability: Durability,
        change: impl FnOnce(&Transaction<'_>) -> IndexOutcome<T>,
    ) -> IndexOutcome<T> {
        if self.durability != durability {
            let level = if durability == Durability::Synced { "FULL" } else { "NORMAL" };
            self.connection.pragma_update(None, "synchronous", level)?;
            self.durability = durability;
        }
        let transaction = self.connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let result = change(&transaction)?;
        points::pass("before a commit");
        transaction.commit()?;
        points::pass("after a commit");
        Ok(result)
    }
}

pub(super) fn open_lock(path: &Path) -> Result<File, StoreError> {
    let file = private_file(path).map_err(|error| StoreError::io("opening", path, error))?;
    rustix::fs::flock(&file, FlockOperation::LockExclusive)
        .map_err(|error| StoreError::io("locking", path, error.into()))?;
    Ok(file)
}

/// Opens or creates a file that nobody else may read: leases hold secrets.
pub(super) fn private_file(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(path)
}

fn open_writer(path: &Path) -> IndexOutcome<Connection> {
    // SQLite gives its journal files the mode of this one.
    private_file(path).map_err(|error| StoreError::io("opening", path, error))?;
    let mut connection = connect(path)?;
    connection.pragma_update(None, "cache_size", -WRITER_CACHE)?;
    connection.pragma_update(None, "journal_size_limit", 64 << 20)?;
    let found: u64 = connection.pragma_query_value(None, "user_version", |row| row.get::<_, u32>(0))?.into();
    match found {
        0 => convert(&mut connection, SCHEMA)?,
        1 => convert(&mut connection, &[FROM_1, FROM_2].concat())?,
        2 => convert(&mut connection, FROM_2)?,
        // Only leases of tickets with terms, and objects in a byte store, differ; older programs made none.
        3 | 4 => convert(&mut connection, "")?,
        VERSION => probe(&connection)?,
        found => return Err(newer(path, found, VERSION).into()),
    }
    Ok(connection)
}

pub(super) fn connect(path: &Path) -> rusqlite::Result<Connection> {
    let connection = Connection::open(path)?;
    connection.busy_timeout(BUSY_TIMEOUT)?;
    connection.pragma_update_and_check(None, "journal_mode", "WAL", |_| Ok(()))?;
    connection.pragma_update(None, "synchronous", "NORMAL")?;
    connection.set_prepared_statement_cache_capacity(64);
    // Else each execution of a statement with `LIMIT ?` would be planned for the number given.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    Ok(connection)
}

/// Brings the index to the present version, wholly or not at all.
fn convert(connection: &mut Connection, steps: &str) -> IndexOutcome<()> {
    connection.pragma_update(None, "synchronous", "FULL")?;
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Exclusive)?;
    transaction.execute_batch(steps)?;
    transaction.pragma_update(None, "user_version", VERSION as u32)?;
    points::pass("before a conversion");
    transaction.commit()?;
    Ok(connection.pragma_update(None, "synchronous", "NORMAL")?)
}

/// Touches the root of every table, which finds a file that is cut off or overwritten. A full
/// check would read the whole index at every start.
fn probe(connection: &Connection) -> rusqlite::Result<()> {
    for table in ["dirs", "files", "objects", "piece_values", "bindings", "leases", "boundaries", "chunks"] {
        let mut statement = connection.prepare(&format!("SELECT * FROM {table} LIMIT 1"))?;
        statement.query([])?.next()?;
    }
    Ok(())
}

pub(super) fn newer(path: &Path, found: u64, known: u64) -> StoreError {
    let version = DecodeError::Version { field: "the index", found, known };
    StoreError::io("opening", path, io::Error::new(io::ErrorKind::Unsupported, version))
}

pub(super) fn is_damage(error: &rusqlite::Error) -> bool {
    let code = error.sqlite_error_code();
    let is_missing_table = error.to_string().contains("no such table");
    is_missing_table || matches!(code, Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase))
}

fn marker(path: &Path) -> PathBuf {
    path.with_extension("damaged")
}

/// Renames the index and its journal to a name of the present second.
fn set_aside(path: &Path) -> Result<(), StoreError> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let name = |n: u32| with_suffix(path, &format!(".damaged-{now}-{n}"));
    let aside = (0..).map(name).find(|name| !name.exists()).unwrap_or_else(|| name(0));
    tracing::warn!(kept = %aside.display(), "beginning a new index; the old one is kept");
    for suffix in ["", "-wal", "-shm"] {
        rename_if_there(&with_suffix(path, suffix), &with_suffix(&aside, suffix))?;
    }
    match std::fs::remove_file(marker(path)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(StoreError::io("removing", &marker(path), error))
        }
        _ => Ok(()),
    }
}

pub(super) fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

fn rename_if_there(from: &Path, to: &Path) -> Result<(), StoreError> {
    match std::fs::rename(from, to) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(StoreError::io("renaming", from, error)),
        _ => Ok(()),
    }
}

pub(super) fn explain(path: &Path, what: &str, fault: IndexFault) -> StoreError {
    match fault {
        IndexFault::Store(error) => error,
        IndexFault::Sql(error) => {
            let kind = match error.sqlite_error_code() {
                Some(ErrorCode::DiskFull) => io::ErrorKind::StorageFull,
                Some(ErrorCode::DatabaseBusy) => io::ErrorKind::WouldBlock,
                Some(ErrorCode::ReadOnly) => io::ErrorKind::ReadOnlyFilesystem,
                _ => io::ErrorKind::Other,
            };
            StoreError::Io {
                what: format!("index {}: {what}", path.display()),
                source: io::Error::new(kind, error),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use rusqlite::StatementStatus;

    use super::*;

    fn files(dir: &Path) -> Vec<String> {
        let names = std::fs::read_dir(dir).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<_> = names.filter(|name| name.contains("damaged")).collect();
        names.sort();
        names
    }

    fn count_dirs(index: &ObjectIndex) -> i64 {
        let count = "SELECT count(*) FROM dirs";
        index.read("test", |conn| Ok(conn.query_row(count, [], |row| row.get(0))?)).unwrap()
    }

    fn add_dir(index: &ObjectIndex, durability: Durability) {
        let add = |t: &Transaction<'_>| Ok(t.execute("INSERT INTO dirs (path) VALUES (x'2f')", [])?);
        index.write(durability, "test", add).unwrap();
    }

    #[test]
    fn what_was_written_is_there_after_reopening_and_in_a_second_process() {
        let dir = tempfile::tempdir().unwrap();
        let index = ObjectIndex::open(dir.path()).unwrap();
        add_dir(&index, Durability::Synced);
        let second = ObjectIndex::open(dir.path()).unwrap();
        assert_eq!((count_dirs(&index), count_dirs(&second)), (1, 1));
        assert!(files(dir.path()).is_empty());
    }

    /// SQLite planned a look-up anew each time, for the number of rows that were asked for.
    #[test]
    fn a_look_up_with_a_limit_is_planned_once() {
        let dir = tempfile::tempdir().unwrap();
        let index = ObjectIndex::open(dir.path()).unwrap();
        let planned = index.read("test", |conn| {
            let mut select = conn.prepare_cached("SELECT id FROM dirs WHERE path = ? LIMIT ?")?;
            for limit in [7, 7, 8] {
                select.query((b"/".as_slice(), limit))?.next()?;
            }
            Ok(select.get_status(StatementStatus::RePrepare))
        });
        assert_eq!(planned.unwrap(), 0);
    }

    #[test]
    fn an_error_undoes_the_whole_transaction() {
        let dir = tempfile::tempdir().unwrap();
        let index = ObjectIndex::open(dir.path()).unwrap();
        let half = index.write(Durability::Synced, "test", |t| {
            t.execute("INSERT INTO dirs (path) VALUES (x'2f')", [])?;
            Err::<(), _>(StoreError::NotHere.into())
        });
        assert!(matches!(half, Err(StoreError::NotHere)));
        assert_eq!(count_dirs(&index), 0);
    }

    #[test]
    fn a_damaged_index_is_kept_aside_and_a_new_one_begun() {
        let dir = tempfile::tempdir().unwrap();
        add_dir(&ObjectIndex::open(dir.path()).unwrap(), Durability::Synced);
        let garbage = vec![0xaa; 9000];
        std::fs::write(dir.path().join("index.db"), &garbage).unwrap();
        assert_eq!(count_dirs(&ObjectIndex::open(dir.path()).unwrap()), 0);
        let kept = files(dir.path());
        assert_eq!(std::fs::read(dir.path().join(&kept[0])).unwrap(), garbage);
    }

    #[test]
    fn damage_found_while_running_is_set_aside_at_the_next_start() {
        let dir = tempfile::tempdir().unwrap();
        let index = ObjectIndex::open(dir.path()).unwrap();
        add_dir(&index, Durability::Synced);
        let missing = index.read("test", |conn| Ok(conn.query_row("SELECT * FROM gone", [], |_| Ok(()))?));
        assert!(missing.is_err());
        assert_eq!(files(dir.path()), ["index.damaged"]);
        drop(index);
        assert_eq!(count_dirs(&ObjectIndex::open(dir.path()).unwrap()), 0);
        assert!(files(dir.path()).iter().any(|name| name.starts_with("index.db.damaged-")));
        assert_eq!(count_dirs(&ObjectIndex::open(dir.path()).unwrap()), 0, "and only once");
    }

    #[test]
    fn an_index_of_version_2_is_converted() {
        let dir = tempfile::tempdir().unwrap();
        let index = ObjectIndex::open(dir.path()).unwrap();
        add_dir(&index, Durability::Synced);
        let back = |t: &Transaction<'_>| {
            t.execute_batch("DROP TABLE boundaries")?;
            Ok(t.pragma_update(None, "user_version", 2)?)
        };
        index.write(Durability::Synced, "test", back).unwrap();
        drop(index);
        let index = ObjectIndex::open(dir.path()).unwrap();
        assert_eq!(count_dirs(&index), 1);
        let look = |conn: &Connection| {
            Ok(conn.query_row("SELECT COUNT(*) FROM boundaries", [], |row| row.get::<_, u32>(0))?)
        };
        assert_eq!(index.read("test", look).unwrap(), 0);
        assert!(files(dir.path()).is_empty());
    }

    #[test]
    fn an_index_of_a_newer_program_is_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let index = ObjectIndex::open(dir.path()).unwrap();
        index.write(Durability::Synced, "test", |t| Ok(t.pragma_update(None, "user_version", 9)?)).unwrap();
        drop(index);
        let error = ObjectIndex::open(dir.path()).err().unwrap().to_string();
        assert!(error.contains("version 9, this program knows 5"), "{error}");
        assert!(files(dir.path()).is_empty());
    }

    #[test]
    fn nobody_else_may_read_the_index_or_its_journal() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().unwrap();
        let index = ObjectIndex::open(dir.path()).unwrap();
        add_dir(&index, Durability::Synced);
        for name in ["index.db", "index.db-wal"] {
            let mode = std::fs::metadata(dir.path().join(name)).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o600, "{name}");
        }
    }
}
