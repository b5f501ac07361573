//! The seams beside the store's own: leases, which hold objects, and chunks by their hashes.
//!
//! A store that has them keeps the contract at the head of [`crate::seam`] for them as well.

use std::path::PathBuf;

use towpath_content::Oid;
use towpath_content::ticket::BoundSecret;

use crate::error::StoreError;
use crate::seam::{About, ObjectKind, Store};

/// Holder of a lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Holder {
    /// Nobody in particular: it holds until [`Leases::done`], across restarts.
    #[default]
    Pinned,
    /// An application's session, by its number: it holds no longer than the session.
    Session([u8; 16]),
}

/// A put that holds its object: until it is given back, the object stays.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lease {
    /// Name in the ticket: a live or a content OID. One lease per name.
    pub oid: Oid,
    /// The content OID, once known.
    pub content: Option<Oid>,
    /// Bytes, once known; for a tree, of all its files.
    pub size: Option<u64>,
    /// The ticket's secret, bound to the ticket's terms.
    pub secret: BoundSecret,
    /// The file or directory that was put, if it was one.
    pub path: Option<PathBuf>,
    /// Description that the put gave.
    pub about: About,
    /// Time of the lease, in seconds since 1970.
    pub created: u64,
    /// Until when.
    pub holder: Holder,
}

impl Lease {
    /// Notes what its live name was bound to. The size of a tree is not that of its descriptor,
    /// so it stays as the put said.
    pub(crate) fn learn(&mut self, content: Oid, size: u64) {
        self.content = Some(content);
        if self.about.kind == ObjectKind::Blob {
            self.size.get_or_insert(size);
        }
    }
}

/// A store that says which objects are held.
pub trait Leases: Store {
    /// Records or replaces a lease. What its live name is or comes to be bound to is filled in by
    /// the store: the content OID, and the size unless the put gave one or is of a tree.
    fn lease(&self, lease: &Lease) -> Result<(), StoreError>;

    /// All leases, oldest first.
    fn leases(&self) -> Result<Vec<Lease>, StoreError>;

    /// Gives one lease back: that of this name, else the oldest of this content; false if there is
    /// none. Its live name is unbound, so the ticket's right is gone.
    ///
    /// An object that nobody leases any more is *cache*: it can be had under its content OID, for
    /// the next who wants the same bytes, as long as the store has room to spare.
    fn done(&self, oid: &Oid) -> Result<bool, StoreError>;

    /// Gives back all leases that a session holds, as [`Leases::done`] does; returns their names.
    fn end_session(&self, session: &[u8; 16]) -> Result<Vec<Oid>, StoreError>;
}

/// A store that keeps chunks by their hashes.
pub trait Chunks: Store {
    /// Keeps one chunk by its BLAKE3 hash; each put needs one release.
    fn put_chunk(&self, hash: &[u8; 32], bytes: &[u8]) -> Result<(), StoreError>;

    /// Takes back one put of a chunk; the last one removes it.
    fn release_chunk(&self, hash: &[u8; 32]) -> Result<(), StoreError>;
}
