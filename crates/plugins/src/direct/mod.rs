//! The direct plugin: objects from another Towpath service, over the protocol that both speak
//! (`docs/formats/protocol.md`; DOT's default GTC-GTC plugin, `papers/dot.txt` §4.2).
//!
//! | module | story |
//! |---|---|
//! | [`client`] | [`Direct`]: reaches its peer, by dialling it again and again, and is a transfer plugin |
//! | `attempt` | an attempt to dial, which goes on when whoever waited for it goes away |
//! | `redialling` | dialling again and again while a relay brings the bytes |
//! | [`relayed`] | calls through relays |
//! | `slots` | the connections to one peer |
//! | [`pool`] | the connections of a service, which its transfers may use whoever dialled them; and when: pure |
//! | `entries` | entries over several connections |
//! | `further_ways` | further ways to a service: its other addresses, and other lines of this machine |
//! | `apart` | what came over such a connection and waits for its session |
//! | `unasked` | wants that wait for a connection, and may be cancelled meanwhile |
//! | `widening` | how many connections to keep: pure |
//! | `long_path` | how many a long, fast path needs: pure |
//! | `path_growth` | whether what comes still doubles with each round trip: pure |

mod apart;
mod attempt;
pub mod client;
mod entries;
pub(crate) mod further_ways;
mod long_path;
mod path_growth;
pub mod pool;
mod redialling;
pub mod relayed;
mod slots;
mod unasked;
mod widening;

pub use client::{Direct, DirectConfig};
pub use further_ways::LedTo;
pub use pool::{PeerHost, PeerPool};
pub use towpath_link::tcp::{LocalEnd, NoLocalEnd};

/// The scheme of hints that this plugin answers: `tow://HOST:PORT`, or `tow://NODE@HOST:PORT`.
pub const SCHEME: &str = "tow";
