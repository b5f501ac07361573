//! `tow cp` and `tow sync`: trees and files from here, to here, or within this machine. What is asked for and what is
//! reported stands in [`towpath_api::copy`].
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
//! | [`error`] | what can go wrong |
//! | [`host`] | what a copy needs of the service that it runs in |
//! | `run` | a copy from its beginning to its end, at the person's side |
//! | `started` | the same at the side that was started over ssh |
//! | `watching` | what the person is told of a side that keeps silent |
//! | `within` | the same within one machine |
//! | `side`, `sending`, `taking` | what both sides have; the sender's part, the receiver's part |
//! | `hearing` | what the receiver hears, sorted |
//! | `message` | what the two sides say to each other |
//! | `source` | the sources read as one tree |
//! | `sender`, `offers` | tells entries, hears what is asked; what the receiver may fetch |
//! | `answering`, `reading` | what each ask is answered; reads files for that |
//! | `exchange`, `patching`, `signatures` | files that go as what they have over an older version; [`towpath_content::delta::exchange`] decides |
//! | `sent` | which contents went to a node before |
//! | `listed` | which part of a source may come; pure |
//! | `placement` | where sources go: the habits of cp and rsync; pure |
//! | `naming` | whether a source stands for itself or for what is in it; pure |
//! | `judge` | what has to be done about an entry; pure |
//! | `merge`, `finish` | the receiving walk, and what waits for its end |
//! | `noted`, `removing` | what is kept on disk until then; what removing would remove |
//! | `receiving`, `wanted`, `fate` | what its parts share; a file that is asked for; what became of it |
//! | `file`, `places` | one file on its way, what it is drawn from, and how many there are at once |
//! | `changed` | changed files that come as deltas of what lies in their place, or of what was found for them ([`towpath_reuse`]) |
//! | `supply`, `local`, `remote` | who brings files |
//! | `removal` | what is removed at the source, and when |
//! | `talk` | what the person is told |
//! | `threads` | the threads that block, and their end |
//! | `records` | lists on disk |
//! | `fuzzing` | doors for the fuzz targets in `fuzz/`, in no other build |

mod answering;
mod changed;
pub mod error;
mod exchange;
mod fate;
mod file;
mod finish;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
mod hearing;
pub mod host;
mod incoming;
mod judge;
#[cfg(test)]
mod liar;
mod listed;
mod local;
mod merge;
mod message;
mod naming;
mod noted;
mod offers;
mod patching;
mod placement;
mod places;
mod reading;
mod receiving;
mod records;
mod remote;
mod removal;
mod removing;
mod run;
pub mod search;
mod sender;
mod sending;
mod sent;
mod side;
mod signatures;
mod source;
mod started;
mod supply;
mod taking;
mod talk;
mod threads;
mod wanted;
mod watching;
mod within;

pub use error::CopyError;
pub use host::Host;
pub use run::run;
pub use started::{Writes, serve_stdio};
pub use threads::ended as threads_ended;
