//! Chunks of a file, and what two of its versions have in common. Pure: it sees bytes, and no vault.
//!
//! | module | story |
//! |---|---|
//! | [`boundaries`] | where plaintext is cut |
//! | [`chunk_list`] | chunks in order, and where each is |
//! | [`keyed_hashes`] | hashes of several chunks at a time |
//! | [`mod@difference`] | which chunks go, and which come in their place |
//! | [`likeness`] | which of those that go is like one that comes |

pub mod boundaries;
pub mod chunk_list;
pub mod difference;
pub mod keyed_hashes;
pub mod likeness;
