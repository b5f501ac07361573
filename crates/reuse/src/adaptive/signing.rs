//! Regions of local files, read and signed as bases of what likely resembles them. Blocks.

use std::sync::Arc;

use towpath_content::delta::exchange::{Base, Request, SignedParts};
use towpath_content::delta::{self, Hints};
use towpath_disk_search as disk_search;
use towpath_transfer::SignedBase;

use super::neighbours::Region;
use crate::policy::network::Network;

/// A region, signed for `len` bytes that likely resemble it. What cannot be read helps nobody. An older version of all of an object, and what may
/// come in steps as the network likes that, is signed as copies sign theirs, in longer blocks. The former is of no use but as a delta.
pub(super) fn signed_base(
    region: &Region,
    len: u64,
    is_whole: bool,
    network: Network,
) -> Option<Arc<SignedBase>> {
    let bytes = disk_search::read(&region.path, &region.range).ok()?;
    let signature = if is_whole || network.likes_outlines() {
        SignedParts::new(bytes.len() as u64, len, 1)?.sign(0, &bytes, network.likes_outlines())?
    } else {
        let target = usize::try_from(len).ok()?;
        let block = delta::block_len(bytes.len(), target, &Hints::default());
        delta::Signature::of(&bytes, block, target).ok()?.to_bytes()
    };
    let base = Base::Signature(signature);
    let request = Request { base, is_guess: is_whole, outlines: network.outlines() };
    Some(Arc::new(SignedBase { bytes: bytes.into(), request }))
}
