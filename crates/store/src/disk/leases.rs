//! Rows of leases, and what giving one back removes.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

use rusqlite::{Connection, OptionalExtension, Row, ToSql, params};
use towpath_content::Oid;
use towpath_content::ticket::Secret;

use super::index::Outcome;
use super::rows::{self, about_at, kind_number, oid_at};
use crate::seam::Lease;

/// Records or replaces a lease; what its name is bound to is filled in.
pub(crate) fn put(conn: &Connection, lease: &Lease) -> Outcome<()> {
    let mut upsert = conn.prepare_cached(
        "INSERT INTO leases
            (oid, content, size, secret, path, kind, name, mode, modified_s, modified_ns, created)
         VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
         ON CONFLICT (oid) DO UPDATE SET content = excluded.content, size = excluded.size,
            secret = excluded.secret, path = excluded.path, kind = excluded.kind, name = excluded.name,
            mode = excluded.mode, modified_s = excluded.modified_s, modified_ns = excluded.modified_ns,
            created = excluded.created",
    )?;
    let mut lease = lease.clone();
    if let Some((content, size)) = rows::binding(conn, &lease.oid)? {
        lease.learn(content, size);
    }
    let about = &lease.about;
    let content = lease.content.map(|content| content.to_bytes());
    let path = lease.path.as_ref().map(|path| path.as_os_str().as_bytes());
    let (seconds, nanos) = (about.modified.map(|time| time.seconds), about.modified.map(|time| time.nanos));
    let start: [&dyn ToSql; 5] = [&lease.oid.to_bytes(), &content, &lease.size, &lease.secret.0, &path];
    let end: [&dyn ToSql; 6] =
        [&kind_number(about), &about.name, &about.mode, &seconds, &nanos, &lease.created];
    upsert.execute(&[&start[..], &end[..]].concat()[..])?;
    Ok(())
}

/// All leases, oldest first.
pub(crate) fn all(conn: &Connection) -> Outcome<Vec<Lease>> {
    let mut select = conn.prepare_cached(
        "SELECT oid, content, size, secret, path, kind, name, mode, modified_s, modified_ns, created
         FROM leases ORDER BY created, id",
    )?;
    Ok(select.query_map([], lease_at)?.collect::<Result<_, _>>()?)
}

fn lease_at(row: &Row<'_>) -> rusqlite::Result<Lease> {
    let has_content = row.get_ref(1)?.as_blob_or_null()?.is_some();
    let path: Option<Vec<u8>> = row.get(4)?;
    Ok(Lease {
        oid: oid_at(row, 0)?,
        content: if has_content { Some(oid_at(row, 1)?) } else { None },
        size: row.get(2)?,
        secret: Secret(row.get(3)?),
        path: path.map(|path| PathBuf::from(OsString::from_vec(path))),
        about: about_at(row, 5)?,
        created: row.get(10)?,
    })
}

/// What a lease that was given back held.
#[derive(Debug)]
pub(crate) struct Released {
    /// The lease's name.
    pub(crate) name: Oid,
    /// The object, if nothing else holds it.
    pub(crate) unheld: Option<Oid>,
}

/// Removes the lease of that name, else the oldest of that content, and the name's binding.
pub(crate) fn take(conn: &Connection, oid: &Oid) -> Outcome<Option<Released>> {
    let select = "SELECT id, oid FROM leases WHERE oid = ?1 OR content = ?1
                  ORDER BY oid <> ?1, created, id LIMIT 1";
    let row = |row: &Row<'_>| Ok((row.get::<_, i64>(0)?, oid_at(row, 1)?));
    let Some((id, name)) = conn.query_row(select, [oid.to_bytes()], row).optional()? else {
        return Ok(None);
    };
    let content =
        if name.is_live() { rows::binding(conn, &name)?.map(|(content, _)| content) } else { Some(name) };
    conn.execute("DELETE FROM leases WHERE id = ?", [id])?;
    conn.execute("DELETE FROM bindings WHERE live = ?", [name.to_bytes()])?;
    let unheld = match content {
        Some(content) if !is_held(conn, &content)? => Some(content),
        _ => None,
    };
    Ok(Some(Released { name, unheld }))
}

fn is_held(conn: &Connection, content: &Oid) -> Outcome<bool> {
    let select = "SELECT EXISTS (SELECT 1 FROM leases WHERE oid = ?1 OR content = ?1)";
    Ok(conn.query_row(select, [content.to_bytes()], |row| row.get(0))?)
}

/// Removes the names bound to an object that is not here any more.
pub(crate) fn unbind(conn: &Connection, content: &Oid) -> Outcome<()> {
    if rows::known(conn, content)?.is_none() {
        conn.execute("DELETE FROM bindings WHERE oid = ?", params![content.to_bytes()])?;
    }
    Ok(())
}
