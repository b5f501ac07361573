//! Puts: bytes streamed into a file of the store's own, and files referred to where they lie.

use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::Arc;

use rusqlite::Connection;
use towpath_content::Oid;
use towpath_content::pieces::{self, Layout, Value};

use super::files::{self, DirNumbers, FileRecord};
use super::folders::Temporary;
use super::incoming::{IncomingBody, Referred};
use super::index::{Durability, IndexOutcome};
use super::parts::DiskStore;
use super::points;
use super::rows::{self, ObjectRow};
use crate::error::StoreError;
use crate::hashing::{Hashed, LIVE_PIECE, hash_open_file, hash_pieces};
use crate::productions::{Finished, IS_BOUND, NOT_LIVE, NOT_OPEN, Production, TOO_LONG};
use crate::seam::About;
use crate::spans::OUTSIDE;
use crate::stamp::Stamp;

type DiskPut = Arc<Production<IncomingBody>>;

impl DiskStore {
    pub(super) fn begin(&self, live: &Oid, about: &About) -> Result<(), StoreError> {
        if self.binding(live)?.is_some() {
            return Err(IS_BOUND);
        }
        let body = IncomingBody::Streamed(self.folders.temporary()?);
        self.productions.begin(live, about, body)?;
        self.notices.changed(live);
        Ok(())
    }

    pub(super) fn commit(&self, live: &Oid) -> Result<Oid, StoreError> {
        let Some(put) = self.productions.get(live) else {
            return self.binding(live)?.map(|(content, _)| content).ok_or(NOT_OPEN);
        };
        let IncomingBody::Streamed(temporary) = &put.body else {
            return Err(NOT_OPEN);
        };
        let Finished { oid, layout, values } = put.finish()?;
        let object = ObjectRow { size: layout.size(), is_owned: true, about: put.about.clone() };
        let _given =
            put.given(object.size).and_then(|lengths| self.try_keep_given(&oid, &lengths, temporary));
        let is_new = self.own(temporary, Some(live), &oid, &object, &values)?;
        self.finished(Some(live), &oid, is_new);
        Ok(oid)
    }

    /// Boundaries are advice: an object is not to fail for want of them.
    fn try_keep_given(&self, oid: &Oid, lengths: &[u32], incoming: &Temporary) -> Option<Temporary> {
        let kept = self.keep_given(oid, lengths, incoming);
        kept.inspect_err(|error| tracing::warn!(%error, "boundaries of chunks were not kept")).ok()
    }

    /// Makes a temporary the store's own copy of an object; true if it was not complete before.
    fn own(
        &self,
        temporary: &Temporary,
        live: Option<&Oid>,
        oid: &Oid,
        object: &ObjectRow,
        values: &[Value],
    ) -> Result<bool, StoreError> {
        temporary.sync(object.size)?;
        points::pass("after the bytes were synced");
        self.index.write(Durability::Synced, "committing an object", |t| {
            temporary.publish(&self.folders.object(oid))?;
            let is_new = rows::known(t, oid)?.is_none();
            rows::put_object(t, oid, object)?;
            rows::put_values(t, oid, values)?;
            live.map_or(Ok(()), |live| rows::bind(t, live, oid, object.size))?;
            Ok(is_new)
        })
    }

    /// Takes a file from [`Self::incoming`] as an object that nobody leases, without copying it.
    /// Its bytes were checked by the caller; `values` are those of all its pieces, also if there
    /// is only one. It is on the disk when this returns.
    pub fn adopt(
        &self,
        incoming: Temporary,
        oid: &Oid,
        size: u64,
        values: &[Value],
        about: &About,
    ) -> Result<(), StoreError> {
        let count = Layout::of(size).map_err(|_| OUTSIDE)?.count();
        if values.len() as u64 != count || pieces::oid_of(values) != *oid {
            return Err(StoreError::Refused { why: "the values do not lead to the object" });
        }
        let found = incoming.file().metadata();
        let found = found.map_err(|error| StoreError::io("looking at", incoming.path(), error))?;
        if found.len() != size {
            return Err(StoreError::Refused { why: "the file does not have the object's size" });
        }
        let object = ObjectRow { size, is_owned: true, about: about.clone() };
        let is_new = self.own(&incoming, None, oid, &object, values)?;
        self.finished(None, oid, is_new);
        Ok(())
    }

    /// Ends the put and tells everyone.
    fn finished(&self, live: Option<&Oid>, oid: &Oid, is_new: bool) {
        if let Some(live) = live {
            self.productions.end(live);
            self.notices.changed(live);
        }
        self.notices.complete(oid);
        if is_new {
            self.notices.tell(oid);
        }
    }

