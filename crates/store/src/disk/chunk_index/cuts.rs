//! Rows of files that were cut, with their totals, and which of them go first.

use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use rusqlite::{Connection, OptionalExtension, Row, params};
use towpath_content::chunking::Parameters;

use super::pending::Cut;
use super::{ChunkLimits, ChunkTotals, KnownFile};
use crate::disk::uses::now;
use crate::stamp::Stamp;

type Result<T> = rusqlite::Result<T>;

fn split(path: &Path) -> (&[u8], &[u8]) {
    let dir = path.parent().unwrap_or(Path::new("/")).as_os_str().as_bytes();
    (dir, path.file_name().unwrap_or_default().as_bytes())
}

/// The number of a folder that has one.
fn dir_number(conn: &Connection, dir: &[u8]) -> Result<Option<i64>> {
    conn.prepare_cached("SELECT id FROM dirs WHERE path = ?")?.query_row([dir], |row| row.get(0)).optional()
}

fn number_dir(conn: &Connection, dir: &[u8]) -> Result<i64> {
    match dir_number(conn, dir)? {
        Some(number) => Ok(number),
        None => conn.prepare_cached("INSERT INTO dirs (path) VALUES (?)")?.insert([dir]),
    }
}

/// Writes down a file in place of what was known of it under another stamp; returns its number.
pub(super) fn add(conn: &Connection, cut: &Cut) -> Result<u64> {
    let (dir, name) = split(&cut.path);
    let dir = number_dir(conn, dir)?;
    let parameters = cut.parameters.to_bytes();
    let [dev, ino, size, mtime, ctime] = cut.stamp.to_columns();
    let mut replaced = conn.prepare_cached(
        "DELETE FROM cuts WHERE dir = ?1 AND name = ?2 AND (parameters = ?3
         OR (dev, ino, size, mtime_ns, ctime_ns) <> (?4, ?5, ?6, ?7, ?8)) RETURNING chunks",
    )?;
    let gone =
        replaced.query_map(params![dir, name, parameters, dev, ino, size, mtime, ctime], |row| row.get(0))?;
    drop_from_totals(conn, &gone.collect::<Result<Vec<u64>>>()?)?;
    let mut insert = conn.prepare_cached(
        "INSERT INTO cuts (dir, name, parameters, dev, ino, size, mtime_ns, ctime_ns, settled, chunks, used)
         VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
    )?;
    let Cut { settled, chunks, .. } = cut;
    let id = insert.insert(params![
        dir,
        name,
        parameters,
        dev,
        ino,
        size,
        mtime,
        ctime,
        settled,
        chunks,
        now()
    ])?;
    let mut count = conn.prepare_cached("UPDATE totals SET files = files + 1, chunks = chunks + ?")?;
    count.execute([chunks])?;
    Ok(id as u64)
}

/// Forgets a file.
pub(super) fn forget(conn: &Connection, path: &Path) -> Result<()> {
    let (dir, name) = split(path);
    let Some(dir) = dir_number(conn, dir)? else { return Ok(()) };
    let mut delete = conn.prepare_cached("DELETE FROM cuts WHERE dir = ? AND name = ? RETURNING chunks")?;
    let gone = delete.query_map(params![dir, name], |row| row.get(0))?.collect::<Result<Vec<u64>>>()?;
    drop_from_totals(conn, &gone)
}

fn drop_from_totals(conn: &Connection, gone: &[u64]) -> Result<()> {
    let mut count = conn.prepare_cached("UPDATE totals SET files = files - ?, chunks = chunks - ?")?;
    if gone.is_empty() {
        Ok(())
    } else {
        count.execute(params![gone.len(), gone.iter().sum::<u64>()]).map(drop)
    }
}

