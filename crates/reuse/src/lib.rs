//! Reuse of content that is here already, so that it need not come over the network: deltas of
//! similar files, and the scheduler that decides between disk and network (dsync, `papers/dsync.txt`). The disk is searched by
//! `towpath_disk_search`.
//!
//! | module | story |
//! |---|---|
//! | [`candidates`] | files that new ones may be the same as, or a version of |
//! | [`delta`] | files as deltas of their older versions |
//! | [`policy`] | what bytes are worth on a network, how hard they are packed |
//! | [`adaptive`] | a plugin that draws from network and disk at once |

pub mod adaptive;
pub mod candidates;
pub mod delta;
pub mod policy;
