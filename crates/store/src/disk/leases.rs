//! Rows of leases and of the names that go with them.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

use rusqlite::types::Type;
use rusqlite::{Connection, OptionalExtension, Row, ToSql};
use towpath_content::Oid;
use towpath_content::ticket::BoundSecret;

use super::index::IndexOutcome;
use super::rows::{self, about_at, kind_number, oid_at};
use crate::leases::{Holder, Lease};

/// Records or replaces a lease; what its name is bound to is filled in. `owner` names the process
/// that it ends with: always, if it is of a session, else unless its put was committed.
pub(crate) fn put(conn: &Connection, lease: &Lease, owner: Option<&str>) -> IndexOutcome<()> {
    let mut upsert = conn.prepare_cached(
        "INSERT INTO leases
            (oid, content, size, secret, path, kind, name, mode, modified_s, modified_ns, created,
             session, owner)
         VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
         ON CONFLICT (oid) DO UPDATE SET content = excluded.content, size = excluded.size,
            secret = excluded.secret, path = excluded.path, kind = excluded.kind, name = excluded.name,
            mode = excluded.mode, modified_s = excluded.modified_s, modified_ns = excluded.modified_ns,
            created = excluded.created, session = excluded.session, owner = excluded.owner",
    )?;
    let mut lease = lease.clone();
    if let Some((content, size)) = rows::binding(conn, &lease.oid)? {
        lease.learn(content, size);
    }
    let about = &lease.about;
    let content = lease.content.map(|content| content.to_bytes());
    let path = lease.path.as_ref().map(|path| path.as_os_str().as_bytes());
    let (seconds, nanos) = (about.modified.map(|time| time.seconds), about.modified.map(|time| time.nanos));
    let session = match &lease.holder {
        Holder::Pinned => None,
        Holder::Session(number) => Some(number),
    };
    let start: [&dyn ToSql; 5] =
        [&lease.oid.to_bytes(), &content, &lease.size, &lease.secret.to_bytes(), &path];
    let said: [&dyn ToSql; 5] = [&kind_number(about), &about.name, &about.mode, &seconds, &nanos];
    let end: [&dyn ToSql; 3] = [&lease.created, &session, &owner];
    upsert.execute(&[&start[..], &said[..], &end[..]].concat()[..])?;
    Ok(())
}

/// All leases, oldest first.
pub(crate) fn all(conn: &Connection) -> IndexOutcome<Vec<Lease>> {
    let mut select = conn.prepare_cached(
        "SELECT oid, content, size, secret, path, kind, name, mode, modified_s, modified_ns, created,
            session
         FROM leases ORDER BY created, id",
    )?;
    Ok(select.query_map([], lease_at)?.collect::<Result<_, _>>()?)
}

fn lease_at(row: &Row<'_>) -> rusqlite::Result<Lease> {
    let has_content = row.get_ref(1)?.as_blob_or_null()?.is_some();
    let path: Option<Vec<u8>> = row.get(4)?;
    let session: Option<[u8; 16]> = row.get(11)?;
    Ok(Lease {
        oid: oid_at(row, 0)?,
        content: if has_content { Some(oid_at(row, 1)?) } else { None },
        size: row.get(2)?,
        secret: secret_at(row, 3)?,
        path: path.map(|path| PathBuf::from(OsString::from_vec(path))),
        about: about_at(row, 5)?,
        created: row.get(10)?,
        holder: session.map_or(Holder::Pinned, Holder::Session),
    })
}

fn secret_at(row: &Row<'_>, column: usize) -> rusqlite::Result<BoundSecret> {
    BoundSecret::from_bytes(&row.get::<_, Vec<u8>>(column)?)
        .map_err(|error| rusqlite::Error::FromSqlConversionFailure(column, Type::Blob, Box::new(error)))
}

/// Notes the size of what a lease names.
pub(crate) fn set_size(conn: &Connection, name: &Oid, size: u64) -> IndexOutcome<()> {
    let mut update = conn.prepare_cached("UPDATE leases SET size = ? WHERE oid = ?")?;
    update.execute((size, name.to_bytes()))?;
    Ok(())
}

