//! Files as deltas of their older versions.
//!
//! | module | story |
//! |---|---|
//! | [`deltas`] | parts, their signatures and deltas |
//! | [`refine`] | the literals of a delta as a delta of what it leaves |
//! | [`patches`] | where the sender has the older version too |

pub mod deltas;
pub mod patches;
pub mod refine;