/// The number of a file that was cut like this, if its stamp proves that it is as it was.
pub(super) fn find(conn: &Connection, path: &Path, stamp: &Stamp, by: &Parameters) -> Result<Option<u64>> {
    let (dir, name) = split(path);
    let Some(dir) = dir_number(conn, dir)? else { return Ok(None) };
    let mut select = conn.prepare_cached(
        "SELECT dev, ino, size, mtime_ns, ctime_ns, id FROM cuts
         WHERE dir = ? AND name = ? AND parameters = ? AND settled = 1",
    )?;
    let row = |row: &Row<'_>| Ok((stamp_at(row)?, row.get(5)?));
    let found: Option<(Stamp, u64)> = select.query_row(params![dir, name, by.to_bytes()], row).optional()?;
    Ok(found.filter(|(found, _)| found == stamp).map(|(_, id)| id))
}

fn stamp_at(row: &Row<'_>) -> Result<Stamp> {
    let mut columns = [0; 5];
    for (at, column) in columns.iter_mut().enumerate() {
        *column = row.get(at)?;
    }
    Ok(Stamp::from_columns(columns))
}

/// The file with this number.
pub(super) fn file(conn: &Connection, id: u64) -> Result<Option<KnownFile>> {
    let mut select = conn.prepare_cached(
        "SELECT dev, ino, size, mtime_ns, ctime_ns, path, name FROM cuts JOIN dirs ON dirs.id = cuts.dir
         WHERE cuts.id = ?",
    )?;
    let row = |row: &Row<'_>| {
        let dir = PathBuf::from(OsString::from_vec(row.get(5)?));
        let path = dir.join(OsStr::from_bytes(row.get_ref(6)?.as_blob()?));
        Ok((path.into(), stamp_at(row)?))
    };
    select.query_row([id], row).optional()
}

/// Totals of what there is.
pub(super) fn totals(conn: &Connection) -> Result<ChunkTotals> {
    let row = |row: &Row<'_>| Ok(ChunkTotals { files: row.get(0)?, chunks: row.get(1)? });
    conn.prepare_cached("SELECT files, chunks FROM totals")?.query_row([], row)
}

/// The numbers of all files, in order.
pub(super) fn numbers(conn: &Connection) -> Result<Vec<u64>> {
    conn.prepare_cached("SELECT id FROM cuts ORDER BY id")?.query_map([], |row| row.get(0))?.collect()
}

/// Writes down that files were used.
pub(super) fn note_used(conn: &Connection, used: &HashSet<u64>, when: u64) -> Result<()> {
    let mut update = conn.prepare_cached("UPDATE cuts SET used = max(used, ?2) WHERE id = ?1")?;
    used.iter().try_for_each(|id| update.execute(params![id, when]).map(drop))
}

/// Forgets files, unused longest first, if there is more than `limits`; a sixteenth more than need
/// be, so that this comes seldom.
pub(super) fn evict(conn: &Connection, limits: &ChunkLimits) -> Result<()> {
    let mut left = totals(conn)?;
    if left.chunks <= limits.chunks && left.files <= limits.files {
        return Ok(());
    }
    let (chunks, files) = (limits.chunks - limits.chunks / 16, limits.files - limits.files / 16);
    let mut select = conn.prepare("SELECT id, chunks FROM cuts ORDER BY used, id")?;
    let mut rows = select.query([])?;
    let mut gone = Vec::new();
    while left.chunks > chunks || left.files > files {
        let Some(row) = rows.next()? else { break };
        let (id, count): (u64, u64) = (row.get(0)?, row.get(1)?);
        gone.push((id, count));
        left = ChunkTotals { files: left.files.saturating_sub(1), chunks: left.chunks.saturating_sub(count) };
    }
    drop(rows);
    let mut delete = conn.prepare_cached("DELETE FROM cuts WHERE id = ?")?;
    gone.iter().try_for_each(|(id, _)| delete.execute([id]).map(drop))?;
    drop_from_totals(conn, &gone.iter().map(|(_, count)| *count).collect::<Vec<_>>())?;
    conn.execute("DELETE FROM dirs WHERE id NOT IN (SELECT dir FROM cuts)", []).map(drop)
}
