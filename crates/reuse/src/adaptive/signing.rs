//! Regions of local files, read and signed as bases of what likely resembles them. Blocks.

use std::sync::Arc;

use towpath_content::delta::exchange::{Base, Request, SignedParts};
use towpath_content::delta::{self, Hints};
use towpath_disk_search as disk_search;
use towpath_transfer::SignedBase;

use super::neighbours::Region;
use crate::policy::network::Network;
use crate::policy::table::LEAST_STEPPED;

/// A region, signed for `len` bytes that likely resemble it. What cannot be read helps nobody. Where the network likes steps, what
/// has room for them is signed as copies sign theirs, in longer blocks.
pub(super) fn signed_base(region: &Region, len: u64, network: Network) -> Option<Arc<SignedBase>> {
    let bytes = disk_search::read(&region.path, &region.range).ok()?;
    let outlines = if len < LEAST_STEPPED { 0 } else { network.outlines() };
    let signature = if outlines > 0 {
        SignedParts::new(bytes.len() as u64, len, 1)?.sign(0, &bytes, true)?
    } else {
        let target = usize::try_from(len).ok()?;
        let block = delta::block_len(bytes.len(), target, &Hints::default());
        delta::Signature::of(&bytes, block, target).ok()?.to_bytes()
    };
    let request = Request { base: Base::Signature(signature), is_guess: false, outlines };
    Some(Arc::new(SignedBase { bytes: bytes.into(), request }))
}

/// An older version, signed as copies sign theirs for all of an object of `len` bytes. That is of no use but as a delta, which comes in
/// steps if the network likes that.
pub(super) fn signed_whole(region: &Region, len: u64, network: Network) -> Option<Arc<SignedBase>> {
    let bytes = disk_search::read(&region.path, &region.range).ok()?;
    let signature =
        SignedParts::new(bytes.len() as u64, len, 1)?.sign(0, &bytes, network.likes_outlines())?;
    let request = Request { base: Base::Signature(signature), is_guess: true, outlines: network.outlines() };
    Some(Arc::new(SignedBase { bytes: bytes.into(), request }))
}
