//! Files as deltas of their older versions: how file and base are cut, and which literals come in a step more.
//!
//! | part | story |
//! |---|---|
//! | [`parts`] | parts, their signatures and deltas |
//! | [`PatchParts`] | the same for patches |
//! | [`refine`] | the literals of a delta as a delta of what it leaves |

pub mod parts;
mod patch_parts;
pub mod refine;

pub use patch_parts::PatchParts;
