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
use super::kept_bytes::KeptBytes;
use super::points;
use super::recipes::Recipes;
use super::records::FileRecords;
use super::rows::{self, ObjectRow, OwnBytes};
use super::store_core::StoreCore;
use crate::error::StoreError;
use crate::hashing::{Hashed, LIVE_PIECE, hash_open_file, hash_pieces};
use crate::productions::{Finished, IS_BOUND, NOT_LIVE, NOT_OPEN, Production, Productions, TOO_LONG};
use crate::seam::About;
use crate::spans::OUTSIDE;
use crate::stamp::Stamp;

type DiskPut = Arc<Production<IncomingBody>>;

/// The puts of a store.
pub(super) struct Puts {
    core: Arc<StoreCore>,
    records: Arc<FileRecords>,
    recipes: Arc<Recipes>,
    pub(super) open: Productions<IncomingBody>,
}

impl Puts {
    /// None is open yet.
    pub(super) fn new(core: Arc<StoreCore>, records: Arc<FileRecords>, recipes: Arc<Recipes>) -> Self {
        Self { core, records, recipes, open: Productions::new() }
    }

    /// Opens a put of streamed bytes.
    pub(super) fn begin(&self, live: &Oid, about: &About) -> Result<(), StoreError> {
        if self.core.binding(live)?.is_some() {
            return Err(IS_BOUND);
        }
        let body = IncomingBody::Streamed(self.core.folders.temporary()?);
        self.open.begin(live, about, body)?;
        self.core.notices.changed(live);
        Ok(())
    }

    /// Appends bytes to an open put.
    pub(super) fn push(&self, live: &Oid, data: &[u8]) -> Result<(), StoreError> {
        if self.open.get(live).ok_or(NOT_OPEN)?.push(data)? {
            self.core.notices.changed(live);
        }
        Ok(())
    }

    /// Notes that a chunk ends where the data of an open put end.
    pub(super) fn cut(&self, live: &Oid) -> Result<(), StoreError> {
        let put = self.open.get(live).ok_or(NOT_OPEN)?;
        if !matches!(put.body, IncomingBody::Streamed(_)) {
            return Err(NOT_OPEN);
        }
        put.cut();
        Ok(())
    }

    /// Gives a put up.
    pub(super) fn abandon(&self, live: &Oid) {
        if self.open.abandon(live).is_some() {
            self.core.notices.changed(live);
        }
    }

    /// Ends a put; returns its content.
    pub(super) fn commit(&self, live: &Oid) -> Result<Oid, StoreError> {
        let Some(put) = self.open.get(live) else {
            return self.core.binding(live)?.map(|(content, _)| content).ok_or(NOT_OPEN);
        };
        let IncomingBody::Streamed(temporary) = &put.body else {
            return Err(NOT_OPEN);
        };
        let Finished { oid, layout, values } = put.finish()?;
        let object = ObjectRow { size: layout.size(), own: OwnBytes::File, about: put.about.clone() };
        let _given =
            put.given(object.size).and_then(|lengths| self.try_keep_given(&oid, &lengths, temporary));
        let is_new = self.own(temporary, Some(live), &oid, &object, &values)?;
        self.finished(Some(live), &oid, is_new);
        Ok(oid)
    }

    /// Boundaries are advice: an object is not to fail for want of them.
    fn try_keep_given(&self, oid: &Oid, lengths: &[u32], incoming: &Temporary) -> Option<Temporary> {
        let kept = self.recipes.keep_given(oid, lengths, incoming);
        kept.inspect_err(|error| tracing::warn!(%error, "boundaries of chunks were not kept")).ok()
    }

    /// Makes a temporary the store's own copy of an object; true if it was not complete before. What has a
    /// file of its own already stays in that; else it goes into the byte store, if there is one.
    fn own(
        &self,
        temporary: &Temporary,
        live: Option<&Oid>,
        oid: &Oid,
        object: &ObjectRow,
        values: &[Value],
    ) -> Result<bool, StoreError> {
        if let Some(kept) = &self.core.kept
            && self.core.known(oid)?.is_none_or(|known| known.own != OwnBytes::File)
        {
            return self.own_kept(kept, temporary, live, oid, object, values);
        }
        temporary.sync(object.size)?;
        points::pass("after the bytes were synced");
        self.core.index.write(Durability::Synced, "committing an object", |t| {
            temporary.publish(&self.core.folders.object(oid))?;
            let is_new = rows::known(t, oid)?.is_none();
            rows::put_object(t, oid, object)?;
            rows::put_values(t, oid, values)?;
            live.map_or(Ok(()), |live| rows::bind(t, live, oid, object.size))?;
            Ok(is_new)
        })
    }

