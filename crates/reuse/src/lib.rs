//! What is here already need not come over the network: search of the disk, deltas of similar files,
//! and the scheduler that decides between disk and network (dsync, `papers/dsync.txt`).
//!
//! | module | story |
//! |---|---|
//! | [`adaptive`] | a plugin that draws from network and disk at once |
//! | [`disk_search`] | chunks from files on this machine's own disk |

pub mod adaptive;
pub mod disk_search;
