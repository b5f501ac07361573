//! Leases that end with the process that held their session, or that was about to commit their put.
//!
//! A process that keeps sessions or commits holds a file of its own locked (`flock`), and such
//! leases name that file. When the process is gone, however it went, the lock is too; then whoever
//! comes next ends those leases. What other processes that run hold is left alone.
//!
//! A put's lease is recorded before its commit, which tells it the content in the same step that
//! makes the object: without content its bytes are gone with the process. A file that is put by
//! name can be read again, so its lease stays.

use std::path::Path;
use std::sync::Arc;

use towpath_content::Oid;

use super::folders::sweep;
use super::index::Durability;
use super::leases;
use super::session_locks::SessionLocks;
use super::store_core::StoreCore;
use crate::error::StoreError;
use crate::leases::{Holder, Lease};

/// The leases of a store.
pub struct LeaseTable {
    core: Arc<StoreCore>,
    processes: SessionLocks,
}

impl LeaseTable {
    /// Those of the store with this core, whose index is in `state_dir`.
    pub(super) fn open(core: Arc<StoreCore>, state_dir: &Path) -> Result<Self, StoreError> {
        Ok(Self { core, processes: SessionLocks::open(state_dir)? })
    }

    /// Records or replaces a lease.
    pub(super) fn put(&self, lease: &Lease) -> Result<(), StoreError> {
        let is_of_process = match lease.holder {
            Holder::Pinned => lease.content.is_none() && lease.path.is_none(),
            Holder::Session(_) => true,
        };
        let owner = is_of_process.then(|| self.processes.owner()).transpose()?;
        let put = |t: &_| leases::put(t, lease, owner.as_deref());
        self.core.index.write(Durability::Synced, "recording a lease", |t| put(t))
    }

    /// All leases, oldest first.
    pub(super) fn all(&self) -> Result<Vec<Lease>, StoreError> {
        self.core.index.read("reading leases", leases::all)
    }

    /// Gives back the lease of that name, else the oldest of that content; false if there is none.
    pub(super) fn done(&self, oid: &Oid) -> Result<bool, StoreError> {
        let name =
            self.core.index.write(Durability::Synced, "giving a lease back", |t| leases::take(t, oid))?;
        name.iter().for_each(|name| self.core.notices.changed(name));
        Ok(name.is_some())
    }

    /// Notes the size of what a lease names, once that is known: of a tree, the bytes of its files.
    pub fn note_size(&self, name: &Oid, size: u64) -> Result<(), StoreError> {
        self.core.index.write(Durability::Synced, "noting a size", |t| leases::set_size(t, name, size))
    }

    /// Notes where the chunks of what a lease names are to end, for
    /// [`Recipes::give_boundaries`](super::Recipes::give_boundaries) once it was read: also by another process, if
    /// this one ends before. Without a lease nothing is noted.
    pub fn note_boundaries(&self, name: &Oid, ends: &[u64]) -> Result<(), StoreError> {
        let put = |t: &_| leases::set_boundaries(t, name, ends);
        self.core.index.write(Durability::Synced, "noting boundaries", |t| put(t))
    }

    /// Noted boundaries, neither forgotten nor given back with their lease.
    pub fn noted_boundaries(&self, name: &Oid) -> Result<Vec<u64>, StoreError> {
        self.core.index.read("reading boundaries", |conn| leases::boundaries(conn, name))
    }

    /// Forgets the noted boundaries, which are of no more use.
    pub fn forget_boundaries(&self, name: &Oid) -> Result<(), StoreError> {
        self.core
            .index
            .write(Durability::Cached, "forgetting boundaries", |t| leases::clear_boundaries(t, name))
    }

    /// Gives back all leases of a session; returns their names.
    pub(super) fn end_session(&self, session: &[u8; 16]) -> Result<Vec<Oid>, StoreError> {
        let take = |t: &_| leases::take_session(t, session);
        let ended = self.core.index.write(Durability::Synced, "ending a session", |t| take(t))?;
        ended.iter().for_each(|name| self.core.notices.changed(name));
        Ok(ended)
    }

    /// Gives back the leases of sessions, and of puts that were not committed, whose process is gone;
    /// returns their names. For the start of a daemon; what other running processes hold is left
    /// alone.
    pub fn end_sessions(&self) -> Result<Vec<Oid>, StoreError> {
        let mut owners = self.core.index.read("reading leases", leases::owners)?;
        owners.retain(|owner| self.processes.is_gone(owner));
        let mut ended = Vec::new();
        for owner in owners {
            let take = |t: &_| leases::take_owned(t, &owner);
            ended.extend(self.core.index.write(Durability::Synced, "ending sessions", |t| take(t))?);
        }
        sweep(&self.processes.folder)?;
        ended.iter().for_each(|name| self.core.notices.changed(name));
        Ok(ended)
    }
}
