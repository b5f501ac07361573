//! Rows of files: which file, under which stamp, holds which object.
//!
//! Folders are numbered once, so that a row of a million-file tree costs its name, its stamp
//! and its OID.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use rusqlite::{Connection, OptionalExtension, Row, params};
use towpath_content::Oid;
use towpath_content::pieces::Value;

use super::index::IndexOutcome;
use super::rows::{self, oid_at};
use super::uses::{self, Used, now};
use crate::hashing::Hashed;
use crate::stamp::Stamp;

/// A file whose content is known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileRecord {
    /// The folder, absolute and without symlinks.
    pub dir: PathBuf,
    /// The file's name in it.
    pub name: OsString,
    /// The stamp it has.
    pub stamp: Stamp,
    /// True if an equal stamp later proves equal content: it was settled when the content was
    /// read, or the caller itself wrote the file and gave it a modification time that is
    /// settled, which no other writer leaves in place. If false the file is served, but read again
    /// when it is put again.
    pub settled: bool,
    /// The content.
    pub oid: Oid,
    /// The values of its pieces, if it has more than one and they are at hand; else they are
    /// found by reading the file when first asked for.
    pub values: Option<Vec<Value>>,
}

impl FileRecord {
    /// The record of a file that was just hashed.
    pub fn new(dir: &Path, name: &OsStr, hashed: Hashed) -> Self {
        let Hashed { oid, stamp, settled, values } = hashed;
        Self { dir: dir.into(), name: name.into(), stamp, settled, oid, values }
    }
}

/// A file on record, as it was found in the index.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FileFound {
    pub(crate) dir: i64,
    pub(crate) path: PathBuf,
    pub(crate) stamp: Stamp,
}

/// The number of a folder that has one.
pub(crate) fn dir_number(conn: &Connection, path: &Path) -> IndexOutcome<Option<i64>> {
    let mut select = conn.prepare_cached("SELECT id FROM dirs WHERE path = ?")?;
    Ok(select.query_row([path.as_os_str().as_bytes()], |row| row.get(0)).optional()?)
}

/// Numbers folders, and remembers the last one: records come folder by folder.
#[derive(Default)]
pub(crate) struct DirNumbers {
    last: Option<(PathBuf, i64)>,
}

impl DirNumbers {
    fn number(&mut self, conn: &Connection, dir: &Path) -> IndexOutcome<i64> {
        if let Some((_, number)) = self.last.as_ref().filter(|(path, _)| path == dir) {
            return Ok(*number);
        }
        let number = match dir_number(conn, dir)? {
            Some(number) => {
                uses::write(conn, &[(Used::Dir(number), now())].into())?;
                number
            }
            None => {
                let mut insert = conn.prepare_cached("INSERT INTO dirs (path, used) VALUES (?, ?)")?;
                insert.insert(params![dir.as_os_str().as_bytes(), now()])?
            }
        };
        self.last = Some((dir.into(), number));
        Ok(number)
    }
}

fn stamp_at(row: &Row<'_>, first: usize) -> rusqlite::Result<Stamp> {
    let mut columns = [0; 5];
    for (at, column) in columns.iter_mut().enumerate() {
        *column = row.get(first + at)?;
    }
    Ok(Stamp::from_columns(columns))
}

struct Recorded {
    stamp: Stamp,
    is_settled: bool,
    oid: Oid,
}

fn recorded(conn: &Connection, dir: i64, name: &OsStr) -> IndexOutcome<Option<Recorded>> {
    let mut select = conn.prepare_cached(
        "SELECT dev, ino, size, mtime_ns, ctime_ns, settled, oid FROM files WHERE dir = ? AND name = ?",
    )?;
    let row = |row: &Row<'_>| {
        Ok(Recorded { stamp: stamp_at(row, 0)?, is_settled: row.get(5)?, oid: oid_at(row, 6)? })
    };
    Ok(select.query_row(params![dir, name.as_bytes()], row).optional()?)
}