    /// Puts a file by reference: it is not copied, and its stamp says whether it is still the same.
    ///
    /// A file that the index knows under a settled stamp is not read. Any other is hashed
    /// in one pass on all cores, and under `live`, if given, it can be read meanwhile piece by piece, as
    /// if it were being streamed; at the end `live` is bound to the content. Returns OID and size.
    pub fn put_file(&self, path: &Path, live: Option<&Oid>, about: &About) -> Result<(Oid, u64), StoreError> {
        if live.is_some_and(|live| !live.is_live()) {
            return Err(NOT_LIVE);
        }
        let path = &path.canonicalize().map_err(|error| StoreError::io("finding", path, error))?;
        let stamp = Stamp::of_regular(path).map_err(|error| StoreError::io("looking at", path, error))?;
        let stamp = stamp.ok_or(StoreError::Refused { why: "only a regular file can be put by name" })?;
        if let Some(oid) = self.known_file(path, &stamp)? {
            self.refer(live, about, &oid, stamp.size, |_| Ok(()))?;
            return Ok((oid, stamp.size));
        }
        let unbound = match live {
            Some(live) if self.binding(live)?.is_none() => Some(live),
            _ => None,
        };
        let hashed = match unbound {
            Some(live) => self.hash_live(Referred::open(path)?, live, about)?,
            None => Referred::open(path).and_then(|referred| hash_open_file(&referred.file, path))?,
        };
        self.refer_to(path, live, about, hashed)
    }

    /// [`Self::put_file`] of a file that was opened by someone who knows that it is the right one,
    /// under a `live` name that is not bound. `path` (absolute, without symbolic links) is where
    /// it is looked for later; its stamp tells whether what is found there is this very file.
    pub fn put_open_file(
        &self,
        file: File,
        path: &Path,
        live: &Oid,
        about: &About,
    ) -> Result<(Oid, u64), StoreError> {
        if !live.is_live() {
            return Err(NOT_LIVE);
        }
        let hashed = self.hash_live(Referred::of(file, path)?, live, about)?;
        self.refer_to(path, Some(live), about, hashed)
    }

    fn refer_to(
        &self,
        path: &Path,
        live: Option<&Oid>,
        about: &About,
        hashed: Hashed,
    ) -> Result<(Oid, u64), StoreError> {
        let (oid, size) = (hashed.oid, hashed.stamp.size);
        let (dir, name) = (path.parent().unwrap_or(path), path.file_name().unwrap_or_default());
        let record = FileRecord::new(dir, name, hashed);
        self.refer(live, about, &oid, size, |t| files::record(t, &mut DirNumbers::default(), &record))?;
        Ok((oid, size))
    }

    fn known_file(&self, path: &Path, stamp: &Stamp) -> Result<Option<Oid>, StoreError> {
        let name = path.file_name().unwrap_or_default();
        let known = self.known(path.parent().unwrap_or(path), &[(name, *stamp)])?;
        Ok(known.into_iter().next().flatten())
    }

    /// Records what was put, and ends the put.
    fn refer(
        &self,
        live: Option<&Oid>,
        about: &About,
        oid: &Oid,
        size: u64,
        record: impl FnOnce(&Connection) -> IndexOutcome<()>,
    ) -> Result<(), StoreError> {
        let durability = if live.is_some() { Durability::Synced } else { Durability::Cached };
        let is_new = self.index.write(durability, "recording a file", |t| {
            let is_new = rows::known(t, oid)?.is_none();
            record(t)?;
            rows::put_object(t, oid, &ObjectRow { size, is_owned: false, about: about.clone() })?;
            if let Some(live) = live {
                rows::bind(t, live, oid, size)?;
            }
            Ok(is_new)
        })?;
        self.finished(live, oid, is_new);
        Ok(())
    }

    fn hash_live(&self, referred: Referred, live: &Oid, about: &About) -> Result<Hashed, StoreError> {
        let layout = Layout::live(referred.before.stamp.size).map_err(|_| TOO_LONG)?;
        let put = self.productions.begin(live, about, IncomingBody::Referred(referred))?;
        self.notices.changed(live);
        let hashed = self.hash_put(&put, live, &layout);
        if hashed.is_err() && self.productions.is_open(live, &put) {
            self.abandon(live);
        }
        hashed
    }

    fn hash_put(&self, put: &DiskPut, live: &Oid, layout: &Layout) -> Result<Hashed, StoreError> {
        let IncomingBody::Referred(Referred { file, path, before }) = &put.body else {
            return Err(NOT_OPEN);
        };
        let mut values = Vec::new();
        let hashed = hash_pieces(file, layout, &mut |run| {
            if !self.productions.is_open(live, put) {
                return Err(io::ErrorKind::Interrupted.into());
            }
            values.extend(run);
            put.publish_to(&values[..(whole_pieces(layout) as usize).min(values.len())]);
            self.notices.changed(live);
            Ok(())
        });
        if !self.productions.is_open(live, put) {
            return Err(NOT_OPEN);
        }
        hashed.map_err(|error| before.explain(error, file, path))?;
        before.check(file, path)?;
        let oid = pieces::oid_of(&values);
        let values = (values.len() > 1).then_some(values);
        Ok(Hashed { oid, stamp: before.stamp, settled: before.settled, values })
    }
}

/// Pieces that are shown while a file is hashed: those that are full and not the whole object.
const fn whole_pieces(layout: &Layout) -> u64 {
    if layout.count() == 1 { 0 } else { layout.size() / LIVE_PIECE }
}
