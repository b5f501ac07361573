//! Rows of objects, their piece values and the names bound to them.
//!
//! An object is complete while the store owns its bytes or a file with them is on record. The
//! files of a tree have no row here, only one in `files`: a row is for what cannot be told from
//! a file, that is, ownership and what the put said.

use rusqlite::types::Type;
use rusqlite::{Connection, OptionalExtension, Row, ToSql, params};
use towpath_content::Oid;
use towpath_content::pieces::{VALUE_LEN, Value};
use towpath_content::tree::Time;

use super::index::IndexOutcome;
use super::uses::now;
use crate::productions::IS_BOUND;
use crate::seam::{About, ObjectKind};

/// Place of the bytes that a store has itself of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OwnBytes {
    /// It has none.
    None,
    /// In a file of its own.
    File,
    /// In its byte store.
    Kept,
}

impl OwnBytes {
    const fn from_column(number: i64) -> Self {
        match number {
            0 => Self::None,
            2 => Self::Kept,
            _ => Self::File,
        }
    }

    const fn to_column(self) -> i64 {
        match self {
            Self::None => 0,
            Self::File => 1,
            Self::Kept => 2,
        }
    }
}

/// The index's row of a complete object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ObjectRow {
    pub(crate) size: u64,
    pub(crate) own: OwnBytes,
    pub(crate) about: About,
}

impl ObjectRow {
    /// True if the store has the bytes itself.
    pub(crate) fn is_owned(&self) -> bool {
        self.own != OwnBytes::None
    }
}

/// Reads an OID out of a column.
pub(crate) fn oid_at(row: &Row<'_>, column: usize) -> rusqlite::Result<Oid> {
    let bytes = row.get_ref(column)?.as_blob()?;
    Oid::from_bytes(bytes)
        .map_err(|error| rusqlite::Error::FromSqlConversionFailure(column, Type::Blob, Box::new(error)))
}

/// Reads five columns from `first` on.
pub(crate) fn about_at(row: &Row<'_>, first: usize) -> rusqlite::Result<About> {
    let kind = if row.get::<_, i64>(first)? == 0 { ObjectKind::Blob } else { ObjectKind::Tree };
    let seconds: Option<i64> = row.get(first + 3)?;
    let nanos: Option<u32> = row.get(first + 4)?;
    let modified = seconds.zip(nanos).map(|(seconds, nanos)| Time { seconds, nanos });
    Ok(About { kind, name: row.get(first + 1)?, mode: row.get(first + 2)?, modified })
}

/// The number that stands for a kind.
pub(crate) const fn kind_number(about: &About) -> i64 {
    match about.kind {
        ObjectKind::Blob => 0,
        ObjectKind::Tree => 1,
    }
}

/// The row of `oid`, if it is complete.
pub(crate) fn known(conn: &Connection, oid: &Oid) -> IndexOutcome<Option<ObjectRow>> {
    let mut select = conn.prepare_cached(
        "SELECT size, owned, kind, name, mode, modified_s, modified_ns FROM objects WHERE oid = ?",
    )?;
    let row = |row: &Row<'_>| {
        let (size, own) = (row.get(0)?, OwnBytes::from_column(row.get(1)?));
        Ok(ObjectRow { size, own, about: about_at(row, 2)? })
    };
    let found = select.query_row([oid.to_bytes()], row).optional()?;
    if found.as_ref().is_some_and(ObjectRow::is_owned) {
        return Ok(found);
    }
    let size = size_of_file(conn, oid)?;
    let about = found.map(|known| known.about).unwrap_or_default();
    Ok(size.map(|size| ObjectRow { size, own: OwnBytes::None, about }))
}

/// The size of an object whose bytes the store has itself, and where they are.
pub(crate) fn owned(conn: &Connection, oid: &Oid) -> IndexOutcome<Option<(u64, OwnBytes)>> {
    let mut select = conn.prepare_cached("SELECT size, owned FROM objects WHERE oid = ? AND owned > 0")?;
    let row = |row: &Row<'_>| Ok((row.get(0)?, OwnBytes::from_column(row.get(1)?)));
    Ok(select.query_row([oid.to_bytes()], row).optional()?)
}

/// True if the bytes of any object are in a byte store.
pub(crate) fn has_kept(conn: &Connection) -> IndexOutcome<bool> {
    Ok(conn.query_row("SELECT EXISTS (SELECT 1 FROM objects WHERE owned = 2)", [], |row| row.get(0))?)
}

