//! Peers that lie, stall and talk nonsense, in both directions: each gets a clear refusal, and
//! nobody else in the process notices.

mod client;
mod compressed;
mod control;
pub mod liar;
mod service;
mod strangers;
