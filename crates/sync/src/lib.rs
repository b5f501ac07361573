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
//! | module | story |
//! |---|---|
//! | [`error`] | errors of a copy |
//! | [`host`] | the parts of the service that a copy runs in |
//! | `run` | a copy from its beginning to its end, at the person's side |
//! | `remote_end` | the same at the end that was started over ssh |
//! | `watching` | reports of a side that keeps silent |
//! | `local_copy` | the same within one machine |
//! | `described` | the same of a tree whose descriptor a ticket names |
//! | `endpoint`, `sender_role`, `receiver_role` | state of both endpoints; the part of each |
//! | `hearing` | the sender's messages, sorted by the receiver |
//! | `message` | the messages between the two sides |
//! | `source` | the sources read as one tree |
//! | `sender`, `offers` | sends entries, receives requests; content that the receiver may fetch |
//! | `answering`, `reading` | answers to requests; reads files for them |
//! | `exchange`, `patching`, `signatures` | files that go as deltas or patches of an older version; [`towpath_content::delta::exchange`] decides |
//! | `sent` | contents that went to a node before |
//! | `listed` | the part of a source that may come; pure |
//! | `destination_rules` | destinations of sources: the habits of cp and rsync; pure |
//! | `naming` | sources that stand for themselves or for what is in them; pure |
//! | `decide` | the action for an entry; pure |
//! | `merge`, `finish` | the receiving walk, and the work at its end |
//! | `requests` | files that the walk requests, and waits for |
//! | `noted`, `removing` | notes on disk until then; entries that may go, and what removing them would remove |
//! | `receiving`, `wanted`, `file_result` | state that its parts share; a file that is requested; its result |
//! | `file`, `file_permits` | one file on its way, what it is drawn from, and how many there are at once |
//! | `delta_requests`, `delta_receiver` | changed files that come as deltas of what lies in their place, or of what was found for them ([`towpath_reuse`]) |
//! | `supply`, `local`, `remote` | suppliers of files |
//! | `removal` | removals at the source |
//! | `events` | events for the person |
//! | `threads` | the threads that block, and their end |
//! | `records` | lists on disk |
//! | `fuzzing` | doors for the fuzz targets in `fuzz/`, in no other build |

mod answering;
mod decide;
mod delta_receiver;
mod delta_requests;
mod described;
mod destination_rules;
mod endpoint;
pub mod error;
mod events;
mod exchange;
mod file;
mod file_permits;
mod file_result;
mod finish;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
mod hearing;
pub mod host;
#[cfg(test)]
mod liar;
mod listed;
mod local;
mod local_copy;
mod merge;
mod message;
mod naming;
mod noted;
mod offers;
mod patching;
mod reading;
mod receiver_role;
mod receiving;
mod records;
mod remote;
mod remote_end;
mod removal;
mod removing;
mod requests;
mod run;
pub mod search;
mod sender;
mod sender_role;
mod sent;
mod signatures;
mod source;
mod supply;
mod threads;
mod wanted;
mod watching;

pub use described::{DescribedSource, DescribedTree, copy_described};
pub use error::CopyError;
pub use host::Host;
pub use merge::privileges::drop_unasked;
pub use receiving::policy;
pub use remote_end::{Writes, serve_stdio};
pub use run::run;
pub use threads::ended as threads_ended;
