//! Files as deltas of their older versions: packing. What is cut, signed and sent is [`towpath_content::delta::exchange`].
//!
//! | module | story |
//! |---|---|
//! | [`patches`] | where the sender has the older version too |

use towpath_content::delta::exchange::parts::MAX_PART_LEN;
use towpath_protocol::packing;

pub mod patches;

/// A delta of a part has at most this many bytes: ops are few.
const MAX_UNPACKED_LEN: u64 = 2 * MAX_PART_LEN;

/// Takes a delta of a part out of its packing.
pub fn unpack(packed: &[u8]) -> Option<Vec<u8>> {
    packing::unpack(packed, MAX_UNPACKED_LEN)
}
