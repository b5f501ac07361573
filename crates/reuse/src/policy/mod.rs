//! What is worth its work: decided by what is known of the network. Pure.
//!
//! | module | story |
//! |---|---|
//! | [`network`] | when bytes are dearer than the work of saving them |
//! | [`effort`] | how hard a sender packs |
//! | [`worth`] | whether packing is still tried |

pub mod effort;
pub mod network;
pub mod worth;
