//! Leases that end with the process that held their session, or that was about to commit their put.
//!
//! A process that keeps sessions or commits holds a file of its own locked (`flock`), and such
//! leases name that file. When the process is gone, however it went, the lock is too; then whoever
//! comes next ends those leases. What other processes that run hold is left alone.
//!
//! A put's lease is recorded before its commit, which tells it the content in the same step that
//! makes the object: without content its bytes are gone with the process. A file that is put by
//! name can be read again, so its lease stays.

use towpath_content::Oid;

use super::folders::sweep;
use super::index::Durability;
use super::leases;
use super::parts::DiskStore;
use crate::error::StoreError;
use crate::leases::{Holder, Lease};

impl DiskStore {
    pub(super) fn keep_lease(&self, lease: &Lease) -> Result<(), StoreError> {
        let is_of_process = match lease.holder {
            Holder::Pinned => lease.content.is_none() && lease.path.is_none(),
            Holder::Session(_) => true,
        };
        let owner = is_of_process.then(|| self.sessions.owner()).transpose()?;
        let put = |t: &_| leases::put(t, lease, owner.as_deref());
        self.index.write(Durability::Synced, "recording a lease", |t| put(t))
    }

    /// Notes the size of what a lease names, once that is known: of a tree, the bytes of its files.
    pub fn note_size(&self, name: &Oid, size: u64) -> Result<(), StoreError> {
        self.index.write(Durability::Synced, "noting a size", |t| leases::set_size(t, name, size))
    }

    /// Notes where the chunks of what a lease names are to end, for [`Self::give_boundaries`] once it was
    /// read: also by another process, if this one ends before. Without a lease nothing is noted.
    pub fn note_boundaries(&self, name: &Oid, ends: &[u64]) -> Result<(), StoreError> {
        let put = |t: &_| leases::set_boundaries(t, name, ends);
        self.index.write(Durability::Synced, "noting boundaries", |t| put(t))
    }

    /// What was noted, and neither forgotten nor given back with its lease.
    pub fn noted_boundaries(&self, name: &Oid) -> Result<Vec<u64>, StoreError> {
        self.index.read("reading boundaries", |conn| leases::boundaries(conn, name))
    }

    /// What was noted is of no more use.
    pub fn forget_boundaries(&self, name: &Oid) -> Result<(), StoreError> {
        self.index.write(Durability::Cached, "forgetting boundaries", |t| leases::clear_boundaries(t, name))
    }

    pub(super) fn end_one_session(&self, session: &[u8; 16]) -> Result<Vec<Oid>, StoreError> {
        let take = |t: &_| leases::take_session(t, session);
        let ended = self.index.write(Durability::Synced, "ending a session", |t| take(t))?;
        ended.iter().for_each(|name| self.notices.changed(name));
        Ok(ended)
    }

    /// Gives back the leases of sessions, and of puts that were not committed, whose process is gone;
    /// returns their names. For the start of a daemon; what other running processes hold is left
    /// alone.
    pub fn end_sessions(&self) -> Result<Vec<Oid>, StoreError> {
        let mut owners = self.index.read("reading leases", leases::owners)?;
        owners.retain(|owner| self.sessions.is_gone(owner));
        let mut ended = Vec::new();
        for owner in owners {
            let take = |t: &_| leases::take_owned(t, &owner);
            ended.extend(self.index.write(Durability::Synced, "ending sessions", |t| take(t))?);
        }
        sweep(&self.sessions.folder)?;
        ended.iter().for_each(|name| self.notices.changed(name));
        Ok(ended)
    }
}
