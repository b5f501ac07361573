//! Where peers come in to a service, and by what right they are served.
//!
//! | module | story |
//! |---|---|
//! | [`door`] | where peers come in: listens, opens, closes |
//! | [`listen`] | connections from peers, within limits |
//! | [`standing`] | the connections with peers that transfers may use, whoever dialled them |
//! | [`fetches`] | who fetches what from this service |
//! | [`fetch_limit`] | tickets by which only so many nodes fetch |
//! | [`get_peers`] | the connections that a get dialled |
//! | [`grants`] | which ticket secrets this service honours |
//! | [`brought`] | what a site's cache is asked to bring, and what it says to that |
//! | [`calling`] | calls to those who can't reach this service |
//! | `moving` | this machine's further addresses, of which those who fetch are told |
//! | [`meetings`] | where others find what this service serves, and it finds them |
//! | [`relayed`] | peers that come by a relay |
//! | [`told_holders`] | holders that a ticket's issuer tells of, and where it is itself |
//! | [`withdrawals`] | tickets that were taken back |
//! | [`ending`] | how long a service that is asked to end waits |
//! | [`fresh`] | random names, and the time |

pub mod brought;
pub mod calling;
pub mod door;
pub mod ending;
pub mod fetch_limit;
pub mod fetches;
pub mod fresh;
pub mod get_peers;
pub mod grants;
pub mod listen;
pub mod meetings;
mod moving;
pub mod relayed;
pub mod standing;
pub mod told_holders;
pub mod withdrawals;
