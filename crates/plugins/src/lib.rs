//! The transfer plugins of Towpath, one module each, and [`registry`], which lists them all and builds
//! trees of plugins from configuration.
//!
//! | module | scheme | story |
//! |---|---|---|
//! | [`direct`] | `tow:` | from another service, over the protocol between services |
//! | [`local`] | – | from this machine's own store |
//! | [`many`] | – | wraps others: each brings what it is best at, as [`towpath_dealer`] decides |
//! | [`hinted`] | – | finds the nodes that hints name, as they change |
//! | [`near`] | – | the site's cache, which [`many`] asks before all others |
//! | [`links`] | – | several links to one peer as one way |
//! | [`cascade`] | – | wraps others: what one does not have is asked of the next |
//! | [`Inspected`] | – | wraps any: what comes passes the processors |
//! | [`preferred`] | – | wraps any for one transfer: its priority, encryption required |
//! | [`takeover`] | – | wraps two: the better one once it stands, the first one again when it falls |

mod asking_order;
pub mod cascade;
pub mod direct;
mod fallback_sink;
mod having;
pub mod hinted;
mod inspected;
pub mod links;
pub mod local;
pub mod many;
pub mod near;
pub mod preferred;
pub mod registry;
#[cfg(test)]
mod simulated;
pub mod takeover;

pub use cascade::Cascade;
pub use direct::Direct;
pub use hinted::HintedNodes;
pub use inspected::Inspected;
pub use links::LinkWays;
pub use local::Local;
pub use many::Many;
pub use preferred::Preferred;
pub use takeover::Takeover;
