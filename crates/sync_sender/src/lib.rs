//! The sending side of a copy: its sources read as one tree, its entries on their way, and the answers to requests for
//! what files hold.
//!
//! | module | story |
//! |---|---|
//! | [`source`], [`listed`] | the sources read as one tree; the part of one that may come, pure |
//! | [`tree_sending`] | the sender's half of the tree protocol, pure |
//! | [`sender`], [`offers`] | the same over a connection; content that the receiver may fetch |
//! | [`answering`], [`reading`] | answers to requests; reads files for them |
//! | [`exchange`], `patching` | files that go as deltas or patches of an older version; [`towpath_content::delta::exchange`] decides |
//! | [`sent`] | contents that went to a node before |
//! | [`removal`] | removals at the source |

pub mod answering;
pub mod exchange;
pub mod listed;
pub mod offers;
mod patching;
pub mod reading;
pub mod removal;
pub mod sender;
pub mod sent;
pub mod source;
pub mod tree_sending;

use towpath_sync_messages::{errands, error, events, file_result, message, threads};
