//! What two versions of a file have in common. Pure: it sees hashes and bytes of chunks, and no vault.
//!
//! | module | story |
//! |---|---|
//! | [`chunk_list`] | chunks in order, and where each is |
//! | [`mod@difference`] | which chunks go, and which come in their place |
//! | [`likeness`] | which of those that go is like one that comes |

pub mod chunk_list;
pub mod difference;
pub mod likeness;
