//! Jobs that workers are given, and how a piece is read and checked.

use std::io;
use std::ops::Range;
use std::sync::Arc;

use tokio::sync::OwnedSemaphorePermit;
use towpath_content::pieces::{Layout, Value};

use super::entry_work::EntryJob;
use crate::gathering::DoubtedPart;
use crate::object::{CheckError, ObjectInFlight};
use crate::want::{Delivery, Proof, Want};

/// Job of a worker.
pub(super) enum Job {
    /// Open the target.
    Begin { object: Arc<ObjectInFlight>, size: Option<u64> },
    /// Check a delivery and write it to every position.
    Check {
        want: Box<Want>,
        delivery: Delivery,
        /// One for each of the want's positions.
        destinations: Vec<WriteTarget>,
        /// Parts of what came before and may have been wrong.
        doubted: Vec<DoubtedPart>,
        room: Option<OwnedSemaphorePermit>,
    },
    /// Read what may be a piece and compare it with its value.
    Compare { object: Arc<ObjectInFlight>, index: u64 },
    /// Read a piece back from the target and compare it with its value.
    Recheck { object: Arc<ObjectInFlight>, index: u64 },
    /// Everything is there: compare with the OID and close.
    Complete { object: Arc<ObjectInFlight> },
    /// Hand an event to an entry's target.
    Entry(EntryJob),
}

/// Memory of a thread for one piece. It begins at a multiple of [`ALIGN`].
#[derive(Default)]
pub(super) struct Scratch(Vec<u8>);

/// Alignment of memory that the system copies a file's bytes to. A little beyond a page's begin, where
/// allocators like to put large blocks, copying takes some processors three times as long.
pub(super) const ALIGN: usize = 64;

impl Scratch {
    /// So many bytes, which hold anything.
    pub(super) fn bytes(&mut self, len: usize) -> &mut [u8] {
        if self.0.len() < len + ALIGN {
            self.0.resize(len + ALIGN, 0);
        }
        let front = self.0.as_ptr().align_offset(ALIGN).min(ALIGN);
        &mut self.0[front..front + len]
    }
}

/// Target of a want's bytes at one of its positions.
pub(super) struct WriteTarget {
    pub(super) object: Arc<ObjectInFlight>,
    /// Parts of the object to write.
    pub(super) parts: Vec<Range<u64>>,
}

/// Checks that these bytes are piece `index` of the objects that are written.
pub(super) fn check_piece(
    to: &[WriteTarget],
    layout: &Layout,
    index: u64,
    bytes: &[u8],
    proof: Option<&Proof>,
) -> Result<(), CheckError> {
    let first = to.first().ok_or(CheckError::NoProof)?;
    let value: Value = first.object.check_piece(layout, index, bytes, proof)?;
    // One value serves all objects of this name.
    for other in to.iter().skip(1) {
        other.object.learn_values(index, &[value]);
    }
    Ok(())
}

/// Bytes that are read, if they are piece `index`.
pub(super) fn read_good<'s>(
    object: &ObjectInFlight,
    index: u64,
    scratch: &'s mut Scratch,
    read: impl FnOnce(u64, &mut [u8]) -> io::Result<()>,
) -> Option<&'s [u8]> {
    let range: Range<u64> = object.piece_range(index);
    let bytes = scratch.bytes((range.end - range.start) as usize);
    let layout = object.layout().map_or_else(|| Layout::of(range.end), Ok).ok()?;
    read(range.start, bytes).ok()?;
    object.check_piece(&layout, index, bytes, None).ok()?;
    Some(bytes)
}
