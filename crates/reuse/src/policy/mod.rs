//! Work worth its cost, decided by what is known of the network. Pure: values stand in one table, decisions beside it.
//!
//! | module | story |
//! |---|---|
//! | [`table`] | the values, each with its unit and where it was measured |
//! | [`network`] | when bytes are dearer than the work of saving them |
//! | [`compression_level`] | how hard a sender packs |

pub mod compression_level;
pub mod network;
pub mod table;