/// The content of a file, if the stamp proves it.
pub(crate) fn known(conn: &Connection, dir: i64, name: &OsStr, stamp: &Stamp) -> IndexOutcome<Option<Oid>> {
    let recorded = recorded(conn, dir, name)?;
    Ok(recorded.filter(|found| found.is_settled && found.stamp == *stamp).map(|found| found.oid))
}

/// Records a file in place of what was known of that name.
pub(crate) fn record(conn: &Connection, dirs: &mut DirNumbers, record: &FileRecord) -> IndexOutcome<()> {
    let dir = dirs.number(conn, &record.dir)?;
    let before = recorded(conn, dir, &record.name)?;
    if let Some(values) = &record.values {
        rows::put_values(conn, &record.oid, values)?;
    }
    let is_same = |found: &Recorded| {
        found.stamp == record.stamp && found.oid == record.oid && found.is_settled >= record.settled
    };
    if before.as_ref().is_some_and(is_same) {
        return Ok(());
    }
    let [dev, ino, size, mtime, ctime] = record.stamp.to_columns();
    let (name, oid) = (record.name.as_bytes(), record.oid.to_bytes());
    let mut insert =
        conn.prepare_cached("INSERT OR REPLACE INTO files VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)")?;
    insert.execute(params![dir, name, dev, ino, size, mtime, ctime, record.settled, oid])?;
    match before.filter(|found| found.oid != record.oid) {
        Some(replaced) => rows::prune(conn, &replaced.oid),
        None => Ok(()),
    }
}

/// Some files that hold `oid`, at most `limit`.
pub(crate) fn holders(conn: &Connection, oid: &Oid, limit: usize) -> IndexOutcome<Vec<FileFound>> {
    let mut select = conn.prepare_cached(
        "SELECT dir, path, name, dev, ino, size, mtime_ns, ctime_ns
         FROM files JOIN dirs ON dirs.id = files.dir WHERE oid = ? LIMIT ?",
    )?;
    let found = select.query_map(params![oid.to_bytes(), limit], found_at)?;
    Ok(found.collect::<Result<_, _>>()?)
}

/// A row of a file.
#[derive(Debug)]
pub(crate) struct OnRecord {
    pub(crate) found: FileFound,
    pub(crate) oid: Oid,
}

/// The next files on record, at most `limit`, in the order of folder and name.
pub(crate) fn page(conn: &Connection, dir: i64, name: &OsStr, limit: usize) -> IndexOutcome<Vec<OnRecord>> {
    let mut select = conn.prepare_cached(
        "SELECT dir, path, name, dev, ino, size, mtime_ns, ctime_ns, oid
         FROM files JOIN dirs ON dirs.id = files.dir WHERE (dir, name) > (?, ?) ORDER BY dir, name LIMIT ?",
    )?;
    let row = |row: &Row<'_>| Ok(OnRecord { found: found_at(row)?, oid: oid_at(row, 8)? });
    let found = select.query_map(params![dir, name.as_bytes(), limit], row)?;
    Ok(found.collect::<Result<_, _>>()?)
}

fn found_at(row: &Row<'_>) -> rusqlite::Result<FileFound> {
    let (dir, name) = (row.get::<_, Vec<u8>>(1)?, row.get::<_, Vec<u8>>(2)?);
    let path = PathBuf::from(OsString::from_vec(dir)).join(OsString::from_vec(name));
    Ok(FileFound { dir: row.get(0)?, path, stamp: stamp_at(row, 3)? })
}

/// Forgets a file, unless it was recorded anew since it was found.
pub(crate) fn forget(conn: &Connection, oid: &Oid, found: &FileFound) -> IndexOutcome<()> {
    let mut delete = conn.prepare_cached(
        "DELETE FROM files WHERE dir = ? AND name = ? AND oid = ? AND dev = ? AND ino = ? AND size = ?
         AND mtime_ns = ? AND ctime_ns = ?",
    )?;
    let name = found.path.file_name().unwrap_or_default().as_bytes();
    let [dev, ino, size, mtime, ctime] = found.stamp.to_columns();
    delete.execute(params![found.dir, name, oid.to_bytes(), dev, ino, size, mtime, ctime])?;
    rows::prune(conn, oid)
}
