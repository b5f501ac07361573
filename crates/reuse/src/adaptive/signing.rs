//! Regions of local files, read and signed as bases of what likely resembles them. Blocks.

use std::sync::Arc;

use towpath_content::delta::{self, Hints};
use towpath_transfer::SignedBase;

use super::neighbours::Region;
use crate::disk_search;

/// A region, signed for `len` bytes that likely resemble it, of which so much is known. What cannot be read helps nobody.
pub(super) fn signed_base(region: &Region, len: u64, hints: &Hints) -> Option<Arc<SignedBase>> {
    let bytes = disk_search::read(&region.path, &region.range).ok()?;
    let target = usize::try_from(len).ok()?;
    let block = delta::block_len(bytes.len(), target, hints);
    let signature = delta::Signature::of(&bytes, block, target).ok()?.to_bytes().into();
    Some(Arc::new(SignedBase { bytes: bytes.into(), signature }))
}