    /// Puts a temporary's bytes into the byte store, and then records the object. The stand-in, locked,
    /// keeps others from deleting them in between.
    fn own_kept(
        &self,
        kept: &KeptBytes,
        temporary: &Temporary,
        live: Option<&Oid>,
        oid: &Oid,
        object: &ObjectRow,
        values: &[Value],
    ) -> Result<bool, StoreError> {
        let _stand_in = self.core.folders.stand_in(oid)?;
        kept.put(oid, temporary.file(), object.size)?;
        points::pass("after the bytes were kept");
        let object = ObjectRow { own: OwnBytes::Kept, ..object.clone() };
        self.core.index.write(Durability::Synced, "committing an object", |t| {
            let is_new = rows::known(t, oid)?.is_none();
            rows::put_object(t, oid, &object)?;
            rows::put_values(t, oid, values)?;
            live.map_or(Ok(()), |live| rows::bind(t, live, oid, object.size))?;
            Ok(is_new)
        })
    }

    /// Takes a temporary as an object, whose bytes were checked.
    pub(super) fn adopt(
        &self,
        incoming: &Temporary,
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
        let object = ObjectRow { size, own: OwnBytes::File, about: about.clone() };
        let is_new = self.own(incoming, None, oid, &object, values)?;
        self.finished(None, oid, is_new);
        Ok(())
    }

    /// Ends the put and tells everyone.
    fn finished(&self, live: Option<&Oid>, oid: &Oid, is_new: bool) {
        if let Some(live) = live {
            self.open.end(live);
            self.core.notices.changed(live);
        }
        self.core.notices.complete(oid);
        if is_new {
            self.core.notices.tell(oid);
        }
    }

    /// Puts a file by reference; returns OID and size.
    pub(super) fn put_file(
        &self,
        path: &Path,
        live: Option<&Oid>,
        about: &About,
    ) -> Result<(Oid, u64), StoreError> {
        if live.is_some_and(|live| !live.is_live()) {
            return Err(NOT_LIVE);
        }
        let path = &path.canonicalize().map_err(|error| StoreError::io("finding", path, error))?;
        let stamp = Stamp::of_regular(path).map_err(|error| StoreError::io("looking at", path, error))?;
        let stamp = stamp.ok_or(StoreError::Refused { why: "only a regular file can be put by name" })?;
        if let Some(oid) = self.records.known_file(path, &stamp)? {
            self.refer(live, about, &oid, stamp.size, |_| Ok(()))?;
            return Ok((oid, stamp.size));
        }
        let unbound = match live {
            Some(live) if self.core.binding(live)?.is_none() => Some(live),
            _ => None,
        };
        let hashed = match unbound {
            Some(live) => self.hash_live(Referred::open(path)?, live, about)?,
            None => Referred::open(path).and_then(|referred| hash_open_file(&referred.file, path))?,
        };
        self.refer_to(path, live, about, hashed)
    }

    /// [`Self::put_file`] of a file that is open.
    pub(super) fn put_open_file(
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
        let is_new = self.core.index.write(durability, "recording a file", |t| {
            let is_new = rows::known(t, oid)?.is_none();
            record(t)?;
            rows::put_object(t, oid, &ObjectRow { size, own: OwnBytes::None, about: about.clone() })?;
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
        let put = self.open.begin(live, about, IncomingBody::Referred(referred))?;
        self.core.notices.changed(live);
        let hashed = self.hash_put(&put, live, &layout);
        if hashed.is_err() && self.open.is_open(live, &put) {
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
            if !self.open.is_open(live, put) {
                return Err(io::ErrorKind::Interrupted.into());
            }
            values.extend(run);
            put.publish_to(&values[..(whole_pieces(layout) as usize).min(values.len())]);
            self.core.notices.changed(live);
            Ok(())
        });
        if !self.open.is_open(live, put) {
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
