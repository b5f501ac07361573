//! Files as deltas of their older versions: packing. What is cut, signed and sent is `towpath_content::delta::exchange`.
//!
//! | module | story |
//! |---|---|
//! | [`patches`] | where the sender has the older version too |
//! | [`made`] | which files came so, of what and why: what people are told |

pub mod made;
pub mod patches;
