//! `tow cp` and `tow sync`: trees and files from here, to here, or within this machine. Its requests and reports stand
//! in [`towpath_api::copy`].
//!
//! ```text
//!            sender                                   receiver
//!   source ── Sources ── live tree descriptor ──► Merge ── what to do ──► Destination
//!                │                                  │ files that are wanted
//!             Sender  ◄────────── asks ──────────── Supplier
//!                └──── names of their contents ───►  │
//!      direct plugin  ◄──────── pieces ───────────── Session ── CopyFile ──► Destination
//! ```
//!
//! Within one machine there is no sender: the source is read in the merging thread, and the
//! supplier copies from disk to disk.
//!
//! The messages between both sides, and their errors, stand in [`towpath_sync_messages`]; the sources, and whoever sends them,
//! in [`towpath_sync_sender`].
//!
//! | module | story |
//! |---|---|
//! | [`host`] | the parts of the service that a copy runs in |
//! | `run` | a copy from its beginning to its end, at the person's side |
//! | `remote_end` | the same at the end that was started over ssh |
//! | `watching` | reports of a side that keeps silent |
//! | `local_copy` | the same within one machine |
//! | `described` | the same of a tree whose descriptor a ticket names |
//! | `endpoint`, `sender_role`, `receiver_role` | state of both endpoints; the part of each |
//! | `tree_receiving` | the receiver's half of the tree protocol, pure |
//! | `tree_link` | the same between the receiver's threads |
//! | `destination_rules` | destinations of sources: the habits of cp and rsync; pure |
//! | `naming` | sources that stand for themselves or for what is in them; pure |
//! | `decide` | the action for an entry; pure |
//! | `merge`, `finish` | the receiving walk, and the work at its end |
//! | `requests` | files that the walk requests, and waits for |
//! | `notes`, `removing` | notes on disk until then; entries that may go, and what removing them would remove |
//! | `receiving`, `wanted` | state that its parts share; a file that is requested |
//! | `file` | one file on its way, and what it is drawn from |
//! | `delta_requests` | changed files that come as deltas of what lies in their place, or of what was found for them ([`towpath_reuse`]) |
//! | `network_look` | what is known of the network |
//! | `supply`, `local`, `remote` | suppliers of files |
//! | `given` | a supplier for tests and fuzz targets |
//! | `fuzzing` | doors for the fuzz targets in `fuzz/`, in no other build |

mod decide;
mod delta_requests;
mod described;
mod destination_rules;
mod endpoint;
#[cfg(test)]
mod entry_sink;
mod file;
mod finish;
mod first_files;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
#[cfg(any(test, feature = "fuzzing"))]
mod given;
pub mod host;
#[cfg(test)]
mod liar;
mod local;
mod local_copy;
mod merge;
mod naming;
mod network_look;
mod notes;
mod receiver_role;
mod receiving;
mod remote;
mod remote_end;
mod removing;
mod requests;
mod run;
pub mod search;
mod sender_role;
#[cfg(test)]
mod simulated;
mod supply;
mod tree_link;
mod tree_receiving;
mod wanted;
mod watching;

pub use towpath_sync_messages::error;
use towpath_sync_messages::{errands, events, file_result, message, threads};
use towpath_sync_sender::{answering, listed, offers, removal, sender, sent, source};

pub use described::{DescribedSource, DescribedTree, copy_described};
pub use error::CopyError;
pub use host::Host;
pub use merge::privileges::drop_unasked;
pub use receiving::policy;
pub use remote_end::{Writes, serve_stdio};
pub use run::run;
pub use threads::ended as threads_ended;