/// Notes where chunks of what a lease names are to end; nothing if it was given back.
pub(crate) fn set_boundaries(conn: &Connection, name: &Oid, ends: &[u64]) -> IndexOutcome<()> {
    let ends: Vec<u8> = ends.iter().flat_map(|end| end.to_le_bytes()).collect();
    let mut insert = conn.prepare_cached(
        "INSERT OR REPLACE INTO boundaries (oid, ends) SELECT oid, ?2 FROM leases WHERE oid = ?1",
    )?;
    insert.execute((name.to_bytes(), ends))?;
    Ok(())
}

/// Boundaries that [`set_boundaries`] noted.
pub(crate) fn boundaries(conn: &Connection, name: &Oid) -> IndexOutcome<Vec<u64>> {
    let mut select = conn.prepare_cached("SELECT ends FROM boundaries WHERE oid = ?")?;
    let ends: Option<Vec<u8>> = select.query_row([name.to_bytes()], |row| row.get(0)).optional()?;
    let ends = ends.unwrap_or_default();
    Ok(ends.as_chunks::<8>().0.iter().map(|end| u64::from_le_bytes(*end)).collect())
}

/// Forgets what [`set_boundaries`] noted.
pub(crate) fn clear_boundaries(conn: &Connection, name: &Oid) -> IndexOutcome<()> {
    conn.prepare_cached("DELETE FROM boundaries WHERE oid = ?")?.execute([name.to_bytes()])?;
    Ok(())
}

/// Removes the lease of that name, else the oldest of that content, and the name's binding;
/// returns the name.
pub(crate) fn take(conn: &Connection, oid: &Oid) -> IndexOutcome<Option<Oid>> {
    let select = "SELECT oid FROM leases WHERE oid = ?1 OR content = ?1
                  ORDER BY oid <> ?1, created, id LIMIT 1";
    let name = conn.query_row(select, [oid.to_bytes()], |row| oid_at(row, 0)).optional()?;
    name.iter().try_for_each(|name| remove(conn, name))?;
    Ok(name)
}

/// Removes the leases of a session and their names' bindings; returns the names, oldest first.
pub(crate) fn take_session(conn: &Connection, session: &[u8; 16]) -> IndexOutcome<Vec<Oid>> {
    take_all(conn, "SELECT oid FROM leases WHERE session = ? ORDER BY created, id", session)
}

/// Removes the leases that end with a process; returns their names, oldest first.
pub(crate) fn take_owned(conn: &Connection, owner: &str) -> IndexOutcome<Vec<Oid>> {
    let select = "SELECT oid FROM leases WHERE owner = ? AND (session IS NOT NULL OR content IS NULL)
                  ORDER BY created, id";
    take_all(conn, select, &owner)
}

fn take_all(conn: &Connection, select: &str, of: &dyn ToSql) -> IndexOutcome<Vec<Oid>> {
    let names = conn.prepare_cached(select)?.query_map([of], |row| oid_at(row, 0))?.collect::<Result<_, _>>();
    let names: Vec<Oid> = names?;
    names.iter().try_for_each(|name| remove(conn, name))?;
    Ok(names)
}

fn remove(conn: &Connection, name: &Oid) -> IndexOutcome<()> {
    conn.prepare_cached("DELETE FROM leases WHERE oid = ?")?.execute([name.to_bytes()])?;
    conn.prepare_cached("DELETE FROM bindings WHERE live = ?")?.execute([name.to_bytes()])?;
    clear_boundaries(conn, name)
}

/// The processes that leases end with.
pub(crate) fn owners(conn: &Connection) -> IndexOutcome<Vec<String>> {
    let mut select = conn.prepare_cached(
        "SELECT DISTINCT owner FROM leases
         WHERE owner IS NOT NULL AND (session IS NOT NULL OR content IS NULL)",
    )?;
    Ok(select.query_map([], |row| row.get(0))?.collect::<Result<_, _>>()?)
}

/// True if a lease names the object.
pub(crate) fn is_held(conn: &Connection, content: &Oid) -> IndexOutcome<bool> {
    let select = "SELECT EXISTS (SELECT 1 FROM leases WHERE oid = ?1 OR content = ?1)";
    Ok(conn.prepare_cached(select)?.query_row([content.to_bytes()], |row| row.get(0))?)
}

/// Removes the names bound to an object that is not here any more.
pub(crate) fn unbind(conn: &Connection, content: &Oid) -> IndexOutcome<()> {
    if rows::known(conn, content)?.is_none() {
        conn.prepare_cached("DELETE FROM bindings WHERE oid = ?")?.execute([content.to_bytes()])?;
    }
    Ok(())
}