fn size_of_file(conn: &Connection, oid: &Oid) -> IndexOutcome<Option<u64>> {
    let mut select = conn.prepare_cached("SELECT size FROM files WHERE oid = ? LIMIT 1")?;
    Ok(select.query_row([oid.to_bytes()], |row| row.get(0)).optional()?)
}

/// Adds an object or what is new about it; once owned it stays so, in the place that was told last.
pub(crate) fn put_object(conn: &Connection, oid: &Oid, known: &ObjectRow) -> IndexOutcome<()> {
    let mut upsert = conn.prepare_cached(
        "INSERT INTO objects (oid, size, owned, kind, name, mode, modified_s, modified_ns, used)
         VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)
         ON CONFLICT (oid) DO UPDATE SET owned = CASE excluded.owned WHEN 0 THEN owned ELSE excluded.owned END, kind = excluded.kind,
            name = excluded.name, mode = excluded.mode, modified_s = excluded.modified_s,
            modified_ns = excluded.modified_ns, used = max(used, excluded.used)",
    )?;
    let ObjectRow { size, own, about } = known;
    let (seconds, nanos) = (about.modified.map(|time| time.seconds), about.modified.map(|time| time.nanos));
    let start: [&dyn ToSql; 4] = [&oid.to_bytes(), size, &own.to_column(), &kind_number(about)];
    let end: [&dyn ToSql; 5] = [&about.name, &about.mode, &seconds, &nanos, &now()];
    upsert.execute(&[&start[..], &end[..]].concat()[..])?;
    Ok(())
}

/// The values of an object's pieces, if they are kept.
pub(crate) fn values(conn: &Connection, oid: &Oid) -> IndexOutcome<Option<Vec<Value>>> {
    let mut select = conn.prepare_cached("SELECT vals FROM piece_values WHERE oid = ?")?;
    let row = |row: &Row<'_>| Ok(row.get_ref(0)?.as_blob()?.as_chunks::<VALUE_LEN>().0.to_vec());
    Ok(select.query_row([oid.to_bytes()], row).optional()?)
}

/// Keeps the values of an object of more than one piece.
pub(crate) fn put_values(conn: &Connection, oid: &Oid, values: &[Value]) -> IndexOutcome<()> {
    if values.len() > 1 {
        let mut insert =
            conn.prepare_cached("INSERT OR REPLACE INTO piece_values (oid, vals) VALUES (?, ?)")?;
        insert.execute(params![oid.to_bytes(), values.as_flattened()])?;
    }
    Ok(())
}

/// Content that a live name is bound to, and its size.
pub(crate) fn binding(conn: &Connection, live: &Oid) -> IndexOutcome<Option<(Oid, u64)>> {
    let mut select = conn.prepare_cached("SELECT oid, size FROM bindings WHERE live = ?")?;
    Ok(select.query_row([live.to_bytes()], |row| Ok((oid_at(row, 0)?, row.get(1)?))).optional()?)
}

/// Binds a live name, for good, and tells its lease.
pub(crate) fn bind(conn: &Connection, live: &Oid, oid: &Oid, size: u64) -> IndexOutcome<()> {
    match binding(conn, live)? {
        Some((bound, _)) if bound != *oid => return Err(IS_BOUND.into()),
        Some(_) => {}
        None => {
            let mut insert =
                conn.prepare_cached("INSERT INTO bindings (live, oid, size) VALUES (?, ?, ?)")?;
            insert.execute(params![live.to_bytes(), oid.to_bytes(), size])?;
        }
    }
    let mut learn = conn.prepare_cached(
        "UPDATE leases SET content = ?2, size = coalesce(size, CASE kind WHEN 0 THEN ?3 END) WHERE oid = ?1",
    )?;
    learn.execute(params![live.to_bytes(), oid.to_bytes(), size])?;
    Ok(())
}

/// Gives up the store's own bytes of an object; true if it had any.
pub(crate) fn disown(conn: &Connection, oid: &Oid) -> IndexOutcome<bool> {
    let count = conn.execute("UPDATE objects SET owned = 0 WHERE oid = ? AND owned > 0", [oid.to_bytes()])?;
    prune(conn, oid)?;
    Ok(count > 0)
}

/// Removes what is kept about an object whose bytes can no longer be had.
pub(crate) fn prune(conn: &Connection, oid: &Oid) -> IndexOutcome<()> {
    if known(conn, oid)?.is_none() {
        conn.prepare_cached("DELETE FROM objects WHERE oid = ?")?.execute([oid.to_bytes()])?;
        conn.prepare_cached("DELETE FROM piece_values WHERE oid = ?")?.execute([oid.to_bytes()])?;
    }
    Ok(())
}
