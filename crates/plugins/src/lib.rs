//! The transfer plugins of Towpath, one module each, and [`registry`], which lists them all and
//! builds trees of them from configuration.
//!
//! | module | scheme | story |
//! |---|---|---|
//! | [`direct`] | `tow:` | from another service, over the protocol of `docs/formats/protocol.md` |
//! | [`local`] | – | from this machine's own store |
//! | [`cascade`] | – | wraps others: what one does not have is asked of the next |
//! | [`takeover`] | – | wraps two: the better one once it stands, the first one again when it falls |

pub mod cascade;
pub mod direct;
pub mod local;
pub mod registry;
mod sieve;
pub mod takeover;

pub use cascade::Cascade;
pub use direct::Direct;
pub use local::Local;
pub use takeover::Takeover;
