//! A byte store that fails on purpose, for tests.

use std::fmt;
use std::io::Read;
use std::ops::Range;
use std::sync::Arc;

use crate::error::ByteStoreError;
use crate::name::{ByteName, PlaceOwner};
use crate::seam::{ByteStore, Listed, PutResult};

/// A call of a byte store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ByteCall {
    /// [`ByteStore::claim`]
    Claim,
    /// [`ByteStore::put`]
    Put,
    /// [`ByteStore::size`]
    Size,
    /// [`ByteStore::get_range`]
    Get,
    /// [`ByteStore::list`]
    List,
    /// [`ByteStore::delete`]
    Delete,
}

/// Decides which calls fail, and how.
pub type ByteFaults = dyn Fn(ByteCall) -> Option<ByteStoreError> + Send + Sync;

/// Another byte store whose calls fail when `faults` says so, before they do anything.
pub struct FailingBytes {
    inner: Arc<dyn ByteStore>,
    faults: Box<ByteFaults>,
}

impl FailingBytes {
    /// Wraps `inner`.
    pub fn new(inner: Arc<dyn ByteStore>, faults: Box<ByteFaults>) -> Self {
        Self { inner, faults }
    }

    fn check(&self, call: ByteCall) -> Result<&dyn ByteStore, ByteStoreError> {
        (self.faults)(call).map_or(Ok(&*self.inner), Err)
    }
}

impl fmt::Debug for FailingBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("FailingBytes").field(&self.inner).finish()
    }
}

impl ByteStore for FailingBytes {
    fn place(&self) -> &str {
        self.inner.place()
    }

    fn claim(&self, owner: &PlaceOwner, may_begin: bool) -> Result<(), ByteStoreError> {
        self.check(ByteCall::Claim)?.claim(owner, may_begin)
    }

    fn put(&self, name: &ByteName, bytes: &mut dyn Read, size: u64) -> Result<PutResult, ByteStoreError> {
        self.check(ByteCall::Put)?.put(name, bytes, size)
    }

    fn size(&self, name: &ByteName) -> Result<u64, ByteStoreError> {
        self.check(ByteCall::Size)?.size(name)
    }

    fn get_range(&self, name: &ByteName, range: Range<u64>, buf: &mut Vec<u8>) -> Result<(), ByteStoreError> {
        self.check(ByteCall::Get)?.get_range(name, range, buf)
    }

    fn list(&self, after: Option<&ByteName>, most: usize) -> Result<Vec<Listed>, ByteStoreError> {
        self.check(ByteCall::List)?.list(after, most)
    }

    fn delete(&self, name: &ByteName) -> Result<(), ByteStoreError> {
        self.check(ByteCall::Delete)?.delete(name)
    }
}
