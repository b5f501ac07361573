//! Drawing from network and disk at once, and never being slower for it (`papers/dsync.txt`,
//! `docs/design/adaptive.md`). All that decides is pure: it opens no file, asks no network, has no clock.
//! `plugin`, `driver` and `stalls` tie it to the session, the disk, the network and the kernel.
//!
//! | module | story |
//! |---|---|
//! | [`scheduler`] | the control loop: events and time in, actions out |
//! | [`event`] | its events and its actions |
//! | [`groups`] | the wanted chunks, by the file they belong to |
//! | [`heuristics`] | how likely a local file is useful, from metadata |
//! | [`paths`] | how near two directories are |
//! | [`operations`] | operations of the disk and their costs; the candidates |
//! | [`disk`], [`running`] | the disk as the scheduler sees it; what is under way |
//! | [`slow_start`] | whether a connection still finds its rate |
//! | [`costs`] | moving averages of what things cost |
//! | [`arrival`] | when the disk can be expected to bring a chunk |
//! | [`arrivals`] | the same for all groups, and which comes last |
//! | [`budget`], [`wide`] | how long may be searched where probably nothing is, and what that holds back |
//! | [`glance`] | the first moments, in which a slow network is not asked |
//! | [`neighbours`] | what of a local file a missing chunk likely resembles |
//! | [`network`] | what is asked of the network |
//! | [`backpressure`] | which resource is free, and when there is time to compute |
//! | [`benefit`] | when a recipe is worth asking for, a search worth going on with, and a region worth signing |
//! | [`account`] | what `--explain` tells |
//! | [`meter`] | the network as pieces show it, before anything is searched |
//! | `older_versions` | files of up to some MiB as deltas of their older versions |
//! | `signing` | regions of local files as bases |
//! | `pieces` | pieces under way, and which are taken back when a recipe is wanted |
//! | `stalls` | for how much of the time something waits for a processor or a disk, as the kernel tells it |
//! | `plugin` | [`Adaptive`]: the transfer plugin |
//! | `call_sink` | what takes deliveries of a call until it is over or dropped |
//! | `driver` | the task around the scheduler, with its sides of the disk and of the network |

pub mod account;
pub mod arrival;
pub mod arrivals;
pub mod backpressure;
pub mod benefit;
pub mod budget;
mod call_sink;
pub mod costs;
pub mod disk;
mod driver;
pub mod event;
pub mod glance;
pub mod groups;
pub mod heuristics;
pub mod meter;
pub mod neighbours;
pub mod network;
mod older_versions;
pub mod operations;
pub mod paths;
mod pieces;
mod plugin;
pub mod running;
pub mod scheduler;
mod signing;
pub mod slow_start;
mod stalls;
pub mod wide;

#[cfg(test)]
mod tests;

pub use account::{Account, Bottleneck};
pub use budget::Effort;
pub use driver::Search;
pub use event::{Action, End, Event};
pub use plugin::Adaptive;
pub use scheduler::{Scheduler, Settings};
