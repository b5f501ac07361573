//! Whoever holds a vault's nodes and blocks: its server, and copies of what that keeps. Each object is named by its hash, so it may come from
//! anybody, and who gives another one has lied.
//!
//! ```text
//!   draw ──► pool ── events, time ──► drawing ──► dealer       who brings what: pure
//!              ▲ │ asks
//!              │ ▼
//!            link, link, link ── tow-vault/1 ──► holders       a task and a connection each
//! ```
//!
//! | module | story |
//! |---|---|
//! | [`pool`] | holders, and objects that are drawn from them |
//! | [`drawing`] | which holder is asked for what, and what becomes of the answers; pure |
//! | [`window`] | how much a holder is asked for ahead; pure |
//! | `holder` | a holder and what is drawn from it, as all see them |
//! | `link` | one holder on a connection |
//!
//! **Promises.** A holder that can't be reached, or goes, costs what it was asked for and nothing else: others are asked for that. One that
//! gives other bytes is asked for nothing more. An object is missing once all holders that are left said so.

pub mod drawing;
mod holder;
mod link;
pub mod pool;
pub mod window;

pub use drawing::{HolderReport, HolderStanding};
pub use holder::{DrawError, HolderFault, HolderPlace, WantedObject};
pub use pool::HolderPool;
