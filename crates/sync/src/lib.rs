//! `tow cp` and `tow sync`: trees and files from here, to here, or within this machine.
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
//! | [`options`], [`events`] | what is asked for; what is told |
//! | `run` | a copy from its beginning to its end, at the person's side |
//! | `started` | the same at the side that was started over ssh |
//! | `within` | the same within one machine |
//! | `side`, `sending`, `taking` | what both sides have; the sender's part, the receiver's part |
//! | [`place`], [`channel`], [`race`] | where things are, the way there over ssh, and a better one beside it |
//! | `patterns` | paths of the started side: its home, and names with wildcards |
//! | `hearing` | what the receiver hears, sorted |
//! | `message` | what the two sides say to each other |
//! | `source` | the sources read as one tree |
//! | `sender`, `offers` | tells entries, hears what is asked; what the receiver may fetch |
//! | `answering`, `reading` | what each ask is answered; reads files for that |
//! | `sent` | which contents went to a node before |
//! | `worth`, `effort` | whether messages are still packed, and how hard; pure |
//! | `listed` | which part of a source may come; pure |
//! | `placement` | where sources go: the habits of cp and rsync; pure |
//! | `judge` | what has to be done about an entry; pure |
//! | `merge`, `finish` | the receiving walk, and what waits for its end |
//! | `receiving` | what its parts share |
//! | `file`, `places` | one file on its way, what it is drawn from, and how many there are at once |
//! | `changed` | changed files that come as deltas of what lies in their place, or of what was found for them |
//! | `deltas`, `network` | how these are made, and when they are asked for; pure |
//! | `renames` | bytes that the destination has under an old name |
//! | `lookalikes`, `catalogue` | on slow networks: files of the destination that new ones may be the same as, or a version of |
//! | `beyond`, `siblings`, `namesakes` | the same of large files, beside the destination and near it |
//! | `versions` | names without their numbers; pure |
//! | `supply`, `local`, `remote` | who brings files |
//! | `removal` | what is removed at the source, and when |
//! | `talk` | what the person is told |
//! | `threads` | the threads that block, and their end |
//! | `records` | lists on disk |
//! | `fuzzing` | doors for the fuzz targets in `fuzz/`, in no other build |

mod answering;
mod beyond;
mod catalogue;
mod changed;
pub mod channel;
mod deltas;
mod effort;
pub mod events;
mod file;
mod finer;
mod finish;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
mod hearing;
mod incoming;
mod judge;
#[cfg(test)]
mod liar;
mod listed;
mod local;
mod lookalikes;
mod merge;
mod message;
mod namesakes;
mod network;
mod offers;
pub mod options;
mod patches;
mod patching;
mod patterns;
pub mod place;
mod placement;
mod places;
pub mod race;
mod reading;
mod receiving;
mod records;
mod remote;
mod removal;
mod renames;
mod run;
pub(crate) mod search;
mod sender;
mod sending;
mod sent;
mod siblings;
mod side;
mod signatures;
mod source;
mod started;
mod supply;
mod taking;
mod talk;
mod threads;
mod versions;
mod within;
mod worth;

pub use events::{CopyEvent, CopySummary, Counts, Dropped, FailureKind};
pub use options::{Check, CopyOptions, CopyRequest, Mode, Preserve, Via};
pub use run::run;
pub use started::serve_stdio;
pub use threads::ended as threads_ended;
