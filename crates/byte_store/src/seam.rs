//! The seam: what a place for bytes must do, and its contract.
//!
//! **Bytes are named by their hash**, so a name has one content for ever. A byte store does not hash: its
//! caller puts the right bytes, and whoever reads them checks them.
//!
//! **Created once.** A put of a name that is there with the same size changes nothing. One that is
//! there with another size is replaced: it was left by a failure.
//!
//! **What may run at once.** Everything, from any number of threads and processes. Calls block. A put of a
//! name and its deletion at once end with one or the other; the store above keeps them apart.
//!
//! **What may be retried.** Everything.
//!
//! **After a crash.** What `put` returned `Ok` for is there, whole. A put that was cut short shows nothing
//! under its name.
//!
//! **A place belongs to one store**, which says so once (`claim`). So nobody deletes what is another's.
//!
//! **What errors mean** is told by [`ByteStoreError`], one variant for each different next step. An
//! implementation retries by itself what may pass, for a bounded time.

use std::fmt::Debug;
use std::io::Read;
use std::ops::Range;

use crate::error::ByteStoreError;
use crate::name::{ByteName, PlaceOwner};

/// Bytes that are read at once, at most: they are held in memory.
pub const MAX_RANGE: u64 = 16 << 20;
/// Names on one page of a list, at most.
pub const MAX_PAGE: usize = 1000;

/// Result of a put that ended well.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PutResult {
    /// The bytes were written.
    New,
    /// They were there already.
    WasHere,
}

/// An entry of a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Listed {
    /// Its name.
    pub name: ByteName,
    /// Its bytes.
    pub size: u64,
}

/// A place where bytes lie under their hash. The contract is at the head of this module.
pub trait ByteStore: Send + Sync + Debug {
    /// The place in words, for people. It holds no secret.
    fn place(&self) -> &str;

    /// Notes that the place belongs to `owner`. `Taken` if it is another's; that of one owner may be noted
    /// again. Unless it `may_begin`, a place without a note is `Missing`.
    fn claim(&self, owner: &PlaceOwner, may_begin: bool) -> Result<(), ByteStoreError>;

    /// Keeps the `size` bytes that `bytes` gives. With fewer or more of them it fails, and nothing is kept.
    /// Memory is bounded, whatever the size.
    fn put(&self, name: &ByteName, bytes: &mut dyn Read, size: u64) -> Result<PutResult, ByteStoreError>;

    /// Bytes that there are of a name.
    fn size(&self, name: &ByteName) -> Result<u64, ByteStoreError>;

    /// Appends a range to `buf`: all of it, or nothing if there is an error. At most [`MAX_RANGE`] bytes, and
    /// `Refused` for one that reaches beyond the end.
    fn get_range(&self, name: &ByteName, range: Range<u64>, buf: &mut Vec<u8>) -> Result<(), ByteStoreError>;

    /// Names that follow `after` in their order, up to `most` of them and [`MAX_PAGE`]. None are left if
    /// there is none.
    fn list(&self, after: Option<&ByteName>, most: usize) -> Result<Vec<Listed>, ByteStoreError>;

    /// Deletes bytes. It is no error if there are none.
    fn delete(&self, name: &ByteName) -> Result<(), ByteStoreError>;
}
