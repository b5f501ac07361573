//! Work worth its cost, decided by what is known of the network. Pure.
//!
//! | module | story |
//! |---|---|
//! | [`network`] | when bytes are dearer than the work of saving them |
//! | [`compression_level`] | how hard a sender packs |

pub mod compression_level;
pub mod network;
